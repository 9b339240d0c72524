//! One lossy link between two NDN routers, in the simulator and on real sockets in network
//! namespaces: the losses of the programs behind the routers without link reliability and with it;
//! and a link that loses large packets only.
//!
//! Both ends use it even if only the connecting end is configured: the other router follows the
//! inbound peer.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{await_that, finished, whimbrel};
use serde_json::Value;
use whimbrel_lab::{Namespace, Process, Topology, TopologyBuilder, lab_available};
use whimbrel_sim::link::{LinkSpec, Loss};

/// Loss rate of frames, in each direction.
const LOSS: f64 = 0.05;
const EXCHANGES: u32 = 2_000;

/// The expected loss of exchanges of two frames without recovery.
fn unrepaired() -> f64 {
    1.0 - (1.0 - LOSS) * (1.0 - LOSS)
}

#[test]
fn the_simulated_link_has_the_expected_loss_and_recovers_nearly_all() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("one-hop.toml");
    fs::write(
        &scenario,
        format!(
            "runs = 1\nlimit = \"200 s\"\nlinger = \"1 s\"\n\
             [graph]\nrole = \"ndn-router\"\nprefix = \"N\"\nline = {{ nodes = 2 }}\n\
             [defaults.link]\nrate = \"10 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"80 packets\"\nloss = \"{} %\"\n\
             carrier = \"bare\"\ndevice = true\nmarking = false\n\
             [loads.prefix-a]\nfrom = \"N2\"\nto = \"N1\"\n\
             [loads.prefix-a.poisson]\nrate = 400\ncount = {EXCHANGES}\npayload = 1024\nlifetime = \"600 ms\"\n\
             timeout = {{ initial = \"100 ms\", min = \"100 ms\", variation_factor = 8.0, check = \"50 ms\" }}\n\
             [sweep.hops]\n1 = {{ \"graph.line.nodes\" = 2 }}\n\
             [sweep.recovery]\nnone = {{ \"defaults.link.recovery\" = \"off\" }}\n\
             adaptive = {{ \"defaults.link.recovery\" = \"adaptive\" }}\n",
            LOSS * 100.0
        ),
    )
    .unwrap();
    let results = folder.path().join("results");
    let mut command = whimbrel();
    command
        .args(["study", "run", "belrp-hops", "--quiet", "--scenario"])
        .arg(&scenario);
    let (code, _, errors) = finished(command.arg("--output").arg(&results));
    assert_eq!(code, 0, "{errors}");
    let asked_again = |variant: &str| {
        let table = results.join("belrp-hops/sim/consumer-retransmissions.csv");
        let table = fs::read_to_string(table).unwrap();
        let rows = table
            .lines()
            .map(|line| line.split(',').collect::<Vec<_>>())
            .collect::<Vec<_>>();
        let column = |name: &str| rows[0].iter().position(|known| *known == name).unwrap();
        let row = rows
            .iter()
            .find(|row| row[column("recovery on links")] == variant)
            .unwrap();
        row[column("ours")].parse::<f64>().unwrap() / f64::from(EXCHANGES)
    };
    let (without, with) = (asked_again("end to end only"), asked_again("adaptive"));
    assert!(without > unrepaired() * 0.7, "{without}");
    assert!(
        with < unrepaired() / 10.0,
        "{with} with recovery, {without} without"
    );
}

struct Node<'a> {
    host: &'a Namespace,
    folder: std::path::PathBuf,
    _router: Process,
}

