//! `send` and `receive`: a ticket is all that the other machine needs; and the schema of the lines of
//! JSON, which every line of these commands keeps to.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use crate::support::schema::Schema;
use crate::support::{
    self, PATIENCE, Running, await_that, finished, free_port, name_of, noise, whimbrel,
};
use serde_json::Value;

const MIB: usize = 1 << 20;

fn ticket_of(sending: &Running) -> String {
    let line = sending.await_json(|line| line["event"] == "ticket");
    line["ticket"].as_str().unwrap().to_owned()
}

#[test]
fn a_ticket_is_all_that_the_receiver_needs() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(5 * MIB + 3, 51);
    let (source, target) = (folder.path().join("film"), folder.path().join("got"));
    fs::write(&source, &bytes).unwrap();
    let send = ["send", "--json", "--no-cache", "--listen", "127.0.0.1:0"];
    let sending = Running::start(whimbrel().args(send).arg(&source));
    let ticket = ticket_of(&sending);
    assert!(
        ticket.starts_with("whimbrel1") && ticket.len() < 130,
        "{ticket}"
    );
    // A socket of a daemon, which would know nothing of the sender, changes nothing.
    let receive = ["receive", &ticket, "-o"];
    let (code, out, err) = finished(
        whimbrel()
            .env("WHIMBREL_SOCKET", folder.path().join("none"))
            .args(receive)
            .arg(&target),
    );
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read(&target).unwrap(), bytes);
    let line = sending.await_json(|line| line["event"] == "sent" && line["complete"] == true);
    assert_eq!(
        (&line["bytes"], &line["length"]),
        (&line["length"], &Value::from(bytes.len()))
    );
}

#[test]
fn without_an_address_the_ticket_names_those_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("film");
    let bytes = noise(MIB, 52);
    fs::write(&source, &bytes).unwrap();
    let sending = Running::start(whimbrel().args(["send", "--no-cache"]).arg(&source));
    let line = sending.lines.recv_timeout(PATIENCE).unwrap();
    let ticket = line
        .strip_prefix("whimbrel receive ")
        .expect("a command to paste");
    let (code, out, err) = finished(
        whimbrel()
            .args(["get", &ticket.to_uppercase(), "-o"])
            .arg(folder.path().join("got")),
    );
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read(folder.path().join("got")).unwrap(), bytes);
}

#[test]
fn over_a_router_the_ticket_names_the_router() {
    let folder = tempfile::tempdir().unwrap();
    let at = format!("127.0.0.1:{}", free_port());
    let mut router = whimbrel();
    router
        .args(["router", "run", "--json", "--listen", &at, "--key"])
        .arg(folder.path().join("key"));
    let router = Running::start(router.arg("--socket").arg(folder.path().join("socket")));
    router.await_json(|line| line.get("guid").is_some());
    let bytes = noise(2 * MIB, 53);
    let source = folder.path().join("film");
    fs::write(&source, &bytes).unwrap();
    let sending = Running::start(
        whimbrel()
            // What the environment says is a default: --router is an answer of its own.
            .env("WHIMBREL_SOCKET", folder.path().join("none"))
            .args(["send", "--json", "--no-cache", "--router", &at])
            .arg(&source),
    );
    let ticket = ticket_of(&sending);
    sending.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
    let (code, out, err) = finished(
        whimbrel()
            .args(["receive", &ticket, "-o"])
            .arg(folder.path().join("got")),
    );
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read(folder.path().join("got")).unwrap(), bytes);
}

