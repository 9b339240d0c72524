//! Real programs in network namespaces: daemons, a served file, and its fetch.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use whimbrel_lab::{Namespace, Process, Topology, TopologyBuilder, lab_available};

use super::{PATIENCE, await_that_or, name_of, noise};

/// Machines and what runs on them. All ends with it.
pub(crate) struct Scene {
    folder: tempfile::TempDir,
    pub(crate) topology: Topology,
    pub(crate) daemons: Vec<Process>,
    /// Names of the logs, in the order of their beginning.
    begun: RefCell<Vec<String>>,
}

impl Scene {
    /// Returns `None`, and says so, where there are no network namespaces.
    pub(crate) fn build(wire: impl FnOnce(TopologyBuilder) -> TopologyBuilder) -> Option<Scene> {
        if !lab_available() {
            eprintln!("skipped: no network namespaces");
            return None;
        }
        Some(Scene {
            folder: tempfile::tempdir().unwrap(),
            topology: wire(TopologyBuilder::new(1)).build().unwrap(),
            daemons: Vec::new(),
            begun: RefCell::default(),
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the text of a file, empty if there is none.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn host(&self, name: &str) -> Namespace {
        self.topology.host(name).unwrap().clone()
    }

    pub(crate) fn interface(&self, host: &str, link: &str) -> String {
        self.topology.interface_of(host, link).unwrap()
    }

    pub(crate) fn address(&self, host: &str, link: &str) -> String {
        self.topology.address_of(host, link).unwrap().to_string()
    }

    /// Runs `ip` on a machine.
    pub(crate) fn ip(&self, host: &str, arguments: &str) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        self.host(host).run("ip", &arguments).unwrap();
    }

    /// A command in the scene's folder. Its state is in `LOG.state`.
    pub(crate) fn command(&self, log: &str, arguments: &[&str]) -> Command {
        let mut command = super::whimbrel();
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("XDG_STATE_HOME", self.path(&format!("{log}.state")))
            .env("HOME", self.path(&format!("{log}.state")))
            .env("WHIMBREL_LOG", "info");
        command
    }

    /// Starts it on a machine. Its output goes to `LOG.out`, its diagnostics to `LOG.log`.
    pub(crate) fn whimbrel(&self, host: &str, log: &str, arguments: &[&str]) -> Process {
        let file = |kind| fs::File::create(self.path(&format!("{log}.{kind}"))).unwrap();
        let mut command = self.command(log, arguments);
        command.stdout(file("out")).stderr(file("log"));
        let mut begun = self.begun.borrow_mut();
        if !begun.iter().any(|known| known == log) {
            begun.push(log.to_owned());
        }
        drop(begun);
        self.host(host).spawn(command).unwrap()
    }

    /// Runs a daemon with the configuration, key and socket that are called after it.
    pub(crate) fn run(&self, at: &str, kind: &str, name: &str) -> Process {
        let [config, key, socket] = ["toml", "pem", "sock"].map(|it| format!("{name}.{it}"));
        let arguments = [
            kind, "run", "--json", "--config", &config, "--key", &key, "--socket", &socket,
        ];
        self.whimbrel(at, name, &arguments)
    }

    /// Runs a daemon with this configuration, and waits for its socket.
    pub(crate) fn daemon(&mut self, at: &str, kind: &str, name: &str, config: &str) {
        fs::write(self.path(&format!("{name}.toml")), config).unwrap();
        let daemon = self.run(at, kind, name);
        self.daemons.push(daemon);
        let socket = self.path(&format!("{name}.sock"));
        self.await_that("a socket", || socket.exists());
    }

    /// Writes noise into a file. Returns its name.
    pub(crate) fn file(&self, path: &str, length: u64, seed: u64) -> String {
        let bytes = noise(length as usize, seed);
        fs::write(self.path(path), &bytes).unwrap();
        name_of(&bytes)
    }

    /// Serves a file at a host, and waits until it is announced.
    pub(crate) fn serve(&mut self, at: &str, host: &str, file: &str) {
        let (log, socket) = (format!("serve-{file}"), format!("{host}.sock"));
        let arguments = ["serve", "--json", "--no-cache", "--socket", &socket, file];
        let serve = self.whimbrel(at, &log, &arguments);
        self.daemons.push(serve);
        self.await_that("the announcement", || {
            self.text(&format!("{log}.out")).contains("Registered")
        });
    }

    /// Fetches through a host's socket into `arrived`; the log is `get`.
    pub(crate) fn get(&self, at: &str, host: &str, name: &str) -> Process {
        let socket = format!("{host}.sock");
        let arguments = ["get", name, "--json", "-o", "arrived", "--socket", &socket];
        self.whimbrel(at, "get", &arguments)
    }

    /// Returns the bytes that have arrived, by the report of `get`.
    pub(crate) fn arrived(&self) -> u64 {
        let bytes = |line: &str| {
            let line: Value = serde_json::from_str(line).ok()?;
            let progress = line["progress"]["bytes"].as_u64();
            progress.or(line["fetched"]["length"].as_u64())
        };
        self.text("get.out")
            .lines()
            .rev()
            .find_map(bytes)
            .unwrap_or(0)
    }

    pub(crate) fn await_bytes(&self, bytes: u64) {
        self.await_that("the transfer's middle", || self.arrived() >= bytes);
    }

    /// Waits for the end of `get`, which has fetched `file`.
    pub(crate) fn finish(&self, mut get: Process, file: &str) {
        let status = get.wait_for(PATIENCE).unwrap();
        let done = status.is_some_and(|status| status.success());
        assert!(done, "{status:?}\n{}", self.logs());
        let same = fs::read(self.path("arrived")).unwrap() == fs::read(self.path(file)).unwrap();
        assert!(same, "other bytes arrived");
    }

    pub(crate) fn await_that(&self, what: &str, is_so: impl FnMut() -> bool) {
        await_that_or(what, is_so, || self.logs());
    }

    pub(crate) fn logs(&self) -> String {
        let begun = self.begun.borrow();
        let log = |name: &String| format!("--- {name}\n{}", self.text(&format!("{name}.log")));
        begun.iter().map(log).collect()
    }
}

/// A link's section: where inbound peers are accepted.
pub(crate) const LISTEN: &str =
    "[[link]]\nlabel = \"callers\"\nbind = \"0.0.0.0:4711\"\nlisten = true\n";

/// A link's section; `remote` needs a port if it is an address.
pub(crate) fn link(label: &str, remote: &str) -> String {
    format!("[[link]]\nlabel = \"{label}\"\nremote = \"{remote}\"\n")
}
