//! A model of the bottleneck for paths that jitter and lose, after [BBR].
//!
//! It sends at the rate that the path delivers, probes for more in each eighth round, and drains what that queues. Neither loss
//! nor jitter is a sign of congestion. A queue that stays although the hop sends less than the path delivers belongs to other
//! flows: it is tolerated, and where it overflows the hop sends what gets through on average, so that hops do not overfill it
//! together.

use core::time::Duration;

use whimbrel_core::Time;

use super::estimate::MAX_RATE;
use super::{Answer, Estimate, Law};

/// Rounds between two probes for more bandwidth (version 1 of [BBR]: a cycle of eight phases).
const CRUISE_ROUNDS: u32 = 6;
/// Pace while cruising, slightly above the rate: otherwise a sender that wakes late leaves a gap that nothing fills.
const CRUISE_GAIN: f64 = 1.02;
/// Pace of a probe, by the number of probes before it that found more: a path that is much faster is not approached in steps
/// of a quarter.
const PROBE_GAINS: [f64; 3] = [1.2, 1.5, 2.0];
/// Rounds of cruise left when a probe has been answered.
const JUDGED: u32 = CRUISE_ROUNDS - 2;
/// A probe has found more if the rate grew by this factor.
const FOUND: f64 = 1.1;
/// Pace after a probe, and while a queue drains, as a multiple of the rate at which the path empties it.
const DOWN_GAIN: f64 = 0.85;
/// Pace and growth per round of start-up ([BBR], StartupPacingGain).
const START_GAIN: f64 = 2.77;
/// Start-up ends after this many rounds in which the rate grew by less than a quarter ([BBR], full bandwidth reached).
const FULL_ROUNDS: u32 = 3;
/// Window of start-up once trains have shown the path's rate, as a multiple of what the path holds: the answers come in
/// steps, and the pace keeps the rest of it out of the queue.
const SHOWN_WINDOW: f64 = 1.25;
/// Jitter from which on a packet train shows nothing of the path. Seconds.
const TRAIN_JITTER: f64 = 0.001;
/// Rounds for which a queue is drained before it is taken for another flow's.
const DRAIN_ROUNDS: u32 = 4;
/// Rounds without draining after a queue has proven to be another flow's, doubled each time that it does again.
const PAUSES: (u32, u32) = (8, 64);
/// Windows as multiples of what the path holds, and in a probe (version 1 of [BBR]: cwnd_gain 2).
const WINDOW: f64 = 1.25;
const PROBE_WINDOW: f64 = 2.0;
/// Time with little in flight, beyond two round trips.
const REFRESH_TIME: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Doubles the rate in each round until it no longer grows.
    StartUp,
    /// Sends less until the queue is gone.
    Drain { rounds: u32 },
    /// Sends at the estimated rate.
    Cruise { rounds: u32 },
    /// Sends more for a round.
    Probe,
    /// Sends less for a round, because of what a probe has queued.
    Down,
    /// Sends little, so that the delay without a queue shows.
    Refresh { until: Time },
}

const CRUISE: Phase = Phase::Cruise {
    rounds: CRUISE_ROUNDS,
};

#[derive(Debug)]
pub(super) struct Bottleneck {
    estimate: Estimate,
    phase: Phase,
    // True if the packets that the answers of this round tell of were sent at less than the path's rate.
    was_low: bool,
    start_window: u64,
    // The rate of the path in bytes per second as the last trains showed it, and as the last one did.
    shown: Option<f64>,
    last_shown: Option<f64>,
    // The largest rate in start-up, and rounds without growth.
    plateau: (f64, u32),
    // The rate before the last probe, and the probes in a row that found more.
    before_probe: f64,
    found: usize,
    // True if start-up has found the rate of the path.
    is_full: bool,
    // The rate at which the path empties the queue that is being drained.
    drain_rate: f64,
    // Rounds left in which queues are left to others, and their number after the last one.
    patience: u32,
    pause: u32,
    // The first round after an outage is sent at half the remembered rate.
    resuming: bool,
}

impl Bottleneck {
    pub(super) fn new(now: Time, window: u64) -> Bottleneck {
        Bottleneck {
            estimate: Estimate::new(now),
            phase: Phase::StartUp,
            was_low: false,
            start_window: window,
            shown: None,
            last_shown: None,
            plateau: (0.0, 0),
            before_probe: 0.0,
            found: 0,
            is_full: false,
            drain_rate: 0.0,
            patience: 0,
            pause: 0,
            resuming: false,
        }
    }

