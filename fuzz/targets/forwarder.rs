//! A live forwarder with arbitrary packets, faces that come and go, and steps of time.
//!
//! The input is a list of steps; the first octet of each says what it is. Packets are arbitrary, or
//! whole ones made of a few short names, so that Interests, Data and Nacks meet each other.
#![no_main]

use core::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_core::{LinkState, SeededRng, Time, WallClock};
use whimbrel_forwarder::strategy::StrategyKinds;
use whimbrel_forwarder::{
    CsConfig, CsPolicy, FaceId, FaceSpec, Forwarder, ForwarderConfig, LinkType, UnsolicitedPolicy,
};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{
    CachePolicy, Component, Data, DataRef, DigestSigner, Interest, LpHeader, LpPacket, NackReason,
    Name,
};

struct World {
    forwarder: Forwarder,
    now: Time,
    faces: Vec<FaceId>,
    /// The last packets that went out: they may come back.
    sent: Vec<Bytes>,
}

fn name(octet: u8) -> Name {
    let scopes: [&[u8]; 4] = [b"a", b"localhost", b"localhop", b"b"];
    let mut name = Name::root().child_generic(scopes[usize::from(octet & 3)]);
    for bit in 2..2 + usize::from(octet >> 6) {
        name = name.child_generic(if octet & (1 << bit) == 0 { b"0" } else { b"1" });
    }
    name
}

impl World {
    fn add_face(&mut self, kind: u8) {
        let link_type = [
            LinkType::PointToPoint,
            LinkType::MultiAccess,
            LinkType::AdHoc,
        ][usize::from(kind >> 1) % 3];
        let mut spec = if kind & 1 == 0 {
            FaceSpec::new("a", "b")
        } else {
            FaceSpec::local("a", "b")
        };
        spec.link_type = link_type;
        spec.flags.local_fields = kind & 64 != 0;
        let id = self.forwarder.add_face(self.now, spec);
        if self.faces.len() >= 8 {
            let old = self.faces.remove(0);
            self.forwarder.remove_face(self.now, old);
        }
        self.faces.push(id);
    }

    fn face(&self, octet: u8) -> FaceId {
        self.faces
            .get(usize::from(octet) % 9)
            .copied()
            .unwrap_or(FaceId(u64::from(octet)))
    }

    fn receive(&mut self, from: FaceId, frame: &[u8]) {
        let Ok(lp) = LpPacket::decode(frame, true) else {
            return;
        };
        if frame.len() % 4 == 0 {
            // Twice in one batch: the second meets what the first has done.
            self.forwarder
                .handle_packets(self.now, &[(from, lp), (from, lp)]);
        } else {
            self.forwarder.handle_packet(self.now, from, &lp);
        }
    }

    fn receive_with(&mut self, from: FaceId, header: u8, packet: &[u8]) {
        let field = |bit: u8| header & (1 << bit) != 0;
        let header = LpHeader {
            pit_token: field(0).then(|| Bytes::copy_from_slice(&[header])),
            nack: field(1).then_some(NackReason::from_code(u64::from(header >> 4) * 50)),
            next_hop_face_id: field(2).then_some(256 + u64::from(header >> 5)),
            cache_policy: field(3).then_some(CachePolicy::NoCache),
            congestion_mark: field(4).then_some(1),
            ..LpHeader::default()
        };
        let mut frame = Vec::new();
        lp::encode(&mut frame, &LinkFields::default(), &header, Some(packet));
        self.receive(from, &frame);
    }

    fn interest(named: u8, selectors: u8) -> Vec<u8> {
        let mut interest = Interest::new(name(named));
        interest.can_be_prefix = selectors & 1 != 0;
        interest.must_be_fresh = selectors & 2 != 0;
        interest.nonce = (selectors & 4 == 0).then_some([selectors & 0x70; 4]);
        interest.lifetime =
            (selectors & 8 != 0).then_some(Duration::from_millis(u64::from(selectors) * 40));
        interest.hop_limit = (selectors & 16 != 0).then_some(selectors >> 5);
        if selectors & 32 != 0 {
            interest.forwarding_hint = vec![name(selectors), name(named.rotate_left(3))];
        }
        if selectors & 0xc0 == 0xc0 {
            let packet = World::data(named, selectors & 3);
            let digest = DataRef::decode(&packet)
                .map(|data| data.implicit_digest())
                .unwrap_or_default();
            let digest = Component::new(1, digest.to_vec());
            interest.name = interest.name.child(digest.as_ref());
        }
        interest.encode()
    }

    fn data(named: u8, content: u8) -> Vec<u8> {
        let mut data = Data::new(name(named), vec![content]);
        data.freshness = Duration::from_millis(u64::from(content & 3) * 3000);
        data.encode(&DigestSigner)
    }

