//! NDN faces over a path that silently drops large frames.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use crate::faces::{Faces, losing, packet, path, tag};
use proptest::prelude::*;
use whimbrel_core::Time;
use whimbrel_link::ndnlp::{LinkServiceConfig, Reliability};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{LpHeader, LpPacket};
use whimbrel_sim::link::{GilbertElliott, LinkSpec, Loss};

const DELAY: Duration = Duration::from_millis(20);
const LIMIT: usize = 1_472;
const PROFILES: [Reliability; 4] = [
    Reliability::Off,
    Reliability::Ndnlpv2,
    Reliability::Adaptive,
    Reliability::Auto,
];

fn config(reliability: Reliability) -> LinkServiceConfig {
    LinkServiceConfig {
        reliability,
        finds_path_mtu: true,
        ..LinkServiceConfig::datagram(LIMIT)
    }
}

/// Returns a path for frames of up to `largest` bytes.
fn narrow(largest: usize, loss: f64) -> LinkSpec {
    LinkSpec {
        largest_frame: Some(largest),
        ..losing(DELAY, loss)
    }
}

/// A producer at end 0 and a consumer at end 1, which requests missing Data again.
struct Net {
    faces: Faces,
    next: u64,
}

impl Net {
    fn new(seed: u64, reliability: Reliability, path: &LinkSpec) -> Net {
        Net::with(seed, [config(reliability), config(reliability)], path)
    }

    fn with(seed: u64, configs: [LinkServiceConfig; 2], path: &LinkSpec) -> Net {
        let faces = Faces::with(seed, configs, [path.clone(), path.clone()]);
        Net { faces, next: 0 }
    }

    /// Returns a net whose consumer, like NFD, ignores the questions of probes.
    fn foreign(seed: u64, reliability: Reliability, path: &LinkSpec) -> Net {
        let consumer = LinkServiceConfig {
            finds_path_mtu: false,
            ..config(reliability)
        };
        Net::with(seed, [config(reliability), consumer], path)
    }

    fn set(&mut self, largest: usize) {
        for end in 0..2 {
            self.faces
                .path(end, |spec| spec.largest_frame = Some(largest));
        }
    }

    fn has(&self, number: u64) -> bool {
        let mut received = self.faces.ends()[1].received.iter();
        received.any(|(_, packet, _)| tag(packet) == number)
    }

    /// Fetches `count` Data of `len` bytes at once, each asked for again every second. Returns the
    /// time until all have arrived, at most `patience`.
    fn fetch(&mut self, count: u64, len: usize, patience: Duration) -> Option<Duration> {
        let (first, start) = (self.next, self.faces.now());
        self.next += count;
        while self.faces.now().since(start) < patience {
            let missing: Vec<u64> = (first..self.next).filter(|it| !self.has(*it)).collect();
            for number in &missing {
                self.faces.send(1, packet(false, *number, 40));
                self.faces.send(0, packet(true, *number, len));
            }
            for _ in 0..50 {
                self.faces.run_for(20);
                if missing.iter().all(|it| self.has(*it)) {
                    return Some(self.faces.now().since(start));
                }
            }
        }
        None
    }

    fn mtu(&self) -> usize {
        self.faces.ends()[0].service.mtu()
    }

    fn falls(&self) -> u64 {
        let ends = self.faces.ends();
        ends.iter().map(|end| end.service.stats().mtu_falls).sum()
    }

    fn probes(&self) -> u64 {
        let ends = self.faces.ends();
        ends.iter().map(|end| end.service.stats().mtu_probes).sum()
    }
}

#[test]
fn data_of_any_size_passes_a_black_hole_within_three_seconds() {
    for reliability in PROFILES {
        for len in [1_410, 3_000, 8_000] {
            for (largest, loss) in [(1_400, 0.0), (1_250, 0.0), (900, 0.0)] {
                let mut net = Net::new(7, reliability, &narrow(largest, loss));
                let about = format!("{len} bytes through {largest}, {reliability:?}");
                let took = net.fetch(1, len, Duration::from_secs(20));
                println!("{about}: {took:?}");
                // Two sizes must be given up for the narrowest path.
                let bound = Duration::from_secs(if largest < 1_200 { 5 } else { 3 });
                assert!(took.is_some_and(|took| took < bound), "{about}: {took:?}");
            }
        }
    }
}

