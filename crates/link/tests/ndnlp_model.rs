//! The link service compared with a reference model of sent, received and abandoned packets.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::collections::BTreeMap;

use crate::faces::{self, Faces, packet, reordering, tag};
use proptest::prelude::*;
use whimbrel_link::ndnlp::{LinkServiceConfig, Mode, PaperOptions, Reliability};
use whimbrel_sim::link::LinkSpec;

#[derive(Clone, Debug)]
enum Act {
    Send {
        end: usize,
        data: bool,
        len: usize,
        burst: u8,
    },
    Restart {
        end: usize,
    },
    Mtu {
        end: usize,
        mtu: usize,
    },
    Outage {
        end: usize,
        millis: u64,
    },
    Block {
        end: usize,
    },
    Unblock {
        end: usize,
    },
    Reliability {
        end: usize,
        reliability: Reliability,
    },
    Junk {
        end: usize,
        frame: Vec<u8>,
    },
}

fn reliability() -> impl Strategy<Value = Reliability> {
    prop_oneof![
        1 => Just(Reliability::Off),
        2 => (1u8..4, 1u8..4, any::<bool>()).prop_map(|(max_retransmissions, later_acks, acks_together)| {
            Reliability::Paper(PaperOptions { max_retransmissions, later_acks, acks_together })
        }),
        3 => Just(Reliability::Ndnlpv2),
        4 => Just(Reliability::Adaptive),
        4 => Just(Reliability::Auto),
    ]
}

/// Draws only packets and outages: a profile's promises hold to the letter then.
fn calm_act() -> impl Strategy<Value = Act> {
    let end = 0usize..2;
    prop_oneof![
        12 => (end.clone(), any::<bool>(), prop_oneof![12usize..120, 12usize..1400, 1000usize..8800], 1u8..12)
            .prop_map(|(end, data, len, burst)| Act::Send { end, data, len, burst }),
        1 => (end.clone(), 1u64..400).prop_map(|(end, millis)| Act::Outage { end, millis }),
        1 => end.clone().prop_map(|end| Act::Block { end }),
        2 => end.prop_map(|end| Act::Unblock { end }),
    ]
}

fn wild_act() -> impl Strategy<Value = Act> {
    let end = 0usize..2;
    prop_oneof![
        12 => calm_act(),
        1 => end.clone().prop_map(|end| Act::Restart { end }),
        1 => (end.clone(), 100usize..2000).prop_map(|(end, mtu)| Act::Mtu { end, mtu }),
        1 => (end.clone(), reliability()).prop_map(|(end, reliability)| Act::Reliability { end, reliability }),
        1 => (end, prop::collection::vec(any::<u8>(), 0..60)).prop_map(|(end, frame)| Act::Junk { end, frame }),
    ]
}

fn path(reorder: bool, duplicate: bool, corrupt: bool) -> impl Strategy<Value = LinkSpec> {
    let share = |most: f64| prop_oneof![Just(0.0), 0.0..most];
    (
        share(0.4),
        share(0.3),
        share(0.1),
        share(0.4),
        0u64..40,
        0u64..60,
    )
        .prop_map(move |(loss, dup, bad, late, delay, late_by)| LinkSpec {
            duplicate: if duplicate { dup } else { 0.0 },
            corrupt: if corrupt { bad } else { 0.0 },
            reorder: reordering(
                if reorder { late } else { 0.0 },
                Duration::from_millis(late_by),
            ),
            ..faces::losing(Duration::from_millis(delay), loss)
        })
}

struct Run {
    faces: Faces,
    /// By tag: sending end, packet, and whether both ends had agreed on a profile that recovers.
    sent: BTreeMap<u64, (usize, bytes::Bytes, bool)>,
}

fn set_reliability(faces: &mut Faces, end: usize, reliability: Reliability) {
    faces.at(end, |end, _| {
        end.config.reliability = reliability;
        end.service.set_reliability(reliability);
    });
}

impl Run {
    fn new(
        seed: u64,
        reliability: [Reliability; 2],
        paths: [LinkSpec; 2],
        smallest_frame: usize,
    ) -> Run {
        let config = |reliability| {
            let mut config = LinkServiceConfig::datagram(1400);
            (config.reliability, config.smallest_frame) = (reliability, smallest_frame);
            config.max_outstanding = 2048;
            config.finds_path_mtu = true;
            config
        };
        Run {
            faces: Faces::with(seed, reliability.map(config), paths),
            sent: BTreeMap::new(),
        }
    }

    fn act(&mut self, act: &Act) {
        let faces = &mut self.faces;
        match act {
            Act::Send {
                end,
                data,
                len,
                burst,
            } => {
                for _ in 0..*burst {
                    let number = self.sent.len() as u64;
                    let packet = packet(*data, number, *len);
                    let mode = |end: usize| faces.net[end].service.stats().mode;
                    let recovers =
                        mode(0) == mode(1) && matches!(mode(0), Mode::Adaptive | Mode::Ndnlpv2);
                    self.sent.insert(number, (*end, packet.clone(), recovers));
                    faces.send(*end, packet);
                }
            }
            Act::Restart { end } => faces.restart(*end),
            Act::Mtu { end, mtu } => faces.set_mtu(*end, *mtu),
            Act::Outage { end, millis } => faces.cut(*end, Duration::from_millis(*millis)),
            Act::Block { end } => faces.at(*end, |end, _| end.service.set_blocked(true)),
            Act::Unblock { end } => faces.at(*end, |end, _| end.service.set_blocked(false)),
            Act::Reliability { end, reliability } => set_reliability(faces, *end, *reliability),
            Act::Junk { end, frame } => faces.hand_in(*end, frame),
        }
    }

