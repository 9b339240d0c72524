//! Two proxies with a bad ICN path between them, against the simplest model of what they may do:
//! a segment that leaves one side came in on the other, unmodified but for a clamped MSS, at most
//! as often as it came in; over a good path each of them leaves.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::pair;
use etherparse::{PacketBuilder, TcpOptionElement};
use proptest::prelude::*;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{InterestRef, LpPacket, PacketKind};
use whimbrel_tcp_proxy::{
    Options, Policy, Protection, Protocol, Proxy, ProxyEvent, Refusal, Refused,
};
use whimbrel_transport::{Application, FaceNumber};

const CLIENT: [u8; 4] = [10, 1, 0, 1];
const SERVER: [u8; 4] = [10, 2, 0, 1];

/// What the path does to packets, in percent; delays are from 1 ms to `jitter` more.
#[derive(Clone, Copy, Debug)]
struct Path {
    loss: u64,
    duplication: u64,
    jitter: u64,
}

struct Pair {
    proxies: [Proxy; 2],
    /// Packets on their way: time, order, receiver.
    air: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    path: Path,
    protocol: Protocol,
    /// From when on nothing is lost any more, so that what is retransmitted arrives.
    calm: bool,
    sent: u64,
    now: Time,
    rng: SeededRng,
    /// Per side and packet: how often it went in, how often it came out on the other side.
    went_in: [BTreeMap<Vec<u8>, usize>; 2],
    came_out: [BTreeMap<Vec<u8>, usize>; 2],
}

fn options(protocol: Protocol, protection: Protection, side: usize) -> Options {
    Options {
        protocol,
        ..pair::options(side, protection)
    }
}

impl Pair {
    fn new(protocol: Protocol, protection: Protection, path: Path, seed: u64) -> Pair {
        let proxy = |side| {
            let rng = SeededRng::stream(seed, &format!("proxy {side}"));
            let mut proxy = Proxy::new(options(protocol, protection, side), rng).unwrap();
            proxy.handle_face(Time::ZERO, FaceNumber::FIRST, true);
            proxy
        };
        Pair {
            proxies: [proxy(0), proxy(1)],
            air: BTreeMap::new(),
            path,
            protocol,
            calm: false,
            sent: 0,
            now: Time::ZERO,
            rng: SeededRng::stream(seed, "path"),
            went_in: Default::default(),
            came_out: Default::default(),
        }
    }

    /// A segment of the TCP end on `side`; the next ones until time passes come with it.
    fn segment(&mut self, side: usize, packet: &[u8]) {
        *self.went_in[side].entry(packet.to_vec()).or_default() += 1;
        self.proxies[side].handle_segment(self.now, packet);
    }

    fn drain(&mut self, side: usize) {
        while let Some((packet, _)) = self.proxies[side].poll_packet(self.now, FaceNumber::FIRST) {
            // The forwarder takes the registration itself.
            let is_command = PacketKind::of(&packet) == Some(PacketKind::Interest)
                && InterestRef::decode(&packet)
                    .unwrap()
                    .name
                    .get(0)
                    .unwrap()
                    .value()
                    == b"localhost";
            if !is_command {
                self.send(1 - side, &packet);
            }
        }
        while let Some(packet) = self.proxies[side].poll_segment() {
            if packet.get(9) == Some(&1) {
                continue; // An ICMP error of the proxy itself.
            }
            *self.came_out[1 - side].entry(packet.to_vec()).or_default() += 1;
        }
    }

    fn send(&mut self, to: usize, packet: &[u8]) {
        let Path {
            loss,
            duplication,
            jitter,
        } = self.path;
        if !self.calm && self.rng.below(100) < loss {
            return;
        }
        let copies = 1 + usize::from(self.rng.below(100) < duplication);
        for _ in 0..copies {
            let delay = 1000 + self.rng.below(jitter * 1000 + 1);
            let at = self.now + Duration::from_micros(delay);
            self.sent += 1;
            self.air.insert((at, self.sent), (to, packet.to_vec()));
        }
    }

