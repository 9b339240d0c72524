//! An NDN router with clients and neighbours that break the rules: its memory stays within its
//! configured bounds, it counts its drops, and others are served.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

use std::fs;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::support::ndn::Router;
use crate::support::{Running, await_that, finished, noise, whimbrel};
use serde_json::Value;
use whimbrel_ndn_packet::lp::{self, LinkFields, Numbers};
use whimbrel_ndn_packet::{Data, DigestSigner, Interest, LpHeader, Name};

/// Maximum growth of a router's memory beyond its configured bounds.
const SLACK: u64 = 24 << 20;

fn interest(name: &str, nonce: u32) -> Vec<u8> {
    Interest {
        nonce: Some(nonce.to_be_bytes()),
        ..Interest::new(name.parse::<Name>().unwrap())
    }
    .encode()
}

fn data(name: &str, len: usize) -> Vec<u8> {
    Data::new(name.parse::<Name>().unwrap(), vec![7; len]).encode(&DigestSigner)
}

impl Router {
    fn program(&self) -> UnixStream {
        UnixStream::connect(self.path("nfd.sock")).unwrap()
    }

    /// Returns a neighbour's socket, connected to the router's.
    fn neighbour(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .connect(self.opened["udp"][0].as_str().unwrap())
            .unwrap();
        socket
    }

    fn counters(&self) -> Value {
        self.json(&["status"])["counters"].clone()
    }

    fn drops(&self, reason: &str) -> u64 {
        self.counters()["drops"][reason].as_u64().unwrap()
    }

    /// Returns the largest value of this counter on any face's link.
    fn on_a_link(&self, count: &str) -> u64 {
        let status = self.json(&["status", "--faces"]);
        let links = status["links"].as_array().unwrap();
        links
            .iter()
            .filter_map(|link| link["link"][count].as_u64())
            .max()
            .unwrap()
    }

    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            * 1024
    }

    /// Checks that others are served: fetches a file of some segments.
    fn serves_others(&self, what: &str) {
        let content = noise(300_000, 11);
        let name = format!("/others/{what}");
        let _serve = self.serve(&name, &content, &[]);
        let got = self.path("got");
        self.prints(&["ndn", "get", &name, "-o", got.to_str().unwrap()]);
        assert!(fs::read(got).unwrap() == content, "others are served");
    }
}

#[test]
fn a_program_that_never_reads_harms_nobody_else() {
    let router = Router::start();
    let _serve = router.serve("/large", &noise(4_000_000, 3), &["--size", "8000"]);
    let name = router.prints(&["ndn", "peek", "/large/32=metadata", "--prefix", "--payload"]);
    assert!(!name.is_empty());
    let before = router.memory();
    let mut silent = router.program();
    silent
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    // 80 MB of Data for a client that reads none, as long as the router accepts its Interests.
    let asked = (0..10_000).take_while(|number| {
        let packet = Interest {
            nonce: Some(u32::to_be_bytes(*number)),
            can_be_prefix: true,
            ..Interest::new("/large".parse::<Name>().unwrap())
        };
        silent.write_all(&packet.encode()).is_ok()
    });
    assert!(asked.count() > 5_000, "Interests were accepted");
    let answers = || router.counters()["out"]["data"].as_u64().unwrap();
    await_that("some are answered", || answers() > 5_000);
    router.serves_others("while-one-does-not-read");
    let grown = router.memory().saturating_sub(before);
    assert!(grown < SLACK, "{grown} bytes more");
}

#[test]
fn a_flood_of_interests_evicts_the_least_useful_and_is_counted() {
    let router = Router::configured("pit_entries = 1000\n", &[]);
    // This peer never answers.
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = format!("udp4://{}", sink.local_addr().unwrap());
    router.prints(&["route", "add", "/void", &uri]);
    let before = router.memory();
    let mut flooding = router.program();
    for number in 0..50_000u32 {
        flooding
            .write_all(&interest(&format!("/void/{number}"), number))
            .unwrap();
    }
    await_that("the flood is through", || {
        router.counters()["in"]["interests"].as_u64().unwrap() >= 50_000
    });
    let counters = router.counters();
    assert!(counters["pit"].as_u64().unwrap() <= 1000, "{counters}");
    assert!(router.drops("pit-evicted") >= 40_000, "{counters}");
    router.serves_others("among-interests");
    let grown = router.memory().saturating_sub(before);
    assert!(grown < SLACK, "{grown} bytes more");
}

#[test]
fn unsolicited_data_is_not_kept() {
    let router = Router::start();
    let before = router.memory();
    let mut program = router.program();
    let neighbour = router.neighbour();
    for number in 0..20_000 {
        program
            .write_all(&data(&format!("/unasked/{number}"), 4_000))
            .unwrap();
        let _ = neighbour.send(&data(&format!("/unasked/by-udp/{number}"), 1_000));
    }
    await_that("the flood is through", || {
        router.drops("unsolicited") >= 20_000
    });
    assert_eq!(router.counters()["cs"]["entries"], 0);
    let grown = router.memory().saturating_sub(before);
    assert!(grown < SLACK, "{grown} bytes more");
    let (_, errors) = router.fails(&["ndn", "peek", "/unasked/7", "--lifetime", "200"]);
    assert!(!errors.is_empty());
    router.serves_others("among-data");
}