    fn step(&mut self, code: u8, a: u8, b: u8, c: u8) {
        let face = self.face(a);
        match code % 16 {
            0..=3 => self.receive_with(face, c & 0xf5, &World::interest(b, c)),
            4 | 5 => self.receive_with(face, c & 0xf9, &World::data(b, c)),
            6 | 7 => {
                if let Some(packet) = self.sent.get(usize::from(b)).cloned() {
                    self.receive_with(face, c, &packet);
                }
            }
            8 => self.now += Duration::from_millis(u64::from(b) * u64::from(c)),
            9 => self.add_face(b),
            10 => self.forwarder.remove_face(self.now, face),
            11 => self.forwarder.set_face_up(self.now, face, b & 1 == 0),
            12 | 13 => {
                let _ = self
                    .forwarder
                    .fib_mut()
                    .add_next_hop(name(b).as_ref(), face, u64::from(c));
            }
            14 => {
                let strategies = StrategyKinds::default().names();
                let strategy = &strategies[usize::from(c) % strategies.len()];
                let prefix = if b & 1 == 0 { Name::root() } else { name(b) };
                let _ = self
                    .forwarder
                    .strategies_mut()
                    .set(prefix.as_ref(), strategy.as_ref());
            }
            _ => match b % 4 {
                0 => drop(
                    self.forwarder
                        .cs_mut()
                        .erase(name(c).as_ref(), usize::from(a)),
                ),
                1 => self
                    .forwarder
                    .cs_mut()
                    .set_capacity(usize::from(c) * 64, usize::from(a)),
                2 => {
                    let state = LinkState {
                        queue_age: Some(Duration::from_millis(u64::from(c))),
                        queue_packets: 2,
                        ..LinkState::default()
                    };
                    self.forwarder.set_link_state(self.now, face, state)
                }
                _ => {
                    if let Some(packet) = self.sent.get(usize::from(c)).cloned() {
                        self.forwarder.handle_dropped(self.now, face, &packet);
                    }
                }
            },
        }
    }

    fn run_due(&mut self) {
        self.forwarder.handle_timeout(self.now);
        while let Some((face, out)) = self.forwarder.poll_send() {
            assert!(
                self.forwarder.face(face).is_some(),
                "a packet for a face that is not there"
            );
            self.sent.push(out.packet.into());
        }
        let old = self.sent.len().saturating_sub(64);
        self.sent.drain(..old);
        assert!(
            self.forwarder.pit().len() <= 32
                && self.forwarder.cs().bytes() <= self.forwarder.cs().capacity()
        );
        assert!(self.forwarder.dead_nonces_len() <= 32);
    }
}

fn config(octet: u8) -> ForwarderConfig {
    let policy = if octet & 1 == 0 {
        CsPolicy::Lru
    } else {
        CsPolicy::S3Fifo
    };
    let unsolicited = if octet & 2 == 0 {
        UnsolicitedPolicy::Drop
    } else {
        UnsolicitedPolicy::AdmitAll
    };
    ForwarderConfig {
        pit_capacity: 32,
        dead_nonce_capacity: 32,
        content_store: CsConfig {
            admitted_percent: 100,
            capacity: 4096,
            max_packets: 16,
            policy,
        },
        unsolicited,
        producer_regions: vec![name(octet)],
        default_hop_limit: (octet & 4 != 0).then_some(3),
        straggler: Duration::from_millis(u64::from(octet & 8) * 10),
        measurements_capacity: 4,
        ..ForwarderConfig::default()
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((first, mut rest)) = data.split_first() else {
        return;
    };
    let forwarder = Forwarder::new(config(*first), WallClock::default(), SeededRng::new(1));
    let mut world = World {
        forwarder,
        now: Time::from_secs(1),
        faces: Vec::new(),
        sent: Vec::new(),
    };
    (0..4).for_each(|kind| world.add_face(kind * 3));
    while let [code, a, b, c, after @ ..] = rest {
        rest = after;
        if *code == 0xff {
            // An arbitrary frame.
            let len = usize::from(u16::from_be_bytes([*b, *c])).min(rest.len());
            let (frame, after) = rest.split_at(len);
            rest = after;
            world.receive(world.face(*a), frame);
        } else {
            world.step(*code, *a, *b, *c);
        }
        world.run_due();
    }
    // Nothing outlives its time.
    world.now += Duration::from_secs(4000);
    world.run_due();
    world.now += Duration::from_secs(10);
    world.run_due();
    assert!(world.forwarder.pit().is_empty() && world.forwarder.dead_nonces_len() == 0);
    assert!(
        world
            .forwarder
            .faces()
            .all(|face| face.pending_interests() == 0)
    );
});
