//! Real processes on this machine's loopback interface: daemons that are killed with their test,
//! and ways to wait.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]

pub(crate) mod interop;
pub(crate) mod ndn;
pub(crate) mod origin;
pub(crate) mod scene;
pub(crate) mod schema;
pub(crate) mod sites;
pub(crate) mod web;
pub(crate) mod wireguard;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Time limit of every wait, far above the usual time on a machine that is not overloaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

/// Returns the file of neighbours' names of this run of the tests.
fn known_peers() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let name = format!("known-peers-{}.json", std::process::id());
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // Of an earlier process with this number.
        let _ = fs::remove_file(&file);
        file
    })
}

pub(crate) fn whimbrel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
    command
        .env_remove("WHIMBREL_SOCKET")
        .env_remove("WHIMBREL_NAME_SERVER")
        .env_remove("WHIMBREL_LOG")
        // The user's own aliases are none of a test.
        .env("WHIMBREL_NAMES", known_peers().with_extension("names"))
        // Addresses of tests have another name each time.
        .env("WHIMBREL_KNOWN_PEERS", known_peers());
    command.stdin(Stdio::null());
    command
}

/// A process that does not outlive the test.
pub(crate) struct Running {
    child: Child,
    pub(crate) lines: std::sync::mpsc::Receiver<String>,
}

impl Running {
    /// Starts a process and collects its output.
    pub(crate) fn start(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Running { child, lines }
    }

