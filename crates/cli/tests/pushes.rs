//! `push`, `message` and `inbox`, with real processes on real sockets.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Network, Running, finished, free_port, noise, whimbrel};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// A router alone, and a folder for the files of a test.
struct Site {
    folder: tempfile::TempDir,
    at: String,
    router: Running,
}

impl Site {
    fn start() -> Site {
        let folder = tempfile::tempdir().unwrap();
        let at = format!("127.0.0.1:{}", free_port());
        let router = start_router(folder.path(), &at);
        fs::create_dir(folder.path().join("in")).unwrap();
        Site { folder, at, router }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The name of a host with this key, which is made if there is none.
    fn name_of_key(&self, key: &str) -> String {
        let path = self.path(key);
        if !path.exists() {
            let (code, _, err) = finished(whimbrel().args(["id", "new"]).arg(&path));
            assert_eq!(code, 0, "{err}");
        }
        let (code, out, err) = finished(whimbrel().args(["id", "show"]).arg(&path));
        assert_eq!(code, 0, "{err}");
        out.trim().to_owned()
    }

    /// `whimbrel inbox`, of the key `receiver`.
    fn inbox(&self, more: &[&str]) -> Command {
        let mut command = whimbrel();
        command.args(["inbox", "--json", "--router", &self.at, "-o"]);
        command.arg(self.path("in"));
        command.arg("--key").arg(self.path("receiver"));
        command.args(more);
        command
    }

    /// `whimbrel push` to it, of the key `sender`.
    fn push(&self, files: &[&Path], more: &[&str]) -> Command {
        self.sending("push", "sender", files, more)
    }

    fn sending(&self, what: &str, key: &str, files: &[&Path], more: &[&str]) -> Command {
        let mut command = whimbrel();
        let to = self.name_of_key("receiver");
        command.args([what, "--json", "--router", &self.at, "--to", &to, "--key"]);
        command.arg(self.path(key)).args(more).args(files);
        command
    }

    fn received(&self, name: &str) -> PathBuf {
        self.path("in").join(name)
    }

    /// The files in the inbox that users see.
    fn listed(&self) -> Vec<String> {
        let items = fs::read_dir(self.path("in")).unwrap();
        let names = items.map(|item| item.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    }
}

fn start_router(folder: &Path, at: &str) -> Running {
    let mut router = whimbrel();
    router.args(["router", "run", "--json", "--listen", at, "--key"]);
    router.arg(folder.join("router.pem"));
    let router = Running::start(router.arg("--socket").arg(folder.join("router.sock")));
    router.await_json(|line| line.get("guid").is_some());
    router
}

fn same(path: &Path, bytes: &[u8]) {
    assert!(fs::read(path).unwrap() == bytes, "{}", path.display());
}

/// Runs a push to its end. Returns its exit code and last line.
fn ended(command: &mut Command) -> (i32, Value) {
    let mut push = Running::start(command);
    let line = push.await_json(|line| line["event"] == "failed" || line["event"] == "done");
    let line = match line["progress"]["state"].as_str() {
        Some("delivered" | "taken") | None => line,
        Some(_) => push.await_json(|line| line["event"] == "failed"),
    };
    (push.exit_code(), line)
}

#[test]
fn a_file_and_a_message_come_to_an_inbox_that_runs() {
    let site = Site::start();
    let sender = site.name_of_key("sender");
    let bytes = noise(3 * MIB + 7, 1);
    let file = site.file("film.mkv", &bytes);
    let mut inbox = Running::start(&mut site.inbox(&["--from", &sender, "--count", "3"]));
    let ready = inbox.await_json(|line| line["event"] == "ready");
    assert_eq!(ready["name"], site.name_of_key("receiver").as_str());
    let (code, line) = ended(&mut site.push(&[&file], &["--wait"]));
    assert_eq!(
        (code, &line["progress"]["state"]),
        (0, &"delivered".into()),
        "{line}"
    );
    let line = inbox.await_json(|line| line["event"] == "received");
    assert_eq!(
        (&line["from"], &line["file_name"]),
        (&sender.as_str().into(), &"film.mkv".into())
    );
    same(&site.received("film.mkv"), &bytes);
    let mut message = site.sending("message", "sender", &[Path::new("on my way")], &["--wait"]);
    assert_eq!(ended(&mut message).0, 0);
    let line = inbox.await_json(|line| line["event"] == "message");
    assert_eq!(
        (&line["from"], &line["text"]),
        (&sender.as_str().into(), &"on my way".into())
    );
    // From standard input, under a name.
    let mut push = site.push(&[Path::new("-")], &["--wait", "--name", "notes.txt"]);
    let mut push = push
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut push.stdin.take().unwrap(), b"piped").unwrap();
    assert!(push.wait().unwrap().success());
    assert_eq!(inbox.exit_code(), 0);
    same(&site.received("notes.txt"), b"piped");
    assert_eq!(site.listed(), ["film.mkv", "notes.txt"]);
}

#[test]
fn what_is_pushed_while_the_inbox_is_away_waits_in_the_router_and_comes_once() {
    let site = Site::start();
    let bytes = noise(5 * MIB, 2);
    let files = [site.file("a", &bytes), site.file("b", b"small")];
    // The sender has ended when the receiver starts.
    let (code, line) = ended(&mut site.push(&[&files[0], &files[1]], &[]));
    assert_eq!(
        (code, &line["progress"]["state"]),
        (0, &"taken".into()),
        "{line}"
    );
    let (code, _) = ended(&mut site.sending("message", "sender", &[Path::new("hello")], &[]));
    assert_eq!(code, 0);
    let mut inbox = Running::start(&mut site.inbox(&["--from", "anyone", "--count", "3"]));
    assert_eq!(inbox.exit_code(), 0);
    same(&site.received("a"), &bytes);
    same(&site.received("b"), b"small");
    assert_eq!(site.listed(), ["a", "b"]);
    drop(site.router);
}

#[test]
fn an_inbox_that_is_killed_in_the_middle_resumes() {
    let network = Network::start(Some("20 Mbit/s"));
    let bytes = noise(12 * MIB, 3);
    let (file, folder) = (network.path("film"), network.path("in"));
    fs::write(&file, &bytes).unwrap();
    fs::create_dir(&folder).unwrap();
    let inbox = |count: &str| {
        let mut inbox = whimbrel();
        inbox.args([
            "inbox", "--json", "--from", "anyone", "--count", count, "-o",
        ]);
        inbox
            .arg(&folder)
            .arg("--socket")
            .arg(network.host_socket(1));
        Running::start(&mut inbox)
    };
    let to = network.guid_of("host-1");
    let mut push = whimbrel();
    push.args(["push", "--json", "--wait", "--to", &to, "--socket"]);
    let mut push = Running::start(push.arg(network.host_socket(0)).arg(&file));
    let mut first = inbox("1");
    let half = |line: &Value| {
        line["event"] == "progress" && line["bytes"].as_u64().unwrap_or(0) > 6 * MIB as u64
    };
    first.await_json(half);
    first.kill();
    let mut second = inbox("1");
    let line = second.await_json(|line| line["event"] == "received");
    assert!(line["fetched"]["resumed"].as_u64().unwrap() > 0, "{line}");
    assert_eq!(second.exit_code(), 0);
    same(&folder.join("film"), &bytes);
    push.await_json(|line| line["event"] == "done");
    assert_eq!(push.exit_code(), 0);
}

#[test]
fn an_inbox_refuses_senders_lengths_and_what_does_not_fit_and_says_why() {
    let site = Site::start();
    let sender = site.name_of_key("sender");
    site.file("known", format!("# ours\n{sender} the boat\n").as_bytes());
    let known = site.path("known");
    let rule = [
        "--max-size",
        "1 MiB",
        "--total",
        "1200 KiB",
        "--existing",
        "keep",
    ];
    let mut command = site.inbox(&rule);
    let inbox = Running::start(command.arg("--known").arg(&known));
    inbox.await_json(|line| line["event"] == "ready");
    let (long, fits) = (noise(MIB + 1, 4), noise(MIB, 5));
    let long = site.file("long", &long);
    let fits_here = site.file("fits", &fits);
    let other = site.file("other", &noise(200_000, 6));
    let refused = |command: &mut Command, why: &str| {
        let (code, line) = ended(command);
        assert_eq!(code, 11, "{line}");
        let error = line["error"].as_str().unwrap();
        assert!(error.contains(why), "{error}");
    };
    refused(
        &mut site.sending("push", "stranger", &[&other], &[]),
        "takes nothing from this sender",
    );
    refused(
        &mut site.push(&[&long], &[]),
        "longer than the receiver takes",
    );
    assert_eq!(ended(&mut site.push(&[&fits_here], &["--wait"])).0, 0);
    refused(&mut site.push(&[&other], &[]), "inbox is full");
    let another = site.file("another", b"small");
    refused(
        &mut site.push(&[&another], &["--name", "fits"]),
        "a file of this name is there",
    );
    assert_eq!(site.listed(), ["fits"]);
    same(&site.received("fits"), &fits);
}

#[test]
fn no_suggested_name_leads_out_of_the_folder_and_no_file_is_lost() {
    let site = Site::start();
    let mut inbox = Running::start(&mut site.inbox(&["--from", "anyone", "--count", "4"]));
    inbox.await_json(|line| line["event"] == "ready");
    fs::write(site.received("mine"), "kept").unwrap();
    for (number, name) in ["../climbed", "/tmp/../climbed", "mine", ".hidden"]
        .iter()
        .enumerate()
    {
        let file = site.file("source", format!("bytes {number}").as_bytes());
        let (code, line) = ended(&mut site.push(&[&file], &["--wait", "--name", name]));
        assert_eq!(code, 0, "{line}");
    }
    assert_eq!(inbox.exit_code(), 0);
    assert!(!site.path("climbed").exists());
    same(&site.received("mine"), b"kept");
    same(&site.received("mine-2"), b"bytes 2");
    assert_eq!(
        site.listed(),
        ["_.climbed", "_hidden", "mine", "mine-2", "tmp..climbed"]
    );
}

#[test]
fn a_flood_of_offers_neither_stops_the_inbox_nor_is_lost() {
    let site = Site::start();
    let files: Vec<PathBuf> = (0..60)
        .map(|number| site.file(&format!("f{number}"), &noise(40_000, 100 + number)))
        .collect();
    let all: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let mut flood = Running::start(&mut site.push(&all, &["--wait"]));
    let mut inbox = Running::start(&mut site.inbox(&["--from", "anyone", "--count", "61"]));
    inbox.await_json(|line| line["event"] == "ready");
    let small = site.file("small", b"of another");
    let mut other = site.sending("push", "other", &[&small], &["--wait"]);
    assert_eq!(ended(&mut other).0, 0);
    assert_eq!(flood.exit_code(), 0);
    assert_eq!(inbox.exit_code(), 0);
    assert_eq!(site.listed().len(), 61);
}

#[test]
fn a_folder_comes_as_it_is_and_its_links_stay_in_it() {
    let site = Site::start();
    let (film, note) = (noise(2 * MIB, 7), noise(900, 8));
    let folder = site.path("trip");
    fs::create_dir_all(folder.join("deep/er")).unwrap();
    fs::write(folder.join("film"), &film).unwrap();
    fs::write(folder.join("deep/copy"), &film).unwrap();
    fs::write(folder.join("deep/er/note"), &note).unwrap();
    fs::write(folder.join("empty"), b"").unwrap();
    std::os::unix::fs::symlink("../film", folder.join("deep/link")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o750);
    fs::set_permissions(folder.join("film"), mode).unwrap();
    let (code, line) = ended(&mut site.push(&[&folder], &[]));
    assert_eq!(code, 0, "{line}");
    let mut inbox = Running::start(&mut site.inbox(&["--from", "anyone", "--count", "1"]));
    let line = inbox.await_json(|line| line["event"] == "received");
    assert_eq!(line["fetched"]["files"], 4, "{line}");
    assert_eq!(inbox.exit_code(), 0);
    let there = site.received("trip");
    same(&there.join("film"), &film);
    same(&there.join("deep/copy"), &film);
    same(&there.join("deep/er/note"), &note);
    same(&there.join("empty"), b"");
    assert_eq!(
        fs::read_link(there.join("deep/link")).unwrap(),
        Path::new("../film")
    );
    let mode = fs::metadata(there.join("film")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777,
        0o750
    );
    assert_eq!(site.listed(), ["trip"]);
}

#[test]
fn files_with_the_same_bytes_are_sent_once() {
    let site = Site::start();
    let sender = site.name_of_key("sender");
    site.name_of_key("receiver");
    let _inbox = Running::start(&mut site.inbox(&["--from", &sender]));
    let (one, two) = (site.file("one", b"same"), site.file("two", b"same"));
    let (code, _, err) = finished(&mut site.push(&[&one, &two], &["--wait"]));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("they are sent once, under that name"), "{err}");
    assert_eq!(site.listed(), ["one"]);
}

