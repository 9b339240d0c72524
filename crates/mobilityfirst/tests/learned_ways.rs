//! Networks of routers that learn their ways, with hosts, in virtual time.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::collections::BTreeMap;

use crate::support::{APP, Content, OVERHEAD, WALL, get, name_server, no_records, router_config};
use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::chunk_size;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, TransferOptions};
use whimbrel_mobilityfirst::router::{LearnedWays, LinkMetric, Router, RouterConfig};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::testbed::{Fault, Life, Net};
use whimbrel_sim::{AnyMachine, DuplexLink};

/// Longer than any test.
const FOR_GOOD: Duration = Duration::from_secs(100_000);

fn router_keys(router: usize) -> KeyPair {
    KeyPair::from_secret(&[100 + router as u8; 32])
}

fn name_of(router: usize) -> Guid {
    router_keys(router).guid()
}

fn host(secret: u8) -> AnyMachine<HostEvent> {
    let config = HostConfig::new(KeyPair::from_secret(&[secret; 32]), WALL);
    AnyMachine::plain(Host::new(config, SeededRng::new(secret.into())))
}

fn router(number: usize, life: &Life, believed: &[usize]) -> AnyMachine<HostEvent> {
    let keys = router_keys(number);
    let hop = HopConfig {
        incarnation: life.number + 1,
        ..HopConfig::plain(&keys, [number as u8; 32], 1472)
    };
    let config = RouterConfig {
        name_servers: vec![0],
        wall: life.wall(WALL.unix_millis(Time::ZERO)),
        ..router_config(name_of(number), hop)
    };
    let mut router = Router::new(config, life.rng());
    router.learn_ways(LearnedWays {
        keys,
        metric: LinkMetric::Time,
        wait_for_usual: Duration::ZERO,
        contacts: None,
    });
    believed.iter().for_each(|it| router.believe(name_of(*it)));
    AnyMachine::new(router, |never| match never {})
}

/// A link between two routers.
#[derive(Clone, Copy, Debug)]
struct Wire {
    ends: (usize, usize),
    mbit: u64,
    ms: u64,
}

fn wire(one: usize, other: usize, mbit: u64, ms: u64) -> Wire {
    Wire {
        ends: (one, other),
        mbit,
        ms,
    }
}

/// Routers, with a host at the first and two at another, and a name server that is near all of them.
struct World {
    net: Net<AnyMachine<HostEvent>>,
    routers: usize,
    wires: usize,
    server: usize,
    client: usize,
    // It is attached where the client is.
    second: usize,
    content: Content,
    received: usize,
    complete: Option<Time>,
    // When each echo request was sent, and when it was answered.
    pinged: Vec<Time>,
    pongs: BTreeMap<u32, Vec<Time>>,
}

impl World {
    /// `strangers` are pairs of a router and one that its configuration does not name.
    fn new(
        routers: usize,
        wires: &[Wire],
        client_at: usize,
        strangers: &[(usize, usize)],
    ) -> World {
        let mut net = Net::new(7);
        let fast = DuplexLink::symmetric(LinkSpec::new(1_000_000_000, Duration::from_micros(50)));
        for number in 0..routers {
            let other = |wire: &Wire| match wire.ends {
                (one, other) if one == number => Some(other),
                (one, other) if other == number => Some(one),
                _ => None,
            };
            let named = |it: &usize| !strangers.contains(&(number, *it));
            let believed: Vec<usize> = wires.iter().filter_map(other).filter(named).collect();
            net.add(&format!("router {number}"), move |life, _| {
                router(number, life, &believed)
            });
        }
        let names = net.add_mortal("names", name_server(no_records()));
        for number in 0..routers {
            net.connect(number, names, &fast).unwrap();
        }
        for wire in wires {
            let spec = LinkSpec::new(wire.mbit * 1_000_000, Duration::from_millis(wire.ms));
            let link = DuplexLink::symmetric(LinkSpec {
                overhead: OVERHEAD,
                ..spec
            });
            net.connect(wire.ends.0, wire.ends.1, &link).unwrap();
        }
        let server = net.add_mortal("server", host(1));
        let client = net.add_mortal("client", host(2));
        net.connect(server, 0, &fast).unwrap();
        let second = net.add_mortal("second", host(3));
        net.connect(client, client_at, &fast).unwrap();
        net.connect(second, client_at, &fast).unwrap();
        World {
            net,
            routers,
            wires: wires.len(),
            server,
            client,
            second,
            content: Content::new(8_000_000, 1),
            received: 0,
            complete: None,
            pinged: Vec::new(),
            pongs: BTreeMap::new(),
        }
    }

