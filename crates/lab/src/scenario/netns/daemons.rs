//! The program's own daemons on the nodes of a plan.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use whimbrel_core::Guid;
use whimbrel_node::config::{Config, GNRS_PORT};

use crate::scenario::Plan;
use crate::scenario::load::Plane;
use crate::scenario::node::Role;
use crate::supervisor::START_PATIENCE;
use crate::web::WebServer;
use crate::{LabError, Program, Supervisor, Topology, scratch};

/// Time limit for daemons to find each other and attach.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Returns the socket on which a node's daemon is reached.
pub(super) fn socket_of(folder: &Path, plane: Plane, node: &str) -> PathBuf {
    folder.join(format!(
        "{node}.{}",
        if plane == Plane::Ndn { "nfd" } else { "sock" }
    ))
}

/// Returns the name that a node's configuration gives to a link.
pub(super) fn label(link: &str) -> String {
    format!("to-{link}")
}

/// All daemons of a run. Dropping them kills them.
pub struct Daemons<'a> {
    pub(super) plan: &'a Plan,
    pub(super) seed: u64,
    program: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) topology: &'a Topology,
    /// The names of routers, for routes between them.
    pub(super) guids: BTreeMap<usize, Guid>,
    // Kept alive: a process that is dropped is killed.
    running: Vec<(usize, Program)>,
    serving: Vec<Program>,
    pub(super) web_servers: Vec<WebServer>,
}

