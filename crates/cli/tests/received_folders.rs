//! What `get` leaves on disk: permissions, versions, and how much there is of it.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::schema::Schema;
use crate::support::{Running, finished, noise, whimbrel};
use serde_json::Value;

/// A user without privileges: `nobody`.
const USER: u32 = 65_534;

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn write(path: &Path, bytes: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    set_mode(path, mode);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// A folder that is served.
struct Served {
    name: String,
    address: String,
    _serving: Running,
}

impl Served {
    fn new(path: &Path) -> Served {
        let mut command = whimbrel();
        command.args(["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"]);
        let serving = Running::start(command.arg(path));
        let line = serving.await_json(|line| line["event"] == "name");
        let name = line["shelved"]["name"].as_str().unwrap().to_owned();
        let line = serving.await_json(|line| line["event"] == "listening");
        let address = line["address"].as_str().unwrap().to_owned();
        Served {
            name,
            address,
            _serving: serving,
        }
    }

    fn get(&self, output: &Path) -> Command {
        self.get_by(whimbrel(), output)
    }

    /// Adds the arguments of a `get` to a command.
    fn get_by(&self, mut command: Command, output: &Path) -> Command {
        command.args(["get", &self.name, "--from", &self.address]);
        command.args(["--json", "--timeout", "60 s", "-o"]);
        command.arg(output);
        command
    }
}

#[test]
fn a_file_keeps_its_name_beside_a_folder_that_has_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("x");
    write(&source.join("f"), b"the same bytes", 0o644);
    let room = folder.path().join("room");
    fs::create_dir(&room).unwrap();
    let mut command = whimbrel();
    command.args(["serve", "--json", "--no-cache", "--listen", "127.0.0.1:0"]);
    let serving = Running::start(command.arg(source.join("f")).arg(&source));
    let line = serving.await_json(|line| line["event"] == "name");
    let name = line["shelved"]["name"].as_str().unwrap().to_owned();
    let line = serving.await_json(|line| line["event"] == "listening");
    let served = Served {
        name,
        address: line["address"].as_str().unwrap().to_owned(),
        _serving: serving,
    };
    let (line, code, err) = done(&mut served.get(&room));
    assert_eq!(code, 0, "{line} {err}");
    assert_eq!(fs::read(room.join("f")).unwrap(), b"the same bytes");
}

/// Returns the last line of a `get`, its exit code and its messages.
fn done(command: &mut Command) -> (Value, i32, String) {
    let (code, out, err) = finished(command);
    let line = out.lines().last().unwrap_or_default();
    (serde_json::from_str(line).unwrap_or_default(), code, err)
}

