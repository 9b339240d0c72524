//! Neighbours whose names are given, or kept from the first time: whoever else answers at their
//! addresses gets no session.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::PathBuf;

use crate::support::{Running, await_that, finished, free_port, name_of, whimbrel};
use serde_json::Value;
use whimbrel_node::ticket::Ticket;

static FILM: [u8; 300_000] = [7; 300_000];

struct Site {
    folder: tempfile::TempDir,
    at: String,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("film"), FILM).unwrap();
        let at = format!("127.0.0.1:{}", free_port());
        Site { folder, at }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a router with a key of this name at the site's address. Returns its name.
    fn router(&self, key: &str) -> (Running, String) {
        let mut router = whimbrel();
        router.args(["router", "run", "--json", "--listen", &self.at, "--key"]);
        router.arg(self.path(&format!("{key}.pem"))).arg("--socket");
        let router = Running::start(router.arg(self.path(&format!("{key}.sock"))));
        let line = router.await_json(|line| line.get("guid").is_some());
        let guid = line["guid"].as_str().unwrap().to_owned();
        (router, guid)
    }

    fn host(&self, router: &str) -> Running {
        let mut host = whimbrel();
        host.args(["host", "run", "--json", "--router", router, "--key"]);
        host.arg(self.path("host.pem")).arg("--socket");
        let host = Running::start(host.arg(self.path("host.sock")));
        host.await_json(|line| line.get("guid").is_some());
        host
    }

    /// Returns the report of the host's link.
    fn link(&self) -> Value {
        let mut status = whimbrel();
        status.args(["host", "status", "--json", "--socket"]);
        let (code, out, err) = finished(status.arg(self.path("host.sock")));
        assert_eq!(code, 0, "{err}");
        let status: Value = serde_json::from_str(&out).unwrap();
        status["links"][0].clone()
    }

    fn await_link(&self, what: &str, is: impl Fn(&Value) -> bool) {
        await_that(what, || is(&self.link()));
    }
}

#[test]
fn a_host_keeps_its_routers_name_and_refuses_another_until_told() {
    let site = Site::new();
    let (router, first) = site.router("first");
    let host = site.host(&site.at);
    site.await_link("the router is up", |link| link["up"] == true);
    let kept = site.path("host.pem.peers.json");
    await_that("the name is kept", || {
        fs::read_to_string(&kept).is_ok_and(|text| text.contains(&first))
    });
    // The same router after a restart, and the same host, know each other.
    drop(router);
    let (router, _) = site.router("first");
    site.await_link("it is up again", |link| link["up"] == true);
    drop(host);
    drop(router);
    let (_router, second) = site.router("second");
    let host = site.host(&site.at);
    site.await_link("the other one is refused", |link| {
        let why = link["unwilling"].as_str().unwrap_or_default();
        why.contains(&first) && why.contains(&format!("name = \"{second}\""))
    });
    assert_eq!(site.link()["up"], false);
    drop(host);
    // Its name is accepted once, and kept then.
    let accepted = site.host(&format!("{second}@{}", site.at));
    site.await_link("the new name is accepted", |link| link["up"] == true);
    await_that("the new name is kept", || {
        fs::read_to_string(&kept).is_ok_and(|text| text.contains(&second))
    });
    drop(accepted);
    let _host = site.host(&site.at);
    site.await_link("it is up without a word", |link| link["up"] == true);
}

#[test]
fn get_says_that_another_router_answers_than_the_named_one() {
    let site = Site::new();
    let (_router, guid) = site.router("router");
    let get = |router: &str| {
        let mut get = whimbrel();
        get.args(["get", &name_of(&FILM), "--timeout", "3 s", "--router"]);
        let out = site.path("out");
        finished(get.args([router, "-o"]).arg(out))
    };
    let other = "5a".repeat(32);
    let (code, _, err) = get(&format!("{other}@{}", site.at));
    assert_eq!(code, 7, "{err}");
    assert!(err.contains(&other) && err.contains(&guid), "{err}");
    let (code, _, err) = get(&format!("5a@{}", site.at));
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("NAME@HOST:PORT"), "{err}");
}

#[test]
fn a_ticket_names_the_router_and_is_not_answered_by_another_one() {
    let site = Site::new();
    let (router, guid) = site.router("router");
    let mut send = whimbrel();
    send.args(["send", "--json", "--no-cache", "--router", &site.at]);
    let send = Running::start(send.arg(site.path("film")));
    let line = send.await_json(|line| line["event"] == "ticket");
    let text = line["ticket"].as_str().unwrap();
    let ticket: Ticket = text.parse().unwrap();
    let routers: Vec<String> = ticket.routers.iter().map(ToString::to_string).collect();
    assert_eq!(routers, [format!("{guid}@{}", site.at)]);
    let receive = |timeout: &str| {
        let mut receive = whimbrel();
        receive.args(["receive", text, "--timeout", timeout, "-o"]);
        finished(receive.arg(site.path("received")))
    };
    let (code, _, err) = receive("60 s");
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read(site.path("received")).unwrap(), FILM);
    fs::remove_file(site.path("received")).unwrap();
    drop(router);
    let (_router, other) = site.router("other");
    let (code, _, err) = receive("3 s");
    assert_eq!(code, 7, "{err}");
    assert!(err.contains(&guid) && err.contains(&other), "{err}");
}

#[test]
fn config_check_refuses_a_name_for_all_callers_of_a_link() {
    let site = Site::new();
    let file = site.path("router.toml");
    let name = "5a".repeat(32);
    let check = |link: &str| {
        let text = format!("[[link]]\nlabel = \"a\"\nname = \"{name}\"\n{link}\n");
        fs::write(&file, text).unwrap();
        finished(whimbrel().args(["config", "check"]).arg(&file))
    };
    let (code, out, err) = check("bind = \"0.0.0.0:4711\"\nlisten = true");
    assert_ne!(code, 0, "{out}");
    assert!(format!("{out}{err}").contains("hop.allow"), "{out}{err}");
    // A plain link proves names, too.
    let (code, out, err) = check("remote = \"192.0.2.1:4711\"\nplain = true");
    assert_eq!(code, 0, "{out}{err}");
}