#[test]
fn a_black_hole_in_mid_transfer_is_left_and_the_path_s_size_is_found() {
    for reliability in PROFILES {
        let mut net = Net::new(8, reliability, &narrow(1_500, 0.0));
        for _ in 0..20 {
            assert!(net.fetch(10, 4_000, Duration::from_secs(1)).is_some());
        }
        assert_eq!((net.falls(), net.probes(), net.mtu()), (0, 0, LIMIT));
        net.set(1_400);
        let took = net.fetch(10, 4_000, Duration::from_secs(20));
        println!("{reliability:?}: the next Data after {took:?}");
        assert!(
            took.is_some_and(|took| took < Duration::from_secs(4)),
            "{took:?}"
        );
        assert!(net.fetch(10, 4_000, Duration::from_secs(20)).is_some());
        net.faces.run_for(10_000);
        assert_eq!(net.falls(), 1, "{reliability:?}");
        assert!((1_384..=1_400).contains(&net.mtu()), "{}", net.mtu());
        let sizes = &net.faces.ends()[0].sizes;
        assert_eq!(sizes.first(), Some(&1_200), "the owner is told: {sizes:?}");
        assert_eq!(sizes.last(), Some(&net.mtu()));
    }
}

#[test]
fn large_frames_that_pass_do_not_hide_larger_ones_that_do_not() {
    for reliability in PROFILES {
        let mut net = Net::new(15, reliability, &narrow(1_400, 0.0));
        // Most Data need frames that pass, some others do not.
        for _ in 0..40 {
            net.fetch(9, 1_300, Duration::from_millis(100));
            net.fetch(1, 1_420, Duration::from_millis(100));
        }
        assert!(net.mtu() <= 1_400, "{reliability:?}");
    }
}

#[test]
fn full_frames_are_sent_again_when_the_path_is_repaired_and_an_idle_face_is_silent() {
    let mut net = Net::new(9, Reliability::Auto, &narrow(1_300, 0.0));
    assert!(net.fetch(4, 4_000, Duration::from_secs(10)).is_some());
    net.faces.run_for(10_000);
    assert!(net.mtu() <= 1_300);
    net.faces.run_for(120_000);
    net.set(1_500);
    let probes = net.probes();
    net.faces.run_for(600_000);
    assert_eq!(net.probes(), probes, "no packet needs larger frames");
    for _ in 0..3 {
        assert!(net.fetch(4, 4_000, Duration::from_secs(10)).is_some());
    }
    net.faces.run_for(1_000);
    assert_eq!(net.mtu(), LIMIT);
}

#[test]
fn loss_of_fifteen_percent_and_more_is_not_taken_for_a_black_hole() {
    for reliability in PROFILES {
        for seed in 0..10 {
            // Twice as much for half of the seeds.
            let loss = if seed % 2 == 0 { 0.15 } else { 0.3 };
            let mut net = Net::new(seed, reliability, &narrow(1_500, loss));
            for round in 0..60 {
                // Few frames per round are the hard case.
                net.fetch(
                    1 + round % 5,
                    1_460 + (round as usize % 2) * 2_000,
                    Duration::from_secs(3),
                );
            }
            assert_eq!(
                (net.falls(), net.mtu()),
                (0, LIMIT),
                "{reliability:?}, {seed}"
            );
        }
    }
}

#[test]
fn bursts_of_loss_are_not_taken_for_a_black_hole() {
    for reliability in PROFILES {
        for (seed, burst) in [
            (1, 5.0),
            (2, 10.0),
            (3, 20.0),
            (4, 40.0),
            (5, 10.0),
            (6, 20.0),
        ] {
            let loss = Loss::GilbertElliott(GilbertElliott::bursts(0.3, burst));
            let path = path(DELAY).with_loss(loss);
            let mut net = Net::new(seed, reliability, &path);
            for round in 0..200 {
                let len = 1_460 + (round as usize % 2) * 2_000;
                net.fetch(1 + round % 5, len, Duration::from_secs(3));
            }
            assert_eq!(
                (net.falls(), net.mtu()),
                (0, LIMIT),
                "{reliability:?}, {burst}"
            );
        }
    }
}

