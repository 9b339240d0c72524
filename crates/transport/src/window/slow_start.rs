//! When slow start has filled the path: HyStart++ (RFC 9406).
//!
//! A round ends with the Data for the segment that was the newest one sent when it began. If the shortest of the first
//! round trips of a round is clearly above that of the round before, growth slows to a quarter; if that was a false
//! alarm, slow start goes on, else after five rounds it is over.

use core::time::Duration;

/// Samples of a round that are looked at (RFC 9406 N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Growth is divided by this once the delay has risen (CSS_GROWTH_DIVISOR).
const SLOWER: f64 = 4.0;
/// Rounds of slower growth (CSS_ROUNDS).
const SLOWER_ROUNDS: u32 = 5;
/// Bounds of what counts as a rise, an eighth of the round-trip time in between. RFC 9406 has 4 ms and 16 ms; the lower one
/// here is what a socket buffer of some megabytes adds at several Gbit/s, so that local paths count too.
const LEAST_RISE: Duration = Duration::from_millis(1);
const GREATEST_RISE: Duration = Duration::from_millis(16);

/// Whether slow start goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It does.
    Growing,
    /// It does, four times slower.
    Cautious,
    /// It is over.
    Over,
}

/// What is known of the delay during slow start.
#[derive(Clone, Debug, Default)]
pub struct SlowStart {
    round_ends_at: u64,
    samples: u32,
    shortest: Option<Duration>,
    shortest_before: Option<Duration>,
    /// While cautious: the shortest round trip when that began, and the rounds since.
    cautious: Option<(Duration, u32)>,
}

impl SlowStart {
    /// What growth is divided by.
    pub fn divisor(&self) -> f64 {
        if self.cautious.is_some() { SLOWER } else { 1.0 }
    }

    /// One round trip, of `segment`; `sent` is the highest segment sent so far.
    pub fn sample(&mut self, rtt: Duration, segment: u64, sent: u64) -> Phase {
        self.samples += 1;
        self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
        if self.samples >= SAMPLES {
            self.judge();
        }
        if segment >= self.round_ends_at {
            self.round_ends_at = sent;
            if self.samples >= SAMPLES {
                self.shortest_before = self.shortest;
            }
            (self.samples, self.shortest) = (0, None);
            if let Some((_, rounds)) = &mut self.cautious {
                *rounds += 1;
            }
        }
        match self.cautious {
            None => Phase::Growing,
            Some((_, rounds)) if rounds < SLOWER_ROUNDS => Phase::Cautious,
            Some(_) => Phase::Over,
        }
    }

    fn judge(&mut self) {
        let (Some(shortest), Some(before)) = (self.shortest, self.shortest_before) else { return };
        match self.cautious {
            None => {
                let rise = (before / 8).clamp(LEAST_RISE, GREATEST_RISE);
                if shortest >= before + rise {
                    self.cautious = Some((shortest, 0));
                }
            }
            Some((baseline, _)) if shortest < baseline => self.cautious = None,
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Ten segments, as many as are under way, with this round-trip time.
    fn round(slow_start: &mut SlowStart, first: u64, rtt: Duration) -> Phase {
        (first..first + 10).map(|segment| slow_start.sample(rtt, segment, segment + 10)).last().unwrap()
    }

    #[test]
    fn a_steady_delay_never_ends_it() {
        let mut slow_start = SlowStart::default();
        for first in 0..100 {
            assert_eq!(round(&mut slow_start, first * 10, 20 * MS + MS * (first % 3) as u32), Phase::Growing);
        }
    }

    #[test]
    fn a_risen_delay_slows_growth_and_ends_it_after_five_rounds() {
        let mut slow_start = SlowStart::default();
        round(&mut slow_start, 0, 20 * MS);
        round(&mut slow_start, 10, 20 * MS);
        let phases: Vec<Phase> = (2..8).map(|n| round(&mut slow_start, n * 10, 30 * MS)).collect();
        assert_eq!(phases[0], Phase::Cautious);
        let over = phases.iter().position(|phase| *phase == Phase::Over).unwrap();
        assert!((3..=5).contains(&over), "{phases:?}");
    }

    #[test]
    fn a_false_alarm_lets_it_go_on() {
        let mut slow_start = SlowStart::default();
        round(&mut slow_start, 0, 20 * MS);
        round(&mut slow_start, 10, 20 * MS);
        assert_eq!(round(&mut slow_start, 20, 30 * MS), Phase::Cautious);
        assert_eq!(round(&mut slow_start, 30, 20 * MS), Phase::Growing);
    }
}
