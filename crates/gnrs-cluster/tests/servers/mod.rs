//! Debian's redis-server as a cluster: started, mistreated and ended by a test.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "a harness, of which each test uses a part"
)]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Time within which things must happen. It decides nothing but when a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes of a cluster.
pub struct Cluster {
    pub nodes: Vec<Node>,
    folder: TempDir,
    options: Vec<String>,
    password: Option<String>,
}

pub struct Node {
    pub port: u16,
    bus: u16,
    process: Option<Child>,
}

/// Ports that were given out. Others take ports of the system's range meanwhile.
static GIVEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());

fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut given = GIVEN.lock().unwrap();
        if !given.contains(&port) {
            given.push(port);
            return port;
        }
    }
}

impl Cluster {
    /// Starts `primaries` primaries, each with `replicas` replicas.
    pub fn start(primaries: usize, replicas: usize, options: &[&str]) -> Cluster {
        Cluster::with_password(primaries, replicas, options, None)
    }

    pub fn with_password(
        primaries: usize,
        replicas: usize,
        options: &[&str],
        password: Option<&str>,
    ) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
            options: options.iter().map(|it| (*it).to_owned()).collect(),
            password: password.map(str::to_owned),
        };
        for number in 0..primaries * (1 + replicas) {
            let (port, bus) = (free_port(), free_port());
            let process = None;
            cluster.nodes.push(Node { port, bus, process });
            cluster.revive(number);
        }
        cluster.create(primaries, replicas);
        for number in 0..cluster.nodes.len() {
            let port = cluster.nodes[number].port;
            cluster.until("all nodes agree", |it| {
                let info = it.cli(port, &["CLUSTER", "INFO"]);
                let copies = it.cli(port, &["CLUSTER", "NODES"]).matches("slave").count();
                info.contains("cluster_state:ok")
                    && info.contains("cluster_slots_ok:16384")
                    && copies == primaries * replicas
            });
        }
        cluster
    }

    fn create(&self, primaries: usize, replicas: usize) {
        let first = self.nodes[0].port;
        if primaries == 1 {
            let said = self.cli(first, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
            assert!(said.contains("OK"), "{said}");
            return;
        }
        let mut create = vec!["--cluster".to_owned(), "create".into()];
        let nodes = self.nodes.iter();
        create.extend(nodes.map(|it| format!("127.0.0.1:{}", it.port)));
        let replicas = replicas.to_string();
        create.extend([
            "--cluster-replicas".into(),
            replicas,
            "--cluster-yes".into(),
        ]);
        let create: Vec<&str> = create.iter().map(String::as_str).collect();
        let said = self.cli(first, &create);
        assert!(said.contains("All 16384 slots covered"), "{said}");
    }

    /// Returns the address for a name server.
    pub fn address(&self) -> String {
        let nodes = self.nodes.iter().map(|it| format!("127.0.0.1:{}", it.port));
        let password = self.password.as_ref().map(|it| format!(":{it}@"));
        let nodes: Vec<String> = nodes.collect();
        format!(
            "redis://{}{}",
            password.unwrap_or_default(),
            nodes.join(",")
        )
    }

    /// Starts a node, again if it was killed. It is empty, and knows who it is.
    pub fn revive(&mut self, number: usize) {
        let folder = self.folder.path().join(number.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let node = &mut self.nodes[number];
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &node.port.to_string(),
            "--cluster-port",
            &node.bus.to_string(),
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
            "--cluster-require-full-coverage",
            "no",
        ]);
        command.args([
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
        ]);
        command.arg("--dir").arg(&folder);
        if let Some(password) = &self.password {
            command.args(["--requirepass", password, "--masterauth", password]);
        }
        command.args(&self.options);
        let log = std::fs::File::create(folder.join("log")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        node.process = Some(
            command
                .spawn()
                .expect("redis-server (scripts/setup --check)"),
        );
        let port = node.port;
        self.until("it listens", |it| it.cli(port, &["PING"]).contains("PONG"));
    }

    /// `redis-cli` with a node. Returns what it prints.
    pub fn cli(&self, port: u16, arguments: &[&str]) -> String {
        // A node that is stopped does not answer.
        let mut command = Command::new("timeout");
        command.args([
            "20",
            "redis-cli",
            "-h",
            "127.0.0.1",
            "-p",
            &port.to_string(),
        ]);
        if let Some(password) = &self.password {
            command.args(["--no-auth-warning", "-a", password]);
        }
        let output = command.args(arguments).output().expect("redis-cli");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn on_all(&self, arguments: &[&str]) {
        for node in self.nodes.iter().filter(|it| it.process.is_some()) {
            self.cli(node.port, arguments);
        }
    }

    /// Returns the numbers of the primaries.
    pub fn primaries(&self) -> Vec<usize> {
        let is_primary = |number: &usize| {
            let node = &self.nodes[*number];
            node.process.is_some() && self.cli(node.port, &["ROLE"]).starts_with("master")
        };
        (0..self.nodes.len()).filter(is_primary).collect()
    }

    /// Returns the number of the primary of a slot, as a node sees it, and those of its replicas.
    pub fn of_slot(&self, slot: u16, asked: usize) -> (usize, Vec<usize>) {
        let said = self.cli(self.nodes[asked].port, &["--json", "CLUSTER", "SHARDS"]);
        let number = |port: u64| {
            self.nodes
                .iter()
                .position(|it| u64::from(it.port) == port)
                .unwrap()
        };
        for shard in json_shards(&said) {
            let has = shard
                .slots
                .chunks(2)
                .any(|it| (it[0]..=it[1]).contains(&u64::from(slot)));
            if has {
                let of = |role: &str| {
                    let nodes = shard.nodes.iter().filter(|(_, it)| it == role);
                    nodes.map(|(port, _)| number(*port)).collect::<Vec<_>>()
                };
                return (of("master")[0], of("replica"));
            }
        }
        panic!("no primary of {slot}: {said}");
    }

    /// Kills a node (SIGKILL).
    pub fn kill(&mut self, number: usize) {
        if let Some(mut process) = self.nodes[number].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Stops a node, or lets it go on.
    pub fn stop(&self, number: usize, stop: bool) {
        let process = self.nodes[number].process.as_ref().unwrap();
        let signal = if stop { "-STOP" } else { "-CONT" };
        let done = Command::new("kill")
            .args([signal, &process.id().to_string()])
            .status();
        assert!(done.unwrap().success());
    }

    pub fn until(&self, what: &str, done: impl Fn(&Cluster) -> bool) {
        let since = Instant::now();
        while !done(self) {
            assert!(since.elapsed() < PATIENCE, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 0..self.nodes.len() {
            if let Some(process) = &mut self.nodes[number].process {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

struct Shard {
    slots: Vec<u64>,
    nodes: Vec<(u64, String)>,
}

fn json_shards(text: &str) -> Vec<Shard> {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let shard = |shard: &serde_json::Value| Shard {
        slots: list(&shard["slots"])
            .iter()
            .filter_map(|it| it.as_u64())
            .collect(),
        nodes: list(&shard["nodes"])
            .iter()
            .filter_map(|it| {
                let (port, role) = (it["port"].as_u64()?, it["role"].as_str()?);
                Some((port, role.to_owned()))
            })
            .collect(),
    };
    list(&value).iter().map(shard).collect()
}