/// The files below a folder.
fn files(top: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut due = vec![top.to_owned()];
    while let Some(folder) = due.pop() {
        for item in fs::read_dir(folder).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                due.push(path);
            } else {
                let relative = path.strip_prefix(top).unwrap().to_owned();
                found.insert(relative, fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_private_folder_is_private_where_it_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let (source, copy) = (folder.path().join("p"), folder.path().join("q"));
    write(&source.join("key"), b"k", 0o644);
    set_mode(&source, 0o700);
    let served = Served::new(&source);
    let (line, code, err) = done(&mut served.get(&copy));
    assert_eq!(code, 0, "{line} {err}");
    assert_eq!((mode_of(&copy), mode_of(&copy.join("key"))), (0o700, 0o644));
    let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(time(&copy), time(&source));
}

#[test]
fn an_update_by_an_ordinary_user_replaces_everything_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let version = |number: u32| folder.path().join(format!("{number}/tree"));
    for number in 1..=3 {
        for name in ["a", "read-only/b", "z"] {
            let bytes = format!("{name} {number}");
            write(&version(number).join(name), bytes.as_bytes(), 0o644);
        }
        write(&version(number).join("read-only/same"), b"same", 0o444);
        // Only the permissions of one file differ in this folder.
        let mode = if number == 1 { 0o644 } else { 0o600 };
        write(&version(number).join("still/same"), b"same", mode);
        for name in ["read-only", "still"] {
            set_mode(&version(number).join(name), 0o555);
        }
    }
    let room = folder.path().join("room");
    fs::create_dir(&room).unwrap();
    if is_root() {
        chown(&room, Some(USER), Some(USER)).unwrap();
    }
    set_mode(folder.path(), 0o755);
    let copy = room.join("tree");
    let get = |number: u32| {
        let served = Served::new(&version(number));
        let mut command = served.get(&copy);
        if number > 1 {
            command.arg("--update");
        }
        if is_root() {
            command.uid(USER).gid(USER);
        }
        done(&mut command)
    };
    for number in [1, 2] {
        let (line, code, err) = get(number);
        assert_eq!(code, 0, "{line} {err}");
        assert_eq!(files(&copy), files(&version(number)));
        for name in ["read-only", "still", "still/same"] {
            assert_eq!(
                mode_of(&copy.join(name)),
                mode_of(&version(number).join(name))
            );
        }
    }
    if !is_root() {
        return;
    }
    // Where the folder is another user's, its files cannot be replaced.
    chown(copy.join("read-only"), Some(0), Some(0)).unwrap();
    let (line, code, err) = get(3);
    assert_eq!(code, 6, "{line} {err}");
    assert!(err.contains("the older version stays as it is"), "{err}");
    assert_eq!(files(&copy), files(&version(2)));
    chown(copy.join("read-only"), Some(USER), Some(USER)).unwrap();
    let (line, code, err) = get(3);
    assert_eq!(code, 0, "{line} {err}");
    assert_eq!(files(&copy), files(&version(3)));
    assert_eq!(fs::read_dir(&room).unwrap().count(), 1);
}

/// Returns a command under which the system refuses to change what such file systems do not keep;
/// `None` where it cannot be traced.
fn on_a_poor_file_system(calls: &[&str]) -> Option<Command> {
    let strace = || {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null"]);
        command
    };
    let works = strace().arg("true").output();
    if !works.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut command = strace();
    for call in calls {
        command.args(["-e", &format!("inject={call}")]);
    }
    command.arg(env!("CARGO_BIN_EXE_whimbrel"));
    Some(command)
}

const PERMISSIONS: [&str; 5] = [
    "fchmod:error=EPERM",
    "fchown:error=EPERM",
    "utimensat:error=EPERM",
    "flock:error=EPERM",
    "fallocate:error=EPERM",
];

#[test]
fn files_arrive_where_permissions_cannot_be_changed_with_a_remark() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("tree");
    write(&source.join("private"), b"private", 0o600);
    write(&source.join("large"), &noise(200_000, 3), 0o600);
    write(&source.join("sub/program"), b"program", 0o755);
    set_mode(&source.join("sub"), 0o700);
    let served = Served::new(&source);
    let copy = folder.path().join("copy");
    let Some(command) = on_a_poor_file_system(&PERMISSIONS) else {
        return;
    };
    let (line, code, err) = done(&mut served.get_by(command, &copy));
    assert_eq!(code, 0, "{line} {err}");
    assert_eq!(files(&copy), files(&source));
    let remark = line["fetched"]["remarks"][0].as_str().unwrap();
    assert!(remark.contains("does not keep permissions"), "{line}");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/lines.json");
    assert_eq!(Schema::read(schema).check(&line), Ok(()));

    // A file that replaces another one.
    let film = noise(300_000, 4);
    write(&folder.path().join("film"), &film, 0o644);
    let served = Served::new(&folder.path().join("film"));
    let output = folder.path().join("output");
    write(&output, b"before", 0o400);
    set_mode(&output, 0o640);
    let command = on_a_poor_file_system(&PERMISSIONS).unwrap();
    let (line, code, err) = done(&mut served.get_by(command, &output));
    assert_eq!(code, 0, "{line} {err}");
    assert_eq!(fs::read(&output).unwrap(), film);
}

#[test]
fn files_arrive_where_no_links_can_be_made_and_the_links_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("tree");
    write(&source.join("file"), b"file", 0o644);
    std::os::unix::fs::symlink("file", source.join("link")).unwrap();
    let served = Served::new(&source);
    let Some(command) = on_a_poor_file_system(&["symlinkat:error=EPERM"]) else {
        return;
    };
    let copy = folder.path().join("copy");
    let (line, code, err) = done(&mut served.get_by(command, &copy));
    assert_eq!(code, 9, "{line} {err}");
    let refused = &line["fetched"]["refused"][0];
    assert_eq!(refused["path"], "\"link\"", "{line}");
    assert_eq!(refused["why"], "this file system holds no symbolic links");
    assert_eq!(fs::read(copy.join("file")).unwrap(), b"file");
}

