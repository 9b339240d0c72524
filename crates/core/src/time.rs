//! Time as every machine sees it: a number that its driver passes in.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// Nanoseconds since the run's origin: the start of the simulation, or the start of the process.
///
/// Arithmetic saturates, so that no peer's claim about time can overflow it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The run's origin.
    pub const ZERO: Time = Time(0);
    /// Later than any time that a run reaches.
    pub const MAX: Time = Time(u64::MAX);

    /// Returns a time `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns a time `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Time {
        Time(millis.saturating_mul(1_000_000))
    }

    /// Returns a time `seconds` seconds after the origin.
    pub const fn from_secs(seconds: u64) -> Time {
        Time(seconds.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Seconds since the origin, for reports and figures.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, later_by: Duration) -> Time {
        Time(self.0.saturating_add(nanos(later_by)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, later_by: Duration) {
        *self = *self + later_by;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, earlier_by: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(earlier_by)))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

/// How a run's [`Time`] relates to Unix time.
///
/// Signed records carry expiry in Unix time so that they mean the same on every machine; a machine
/// that checks them is told once, at construction, what Unix time its origin was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WallClock {
    unix_millis_at_origin: u64,
}

impl WallClock {
    /// A clock whose origin was `unix_millis` milliseconds after the Unix epoch.
    pub const fn new(unix_millis: u64) -> WallClock {
        WallClock {
            unix_millis_at_origin: unix_millis,
        }
    }

    /// Milliseconds since the Unix epoch at `now`.
    pub const fn unix_millis(self, now: Time) -> u64 {
        self.unix_millis_at_origin
            .saturating_add(now.as_nanos() / 1_000_000)
    }

    /// Returns a clock that shows `millis` more; less if that is negative.
    pub const fn shifted(self, millis: i64) -> WallClock {
        WallClock::new(self.unix_millis_at_origin.saturating_add_signed(millis))
    }

    /// Milliseconds by which this clock is ahead of `other`; negative if it is behind.
    pub const fn ahead_of(self, other: WallClock) -> i64 {
        self.unix_millis_at_origin
            .wrapping_sub(other.unix_millis_at_origin)
            .cast_signed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Time::ZERO - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::MAX + Duration::MAX, Time::MAX);
        assert_eq!(Time::from_secs(1).since(Time::from_secs(2)), Duration::ZERO);
    }

    #[test]
    fn shown_with_all_nanoseconds() {
        assert_eq!(Time::from_nanos(1_500_000_001).to_string(), "1.500000001s");
    }
}
