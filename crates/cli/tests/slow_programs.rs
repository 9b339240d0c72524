//! Real programs that stop or pause: they delay nobody else, and resume where they were.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Network, Running, await_that, finished, name_of, noise, whimbrel};

/// Several times the room of a host (`hop.buffer_packets`).
const LARGE: usize = 150_000_000;
const SMALL: usize = 3_000_000;

/// Returns a file of noise, and its name.
fn file(network: &Network, name: &str, length: usize, seed: u64) -> (std::path::PathBuf, Vec<u8>) {
    let (path, bytes) = (network.path(name), noise(length, seed));
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

/// Returns a `get` at a host's socket.
fn get_at(network: &Network, host: usize, name: &str, output: &Path) -> Command {
    let mut command = whimbrel();
    command.args(["get", name, "--json", "--timeout", "60 s", "--socket"]);
    command.arg(network.host_socket(host)).arg("-o").arg(output);
    command
}

/// Serves a file by a separate program. Returns when its name is announced.
fn serve_at(network: &Network, host: usize, path: &Path) -> Running {
    let mut command = whimbrel();
    command.args(["serve", "--json", "--no-cache", "--socket"]);
    let running = Running::start(command.arg(network.host_socket(host)).arg(path));
    running.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
    running
}

fn assert_gets(network: &Network, host: usize, bytes: &[u8]) {
    let (name, output) = (name_of(bytes), network.path("output"));
    let (code, out, err) = finished(&mut get_at(network, host, &name, &output));
    assert_eq!(code, 0, "{out}{err}");
    assert!(std::fs::read(&output).unwrap() == bytes);
    std::fs::remove_file(&output).unwrap();
}

/// Waits until a stopped program's host no longer hands chunks over, because its room is used up.
fn await_quiet(network: &Network, host: usize) {
    let received = || network.host_status(host)["counters"]["chunks_received"].clone();
    let mut before = received();
    await_that("nothing arrives for the stopped program", || {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let quiet = received() == before;
        before = received();
        quiet
    });
}

#[test]
fn a_stopped_get_leaves_its_host_to_others_and_resumes_when_continued() {
    let network = Network::start(None);
    let (large, bytes) = file(&network, "large", LARGE, 1);
    let (small, small_bytes) = file(&network, "small", SMALL, 2);
    let (own, own_bytes) = file(&network, "own", SMALL, 3);
    let _server = network.serve(&[&large, &small]);
    let _own_server = serve_at(&network, 0, &own);
    let output = network.path("arrived");
    let mut stopped = network.get_until(&name_of(&bytes), &output, LARGE, 0.01);
    stopped.signal("STOP");
    await_quiet(&network, 0);
    assert_gets(&network, 0, &small_bytes);
    assert_gets(&network, 1, &own_bytes);
    let host = network.guid_of("host-0");
    let mut ping = whimbrel();
    ping.args(["ping", "-c", "3", "-i", "50 ms", "--socket"]);
    let (_, out, err) = finished(ping.arg(network.host_socket(1)).arg(&host));
    assert!(out.contains("3 sent, 3 answered"), "{out}{err}");
    stopped.signal("CONT");
    assert_eq!(stopped.exit_code(), 0);
    assert!(std::fs::read(&output).unwrap() == bytes);
}

#[test]
fn a_reader_that_pauses_while_a_router_restarts_gets_everything() {
    let mut network = Network::start(None);
    let (large, bytes) = file(&network, "large", LARGE, 1);
    let _server = network.serve(&[&large]);
    let mut command = network.get(&name_of(&bytes), Path::new("-"));
    let mut get = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = get.stdout.take().unwrap();
    let mut arrived = Vec::new();
    for router in [1, 0, 1] {
        let mut part = vec![0; LARGE / 10];
        stdout.read_exact(&mut part).unwrap();
        arrived.append(&mut part);
        // The reader pauses, and the data in flight is lost with the router.
        await_quiet(&network, 0);
        network.routers[router].as_mut().unwrap().kill();
        network.start_router(router);
    }
    stdout.read_to_end(&mut arrived).unwrap();
    assert!(get.wait().unwrap().success());
    assert!(arrived == bytes);
}

#[test]
fn a_stopped_serve_holds_up_no_other() {
    let network = Network::start(None);
    let (stuck, stuck_bytes) = file(&network, "stuck", 20_000_000, 1);
    let (small, small_bytes) = file(&network, "small", SMALL, 2);
    let stopped = serve_at(&network, 1, &stuck);
    let _server = network.serve(&[&small]);
    stopped.signal("STOP");
    let output = network.path("arrived");
    let mut waiting = Running::start(&mut network.get(&name_of(&stuck_bytes), &output));
    await_that("the stopped program has been asked", || {
        network.host_status(1)["uploads"] == 1
    });
    assert_gets(&network, 0, &small_bytes);
    assert!(!waiting.has_ended());
    stopped.signal("CONT");
    assert_eq!(waiting.exit_code(), 0);
    assert!(std::fs::read(&output).unwrap() == stuck_bytes);
}
