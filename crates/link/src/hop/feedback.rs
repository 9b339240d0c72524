//! The CSYNs that were sent, what their answers tell about the path, and which of them must be
//! lost.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;

use super::rate::Sample;

/// CSYNs that are remembered, answered or not.
const MAX_RECORDS: usize = 1024;
/// A CSYN may tell only the low byte of its number if it is so close to one that was answered: the
/// neighbour has seen that one or a later one, and as many again may have been overtaken on the
/// way.
const NEAR_NUMBERS: u32 = 64;
/// Delivery rates over shorter times would measure batches, not the path.
const SHORTEST_SAMPLE: Duration = Duration::from_micros(300);

#[derive(Clone, Copy, Debug)]
struct Record {
    number: u32,
    about: Option<u64>,
    sent_at: Time,
    // DATA frames and their bytes sent before it.
    order: u32,
    sent_bytes: u64,
    answered: bool,
    // Whether its answer is waited for: not that of a probe of the path MTU.
    awaited: bool,
    // Large frames sent before it (`PathMtu::mark`).
    mark: u64,
    // What was last known when it was sent.
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

/// What an answer says about the CSYN that it answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) about: Option<u64>,
    /// DATA frames sent before this one, in sending order, were on their way clearly before the
    /// CSYN.
    pub(super) lost_before: u32,
    pub(super) sample: Sample,
    pub(super) sent_at: Time,
    /// Large frames sent before the CSYN (`PathMtu::mark`).
    pub(super) mark: u64,
}

/// Why an answer is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disbelief {
    /// It answers a CSYN that was never sent.
    False,
    /// It answers one that was answered, or is forgotten.
    Late,
}

#[derive(Debug)]
pub(super) struct Feedback {
    records: VecDeque<Record>,
    next_number: u32,
    unanswered: usize,
    // The newest CSYN of this session that was answered.
    newest_answered: Option<u32>,
    // DATA frames sent, in order, and their bytes.
    order: u32,
    sent_bytes: u64,
    since_csyn: u32,
    last_csyn_at: Time,
    // Bytes sent when the newest answered CSYN was sent.
    answered_bytes: u64,
    limited_at: u64,
    reference: Option<Reference>,
    round_ends: u32,
    // Grows when resends prove spurious, shrinks while they do not.
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

    /// A new session: numbers go on, all else starts again.
    pub(super) fn restart(&mut self, now: Time) {
        let next_number = self.next_number;
        *self = Feedback {
            next_number,
            round_ends: next_number,
            reordering: self.reordering,
            ..Feedback::new(now)
        };
    }

    /// Bytes sent since the newest answered CSYN.
    pub(super) fn inflight(&self) -> u64 {
        self.sent_bytes - self.answered_bytes
    }

    /// DATA frames sent since the last CSYN, and when that was.
    pub(super) fn since_csyn(&self) -> (u32, Time) {
        (self.since_csyn, self.last_csyn_at)
    }

    /// How many CSYNs wait for an answer.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered
    }

    pub(super) fn reordering_window(&self) -> Duration {
        self.reordering
    }

    /// True if the neighbour can tell the number of the next CSYN from its low byte.
    pub(super) fn is_next_near(&self) -> bool {
        self.newest_answered
            .is_some_and(|newest| self.next_number.wrapping_sub(newest) <= NEAR_NUMBERS)
    }

    /// The place in the sending order of the next DATA frame.
    pub(super) fn order(&self) -> u32 {
        self.order
    }

    pub(super) fn data_sent(&mut self, bytes: u64) {
        self.order = self.order.wrapping_add(1);
        self.sent_bytes += bytes;
        self.since_csyn += 1;
    }

    /// There was nothing to send although more could have gone.
    pub(super) fn note_limited(&mut self) {
        self.limited_at = self.sent_bytes.max(1);
    }

    /// Numbers and remembers a CSYN that is sent now; `mark` is that of the path MTU.
    pub(super) fn csyn_sent(&mut self, now: Time, about: Option<u64>, mark: u64) -> u32 {
        let number = self.remember(now, about, mark, true);
        self.unanswered += 1;
        self.since_csyn = 0;
        self.last_csyn_at = now;
        number
    }

    /// Numbers and remembers a probe of the path MTU that is sent now. Its answer tells what that of
    /// any CSYN tells; that there is none tells nothing (RFC 8899 §3: no sign of congestion).
    pub(super) fn mtu_probe_sent(&mut self, now: Time, mark: u64) -> u32 {
        self.remember(now, None, mark, false)
    }

    fn remember(&mut self, now: Time, about: Option<u64>, mark: u64, awaited: bool) -> u32 {
        let number = self.next_number;
        self.next_number = number.checked_add(1).unwrap_or(1);
        if self.records.len() == MAX_RECORDS
            && self
                .records
                .pop_front()
                .is_some_and(|old| !old.answered && old.awaited)
        {
            self.unanswered -= 1;
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

    /// Takes the answer to CSYN `number`, which is about the transfer that `is_about` recognises.
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
        let sample = Sample {
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

    /// The neighbour's count of spurious resends: each new one widens the reordering window.
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

    /// Everything under way is given up: the neighbour was away. Calls back with each unanswered
    /// CSYN.
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
        // Numbers are consecutive but for the 0 that is left out once in 2^32.
        if self.records[index].number == number {
            Ok(index)
        } else {
            Err(Disbelief::Late)
        }
    }

    fn measure(&mut self, now: Time, record: &Record, received: u64, clock: u64) -> Sample {
        let fresh = Reference {
            received,
            clock,
            sent_at: record.sent_at,
            sent_bytes: record.sent_bytes,
        };
        let (mut delivery, mut loss, mut limited) = (None, 0.0, true);
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
                // What arrives can be no more than what was sent: a neighbour that claims more is
                // not believed.
                delivery = Some(got.min(sent + sent / 4) as f64 / span.as_secs_f64());
                loss = 1.0 - got.min(sent) as f64 / sent as f64;
            }
            limited = self.limited_at > old.sent_bytes;
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
        Sample {
            rtt: now.since(record.sent_at),
            acked: 0,
            filled: false,
            delivery,
            loss,
            limited,
            round_over,
        }
    }

    /// Forgets answered records that are too old to tell where in the sending order a time was.
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
