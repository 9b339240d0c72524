//! The choice of the branch for the next chunk of a divided flow.
//!
//! Let `R` be the rate of a branch, `d` its one-way delay, `w` the bytes queued before the chunk, and `k`
//! the expected rounds of retransmission. A chunk of `s` bytes is complete after
//!
//! `F = (w + s) / R + d + k x RTT`.
//!
//! The branch with the smallest `F` takes the chunk if it has room. Another branch with room takes it
//! only if two conditions hold: it completes the chunk before the other branches would have sent the
//! whole backlog, and the bytes that overtake the chunk stay within the receiver's reordering budget.
//! So a slow branch carries a part of a long flow, but nothing of a short flow or of a tail.

use core::time::Duration;

/// Bound of all computed times.
const MAX_TIME: Duration = Duration::from_secs(600);
/// Packets that a hop sends in its first round trip, before it has measured a rate.
const FIRST_FLIGHT: u64 = 32;

/// The current measurements of a branch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Bytes per second that it delivers for this flow, if known.
    pub rate: Option<u64>,
    /// Smoothed round trip, including queues on the path.
    pub round_trip: Duration,
    /// Round trip of the empty path.
    pub least_round_trip: Duration,
    /// Share of the packets lost.
    pub loss: f64,
    /// Largest packet, in bytes.
    pub packet: u64,
    /// Bytes of all flows queued before the next chunk.
    pub waiting: u64,
    /// True if the branch would soon begin to send the next chunk.
    pub has_room: bool,
}

impl Measured {
    /// Returns the rate in bytes per second; before the first measurement, that of a first flight.
    pub fn rate(&self) -> u64 {
        let guess = || {
            let round_trip = self.round_trip.max(Duration::from_millis(1));
            FIRST_FLIGHT * self.packet * 1_000_000 / round_trip.as_micros() as u64
        };
        self.rate.unwrap_or_else(guess).max(1)
    }

    /// Returns the rounds of retransmission after which all packets of `bytes` bytes have most likely
    /// arrived: each round leaves the share `loss` of the missing packets missing.
    pub fn repairs(&self, bytes: u64) -> u32 {
        let packets = bytes.div_ceil(self.packet.max(1)).max(1) as f64;
        if self.loss * packets < 0.05 {
            return 0;
        }
        let rounds = packets.max(2.0).ln() / (1.0 / self.loss.clamp(1e-6, 0.9)).ln();
        (rounds.ceil() as u32).clamp(1, 8)
    }

    /// Returns the one-way delay, including queues on the path and retransmissions of `bytes` bytes.
    pub fn delay(&self, bytes: u64) -> Duration {
        let queue = self.round_trip.saturating_sub(self.least_round_trip);
        self.least_round_trip / 2 + queue + self.round_trip * self.repairs(bytes)
    }

    /// Reduces the queue on the path by what drains in `idle`, during which nothing was sent.
    pub fn let_drain(&mut self, idle: Duration) {
        self.round_trip = self
            .round_trip
            .saturating_sub(idle)
            .max(self.least_round_trip);
    }

    /// Returns the time until a chunk of `bytes` bytes is complete at the other end if it is given to the
    /// branch now.
    pub fn finish(&self, bytes: u64) -> Duration {
        time_of(self.waiting.saturating_add(bytes), self.rate()) + self.delay(bytes)
    }
}

/// Returns the time of `bytes` bytes at `rate` bytes per second.
pub fn time_of(bytes: u64, rate: u64) -> Duration {
    let micros = u128::from(bytes) * 1_000_000 / u128::from(rate.max(1));
    Duration::from_micros(micros.min(MAX_TIME.as_micros()) as u64)
}

/// The next chunk, and its flow.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Size of the next chunk, in bytes.
    pub bytes: u64,
    /// Bytes of the flow that wait here or are announced, including this chunk.
    pub backlog: u64,
    /// The reordering budget, in bytes.
    pub budget: u64,
}

/// Returns the index of the branch that takes the next chunk, or `None` if the chunk must wait.
pub fn choose(branches: &[Measured], wanted: Wanted) -> Option<usize> {
    let finish = |branch: &Measured| branch.finish(wanted.bytes);
    let best = branches.iter().map(finish).min()?;
    let total = branches.iter().map(Measured::rate).sum::<u64>();
    let patience = time_of(wanted.budget, total);
    let gated = |at: usize| {
        let own = finish(&branches[at]);
        own > best && (own > best + patience || own > finish_of_others(branches, at, wanted))
    };
    let with_room = (0..branches.len()).filter(|at| branches[*at].has_room);
    with_room
        .filter(|at| !gated(*at))
        .min_by_key(|at| finish(&branches[*at]))
}

/// Returns the time in which the other branches together would deliver the whole backlog.
fn finish_of_others(branches: &[Measured], at: usize, wanted: Wanted) -> Duration {
    let others = || {
        let all = branches.iter().enumerate();
        all.filter(|(other, _)| *other != at).map(|(_, it)| it)
    };
    let rate = others().map(Measured::rate).sum::<u64>();
    let waiting = others().map(|it| it.waiting).sum::<u64>();
    let delay = others().map(|it| it.delay(wanted.bytes)).min();
    time_of(waiting.saturating_add(wanted.backlog), rate) + delay.unwrap_or(MAX_TIME)
}

