//! The back end in namespaces: the program's own daemons and the kernel's TCP, over emulated links
//! in real time.

mod browser;
mod configuration;
mod daemons;
mod files;
mod get;
mod groups;
pub mod observe;
mod pings;
mod proxies;
mod pushes;
mod requests;
pub(crate) mod rivals;
mod web;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use whimbrel_link::ndnlp::PaperOptions;
use whimbrel_sim::link::LinkSpec;

use super::Plan;
use super::event::{Action, Timed};
use super::fault::Refusal;
use super::link::{Carrier, Recovery};
use super::load::{Kind, Plane};
use super::node::Role;
use super::run::{LinkCounts, Run, Schedule};
use crate::study::Backend;
use crate::{LabError, LinkReport, Topology, TopologyBuilder, scratch};
use daemons::socket_of;
use files::{Received, Receiver};
use observe::{Observed, Observer};

pub use daemons::Daemons;
pub use files::Served;
pub use requests::Consumer;

/// Bound of the files of a load: each takes programs that serve and fetch it.
const MAX_FILES: usize = 200;

/// Refuses a plan with a feature that this back end lacks.
pub fn check(plan: &Plan) -> Result<(), LabError> {
    refusal(plan).map_or(Ok(()), |refusal| Err(refusal.of(Backend::Netns)))
}

/// Returns the first feature that this back end lacks, and the key that asks for it.
pub(super) fn refusal(plan: &Plan) -> Option<Refusal> {
    for load in &plan.loads {
        let name = &load.name;
        let refuse = |key, what| Some(Refusal::new(["loads", name, key], what));
        let schedule = Schedule::of(load, 0);
        let total = schedule.as_ref().and_then(Schedule::total);
        if total.is_some_and(|total| total > MAX_FILES) {
            let key = match load.kind {
                Kind::Page(_) => "page",
                Kind::Web(_) => "web",
                _ => "flows",
            };
            let what = format!("run more than {MAX_FILES} files of the load '{name}'");
            return refuse(key, what);
        }
        for (key, given) in [
            ("content", load.content.is_some()),
            ("segments", load.segments.is_some()),
        ] {
            if given {
                return refuse(key, format!("play '{name}' with '{key}'"));
            }
        }
        if load.kind == Kind::Bulk && load.plane == Plane::Ndn {
            let what = format!("run '{name}', whose repeated files caches would answer,");
            return refuse("bulk", what);
        }
    }
    for node in &plan.network.nodes {
        if node.settings.admits.is_some() {
            let what = format!("have '{}' admit a share of Data", node.name);
            return Some(Refusal::new(["nodes", &node.name, "admits"], what));
        }
    }
    for node in &plan.network.nodes {
        if node.settings.reorder_budget.is_some() {
            let what = format!("give '{}' another reordering budget", node.name);
            return Some(Refusal::new(["nodes", &node.name, "reorder_budget"], what));
        }
    }
    for link in &plan.network.links {
        let name = &link.name;
        let refuse = |key, what| Some(Refusal::new(["links", name, key], what));
        if link.carrier == Carrier::Bare {
            return refuse(
                "carrier",
                format!("put frames of '{name}' on the wire bare"),
            );
        }
        if link.device {
            return refuse("device", format!("model the devices of the link '{name}'"));
        }
        if matches!(link.recovery, Recovery::Paper1 | Recovery::Paper2) {
            let what = format!("bound the retransmissions of the link '{name}'");
            return refuse("recovery", what);
        }
        let text = PaperOptions::default();
        if (link.later_acks, link.acks_together) != (text.later_acks, text.acks_together) {
            let what = format!("read the paper otherwise than its text on the link '{name}'");
            return refuse("later_acks", what);
        }
        if !link.marking {
            let what = format!("switch off marking on the link '{name}'");
            return refuse("marking", what);
        }
    }
    super::proxies::refusal(plan)
}

/// Runs a plan with the daemons of `program`.
pub fn run(plan: &Plan, seed: u64, program: &Path) -> Result<Run, LabError> {
    observe(plan, seed, program, &()).map(|observed| observed.run)
}

