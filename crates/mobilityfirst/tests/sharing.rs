//! Receivers of different speeds at one router, in virtual time: a slow one costs the others what it
//! takes and no more, and nobody's pings, requests and attachments wait behind content.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, TransferOptions};
use whimbrel_mobilityfirst::router::{Router, RouterConfig};
use whimbrel_sim::link::{LinkSpec, QueueLimit};
use whimbrel_sim::testbed::{Fault, Net};
use whimbrel_sim::{AnyMachine, DuplexLink, NodeId};

use crate::support::{APP, Content, OVERHEAD, WALL, get, name_server, no_records, router_config};

const MIB: usize = 1 << 20;
const FULL: u64 = 500_000_000;
const DELAY: Duration = Duration::from_millis(1);

/// What a client's program has seen.
#[derive(Default)]
struct Client {
    bytes: usize,
    complete: Option<Time>,
    pinged: BTreeMap<u32, Time>,
    round_trips: Vec<Duration>,
    // It neither reads nor answers.
    stopped: bool,
}

/// A server and clients at one router.
struct World {
    net: Net<AnyMachine<HostEvent>>,
    router: usize,
    routers: usize,
    server: usize,
    hosts: BTreeMap<usize, Client>,
    clients: Vec<usize>,
    contents: BTreeMap<Guid, Content>,
    chunk_log2: u8,
}

/// A link of this rate whose queue holds 64 kB, or what goes in 10 ms if that is more.
fn link(rate: u64) -> DuplexLink {
    let spec = LinkSpec {
        queue: QueueLimit::Bytes((64 << 10).max(rate / 800)),
        overhead: OVERHEAD,
        ..LinkSpec::new(rate, DELAY)
    };
    DuplexLink::symmetric(spec)
}

impl World {
    /// The server's link has the first rate, each client's one of the others.
    fn new(server: u64, clients: &[u64]) -> World {
        World::with_routers(server, clients, 1)
    }

    /// The same with routers in a row: the server is at the first one, the clients at the last.
    fn with_routers(server: u64, clients: &[u64], routers: u8) -> World {
        let last = usize::from(routers) - 1;
        let clients: Vec<(u64, usize)> = clients.iter().map(|rate| (*rate, last)).collect();
        World::with_places(server, server, &clients, routers)
    }

    /// The links between the routers have the rate `between`, and each client is at one of them.
    fn with_places(server: u64, between: u64, clients: &[(u64, usize)], routers: u8) -> World {
        let mut net = Net::new(7);
        // One router alone keeps the names of its hosts.
        let names = (routers > 1).then(|| net.add_mortal("names", name_server(no_records())));
        let routers: Vec<usize> = (1..=routers)
            .map(|number| {
                let keys = KeyPair::from_secret(&[100 + number; 32]);
                let hop = HopConfig::sealed(&keys, [number; 32], 1472);
                let config = RouterConfig {
                    name_servers: names.iter().map(|_| 0).collect(),
                    ..router_config(keys.guid(), hop)
                };
                let machine = Router::new(config, SeededRng::new(number.into()));
                let machine = AnyMachine::new(machine, |never| match never {});
                let router = net.add_mortal(&format!("router {number}"), machine);
                if let Some(names) = names {
                    net.connect(router, names, &link(FULL)).expect("a link");
                }
                router
            })
            .collect();
        for pair in routers.windows(2) {
            net.connect(pair[0], pair[1], &link(between))
                .expect("a link");
        }
        let mut nodes = Vec::new();
        for (number, (rate, at)) in [(server, 0)].iter().chain(clients).enumerate() {
            let mut secret = [9; 32];
            secret[0] = number as u8;
            let keys = KeyPair::from_secret(&secret);
            let config = HostConfig {
                hop: HopConfig::sealed(&keys, secret, 1472),
                ..HostConfig::new(keys, WALL)
            };
            let host = Host::new(config, SeededRng::new(100 + number as u64));
            let node = net.add_mortal(&format!("host {number}"), AnyMachine::plain(host));
            net.connect(node, routers[*at], &link(*rate))
                .expect("a link");
            nodes.push(node);
        }
        let mut world = World {
            net,
            router: routers[0],
            routers: routers.len(),
            server: nodes[0],
            hosts: nodes
                .iter()
                .map(|node| (*node, Client::default()))
                .collect(),
            clients: nodes[1..].to_vec(),
            contents: BTreeMap::new(),
            chunk_log2: 20,
        };
        world.run(Duration::from_secs(1));
        world
    }

