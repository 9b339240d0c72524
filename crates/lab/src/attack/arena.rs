//! The target, the honest host and the attacker.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use tempfile::TempDir;

use super::{AttackOptions, Plane};
use crate::{LabError, Namespace, Program, Supervisor, Topology, TopologyBuilder, scratch};

const TARGET: &str = "target";
const HONEST: &str = "honest";
const ATTACKER: &str = "attacker";
const HONEST_WIRE: &str = "H-T";
/// Ports of the router's two planes.
const NATIVE_PORT: u16 = 4711;
const NDN_PORT: u16 = 6363;
/// The file whose rate is measured: long enough that it takes most of what is counted at 5 Gbit/s, or
/// more than that on a wire with a rate.
const FILM_BYTES: u64 = 512_000_000;
/// The file that newcomers want.
const LETTER_BYTES: u64 = 1_000_000;
/// The prefix of the producer for honest users: its Data fits a datagram. Another one, of Data of
/// 7 kB, is for those that do not read.
pub(super) const PREFIX: &str = "/honest";
pub(super) const LARGE: &str = "/large";

/// A socket of the target that nobody reads.
pub(super) struct Sink {
    _socket: UdpSocket,
    /// As the attacker reaches it.
    pub(super) address: SocketAddr,
}

/// Hosts with their daemons.
pub(super) struct Arena {
    program: PathBuf,
    folder: TempDir,
    topology: Topology,
    router: u32,
    // Ended when the arena is dropped.
    _daemons: Mutex<Vec<Program>>,
    /// The names of the served contents.
    pub(super) film: String,
    pub(super) letter: String,
    /// Of the film.
    pub(super) film_bytes: u64,
}

impl Arena {
    pub(super) fn build(options: &AttackOptions, plane: Plane) -> Result<Arena, LabError> {
        let topology = TopologyBuilder::new(1)
            .host(TARGET)
            .host(HONEST)
            .host(ATTACKER)
            .veth(HONEST_WIRE, HONEST, TARGET)
            .veth("A-T", ATTACKER, TARGET)
            .build()?;
        // The worst case: nothing on the way or in the kernel stops forged sources.
        for setting in ["all", "default"] {
            let name = format!("net.ipv4.conf.{setting}.rp_filter");
            topology.host(TARGET)?.set_sysctl(&name, "0")?;
        }
        if let Some(rate) = options.wire {
            for host in [HONEST, TARGET] {
                limit(&topology, host, HONEST_WIRE, rate)?;
            }
        }
        let folder = scratch::folder("whimbrel-attack-")?;
        let mut arena = Arena {
            program: options.program.clone(),
            folder,
            topology,
            router: 0,
            _daemons: Mutex::default(),
            film: String::new(),
            letter: String::new(),
            film_bytes: options
                .wire
                .map_or(FILM_BYTES, |rate| FILM_BYTES.min(rate / 4)),
        };
        arena.start_router()?;
        match plane {
            Plane::Native => {
                arena.film = arena.serve_file("film", arena.film_bytes)?;
                arena.letter = arena.serve_file("letter", LETTER_BYTES)?;
            }
            Plane::Ndn => {
                arena.serve_pings(PREFIX, "1000")?;
                arena.serve_pings(LARGE, "7000")?;
            }
        }
        Ok(arena)
    }

    fn start_router(&mut self) -> Result<(), LabError> {
        let mut command = self.command(&["router", "run", "--json", "--ndn"]);
        command
            .arg("--key")
            .arg(self.path("router.key"))
            .arg("--socket")
            .arg(self.path("router.sock"))
            .arg("--ndn-socket")
            .arg(self.ndn_socket())
            .args(["--listen", "0.0.0.0:4711", "--ndn-listen", "0.0.0.0:6363"]);
        let router = self.speaker(TARGET, "router", command)?;
        router.await_word("\"guid\"", PATIENCE)?;
        self.router = router.id();
        self.keep(router);
        Ok(())
    }

    /// Serves a new file on the target. Returns its name.
    fn serve_file(&self, file: &str, bytes: u64) -> Result<String, LabError> {
        let program = format!("serve-{file}");
        let file = self.path(file);
        crate::demo::make_file(&file, bytes, bytes)?;
        let router = format!("127.0.0.1:{NATIVE_PORT}");
        let mut command = self.command(&["serve", "--json", "--no-cache", "--router", &router]);
        command.arg(&file);
        let server = self.speaker(TARGET, &program, command)?;
        let line = server.await_word("\"announced\"", PATIENCE)?;
        let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        self.keep(server);
        Ok(line["name"].as_str().unwrap_or_default().to_owned())
    }