    fn request(&mut self, node: usize, request: LocalRequest) {
        self.net.with(node, |machine, now| {
            let host: &mut Host = machine.get_mut().unwrap();
            host.request(now, APP, request);
        });
    }

    fn with_router<R>(&mut self, number: usize, call: impl FnOnce(&mut Router, Time) -> R) -> R {
        self.net
            .with(number, |machine, now| call(machine.get_mut().unwrap(), now))
    }

    fn cost(&mut self, from: usize, to: usize) -> Option<Duration> {
        self.with_router(from, |router, _| router.cost(&name_of(to)))
    }

    fn begin(&mut self) {
        let publish = LocalRequest::Publish(self.content.publish(), TransferOptions::default());
        self.request(self.server, publish);
        self.run(Duration::from_secs(1));
        self.get(self.client);
    }

    fn get(&mut self, node: usize) {
        let get = get(1, self.content.name(), chunk_size::asked(None));
        self.request(node, LocalRequest::Get(get));
    }

    /// Returns the packets with data that router 0 has sent to each of these routers.
    fn sent_to(&mut self, routers: [usize; 2]) -> [u64; 2] {
        let links = self.with_router(0, |router, now| router.status(now).links);
        let to = |router| {
            links
                .iter()
                .find(|it| it.neighbour == Some(name_of(router)))
        };
        routers.map(|router| to(router).unwrap().hop.data_sent)
    }

    /// The client sends echo requests to the server, one each 50 ms.
    fn ping(&mut self, count: usize) {
        for _ in 0..count {
            let ping = LocalRequest::Ping {
                request: 9,
                destination: KeyPair::from_secret(&[1; 32]).guid(),
                sequence: self.pinged.len() as u32,
                padding: 0,
            };
            self.pinged.push(self.net.now());
            self.request(self.client, ping);
            self.run(Duration::from_millis(50));
        }
    }

    /// Returns how long the answer to each echo request took; none if there was not exactly one.
    fn answered_after(&self) -> Vec<Option<Duration>> {
        let of = |(sequence, sent): (usize, &Time)| match self.pongs.get(&(sequence as u32)) {
            Some(answers) if answers.len() == 1 => Some(answers[0].since(*sent)),
            _ => None,
        };
        self.pinged.iter().enumerate().map(of).collect()
    }

    fn run(&mut self, span: Duration) {
        let end = self.net.now() + span;
        while self.step(end) {}
    }

    fn run_until(
        &mut self,
        limit: Duration,
        done: impl Fn(&mut World) -> bool,
    ) -> Option<Duration> {
        let start = self.net.now();
        while !done(self) {
            if !self.step(start + limit) {
                return None;
            }
        }
        Some(self.net.now().since(start))
    }

    fn step(&mut self, end: Time) -> bool {
        let more = self.net.step(end);
        while let Some(occurrence) = self.net.sim_mut().poll_event() {
            let nodes = [self.server, self.client, self.second];
            let here = |node: &usize| self.net.id(*node) == occurrence.node;
            let node = nodes.into_iter().find(here).unwrap();
            if let Some(answer) = self.answer(occurrence.event.event) {
                self.request(node, answer);
            }
        }
        more
    }