    /// Nothing goes to a client or comes from it for a while.
    fn cut(&mut self, client: usize, lasts: Duration) {
        assert_eq!(self.routers, 1, "the links of the hosts come first");
        let link = 1 + client;
        let fault = Fault::Outage {
            link: link as u8,
            directions: 3,
            lasts,
        };
        self.net.strike(&fault);
    }

    fn host(&self, node: usize) -> &Host {
        self.net[node].get().expect("a host")
    }

    fn with_router<R>(&mut self, look: impl FnOnce(&Router, Time) -> R) -> R {
        self.net.with(self.router, |machine, now| {
            look(machine.get::<Router>().expect("a router"), now)
        })
    }

    fn request(&mut self, node: usize, request: LocalRequest) {
        self.net.with(node, |machine, now| {
            let host: &mut Host = machine.get_mut().expect("a host");
            host.request(now, APP, request);
        });
    }

    fn serve(&mut self, len: usize, seed: u64) -> Guid {
        let content = Content::new(len, seed);
        let (name, publish) = (content.name(), content.publish());
        self.contents.insert(name, content);
        self.request(
            self.server,
            LocalRequest::Publish(publish, TransferOptions::default()),
        );
        self.run(Duration::from_millis(100));
        name
    }

    fn get(&mut self, client: usize, content: Guid) {
        let get = get(1, content, self.chunk_log2);
        self.request(self.clients[client], LocalRequest::Get(get));
    }

    fn ping(&mut self, client: usize, sequence: u32) {
        let node = self.clients[client];
        let destination = self.host(self.server).guid();
        let now = self.net.now();
        self.client_mut(client).pinged.insert(sequence, now);
        let ping = LocalRequest::Ping {
            request: 2,
            destination,
            sequence,
            padding: 0,
        };
        self.request(node, ping);
    }

    fn client(&self, client: usize) -> &Client {
        &self.hosts[&self.clients[client]]
    }

    fn client_mut(&mut self, client: usize) -> &mut Client {
        self.hosts.get_mut(&self.clients[client]).expect("a client")
    }

    /// The program of a client takes no more events, or does again.
    fn stop(&mut self, client: usize, stopped: bool) {
        self.client_mut(client).stopped = stopped;
        self.net.with(self.clients[client], |machine, _| {
            let host: &mut Host = machine.get_mut().expect("a host");
            host.set_blocked(APP, stopped);
        });
    }

    fn run(&mut self, span: Duration) {
        let end = self.net.now() + span;
        self.run_while(end, |_| true);
    }

    /// Lets programs answer, until something is no longer so or it is `end`.
    fn run_while(&mut self, end: Time, goes_on: impl Fn(&World) -> bool) {
        while goes_on(self) {
            let more = self.net.step(end);
            while let Some(occurrence) = self.net.sim_mut().poll_event() {
                let node = self.number(occurrence.node);
                if let Some(answer) = self.answer(node, occurrence.event.event) {
                    self.request(node, answer);
                }
            }
            if !more {
                return;
            }
        }
    }

    fn number(&self, id: NodeId) -> usize {
        let mut nodes = self.hosts.keys();
        *nodes
            .find(|node| self.net.id(**node) == id)
            .expect("a host")
    }