    fn serve_pings(&mut self, prefix: &str, size: &str) -> Result<(), LabError> {
        let transport = format!("unix://{}", self.ndn_socket().display());
        let arguments = ["ndn", "pingserver", "--size", size, "--json"];
        let mut command = self.command(&arguments);
        command.args(["--transport", &transport, prefix]);
        let server = self.speaker(TARGET, "pingserver", command)?;
        server.await_word(prefix, PATIENCE)?;
        self.keep(server);
        Ok(())
    }

    fn keep(&self, daemon: Program) {
        if let Ok(mut daemons) = self._daemons.lock() {
            daemons.push(daemon);
        }
    }

    /// Starts a program on the honest host.
    pub(super) fn honest_speaker(&self, name: &str, command: Command) -> Result<Program, LabError> {
        self.speaker(HONEST, name, command)
    }

    fn speaker(&self, host: &str, name: &str, command: Command) -> Result<Program, LabError> {
        let host = self.topology.host(host)?;
        Supervisor::new(self.folder.path())
            .on(host)
            .speaker(name, command)
    }

    /// Returns the program with some arguments, and with nothing of this user's.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("HOME", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            // Its router has another key each time.
            .env("WHIMBREL_KNOWN_PEERS", self.path("known-peers.json"))
            .env_remove("NDN_CLIENT_TRANSPORT");
        command
    }

    /// Runs a program on the honest host, or on the target itself; returns true if it succeeds in
    /// time.
    pub(super) fn succeeds(
        &self,
        on_target: bool,
        command: Command,
        patience: Duration,
    ) -> Result<bool, LabError> {
        let host = self
            .topology
            .host(if on_target { TARGET } else { HONEST })?;
        let supervisor = Supervisor::new(self.folder.path()).on(host);
        let mut program = supervisor.daemon("honest", command)?;
        let status = program.process().wait_for(patience)?;
        if status.is_none() {
            program.process().kill()?;
        }
        Ok(status.is_some_and(|status| status.success()))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn ndn_socket(&self) -> PathBuf {
        self.path("nfd.sock")
    }

    /// The memory of the router, octets.
    pub(super) fn memory(&self) -> Result<u64, LabError> {
        crate::process::resident_bytes(self.router)
    }

    pub(super) fn honest(&self) -> Result<&Namespace, LabError> {
        self.topology.host(HONEST)
    }

    pub(super) fn attacker(&self) -> Result<&Namespace, LabError> {
        self.topology.host(ATTACKER)
    }

    fn target_towards(&self, host: &str) -> Result<Ipv4Addr, LabError> {
        self.topology.address_towards(TARGET, host)
    }

    pub(super) fn sink(&self) -> Result<Sink, LabError> {
        let open = || {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            let port = socket.local_addr()?.port();
            Ok((socket, port))
        };
        let opened: std::io::Result<(UdpSocket, u16)> = self.topology.host(TARGET)?.enter(open)?;
        let (socket, port) = opened.map_err(LabError::system("open a socket"))?;
        Ok(Sink {
            _socket: socket,
            address: (self.target_towards(ATTACKER)?, port).into(),
        })
    }

    /// A plane's listener, as the honest host or the attacker reaches it.
    pub(super) fn listener(&self, plane: Plane, of_honest: bool) -> Result<SocketAddr, LabError> {
        let address = self.target_towards(if of_honest { HONEST } else { ATTACKER })?;
        let port = match plane {
            Plane::Native => NATIVE_PORT,
            Plane::Ndn => NDN_PORT,
        };
        Ok((address, port).into())
    }
}

/// Has the kernel send no more than `rate` (bit/s) from `host` to `wire`.
fn limit(topology: &Topology, host: &str, wire: &str, rate: u64) -> Result<(), LabError> {
    let interface = topology.interface_of(host, wire)?;
    let rate_text = format!("{rate}bit");
    // What a card is given at once: a millisecond, and no less than the largest packet of the kernel.
    let burst = (rate / 8 / 1_000).max(MAX_KERNEL_PACKET).to_string();
    let bucket = [
        "tbf", "rate", &rate_text, "burst", &burst, "latency", "10ms",
    ];
    let place = ["qdisc", "add", "dev", &interface, "root"];
    topology
        .host(host)?
        .run("tc", &[&place[..], &bucket].concat())?;
    Ok(())
}

/// A packet that the kernel has yet to split, octets.
const MAX_KERNEL_PACKET: u64 = 1 << 16;
/// For a daemon to be ready.
const PATIENCE: Duration = Duration::from_secs(20);
