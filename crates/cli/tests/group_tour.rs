//! "One file for a group" and "Routers that learn their routes" of the tour (docs/tour.md), typed as it has them.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test with real processes"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Running, await_that, finished, free_port, noise, whimbrel};

const TOUR: &str = include_str!("../../../docs/tour.md");

/// Returns the commands below a heading, without remarks.
fn commands(heading: &str) -> Vec<String> {
    let section = TOUR.split(&format!("## {heading}\n")).nth(1).unwrap();
    let block = section.split("```sh\n").nth(1).unwrap();
    let lines = block.split("```").next().unwrap().lines();
    let without_remark = |line: &str| line.split(" #").next().unwrap().trim().to_owned();
    lines.map(without_remark).collect()
}

/// What stands on the page, and here in its place.
type Places = Vec<(&'static str, String)>;

/// A folder in which commands are typed.
struct Terminal {
    folder: tempfile::TempDir,
    places: Places,
}

impl Terminal {
    fn new() -> Terminal {
        let folder = tempfile::tempdir().unwrap();
        let port = |_| format!(":{}", free_port());
        let ports = [":4711", ":4712", ":4713", ":4714", ":4715", ":4720"];
        let mut places: Places = ports.iter().copied().zip((0..6).map(port)).collect();
        places.push(("/tmp/", format!("{}/", folder.path().display())));
        Terminal { folder, places }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// A line of the page in a folder, with what is particular to this machine after it.
    fn typed(&self, line: &str, folder: &Path, more: &[&str]) -> Command {
        // All at once: a port of this machine may look like one of the page.
        let mut line = line.to_owned();
        for (number, (there, _)) in self.places.iter().enumerate() {
            line = line.replace(there, &format!("<{number}>"));
        }
        for (number, (_, here)) in self.places.iter().enumerate() {
            line = line.replace(&format!("<{number}>"), here);
        }
        let program = whimbrel();
        let bin = Path::new(program.get_program()).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        let is_one = !line.starts_with("for ");
        let exec = if is_one { "exec " } else { "" };
        command.args(["-c", &format!("{exec}{line} {}", more.join(" "))]);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("PATH", path).current_dir(folder);
        command
    }

    fn ends(&self, line: &str) -> String {
        let (code, out, err) = finished(&mut self.typed(line, self.folder.path(), &[]));
        assert_eq!(code, 0, "{line}\n{out}{err}");
        out
    }

    fn runs(&self, line: &str, more: &[&str]) -> Running {
        Running::start(&mut self.typed(line, self.folder.path(), more))
    }
}

fn is_up(line: &Value) -> bool {
    line.get("guid").is_some()
}

#[test]
fn four_commands_send_one_file_to_a_group() {
    let mut terminal = Terminal::new();
    let through_a_router = commands("Through a router");
    let router = &through_a_router[0];
    let socket = terminal.path("router.sock");
    let more = ["--json", "--socket", socket.to_str().unwrap()];
    let router = terminal.runs(router, &more);
    router.await_json(is_up);
    let lines = commands("One file for a group");
    let [create, admit, inbox, push] = &lines[..] else {
        panic!("four commands: {lines:?}");
    };
    let name = terminal.ends(create).trim().to_owned();
    terminal.ends(admit);
    let bytes = noise(1_000_000, 3);
    fs::write(terminal.path("film"), &bytes).unwrap();
    let members = ["one", "two"].map(|member| {
        let folder = terminal.path(member);
        fs::create_dir(&folder).unwrap();
        fs::copy(
            terminal.path("team.admission"),
            folder.join("team.admission"),
        )
        .unwrap();
        let inbox = Running::start(&mut terminal.typed(inbox, &folder, &["--json"]));
        let named = |line: &Value| line["event"] == "ready";
        inbox.await_json(named);
        (folder, inbox)
    });
    await_that("both are members", || {
        let members = "whimbrel group members --json NAME --router 127.0.0.1:4711";
        let line = members.replace("NAME", &name);
        let out = terminal.ends(&line);
        let report: Value = serde_json::from_str(&out).unwrap_or_default();
        report["members"].as_array().is_some_and(|it| it.len() == 2)
    });
    terminal.places.push(("NAME", name));
    terminal.places.push(("FILE", "film".to_owned()));
    terminal.ends(push);
    for (folder, inbox) in &members {
        inbox.await_json(|line| line["event"] == "received");
        assert!(fs::read(folder.join("incoming/film")).unwrap() == bytes);
    }
}

#[test]
fn five_routers_learn_their_routes_without_a_configured_one() {
    let mut terminal = Terminal::new();
    let lines = commands("Routers that learn their routes");
    let [keys, names, router, serve, get, routes] = &lines[..] else {
        panic!("six commands: {lines:?}");
    };
    let printed = terminal.ends(keys);
    let guids: Vec<&str> = printed.lines().collect();
    let socket = terminal.path("names.sock");
    let more = ["--json", "--socket", socket.to_str().unwrap()];
    let names = terminal.runs(names, &more);
    names.await_json(|line| line.get("links").is_some());
    let routers = (1..=5).map(|n| {
        let (p, q) = (if n == 1 { 5 } else { n - 1 }, n % 5 + 1);
        let line = router
            .replace("NAME-OF-P", guids[p - 1])
            .replace("NAME-OF-Q", guids[q - 1])
            .replace("471N", &format!("471{n}"))
            .replace("471P", &format!("471{p}"))
            .replace("471Q", &format!("471{q}"))
            .replace("rN", &format!("r{n}"));
        assert!(!line.contains("route ") && !line.contains("--route"));
        let running = terminal.runs(&line, &["--json"]);
        running.await_json(is_up);
        running
    });
    let _routers: Vec<Running> = routers.collect();
    let bytes = noise(1_000_000, 4);
    fs::write(terminal.path("film"), &bytes).unwrap();
    terminal.places.push(("FILE", "film".to_owned()));
    let serve = terminal.runs(serve, &["--json", "--no-cache"]);
    let line = serve.await_json(|line| line["event"] == "name");
    let name = line["shelved"]["name"].as_str().unwrap().to_owned();
    terminal.places.push(("NAME", name));
    serve.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
    let mut get = terminal.runs(get, &["--json", "--timeout '100 s'", "-o arrived"]);
    assert_eq!(get.exit_code(), 0);
    assert!(fs::read(terminal.path("arrived")).unwrap() == bytes);
    let table = terminal.ends(routes);
    assert!(
        guids[1..].iter().all(|name| table.contains(name)),
        "{table}"
    );
}