    fn end_round(&mut self, now: Time, answer: &Answer) {
        self.resuming = false;
        self.was_low = matches!(self.phase, Phase::Down | Phase::Drain { .. });
        self.patience = self.patience.saturating_sub(1);
        let queue = self.estimate.has_queue() || answer.marked;
        if !matches!(self.phase, Phase::Drain { .. }) {
            // What a queue drops is lost to everybody, so only what has just been delivered counts.
            let rounds = if self.estimate.overflows() { 3 } else { 1 };
            self.estimate.age_rate(rounds);
        }
        self.phase = match self.phase {
            Phase::StartUp => self.judge_growth(answer, queue),
            Phase::Drain { .. } if self.estimate.is_drained() => {
                self.is_full = true;
                self.estimate.lower_rate(self.drain_rate);
                self.estimate.forget_overflow();
                self.pause = 0;
                CRUISE
            }
            Phase::Drain { rounds: 0 } => {
                // It stays although less is sent than the path delivers.
                self.pause = (2 * self.pause).clamp(PAUSES.0, PAUSES.1);
                self.patience = self.pause;
                self.estimate.tolerate_queue();
                match core::mem::replace(&mut self.is_full, true) {
                    true => CRUISE,
                    // The queue that ended start-up was not its own: start-up continues.
                    false => {
                        self.start_window = self.estimate.bandwidth_delay();
                        Phase::StartUp
                    }
                }
            }
            Phase::Drain { rounds } => Phase::Drain { rounds: rounds - 1 },
            Phase::Cruise { .. } | Phase::Down
                if answer.marked || (queue && self.patience == 0) =>
            {
                self.drain()
            }
            Phase::Cruise { rounds: 0 } => self.probe(0),
            Phase::Cruise { rounds } if rounds > JUDGED && self.has_found_more() => {
                self.probe(self.found + 1)
            }
            Phase::Cruise { rounds } => Phase::Cruise { rounds: rounds - 1 },
            Phase::Probe => Phase::Down,
            Phase::Down => CRUISE,
            Phase::Refresh { until } if now >= until => CRUISE,
            phase => phase,
        };
        if self.estimate.is_outdated(now)
            && !matches!(self.phase, Phase::StartUp | Phase::Refresh { .. })
        {
            let rtt = Duration::from_secs_f64(self.estimate.round_trip().unwrap_or(0.0));
            self.phase = Phase::Refresh {
                until: now + rtt * 2 + REFRESH_TIME,
            };
            self.estimate.refresh_delays(now);
        }
    }

    /// Returns the rate of the path: of a queue that overflows, what gets through on average.
    fn rate(&self) -> f64 {
        match self.estimate.overflows_visibly() && !self.is_starting() {
            true => self.estimate.mean().min(self.estimate.bandwidth()),
            false => self.estimate.bandwidth(),
        }
    }

    fn drain(&mut self) -> Phase {
        self.drain_rate = self.estimate.recent().min(self.estimate.bandwidth());
        Phase::Drain {
            rounds: DRAIN_ROUNDS,
        }
    }

    fn probe(&mut self, found: usize) -> Phase {
        self.found = match self.estimate.overflows() {
            true => 0,
            false => found.min(PROBE_GAINS.len() - 1),
        };
        self.before_probe = self.estimate.bandwidth();
        Phase::Probe
    }

    /// Returns true while the window of start-up limits.
    fn is_growing(&self) -> bool {
        self.is_starting() && self.start_window > self.estimate.bandwidth_delay()
    }

    fn has_found_more(&self) -> bool {
        self.before_probe > 0.0 && self.estimate.bandwidth() >= FOUND * self.before_probe
    }

    fn judge_growth(&mut self, answer: &Answer, queue: bool) -> Phase {
        let bandwidth = self.estimate.bandwidth();
        if bandwidth >= self.plateau.0 * 1.25 {
            self.plateau = (bandwidth, 0);
        } else if queue || !answer.limited {
            self.plateau.1 += 1;
            self.is_full |= self.plateau.1 >= FULL_ROUNDS;
            if queue || self.is_full {
                return self.drain();
            }
        }
        Phase::StartUp
    }
}

impl Law for Bottleneck {
    fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    fn estimate_mut(&mut self) -> &mut Estimate {
        &mut self.estimate
    }

    fn on_answer(&mut self, now: Time, answer: &Answer) {
        self.estimate.note(now, answer, self.was_low);
        if self.is_starting() && answer.filled && !self.estimate.has_queue_now() {
            let holds = self.shown().map_or(f64::MAX, |rate| {
                SHOWN_WINDOW * rate * self.estimate.round_trip().unwrap_or(0.0)
            });
            let grown = (self.start_window + answer.acked).min(holds as u64);
            self.start_window = self.start_window.max(grown);
        }
        if answer.round_over {
            self.end_round(now, answer);
        } else if self.phase == Phase::Down && self.estimate.is_prompt() {
            self.phase = CRUISE;
        }
    }

