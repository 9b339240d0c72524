//! Pointers: names that stay while the content changes; and names that their owners take back.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test with real processes"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{self, Network, Running, await_that, finished, free_port, whimbrel};

/// A network, and a user at each host with a directory of names.
struct Scene {
    network: Network,
    server: String,
}

impl Scene {
    fn new() -> Scene {
        let network = Network::start(None);
        let server = format!("127.0.0.1:{}", network.ports[0]);
        let scene = Scene { network, server };
        for key in ["publisher", "next"] {
            let key = scene.network.path(&format!("{key}.pem"));
            let (code, _, err) = finished(whimbrel().args(["id", "new"]).arg(key));
            assert_eq!(code, 0, "{err}");
        }
        scene.done(&["names", "add", "ship-7", &scene.owner()]);
        scene
    }

    fn owner(&self) -> String {
        self.network.guid_of("publisher")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = whimbrel();
        command.env("WHIMBREL_NAMES", self.network.path("names.json"));
        command.env("WHIMBREL_NAME_SERVER", &self.server);
        command.args(words);
        command
    }

    fn done(&self, words: &[&str]) -> String {
        let (code, out, err) = finished(&mut self.command(words));
        assert_eq!(code, 0, "{words:?}: {err}");
        out + &err
    }

    /// Serves a path from host 1 as `films`; returns when the pointer and the content are announced.
    fn serve(&self, path: &Path) -> Running {
        let mut serve =
            self.command(&["serve", "--json", "--no-cache", "--as", "films", "--as-key"]);
        serve.arg(self.network.path("publisher.pem"));
        serve.arg("--socket").arg(self.network.host_socket(1));
        let serving = Running::start(serve.arg(path));
        let (mut pointed, mut announced) = (false, false);
        while !(pointed && announced) {
            let line = serving.await_json(|_| true);
            pointed |= line["event"] == "pointer" && line["owner"] == self.owner().as_str();
            announced |= line["event"] == "announced" && line["outcome"] == "Registered";
        }
        serving
    }

    fn get(&self, name: &str, output: &Path) -> Command {
        let mut get = self.command(&["get", name, "--timeout", "100 s", "--socket"]);
        get.arg(self.network.host_socket(0)).arg("-o").arg(output);
        get
    }
}

fn folder(path: &Path, text: &str) {
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("film"), text).unwrap();
}

#[test]
fn a_pointer_leads_to_the_newest_version_and_get_follows_it() {
    let scene = Scene::new();
    let (films, copy) = (scene.network.path("films"), scene.network.path("copy"));
    folder(&films, "first");
    let mut serving = scene.serve(&films);
    let (code, _, err) = finished(&mut scene.get("ship-7/films", &copy));
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("(ship-7)") && err.contains("ago"), "{err}");
    assert_eq!(fs::read_to_string(copy.join("film")).unwrap(), "first");
    let listed = scene.done(&["gnrs", "lookup", "--pointers", "ship-7"]);
    assert!(listed.contains("films"), "{listed}");

    let followed = scene.network.path("followed");
    let mut follow = scene.get("ship-7/films", &followed);
    let mut following = Running::start(follow.arg("--follow"));
    let text = || fs::read_to_string(followed.join("film")).unwrap_or_default();
    await_that("the first version", || text() == "first");
    serving.kill();
    folder(&films, "second");
    let _serving = scene.serve(&films);
    await_that("the second version", || text() == "second");
    following.signal("TERM");
    assert_eq!(following.exit_code(), 143);
    let (code, _, err) = finished(scene.get("ship-7/films", &copy).arg("--update"));
    assert_eq!(code, 0, "{err}");
    assert_eq!(fs::read_to_string(copy.join("film")).unwrap(), "second");
}

