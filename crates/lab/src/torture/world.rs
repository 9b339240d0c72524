//! A network of real protocol machines, and the acts upon it.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use whimbrel_core::units::{ByteSize, Span};
use whimbrel_core::{Guid, Peer, PortOrigin, Time};
use whimbrel_gnrs::{KeyPair, MemoryStore, Server, ServerConfig, StoreLimits as RecordLimits};
use whimbrel_mobilityfirst::host::{HostEvent, LinkPolicy};
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};
use whimbrel_mobilityfirst::router::{NextHop, Route};
use whimbrel_node::compose::{self, Start};
use whimbrel_node::config::{
    GNRS_PORT, HopSection, HostPlan, HostSection, LinkSection, MobilityFirstPlan, RouterSection,
    RoutingName, StorageSection,
};
use whimbrel_node::{Node, NodeEvent};
use whimbrel_sim::link::{LinkSpec, QueueLimit};
use whimbrel_sim::testbed::{Fault, Happening, Life, Net, TOLERATED};
use whimbrel_sim::{DuplexLink, SimulatedDisk};

use super::pushes::{PushAct, PushLedger};
use super::transfers::{Consequence, Program, PushTarget};
use super::{Again, Agenda, Breach, Features, Layout, Report, Schedule, Victim};
use crate::simulated::ORIGIN_UNIX_MS;

type Machine = Node<MemoryStore>;

/// The number of each router's link to the name server, above those of its neighbours.
const NAME_SERVER_LINK: u32 = 64;
/// The number of each host's one program.
const APP: u32 = 1;
/// Transfers must end this long after the last fault. A router without a name service that
/// restarted hears of contents again only when their announcements are renewed, after 200 s.
const PATIENCE: Duration = Duration::from_secs(450);
/// Hosts take the time from their routers if it is off by no more than a day.
const MAX_SKEW_OF_HOSTS: Duration = Duration::from_secs(20_000);
/// How long a router keeps a chunk that no receiver takes.
const LIFETIME: Duration = Duration::from_secs(120);
/// Size of a router's disk: some times its memory.
const DISK: u64 = 16 << 20;
/// When idle, memory returns to its initial value within this time: stored chunks expire.
const IDLE: Duration = Duration::from_secs(300);
/// Number of checks of memory when idle, and the time between two of them.
const IDLE_LOOKS: u32 = 20;
const IDLE_PAUSE: Duration = Duration::from_millis(130);
/// The counter of chunks that have passed too many routers.
const HOP_LIMIT: &str = "hop-limit";
/// Pause before a refused request is repeated.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// A network in virtual time with programs on its hosts.
pub(super) struct World {
    // Hosts, then routers, then the name server if there is one.
    net: Net<Machine>,
    plan: Plan,
    programs: Vec<Program>,
    pushes: PushLedger,
    agenda: Agenda,
    next_request: u32,
    report: Report,
}

fn perfect() -> LinkSpec {
    LinkSpec::new(20_000_000, Duration::from_millis(5)).with_queue(QueueLimit::Packets(100))
}

/// The nodes of a world, and their connections.
#[derive(Clone, Copy, Debug)]
struct Plan {
    layout: Layout,
    hosts: usize,
    routers: usize,
    features: Features,
}

/// How long data waits for the usual way.
const WAITS: Duration = Duration::from_secs(20);
/// Memory for copies of what passes.
const CACHE: u64 = 1 << 20;

impl Plan {
    fn nodes(&self) -> usize {
        self.hosts + self.routers + usize::from(self.layout != Layout::Site)
    }

    fn name(&self, node: usize) -> String {
        if node < self.hosts {
            format!("host {node}")
        } else if node < self.hosts + self.routers {
            format!("router {}", node - self.hosts)
        } else {
            String::from("name server")
        }
    }

    /// Returns true if the routers are in a circle, and hosts are attached to two of them.
    fn is_round(&self) -> bool {
        matches!(self.layout, Layout::Ring | Layout::Mesh)
    }

