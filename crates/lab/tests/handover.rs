//! A client that moves from one access router to another in the middle of a transfer.
//!
//! N1 - N2 - two access routers, A and B; the client has a link to each, and one at a time works.

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{PortOrigin, SeededRng, WallClock};
use whimbrel_gnrs::{KeyPair, MemoryStore, Server, ServerConfig, StoreLimits as RecordLimits};
use whimbrel_lab::RepeatingContent;
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{Get, LocalEvent, LocalRequest, Publish, TransferOptions};
use whimbrel_mobilityfirst::router::{
    NextHop, ProxyPolicy, Router, RouterConfig, RouterStatus, store::StoreLimits,
};
use whimbrel_mobilityfirst::wire::ContentKind;
use whimbrel_node::{Node, NodeEvent};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::{DuplexLink, LinkId, NodeId, Simulator};

const WALL: WallClock = WallClock::new(1_767_225_600_000);
/// The number of each router's link to the name server, above those of its neighbours.
const NAME_SERVER_LINK: u32 = 1_000;
const LEN: u64 = 12 << 20;

struct World {
    sim: Simulator<Node<MemoryStore>>,
    server: NodeId,
    client: NodeId,
    access: [NodeId; 2],
    radio: [LinkId; 2],
    content: RepeatingContent,
    arrived: BTreeSet<u32>,
    complete: bool,
}

fn keys(number: u8) -> KeyPair {
    KeyPair::from_secret(&[number; 32])
}

fn host(number: u8) -> Node<MemoryStore> {
    let config = HostConfig::new(keys(number), WALL);
    Node::Host(Box::new(Host::new(config, SeededRng::new(number.into()))))
}

fn router(
    number: u8,
    default_route: Option<NextHop>,
    storage_timer: Duration,
) -> Node<MemoryStore> {
    let guid = keys(number).guid();
    let config = RouterConfig {
        guid,
        wall: WALL,
        hop: HopConfig::plain(&keys(number), [number; 32], 1472),
        buffer_packets: 16_384,
        store: StoreLimits {
            cache: 0,
            total: 1 << 30,
            per_flow: 1 << 28,
            lifetime: Duration::from_secs(3600),
        },
        routes: Vec::new(),
        default_route,
        name_servers: vec![NAME_SERVER_LINK],
        proxy: ProxyPolicy {
            storage_timer,
            ..ProxyPolicy::default()
        },
        split: whimbrel_mobilityfirst::split::SplitConfig::default(),
    };
    let mut router = Router::new(config, SeededRng::new(number.into()));
    // What an access router has stored comes back by the core.
    for number in [2, 10, 11] {
        router.believe(keys(number).guid());
    }
    Node::Router(Box::new(router))
}

impl World {
    fn new(storage_timer: Duration) -> World {
        let mut sim = Simulator::new(1);
        let (server, client) = (sim.add_node("N1", host(1)), sim.add_node("N4", host(4)));
        let core = sim.add_node("N2", router(2, None, storage_timer));
        let towards_core = || Some(NextHop::Neighbour(keys(2).guid()));
        let access = [
            sim.add_node("A", router(10, towards_core(), storage_timer)),
            sim.add_node("B", router(11, towards_core(), storage_timer)),
        ];
        let store = MemoryStore::new(RecordLimits::default());
        let names = Server::new(ServerConfig::default(), WALL, [7; 32], store);
        let names = sim.add_node("gnrs", Node::from(names));
        let wire = DuplexLink::symmetric(LinkSpec::new(1_000_000_000, Duration::from_millis(1)));
        for node in [core, access[0], access[1]] {
            sim.connect(
                node,
                names,
                &wire.clone().with_origins(
                    PortOrigin::Configured(NAME_SERVER_LINK),
                    PortOrigin::Accepted(0),
                ),
            )
            .expect("a link");
        }
        sim.connect(server, core, &wire).expect("a link");
        access.iter().for_each(|node| {
            sim.connect(core, *node, &wire).expect("a link");
        });
        let air = DuplexLink::symmetric(LinkSpec::new(20_000_000, Duration::from_millis(2)));
        let radio = access.map(|node| sim.connect(node, client, &air).expect("a link").link);
        sim.partition(radio[1]);
        let content = RepeatingContent::new(LEN, 1);
        let mut world = World {
            sim,
            server,
            client,
            access,
            radio,
            content,
            arrived: BTreeSet::new(),
            complete: false,
        };
        world.run(Duration::from_secs(1));
        let publish = Publish {
            content: world.content.name(),
            content_len: LEN,
            kind: ContentKind::File,
            file_name: String::new(),
        };
        world.tell(
            server,
            LocalRequest::Publish(publish, TransferOptions::default()),
        );
        world.run(Duration::from_secs(1));
        world
    }

