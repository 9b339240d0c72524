//! A server, routers and a client with several links, in virtual time.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{Guid, PortId, PortOrigin, SeededRng, Time};
use whimbrel_gnrs::{Address, KeyPair, Record, Statement, VERSION_BOUND};
use whimbrel_link::{HopConfig, Pacing};
use whimbrel_mobilityfirst::chunk::Chunk;
use whimbrel_mobilityfirst::host::interfaces::LinkTerms;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent, LinkPolicy};
use whimbrel_mobilityfirst::links::{DividedStatus, LinkStatus};
use whimbrel_mobilityfirst::local::{Get, LocalEvent, LocalRequest, TransferOptions};
use whimbrel_mobilityfirst::router::{NextHop, Route, Router, RouterConfig};
use whimbrel_mobilityfirst::split::SplitConfig;
use whimbrel_sim::link::{Change, LinkSpec, Loss, QueueLimit, Rate, Reorder};
use whimbrel_sim::testbed::{Fault, Net};
use whimbrel_sim::{AnyMachine, DuplexLink};

use crate::support::relay::{self, Relay};
use crate::support::{self, APP, Content, OVERHEAD, WALL, name_server, no_records};

/// One of the client's links.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// Bits per second, down.
    pub(crate) rate: u64,
    /// Round trip of the empty link.
    pub(crate) round_trip: Duration,
    /// Part of the packets that is lost, both ways.
    pub(crate) loss: f64,
    /// Mean length of a burst of losses, in packets; 1: each on its own.
    pub(crate) burst: f64,
    /// Bytes that wait for the link at most, as time.
    pub(crate) queue: Option<Duration>,
    /// Jitter of each direction.
    pub(crate) jitter: Duration,
    /// Share of the packets that fall behind, and by how much.
    pub(crate) reorder: (f64, Duration),
    /// Share of the packets that arrive twice.
    pub(crate) duplicate: f64,
    /// The rate changes to this part of it and back, each time after this long.
    pub(crate) steps: Option<(f64, Duration)>,
}

/// Steps of the rate in a run, at most.
const STEPS: u32 = 400;

impl Access {
    pub(crate) fn new(mbit: u64, round_trip_ms: u64) -> Access {
        Access {
            rate: mbit * 1_000_000,
            round_trip: Duration::from_millis(round_trip_ms),
            loss: 0.0,
            burst: 1.0,
            queue: None,
            jitter: Duration::ZERO,
            reorder: (0.0, Duration::ZERO),
            duplicate: 0.0,
            steps: None,
        }
    }

    fn link(&self) -> DuplexLink {
        let queue = self.queue.unwrap_or(self.round_trip);
        let bytes = (u128::from(self.rate) * queue.as_micros() / 8_000_000) as u64;
        DuplexLink::symmetric(LinkSpec {
            queue: QueueLimit::Bytes(bytes.max(64 << 10)),
            overhead: OVERHEAD,
            loss: Loss::in_bursts(self.loss, self.burst),
            jitter: self.jitter,
            reorder: (self.reorder.0 > 0.0).then_some(Reorder {
                probability: self.reorder.0,
                extra_delay: self.reorder.1,
            }),
            duplicate: self.duplicate,
            changes: self.changes(),
            ..LinkSpec::new(self.rate, self.round_trip / 2)
        })
    }

    fn changes(&self) -> Vec<Change> {
        let Some((part, every)) = self.steps else {
            return Vec::new();
        };
        let low = (self.rate as f64 * part) as u64;
        let step = |number: u32| Change {
            at: every * number,
            rate: Some(Rate::Fixed(if number % 2 == 1 { low } else { self.rate })),
            ..Change::default()
        };
        (1..STEPS).map(step).collect()
    }
}

/// Where the client's links end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At one router, at which the server is as well.
    OneRouter,
    /// Each at a router of its own, behind the one at which the server is.
    AccessRouters,
    /// The server has the links, the client one: uplink.
    Server,
}

/// How a world is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Make {
    pub(crate) place: Place,
    pub(crate) split: SplitConfig,
    /// The law by which all hops send.
    pub(crate) pacing: Pacing,
    pub(crate) policy: LinkPolicy,
    /// Bits per second of the links that are no bottleneck.
    pub(crate) wire: u64,
    pub(crate) chunk_log2: u8,
    pub(crate) in_order: bool,
    /// The routers have the client as an inbound peer.
    pub(crate) inbound: bool,
    /// Of the client's links; only with `inbound` do they have numbers.
    pub(crate) terms: [LinkTerms; 2],
    /// With `AccessRouters`: so many routers that the client is not attached to, and a host at the router where the
    /// links part, all of which the client's record names as its addresses.
    pub(crate) strangers: u8,
    /// With `AccessRouters`: the router of the second link accepts all chunks of content, and drops them.
    pub(crate) swallows: bool,
    /// Initial end-to-end window, in bytes.
    pub(crate) window: u64,
    pub(crate) seed: u64,
}

