//! The rate of a fetch over the last seconds. Bytes of an earlier run do not count.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The time over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(5);

/// The bytes received at each time, within the window and once before it.
#[derive(Debug, Default)]
pub(super) struct Pace(VecDeque<(Instant, u64)>);

impl Pace {
    /// Notes the bytes received so far. Returns the rate in bits per second.
    pub(super) fn note(&mut self, now: Instant, received: u64) -> u64 {
        self.0.push_back((now, received));
        while self
            .0
            .get(1)
            .is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW)
        {
            self.0.pop_front();
        }
        let Some((since, before)) = self.0.front() else {
            return 0;
        };
        let seconds = now.duration_since(*since).as_secs_f64();
        if seconds <= 0.0 {
            return 0;
        }
        // The list of a folder stops counting once it is complete, so the bytes can decrease.
        (received.saturating_sub(*before) as f64 * 8.0 / seconds) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_seconds_count() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
        assert_eq!(pace.note(at(0), 0), 0);
        for tenth in 1..=100 {
            pace.note(at(tenth), 100_000 * tenth);
        }
        assert_eq!(pace.note(at(100), 10_000_000), 8_000_000);
        // After half of the window half of the bytes count, and none after all of it.
        assert_eq!(pace.note(at(125), 10_000_000), 4_000_000);
        assert_eq!(pace.note(at(160), 10_000_000), 0);
        assert!(pace.0.len() < 60);
        assert_eq!(pace.note(at(161), 9_000_000), 0);
    }
}
