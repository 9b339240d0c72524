//! Builds a plan's network in the simulator: stacks, links, routes, adjacencies.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

use whimbrel_core::units::ByteSize;
use whimbrel_core::{Endpoint, Peer, PortId, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_forwarder::{FaceFlags, Persistency};
use whimbrel_gnrs::{KeyPair, MemoryStore, Server, ServerConfig, StoreLimits as RecordLimits};
use whimbrel_link::ndnlp::{PaperOptions, Reliability};
use whimbrel_mobilityfirst::router::{NextHop, Route};
use whimbrel_mobilityfirst::split::SplitConfig;
use whimbrel_ndn_packet::Name;
use whimbrel_node::Node;
use whimbrel_node::compose::{self, Start};
use whimbrel_node::config::{ConfigError, GNRS_PORT, LinkSection, MobilityFirstPlan};
use whimbrel_node::ndn::faces::FaceSettings;
use whimbrel_sim::link::{LinkSpec, Outage};
use whimbrel_sim::tcp::{TcpClient, TcpConfig, TcpServer};
use whimbrel_sim::{AnyMachine, Connection, DuplexLink, NodeId, SimulatedDisk, Simulator};

use super::observe::Observer;
use super::stack::{Above, Planes, Stack};
use super::{World, WorldEvent, phases};
use crate::LabError;
use crate::scenario::Plan;
use crate::scenario::link::{Carrier, Link, Recovery};
use crate::scenario::load::{Load, Plane};
use crate::scenario::node::{NodeSettings, Role};
use crate::scenario::proxies;
use crate::scenario::route::preferences;
use crate::scenario::sections::Sections;
use crate::simulated::ORIGIN_UNIX_MS;
use crate::transfer::SAMPLE_INTERVAL;

/// Largest NDN packet between a program and the router on its node, with its link header.
const LOCAL_FRAME: usize = 9_000;

/// Returns the address of a node.
pub(super) fn address(node: usize) -> Ipv4Addr {
    let [.., high, low] = (node as u32 + 1).to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

/// Returns the name that a host has for one of its links.
pub(super) fn label(link: usize) -> String {
    format!("link-{link}")
}

/// Returns the key of a node, the same in every run.
pub(super) fn keys(node: usize) -> KeyPair {
    let [high @ .., low] = (node as u64 + 1).to_be_bytes();
    let mut secret = [low; 32];
    for (octet, high) in secret.iter_mut().zip(high) {
        *octet ^= high;
    }
    KeyPair::from_secret(&secret)
}

/// Returns the name under which a load's content is found in NDN.
pub(super) fn load_name(load: &str) -> Name {
    Name::root().child_generic(load.as_bytes())
}

/// Returns a network whose nodes are connected and whose machines know their neighbours.
pub(super) fn build<'p>(
    plan: &'p Plan,
    seed: u64,
    observer: &'p mut dyn Observer,
) -> Result<World<'p>, LabError> {
    let mut sim: Simulator<AnyMachine<WorldEvent>> = Simulator::new(seed);
    let mut nodes: Vec<NodeId> = Vec::new();
    let mut disks = BTreeMap::new();
    for (node, known) in plan.network.nodes.iter().enumerate() {
        let mut stack = stack(plan, seed, node, 0)?;
        let storage = Sections::of(&known.settings, plan.pacing).storage;
        if let Some(folder) = storage.chunk_folder().filter(|_| known.is(Role::Router)) {
            disks.insert(node, SimulatedDisk::new(folder.bytes));
        }
        attach_disk(&mut stack, sim.now(), disks.get(&node));
        nodes.push(sim.add_node(&known.name, machine(stack)));
    }
    let (_, origin) = phases(plan);
    let mut links: Vec<Connection> = Vec::new();
    for link in &plan.network.links {
        let [forward, backward] = [&link.forward, &link.backward].map(|spec| shifted(spec, origin));
        let duplex = DuplexLink::ip(forward, backward, link.mtu);
        let connection = sim
            .connect(nodes[link.ends.0], nodes[link.ends.1], &duplex)
            .map_err(|fault| LabError::BadTopology(format!("link '{}': {fault}", link.name)))?;
        links.push(connection);
    }
    let ends: Vec<(PortId, PortId)> = links.iter().map(|link| (link.a, link.b)).collect();
    sim.trace.set_sink(observer.trace(origin, &ends));
    if observer.hashes() {
        sim.trace.enable_hash();
    }
    let mut world = World::new(plan, observer, seed, sim, nodes, links, disks);
    for node in 0..plan.network.nodes.len() {
        world.open_ports(node);
    }
    world.start_proxies()?;
    Ok(world)
}

