//! `router run|status` and `host run|status`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::Value;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};
use whimbrel_node::config::{Config, LinkSection, NdnRouteSection, Remote, Via};
use whimbrel_node::local_client::{LocalClient, LocalError};
use whimbrel_node::ndn::NdnThread;
use whimbrel_node::ndn::open::{NFD_SOCKET, NdnOpened};
use whimbrel_node::place::Places;
use whimbrel_node::run::{self, Opened, Prepared};

use super::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};

/// How long to wait for a daemon's status.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Subcommand, Debug)]
pub(crate) enum RouterCommand {
    /// Run a router until Ctrl-C
    #[command(after_help = "Examples:\n  \
                            whimbrel router run                          (an NDN router on NFD's socket and ports)\n  \
                            whimbrel router run --ndn-route /=udp://192.0.2.7\n  \
                            whimbrel router run --listen 0.0.0.0:4711 --name-server 192.0.2.1:4720 \
                            --neighbour 192.0.2.7:4711")]
    Run(RouterRun),
    /// Show links, storage and counters of the router on this machine
    #[command(after_help = "Example:\n  whimbrel router status --json | jq .links")]
    Status(Status),
}

#[derive(Subcommand, Debug)]
pub(crate) enum HostCommand {
    /// Run a host until Ctrl-C; `get`, `serve` and `ping` attach to it
    #[command(after_help = "Example:\n  whimbrel host run --router 192.0.2.7:4711")]
    Run(HostRun),
    /// Show links, transfers and counters of the host on this machine
    #[command(after_help = "Example:\n  whimbrel host status")]
    Status(Status),
}

#[derive(Args, Debug)]
pub(crate) struct RouterRun {
    /// Configuration file (`whimbrel config sample router` prints one); flags override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Key file; created at the first start
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Socket for `whimbrel router status`
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen for hosts and routers on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Add a link to a neighbour
    #[arg(long, value_name = "HOST:PORT")]
    neighbour: Vec<Remote>,
    /// Name servers, the preferred one first; replaces those of the file
    #[arg(long, value_name = "HOST:PORT")]
    name_server: Vec<Remote>,
    /// Next hop for chunks without a route: a neighbour's name or a link's label
    #[arg(long, value_name = "NAME")]
    default_route: Option<String>,
    /// Forward NDN even if --listen or --neighbour makes this a MobilityFirst router
    #[arg(long)]
    ndn: bool,
    /// The Unix socket for NDN programs
    #[arg(long, value_name = "PATH")]
    ndn_socket: Option<PathBuf>,
    /// Listen for NDN packets over UDP and TCP; replaces the addresses of the file
    #[arg(long, value_name = "ADDRESS:PORT")]
    ndn_listen: Vec<SocketAddr>,
    /// Listen for WebSocket; replaces the addresses of the file
    #[arg(long, value_name = "ADDRESS:PORT")]
    ndn_websocket: Vec<SocketAddr>,
    /// Allow web pages of this origin; adds to those of the file
    #[arg(long, value_name = "SCHEME://HOST:PORT")]
    ndn_allow_origin: Vec<String>,
    /// A route for names that begin with PREFIX; its face is created
    #[arg(long, value_name = "PREFIX=FACE-URI", value_parser = ndn_route)]
    ndn_route: Vec<NdnRouteSection>,
    /// Listen for Prometheus on this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Print the opened sockets as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct HostRun {
    /// Configuration file (`whimbrel config sample host` prints one); flags override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Key file; created at the first start
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Socket for local programs
    #[arg(long, env = "WHIMBREL_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Add a link to an access router; the first one is preferred
    #[arg(long, value_name = "HOST:PORT")]
    router: Vec<Remote>,
    /// Print the opened sockets as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// The daemon's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn load(file: Option<&PathBuf>) -> Result<Config, Failure> {
    Ok(file.map_or_else(|| Ok(Config::default()), |path| Config::load(path))?)
}

pub(crate) fn router(command: RouterCommand) -> Outcome {
    match command {
        RouterCommand::Run(run) => run_router(run),
        RouterCommand::Status(status) => {
            let path = status
                .socket
                .clone()
                .unwrap_or_else(|| Places::of_this_user().router_socket());
            show_status(&status, path, "router")
        }
    }
}

pub(crate) fn host(command: HostCommand) -> Outcome {
    match command {
        HostCommand::Run(run) => run_host(run),
        HostCommand::Status(status) => {
            let path = status
                .socket
                .clone()
                .unwrap_or_else(|| Places::of_this_user().host_socket());
            show_status(&status, path, "host")
        }
    }
}

fn run_router(arguments: RouterRun) -> Outcome {
    let mut config = load(arguments.config.as_ref())?;
    for (index, bind) in arguments.listen.into_iter().enumerate() {
        config.link.push(LinkSection {
            bind: Some(bind),
            listen: true,
            ..LinkSection::new(format!("listen-{index}"))
        });
    }
    add_remotes(&mut config, "neighbour", arguments.neighbour);
    config.router.key = arguments.key.or(config.router.key);
    config.router.socket = arguments.socket.or(config.router.socket);
    config.router.default_route = arguments
        .default_route
        .map(Via)
        .or(config.router.default_route);
    if !arguments.name_server.is_empty() {
        config.router.name_servers = arguments.name_server;
    }
    let section = &mut config.ndn;
    if arguments.ndn {
        section.enabled = Some(true);
    }
    section.socket = arguments.ndn_socket.or(section.socket.take());
    if !arguments.ndn_listen.is_empty() {
        section.udp = arguments.ndn_listen.clone();
        section.tcp = arguments.ndn_listen;
    }
    if !arguments.ndn_websocket.is_empty() {
        section.websocket = arguments.ndn_websocket;
    }
    section.allowed_origins.extend(arguments.ndn_allow_origin);
    section.metrics = arguments.metrics.or(section.metrics);
    config.ndn_route.extend(arguments.ndn_route);
    run_planes(&config, arguments.json)
}

/// Runs the configured planes: MobilityFirst if it has links, NDN unless only links were
/// configured.
fn run_planes(config: &Config, json: bool) -> Outcome {
    let mobility_first = !config.link.is_empty();
    let ndn = config.ndn.enabled.unwrap_or(!mobility_first);
    let mobility_first = mobility_first.then(|| run::router(config)).transpose()?;
    let ndn = ndn.then(|| NdnThread::start(config)).transpose()?;
    match (mobility_first, ndn) {
        (Some(mut router), Some(ndn)) => {
            router.opened.ndn = Some(ndn.opened().clone());
            let outcome = start("router", router, json);
            ndn.stop();
            ndn.wait()?;
            outcome
        }
        (Some(router), None) => start("router", router, json),
        (None, Some(ndn)) => {
            tell_opened(
                "router",
                &Opened {
                    ndn: Some(ndn.opened().clone()),
                    ..Opened::default()
                },
                json,
            );
            ndn.wait()?;
            Ok(Exit::Done)
        }
        (None, None) => Err(Failure::new(
            Exit::Usage,
            "the router has no NDN plane ([ndn] enabled = false) and no links: use --listen ADDRESS:PORT, --neighbour HOST:PORT, or \
             [[link]] in a configuration file",
        )),
    }
}

fn ndn_route(text: &str) -> Result<NdnRouteSection, String> {
    let (prefix, face) = text.rsplit_once('=').ok_or_else(|| {
        format!("'{text}' is not a route: write PREFIX=FACE-URI, as /=udp://192.0.2.7")
    })?;
    Ok(NdnRouteSection {
        prefix: prefix.to_owned(),
        face: face.to_owned(),
        cost: 0,
    })
}

fn run_host(arguments: HostRun) -> Outcome {
    let mut config = load(arguments.config.as_ref())?;
    add_remotes(&mut config, "router", arguments.router);
    config.host.key = arguments.key.or(config.host.key);
    config.host.socket = arguments.socket.or(config.host.socket);
    if config.link.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "a host needs a router: --router HOST:PORT, or [[link]] in a configuration file",
        ));
    }
    start("host", run::host(&config)?, arguments.json)
}

