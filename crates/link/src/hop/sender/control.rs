//! The control of one path: its model, the law that answers to it, and the limits that follow.

use core::time::Duration;

use whimbrel_core::{RttEstimator, RttOptions, Time};

use super::idle_rate::{IdleRate, differs};
use super::thin::{FirstRate, PAIR_BYTES, SHORTEST_SPREAD};
use super::train::{Shown, Train};
use crate::hop::config::HopConfig;
use crate::hop::congestion::{Law, law};
use crate::hop::pacing::{Pacer, bytes_in, span};
use crate::hop::wire::Cack;

/// Packets that may be in flight before the path is known: those of a small chunk.
pub(super) const INITIAL_PACKETS: u64 = 32;
/// CSYNs per round trip. Start-up must detect a growing queue soon.
const CSYNS_PER_ROUND: u64 = 4;
const STARTING_CSYNS_PER_ROUND: u64 = 12;
/// A CSYN comes after at most this many packets, ...
const MOST_PACKETS_PER_CSYN: u64 = 128;
/// ... and, where that share of a round trip is shorter, not before this many ...
pub(super) const FEWEST_PACKETS_PER_CSYN: u64 = 8;
/// ... nor before what goes in this time: on WiFi a CSYN takes half the air time of a full packet,
/// and feedback should cost at most a few percent.
const SHORTEST_FEEDBACK: Duration = Duration::from_millis(10);
/// The slowest pace is a few packets in this time, or in a round trip if that is longer.
const SHORTEST_SLOW_ROUND: Duration = Duration::from_millis(50);
/// Bound of the bytes of chunks that are queued, and of those for which room is requested ahead.
const MOST_AHEAD: usize = 64 << 20;
/// From this length on, a round trip exceeds what the bounds of timeouts are meant for.
const LONG_ROUND_TRIP: Duration = Duration::from_secs(2);
/// A timeout lies at least this much beyond the smoothed round trip (kGranularity of RFC 9002 §6.1.2):
/// where round trips do not vary, each answer would come together with its timeout, and each
/// timeout asks again.
pub(super) const TIMEOUT_GRANULARITY: Duration = Duration::from_millis(1);
/// Bounds of the wait before room is asked for again.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// A link is thin if its CSYNs, after the usual number of packets, would be further apart than
/// this.
const LONGEST_FEEDBACK: Duration = Duration::from_millis(500);
/// Above this loss, a low estimate is a consequence of the loss and no sign of a thin link.
const MAX_LOSS: f64 = 0.15;
/// Bytes of a CSYN and its answer in UDP over IPv6.
const QUESTION: u64 = 24 + 44 + 2 * 48;
/// Periodic CSYNs take at most one part in this many of a link ...
const QUESTION_SHARE: u64 = 16;
/// ... and come at least this often.
const MAX_QUESTION_INTERVAL: Duration = Duration::from_secs(5);
/// The bytes that should wait in the hop take this long on the link, and two round trips more, in
/// which room for them is requested.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// They are as many as the smallest chunk has, at least.
const LEAST_WAITING: usize = 16 << 10;
/// Packets in flight whose answers may come one by one.
const MAX_AHEAD: u64 = 4;
/// A train is one part in this many of the window, because all of it may wait in the queue ...
const TRAIN_SHARE: u64 = 8;
/// ... and, once the path's rate has shown, at most what it carries in this time, which is enough
/// to see it again; ...
const LONGEST_ARRIVAL: Duration = Duration::from_millis(2);
/// ... but at least this many packets.
const FEWEST_TRAIN_PACKETS: u64 = 8;
/// On shorter round trips the queue is seen soon enough, and a pause of the receiving program would
/// look like a slow path.
const SHORTEST_TRAIN_RTT: Duration = Duration::from_millis(5);

/// What is known of the path to the neighbour, and how much may be sent over it.
pub(in crate::hop) struct Control {
    pub(super) law: Box<dyn Law>,
    pub(super) first_rate: FirstRate,
    pub(super) idle_rate: IdleRate,
    pub(super) train: Train,
    pub(in crate::hop) rtt: RttEstimator,
    pub(super) pacer: Pacer,
    /// Bytes of the largest frame.
    pub(super) frame: usize,
    longest_retry: Duration,
}

impl Control {
    pub(super) fn new(config: &HopConfig, now: Time) -> Control {
        Control {
            law: law(config.pacing, now, INITIAL_PACKETS * config.mtu as u64),
            first_rate: FirstRate::default(),
            idle_rate: IdleRate::new(),
            train: Train::default(),
            rtt: RttEstimator::with_options(RttOptions {
                granularity: TIMEOUT_GRANULARITY,
                ..RttOptions::rfc6298(
                    config.initial_timeout,
                    config.min_timeout,
                    config.max_timeout,
                )
            }),
            pacer: Pacer::new(),
            frame: config.mtu,
            longest_retry: config.outage_probe_interval,
        }
    }

    /// Notes a round trip that no CSYN measured.
    pub(super) fn measured(&mut self, now: Time, rtt: Duration) {
        self.rtt.sample(rtt);
        self.law.estimate_mut().note_rtt(now, rtt);
        self.update_pace();
    }

