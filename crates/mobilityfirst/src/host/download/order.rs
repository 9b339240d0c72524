//! The order in which the chunks of a download come: those that others have overtaken for long are lost.
//!
//! Links of a divided flow reorder, by as much as their rates and queues differ. So a missing chunk counts as
//! lost only when chunks behind it came twice as long ago as the latest of the late ones was late, and at least
//! the NACK timeout ago: "a conservatively long period of time" [MFTP §3.2.2].

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;

use crate::wire::ChunkRanges;

/// Marks of what had come at a time, of which there are at most this many.
const MARKS: u32 = 8;
/// Gaps that one message names.
const MAX_GAPS: usize = 64;

/// What is known of the order.
#[derive(Clone, Debug)]
pub(super) struct ArrivalOrder {
    // Least time for which a lost chunk is missing.
    least: Duration,
    // The highest index that had come at these times.
    marks: VecDeque<(Time, u32)>,
    highest: u32,
    latest: Option<Time>,
    // Longest time by which a chunk came later than one behind it.
    lateness: Duration,
    // Chunks that were told to be lost, since a time.
    told: Option<(Time, ChunkRanges)>,
}

impl ArrivalOrder {
    pub(super) fn new(least: Duration) -> ArrivalOrder {
        ArrivalOrder {
            least,
            marks: VecDeque::new(),
            highest: 0,
            latest: None,
            lateness: Duration::ZERO,
            told: None,
        }
    }

    /// What comes next may have any order.
    pub(super) fn forget(&mut self) {
        *self = ArrivalOrder {
            lateness: self.lateness,
            ..ArrivalOrder::new(self.least)
        };
    }

    /// Notes a chunk. The content's last one is none: it is sent first.
    pub(super) fn note(&mut self, now: Time, index: u32) {
        let step = self.patience() / (MARKS / 2);
        let pause = self
            .latest
            .map_or(Duration::ZERO, |latest| now.since(latest));
        self.latest = Some(now);
        if pause > step {
            // While nothing came, nothing was overtaken.
            self.marks.clear();
        }
        if index < self.highest {
            let overtaken = self.marks.iter().find(|(_, highest)| *highest > index);
            let is_told = (self.told.as_ref()).is_some_and(|(_, told)| told.contains(index));
            if let Some((at, _)) = overtaken.filter(|_| !is_told) {
                self.lateness = self.lateness.max(now.since(*at));
            }
            return;
        }
        self.highest = index;
        if self
            .marks
            .back()
            .is_none_or(|(at, _)| now.since(*at) >= step)
        {
            self.marks.push_back((now, index));
        }
        if self.marks.len() > MARKS as usize {
            self.marks.pop_front();
        }
    }

    fn patience(&self) -> Duration {
        self.least.max(self.lateness * 2)
    }

    /// Returns what is lost of the missing chunks, each once in the time after which it counts as lost.
    pub(super) fn take_lost(
        &mut self,
        now: Time,
        missing: impl Iterator<Item = Range<u64>>,
    ) -> ChunkRanges {
        let patience = self.patience();
        let mut lost = ChunkRanges::default();
        let old = self
            .marks
            .iter()
            .rev()
            .find(|(at, _)| now.since(*at) >= patience);
        let Some(end) = old.map(|(_, highest)| u64::from(*highest)) else {
            return lost;
        };
        self.told.take_if(|(at, _)| now.since(*at) >= patience);
        for gap in missing.take_while(|gap| gap.start < end).take(MAX_GAPS) {
            lost.insert_range(gap.start as u32..gap.end.min(end) as u32);
        }
        let all = lost.clone();
        if let Some((_, told)) = &self.told {
            lost.subtract(told);
        }
        if !lost.is_empty() {
            self.told = Some((now, all));
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_secs(5);

    /// Chunks come ten times a second, `late` the given times after its turn. Returns what is told to be lost.
    fn told(
        order: &mut ArrivalOrder,
        seconds: u64,
        late: &[(u32, Option<u64>)],
    ) -> Vec<(u64, u32)> {
        let mut told = Vec::new();
        let mut here = ChunkRanges::default();
        for step in 0..seconds * 10 {
            let now = Time::from_millis(step * 100);
            let index = step as u32;
            let due = late.iter().filter(|(at, after)| {
                after.is_some_and(|after| u64::from(*at) + after * 10 == step)
            });
            let mut come: Vec<u32> = due.map(|(index, _)| *index).collect();
            if late.iter().all(|(it, _)| *it != index) {
                come.push(index);
            }
            for index in come {
                here.insert(index);
                order.note(now, index);
            }
            let mut missing = ChunkRanges::from(0..10_000);
            missing.subtract(&here);
            let gaps = missing.iter().map(|gap| gap.start.into()..gap.end.into());
            let lost = order.take_lost(now, gaps);
            told.extend(lost.iter().flatten().map(|index| (step / 10, index)));
        }
        told
    }

    #[test]
    fn what_does_not_come_is_lost_once_in_its_time() {
        let told = told(&mut ArrivalOrder::new(LEAST), 16, &[(20, None), (25, None)]);
        let at = |index| told.iter().filter(|(_, it)| *it == index).count();
        assert!((1..=3).contains(&at(20)), "{told:?}");
        assert!((1..=3).contains(&at(25)), "{told:?}");
        assert!(told.iter().all(|(at, _)| *at >= 7), "{told:?}");
        assert!(told.iter().all(|(_, index)| [20, 25].contains(index)));
    }

    #[test]
    fn the_later_chunks_come_the_longer_others_are_awaited() {
        let mut order = ArrivalOrder::new(LEAST);
        let late = [(20, Some(4)), (30, Some(4)), (100, None)];
        let told = told(&mut order, 30, &late);
        assert!(told.iter().all(|(_, index)| *index == 100), "{told:?}");
        // Some have come three to four seconds late: six to eight are the time, and a mark more.
        assert!(told.iter().all(|(at, _)| *at >= 16), "{told:?}");
        assert!(!told.is_empty());
    }

    #[test]
    fn what_nothing_has_overtaken_is_not_lost_by_a_pause() {
        let mut order = ArrivalOrder::new(LEAST);
        for index in [0, 1, 3] {
            order.note(Time::from_millis(100 * u64::from(index)), index);
        }
        order.note(Time::from_secs(60), 4);
        let lost = order.take_lost(Time::from_secs(60), core::iter::once(2..3));
        assert!(lost.is_empty());
    }
}