/// The lines of the README that begin with a command and contain `with`, without remarks.
fn lines_of_readme(with: &str) -> Vec<String> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let text = fs::read_to_string(readme).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("whimbrel "));
    let lines = lines.map(|line| line.split("  #").next().unwrap_or_default().trim());
    let wanted = lines.filter(|line| line.contains(with));
    wanted.map(str::to_owned).collect()
}

#[test]
fn the_commands_of_the_readme_work_as_they_are_written() {
    let site = Site::start();
    let (receiver, sender) = (site.name_of_key("inbox.pem"), site.name_of_key("me.pem"));
    site.file("log.txt", b"12:00 all well");
    fs::create_dir(site.path("photos")).unwrap();
    fs::write(site.path("photos/one"), noise(100_000, 9)).unwrap();
    fs::create_dir(site.path("incoming")).unwrap();
    let typed = |line: &str| {
        let line = line
            .replace("ROUTER:4711", &site.at)
            .replace("SENDER", &sender);
        let line = line.replace("--to NAME", &format!("--to {receiver}"));
        let mut command = whimbrel();
        command.current_dir(site.folder.path());
        // Quotes are as in a shell, as far as the README has them.
        for (number, quoted) in line.trim_start_matches("whimbrel ").split('\'').enumerate() {
            match number % 2 {
                0 => command.args(quoted.split_whitespace()),
                _ => command.arg(quoted),
            };
        }
        command
    };
    let lines = lines_of_readme("me.pem");
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        let (code, out, err) = finished(&mut typed(line));
        assert_eq!(code, 0, "{err}");
        assert!(out.contains("the network has them"), "{out}");
    }
    let [inbox] = &lines_of_readme("whimbrel inbox")[..] else {
        panic!("one line of the README runs an inbox");
    };
    let inbox = format!("{inbox} --count 3");
    let (code, out, err) = finished(&mut typed(&inbox));
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains(&format!("whimbrel push --to {receiver} FILE")),
        "{out}"
    );
    assert!(out.contains(&format!("{sender}: on my way")), "{out}");
    same(&site.path("incoming/log.txt"), b"12:00 all well");
    same(&site.path("incoming/photos/one"), &noise(100_000, 9));
}

