//! A hop that uses only the bandwidth that other flows leave unused.
//!
//! As in LEDBAT (RFC 6817) the window grows while the path has nearly no queue, and shrinks with
//! one. The tolerated queue is half of the one that the model of the path tolerates, so that a
//! scavenger yields to other hops as well as to loss-based senders.

use core::time::Duration;

use super::congestion::Answer;

/// The tolerated queue: this part of the round trip, and at least this time.
const TARGET_SHARE: u32 = 16;
const LEAST_TARGET: Duration = Duration::from_millis(1);
/// Factors of the window after a round with a larger queue, and with one of at least twice the
/// size.
const YIELD: (f64, f64) = (0.7, 0.5);
/// Part of the window by which it grows in a round without a queue.
const GROWTH: f64 = 1.0 / 16.0;
/// First and smallest window, in packets.
const FIRST: f64 = 4.0;
const LEAST: f64 = 2.0;
/// Largest window, in bytes.
const MOST: f64 = 1e12;

#[derive(Clone, Debug)]
pub(super) struct Scavenger {
    packet: f64,
    window: f64,
    // Doubles each round until there is a queue.
    starting: bool,
    rtt: Duration,
    // Smallest round trip of this round.
    least: Duration,
    marked: bool,
}

impl Scavenger {
    pub(super) fn new() -> Scavenger {
        Scavenger {
            packet: 1_400.0,
            window: FIRST * 1_400.0,
            starting: true,
            rtt: Duration::ZERO,
            least: Duration::MAX,
            marked: false,
        }
    }

    pub(super) fn set_packet(&mut self, bytes: usize) {
        self.packet = bytes.max(1) as f64;
    }

    /// Returns the bound of the bytes in flight.
    pub(super) fn window(&self) -> u64 {
        self.window as u64
    }

    /// Returns the pace in bytes per second.
    pub(super) fn pace(&self) -> Option<f64> {
        (!self.rtt.is_zero()).then(|| self.window / self.rtt.as_secs_f64())
    }

    /// Starts anew on another path, or after an outage.
    pub(super) fn restart(&mut self) {
        self.starting = true;
        self.window = FIRST * self.packet;
        self.least = Duration::MAX;
    }

    /// Handles an answer after `rtt`; `base` is the round trip without a queue, and `grain` the
    /// part of the queue that the hop's own bursts make up.
    pub(super) fn sample(
        &mut self,
        (rtt, base, grain): (Duration, Duration, Duration),
        sample: &Answer,
    ) {
        self.marked |= sample.marked;
        self.rtt = if self.rtt.is_zero() {
            rtt
        } else {
            (self.rtt * 7 + rtt) / 8
        };
        self.least = self.least.min(rtt);
        if !sample.round_over {
            return;
        }
        let queue = core::mem::replace(&mut self.least, Duration::MAX).saturating_sub(base);
        let target = (base / TARGET_SHARE).max(LEAST_TARGET).max(grain);
        let marked = core::mem::take(&mut self.marked);
        let dropped = sample.loss * self.window >= self.packet / 2.0;
        if marked || queue >= target || (dropped && queue > target / 2) {
            self.starting = false;
            self.window *= match queue >= target * 2 {
                true => YIELD.1,
                false => YIELD.0,
            };
        } else if !sample.limited {
            let room = 1.0 - queue.as_secs_f64() / target.as_secs_f64();
            self.window += match self.starting {
                true => self.window,
                false => (self.window * GROWTH * room).max(self.packet / 2.0),
            };
        }
        self.window = self.window.clamp(LEAST * self.packet, MOST);
    }
}
