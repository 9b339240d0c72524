//! Commands without a network: configuration, keys, refusals and their exit codes, help.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use crate::support::{self, Running, finished, name_of, whimbrel};

#[test]
fn the_help_begins_with_a_first_transfer_and_says_when_not_to_use_it() {
    let (code, out, _) = finished(whimbrel().arg("--help"));
    assert_eq!(code, 0);
    let at = |text: &str| {
        out.find(text)
            .unwrap_or_else(|| panic!("no {text} in {out}"))
    };
    let order = [
        "Named-data transport",
        "whimbrel send FILE",
        "whimbrel receive TICKET",
        "When not to use it",
        "Usage:",
        "\n  send",
        "\n  receive",
        "\n  router",
    ];
    assert!(order.map(at).is_sorted(), "{out}");
}

#[test]
fn an_unknown_key_names_its_line_and_the_known_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    fs::write(&file, "[router]\n\n[hop]\nbufer_packets = 9\n").unwrap();
    for command in [
        &["config", "check"][..],
        &["router", "run", "--config"],
        &["host", "run", "--config"],
    ] {
        let (code, _, err) = finished(whimbrel().args(command).arg(&file));
        assert_eq!(code, 2, "{err}");
        assert!(
            err.contains("router.toml:4:1") && err.contains("'buffer_packets'"),
            "{err}"
        );
    }
}

#[test]
fn samples_pass_the_check() {
    let folder = tempfile::tempdir().unwrap();
    for node in ["router", "host", "gnrs"] {
        let (code, sample, _) = finished(whimbrel().args(["config", "sample", node]));
        assert_eq!(code, 0);
        let file = folder.path().join(node);
        fs::write(&file, sample).unwrap();
        let (code, _, err) = finished(whimbrel().args(["config", "check"]).arg(&file));
        assert_eq!(code, 0, "{err}");
    }
}

#[test]
fn a_port_in_use_is_exit_code_8_with_the_port_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let port = taken.local_addr().unwrap().port().to_string();
    let (key, socket) = (folder.path().join("key"), folder.path().join("socket"));
    let router = finished(
        whimbrel()
            .args(["router", "run", "--listen", &address, "--key"])
            .arg(&key)
            .arg("--socket")
            .arg(&socket),
    );
    let gnrs =
        finished(whimbrel().args(["gnrs", "serve", "--store", "memory", "--listen", &address]));
    for (code, _, err) in [router, gnrs] {
        assert_eq!(code, 8, "{err}");
        assert!(err.contains(&port) && err.contains("in use"), "{err}");
    }
}

#[test]
fn a_socket_or_a_store_in_use_is_exit_code_8() {
    let folder = tempfile::tempdir().unwrap();
    let host = || {
        let mut command = whimbrel();
        command.args(["host", "run", "--json", "--router", "127.0.0.1:9", "--key"]);
        command
            .arg(folder.path().join("key"))
            .arg("--socket")
            .arg(folder.path().join("socket"));
        command
    };
    let first = Running::start(&mut host());
    first.await_json(|line| line.get("guid").is_some());
    let (code, _, err) = finished(&mut host());
    assert_eq!(code, 8, "{err}");
    let gnrs = || {
        let mut command = whimbrel();
        command.args([
            "gnrs",
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--store",
        ]);
        command.arg(folder.path().join("names"));
        command
    };
    let server = Running::start(&mut gnrs());
    server.await_json(|line| line.get("links").is_some());
    let (code, _, err) = finished(&mut gnrs());
    assert_eq!(code, 8, "{err}");
    assert!(err.contains("in use"), "{err}");
}

#[test]
fn without_a_host_the_message_names_both_ways_to_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("host.sock");
    let name = "ab".repeat(32);
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let get = finished(
        whimbrel()
            .args(["get", &name, "--socket"])
            .arg(&socket)
            .arg("-o")
            .arg(folder.path().join("out")),
    );
    let serve = finished(
        whimbrel()
            .args(["serve", "--no-cache", "--socket"])
            .arg(&socket)
            .arg(&file),
    );
    let ping = finished(whimbrel().args(["ping", &name, "--socket"]).arg(&socket));
    for (code, _, err) in [get, serve, ping] {
        assert_eq!(code, 5, "{err}");
        assert!(
            err.contains("whimbrel host run") && err.contains("--router"),
            "{err}"
        );
    }
    let status = finished(whimbrel().args(["host", "status", "--socket"]).arg(&socket));
    assert_eq!(status.0, 5, "{}", status.2);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left behind"
    );
}

#[test]
fn wrong_arguments_are_exit_code_2() {
    let cases: [&[&str]; 6] = [
        &["get", "not-a-name"],
        &["get"],
        &["serve", "--print-names", "/nonexistent/file"],
        &["router", "run", "--ndn-route", "/a-prefix-without-a-face"],
        &["host", "run", "--router", "nowhere"],
        &["id", "show", "/nonexistent/key"],
    ];
    for case in cases {
        let (code, _, err) = finished(whimbrel().args(case));
        assert_eq!(code, 2, "{case:?}: {err}");
        assert!(
            !err.is_empty() && !err.contains("panicked"),
            "{case:?}: {err}"
        );
    }
}

