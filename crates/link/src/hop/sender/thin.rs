//! Thin links: the rate of a link before chunks have crossed it, and its effect on the sender's
//! intervals.
//!
//! At some 10 kbit/s a packet takes a second. A first burst of 32 packets is then half a minute of
//! queue, and what costs nothing elsewhere (a CSYN every 80 ms) takes most of the link.

use core::time::Duration;

use whimbrel_core::Time;

use super::Sender;
use super::limits::FEWEST_PACKETS_PER_CSYN;
use crate::hop::pacing::{bytes_in, span};
use crate::hop::stats::HopStats;
use crate::hop::wire::{Envelope, encode_mtu_probe};

/// Bytes of each of two probes that are sent back to back; the time between their arrivals is that
/// of one of them on the link.
const PAIR_BYTES: usize = 256;
/// Probes that arrive closer together (at 200 kbit/s and more) show nothing: radio links hold
/// packets back for as long.
const SHORTEST_SPREAD: Duration = Duration::from_millis(10);
/// From this spread on, larger probes may show more (up to 1 Mbit/s): ...
const DOUBTFUL_SPREAD: Duration = Duration::from_millis(2);
/// ... of as many bytes as every path carries.
const LARGE_PAIR_BYTES: usize = 1200;
/// Bound of the pairs: lost probes are repeated, and a slow pair, which may have been held up, is
/// confirmed once.
const MAX_PAIRS: u8 = 4;
/// The slowest plausible rate, in bytes per second.
const SLOWEST: u64 = 100;
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

/// The rate of a link as two probes show it.
#[derive(Debug, Default)]
pub(super) struct FirstRate {
    // Probes of the present pair that are still to be sent, and the numbers of the sent ones.
    due: usize,
    numbers: [u32; 2],
    // Bytes of an ordinary probe and of a large one.
    bytes: usize,
    large: usize,
    // Arrival of the first probe, by the neighbour's clock.
    first_at: Option<u64>,
    pairs: u8,
    // Bytes per second, if the link has proven slow; and the rate that it has at least.
    rate: Option<u64>,
    least: u64,
}

impl FirstRate {
    /// Begins a session over a link of unknown rate.
    pub(super) fn begin(&mut self, frame: usize) {
        *self = FirstRate {
            due: 2,
            bytes: PAIR_BYTES.min(frame),
            large: LARGE_PAIR_BYTES.min(frame),
            pairs: 1,
            ..FirstRate::default()
        };
    }

    /// Returns the rate in bytes per second, if the link has proven slow.
    pub(super) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Returns true while probes are to be sent or answered.
    pub(super) fn is_pending(&self) -> bool {
        self.due > 0 || self.numbers[1] != 0
    }

    fn again(&mut self) {
        self.first_at = None;
        if self.pairs < MAX_PAIRS {
            self.pairs += 1;
            self.due = 2;
        } else {
            self.numbers = [0; 2];
        }
    }

    /// Handles the answer to CSYN `number`, which arrived at `clock`. Returns true if the link has
    /// proven slow.
    fn answered(&mut self, number: u32, clock: u64) -> bool {
        let [first, second] = self.numbers;
        if self.due > 0 || second == 0 {
            return false;
        }
        if number == first {
            self.first_at = Some(clock);
        } else if number == second
            && let Some(at) = self.first_at
        {
            let spread = Duration::from_nanos(clock.saturating_sub(at));
            let within = spread.max(DOUBTFUL_SPREAD).as_nanos() as u64;
            let rate = self.bytes as u64 * 1_000_000_000 / within;
            if spread < SHORTEST_SPREAD {
                (self.rate, self.numbers) = (None, [0; 2]);
                self.least = self.least.max(rate);
                if spread >= DOUBTFUL_SPREAD && self.bytes < self.large {
                    self.bytes = self.large;
                    self.again();
                }
                return false;
            }
            let known = self.rate.unwrap_or(SLOWEST);
            let confirmed = self.rate.is_some();
            self.rate = Some(rate.max(known));
            match confirmed {
                true => self.numbers = [0; 2],
                false => self.again(),
            }
            return true;
        } else if number.wrapping_sub(second) as i32 >= 0 {
            // A probe or its answer is lost.
            self.again();
        }
        false
    }
}

impl Sender {
    /// Writes the due probes of a pair. Returns the bytes of each, or `None` if none is due.
    pub(super) fn write_pair(
        &mut self,
        now: Time,
        envelope: Envelope,
        max_segments: usize,
        buffer: &mut Vec<u8>,
        stats: &mut HopStats,
    ) -> Option<usize> {
        let due = self.first_rate.due.min(max_segments.max(1));
        if due > 0 {
            // The driver's or the neighbour's limit may have fallen since the pair was planned.
            let rate = &mut self.first_rate;
            rate.large = rate.large.min(self.limits.frame);
            rate.bytes = rate.bytes.min(self.limits.frame);
        }
        for _ in 0..due {
            let number = self.number_probe(now);
            encode_mtu_probe(envelope, number, self.first_rate.bytes, buffer);
            self.first_rate.numbers[2 - self.first_rate.due] = number;
            self.first_rate.due -= 1;
            stats.csyn_sent += 1;
        }
        (due > 0).then_some(self.first_rate.bytes)
    }

