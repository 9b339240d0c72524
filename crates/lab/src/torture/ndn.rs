//! An NDN site: routers with programs, which publish and fetch contents.

mod reader;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_core::{PortId, SeededRng, Time};
use whimbrel_forwarder::{CsConfig, FaceId, ForwarderConfig};
use whimbrel_link::ndnlp::Reliability;
use whimbrel_ndn_packet::{DigestSigner, Name};
use whimbrel_node::compose;
use whimbrel_node::config::{NdnPlan, NdnSection};
use whimbrel_node::ndn::NdnRouter;
use whimbrel_sim::link::{LinkSpec, QueueLimit};
use whimbrel_sim::testbed::{Fault, Happening, Life, Net, impaired};
use whimbrel_sim::{AnyMachine, Connection, Direction, DuplexLink};
use whimbrel_transport::serve::ProducerOptions;
use whimbrel_transport::{AppFace, FetchEvent, FetchOptions, Fetcher, Producer, RegisterOptions};

use reader::Reader;

use super::transfers::Parts;
use super::{Again, Agenda, Breach, Layout, Report, Schedule, Victim, library};
use crate::rivals::STRATEGIES;
use crate::simulated::ORIGIN_UNIX_MS;

/// Bytes of a segment.
const SEGMENT: usize = 4_000;
/// Bytes of a frame between a program and its router.
const LOCAL_FRAME: usize = 9_000;
/// Transfers must end this long after the last fault. Interests are repeated, registrations renewed
/// and faces of lost peers forgotten well within it.
const PATIENCE: Duration = Duration::from_secs(450);
/// When idle, nothing is pending after this time: Interests live for 4 s, dead nonces for 6 s.
const IDLE: Duration = Duration::from_secs(60);
/// Pause before a failed fetch is repeated.
const ASK_AGAIN: Duration = Duration::from_secs(2);

type Party = AnyMachine<Said>;

/// An event of a site's node.
enum Said {
    Fetch(FetchEvent),
    Nothing,
}

/// The routers of a site, and their properties.
#[derive(Clone, Copy, Debug)]
struct Plan {
    layout: Layout,
    routers: usize,
    hosts: usize,
    reliability: Reliability,
    strategy: usize,
    cached: bool,
}

impl Plan {
    fn of(schedule: &Schedule) -> Plan {
        let mut rng = SeededRng::stream(schedule.seed, "ndn site");
        let reliability = [
            Reliability::Off,
            Reliability::Ndnlpv2,
            Reliability::Adaptive,
            Reliability::Auto,
        ][rng.below(4) as usize];
        Plan {
            layout: schedule.layout,
            routers: schedule.routers,
            hosts: schedule.hosts,
            reliability,
            strategy: rng.below(STRATEGIES.names().len() as u64) as usize,
            cached: rng.chance(0.5),
        }
    }

    /// Returns the links between routers.
    fn links(&self) -> Vec<(usize, usize)> {
        let line = (1..self.routers).map(|router| (router - 1, router));
        let closing = self.layout == Layout::NdnRing && self.routers > 2;
        line.chain(closing.then(|| (self.routers - 1, 0))).collect()
    }

    /// Returns the router that a content's producer is at.
    fn home(&self, content: usize) -> usize {
        content % self.routers
    }

    fn router(&self, life: &Life) -> Party {
        let defaults = ForwarderConfig::default();
        let strategy = STRATEGIES.names()[self.strategy].clone();
        let mut plan = NdnPlan::new(
            &NdnSection::default(),
            ForwarderConfig {
                content_store: CsConfig {
                    capacity: if self.cached { 1 << 20 } else { 0 },
                    ..CsConfig::default()
                },
                strategy_kinds: STRATEGIES,
                strategies: vec![(Name::root(), strategy)],
                ..defaults
            },
        );
        plan.link.reliability = self.reliability;
        let router = compose::ndn_router(&plan, life.wall(ORIGIN_UNIX_MS), life.rng());
        AnyMachine::new(router, |_| Said::Nothing)
    }

    /// Returns the hops from a router to a content's producer by one of its links, or `None` if the
    /// link leads elsewhere.
    fn cost(&self, router: usize, peer: usize, content: usize) -> Option<u64> {
        let (count, home) = (self.routers, self.home(content));
        if home == router {
            return None;
        }
        if self.layout == Layout::NdnRing && count > 2 {
            let forth = (home + count - router) % count;
            let onward = peer == (router + 1) % count;
            return Some(if onward { forth } else { count - forth } as u64);
        }
        ((peer > router) == (home > router)).then_some(home.abs_diff(router) as u64)
    }
}

fn prefix(content: usize) -> Name {
    Name::root().child_generic(format!("c{content}").as_bytes())
}