    /// Runs until `end`.
    fn run(&mut self, end: Time) {
        for side in [0, 1] {
            self.drain(side);
        }
        loop {
            let arrival = self.air.first_key_value().map(|((at, _), _)| *at);
            let timers = self.proxies.iter().filter_map(Application::poll_timeout);
            let timer = timers.map(|deadline| deadline.at).min();
            let Some(next) = arrival
                .into_iter()
                .chain(timer)
                .min()
                .filter(|at| *at <= end)
            else {
                break;
            };
            self.now = self.now.max(next);
            if arrival.is_some_and(|at| at <= self.now)
                && let Some((_, (to, packet))) = self.air.pop_first()
            {
                let packet = LpPacket::decode(&packet, false).unwrap();
                self.proxies[to].handle_packet(self.now, FaceNumber::FIRST, &packet);
            }
            for side in [0, 1] {
                self.proxies[side].handle_timeout(self.now);
                self.drain(side);
            }
        }
        self.now = end;
    }

    fn advance(&mut self, millis: u64) {
        self.run(self.now + Duration::from_millis(millis));
    }

    /// Nothing is invented or altered.
    fn check(&self) {
        for side in [0, 1] {
            let mut again = self.proxies[side].counters().revived as usize;
            for (packet, count) in &self.came_out[side] {
                let sent = self.went_in[side].get(packet).copied().unwrap_or(0);
                // A proxy of reliable prefetching that forgets a connection, because its end opens
                // another with the same ports at once, may fetch again what the peer still keeps.
                let sent = sent
                    * if self.protocol == Protocol::Reliable {
                        2
                    } else {
                        1
                    };
                // After an outage, a proxy sends the newest segments once more.
                let more = count.saturating_sub(sent);
                let headers = packet.get(..40);
                assert!(
                    sent > 0 && more <= again,
                    "out {count} times, in {sent} times: {headers:?}"
                );
                again -= more;
            }
        }
    }

    /// All segments of a side came out.
    fn is_complete(&self, side: usize) -> bool {
        self.went_in[side] == self.came_out[side]
    }
}

/// One segment of a script.
#[derive(Clone, Debug)]
struct Step {
    side: usize,
    client_port: u16,
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    payload: Vec<u8>,
    wait: u64,
}

const SYN: u8 = 1;
const FIN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 8;

fn packet(step: &Step) -> Vec<u8> {
    let (from, to, ports) = match step.side {
        0 => (CLIENT, SERVER, (step.client_port, 80)),
        _ => (SERVER, CLIENT, (80, step.client_port)),
    };
    let mut builder = PacketBuilder::ipv4(from, to, 37).tcp(ports.0, ports.1, step.sequence, 1000);
    if step.flags & SYN != 0 {
        builder = builder.syn();
    }
    if step.flags & FIN != 0 {
        builder = builder.fin();
    }
    if step.flags & RST != 0 {
        builder = builder.rst();
    }
    if step.flags & ACK != 0 {
        builder = builder.ack(step.acknowledgement);
    }
    let mss = TcpOptionElement::MaximumSegmentSize(1400);
    if step.flags & SYN != 0 {
        builder = builder.options(&[mss]).unwrap();
    }
    let mut packet = Vec::new();
    builder.write(&mut packet, &step.payload).unwrap();
    packet
}

/// Any segments, sensible or not, of a few connections whose sequence numbers wrap around.
fn step() -> impl Strategy<Value = Step> {
    let payload = prop_oneof![
        2 => Just(Vec::new()),
        3 => prop::collection::vec(any::<u8>(), 1..1300),
    ];
    let numbers = (u32::MAX - 3000..=u32::MAX, 0u32..6000);
    (
        0usize..2,
        1000u16..1003,
        0u8..16,
        numbers,
        payload,
        0u64..30,
    )
        .prop_map(
            |(side, client_port, flags, (base, offset), payload, wait)| Step {
                side,
                client_port,
                // Resets end connections and would be most of what happens.
                flags: if flags & RST != 0 && offset % 8 != 0 {
                    ACK
                } else {
                    flags
                },
                sequence: base.wrapping_add(offset),
                acknowledgement: base.wrapping_sub(offset),
                payload,
                wait,
            },
        )
}

