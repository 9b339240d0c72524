//! The back-pressure buffer of a node, counted in packets.

/// Room for `B` packets of chunks in transit through a node, shared by all its hops ([MFTP §3.4.1]:
/// "a back-pressure buffer of capacity B packets").
///
/// A hop reserves room before it admits a chunk. The owner that takes the chunk from
/// [`HopEvent::Received`](crate::HopEvent::Received) releases the room when the chunk has left the
/// node (or was moved to storage) and then calls
/// [`Hop::budget_released`](crate::Hop::budget_released) on the node's hops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketBudget {
    capacity: usize,
    // The part of the capacity that is kept for small chunks.
    kept: usize,
    used: usize,
    // What the present hop may still reserve; none: all that is free.
    share: Option<Share>,
}

/// What one hop may still reserve of a budget, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// For chunks of any size.
    pub packets: usize,
    /// For small chunks.
    pub small: usize,
}

/// A chunk of at most this many packets is small. Urgent messages are small chunks.
const SMALL: u32 = 32;
/// The fraction of a budget that is kept for small chunks, and the maximum of packets in it.
const KEPT_PART: usize = 16;
const MAX_KEPT: usize = 1024;

impl PacketBudget {
    /// Returns a budget of `capacity` packets, all free.
    pub fn new(capacity: usize) -> PacketBudget {
        PacketBudget {
            capacity,
            kept: (capacity / KEPT_PART).min(MAX_KEPT),
            used: 0,
            share: None,
        }
    }

    /// Limits what is reserved until the next call to this share of the free packets. `None` ends
    /// the limit.
    pub fn limit(&mut self, share: Option<Share>) {
        self.share = share;
    }

    /// Reserves room for `packets` packets. Returns false, with nothing reserved, if there is not
    /// enough.
    ///
    /// A chunk larger than the whole budget is admitted when nothing else is; otherwise it could
    /// never pass.
    pub fn reserve(&mut self, packets: u32) -> bool {
        let all = self.capacity.saturating_sub(self.used);
        let room = match (packets, self.share) {
            (..=SMALL, Some(share)) => all.min(share.small),
            (..=SMALL, None) => all,
            _ => self.free(),
        };
        if self.used != 0 && packets as usize > room {
            return false;
        }
        self.used += packets as usize;
        true
    }

    /// Releases room that [`reserve`](PacketBudget::reserve) took.
    pub fn release(&mut self, packets: u32) {
        debug_assert!(
            self.used >= packets as usize,
            "released more than was reserved"
        );
        self.used = self.used.saturating_sub(packets as usize);
    }

    /// Returns the packets that can still be reserved. Small chunks may take a few more.
    pub fn free(&self) -> usize {
        let free = (self.capacity - self.kept).saturating_sub(self.used);
        self.share.map_or(free, |share| free.min(share.packets))
    }

    /// Returns the reserved packets.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns `B`, in packets.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_kept_for_small_chunks() {
        let mut budget = PacketBudget::new(1_000);
        assert_eq!(budget.free(), 938);
        assert!(budget.reserve(900));
        assert!(!budget.reserve(50));
        assert!(budget.reserve(32) && budget.reserve(32) && budget.reserve(32));
        assert!(!budget.reserve(5));
        assert_eq!((budget.used(), budget.free()), (996, 0));
        assert!(budget.reserve(4));
    }

    #[test]
    fn a_share_limits_what_is_reserved_until_it_ends() {
        let mut budget = PacketBudget::new(1_000);
        assert!(budget.reserve(100));
        let (packets, small) = (50, 20);
        budget.limit(Some(Share { packets, small }));
        assert_eq!(budget.free(), 50);
        assert!(!budget.reserve(51) && !budget.reserve(21));
        assert!(budget.reserve(50) && budget.reserve(20));
        budget.limit(None);
        assert_eq!(budget.free(), 938 - 170);
        assert!(budget.reserve(500));
    }

    #[test]
    fn never_gives_more_than_it_has_except_to_one_oversized_chunk() {
        let mut budget = PacketBudget::new(10);
        assert!(budget.reserve(6));
        assert!(!budget.reserve(5));
        assert!(budget.reserve(4));
        assert_eq!(budget.free(), 0);
        budget.release(10);
        assert!(budget.reserve(25));
        assert!(!budget.reserve(1));
        budget.release(25);
        assert_eq!(
            (budget.used(), budget.free(), budget.capacity()),
            (0, 10, 10)
        );
    }
}