fn producer(content: usize, life: &Life) -> Party {
    let wall = life.wall(ORIGIN_UNIX_MS);
    let producer = Producer::segments(
        prefix(content),
        library::contents()[content].segments(SEGMENT),
        Arc::new(DigestSigner),
        ProducerOptions::new(wall, life.start),
        RegisterOptions::new(wall),
        life.rng(),
    );
    AnyMachine::new(AppFace::new(producer), |_| Said::Nothing)
}

/// A program of a router's machine.
#[derive(Debug)]
struct Program {
    router: usize,
    connection: Option<Connection>,
}

/// A fetch under way.
#[derive(Debug)]
struct Fetch {
    host: usize,
    content: usize,
    // The number of vain attempts before.
    repeated: u64,
    parts: Parts,
}

/// An NDN site in virtual time.
pub(super) struct Site {
    // Routers, then one producer for each content, then fetches as they begin.
    net: Net<Party>,
    plan: Plan,
    // Connections between routers: the first router, the second, and their ports.
    links: Vec<(usize, usize, Connection)>,
    programs: BTreeMap<usize, Program>,
    fetches: BTreeMap<usize, Fetch>,
    paused: Vec<bool>,
    agenda: Agenda,
    report: Report,
}

impl Victim for Site {
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
                    if let Said::Fetch(event) = told.event {
                        self.handle(told.node.index(), event)?;
                    }
                }
                Happening::Crashed(node) => {
                    for program in self.programs_of(node) {
                        self.detach(program);
                    }
                }
                Happening::Started(node) => {
                    if node < self.plan.routers {
                        self.route(node);
                    }
                    for program in self.programs_of(node) {
                        self.attach(program);
                    }
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, host: usize, content: usize, repeated: u64) {
        let (now, seed) = (self.net.now(), self.net.sim().seed());
        let label = format!("fetch {}", self.net.nodes().end);
        let fetcher = Fetcher::new(
            prefix(content),
            FetchOptions::default(),
            SeededRng::stream(seed, &label),
            now,
        );
        let reader = Reader {
            face: AppFace::new(fetcher),
            paused: self.paused[host],
            stalled: false,
        };
        let reader = AnyMachine::new(reader, Said::Fetch);
        let node = self.net.add_mortal(&label, reader);
        let parts = Parts::default();
        let fetch = Fetch {
            host,
            content,
            repeated,
            parts,
        };
        self.fetches.insert(node, fetch);
        self.start_program(node, host % self.plan.routers);
    }

    fn cancel(&mut self, host: usize) -> bool {
        let oldest = self.fetches.iter().find(|(_, fetch)| fetch.host == host);
        let Some(node) = oldest.map(|(node, _)| *node) else {
            return false;
        };
        self.end(node);
        true
    }

    fn pause(&mut self, host: usize, paused: bool) {
        self.paused[host] = paused;
        let fetches = self.fetches.iter().filter(|(_, it)| it.host == host);
        for node in fetches.map(|(node, _)| *node).collect::<Vec<_>>() {
            self.with_reader(node, |reader| reader.paused = paused);
        }
    }

    fn stall(&mut self, host: usize, which: usize) {
        let fetches = self.fetches.iter().filter(|(_, it)| it.host == host);
        let nodes: Vec<usize> = fetches.map(|(node, _)| *node).collect();
        if let Some(chosen) = which.checked_rem(nodes.len()) {
            self.with_reader(nodes[chosen], |reader| reader.stalled ^= true);
        }
    }

    /// Applies a fault to a router, a producer or a link between routers: no connection within a
    /// machine loses anything, and a machine has one clock.
    fn push(&mut self, _: super::pushes::PushAct, _: bool) {}

    fn push_to_all(&mut self, _: usize, _: usize) {}

    fn strike(&mut self, fault: Fault) {
        let routers = self.plan.routers;
        let mortal = routers + library::contents().len();
        let fault = match fault {
            Fault::Crash { node, down, .. } => Fault::Crash {
                node: (usize::from(node) % mortal) as u8,
                down,
                skew_s: 0,
            },
            Fault::Clock {
                node,
                ahead,
                drift_ppm,
            } => {
                let router = usize::from(node) % routers;
                self.net.set_clock(router, ahead, drift_ppm.into());
                for program in self.programs_of(router) {
                    self.net.set_clock(program, ahead, drift_ppm.into());
                }
                return;
            }
            Fault::Outage { .. }
            | Fault::Hold { .. }
            | Fault::Impair { .. }
            | Fault::Mend { .. }
                if self.links.is_empty() =>
            {
                return;
            }
            other => other.on_link_below(self.links.len()),
        };
        if let Fault::Impair { link, percent } = fault {
            return self.impair(link.into(), percent);
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
        self.await_fetches(true)?;
        for node in self.fetches.keys().copied().collect::<Vec<_>>() {
            self.with_reader(node, |reader| reader.stalled = false);
        }
        self.await_fetches(false)?;
        self.run_for(IDLE)?;
        for router in 0..self.plan.routers {
            self.check_router(router)?;
        }
        self.report.events = self.net.sim().stats().events;
        Ok(self.report)
    }
}

