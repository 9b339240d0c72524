//! Interests that are pending at a face, counted by a strategy.
//!
//! A PIT entry may end without a trigger, so a plain count would never return to zero. Counts are
//! kept by the time of sending, and those of Interests that were sent long ago are forgotten.

use core::time::Duration;

use smallvec::SmallVec;
use whimbrel_core::Time;

use super::Context;
use crate::face::FaceId;

/// Interests sent within this time are counted together.
const SPAN: Duration = Duration::from_secs(4);
/// Older ones are forgotten: an Interest counts for 12 to 16 s at most, whatever its lifetime.
const SPANS: usize = 4;

/// A number of pending Interests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The number of the newest span.
    newest: u64,
    /// By the number of the span modulo `SPANS`.
    counts: [u32; SPANS],
}

impl Pending {
    fn span(time: Time) -> u64 {
        (time.since(Time::ZERO).as_nanos() / SPAN.as_nanos()) as u64
    }

    fn place(&mut self, span: u64) -> Option<&mut u32> {
        self.counts.get_mut((span % SPANS as u64) as usize)
    }

    fn advance(&mut self, now: Time) {
        let span = Pending::span(now);
        for passed in (self.newest + 1..=span).take(SPANS) {
            if let Some(count) = self.place(passed) {
                *count = 0;
            }
        }
        self.newest = self.newest.max(span);
    }

    /// Counts an Interest sent now.
    pub fn add(&mut self, now: Time) {
        self.advance(now);
        let span = Pending::span(now);
        if let Some(count) = self.place(span) {
            *count = count.saturating_add(1);
        }
    }

    /// An Interest that was sent at `sent` is not pending any more.
    pub fn remove(&mut self, now: Time, sent: Time) {
        self.advance(now);
        let span = Pending::span(sent);
        if span + (SPANS as u64) > self.newest
            && let Some(count) = self.place(span)
        {
            *count = count.saturating_sub(1);
        }
    }

    /// The number at `now`.
    pub fn count(&mut self, now: Time) -> u32 {
        self.advance(now);
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }
}

/// An Interest that was pending at a face until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The face.
    pub face: FaceId,
    /// The downstream that it was sent for; [`FaceId::INVALID`] for none.
    pub asked_for: FaceId,
    /// When it was sent.
    pub sent: Time,
}

/// Interests that ended together.
pub type EndedAll = SmallVec<[Ended; 2]>;

/// Sends the entry's Interest to `face` and marks it as counted. Returns whether it was sent, and
/// what was counted at that face before.
pub fn send_counted(context: &mut Context<'_>, face: FaceId) -> (bool, EndedAll) {
    let before = take_counted(context, |known| known == face);
    let sent = context.send_interest(face);
    if sent {
        let entry = context.entry_mut();
        let records = entry.into_iter().flat_map(|entry| &mut entry.out_records);
        for record in records.filter(|record| record.face == face) {
            record.counted = true;
        }
    }
    (sent, before)
}

/// Takes the marks off the entry's counted Interests at the faces for which `of` is true.
pub fn take_counted(context: &mut Context<'_>, of: impl Fn(FaceId) -> bool) -> EndedAll {
    let entry = context.entry_mut();
    let records = entry.into_iter().flat_map(|entry| &mut entry.out_records);
    let counted = records.filter(|record| record.counted && of(record.face));
    let ended = counted.map(|record| {
        record.counted = false;
        Ended {
            face: record.face,
            asked_for: record.asked_for,
            sent: record.sent,
        }
    });
    ended.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a list of the times of sending.
        #[test]
        fn a_count_is_exact_for_12_s_and_nothing_stays_after_16(
            steps in prop::collection::vec((0u64..3000, any::<bool>(), 0usize..100), 1..200)
        ) {
            let mut pending = Pending::default();
            let mut model: Vec<Time> = Vec::new();
            let mut now = Time::ZERO;
            for (millis, sends, at) in steps {
                now += Duration::from_millis(millis);
                let age = |sent: &Time| now.since(*sent);
                model.retain(|sent| age(sent) < SPAN * SPANS as u32);
                if sends {
                    pending.add(now);
                    model.push(now);
                } else if !model.is_empty() {
                    let sent = model.remove(at % model.len());
                    pending.remove(now, sent);
                }
                let least = model.iter().filter(|sent| age(sent) <= SPAN * 3).count() as u32;
                let count = pending.count(now);
                prop_assert!(least <= count && count <= model.len() as u32, "{least} {count}");
            }
            prop_assert_eq!(pending.count(now + SPAN * SPANS as u32), 0);
        }
    }
}
