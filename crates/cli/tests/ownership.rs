//! Keys, sockets and folders that another user has prepared, or could change.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{self, Running, free_port, whimbrel};

/// The user of the programs: `nobody`.
const USER: u32 = 65_534;
const STRANGER: u32 = 65_533;

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn folder(path: &Path, mode: u32, owner: u32) -> PathBuf {
    fs::create_dir_all(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chown(path, Some(owner), Some(owner)).unwrap();
    path.to_owned()
}

/// A folder for temporary files, in which a stranger has made the one that the programs of `USER` use
/// where the environment names none.
struct Scene {
    shared: tempfile::TempDir,
    prepared: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let shared = tempfile::tempdir().unwrap();
        folder(shared.path(), 0o1777, 0);
        let prepared = folder(
            &shared.path().join(format!("whimbrel-{USER}")),
            0o777,
            STRANGER,
        );
        Scene { shared, prepared }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = whimbrel();
        command.args(arguments).uid(USER).gid(USER);
        command.current_dir("/").env("TMPDIR", self.shared.path());
        for variable in [
            "HOME",
            "XDG_RUNTIME_DIR",
            "XDG_STATE_HOME",
            "XDG_CACHE_HOME",
        ] {
            command.env_remove(variable);
        }
        command
    }
}

/// Returns the exit code and the messages of a program that ends by itself.
fn ended(command: &mut Command, messages: &Path) -> (i32, String) {
    let file = fs::File::create(messages).unwrap();
    let code = Running::start(command.stderr(file)).exit_code();
    (code, fs::read_to_string(messages).unwrap())
}

#[test]
fn a_router_does_not_run_under_a_key_that_another_user_prepared() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let mut state = scene.prepared.clone();
    for part in [".local", "state", "whimbrel"] {
        state = folder(&state.join(part), 0o777, STRANGER);
    }
    let key = state.join("router.pem");
    let own = tempfile::tempdir().unwrap();
    let made = own.path().join("router.pem");
    let (code, ..) = support::finished(whimbrel().args(["id", "new"]).arg(&made));
    assert_eq!(code, 0);
    fs::copy(&made, &key).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&key, Some(STRANGER), Some(STRANGER)).unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let mut router = scene.command(&["router", "run", "--listen", &listen]);
    let (code, said) = ended(&mut router, &scene.shared.path().join("messages"));
    assert_eq!(code, 2, "{said}");
    let path = scene.prepared.display();
    let why = format!("{path} belongs to another user (number {STRANGER})");
    assert!(said.contains(&why), "{said}");

    // The same key, named by the user.
    let open = folder(&scene.shared.path().join("open"), 0o777, USER);
    fs::copy(&key, open.join("router.pem")).unwrap();
    let mut router = scene.command(&["router", "run", "--listen", &listen, "--key"]);
    router.arg(open.join("router.pem"));
    let (code, said) = ended(&mut router, &scene.shared.path().join("messages"));
    assert_eq!(code, 2, "{said}");
    let why = format!("other users may write to {} (mode 777)", open.display());
    assert!(said.contains(&why), "{said}");
}

#[test]
fn no_program_attaches_to_the_socket_of_another_user() {
    if !is_root() {
        return;
    }
    let scene = Scene::new();
    let home = folder(&scene.shared.path().join("home"), 0o700, USER);
    let file = scene.shared.path().join("file");
    fs::write(&file, "file").unwrap();
    for name in ["host", "router", "gnrs", "nfd"] {
        let socket = scene.prepared.join(format!("{name}.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).unwrap();
        chown(&socket, Some(STRANGER), Some(STRANGER)).unwrap();
        let commands: &[&[&str]] = match name {
            "host" => &[
                &["serve", "--no-cache"],
                &["get", "--timeout", "1 s"],
                &["host", "status"],
            ],
            "router" => &[&["router", "status"]],
            "gnrs" => &[&["gnrs", "status"]],
            _ => &[&["ndn", "ping", "/x", "-c", "1"]],
        };
        for arguments in commands {
            let mut command = scene.command(arguments);
            match arguments[0] {
                "serve" => command.arg(&file),
                "get" => command.arg("ab".repeat(32)),
                _ => &mut command,
            };
            command.env("HOME", &home).current_dir(&home);
            let (code, said) = ended(&mut command, &scene.shared.path().join("messages"));
            assert_ne!(code, 0, "{arguments:?}: {said}");
            assert!(
                said.contains("belongs to another user"),
                "{arguments:?}: {said}"
            );
            let connected = listener.accept().map(drop).map_err(|error| error.kind());
            assert_eq!(connected, Err(ErrorKind::WouldBlock), "{arguments:?}");
        }
    }
}

#[test]
fn a_daemon_opens_no_socket_in_a_folder_that_others_may_write_to() {
    let top = tempfile::tempdir().unwrap();
    let open = top.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    for daemon in [
        &["gnrs", "serve", "--store", "memory", "--listen", &listen][..],
        &["host", "run", "--router", &listen],
        &["router", "run", "--listen", &listen],
    ] {
        let mut command = whimbrel();
        command
            .args(daemon)
            .arg("--socket")
            .arg(open.join("x.sock"));
        if daemon[0] != "gnrs" {
            command.arg("--key").arg(top.path().join("key.pem"));
        }
        let (code, said) = ended(&mut command, &top.path().join("messages"));
        assert_eq!(code, 2, "{daemon:?}: {said}");
        assert!(
            said.contains("other users may write to"),
            "{daemon:?}: {said}"
        );
        assert_eq!(fs::read_dir(&open).unwrap().count(), 0, "{daemon:?}");
    }
}
