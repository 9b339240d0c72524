//! The program's own daemons on the nodes of a plan.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use whimbrel_core::Guid;
use whimbrel_node::config::{
    ByteSize, Config, GNRS_PORT, LinkSection, NDN_PORT, NdnFaceSection, NdnRouteSection,
    Reliability, Remote, RouteSection, Via,
};

use crate::scenario::Plan;
use crate::scenario::link::Recovery;
use crate::scenario::load::{Kind, Plane};
use crate::scenario::node::Role;
use crate::{LabError, Process, Topology};

const ROUTER_PORT: u16 = 4711;
/// How long daemons may take to find each other and attach.
const SETTLING: Duration = Duration::from_secs(30);

/// The file of a load.
pub(super) fn file_of(folder: &Path, load: &str) -> PathBuf {
    folder.join(format!("file-{load}"))
}

fn socket_of(folder: &Path, plane: Plane, node: &str) -> PathBuf {
    folder.join(format!(
        "{node}.{}",
        if plane == Plane::Ndn { "nfd" } else { "sock" }
    ))
}

/// The command with which a user on `node` fetches `name`.
pub(super) fn get(
    program: &Path,
    folder: &Path,
    plane: Plane,
    node: &str,
    name: &str,
    output: &Path,
) -> Command {
    let mut command = Command::new(program);
    let socket = socket_of(folder, plane, node);
    match plane {
        Plane::Ndn => command
            .args(["ndn", "get", "--json", name, "--transport"])
            .arg(format!("unix://{}", socket.display())),
        _ => command
            .args(["get", "--json", name, "--socket"])
            .arg(socket),
    };
    command
        .arg("-o")
        .arg(output)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

/// Refuses a file that arrived with other bytes.
pub(super) fn compare(sent: &Path, arrived: &Path) -> Result<(), LabError> {
    let hash = |path: &Path| -> Result<blake3::Hash, LabError> {
        let failed = || LabError::system(format!("read {}", path.display()));
        let mut hasher = blake3::Hasher::new();
        let mut file = std::fs::File::open(path).map_err(failed())?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).map_err(failed())? {
                0 => return Ok(hasher.finalize()),
                read => hasher.update(&buffer[..read]),
            };
        }
    };
    if hash(sent)? == hash(arrived)? {
        return Ok(());
    }
    Err(LabError::TransferFailed {
        transfer: arrived.display().to_string(),
        reason: "it arrived with other bytes".to_owned(),
    })
}

/// All daemons of a run.
pub(super) struct Daemons<'a> {
    plan: &'a Plan,
    seed: u64,
    program: &'a Path,
    folder: &'a Path,
    topology: &'a Topology,
    /// Of routers, for routes between them.
    guids: BTreeMap<usize, Guid>,
    // Held for their lives: a process that is dropped is killed.
    running: Vec<(usize, Process)>,
    serving: Vec<Process>,
}

impl<'a> Daemons<'a> {
    /// Starts all daemons and waits until hosts are registered and sockets answer.
    pub(super) fn start(
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
        daemons.settle()?;
        Ok(daemons)
    }

