//! Files across two routers, with real processes on real sockets, and recovery from `kill -9`.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use crate::support::{self, Network, Running, finished, free_port, name_of, noise, whimbrel};

const MIB: usize = 1 << 20;
/// A rate that lets a test act during a transfer of some MiB.
const SLOW: Option<&str> = Some("40 Mbit/s");

/// Returns the last line of a successful `get`.
fn outcome(get: &mut Running) -> serde_json::Value {
    let line = get.await_json(|line| line["event"] == "done" || line["event"] == "failed");
    assert_eq!(line["event"], "done", "{line}");
    assert_eq!(get.exit_code(), 0);
    line["fetched"].clone()
}

fn same(path: &Path, bytes: &[u8]) {
    let there = fs::read(path).unwrap();
    assert_eq!(there.len(), bytes.len());
    assert!(there == bytes, "the bytes differ");
}

#[test]
fn twenty_megabytes_cross_two_routers_byte_for_byte() {
    let network = Network::start(None);
    let bytes = noise(20_000_000, 1);
    let source = network.path("film.mkv");
    fs::write(&source, &bytes).unwrap();
    let (_serving, names) = network.serve(&[&source]);
    assert_eq!(names, [name_of(&bytes)]);
    let target = network.path("copy");
    let mut get = Running::start(&mut network.get(&names[0], &target));
    let fetched = outcome(&mut get);
    assert_eq!(
        (&fetched["length"], &fetched["received"]),
        (&20_000_000.into(), &20_000_000.into())
    );
    same(&target, &bytes);
    // In order to a pipe, and under its own name into a folder.
    let output = network.get(&names[0], Path::new("-")).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stdout == bytes, "the pipe got other bytes");
    let folder = network.path("downloads");
    fs::create_dir(&folder).unwrap();
    let mut get = Running::start(&mut network.get(&names[0], &folder));
    outcome(&mut get);
    same(&folder.join("film.mkv"), &bytes);
}

#[test]
fn two_hosts_need_neither_router_nor_name_service() {
    let folder = tempfile::tempdir().unwrap();
    let contents = [noise(9 * MIB + 77, 11), noise(3 * MIB, 12)];
    let sources = ["film.mkv", "notes"].map(|name| folder.path().join(name));
    sources
        .iter()
        .zip(&contents)
        .for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    let serve = ["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"];
    let serving = Running::start(whimbrel().args(serve).args(&sources));
    let line = serving.await_json(|line| line["event"] == "listening");
    let address = line["address"].as_str().unwrap().to_owned();
    let get = |bytes: &[u8], target: &Path| {
        let mut command = whimbrel();
        command
            .args(["get", &name_of(bytes), "--json", "--from", &address, "-o"])
            .arg(target);
        Running::start(&mut command)
    };
    // Two clients at a time, each over its own link.
    let targets = ["first", "second"].map(|name| folder.path().join(name));
    let mut gets = [
        get(&contents[0], &targets[0]),
        get(&contents[1], &targets[1]),
    ];
    gets.iter_mut().for_each(|get| drop(outcome(get)));
    targets
        .iter()
        .zip(&contents)
        .for_each(|(path, bytes)| same(path, bytes));
    let mut unknown = get(b"served by nobody", &folder.path().join("none"));
    let line = unknown.await_json(|line| line["event"] == "failed");
    assert_eq!(unknown.exit_code(), 4, "{line}");
}

/// The name of the first file is known while the second one, which is sparse, is still read.
#[test]
fn a_get_waits_for_a_serve_that_has_not_published_yet() {
    let folder = tempfile::tempdir().unwrap();
    let (film, sparse) = (folder.path().join("film"), folder.path().join("sparse"));
    let bytes = noise(MIB, 14);
    fs::write(&film, &bytes).unwrap();
    let long = fs::File::create(&sparse).unwrap();
    long.set_len(1 << 29).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut serve = whimbrel();
    serve.args(["serve", "--json", "--no-cache", "--listen", &address]);
    let serving = Running::start(serve.args([&film, &sparse]));
    serving.await_json(|line| line["event"] == "name");
    let target = folder.path().join("copy");
    let mut get = whimbrel();
    get.args(["get", &name_of(&bytes), "--from", &address, "-o"]);
    let (code, _, err) = finished(get.arg(&target));
    assert_eq!(code, 0, "{err}");
    same(&target, &bytes);
}

