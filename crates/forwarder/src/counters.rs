//! Counters of a forwarder.

/// Why a packet was dropped, or an entry of a table abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// Neither a whole Interest nor a whole Data, or larger than NDN's limit.
    Malformed,
    /// It arrived on a face that does not exist.
    UnknownFace,
    /// A link header field that this packet or face may not have.
    HeaderField,
    /// An Interest that arrived with a hop limit of zero.
    HopLimit,
    /// An Interest with no hop left, for a face that is not local.
    OutHopLimit,
    /// `/localhost` crossing a face that is not local.
    Scope,
    /// A looping Interest.
    Loop,
    /// A retransmission too soon after the last forwarded one.
    Suppressed,
    /// An Interest whose path leads to a face that is down or was removed.
    PathGone,
    /// An Interest with no next hop, whether or not it was answered by a Nack.
    NoRoute,
    /// A pending name with too many different selectors and forwarding hints.
    Variants,
    /// A pending Interest that was evicted because the PIT was full, in entries or in octets; or a
    /// large one for which there was no room.
    PitEvicted,
    /// Unsolicited Data.
    Unsolicited,
    /// A Nack on a face with several peers, or for an Interest that was not sent there.
    Nack,
    /// The queue of packets to send is full.
    QueueFull,
    /// Too many management commands are queued.
    ManagementBusy,
}

impl DropReason {
    /// All reasons, in order.
    pub const ALL: [DropReason; 16] = [
        DropReason::Malformed,
        DropReason::UnknownFace,
        DropReason::HeaderField,
        DropReason::HopLimit,
        DropReason::OutHopLimit,
        DropReason::Scope,
        DropReason::Loop,
        DropReason::Suppressed,
        DropReason::PathGone,
        DropReason::NoRoute,
        DropReason::Variants,
        DropReason::PitEvicted,
        DropReason::Unsolicited,
        DropReason::Nack,
        DropReason::QueueFull,
        DropReason::ManagementBusy,
    ];

    /// Returns the name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Malformed => "malformed",
            DropReason::UnknownFace => "unknown-face",
            DropReason::HeaderField => "header-field",
            DropReason::HopLimit => "hop-limit",
            DropReason::OutHopLimit => "out-hop-limit",
            DropReason::Scope => "scope",
            DropReason::Loop => "loop",
            DropReason::Suppressed => "suppressed",
            DropReason::PathGone => "path-gone",
            DropReason::NoRoute => "no-route",
            DropReason::Variants => "variants",
            DropReason::PitEvicted => "pit-evicted",
            DropReason::Unsolicited => "unsolicited",
            DropReason::Nack => "nack",
            DropReason::QueueFull => "queue-full",
            DropReason::ManagementBusy => "management-busy",
        }
    }
}

/// Counters of a forwarder since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwarderCounters {
    /// Interests received.
    pub in_interests: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data received.
    pub in_data: u64,
    /// Data sent.
    pub out_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Nacks sent.
    pub out_nacks: u64,
    /// PIT entries that ended with a Data.
    pub satisfied: u64,
    /// PIT entries that ended without a Data.
    pub unsatisfied: u64,
    /// Interests answered by the content store.
    pub cs_hits: u64,
    /// Interests that the content store could not answer.
    pub cs_misses: u64,
    /// Packets that this forwarder itself marked for congestion.
    pub marked: u64,
    /// Interests forwarded as their path tag says.
    pub path_followed: u64,
    /// Interests with a path tag forwarded by name.
    pub path_by_name: u64,
    /// Interests that went past caches to find a path.
    pub path_probes: u64,
    /// Interests that asked for a path too often.
    pub path_probes_refused: u64,
    drops: [u64; DropReason::ALL.len()],
}

impl ForwarderCounters {
    pub(crate) fn drop(&mut self, reason: DropReason) {
        if let Some(count) = self.drops.get_mut(reason as usize) {
            *count += 1;
        }
    }

    /// Returns the number of drops for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason as usize).copied().unwrap_or_default()
    }

    /// Every reason by name, with its number of drops.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DropReason::ALL
            .iter()
            .map(|reason| (reason.name(), self.dropped(*reason)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_place_and_name() {
        for (place, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, place);
        }
        let mut names: Vec<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DropReason::ALL.len());
    }
}
