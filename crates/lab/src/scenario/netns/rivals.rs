//! Programs of others that send a file to many receivers by IP multicast: NORM, UFTP, udpcast.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::scenario::load::MulticastProgram;

/// The group that all of them send to: of the scope of an organisation (RFC 2365).
pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 0, 1);
/// NORM's program, which `scripts/setup --multicast` builds.
pub(crate) const NORM: &str = "target/interop/norm/norm_file";
const PORT: &str = "7000";
/// udpcast takes this one and the next.
const EVEN_PORT: &str = "9000";
/// Routers that a packet may pass.
const HOPS: &str = "32";
/// Octets that a socket may keep.
const BUFFER: &str = "4000000";
/// The first and the least estimate of the round trip, and the most, in seconds: of UFTP, which starts with 0.5 s.
const ROUND_TRIPS: &str = "0.05:0.01:5";
/// The time for which a receiver of udpcast answers after it has all. Then it says so.
const UDPCAST_EXIT_WAIT: Duration = Duration::from_millis(500);

/// A host that takes part.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// 0 is the source.
    pub(super) number: usize,
    pub(super) interface: String,
    /// The folder for what it receives.
    pub(super) folder: PathBuf,
}

/// A program, and the rate that it is told in bits per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramUse {
    pub(super) program: MulticastProgram,
    pub(super) rate: Option<u64>,
}

impl ProgramUse {
    /// Returns the command of a receiver.
    pub(super) fn receive(&self, member: &Member) -> Vec<String> {
        let (interface, group) = (member.interface.clone(), GROUP.to_string());
        let folder = member.folder.display();
        match self.program {
            MulticastProgram::Norm => {
                let folder = format!("{folder}/");
                let number = norm_id(member.number);
                words([NORM, "receive", &group, PORT, &interface, &number, &folder])
            }
            MulticastProgram::Uftp => {
                let (number, folder) = (uftp_id(member.number), folder.to_string());
                let mut command = words(["uftpd", "-d", "-q", "-F", "@LOG", "-B", BUFFER]);
                command.extend(words(["-I", &interface, "-M", &group, "-p", PORT]));
                command.extend(words(["-U", &number, "-D", &folder]));
                command
            }
            MulticastProgram::Udpcast => {
                let file = self.path(member, Path::new(""), "").display().to_string();
                let mut command = words(["udp-receiver", "--nokbd", "--no-progress"]);
                let wait = UDPCAST_EXIT_WAIT.as_millis().to_string();
                command.extend(words(["--exit-wait", &wait, "--file", &file]));
                command.extend(udpcast_network(&interface, &group));
                command
            }
        }
    }

    /// Returns the command of the source of `file` for the members with the numbers 1 to `members`.
    pub(super) fn send(&self, source: &Member, file: &Path, members: usize) -> Vec<String> {
        let (interface, group) = (source.interface.clone(), GROUP.to_string());
        let file = file.display().to_string();
        let numbers = 1..=members;
        match self.program {
            MulticastProgram::Norm => {
                let rate = self.rate.unwrap_or(0).to_string();
                let own = norm_id(source.number);
                let mut command = words([NORM, "send", &group, PORT, &interface, &own]);
                command.extend([rate, file]);
                command.extend(numbers.map(norm_id));
                command
            }
            MulticastProgram::Uftp => {
                let members: Vec<String> = numbers.map(uftp_id).collect();
                let mut command = words(["uftp", "-I", &interface, "-M", &group, "-P", &group]);
                command.extend(words(["-p", PORT, "-t", HOPS, "-B", BUFFER]));
                command.extend(words(["-U", &uftp_id(source.number), "-r", ROUND_TRIPS]));
                command.extend(match self.rate {
                    Some(rate) => words(["-R", &(rate / 1000).to_string()]),
                    None => words(["-C", "tfmcc"]),
                });
                command.extend(words(["-H", &members.join(","), &file]));
                command
            }
            MulticastProgram::Udpcast => {
                let rate = (self.rate.unwrap_or(0) / 1000).to_string() + "k";
                let mut command =
                    words(["udp-sender", "--nokbd", "--no-progress", "--full-duplex"]);
                command.extend(words(["--nopointopoint", "--mcast-data-address", &group]));
                command.extend(words(["--min-receivers", &members.to_string()]));
                command.extend(words(["--max-bitrate", &rate, "--file", &file]));
                command.extend(udpcast_network(&interface, &group));
                command
            }
        }
    }

    /// Returns what a receiver says when it can receive.
    pub(super) fn ready_word(&self) -> &'static str {
        match self.program {
            MulticastProgram::Norm => "ready",
            MulticastProgram::Uftp => "Loaded",
            MulticastProgram::Udpcast => "UDP receiver for",
        }
    }

    /// Returns what the source says when it begins, where its own start waits: udpcast waits two seconds for
    /// receivers that it was not told of.
    pub(super) fn start_word(&self) -> Option<&'static str> {
        match self.program {
            MulticastProgram::Udpcast => Some("Starting transfer"),
            MulticastProgram::Norm | MulticastProgram::Uftp => None,
        }
    }

    /// Returns what a receiver says when it has the file, ...
    pub(super) fn arrival_word(&self) -> &'static str {
        match self.program {
            MulticastProgram::Norm => "received ",
            MulticastProgram::Uftp => "RESULT;",
            MulticastProgram::Udpcast => "Transfer complete",
        }
    }

    /// ... and how long after that.
    pub(super) fn arrival_delay(&self) -> Duration {
        match self.program {
            MulticastProgram::Udpcast => UDPCAST_EXIT_WAIT,
            MulticastProgram::Norm | MulticastProgram::Uftp => Duration::ZERO,
        }
    }

    /// Returns the path at which a receiver has the file, from what it said.
    pub(super) fn path(&self, member: &Member, file: &Path, said: &str) -> PathBuf {
        match self.program {
            MulticastProgram::Norm => said.trim_start_matches("received ").into(),
            MulticastProgram::Uftp => member.folder.join(file.file_name().unwrap_or_default()),
            MulticastProgram::Udpcast => member.folder.join("file"),
        }
    }
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).into()
}

fn udpcast_network(interface: &str, group: &str) -> Vec<String> {
    let mut network = words(["--interface", interface, "--portbase", EVEN_PORT]);
    network.extend(words(["--ttl", HOPS, "--mcast-rdv-address", group]));
    network
}

/// Numbers of nodes begin with 1.
fn norm_id(number: usize) -> String {
    (number + 1).to_string()
}

fn uftp_id(number: usize) -> String {
    format!("{:#010x}", number + 1)
}
