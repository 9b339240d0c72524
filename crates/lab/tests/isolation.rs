//! A lab whose process is killed, and a lab without root.
//!
//! Runs itself again as another process for each case. It has no test harness, because a process
//! can enter a user namespace only while it has one thread.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::fig7;
use whimbrel_lab::scenario::netns;
use whimbrel_lab::{LabError, Privileges, TopologyBuilder, ensure_privileges, lab_available};
use whimbrel_sim::link::LinkSpec;

const PATIENCE: Duration = Duration::from_secs(20);
const VICTIM: &str = "victim";
const UNPRIVILEGED: &str = "unprivileged";
const THREADED: &str = "threaded";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(VICTIM) => victim(),
        Some(UNPRIVILEGED) => unprivileged(),
        Some(THREADED) => threaded(),
        // Test runners list the tests before they run them.
        Some("--list") => println!("isolation: test"),
        _ => run_all(),
    }
}

fn run_all() {
    if rustix::process::geteuid().is_root() {
        if lab_available() {
            assert_eq!(ensure_privileges().unwrap(), Privileges::Administrator);
            passed("root needs no user namespace");
            for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
                nothing_outlives(signal);
            }
        }
    } else {
        eprintln!("SKIPPED: killing a lab is only tried as root");
    }
    without_root();
}

fn passed(what: &str) {
    println!("test {what} ... ok");
}

/// Runs a lab with programs in it, and nothing else.
fn victim() {
    let topology = netns::topology(&fig7(1, &[]), 1).unwrap();
    let host = topology.host("N3").unwrap();
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "setsid sleep 5000 & setsid sh -c 'sleep 5001' & sleep 5002; true",
    ]);
    let _process = host.spawn(command).unwrap();
    let namespaces: Vec<String> = topology
        .host_names()
        .map(|name| {
            let host = topology.host(name).unwrap();
            host.enter(|| std::fs::read_link("/proc/thread-self/ns/net"))
                .unwrap()
                .unwrap()
                .display()
                .to_string()
        })
        .collect();
    while processes_in(&namespaces[2..3]) < 5 {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{}", namespaces.join(" "));
    std::thread::sleep(Duration::from_secs(600));
}

fn nothing_outlives(signal: Signal) {
    let devices_before = devices();
    // A shell's background process has SIGINT ignored, and children inherit that.
    let mut lab = Command::new("env");
    lab.arg("--default-signal=INT,TERM")
        .arg(std::env::current_exe().unwrap())
        .arg(VICTIM);
    let mut lab = lab.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(lab.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let namespaces: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    assert_eq!(namespaces.len(), 5, "{line}");
    // The shell, two `sleep`, one more shell or its replacement, and the first process of each of
    // five hosts.
    assert!(
        processes_in(&namespaces) >= 9,
        "the programs of the lab run"
    );
    kill_process(Pid::from_child(&lab), signal).unwrap();
    let status = lab.wait().unwrap();
    assert_eq!(status.signal(), Some(signal.as_raw()));
    let deadline = Instant::now() + PATIENCE;
    while processes_in(&namespaces) > 0 {
        assert!(Instant::now() < deadline, "programs outlive their lab");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(
        named_among(&namespaces),
        0,
        "a lab gives no namespace a name"
    );
    // The machine may have devices of its own, of whatever name.
    let left = devices().into_iter().filter(|it| it.starts_with("link"));
    let left: Vec<String> = left.filter(|it| !devices_before.contains(it)).collect();
    assert!(left.is_empty(), "{left:?}");
    passed(&format!("no process outlives a lab that got {signal:?}"));
}

/// Returns how many of these namespaces have a name, as those of `ip netns add` have: a file that is
/// the namespace itself.
fn named_among(namespaces: &[String]) -> usize {
    let files = std::fs::read_dir("/var/run/netns").into_iter().flatten();
    let names = files.flatten().filter_map(|file| {
        let found = std::fs::metadata(file.path()).ok()?;
        Some(format!("net:[{}]", found.ino()))
    });
    names.filter(|name| namespaces.contains(name)).count()
}

/// Returns the names of this namespace's network devices.
fn devices() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    let names = text.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

fn processes_in(namespaces: &[String]) -> usize {
    let inside = |process: &Path| {
        std::fs::read_link(process.join("ns/net"))
            .is_ok_and(|namespace| namespaces.contains(&namespace.display().to_string()))
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| inside(&entry.path()))
        .count()
}

/// Runs as an ordinary user, with a TUN device that such users may open, as in most distributions.
fn without_root() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("isolation");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    for path in [directory.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (case, what) in [
        (
            UNPRIVILEGED,
            "an ordinary user builds a lab in a user namespace",
        ),
        (
            THREADED,
            "a process with several threads is told why it cannot have one",
        ),
    ] {
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("unshare");
            let script = "{ [ -e \"$1/tun\" ] || mknod -m 0666 \"$1/tun\" c 10 200; } && mount --bind \"$1/tun\" /dev/net/tun && \
                          exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$1/isolation\" \"$2\"";
            command
                .args(["--mount", "sh", "-c", script, "sh"])
                .arg(directory.path());
            command
        } else {
            Command::new(&program)
        };
        let mut child = command.arg(case).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        let status = child.wait().unwrap();
        eprint!("{said}");
        if status.code() == Some(NOT_PERMITTED) {
            eprintln!("SKIPPED: {what}");
        } else {
            assert!(status.success(), "{status}: {said}");
            passed(what);
        }
    }
}

/// Exit status of a machine that does not permit this to ordinary users.
const NOT_PERMITTED: i32 = 77;

fn unprivileged() {
    let privileges = match ensure_privileges() {
        Ok(privileges) => privileges,
        Err(error @ LabError::NotPermitted { .. }) => {
            eprintln!("{error}");
            std::process::exit(NOT_PERMITTED);
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(privileges, Privileges::UserNamespace);
    let delay = LinkSpec {
        delay: Duration::from_millis(2),
        ..LinkSpec::default()
    };
    let built = TopologyBuilder::new(1)
        .host("a")
        .host("b")
        .host("c")
        .veth("ab", "a", "b")
        .link("bc", "b", "c", delay.clone(), delay)
        .build();
    let topology = match built {
        Err(error @ LabError::NoTun { .. }) => {
            eprintln!("{error}");
            std::process::exit(NOT_PERMITTED);
        }
        built => built.unwrap(),
    };
    let target = topology.address_of("c", "bc").unwrap();
    let report = topology
        .host("a")
        .unwrap()
        .ping(target, 3, Duration::ZERO, PATIENCE)
        .unwrap();
    assert_eq!(report.received(), 3);
    assert!(report.min().unwrap() >= 0.004, "{report:?}");
    let user = topology
        .host("a")
        .unwrap()
        .run("cat", &["/proc/sys/net/ipv4/ip_forward"])
        .unwrap();
    assert_eq!(user.trim(), "1");
}

fn threaded() {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || held.recv());
    // Often, because a thread of the lab's own that has not quite ended must not be counted.
    for _ in 0..1_000 {
        let refused = ensure_privileges().unwrap_err();
        assert!(
            matches!(refused, LabError::AlreadyThreaded { threads: 2 }),
            "{refused}"
        );
        assert!(
            refused.to_string().contains("before any thread"),
            "{refused}"
        );
    }
    drop(hold);
    let _ = thread.join();
}
