//! A router compared with a model of its faces, their ports and the requests for ports, for events
//! in any order.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use whimbrel_core::{Endpoint, Medium, Peer, PortId, PortOrigin, PortToken, Time};
use whimbrel_forwarder::{FaceId, Persistency};
use whimbrel_link::ndnlp::{PaperOptions, Reliability};
use whimbrel_ndn_mgmt::{ControlParameters, client};
use whimbrel_ndn_packet::{Data, DataRef, DigestSigner, InterestRef, Name};

use crate::driver::{
    Driver, IDLE_TIMEOUT, MAX_DATAGRAMS, MAX_FACES, MAX_STREAMS, MTU, address, configured, name_of,
    tcp_medium, udp, udp_medium,
};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const IDLE_CHECK: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Lifetime of a command Interest; later responses are lost.
const COMMAND_LIFETIME: Duration = Duration::from_secs(4);

/// An event. Numbers choose among the present items.
#[derive(Clone, Debug)]
enum Act {
    Call { stream: bool },
    Neighbour,
    Program,
    Group,
    Ask { persistency: Persistency },
    Answer { which: usize, refuse: bool },
    Down { which: usize },
    Mtu { which: usize, mtu: usize },
    Block { which: usize },
    Unblock { which: usize },
    Frames { which: usize, frames: Vec<Frame> },
    Create { persistency: Persistency },
    Destroy { which: usize },
    Update { which: usize, to: Persistency },
    Limit { which: usize, mtu: usize },
    Pass { millis: u64 },
}

#[derive(Clone, Debug)]
enum Frame {
    Interest(u8),
    Data(u8, usize),
    Garbage(Vec<u8>),
}

fn kept() -> impl Strategy<Value = Persistency> {
    prop_oneof![Just(Persistency::Persistent), Just(Persistency::Permanent)]
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        3 => (0u8..4).prop_map(Frame::Interest),
        3 => (0u8..4, 0usize..5_000).prop_map(|(name, size)| Frame::Data(name, size)),
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Frame::Garbage),
        // The type of an LpPacket makes the decoder read further.
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(|rest| {
            let mut frame = vec![0x64, rest.len() as u8];
            frame.extend(rest);
            Frame::Garbage(frame)
        }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let which = || any::<usize>();
    let persistency = prop_oneof![1 => Just(Persistency::OnDemand), 3 => kept()];
    let time = prop_oneof![0u64..100, 0u64..5_000, 0u64..100_000];
    prop_oneof![
        2 => any::<bool>().prop_map(|stream| Act::Call { stream }),
        1 => Just(Act::Neighbour),
        1 => Just(Act::Program),
        1 => Just(Act::Group),
        2 => kept().prop_map(|persistency| Act::Ask { persistency }),
        5 => (which(), any::<bool>()).prop_map(|(which, refuse)| Act::Answer { which, refuse }),
        3 => which().prop_map(|which| Act::Down { which }),
        1 => (which(), 200usize..9_000).prop_map(|(which, mtu)| Act::Mtu { which, mtu }),
        1 => which().prop_map(|which| Act::Block { which }),
        2 => which().prop_map(|which| Act::Unblock { which }),
        6 => (which(), prop::collection::vec(frame(), 1..6))
            .prop_map(|(which, frames)| Act::Frames { which, frames }),
        2 => kept().prop_map(|persistency| Act::Create { persistency }),
        1 => which().prop_map(|which| Act::Destroy { which }),
        2 => (which(), persistency).prop_map(|(which, to)| Act::Update { which, to }),
        1 => (which(), 200usize..9_000).prop_map(|(which, mtu)| Act::Limit { which, mtu }),
        5 => time.prop_map(|millis| Act::Pass { millis }),
    ]
}

struct Face {
    /// `None` while the port is lost.
    port: Option<PortId>,
    persistency: Persistency,
    stream: bool,
    /// The endpoint to reopen; `None` if it cannot be reopened.
    way_back: Option<Endpoint>,
    may_change: bool,
    wanted_mtu: Option<usize>,
    since: Time,
    last_heard: Time,
    /// It was accepted for an inbound peer.
    accepted: bool,
    on_demand_since: Time,
    pause: Duration,
    ask_at: Option<Time>,
}

/// The purpose of a requested port.
#[derive(Clone, Debug)]
enum Purpose {
    Configured(Persistency),
    Created(Name, Persistency),
    Back(FaceId),
}

struct Command {
    sent: Time,
    /// The status code of the response, once it is due.
    expected: Option<u64>,
    answered: bool,
}

