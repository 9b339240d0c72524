//! A fast receiver beside a slow one at the same router, with real programs: it gets its file about
//! as soon as alone.
//!
//! The bound is generous, because real time is not under the control of the test; the figures are
//! printed. The test needs network namespaces and is skipped without them.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_core::SeededRng;
use whimbrel_lab::{Process, Topology, TopologyBuilder, lab_available};
use whimbrel_sim::link::{LinkSpec, QueueLimit};

const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of the file: some seconds of the fast link.
const LENGTH: u64 = 24 << 20;
/// Rate of the fast link, bit/s.
const FAST: u64 = 80_000_000;
const SLOW: u64 = 2_000_000;

/// A server, a router and two clients, each with a host daemon.
struct Scene {
    folder: tempfile::TempDir,
    topology: Topology,
    daemons: Vec<Process>,
}

fn spec(rate: u64) -> LinkSpec {
    LinkSpec {
        queue: QueueLimit::Bytes(64 << 10),
        ..LinkSpec::new(rate, Duration::from_millis(2))
    }
}

impl Scene {
    fn build() -> Option<Scene> {
        if !lab_available() {
            eprintln!("skipped: no network namespaces");
            return None;
        }
        let topology = TopologyBuilder::new(1)
            .host("server")
            .host("router")
            .host("fast")
            .host("slow")
            .link("server", "server", "router", spec(FAST), spec(FAST))
            .link("fast", "fast", "router", spec(FAST), spec(FAST))
            .link("slow", "slow", "router", spec(SLOW), spec(SLOW))
            .build()
            .unwrap();
        let mut scene = Scene {
            folder: tempfile::tempdir().unwrap(),
            topology,
            daemons: Vec::new(),
        };
        let listen = "[[link]]\nlabel = \"callers\"\nbind = \"0.0.0.0:4711\"\nlisten = true\n";
        fs::write(scene.path("router.toml"), listen).unwrap();
        let router = scene.run("router", "router");
        scene.daemons.push(router);
        for host in ["server", "fast", "slow"] {
            let address = scene.topology.address_of("router", host).unwrap();
            let link = format!("[[link]]\nlabel = \"access\"\nremote = \"{address}:4711\"\n");
            fs::write(scene.path(&format!("{host}.toml")), link).unwrap();
            let daemon = scene.run(host, "host");
            scene.daemons.push(daemon);
            await_that("a host's socket", || {
                scene.path(&format!("{host}.sock")).exists()
            });
        }
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
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
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("log"));
        let namespace = self.topology.host(host).unwrap().clone();
        namespace.spawn(command).unwrap()
    }

    fn run(&self, host: &str, kind: &str) -> Process {
        let [config, key, socket] =
            ["toml", "pem", "sock"].map(|extension| format!("{host}.{extension}"));
        let arguments = [
            kind, "run", "--json", "--config", &config, "--key", &key, "--socket", &socket,
        ];
        self.whimbrel(host, host, &arguments)
    }

    /// Serves noise. Returns its name.
    fn serve(&mut self, file: &str, seed: u64) -> String {
        let mut rng = SeededRng::new(seed);
        let words = (0..LENGTH / 8).flat_map(|_| rng.next_word().to_le_bytes());
        let bytes: Vec<u8> = words.collect();
        fs::write(self.path(file), &bytes).unwrap();
        let arguments = [
            "serve",
            "--json",
            "--no-cache",
            "--socket",
            "server.sock",
            file,
        ];
        let log = format!("serve-{file}");
        let serve = self.whimbrel("server", &log, &arguments);
        self.daemons.push(serve);
        await_that("the announcement", || {
            fs::read_to_string(self.path(&format!("{log}.out")))
                .is_ok_and(|text| text.contains("Registered"))
        });
        blake3::hash(&bytes).to_hex().to_string()
    }

    fn get(&self, host: &str, name: &str, output: &str) -> Process {
        let socket = format!("{host}.sock");
        let arguments = ["get", name, "--json", "-o", output, "--socket", &socket];
        self.whimbrel(host, output, &arguments)
    }

    /// Returns the time that the fast client takes.
    fn time_to_get(&self, name: &str, output: &str) -> Duration {
        let start = Instant::now();
        let mut get = self.get("fast", name, output);
        let status = get.wait_for(PATIENCE).unwrap();
        let log = || fs::read_to_string(self.path(&format!("{output}.log"))).unwrap_or_default();
        assert!(
            status.is_some_and(|it| it.success()),
            "{status:?}\n{}",
            log()
        );
        assert_eq!(fs::metadata(self.path(output)).unwrap().len(), LENGTH);
        start.elapsed()
    }
}

fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_fast_receiver_is_not_held_up_by_a_slow_one() {
    let Some(mut scene) = Scene::build() else {
        return;
    };
    let (first, second) = (scene.serve("first", 1), scene.serve("second", 2));
    let slow_name = scene.serve("third", 3);
    let alone = scene.time_to_get(&first, "alone");
    let slow = scene.get("slow", &slow_name, "slow-one");
    std::thread::sleep(Duration::from_secs(1));
    let beside = scene.time_to_get(&second, "beside");
    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    println!("alone {alone:.2?}, beside a slow receiver {beside:.2?}: {ratio:.2} times");
    assert!(ratio <= 2.0, "{ratio:.2} times as long");
    drop(slow);
}