fn add_remotes(config: &mut Config, label: &str, remotes: Vec<Remote>) {
    for (index, remote) in remotes.into_iter().enumerate() {
        config.link.push(LinkSection {
            remote: Some(remote),
            ..LinkSection::new(format!("{label}-{index}"))
        });
    }
}

/// Prints the opened sockets, and runs until it is stopped.
pub(super) fn start(what: &str, prepared: Prepared, json: bool) -> Outcome {
    tell_opened(what, &prepared.opened, json);
    prepared.run()?;
    Ok(Exit::Done)
}

fn tell_opened(what: &str, opened: &Opened, json: bool) {
    if json {
        json_line(opened);
    } else {
        let mut text = String::new();
        if let Some(guid) = opened.guid {
            text += &format!("{what} {guid}\n");
        }
        for (label, address) in &opened.links {
            text += &format!("  link {label}: {address}\n");
        }
        let paths = [
            ("socket", &opened.socket),
            ("key", &opened.key),
            ("store", &opened.store),
        ];
        for (name, path) in paths {
            if let Some(path) = path {
                text += &format!("  {name}: {}\n", path.display());
            }
        }
        if let Some(ndn) = &opened.ndn {
            describe_ndn(&mut text, ndn);
        }
        out(&text);
    }
}

fn describe_ndn(text: &mut String, ndn: &NdnOpened) {
    *text += "NDN\n";
    if let Some(socket) = &ndn.socket {
        *text += &format!("  programs: {}\n", socket.display());
        if socket.as_path() != Path::new(NFD_SOCKET) {
            *text += &format!(
                "    (for programs written for NFD: export NDN_CLIENT_TRANSPORT=unix://{})\n",
                socket.display()
            );
        }
    }
    for (name, addresses) in [
        ("UDP", &ndn.udp),
        ("TCP", &ndn.tcp),
        ("WebSocket", &ndn.websocket),
    ] {
        if !addresses.is_empty() {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            *text += &format!("  {name}: {}\n", addresses.join(", "));
        }
    }
    for (name, interfaces) in [
        ("multicast on", &ndn.multicast),
        ("Ethernet multicast on", &ndn.ethernet),
    ] {
        if !interfaces.is_empty() {
            *text += &format!("  {name}: {}\n", interfaces.join(", "));
        }
    }
    if let Some(metrics) = ndn.metrics {
        *text += &format!("  metrics: http://{metrics}/metrics\n");
    }
}

