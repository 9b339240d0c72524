//! Codes that two people say aloud: `send --code` and `receive CODE`, directly and over routers; and
//! what happens to who guesses.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::io::{Seek, Write};
use std::net::UdpSocket;
use std::path::Path;

use crate::support::schema::Schema;
use crate::support::{Network, PATIENCE, Running, finished, free_port, noise, whimbrel};
use serde_json::Value;

/// A sender with a code, and what has been said of it.
struct Sender {
    sending: Running,
    code: String,
    /// What it says to type after `receive`, but for the code.
    meet: Vec<String>,
}

fn send(source: &Path, arguments: &[&str]) -> Sender {
    let send = ["send", "--json", "--no-cache", "--code"];
    let sending = Running::start(whimbrel().args(send).args(arguments).arg(source));
    let line = sending.await_json(|line| line["event"] == "code");
    let command = line["command"].as_str().unwrap();
    let mut words = command.split(' ').map(str::to_owned);
    assert_eq!(words.next().as_deref(), Some("whimbrel"));
    assert_eq!(words.next().as_deref(), Some("receive"));
    let mut meet: Vec<String> = words.collect();
    let code = meet.pop().unwrap();
    assert_eq!(line["code"], code);
    Sender {
        sending,
        code,
        meet,
    }
}

impl Sender {
    fn receive(&self, code: &[&str], target: &Path) -> (i32, String, String) {
        let mut receive = whimbrel();
        receive.arg("receive").args(&self.meet).args(code);
        finished(receive.arg("-o").arg(target))
    }

    /// The same, with the code on standard input: no argument shows it.
    fn receive_typed(&self, code: &str, target: &Path) -> (i32, String, String) {
        let mut typed = tempfile::tempfile().unwrap();
        writeln!(typed, "{code}").unwrap();
        typed.rewind().unwrap();
        let mut receive = whimbrel();
        receive
            .arg("receive")
            .args(&self.meet)
            .arg("-")
            .stdin(typed);
        finished(receive.arg("-o").arg(target))
    }

    fn guess(&self) -> Value {
        self.sending.await_json(|line| line["event"] == "guess")
    }
}

/// A code without its check word.
fn unchecked(code: &str) -> &str {
    code.rsplit_once('-').unwrap().0
}

/// The same code with another third word, and no check word that would tell.
fn wrong(code: &str) -> String {
    let (start, last) = unchecked(code).rsplit_once('-').unwrap();
    let other = if last == "zulu" { "aardvark" } else { "zulu" };
    format!("{start}-{other}")
}

fn router(folder: &Path) -> (Running, String) {
    let at = format!("127.0.0.1:{}", free_port());
    let mut router = whimbrel();
    router.args(["router", "run", "--json", "--listen", &at, "--key"]);
    router.arg(folder.join("key")).arg("--socket");
    let router = Running::start(router.arg(folder.join("socket")));
    router.await_json(|line| line.get("guid").is_some());
    (router, at)
}

#[test]
fn a_code_is_said_to_who_asks_the_sender_directly() {
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (folder.path().join("film"), folder.path().join("got"));
    let bytes = noise(3 << 20, 61);
    fs::write(&source, &bytes).unwrap();
    let sender = send(&source, &["--listen", "127.0.0.1:0"]);
    assert_eq!(sender.meet[0], "--from");
    // As somebody types it who hears it.
    let heard = sender.code.to_uppercase().replace('-', " ");
    let words: Vec<&str> = heard.split(' ').collect();
    let (code, out, err) = sender.receive(&words, &target);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read(&target).unwrap(), bytes);
    assert_eq!(sender.guess()["right"], true);
}

#[test]
fn a_notice_about_a_ticket_is_printed_once_although_a_code_needs_it_too() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    let source = folder.path().join("film");
    fs::write(&source, noise(1000, 62)).unwrap();
    let mut send = whimbrel();
    send.args(["send", "--json", "--no-cache", "--code"]);
    send.args(["--listen", "127.0.0.1:0"]);
    let sending = Running::start(send.arg(&source).stderr(fs::File::create(&told).unwrap()));
    sending.await_json(|line| line["event"] == "code");
    let told = fs::read_to_string(&told).unwrap();
    assert_eq!(
        told.matches("addresses of this machine only").count(),
        1,
        "{told}"
    );
}

