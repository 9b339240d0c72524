//! Tells random loss from that of a queue which is too short to be seen.
//!
//! A hop makes up for random loss by sending more. What a queue of a tenth of a bandwidth-delay
//! product drops looks the same: round trips do not grow. There, sending more loses more, for as long
//! as the transfer lasts. [`LossTest`] tells them apart. For a few rounds the hop sends less than it
//! knows the path to carry: what overflowed is lost no more, and chance still takes its share.

/// Less loss than this is not worth a test.
const LEAST_LOSS: f64 = 0.02;
/// Rounds of a test that count, at most. Its first one does not: what is answered then was sent before
/// the test.
const TEST_ROUNDS: u32 = 4;
/// A queue overflows if tests lost fewer packets than are lost otherwise, by this multiple of the
/// deviation that the losses of cruise have. ...
const CLEAR: f64 = 4.0;
/// ... It takes no fewer tests than this: a gap between two bursts may outlast one.
const ENOUGH_TESTS: u32 = 2;
/// It was chance if tests lost about as many as are lost otherwise: out of no fewer packets than
/// this.
const ENOUGH: f64 = 16.0;
/// After this many tests without a verdict, it was chance.
const MOST_TESTS: u32 = 8;
/// Older tests count half from this many packets on.
const OLD: f64 = 256.0;
/// Rounds over which the deviation of losses is smoothed.
const SPREAD_ROUNDS: f64 = 32.0;
/// Probes for bandwidth between two tests that have shown chance; twice as many after each further
/// one.
const PAUSE: (u32, u32) = (8, 64);

/// Where the loss of a path comes from, as tests have shown.
#[derive(Clone, Debug)]
pub(super) struct LossTest {
    // Packets sent and lost in this cruise.
    cruise: (f64, f64),
    // Share lost in cruise, smoothed, and the variance of a round's losses as a multiple of what
    // independent ones have.
    mean: f64,
    spread: f64,
    // Share that is lost outside the tests.
    usual: f64,
    // Packets of tests without a verdict: those lost, and those that would have been otherwise.
    lost: f64,
    expected: f64,
    tests: u32,
    rounds: u32,
    // Share lost in tests, if they have shown that a queue overflows.
    by_chance: Option<f64>,
    pause: u32,
    waits: u32,
    // Cruises in a row that lost little, while the sender holds back.
    calm: u32,
}