/// Returns the bytes that may overtake a chunk of `bytes` bytes on branch `at` at constant rates: those
/// that the other branches deliver before it is complete.
pub fn reordering_bound(branches: &[Measured], at: usize, bytes: u64) -> u64 {
    let own = branches[at].finish(bytes);
    let others = branches.iter().enumerate();
    let others = others.filter(|(other, _)| *other != at).map(|(_, it)| it);
    others
        .map(|it| {
            let ahead = own.saturating_sub(it.delay(bytes));
            (u128::from(it.rate()) * ahead.as_micros() / 1_000_000) as u64
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = 64 << 10;

    fn branch(mbit: u64, round_trip_ms: u64, waiting: u64, has_room: bool) -> Measured {
        Measured {
            rate: Some(mbit * 125_000),
            round_trip: Duration::from_millis(round_trip_ms),
            least_round_trip: Duration::from_millis(round_trip_ms),
            loss: 0.0,
            packet: 1452,
            waiting,
            has_room,
        }
    }

    fn wanted(backlog: u64) -> Wanted {
        Wanted {
            bytes: CHUNK,
            backlog,
            budget: 8 << 20,
        }
    }

    #[test]
    fn a_short_flow_stays_on_the_best_branch_and_a_long_one_uses_both() {
        let mut both = [branch(50, 10, CHUNK, false), branch(10, 200, 0, true)];
        assert_eq!(choose(&both, wanted(CHUNK)), None);
        assert_eq!(choose(&both, wanted(4 << 20)), Some(1));
        both[0].has_room = true;
        assert_eq!(choose(&both, wanted(4 << 20)), Some(0));
    }

    #[test]
    fn a_branch_that_would_be_overtaken_by_more_than_the_budget_waits() {
        let both = [branch(50, 10, CHUNK, false), branch(1, 500, 0, true)];
        assert_eq!(choose(&both, wanted(64 << 20)), Some(1));
        let strict = Wanted {
            budget: 256 << 10,
            ..wanted(64 << 20)
        };
        assert_eq!(choose(&both, strict), None);
    }

    #[test]
    fn losses_delay_a_branch_by_round_trips() {
        let mut lossy = branch(10, 100, 0, true);
        assert_eq!(lossy.repairs(CHUNK), 0);
        lossy.loss = 0.01;
        assert_eq!(lossy.repairs(1 << 20), 2);
        let clean = branch(10, 100, 0, true);
        assert!(lossy.finish(1 << 20) >= clean.finish(1 << 20) + Duration::from_millis(200));
    }

    #[test]
    fn the_queue_of_an_idle_branch_drains_and_its_path_does_not_get_shorter() {
        let queued = |idle_ms| {
            let mut late = branch(10, 40, 0, true);
            late.round_trip = Duration::from_millis(600);
            late.let_drain(Duration::from_millis(idle_ms));
            late
        };
        let fast = branch(100, 40, CHUNK, false);
        // The fast one alone would have sent all that waits after 360 ms.
        assert_eq!(choose(&[fast, queued(0)], wanted(4 << 20)), None);
        assert_eq!(choose(&[fast, queued(400)], wanted(4 << 20)), Some(1));
        assert_eq!(queued(10_000), branch(10, 40, 0, true));
    }

    prop_compose! {
        fn any_branch()(
            mbit in 1u64..1000, round_trip_ms in 1u64..1000, waiting in 0u64..1 << 20,
            has_room: bool, loss in 0.0f64..0.05,
        ) -> Measured {
            Measured { loss, ..branch(mbit, round_trip_ms, waiting, has_room) }
        }
    }

    proptest! {
        #[test]
        fn the_best_branch_is_never_gated_and_no_other_ends_later_than_without_it(
            branches in prop::collection::vec(any_branch(), 1..6), backlog in CHUNK..64 << 20,
            budget in 0u64..16 << 20,
        ) {
            let wanted = Wanted { bytes: CHUNK, backlog, budget };
            let finish = |at: usize| branches[at].finish(CHUNK);
            let best = (0..branches.len()).min_by_key(|at| finish(*at)).expect("a branch");
            match choose(&branches, wanted) {
                None => prop_assert!(!branches[best].has_room),
                Some(at) => {
                    prop_assert!(branches[at].has_room);
                    if branches[best].has_room {
                        prop_assert_eq!(finish(at), finish(best));
                    } else if finish(at) > finish(best) {
                        // The model: the others share the backlog as a fluid.
                        let mut rate = 0.0;
                        let mut bytes = backlog as f64;
                        let mut delay = f64::INFINITY;
                        for (_, it) in branches.iter().enumerate().filter(|(it, _)| *it != at) {
                            rate += it.rate() as f64;
                            bytes += it.waiting as f64;
                            delay = delay.min(it.delay(CHUNK).as_secs_f64());
                        }
                        prop_assert!(finish(at).as_secs_f64() <= bytes / rate + delay + 1e-4);
                        let total: u64 = branches.iter().map(Measured::rate).sum();
                        let late = finish(at).as_secs_f64() - finish(best).as_secs_f64();
                        prop_assert!(late <= budget as f64 / total as f64 + 1e-4);
                    }
                }
            }
        }
    }
}