    fn answer(&mut self, event: LocalEvent) -> Option<LocalRequest> {
        match event {
            LocalEvent::Chunk(chunk) => {
                (self.content).check(chunk.index, chunk.chunk_log2, &chunk.data);
                self.received += chunk.data.len();
                Some(LocalRequest::Consumed {
                    request: chunk.request,
                })
            }
            LocalEvent::Read {
                read,
                index,
                chunk_log2,
                ..
            } => {
                let chunk = self.content.read(index, chunk_log2);
                Some(LocalRequest::ReadDone { read, chunk })
            }
            LocalEvent::Complete { .. } => {
                self.complete = Some(self.net.now());
                None
            }
            LocalEvent::Pong { sequence, .. } => {
                let answers = self.pongs.entry(sequence).or_default();
                answers.push(self.net.now());
                None
            }
            LocalEvent::Failed { request, reason } => panic!("{request}: {reason:?}"),
            _ => None,
        }
    }

    /// A link between routers fails for good: `wire` is its number.
    fn cut(&mut self, wire: usize) {
        self.fail(wire, FOR_GOOD);
    }

    /// It fails for some time.
    fn fail(&mut self, wire: usize, lasts: Duration) {
        assert!(wire < self.wires);
        // The links to the name server are the first ones.
        let link = (self.routers + wire) as u8;
        self.net.strike(&Fault::Outage {
            link,
            directions: 3,
            lasts,
        });
    }

    fn finish(&mut self, limit: Duration) -> Duration {
        let took = self.run_until(limit, |it| it.complete.is_some());
        took.unwrap_or_else(|| panic!("{} bytes came", self.received))
    }
}

fn ring() -> Vec<Wire> {
    (0..5).map(|it| wire(it, (it + 1) % 5, 20, 5)).collect()
}

#[test]
fn a_transfer_finds_the_other_way_around_a_ring_when_a_link_fails() {
    let mut world = World::new(5, &ring(), 2, &[]);
    let first = world.run_until(Duration::from_secs(30), |it| it.cost(0, 2).is_some());
    assert!(first.unwrap() < Duration::from_secs(2), "{first:?}");
    world.run(Duration::from_secs(3));
    let near = world.cost(0, 1).unwrap();
    let usual = world.cost(0, 2).unwrap();
    assert_eq!(usual.as_millis() / near.as_millis(), 2);
    world.begin();
    let half = world.run_until(Duration::from_secs(10), |it| it.received > 2_000_000);
    half.unwrap();
    // Between routers 1 and 2.
    world.cut(1);
    let came = world.received;
    let again = world.run_until(Duration::from_secs(60), |it| it.received > came + 1_000_000);
    // The link's silence, the other way, and the megabyte itself.
    assert!(again.unwrap() < Duration::from_secs(3), "{again:?}");
    world.finish(Duration::from_secs(30));
    let around = world.cost(0, 2).unwrap();
    assert_eq!(around.as_millis() / near.as_millis(), 3);
    let status = world.with_router(0, |router, now| router.status(now));
    let routing = status.routing.unwrap();
    let router = routing.routers.iter().find(|it| it.router == name_of(2));
    assert_eq!(router.unwrap().ways[0].why, "best");
    assert_eq!(router.unwrap().ways[0].neighbour, name_of(4));
}

#[test]
fn two_flows_take_two_equal_ways_and_one_flow_stays_on_one() {
    let diamond = [(0, 1), (0, 2), (1, 3), (2, 3)].map(|(one, other)| wire(one, other, 20, 5));
    for flows in [1, 2] {
        let mut world = World::new(4, &diamond, 3, &[]);
        world.run(Duration::from_secs(5));
        let before = world.sent_to([1, 2]);
        world.begin();
        if flows == 2 {
            world.get(world.second);
        }
        let all = |it: &mut World| it.received >= flows * 8_000_000;
        world.run_until(Duration::from_secs(60), all).unwrap();
        let after = world.sent_to([1, 2]);
        let mut sent = [after[0] - before[0], after[1] - before[1]];
        sent.sort_unstable();
        match flows {
            1 => assert!(sent[0] * 20 < sent[1], "{sent:?}"),
            _ => assert!(sent[0] * 5 > sent[1] * 4, "{sent:?}"),
        }
    }
}

