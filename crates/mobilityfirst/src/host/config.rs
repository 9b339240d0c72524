//! What a host is told at the start.

use core::time::Duration;

use whimbrel_core::WallClock;
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;

/// The whole configuration of a host.
#[derive(Debug)]
pub struct HostConfig {
    /// The host's key, whose hash is its GUID.
    pub keys: KeyPair,
    /// What Unix time the run's origin was; records expire by it.
    pub wall: WallClock,
    /// Every hop's configuration but for the MTU, which each port states.
    pub hop: HopConfig,
    /// Capacity of the back-pressure buffer, in packets.
    pub buffer_packets: usize,
    /// Numbers of the configured links to access routers, best first: the order of the addresses
    /// in the host's record, and of the links that it sends by. Links not named here come last.
    pub preference: Vec<u32>,
    /// How long a binding holds that is not renewed; it is renewed three times as often.
    pub binding_lifetime: Duration,
    /// How long an announcement of content holds that is not renewed; it is renewed three times as
    /// often.
    pub announcement_lifetime: Duration,
    /// How long chunks may be missing before their source is told, unless a request says otherwise.
    pub nack_timeout: Duration,
    /// Longest content that is fetched, in bytes.
    pub content_limit: u64,
    /// Requests of local programs at one time, and contents that are served to others at one time.
    pub max_transfers: usize,
}

impl HostConfig {
    /// The defaults for a host with these keys; its hops are plain.
    pub fn new(keys: KeyPair, wall: WallClock) -> HostConfig {
        let hop = HopConfig::plain(keys.guid(), 1472);
        HostConfig {
            keys,
            wall,
            hop,
            buffer_packets: 32_768,
            preference: Vec::new(),
            binding_lifetime: Duration::from_secs(60),
            announcement_lifetime: Duration::from_secs(600),
            nack_timeout: Duration::from_secs(5),
            content_limit: 1 << 48,
            max_transfers: 4096,
        }
    }
}
