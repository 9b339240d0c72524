//! What answers show of a path: its delivery rate, its delay without a queue, its queue, and its random loss.
//!
//! The rate is the largest of the last rounds, as in BBR ([BBR]). Delays are one-way, by the neighbour's clock,
//! so that neither a queue nor jitter on the way back counts. Jitter makes single delays meaningless, so a queue is judged by
//! the mean delay of a round, beyond what the delays differ by from one answer to the next: a queue grows and drains over many
//! answers, and turns once.

use core::time::Duration;

use whimbrel_core::Time;

use crate::hop::pacing::bytes_in;

/// Rounds after which a delivery rate no longer counts ([BBR], MaxBwFilterLen).
const RATE_ROUNDS: u32 = 10;
/// Time after which a delay without a queue no longer counts ([BBR], MinRTTFilterLen).
const DELAY_AGE: Duration = Duration::from_secs(10);
/// A delay that always counts as none: timers and batches cause as much. Seconds.
const LEAST_SLACK: f64 = 0.002;
/// A queue of this share of the round trip is none either.
const SLACK_SHARE: f64 = 1.0 / 8.0;
/// Mean turns by which a round's mean delay may exceed the least one.
const TURNS: f64 = 5.0;
/// Turns over which the mean is taken.
const RECENT_TURNS: usize = 16;
/// Answers whose mean is worth something, however much they differ.
const ENOUGH_ANSWERS: f64 = 8.0;
/// Loss that shows an overflowing queue: this multiple of what is lost by chance, and this share ([BBR] section 2.7:
/// LossThresh).
const OVERFLOW: (f64, f64) = (1.5, 0.02);
/// Packets over which random loss is averaged.
const LOSS_PACKETS: f64 = 512.0;
/// More than this is not taken for random loss.
const MAX_CHANCE: f64 = 0.25;
/// Answers whose mean delay shows a queue before the round is over.
const LATE_ANSWERS: f64 = 4.0;
/// Largest plausible rate, in bytes per second.
pub(super) const MAX_RATE: f64 = 1e12;

/// The measurements of one answered CSYN.
#[derive(Clone, Copy, Debug)]
pub(in crate::hop) struct Answer {
    pub(in crate::hop) rtt: Duration,
    /// The neighbour's clock at arrival less this node's at sending, in nanoseconds: the one-way delay and a constant.
    pub(in crate::hop) one_way: i64,
    /// Bytes that are no longer in flight.
    pub(in crate::hop) acked: u64,
    /// True if there was always something to send since these were sent.
    pub(in crate::hop) filled: bool,
    /// Bytes per second at which the neighbour received, over at least one round trip.
    pub(in crate::hop) delivery: Option<f64>,
    /// Bytes sent over that time; 0 if there is no rate.
    pub(in crate::hop) measured: u64,
    /// Share of these that were lost.
    pub(in crate::hop) loss: f64,
    /// True if the sender had nothing to send, or no window, during that time.
    pub(in crate::hop) limited: bool,
    /// True if a CSYN that was sent after the start of the last round has been answered.
    pub(in crate::hop) round_over: bool,
    /// True if a queue on the path has marked frames (ECN) since the answer before.
    pub(in crate::hop) marked: bool,
}

/// The largest value of the last [`DELAY_AGE`], forgotten in two halves.
#[derive(Clone, Copy, Debug)]
struct RecentPeak {
    halves: [f64; 2],
    since: Time,
}

impl RecentPeak {
    fn new(now: Time) -> RecentPeak {
        RecentPeak {
            halves: [0.0; 2],
            since: now,
        }
    }

    fn note(&mut self, now: Time, value: f64) {
        if now.since(self.since) > DELAY_AGE / 2 {
            self.halves = [value, self.halves[0]];
            self.since = now;
        }
        self.halves[0] = self.halves[0].max(value);
    }

    fn get(&self) -> f64 {
        self.halves[0].max(self.halves[1])
    }
}

