//! Network namespaces for tests.
#![allow(unsafe_code, reason = "moving a thread to a new network namespace")]
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "real interfaces in real time"
)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use whimbrel_io::Interface;

/// Runs `test` in a thread with a new network namespace.
pub(crate) fn in_new_namespace(test: impl FnOnce() + Send + 'static) {
    let outcome = thread::spawn(move || match unshare_network() {
        Ok(()) => test(),
        Err(Errno::PERM) => skipped("no privilege to make a network namespace"),
        Err(error) => panic!("cannot make a network namespace: {error}"),
    });
    if let Err(panic) = outcome.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Reports a test that this machine does not permit. Panics if `WHIMBREL_LAB` says that it does.
pub(crate) fn skipped(why: &str) {
    assert!(
        std::env::var_os("WHIMBREL_LAB").is_none(),
        "WHIMBREL_LAB is set, but {why}"
    );
    eprintln!("SKIPPED: {why}");
}

fn unshare_network() -> Result<(), Errno> {
    // SAFETY: only the network namespace of this thread changes; no descriptors or memory are
    // unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
}

/// Returns true if all commands succeeded.
pub(crate) fn ip(commands: &[&str]) -> bool {
    commands.iter().all(|command| {
        Command::new("ip")
            .args(command.split(' '))
            .status()
            .is_ok_and(|status| status.success())
    })
}

/// Two namespaces with a wire between them: `e0` with 10.77.0.1 in the first, `e1` with 10.77.0.2
/// in the second. Sockets belong to the namespace that the thread is in when they are opened.
pub(crate) struct Wire {
    namespaces: [File; 2],
}

impl Wire {
    /// Lays the wire in a thread with a new namespace, which becomes the first. Returns `None` if
    /// this system cannot make veth pairs.
    pub(crate) fn lay() -> Option<Wire> {
        let here = || File::open("/proc/thread-self/ns/net").unwrap();
        let first = here();
        unshare_network().unwrap();
        let second = here();
        let path = format!("/proc/{}/fd/{}", std::process::id(), first.as_raw_fd());
        let made = ip(&[
            &format!("link add e1 type veth peer name e0 netns {path}"),
            "address add 10.77.0.2/24 dev e1",
            "link set lo up",
            "link set e1 up",
        ]);
        let wire = Wire {
            namespaces: [first, second],
        };
        if !made {
            skipped("this system makes no veth pairs");
            return None;
        }
        wire.enter(0);
        assert!(ip(&[
            "address add 10.77.0.1/24 dev e0",
            "link set lo up",
            "link set e0 up"
        ]));
        for (which, interface) in ["e0", "e1"].into_iter().enumerate().rev() {
            wire.enter(which);
            let start = Instant::now();
            // The kernel drops frames until it has detected the carrier.
            while !Interface::find(interface).unwrap().is_running {
                assert!(
                    start.elapsed() < Duration::from_secs(20),
                    "{interface} stays without a carrier"
                );
                thread::sleep(Duration::from_millis(1));
            }
        }
        Some(wire)
    }

    /// Moves the thread to the first or the second namespace.
    pub(crate) fn enter(&self, which: usize) {
        move_into_link_name_space(
            self.namespaces[which].as_fd(),
            Some(LinkNameSpaceType::Network),
        )
        .unwrap();
    }
}