#[test]
fn fragments_that_never_complete_are_forgotten() {
    let router = Router::start();
    let before = router.memory();
    let neighbour = router.neighbour();
    let piece = noise(1_300, 5);
    for number in 0..40_000u64 {
        let mut frame = Vec::new();
        let link = LinkFields {
            sequence: Some(number * 8),
            frag_index: Some(0),
            frag_count: Some(6),
            ..LinkFields::default()
        };
        lp::encode(&mut frame, &link, &LpHeader::default(), Some(&piece));
        let _ = neighbour.send(&frame);
    }
    await_that("they are counted", || {
        router.on_a_link("reassembly-full") >= 1_000
    });
    router.serves_others("among-fragments");
    let grown = router.memory().saturating_sub(before);
    assert!(
        grown < SLACK,
        "{grown} bytes more of {} sent",
        40_000 * 1_300
    );
}

#[test]
fn acknowledgements_of_frames_that_were_never_sent_change_nothing() {
    let router = Router::start();
    let neighbour = router.neighbour();
    neighbour
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let acks: Vec<u64> = (0..100)
        .map(|number| number * 0x0123_4567_89ab_cdef)
        .collect();
    let tx = |number| LinkFields {
        tx_sequence: Some(number),
        acks: Numbers::Listed(&acks),
        ..LinkFields::default()
    };
    for number in 0..2_000 {
        let mut frame = Vec::new();
        lp::encode(&mut frame, &tx(number), &LpHeader::default(), None);
        let _ = neighbour.send(&frame);
    }
    await_that("they are counted", || {
        router.on_a_link("false-acks") >= 1_000
    });
    let _serve = router.serve("/answered", b"still", &[]);
    // The same neighbour is still served.
    let mut frame = Vec::new();
    let mut question = Interest {
        nonce: Some([1; 4]),
        ..Interest::new("/answered".parse::<Name>().unwrap())
    };
    question.can_be_prefix = true;
    lp::encode(
        &mut frame,
        &tx(5_000),
        &LpHeader::default(),
        Some(&question.encode()),
    );
    neighbour.send(&frame).unwrap();
    let mut buffer = [0; 9_000];
    let answered = (0..200).any(|_| {
        let len = neighbour.recv(&mut buffer).unwrap();
        buffer[..len].windows(5).any(|window| window == b"still")
    });
    assert!(answered);
}

#[test]
fn malformed_input_is_counted_and_ends_its_stream() {
    let router = Router::with(&["--metrics", "127.0.0.1:0"]);
    let metrics = router.opened["metrics"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let neighbour = router.neighbour();
    for seed in 0..2_000 {
        let _ = neighbour.send(&noise(200, seed));
    }
    // Type 0 is invalid: the next block cannot be found.
    let mut program = router.program();
    program
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    program.write_all(&[0, 5, 1, 2, 3, 4, 5]).unwrap();
    assert_eq!(
        program.read(&mut [0; 16]).unwrap_or(0),
        0,
        "the stream has ended"
    );
    // A packet larger than the limit.
    let mut large = router.program();
    large
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    large.write_all(&[6, 254, 0, 1, 0, 0, 0]).unwrap();
    assert_eq!(
        large.read(&mut [0; 16]).unwrap_or(0),
        0,
        "the stream has ended"
    );
    let page = || {
        let output = std::process::Command::new("curl")
            .args(["-sS", &format!("http://{metrics}/metrics")])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    await_that("malformed input is counted", || {
        let sum = |line: &str| {
            line.rsplit(' ')
                .next()
                .and_then(|count| count.parse::<f64>().ok())
        };
        let lines = page();
        let malformed = lines
            .lines()
            .filter(|line| line.contains("malformed") && !line.starts_with('#'));
        malformed.filter_map(sum).sum::<f64>() >= 1_000.0
    });
    router.serves_others("among-noise");
}

#[test]
fn a_router_with_anchors_obeys_only_commands_signed_under_one() {
    let keys = tempfile::tempdir().unwrap();
    let key = |arguments: &[&str]| {
        let mut command = whimbrel();
        command
            .env("WHIMBREL_KEYCHAIN", keys.path().join("chain"))
            .args(arguments);
        let (code, out, errors) = finished(&mut command);
        assert_eq!(code, 0, "{arguments:?} {errors}");
        out
    };
    key(&["key", "gen", "/operator"]);
    key(&["key", "gen", "/stranger"]);
    let anchor = keys.path().join("operator.cert");
    fs::write(&anchor, key(&["key", "cert", "show", "/operator"])).unwrap();
    let settings = format!("commands = \"signed\"\nanchors = [{anchor:?}]\n");
    let router = Router::configured(&settings, &[]);
    let chain = keys.path().join("chain");
    let chain = chain.to_str().unwrap();
    let add = |who: &str| {
        let arguments = [
            "route",
            "add",
            "/by",
            "udp://127.0.0.1:9",
            "--signing",
            who,
            "--keychain",
            chain,
        ];
        finished(&mut router.command(&arguments))
    };
    for who in ["digest", "id:/stranger"] {
        let (code, _, errors) = add(who);
        assert_ne!(code, 0, "{who}");
        assert!(errors.contains("403"), "{who}: {errors}");
    }
    assert!(!router.prints(&["route", "list"]).contains("/by"));
    let (code, _, errors) = add("id:/operator");
    assert_eq!(code, 0, "{errors}");
    assert!(router.prints(&["route", "list"]).contains("/by"));
    // A program registers its name with the operator's key, too.
    let served = Running::start(
        router
            .command(&["ndn", "serve", "/mine", anchor.to_str().unwrap(), "--json"])
            .args(["--signing", "id:/operator", "--keychain", chain]),
    );
    served.await_json(|value| value["event"] == "registered");
}