#[test]
fn a_site_that_is_cut_off_uses_the_newest_version_it_knows() {
    let mut scene = Scene::new();
    let (film, copy) = (scene.network.path("film"), scene.network.path("copy"));
    fs::write(&film, "first").unwrap();
    // The content is asked of its host: only the pointer needs a name server.
    let at = format!("127.0.0.1:{}", free_port());
    let mut serve = scene.command(&["serve", "--json", "--no-cache", "--as", "films", "--as-key"]);
    serve.arg(scene.network.path("publisher.pem"));
    let serving = Running::start(serve.args(["--listen", &at]).arg(&film));
    serving.await_json(|line| line["event"] == "pointer");
    let get = |scene: &Scene, name: &str| {
        let mut get = scene.command(&["get", name, "--timeout", "20 s", "--from", &at, "-o"]);
        finished(get.arg(&copy))
    };
    let (code, _, err) = get(&scene, "ship-7/films");
    assert_eq!(code, 0, "{err}");
    scene.network.gnrs.take().unwrap().kill();
    fs::remove_file(&copy).unwrap();
    let (code, _, err) = get(&scene, "ship-7/films");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("newest version known here"), "{err}");
    assert_eq!(fs::read_to_string(&copy).unwrap(), "first");
    let (code, _, err) = get(&scene, "ship-7/others");
    assert_eq!(code, 7, "{err}");
}

#[test]
fn a_pointer_is_published_alone_and_removed() {
    let scene = Scene::new();
    let film = scene.network.path("film");
    fs::write(&film, "a few bytes").unwrap();
    let (key, film) = (
        scene.network.path("publisher.pem"),
        film.to_str().unwrap().to_owned(),
    );
    let key = key.to_str().unwrap();
    let publish = |more: &[&str]| {
        let words = ["publish", "--as", "films", "--as-key", key];
        finished(&mut scene.command(&[&words, more].concat()))
    };
    let (code, out, err) = publish(&[&film]);
    assert_eq!(code, 0, "{err}");
    let content = support::name_of(b"a few bytes");
    assert!(
        out.contains(&format!("{content}  {}/films", scene.owner())),
        "{out}"
    );
    let (code, _, err) = publish(&["--remove"]);
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = finished(&mut scene.get("ship-7/films", &scene.network.path("copy")));
    assert_eq!(code, 3, "{err}");
}

#[test]
fn a_revoked_name_is_said_to_be_revoked_and_its_successor_followed() {
    let scene = Scene::new();
    let path = |name: &str| scene.network.path(name).to_str().unwrap().to_owned();
    let (old, new, statement) = (path("publisher.pem"), path("next.pem"), path("rotation"));
    scene.done(&["id", "rotate", &old, &new, "-o", &statement]);
    let refused = scene
        .command(&["id", "rotate", &old, &old, "-o", &path("x")])
        .output();
    assert_eq!(refused.unwrap().status.code(), Some(2));
    // Signing changes nothing.
    let film = path("film");
    fs::write(&film, "a few bytes").unwrap();
    scene.done(&["publish", "--as", "films", "--as-key", &old, &film]);
    scene.done(&["id", "publish", &statement]);
    let next = scene.network.guid_of("next");
    let said = scene.done(&["gnrs", "lookup", "ship-7"]);
    assert!(said.contains("revoked") && said.contains(&next), "{said}");
    let late = finished(&mut scene.command(&["publish", "--as", "late", "--as-key", &old, &film]));
    assert!(late.0 == 1 && late.2.contains("was revoked"), "{late:?}");

    // The successor publishes; the old name leads there.
    scene.done(&["publish", "--as", "films", "--as-key", &new, &film]);
    let (_serving, _) = scene.network.serve(&[Path::new(&film)]);
    let copy = scene.network.path("copy");
    let (code, _, err) = finished(&mut scene.get("ship-7/films", &copy));
    assert_eq!(code, 0, "{err}");
    assert!(
        err.contains("was replaced by its owner") && err.contains(&next),
        "{err}"
    );
    assert_eq!(fs::read_to_string(&copy).unwrap(), "a few bytes");

    // A revocation without a successor is above that.
    let last = path("revocation");
    scene.done(&["id", "revoke", &old, "-o", &last]);
    scene.done(&["id", "publish", &last]);
    let (code, _, err) = finished(&mut scene.get("ship-7/films", &copy));
    assert!(
        code == 3 && err.contains("names no successor"),
        "{code} {err}"
    );
    let again = finished(&mut scene.command(&["id", "publish", &statement]));
    assert_eq!(again.0, 1, "{again:?}");
}
