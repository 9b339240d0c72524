//! Records for tests, and a resolver with its servers on the testbed.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "a harness, of which each test uses a part"
)]

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use whimbrel_core::{
    Guid, Machine, Medium, PortEvent, PortId, PortInfo, PortOrigin, Time, WallClock,
};
use whimbrel_gnrs::wire::{Code, Frame, Message};
use whimbrel_gnrs::{
    Address, KeyPair, LoneResolver, MemoryStore, Record, Resolver, ResolverConfig, ResolverEvent,
    Server, ServerConfig, Statement, Store, StoreLimits,
};
use whimbrel_sim::link::{LinkSpec, Loss, Reorder};
use whimbrel_sim::testbed::{Happening, Life, Net, Probe};
use whimbrel_sim::{AnyMachine, Direction, DuplexLink};

/// Unix time of the virtual origin, in milliseconds.
pub const EPOCH: u64 = 1_800_000_000_000;

pub fn keys(seed: u8) -> KeyPair {
    KeyPair::from_secret(&[seed; 32])
}

pub fn router(seed: u8) -> Address {
    Address::new(Guid([seed; 32]))
}

/// Returns a binding of `keys(seed)` that lives for `life_ms` from the epoch.
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

/// Returns a network that only delays.
pub fn good() -> LinkSpec {
    LinkSpec {
        delay: Duration::from_millis(10),
        ..LinkSpec::default()
    }
}

/// Returns a network that loses, duplicates, damages and reorders.
pub fn bad() -> LinkSpec {
    LinkSpec {
        delay: Duration::from_millis(25),
        jitter: Duration::from_millis(15),
        loss: Loss::Independent(0.3),
        reorder: Some(Reorder {
            probability: 0.5,
            extra_delay: Duration::from_millis(30),
        }),
        duplicate: 0.2,
        corrupt: 0.05,
        ..LinkSpec::default()
    }
}

/// Returns the frames that a server sends, and to whom.
pub fn drain<S: Store>(server: &mut Server<S>, now: Time) -> Vec<(PortId, Vec<u8>)> {
    let mut sent = Vec::new();
    let mut buffer = Vec::new();
    while let Some(transmit) = server.poll_transmit(now, 8, &mut buffer) {
        sent.extend(
            transmit
                .frames(&buffer)
                .map(|frame| (transmit.port, frame.to_vec())),
        );
        buffer.clear();
    }
    sent
}

/// Returns a request.
pub fn encoded(cookie: u64, message: Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Frame::request(77, cookie, message).encode(&mut bytes);
    bytes
}

/// The client of a server under test.
pub const CLIENT: PortId = PortId(1);
pub const HOUR_MS: u64 = 3_600_000;

/// Returns a server with its client.
pub fn server_over<S: Store>(config: ServerConfig, store: S) -> Server<S> {
    let mut server = Server::new(config, WallClock::new(EPOCH), [5; 32], store);
    server.handle_port(Time::ZERO, CLIENT, up());
    server
}

/// Sends one request. Returns the code of the one response.
pub fn ask<S: Store>(server: &mut Server<S>, port: PortId, bytes: &[u8]) -> Vec<u8> {
    server.handle_frames(Time::ZERO, port, &[bytes]);
    let mut sent = drain(server, Time::ZERO);
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.remove(0).1
}

/// Sends a record without a cookie.
pub fn insert<S: Store>(server: &mut Server<S>, record: &[u8]) -> Code {
    let request = encoded(
        0,
        Message::Insert {
            record: Record::parse(record).unwrap(),
        },
    );
    Frame::decode(&ask(server, CLIENT, &request)).unwrap().code
}

type Party = AnyMachine<ResolverEvent>;
type Frames = Rc<RefCell<Vec<Vec<u8>>>>;

/// Watches of all clients of a server.
pub const MAX_WATCHES: usize = 8;

/// Makes a server that keeps only its records over a restart.
fn server(life: &Life, last: Option<&mut Party>) -> Party {
    let last = last.and_then(|party| party.get::<Server<MemoryStore>>());
    let store = last.map(|server| server.store().clone());
    let secret = 100 * life.number.min(1) + life.node as u64 + life.number;
    let server = Server::new(
        ServerConfig {
            max_watches: MAX_WATCHES,
            ..ServerConfig::default()
        },
        life.wall(EPOCH),
        [secret as u8; 32],
        store.unwrap_or_else(|| MemoryStore::new(StoreLimits::default())),
    );
    AnyMachine::new(server, |event| panic!("a server says {event:?}"))
}

/// A resolver (node 0), its servers (from node 1 on), and another client behind each of those.
pub struct Pair {
    net: Net<Party>,
    servers: usize,
    pub events: Vec<(Time, ResolverEvent)>,
    from_server: Frames,
    to_server: Frames,
}

impl Pair {
    pub fn new(seed: u64, network: LinkSpec, servers: usize) -> Pair {
        Pair::with_config(seed, network, servers, ResolverConfig::default())
    }

