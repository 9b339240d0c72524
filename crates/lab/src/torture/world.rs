//! A network of real protocol machines, and what is done to it.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{PortOrigin, SeededRng, Time, WallClock};
use whimbrel_gnrs::{KeyPair, MemoryStore, Server, ServerConfig, StoreLimits as RecordLimits};
use whimbrel_link::HopConfig;
use whimbrel_mobilityfirst::host::{Host, HostConfig, HostEvent};
use whimbrel_mobilityfirst::local::LocalRequest;
use whimbrel_mobilityfirst::router::{
    NextHop, ProxyPolicy, Route, Router, RouterConfig, store::StoreLimits,
};
use whimbrel_node::{Node, NodeEvent};
use whimbrel_sim::link::{LinkSpec, Loss, QueueLimit, Reorder};
use whimbrel_sim::{Direction, DuplexLink, LinkId, NodeId, Simulator};

use super::transfers::{Consequence, Program};
use super::{Act, Fault, Layout, Report, Schedule, library};
use crate::simulated::ORIGIN_UNIX_MS;

type Machine = Node<MemoryStore>;

/// The number of each router's link to the name server, above those of its neighbours.
const NAME_SERVER_LINK: u32 = 1_000;
/// The number of each host's one program.
const APP: u32 = 1;
/// Transfers must end this long after the last fault. A router without a name service that
/// restarted hears of contents again only when their announcements are renewed, after 200 s.
const PATIENCE: Duration = Duration::from_secs(450);
/// How long a router keeps a chunk that nobody takes.
const LIFETIME: Duration = Duration::from_secs(120);
/// In idleness, memory returns to what it was within this time: stored chunks expire.
const IDLE: Duration = Duration::from_secs(300);
/// How often memory is looked at in idleness, and the time between two looks.
const IDLE_LOOKS: u32 = 20;
const IDLE_PAUSE: Duration = Duration::from_millis(130);
/// A refused request is made again after this time.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What happens later on.
#[derive(Debug)]
enum Pending {
    Restart {
        node: usize,
        skew_s: i16,
    },
    Repair {
        link: LinkId,
        direction: Direction,
    },
    Release {
        link: LinkId,
    },
    AskAgain {
        host: usize,
        content: usize,
        repeated: u64,
    },
}

/// A network in virtual time with programs on its hosts.
pub struct World {
    sim: Simulator<Machine>,
    seed: u64,
    layout: Layout,
    // Hosts, then routers, then the name server if there is one: as in `nodes`.
    hosts: usize,
    routers: usize,
    nodes: Vec<NodeId>,
    lives: Vec<u64>,
    links: Vec<LinkId>,
    programs: Vec<Program>,
    agenda: BTreeMap<(Time, u64), Pending>,
    next_number: u64,
    next_request: u32,
    report: Report,
}

fn perfect() -> LinkSpec {
    LinkSpec::new(20_000_000, Duration::from_millis(5)).with_queue(QueueLimit::Packets(100))
}

fn impaired(percent: u8) -> LinkSpec {
    let share = f64::from(percent) / 100.0;
    LinkSpec {
        reorder: Some(Reorder {
            probability: share / 2.0,
            extra_delay: Duration::from_millis(20),
        }),
        duplicate: share / 2.0,
        corrupt: share / 4.0,
        ..perfect().with_loss(Loss::Independent(share))
    }
}