/// Those with the ticket can read what is sent. Others, the routers on the way among them, have the name and encrypted bytes.
#[test]
fn what_is_sent_is_encrypted_and_has_the_same_ticket_in_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let at = format!("127.0.0.1:{}", free_port());
    let mut router = whimbrel();
    router.args(["router", "run", "--json", "--listen", &at, "--key"]);
    router.arg(path("router.pem")).arg("--socket");
    let router = Running::start(router.arg(path("socket")));
    router.await_json(|line| line.get("guid").is_some());
    let bytes = noise(2 * MIB, 55);
    fs::create_dir(path("tree")).unwrap();
    fs::write(path("tree/film"), &bytes).unwrap();
    fs::write(path("tree/letter"), b"a few bytes").unwrap();
    let send = |what: &str| {
        let mut send = whimbrel();
        send.args(["send", "--json", "--no-cache", "--router", &at, "--key"]);
        let sending = Running::start(send.arg(path("sender.pem")).arg(path(what)));
        let name = sending.await_json(|line| line["event"] == "name");
        let name = name["shelved"]["name"].as_str().unwrap().to_owned();
        let ticket = ticket_of(&sending);
        sending.await_json(|line| line["event"] == "announced" && line["name"] == name);
        (sending, name, ticket)
    };
    let fetch = |what: &str, to: &str| {
        let mut get = whimbrel();
        get.args(["get", what, "--router", &at, "--timeout", "60 s", "-o"]);
        let (code, out, err) = finished(get.arg(path(to)));
        assert_eq!(code, 0, "{out}{err}");
    };
    let (sending, name, ticket) = send("tree/film");
    assert_ne!(name, name_of(&bytes));
    fetch(&name, "seen");
    let seen = fs::read(path("seen")).unwrap();
    assert!(seen.len() == bytes.len() && name_of(&seen) == name);
    drop(sending);
    let (sending, _, again) = send("tree/film");
    assert_eq!(again, ticket);
    fetch(&ticket, "film");
    assert_eq!(fs::read(path("film")).unwrap(), bytes);
    drop(sending);
    let (_sending, _, ticket) = send("tree");
    fetch(&ticket, "copy");
    assert_eq!(fs::read(path("copy/film")).unwrap(), bytes);
    assert_eq!(fs::read(path("copy/letter")).unwrap(), b"a few bytes");
}

/// The sender's router may be out of reach at the other site, which has one of its own.
#[test]
fn a_ticket_with_a_router_says_that_another_one_may_be_asked() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("film");
    fs::write(&source, b"a few bytes").unwrap();
    let mut send = whimbrel();
    send.args(["send", "--no-cache", "--router", "127.0.0.1:9"]);
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let sending = Running::start(send.arg(&source).stderr(log));
    let command = sending.lines.recv_timeout(support::PATIENCE).unwrap();
    let told = || fs::read_to_string(folder.path().join("log")).unwrap();
    await_that("the remark", || told().contains("--router HOST:PORT"));
    let ticket = command.strip_prefix("whimbrel receive ").unwrap();
    let mut receive = whimbrel();
    receive.args(["receive", ticket, "--timeout", "3 s", "-o"]);
    receive.env("WHIMBREL_SOCKET", folder.path().join("none"));
    let (code, _, err) = finished(receive.arg(folder.path().join("got")));
    assert_eq!(code, 7, "{err}");
    assert!(err.contains("--router HOST:PORT"), "{err}");
}

/// Returns the ticket of a sender that has ended.
fn ticket_of_who_has_gone(folder: &Path) -> String {
    let source = folder.join("film");
    fs::write(&source, b"a few bytes").unwrap();
    let send = ["send", "--json", "--no-cache", "--listen", "127.0.0.1:0"];
    ticket_of(&Running::start(whimbrel().args(send).arg(&source)))
}

/// The sender's router may be out of reach for a host whose daemon could get the content.
#[test]
fn who_waits_for_the_addresses_of_a_ticket_learns_that_the_daemon_is_not_asked() {
    let folder = tempfile::tempdir().unwrap();
    let ticket = ticket_of_who_has_gone(folder.path());
    let socket = folder.path().join("host.sock");
    let host = ["host", "run", "--router", "127.0.0.1:9", "--socket"];
    let _host = Running::start(
        whimbrel()
            .args(host)
            .arg(&socket)
            .env("HOME", folder.path()),
    );
    await_that("the daemon's socket", || socket.exists());
    let (code, out, err) = finished(
        whimbrel()
            .env("WHIMBREL_SOCKET", &socket)
            .args(["receive", &ticket, "--timeout", "4 s", "-o"])
            .arg(folder.path().join("got")),
    );
    assert_eq!(code, 7, "{out}{err}");
    assert!(err.contains("not the host daemon that runs here"), "{err}");
}