    fn keys(node: usize) -> KeyPair {
        KeyPair::from_secret(&[node as u8 + 1; 32])
    }

    /// Returns a fresh machine for a node.
    fn build(&self, life: &Life) -> Machine {
        let node = life.node;
        let mut seed = [node as u8; 32];
        seed[..8].copy_from_slice(&life.rng().next_word().to_be_bytes());
        let hop = HopSection {
            buffer_packets: 2_048,
            ..HopSection::default()
        };
        let start = |hop: &HopSection| {
            let keys = Self::keys(node);
            Start {
                hop: hop.hop_config(&keys, life.number + 1, seed, true),
                keys,
                wall: life.wall(ORIGIN_UNIX_MS),
                rng: life.rng(),
            }
        };
        if node < self.hosts {
            let hop = HopSection::default();
            let started = start(&hop);
            let host = HostPlan {
                policy: match node % 2 {
                    0 => LinkPolicy::default(),
                    // On a ring, over both of its routers.
                    _ => LinkPolicy::Everywhere,
                },
                ..HostPlan::new(hop, &HostSection::default(), Vec::new())
            };
            let host = compose::host(&host, BTreeMap::new(), started);
            return Node::Host(Box::new(host));
        }
        if node == self.hosts + self.routers {
            let store = MemoryStore::new(RecordLimits::default());
            let wall = life.wall(ORIGIN_UNIX_MS);
            // Clients know a restart by another secret.
            let server = Server::new(ServerConfig::default(), wall, seed, store);
            return Node::from(server);
        }
        let started = start(&hop);
        let storage = StorageSection {
            total: ByteSize(4 << 20),
            per_flow: ByteSize(1 << 20),
            lifetime: Span(LIFETIME),
            cache: ByteSize(if self.features.cache { CACHE } else { 0 }),
            ..StorageSection::default()
        };
        let section = RouterSection {
            routing: match self.features.learned {
                true => RoutingName::Learned,
                false => RoutingName::Static,
            },
            neighbours: self.neighbours(node),
            wait_for_usual: self.features.waits.then_some(Span(WAITS)),
            ..RouterSection::default()
        };
        let links = vec![LinkSection::new("neighbour"); NAME_SERVER_LINK as usize];
        let name_servers = match self.layout {
            Layout::Site => Vec::new(),
            _ => vec![Peer::Address((Ipv4Addr::LOCALHOST, GNRS_PORT).into())],
        };
        let router = MobilityFirstPlan {
            routes: self.routes(node - self.hosts),
            name_servers,
            ..MobilityFirstPlan::new(hop, &storage, &section, links)
        };
        Node::Router(Box::new(compose::router(&router, started)))
    }

    /// Returns the names of the routers next to one, if it learns its ways.
    fn neighbours(&self, node: usize) -> Vec<Guid> {
        let routers = self.hosts..self.hosts + self.routers;
        let is_between = |a: &usize, b: &usize| routers.contains(a) && routers.contains(b);
        let between = self
            .links()
            .into_iter()
            .filter(|(a, b, _)| is_between(a, b));
        let others = between.filter_map(|(a, b, _)| match node {
            _ if a == node => Some(b),
            _ if b == node => Some(a),
            _ => None,
        });
        let others = others.filter(|_| self.features.learned);
        others.map(|other| Self::keys(other).guid()).collect()
    }

    /// Returns static routes of a router: along the chain, or the shorter way round the ring.
    fn routes(&self, router: usize) -> Vec<Route> {
        if self.features.learned {
            return Vec::new();
        }
        let count = self.routers;
        let guid = |router: usize| Self::keys(self.hosts + router).guid();
        (0..count)
            .filter(|other| *other != router)
            .map(|other| {
                let up = (other + count - router) % count;
                let forward = match self.layout {
                    Layout::Ring | Layout::Mesh => up <= count - up,
                    _ => other > router,
                };
                let next = (router + if forward { 1 } else { count - 1 }) % count;
                Route::new(guid(other), NextHop::Neighbour(guid(next)))
            })
            .collect()
    }