impl Site {
    /// Builds the site of a schedule and lets its producers register for two seconds.
    pub(super) fn new(schedule: &Schedule) -> Site {
        let plan = Plan::of(schedule);
        let mut net = Net::new(schedule.seed);
        for router in 0..plan.routers {
            net.add(&format!("router {router}"), move |life, _| {
                plan.router(life)
            });
        }
        for content in 0..library::contents().len() {
            let name = format!("producer of content {content}");
            net.add(&name, move |life, _| producer(content, life));
        }
        let wire = LinkSpec::new(20_000_000, Duration::from_millis(5))
            .with_queue(QueueLimit::Packets(100));
        let link = DuplexLink::symmetric(wire);
        let mut site = Site {
            net,
            plan,
            links: Vec::new(),
            programs: BTreeMap::new(),
            fetches: BTreeMap::new(),
            paused: vec![false; plan.hosts],
            agenda: Agenda::default(),
            report: Report::default(),
        };
        for (a, b) in plan.links() {
            let connection = site.connect(a, b, &link);
            site.links.push((a, b, connection));
        }
        for router in 0..plan.routers {
            site.route(router);
        }
        for content in 0..library::contents().len() {
            site.start_program(plan.routers + content, plan.home(content));
        }
        // A site without faults cannot break a promise; if it does, the first step finds it.
        let _ = site.run_for(Duration::from_secs(2));
        site
    }

    fn connect(&mut self, a: usize, b: usize, link: &DuplexLink) -> Connection {
        match self.net.connect(a, b, link) {
            Ok(connection) => connection,
            Err(fault) => unreachable!("a link of torture makes no sense: {fault}"),
        }
    }

    fn start_program(&mut self, node: usize, router: usize) {
        let connection = None;
        self.programs.insert(node, Program { router, connection });
        self.attach(node);
    }

    /// Has a program connect to its router, if both run and it has not done so.
    fn attach(&mut self, node: usize) {
        let Some(program) = self.programs.get(&node) else {
            return;
        };
        let (router, attached) = (program.router, program.connection.is_some());
        if attached || !self.net.is_running(node) || !self.net.is_running(router) {
            return;
        }
        let link = DuplexLink {
            mtu: LOCAL_FRAME,
            packets: true,
            ..DuplexLink::local()
        };
        let connection = self.connect(node, router, &link);
        if let Some(program) = self.programs.get_mut(&node) {
            program.connection = Some(connection);
        }
    }

    /// The kernel closes a connection when the process at one end is gone.
    fn detach(&mut self, node: usize) {
        let program = self.programs.get_mut(&node);
        let connected = program.and_then(|it| Some((it.router, it.connection.take()?)));
        if let Some((router, connection)) = connected {
            let (program, router) = (self.net.id(node), self.net.id(router));
            self.net.sim_mut().close_port(program, connection.a);
            self.net.sim_mut().close_port(router, connection.b);
        }
    }

    /// Adds a router's static routes.
    fn route(&mut self, router: usize) {
        let mut hops: Vec<(PortId, usize)> = Vec::new();
        for (a, b, connection) in &self.links {
            if *a == router {
                hops.push((connection.a, *b));
            } else if *b == router {
                hops.push((connection.b, *a));
            }
        }
        let plan = self.plan;
        self.net.with(router, |machine, _| {
            let Some(machine) = machine.get_mut::<NdnRouter>() else {
                return;
            };
            for (port, peer) in hops {
                let Some(face) = machine.face_of(port) else {
                    continue;
                };
                let fib = machine.forwarder_mut().fib_mut();
                for content in 0..library::contents().len() {
                    if let Some(cost) = plan.cost(router, peer, content) {
                        // Cannot fail: a name of one component is not too long.
                        let _ = fib.add_next_hop(prefix(content).as_ref(), face, cost);
                    }
                }
            }
        });
    }

    /// Returns a program itself, or the programs of a router.
    fn programs_of(&self, node: usize) -> Vec<usize> {
        let programs = self.programs.iter();
        programs
            .filter(|(program, it)| **program == node || it.router == node)
            .map(|(program, _)| *program)
            .collect()
    }

