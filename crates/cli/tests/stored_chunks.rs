//! Routers that store on disk, with real processes that are killed.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Running, await_that, finished, free_port, noise, whimbrel};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// Routers on one machine, each with a folder for stored chunks, and the keys of two hosts.
struct Sites {
    folder: tempfile::TempDir,
    names: String,
    _name_server: Running,
}

struct Router {
    name: &'static str,
    at: String,
    neighbour: Option<String>,
    running: Running,
}

impl Sites {
    fn start() -> Sites {
        let folder = tempfile::tempdir().unwrap();
        let names = format!("127.0.0.1:{}", free_port());
        let mut server = whimbrel();
        server.args(["gnrs", "serve", "--json", "--listen", &names]);
        server.arg("--store").arg(folder.path().join("names"));
        server.arg("--socket").arg(folder.path().join("names.sock"));
        let server = Running::start(&mut server);
        server.await_json(|line| line.get("links").is_some());
        Sites {
            folder,
            names,
            _name_server: server,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// The folder of a router's stored chunks.
    fn chunks(&self, router: &str) -> PathBuf {
        self.path(&format!("{router}.chunks"))
    }

    /// `whimbrel router run` with its configuration, and more of `[storage]`.
    fn command(&self, name: &str, at: &str, neighbour: Option<&str>, storage: &str) -> Command {
        let folder = self.chunks(name);
        let link = neighbour.map(|remote| {
            format!("[[link]]\nlabel = \"next\"\nbind = \"127.0.0.1:0\"\nremote = \"{remote}\"\n")
        });
        let text = format!(
            "[router]\nname_servers = [\"{}\"]\n[storage]\nfolder = \"{}\"\n{storage}\n\
             [[link]]\nlabel = \"callers\"\nbind = \"{at}\"\nlisten = true\n{}",
            self.names,
            folder.display(),
            link.unwrap_or_default(),
        );
        let config = self.file(&format!("{name}.toml"), text.as_bytes());
        let mut command = whimbrel();
        command
            .args(["router", "run", "--json", "--config"])
            .arg(config);
        command.arg("--key").arg(self.path(&format!("{name}.pem")));
        command
            .arg("--socket")
            .arg(self.path(&format!("{name}.sock")));
        command
    }

    fn router(&self, name: &'static str, neighbour: Option<&Router>, storage: &str) -> Router {
        let at = format!("127.0.0.1:{}", free_port());
        let neighbour = neighbour.map(|it| it.at.clone());
        let mut command = self.command(name, &at, neighbour.as_deref(), storage);
        let running = Running::start(&mut command);
        running.await_json(|line| line.get("guid").is_some());
        Router {
            name,
            at,
            neighbour,
            running,
        }
    }

    /// Starts a router again that was killed.
    fn again(&self, router: &mut Router) {
        let neighbour = router.neighbour.as_deref();
        let mut command = self.command(router.name, &router.at, neighbour, "");
        router.running = Running::start(&mut command);
        router.running.await_json(|line| line.get("guid").is_some());
    }

    fn status(&self, router: &Router) -> Value {
        let mut command = whimbrel();
        command.args(["router", "status", "--json", "--socket"]);
        command.arg(self.path(&format!("{}.sock", router.name)));
        let (code, out, err) = finished(&mut command);
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }

    /// Waits until a router has `count` chunks or more on its disk.
    fn await_on_disk(&self, router: &Router, count: u64) {
        await_that("the chunks are on the disk", || {
            self.status(router)["disk"]["chunks"].as_u64().unwrap() >= count
        });
    }

    /// Returns true if a router stores nothing for the receiver. What the receiver says to a sender that
    /// has ended may be stored.
    fn has_none(&self, router: &Router) -> bool {
        let receiver = self.name_of("receiver");
        let status = self.status(router);
        let waiting = status["waiting"].as_array().unwrap();
        waiting
            .iter()
            .all(|it| it["destination"] != receiver.as_str())
    }

    fn name_of(&self, key: &str) -> String {
        let path = self.path(key);
        if !path.exists() {
            let (code, _, err) = finished(whimbrel().args(["id", "new"]).arg(&path));
            assert_eq!(code, 0, "{err}");
        }
        let (code, out, err) = finished(whimbrel().args(["id", "show"]).arg(&path));
        assert_eq!(code, 0, "{err}");
        out.trim().to_owned()
    }

    /// Pushes a file or folder to the receiver and returns when the network has it.
    fn push(&self, by: &Router, path: &Path, more: &[&str]) {
        let mut command = whimbrel();
        let to = self.name_of("receiver");
        command.args(["push", "--json", "--router", &by.at, "--to", &to, "--key"]);
        command.arg(self.path("sender")).args(more).arg(path);
        let (code, out, err) = finished(&mut command);
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains("\"taken\""), "{out}");
    }

    /// Starts an inbox and waits until it has received `count` files and nothing else arrives. Returns how
    /// often it says that a file has come.
    fn inbox(&self, at: &Router, count: usize) -> usize {
        let mut command = whimbrel();
        command.args(["inbox", "--json", "--router", &at.at, "--from"]);
        command
            .arg(self.name_of("sender"))
            .arg("--key")
            .arg(self.path("receiver"));
        fs::create_dir_all(self.path("in")).unwrap();
        let inbox = Running::start(command.arg("-o").arg(self.path("in")));
        for _ in 0..count {
            inbox.await_json(|line| line["event"] == "received");
        }
        await_that("the router has nothing left for it", || self.has_none(at));
        let more = inbox.lines.try_iter();
        count + more.filter(|line| line.contains("\"received\"")).count()
    }

    fn same(&self, name: &str, bytes: &[u8]) {
        let received = self.path("in").join(name);
        assert!(
            fs::read(&received).unwrap() == bytes,
            "{}",
            received.display()
        );
    }
}

#[test]
fn five_hundred_stored_chunks_survive_kill_9_and_arrive_once() {
    let sites = Sites::start();
    let mut router = sites.router("a", None, "");
    let bytes = noise(500 * 16 * 1024, 1);
    let file = sites.file("film", &bytes);
    sites.push(&router, &file, &["--chunk-size", "16 KiB"]);
    sites.await_on_disk(&router, 500);
    router.running.kill();
    sites.again(&mut router);
    let status = sites.status(&router);
    assert_eq!(status["stored_chunks"], 500, "{status}");
    assert_eq!(status["counters"]["chunks_restored"], 500);
    assert_eq!(sites.inbox(&router, 1), 1);
    sites.same("film", &bytes);
}

/// A cut leaves a segment without its end, and of the rest any part.
#[test]
fn a_power_cut_in_a_batch_keeps_what_was_synced_before() {
    let sites = Sites::start();
    let mut router = sites.router("a", None, "");
    let bytes = noise(2 * MIB, 2);
    sites.push(
        &router,
        &sites.file("first", &bytes),
        &["--chunk-size", "64 KiB"],
    );
    sites.await_on_disk(&router, 32);
    router.running.kill();
    // What the kernel had not written yet, as the index was synced before it.
    let folder = sites.chunks("a");
    let saved = fs::read(folder.join("index")).unwrap();
    sites.again(&mut router);
    sites.push(&router, &sites.file("second", &noise(MIB, 3)), &[]);
    sites.await_on_disk(&router, 33);
    router.running.kill();
    fs::write(folder.join("index"), saved).unwrap();
    let mut segments: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().contains("segment-"))
        .collect();
    segments.sort();
    let torn = fs::OpenOptions::new()
        .write(true)
        .open(segments.last().unwrap())
        .unwrap();
    torn.set_len(torn.metadata().unwrap().len() / 2).unwrap();
    torn.write_all_at(b"what was there before", 100).unwrap();
    sites.again(&mut router);
    assert_eq!(sites.status(&router)["stored_chunks"], 32);
    assert_eq!(sites.inbox(&router, 1), 1);
    sites.same("first", &bytes);
}

