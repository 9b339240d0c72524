//! A network of NDN routers with consumers and producers: built, run, and asked what it saw.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_core::{Endpoint, PortId, PortOrigin, SeededRng, Time, WallClock};
use whimbrel_forwarder::{CsConfig, FaceFlags, ForwarderConfig, Persistency};
use whimbrel_link::ndnlp::{LinkServiceConfig, LinkStats, Reliability};
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::faces::{FaceSettings, ModelledDevice};
use whimbrel_node::ndn::{NdnRouter, NdnRouterConfig};
use whimbrel_sim::link::{LinkSpec, LinkSpecError, QueueLimit, Rate};
use whimbrel_sim::{Connection, Direction, DuplexLink, NodeId, Simulator};
use whimbrel_transport::application::AppFace;
use whimbrel_transport::cbr::{
    CbrConfig, CbrConsumer, CbrEvent, CbrStats, EchoProducer, PlaceholderSigner,
};

use super::Variant;
use super::losses::{LossCounts, LossWatch, prefix};
use super::node::Node;
use super::statistics::Moments;

/// Octets of the largest frame on a link: nothing is fragmented, as in the paper.
const MTU: usize = 1500;
/// What is still on its way when the last consumer has its last Data counts too.
const AFTERMATH: Duration = Duration::from_secs(1);
/// FreshnessPeriod of one octet: see [`PlaceholderSigner`]. Nobody asks for fresh Data only.
const FRESHNESS: Duration = Duration::from_millis(100);

/// A network and what runs over it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// A router each.
    pub(super) nodes: Vec<String>,
    pub(super) links: Vec<PlannedLink>,
    pub(super) flows: Vec<PlannedFlow>,
    pub(super) variant: Variant,
    /// Of everything random.
    pub(super) seed: u64,
    /// The run ends then in any case.
    pub(super) limit: Duration,
    /// Every frame is hashed, to prove that the run can be repeated.
    pub(super) hashed: bool,
    /// Each exchange's delay is kept, and not only their moments.
    pub(super) delays_kept: bool,
}

/// A link; both directions are alike.
#[derive(Clone, Debug)]
pub(super) struct PlannedLink {
    /// Indices of nodes.
    pub(super) ends: (usize, usize),
    /// Its rate and its queue are the modelled devices' at its ends.
    pub(super) spec: LinkSpec,
}

/// A consumer, its producer, and the routers between, with those of both.
#[derive(Clone, Debug)]
pub(super) struct PlannedFlow {
    pub(super) path: Vec<usize>,
    pub(super) rate: f64,
    pub(super) consumer: super::ConsumerSpec,
}

/// What a run showed.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) flows: Vec<FlowOutcome>,
    /// Both ends of each link in order of the plan: the first node's and the second's.
    pub(super) ends: Vec<LinkEnd>,
    pub(super) losses: LossCounts,
    /// Exchanges of which one frame was lost at least, and two.
    pub(super) exchanges_hit: [u64; 2],
    /// Every consumer got everything.
    pub(super) complete: bool,
    /// BLAKE3 over all frames, in hexadecimal.
    pub(super) hash: Option<String>,
}

/// What a consumer saw.
#[derive(Clone, Debug)]
pub(super) struct FlowOutcome {
    pub(super) stats: CbrStats,
    /// Data retrieval times, ms, in order of arrival; empty unless they are kept.
    pub(super) delays: Vec<f32>,
    /// Of the retrieval times in per cent of the ideal one.
    pub(super) percent: Moments,
    /// Ms: propagation and transmission of a bare Interest and its Data over all hops, and no
    /// queue.
    pub(super) ideal: f64,
    /// Mean octets of an Interest and of a Data at the consumer.
    pub(super) sizes: [f64; 2],
}

/// What one end of a link sent.
#[derive(Clone, Debug)]
pub(super) struct LinkEnd {
    pub(super) link: LinkStats,
    /// Octets that it put on the wire, those of the carrier included.
    pub(super) wire_bytes: u64,
}

impl Outcome {
    /// The sum of a counter over all ends of links.
    pub(super) fn sum(&self, count: impl Fn(&LinkStats) -> u64) -> u64 {
        self.ends.iter().map(|end| count(&end.link)).sum()
    }