    /// Returns how often each packet arrived.
    fn copies(&self) -> BTreeMap<u64, usize> {
        let mut copies = BTreeMap::new();
        for end in self.faces.ends() {
            for (_, packet, _) in &end.received {
                *copies.entry(tag(packet)).or_default() += 1;
            }
        }
        copies
    }

    fn check_nothing_invented(&self) {
        for (end, this) in self.faces.ends().into_iter().enumerate() {
            for (_, packet, _) in &this.received {
                let (from, sent, _) = &self.sent[&tag(packet)];
                assert_eq!(
                    (*from, sent),
                    (1 - end, packet),
                    "intact, and from the other end"
                );
            }
        }
    }

    fn check_bounds(&self) {
        for end in self.faces.ends() {
            let stats = end.service.stats();
            assert!(stats.outstanding <= end.config.max_outstanding);
            assert!(stats.queue_packets <= end.config.queue_packets + end.config.max_outstanding);
        }
    }

    /// Heals the path, unblocks all ports, and runs until no event is left.
    fn heal_and_rest(&mut self) {
        self.faces.heal();
        for end in 0..2 {
            self.faces.at(end, |end, _| end.service.set_blocked(false));
        }
        assert!(self.faces.run_for(120_000), "it does not become idle");
        for end in self.faces.ends() {
            let stats = end.service.stats();
            let paper = matches!(end.config.reliability, Reliability::Paper(_));
            assert!(paper || stats.outstanding == 0, "{stats:?}");
            assert_eq!((stats.queue_packets, stats.queue_bytes), (0, 0));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// Under loss, reordering, outages and pauses, no packet is invented or delivered twice. A
    /// packet sent while both ends recover losses arrives, or its sender is told that it was
    /// abandoned.
    #[test]
    fn every_packet_arrives_once_or_is_abandoned(
        seed: u64, reliability in reliability(), smallest in prop_oneof![Just(0usize), Just(46)],
        paths in [path(true, false, false), path(true, false, false)],
        acts in prop::collection::vec((0u64..60, calm_act()), 1..60),
    ) {
        let mut run = Run::new(seed, [reliability; 2], paths, smallest);
        for (millis, act) in &acts {
            run.faces.run_for(*millis);
            run.act(act);
            run.check_bounds();
        }
        run.heal_and_rest();
        run.check_nothing_invented();
        let copies = run.copies();
        for (tag, count) in &copies {
            prop_assert_eq!(*count, 1, "packet {} came {} times", tag, count);
        }
        let stats = [0, 1].map(|end| run.faces.net[end].service.stats().clone());
        for (tag, (end, packet, recovers)) in &run.sent {
            // Packets may be lost when an agreement ends, or when the queue is full.
            let let_go = stats[*end].abandoned + stats[*end].drops.queue_full > 0;
            let came = copies.contains_key(tag);
            // A fragmented packet can be abandoned at either end: by the sender, and by the
            // receiver after its timeout.
            let incomplete = packet.len() > 1300 && stats[1 - end].drops.reassembly_timeout > 0;
            let given_up = run.faces.net[*end].given_up.contains(packet);
            prop_assert!(!recovers || let_go || came || given_up || incomplete, "packet {} vanished", tag);
        }
    }

    /// The network duplicates, too: each copy that it makes adds at most one, and once the adaptive
    /// profile is agreed on, none.
    #[test]
    fn duplicates_of_the_network_are_recognised(
        seed: u64, paths in [path(true, true, false), path(true, true, false)],
        acts in prop::collection::vec((0u64..60, calm_act()), 1..40),
    ) {
        let mut run = Run::new(seed, [Reliability::Adaptive; 2], paths, 0);
        for (millis, act) in &acts {
            run.faces.run_for(*millis);
            run.act(act);
        }
        run.heal_and_rest();
        run.check_nothing_invented();
        let sessions = run.faces.ends().iter().map(|end| end.service.stats().sessions).max();
        for (tag, count) in run.copies() {
            let agreed = run.sent[&tag].2 && sessions == Some(1);
            prop_assert!(count <= if agreed { 1 } else { 2 }, "packet {} came {} times", tag, count);
        }
    }

    /// With restarts, changes of MTU and settings, junk and damaged frames, the service does not
    /// panic, delivers no packet that was not sent unless frames are damaged, keeps its memory
    /// bounded, and becomes idle.
    #[test]
    fn whatever_happens_it_stays_within_bounds_and_comes_to_rest(
        seed: u64, reliability in [reliability(), reliability()],
        paths in [path(true, true, true), path(true, true, true)],
        acts in prop::collection::vec((0u64..60, wild_act()), 1..60),
    ) {
        let damaged = paths.iter().any(|path| path.corrupt > 0.0)
            || acts.iter().any(|(_, act)| matches!(act, Act::Junk { .. }));
        let mut run = Run::new(seed, reliability, paths, 0);
        for (millis, act) in &acts {
            run.faces.run_for(*millis);
            run.act(act);
            run.check_bounds();
        }
        run.heal_and_rest();
        if !damaged {
            run.check_nothing_invented();
        }
        // Afterwards, two ends with the same settings agree again and recover.
        for end in 0..2 {
            run.faces.set_mtu(end, 1400);
            set_reliability(&mut run.faces, end, Reliability::Adaptive);
        }
        let calm = |end| Act::Send { end, data: false, len: 60, burst: 1 };
        for _ in 0..80 {
            run.act(&calm(0));
            run.act(&calm(1));
            run.faces.run_for(50);
        }
        prop_assert_eq!(run.faces.net[0].service.stats().mode, Mode::Adaptive);
        prop_assert_eq!(run.faces.net[1].service.stats().mode, Mode::Adaptive);
    }
}
