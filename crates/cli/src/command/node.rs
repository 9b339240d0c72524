//! `router run|status` and `host run|status`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::Value;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};
use whimbrel_node::config::{Config, LinkSection, Remote, Via};
use whimbrel_node::local_client::{LocalClient, LocalError};
use whimbrel_node::place::Places;
use whimbrel_node::run::{self, Prepared};

use super::{Outcome, json_line, out};
use crate::exit::{Exit, Failure};

/// How long a daemon may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Subcommand, Debug)]
pub(crate) enum RouterCommand {
    /// Run a router until Ctrl-C
    #[command(
        after_help = "Example:\n  whimbrel router run --listen 0.0.0.0:4711 --name-server 192.0.2.1:4720 \
                            --neighbour 192.0.2.7:4711"
    )]
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
    /// Key file; made at the first start
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Socket for `whimbrel router status`
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Add a link that hosts and routers may call on
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Vec<SocketAddr>,
    /// Add a link to a neighbour
    #[arg(long, value_name = "HOST:PORT")]
    neighbour: Vec<Remote>,
    /// Name servers, the preferred one first; replaces those of the file
    #[arg(long, value_name = "HOST:PORT")]
    name_server: Vec<Remote>,
    /// Where chunks go without a route: a neighbour's name or a link's label
    #[arg(long, value_name = "NAME")]
    default_route: Option<String>,
    /// Say in JSON what was opened
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct HostRun {
    /// Configuration file (`whimbrel config sample host` prints one); flags override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Key file; made at the first start
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Socket for local programs
    #[arg(long, env = "WHIMBREL_SOCKET", value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Add a link to an access router; the first one is preferred
    #[arg(long, value_name = "HOST:PORT")]
    router: Vec<Remote>,
    /// Say in JSON what was opened
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
            let path = status.socket.clone().unwrap_or_else(|| Places::of_this_user().router_socket());
            show_status(&status, path, "router")
        }
    }
}

pub(crate) fn host(command: HostCommand) -> Outcome {
    match command {
        HostCommand::Run(run) => run_host(run),
        HostCommand::Status(status) => {
            let path = status.socket.clone().unwrap_or_else(|| Places::of_this_user().host_socket());
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
    config.router.default_route = arguments.default_route.map(Via).or(config.router.default_route);
    if !arguments.name_server.is_empty() {
        config.router.name_servers = arguments.name_server;
    }
    if config.link.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "a router needs links: --listen ADDRESS:PORT, --neighbour HOST:PORT, or [[link]] in a configuration file",
        ));
    }
    start("router", run::router(&config)?, arguments.json)
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
        config
            .link
            .push(LinkSection { remote: Some(remote), ..LinkSection::new(format!("{label}-{index}")) });
    }
}

/// Says what was opened, and runs until it is told to stop.
pub(super) fn start(what: &str, prepared: Prepared, json: bool) -> Outcome {
    let opened = &prepared.opened;
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
        let paths = [("socket", &opened.socket), ("key", &opened.key), ("store", &opened.store)];
        for (name, path) in paths {
            if let Some(path) = path {
                text += &format!("  {name}: {}\n", path.display());
            }
        }
        out(&text);
    }
    prepared.run()?;
    Ok(Exit::Done)
}

fn show_status(status: &Status, path: PathBuf, what: &str) -> Outcome {
    let mut client = LocalClient::connect(&path).map_err(|error| match error {
        LocalError::Nobody(path) => Failure::new(
            Exit::NoDaemon,
            format!("no {what} answers on {}; start one with `whimbrel {what} run`", path.display()),
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
    Err(Failure::new(Exit::NoDaemon, format!("the {what} on {} does not answer", path.display())))
}

/// JSON as indented lines: "key: value". Zeros in lists of counters are left out.
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
