//! Whoever waits says why: in a line where there is no terminal, as an event in JSON.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use whimbrel_client::LocalClient;
use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    LocalEvent, LocalRequest, Publish, ReadChunk, TransferOptions,
};
use whimbrel_mobilityfirst::wire::ContentKind;

use crate::support::{Running, await_that, finished, free_port, name_of, noise, whimbrel};

const MIB: usize = 1 << 20;

fn get(name: &str, output: &Path, rest: &[&str]) -> Command {
    let mut command = whimbrel();
    command.args(["get", name, "-o"]).arg(output).args(rest);
    command
}

/// Waits for this reason.
fn await_reason(running: &Running, why: &str) -> Value {
    let line = running.await_json(|line| line["event"] == "waiting" && line["wait"]["why"] == why);
    assert!(
        line["text"].as_str().is_some_and(|text| !text.is_empty()),
        "{line}"
    );
    line
}

/// A forwarder that never answers.
#[test]
fn an_ndn_fetch_without_an_answer_says_whom_it_asked() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = format!("udp://{}", silent.local_addr().unwrap());
    let mut command = whimbrel();
    command.args(["ndn", "get", "--json", "--transport", &at, "/nowhere", "-o"]);
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(command.arg(folder.path().join("out")));
    let line = await_reason(&running, "no-answer");
    let asked = line["wait"]["asked"][0].as_str().unwrap().to_owned();
    assert!(
        asked.ends_with(&silent.local_addr().unwrap().to_string()),
        "{line}"
    );
}

struct Site {
    folder: tempfile::TempDir,
    at: String,
    _router: Running,
}

impl Site {
    fn start(name_server: Option<&str>) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let at = format!("127.0.0.1:{}", free_port());
        let mut router = whimbrel();
        router
            .args(["router", "run", "--json", "--listen", &at, "--key"])
            .arg(folder.path().join("key"));
        router.arg("--socket").arg(folder.path().join("socket"));
        if let Some(name_server) = name_server {
            router.args(["--name-server", name_server]);
        }
        let router = Running::start(&mut router);
        router.await_json(|line| line.get("guid").is_some());
        Site {
            folder,
            at,
            _router: router,
        }
    }

    fn serve(&self, bytes: &[u8]) -> Running {
        let source = self.folder.path().join("film");
        fs::write(&source, bytes).unwrap();
        let serve = ["serve", "--json", "--no-cache", "--router", &self.at];
        Running::start(whimbrel().args(serve).arg(source))
    }

    fn get(&self, name: &str) -> Command {
        get(
            name,
            &self.folder.path().join("got"),
            &["--router", &self.at, "--json"],
        )
    }
}

#[test]
fn a_port_that_refuses_is_reported_as_curl_does() {
    let folder = tempfile::tempdir().unwrap();
    let at = format!("127.0.0.1:{}", free_port());
    let output = folder.path().join("none");
    let name = name_of(b"anything");
    let (code, _, err) = finished(&mut get(
        &name,
        &output,
        &["--from", &at, "--timeout", "4 s"],
    ));
    assert_eq!(code, 7, "{err}");
    let line = format!("({at}: Connection refused)");
    let said: Vec<&str> = err.lines().filter(|told| told.contains(&line)).collect();
    assert!(
        said.iter()
            .any(|told| told.starts_with("whimbrel: waiting: not connected for")),
        "{err}"
    );
    // One line when the reason changes, and the last one as the reason of the failure.
    assert_eq!(said.len(), 2, "{err}");
    let running = Running::start(&mut get(&name, &output, &["--from", &at, "--json"]));
    let line = running.await_json(|line| {
        line["wait"]["why"] == "not-connected" && line["wait"]["to"][0]["refused"] == true
    });
    assert_eq!(line["wait"]["to"][0]["peer"], at.as_str());
}

#[test]
fn a_neighbour_that_is_unwilling_says_why() {
    let site = Site::start(None);
    let get = Running::start(site.get(&name_of(b"anything")).arg("--plain"));
    let line = get.await_json(|line| line["wait"]["to"][0]["unwilling"].is_string());
    assert_eq!(line["wait"]["why"], "not-connected");
    let why = line["wait"]["to"][0]["unwilling"].as_str().unwrap();
    assert!(why.contains("requires encryption"), "{line}");
    assert_eq!(line["wait"]["to"][0]["peer"], site.at.as_str());
}

