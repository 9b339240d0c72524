//! Two hops and whoever is between them.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{Admission, CallerGate, SeededRng, Time};

use super::super::{Hop, HopConfig, HopEvent, PacketBudget};
use super::handshake::{CALL_LEN, PROOF_LEN, Unwilling};
use super::{Gate, Reception};

const CALLER: &str = "192.0.2.7:4000";

fn keys(end: usize) -> KeyPair {
    KeyPair::from_secret(&[end as u8 + 1; 32])
}

fn config(end: usize, run: u64) -> HopConfig {
    let mut seed = [end as u8 + 1; 32];
    seed[..8].copy_from_slice(&run.to_be_bytes());
    HopConfig {
        incarnation: run,
        max_chunks_in_flight: 16,
        ..HopConfig::sealed(&keys(end), seed, 1_400)
    }
}

struct End {
    config: HopConfig,
    hop: Hop,
    budget: PacketBudget,
    events: Vec<HopEvent>,
    received: Vec<(u64, Bytes)>,
    delivered: Vec<u64>,
}

impl End {
    fn new(config: HopConfig, now: Time) -> End {
        End {
            hop: Hop::new(config.clone(), SeededRng::new(config.incarnation), now),
            config,
            budget: PacketBudget::new(4_096),
            events: Vec::new(),
            received: Vec::new(),
            delivered: Vec::new(),
        }
    }

    fn handle(&mut self, now: Time, frame: &[u8]) {
        self.hop.handle_frame(now, frame, &mut self.budget);
        self.note(now);
    }

    fn note(&mut self, now: Time) {
        while let Some(event) = self.hop.poll_event() {
            match event {
                HopEvent::Received { chunk, packets } => {
                    self.received.push((self.config.incarnation, chunk));
                    self.budget.release(packets);
                    self.hop.budget_released(now, &mut self.budget);
                }
                HopEvent::Delivered { tag } => self.delivered.push(tag),
                other => self.events.push(other),
            }
        }
    }

    fn frames(&mut self, now: Time) -> Vec<Vec<u8>> {
        let (mut frames, mut buffer) = (Vec::new(), Vec::new());
        loop {
            buffer.clear();
            let Some((size, segment)) = self.hop.poll_transmit(now, 8, &mut buffer) else {
                self.note(now);
                return frames;
            };
            let each = buffer[..size].chunks(segment.unwrap_or(size));
            frames.extend(each.map(<[u8]>::to_vec));
            assert!(frames.len() < 100_000, "sending never ends");
        }
    }
}

/// Both ends, what is under way to each, and what ever was.
struct Wire {
    now: Time,
    ends: [End; 2],
    on_the_way: [Vec<Vec<u8>>; 2],
    seen: [Vec<Vec<u8>>; 2],
}

impl Wire {
    fn of(configs: [HopConfig; 2]) -> Wire {
        let now = Time::ZERO;
        Wire {
            now,
            ends: configs.map(|config| End::new(config, now)),
            on_the_way: [Vec::new(), Vec::new()],
            seen: [Vec::new(), Vec::new()],
        }
    }

    /// The first end calls the second one.
    fn new() -> Wire {
        Wire::of([
            config(0, 1),
            HopConfig {
                calls: false,
                ..config(1, 1)
            },
        ])
    }

    fn collect(&mut self) {
        for end in 0..2 {
            let frames = self.ends[end].frames(self.now);
            self.seen[1 - end].extend(frames.iter().cloned());
            self.on_the_way[1 - end].extend(frames);
        }
    }

    fn deliver(&mut self, to: usize, frame: &[u8]) {
        self.ends[to].handle(self.now, frame);
        self.collect();
    }

    fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        loop {
            self.collect();
            let due = self.ends.iter().filter_map(|end| end.hop.poll_timeout());
            let next = due
                .map(|due| due.at.max(self.now + Duration::from_micros(100)))
                .min();
            self.now = next.unwrap_or(end).min(end);
            for end in &mut self.ends {
                end.hop.handle_timeout(self.now, &mut end.budget);
                end.note(self.now);
            }
            if self.now >= end {
                return self.collect();
            }
        }
    }

    /// Everything arrives, a millisecond at a time.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.collect();
            for to in 0..2 {
                for frame in core::mem::take(&mut self.on_the_way[to]) {
                    self.ends[to].handle(self.now, &frame);
                }
            }
            self.pass(1);
        }
    }

    fn send(&mut self, end: usize, tag: u64, len: usize) {
        self.ends[end]
            .hop
            .send(self.now, tag, chunk(tag, len), Bytes::new());
    }

    fn restart(&mut self, end: usize) {
        let old = &self.ends[end].config;
        let run = old.incarnation + 1;
        let config = HopConfig {
            calls: old.calls,
            remote: old.remote,
            ..config(end, run)
        };
        let now = self.now;
        let former = core::mem::replace(&mut self.ends[end], End::new(config, now));
        self.ends[end].received = former.received;
        self.ends[end].delivered = former.delivered;
    }

    fn is_up(&self) -> bool {
        self.ends.iter().all(|end| end.hop.is_up())
    }
}

fn chunk(tag: u64, len: usize) -> Bytes {
    let mut bytes = tag.to_be_bytes().to_vec();
    bytes.resize(len.max(8), tag as u8);
    Bytes::from(bytes)
}

fn tag_of(chunk: &[u8]) -> u64 {
    chunk[..8]
        .iter()
        .fold(0, |tag, byte| tag << 8 | u64::from(*byte))
}

#[test]
fn three_messages_prove_both_names_and_data_goes_with_the_third() {
    let mut wire = Wire::new();
    wire.send(0, 1, 500);
    wire.collect();
    assert_eq!(
        wire.on_the_way.each_ref().map(Vec::len),
        [0, 1],
        "who answers does not greet"
    );
    let call = wire.on_the_way[1].remove(0);
    wire.deliver(1, &call);
    let answer = wire.on_the_way[0].remove(0);
    assert!(answer.len() <= call.len());
    wire.deliver(0, &answer);
    assert!(wire.ends[0].hop.is_up() && !wire.ends[1].hop.is_up());
    let rest = core::mem::take(&mut wire.on_the_way[1]);
    assert_eq!(rest[0].len(), PROOF_LEN);
    for frame in &rest {
        wire.deliver(1, frame);
    }
    assert!(wire.is_up());
    assert_eq!(wire.ends[1].received.len(), 1);
    for (end, other) in [(0, 1), (1, 0)] {
        let up = wire.ends[end].events.iter().find_map(|event| match event {
            HopEvent::Up { neighbour, .. } => Some(*neighbour),
            _ => None,
        });
        assert_eq!(up, Some(keys(other).guid()));
    }
    for frame in wire.seen.iter().flatten() {
        for end in 0..2 {
            let holds = |secret: &[u8]| frame.windows(32).any(|part| part == secret);
            let keys = keys(end);
            assert!(!holds(keys.guid().as_bytes()) && !holds(keys.public().as_bytes()));
        }
    }
}

#[test]
fn a_sealed_frame_is_sixteen_octets_longer_than_a_plain_one() {
    let sizes = |plain: bool| {
        let mode = |end| HopConfig {
            plain,
            ..config(end, 1)
        };
        let mut wire = Wire::of([mode(0), mode(1)]);
        wire.run(20);
        wire.seen = [Vec::new(), Vec::new()];
        wire.send(0, 1, 300);
        wire.run(20);
        assert_eq!(wire.ends[0].delivered, [1]);
        let sizes = |to: usize| wire.seen[to].iter().map(Vec::len).collect::<Vec<usize>>();
        (sizes(1), sizes(0))
    };
    let (plain, sealed) = (sizes(true), sizes(false));
    let longer = |sizes: &[usize]| sizes.iter().map(|size| size + 16).collect::<Vec<usize>>();
    assert_eq!((longer(&plain.0), longer(&plain.1)), sealed);
}

