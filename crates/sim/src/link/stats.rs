//! Counters of a link.

use core::time::Duration;

/// The reason why a link did not deliver a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// The queue was full, or too long for its CoDel.
    Queue,
    /// Random loss.
    Loss,
    /// The frame exceeded the link's largest size.
    TooLarge,
    /// The link was out by its schedule, or had been set down.
    Outage,
}

/// Counters of one direction since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Frames handed to the link.
    pub offered: u64,
    /// Bytes of these, without the per-frame overhead.
    pub offered_bytes: u64,
    /// Frames delivered at the far end, including duplicates.
    pub delivered: u64,
    /// Bytes of these, without the per-frame overhead.
    pub delivered_bytes: u64,
    /// Bytes that took time on the wire, including overhead, whether delivered or lost afterwards.
    pub transmitted_bytes: u64,
    /// Frames dropped because the queue was full, or too long for its CoDel.
    pub dropped_queue: u64,
    /// Frames that CoDel marked instead of dropping them.
    pub marked: u64,
    /// Frames lost at random.
    pub dropped_loss: u64,
    /// Frames dropped because they exceeded the link's largest size.
    pub dropped_too_large: u64,
    /// Frames lost in an outage.
    pub dropped_outage: u64,
    /// Copies in which a bit was flipped.
    pub corrupted: u64,
    /// Frames that were duplicated.
    pub duplicated: u64,
    /// Copies delivered after one that was transmitted later.
    pub reordered: u64,
    /// Frames waiting for the transmitter, as of the last call to the link.
    pub queue_frames: u64,
    /// Bytes of these, including overhead.
    pub queue_bytes: u64,
    /// The largest number of waiting frames.
    pub max_queue_frames: u64,
    /// The largest number of waiting bytes, including overhead.
    pub max_queue_bytes: u64,
    /// Sum over all transmitted frames of the time from offer to start of transmission.
    pub queueing_delay_total: Duration,
    /// The longest of these times.
    pub queueing_delay_max: Duration,
}

impl LinkStats {
    /// Returns the number of frames not delivered, for any reason.
    pub fn dropped(&self) -> u64 {
        self.dropped_queue + self.dropped_loss + self.dropped_too_large + self.dropped_outage
    }

    pub(super) fn count_drop(&mut self, reason: DropReason) {
        match reason {
            DropReason::Queue => self.dropped_queue += 1,
            DropReason::Loss => self.dropped_loss += 1,
            DropReason::TooLarge => self.dropped_too_large += 1,
            DropReason::Outage => self.dropped_outage += 1,
        }
    }
}
