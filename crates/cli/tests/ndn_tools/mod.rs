//! The tools of the NDN plane: real processes with a real router between them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

mod content;
mod keys_and_traffic;
mod link_local;
mod management;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::ndn::Router;
use crate::support::{self, Running, finished, whimbrel};

fn with_input(mut command: Command, input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    (
        output.status.code().unwrap_or(-1),
        output.stdout,
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[test]
fn peek_gets_the_data_of_poke() {
    let router = Router::start();
    let poke = router.producer(&[
        "ndn",
        "poke",
        "/poke/hello",
        "--content",
        "hello",
        "-F",
        "-x",
        "1000",
    ]);
    let data = router.json(&["ndn", "peek", "/poke/hello", "-P"]);
    assert_eq!(
        (data["name"].as_str(), data["content"].as_str()),
        (Some("/poke/hello"), Some("hello"))
    );
    assert_eq!(
        (
            data["freshness_ms"].as_f64(),
            data["final_block_id"].as_str()
        ),
        (Some(1000.0), Some("hello"))
    );
    poke.await_json(|value| value["event"] == "sent");
    // The Data comes from the router's content store: the program that sent it has ended.
    assert_eq!(
        router.prints(&["ndn", "peek", "-p", "/poke/hello"]),
        "hello"
    );
    let packet = finished(&mut router.command(&["ndn", "peek", "/poke/hello"])).1;
    assert!(
        packet.starts_with('\u{6}') && packet.contains("hello"),
        "the whole packet: {packet:?}"
    );
}

#[test]
fn an_unanswered_peek_gives_the_reason_by_its_code() {
    let router = Router::start();
    let (code, errors) = router.fails(&["ndn", "peek", "/nowhere"]);
    assert!(code == 4 && errors.contains("NoRoute"), "{code} {errors}");
    // The server registers, but answers no Interest.
    let rules = router.path("silent.conf");
    fs::write(&rules, "Name=/silent\n").unwrap();
    let _silent = router.producer(&[
        "ndn",
        "traffic",
        "server",
        rules.to_str().unwrap(),
        "-c",
        "0",
    ]);
    let (code, errors) = router.fails(&["ndn", "peek", "/silent", "-A", "question", "-w", "200"]);
    assert!(
        code == 3 && errors.contains("without an answer"),
        "{code} {errors}"
    );
    let (code, errors) = router.fails(&["ndn", "get", "/silent", "--timeout", "200 ms"]);
    assert!(code == 3 && errors.contains("--timeout"), "{code} {errors}");
    let (code, _) = router.fails(&["ndn", "ping", "/silent", "-c", "2", "-i", "1", "-o", "100"]);
    assert_eq!(code, 3);
}

#[test]
fn a_poke_without_an_interest_ends_in_time() {
    let router = Router::start();
    let (code, _, errors) = with_input(
        router.command(&["ndn", "poke", "/unasked", "-w", "300"]),
        b"content",
    );
    assert!(
        code == 3 && errors.contains("without an Interest"),
        "{code} {errors}"
    );
    let (code, _, errors) = with_input(router.command(&["ndn", "poke", "/unasked"]), &[0; 9000]);
    assert!(code == 2 && errors.contains("ndn serve"), "{code} {errors}");
}

#[test]
fn pings_are_answered_counted_and_summarised() {
    let router = Router::start();
    let mut server = router.producer(&["ndn", "pingserver", "/ping/here", "-p", "3", "-s", "100"]);
    let out = router.prints(&[
        "ndn",
        "ping",
        "/ping/here",
        "-c",
        "3",
        "-i",
        "10",
        "-n",
        "7",
        "-t",
    ]);
    for number in 7..10 {
        assert!(
            out.contains(&format!("content from /ping/here: seq={number} time=")),
            "{out}"
        );
    }
    assert!(
        out.contains("3 packets transmitted, 3 received, 0 nacked, 0.00 % lost"),
        "{out}"
    );
    assert!(out.contains("rtt min/avg/max/mdev = "), "{out}");
    server.await_json(|value| value["event"] == "ping" && value["seq"] == "9");
    server.await_json(|value| value["event"] == "summary" && value["answered"] == 3);
    assert_eq!(server.exit_code(), 0);
    let (code, _) = router.fails(&["ndn", "ping", "/ping/nobody", "-c", "2", "-i", "1"]);
    assert_eq!(code, 4);
}

#[test]
fn a_ping_that_is_interrupted_still_summarises() {
    let router = Router::start();
    let _server = router.producer(&["ndn", "pingserver", "/ping/long"]);
    let mut command = router.command(&["ndn", "ping", "/ping/long", "-i", "5", "--json"]);
    let mut ping = Running::start(&mut command);
    ping.await_json(|value| value["event"] == "reply");
    ping.signal("INT");
    let summary = ping.await_json(|value| value["event"] == "summary");
    assert!(summary["received"].as_u64().unwrap() >= 1);
    assert_eq!(ping.exit_code(), 0);
}

#[test]
fn the_error_for_an_absent_forwarder_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/none.sock", folder.path().display());
    for (code, arguments) in [
        (5, &["ndn", "peek", "/a"][..]),
        (5, &["ndn", "get", "/a"]),
        (5, &["ndn", "ping", "/a"]),
        (8, &["face", "list"]),
        (8, &["status"]),
    ] {
        for transport in [socket.as_str(), "tcp://127.0.0.1:1"] {
            let mut command = whimbrel();
            command
                .env("HOME", folder.path())
                .args(arguments)
                .args(["--transport", transport]);
            let (found, _, errors) = finished(&mut command);
            assert_eq!(found, code, "{arguments:?} {transport}: {errors}");
            assert!(
                errors.contains("no forwarder answers on") && errors.contains("router run"),
                "{errors}"
            );
        }
    }
    let mut command = whimbrel();
    let (code, _, errors) = finished(
        command
            .env("NDN_CLIENT_TRANSPORT", "carrier-pigeon://x")
            .args(["ndn", "peek", "/a"]),
    );
    assert!(
        code == 2 && errors.contains("NDN_CLIENT_TRANSPORT says"),
        "{code} {errors}"
    );
}

#[test]
fn a_client_configuration_names_the_forwarder() {
    let router = Router::start();
    fs::create_dir(router.path(".ndn")).unwrap();
    let socket = router.path("nfd.sock");
    fs::write(
        router.path(".ndn/client.conf"),
        format!("; a comment\ntransport=unix://{}\n", socket.display()),
    )
    .unwrap();
    let mut command = router.command(&["status"]);
    let (code, out, errors) = finished(command.env_remove("NDN_CLIENT_TRANSPORT"));
    assert!(code == 0 && out.contains("version"), "{errors}");
}

#[test]
fn unusable_arguments_are_refused_before_anything_happens() {
    let router = Router::start();
    for arguments in [
        &["ndn", "get", "no-slash"][..],
        &["ndn", "get", "/a", "--init-cwnd", "0.5"],
        &["ndn", "get", "/a", "-p", "vegas"],
        &["ndn", "get", "/a", "--cubic-beta", "2"],
        &["ndn", "get", "/a", "--min-rto", "2000", "--max-rto", "1000"],
        &["ndn", "get", "/a", "--retries", "-2"],
        &["ndn", "get", "/a", "--verify", "hope"],
        &["ndn", "get", "/a", "--anchor", "/nonexistent"],
        &["ndn", "serve", "/a", "/nonexistent"],
        &["ndn", "serve", "/a", "/"],
        &["ndn", "serve", "/a", "--size", "0"],
        &["ndn", "serve", "/a", "--size", "8700"],
        &["ndn", "serve", "/a", "--signing", "id:/nobody"],
        &["ndn", "ping", "/a", "-p", "two words"],
        &["ndn", "ping", "/a", "-c", "0"],
        &["ndn", "traffic", "client", "/nonexistent"],
        &["key", "gen", "alice"],
        &["key", "gen", "/alice", "--type", "rsa:1"],
        &["key", "show", "/nobody"],
        &["key", "import", "/nonexistent"],
        &["key", "cert", "show", "/nobody"],
    ] {
        let (code, errors) = router.fails(arguments);
        assert_eq!(code, 2, "{arguments:?}: {errors}");
    }
}

#[test]
fn a_server_finds_its_forwarder_again() {
    let mut router = Router::start();
    let serve = router.serve("/again", b"still here", &[]);
    router.process.kill();
    let config = router.path("router.toml");
    let mut command = whimbrel();
    command
        .args(["router", "run", "--json", "--config"])
        .arg(&config);
    command.arg("--ndn-socket").arg(router.path("nfd.sock"));
    command.args([
        "--ndn-listen",
        "127.0.0.1:0",
        "--ndn-websocket",
        "127.0.0.1:0",
    ]);
    router.process = Running::start(&mut command);
    router
        .process
        .await_json(|value| value.get("ndn").is_some());
    serve.await_json(|value| value["event"] == "registered");
    assert_eq!(router.prints(&["ndn", "get", "/again"]), "still here");
}

#[test]
fn every_command_shows_an_example() {
    let groups: [(&[&str], &[&str]); 7] = [
        (
            &["ndn"],
            &["get", "serve", "peek", "poke", "ping", "pingserver"],
        ),
        (&["ndn", "traffic"], &["client", "server"]),
        (&["face"], &["list", "show", "create", "update", "destroy"]),
        (&["route"], &["list", "show", "add", "remove"]),
        (&["strategy"], &["list", "show", "set", "unset"]),
        (&["cs"], &["info", "config", "erase"]),
        (
            &["key"],
            &[
                "gen", "list", "show", "default", "delete", "export", "import", "sign-req",
            ],
        ),
    ];
    for (group, commands) in groups {
        for command in commands {
            let (code, out, _) = finished(whimbrel().args(group).args([command, "--help"]));
            assert!(code == 0 && out.contains("Example"), "{group:?} {command}");
            assert!(!out.contains('\u{1b}'), "no colours in a pipe");
        }
    }
    for command in ["show", "issue", "install", "list", "delete"] {
        let (code, out, _) = finished(whimbrel().args(["key", "cert", command, "--help"]));
        assert!(code == 0 && out.contains("Example"), "{command}");
    }
}

/// Four routers: one before two that lead to the one of the producer.
#[test]
fn paths_finds_both_ways_round_and_only_one_when_the_other_is_gone() {
    let last = Router::start();
    let _serve = last.serve("/film", &support::noise(200_000, 5), &[]);
    let to = |router: &Router| format!("/film={}", router.tcp());
    let left = Router::with(&["--ndn-route", &to(&last)]);
    let right = Router::with(&["--ndn-route", &to(&last)]);
    let first = Router::with(&["--ndn-route", &to(&left), "--ndn-route", &to(&right)]);
    let command = [
        "ndn",
        "paths",
        "/film",
        "--count",
        "40",
        "--interval",
        "10",
        "--timeout",
        "20000",
    ];
    // Each way is missed once in 2^40 times; until all connections are up, probes are refused.
    support::await_that("two paths", || {
        let (code, out, _) = finished(first.command(&command).arg("--json"));
        let lines: Vec<serde_json::Value> = out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let Some((summary, paths)) = lines.split_last() else {
            return false;
        };
        if code != 0 || summary["paths"] != 2 || summary["received"] != 40 {
            return false;
        }
        assert!(paths.iter().all(|path| path["hops"] == 3), "{out}");
        assert_ne!(paths[0]["tag"], paths[1]["tag"]);
        let probes: u64 = paths
            .iter()
            .map(|path| path["probes"].as_u64().unwrap())
            .sum();
        let times = paths
            .iter()
            .all(|path| path["ms"]["min"].as_f64().unwrap() > 0.0);
        assert!(probes == 40 && times, "{out}");
        true
    });
    let text = first.prints(&command);
    assert!(
        text.starts_with("2 paths to /film\n") && text.contains("40 answered (0 without a path)"),
        "{text}"
    );
    drop(left);
    support::await_that("one path", || {
        let (_, out, _) = finished(&mut first.command(&command));
        out.starts_with("1 path to /film\n")
    });
    let (code, _) = first.fails(&["ndn", "paths", "/nowhere", "--count", "2"]);
    assert_eq!(code, 4, "a Nack");
}

#[test]
fn a_file_comes_over_two_paths_and_over_the_other_one_when_one_is_gone() {
    let last = Router::start();
    let content = support::noise(30_000_000, 6);
    let _serve = last.serve("/film/v=1", &content, &[]);
    let to = |router: &Router| format!("/film={}", router.tcp());
    let left = Router::with(&["--ndn-route", &to(&last)]);
    let right = Router::with(&["--ndn-route", &to(&last)]);
    let first = Router::with(&["--ndn-route", &to(&left), "--ndn-route", &to(&right)]);
    let find = ["ndn", "paths", "/film", "--count", "40", "--interval", "10"];
    support::await_that("two paths", || {
        let (_, out, _) = finished(&mut first.command(&find));
        out.starts_with("2 paths")
    });
    let target = first.path("got");
    let get = |law: &str| {
        let arguments = [
            "ndn",
            "get",
            "/film/v=1",
            "-o",
            target.to_str().unwrap(),
            "--paths",
            "4",
            "--law",
            law,
            "--probe-interval",
            "1 ms",
        ];
        let done = first.json(&arguments);
        assert!(std::fs::read(&target).unwrap() == content, "{law}: {done}");
        done
    };
    let done = get("lia");
    let rows = done["stats"]["paths"].as_array().unwrap();
    let used = rows
        .iter()
        .filter(|row| row["use"] == "path" && row["segments"].as_u64() > Some(0));
    assert_eq!(used.count(), 2, "{done}");
    assert!(rows.iter().any(|row| row["use"] == "probes"), "{done}");
    for law in ["ewtcp", "coupled", "uncoupled", "wvegas", "model"] {
        get(law);
    }
    drop(left);
    first.prints(&["cs", "erase", "/"]);
    right.prints(&["cs", "erase", "/"]);
    let done = get("lia");
    let segments: u64 = done["stats"]["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["segments"].as_u64().unwrap())
        .sum();
    assert!(segments > 0, "{done}");
    let (code, errors) = first.fails(&["ndn", "get", "/film", "--paths", "0"]);
    assert!(code == 2 && errors.contains("--paths"), "{errors}");
}
