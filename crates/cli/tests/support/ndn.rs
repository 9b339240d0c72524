//! An NDN router on its own sockets, and the programs that use it.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{Running, finished, metrics_page, sum_of, whimbrel};

/// Reads until the other end closes.
pub(crate) fn read_to_end(stream: &mut impl Read) -> Vec<u8> {
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return answer,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) => {
                let reset = std::io::ErrorKind::ConnectionReset;
                assert_eq!(error.kind(), reset, "the connection has ended");
                return answer;
            }
        }
    }
}

/// A router on its own sockets, and a home for the programs that use it.
pub(crate) struct Router {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) process: Running,
    /// The sockets that it reports.
    pub(crate) opened: Value,
}

impl Router {
    pub(crate) fn start() -> Router {
        Router::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Router {
        Router::configured("", arguments)
    }

    /// Starts a router. `settings` go into `[ndn]`, with any further sections after it.
    pub(crate) fn configured(settings: &str, arguments: &[&str]) -> Router {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("router.toml");
        fs::write(&config, format!("[ndn]\nmulticast = false\n{settings}")).unwrap();
        let mut command = whimbrel();
        command
            .args(["router", "run", "--json", "--config"])
            .arg(&config);
        command
            .arg("--ndn-socket")
            .arg(folder.path().join("nfd.sock"));
        command
            .args([
                "--ndn-listen",
                "127.0.0.1:0",
                "--ndn-websocket",
                "127.0.0.1:0",
            ])
            .args(arguments);
        let process = Running::start(&mut command);
        let line = process.await_json(|value| value.get("ndn").is_some());
        let mut opened = line["ndn"].clone();
        opened["metrics"] = line["metrics"].clone();
        Router {
            folder,
            process,
            opened,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn udp(&self) -> String {
        format!("udp4://{}", self.opened["udp"][0].as_str().unwrap())
    }

    pub(crate) fn tcp(&self) -> String {
        format!("tcp4://{}", self.opened["tcp"][0].as_str().unwrap())
    }

    /// Returns a command with the addresses of this router and its user's home.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = whimbrel();
        command
            .env(
                "NDN_CLIENT_TRANSPORT",
                format!("unix://{}", self.path("nfd.sock").display()),
            )
            .env("HOME", self.folder.path())
            .env_remove("WHIMBREL_KEYCHAIN")
            .args(arguments);
        command
    }

    /// Returns the output of a command that must succeed.
    pub(crate) fn prints(&self, arguments: &[&str]) -> String {
        let (code, out, errors) = finished(&mut self.command(arguments));
        assert_eq!(code, 0, "{arguments:?}\n{out}\n{errors}");
        out
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let out = self.prints(&[arguments, &["--json"]].concat());
        serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap()
    }

    /// Returns the exit code and error output of a command that must fail.
    pub(crate) fn fails(&self, arguments: &[&str]) -> (i32, String) {
        let (code, out, errors) = finished(&mut self.command(arguments));
        assert_ne!(code, 0, "{arguments:?}\n{out}");
        (code, errors)
    }

    /// Returns the sum of a metric's members whose line contains `label`, of a router with
    /// `--metrics`.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let page = metrics_page(self.opened["metrics"].as_str().unwrap());
        sum_of(&page, name, label)
    }

    /// Starts a program that registers a prefix. Returns when it has registered.
    pub(crate) fn producer(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(&[arguments, &["--json"]].concat());
        let process = Running::start(&mut command);
        process.await_json(|value| value["event"] == "registered");
        process
    }

    /// Runs `ndn serve` with these bytes.
    pub(crate) fn serve(&self, name: &str, content: &[u8], more: &[&str]) -> Running {
        let path = self.path(&format!("{}.content", name.replace('/', "_")));
        fs::write(&path, content).unwrap();
        self.producer(&[&["ndn", "serve", name, path.to_str().unwrap()], more].concat())
    }
}