/// Sums over the answers of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    answers: f64,
    // Seconds.
    one_way: f64,
    rtt: f64,
}

#[derive(Clone, Debug)]
pub(in crate::hop) struct Estimate {
    // Largest delivery rates of the present and of the previous half window of rounds.
    best: [f64; 2],
    best_age: u32,
    // The delivery rate of the last round, and the mean of some.
    recent: f64,
    mean: f64,
    min_rtt: Option<Duration>,
    min_rtt_seen: Time,
    // Least mean delays of rounds, one-way and round trips: since the last refresh, and between the two before. Seconds.
    bases: [Option<(f64, f64)>; 3],
    // What another flow's queue adds to both.
    tolerated: (f64, f64),
    // The mean turn, in seconds.
    turn: RecentPeak,
    round: Round,
    // Mean delay and round trip of the last round.
    last_round: (f64, f64),
    last_delay: Option<f64>,
    // The difference between the last two delays, and the last turns.
    difference: f64,
    turns: [f64; RECENT_TURNS],
    turns_seen: usize,
    // The mean delay of the last round beyond the least one. Seconds.
    queue: f64,
    // The time at which a round had next to no queue.
    empty_at: Time,
    // Smoothed share lost in all, and in rounds that sent less than the path carries.
    loss: f64,
    chance: f64,
    chance_packets: f64,
    frame: usize,
    // Seconds that two bursts take on the path.
    grain: f64,
}

impl Estimate {
    pub(super) fn new(now: Time) -> Estimate {
        Estimate {
            best: [0.0; 2],
            best_age: 0,
            recent: 0.0,
            mean: 0.0,
            min_rtt: None,
            min_rtt_seen: now,
            bases: [None; 3],
            tolerated: (0.0, 0.0),
            turn: RecentPeak::new(now),
            round: Round::default(),
            last_round: (0.0, 0.0),
            last_delay: None,
            difference: 0.0,
            turns: [0.0; RECENT_TURNS],
            turns_seen: 0,
            queue: 0.0,
            empty_at: now,
            loss: 0.0,
            chance: 0.0,
            chance_packets: 128.0,
            frame: 1_400,
            grain: 0.0,
        }
    }

    /// Returns the delivery rate in bytes per second; 0 before the first estimate.
    pub(in crate::hop) fn bandwidth(&self) -> f64 {
        self.best[0].max(self.best[1])
    }

    /// Returns the delivery rate of the last round in bytes per second.
    pub(super) fn recent(&self) -> f64 {
        self.recent
    }

    /// Returns the mean delivery rate of the last rounds in bytes per second.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// Returns the smallest round trip of the last seconds.
    pub(in crate::hop) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    /// Returns the share of the sent bytes that is lost.
    pub(in crate::hop) fn loss(&self) -> f64 {
        self.loss
    }

    /// Returns the share that is lost although the path carries more than is sent.
    pub(super) fn chance(&self) -> f64 {
        self.chance.min(MAX_CHANCE)
    }

    /// Returns true if more is lost than by chance: a queue drops it.
    pub(super) fn overflows(&self) -> bool {
        self.loss > OVERFLOW.0 * self.chance() + OVERFLOW.1
    }

    /// Returns true if a queue that shows drops packets.
    pub(super) fn overflows_visibly(&self) -> bool {
        self.overflows() && (self.tolerates() || self.has_queue())
    }

    /// Returns the mean round trip without a queue of this hop, in seconds: the time for which bytes are in flight.
    pub(super) fn round_trip(&self) -> Option<f64> {
        self.empty_round_trip().map(|it| it + self.tolerated.1)
    }

    /// Returns the mean round trip without any queue, in seconds.
    pub(super) fn empty_round_trip(&self) -> Option<f64> {
        let least = self.min_rtt.map(|it| it.as_secs_f64());
        let base = self.base().map(|(_, rtt)| rtt).or(least);
        base.map(|it| it.max(1e-5))
    }

