//! Whimbrel's programs, in namespaces and on the loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use whimbrel_lab::supervisor::START_PATIENCE;
use whimbrel_lab::{Namespace, Program, Supervisor};

use crate::{BenchError, BenchOptions};

const ROUTER_PORT: u16 = 4711;

/// A program, and a folder for its keys, sockets and logs.
#[derive(Clone, Copy)]
pub(crate) struct Programs<'a> {
    pub(crate) program: &'a Path,
    pub(crate) folder: &'a Path,
}

/// Servers that are ready, and the command that fetches.
pub(crate) struct Ready {
    /// Each with its role.
    pub(crate) servers: Vec<(&'static str, Program)>,
    pub(crate) fetch: Command,
}

impl Programs<'_> {
    /// Two processes: one that serves a file at `address`, and one that fetches from it directly.
    pub(crate) fn whimbrel_directly(
        &self,
        serving: &Namespace,
        address: Ipv4Addr,
        [file, output]: [&Path; 2],
        plain: bool,
    ) -> Result<Ready, BenchError> {
        let at = format!("{address}:{ROUTER_PORT}");
        let mut serve = vec!["serve", "--json", "--no-cache", "--listen", &at];
        serve.extend(plain.then_some("--plain"));
        let (process, line) = self.await_line(serving, &serve, &[file], "\"listening\"")?;
        let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let mut fetch = Command::new(self.program);
        fetch
            .args(["get", "--json", "--from", &at])
            .args(plain.then_some("--plain"))
            .arg("-o")
            .arg(output);
        fetch.arg(line["names"][0].as_str().unwrap_or_default());
        Ok(Ready {
            servers: vec![("serve", process)],
            fetch,
        })
    }

    /// Starts this program on a host and waits for a line that contains `word`.
    pub(crate) fn await_line(
        &self,
        host: &Namespace,
        arguments: &[&str],
        paths: &[&Path],
        word: &str,
    ) -> Result<(Program, String), BenchError> {
        let name = arguments
            .iter()
            .take(2)
            .copied()
            .collect::<Vec<_>>()
            .join("-");
        let mut command = Command::new(self.program);
        command.args(arguments).args(paths);
        let process = Supervisor::new(self.folder)
            .on(host)
            .speaker(&name, command)?;
        let line = process.ready(word)?;
        Ok((process, line))
    }
}

/// A router's daemon that ends when it is dropped.
pub(crate) struct RunningRouter {
    pub(crate) process: Program,
    pub(crate) address: SocketAddr,
}

impl RunningRouter {
    /// Starts a router on the loopback, with this configuration.
    pub(crate) fn start(
        options: &BenchOptions,
        folder: &Path,
        text: &str,
    ) -> Result<RunningRouter, BenchError> {
        let file = folder.join("router.toml");
        std::fs::write(&file, text)
            .map_err(BenchError::system(format!("write {}", file.display())))?;
        let mut command = Command::new(&options.program);
        command
            .args([
                "router",
                "run",
                "--json",
                "--listen",
                "127.0.0.1:0",
                "--config",
            ])
            .arg(&file);
        command
            .arg("--key")
            .arg(folder.join("key"))
            .arg("--socket")
            .arg(folder.join("socket"));
        let process = Supervisor::new(folder).speaker("router", command)?;
        let address = process.find_line(START_PATIENCE, "where it listens", |line| {
            let opened: Value = serde_json::from_str(line).ok()?;
            opened["links"]["listen-0"].as_str()?.parse().ok()
        })?;
        Ok(RunningRouter { process, address })
    }
}
