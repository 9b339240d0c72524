//! Congestion control of a hop: how fast it sends, and how much may be in flight.
//!
//! A [`Law`] takes each answer of the neighbour, which reports what was acknowledged, lost and marked, and sets a pace and a
//! window. To add one, implement the trait, give it a name in [`Pacing`] and an arm in [`law`].

mod bottleneck;
mod cubic;
mod estimate;
mod fixed;
mod scavenger;

use core::fmt::Debug;
use whimbrel_core::Time;

use super::config::Pacing;
pub(super) use estimate::{Answer, Estimate};

/// A rule for pace and window.
pub(super) trait Law: Debug + Send {
    /// Returns what the answers have shown of the path.
    fn estimate(&self) -> &Estimate;

    fn estimate_mut(&mut self) -> &mut Estimate;

    /// Handles an answer: what was acknowledged, lost and marked, and when it arrived.
    fn on_answer(&mut self, now: Time, answer: &Answer);

    /// Handles the end of an outage: what was known may be wrong now.
    fn on_outage_over(&mut self, now: Time);

    /// Handles the move to another path.
    fn on_path_change(&mut self, now: Time) {
        self.estimate_mut().forget_delays(now);
    }

    /// Prepares for a path that is known to be slow before it has carried a chunk: start-up begins with the bytes of two round
    /// trips at `rate` bytes per second, and at least `least` bytes.
    fn expect(&mut self, _rate: u64, _least: u64) {}

    /// Handles a measurement of the path while it was idle: it carries `rate` bytes per second, which is far from what it has
    /// carried before. Start-up begins again, with the bytes of two round trips at that rate, and at least `least` bytes.
    fn on_idle_rate(&mut self, _now: Time, _rate: u64, _least: u64) {}

    /// Returns the pace in bytes per second; `None` if it is not known yet, or not limited.
    fn pace(&self) -> Option<f64>;

    /// Returns the bytes that may be in flight. `feedback` is the number of bytes between two answers, which a sender needs in
    /// addition to the capacity of the path.
    fn window(&self, feedback: u64) -> u64;

    /// Returns false if pace and window do not follow the path, so that marks (ECN) are not asked for.
    fn is_adaptive(&self) -> bool {
        true
    }

    /// Returns the share of the slowest pace of a hop below which this law may go.
    fn slowest_share(&self) -> f64 {
        1.0
    }

    /// Returns true until the rate no longer grows by itself.
    fn is_starting(&self) -> bool {
        false
    }

    /// Returns true while little is sent, so that the delay without a queue shows.
    fn is_refreshing(&self) -> bool {
        false
    }

    /// Returns true if packet trains tell this law something.
    fn sends_trains(&self) -> bool {
        false
    }

    /// Returns true while a packet train would tell something.
    fn wants_train(&self) -> bool {
        false
    }

    /// Handles a train that arrived at `rate` bytes per second; `is_spread`: more slowly than it was sent.
    fn on_train(&mut self, _now: Time, _rate: f64, _is_spread: bool) {}

    /// Handles that a train arrived too fast to measure, or that none can be sent.
    fn lift_bound(&mut self) {}

    /// Returns the rate that the path is known not to exceed in start-up, in bytes per second.
    fn shown(&self) -> Option<f64> {
        None
    }
}

/// Returns the law of that name, with `window` bytes that may be in flight before the path is known.
pub(super) fn law(pacing: Pacing, now: Time, window: u64) -> Box<dyn Law> {
    match pacing {
        Pacing::Bottleneck => Box::new(bottleneck::Bottleneck::new(now, window)),
        Pacing::Cubic => Box::new(cubic::Cubic::new(now, window)),
        Pacing::Scavenger => Box::new(scavenger::Scavenger::new(now)),
        Pacing::Unpaced => Box::new(fixed::Fixed::new(now, None)),
        Pacing::Fixed(bits) => Box::new(fixed::Fixed::new(now, Some(bits / 8))),
    }
}
