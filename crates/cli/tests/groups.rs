//! `group`, and `push`, `message` and `inbox` of a group, with real processes on real sockets.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, Running, finished, free_port, noise, whimbrel};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// A name server, two routers that use it, and a folder for the files of a test. The source is at the first
/// router.
struct Site {
    folder: tempfile::TempDir,
    at: [String; 2],
    _running: Vec<Running>,
}

impl Site {
    fn start() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let local = || format!("127.0.0.1:{}", free_port());
        let (names, at) = (local(), [local(), local()]);
        let mut running = Vec::new();
        let mut server = whimbrel();
        server.args([
            "gnrs", "serve", "--json", "--listen", &names, "--store", "memory",
        ]);
        server.arg("--socket").arg(folder.path().join("names.sock"));
        running.push(Running::start(&mut server));
        running[0].await_json(|line| line.get("links").is_some());
        let router_names =
            [0, 1].map(|number| new_key(&folder.path().join(format!("router{number}"))));
        for number in 0..2 {
            let other = 1 - number;
            let file = folder.path().join(format!("router{number}.toml"));
            let key = folder.path().join(format!("router{number}"));
            let peer = match number {
                0 => format!(
                    "[[link]]\nremote = \"{}\"\nname = \"{}\"\n",
                    at[other], router_names[other]
                ),
                _ => String::new(),
            };
            let text = format!(
                "[router]\nkey = {key:?}\nname_servers = [\"{names}\"]\nneighbours = [\"{}\"]\n\n[[link]]\nbind = \"{}\"\nlisten = true\n\n{peer}",
                router_names[other], at[number]
            );
            fs::write(&file, text).unwrap();
            let mut router = whimbrel();
            router
                .args(["router", "run", "--json", "--config"])
                .arg(file);
            router
                .arg("--socket")
                .arg(folder.path().join(format!("{number}.sock")));
            let router = Running::start(&mut router);
            router.await_json(|line| line.get("guid").is_some());
            running.push(router);
        }
        Site {
            folder,
            at,
            _running: running,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command of the host with this key, at one of the routers.
    fn host(&self, key: &str, router: usize, words: &[&str]) -> Command {
        let mut command = whimbrel();
        command
            .args(words)
            .args(["--router", &self.at[router], "--key"]);
        command.arg(self.path(key));
        command
    }

    /// An inbox of a member, in a folder of its name.
    fn inbox(&self, member: &str, router: usize, more: &[&str]) -> Running {
        fs::create_dir_all(self.path(&format!("{member}-in"))).unwrap();
        let mut inbox = self.host(member, router, &["inbox", "--json", "--from", "anyone"]);
        inbox
            .arg("-o")
            .arg(self.path(&format!("{member}-in")))
            .args(more);
        let inbox = Running::start(&mut inbox);
        inbox.await_json(|line| line["event"] == "ready");
        inbox
    }
}

fn new_key(path: &Path) -> String {
    let (code, out, err) = finished(whimbrel().args(["id", "new"]).arg(path));
    assert_eq!(code, 0, "{err}");
    out.trim().to_owned()
}

/// Runs a push to its end. Returns its exit code and last line.
fn ended(command: &mut Command) -> (i32, Value) {
    let mut push = Running::start(command);
    let line = push.await_json(|line| line["event"] == "failed" || line["event"] == "done");
    (push.exit_code(), line)
}

#[test]
fn a_group_gets_files_and_messages_and_may_be_joined_and_left() {
    let site = Site::start();
    let key = site.path("team");
    let (code, group, err) = finished(whimbrel().args(["group", "create"]).arg(&key));
    assert_eq!(code, 0, "{err}");
    let group = format!("group:{}", group.trim());
    let admission = site.path("team.admission");
    let mut admit = whimbrel();
    admit
        .args(["group", "admit"])
        .arg(&key)
        .args(["anyone", "-o"])
        .arg(&admission);
    assert_eq!(finished(&mut admit).0, 0);
    let admission = admission.to_str().unwrap();
    let names = ["one", "two", "three"].map(|name| new_key(&site.path(name)));
    // The third one joins by itself, and is away when the file is sent.
    let (code, _, err) = finished(&mut site.host("three", 1, &["group", "join", admission]));
    assert_eq!(code, 0, "{err}");
    let one = site.inbox("one", 0, &["--group", admission]);
    let two = site.inbox("two", 1, &["--group", admission]);
    support::await_that("all are members", || {
        let mut members = site.host("sender", 0, &["group", "members", &group]);
        let (_, out, _) = finished(&mut members);
        names.iter().all(|name| out.contains(name))
    });
    let bytes = noise(2 * MIB + 7, 1);
    fs::write(site.path("film.mkv"), &bytes).unwrap();
    let push = |more: &[&str]| {
        let mut push = site.host("sender", 0, &["push", "--json", "--to", &group]);
        ended(push.arg(site.path("film.mkv")).args(more))
    };
    let (code, line) = push(&[]);
    assert_eq!(code, 0, "{line}");
    for (inbox, name) in [(&one, "one"), (&two, "two")] {
        inbox.await_json(|line| line["event"] == "received");
        let path = site.path(&format!("{name}-in")).join("film.mkv");
        assert!(fs::read(path).unwrap() == bytes, "{name}");
    }
    // It was stored for the third one.
    let three = site.inbox("three", 1, &[]);
    three.await_json(|line| line["event"] == "received");
    // With all three there, the sender hears of them.
    let mut message = site.host("sender", 0, &["message", "all clear", "--json", "--wait"]);
    let (code, line) = ended(message.args(["--to", &group]));
    assert_eq!(
        (code, &line["progress"]["state"]),
        (0, &"delivered".into()),
        "{line}"
    );
    for inbox in [&one, &two, &three] {
        let line = inbox.await_json(|line| line["event"] == "message");
        assert_eq!(line["text"], "all clear");
    }
    drop(three);
    let (code, _, err) = finished(&mut site.host("three", 1, &["group", "leave", admission]));
    assert_eq!(code, 0, "{err}");
    support::await_that("the third one has left", || {
        let mut members = site.host("sender", 0, &["group", "members", &group]);
        !finished(&mut members).1.contains(&names[2])
    });
}

#[test]
fn an_admission_for_a_host_is_for_that_host_alone() {
    let site = Site::start();
    let key = site.path("team");
    assert_eq!(
        finished(whimbrel().args(["group", "create"]).arg(&key)).0,
        0
    );
    let names = ["one", "two"].map(|name| new_key(&site.path(name)));
    let mut admit = whimbrel();
    let (code, admission, err) = finished(admit.args(["group", "admit"]).arg(&key).arg(&names[0]));
    assert_eq!(code, 0, "{err}");
    let join = ["group", "join", admission.trim()];
    let (code, _, err) = finished(&mut site.host("two", 0, &join));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("not for this host"), "{err}");
    let (code, _, err) = finished(&mut site.host("one", 0, &join));
    assert_eq!(code, 0, "{err}");
    let inbox = site.inbox("two", 0, &["--group", admission.trim()]);
    let line = inbox.await_json(|line| line["event"] == "membership");
    assert_eq!(line["joined"], false, "{line}");
    // Another signature.
    let digits = admission.trim();
    let last = if digits.ends_with('0') { "1" } else { "0" };
    let forged = format!("{}{last}", &digits[..digits.len() - 1]);
    let (code, _, err) = finished(&mut site.host("one", 0, &["group", "join", &forged]));
    assert_eq!(code, 2, "{err}");
    let mut push = site.host(
        "one",
        0,
        &["push", "Cargo.toml", "--reliability", "ack", "--to"],
    );
    let (code, _, err) = finished(push.arg(format!("group:{}", names[0])));
    assert_eq!(code, 2, "{err}");
}

