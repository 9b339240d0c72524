//! CUBIC's growth in congestion avoidance (RFC 9438), in the form that `ndnget` has.

use core::time::Duration;

use whimbrel_core::Time;

/// Segments per cubic second (RFC 9438 section 5.1).
const C: f64 = 0.4;

/// Where the cubic function stands.
#[derive(Clone, Debug)]
pub(super) struct Cubic {
    beta: f64,
    /// Window just before the last decrease.
    maximum: f64,
    /// That of the decrease before, for fast convergence.
    last_maximum: f64,
    /// Window at the beginning of this epoch, from which the estimate of Reno's window grows.
    begin: f64,
    /// Seconds that the cubic function takes to come back to `maximum`.
    k: f64,
    since: Time,
}

impl Cubic {
    pub(super) fn new(beta: f64, now: Time) -> Cubic {
        Cubic {
            beta,
            maximum: 0.0,
            last_maximum: 0.0,
            begin: 0.0,
            k: 0.0,
            since: now,
        }
    }

    pub(super) fn has_maximum(&self, initial: f64) -> bool {
        self.maximum >= initial
    }

    /// Avoidance begins without a decrease, at a threshold that was given: as `ndnget`, the epoch
    /// is the last decrease or the start of the fetch.
    pub(super) fn begin_at(&mut self, size: f64) {
        self.maximum = size;
        self.begin = size * self.beta;
        self.k = (self.maximum * (1.0 - self.beta) / C).cbrt();
    }

    /// Avoidance begins without a decrease because the delay rose: the function starts at its
    /// inflection point, with K = 0 (RFC 9438 section 4.8).
    pub(super) fn begin_growing(&mut self, size: f64, now: Time) {
        (self.maximum, self.begin, self.k, self.since) = (size, size, 0.0, now);
    }

    pub(super) fn decrease(&mut self, size: f64, fast_convergence: bool, now: Time) {
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

    /// What one Data adds to a window of `size`.
    pub(super) fn increment(&self, now: Time, smoothed: Option<Duration>, size: f64) -> f64 {
        let t = now.since(self.since).as_secs_f64();
        let cubic = C * (t - self.k).powi(3) + self.maximum;
        let reno = match smoothed
            .map(|rtt| rtt.as_secs_f64())
            .filter(|rtt| *rtt > 0.0)
        {
            Some(rtt) => self.begin + 3.0 * (1.0 - self.beta) / (1.0 + self.beta) * (t / rtt),
            None => 0.0,
        };
        // Never more than one segment for one Data: the target of an idle hour would be a burst.
        ((cubic.max(reno) - size).max(0.0) / size).min(1.0)
    }
}
