//! `whimbrel tcp-proxy` with the kernel's TCP: curl, a network device, a proxy, two Whimbrel routers
//! with an emulated link between them, a proxy, a network device, a web server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

mod support;

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{await_that, finished, whimbrel};
use whimbrel_lab::baseline::HttpServer;
use whimbrel_lab::{CongestionControl, Process, Topology, TopologyBuilder, lab_available};
use whimbrel_sim::link::{LinkSpec, Loss};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 202, 0, 1);

/// A client's site and a server's site, each with a router and a proxy.
struct Sites {
    topology: Topology,
    folder: tempfile::TempDir,
    programs: Vec<Process>,
}

impl Sites {
    fn new(loss: f64, routers: &str, proxies: &[&str]) -> Sites {
        let spec = LinkSpec::new(50_000_000, Duration::from_millis(5));
        let spec = match loss {
            0.0 => spec,
            loss => spec.with_loss(Loss::Independent(loss)),
        };
        let topology = TopologyBuilder::new(1)
            .host("a")
            .host("b")
            .link("ab", "a", "b", spec.clone(), spec)
            .build()
            .unwrap();
        let mut sites = Sites {
            topology,
            folder: tempfile::tempdir().unwrap(),
            programs: Vec::new(),
        };
        let key = sites.path("key");
        let (code, secret, _) = finished(whimbrel().args(["tcp-proxy", "key"]));
        assert_eq!(code, 0);
        fs::write(&key, secret).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&key, private).unwrap();
        for (site, other) in [("a", "b"), ("b", "a")] {
            sites.start_router(site, other, routers);
        }
        sites.start_proxy(
            "a",
            "forward",
            "10.201.0.1",
            "10.202.0.0/16=/b/tcp",
            proxies,
        );
        let allow = ["--allow", "10.202.0.1:80"];
        let proxies: Vec<&str> = proxies.iter().copied().chain(allow).collect();
        sites.start_proxy(
            "b",
            "reverse",
            "10.202.0.1",
            "10.201.0.0/16=/a/tcp",
            &proxies,
        );
        sites
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&mut self, site: &str, name: &str, mut command: Command) {
        let log = fs::File::create(self.path(&format!("{site}.{name}.log"))).unwrap();
        let output = fs::File::create(self.path(&format!("{site}.{name}.out"))).unwrap();
        command.stdout(output).stderr(log).stdin(Stdio::null());
        let process = self.topology.host(site).unwrap().spawn(command).unwrap();
        self.programs.push(process);
    }

    fn socket(&self, site: &str) -> PathBuf {
        self.path(&format!("{site}.nfd.sock"))
    }

    fn start_router(&mut self, site: &str, other: &str, config: &str) {
        let address = self.topology.address_of(other, "ab").unwrap();
        let file = self.path(&format!("{site}.toml"));
        let route =
            format!("[[ndn_route]]\nprefix = \"/{other}\"\nface = \"udp4://{address}:6363\"\n");
        fs::write(
            &file,
            format!("[ndn]\nmulticast = false\n{config}\n{route}"),
        )
        .unwrap();
        let mut command = whimbrel();
        command
            .args(["router", "run", "--quiet", "--ndn", "--config"])
            .arg(file);
        command.arg("--ndn-socket").arg(self.socket(site));
        self.start(site, "router", command);
        await_that("the router answers", || self.socket(site).exists());
    }

    fn start_proxy(&mut self, site: &str, role: &str, address: &str, route: &str, more: &[&str]) {
        let mut command = whimbrel();
        command.args([
            "tcp-proxy",
            role,
            "--json",
            "--prefix",
            &format!("/{site}/tcp"),
        ]);
        command
            .args(["--address", address, "--route", route])
            .args(more);
        command.arg("--key").arg(self.path("key"));
        command
            .arg("--transport")
            .arg(format!("unix://{}", self.socket(site).display()));
        command
            .arg("--socket")
            .arg(self.path(&format!("{site}.status.sock")));
        self.start(site, role, command);
        let (out, log) = (format!("{site}.{role}.out"), format!("{site}.{role}.log"));
        await_that("the proxy is ready", || {
            let log = fs::read_to_string(self.path(&log)).unwrap_or_default();
            assert!(!log.contains("error"), "{log}");
            fs::read_to_string(self.path(&out))
                .unwrap_or_default()
                .contains("ready")
        });
    }

    /// Serves `file` at the server's site.
    fn serve(&self, file: &Path) -> HttpServer {
        let host = self.topology.host("b").unwrap();
        let address = SocketAddrV4::new(SERVER, 80);
        HttpServer::start(host, address, file, CongestionControl::Cubic).unwrap()
    }

    /// Fetches it with curl at the client's site.
    fn curl(&self) -> Vec<u8> {
        let got = self.path("got");
        let url = format!("http://{SERVER}/file");
        let output = got.to_str().unwrap();
        let arguments = [
            "--silent",
            "--show-error",
            "--fail",
            "--noproxy",
            "*",
            "--max-time",
            "100",
            "--output",
            output,
            &url,
        ];
        let host = self.topology.host("a").unwrap();
        host.run("curl", &arguments).unwrap();
        fs::read(got).unwrap()
    }

    fn status(&self, site: &str) -> Value {
        let mut command = whimbrel();
        command.args(["tcp-proxy", "status", "--json", "--socket"]);
        command.arg(self.path(&format!("{site}.status.sock")));
        let (code, out, errors) = finished(&mut command);
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str(&out).unwrap()
    }
}

