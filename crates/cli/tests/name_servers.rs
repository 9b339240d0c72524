//! Name servers with real daemons: peers that know one address of each other, several on a cluster of
//! Debian's redis-server, and the names of routers.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test with real processes"
)]

#[path = "../../gnrs-cluster/tests/servers/mod.rs"]
mod servers;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{
    self, METRICS, Network, Running, await_that, finished, free_port, noise, whimbrel,
};
use serde_json::Value;
use servers::{Cluster, Security};

const MIB: usize = 1 << 20;

fn status(network: &Network, server: &str) -> Value {
    let (code, out, err) = finished(
        whimbrel()
            .args(["gnrs", "status", "--json", "--socket"])
            .arg(network.path(&format!("{server}.sock"))),
    );
    assert_eq!(code, 0, "{err}");
    serde_json::from_str(&out).unwrap()
}

/// Returns true if the name server at this port answers for a name.
fn knows(port: u16, name: &str) -> bool {
    let server = format!("127.0.0.1:{port}");
    let lookup = [
        "gnrs",
        "lookup",
        "--timeout",
        "5 s",
        "--server",
        &server,
        name,
    ];
    finished(whimbrel().args(lookup)).0 == 0
}

#[test]
fn two_sites_fetch_from_each_other_by_name_while_a_name_server_is_killed() {
    let mut network = Network::of_two_sites();
    let (here, there) = (network.peer.unwrap(), network.ports[0]);
    assert_eq!(status(&network, "other-gnrs")["peers"][0]["answers"], true);
    let (first, second) = (network.path("first"), network.path("second"));
    let bytes = [noise(4 * MIB, 1), noise(MIB, 2)];
    fs::write(&first, &bytes[0]).unwrap();
    fs::write(&second, &bytes[1]).unwrap();
    // Host 1 registers with the name server of its site alone; host 0 asks that of its own.
    let (_serving, names) = network.serve(&[&first, &second]);
    await_that("the names are known at the other site", || {
        names.iter().all(|name| knows(here, name))
    });
    let copy = network.path("copy");
    let mut getting = network.get_until(&names[0], &copy, bytes[0].len(), 0.1);
    network.gnrs.take().unwrap().kill();
    assert_eq!(getting.exit_code(), 0);
    assert_eq!(fs::read(&copy).unwrap(), bytes[0]);
    // The server of the names' own site is gone: the copies lead there.
    let copy = network.path("second copy");
    let (code, _, err) = finished(&mut network.get(&names[1], &copy));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read(&copy).unwrap(), bytes[1]);

    // It comes back without its records, and gets them from its peer.
    let empty = network.path("new names");
    let again = network.name_server("gnrs", there, &empty, Some(here));
    network.gnrs = Some(again);
    let host = network.guid_of("host-0");
    await_that("the host of the other site is known again", || {
        knows(there, &host)
    });
    await_that("both answer each other", || {
        status(&network, "gnrs")["peers"][0]["answers"] == true
            && status(&network, "other-gnrs")["peers"][0]["answers"] == true
    });
}

#[test]
fn sites_with_name_servers_of_their_own_on_one_cluster_find_each_other_and_one_may_die() {
    let cluster = Cluster::start(3, 0, &[]);
    let mut network = Network::on_cluster(cluster.address());
    let serve = |network: &Network, name: &str, seed: u64| {
        let (path, bytes) = (network.path(name), noise(4 * MIB, seed));
        fs::write(&path, &bytes).unwrap();
        let (serving, names) = network.serve(&[&path]);
        (serving, names[0].clone(), bytes)
    };
    // Host 1 is registered by its router's name server; the other router asks its own.
    let (_first, name, bytes) = serve(&network, "first", 1);
    let copy = network.path("copy");
    let (code, _, err) = finished(&mut network.get(&name, &copy));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read(&copy).unwrap(), bytes);
    let of_other = status(&network, "other-gnrs");
    assert!(
        of_other["counters"]["lookups"].as_u64() > Some(0),
        "{of_other}"
    );
    let engine = &of_other["engine"];
    assert_eq!(
        (&engine["works"], &engine["uncovered_slots"]),
        (&true.into(), &0.into())
    );
    assert_eq!(engine["primaries"].as_object().unwrap().len(), 3);
    let page = support::metrics_page(&network.metrics["other-gnrs"]);
    assert!(
        support::sum_of(&page, "whimbrel_gnrs_engine_primaries", "") >= 3.0,
        "{page}"
    );

    // One name server dies; what is new is found by the other one.
    network.other_gnrs.take().unwrap().kill();
    let (_second, name, bytes) = serve(&network, "second", 2);
    let copy = network.path("second copy");
    let (code, _, err) = finished(&mut network.get(&name, &copy));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read(&copy).unwrap(), bytes);
}

