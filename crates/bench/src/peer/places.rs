//! Which processes take part. Everything that starts one is here.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_lab::{Namespace, Process, Topology, TopologyBuilder};

use super::PeerCarrier;
use crate::BenchError;

const WIRE: &str = "A-B";
const ROUTER_PORT: u16 = 4711;
const NAME_SERVER_PORT: u16 = 4720;
const PEER_PORT: u16 = 4433;
/// How long a program may take until it serves. A file of gigabytes is hashed in that time.
const SETTLING: Duration = Duration::from_secs(60);

/// Who moves the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Whimbrel,
    Quinn,
    KernelTcp,
}

impl Side {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Side::Whimbrel => "Whimbrel",
            Side::Quinn => "quinn",
            Side::KernelTcp => "kernel TCP",
        }
    }
}

/// Two hosts, A which serves and B which fetches, with a veth pair between them.
pub(super) struct Places<'a> {
    pub(super) program: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) file: PathBuf,
    pub(super) topology: Topology,
    pub(super) mtu: u16,
}

/// A side whose servers are ready, and the command that fetches.
pub(super) struct Ready {
    pub(super) servers: Vec<Process>,
    pub(super) fetch: Command,
}

impl<'a> Places<'a> {
    pub(super) fn build(
        program: &'a Path,
        folder: &'a Path,
        file: PathBuf,
        mtu: u16,
        seed: u64,
    ) -> Result<Places<'a>, BenchError> {
        let builder = TopologyBuilder::new(seed).host("A").host("B").veth(WIRE, "A", "B");
        Ok(Places { program, folder, file, topology: builder.mtu(mtu.into()).build()?, mtu })
    }

    /// Where the file arrives.
    pub(super) fn output(&self) -> PathBuf {
        self.folder.join("arrived")
    }

    pub(super) fn fetching_host(&self) -> Result<&Namespace, BenchError> {
        Ok(self.topology.host("B")?)
    }

    /// Starts what serves on A and what has to run beside it on B.
    pub(super) fn start(&self, side: Side) -> Result<Ready, BenchError> {
        match side {
            Side::Whimbrel => self.whimbrel(),
            Side::Quinn => self.peer(PeerCarrier::Quic),
            Side::KernelTcp => self.peer(PeerCarrier::Tcp),
        }
    }

    /// The fewest processes that do it: a name server and a router on B, the serving host on A, the fetching one
    /// on B.
    fn whimbrel(&self) -> Result<Ready, BenchError> {
        let b = self.topology.address_of("B", WIRE)?;
        let (router, names) = (format!("{b}:{ROUTER_PORT}"), format!("{b}:{NAME_SERVER_PORT}"));
        let mut servers = Vec::new();
        let gnrs = ["gnrs", "serve", "--json", "--store", "memory", "--listen", &names];
        servers.push(self.await_line("B", &gnrs, &[], "links")?.0);
        let run = ["router", "run", "--json", "--listen", &router, "--name-server", &names, "--key"];
        let (key, socket) = (self.folder.join("router.pem"), self.folder.join("router.sock"));
        let run_paths = [key.as_path(), Path::new("--socket"), &socket];
        servers.push(self.await_line("B", &run, &run_paths, "links")?.0);
        let serve = ["serve", "--json", "--no-cache", "--router", &router];
        let (process, line) = self.await_line("A", &serve, &[&self.file], "\"Registered\"")?;
        servers.push(process);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let mut fetch = Command::new(self.program);
        fetch.args(["get", "--json", "--router", &router, "-o"]).arg(self.output());
        fetch.arg(line["name"].as_str().unwrap_or_default());
        Ok(Ready { servers, fetch })
    }

    fn peer(&self, carrier: PeerCarrier) -> Result<Ready, BenchError> {
        let address = format!("{}:{PEER_PORT}", self.topology.address_of("A", WIRE)?);
        let certificate = self.folder.join("certificate.der");
        let mtu = self.mtu.to_string();
        let command = |end| ["bench", end, "--carrier", carrier.name(), "--mtu", &mtu, "--address", &address];
        let paths = |file| [Path::new("--certificate"), certificate.as_path(), Path::new("--file"), file];
        let (server, _) = self.await_line("A", &command("peer-server"), &paths(&self.file), "listening")?;
        let mut fetch = Command::new(self.program);
        fetch.args(command("peer-client")).args(paths(&self.output()));
        Ok(Ready { servers: vec![server], fetch })
    }

    /// Starts this program on a host and waits for a line that holds `word`. What it says on standard error is
    /// kept in a file that is named after it.
    fn await_line(
        &self,
        host: &str,
        arguments: &[&str],
        paths: &[&Path],
        word: &str,
    ) -> Result<(Process, String), BenchError> {
        let name = arguments.iter().take(2).copied().collect::<Vec<_>>().join("-");
        let said = self.folder.join(format!("{name}.log"));
        let log = File::create(&said).map_err(BenchError::system(format!("write {}", said.display())))?;
        let mut command = Command::new(self.program);
        command.args(arguments).args(paths).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut process = self.topology.host(host)?.spawn(command)?;
        match process.take_stdout().and_then(|output| line_with(output, word)) {
            Some(line) => Ok((process, line)),
            None => Err(BenchError::Side {
                what: format!("'whimbrel {name}' was not ready within {} s", SETTLING.as_secs()),
                said: last_words(&said),
            }),
        }
    }
}

/// The first line that holds `word`, if it comes in time. The rest is read by nobody, and little.
fn line_with(output: ChildStdout, word: &str) -> Option<String> {
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Reads on until the program ends, so that it never waits for its reader.
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let deadline = Instant::now() + SETTLING;
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        if line.contains(word) {
            return Some(line);
        }
    }
    None
}

/// The end of a log.
pub(super) fn last_words(log: &Path) -> String {
    const MOST: usize = 600;
    let text = std::fs::read(log).unwrap_or_default();
    let start = text.len().saturating_sub(MOST);
    String::from_utf8_lossy(&text[start..]).trim().to_owned()
}