impl Default for Make {
    fn default() -> Make {
        Make {
            place: Place::OneRouter,
            split: SplitConfig::default(),
            pacing: Pacing::Bottleneck,
            policy: LinkPolicy::All,
            wire: 1_000_000_000,
            chunk_log2: 20,
            in_order: false,
            inbound: false,
            terms: [LinkTerms::default(); 2],
            strangers: 0,
            swallows: false,
            window: 64 << 20,
            seed: 7,
        }
    }
}

pub(crate) struct World {
    pub(crate) net: Net<AnyMachine<HostEvent>>,
    pub(crate) server: usize,
    pub(crate) client: usize,
    /// The router where the links part; none if that is the server.
    pub(crate) core: usize,
    /// The routers that the client is not attached to, and the host that is somebody else.
    pub(crate) strangers: Vec<usize>,
    // The number of the first of the client's links among all.
    first_link: usize,
    make: Make,
    content: Option<Content>,
    received: BTreeSet<u64>,
    pub(crate) bytes: usize,
    pub(crate) complete: Option<Time>,
    pub(crate) arrivals: Vec<Time>,
    told: Option<serde_json::Value>,
}

/// Returns the name of the router with this number.
fn router_name(number: u8) -> Guid {
    KeyPair::from_secret(&[number; 32]).guid()
}

fn router_config(number: u8, names: bool, routes: Vec<Route>, make: &Make) -> RouterConfig {
    let keys = KeyPair::from_secret(&[number; 32]);
    let hop = HopConfig {
        pacing: make.pacing,
        ..HopConfig::plain(&keys, [number; 32], 1472)
    };
    let guid = keys.guid();
    RouterConfig {
        routes,
        name_servers: if names { vec![0] } else { Vec::new() },
        split: make.split,
        ..support::router_config(guid, hop)
    }
}

fn host_config(secret: u8, make: &Make) -> HostConfig {
    let defaults = HostConfig::new(KeyPair::from_secret(&[secret; 32]), WALL);
    HostConfig {
        policy: make.policy,
        window: make.window,
        terms: (0..).zip(make.terms).collect(),
        split: make.split,
        hop: HopConfig {
            pacing: make.pacing,
            ..defaults.hop
        },
        ..defaults
    }
}

fn host(secret: u8, make: &Make) -> AnyMachine<HostEvent> {
    AnyMachine::plain(Host::new(
        host_config(secret, make),
        SeededRng::new(make.seed ^ u64::from(secret)),
    ))
}

/// Returns a node that the client takes for the access router, and that takes all chunks of content for
/// itself.
fn swallowing(router: HopConfig, client: HopConfig) -> AnyMachine<HostEvent> {
    let watch = |chunk: &Chunk| match chunk.data() {
        Some(_) => relay::Verdict::Answer(Vec::new()),
        None => relay::Verdict::Pass,
    };
    let relay = Relay::new([router, client], Box::new(watch));
    AnyMachine::new(relay, |never| match never {})
}

/// The record of a client that names these as its addresses, newer than all that its host will sign.
fn lie(addresses: impl Iterator<Item = Guid>) -> Record {
    let keys = KeyPair::from_secret(&[2; 32]);
    let statement = Statement {
        version: VERSION_BOUND - 1,
        ..Statement::new(
            WALL.unix_millis(Time::ZERO),
            3_600_000,
            addresses.map(Address::new).collect(),
        )
    };
    Record::binding(&keys, &statement).expect("a record")
}