fn path() -> impl Strategy<Value = Path> {
    (0u64..30, 0u64..20, 0u64..40).prop_map(|(loss, duplication, jitter)| Path {
        loss,
        duplication,
        jitter,
    })
}

fn protection() -> impl Strategy<Value = Protection> {
    prop_oneof![
        Just(Protection::None),
        Just(Protection::Authenticated),
        Just(Protection::Encrypted)
    ]
}

const GOOD: Path = Path {
    loss: 0,
    duplication: 0,
    jitter: 0,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_is_invented_or_altered(
        protocol in prop::sample::select(&Protocol::ALL[..]),
        protection in protection(),
        path in path(),
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut pair = Pair::new(protocol, protection, path, seed);
        for step in &steps {
            pair.segment(step.side, &packet(step));
            pair.advance(step.wait);
            pair.check();
        }
        pair.advance(20_000);
        pair.check();
    }
}

#[test]
fn what_the_peer_does_not_allow_is_refused_at_once_and_said_on_both_sides() {
    let mut pair = Pair::new(Protocol::Unreliable, Protection::Encrypted, GOOD, 1);
    let allowing = options(Protocol::Unreliable, Protection::Encrypted, 1);
    let routes = allowing.policy.routes().to_vec();
    let refusing = Options {
        policy: Policy::new(routes, Vec::new(), Vec::new()),
        ..allowing
    };
    pair.proxies[1] = Proxy::new(refusing, SeededRng::new(1)).unwrap();
    pair.proxies[1].handle_face(Time::ZERO, FaceNumber::FIRST, true);
    let syn = Step {
        side: 0,
        client_port: 1000,
        flags: SYN,
        sequence: 1,
        acknowledgement: 0,
        payload: Vec::new(),
        wait: 0,
    };
    pair.segment(0, &packet(&syn));
    pair.advance(10);
    assert_eq!(pair.proxies[1].counters().denied, 1);
    assert_eq!(pair.proxies[0].counters().icmp_errors, 1);
    let mut said = |side: usize| {
        let events = core::iter::from_fn(|| pair.proxies[side].poll_event());
        let refusals = events.filter_map(|event| match event {
            ProxyEvent::Refused(refused) => Some(refused),
            _ => None,
        });
        refusals.collect::<Vec<_>>()
    };
    let (there, here) = (said(1), said(0));
    let destination = Refusal::Destination;
    assert!(matches!(&there[..], [Refused::Peer(_, _, why)] if *why == destination));
    assert!(matches!(&here[..], [Refused::ByPeer(_, _, why)] if *why == destination));
}

/// A conversation of `blocks` blocks of 1400 bytes from `sender`, each acknowledged after two, with
/// a SYN of each side before it and the tear-down after it.
fn conversation(sender: usize, blocks: u32, start: u32) -> Vec<Step> {
    let client_port = 1000;
    let step = |side, flags, sequence: u32, acknowledgement: u32, payload| Step {
        side,
        client_port,
        flags,
        sequence,
        acknowledgement,
        payload,
        wait: 5,
    };
    let (from, to) = (sender, 1 - sender);
    let (first, other) = (start.wrapping_add(1), 501);
    let mut steps = match sender {
        0 => vec![
            step(0, SYN, start, 0, Vec::new()),
            step(1, SYN | ACK, 500, first, Vec::new()),
            step(0, ACK, first, other, Vec::new()),
        ],
        _ => vec![
            step(0, SYN, 500, 0, Vec::new()),
            step(1, SYN | ACK, start, other, Vec::new()),
            step(0, ACK, other, first, Vec::new()),
        ],
    };
    for block in 0..blocks {
        let at = first.wrapping_add(block * 1400);
        steps.push(step(from, ACK, at, other, vec![block as u8; 1400]));
        if block % 2 == 1 {
            steps.push(step(to, ACK, other, at.wrapping_add(1400), Vec::new()));
        }
    }
    let end = first.wrapping_add(blocks * 1400);
    steps.extend([
        step(from, FIN | ACK, end, other, Vec::new()),
        step(to, ACK, other, end.wrapping_add(1), Vec::new()),
        step(to, FIN | ACK, other, end.wrapping_add(1), Vec::new()),
        step(from, ACK, end.wrapping_add(1), other + 1, Vec::new()),
    ]);
    steps
}

