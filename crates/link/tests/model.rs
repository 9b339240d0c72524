//! Hop compared with a reference model of sent, received and acknowledged chunks.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use crate::pair::{self, Pair, chunk, config, plain, reordering};
use proptest::prelude::*;
use whimbrel_core::Time;
use whimbrel_link::{HopConfig, Pacing};
use whimbrel_sim::link::{LinkSpec, Loss};

#[derive(Clone, Debug)]
enum Act {
    Send {
        end: usize,
        len: usize,
    },
    Restart {
        end: usize,
    },
    /// Received chunks keep their room.
    Hold {
        end: usize,
    },
    Release {
        end: usize,
    },
    Withdraw {
        end: usize,
    },
    Outage {
        millis: u64,
    },
    Mtu {
        end: usize,
        mtu: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let end = 0usize..2;
    prop_oneof![
        12 => (end.clone(), prop_oneof![1usize..2_000, 1usize..60_000, 50_000usize..300_000]).prop_map(|(end, len)| Act::Send { end, len }),
        1 => end.clone().prop_map(|end| Act::Restart { end }),
        1 => end.clone().prop_map(|end| Act::Hold { end }),
        2 => end.clone().prop_map(|end| Act::Release { end }),
        1 => end.clone().prop_map(|end| Act::Withdraw { end }),
        1 => (1u64..3_000).prop_map(|millis| Act::Outage { millis }),
        1 => (end, 256usize..1_500).prop_map(|(end, mtu)| Act::Mtu { end, mtu }),
    ]
}

fn path() -> impl Strategy<Value = LinkSpec> {
    let share = || prop_oneof![Just(0.0), 0.0..0.1, 0.0..0.5];
    (
        share(),
        0.0..0.3f64,
        0.0..0.1f64,
        share(),
        0u64..40,
        0u64..60,
        prop_oneof![Just(0u64), 2_000_000u64..50_000_000],
    )
        .prop_map(
            |(loss, duplicate, corrupt, reorder, delay, reorder_by, rate)| {
                let path = pair::path(rate, Duration::from_millis(delay));
                LinkSpec {
                    loss: Loss::Independent(loss),
                    duplicate,
                    corrupt,
                    reorder: reordering(reorder, Duration::from_millis(reorder_by)),
                    ..path
                }
            },
        )
}

/// The properties of the pair that must hold, seen from outside.
#[derive(Default)]
struct Model {
    // By tag: length, sending end, and the run of that end.
    sent: BTreeMap<u64, (usize, usize, u64)>,
    withdrawn: BTreeSet<u64>,
}

impl Model {
    fn check(&self, pair: &Pair) {
        for (end, this) in pair.ends().into_iter().enumerate() {
            let other = pair.ends()[1 - end];
            let mut once = BTreeSet::new();
            for arrival in &this.received {
                let tag = arrival.tag();
                let (len, from, _) = self.sent[&tag];
                assert_eq!(
                    (from, &arrival.chunk),
                    (1 - end, &chunk(tag, len)),
                    "intact, and from the other end"
                );
                assert!(
                    once.insert((arrival.incarnation, tag)),
                    "chunk {tag} arrived twice in run {}",
                    arrival.incarnation
                );
            }
            let there: BTreeSet<u64> = other.received.iter().map(|arrival| arrival.tag()).collect();
            let mut acknowledged = BTreeSet::new();
            for tag in &this.delivered {
                assert!(
                    there.contains(tag),
                    "chunk {tag} is acknowledged but was never received"
                );
                assert!(
                    acknowledged.insert(tag),
                    "chunk {tag} is acknowledged twice"
                );
            }
            assert!(
                this.buffer.used() <= this.buffer.capacity().max(1_300),
                "{}",
                this.buffer.used()
            );
        }
    }

    fn all_delivered(&self, pair: &Pair) -> bool {
        self.sent.iter().all(|(tag, (_, end, run))| {
            self.withdrawn.contains(tag)
                || pair.net[*end].config.incarnation != *run
                || pair.net[*end].delivered.contains(tag)
        })
    }
}

fn run(
    seed: u64,
    is_plain: bool,
    paths: [LinkSpec; 2],
    pacing: [Pacing; 2],
    room: usize,
    acts: &[(u64, Act)],
) {
    let [a, b] = paths;
    let config = |end: usize| HopConfig {
        pacing: pacing[end],
        max_chunks_in_flight: 8,
        finished_memory: 64,
        ..if is_plain { plain(end) } else { config(end) }
    };
    let mut pair = Pair::with(seed, a, b, config(0), config(1), room);
    let mut model = Model::default();
    for (number, (millis, act)) in acts.iter().enumerate() {
        pair.drive(pair.now() + Duration::from_millis(*millis));
        model.check(&pair);
        match *act {
            Act::Send { end, len } => {
                let (tag, len) = (number as u64, len.max(8));
                model
                    .sent
                    .insert(tag, (len, end, pair.net[end].config.incarnation));
                pair.send(end, tag, chunk(tag, len));
            }
            Act::Restart { end } => pair.restart(end),
            Act::Hold { end } => pair.hold(end, true),
            Act::Release { end } => pair.hold(end, false),
            Act::Withdraw { end } => {
                let all = pair.at(end, |end, now| end.hop.withdraw_all(now));
                for (tag, head, body) in all {
                    assert_eq!(
                        [&head[..], &body[..]].concat(),
                        chunk(tag, model.sent[&tag].0)
                    );
                    model.withdrawn.insert(tag);
                }
            }
            Act::Outage { millis } => pair.cut(Duration::from_millis(millis)),
            Act::Mtu { end, mtu } => pair.set_mtu(end, mtu),
        }
    }
    let now = pair.now();
    pair.hold(0, false);
    pair.hold(1, false);
    let done = pair.drive_until(now + Duration::from_secs(600), |pair| {
        model.all_delivered(pair)
    });
    model.check(&pair);
    assert!(
        done,
        "not everything was delivered: {:?}",
        pair.ends().map(|end| end.hop.stats())
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// The properties hold under loss up to a half, reordering, duplication, corruption, closed
    /// windows, outages, changes of MTU and restarts of either side.
    #[test]
    fn acknowledged_chunks_arrived_intact_and_once_and_everything_is_delivered(
        seed: u64,
        is_plain: bool,
        a in path(),
        b in path(),
        unpaced in any::<[bool; 2]>(),
        room in prop_oneof![Just(64usize), Just(300), Just(4_096)],
        acts in prop::collection::vec((0u64..400, act()), 1..40),
    ) {
        let pacing = unpaced.map(|unpaced| if unpaced { Pacing::Unpaced } else { Pacing::Bottleneck });
        run(seed, is_plain, [a, b], pacing, room, &acts);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let drive = || {
        let path = pair::path(25_000_000, Duration::from_millis(5));
        let mut pair = Pair::new(7, path.with_loss(Loss::Independent(0.05)));
        (0..20).for_each(|tag| pair.send(0, tag, chunk(tag, 100_000)));
        pair.drive(Time::from_secs(3));
        (
            pair.net[0].frames,
            pair.net[1].frames,
            pair.net[0].hop.stats(),
        )
    };
    assert_eq!(drive(), drive());
}
