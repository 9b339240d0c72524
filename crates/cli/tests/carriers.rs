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
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::support::PATIENCE;
use crate::support::scene::{self, Scene};
use socket2::{Domain, Protocol, Socket, Type};
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng, Time,
    Transmit,
};
use whimbrel_io::{Clock, EthernetConfig, EventLoop, Interface};
use whimbrel_lab::Process;

const LENGTH: u64 = 24 << 20;

/// A server `s`, a router `r` and a client `c`, with the wires `left` and `right`.
struct Wires {
    scene: Scene,
    name: String,
}

impl Deref for Wires {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

impl DerefMut for Wires {
    fn deref_mut(&mut self) -> &mut Scene {
        &mut self.scene
    }
}

impl Wires {
    fn build() -> Option<Wires> {
        let scene = Scene::build(|it| {
            (it.host("s").host("r").host("c"))
                .veth("left", "s", "r")
                .veth("right", "r", "c")
        })?;
        let name = scene.file("file", LENGTH, 15);
        Some(Wires { scene, name })
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

    /// Runs a router with a listener on each of `binds`, the server and the client with a link to
    /// each remote, and announces the file.
    fn start(&mut self, binds: &[String], server: &str, client: &str) {
        let router: String = (binds.iter().enumerate())
            .map(|(index, bind)| {
                format!("[[link]]\nlabel = \"at-{index}\"\nbind = \"{bind}\"\nlisten = true\n")
            })
            .collect();
        self.daemon("r", "router", "router", &router);
        // Slow enough for a test to act in the middle.
        let slowly = "pacing = \"100 Mbit/s\"\n";
        self.daemon(
            "s",
            "host",
            "server",
            &(scene::link("access", server) + slowly),
        );
        self.daemon("c", "host", "client", &scene::link("access", client));
        self.serve("s", "server", "file");
    }

    fn get(&self) -> Process {
        self.scene.get("c", "client", &self.name)
    }

    fn arrives(&self, get: Process) {
        self.finish(get, "file");
    }

    /// Returns what `router status` says.
    fn status(&self) -> serde_json::Value {
        let arguments = ["router", "status", "--json", "--socket", "router.sock"];
        let mut status = self.whimbrel("r", "status", &arguments);
        status.wait_for(PATIENCE).unwrap();
        serde_json::from_str(&self.text("status.out")).unwrap()
    }
}

/// The first wire is Ethernet, the second one bare IP.
fn ethernet_and_then_ip() -> Option<Wires> {
    let mut wires = Wires::build()?;
    let binds = [
        format!("dev://{}", wires.interface("r", "left")),
        String::from("ip://0.0.0.0"),
    ];
    let server = wires.ether("s", "left");
    let client = format!("ip://{}", wires.address("r", "right"));
    wires.start(&binds, &server, &client);
    Some(wires)
}

fn written(station: [u8; 6]) -> String {
    station.map(|octet| format!("{octet:02x}")).join(":")
}

#[test]
fn a_file_crosses_ethernet_and_then_bare_ip() {
    let Some(wires) = ethernet_and_then_ip() else {
        return;
    };
    wires.arrives(wires.get());
    // The path MTU of each is that of its carrier: 1500 less a length of 2, and less an IP header.
    let status = wires.status();
    let text = status.to_string();
    let peers = [
        written(wires.station("s", "left")),
        format!("ip://{}", wires.address("c", "right")),
    ];
    for peer in peers {
        assert!(text.contains(&peer), "{peer} is not in {text}");
    }
    let opened = wires.text("router.out");
    let opened: serde_json::Value = serde_json::from_str(opened.lines().next().unwrap()).unwrap();
    let device = format!("dev://{}", wires.interface("r", "left"));
    assert_eq!(opened["links"]["at-0"], device);
    assert_eq!(opened["links"]["at-1"], "ip://0.0.0.0");
}

#[test]
fn a_file_crosses_bare_ipv6_and_then_udp_over_ipv6() {
    let Some(mut wires) = Wires::build() else {
        return;
    };
    wires.add_ipv6();
    let binds = [String::from("ip://[::]"), String::from("[::]:4711")];
    wires.start(&binds, "ip://[fd00:0::2]", "[fd00:1::1]:4711");
    wires.arrives(wires.get());
}

#[test]
fn both_links_of_one_host_may_have_different_carriers() {
    let Some(mut wires) = Wires::build() else {
        return;
    };
    wires.add_ipv6();
    let (device, over_ip) = (
        format!("dev://{}", wires.interface("r", "right")),
        String::from("ip://[::]"),
    );
    let binds = [device, over_ip, String::from("0.0.0.0:4711")];
    let server = format!("{}:4711", wires.address("r", "left"));
    let client = format!(
        "{}\"\n[[link]]\nlabel = \"second\"\nremote = \"ip://[fd00:1::1]",
        wires.ether("c", "right")
    );
    wires.start(&binds, &server, &client);
    wires.arrives(wires.get());
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
    let Some(wires) = ethernet_and_then_ip() else {
        return;
    };
    let get = wires.get();
    let router = wires.station("r", "left");
    let interface = wires.interface("s", "left");
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
            noise
                .sockets()
                .add_ethernet(config.neighbour("r", router))
                .unwrap();
            while !noise.machine().0.is_empty() {
                noise.step(Duration::ZERO, |_, _, ()| {}).unwrap();
            }
        }
    };
    wires.host("s").enter(send_frames).unwrap();
    let to: std::net::Ipv4Addr = wires.topology.address_of("r", "right").unwrap();
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
    wires.host("c").enter(send_packets).unwrap();
    assert!(!wires.path("arrived").exists(), "the transfer was over");
    wires.arrives(get);
    fs::remove_file(wires.path("arrived")).unwrap();
    wires.arrives(wires.get());
}

