//! Thin links: the rate of a link before chunks have crossed it, and its effect on the sender's
//! intervals.
//!
//! At some 10 kbit/s a packet takes a second. A first burst of 32 packets is then half a minute of
//! queue, and what costs nothing elsewhere (a CSYN every 80 ms) takes most of the link.

use core::time::Duration;

/// Bytes of each of two probes that are sent back to back; the time between their arrivals is that
/// of one of them on the link.
pub(super) const PAIR_BYTES: usize = 256;
/// Probes that arrive closer together (at 200 kbit/s and more) show nothing: radio links hold
/// packets back for as long.
pub(super) const SHORTEST_SPREAD: Duration = Duration::from_millis(10);
/// From this spread on, larger probes may show more (up to 1 Mbit/s): ...
const DOUBTFUL_SPREAD: Duration = Duration::from_millis(2);
/// ... of as many bytes as every path carries.
const LARGE_PAIR_BYTES: usize = 1200;
/// Bound of the pairs: lost probes are repeated, and a slow pair, which may have been held up, is
/// confirmed once.
const MAX_PAIRS: u8 = 4;
/// The slowest plausible rate, in bytes per second.
const SLOWEST: u64 = 100;

/// The rate of a link as two probes show it.
#[derive(Debug, Default)]
pub(super) struct FirstRate {
    // Probes of the present pair that are still to be sent, and the numbers of the sent ones.
    pub(super) due: usize,
    pub(super) numbers: [u32; 2],
    // Bytes of an ordinary probe and of a large one.
    pub(super) bytes: usize,
    pub(super) large: usize,
    // Arrival of the first probe, by the neighbour's clock.
    first_at: Option<u64>,
    pairs: u8,
    // Bytes per second, if the link has proven slow; and the rate that it has at least.
    rate: Option<u64>,
    pub(super) least: u64,
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

    /// Another measurement has shown the rate, in bytes per second.
    pub(super) fn note_shown(&mut self, rate: u64) {
        (self.rate, self.least) = (Some(rate), 0);
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
    pub(super) fn answered(&mut self, number: u32, clock: u64) -> bool {
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