struct Model {
    driver: Driver,
    /// The port that sends commands; it always works.
    manager: PortId,
    next_face: FaceId,
    next_host: u8,
    /// When a router that found no face to evict looks for one again, by kind.
    search_again: [Time; 2],
    faces: BTreeMap<FaceId, Face>,
    closing: BTreeSet<PortId>,
    kept: Vec<PortId>,
    mtu: BTreeMap<PortId, usize>,
    /// The ports that must have been requested by the end of this moment.
    wanted: BTreeMap<Endpoint, Purpose>,
    asked: BTreeMap<PortToken, Purpose>,
    /// Refused ports of configured faces, with the time.
    refused: BTreeMap<Endpoint, (Time, Persistency)>,
    commands: BTreeMap<Name, Command>,
}

impl Model {
    fn new(reliability: Reliability, seed: u64) -> Model {
        let mut driver = Driver::with(reliability, seed);
        let manager = driver.program();
        let mut model = Model {
            driver,
            manager,
            next_face: FaceId::FIRST,
            next_host: 1,
            search_again: [Time::ZERO; 2],
            faces: BTreeMap::new(),
            closing: BTreeSet::new(),
            kept: Vec::new(),
            mtu: BTreeMap::new(),
            wanted: BTreeMap::new(),
            asked: BTreeMap::new(),
            refused: BTreeMap::new(),
            commands: BTreeMap::new(),
        };
        model.add(manager, Persistency::OnDemand, true, None, false);
        model
    }

    fn host(&mut self) -> u8 {
        self.next_host += 1;
        self.next_host
    }

    /// Returns one of the ports that are up, except the manager's.
    fn port(&self, which: usize) -> Option<PortId> {
        let ports = self.driver.ports();
        let ports = || ports.keys().filter(|it| **it != self.manager);
        ports().nth(which.checked_rem(ports().count())?).copied()
    }

    fn face(&self, which: usize) -> Option<FaceId> {
        let faces = || self.faces.keys().skip(1);
        faces().nth(which.checked_rem(faces().count())?).copied()
    }

