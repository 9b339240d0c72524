//! How `get` and `ndn get` treat an existing `-o` PATH.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::ndn::Router;
use crate::support::{self, Running, finished, free_port, name_of, noise, whimbrel};

const MIB: usize = 1 << 20;
/// A user without write permission here: `nobody`.
const STRANGER: u32 = 65_534;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Native,
    Ndn,
}

const BOTH: [Way; 2] = [Way::Native, Way::Ndn];

/// One content, served by a host and by an NDN producer.
struct Scene {
    bytes: Vec<u8>,
    address: String,
    router: Router,
    _serving: [Running; 2],
}

impl Scene {
    fn start() -> Scene {
        let router = Router::start();
        let bytes = noise(2 * MIB + 77, 41);
        let source = router.path("film.mkv");
        fs::write(&source, &bytes).unwrap();
        let (serving, address) = serve(&source);
        let producer = router.serve("/example/film.mkv", &bytes, &[]);
        Scene {
            bytes,
            address,
            router,
            _serving: [serving, producer],
        }
    }

    /// Returns an empty folder, accessible to all users.
    fn folder(&self, name: &str) -> PathBuf {
        let open = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let folder = self.router.path(name);
        fs::create_dir(&folder).unwrap();
        open(&self.router.path(""));
        open(&folder);
        folder
    }

    fn command(&self, way: Way, target: &Path) -> Command {
        let mut command = match way {
            Way::Native => native(&name_of(&self.bytes), &self.address),
            Way::Ndn => {
                let mut command = self.router.command(&["ndn", "get", "/example/film.mkv"]);
                command.env("NDN_CLIENT_TRANSPORT", self.router.tcp());
                command
            }
        };
        command.arg("-o").arg(target);
        command
    }

    fn get(&self, way: Way, target: &Path) {
        let (code, out, err) = finished(&mut self.command(way, target));
        assert_eq!(code, 0, "{way:?} {target:?}: {out}{err}");
    }

    /// Fetches a name without a holder.
    fn fail(&self, way: Way, target: &Path) {
        let mut command = match way {
            Way::Native => native(&"ab".repeat(32), &self.address),
            Way::Ndn => self
                .router
                .command(&["ndn", "get", "/nobody", "-l", "200", "-r", "0"]),
        };
        let (code, ..) = finished(command.arg("-o").arg(target));
        assert!(code == 3 || code == 4, "{way:?}: {code}");
    }

    fn holds(&self, path: &Path) {
        assert!(fs::read(path).unwrap() == self.bytes, "{path:?} differs");
    }
}

fn serve(path: &Path) -> (Running, String) {
    let running = Running::start(
        whimbrel()
            .args(["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"])
            .arg(path),
    );
    let line = running.await_json(|line| line["event"] == "listening");
    let address = line["address"].as_str().unwrap().to_owned();
    (running, address)
}

fn native(name: &str, address: &str) -> Command {
    let mut command = whimbrel();
    command.args(["get", name, "--timeout", "60 s", "--from", address]);
    command
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_fifo_is_written_into_and_stays() {
    let scene = Scene::start();
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        let fifo = folder.join("fifo");
        make_fifo(&fifo);
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || fs::read(fifo).unwrap())
        };
        // A broken `get` leaves the reader waiting for ever: it is joined only if the FIFO is still
        // one.
        scene.get(way, &fifo);
        let kind = fs::symlink_metadata(&fifo).unwrap().file_type();
        assert!(kind.is_fifo(), "{way:?}: {kind:?}");
        assert!(reader.join().unwrap() == scene.bytes, "{way:?}");
        assert_eq!(names_in(&folder), ["fifo"], "{way:?}");
    }
}

#[test]
fn waiting_for_the_reader_of_a_fifo_can_be_interrupted() {
    let scene = Scene::start();
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        let fifo = folder.join("fifo");
        make_fifo(&fifo);
        let mut get = Running::start(&mut scene.command(way, &fifo));
        let opens = format!("/proc/{}/status", get.id());
        // The handler is installed once the mask of caught signals has SIGINT in it.
        support::await_that("signals are handled", || {
            let status = fs::read_to_string(&opens).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & 2 != 0)
        });
        assert!(!get.has_ended(), "{way:?}");
        get.signal("INT");
        assert_eq!(get.exit_code(), 130, "{way:?}");
        assert_eq!(names_in(&folder), ["fifo"], "{way:?}");
    }
}

/// On a device made for the test: the machine's own is not at risk.
#[test]
fn a_device_is_written_into_and_stays_also_when_the_fetch_fails() {
    let scene = Scene::start();
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        let device = folder.join("null");
        let made = Command::new("mknod")
            .arg(&device)
            .args(["c", "1", "3"])
            .output();
        if !made.is_ok_and(|made| made.status.success()) || fs::write(&device, "x").is_err() {
            return eprintln!("SKIPPED: no device can be made here");
        }
        let link = folder.join("link");
        symlink("null", &link).unwrap();
        for target in [&device, &link] {
            scene.fail(way, target);
            scene.get(way, target);
            let kind = fs::symlink_metadata(&device).unwrap().file_type();
            assert!(kind.is_char_device(), "{way:?}: {kind:?}");
            assert_eq!(names_in(&folder), ["link", "null"], "{way:?}");
        }
    }
    let machine = fs::symlink_metadata("/dev/null").unwrap().file_type();
    assert!(machine.is_char_device());
}