#[test]
fn plain_links_carry_what_was_asked_for_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(MIB + 77, 13);
    let source = folder.path().join("film.mkv");
    fs::write(&source, &bytes).unwrap();
    let serve = [
        "serve",
        "--json",
        "--no-cache",
        "--plain",
        "--listen",
        "127.0.0.1:0",
    ];
    let serving = Running::start(whimbrel().args(serve).arg(&source));
    let line = serving.await_json(|line| line["event"] == "listening");
    let address = line["address"].as_str().unwrap().to_owned();
    // Each caller's session begins with random ids, so that one alone proves little.
    let targets: Vec<_> = (0..8)
        .map(|number| folder.path().join(format!("{number}/copy")))
        .collect();
    for target in &targets {
        fs::create_dir(target.parent().unwrap()).unwrap();
    }
    let get = |target: &Path| {
        let mut command = whimbrel();
        command.args(["get", &name_of(&bytes), "--json", "--plain"]);
        command.args(["--from", &address, "-o"]).arg(target);
        Running::start(&mut command)
    };
    let mut gets: Vec<Running> = targets.iter().map(|target| get(target)).collect();
    gets.iter_mut().for_each(|get| drop(outcome(get)));
    targets.iter().for_each(|target| same(target, &bytes));
}

#[test]
fn a_single_router_knows_the_contents_of_its_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(3 * MIB + 5, 31);
    let source = folder.path().join("data");
    fs::write(&source, &bytes).unwrap();
    let at = format!("127.0.0.1:{}", support::free_port());
    let mut router = whimbrel();
    router
        .args(["router", "run", "--json", "--listen", &at, "--key"])
        .arg(folder.path().join("key"));
    let router = Running::start(router.arg("--socket").arg(folder.path().join("socket")));
    router.await_json(|line| line.get("guid").is_some());
    let serving = Running::start(
        whimbrel()
            .args(["serve", "--json", "--no-cache", "--router", &at])
            .arg(&source),
    );
    serving.await_json(|line| line["event"] == "announced" && line["outcome"] == "Registered");
    let get = |name: &str, timeout: &str, target: &Path| {
        finished(
            whimbrel()
                .args(["get", name, "--router", &at, "--timeout", timeout, "-o"])
                .arg(target),
        )
    };
    let target = folder.path().join("copy");
    let (code, _, err) = get(&name_of(&bytes), "60 s", &target);
    assert_eq!(code, 0, "{err}");
    same(&target, &bytes);
    let (code, _, err) = get(&"ab".repeat(32), "3 s", &folder.path().join("none"));
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("uses no name service"), "{err}");
}

#[test]
fn a_site_cut_off_from_its_name_server_fetches_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = noise(3 * MIB + 5, 32);
    let source = folder.path().join("data");
    fs::write(&source, &bytes).unwrap();
    // Bound, so that no error comes back, and read by nobody.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let at = format!("127.0.0.1:{}", support::free_port());
    let config = folder.path().join("router.toml");
    let text = format!(
        "[router]\nname_servers = [\"{silent}\"]\n\
         [[link]]\nlabel = \"hosts\"\nbind = \"{at}\"\nlisten = true\n"
    );
    fs::write(&config, text).unwrap();
    let mut router = whimbrel();
    router.args(["router", "run", "--json", "--config"]);
    router
        .arg(config)
        .arg("--key")
        .arg(folder.path().join("key"));
    let router = Running::start(router.arg("--socket").arg(folder.path().join("socket")));
    router.await_json(|line| line.get("guid").is_some());
    let mut serve = whimbrel();
    serve.args(["serve", "--json", "--no-cache", "--router", &at]);
    let _serving = Running::start(serve.arg(&source));
    let target = folder.path().join("copy");
    let mut get = whimbrel();
    get.args([
        "get",
        &name_of(&bytes),
        "--router",
        &at,
        "--timeout",
        "60 s",
    ]);
    let (code, _, err) = finished(get.arg("-o").arg(&target));
    assert_eq!(code, 0, "{err}");
    same(&target, &bytes);
}

#[test]
fn a_name_server_that_is_silent_is_passed_over_for_the_next() {
    let network = Network::behind_a_silent_name_server();
    let bytes = noise(2 * MIB, 33);
    let source = network.path("data");
    fs::write(&source, &bytes).unwrap();
    let (_serving, names) = network.serve(&[&source]);
    let target = network.path("copy");
    let mut get = Running::start(&mut network.get(&names[0], &target));
    outcome(&mut get);
    same(&target, &bytes);
}