#[test]
fn a_mistyped_ticket_is_refused_by_its_checksum() {
    let folder = tempfile::tempdir().unwrap();
    let ticket = ticket_of_who_has_gone(folder.path());
    let (start, end) = ticket.split_at(20);
    let other = if end.starts_with('q') { 'p' } else { 'q' };
    for wrong in [
        format!("{start}{other}{}", &end[1..]),
        ticket[..ticket.len() - 1].to_owned(),
    ] {
        let (code, _, err) = finished(whimbrel().args(["receive", &wrong]));
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("mistyped or cut off"), "{err}");
    }
}

fn schema() -> Schema {
    Schema::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/schema/lines.json"
    ))
}

/// Checks each line, and answers with the events that there were.
fn check(schema: &Schema, text: &str) -> Vec<String> {
    let mut events = Vec::new();
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        if let Err(error) = schema.check(&value) {
            panic!("{error} in {line}");
        }
        events.push(value["event"].as_str().unwrap().to_owned());
    }
    events
}

#[test]
fn every_line_of_json_keeps_to_the_schema() {
    let schema = schema();
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(3 * MIB, 54);
    let source = folder.path().join("film");
    fs::write(&source, &bytes).unwrap();
    let send = ["send", "--json", "--no-cache", "--listen", "127.0.0.1:0"];
    let sending = Running::start(whimbrel().args(send).arg(&source));
    let mut said = Vec::new();
    let ticket = loop {
        let line = sending.lines.recv_timeout(PATIENCE).unwrap();
        said.push(line.clone());
        let value: Value = serde_json::from_str(&line).unwrap();
        if value["event"] == "ticket" {
            break value["ticket"].as_str().unwrap().to_owned();
        }
    };
    let receive = ["receive", &ticket, "--json", "-o"];
    let (code, out, _) = finished(whimbrel().args(receive).arg(folder.path().join("got")));
    assert_eq!(code, 0);
    let events = check(&schema, &out);
    assert!(
        events.contains(&"progress".to_owned()) && events.contains(&"done".to_owned()),
        "{events:?}"
    );
    loop {
        let line = sending.lines.recv_timeout(PATIENCE).unwrap();
        said.push(line.clone());
        if line.contains("\"complete\":true") {
            break;
        }
    }
    let events = check(&schema, &said.join("\n"));
    for event in ["name", "listening", "ticket", "sent"] {
        assert!(events.contains(&event.to_owned()), "{event}: {events:?}");
    }
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let name = name_of(b"anything");
    let failing = [
        "get",
        &name,
        "--json",
        "--from",
        &at,
        "--timeout",
        "4 s",
        "-o",
    ];
    let (code, out, _) = finished(whimbrel().args(failing).arg(folder.path().join("none")));
    assert_eq!(code, 7);
    let events = check(&schema, &out);
    assert!(
        events.contains(&"waiting".to_owned()) && events.contains(&"failed".to_owned()),
        "{events:?}"
    );
    let (_, out, _) =
        finished(whimbrel().args(["ping", "-c", "2", "--json", "--router", &at, &name]));
    check(&schema, &out);
}

#[test]
fn the_schema_refuses_what_no_command_says() {
    let schema = schema();
    for wrong in [
        r#"{"event":"something"}"#,
        r#"{"event":"waiting","wait":{"why":"bored"},"text":"bored"}"#,
        r#"{"event":"done","fetched":{},"seconds":1}"#,
        r#"{"event":"sent","name":"6b1e","bytes":1,"length":1,"complete":true}"#,
    ] {
        assert!(
            schema.check(&serde_json::from_str(wrong).unwrap()).is_err(),
            "{wrong}"
        );
    }
}
