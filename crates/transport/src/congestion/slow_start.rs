//! The end of slow start: after HyStart (Ha, Rhee 2011) and HyStart++ (RFC 9406).
//!
//! A round ends with the Data for the segment that was the newest one sent when it began. Two signs
//! show that the path is full: the shortest of the first round trips of a round is clearly longer
//! than that of the round before; or Data have arrived without a pause for half of the shortest
//! round trip, so that the other half was sent meanwhile. Then growth slows to a quarter. Slow start
//! resumes if the delay proves a false alarm, or if after two rounds Data arrive faster
//! than in the round of the alarm, so that the path is not full ([BBR, Startup]): jitter and links that
//! recover losses bring long trains and late Data, too. Otherwise it ends with the window of
//! the alarm. (RFC 9406 waits for five rounds and keeps the larger window: some three times the
//! path's capacity, which may overflow a socket buffer.)

use core::time::Duration;

use whimbrel_core::Time;

use super::{Delivered, LawPhase, WindowOptions};

/// Samples used per round (RFC 9406 N_RTT_SAMPLE).
const SAMPLES: u32 = 8;
/// Divisor of growth once the delay has risen (CSS_GROWTH_DIVISOR).
const SLOWER: f64 = 4.0;
/// Rounds of slower growth (CSS_ROUNDS).
const SLOWER_ROUNDS: u32 = 2;
/// Growth of the rate at which Data arrive that shows that the path is not full: half of that of the
/// window in a round of slower growth.
const FASTER: f64 = 1.0 + 0.5 / SLOWER;
/// Bounds of the delay increase that counts as a rise, which is an eighth of the round-trip time in
/// between. RFC 9406 has 4 ms and 16 ms; the lower bound here is the delay of a socket buffer of
/// some megabytes at several Gbit/s, so that local paths are detected too.
const MIN_RISE: Duration = Duration::from_millis(1);
const GREATEST_RISE: Duration = Duration::from_millis(16);
/// Data further apart than this, or than an eighth of the round trip, are separated by a pause.
const MAX_PAUSE: Duration = Duration::from_millis(2);

/// A window that grows by slow start up to its threshold: the common part of window-based laws.
#[derive(Clone, Debug)]
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
    /// Minimum of the threshold after a loss in AIMD, or a restart; in segments.
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

    /// Returns the initial window.
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

    /// Divisor of growth in slow start.
    pub(super) fn divisor(&self) -> f64 {
        self.slow_start.divisor()
    }

    /// Evaluates a round trip; returns true if it ends slow start.
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

    /// Reacts to a sign of congestion.
    pub(super) fn fall(&mut self, size: f64, threshold: f64) {
        (self.size, self.threshold) = (size.max(1.0), threshold);
        (self.slow_start, self.alarmed_at) = (SlowStart::default(), None);
    }

    /// Restarts from the initial window, up to the known threshold.
    pub(super) fn restart(&mut self) {
        self.threshold = self.threshold.min(self.size.max(Ramp::MIN_THRESHOLD));
        self.size = self.initial();
        (self.slow_start, self.alarmed_at) = (SlowStart::default(), None);
    }
}

/// The phase of slow start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It continues.
    Growing,
    /// It continues, four times slower.
    Cautious,
    /// It is over.
    Over,
}

/// The measurements of delay during slow start.
#[derive(Clone, Debug, Default)]
pub struct SlowStart {
    round_ends_at: u64,
    samples: u32,
    shortest: Option<Duration>,
    shortest_before: Option<Duration>,
    shortest_ever: Option<Duration>,
    /// Data have arrived without a pause from the first time to the second.
    train: Option<(Time, Time)>,
    round_began: Option<Time>,
    cautious: Option<Cautious>,
}

/// Slow start after an alarm.
#[derive(Clone, Copy, Debug)]
struct Cautious {
    /// The shortest round trip when it began, below which it was a false alarm.
    baseline: Duration,
    rounds: u32,
    /// Data per second in the round of the alarm.
    rate: f64,
}

impl Cautious {
    const fn new(baseline: Duration) -> Cautious {
        Cautious {
            baseline,
            rounds: 0,
            rate: 0.0,
        }
    }
}

impl SlowStart {
    /// Divisor of growth.
    pub fn divisor(&self) -> f64 {
        if self.cautious.is_some() { SLOWER } else { 1.0 }
    }

    /// Evaluates one round trip of `segment` that ends now; `sent` is the highest segment sent so
    /// far.
    pub fn sample(&mut self, now: Time, rtt: Duration, segment: u64, sent: u64) -> Phase {
        self.samples += 1;
        self.shortest_ever = Some(self.shortest_ever.map_or(rtt, |shortest| shortest.min(rtt)));
        self.extend_train(now);
        self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
        if self.samples >= SAMPLES {
            self.judge();
        }
        if segment >= self.round_ends_at {
            self.end_round(now, sent);
        }
        match self.cautious {
            None => Phase::Growing,
            Some(cautious) if cautious.rounds < SLOWER_ROUNDS => Phase::Cautious,
            Some(_) => Phase::Over,
        }
    }

    fn end_round(&mut self, now: Time, sent: u64) {
        let lasted = self
            .round_began
            .map_or(0.0, |began| now.since(began).as_secs_f64());
        let rate = f64::from(self.samples) / lasted;
        self.round_ends_at = sent;
        if self.samples >= SAMPLES {
            self.shortest_before = self.shortest;
        }
        (self.samples, self.shortest, self.train) = (0, None, Some((now, now)));
        self.round_began = Some(now);
        let Some(cautious) = &mut self.cautious else {
            return;
        };
        if cautious.rounds == 0 {
            cautious.rate = rate;
        }
        cautious.rounds += 1;
        if cautious.rounds >= SLOWER_ROUNDS && rate.is_finite() && rate >= cautious.rate * FASTER {
            self.cautious = None;
        }
    }

    fn extend_train(&mut self, now: Time) {
        let shortest = self.shortest_ever.unwrap_or_default();
        let Some((from, to)) = &mut self.train else {
            return;
        };
        // A pause ends the train until the next round.
        if now.since(*to) > MAX_PAUSE.max(shortest / 8) {
            return;
        }
        *to = now;
        if self.cautious.is_none() && to.since(*from) >= (shortest / 2).max(MIN_RISE) {
            self.cautious = Some(Cautious::new(Duration::ZERO));
        }
    }

    fn judge(&mut self) {
        let (Some(shortest), Some(before)) = (self.shortest, self.shortest_before) else {
            return;
        };
        match self.cautious {
            None => {
                let rise = (before / 8).clamp(MIN_RISE, GREATEST_RISE);
                if shortest >= before + rise {
                    self.cautious = Some(Cautious::new(shortest));
                }
            }
            Some(cautious) if shortest < cautious.baseline => self.cautious = None,
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Ten segments, as many as are in flight, with this round-trip time, `apart` from each other,
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
    fn a_train_that_arrives_ever_faster_does_not_end_it() {
        let mut slow_start = SlowStart::default();
        let mut first = 0;
        // Data come without a pause all the time, as jitter spreads them; the windows grow.
        for (round, size) in (1..).zip([10, 20, 40, 50, 63, 79, 99]) {
            let begin = Time::from_millis(100 * round);
            let at = |n: u64| begin + MS * (n * 100 / size) as u32;
            let phases =
                (0..size).map(|n| slow_start.sample(at(n), 100 * MS, first + n, first + n + size));
            let phases: Vec<Phase> = phases.collect();
            assert!(!phases.contains(&Phase::Over), "{size}: {phases:?}");
            first += size;
        }
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
