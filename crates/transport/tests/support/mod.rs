//! Two applications and a path between them that loses, delays, reorders and duplicates, in virtual
//! time.
//!
//! The path stands for forwarders: it answers registration commands itself and lets everything else
//! through.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use whimbrel_core::Medium;
use whimbrel_core::{Machine, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_ndn_mgmt::{ControlParameters, ControlResponse};
use whimbrel_ndn_packet::{Data, DigestSigner, InterestRef, LpPacket, Name, tlv};
use whimbrel_transport::{AppFace, Application, RegisterOptions, SharedSigner};

pub const PORT: PortId = PortId(7);

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
}

/// Which of the two a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Consumer,
    Producer,
}

/// Changes frames on their way; an empty answer drops the frame.
pub type Tamper = Box<dyn FnMut(Time, Side, Vec<u8>) -> Vec<Vec<u8>>>;

pub struct Pair<C: Application, P: Application> {
    pub now: Time,
    pub consumer: AppFace<C>,
    pub producer: AppFace<P>,
    pub consumer_events: Vec<(Time, C::Event)>,
    pub producer_events: Vec<(Time, P::Event)>,
    pub path: Path,
    pub tamper: Option<Tamper>,
    /// What the forwarder answers to registrations; `None` is silence.
    pub management: Option<u64>,
    pub registered: Arc<Mutex<Vec<(String, Name)>>>,
    /// Frames to the consumer's peer, in their order.
    pub sent_by_consumer: Vec<Vec<u8>>,
    pub keep_frames: bool,
    rng: SeededRng,
    flying: BTreeMap<(Time, u64), (Side, Vec<u8>)>,
    number: u64,
    started: bool,
}