fn content(length: u32) -> Vec<u8> {
    (0..length)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn fetched(loss: f64, length: u32, proxies: &[&str]) -> Sites {
    let sites = Sites::new(loss, "", proxies);
    let file = sites.path("file");
    fs::write(&file, content(length)).unwrap();
    let _server = sites.serve(&file);
    assert!(sites.curl() == content(length), "the bytes differ");
    let status = sites.status("a");
    let counters = &status["counters"];
    for fault in [
        "forged",
        "bad_messages",
        "wrong_checksum",
        "malformed",
        "untimely",
    ] {
        assert_eq!(counters[fault], 0, "{counters}");
    }
    assert_eq!(
        status["connections"][0]["protocol"],
        proxies.get(1).copied().unwrap_or("unreliable")
    );
    sites
}

#[test]
fn curl_fetches_a_file_through_two_proxies() {
    if !lab_available() {
        return;
    }
    fetched(0.0, 4_000_000, &[]);
}

#[test]
fn curl_fetches_a_file_over_a_lossy_link_with_every_protocol() {
    if !lab_available() {
        return;
    }
    for protocol in ["unreliable", "reliable", "basic"] {
        fetched(0.01, 500_000, &["--protocol", protocol]);
    }
}

#[test]
fn what_is_not_allowed_is_refused_at_once() {
    if !lab_available() {
        return;
    }
    let sites = Sites::new(0.0, "", &[]);
    let host = sites.topology.host("a").unwrap();
    // Port 81 is not opened by the reverse proxy: its peer hears nothing, and counts it.
    let curl = [
        "--silent",
        "--noproxy",
        "*",
        "--max-time",
        "2",
        "http://10.202.0.1:81/",
    ];
    assert!(host.run("curl", &curl).is_err());
    assert!(sites.status("b")["counters"]["denied"].as_u64() > Some(0));
    // An address of the route that is no source: the kernel hears at once.
    host.run("ip", &["address", "add", "10.203.0.1/32", "dev", "lo"])
        .unwrap();
    let curl = [
        "--silent",
        "--noproxy",
        "*",
        "--interface",
        "10.203.0.1",
        "--max-time",
        "60",
        "http://10.202.0.1/",
    ];
    assert!(host.run("curl", &curl).is_err());
    assert!(sites.status("a")["counters"]["icmp_errors"].as_u64() > Some(0));
}

#[test]
fn without_a_key_or_a_forwarder_it_says_what_to_do() {
    let base = [
        "tcp-proxy",
        "forward",
        "--prefix",
        "/a/tcp",
        "--route",
        "10.2.0.0/16=/b/tcp",
    ];
    let (code, _, errors) = finished(whimbrel().args(base));
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("whimbrel tcp-proxy key"), "{errors}");
    let (code, _, errors) =
        finished(whimbrel().args(["tcp-proxy", "status", "--socket", "/nonexistent"]));
    assert_eq!(code, 5, "{errors}");
    assert!(errors.contains("whimbrel tcp-proxy forward"), "{errors}");
}
