//! How many Interests may be under way.
//!
//! Facts: research file `ndn-congestion-and-link.md` section 6 ("ndn-tools ndnget"). Beyond
//! `ndnget`, slow start ends when the delay rises ([`slow_start`]), because on a fast path without
//! marks it would otherwise end only once some socket's buffer has overflowed; with
//! [`WindowOptions::delay_exit`] off it is exactly theirs.

mod cubic;

use core::time::Duration;

use whimbrel_core::Time;

use crate::congestion::slow_start::{Phase, SlowStart};
use crate::congestion::{WindowKind, WindowOptions};
use cubic::Cubic;

/// AIMD's slow-start threshold never goes below this, in segments.
const LEAST_THRESHOLD: f64 = 2.0;

/// A congestion window in segments. Knows no segments: its owner says when a Data came or a loss
/// showed.
#[derive(Clone, Debug)]
pub struct Window {
    options: WindowOptions,
    size: f64,
    threshold: f64,
    cubic: Cubic,
    slow_start: SlowStart,
    /// The size when the delay was first seen to rise.
    alarmed_at: Option<f64>,
}

impl Window {
    /// Before the first Interest, at `now`.
    pub fn new(options: WindowOptions, now: Time) -> Window {
        let size = match options.kind {
            WindowKind::Fixed(size) => f64::from(size.max(1)),
            _ => options.initial.max(1.0),
        };
        let beta = match options.kind {
            WindowKind::Cubic { beta, .. } => beta,
            _ => 0.7,
        };
        Window {
            options,
            size,
            threshold: options.threshold,
            cubic: Cubic::new(beta, now),
            slow_start: SlowStart::default(),
            alarmed_at: None,
        }
    }

    /// Segments that may be under way; never below 1.
    pub const fn size(&self) -> f64 {
        self.size
    }

    /// Slow-start threshold.
    pub const fn threshold(&self) -> f64 {
        self.threshold
    }

    /// True if it never changes.
    pub const fn is_fixed(&self) -> bool {
        matches!(self.options.kind, WindowKind::Fixed(_))
    }

    /// A round trip that was not a retransmission's. `segment` counts up, `sent` is the highest
    /// segment sent so far: they tell rounds apart.
    pub fn sample(&mut self, now: Time, rtt: Duration, segment: u64, sent: u64) {
        if !self.options.delay_exit || self.is_fixed() || self.size >= self.threshold {
            return;
        }
        match self.slow_start.sample(now, rtt, segment, sent) {
            Phase::Growing => self.alarmed_at = None,
            Phase::Cautious => self.alarmed_at = self.alarmed_at.or(Some(self.size)),
            Phase::Over => {
                self.size = self.alarmed_at.take().unwrap_or(self.size).min(self.size);
                self.threshold = self.size;
                self.cubic.begin_growing(self.size, now);
            }
        }
    }

    /// A Data came without a congestion mark. `smoothed` is the round-trip time; the window grows
    /// to at most `limit`.
    pub fn increase(&mut self, now: Time, smoothed: Option<Duration>, limit: f64) {
        let slow_start = self.size < self.threshold;
        let growth = match self.options.kind {
            WindowKind::Fixed(_) => return,
            WindowKind::Aimd { step, .. } if slow_start => step / self.slow_start.divisor(),
            WindowKind::Cubic { .. } if slow_start => 1.0 / self.slow_start.divisor(),
            WindowKind::Aimd { step, .. } => step / self.size.floor(),
            WindowKind::Cubic { .. } => {
                if !self.cubic.has_maximum(self.options.initial) {
                    self.cubic.begin_at(self.size);
                }
                self.cubic.increment(now, smoothed, self.size)
            }
        };
        self.size = (self.size + growth).min(limit.max(1.0));
    }

    /// A loss or a congestion mark; its owner sees to it that one event counts once.
    pub fn decrease(&mut self, now: Time) {
        match self.options.kind {
            WindowKind::Fixed(_) => return,
            WindowKind::Aimd {
                decrease,
                reset_to_initial,
                ..
            } => {
                self.threshold = (self.size * decrease).max(LEAST_THRESHOLD);
                self.size = if reset_to_initial {
                    self.options.initial.max(1.0)
                } else {
                    self.threshold
                };
            }
            WindowKind::Cubic {
                beta,
                fast_convergence,
            } => {
                self.cubic.decrease(self.size, fast_convergence, now);
                self.threshold = (self.size * beta).max(self.options.initial);
                self.size = self.threshold;
            }
        }
        self.size = self.size.max(1.0);
        (self.slow_start, self.alarmed_at) = (SlowStart::default(), None);
    }

    /// The path is another one, or was gone: from the initial window again, up to the threshold
    /// known so far.
    pub fn restart(&mut self) {
        if !self.is_fixed() {
            self.threshold = self.threshold.min(self.size.max(LEAST_THRESHOLD));
            self.size = self.options.initial.max(1.0);
            (self.slow_start, self.alarmed_at) = (SlowStart::default(), None);
        }
    }
}