#[test]
fn a_folder_for_a_site_that_is_off_arrives_although_both_routers_were_killed() {
    let sites = Sites::start();
    let mut shore = sites.router("shore", None, "");
    let mut ship = sites.router("ship", Some(&shore), "");
    let (film, note) = (noise(5 * MIB, 4), noise(900, 5));
    sites.file("trip/film", &film);
    sites.file("trip/deep/note", &note);
    sites.push(&ship, &sites.path("trip"), &[]);
    sites.await_on_disk(&ship, 5);
    for router in [&mut shore, &mut ship] {
        router.running.kill();
        sites.again(router);
    }
    assert_eq!(sites.inbox(&shore, 1), 1);
    sites.same("trip/film", &film);
    sites.same("trip/deep/note", &note);
    await_that("the other router has nothing left", || {
        sites.has_none(&ship)
    });
}

#[test]
fn a_router_stores_more_on_its_disk_than_in_its_memory() {
    let sites = Sites::start();
    let router = sites.router("a", None, "total = \"4 MiB\"");
    let bytes = noise(24 * MIB, 6);
    sites.push(
        &router,
        &sites.file("film", &bytes),
        &["--chunk-size", "256 KiB"],
    );
    let status = sites.status(&router);
    assert_eq!(status["stored_chunks"], 96, "{status}");
    assert!(
        status["stored_bytes"][0].as_u64().unwrap() <= 4 << 20,
        "{status}"
    );
    assert_eq!(sites.inbox(&router, 1), 1);
    sites.same("film", &bytes);
}

