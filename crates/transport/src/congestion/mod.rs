//! Laws of congestion control: how many Interests may be in flight on a path.
//!
//! A [`CongestionControl`] is told what became of the Interests of one path and answers with a
//! window, in segments, and possibly a rate. It knows no segments, timers or packets; those are the
//! [`crate::path::Path`]'s, which also sees to it that the losses of one window count once. A law
//! that is coupled to those of the other paths of a connection ([PTP §5.D.5]) reads their state
//! from [`Siblings`].
//!
//! The laws here are those of ndn-tools' `ndnget`. Beyond `ndnget`, slow start ends when the delay
//! rises ([`slow_start`]), because on a fast path without marks it would otherwise end only once
//! some socket's buffer has overflowed; with [`WindowOptions::delay_exit`] off it is exactly
//! theirs.

mod aimd;
mod cubic;
mod fixed;
pub mod slow_start;

use core::fmt::Debug;
use core::time::Duration;

use whimbrel_core::Time;

use crate::path::{PathId, PathState};
use aimd::Aimd;
use cubic::Cubic;
use fixed::Fixed;

/// A law of congestion control on one path.
pub trait CongestionControl: Debug + Send {
    /// Segments that may be in flight; never below 1.
    fn window(&self) -> f64;

    /// Segments a second that may leave; `None` if the window alone decides.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }

    /// What it is doing, for traces.
    fn phase(&self) -> LawPhase;

    /// Slow-start threshold in segments, for traces.
    fn threshold(&self) -> f64;

    /// A Data came.
    fn on_delivered(&mut self, delivered: &Delivered, siblings: &Siblings<'_>);

    /// A sign of congestion; the first one in a window, unless the path is told otherwise.
    fn on_congestion(&mut self, now: Time, sign: Congestion, siblings: &Siblings<'_>);

    /// The path is another one, or was gone: from the initial window again, up to the threshold
    /// known so far.
    fn restart(&mut self);
}

/// What a law is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LawPhase {
    /// The window never changes.
    Fixed,
    /// It grows until it reaches the threshold.
    SlowStart,
    /// It grows slowly, to see whether there is more room.
    Avoidance,
}

/// A Data that came.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    /// When.
    pub now: Time,
    /// Octets of its content.
    pub bytes: usize,
    /// Its round trip, unless its Interest was sent more than once.
    pub rtt: Option<Duration>,
    /// The path's smoothed round-trip time.
    pub smoothed: Option<Duration>,
    /// Its segment: numbers count up with the first transmissions on the path.
    pub segment: u64,
    /// The highest segment sent on the path so far. With `segment` it tells rounds apart.
    pub newest: u64,
    /// Interests in flight on the path, its own included.
    pub in_flight: usize,
    /// It had a congestion mark that is not to be ignored.
    pub marked: bool,
    /// The window grows to at most this many segments.
    pub limit: f64,
}

impl Delivered {
    /// True if the window may grow: there was no mark, and at least half of the window was used.
    /// Else something other than the window holds the consumer back, and nothing tells whether more
    /// would fit.
    pub fn may_grow(&self, window: f64) -> bool {
        !self.marked && self.in_flight as f64 * 2.0 >= window
    }
}

/// A sign of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// A Data with a congestion mark.
    Mark,
    /// A Nack for congestion, or a Data that is missing among later ones.
    Loss,
    /// Nothing came in time.
    Timeout,
}

/// The paths of a connection, for a law that looks at all of them.
#[derive(Clone, Copy, Debug)]
pub struct Siblings<'a> {
    /// The law's own path.
    pub own: PathId,
    /// All paths by their number, those that are down too; the own one as of the event before.
    /// Empty if the own one is the only one.
    pub paths: &'a [PathState],
}

impl Siblings<'_> {
    /// A path that is alone.
    pub const NONE: Siblings<'static> = Siblings {
        own: PathId::FIRST,
        paths: &[],
    };
}

/// Which law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowKind {
    /// Always this many, 1 by default; losses show only at the end of the Interests' lifetime.
    Fixed(u32),
    /// Additive increase, multiplicative decrease.
    Aimd {
        /// Segments added in slow start for each Data, in avoidance for each window.
        step: f64,
        /// What the window is multiplied by at a loss.
        decrease: f64,
        /// After a loss the window starts anew from its initial size instead of from the threshold.
        reset_to_initial: bool,
    },
    /// CUBIC.
    Cubic {
        /// What the window is multiplied by at a loss.
        beta: f64,
        /// Fast convergence (RFC 9438 section 4.7).
        fast_convergence: bool,
    },
}

impl WindowKind {
    /// A window of one Interest, as `ndnget -p fixed`.
    pub const FIXED: WindowKind = WindowKind::Fixed(1);
    /// As `ndnget -p aimd`.
    pub const AIMD: WindowKind = WindowKind::Aimd {
        step: 1.0,
        decrease: 0.5,
        reset_to_initial: false,
    };
    /// As `ndnget -p cubic`, its default.
    pub const CUBIC: WindowKind = WindowKind::Cubic {
        beta: 0.7,
        fast_convergence: false,
    };
}

/// A law before it begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowOptions {
    /// Which.
    pub kind: WindowKind,
    /// Initial window in segments.
    pub initial: f64,
    /// Initial slow-start threshold in segments.
    pub threshold: f64,
    /// Slow start also ends when the delay rises.
    pub delay_exit: bool,
}

impl Default for WindowOptions {
    /// `ndnget`'s CUBIC, and slow start that ends when the delay rises.
    fn default() -> WindowOptions {
        WindowOptions {
            kind: WindowKind::CUBIC,
            initial: 2.0,
            threshold: f64::INFINITY,
            delay_exit: true,
        }
    }
}

impl WindowOptions {
    /// The law, before the first Interest, at `now`.
    pub fn law(self, now: Time) -> Box<dyn CongestionControl> {
        match self.kind {
            WindowKind::Fixed(size) => Box::new(Fixed::new(size)),
            WindowKind::Aimd {
                step,
                decrease,
                reset_to_initial,
            } => Box::new(Aimd::new(self, step, decrease, reset_to_initial)),
            WindowKind::Cubic {
                beta,
                fast_convergence,
            } => Box::new(Cubic::new(self, beta, fast_convergence, now)),
        }
    }
}
