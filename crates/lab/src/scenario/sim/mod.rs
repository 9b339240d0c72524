//! The back end in virtual time: the machines that ship, on simulated links.

mod build;
mod files;
mod gateway;
pub mod observe;
mod pings;
mod pushes;
mod requests;
mod stack;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use whimbrel_core::{PortId, Time};
use whimbrel_mobilityfirst::host::interfaces::InterfaceChange;
use whimbrel_mobilityfirst::local::LocalRequest;
use whimbrel_ndn_packet::Name;
use whimbrel_sim::link::Rate;
use whimbrel_sim::{AnyMachine, Connection, Direction, NodeId, SimulatedDisk, Simulator};
use whimbrel_transport::FetchEvent;

use super::Plan;
use super::event::Action;
use super::fault::Refusal;
use super::load::{Kind, Plane};
use super::node::{Node, Role};
use super::run::{LinkCounts, Run};
use crate::cbr::CbrEvent;
use crate::simulated::RepeatingContent;
use crate::study::Backend;
use crate::{CongestionControl, LabError, TcpBuffers};
use files::{Asked, Transfer};
use observe::{Observed, Observer};
use pings::Pinging;
use requests::Exchange;
use stack::{Stack, StackEvent};

/// Time of publication, when hosts have attached. The run's origin is as long after it, for the
/// announcement of contents.
const START_UP: Duration = Duration::from_secs(1);
/// Bounds of either on a slow link, in one-way delays and in bytes.
const START_UP_DELAYS: u32 = 12;
const START_UP_BYTES: f64 = 4_000.0;

/// An event of any machine in a world.
enum WorldEvent {
    Stack(StackEvent),
    Fetch(FetchEvent),
    Cbr(CbrEvent),
    Nothing,
}

/// A network while it runs.
struct World<'p> {
    plan: &'p Plan,
    observer: &'p mut dyn Observer,
    seed: u64,
    /// Time of publication, and the run's origin.
    published: Time,
    origin: Time,
    sim: Simulator<AnyMachine<WorldEvent>>,
    nodes: Vec<NodeId>,
    links: Vec<Connection>,
    /// The NDN routers' ports, by node and link.
    faces: BTreeMap<(usize, usize), PortId>,
    /// Restarts of each node.
    lives: Vec<u64>,
    /// Contents by load and number.
    contents: BTreeMap<(usize, usize), RepeatingContent>,
    asked: Vec<Asked>,
    transfers: Vec<Transfer>,
    /// The transfer of each NDN consumer.
    fetchers: BTreeMap<NodeId, usize>,
    /// Names that producers serve, with their node and the router's port to each.
    served: Vec<(usize, Name, PortId)>,
    exchanges: Vec<Exchange>,
    /// The disks of routers that store on one, which outlive their crashes.
    disks: BTreeMap<usize, SimulatedDisk>,
    /// The TCP proxies, by the nodes that they are on.
    proxies: Vec<(usize, NodeId)>,
    pings: Vec<Pinging>,
    /// The instant of virtual time zero: records use the machine's clock.
    epoch: Instant,
}

/// Refuses a plan with a feature that this back end lacks.
pub fn check(plan: &Plan) -> Result<(), LabError> {
    refusal(plan).map_or(Ok(()), |refusal| Err(refusal.of(Backend::Sim)))
}