    pub(in crate::hop) fn min_rtt(&self) -> Option<Duration> {
        self.law.estimate().min_rtt()
    }

    /// Returns the longest time after which an answer may still be on its way.
    pub(in crate::hop) fn suspicion(&self) -> Option<Duration> {
        let smoothed = self.rtt.smoothed()?;
        Some(smoothed + smoothed / 4 + self.rtt.variation() * 4)
    }

    pub(super) fn retry_after(&self, attempts: u32, inflight: u64) -> Duration {
        let first = self.rtt.timeout();
        let again = self
            .rtt
            .timeout_after(attempts)
            .min(first.max(self.longest_retry));
        let long = self.rtt.smoothed().unwrap_or_default() * 5 / 4;
        let again = if long < LONG_ROUND_TRIP {
            again
        } else {
            again.max(long)
        };
        again + self.serial_delay(inflight)
    }

    pub(super) fn ask_again_after(&self, attempt: u32) -> Duration {
        let first = (self.rtt.smoothed().unwrap_or_default() * 4).max(ASK_AGAIN.0);
        first
            .saturating_mul(1 << attempt.min(10))
            .min(ASK_AGAIN.1)
            .max(self.question_interval())
    }

    /// Returns the packets between two CSYNs: a share of a round trip, or a burst or some
    /// milliseconds if that is more, within bounds.
    pub(super) fn packets_per_csyn(&self) -> u64 {
        let frame = self.frame as u64;
        let shortest = (self.law.estimate().bandwidth() * SHORTEST_FEEDBACK.as_secs_f64()) as u64;
        let share = if self.law.is_starting() {
            STARTING_CSYNS_PER_ROUND
        } else {
            CSYNS_PER_ROUND
        };
        let part = self.law.estimate().bandwidth_delay() / share;
        let packets = part.max(self.pacer.burst_bytes()).max(shortest) / frame;
        let fewest = match self.law.is_starting() {
            true => self.fewest_packets(),
            false => self.fewest_packets().min((part / frame).max(2)),
        };
        packets.clamp(fewest, MOST_PACKETS_PER_CSYN)
    }

    pub(super) fn inflight_cap(&self) -> u64 {
        if !self.law.is_adaptive() {
            return u64::MAX;
        }
        let frame = self.frame as u64;
        if self.is_thin() {
            // The smallest round trip is that of one packet: more of them would measure themselves.
            let least = match self.law.is_refreshing() {
                true => 1,
                false => self.fewest_packets().max(2),
            };
            let feedback = self.packets_per_csyn() * frame / 2;
            return self.law.window(feedback).max(least * frame);
        }
        let feedback = self.packets_per_csyn() * frame + self.pacer.burst_bytes();
        let window = self.law.window(feedback).max(INITIAL_PACKETS * frame / 4);
        window + self.train.room()
    }

    /// Returns the bytes that the path carries in a little more than a round trip, as far as known.
    pub(super) fn flight(&self) -> usize {
        let bytes = match self.law.is_adaptive() {
            true => self.inflight_cap(),
            false => 2 * self.law.estimate().bandwidth_delay(),
        };
        usize::try_from(bytes.min(MOST_AHEAD as u64)).unwrap_or(MOST_AHEAD)
    }

    /// Returns a rate that heavy loss cannot push the estimate below. Without it the model would
    /// follow its own effect: each round delivers less than was sent, and the next is sent at that
    /// rate. It is too high for a slower path, but there the inflight cap and the growing round
    /// trip limit it.
    fn slowest_pace(&self) -> u64 {
        let round = self
            .rtt
            .smoothed()
            .unwrap_or_default()
            .max(SHORTEST_SLOW_ROUND);
        (self.fewest_packets() * self.frame as u64 * 1_000_000) / (round.as_micros() as u64).max(1)
    }

    pub(super) fn update_pace(&mut self) {
        let frame = self.frame;
        let rate = match self.law.pace() {
            Some(rate) if self.law.is_adaptive() => {
                let slowest = self.slowest_pace() as f64 * self.law.slowest_share();
                ((rate * self.train.gain()) as u64).max(slowest as u64)
            }
            Some(rate) => rate as u64,
            None => 0,
        };
        self.pacer.set_rate(rate, frame);
        let burst = self.pacer.burst_bytes() + frame as u64;
        self.law.estimate_mut().set_burst(burst, frame);
    }

    pub(super) fn note_pair(&mut self, number: u32, clock: u64) {
        if self.first_rate.answered(number, clock)
            && let Some(rate) = self.first_rate.rate()
            && rate <= PAIR_BYTES as u64 * 1_000 / SHORTEST_SPREAD.as_millis() as u64
        {
            let least = 2 * self.frame as u64;
            self.law.expect(rate, least);
            self.update_pace();
        }
    }

