//! Programs that the lab and the bench start on this machine itself.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs wait in real time"
)]

use std::process::Command;
use std::time::{Duration, Instant};

use whimbrel_lab::{LabError, Program, Supervisor};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

fn is_alive(pid: &str) -> bool {
    // A zombie that its new parent has not waited for yet counts as dead.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z")
    })
}

#[test]
fn lines_are_read_and_errors_are_kept_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(folder.path());
    let script = "echo to the log >&2; echo one; echo two 2; sleep 600";
    let program = supervisor.speaker("a speaker", shell(script)).unwrap();
    assert_eq!(program.ready("two").unwrap(), "two 2");
    assert!(
        program.line(SHORT).unwrap().is_none(),
        "it prints nothing more"
    );
    let error = program.await_word("three", SHORT).unwrap_err().to_string();
    assert!(
        error.contains("'a speaker' did not say \"three\""),
        "{error}"
    );
    assert!(error.contains("it said: to the log"), "{error}");
    let log = std::fs::read_to_string(folder.path().join("a-speaker.log")).unwrap();
    assert_eq!(log, "to the log\n");
}

#[test]
fn a_program_that_ends_early_is_an_error_that_quotes_it() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(folder.path());
    let program = supervisor
        .speaker("broken", shell("echo no such port >&2; exit 3"))
        .unwrap();
    let error = program.ready("ready").unwrap_err();
    assert!(matches!(&error, LabError::Program { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "the program 'broken' ended early; it said: no such port"
    );
    let missing = supervisor.speaker("missing", Command::new("no-such-program"));
    assert!(matches!(missing, Err(LabError::MissingProgram { .. })));
}

#[test]
fn a_program_that_is_dropped_ends_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(folder.path());
    let script = "sleep 600 & echo $! ; wait";
    let program = supervisor.speaker("parent", shell(script)).unwrap();
    let child = program.line(LONG).unwrap().unwrap().text;
    assert!(is_alive(&child));
    drop(program);
    let deadline = Instant::now() + LONG;
    while is_alive(&child) {
        assert!(Instant::now() < deadline, "process {child} lives on");
        std::thread::sleep(SHORT);
    }
}

#[test]
fn a_daemon_started_again_appends_to_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(folder.path());
    for said in ["first", "second"] {
        let script = format!("echo {said}; echo {said} error >&2");
        let mut daemon: Program = supervisor.daemon("daemon", shell(&script)).unwrap();
        assert!(daemon.process().wait_for(LONG).unwrap().unwrap().success());
        assert_eq!(daemon.lines_until(Instant::now() + LONG).count(), 0);
    }
    let log = std::fs::read_to_string(folder.path().join("daemon.log")).unwrap();
    assert_eq!(log, "first\nfirst error\nsecond\nsecond error\n");
}