fn converse(pair: &mut Pair, steps: &[Step]) {
    for step in steps {
        pair.segment(step.side, &packet(step));
        pair.advance(step.wait);
    }
    pair.advance(3000);
    pair.check();
}

#[test]
fn over_a_good_path_each_segment_arrives() {
    for protocol in Protocol::ALL {
        for sender in [0, 1] {
            // The sequence numbers wrap around after the third block.
            let steps = conversation(sender, 40, u32::MAX - 3 * 1400);
            let mut pair = Pair::new(protocol, Protection::Encrypted, GOOD, 1);
            converse(&mut pair, &steps);
            for side in [0, 1] {
                assert!(
                    pair.is_complete(side),
                    "{protocol}, sender {sender}, side {side}"
                );
            }
        }
    }
}

/// "Reliable prefetching can also conceal packet losses in the ICN network infrastructure from TCP
/// endpoints" ([TCP/ICN §3.4]): all payload arrives, in order, though each tenth packet is lost.
#[test]
fn reliable_prefetching_conceals_losses() {
    let path = Path {
        loss: 10,
        duplication: 5,
        jitter: 0,
    };
    for seed in 0..10 {
        let mut pair = Pair::new(Protocol::Reliable, Protection::None, path, seed);
        pair.calm = true;
        let steps = conversation(1, 60, 77);
        for (number, step) in steps.iter().enumerate() {
            // The client acknowledges nothing: that would end the proxies' interest in it.
            if number < 3 || !step.payload.is_empty() {
                pair.calm = number < 3;
                pair.segment(step.side, &packet(step));
                pair.advance(step.wait);
            }
        }
        pair.calm = true;
        pair.advance(10_000);
        pair.check();
        let payload = |(packet, _): &(&Vec<u8>, &usize)| packet.len() > 100;
        let sent = pair.went_in[1].iter().filter(payload).count();
        let arrived = pair.came_out[1].iter().filter(payload).count();
        assert_eq!((sent, arrived), (60, 60), "seed {seed}");
    }
}

/// "The number of Interest and Data packets is lower than the number of packets in the IP network
/// segment" ([TCP/ICN §3.5.2]), if segments that come together share a Data.
#[test]
fn unreliable_prefetching_needs_fewer_packets_than_ip() {
    let mut pair = Pair::new(Protocol::Unreliable, Protection::None, GOOD, 1);
    let steps = conversation(1, 400, 77);
    let mut segments = 0;
    for step in &steps {
        segments += 1;
        pair.segment(step.side, &packet(step));
        // Two segments come together, as an acknowledgement of two releases them.
        if step.payload.is_empty() {
            pair.advance(5);
        }
    }
    pair.advance(3000);
    assert!(pair.is_complete(0) && pair.is_complete(1));
    assert!(
        pair.sent < segments,
        "{} packets for {segments} segments",
        pair.sent
    );
}

