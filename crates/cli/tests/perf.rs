//! `perf`: tests between two hosts, over a router and without one.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::time::Duration;

use crate::support::{Network, Running, finished, whimbrel};
use serde_json::Value;

struct Server {
    running: Running,
    name: String,
    address: Option<String>,
}

fn serve(arguments: &[&str]) -> Server {
    let mut command = whimbrel();
    command.args(["perf", "server", "--json"]).args(arguments);
    let running = Running::start(&mut command);
    let line = running.await_json(|line| line["event"] == "listening");
    Server {
        name: line["name"].as_str().unwrap().to_owned(),
        address: line["addresses"][0].as_str().map(str::to_owned),
        running,
    }
}

fn measure(server: &Server, arguments: &[&str]) -> Value {
    let mut command = whimbrel();
    command.args(["perf", "client", &server.name, "--json"]);
    let (code, out, err) = finished(command.args(arguments));
    assert_eq!(code, 0, "{out}{err}");
    serde_json::from_str(&out).unwrap()
}

fn bytes(value: &Value) -> u64 {
    value["bytes"].as_u64().unwrap()
}

#[test]
fn bytes_are_carried_in_each_direction_and_by_each_stream() {
    let network = Network::start(None);
    let socket = |index: usize| network.host_socket(index).display().to_string();
    let (server, own) = (serve(&["--socket", &socket(0)]), socket(1));
    for (flags, up, down) in [
        (&["-P", "3"][..], 3, 0),
        (&["-R"], 0, 1),
        (&["--bidir", "-P", "2"], 2, 2),
    ] {
        // More than a lap, so that the next one is asked for.
        let size = (70 << 20) + 12_345;
        let count = size.to_string();
        let arguments = [&["--socket", &own, "-n", &count], flags].concat();
        let test = measure(&server, &arguments);
        let end = &test["end"];
        assert_eq!(end["streams"].as_array().unwrap().len(), up + down);
        assert_eq!(bytes(&end["sum_received"]), size, "{flags:?}");
        assert!(bytes(&end["sum_sent"]) >= size, "{flags:?}");
        if up > 0 && down > 0 {
            assert_eq!(bytes(&end["sum_received_bidir_reverse"]), size);
        }
        let intervals = test["intervals"].as_array().unwrap();
        let of_sums: u64 = intervals.iter().map(|it| bytes(&it["sum"])).sum();
        // The last of what the server has received is only in its result.
        assert!(of_sums <= size && (of_sums == size || up > 0), "{flags:?}");
        let line = server.running.await_json(|line| line["event"] == "over");
        assert_eq!(line["lost"], false);
    }
}

#[test]
fn a_time_ends_a_test_with_a_server_that_is_reached_directly() {
    let server = serve(&["--listen", "127.0.0.1:0"]);
    let from = server.address.clone().unwrap();
    let test = measure(&server, &["--from", &from, "-R", "-t", "1", "-i", "0.5"]);
    assert!(bytes(&test["end"]["sum_received"]) > 0, "{test}");
    assert!(!test["intervals"].as_array().unwrap().is_empty());
}

/// As with iperf3, whoever calls can also be the one that sends.
#[test]
fn a_server_that_is_reached_directly_also_receives() {
    let server = serve(&["--listen", "127.0.0.1:0"]);
    let from = server.address.clone().unwrap();
    let size = (70 << 20) + 12_345;
    let count = size.to_string();
    for flags in [&["-P", "2"][..], &["--bidir"]] {
        let test = measure(&server, &[&["--from", &from, "-n", &count], flags].concat());
        assert_eq!(bytes(&test["end"]["sum_received"]), size, "{test}");
        if flags == ["--bidir"] {
            assert_eq!(bytes(&test["end"]["sum_received_bidir_reverse"]), size);
        }
        let line = server.running.await_json(|line| line["event"] == "over");
        assert_eq!(line["received"], size);
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_fails_the_test() {
    for flags in [&["-R"][..], &[], &["--bidir"]] {
        let mut server = serve(&["--listen", "127.0.0.1:0"]);
        let from = server.address.clone().unwrap();
        let mut command = whimbrel();
        command.args(["perf", "client", &server.name, "--json", "--from", &from]);
        let mut client = Running::start(command.args(flags).args(["-t", "3", "-i", "0.5"]));
        server.running.await_json(|line| line["event"] == "begun");
        std::thread::sleep(Duration::from_secs(1));
        server.running.kill();
        let document = client.await_json(|document| document["end"].is_object());
        assert_eq!(client.exit_code(), 1, "{flags:?}");
        assert!(document["error"].as_str().unwrap().contains("has gone"));
        assert!(document["whimbrel"]["server_seconds"].is_null());
        // The rate is not averaged over the time without a server.
        let seconds = document["end"]["sum_received"]["seconds"].as_f64().unwrap();
        let last = document["intervals"].as_array().unwrap().last().unwrap();
        assert!(seconds < last["sum"]["end"].as_f64().unwrap(), "{document}");
    }
}

#[test]
fn without_a_server_a_client_says_so() {
    let server = serve(&["--listen", "127.0.0.1:0"]);
    let from = server.address.clone().unwrap();
    let nobody = "00".repeat(32);
    let mut command = whimbrel();
    command.args(["perf", "client", &nobody, "--from", &from, "-R"]);
    let (code, _, err) = finished(command.args(["--connect-timeout", "1 s"]));
    assert_eq!(code, 1);
    assert!(
        err.contains("no answer from a `whimbrel perf server`"),
        "{err}"
    );
}
