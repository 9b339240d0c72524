//! Loads of Interests at a rate: `whimbrel ndn traffic server` answers them, and a program with the
//! simulator's consumer sends them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use whimbrel_core::SeededRng;
use whimbrel_io::Clock;
use whimbrel_ndn_packet::Name;
use whimbrel_node::ndn::client::{Client, ClientError, Told, Uplink, failed};

use super::daemons::{Daemons, socket_of};
use super::files::Receiver;
use crate::cbr::{CbrConsumer, CbrEvent};
use crate::scenario::load::{Kind, Load, Plane, Requests};
use crate::scenario::run::Exchanges;
use crate::{LabError, Supervisor};

/// Shortest interval of a consumer's lines, except for the last.
const SAY_EVERY: Duration = Duration::from_millis(50);
/// FreshnessPeriod of the Data, in milliseconds, as in the simulator.
const FRESHNESS_MS: u64 = 100;

/// The order of a consumer: the argument of `whimbrel lab consumer`, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Consumer {
    /// The Unix socket of its router.
    socket: PathBuf,
    /// The prefix of its Interests.
    prefix: String,
    requests: Requests,
    /// True if gaps are exponential.
    random: bool,
    seed: u64,
}

impl Consumer {
    /// Sends the Interests until all are answered. Calls `say` with the progress now and then, and
    /// at the end.
    pub fn run(&self, mut say: impl FnMut(&Exchanges)) -> Result<(), ClientError> {
        let requests = Requests {
            random: self.random,
            ..self.requests.clone()
        };
        let prefix: Name = self.prefix.parse().unwrap_or_default();
        let rng = SeededRng::stream(self.seed, "consumer");
        let consumer = CbrConsumer::new(requests.consumer(prefix), rng);
        let uplink = Uplink::Unix(self.socket.clone());
        let mut client = Client::new(uplink.clone(), Clock::start(), consumer)?;
        let begin = client.clock().now();
        let mut exchanges = Exchanges::default();
        let (mut said, mut gone) = (Instant::now(), false);
        client.run(|consumer, _, told| {
            match told {
                Told::Event(CbrEvent::Exchanged(exchanged)) => {
                    exchanges.answered += 1;
                    exchanges.delay += exchanged.answered.since(exchanged.first_sent).as_secs_f64();
                    exchanges.last = exchanged.answered.since(begin).as_secs_f64();
                }
                Told::Event(CbrEvent::Finished(_)) => exchanges.finished = true,
                // Its router may crash and come back.
                Told::Gone => gone = true,
                Told::Unreachable(error) if !gone => {
                    return ControlFlow::Break(Err(failed(&uplink, error)));
                }
                Told::Connected | Told::Unreachable(_) => {}
            }
            exchanges.retransmissions = consumer.stats().retransmissions;
            if exchanges.finished || said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                say(&exchanges);
            }
            match exchanges.finished {
                true => ControlFlow::Break(Ok(())),
                false => ControlFlow::Continue(()),
            }
        })?;
        Ok(())
    }
}

impl Daemons<'_> {
    /// Answers a load's Interests.
    pub(super) fn answer(&mut self, load: &Load, requests: &Requests) -> Result<(), LabError> {
        let path = self.folder.join(format!("traffic-{}.conf", load.name));
        let text = format!(
            "Name=/{}\nContentBytes={}\nFreshnessPeriod={FRESHNESS_MS}\n",
            load.name, requests.payload
        );
        std::fs::write(&path, text)
            .map_err(LabError::system(format!("write {}", path.display())))?;
        let uri = uri(&socket_of(self.folder, Plane::Ndn, self.name(load.from)));
        let mut command = self.command(&["ndn", "traffic", "server", "--json"]);
        command.args(["--transport", &uri]).arg(path);
        self.serving(load.from, command, |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["event"] == "registered").then(String::new)
        })
        .map(drop)
    }

    /// Erases all Data that a node's router has cached.
    pub(super) fn empty_cache(&self, node: usize) -> Result<(), LabError> {
        let uri = uri(&socket_of(self.folder, Plane::Ndn, self.name(node)));
        let mut command = self.command(&["cs", "erase", "/", "--transport", &uri]);
        let output = command
            .output()
            .map_err(LabError::system("run `whimbrel cs erase`"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let what = format!("did not empty its cache ({said})");
        Err(LabError::daemon(self.name(node), &what, self.folder))
    }
}

impl Receiver<'_> {
    /// Sends the load's Interests until all are answered or the run is over.
    pub(super) fn request(&self) -> Result<Exchanges, LabError> {
        let Kind::Requests(requests) = &self.load.kind else {
            return Ok(Exchanges::default());
        };
        let node = &self.plan.network.nodes[self.node].name;
        let consumer = Consumer {
            socket: socket_of(self.folder, Plane::Ndn, node),
            prefix: format!("/{}", self.load.name),
            requests: requests.clone(),
            random: requests.random,
            seed: self
                .seed
                .wrapping_add((self.index as u64) << 32 | self.node as u64),
        };
        let order = serde_json::to_string(&consumer).map_err(|error| LabError::System {
            action: "write a consumer's order".to_owned(),
            source: std::io::Error::other(error),
        })?;
        if !self.wait_until(self.origin + self.load.start) {
            return Ok(Exchanges::default());
        }
        let mut command = Command::new(self.program);
        command.args(["lab", "consumer", &order]);
        let name = format!("consumer of {} on {node}", self.load.name);
        let mut program = Supervisor::new(self.folder)
            .on(self.topology.host(node)?)
            .speaker(&name, command)?;
        let mut exchanges = Exchanges::default();
        for line in program.lines_until(self.origin + self.plan.limit) {
            exchanges = serde_json::from_str(&line.text).unwrap_or(exchanges);
        }
        if !exchanges.finished {
            if Instant::now() < self.origin + self.plan.limit {
                return Err(program.fault("ended before its Interests were answered"));
            }
            program.process().kill()?;
        }
        Ok(exchanges)
    }
}

fn uri(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}
