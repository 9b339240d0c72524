//! A caller whose address changes: it comes in on another port of the listener, and what was on its
//! way to it follows; a call with its key from another run moves nothing.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{Medium, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time};
use whimbrel_link::Room;
use whimbrel_link::{HopConfig, Pacing};
use whimbrel_mobilityfirst::chunk::{Chunk, Message};
use whimbrel_mobilityfirst::links::{ChunkToSend, LinkEvent, Links};
use whimbrel_mobilityfirst::wire::{NetworkHeader, ServiceId, UpperProtocol};

/// Also the one-way delay.
const STEP: Duration = Duration::from_millis(1);
/// Secrets of their keys.
const CLIENT: [u8; 32] = [1; 32];
const SERVER: [u8; 32] = [2; 32];
/// Of a caller's own link.
const UPLINK: PortId = PortId(0);
const BEFORE: PortId = PortId(10);
const AFTER: PortId = PortId(11);

fn node(secret: [u8; 32], incarnation: u64, seed: u64) -> Links {
    let hop = HopConfig {
        incarnation,
        // A step of the clock takes longer than a burst of an estimated pace.
        pacing: Pacing::Fixed(200_000_000),
        ..HopConfig::plain(&KeyPair::from_secret(&secret), [seed as u8; 32], 1472)
    };
    Links::new(hop, 4096, SeededRng::new(seed))
}

fn up(origin: PortOrigin) -> PortEvent {
    PortEvent::Up(PortInfo {
        label: String::new(),
        origin,
        mtu: 1472,
        peer: String::new(),
        medium: Medium::Unaddressed,
    })
}

/// A node that calls, and the port on which what it sends comes in; `None` while that gets lost.
struct Caller {
    links: Links,
    at: Option<PortId>,
    received: Vec<Bytes>,
}

impl Caller {
    fn new(incarnation: u64, seed: u64, at: PortId) -> Caller {
        let mut links = node(CLIENT, incarnation, seed);
        links.handle_port(Time::ZERO, UPLINK, &up(PortOrigin::Configured(0)));
        Caller {
            links,
            at: Some(at),
            received: Vec::new(),
        }
    }
}

struct Net {
    now: Time,
    server: Links,
    callers: Vec<Caller>,
    events: Vec<LinkEvent>,
    // To be handed in at the next step: to the server by this port, or to this caller.
    to_server: Vec<(PortId, Vec<u8>)>,
    to_callers: Vec<(usize, Vec<u8>)>,
}

impl Net {
    fn new() -> Net {
        let mut net = Net {
            now: Time::ZERO,
            server: node(SERVER, 7, 1),
            callers: vec![Caller::new(5, 2, BEFORE)],
            events: Vec::new(),
            to_server: Vec::new(),
            to_callers: Vec::new(),
        };
        net.run(Duration::from_secs(1));
        assert!(net.server.is_up(BEFORE));
        net
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        for (port, frame) in core::mem::take(&mut self.to_server) {
            if !self.server.has(port) {
                self.server
                    .handle_port(now, port, &up(PortOrigin::Accepted(0)));
            }
            self.server.handle_frame(now, port, &frame);
        }
        for (caller, frame) in core::mem::take(&mut self.to_callers) {
            self.callers[caller].links.handle_frame(now, UPLINK, &frame);
        }
        self.server.handle_timeout(now);
        while let Some(event) = self.server.poll_event(now) {
            if let LinkEvent::Moved { from, to } = event {
                self.server.follow(now, from, to);
            }
            self.events.push(event);
        }
        let mut buffer = Vec::new();
        while let Some(transmit) = self.server.poll_transmit(now, 16, &mut buffer) {
            let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
            let to = self
                .callers
                .iter()
                .position(|caller| caller.at == Some(transmit.port));
            let frames = buffer.chunks(segment).map(<[u8]>::to_vec);
            self.to_callers.extend(
                to.into_iter()
                    .flat_map(|to| frames.clone().map(move |frame| (to, frame))),
            );
            buffer.clear();
        }
        for caller in &mut self.callers {
            caller.links.handle_timeout(now);
            while let Some(event) = caller.links.poll_event(now) {
                if let LinkEvent::Received { bytes, .. } = event {
                    caller.received.push(bytes);
                }
            }
            while let Some(transmit) = caller.links.poll_transmit(now, 16, &mut buffer) {
                let segment = transmit.segment_size.unwrap_or(transmit.size).max(1);
                let frames = buffer.chunks(segment).map(<[u8]>::to_vec);
                let at = caller.at;
                self.to_server
                    .extend(frames.filter_map(|frame| Some((at?, frame))));
                buffer.clear();
            }
        }
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.step();
        }
    }

    fn send(&mut self, port: PortId, number: u8) {
        let (service, upper) = (ServiceId::NEIGHBOUR, UpperProtocol::Control);
        let [from, to] = [SERVER, CLIENT].map(|secret| KeyPair::from_secret(&secret).guid());
        let chunk = Chunk {
            header: NetworkHeader::new(service, upper, from, to),
            message: Message {
                head: Bytes::from(vec![number; 400_000]),
                body: Bytes::new(),
            },
        };
        let outgoing = ChunkToSend {
            chunk,
            room: Room::default(),
            from: None,
            origin: None,
            order: None,
            until: None,
        };
        assert!(self.server.enqueue(port, outgoing).is_ok());
    }

    fn moves(&self) -> Vec<(PortId, PortId)> {
        let moved = |event: &LinkEvent| match event {
            LinkEvent::Moved { from, to } => Some((*from, *to)),
            _ => None,
        };
        self.events.iter().filter_map(moved).collect()
    }
}

#[test]
fn what_is_on_its_way_follows_a_caller_to_its_new_address_at_once() {
    let mut net = Net::new();
    (1..=8).for_each(|number| net.send(BEFORE, number));
    net.run(STEP * 100);
    assert!(net.callers[0].received.len() < 8, "some are on their way");
    net.callers[0].at = Some(AFTER);
    let change = net.now;
    while net.moves().is_empty() {
        net.step();
        assert!(
            net.now.since(change) < Duration::from_millis(300),
            "two exchanges and a probe"
        );
    }
    assert_eq!(net.moves(), [(BEFORE, AFTER)]);
    assert!(net.server.is_up(AFTER) && !net.server.is_up(BEFORE));
    net.run(Duration::from_secs(5));
    let mut numbers: Vec<u8> = net.callers[0]
        .received
        .iter()
        .map(|it| it[it.len() - 1])
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8], "none is lost");
    // And back.
    net.callers[0].at = Some(BEFORE);
    net.run(Duration::from_secs(4));
    assert_eq!(net.moves(), [(BEFORE, AFTER), (AFTER, BEFORE)]);
    assert!(net.server.is_up(BEFORE));
}

#[test]
fn a_call_with_a_callers_key_from_another_run_moves_nothing() {
    let mut net = Net::new();
    (1..=200).for_each(|number| net.send(BEFORE, number));
    net.run(STEP * 100);
    net.callers.push(Caller::new(6, 9, AFTER));
    net.run(Duration::from_millis(400));
    assert!(net.server.is_up(AFTER), "somebody is there");
    assert_eq!(net.moves(), []);
    assert!(net.server.is_up(BEFORE));
    net.run(Duration::from_secs(20));
    assert_eq!(net.callers[0].received.len(), 200);
    assert!(
        net.callers[1].received.is_empty(),
        "nothing went to the second holder of the key"
    );
}
