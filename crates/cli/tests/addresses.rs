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

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::PATIENCE;
use crate::support::scene::{self, Scene};
use rustix::process::Signal;
use whimbrel_lab::{Namespace, Process};
use whimbrel_sim::link::LinkSpec;

/// Large enough, at [`RATE`], for a test to act in the middle.
const LENGTH: u64 = 8 << 20;
/// Rate of either link, bit/s.
const RATE: u64 = 24_000_000;
/// One-way delay.
const DELAY: Duration = Duration::from_millis(10);
/// An address of the far side that is on none of its interfaces, so that the client's routes decide
/// which link leads there.
const FAR: &str = "10.200.0.1";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Far {
    /// The client's host daemon is attached to a router.
    Router,
    /// `get --from` connects to `serve --listen`.
    Host,
}

/// A client with two interfaces, `wifi` and `lte`, to the serving machine: a router with a host on
/// it, or a host that is reached directly.
struct Phone {
    scene: Scene,
    name: String,
}

impl Deref for Phone {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

impl DerefMut for Phone {
    fn deref_mut(&mut self) -> &mut Scene {
        &mut self.scene
    }
}

impl Phone {
    fn build(far: Far) -> Option<Phone> {
        let scene = Scene::build(|it| {
            (it.host("c").host("r"))
                .link("wifi", "c", "r", spec(), spec())
                .link("lte", "c", "r", spec(), spec())
        })?;
        let name = scene.file("file", LENGTH, 9);
        let mut phone = Phone { scene, name };
        phone.ip("r", &format!("address add {FAR} dev lo"));
        phone.route("wifi");
        match far {
            Far::Router => phone.start_routed(),
            Far::Host => phone.start_direct(),
        }
        Some(phone)
    }

    /// Routes the client's packets to the far side over this link.
    fn route(&self, link: &str) {
        let (via, device) = (self.address("r", link), self.interface("c", link));
        self.ip("c", &format!("route replace {FAR} via {via} dev {device}"));
    }

    fn start_routed(&mut self) {
        let host = |remote: &str| scene::link("access", &format!("{remote}:4711"));
        self.daemon("r", "router", "router", scene::LISTEN);
        self.daemon("r", "host", "server", &host("127.0.0.1"));
        self.daemon("c", "host", "client", &host(FAR));
        self.serve("r", "server", "file");
    }

    fn start_direct(&mut self) {
        let listen = ["--listen", "0.0.0.0:4711", "file"];
        let arguments = [&["serve", "--json", "--no-cache"], &listen[..]].concat();
        let serve = self.whimbrel("r", "serve", &arguments);
        self.daemons.push(serve);
        self.await_that("the name", || {
            self.text("serve.out").contains("\"event\":\"name\"")
        });
    }

    fn get(&self, far: Far, from: &str) -> Process {
        match far {
            Far::Router => self.scene.get("c", "client", &self.name),
            Far::Host => {
                let arguments = ["get", &self.name, "--json", "-o", "arrived", "--from", from];
                self.whimbrel("c", "get", &arguments)
            }
        }
    }

    /// Fetches, runs `change` in the middle, and prints the time without data, from the return of
    /// `change`: the new path is there then.
    fn survives(
        &self,
        what: &str,
        far: Far,
        from: &str,
        change: impl FnOnce(&Phone, &mut Process),
    ) {
        let mut get = self.get(far, from);
        self.await_bytes(LENGTH / 4);
        change(self, &mut get);
        let (before, start) = (self.arrived(), Instant::now());
        // A chunk may be under way during the change, so it does not count as progress.
        self.await_that("the transfer to resume", || {
            self.arrived() >= (before + (1 << 20)).min(LENGTH)
        });
        let stall = start.elapsed();
        self.finish(get, "file");
        println!(
            "{what}: {:.2} s until a further MiB had arrived",
            stall.as_secs_f64()
        );
    }

