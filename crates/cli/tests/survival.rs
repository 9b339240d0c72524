//! A transfer over the testbed of [MFTP §5] with real programs, while every node on its path is
//! killed in turn.
//!
//! The tests need network namespaces and are skipped without them.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_lab::lab_available;
use whimbrel_lab::scenario::netns::{self, Daemons};
use whimbrel_lab::scenario::{Overrides, Scenario};
use whimbrel_lab::study::Backend;

/// The testbed of [MFTP §5], Fig. 7, with a lossy last hop.
const FIG7: &str = include_str!("scenarios/fig7.toml");
const PROGRAM: &str = env!("CARGO_BIN_EXE_whimbrel");

/// Sizes, rates and durations.
struct Trial {
    file_len: u64,
    /// Rate of the last hop.
    rate: &'static str,
    outage: Duration,
    patience: Duration,
}

fn same(a: &Path, b: &Path) -> bool {
    Command::new("cmp")
        .arg(a)
        .arg(b)
        .status()
        .unwrap()
        .success()
}

/// Returns the bytes of a fetch that are on disk according to the client: a later run would not
/// fetch them again.
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
    /// Runs `whimbrel get` on N4, with its output in get.log.
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
fn survive(trial: &Trial) {
    if !lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{FIG7}[netns]\n\"loads.film.file\" = \"{} B\"\n\"links.N3-N4.rate\" = \"{}\"\n",
        trial.file_len, trial.rate
    );
    let overrides = Overrides {
        backend: Some(Backend::Netns),
        ..Overrides::default()
    };
    let read = Scenario::parse(Path::new("fig7.toml"), &text, overrides).unwrap();
    let plan = &read.settings[0].plan;
    let node = |name: &str| plan.network.node(name).unwrap();
    let topology = netns::topology(plan, plan.seed).unwrap();
    let mut daemons = Daemons::start(
        plan,
        plan.seed,
        Path::new(PROGRAM),
        folder.path(),
        &topology,
    )
    .unwrap();
    let served = daemons.serve(&()).unwrap();
    let (name, file) = (&served[0][0].name, &served[0][0].path);
    let (started, patience) = (Instant::now(), trial.patience);
    let (folder, mark) = (folder.path(), trial.file_len / 9);
    let client = Client {
        socket: daemons.socket(node("N4")),
        folder,
        name,
        file_len: trial.file_len,
        started,
        patience,
    };

    let mut get = client.start();
    client.gain(mark);
    for router in ["N2", "N3"] {
        client.say(&format!("kill -9 of router {router}"));
        daemons.kill(node(router)).unwrap();
        daemons.run(node(router)).unwrap();
        client.gain(mark);
    }
    client.say("kill -9 of the client");
    get.kill().unwrap();
    get.wait().unwrap();
    let kept = client.arrived();
    let mut get = client.start();
    client.wait_for(kept + mark / 2);
    for link in ["N3-N4", "N2-N3"] {
        client.say(&format!("link {link} is out for {:?}", trial.outage));
        topology.set_outage(link, true).unwrap();
        std::thread::sleep(trial.outage);
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
        same(file, &folder.join("arrived")),
        "the received file differs from the sent one"
    );
}

#[test]
fn a_transfer_survives_crashes_of_every_router_and_its_client_and_link_outages() {
    survive(&Trial {
        file_len: 24_000_000,
        rate: "40 Mbit/s",
        outage: Duration::from_secs(2),
        patience: Duration::from_secs(240),
    });
}

/// This takes some minutes; `scripts/survive` runs it.
#[test]
#[ignore = "takes some minutes; scripts/survive runs it"]
fn a_gigabyte_survives_the_same_with_outages_of_half_a_minute() {
    survive(&Trial {
        file_len: 1_000_000_000,
        rate: "80 Mbit/s",
        outage: Duration::from_secs(30),
        patience: Duration::from_secs(1_200),
    });
}
