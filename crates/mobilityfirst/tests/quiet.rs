//! A link that is paid by the byte, between a host and its router that are told to be quiet: what a
//! day without traffic costs, and that a transfer after it starts as any other.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{SeededRng, Time};
use whimbrel_gnrs::KeyPair;
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, TransferOptions};
use whimbrel_mobilityfirst::router::Router;
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::testbed::Net;
use whimbrel_sim::{AnyMachine, Direction, DuplexLink};

use crate::support::{APP, Content, WALL, get, router_config};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Bytes of UDP and IPv6 headers.
const OVERHEAD: u64 = 48;
/// How seldom the quiet nodes ask for a sign of life, and for how long they sign.
const IDLE_PROBE: Duration = Duration::from_secs(300);
const LIFETIME: Duration = Duration::from_secs(6 * 3600);
/// The longest announcement that routers believe.
const ANNOUNCED: Duration = Duration::from_secs(3600);

/// Links are encrypted, as by default.
fn quiet(keys: &KeyPair) -> HopConfig {
    HopConfig {
        idle_probe_interval: IDLE_PROBE,
        ..HopConfig::sealed(keys, keys.guid().0, 1472)
    }
}

fn router() -> AnyMachine<HostEvent> {
    let keys = KeyPair::from_secret(&[1; 32]);
    let config = router_config(keys.guid(), quiet(&keys));
    AnyMachine::new(
        Router::new(config, SeededRng::new(1)),
        |never| match never {},
    )
}

fn host(number: u8) -> AnyMachine<HostEvent> {
    let keys = KeyPair::from_secret(&[number; 32]);
    let config = HostConfig {
        hop: quiet(&keys),
        binding_lifetime: LIFETIME,
        announcement_lifetime: ANNOUNCED,
        ..HostConfig::new(keys, WALL)
    };
    AnyMachine::plain(Host::new(config, SeededRng::new(number.into())))
}

struct World {
    net: Net<AnyMachine<HostEvent>>,
    server: usize,
    client: usize,
    link: usize,
    content: Content,
    complete: Option<Time>,
    // Of the chunks that came, as powers of two.
    sizes: BTreeSet<u8>,
}

impl World {
    fn request(&mut self, node: usize, request: LocalRequest) {
        self.net.with(node, |machine, now| {
            let host: &mut Host = machine.get_mut().expect("a host");
            host.request(now, APP, request);
        });
    }

    fn run(&mut self, span: Duration) {
        let end = self.net.now() + span;
        while self.complete.is_none() {
            let more = self.net.step(end);
            while let Some(occurrence) = self.net.sim_mut().poll_event() {
                match occurrence.event.event {
                    LocalEvent::Chunk(chunk) => {
                        self.sizes.insert(chunk.chunk_log2);
                        let request = chunk.request;
                        self.request(self.client, LocalRequest::Consumed { request });
                    }
                    LocalEvent::Read {
                        read,
                        index,
                        chunk_log2,
                        ..
                    } => {
                        let chunk = self.content.read(index, chunk_log2);
                        self.request(self.server, LocalRequest::ReadDone { read, chunk });
                    }
                    LocalEvent::Complete { .. } => self.complete = Some(self.net.now()),
                    _ => {}
                }
            }
            if !more {
                return;
            }
        }
    }

    /// Bytes handed to the quiet link so far, both ways, with their headers.
    fn cost(&self) -> u64 {
        let link = self.net.link(self.link);
        let stats = Direction::BOTH.map(|way| self.net.sim().link_stats(link, way));
        stats
            .iter()
            .map(|it| it.offered_bytes + it.offered * OVERHEAD)
            .sum()
    }
}

/// A server at a router by a link of 64 kbit/s, and a client there by a fast one.
fn world() -> World {
    world_of(64_000, 100_000_000, 200_000)
}

/// A server, of a content of `len` bytes, and a client at a router, by links of these rates.
fn world_of(to_server: u64, to_client: u64, len: usize) -> World {
    let mut net = Net::new(5);
    let router = net.add_mortal("router", router());
    let server = net.add_mortal("server", host(2));
    let client = net.add_mortal("client", host(3));
    let at = |rate, delay| DuplexLink::symmetric(LinkSpec::new(rate, Duration::from_millis(delay)));
    net.connect(server, router, &at(to_server, 300))
        .expect("a link");
    net.connect(client, router, &at(to_client, 1))
        .expect("a link");
    let mut world = World {
        net,
        server,
        client,
        link: 0,
        content: Content::new(len, 1),
        complete: None,
        sizes: BTreeSet::new(),
    };
    let publish = world.content.publish();
    world.run(Duration::from_secs(5));
    world.request(
        server,
        LocalRequest::Publish(publish, TransferOptions::default()),
    );
    world.run(Duration::from_secs(60));
    world
}

fn fetch(world: &mut World) -> Duration {
    let begin = world.net.now();
    let get = get(1, world.content.name(), 20);
    world.request(world.client, LocalRequest::Get(get));
    world.run(Duration::from_secs(600));
    world.complete.expect("the transfer").since(begin)
}

#[test]
fn a_day_without_traffic_costs_less_than_half_a_megabyte() {
    let mut world = world();
    let before = world.cost();
    world.run(DAY);
    let idle = world.cost() - before;
    println!("{idle} bytes in a day");
    assert!(idle > 10_000 && idle < 500_000, "{idle}");
}

#[test]
fn a_transfer_after_a_quiet_day_starts_as_any_other() {
    let at_once = fetch(&mut world());
    let mut later = world();
    later.run(DAY);
    let later = fetch(&mut later);
    println!("{at_once:?} at once, {later:?} after a day");
    assert!(
        later < at_once + Duration::from_secs(2),
        "{at_once:?}, {later:?}"
    );
    // 200,000 bytes at 64 kbit/s are 25 s.
    assert!(at_once < Duration::from_secs(36), "{at_once:?}");
}

#[test]
fn chunks_are_as_large_as_a_slow_link_carries_in_about_a_second() {
    // The router fits them to the client's link, the server to its own.
    let sizes = |to_server, to_client| {
        let mut world = world_of(to_server, to_client, 3_000_000);
        fetch(&mut world);
        Vec::from_iter(world.sizes)
    };
    assert_eq!(sizes(64_000, 100_000_000), [14]);
    assert_eq!(sizes(100_000_000, 64_000), [14]);
    assert_eq!(sizes(100_000_000, 128_000), [14]);
    // Two links without a thin one afford larger chunks.
    assert_eq!(sizes(100_000_000, 100_000_000), [15]);
}