    pub fn with_config(
        seed: u64,
        network: LinkSpec,
        servers: usize,
        config: ResolverConfig,
    ) -> Pair {
        let mut net = Net::new(seed);
        let client = net.add("client", move |life, _| {
            let resolver = Resolver::new(config.clone(), life.wall(EPOCH), life.rng());
            AnyMachine::plain(LoneResolver(resolver))
        });
        for index in 0..servers {
            net.add(&format!("server {index}"), server);
        }
        for index in 0..servers {
            let other = |_: &Life, _: Option<&mut Party>| {
                AnyMachine::new(Probe::default(), |never| match never {})
            };
            net.add(&format!("other client {index}"), other);
        }
        let (from_server, to_server) = (Frames::default(), Frames::default());
        let link = DuplexLink::symmetric(network);
        for index in 0..servers {
            let connection = net.connect(client, 1 + index, &link).unwrap();
            assert_eq!(connection.a, port_of(index));
            for (direction, frames) in Direction::BOTH.into_iter().zip([&to_server, &from_server]) {
                let frames = Rc::clone(frames);
                let tap = move |_, frame: Vec<u8>| {
                    frames.borrow_mut().push(frame.clone());
                    vec![frame]
                };
                let tap = Some(Box::new(tap) as _);
                net.sim_mut().set_tap(connection.link, direction, tap);
            }
        }
        for index in 0..servers {
            let (other, local) = (1 + servers + index, DuplexLink::local());
            net.connect(other, 1 + index, &local).unwrap();
        }
        Pair {
            net,
            servers,
            events: Vec::new(),
            from_server,
            to_server,
        }
    }

    /// Calls into the resolver.
    pub fn client<R>(&mut self, call: impl FnOnce(&mut Resolver, Time) -> R) -> R {
        self.net.with(0, |party, now| {
            call(&mut party.get_mut::<LoneResolver>().unwrap().0, now)
        })
    }

    pub fn resolver(&self) -> &Resolver {
        &self.net[0].get::<LoneResolver>().unwrap().0
    }

    pub fn server(&self, index: usize) -> &Server<MemoryStore> {
        self.net[1 + index].get().unwrap()
    }

    pub fn servers(&self) -> impl Iterator<Item = &Server<MemoryStore>> {
        (0..self.servers).map(|index| self.server(index))
    }

    /// Restarts a server silently. It loses everything except its records.
    pub fn restart_server(&mut self, index: usize) {
        self.net.restart(1 + index, 0);
    }

    /// Loses all frames between the resolver and a server, until it is called with false.
    pub fn silence(&mut self, index: usize, silent: bool) {
        let link = self.net.link(index);
        if silent {
            self.net.sim_mut().partition(link);
        } else {
            self.net.sim_mut().repair(link);
        }
    }

    /// Changes the network between the resolver and a server.
    pub fn change(&mut self, index: usize, network: &LinkSpec) {
        let link = self.net.link(index);
        for direction in Direction::BOTH {
            let sim = self.net.sim_mut();
            sim.set_link_spec(link, direction, network).unwrap();
        }
    }

    /// Stores a record at a server as another client.
    pub fn store(&mut self, index: usize, record: &Record) {
        let mut bytes = Vec::new();
        let view = Record::parse(record.as_bytes()).unwrap();
        let message = whimbrel_gnrs::wire::Message::Insert { record: view };
        whimbrel_gnrs::wire::Frame::request(1, 0, message).encode(&mut bytes);
        let other = 1 + self.servers + index;
        let port = self.net.port(other);
        self.net.with(other, |party, _| {
            party.get_mut::<Probe>().unwrap().send(port, bytes);
        });
        self.drive(Duration::ZERO);
    }

    /// Another client watches a name.
    pub fn watch_elsewhere(&mut self, index: usize, guid: Guid) {
        use whimbrel_gnrs::wire::{Frame, Message};
        let other = 1 + self.servers + index;
        let port = self.net.port(other);
        let lease_secs = 300;
        let mut cookie = 0;
        // The first answer brings the cookie.
        for _ in 0..2 {
            let mut bytes = Vec::new();
            Frame::request(1, cookie, Message::Watch { guid, lease_secs }).encode(&mut bytes);
            self.net.with(other, |party, _| {
                party.get_mut::<Probe>().unwrap().send(port, bytes);
            });
            self.drive(Duration::ZERO);
            let probe: &Probe = self.net[other].get().unwrap();
            let answer = probe.frames().next_back().unwrap();
            cookie = Frame::decode(answer).unwrap().cookie;
        }
    }

    /// Returns every frame that a server has sent to the resolver, or the resolver to a server.
    pub fn sent(&self, by_server: bool) -> Vec<Vec<u8>> {
        let frames = if by_server {
            &self.from_server
        } else {
            &self.to_server
        };
        frames.borrow().clone()
    }

    /// Delivers an old frame to the first server and to the resolver.
    pub fn replay(&mut self, frame: &[u8]) {
        for node in [1, 0] {
            let port = self.net.port(node);
            self.net
                .with(node, |party, now| party.handle_frames(now, port, &[frame]));
        }
    }

    /// Runs for `span`.
    pub fn drive(&mut self, span: Duration) {
        for happening in self.net.run_for(span) {
            if let Happening::Told(told) = happening {
                self.events.push((told.time, told.event));
            }
        }
    }

    pub fn take_events(&mut self) -> Vec<ResolverEvent> {
        core::mem::take(&mut self.events)
            .into_iter()
            .map(|(_, event)| event)
            .collect()
    }
}

/// Returns the resolver's port to a server.
pub fn port_of(server: usize) -> PortId {
    PortId(2 * server as u32)
}