    fn tell(&mut self, node: NodeId, request: LocalRequest) {
        self.sim.with_node(node, |machine, now| {
            machine.host().expect("a host").request(now, 1, request);
        });
        self.pump();
    }

    fn get(&mut self) {
        let get = Get {
            request: 1,
            content: self.content.name(),
            options: TransferOptions {
                chunk_log2: 18,
                // So long that only the network can deliver the missing chunks.
                nack_timeout_ms: 600_000,
                ..TransferOptions::default()
            },
            in_order: false,
            credit: 8,
            resume: bytes::Bytes::new(),
        };
        self.tell(self.client, LocalRequest::Get(get));
    }

    fn run(&mut self, span: Duration) {
        let end = self.sim.now() + span;
        self.sim.schedule(end, |_| {});
        while self.sim.now() < end && self.sim.step() {
            self.pump();
        }
    }

    fn pump(&mut self) {
        while let Some(occurrence) = self.sim.poll_event() {
            let NodeEvent::Host(HostEvent { event, .. }) = occurrence.event else {
                continue;
            };
            match event {
                LocalEvent::Read {
                    read,
                    index,
                    chunk_log2,
                    ..
                } => {
                    let chunk = self.content.read(index, chunk_log2);
                    self.tell(self.server, LocalRequest::ReadDone { read, chunk });
                }
                LocalEvent::Chunk(chunk) => {
                    assert!(
                        self.arrived.insert(chunk.index),
                        "chunk {} was handed over twice",
                        chunk.index
                    );
                    self.tell(self.client, LocalRequest::Consumed { request: 1 });
                }
                LocalEvent::Complete { .. } => self.complete = true,
                _ => {}
            }
        }
    }

    fn router_status(&mut self, node: NodeId) -> RouterStatus {
        self.sim.with_node(node, |machine, now| {
            machine.router().expect("a router").status(now)
        })
    }
}

#[test]
fn chunks_stored_at_the_old_router_follow_the_client_once_its_binding_changes() {
    // With a storage timer of an hour, only the pushed binding can release the stored chunks.
    let mut world = World::new(Duration::from_secs(3600));
    world.get();
    world.run(Duration::from_millis(1500));
    let before = world.arrived.len();
    assert!(before > 0 && !world.complete);
    world.sim.partition(world.radio[0]);
    world.run(Duration::from_secs(3));
    let stuck = world.arrived.len();
    let old_router = world.access[0];
    let stored = world.router_status(old_router);
    assert!(
        stored.stored_chunks > 0,
        "the old router stores nothing: {:?}",
        stored.counters
    );
    world.sim.repair(world.radio[1]);
    world.run(Duration::from_secs(20));
    assert!(
        world.complete,
        "{stuck} chunks before the move, {} after it",
        world.arrived.len()
    );
    let after = world.router_status(old_router);
    assert_eq!(after.stored_chunks, 0);
    assert!(after.counters.bindings_pushed > 0);
    assert_eq!(world.arrived.len() as u64, LEN >> 16);
}

#[test]
fn a_client_that_never_returns_costs_no_more_than_the_storage() {
    let mut world = World::new(Duration::from_secs(1));
    world.get();
    world.run(Duration::from_millis(800));
    world.sim.partition(world.radio[0]);
    world.run(Duration::from_secs(120));
    let old_router = world.access[0];
    let status = world.router_status(old_router);
    assert!(
        status.stored_bytes.0 <= LEN + (1 << 20),
        "{}",
        status.stored_bytes.0
    );
    assert_eq!(
        status.buffer_packets.0, 0,
        "stored chunks must not fill the back-pressure buffer"
    );
    assert!(!world.complete);
}