    pub(super) fn wire_bytes(&self) -> u64 {
        self.ends.iter().map(|end| end.wire_bytes).sum()
    }

    pub(super) fn retransmissions(&self) -> u64 {
        self.flows
            .iter()
            .map(|flow| flow.stats.retransmissions)
            .sum()
    }

    /// Of all exchanges, in per cent of the ideal.
    pub(super) fn percent(&self) -> Moments {
        self.flows
            .iter()
            .fold(Moments::default(), |all, flow| all.join(flow.percent))
    }

    /// Retransmissions of consumers that the network had not lost anything for, in per cent of all:
    /// the paper's measure (the sources of its Fig. 2 (c)): all, less what its links gave up.
    pub(super) fn spurious_percent(&self) -> f64 {
        let all = self.retransmissions() as f64;
        100.0 * (all - self.sum(|link| link.given_up) as f64).max(0.0) / all
    }

    /// Interests and Data that links lost and recovered, in per cent of those they lost (Fig. 6).
    pub(super) fn recovered_percent(&self) -> f64 {
        let lost = self.losses.packets as f64;
        100.0 * (lost - self.sum(|link| link.given_up) as f64).max(0.0) / lost
    }
}

/// A network while it runs.
struct World {
    sim: Simulator<Node>,
    routers: Vec<NodeId>,
    links: Vec<Connection>,
    consumers: Vec<NodeId>,
    watch: Rc<RefCell<LossWatch>>,
}

/// Runs the plan.
pub(super) fn run(plan: &Plan) -> Result<Outcome, LinkSpecError> {
    let mut world = build(plan)?;
    let flows = plan.flows.iter().map(|flow| FlowOutcome {
        stats: CbrStats::default(),
        delays: Vec::new(),
        percent: Moments::default(),
        ideal: ideal(plan, flow),
        sizes: [0.0; 2],
    });
    let mut flows: Vec<FlowOutcome> = flows.collect();
    let limit = Time::ZERO + plan.limit;
    let mut unfinished = world.consumers.len();
    while unfinished > 0 && world.sim.now() < limit {
        // In pieces, so that what consumers tell does not pile up.
        let piece = (world.sim.now() + Duration::from_millis(200)).min(limit);
        world.sim.run_until(piece);
        unfinished -= collect(plan, &mut world, &mut flows);
    }
    world.sim.run_until(world.sim.now() + AFTERMATH);
    collect(plan, &mut world, &mut flows);
    for (flow, consumer) in flows.iter_mut().zip(&world.consumers) {
        let Some(face) = world.sim.node(*consumer).consumer() else {
            continue;
        };
        let counters = face.counters();
        flow.stats = *face.application().stats();
        flow.sizes = [
            counters.out_bytes as f64 / counters.out_packets as f64,
            counters.in_bytes as f64 / counters.in_packets as f64,
        ];
    }
    let watch = world.watch.borrow();
    Ok(Outcome {
        complete: flows
            .iter()
            .all(|flow| flow.stats.answered >= flow.stats.requested)
            && unfinished == 0,
        flows,
        ends: link_ends(plan, &world),
        losses: watch.counts(),
        exchanges_hit: [watch.exchanges_with(1), watch.exchanges_with(2)],
        hash: world
            .sim
            .trace_hash()
            .map(|hash| blake3::Hash::from(hash).to_hex().to_string()),
    })
}

/// Takes what consumers told. Answers how many of them have finished by it.
fn collect(plan: &Plan, world: &mut World, flows: &mut [FlowOutcome]) -> usize {
    let mut finished = 0;
    while let Some(occurrence) = world.sim.poll_event() {
        let Some(flow) = world
            .consumers
            .iter()
            .position(|node| *node == occurrence.node)
        else {
            continue;
        };
        match occurrence.event {
            CbrEvent::Finished(_) => finished += 1,
            CbrEvent::Exchanged(exchanged) => {
                let delay = exchanged.answered.since(exchanged.first_sent).as_secs_f64() * 1e3;
                let flow = &mut flows[flow];
                flow.percent.add(100.0 * delay / flow.ideal);
                if plan.delays_kept {
                    flow.delays.push(delay as f32);
                }
            }
        }
    }
    finished
}

