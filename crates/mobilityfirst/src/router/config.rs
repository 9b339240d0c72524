//! The configuration of a router.

use core::time::Duration;

use whimbrel_core::{Guid, WallClock};
use whimbrel_link::HopConfig;

use crate::links::{HELD_BACK, HELD_BACK_BYTES};
use crate::split::SplitConfig;

use super::{said::MAX_SAID, store::StoreLimits};

/// The whole configuration of a router.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// The router's own GUID, which is also the network address of the hosts attached to it.
    pub guid: Guid,
    /// The Unix time of the run's origin; records expire by it.
    pub wall: WallClock,
    /// The configuration of every hop except for the MTU, which each port has.
    pub hop: HopConfig,
    /// Capacity of the back-pressure buffer, in packets (B of [MFTP §3.4.1]).
    pub buffer_packets: usize,
    /// The proxy's storage.
    pub store: StoreLimits,
    /// Static routes.
    pub routes: Vec<Route>,
    /// The next hop of chunks whose address has no route.
    pub default_route: Option<NextHop>,
    /// Numbers of the configured links that lead to name servers, best first. All other datagram
    /// ports are neighbours.
    pub name_servers: Vec<u32>,
    /// How stored chunks are retried.
    pub proxy: ProxyPolicy,
    /// How flows are divided among several next hops.
    pub split: SplitConfig,
}

impl RouterConfig {
    /// The maximum memory of chunks on ports whose frames have at most `mtu` bytes, however many
    /// neighbours there are, in bytes: the formula of `docs/protocols/mobilityfirst.md`, without
    /// the tables of fixed size.
    pub fn memory_bound(&self, mtu: usize) -> u64 {
        let chunk = self.hop.chunk_limit as u64;
        let buffer = (self.buffer_packets as u64)
            .saturating_mul(mtu as u64)
            .max(chunk);
        buffer
            .saturating_add(self.store.total)
            .saturating_add(MAX_SAID + chunk)
            .saturating_add(HELD_BACK.max as u64 * HELD_BACK_BYTES)
    }
}

/// How the proxy retries stored chunks [MFTP §3.3].
#[derive(Clone, Copy, Debug)]
pub struct ProxyPolicy {
    /// The storage timer: when it expires, the destination is looked up again. Doubled with each
    /// look-up in vain, up to a minute.
    pub storage_timer: Duration,
    /// If false, stored chunks wait for a `Push` from their source: the receiver-driven approach in
    /// the comparison of [MFTP §5.2.1].
    pub proactive: bool,
    /// If a responsive neighbour accepts no chunk for this long, the chunks that wait for it move
    /// to storage, once half of the back-pressure buffer is in use [MFTP §3.4.3].
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

/// A route to one network address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The address: the GUID of a router.
    pub to: Guid,
    /// The next hop.
    pub via: NextHop,
    /// Lower is better; among equals the route named first is preferred.
    pub preference: u16,
    /// Share of a divided flow [MF-5G §III] among routes of the same preference; at least 1.
    pub weight: u16,
}

impl Route {
    /// Returns a route of preference 0 and weight 1.
    pub fn new(to: Guid, via: NextHop) -> Route {
        Route {
            to,
            via,
            preference: 0,
            weight: 1,
        }
    }
}

/// A neighbour, by its GUID or by the number of the configured link to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// This neighbour, on any port.
    Neighbour(Guid),
    /// The neighbour on this link of the configuration, whatever its GUID.
    Link(u32),
}

impl NextHop {
    /// Returns the neighbour's name, if it is known by that.
    pub(super) fn name(&self) -> Option<Guid> {
        match self {
            NextHop::Neighbour(name) => Some(*name),
            NextHop::Link(_) => None,
        }
    }
}