/// Runs a plan and reports to an observer.
pub fn observe(
    plan: &Plan,
    seed: u64,
    program: &Path,
    observer: &dyn Observer,
) -> Result<Observed, LabError> {
    check(plan)?;
    let folder = scratch::folder("whimbrel-lab-")?;
    let topology = topology(plan, seed)?;
    let mut daemons = Daemons::start(plan, seed, program, folder.path(), &topology)?;
    let served = daemons.serve(observer)?;
    let origin = Instant::now();
    topology.arm(origin)?;
    observer.begins(origin, &|node| {
        let name = &plan.network.nodes[node].name;
        socket_of(folder.path(), Plane::MobilityFirst, name)
    });
    let over = AtomicBool::new(false);
    let fetches: Vec<Receiver<'_>> = plan
        .loads
        .iter()
        .zip(&served)
        .enumerate()
        .flat_map(|(index, (load, served))| {
            let programs = if load.is_for_group() {
                1
            } else {
                load.to.len()
            };
            let receivers = load.to.iter().take(programs);
            receivers.map(move |node| (index, load, *node, served))
        })
        .map(|(index, load, node, served)| Receiver {
            plan,
            observer,
            index,
            load,
            node,
            schedule: Schedule::of(load, seed),
            seed,
            over: &over,
            served,
            origin,
            program,
            folder: folder.path(),
            topology: &topology,
        })
        .collect();
    let mut stage = RunStage {
        plan,
        observer,
        origin,
        topology: &topology,
        daemons: &mut daemons,
        // The links were armed at the origin, so that a run without a warm-up needs no mark.
        before: plan.warm_up.is_zero().then(Vec::new),
    };
    let fetched = stage.play_all(&fetches, &over)?;
    std::thread::sleep(plan.linger);
    // Before the status of daemons is requested, which takes time.
    let links = topology.link_reports()?;
    let mut run = Run::default();
    // A run that ended in its warm-up has counted nothing.
    let before = stage.before.unwrap_or_else(|| counts(&links));
    for (index, report) in links.iter().enumerate() {
        let before = before.get(index).copied().unwrap_or_default();
        run.add_link(&report.link, count(report).since(before));
    }
    for (index, received) in fetched {
        fetches[index].add(&mut run, received);
    }
    for role in [Role::Router, Role::Host] {
        for node in plan.network.with_role(role) {
            run.add_node(
                &plan.network.nodes[node].name,
                &daemons.status(role.name(), node),
            );
        }
    }
    for node in plan.network.with_role(Role::TcpProxy) {
        let count = |counter: &str| daemons.proxy_status(node)["counters"][counter].as_u64();
        if let (Some(interests), Some(data)) = (count("out_interests"), count("out_data")) {
            run.add_proxy(&plan.network.nodes[node].name, interests, data);
        }
    }
    Ok(Observed { run, links })
}

/// Returns the nodes and links of a plan, with no program on them.
pub fn topology(plan: &Plan, seed: u64) -> Result<Topology, LabError> {
    let network = &plan.network;
    let mut builder = TopologyBuilder::new(seed);
    for node in &network.nodes {
        builder = builder.host(&node.name);
    }
    for link in &network.links {
        let [a, b] = [link.ends.0, link.ends.1].map(|end| network.nodes[end].name.as_str());
        let (forward, backward) = (link.forward.clone(), link.backward.clone());
        builder = builder.mtu(link.mtu);
        builder = match link.emulated {
            true => builder.link(&link.name, a, b, forward, backward),
            false => builder.veth(&link.name, a, b),
        };
    }
    builder.build()
}

/// The number of a receiver, and its results.
type Fetched = (usize, Received);

fn counts(reports: &[LinkReport]) -> Vec<LinkCounts> {
    reports.iter().map(count).collect()
}

fn count(report: &LinkReport) -> LinkCounts {
    let mut counts = LinkCounts::default();
    for (index, way) in [&report.forward, &report.backward].into_iter().enumerate() {
        counts.bytes += way.transmitted_bytes;
        counts.delivered[index] = way.delivered_bytes;
        counts.packets += way.delivered;
        counts.lost += way.dropped_loss + way.dropped_outage;
        counts.dropped += way.dropped_queue;
        counts.marked += way.marked;
    }
    counts
}

/// A network on which the timeline is performed.
struct RunStage<'a, 'd> {
    plan: &'a Plan,
    observer: &'a dyn Observer,
    origin: Instant,
    topology: &'a Topology,
    daemons: &'a mut Daemons<'d>,
    /// Counters of links at the end of the warm-up.
    before: Option<Vec<LinkCounts>>,
}

