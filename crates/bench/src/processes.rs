//! Whimbrel's programs in namespaces.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use whimbrel_lab::{Namespace, Program, Supervisor};

use crate::BenchError;

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