impl World {
    pub(crate) fn new(make: Make, links: &[Access]) -> World {
        let mut net = Net::new(make.seed);
        let far = make.place == Place::AccessRouters;
        let access = if far {
            links.len() as u8 + make.strangers
        } else {
            0
        };
        let names = far.then(|| {
            let mut store = no_records();
            if make.strangers > 0 {
                let named = (1..=access).map(|number| router_name(100 + number));
                let somebody = KeyPair::from_secret(&[3; 32]).guid();
                let record = lie(named.chain([somebody]));
                let put = store.put(WALL.unix_millis(Time::ZERO), record);
                assert!(put.is_ok());
            }
            net.add_mortal("names", name_server(store))
        });
        let wire = DuplexLink::symmetric(LinkSpec {
            queue: QueueLimit::Bytes((64 << 10).max(make.wire / 800)),
            overhead: OVERHEAD,
            ..LinkSpec::new(make.wire, Duration::from_millis(1))
        });
        let mut routers = Vec::new();
        for number in 0..=access {
            // The core knows its neighbours; the others reach each other by it.
            let others = (0..=access).filter(|other| number > 0 && *other > 0 && *other != number);
            let by_core = NextHop::Neighbour(router_name(100));
            let routes = others.map(|other| Route::new(router_name(100 + other), by_core));
            let config = router_config(100 + number, far, routes.collect(), &make);
            let rng = SeededRng::new(make.seed + u64::from(number));
            let mut router = Router::new(config, rng);
            // As a configuration names the neighbours that forward for others.
            (0..=access).for_each(|other| router.believe(router_name(100 + other)));
            let machine = AnyMachine::new(router, |never| match never {});
            let router = net.add_mortal(&format!("router {number}"), machine);
            if let Some(names) = names {
                net.connect(router, names, &wire).expect("a link");
            }
            routers.push(router);
        }
        let server = net.add_mortal("server", host(1, &make));
        let client = net.add_mortal("client", host(2, &make));
        let mut count = if far { routers.len() } else { 0 };
        let (single, several) = match make.place {
            Place::Server => (client, server),
            _ => (server, client),
        };
        for router in &routers[1..] {
            net.connect(routers[0], *router, &wire).expect("a link");
            count += 1;
        }
        net.connect(single, routers[0], &wire).expect("a link");
        let first_link = count + 1;
        for (number, access) in links.iter().enumerate() {
            let at = if far { routers[1 + number] } else { routers[0] };
            let mut link = access.link();
            if make.inbound {
                let called = PortOrigin::Configured(number as u32);
                let label = format!("link-{number}");
                link = link
                    .with_origins(called, PortOrigin::Accepted(0))
                    .with_labels(&label, "client");
            }
            if make.swallows && number == 1 {
                let seen = router_config(102, far, Vec::new(), &make).hop;
                let own = host_config(2, &make).hop;
                let between = net.add_mortal("between", swallowing(seen, own));
                net.connect(several, between, &link).expect("a link");
                net.connect(between, at, &wire).expect("a link");
            } else {
                net.connect(several, at, &link).expect("a link");
            }
        }
        let mut strangers: Vec<usize> = Vec::new();
        if make.strangers > 0 {
            strangers.extend(&routers[1 + links.len()..]);
            let somebody = net.add_mortal("somebody", host(3, &make));
            net.connect(somebody, routers[0], &wire).expect("a link");
            strangers.push(somebody);
        }
        let mut world = World {
            net,
            server,
            strangers,
            client,
            core: if make.place == Place::Server {
                server
            } else {
                routers[0]
            },
            first_link,
            make,
            content: None,
            received: BTreeSet::new(),
            bytes: 0,
            complete: None,
            arrivals: Vec::new(),
            told: None,
        };
        let longest = links
            .iter()
            .map(|it| it.round_trip)
            .max()
            .unwrap_or_default();
        world.run(Duration::from_secs(2) + longest * 8);
        world
    }

    /// Nothing passes one of the links for a while.
    pub(crate) fn cut(&mut self, link: usize, lasts: Duration) {
        self.net.strike(&Fault::Outage {
            link: (self.first_link + link) as u8,
            directions: 3,
            lasts,
        });
    }

    /// The client's kernel says whether the interface to one of its links works.
    pub(crate) fn set_carrier(&mut self, link: usize, works: bool) {
        let port = self.net.with(self.client, |machine, now| {
            let status = machine.get::<Host>().expect("a host").status(now);
            PortId(status.links[link].port)
        });
        let client = self.net.id(self.client);
        self.net.sim_mut().set_carrier(client, port, works);
    }

    /// The client's host changes how it uses its links, and says how it does.
    pub(crate) fn manage(&mut self, change: &str) -> serde_json::Value {
        let change = change.to_owned();
        self.request(self.client, LocalRequest::Interfaces { request: 9, change });
        self.told.take();
        while self.told.is_none() && self.step(self.net.now() + Duration::from_millis(1)) {}
        self.told.take().expect("an answer")
    }

    fn request(&mut self, node: usize, request: LocalRequest) {
        self.net.with(node, |machine, now| {
            let host: &mut Host = machine.get_mut().expect("a host");
            host.request(now, APP, request);
        });
    }

