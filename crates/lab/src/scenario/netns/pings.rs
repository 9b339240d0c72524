//! Loads of echo requests: `whimbrel ping`, and the kernel's ICMP.

use std::process::Command;
use std::time::Instant;

use serde::Deserialize;

use super::daemons::socket_of;
use super::files::Receiver;
use crate::scenario::load::{PING_PATIENCE, Pings, Plane};
use crate::scenario::run::Pinged;
use crate::{LabError, Supervisor};

/// A line of `whimbrel ping --json`.
#[derive(Deserialize)]
struct Line {
    event: String,
    #[serde(default)]
    ms: serde_json::Value,
}

impl Receiver<'_> {
    /// Sends the load's requests until the last is answered, or given up.
    pub(super) fn ping(&self, pings: &Pings) -> Result<Pinged, LabError> {
        if !self.wait_until(self.origin + self.load.start) {
            return Ok(Pinged::default());
        }
        match self.load.plane {
            Plane::Tcp => self.ping_by_icmp(pings),
            _ => self.ping_by_program(pings),
        }
    }

    fn ping_by_icmp(&self, pings: &Pings) -> Result<Pinged, LabError> {
        let network = &self.plan.network;
        let [server, client] =
            [self.load.from, self.node].map(|node| network.nodes[node].name.as_str());
        let target = self.topology.address_towards(server, client)?;
        let host = self.topology.host(client)?;
        let report = host.ping(target, pings.count, pings.interval, PING_PATIENCE)?;
        Ok(Pinged {
            round_trips: report.round_trips,
        })
    }

    fn ping_by_program(&self, pings: &Pings) -> Result<Pinged, LabError> {
        let node = &self.plan.network.nodes[self.node].name;
        let name = self.served.first().map_or("", |served| &served.name);
        let mut command = Command::new(self.program);
        command.args(["ping", "--json", name, "--socket"]);
        command.arg(socket_of(self.folder, Plane::MobilityFirst, node));
        command.args(["--count", &pings.count.to_string()]);
        let interval = format!("{} us", pings.interval.as_micros());
        command.args(["--interval", &interval]);
        command.args(["--size", &pings.size.to_string()]);
        let supervisor = Supervisor::new(self.folder).on(self.topology.host(node)?);
        let log = format!("ping of {} on {node}", self.load.name);
        let mut program = supervisor.speaker(&log, command)?;
        let mut pinged = Pinged::default();
        let end = self.origin + self.plan.limit;
        for line in program.lines_until(end) {
            let Ok(line) = serde_json::from_str::<Line>(&line.text) else {
                continue;
            };
            if line.event == "pong"
                && let Some(ms) = line.ms.as_f64()
            {
                pinged.round_trips.push(ms / 1e3);
            }
        }
        if Instant::now() >= end {
            program.process().kill()?;
        }
        Ok(pinged)
    }
}
