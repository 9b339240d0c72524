//! Jitter: delays that differ from packet to packet, as on links that send in bursts or share the
//! air.

use core::time::Duration;

/// A delay of less than this many mean turns is no sign of a queue.
const TURNS: u32 = 4;
/// Bounds of the longest delay that is taken for jitter. Between them it is the smallest round trip.
/// On slow links answers differ by more, because the packets are far apart.
const MOST: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(30));

/// The mean turn of round trips: if one answer came later than the last and the next one earlier, or
/// the other way round, the smaller of the two differences. A queue grows or drains over many
/// answers, by however much; it seldom turns.
#[derive(Clone, Debug, Default)]
pub(super) struct Jitter {
    last: Option<Duration>,
    has_risen: bool,
    // The difference between the last two round trips.
    difference: Duration,
    // The mean turn, smoothed over 16 answers.
    turn: Duration,
}

impl Jitter {
    /// Notes an answer after `rtt` on a path whose smallest round trip is `least`.
    pub(super) fn note(&mut self, rtt: Duration, least: Duration) {
        let Some(last) = self.last.replace(rtt) else {
            return;
        };
        let (before, has_risen) = (self.difference, rtt > last);
        self.difference = rtt.abs_diff(last);
        let turn = match has_risen == self.has_risen {
            true => Duration::ZERO,
            // One answer alone, however late, hides no queue for long.
            false => before.min(self.difference).min(most(least)),
        };
        self.has_risen = has_risen;
        self.turn = (self.turn * 15 + turn) / 16;
    }

    /// Returns the delay beyond the smallest round trip, `least`, that is no sign of a queue.
    pub(super) fn tolerated(&self, least: Duration) -> Duration {
        (self.turn * TURNS).min(most(least))
    }
}

fn most(least: Duration) -> Duration {
    least.clamp(MOST.0, MOST.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is tolerated on a path of 20 ms after these delays beyond it, milliseconds.
    fn tolerated(delays: impl Iterator<Item = u64>) -> Duration {
        let (mut jitter, least) = (Jitter::default(), Duration::from_millis(20));
        for delay in delays {
            jitter.note(least + Duration::from_millis(delay), least);
        }
        jitter.tolerated(least)
    }

    #[test]
    fn delays_that_change_each_time_are_jitter_and_a_growing_queue_is_not() {
        let changing = tolerated((0..100).map(|answer| answer * 7 % 10));
        assert!(changing > Duration::from_millis(5), "{changing:?}");
        for step in [1, 50] {
            let growing = tolerated((0..100).map(|answer| answer * step));
            assert_eq!(growing, Duration::ZERO);
        }
        let once = tolerated((0..100).map(|answer| u64::from(answer == 90) * 500));
        assert!(once < Duration::from_millis(10), "{once:?}");
        let wild = tolerated((0..100).map(|answer| answer % 2 * 500));
        assert_eq!(wild, Duration::from_millis(20));
    }
}
