//! The tools of the NDN plane: real processes with a real router between them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

mod support;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::ndn::Router;
use support::{Running, finished, noise, whimbrel};

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
    let (code, errors) = router.fails(&["ndn", "get", "/silent", "--timeout", "200"]);
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
fn served_content_arrives_in_order_with_every_window_and_output() {
    let router = Router::start();
    let content = noise(3_000_001, 7);
    let _serve = router.serve("/big/file", &content, &[]);
    let target = router.path("got");
    for more in [
        &[][..],
        &["-p", "aimd", "--init-cwnd", "10"],
        &["-p", "fixed", "-s", "20"],
        &["--verify", "digest"],
        &["--transport", &router.tcp()],
        &["--transport", &router.udp()],
    ] {
        fs::write(&target, b"old").unwrap();
        let arguments = [
            &["ndn", "get", "/big/file", "-o", target.to_str().unwrap()],
            more,
        ]
        .concat();
        let done = router.json(&arguments);
        assert_eq!(
            (done["event"].as_str(), done["stats"]["bytes"].as_u64()),
            (Some("done"), Some(3_000_001))
        );
        assert!(fs::read(&target).unwrap() == content, "{more:?}");
    }
    // A link is followed; a pipe is written in place.
    let link = router.path("link");
    std::os::unix::fs::symlink(&target, &link).unwrap();
    fs::write(&target, b"old").unwrap();
    router.prints(&["ndn", "get", "/big/file", "-o", link.to_str().unwrap()]);
    assert!(link.is_symlink() && fs::read(&target).unwrap() == content);
    let pipe = router.path("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    router.prints(&["ndn", "get", "/big/file", "-o", pipe.to_str().unwrap()]);
    assert!(reader.join().unwrap() == content && !pipe.is_file());
    let (code, out, errors) = with_input(router.command(&["ndn", "get", "/big/file"]), b"");
    assert!(
        code == 0 && out == content && errors.contains("3000001 bytes, 376 segments"),
        "{code} {errors}"
    );
    let leftovers: Vec<_> = fs::read_dir(router.folder.path())
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .ends_with(".part")
        })
        .collect();
    assert!(leftovers.is_empty());
}

#[test]
fn get_writes_the_logs_of_ndnget() {
    let router = Router::start();
    let _serve = router.serve("/logged", &noise(400_000, 3), &[]);
    let (windows, times, got) = (router.path("cwnd"), router.path("rtt"), router.path("got"));
    let [window_log, rtt_log, got] = [&windows, &times, &got].map(|path| path.to_str().unwrap());
    router.prints(&[
        "ndn",
        "get",
        "/logged",
        "--log-cwnd",
        window_log,
        "--log-rtt",
        rtt_log,
        "-o",
        got,
    ]);
    let windows = fs::read_to_string(windows).unwrap();
    assert!(
        windows.starts_with("time\tcwndsize\n") && windows.lines().count() > 10,
        "{windows}"
    );
    let times = fs::read_to_string(times).unwrap();
    assert!(
        times.starts_with("segment\trtt\trttvar\tsrtt\trto\n"),
        "{times}"
    );
    assert!(
        times
            .lines()
            .skip(1)
            .all(|line| line.split('\t').count() == 5)
            && times.lines().count() > 10
    );
}

#[test]
fn content_is_found_by_version_by_prefix_and_without_discovery() {
    let router = Router::start();
    let (content, name) = (noise(50_000, 9), "/versions/v=42");
    let _serve = router.serve(name, &content, &["--size", "1000"]);
    for arguments in [
        &["ndn", "get", "/versions"][..],
        &["ndn", "get", "/versions/v=42"],
        &["ndn", "get", "/versions/v=42", "-D"],
        &["ndn", "get", "/versions", "--discovery", "prefix"],
    ] {
        let (code, out, errors) = with_input(router.command(arguments), b"");
        assert!(code == 0 && out == content, "{arguments:?} {code} {errors}");
        assert!(errors.contains("50 segments"), "{errors}");
    }
}

