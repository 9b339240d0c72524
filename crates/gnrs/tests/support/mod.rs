//! A resolver and its servers with a bad network between them, in virtual time.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "a harness, of which each test uses a part"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use whimbrel_core::{
    Guid, Machine, Medium, PortEvent, PortId, PortInfo, PortOrigin, SeededRng, Time, WallClock,
};
use whimbrel_gnrs::{
    Address, KeyPair, MemoryStore, Record, Resolver, ResolverConfig, ResolverEvent, Server,
    ServerConfig, Statement, StoreLimits,
};

/// Unix time of the virtual origin, in milliseconds.
pub const EPOCH: u64 = 1_800_000_000_000;

pub fn keys(seed: u8) -> KeyPair {
    KeyPair::from_secret(&[seed; 32])
}

pub fn router(seed: u8) -> Address {
    Address::new(Guid([seed; 32]))
}

/// A binding of `keys(seed)` that lives for `life_ms` from the epoch.
pub fn binding(seed: u8, version: u64, life_ms: u64, addresses: Vec<Address>) -> Record {
    Record::binding(&keys(seed), &said(version, life_ms, addresses)).unwrap()
}

pub fn said(version: u64, life_ms: u64, addresses: Vec<Address>) -> Statement {
    Statement {
        version,
        issued_ms: EPOCH,
        expires_ms: EPOCH + life_ms,
        addresses,
        removed: false,
    }
}

pub fn up() -> PortEvent {
    PortEvent::Up(PortInfo {
        label: "test".into(),
        origin: PortOrigin::Accepted(0),
        mtu: 1500,
        peer: "test".into(),
        medium: Medium::Unaddressed,
    })
}

/// How bad the network is: probabilities, and delay one way.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    pub loss: f64,
    pub duplication: f64,
    pub corruption: f64,
    pub delay: Duration,
    /// Up to this much more, so that frames overtake each other.
    pub jitter: Duration,
}

impl Network {
    pub const GOOD: Network = Network {
        loss: 0.0,
        duplication: 0.0,
        corruption: 0.0,
        delay: Duration::from_millis(10),
        jitter: Duration::ZERO,
    };
    pub const BAD: Network = Network {
        loss: 0.3,
        duplication: 0.2,
        corruption: 0.05,
        delay: Duration::from_millis(10),
        jitter: Duration::from_millis(60),
    };
}

#[derive(Debug)]
enum Frame {
    ToServer(usize, Vec<u8>),
    ToClient(usize, Vec<u8>),
}

pub struct Node {
    pub server: Server<MemoryStore>,
    pub alive: bool,
    incarnation: u8,
}

pub struct Pair {
    pub now: Time,
    pub client: Resolver,
    pub servers: Vec<Node>,
    pub network: Network,
    pub events: Vec<(Time, ResolverEvent)>,
    /// Every frame that a server has sent, for replays.
    pub from_server: Vec<Vec<u8>>,
    pub to_server: Vec<Vec<u8>>,
    rng: SeededRng,
    pipe: BTreeMap<(Time, u64), Frame>,
    serial: u64,
}

fn server(secret: u8, store: MemoryStore) -> Server<MemoryStore> {
    Server::new(
        ServerConfig::default(),
        WallClock::new(EPOCH),
        [secret; 32],
        store,
    )
}

impl Pair {
    pub fn new(seed: u64, network: Network, servers: usize) -> Pair {
        Pair::with_config(seed, network, servers, ResolverConfig::default())
    }

    pub fn with_config(
        seed: u64,
        network: Network,
        servers: usize,
        config: ResolverConfig,
    ) -> Pair {
        let client = Resolver::new(
            config,
            WallClock::new(EPOCH),
            SeededRng::stream(seed, "client"),
        );
        let servers = (0..servers)
            .map(|index| {
                let store = MemoryStore::new(StoreLimits::default());
                Node {
                    server: server(index as u8, store),
                    alive: true,
                    incarnation: 0,
                }
            })
            .collect();
        let mut pair = Pair {
            now: Time::ZERO,
            client,
            servers,
            network,
            events: Vec::new(),
            from_server: Vec::new(),
            to_server: Vec::new(),
            rng: SeededRng::stream(seed, "network"),
            pipe: BTreeMap::new(),
            serial: 0,
        };
        for index in 0..pair.servers.len() {
            pair.client.add_server(port_of(index));
            pair.client.handle_port(pair.now, port_of(index), up());
            pair.servers[index]
                .server
                .handle_port(pair.now, PortId(1), up());
        }
        pair
    }

