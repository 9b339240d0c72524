//! Congestion laws: they limit the Interests in flight on a path.
//!
//! A [`CongestionControl`] is informed of the fate of one path's Interests and determines a window,
//! in segments, and possibly a rate. It handles no segments, timers or packets; those belong to the
//! [`crate::path::Path`], which also makes the losses of one window count once. A law that is
//! coupled to those of the other paths of a connection ([PTP §5.D.5]) reads their state from
//! [`Siblings`].
//!
//! The laws here are those of ndn-tools' `ndnget`. In addition, slow start ends when the delay
//! rises ([`slow_start`]), because on a fast path without marks it would otherwise end only after a
//! socket buffer has overflowed; with [`WindowOptions::delay_exit`] off they are exactly those of
//! `ndnget`.

mod aimd;
mod cubic;
mod fixed;
mod model;
mod mpccp;
pub mod slow_start;
mod weighted_vegas;

use core::fmt::Debug;
use core::time::Duration;

use whimbrel_core::Time;

use crate::path::{PathId, PathState};
use aimd::Aimd;
use cubic::Cubic;
use fixed::Fixed;
use model::Model;
pub use model::ModelOptions;
use mpccp::Mpccp;
pub use mpccp::{Coupling, MpccpOptions};
use weighted_vegas::WeightedVegas;

/// A congestion law for one path.
pub trait CongestionControl: Debug + Send {
    /// Maximum of segments in flight. Below 1 it is a rate: one segment is in flight that share of the time.
    fn window(&self) -> f64;

    /// Segments per second to send; `None` if the window alone limits them.
    fn pacing_rate(&self) -> Option<f64> {
        None
    }

    /// Returns its phase, for traces.
    fn phase(&self) -> LawPhase;

    /// Slow-start threshold in segments, for traces.
    fn threshold(&self) -> f64;

    /// Returns true if the law itself tells losses of one window from those of the next: it is then
    /// told of each, and only timeouts lengthen the path's timeout.
    fn counts_each_loss(&self) -> bool {
        false
    }

    /// A Data arrived.
    fn on_delivered(&mut self, delivered: &Delivered, siblings: &Siblings<'_>);

    /// A sign of congestion; the first one in a window, unless the path is configured otherwise.
    fn on_congestion(&mut self, now: Time, sign: Congestion, siblings: &Siblings<'_>);

    /// Returns the law as it is, to undo a reaction to a loss that was none (RFC 4015); `None` if its
    /// reactions are never undone.
    fn snapshot(&self) -> Option<Box<dyn CongestionControl>> {
        None
    }

    /// The path has changed, or was down: restart from the initial window, up to the known
    /// threshold.
    fn restart(&mut self);
}

/// The phase of a law.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LawPhase {
    /// The window never changes.
    Fixed,
    /// The window grows until it reaches the threshold.
    SlowStart,
    /// The window grows slowly, to probe for more capacity.
    Avoidance,
    /// As in avoidance, less than a window of Data after a loss.
    Recovery,
}

/// A received Data.
#[derive(Clone, Copy, Debug)]
pub struct Delivered {
    /// Time of arrival.
    pub now: Time,
    /// Octets of its content.
    pub bytes: usize,
    /// Its round trip, unless its Interest was retransmitted.
    pub rtt: Option<Duration>,
    /// The path's smoothed round-trip time.
    pub smoothed: Option<Duration>,
    /// Its segment: numbers increase with the first transmissions on the path.
    pub segment: u64,
    /// The highest segment sent on the path so far. With `segment` it delimits rounds.
    pub newest: u64,
    /// Interests in flight on the path, its own included.
    pub in_flight: usize,
    /// It has a congestion mark, and marks are not ignored.
    pub marked: bool,
    /// The label of the route that it took, if the routers label routes.
    pub route: Option<u64>,
    /// It came from a cache or an aggregated Interest, not from the end of the path.
    pub intermediate: bool,
    /// Interests of the path declared lost so far.
    pub lost: u64,
    /// Maximum of the window in segments.
    pub limit: f64,
}

impl Delivered {
    /// Returns true if the window may grow: there was no mark, and at least half of the window was
    /// used. Otherwise the window is not the limiting factor, and its growth would be untested.
    pub fn may_grow(&self, window: f64) -> bool {
        !self.marked && self.in_flight as f64 * 2.0 >= window
    }
}

/// A sign of congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// A Data with a congestion mark.
    Mark,
    /// A Nack for congestion, or a Data missing among later ones.
    Loss,
    /// A timeout.
    Timeout,
}

/// The paths of a connection, for a coupled law.
#[derive(Clone, Copy, Debug)]
pub struct Siblings<'a> {
    /// The law's own path.
    pub own: PathId,
    /// All paths by their number, including those that are down; the own one as before the event.
    /// Empty if there is only one path.
    pub paths: &'a [PathState],
}

impl Siblings<'_> {
    /// A path without siblings.
    pub const NONE: Siblings<'static> = Siblings {
        own: PathId::FIRST,
        paths: &[],
    };
}

/// The choice of law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowKind {
    /// Constant, 1 by default; losses are detected only at the end of the Interests' lifetime.
    Fixed(u32),
    /// Additive increase, multiplicative decrease.
    Aimd {
        /// Segments added in slow start for each Data, in avoidance for each window.
        step: f64,
        /// Factor of the window at a loss.
        decrease: f64,
        /// After a loss the window restarts from its initial size instead of from the threshold.
        reset_to_initial: bool,
    },
    /// CUBIC.
    Cubic {
        /// Factor of the window at a loss.
        beta: f64,
        /// Fast convergence (RFC 9438 section 4.7).
        fast_convergence: bool,
    },
    /// MPCCP: windows that are coupled over the paths of a consumer.
    Mpccp(MpccpOptions),
    /// Weighted Vegas: by delay, coupled.
    WeightedVegas,
    /// By a model of each path, coupled: for networks that lose packets, and for short queues.
    Model(ModelOptions),
    /// A law of the program around.
    Own(OwnLaw),
}

/// A law of a program's own.
#[derive(Clone, Copy, Debug)]
pub struct OwnLaw {
    /// Its name: laws with the same name and seed are the same.
    pub name: &'static str,
    /// Makes it for one path, with a seed.
    pub make: fn(WindowOptions, u64) -> Box<dyn CongestionControl>,
    /// Of its random draws.
    pub seed: u64,
}

impl PartialEq for OwnLaw {
    fn eq(&self, other: &OwnLaw) -> bool {
        self.name == other.name && self.seed == other.seed
    }
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

/// The configuration of a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowOptions {
    /// The law.
    pub kind: WindowKind,
    /// Initial window in segments.
    pub initial: f64,
    /// Initial slow-start threshold in segments.
    pub threshold: f64,
    /// Slow start also ends when the delay rises.
    pub delay_exit: bool,
}

impl Default for WindowOptions {
    /// `ndnget`'s CUBIC, with a slow start that also ends when the delay rises.
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
    /// Creates the law, before the first Interest, at `now`.
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
            WindowKind::Mpccp(options) => Box::new(Mpccp::new(self, options)),
            WindowKind::WeightedVegas => Box::new(WeightedVegas::new(self)),
            WindowKind::Model(options) => Box::new(Model::new(self, options)),
            WindowKind::Own(own) => (own.make)(self, own.seed),
        }
    }
}