#[test]
fn standard_input_is_served_and_empty_content_is_content() {
    let router = Router::start();
    let mut command = router.command(&["ndn", "serve", "/from/stdin", "--json"]);
    command.stdin(Stdio::from(fs::File::open("/dev/null").unwrap()));
    let empty = Running::start(&mut command);
    empty.await_json(|value| value["event"] == "registered");
    let (code, out, errors) = with_input(router.command(&["ndn", "get", "/from/stdin"]), b"");
    assert!(code == 0 && out.is_empty(), "{code} {errors}");
    // Content from a pipe has no known length before it is read.
    let content = noise(20_000, 13);
    let mut command = router.command(&["ndn", "serve", "/from/pipe", "/dev/stdin", "--json"]);
    let (read, mut write) = std::io::pipe().unwrap();
    command.stdin(Stdio::from(read));
    let written = content.clone();
    std::thread::spawn(move || write.write_all(&written).unwrap());
    let piped = Running::start(&mut command);
    piped.await_json(|value| value["event"] == "registered");
    let (code, out, errors) = with_input(router.command(&["ndn", "get", "/from/pipe"]), b"");
    assert!(code == 0 && out == content, "{code} {errors}");
}

#[test]
fn a_get_that_fails_says_why_and_leaves_the_old_file_alone() {
    let router = Router::start();
    let target = router.path("kept");
    fs::write(&target, b"old").unwrap();
    let path = target.to_str().unwrap();
    let (code, errors) = router.fails(&["ndn", "get", "/nobody", "-o", path]);
    assert!(
        code == 4 && errors.contains("check that it is served"),
        "{code} {errors}"
    );
    let _serve = router.serve("/digest", b"content", &["--signing", "hmac:00112233"]);
    let (code, errors) = router.fails(&[
        "ndn", "get", "/digest", "-o", path, "--verify", "digest", "-r", "0",
    ]);
    assert!(code == 7 || code == 1, "{code} {errors}");
    let (code, errors) = router.fails(&[
        "ndn",
        "get",
        "/digest",
        "-o",
        path,
        "--verify",
        "hmac:0011223344",
        "-r",
        "0",
    ]);
    assert!(code == 7 || code == 1, "{code} {errors}");
    assert_eq!(fs::read(&target).unwrap(), b"old");
    router.prints(&[
        "ndn",
        "get",
        "/digest",
        "-o",
        path,
        "--verify",
        "hmac:00112233",
    ]);
    assert_eq!(fs::read(&target).unwrap(), b"content");
    let (code, _) = router.fails(&["ndn", "get", "/digest", "-o", "/nonexistent/folder/file"]);
    assert_eq!(code, 6);
}

#[test]
fn content_signed_by_a_key_is_trusted_by_its_anchor_only() {
    let router = Router::start();
    let key = router.prints(&["key", "gen", "/site"]);
    assert!(key.starts_with("/site/KEY/"), "{key}");
    let anchor = router.path("site.cert");
    fs::write(&anchor, router.prints(&["key", "cert", "show", "/site"])).unwrap();
    // The first identity certifies a second one.
    router.prints(&["key", "gen", "/site/alice", "--type", "ed25519"]);
    let (request, issued) = (router.path("alice.req"), router.path("alice.cert"));
    let (request, issued) = (request.to_str().unwrap(), issued.to_str().unwrap());
    router.prints(&["key", "sign-req", "/site/alice", "-o", request]);
    router.prints(&[
        "key",
        "cert",
        "issue",
        request,
        "--by",
        "/site",
        "-o",
        issued,
        "--info",
        "fullname=Alice",
    ]);
    router.prints(&["key", "cert", "install", issued, "--default"]);
    let text = router.prints(&["key", "cert", "show", "--text", "--file", issued]);
    assert!(
        text.contains("identity: /site/alice") && text.contains("fullname: Alice"),
        "{text}"
    );
    let anchor = anchor.to_str().unwrap();
    for (name, by) in [
        ("/site/own", "id:/site"),
        ("/site/alice/notes", "id:/site/alice"),
    ] {
        let _serve = router.serve(name, b"believe me", &["--signing", by]);
        assert_eq!(
            router.prints(&["ndn", "get", name, "--anchor", anchor]),
            "believe me",
            "{name}"
        );
    }
    let _serve = router.serve("/elsewhere", b"do not", &["--signing", "id:/site"]);
    let (code, errors) = router.fails(&["ndn", "get", "/elsewhere", "--anchor", anchor]);
    assert!(
        code == 7 && errors.contains("may not sign"),
        "{code} {errors}"
    );
    let _digest = router.serve("/site/digest", b"do not", &["--signing", "digest"]);
    let (code, errors) = router.fails(&["ndn", "get", "/site/digest", "--anchor", anchor]);
    assert!(code == 7, "{code} {errors}");
}

