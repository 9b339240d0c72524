//! The options of a proxy.

use core::time::Duration;

use whimbrel_core::Limit;
use whimbrel_ndn_packet::{MAX_PACKET, Name};
use whimbrel_transport::RegisterOptions;

use crate::message::Protocol;
use crate::phase::Patience;
use crate::policy::Policy;
use crate::seal::SealOptions;
use crate::unreliable::{DuplexPolicy, QueueLimits};

/// Bytes of a Data that are kept free for its name, signature and seal.
pub(crate) const DATA_OVERHEAD: usize = 100;
/// Longest prefix of a proxy, bytes: it is in each message that opens a connection.
const MAX_PREFIX: usize = 256;

/// Bounds of a proxy's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections; further ones are refused.
    pub connections: usize,
    /// Connections in [`crate::phase::Phase::Opening`]: beyond, the oldest of them is forgotten, so
    /// that a flood of SYNs does not keep others out.
    pub opening: usize,
    /// Connections of one address that are not answered yet, and new ones per second if none is:
    /// see [`crate::Proxy`].
    pub unanswered: Limit,
    /// The same of all addresses together that have no answered connection.
    pub newcomers: Limit,
    /// The same for connections that were refused and are asked for once more.
    pub repeated: Limit,
    /// Queues of one connection.
    pub queue: QueueLimits,
    /// Bytes of segments that wait, of all connections.
    pub queued_bytes: usize,
    /// Interests that wait for the forwarder.
    pub outgoing: usize,
    /// Packets that wait for the device.
    pub delivered: usize,
    /// Pending Interests that are remembered.
    pub pending: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 65_536,
            opening: 4096,
            unanswered: Limit {
                at_once: 512,
                per_second: 128,
            },
            newcomers: Limit {
                at_once: 1024,
                per_second: 512,
            },
            repeated: Limit {
                at_once: 64,
                per_second: 64,
            },
            queue: QueueLimits {
                bytes: 1024 * 1024,
                credits: 1024,
            },
            queued_bytes: 256 * 1024 * 1024,
            outgoing: 65_536,
            delivered: 65_536,
            pending: 262_144,
        }
    }
}

/// Options of a [`crate::Proxy`].
#[derive(Clone)]
pub struct Options {
    /// The proxy's routable prefix, with nothing else below it.
    pub prefix: Name,
    /// Who may use it.
    pub policy: Policy,
    /// The protocol for connections whose route names none.
    pub protocol: Protocol,
    /// Protection of what passes between the proxies.
    pub seal: SealOptions,
    /// Full duplex, of unreliable prefetching.
    pub duplex: DuplexPolicy,
    /// Paths to each peer that its connections share, at most. Below 2 all Interests go by name; else
    /// they have path tags ([PTP §3]) once probes have found two paths.
    pub paths: usize,
    /// Unreliable prefetching: additional Interests when a connection opens ([TCP/ICN §4.2]).
    pub extra_interests: u8,
    /// Largest Data, bytes: "e.g. 8KB" ([TCP/ICN §3.2.3]).
    pub icn_mtu: usize,
    /// Largest IP packet of TCP programs, bytes; MSS options are clamped to it ([TCP/ICN §3.2.3]).
    pub largest_packet: usize,
    /// Lifetime of Interests that fetch.
    pub interest_lifetime: Duration,
    /// An Interest is not answered any more when less than this is left of its lifetime: forwarders
    /// on the way received it earlier.
    pub expiry_margin: Duration,
    /// Lifetime of Interests that nothing answers.
    pub message_lifetime: Duration,
    /// Longest time between two wake-ups for segments that wait. After an outage of the network,
    /// the connection goes on within this time.
    pub wake_repeat: Duration,
    /// How long silent connections are kept.
    pub patience: Patience,
    /// Bounds of memory.
    pub limits: Limits,
    /// How the prefix is registered with the forwarder.
    pub register: RegisterOptions,
}

impl Options {
    /// Nothing is allowed until `policy` says so.
    pub fn new(prefix: Name, policy: Policy, seal: SealOptions) -> Options {
        let register = RegisterOptions::new(seal.clock);
        Options {
            prefix,
            policy,
            protocol: Protocol::default(),
            seal,
            duplex: DuplexPolicy::default(),
            paths: 1,
            extra_interests: 10,
            icn_mtu: 8192,
            largest_packet: 1500,
            interest_lifetime: Duration::from_secs(4),
            expiry_margin: Duration::from_millis(500),
            message_lifetime: Duration::from_secs(1),
            wake_repeat: Duration::from_millis(200),
            patience: Patience::default(),
            limits: Limits::default(),
            register,
        }
    }

    /// Checks what cannot work.
    pub fn check(&self) -> Result<(), OptionsError> {
        let prefix = self.prefix.as_ref().value().len();
        if self.prefix.is_empty() || prefix > MAX_PREFIX {
            return Err(OptionsError::Prefix(self.prefix.clone()));
        }
        let largest = MAX_PACKET;
        if !(1280..=largest).contains(&self.icn_mtu) {
            let mtu = self.icn_mtu;
            return Err(OptionsError::IcnMtu { mtu, largest });
        }
        if self.expiry_margin >= self.interest_lifetime {
            return Err(OptionsError::Lifetime);
        }
        Ok(())
    }

    /// Largest IP packet that programs may send: it fits in a Data.
    pub fn clamp(&self) -> usize {
        let names = 2 * self.prefix.as_ref().value().len() + 160;
        let fits = self.icn_mtu.saturating_sub(names + DATA_OVERHEAD);
        self.largest_packet.min(fits)
    }
}

/// Why options cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// No prefix, or too long.
    #[error("the prefix {0} must have at least one component and at most {MAX_PREFIX} bytes")]
    Prefix(Name),
    /// The size of Data is out of range.
    #[error("an ICN MTU of {mtu} bytes: from 1280 to {largest} are possible")]
    IcnMtu {
        /// What was asked for.
        mtu: usize,
        /// The largest NDN packet.
        largest: usize,
    },
    /// Interests would expire at once.
    #[error("the Interests' lifetime must be longer than their margin of expiry")]
    Lifetime,
}
