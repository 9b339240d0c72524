//! CUBIC (RFC 9438): a window that others of a kernel's kind meet on equal terms, and the law that has nothing else.

use core::time::Duration;

use whimbrel_core::Time;

use super::estimate::MAX_RATE;
use super::{Answer, Estimate, Law};

/// Factor of the window after a loss (RFC 9438 section 4.6), and its growth in packets per cubic second (section 5).
const BETA: f64 = 0.7;
const CUBIC: f64 = 0.4;
/// Packets per round trip by which Reno with that factor grows on average (RFC 9438 section 4.3).
const RENO: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Smallest window, in packets.
const LEAST: f64 = 2.0;
/// Pace as a multiple of the window per round trip, so that the window limits: in slow start, and after.
const PACE: (f64, f64) = (2.0, 1.2);

/// A congestion window in bytes.
#[derive(Clone, Debug)]
struct Window {
    bytes: f64,
    // The window of Reno, and the one before the last loss.
    reno: f64,
    top: f64,
    // When this growth began.
    epoch: Time,
    // Losses before are of packets that were sent before the last cut.
    deaf_until: Time,
    rtt: Duration,
}

impl Window {
    fn new(now: Time, bytes: f64) -> Window {
        Window {
            bytes,
            reno: bytes,
            top: bytes,
            epoch: now,
            deaf_until: now,
            rtt: Duration::ZERO,
        }
    }

    fn measured(&mut self, rtt: Duration) {
        self.rtt = match self.rtt.is_zero() {
            true => rtt,
            false => (self.rtt * 7 + rtt) / 8,
        };
    }

    /// Returns the pace of a window that is this factor faster than its round trip.
    fn pace(&self, gain: f64) -> Option<f64> {
        let rtt = self.rtt.as_secs_f64().max(1e-5);
        (!self.rtt.is_zero()).then(|| (gain * self.bytes / rtt).min(MAX_RATE))
    }

    /// Answers to a loss, unless it belongs to one that was answered.
    fn cut(&mut self, now: Time, packet: f64) {
        if now < self.deaf_until {
            return;
        }
        // A flow with less than before leaves more to those that have joined (RFC 9438 section 4.7).
        self.top = match self.bytes < self.top {
            true => self.bytes * (1.0 + BETA) / 2.0,
            false => self.bytes,
        };
        self.bytes = (self.bytes * BETA).max(LEAST * packet);
        self.reno = self.bytes;
        self.epoch = now;
        self.deaf_until = now + self.rtt * 2;
    }

    fn grow(&mut self, now: Time, acked: f64, packet: f64) {
        let rise = ((1.0 - BETA) * self.top / (packet * CUBIC)).cbrt();
        let ahead = (now.since(self.epoch) + self.rtt).as_secs_f64() - rise;
        let cubic = self.top + packet * CUBIC * ahead.powi(3);
        self.reno += RENO * packet * acked / self.bytes;
        // At most 1.5 times as much in a round trip (RFC 9438 section 4.4).
        let most = (self.bytes + acked / 2.0).min(MAX_RATE);
        self.bytes = cubic.max(self.reno).clamp(self.bytes.min(most), most);
    }
}

#[derive(Debug)]
pub(super) struct Cubic {
    estimate: Estimate,
    window: Window,
    // The window at which slow start ends.
    threshold: f64,
}

impl Cubic {
    pub(super) fn new(now: Time, window: u64) -> Cubic {
        Cubic {
            estimate: Estimate::new(now),
            window: Window::new(now, window as f64),
            threshold: f64::INFINITY,
        }
    }
}

impl Law for Cubic {
    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn estimate_mut(&mut self) -> &mut Estimate {
        &mut self.estimate
    }

    fn on_answer(&mut self, now: Time, answer: &Answer) {
        self.estimate.note(now, answer, false);
        self.window.measured(answer.rtt);
        let (packet, acked) = (self.estimate.frame(), answer.acked as f64);
        let lost = answer.loss * answer.measured as f64 >= packet / 2.0;
        if lost || answer.marked {
            self.window.cut(now, packet);
            self.threshold = self.threshold.min(self.window.bytes);
        } else if answer.filled && self.is_starting() {
            // HyStart (RFC 9406) ends slow start at the first queue.
            match self.estimate.has_queue_now() {
                true => self.threshold = self.window.bytes,
                false => self.window.bytes = (self.window.bytes + acked).min(MAX_RATE),
            }
        } else if answer.filled {
            self.window.grow(now, acked, packet);
        }
        if answer.round_over {
            self.estimate.age_rate(1);
        }
    }

    fn on_outage_over(&mut self, now: Time) {
        self.estimate.forget_delays(now);
        self.threshold = self.window.bytes;
        self.window.bytes = self.window.bytes.min(32.0 * self.estimate.frame());
    }

    fn pace(&self) -> Option<f64> {
        self.window
            .pace(if self.is_starting() { PACE.0 } else { PACE.1 })
    }

    fn window(&self, feedback: u64) -> u64 {
        self.window.bytes as u64 + feedback
    }

    fn is_starting(&self) -> bool {
        self.window.bytes < self.threshold
    }

    fn expect(&mut self, rate: u64, least: u64) {
        let window = self.estimate.expected(rate, least);
        self.window.bytes = self.window.bytes.min(window as f64);
    }
}
