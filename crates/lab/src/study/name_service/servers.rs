//! Name servers, and the nodes of a Redis Cluster that some of them use.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{LabError, Program, Supervisor};

/// Time within which a cluster is formed or has changed.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// Slots of a cluster.
pub(super) const SLOTS: usize = 16_384;

fn free_port() -> Result<u16, LabError> {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
    Ok(address
        .map_err(LabError::system("find a free port"))?
        .port())
}

/// A name server.
pub(super) struct RunningNameServer {
    pub(super) program: Program,
    pub(super) address: SocketAddr,
    socket: PathBuf,
    whimbrel: PathBuf,
}

impl RunningNameServer {
    /// Starts one. `name` is one word for its files.
    pub(super) fn start(
        whimbrel: &Path,
        folder: &Path,
        name: &str,
        store: &str,
    ) -> Result<RunningNameServer, LabError> {
        let socket = folder.join(format!("{name}.sock"));
        let mut command = Command::new(whimbrel);
        command.args(["gnrs", "serve", "--json", "--listen", "127.0.0.1:0"]);
        command.args(["--store", store, "--socket"]).arg(&socket);
        let program = Supervisor::new(folder).speaker(name, command)?;
        let line = program.ready("\"links\"")?;
        let opened: Value = serde_json::from_str(&line).unwrap_or_default();
        let links = opened["links"].as_object();
        let address = links
            .and_then(|it| it.values().next()?.as_str()?.parse().ok())
            .ok_or_else(|| program.fault(&format!("opened no socket: {line}")))?;
        Ok(RunningNameServer {
            program,
            address,
            socket,
            whimbrel: whimbrel.to_owned(),
        })
    }

    /// Returns its own account.
    pub(super) fn status(&self) -> Result<Value, LabError> {
        let mut command = Command::new(&self.whimbrel);
        command.args(["gnrs", "status", "--json", "--socket"]);
        let output = command.arg(&self.socket).output();
        let output = output.map_err(LabError::system("ask a name server for its status"))?;
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }
}

/// A node of the engine.
struct RedisNode {
    port: u16,
    bus: u16,
    program: Program,
}

/// The engine: primaries, each with replicas.
pub(super) struct RedisCluster {
    nodes: Vec<RedisNode>,
}

impl RedisCluster {
    pub(super) fn start(
        folder: &Path,
        primaries: usize,
        replicas: usize,
    ) -> Result<RedisCluster, LabError> {
        let mut engine = RedisCluster { nodes: Vec::new() };
        for number in 0..primaries * (1 + replicas) {
            engine.nodes.push(node(folder, number)?);
        }
        for node in &engine.nodes {
            engine.until(node, "answers", |it| it.contains("PONG"), &["PING"])?;
        }
        match replicas {
            0 => engine.join()?,
            _ => engine.create(replicas)?,
        }
        let works = |info: &str| {
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        };
        for node in &engine.nodes {
            engine.until(node, "is in a cluster", works, &["CLUSTER", "INFO"])?;
            let all = |it: &str| it.matches("slave").count() == primaries * replicas;
            engine.until(node, "knows the replicas", all, &["CLUSTER", "NODES"])?;
            if replicas > 0 {
                // A replica that has not begun to copy would lose everything.
                let copied =
                    |it: &str| it.contains("master_link_status:up") || it.contains("slave0:");
                engine.until(node, "copies", copied, &["INFO", "replication"])?;
            }
        }
        Ok(engine)
    }

    /// Forms a cluster without replicas, of any number of nodes.
    fn join(&self) -> Result<(), LabError> {
        let (first, count) = (self.nodes[0].port, self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let from = (number * SLOTS / count).to_string();
            let to = ((number + 1) * SLOTS / count - 1).to_string();
            cli(node.port, &["CLUSTER", "ADDSLOTSRANGE", &from, &to])?;
            if number == 0 {
                continue;
            }
            let (port, bus) = (node.port.to_string(), node.bus.to_string());
            cli(first, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?;
        }
        Ok(())
    }

    fn create(&self, replicas: usize) -> Result<(), LabError> {
        let first = &self.nodes[0];
        let mut create = vec!["--cluster".to_owned(), "create".into()];
        let nodes = self.nodes.iter();
        create.extend(nodes.map(|it| format!("127.0.0.1:{}", it.port)));
        create.extend(["--cluster-replicas".into(), replicas.to_string()]);
        create.push("--cluster-yes".into());
        let create: Vec<&str> = create.iter().map(String::as_str).collect();
        let said = cli(first.port, &create)?;
        match said.contains("All 16384 slots covered") {
            true => Ok(()),
            false => Err(first.program.fault(&format!("forms no cluster: {said}"))),
        }
    }

    /// Returns the address for a name server.
    pub(super) fn address(&self) -> String {
        let nodes = self.nodes.iter().map(|it| format!("127.0.0.1:{}", it.port));
        format!("redis://{}", nodes.collect::<Vec<_>>().join(","))
    }

    /// Returns the processes of the nodes.
    pub(super) fn processes(&self) -> Vec<u32> {
        self.nodes.iter().map(|it| it.program.id()).collect()
    }

    /// Kills the first primary.
    pub(super) fn kill_a_primary(&mut self) -> Result<(), LabError> {
        self.nodes[0].program.process().kill().map(drop)
    }

    fn until(
        &self,
        node: &RedisNode,
        what: &str,
        is_so: impl Fn(&str) -> bool,
        asked: &[&str],
    ) -> Result<(), LabError> {
        let since = Instant::now();
        while !is_so(&cli(node.port, asked)?) {
            if since.elapsed() > PATIENCE {
                return Err(node.program.fault(&format!("not in time: it {what}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

fn node(folder: &Path, number: usize) -> Result<RedisNode, LabError> {
    let (port, bus) = (free_port()?, free_port()?);
    let data = folder.join(format!("node-{number}"));
    std::fs::create_dir_all(&data).map_err(LabError::system("make a folder"))?;
    let mut command = Command::new("redis-server");
    command.args([
        "--port",
        &port.to_string(),
        "--cluster-port",
        &bus.to_string(),
    ]);
    command.args([
        "--bind",
        "127.0.0.1",
        "--cluster-enabled",
        "yes",
        "--save",
        "",
    ]);
    command.args([
        "--cluster-node-timeout",
        "3000",
        "--repl-diskless-sync-delay",
        "0",
    ]);
    command.args(["--cluster-require-full-coverage", "no"]);
    command.arg("--dir").arg(&data);
    let program = Supervisor::new(folder).daemon(&format!("redis-{number}"), command)?;
    Ok(RedisNode { port, bus, program })
}

/// `redis-cli` with a node. Returns what it prints.
fn cli(port: u16, arguments: &[&str]) -> Result<String, LabError> {
    let mut command = Command::new("redis-cli");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    let output = command.args(arguments).output();
    let output = output.map_err(|error| crate::error::spawn_error("redis-cli", error))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
