//! Several flows through one queue: hops, and models of a kernel's TCP.

#![allow(unreachable_pub, reason = "a module of the tests' own")]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

pub mod tcp;

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{
    Deadline, Ecn, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng,
    Time, Transmit,
};
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent, Pacing};
use whimbrel_sim::link::{LinkSpec, LinkStats};
use whimbrel_sim::testbed::{Life, Net};
use whimbrel_sim::{Direction, DuplexLink};

use tcp::{Kind, Tcp};

/// A flow of a test, and when it begins.
#[derive(Clone, Copy, Debug)]
pub enum Flow {
    Hop(Pacing),
    Tcp(Kind),
}

enum Part {
    Hop {
        hop: Box<Hop>,
        buffer: Buffer,
        sends: bool,
        next: u64,
    },
    Sender(Tcp),
    Receiver(tcp::Sink),
}

/// All flows' ends at one side. Each frame begins with its flow's number.
pub struct Side {
    parts: Vec<(Part, Time, Time)>,
    turn: usize,
    body: Bytes,
    port: Option<PortId>,
    // True if the next frame is marked.
    marked: bool,
    request: Option<PortRequest>,
    /// Bytes of payload that arrived, by flow.
    pub arrived: Vec<u64>,
}

impl Side {
    fn new(flows: &[(Flow, Time, Time)], sends: bool, life: &Life) -> Side {
        let mut rng = life.rng();
        let parts = flows.iter().enumerate().map(|(index, (flow, start, end))| {
            let part = match *flow {
                Flow::Hop(pacing) => {
                    let name = index as u8 * 2 + u8::from(sends) + 1;
                    let config = HopConfig {
                        incarnation: 1,
                        pacing,
                        ..HopConfig::plain(&KeyPair::from_secret(&[name; 32]), [name; 32], 1452)
                    };
                    Part::Hop {
                        hop: Box::new(Hop::new(
                            config,
                            SeededRng::new(rng.next_word()),
                            life.start,
                        )),
                        buffer: Buffer::new(1 << 20),
                        sends,
                        next: 0,
                    }
                }
                Flow::Tcp(kind) if sends => Part::Sender(Tcp::new(kind)),
                Flow::Tcp(_) => Part::Receiver(tcp::Sink::default()),
            };
            (part, *start, *end)
        });
        Side {
            parts: parts.collect(),
            turn: 0,
            body: Bytes::from(vec![7; 256 << 10]),
            port: None,
            marked: false,
            request: None,
            arrived: vec![0; flows.len()],
        }
    }

    pub fn hop(&self, flow: usize) -> &Hop {
        match &self.parts[flow].0 {
            Part::Hop { hop, .. } => hop,
            _ => panic!("flow {flow} is no hop"),
        }
    }

    /// Keeps hops that send busy and takes what others received.
    fn tend(&mut self, now: Time) {
        for (index, (part, start, end)) in self.parts.iter_mut().enumerate() {
            let Part::Hop {
                hop,
                buffer,
                sends,
                next,
            } = part
            else {
                continue;
            };
            while let Some(event) = hop.poll_event() {
                match event {
                    HopEvent::Received { room, .. } => {
                        drop(room);
                        hop.room_released(now, buffer);
                    }
                    HopEvent::SetEcn { capable } => {
                        let port = self.port.unwrap();
                        self.request = Some(PortRequest::SetEcn { port, capable });
                    }
                    _ => {}
                }
            }
            self.arrived[index] = hop.stats().data_received * 1_428;
            if *sends && now >= *start && now < *end {
                while hop.ready_for() > 0 {
                    hop.send(now, *next, Bytes::new(), self.body.clone());
                    *next += 1;
                }
            }
        }
    }
}