    /// Handles the answer to a probe of an idle path.
    pub(super) fn note_idle_probe(&mut self, now: Time, number: u32, clock: u64) {
        if let Some(rate) = self.idle_rate.answered(number, clock) {
            self.first_rate.note_shown(rate);
            if differs(rate, self.law.estimate().bandwidth()) {
                let least = self.fewest_packets() * self.frame as u64;
                self.law.on_idle_rate(now, rate, least);
            }
            self.update_pace();
        }
    }

    /// Returns the estimated rate in bytes per second, or the one that the first probes showed; 0
    /// if neither is known.
    pub(in crate::hop) fn rate(&self) -> u64 {
        let known = self.first_rate.rate();
        match self.law.estimate().bandwidth() as u64 {
            0 => known.unwrap_or(0),
            // While the estimate still grows, it is the rate at which the sender used the link.
            rate if self.law.is_starting() => rate.max(known.unwrap_or(self.first_rate.least)),
            rate => rate,
        }
    }

    /// Returns the bytes that should wait here: `most`, or fewer on a slow link, because what comes
    /// later (another content, the end of a transfer) would wait behind them.
    pub(super) fn target(&self, most: usize) -> usize {
        let is_known = !self.law.is_starting() || self.first_rate.rate().is_some();
        let rate = self.rate();
        if !is_known || rate == 0 || self.law.estimate().loss() > MAX_LOSS {
            return most;
        }
        let wait = LONGEST_WAIT + 2 * self.law.estimate().min_rtt().unwrap_or_default();
        most.min(LEAST_WAITING.max(bytes_in(wait, rate) as usize))
    }

    /// Returns true while it is being found out whether the link is slow.
    pub(in crate::hop) fn is_measuring(&self) -> bool {
        self.first_rate.is_pending() && self.law.estimate().bandwidth() <= 0.0
    }

    /// Returns the fewest packets between two CSYNs, and in a slow round: fewer on a thin link.
    pub(super) fn fewest_packets(&self) -> u64 {
        let rate = self.rate();
        if rate == 0 || self.law.estimate().loss() > MAX_LOSS {
            return FEWEST_PACKETS_PER_CSYN;
        }
        let packets = bytes_in(LONGEST_FEEDBACK, rate) / self.frame as u64;
        packets.clamp(1, FEWEST_PACKETS_PER_CSYN)
    }

    /// Returns true if a packet takes so long on the link that each one counts.
    pub(super) fn is_thin(&self) -> bool {
        self.fewest_packets() < FEWEST_PACKETS_PER_CSYN
    }

    /// Returns the time for which packets on a thin link delay an answer.
    fn serial_delay(&self, inflight: u64) -> Duration {
        if !self.is_thin() {
            return Duration::ZERO;
        }
        let frame = self.frame as u64;
        span(inflight.min(MAX_AHEAD * frame) + frame, self.rate())
    }

    /// Returns the shortest interval of periodic CSYNs, which leaves a thin link to chunks.
    pub(in crate::hop) fn question_interval(&self) -> Duration {
        match self.rate() {
            0 => Duration::ZERO,
            rate => span(QUESTION * QUESTION_SHARE, rate).min(MAX_QUESTION_INTERVAL),
        }
    }

    /// Begins the next train if there is something to find out: in start-up always, later in a probe
    /// for bandwidth while the sender has a part of the path only, or once had.
    pub(super) fn begin_train(&mut self) {
        let rtt = self.min_rtt().unwrap_or_default();
        let frame = self.frame as u64;
        let window = self.law.window(0);
        let is_short = rtt < SHORTEST_TRAIN_RTT || window < 2 * FEWEST_TRAIN_PACKETS * frame;
        if is_short || self.is_thin() || !self.law.sends_trains() {
            self.law.lift_bound();
            self.end_train();
            return;
        }
        if !self.law.wants_train() {
            self.end_train();
            return;
        }
        let most = match (self.law.is_starting(), self.law.shown()) {
            (true, None) => u64::MAX,
            (true, Some(rate)) => bytes_in(LONGEST_ARRIVAL, rate as u64),
            (false, _) => 0,
        };
        let least = FEWEST_TRAIN_PACKETS * frame;
        self.train
            .begin((window / TRAIN_SHARE).min(most).max(least));
        self.update_pace();
    }

    /// Gives a train up: what it would show is not the path.
    pub(super) fn end_train(&mut self) {
        if self.train.is_begun() {
            self.train.end();
            self.update_pace();
        }
    }

    /// Gives a train up if it has not all been sent.
    pub(super) fn interrupt_train(&mut self) {
        if self.train.is_open() {
            self.end_train();
        }
    }

    /// Draws the conclusion from an answer about a train, and begins the next one.
    pub(super) fn follow_train(&mut self, now: Time, cack: &Cack<'_>) {
        match self.train.answered(cack.number, cack.received, cack.clock) {
            Some(Shown::Rate(rate)) => self.law.on_train(now, rate, true),
            Some(Shown::More(rate)) => self.law.on_train(now, rate, false),
            Some(Shown::Fast) => self.law.lift_bound(),
            Some(Shown::Nothing) => {}
            None if self.train.is_open() && !self.law.wants_train() => {}
            None if !self.train.is_begun() && self.law.wants_train() => {}
            None => return,
        }
        self.begin_train();
    }
}
