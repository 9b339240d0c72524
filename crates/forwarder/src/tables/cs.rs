//! The content store: Data that may be asked for again.

use whimbrel_ndn_packet::NameRef;

use crate::config::CsConfig;

/// The content store.
#[derive(Clone, Debug)]
pub struct Cs {
    config: CsConfig,
    /// Whether Data is put into it (NFD: CS_ENABLE_ADMIT).
    pub admit: bool,
    /// Whether it answers Interests (NFD: CS_ENABLE_SERVE).
    pub serve: bool,
}

impl Cs {
    pub(crate) fn new(config: CsConfig) -> Cs {
        Cs { config, admit: true, serve: true }
    }
    /// How many packets it holds.
    pub fn len(&self) -> usize {
        0
    }
    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Octets that count against its capacity.
    pub fn bytes(&self) -> usize {
        0
    }
    /// Most octets.
    pub fn capacity(&self) -> usize {
        self.config.capacity
    }
    /// Most packets.
    pub fn max_packets(&self) -> usize {
        self.config.max_packets
    }
    /// Changes its size; what no longer fits goes at once.
    pub fn set_capacity(&mut self, capacity: usize, max_packets: usize) {
        self.config.capacity = capacity;
        self.config.max_packets = max_packets;
    }
    /// Removes at most `limit` Data under a prefix and says how many. Reads every entry.
    pub fn erase(&mut self, _prefix: NameRef<'_>, _limit: usize) -> usize {
        0
    }
}
