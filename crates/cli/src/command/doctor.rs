//! `doctor`.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;
use whimbrel_client::connect_socket;
use whimbrel_client::place::{Places, check_own};
use whimbrel_node::config::{NDN_PORT, NDN_WEBSOCKET_PORT};
use whimbrel_node::ndn::client::Uplink;

use super::{Outcome, json_line, out};
use crate::exit::Exit;

/// Buffer size that UDP sockets request, in bytes: at 1 Gbit/s, 64 ms of traffic.
const WANTED_BUFFER: u64 = 8 << 20;
/// Free bytes below which a download may fill the disk.
const LITTLE_SPACE: u64 = 1 << 30;
/// A clock that shows an earlier time (2026-01-01) was never set.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);

#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  whimbrel doctor --json | jq '.[] | select(.verdict != \"ok\")'\n\n\
                        Exit code 1: a requirement of whimbrel is missing."
)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// It works, but less well or only in part.
    Warn,
    /// It does not work.
    Fail,
}

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, found: impl Into<String>) -> Finding {
        Finding {
            what,
            verdict: Verdict::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn warn(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            what,
            verdict: Verdict::Warn,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn fail(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding {
            what,
            verdict: Verdict::Fail,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}

pub(crate) fn run(arguments: &Doctor) -> Outcome {
    let places = Places::of_this_user();
    let space = [
        free_space("space here", Path::new(".")),
        free_space("space for state", &places.state),
    ];
    let folders = [
        writable("state folder", &places.state),
        writable("run-time folder", &places.run),
    ];
    // The lab comes last: without root, trying it moves this process to a user namespace.
    let findings: Vec<Finding> = [udp(), segmentation_offload()]
        .into_iter()
        .chain([buffer("rmem_max", "receive"), buffer("wmem_max", "send")])
        .chain(folders)
        .chain(space)
        .chain([ndn_forwarder(), ndn_ports()])
        .chain([clock(), congestion_control(), ip_command(), lab()])
        .collect();
    let failed = findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Fail);
    if arguments.json {
        json_line(&findings);
    } else {
        out(&findings.iter().map(line).collect::<String>());
    }
    Ok(if failed { Exit::Other } else { Exit::Done })
}

fn line(finding: &Finding) -> String {
    let verdict = match finding.verdict {
        Verdict::Ok => "ok  ",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    let remedy = finding
        .remedy
        .as_ref()
        .map_or(String::new(), |remedy| format!("      mend it: {remedy}\n"));
    format!("{verdict}  {}: {}\n{remedy}", finding.what, finding.found)
}

fn setting(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .ok()
}

fn udp() -> Finding {
    let echoed = || -> io::Result<()> {
        let (a, b) = (
            UdpSocket::bind("127.0.0.1:0")?,
            UdpSocket::bind("127.0.0.1:0")?,
        );
        b.set_read_timeout(Some(Duration::from_secs(1)))?;
        a.send_to(b"?", b.local_addr()?)?;
        b.recv(&mut [0]).map(drop)
    };
    match echoed() {
        Ok(()) => Finding::ok("UDP sockets", "work"),
        Err(error) => Finding::fail("UDP sockets", error.to_string(), "ip link set lo up"),
    }
}

fn segmentation_offload() -> Finding {
    const WHAT: &str = "UDP segmentation offload";
    let segments = UdpSocket::bind("127.0.0.1:0")
        .and_then(|socket| quinn_udp::UdpSocketState::new((&socket).into()))
        .map(|state| state.max_gso_segments());
    match segments {
        Ok(segments) if segments > 1 => {
            Finding::ok(WHAT, format!("{segments} packets in one call"))
        }
        Ok(_) => Finding::warn(
            WHAT,
            "not supported by this kernel: more CPU time per gigabyte",
            "use a kernel from 4.18 on",
        ),
        Err(error) => Finding::warn(WHAT, error.to_string(), "use a kernel from 4.18 on"),
    }
}

fn buffer(name: &'static str, direction: &str) -> Finding {
    let what = if name == "rmem_max" {
        "UDP receive buffer"
    } else {
        "UDP send buffer"
    };
    let Some(granted) =
        setting(&format!("/proc/sys/net/core/{name}")).and_then(|text| text.parse::<u64>().ok())
    else {
        return Finding::ok(what, "the limit cannot be read here");
    };
    // CAP_NET_ADMIN lifts the limit; the daemons log at start what they were granted.
    if granted >= WANTED_BUFFER {
        return Finding::ok(what, format!("up to {granted} bytes"));
    }
    Finding::warn(
        what,
        format!("at most {granted} bytes; fast {direction} paths lose packets on this machine"),
        format!("sudo sysctl -w net.core.{name}={WANTED_BUFFER}"),
    )
}

/// Reports where NDN programs look for a forwarder, and whether one listens there.
fn ndn_forwarder() -> Finding {
    const WHAT: &str = "NDN forwarder";
    let remedy = "whimbrel router run";
    let uplink = match Uplink::find(None) {
        Ok(uplink) => uplink,
        Err(error) => {
            return Finding::warn(
                WHAT,
                error.to_string(),
                "NDN_CLIENT_TRANSPORT=unix:///run/nfd/nfd.sock",
            );
        }
    };
    let connected = match &uplink {
        Uplink::Unix(path) => connect_socket(path).map(drop).map_err(io::Error::other),
        Uplink::Tcp(address) => {
            TcpStream::connect_timeout(address, Duration::from_secs(2)).map(drop)
        }
        // A datagram socket gives no sign of a listener before an answer.
        Uplink::Udp(_) => return Finding::ok(WHAT, format!("programs will use {uplink}")),
    };
    match connected {
        Ok(()) => Finding::ok(
            WHAT,
            format!("one listens on {uplink}, where programs look for it"),
        ),
        Err(error) => Finding::warn(
            WHAT,
            format!("no forwarder on {uplink}, where programs look for it: {error}"),
            remedy,
        ),
    }
}

/// Ports that an NDN router listens on unless its configuration names others.
fn ndn_ports() -> Finding {
    const WHAT: &str = "NDN ports";
    let udp = UdpSocket::bind(("0.0.0.0", NDN_PORT))
        .err()
        .map(|error| (format!("UDP {NDN_PORT}"), error));
    let tcp = [NDN_PORT, NDN_WEBSOCKET_PORT].map(|port| {
        TcpListener::bind(("0.0.0.0", port))
            .err()
            .map(|error| (format!("TCP {port}"), error))
    });
    let taken: Vec<String> = udp
        .into_iter()
        .chain(tcp.into_iter().flatten())
        .map(|(port, error)| format!("{port}: {error}"))
        .collect();
    if taken.is_empty() {
        return Finding::ok(
            WHAT,
            format!("UDP and TCP {NDN_PORT} and TCP {NDN_WEBSOCKET_PORT} are free"),
        );
    }
    Finding::warn(
        WHAT,
        format!("{} (perhaps by a running router)", taken.join(", ")),
        "give a second router other ports: whimbrel router run --ndn-listen 0.0.0.0:6364 --ndn-websocket 0.0.0.0:9697",
    )
}

/// Returns the nearest existing folder above.
fn existing(path: &Path) -> PathBuf {
    path.ancestors()
        .find(|folder| folder.exists())
        .unwrap_or(Path::new("/"))
        .to_owned()
}

fn writable(what: &'static str, folder: &Path) -> Finding {
    if let Err(foreign) = check_own(folder) {
        return Finding::fail(
            what,
            foreign.to_string(),
            "set XDG_STATE_HOME and XDG_RUNTIME_DIR to folders of your own",
        );
    }
    let nearest = existing(folder);
    match rustix::fs::access(&nearest, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Finding::ok(what, folder.display().to_string()),
        Err(error) => Finding::fail(
            what,
            format!("{}: {error}", nearest.display()),
            format!("mkdir -p {0} && chown $USER {0}", folder.display()),
        ),
    }
}

fn free_space(what: &'static str, folder: &Path) -> Finding {
    let nearest = existing(folder);
    match rustix::fs::statvfs(&nearest) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let found = format!("{:.1} GB free in {}", free as f64 / 1e9, nearest.display());
            if free >= LITTLE_SPACE {
                Finding::ok(what, found)
            } else {
                Finding::warn(what, found, "remove files, or work in another folder")
            }
        }
        Err(error) => Finding::warn(
            what,
            format!("{}: {error}", nearest.display()),
            "check the disk",
        ),
    }
}

fn clock() -> Finding {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    if now >= EARLIEST {
        let found = format!(
            "Unix time {}; clocks of routers and name servers must agree within 30 s; hosts take their router's",
            now.as_secs()
        );
        return Finding::ok("clock", found);
    }
    let found = "it was never set; signed records will be refused";
    Finding::fail("clock", found, "timedatectl set-ntp true")
}

fn congestion_control() -> Finding {
    const WHAT: &str = "TCP congestion control";
    let known = setting("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let missing: Vec<&str> = ["cubic", "bbr"]
        .into_iter()
        .filter(|name| !known.split(' ').any(|one| one == *name))
        .collect();
    if missing.is_empty() {
        return Finding::ok(WHAT, known);
    }
    let modules: Vec<String> = missing.iter().map(|name| format!("tcp_{name}")).collect();
    Finding::warn(
        WHAT,
        format!(
            "the demo cannot compare with {}: this kernel has {known}",
            missing.join(" and ")
        ),
        format!("sudo modprobe -a {}", modules.join(" ")),
    )
}

fn ip_command() -> Finding {
    const WHAT: &str = "ip command";
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    match folders
        .map(|folder| folder.join("ip"))
        .find(|file| file.is_file())
    {
        Some(file) => Finding::ok(WHAT, file.display().to_string()),
        None => Finding::warn(
            WHAT,
            "not installed; it is needed only to inspect the lab by hand",
            "apt install iproute2",
        ),
    }
}

fn lab() -> Finding {
    const WHAT: &str = "lab (network namespaces, /dev/net/tun)";
    let tried =
        whimbrel_lab::ensure_privileges().and_then(|how| whimbrel_lab::check_lab().map(|()| how));
    match tried {
        Ok(whimbrel_lab::Privileges::Administrator) => {
            Finding::ok(WHAT, "works with this user's privileges")
        }
        Ok(whimbrel_lab::Privileges::UserNamespace) => {
            Finding::ok(WHAT, "works in a user namespace")
        }
        Err(error) => Finding::warn(
            WHAT,
            format!("demo and netns studies cannot run: {error}"),
            "follow the message, then run `whimbrel doctor` again",
        ),
    }
}
