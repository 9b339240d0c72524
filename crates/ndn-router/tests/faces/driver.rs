//! A router, and a driver that does nothing of its own accord: the test answers requests.

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_core::{
    Endpoint, Machine, Medium, OpenRefusal, Peer, PortEvent, PortId, PortInfo, PortOrigin,
    PortRequest, PortToken, SeededRng, Time, WallClock,
};
use whimbrel_forwarder::{FaceId, ForwarderConfig, Persistency};
use whimbrel_link::ndnlp::{LinkServiceConfig, Reliability};
use whimbrel_ndn_mgmt::client::{self, Stamps, Target};
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse};
use whimbrel_ndn_packet::{Data, DataRef, DigestSigner, Interest, LpPacket, Name};
use whimbrel_ndn_router::faces::FaceSettings;
use whimbrel_ndn_router::{NdnRouter, NdnRouterConfig};

pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Callers are turned away when there are so many faces.
pub(crate) const MAX_FACES: usize = 8;
pub(crate) const MTU: usize = 1400;
/// Rounds at one moment after which a machine is taken not to come to an end.
const MAX_ROUNDS: usize = 64;
/// Transmissions in one drain after which the same holds.
const MAX_TRANSMITS: usize = 10_000;

/// A port as its driver sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Port {
    pub(crate) blocked: bool,
    /// The router wants it closed; it goes when the test says so.
    pub(crate) closing: bool,
}

pub(crate) struct Driver {
    pub(crate) router: NdnRouter,
    pub(crate) now: Time,
    /// Ports that are up.
    pub(crate) ports: BTreeMap<PortId, Port>,
    /// Requests to open that have not been answered.
    pub(crate) opens: VecDeque<(PortToken, Endpoint)>,
    /// Ports that the router wanted to keep, in the order in which it did.
    pub(crate) kept: Vec<PortId>,
    /// Packets sent by streams, and frames sent by others.
    pub(crate) sent: Vec<(PortId, Bytes)>,
    next_port: u32,
    nonces: u32,
    stamps: Stamps,
}

impl Driver {
    pub(crate) fn new() -> Driver {
        Driver::with(Reliability::Off, 1)
    }

    pub(crate) fn with(reliability: Reliability, seed: u64) -> Driver {
        let config = NdnRouterConfig {
            forwarder: ForwarderConfig {
                pit_capacity: 1 << 10,
                dead_nonce_capacity: 1 << 10,
                measurements_capacity: 1 << 8,
                ..ForwarderConfig::default()
            },
            link: LinkServiceConfig {
                reliability,
                ..LinkServiceConfig::datagram(MTU)
            },
            idle_timeout: IDLE_TIMEOUT,
            max_faces: MAX_FACES,
            wall: WallClock::new(1_795_000_000_000),
        };
        Driver {
            router: NdnRouter::new(config, SeededRng::new(seed)),
            now: Time::from_secs(1),
            ports: BTreeMap::new(),
            opens: VecDeque::new(),
            kept: Vec::new(),
            sent: Vec::new(),
            next_port: 0,
            nonces: 0,
            stamps: Stamps::default(),
        }
    }

    pub(crate) fn up(&mut self, origin: PortOrigin, medium: Medium) -> PortId {
        let port = PortId(self.next_port);
        self.next_port += 1;
        self.ports.insert(port, Port::default());
        let info = PortInfo {
            label: format!("port {port}"),
            origin,
            mtu: MTU,
            peer: format!("peer {port}"),
            medium,
        };
        self.router.handle_port(self.now, port, PortEvent::Up(info));
        self.drain();
        port
    }

    /// A program on this machine.
    pub(crate) fn program(&mut self) -> PortId {
        let descriptor = self.next_port as i32;
        let medium = Medium::Unix {
            path: Some("/run/nfd/nfd.sock".into()),
            descriptor,
            accepted: true,
        };
        self.up(PortOrigin::Local, medium)
    }

    /// The port that was asked for first.
    pub(crate) fn opened(&mut self) -> PortId {
        let (token, endpoint) = self.opens.pop_front().expect("a request to open");
        self.up(PortOrigin::Opened(token), medium(&endpoint))
    }

