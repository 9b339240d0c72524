//! The model of the path: its delivery rate, its round trip, and whether a queue stands in it.
//!
//! Loss is not a congestion signal here; a standing queue is. The structure is that of BBR
//! (Cardwell et al., 2016): the largest delivery rate of the last rounds and the smallest round
//! trip; start-up doubles, drains, and then probes gently. Unlike BBR, the pace includes room for
//! the path's random loss, and a queue that stands for a whole round is drained at once.

use core::time::Duration;

use whimbrel_core::Time;

use self::reclaim::Reclaim;
use super::congestion::Answer;
use super::jitter::Jitter;
use super::overflow::LossTest;
use super::pacing::{bytes_in, span};
use super::scavenger::Scavenger;
use super::search::Search;
use super::sharing::{Contest, Verdict, View};

/// Rounds after which a delivery rate no longer counts.
const RATE_ROUNDS: u32 = 10;
/// Rounds between two probes for more bandwidth.
const PROBE_ROUNDS: u32 = 8;
/// The time for which the smallest round trip stays valid without being measured again.
const MIN_RTT_AGE: Duration = Duration::from_secs(10);
/// The same for a scavenger, which measures only queued round trips while other flows send.
const SCAVENGED_RTT_AGE: Duration = Duration::from_secs(120);
/// A queue that stands for this many rounds, although the sender makes room, is taken for a longer
/// path.
const QUEUE_ROUNDS: u32 = 10;
/// Pace in start-up, as a multiple of the estimate, which lags by half a round. BBR's 2.885 (= 2 /
/// ln 2) would fill the buffer for a further round before the queue is noticed.
const START_UP_GAIN: f64 = 2.4;
/// Pace while cruising, slightly above the estimate: otherwise a sender that wakes late leaves a
/// gap that nothing fills. The queue that this builds is noticed, and drained, before it stands for
/// more than some milliseconds.
const CRUISE_GAIN: f64 = 1.03;
/// Pace while a queue overflows that is too short to be seen: each byte beyond the estimate is lost.
const OVERFLOWING_GAIN: f64 = 0.98;
/// Beside a flow that does not answer to losses, the share of them for which this sender makes up. If it
/// made up for all, it would take the link from a BBR flow; for half, it would keep less than a third of
/// the link in a short queue.
const BLUNT_LOSS_ROOM: f64 = 0.75;
/// Rounds after a probe until its packets have been answered.
const PROBE_ANSWERED: u32 = 2;
/// Pace in a test of where losses come from.
const TEST_GAIN: f64 = 0.9;
/// Window of start-up once trains have shown the path's rate, as a multiple of what the path holds:
/// the answers come in steps, and the pace keeps the rest of it out of the queue.
const SHOWN_WINDOW: f64 = 1.25;
/// A train that arrives faster than the estimate by this factor shows that the path is not this
/// sender's alone.
const SHARED: f64 = 1.25;
/// A path's rate above the sender's own by more than this factor is out of date.
const SMALLEST_PART: f64 = 12.0;
/// The time for which a train's rate counts where no competing flow is known.
const TRAIN_AGE: Duration = Duration::from_secs(30);
/// Bound of the rounds that drain a detected queue, and of those that make way for a probe.
const DRAIN_ROUNDS: u32 = 4;
/// In start-up this many late answers in a row show a growing queue; fewer may be jitter.
const LATE_ANSWERS: u32 = 2;
/// Smoothed loss at which start-up has filled a queue, provided that it has seen one.
const OVERFLOW_LOSS: f64 = 0.05;
/// Largest share of the pace that makes up for random loss. Higher loss could be a shallow queue
/// that overflows.
const MAX_LOSS_ROOM: f64 = 0.10;
/// Queueing delay that never counts as a standing queue: timers and batches cause as much.
const QUEUE_SLACK: Duration = Duration::from_millis(2);
/// Lower bound of the round trip by which a window is divided to compute a rate.
const SHORTEST_ROUND: Duration = Duration::from_micros(10);
/// Largest plausible rate, in bytes per second.
const MAX_RATE: f64 = 1e12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Doubles the rate each round, until it no longer grows.
    StartUp,
    /// Drains the queue that start-up built.
    Drain { rounds: u32 },
    /// Sends at the estimated rate.
    Cruise { rounds: u32 },
    /// Sends a little less, so that a probe finds no queue.
    MakeWay { rounds: u32 },
    /// Sends a little more for a round, to find new bandwidth.
    Probe,
    /// Sends a little less for a round, because of the queue that a probe built.
    ProbeDown,
    /// Sends more each round, beside a flow that does not answer to losses.
    Reclaim(Reclaim),
    /// Sends less for some rounds, to see whether losses end.
    LossTest,
    /// Halves the bytes in flight, so that the smallest round trip can be measured.
    Refresh { until: Time },
}

