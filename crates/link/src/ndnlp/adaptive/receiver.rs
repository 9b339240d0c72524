//! The receiving half of the adaptive profile: tracks arrivals and schedules reports.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;

use super::wire::{self, MAX_REORDERING, MAX_RUNS, Resent, ShortNumber};
use crate::ndnlp::number_set::{Insert, NumberSet};

/// After this many unreported frames the next frame carries a report.
const REPORT_EVERY: u32 = 8;
/// Number of reports whose tops are remembered; one more than the maximum of reports that cover a
/// number.
const TOPS: usize = 4;
/// For frames of at most this average size, retransmissions are cheaper than frequent reports.
const SMALL_FRAME: u32 = 128;
/// Maximum of reports that answer one request.
const MAX_ANSWERS: u8 = 8;

/// The packet of a frame, identified by its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// The number of the first frame that carried it.
    pub(super) first: u64,
    /// True for a duplicate.
    pub(super) twice: bool,
}

#[derive(Debug)]
pub(super) struct Receiver {
    arrived: NumberSet,
    // Packets that arrived in a retransmission, by the number of their first frame.
    recovered: NumberSet,
    largest: Option<Largest>,
    report_delay: Duration,
    // The count of unreported frames; their earliest arrival follows.
    unreported: u32,
    unreported_since: Option<Time>,
    // This many of the next frames carry a report in any case ...
    urgent: u8,
    // ... and if there is no next frame, the first report is sent alone.
    alone: bool,
    // The tops of the latest reports, the newest first.
    tops: [u64; TOPS],
    // The rest of an answer to a request: from which number down to which.
    answer: Option<Answer>,
    mean_size: u32,
    numbers: NumberHistory,
    runs: Vec<u64>,
}

/// The largest number as of [`MAX_REORDERING`] ago, to expand a number of one octet.
///
/// The sender uses one octet only if at most 128 frames were sent since then, and few before it are
/// missing. So the frame is not more than 192 numbers above that; nor more than 64 below, unless it
/// is later than permitted. A burst in longer numbers meanwhile does not change that.
#[derive(Debug)]
struct NumberHistory {
    before: u64,
    // The largest number at each `STEP` with a frame.
    recent: VecDeque<Reached>,
}

#[derive(Clone, Copy, Debug)]
struct Reached {
    first: Time,
    last: Time,
    number: u64,
}

impl NumberHistory {
    const STEP: Duration = Duration::from_millis(12);

    /// Returns the middle of the range of possible numbers.
    fn middle(&mut self, now: Time) -> u64 {
        while let Some(reached) = self
            .recent
            .front()
            .filter(|reached| reached.last + MAX_REORDERING <= now)
        {
            self.before = reached.number;
            self.recent.pop_front();
        }
        self.before.wrapping_add(64)
    }

