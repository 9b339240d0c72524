//! What a router is told at the start.

use core::time::Duration;

use whimbrel_core::{Guid, WallClock};
use whimbrel_link::HopConfig;

use super::{said::MAX_SAID, store::StoreLimits};

/// The whole configuration of a router.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// The router's own GUID, which is also the network address of the hosts attached to it.
    pub guid: Guid,
    /// What Unix time the run's origin was; records expire by it.
    pub wall: WallClock,
    /// Every hop's configuration but for the MTU, which each port states.
    pub hop: HopConfig,
    /// Capacity of the back-pressure buffer, in packets (B of [MFTP §3.4.1]).
    pub buffer_packets: usize,
    /// The proxy's storage.
    pub store: StoreLimits,
    /// Static routes.
    pub routes: Vec<Route>,
    /// Where chunks go whose address is in no route.
    pub default_route: Option<NextHop>,
    /// Numbers of the configured links that lead to name servers, best first. All other datagram
    /// ports are neighbours.
    pub name_servers: Vec<u32>,
    /// How stored chunks are tried again.
    pub proxy: ProxyPolicy,
}

impl RouterConfig {
    /// The most memory that chunks take on ports whose frames have at most `mtu` bytes, however
    /// many neighbours there are, in bytes: the formula of `docs/protocols/mobilityfirst.md`,
    /// without the tables of fixed size.
    pub fn memory_bound(&self, mtu: usize) -> u64 {
        let chunk = self.hop.chunk_limit as u64;
        let buffer = (self.buffer_packets as u64)
            .saturating_mul(mtu as u64)
            .max(chunk);
        buffer
            .saturating_add(self.store.total)
            .saturating_add(MAX_SAID + chunk)
    }
}

/// How the proxy tries stored chunks again [MFTP §3.3].
#[derive(Clone, Copy, Debug)]
pub struct ProxyPolicy {
    /// The storage timer: when it expires, the destination is looked up again.
    pub storage_timer: Duration,
    /// If false, stored chunks wait for a `Push` from their source: the receiver-driven approach
    /// that [MFTP §5.2.1] compares with.
    pub proactive: bool,
    /// A neighbour that answers but takes nothing for this long has the chunks that wait for it
    /// moved to storage, once half of the back-pressure buffer is in use [MFTP §3.4.3].
    pub held_back_patience: Duration,
}

impl Default for ProxyPolicy {
    fn default() -> ProxyPolicy {
        ProxyPolicy {
            storage_timer: Duration::from_secs(1),
            proactive: true,
            held_back_patience: Duration::from_secs(2),
        }
    }
}

/// The way to one network address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address: the GUID of a router.
    pub to: Guid,
    /// The neighbour that is nearer to it.
    pub via: NextHop,
}

/// A neighbour, by its GUID or by the number of the configured link to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// Whichever port this neighbour is on.
    Neighbour(Guid),
    /// The neighbour on this link of the configuration, whatever its GUID.
    Link(u32),
}