    fn answer(&mut self, node: usize, event: LocalEvent) -> Option<LocalRequest> {
        let now = self.net.now();
        let client = self.hosts.get_mut(&node)?;
        match event {
            LocalEvent::Chunk(chunk) => {
                client.bytes += chunk.data.len();
                let request = chunk.request;
                (!client.stopped).then_some(LocalRequest::Consumed { request })
            }
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                let chunk = self.contents.get(&content)?.read(index, chunk_log2);
                Some(LocalRequest::ReadDone { read, chunk })
            }
            LocalEvent::Complete { .. } => {
                client.complete = Some(now);
                None
            }
            LocalEvent::Pong { sequence, .. } => {
                let sent = client.pinged.remove(&sequence)?;
                client.round_trips.push(now.since(sent));
                None
            }
            _ => None,
        }
    }

    /// Seconds until the first client has a content, which it asks for now.
    fn time_to_get(&mut self, content: Guid, limit: Duration) -> f64 {
        let begin = self.net.now();
        self.get(0, content);
        self.run_while(begin + limit, |world| world.client(0).complete.is_none());
        let complete = self.client(0).complete;
        complete.map_or(f64::INFINITY, |at| at.since(begin).as_secs_f64())
    }

    /// The median of pings that a client sends every 20 ms, and when it sent the last one.
    fn median_ping(&mut self, client: usize, count: u32) -> (Duration, Time) {
        self.client_mut(client).round_trips.clear();
        for sequence in 0..count {
            self.ping(client, sequence);
            self.run(Duration::from_millis(20));
        }
        let end = self.net.now();
        self.run(Duration::from_secs(1));
        let mut times = self.client(client).round_trips.clone();
        assert!(
            times.len() * 10 >= count as usize * 9,
            "{} answers",
            times.len()
        );
        times.sort_unstable();
        (times[times.len() / 2], end)
    }
}

const FAST_BYTES: usize = 96 * MIB;
/// So slow that sixty chunks of 1 MiB take some seconds.
const SLOW_SERVER: u64 = 100_000_000;

fn alone() -> f64 {
    let mut world = World::new(FULL, &[FULL]);
    let content = world.serve(FAST_BYTES, 1);
    world.time_to_get(content, Duration::from_secs(60))
}

/// How much longer the fast client takes beside slow ones of this rate, and how much of that is
/// what these take themselves of the server's link.
fn beside(slow: usize, rate: u64, stopped: bool) -> (f64, f64) {
    let mut rates = vec![FULL];
    rates.extend(vec![rate; slow]);
    let mut world = World::new(FULL, &rates);
    let content = world.serve(FAST_BYTES, 1);
    let other = world.serve(FAST_BYTES, 2);
    // A chunk that takes about a second.
    world.chunk_log2 = if rate < 10_000_000 { 17 } else { 20 };
    for client in 1..=slow {
        world.get(client, other);
    }
    world.chunk_log2 = 20;
    world.run(Duration::from_millis(300));
    if stopped {
        (1..=slow).for_each(|client| world.stop(client, true));
    }
    let time = world.time_to_get(content, Duration::from_secs(120));
    let taken: usize = (1..=slow).map(|client| world.client(client).bytes).sum();
    let status = world.with_router(|router, now| router.status(now));
    let (used, all) = status.buffer_packets;
    println!(
        "{slow} of {} Mbit/s{}: {time:.2} s, {} MiB went to them, {used} of {all} packets, {} chunks stored, {} holds, {:?}",
        rate / 1_000_000,
        if stopped { ", stopped" } else { "" },
        taken / MIB,
        status.counters.chunks_stored,
        status.counters.holds,
        status.counters.drops,
    );
    let rest = FULL as f64 / (FULL as f64 - slow as f64 * rate as f64).max(1.0);
    (time, rest)
}

#[test]
fn one_slow_receiver_does_not_hold_up_a_fast_one() {
    let (alone, (time, _)) = (alone(), beside(1, 10_000_000, false));
    println!("alone {alone:.2} s");
    assert!(time <= 1.1 * alone, "{time:.2} s, alone {alone:.2} s");
}

#[test]
fn eight_slow_receivers_cost_a_fast_one_no_more_than_they_take() {
    let (alone, (time, rest)) = (alone(), beside(8, 10_000_000, false));
    assert!(
        time <= 1.1 * alone * rest,
        "{time:.2} s, alone {alone:.2} s"
    );
}

#[test]
fn sixty_four_slow_receivers_cost_a_fast_one_no_more_than_they_take() {
    let (alone, (time, rest)) = (alone(), beside(64, 1_000_000, false));
    assert!(
        time <= 1.1 * alone * rest,
        "{time:.2} s, alone {alone:.2} s"
    );
}

#[test]
fn a_receiver_that_stopped_reading_does_not_hold_up_a_fast_one() {
    for rate in [FULL, 10_000_000] {
        let (alone, (time, _)) = (alone(), beside(1, rate, true));
        assert!(time <= 1.15 * alone, "{time:.2} s, alone {alone:.2} s");
    }
}