    fn reached(&mut self, now: Time, number: u64) {
        match self.recent.back_mut() {
            Some(reached) if now.since(reached.first) < Self::STEP => {
                (reached.last, reached.number) = (now, number);
            }
            _ => self.recent.push_back(Reached {
                first: now,
                last: now,
                number,
            }),
        }
        if self.recent.len() > 16 {
            self.middle(now);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Largest {
    number: u64,
    width: u8,
    at: Time,
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    // `None`: the largest number.
    top: Option<u64>,
    bottom: u64,
    left: u8,
}

impl Receiver {
    /// Returns a receiver that expects `first` as the number of the peer's first frame.
    pub(super) fn new(first: u64, report_delay: Duration) -> Receiver {
        Receiver {
            arrived: NumberSet::new(first),
            recovered: NumberSet::new(first),
            largest: None,
            report_delay,
            unreported: 0,
            unreported_since: None,
            urgent: 0,
            alone: false,
            tops: [first.wrapping_sub(1); TOPS],
            answer: None,
            mean_size: 0,
            numbers: NumberHistory {
                before: first.wrapping_sub(1),
                recent: VecDeque::new(),
            },
            runs: Vec::with_capacity(MAX_RUNS),
        }
    }

    /// Processes the numbers of a frame; `loss` is the loss rate of this end's frames, which carry
    /// the reports. Returns `None` if the numbers are contradictory.
    pub(super) fn handle(
        &mut self,
        now: Time,
        number: ShortNumber,
        resent: Option<Resent>,
        size: usize,
        loss: f64,
    ) -> Option<Identity> {
        let expected = self.arrived.next();
        let width = number.width;
        let number = number.expand(if width == 1 {
            self.numbers.middle(now)
        } else {
            expected
        });
        let first = number.checked_sub(resent.map_or(0, |resent| resent.back))?;
        match self.arrived.insert(number) {
            Insert::Twice => return Some(Identity { first, twice: true }),
            // The packet is from before the agreement, so it is unknown whether it is a duplicate.
            Insert::Forgotten => {
                return Some(Identity {
                    first,
                    twice: false,
                });
            }
            Insert::New => {}
        }
        self.mean_size =
            (self.mean_size * 15 + u32::try_from(size).unwrap_or(u32::MAX / 16).min(65_536)) / 16;
        if number >= expected {
            self.largest = Some(Largest {
                number,
                width,
                at: now,
            });
            self.numbers.reached(now, number);
        }
        self.unreported = self.unreported.saturating_add(1);
        self.unreported_since.get_or_insert(now);
        let asks = resent.is_some_and(|resent| resent.ask);
        if asks {
            // The replaced frame is the oldest one without an acknowledgement.
            self.answer = Some(Answer {
                top: None,
                bottom: first,
                left: MAX_ANSWERS,
            });
        }
        if number != expected || asks {
            // A gap begins or ends here, and the sender waits for this report.
            self.urgent = self.urgent.max(if number > expected {
                self.urgent_copies(loss)
            } else {
                1
            });
            self.alone = true;
        }
        let twice = match first == number {
            true => self.recovered.contains(number),
            false => self.arrived.contains(first) || self.recovered.insert(first) == Insert::Twice,
        };
        Some(Identity { first, twice })
    }

    /// Returns the number of reports of a gap. A lost report delays the recovery, but never causes
    /// a retransmission.
    fn urgent_copies(&self, loss: f64) -> u8 {
        match loss {
            _ if self.mean_size <= SMALL_FRAME => 1,
            loss if loss < 0.005 => 1,
            loss if loss < 0.03 => 2,
            _ => 3,
        }
    }

    /// Handles the sender's request to report everything from the number that ends in `lowest`.
    pub(super) fn handle_ask(&mut self, lowest: u32) {
        let bottom = ShortNumber {
            low: lowest,
            width: 4,
        }
        .expand(self.arrived.next());
        self.answer = Some(Answer {
            top: None,
            bottom,
            left: MAX_ANSWERS,
        });
        self.alone = true;
        self.urgent = self.urgent.max(1);
    }

    /// Returns true if the next frame should carry a report.
    pub(super) fn wants_to_travel(&self, now: Time) -> bool {
        self.largest.is_some()
            && (self.urgent > 0
                || self.unreported >= REPORT_EVERY
                || self
                    .unreported_since
                    .is_some_and(|since| now >= since + self.report_delay * 3 / 4))
    }

    /// Returns the time for a report in a frame of its own.
    pub(super) fn due(&self) -> Option<Time> {
        self.largest?;
        if self.alone {
            Some(Time::ZERO)
        } else {
            self.unreported_since.map(|since| since + self.report_delay)
        }
    }

    /// Appends a report; `loss` as in [`Self::handle`]. Returns `None` if no frame has arrived yet.
    pub(super) fn write_report(&mut self, now: Time, loss: f64, out: &mut Vec<u8>) -> Option<()> {
        let largest = self.largest?;
        let covering = match loss {
            loss if loss < 0.01 => 2,
            loss if loss < 0.1 => 3,
            _ => TOPS,
        };
        let mut bottom = self.tops.get(covering - 1).map_or(0, |top| top + 1);
        let mut top = (largest.number, largest.width);
        if let Some(answer) = self.answer {
            bottom = bottom.min(answer.bottom);
            // A top other than the largest could be ambiguous if it were short.
            top = answer.top.map_or(top, |number| (number, 4));
        }
        let lowest = self.collect_runs(top.0, bottom);
        let waited = now.since(largest.at).as_nanos() * 3;
        let waited =
            (waited + self.report_delay.as_nanos() / 2) / self.report_delay.as_nanos().max(1);
        wire::write_report(
            out,
            ShortNumber::new(top.0, top.1),
            waited.min(3) as u8,
            &self.runs,
        );
        self.unreported = 0;
        self.unreported_since = None;
        self.urgent = self.urgent.saturating_sub(1);
        self.alone = false;
        if top.0 == largest.number && top.0 != self.tops.first().copied().unwrap_or_default() {
            self.tops.rotate_right(1);
            if let Some(first) = self.tops.first_mut() {
                *first = top.0;
            }
        }
        self.answer = self.answer.and_then(|answer| {
            let more = lowest > answer.bottom.max(self.arrived.floor())
                && answer.left > 1
                && lowest < top.0;
            self.alone |= more;
            more.then_some(Answer {
                top: Some(lowest),
                left: answer.left - 1,
                ..answer
            })
        });
        Some(())
    }

    /// Collects the runs below `top` down to `bottom`. Returns the lowest number in them that
    /// arrived.
    fn collect_runs(&mut self, top: u64, bottom: u64) -> u64 {
        self.runs.clear();
        let bottom = bottom.max(self.arrived.floor());
        let (mut below, mut lowest, mut present) = (top, top, true);
        while below > bottom && self.runs.len() < MAX_RUNS {
            let run = self
                .arrived
                .run(below - 1, bottom, present)
                .min(wire::MAX_RUN_LEN);
            self.runs.push(run);
            below -= run;
            if present {
                lowest = below;
            }
            present = !present;
        }
        lowest
    }
}
