//! Whimbrel's programs in namespaces, for the transfers of all parts.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_lab::{Namespace, Process};

use crate::BenchError;

const ROUTER_PORT: u16 = 4711;
const NAME_SERVER_PORT: u16 = 4720;
/// Time limit for a program's start. It hashes a file of gigabytes in that time.
const SETTLING: Duration = Duration::from_secs(60);

/// A program, and a folder for its keys, sockets and logs.
#[derive(Clone, Copy)]
pub(crate) struct Programs<'a> {
    pub(crate) program: &'a Path,
    pub(crate) folder: &'a Path,
}

/// Servers that are ready, and the command that fetches.
pub(crate) struct Ready {
    /// Each with its role.
    pub(crate) servers: Vec<(&'static str, Process)>,
    pub(crate) fetch: Command,
}

impl Programs<'_> {
    /// Two processes: one that serves a file at `address`, and one that fetches from it directly.
    pub(crate) fn whimbrel_directly(
        &self,
        serving: &Namespace,
        address: Ipv4Addr,
        file: &Path,
        output: &Path,
    ) -> Result<Ready, BenchError> {
        let at = format!("{address}:{ROUTER_PORT}");
        let serve = ["serve", "--json", "--no-cache", "--listen", &at];
        let (process, line) = self.await_line(serving, &serve, &[file], "\"listening\"")?;
        let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let mut fetch = Command::new(self.program);
        fetch
            .args(["get", "--json", "--from", &at, "-o"])
            .arg(output);
        fetch.arg(line["names"][0].as_str().unwrap_or_default());
        Ok(Ready {
            servers: vec![("serve", process)],
            fetch,
        })
    }

    /// The minimal set of processes that move a file over a router: a name server and a router on
    /// the client's side, which is reached at `address`, the serving program on the other one, and
    /// the fetching program.
    pub(crate) fn whimbrel(
        &self,
        serving: &Namespace,
        fetching: &Namespace,
        address: Ipv4Addr,
        file: &Path,
        output: &Path,
    ) -> Result<Ready, BenchError> {
        let (router, names) = (
            format!("{address}:{ROUTER_PORT}"),
            format!("{address}:{NAME_SERVER_PORT}"),
        );
        let mut servers = Vec::new();
        let gnrs = [
            "gnrs", "serve", "--json", "--store", "memory", "--listen", &names,
        ];
        servers.push((
            "name server",
            self.await_line(fetching, &gnrs, &[], "links")?.0,
        ));
        let run = [
            "router",
            "run",
            "--json",
            "--listen",
            &router,
            "--name-server",
            &names,
            "--key",
        ];
        let (key, socket) = (
            self.folder.join("router.pem"),
            self.folder.join("router.sock"),
        );
        let run_paths = [key.as_path(), Path::new("--socket"), &socket];
        servers.push((
            "router",
            self.await_line(fetching, &run, &run_paths, "links")?.0,
        ));
        let serve = ["serve", "--json", "--no-cache", "--router", &router];
        let (process, line) = self.await_line(serving, &serve, &[file], "\"Registered\"")?;
        servers.push(("serve", process));
        let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let mut fetch = Command::new(self.program);
        fetch
            .args(["get", "--json", "--router", &router, "-o"])
            .arg(output);
        fetch.arg(line["name"].as_str().unwrap_or_default());
        Ok(Ready { servers, fetch })
    }

    /// Starts this program on a host and waits for a line that contains `word`. Its standard error
    /// goes to a file named after it.
    pub(crate) fn await_line(
        &self,
        host: &Namespace,
        arguments: &[&str],
        paths: &[&Path],
        word: &str,
    ) -> Result<(Process, String), BenchError> {
        let name = arguments
            .iter()
            .take(2)
            .copied()
            .collect::<Vec<_>>()
            .join("-");
        let said = self.folder.join(format!("{name}.log"));
        let log =
            File::create(&said).map_err(BenchError::system(format!("write {}", said.display())))?;
        let mut command = Command::new(self.program);
        command
            .args(arguments)
            .args(paths)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        let mut process = host.spawn(command)?;
        match process
            .take_stdout()
            .and_then(|output| line_with(output, word))
        {
            Some(line) => Ok((process, line)),
            None => Err(BenchError::Side {
                what: format!(
                    "'whimbrel {name}' was not ready within {} s",
                    SETTLING.as_secs()
                ),
                said: last_words(&said),
            }),
        }
    }
}

/// The first line that contains `word`, if it comes in time.
fn line_with(output: ChildStdout, word: &str) -> Option<String> {
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Reads on until the program ends, so that its output never blocks it.
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
pub(crate) fn last_words(log: &Path) -> String {
    const MOST: usize = 600;
    let text = std::fs::read(log).unwrap_or_default();
    let start = text.len().saturating_sub(MOST);
    String::from_utf8_lossy(&text[start..]).trim().to_owned()
}