#[test]
fn both_call_at_once_and_agree_on_one_session() {
    let mut wire = Wire::of([config(0, 1), config(1, 1)]);
    wire.send(0, 1, 50_000);
    wire.send(1, 2, 50_000);
    wire.run(400);
    assert_eq!(
        wire.ends.each_ref().map(|end| end.hop.stats().sessions),
        [1, 1]
    );
    assert_eq!(wire.ends[0].delivered, [1]);
    assert_eq!(wire.ends[1].delivered, [2]);
}

#[test]
fn frames_of_who_has_sniffed_a_session_do_nothing() {
    let mut wire = Wire::new();
    wire.run(50);
    let sniffed = wire.seen[1].last().cloned().unwrap();
    for kind in 0..4u8 {
        for low in [0u32, 1, 5, 1 << 20, u32::MAX] {
            let mut forged = sniffed.clone();
            forged[0] = forged[0] & 0xfc | kind;
            forged[5..9].copy_from_slice(&low.to_be_bytes());
            wire.deliver(1, &forged);
        }
    }
    wire.send(0, 1, 400_000);
    wire.send(1, 2, 400_000);
    wire.run(2_000);
    assert_eq!(
        (&wire.ends[0].delivered[..], &wire.ends[1].delivered[..]),
        (&[1][..], &[2][..])
    );
    let drops = wire.ends[1].hop.stats().drops;
    assert_eq!(drops.forged + drops.replayed, 20, "{drops:?}");
}

#[test]
fn keys_are_renewed_and_transfers_go_on() {
    let mut wire = Wire::new();
    wire.run(50);
    for minute in 0..25u64 {
        wire.send(0, 1_000 + minute, 100_000);
        wire.run(200);
        let far = wire.now + Duration::from_secs(59);
        while wire.now < far {
            wire.pass(900);
            wire.run(3);
        }
    }
    let calls = wire.seen[1]
        .iter()
        .filter(|frame| frame.len() == CALL_LEN)
        .count();
    let proofs = wire.seen[1]
        .iter()
        .filter(|frame| frame.len() == PROOF_LEN && frame[0] == 0x32);
    assert!(proofs.count() >= 3 && (3..12).contains(&calls), "{calls}");
    assert_eq!(
        wire.ends.each_ref().map(|end| end.hop.stats().sessions),
        [1, 1]
    );
    assert_eq!(wire.ends[0].delivered.len(), 25);
}

#[test]
fn a_false_notice_of_a_lost_session_costs_no_transfer() {
    let mut wire = Wire::new();
    wire.run(50);
    wire.send(0, 1, 3_000_000);
    for _ in 0..40 {
        wire.run(1);
        let frame = wire.seen[1].last().cloned().unwrap();
        let mut lost = vec![0x34, 0, 1, 0];
        lost.extend_from_slice(&frame[1..9]);
        wire.deliver(0, &lost);
    }
    wire.run(3_000);
    assert_eq!(wire.ends[0].delivered, [1]);
    assert_eq!(
        wire.ends.each_ref().map(|end| end.hop.stats().sessions),
        [1, 1]
    );
}

#[test]
fn a_restart_of_either_end_is_noticed_at_once() {
    for end in 0..2 {
        let mut wire = Wire::new();
        wire.run(50);
        wire.restart(end);
        wire.send(1, 7, 100_000);
        wire.send(0, 8, 100_000);
        wire.run(1_000);
        assert!(wire.is_up());
        assert_eq!(wire.ends[0].delivered, [8], "{end}");
        assert_eq!(wire.ends[1].delivered, [7], "{end}");
    }
}

#[test]
fn ends_of_different_modes_say_so() {
    for plain in 0..2 {
        let mode = |end| HopConfig {
            plain: end == plain,
            ..config(end, 1)
        };
        let mut wire = Wire::of([mode(0), mode(1)]);
        wire.run(300);
        let told = |end: usize| wire.ends[end].events.clone();
        assert_eq!(told(plain), [HopEvent::Unwilling(Unwilling::Plain)]);
        assert_eq!(told(1 - plain), [HopEvent::Unwilling(Unwilling::Sealed)]);
        assert!(
            wire.ends
                .iter()
                .all(|end| end.hop.stats().drops.wrong_mode > 0)
        );
    }
}

