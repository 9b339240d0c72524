//! The back end in namespaces: the program's own daemons and the kernel's TCP, over emulated links in
//! real time.

mod daemons;

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use whimbrel_sim::link::LinkSpec;

use super::Plan;
use super::event::{Action, Timed};
use super::load::{Kind, Load, Plane};
use super::run::{LinkCounts, Run, Schedule};
use crate::study::Backend;
use crate::{LabError, TcpBaseline, Topology, TopologyBuilder, TransferRecord};
use daemons::Daemons;

/// Refuses what this back end cannot do yet.
pub fn check(plan: &Plan) -> Result<(), LabError> {
    let refuse = |what| Err(LabError::not_played(Backend::Netns, what));
    for load in &plan.loads {
        if !matches!(load.kind, Kind::File(_)) {
            return refuse(format!(
                "play the load '{}': it plays single files",
                load.name
            ));
        }
    }
    for timed in &plan.timeline {
        if let Action::EmptyCache(node) = timed.action {
            let name = &plan.network.nodes[node].name;
            return refuse(format!("empty the cache of '{name}'"));
        }
    }
    Ok(())
}

/// Runs a plan with the daemons of `program`.
pub fn run(plan: &Plan, seed: u64, program: &Path) -> Result<Run, LabError> {
    check(plan)?;
    let folder = tempfile::tempdir().map_err(LabError::system("make a temporary folder"))?;
    let topology = build(plan, seed)?;
    let mut daemons = Daemons::start(plan, seed, program, folder.path(), &topology)?;
    let names = daemons.serve()?;
    let origin = Instant::now();
    topology.arm(origin)?;
    let fetches: Vec<(usize, usize)> = plan
        .loads
        .iter()
        .enumerate()
        .flat_map(|(index, load)| load.to.iter().map(move |receiver| (index, *receiver)))
        .collect();
    let fetched = std::thread::scope(|scope| {
        let (sender, ended) = mpsc::channel();
        for (index, receiver) in &fetches {
            let fetch = Fetch {
                plan,
                load: &plan.loads[*index],
                receiver: *receiver,
                name: &names[*index],
                origin,
                program,
                folder: folder.path(),
                topology: &topology,
            };
            let sender = sender.clone();
            scope.spawn(move || sender.send(fetch.run()));
        }
        drop(sender);
        play(plan, origin, &topology, &mut daemons, &ended, fetches.len())
    })?;
    let mut run = Run::default();
    for (index, receiver, asked, record) in fetched {
        let load = &plan.loads[index];
        let wanted = Schedule::of(load, seed).and_then(|schedule| schedule.total());
        run.add_files(&plan.network, load, receiver, vec![(asked, record)], wanted);
    }
    for report in topology.link_reports()? {
        let mut counts = LinkCounts::default();
        for way in [&report.forward, &report.backward] {
            counts.bytes += way.transmitted_bytes;
            counts.packets += way.delivered;
            counts.lost += way.dropped_loss + way.dropped_outage;
            counts.dropped += way.dropped_queue;
        }
        run.add_link(&report.link, counts);
    }
    Ok(run)
}

fn build(plan: &Plan, seed: u64) -> Result<Topology, LabError> {
    let network = &plan.network;
    let mtu = network.links.iter().map(|link| link.mtu).min();
    let mut builder = TopologyBuilder::new(seed).mtu(mtu.unwrap_or(1500));
    for node in &network.nodes {
        builder = builder.host(&node.name);
    }
    for link in &network.links {
        let [a, b] = [link.ends.0, link.ends.1].map(|end| network.nodes[end].name.as_str());
        builder = builder.link(
            &link.name,
            a,
            b,
            link.forward.clone(),
            link.backward.clone(),
        );
    }
    builder.build()
}

/// A fetch's load, receiver, seconds from the load's start to the request, and record.
type Fetched = (usize, usize, f64, TransferRecord);

