//! Transfers by real programs over links of all carriers, mixed on one path: Ethernet, bare IP and
//! UDP, IPv4 and IPv6; with junk on the wire, a smaller MTU, and interfaces that vanish.
//!
//! The tests need network namespaces and are skipped without them.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng, Time,
    Transmit,
};
use whimbrel_io::{Clock, EthernetConfig, EventLoop, Interface};
use whimbrel_lab::{Namespace, Process, Topology, TopologyBuilder, lab_available};

const PATIENCE: Duration = Duration::from_secs(90);
const LENGTH: u64 = 24 << 20;

/// A server `s`, a router `r` and a client `c`, with the wires `left` and `right`.
struct Scene {
    folder: tempfile::TempDir,
    topology: Topology,
    name: String,
    daemons: Vec<Process>,
}

impl Scene {
    fn build() -> Option<Scene> {
        if !lab_available() {
            eprintln!("skipped: no network namespaces");
            return None;
        }
        let topology = TopologyBuilder::new(1)
            .host("s")
            .host("r")
            .host("c")
            .veth("left", "s", "r")
            .veth("right", "r", "c")
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut rng = SeededRng::new(15);
        let words = (0..LENGTH / 8).flat_map(|_| rng.next_word().to_le_bytes());
        let bytes: Vec<u8> = words.collect();
        fs::write(folder.path().join("file"), &bytes).unwrap();
        let name = blake3::hash(&bytes).to_hex().to_string();
        Some(Scene {
            folder,
            topology,
            name,
            daemons: Vec::new(),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn host(&self, name: &str) -> Namespace {
        self.topology.host(name).unwrap().clone()
    }

    fn interface(&self, host: &str, link: &str) -> String {
        self.topology.interface_of(host, link).unwrap()
    }

    fn address(&self, host: &str, link: &str) -> String {
        self.topology.address_of(host, link).unwrap().to_string()
    }

    fn ip(&self, host: &str, arguments: &str) {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        self.host(host).run("ip", &arguments).unwrap();
    }

    /// The lab switches IPv6 off; here each wire gets a network of it.
    fn add_ipv6(&self) {
        for (number, (link, ends)) in [("left", ["s", "r"]), ("right", ["r", "c"])]
            .into_iter()
            .enumerate()
        {
            for (last, host) in ends.into_iter().enumerate() {
                let interface = self.interface(host, link);
                for scope in ["all", &interface] {
                    let key = format!("net.ipv6.conf.{scope}.disable_ipv6");
                    self.host(host).set_sysctl(&key, "0").unwrap();
                }
                let address = format!("fd00:{number}::{}", last + 1);
                self.ip(
                    host,
                    &format!("-6 address add {address}/64 dev {interface} nodad"),
                );
            }
        }
    }

    fn station(&self, host: &str, link: &str) -> [u8; 6] {
        let interface = self.interface(host, link);
        let find = move || Interface::find(&interface).unwrap().ethernet.unwrap();
        self.host(host).enter(find).unwrap()
    }

    /// The router's end of a link, as a host writes it.
    fn ether(&self, host: &str, link: &str) -> String {
        let pairs = written(self.station("r", link));
        format!("ether://[{pairs}%{}]", self.interface(host, link))
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

    /// Runs a daemon with a configuration that is written as a file.
    fn daemon(&mut self, at: &str, kind: &str, name: &str, config: &str) {
        let [file, key, socket] =
            ["toml", "pem", "sock"].map(|extension| format!("{name}.{extension}"));
        fs::write(self.path(&file), config).unwrap();
        let arguments = [
            kind, "run", "--json", "--config", &file, "--key", &key, "--socket", &socket,
        ];
        let daemon = self.whimbrel(at, name, &arguments);
        self.daemons.push(daemon);
        self.await_that("a socket", || self.path(&socket).exists());
    }

    /// Runs a router with a listener on each of `binds`, the server and the client with a link to
    /// each remote, and announces the file.
    fn start(&mut self, binds: &[String], server: &str, client: &str) {
        let router: String = (binds.iter().enumerate())
            .map(|(index, bind)| {
                format!("[[link]]\nlabel = \"at-{index}\"\nbind = \"{bind}\"\nlisten = true\n")
            })
            .collect();
        let host = |remote: &str| format!("[[link]]\nlabel = \"access\"\nremote = \"{remote}\"\n");
        self.daemon("r", "router", "router", &router);
        // Slow enough for a test to act in the middle.
        let slowly = "mode = \"dedicated 100 Mbit/s\"\n";
        self.daemon("s", "host", "server", &(host(server) + slowly));
        self.daemon("c", "host", "client", &host(client));
        let serve = self.whimbrel(
            "s",
            "serve",
            &[
                "serve",
                "--json",
                "--no-cache",
                "--socket",
                "server.sock",
                "file",
            ],
        );
        self.daemons.push(serve);
        self.await_that("the announcement", || {
            fs::read_to_string(self.path("serve.out")).is_ok_and(|text| text.contains("Registered"))
        });
    }

    fn get(&self) -> Process {
        let arguments = [
            "get",
            &self.name,
            "--json",
            "-o",
            "arrived",
            "--socket",
            "client.sock",
        ];
        self.whimbrel("c", "get", &arguments)
    }

    fn arrives(&self, mut get: Process) {
        let status = get.wait_for(PATIENCE).unwrap();
        assert!(
            status.is_some_and(|status| status.success()),
            "{status:?}\n{}",
            self.logs()
        );
        let same = fs::read(self.path("arrived")).unwrap() == fs::read(self.path("file")).unwrap();
        assert!(same, "other bytes arrived");
    }

    /// Waits until the client has this many bytes.
    fn await_bytes(&self, bytes: u64) {
        self.await_that("the transfer's middle", || {
            let text = fs::read_to_string(self.path("get.out")).unwrap_or_default();
            let arrived = |line: &str| {
                let line: serde_json::Value = serde_json::from_str(line).ok()?;
                line["progress"]["bytes"].as_u64()
            };
            text.lines().rev().find_map(arrived) >= Some(bytes)
        });
    }

    fn await_that(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < until, "in vain: {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns what `router status` says.
    fn status(&self) -> serde_json::Value {
        let arguments = ["router", "status", "--json", "--socket", "router.sock"];
        let mut status = self.whimbrel("r", "status", &arguments);
        status.wait_for(PATIENCE).unwrap();
        serde_json::from_str(&fs::read_to_string(self.path("status.out")).unwrap()).unwrap()
    }

    fn logs(&self) -> String {
        ["router", "server", "client", "serve", "get"]
            .map(|name| {
                let text = fs::read_to_string(self.path(&format!("{name}.log")));
                format!("--- {name}\n{}", text.unwrap_or_default())
            })
            .concat()
    }
}

fn written(station: [u8; 6]) -> String {
    station.map(|octet| format!("{octet:02x}")).join(":")
}

#[test]
fn a_file_crosses_ethernet_and_then_bare_ip() {
    let Some(mut scene) = Scene::build() else {
        return;
    };
    let binds = [
        format!("dev://{}", scene.interface("r", "left")),
        String::from("ip://0.0.0.0"),
    ];
    let (server, client) = (
        scene.ether("s", "left"),
        format!("ip://{}", scene.address("r", "right")),
    );
    scene.start(&binds, &server, &client);
    scene.arrives(scene.get());
    // The path MTU of each is that of its carrier: 1500 less a length of 2, and less an IP header.
    let status = scene.status();
    let text = status.to_string();
    let peers = [
        written(scene.station("s", "left")),
        format!("ip://{}", scene.address("c", "right")),
    ];
    for peer in peers {
        assert!(text.contains(&peer), "{peer} is not in {text}");
    }
    let opened = fs::read_to_string(scene.path("router.out")).unwrap();
    let opened: serde_json::Value = serde_json::from_str(opened.lines().next().unwrap()).unwrap();
    assert_eq!(opened["links"]["at-0"], binds[0]);
    assert_eq!(opened["links"]["at-1"], binds[1]);
}

#[test]
fn a_file_crosses_bare_ipv6_and_then_udp_over_ipv6() {
    let Some(mut scene) = Scene::build() else {
        return;
    };
    scene.add_ipv6();
    let binds = [String::from("ip://[::]"), String::from("[::]:4711")];
    scene.start(&binds, "ip://[fd00:0::2]", "[fd00:1::1]:4711");
    scene.arrives(scene.get());
}

#[test]
fn both_links_of_one_host_may_have_different_carriers() {
    let Some(mut scene) = Scene::build() else {
        return;
    };
    scene.add_ipv6();
    let (device, over_ip) = (
        format!("dev://{}", scene.interface("r", "right")),
        String::from("ip://[::]"),
    );
    let binds = [device, over_ip, String::from("0.0.0.0:4711")];
    let server = format!("{}:4711", scene.address("r", "left"));
    let client = format!(
        "{}\"\n[[link]]\nlabel = \"second\"\nremote = \"ip://[fd00:1::1]",
        scene.ether("c", "right")
    );
    scene.start(&binds, &server, &client);
    scene.arrives(scene.get());
}

/// Sends frames to one port, and ignores what arrives.
struct Noise(Vec<Vec<u8>>);

impl Machine for Noise {
    type Event = ();
    fn handle_port(&mut self, _: Time, _: PortId, _: PortEvent) {}
    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}
    fn handle_frames(&mut self, _: Time, _: PortId, _: &[&[u8]]) {}
    fn handle_timeout(&mut self, _: Time) {}
    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let frame = self.0.pop()?;
        buffer.extend_from_slice(&frame);
        Some(Transmit {
            port: PortId(0),
            size: frame.len(),
            segment_size: None,
        })
    }
    fn poll_event(&mut self) -> Option<()> {
        None
    }
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }
    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

/// Returns frames of all lengths: random ones, and damaged ones of each kind of message.
fn junk(seed: u64) -> Vec<Vec<u8>> {
    let mut rng = SeededRng::new(seed);
    let mut random = |length: usize| -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| rng.next_word().to_le_bytes());
        words.take(length).collect()
    };
    let mut all: Vec<Vec<u8>> = (0..600).map(|number| random(1 + number * 2)).collect();
    for first in [
        0x10, 0x11, 0x12, 0x20, 0x21, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35,
    ] {
        for length in [1, 4, 11, 12, 24, 84, 217, 225, 240, 1400] {
            let mut frame = random(length);
            frame[0] = first;
            all.push(frame);
        }
    }
    all
}

#[test]
fn junk_and_foreign_packets_on_both_wires_stop_nothing() {
    let Some(mut scene) = Scene::build() else {
        return;
    };
    let binds = [
        format!("dev://{}", scene.interface("r", "left")),
        String::from("ip://0.0.0.0"),
    ];
    let (server, client) = (
        scene.ether("s", "left"),
        format!("ip://{}", scene.address("r", "right")),
    );
    scene.start(&binds, &server, &client);
    let get = scene.get();
    let router = scene.station("r", "left");
    let interface = scene.interface("s", "left");
    // From the server's own station, with and without a length, and of NDN's and IP's EtherTypes.
    let send_frames = move || {
        for ether_type in [0x27c0, 0x8624, 0x0800, 0x88b5] {
            let mut frames = junk(u64::from(ether_type));
            let with_lengths: Vec<Vec<u8>> = (frames.iter())
                .map(|frame| [&(frame.len() as u16).to_be_bytes(), &frame[..]].concat())
                .collect();
            frames.extend(with_lengths);
            let interface = Interface::find(&interface).unwrap();
            let config = EthernetConfig::new("noise", interface, ether_type);
            let mut noise = EventLoop::new(Clock::start(), Noise(frames)).unwrap();
            noise.add_ethernet(config.neighbour("r", router)).unwrap();
            while !noise.machine().0.is_empty() {
                noise.step(Duration::ZERO, |_, _, ()| {}).unwrap();
            }
        }
    };
    scene.host("s").enter(send_frames).unwrap();
    let to: std::net::Ipv4Addr = scene.topology.address_of("r", "right").unwrap();
    let send_packets = move || {
        for protocol in [253, 254, 5, 47] {
            let protocol = Protocol::from(protocol);
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(protocol)).unwrap();
            for frame in junk(7) {
                let to = std::net::SocketAddr::from((to, 0));
                // The kernel's buffer may be full; what is lost is junk.
                let _ = socket.send_to(&frame, &to.into());
            }
        }
    };
    scene.host("c").enter(send_packets).unwrap();
    assert!(!scene.path("arrived").exists(), "the transfer was over");
    scene.arrives(get);
    fs::remove_file(scene.path("arrived")).unwrap();
    scene.arrives(scene.get());
}