/// Returns the first feature that this back end lacks, and the key that asks for it.
pub(super) fn refusal(plan: &Plan) -> Option<Refusal> {
    for load in &plan.loads {
        if load.congestion != CongestionControl::default() {
            let what = format!("run '{}' with another TCP than smoltcp's Cubic", load.name);
            return Some(Refusal::new(["loads", &load.name, "congestion"], what));
        }
        if load.rto_max.is_some() {
            let what = format!("run '{}' with another timeout than smoltcp's", load.name);
            return Some(Refusal::new(["loads", &load.name, "rto_max"], what));
        }
        if matches!(load.kind, Kind::Pings(_)) && load.plane == Plane::Tcp {
            let what = format!("send the ICMP echo requests of '{}'", load.name);
            return Some(Refusal::new(["loads", &load.name, "ping"], what));
        }
        if matches!(&load.kind, Kind::Push(pushes) if pushes.by.is_some()) {
            let what = format!("send '{}' by another program", load.name);
            return Some(Refusal::new(["loads", &load.name, "push"], what));
        }
        if matches!(load.kind, Kind::Browser(_)) {
            let what = format!("show '{}' in a browser", load.name);
            return Some(Refusal::new(["loads", &load.name, "browser"], what));
        }
        if matches!(load.kind, Kind::Web(_)) {
            let what = format!("carry '{}' by HTTP", load.name);
            return Some(Refusal::new(["loads", &load.name, "web"], what));
        }
        if load.mptcp {
            let what = format!("run '{}' over Multipath TCP", load.name);
            return Some(Refusal::new(["loads", &load.name, "mptcp"], what));
        }
        if load.buffers != TcpBuffers::default() {
            let what = format!("run '{}' with other buffers than smoltcp's", load.name);
            return Some(Refusal::new(["loads", &load.name, "buffers"], what));
        }
        if load.split.is_some() {
            let what = format!("split the TCP connection of '{}'", load.name);
            return Some(Refusal::new(["loads", &load.name, "split"], what));
        }
    }
    for timed in &plan.timeline {
        if let Action::Crash(node) = timed.action
            && let Some(load) = plan.loads.iter().find(|load| load.to.contains(&node))
        {
            let name = &plan.network.nodes[node].name;
            let what = format!("crash '{name}', which receives '{}'", load.name);
            return Some(Refusal::event(timed.event, "crash", what));
        }
    }
    super::proxies::refusal(plan)
}

/// Runs a plan.
pub fn run(plan: &Plan, seed: u64) -> Result<Run, LabError> {
    observe(plan, seed, &mut ()).map(|observed| observed.run)
}

/// Runs a plan and reports to an observer.
pub fn observe(plan: &Plan, seed: u64, observer: &mut dyn Observer) -> Result<Observed, LabError> {
    check(plan)?;
    let mut world = build::build(plan, seed, observer)?;
    world.run_until(world.published)?;
    world.publish_first()?;
    let origin = world.origin;
    world.run_until(origin)?;
    let warm = origin + plan.warm_up;
    let mut before = None;
    let limit = origin + plan.limit;
    world.begin(origin)?;
    world.begin_pings(origin);
    let mut timeline = plan.timeline.iter().peekable();
    loop {
        if world.sim.now() >= warm {
            before.get_or_insert_with(|| world.link_counts());
        }
        while let Some(timed) = timeline.next_if(|timed| origin + timed.at <= world.sim.now()) {
            world.act(&timed.action)?;
        }
        world.ask_due(origin)?;
        world.consume_due()?;
        world.ping_due();
        if world.is_done() || world.sim.now() >= limit {
            break;
        }
        let next = timeline.peek().map(|timed| origin + timed.at);
        let asked = world
            .next_ask(origin)
            .into_iter()
            .chain(world.next_consumer())
            .chain(world.next_ping());
        let next = next.into_iter().chain(asked).chain([limit]);
        let next = next.chain(before.is_none().then_some(warm));
        world.advance(next.min().unwrap_or(limit))?;
    }
    world.run_until(world.sim.now() + plan.linger)?;
    // A run that ended in its warm-up has counted nothing.
    let before = before.unwrap_or_else(|| world.link_counts());
    Ok(Observed {
        consumers: world.consumers(),
        ends: world.link_ends(),
        hash: world.sim.trace.hash(),
        run: world.measured(origin, &before),
    })
}