#[test]
fn wrong_arguments_are_refused_with_a_remedy() {
    let site = Site::start();
    let refused = |command: &mut Command, why: &str| {
        let (code, _, err) = finished(command);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(why), "{err}");
    };
    let mut keyless = whimbrel();
    keyless.args(["inbox", "--from", "anyone", "--router", &site.at, "-o"]);
    refused(keyless.arg(site.path("in")), "--key");
    refused(&mut site.inbox(&["--from", "zebra"]), "--from: 'zebra'");
    let name = "ab".repeat(32);
    refused(
        &mut site.inbox(&["--from", "anyone", "--from", &name]),
        "allows everybody",
    );
    refused(&mut site.inbox(&[]), "--from");
    let mut message = site.sending("message", "sender", &[], &[]);
    refused(message.arg("x".repeat(40_000)), "1 to 32768 bytes");
    let mut absent = whimbrel();
    absent
        .args(["inbox", "--from", "anyone", "-o"])
        .arg(site.path("absent/below"));
    refused(&mut absent, "cannot make the folder");
}

/// "Willingness to use in-network proxy", and a sender that "sends and forgets" [MFTP §3.2.2 and 4].
#[test]
fn options_of_a_push_act() {
    let site = Site::start();
    let sender = site.name_of_key("sender");
    let file = site.file("reading", &noise(MIB, 3));
    // Nobody is there, and no router may store it.
    let lost = ["--storage", "never", "--reliability", "dont-care"];
    let (code, line) = ended(&mut site.push(&[&file], &lost));
    assert_eq!(code, 12, "{line}");
    let error = line["error"].as_str().unwrap();
    assert!(error.contains("are not sent again"), "{error}");
    let (code, line) = ended(&mut site.push(&[&file], &["--storage", "2 h"]));
    assert_eq!((code, &line["progress"]["state"]), (0, &"taken".into()));
    let text = Path::new("14.2 C");
    let mut inbox = Running::start(&mut site.inbox(&["--from", &sender, "--count", "2"]));
    inbox.await_json(|line| line["event"] == "received");
    let mut message = site.sending("message", "sender", &[text], &lost);
    assert_eq!(ended(&mut message).0, 0);
    let line = inbox.await_json(|line| line["event"] == "message");
    assert_eq!(line["text"], "14.2 C");
    assert_eq!(inbox.exit_code(), 0);
}