    /// Returns true if part of the queue is taken for another flow's.
    pub(super) fn tolerates(&self) -> bool {
        self.tolerated.0 > 2.0 * self.jitter()
    }

    /// Returns the least delay and the least round trip of the last spans between refreshes.
    fn base(&self) -> Option<(f64, f64)> {
        let least = |one: (f64, f64), other: (f64, f64)| (one.0.min(other.0), one.1.min(other.1));
        self.bases.into_iter().flatten().reduce(least)
    }

    /// Returns the least one-way delay, with what is tolerated.
    fn least_delay(&self) -> Option<f64> {
        self.base().map(|(delay, _)| delay + self.tolerated.0)
    }

    /// Returns the mean of the last turns but the largest quarter: a burst or a queue that empties turns once, jitter often.
    fn mean_turn(&self) -> f64 {
        let mut turns = self.turns;
        let seen = &mut turns[..self.turns_seen.min(RECENT_TURNS)];
        seen.sort_unstable_by(f64::total_cmp);
        let kept = 3 * seen.len() / 4;
        seen[..kept].iter().sum::<f64>() / kept.max(1) as f64
    }

    /// Returns the seconds by which the delays of packets differ, without a queue.
    pub(super) fn jitter(&self) -> f64 {
        let jitter = TURNS * self.turn.get();
        // Beyond a round trip it is no jitter.
        jitter.min(self.round_trip().unwrap_or(0.0).max(0.02))
    }

    /// Returns the bytes that the path holds without a queue.
    pub(in crate::hop) fn bandwidth_delay(&self) -> u64 {
        (self.bandwidth() * self.round_trip().unwrap_or(0.0)) as u64
    }

    /// Returns the bytes of two round trips at `rate` bytes per second, and at least `least`.
    pub(super) fn expected(&self, rate: u64, least: u64) -> u64 {
        let holds = bytes_in(self.min_rtt.unwrap_or_default(), rate);
        (2 * holds).max(least)
    }

    /// Returns the delay that the sender's bursts and timers explain.
    fn own_slack(&self) -> f64 {
        let share = SLACK_SHARE * self.round_trip().unwrap_or(0.0);
        share.max(LEAST_SLACK).max(self.grain)
    }

    /// Returns the delay beyond the least one that shows no queue, in seconds.
    pub(super) fn slack(&self) -> f64 {
        self.own_slack().max(self.jitter())
    }

    /// Returns the answers whose mean delay is worth something: the more, the more they differ.
    fn enough_answers(&self) -> f64 {
        (self.jitter() / self.own_slack())
            .powi(2)
            .min(ENOUGH_ANSWERS)
    }

    /// Returns the mean delay of the last round beyond the least one, in seconds.
    pub(super) fn queue(&self) -> f64 {
        self.queue
    }

    /// Returns true if the last round had a queue.
    pub(super) fn has_queue(&self) -> bool {
        self.queue > self.slack()
    }

    /// Returns true if the last round had next to no queue.
    pub(super) fn is_drained(&self) -> bool {
        self.queue <= self.slack() / 2.0
    }

    /// Returns true if the last packet met next to no queue.
    pub(super) fn is_prompt(&self) -> bool {
        let least = self.least_delay().unwrap_or(f64::NEG_INFINITY);
        self.last_delay
            .is_none_or(|delay| delay - least <= self.slack() / 2.0)
    }

    /// Returns true if the answers of the present round, some at least, show a queue.
    pub(super) fn has_queue_now(&self) -> bool {
        let round = &self.round;
        let least = self.least_delay().unwrap_or(f64::INFINITY);
        round.answers >= LATE_ANSWERS.max(self.enough_answers())
            && round.one_way / round.answers - least > self.slack()
    }

    /// Returns the time since a round had next to no queue.
    pub(super) fn queued_for(&self, now: Time) -> Duration {
        now.since(self.empty_at)
    }

