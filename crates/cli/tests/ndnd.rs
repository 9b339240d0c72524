//! Beside NDNd: its programs on our router, ours on its forwarder, and a link between the two.
//!
//! `scripts/setup --check` builds NDNd where Go is; `scripts/test` then names it in `WHIMBREL_NDND`, and these tests
//! fail without it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::interop::{Interop, ndnd_tool};
use crate::support::ndn::Router;
use crate::support::sites::Sites;
use crate::support::{Running, await_that, finished, free_port, noise, whimbrel};
use whimbrel_lab::ndnd;

/// NDNd's forwarder on its own sockets.
struct Ndnd {
    folder: tempfile::TempDir,
    program: PathBuf,
    port: u16,
    _process: Running,
}

impl Ndnd {
    fn start(program: &Path) -> Ndnd {
        let folder = tempfile::tempdir().unwrap();
        let (socket, port) = (folder.path().join("ndnd.sock"), free_port());
        let config = folder.path().join("fw.yml");
        fs::write(&config, ndnd::configuration(&socket, Some(port))).unwrap();
        let mut command = Command::new(program);
        command.args(["fw", "run"]).arg(config);
        let process = Running::start(command.stderr(Stdio::null()));
        await_that("NDNd listens", || socket.exists());
        Ndnd {
            folder,
            program: program.to_owned(),
            port,
            _process: process,
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("ndnd.sock")
    }

    /// Returns our program as a user of this forwarder.
    fn ours(&self, arguments: &[&str]) -> Command {
        at(&self.socket(), whimbrel(), arguments)
    }

    /// Runs NDNd's control tool on the forwarder behind `socket`; returns what it prints.
    fn controls(&self, socket: &Path, arguments: &[&str]) -> String {
        let (code, out, errors) = finished(ndnd_tool(&self.program, socket).args(arguments));
        assert_eq!(code, 0, "{arguments:?}: {out}{errors}");
        out
    }

    /// Publishes an object with NDNd's tool on the forwarder behind `socket`.
    fn puts(&self, socket: &Path, name: &str, content: &[u8]) -> Running {
        let file = self.folder.path().join("content");
        fs::write(&file, content).unwrap();
        let mut command = at(socket, Command::new(&self.program), &["put", name]);
        command.stdin(fs::File::open(file).unwrap());
        let log = self.folder.path().join("put.log");
        command.stderr(fs::File::create(&log).unwrap());
        let process = Running::start(&mut command);
        let said = || fs::read_to_string(&log).unwrap_or_default();
        let printed = || process.lines.try_recv().unwrap_or_default();
        await_that("NDNd has registered the object", || {
            (said() + &printed()).contains("Registered")
        });
        process
    }

    /// Fetches an object with NDNd's tool from the forwarder behind `socket`.
    fn cats(&self, socket: &Path, name: &str) -> Vec<u8> {
        let mut command = at(socket, Command::new(&self.program), &["cat", name]);
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        output.stdout
    }
}

/// A program whose forwarder is behind `socket`.
fn at(socket: &Path, mut command: Command, arguments: &[&str]) -> Command {
    let transport = format!("unix://{}", socket.display());
    command.env("NDN_CLIENT_TRANSPORT", transport);
    command.env("HOME", socket.parent().unwrap());
    command.args(arguments);
    command
}

fn served(mut command: Command) -> Running {
    let process = Running::start(&mut command);
    process.await_json(|value| value["event"] == "registered");
    process
}

fn got(mut command: Command, folder: &Path) -> Vec<u8> {
    let file = folder.join("got");
    let (code, out, errors) = finished(command.arg("--output").arg(&file));
    assert_eq!(code, 0, "{out}{errors}");
    fs::read(file).unwrap()
}

#[test]
fn objects_go_both_ways_on_both_forwarders() {
    let Some(program) = Interop::ndnd() else {
        return;
    };
    let (ndnd, router) = (Ndnd::start(&program), Router::start());
    let content = noise(400_000, 1);
    let file = ndnd.folder.path().join("file");
    fs::write(&file, &content).unwrap();
    for socket in [ndnd.socket(), router.path("nfd.sock")] {
        let on = |arguments: &[&str]| at(&socket, whimbrel(), arguments);
        let folder = socket.parent().unwrap();
        let _server = served(on(&[
            "ndn",
            "serve",
            "/ours",
            file.to_str().unwrap(),
            "--json",
        ]));
        assert!(ndnd.cats(&socket, "/ours") == content, "NDNd reads ours");
        assert!(got(on(&["ndn", "get", "/ours"]), folder) == content);
        let _theirs = ndnd.puts(&socket, "/theirs", &content);
        assert!(
            got(on(&["ndn", "get", "/theirs"]), folder) == content,
            "we read NDNd's"
        );
    }
}

/// Data of 8,000 octets in fragments, over UDP and over TCP, each forwarder's consumers at the other's producers.
#[test]
fn a_link_to_ndnd_carries_files_both_ways() {
    let Some(program) = Interop::ndnd() else {
        return;
    };
    let (ndnd, router) = (Ndnd::start(&program), Router::start());
    let content = noise(400_000, 2);
    let file = ndnd.folder.path().join("file");
    fs::write(&file, &content).unwrap();
    let (our_socket, file) = (router.path("nfd.sock"), file.to_str().unwrap());
    for (kind, ours) in [("udp", router.udp()), ("tcp", router.tcp())] {
        let theirs = format!("face={kind}://127.0.0.1:{}", ndnd.port);
        let ours = format!("face={}", ours.replace("4://", "://"));
        let [far, near] = [format!("/{kind}/far"), format!("/{kind}/near")];
        let _far = served(ndnd.ours(&["ndn", "serve", &far, file, "--json"]));
        let _near = served(router.command(&["ndn", "serve", &near, file, "--json"]));
        let [to_far, to_near] = [&far, &near].map(|name| format!("prefix={name}"));
        ndnd.controls(&our_socket, &["route-add", &to_far, &theirs]);
        ndnd.controls(&ndnd.socket(), &["route-add", &to_near, &ours]);
        let fetched = got(router.command(&["ndn", "get", &far]), router.folder.path());
        assert!(fetched == content, "{kind}: of NDNd's site");
        let fetched = got(ndnd.ours(&["ndn", "get", &near]), ndnd.folder.path());
        assert!(fetched == content, "{kind}: of our site");
    }
}

/// Each command of NDNd's tool, with URIs as its users type them.
#[test]
fn ndnds_tool_controls_our_router() {
    let Some(program) = Interop::ndnd() else {
        return;
    };
    let (ndnd, router) = (Ndnd::start(&program), Router::start());
    let socket = router.path("nfd.sock");
    let run = |arguments: &[&str]| ndnd.controls(&socket, arguments);
    let (udp, tcp) = (
        format!("udp://127.0.0.1:{}", ndnd.port),
        format!("tcp://127.0.0.1:{}", ndnd.port),
    );
    let remote = |uri: &str| format!("remote={uri}");
    let face = |uri: &str| format!("face={uri}");
    assert!(run(&["status"]).contains("nOutData"));
    run(&[
        "face-create",
        &remote(&udp),
        "persistency=permanent",
        "mtu=1400",
    ]);
    run(&["route-add", "prefix=/t", &face(&udp), "cost=5"]);
    run(&["route-add", "prefix=/t", &face(&tcp)]);
    let routes = run(&["route-list"]);
    assert_eq!(routes.matches("prefix=/t ").count(), 2, "{routes}");
    assert!(routes.contains("cost=5"), "{routes}");
    assert!(run(&["fib-list"]).contains("/t nexthops"));
    let multicast = "strategy=/localhost/nfd/strategy/multicast";
    run(&["strategy-set", "prefix=/t", multicast]);
    assert!(
        run(&["strategy-list"]).contains("prefix=/t strategy=/localhost/nfd/strategy/multicast")
    );
    run(&["strategy-unset", "prefix=/t"]);
    run(&["route-remove", "prefix=/t", &face(&udp)]);
    let routes = run(&["route-list"]);
    assert_eq!(routes.matches("prefix=/t ").count(), 1, "{routes}");
    let faces = run(&["face-list"]);
    assert!(faces.contains("mtu=1400B"), "{faces}");
    run(&["face-destroy", &face(&udp)]);
    let left = run(&["face-list"]);
    assert!(!left.contains("mtu=1400B"), "{left}");
    assert!(run(&["cs-info"]).contains("capacity"));
}

/// The TCP proxies need nothing of a forwarder but NFD's protocols; path tags, which NDNd does not know, bring no harm.
#[test]
fn tcp_goes_through_proxies_on_ndnd() {
    let Some(program) = Interop::ndnd() else {
        return;
    };
    if !whimbrel_lab::lab_available() {
        return;
    }
    for proxies in [&[][..], &["--protocol", "reliable"], &["--paths", "2"]] {
        let sites = Sites::with_ndnd(&program, proxies);
        let file = sites.path("file");
        let content = noise(1_000_000, 3);
        fs::write(&file, &content).unwrap();
        let _server = sites.serve(&file);
        assert!(sites.curl() == content, "{proxies:?}: the bytes differ");
        let status = sites.status("a");
        assert_eq!(status["counters"]["forged"], 0, "{status}");
        assert_eq!(status["connections"][0]["path"], serde_json::Value::Null);
    }
}