/// A router that starts stores on its disk, if it has one.
pub(super) fn attach_disk(stack: &mut Stack, now: Time, disk: Option<&SimulatedDisk>) {
    let router = stack.planes.mobility_first.as_mut();
    let router = router.and_then(Node::router);
    if let (Some(router), Some(disk)) = (router, disk) {
        router.set_disk(now, disk.attach());
    }
}

pub(super) fn machine(stack: Stack) -> AnyMachine<WorldEvent> {
    AnyMachine::new(stack, WorldEvent::Stack)
}

/// Shifts a link's schedule, which begins at the run's origin, to the simulator's time.
pub(super) fn shifted(spec: &LinkSpec, origin: Time) -> LinkSpec {
    let start_up = origin.since(Time::ZERO);
    let later = |outage: &Outage| match *outage {
        Outage::Once { start, duration } => Outage::Once {
            start: start + start_up,
            duration,
        },
        Outage::Periodic {
            first,
            every,
            duration,
        } => Outage::Periodic {
            first: first + start_up,
            every,
            duration,
        },
    };
    let mut shifted = spec.clone();
    shifted.outages = spec.outages.iter().map(later).collect();
    shifted
        .changes
        .iter_mut()
        .for_each(|change| change.at += start_up);
    shifted
}

/// Returns a node as it starts; `life` counts its starts.
pub(super) fn stack(plan: &Plan, seed: u64, node: usize, life: u64) -> Result<Stack, LabError> {
    let known = &plan.network.nodes[node];
    let rng = |label: &str| SeededRng::stream(seed.wrapping_add(life << 32), label);
    let wall = WallClock::new(ORIGIN_UNIX_MS);
    let sections = Sections::of(&known.settings, plan.pacing);
    let start = || {
        let mut secrets = [0; 32];
        let drawn = rng(&format!("sessions of {}", known.name)).next_word();
        secrets[..8].copy_from_slice(&drawn.to_be_bytes());
        let keys = keys(node);
        let mut hop = sections.hop.hop_config(&keys, life + 1, secrets, true);
        hop.plain = plan.plain;
        Start {
            keys,
            wall,
            hop,
            rng: rng(&known.name),
        }
    };
    let mut planes = Planes::default();
    if known.is(Role::Host) {
        let mut host = sections.host(link_sections(plan));
        host.preference = known.preference.iter().map(|link| *link as u32).collect();
        host.split = split(&known.settings, host.split);
        let host = compose::host(&host, BTreeMap::new(), start());
        planes.mobility_first = Some(Node::Host(Box::new(host)));
    } else if known.is(Role::Router) {
        let router = compose::router(&router_plan(plan, node, &sections), start());
        planes.mobility_first = Some(Node::Router(Box::new(router)));
    } else if known.is(Role::NameServer) {
        let store = MemoryStore::new(RecordLimits::default());
        let server = Server::new(ServerConfig::default(), wall, [7; 32], store);
        planes.mobility_first = Some(Node::from(server));
    }
    if known.is(Role::NdnRouter) {
        let fault =
            |fault: ConfigError| LabError::BadTopology(format!("node '{}': {fault}", known.name));
        if let Some(mut ndn) = sections.ndn().map_err(fault)? {
            let percent = &mut ndn.forwarder.content_store.admitted_percent;
            *percent = known.settings.admits.unwrap_or(*percent);
            let rng = rng(&format!("router {}", known.name));
            planes.ndn = Some(Box::new(compose::ndn_router(&ndn, wall, rng)));
        }
    }
    let defaults = TcpConfig::new(address(node));
    let window = |load: &Load| match load.receive_buffer {
        Some(bytes) => bytes as usize,
        None => defaults.receive_buffer,
    };
    let meets = |load: &&Load| load.from == node || load.to.contains(&node);
    let exchanges = plan.loads.iter().filter(|load| load.duplex).filter(meets);
    // Both directions of an exchange have the same window.
    let request_buffer = exchanges.map(window).max();
    let tcp = || TcpConfig {
        seed,
        request_buffer: request_buffer.unwrap_or(defaults.request_buffer),
        segment_size: match plan.network.with_role(Role::TcpProxy).next() {
            // [TCP/ICN §3.2.3]: packets of 1500 bytes.
            Some(_) => 1460,
            None => defaults.segment_size,
        },
        ..defaults.clone()
    };
    for load in plan.loads.iter().filter(|load| load.plane == Plane::Tcp) {
        if load.from == node {
            planes
                .tcp_server
                .get_or_insert_with(|| Box::new(TcpServer::new(tcp())));
        }
        if load.to.contains(&node) {
            let server = address(load.from);
            let config = || TcpConfig {
                receive_buffer: window(load),
                ..tcp()
            };
            let client = || TcpClient::new(config(), server, SAMPLE_INTERVAL);
            planes.tcp_clients.entry(server).or_insert_with(client);
        }
    }
    Ok(Stack::new(address(node), planes))
}