fn link_ends(plan: &Plan, world: &World) -> Vec<LinkEnd> {
    let mut ends = Vec::new();
    for (planned, built) in plan.links.iter().zip(&world.links) {
        let (a, b) = planned.ends;
        for (from, port, direction) in
            [(a, built.a, Direction::AToB), (b, built.b, Direction::BToA)]
        {
            let stats = world
                .sim
                .node(world.routers[from])
                .router()
                .and_then(|router| {
                    let face = router.face_of(port)?;
                    router.link(face).map(|link| link.stats().clone())
                });
            ends.push(LinkEnd {
                link: stats.unwrap_or_default(),
                wire_bytes: world
                    .sim
                    .link_stats(built.link, direction)
                    .transmitted_bytes,
            });
        }
    }
    ends
}

fn build(plan: &Plan) -> Result<World, LinkSpecError> {
    let mut sim = Simulator::new(plan.seed);
    let watch = Rc::new(RefCell::new(LossWatch::default()));
    sim.set_trace_sink(Some(Box::new(watch.clone())));
    if plan.hashed {
        sim.enable_trace_hash();
    }
    let routers: Vec<NodeId> = plan
        .nodes
        .iter()
        .map(|name| {
            let rng = SeededRng::stream(plan.seed, &format!("router {name}"));
            let router = NdnRouter::new(router_config(plan.variant), rng);
            sim.add_node(name, Node::Router(Box::new(router)))
        })
        .collect();
    let mut links = Vec::new();
    for planned in &plan.links {
        let (a, b) = planned.ends;
        let [origin_a, origin_b] =
            [(a, b), (b, a)].map(|(at, to)| announce(&mut sim, routers[at], to, plan, planned));
        let spec = planned.spec.clone();
        let link = DuplexLink::ip(spec.clone(), spec, MTU).with_origins(origin_a, origin_b);
        let connection = sim.connect(routers[a], routers[b], &link)?;
        watch.borrow_mut().watch(connection.a, connection.b);
        links.push(connection);
    }
    let mut world = World {
        sim,
        routers,
        links,
        consumers: Vec::new(),
        watch,
    };
    for (index, flow) in plan.flows.iter().enumerate() {
        add_flow(plan, &mut world, index, flow)?;
    }
    Ok(world)
}

fn router_config(variant: Variant) -> NdnRouterConfig {
    let content_store = if variant.caches() {
        CsConfig::default()
    } else {
        CsConfig {
            capacity: 0,
            max_packets: 0,
            ..CsConfig::default()
        }
    };
    NdnRouterConfig {
        forwarder: ForwarderConfig {
            content_store,
            ..ForwarderConfig::default()
        },
        link: LinkServiceConfig {
            marking: false,
            ..LinkServiceConfig::datagram(MTU)
        },
        idle_timeout: Duration::from_secs(3600),
        max_faces: usize::MAX,
        wall: WallClock::new(0),
    }
}

/// Tells a router of a face that it will have. Returns the origin of the face's port.
fn announce(
    sim: &mut Simulator<Node>,
    at: NodeId,
    to: usize,
    plan: &Plan,
    link: &PlannedLink,
) -> PortOrigin {
    let reliability = plan.variant.reliability();
    let settings = FaceSettings {
        persistency: Persistency::Permanent,
        mtu: None,
        // The paper's network did not mark congestion.
        flags: FaceFlags {
            reliability: reliability != Reliability::Off,
            ..FaceFlags::default()
        },
        reliability: Some(reliability),
        congestion: (None, None),
        reopened: None,
        device: device(&link.spec),
    };
    let [high, low] = (to as u16).to_be_bytes();
    let remote = SocketAddr::from((Ipv4Addr::new(10, 0, high, low), 6363));
    let endpoint = Endpoint::Udp {
        remote: remote.into(),
        shared: true,
    };
    sim.with_node(at, |node, _| match node.router_mut() {
        Some(router) => PortOrigin::Opened(router.ask_connected(endpoint, settings)),
        None => unreachable!("every node of the plan is a router"),
    })
}

