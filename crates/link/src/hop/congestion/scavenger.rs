//! A law for bandwidth that other flows leave unused.
//!
//! As in LEDBAT (RFC 6817) the window grows while the path has nearly no queue, and shrinks with one. The tolerated queue is
//! half of the one that [`Bottleneck`](super::bottleneck::Bottleneck) drains, so that a scavenger yields to other hops as well
//! as to loss-based senders.

use core::time::Duration;

use whimbrel_core::Time;

use super::estimate::MAX_RATE;
use super::{Answer, Estimate, Law};

/// Part of the window given up for each target's length of queue, after a mark or a drop, and at most at once.
const YIELD: f64 = 0.15;
const MARKED_YIELD: f64 = 0.3;
const MOST_YIELD: f64 = 0.5;
/// Part of the window by which it grows in a round without a queue.
const GROWTH: f64 = 1.0 / 16.0;
/// First and smallest window, in packets.
const FIRST: f64 = 4.0;
const LEAST: f64 = 2.0;
/// Time after which the delay without a queue is measured anew. Others may send, and queue, for long; the clocks of both ends
/// drift apart by some milliseconds meanwhile.
const REFRESH: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Scavenger {
    estimate: Estimate,
    // Bytes.
    window: f64,
    // Doubles in each round until there is a queue.
    starting: bool,
    // A queue has marked packets of this round.
    marked: bool,
    // The window has become smaller a round ago.
    has_cut: bool,
    rtt: Duration,
    refreshed: Time,
}

impl Scavenger {
    pub(super) fn new(now: Time) -> Scavenger {
        let estimate = Estimate::new(now);
        Scavenger {
            window: FIRST * estimate.frame(),
            estimate,
            starting: true,
            marked: false,
            has_cut: false,
            rtt: Duration::ZERO,
            refreshed: now,
        }
    }

    fn end_round(&mut self, answer: &Answer) {
        let packet = self.estimate.frame();
        let (queue, target) = (self.estimate.queue(), self.estimate.slack() / 2.0);
        let marked = core::mem::take(&mut self.marked);
        if core::mem::take(&mut self.has_cut) {
            // This round tells of what was sent before the cut.
            return;
        }
        let dropped = answer.loss * self.window >= packet / 2.0;
        if marked || queue >= target || (dropped && queue > target / 2.0) {
            (self.starting, self.has_cut) = (false, true);
            let least = if marked || dropped { MARKED_YIELD } else { 0.0 };
            self.window *= 1.0 - (YIELD * queue / target).clamp(least, MOST_YIELD);
        } else if !answer.limited {
            let room = 1.0 - queue.max(0.0) / target;
            self.window += match self.starting {
                true => self.window,
                false => (self.window * GROWTH * room).max(packet / 2.0),
            };
        }
        self.window = self.window.clamp(LEAST * packet, MAX_RATE);
    }

    fn restart(&mut self, now: Time) {
        self.estimate.forget_delays(now);
        self.refreshed = now;
        self.starting = true;
        self.window = FIRST * self.estimate.frame();
    }
}

impl Law for Scavenger {
    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn estimate_mut(&mut self) -> &mut Estimate {
        &mut self.estimate
    }

    fn on_answer(&mut self, now: Time, answer: &Answer) {
        self.estimate.note(now, answer, false);
        self.marked |= answer.marked;
        self.rtt = match self.rtt.is_zero() {
            true => answer.rtt,
            false => (self.rtt * 7 + answer.rtt) / 8,
        };
        if answer.round_over {
            self.estimate.age_rate(1);
            self.end_round(answer);
        }
        if now.since(self.refreshed) >= REFRESH {
            self.refreshed = now;
            self.estimate.refresh_delays(now);
        }
    }

    fn on_outage_over(&mut self, now: Time) {
        self.restart(now);
    }

    fn on_path_change(&mut self, now: Time) {
        self.restart(now);
    }

    fn pace(&self) -> Option<f64> {
        (!self.rtt.is_zero()).then(|| self.window / self.rtt.as_secs_f64())
    }

    fn window(&self, feedback: u64) -> u64 {
        self.window as u64 + feedback
    }

    fn slowest_share(&self) -> f64 {
        0.25
    }

    fn is_starting(&self) -> bool {
        self.starting
    }
}