    /// Returns true if no round has had next to no queue for as long as its delay counts.
    pub(super) fn is_outdated(&self, now: Time) -> bool {
        self.queued_for(now) >= DELAY_AGE
    }

    /// Returns the bytes of the largest frame.
    pub(super) fn frame(&self) -> f64 {
        self.frame as f64
    }

    /// Sets the bytes of the sender's bursts and of its largest frame.
    pub(in crate::hop) fn set_burst(&mut self, bytes: u64, frame: usize) {
        self.frame = frame.max(1);
        self.grain = match self.bandwidth() > 0.0 {
            true => bytes as f64 / self.bandwidth(),
            false => 0.0,
        };
    }

    /// Notes a round trip that was measured without a delivery rate (in the HELLO exchange).
    pub(in crate::hop) fn note_rtt(&mut self, now: Time, rtt: Duration) {
        let expired = now.since(self.min_rtt_seen) > DELAY_AGE;
        if expired || self.min_rtt.is_none_or(|least| rtt <= least) {
            self.min_rtt = Some(rtt);
            self.min_rtt_seen = now;
        }
    }

    /// Takes an answer in. `is_low` is true if the packets that it tells of were sent at less than the path's rate.
    pub(super) fn note(&mut self, now: Time, answer: &Answer, is_low: bool) {
        self.note_rtt(now, answer.rtt);
        let delay = answer.one_way as f64 / 1e9;
        let before = self.last_delay.replace(delay).unwrap_or(delay);
        self.round.answers += 1.0;
        self.round.one_way += delay;
        self.round.rtt += answer.rtt.as_secs_f64();
        // A queue grows or drains over many answers, by however much; it seldom turns.
        let difference = delay - before;
        let turn = match difference * self.difference < 0.0 {
            true => difference.abs().min(self.difference.abs()),
            false => 0.0,
        };
        self.difference = difference;
        self.turns[self.turns_seen % RECENT_TURNS] = turn;
        self.turns_seen += 1;
        self.turn.note(now, self.mean_turn());
        if let Some(rate) = answer.delivery.map(|rate| rate.min(MAX_RATE))
            && (!answer.limited || (self.bandwidth() > 0.0 && rate > self.bandwidth()))
        {
            self.best[0] = self.best[0].max(rate);
        }
        if answer.round_over {
            self.end_round(now, answer, is_low);
        }
    }

    fn end_round(&mut self, now: Time, answer: &Answer, is_low: bool) {
        if self.round.answers >= self.enough_answers() {
            let round = core::mem::take(&mut self.round);
            let (delay, rtt) = (round.one_way / round.answers, round.rtt / round.answers);
            self.last_round = (delay, rtt);
            let least = self.bases[0].unwrap_or((delay, rtt));
            self.bases[0] = Some((least.0.min(delay), least.1.min(rtt)));
            let base = self.base().unwrap_or((delay, rtt));
            let waiting = (delay - base.0).max(0.0);
            self.queue = waiting - self.tolerated.0;
            if waiting <= self.slack() / 4.0 {
                self.empty_at = now;
            }
        }
        if let Some(rate) = answer.delivery {
            self.recent = rate;
            self.mean = match self.mean > 0.0 {
                true => self.mean + (rate - self.mean) / 4.0,
                false => rate,
            };
        }
        if answer.measured > 0 {
            let packets = answer.measured as f64 / self.frame();
            let loss = answer.loss.clamp(0.0, 1.0);
            self.loss += (loss - self.loss) * (packets / (packets + LOSS_PACKETS)).max(1.0 / 32.0);
            if is_low && !self.has_queue() && !self.tolerates() {
                self.chance_packets = (self.chance_packets + packets).min(LOSS_PACKETS);
                self.chance += (loss - self.chance) * (packets / self.chance_packets).min(1.0);
            }
        }
    }

