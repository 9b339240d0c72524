//! Whimbrel's own programs on the hosts of a topology: the same binary and commands that a user
//! runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use crate::supervisor::START_PATIENCE;
use crate::{
    Fig7, LabError, Program, Supervisor, Topology, TransferMeter, TransferObserver, TransferRecord,
};

const ROUTER_PORT: u16 = 4711;
const NAME_SERVER_PORT: u16 = 4720;
const ROUTER_CONFIG: &str = "router.toml";
/// How long daemons may take to find each other and attach.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// The daemons of the testbed of [MFTP §5]: a name server beside the routers, routers on N2 and N3,
/// hosts on N1 and N4, and a program on N1 that serves a file.
pub struct Fig7Daemons<'a> {
    program: PathBuf,
    folder: PathBuf,
    topology: &'a Topology,
    settings: Fig7Settings,
    // Held for their lives: a process that is dropped is killed.
    running: Vec<Program>,
}

/// What the daemons and the client of a [`Fig7Daemons`] are told beyond their defaults.
#[derive(Clone, Debug, Default)]
pub struct Fig7Settings {
    /// A configuration file of both routers; flags add their links and name server. Empty for none.
    pub router_config: String,
    /// The client's end-to-end timer; `None` for its host's own.
    pub nack_timeout: Option<Duration>,
}

/// A node that can be killed and started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// The name server.
    NameServer,
    /// N2's or N3's router.
    Router(u8),
    /// N1's or N4's host.
    Host(u8),
}

impl Daemon {
    fn name(self) -> String {
        match self {
            Daemon::NameServer => String::from("gnrs"),
            Daemon::Router(node) | Daemon::Host(node) => format!("n{node}"),
        }
    }

    fn host(self) -> String {
        match self {
            Daemon::NameServer => Fig7::NAME_SERVER.to_owned(),
            Daemon::Router(node) | Daemon::Host(node) => format!("N{node}"),
        }
    }
}

/// A line that `whimbrel get --json` or `whimbrel ndn get --json` prints.
#[derive(Deserialize)]
struct GetLine {
    event: String,
    progress: Option<GetProgress>,
    fetched: Option<GetFetched>,
    stats: Option<NdnStats>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct NdnStats {
    bytes: u64,
}

#[derive(Deserialize)]
struct GetProgress {
    bytes: u64,
    resumed: u64,
}

#[derive(Deserialize)]
struct GetFetched {
    received: u64,
}

impl<'a> Fig7Daemons<'a> {
    /// Starts all daemons with `program` and waits until both hosts are registered. Keys, sockets
    /// and logs are kept in `folder`.
    pub fn start(
        program: &Path,
        topology: &'a Topology,
        folder: &Path,
    ) -> Result<Fig7Daemons<'a>, LabError> {
        Fig7Daemons::start_with(program, topology, folder, Fig7Settings::default())
    }

