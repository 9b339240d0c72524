//! Two applications and a path between them that loses, delays, reorders and duplicates, on the
//! test bed.
//!
//! A machine in the middle stands for forwarders: it answers registration commands itself and lets
//! everything else through.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses a part of it, and fails where something is missing"
)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use whimbrel_core::{
    Deadline, Machine, Medium, OpenRefusal, PortEvent, PortId, PortInfo, PortOrigin, PortRequest,
    PortToken, Time, Transmit, WallClock,
};
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse};
use whimbrel_ndn_packet::{Data, DigestSigner, InterestRef, LpPacket, Name, tlv};
use whimbrel_sim::link::{LinkSpec, Loss, Reorder};
use whimbrel_sim::testbed::Net;
use whimbrel_sim::{AnyMachine, DuplexLink};
use whimbrel_transport::{AppFace, Application, RegisterOptions, SharedSigner};

pub const PORT: PortId = PortId(7);
const MTU: usize = 9000;

/// What the path does with a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    pub loss: f64,
    pub duplicate: f64,
    /// One way, at least and at most: frames overtake each other within.
    pub delay: (Duration, Duration),
    /// Frames go over a stream: several to a transmit.
    pub stream: bool,
}

impl Path {
    pub fn clean() -> Path {
        Path {
            delay: (Duration::from_millis(5), Duration::from_millis(5)),
            ..Path::default()
        }
    }

    pub fn lossy(loss: f64) -> Path {
        Path {
            loss,
            duplicate: loss / 2.0,
            delay: (Duration::from_millis(2), Duration::from_millis(12)),
            stream: false,
        }
    }

    fn spec(&self) -> LinkSpec {
        let (least, most) = self.delay;
        let quarter = (most - least) / 4;
        let reorder = Reorder {
            probability: 0.5,
            extra_delay: 2 * quarter,
        };
        LinkSpec {
            delay: least + quarter,
            jitter: quarter,
            reorder: (!quarter.is_zero()).then_some(reorder),
            duplicate: self.duplicate,
            loss: Loss::Independent(self.loss),
            ..LinkSpec::default()
        }
    }
}

/// Which of the two a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Consumer,
    Producer,
}

/// Changes frames on their way; an empty answer drops the frame.
pub type Tamper = Box<dyn FnMut(Time, Side, Vec<u8>) -> Vec<Vec<u8>>>;

fn medium(stream: bool) -> Medium {
    if stream {
        Medium::Unix {
            path: None,
            descriptor: 3,
            accepted: false,
        }
    } else {
        Medium::Unaddressed
    }
}

pub fn port_up(stream: bool, mtu: usize) -> PortEvent {
    let medium = medium(stream);
    let label = String::from("test");
    PortEvent::Up(PortInfo {
        peer: label.clone(),
        label,
        origin: PortOrigin::Local,
        mtu,
        medium,
    })
}

pub fn clock() -> WallClock {
    WallClock::new(1_700_000_000_000)
}

pub fn register() -> RegisterOptions {
    RegisterOptions::new(clock())
}

pub fn digest() -> SharedSigner {
    Arc::new(DigestSigner)
}

pub fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// An application at its end of the path. What it writes to a stream at once is cut into its packets,
/// as whoever reads the stream would do.
struct End<A: Application> {
    face: AppFace<A>,
    stream: bool,
    cut: VecDeque<(PortId, Vec<u8>)>,
    // Each frame that it sent.
    sent: Vec<Vec<u8>>,
}

impl<A: Application> End<A> {
    fn new(application: A, path: &Path) -> End<A> {
        End {
            face: AppFace::new(application),
            stream: path.stream,
            cut: VecDeque::new(),
            sent: Vec::new(),
        }
    }
}

impl<A: Application> Machine for End<A> {
    type Event = A::Event;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        self.face.handle_port(now, port, event);
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        self.face.handle_refusal(now, token, refusal);
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        self.face.handle_frames(now, port, frames);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.face.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let start = buffer.len();
        let transmit = if self.stream {
            if self.cut.is_empty() {
                let (port, packets) = transmit(&mut self.face, now, true)?;
                self.cut.extend(packets.into_iter().map(|it| (port, it)));
            }
            write(&mut self.cut, buffer)?
        } else {
            self.face.poll_transmit(now, max_segments, buffer)?
        };
        assert_eq!(transmit.size, buffer.len() - start);
        let frames = transmit.frames(&buffer[start..]);
        self.sent.extend(frames.map(<[u8]>::to_vec));
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<A::Event> {
        self.face.poll_event()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.face.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.face.poll_timeout()
    }
}

