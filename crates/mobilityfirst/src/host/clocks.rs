//! The clock by which a host signs its records.
//!
//! Records carry the time of their signing and of their end, and routers judge them by their own
//! clocks. A host learns each router's clock from its challenge. Where its own clock agrees with
//! no router's, it signs by that of the first, so that a machine without a battery for its clock
//! can attach before it knows the time.
//!
//! A lying router may thereby get a record that is valid at another time: at most [`MAX_ADOPTED`]
//! away, or at any time until 2056 if the host's clock was never set. The record names that router,
//! which the host is attached to, and higher versions replace it.

use core::time::Duration;
use std::collections::BTreeMap;

use serde::Serialize;
use whimbrel_core::{PortId, Time, WallClock};

/// Clocks agree if they differ by at most this: half of a binding's default lifetime.
pub(super) const MAX_DIFFERENCE: Duration = Duration::from_secs(30);
/// A router's clock is adopted if it differs by at most this.
const MAX_ADOPTED: Duration = Duration::from_secs(86_400);
/// A difference that changes by more than this is a new one; less is the delay of the challenge.
const MAX_JITTER: Duration = Duration::from_secs(5);
/// A clock before this time (2026-01-01) was never set; any router's is better.
pub(super) const EARLIEST_UNIX_MS: u64 = 1_767_225_600_000;
/// A router's clock after this time (2056) is not believed.
const LATEST_UNIX_MS: u64 = EARLIEST_UNIX_MS + 30 * 365 * 86_400_000;

/// The difference between a host's clock and a router's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClockDifference {
    /// Milliseconds by which the router's clock is ahead; negative if it is behind.
    pub router_ahead_ms: i64,
    /// True if the host signs its records by the router's clock.
    pub adopted: bool,
}

/// The host's clock and those of its routers.
#[derive(Debug)]
pub(super) struct Clocks {
    own: WallClock,
    // Milliseconds by which the router's clock is ahead.
    ahead: BTreeMap<PortId, i64>,
}

impl Clocks {
    pub(super) fn new(own: WallClock) -> Clocks {
        Clocks {
            own,
            ahead: BTreeMap::new(),
        }
    }

    /// Notes the time by a router's clock. Returns true if that clock has stepped.
    pub(super) fn note(&mut self, now: Time, port: PortId, unix_ms: u64) -> bool {
        let ahead = unix_ms
            .wrapping_sub(self.own.unix_millis(now))
            .cast_signed();
        let before = self.ahead.insert(port, ahead);
        before.is_some_and(|before| !is_within(ahead.saturating_sub(before), MAX_JITTER))
    }

    /// Replaces the host's clock.
    pub(super) fn set(&mut self, own: WallClock) {
        let step = own.ahead_of(self.own);
        self.own = own;
        for ahead in self.ahead.values_mut() {
            *ahead = ahead.saturating_sub(step);
        }
    }

    /// Returns the difference from the clock of the first of `routers`, if the clock agrees with
    /// none.
    pub(super) fn difference(&self, now: Time, routers: &[PortId]) -> Option<ClockDifference> {
        let known = || routers.iter().filter_map(|port| self.ahead.get(port));
        if known().any(|ahead| is_within(*ahead, MAX_DIFFERENCE)) {
            return None;
        }
        let router_ahead_ms = *known().next()?;
        let own = self.own.unix_millis(now);
        let never_set = own < EARLIEST_UNIX_MS
            && (EARLIEST_UNIX_MS..LATEST_UNIX_MS)
                .contains(&own.saturating_add_signed(router_ahead_ms));
        Some(ClockDifference {
            router_ahead_ms,
            adopted: never_set || is_within(router_ahead_ms, MAX_ADOPTED),
        })
    }

    /// Returns the Unix time in milliseconds by the host's own clock.
    pub(super) fn own_millis(&self, now: Time) -> u64 {
        self.own.unix_millis(now)
    }

    /// Returns the Unix time in milliseconds for a record that is sent to `routers`.
    pub(super) fn unix_millis(&self, now: Time, routers: &[PortId]) -> u64 {
        let adopted = self.difference(now, routers).filter(|it| it.adopted);
        let ahead = adopted.map_or(0, |it| it.router_ahead_ms);
        self.own.shifted(ahead).unix_millis(now)
    }
}

fn is_within(millis: i64, bound: Duration) -> bool {
    u128::from(millis.unsigned_abs()) <= bound.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIX_MS: u64 = 1_800_000_000_000;
    const A: PortId = PortId(1);
    const B: PortId = PortId(2);

    fn at_noon(differences: &[(PortId, i64)]) -> Clocks {
        let mut clocks = Clocks::new(WallClock::new(UNIX_MS));
        for (port, ahead) in differences {
            assert!(!clocks.note(Time::ZERO, *port, UNIX_MS.saturating_add_signed(*ahead)));
        }
        clocks
    }

    #[test]
    fn a_clock_that_agrees_with_one_router_is_right() {
        let clocks = at_noon(&[(A, 400_000), (B, 29_000)]);
        assert_eq!(clocks.difference(Time::ZERO, &[A, B]), None);
        assert_eq!(clocks.unix_millis(Time::ZERO, &[A, B]), UNIX_MS);
        // With A alone, nothing shows that the host's clock is right.
        assert_eq!(clocks.unix_millis(Time::ZERO, &[A]), UNIX_MS + 400_000);
    }

    #[test]
    fn no_router_moves_a_set_clock_by_more_than_a_day() {
        let clocks = at_noon(&[(A, 86_400_001)]);
        let difference = clocks.difference(Time::ZERO, &[A]);
        assert_eq!(difference.map(|it| it.adopted), Some(false));
        assert_eq!(clocks.unix_millis(Time::ZERO, &[A]), UNIX_MS);
        let mut unset = Clocks::new(WallClock::new(0));
        unset.note(Time::ZERO, A, UNIX_MS);
        assert_eq!(unset.unix_millis(Time::ZERO, &[A]), UNIX_MS);
        unset.note(Time::ZERO, A, 2 * UNIX_MS);
        assert_eq!(unset.unix_millis(Time::ZERO, &[A]), 0);
    }

    #[test]
    fn a_step_of_the_own_clock_is_not_one_of_the_routers() {
        let mut clocks = at_noon(&[(A, -61_000)]);
        clocks.set(WallClock::new(UNIX_MS - 61_000));
        assert_eq!(clocks.difference(Time::ZERO, &[A]), None);
        assert!(!clocks.note(Time::ZERO, A, UNIX_MS - 60_000));
        assert!(clocks.note(Time::ZERO, A, UNIX_MS));
    }
}