    /// As [`Fig7Daemons::start`], with settings.
    pub fn start_with(
        program: &Path,
        topology: &'a Topology,
        folder: &Path,
        settings: Fig7Settings,
    ) -> Result<Fig7Daemons<'a>, LabError> {
        let mut daemons = Fig7Daemons {
            program: program.to_owned(),
            folder: folder.to_owned(),
            topology,
            settings,
            running: Vec::new(),
        };
        std::fs::write(daemons.path(ROUTER_CONFIG), &daemons.settings.router_config)
            .map_err(LabError::system("write the routers' configuration"))?;
        let all = [
            Daemon::NameServer,
            Daemon::Router(2),
            Daemon::Router(3),
            Daemon::Host(1),
            Daemon::Host(4),
        ];
        for daemon in all {
            daemons.run(daemon)?;
        }
        for host in [1, 4] {
            daemons.wait_until_registered(host)?;
        }
        Ok(daemons)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        command
    }

    /// Starts a daemon (again).
    pub fn run(&mut self, daemon: Daemon) -> Result<(), LabError> {
        let name = daemon.name();
        let command = match daemon {
            Daemon::NameServer => {
                let listen = format!("0.0.0.0:{NAME_SERVER_PORT}");
                let mut command = self.command(&["gnrs", "serve", "--listen", &listen, "--store"]);
                command.arg(self.path("records.redb"));
                command
            }
            Daemon::Router(node) => self.router_command(node)?,
            Daemon::Host(node) => self.host_command(node)?,
        };
        let program = self.on(&daemon.host())?.daemon(&name, command)?;
        self.running.push(program);
        Ok(())
    }

    fn on(&self, host: &str) -> Result<Supervisor<'_>, LabError> {
        Ok(Supervisor::new(&self.folder).on(self.topology.host(host)?))
    }

    fn router_command(&self, node: u8) -> Result<Command, LabError> {
        let listen = format!("0.0.0.0:{ROUTER_PORT}");
        let mut command = self.command(&["router", "run", "--listen", &listen, "--config"]);
        command.arg(self.path(ROUTER_CONFIG)).arg("--key");
        command
            .arg(self.path(&format!("n{node}.pem")))
            .arg("--socket")
            .arg(self.socket(node));
        let names = self
            .topology
            .address_of(Fig7::NAME_SERVER, &Fig7::name_server_wire(node))?;
        command.args(["--name-server", &format!("{names}:{NAME_SERVER_PORT}")]);
        if node == 3 {
            let n2 = self.topology.address_of("N2", Fig7::ROUTER_LINK)?;
            command.args(["--neighbour", &format!("{n2}:{ROUTER_PORT}")]);
        }
        Ok(command)
    }

    fn host_command(&self, node: u8) -> Result<Command, LabError> {
        let (router, link) = if node == 1 {
            ("N2", Fig7::SERVER_LINK)
        } else {
            ("N3", Fig7::LAST_HOP)
        };
        let address = self.topology.address_of(router, link)?;
        let mut command = self.command(&[
            "host",
            "run",
            "--router",
            &format!("{address}:{ROUTER_PORT}"),
            "--key",
        ]);
        command
            .arg(self.path(&format!("n{node}.pem")))
            .arg("--socket")
            .arg(self.socket(node));
        Ok(command)
    }

    /// The socket on which the daemon of N`node` answers.
    pub fn socket(&self, node: u8) -> PathBuf {
        self.path(&format!("n{node}.sock"))
    }

    /// Kills a daemon as `kill -9` does.
    pub fn kill(&mut self, daemon: Daemon) -> Result<(), LabError> {
        let name = daemon.name();
        for program in &mut self.running {
            if program.name() == name {
                program.process().kill()?;
            }
        }
        self.running.retain(|program| program.name() != name);
        Ok(())
    }

    fn wait_until_registered(&self, node: u8) -> Result<(), LabError> {
        let start = Instant::now();
        while start.elapsed() < READY_WITHIN {
            if let Ok(status) = self.status(node)
                && status["registered"] == Value::Bool(true)
            {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(LabError::daemon(
            &format!("n{node}"),
            "did not attach to its router",
            &self.folder,
        ))
    }

    /// What the daemon of N`node` says of itself.
    pub fn status(&self, node: u8) -> Result<Value, LabError> {
        let kind = if node == 2 || node == 3 {
            "router"
        } else {
            "host"
        };
        let mut command = self.command(&[kind, "status", "--json", "--socket"]);
        let output = command.arg(self.socket(node)).output();
        let output = output.map_err(LabError::system(format!("run {}", self.program.display())))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|_| LabError::daemon(&format!("n{node}"), "gave no status", &self.folder))
    }

    /// Serves `file` from N1 and waits until the name service knows of it. Answers with its name.
    pub fn serve(&mut self, file: &Path) -> Result<String, LabError> {
        let mut command = self.command(&["serve", "--socket"]);
        command.arg(self.socket(1)).arg(file);
        let program = self.on("N1")?.speaker("serve", command)?;
        let name = program.find_line(START_PATIENCE, "\"announced\"", |line| {
            let mut words = line.split_whitespace();
            let (name, state) = (words.next()?, words.next()?);
            (state == "announced").then(|| name.to_owned())
        })?;
        self.running.push(program);
        Ok(name)
    }

    /// Fetches a content to `output` with `whimbrel get` on N4.
    pub fn fetch(
        &self,
        name: &str,
        output: &Path,
        patience: Duration,
        observer: &mut dyn TransferObserver,
    ) -> Result<TransferRecord, LabError> {
        let mut command = self.command(&["get", "--json", name, "--socket"]);
        command.arg(self.socket(4)).arg("-o").arg(output);
        if let Some(timeout) = self.settings.nack_timeout {
            command.args(["--nack-timeout", &format!("{} ms", timeout.as_millis())]);
        }
        let resent_before = self.resent();
        let started = Instant::now();
        observer.started(started);
        let mut program = self.on("N4")?.speaker("get", command)?;
        let mut record = watch_get(&mut program, started, patience, observer)?
            .map_err(|failure| LabError::daemon("get", &failure, &self.folder))?;
        record.retransmitted_segments = self
            .resent()
            .zip(resent_before)
            .map(|(after, before)| after - before);
        Ok(record)
    }

    /// DATA frames that the daemons on the content's way have sent again.
    fn resent(&self) -> Option<u64> {
        [1, 2, 3].into_iter().try_fold(0, |sum, node| {
            Some(sum + frames_resent(&self.status(node).ok()?)?)
        })
    }
}

/// Follows a `get --json` or `ndn get --json` that was `started` until it ends or `patience` does,
/// which kills it. The inner error is what it said of itself.
pub(crate) fn watch_get(
    program: &mut Program,
    started: Instant,
    patience: Duration,
    observer: &mut dyn TransferObserver,
) -> Result<Result<TransferRecord, String>, LabError> {
    let mut meter = TransferMeter::new(started);
    let mut failure = None;
    let mut completed = false;
    for line in program.lines_until(started + patience) {
        let at = line.at;
        let Ok(line) = serde_json::from_str::<GetLine>(&line.text) else {
            continue;
        };
        let progress = line
            .progress
            .map(|progress| progress.bytes.saturating_sub(progress.resumed));
        // What came since the last line of progress is in the last line of all.
        let here = line.fetched.map(|fetched| fetched.received).or(progress);
        if let Some(here) = here.or(line.stats.map(|stats| stats.bytes)) {
            // A line may speak of a state alone; only bytes end a stall.
            let more = here.saturating_sub(meter.bytes());
            if more > 0 {
                meter.arrived(at, more);
            }
            observer.progress(at.saturating_duration_since(started), meter.bytes());
        }
        completed |= line.event == "done";
        failure = failure.or(line.error);
    }
    if let Some(failure) = failure {
        return Ok(Err(failure));
    }
    if !completed {
        program.process().kill()?;
    }
    Ok(Ok(meter.finish(Instant::now(), completed)))
}

/// DATA frames that a node has sent again, from what it says of itself.
pub(crate) fn frames_resent(status: &Value) -> Option<u64> {
    let links = status["links"].as_array()?;
    links
        .iter()
        .map(|link| link["hop"]["data_resent"].as_u64())
        .sum()
}
