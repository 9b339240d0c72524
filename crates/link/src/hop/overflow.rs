//! Tells random loss from that of a queue which is too short to be seen.
//!
//! A hop makes up for random loss by sending more. What a policer drops, or a queue of a tenth of a
//! bandwidth-delay product, looks the same: round trips do not grow. There, sending more loses more,
//! for as long as the transfer lasts. [`LossTest`] tells them apart. For a few rounds the hop sends
//! less than it knows the path to carry: what overflowed is lost no more, and chance still takes its
//! share.

/// Less loss than this is not worth a test.
const LEAST_LOSS: f64 = 0.02;
/// A test counts this many rounds at most. Its first round does not count: what is answered then was
/// sent before it.
const TEST_ROUNDS: u32 = 4;
/// A queue overflows if tests lost fewer packets than are lost otherwise, by this multiple of the
/// latter's standard deviation (a square root: random losses alone would vary so). Bursts of losses
/// vary more, ...
const CLEAR: f64 = 4.0;
/// ... so it takes no fewer tests than this: a gap between two bursts may outlast one.
const ENOUGH_TESTS: u32 = 2;
/// It was chance if tests lost about as many as are lost otherwise: out of no fewer packets than
/// this.
const ENOUGH: f64 = 16.0;
/// After this many tests without a verdict, it was chance.
const MOST_TESTS: u32 = 8;
/// Older tests count half from this many packets on.
const OLD: f64 = 256.0;
/// Probes for bandwidth between two tests that have shown chance; twice as many after each further
/// one.
const PAUSE: (u32, u32) = (8, 64);

/// Where the loss of a path comes from, as tests have shown.
#[derive(Clone, Debug)]
pub(super) struct LossTest {
    // Packets of tests without a verdict: those lost, and those that would have been otherwise.
    lost: f64,
    expected: f64,
    tests: u32,
    rounds: u32,
    // Share lost in tests, if they have shown that a queue overflows.
    by_chance: Option<f64>,
    pause: u32,
    waits: u32,
}

impl LossTest {
    pub(super) fn new() -> LossTest {
        LossTest {
            lost: 0.0,
            expected: 0.0,
            tests: 0,
            rounds: 0,
            by_chance: None,
            pause: PAUSE.0,
            waits: 0,
        }
    }

    /// Returns true if a queue too short to be seen overflows.
    pub(super) fn overflows(&self) -> bool {
        self.by_chance.is_some()
    }

    /// Returns the share of the sent bytes for whose loss the sender should make up, if it loses
    /// `loss` in all.
    pub(super) fn by_chance(&self, loss: f64) -> f64 {
        self.by_chance.map_or(loss, |share| share.min(loss))
    }

    /// Returns true if a test should begin instead of a probe for bandwidth.
    pub(super) fn begins(&mut self, loss: f64) -> bool {
        if self.waits > 0 {
            self.waits -= 1;
            return false;
        }
        if loss < LEAST_LOSS {
            return false;
        }
        (self.tests, self.rounds) = (self.tests + 1, 0);
        true
    }

    /// Takes a round of a test in which about `packets` were sent and `share` of them lost; `usual`
    /// is the share that is lost otherwise. Returns true if the test is over.
    pub(super) fn ends(&mut self, packets: f64, share: f64, usual: f64) -> bool {
        self.rounds += 1;
        if self.rounds == 1 {
            return false;
        }
        if self.expected > OLD {
            (self.expected, self.lost) = (self.expected / 2.0, self.lost / 2.0);
        }
        self.expected += packets * usual;
        self.lost += packets * share;
        let fewer = self.expected - self.lost;
        let deviation = self.expected.sqrt();
        if fewer >= CLEAR * deviation {
            if self.tests >= ENOUGH_TESTS {
                self.pause = PAUSE.0;
                self.by_chance = Some(self.share(usual));
                self.conclude();
            }
            return true;
        }
        let is_over = self.rounds > TEST_ROUNDS;
        let by_chance = fewer <= deviation && self.expected >= ENOUGH;
        if by_chance || (is_over && self.tests >= MOST_TESTS) {
            // A sender that holds back loses nothing but by chance. Now and then it sends more for a
            // while, to find out whether it still has to hold back.
            let tries = self.overflows() && self.pause >= PAUSE.1;
            let holds_back = self.overflows() && !tries;
            self.by_chance = holds_back.then(|| self.share(usual));
            self.waits = if tries { 0 } else { self.pause };
            self.pause = match tries {
                true => PAUSE.0,
                false => (2 * self.pause).min(PAUSE.1),
            };
            self.conclude();
            return true;
        }
        is_over
    }

    // Returns the share of packets that the tests have lost.
    fn share(&self, usual: f64) -> f64 {
        usual * self.lost / self.expected.max(f64::MIN_POSITIVE)
    }

    fn conclude(&mut self) {
        (self.lost, self.expected, self.tests) = (0.0, 0.0, 0);
    }

    /// Forgets what was found: the path may be another one.
    pub(super) fn forget(&mut self) {
        *self = LossTest::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a test if one is due. `lost` says how many of `packets` a round loses.
    fn run(test: &mut LossTest, packets: f64, usual: f64, mut lost: impl FnMut() -> f64) {
        if test.begins(usual) {
            let mut rounds = 1;
            while !test.ends(packets, lost() / packets, usual) {
                rounds += 1;
                assert!(rounds <= TEST_ROUNDS + 1);
            }
        }
    }

    #[test]
    fn what_is_lost_no_more_overflowed_and_what_is_lost_still_is_made_up_for() {
        for (packets, chance) in [(10.0, 0.0), (100.0, 0.03), (5_000.0, 0.05)] {
            let mut test = LossTest::new();
            for _ in 0..20 {
                run(&mut test, packets, 0.12, || chance * packets);
            }
            assert!(test.overflows(), "{packets}: {test:?}");
            assert!((test.by_chance(0.12) - chance).abs() < 0.001, "{test:?}");
        }
    }

    #[test]
    fn a_sender_that_holds_back_tries_again_in_time() {
        let mut test = LossTest::new();
        for _ in 0..10 {
            run(&mut test, 100.0, 0.12, || 0.0);
        }
        assert!(test.overflows());
        let mut probes = 0;
        while test.overflows() {
            run(&mut test, 100.0, 0.05, || 5.0);
            probes += 1;
            assert!(probes < 4 * PAUSE.1);
        }
        assert!(probes >= PAUSE.1 / 2, "{probes}");
    }

    proptest! {
        /// Whatever share is lost, random losses are never taken for those of a queue.
        #[test]
        fn chance_is_no_overflow(
            share in 0.02f64..0.3,
            packets in 4usize..60,
            draws in proptest::collection::vec(0.0f64..1.0, 3_000..6_000),
        ) {
            let mut test = LossTest::new();
            let mut rounds = draws.chunks_exact(packets).map(|round| {
                round.iter().filter(|draw| **draw < share).count() as f64
            });
            for _ in 0..40 {
                let lost = || rounds.next().unwrap_or(share * packets as f64);
                run(&mut test, packets as f64, share, lost);
                prop_assert!(!test.overflows(), "{test:?}");
            }
        }
    }
}