    /// Returns the links, from their first node to their second.
    fn links(&self) -> Vec<(usize, usize, DuplexLink)> {
        let link = DuplexLink::symmetric(perfect());
        let router = |number: usize| self.hosts + number % self.routers;
        let mut links: Vec<(usize, usize, DuplexLink)> = Vec::new();
        // Hosts connect to their routers, so that they may move.
        for host in 0..self.hosts {
            let uplink = |number| {
                let (own, listener) = (PortOrigin::Configured(number), PortOrigin::Accepted(0));
                link.clone().with_origins(own, listener)
            };
            links.push((host, router(host), uplink(0)));
            if self.is_round() {
                links.push((host, router(host + 1), uplink(1)));
            }
        }
        let between = match self.is_round() {
            true => self.routers,
            false => self.routers - 1,
        };
        for number in 0..between {
            links.push((router(number), router(number + 1), link.clone()));
        }
        if self.layout == Layout::Mesh {
            for number in (0..self.routers - 2).step_by(2) {
                links.push((router(number), router(number + 2), link.clone()));
            }
        }
        if self.layout != Layout::Site {
            let server = self.hosts + self.routers;
            let link = link.with_origins(
                PortOrigin::Configured(NAME_SERVER_LINK),
                PortOrigin::Accepted(0),
            );
            let attached = (0..self.routers).map(|number| (router(number), server, link.clone()));
            links.extend(attached);
        }
        links
    }
}

impl Victim for World {
    fn hosts(&self) -> usize {
        self.plan.hosts
    }

    fn now(&self) -> Time {
        self.net.now()
    }

    fn agenda(&mut self) -> &mut Agenda {
        &mut self.agenda
    }

    fn report(&mut self) -> &mut Report {
        &mut self.report
    }

