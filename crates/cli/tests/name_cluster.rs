//! Name servers on a cluster of Debian's redis-server, with real daemons.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test with real processes"
)]

#[path = "../../gnrs-cluster/tests/servers/mod.rs"]
mod servers;
mod support;

use std::fs;

use serde_json::Value;
use servers::Cluster;
use support::{Network, await_that, finished, noise, whimbrel};

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
    let cluster = Cluster::with_password(1, 0, &[], Some("secret"));
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