/// The hops on the failed link hold requests, answers, or both, and no other next hop is feasible when they fall silent.
#[test]
fn every_echo_request_is_answered_around_a_link_that_falls_silent() {
    const SILENCE: Duration = Duration::from_millis(1_500);
    const SOON: Duration = Duration::from_secs(1);
    for is_loaded in [false, true] {
        let mut world = World::new(5, &ring(), 2, &[]);
        world.run(Duration::from_secs(3));
        if is_loaded {
            world.begin();
        }
        world.ping(40);
        // It returns after the last one: what a hop has kept would come then.
        world.fail(1, Duration::from_secs(11));
        let cut_at = world.net.now();
        world.ping(200);
        world.run(Duration::from_secs(5));
        for (sent, took) in world.pinged.iter().zip(world.answered_after()) {
            let within = match *sent + SOON < cut_at || *sent >= cut_at + SILENCE {
                true => SOON,
                false => SILENCE + SOON,
            };
            let place = (is_loaded, *sent, cut_at);
            assert!(took.is_some_and(|it| it < within), "{took:?} {place:?}");
        }
    }
}

#[test]
fn a_router_that_restarts_is_found_again() {
    let mut world = World::new(5, &ring(), 2, &[]);
    world.run(Duration::from_secs(5));
    // Its clock is off by an hour from then on.
    world.net.strike(&Fault::Crash {
        node: 1,
        down: Duration::from_secs(5),
        skew_s: 3600,
    });
    world.run(Duration::from_secs(3));
    let around = world.cost(0, 2).unwrap();
    world.run(Duration::from_secs(15));
    let back = world.cost(0, 2).unwrap();
    assert!(back < around, "{back:?} {around:?}");
    assert!(world.cost(1, 3).is_some());
    world.begin();
    world.finish(Duration::from_secs(30));
}

#[test]
fn a_partition_that_heals_is_whole_again() {
    let line: Vec<Wire> = (0..4).map(|it| wire(it, it + 1, 20, 5)).collect();
    let mut world = World::new(5, &line, 4, &[]);
    world.run(Duration::from_secs(5));
    assert!(world.cost(0, 4).is_some());
    world.net.strike(&Fault::Outage {
        link: 5 + 1,
        directions: 3,
        lasts: Duration::from_secs(20),
    });
    world.run(Duration::from_secs(10));
    assert_eq!(world.cost(0, 4), None);
    assert!(world.cost(0, 1).is_some());
    world.begin();
    world.finish(Duration::from_secs(60));
    assert!(world.cost(0, 4).is_some());
}

/// Of two links one is always out. The request goes one way in steps, and the content comes back so.
#[test]
fn data_moves_in_steps_where_no_path_is_ever_whole() {
    const TURN: Duration = Duration::from_secs(20);
    let line = [wire(0, 1, 20, 5), wire(1, 2, 20, 5)];
    let mut world = World::new(3, &line, 2, &[]);
    world.run(Duration::from_secs(5));
    assert!(world.cost(0, 2).is_some());
    world.fail(1, TURN + Duration::from_secs(3));
    world.run(Duration::from_secs(2));
    world.begin();
    for turn in 0..12 {
        world.fail(turn % 2, TURN + Duration::from_secs(3));
        world.run(TURN / 2);
        assert_eq!(world.cost(0, 2), None);
        world.run(TURN / 2);
        if world.complete.is_some() {
            return;
        }
    }
    panic!("{} bytes came", world.received);
}

#[test]
fn a_router_that_no_configuration_names_is_not_heard() {
    let line = [wire(0, 1, 20, 5), wire(1, 2, 20, 5)];
    let mut world = World::new(3, &line, 1, &[(1, 2)]);
    world.run(Duration::from_secs(10));
    assert!(world.cost(0, 1).is_some());
    assert_eq!(world.cost(0, 2), None);
    assert_eq!(world.cost(1, 2), None);
    let drops = world.with_router(1, |router, now| router.status(now).counters.drops);
    let stranger = drops.iter().find(|(why, _)| **why == "routing-stranger");
    assert!(stranger.is_some_and(|(_, count)| *count > 0), "{drops:?}");
}
