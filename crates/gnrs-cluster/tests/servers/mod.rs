//! Debian's redis-server as a cluster: started, mistreated and ended by a test.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "a harness, of which each test uses a part"
)]

mod partition;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use partition::Partition;
use tempfile::TempDir;

/// Time within which things must happen. It decides nothing but when a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes of a cluster.
pub struct Cluster {
    pub nodes: Vec<Node>,
    folder: TempDir,
    options: Vec<String>,
    security: Security,
    /// Between nodes that can be cut off, each at an address of its own.
    partition: Option<Partition>,
}

/// How nodes keep strangers away.
#[derive(Clone, Copy, Default)]
pub struct Security {
    pub password: Option<&'static str>,
    pub tls: bool,
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
        Cluster::begin(primaries, replicas, options, Security::default(), None)
    }

    pub fn secured(primaries: usize, security: Security) -> Cluster {
        Cluster::begin(primaries, 0, &[], security, None)
    }

    /// Starts one whose nodes can be cut off from each other.
    pub fn apart(primaries: usize, replicas: usize) -> Cluster {
        let partition = Some(Partition::default());
        Cluster::begin(primaries, replicas, &[], Security::default(), partition)
    }

    fn begin(
        primaries: usize,
        replicas: usize,
        options: &[&str],
        security: Security,
        partition: Option<Partition>,
    ) -> Cluster {
        let mut cluster = Cluster {
            nodes: Vec::new(),
            folder: tempfile::tempdir().unwrap(),
            options: options.iter().map(|it| (*it).to_owned()).collect(),
            security,
            partition,
        };
        if security.tls {
            cluster.certify();
        }
        for number in 0..primaries * (1 + replicas) {
            let (port, bus) = (free_port(), free_port());
            let process = None;
            cluster.nodes.push(Node { port, bus, process });
            let (own, told) = (cluster.own_ip(number), cluster.ip(number));
            if let Some(partition) = &cluster.partition {
                for port in [port, bus] {
                    partition.relay(SocketAddr::new(told, port), SocketAddr::new(own, port));
                }
            }
            cluster.revive(number);
        }
        cluster.form(primaries, replicas);
        for number in 0..cluster.nodes.len() {
            cluster.until("all nodes agree", |it| {
                let info = it.ask(number, &["CLUSTER", "INFO"]);
                let nodes = it.ask(number, &["CLUSTER", "NODES"]);
                info.contains("cluster_state:ok")
                    && info.contains("cluster_slots_ok:16384")
                    && nodes.matches("slave").count() == primaries * replicas
            });
        }
        cluster
    }

    /// Returns the address that a node has told to the others.
    fn ip(&self, number: usize) -> IpAddr {
        match &self.partition {
            None => Ipv4Addr::LOCALHOST.into(),
            Some(_) => Ipv4Addr::new(127, 0, 1, 10 + number as u8).into(),
        }
    }

    /// Returns the address from which a node calls others.
    fn own_ip(&self, number: usize) -> IpAddr {
        match &self.partition {
            None => Ipv4Addr::LOCALHOST.into(),
            Some(_) => Ipv4Addr::new(127, 0, 0, 10 + number as u8).into(),
        }
    }

    /// Cuts a node off from all others, or ends that. Clients reach all of them.
    pub fn cut_off(&self, number: usize, is_cut: bool) {
        let partition = self.partition.as_ref().unwrap();
        partition.cut_off([self.ip(number), self.own_ip(number)], is_cut);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the certificate of whoever has signed those of the nodes.
    pub fn root_certificate(&self) -> PathBuf {
        self.file("ca.pem")
    }

    fn certify(&self) {
        let openssl = |arguments: &str| {
            let arguments = arguments.split(' ');
            let mut command = Command::new("openssl");
            let done = command.args(arguments).current_dir(self.folder.path());
            let output = done.output().expect("openssl");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!(
            "req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=ca -days 2"
        ));
        openssl(&format!(
            "req {key} -keyout node.key -out node.csr -subj /CN=node"
        ));
        std::fs::write(self.file("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
        openssl(
            "x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out node.pem",
        );
    }

    fn form(&self, primaries: usize, replicas: usize) {
        if primaries == 1 {
            let said = self.ask(0, &["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
            assert!(said.contains("OK"), "{said}");
            return;
        }
        let mut create = vec!["--cluster".to_owned(), "create".into()];
        create.extend(self.places());
        let replicas = replicas.to_string();
        create.extend([
            "--cluster-replicas".into(),
            replicas,
            "--cluster-yes".into(),
        ]);
        let create: Vec<&str> = create.iter().map(String::as_str).collect();
        let said = self.ask(0, &create);
        assert!(said.contains("All 16384 slots covered"), "{said}");
    }

    fn places(&self) -> impl Iterator<Item = String> + '_ {
        let nodes = self.nodes.iter().enumerate();
        nodes.map(|(number, it)| format!("{}:{}", self.ip(number), it.port))
    }

    /// Returns the address for a name server.
    pub fn address(&self) -> String {
        let places: Vec<String> = self.places().collect();
        self.address_with(&places.join(","))
    }

    /// The same with one node.
    pub fn address_of(&self, number: usize) -> String {
        self.address_with(&self.places().nth(number).unwrap())
    }

    fn address_with(&self, places: &str) -> String {
        let scheme = if self.security.tls { "rediss" } else { "redis" };
        let password = self.security.password.map(|it| format!(":{it}@"));
        format!("{scheme}://{}{places}", password.unwrap_or_default())
    }

    /// Starts a node, again if it was killed. It is empty, and knows who it is.
    pub fn revive(&mut self, number: usize) {
        let folder = self.folder.path().join(number.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let (own, told) = (self.own_ip(number).to_string(), self.ip(number).to_string());
        let (certificate, key, root) = (
            self.file("node.pem"),
            self.file("node.key"),
            self.root_certificate(),
        );
        let security = self.security;
        let node = &mut self.nodes[number];
        let mut command = Command::new("redis-server");
        let port = node.port.to_string();
        match security.tls {
            false => drop(command.args(["--port", &port])),
            true => {
                command.args(["--port", "0", "--tls-port", &port, "--tls-cluster", "yes"]);
                command.args(["--tls-replication", "yes", "--tls-auth-clients", "no"]);
                command.arg("--tls-cert-file").arg(certificate);
                command.arg("--tls-key-file").arg(key);
                command.arg("--tls-ca-cert-file").arg(root);
            }
        }
        command.args(["--cluster-port", &node.bus.to_string(), "--bind", &own]);
        command.args(["--bind-source-addr", &own, "--cluster-announce-ip", &told]);
        command.args(["--cluster-enabled", "yes", "--save", ""]);
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
        if let Some(password) = security.password {
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
        self.until("it listens", |it| {
            it.ask(number, &["PING"]).contains("PONG")
        });
    }

    /// `redis-cli` with a node. Returns what it prints.
    pub fn ask(&self, number: usize, arguments: &[&str]) -> String {
        // A node that is stopped does not answer.
        let mut command = Command::new("timeout");
        command.args(["20", "redis-cli", "-h", &self.ip(number).to_string()]);
        command.args(["-p", &self.nodes[number].port.to_string()]);
        if self.security.tls {
            command
                .arg("--tls")
                .arg("--cacert")
                .arg(self.root_certificate());
        }
        if let Some(password) = self.security.password {
            command.args(["--no-auth-warning", "-a", password]);
        }
        let output = command.args(arguments).output().expect("redis-cli");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn on_all(&self, arguments: &[&str]) {
        for number in 0..self.nodes.len() {
            if self.nodes[number].process.is_some() {
                self.ask(number, arguments);
            }
        }
    }

    /// Returns the numbers of the primaries.
    pub fn primaries(&self) -> Vec<usize> {
        let is_primary = |number: &usize| {
            let node = &self.nodes[*number];
            node.process.is_some() && self.ask(*number, &["ROLE"]).starts_with("master")
        };
        (0..self.nodes.len()).filter(is_primary).collect()
    }

    /// Returns the number of the primary of a slot, as a node sees it, and those of its replicas.
    pub fn of_slot(&self, slot: u16, asked: usize) -> (usize, Vec<usize>) {
        let said = self.ask(asked, &["--json", "CLUSTER", "SHARDS"]);
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