/// The output is a link to standard output, like `/dev/stdout`, which is not at risk itself.
#[test]
fn a_link_to_standard_output_is_standard_output() {
    let scene = Scene::start();
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        let link = folder.join("stdout");
        symlink("/proc/self/fd/1", &link).unwrap();
        let output = scene.command(way, &link).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{way:?}");
        assert!(output.stdout == scene.bytes, "{way:?}");
        let path = folder.join("redirected");
        let mut command = scene.command(way, &link);
        command.stdout(fs::File::create(&path).unwrap());
        let inode = fs::metadata(&path).unwrap().ino();
        assert!(command.status().unwrap().success(), "{way:?}");
        scene.holds(&path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "{way:?}");
        assert!(link.is_symlink(), "{way:?}");
        assert_eq!(names_in(&folder), ["redirected", "stdout"], "{way:?}");
    }
}

#[test]
fn links_are_followed_and_stay() {
    let scene = Scene::start();
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        let (there, links) = (folder.join("there"), folder.join("links"));
        fs::create_dir(&there).unwrap();
        fs::create_dir(&links).unwrap();
        fs::write(there.join("old"), "old").unwrap();
        set_mode(&there.join("old"), 0o640);
        symlink("../there/old", links.join("relative")).unwrap();
        symlink("relative", links.join("twice")).unwrap();
        symlink(there.join("new"), links.join("dangling")).unwrap();
        for (link, file) in [("twice", "old"), ("dangling", "new")] {
            scene.get(way, &links.join(link));
            assert!(links.join(link).is_symlink(), "{way:?} {link}");
            scene.holds(&there.join(file));
        }
        assert_eq!(mode_of(&there.join("old")), 0o640, "{way:?}");
        assert_eq!(names_in(&links), ["dangling", "relative", "twice"]);
        assert_eq!(names_in(&there), ["new", "old"]);
        symlink("loop", links.join("loop")).unwrap();
        let (code, _, err) = finished(&mut scene.command(way, &links.join("loop")));
        assert_eq!(code, 6, "{way:?}: {err}");
    }
}

#[test]
fn a_file_that_is_replaced_keeps_its_mode_and_for_root_its_owner() {
    let scene = Scene::start();
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        for mode in [0o600, 0o755, 0o666, 0o4711] {
            let path = folder.join(format!("{mode:o}"));
            fs::write(&path, "old").unwrap();
            if is_root() {
                chown(&path, Some(STRANGER), Some(STRANGER)).unwrap();
            }
            set_mode(&path, mode);
            let owner = fs::metadata(&path).unwrap();
            scene.get(way, &path);
            scene.holds(&path);
            let now = fs::metadata(&path).unwrap();
            // Fetched bytes must not run with another user's rights.
            assert_eq!(mode_of(&path), mode & 0o777, "{way:?}");
            assert_eq!((now.uid(), now.gid()), (owner.uid(), owner.gid()));
        }
    }
}

/// The content has no source, so only the check of the output can refuse.
#[test]
fn a_file_that_is_write_protected_is_refused_before_anything_is_fetched() {
    let scene = Scene::start();
    let nowhere = format!("127.0.0.1:{}", free_port());
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        // A rename into the folder would succeed.
        set_mode(&folder, 0o777);
        let path = folder.join("mine");
        fs::write(&path, "mine").unwrap();
        set_mode(&path, 0o444);
        let mut command = match way {
            Way::Native => {
                let mut command = whimbrel();
                let name = "ab".repeat(32);
                command.args(["get", &name, "--timeout", "5 s", "--from", &nowhere]);
                command
            }
            Way::Ndn => {
                let mut command = scene.router.command(&["ndn", "get", "/example/film.mkv"]);
                command.env("NDN_CLIENT_TRANSPORT", format!("tcp4://{nowhere}"));
                command
            }
        };
        command.env("HOME", &folder).arg("-o").arg(&path);
        if is_root() {
            command.uid(STRANGER).gid(STRANGER);
        }
        let (code, _, err) = finished(&mut command);
        assert_eq!(code, 6, "{way:?}: {err}");
        assert!(err.contains("write-protected"), "{way:?}: {err}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(names_in(&folder), ["mine"], "{way:?}");
        if is_root() {
            // Root may write to it, as with `cp` and `curl`.
            scene.get(way, &path);
            scene.holds(&path);
            assert_eq!(mode_of(&path), 0o444, "{way:?}");
        }
    }
}

