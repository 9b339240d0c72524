//! Limits of the sender that follow from the model of the path.

use core::time::Duration;

use super::Sender;
use crate::hop::lanes::Lane;

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
/// and feedback should cost no more than some percent.
const SHORTEST_FEEDBACK: Duration = Duration::from_millis(10);
/// The slowest pace is a few packets in this time, or in a round trip if that is longer.
const SHORTEST_SLOW_ROUND: Duration = Duration::from_millis(50);
/// Bound of the bytes of chunks that are queued, and of those for which room is requested ahead.
const MOST_AHEAD: usize = 64 << 20;
/// Lanes that may each have a begun chunk, however much waits already.
pub(super) const MAX_LANES_BEGUN: usize = 16;
/// From this length on, a round trip exceeds what the bounds of timeouts are meant for.
const LONG_ROUND_TRIP: Duration = Duration::from_secs(2);
/// A timeout lies at least this much beyond the smoothed round trip (kGranularity of RFC 9002 §6.1.2):
/// where round trips do not vary, each answer would come together with its timeout, and each
/// timeout asks again.
pub(super) const TIMEOUT_GRANULARITY: Duration = Duration::from_millis(1);
/// Bounds of the wait before room is asked for again.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

impl Sender {
    pub(super) fn retry_after(&self) -> Duration {
        let first = self.rtt.timeout();
        let again = self
            .rtt
            .timeout_after(self.attempts)
            .min(first.max(self.longest_retry));
        let long = self.rtt.smoothed().unwrap_or_default() * 5 / 4;
        let again = if long < LONG_ROUND_TRIP {
            again
        } else {
            again.max(long)
        };
        again + self.serial_delay()
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
        let frame = self.limits.frame as u64;
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
        let frame = self.limits.frame as u64;
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

    /// Returns the bytes that may be in flight now; for urgent packets a little more.
    pub(super) fn cap_now(&self) -> u64 {
        let more = match self.sendable.is_urgent() {
            true => INITIAL_PACKETS / 4 * self.limits.frame as u64,
            false => 0,
        };
        self.inflight_cap().saturating_add(more)
    }

    /// Returns the number of chunks that may be in transfer; some places are for urgent ones.
    pub(super) fn most_begun(&self, lane: Lane) -> usize {
        match lane {
            Lane::Urgent => self.limits.chunks,
            Lane::Flow(_) => self.limits.chunks - self.limits.chunks / 8,
        }
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
        (self.fewest_packets() * self.limits.frame as u64 * 1_000_000)
            / (round.as_micros() as u64).max(1)
    }

    pub(super) fn update_pace(&mut self) {
        let frame = self.limits.frame;
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
}