impl Machine for Side {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match event {
            PortEvent::Up(_) => self.port = Some(port),
            // All flows use one port. Each hears that frames may be marked; a mark goes to the flow
            // of the marked frame only, as frames arrive one at a time.
            PortEvent::Ecn { codepoint, frames } => {
                self.marked = codepoint == Ecn::Marked;
                for (part, ..) in &mut self.parts {
                    if let (Part::Hop { hop, .. }, false) = (part, self.marked) {
                        hop.handle_ecn(now, codepoint, frames);
                    }
                }
            }
            _ => {}
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, _: PortId, frames: &[&[u8]]) {
        for frame in frames {
            let (flow, frame) = (usize::from(frame[0]), &frame[1..]);
            let marked = core::mem::take(&mut self.marked);
            match &mut self.parts[flow].0 {
                Part::Hop { hop, buffer, .. } => {
                    if marked {
                        hop.handle_ecn(now, Ecn::Marked, 1);
                    }
                    hop.handle_frame(now, frame, buffer);
                }
                Part::Sender(tcp) => tcp.handle_ack(now, frame),
                Part::Receiver(sink) => {
                    self.arrived[flow] += 1_448;
                    sink.handle(frame, marked);
                }
            }
        }
        self.tend(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        for (part, ..) in &mut self.parts {
            match part {
                Part::Hop { hop, buffer, .. } => hop.handle_timeout(now, buffer),
                Part::Sender(tcp) => tcp.handle_timeout(now),
                Part::Receiver(_) => {}
            }
        }
        self.tend(now);
    }

    fn poll_transmit(&mut self, now: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let port = self.port?;
        let begin = buffer.len();
        for _ in 0..self.parts.len() {
            self.turn = (self.turn + 1) % self.parts.len();
            let (part, start, end) = &mut self.parts[self.turn];
            buffer.push(self.turn as u8);
            let written = match part {
                Part::Hop { hop, .. } => hop.poll_transmit(now, 1, buffer).is_some(),
                Part::Sender(tcp) => now >= *start && tcp.write(now, *end, buffer),
                Part::Receiver(sink) => sink.write(buffer),
            };
            if written {
                let size = buffer.len() - begin;
                return Some(Transmit {
                    port,
                    size,
                    segment_size: None,
                });
            }
            buffer.truncate(begin);
        }
        None
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.request.take()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.port?;
        let all = self.parts.iter().map(|(part, start, end)| match part {
            Part::Hop { hop, .. } => hop.poll_timeout(),
            Part::Sender(tcp) if tcp.next_time() >= *end => None,
            Part::Sender(tcp) => Some(Deadline::new(tcp.next_time().max(*start), "TCP")),
            Part::Receiver(_) => None,
        });
        all.fold(None, Deadline::earlier)
    }
}

/// The flows and the link that they share.
pub struct Shared {
    pub net: Net<Side>,
}

impl Shared {
    pub fn new(seed: u64, path: &LinkSpec, flows: &[(Flow, Time, Time)]) -> Shared {
        let back = LinkSpec::new(1_000_000_000, path.delay);
        let link = DuplexLink::new(path.clone(), back);
        let list = flows.to_vec();
        let make = move |life: &Life, _: Option<&mut Side>| Side::new(&list, life.node == 0, life);
        Shared {
            net: Net::pair(seed, &link, make).unwrap(),
        }
    }

    pub fn arrived(&self) -> Vec<u64> {
        self.net[1].arrived.clone()
    }

    pub fn link_stats(&self) -> &LinkStats {
        let link = self.net.link(0);
        self.net.sim().link_stats(link, Direction::BOTH[0])
    }

    /// Returns the queueing delay that is exceeded in a twentieth of this time.
    pub fn queueing(&mut self, from: Time, to: Time) -> Duration {
        let mut delays = Vec::new();
        let mut now = from;
        while now < to {
            while self.net.step(now) {}
            let waiting = self.link_stats().queue_bytes;
            delays.push(Duration::from_micros(waiting * 8 / 20));
            now += Duration::from_millis(5);
        }
        delays.sort();
        delays[delays.len() * 95 / 100]
    }

    /// Returns the rate at which each flow's bytes arrived between both times, in bits per second.
    pub fn rates(&mut self, from: Time, to: Time) -> Vec<f64> {
        while self.net.step(from) {}
        self.net.with(1, |side, now| side.tend(now));
        let before = self.arrived();
        while self.net.step(to) {}
        self.net.with(1, |side, now| side.tend(now));
        let spent = to.since(from).as_secs_f64();
        let pairs = self.arrived().into_iter().zip(before);
        pairs
            .map(|(now, then)| (now - then) as f64 * 8.0 / spent)
            .collect()
    }
}

/// Returns a path of 20 Mbit/s and 50 ms with a queue of `bdp` times the product of both.
pub fn path(bdp: f64) -> LinkSpec {
    let queue = (125_000.0 * bdp) as u64;
    LinkSpec::new(20_000_000, Duration::from_millis(25))
        .with_queue(whimbrel_sim::link::QueueLimit::Bytes(queue))
}