/// Plays the timeline until all fetches have ended.
fn play(
    plan: &Plan,
    origin: Instant,
    topology: &Topology,
    daemons: &mut Daemons<'_>,
    ended: &mpsc::Receiver<Result<Fetched, LabError>>,
    wanted: usize,
) -> Result<Vec<Fetched>, LabError> {
    let mut fetched = Vec::with_capacity(wanted);
    let mut timeline = plan.timeline.iter().peekable();
    while fetched.len() < wanted {
        while let Some(Timed { action, .. }) =
            timeline.next_if(|timed| origin + timed.at <= Instant::now())
        {
            act(plan, topology, daemons, action)?;
        }
        let next = timeline.peek().map_or(plan.limit, |timed| timed.at);
        let wait = (origin + next).saturating_duration_since(Instant::now());
        match ended.recv_timeout(wait.max(Duration::from_millis(1))) {
            Ok(fetch) => fetched.push(fetch?),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(fetched)
}

fn act(
    plan: &Plan,
    topology: &Topology,
    daemons: &mut Daemons<'_>,
    action: &Action,
) -> Result<(), LabError> {
    let link = |index: &usize| plan.network.links[*index].name.as_str();
    match action {
        Action::Cut(index) => topology.set_outage(link(index), true),
        Action::Restore(index) => topology.set_outage(link(index), false),
        Action::Change(index, specs) => {
            let (a, b) = plan.network.links[*index].ends;
            let set = |sender: usize, spec: &LinkSpec| {
                topology.set_spec(link(index), &plan.network.nodes[sender].name, spec)
            };
            set(a, &specs.0)?;
            set(b, &specs.1)
        }
        Action::Crash(node) => daemons.kill(*node),
        Action::Restart(node) => daemons.run(*node),
        // `check` has refused it.
        Action::EmptyCache(_) => Ok(()),
    }
}

/// One receiver that fetches one load's file.
struct Fetch<'a> {
    plan: &'a Plan,
    load: &'a Load,
    receiver: usize,
    /// What it asks for: a content's name, an NDN name, or the path of the file itself.
    name: &'a str,
    origin: Instant,
    program: &'a Path,
    folder: &'a Path,
    topology: &'a Topology,
}

impl Fetch<'_> {
    fn run(self) -> Result<Fetched, LabError> {
        let start = self.origin + self.load.start;
        std::thread::sleep(start.saturating_duration_since(Instant::now()));
        let started = Instant::now();
        let asked = started.saturating_duration_since(start).as_secs_f64();
        let end = self.origin + self.plan.limit;
        let patience = end.saturating_duration_since(started);
        let record = match self.load.plane {
            Plane::Tcp => self.by_tcp(patience)?,
            _ => self.by_program(started, patience)?,
        };
        let load = self.plan.loads.iter().position(|load| load == self.load);
        Ok((load.unwrap_or_default(), self.receiver, asked, record))
    }

    fn by_tcp(&self, patience: Duration) -> Result<TransferRecord, LabError> {
        let network = &self.plan.network;
        let [server, client] =
            [self.load.from, self.receiver].map(|node| network.nodes[node].name.as_str());
        let baseline = TcpBaseline {
            patience,
            ..TcpBaseline::default()
        };
        let fetched = baseline.fetch(
            self.topology.host(server)?,
            self.topology.address_towards(server, client)?,
            self.topology.host(client)?,
            Path::new(self.name),
            &mut (),
        )?;
        Ok(fetched.record)
    }

    fn by_program(&self, started: Instant, patience: Duration) -> Result<TransferRecord, LabError> {
        let node = &self.plan.network.nodes[self.receiver].name;
        let output = self
            .folder
            .join(format!("arrived-{}-{node}", self.load.name));
        let command = daemons::get(
            self.program,
            self.folder,
            self.load.plane,
            node,
            self.name,
            &output,
        );
        let mut process = self.topology.host(node)?.spawn(command)?;
        let record = crate::daemons::watch_get(&mut process, started, patience, &mut ())?
            .map_err(|failure| LabError::daemon("get", &failure, self.folder))?;
        if record.completed {
            daemons::compare(&daemons::file_of(self.folder, &self.load.name), &output)?;
        }
        Ok(record)
    }
}