/// Names as exFAT refuses them.
#[test]
fn files_arrive_where_names_are_refused_under_plain_names_or_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let room = folder.path().join("room");
    fs::create_dir(&room).unwrap();
    // The call is refused only if it names one of these paths.
    let on_exfat = |paths: &[&Path]| {
        let mut command = on_a_poor_file_system(&[])?;
        let program = command.get_program().to_owned();
        let mut arguments: Vec<_> = command.get_args().map(|it| it.to_owned()).collect();
        let whimbrel = arguments.pop().unwrap();
        command = Command::new(program);
        command.args(arguments);
        for call in ["rename", "renameat", "renameat2", "mkdir", "mkdirat"] {
            command.args(["-e", &format!("inject={call}:error=EINVAL")]);
        }
        for path in paths {
            command.arg("-P").arg(path);
        }
        command.arg(whimbrel);
        Some(command)
    };
    let source = folder.path().join("12:30.ogg");
    write(&source, &noise(100_000, 5), 0o644);
    let served = Served::new(&source);
    let Some(command) = on_exfat(&[&room.join("12:30.ogg")]) else {
        return;
    };
    let (line, code, err) = done(&mut served.get_by(command, &room));
    assert_eq!(code, 0, "{line} {err}");
    let copy = room.join("12_30.ogg");
    assert_eq!(line["fetched"]["path"], copy.to_str().unwrap(), "{line}");
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&source).unwrap());

    let source = folder.path().join("a:b");
    write(&source.join("what?"), b"refused", 0o644);
    write(&source.join("file"), b"file", 0o644);
    let served = Served::new(&source);
    let refused = [room.join("a:b"), "what?".into()];
    let command = on_exfat(&refused.each_ref().map(|it| it.as_path())).unwrap();
    let (line, code, err) = done(&mut served.get_by(command, &room));
    assert_eq!(code, 9, "{line} {err}");
    assert_eq!(fs::read(room.join("a_b/file")).unwrap(), b"file");
    let refused = &line["fetched"]["refused"];
    assert_eq!(refused.as_array().unwrap().len(), 1, "{line}");
    assert_eq!(refused[0]["path"], "\"what?\"");
    let why = refused[0]["why"].as_str().unwrap();
    assert!(why.contains("does not take the name"), "{line}");
}

#[test]
fn names_are_taken_where_renames_can_neither_exchange_nor_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let version = |number: u32| folder.path().join(format!("{number}/tree"));
    for number in [1, 2] {
        for name in ["a", "sub/b"] {
            let bytes = format!("{name} {number}");
            write(&version(number).join(name), bytes.as_bytes(), 0o644);
        }
        write(
            &version(number).join("large"),
            &noise(100_000, number.into()),
            0o644,
        );
    }
    let room = folder.path().join("room");
    fs::create_dir(&room).unwrap();
    for (number, update) in [(1, false), (2, false), (2, true)] {
        let served = Served::new(&version(number));
        let Some(command) = on_a_poor_file_system(&["renameat2:error=EINVAL"]) else {
            return;
        };
        let output = if update {
            room.join("tree")
        } else {
            room.clone()
        };
        let mut get = served.get_by(command, &output);
        if update {
            get.arg("--update");
        }
        let (line, code, err) = done(&mut get);
        assert_eq!(code, 0, "{line} {err}");
        let path = PathBuf::from(line["fetched"]["path"].as_str().unwrap());
        assert_eq!(files(&path), files(&version(number)), "{line}");
        let beside = number == 2 && !update;
        assert_eq!(path.ends_with("tree-2"), beside, "{line}");
    }
    assert_eq!(fs::read_dir(&room).unwrap().count(), 2);
}

#[test]
fn a_folder_that_would_take_more_than_allowed_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("tree");
    for number in 0..40 {
        write(&source.join(number.to_string()), &noise(60_000, 5), 0o644);
    }
    let served = Served::new(&source);
    let room = folder.path().join("room");
    fs::create_dir(&room).unwrap();
    let mut get = served.get(&room.join("copy"));
    let (line, code, err) = done(get.args(["--max-size", "1 MiB"]));
    assert_eq!(code, 1, "{line} {err}");
    let why = "the folder would take 2461696 bytes on disk";
    assert!(err.contains(why), "{err}");
    assert!(!room.join("copy").exists());
    let mut get = served.get(&room.join("copy"));
    let (line, code, err) = done(get.args(["--max-size", "3 MiB"]));
    assert_eq!(code, 0, "{line} {err}");
}