/// "When a TCP sender becomes idle for a relatively long period of time all Interests in the
/// Interest queue in the forward proxy expire" ([TCP/ICN §3.5.2]).
#[test]
fn an_idle_sender_goes_on() {
    for protocol in Protocol::ALL {
        let mut pair = Pair::new(protocol, Protection::Authenticated, GOOD, 1);
        let steps = conversation(1, 20, 77);
        let (before, after) = steps.split_at(12);
        converse(&mut pair, before);
        pair.advance(60_000);
        converse(&mut pair, after);
        assert!(pair.is_complete(0) && pair.is_complete(1), "{protocol}");
    }
}

/// "Periodically (e.g. once per RTT)" ([TCP/ICN §3.4.1]): nothing brings Interests, and the round trip is
/// known to take some milliseconds.
#[test]
fn a_backlog_is_advertised_at_the_pace_of_the_round_trip() {
    let mut pair = Pair::new(Protocol::Reliable, Protection::Encrypted, GOOD, 1);
    let steps = conversation(1, 20, 77);
    let (before, after) = steps.split_at(12);
    converse(&mut pair, before);
    let notices = |pair: &Pair| {
        let status = pair.proxies[1].status(pair.now);
        status.iter().map(|it| it.counters.notices).sum::<u64>()
    };
    let so_far = notices(&pair);
    pair.path.loss = 100;
    for step in after.iter().filter(|step| step.side == 1) {
        pair.segment(1, &packet(step));
    }
    pair.advance(150);
    // At once, and after some 10, 20, 40 and 80 ms.
    assert!((3..=6).contains(&(notices(&pair) - so_far)));
}

/// SYN, payload and FIN in one segment, and data on a SYN: [TCP/ICN §3.3.2] leaves them out.
#[test]
fn data_on_a_syn_and_sessions_of_one_segment() {
    for protocol in Protocol::ALL {
        let mut pair = Pair::new(protocol, Protection::Encrypted, GOOD, 1);
        let step = |side, flags, sequence, acknowledgement, payload: &[u8]| Step {
            side,
            client_port: 1000,
            flags,
            sequence,
            acknowledgement,
            payload: payload.to_vec(),
            wait: 20,
        };
        converse(
            &mut pair,
            &[
                step(0, SYN | FIN, 100, 0, b"question"),
                step(1, SYN | FIN | ACK, 500, 110, b"answer"),
                step(0, ACK, 110, 508, b""),
            ],
        );
        assert!(pair.is_complete(0) && pair.is_complete(1), "{protocol}");
    }
}

#[test]
fn idle_connections_are_forgotten() {
    for protocol in Protocol::ALL {
        let mut pair = Pair::new(protocol, Protection::None, GOOD, 1);
        converse(&mut pair, &conversation(0, 4, 1));
        assert_eq!(pair.proxies.each_ref().map(Proxy::connections), [1, 1]);
        pair.advance(61_000);
        assert_eq!(pair.proxies.each_ref().map(Proxy::connections), [0, 0]);
        for proxy in &pair.proxies {
            assert_eq!(
                (proxy.queued_bytes(), proxy.pending_interests()),
                (0, 0),
                "{protocol}"
            );
        }
    }
}

#[test]
fn a_flood_of_syns_is_bounded_and_does_not_end_others() {
    let mut pair = Pair::new(Protocol::Unreliable, Protection::None, GOOD, 1);
    let steps = conversation(0, 10, 1);
    let (before, after) = steps.split_at(8);
    converse(&mut pair, before);
    for number in 0..30_000u32 {
        let [_, _, c, d] = number.to_be_bytes();
        let mut syn = Vec::new();
        PacketBuilder::ipv4([10, 1, c, d], SERVER, 64)
            .tcp(number as u16, 80, number, 1000)
            .syn()
            .write(&mut syn, &[])
            .unwrap();
        pair.proxies[0].handle_segment(pair.now, &syn);
        while pair.proxies[0]
            .poll_packet(pair.now, FaceNumber::FIRST)
            .is_some()
        {}
    }
    assert!(pair.proxies[0].connections() <= 2 * 4096 + 1);
    converse(&mut pair, after);
    assert!(pair.is_complete(0) && pair.is_complete(1));
}