#[test]
fn content_of_two_programs_is_served_until_the_last_one_leaves() {
    let network = Network::start(None);
    let bytes = noise(2 * MIB, 21);
    let source = network.path("data");
    fs::write(&source, &bytes).unwrap();
    let (first, names) = network.serve(&[&source]);
    let (mut second, _) = network.serve(&[&source]);
    second.signal("INT");
    assert_eq!(second.exit_code(), 0);
    let target = network.path("copy");
    outcome(&mut Running::start(&mut network.get(&names[0], &target)));
    same(&target, &bytes);
    drop(first);
}

#[test]
fn a_name_that_nobody_has_is_exit_code_3_and_leaves_nothing() {
    let network = Network::start(None);
    let target = network.path("none");
    let mut get = whimbrel();
    get.args(["get", &"ab".repeat(32), "--timeout", "3 s", "--socket"]);
    get.arg(network.host_socket(1)).arg("-o").arg(&target);
    let (code, _, err) = finished(&mut get);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("knows no holder of it"), "{err}");
    assert!(!target.exists());
}

#[test]
fn a_get_waits_for_a_name_that_is_announced_later() {
    let network = Network::start(None);
    let bytes = noise(MIB, 61);
    let (source, target) = (network.path("data"), network.path("copy"));
    fs::write(&source, &bytes).unwrap();
    let mut get = Running::start(&mut network.get(&name_of(&bytes), &target));
    let wait = get.await_json(|line| line["wait"]["why"] == "unannounced");
    assert_eq!(wait["wait"]["without_name_service"], false, "{wait}");
    let _serving = network.serve(&[&source]);
    outcome(&mut get);
    same(&target, &bytes);
}

#[test]
fn a_get_that_was_killed_fetches_only_what_is_missing() {
    let network = Network::start(SLOW);
    let bytes = noise(16 * MIB, 2);
    let source = network.path("data");
    fs::write(&source, &bytes).unwrap();
    let (_serving, names) = network.serve(&[&source]);
    let target = network.path("copy");
    let mut get = network.get_until(&names[0], &target, bytes.len(), 0.6);
    get.kill();
    assert!(!target.exists());
    let mut again = Running::start(&mut network.get(&names[0], &target));
    let fetched = outcome(&mut again);
    let (resumed, received) = (
        fetched["resumed"].as_u64().unwrap(),
        fetched["received"].as_u64().unwrap(),
    );
    assert_eq!(resumed + received, bytes.len() as u64);
    // A record is written each second, during which some 5 MB arrive.
    assert!(resumed > 0, "{fetched}");
    same(&target, &bytes);
}

#[test]
fn interrupting_a_get_keeps_the_arrived_data_and_says_so() {
    let network = Network::start(SLOW);
    let bytes = noise(12 * MIB, 3);
    let source = network.path("data");
    fs::write(&source, &bytes).unwrap();
    let (_serving, names) = network.serve(&[&source]);
    let target = network.path("copy");
    let mut get = network.get_until(&names[0], &target, bytes.len(), 0.3);
    get.signal("INT");
    let line = get.await_json(|line| line["event"] == "failed");
    assert!(
        line["error"]
            .as_str()
            .unwrap()
            .contains("repeat the command to resume"),
        "{line}"
    );
    assert_eq!(get.exit_code(), 130);
    let mut again = Running::start(&mut network.get(&names[0], &target));
    let fetched = outcome(&mut again);
    assert!(
        fetched["resumed"].as_u64().unwrap() as f64 >= bytes.len() as f64 * 0.3,
        "{fetched}"
    );
    same(&target, &bytes);
}

#[test]
fn routers_killed_on_the_way_delay_a_transfer_and_nothing_else() {
    let mut network = Network::start(SLOW);
    let bytes = noise(16 * MIB, 4);
    let source = network.path("data");
    fs::write(&source, &bytes).unwrap();
    let (_serving, names) = network.serve(&[&source]);
    let target = network.path("copy");
    let mut get = network.get_until(&names[0], &target, bytes.len(), 0.2);
    network.routers[1].as_mut().unwrap().kill();
    network.start_router(1);
    let share =
        |line: &serde_json::Value| line["progress"]["bytes"].as_u64().unwrap_or(0) > 8 * MIB as u64;
    let line = get.await_json(|line| share(line) || line["event"] == "done");
    if line["event"] != "done" {
        network.routers[0].as_mut().unwrap().kill();
        network.start_router(0);
        outcome(&mut get);
    }
    same(&target, &bytes);
}