const OF_OTHERS: [Reliability; 2] = [Reliability::Off, Reliability::Ndnlpv2];

#[test]
fn data_pass_a_black_hole_before_a_peer_that_answers_no_questions() {
    for reliability in OF_OTHERS {
        for len in [1_410, 3_000, 8_000] {
            let about = format!("{len} bytes, {reliability:?}");
            let mut net = Net::foreign(12, reliability, &narrow(1_400, 0.0));
            for round in 0..6 {
                let took = net.fetch(1, len, Duration::from_secs(20));
                let bound = Duration::from_secs(3);
                assert!(
                    took.is_some_and(|took| took < bound),
                    "{about}, {round}: {took:?}"
                );
            }
            for _ in 0..200 {
                let took = net.fetch(1, len, Duration::from_secs(20));
                let bound = Duration::from_millis(100);
                assert!(took.is_some_and(|took| took < bound), "{about}: {took:?}");
            }
            net.faces.run_for(2_000);
            assert!(net.fetch(1, len, Duration::from_secs(20)).is_some());
            assert_eq!((net.falls(), net.mtu()), (1, 1_200), "{about}");
            let before = net.faces.ends()[0].frames.len();
            let took = net.fetch(20, len, Duration::from_secs(20));
            let sent = &net.faces.ends()[0].frames[before..];
            assert!(sent.iter().all(|(_, frame)| frame.len() <= 1_200));
            assert!(
                took.is_some_and(|took| took < Duration::from_millis(100)),
                "{took:?}"
            );

            // Larger frames are tried again, and fail sooner than before.
            net.faces.run_for(60_000);
            for _ in 0..6 {
                assert!(net.fetch(1, len, Duration::from_secs(20)).is_some());
            }
            assert_eq!((net.falls(), net.mtu()), (2, 1_200), "{about}");
            net.set(1_500);
            net.faces.run_for(120_000);
            for _ in 0..20 {
                let took = net.fetch(1, len, Duration::from_secs(20));
                assert!(
                    took.is_some_and(|took| took < Duration::from_millis(100)),
                    "{took:?}"
                );
            }
            assert_eq!((net.falls(), net.mtu()), (2, LIMIT), "{about}");
        }
    }
}

#[test]
fn loss_before_a_peer_that_answers_no_questions_is_not_taken_for_a_black_hole() {
    for reliability in OF_OTHERS {
        for seed in 0..4 {
            let mut net = Net::foreign(seed, reliability, &narrow(1_500, 0.15));
            // One Data after the other, some together, and more than are remembered.
            for at_once in [1, 1, 1, 1, 7, 30, 600] {
                for round in 0..30 {
                    net.fetch(at_once, 1_460 + (round % 2) * 2_000, Duration::from_secs(5));
                    if at_once == 600 && round > 3 {
                        break;
                    }
                }
            }
            assert_eq!(
                (net.falls(), net.mtu()),
                (0, LIMIT),
                "{reliability:?}, {seed}"
            );
        }
    }
}

#[test]
fn questions_are_few_on_a_path_without_loss() {
    let mut net = Net::new(10, Reliability::Off, &narrow(1_500, 0.0));
    for _ in 0..100 {
        assert!(net.fetch(20, 1_460, Duration::from_secs(1)).is_some());
    }
    let ends = net.faces.ends();
    let packets = |end: usize| ends[end].service.stats().packets_sent;
    let others = [0, 1].map(|end| ends[end].service.stats().frames_sent - packets(end));
    let seconds = net.faces.now().since(Time::ZERO).as_secs();
    println!("{others:?} frames beside packets in {seconds} s");
    assert!(
        others.iter().all(|count| *count <= seconds + 5),
        "{others:?} in {seconds} s"
    );
}

