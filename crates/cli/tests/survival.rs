//! A transfer over the seed's Fig. 7 with real programs, while everything on its way is killed in turn.
//!
//! Needs network namespaces; where there are none it says so and does nothing.
#![allow(clippy::disallowed_methods, reason = "a test of real programs in real time")]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use whimbrel_core::SeededRng;
use whimbrel_lab::{Daemon, Fig7, Fig7Daemons, lab_available};
use whimbrel_sim::link::{LinkSpec, Loss};

const PROGRAM: &str = env!("CARGO_BIN_EXE_whimbrel");
const FILE_LEN: u64 = 24_000_000;
const PATIENCE: Duration = Duration::from_secs(240);

fn make_file(path: &Path) {
    let mut rng = SeededRng::new(9);
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for _ in 0..FILE_LEN / 8 {
        file.write_all(&rng.next_word().to_le_bytes()).unwrap();
    }
    file.flush().unwrap();
}

fn same(a: &Path, b: &Path) -> bool {
    std::fs::read(a).unwrap() == std::fs::read(b).unwrap()
}

/// Bytes of a fetch that are on disk, by the client's own word: what it would not ask for again.
fn arrived(log: &Path) -> u64 {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line["progress"]["bytes"].as_u64()
    });
    last.unwrap_or(0)
}

struct Client<'a> {
    daemons: &'a Fig7Daemons<'a>,
    folder: &'a Path,
    name: &'a str,
}

impl Client<'_> {
    /// `whimbrel get` on N4, its words in get.log.
    fn start(&self) -> std::process::Child {
        let log = std::fs::File::create(self.folder.join("get.log")).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["get", "--json", self.name, "--nack-timeout", "2 s", "--socket"]);
        command.arg(self.daemons.socket(4)).arg("-o").arg(self.folder.join("arrived"));
        command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null()).spawn().unwrap()
    }

    fn wait_for(&self, bytes: u64, since: Instant) {
        while arrived(&self.folder.join("get.log")) < bytes {
            assert!(since.elapsed() < PATIENCE, "stuck at {} bytes", arrived(&self.folder.join("get.log")));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_transfer_survives_the_death_of_every_router_of_its_client_and_of_the_link() {
    if !lab_available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    make_file(&file);
    let last_hop =
        LinkSpec { loss: Loss::Independent(0.03), ..LinkSpec::new(40_000_000, Duration::from_millis(1)) };
    let topology = Fig7::new(Duration::from_millis(20), last_hop).build(5).unwrap();
    let mut daemons = Fig7Daemons::start(Path::new(PROGRAM), &topology, folder.path()).unwrap();
    let name = daemons.serve(&file).unwrap();
    let start = Instant::now();
    let (folder, mark) = (folder.path(), FILE_LEN / 8);

    let mut get = Client { daemons: &daemons, folder, name: &name }.start();
    Client { daemons: &daemons, folder, name: &name }.wait_for(mark, start);
    for router in [2, 3] {
        daemons.kill(Daemon::Router(router)).unwrap();
        daemons.run(Daemon::Router(router)).unwrap();
        let before = arrived(&folder.join("get.log"));
        Client { daemons: &daemons, folder, name: &name }.wait_for((before + mark).min(FILE_LEN), start);
    }

    get.kill().unwrap();
    get.wait().unwrap();
    let kept = arrived(&folder.join("get.log"));
    let client = Client { daemons: &daemons, folder, name: &name };
    let mut get = client.start();
    if kept + mark < FILE_LEN {
        client.wait_for(kept + mark / 2, start);
        topology.set_outage(Fig7::LAST_HOP, true).unwrap();
        std::thread::sleep(Duration::from_secs(3));
        topology.set_outage(Fig7::LAST_HOP, false).unwrap();
    }
    while get.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < PATIENCE, "stuck at {} bytes", arrived(&folder.join("get.log")));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(same(&file, &folder.join("arrived")), "what arrived is not what was sent");
}