#[test]
fn faces_are_created_listed_changed_and_destroyed() {
    let router = Router::start();
    let uri = "udp4://127.0.0.1:9";
    let made = router.prints(&[
        "face",
        "create",
        "remote",
        "udp://127.0.0.1:9",
        "persistency",
        "permanent",
    ]);
    assert!(made.starts_with("face-created id="), "{made}");
    assert!(
        made.contains(&format!("remote={uri}")) && made.contains("persistency=permanent"),
        "{made}"
    );
    let list = router.prints(&["face", "list", "remote", "udp://127.0.0.1:9"]);
    assert!(
        list.contains(uri) && list.contains("permanent point-to-point"),
        "{list}"
    );
    assert!(
        router
            .prints(&["face", "create", uri])
            .starts_with("face-exists")
    );
    let updated = router.json(&["face", "update", uri, "reliability", "on", "--mtu", "1200"]);
    assert_eq!(updated["event"], "face-updated");
    let shown = router.json(&["face", "show", uri]);
    assert!(
        shown["flags"]
            .as_array()
            .unwrap()
            .contains(&"lp-reliability".into()),
        "{shown}"
    );
    assert_eq!(shown["mtu"], 1200, "{shown}");
    let again = router.prints(&["face", "create", uri, "--reliability", "off"]);
    assert!(
        again.starts_with("face-updated") && again.contains("reliability=off"),
        "{again}"
    );
    let all = router.json(&["face", "list"]);
    assert!(
        all.as_array()
            .unwrap()
            .iter()
            .any(|face| face["remote"] == uri)
    );
    assert!(
        router
            .prints(&["face", "destroy", uri])
            .starts_with("face-destroyed id=")
    );
    assert_eq!(router.fails(&["face", "show", uri]).0, 3);
}

#[test]
fn routes_to_a_face_uri_make_the_face() {
    let router = Router::start();
    let made = router.prints(&[
        "route",
        "add",
        "/far",
        "udp://127.0.0.1:9",
        "cost",
        "7",
        "capture",
    ]);
    assert!(
        made.starts_with("route-add-accepted prefix=/far nexthop="),
        "{made}"
    );
    let shown = router.prints(&["route", "show", "prefix", "/far"]);
    assert!(
        shown.contains("origin=static cost=7 flags=child-inherit|capture expires=never"),
        "{shown}"
    );
    router.prints(&[
        "route",
        "add",
        "--prefix",
        "/far",
        "--nexthop",
        "udp://127.0.0.1:9",
        "--cost",
        "8",
        "--no-inherit",
    ]);
    let routes = router.json(&["route", "list", "origin", "static"]);
    assert_eq!(routes[0]["cost"], 8, "{routes}");
    assert_eq!(routes[0]["flags"], Value::Array(vec![]), "{routes}");
    router.prints(&["route", "remove", "/far", "udp://127.0.0.1:9"]);
    assert_eq!(router.fails(&["route", "show", "/far"]).0, 6);
}

#[test]
fn a_route_joins_two_routers_and_content_crosses_them() {
    let producer = Router::start();
    let consumer = Router::start();
    let content = noise(1_000_000, 5);
    let _serve = producer.serve("/across", &content, &[]);
    consumer.prints(&["route", "add", "/across", &producer.udp()]);
    let (code, out, errors) = with_input(consumer.command(&["ndn", "get", "/across"]), b"");
    assert!(code == 0 && out == content, "{code} {errors}");
}