#[test]
fn a_port_that_is_silent_is_named_and_not_called_refused() {
    let folder = tempfile::tempdir().unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let (code, _, err) = finished(&mut get(
        &name_of(b"anything"),
        &folder.path().join("none"),
        &["--router", &at, "--timeout", "4 s"],
    ));
    assert_eq!(code, 7, "{err}");
    assert!(err.contains(&format!("({at}: no answer)")), "{err}");
    assert!(!err.contains("refused"), "{err}");
    let ping = whimbrel()
        .args([
            "ping",
            "-c",
            "3",
            "--json",
            "--router",
            &at,
            &name_of(b"a host"),
        ])
        .output()
        .unwrap();
    let lines = String::from_utf8(ping.stdout).unwrap();
    assert!(lines.contains("\"why\":\"not-connected\""), "{lines}");
}

/// RFC 6761 §6.4: no name in `invalid.` has an address.
#[test]
fn a_router_whose_name_cannot_be_looked_up_is_named_and_looked_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let router = "nosuch.invalid:4711";
    let is_said = |text: &str| {
        text.contains("cannot look up nosuch.invalid: ") && text.contains("; trying again in ")
    };
    let getting = Running::start(&mut get(
        &name_of(b"anything"),
        &folder.path().join("none"),
        &["--router", router, "--json"],
    ));
    let line = await_reason(&getting, "no-address");
    assert!(is_said(line["text"].as_str().unwrap()), "{line}");
    assert_eq!(line["wait"]["host"], "nosuch.invalid");
    let socket = folder.path().join("host.sock");
    let host = Running::start(
        whimbrel()
            .args(["host", "run", "--json", "--router", router, "--key"])
            .arg(folder.path().join("key"))
            .arg("--socket")
            .arg(&socket),
    );
    host.await_json(|line| line.get("guid").is_some());
    await_that("the host's status says why it waits", || {
        let (code, out, err) =
            finished(whimbrel().args(["host", "status", "--socket"]).arg(&socket));
        assert_eq!(code, 0, "{err}");
        out.lines()
            .any(|line| line.starts_with("waiting: ") && is_said(line))
    });
}

#[test]
fn an_absent_name_says_who_was_asked() {
    let site = Site::start(None);
    let mut get = site.get(&name_of(b"served by nobody"));
    let (code, out, err) = finished(get.args(["--timeout", "2 s"]));
    assert_eq!(code, 3, "{out}{err}");
    assert!(err.contains(&format!("(asked {})", site.at)), "{err}");
    assert!(err.contains("uses no name service"), "{err}");
}

/// An outage that is longer than the announcement lasts.
#[test]
fn a_get_that_begins_when_the_announcement_has_expired_waits_and_says_so() {
    let site = Site::start(None);
    let path = |name: &str| site.folder.path().join(name);
    let bytes = noise(MIB, 73);
    fs::write(path("film"), &bytes).unwrap();
    let (key, socket) = (path("host.key"), path("host.sock"));
    let at = &site.at;
    let config = format!(
        "[host]\nkey = {key:?}\nsocket = {socket:?}\nannouncement_lifetime = \"2 s\"\n\
         [[link]]\nlabel = \"up\"\nremote = \"{at}\"\n"
    );
    fs::write(path("host.toml"), config).unwrap();
    let serve = || {
        let mut host = whimbrel();
        host.args(["host", "run", "--json", "--config"]);
        let host = Running::start(host.arg(path("host.toml")));
        host.await_json(|line| line.get("guid").is_some());
        let mut serve = whimbrel();
        serve.args(["serve", "--json", "--no-cache", "--socket"]);
        let serve = Running::start(serve.arg(&socket).arg(path("film")));
        serve.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
        (host, serve)
    };
    let (mut host, mut serving) = serve();
    host.kill();
    serving.kill();
    await_that("the announcement expires", || {
        let mut get = site.get(&name_of(&bytes));
        finished(get.args(["--timeout", "2 s"])).0 == 3
    });
    let mut getting = Running::start(&mut site.get(&name_of(&bytes)));
    await_reason(&getting, "unannounced");
    let _back = serve();
    getting.await_json(|line| line["event"] == "done");
    assert_eq!(getting.exit_code(), 0);
    assert_eq!(fs::read(path("got")).unwrap(), bytes);
}

