//! A fetch by real programs whose path changes meanwhile: a new address on the same interface,
//! another interface, a renewed lease, a NAT that forgets, a suspended machine, a path that drops
//! large packets, a router that restarts.
//!
//! Each test prints the length of the pause. None asserts it, because real time is not under the
//! control of the test. The tests need network namespaces and are skipped without them.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use whimbrel_core::SeededRng;
use whimbrel_lab::{Namespace, Process, Topology, TopologyBuilder, lab_available};
use whimbrel_sim::link::LinkSpec;

const PATIENCE: Duration = Duration::from_secs(90);
/// Large enough, at [`RATE`], for a test to act in the middle.
const LENGTH: u64 = 8 << 20;
/// Rate of either link, bit/s.
const RATE: u64 = 24_000_000;
/// One-way delay.
const DELAY: Duration = Duration::from_millis(10);
/// An address of the far side that is on none of its interfaces, so that the client's routes decide
/// which link leads there.
const FAR: &str = "10.200.0.1";

/// A client with two interfaces, `wifi` and `lte`, to the serving machine: a router with a host on
/// it, or a host that is reached directly.
struct Scene {
    folder: tempfile::TempDir,
    topology: Topology,
    name: String,
    daemons: Vec<Process>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Far {
    /// The client's host daemon is attached to a router.
    Router,
    /// `get --from` connects to `serve --listen`.
    Host,
}

impl Scene {
    fn build(far: Far) -> Option<Scene> {
        if !lab_available() {
            eprintln!("skipped: no network namespaces");
            return None;
        }
        let topology = TopologyBuilder::new(1)
            .host("c")
            .host("r")
            .link("wifi", "c", "r", spec(), spec())
            .link("lte", "c", "r", spec(), spec())
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let mut rng = SeededRng::new(9);
        let words = (0..LENGTH / 8).flat_map(|_| rng.next_word().to_le_bytes());
        fs::write(&file, words.collect::<Vec<u8>>()).unwrap();
        let name = blake3::hash(&fs::read(&file).unwrap()).to_hex().to_string();
        let mut scene = Scene {
            folder,
            topology,
            name,
            daemons: Vec::new(),
        };
        let far_host = scene.host("r");
        far_host
            .run("ip", &["address", "add", FAR, "dev", "lo"])
            .unwrap();
        scene.route("wifi");
        match far {
            Far::Router => scene.start_routed(&file),
            Far::Host => scene.start_direct(&file),
        }
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn host(&self, name: &str) -> Namespace {
        self.topology.host(name).unwrap().clone()
    }

    fn address(&self, host: &str, link: &str) -> String {
        self.topology.address_of(host, link).unwrap().to_string()
    }

    fn interface(&self, link: &str) -> String {
        self.topology.interface_of("c", link).unwrap()
    }

    /// Runs `ip` on the client.
    fn ip(&self, arguments: &str) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        self.host("c").run("ip", &arguments).unwrap();
    }

    /// Routes the client's packets to the far side over this link.
    fn route(&self, link: &str) {
        let (via, device) = (self.address("r", link), self.interface(link));
        self.ip(&format!("route replace {FAR} via {via} dev {device}"));
    }

    fn whimbrel(&self, host: &str, log: &str, arguments: &[&str]) -> Process {
        let file = |kind| fs::File::create(self.path(&format!("{log}.{kind}"))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("WHIMBREL_SOCKET")
            .env_remove("WHIMBREL_NAME_SERVER")
            .env("XDG_STATE_HOME", self.path(log))
            .env("HOME", self.path(log))
            .env("WHIMBREL_LOG", "info")
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("log"));
        self.host(host).spawn(command).unwrap()
    }

    fn run(&self, at: &str, kind: &str, name: &str) -> Process {
        let [config, key, socket] =
            ["toml", "pem", "sock"].map(|extension| format!("{name}.{extension}"));
        let arguments = [
            kind, "run", "--json", "--config", &config, "--key", &key, "--socket", &socket,
        ];
        self.whimbrel(at, name, &arguments)
    }

    fn start_router(&self) -> Process {
        self.run("r", "router", "router")
    }