#[test]
fn strategies_are_set_shown_and_unset() {
    let router = Router::start();
    let set = router.prints(&["strategy", "set", "/video", "multicast"]);
    assert!(
        set.starts_with("strategy-set prefix=/video strategy=/localhost/nfd/strategy/multicast"),
        "{set}"
    );
    let shown = router.prints(&["strategy", "show", "/video/1"]);
    assert!(
        shown.starts_with("prefix=/video strategy=/localhost/nfd/strategy/multicast"),
        "{shown}"
    );
    let list = router.json(&["strategy", "list"]);
    assert_eq!(list.as_array().unwrap().len(), 2, "{list}");
    assert!(
        router.json(&["strategy", "list", "--available"])["available"]
            .as_array()
            .unwrap()
            .len()
            > 2
    );
    assert_eq!(router.fails(&["strategy", "set", "/video", "no-such"]).0, 7);
    assert_eq!(router.fails(&["strategy", "unset", "/"]).0, 2);
    router.prints(&["strategy", "unset", "/video"]);
    assert!(
        router
            .prints(&["strategy", "show", "/video/1"])
            .starts_with("prefix=/ ")
    );
}

#[test]
fn the_content_store_is_shown_configured_and_emptied() {
    let router = Router::start();
    let content = noise(4_000_000, 11);
    let serve = router.serve("/stored", &content, &["--freshness", "1 h"]);
    let got = |arguments: &[&str]| with_input(router.command(arguments), b"");
    assert_eq!(got(&["ndn", "get", "/stored"]).0, 0);
    let info = router.json(&["cs", "info"]);
    assert!(info["entries"].as_u64().unwrap() >= 500, "{info}");
    assert!(router.prints(&["cs", "info"]).contains("admit=on"));
    let erased = router.json(&["cs", "erase", "/stored", "count", "5"]);
    assert_eq!(erased["count"], 5);
    let erased = router.json(&["cs", "erase", "/stored"]);
    assert!(erased["count"].as_u64().unwrap() >= 495, "{erased}");
    assert!(
        router
            .prints(&["cs", "config", "capacity", "10", "--serve", "off"])
            .contains("capacity=10 admit=on serve=off")
    );
    drop(serve);
}

#[test]
fn status_describes_the_forwarder_and_its_faces() {
    let router = Router::start();
    let text = router.prints(&["status"]);
    assert!(
        text.contains("version: ") && text.contains("up for: 0 d 00:0"),
        "{text}"
    );
    let status = router.json(&["status", "--faces"]);
    assert!(
        status["general"]["version"]
            .as_str()
            .unwrap()
            .to_lowercase()
            .contains("whimbrel"),
        "{status}"
    );
    assert!(status["counters"]["drops"].is_object(), "{status}");
    assert!(
        !status["faces"].as_array().unwrap().is_empty() && status["links"].is_array(),
        "{status}"
    );
}