/// A file system of a few megabytes, in a namespace of the router's own.
#[test]
fn a_full_disk_is_reported_and_the_router_goes_on_in_memory() {
    let sites = Sites::start();
    let folder = sites.chunks("a");
    fs::create_dir(&folder).unwrap();
    let mount = |command: &str| {
        let text = format!(
            "mount -t tmpfs -o size=8m none '{}' && {command}",
            folder.display()
        );
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--user", "--map-root-user", "--mount", "sh", "-c"])
            .arg(text);
        unshare
    };
    if !mount("true").status().is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no file system can be mounted in a namespace");
        return;
    }
    let at = format!("127.0.0.1:{}", free_port());
    let router = sites.command("a", &at, None, "");
    let words: Vec<String> = std::iter::once(router.get_program())
        .chain(router.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let mut command = mount(&format!("exec {}", words.join(" ")));
    command.envs(
        router
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let running = Running::start(&mut command);
    running.await_json(|line| line.get("guid").is_some());
    let router = Router {
        name: "a",
        at,
        neighbour: None,
        running,
    };
    let bytes = noise(16 * MIB, 7);
    sites.push(
        &router,
        &sites.file("film", &bytes),
        &["--chunk-size", "256 KiB"],
    );
    let disk = &sites.status(&router)["disk"];
    assert!(disk["faults"].as_u64().unwrap() > 0, "{disk}");
    assert!(disk["refused"].as_u64().unwrap() > 0, "{disk}");
    assert_eq!(sites.inbox(&router, 1), 1);
    sites.same("film", &bytes);
}

#[test]
fn a_folder_that_cannot_be_used_is_an_error_that_says_what_to_do() {
    let sites = Sites::start();
    let first = sites.router("a", None, "");
    let refused = |name: &str, folder: &Path, why: &str| {
        let at = format!("127.0.0.1:{}", free_port());
        let text = format!("folder = \"{}\"\n#", folder.display());
        let mut command = sites.command(name, &at, None, "");
        let config = sites.path(&format!("{name}.toml"));
        let own = fs::read_to_string(&config).unwrap();
        fs::write(&config, own.replace("folder = ", &text)).unwrap();
        let (code, _, err) = finished(&mut command);
        assert_ne!(code, 0);
        assert!(
            err.contains("[storage] folder") && err.contains(why),
            "{err}"
        );
    };
    refused("b", &sites.chunks("a"), "in use by another process");
    let odd = sites.file("odd/index", b"no index");
    refused("c", odd.parent().unwrap(), "move the folder away");
    refused("d", &odd, "cannot use the folder");
    drop(first);
}