fn router_plan(plan: &Plan, node: usize, sections: &Sections) -> MobilityFirstPlan {
    let network = &plan.network;
    let others = network
        .with_role(Role::Router)
        .filter(|other| *other != node);
    let mut base = sections.router(link_sections(plan));
    let is_learned = base.routing.is_learned();
    let others = others.filter(|_| !is_learned);
    let routes = others.flat_map(|other| {
        let hops = plan.routes.towards(network, other, Role::Router);
        preferences(&hops[node])
            .into_iter()
            .map(move |(next, preference)| Route {
                preference,
                ..Route::new(keys(other).guid(), NextHop::Neighbour(keys(next).guid()))
            })
    });
    if is_learned {
        let routers = network.with_role(Role::Router).collect::<Vec<_>>();
        let peers = network.at(node).map(|(_, peer)| peer);
        let peers = peers.filter(|peer| routers.contains(peer));
        base.neighbours.extend(peers.map(|peer| keys(peer).guid()));
    }
    let servers = network.with_role(Role::NameServer);
    MobilityFirstPlan {
        routes: routes.collect(),
        name_servers: servers
            .map(|server| Peer::Address((address(server), GNRS_PORT).into()))
            .collect(),
        split: split(&network.nodes[node].settings, base.split),
        ..base
    }
}

/// Returns all links of a network as a node's own: those that are not at it have no port.
fn link_sections(plan: &Plan) -> Vec<LinkSection> {
    let links = plan.network.links.iter().enumerate();
    links
        .map(|(number, link)| LinkSection {
            metered: link.metered,
            quota: link.quota.map(ByteSize),
            ..LinkSection::new(label(number))
        })
        .collect()
}

fn split(settings: &NodeSettings, split: SplitConfig) -> SplitConfig {
    SplitConfig {
        reorder_budget: settings.reorder_budget.unwrap_or(split.reorder_budget),
        ..split
    }
}

/// Returns the number of a router's port to name server `server`, after those of links.
fn server_link(plan: &Plan, server: usize) -> u32 {
    let servers = plan.network.with_role(Role::NameServer);
    let before = servers.take_while(|known| *known != server).count();
    (plan.network.links.len() + before) as u32
}

