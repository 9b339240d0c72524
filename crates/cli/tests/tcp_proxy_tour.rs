//! The tour (docs/tour.md) of `whimbrel tcp-proxy`, word for word, as the user of the tests and, if that is root,
//! as an ordinary one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of a test fail the test"
)]
#![allow(clippy::disallowed_methods, reason = "a test of real programs")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{PATIENCE, await_that};
use whimbrel_lab::{Namespace, Process, lab_available};

const TOUR: &str = include_str!("../../../docs/tour.md");
const SECTION: &str = "## TCP programs over NDN";

/// Runs the rest of the command line as nobody, with /dev/net/tun open to all users, as udev makes
/// it; $0 is a folder.
const AS_NOBODY: &str = "set -e
mount -t tmpfs none \"$0/tun\"
mknod \"$0/tun/tun\" c 10 200
chmod 666 \"$0/tun/tun\"
mount --bind \"$0/tun/tun\" /dev/net/tun
exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs \"$@\"";

/// The commands of the section's first block.
fn commands() -> Vec<&'static str> {
    let (_, section) = TOUR.split_once(SECTION).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    block.lines().collect()
}

/// A user at three terminals of one machine.
struct User<'a> {
    folder: &'a Path,
    host: &'a Namespace,
    ordinary: bool,
}

impl User<'_> {
    /// Types a command, with a socket of this test's own; its output is in a file.
    fn types(&self, command: &str, output: &str) -> Process {
        let socket = self.folder.join("ndn.sock");
        let command = command.replace("/tmp/ndn.sock", socket.to_str().unwrap());
        let mut shell = match self.ordinary {
            false => Command::new("sh"),
            true => {
                let mut shell = Command::new("unshare");
                shell.args(["--mount", "sh", "-c", AS_NOBODY]);
                shell.arg(self.folder).arg("sh");
                shell
            }
        };
        shell
            .args(["-c", &command])
            .current_dir(self.folder.join("www"));
        let bin = self.folder.join("bin");
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
        shell.env("PATH", path).env("PYTHONUNBUFFERED", "1");
        for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            shell.env_remove(variable);
        }
        let file = fs::File::create(self.folder.join(output)).unwrap();
        shell.stderr(file.try_clone().unwrap());
        shell.stdout(file).stdin(Stdio::null());
        self.host.spawn(shell).unwrap()
    }

    fn read(&self, output: &str) -> String {
        fs::read_to_string(self.folder.join(output)).unwrap_or_default()
    }
}

fn works(ordinary: bool) {
    let [router, reverse, forward] = commands()[..] else {
        panic!("the tour has three commands");
    };
    let folder = tempfile::tempdir().unwrap();
    // As /tmp: in a folder where others could replace a socket no program would use one.
    let all = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(folder.path(), all.clone()).unwrap();
    for name in ["bin", "www", "tun"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        fs::set_permissions(folder.path().join(name), all.clone()).unwrap();
    }
    if ordinary {
        // In a user's namespace root's folders are those of nobody in particular.
        std::os::unix::fs::chown(folder.path(), Some(65_534), Some(65_534)).unwrap();
    }
    fs::write(folder.path().join("www/a-page-of-the-tour"), "").unwrap();
    // Nobody may not read the folders above the program.
    let program = env!("CARGO_BIN_EXE_whimbrel");
    fs::copy(program, folder.path().join("bin/whimbrel")).unwrap();
    let host = Namespace::new("tour").unwrap();
    let user = User {
        folder: folder.path(),
        host: &host,
        ordinary,
    };
    let _router = user.types(router, "router");
    await_that("the router answers", || {
        folder.path().join("ndn.sock").exists()
    });
    let _reverse = user.types(reverse, "reverse");
    await_that("the servers' site serves", || {
        let said = user.read("reverse");
        assert!(!said.contains("/dev/net/tun"), "{said}");
        said.contains("Serving HTTP")
    });
    let mut client = user.types(forward, "forward");
    let ended = client.wait_for(PATIENCE).unwrap();
    let said = user.read("forward");
    assert!(
        ended.is_some_and(|status| status.success()),
        "{ended:?} {said}"
    );
    assert!(said.contains("a-page-of-the-tour"), "{said}");
    assert!(said.contains("/a/tcp is withdrawn"), "{said}");
    assert!(user.read("reverse").contains("\"GET / HTTP/1.1\" 200"));
}

#[test]
fn the_tour_s_three_commands_fetch_a_page_through_two_proxies() {
    if lab_available() {
        works(false);
    }
}

#[test]
fn and_without_root() {
    if !lab_available() {
        return;
    }
    if fs::read_to_string("/proc/self/uid_map")
        .unwrap()
        .split_whitespace()
        .nth(2)
        == Some("1")
    {
        return eprintln!("SKIPPED: this user is no root, so the other test has shown it");
    }
    works(true);
}
