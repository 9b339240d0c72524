//! Which planes a router runs: said by the check, the start and the status.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;

use crate::support::{PATIENCE, Running, await_that, finished, free_port, whimbrel};

/// Returns the line about the planes that a router prints when it starts.
fn planes_of(router: &Running) -> String {
    loop {
        let line = router.lines.recv_timeout(PATIENCE).unwrap();
        if line.starts_with("planes: ") {
            return line;
        }
    }
}

#[test]
fn the_sample_of_a_router_listens_for_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    let (code, sample, _) = finished(whimbrel().args(["config", "sample", "router"]));
    assert_eq!(code, 0);
    let at = format!("127.0.0.1:{}", free_port());
    // The port of the sample may be in use on this machine.
    let here = sample.replace("\nbind = \"4711\"\n", &format!("\nbind = \"{at}\"\n"));
    assert_ne!(here, sample);
    fs::write(&file, here).unwrap();
    let (code, checked, err) = finished(whimbrel().args(["config", "check"]).arg(&file));
    assert_eq!(code, 0, "{err}");
    let planes = "planes: MobilityFirst, listening for hosts; no NDN";
    assert!(checked.contains(planes), "{checked}");
    let mut router = whimbrel();
    router.args(["router", "run", "-c"]).arg(&file);
    router.arg("--key").arg(folder.path().join("key"));
    router.arg("--socket").arg(folder.path().join("socket"));
    let router = Running::start(&mut router);
    assert!(planes_of(&router).starts_with(planes));
    let source = folder.path().join("film");
    fs::write(&source, "a host attaches").unwrap();
    let serve = ["serve", "--json", "--no-cache", "--router", &at];
    let serving = Running::start(whimbrel().args(serve).arg(&source));
    serving.await_json(|line| line["event"] == "announced");
}

#[test]
fn a_router_of_ndn_alone_says_that_no_host_can_attach() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ndn.sock");
    let listen = format!("127.0.0.1:{}", free_port());
    let websocket = format!("127.0.0.1:{}", free_port());
    let mut router = whimbrel();
    router.args(["router", "run", "--ndn-listen", &listen]);
    router.args(["--ndn-websocket", &websocket, "--ndn-socket"]);
    let router = Running::start(router.arg(&socket));
    let planes = planes_of(&router);
    assert!(planes.contains("no MobilityFirst, so no host can attach"));
    await_that("the socket", || socket.exists());
    let mut status = whimbrel();
    status.env(
        "NDN_CLIENT_TRANSPORT",
        format!("unix://{}", socket.display()),
    );
    // Nothing of the system's or of another test's.
    status.env("XDG_RUNTIME_DIR", folder.path());
    let (code, _, err) = finished(status.args(["router", "status"]));
    assert_eq!(code, 5, "{err}");
    assert!(err.contains("forwards NDN only"), "{err}");
}