    fn add(
        &mut self,
        port: PortId,
        persistency: Persistency,
        stream: bool,
        way_back: Option<Endpoint>,
        may_change: bool,
    ) -> FaceId {
        let face = self.next_face;
        self.next_face.0 += 1;
        let now = self.driver.now();
        let added = Face {
            port: Some(port),
            persistency,
            stream,
            way_back,
            may_change,
            wanted_mtu: None,
            since: now,
            last_heard: now,
            accepted: false,
            on_demand_since: now,
            pause: FIRST_PAUSE,
            ask_at: None,
        };
        self.faces.insert(face, added);
        if !stream {
            self.mtu.insert(port, MTU);
        }
        face
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Call { stream } => self.call(*stream),
            Act::Neighbour => {
                let host = self.host();
                let port = self.driver.up(PortOrigin::Configured(0), udp_medium(host));
                self.add(port, Persistency::Persistent, false, Some(udp(host)), true);
            }
            Act::Program => {
                let port = self.driver.program();
                self.add(port, Persistency::OnDemand, true, None, false);
            }
            Act::Group => {
                let medium = Medium::UdpMulticast {
                    interface: String::from("eth0"),
                    local: address(254),
                    group: ([224, 0, 23, 170], 56_363).into(),
                };
                let port = self.driver.up(PortOrigin::Configured(1), medium);
                self.add(port, Persistency::Permanent, false, None, false);
            }
            Act::Ask { persistency } => {
                let endpoint = udp(self.host());
                let prefix = name_of(&format!("/n/{}", self.next_host % 4));
                self.driver.with_router(|router, _| {
                    router.route_to(prefix, endpoint.clone(), 1);
                    router.ask(endpoint.clone(), configured(*persistency));
                });
                self.wanted
                    .insert(endpoint, Purpose::Configured(*persistency));
                self.driver.pass(Duration::ZERO);
            }
            Act::Answer { which, refuse } => {
                if let Some(which) = which.checked_rem(self.driver.opens.len()) {
                    self.driver.opens.swap(0, which);
                    self.answer(*refuse);
                }
            }
            Act::Down { which } => {
                if let Some(port) = self.port(*which) {
                    self.down(port);
                }
            }
            Act::Mtu { which, mtu } => {
                if let Some(port) = self.port(*which) {
                    self.mtu.entry(port).and_modify(|it| *it = *mtu);
                    self.driver.set_mtu(port, *mtu);
                }
            }
            Act::Block { which } => {
                if let Some(port) = self.port(*which) {
                    self.driver.block(port, true);
                }
            }
            Act::Unblock { which } => {
                if let Some(port) = self.port(*which) {
                    self.driver.block(port, false);
                }
            }
            Act::Frames { which, frames } => {
                if let Some(port) = self.port(*which) {
                    self.frames(port, frames);
                }
            }
            Act::Create { persistency } => self.create(*persistency),
            Act::Destroy { which } => {
                if let Some(face) = self.face(*which) {
                    self.command("faces/destroy", &of_face(face), Some(200));
                    self.end(face);
                }
            }
            Act::Update { which, to } => {
                if let Some(face) = self.face(*which) {
                    self.update(face, *to);
                }
            }
            Act::Limit { which, mtu } => {
                if let Some(face) = self.face(*which) {
                    self.limit(face, *mtu);
                }
            }
            Act::Pass { millis } => self.pass(Duration::from_millis(*millis)),
        }
        self.check();
    }

    fn call(&mut self, stream: bool) {
        let host = self.host();
        let (medium, way_back) = if stream {
            let remote = Peer::Address(address(host));
            (tcp_medium(host), Endpoint::Tcp { remote })
        } else {
            (udp_medium(host), udp(host))
        };
        let port = self.driver.up(PortOrigin::Accepted(0), medium);
        if self.makes_room(stream) {
            let face = self.add(port, Persistency::OnDemand, stream, Some(way_back), true);
            self.faces.get_mut(&face).expect("added").accepted = true;
        } else {
            self.closing.insert(port);
        }
    }

    /// True if there is room for an inbound peer, or a face of its kind gives way.
    fn makes_room(&mut self, stream: bool) -> bool {
        let now = self.driver.now();
        let of_kind = |face: &Face| face.accepted && face.stream == stream;
        let share = if stream { MAX_STREAMS } else { MAX_DATAGRAMS };
        let held = self.faces.values().filter(|face| of_kind(face)).count();
        if held < share && self.faces.len() < MAX_FACES {
            return true;
        }
        if now < self.search_again[usize::from(stream)] {
            return false;
        }
        let at_work = |face: &Face| face.last_heard.since(face.since) >= Duration::from_secs(1);
        let silence = |face: &Face| Duration::from_secs(if at_work(face) { 60 } else { 1 });
        let least = (self.faces.iter())
            .filter(|(_, face)| of_kind(face) && face.persistency == Persistency::OnDemand)
            .filter(|(_, face)| now.since(face.last_heard) >= silence(face))
            .min_by_key(|(id, face)| (at_work(face), face.last_heard, **id));
        let Some(least) = least.map(|(id, _)| *id) else {
            self.search_again[usize::from(stream)] = now + Duration::from_millis(100);
            return false;
        };
        let evicted = self.faces.remove(&least).expect("found");
        self.closing.extend(evicted.port);
        true
    }

    /// Answers the first request to open.
    fn answer(&mut self, refuse: bool) {
        let now = self.driver.now();
        let (token, endpoint) = self.driver.opens[0].clone();
        let purpose = self.asked.remove(&token).expect("known");
        if refuse {
            self.driver.refuse();
            match purpose {
                Purpose::Configured(persistency) => {
                    self.refused.insert(endpoint, (now, persistency));
                }
                Purpose::Created(command, _) => self.outcome(&command, 504),
                Purpose::Back(face) => self.ask_later(face),
            }
            return;
        }
        let port = self.driver.opened();
        match purpose {
            Purpose::Configured(persistency) => {
                self.add(port, persistency, false, Some(endpoint), true);
            }
            Purpose::Created(command, persistency) => {
                self.add(port, persistency, false, Some(endpoint), true);
                self.outcome(&command, 200);
            }
            Purpose::Back(face) => match self.faces.get_mut(&face) {
                Some(face) => {
                    (face.port, face.pause, face.last_heard) = (Some(port), FIRST_PAUSE, now);
                    if !face.stream {
                        self.mtu.insert(port, MTU);
                    }
                }
                None => {
                    self.closing.insert(port);
                }
            },
        }
    }

    /// Ends a creation: its command must be answered if its Interest is still pending.
    fn outcome(&mut self, command: &Name, code: u64) {
        let now = self.driver.now();
        let command = self.commands.get_mut(command).expect("known");
        if now < command.sent + COMMAND_LIFETIME {
            command.expected = Some(code);
        }
    }

    fn ask_later(&mut self, face: FaceId) {
        let now = self.driver.now();
        if let Some(face) = self.faces.get_mut(&face) {
            face.ask_at = Some(now + face.pause);
            face.pause = (face.pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn down(&mut self, port: PortId) {
        self.driver.down(port);
        self.closing.remove(&port);
        self.mtu.remove(&port);
        let Some((&face, found)) = self.faces.iter_mut().find(|it| it.1.port == Some(port)) else {
            return;
        };
        found.port = None;
        if found.persistency == Persistency::Permanent && found.way_back.is_some() {
            self.ask_later(face);
        } else {
            self.faces.remove(&face);
        }
    }

    fn frames(&mut self, port: PortId, frames: &[Frame]) {
        let now = self.driver.now();
        let wires: Vec<Vec<u8>> = frames
            .iter()
            .map(|frame| match frame {
                Frame::Interest(name) => self.driver.interest(&format!("/n/{name}/x")),
                Frame::Data(name, size) => {
                    let name = name_of(&format!("/n/{name}/x"));
                    Data::new(name, vec![7; *size]).encode(&DigestSigner)
                }
                Frame::Garbage(bytes) => bytes.clone(),
            })
            .collect();
        let wires: Vec<&[u8]> = wires.iter().map(Vec::as_slice).collect();
        self.driver.frames(port, &wires);
        let face = self.faces.values_mut().find(|it| it.port == Some(port));
        if let Some(face) = face {
            face.last_heard = now;
        }
    }

    fn command(
        &mut self,
        verb: &str,
        parameters: &ControlParameters,
        expected: Option<u64>,
    ) -> Name {
        let wire = self.driver.command(verb, parameters);
        let name = InterestRef::decode(&wire).unwrap().name.to_name();
        let command = Command {
            sent: self.driver.now(),
            expected,
            answered: false,
        };
        self.commands.insert(name.clone(), command);
        self.driver.frames(self.manager, &[&wire]);
        name
    }

    fn create(&mut self, persistency: Persistency) {
        let host = self.host();
        let parameters = ControlParameters {
            uri: Some(format!("udp4://{}", address(host))),
            persistency: Some(persistency),
            ..ControlParameters::default()
        };
        let command = self.command("faces/create", &parameters, None);
        self.wanted
            .insert(udp(host), Purpose::Created(command, persistency));
    }

    fn update(&mut self, face: FaceId, to: Persistency) {
        let now = self.driver.now();
        let parameters = ControlParameters {
            persistency: Some(to),
            ..of_face(face)
        };
        let found = self.faces.get_mut(&face).expect("chosen among them");
        let was = found.persistency;
        if was != to && !found.may_change {
            self.command("faces/update", &parameters, Some(409));
            return;
        }
        found.persistency = to;
        if to == Persistency::OnDemand && was != to {
            found.on_demand_since = now;
        }
        match found.port {
            Some(port) if was == Persistency::OnDemand && to != was => self.kept.push(port),
            None if to != Persistency::Permanent => self.end(face),
            _ => {}
        }
        self.command("faces/update", &parameters, Some(200));
    }

    fn limit(&mut self, face: FaceId, mtu: usize) {
        let found = self.faces.get_mut(&face).expect("chosen among them");
        let parameters = ControlParameters {
            mtu: Some(mtu as u64),
            ..of_face(face)
        };
        let code = if found.stream {
            409
        } else {
            found.wanted_mtu = Some(mtu);
            200
        };
        self.command("faces/update", &parameters, Some(code));
    }

    /// Returns the largest frame of a face while its port is up; `None` on streams.
    fn mtu_of(&self, face: &Face) -> Option<usize> {
        let port_mtu = *self.mtu.get(&face.port?)?;
        Some(
            face.wanted_mtu
                .map_or(port_mtu, |wanted| wanted.min(port_mtu)),
        )
    }

    fn end(&mut self, face: FaceId) {
        let face = self.faces.remove(&face);
        self.closing.extend(face.and_then(|face| face.port));
    }

    fn pass(&mut self, duration: Duration) {
        let end = self.driver.now() + duration;
        while let Some(at) = self.driver.next_due().filter(|at| *at <= end) {
            self.driver.pass_until(at);
            self.check();
        }
        self.driver.pass_until(end);
    }

    fn check(&mut self) {
        self.check_opens();
        self.check_idle();
        self.check_faces();
        self.check_sent();
        assert_eq!(self.driver.kept, self.kept);
    }

    fn check_opens(&mut self) {
        let now = self.driver.now();
        for (token, endpoint) in self.driver.opens.clone() {
            if self.asked.contains_key(&token) {
                continue;
            }
            let lost = self.faces.iter_mut().find(|(_, face)| {
                face.ask_at == Some(now) && face.way_back.as_ref() == Some(&endpoint)
            });
            let purpose = if let Some(purpose) = self.wanted.remove(&endpoint) {
                purpose
            } else if let Some((id, face)) = lost {
                face.ask_at = None;
                Purpose::Back(*id)
            } else if let Some((_, persistency)) = self.refused.remove(&endpoint) {
                Purpose::Configured(persistency)
            } else {
                panic!("{endpoint} is requested without need");
            };
            self.asked.insert(token, purpose);
        }
        assert!(self.wanted.is_empty(), "not requested: {:?}", self.wanted);
        for (id, face) in &self.faces {
            let due = face.ask_at.is_some_and(|at| at <= now);
            assert!(!due, "lost face {id} was not requested");
        }
        for (endpoint, (since, _)) in &self.refused {
            assert!(
                now < *since + ASK_AGAIN,
                "{endpoint} was not requested again"
            );
        }
    }

    /// Checks that silent inbound peers end within one check interval after their idle time.
    fn check_idle(&mut self) {
        let now = self.driver.now();
        let mut ended = Vec::new();
        for (id, face) in &self.faces {
            if face.persistency != Persistency::OnDemand || face.stream {
                continue;
            }
            let silent_at = face.last_heard + IDLE_TIMEOUT;
            if self.driver.is_up(*id).is_none() {
                assert!(silent_at <= now, "face {id} was not silent for long");
                ended.push(*id);
            } else {
                let latest = silent_at.max(face.on_demand_since) + IDLE_CHECK;
                assert!(now < latest, "face {id} is silent for too long");
            }
        }
        for face in ended {
            self.end(face);
        }
    }

    fn check_faces(&self) {
        let router = self.driver.router();
        let there: Vec<_> = router
            .forwarder()
            .faces()
            .filter(|face| face.id() >= FaceId::FIRST)
            .map(|face| (face.id(), face.spec.persistency, face.up))
            .collect();
        let expected: Vec<_> = self
            .faces
            .iter()
            .map(|(id, face)| (*id, face.persistency, face.port.is_some()))
            .collect();
        assert_eq!(there, expected);
        for (id, face) in self.faces.iter().filter(|it| it.1.port.is_some()) {
            let told = router.forwarder().face(*id).and_then(|face| face.spec.mtu);
            assert_eq!(told, self.mtu_of(face), "face {id}");
        }
        for (port, state) in &self.driver.ports() {
            let face = self.faces.iter().find(|it| it.1.port == Some(*port));
            assert_eq!(router.face_of(*port), face.map(|it| *it.0), "port {port}");
            assert_eq!(state.closing, self.closing.contains(port), "port {port}");
        }
    }

    /// Checks that each command is answered once and correctly, and that no frame exceeds the MTU
    /// of its port.
    fn check_sent(&mut self) {
        for packet in self.driver.packets(self.manager) {
            let name = DataRef::decode(&packet).unwrap().name.to_name();
            let command = self.commands.get_mut(&name).expect("a command");
            assert!(!command.answered, "{name} is answered twice");
            command.answered = true;
            let code = client::response(&packet).unwrap().status_code;
            assert_eq!(Some(code), command.expected, "{name}");
        }
        for (name, command) in &self.commands {
            assert_eq!(command.answered, command.expected.is_some(), "{name}");
        }
        for (port, frame) in core::mem::take(&mut self.driver.sent) {
            // Frames sent before a face ended do not matter.
            let face = self.faces.values().find(|it| it.port == Some(port));
            if let Some(mtu) = face.and_then(|face| self.mtu_of(face)) {
                assert!(frame.len() <= mtu, "{} bytes on port {port}", frame.len());
            }
        }
    }

    /// Grants every request, after which no face must stay down.
    fn recover(&mut self) {
        for _ in 0..3 {
            while !self.driver.opens.is_empty() {
                self.answer(false);
                self.check();
            }
            self.pass(LONGEST_PAUSE);
            self.check();
        }
        assert!(self.driver.opens.is_empty() && self.refused.is_empty());
        assert!(self.faces.values().all(|face| face.port.is_some()));
    }
}

fn of_face(face: FaceId) -> ControlParameters {
    ControlParameters {
        face_id: Some(face.0),
        ..ControlParameters::default()
    }
}

fn reliability() -> impl Strategy<Value = Reliability> {
    prop_oneof![
        Just(Reliability::Off),
        Just(Reliability::Paper(PaperOptions::default())),
        Just(Reliability::Ndnlpv2),
        Just(Reliability::Adaptive),
        Just(Reliability::Auto),
    ]
}

proptest! {
    #[test]
    fn faces_are_as_the_model_has_them(
        reliability in reliability(),
        seed in any::<u64>(),
        acts in prop::collection::vec(act(), 1..80),
    ) {
        let mut model = Model::new(reliability, seed);
        for act in &acts {
            model.act(act);
        }
        model.recover();
    }
}