#[test]
fn a_push_to_a_group_says_which_members_lack_it_and_whether_some_refuse() {
    let site = Site::start();
    let (group, admission) = open_group(&site, "team");
    let names = ["one", "two", "three"].map(|name| new_key(&site.path(name)));
    let one = site.inbox("one", 0, &["--group", &admission]);
    let line = one.await_json(|line| line["event"] == "membership");
    assert_eq!(line["joined"], true, "{line}");
    let _two = site.inbox("two", 1, &["--group", &admission, "--max-size", "1 kB"]);
    // It is away.
    let join = ["group", "join", &admission];
    assert_eq!(finished(&mut site.host("three", 1, &join)).0, 0);
    let members = |count: usize| {
        support::await_that("the members are known", || {
            let mut members = site.host("sender", 0, &["group", "members", &group]);
            let (_, out, _) = finished(&mut members);
            names.iter().filter(|name| out.contains(*name)).count() == count
        });
    };
    members(3);
    let to = format!("group:{group}");
    let push = |name: &str, more: &[&str]| {
        fs::write(site.path(name), noise(MIB, name.len() as u64)).unwrap();
        let mut push = site.host("sender", 0, &["push", "--to", &to]);
        finished(push.arg(site.path(name)).args(more))
    };
    let (code, _, err) = push("a", &["--wait", "--timeout", "5 s"]);
    assert_eq!(code, 7, "{err}");
    let lacking = format!("1 of 3 members lack it: {}", names[2]);
    assert!(err.contains(&lacking), "{err}");
    let (code, out, err) = push("bb", &[]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("1 of 3 members have them; routers"), "{out}");
    let leave = ["group", "leave", &admission];
    assert_eq!(finished(&mut site.host("three", 1, &leave)).0, 0);
    members(2);
    let (code, out, err) = push("ccc", &["--wait"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("all others have refused"), "{out}");
}

/// Creates a group, which anyone may join. Returns its name and its admission.
fn open_group(site: &Site, name: &str) -> (String, String) {
    let key = site.path(name);
    let (code, group, err) = finished(whimbrel().args(["group", "create"]).arg(&key));
    assert_eq!(code, 0, "{err}");
    let mut admit = whimbrel();
    let admit = admit.args(["group", "admit"]).arg(&key).arg("anyone");
    let (code, admission, err) = finished(admit);
    assert_eq!(code, 0, "{err}");
    (group.trim().to_owned(), admission.trim().to_owned())
}

#[test]
fn a_group_that_is_a_member_of_another_gets_what_is_sent_to_that_one() {
    let site = Site::start();
    let (fleet, of_fleet) = open_group(&site, "fleet");
    let (_, of_ships) = open_group(&site, "ships");
    let join = ["group", "join", &of_fleet, "--as-group"];
    let (code, _, err) = finished(&mut site.host("ships", 1, &join));
    assert_eq!(code, 0, "{err}");
    let names = ["one", "two"].map(|name| new_key(&site.path(name)));
    let inboxes = [0, 1].map(|at| site.inbox(["one", "two"][at], at, &["--group", &of_ships]));
    support::await_that("both are members of the fleet", || {
        let mut members = site.host("sender", 0, &["group", "members", &fleet]);
        let (_, out, _) = finished(&mut members);
        names.iter().all(|name| out.contains(name))
    });
    let bytes = noise(MIB, 1);
    fs::write(site.path("film.mkv"), &bytes).unwrap();
    let to = format!("group:{fleet}");
    let words = ["push", "--json", "--wait", "--to", &to];
    let mut push = site.host("sender", 0, &words);
    let (code, line) = ended(push.arg(site.path("film.mkv")));
    assert_eq!(code, 0, "{line}");
    for (inbox, name) in inboxes.iter().zip(["one", "two"]) {
        inbox.await_json(|line| line["event"] == "received");
        let path = site.path(&format!("{name}-in")).join("film.mkv");
        assert!(fs::read(path).unwrap() == bytes, "{name}");
    }
}