#[test]
fn a_name_is_proven_only_by_its_key() {
    let mut wire = Wire::new();
    // The caller's key is another one than that of the name that it gives itself.
    wire.ends[0].config.local = keys(5).guid();
    wire.run(50);
    let up = wire.ends[1].events.iter().find_map(|event| match event {
        HopEvent::Up { neighbour, .. } => Some(*neighbour),
        _ => None,
    });
    assert_eq!(up, Some(keys(0).guid()));
}

/// A gate, and the hop that comes up behind it.
struct Site {
    gate: Gate,
    hop: HopConfig,
}

impl Site {
    fn new(plain: bool) -> Site {
        let hop = HopConfig {
            plain,
            calls: false,
            ..config(1, 1)
        };
        Site {
            gate: Gate::new(hop.clone(), 64),
            hop,
        }
    }

    fn ask(&mut self, now: Time, from: &str, frame: &[u8]) -> (Admission, Vec<u8>) {
        let mut reply = Vec::new();
        let from: SocketAddr = from.parse().unwrap();
        let admission = self.gate.consider(now, from, frame, &mut reply);
        assert!(
            reply.len() <= frame.len(),
            "{} for {}",
            reply.len(),
            frame.len()
        );
        assert_eq!(admission == Admission::Answered, !reply.is_empty());
        (admission, reply)
    }

    fn admit(&self, now: Time, from: &str) -> End {
        let hop = HopConfig {
            remote: from.parse().ok(),
            ..self.hop.clone()
        };
        End::new(hop, now)
    }
}

/// The first frame of a caller, and the caller.
fn caller(plain: bool) -> (End, Vec<u8>) {
    let mut caller = End::new(
        HopConfig {
            plain,
            ..config(0, 1)
        },
        Time::ZERO,
    );
    let first = caller.frames(Time::ZERO).remove(0);
    (caller, first)
}

#[test]
fn a_caller_gets_a_port_when_it_has_shown_its_address_and_no_sooner() {
    for plain in [false, true] {
        let now = Time::ZERO;
        let mut site = Site::new(plain);
        let (mut caller, call) = caller(plain);
        let (admission, answer) = site.ask(now, CALLER, &call);
        assert_eq!(admission, Admission::Answered);
        caller.handle(now, &answer);
        assert!(caller.hop.is_up());
        let frames = caller.frames(now);
        let (elsewhere, _) = site.ask(now, "192.0.2.8:4000", &frames[0]);
        assert_ne!(elsewhere, Admission::Admitted, "another address");
        let (late, _) = site.ask(Time::from_secs(40), CALLER, &frames[0]);
        assert_ne!(late, Admission::Admitted, "much later");
        let mut site = Site::new(plain);
        let (admission, _) = site.ask(now, CALLER, &frames[0]);
        assert_eq!(admission, Admission::Admitted);
        let mut end = site.admit(now, CALLER);
        for frame in &frames {
            end.handle(now, frame);
        }
        assert!(end.hop.is_up());
        for frame in end.frames(now) {
            caller.handle(now, &frame);
        }
        assert!(caller.hop.stats().frames_received > u64::from(plain));
    }
}

#[test]
fn a_proof_is_accepted_once_even_if_its_port_is_gone() {
    let now = Time::ZERO;
    let mut site = Site::new(false);
    let (mut caller, call) = caller(false);
    let (_, answer) = site.ask(now, CALLER, &call);
    caller.handle(now, &answer);
    caller.hop.send(now, 1, chunk(1, 100), Bytes::new());
    let frames = caller.frames(now);
    for again in 0..2 {
        let mut end = site.admit(now, CALLER);
        for frame in &frames {
            end.handle(now, frame);
        }
        assert_eq!(end.hop.is_up(), again == 0);
        assert_eq!(end.received.len(), 1 - again);
    }
    assert_eq!(site.hop.reception.counters().repeated, 1);
}

