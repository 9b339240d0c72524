//! A router with local programs.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_forwarder::mgmt::{FaceHost, FaceRequest, LinkCounters, ManagementConfig};
use whimbrel_forwarder::{FaceId, FaceSpec, Forwarder, ForwarderConfig, Scope};
use whimbrel_ndn_mgmt::client::{self, DatasetFetch, DatasetItem, Stamp, Target};
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse};
use whimbrel_ndn_packet::{DigestSigner, InterestRef, LpPacket, Name};

/// Unix time at which the router starts.
pub(crate) const START_MILLIS: u64 = 1_795_000_000_000;

pub(crate) struct Router {
    pub(crate) forwarder: Forwarder,
    pub(crate) now: Time,
    stamps: u64,
    nonces: u32,
    out: VecDeque<(FaceId, Bytes)>,
    links: Links,
}

/// Links whose octet counter is the face's number, and the requests of management for them.
#[derive(Default)]
struct Links {
    requests: VecDeque<FaceRequest>,
}

impl FaceHost for Links {
    fn link_counters(&self, face: FaceId) -> LinkCounters {
        LinkCounters {
            in_bytes: face.0,
            out_bytes: face.0 + 1,
            details: vec![("retransmissions", 7)],
            ..LinkCounters::default()
        }
    }

    fn request(&mut self, request: FaceRequest) {
        self.requests.push_back(request);
    }
}

impl Router {
    pub(crate) fn new() -> Router {
        Router::with(ManagementConfig::default())
    }

    pub(crate) fn with(management: ManagementConfig) -> Router {
        let config = ForwarderConfig {
            management,
            ..ForwarderConfig::default()
        };
        let forwarder = Forwarder::new(config, WallClock::new(START_MILLIS), SeededRng::new(1));
        Router {
            forwarder,
            now: Time::from_secs(1),
            stamps: 0,
            nonces: 1 << 24,
            out: VecDeque::new(),
            links: Links::default(),
        }
    }

    /// Adds a program on the Unix socket.
    pub(crate) fn program(&mut self) -> FaceId {
        let number = self.forwarder.faces().count();
        let spec = FaceSpec::local(format!("fd://{number}"), "unix:///run/nfd/nfd.sock");
        self.forwarder.add_face(self.now, spec)
    }

    /// Adds a neighbour over UDP.
    pub(crate) fn neighbour(&mut self, host: u8) -> FaceId {
        let spec = FaceSpec {
            mtu: Some(1_400),
            ..FaceSpec::new(udp(host), "udp4://192.0.2.254:6363")
        };
        assert_eq!(spec.scope, Scope::NonLocal);
        self.forwarder.add_face(self.now, spec)
    }

    pub(crate) fn unix_millis(&self) -> u64 {
        WallClock::new(START_MILLIS).unix_millis(self.now)
    }

    pub(crate) fn stamp(&mut self) -> Stamp {
        self.stamps += 1;
        let mut nonce = [0; 8];
        nonce.copy_from_slice(
            &self
                .stamps
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_be_bytes(),
        );
        Stamp {
            time: self.unix_millis(),
            nonce,
        }
    }

    /// Returns a nonce that no earlier Interest had.
    pub(crate) fn nonce(&mut self) -> [u8; 4] {
        self.nonces += 1;
        self.nonces.to_be_bytes()
    }

    /// Passes a packet in without running management.
    pub(crate) fn hand_in(&mut self, from: FaceId, packet: &[u8]) {
        let lp = LpPacket::decode(packet, false).unwrap();
        self.forwarder.handle_packet(self.now, from, &lp);
    }

    /// Returns the next request of management.
    pub(crate) fn face_request(&mut self) -> Option<FaceRequest> {
        self.links.requests.pop_front()
    }