impl World {
    /// Builds the network of a schedule and lets its hosts attach and announce for two seconds.
    pub fn new(schedule: &Schedule) -> World {
        let (hosts, routers) = (schedule.hosts, schedule.routers);
        let servers = usize::from(schedule.layout != Layout::Site);
        let mut world = World {
            sim: Simulator::new(schedule.seed),
            seed: schedule.seed,
            layout: schedule.layout,
            hosts,
            routers,
            nodes: Vec::new(),
            lives: vec![0; hosts + routers + servers],
            links: Vec::new(),
            programs: (0..hosts).map(|host| Program::new(host, hosts)).collect(),
            agenda: BTreeMap::new(),
            next_number: 0,
            next_request: 0,
            report: Report::default(),
        };
        for node in 0..world.lives.len() {
            let machine = world.build(node, 0);
            let name = world.name(node);
            world.nodes.push(world.sim.add_node(&name, machine));
        }
        world.connect_all();
        for host in 0..hosts {
            world.greet(host);
        }
        // Nothing can break in a world without faults; what does is found by the first step.
        let _ = world.run_for(Duration::from_secs(2));
        world
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

    fn keys(node: usize) -> KeyPair {
        KeyPair::from_secret(&[node as u8 + 1; 32])
    }

    /// A fresh machine for a node.
    fn build(&self, node: usize, skew_s: i16) -> Machine {
        let life = self.lives[node];
        let wall = WallClock::new(ORIGIN_UNIX_MS.saturating_add_signed(i64::from(skew_s) * 1_000));
        let rng = SeededRng::stream(self.seed.wrapping_add(life << 32), &self.name(node));
        let guid = Self::keys(node).guid();
        let hop = HopConfig {
            incarnation: life + 1,
            ..HopConfig::new(guid, 1472)
        };
        if node < self.hosts {
            let config = HostConfig {
                hop,
                ..HostConfig::new(Self::keys(node), wall)
            };
            return Node::Host(Box::new(Host::new(config, rng)));
        }
        if node == self.hosts + self.routers {
            let store = MemoryStore::new(RecordLimits::default());
            let server = Server::new(ServerConfig::default(), wall, [7; 32], store);
            return Node::NameServer(Box::new(server));
        }
        let name_servers = match self.layout {
            Layout::Site => Vec::new(),
            Layout::Chain | Layout::Ring => vec![NAME_SERVER_LINK],
        };
        let config = RouterConfig {
            guid,
            wall,
            hop,
            buffer_packets: 2_048,
            store: StoreLimits {
                total: 4 << 20,
                per_flow: 1 << 20,
                lifetime: LIFETIME,
            },
            routes: self.routes(node - self.hosts),
            default_route: None,
            name_servers,
            proxy: ProxyPolicy::default(),
        };
        Node::Router(Box::new(Router::new(config, rng)))
    }

    /// Static routes of a router: along the chain, or the shorter way round the ring.
    fn routes(&self, router: usize) -> Vec<Route> {
        let count = self.routers;
        let guid = |router: usize| Self::keys(self.hosts + router).guid();
        (0..count)
            .filter(|other| *other != router)
            .map(|other| {
                let up = (other + count - router) % count;
                let forward = match self.layout {
                    Layout::Ring => up <= count - up,
                    Layout::Site | Layout::Chain => other > router,
                };
                let next = (router + if forward { 1 } else { count - 1 }) % count;
                Route {
                    to: guid(other),
                    via: NextHop::Neighbour(guid(next)),
                }
            })
            .collect()
    }

    fn connect_all(&mut self) {
        let link = DuplexLink::symmetric(perfect());
        let router = |number: usize| self.hosts + number % self.routers;
        let mut pairs: Vec<(usize, usize)> = Vec::new();
        for host in 0..self.hosts {
            pairs.push((host, router(host)));
            if self.layout == Layout::Ring {
                pairs.push((host, router(host + 1)));
            }
        }
        let between = match self.layout {
            Layout::Ring => self.routers,
            Layout::Site | Layout::Chain => self.routers - 1,
        };
        for number in 0..between {
            pairs.push((router(number), router(number + 1)));
        }
        for (a, b) in pairs {
            self.connect(a, b, &link);
        }
        if self.layout != Layout::Site {
            let server = self.hosts + self.routers;
            let link = link.with_origins(
                PortOrigin::Configured(NAME_SERVER_LINK),
                PortOrigin::Accepted(0),
            );
            for number in 0..self.routers {
                self.connect(self.hosts + number, server, &link);
            }
        }
    }

    fn connect(&mut self, a: usize, b: usize, link: &DuplexLink) {
        match self.sim.connect(self.nodes[a], self.nodes[b], link) {
            Ok(connection) => self.links.push(connection.link),
            Err(fault) => unreachable!("a link of torture makes no sense: {fault}"),
        }
    }

    fn greet(&mut self, host: usize) {
        for request in self.programs[host].greetings() {
            self.request(host, request);
        }
    }

    fn request(&mut self, host: usize, request: LocalRequest) {
        self.sim.with_node(self.nodes[host], |machine, now| {
            if let Some(host) = machine.host() {
                host.request(now, APP, request);
            }
        });
    }

    fn later(&mut self, after: Duration, pending: Pending) {
        self.next_number += 1;
        self.agenda
            .insert((self.sim.now() + after, self.next_number), pending);
    }

    /// Lets time go on.
    pub fn run_for(&mut self, duration: Duration) -> Result<(), Fault> {
        let end = self.sim.now() + duration;
        while let Some(entry) = self.agenda.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), pending) = entry.remove_entry();
            self.run_until(at)?;
            self.perform_pending(pending);
        }
        self.run_until(end)
    }

    fn run_until(&mut self, end: Time) -> Result<(), Fault> {
        self.sim.schedule(end, |_| {});
        self.handle_events()?;
        while self.sim.now() < end && self.sim.step() {
            self.handle_events()?;
        }
        Ok(())
    }

    fn handle_events(&mut self) -> Result<(), Fault> {
        while let Some(occurrence) = self.sim.poll_event() {
            let NodeEvent::Host(HostEvent { event, .. }) = occurrence.event else {
                continue;
            };
            let host = occurrence.node.index();
            match self.programs[host].handle(event)? {
                Some(Consequence::Request(request)) => self.request(host, request),
                Some(Consequence::Completed) => self.report.completed += 1,
                Some(Consequence::AskAgain { content, repeated }) => {
                    self.report.repeated += 1;
                    let again = Pending::AskAgain {
                        host,
                        content,
                        repeated,
                    };
                    self.later(ASK_AGAIN, again);
                }
                None => {}
            }
        }
        Ok(())
    }

    fn perform_pending(&mut self, pending: Pending) {
        match pending {
            Pending::Restart { node, skew_s } => self.restart(node, skew_s),
            Pending::Repair { link, direction } => self.sim.set_direction_up(link, direction, true),
            Pending::Release { link } => self.sim.release(link),
            Pending::AskAgain {
                host,
                content,
                repeated,
            } => self.ask(host, content, repeated),
        }
    }

    fn ask(&mut self, host: usize, content: usize, repeated: u64) {
        if !self.sim.is_running(self.nodes[host]) {
            return;
        }
        self.next_request += 1;
        let request = self.programs[host].get(self.next_request, content, repeated);
        self.request(host, request);
    }

    /// Does what a schedule says.
    pub fn perform(&mut self, act: &Act) -> Result<(), Fault> {
        let host = |number: u8| usize::from(number) % self.hosts;
        let link = |number: u8| self.links[usize::from(number) % self.links.len()];
        match *act {
            Act::Get {
                host: number,
                content,
            } => {
                let content = usize::from(content) % library::contents().len();
                self.report.requests += 1;
                self.ask(host(number), content, 0);
            }
            Act::Cancel { host: number } => {
                let host = host(number);
                if let Some(request) = self.programs[host].cancel() {
                    self.report.abandoned += 1;
                    self.request(host, request);
                }
            }
            Act::Pause {
                host: number,
                paused,
            } => self.pause(host(number), paused),
            Act::Crash { node, down, skew_s } => {
                let node = usize::from(node) % self.nodes.len();
                self.crash(node);
                self.later(down, Pending::Restart { node, skew_s });
            }
            Act::Outage {
                link: number,
                directions,
                lasts,
            } => {
                let link = link(number);
                for (bit, direction) in Direction::BOTH.into_iter().enumerate() {
                    if directions >> bit & 1 == 1 {
                        self.sim.set_direction_up(link, direction, false);
                        self.later(lasts, Pending::Repair { link, direction });
                    }
                }
            }
            Act::Hold {
                link: number,
                lasts,
            } => {
                let link = link(number);
                self.sim.hold(link);
                self.later(lasts, Pending::Release { link });
            }
            Act::Impair {
                link: number,
                percent,
            } => self.set_spec(link(number), &impaired(percent)),
            Act::Mend { link: number } => self.set_spec(link(number), &perfect()),
        }
        self.handle_events()
    }

    fn set_spec(&mut self, link: LinkId, spec: &LinkSpec) {
        for direction in Direction::BOTH {
            if let Err(fault) = self.sim.set_link_spec(link, direction, spec) {
                unreachable!("a link of torture makes no sense: {fault}");
            }
        }
    }

    fn pause(&mut self, host: usize, paused: bool) {
        for request in self.programs[host].pause(paused) {
            self.request(host, request);
        }
    }

    fn crash(&mut self, node: usize) {
        self.sim.crash(self.nodes[node]);
        if node < self.hosts {
            // The host's program goes with it.
            self.report.abandoned += self.programs[node].downloads.len() as u64;
            self.programs[node] = Program::new(node, self.hosts);
        }
    }

    fn restart(&mut self, node: usize, skew_s: i16) {
        // It may have been restarted from an earlier crash and run.
        self.crash(node);
        self.lives[node] += 1;
        let machine = self.build(node, skew_s);
        self.sim.restart(self.nodes[node], machine);
        if node < self.hosts {
            self.greet(node);
        }
    }

    /// Ends all faults, and checks that everything comes to its end.
    pub fn conclude(mut self) -> Result<Report, Fault> {
        self.end_faults();
        let ended = self.sim.now();
        while self.is_busy() {
            if self.sim.now().since(ended) >= PATIENCE {
                let now = self.sim.now();
                let stuck = self.programs.iter().find_map(|it| it.stuck(ended, now));
                return stuck.map_or(Ok(self.report), Err);
            }
            self.run_for(Duration::from_secs(1))?;
            self.report.slowest_s = self.sim.now().since(ended).as_secs_f64();
        }
        self.run_for(IDLE)?;
        self.check_idle()?;
        self.report.events = self.sim.stats().events;
        Ok(self.report)
    }

    fn is_busy(&self) -> bool {
        let asks = |pending: &Pending| matches!(pending, Pending::AskAgain { .. });
        self.programs.iter().any(|it| !it.downloads.is_empty()) || self.agenda.values().any(asks)
    }

    fn end_faults(&mut self) {
        for link in self.links.clone() {
            self.set_spec(link, &perfect());
            self.sim.repair(link);
            self.sim.release(link);
        }
        let agenda = core::mem::take(&mut self.agenda);
        for (at, pending) in agenda {
            match pending {
                Pending::AskAgain { .. } => {
                    self.agenda.insert(at, pending);
                }
                Pending::Restart { node, .. } => self.restart(node, 0),
                Pending::Repair { .. } | Pending::Release { .. } => {}
            }
        }
        for host in 0..self.hosts {
            self.pause(host, false);
        }
    }

    /// Hosts renew their bindings in idleness too, so a router now and then has a message on its
    /// way: it must be without one at some moment.
    fn check_idle(&mut self) -> Result<(), Fault> {
        let mut checked = self.check_nodes();
        for _ in 0..IDLE_LOOKS {
            if !matches!(checked, Err(Fault::Memory { .. })) {
                break;
            }
            self.run_for(IDLE_PAUSE)?;
            checked = self.check_nodes();
        }
        checked
    }

    fn check_nodes(&mut self) -> Result<(), Fault> {
        (0..self.hosts + self.routers).try_for_each(|node| {
            let name = self.name(node);
            self.sim.with_node(self.nodes[node], |machine, now| {
                check_node(&name, machine, now)
            })
        })
    }
}

fn check_node(name: &str, machine: &mut Machine, now: Time) -> Result<(), Fault> {
    let node = name.to_owned();
    let times = if let Some(router) = machine.router() {
        let memory = router.memory();
        if memory.total() > 0 {
            return Err(Fault::Memory {
                node,
                bytes: memory.total(),
                detail: format!("{memory:?}"),
            });
        }
        router.status(now).counters.unsettled
    } else if let Some(host) = machine.host() {
        host.status(now).counters.unsettled
    } else {
        0
    };
    if times > 0 {
        return Err(Fault::Unsettled { node, times });
    }
    Ok(())
}