#[test]
fn a_name_server_tells_what_its_cluster_lacks_and_goes_on_when_it_is_there() {
    let mut cluster = Cluster::start(3, 0, &[]);
    let network = Network::on_cluster(cluster.address());
    let host = network.guid_of("host-1");
    let server = format!("127.0.0.1:{}", network.ports[0]);
    let lookup = || {
        let arguments = [
            "gnrs",
            "lookup",
            "--json",
            "--timeout",
            "3 s",
            "--server",
            &server,
        ];
        finished(whimbrel().args(arguments).arg(&host))
    };
    assert_eq!(lookup().0, 0);
    assert_eq!(lookup().0, 0);
    (0..3).for_each(|number| cluster.kill(number));
    await_that("the server says that its store does not work", || {
        lookup();
        let status = status(&network, "gnrs");
        status["engine"]["works"] == false
    });
    // A name in use is still answered.
    assert_eq!(lookup().0, 0, "{}", lookup().2);
    (0..3).for_each(|number| cluster.revive(number));
    await_that("what the cluster has lost is there again", || {
        status(&network, "gnrs")["engine"]["works"] == true && lookup().0 == 0
    });
}

#[test]
fn a_cluster_that_refuses_the_password_is_an_error_at_the_start() {
    let security = Security {
        password: Some("secret"),
        tls: false,
    };
    let cluster = Cluster::secured(1, security);
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (folder.path().join("right"), folder.path().join("wrong"));
    fs::write(&right, "secret\n").unwrap();
    fs::write(&wrong, "guess\n").unwrap();
    let serve = |password: &std::path::Path| {
        let config = folder.path().join("gnrs.toml");
        let store = format!("redis://127.0.0.1:{}", cluster.nodes[0].port);
        let text = format!(
            "[gnrs]\nlisten = \"127.0.0.1:0\"\nstore = \"{store}\"\nstore_password_file = \"{}\"\n",
            password.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = whimbrel();
        command.args(["gnrs", "serve", "--json", "--socket"]);
        command
            .arg(folder.path().join("gnrs.sock"))
            .arg("--config")
            .arg(config);
        command
    };
    let (code, _, err) = finished(&mut serve(&wrong));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("refuses this user or password"), "{err}");
    assert!(!err.contains("guess"), "{err}");
    let running = support::Running::start(&mut serve(&right));
    let opened = running.await_json(|line| line.get("links").is_some());
    let shown = opened["store"].as_str().unwrap();
    assert!(
        shown.starts_with("redis://127.0.0.1:") && !shown.contains("secret"),
        "{shown}"
    );
}

/// A router in a line of them, with the keys of its name in `folder`.
fn router(folder: &Path, name: &str, more: &str) -> Running {
    let config = folder.join(format!("{name}.toml"));
    fs::write(&config, more).unwrap();
    let mut command = whimbrel();
    command.args(["router", "run", "--json", "--config"]);
    command.arg(config).arg("--key");
    command.arg(folder.join(format!("{name}.pem")));
    command
        .arg("--socket")
        .arg(folder.join(format!("{name}.sock")));
    let running = Running::start(command.args(METRICS));
    running.await_json(|line| line.get("guid").is_some());
    running
}

fn ping(socket: &Path, name: &str) -> Command {
    let mut command = whimbrel();
    command.args(["ping", "-c", "1", "-W", "20 s", name, "--socket"]);
    command.arg(socket);
    command
}

#[test]
fn ping_reaches_every_router_of_a_line_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let [gnrs, first, middle, last] = [(); 4].map(|()| free_port());
    let mut serve = whimbrel();
    serve.args(["gnrs", "serve", "--json", "--store", "memory", "--listen"]);
    serve.arg(format!("127.0.0.1:{gnrs}")).arg("--socket");
    let names = Running::start(serve.arg(path("gnrs.sock")));
    names.await_json(|line| line.get("links").is_some());
    let name = |key: &str| {
        let (code, out, err) = finished(whimbrel().args(["id", "new"]).arg(path(key)));
        assert_eq!(code, 0, "{err}");
        out.split_whitespace().last().unwrap().to_owned()
    };
    let [a, b, c] = ["first.pem", "middle.pem", "last.pem"].map(name);
    // Nobody has a route to the far end of the line but the one in the middle.
    let config = |more: &str, listen: u16, links: &[(u16, &str)]| {
        let mut text = format!("[router]\nname_servers = [\"127.0.0.1:{gnrs}\"]\n{more}");
        text += &format!(
            "[[link]]\nlabel = \"callers\"\nbind = \"127.0.0.1:{listen}\"\nlisten = true\n"
        );
        for (port, name) in links {
            text += &format!(
                "[[link]]\nlabel = \"to-{port}\"\nremote = \"127.0.0.1:{port}\"\nname = \"{name}\"\n"
            );
        }
        text
    };
    let towards = format!("default_route = \"{b}\"\n");
    let _routers = [
        router(
            folder.path(),
            "first",
            &config(&towards, first, &[(middle, &b)]),
        ),
        router(folder.path(), "middle", &config("", middle, &[(last, &c)])),
        router(
            folder.path(),
            "last",
            &config(&format!("{towards}neighbours = [\"{b}\"]\n"), last, &[]),
        ),
    ];
    let mut host = whimbrel();
    let access = format!("127.0.0.1:{first}");
    host.args(["host", "run", "--json", "--router", &access, "--key"]);
    host.arg(path("host.pem")).arg("--socket");
    let host = Running::start(host.arg(path("host.sock")));
    host.await_json(|line| line.get("guid").is_some());
    for name in [&a, &b, &c] {
        await_that("the router has a record", || knows(gnrs, name));
        let (code, out, err) = finished(&mut ping(&path("host.sock"), name));
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains(&name[..8]), "{out}");
    }
}
