//! Real time, as the machines count it.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use whimbrel_core::{Time, WallClock};

/// The monotonic clock of one process. Its origin is the moment it was started; copies share that
/// origin, so that several loops of one process agree about [`Time`].
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall: WallClock,
}

impl Clock {
    /// A clock whose origin is now.
    pub fn start() -> Clock {
        let origin = Instant::now();
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Clock {
            origin,
            wall: WallClock::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// Time since the origin. Never goes back, whatever happens to the wall clock.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// What Unix time the origin was: for machines that check signed expiry dates.
    pub fn wall_clock(&self) -> WallClock {
        self.wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_the_origin_and_time_does_not_go_back() {
        let clock = Clock::start();
        let copy = clock;
        let (a, b, c) = (clock.now(), copy.now(), clock.now());
        assert!(a <= b && b <= c, "{a} {b} {c}");
        assert_eq!(clock.wall_clock(), copy.wall_clock());
    }
}
