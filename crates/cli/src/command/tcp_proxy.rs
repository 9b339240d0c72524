//! `tcp-proxy`: carrying TCP over NDN.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use serde_json::{Value, json};
use whimbrel_client::place::{Places, make_folder_of};
use whimbrel_client::{LocalError, connect_socket};
use whimbrel_core::Time;
use whimbrel_io::{Clock, IoError, SocketFile, UnixListenerConfig};
use whimbrel_node::ndn::client;
use whimbrel_node::run::StartError;
use whimbrel_node::tcp_proxy::config::{AllowSection, DEVICE, RouteSection, network};
use whimbrel_node::tcp_proxy::run::Inquirer;
use whimbrel_node::tcp_proxy::{PlanError, ProxyConfig, ProxyLoop, Role, RunError, Told, key};
use whimbrel_tcp_proxy::{
    ConnectionStatus, Counters, GatewayEvent, PathStatus, Protocol, Proxy, ProxyEvent, Refusal,
    Refused,
};
use whimbrel_transport::RegistrationEvent;

use super::guest::Guest;
use super::{Outcome, out, tell, tell_json};
use crate::exit::{Exit, Failure};
use crate::logging::note;
use crate::results::Silence;

/// How long to wait for a running proxy's status.
const PATIENCE: Duration = Duration::from_secs(5);

const EXAMPLES: &str = "Examples:\n  \
    (umask 077; whimbrel tcp-proxy key > tcp.key)        # the same file at both sites\n  \
    whimbrel tcp-proxy forward --prefix /a/tcp --key tcp.key --address 10.1.0.1 --route 10.2.0.0/16=/b/tcp\n  \
    whimbrel tcp-proxy reverse --prefix /b/tcp --key tcp.key --address 10.2.0.1 --route 10.1.0.0/16=/a/tcp --allow 10.2.0.1:80\n\n\
    Then `curl http://10.2.0.1/` at the clients' site, where the forward proxy runs, goes over NDN to the servers' site. \
    Each site has an NDN forwarder, and the NDN network has routes to both prefixes. \
    `-- curl http://10.2.0.1/` at the end runs a program as soon as the proxy is ready, and ends the proxy with it. \
    The exit code is then the program's (127: it does not exist, 126: it cannot be run, 128 and its number: it was ended by a signal).";

#[derive(Subcommand, Debug)]
pub(crate) enum TcpProxyCommand {
    /// Carry TCP connections of local programs to remote addresses, over NDN
    #[command(after_help = EXAMPLES)]
    Forward(Box<Run>),
    /// Carry TCP connections of remote programs to local addresses, over NDN
    #[command(after_help = EXAMPLES)]
    Reverse(Box<Run>),
    /// Carry TCP connections in both directions
    #[command(after_help = EXAMPLES)]
    Both(Box<Run>),
    /// Show a running proxy: connections, windows, queues, counters
    #[command(
        after_help = "Examples:\n  whimbrel tcp-proxy status\n  whimbrel tcp-proxy status --watch\n  whimbrel tcp-proxy status --json | jq .counters"
    )]
    Status(Status),
    /// Print a new secret for proxies that talk to each other
    #[command(after_help = "Example:\n  (umask 077; whimbrel tcp-proxy key > tcp.key)")]
    Key,
}