#[test]
fn hosts_killed_on_the_way_are_waited_for() {
    let mut network = Network::start(SLOW);
    let bytes = noise(16 * MIB, 5);
    let source = network.path("data");
    fs::write(&source, &bytes).unwrap();
    let (mut serving, names) = network.serve(&[&source]);
    let target = network.path("copy");
    let mut get = network.get_until(&names[0], &target, bytes.len(), 0.2);
    network.hosts[0].as_mut().unwrap().kill();
    get.await_json(|line| line["progress"]["state"] == "no-host");
    network.start_host(0);
    let far =
        |line: &serde_json::Value| line["progress"]["bytes"].as_u64().unwrap_or(0) > 8 * MIB as u64;
    let line = get.await_json(|line| far(line) || line["event"] == "done");
    if line["event"] != "done" {
        network.hosts[1].as_mut().unwrap().kill();
        network.start_host(1);
        outcome(&mut get);
    }
    same(&target, &bytes);
    assert!(!serving.has_ended());
    serving.signal("TERM");
    assert_eq!(serving.exit_code(), 0);
}

#[test]
fn a_folder_with_odd_names_arrives_as_it_is() {
    let network = Network::start(None);
    let top = network.path("photos");
    let files = [
        ("-rf", noise(10, 6)),
        ("a b/new\nline", noise(3 * MIB, 7)),
        ("a b/\u{fc}ber \"quoted\"", noise(100, 8)),
        ("twin", noise(3 * MIB, 7)),
        ("empty", Vec::new()),
        (".hidden", noise(1, 9)),
    ];
    for (name, bytes) in &files {
        let path = top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let (_serving, names) = network.serve(&[&top]);
    let target = network.path("copies");
    let mut get = Running::start(&mut network.get(&names[0], &target));
    let fetched = outcome(&mut get);
    assert_eq!(fetched["files"], 6);
    for (name, bytes) in &files {
        same(&target.join(name), bytes);
    }
}

#[test]
fn a_source_that_changes_is_no_longer_served_and_that_is_exit_code_4() {
    let network = Network::start(None);
    let source = network.path("data");
    fs::write(&source, noise(3 * MIB, 10)).unwrap();
    let (serving, names) = network.serve(&[&source]);
    fs::write(&source, noise(3 * MIB, 11)).unwrap();
    let target = network.path("copy");
    let mut get = Running::start(&mut network.get(&names[0], &target));
    serving.await_json(|line| line["event"] == "unreadable");
    let line = get.await_json(|line| line["event"] == "failed");
    // The content is not served, or, once its withdrawal is known, has no record.
    let code = get.exit_code();
    assert!(code == 4 || code == 3, "{line}");
    assert!(!target.exists());
}

#[test]
fn two_commands_suffice_with_a_router_and_a_name_server() {
    let network = Network::start(None);
    let bytes = noise(5 * MIB, 12);
    let source = network.path("data");
    fs::write(&source, &bytes).unwrap();
    let at = |index: usize| format!("127.0.0.1:{}", network.ports[1 + index]);
    let serving = Running::start(
        whimbrel()
            .args(["serve", "--json", "--no-cache", "--router", &at(1)])
            .arg(&source),
    );
    let registered = |line: &serde_json::Value| line["outcome"] == "Registered";
    let name = serving.await_json(registered)["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let target = network.path("copy");
    let (code, _, err) = finished(
        whimbrel()
            .args(["get", &name, "--router", &at(0), "--timeout", "60 s", "-o"])
            .arg(&target),
    );
    assert_eq!(code, 0, "{err}");
    same(&target, &bytes);
}

#[test]
fn pings_are_answered_by_a_host_and_by_routers_and_counted() {
    let network = Network::start(None);
    for key in ["host-1", "router-0", "router-1"] {
        let name = network.guid_of(key);
        let (code, out, err) = finished(
            whimbrel()
                .args(["ping", "-c", "3", "-i", "50 ms", "--socket"])
                .arg(network.host_socket(0))
                .arg(&name),
        );
        assert_eq!(code, 0, "{key}: {out}{err}");
        assert!(out.contains("3 sent, 3 answered, 0 % lost"), "{key}: {out}");
    }
    let nobody = "cd".repeat(32);
    let (code, out, _) = finished(
        whimbrel()
            .args(["ping", "-c", "1", "-W", "500 ms", "--json", "--socket"])
            .arg(network.host_socket(0))
            .arg(nobody),
    );
    assert_eq!(code, 1);
    assert!(out.contains("\"received\":0"), "{out}");
}

#[test]
fn the_name_service_tells_where_a_host_is() {
    let network = Network::start(None);
    let server = format!("127.0.0.1:{}", network.ports[0]);
    let host = network.guid_of("host-1");
    let lookup = |name: &str| {
        finished(whimbrel().args(["gnrs", "lookup", "--json", "--server", &server, name]))
    };
    let (code, out, err) = lookup(&host);
    assert_eq!(code, 0, "{err}");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        found["binding"]["addresses"][0]["na"],
        network.guid_of("router-1")
    );
    let (code, _, err) = lookup(&"ef".repeat(32));
    assert_eq!(code, 3, "{err}");
    let watch =
        Running::start(whimbrel().args(["gnrs", "watch", "--json", "--server", &server, &host]));
    watch.await_json(|line| line["binding"]["signer"] == host.as_str());
    let nobody = format!("127.0.0.1:{}", support::free_port());
    let silent = [
        "gnrs",
        "lookup",
        "--timeout",
        "500 ms",
        "--server",
        &nobody,
        &host,
    ];
    assert_eq!(finished(whimbrel().args(silent)).0, 7);
}

/// On a disk of 3 MiB that is enlarged later, in a separate mount namespace.
#[test]
fn a_full_disk_is_exit_code_6_and_get_resumes_with_more_room() {
    let network = Network::start(None);
    let bytes = noise(8 * MIB, 13);
    let source = network.path("data");
    fs::write(&source, &bytes).unwrap();
    let (_serving, names) = network.serve(&[&source]);
    let disk = network.path("disk");
    fs::create_dir(&disk).unwrap();
    let script = r#"
        mount -t tmpfs -o size=3m tmpfs "$1" || exit 99
        "$2" get "$3" --socket "$4" -o "$1/copy"; echo "first $?"
        mount -o remount,size=64m "$1"
        "$2" get "$3" --socket "$4" -o "$1/copy" --json; echo "second $?"
        cmp "$1/copy" "$5" && echo same
    "#;
    let mut command = std::process::Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        "sh",
    ]);
    command
        .arg(&disk)
        .arg(env!("CARGO_BIN_EXE_whimbrel"))
        .arg(&names[0])
        .arg(network.host_socket(0))
        .arg(&source);
    let Ok(output) = command.output() else {
        return eprintln!("SKIPPED: there is no `unshare` to make a small disk with");
    };
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    if output.status.code() == Some(99) || err.contains("unshare:") {
        return eprintln!("SKIPPED: no small disk can be made here: {err}");
    }
    assert!(out.contains("first 6"), "{out}{err}");
    assert!(
        err.contains("cannot write") && err.contains("repeat the command to resume"),
        "{err}"
    );
    assert!(
        out.contains("second 0") && out.contains("same"),
        "{out}{err}"
    );
    assert!(
        !out.contains("\"resumed\":0,"),
        "the arrived data was lost: {out}"
    );
}

