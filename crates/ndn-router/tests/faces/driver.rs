//! A router on the testbed whose port requests are answered by hand: the test opens, closes and
//! blocks its ports.

use core::net::SocketAddr;
use core::time::Duration;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

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
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::testbed::{Heard, Net, Probe};
use whimbrel_sim::{AnyMachine, Direction, DuplexLink};

pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum of faces, when inbound peers are refused.
pub(crate) const MAX_FACES: usize = 16;
/// Of them, of inbound peers that send datagrams, and of those at the other end of a stream.
pub(crate) const MAX_DATAGRAMS: usize = MAX_FACES / 2;
pub(crate) const MAX_STREAMS: usize = MAX_FACES / 4;
/// Octets that may wait for all faces together.
pub(crate) const MAX_QUEUED: usize = 1 << 20;
pub(crate) const MTU: usize = 1400;
/// The nodes of the testbed: the router, and the peer at the other end of all its ports.
const ROUTER: usize = 0;
const OTHERS: usize = 1;

/// The driver's state of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    stream: bool,
    /// The router wants it closed; the test closes it.
    pub(crate) closing: bool,
}

/// Ports that are up.
type Ports = BTreeMap<PortId, Port>;

pub(crate) struct Driver {
    net: Net<AnyMachine<()>>,
    // Shared with the testbed, which reads it while the router sends.
    ports: Rc<RefCell<Ports>>,
    // The router's port, by the port at its other end.
    other_ends: BTreeMap<PortId, PortId>,
    /// Requests to open that have not been answered.
    pub(crate) opens: VecDeque<(PortToken, Endpoint)>,
    /// Ports that the router asked to keep, in that order.
    pub(crate) kept: Vec<PortId>,
    /// Packets sent on streams, and frames sent on other ports.
    pub(crate) sent: Vec<(PortId, Bytes)>,
    next_descriptor: i32,
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
            max_queued: MAX_QUEUED,
            wall: WallClock::new(1_795_000_000_000),
        };
        let mut net = Net::new(seed);
        let router = NdnRouter::new(config, SeededRng::new(seed));
        let router = AnyMachine::new(router, |event| panic!("a router says {event:?}"));
        let others = AnyMachine::new(Probe::default(), |never| match never {});
        assert_eq!(net.add_mortal("router", router), ROUTER);
        assert_eq!(net.add_mortal("others", others), OTHERS);
        let id = net.id(ROUTER);
        net.sim_mut().answer_requests_by_hand(id);
        net.run_until(Time::from_secs(1));
        Driver {
            net,
            ports: Rc::default(),
            other_ends: BTreeMap::new(),
            opens: VecDeque::new(),
            kept: Vec::new(),
            sent: Vec::new(),
            next_descriptor: 0,
            nonces: 0,
            stamps: Stamps::default(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.net.now()
    }

    pub(crate) fn router(&self) -> &NdnRouter {
        self.net[ROUTER].get().unwrap()
    }

    /// Calls into the router.
    pub(crate) fn with_router<R>(&mut self, call: impl FnOnce(&mut NdnRouter, Time) -> R) -> R {
        let router = |it: &mut AnyMachine<()>, now| call(it.get_mut().unwrap(), now);
        let result = self.net.with(ROUTER, router);
        self.note();
        result
    }

    /// Returns the ports that are up.
    pub(crate) fn ports(&self) -> Ports {
        self.ports.borrow().clone()
    }

    pub(crate) fn is_closing(&self, port: PortId) -> bool {
        self.ports.borrow()[&port].closing
    }

    pub(crate) fn up(&mut self, origin: PortOrigin, medium: Medium) -> PortId {
        // A stream takes packets of any size.
        let stream = medium.is_stream();
        let mtu = if stream { usize::MAX } else { MTU };
        let link = DuplexLink::ip(LinkSpec::default(), LinkSpec::default(), mtu)
            .with_origins(origin, PortOrigin::Configured(0))
            .with_media(medium, Medium::Unaddressed);
        // The port must be known before the router is told of it and sends.
        let next = PortId(2 * self.other_ends.len() as u32);
        let closing = false;
        let known = Port { stream, closing };
        self.ports.borrow_mut().insert(next, known);
        let made = self.net.connect(ROUTER, OTHERS, &link).unwrap();
        assert_eq!(made.a, next);
        let (port, ports) = (made.a, Rc::clone(&self.ports));
        let tap = move |_, frame| {
            let closing = ports.borrow().get(&port).is_some_and(|it| it.closing);
            assert!(!closing, "a frame to a port that must be closed");
            vec![frame]
        };
        let sim = self.net.sim_mut();
        sim.set_tap(made.link, Direction::AToB, Some(Box::new(tap)));
        self.other_ends.insert(made.b, port);
        self.note();
        port
    }

    /// Adds a program on this machine.
    pub(crate) fn program(&mut self) -> PortId {
        let descriptor = self.next_descriptor;
        self.next_descriptor += 1;
        let medium = Medium::Unix {
            path: Some("/run/nfd/nfd.sock".into()),
            descriptor,
            accepted: true,
        };
        self.up(PortOrigin::Local, medium)
    }

    /// Opens the port that was requested first.
    pub(crate) fn opened(&mut self) -> PortId {
        let (token, endpoint) = self.opens.pop_front().expect("a request to open");
        self.up(PortOrigin::Opened(token), medium(&endpoint))
    }

    /// Refuses the first request.
    pub(crate) fn refuse(&mut self) {
        let (token, _) = self.opens.pop_front().expect("a request to open");
        let refusal = OpenRefusal::Failed(String::from("no route to host"));
        self.with_router(|router, now| router.handle_refusal(now, token, refusal));
    }

    pub(crate) fn down(&mut self, port: PortId) {
        let gone = self.ports.borrow_mut().remove(&port);
        gone.expect("the port is up");
        let id = self.net.id(ROUTER);
        self.net.sim_mut().close_port(id, port);
        self.note();
    }

    pub(crate) fn block(&mut self, port: PortId, blocked: bool) {
        let id = self.net.id(ROUTER);
        if blocked {
            self.net.sim_mut().set_blocked(id, port, true);
        } else {
            self.net.sim_mut().set_blocked(id, port, false);
        }
        self.note();
    }

    pub(crate) fn set_mtu(&mut self, port: PortId, mtu: usize) {
        if self.ports.borrow()[&port].stream {
            let event = PortEvent::Mtu(mtu);
            return self.with_router(|router, now| router.handle_port(now, port, event));
        }
        let id = self.net.id(ROUTER);
        self.net.sim_mut().set_mtu(id, port, mtu);
        self.note();
    }

    pub(crate) fn frames(&mut self, port: PortId, frames: &[&[u8]]) {
        self.with_router(|router, now| router.handle_frames(now, port, frames));
    }

    /// Runs for `duration`; deadlines are kept to the nanosecond.
    pub(crate) fn pass(&mut self, duration: Duration) {
        self.pass_until(self.now() + duration);
    }

    pub(crate) fn pass_until(&mut self, end: Time) {
        self.net.run_until(end);
        self.note();
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.router().poll_timeout().map(|deadline| deadline.at)
    }

    /// Records the router's requests and sent frames.
    fn note(&mut self) {
        self.net.run_for(Duration::ZERO);
        while let Some((_, request)) = self.net.sim_mut().poll_request() {
            match request {
                PortRequest::Open {
                    token, endpoint, ..
                } => self.opens.push_back((token, endpoint)),
                PortRequest::Close(port) => {
                    if let Some(port) = self.ports.borrow_mut().get_mut(&port) {
                        assert!(!port.closing, "a port is closed twice");
                        port.closing = true;
                    }
                }
                PortRequest::Keep(port) => self.kept.push(port),
                PortRequest::LookUpAgain(port) => panic!("{port} is looked up again"),
                PortRequest::SetEcn { port, .. } => panic!("{port} does not answer to marks"),
            }
        }
        let stats = *self.net.sim().stats();
        assert_eq!(
            stats.dropped_port_closed, 0,
            "frames to ports that are down"
        );
        assert_eq!(
            stats.dropped_oversize, 0,
            "frames larger than their ports take"
        );
        let heard = self.net.with(OTHERS, |it, _| {
            core::mem::take(&mut it.get_mut::<Probe>().unwrap().heard)
        });
        for (_, heard) in heard {
            if let Heard::Frame(port, frame) = heard {
                self.sent.push((self.other_ends[&port], frame.into()));
            }
        }
    }

    /// Returns the packets sent on a port since the last call, without link headers.
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

    /// Sends an Interest for `name` from `consumer`. Returns true if it leaves by `producer`, which
    /// answers, and the Data returns.
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

    /// Returns a command Interest, such as `faces/create`.
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

    /// Sends a command from a program. Returns the response if it is immediate.
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

    /// Returns the one response that a program has received, if any.
    pub(crate) fn answer(&mut self, program: PortId) -> Option<ControlResponse> {
        let packets = self.packets(program);
        assert!(packets.len() <= 1, "more than one answer");
        Some(client::response(packets.first()?).unwrap())
    }

    pub(crate) fn face(&self, port: PortId) -> FaceId {
        self.router().face_of(port).expect("a face on the port")
    }

    /// Returns true if the face is up, or `None` if it does not exist.
    pub(crate) fn is_up(&self, face: FaceId) -> Option<bool> {
        self.router().forwarder().face(face).map(|face| face.up)
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
        interface: None,
    }
}

pub(crate) fn tcp_medium(host: u8) -> Medium {
    Medium::Tcp {
        local: address(254),
        remote: address(host),
        interface: None,
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
            interface: None,
        },
        Endpoint::Tcp { remote: peer } => Medium::Tcp {
            local,
            remote: remote(peer),
            interface: None,
        },
        other => panic!("no such ports here: {other}"),
    }
}

/// Returns settings of a face as configured.
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
