//! Loads of contents that their receivers have not requested: `whimbrel push` or `message`, and
//! `whimbrel inbox`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::daemons::socket_of;
use super::files::{Files, Receiver, compare};
use crate::scenario::load::{Plane, Pushes};
use crate::scenario::run::Schedule;
use crate::{LabError, Program, Supervisor, TransferMeter, TransferRecord};

/// A line of `whimbrel inbox --json`.
#[derive(Deserialize)]
struct Line {
    event: String,
    file_name: Option<String>,
    text: Option<String>,
}

/// The times at which contents were sent.
pub(super) type Started = Mutex<Vec<Option<Instant>>>;

/// How long the inbox is listened to before it is asked whether the run is over.
const LOOK: Duration = Duration::from_millis(100);

impl Receiver<'_> {
    /// Has the source push contents at their times, and takes them.
    pub(super) fn push_all(&self, schedule: &Schedule, pushes: &Pushes) -> Result<Files, LabError> {
        let own = self.own_folder(self.node)?;
        let to = self.guid()?;
        let mut inbox = self.inbox(self.node, &own, &[])?;
        let files = self.push_while(schedule, &to, pushes, |started| {
            self.take(&inbox, &own, pushes, started)
        });
        inbox.process().kill()?;
        files
    }

    /// Has the source push contents at their times to a host or a group, while `take` takes them.
    pub(super) fn push_while<T>(
        &self,
        schedule: &Schedule,
        to: &str,
        pushes: &Pushes,
        take: impl FnOnce(&Started) -> T,
    ) -> T {
        let started = Mutex::new(vec![None; schedule.at.len()]);
        let start = self.origin + self.load.start;
        std::thread::scope(|scope| {
            for (number, at) in schedule.at.iter().enumerate() {
                let started = &started;
                let moment = start + Duration::from_secs_f64(*at);
                scope.spawn(move || {
                    if !self.wait_until(moment) {
                        return Ok(());
                    }
                    let now = Instant::now();
                    lock(started)[number] = Some(now);
                    self.push(number, to, pushes)
                });
            }
            take(&started)
        })
    }

    /// Reads what the inbox says until it has everything, or the run is cut off.
    pub(super) fn take(
        &self,
        inbox: &Program,
        own: &Path,
        pushes: &Pushes,
        started: &Started,
    ) -> Result<Files, LabError> {
        let end = self.origin + self.plan.limit;
        let count = lock(started).len();
        let mut arrived = vec![None; count];
        while Instant::now() < end && arrived.iter().any(Option::is_none) {
            let Some(line) = inbox.line(LOOK)? else {
                continue;
            };
            let at = line.at;
            let Ok(line) = serde_json::from_str::<Line>(&line.text) else {
                continue;
            };
            let name = match line.event.as_str() {
                "received" => line.file_name,
                "message" => line.text,
                _ => None,
            };
            let Some(number) = name.as_deref().and_then(|name| self.number_of(name)) else {
                continue;
            };
            let Some(place) = arrived.get_mut(number) else {
                continue;
            };
            if place.replace(at).is_some() {
                let transfer = self.name_of(number);
                let reason = String::from("it came twice");
                return Err(LabError::TransferFailed { transfer, reason });
            }
            if !pushes.message {
                compare(&self.served[number].path, &own.join(self.name_of(number)))?;
            }
        }
        let begun = lock(started)
            .iter()
            .copied()
            .zip(arrived)
            .collect::<Vec<_>>();
        let files = begun
            .into_iter()
            .filter_map(|(begin, arrived)| Some(self.arrival(begin?, arrived, pushes.size)));
        Ok(files.collect())
    }

    /// Returns when a content was sent, from the load's start on, and its record.
    pub(super) fn arrival(
        &self,
        begin: Instant,
        arrived: Option<Instant>,
        size: u64,
    ) -> (f64, TransferRecord) {
        let mut meter = TransferMeter::new(begin);
        if let Some(at) = arrived {
            meter.arrived(at, size);
        }
        let record = meter.finish(arrived.unwrap_or_else(Instant::now), arrived.is_some());
        let asked = begin.saturating_duration_since(self.origin + self.load.start);
        (asked.as_secs_f64(), record)
    }

    /// Pushes one content until the network has it, or the run is cut off.
    fn push(&self, number: usize, to: &str, pushes: &Pushes) -> Result<(), LabError> {
        let node = &self.plan.network.nodes[self.load.from].name;
        let name = self.name_of(number);
        let mut command = Command::new(self.program);
        match pushes.message {
            true => command.arg("message").arg(text(&name, pushes.size)),
            false => command
                .args(["push", "--name", &name])
                .arg(&self.served[number].path),
        };
        command.args(["--json", "--to", to, "--socket"]);
        command.arg(socket_of(self.folder, Plane::MobilityFirst, node));
        if let Some(chunk) = self.load.chunk {
            command.args(["--chunk-size", &format!("{} B", chunk.bytes())]);
        }
        let supervisor = Supervisor::new(self.folder).on(self.topology.host(node)?);
        let mut program = supervisor.speaker(&format!("push of {name}"), command)?;
        let end = self.origin + self.plan.limit;
        // Until its output ends.
        program.lines_until(end).for_each(drop);
        if Instant::now() >= end {
            program.process().kill()?;
        }
        Ok(())
    }

    /// Starts the inbox of a receiver, with more arguments.
    pub(super) fn inbox(
        &self,
        node: usize,
        own: &Path,
        more: &[&str],
    ) -> Result<Program, LabError> {
        let node = &self.plan.network.nodes[node].name;
        let mut command = Command::new(self.program);
        command.args(["inbox", "--json", "--from", "anyone", "--socket"]);
        command.arg(socket_of(self.folder, Plane::MobilityFirst, node));
        command.arg("-o").arg(own).args(more);
        let supervisor = Supervisor::new(self.folder).on(self.topology.host(node)?);
        supervisor.speaker(&format!("inbox of {} on {node}", self.load.name), command)
    }

    /// Makes the folder for what a receiver takes.
    pub(super) fn own_folder(&self, node: usize) -> Result<PathBuf, LabError> {
        let node = &self.plan.network.nodes[node].name;
        let own = self.folder.join(format!("inbox-{}-{node}", self.load.name));
        std::fs::create_dir_all(&own)
            .map_err(LabError::system(format!("make {}", own.display())))?;
        Ok(own)
    }

    /// Returns the name of the receiving host.
    fn guid(&self) -> Result<String, LabError> {
        let node = &self.plan.network.nodes[self.node].name;
        let mut command = Command::new(self.program);
        command.args(["host", "status", "--json", "--socket"]);
        command.arg(socket_of(self.folder, Plane::MobilityFirst, node));
        let output = command
            .output()
            .map_err(LabError::system("ask a host for its name"))?;
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(status["guid"].as_str().unwrap_or_default().to_owned())
    }

    fn name_of(&self, number: usize) -> String {
        format!("{}-{number}", self.load.name)
    }

    /// Returns the number of a content from the name that it came with, or from a message's text.
    fn number_of(&self, name: &str) -> Option<usize> {
        let first = name.split(' ').next()?;
        let number = first.strip_prefix(&self.load.name)?.strip_prefix('-')?;
        number.parse().ok()
    }
}

/// Returns a message of `size` bytes that begins with its name.
fn text(name: &str, size: u64) -> String {
    let mut text = format!("{name} ");
    while (text.len() as u64) < size {
        text.push('.');
    }
    text
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
