//! Privileges of this process, and their acquisition without being root.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getegid, geteuid};
use rustix::thread::{UnshareFlags, gettid, unshare_unsafe};

use crate::{LabError, tun};

/// The way in which this process may create network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// It already had the privilege: as root, or by the capability CAP_SYS_ADMIN.
    Administrator,
    /// It now runs in a user namespace of its own, where it is root over what it creates and
    /// nothing else.
    UserNamespace,
}

/// Makes sure that this process may create hosts. Enters an unprivileged user namespace if
/// necessary.
///
/// Call it first in `main`: the kernel lets only a process with a single thread enter a user
/// namespace. In one, the process appears as uid 0; the files that it makes still belong to the
/// user who started it.
pub fn ensure_privileges() -> Result<Privileges, LabError> {
    match try_network_namespace() {
        Ok(()) => return Ok(Privileges::Administrator),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(source) => {
            return Err(LabError::NotPermitted {
                advice: advice(&source),
                source,
            });
        }
    }
    enter_user_namespace()?;
    try_network_namespace()
        .map_err(|source| LabError::NotPermitted {
            advice: advice(&source),
            source,
        })
        .map(|()| Privileges::UserNamespace)
}

/// Checks that this process can make hosts with emulated links; the error says why not.
pub fn check_lab() -> Result<(), LabError> {
    try_network_namespace().map_err(|source| LabError::NotPermitted {
        advice: advice(&source),
        source,
    })?;
    crate::Namespace::new("check")?.enter(|| tun::open_device().map(drop))?
}

/// Set where tests that need the lab must not be skipped.
const REQUIRED: &str = "WHIMBREL_LAB";

/// For tests: returns false, with the reason on standard error, if this machine allows no lab.
/// Panics instead if the environment variable `WHIMBREL_LAB` says that the machine has one.
pub fn lab_available() -> bool {
    match check_lab() {
        Ok(()) => true,
        Err(reason) if std::env::var_os(REQUIRED).is_some() => {
            panic!("{REQUIRED} is set, but this machine has no lab: {reason}")
        }
        Err(reason) => {
            eprintln!("SKIPPED: this test needs the netns lab, and {reason}");
            false
        }
    }
}

/// Tries it on a thread of its own, so that this process does not change.
fn try_network_namespace() -> io::Result<()> {
    let attempt = std::thread::Builder::new()
        .name("privileges".to_owned())
        .spawn(|| {
            // SAFETY: without UnshareFlags::FILES the thread keeps the descriptor table that it
            // shares with all others.
            let outcome = unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWPID) }
                .map_err(io::Error::from);
            (gettid(), outcome)
        })?;
    let (thread, outcome) = attempt
        .join()
        .map_err(|_| io::Error::other("the attempt panicked"))?;
    await_end(thread);
    outcome
}

/// How long the kernel may take to remove a thread that has ended.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits until the kernel counts `thread` no more: it wakes those who join a thread a moment
/// before that, and refuses a user namespace to a process that has two threads by its own count.
fn await_end(thread: Pid) {
    let task = format!("/proc/self/task/{}", thread.as_raw_nonzero());
    let deadline = Instant::now() + PATIENCE;
    while Path::new(&task).exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn enter_user_namespace() -> Result<(), LabError> {
    let threads = std::fs::read_dir("/proc/self/task")
        .map(Iterator::count)
        .unwrap_or(1);
    if threads > 1 {
        return Err(LabError::AlreadyThreaded { threads });
    }
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: without UnshareFlags::FILES the descriptor table stays as it is.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(|error| {
        let source = io::Error::from(error);
        LabError::NotPermitted {
            advice: advice(&source),
            source,
        }
    })?;
    let map = |file: &str, text: &str| {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(LabError::system(format!(
            "write /proc/self/{file} of the new user namespace"
        )))
    };
    // An unprivileged process may map its own group only after it has given up setgroups
    // (user_namespaces(7)).
    map("setgroups", "deny")?;
    map("uid_map", &format!("0 {uid} 1"))?;
    map("gid_map", &format!("0 {gid} 1"))
}

/// Returns advice about a refusal, from the settings by which kernels and distributions refuse.
pub(crate) fn advice(refusal: &io::Error) -> String {
    let setting = |path: &str| {
        std::fs::read_to_string(path)
            .map(|text| text.trim().to_owned())
            .ok()
    };
    let as_root = "or run it as root";
    if setting("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return format!(
            "allow user namespaces with 'sysctl -w user.max_user_namespaces=10000' {as_root}"
        );
    }
    if setting("/proc/sys/user/max_net_namespaces").as_deref() == Some("0") {
        return "allow them with 'sysctl -w user.max_net_namespaces=10000'".to_owned();
    }
    if setting("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return format!("allow it with 'sysctl -w kernel.unprivileged_userns_clone=1' {as_root}");
    }
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return format!(
            "allow it with 'sysctl -w kernel.apparmor_restrict_unprivileged_userns=0' {as_root}"
        );
    }
    if refusal.raw_os_error() == Some(libc::EINVAL) {
        return "this kernel was built without namespaces (CONFIG_NET_NS, CONFIG_PID_NS, CONFIG_USER_NS)"
            .to_owned();
    }
    "run it as root; inside a container, give the container the capabilities SYS_ADMIN and NET_ADMIN"
        .to_owned()
}