    /// Ages the rates of earlier rounds by `rounds`.
    pub(super) fn age_rate(&mut self, rounds: u32) {
        self.best_age += rounds;
        if self.best_age >= RATE_ROUNDS / 2 && self.best[0] > 0.0 {
            self.best = [0.0, self.best[0]];
            self.best_age = 0;
        }
    }

    /// Replaces the rates of earlier rounds by a smaller one.
    pub(super) fn lower_rate(&mut self, rate: f64) {
        if rate > 0.0 {
            self.best = [0.0, rate.min(self.bandwidth())];
            self.best_age = 0;
        }
    }

    /// Forgets what an overflowing queue has dropped.
    pub(super) fn forget_overflow(&mut self) {
        self.loss = self.loss.min(self.chance());
    }

    /// Takes the queue of the last round for another flow's.
    pub(super) fn tolerate_queue(&mut self) {
        let (delay, rtt) = self.last_round;
        if let Some(base) = self.base() {
            self.tolerated = ((delay - base.0).max(0.0), (rtt - base.1).max(0.0));
        }
        self.queue = 0.0;
    }

    /// Begins to measure delays anew, and forgets the oldest ones.
    pub(super) fn refresh_delays(&mut self, now: Time) {
        let [last, before, _] = self.bases;
        self.forget_delays(now);
        self.bases = [None, last, before];
    }

    /// Forgets delays: the path may be another one.
    pub(super) fn forget_delays(&mut self, now: Time) {
        self.bases = [None; 3];
        self.tolerated = (0.0, 0.0);
        self.round = Round::default();
        self.last_delay = None;
        self.min_rtt_seen = Time::ZERO;
        self.queue = 0.0;
        self.empty_at = now;
    }

    /// Makes the rate the oldest that counts, after an outage.
    pub(super) fn doubt_rate(&mut self) {
        self.best = [0.0, self.bandwidth()];
        self.best_age = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the estimate after answers with these one-way delays in milliseconds, a round each.
    fn after(delays: impl IntoIterator<Item = i64>) -> Estimate {
        let mut estimate = Estimate::new(Time::ZERO);
        for (index, delay) in (1..).zip(delays) {
            let now = Time::from_millis(50 * index);
            let answer = Answer {
                rtt: Duration::from_millis(20 + delay.unsigned_abs()),
                one_way: delay * 1_000_000,
                acked: 10_000,
                filled: true,
                delivery: Some(1e6),
                measured: 10_000,
                loss: 0.0,
                limited: false,
                round_over: true,
                marked: false,
            };
            estimate.note(now, &answer, false);
        }
        estimate
    }

    #[test]
    fn delays_that_alternate_are_jitter_and_a_queue_that_fills_and_empties_is_none() {
        let jitters = after([10, 14, 9, 15, 8, 13, 10, 16, 9, 12, 10, 15, 9, 14, 10, 13]);
        assert!(jitters.jitter() > 0.01, "{}", jitters.jitter());
        assert!(!jitters.has_queue());
        let fills = after((10..26).chain([10]));
        assert_eq!(fills.jitter(), 0.0);
        assert!(after(10..26).has_queue());
    }

    #[test]
    fn a_tolerated_queue_hides_itself_and_no_more() {
        let mut estimate = after([10, 10, 10, 10, 30, 30]);
        assert!(estimate.has_queue());
        estimate.tolerate_queue();
        assert!(estimate.tolerates() && !estimate.has_queue());
        let longer = estimate.round_trip().unwrap_or_default();
        let empty = estimate.empty_round_trip().unwrap_or_default();
        assert!(longer > empty + 0.015, "{longer} {empty}");
        // Two refreshes later the least delay before them still counts.
        estimate.refresh_delays(Time::from_secs(10));
        estimate.refresh_delays(Time::from_secs(20));
        assert_eq!(estimate.empty_round_trip(), Some(empty));
        estimate.refresh_delays(Time::from_secs(30));
        assert_ne!(estimate.base().map(|(_, rtt)| rtt), Some(empty));
    }
}
