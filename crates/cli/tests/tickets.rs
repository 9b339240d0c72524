//! Tickets between two commands, and the reasons that commands give for waiting.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

mod support;

use std::fs;
use std::net::UdpSocket;

use support::{Running, finished, name_of, noise, whimbrel};

const UNKNOWN: &str = "abababababababababababababababababababababababababababababababab";

fn ticket_of(sending: &Running) -> String {
    let line = sending.await_json(|line| line["event"] == "ticket");
    line["ticket"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_sent_is_received_with_nothing_but_the_ticket() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(3_000_001, 5);
    let source = folder.path().join("film.mkv");
    fs::write(&source, &bytes).unwrap();
    let send = ["send", "--json", "--listen", "127.0.0.1:0"];
    let sending = Running::start(whimbrel().args(send).arg(&source));
    let ticket = ticket_of(&sending);
    assert!(ticket.starts_with("whimbrel1"), "{ticket}");
    for (command, target) in [("receive", "first"), ("get", "second")] {
        let target = folder.path().join(target);
        let mut get = whimbrel();
        get.args([command, &ticket, "--timeout", "60 s", "-o"]);
        let (code, _, err) = finished(get.arg(&target));
        assert_eq!(code, 0, "{err}");
        assert!(fs::read(&target).unwrap() == bytes, "the bytes differ");
    }
    // One wrong letter.
    let last = if ticket.ends_with('q') { 'p' } else { 'q' };
    let mistyped = format!("{}{last}", &ticket[..ticket.len() - 1]);
    let (code, _, err) = finished(whimbrel().args(["get", &mistyped]));
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("the ticket is damaged"), "{err}");
}

#[test]
fn a_ticket_may_lead_by_a_router() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(1_000_001, 6);
    let source = folder.path().join("data");
    fs::write(&source, &bytes).unwrap();
    let at = format!("127.0.0.1:{}", support::free_port());
    let mut router = whimbrel();
    router.args(["router", "run", "--json", "--listen", &at, "--key"]);
    router.arg(folder.path().join("key")).arg("--socket");
    let router = Running::start(router.arg(folder.path().join("socket")));
    router.await_json(|line| line.get("guid").is_some());
    let send = ["send", "--json", "--router", &at];
    let sending = Running::start(whimbrel().args(send).arg(&source));
    let ticket = ticket_of(&sending);
    sending.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
    let target = folder.path().join("copy");
    let mut get = whimbrel();
    get.args(["receive", &ticket, "--timeout", "60 s", "-o"]);
    let (code, _, err) = finished(get.arg(&target));
    assert_eq!(code, 0, "{err}");
    assert!(fs::read(&target).unwrap() == bytes, "the bytes differ");
}

/// The reasons that a `get` gives until it gives up, in text and as JSON.
fn reasons(arguments: &[&str]) -> [String; 2] {
    let folder = tempfile::tempdir().unwrap();
    let get = |more: &[&str]| {
        let mut get = whimbrel();
        get.args(["get", UNKNOWN, "--timeout", "4 s", "-o"]);
        get.arg(folder.path().join("copy"));
        let (code, out, err) = finished(get.args(arguments).args(more));
        assert_eq!(code, 7, "{out}{err}");
        (out, err)
    };
    let (_, text) = get(&[]);
    let (json, _) = get(&["--json"]);
    let reason = json.lines().rev().find_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let reason = &line["progress"]["waiting"]["reason"];
        reason.as_str().map(str::to_owned)
    });
    [text, reason.unwrap_or_default()]
}

#[test]
fn a_port_without_a_listener_is_told_as_such() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = port.local_addr().unwrap().to_string();
    drop(port);
    for text in reasons(&["--from", &at]) {
        let wanted = format!("not connected to {at}: connection refused");
        assert!(text.contains(&wanted), "{text}");
    }
}

#[test]
fn a_silent_port_is_told_as_such_and_only_once() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = port.local_addr().unwrap().to_string();
    let [text, json] = reasons(&["--router", &at]);
    let wanted = format!("not connected to {at}: no answer");
    assert!(json.contains(&wanted), "{json}");
    assert_eq!(text.matches(&wanted).count(), 1, "{text}");
}

#[test]
fn a_server_that_has_stopped_is_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(200_000_000, 7);
    let source = folder.path().join("film.mkv");
    fs::write(&source, &bytes).unwrap();
    let serve = ["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"];
    let serving = Running::start(whimbrel().args(serve).arg(&source));
    let line = serving.await_json(|line| line["event"] == "listening");
    let at = line["address"].as_str().unwrap();
    let mut get = whimbrel();
    get.args(["get", &name_of(&bytes), "--from", at, "--json", "-o"]);
    let get = Running::start(get.arg(folder.path().join("copy")));
    get.await_json(|line| line["progress"]["state"] == "flowing");
    serving.signal("STOP");
    let waiting = get.await_json(|line| line["progress"]["waiting"].is_object());
    let reason = waiting["progress"]["waiting"]["reason"].as_str().unwrap();
    assert!(
        reason.contains(&format!("{at}: it has fallen silent")) || reason.contains("no data comes"),
        "{reason}"
    );
    serving.signal("CONT");
    get.await_json(|line| line["event"] == "done");
}
