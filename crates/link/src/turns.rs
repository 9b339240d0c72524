//! Fair queueing by bytes among the lanes that share a link.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM '96) with equal weights: each lane has a
//! clock of its sent bytes, the lane furthest behind goes next, and a lane that joins starts at the
//! time of the present ones. So a lane is not penalised for what it sent while it was alone, and
//! gains no credit while it is idle. Virtual time advances by an even share of what is sent, as in weighted
//! fair queueing: with the clock of the last served lane alone it would stand still while new lanes
//! come with one piece each, and the others would get nothing.

use std::collections::{BTreeMap, BTreeSet};

/// Lanes with something to send, in the order of their turns.
///
/// As long as two lanes are both present, the bytes that they have sent since the later of them
/// joined differ by at most a turn and the largest piece that either sent.
#[derive(Clone, Debug)]
pub struct Turns<K> {
    // Bytes that a lane may be ahead of the others before its turn is over. Changing the lane with
    // each packet would cost more than it gains.
    turn: u64,
    clocks: BTreeMap<K, u64>,
    order: BTreeSet<(u64, K)>,
    // The time at which a lane joins: what each of the lanes has had, or the clock of the last served
    // one at the start of its service.
    now: u64,
    // Bytes sent that are not part of `now` yet.
    rest: u64,
    current: Option<K>,
}

impl<K: Copy + Ord> Turns<K> {
    /// Returns an empty set of lanes; `turn` is the bytes of a turn.
    pub fn new(turn: u64) -> Turns<K> {
        Turns {
            turn,
            clocks: BTreeMap::new(),
            order: BTreeSet::new(),
            now: 0,
            rest: 0,
            current: None,
        }
    }

    /// Adds `lane`, which has something to send from now on.
    pub fn join(&mut self, lane: K) {
        if !self.clocks.contains_key(&lane) {
            self.clocks.insert(lane, self.now);
            self.order.insert((self.now, lane));
        }
    }

    /// Removes `lane`, which has nothing more to send.
    pub fn leave(&mut self, lane: K) {
        if let Some(clock) = self.clocks.remove(&lane) {
            self.order.remove(&(clock, lane));
        }
        if self.current == Some(lane) {
            self.current = None;
        }
    }

    /// Returns the lane that may send next.
    pub fn next(&self) -> Option<K> {
        let (least, first) = self.order.first()?;
        let current = self.current.and_then(|lane| {
            let clock = self.clocks.get(&lane)?;
            (*clock < least + self.turn).then_some(lane)
        });
        current.or(Some(*first))
    }

    /// Notes that `lane` has sent `bytes` bytes.
    pub fn spend(&mut self, lane: K, bytes: u64) {
        let Some(clock) = self.clocks.get_mut(&lane) else {
            return;
        };
        self.order.remove(&(*clock, lane));
        let lanes = self.order.len() as u64 + 1;
        let sent = self.rest + bytes;
        self.rest = sent % lanes;
        self.now = (self.now + sent / lanes).max(*clock);
        *clock += bytes;
        self.order.insert((*clock, lane));
        self.current = Some(lane);
    }

    /// Returns true if no lane has anything to send.
    pub fn is_empty(&self) -> bool {
        self.clocks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TURN: u64 = 3_000;
    const LARGEST: u64 = 9_000;

    #[test]
    fn a_lane_is_not_penalised_for_sending_alone_and_gains_nothing_while_idle() {
        let mut turns = Turns::new(TURN);
        turns.join(1);
        for _ in 0..1_000 {
            turns.spend(1, 1_500);
        }
        turns.join(2);
        let mut sent = [0u64; 3];
        for _ in 0..1_000 {
            let lane: usize = turns.next().expect("two lanes");
            turns.spend(lane, 1_500);
            sent[lane] += 1_500;
        }
        assert!(sent[1].abs_diff(sent[2]) <= TURN + 1_500, "{sent:?}");
        turns.leave(1);
        turns.leave(2);
        assert!(turns.is_empty() && turns.next().is_none());
    }

    #[test]
    fn lanes_that_come_with_one_piece_each_do_not_take_everything() {
        let mut turns = Turns::new(0);
        turns.join(0);
        turns.spend(0, 1_000);
        let mut sent = 0;
        for newcomer in 1..1_000 {
            turns.join(newcomer);
            let lane = turns.next().expect("two lanes");
            turns.spend(lane, 1_000);
            if lane == 0 {
                sent += 1;
            } else {
                turns.leave(lane);
            }
        }
        // One newcomer a piece, so that each time the first lane is served one more waits: its share
        // falls with the root of their number.
        assert!((30..60).contains(&sent), "{sent} of 999");
    }

    proptest! {
        /// The model is a ledger of the bytes that each pair has sent since both are present.
        #[test]
        fn two_lanes_that_stay_get_the_same(
            steps in prop::collection::vec((0u8..8, 0usize..6, 1..=LARGEST), 1..400),
        ) {
            let mut turns = Turns::new(TURN);
            let mut here = [false; 6];
            let mut since = [[0i64; 6]; 6];
            for (step, lane, bytes) in steps {
                match step {
                    0 if !here[lane] => {
                        turns.join(lane);
                        here[lane] = true;
                        since[lane] = [0; 6];
                        since.iter_mut().for_each(|of| of[lane] = 0);
                    }
                    1 => {
                        turns.leave(lane);
                        here[lane] = false;
                    }
                    _ => {
                        let next = turns.next();
                        prop_assert_eq!(next.is_some(), here.contains(&true));
                        let Some(next) = next else { continue };
                        prop_assert!(here[next]);
                        turns.spend(next, bytes);
                        since[next].iter_mut().for_each(|sent| *sent += bytes as i64);
                    }
                }
                for one in 0..6 {
                    for other in 0..6 {
                        if here[one] && here[other] {
                            let ahead = since[one][other] - since[other][one];
                            // A lane joins at the time of the last served one, which may be a turn
                            // and a piece before the others.
                            prop_assert!(ahead <= 2 * (TURN + LARGEST) as i64, "{one} {other} {ahead}");
                        }
                    }
                }
            }
        }
    }
}
