//! `whimbrel tcp-proxy` with the kernel's TCP: curl, a network device, a proxy, two Whimbrel routers
//! with an emulated link between them, a proxy, a network device, a web server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::process::Command;

use crate::support::sites::{CURL, SERVER, Sites};
use crate::support::{PATIENCE, await_that, finished, whimbrel};
use serde_json::Value;
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

/// Both ends keep their connection while a proxy and its device are away: TCP goes on with the next one,
/// which finds the connection in its middle.
#[test]
fn a_download_goes_on_after_each_proxy_was_killed() {
    if !lab_available() {
        return;
    }
    for protocol in ["unreliable", "reliable", "basic"] {
        let mut sites = Sites::new(0.0, "", &["--protocol", protocol]);
        let (file, got) = (sites.path("file"), sites.path("got"));
        let expected = content(10_000_000);
        fs::write(&file, &expected).unwrap();
        let _server = sites.serve(&file);
        let mut curl = Command::new("curl");
        curl.args(CURL).args(["--no-buffer", "--output"]).arg(&got);
        curl.arg(format!("http://{SERVER}/file"));
        let mut curl = sites.topology.host("a").unwrap().spawn(curl).unwrap();
        for (which, bytes) in [(1, 1_000_000), (0, 4_000_000)] {
            let has = || fs::metadata(&got).map_or(0, |it| it.len());
            await_that("the download goes on", || has() > bytes);
            assert!(
                has() < expected.len() as u64,
                "{protocol}: too early for the test"
            );
            sites.replace_proxy(which);
        }
        let ended = curl.wait_for(PATIENCE).unwrap();
        assert!(
            ended.is_some_and(|it| it.success()),
            "{protocol}: {ended:?}"
        );
        assert!(
            fs::read(&got).unwrap() == expected,
            "{protocol}: the bytes differ"
        );
    }
}