    /// The server loses everything but its records, and does not say so.
    pub fn restart_server(&mut self, index: usize) {
        let node = &mut self.servers[index];
        node.incarnation += 1;
        node.server = server(100 + node.incarnation, node.server.store().clone());
        node.server.handle_port(self.now, PortId(1), up());
        node.alive = true;
    }

    /// Stores a record at a server as another client.
    pub fn store(&mut self, index: usize, record: &Record) {
        let other = PortId(2);
        let node = &mut self.servers[index].server;
        node.handle_port(self.now, other, up());
        let mut bytes = Vec::new();
        let view = Record::parse(record.as_bytes()).unwrap();
        let message = whimbrel_gnrs::wire::Message::Insert { record: view };
        whimbrel_gnrs::wire::Frame::request(1, 0, message).encode(&mut bytes);
        node.handle_frames(self.now, other, &[&bytes]);
        self.drain();
    }

    fn carry(&mut self, frame: Frame) {
        if self.rng.chance(self.network.loss) {
            return;
        }
        let copies = if self.rng.chance(self.network.duplication) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let jitter =
                Duration::from_nanos(self.rng.below(self.network.jitter.as_nanos() as u64));
            let (Frame::ToServer(index, bytes) | Frame::ToClient(index, bytes)) = &frame;
            let (index, mut bytes) = (*index, bytes.clone());
            if self.rng.chance(self.network.corruption) {
                let at = self.rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << self.rng.below(8);
            }
            let copy = match frame {
                Frame::ToServer(..) => Frame::ToServer(index, bytes),
                Frame::ToClient(..) => Frame::ToClient(index, bytes),
            };
            self.serial += 1;
            self.pipe
                .insert((self.now + self.network.delay + jitter, self.serial), copy);
        }
    }

    pub fn drain(&mut self) {
        let mut buffer = Vec::new();
        while let Some(transmit) = self.client.poll_transmit(self.now, &mut buffer) {
            self.to_server.push(buffer.clone());
            self.carry(Frame::ToServer(
                index_of(transmit.port),
                core::mem::take(&mut buffer),
            ));
        }
        for index in 0..self.servers.len() {
            while let Some(transmit) =
                self.servers[index]
                    .server
                    .poll_transmit(self.now, 4, &mut buffer)
            {
                let written = core::mem::take(&mut buffer);
                if transmit.port == PortId(1) && self.servers[index].alive {
                    for frame in transmit.frames(&written) {
                        self.from_server.push(frame.to_vec());
                        self.carry(Frame::ToClient(index, frame.to_vec()));
                    }
                }
            }
        }
        while let Some(event) = self.client.poll_event() {
            self.events.push((self.now, event));
        }
    }

    /// Goes to the next thing that happens, if it happens before `end`.
    pub fn step(&mut self, end: Time) -> bool {
        self.drain();
        let arrival = self.pipe.first_key_value().map(|((at, _), _)| *at);
        let deadlines = self
            .servers
            .iter()
            .filter_map(|node| node.server.poll_timeout());
        let deadline = deadlines
            .chain(self.client.poll_timeout())
            .map(|deadline| deadline.at)
            .min();
        let Some(at) = arrival
            .into_iter()
            .chain(deadline)
            .min()
            .filter(|at| *at <= end)
        else {
            return false;
        };
        self.now = self.now.max(at);
        if arrival.is_some_and(|arrival| arrival <= self.now) {
            match self.pipe.pop_first() {
                Some((_, Frame::ToServer(index, bytes))) if self.servers[index].alive => {
                    self.servers[index]
                        .server
                        .handle_frames(self.now, PortId(1), &[&bytes]);
                }
                Some((_, Frame::ToClient(index, bytes))) => {
                    self.client.handle_frame(self.now, port_of(index), &bytes);
                }
                _ => {}
            }
        } else {
            self.client.handle_timeout(self.now);
            self.servers
                .iter_mut()
                .for_each(|node| node.server.handle_timeout(self.now));
        }
        self.drain();
        true
    }

    /// Lets everything happen that happens in the next `span`.
    pub fn drive(&mut self, span: Duration) {
        let end = self.now + span;
        while self.step(end) {}
        self.now = end;
    }

    pub fn take_events(&mut self) -> Vec<ResolverEvent> {
        core::mem::take(&mut self.events)
            .into_iter()
            .map(|(_, event)| event)
            .collect()
    }
}

pub fn port_of(server: usize) -> PortId {
    PortId(10 + server as u32)
}

fn index_of(port: PortId) -> usize {
    port.0 as usize - 10
}