#[test]
fn a_get_that_does_not_care_says_what_is_missing() {
    let site = Site::start();
    let file = site.file("film.mkv", &noise(MIB, 5));
    let mut serve = whimbrel();
    serve.args(["serve", "--json", "--no-cache", "--router", &site.at]);
    let serve = Running::start(serve.arg(&file));
    let line = serve.await_json(|line| line["event"] == "name");
    let name = line["shelved"]["name"].as_str().unwrap().to_owned();
    let get = |output: &str| {
        let mut get = whimbrel();
        get.args(["get", &name, "--router", &site.at, "-o"]);
        get.arg(site.path(output));
        get.args(["--reliability", "dont-care", "--nack-timeout", "2 s"]);
        finished(&mut get)
    };
    serve.await_json(|line| line["event"] == "announced");
    let (code, _, err) = get("out");
    assert_eq!(code, 0, "{err}");
    serve.signal("STOP");
    let (code, _, err) = get("nothing");
    serve.signal("CONT");
    assert_eq!(code, 12, "{err}");
    assert!(err.contains("nothing is sent again"), "{err}");
}

#[test]
fn wrong_options_of_a_transfer_are_exit_code_2() {
    let to = "ab".repeat(32);
    for case in [
        ["--reliability", "maybe"],
        ["--storage", "soon"],
        ["--service", "broadcast"],
        ["--chunk-size", "17 KiB"],
        ["--nack-timeout", "5"],
    ] {
        let mut push = whimbrel();
        push.args(["push", "Cargo.toml", "--to", &to]).args(case);
        let (code, _, err) = finished(&mut push);
        assert_eq!(code, 2, "{case:?}: {err}");
    }
    let mut push = whimbrel();
    push.args(["message", "hello", "--to", &to, "--router", "127.0.0.1:9"]);
    let (code, _, err) = finished(push.args(["--wait", "--reliability", "dont-care"]));
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("confirmation"), "{err}");
}