/// Another run of a host has nothing of what was sent to the one that was killed. It would ask again
/// only after a minute.
#[test]
fn a_get_with_the_key_of_one_that_was_killed_waits_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let bytes = noise(64 * MIB, 62);
    fs::write(path("film"), &bytes).unwrap();
    let mut serve = whimbrel();
    serve.args(["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"]);
    let serving = Running::start(serve.arg(path("film")));
    let line = serving.await_json(|line| line["event"] == "listening");
    let at = line["address"].as_str().unwrap().to_owned();
    let (code, _, err) = finished(whimbrel().args(["id", "new"]).arg(path("key")));
    assert_eq!(code, 0, "{err}");
    for number in 0..3 {
        let target = path(&format!("copy-{number}"));
        let get = || {
            let mut get = whimbrel();
            get.args(["get", &name_of(&bytes), "--from", &at, "--json"]);
            get.args(["--nack-timeout", "60 s", "--timeout", "20 s", "--key"]);
            get.arg(path("key")).arg("-o").arg(&target);
            get
        };
        let mut killed = Running::start(&mut get());
        killed.await_json(|line| line["progress"]["received"].as_u64() > Some(0));
        killed.kill();
        let (code, out, err) = finished(&mut get());
        assert_eq!(code, 0, "{out}{err}");
        same(&target, &bytes);
    }
}