#[test]
fn pings_do_not_wait_behind_content() {
    for rate in [FULL, 100_000_000, 10_000_000] {
        let mut world = World::new(FULL, &[rate]);
        let (idle, _) = world.median_ping(0, 50);
        let content = world.serve(96 * MIB, 1);
        world.get(0, content);
        // Where the rate is low, the first packets have made a queue that takes a while to drain.
        let slow = rate <= 10_000_000;
        world.run(Duration::from_millis(if slow { 5_000 } else { 700 }));
        let (loaded, end) = world.median_ping(0, 25);
        let complete = world.client(0).complete;
        assert!(complete.is_none_or(|at| at > end), "the link was loaded");
        let packet = Duration::from_secs_f64(1_540.0 * 8.0 / rate as f64);
        println!(
            "{} Mbit/s: idle {idle:?}, loaded {loaded:?}",
            rate / 1_000_000
        );
        let most = idle + Duration::from_millis(5) + packet;
        assert!(loaded <= most, "{rate}: {loaded:?}, idle {idle:?}");
    }
}

#[test]
fn what_is_on_its_way_goes_no_further_when_a_get_is_cancelled() {
    let mut world = World::new(FULL, &[10_000_000]);
    let content = world.serve(96 * MIB, 1);
    world.get(0, content);
    world.run(Duration::from_secs(5));
    let waiting = world.with_router(|router, _| router.memory().total());
    assert!(waiting > 0, "something is on its way");
    world.request(world.clients[0], LocalRequest::Cancel { request: 1 });
    world.run(Duration::from_millis(20));
    let before = world.host(world.clients[0]).status(world.net.now()).links[0]
        .hop
        .bytes_received;
    world.run(Duration::from_secs(3));
    let after = world.host(world.clients[0]).status(world.net.now()).links[0]
        .hop
        .bytes_received;
    let memory = world.with_router(|router, _| router.memory());
    assert_eq!(memory.total(), 0, "{memory:?}");
    assert!(
        after - before < 64 << 10,
        "{} bytes came after it",
        after - before
    );
    assert_eq!(world.host(world.clients[0]).buffer().0, 0);
}

/// What waits for a slow receiver is about a second of its rate, in chunks of that length.
#[test]
fn what_waits_for_a_slow_receiver_is_bounded_in_time() {
    let mut world = World::new(FULL, &[10_000_000]);
    world.chunk_log2 = 17;
    let content = world.serve(96 * MIB, 1);
    world.get(0, content);
    world.run(Duration::from_secs(3));
    let mut most = 0;
    for _ in 0..300 {
        world.run(Duration::from_millis(10));
        most = most.max(world.with_router(|router, _| router.memory().buffered_bytes));
    }
    println!("{most} bytes wait at most");
    assert!(most <= 2_500_000, "{most} bytes are more than two seconds");
    // And enough to keep its link busy.
    let before = world.client(0).bytes;
    world.run(Duration::from_secs(10));
    let rate = (world.client(0).bytes - before) as f64 * 8.0 / 10.0;
    assert!(rate >= 9_000_000.0, "{rate} bit/s");
}

#[test]
fn attachments_are_renewed_behind_a_link_that_is_full_for_minutes() {
    let mut world = World::new(256_000, &[FULL]);
    let content = world.serve(16 * MIB, 1);
    world.get(0, content);
    for second in 0..200 {
        world.run(Duration::from_secs(1));
        let status = world.with_router(|router, now| router.status(now));
        assert_eq!(
            status.attachments, 2,
            "after {second} s: {:?}",
            status.counters
        );
    }
    assert!(world.client(0).complete.is_none() && world.client(0).bytes > 4 * MIB);
    let drops = world.with_router(|router, now| router.status(now).counters.drops);
    assert!(!drops.contains_key("refused-attach"), "{drops:?}");
}

/// Two routers: what the far one cannot pass on waits at the server.
#[test]
fn a_slow_receiver_behind_a_second_router_does_not_hold_up_a_fast_one() {
    let time = |slow: bool| {
        let mut world = World::with_routers(FULL, &[FULL, 10_000_000], 2);
        let content = world.serve(FAST_BYTES, 1);
        let other = world.serve(FAST_BYTES, 2);
        if slow {
            world.get(1, other);
            world.run(Duration::from_secs(1));
        }
        let time = world.time_to_get(content, Duration::from_secs(60));
        let used = world.with_router(|router, now| router.status(now).buffer_packets.0);
        println!("slow: {slow}, {time:.2} s, {used} packets wait at the first router");
        if slow {
            let before = world.client(1).bytes;
            world.run(Duration::from_secs(5));
            let rate = (world.client(1).bytes - before) as f64 * 8.0 / 5.0;
            assert!(rate >= 8_000_000.0, "{rate} bit/s went to the slow one");
        }
        time
    };
    let (alone, beside) = (time(false), time(true));
    assert!(beside <= 1.1 * alone, "{beside:.2} s, alone {alone:.2} s");
}