    fn run_until(&mut self, end: Time) -> Result<(), Breach> {
        while let Some(happening) = self.net.advance(end) {
            match happening {
                Happening::Told(told) => {
                    if let NodeEvent::Host(HostEvent { event, .. }) = told.event {
                        self.handle(told.node.index(), event)?;
                    }
                }
                Happening::Crashed(node) => self.lose_program(node),
                Happening::Started(node) => {
                    if node < self.plan.hosts {
                        self.greet(node);
                    }
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, host: usize, content: usize, repeated: u64) {
        if !self.net.is_running(host) {
            return;
        }
        self.next_request += 1;
        let request = self.programs[host].get(self.next_request, content, repeated);
        self.request(host, request);
    }

    fn cancel(&mut self, host: usize) -> bool {
        let Some(request) = self.programs[host].cancel() else {
            return false;
        };
        self.request(host, request);
        true
    }

    fn pause(&mut self, host: usize, paused: bool) {
        let said = self.programs[host].pause(paused);
        self.say(host, said);
    }

    fn stall(&mut self, host: usize, which: usize) {
        let said = self.programs[host].stall(which);
        self.say(host, said);
    }

    fn push(&mut self, push: PushAct, delegated: bool) {
        let PushAct { from, to, content } = push;
        if !self.net.is_running(from) {
            return;
        }
        self.next_request += 1;
        let request = self.next_request;
        if self.pushes.begin(self.net.now(), push, request) {
            let to = PushTarget::Host(Plan::keys(to).guid());
            let said = self.programs[from].send(request, content, to, delegated);
            self.say(from, said);
        }
    }

    fn push_to_all(&mut self, from: usize, content: usize) {
        if !self.net.is_running(from) {
            return;
        }
        self.next_request += 1;
        let request = self.next_request;
        let others = (0..self.plan.hosts).filter(|to| *to != from);
        let all: Vec<PushAct> = others.map(|to| PushAct { from, to, content }).collect();
        if self.pushes.begin_group(self.net.now(), &all, request) {
            let said = self.programs[from].send(request, content, PushTarget::Group, false);
            self.say(from, said);
        }
    }

    fn strike(&mut self, fault: Fault) {
        if matches!(fault, Fault::Clock { .. } | Fault::SetTime { .. }) {
            self.pushes.note_clock(self.net.now());
        }
        self.net.strike(&fault);
    }

    fn conclude(mut self) -> Result<Report, Breach> {
        self.net.end_faults();
        self.run_until(self.net.now())?;
        for host in 0..self.plan.hosts {
            self.pause(host, false);
        }
        // A slow reader delays no other transfer.
        self.await_downloads(true)?;
        for host in 0..self.plan.hosts {
            let said = self.programs[host].hurry();
            self.say(host, said);
        }
        self.await_downloads(false)?;
        self.report.pushed += self.pushes.len() as u64;
        self.report.received += self.pushes.received() as u64;
        self.run_for(IDLE)?;
        self.check_idle()?;
        self.report.events = self.net.sim().stats().events;
        Ok(self.report)
    }
}

impl World {
    /// Builds the network of a schedule and lets its hosts attach and announce for two seconds.
    pub(super) fn new(schedule: &Schedule) -> World {
        let plan = Plan {
            layout: schedule.layout,
            hosts: schedule.hosts,
            routers: schedule.routers,
            features: schedule.features,
        };
        let mut net = Net::new(schedule.seed);
        for node in 0..plan.nodes() {
            // Every other router stores on a disk, or every one, which outlives its crashes.
            let has =
                |it: usize| it < plan.routers && (it.is_multiple_of(2) || plan.features.disks);
            let is_stored = node.checked_sub(plan.hosts).is_some_and(has);
            let disk = is_stored.then(|| SimulatedDisk::new(DISK));
            net.add(&plan.name(node), move |life, _| {
                let mut machine = plan.build(life);
                if let (Some(disk), Some(router)) = (&disk, machine.router()) {
                    router.set_disk(life.start, disk.attach());
                }
                machine
            });
        }
        for (a, b, link) in plan.links() {
            if let Err(fault) = net.connect(a, b, &link) {
                unreachable!("a link of torture makes no sense: {fault}");
            }
        }
        let hosts = plan.hosts;
        let max_skew = move |node| match node < hosts {
            true => MAX_SKEW_OF_HOSTS,
            false => TOLERATED / 2,
        };
        net.allow_setting_time(max_skew, |life, machine: &mut Machine, now| {
            machine.set_wall_clock(now, life.wall(ORIGIN_UNIX_MS))
        });
        let mut world = World {
            net,
            plan,
            programs: (0..hosts).map(|host| Program::new(host, hosts)).collect(),
            pushes: PushLedger::default(),
            agenda: Agenda::default(),
            next_request: 0,
            report: Report::default(),
        };
        for host in 0..hosts {
            world.greet(host);
        }
        // A world without faults cannot break a promise; if it does, the first step finds it.
        let _ = world.run_for(Duration::from_secs(2));
        world
    }

    fn greet(&mut self, host: usize) {
        for request in self.programs[host].greetings() {
            self.request(host, request);
        }
    }

    fn request(&mut self, host: usize, request: LocalRequest) {
        self.net.with(host, |machine, now| {
            if let Some(host) = machine.host() {
                host.request(now, APP, request);
            }
        });
    }

    fn handle(&mut self, host: usize, event: LocalEvent) -> Result<(), Breach> {
        match self.programs[host].handle(event)? {
            Some(Consequence::Request(request)) => self.request(host, request),
            Some(Consequence::Completed) => self.report.completed += 1,
            Some(Consequence::Received {
                from,
                content,
                request,
            }) => {
                let mut hosts = 0..self.plan.hosts;
                let from = hosts.find(|it| Plan::keys(*it).guid() == from);
                let to = host;
                if let Some(from) = from {
                    self.pushes.note_received(PushAct { from, to, content })?;
                }
                self.request(host, request);
            }
            Some(Consequence::Sent { request, state }) => {
                self.pushes.note_state(host, request, state)?;
            }
            Some(Consequence::AskAgain { content, repeated }) => {
                self.report.repeated += 1;
                let again = Again {
                    host,
                    content,
                    repeated,
                };
                self.agenda.add(self.net.now() + ASK_AGAIN, again);
            }
            None => {}
        }
        Ok(())
    }

    fn say(&mut self, host: usize, said: Vec<LocalRequest>) {
        for request in said {
            self.request(host, request);
        }
    }

    /// Removes a host's program together with it.
    fn lose_program(&mut self, node: usize) {
        self.pushes.note_crash(self.net.now(), node);
        if let Some(program) = self.programs.get_mut(node) {
            self.report.abandoned += program.downloads.len() as u64;
            *program = program.again();
        }
    }

    /// Waits for all downloads to end; stalled ones do not count if `only_fast`.
    fn await_downloads(&mut self, only_fast: bool) -> Result<(), Breach> {
        let ended = self.net.now();
        loop {
            let busy = self.programs.iter().any(|it| it.is_busy(only_fast));
            let again = self.agenda.first();
            let now = self.net.now();
            let pushed = self.pushes.stuck(ended, now).filter(|_| !only_fast);
            if !busy && again.is_none() && pushed.is_none() {
                return Ok(());
            }
            let waited = now.since(ended);
            if waited >= PATIENCE {
                let stuck = self.programs.iter().find_map(|it| it.stuck(ended, now));
                let again = again.map(|it| it.stuck(waited.as_secs()));
                if std::env::var_os("TORTURE_DEBUG").is_some() {
                    for node in 0..self.plan.nodes() {
                        let name = self.plan.name(node);
                        self.net.with(node, |machine, now| {
                            let text = match machine.router() {
                                Some(router) => serde_json::to_string_pretty(&router.status(now)),
                                None => match machine.host() {
                                    Some(host) => serde_json::to_string_pretty(&host.status(now)),
                                    None => Ok(String::new()),
                                },
                            };
                            eprintln!("=== {name}\n{}", text.unwrap_or_default());
                        });
                    }
                }
                return stuck.or(again).or(pushed).map_or(Ok(()), Err);
            }
            self.run_for(Duration::from_secs(1))?;
            let waited = self.net.now().since(ended).as_secs_f64();
            self.report.slowest_s = self.report.slowest_s.max(waited);
        }
    }

    /// Checks that an idle network holds no memory. Idle hosts renew their bindings too, so a
    /// router may have a message on its way: it must be without one at some moment.
    fn check_idle(&mut self) -> Result<(), Breach> {
        let mut checked = self.check_nodes();
        for _ in 0..IDLE_LOOKS {
            if !matches!(checked, Err(Breach::Memory { .. })) {
                break;
            }
            self.run_for(IDLE_PAUSE)?;
            checked = self.check_nodes();
        }
        checked
    }

    fn check_nodes(&mut self) -> Result<(), Breach> {
        (0..self.plan.hosts + self.plan.routers).try_for_each(|node| {
            let name = self.plan.name(node);
            let features = self.plan.features;
            self.net.with(node, |machine, now| {
                check_node(&name, features, machine, now)
            })
        })
    }
}

fn check_node(
    name: &str,
    features: Features,
    machine: &mut Machine,
    now: Time,
) -> Result<(), Breach> {
    let node = name.to_owned();
    let times = if let Some(router) = machine.router() {
        let memory = router.memory();
        // A cache remains.
        let cached = if features.cache {
            memory.copied_bytes
        } else {
            0
        };
        if memory.total() > cached {
            return Err(Breach::Memory {
                node,
                bytes: memory.total(),
                detail: format!("{memory:?}"),
            });
        }
        let counters = router.status(now).counters;
        let chunks = counters.drops.get(HOP_LIMIT).copied().unwrap_or(0);
        if features.learned && chunks > 0 {
            return Err(Breach::Loop { node, chunks });
        }
        counters.left_over
    } else if let Some(host) = machine.host() {
        host.status(now).counters.left_over
    } else {
        0
    };
    if times > 0 {
        return Err(Breach::LeftOver { node, times });
    }
    Ok(())
}
