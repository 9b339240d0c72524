//! Contents for groups: by `whimbrel push --to group:NAME`, and by programs of IP multicast.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::daemons::socket_of;
use super::files::{Files, Receiver, compare};
use super::rivals::{GROUP, Member, ProgramUse};
use crate::scenario::load::{MulticastProgram, Plane, Pushes};
use crate::scenario::run::Schedule;
use crate::supervisor::{Line, START_PATIENCE, is_installed};
use crate::{LabError, Program, Supervisor};

/// How often the members are looked up until all have joined.
const LOOK: Duration = Duration::from_millis(200);

/// The files of each receiver, by its node.
pub(super) type GroupFiles = Vec<(usize, Files)>;

impl Receiver<'_> {
    /// Has the source send to all receivers of the load at once, and takes what comes to each.
    pub(super) fn push_to_group(
        &self,
        schedule: &Schedule,
        pushes: &Pushes,
    ) -> Result<GroupFiles, LabError> {
        match pushes.by {
            Some(program) => self.send_by(program, pushes),
            None => self.push_to_members(schedule, pushes),
        }
    }

    fn push_to_members(
        &self,
        schedule: &Schedule,
        pushes: &Pushes,
    ) -> Result<GroupFiles, LabError> {
        let admission = self.load.admission().to_string();
        let group = self.load.group_keys().guid();
        let mut inboxes = Vec::new();
        for node in &self.load.to {
            let own = self.own_folder(*node)?;
            let inbox = self.inbox(*node, &own, &["--group", &admission])?;
            inboxes.push((*node, own, inbox));
        }
        self.await_members(&group.to_string(), inboxes.len())?;
        let take = |(node, own, inbox): &(usize, PathBuf, Program), started: &_| {
            Ok((*node, self.take(inbox, own, pushes, started)?))
        };
        let to = format!("group:{group}");
        let taken = self.push_while(schedule, &to, pushes, |started| {
            let each = inboxes.iter().map(|inbox| take(inbox, started));
            each.collect::<Result<GroupFiles, LabError>>()
        });
        for (_, _, inbox) in &mut inboxes {
            inbox.process().kill()?;
        }
        taken
    }

    /// Waits until the source finds all members in the name service.
    fn await_members(&self, group: &str, count: usize) -> Result<(), LabError> {
        let node = &self.plan.network.nodes[self.load.from].name;
        let end = Instant::now() + START_PATIENCE;
        loop {
            let mut command = Command::new(self.program);
            command.args(["group", "members", group, "--json", "--socket"]);
            command.arg(socket_of(self.folder, Plane::MobilityFirst, node));
            let output = command
                .output()
                .map_err(LabError::system("ask for the members of a group"))?;
            let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let found = report["members"].as_array().map_or(0, Vec::len);
            if found == count {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(LabError::TransferFailed {
                    transfer: self.load.name.clone(),
                    reason: format!("{found} of {count} members have joined"),
                });
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Has a program of IP multicast send the load's file.
    fn send_by(&self, program: MulticastProgram, pushes: &Pushes) -> Result<GroupFiles, LabError> {
        let nodes = std::iter::once(self.load.from).chain(self.load.to.iter().copied());
        let names: Vec<&str> = nodes
            .map(|node| self.plan.network.nodes[node].name.as_str())
            .collect();
        let _routes = self.topology.route_group(GROUP, &names)?;
        let way = ProgramUse {
            program,
            rate: pushes.rate.map(|rate| rate.0),
        };
        let mut receiving = Vec::new();
        for (number, node) in self.load.to.iter().enumerate() {
            let member = self.member(number + 1, *node)?;
            let receiver = self.speaker(*node, way.receive(&member))?;
            receiving.push((*node, member, receiver));
        }
        for (_, _, receiver) in &receiving {
            receiver.await_word(way.ready_word(), START_PATIENCE)?;
        }
        self.wait_until(self.origin + self.load.start);
        let file = &self.served[0].path;
        let source = self.member(0, self.load.from)?;
        let begin = Instant::now();
        let members = receiving.len();
        let mut sender = self.speaker(self.load.from, way.send(&source, file, members))?;
        let end = self.origin + self.plan.limit;
        let begin = match way.start_word() {
            None => Some(begin),
            Some(word) => line_with(&sender, word, end).map(|line| line.at),
        };
        // udpcast can wait for a registration that was lost until the end: nobody has the file then.
        if begin.is_none() && sender.process().try_wait()?.is_some() {
            return Err(sender.fault("did not start to send"));
        }
        let begin = begin.unwrap_or(end);
        let mut files = GroupFiles::new();
        let mut taken: Vec<PathBuf> = Vec::new();
        for (node, member, receiver) in &receiving {
            let line = line_with(receiver, way.arrival_word(), end);
            let arrived = line.as_ref().map(|line| line.at - way.arrival_delay());
            taken.extend(line.map(|line| way.path(member, file, &line.text)));
            files.push((*node, vec![self.arrival(begin, arrived, pushes.size)]));
        }
        sender.process().kill()?;
        for path in taken {
            compare(file, &path)?;
        }
        Ok(files)
    }

    fn member(&self, number: usize, node: usize) -> Result<Member, LabError> {
        let name = &self.plan.network.nodes[node].name;
        let link = self.plan.network.at(node).next();
        let (link, _) =
            link.ok_or_else(|| LabError::BadTopology(format!("'{name}' has no link")))?;
        let link = &self.plan.network.links[link].name;
        Ok(Member {
            number,
            interface: self.topology.interface_of(name, link)?,
            folder: self.own_folder(node)?,
        })
    }

    /// Starts a program of which standard error is read, too.
    fn speaker(&self, node: usize, words: Vec<String>) -> Result<Program, LabError> {
        let name = &self.plan.network.nodes[node].name;
        let program = words.first().map_or("", String::as_str);
        if !is_installed(program) {
            let missing = std::io::ErrorKind::NotFound.into();
            return Err(crate::error::spawn_error(program, missing));
        }
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 2>&1"]).args(&words);
        let supervisor = Supervisor::new(self.folder).on(self.topology.host(name)?);
        let file_name = Path::new(program).file_name().unwrap_or_default();
        let log = format!("{} on {name}", file_name.display());
        supervisor.speaker(&log, command)
    }
}

fn line_with(program: &Program, word: &str, end: Instant) -> Option<Line> {
    program
        .lines_until(end)
        .find(|line| line.text.contains(word))
}