#[test]
fn smaller_mtus_in_the_middle_of_a_transfer_are_found() {
    let Some(wires) = ethernet_and_then_ip() else {
        return;
    };
    let get = wires.get();
    wires.await_bytes(LENGTH / 8);
    for (host, link) in [("s", "left"), ("r", "left"), ("r", "right"), ("c", "right")] {
        let interface = wires.interface(host, link);
        wires.ip(host, &format!("link set {interface} mtu 1280"));
    }
    wires.arrives(get);
}

#[test]
fn a_wire_that_vanishes_and_is_laid_anew_goes_on() {
    let Some(mut wires) = Wires::build() else {
        return;
    };
    let at_router = wires.interface("r", "left");
    let at_server = wires.interface("s", "left");
    let stations = [wires.station("s", "left"), wires.station("r", "left")].map(written);
    let binds = [format!("dev://{at_router}"), String::from("0.0.0.0:4711")];
    let (server, client) = (
        wires.ether("s", "left"),
        format!("{}:4711", wires.address("r", "right")),
    );
    wires.start(&binds, &server, &client);
    let get = wires.get();
    wires.await_bytes(LENGTH / 8);
    wires.ip("s", &format!("link delete {at_server}"));
    assert!(!wires.path("arrived").exists(), "the transfer was over");
    std::thread::sleep(Duration::from_secs(2));
    wires.ip(
        "s",
        &format!(
            "link add {at_server} address {} type veth peer name {at_router} address {} netns {}",
            stations[0],
            stations[1],
            wires.host("r").path()
        ),
    );
    wires.ip("r", &format!("link set {at_router} up"));
    wires.ip("s", &format!("link set {at_server} up"));
    wires.arrives(get);
    let log = wires.text("router.log");
    assert!(log.contains("the interface is back"), "{log}");
}

#[test]
fn a_second_program_on_a_carrier_without_ports_is_told_so() {
    let Some(mut wires) = Wires::build() else {
        return;
    };
    let listen = "[[link]]\nlabel = \"at\"\nbind = \"ip://0.0.0.0\"\nlisten = true\n";
    wires.daemon("r", "router", "router", listen);
    let remote = format!("ip://{}", wires.address("s", "left"));
    let arguments = ["get", "--router", &remote, &wires.name.clone()];
    let mut second = wires.whimbrel("r", "second", &arguments);
    let status = second.wait_for(PATIENCE).unwrap().unwrap();
    let log = wires.text("second.log");
    assert!(
        !status.success() && log.contains("another program"),
        "{log}"
    );
}