/// Two inboxes are attached by one name: what is sent to it comes to one of them, and to the other one when the
/// first has gone.
#[test]
fn a_service_of_two_inboxes_is_served_by_either() {
    let site = Site::start();
    let sender = site.name_of_key("sender");
    let service = site.name_of_key("service");
    let inbox = |name: &str, folder: &str| {
        site.name_of_key(name);
        let mut command = whimbrel();
        command.args(["inbox", "--json", "--router", &site.at, "--from", &sender]);
        command.arg("-o").arg(site.path(folder));
        command.arg("--key").arg(site.path(name));
        let running = Running::start(command.arg("--service").arg(site.path("service")));
        running.await_json(|line| line["event"] == "ready");
        running
    };
    let send = |text: &str| {
        let mut message = whimbrel();
        message.args(["message", text, "--json", "--wait", "--router", &site.at]);
        message.args(["--service", "anycast", "--to", &service, "--key"]);
        ended(message.arg(site.path("sender")))
    };
    let mut first = inbox("one", "one-in");
    let (code, line) = send("to the one");
    assert_eq!(code, 0, "{line}");
    let got = first.await_json(|line| line["event"] == "message");
    assert_eq!(got["text"], "to the one");
    let second = inbox("two", "two-in");
    first.signal("TERM");
    first.exit_code();
    let (code, line) = send("to the other");
    assert_eq!(code, 0, "{line}");
    let got = second.await_json(|line| line["event"] == "message");
    assert_eq!(got["text"], "to the other");
}
