//! A transfer over the testbed of [MFTP §5] with real programs, while every node on its path is
//! killed in turn.
//!
//! Needs network namespaces; where there are none it says so and does nothing.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_core::SeededRng;
use whimbrel_lab::{Daemon, Fig7, Fig7Daemons, lab_available};
use whimbrel_sim::link::{LinkSpec, Loss};

const PROGRAM: &str = env!("CARGO_BIN_EXE_whimbrel");

/// Sizes, rates and durations.
struct Scenario {
    file_len: u64,
    /// Rate of the last hop, bit/s.
    rate: u64,
    outage: Duration,
    patience: Duration,
}

fn make_file(path: &Path, len: u64) {
    let mut rng = SeededRng::new(9);
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for _ in 0..len / 8 {
        file.write_all(&rng.next_word().to_le_bytes()).unwrap();
    }
    file.flush().unwrap();
}

fn same(a: &Path, b: &Path) -> bool {
    Command::new("cmp")
        .arg(a)
        .arg(b)
        .status()
        .unwrap()
        .success()
}

/// Bytes of a fetch that are on disk according to the client: a later run would not fetch them
/// again.
fn arrived(log: &Path) -> u64 {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        // The last line is the outcome.
        line["progress"]["bytes"]
            .as_u64()
            .or(line["fetched"]["length"].as_u64())
    });
    last.unwrap_or(0)
}

struct Client<'a> {
    socket: std::path::PathBuf,
    folder: &'a Path,
    name: &'a str,
    file_len: u64,
    started: Instant,
    patience: Duration,
}

impl Client<'_> {
    /// `whimbrel get` on N4, with its output in get.log.
    fn start(&self) -> std::process::Child {
        let log = std::fs::File::create(self.folder.join("get.log")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args([
            "get",
            "--json",
            self.name,
            "--nack-timeout",
            "2 s",
            "--socket",
        ]);
        command
            .arg(&self.socket)
            .arg("-o")
            .arg(self.folder.join("arrived"));
        command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn arrived(&self) -> u64 {
        arrived(&self.folder.join("get.log"))
    }

    /// Waits until `bytes` more than now have arrived.
    fn gain(&self, bytes: u64) {
        self.wait_for(self.arrived() + bytes);
    }

    fn wait_for(&self, goal: u64) {
        while self.arrived() < goal.min(self.file_len) {
            self.check_patience();
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn check_patience(&self) {
        assert!(
            self.started.elapsed() < self.patience,
            "stuck at {} bytes",
            self.arrived()
        );
    }

    fn say(&self, what: &str) {
        println!(
            "{:6.1} s, {:>5} MB there: {what}",
            self.started.elapsed().as_secs_f64(),
            self.arrived() / 1_000_000
        );
    }
}

/// Kills router N2, router N3 and the client, and interrupts the last hop and the link between the
/// routers for a while.
fn survive(scenario: &Scenario) {
    if !lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    make_file(&file, scenario.file_len);
    let last_hop = LinkSpec {
        loss: Loss::Independent(0.03),
        ..LinkSpec::new(scenario.rate, Duration::from_millis(1))
    };
    let topology = Fig7::new(Duration::from_millis(20), last_hop)
        .build(5)
        .unwrap();
    let mut daemons = Fig7Daemons::start(Path::new(PROGRAM), &topology, folder.path()).unwrap();
    let name = daemons.serve(&file).unwrap();
    let (started, patience) = (Instant::now(), scenario.patience);
    let (folder, mark) = (folder.path(), scenario.file_len / 9);
    let client = Client {
        socket: daemons.socket(4),
        folder,
        name: &name,
        file_len: scenario.file_len,
        started,
        patience,
    };

    let mut get = client.start();
    client.gain(mark);
    for router in [2, 3] {
        client.say(&format!("kill -9 of router N{router}"));
        daemons.kill(Daemon::Router(router)).unwrap();
        daemons.run(Daemon::Router(router)).unwrap();
        client.gain(mark);
    }
    client.say("kill -9 of the client");
    get.kill().unwrap();
    get.wait().unwrap();
    let kept = client.arrived();
    let mut get = client.start();
    client.wait_for(kept + mark / 2);
    for link in [Fig7::LAST_HOP, Fig7::ROUTER_LINK] {
        client.say(&format!("link {link} is out for {:?}", scenario.outage));
        topology.set_outage(link, true).unwrap();
        std::thread::sleep(scenario.outage);
        topology.set_outage(link, false).unwrap();
        client.gain(mark / 2);
    }
    while get.try_wait().unwrap().is_none() {
        client.check_patience();
        std::thread::sleep(Duration::from_millis(50));
    }
    client.say("the client has ended");
    assert!(get.wait().unwrap().success());
    assert!(
        same(&file, &folder.join("arrived")),
        "what arrived is not what was sent"
    );
}

#[test]
fn a_transfer_survives_the_death_of_every_router_of_its_client_and_of_the_link() {
    survive(&Scenario {
        file_len: 24_000_000,
        rate: 40_000_000,
        outage: Duration::from_secs(2),
        patience: Duration::from_secs(240),
    });
}

/// Takes some minutes: `scripts/survive` runs it.
#[test]
#[ignore = "takes some minutes; scripts/survive runs it"]
fn a_gigabyte_survives_the_same_with_outages_of_half_a_minute() {
    survive(&Scenario {
        file_len: 1_000_000_000,
        rate: 80_000_000,
        outage: Duration::from_secs(30),
        patience: Duration::from_secs(1_200),
    });
}