    fn on_outage_over(&mut self, now: Time) {
        self.resuming = self.estimate.bandwidth() > 0.0;
        self.estimate.doubt_rate();
        self.estimate.forget_delays(now);
        if !self.is_starting() {
            self.phase = CRUISE;
        }
    }

    fn pace(&self) -> Option<f64> {
        let bandwidth = self.rate();
        if self.is_starting() && !self.resuming {
            let rtt = self.estimate.round_trip()?;
            let by_window = 1.5 * self.start_window as f64 / rtt;
            let by_window = match bandwidth > 0.0 {
                true => by_window.min(3.0 * bandwidth),
                false => by_window,
            };
            let shown = self.shown().map_or(MAX_RATE, |rate| CRUISE_GAIN * rate);
            return Some((START_GAIN * bandwidth).max(by_window).min(shown));
        }
        if bandwidth <= 0.0 {
            return None;
        }
        let chance = match self.estimate.overflows_visibly() {
            true => 0.0,
            false => self.estimate.chance(),
        };
        let rate = match self.phase {
            _ if self.resuming => 0.5 * bandwidth,
            Phase::StartUp | Phase::Refresh { .. } => bandwidth,
            Phase::Cruise { .. } if self.estimate.overflows() => bandwidth,
            Phase::Cruise { .. } => CRUISE_GAIN * bandwidth,
            Phase::Drain { .. } => DOWN_GAIN * self.drain_rate,
            Phase::Down => DOWN_GAIN * bandwidth,
            Phase::Probe => PROBE_GAINS[self.found] * bandwidth,
        };
        Some((rate / (1.0 - chance)).min(MAX_RATE))
    }

    fn window(&self, feedback: u64) -> u64 {
        if self.is_growing() {
            return self.start_window;
        }
        let bandwidth = self.estimate.bandwidth();
        let (rate, gain) = match self.phase {
            Phase::Refresh { .. } => {
                let time = self.estimate.empty_round_trip().unwrap_or(0.0) + self.estimate.jitter();
                return (0.5 * bandwidth * time) as u64 + feedback;
            }
            Phase::Drain { .. } => (self.drain_rate, 1.0),
            Phase::Probe => (bandwidth, PROBE_WINDOW),
            _ => (bandwidth, WINDOW),
        };
        let time = gain * self.estimate.round_trip().unwrap_or(0.0) + self.estimate.jitter();
        (rate * time) as u64 + 2 * feedback
    }

    fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::StartUp)
    }

    fn is_refreshing(&self) -> bool {
        matches!(self.phase, Phase::Refresh { .. })
    }

    fn sends_trains(&self) -> bool {
        true
    }

    fn wants_train(&self) -> bool {
        self.is_starting()
    }

    fn on_train(&mut self, _: Time, rate: f64, is_spread: bool) {
        // On a path that jitters a train shows the jitter.
        let is_clear = self.estimate.jitter() < TRAIN_JITTER;
        let rate = (is_spread && is_clear).then_some(rate.min(MAX_RATE));
        // A receiver that pauses spreads a train too, so the larger of two in a row counts.
        self.shown = rate.map(|rate| rate.max(self.last_shown.unwrap_or(0.0)));
        self.last_shown = rate;
    }

    fn lift_bound(&mut self) {
        (self.shown, self.last_shown) = (None, None);
    }

    fn shown(&self) -> Option<f64> {
        self.shown.map(|rate| rate.max(self.estimate.bandwidth()))
    }

    fn on_idle_rate(&mut self, now: Time, rate: u64, least: u64) {
        let is_slower = self.estimate.bandwidth() > rate as f64;
        if is_slower {
            self.estimate.lower_rate(rate as f64);
        }
        if is_slower || !self.is_starting() {
            self.estimate.forget_delays(now);
            self.start_window = self.estimate.expected(rate, least);
            (self.phase, self.is_full, self.patience) = (Phase::StartUp, false, 0);
            self.plateau = (self.estimate.bandwidth(), 0);
        }
    }

    fn expect(&mut self, rate: u64, least: u64) {
        let window = self.estimate.expected(rate, least);
        if self.is_starting() && self.estimate.bandwidth() <= 0.0 {
            self.start_window = self.start_window.min(window);
        }
    }
}