    /// Returns the next line of JSON that `wanted` accepts.
    pub(crate) fn await_json(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .expect("the line did not arrive in time, or the process ended");
            if let Ok(value) = serde_json::from_str(&line)
                && wanted(&value)
            {
                return value;
            }
        }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Waits for the process to end by itself and returns its exit code.
    pub(crate) fn exit_code(&mut self) -> i32 {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or(-1);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the process did not end in time");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns an unused UDP port. It is below the range from which the kernel chooses ports, so that
/// no other socket takes it before the program under test.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const PORTS: std::ops::Range<u16> = 20_000..32_000;
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Concurrent processes start at different ports.
        let first = std::process::id() as u16;
        let port = PORTS.start + first.wrapping_mul(97).wrapping_add(number) % PORTS.len() as u16;
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns deterministic noise.
pub(crate) fn noise(length: usize, seed: u64) -> Vec<u8> {
    // Never zero, and another one for each seed.
    let mut state = seed << 1 | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn name_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Returns the exit code and output of a command that ends by itself.
pub(crate) fn finished(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (status.code().unwrap_or(-1), text(&stdout), text(&stderr))
}

/// Returns what `GET /metrics` answers at `address`: the head and the page.
pub(crate) fn metrics_page(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// Returns the sum of the members of a metric whose line contains `label`.
pub(crate) fn sum_of(page: &str, name: &str, label: &str) -> f64 {
    page.lines()
        .filter(|line| line.starts_with(name) && line.contains(label))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

/// A name server, two routers in a row, and a host on each.
pub(crate) struct Network {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) ports: [u16; 3],
    /// A fixed rate for every hop, for tests that must act during a transfer.
    pub(crate) pacing: Option<&'static str>,
    /// The keys of the routers' section `[storage]`.
    pub(crate) storage: &'static str,
    /// A name server that the routers prefer, on a socket that nobody reads.
    pub(crate) silent_name_server: Option<UdpSocket>,
    pub(crate) gnrs: Option<Running>,
    /// A cluster for the records, and a name server for router 0 beside that of both.
    pub(crate) cluster: Option<(String, u16)>,
    pub(crate) other_gnrs: Option<Running>,
    /// The port of a name server for router 0 alone, which is a peer of that of router 1.
    pub(crate) peer: Option<u16>,
    pub(crate) routers: [Option<Running>; 2],
    pub(crate) hosts: [Option<Running>; 2],
    /// Where each daemon serves its metrics.
    pub(crate) metrics: BTreeMap<String, String>,
}

impl Network {
    /// The routers have this section `[storage]`.
    pub(crate) fn storing(pacing: &'static str, storage: &'static str) -> Network {
        Network::begin(Some(pacing), None, None, None, storage)
    }

    pub(crate) fn start(pacing: Option<&'static str>) -> Network {
        Network::with(pacing, None, None)
    }

    /// Each router prefers a name server of its own; both have their records on a cluster.
    pub(crate) fn on_cluster(address: String) -> Network {
        Network::with(None, None, Some((address, free_port())))
    }

    /// Each router has a name server of its own; these know one address of each other.
    pub(crate) fn of_two_sites() -> Network {
        Network::begin(None, None, None, Some(free_port()), "")
    }

    pub(crate) fn behind_a_silent_name_server() -> Network {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        Network::with(None, Some(silent), None)
    }

    fn with(
        pacing: Option<&'static str>,
        silent_name_server: Option<UdpSocket>,
        cluster: Option<(String, u16)>,
    ) -> Network {
        Network::begin(pacing, silent_name_server, cluster, None, "")
    }

    fn begin(
        pacing: Option<&'static str>,
        silent_name_server: Option<UdpSocket>,
        cluster: Option<(String, u16)>,
        peer: Option<u16>,
        storage: &'static str,
    ) -> Network {
        let mut network = Network {
            storage,
            folder: tempfile::tempdir().unwrap(),
            ports: [free_port(), free_port(), free_port()],
            pacing,
            silent_name_server,
            gnrs: None,
            cluster,
            other_gnrs: None,
            peer,
            routers: [None, None],
            hosts: [None, None],
            metrics: BTreeMap::new(),
        };
        network.start_gnrs();
        network.start_router(0);
        network.start_router(1);
        network.start_host(0);
        network.start_host(1);
        network.await_registered(0);
        network.await_registered(1);
        await_that("the routers know each other", || {
            network.routers_are_linked()
        });
        network
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self, name: &str, rest: &str) -> PathBuf {
        let hop = self.pacing.map_or(String::new(), |rate| {
            format!("[hop]\npacing = \"{rate}\"\n")
        });
        let path = self.path(&format!("{name}.toml"));
        fs::write(&path, format!("{hop}{rest}")).unwrap();
        path
    }

    pub(crate) fn start_gnrs(&mut self) {
        if let Some(port) = self.peer {
            let here = self.ports[0];
            self.gnrs = Some(self.name_server("gnrs", here, &self.path("names"), Some(port)));
            let other = self.path("other-names");
            self.other_gnrs = Some(self.name_server("other-gnrs", port, &other, Some(here)));
            return;
        }
        let store = match &self.cluster {
            Some((address, _)) => PathBuf::from(address),
            None => self.path("names"),
        };
        self.gnrs = Some(self.name_server("gnrs", self.ports[0], &store, None));
        if let Some((_, port)) = self.cluster {
            self.other_gnrs = Some(self.name_server("other-gnrs", port, &store, None));
        }
    }

    pub(crate) fn name_server(
        &mut self,
        name: &str,
        port: u16,
        store: &Path,
        peer: Option<u16>,
    ) -> Running {
        let listen = format!("127.0.0.1:{port}");
        let mut serve = whimbrel();
        serve.args(["gnrs", "serve", "--json", "--listen", &listen, "--store"]);
        serve.arg(store).arg("--socket");
        serve.arg(self.path(&format!("{name}.sock"))).args(METRICS);
        if let Some(peer) = peer {
            serve.args(["--peer", &format!("127.0.0.1:{peer}")]);
        }
        let running = Running::start(&mut serve);
        let opened = running.await_json(|line| line.get("links").is_some());
        self.note_metrics(name.to_owned(), &opened);
        running
    }

    /// Starts a router. Router 0 connects to router 1, which listens.
    pub(crate) fn start_router(&mut self, index: usize) {
        let (gnrs, here, there) = (self.ports[0], self.ports[1 + index], self.ports[2 - index]);
        let silent = self.silent_name_server.as_ref();
        let silent = silent.map(|socket| format!("\"{}\", ", socket.local_addr().unwrap()));
        let own = self.cluster.as_ref().filter(|_| index == 0);
        let own = own.map(|(_, port)| format!("\"127.0.0.1:{port}\", "));
        let silent = silent.or(own).unwrap_or_default();
        // Of two sites, each router knows the name server of its own.
        let gnrs = self.peer.filter(|_| index == 0).unwrap_or(gnrs);
        let storage = self.storage;
        let neighbour = match index {
            0 => format!(
                "[[link]]\nlabel = \"next\"\nbind = \"127.0.0.1:0\"\nremote = \"127.0.0.1:{there}\"\n"
            ),
            _ => String::new(),
        };
        let config = self.config(
            &format!("router-{index}"),
            &format!(
                "[router]\nname_servers = [{silent}\"127.0.0.1:{gnrs}\"]\n[storage]\n{storage}\n\
                 [[link]]\nlabel = \"callers\"\nbind = \"127.0.0.1:{here}\"\nlisten = true\n{neighbour}"
            ),
        );
        let running = Running::start(
            whimbrel()
                .args(["router", "run", "--json", "--config"])
                .arg(config)
                .arg("--key")
                .arg(self.path(&format!("router-{index}.pem")))
                .arg("--socket")
                .arg(self.router_socket(index))
                .args(METRICS),
        );
        let opened = running.await_json(|line| line.get("guid").is_some());
        self.note_metrics(format!("router-{index}"), &opened);
        self.routers[index] = Some(running);
    }

    pub(crate) fn start_host(&mut self, index: usize) {
        let router = self.ports[1 + index];
        let config = self.config(
            &format!("host-{index}"),
            &format!(
                "[host]\nnack_timeout = \"1 s\"\n\
                 [[link]]\nlabel = \"access\"\nbind = \"127.0.0.1:0\"\nremote = \"127.0.0.1:{router}\"\n"
            ),
        );
        let running = Running::start(
            whimbrel()
                .args(["host", "run", "--json", "--config"])
                .arg(config)
                .arg("--key")
                .arg(self.path(&format!("host-{index}.pem")))
                .arg("--socket")
                .arg(self.host_socket(index))
                .args(METRICS),
        );
        let opened = running.await_json(|line| line.get("guid").is_some());
        self.note_metrics(format!("host-{index}"), &opened);
        self.hosts[index] = Some(running);
    }

    fn note_metrics(&mut self, node: String, opened: &Value) {
        let address = opened["metrics"].as_str().unwrap().to_owned();
        self.metrics.insert(node, address);
    }

    pub(crate) fn router_socket(&self, index: usize) -> PathBuf {
        self.path(&format!("router-{index}.sock"))
    }

    pub(crate) fn host_socket(&self, index: usize) -> PathBuf {
        self.path(&format!("host-{index}.sock"))
    }

    pub(crate) fn guid_of(&self, key: &str) -> String {
        let (code, out, _) = finished(
            whimbrel()
                .args(["id", "show"])
                .arg(self.path(&format!("{key}.pem"))),
        );
        assert_eq!(code, 0);
        out.trim().to_owned()
    }

    pub(crate) fn host_status(&self, index: usize) -> Value {
        let socket = self.host_socket(index);
        let (code, out, err) = finished(
            whimbrel()
                .args(["host", "status", "--json", "--socket"])
                .arg(socket),
        );
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }

    fn routers_are_linked(&self) -> bool {
        let socket = self.router_socket(0);
        let (code, out, err) = finished(
            whimbrel()
                .args(["router", "status", "--json", "--socket"])
                .arg(socket),
        );
        assert_eq!(code, 0, "{err}");
        let status: Value = serde_json::from_str(&out).unwrap();
        let links = status["links"].as_array().unwrap();
        links
            .iter()
            .any(|link| link["label"] == "next" && link["up"] == true)
    }

    pub(crate) fn await_registered(&self, index: usize) {
        await_that("the host is registered", || {
            self.host_status(index)["registered"] == true
        });
    }

    /// Serves `paths` from host 1 until the result is dropped. Returns when all their names are
    /// announced.
    pub(crate) fn serve(&self, paths: &[&Path]) -> (Running, Vec<String>) {
        let running = Running::start(
            whimbrel()
                .args(["serve", "--json", "--no-cache", "--socket"])
                .arg(self.host_socket(1))
                .args(paths),
        );
        let names: Vec<String> = paths
            .iter()
            .map(|_| {
                let line = running.await_json(|line| line["event"] == "name");
                line["shelved"]["name"].as_str().unwrap().to_owned()
            })
            .collect();
        let mut announced = std::collections::BTreeSet::new();
        while !names.iter().all(|name| announced.contains(name)) {
            let registered =
                |line: &Value| line["event"] == "announced" && line["outcome"] == "Registered";
            announced.insert(
                running.await_json(registered)["name"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
        }
        (running, names)
    }

    /// Returns a `get` at host 0.
    pub(crate) fn get(&self, name: &str, output: &Path) -> Command {
        let mut command = whimbrel();
        command.args(["get", name, "--json", "--timeout", "100 s", "--socket"]);
        command.arg(self.host_socket(0)).arg("-o").arg(output);
        command
    }

    /// Starts `get` and returns when `share` (0 to 1) of `length` bytes has arrived.
    pub(crate) fn get_until(
        &self,
        name: &str,
        output: &Path,
        length: usize,
        share: f64,
    ) -> Running {
        let running = Running::start(&mut self.get(name, output));
        let enough = |line: &Value| {
            line["progress"]["bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes as f64 >= length as f64 * share)
        };
        running.await_json(enough);
        running
    }
}

pub(crate) fn await_that(what: &str, is_so: impl FnMut() -> bool) {
    await_that_or(what, is_so, String::new);
}

/// `why` is what a failure says in addition.
pub(crate) fn await_that_or(what: &str, mut is_so: impl FnMut() -> bool, why: impl Fn() -> String) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "in vain: {what}\n{}", why());
        std::thread::sleep(Duration::from_millis(10));
    }
}
