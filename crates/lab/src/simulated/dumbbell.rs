//! Transfers that share one bottleneck, in virtual time: Whimbrel's, and TCP's by smoltcp.
//!
//! Each pair's server and client stand on either side of the shared link, with a fast link of their
//! own to it. On the client's side of a Whimbrel pair stand its router and its name server, so that
//! one hop crosses the bottleneck and competes there.

use core::time::Duration;
use std::net::Ipv4Addr;

use whimbrel_core::{Guid, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_gnrs::{KeyPair, MemoryStore, Server, ServerConfig, StoreLimits as RecordLimits};
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::{Get, LocalEvent, LocalRequest, Publish};
use whimbrel_mobilityfirst::router::{ProxyPolicy, Router, RouterConfig, store::StoreLimits};
use whimbrel_mobilityfirst::wire::{ContentKind, Reliability};
use whimbrel_node::{Node, NodeEvent};
use whimbrel_sim::link::LinkSpec;
use whimbrel_sim::tcp::{TcpClient, TcpConfig, TcpEvent, TcpServer};
use whimbrel_sim::{AnyMachine, Direction, DuplexLink, LinkId, NodeId, Simulator};

use super::RepeatingContent;
use super::switch::{Access, Switch};
use crate::LabError;
use crate::transfer::SAMPLE_INTERVAL;

type Whimbrel = Node<MemoryStore>;
type World = Simulator<AnyMachine<Event>>;

/// Unix time at the origin, in milliseconds: 2026-01-01.
const ORIGIN: WallClock = WallClock::new(1_767_225_600_000);
/// The hosts attach, the content is announced; then all ask at once.
const ANNOUNCED_AT: Time = Time::from_secs(1);
const ASKED_AT: Time = Time::from_secs(2);
/// The number of each router's link to the name server, above those of its neighbours.
const NAME_SERVER_LINK: u32 = 1_000;
const APP: u32 = 1;
const CHUNK_LOG2: u8 = 20;
/// IPv4 and UDP headers of a datagram, bytes.
const DATAGRAM_HEADERS: u64 = 28;

/// Who competes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// One hop of Whimbrel.
    Whimbrel,
    /// One connection of smoltcp's Cubic.
    Tcp,
}

enum Event {
    Node(NodeEvent),
    Tcp,
}

struct Pair {
    server: NodeId,
    client: NodeId,
    /// The last link that only this pair uses, on the client's side of the bottleneck.
    access: LinkId,
    contender: Contender,
}

/// Bytes on the wire (IP packets) that each contender got through `bottleneck` in `measured`, which
/// begins `warm_up` after each has asked for `len` bytes, which are to be more than it can get
/// until then.
pub fn simulated_shares(
    bottleneck: &LinkSpec,
    contenders: &[Contender],
    len: u64,
    warm_up: Duration,
    measured: Duration,
    seed: u64,
) -> Result<Vec<u64>, LabError> {
    let content = RepeatingContent::new(len, seed);
    let mut sim: World = Simulator::new(seed);
    let pairs = build(&mut sim, bottleneck, contenders, seed)?;
    run_until(&mut sim, &pairs, &content, ANNOUNCED_AT);
    for pair in pairs
        .iter()
        .filter(|pair| pair.contender == Contender::Whimbrel)
    {
        request(
            &mut sim,
            pair.server,
            LocalRequest::Publish(publish(&content)),
        );
    }
    run_until(&mut sim, &pairs, &content, ASKED_AT);
    for pair in &pairs {
        match pair.contender {
            Contender::Whimbrel => request(
                &mut sim,
                pair.client,
                LocalRequest::Get(get(content.name())),
            ),
            Contender::Tcp => {
                sim.with_node(pair.client, |machine, now| {
                    machine
                        .get_mut::<TcpClient>()
                        .map(|tcp| tcp.fetch(now, len))
                });
            }
        }
    }
    let begin = ASKED_AT + warm_up;
    run_until(&mut sim, &pairs, &content, begin);
    let before: Vec<u64> = pairs.iter().map(|pair| pair.carried(&sim)).collect();
    run_until(&mut sim, &pairs, &content, begin + measured);
    Ok(pairs
        .iter()
        .zip(before)
        .map(|(pair, before)| pair.carried(&sim) - before)
        .collect())
}