pub fn port_up(stream: bool, mtu: usize) -> PortEvent {
    let medium = if stream {
        Medium::Unix {
            path: None,
            descriptor: 3,
            accepted: false,
        }
    } else {
        Medium::Unaddressed
    };
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

impl<C: Application, P: Application> Pair<C, P> {
    pub fn new(consumer: C, producer: P, path: Path, seed: u64) -> Pair<C, P> {
        let mut pair = Pair {
            now: Time::ZERO,
            consumer: AppFace::new(consumer),
            producer: AppFace::new(producer),
            consumer_events: Vec::new(),
            producer_events: Vec::new(),
            path,
            tamper: None,
            management: Some(200),
            registered: Arc::default(),
            sent_by_consumer: Vec::new(),
            keep_frames: false,
            rng: SeededRng::new(seed),
            flying: BTreeMap::new(),
            number: 0,
            started: false,
        };
        pair.face(Side::Producer, true);
        pair
    }

    /// Brings a side's port up or down.
    pub fn face(&mut self, side: Side, up: bool) {
        let event = if up {
            port_up(self.path.stream, 9000)
        } else {
            PortEvent::Down
        };
        self.port(side, event);
    }

    pub fn port(&mut self, side: Side, event: PortEvent) {
        if event == PortEvent::Down {
            self.flying.retain(|_, (to, _)| *to != side);
        }
        match side {
            Side::Consumer => self.consumer.handle_port(self.now, PORT, event),
            Side::Producer => self.producer.handle_port(self.now, PORT, event),
        }
        self.drain();
    }

    pub fn drain(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(frames) = transmit(&mut self.consumer, self.now, self.path.stream) {
                quiet = false;
                for frame in frames {
                    if self.keep_frames {
                        self.sent_by_consumer.push(frame.clone());
                    }
                    self.send(Side::Producer, frame);
                }
            }
            while let Some(frames) = transmit(&mut self.producer, self.now, self.path.stream) {
                quiet = false;
                for frame in frames {
                    self.send(Side::Consumer, frame);
                }
            }
            while let Some(event) = self.consumer.poll_event() {
                quiet = false;
                self.consumer_events.push((self.now, event));
            }
            while let Some(event) = self.producer.poll_event() {
                quiet = false;
                self.producer_events.push((self.now, event));
            }
            if quiet {
                break;
            }
        }
    }

    fn send(&mut self, to: Side, frame: Vec<u8>) {
        if to == Side::Consumer && self.command(&frame) {
            return;
        }
        let frames = match self.tamper.take() {
            Some(mut tamper) => {
                let frames = tamper(self.now, to, frame);
                self.tamper = Some(tamper);
                frames
            }
            None => vec![frame],
        };
        for frame in frames {
            if self.rng.chance(self.path.loss) {
                continue;
            }
            if self.rng.chance(self.path.duplicate) {
                self.put(to, frame.clone());
            }
            self.put(to, frame);
        }
    }

    fn put(&mut self, to: Side, frame: Vec<u8>) {
        let (least, most) = self.path.delay;
        let delay = least + (most - least).mul_f64(self.rng.unit());
        self.number += 1;
        self.flying
            .insert((self.now + delay, self.number), (to, frame));
    }

    /// Answers a command of the producer's.
    fn command(&mut self, frame: &[u8]) -> bool {
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
        self.registered
            .lock()
            .expect("no panic")
            .push(read_command(&interest).expect("a RIB command"));
        if let Some(code) = self.management {
            let content = ControlResponse::new(code, "said the forwarder").encode();
            let data = Data::new(interest.name.to_name(), content).encode(&DigestSigner);
            self.put(Side::Producer, data);
        }
        true
    }

    /// Works off what happens next; false if nothing is left to happen before `end`. The consumer's
    /// face comes up at the first step.
    pub fn step(&mut self, end: Time) -> bool {
        if !self.started {
            self.started = true;
            self.face(Side::Consumer, true);
        }
        let flying = self.flying.keys().next().map(|(at, _)| *at);
        let deadlines = [self.consumer.poll_timeout(), self.producer.poll_timeout()];
        let due = deadlines
            .into_iter()
            .flatten()
            .map(|deadline| deadline.at)
            .chain(flying)
            .min();
        let Some(at) = due.filter(|at| *at <= end) else {
            self.now = self.now.max(end);
            return false;
        };
        self.now = self.now.max(at);
        while let Some(entry) = self
            .flying
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now)
        {
            let (to, frame) = entry.remove();
            match to {
                Side::Consumer => self.consumer.handle_frames(self.now, PORT, &[&frame]),
                Side::Producer => self.producer.handle_frames(self.now, PORT, &[&frame]),
            }
        }
        if self
            .consumer
            .poll_timeout()
            .is_some_and(|deadline| deadline.at <= self.now)
        {
            self.consumer.handle_timeout(self.now);
        }
        if self
            .producer
            .poll_timeout()
            .is_some_and(|deadline| deadline.at <= self.now)
        {
            self.producer.handle_timeout(self.now);
        }
        self.drain();
        true
    }

    /// Until nothing is left to happen before `end`, or `done`.
    pub fn run(&mut self, end: Time, mut done: impl FnMut(&Self) -> bool) {
        let mut steps = 0u64;
        while !done(self) && self.step(end) {
            steps += 1;
            assert!(steps < 50_000_000, "time stands still at {}", self.now);
        }
    }
}

/// One transmit's frames.
pub fn transmit<A: Application>(
    face: &mut AppFace<A>,
    now: Time,
    stream: bool,
) -> Option<Vec<Vec<u8>>> {
    let mut buffer = Vec::new();
    let transmit = face.poll_transmit(now, 44, &mut buffer)?;
    assert_eq!(transmit.size, buffer.len());
    if !stream {
        return Some(transmit.frames(&buffer).map(<[u8]>::to_vec).collect());
    }
    assert_eq!(transmit.segment_size, None);
    let mut reader = tlv::Reader::new(&buffer);
    let mut frames = Vec::new();
    while let Some(packet) = reader.element().expect("whole packets") {
        frames.push(packet.whole.to_vec());
    }
    Some(frames)
}

/// Verb and prefix of a command under `/localhost/nfd/rib`.
fn read_command(interest: &InterestRef<'_>) -> Option<(String, Name)> {
    let verb = String::from_utf8(interest.name.get(3)?.value().to_vec()).ok()?;
    let parameters = ControlParameters::decode(interest.name.get(4)?.value()).ok()?;
    Some((verb, parameters.name?))
}