    /// What the node where the links part says of the flows that it divides.
    pub(crate) fn divided(&mut self) -> Vec<DividedStatus> {
        let is_host = self.core == self.server;
        self.net.with(self.core, |machine, now| match is_host {
            true => machine.get::<Host>().expect("a host").status(now).divided,
            false => {
                machine
                    .get::<Router>()
                    .expect("a router")
                    .status(now)
                    .divided
            }
        })
    }

    /// Bytes of chunks that each of the strangers has received.
    pub(crate) fn at_strangers(&mut self) -> Vec<u64> {
        let of = |links: Vec<LinkStatus>| links.iter().map(|it| it.hop.chunk_bytes_received).sum();
        let strangers = self.strangers.iter();
        let net = &mut self.net;
        let bytes = strangers.map(|node| {
            net.with(*node, |machine, now| match machine.get::<Router>() {
                Some(router) => of(router.status(now).links),
                None => of(machine.get::<Host>().expect("a host").status(now).links),
            })
        });
        bytes.collect()
    }

    /// Bytes that the links have brought in chunks, by their order.
    pub(crate) fn by_link(&mut self) -> Vec<u64> {
        let node = if self.make.place == Place::Server {
            self.server
        } else {
            self.client
        };
        let sent = self.make.place == Place::Server;
        self.net.with(node, |machine, now| {
            let status = machine.get::<Host>().expect("a host").status(now);
            let links = status.links.iter();
            links
                .map(|it| {
                    if sent {
                        it.hop.chunk_bytes_delivered
                    } else {
                        it.hop.chunk_bytes_received
                    }
                })
                .collect()
        })
    }

    /// The server publishes so many bytes, and the client asks for them.
    pub(crate) fn get(&mut self, len: usize) {
        let content = Content::new(len, self.make.seed);
        let (name, publish) = (content.name(), content.publish());
        self.content = Some(content);
        self.request(
            self.server,
            LocalRequest::Publish(publish, TransferOptions::default()),
        );
        self.run(Duration::from_secs(2));
        let get = Get {
            in_order: self.make.in_order,
            ..support::get(1, name, self.make.chunk_log2)
        };
        self.request(self.client, LocalRequest::Get(get));
    }

    pub(crate) fn run(&mut self, span: Duration) {
        let end = self.net.now() + span;
        while self.step(end) {}
    }

    /// Lets programs answer; false at the end.
    pub(crate) fn step(&mut self, end: Time) -> bool {
        let more = self.net.step(end);
        while let Some(occurrence) = self.net.sim_mut().poll_event() {
            let at_server = self.net.id(self.server) == occurrence.node;
            let node = if at_server { self.server } else { self.client };
            if let Some(answer) = self.answer(occurrence.event.event) {
                self.request(node, answer);
            }
        }
        more
    }

    fn answer(&mut self, event: LocalEvent) -> Option<LocalRequest> {
        match event {
            LocalEvent::Chunk(chunk) => {
                let content = self.content.as_ref()?;
                let at = content.check(chunk.index, chunk.chunk_log2, &chunk.data);
                assert!(self.received.insert(at as u64), "twice: {at}");
                self.bytes += chunk.data.len();
                self.arrivals.push(self.net.now());
                let request = chunk.request;
                Some(LocalRequest::Consumed { request })
            }
            LocalEvent::Read {
                read,
                index,
                chunk_log2,
                ..
            } => {
                let chunk = self.content.as_ref()?.read(index, chunk_log2);
                Some(LocalRequest::ReadDone { read, chunk })
            }
            LocalEvent::Status { request: 9, json } => {
                self.told = serde_json::from_str(&json).ok();
                None
            }
            LocalEvent::Complete { .. } => {
                self.complete = Some(self.net.now());
                None
            }
            _ => None,
        }
    }

    /// Seconds until the client has so many bytes; infinite beyond the limit.
    pub(crate) fn time_to_get(&mut self, len: usize, limit: Duration) -> f64 {
        self.get(len);
        let begin = self.net.now();
        while self.complete.is_none() && self.step(begin + limit) {}
        let complete = self.complete;
        complete.map_or(f64::INFINITY, |at| at.since(begin).as_secs_f64())
    }

    /// The longest time without a chunk since `from`.
    pub(crate) fn longest_stall(&self, from: Time) -> Duration {
        let mut last = from;
        let mut longest = Duration::ZERO;
        for at in self.arrivals.iter().filter(|at| **at >= from) {
            longest = longest.max(at.since(last));
            last = *at;
        }
        longest
    }
}

/// Bytes per second of a content of this length over these links.
pub(crate) fn goodput(make: Make, links: &[Access], len: usize) -> f64 {
    let mut world = World::new(make, links);
    let time = world.time_to_get(len, Duration::from_secs(600));
    len as f64 / time
}