    /// Runs management.
    pub(crate) fn work(&mut self) {
        self.forwarder.run_management(self.now, &mut self.links);
        while let Some((face, outgoing)) = self.forwarder.poll_send() {
            let is_nack = outgoing.header.is_some_and(|header| header.nack.is_some());
            if !is_nack {
                self.out.push_back((face, outgoing.packet.into()));
            }
        }
    }

    /// Returns the next packet sent by this face.
    pub(crate) fn receive(&mut self, face: FaceId) -> Option<Bytes> {
        let at = self.out.iter().position(|(to, _)| *to == face)?;
        self.out.remove(at).map(|(_, packet)| packet)
    }

    /// Returns the immediate response to an Interest from this face.
    pub(crate) fn ask(&mut self, from: FaceId, interest: &[u8]) -> Option<Bytes> {
        self.hand_in(from, interest);
        self.work();
        self.receive(from)
    }

    /// Returns a command in the form of our own client.
    pub(crate) fn interest(&mut self, name: &str, parameters: &ControlParameters) -> Vec<u8> {
        let (module, verb) = name.split_once('/').unwrap();
        let stamp = self.stamp();
        client::command(
            Target::Local,
            module,
            verb,
            parameters,
            &DigestSigner,
            stamp,
        )
    }

    pub(crate) fn command(
        &mut self,
        from: FaceId,
        name: &str,
        parameters: &ControlParameters,
    ) -> ControlResponse {
        let interest = self.interest(name, parameters);
        let data = self.ask(from, &interest).expect("a command is answered");
        client::response(&data).unwrap()
    }

    /// Returns the parameters of a command that must succeed.
    pub(crate) fn done(
        &mut self,
        from: FaceId,
        name: &str,
        parameters: &ControlParameters,
    ) -> ControlParameters {
        let response = self.command(from, name, parameters);
        assert!(response.is_success(), "{name}: {response}");
        response
            .parameters()
            .unwrap()
            .expect("a success has parameters")
    }

    /// Returns the status of a command that must be refused, with a text.
    pub(crate) fn refused(
        &mut self,
        from: FaceId,
        name: &str,
        parameters: &ControlParameters,
    ) -> u64 {
        let response = self.command(from, name, parameters);
        assert!(!response.is_success(), "{name} was carried out");
        assert!(response.status_text.len() > 15, "{name}: {response}");
        response.status_code
    }

    /// Fetches a whole dataset.
    pub(crate) fn fetch(&mut self, from: FaceId, mut fetch: DatasetFetch) -> Vec<u8> {
        loop {
            let interest = fetch
                .poll_request(self.nonce())
                .expect("a further segment is missing");
            assert!(InterestRef::decode(&interest).is_ok());
            let data = self.ask(from, &interest).expect("a dataset is returned");
            if let Some(content) = fetch.handle_data(&data).unwrap() {
                return content;
            }
        }
    }

    pub(crate) fn dataset(&mut self, from: FaceId, name: &str) -> Vec<u8> {
        let (module, verb) = name.split_once('/').unwrap();
        self.fetch(from, DatasetFetch::new(Target::Local.name(module, verb)))
    }

    pub(crate) fn items<T: DatasetItem>(&mut self, from: FaceId, name: &str) -> Vec<T> {
        let content = self.dataset(from, name);
        client::decode_items(&content).unwrap()
    }

    /// Returns the next hops of a prefix.
    pub(crate) fn next_hops(&self, prefix: &str) -> Vec<(u64, u64)> {
        let hops = self.forwarder.fib().next_hops(name(prefix).as_ref());
        hops.into_iter()
            .flatten()
            .map(|hop| (hop.face.0, hop.cost))
            .collect()
    }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn udp(host: u8) -> String {
    format!("udp4://192.0.2.{host}:6363")
}

pub(crate) fn parameters() -> ControlParameters {
    ControlParameters::default()
}

pub(crate) fn of_name(prefix: &str) -> ControlParameters {
    ControlParameters {
        name: Some(name(prefix)),
        ..parameters()
    }
}