fn show_status(status: &Status, path: PathBuf, what: &str) -> Outcome {
    let mut client = LocalClient::connect(&path).map_err(|error| match error {
        LocalError::Nobody(path) => Failure::new(
            Exit::NoDaemon,
            format!(
                "no {what} listens on {}; start one with `whimbrel {what} run`",
                path.display()
            ),
        ),
        other => other.into(),
    })?;
    client.send(&LocalRequest::Status { request: 1 })?;
    let until = Instant::now() + PATIENCE;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if let Some(LocalEvent::Status { request: 1, json }) = client.receive(left)? {
            if status.json {
                out(&format!("{json}\n"));
            } else {
                let value = serde_json::from_str(&json).unwrap_or(Value::String(json));
                let mut text = String::new();
                describe(&mut text, &value, 0);
                out(&text);
            }
            return Ok(Exit::Done);
        }
    }
    Err(Failure::new(
        Exit::NoDaemon,
        format!("the {what} on {} does not respond", path.display()),
    ))
}

/// Formats JSON as indented lines: "key: value". Omits zeros in lists of counters.
fn describe(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let Value::Object(fields) = value else { return };
    for (name, value) in fields {
        let name = name.replace('_', " ");
        match value {
            Value::Object(inner) if inner.contains_key("secs") && inner.contains_key("nanos") => {
                let number = |key: &str| inner.get(key).and_then(Value::as_f64).unwrap_or_default();
                let milliseconds = number("secs") * 1e3 + number("nanos") / 1e6;
                *text += &format!("{indent}{name}: {milliseconds:.3} ms\n");
            }
            Value::Object(inner) => {
                if inner.values().any(|value| value.as_u64() != Some(0)) {
                    *text += &format!("{indent}{name}:\n");
                    describe(text, value, depth + 1);
                }
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                for item in items {
                    *text += &format!("{indent}{}:\n", name.trim_end_matches('s'));
                    describe(text, item, depth + 1);
                }
            }
            Value::Number(number) if depth > 0 && number.as_f64() == Some(0.0) => {}
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(plain).collect();
                *text += &format!("{indent}{name}: {}\n", items.join(" of "));
            }
            single => *text += &format!("{indent}{name}: {}\n", plain(single)),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}
