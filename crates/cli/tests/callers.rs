//! A router that admits only those that its operator lets in.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::path::Path;

use crate::support::{self, Running, finished, free_port, name_of, whimbrel};
use serde_json::Value;

static FILM: [u8; 300_000] = [7; 300_000];

struct Site {
    folder: tempfile::TempDir,
    at: String,
}

impl Site {
    fn new() -> Site {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("router.toml"),
            "[hop]\ncallers = \"listed\"\n",
        )
        .unwrap();
        fs::write(folder.path().join("film"), FILM).unwrap();
        Site {
            folder,
            at: format!("127.0.0.1:{}", free_port()),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn router(&self) -> Running {
        let mut router = whimbrel();
        router.args(["router", "run", "--json", "--listen", &self.at]);
        router.arg("--config").arg(self.path("router.toml"));
        router.arg("--key").arg(self.path("router.pem"));
        let router = Running::start(router.arg("--socket").arg(self.path("router.sock")));
        router.await_json(|line| line.get("guid").is_some());
        router
    }

    fn host(&self, name: &str) -> (Running, String) {
        let mut host = whimbrel();
        host.args(["host", "run", "--json", "--router", &self.at]);
        host.arg("--key").arg(self.path(&format!("{name}.pem")));
        let host = Running::start(host.arg("--socket").arg(self.path(&format!("{name}.sock"))));
        let line = host.await_json(|line| line.get("guid").is_some());
        let guid = line["guid"].as_str().unwrap().to_owned();
        (host, guid)
    }

    fn serve(&self, host: &str) -> Running {
        let mut serve = whimbrel();
        serve.args(["serve", "--json", "--no-cache", "--socket"]);
        Running::start(
            serve
                .arg(self.path(&format!("{host}.sock")))
                .arg(self.path("film")),
        )
    }

    /// Runs `router peers`, `allow` or `deny`. Returns its exit code, its answer and its errors.
    fn manage(&self, arguments: &[&str]) -> (i32, Value, String) {
        let mut command = whimbrel();
        command
            .arg("router")
            .args(arguments)
            .arg("--json")
            .arg("--socket");
        let (code, out, err) = finished(command.arg(self.path("router.sock")));
        (code, serde_json::from_str(&out).unwrap_or_default(), err)
    }

    fn caller(&self, name: &str) -> Value {
        let (code, answer, err) = self.manage(&["peers"]);
        assert_eq!(code, 0, "{err}");
        let callers = answer["callers"].as_array().unwrap();
        let caller = callers.iter().find(|caller| caller["name"] == name);
        caller.cloned().unwrap_or_default()
    }

    fn await_caller(&self, name: &str, is: impl Fn(&Value) -> bool) {
        support::await_that("a caller is in that state", || is(&self.caller(name)));
    }
}

#[test]
fn a_router_that_lists_its_callers_lets_in_whom_its_operator_allows_and_nobody_else() {
    let site = Site::new();
    let router = site.router();
    let (_host, name) = site.host("site");
    let serve = site.serve("site");
    // Whoever waits reads why, and the operator who knocked.
    let line = serve.await_json(|line| line["wait"]["to"][0]["unwilling"].is_string());
    assert!(
        line["text"].as_str().unwrap().contains("does not admit"),
        "{line}"
    );
    site.await_caller(&name, |caller| caller["refused"].as_u64() > Some(0));
    assert_eq!(site.caller(&name)["connected"], false);

    let (code, _, err) = site.manage(&["allow", "0000"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("no caller is known here"), "{err}");
    let (code, _, err) = site.manage(&["allow", &name[..8]]);
    assert_eq!(code, 0, "{err}");
    site.await_caller(&name, |caller| caller["connected"] == true);

    // Another one is still kept out, and then fetches what the first one serves.
    let (_other, stranger) = site.host("other");
    let mut get = whimbrel();
    get.args(["get", &name_of(&FILM), "--json", "--socket"]);
    get.arg(site.path("other.sock"))
        .arg("-o")
        .arg(site.path("got"));
    let mut get = Running::start(&mut get);
    site.await_caller(&stranger, |caller| caller["refused"].as_u64() > Some(0));
    let (code, _, err) = site.manage(&["allow", &stranger]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(get.exit_code(), 0);
    assert_eq!(fs::read(site.path("got")).unwrap(), FILM);

    // Decisions outlive the router.
    drop(router);
    let _router = site.router();
    site.await_caller(&name, |caller| caller["connected"] == true);
    assert_eq!(site.caller(&name)["decision"], "allowed");

    let (code, _, err) = site.manage(&["deny", &name]);
    assert_eq!(code, 0, "{err}");
    site.await_caller(&name, |caller| {
        caller["connected"] == false && caller["refused"].as_u64() > Some(0)
    });
}

#[test]
fn a_node_whose_list_of_callers_is_damaged_does_not_start() {
    let site = Site::new();
    let file = site.path("router.pem.callers.json");
    fs::write(&file, "{\"allowed\": [").unwrap();
    let mut router = whimbrel();
    router.args(["router", "run", "--listen", &site.at, "--key"]);
    router.arg(site.path("router.pem"));
    router.arg("--socket").arg(site.path("router.sock"));
    let messages = site.path("messages");
    router.stderr(fs::File::create(&messages).unwrap());
    assert_eq!(Running::start(&mut router).exit_code(), 1);
    let said = fs::read_to_string(messages).unwrap();
    let why = format!("cannot read which names may call, {}", file.display());
    assert!(said.contains(&why), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"allowed\": [");
}

#[test]
fn a_decision_that_cannot_be_kept_is_reported() {
    let site = Site::new();
    let router = site.router();
    let name = "ab".repeat(32);
    let (code, answer, err) = site.manage(&["deny", &name]);
    assert_eq!((code, &answer["kept"]), (0, &Value::Bool(true)), "{err}");
    // A folder in the place of the new file cannot be replaced, as on a disk that is full.
    fs::create_dir(site.path("router.pem.callers.json.new")).unwrap();
    let (code, answer, err) = site.manage(&["allow", &name]);
    assert_eq!((code, &answer["kept"]), (6, &Value::Bool(false)), "{err}");
    assert!(err.contains("cannot be kept next to its key"), "{err}");
    // It is in force, and written as soon as that is possible.
    assert_eq!(site.caller(&name)["decision"], "allowed");
    fs::remove_dir(site.path("router.pem.callers.json.new")).unwrap();
    let (code, answer, err) = site.manage(&["allow", &name]);
    assert_eq!((code, &answer["kept"]), (0, &Value::Bool(true)), "{err}");
    drop(router);
    let _router = site.router();
    assert_eq!(site.caller(&name)["decision"], "allowed");
}

#[test]
fn config_check_refuses_an_unknown_policy_for_callers() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.toml");
    let check = |text: &str| {
        fs::write(&file, text).unwrap();
        let mut command = whimbrel();
        command.args(["config", "check"]).arg::<&Path>(&file);
        finished(&mut command)
    };
    // Callers of a plain link prove their names, too.
    let (code, _, err) = check(
        "[hop]\ncallers = \"listed\"\n[[link]]\nbind = \"127.0.0.1:4711\"\nlisten = true\nplain = true\n",
    );
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = check("[hop]\ncallers = \"friends\"\n");
    assert_ne!(code, 0, "{out}");
    assert!(format!("{out}{err}").contains("first-use"), "{out}{err}");
}