#[test]
fn who_is_not_configured_is_denied() {
    let mut pair = Pair::new(Protocol::Unreliable, Protection::None, GOOD, 1);
    for (from, to) in [([10, 9, 0, 1], SERVER), (CLIENT, [10, 9, 0, 1])] {
        let mut syn = Vec::new();
        PacketBuilder::ipv4(from, to, 64)
            .tcp(1, 80, 1, 1000)
            .syn()
            .write(&mut syn, &[])
            .unwrap();
        pair.proxies[0].handle_segment(pair.now, &syn);
        let error = pair.proxies[0].poll_segment().unwrap();
        assert_eq!(
            error.get(20..22),
            Some(&[3, 13][..]),
            "ICMP: administratively prohibited"
        );
    }
    // A connection from the server's side: the client's proxy lets nobody in.
    let mut syn = Vec::new();
    PacketBuilder::ipv4(SERVER, CLIENT, 64)
        .tcp(1, 80, 1, 1000)
        .syn()
        .write(&mut syn, &[])
        .unwrap();
    pair.proxies[1].handle_segment(pair.now, &syn);
    assert_eq!(pair.proxies.each_ref().map(Proxy::connections), [0, 0]);
}

/// A proxy that restarts finds the connection again: no byte is lost or altered.
#[test]
fn a_restarted_proxy_resumes() {
    for protocol in Protocol::ALL {
        let mut pair = Pair::new(protocol, Protection::Encrypted, GOOD, 1);
        let steps = conversation(1, 20, 77);
        let (before, after) = steps.split_at(12);
        converse(&mut pair, before);
        let mut again = options(protocol, Protection::Encrypted, 1);
        again.seal.session = [9; 8];
        let mut proxy = Proxy::new(again, SeededRng::new(99)).unwrap();
        proxy.handle_face(pair.now, FaceNumber::FIRST, true);
        pair.proxies[1] = proxy;
        converse(&mut pair, after);
        assert!(pair.is_complete(1), "{protocol}: what the server sends");
        assert!(pair.is_complete(0), "{protocol}: what the client sends");
    }
}

/// Nothing passes for ten minutes while TCP retransmits ever more seldom; then the connection goes
/// on without waiting for TCP's next attempt.
#[test]
fn after_an_outage_the_newest_segment_is_there_at_once() {
    let mut pair = Pair::new(Protocol::Unreliable, Protection::Encrypted, GOOD, 1);
    let steps = conversation(1, 20, 77);
    let (before, after) = steps.split_at(12);
    converse(&mut pair, before);
    pair.path.loss = 100;
    let next = packet(&after[0]);
    for seconds in [1, 2, 4, 8, 16, 32, 64, 120, 120, 233] {
        pair.segment(1, &next);
        pair.advance(seconds * 1000);
    }
    pair.check();
    assert!(!pair.came_out[1].contains_key(&next));
    pair.path.loss = 0;
    pair.advance(200 + 10);
    assert!(pair.came_out[1].contains_key(&next));
}

/// The same for what has no payload: an end whose window was closed says that it is open again, and
/// the path is away. TCP's sender would ask ever more seldom.
#[test]
fn after_an_outage_the_newest_acknowledgement_is_there_at_once() {
    for protocol in Protocol::ALL {
        let mut pair = Pair::new(protocol, Protection::Encrypted, GOOD, 1);
        let steps = conversation(1, 20, 77);
        let (before, after) = steps.split_at(12);
        let newest = steps.iter().rfind(|step| step.side == 0).unwrap();
        converse(&mut pair, before);
        pair.path.loss = 100;
        pair.segment(0, &packet(newest));
        pair.advance(60_000);
        assert!(
            !pair.came_out[0].contains_key(&packet(newest)),
            "{protocol}"
        );
        pair.path.loss = 0;
        pair.advance(200 + 10);
        assert!(pair.came_out[0].contains_key(&packet(newest)), "{protocol}");
        converse(&mut pair, after);
    }
}