#[test]
fn management_has_the_exit_codes_of_nfdc() {
    let router = Router::start();
    for (code, arguments) in [
        (2, &["face", "create"][..]),
        (2, &["face", "create", "nonsense"]),
        (
            2,
            &[
                "face",
                "create",
                "udp://127.0.0.1:9",
                "persistency",
                "sometimes",
            ],
        ),
        (
            2,
            &[
                "face",
                "create",
                "udp://127.0.0.1:9",
                "colour",
                "red",
                "and",
                "more",
            ],
        ),
        (2, &["face", "update", "300"]),
        (3, &["face", "show", "65000"]),
        (3, &["face", "destroy", "udp://127.0.0.1:9"]),
        (3, &["face", "update", "65000", "mtu", "1400"]),
        (4, &["face", "create", "udp://name.invalid"]),
        (4, &["route", "add", "/", "udp://name.invalid"]),
        (3, &["route", "add", "/", "65000"]),
        (3, &["route", "remove", "/", "65000"]),
        (2, &["route", "add", "no-slash", "260"]),
        (2, &["route", "add", "/a", "260", "cost", "much"]),
        (6, &["route", "show", "/nothing/here"]),
        (6, &["route", "list", "origin", "77"]),
        (2, &["cs", "config", "admit", "perhaps"]),
    ] {
        let (found, errors) = router.fails(arguments);
        assert_eq!(found, code, "{arguments:?}: {errors}");
        assert!(
            errors.contains("whimbrel: ") || errors.contains("error: "),
            "{errors}"
        );
    }
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
fn keys_survive_export_and_import_in_a_safe_bag() {
    let router = Router::start();
    let passphrase = router.path("passphrase");
    fs::write(&passphrase, "correct horse\n").unwrap();
    let wrong = router.path("wrong");
    fs::write(&wrong, "battery staple\n").unwrap();
    let (passphrase, wrong) = (passphrase.to_str().unwrap(), wrong.to_str().unwrap());
    for typ in ["ecdsa", "rsa", "ed25519"] {
        let identity = format!("/journey/{typ}");
        let key = router.json(&["key", "gen", &identity, "--type", typ])["key"]
            .as_str()
            .unwrap()
            .to_owned();
        let bag = router.path(&format!("{typ}.safebag"));
        let bag = bag.to_str().unwrap();
        router.prints(&[
            "key",
            "export",
            &identity,
            "-o",
            bag,
            "--passphrase-file",
            passphrase,
        ]);
        let elsewhere = router.path(&format!("{typ}-elsewhere"));
        let elsewhere = elsewhere.to_str().unwrap();
        let import = |phrase| {
            [
                "key",
                "import",
                bag,
                "--passphrase-file",
                phrase,
                "--keychain",
                elsewhere,
            ]
        };
        let (code, errors) = router.fails(&import(wrong));
        assert!(
            code == 2 && errors.contains("passphrase"),
            "{code} {errors}"
        );
        assert_eq!(router.prints(&import(passphrase)).trim(), key);
        let there = router.json(&["key", "show", &identity, "--keychain", elsewhere]);
        assert_eq!(there, router.json(&["key", "show", &identity]));
    }
    let listed = router.prints(&["key", "list"]);
    assert!(
        listed.contains("* /journey/ecdsa\n  * /journey/ecdsa/KEY/"),
        "{listed}"
    );
    assert!(listed.contains("  /journey/rsa\n"), "{listed}");
    router.prints(&["key", "default", "/journey/rsa"]);
    assert!(router.prints(&["key", "list"]).contains("* /journey/rsa\n"));
    router.prints(&["key", "delete", "/journey/rsa"]);
    assert!(!router.prints(&["key", "list"]).contains("/journey/rsa"));
    assert_eq!(router.fails(&["key", "delete", "/journey/rsa"]).0, 2);
}

#[test]
fn generated_traffic_is_answered_by_rules() {
    let router = Router::start();
    let (server, client) = (router.path("server.conf"), router.path("client.conf"));
    fs::write(
        &server,
        "Name=/traffic/A\nContent=hello\n\nName=/traffic/B\nContentBytes=100\nSigningInfo=digest\n",
    )
    .unwrap();
    fs::write(
        &client,
        "TrafficPercentage=60\nName=/traffic/A\nNameAppendSequenceNumber=1\nExpectedContent=hello\n#\n\
         TrafficPercentage=40\nName=/traffic/B\nNameAppendBytes=4\n",
    )
    .unwrap();
    let server = router.producer(&["ndn", "traffic", "server", server.to_str().unwrap()]);
    server.await_json(|value| value["event"] == "registered");
    let arguments = [
        "ndn",
        "traffic",
        "client",
        client.to_str().unwrap(),
        "-c",
        "50",
        "-i",
        "1",
        "--json",
    ];
    let out = router.prints(&arguments);
    let summaries: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["event"] == "summary")
        .collect();
    let sum = |key: &str| {
        summaries
            .iter()
            .map(|line| line[key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!(
        (
            summaries.len(),
            sum("sent"),
            sum("received"),
            sum("inconsistent")
        ),
        (2, 50, 50, 0),
        "{out}"
    );
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
