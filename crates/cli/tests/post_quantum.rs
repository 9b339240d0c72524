//! Real daemons whose links are to be safe from a quantum computer of a later day.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;

use crate::support::{Running, finished, free_port, name_of, whimbrel};
use serde_json::Value;

static FILM: [u8; 300_000] = [7; 300_000];

#[test]
fn a_router_that_requires_hybrid_links_has_no_others_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("film"), FILM).unwrap();
    let at = format!("127.0.0.1:{}", free_port());
    let mut router = whimbrel();
    router.args(["router", "run", "--json", "--listen", &at]);
    router.args(["--post-quantum", "require"]);
    router.arg("--key").arg(path("router.pem"));
    let router = Running::start(router.arg("--socket").arg(path("router.sock")));
    router.await_json(|line| line.get("guid").is_some());

    let mut serve = whimbrel();
    serve.args(["serve", "--json", "--no-cache", "--router", &at]);
    let serve = serve.args(["--post-quantum", "offer"]).arg(path("film"));
    let serve = Running::start(serve);
    serve.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");

    let get = |options: &[&str]| {
        let mut get = whimbrel();
        get.args(["get", &name_of(&FILM), "--json", "--router", &at]);
        get.args(options).arg("-o").arg(path("got"));
        get
    };
    let waits = Running::start(&mut get(&[]));
    let line = waits.await_json(|line| line["wait"]["to"][0]["unwilling"].is_string());
    let text = line["text"].as_str().unwrap();
    assert!(text.contains("requires a hybrid key exchange"), "{line}");
    drop(waits);

    let (code, _, err) = finished(&mut get(&["--post-quantum", "require"]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read(path("got")).unwrap(), FILM);

    let mut status = whimbrel();
    status.args(["router", "status", "--json", "--socket"]);
    let (code, out, err) = finished(status.arg(path("router.sock")));
    assert_eq!(code, 0, "{err}");
    let status: Value = serde_json::from_str(&out).unwrap();
    let links = status["links"].as_array().unwrap();
    assert!(!links.is_empty());
    assert!(
        links.iter().all(|link| link["hop"]["hybrid"] == true),
        "{out}"
    );
    assert!(status["reception"]["classical"].as_u64() > Some(0), "{out}");
}

#[test]
fn config_check_refuses_links_that_cannot_be_hybrid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    let check = |link: &str| {
        let text = format!(
            "[hop]\npost_quantum = \"require\"\n[[link]]\nbind = \"127.0.0.1:0\"\nlisten = true\n{link}\n"
        );
        fs::write(&file, text).unwrap();
        finished(whimbrel().args(["config", "check"]).arg(&file))
    };
    for (link, fault) in [
        ("plain = true", "is plain"),
        ("mtu = 1000", "an MTU of 1000"),
    ] {
        let (code, out, err) = check(link);
        assert_ne!(code, 0, "{link}");
        let text = format!("{out}{err}");
        assert!(
            text.contains("post_quantum") && text.contains(fault),
            "{text}"
        );
    }
    let (code, _, err) = check("");
    assert_eq!(code, 0, "{err}");
}
