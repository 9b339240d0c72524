//! Two proxies and segments of connections that nobody answers: what the others notice.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::time::Duration;

use crate::pair;
use etherparse::PacketBuilder;
use whimbrel_core::{Limit, SeededRng, Time};
use whimbrel_ndn_packet::LpPacket;
use whimbrel_tcp_proxy::{Options, Protection, Proxy, ProxyEvent};
use whimbrel_transport::{Application, FaceNumber};

type Address = [u8; 4];

const SERVER: Address = [10, 2, 0, 1];
const FLOODER: Address = [10, 1, 0, 1];
const HONEST: Address = [10, 1, 0, 2];
const NO_LIMIT: Limit = Limit {
    at_once: 1_000_000,
    per_second: 1_000_000,
};

/// The forward proxy is 0, the reverse one 1.
struct Pair {
    proxies: [Proxy; 2],
    now: Time,
    /// Packets between them.
    exchanged: usize,
}

fn options(side: usize) -> Options {
    pair::options(side, Protection::Encrypted)
}

/// Flags: S, A or R, in any number.
fn segment(from: (Address, u16), to: (Address, u16), flags: &str, numbers: (u32, u32)) -> Vec<u8> {
    let mut step = PacketBuilder::ipv4(from.0, to.0, 64).tcp(from.1, to.1, numbers.0, 1000);
    for flag in flags.chars() {
        step = match flag {
            'S' => step.syn(),
            'A' => step.ack(numbers.1),
            _ => step.rst(),
        };
    }
    let mut packet = Vec::new();
    step.write(&mut packet, b"").unwrap();
    packet
}

impl Pair {
    fn new(options: [Options; 2]) -> Pair {
        let mut seed = 0;
        let proxies = options.map(|options| {
            seed += 1;
            let mut proxy = Proxy::new(options, SeededRng::new(seed)).unwrap();
            proxy.handle_face(Time::ZERO, FaceNumber::FIRST, true);
            proxy
        });
        Pair {
            proxies,
            now: Time::from_secs(10),
            exchanged: 0,
        }
    }

    /// A segment of the end on `side`; returns what comes out on the other side.
    fn pass(&mut self, side: usize, packet: &[u8]) -> Vec<Vec<u8>> {
        self.proxies[side].handle_segment(self.now, packet);
        self.exchange();
        let proxy = &mut self.proxies[1 - side];
        let out = core::iter::from_fn(|| proxy.poll_segment());
        out.map(|packet| packet.to_vec()).collect()
    }

    fn exchange(&mut self) {
        loop {
            let before = self.exchanged;
            for side in [0, 1] {
                while let Some((packet, _)) =
                    self.proxies[side].poll_packet(self.now, FaceNumber::FIRST)
                {
                    self.exchanged += 1;
                    let packet = LpPacket::decode(&packet, false).unwrap();
                    self.proxies[1 - side].handle_packet(self.now, FaceNumber::FIRST, &packet);
                }
            }
            if self.exchanged == before {
                return;
            }
        }
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
        for proxy in &mut self.proxies {
            proxy.handle_timeout(self.now);
        }
        self.exchange();
    }

    /// The SYN of a connection that nobody answers; true if it comes out.
    fn syn(&mut self, from: Address, number: u32) -> bool {
        let port = 1024 + (number % 60_000) as u16;
        let syn = segment((from, port), (SERVER, 80), "S", (number, 0));
        !self.pass(0, &syn).is_empty()
    }

    /// Opens a connection; true if each segment arrives.
    fn open(&mut self, from: Address, port: u16) -> bool {
        let (client, server) = ((from, port), (SERVER, 80));
        let steps = [
            (0, segment(client, server, "S", (99, 0))),
            (1, segment(server, client, "SA", (4999, 100))),
            (0, segment(client, server, "A", (100, 5000))),
        ];
        steps
            .iter()
            .all(|(side, packet)| !self.pass(*side, packet).is_empty())
    }

    /// True if a segment of an open connection arrives.
    fn talk(&mut self, from: Address, port: u16, number: u32) -> bool {
        let packet = segment((from, port), (SERVER, 80), "A", (100, 5000 + number));
        !self.pass(0, &packet).is_empty()
    }
}