#[derive(Clone, Debug)]
pub(super) struct RateModel {
    phase: Phase,
    // Largest delivery rate of the present and of the previous half window of rounds.
    best: [f64; 2],
    best_age: u32,
    min_rtt: Option<Duration>,
    min_rtt_seen: Time,
    // Smallest round trip of this round and of the last three.
    round_rtt: Duration,
    queued_rounds: u32,
    jitter: Jitter,
    search: Search,
    // Competing flows are there, or were a short time ago.
    is_shared: bool,
    // Rounds left in which a queue that has stood is drained.
    drains: u32,
    // Answers in a row that were late.
    late_answers: u32,
    // In start-up: bytes that may be in flight, however little is known of the rate.
    start_window: u64,
    // In start-up: the path's rate in bytes per second, if packet trains have shown it, and the last
    // one alone.
    shown: Option<f64>,
    spread: Option<f64>,
    // The rate at which the last train arrived; 0 if there was none.
    fastest: f64,
    // The end of that train.
    fastest_seen: Time,
    // The largest bandwidth since these were forgotten.
    most_delivered: f64,
    // True if a queue has been seen in start-up.
    cautious: bool,
    plateau: (f64, u32),
    loss: f64,
    loss_test: LossTest,
    // Bytes of the largest frame.
    frame: usize,
    // The time of two bursts on the path.
    grain: Duration,
    // The next round trip replaces the smallest one, even if it is longer.
    forget_rtt: bool,
    // The first round after an outage is sent at half the remembered rate.
    resuming: bool,
    contest: Contest,
    // Replaces all of the above in a scavenger.
    scavenger: Option<Scavenger>,
}

impl RateModel {
    /// Starts a model with `start_window` bytes that may be in flight before the path is known.
    pub(super) fn new(now: Time, start_window: u64) -> RateModel {
        RateModel {
            phase: Phase::StartUp,
            best: [0.0; 2],
            best_age: 0,
            min_rtt: None,
            min_rtt_seen: now,
            round_rtt: Duration::MAX,
            queued_rounds: 0,
            jitter: Jitter::default(),
            search: Search::default(),
            is_shared: false,
            drains: 0,
            late_answers: 0,
            start_window,
            shown: None,
            spread: None,
            fastest: 0.0,
            fastest_seen: now,
            most_delivered: 0.0,
            cautious: false,
            plateau: (0.0, 0),
            loss: 0.0,
            loss_test: LossTest::new(),
            frame: 1_400,
            grain: Duration::ZERO,
            forget_rtt: false,
            resuming: false,
            contest: Contest::new(now),
            scavenger: None,
        }
    }

    /// Starts the model of a scavenger.
    pub(super) fn scavenging(now: Time) -> RateModel {
        RateModel {
            phase: Phase::Cruise {
                rounds: PROBE_ROUNDS,
            },
            scavenger: Some(Scavenger::new()),
            ..RateModel::new(now, 0)
        }
    }

    /// Returns the estimated delivery rate in bytes per second; 0 before the first estimate.
    pub(super) fn bandwidth(&self) -> f64 {
        self.best[0].max(self.best[1])
    }

    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    pub(super) fn loss(&self) -> f64 {
        self.loss
    }

