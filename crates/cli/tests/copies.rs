//! Copies in routers: a cache behind a thin link, and what a producer delegates, with real daemons.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::origin::{Origin, answer};
use crate::support::web::Web;
use crate::support::{Network, Running, await_that, finished, noise, whimbrel};
use serde_json::Value;

/// Returns what `router status` says.
fn router_status(network: &Network, index: usize) -> Value {
    let mut status = whimbrel();
    status.args(["router", "status", "--json", "--socket"]);
    let (code, out, err) = finished(status.arg(network.router_socket(index)));
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

/// Returns the octets that router 0 has received from router 1.
fn octets_across(network: &Network) -> u64 {
    octets_of_link(network, "bytes_received")
}

/// Returns a counter of router 0's link to router 1.
fn octets_of_link(network: &Network, counter: &str) -> u64 {
    let status = router_status(network, 0);
    let links = status["links"].as_array().unwrap();
    let next = links.iter().find(|it| it["label"] == "next").unwrap();
    next["hop"][counter].as_u64().unwrap()
}

/// Starts a further host at router 0; returns it and its socket.
fn another_host(network: &Network, name: &str) -> (Running, std::path::PathBuf) {
    another_host_at(network, 0, name)
}

fn another_host_at(network: &Network, at: usize, name: &str) -> (Running, std::path::PathBuf) {
    let router = format!("127.0.0.1:{}", network.ports[1 + at]);
    let socket = network.path(&format!("{name}.sock"));
    let mut host = whimbrel();
    host.args(["host", "run", "--json", "--router", &router, "--key"]);
    host.arg(network.path(&format!("{name}.pem")));
    let host = Running::start(host.arg("--socket").arg(&socket));
    host.await_json(|line| line.get("guid").is_some());
    (host, socket)
}

fn get(socket: &Path, name: &str, output: &Path) -> Command {
    let mut get = whimbrel();
    get.args(["get", name, "--json", "--timeout", "100 s", "--socket"]);
    get.arg(socket).arg("-o").arg(output);
    get
}

fn same(path: &Path, bytes: &[u8]) {
    assert!(fs::read(path).unwrap() == bytes, "{}", path.display());
}

#[test]
fn hosts_behind_a_thin_link_fetch_a_file_over_it_once() {
    let network = Network::storing("16 Mbit/s", "cache = \"64 MiB\"");
    let bytes = noise(3 << 20, 5);
    let file = network.path("film.mkv");
    fs::write(&file, &bytes).unwrap();
    let (_serve, names) = network.serve(&[&file]);
    let name = &names[0];
    let others = [
        another_host(&network, "second"),
        another_host(&network, "third"),
    ];
    let before = octets_across(&network);
    // Three at the same time, and one of them later again.
    let outputs = ["one", "two", "three", "four"].map(|it| {
        fs::create_dir(network.path(it)).unwrap();
        network.path(it).join("film.mkv")
    });
    let first = Running::start(&mut network.get(name, &outputs[0]));
    first.await_json(|line| line["progress"]["bytes"].as_u64() > Some(0));
    let mut gets = vec![first];
    for ((_, socket), output) in others.iter().zip(&outputs[1..]) {
        gets.push(Running::start(&mut get(socket, name, output)));
    }
    for get in &mut gets {
        assert_eq!(get.exit_code(), 0);
    }
    let mut again = Running::start(&mut get(&others[0].1, name, &outputs[3]));
    assert_eq!(again.exit_code(), 0);
    outputs.iter().for_each(|output| same(output, &bytes));
    let crossed = octets_across(&network) - before;
    let length = bytes.len() as u64;
    assert!(crossed < length * 13 / 10, "{crossed} octets for {length}");
    let status = router_status(&network, 0);
    let counters = &status["counters"];
    assert!(counters["cache_hits"].as_u64() > Some(0), "{status}");
    assert!(
        status["cached_bytes"][0].as_u64() > Some(length),
        "{status}"
    );
    // The bytes of copies are those of two clients and of the one that asked again.
    let sent = counters["copy_bytes_sent"].as_u64().unwrap();
    assert!(sent > length * 2 && sent < length * 33 / 10, "{sent}");
}

#[test]
fn client_sides_of_the_web_behind_a_thin_link_fetch_a_body_over_it_once() {
    let network = Network::storing("16 Mbit/s", "cache = \"64 MiB\"");
    let mut web = Web::start(&network);
    let body = noise(3 << 20, 7);
    let sent = body.clone();
    let origin = Origin::start(move |_, stream| {
        answer(stream, "200 OK", "Cache-Control: max-age=1000\r\n", &sent);
    });
    let url = origin.url("/film.mkv");
    let length = body.len() as u64;
    let mut before = octets_of_link(&network, "bytes_sent");
    assert!(web.fetch(&[&url]) == body);
    let crossed = octets_of_link(&network, "bytes_sent") - before;
    assert!(crossed >= length && crossed < length * 13 / 10, "{crossed}");
    let (_host, socket) = another_host_at(&network, 1, "second");
    web.use_another(&socket.display().to_string());
    before = octets_of_link(&network, "bytes_sent");
    assert!(web.fetch(&[&url]) == body);
    // Both asked the server of the web; the body crossed once.
    assert_eq!(origin.asked().len(), 2);
    let crossed = octets_of_link(&network, "bytes_sent") - before;
    assert!(crossed < length / 20, "{crossed} octets for {length}");
}

/// The router behind the access router dies with all that it stored, and the producer is off.
#[test]
fn what_a_producer_has_delegated_arrives_after_it_is_killed() {
    let mut network = Network::storing("200 Mbit/s", "");
    let bytes = noise(2 << 20, 6);
    let file = network.path("video.mkv");
    fs::write(&file, &bytes).unwrap();
    fs::create_dir(network.path("in")).unwrap();
    let inbox = |network: &Network| {
        let router = format!("127.0.0.1:{}", network.ports[2]);
        let mut inbox = whimbrel();
        inbox.args([
            "inbox", "--json", "--from", "anyone", "--count", "1", "--router", &router,
        ]);
        inbox.arg("-o").arg(network.path("in"));
        inbox.arg("--key").arg(network.path("receiver.pem"));
        inbox
    };
    // The network knows where the receiver was last.
    let mut first = Running::start(&mut inbox(&network));
    let ready = first.await_json(|line| line["event"] == "ready");
    let receiver = ready["name"].as_str().unwrap().to_owned();
    await_that("the receiver is attached", || {
        router_status(&network, 1)["attachments"].as_u64() >= Some(2)
    });
    first.kill();
    let mut push = whimbrel();
    push.args([
        "push",
        "--json",
        "--delegate",
        "--wait",
        "--to",
        &receiver,
        "--socket",
    ]);
    push.arg(network.host_socket(0)).arg(&file);
    let mut push = Running::start(&mut push);
    push.await_json(|line| line["progress"]["state"] == "kept");
    let keeper = network.guid_of("router-0");
    let status = network.host_status(0);
    let kept = &status["delegated"][0];
    assert_eq!(kept["kept_by"], keeper.as_str(), "{status}");
    assert_eq!(kept["kept"], kept["chunks"]);
    await_that("the chunks wait for the receiver", || {
        router_status(&network, 1)["stored_bytes"][0].as_u64() > Some(2 << 20)
    });
    push.kill();
    network.hosts[0].take().unwrap().kill();
    network.routers[1].take().unwrap().kill();
    network.start_router(1);
    let mut second = Running::start(&mut inbox(&network));
    second.await_json(|line| line["event"] == "received");
    assert_eq!(second.exit_code(), 0);
    same(&network.path("in").join("video.mkv"), &bytes);
    // The receiver's confirmation frees the copies.
    await_that("the copies are freed", || {
        router_status(&network, 0)["kept_bytes"].as_u64() == Some(0)
    });
}

#[test]
fn a_router_that_keeps_a_content_serves_it_when_its_producer_is_off() {
    let mut network = Network::storing("200 Mbit/s", "");
    let bytes = noise(2 << 20, 7);
    let file = network.path("map.tif");
    fs::write(&file, &bytes).unwrap();
    let mut serve = whimbrel();
    serve.args(["serve", "--json", "--no-cache", "--delegate", "--socket"]);
    let mut serve = Running::start(serve.arg(network.host_socket(1)).arg(&file));
    let named = serve.await_json(|line| line["event"] == "name");
    let name = named["shelved"]["name"].as_str().unwrap().to_owned();
    serve.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
    let mut first = Running::start(&mut network.get(&name, &network.path("one")));
    assert_eq!(first.exit_code(), 0);
    same(&network.path("one"), &bytes);
    let status = router_status(&network, 1);
    assert_eq!(status["counters"]["kept_announced"], 1, "{status}");
    serve.kill();
    network.hosts[1].take().unwrap().kill();
    let (_host, socket) = another_host(&network, "second");
    let mut second = Running::start(&mut get(&socket, &name, &network.path("two")));
    assert_eq!(second.exit_code(), 0);
    same(&network.path("two"), &bytes);
}
