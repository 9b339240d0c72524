//! An adversary on the path, against what two hops promise.

use super::*;
use crate::hop::secure::PostQuantum;

#[derive(Clone, Debug)]
enum Act {
    Send {
        end: usize,
        len: usize,
    },
    Deliver {
        to: usize,
        at: prop::sample::Index,
    },
    Lose {
        to: usize,
        at: prop::sample::Index,
    },
    Replay {
        to: usize,
        at: prop::sample::Index,
    },
    Reflect {
        to: usize,
        at: prop::sample::Index,
    },
    Corrupt {
        to: usize,
        at: prop::sample::Index,
        byte: prop::sample::Index,
        change: u8,
    },
    Inject {
        to: usize,
        bytes: Vec<u8>,
    },
    Run {
        millis: u64,
    },
    Pass {
        millis: u64,
    },
    Restart {
        end: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let at = any::<prop::sample::Index>;
    let head = prop_oneof![
        Just(0x20u8),
        Just(0x21),
        Just(0x26),
        0x30u8..0x36,
        any::<u8>()
    ];
    prop_oneof![
        4 => (0..2usize, 1usize..60_000).prop_map(|(end, len)| Act::Send { end, len }),
        8 => (0..2usize, at()).prop_map(|(to, at)| Act::Deliver { to, at }),
        2 => (0..2usize, at()).prop_map(|(to, at)| Act::Lose { to, at }),
        6 => (0..2usize, at()).prop_map(|(to, at)| Act::Replay { to, at }),
        2 => (0..2usize, at()).prop_map(|(to, at)| Act::Reflect { to, at }),
        6 => (0..2usize, at(), at(), 1u8..).prop_map(|(to, at, byte, change)| Act::Corrupt { to, at, byte, change }),
        3 => (0..2usize, head, prop::collection::vec(any::<u8>(), 0..260)).prop_map(|(to, head, mut bytes)| {
            bytes.insert(0, head);
            Act::Inject { to, bytes }
        }),
        4 => (1u64..60).prop_map(|millis| Act::Run { millis }),
        2 => (0u64..3_000).prop_map(|millis| Act::Pass { millis }),
        1 => (0..2usize).prop_map(|end| Act::Restart { end }),
    ]
}

impl Wire {
    fn pick(&mut self, to: usize, at: prop::sample::Index, is_taken: bool) -> Option<Vec<u8>> {
        let from = if is_taken {
            &mut self.on_the_way[to]
        } else {
            &mut self.seen[to]
        };
        if from.is_empty() {
            return None;
        }
        let at = at.index(from.len());
        Some(match is_taken {
            true => from.remove(at),
            false => from[at].clone(),
        })
    }

    fn apply(&mut self, act: &Act, number: u64, sent: &mut BTreeMap<u64, (usize, u64, usize)>) {
        self.collect();
        match act {
            Act::Send { end, len } => {
                let run = self.ends[*end].config.incarnation;
                sent.insert(number, (*end, run, *len));
                self.send(*end, number, *len);
            }
            Act::Deliver { to, at } => {
                if let Some(frame) = self.pick(*to, *at, true) {
                    self.deliver(*to, &frame);
                }
            }
            Act::Lose { to, at } => _ = self.pick(*to, *at, true),
            Act::Replay { to, at } => {
                if let Some(frame) = self.pick(*to, *at, false) {
                    self.deliver(*to, &frame);
                }
            }
            Act::Reflect { to, at } => {
                if let Some(frame) = self.pick(1 - *to, *at, false) {
                    self.deliver(*to, &frame);
                }
            }
            Act::Corrupt {
                to,
                at,
                byte,
                change,
            } => {
                if let Some(mut frame) = self.pick(*to, *at, false) {
                    *byte.get_mut(&mut frame) ^= change;
                    self.deliver(*to, &frame);
                }
            }
            Act::Inject { to, bytes } => self.deliver(*to, bytes),
            Act::Run { millis } => self.run(*millis),
            Act::Pass { millis } => self.pass(*millis),
            Act::Restart { end } => self.restart(*end),
        }
    }

    fn check(&self, sent: &BTreeMap<u64, (usize, u64, usize)>) {
        for (end, this) in self.ends.iter().enumerate() {
            let mut once = std::collections::BTreeSet::new();
            for (session, bytes) in &this.received {
                let tag = tag_of(bytes);
                let (from, _, len) = sent[&tag];
                assert_eq!(
                    (from, bytes),
                    (1 - end, &chunk(tag, len)),
                    "what the other end sent"
                );
                assert!(once.insert((*session, tag)), "{tag} twice in {session:?}");
            }
            for tag in &this.delivered {
                let there = &self.ends[1 - end].received;
                assert!(
                    there.iter().any(|(_, bytes)| tag_of(bytes) == *tag),
                    "{tag} never arrived"
                );
            }
            for event in &this.events {
                if let HopEvent::Up { neighbour, .. } = event {
                    assert_eq!(
                        *neighbour,
                        keys(1 - end).guid(),
                        "nobody else is a neighbour"
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 300, ..ProptestConfig::default() })]

    /// What one end accepts, the other end sent (on a plain link, from one in the middle that writes no
    /// checksums), once in a session (calls that cross can make two of
    /// them, and what has no acknowledgement is then sent again); and when the one in the middle rests, all
    /// arrives.
    #[test]
    fn whoever_is_between_can_only_lose_and_delay(
        both_call: bool, hybrid: bool, plain: bool,
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let post_quantum = if hybrid { PostQuantum::Offer } else { PostQuantum::Off };
        let caller = HopConfig { post_quantum, plain, ..config(0, 1) };
        let mut wire = Wire::of([caller, HopConfig { calls: both_call, plain, ..config(1, 1) }]);
        let mut sent = BTreeMap::new();
        for (number, act) in (0..).zip(&acts) {
            wire.apply(act, number, &mut sent);
            wire.check(&sent);
        }
        for _ in 0..40 {
            wire.run(100);
            wire.pass(400);
        }
        wire.run(100);
        wire.check(&sent);
        for (tag, (end, run, _)) in &sent {
            if wire.ends[*end].config.incarnation == *run {
                prop_assert!(wire.ends[*end].delivered.contains(tag), "{} is not delivered: {:?}", tag, wire.ends.each_ref().map(|end| end.hop.stats()));
            }
        }
    }

    /// Whatever comes from whom.
    #[test]
    fn a_gate_gives_no_more_than_it_gets_and_no_port_to_who_has_not_asked(
        plain: bool, heads in prop::collection::vec(any::<u8>(), 1..8), bytes in prop::collection::vec(any::<u8>(), 0..1_200),
    ) {
        let mut site = Site::new(plain);
        for head in heads {
            let mut frame = bytes.clone();
            frame.insert(0, if head < 128 { 0x20 | head & 15 } else { 0x30 | head & 7 });
            let (admission, _) = site.ask(Time::ZERO, CALLER, &frame);
            prop_assert_ne!(admission, Admission::Admitted);
        }
    }
}
