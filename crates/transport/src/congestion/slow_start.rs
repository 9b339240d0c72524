//! When slow start has filled the path: after HyStart (Ha, Rhee 2011) and HyStart++ (RFC 9406).
//!
//! A round ends with the Data for the segment that was the newest one sent when it began. Two signs
//! tell that the path is full: the shortest of the first round trips of a round is clearly above
//! that of the round before; or Data have come without a pause for half of the shortest round trip,
//! so that the other half was sent meanwhile. Then growth slows to a quarter; if the delay proves a
//! false alarm, slow start goes on, else after two rounds it is over and the window is what it was
//! at the alarm. (RFC 9406 waits for five rounds and keeps the larger window: some three times what
//! the path holds, which a socket's buffer may not.)

use core::time::Duration;

use whimbrel_core::Time;

use super::{Delivered, LawPhase, WindowOptions};

/// Samples of a round that are looked at (RFC 9406 N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Growth is divided by this once the delay has risen (CSS_GROWTH_DIVISOR).
const SLOWER: f64 = 4.0;
/// Rounds of slower growth (CSS_ROUNDS).
const SLOWER_ROUNDS: u32 = 2;
/// Bounds of what counts as a rise, an eighth of the round-trip time in between. RFC 9406 has 4 ms
/// and 16 ms; the lower one here is what a socket buffer of some megabytes adds at several Gbit/s,
/// so that local paths count too.
const LEAST_RISE: Duration = Duration::from_millis(1);
const GREATEST_RISE: Duration = Duration::from_millis(16);
/// Data that are further apart than this, or than an eighth of the round trip, do not come without
/// a pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// A window that grows by slow start up to its threshold: what window-based laws share.
#[derive(Debug)]
pub(super) struct Ramp {
    /// As configured; the window never begins below 1.
    initial: f64,
    delay_exit: bool,
    size: f64,
    threshold: f64,
    slow_start: SlowStart,
    /// The size when the delay was first seen to rise.
    alarmed_at: Option<f64>,
}

impl Ramp {
    /// The threshold never goes below this after a loss in AIMD, or a restart; in segments.
    pub(super) const MIN_THRESHOLD: f64 = 2.0;

    pub(super) fn new(options: WindowOptions) -> Ramp {
        Ramp {
            initial: options.initial,
            delay_exit: options.delay_exit,
            size: options.initial.max(1.0),
            threshold: options.threshold,
            slow_start: SlowStart::default(),
            alarmed_at: None,
        }
    }

    pub(super) const fn size(&self) -> f64 {
        self.size
    }

    pub(super) const fn threshold(&self) -> f64 {
        self.threshold
    }

    pub(super) const fn configured_initial(&self) -> f64 {
        self.initial
    }

    /// The window to begin with.
    pub(super) fn initial(&self) -> f64 {
        self.initial.max(1.0)
    }

    pub(super) fn phase(&self) -> LawPhase {
        if self.size < self.threshold {
            LawPhase::SlowStart
        } else {
            LawPhase::Avoidance
        }
    }

    /// What growth in slow start is divided by.
    pub(super) fn divisor(&self) -> f64 {
        self.slow_start.divisor()
    }

    /// Looks at a round trip; true if it ends slow start.
    pub(super) fn sample(&mut self, delivered: &Delivered) -> bool {
        let Some(rtt) = delivered.rtt.filter(|_| self.delay_exit) else {
            return false;
        };
        if self.phase() != LawPhase::SlowStart {
            return false;
        }
        let (segment, newest) = (delivered.segment, delivered.newest);
        match self.slow_start.sample(delivered.now, rtt, segment, newest) {
            Phase::Growing => self.alarmed_at = None,
            Phase::Cautious => self.alarmed_at = self.alarmed_at.or(Some(self.size)),
            Phase::Over => {
                self.size = self.alarmed_at.take().unwrap_or(self.size).min(self.size);
                self.threshold = self.size;
                return true;
            }
        }
        false
    }

    pub(super) fn grow(&mut self, segments: f64, limit: f64) {
        self.size = (self.size + segments).min(limit.max(1.0));
    }

    /// After a sign of congestion.
    pub(super) fn fall(&mut self, size: f64, threshold: f64) {
        (self.size, self.threshold) = (size.max(1.0), threshold);
        (self.slow_start, self.alarmed_at) = (SlowStart::default(), None);
    }