    /// Refuses what was asked for first.
    pub(crate) fn refuse(&mut self) {
        let (token, _) = self.opens.pop_front().expect("a request to open");
        let refusal = OpenRefusal::Failed(String::from("no route to host"));
        self.router.handle_refusal(self.now, token, refusal);
        self.drain();
    }

    pub(crate) fn down(&mut self, port: PortId) {
        self.ports.remove(&port).expect("the port is up");
        self.router.handle_port(self.now, port, PortEvent::Down);
        self.drain();
    }

    pub(crate) fn change(&mut self, port: PortId, event: PortEvent) {
        if let Some(state) = self.ports.get_mut(&port) {
            match event {
                PortEvent::Blocked => state.blocked = true,
                PortEvent::Writable => state.blocked = false,
                _ => {}
            }
        }
        self.router.handle_port(self.now, port, event);
        self.drain();
    }

    pub(crate) fn frames(&mut self, port: PortId, frames: &[&[u8]]) {
        self.router.handle_frames(self.now, port, frames);
        self.drain();
    }

    /// Lets time pass; deadlines are kept to the nanosecond.
    pub(crate) fn pass(&mut self, duration: Duration) {
        self.pass_until(self.now + duration);
    }

    pub(crate) fn pass_until(&mut self, end: Time) {
        while let Some(at) = self.next_due().filter(|at| *at <= end) {
            self.now = at;
            self.router.handle_timeout(at);
            self.drain();
        }
        self.now = end;
        self.drain();
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.router.poll_timeout().map(|deadline| deadline.at)
    }

    /// Drains the router until nothing is due at this moment.
    fn drain(&mut self) {
        for _ in 0..MAX_ROUNDS {
            self.drain_once();
            match self.router.poll_timeout() {
                Some(deadline) if deadline.at <= self.now => self.router.handle_timeout(self.now),
                _ => return,
            }
        }
        panic!("due again and again: {:?}", self.router.poll_timeout());
    }

    fn drain_once(&mut self) {
        let mut buffer = Vec::new();
        for count in 0.. {
            assert!(count < MAX_TRANSMITS, "transmits without end");
            buffer.clear();
            let Some(transmit) = self.router.poll_transmit(self.now, 8, &mut buffer) else {
                break;
            };
            let port = self.ports.get(&transmit.port);
            let port = port.expect("a frame to a port that is down");
            assert!(!port.blocked, "a frame to a blocked port");
            assert!(!port.closing, "a frame to a port that is to be closed");
            assert_eq!(transmit.size, buffer.len());
            for frame in transmit.frames(&buffer) {
                self.sent
                    .push((transmit.port, Bytes::copy_from_slice(frame)));
            }
        }
        assert!(self.router.poll_event().is_none());
        while let Some(request) = self.router.poll_port_request() {
            match request {
                PortRequest::Open {
                    token, endpoint, ..
                } => self.opens.push_back((token, endpoint)),
                PortRequest::Close(port) => {
                    if let Some(port) = self.ports.get_mut(&port) {
                        assert!(!port.closing, "a port is closed twice");
                        port.closing = true;
                    }
                }
                PortRequest::Keep(port) => self.kept.push(port),
                PortRequest::LookUpAgain(port) => panic!("{port} is looked up again"),
            }
        }
    }

    /// What has been sent by a port since this was asked last, without link headers.
    pub(crate) fn packets(&mut self, port: PortId) -> Vec<Bytes> {
        let mut packets = Vec::new();
        self.sent.retain(|(to, frame)| {
            if *to == port {
                let lp = LpPacket::decode(frame, true).unwrap();
                packets.extend(lp.fragment.map(Bytes::copy_from_slice));
            }
            *to != port
        });
        packets
    }

    /// Has `consumer` ask for `name`; true if the Interest leaves by `producer`, which answers, and
    /// the Data comes back.
    pub(crate) fn exchange(&mut self, consumer: PortId, producer: PortId, name: &str) -> bool {
        self.sent.clear();
        let interest = self.interest(name);
        self.frames(consumer, &[&interest]);
        if self.packets(producer).is_empty() {
            return false;
        }
        self.frames(producer, &[&data(name)]);
        let answer = self.packets(consumer);
        answer.len() == 1
            && DataRef::decode(&answer[0]).is_ok_and(|it| it.name == name_of(name).as_ref())
    }

