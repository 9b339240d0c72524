//! A host's links, as its user sees and changes them: real daemons in namespaces, a client with two
//! links to one router, `host interfaces` and `host policy` while a file is fetched.
//!
//! Skipped without network namespaces.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use whimbrel_core::SeededRng;
use whimbrel_lab::{Process, Topology, TopologyBuilder, lab_available};
use whimbrel_sim::link::LinkSpec;

const PATIENCE: Duration = Duration::from_secs(90);
const LENGTH: u64 = 24 << 20;
/// What sessions, attachments and probes of an idle link take, for as long as these tests last.
const IDLE: u64 = 100_000;

struct Scene {
    folder: tempfile::TempDir,
    topology: Topology,
    name: String,
    daemons: Vec<Process>,
}

impl Scene {
    /// `lte` follows in the configuration of that link.
    fn build(lte: &str) -> Option<Scene> {
        if !lab_available() {
            eprintln!("skipped: no network namespaces");
            return None;
        }
        let spec = || LinkSpec::new(24_000_000, Duration::from_millis(10));
        let topology = TopologyBuilder::new(1)
            .host("c")
            .host("r")
            .link("wifi", "c", "r", spec(), spec())
            .link("lte", "c", "r", spec(), spec())
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let mut rng = SeededRng::new(9);
        let words = (0..LENGTH / 8).flat_map(|_| rng.next_word().to_le_bytes());
        fs::write(&file, words.collect::<Vec<u8>>()).unwrap();
        let name = blake3::hash(&fs::read(&file).unwrap()).to_hex().to_string();
        let mut scene = Scene {
            folder,
            topology,
            name,
            daemons: Vec::new(),
        };
        scene.start(lte);
        Some(scene)
    }

    fn start(&mut self, lte: &str) {
        let listen = "[[link]]\nlabel = \"callers\"\nbind = \"0.0.0.0:4711\"\nlisten = true\n";
        fs::write(self.path("router.toml"), listen).unwrap();
        let link = |label: &str, remote: String, more: &str| {
            format!("[[link]]\nlabel = \"{label}\"\nremote = \"{remote}:4711\"\n{more}\n")
        };
        let server = link("access", String::from("127.0.0.1"), "");
        fs::write(self.path("server.toml"), server).unwrap();
        let address = |link: &str| self.topology.address_of("r", link).unwrap().to_string();
        let client = link("wifi", address("wifi"), "") + &link("lte", address("lte"), lte);
        fs::write(self.path("client.toml"), client).unwrap();
        for (at, kind, name) in [
            ("r", "router", "router"),
            ("r", "host", "server"),
            ("c", "host", "client"),
        ] {
            let [config, key, socket] = ["toml", "pem", "sock"].map(|it| format!("{name}.{it}"));
            let arguments = [
                kind, "run", "--config", &config, "--key", &key, "--socket", &socket,
            ];
            let daemon = self.whimbrel(at, name, &arguments);
            self.daemons.push(daemon);
            self.await_that(&socket, || self.path(&socket).exists());
        }
        let arguments = [
            "serve",
            "--json",
            "--no-cache",
            "--socket",
            "server.sock",
            "file",
        ];
        let serve = self.whimbrel("r", "serve", &arguments);
        self.daemons.push(serve);
        self.await_that("the announcement", || {
            let said = fs::read_to_string(self.path("serve.out"));
            said.is_ok_and(|text| text.contains("Registered"))
        });
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, log: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whimbrel"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("WHIMBREL_SOCKET")
            .env_remove("WHIMBREL_NAME_SERVER")
            .env("XDG_STATE_HOME", self.path(log))
            .env("HOME", self.path(log))
            .stdin(Stdio::null());
        command
    }

    fn whimbrel(&self, host: &str, log: &str, arguments: &[&str]) -> Process {
        let file = |kind| fs::File::create(self.path(&format!("{log}.{kind}"))).unwrap();
        let mut command = self.command(log, arguments);
        command.stdout(file("out")).stderr(file("log"));
        self.topology.host(host).unwrap().spawn(command).unwrap()
    }