impl Pair {
    /// Bytes of IP packets that reached the client's side.
    fn carried(&self, sim: &World) -> u64 {
        let stats = sim.link_stats(self.access, Direction::AToB);
        match self.contender {
            Contender::Whimbrel => stats.delivered_bytes + stats.delivered * DATAGRAM_HEADERS,
            Contender::Tcp => stats.delivered_bytes,
        }
    }
}

fn build(
    sim: &mut World,
    bottleneck: &LinkSpec,
    contenders: &[Contender],
    seed: u64,
) -> Result<Vec<Pair>, LabError> {
    let accesses = |side: u8| -> Vec<Access> {
        let access = |(index, contender): (usize, &Contender)| match contender {
            Contender::Whimbrel => Access::Datagrams(index as u8),
            Contender::Tcp => Access::Packets(address(index, side)),
        };
        contenders.iter().enumerate().map(access).collect()
    };
    let switch = |side| AnyMachine::new(Switch::new(accesses(side)), |never| match never {});
    let (near, far) = (
        sim.add_node("near", switch(0)),
        sim.add_node("far", switch(1)),
    );
    let shared = DuplexLink::ip(bottleneck.clone(), bottleneck.clone(), 1500);
    connect(sim, near, far, &shared)?;
    let fast = LinkSpec::new(1_000_000_000, Duration::ZERO);
    let datagrams = DuplexLink::symmetric(fast.clone());
    let mut pairs = Vec::new();
    for (index, contender) in contenders.iter().copied().enumerate() {
        let (server, client, access) = match contender {
            Contender::Whimbrel => {
                let server = sim.add_node(&format!("S{index}"), node(host(index, 0, seed)));
                let router = sim.add_node(&format!("R{index}"), node(router(index, seed)));
                let client = sim.add_node(&format!("C{index}"), node(host(index, 2, seed)));
                let names = sim.add_node(&format!("gnrs{index}"), node(name_server()));
                connect(sim, server, near, &datagrams)?;
                let access = connect(sim, far, router, &datagrams)?;
                connect(sim, router, client, &datagrams)?;
                connect(
                    sim,
                    router,
                    names,
                    &datagrams.clone().with_origins(
                        PortOrigin::Configured(NAME_SERVER_LINK),
                        PortOrigin::Accepted(0),
                    ),
                )?;
                (server, client, access)
            }
            Contender::Tcp => {
                let config = |side| TcpConfig {
                    seed,
                    ..TcpConfig::new(address(index, side))
                };
                let tcp = |_: TcpEvent| Event::Tcp;
                let server = AnyMachine::new(TcpServer::new(config(0)), tcp);
                let server = sim.add_node(&format!("S{index}"), server);
                let client = TcpClient::new(config(1), address(index, 0), SAMPLE_INTERVAL);
                let client = sim.add_node(&format!("C{index}"), AnyMachine::new(client, tcp));
                let packets = DuplexLink::ip(fast.clone(), fast.clone(), 1500);
                connect(sim, server, near, &packets)?;
                (server, client, connect(sim, far, client, &packets)?)
            }
        };
        pairs.push(Pair {
            server,
            client,
            access,
            contender,
        });
    }
    Ok(pairs)
}

fn connect(sim: &mut World, a: NodeId, b: NodeId, link: &DuplexLink) -> Result<LinkId, LabError> {
    let connection = sim.connect(a, b, link);
    connection
        .map(|connection| connection.link)
        .map_err(|fault| LabError::BadTopology(fault.to_string()))
}

fn address(pair: usize, side: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, pair as u8, side + 1)
}

fn node(machine: Whimbrel) -> AnyMachine<Event> {
    AnyMachine::new(machine, Event::Node)
}

/// Keys of a pair's nodes: 0 the server, 1 the router, 2 the client.
fn keys(pair: usize, role: u8) -> KeyPair {
    KeyPair::from_secret(&[pair as u8 * 3 + role + 1; 32])
}