    /// Returns true until the rate no longer grows by itself.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::StartUp)
    }

    /// Notes that a packet train arrived at `rate` bytes per second. If the path spread it, that is
    /// the path's rate, and start-up grows to it and no further. The larger of two in a row counts:
    /// a receiver that pauses spreads a train too.
    pub(super) fn note_train(&mut self, now: Time, rate: f64, is_spread: bool) {
        let rate = rate.min(MAX_RATE);
        let before = core::mem::replace(&mut self.spread, is_spread.then_some(rate));
        self.shown = self.spread.map(|rate| rate.max(before.unwrap_or(0.0)));
        (self.fastest, self.fastest_seen) = (rate, now);
    }

    /// Lifts the bound of start-up: a packet train arrived too fast to measure, or none can be sent.
    pub(super) fn lift_bound(&mut self) {
        (self.shown, self.spread) = (None, None);
    }

    /// Forgets what trains and tests have shown: the path may be another one.
    pub(super) fn forget_path(&mut self) {
        self.lift_bound();
        (self.fastest, self.most_delivered) = (0.0, self.bandwidth());
        self.loss_test = LossTest::new();
        (self.jitter, self.search) = (Jitter::default(), Search::default());
    }

    /// Returns true while a packet train would tell something: in start-up, and in a probe for
    /// bandwidth if the last train was faster than the estimate, so that the path is shared or has
    /// become slower.
    pub(super) fn wants_train(&self) -> bool {
        match self.phase {
            Phase::StartUp => true,
            Phase::Probe => self.fastest > SHARED * self.bandwidth(),
            _ => false,
        }
    }

    /// Returns the rate that the path is known not to exceed in start-up, if any.
    pub(super) fn shown(&self) -> Option<f64> {
        self.shown.map(|rate| rate.max(self.bandwidth()))
    }

    /// Prepares for a path that is known to be slow before it has carried a chunk: start-up begins
    /// with the bytes of two round trips at `rate`, and at least `least` bytes.
    pub(super) fn expect(&mut self, rate: u64, least: u64) {
        if self.is_starting() && self.bandwidth() <= 0.0 {
            let holds = bytes_in(self.min_rtt.unwrap_or_default(), rate);
            self.start_window = self.start_window.min((2 * holds).max(least));
        }
    }

    /// Returns true while little is sent, so that the smallest round trip shows.
    pub(super) fn is_refreshing(&self) -> bool {
        matches!(self.phase, Phase::Refresh { .. })
    }

    /// Returns the bytes that may be in flight during a trial of whether a queue is another's.
    pub(super) fn trial_window(&self) -> Option<u64> {
        self.contest.trial_window()
    }

    /// Returns the bandwidth-delay product, in bytes.
    pub(super) fn bandwidth_delay(&self) -> u64 {
        bytes_in(self.min_rtt.unwrap_or_default(), self.bandwidth() as u64)
    }

    /// Returns the sending rate in bytes per second, or `None` before the first round trip is
    /// known.
    pub(super) fn pace(&self) -> Option<f64> {
        if let Some(scavenger) = &self.scavenger {
            return scavenger.pace();
        }
        let bandwidth = self.bandwidth();
        if self.is_growing() && !self.resuming {
            // The pace is a little above the window per round trip, so that the window limits, and
            // no half of a round is a burst.
            let rtt = self.min_rtt?.max(SHORTEST_ROUND).as_secs_f64();
            let by_window = 1.5 * self.start_window as f64 / rtt;
            // After rounds with an unfilled window, the pace by window would be one burst.
            let by_window = match bandwidth > 0.0 {
                true => by_window.min(1.5 * 2.0 * bandwidth),
                false => by_window,
            };
            let pace = (START_UP_GAIN * bandwidth).max(by_window).min(MAX_RATE);
            let shown = self.shown().map_or(MAX_RATE, |rate| CRUISE_GAIN * rate);
            return Some(pace.min(shown));
        }
        if bandwidth <= 0.0 {
            return None;
        }
        if let Some(pace) = self.contest.pace() {
            return Some(pace.min(MAX_RATE));
        }
        let gain = match self.phase {
            _ if self.resuming => 0.5,
            Phase::StartUp => 1.0,
            Phase::Drain { .. } => 0.6,
            Phase::ProbeDown if self.contest.is_blunt() => 0.75,
            Phase::ProbeDown => 0.8,
            Phase::Probe if self.contest.is_blunt() => 1.25,
            Phase::Probe => self.search.gain(),
            Phase::MakeWay { .. } => 0.9,
            Phase::Cruise { .. } if self.drains > 0 => 0.9,
            Phase::Cruise { .. } if self.contest.is_blunt() => 1.0,
            Phase::Cruise { .. } if self.loss_test.overflows() => OVERFLOWING_GAIN,
            Phase::Cruise { .. } => CRUISE_GAIN,
            Phase::Reclaim(_) => Reclaim::GAIN,
            Phase::LossTest => TEST_GAIN,
            Phase::Refresh { .. } => 1.0,
        };
        let room = if self.contest.is_blunt() {
            BLUNT_LOSS_ROOM * self.contest.loss().min(MAX_LOSS_ROOM)
        } else if self.queued_rounds == 0 && self.phase != Phase::LossTest {
            self.loss_test.by_chance(self.loss).min(MAX_LOSS_ROOM)
        } else {
            0.0
        };
        Some((gain * bandwidth / (1.0 - room)).min(MAX_RATE))
    }

    /// Returns the maximum of bytes sent beyond the newest answered CSYN. `feedback` is the number
    /// of bytes between two answers, which a sender needs in addition to the capacity of the path.
    pub(super) fn inflight_cap(&self, feedback: u64) -> u64 {
        if let Some(scavenger) = &self.scavenger {
            return scavenger.window() + feedback;
        }
        let full = self.bandwidth_delay() as f64;
        if self.is_growing() {
            return self.start_window;
        }
        if let Some(window) = self.contest.cap() {
            return window + feedback;
        }
        let share = match self.phase {
            Phase::StartUp | Phase::Drain { .. } => 1.25,
            Phase::ProbeDown | Phase::MakeWay { .. } | Phase::LossTest => 1.25,
            Phase::Probe => 2.0,
            Phase::Reclaim(_) => Reclaim::FLIGHT,
            Phase::Cruise { .. } if self.queued_rounds > 0 => 1.0,
            Phase::Cruise { .. } if self.contest.is_blunt() => 2.0,
            Phase::Cruise { .. } => 1.5,
            Phase::Refresh { .. } => 0.5,
        };
        let extra = if matches!(self.phase, Phase::Refresh { .. }) {
            feedback
        } else {
            2 * feedback
        };
        (full * share) as u64 + extra
    }

    /// Resumes after an outage. The remembered rate may be wrong now, so it is approached with care
    /// and forgotten soon if it is not reached again.
    pub(super) fn resume(&mut self) {
        self.resuming = self.bandwidth() > 0.0;
        self.best = [0.0, self.bandwidth()];
        self.best_age = 0;
        self.forget_path();
        self.forget_rtt = true;
        self.round_rtt = Duration::MAX;
        self.queued_rounds = 0;
        self.contest.forget();
        if let Some(scavenger) = &mut self.scavenger {
            scavenger.restart();
        }
        if !matches!(self.phase, Phase::StartUp) {
            self.phase = Phase::Cruise {
                rounds: PROBE_ROUNDS,
            };
        }
    }

    /// Sets the bytes of the sender's bursts and of its largest frame.
    pub(super) fn set_burst(&mut self, bytes: u64, frame: usize) {
        self.contest.set_packet(frame);
        self.frame = frame.max(1);
        if let Some(scavenger) = &mut self.scavenger {
            scavenger.set_packet(frame);
        }
        // Beside other flows this sender's rate is a part of the path's; a very small one is that of a
        // path that has become slow since the train.
        let rate = match self.fastest > SMALLEST_PART * self.bandwidth() {
            true => self.bandwidth(),
            false => self.bandwidth().max(self.fastest),
        };
        self.grain = if self.bandwidth() > 0.0 {
            span(2 * bytes, rate as u64)
        } else {
            Duration::ZERO
        };
    }

    /// Handles a round trip that was measured without a delivery rate (in the HELLO exchange).
    pub(super) fn round_trip(&mut self, now: Time, rtt: Duration) {
        let forget = core::mem::take(&mut self.forget_rtt);
        let known = self.min_rtt.filter(|_| !forget).unwrap_or(Duration::MAX);
        if rtt <= known {
            self.min_rtt = Some(rtt);
        }
        // A value close to the smallest one confirms it: there is no queue.
        if rtt <= known.saturating_add(known.min(Duration::from_secs(60)) / 16) {
            self.min_rtt_seen = now;
        }
        self.round_rtt = self.round_rtt.min(rtt);
    }

    pub(super) fn sample(&mut self, now: Time, sample: &Answer) {
        self.round_trip(now, sample.rtt);
        let least = self.min_rtt.unwrap_or(sample.rtt);
        self.jitter.note(sample.rtt, least);
        self.late_answers = if sample.marked {
            LATE_ANSWERS
        } else if self.is_late(sample.rtt) {
            self.late_answers.saturating_add(1)
        } else {
            0
        };
        if self.is_starting() && self.late_answers == 0 && sample.filled {
            let more = if self.cautious {
                sample.acked / 4
            } else {
                sample.acked
            };
            let holds = self.shown().map_or(u64::MAX, |rate| {
                let window = (SHOWN_WINDOW * rate) as u64;
                bytes_in(self.min_rtt.unwrap_or_default(), window)
            });
            let grown = self.start_window.saturating_add(more).min(holds);
            self.start_window = self.start_window.max(grown);
        } else if self.is_overshooting() && self.bandwidth() > 0.0 {
            // The delay may have been jitter: growth continues more slowly, from the known capacity
            // of the path.
            self.cautious = true;
            self.start_window = self.start_window.min(self.bandwidth_delay());
        }
        if let Some(delivery) = sample.delivery.map(|rate| rate.min(MAX_RATE)) {
            // The first estimate must not come from the first few packets.
            if !sample.limited || (self.bandwidth() > 0.0 && delivery > self.bandwidth()) {
                self.best[0] = self.best[0].max(delivery);
                self.most_delivered = self.most_delivered.max(delivery);
            }
            // Losses while a queue stands may be caused by that queue.
            if !self.is_late(sample.rtt) && self.phase != Phase::LossTest {
                self.loss += (sample.loss.clamp(0.0, 1.0) - self.loss) / 32.0;
            }
        }
        if sample.round_over {
            self.end_round(now, sample);
        }
        self.leave_phase(now, sample);
        self.share(now, sample);
    }

    /// Looks for competing flows in the queue; while there are some, the contest's window rules.
    fn share(&mut self, now: Time, sample: &Answer) {
        let Some(base) = self.min_rtt.filter(|_| !self.is_starting()) else {
            return;
        };
        if let Some(scavenger) = &mut self.scavenger {
            let times = (sample.rtt, base, self.grain);
            scavenger.sample(times, sample);
            return;
        }
        let verdict = self.contest.sample(&View {
            now,
            rtt: sample.rtt,
            base,
            slack: self.own_slack(base),
            acked: sample.acked,
            delivery: sample.delivery,
            loss: sample.loss,
            random_loss: self.loss,
            marked: sample.marked,
            limited: sample.limited,
            round_over: sample.round_over,
            queued_rounds: self.queued_rounds,
            bandwidth: self.bandwidth(),
        });
        match verdict {
            Verdict::None => return,
            Verdict::Beside => {
                // It was delivered before, and half of it is a fair share beside one flow.
                let share = self.fastest.min(self.most_delivered) / 2.0;
                self.best[0] = self.best[0].max(share);
                self.phase = Phase::Reclaim(Reclaim::new(self.bandwidth()));
                return;
            }
            Verdict::Alone => {}
            Verdict::Longer(rtt) => self.min_rtt = Some(rtt),
        }
        self.min_rtt_seen = now;
        self.queued_rounds = 0;
        self.phase = Phase::Cruise {
            rounds: PROBE_ROUNDS,
        };
    }

    fn end_round(&mut self, now: Time, sample: &Answer) {
        self.is_shared = self.contest.is_on() || self.contest.is_remembered(now);
        self.resuming = false;
        let queue = self.has_queue() && !self.contest.is_blunt();
        self.queued_rounds = if queue { self.queued_rounds + 1 } else { 0 };
        self.drains = match (queue, self.is_drained()) {
            (true, _) => DRAIN_ROUNDS,
            (false, true) => 0,
            (false, false) => self.drains.saturating_sub(1),
        };
        self.round_rtt = Duration::MAX;
        // A queue that outlives two rounds shows that the remembered rate is too high, so it ages
        // three times as fast.
        self.best_age += match self.phase {
            Phase::LossTest => 0,
            _ if self.queued_rounds > 2 => 3,
            _ => 1,
        };
        if self.best_age >= RATE_ROUNDS / 2 && self.best[0] > 0.0 {
            self.best = [0.0, self.best[0]];
            self.best_age = 0;
        }
        // Rounds with fewer packets than the path carries, or with a queue, say nothing of losses.
        let is_measured = !queue && !sample.limited && sample.measured > 0;
        let packets = sample.measured as f64 / self.frame as f64;
        let lost = packets * sample.loss;
        if is_measured && matches!(self.phase, Phase::Cruise { .. }) {
            self.loss_test.cruise(packets, lost);
        }
        self.search.round(packets, lost);
        let (overflows, bandwidth) = (self.overflows(), self.bandwidth());
        match &mut self.phase {
            // A sender that gets its chunks as fast as the path carries them is always limited, and
            // each of its bursts overflows the path's queue.
            Phase::StartUp if queue || !sample.limited || overflows => self.judge_growth(queue),
            Phase::Cruise { rounds } => {
                *rounds = rounds.saturating_sub(1);
                if *rounds == PROBE_ROUNDS - PROBE_ANSWERED {
                    let by_chance = self.loss_test.by_chance(self.loss);
                    let most = self.most_delivered;
                    let more = self.search.judge(bandwidth, most, by_chance);
                    if self.is_shared {
                        self.search = Search::default();
                    } else if more {
                        *rounds = 0;
                    }
                }
            }
            Phase::Drain { rounds } | Phase::MakeWay { rounds } => {
                *rounds = rounds.saturating_sub(1);
            }
            Phase::Probe => self.phase = Phase::ProbeDown,
            Phase::ProbeDown => {
                self.phase = Phase::Cruise {
                    rounds: PROBE_ROUNDS,
                }
            }
            Phase::Reclaim(reclaim) => {
                if reclaim.ends(bandwidth, sample.loss) || !self.contest.is_blunt() {
                    self.phase = Phase::Cruise {
                        rounds: PROBE_ROUNDS,
                    };
                }
            }
            Phase::LossTest => {
                let is_void = !is_measured || self.contest.is_on();
                if is_void || self.loss_test.ends(packets, lost) {
                    self.phase = Phase::MakeWay {
                        rounds: DRAIN_ROUNDS,
                    };
                }
            }
            Phase::StartUp | Phase::Refresh { .. } => {}
        }
        // A path that has become too slow for trains is not measured again.
        if now.since(self.fastest_seen) > TRAIN_AGE && !self.contest.is_on() {
            self.fastest = 0.0;
        }
        let age = now.since(self.min_rtt_seen);
        if self.scavenger.is_some() {
            // A hop that took the queue of competing flows for a longer path would add to it.
            self.forget_rtt |= age >= SCAVENGED_RTT_AGE;
            return;
        }
        let outdated = age >= MIN_RTT_AGE || self.queued_rounds >= QUEUE_ROUNDS;
        if outdated && !matches!(self.phase, Phase::StartUp) && !self.contest.is_on() {
            self.begin_refresh(now);
        }
    }

    /// Returns true if start-up has seen a queue, and losses that are hardly random.
    fn overflows(&self) -> bool {
        self.cautious && self.loss > OVERFLOW_LOSS
    }

    /// Returns true while the window of start-up limits: until a rate is known at which the growing
    /// queue can drain.
    fn is_growing(&self) -> bool {
        self.is_starting() && (!self.is_overshooting() || self.bandwidth() <= 0.0)
    }

    /// Returns true if a queue grows in start-up. The end of start-up is decided at the end of the
    /// round. Until then no more is sent than the path carries; otherwise a round trip's worth
    /// would meet a full queue.
    fn is_overshooting(&self) -> bool {
        self.late_answers >= LATE_ANSWERS
    }

    fn judge_growth(&mut self, queue: bool) {
        let bandwidth = self.bandwidth();
        if bandwidth >= self.plateau.0 * 1.25 {
            self.plateau = (bandwidth, 0);
            return;
        }
        self.plateau.1 += 1;
        if self.plateau.1 >= if queue { 1 } else { 3 } {
            self.phase = Phase::Drain { rounds: 3 };
        }
    }

    fn begin_refresh(&mut self, now: Time) {
        let rtt = self.min_rtt.unwrap_or_default();
        self.phase = Phase::Refresh {
            until: now + rtt * 2 + Duration::from_millis(20),
        };
        self.forget_rtt = true;
        self.queued_rounds = 0;
        self.min_rtt_seen = now;
    }

    fn leave_phase(&mut self, now: Time, sample: &Answer) {
        let drained = !self.is_late(sample.rtt);
        let prompt = self.contest.is_blunt() || self.is_prompt(sample.rtt);
        self.phase = match self.phase {
            Phase::Drain { rounds } if rounds == 0 || drained => Phase::Cruise {
                rounds: PROBE_ROUNDS,
            },
            Phase::Cruise { rounds: 0 }
                if self.drains == 0
                    && !self.contest.is_on()
                    && self.scavenger.is_none()
                    && self.loss_test.begins(self.loss) =>
            {
                Phase::LossTest
            }
            Phase::Cruise { rounds: 0 } if self.drains == 0 => Phase::MakeWay {
                rounds: DRAIN_ROUNDS,
            },
            Phase::MakeWay { rounds } if rounds == 0 || prompt => {
                self.search.begin(self.bandwidth());
                Phase::Probe
            }
            Phase::ProbeDown if drained => Phase::Cruise {
                rounds: PROBE_ROUNDS,
            },
            Phase::Refresh { until } if now >= until => Phase::Cruise {
                rounds: PROBE_ROUNDS,
            },
            phase => phase,
        };
    }
}

mod law;
mod queue;
mod reclaim;
#[cfg(test)]
mod tests;