#[test]
fn small_packets_cause_no_questions_but_the_first() {
    let mut net = Net::new(11, Reliability::Off, &path(DELAY));
    for _ in 0..50 {
        assert!(net.fetch(5, 1_000, Duration::from_secs(1)).is_some());
        net.faces.run_for(1_000);
    }
    let frames = net.faces.ends().map(|end| &end.frames);
    let questions = |end: usize| {
        frames[end]
            .iter()
            .filter(|(_, frame)| frame.len() < 30)
            .count()
    };
    assert_eq!(
        [questions(0), questions(1)],
        [2, 2],
        "a question and an answer"
    );
}

fn frame(link: &LinkFields<'_>) -> Vec<u8> {
    let mut frame = Vec::new();
    lp::encode(&mut frame, link, &LpHeader::default(), None);
    frame
}

fn answer(number: &[u8], bytes: u64) -> Vec<u8> {
    let value = [number, &bytes.to_be_bytes()].concat();
    frame(&LinkFields {
        path_answer: Some(&value),
        ..LinkFields::default()
    })
}

#[test]
fn a_peer_that_claims_anything_harms_nothing() {
    let mut net = Net::new(13, Reliability::Off, &path(DELAY));
    // The true answers are lost.
    net.faces.cut(1, Duration::from_secs(10_000));
    let claims = [u64::MAX, 0, 1 << 63, i64::MAX as u64, 1_000_000, 3];
    let mut seen = 0;
    for round in 0..200 {
        net.faces.send(0, packet(true, round, 1_460));
        net.faces.run_for(100);
        let sent = net.faces.ends()[0].frames[seen..].to_vec();
        seen += sent.len();
        for (_, sent) in &sent {
            let lp = LpPacket::decode(sent, false).unwrap();
            if let Some(value) = lp.link.path_probe {
                let claim = claims[round as usize % claims.len()];
                net.faces.hand_in(0, &answer(&value[..4], claim));
            }
            net.faces.hand_in(0, &answer(&[round as u8; 4], u64::MAX));
        }
        assert!((512..=LIMIT).contains(&net.mtu()), "{}", net.mtu());
    }
    assert!(seen < 200 * 10, "{seen} frames");
}

#[test]
fn a_flood_of_questions_is_answered_in_part() {
    let mut net = Net::new(14, Reliability::Off, &path(DELAY));
    net.faces.at(0, |end, now| {
        for number in 0u32..1_000 {
            let question = frame(&LinkFields {
                path_probe: Some(&number.to_be_bytes()),
                ..LinkFields::default()
            });
            end.service.handle_frame(now, &question, &mut |_| {});
        }
    });
    net.faces.run_for(1_000);
    let frames = &net.faces.ends()[0].frames;
    assert_eq!(frames.len(), 32);
    assert!(
        frames.iter().all(|(_, frame)| frame.len() < 30),
        "smaller than a question's packet"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// For any changes of the path, Data arrive, and the final size is at most what the path takes,
    /// just below it without loss.
    #[test]
    fn the_size_follows_the_path(
        seed: u64, profile in 0usize..4, loss in prop_oneof![Just(0.0), 0.0..0.15f64],
        widths in prop::collection::vec(520usize..2_000, 1..4),
    ) {
        let mut net = Net::new(seed, PROFILES[profile], &narrow(1_500, loss));
        for largest in widths {
            net.set(largest);
            for _ in 0..4 {
                prop_assert!(net.fetch(4, 3_000, Duration::from_secs(60)).is_some(), "through {largest}");
                net.faces.run_for(20_000);
            }
            for _ in 0..4 {
                prop_assert!(net.fetch(4, 3_000, Duration::from_secs(60)).is_some(), "through {largest}");
                net.faces.run_for(2_000);
            }
            let (size, passes) = (net.mtu(), largest.min(LIMIT));
            // Fragments have room for fields that they may not need.
            prop_assert!(size <= passes + 24, "{size} of {passes}");
            prop_assert!(size + 16 >= passes || loss > 0.0, "{size} of {passes}");
        }
    }
}