/// The device at each end of a link, with its queue. The link itself has the same rate, so that
/// nothing waits there.
fn device(spec: &LinkSpec) -> Option<ModelledDevice> {
    let Rate::Fixed(rate) = spec.rate else {
        return None;
    };
    let queue = match spec.queue {
        QueueLimit::Packets(packets) => usize::try_from(packets).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    Some(ModelledDevice {
        rate,
        overhead: spec.overhead,
        queue,
    })
}

fn add_flow(
    plan: &Plan,
    world: &mut World,
    index: usize,
    flow: &PlannedFlow,
) -> Result<(), LinkSpecError> {
    let name = Name::root().child_generic(&prefix(index));
    let (Some(first), Some(last)) = (flow.path.first(), flow.path.last()) else {
        return Ok(());
    };
    let config: CbrConfig = flow.consumer.at(name.clone(), flow.rate);
    let rng = |who: &str| SeededRng::stream(plan.seed, &format!("{who} {index}"));
    let producer = EchoProducer::echo(
        name.clone(),
        flow.consumer.payload,
        FRESHNESS,
        Arc::new(PlaceholderSigner),
        None,
        rng("producer"),
    );
    let producer = Node::Producer(Box::new(AppFace::new(producer)));
    let producer = world.sim.add_node(&format!("producer {index}"), producer);
    let port = attach(world, producer, world.routers[*last])?;
    route(world, *last, &name, port);
    for hop in flow.path.windows(2) {
        if let Some(port) = port_towards(plan, world, hop[0], hop[1]) {
            route(world, hop[0], &name, port);
        }
    }
    let consumer = AppFace::new(CbrConsumer::new(config, rng("consumer")));
    let consumer = world.sim.add_node(
        &format!("consumer {index}"),
        Node::Consumer(Box::new(consumer)),
    );
    attach(world, consumer, world.routers[*first])?;
    world.consumers.push(consumer);
    Ok(())
}

/// Puts a program on a router's node. Answers with the router's port. Its frames are datagrams, one
/// packet in each.
fn attach(world: &mut World, program: NodeId, router: NodeId) -> Result<PortId, LinkSpecError> {
    let link = DuplexLink::ip(LinkSpec::default(), LinkSpec::default(), 9000);
    Ok(world.sim.connect(program, router, &link)?.b)
}

fn port_towards(plan: &Plan, world: &World, from: usize, to: usize) -> Option<PortId> {
    plan.links
        .iter()
        .zip(&world.links)
        .find_map(|(planned, built)| match planned.ends {
            ends if ends == (from, to) => Some(built.a),
            ends if ends == (to, from) => Some(built.b),
            _ => None,
        })
}

fn route(world: &mut World, at: usize, name: &Name, port: PortId) {
    world.sim.with_node(world.routers[at], |node, _| {
        let Some(router) = node.router_mut() else {
            return;
        };
        let Some(face) = router.face_of(port) else {
            return;
        };
        // Cannot fail: a name of one component is not too long.
        let _ = router
            .forwarder_mut()
            .fib_mut()
            .add_next_hop(name.as_ref(), face, 1);
    });
}

/// Ms for an Interest of 28 octets and its Data over the path without any queue.
fn ideal(plan: &Plan, flow: &PlannedFlow) -> f64 {
    const INTEREST: u32 = 28;
    /// Beyond the content: names, signature, type and length (see [`PlaceholderSigner`]).
    const DATA_HEADERS: u32 = 37;
    let data = flow.consumer.payload as u32 + DATA_HEADERS;
    let mut total = 0.0;
    for hop in flow.path.windows(2) {
        let link = plan
            .links
            .iter()
            .find(|link| link.ends == (hop[0], hop[1]) || link.ends == (hop[1], hop[0]));
        let Some(PlannedLink { spec, .. }) = link else {
            continue;
        };
        total += 2.0 * spec.delay.as_secs_f64() * 1e3;
        if let Rate::Fixed(rate) = spec.rate {
            total += f64::from((INTEREST + data + 2 * spec.overhead) * 8) / rate as f64 * 1e3;
        }
    }
    total
}
