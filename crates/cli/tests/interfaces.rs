//! A host's links, as its user sees and changes them: real daemons in namespaces, a client with two
//! links to one router, `host interfaces` and `host policy` while a file is fetched.
//!
//! Skipped without network namespaces.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::ops::Deref;
use std::time::Duration;

use crate::support;
use crate::support::scene::{self, Scene};
use serde_json::Value;
use whimbrel_lab::Process;
use whimbrel_sim::link::LinkSpec;

const LENGTH: u64 = 24 << 20;
/// What sessions, attachments and probes of an idle link take, for as long as these tests last.
const IDLE: u64 = 100_000;

/// A client with the links `wifi` and `lte` to a router, on whose machine a host serves a file.
struct TwoLinks {
    scene: Scene,
    name: String,
}

impl Deref for TwoLinks {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

impl TwoLinks {
    /// `lte` follows in the configuration of that link.
    fn build(lte: &str) -> Option<TwoLinks> {
        let spec = || LinkSpec::new(24_000_000, Duration::from_millis(10));
        let mut scene = Scene::build(|it| {
            (it.host("c").host("r"))
                .link("wifi", "c", "r", spec(), spec())
                .link("lte", "c", "r", spec(), spec())
        })?;
        let name = scene.file("file", LENGTH, 9);
        let link = |label: &str, to: &str| scene::link(label, &format!("{to}:4711"));
        let [wifi, lte_at] = ["wifi", "lte"].map(|it| scene.address("r", it));
        let client = link("wifi", &wifi) + &link("lte", &lte_at) + lte + "\n";
        scene.daemon("r", "router", "router", scene::LISTEN);
        scene.daemon("r", "host", "server", &link("access", "127.0.0.1"));
        scene.daemon("c", "host", "client", &client);
        scene.serve("r", "server", "file");
        Some(TwoLinks { scene, name })
    }

    /// A command about the client's host: exit code, output and errors.
    fn about_host(&self, arguments: &[&str]) -> (i32, String, String) {
        let arguments = [&["host"], arguments, &["--socket", "client.sock"]].concat();
        support::finished(&mut self.command("command", &arguments))
    }

    fn link(&self, label: &str) -> Value {
        let (code, json, errors) = self.about_host(&["interfaces", "--json"]);
        assert_eq!(code, 0, "{errors}");
        let json: Value = serde_json::from_str(&json).unwrap();
        let mut links = json["interfaces"].as_array().unwrap().iter();
        links.find(|link| link["label"] == label).unwrap().clone()
    }

    fn bytes(&self, label: &str) -> u64 {
        self.link(label)["bytes"].as_u64().unwrap()
    }

    fn await_verdict(&self, label: &str, verdict: &str) {
        self.await_that(&format!("{label}: {verdict}"), || {
            self.link(label)["verdict"] == verdict
        });
    }

    fn change(&self, arguments: &[&str]) -> String {
        let (code, text, errors) = self.about_host(arguments);
        assert_eq!(code, 0, "{arguments:?}: {errors}");
        text
    }

    fn get(&self) -> Process {
        self.scene.get("c", "client", &self.name)
    }
}

#[test]
fn a_metered_link_takes_over_when_the_kernel_says_that_the_other_has_gone_and_steps_back() {
    let Some(links) = TwoLinks::build("metered = true") else {
        return;
    };
    links.await_verdict("lte", "metered");
    let get = links.get();
    links.await_that("some of the file", || links.bytes("wifi") > 2 << 20);
    assert!(links.bytes("lte") < IDLE, "{}", links.link("lte"));
    links.topology.set_outage("wifi", true).unwrap();
    links.topology.set_carrier("c", "wifi", false).unwrap();
    links.await_verdict("wifi", "no-carrier");
    links.await_verdict("lte", "used");
    links.await_that("the other link", || links.bytes("lte") > 2 << 20);
    links.topology.set_outage("wifi", false).unwrap();
    links.topology.set_carrier("c", "wifi", true).unwrap();
    links.await_verdict("wifi", "used");
    links.await_verdict("lte", "metered");
    links.finish(get, "file");
}

#[test]
fn links_and_policy_of_a_running_host_are_shown_and_changed_by_commands() {
    let Some(links) = TwoLinks::build("") else {
        return;
    };
    links.await_verdict("wifi", "used");
    links.await_verdict("lte", "used");
    let get = links.get();
    for link in ["wifi", "lte"] {
        links.await_that(link, || links.bytes(link) > 1 << 20);
    }
    let shown = links.change(&["interfaces", "set", "lte", "--off"]);
    let row = shown.lines().find(|line| line.starts_with("lte")).unwrap();
    assert!(row.contains("off"), "{shown}");
    let before = (links.bytes("wifi"), links.bytes("lte"));
    links.await_that("the rest by the other", || {
        links.bytes("wifi") > before.0 + (1 << 20)
    });
    assert_eq!(links.bytes("lte"), before.1, "it is off");
    links.change(&["interfaces", "set", "lte", "--on", "--quota", "100 GB"]);
    links.await_verdict("lte", "used");
    let left = links.link("lte")["quota_left"].as_u64();
    assert!(left.is_some_and(|left| left < 100_000_000_000), "{left:?}");
    assert!(
        links
            .change(&["policy", "order", "--prefer", "lte"])
            .contains("order")
    );
    links.await_verdict("wifi", "policy");
    assert_eq!(
        links.change(&["policy"]).lines().next(),
        Some("policy: order")
    );
    links.finish(get, "file");
    links.change(&["interfaces", "set", "lte", "--quota", "1 kB"]);
    links.await_verdict("lte", "quota");
    links.await_verdict("wifi", "used");
    links.change(&["interfaces", "set", "wifi", "--off"]);
    links.await_that("the reason of the host's wait", || {
        let (_, status, _) = links.about_host(&["status"]);
        let mut lines = status.lines().filter(|line| line.starts_with("waiting: "));
        lines.any(|line| line.contains("its quota is used up") && line.contains("switched off"))
    });
    for (bad, code, why) in [
        (
            &["interfaces", "set", "nobody", "--off"][..],
            2,
            "wifi, lte",
        ),
        (&["interfaces", "set", "lte"], 2, "required"),
        (&["interfaces", "set", "lte", "--quota", "much"], 2, "none"),
        (&["policy", "random"], 2, "everywhere"),
    ] {
        let (given, _, errors) = links.about_host(bad);
        assert_eq!(given, code, "{bad:?}: {errors}");
        assert!(errors.contains(why), "{bad:?}: {errors}");
    }
}