    pub(super) fn note_pair(&mut self, number: u32, clock: u64) {
        if self.first_rate.answered(number, clock)
            && let Some(rate) = self.first_rate.rate()
            && rate <= PAIR_BYTES as u64 * 1_000 / SHORTEST_SPREAD.as_millis() as u64
        {
            let least = 2 * self.limits.frame as u64;
            self.law.expect(rate, least);
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
        let wait = LONGEST_WAIT + 2 * self.min_rtt().unwrap_or_default();
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
        let packets = bytes_in(LONGEST_FEEDBACK, rate) / self.limits.frame as u64;
        packets.clamp(1, FEWEST_PACKETS_PER_CSYN)
    }

    /// Returns true if a packet takes so long on the link that each one counts.
    pub(super) fn is_thin(&self) -> bool {
        self.fewest_packets() < FEWEST_PACKETS_PER_CSYN
    }

    /// Returns the time for which packets on a thin link delay an answer.
    pub(super) fn serial_delay(&self) -> Duration {
        if !self.is_thin() {
            return Duration::ZERO;
        }
        let frame = self.limits.frame as u64;
        span(
            self.feedback.inflight().min(MAX_AHEAD * frame) + frame,
            self.rate(),
        )
    }

    /// Returns the shortest interval of periodic CSYNs, which leaves a thin link to chunks.
    pub(in crate::hop) fn question_interval(&self) -> Duration {
        match self.rate() {
            0 => Duration::ZERO,
            rate => span(QUESTION * QUESTION_SHARE, rate).min(MAX_QUESTION_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pair(first: u32) -> FirstRate {
        FirstRate {
            numbers: [first, first + 1],
            bytes: 256,
            pairs: 1,
            ..FirstRate::default()
        }
    }

    #[test]
    fn a_spread_pair_is_confirmed_once_and_the_faster_one_counts() {
        let mut it = pair(7);
        assert!(!it.answered(7, 1_000 * MS));
        assert!(it.answered(8, 1_256 * MS));
        assert_eq!((it.rate(), it.due), (Some(1_000), 2));
        (it.due, it.numbers) = (0, [9, 10]);
        assert!(!it.answered(9, 2_000 * MS));
        assert!(it.answered(10, 2_128 * MS));
        assert_eq!((it.rate(), it.due), (Some(2_000), 0));
    }

    #[test]
    fn a_pair_that_was_held_up_once_proves_nothing() {
        let mut it = pair(7);
        it.answered(7, 0);
        assert!(it.answered(8, 40 * MS));
        (it.due, it.numbers) = (0, [9, 10]);
        it.answered(9, 100 * MS);
        assert!(!it.answered(10, 101 * MS));
        assert_eq!((it.rate(), it.due), (None, 0));
    }

    #[test]
    fn a_doubtful_pair_is_followed_by_large_ones_that_tell_rates_up_to_a_megabit() {
        let mut it = FirstRate {
            large: 1200,
            ..pair(7)
        };
        it.answered(7, 0);
        assert!(!it.answered(8, 8 * MS));
        assert_eq!((it.rate(), it.due, it.bytes), (None, 2, 1200));
        (it.due, it.numbers) = (0, [9, 10]);
        it.answered(9, 0);
        assert!(it.answered(10, 40 * MS));
        assert_eq!((it.rate(), it.due), (Some(30_000), 2));
        (it.due, it.numbers) = (0, [11, 12]);
        it.answered(11, 0);
        assert!(it.answered(12, 37 * MS + MS / 2));
        assert_eq!((it.rate(), it.due), (Some(32_000), 0));
    }

    #[test]
    fn large_probes_that_arrive_together_prove_no_slow_link() {
        let mut it = FirstRate {
            large: 1200,
            ..pair(7)
        };
        it.answered(7, 0);
        it.answered(8, 3 * MS);
        (it.due, it.numbers) = (0, [9, 10]);
        it.answered(9, 0);
        assert!(!it.answered(10, MS));
        assert_eq!((it.rate(), it.due, it.least), (None, 0, 600_000));
    }

    #[test]
    fn a_lost_probe_is_repeated_a_bounded_number_of_times() {
        let mut it = pair(1);
        let mut pairs = 1;
        for number in (3..).step_by(3).take(20) {
            it.answered(number, 5 * MS);
            if it.due == 2 {
                pairs += 1;
                (it.due, it.numbers) = (0, [number + 1, number + 2]);
            }
        }
        assert_eq!((pairs, it.rate()), (MAX_PAIRS, None));
    }
}
