//! Programs of this bench, each a process of its own, that end when their handles are dropped.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{BenchError, cpu};

/// Time limit for a program's start.
const SETTLING: Duration = Duration::from_secs(60);

/// A program, and the lines of its standard output.
pub(super) struct Running {
    what: &'static str,
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
}

impl Running {
    /// Starts this program; `what` describes it, and names its log in `folder`.
    pub(super) fn start(
        what: &'static str,
        folder: &Path,
        mut command: Command,
    ) -> Result<Running, BenchError> {
        let log = folder.join(format!("{}.log", what.replace(' ', "-")));
        let file = std::fs::File::create(&log)
            .map_err(BenchError::system(format!("write {}", log.display())))?;
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file);
        let mut child = command
            .spawn()
            .map_err(BenchError::system(format!("start the {what}")))?;
        let (sender, lines) = std::sync::mpsc::channel();
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Running {
            what,
            child,
            lines,
            log,
        })
    }

    /// The next line, within `patience`; `None` if there was none.
    pub(super) fn line(&self, patience: Duration) -> Result<Option<String>, BenchError> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.fault("ended early")),
        }
    }

    /// The next line that contains `word`, within `patience`.
    pub(super) fn await_word(&self, word: &str, patience: Duration) -> Result<String, BenchError> {
        let deadline = Instant::now() + patience;
        while let Some(line) = self.line(deadline.saturating_duration_since(Instant::now()))? {
            if line.contains(word) {
                return Ok(line);
            }
        }
        Err(self.fault(&format!(
            "did not say \"{word}\" within {} s",
            patience.as_secs()
        )))
    }

    /// The next line that contains `word`, within the time limit for starts.
    pub(super) fn ready(&self, word: &str) -> Result<String, BenchError> {
        self.await_word(word, SETTLING)
    }

    /// Processor time so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64, BenchError> {
        cpu::of_process(self.child.id()).map(|time| time.as_secs_f64())
    }

    /// Resident memory in bytes.
    pub(super) fn resident_bytes(&self) -> Result<u64, BenchError> {
        let path = format!("/proc/{}/status", self.child.id());
        let text =
            std::fs::read_to_string(&path).map_err(BenchError::system(format!("read {path}")))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
            .map(|kibibytes| kibibytes << 10)
            .ok_or_else(|| self.fault("has ended"))
    }

    fn fault(&self, what: &str) -> BenchError {
        let said = crate::processes::last_words(&self.log);
        BenchError::Side {
            what: format!("the {} {what}", self.what),
            said,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A router with a user's configuration, but without multicast and browsers, on a socket and a UDP
/// port of its own.
pub(super) struct RunningRouter {
    pub(super) process: Running,
    pub(super) socket: PathBuf,
    pub(super) udp: SocketAddr,
}

impl RunningRouter {
    /// Starts a router. `name` is one word for its files; `route` is the next hop of its default
    /// route.
    pub(super) fn start(
        program: &Path,
        folder: &Path,
        name: &'static str,
        route: Option<SocketAddr>,
    ) -> Result<RunningRouter, BenchError> {
        let config = folder.join(format!("{name}.toml"));
        std::fs::write(&config, "[ndn]\nmulticast = false\nwebsocket = []\n")
            .map_err(BenchError::system(format!("write {}", config.display())))?;
        let socket = folder.join(format!("{name}.sock"));
        let mut command = Command::new(program);
        command
            .args([
                "router",
                "run",
                "--json",
                "--ndn-listen",
                "127.0.0.1:0",
                "--config",
            ])
            .arg(config);
        command.arg("--ndn-socket").arg(&socket);
        if let Some(next) = route {
            command.args(["--ndn-route", &format!("/=udp4://{next}")]);
        }
        let process = Running::start(name, folder, command)?;
        let line = process.ready("\"ndn\"")?;
        let opened: Value = serde_json::from_str(&line).unwrap_or_default();
        match opened["ndn"]["udp"][0]
            .as_str()
            .and_then(|address| address.parse().ok())
        {
            Some(udp) => Ok(RunningRouter {
                process,
                socket,
                udp,
            }),
            None => Err(BenchError::Side {
                what: format!("the {name} opened no UDP socket"),
                said: line,
            }),
        }
    }
}
