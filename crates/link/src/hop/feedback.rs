//! Sent CSYNs, the state of the path as their answers show it, and the CSYNs that must be lost.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;

use super::congestion::Answer;
use crate::path_mtu::Mark;

/// Bound of the remembered CSYNs, answered or not.
const MAX_RECORDS: usize = 1024;
/// A CSYN may carry only the low byte of its number if it is this close to one that was answered:
/// the neighbour has seen that one or a later one, and up to as many again may be reordered.
const NEAR_NUMBERS: u32 = 64;
/// Delivery rates over shorter times would measure batches rather than the path.
const SHORTEST_SAMPLE: Duration = Duration::from_micros(300);

#[derive(Clone, Copy, Debug)]
struct Record {
    number: u32,
    about: Option<u64>,
    sent_at: Time,
    // DATA frames sent before it, and their bytes.
    order: u32,
    sent_bytes: u64,
    answered: bool,
    // False for a probe of the path MTU, whose answer is not awaited.
    awaited: bool,
    // The path MTU's mark at its transmission.
    mark: Mark,
    // The last known state at its transmission.
    reference: Option<Reference>,
}

/// The state of both ends when some CSYN was sent and arrived.
#[derive(Clone, Copy, Debug)]
struct Reference {
    received: u64,
    clock: u64,
    sent_at: Time,
    sent_bytes: u64,
}

/// The conclusions from an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) about: Option<u64>,
    /// DATA frames sent before this one, in sending order, were sent clearly before the CSYN.
    pub(super) lost_before: u32,
    pub(super) sample: Answer,
    pub(super) sent_at: Time,
    /// The path MTU's mark of the CSYN.
    pub(super) mark: Mark,
}

/// The reason why an answer is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disbelief {
    /// It answers a CSYN that was never sent.
    False,
    /// It answers a CSYN that was answered already or is forgotten.
    Late,
}

#[derive(Debug)]
pub(super) struct Feedback {
    records: VecDeque<Record>,
    next_number: u32,
    unanswered: usize,
    // The newest CSYN of this session with an answer.
    newest_answered: Option<u32>,
    // The number of DATA frames sent, and their bytes.
    order: u32,
    sent_bytes: u64,
    since_csyn: u32,
    last_csyn_at: Time,
    // Bytes sent before the newest answered CSYN.
    answered_bytes: u64,
    limited_at: u64,
    reference: Option<Reference>,
    round_ends: u32,
    // Increases when retransmissions prove spurious, decreases while they do not.
    reordering: Duration,
    spurious: u32,
    quiet_rounds: u32,
}

impl Feedback {
    pub(super) fn new(now: Time) -> Feedback {
        Feedback {
            records: VecDeque::new(),
            next_number: 1,
            unanswered: 0,
            newest_answered: None,
            order: 0,
            sent_bytes: 0,
            since_csyn: 0,
            last_csyn_at: now,
            answered_bytes: 0,
            limited_at: 0,
            reference: None,
            round_ends: 1,
            reordering: Duration::ZERO,
            spurious: 0,
            quiet_rounds: 0,
        }
    }

    /// Starts a new session: numbers continue, everything else is reset.
    pub(super) fn restart(&mut self, now: Time) {
        let next_number = self.next_number;
        *self = Feedback {
            next_number,
            round_ends: next_number,
            reordering: self.reordering,
            ..Feedback::new(now)
        };
    }

    /// Returns the bytes sent since the newest answered CSYN.
    pub(super) fn inflight(&self) -> u64 {
        self.sent_bytes - self.answered_bytes
    }

    /// Returns the DATA frames sent since the last CSYN, and its time.
    pub(super) fn since_csyn(&self) -> (u32, Time) {
        (self.since_csyn, self.last_csyn_at)
    }