    fn handle(&mut self, node: usize, event: FetchEvent) -> Result<(), Breach> {
        let Some(fetch) = self.fetches.get_mut(&node) else {
            return Ok(()); // Cancelled.
        };
        let (host, content) = (fetch.host, fetch.content);
        let known = &library::contents()[content];
        match event {
            FetchEvent::Segment {
                offset,
                content: bytes,
                ..
            } => {
                let end = offset + bytes.len() as u64;
                if end > known.len() || known.bytes(offset, end) != bytes {
                    return Err(Breach::WrongBytes { host, content });
                }
                if !fetch.parts.add(offset, end) {
                    return Err(Breach::Twice { host, content });
                }
            }
            FetchEvent::Done(_) => {
                let (got, len) = (fetch.parts.got(), known.len());
                if got != len {
                    return Err(Breach::Incomplete {
                        host,
                        content,
                        got,
                        len,
                    });
                }
                self.report.completed += 1;
                self.end(node);
            }
            FetchEvent::Failed { .. } => {
                let repeated = fetch.repeated + 1;
                self.report.repeated += 1;
                self.end(node);
                let again = Again {
                    host,
                    content,
                    repeated,
                };
                self.agenda.add(self.net.now() + ASK_AGAIN, again);
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends a fetch whose program is gone.
    fn end(&mut self, node: usize) {
        self.fetches.remove(&node);
        self.detach(node);
        self.programs.remove(&node);
        self.net.crash(node);
    }

    fn with_reader(&mut self, node: usize, call: impl FnOnce(&mut Reader)) {
        self.net.with(node, |machine, _| {
            if let Some(reader) = machine.get_mut::<Reader>() {
                call(reader);
            }
        });
    }

    fn is_stalled(&self, node: usize) -> bool {
        let reader = self.net[node].get::<Reader>();
        reader.is_some_and(|reader| reader.stalled)
    }

    /// Waits for all fetches to end; for stalled ones only unless `only_fast`.
    fn await_fetches(&mut self, only_fast: bool) -> Result<(), Breach> {
        let ended = self.net.now();
        loop {
            let mut fetches = self.fetches.iter();
            let busy = fetches.find(|(node, _)| !(only_fast && self.is_stalled(**node)));
            let again = self.agenda.first();
            if busy.is_none() && again.is_none() {
                return Ok(());
            }
            let waited = self.net.now().since(ended);
            if waited >= PATIENCE {
                let stuck = busy.map(|(_, fetch)| Breach::Stuck {
                    host: fetch.host,
                    content: fetch.content,
                    got: fetch.parts.got(),
                    len: library::contents()[fetch.content].len(),
                    waited_s: waited.as_secs(),
                    repeated: fetch.repeated,
                });
                let again = again.map(|it| it.stuck(waited.as_secs()));
                return stuck.or(again).map_or(Ok(()), Err);
            }
            self.run_for(Duration::from_secs(1))?;
            let waited = self.net.now().since(ended).as_secs_f64();
            self.report.slowest_s = self.report.slowest_s.max(waited);
        }
    }

    /// Frames between NDN routers have no checksum of their own: frames that UDP's checksum would
    /// reject are lost.
    fn impair(&mut self, link: usize, percent: u8) {
        for direction in Direction::BOTH {
            let spec = LinkSpec {
                corrupt: 0.0,
                ..impaired(self.net.healthy(link, direction), percent)
            };
            let id = self.net.link(link);
            let changed = self.net.sim_mut().set_link_spec(id, direction, &spec);
            if let Err(fault) = changed {
                unreachable!("a link of torture makes no sense: {fault}");
            }
        }
    }

    /// Checks that nothing is pending at an idle router, and that it has as many faces as at the
    /// start.
    fn check_router(&self, router: usize) -> Result<(), Breach> {
        let Some(machine) = self.net[router].get::<NdnRouter>() else {
            return Ok(());
        };
        let forwarder = machine.forwarder();
        let faces = || forwarder.faces().filter(|face| face.id() >= FaceId::FIRST);
        let mut queued = 0;
        for face in faces() {
            if let Some(link) = machine.link(face.id()) {
                let stats = link.stats();
                queued += stats.queue_packets + stats.outstanding;
            }
        }
        let links = self
            .links
            .iter()
            .filter(|(a, b, _)| [*a, *b].contains(&router));
        let expected = links.count() + self.programs_of(router).len();
        let left = [
            ("pending Interests", forwarder.pit().len()),
            ("nonces of dead Interests", forwarder.dead_nonces_len()),
            ("packets in queues", queued),
            (
                "faces too many or too few",
                faces().count().abs_diff(expected),
            ),
        ];
        match left.into_iter().find(|(_, count)| *count > 0) {
            Some((what, count)) => Err(Breach::Left {
                node: format!("router {router}"),
                count,
                what,
            }),
            None => Ok(()),
        }
    }
}