#[test]
fn a_get_that_begins_before_its_sender_waits_for_it() {
    let site = Site::start(None);
    let bytes = noise(MIB, 72);
    let mut getting = Running::start(&mut site.get(&name_of(&bytes)));
    let line = await_reason(&getting, "unannounced");
    assert_eq!(line["wait"]["without_name_service"], true, "{line}");
    let _serving = site.serve(&bytes);
    getting.await_json(|line| line["event"] == "done");
    assert_eq!(getting.exit_code(), 0);
    assert_eq!(fs::read(site.folder.path().join("got")).unwrap(), bytes);
}

#[test]
fn a_provider_that_is_stopped_is_away_until_it_goes_on() {
    let site = Site::start(None);
    let bytes = noise(2 * MIB, 71);
    let server = site.serve(&bytes);
    server.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
    server.signal("STOP");
    let mut getting = Running::start(&mut site.get(&name_of(&bytes)));
    await_reason(&getting, "provider-away");
    server.signal("CONT");
    getting.await_json(|line| line["event"] == "done");
    assert_eq!(getting.exit_code(), 0);
    assert_eq!(fs::read(site.folder.path().join("got")).unwrap(), bytes);
}

#[test]
fn a_provider_that_is_gone_is_away() {
    let site = Site::start(None);
    let bytes = noise(MIB, 72);
    let mut server = site.serve(&bytes);
    server.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
    server.kill();
    let getting = Running::start(&mut site.get(&name_of(&bytes)));
    let line = await_reason(&getting, "provider-away");
    assert!(
        line["text"]
            .as_str()
            .unwrap()
            .starts_with("no way to a provider for"),
        "{line}"
    );
    let status = ["router", "status", "--json", "--socket"];
    let (code, out, err) = finished(
        whimbrel()
            .args(status)
            .arg(site.folder.path().join("socket")),
    );
    assert_eq!(code, 0, "{err}");
    let status: Value = serde_json::from_str(&out).unwrap();
    let waiting = &status["waiting"][0];
    assert_eq!(waiting["destination"], name_of(&bytes), "{status}");
    assert_eq!(waiting["reason"], "provider-away", "{status}");
    // The request, and on a slow machine its repetition.
    assert!(waiting["chunks"].as_u64() >= Some(1), "{status}");
}

#[test]
fn a_name_server_that_is_silent_is_named() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let site = Site::start(Some(&silent.local_addr().unwrap().to_string()));
    let getting = Running::start(&mut site.get(&name_of(b"known elsewhere")));
    await_reason(&getting, "name-server-silent");
    let serving = site.serve(b"here");
    await_reason(&serving, "name-server-silent");
}

#[test]
fn a_host_daemon_that_ends_is_the_reason_and_its_status_names_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = folder.path().join("host.sock");
    let router = silent.local_addr().unwrap().to_string();
    let mut host = Running::start(
        whimbrel()
            .args(["host", "run", "--json", "--router", &router, "--key"])
            .arg(folder.path().join("key"))
            .arg("--socket")
            .arg(&socket),
    );
    host.await_json(|line| line.get("guid").is_some());
    let name = name_of(b"anything");
    let socket_text = socket.to_str().unwrap();
    let getting = Running::start(&mut get(
        &name,
        &folder.path().join("got"),
        &["--json", "--socket", socket_text],
    ));
    await_reason(&getting, "not-connected");
    await_that("the status says what the transfer waits for", || {
        let (code, out, err) =
            finished(whimbrel().args(["host", "status", "--socket"]).arg(&socket));
        assert_eq!(code, 0, "{err}");
        out.contains("waiting: not connected for") && out.contains(&name)
    });
    host.kill();
    await_reason(&getting, "no-host");
}

/// A relay of datagrams that carries this many bytes towards the client, then nothing until it is opened: where a
/// transfer stops does not depend on how fast the machine is.
struct Relay {
    at: String,
    is_open: Arc<AtomicBool>,
}

