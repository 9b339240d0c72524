//! `whimbrel tcp-proxy` with the kernel's TCP: curl, a network device, a proxy, two Whimbrel routers
//! with an emulated link between them, a proxy, a network device, a web server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

mod support;

use std::fs;

use support::sites::Sites;
use support::{finished, whimbrel};
use whimbrel_lab::lab_available;

fn content(length: u32) -> Vec<u8> {
    (0..length)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

fn fetched(loss: f64, length: u32, proxies: &[&str]) -> Sites {
    let sites = Sites::new(loss, "", proxies);
    let file = sites.path("file");
    fs::write(&file, content(length)).unwrap();
    let _server = sites.serve(&file);
    assert!(sites.curl() == content(length), "the bytes differ");
    let status = sites.status("a");
    let counters = &status["counters"];
    for fault in [
        "forged",
        "bad_messages",
        "wrong_checksum",
        "malformed",
        "untimely",
    ] {
        assert_eq!(counters[fault], 0, "{counters}");
    }
    assert_eq!(
        status["connections"][0]["protocol"],
        proxies.get(1).copied().unwrap_or("unreliable")
    );
    sites
}

#[test]
fn curl_fetches_a_file_through_two_proxies() {
    if !lab_available() {
        return;
    }
    fetched(0.0, 4_000_000, &[]);
}

#[test]
fn curl_fetches_a_file_over_a_lossy_link_with_every_protocol() {
    if !lab_available() {
        return;
    }
    for protocol in ["unreliable", "reliable", "basic"] {
        fetched(0.01, 500_000, &["--protocol", protocol]);
    }
}

#[test]
fn what_is_not_allowed_is_refused_at_once() {
    if !lab_available() {
        return;
    }
    let sites = Sites::new(0.0, "", &[]);
    let host = sites.topology.host("a").unwrap();
    // Port 81 is not opened by the reverse proxy: its peer hears nothing, and counts it.
    let curl = [
        "--silent",
        "--noproxy",
        "*",
        "--max-time",
        "2",
        "http://10.202.0.1:81/",
    ];
    assert!(host.run("curl", &curl).is_err());
    assert!(sites.status("b")["counters"]["denied"].as_u64() > Some(0));
    // An address of the route that is no source: the kernel hears at once.
    host.run("ip", &["address", "add", "10.203.0.1/32", "dev", "lo"])
        .unwrap();
    let curl = [
        "--silent",
        "--noproxy",
        "*",
        "--interface",
        "10.203.0.1",
        "--max-time",
        "60",
        "http://10.202.0.1/",
    ];
    assert!(host.run("curl", &curl).is_err());
    assert!(sites.status("a")["counters"]["icmp_errors"].as_u64() > Some(0));
}

#[test]
fn without_a_key_or_a_forwarder_it_says_what_to_do() {
    let base = [
        "tcp-proxy",
        "forward",
        "--prefix",
        "/a/tcp",
        "--route",
        "10.2.0.0/16=/b/tcp",
    ];
    let (code, _, errors) = finished(whimbrel().args(base));
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("whimbrel tcp-proxy key"), "{errors}");
    let (code, _, errors) =
        finished(whimbrel().args(["tcp-proxy", "status", "--socket", "/nonexistent"]));
    assert_eq!(code, 5, "{errors}");
    assert!(errors.contains("whimbrel tcp-proxy forward"), "{errors}");
}