#[test]
fn a_folder_that_takes_no_file_is_named_with_the_output() {
    let scene = Scene::start();
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        set_mode(&folder, 0o555);
        let mut closed = scene.command(way, &folder.join("film.mkv"));
        closed.env("HOME", &folder);
        if is_root() {
            closed.uid(STRANGER).gid(STRANGER);
        }
        let no_file = scene.command(way, Path::new("/proc/film.mkv"));
        for (mut command, folder) in [(closed, folder.as_path()), (no_file, Path::new("/proc"))] {
            let (code, _, err) = finished(&mut command);
            let said = format!(
                "cannot write {0}/film.mkv: the folder {0} takes no new file: ",
                folder.display()
            );
            assert!(code == 6 && err.contains(&said), "{way:?}: {code} {err}");
            assert!(!err.contains(".part"), "{way:?}: {err}");
        }
    }
}

#[test]
fn a_folder_takes_a_file_under_its_own_name_and_nothing_there_is_replaced() {
    let scene = Scene::start();
    for way in BOTH {
        let folder = scene.folder(&format!("{way:?}"));
        let link = scene.router.path(&format!("{way:?}-link"));
        symlink(&folder, &link).unwrap();
        fs::write(folder.join("film.mkv"), "mine").unwrap();
        scene.get(way, &folder);
        scene.get(way, &link);
        assert_eq!(fs::read(folder.join("film.mkv")).unwrap(), b"mine");
        assert_eq!(
            names_in(&folder),
            ["film-2.mkv", "film-3.mkv", "film.mkv"],
            "{way:?}"
        );
        scene.holds(&folder.join("film-2.mkv"));
        // A trailing slash denotes a folder.
        let mut new = folder.join("new").into_os_string();
        new.push("/");
        scene.fail(way, Path::new(&new));
        assert!(!folder.join("new").exists(), "{way:?}");
        scene.get(way, Path::new(&new));
        scene.holds(&folder.join("new/film.mkv"));
    }
}

#[test]
fn a_folder_becomes_a_new_folder_or_goes_into_an_existing_one() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    fs::create_dir_all(photos.join("sub")).unwrap();
    fs::write(photos.join("a"), "a").unwrap();
    fs::write(photos.join("sub/b"), "b").unwrap();
    let running = Running::start(
        whimbrel()
            .args(["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"])
            .arg(&photos),
    );
    let name = running.await_json(|line| line["event"] == "name")["shelved"]["name"].clone();
    let line = running.await_json(|line| line["event"] == "listening");
    let get = |target: &Path| {
        let address = line["address"].as_str().unwrap();
        finished(
            native(name.as_str().unwrap(), address)
                .arg("-o")
                .arg(target),
        )
    };
    let out = folder.path().join("out");
    for top in [out.clone(), out.join("photos")] {
        let (code, _, err) = get(&out);
        assert_eq!(code, 0, "{err}");
        assert_eq!(fs::read(top.join("sub/b")).unwrap(), b"b");
    }
    assert_eq!(names_in(&out), ["a", "photos", "sub"]);
    // A file occupies the name, and stays.
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let (code, _, err) = get(&file);
    assert_eq!(code, 6, "{err}");
    assert!(err.contains("not a folder"), "{err}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
}

/// In a folder that all may write to, another user has created files with the names that `get`
/// would use.
#[test]
fn files_of_another_user_beside_the_output_are_not_used() {
    let scene = Scene::start();
    let name = name_of(&scene.bytes);
    let hidden = |folder: &Path, kind: &str| folder.join(format!(".{name}.{kind}"));
    // A FIFO in place of the record.
    let folder = scene.folder("fifo");
    make_fifo(&hidden(&folder, "resume"));
    scene.get(Way::Native, &folder.join("copy"));
    scene.holds(&folder.join("copy"));
    // A hard link to a file of the victim's.
    let folder = scene.folder("hard-link");
    fs::write(folder.join("precious"), "precious").unwrap();
    fs::hard_link(folder.join("precious"), hidden(&folder, "part")).unwrap();
    scene.get(Way::Native, &folder.join("copy"));
    scene.holds(&folder.join("copy"));
    assert_eq!(fs::read(folder.join("precious")).unwrap(), b"precious");
    // A link, which `get` would write through.
    let folder = scene.folder("link");
    fs::write(folder.join("precious"), "precious").unwrap();
    symlink("precious", hidden(&folder, "part")).unwrap();
    symlink("precious", hidden(&folder, "resume-new")).unwrap();
    scene.get(Way::Native, &folder.join("copy"));
    scene.holds(&folder.join("copy"));
    assert_eq!(fs::read(folder.join("precious")).unwrap(), b"precious");
    if !is_root() {
        return eprintln!("SKIPPED: only root can put a stranger's file there");
    }
    let folder = scene.folder("strangers");
    let part = hidden(&folder, "part");
    fs::write(&part, "planted").unwrap();
    set_mode(&part, 0o666);
    chown(&part, Some(STRANGER), Some(STRANGER)).unwrap();
    scene.get(Way::Native, &folder.join("copy"));
    scene.holds(&folder.join("copy"));
    assert_eq!(fs::metadata(folder.join("copy")).unwrap().uid(), 0);
    assert_eq!(fs::read(&part).unwrap(), b"planted");
}