    /// From the initial window again, up to the threshold known so far.
    pub(super) fn restart(&mut self) {
        self.threshold = self.threshold.min(self.size.max(Ramp::MIN_THRESHOLD));
        self.size = self.initial();
        (self.slow_start, self.alarmed_at) = (SlowStart::default(), None);
    }
}

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
    shortest_ever: Option<Duration>,
    /// Data have come without a pause from the first time to the second.
    train: Option<(Time, Time)>,
    /// While cautious: the shortest round trip when that began, below which it was a false alarm,
    /// and the rounds since.
    cautious: Option<(Duration, u32)>,
}

impl SlowStart {
    /// What growth is divided by.
    pub fn divisor(&self) -> f64 {
        if self.cautious.is_some() { SLOWER } else { 1.0 }
    }

    /// One round trip that ends now, of `segment`; `sent` is the highest segment sent so far.
    pub fn sample(&mut self, now: Time, rtt: Duration, segment: u64, sent: u64) -> Phase {
        self.samples += 1;
        self.shortest_ever = Some(self.shortest_ever.map_or(rtt, |shortest| shortest.min(rtt)));
        self.extend_train(now);
        self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
        if self.samples >= SAMPLES {
            self.judge();
        }
        if segment >= self.round_ends_at {
            self.round_ends_at = sent;
            if self.samples >= SAMPLES {
                self.shortest_before = self.shortest;
            }
            (self.samples, self.shortest, self.train) = (0, None, Some((now, now)));
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

    fn extend_train(&mut self, now: Time) {
        let shortest = self.shortest_ever.unwrap_or_default();
        let Some((from, to)) = &mut self.train else {
            return;
        };
        // A pause ends the train until the next round.
        if now.since(*to) > LONGEST_PAUSE.max(shortest / 8) {
            return;
        }
        *to = now;
        if self.cautious.is_none() && to.since(*from) >= (shortest / 2).max(LEAST_RISE) {
            self.cautious = Some((Duration::ZERO, 0));
        }
    }

    fn judge(&mut self) {
        let (Some(shortest), Some(before)) = (self.shortest, self.shortest_before) else {
            return;
        };
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

    /// Ten segments, as many as are under way, with this round-trip time, `apart` from each other,
    /// after a long pause.
    fn round(slow_start: &mut SlowStart, first: u64, rtt: Duration, apart: Duration) -> Phase {
        let begin = Time::from_secs(first);
        (0..10)
            .map(|n| slow_start.sample(begin + apart * n as u32, rtt, first + n, first + n + 10))
            .last()
            .unwrap()
    }

    #[test]
    fn a_steady_delay_never_ends_it() {
        let mut slow_start = SlowStart::default();
        for first in 0..100 {
            let rtt = 20 * MS + MS * (first % 3) as u32;
            assert_eq!(
                round(&mut slow_start, first * 10, rtt, MS / 10),
                Phase::Growing
            );
        }
    }

    #[test]
    fn a_risen_delay_slows_growth_and_ends_it_after_two_rounds() {
        let mut slow_start = SlowStart::default();
        round(&mut slow_start, 0, 20 * MS, MS / 10);
        round(&mut slow_start, 10, 20 * MS, MS / 10);
        let phases: Vec<Phase> = (2..8)
            .map(|n| round(&mut slow_start, n * 10, 30 * MS, MS / 10))
            .collect();
        assert_eq!(phases[0], Phase::Cautious);
        let over = phases
            .iter()
            .position(|phase| *phase == Phase::Over)
            .unwrap();
        assert!((1..=2).contains(&over), "{phases:?}");
    }

    #[test]
    fn a_false_alarm_lets_it_go_on() {
        let mut slow_start = SlowStart::default();
        round(&mut slow_start, 0, 20 * MS, MS / 10);
        round(&mut slow_start, 10, 20 * MS, MS / 10);
        assert_eq!(
            round(&mut slow_start, 20, 30 * MS, MS / 10),
            Phase::Cautious
        );
        assert_eq!(round(&mut slow_start, 30, 20 * MS, MS / 10), Phase::Growing);
    }

    #[test]
    fn data_without_a_pause_for_half_a_round_trip_end_it() {
        let mut slow_start = SlowStart::default();
        assert_eq!(
            round(&mut slow_start, 0, 20 * MS, MS),
            Phase::Growing,
            "nine milliseconds"
        );
        assert_eq!(
            round(&mut slow_start, 10, 20 * MS, 2 * MS),
            Phase::Cautious,
            "eighteen"
        );
        round(&mut slow_start, 20, 20 * MS, MS);
        assert_eq!(round(&mut slow_start, 30, 20 * MS, MS), Phase::Over);
    }

    #[test]
    fn data_with_pauses_are_no_train() {
        let mut slow_start = SlowStart::default();
        for first in 0..20 {
            assert_eq!(
                round(&mut slow_start, first * 10, 20 * MS, 3 * MS),
                Phase::Growing
            );
        }
    }
}