/// Returns the number of a port to a node without a direct link; such numbers are above those of
/// links.
fn distant_link(peer: usize) -> u32 {
    1_000_000 + peer as u32
}

fn reliability(link: &Link) -> Reliability {
    let paper = |max_retransmissions| {
        Reliability::Paper(PaperOptions {
            max_retransmissions,
            later_acks: link.later_acks,
            acks_together: link.acks_together,
        })
    };
    match link.recovery {
        Recovery::Off => Reliability::Off,
        Recovery::Paper1 => paper(1),
        Recovery::Paper2 => paper(2),
        Recovery::Paper3 => paper(3),
        Recovery::Ndnlpv2 => Reliability::Ndnlpv2,
        Recovery::Adaptive => Reliability::Adaptive,
    }
}

impl World<'_> {
    /// Gives a node that has just started its IP routes, its neighbours and its NDN routes.
    pub(super) fn open_ports(&mut self, node: usize) {
        let plan = self.plan;
        for (to, link) in ip_routes(plan, node) {
            let port = self.port(node, link);
            self.stack(node, |stack, _| stack.route(address(to), port));
        }
        self.open_distant(node);
        let mut faces = Vec::new();
        for (link, peer) in plan.network.at(node) {
            let port = self.port(node, link);
            let known = &plan.network.links[link];
            let (here, there) = (&plan.network.nodes[node], &plan.network.nodes[peer]);
            if plan.network.attach(node, peer) {
                let origin = PortOrigin::Configured(link as u32);
                let carried = (known.mtu, known.carrier);
                let end = (address(peer), label(link));
                self.stack(node, |stack, now| {
                    stack.open(now, Above::MobilityFirst, end, Some(port), origin, carried)
                });
            }
            if here.is(Role::NdnRouter) && there.is(Role::NdnRouter) {
                let face = self.open_face(node, peer, known, port);
                self.faces.insert((node, link), face);
                faces.push((link, face));
            }
        }
        for proxy in plan.network.with_role(Role::TcpProxy) {
            let name = proxies::prefix(&plan.network.nodes[proxy].name);
            let hops = plan.routes.towards(&plan.network, proxy, Role::NdnRouter);
            for hop in &hops[node] {
                if let Some((_, port)) = faces.iter().find(|(link, _)| *link == hop.link) {
                    self.ndn_route(node, &name, *port, hop.cost);
                }
            }
        }
        for load in plan.loads.iter().filter(|load| load.plane == Plane::Ndn) {
            let hops = plan
                .routes
                .towards_any(&plan.network, load.sources(), Role::NdnRouter);
            for hop in &hops[node] {
                let face = faces.iter().find(|(link, _)| *link == hop.link);
                let Some((_, port)) = face.copied() else {
                    continue;
                };
                self.ndn_route(node, &load_name(load.content_name()), port, hop.cost);
            }
        }
    }

    /// Opens ports to peers over any path: between routers and name servers, and between hosts and
    /// the routers that they name.
    fn open_distant(&mut self, node: usize) {
        let network = &self.plan.network;
        let known = &network.nodes[node];
        let configured = |peer| (peer, PortOrigin::Configured(distant_link(peer)));
        let accepted = |peer| (peer, PortOrigin::Accepted(0));
        let peers: Vec<(usize, PortOrigin)> = if known.is(Role::Router) {
            let servers = network.with_role(Role::NameServer);
            let servers = servers.map(|server| {
                let number = server_link(self.plan, server);
                (server, PortOrigin::Configured(number))
            });
            let hosts = network.with_role(Role::Host);
            let hosts = hosts.filter(|host| network.nodes[*host].routers.contains(&node));
            servers.chain(hosts.map(accepted)).collect()
        } else if known.is(Role::NameServer) {
            network.with_role(Role::Router).map(accepted).collect()
        } else {
            known.routers.iter().copied().map(configured).collect()
        };
        for (peer, origin) in peers {
            let carried = (self.plan.network.mtu(), Carrier::Udp);
            self.stack(node, |stack, now| {
                let end = (address(peer), address(peer).to_string());
                stack.open(now, Above::MobilityFirst, end, None, origin, carried)
            });
        }
    }

    fn open_face(&mut self, node: usize, peer: usize, link: &Link, port: PortId) -> PortId {
        let reliability = reliability(link);
        let settings = FaceSettings {
            persistency: Persistency::Permanent,
            mtu: None,
            flags: FaceFlags {
                reliability: reliability != Reliability::Off,
                congestion_marking: link.marking,
                ..FaceFlags::default()
            },
            reliability: Some(reliability),
            congestion: (None, None),
            reopened: None,
            device: link.device(node),
        };
        let remote = SocketAddr::from((address(peer), 6363)).into();
        let endpoint = Endpoint::Udp {
            remote,
            shared: true,
        };
        let mtu = link.mtu;
        self.stack(node, |stack, now| {
            let router = stack.planes.ndn.as_mut();
            let token = router.map(|router| router.ask_connected(endpoint, settings));
            let origin = token.map_or(PortOrigin::Configured(0), PortOrigin::Opened);
            if link.carrier == Carrier::Bare {
                return stack.open_bare(now, address(peer), port, origin, mtu);
            }
            let carried = (mtu, Carrier::Udp);
            let end = (address(peer), address(peer).to_string());
            stack.open(now, Above::Ndn, end, Some(port), origin, carried)
        })
    }

    /// Routes `name` to the face on `port`.
    pub(super) fn ndn_route(&mut self, node: usize, name: &Name, port: PortId, cost: u64) {
        self.stack(node, |stack, _| {
            let Some(router) = stack.planes.ndn.as_mut() else {
                return;
            };
            let Some(face) = router.face_of(port) else {
                return;
            };
            // Cannot fail: a name of one or two components is not too long.
            let _ = router
                .forwarder_mut()
                .fib_mut()
                .add_next_hop(name.as_ref(), face, cost);
        });
    }

    /// Connects a program to a node's NDN router. Returns the router's port.
    pub(super) fn attach(&mut self, program: NodeId, node: usize) -> Result<PortId, LabError> {
        let link = DuplexLink {
            mtu: LOCAL_FRAME,
            // As on a Unix socket, where the router writes several packets at once.
            packets: true,
            ..DuplexLink::local()
        };
        let connection: Result<Connection, _> = self.sim.connect(program, self.nodes[node], &link);
        connection
            .map(|connection| connection.b)
            .map_err(|fault| LabError::BadTopology(fault.to_string()))
    }

    fn port(&self, node: usize, link: usize) -> PortId {
        let connection = &self.links[link];
        if self.plan.network.links[link].ends.0 == node {
            connection.a
        } else {
            connection.b
        }
    }
}

/// Returns for every other reachable node the link by which packets for it leave: the first of the
/// paths with the fewest hops, as in namespaces.
fn ip_routes(plan: &Plan, node: usize) -> Vec<(usize, usize)> {
    let mut out: Vec<Option<usize>> = vec![None; plan.network.nodes.len()];
    let mut next = VecDeque::from([node]);
    while let Some(at) = next.pop_front() {
        let carries_ip =
            |(link, _): &(usize, usize)| plan.network.links[*link].carrier != Carrier::Bare;
        for (link, peer) in plan.network.at(at).filter(carries_ip) {
            if peer != node && out[peer].is_none() {
                out[peer] = Some(out[at].unwrap_or(link));
                next.push_back(peer);
            }
        }
    }
    let reached = out.into_iter().enumerate();
    reached
        .filter_map(|(peer, link)| Some((peer, link?)))
        .collect()
}