impl LossTest {
    pub(super) fn new() -> LossTest {
        LossTest {
            cruise: (0.0, 0.0),
            mean: 0.0,
            spread: 1.0,
            usual: 0.0,
            lost: 0.0,
            expected: 0.0,
            tests: 0,
            rounds: 0,
            by_chance: None,
            pause: PAUSE.0,
            waits: 0,
            calm: 0,
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

    /// Takes a round of cruise in which `packets` were sent and `lost` of them lost.
    pub(super) fn cruise(&mut self, packets: f64, lost: f64) {
        let (sent, gone) = self.cruise;
        self.cruise = (sent + packets, gone + lost);
        let share = lost / packets.max(1.0);
        let weight = match self.mean > 0.0 {
            true => 1.0 / SPREAD_ROUNDS,
            false => 1.0,
        };
        self.mean += weight * (share - self.mean);
        let mean = self.mean * packets;
        if mean > 0.0 {
            let spread = (lost - mean) * (lost - mean) / mean;
            self.spread += (spread - self.spread) / SPREAD_ROUNDS;
        }
    }

    /// Ends a cruise. Returns true if a test should follow instead of a probe for bandwidth; `loss` is
    /// the share lost of late, over a longer time than this cruise.
    pub(super) fn begins(&mut self, loss: f64) -> bool {
        let (sent, lost) = core::mem::take(&mut self.cruise);
        // Losses that have ended are no longer usual.
        self.usual = loss.min(lost / sent.max(1.0));
        self.waits = self.waits.saturating_sub(1);
        if self.usual < LEAST_LOSS {
            self.conclude();
            self.calm += 1;
            // The path may have changed: a sender that holds back must find out in time.
            if self.calm >= PAUSE.1 {
                *self = LossTest::new();
            }
            return false;
        }
        self.calm = 0;
        self.rounds = 0;
        self.waits == 0
    }

    /// Takes a round of a test in which `packets` were sent and `lost` of them lost. Returns true if
    /// the test is over.
    pub(super) fn ends(&mut self, packets: f64, lost: f64) -> bool {
        self.rounds += 1;
        match self.rounds {
            1 => return false,
            2 => self.tests += 1,
            _ => {}
        }
        if self.expected > OLD {
            (self.expected, self.lost) = (self.expected / 2.0, self.lost / 2.0);
        }
        self.expected += packets * self.usual;
        self.lost += lost;
        let fewer = self.expected - self.lost;
        let deviation = (self.expected * self.spread.max(1.0)).sqrt();
        if fewer > CLEAR * deviation {
            if self.tests >= ENOUGH_TESTS {
                self.pause = PAUSE.0;
                self.by_chance = Some(self.share());
                self.conclude();
            }
            return true;
        }
        let is_over = self.rounds > TEST_ROUNDS;
        let by_chance = fewer <= deviation && self.expected >= ENOUGH;
        if by_chance || (is_over && self.tests >= MOST_TESTS) {
            // A sender that holds back ends that after four such verdicts in a row, too.
            let tries = self.overflows() && self.pause >= PAUSE.1;
            let holds_back = self.overflows() && !tries;
            self.by_chance = holds_back.then(|| self.share());
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
    fn share(&self) -> f64 {
        self.usual * self.lost / self.expected.max(f64::MIN_POSITIVE)
    }

    fn conclude(&mut self) {
        (self.lost, self.expected, self.tests) = (0.0, 0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_core::SeededRng;

    /// Runs a cruise of eight rounds, which loses `usual` of its packets, and a test if one is due,
    /// which loses `lost` of them. Each share is that of a round.
    fn run(
        test: &mut LossTest,
        packets: f64,
        mut usual: impl FnMut() -> f64,
        mut lost: impl FnMut() -> f64,
    ) {
        (0..8).for_each(|_| test.cruise(packets, packets * usual()));
        if test.begins(1.0) {
            let mut rounds = 1;
            while !test.ends(packets, packets * lost()) {
                rounds += 1;
                assert!(rounds <= TEST_ROUNDS + 1);
            }
        }
    }

    #[test]
    fn what_is_lost_no_more_overflowed_and_what_is_lost_still_is_made_up_for() {
        for (packets, chance) in [(10.0, 0.0), (100.0, 0.03), (5_000.0, 0.05)] {
            let mut test = LossTest::new();
            (0..20).for_each(|_| run(&mut test, packets, || 0.12, || chance));
            assert!(test.overflows(), "{packets}: {test:?}");
            assert!((test.by_chance(0.12) - chance).abs() < 0.001, "{test:?}");
        }
    }

    #[test]
    fn a_sender_that_holds_back_tries_again_in_time() {
        for now_lost in [0.0, 0.05] {
            let mut test = LossTest::new();
            (0..10).for_each(|_| run(&mut test, 100.0, || 0.12, || 0.0));
            assert!(test.overflows());
            let mut cruises = 0;
            while test.overflows() {
                run(&mut test, 100.0, || now_lost, || now_lost);
                cruises += 1;
                assert!(cruises < 4 * PAUSE.1, "{now_lost}");
            }
            assert!(cruises >= PAUSE.1 / 2, "{now_lost}: {cruises}");
        }
    }

    /// Losses one by one and in bursts of ten, of 2 to 30 % of all packets, are never taken for those
    /// of a queue, and those that have ended neither.
    #[test]
    fn chance_is_no_overflow() {
        let mut random = SeededRng::new(1);
        for share in [0.02, 0.05, 0.1, 0.3] {
            for packets in [5u32, 40, 400] {
                for burst in [1.0, 10.0] {
                    let mut lost = std::iter::from_fn(|| {
                        let begins = |_: &u32| random.chance(share / burst);
                        let bursts = (0..packets).filter(begins).count();
                        Some((bursts as f64 * burst / f64::from(packets)).min(1.0))
                    });
                    let rounds: Vec<f64> = lost.by_ref().take(6_000).collect();
                    let next = core::cell::Cell::new(0);
                    let round = || {
                        next.set(next.get() + 1);
                        rounds[next.get() % rounds.len()]
                    };
                    let mut test = LossTest::new();
                    let mut taken = 0;
                    for _ in 0..400 {
                        run(&mut test, f64::from(packets), round, round);
                        taken += u32::from(test.overflows());
                    }
                    // It may be mistaken once in very many tests, and not for long.
                    assert!(taken <= 4, "{share} {packets} {burst}: {taken}");
                    for _ in 0..40 {
                        run(&mut test, f64::from(packets), || 0.0, || 0.0);
                    }
                    assert!(!test.overflows(), "{share} {packets} {burst}");
                }
            }
        }
    }
}