#[test]
fn a_silent_network_is_exit_code_7_after_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    let dead = format!("127.0.0.1:{}", support::free_port());
    let (code, _, err) = finished(
        whimbrel()
            .args([
                "get",
                &"ab".repeat(32),
                "--router",
                &dead,
                "--timeout",
                "700 ms",
                "-o",
            ])
            .arg(folder.path().join("out")),
    );
    assert_eq!(code, 7, "{err}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_output_that_cannot_be_made_is_exit_code_6() {
    let (code, _, err) = finished(whimbrel().args([
        "get",
        &"ab".repeat(32),
        "--router",
        "127.0.0.1:9",
        "-o",
        "/proc/no-file-can-be-made-here",
    ]));
    assert_eq!(code, 6, "{err}");
}

#[test]
fn a_key_is_made_once_and_shown_again() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.pem");
    let (code, made, _) = finished(whimbrel().args(["id", "new"]).arg(&key));
    assert_eq!((code, made.trim().len()), (0, 64));
    let (code, shown, _) = finished(whimbrel().args(["id", "show", "--json"]).arg(&key));
    assert_eq!(code, 0);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["guid"], made.trim());
    let (code, _, err) = finished(whimbrel().args(["id", "new"]).arg(&key));
    assert_eq!(code, 2, "{err}");
}

/// Returns what `serve --print-names` prints for a file of five bytes.
fn printed_names(file: &Path) -> String {
    fs::write(file, b"hello").expect("the file is written");
    let serve = ["serve", "--print-names", "--no-cache"];
    let (code, out, err) = finished(whimbrel().args(serve).arg(file));
    assert_eq!(code, 0, "{err}");
    out
}

#[test]
fn names_equal_the_output_of_b3sum() {
    let folder = tempfile::tempdir().unwrap();
    let printed = printed_names(&folder.path().join("some file"));
    let shown = format!("{}/some file", folder.path().display());
    assert_eq!(printed, format!("{}  {shown}\n", name_of(b"hello")));
}

/// A script reads a line for each name, and a terminal obeys control characters.
#[test]
fn a_served_path_with_control_characters_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let printed = printed_names(&folder.path().join("two\nlines\u{1b}[31m"));
    let shown = format!("{}/two\\nlines\\u{{1b}}[31m", folder.path().display());
    assert_eq!(printed, format!("{}  {shown}\n", name_of(b"hello")));
}

/// Nothing answers there: only this machine's end exists.
#[test]
fn what_is_said_to_be_open_is_the_socket() {
    let name = name_of(b"nothing");
    let arguments = ["get", &name, "--from", "127.0.0.1:9", "--timeout", "300 ms"];
    let (code, _, err) = finished(whimbrel().args(arguments).arg("-v"));
    assert_ne!(code, 0);
    assert!(
        err.contains("UDP socket is open") && !err.contains("link is up"),
        "{err}"
    );
}

#[test]
fn the_doctor_reports_on_each_part() {
    let (code, out, err) = finished(whimbrel().args(["doctor", "--json"]));
    let findings: Vec<serde_json::Value> =
        serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    assert!(findings.len() >= 12);
    for what in ["NDN forwarder", "NDN ports"] {
        assert!(
            findings.iter().any(|finding| finding["what"] == what),
            "{what}"
        );
    }
    let failed = findings.iter().any(|finding| finding["verdict"] == "fail");
    assert_eq!(code, i32::from(failed));
    for finding in &findings {
        assert_eq!(
            finding["verdict"] == "ok",
            finding.get("remedy").is_none(),
            "{finding}"
        );
    }
}

#[test]
fn every_command_has_help_with_an_example_and_get_lists_the_exit_codes() {
    let commands = [
        "router run",
        "router status",
        "router routes",
        "host run",
        "host status",
        "gnrs serve",
        "gnrs lookup",
        "gnrs watch",
        "id new",
        "id show",
        "id rotate",
        "id revoke",
        "id publish",
        "names add",
        "names export",
        "names import",
        "publish",
        "serve",
        "get",
        "ping",
        "perf server",
        "perf client",
        "config sample",
        "config check",
        "doctor",
        "ndn get",
        "ndn serve",
        "ndn peek",
        "ndn poke",
        "ndn ping",
        "ndn pingserver",
        "ndn paths",
        "ndn traffic client",
        "ndn traffic server",
        "tcp-proxy forward",
        "tcp-proxy reverse",
        "tcp-proxy both",
        "tcp-proxy status",
        "tcp-proxy key",
        "face create",
        "route add",
        "strategy set",
        "cs info",
        "status",
        "key gen",
        "key cert show",
        "completions",
        "man",
    ];
    for command in commands {
        let (code, out, _) = finished(whimbrel().args(command.split(' ')).arg("--help"));
        assert_eq!(code, 0, "{command}");
        assert!(
            out.contains("Example:") || out.contains("Examples:"),
            "{command}: {out}"
        );
        assert!(!out.contains('\u{1b}'), "{command}: colours in a pipe");
    }
    let (_, out, _) = finished(whimbrel().args(["get", "--help"]));
    assert!(
        out.contains("no host or router daemon") && out.contains("130"),
        "{out}"
    );
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, err) = finished(whimbrel().args(["completions", shell]));
        assert_eq!(code, 0, "{err}");
        assert!(
            out.contains("torture") && out.contains("pingserver"),
            "{shell}: {out}"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man/man1");
    let (code, _, err) = finished(whimbrel().arg("man").arg(&pages));
    assert_eq!(code, 0, "{err}");
    for page in ["whimbrel.1", "whimbrel-get.1", "whimbrel-router-run.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let file = pages.join("whimbrel.1");
    let (code, _, err) = finished(whimbrel().arg("man").arg(&file));
    assert!(code == 6 && err.contains("whimbrel.1"), "{code}: {err}");
}