fn host(pair: usize, role: u8, seed: u64) -> Whimbrel {
    let config = HostConfig::new(keys(pair, role), ORIGIN);
    Node::Host(Box::new(Host::new(
        config,
        SeededRng::stream(seed, &format!("host {pair} {role}")),
    )))
}

fn router(pair: usize, seed: u64) -> Whimbrel {
    let guid = keys(pair, 1).guid();
    let config = RouterConfig {
        guid,
        wall: ORIGIN,
        hop: HopConfig::new(guid, 1472),
        buffer_packets: 16_384,
        store: StoreLimits {
            total: 1 << 30,
            per_flow: 100 << 20,
            lifetime: Duration::from_secs(3600),
        },
        routes: Vec::new(),
        default_route: None,
        name_servers: vec![NAME_SERVER_LINK],
        proxy: ProxyPolicy::default(),
    };
    Node::Router(Box::new(Router::new(
        config,
        SeededRng::stream(seed, &format!("router {pair}")),
    )))
}

fn name_server() -> Whimbrel {
    let store = MemoryStore::new(RecordLimits::default());
    Node::NameServer(Box::new(Server::new(
        ServerConfig::default(),
        ORIGIN,
        [7; 32],
        store,
    )))
}

fn publish(content: &RepeatingContent) -> Publish {
    Publish {
        content: content.name(),
        content_len: content.len(),
        kind: ContentKind::File,
        file_name: String::from("content"),
    }
}

fn get(content: Guid) -> Get {
    Get {
        request: 0,
        content,
        chunk_log2: CHUNK_LOG2,
        in_order: false,
        reliability: Reliability::Nack,
        nack_timeout_ms: 0,
        credit: 8,
        resume: bytes::Bytes::new(),
    }
}

fn request(sim: &mut World, node: NodeId, request: LocalRequest) {
    sim.with_node(node, |machine, now| {
        if let Some(host) = machine.get_mut::<Whimbrel>().and_then(Whimbrel::host) {
            host.request(now, APP, request);
        }
    });
}

/// Plays the programs at both ends: one reads chunks, the other one takes them.
fn run_until(sim: &mut World, pairs: &[Pair], content: &RepeatingContent, end: Time) {
    sim.schedule(end, |_| {});
    while sim.now() < end && sim.step() {
        while let Some(occurrence) = sim.poll_event() {
            let Event::Node(NodeEvent::Host(HostEvent { event, .. })) = occurrence.event else {
                continue;
            };
            let of = |pair: &&Pair| [pair.server, pair.client].contains(&occurrence.node);
            let Some(pair) = pairs.iter().find(of) else {
                continue;
            };
            match event {
                LocalEvent::Read {
                    read,
                    index,
                    chunk_log2,
                    ..
                } => {
                    let chunk = content.read(index, chunk_log2);
                    request(sim, pair.server, LocalRequest::ReadDone { read, chunk });
                }
                LocalEvent::Chunk(chunk) => {
                    request(
                        sim,
                        pair.client,
                        LocalRequest::Consumed {
                            request: chunk.request,
                        },
                    );
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_sim::link::QueueLimit;

    #[test]
    fn a_bottleneck_is_used_and_every_pair_gets_something() {
        let bottleneck = LinkSpec::new(20_000_000, Duration::from_millis(25))
            .with_queue(QueueLimit::Bytes(125_000));
        let (warm_up, measured) = (Duration::from_secs(2), Duration::from_secs(4));
        for contenders in [
            [Contender::Whimbrel, Contender::Tcp],
            [Contender::Whimbrel, Contender::Whimbrel],
        ] {
            let shares =
                simulated_shares(&bottleneck, &contenders, 40_000_000, warm_up, measured, 1)
                    .unwrap();
            assert!(
                shares.iter().all(|bytes| *bytes > 0),
                "{contenders:?}: {shares:?}"
            );
            let all: u64 = shares.iter().sum();
            assert!(
                (5_000_000..=10_000_000).contains(&all),
                "{contenders:?}: {shares:?}"
            );
        }
    }
}