#[test]
fn codes_of_several_senders_are_said_over_one_router() {
    let folder = tempfile::tempdir().unwrap();
    let (_router, at) = router(folder.path());
    let senders: Vec<(Sender, Vec<u8>)> = (0..3)
        .map(|number| {
            let source = folder.path().join(format!("film-{number}"));
            let bytes = noise(1 << 20, 70 + number);
            fs::write(&source, &bytes).unwrap();
            (send(&source, &["--router", &at]), bytes)
        })
        .collect();
    let number = |sender: &Sender| sender.code.split('-').next().unwrap().to_owned();
    let numbers: std::collections::BTreeSet<String> =
        senders.iter().map(|(sender, _)| number(sender)).collect();
    assert_eq!(numbers.len(), senders.len());
    for (index, (sender, bytes)) in senders.iter().enumerate() {
        // By this a sender knows that a number is taken. A host that has just been started attaches
        // before it sends the first one.
        let number = number(sender).parse().unwrap();
        let key = whimbrel_gnrs::KeyPair::from_secret(&whimbrel_spoken::meeting_key(number));
        let ping = ["ping", "-c", "1", "--router", &at];
        let (code, out, err) = finished(whimbrel().args(ping).arg(key.guid().to_string()));
        assert_eq!(code, 0, "{out}{err}");
        // With the router's name, which may be left out.
        let [flag, router] = &sender.meet[..] else {
            panic!("{:?}", sender.meet)
        };
        assert!(
            flag == "--router" && router.ends_with(&format!("@{at}")),
            "{router}"
        );
        let target = folder.path().join(format!("got-{index}"));
        let (code, out, err) = sender.receive(&[&sender.code], &target);
        assert_eq!(code, 0, "{out}{err}");
        assert_eq!(&fs::read(&target).unwrap(), bytes);
    }
    let (sender, bytes) = &senders[0];
    let target = folder.path().join("typed");
    let (code, out, err) = sender.receive_typed(&sender.code, &target);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(&fs::read(&target).unwrap(), bytes);
    let (code, _, err) = sender.receive(&["-"], &target);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("nothing was typed"), "{err}");
}

#[test]
fn sender_and_receiver_meet_through_two_routers_and_a_host_daemon() {
    let network = Network::start(None);
    let source = network.path("film");
    let bytes = noise(1 << 20, 62);
    fs::write(&source, &bytes).unwrap();
    let sender = send(
        &source,
        &["--router", &format!("127.0.0.1:{}", network.ports[2])],
    );
    let target = network.path("got");
    let (code, out, err) = finished(
        whimbrel()
            .args(["receive", &sender.code, "--timeout", "100 s", "--socket"])
            .arg(network.host_socket(0))
            .arg("-o")
            .arg(&target),
    );
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read(&target).unwrap(), bytes);
}

#[test]
fn a_wrong_code_is_refused_and_the_third_one_uses_it_up() {
    let folder = tempfile::tempdir().unwrap();
    let (_router, at) = router(folder.path());
    let source = folder.path().join("film");
    fs::write(&source, noise(1 << 16, 63)).unwrap();
    let sender = send(&source, &["--router", &at]);
    let target = folder.path().join("got");
    for left in [2, 1, 0] {
        let (code, out, err) = sender.receive(&[&wrong(&sender.code)], &target);
        assert_eq!(code, 10, "{out}{err}");
        assert!(err.contains("the code is wrong"), "{err}");
        let guess = sender.guess();
        assert_eq!(
            (&guess["right"], &guess["left"]),
            (&false.into(), &left.into())
        );
    }
    let (code, out, err) = sender.receive(&[&sender.code], &target);
    assert_eq!(code, 10, "{out}{err}");
    assert!(err.contains("used up"), "{err}");
    assert!(!target.exists());
}