impl<'a> Daemons<'a> {
    /// Starts all daemons and waits until hosts are registered and sockets answer. `folder` holds
    /// keys, sockets and logs.
    pub fn start(
        plan: &'a Plan,
        seed: u64,
        program: &'a Path,
        folder: &'a Path,
        topology: &'a Topology,
    ) -> Result<Daemons<'a>, LabError> {
        let mut daemons = Daemons {
            plan,
            seed,
            program,
            folder,
            topology,
            guids: BTreeMap::new(),
            running: Vec::new(),
            serving: Vec::new(),
            web_servers: Vec::new(),
        };
        for router in plan.network.with_role(Role::Router) {
            let path = daemons.key(router);
            let key = whimbrel_node::keys::create(&path).map_err(|error| LabError::System {
                action: format!("make the key {}", path.display()),
                source: std::io::Error::other(error),
            })?;
            daemons.guids.insert(router, key.guid());
        }
        let roles = [Role::NameServer, Role::Router, Role::NdnRouter, Role::Host];
        let mut started = Vec::new();
        for role in roles {
            for node in plan.network.with_role(role) {
                if !started.contains(&node) {
                    daemons.run(node)?;
                    started.push(node);
                }
            }
        }
        daemons.wait_ready()?;
        daemons.start_proxies()?;
        Ok(daemons)
    }

    pub(super) fn name(&self, node: usize) -> &'a str {
        &self.plan.network.nodes[node].name
    }

    pub(super) fn key(&self, node: usize) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name(node)))
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments);
        command
    }

    /// Starts a node's daemons (again), one for each of its planes; does nothing for a node without
    /// daemons.
    pub fn run(&mut self, node: usize) -> Result<(), LabError> {
        let known = &self.plan.network.nodes[node];
        let name = self.name(node);
        let mut commands = Vec::new();
        if known.is(Role::NameServer) {
            let listen = format!("0.0.0.0:{GNRS_PORT}");
            let records = self.folder.join(format!("{name}.redb"));
            let mut command = self.command(&["gnrs", "serve", "--listen", &listen, "--store"]);
            command.arg(records).arg("--socket");
            command.arg(self.folder.join(format!("{name}.sock")));
            commands.push((name.to_owned(), command));
        }
        if known.is(Role::Router) || known.is(Role::NdnRouter) {
            let command = self.configured("router", node, &self.router_config(node)?)?;
            commands.push((name.to_owned(), command));
        }
        if known.is(Role::Host) && !known.is(Role::Router) {
            let command = self.configured("host", node, &self.host_config(node)?)?;
            commands.push((format!("{name} host"), command));
        }
        for (name, command) in commands {
            let program = self.on(node)?.daemon(&name, command)?;
            self.running.push((node, program));
        }
        Ok(())
    }

    /// Starts programs on a node; their logs are in the run's folder.
    pub(super) fn on(&self, node: usize) -> Result<Supervisor<'_>, LabError> {
        let host = self.topology.host(self.name(node))?;
        Ok(Supervisor::new(self.folder).on(host))
    }

    fn configured(&self, kind: &str, node: usize, config: &Config) -> Result<Command, LabError> {
        let path = self.folder.join(format!("{}.{kind}.toml", self.name(node)));
        let text = toml::to_string(config).map_err(|error| LabError::System {
            action: format!("write {}", path.display()),
            source: std::io::Error::other(error),
        })?;
        std::fs::write(&path, text)
            .map_err(LabError::system(format!("write {}", path.display())))?;
        let mut command = self.command(&[kind, "run", "--config"]);
        command.arg(path);
        Ok(command)
    }

    /// Returns the address of a node at one of its links.
    pub(super) fn address(&self, node: usize, link: usize) -> Result<Ipv4Addr, LabError> {
        let link = &self.plan.network.links[link].name;
        self.topology.address_of(self.name(node), link)
    }

    /// Kills a node's daemon as `kill -9` does.
    pub fn kill(&mut self, node: usize) -> Result<(), LabError> {
        for (known, program) in &mut self.running {
            if *known == node {
                program.process().kill()?;
            }
        }
        self.running.retain(|(known, _)| *known != node);
        Ok(())
    }

    /// Has a host prefer one of its links, as its user does.
    pub fn prefer(&self, node: usize, link: usize) -> Result<(), LabError> {
        let label = label(&self.plan.network.links[link].name);
        let mut command = self.command(&["host", "policy", "--prefer", &label, "--socket"]);
        command.arg(self.socket(node));
        let output = command
            .output()
            .map_err(LabError::system("tell a host which link to prefer"))?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(LabError::daemon(self.name(node), &said, &self.keep()))
            }
        }
    }

    /// Returns the socket on which a node's daemon of MobilityFirst answers.
    pub fn socket(&self, node: usize) -> PathBuf {
        socket_of(self.folder, Plane::MobilityFirst, self.name(node))
    }

    fn wait_ready(&self) -> Result<(), LabError> {
        let start = Instant::now();
        for (node, _) in &self.running {
            let known = &self.plan.network.nodes[*node];
            while !self.is_ready(*node) {
                if start.elapsed() > READY_WITHIN {
                    let what = if known.is(Role::Host) {
                        "did not attach to its router"
                    } else {
                        "did not start"
                    };
                    return Err(LabError::daemon(&known.name, what, &self.keep()));
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    }

    /// Copies the logs to a folder that outlives the run; returns the run's own if that fails.
    fn keep(&self) -> PathBuf {
        let kept = scratch::keep_logs(self.folder, &std::env::temp_dir());
        kept.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot keep the logs of the run");
            self.folder.to_owned()
        })
    }

    fn is_ready(&self, node: usize) -> bool {
        let known = &self.plan.network.nodes[node];
        if known.is(Role::Host) && self.status("host", node)["registered"] != Value::Bool(true) {
            return false;
        }
        let ndn = socket_of(self.folder, Plane::Ndn, &known.name);
        let mobility_first = socket_of(self.folder, Plane::MobilityFirst, &known.name);
        (!known.is(Role::NdnRouter) || ndn.exists())
            && (!known.is(Role::Router) || mobility_first.exists())
    }

    /// Returns the status of a node's daemon; null if it does not answer.
    pub(super) fn status(&self, kind: &str, node: usize) -> Value {
        let mut command = self.command(&[kind, "status", "--json", "--socket"]);
        command.arg(socket_of(
            self.folder,
            Plane::MobilityFirst,
            self.name(node),
        ));
        let output = command.output().ok();
        output
            .and_then(|output| serde_json::from_slice(&output.stdout).ok())
            .unwrap_or_default()
    }

    /// Starts a program and reads its lines until one reports that it serves.
    pub(super) fn serving(
        &mut self,
        node: usize,
        command: Command,
        serves: impl Fn(&str) -> Option<String>,
    ) -> Result<String, LabError> {
        let name = format!("serve on {} {}", self.name(node), self.serving.len());
        let program = self.on(node)?.speaker(&name, command)?;
        let served = program
            .find_line(START_PATIENCE, "that it serves", serves)
            .inspect_err(|_| {
                self.keep();
            });
        self.serving.push(program);
        served
    }
}