impl<'a> Node<'a> {
    fn start(topology: &'a Topology, name: &str, folder: &Path, config: &str) -> Node<'a> {
        let folder = folder.join(name);
        fs::create_dir(&folder).unwrap();
        let file = folder.join("router.toml");
        fs::write(&file, format!("[ndn]\nmulticast = false\n{config}")).unwrap();
        let host = topology.host(name).unwrap();
        let mut command = whimbrel();
        command
            .args(["router", "run", "--quiet", "--ndn", "--config"])
            .arg(&file);
        command.arg("--ndn-socket").arg(folder.join("nfd.sock"));
        let log = fs::File::create(folder.join("log")).unwrap();
        command.env("WHIMBREL_LOG", "info");
        command.stdout(Stdio::null()).stderr(log);
        let router = host.spawn(command).unwrap();
        let node = Node {
            host,
            folder,
            _router: router,
        };
        await_that("the router answers", || {
            node.folder.join("nfd.sock").exists()
        });
        node
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = whimbrel();
        command.args(arguments);
        command.env(
            "NDN_CLIENT_TRANSPORT",
            format!("unix://{}", self.folder.join("nfd.sock").display()),
        );
        command
            .env("HOME", &self.folder)
            .env_remove("WHIMBREL_KEYCHAIN");
        command
    }

    fn prints(&self, arguments: &[&str]) -> String {
        // The router's socket file is on this machine, so the command need not be in the namespace.
        let (code, out, errors) = finished(&mut self.command(arguments));
        assert_eq!(code, 0, "{arguments:?}\n{out}\n{errors}");
        out
    }
}

/// Asserts that a link of this router has recovered lost frames.
fn assert_recovers(node: &Node, name: &str) {
    let status: Value =
        serde_json::from_str(&node.prints(&["status", "--faces", "--json"])).unwrap();
    let links = status["links"]
        .as_array()
        .unwrap_or_else(|| panic!("{status}"));
    let recovered = links
        .iter()
        .filter_map(|link| link["link"]["recovered"].as_u64())
        .max();
    assert!(
        recovered > Some(u64::from(EXCHANGES) / 50),
        "{name}: {links:?}"
    );
}

/// Returns the loss rate of exchanges between programs that do not retransmit.
fn lost_between_namespaces(reliability: &str) -> f64 {
    let link = LinkSpec {
        loss: Loss::Independent(LOSS),
        ..LinkSpec::new(10_000_000, Duration::from_millis(5))
    };
    let topology = TopologyBuilder::new(1)
        .host("a")
        .host("b")
        .link("ab", "a", "b", link.clone(), link)
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let b_address = topology.address_of("b", "ab").unwrap();
    let configured = format!(
        "reliability = \"{reliability}\"\n[[ndn_route]]\nprefix = \"/far\"\nface = \"udp4://{b_address}:6363\"\n"
    );
    let b = Node::start(&topology, "b", folder.path(), "");
    let a = Node::start(&topology, "a", folder.path(), &configured);
    fs::write(
        b.folder.join("server.conf"),
        "Name=/far\nContentBytes=1024\n",
    )
    .unwrap();
    fs::write(
        a.folder.join("client.conf"),
        "TrafficPercentage=100\nName=/far\nNameAppendSequenceNumber=0\nInterestLifetime=1000\n",
    )
    .unwrap();
    let server = b.folder.join("server.conf");
    let _server = b.host.spawn({
        let mut command = b.command(&[
            "ndn",
            "traffic",
            "server",
            server.to_str().unwrap(),
            "--quiet",
        ]);
        command.stdout(Stdio::null());
        command
    });
    await_that("the server has registered", || {
        b.prints(&["route", "list"]).contains("/far")
    });
    let client = a.folder.join("client.conf");
    let count = EXCHANGES.to_string();
    let mut command = a.command(&[
        "ndn",
        "traffic",
        "client",
        client.to_str().unwrap(),
        "--json",
        "--no-log",
    ]);
    let (_, out, errors) = finished(command.args(["--count", &count, "--interval", "3"]));
    let last: Value = serde_json::from_str(out.lines().last().expect(&errors)).unwrap();
    if reliability == "auto" {
        // One router recovers Interests, the other Data.
        assert_recovers(&a, "a");
        assert_recovers(&b, "b");
    }
    let number = |key: &str| {
        last[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{key} in {last}"))
    };
    assert!(number("sent") >= f64::from(EXCHANGES));
    1.0 - number("received") / number("sent")
}

#[test]
fn real_routers_have_the_expected_loss_and_recover_nearly_all() {
    if !lab_available() {
        return;
    }
    let without = lost_between_namespaces("off");
    assert!(without > unrepaired() * 0.7, "{without}");
    let with = lost_between_namespaces("auto");
    assert!(
        with < unrepaired() / 10.0,
        "{with} with recovery, {without} without"
    );
}

/// Returns a link that silently drops packets of more than `largest` bytes.
fn narrow(largest: usize) -> LinkSpec {
    LinkSpec {
        largest_frame: Some(largest),
        ..LinkSpec::new(50_000_000, Duration::from_millis(10))
    }
}

/// Two routers with a narrow link between them, and a file at the far one.
struct Narrow {
    topology: Topology,
    folder: tempfile::TempDir,
}

impl Narrow {
    const BYTES: usize = 2_000_000;

    fn build() -> Narrow {
        let topology = TopologyBuilder::new(1)
            .host("a")
            .host("b")
            .link("ab", "a", "b", narrow(1_400), narrow(1_400))
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..Narrow::BYTES)
            .map(|at| ((at * at) >> 8) as u8)
            .collect();
        fs::write(folder.path().join("content"), content).unwrap();
        Narrow { topology, folder }
    }

    fn content(&self) -> Vec<u8> {
        fs::read(self.folder.path().join("content")).unwrap()
    }

    fn b_uri(&self) -> String {
        format!(
            "udp4://{}:6363",
            self.topology.address_of("b", "ab").unwrap()
        )
    }

    /// Starts the far router and a program that serves the file there.
    fn far(&self, config: &str) -> (Node<'_>, Process) {
        let b = Node::start(&self.topology, "b", self.folder.path(), config);
        let file = self.folder.path().join("content");
        let mut command = b.command(&["ndn", "serve", "/far/file"]);
        let serving = b.host.spawn({
            command
                .arg(file)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command
        });
        await_that("the server has registered", || {
            b.prints(&["route", "list"]).contains("/far")
        });
        (b, serving.unwrap())
    }
}

/// Returns the MTUs of a router's faces over UDP.
fn mtus(node: &Node<'_>) -> Vec<u64> {
    let faces = node.prints(&["face", "list", "scheme", "udp4", "--json"]);
    let faces: Vec<Value> = serde_json::from_str(&faces).unwrap();
    faces
        .iter()
        .filter_map(|face| face["mtu"].as_u64())
        .collect()
}

/// Fetches through a path that drops large packets from the start.
fn a_narrow_path(reliability: &str) {
    if !lab_available() {
        return;
    }
    let net = Narrow::build();
    let config = format!("reliability = \"{reliability}\"\n");
    let (b, _serving) = net.far(&config);
    let uri = net.b_uri();
    let route = format!("{config}[[ndn_route]]\nprefix = \"/far\"\nface = \"{uri}\"\n");
    let a = Node::start(&net.topology, "a", net.folder.path(), &route);
    let copy = a.folder.join("copy");
    let started = Instant::now();
    a.prints(&[
        "ndn",
        "get",
        "/far/file",
        "-q",
        "-o",
        copy.to_str().unwrap(),
    ]);
    let took = started.elapsed();
    println!("{took:.2?} with reliability {reliability}");
    assert_eq!(fs::read(copy).unwrap(), net.content());
    assert!(took < Duration::from_secs(15), "{took:?}");
    // Without the headers of IPv4 and UDP.
    await_that("the size of the path is found", || {
        mtus(&b).iter().any(|mtu| (1_350..=1_372).contains(mtu))
    });
    let log = fs::read_to_string(b.folder.join("log")).unwrap();
    assert!(log.contains("size=1200"), "it is not in the log:\n{log}");
}

#[test]
fn a_path_that_drops_large_packets_between_routers_that_recover_losses() {
    a_narrow_path("auto");
}

#[test]
fn a_path_that_drops_large_packets_between_routers_that_do_not() {
    a_narrow_path("off");
}

#[test]
fn a_program_behind_a_path_that_drops_large_packets() {
    if !lab_available() {
        return;
    }
    let net = Narrow::build();
    let (b, _serving) = net.far("");
    let copy = net.folder.path().join("copy");
    let mut command = b.command(&[
        "ndn",
        "get",
        "/far/file",
        "-q",
        "-o",
        copy.to_str().unwrap(),
    ]);
    command.env("NDN_CLIENT_TRANSPORT", net.b_uri());
    let started = Instant::now();
    let mut get = net.topology.host("a").unwrap().spawn(command).unwrap();
    let status = get.wait_for(Duration::from_secs(30)).unwrap();
    println!("{:.2?}", started.elapsed());
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
    assert_eq!(fs::read(copy).unwrap(), net.content());
}