    fn start_routed(&mut self, file: &Path) {
        let listen = "[[link]]\nlabel = \"callers\"\nbind = \"0.0.0.0:4711\"\nlisten = true\n";
        fs::write(self.path("router.toml"), listen).unwrap();
        let host =
            |remote: &str| format!("[[link]]\nlabel = \"access\"\nremote = \"{remote}:4711\"\n");
        fs::write(self.path("server.toml"), host("127.0.0.1")).unwrap();
        fs::write(self.path("client.toml"), host(FAR)).unwrap();
        let router = self.start_router();
        let server = self.run("r", "host", "server");
        let client = self.run("c", "host", "client");
        self.daemons.extend([router, server, client]);
        await_that("the server's socket", || self.path("server.sock").exists());
        await_that("the client's socket", || self.path("client.sock").exists());
        let file = file.to_string_lossy().into_owned();
        let serve = self.whimbrel(
            "r",
            "serve",
            &[
                "serve",
                "--json",
                "--no-cache",
                "--socket",
                "server.sock",
                &file,
            ],
        );
        self.daemons.push(serve);
        await_that("the announcement", || {
            fs::read_to_string(self.path("serve.out")).is_ok_and(|text| text.contains("Registered"))
        });
    }

    fn start_direct(&mut self, file: &Path) {
        let file = file.to_string_lossy().into_owned();
        let serve = self.whimbrel(
            "r",
            "serve",
            &[
                "serve",
                "--json",
                "--no-cache",
                "--listen",
                "0.0.0.0:4711",
                &file,
            ],
        );
        self.daemons.push(serve);
        await_that("the name", || {
            fs::read_to_string(self.path("serve.out"))
                .is_ok_and(|text| text.contains("\"event\":\"name\""))
        });
    }

    fn get(&self, far: Far, from: &str) -> Process {
        let mut arguments = vec!["get", &self.name, "--json", "-o", "arrived"];
        match far {
            Far::Router => arguments.extend(["--socket", "client.sock"]),
            Far::Host => arguments.extend(["--from", from]),
        }
        self.whimbrel("c", "get", &arguments)
    }

    /// Returns the bytes that have arrived, by the client's own report.
    fn arrived(&self) -> u64 {
        let text = fs::read_to_string(self.path("get.out")).unwrap_or_default();
        let bytes = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            line["progress"]["bytes"]
                .as_u64()
                .or(line["fetched"]["length"].as_u64())
        };
        text.lines().rev().find_map(bytes).unwrap_or(0)
    }

    fn await_bytes(&self, bytes: u64) {
        await_that(&format!("{bytes} bytes"), || self.arrived() >= bytes);
    }

    /// Fetches, runs `change` in the middle, and prints the time without data, from the return of
    /// `change`: the new path is there then.
    fn survives(
        &self,
        what: &str,
        far: Far,
        from: &str,
        change: impl FnOnce(&Scene, &mut Process),
    ) {
        let mut get = self.get(far, from);
        self.await_bytes(LENGTH / 4);
        change(self, &mut get);
        let (before, start) = (self.arrived(), Instant::now());
        // A chunk may be under way during the change, so it does not count as progress.
        await_that_or(
            "the transfer to resume",
            || self.arrived() >= (before + (1 << 20)).min(LENGTH),
            || self.logs(),
        );
        let stall = start.elapsed();
        let status = get.wait_for(PATIENCE).unwrap();
        assert!(
            status.is_some_and(|status| status.success()),
            "{what}: {status:?}\n{}",
            self.logs()
        );
        let same = fs::read(self.path("arrived")).unwrap() == fs::read(self.path("file")).unwrap();
        assert!(same, "{what}: other bytes arrived");
        println!(
            "{what}: {:.2} s until a further MiB had arrived",
            stall.as_secs_f64()
        );
    }

    fn logs(&self) -> String {
        let mut all = String::new();
        for name in ["router", "server", "client", "serve", "get"] {
            let text = fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            if !text.is_empty() {
                all += &format!("--- {name}\n{text}");
            }
        }
        all
    }

