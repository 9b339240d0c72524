//! CUBIC (RFC 9438), as in `ndnget`.

use core::time::Duration;

use whimbrel_core::Time;

use super::slow_start::Ramp;
use super::{Congestion, CongestionControl, Delivered, LawPhase, Siblings, WindowOptions};

/// Segments per cubic second (RFC 9438 section 5.1).
const C: f64 = 0.4;

#[derive(Clone, Debug)]
pub(super) struct Cubic {
    ramp: Ramp,
    curve: Curve,
    fast_convergence: bool,
}

impl Cubic {
    pub(super) fn new(
        options: WindowOptions,
        beta: f64,
        fast_convergence: bool,
        now: Time,
    ) -> Cubic {
        Cubic {
            ramp: Ramp::new(options),
            curve: Curve::new(beta, now),
            fast_convergence,
        }
    }
}

impl CongestionControl for Cubic {
    fn window(&self) -> f64 {
        self.ramp.size()
    }

    fn phase(&self) -> LawPhase {
        self.ramp.phase()
    }

    fn threshold(&self) -> f64 {
        self.ramp.threshold()
    }

    fn on_delivered(&mut self, delivered: &Delivered, _siblings: &Siblings<'_>) {
        let ended = self.ramp.sample(delivered);
        let size = self.ramp.size();
        if ended {
            self.curve.begin_growing(size, delivered.now);
        }
        if !delivered.may_grow(size) {
            return;
        }
        let growth = match self.ramp.phase() {
            LawPhase::SlowStart => 1.0 / self.ramp.divisor(),
            _ => {
                if !self.curve.has_maximum(self.ramp.configured_initial()) {
                    self.curve.begin_at(size);
                }
                self.curve
                    .increment(delivered.now, delivered.smoothed, size)
            }
        };
        self.ramp.grow(growth, delivered.limit);
    }

    fn on_congestion(&mut self, now: Time, _sign: Congestion, _siblings: &Siblings<'_>) {
        let size = self.ramp.size();
        self.curve.decrease(size, self.fast_convergence, now);
        let threshold = (size * self.curve.beta).max(self.ramp.configured_initial());
        self.ramp.fall(threshold, threshold);
    }

    fn snapshot(&self) -> Option<Box<dyn CongestionControl>> {
        Some(Box::new(self.clone()))
    }

    fn restart(&mut self) {
        self.ramp.restart();
    }
}

/// The state of the cubic function.
#[derive(Clone, Debug)]
struct Curve {
    beta: f64,
    /// Window just before the last decrease.
    maximum: f64,
    /// That of the decrease before, for fast convergence.
    last_maximum: f64,
    /// Window at the beginning of this epoch, from which the estimate of Reno's window grows.
    begin: f64,
    /// Seconds until the cubic function returns to `maximum`.
    k: f64,
    since: Time,
}

impl Curve {
    fn new(beta: f64, now: Time) -> Curve {
        Curve {
            beta,
            maximum: 0.0,
            last_maximum: 0.0,
            begin: 0.0,
            k: 0.0,
            since: now,
        }
    }

    fn has_maximum(&self, initial: f64) -> bool {
        self.maximum >= initial
    }

    /// Congestion avoidance begins without a decrease, at the configured threshold: as in `ndnget`,
    /// the epoch is the last decrease or the start of the fetch.
    fn begin_at(&mut self, size: f64) {
        self.maximum = size;
        self.begin = size * self.beta;
        self.k = (self.maximum * (1.0 - self.beta) / C).cbrt();
    }

    /// Congestion avoidance begins without a decrease because the delay rose: the function starts
    /// at its inflection point, with K = 0 (RFC 9438 section 4.8).
    fn begin_growing(&mut self, size: f64, now: Time) {
        (self.maximum, self.begin, self.k, self.since) = (size, size, 0.0, now);
    }

    fn decrease(&mut self, size: f64, fast_convergence: bool, now: Time) {
        self.maximum = if fast_convergence && size < self.last_maximum {
            size * (1.0 + self.beta) / 2.0
        } else {
            size
        };
        self.last_maximum = size;
        self.begin = self.maximum * self.beta;
        self.k = (self.maximum * (1.0 - self.beta) / C).cbrt();
        self.since = now;
    }

    /// Returns the increment of a window of `size` for one Data.
    fn increment(&self, now: Time, smoothed: Option<Duration>, size: f64) -> f64 {
        let t = now.since(self.since).as_secs_f64();
        let cubic = C * (t - self.k).powi(3) + self.maximum;
        let reno = match smoothed
            .map(|rtt| rtt.as_secs_f64())
            .filter(|rtt| *rtt > 0.0)
        {
            Some(rtt) => self.begin + 3.0 * (1.0 - self.beta) / (1.0 + self.beta) * (t / rtt),
            None => 0.0,
        };
        // At most one segment for one Data: the target after an idle hour would be a burst.
        ((cubic.max(reno) - size).max(0.0) / size).min(1.0)
    }
}
