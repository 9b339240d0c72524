//! A forwarder with a few faces and packets in short form.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_forwarder::{FaceId, FaceSpec, Forwarder, ForwarderConfig, LinkType, OutPacket};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{
    Data, DataRef, DigestSigner, Interest, InterestRef, LpHeader, LpPacket, NackReason, Name,
};

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn interest(text: &str, nonce: u32) -> Interest {
    let mut interest = Interest::new(name(text));
    interest.nonce = Some(nonce.to_be_bytes());
    interest
}

pub(crate) fn data(text: &str) -> Bytes {
    fresh_data(text, 10_000)
}

pub(crate) fn fresh_data(text: &str, freshness: u64) -> Bytes {
    let mut data = Data::new(name(text), &b"content"[..]);
    data.freshness = Duration::from_millis(freshness);
    data.encode(&DigestSigner).into()
}

/// A packet that a forwarder sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sent {
    pub(crate) face: FaceId,
    pub(crate) packet: Bytes,
    pub(crate) header: LpHeader,
}

impl Sent {
    fn new((face, OutPacket { packet, header }): (FaceId, OutPacket)) -> Sent {
        Sent {
            face,
            packet: packet.into(),
            header: header.map(|header| *header).unwrap_or_default(),
        }
    }

    pub(crate) fn interest(&self) -> InterestRef<'_> {
        assert_eq!(self.header.nack, None, "{self:?} is a Nack");
        InterestRef::decode(&self.packet).unwrap()
    }

    pub(crate) fn is_interest(&self) -> bool {
        self.header.nack.is_none() && InterestRef::decode(&self.packet).is_ok()
    }

    pub(crate) fn is_data(&self) -> bool {
        DataRef::decode(&self.packet).is_ok()
    }

    pub(crate) fn nonce(&self) -> u32 {
        u32::from_be_bytes(InterestRef::decode(&self.packet).unwrap().nonce.unwrap())
    }

    /// Formats the packet as one line: face, kind and name.
    pub(crate) fn line(&self) -> String {
        match (DataRef::decode(&self.packet), self.header.nack) {
            (Ok(data), _) => format!("{} data {}", self.face, data.name),
            (_, Some(reason)) => {
                format!(
                    "{} nack {} {}",
                    self.face,
                    InterestRef::decode(&self.packet).unwrap().name,
                    reason.code()
                )
            }
            _ => format!("{} interest {}", self.face, self.interest().name),
        }
    }
}

/// A forwarder at a moment of virtual time.
pub(crate) struct Node {
    pub(crate) forwarder: Forwarder,
    pub(crate) now: Time,
}

impl Node {
    pub(crate) fn new(config: ForwarderConfig) -> Node {
        Node::seeded(config, 1)
    }

    pub(crate) fn seeded(config: ForwarderConfig, seed: u64) -> Node {
        let forwarder = Forwarder::new(config, WallClock::default(), SeededRng::new(seed));
        Node {
            forwarder,
            now: Time::from_secs(1),
        }
    }

    /// Returns a node with this many faces to other machines, numbered from 256.
    pub(crate) fn with_faces(count: usize) -> Node {
        let mut node = Node::new(ForwarderConfig::default());
        (0..count).for_each(|_| {
            node.add_face();
        });
        node
    }

    pub(crate) fn add_face(&mut self) -> FaceId {
        self.forwarder.add_face(
            self.now,
            FaceSpec::new("udp4://192.0.2.2:6363", "udp4://192.0.2.1:6363"),
        )
    }

    pub(crate) fn add_local_face(&mut self) -> FaceId {
        self.forwarder.add_face(
            self.now,
            FaceSpec::local("fd://7", "unix:///run/nfd/nfd.sock"),
        )
    }

    pub(crate) fn add_shared_face(&mut self, link_type: LinkType) -> FaceId {
        let spec = FaceSpec {
            link_type,
            ..FaceSpec::new("udp4://224.0.23.170:56363", "dev://eth0")
        };
        self.forwarder.add_face(self.now, spec)
    }

    pub(crate) fn route(&mut self, prefix: &str, face: u64, cost: u64) {
        self.forwarder
            .fib_mut()
            .add_next_hop(name(prefix).as_ref(), FaceId(face), cost)
            .unwrap();
    }

    pub(crate) fn strategy(&mut self, strategy: &str) {
        self.forwarder
            .strategies_mut()
            .set(Name::root().as_ref(), name(strategy).as_ref())
            .unwrap();
    }

    /// Receives a packet with link header fields. Returns the packets sent in response.
    pub(crate) fn receive_with(
        &mut self,
        face: u64,
        packet: &[u8],
        header: &LpHeader,
    ) -> Vec<Sent> {
        let mut frame = Vec::new();
        lp::encode(&mut frame, &LinkFields::default(), header, Some(packet));
        self.forwarder.handle_packet(
            self.now,
            FaceId(face),
            &LpPacket::decode(&frame, false).unwrap(),
        );
        self.sent()
    }

    pub(crate) fn receive(&mut self, face: u64, packet: &[u8]) -> Vec<Sent> {
        self.receive_with(face, packet, &LpHeader::default())
    }

    pub(crate) fn ask(&mut self, face: u64, interest: &Interest) -> Vec<Sent> {
        self.receive(face, &interest.encode())
    }

    pub(crate) fn ask_lines(&mut self, face: u64, interest: &Interest) -> Vec<String> {
        lines(&self.ask(face, interest))
    }

    pub(crate) fn nack(&mut self, face: u64, interest: &[u8], reason: NackReason) -> Vec<Sent> {
        self.receive_with(
            face,
            interest,
            &LpHeader {
                nack: Some(reason),
                ..LpHeader::default()
            },
        )
    }

    pub(crate) fn wait(&mut self, millis: u64) -> Vec<Sent> {
        let until = self.now + Duration::from_millis(millis);
        while let Some(deadline) = self
            .forwarder
            .poll_timeout()
            .filter(|deadline| deadline.at <= until)
        {
            self.now = self.now.max(deadline.at);
            self.forwarder.handle_timeout(self.now);
        }
        self.now = until;
        self.forwarder.handle_timeout(self.now);
        self.sent()
    }

    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        core::iter::from_fn(|| self.forwarder.poll_send())
            .map(Sent::new)
            .collect()
    }

    pub(crate) fn dropped(&self, reason: &str) -> u64 {
        let drops = self.forwarder.counters().drops();
        drops
            .into_iter()
            .find(|(name, _)| *name == reason)
            .unwrap_or_else(|| panic!("no reason {reason}"))
            .1
    }
}

pub(crate) fn lines(sent: &[Sent]) -> Vec<String> {
    sent.iter().map(Sent::line).collect()
}
