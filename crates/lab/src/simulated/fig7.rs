//! The testbed of [MFTP §5], Fig. 7, in the simulator: server N1 - router N2 - access router N3 -
//! client N4, and a name server.

use core::time::Duration;
use std::time::Instant;

use whimbrel_core::{Guid, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_gnrs::{KeyPair, MemoryStore, Server, ServerConfig, StoreLimits as RecordLimits};
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{FailReason, Get, LocalEvent, LocalRequest, Publish};
use whimbrel_mobilityfirst::router::{
    NextHop, ProxyPolicy, Route, Router, RouterConfig, store::StoreLimits,
};
use whimbrel_mobilityfirst::wire::{ContentKind, Reliability};
use whimbrel_node::{Node, NodeEvent};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::{DuplexLink, LinkId, NodeId, Simulator};

use super::RepeatingContent;
use crate::{Fig7, TransferMeter, TransferRecord};

type Machine = Node<MemoryStore>;

/// Unix time at the origin of every simulation, in milliseconds: 2026-01-01.
pub(crate) const ORIGIN_UNIX_MS: u64 = 1_767_225_600_000;
/// The number of each router's link to the name server, above those of its neighbours.
const NAME_SERVER_LINK: u32 = 1_000;
const SERVER_APP: u32 = 1;
const CLIENT_APP: u32 = 2;

/// What a simulated Fig. 7 can be told to do differently.
#[derive(Clone, Debug)]
pub struct SimulatedFig7Options {
    /// How the routers' proxies try stored chunks again.
    pub proxy: ProxyPolicy,
    /// The client's end-to-end timer; `None` for the host's default.
    pub nack_timeout: Option<Duration>,
    /// Chunk size as a power of two; [MFTP §5] uses 1 MB.
    pub chunk_log2: u8,
    /// What the client confirms.
    pub reliability: Reliability,
    /// Capacity of each router's back-pressure buffer, in packets.
    pub buffer_packets: usize,
    /// The routers' storage.
    pub store: StoreLimits,
}

impl Default for SimulatedFig7Options {
    fn default() -> SimulatedFig7Options {
        SimulatedFig7Options {
            proxy: ProxyPolicy::default(),
            nack_timeout: None,
            chunk_log2: 20,
            reliability: Reliability::Nack,
            buffer_packets: 16_384,
            store: StoreLimits {
                total: 1 << 30,
                per_flow: 100 << 20,
                lifetime: Duration::from_secs(3600),
            },
        }
    }
}

/// A network of real protocol machines in virtual time.
pub struct SimulatedFig7 {
    /// The simulation, for faults and counters.
    pub sim: Simulator<Machine>,
    /// The hosts and routers N1 to N4, in order.
    pub nodes: [NodeId; 4],
    /// The links N1-N2, N2-N3 and N3-N4, in order.
    pub links: [LinkId; 3],
    /// The name server.
    pub name_server: NodeId,
    options: SimulatedFig7Options,
    contents: Vec<RepeatingContent>,
    transfers: Vec<Transfer>,
    origin: Instant,
    seed: u64,
    restarts: u64,
}

struct Transfer {
    content: Guid,
    started: Time,
    meter: TransferMeter,
    outcome: Option<Outcome>,
}

#[derive(Clone, Debug)]
enum Outcome {
    Complete(TransferRecord),
    Failed(FailReason),
}

fn keys(node: usize) -> KeyPair {
    KeyPair::from_secret(&[node as u8 + 1; 32])
}

impl SimulatedFig7 {
    /// Builds it and lets it run for a second, in which the hosts attach.
    pub fn new(fig7: &Fig7, options: SimulatedFig7Options, seed: u64) -> SimulatedFig7 {
        let mut sim: Simulator<Machine> = Simulator::new(seed);
        let nodes = [0, 1, 2, 3].map(|index| {
            let machine = build(index, &options, seed, 0);
            sim.add_node(["N1", "N2", "N3", "N4"][index], machine)
        });
        let limits = RecordLimits::default();
        let server = Server::new(
            ServerConfig::default(),
            WallClock::new(ORIGIN_UNIX_MS),
            [7; 32],
            MemoryStore::new(limits),
        );
        let name_server = sim.add_node("gnrs", Node::NameServer(Box::new(server)));
        let mut join = |a, b, link: &DuplexLink| match sim.connect(a, b, link) {
            Ok(connection) => connection.link,
            Err(fault) => panic!("the link's specification makes no sense: {fault}"),
        };
        // "A local GNRS server on both N2 and N3" [MFTP §5]: one, a short wire away from
        // both.
        let wire = DuplexLink::symmetric(LinkSpec::new(1_000_000_000, Duration::from_micros(100)));
        for router in &nodes[1..3] {
            join(
                *router,
                name_server,
                &wire.clone().with_origins(
                    PortOrigin::Configured(NAME_SERVER_LINK),
                    PortOrigin::Accepted(0),
                ),
            );
        }
        let specs = [&fig7.server_link, &fig7.router_link, &fig7.last_hop];
        let links = [0, 1, 2].map(|index| {
            join(
                nodes[index],
                nodes[index + 1],
                &DuplexLink::symmetric(specs[index].clone()),
            )
        });
        let mut fig7 = SimulatedFig7 {
            sim,
            nodes,
            links,
            name_server,
            options,
            contents: Vec::new(),
            transfers: Vec::new(),
            origin: Instant::now(),
            seed,
            restarts: 0,
        };
        fig7.run_until(Time::from_secs(1));
        fig7
    }

    /// Offers a content at N1 and gives its announcement a second to arrive.
    pub fn publish(&mut self, content: RepeatingContent) {
        let publish = Publish {
            content: content.name(),
            content_len: content.len(),
            kind: ContentKind::File,
            file_name: String::from("content"),
        };
        self.contents.push(content);
        self.request(0, SERVER_APP, LocalRequest::Publish(publish));
        let settled = self.sim.now() + Duration::from_secs(1);
        self.run_until(settled);
    }

    fn request(&mut self, node: usize, app: u32, request: LocalRequest) {
        self.sim.with_node(self.nodes[node], |machine, now| {
            if let Some(host) = machine.host() {
                host.request(now, app, request);
            }
        });
        self.handle_events();
    }

    /// N4 asks for a content now. Answers with the transfer's number.
    pub fn get(&mut self, content: Guid) -> usize {
        let number = self.transfers.len();
        let started = self.sim.now();
        let meter = TransferMeter::new(self.origin + started.since(Time::ZERO));
        self.transfers.push(Transfer {
            content,
            started,
            meter,
            outcome: None,
        });
        let get = Get {
            request: number as u32,
            content,
            chunk_log2: self.options.chunk_log2,
            in_order: false,
            reliability: self.options.reliability,
            nack_timeout_ms: self
                .options
                .nack_timeout
                .map_or(0, |timeout| timeout.as_millis() as u32),
            credit: 8,
            resume: bytes::Bytes::new(),
        };
        self.request(3, CLIENT_APP, LocalRequest::Get(get));
        number
    }

    /// Runs until a transfer has ended or `limit` has come. `Ok` with its record (completed or cut
    /// off), `Err` with what the network said.
    pub fn finish(&mut self, transfer: usize, limit: Time) -> Result<TransferRecord, FailReason> {
        while self.transfers[transfer].outcome.is_none() && self.sim.now() < limit {
            if !self.sim.step() {
                break;
            }
            self.handle_events();
        }
        let now = self.instant(self.sim.now());
        let transfer = &self.transfers[transfer];
        match transfer.outcome.clone() {
            Some(Outcome::Complete(record)) => Ok(record),
            Some(Outcome::Failed(reason)) => Err(reason),
            None => Ok(transfer.meter.clone().finish(now, false)),
        }
    }

    /// Runs until `end`.
    pub fn run_until(&mut self, end: Time) {
        self.sim.schedule(end, |_| {});
        while self.sim.now() < end && self.sim.step() {
            self.handle_events();
        }
    }

    /// Runs to the next event. False if there is none.
    pub fn step(&mut self) -> bool {
        let more = self.sim.step();
        self.handle_events();
        more
    }

    /// Bytes of a transfer that have arrived.
    pub fn received(&self, transfer: usize) -> u64 {
        self.transfers[transfer].meter.bytes()
    }

    /// When a transfer was asked for.
    pub fn started(&self, transfer: usize) -> Time {
        self.transfers[transfer].started
    }

    /// What N`number` (1 to 4) says of itself, as `whimbrel router status --json` and `host status
    /// --json` do.
    pub fn status(&mut self, number: usize) -> serde_json::Value {
        let status = self.sim.with_node(self.nodes[number - 1], |machine, now| {
            match machine.router() {
                Some(router) => serde_json::to_value(router.status(now)).ok(),
                None => machine
                    .host()
                    .and_then(|host| serde_json::to_value(host.status(now)).ok()),
            }
        });
        status.unwrap_or_default()
    }

    /// Kills N`number` (1 to 4) without warning and starts it anew, with nothing in its memory.
    pub fn restart(&mut self, number: usize) {
        self.restarts += 1;
        let machine = build(number - 1, &self.options, self.seed, self.restarts);
        self.sim.crash(self.nodes[number - 1]);
        self.sim.restart(self.nodes[number - 1], machine);
        if number == 1 {
            for content in self.contents.clone() {
                self.publish(content);
            }
        }
        self.handle_events();
    }

    fn instant(&self, time: Time) -> Instant {
        self.origin + time.since(Time::ZERO)
    }

    fn handle_events(&mut self) {
        while let Some(occurrence) = self.sim.poll_event() {
            if let NodeEvent::Host(HostEvent { event, .. }) = occurrence.event {
                self.handle_event(occurrence.time, event);
            }
        }
    }

    fn handle_event(&mut self, now: Time, event: LocalEvent) {
        match event {
            LocalEvent::Read {
                read,
                content,
                index,
                chunk_log2,
            } => {
                let known = self.contents.iter().find(|known| known.name() == content);
                let chunk = known.and_then(|content| content.read(index, chunk_log2));
                self.request(0, SERVER_APP, LocalRequest::ReadDone { read, chunk });
            }
            LocalEvent::Chunk(chunk) => {
                self.check(&chunk);
                let now = self.instant(now);
                let transfer = &mut self.transfers[chunk.request as usize];
                transfer.meter.arrived(now, chunk.data.len() as u64);
                self.request(
                    3,
                    CLIENT_APP,
                    LocalRequest::Consumed {
                        request: chunk.request,
                    },
                );
            }
            LocalEvent::Complete { request, .. } => {
                let now = self.instant(now);
                let transfer = &mut self.transfers[request as usize];
                transfer.outcome =
                    Some(Outcome::Complete(transfer.meter.clone().finish(now, true)));
            }
            LocalEvent::Failed { request, reason } => {
                self.transfers[request as usize].outcome = Some(Outcome::Failed(reason));
            }
            LocalEvent::State { .. }
            | LocalEvent::Published { .. }
            | LocalEvent::Pong { .. }
            | LocalEvent::Message { .. }
            | LocalEvent::Status { .. } => {}
        }
    }

    /// What is handed to a program must be the content's bytes.
    fn check(&self, chunk: &whimbrel_mobilityfirst::local::LocalChunk) {
        let content = self.transfers[chunk.request as usize].content;
        let Some(known) = self.contents.iter().find(|known| known.name() == content) else {
            return;
        };
        let start = u64::from(chunk.index) << chunk.chunk_log2;
        let expected = known.bytes(start, start + chunk.data.len() as u64);
        assert!(
            expected == chunk.data,
            "chunk {} was handed over with other bytes",
            chunk.index
        );
    }
}

/// N1 and N4 are hosts, N2 and N3 routers.
fn build(index: usize, options: &SimulatedFig7Options, seed: u64, life: u64) -> Machine {
    let wall = WallClock::new(ORIGIN_UNIX_MS);
    let rng = SeededRng::stream(
        seed.wrapping_add(life << 32),
        ["N1", "N2", "N3", "N4"][index],
    );
    let guid = keys(index).guid();
    let hop = HopConfig {
        incarnation: life + 1,
        ..HopConfig::new(guid, 1472)
    };
    if index == 0 || index == 3 {
        let config = HostConfig {
            hop,
            ..HostConfig::new(keys(index), wall)
        };
        return Node::Host(Box::new(Host::new(config, rng)));
    }
    let other = keys(3 - index).guid();
    let config = RouterConfig {
        guid,
        wall,
        hop,
        buffer_packets: options.buffer_packets,
        store: options.store,
        routes: vec![Route {
            to: other,
            via: NextHop::Neighbour(other),
        }],
        default_route: None,
        name_servers: vec![NAME_SERVER_LINK],
        proxy: options.proxy,
    };
    Node::Router(Box::new(Router::new(config, rng)))
}
