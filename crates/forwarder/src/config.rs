//! Sizes and policies of a forwarder.

use core::time::Duration;

use whimbrel_ndn_packet::Name;

use crate::mgmt::ManagementConfig;
use crate::strategy::StrategyKinds;

/// The configuration of a forwarder. Every size is a bound that traffic cannot change.
#[derive(Clone, Debug)]
pub struct ForwarderConfig {
    /// Maximum of pending Interests; beyond it, the least useful one is evicted.
    pub pit_capacity: usize,
    /// The content store.
    pub content_store: CsConfig,
    /// The treatment of unsolicited Data.
    pub unsolicited: UnsolicitedPolicy,
    /// How long a nonce is remembered after its Interest has left the PIT (NFD: 6 s).
    pub dead_nonce_lifetime: Duration,
    /// Maximum of remembered dead nonces (the power of two below it); the oldest are evicted.
    pub dead_nonce_capacity: usize,
    /// Names of the producer regions of this node: an Interest whose forwarding hint names one of
    /// them has arrived, and is forwarded by its own name.
    pub producer_regions: Vec<Name>,
    /// HopLimit given to Interests that have none; `None` leaves them without.
    pub default_hop_limit: Option<u8>,
    /// How long a satisfied or rejected PIT entry is kept, to recognise late packets (NFD: zero).
    pub straggler: Duration,
    /// Maximum of the InterestLifetime; longer ones are cut to it.
    pub max_interest_lifetime: Duration,
    /// The strategies that have a name.
    pub strategy_kinds: StrategyKinds,
    /// Initial strategies by prefix. `/` must be among them, else it has best-route.
    pub strategies: Vec<(Name, Name)>,
    /// Maximum of packets that wait for [`crate::Forwarder::poll_send`]; further ones are dropped
    /// and counted.
    pub queue_capacity: usize,
    /// Acceptable delay in the queue of a face's link (CoDel's target). Its interval is the face's
    /// own: [`crate::FaceSpec::base_congestion_interval`].
    pub congestion_target: Duration,
    /// Maximum of flows in the forwarding acceleration base, of Interests with a path tag.
    pub flow_capacity: usize,
    /// Maximum of Interests per second and face that go past caches to find a path, and as many at
    /// once; further ones are ordinary Interests. A consumer sends about 10 ([PTP §3-A]).
    pub path_probes_per_second: u32,
    /// Maximum of measurements (one per FIB prefix and strategy) of adaptive strategies.
    pub measurements_capacity: usize,
    /// The authorisation and limits of management commands.
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
            strategy_kinds: StrategyKinds::default(),
            strategies: Vec::new(),
            queue_capacity: 65_536,
            congestion_target: Duration::from_millis(5),
            flow_capacity: 65_536,
            path_probes_per_second: 100,
            measurements_capacity: 16_384,
            management: ManagementConfig::default(),
        }
    }
}

/// Size and policy of a content store.
#[derive(Clone, Copy, Debug)]
pub struct CsConfig {
    /// Maximum of octets, of packets and of the store's own overhead. Zero disables the store.
    pub capacity: usize,
    /// Maximum of packets, in addition.
    pub max_packets: usize,
    /// Of the names of Data, by their hash, so many in a hundred are admitted.
    pub admitted_percent: u8,
    /// The eviction policy.
    pub policy: CsPolicy,
}

impl Default for CsConfig {
    fn default() -> CsConfig {
        CsConfig {
            capacity: 128 << 20,
            max_packets: usize::MAX,
            admitted_percent: 100,
            policy: CsPolicy::S3Fifo,
        }
    }
}

/// The eviction policy of a full content store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CsPolicy {
    /// Evicts the least recently used Data.
    Lru,
    /// Data requested only once passes through a small queue and leaves soon; Data requested again
    /// stays in a large one. A scan (one file fetched once) does not empty the store, and a hit
    /// moves nothing.
    #[default]
    S3Fifo,
}

/// The treatment of Data without a pending Interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum UnsolicitedPolicy {
    /// Dropped and counted.
    #[default]
    Drop,
    /// Admitted to the content store if it arrived on a local face.
    AdmitLocal,
    /// Admitted if it arrived on a face that is not local.
    AdmitNetwork,
    /// Admitted.
    AdmitAll,
}