fn write(frames: &mut VecDeque<(PortId, Vec<u8>)>, buffer: &mut Vec<u8>) -> Option<Transmit> {
    let (port, frame) = frames.pop_front()?;
    buffer.extend_from_slice(&frame);
    Some(Transmit {
        port,
        size: frame.len(),
        segment_size: None,
    })
}

type Registered = Arc<Mutex<Vec<(String, Name)>>>;

/// What stands for forwarders: a port to the consumer, one to the producer, management, and whoever
/// tampers with frames.
struct Forwarders {
    ports: [Option<PortId>; 2],
    sent: VecDeque<(PortId, Vec<u8>)>,
    management: Rc<Cell<Option<u64>>>,
    registered: Registered,
    tamper: Rc<RefCell<Option<Tamper>>>,
}

impl Forwarders {
    /// Answers a command of the producer's.
    fn command(&mut self, port: PortId, frame: &[u8]) -> bool {
        let Ok(packet) = LpPacket::decode(frame, false) else {
            return false;
        };
        let Some(Ok(interest)) = packet.fragment.map(InterestRef::decode) else {
            return false;
        };
        if !name("/localhost/nfd").as_ref().is_prefix_of(interest.name) {
            return false;
        }
        assert!(interest.parameters_digest_is_valid());
        assert!(
            interest
                .signature_info
                .is_some_and(|info| info.time.is_some() && info.nonce.is_some())
        );
        let command = read_command(&interest).expect("a RIB command");
        self.registered.lock().expect("no panic").push(command);
        if let Some(code) = self.management.get() {
            let content = ControlResponse::new(code, "said the forwarder").encode();
            let data = Data::new(interest.name.to_name(), content).encode(&DigestSigner);
            self.sent.push_back((port, data));
        }
        true
    }
}