/// Returns the time of publication, and a run's origin. Hosts need time to attach and to announce
/// contents; TCP waits for as long, so that it begins at the same moment; NDN alone needs no time.
fn phases(plan: &Plan) -> (Time, Time) {
    let is_host = |node: &Node| node.is(Role::Host) || node.is(Role::TcpHost);
    if !plan.network.nodes.iter().any(is_host) {
        return (Time::ZERO, Time::ZERO);
    }
    let links = plan.network.links.iter();
    let slowest = links
        .flat_map(|link| [&link.forward, &link.backward])
        .map(|spec| {
            let sending = match spec.rate {
                Rate::Fixed(rate) => START_UP_BYTES * 8.0 / rate as f64,
                _ => 0.0,
            };
            spec.delay * START_UP_DELAYS + Duration::from_secs_f64(sending)
        })
        .max();
    let published = Time::ZERO + START_UP.max(slowest.unwrap_or_default());
    (published, published + published.since(Time::ZERO))
}

impl<'p> World<'p> {
    fn new(
        plan: &'p Plan,
        observer: &'p mut dyn Observer,
        seed: u64,
        sim: Simulator<AnyMachine<WorldEvent>>,
        nodes: Vec<NodeId>,
        links: Vec<Connection>,
        disks: BTreeMap<usize, SimulatedDisk>,
    ) -> World<'p> {
        let (published, origin) = phases(plan);
        World {
            plan,
            observer,
            seed,
            published,
            origin,
            faces: BTreeMap::new(),
            sim,
            lives: vec![0; nodes.len()],
            nodes,
            links,
            contents: BTreeMap::new(),
            asked: Asked::all(plan, seed),
            transfers: Vec::new(),
            fetchers: BTreeMap::new(),
            served: Vec::new(),
            exchanges: Vec::new(),
            disks,
            proxies: Vec::new(),
            pings: Vec::new(),
            epoch: Instant::now(),
        }
    }

    /// Calls `call` with a node's stack.
    fn stack<R>(&mut self, node: usize, call: impl FnOnce(&mut Stack, Time) -> R) -> R {
        self.sim.with_node(self.nodes[node], |machine, now| {
            match machine.get_mut::<Stack>() {
                Some(stack) => call(stack, now),
                None => unreachable!("every node of a network is a stack"),
            }
        })
    }

    fn run_until(&mut self, end: Time) -> Result<(), LabError> {
        while self.sim.now() < end {
            self.advance(end)?;
        }
        Ok(())
    }

    /// Advances to the next event, but not beyond `end`.
    fn advance(&mut self, end: Time) -> Result<(), LabError> {
        self.sim.schedule(end, |_| {});
        while self.sim.now() < end && self.sim.step() {
            let mut told = false;
            while let Some(occurrence) = self.sim.poll_event() {
                told |= self.handle(occurrence.time, occurrence.node, occurrence.event)?;
            }
            if told {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns true if an awaited load may have ended.
    fn handle(&mut self, now: Time, node: NodeId, event: WorldEvent) -> Result<bool, LabError> {
        match event {
            WorldEvent::Stack(StackEvent::Node(event)) => self.handle_host(now, node, event),
            WorldEvent::Stack(StackEvent::Tcp(server, event)) => {
                Ok(self.handle_tcp(now, node, server, event))
            }
            WorldEvent::Fetch(event) => Ok(self.handle_fetch(now, node, event)),
            WorldEvent::Cbr(event) => Ok(self.handle_exchange(node, event)),
            WorldEvent::Nothing => Ok(false),
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), LabError> {
        match action {
            Action::Cut(link) => self.sim.partition(self.links[*link].link),
            Action::Restore(link) => self.sim.repair(self.links[*link].link),
            Action::Carrier { node, link, works } => {
                let ends = self.plan.network.links[*link].ends;
                let known = self.links[*link];
                let port = if ends.0 == *node { known.a } else { known.b };
                self.sim.set_carrier(self.nodes[*node], port, *works);
            }
            Action::Prefer { node, link } => {
                let change = InterfaceChange {
                    preference: Some(vec![build::label(*link)]),
                    ..InterfaceChange::default()
                };
                let change = serde_json::to_string(&change).unwrap_or_default();
                let request = LocalRequest::Interfaces { request: 0, change };
                self.request(*node, files::USER_APP, request);
            }
            Action::Change(link, specs) => {
                let link = self.links[*link].link;
                let ways = [(Direction::AToB, &specs.0), (Direction::BToA, &specs.1)];
                for (direction, spec) in ways {
                    self.sim
                        .set_link_spec(link, direction, &build::shifted(spec, self.origin))
                        .map_err(|fault| LabError::BadTopology(fault.to_string()))?;
                }
            }
            Action::Crash(node) => self.sim.crash(self.nodes[*node]),
            Action::Restart(node) => {
                self.lives[*node] += 1;
                let disk = self.disks.get(node);
                let mut stack = build::stack(self.plan, self.seed, *node, self.lives[*node])?;
                build::attach_disk(&mut stack, self.sim.now(), disk);
                self.sim.restart(self.nodes[*node], build::machine(stack));
                self.open_ports(*node);
                self.serve_again(*node);
            }
            Action::EmptyCache(node) => self.stack(*node, |stack, _| {
                if let Some(router) = &mut stack.planes.ndn {
                    let cache = router.forwarder_mut().cs_mut();
                    cache.erase(Name::root().as_ref(), usize::MAX);
                }
            }),
        }
        Ok(())
    }

    /// Returns true if all awaited loads have ended; loads without end alone last to the run's
    /// limit.
    fn is_done(&self) -> bool {
        let only_files = self.exchanges.is_empty() && self.pings.is_empty();
        if only_files && self.asked.iter().all(Asked::is_endless) {
            return false;
        }
        self.asked.iter().all(Asked::is_done)
            && self.pings.iter().all(Pinging::is_over)
            && self.exchanges.iter().all(|exchange| exchange.finished)
    }

    /// Returns the status of a MobilityFirst host or router, as with `--json`.
    fn status(&mut self, node: usize) -> serde_json::Value {
        let status = self.stack(node, |stack, now| {
            let machine = stack.planes.mobility_first.as_mut()?;
            match machine.router() {
                Some(router) => serde_json::to_value(router.status(now)).ok(),
                None => serde_json::to_value(machine.host()?.status(now)).ok(),
            }
        });
        status.unwrap_or_default()
    }

    /// Returns the counters of each link.
    fn link_counts(&self) -> Vec<LinkCounts> {
        let count = |link: &Connection| {
            let mut counts = LinkCounts::default();
            for (way, direction) in Direction::BOTH.into_iter().enumerate() {
                let stats = self.sim.link_stats(link.link, direction);
                counts.bytes += stats.transmitted_bytes;
                counts.delivered[way] = stats.delivered_bytes;
                counts.packets += stats.delivered;
                counts.lost += stats.dropped_loss + stats.dropped_too_large + stats.dropped_outage;
                counts.dropped += stats.dropped_queue;
                counts.marked += stats.marked;
            }
            counts
        };
        self.links.iter().map(count).collect()
    }

    fn measured(mut self, origin: Time, before: &[LinkCounts]) -> Run {
        let mut run = Run::default();
        self.add_files(&mut run, origin);
        self.add_exchanges(&mut run);
        self.add_pings(&mut run);
        for (node, known) in self.plan.network.nodes.iter().enumerate() {
            run.add_node(&known.name, &self.status(node));
        }
        for (node, counters) in self.proxy_counters() {
            let name = &self.plan.network.nodes[node].name;
            run.add_proxy(name, counters.out_interests, counters.out_data);
        }
        let links = self.plan.network.links.iter();
        for ((link, before), after) in links.zip(before).zip(self.link_counts()) {
            run.add_link(&link.name, after.since(*before));
        }
        run
    }
}
