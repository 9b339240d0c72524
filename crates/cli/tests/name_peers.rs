//! Two sites with name servers of their own, which know one address of each other: real daemons.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test with real processes"
)]

mod support;

use std::fs;

use serde_json::Value;
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