#[test]
fn in_a_flood_of_calls_a_cookie_lets_a_newcomer_in() {
    let mut site = Site::new(false);
    let mut cookies = 0;
    for number in 0..2_000u32 {
        let mut forged = vec![0; CALL_LEN];
        forged[..4].copy_from_slice(&[0x30, 1, 1, 0]);
        forged[4..8].copy_from_slice(&number.to_be_bytes());
        forged[8..12].copy_from_slice(&number.to_be_bytes());
        let from = format!("198.51.100.{}:{}", number % 250, 1_000 + number);
        let (admission, reply) = site.ask(Time::ZERO, &from, &forged);
        assert_ne!(admission, Admission::Admitted);
        cookies += usize::from(reply.len() == 24);
    }
    assert!(cookies > 1_900, "{cookies}");
    let (mut caller, call) = caller(false);
    let (_, cookie) = site.ask(Time::ZERO, CALLER, &call);
    assert_eq!(cookie.len(), 24);
    caller.handle(Time::ZERO, &cookie);
    let call = caller.frames(Time::ZERO).remove(0);
    let (_, answer) = site.ask(Time::ZERO, CALLER, &call);
    caller.handle(Time::ZERO, &answer);
    assert!(caller.hop.is_up());
    // The same proof of an address for many calls.
    let answered = (0..200)
        .filter(|_| site.ask(Time::ZERO, CALLER, &call).0 == Admission::Answered)
        .count();
    assert!(answered < 40, "{answered}");
}

