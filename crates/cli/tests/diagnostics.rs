//! Programs whose standard error or standard output cannot be written: a full disk, a reader that has
//! gone, a FIFO that nobody reads.
#![allow(
    clippy::disallowed_methods,
    reason = "a test of real programs in real time"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::fs::{self, File};
use std::io::{PipeReader, Read, Write, pipe};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::support::{
    await_that, finished, free_port, metrics_page, name_of, noise, sum_of, whimbrel,
};

/// Bytes that a pipe holds (`pipe(7)`).
const PIPE_CAPACITY: usize = 65_536;
/// The exit code of a command whose output cannot be written.
const WRITE: i32 = 6;

/// An output that takes nothing.
#[derive(Clone, Copy, Debug)]
enum Dead {
    /// The disk is full.
    Full,
    /// The reader has gone.
    Closed,
    /// A FIFO that nobody reads.
    Unread,
}

const DEAD: [Dead; 3] = [Dead::Full, Dead::Closed, Dead::Unread];

impl Dead {
    /// Returns the output, and the reader that keeps it open.
    fn open(self) -> (Stdio, Option<PipeReader>) {
        match self {
            Dead::Full => {
                let device = File::options().write(true).open("/dev/full").unwrap();
                (device.into(), None)
            }
            Dead::Closed => (pipe().unwrap().1.into(), None),
            Dead::Unread => {
                let (reader, mut writer) = pipe().unwrap();
                writer.write_all(&vec![b' '; PIPE_CAPACITY]).unwrap();
                (writer.into(), Some(reader))
            }
        }
    }
}

/// A daemon that does not outlive the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lost(metrics: &str, stream: &str) -> f64 {
    let page = metrics_page(metrics);
    assert!(page.contains("whimbrel_lost_lines_total"), "{page}");
    sum_of(&page, "whimbrel_lost_lines_total", stream)
}

#[test]
fn a_router_runs_on_when_its_log_and_its_output_cannot_be_written() {
    for dead in DEAD {
        let folder = tempfile::tempdir().unwrap();
        let [ndn, metrics] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
        let ((stdout, _reader), (stderr, _log_reader)) = (dead.open(), dead.open());
        let mut command = whimbrel();
        command.args(["router", "run", "-vv", "--ndn-listen", &ndn]);
        command.args(["--metrics", &metrics, "--ndn-socket"]);
        command.arg(folder.path().join("ndn.sock"));
        let mut daemon = Daemon(command.stdout(stdout).stderr(stderr).spawn().unwrap());
        await_that("the router listens", || {
            TcpStream::connect(&metrics).is_ok() || daemon.0.try_wait().unwrap().is_some()
        });
        // Each such connection is a line of the log.
        await_that("lines are lost, and counted", || {
            for _ in 0..100 {
                let mut stream = TcpStream::connect(&ndn).unwrap();
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
                let _ = stream.read_to_end(&mut Vec::new());
            }
            lost(&metrics, "stderr") > 0.0
        });
        if !matches!(dead, Dead::Unread) {
            assert!(lost(&metrics, "stdout") > 0.0, "{dead:?}");
        }
        let stopped = Command::new("kill").arg(daemon.0.id().to_string()).status();
        assert!(stopped.unwrap().success());
        assert_eq!(daemon.0.wait().unwrap().code(), Some(0), "{dead:?}");
    }
}

#[test]
fn serve_outlives_the_reader_of_its_lines() {
    for json in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("film"), folder.path().join("copy"));
        let bytes = noise(3 << 20, 7);
        fs::write(&source, &bytes).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = whimbrel();
        command.args(["serve", "-vv", "--no-cache", "--listen", &address]);
        command.args(json.then_some("--json")).arg(&source);
        let (mut output, stdout) = pipe().unwrap();
        let (log, stderr) = pipe().unwrap();
        let mut daemon = Daemon(command.stdout(stdout).stderr(stderr).spawn().unwrap());
        drop(command);
        output.read_exact(&mut [0]).unwrap();
        drop((output, log));
        for _ in 0..2 {
            let mut get = whimbrel();
            get.args(["get", &name_of(&bytes), "--from", &address, "--timeout"]);
            let (code, _, stderr) = finished(get.args(["30 s", "-o"]).arg(&target));
            assert_eq!(code, 0, "{stderr}");
            assert_eq!(fs::read(&target).unwrap(), bytes);
        }
        assert!(daemon.0.try_wait().unwrap().is_none(), "it has ended");
    }
}

#[test]
fn exit_codes_survive_a_standard_error_that_takes_nothing() {
    let name = name_of(b"nobody has it");
    let cases: [(&[&str], i32); 3] = [
        (
            &["get", "--from", "127.0.0.1:9", &name, "--timeout", "1 s"],
            7,
        ),
        (&["config", "check", "/no/such/file"], 2),
        (&["no-such-command"], 2),
    ];
    for dead in DEAD {
        for (arguments, code) in cases {
            let (stderr, _reader) = dead.open();
            let status = whimbrel().args(arguments).stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(code), "{dead:?}: {arguments:?}");
        }
    }
}

#[test]
fn a_full_standard_output_is_reported_and_a_closed_one_is_quiet() {
    let commands: [&[&str]; 4] = [
        &["config", "sample", "router"],
        &["--help"],
        &["--version"],
        &["completions", "bash"],
    ];
    for arguments in commands {
        let result = |dead: Dead| {
            let (stdout, _reader) = dead.open();
            let child = whimbrel()
                .args(arguments)
                .stdout(stdout)
                .stderr(Stdio::piped())
                .spawn();
            let output = child.unwrap().wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code(), text)
        };
        let (code, text) = result(Dead::Full);
        assert_eq!(code, Some(WRITE), "{arguments:?}: {text}");
        assert!(text.contains("cannot write to standard output"), "{text}");
        let quiet = (Some(WRITE), String::new());
        assert_eq!(result(Dead::Closed), quiet, "{arguments:?}");
    }
}

#[test]
fn content_on_a_full_standard_output_fails_and_on_a_closed_one_is_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("film");
    let bytes = noise(1 << 20, 8);
    fs::write(&source, &bytes).unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = whimbrel();
    command.args(["serve", "--no-cache", "--listen", &address]);
    let _serving = Daemon(command.arg(&source).stdout(Stdio::null()).spawn().unwrap());
    for dead in [Dead::Full, Dead::Closed] {
        let (stdout, _reader) = dead.open();
        let mut get = whimbrel();
        get.args(["get", &name_of(&bytes), "--from", &address, "-o", "-"]);
        let child = get.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(WRITE), "{dead:?}: {text}");
        let says = text.contains("cannot write to standard output");
        assert_eq!(says, matches!(dead, Dead::Full), "{text}");
    }
}
