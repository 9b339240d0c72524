//! Daemons that start before their machine has the address that they are bound to, as over LTE at
//! boot. The tests need network namespaces and are skipped without them.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::time::Duration;

use crate::support::scene::{self, Scene};
use whimbrel_sim::link::LinkSpec;

/// Long enough for a chunk, short enough for a moment.
const LENGTH: u64 = 1 << 20;

#[test]
fn daemons_wait_for_their_address_and_work_when_it_comes() {
    for (late, prefix) in [("10.66.0.1", "32"), ("fd66::1", "128")] {
        let Some(mut scene) = Scene::build(|it| {
            let wire = || LinkSpec::new(24_000_000, Duration::from_millis(5));
            (it.host("c").host("r")).link("lte", "c", "r", wire(), wire())
        }) else {
            return;
        };
        let name = scene.file("file", LENGTH, 3);
        let bind = match late.contains(':') {
            true => format!("[{late}]"),
            false => late.to_owned(),
        };
        let listen = format!(
            "[[link]]\nlabel = \"callers\"\nbind = \"{bind}:4711\"\nlisten = true\n\n[router]\nmetrics = \"{bind}:9100\"\n\n\
             [ndn]\nenabled = true\nsocket = \"ndn.sock\"\ntcp = [\"{bind}:6363\"]\nudp = [\"{bind}:6363\"]\nwebsocket = []\nmulticast = false\n"
        );
        scene.daemon("r", "router", "router", &listen);
        scene.await_that("the remark", || {
            scene.text("router.log").contains("waits for it")
        });
        let with_ipv6 = ["-w", "net.ipv6.conf.lo.disable_ipv6=0"];
        scene.host("r").run("sysctl", &with_ipv6).unwrap();
        scene.ip("r", &format!("address add {late}/{prefix} dev lo"));
        let link = scene::link("access", &format!("{bind}:4711"));
        scene.daemon("r", "host", "server", &link);
        scene.serve("r", "server", "file");
        scene.daemon("r", "host", "client", &link);
        let get = scene.get("r", "client", &name);
        scene.finish(get, "file");
        scene.await_that("the news", || {
            scene.text("router.log").contains("the address has come")
        });
    }
}