#[test]
fn a_hop_that_is_gone_is_called_again() {
    for plain in [false, true] {
        let now = Time::ZERO;
        let mut site = Site::new(plain);
        let (mut caller, call) = caller(plain);
        let (_, answer) = site.ask(now, CALLER, &call);
        caller.handle(now, &answer);
        let mut end = site.admit(now, CALLER);
        for frame in caller.frames(now) {
            end.handle(now, &frame);
        }
        for frame in end.frames(now) {
            caller.handle(now, &frame);
        }
        // The port is closed; the caller has something to say.
        let later = Time::from_secs(2);
        caller.hop.send(later, 1, chunk(1, 100), Bytes::new());
        let frame = caller.frames(later).pop().unwrap();
        let (_, lost) = site.ask(later, CALLER, &frame);
        assert_eq!(lost.len(), 12, "{plain}");
        caller.handle(later, &lost);
        let call = caller.frames(later).remove(0);
        let (_, answer) = site.ask(later, CALLER, &call);
        let later = later + Duration::from_millis(50);
        caller.handle(later, &answer);
        let mut end = site.admit(later, CALLER);
        for frame in caller.frames(later) {
            end.handle(later, &frame);
        }
        assert_eq!(end.received.len(), 1, "{plain}");
    }
}

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
            for (run, bytes) in &this.received {
                let tag = tag_of(bytes);
                let (from, _, len) = sent[&tag];
                assert_eq!(
                    (from, bytes),
                    (1 - end, &chunk(tag, len)),
                    "what the other end sent"
                );
                assert!(once.insert((*run, tag)), "{tag} twice in run {run}");
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

    /// What one end accepts, the other end sent, once; and when the one in the middle rests, all
    /// arrives.
    #[test]
    fn whoever_is_between_can_only_lose_and_delay(
        both_call: bool,
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let mut wire = if both_call { Wire::of([config(0, 1), config(1, 1)]) } else { Wire::new() };
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
        plain: bool, heads in prop::collection::vec(any::<u8>(), 1..8), bytes in prop::collection::vec(any::<u8>(), 0..400), seal: bool,
    ) {
        let mut site = Site::new(plain);
        for head in heads {
            let mut frame = bytes.clone();
            frame.insert(0, if head < 128 { 0x10 | head & 7 } else { 0x30 | head & 7 });
            if seal && frame.len() > 4 {
                let end = frame.len() - 4;
                let crc = crc_fast::crc32_iscsi(&frame[..end]).to_be_bytes();
                frame[end..].copy_from_slice(&crc);
            }
            let (admission, _) = site.ask(Time::ZERO, CALLER, &frame);
            prop_assert_ne!(admission, Admission::Admitted);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let bytes = || {
        let mut wire = Wire::new();
        wire.send(0, 1, 10_000);
        wire.run(50);
        wire.seen
    };
    assert_eq!(bytes(), bytes());
    let other = Arc::new(Reception::new(keys(0), [9; 32], true));
    assert_ne!(*other.draw(), *config(0, 1).reception.draw());
}

/// A whole exchange between fixed keys, as `docs/protocols/vectors/hop-session.txt` has it.
fn session_vectors() -> String {
    use super::super::wire::{Csyn, Envelope, encode_csyn};
    use super::channel::{Channel, Suite};
    use super::handshake::{Answer, Call, Ephemeral, Exchange, Parameters, encode_call};
    use zeroize::Zeroizing;

    let (caller, answerer) = (keys(0), keys(1));
    let secrets = [[3; 32], [4; 32]];
    let [own, other] = secrets.map(|secret| Ephemeral::new(Zeroizing::new(secret)));
    let call = Call {
        flags: 1,
        index: 0x0102_0304,
        ephemeral: own.public,
        cookie: [0; 16],
    };
    let answer = Answer {
        suite: Suite::Aes128Gcm,
        to: call.index,
        index: 0x0506_0708,
        ephemeral: other.public,
        cookie: [9; 16],
        salt: 0x0a0b_0c0d_0e0f_1011,
    };
    let parameters = |run: u64, knows: u64| Parameters {
        reports_marks: true,
        resumes: false,
        run,
        knows,
        incarnation: 7,
        mtu: 1_472,
        chunk_limit: 4 << 20,
        window: 64,
        first_hop_id: 5,
        max_chunks: 256,
        memory: 1_024,
    };
    let exchange = Exchange::new(&call, &answer, &own).unwrap();
    let mut first = Vec::new();
    encode_call(&call, &mut first);
    let second = exchange
        .write_answer(&answer, &answerer, &parameters(21, 0))
        .unwrap();
    let proof = parameters(22, 21);
    let repeated = Call {
        cookie: answer.cookie,
        ..call
    };
    let third = exchange
        .write_proof(&repeated, answer.index, &caller, &answerer.public(), &proof)
        .unwrap();
    let traffic = exchange.traffic(&caller.public(), &answerer.public(), &proof);
    let indices = (call.index, answer.index);
    let (of_caller, of_answerer) = (&traffic.of_caller, &traffic.of_answerer);
    let mut channel =
        Channel::new(Time::ZERO, answer.suite, indices, of_caller, of_answerer).unwrap();
    let mut frames = Vec::new();
    for at in [Time::ZERO, Time::from_secs(120)] {
        let mut frame = Vec::new();
        let probe = Csyn {
            number: 1,
            about: None,
        };
        encode_csyn(Envelope::Sealed, &probe, &mut frame);
        channel.seal(at, &mut frame).unwrap();
        frames.push(hex::encode(frame));
    }
    format!(
        "ed25519 seed of the caller: {}\ned25519 seed of the answerer: {}\n\
         ephemeral secret of the caller: {}\nephemeral secret of the answerer: {}\n\
         call: {}\nanswer: {}\nproof: {}\n\
         traffic secret of the caller: {}\ntraffic secret of the answerer: {}\n\
         probe with number 1, counter 0: {}\nthe same after 120 s, counter 1, epoch 1: {}\n",
        hex::encode([1; 32]),
        hex::encode([2; 32]),
        hex::encode(secrets[0]),
        hex::encode(secrets[1]),
        hex::encode(first),
        hex::encode(second),
        hex::encode(third),
        hex::encode(traffic.of_caller.as_ref()),
        hex::encode(traffic.of_answerer.as_ref()),
        frames[0],
        frames[1],
    )
}

#[test]
fn the_vectors_of_a_session_hold() {
    let text = include_str!("../../../../../docs/protocols/vectors/hop-session.txt");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let written: String = lines.flat_map(|line| [line, "\n"]).collect();
    assert_eq!(session_vectors(), written);
}