    fn name(&self, node: usize) -> &'a str {
        &self.plan.network.nodes[node].name
    }

    fn key(&self, node: usize) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name(node)))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Starts a node's daemon (again); does nothing where a node has none.
    pub(super) fn run(&mut self, node: usize) -> Result<(), LabError> {
        let known = &self.plan.network.nodes[node];
        let name = self.name(node);
        let command = if known.is(Role::NameServer) {
            let listen = format!("0.0.0.0:{GNRS_PORT}");
            let records = self.folder.join(format!("{name}.redb"));
            let mut command = self.command(&["gnrs", "serve", "--listen", &listen, "--store"]);
            command.arg(records);
            command
        } else if known.is(Role::Router) || known.is(Role::NdnRouter) {
            self.configured("router", node, &self.router_config(node)?)?
        } else if known.is(Role::Host) {
            self.configured("host", node, &self.host_config(node)?)?
        } else {
            return Ok(());
        };
        let process = self.spawn(node, name, command)?;
        self.running.push((node, process));
        Ok(())
    }

    fn spawn(&self, node: usize, log: &str, mut command: Command) -> Result<Process, LabError> {
        let path = self.folder.join(format!("{log}.log"));
        let open = || LabError::system(format!("open the log {}", path.display()));
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path);
        let file = file.map_err(open())?;
        command
            .stderr(file.try_clone().map_err(open())?)
            .stdout(file);
        self.topology.host(self.name(node))?.spawn(command)
    }

    fn configured(&self, kind: &str, node: usize, config: &Config) -> Result<Command, LabError> {
        let path = self.folder.join(format!("{}.toml", self.name(node)));
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

    /// The address of a node at one of its links.
    fn address(&self, node: usize, link: usize) -> Result<Ipv4Addr, LabError> {
        let link = &self.plan.network.links[link].name;
        self.topology.address_of(self.name(node), link)
    }

    fn remote(&self, address: Ipv4Addr, port: u16) -> Result<Remote, LabError> {
        let text = format!("{address}:{port}");
        text.parse()
            .map_err(|error| LabError::BadTopology(format!("{text}: {error}")))
    }

    fn link_to(&self, peer: usize, link: usize) -> Result<LinkSection, LabError> {
        let known = &self.plan.network.links[link];
        Ok(LinkSection {
            remote: Some(self.remote(self.address(peer, link)?, ROUTER_PORT)?),
            mtu: known.mtu,
            ..LinkSection::new(format!("to-{}", known.name))
        })
    }

    fn host_config(&self, node: usize) -> Result<Config, LabError> {
        let network = &self.plan.network;
        let mut config = Config::default();
        config.host.key = Some(self.key(node));
        config.host.socket = Some(socket_of(
            self.folder,
            Plane::MobilityFirst,
            self.name(node),
        ));
        for (link, peer) in network.at(node) {
            if network.nodes[peer].is(Role::Router) {
                config.link.push(self.link_to(peer, link)?);
            }
        }
        Ok(config)
    }

    fn router_config(&self, node: usize) -> Result<Config, LabError> {
        let network = &self.plan.network;
        let known = &network.nodes[node];
        let mut config = Config::default();
        config.ndn.enabled = Some(known.is(Role::NdnRouter));
        if known.is(Role::NdnRouter) {
            self.add_ndn(node, &mut config)?;
        }
        if !known.is(Role::Router) {
            return Ok(config);
        }
        config.router.key = Some(self.key(node));
        config.router.socket = Some(socket_of(
            self.folder,
            Plane::MobilityFirst,
            self.name(node),
        ));
        config.link.push(LinkSection {
            bind: Some(SocketAddr::from(([0, 0, 0, 0], ROUTER_PORT))),
            listen: true,
            mtu: network
                .at(node)
                .map(|(link, _)| network.links[link].mtu)
                .min()
                .unwrap_or(1500),
            ..LinkSection::new("listen")
        });
        for (link, peer) in network.at(node) {
            // One of the two calls.
            if network.nodes[peer].is(Role::Router) && peer < node {
                config.link.push(self.link_to(peer, link)?);
            }
        }
        for server in network.with_role(Role::NameServer) {
            let address = self
                .topology
                .address_towards(self.name(server), self.name(node))?;
            config
                .router
                .name_servers
                .push(self.remote(address, GNRS_PORT)?);
        }
        for (other, guid) in self.guids.iter().filter(|(other, _)| **other != node) {
            let hops = self.plan.routes.towards(network, *other, Role::Router);
            if let Some(via) = hops[node].first().and_then(|hop| self.guids.get(&hop.to)) {
                config.route.push(RouteSection {
                    to: *guid,
                    via: Via(via.to_string()),
                });
            }
        }
        if let Some(storage) = known.settings.storage {
            config.storage.total = ByteSize(storage);
            config.storage.per_flow = ByteSize(storage);
        }
        Ok(config)
    }

    fn add_ndn(&self, node: usize, config: &mut Config) -> Result<(), LabError> {
        let network = &self.plan.network;
        let section = &mut config.ndn;
        section.socket = Some(socket_of(self.folder, Plane::Ndn, self.name(node)));
        section.udp = vec![SocketAddr::from(([0, 0, 0, 0], NDN_PORT))];
        section.tcp = Vec::new();
        section.websocket = Vec::new();
        section.multicast = false;
        if let Some(bytes) = network.nodes[node].settings.content_store {
            section.content_store = ByteSize(bytes);
        }
        if let Some(strategy) = &network.nodes[node].settings.strategy {
            section.strategy = strategy.0.to_string();
        }
        for (link, peer) in network.at(node) {
            if !network.nodes[peer].is(Role::NdnRouter) {
                continue;
            }
            let known = &network.links[link];
            config.ndn_face.push(NdnFaceSection {
                uri: self.face_uri(peer, link)?,
                local: None,
                reliability: Some(match known.recovery {
                    Recovery::Off => Reliability::Off,
                    Recovery::Paper => Reliability::Paper,
                    Recovery::Ndnlpv2 => Reliability::Ndnlpv2,
                    Recovery::Adaptive => Reliability::Adaptive,
                }),
                mtu: Some(known.mtu),
            });
        }
        for load in self
            .plan
            .loads
            .iter()
            .filter(|load| load.plane == Plane::Ndn)
        {
            let hops = self
                .plan
                .routes
                .towards(network, load.from, Role::NdnRouter);
            for hop in &hops[node] {
                config.ndn_route.push(NdnRouteSection {
                    prefix: format!("/{}", load.name),
                    face: self.face_uri(hop.to, hop.link)?,
                    cost: hop.cost,
                });
            }
        }
        Ok(())
    }

    fn face_uri(&self, peer: usize, link: usize) -> Result<String, LabError> {
        Ok(format!("udp4://{}:{NDN_PORT}", self.address(peer, link)?))
    }

    /// Kills a node's daemon as `kill -9` does.
    pub(super) fn kill(&mut self, node: usize) -> Result<(), LabError> {
        for (known, process) in &mut self.running {
            if *known == node {
                process.kill()?;
            }
        }
        self.running.retain(|(known, _)| *known != node);
        Ok(())
    }

    fn settle(&self) -> Result<(), LabError> {
        let start = Instant::now();
        for (node, _) in &self.running {
            let known = &self.plan.network.nodes[*node];
            while !self.is_ready(*node) {
                if start.elapsed() > SETTLING {
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

    /// Copies the logs to where they outlive the run.
    fn keep(&self) -> PathBuf {
        let kept = std::env::temp_dir().join(format!("whimbrel-lab-{}", std::process::id()));
        let copy = || -> std::io::Result<()> {
            std::fs::create_dir_all(&kept)?;
            for entry in std::fs::read_dir(self.folder)? {
                let path = entry?.path();
                if path
                    .extension()
                    .is_some_and(|end| end == "log" || end == "toml")
                    && let Some(name) = path.file_name()
                {
                    std::fs::copy(&path, kept.join(name))?;
                }
            }
            Ok(())
        };
        if let Err(error) = copy() {
            tracing::warn!(%error, "the logs of the run cannot be kept");
        }
        kept
    }

    fn is_ready(&self, node: usize) -> bool {
        let known = &self.plan.network.nodes[node];
        if known.is(Role::Host) {
            return self.status("host", node)["registered"] == Value::Bool(true);
        }
        let ndn = socket_of(self.folder, Plane::Ndn, &known.name);
        let mobility_first = socket_of(self.folder, Plane::MobilityFirst, &known.name);
        (!known.is(Role::NdnRouter) || ndn.exists())
            && (!known.is(Role::Router) || mobility_first.exists())
    }

    fn status(&self, kind: &str, node: usize) -> Value {
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

    /// Makes and serves every load's file. Answers with what each is asked for by.
    pub(super) fn serve(&mut self) -> Result<Vec<String>, LabError> {
        let mut names = Vec::new();
        for (index, load) in self.plan.loads.iter().enumerate() {
            let Kind::File(size) = load.kind else {
                continue;
            };
            let file = file_of(self.folder, &load.name);
            crate::demo::make_file(&file, size, self.seed.wrapping_add(index as u64))?;
            names.push(match load.plane {
                Plane::Tcp => file.display().to_string(),
                Plane::Ndn => self.serve_ndn(load.from, &load.name, &file)?,
                Plane::MobilityFirst => self.serve_content(load.from, &file)?,
            });
        }
        Ok(names)
    }

    fn serve_content(&mut self, node: usize, file: &Path) -> Result<String, LabError> {
        let mut command = self.command(&["serve", "--socket"]);
        command
            .arg(socket_of(
                self.folder,
                Plane::MobilityFirst,
                self.name(node),
            ))
            .arg(file);
        self.serving(node, command, |line| {
            let mut words = line.split_whitespace();
            let (name, state) = (words.next()?, words.next()?);
            (state == "announced").then(|| name.to_owned())
        })
    }

    fn serve_ndn(&mut self, node: usize, load: &str, file: &Path) -> Result<String, LabError> {
        let name = format!("/{load}/0");
        let socket = socket_of(self.folder, Plane::Ndn, self.name(node));
        let mut command = self.command(&["ndn", "serve", "--json", &name]);
        let uri = format!("unix://{}", socket.display());
        command.arg(file).args(["--transport", &uri]);
        self.serving(node, command, |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["event"] == "registered").then(|| name.clone())
        })
    }

    /// Starts a program and reads its lines until one says that it serves.
    fn serving(
        &mut self,
        node: usize,
        mut command: Command,
        serves: impl Fn(&str) -> Option<String>,
    ) -> Result<String, LabError> {
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = self.topology.host(self.name(node))?.spawn(command)?;
        let output = process.take_stdout();
        self.serving.push(process);
        let lines = output
            .map(BufReader::new)
            .into_iter()
            .flat_map(BufRead::lines);
        let mut lines = lines.map_while(Result::ok);
        lines
            .find_map(|line| serves(&line))
            .ok_or_else(|| LabError::daemon("serve", "ended before it served", &self.keep()))
    }
}
