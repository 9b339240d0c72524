//! `gnrs backup`, `restore` and `move`: the records of a name server that serves.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test with real processes"
)]

use std::path::Path;

use crate::support::{Running, finished, free_port, whimbrel};

/// A name server whose records are lost when it ends.
fn server(folder: &Path, port: u16) -> Running {
    let listen = format!("127.0.0.1:{port}");
    let mut serve = whimbrel();
    serve.args(["gnrs", "serve", "--json", "--listen", &listen, "--store"]);
    serve.arg("memory").arg("--socket");
    let running = Running::start(serve.arg(folder.join(format!("{port}.sock"))));
    running.await_json(|line| line.get("links").is_some());
    running
}

fn run(folder: &Path, words: &[&str]) -> (i32, String, String) {
    let mut command = whimbrel();
    command.env("WHIMBREL_NAMES", folder.join("names.json"));
    finished(command.args(words))
}

#[test]
fn records_are_backed_up_restored_and_moved_while_name_servers_serve() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (old, new) = (free_port(), free_port());
    let [at_old, at_new] = [old, new].map(|port| format!("127.0.0.1:{port}"));
    let mut first = server(path, old);
    let content = "ab".repeat(32);
    for alias in ["films", "songs", "maps"] {
        let publish = ["publish", "--as", alias, "--name-server", &at_old, &content];
        let (code, _, err) = run(path, &publish);
        assert_eq!(code, 0, "{err}");
    }
    let (code, owner, _) = finished(
        whimbrel()
            .args(["id", "show"])
            .arg(path.join("publisher.pem")),
    );
    assert_eq!(code, 0);
    let owner = owner.trim();
    let known = |server: &str| {
        let lookup = ["gnrs", "lookup", "--pointers", owner, "--server", server];
        let (_, out, _) = run(path, &lookup);
        out.lines().filter(|line| line.contains(&content)).count()
    };
    let backup = path.join("backup");
    let backup = backup.to_str().unwrap();
    let (code, out, err) = run(path, &["gnrs", "backup", backup, "--server", &at_old]);
    assert!(code == 0 && out.contains("3 records"), "{out}{err}");
    let again = run(path, &["gnrs", "backup", backup, "--server", &at_old]);
    assert_eq!(again.0, 6, "a backup is not overwritten: {again:?}");

    first.kill();
    let _second = server(path, old);
    assert_eq!(known(&at_old), 0);
    let (code, out, err) = run(path, &["gnrs", "restore", backup, "--server", &at_old]);
    assert!(code == 0 && out.contains("3 records"), "{out}{err}");
    assert_eq!(known(&at_old), 3);

    let _new = server(path, new);
    let (code, out, err) = run(path, &["gnrs", "move", "--from", &at_old, "--to", &at_new]);
    assert!(code == 0 && out.contains("3 records"), "{out}{err}");
    assert_eq!(known(&at_new), 3);
}

#[test]
fn a_backup_of_a_server_that_does_not_answer_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup");
    let nobody = format!("127.0.0.1:{}", free_port());
    let backup = [
        "gnrs",
        "backup",
        file.to_str().unwrap(),
        "--server",
        &nobody,
    ];
    let (code, _, err) = run(folder.path(), &backup);
    assert!(
        code == 7 && err.contains("no name server responds"),
        "{code} {err}"
    );
    assert!(!file.exists());
    std::fs::write(&file, "a letter").unwrap();
    let restore = ["gnrs", "restore", file.to_str().unwrap()];
    let (code, _, err) = run(folder.path(), &restore);
    assert!(code == 2 && err.contains("gnrs backup"), "{code} {err}");
}