    /// Returns the log of the node whose address changes.
    fn own_log(&self, far: Far) -> String {
        let name = match far {
            Far::Router => "client.log",
            Far::Host => "get.log",
        };
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

fn spec() -> LinkSpec {
    LinkSpec::new(RATE, DELAY)
}

fn await_that(what: &str, is_so: impl FnMut() -> bool) {
    await_that_or(what, is_so, String::new);
}

fn await_that_or(what: &str, mut is_so: impl FnMut() -> bool, why: impl Fn() -> String) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "in vain: {what}\n{}", why());
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn new_address(far: Far) {
    let Some(scene) = Scene::build(far) else {
        return;
    };
    scene.survives(
        "a new address on the same interface",
        far,
        &format!("{FAR}:4711"),
        |scene, _| {
            let (device, old) = (scene.interface("wifi"), scene.address("c", "wifi"));
            // A /30 has no third host, so the new address is of another network on the same wire.
            scene
                .host("r")
                .run("ip", &["route", "add", "10.201.0.7/32", "dev", &device])
                .unwrap();
            scene.ip(&format!("address add 10.201.0.7/32 dev {device}"));
            scene.ip(&format!("address del {old}/30 dev {device}"));
            scene.ip(&format!("route replace {FAR} dev {device} src 10.201.0.7"));
        },
    );
    let log = scene.own_log(far);
    assert!(log.contains("10.201.0.7"), "it is not in the log:\n{log}");
}

#[test]
fn a_new_address_on_the_same_interface_with_a_router() {
    new_address(Far::Router);
}

#[test]
fn a_new_address_on_the_same_interface_with_a_direct_host() {
    new_address(Far::Host);
}

fn from_wifi_to_lte(far: Far) {
    let Some(scene) = Scene::build(far) else {
        return;
    };
    scene.survives(
        "another interface, the old address still there",
        far,
        &format!("{FAR}:4711"),
        |scene, _| {
            // The access point is out of reach: frames to it and from it are lost.
            scene.topology.set_outage("wifi", true).unwrap();
            scene.route("lte");
        },
    );
    let log = scene.own_log(far);
    let new = scene.address("c", "lte");
    assert!(log.contains(&new), "it is not in the log:\n{log}");
}

#[test]
fn from_wifi_to_lte_with_a_router() {
    from_wifi_to_lte(Far::Router);
}

#[test]
fn from_wifi_to_lte_with_a_direct_host() {
    from_wifi_to_lte(Far::Host);
}

#[test]
fn a_renewed_lease_removes_the_address_and_restores_it() {
    let Some(scene) = Scene::build(Far::Router) else {
        return;
    };
    scene.survives(
        "an address that was removed and restored",
        Far::Router,
        &format!("{FAR}:4711"),
        |scene, _| {
            let (device, own) = (scene.interface("wifi"), scene.address("c", "wifi"));
            scene.ip(&format!("address del {own}/30 dev {device}"));
            // This is long enough for the neighbour to count as silent.
            std::thread::sleep(Duration::from_secs(2));
            scene.ip(&format!("address add {own}/30 dev {device}"));
            scene.route("wifi");
        },
    );
}

/// A NAT and a tunnel between the client and the far side. After [`Between::rebind`] the client's
/// packets come from another port, and datagrams above a size are dropped.
struct Between {
    rebind: AtomicBool,
    largest: AtomicUsize,
}

impl Between {
    /// Starts it, for as long as the test's process lives.
    fn start(at: &Namespace, largest: usize) -> Arc<Between> {
        let between = Arc::new(Between {
            rebind: AtomicBool::new(false),
            largest: AtomicUsize::new(largest),
        });
        let inside = at
            .enter(|| UdpSocket::bind("127.0.0.1:4711").unwrap())
            .unwrap();
        let (namespace, this) = (at.clone(), Arc::clone(&between));
        std::thread::spawn(move || relay(&namespace, &inside, &this));
        between
    }

