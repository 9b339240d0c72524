//! `ndn serve` and `ndn get`.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::with_input;
use crate::support::ndn::Router;
use crate::support::{self, Running, noise};

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
        &["ndn", "get", "/versions", "-p", "raaqm"],
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

/// A forwarder without a route: the reason is said, and a route that comes in time is used.
#[test]
fn a_fetch_goes_on_while_no_route_leads_there_and_says_so() {
    let router = Router::start();
    let (code, errors) = router.fails(&["ndn", "get", "/film", "--no-route-timeout", "2 s"]);
    assert_eq!(code, 4, "{errors}");
    assert!(
        errors.contains("NoRoute") && errors.contains("tried for 2 s"),
        "{errors}"
    );
    let output = router.path("got");
    let mut command = router.command(&["ndn", "get", "/film", "--json", "-o"]);
    command.arg(&output).args(["--no-route-timeout", "100 s"]);
    let fetching = Running::start(&mut command);
    let line = fetching.await_json(|line| line["event"] == "waiting");
    let wait = &line["wait"];
    assert_eq!(
        (&wait["why"], &wait["reason"]),
        (&"nack".into(), &"NoRoute".into())
    );
    assert_eq!(wait["gives_up_after_s"], 100, "{line}");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/lines.json");
    crate::support::schema::Schema::read(schema)
        .check(&line)
        .unwrap();
    let content = noise(100_000, 8);
    let _serving = router.serve("/film", &content, &[]);
    fetching.await_json(|line| line["event"] == "done");
    assert_eq!(fs::read(output).unwrap(), content);
}

/// Whoever asks a stranger can say how much it takes at most.
#[test]
fn content_that_is_longer_than_wanted_is_given_up_and_leaves_no_file() {
    let router = Router::start();
    let _serving = router.serve("/long", &noise(100_000, 3), &[]);
    let output = router.path("long");
    let get = |most: &str| {
        let output = output.to_str().unwrap();
        router.command(&["ndn", "get", "/long", "-o", output, "--max-size", most])
    };
    let (code, _, errors) = support::finished(&mut get("99999"));
    assert_eq!(code, 1, "{errors}");
    assert!(
        errors.contains("longer than") && !output.exists(),
        "{errors}"
    );
    let (code, _, errors) = support::finished(&mut get("100000"));
    assert_eq!(code, 0, "{errors}");
    assert_eq!(fs::read(&output).unwrap().len(), 100_000);
}

/// Anyone can send Interests, so their number must not be that of the log's lines.
#[test]
fn a_file_that_changes_while_it_is_served_is_one_line_of_the_log() {
    let router = Router::start();
    for json in [false, true] {
        let name = format!("/changes/{json}");
        let (path, log) = (router.path("changes"), router.path("serve.log"));
        fs::write(&path, noise(100_000, 3)).unwrap();
        let mut command = router.command(&["ndn", "serve", &name, path.to_str().unwrap()]);
        command.args(json.then_some("--json"));
        let file = fs::File::create(&log).unwrap();
        command.stderr(file.try_clone().unwrap()).stdout(file);
        let mut serve = command.spawn().unwrap();
        support::await_that("the start", || {
            fs::read_to_string(&log).unwrap().contains("serving")
        });
        fs::write(&path, noise(90_000, 4)).unwrap();
        let lines = || {
            let log = fs::read_to_string(&log).unwrap();
            log.matches("has changed since").count()
        };
        let get = || router.fails(&["ndn", "get", &name, "-l", "100", "-r", "1"]);
        support::await_that("the first line", || {
            get();
            lines() > 0
        });
        for _ in 0..5 {
            get();
        }
        serve.kill().unwrap();
        serve.wait().unwrap();
        assert_eq!(lines(), 1, "{}", fs::read_to_string(&log).unwrap());
    }
}