#[test]
fn smaller_mtus_in_the_middle_of_a_transfer_are_found() {
    let Some(mut scene) = Scene::build() else {
        return;
    };
    let binds = [
        format!("dev://{}", scene.interface("r", "left")),
        String::from("ip://0.0.0.0"),
    ];
    let (server, client) = (
        scene.ether("s", "left"),
        format!("ip://{}", scene.address("r", "right")),
    );
    scene.start(&binds, &server, &client);
    let get = scene.get();
    scene.await_bytes(LENGTH / 8);
    for (host, link) in [("s", "left"), ("r", "left"), ("r", "right"), ("c", "right")] {
        let interface = scene.interface(host, link);
        scene.ip(host, &format!("link set {interface} mtu 1280"));
    }
    scene.arrives(get);
}

#[test]
fn a_wire_that_vanishes_and_is_laid_anew_goes_on() {
    let Some(mut scene) = Scene::build() else {
        return;
    };
    let at_router = scene.interface("r", "left");
    let at_server = scene.interface("s", "left");
    let stations = [scene.station("s", "left"), scene.station("r", "left")].map(written);
    let binds = [format!("dev://{at_router}"), String::from("0.0.0.0:4711")];
    let (server, client) = (
        scene.ether("s", "left"),
        format!("{}:4711", scene.address("r", "right")),
    );
    scene.start(&binds, &server, &client);
    let get = scene.get();
    scene.await_bytes(LENGTH / 8);
    scene.ip("s", &format!("link delete {at_server}"));
    assert!(!scene.path("arrived").exists(), "the transfer was over");
    std::thread::sleep(Duration::from_secs(2));
    scene.ip(
        "s",
        &format!(
            "link add {at_server} address {} type veth peer name {at_router} address {} netns {}",
            stations[0],
            stations[1],
            scene.host("r").path()
        ),
    );
    scene.ip("r", &format!("link set {at_router} up"));
    scene.ip("s", &format!("link set {at_server} up"));
    scene.arrives(get);
    let log = fs::read_to_string(scene.path("router.log")).unwrap();
    assert!(log.contains("the interface is back"), "{log}");
}

#[test]
fn a_second_program_on_a_carrier_without_ports_is_told_so() {
    let Some(mut scene) = Scene::build() else {
        return;
    };
    let listen = "[[link]]\nlabel = \"at\"\nbind = \"ip://0.0.0.0\"\nlisten = true\n";
    scene.daemon("r", "router", "router", listen);
    let remote = format!("ip://{}", scene.address("s", "left"));
    let arguments = ["get", "--router", &remote, &scene.name.clone()];
    let mut second = scene.whimbrel("r", "second", &arguments);
    let status = second.wait_for(PATIENCE).unwrap().unwrap();
    let log = fs::read_to_string(scene.path("second.log")).unwrap();
    assert!(
        !status.success() && log.contains("another program"),
        "{log}"
    );
}