    /// Returns the number of CSYNs that wait for an answer.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered
    }

    pub(super) fn reordering_window(&self) -> Duration {
        self.reordering
    }

    /// Returns true if the neighbour can derive the number of the next CSYN from its low byte.
    pub(super) fn is_next_near(&self) -> bool {
        self.newest_answered
            .is_some_and(|newest| self.next_number.wrapping_sub(newest) <= NEAR_NUMBERS)
    }

    /// Returns the place of the next DATA frame in the sending order.
    pub(super) fn order(&self) -> u32 {
        self.order
    }

    pub(super) fn data_sent(&mut self, bytes: u64) {
        self.order = self.order.wrapping_add(1);
        self.sent_bytes += bytes;
        self.since_csyn += 1;
    }

    /// Notes that there was nothing to send although more could have been sent.
    pub(super) fn note_limited(&mut self) {
        self.limited_at = self.sent_bytes.max(1);
    }

    /// Numbers and remembers a CSYN that is sent now; `mark` is that of the path MTU. Calls back with
    /// an unanswered CSYN that is forgotten for it: its answer will not be recognised.
    pub(super) fn csyn_sent(
        &mut self,
        now: Time,
        about: Option<u64>,
        mark: Mark,
        lost: impl FnMut(u32, Option<u64>),
    ) -> u32 {
        let number = self.remember(now, about, mark, true, lost);
        self.unanswered += 1;
        self.since_csyn = 0;
        self.last_csyn_at = now;
        number
    }

    /// Numbers and remembers a probe of the path MTU that is sent now. Its answer is worth as much
    /// as that of any CSYN; a missing answer proves nothing (RFC 8899 §3: no sign of congestion).
    pub(super) fn mtu_probe_sent(
        &mut self,
        now: Time,
        mark: Mark,
        lost: impl FnMut(u32, Option<u64>),
    ) -> u32 {
        self.remember(now, None, mark, false, lost)
    }

    fn remember(
        &mut self,
        now: Time,
        about: Option<u64>,
        mark: Mark,
        awaited: bool,
        mut lost: impl FnMut(u32, Option<u64>),
    ) -> u32 {
        let number = self.next_number;
        self.next_number = number.checked_add(1).unwrap_or(1);
        if self.records.len() == MAX_RECORDS
            && let Some(old) = self.records.pop_front()
            && !old.answered
            && old.awaited
        {
            self.unanswered -= 1;
            lost(old.number, old.about);
        }
        self.records.push_back(Record {
            number,
            about,
            sent_at: now,
            order: self.order,
            sent_bytes: self.sent_bytes,
            answered: false,
            awaited,
            mark,
            reference: self.reference,
        });
        number
    }

    /// Handles the answer to CSYN `number`, about the transfer that `is_about` recognises.
    pub(super) fn answer(
        &mut self,
        now: Time,
        number: u32,
        is_about: impl Fn(Option<u64>) -> bool,
        received: u64,
        clock: u64,
        // Calls back with each CSYN that must be lost: it was sent clearly earlier and is not
        // answered.
        mut lost: impl FnMut(u32, Option<u64>),
    ) -> Result<Answered, Disbelief> {
        let index = self.find(number)?;
        let record = self.records[index];
        if !is_about(record.about) {
            return Err(Disbelief::False);
        }
        if record.answered {
            return Err(Disbelief::Late);
        }
        let threshold = record.sent_at - self.reordering;
        let mut lost_before = if self.reordering.is_zero() {
            Some(record.order)
        } else {
            None
        };
        for earlier in self.records.range_mut(..index).rev() {
            if earlier.sent_at > threshold {
                continue;
            }
            lost_before = lost_before.or(Some(earlier.order));
            if !earlier.answered {
                earlier.answered = true;
                if earlier.awaited {
                    self.unanswered -= 1;
                    lost(earlier.number, earlier.about);
                }
            } else if self.reordering.is_zero() {
                break;
            }
        }
        self.records[index].answered = true;
        self.unanswered -= usize::from(record.awaited);
        if self
            .newest_answered
            .is_none_or(|newest| number.wrapping_sub(newest) as i32 > 0)
        {
            self.newest_answered = Some(number);
        }
        let acked = record.sent_bytes.saturating_sub(self.answered_bytes);
        let filled = self.limited_at <= self.answered_bytes.max(1);
        self.answered_bytes += acked;
        let sample = Answer {
            acked,
            filled,
            ..self.measure(now, &record, received, clock)
        };
        self.trim(now);
        Ok(Answered {
            about: record.about,
            lost_before: lost_before.unwrap_or(record.order.wrapping_sub(1 << 30)),
            sample,
            sent_at: record.sent_at,
            mark: record.mark,
        })
    }

    /// Handles the neighbour's count of spurious retransmissions. Each new one widens the
    /// reordering window.
    pub(super) fn spurious(&mut self, count: u32, rtt: Duration, round_over: bool) -> u32 {
        let fresh = count.wrapping_sub(self.spurious).min(1 << 16);
        if fresh > 0 && fresh < 1 << 16 {
            self.spurious = count;
            self.reordering = (self.reordering * 2)
                .max(rtt / 8)
                .max(Duration::from_millis(1))
                .min(rtt.max(Duration::from_millis(2)));
            self.quiet_rounds = 0;
            return fresh;
        }
        if round_over && !self.reordering.is_zero() {
            self.quiet_rounds += 1;
            if self.quiet_rounds >= 64 {
                self.quiet_rounds = 0;
                self.reordering /= 2;
                if self.reordering < Duration::from_micros(500) {
                    self.reordering = Duration::ZERO;
                }
            }
        }
        0
    }

    /// Forgets everything in flight after an outage of the neighbour. Calls back with each
    /// unanswered CSYN.
    pub(super) fn forget_flight(&mut self, mut lost: impl FnMut(u32, Option<u64>)) {
        for record in self.records.iter_mut().filter(|record| !record.answered) {
            record.answered = true;
            lost(record.number, record.about);
        }
        self.unanswered = 0;
        self.answered_bytes = self.sent_bytes;
        self.reference = None;
        self.round_ends = self.next_number;
    }

    fn find(&self, number: u32) -> Result<usize, Disbelief> {
        let newest = self.records.back().ok_or(Disbelief::False)?.number;
        let back = newest.wrapping_sub(number) as i32;
        if back < 0 {
            return Err(Disbelief::False);
        }
        let index = (self.records.len() - 1)
            .checked_sub(back as usize)
            .ok_or(Disbelief::Late)?;
        // Numbers are consecutive, except for the 0 that is skipped once in 2^32.
        if self.records[index].number == number {
            Ok(index)
        } else {
            Err(Disbelief::Late)
        }
    }

    fn measure(&mut self, now: Time, record: &Record, received: u64, clock: u64) -> Answer {
        let fresh = Reference {
            received,
            clock,
            sent_at: record.sent_at,
            sent_bytes: record.sent_bytes,
        };
        let (mut delivery, mut loss, mut limited) = (None, 0.0, true);
        let mut measured = 0;
        if let Some(old) = record.reference
            && received >= old.received
            && clock > old.clock
        {
            let arriving = Duration::from_nanos(clock - old.clock);
            let span = arriving
                .max(record.sent_at.since(old.sent_at))
                .max(Duration::from_micros(1));
            let (got, sent) = (received - old.received, record.sent_bytes - old.sent_bytes);
            if got > 0 && sent > 0 {
                // No more bytes can arrive than were sent, so larger claims of the neighbour are
                // limited.
                delivery = Some(got.min(sent + sent / 4) as f64 / span.as_secs_f64());
                loss = 1.0 - got.min(sent) as f64 / sent as f64;
                measured = sent;
            }
            // A pause that began right after the reference counts: the time of the sample holds it.
            limited = self.limited_at >= old.sent_bytes;
        }
        let newer = self.reference.is_none_or(|old| {
            clock > old.clock
                && clock - old.clock >= SHORTEST_SAMPLE.as_nanos() as u64
                && received >= old.received
        });
        if newer {
            self.reference = Some(fresh);
        }
        let round_over = record.number.wrapping_sub(self.round_ends) as i32 >= 0;
        if round_over {
            self.round_ends = self.next_number;
        }
        Answer {
            rtt: now.since(record.sent_at),
            one_way: clock.wrapping_sub(record.sent_at.since(Time::ZERO).as_nanos() as u64) as i64,
            acked: 0,
            filled: false,
            delivery,
            measured,
            loss,
            limited,
            round_over,
            marked: false,
        }
    }

    /// Forgets answered records that are too old to place a time in the sending order.
    fn trim(&mut self, now: Time) {
        let age = self.reordering * 4 + Duration::from_secs(1);
        while self.records.len() > 64
            && self
                .records
                .front()
                .is_some_and(|record| record.answered && now.since(record.sent_at) > age)
        {
            self.records.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// The neighbour's clock, when everything takes 5 ms there.
    fn clock(at: Time) -> u64 {
        (at + Duration::from_millis(5)).since(Time::ZERO).as_nanos() as u64
    }

    /// Sends this many bytes and a CSYN at once, and returns the sample of its answer.
    fn send(feedback: &mut Feedback, at: Time, bytes: u64, received: &mut u64) -> Answer {
        feedback.data_sent(bytes);
        *received += bytes;
        let number = feedback.csyn_sent(at, None, Mark::default(), |_, _| {});
        let back = at + Duration::from_millis(10);
        let answer = feedback.answer(back, number, |_| true, *received, clock(at), |_, _| {});
        answer.unwrap().sample
    }

    /// Links carry small messages long before their first chunks. Over the pause between, next to nothing
    /// was delivered, which says nothing of the path.
    #[test]
    fn a_sample_over_a_pause_is_no_measure_of_the_path() {
        let mut feedback = Feedback::new(Time::ZERO);
        let mut received = 0;
        send(&mut feedback, Time::from_secs(1), 500, &mut received);
        feedback.note_limited();
        let after = send(&mut feedback, Time::from_secs(3), 50_000, &mut received);
        assert!(
            after.delivery.unwrap() < 26_000.0 && after.limited,
            "{after:?}"
        );
        let at = Time::from_secs(3) + Duration::from_millis(20);
        let next = send(&mut feedback, at, 50_000, &mut received);
        assert!(!next.limited && next.delivery.unwrap() > 2e6, "{next:?}");
    }
}