#[test]
fn what_is_not_allowed_is_refused_at_once() {
    if !lab_available() {
        return;
    }
    let sites = Sites::new(0.0, "", &[]);
    let host = sites.topology.host("a").unwrap();
    // Port 81 is not opened by the reverse proxy. Linux ends a connection on such an error (RFC 5461 §4),
    // long before curl would.
    let curl = [
        "--silent",
        "--noproxy",
        "*",
        "--max-time",
        "60",
        "http://10.202.0.1:81/",
    ];
    let refused = host.run("curl", &curl).unwrap_err().to_string();
    // 7: no connection; 28 would be curl's own time limit.
    assert!(refused.contains("exit status: 7"), "{refused}");
    assert!(sites.status("b")["counters"]["denied"].as_u64() > Some(0));
    let said = fs::read_to_string(sites.path("a.forward.log")).unwrap();
    assert!(
        said.contains("/b/tcp refuses connections to 10.202.0.1:81"),
        "{said}"
    );
    let said = fs::read_to_string(sites.path("b.reverse.log")).unwrap();
    assert!(said.contains("refused: /a/tcp wants"), "{said}");
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

/// The network has no way to the proxy of this address: the forwarder's Nack ends the attempt.
#[test]
fn where_no_route_leads_a_program_is_told_at_once() {
    if !lab_available() {
        return;
    }
    let sites = Sites::new(0.0, "", &["--route", "10.205.0.0/16=/nowhere/tcp"]);
    let host = sites.topology.host("a").unwrap();
    let wanted = ["--max-time", "60", "http://10.205.0.1/"];
    let error = host
        .run("curl", &[&CURL[..], &wanted].concat())
        .unwrap_err()
        .to_string();
    assert!(error.contains("exit status: 7"), "{error}");
    assert!(sites.status("a")["counters"]["icmp_errors"].as_u64() > Some(0));
}

/// The path between the routers takes frames smaller than a segment.
#[test]
fn a_path_narrower_than_a_segment_carries_a_file() {
    if !lab_available() {
        return;
    }
    let sites = Sites::narrow(600);
    let file = sites.path("file");
    fs::write(&file, content(500_000)).unwrap();
    let _server = sites.serve(&file);
    assert!(sites.curl() == content(500_000), "the bytes differ");
}

/// The same by the kernel's TCP over IPv6, between proxies that talk over IPv4.
#[test]
fn a_connection_over_ipv6_is_carried_both_ways() {
    const SERVER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x202, 0, 0, 0, 0, 0, 1);
    if !lab_available() {
        return;
    }
    let forward = [
        "--address",
        "fd00:201::1/128",
        "--route",
        "fd00:202::/32=/b/tcp",
    ];
    let reverse = [
        "--address",
        "fd00:202::1/128",
        "--route",
        "fd00:201::/32=/a/tcp",
    ];
    let reverse = [&reverse[..], &["--allow", "[fd00:202::1]:80"]].concat();
    let sites = Sites::each([&forward, &reverse]);
    let [a, b] = ["a", "b"].map(|name| sites.topology.host(name).unwrap());
    let listener = b
        .enter(|| TcpListener::bind((SERVER, 80)))
        .unwrap()
        .unwrap();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut sender = stream.try_clone().unwrap();
        std::io::copy(&mut stream, &mut sender).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut stream = a
        .enter(|| TcpStream::connect((SERVER, 80)))
        .unwrap()
        .unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut sender = stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || {
        sender.write_all(&content(300_000)).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    sent.join().unwrap();
    echo.join().unwrap();
    assert!(got == content(300_000), "the bytes differ");
}

#[test]
fn status_of_all_shows_the_proxies_too() {
    if !lab_available() {
        return;
    }
    let sites = Sites::new(0.0, "", &[]);
    let mut command = whimbrel();
    command
        .args(["status", "--json", "--folder"])
        .arg(sites.path(""));
    let (code, out, errors) = finished(&mut command);
    assert_eq!(code, 0, "{errors}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let nodes = report["nodes"].as_array().unwrap();
    for name in ["tcp-proxy-a", "tcp-proxy-b"] {
        let node = nodes.iter().find(|node| node["name"] == name).unwrap();
        assert_eq!(node["fault"], Value::Null, "{node}");
        assert_eq!(node["status"]["registered"], true, "{node}");
    }
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

#[test]
fn nftables_redirect_tcp_alone_and_go_with_the_proxy() {
    if !lab_available() {
        return;
    }
    let print = [
        "tcp-proxy",
        "forward",
        "--prefix",
        "/a/tcp",
        "--protection",
        "none",
        "--address",
        "10.201.0.1",
        "--route",
        "10.202.0.0/16=/b/tcp",
        "--nft=print",
    ];
    let (code, rules, errors) = finished(whimbrel().args(print));
    assert_eq!(code, 0, "{errors}");
    let (_, mark) = rules
        .split_once("ip daddr { 10.202.0.0/16 } meta mark set ")
        .expect(&rules);
    let mark: u32 = mark.split_whitespace().next().unwrap().parse().unwrap();
    let sites = Sites::new(0.0, "", &["--nft"]);
    let [a, b] = ["a", "b"].map(|name| sites.topology.host(name).unwrap());
    // The server's address must be reachable for nothing but TCP: a route that leads nowhere.
    for (host, net) in [(a, "10.202.0.0/16"), (b, "10.201.0.0/16")] {
        host.run("ip", &["route", "add", net, "dev", "lo"]).unwrap();
    }
    let file = sites.path("file");
    fs::write(&file, content(100_000)).unwrap();
    let _server = sites.serve(&file);
    assert!(
        sites.curl_from("10.201.0.1") == content(100_000),
        "the bytes differ"
    );
    let listed = |host: &whimbrel_lab::Namespace| host.run("nft", &["list", "tables"]).unwrap();
    assert!(listed(a).contains("whimbrel_tcpicn0"));
    let marked = |host: &whimbrel_lab::Namespace| {
        host.run("ip", &["rule", "list", "fwmark", &mark.to_string()])
            .unwrap()
    };
    assert!(marked(a).contains("lookup"));
    let sites = sites.stop_proxies();
    let a = sites.topology.host("a").unwrap();
    assert!(!listed(a).contains("whimbrel"), "{}", listed(a));
    assert_eq!(marked(a), "");
}

#[test]
fn prometheus_reads_a_proxy() {
    if !lab_available() {
        return;
    }
    let sites = fetched(
        0.0,
        100_000,
        &["--protocol", "unreliable", "--metrics", "127.0.0.1:9107"],
    );
    let host = sites.topology.host("a").unwrap();
    let page = host
        .run(
            "curl",
            &[
                "--silent",
                "--noproxy",
                "*",
                "http://127.0.0.1:9107/metrics",
            ],
        )
        .unwrap();
    for line in [
        "tcp_proxy_registered{} 1.0",
        "tcp_proxy_connections_seen_total{} 1",
        "tcp_proxy_drops_total{reason=\"forged\"} 0",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
}