#[test]
fn syns_of_one_address_leave_room_for_another_and_cost_the_network_little() {
    let mut pair = Pair::new([options(0), options(1)]);
    assert!(pair.open(FLOODER, 1000));
    let (start, mut admitted) = (pair.exchanged, 0);
    for number in 0..30_000 {
        admitted += u32::from(pair.syn(FLOODER, number));
        if number % 1000 == 999 {
            // A connection of that very address goes on, and another address is served at once.
            assert!(pair.talk(FLOODER, 1000, number));
            assert!(pair.open(HONEST, 2000 + (number / 1000) as u16), "{number}");
        }
        pair.advance(Duration::from_micros(100));
    }
    assert!(admitted <= 512 + 3 * 128 + 1, "{admitted} in 3 s");
    let exchanged = pair.exchanged - start;
    assert!(exchanged < 3000, "{exchanged} packets for 30,000 SYNs");
    assert!(pair.proxies[0].counters().not_admitted > 29_000);
    // What nobody has answered is forgotten soon.
    pair.advance(Duration::from_secs(30));
    assert_eq!(pair.proxies.each_ref().map(Proxy::connections), [31, 31]);
    let told = core::iter::from_fn(|| pair.proxies[0].poll_event());
    let told = told.filter(|it| matches!(it, ProxyEvent::NotAdmitted(_)));
    assert_eq!(told.count(), 1);
}

#[test]
fn who_was_answered_gets_in_though_all_other_addresses_flood() {
    let mut pair = Pair::new([options(0), options(1)]);
    assert!(pair.open(HONEST, 1000));
    for number in 0..30_000u32 {
        let [.., c, d] = number.to_be_bytes();
        pair.syn([10, 1, c.wrapping_add(1), d], number);
        pair.advance(Duration::from_micros(100));
    }
    assert!(pair.proxies[0].connections() < 3000);
    assert!(pair.open(HONEST, 1001));
}

#[test]
fn a_syn_that_comes_again_gets_in_beside_a_flood_of_its_own_address() {
    let mut pair = Pair::new([options(0), options(1)]);
    for number in 0..5_000 {
        pair.syn(FLOODER, number);
    }
    let mine = 70_000;
    assert!(!pair.syn(FLOODER, mine));
    assert!(!pair.syn(FLOODER, mine), "at once is no repetition");
    for number in 80_000..90_000 {
        pair.syn(FLOODER, number);
        pair.advance(Duration::from_micros(100));
    }
    assert!(pair.syn(FLOODER, mine));
}

#[test]
fn connections_that_are_answered_are_not_limited() {
    let mut pair = Pair::new([options(0), options(1)]);
    let opened = (1000..9000).filter(|port| pair.open(HONEST, *port)).count();
    assert_eq!(opened, 8000);
    assert_eq!(pair.proxies[0].counters().not_admitted, 0);
    assert_eq!(pair.proxies[1].counters().not_admitted, 0);
}

/// Segments without a SYN open connections too: those that a proxy had before a restart.
#[test]
fn segments_of_unknown_connections_are_limited_like_syns() {
    let mut pair = Pair::new([options(0), options(1)]);
    for port in 1000..60_000 {
        let packet = segment((FLOODER, port), (SERVER, 80), "A", (7, 7));
        pair.pass(0, &packet);
    }
    assert!(pair.proxies[0].connections() <= 512);
    assert!(pair.open(HONEST, 1000));
    pair.advance(Duration::from_secs(30));
    assert_eq!(pair.proxies.each_ref().map(Proxy::connections), [1, 1]);
}

/// What an end invents costs the network no more than what it sends.
#[test]
fn invented_acknowledgements_bring_no_further_interests() {
    let mut pair = Pair::new([options(0), options(1)]);
    let mut sent = 0;
    let mut rng = SeededRng::new(1);
    for port in 1000..1100 {
        assert!(pair.syn(FLOODER, port));
        for _ in 0..30 {
            let [one, other] = [rng.next_word() as u32, rng.next_word() as u32];
            let packet = segment(
                (FLOODER, 1024 + port as u16),
                (SERVER, 80),
                "A",
                (one, other),
            );
            pair.pass(0, &packet);
            sent += 1;
        }
    }
    assert!(
        pair.exchanged <= sent + 1000,
        "{} for {sent}",
        pair.exchanged
    );
}

/// A peer that admits everything.
#[test]
fn a_reverse_proxy_limits_what_its_peers_open() {
    let mut careless = options(0);
    let limits = &mut careless.limits;
    (limits.unanswered, limits.newcomers) = (NO_LIMIT, NO_LIMIT);
    let mut pair = Pair::new([careless, options(1)]);
    let arrived = (0..5_000)
        .filter(|number| pair.syn(FLOODER, *number))
        .count();
    assert_eq!(arrived, 512);
    assert!(pair.open(HONEST, 1000));
    assert_eq!(pair.proxies[1].counters().not_admitted, 5_000 - 512);
}