    /// Returns the log of the node whose address changes.
    fn own_log(&self, far: Far) -> String {
        self.text(match far {
            Far::Router => "client.log",
            Far::Host => "get.log",
        })
    }
}

fn spec() -> LinkSpec {
    LinkSpec::new(RATE, DELAY)
}

fn new_address(far: Far) {
    let Some(phone) = Phone::build(far) else {
        return;
    };
    phone.survives(
        "a new address on the same interface",
        far,
        &format!("{FAR}:4711"),
        |phone, _| {
            let (device, old) = (phone.interface("c", "wifi"), phone.address("c", "wifi"));
            // A /30 has no third host, so the new address is of another network on the same wire.
            phone
                .host("r")
                .run("ip", &["route", "add", "10.201.0.7/32", "dev", &device])
                .unwrap();
            phone.ip("c", &format!("address add 10.201.0.7/32 dev {device}"));
            phone.ip("c", &format!("address del {old}/30 dev {device}"));
            phone.ip(
                "c",
                &format!("route replace {FAR} dev {device} src 10.201.0.7"),
            );
        },
    );
    let log = phone.own_log(far);
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
    let Some(phone) = Phone::build(far) else {
        return;
    };
    phone.survives(
        "another interface, the old address still there",
        far,
        &format!("{FAR}:4711"),
        |phone, _| {
            // The access point is out of reach: frames to it and from it are lost.
            phone.topology.set_outage("wifi", true).unwrap();
            phone.route("lte");
        },
    );
    let log = phone.own_log(far);
    let new = phone.address("c", "lte");
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
    let Some(phone) = Phone::build(Far::Router) else {
        return;
    };
    phone.survives(
        "an address that was removed and restored",
        Far::Router,
        &format!("{FAR}:4711"),
        |phone, _| {
            let (device, own) = (phone.interface("c", "wifi"), phone.address("c", "wifi"));
            phone.ip("c", &format!("address del {own}/30 dev {device}"));
            // This is long enough for the neighbour to count as silent.
            std::thread::sleep(Duration::from_secs(2));
            phone.ip("c", &format!("address add {own}/30 dev {device}"));
            phone.route("wifi");
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
    let Some(phone) = Phone::build(far) else {
        return;
    };
    let nat = Between::start(&phone.host("c"), usize::MAX);
    phone.survives(
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
    let Some(phone) = Phone::build(Far::Host) else {
        return;
    };
    let _tunnel = Between::start(&phone.host("c"), 1_380);
    let start = Instant::now();
    let mut get = phone.get(Far::Host, "127.0.0.1:4711");
    phone.await_that("data", || phone.arrived() > 0);
    println!(
        "{:.2} s until the first data through a path that drops large packets",
        start.elapsed().as_secs_f64()
    );
    let status = get.wait_for(PATIENCE).unwrap();
    assert!(
        status.is_some_and(|status| status.success()),
        "{}",
        phone.logs()
    );
    let log = phone.text("serve.log");
    assert!(log.contains("size=1200"), "it is not in the log:\n{log}");
}

#[test]
fn a_path_that_begins_to_drop_large_packets() {
    let Some(phone) = Phone::build(Far::Host) else {
        return;
    };
    let tunnel = Between::start(&phone.host("c"), usize::MAX);
    phone.survives(
        "a path that begins to drop large packets",
        Far::Host,
        "127.0.0.1:4711",
        |_, _| tunnel.largest.store(1_380, Ordering::Relaxed),
    );
}

#[test]
fn a_router_that_keeps_names_recovers_them_after_a_restart() {
    let Some(mut phone) = Phone::build(Far::Router) else {
        return;
    };
    phone.daemons[0].kill().unwrap();
    phone.daemons[0] = phone.run("r", "router", "router");
    let start = Instant::now();
    // If announcements waited for their renewal, this would take 200 s.
    phone.await_that("the name", || {
        let mut get = phone.get(Far::Router, "");
        let status = get.wait_for(PATIENCE).unwrap();
        status.is_some_and(|status| status.success())
    });
    println!(
        "{:.2} s until the name was known again",
        start.elapsed().as_secs_f64()
    );
}

#[test]
fn a_machine_suspended_beyond_its_router_s_timeout() {
    let Some(phone) = Phone::build(Far::Router) else {
        return;
    };
    phone.survives(
        "a suspended machine",
        Far::Router,
        &format!("{FAR}:4711"),
        |phone, get| {
            let device = phone.interface("c", "wifi");
            let stop = |get: &mut Process, signal| {
                // The daemon is the last of the three started before `serve`.
                get.signal(signal).unwrap();
                let pid = phone.daemons[2].id();
                let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
                rustix::process::kill_process(pid, signal).unwrap();
            };
            stop(get, Signal::STOP);
            phone.ip("c", &format!("link set {device} down"));
            std::thread::sleep(Duration::from_secs(70));
            phone.ip("c", &format!("link set {device} up"));
            phone.route("wifi");
            stop(get, Signal::CONT);
        },
    );
}