/// Flags of a proxy that override and add to its configuration.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The proxy's NDN prefix, which nothing else uses
    #[arg(long, value_name = "NAME")]
    prefix: Option<String>,
    /// The proxy responsible for some addresses; PREFIX,PROTOCOL for a protocol of their own
    #[arg(long, value_name = "NETWORK=PREFIX", value_parser = RouteSection::parse)]
    route: Vec<RouteSection>,
    /// Source addresses that may open connections [default: those of the device]
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    source: Vec<IpNet>,
    /// Local addresses and ports that remote programs may connect to
    #[arg(long, value_name = "NETWORK[:PORTS]", value_parser = AllowSection::parse)]
    allow: Vec<AllowSection>,
    /// The secret that the proxies share
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Protection of the traffic between the proxies
    #[arg(long, value_name = "KIND")]
    protection: Option<ProtectionArgument>,
    /// The inter-proxy protocol
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<ProtocolArgument>,
    /// Name of the network device
    #[arg(long, value_name = "NAME")]
    tun: Option<String>,
    /// Address of the network device, with the length of its prefix
    #[arg(long, value_name = "ADDRESS", value_parser = network)]
    address: Vec<IpNet>,
    /// Do not add routes to the kernel
    #[arg(long)]
    no_routes: bool,
    /// In place of routes, redirect TCP with nftables rules, which are removed when the proxy ends;
    /// `--nft=print` prints them and ends
    #[arg(
        long,
        value_name = "WHAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "install"
    )]
    nft: Option<NftArgument>,
    /// Largest Data, in bytes
    #[arg(long, value_name = "BYTES")]
    icn_mtu: Option<usize>,
    /// Maximum number of paths to each peer, which connections share; routers must support path tags
    #[arg(long, value_name = "NUMBER")]
    paths: Option<usize>,
    /// The NDN forwarder: unix:///PATH, tcp://HOST[:PORT] or udp://HOST[:PORT]
    #[arg(long, value_name = "FACEURI")]
    transport: Option<String>,
    /// The socket for `whimbrel tcp-proxy status`
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen for Prometheus on this address (http://ADDRESS/metrics)
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
    /// A program to run as soon as the proxy is ready; the proxy ends with it
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtectionArgument {
    Encrypt,
    Authenticate,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NftArgument {
    Install,
    Print,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtocolArgument {
    Unreliable,
    Reliable,
    Basic,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The proxy's socket [default: that of the device tcpicn0]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show it again every second
    #[arg(long)]
    watch: bool,
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Failure {
        Failure::new(Exit::Usage, error)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        let exit = match error {
            RunError::Uplink(_) | RunError::Options(_) => Exit::Usage,
            RunError::Forwarder(_) => Exit::NoDaemon,
            _ => Exit::Other,
        };
        Failure::new(exit, error)
    }
}

pub(crate) fn run(command: TcpProxyCommand) -> Outcome {
    match command {
        TcpProxyCommand::Forward(arguments) => carry(*arguments, Role::Forward),
        TcpProxyCommand::Reverse(arguments) => carry(*arguments, Role::Reverse),
        TcpProxyCommand::Both(arguments) => carry(*arguments, Role::Both),
        TcpProxyCommand::Status(arguments) => status(&arguments),
        TcpProxyCommand::Key => {
            out(&format!("{}\n", key::generate()?));
            Ok(Exit::Done)
        }
    }
}

impl Run {
    fn config(self) -> Result<ProxyConfig, PlanError> {
        let mut config = match &self.config {
            Some(path) => ProxyConfig::read(path)?,
            None => ProxyConfig::default(),
        };
        config.prefix = self.prefix.or(config.prefix);
        config.route.extend(self.route);
        config.sources.extend(self.source);
        config.allow.extend(self.allow);
        config.key = self.key.or(config.key);
        let protection = self.protection.map(|it| match it {
            ProtectionArgument::Encrypt => String::from("encrypt"),
            ProtectionArgument::Authenticate => String::from("authenticate"),
            ProtectionArgument::None => String::from("none"),
        });
        config.protection = protection.or(config.protection);
        let protocol = self.protocol.map(|it| match it {
            ProtocolArgument::Unreliable => Protocol::Unreliable,
            ProtocolArgument::Reliable => Protocol::Reliable,
            ProtocolArgument::Basic => Protocol::Basic,
        });
        config.protocol = protocol.map(|it| it.to_string()).or(config.protocol);
        config.device.name = self.tun.or(config.device.name);
        config.device.addresses.extend(self.address);
        if self.no_routes {
            config.device.routes = Some(false);
        }
        if self.nft.is_some() {
            config.device.nft = Some(true);
        }
        config.icn_mtu = self.icn_mtu.or(config.icn_mtu);
        config.paths = self.paths.or(config.paths);
        config.transport = self.transport.or(config.transport);
        config.metrics = self.metrics.or(config.metrics);
        Ok(config)
    }
}

fn carry(arguments: Run, role: Role) -> Outcome {
    let clock = Clock::start();
    let (json, socket) = (arguments.json, arguments.socket.clone());
    let command = arguments.command.clone();
    let prints = arguments.nft == Some(NftArgument::Print);
    let plan = arguments.config()?.plan(role, clock.wall_clock())?;
    if let Some(redirect) = plan.device.redirect.as_ref().filter(|_| prints) {
        out(&redirect.rules());
        for command in redirect.commands() {
            out(&format!("# ip {}\n", command.join(" ")));
        }
        return Ok(Exit::Done);
    }
    let (prefix, device) = (plan.options.prefix.clone(), plan.device.name.clone());
    let mut proxy = ProxyLoop::new(plan, clock)?;
    let places = match &socket {
        Some(place) => vec![place.clone()],
        None => sockets_of(&Places::of_this_user().run, &device),
    };
    let answering = match answer_status(&places, proxy.inquirer()) {
        Ok(file) => Some(file),
        Err(error) if socket.is_some() => return Err(error.into()),
        Err(error) => {
            // Root of a user namespace may not write where root keeps its sockets. The proxy can do without.
            note(&format!(
                "no answers to `whimbrel tcp-proxy status`: {error}; --socket PATH names another place"
            ));
            None
        }
    };
    if let Some(file) = answering.as_ref().filter(|it| it.path() != places[0]) {
        let place = file.path().display();
        note(&format!(
            "another proxy has a device {device}; this one answers `whimbrel tcp-proxy status --socket {place}`"
        ));
    }
    if let Some(metrics) = proxy.metrics() {
        note(&format!("metrics: http://{metrics}/metrics"));
    }
    let uplink = proxy.uplink().to_string();
    let inquirer = proxy.inquirer();
    let mut has_device = false;
    let mut guest = None;
    let ended = proxy.run(|proxy, _, told| {
        if let Some(failure) = report(&told, json, &uplink) {
            return ControlFlow::Break(failure);
        }
        has_device |= matches!(told, GatewayEvent::DeviceUp);
        if has_device && proxy.is_registered() && guest.is_none() && !command.is_empty() {
            let inquirer = inquirer.clone();
            match Guest::start(&command, move || inquirer.stop()) {
                Ok(started) => guest = Some(started),
                Err(failure) => return ControlFlow::Break(failure),
            }
        }
        ControlFlow::Continue(())
    });
    drop(answering);
    let finished = guest.map_or(Ok(()), Guest::finish);
    match ended? {
        Some(failure) => Err(failure),
        None => {
            note(&format!("{prefix} is withdrawn, and {device} removed"));
            finished.map(|()| Exit::Done)
        }
    }
}

/// Tells the user; returns a failure that ends the proxy.
fn report(told: &Told, json: bool, uplink: &str) -> Option<Failure> {
    match told {
        GatewayEvent::Face(client::Told::Event(ProxyEvent::Registration(event))) => match event {
            RegistrationEvent::Registered(prefix) if json => {
                tell_json(&json!({ "event": "ready", "prefix": prefix.to_string() }));
            }
            RegistrationEvent::Registered(prefix) => {
                tell(&format!("ready: {prefix} by {uplink}\n"));
            }
            RegistrationEvent::Failed {
                prefix,
                reason,
                retry_in: None,
            } => {
                let text = format!("{prefix} cannot be registered: {reason}");
                return Some(Failure::new(Exit::Nack, text));
            }
            RegistrationEvent::Failed { prefix, reason, .. } => {
                note(&format!("{prefix} is not registered yet: {reason}"));
            }
        },
        GatewayEvent::Face(client::Told::Event(ProxyEvent::Forged)) => note(
            "a message was not made with this proxy's key: the peer has another key or protection, or somebody forges",
        ),
        GatewayEvent::Face(client::Told::Event(ProxyEvent::Untimely)) => note(
            "a message is from another time than this machine's: the clocks of the proxies differ, or somebody replays",
        ),
        GatewayEvent::Face(client::Told::Event(ProxyEvent::Refused(refused))) => {
            note(&refusal(refused));
        }
        GatewayEvent::Face(client::Told::Event(ProxyEvent::NotAdmitted(client))) => note(&format!(
            "too many connections are opened that nobody answers, the latest by {client}: some are dropped (not_admitted in the status); TCP tries again"
        )),
        GatewayEvent::Face(client::Told::Gone) => {
            note(&format!(
                "the forwarder on {uplink} closed the connection; waiting for it"
            ));
        }
        GatewayEvent::DeviceDown => {
            let text = "the network device was deleted";
            return Some(Failure::new(Exit::Other, text));
        }
        GatewayEvent::Face(client::Told::Connected | client::Told::Unreachable(_))
        | GatewayEvent::DeviceUp
        | GatewayEvent::DeviceRefused(_) => {}
    }
    None
}

/// Says which connection is not carried, and what would allow it.
fn refusal(refused: &Refused) -> String {
    match refused {
        Refused::Program(ends) => format!(
            "refused: a program at {} may not connect to {} through this proxy; --source and --route, or sources and [[route]], say who may go where",
            ends.local.ip(),
            ends.remote
        ),
        Refused::Peer(peer, ends, Refusal::Destination) => format!(
            "refused: {peer} wants to connect {} to {}; --allow or [[allow]] would let it",
            ends.remote.ip(),
            ends.local
        ),
        Refused::Peer(peer, ends, Refusal::Source) => format!(
            "refused: {peer} connects {0}, but the route here for {0} names another proxy",
            ends.remote.ip()
        ),
        Refused::ByPeer(peer, ends, Refusal::Destination) => format!(
            "{peer} refuses connections to {}: its --allow does not have this address and port",
            ends.remote
        ),
        Refused::ByPeer(peer, ends, Refusal::Source) => format!(
            "{peer} refuses connections from {}: its --route for this address names another proxy",
            ends.local.ip()
        ),
    }
}

/// Begins the names of the proxies' sockets.
const SOCKET: &str = "tcp-proxy-";

fn status_socket(device: &str) -> PathBuf {
    socket_in(&Places::of_this_user().run, device)
}

fn socket_in(folder: &Path, device: &str) -> PathBuf {
    folder.join(format!("{SOCKET}{device}.sock"))
}

/// Maximum of the sockets of devices with one name.
const SAME_NAMES: u32 = 64;

/// Returns the places for the status socket of a device, the first one without a number: a device's name
/// is taken once in each network namespace, a socket's once on the machine.
fn sockets_of(folder: &Path, device: &str) -> Vec<PathBuf> {
    let numbered = (2..=SAME_NAMES).map(|number| format!("{device}-{number}"));
    std::iter::once(device.to_owned())
        .chain(numbered)
        .map(|name| socket_in(folder, &name))
        .collect()
}

/// Listens at the first of these places where nobody answers.
fn listener_at(places: &[PathBuf]) -> Result<(SocketFile, UnixListener), StartError> {
    let mut in_use = None;
    for place in places {
        make_folder_of(place)?;
        match SocketFile::listen(&UnixListenerConfig::new("status", place)) {
            Ok((socket, file)) => {
                let listener = UnixListener::from(OwnedFd::from(socket));
                let blocking = listener.set_nonblocking(false);
                blocking.map_err(|source| IoError::UnixSocket {
                    path: place.clone(),
                    action: "listen on",
                    source,
                })?;
                return Ok((file, listener));
            }
            Err(error @ IoError::SocketPathInUse { .. }) => in_use = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(in_use.map_or(StartError::NothingToDo, StartError::Socket))
}

/// Returns true for the socket of a proxy.
pub(super) fn is_status_socket(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with(SOCKET))
}

/// Answers each connection to a socket at the first free of these places with one line of JSON, from a
/// thread of its own, as long as the file is kept.
fn answer_status(places: &[PathBuf], inquirer: Inquirer) -> Result<SocketFile, StartError> {
    let (file, listener) = listener_at(places)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (answer, text) = mpsc::channel();
            inquirer.ask(move |proxy, now| {
                let _ = answer.send(described(proxy, now).to_string());
            });
            if let Ok(text) = text.recv_timeout(PATIENCE) {
                let mut stream = stream;
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = stream.write_all(text.as_bytes());
            }
        }
    });
    Ok(file)
}

fn described(proxy: &Proxy, now: Time) -> Value {
    let connections: Vec<_> = proxy.status(now).iter().map(connection).collect();
    json!({
        "registered": proxy.is_registered(),
        "queued_bytes": proxy.queued_bytes(),
        "pending_interests": proxy.pending_interests(),
        "counters": counters(proxy.counters()),
        "paths": proxy.paths().iter().map(path).collect::<Vec<_>>(),
        "connections": connections,
    })
}

fn path(it: &PathStatus) -> Value {
    json!({
        "peer": it.peer.to_string(),
        "tag": it.tag.to_string(),
        "hops": it.tag.hops(),
        "round_trip_ms": millis(it.round_trip),
        "connections": it.connections,
        "state": match (it.has_failed, it.is_used) {
            (true, _) => "failed",
            (false, true) => "used",
            (false, false) => "spare",
        },
    })
}

fn millis(duration: Option<Duration>) -> Option<f64> {
    duration.map(|it| it.as_secs_f64() * 1e3)
}

fn connection(it: &ConnectionStatus) -> Value {
    json!({
        "local": it.ends.local.to_string(),
        "remote": it.ends.remote.to_string(),
        "peer": it.peer.to_string(),
        "protocol": it.protocol.name(),
        "phase": it.phase.name(),
        "age_s": it.age.as_secs_f64(),
        "idle_s": it.idle.as_secs_f64(),
        "window": it.window,
        "queued_segments": it.queued_segments,
        "queued_bytes": it.queued_bytes,
        "interests_held": it.interests_held,
        "interests_pending": it.interests_pending,
        "retransmitted_interests": it.retransmitted_interests,
        "round_trip_ms": millis(it.round_trip),
        "path": it.path.as_ref().map(ToString::to_string),
        "outward_segments": it.counters.outward_segments,
        "outward_bytes": it.counters.outward_bytes,
        "inward_segments": it.counters.inward_segments,
        "inward_bytes": it.counters.inward_bytes,
        "interests": it.counters.interests,
        "data": it.counters.data,
        "notices": it.counters.notices,
        "dropped": it.counters.dropped,
    })
}

fn counters(it: &Counters) -> Value {
    json!({
        "device_packets": it.device_packets,
        "delivered_packets": it.delivered_packets,
        "out_interests": it.out_interests,
        "out_data": it.out_data,
        "out_segments": it.out_segments,
        "in_interests": it.in_interests,
        "in_data": it.in_data,
        "in_nacks": it.in_nacks,
        "revived": it.revived,
        "probes": it.probes,
        "failed_paths": it.failed_paths,
        "connections": it.connections,
        "malformed": it.malformed,
        "fragments": it.fragments,
        "not_tcp": it.not_tcp,
        "wrong_checksum": it.wrong_checksum,
        "denied": it.denied,
        "unknown_connection": it.unknown_connection,
        "table_full": it.table_full,
        "not_admitted": it.not_admitted,
        "opening_forgotten": it.opening_forgotten,
        "queue_full": it.queue_full,
        "forged": it.forged,
        "replayed": it.replayed,
        "untimely": it.untimely,
        "other_version": it.other_version,
        "bad_messages": it.bad_messages,
        "unexpected": it.unexpected,
        "icmp_errors": it.icmp_errors,
    })
}

fn status(arguments: &Status) -> Outcome {
    let path = arguments
        .socket
        .clone()
        .unwrap_or_else(|| status_socket(DEVICE));
    loop {
        let text = asked(&path).map_err(|error| {
            let text = format!(
                "no proxy answers on {} ({error}); start one with `whimbrel tcp-proxy forward` or `reverse`, or name its \
                 socket by --socket",
                path.display()
            );
            Failure::new(Exit::NoDaemon, text)
        })?;
        if arguments.json {
            out(&format!("{text}\n"));
        } else {
            let value: Value = serde_json::from_str(&text).unwrap_or_default();
            // Clears the terminal and begins at its top.
            let clear = if arguments.watch { "\x1b[2J\x1b[H" } else { "" };
            out(&format!("{clear}{}", table(&value)));
        }
        if !arguments.watch {
            return Ok(Exit::Done);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Returns the status of the proxy behind a socket, as JSON.
pub(super) fn ask(path: &Path) -> Result<String, Silence> {
    match asked(path) {
        Ok(json) if json.is_empty() => Err(Silence::Mute),
        Ok(json) => Ok(json),
        Err(LocalError::Io(error)) if error.kind() == ErrorKind::WouldBlock => Err(Silence::Mute),
        Err(error) => Err(error.into()),
    }
}

fn asked(path: &Path) -> Result<String, LocalError> {
    let mut stream = connect_socket(path)?;
    let mut text = String::new();
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.read_to_string(&mut text))
        .map_err(LocalError::Io)?;
    Ok(text)
}

fn table(status: &Value) -> String {
    let mut text = String::new();
    let empty = Vec::new();
    let connections = status["connections"].as_array().unwrap_or(&empty);
    text += &format!(
        "{} connections, {} bytes queued, {} Interests pending\n",
        connections.len(),
        status["queued_bytes"],
        status["pending_interests"]
    );
    for it in connections {
        let round_trip = it["round_trip_ms"].as_f64();
        let round_trip = round_trip.map_or(String::new(), |it| format!("  rtt {it:.1} ms"));
        let window = it["window"].as_u64();
        let window = window.map_or(String::new(), |it| format!("  window {it}"));
        let path = it["path"].as_str();
        let path = path.map_or(String::new(), |it| format!("  path {it}"));
        text += &format!(
            "{} <-> {}  {}  {}  out {} B  in {} B  queue {}  Interests {}{round_trip}{window}{path}\n",
            it["local"].as_str().unwrap_or_default(),
            it["remote"].as_str().unwrap_or_default(),
            it["protocol"].as_str().unwrap_or_default(),
            it["phase"].as_str().unwrap_or_default(),
            it["outward_bytes"],
            it["inward_bytes"],
            it["queued_segments"],
            it["interests_held"],
        );
    }
    for it in status["paths"].as_array().into_iter().flatten() {
        let round_trip = it["round_trip_ms"].as_f64();
        let round_trip = round_trip.map_or(String::new(), |it| format!("  rtt {it:.1} ms"));
        text += &format!(
            "path {} to {}  {}  {} hops  {} connections{round_trip}\n",
            it["tag"].as_str().unwrap_or_default(),
            it["peer"].as_str().unwrap_or_default(),
            it["state"].as_str().unwrap_or_default(),
            it["hops"],
            it["connections"],
        );
    }
    for (name, count) in status["counters"].as_object().into_iter().flatten() {
        if count.as_u64() != Some(0) {
            text += &format!("{:>20}  {count}\n", name.replace('_', " "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_proxy_answers_beside_the_first_and_takes_the_place_of_one_that_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let named = |name: &str| folder.path().join(name);
        let places = sockets_of(folder.path(), "tun0");
        assert!(places.iter().all(|place| is_status_socket(place)));
        let (first, running) = listener_at(&places).unwrap();
        assert_eq!(first.path(), named("tcp-proxy-tun0.sock"));
        let (second, _beside) = listener_at(&places).unwrap();
        assert_eq!(second.path(), named("tcp-proxy-tun0-2.sock"));
        // The socket's file outlives a proxy that was killed.
        drop(running);
        assert!(first.path().exists());
        assert_eq!(listener_at(&places).unwrap().0.path(), first.path());
    }

    #[test]
    fn a_file_in_the_place_of_a_status_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes");
        std::fs::write(&file, "notes").unwrap();
        assert!(listener_at(std::slice::from_ref(&file)).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "notes");
    }
}
