//! Real time for machines.

use std::num::NonZeroU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use whimbrel_core::{Time, WallClock};

/// The monotonic clock of one process. Its origin is the moment it was started. Copies share the
/// origin, so that all loops of a process agree about [`Time`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall: WallClock,
}

impl Clock {
    /// Starts a clock whose origin is now.
    pub fn start() -> Clock {
        Clock {
            origin: Instant::now(),
            wall: WallClock::new(unix_millis()),
        }
    }

    /// Returns the time since the origin. It never goes back, whatever happens to the wall clock.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the Unix time of the origin, taken from the system's clock at that moment. Machines
    /// need it to check signed expiry dates.
    pub fn wall_clock(&self) -> WallClock {
        self.wall
    }
}

fn unix_millis() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// Detects that the system's wall clock and its monotonic clock have drifted apart: after a step by
/// NTP or by hand, and after a suspend, in which the monotonic clock stands still.
#[derive(Debug)]
pub(crate) struct WallWatch {
    wall: WallClock,
    next_look: Time,
}

impl WallWatch {
    /// The interval between two comparisons.
    const INTERVAL: Duration = Duration::from_secs(5);
    /// Smaller differences are not reported yet.
    const NOTICED_MS: u64 = 500;

    pub(crate) fn new(clock: &Clock) -> WallWatch {
        WallWatch {
            wall: clock.wall,
            next_look: clock.now() + WallWatch::INTERVAL,
        }
    }

    /// Returns the time of the next comparison.
    pub(crate) fn next_look(&self) -> Time {
        self.next_look
    }

    /// Compares the clocks if that is due. Returns the new wall clock if it was stepped.
    pub(crate) fn look(&mut self, now: Time) -> Option<WallClock> {
        if now < self.next_look {
            return None;
        }
        self.next_look = now + WallWatch::INTERVAL;
        self.compare(now, unix_millis())
    }

    fn compare(&mut self, now: Time, unix_millis: u64) -> Option<WallClock> {
        let shown = self.wall.unix_millis(now);
        let step = unix_millis.wrapping_sub(shown).cast_signed();
        if step.unsigned_abs() < WallWatch::NOTICED_MS {
            return None;
        }
        self.wall = self.wall.shifted(step);
        Some(self.wall)
    }
}

/// Makes this thread's sleeps end on time rather than up to 50 microseconds late (prctl(2),
/// PR_SET_TIMERSLACK). Pacing depends on it.
pub(crate) fn sharpen_timers() {
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        tracing::debug!(%error, "cannot sharpen timers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_wall_clock_is_noticed_once() {
        const UNIX_MS: u64 = 1_800_000_000_000;
        let mut watch = WallWatch {
            wall: WallClock::new(UNIX_MS),
            next_look: Time::ZERO,
        };
        let at = |seconds: u64| (Time::from_secs(seconds), UNIX_MS + seconds * 1_000);
        let (now, unix) = at(10);
        assert_eq!(watch.compare(now, unix + 499), None);
        let ahead = watch.compare(now, unix + 400_000);
        assert_eq!(ahead, Some(WallClock::new(UNIX_MS + 400_000)));
        let (now, unix) = at(20);
        assert_eq!(watch.compare(now, unix + 400_010), None);
        let back = watch.compare(now, unix - 61_000);
        assert_eq!(back, Some(WallClock::new(UNIX_MS - 61_000)));
    }

    #[test]
    fn copies_share_the_origin_and_time_does_not_go_back() {
        let clock = Clock::start();
        let copy = clock;
        let (a, b, c) = (clock.now(), copy.now(), clock.now());
        assert!(a <= b && b <= c, "{a} {b} {c}");
        assert_eq!(clock.wall_clock(), copy.wall_clock());
    }
}