    fn rebind(&self) {
        self.rebind.store(true, Ordering::Relaxed);
    }
}

fn relay(namespace: &Namespace, inside: &UdpSocket, between: &Between) {
    let outside = || {
        let socket = namespace
            .enter(|| UdpSocket::bind("0.0.0.0:0").unwrap())
            .unwrap();
        socket.connect(format!("{FAR}:4711")).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    inside.set_nonblocking(true).unwrap();
    let (mut socket, mut client) = (outside(), None);
    let mut buffer = vec![0; 65_536];
    loop {
        let largest = between.largest.load(Ordering::Relaxed);
        if between.rebind.swap(false, Ordering::Relaxed) {
            // Packets to the old mapping are lost, as with a NAT that forgot it.
            socket = outside();
        }
        let mut idle = true;
        while let Ok((length, from)) = inside.recv_from(&mut buffer) {
            client = Some(from);
            if length <= largest {
                let _ = socket.send(&buffer[..length]);
            }
            idle = false;
        }
        loop {
            match socket.recv(&mut buffer) {
                Ok(length) => {
                    if let Some(client) = client.filter(|_| length <= largest) {
                        let _ = inside.send_to(&buffer[..length], client);
                    }
                    idle = false;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {}
            }
        }
        if idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn nat_rebinding(far: Far) {
    let Some(scene) = Scene::build(far) else {
        return;
    };
    let nat = Between::start(&scene.host("c"), usize::MAX);
    scene.survives(
        "a NAT that forgets its mapping",
        far,
        "127.0.0.1:4711",
        |_, _| nat.rebind(),
    );
}

#[test]
fn a_nat_that_forgets_its_mapping_with_a_direct_host() {
    nat_rebinding(Far::Host);
}

#[test]
fn a_path_that_drops_large_packets_from_the_start() {
    let Some(scene) = Scene::build(Far::Host) else {
        return;
    };
    let _tunnel = Between::start(&scene.host("c"), 1_380);
    let start = Instant::now();
    let mut get = scene.get(Far::Host, "127.0.0.1:4711");
    await_that_or("data", || scene.arrived() > 0, || scene.logs());
    println!(
        "{:.2} s until the first data through a path that drops large packets",
        start.elapsed().as_secs_f64()
    );
    let status = get.wait_for(PATIENCE).unwrap();
    assert!(
        status.is_some_and(|status| status.success()),
        "{}",
        scene.logs()
    );
    let log = fs::read_to_string(scene.path("serve.log")).unwrap();
    assert!(log.contains("size=1200"), "it is not in the log:\n{log}");
}

#[test]
fn a_path_that_begins_to_drop_large_packets() {
    let Some(scene) = Scene::build(Far::Host) else {
        return;
    };
    let tunnel = Between::start(&scene.host("c"), usize::MAX);
    scene.survives(
        "a path that begins to drop large packets",
        Far::Host,
        "127.0.0.1:4711",
        |_, _| tunnel.largest.store(1_380, Ordering::Relaxed),
    );
}

#[test]
fn a_router_that_keeps_names_recovers_them_after_a_restart() {
    let Some(mut scene) = Scene::build(Far::Router) else {
        return;
    };
    scene.daemons[0].kill().unwrap();
    scene.daemons[0] = scene.start_router();
    let start = Instant::now();
    // If announcements waited for their renewal, this would take 200 s.
    await_that_or(
        "the name",
        || {
            let mut get = scene.get(Far::Router, "");
            let status = get.wait_for(PATIENCE).unwrap();
            status.is_some_and(|status| status.success())
        },
        || scene.logs(),
    );
    println!(
        "{:.2} s until the name was known again",
        start.elapsed().as_secs_f64()
    );
}

#[test]
fn a_machine_suspended_beyond_its_router_s_timeout() {
    let Some(scene) = Scene::build(Far::Router) else {
        return;
    };
    scene.survives(
        "a suspended machine",
        Far::Router,
        &format!("{FAR}:4711"),
        |scene, get| {
            let device = scene.interface("wifi");
            let stop = |get: &mut Process, signal| {
                // The daemon is the last of the three started before `serve`.
                get.signal(signal).unwrap();
                let pid = scene.daemons[2].id();
                let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
                rustix::process::kill_process(pid, signal).unwrap();
            };
            stop(get, Signal::STOP);
            scene.ip(&format!("link set {device} down"));
            std::thread::sleep(Duration::from_secs(70));
            scene.ip(&format!("link set {device} up"));
            scene.route("wifi");
            stop(get, Signal::CONT);
        },
    );
}