    pub(crate) fn interest(&mut self, name: &str) -> Vec<u8> {
        self.nonces += 1;
        Interest {
            nonce: Some(self.nonces.to_be_bytes()),
            ..Interest::new(name_of(name))
        }
        .encode()
    }

    /// A command Interest, such as `faces/create`.
    pub(crate) fn command(&mut self, command: &str, parameters: &ControlParameters) -> Vec<u8> {
        let (module, verb) = command.split_once('/').unwrap();
        self.nonces += 1;
        let nonce = u64::from(self.nonces) << 32 | u64::from(self.nonces);
        let stamp = self.stamps.next(1_795_000_000_000, nonce.to_be_bytes());
        client::command(
            Target::Local,
            module,
            verb,
            parameters,
            &DigestSigner,
            stamp,
        )
    }

    /// Has a program send a command; the answer, if it comes at once.
    pub(crate) fn ask(
        &mut self,
        program: PortId,
        command: &str,
        parameters: &ControlParameters,
    ) -> Option<ControlResponse> {
        let interest = self.command(command, parameters);
        self.frames(program, &[&interest]);
        self.answer(program)
    }

    pub(crate) fn update(
        &mut self,
        program: PortId,
        face: FaceId,
        persistency: Persistency,
    ) -> ControlResponse {
        let parameters = ControlParameters {
            face_id: Some(face.0),
            persistency: Some(persistency),
            ..ControlParameters::default()
        };
        let answer = self.ask(program, "faces/update", &parameters);
        answer.expect("answered at once")
    }

    pub(crate) fn destroy(&mut self, program: PortId, face: FaceId) -> ControlResponse {
        let parameters = ControlParameters {
            face_id: Some(face.0),
            ..ControlParameters::default()
        };
        let answer = self.ask(program, "faces/destroy", &parameters);
        answer.expect("answered at once")
    }

    /// The one answer that has come to a program, if any.
    pub(crate) fn answer(&mut self, program: PortId) -> Option<ControlResponse> {
        let packets = self.packets(program);
        assert!(packets.len() <= 1, "more than one answer");
        Some(client::response(packets.first()?).unwrap())
    }

    pub(crate) fn face(&self, port: PortId) -> FaceId {
        self.router.face_of(port).expect("a face on the port")
    }

    /// True if the face is there and up; `None` if it is not there.
    pub(crate) fn is_up(&self, face: FaceId) -> Option<bool> {
        self.router.forwarder().face(face).map(|face| face.up)
    }
}

pub(crate) fn address(host: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, host], 6363))
}

pub(crate) fn udp(host: u8) -> Endpoint {
    Endpoint::Udp {
        remote: Peer::Address(address(host)),
        shared: true,
    }
}

pub(crate) fn udp_medium(host: u8) -> Medium {
    Medium::Udp {
        local: address(254),
        remote: address(host),
    }
}

pub(crate) fn tcp_medium(host: u8) -> Medium {
    Medium::Tcp {
        local: address(254),
        remote: address(host),
    }
}

fn medium(endpoint: &Endpoint) -> Medium {
    let remote = |peer: &Peer| match peer {
        Peer::Address(address) => *address,
        Peer::Named { .. } => address(253),
    };
    let local = address(254);
    match endpoint {
        Endpoint::Udp { remote: peer, .. } => Medium::Udp {
            local,
            remote: remote(peer),
        },
        Endpoint::Tcp { remote: peer } => Medium::Tcp {
            local,
            remote: remote(peer),
        },
        other => panic!("no such ports here: {other}"),
    }
}

/// As the configuration asks for faces.
pub(crate) fn configured(persistency: Persistency) -> FaceSettings {
    let info = PortInfo {
        label: String::new(),
        origin: PortOrigin::Configured(0),
        mtu: MTU,
        peer: String::new(),
        medium: Medium::Unaddressed,
    };
    FaceSettings {
        persistency,
        ..FaceSettings::unasked(&info)
    }
}

pub(crate) fn data(name: &str) -> Vec<u8> {
    Data::new(name_of(name), &b"content"[..]).encode(&DigestSigner)
}

pub(crate) fn name_of(text: &str) -> Name {
    text.parse().unwrap()
}
