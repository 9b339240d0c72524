//! Chunks that a receiver has not confirmed: the source's side of the ACK option [MFTP §3.2.2], "for
//! short-sessions (e.g., single PDU delivery) and for latency-sensitive interactions".

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Guid, RttEstimator, Time};

use crate::wire::ChunkRanges;

/// The timeout before the first measurement, and its bounds: "timers need to be set loosely" [MFTP §4].
const FIRST: Duration = Duration::from_secs(3);
const LEAST: Duration = Duration::from_millis(200);
const MOST: Duration = Duration::from_secs(60);
/// After this many timeouts in a row without a confirmation the source sends nothing more by itself. A
/// receiver that is still there asks.
const MAX_UNANSWERED: u32 = 8;

/// The chunks of one upload that wait for a confirmation.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    // By index: when the hop delivered it.
    chunks: BTreeMap<u32, Option<Time>>,
    // Chunks that were sent more than once: their confirmation measures nothing.
    repeated: ChunkRanges,
    // From the delivery by the hop to the confirmation.
    timeout: RttEstimator,
    unanswered: u32,
}

impl Default for Unconfirmed {
    fn default() -> Unconfirmed {
        Unconfirmed {
            chunks: BTreeMap::new(),
            repeated: ChunkRanges::default(),
            timeout: RttEstimator::new(FIRST, LEAST, MOST),
            unanswered: 0,
        }
    }
}

impl Unconfirmed {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn note_sent(&mut self, index: u32) {
        if self.chunks.insert(index, None).is_some() {
            self.repeated.insert(index);
        }
    }

    /// A chunk that the client has confirmed already stays so.
    pub(super) fn note_delivered(&mut self, now: Time, index: u32) {
        if let Some(delivered) = self.chunks.get_mut(&index) {
            *delivered = Some(now);
        }
    }

    pub(super) fn note_confirmed(&mut self, now: Time, chunks: &ChunkRanges) {
        let confirmed = self
            .chunks
            .extract_if(.., |index, _| chunks.contains(*index));
        for (index, delivered) in confirmed {
            self.unanswered = 0;
            if let Some(delivered) = delivered.filter(|_| !self.repeated.contains(index)) {
                self.timeout.sample(now.since(delivered));
            }
        }
    }

    /// Returns when a chunk that the hop delivers now is late.
    pub(super) fn due_after(&self, now: Time) -> Time {
        now + self.timeout.timeout()
    }

    /// Returns the chunks that were delivered by the hop and that no proxy stores, and when each is late.
    fn dues<'a>(
        &'a self,
        stored: &'a BTreeMap<Guid, ChunkRanges>,
    ) -> impl Iterator<Item = (u32, Time)> {
        let timeout = self.timeout.timeout();
        let is_stored = |index: u32| stored.values().any(|chunks| chunks.contains(index));
        let delivered = self.chunks.iter();
        delivered
            .filter_map(move |(index, at)| at.map(|at| (*index, at + timeout)))
            .filter(move |(index, _)| !is_stored(*index))
    }

    /// Returns when the first chunk is late.
    pub(super) fn next_due(&self, stored: &BTreeMap<Guid, ChunkRanges>) -> Option<Time> {
        self.dues(stored).map(|(_, at)| at).min()
    }

    /// Takes the chunks that are late, to be sent again.
    pub(super) fn take_late(
        &mut self,
        now: Time,
        stored: &BTreeMap<Guid, ChunkRanges>,
    ) -> ChunkRanges {
        let mut late = ChunkRanges::default();
        let dues = self.dues(stored).filter(|(_, at)| *at <= now);
        dues.for_each(|(index, _)| late.insert(index));
        if late.is_empty() {
            return late;
        }
        self.timeout.back_off();
        self.unanswered += 1;
        self.chunks.retain(|index, _| !late.contains(*index));
        self.repeated.union(&late);
        if self.unanswered > MAX_UNANSWERED {
            self.chunks.clear();
            return ChunkRanges::default();
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn indices(ranges: &ChunkRanges) -> Vec<u32> {
        ranges.iter().flatten().collect()
    }

    #[test]
    fn the_timeout_follows_the_measured_time_to_the_confirmation() {
        let (mut unconfirmed, stored) = (Unconfirmed::default(), BTreeMap::new());
        for index in 0..20 {
            unconfirmed.note_sent(index);
            unconfirmed.note_delivered(at(u64::from(index) * 100), index);
        }
        assert_eq!(unconfirmed.next_due(&stored), Some(at(3_000)));
        for index in 0..19 {
            let now = at(u64::from(index) * 100 + 40);
            unconfirmed.note_confirmed(now, &ChunkRanges::from(index..index + 1));
        }
        // 40 ms each time: the least timeout.
        assert_eq!(unconfirmed.next_due(&stored), Some(at(1_900 + 200)));
        assert!(unconfirmed.take_late(at(2_099), &stored).is_empty());
        assert_eq!(indices(&unconfirmed.take_late(at(2_100), &stored)), [19]);
        // It waits twice as long from then on, and a late confirmation measures nothing.
        unconfirmed.note_sent(19);
        unconfirmed.note_delivered(at(2_100), 19);
        assert_eq!(unconfirmed.next_due(&stored), Some(at(2_500)));
        unconfirmed.note_confirmed(at(2_450), &ChunkRanges::all());
        assert!(unconfirmed.is_empty());
    }

    #[test]
    fn what_a_proxy_stores_is_not_sent_again() {
        let mut unconfirmed = Unconfirmed::default();
        for index in 0..3 {
            unconfirmed.note_sent(index);
            unconfirmed.note_delivered(at(0), index);
        }
        let mut stored = BTreeMap::from([(Guid([7; 32]), ChunkRanges::from(0..2))]);
        assert_eq!(indices(&unconfirmed.take_late(at(3_000), &stored)), [2]);
        assert_eq!(unconfirmed.next_due(&stored), None);
        // The proxy has dropped one of them.
        stored.insert(Guid([7; 32]), ChunkRanges::from(1..2));
        assert_eq!(indices(&unconfirmed.take_late(at(9_000), &stored)), [0]);
    }

    #[test]
    fn a_receiver_that_never_confirms_is_given_up() {
        let (mut unconfirmed, stored) = (Unconfirmed::default(), BTreeMap::new());
        let (mut now, mut sent) = (0, 0);
        unconfirmed.note_sent(0);
        unconfirmed.note_delivered(at(now), 0);
        while let Some(due) = unconfirmed.next_due(&stored) {
            now = due.as_nanos() / 1_000_000;
            let late = unconfirmed.take_late(due, &stored);
            for index in indices(&late) {
                sent += 1;
                unconfirmed.note_sent(index);
                unconfirmed.note_delivered(at(now), index);
            }
        }
        assert_eq!(sent, MAX_UNANSWERED);
        // 3 s, doubled up to a minute.
        assert!((300_000..500_000).contains(&now), "{now}");
    }
}
