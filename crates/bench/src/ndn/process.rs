//! The router of these measurements, a process of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use whimbrel_lab::{Program, Supervisor};

use crate::BenchError;

/// A router with a user's configuration, but without multicast and browsers, on a socket and a UDP
/// port of its own.
pub(super) struct RunningRouter {
    pub(super) process: Program,
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
        let process = Supervisor::new(folder).speaker(name, command)?;
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