impl Machine for Forwarders {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        if let PortEvent::Up(info) = event
            && let PortOrigin::Configured(side) = info.origin
        {
            self.ports[side as usize] = Some(port);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        let from_producer = self.ports[Side::Producer as usize] == Some(port);
        let to = if from_producer {
            Side::Consumer
        } else {
            Side::Producer
        };
        for frame in frames {
            if from_producer && self.command(port, frame) {
                continue;
            }
            let frames = match &mut *self.tamper.borrow_mut() {
                Some(tamper) => tamper(now, to, frame.to_vec()),
                None => vec![frame.to_vec()],
            };
            if let Some(port) = self.ports[to as usize] {
                self.sent.extend(frames.into_iter().map(|it| (port, it)));
            }
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        write(&mut self.sent, buffer)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

enum Said<C, P> {
    Consumer(C),
    Producer(P),
}

type Party<C, P> = AnyMachine<Said<<C as Application>::Event, <P as Application>::Event>>;

const FORWARDERS: usize = 2;

pub struct Pair<C: Application, P: Application> {
    net: Net<Party<C, P>>,
    pub consumer_events: Vec<(Time, C::Event)>,
    pub producer_events: Vec<(Time, P::Event)>,
    path: Path,
    tamper: Rc<RefCell<Option<Tamper>>>,
    /// What the forwarder answers to registrations; `None` is silence.
    pub management: Rc<Cell<Option<u64>>>,
    pub registered: Registered,
    /// Frames to the consumer's peer, in their order.
    pub sent_by_consumer: Vec<Vec<u8>>,
    started: bool,
}

impl<C, P> Pair<C, P>
where
    C: Application<Event: 'static> + 'static,
    P: Application<Event: 'static> + 'static,
{
    pub fn new(consumer: C, producer: P, path: Path, seed: u64) -> Pair<C, P> {
        let mut net = Net::new(seed);
        let (management, registered) = (Rc::new(Cell::new(Some(200))), Registered::default());
        let tamper: Rc<RefCell<Option<Tamper>>> = Rc::default();
        let (consumer, producer) = (End::new(consumer, &path), End::new(producer, &path));
        let forwarders = Forwarders {
            ports: [None; 2],
            sent: VecDeque::new(),
            management: Rc::clone(&management),
            registered: Arc::clone(&registered),
            tamper: Rc::clone(&tamper),
        };
        net.add_mortal("consumer", AnyMachine::new(consumer, Said::Consumer));
        net.add_mortal("producer", AnyMachine::new(producer, Said::Producer));
        let forwarders = AnyMachine::new(forwarders, |never| match never {});
        assert_eq!(net.add_mortal("forwarders", forwarders), FORWARDERS);
        let mut pair = Pair {
            net,
            consumer_events: Vec::new(),
            producer_events: Vec::new(),
            path,
            tamper,
            management,
            registered,
            sent_by_consumer: Vec::new(),
            started: false,
        };
        pair.face(Side::Producer, true);
        pair
    }

    pub fn now(&self) -> Time {
        self.net.now()
    }

    pub fn consumer(&self) -> &AppFace<C> {
        &self.net[Side::Consumer as usize]
            .get::<End<C>>()
            .unwrap()
            .face
    }

    pub fn producer(&self) -> &AppFace<P> {
        &self.net[Side::Producer as usize]
            .get::<End<P>>()
            .unwrap()
            .face
    }

    /// Calls into the producer.
    pub fn with_producer(&mut self, call: impl FnOnce(&mut P)) {
        self.net.with(Side::Producer as usize, |party, _| {
            let end = party.get_mut::<End<P>>().unwrap();
            call(end.face.application_mut());
        });
        self.note();
    }

    /// Has `tamper` change frames on their way.
    pub fn set_tamper(&mut self, tamper: Tamper) {
        *self.tamper.borrow_mut() = Some(tamper);
    }

    /// Brings a side's port up or down.
    pub fn face(&mut self, side: Side, up: bool) {
        if up {
            self.connect(side);
        } else {
            let (id, port) = self.last_port(side);
            self.net.sim_mut().close_port(id, port);
        }
        self.note();
    }

    pub fn block(&mut self, side: Side, blocked: bool) {
        let (id, port) = self.last_port(side);
        if blocked {
            self.net.sim_mut().set_blocked(id, port, true);
        } else {
            self.net.sim_mut().set_blocked(id, port, false);
        }
        self.note();
    }

    fn last_port(&self, side: Side) -> (whimbrel_sim::NodeId, PortId) {
        let id = self.net.id(side as usize);
        (id, *self.net.sim().node_ports(id).last().unwrap())
    }

    /// All delay is between the consumer and the forwarders.
    fn connect(&mut self, side: Side) {
        let spec = match side {
            Side::Consumer => self.path.spec(),
            Side::Producer => LinkSpec::default(),
        };
        let medium = medium(self.path.stream);
        let link = DuplexLink {
            mtu: MTU,
            ..DuplexLink::symmetric(spec)
                .with_origins(PortOrigin::Local, PortOrigin::Configured(side as u32))
                .with_media(medium, Medium::Unaddressed)
        };
        self.net.connect(side as usize, FORWARDERS, &link).unwrap();
    }

    /// Takes down what the two have said and sent.
    fn note(&mut self) {
        while let Some(told) = self.net.sim_mut().poll_event() {
            match told.event {
                Said::Consumer(event) => self.consumer_events.push((told.time, event)),
                Said::Producer(event) => self.producer_events.push((told.time, event)),
            }
        }
        let sent = self.net.with(Side::Consumer as usize, |party, _| {
            core::mem::take(&mut party.get_mut::<End<C>>().unwrap().sent)
        });
        self.sent_by_consumer.extend(sent);
    }

    /// Does what happens next; false if nothing is left to happen before `end`. The consumer's face
    /// comes up at the first step.
    pub fn step(&mut self, end: Time) -> bool {
        if !self.started {
            self.started = true;
            self.face(Side::Consumer, true);
        }
        let more = self.net.step(end);
        self.note();
        more
    }

    /// Until nothing is left to happen before `end`, or `done`.
    pub fn run(&mut self, end: Time, mut done: impl FnMut(&Self) -> bool) {
        while !done(self) && self.step(end) {}
    }
}

/// One transmit's port and frames.
pub fn transmit<A: Application>(
    face: &mut AppFace<A>,
    now: Time,
    stream: bool,
) -> Option<(PortId, Vec<Vec<u8>>)> {
    let mut buffer = Vec::new();
    let transmit = face.poll_transmit(now, 44, &mut buffer)?;
    assert_eq!(transmit.size, buffer.len());
    if !stream {
        let frames = transmit.frames(&buffer).map(<[u8]>::to_vec).collect();
        return Some((transmit.port, frames));
    }
    assert_eq!(transmit.segment_size, None);
    let mut reader = tlv::Reader::new(&buffer);
    let mut frames = Vec::new();
    while let Some(packet) = reader.element().expect("whole packets") {
        frames.push(packet.whole.to_vec());
    }
    Some((transmit.port, frames))
}

/// Verb and prefix of a command under `/localhost/nfd/rib`.
fn read_command(interest: &InterestRef<'_>) -> Option<(String, Name)> {
    let verb = String::from_utf8(interest.name.get(3)?.value().to_vec()).ok()?;
    let parameters = ControlParameters::decode(interest.name.get(4)?.value()).ok()?;
    Some((verb, parameters.name?))
}
