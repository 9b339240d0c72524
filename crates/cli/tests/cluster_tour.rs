//! "From one site to a cluster in five commands", typed as the README has them.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test with real processes"
)]

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Running, await_that, finished, free_port, whimbrel};

/// Returns the commands below the heading, without remarks.
fn commands() -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text
        .split("### From one site to a cluster in five commands")
        .nth(1);
    let block = section.unwrap().split("```sh\n").nth(1).unwrap();
    let lines = block.split("```").next().unwrap().lines();
    let words = |line: &str| {
        let line = line.split(" #").next().unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    lines.map(words).collect()
}

/// A command of the page, with what is particular to this machine after it.
fn typed(words: &[String], more: &[&str]) -> Command {
    let mut command = match words[0].as_str() {
        "whimbrel" => whimbrel(),
        other => Command::new(other),
    };
    command.stdin(Stdio::null()).args(&words[1..]).args(more);
    command
}

#[test]
fn five_commands_move_the_records_of_a_site_to_a_cluster_while_it_serves() {
    if Command::new("redis-server")
        .arg("--version")
        .output()
        .is_err()
    {
        return eprintln!("SKIPPED: there is no redis-server");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let nodes = [(); 3].map(|()| (free_port().to_string(), free_port().to_string()));
    let (old, new) = (free_port(), free_port());
    let [old, new] = [old, new].map(|port| format!("127.0.0.1:{port}"));
    // The machines of the page are three ports of this one.
    let [a, b, c] = [0, 1, 2].map(|number: usize| format!("127.0.0.1:{}", nodes[number].0));
    let here = |words: &[String]| -> Vec<String> {
        let replaced = words.iter().map(|word| match word.as_str() {
            "A:6379" => a.clone(),
            "B:6379" => b.clone(),
            "C:6379" => c.clone(),
            "0.0.0.0:4721" | "127.0.0.1:4721" => new.clone(),
            other => other.replace("@A,B,C", &format!("@{a},{b},{c}")),
        });
        replaced.collect()
    };
    let all: Vec<Vec<String>> = commands().iter().map(|words| here(words)).collect();
    let [server, create, serve, moving, status] = &all[..] else {
        panic!("five commands: {all:?}");
    };

    // The site, with a record.
    let socket = path("old.sock");
    let mut site = whimbrel();
    site.args(["gnrs", "serve", "--json", "--listen", &old, "--store"]);
    let site = Running::start(site.args([&path("names"), "--socket", &socket]));
    site.await_json(|line| line.get("links").is_some());
    let content = "ab".repeat(32);
    let publish = |server: &str| {
        let words = [
            "publish",
            "--as",
            "films",
            "--name-server",
            server,
            &content,
        ];
        let mut command = whimbrel();
        command
            .env("WHIMBREL_NAMES", path("names.json"))
            .args(words);
        finished(&mut command)
    };
    let (code, out, err) = publish(&old);
    assert_eq!(code, 0, "{err}");
    let owner = out
        .split_whitespace()
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap();

    let mut redis = Vec::new();
    for (port, bus) in &nodes {
        let own = server
            .iter()
            .map(|it| it.replace("6379", port))
            .collect::<Vec<_>>();
        let data = path(port);
        std::fs::create_dir(&data).unwrap();
        let more = [
            "--bind",
            "127.0.0.1",
            "--cluster-port",
            bus,
            "--dir",
            &data,
            "--save",
            "",
        ];
        redis.push(Running::start(&mut typed(&own, &more)));
        await_that("the node answers", || {
            let mut ping = Command::new("redis-cli");
            let (_, out, _) = finished(ping.args(["-p", port, "-a", "SECRET", "PING"]));
            out.contains("PONG")
        });
    }
    let (code, out, err) = finished(&mut typed(create, &[]));
    assert_eq!(code, 0, "{out}{err}");
    let socket = path("new.sock");
    let serving = Running::start(&mut typed(serve, &["--json", "--socket", &socket]));
    serving.await_json(|line| line.get("links").is_some());
    let (code, out, err) = finished(&mut typed(moving, &["--from", &old]));
    assert!(code == 0 && out.contains("1 records"), "{out}{err}");
    let (code, out, err) = finished(&mut typed(status, &["--socket", &socket]));
    assert!(code == 0 && out.contains("engine:"), "{out}{err}");
    // The site's server is no longer needed.
    drop(site);
    let lookup = ["gnrs", "lookup", "--pointers", owner, "--server", &new];
    let (code, out, err) = finished(whimbrel().args(lookup));
    assert!(code == 0 && out.contains(&content), "{out}{err}");
}