    /// A command about the client's host: exit code, output and errors.
    fn host(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let arguments = [&["host"], arguments, &["--socket", "client.sock"]].concat();
        let done = self.command("command", &arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    }

    fn link(&self, label: &str) -> Value {
        let (code, json, errors) = self.host(&["interfaces", "--json"]);
        assert_eq!(code, Some(0), "{errors}");
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
        let (code, text, errors) = self.host(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {errors}");
        text
    }

    fn get(&self) -> Process {
        let arguments = [
            "get",
            &self.name,
            "--json",
            "--socket",
            "client.sock",
            "-o",
            "arrived",
        ];
        self.whimbrel("c", "get", &arguments)
    }

    fn finish(&self, mut get: Process) {
        let status = get.wait_for(PATIENCE).unwrap();
        assert!(
            status.is_some_and(|status| status.success()),
            "{}",
            self.logs()
        );
        let same = fs::read(self.path("arrived")).unwrap() == fs::read(self.path("file")).unwrap();
        assert!(same, "other bytes arrived");
    }

    fn logs(&self) -> String {
        let log = |name: &str| fs::read_to_string(self.path(&format!("{name}.log")));
        let names = ["router", "client", "get"];
        names
            .map(|name| log(name).unwrap_or_default())
            .join("---\n")
    }

    fn await_that(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < until, "in vain: {what}\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_metered_link_takes_over_when_the_kernel_says_that_the_other_has_gone_and_steps_back() {
    let Some(scene) = Scene::build("metered = true") else {
        return;
    };
    scene.await_verdict("lte", "metered");
    let get = scene.get();
    scene.await_that("some of the file", || scene.bytes("wifi") > 2 << 20);
    assert!(scene.bytes("lte") < IDLE, "{}", scene.link("lte"));
    scene.topology.set_outage("wifi", true).unwrap();
    scene.topology.set_carrier("c", "wifi", false).unwrap();
    scene.await_verdict("wifi", "no-carrier");
    scene.await_verdict("lte", "used");
    scene.await_that("the other link", || scene.bytes("lte") > 2 << 20);
    scene.topology.set_outage("wifi", false).unwrap();
    scene.topology.set_carrier("c", "wifi", true).unwrap();
    scene.await_verdict("wifi", "used");
    scene.await_verdict("lte", "metered");
    scene.finish(get);
}

#[test]
fn links_and_policy_of_a_running_host_are_shown_and_changed_by_commands() {
    let Some(scene) = Scene::build("") else {
        return;
    };
    scene.await_verdict("wifi", "used");
    scene.await_verdict("lte", "used");
    let get = scene.get();
    for link in ["wifi", "lte"] {
        scene.await_that(link, || scene.bytes(link) > 1 << 20);
    }
    let shown = scene.change(&["interfaces", "set", "lte", "--off"]);
    let row = shown.lines().find(|line| line.starts_with("lte")).unwrap();
    assert!(row.contains("off"), "{shown}");
    let before = (scene.bytes("wifi"), scene.bytes("lte"));
    scene.await_that("the rest by the other", || {
        scene.bytes("wifi") > before.0 + (1 << 20)
    });
    assert_eq!(scene.bytes("lte"), before.1, "it is off");
    scene.change(&["interfaces", "set", "lte", "--on", "--quota", "100 GB"]);
    scene.await_verdict("lte", "used");
    let left = scene.link("lte")["quota_left"].as_u64();
    assert!(left.is_some_and(|left| left < 100_000_000_000), "{left:?}");
    assert!(
        scene
            .change(&["policy", "order", "--prefer", "lte"])
            .contains("order")
    );
    scene.await_verdict("wifi", "policy");
    assert_eq!(
        scene.change(&["policy"]).lines().next(),
        Some("policy: order")
    );
    scene.finish(get);
    scene.change(&["interfaces", "set", "lte", "--quota", "1 kB"]);
    scene.await_verdict("lte", "quota");
    scene.await_verdict("wifi", "used");
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
        let (given, _, errors) = scene.host(bad);
        assert_eq!(given, Some(code), "{bad:?}: {errors}");
        assert!(errors.contains(why), "{bad:?}: {errors}");
    }
}