impl RunStage<'_, '_> {
    /// Performs the timeline while all receivers run, each in a thread of its own.
    fn play_all(
        &mut self,
        receivers: &[Receiver<'_>],
        over: &AtomicBool,
    ) -> Result<Vec<Fetched>, LabError> {
        std::thread::scope(|scope| {
            let (sender, ended) = mpsc::channel();
            for (index, receiver) in receivers.iter().enumerate() {
                let sender = sender.clone();
                scope.spawn(move || sender.send(receiver.run().map(|got| (index, got))));
            }
            drop(sender);
            let endless: Vec<bool> = receivers.iter().map(Receiver::is_endless).collect();
            let played = self.play(&ended, &endless, over);
            if played.is_err() {
                over.store(true, Ordering::Relaxed);
                // Otherwise the scope would wait for the other receivers until their patience ends.
                let hosts = self.topology.host_names();
                let hosts = hosts.filter_map(|name| self.topology.host(name).ok());
                hosts.for_each(crate::Namespace::shut_down);
            }
            played
        })
    }

    /// Performs the timeline until all receivers have ended. Those without an end are stopped when
    /// the others have ended; if there are no others, they end with the run's limit.
    fn play(
        &mut self,
        ended: &mpsc::Receiver<Result<Fetched, LabError>>,
        endless: &[bool],
        over: &AtomicBool,
    ) -> Result<Vec<Fetched>, LabError> {
        let plan = self.plan;
        let mut awaited = endless.iter().filter(|endless| !**endless).count();
        let mut fetched: Vec<Fetched> = Vec::with_capacity(endless.len());
        let mut timeline = plan.timeline.iter().peekable();
        let mut look = self
            .observer
            .links_every()
            .map(|every| (Duration::ZERO, every));
        while fetched.len() < endless.len() {
            if self.before.is_none() && self.origin + plan.warm_up <= Instant::now() {
                self.before = Some(counts(&self.topology.link_reports()?));
            }
            while let Some(Timed { action, .. }) =
                timeline.next_if(|timed| self.origin + timed.at <= Instant::now())
            {
                self.act(action)?;
            }
            if let Some((due, every)) = &mut look
                && self.origin + *due <= Instant::now()
            {
                let elapsed = self.origin.elapsed();
                self.observer.links(elapsed, &self.topology.link_reports()?);
                // Looks that are late are not made up for.
                while *due <= elapsed {
                    *due += *every;
                }
            }
            let warm = self.before.is_none().then_some(plan.warm_up);
            let next = timeline
                .peek()
                .map(|timed| timed.at)
                .into_iter()
                .chain(warm)
                .chain(look.map(|(due, _)| due));
            let next = next.min().unwrap_or(plan.limit);
            let wait = (self.origin + next).saturating_duration_since(Instant::now());
            match ended.recv_timeout(wait.max(Duration::from_millis(1))) {
                Ok(fetch) => {
                    let fetch = fetch?;
                    if !endless[fetch.0] {
                        awaited -= 1;
                        over.store(awaited == 0, Ordering::Relaxed);
                    }
                    fetched.push(fetch);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(fetched)
    }

    fn act(&mut self, action: &Action) -> Result<(), LabError> {
        let (plan, topology) = (self.plan, self.topology);
        let link = |index: &usize| plan.network.links[*index].name.as_str();
        match action {
            Action::Cut(index) => topology.set_outage(link(index), true),
            Action::Restore(index) => topology.set_outage(link(index), false),
            Action::Carrier { node, link, works } => {
                let (node, link) = (&plan.network.nodes[*node], &plan.network.links[*link]);
                topology.set_carrier(&node.name, &link.name, *works)
            }
            Action::Prefer { node, link } => self.daemons.prefer(*node, *link),
            Action::Change(index, specs) => {
                let (a, b) = plan.network.links[*index].ends;
                let set = |sender: usize, spec: &LinkSpec| {
                    topology.set_spec(link(index), &plan.network.nodes[sender].name, spec)
                };
                set(a, &specs.0)?;
                set(b, &specs.1)
            }
            Action::Crash(node) => self.daemons.kill(*node),
            Action::Restart(node) => self.daemons.run(*node),
            Action::EmptyCache(node) => self.daemons.empty_cache(*node),
        }
    }
}