/// Its chunks are stored, but only with what others leave.
#[test]
fn a_receiver_that_has_fallen_silent_does_not_hold_up_a_fast_one() {
    let alone = alone();
    let mut world = World::new(FULL, &[FULL, FULL]);
    let content = world.serve(FAST_BYTES, 1);
    let other = world.serve(4 * FAST_BYTES, 2);
    world.get(1, other);
    world.run(Duration::from_millis(100));
    world.cut(1, Duration::from_secs(3_600));
    world.run(Duration::from_secs(1));
    let time = world.time_to_get(content, Duration::from_secs(60));
    println!("beside a silent one {time:.2} s, alone {alone:.2} s");
    assert!(time <= 1.1 * alone, "{time:.2} s, alone {alone:.2} s");
    // What others leave is used.
    world.run(Duration::from_secs(10));
    let stored = world.with_router(|router, _| router.memory().stored_bytes);
    assert!(stored > 100 * MIB as u64, "{stored} bytes are stored");
}

/// Each of many such flows brings a chunk less often than a hold lasts.
#[test]
fn sixty_receivers_that_have_fallen_silent_do_not_hold_up_another() {
    let time = |silent: usize| {
        let mut world = World::new(SLOW_SERVER, &vec![FULL; 1 + silent]);
        let content = world.serve(16 * MIB, 1);
        let other = world.serve(FAST_BYTES, 2);
        (1..=silent).for_each(|client| world.get(client, other));
        world.run(Duration::from_secs(1));
        for client in 1..=silent {
            world.cut(client, Duration::from_secs(3_600));
        }
        world.run(Duration::from_secs(10));
        world.time_to_get(content, Duration::from_secs(120))
    };
    let (alone, beside) = (time(0), time(60));
    println!("beside sixty silent ones {beside:.2} s, alone {alone:.2} s");
    assert!(beside <= 1.25 * alone, "{beside:.2} s, alone {alone:.2} s");
}

/// What waits for them all is more than what one inbound peer may have in a router's buffer.
#[test]
fn sixty_receivers_behind_one_thin_link_do_not_hold_up_another() {
    let time = |others: usize| {
        let mut clients = vec![(FULL, 0)];
        clients.extend(vec![(FULL, 1); others]);
        let mut world = World::with_places(SLOW_SERVER, SLOW_SERVER / 10, &clients, 2);
        let content = world.serve(32 * MIB, 1);
        let other = world.serve(FAST_BYTES, 2);
        (1..=others).for_each(|client| world.get(client, other));
        world.run(Duration::from_secs(10));
        let time = world.time_to_get(content, Duration::from_secs(240));
        let status = world.with_router(|router, now| router.status(now));
        let (used, all) = status.buffer_packets;
        println!("beside {others}: {time:.2} s, {used} of {all} packets");
        assert!(used < all / 3, "the server may hold half of them");
        time
    };
    let (alone, beside) = (time(0), time(60));
    assert!(beside <= 1.25 * alone, "{beside:.2} s, alone {alone:.2} s");
}

#[test]
fn after_an_outage_content_comes_within_a_round_trip_and_a_tenth_of_a_second() {
    for outage in [1, 70] {
        let mut world = World::new(FULL, &[50_000_000]);
        world.chunk_log2 = 16;
        let content = world.serve(96 * MIB, 1);
        world.get(0, content);
        world.run(Duration::from_secs(2));
        world.cut(0, Duration::from_secs(outage));
        world.run(Duration::from_secs(outage));
        let (before, back) = (world.client(0).bytes, world.net.now());
        world.run_while(back + Duration::from_secs(10), |world| {
            world.client(0).bytes == before
        });
        let pause = world.net.now().since(back);
        println!("{pause:?} after an outage of {outage} s");
        assert!(pause <= DELAY * 2 + Duration::from_millis(100), "{pause:?}");
    }
}
