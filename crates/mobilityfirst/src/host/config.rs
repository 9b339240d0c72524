//! The configuration of a host.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::WallClock;
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;

use super::interfaces::{LinkPolicy, LinkTerms, QuotaUse};
use crate::split::SplitConfig;

/// The whole configuration of a host.
#[derive(Debug)]
pub struct HostConfig {
    /// The host's key, whose hash is its GUID.
    pub keys: KeyPair,
    /// The Unix time of the run's origin; records expire by it.
    pub wall: WallClock,
    /// The configuration of every hop, except for the MTU, which each port states.
    pub hop: HopConfig,
    /// Capacity of the back-pressure buffer, in packets.
    pub buffer_packets: usize,
    /// Initial end-to-end window (W_e of [MFTP §3.4.2]), in bytes: what a source may send before it hears of
    /// its receiver.
    pub window: u64,
    /// Numbers of the configured links to access routers, best first: the order of the addresses
    /// in the host's record, and of the links that it sends by. Links not named here come last.
    pub preference: Vec<u32>,
    /// Lifetime of a binding; it is renewed three times as often.
    pub binding_lifetime: Duration,
    /// Lifetime of an announcement; it is renewed three times as often.
    pub announcement_lifetime: Duration,
    /// Time for which chunks may be missing before their source is told, unless a request says
    /// otherwise.
    pub nack_timeout: Duration,
    /// The routers with copies that a request for a chunk which this host has sent to a group may pass; the next
    /// one drops it [MFTP §3.5]. Without a number it reaches this host.
    pub nack_routers: Option<u8>,
    /// Longest content that is fetched, in bytes.
    pub content_limit: u64,
    /// How several links are used together.
    pub policy: LinkPolicy,
    /// What the user has said about single links, by their numbers.
    pub terms: BTreeMap<u32, LinkTerms>,
    /// What an earlier run has used of the links' quotas.
    pub used: BTreeMap<u32, QuotaUse>,
    /// How flows are divided among them.
    pub split: SplitConfig,
    /// Bound of the requests of local programs at one time, and of the contents that are served to
    /// others at one time.
    pub max_transfers: usize,
}

impl HostConfig {
    /// Returns the defaults for a host with these keys. Its hops are not encrypted, and their secrets
    /// follow from its name: a program gives them its own.
    pub fn new(keys: KeyPair, wall: WallClock) -> HostConfig {
        let hop = HopConfig::plain(&keys, keys.guid().0, 1472);
        HostConfig {
            keys,
            wall,
            hop,
            buffer_packets: 32_768,
            window: 64 << 20,
            preference: Vec::new(),
            binding_lifetime: Duration::from_secs(60),
            announcement_lifetime: Duration::from_secs(600),
            nack_timeout: Duration::from_secs(5),
            nack_routers: None,
            content_limit: 1 << 48,
            policy: LinkPolicy::default(),
            terms: BTreeMap::new(),
            used: BTreeMap::new(),
            split: SplitConfig::default(),
            max_transfers: 4096,
        }
    }
}