impl Relay {
    fn start(server: &str, until_closed: usize) -> Relay {
        let to_client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to_server = UdpSocket::bind("127.0.0.1:0").unwrap();
        to_server.connect(server).unwrap();
        let relay = Relay {
            at: to_client.local_addr().unwrap().to_string(),
            is_open: Arc::default(),
        };
        let client = Arc::new(OnceLock::new());
        let (inbound, outbound) = (
            to_client.try_clone().unwrap(),
            to_server.try_clone().unwrap(),
        );
        let known = Arc::clone(&client);
        std::thread::spawn(move || {
            let mut datagram = vec![0; 1 << 16];
            while let Ok((length, from)) = inbound.recv_from(&mut datagram) {
                known.get_or_init(|| from);
                let _ = outbound.send(&datagram[..length]);
            }
        });
        let is_open = Arc::clone(&relay.is_open);
        std::thread::spawn(move || {
            let (mut datagram, mut carried) = (vec![0; 1 << 16], 0);
            while let Ok(length) = to_server.recv(&mut datagram) {
                carried += length;
                if let Some(client) = client.get()
                    && (carried < until_closed || is_open.load(Ordering::Relaxed))
                {
                    let _ = to_client.send_to(&datagram[..length], client);
                }
            }
        });
        relay
    }
}

/// A program that offers `name` on a host's socket, and answers with bytes that are not of it.
fn lie(socket: &Path, name: Guid, over: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let mut client = LocalClient::connect(socket).unwrap();
    let over = over.clone();
    let publish = Publish {
        content: name,
        content_len: MIB as u64,
        kind: ContentKind::File,
        file_name: "film".into(),
    };
    let publish = LocalRequest::Publish(publish, TransferOptions::default());
    client.send(&publish).unwrap();
    std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            let event = client.receive(std::time::Duration::from_millis(50));
            if let Ok(Some(LocalEvent::Read { read, .. })) = event {
                let chunk = Some(ReadChunk {
                    proof: vec![0; 100].into(),
                    data: vec![7; MIB].into(),
                });
                let _ = client.send(&LocalRequest::ReadDone { read, chunk });
            }
        }
    })
}

#[test]
fn a_source_that_sends_false_bytes_is_named() {
    let site = Site::start(None);
    let socket = site.folder.path().join("host.sock");
    let mut host = whimbrel();
    host.args(["host", "run", "--json", "--router", &site.at, "--key"]);
    host.arg(site.folder.path().join("host.key"))
        .arg("--socket");
    let host = Running::start(host.arg(&socket));
    let started = host.await_json(|line| line.get("guid").is_some());
    let name = name_of(b"what it should be");
    let over = Arc::new(AtomicBool::new(false));
    let liar = lie(&socket, name.parse().unwrap(), &over);
    let getting = Running::start(&mut site.get(&name));
    let line = await_reason(&getting, "false-data");
    let wait = &line["wait"];
    assert_eq!(
        (&wait["from"], &wait["at"]),
        (&started["guid"], &site.at.as_str().into())
    );
    assert!(
        wait["refused"].as_u64() > Some(0) && wait["direct"] == false,
        "{line}"
    );
    over.store(true, Ordering::Relaxed);
    liar.join().unwrap();
}

/// Gets this many bytes through a relay that carries the first ones, nothing until `get` has said that it waits, and
/// then the rest.
fn stops_and_goes_on(length: usize, until_closed: usize) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(length, 73);
    let source = folder.path().join("film");
    fs::write(&source, &bytes).unwrap();
    let serve = ["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"];
    let serving = Running::start(whimbrel().args(serve).arg(&source));
    let line = serving.await_json(|line| line["event"] == "listening");
    let relay = Relay::start(line["address"].as_str().unwrap(), until_closed);
    let output = folder.path().join("copy");
    let mut getting = Running::start(&mut get(
        &name_of(&bytes),
        &output,
        &["--from", &relay.at, "--json"],
    ));
    getting.await_json(|line| {
        line["event"] == "waiting"
            && ["stalled", "not-connected"]
                .iter()
                .any(|why| line["wait"]["why"] == *why)
    });
    relay.is_open.store(true, Ordering::Relaxed);
    getting.await_json(|line| line["event"] == "waiting" && line["wait"].is_null());
    getting.await_json(|line| line["event"] == "done");
    assert_eq!(getting.exit_code(), 0);
    assert_eq!(fs::read(&output).unwrap(), bytes);
}

#[test]
fn a_transfer_that_stops_says_so_and_goes_on() {
    stops_and_goes_on(32 * MIB, 8 * MIB);
}

#[test]
fn a_transfer_that_ends_at_once_after_a_wait_waits_no_more() {
    stops_and_goes_on(MIB, MIB / 2);
}
