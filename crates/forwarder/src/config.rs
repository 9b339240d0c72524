//! Sizes and policies of a forwarder.

use core::time::Duration;

use whimbrel_ndn_packet::Name;

use crate::mgmt::ManagementConfig;

/// What a forwarder is told at its start. Every size is a bound that traffic cannot move.
#[derive(Clone, Debug)]
pub struct ForwarderConfig {
    /// Most pending Interests; when there are more, the least useful one gives way.
    pub pit_capacity: usize,
    /// The content store.
    pub content_store: CsConfig,
    /// What becomes of Data that nobody asked for.
    pub unsolicited: UnsolicitedPolicy,
    /// How long a nonce is remembered after its Interest has left the PIT (NFD: 6 s).
    pub dead_nonce_lifetime: Duration,
    /// Most nonces remembered so (the power of two below it); the oldest give way.
    pub dead_nonce_capacity: usize,
    /// Names of the producer regions that this node is in: an Interest whose forwarding hint names
    /// one of them has arrived, and is forwarded by its own name.
    pub producer_regions: Vec<Name>,
    /// HopLimit given to Interests that have none; `None` leaves them without.
    pub default_hop_limit: Option<u8>,
    /// How long a satisfied or rejected PIT entry stays, so that what comes late is still known
    /// (NFD today: zero).
    pub straggler: Duration,
    /// Longest InterestLifetime that is honoured.
    pub max_interest_lifetime: Duration,
    /// Which prefix has which strategy at the start. `/` must be among them, else it has
    /// best-route.
    pub strategies: Vec<(Name, Name)>,
    /// Most packets that wait for [`crate::Forwarder::poll_send`]; further ones are dropped and
    /// counted.
    pub queue_capacity: usize,
    /// Delay in the queue of a face's link that is no congestion yet (CoDel's target). Its interval
    /// is the face's own: [`crate::FaceSpec::base_congestion_interval`].
    pub congestion_target: Duration,
    /// Most measurements (one per FIB prefix and strategy) that adaptive strategies keep.
    pub measurements_capacity: usize,
    /// Whose commands are carried out, and how much they may ask for.
    pub management: ManagementConfig,
}

impl Default for ForwarderConfig {
    fn default() -> ForwarderConfig {
        ForwarderConfig {
            pit_capacity: 262_144,
            content_store: CsConfig::default(),
            unsolicited: UnsolicitedPolicy::Drop,
            dead_nonce_lifetime: Duration::from_secs(6),
            dead_nonce_capacity: 1 << 20,
            producer_regions: Vec::new(),
            default_hop_limit: None,
            straggler: Duration::ZERO,
            max_interest_lifetime: Duration::from_secs(3600),
            strategies: Vec::new(),
            queue_capacity: 65_536,
            congestion_target: Duration::from_millis(5),
            measurements_capacity: 16_384,
            management: ManagementConfig::default(),
        }
    }
}

/// Size and policy of a content store.
#[derive(Clone, Copy, Debug)]
pub struct CsConfig {
    /// Most octets, of packets and of what the store itself needs for them. Zero keeps nothing.
    pub capacity: usize,
    /// Most packets, besides.
    pub max_packets: usize,
    /// Which Data gives way.
    pub policy: CsPolicy,
}

impl Default for CsConfig {
    fn default() -> CsConfig {
        CsConfig {
            capacity: 128 << 20,
            max_packets: usize::MAX,
            policy: CsPolicy::S3Fifo,
        }
    }
}

/// Which Data gives way when a content store is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CsPolicy {
    /// The one that was not asked for the longest time.
    Lru,
    /// Data that is never asked for again passes through a small queue and leaves soon; what is
    /// asked for again stays in a large one. A scan (one file fetched once) does not empty the
    /// store, and a hit moves nothing.
    #[default]
    S3Fifo,
}

/// What becomes of Data that no pending Interest asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UnsolicitedPolicy {
    /// Dropped and counted.
    #[default]
    Drop,
    /// Kept in the content store if it came by a local face.
    AdmitLocal,
    /// Kept if it came by a face that is not local.
    AdmitNetwork,
    /// Kept.
    AdmitAll,
}