#[test]
fn a_mistyped_word_is_corrected_and_costs_no_guess() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("film");
    fs::write(&source, b"a few bytes").unwrap();
    let sender = send(&source, &["--listen", "127.0.0.1:0"]);
    let target = folder.path().join("got");
    let (start, last) = sender.code.rsplit_once('-').unwrap();
    let mistyped = format!("{start}-{last}s");
    let (code, _, err) = sender.receive(&[&mistyped], &target);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains(&format!("did you mean '{last}'?")), "{err}");
    let (number, words) = sender.code.split_once('-').unwrap();
    let other = format!("{}-{words}", number.parse::<u16>().unwrap() + 1);
    let checked = format!("{}-{last}", wrong(&sender.code));
    for slip in [&other, &checked] {
        let (code, _, err) = sender.receive(&[slip], &target);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("does not fit the rest"), "{err}");
    }
    let (code, _, err) = sender.receive(&[unchecked(&other)], &target);
    assert_eq!(code, 10, "{err}");
    assert!(err.contains("another number"), "{err}");
    let (code, _, err) = sender.receive(&[unchecked(&sender.code)], &target);
    assert_eq!(code, 0, "{err}");
    assert_eq!(sender.guess()["right"], true);
    let (code, _, err) = finished(whimbrel().args(["send", "--code", "a", "b"]));
    assert_eq!(code, 2, "{err}");
}

#[test]
fn who_waits_for_a_sender_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (_router, at) = router(folder.path());
    let code = "7-crusade-hazardous-button";
    let receive = [
        "receive",
        code,
        "--json",
        "--router",
        &at,
        "--timeout",
        "4 s",
    ];
    let (exit, out, err) = finished(whimbrel().args(receive));
    assert_eq!(exit, 7, "{out}{err}");
    let reason = "no sender with number 7 answers";
    assert!(err.contains(reason) && err.contains(&at), "{err}");
    let schema = schema();
    let events = check(&schema, &out);
    assert_eq!(events.last().map(String::as_str), Some("failed"));
    assert!(out.contains("\"why\":\"no-sender\""), "{out}");
    // Nobody said how long to wait: a number that nobody sends with is a wrong code.
    let receive = ["receive", code, "--router", &at];
    let (exit, out, err) = finished(whimbrel().args(receive));
    assert_eq!(exit, 10, "{out}{err}");
    assert!(err.contains(reason), "{err}");
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let receive = ["receive", code, "--from", &address, "--timeout", "2 s"];
    let (exit, out, err) = finished(whimbrel().args(receive));
    assert_eq!(exit, 7, "{out}{err}");
    assert!(err.contains("not connected"), "{err}");
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
    let (schema, folder) = (schema(), tempfile::tempdir().unwrap());
    let source = folder.path().join("film");
    fs::write(&source, noise(1 << 16, 64)).unwrap();
    let send = [
        "send",
        "--json",
        "--code",
        "--no-cache",
        "--listen",
        "127.0.0.1:0",
    ];
    let sending = Running::start(whimbrel().args(send).arg(&source));
    let mut said = Vec::new();
    let command = loop {
        let line = sending.lines.recv_timeout(PATIENCE).unwrap();
        let value: Value = serde_json::from_str(&line).unwrap();
        said.push(line);
        if value["event"] == "code" {
            break value["command"].as_str().unwrap().to_owned();
        }
    };
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let wrong = wrong(&command);
    let mut failing = whimbrel();
    failing.args(wrong.split(' ').skip(1)).arg("--json");
    let (code, out, err) = finished(failing.arg("-o").arg(folder.path().join("no")));
    assert_eq!(code, 10, "{out}{err}");
    let events = check(&schema, &out);
    assert_eq!(events.last().map(String::as_str), Some("failed"));
    let mut receive = whimbrel();
    receive.args(&words).arg("--json").arg("-o");
    let (code, out, err) = finished(receive.arg(folder.path().join("got")));
    assert_eq!(code, 0, "{out}{err}");
    let events = check(&schema, &out);
    for event in ["ticket", "progress", "done"] {
        assert!(events.contains(&event.to_owned()), "{event}: {events:?}");
    }
    while said
        .iter()
        .filter(|line| line.contains("\"guess\""))
        .count()
        < 2
    {
        said.push(sending.lines.recv_timeout(PATIENCE).unwrap());
    }
    let events = check(&schema, &said.join("\n"));
    assert!(events.contains(&"code".to_owned()), "{events:?}");
}
