//! `router run|status` and `host run|status`.

use std::io::{IsTerminal, Read};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use whimbrel_client::place::{HOST_SOCKET_VARIABLE, Places, daemon_socket, host_daemon_socket};
use whimbrel_lab::rivals::STRATEGIES;
use whimbrel_node::config::{
    Bind, Config, Draft, Kind, LinkSection, NamedRemote, NdnRouteSection, Plan, PostQuantum,
    Remote, RouterPlan, RoutingName, Via, listen_address,
};
use whimbrel_node::ndn::open::{NFD_SOCKET, NdnOpened};
use whimbrel_node::reload::{Reloaded, Reloader};
use whimbrel_node::run::{self, Opened};

use super::callers::{self, CallersCommand};
use super::interfaces::{self, Interfaces, Policy};
use super::routes::{self, Routes};
use super::status::{self, Status};
use super::{Outcome, tell, tell_json};
use crate::arguments::post_quantum;
use crate::exit::{Exit, Failure};
use crate::logging::{note, say};

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
    /// Show the routes that the router on this machine has learned, their costs, and why each is used or not
    #[command(after_help = "Example:\n  whimbrel router routes --json | jq .routers")]
    Routes(Routes),
    #[command(flatten)]
    Callers(CallersCommand),
}

#[derive(Subcommand, Debug)]
pub(crate) enum HostCommand {
    /// Run a host until Ctrl-C; `get`, `serve` and `ping` attach to it
    #[command(after_help = "Example:\n  whimbrel host run --router 192.0.2.7:4711")]
    Run(HostRun),
    /// Show links, transfers and counters of the host on this machine
    #[command(after_help = "Example:\n  whimbrel host status")]
    Status(Status),
    /// Show which links the host on this machine uses, and why, or change that
    #[command(after_help = interfaces::LIST_HELP)]
    Interfaces(Interfaces),
    /// Show or change how the host on this machine uses several links
    #[command(after_help = interfaces::POLICY_HELP)]
    Policy(Policy),
    #[command(flatten)]
    Callers(CallersCommand),
}

#[derive(Args, Debug, Clone)]
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
    /// Listen for hosts and routers on this address; ip://ADDRESS and dev://INTERFACE listen on
    /// bare IP and Ethernet
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    listen: Vec<Bind>,
    /// Add a link to a neighbour; ip://HOST and ether://[STATION%INTERFACE] use bare IP and
    /// Ethernet. With NAME, only the neighbour of that name is accepted, and it may forward
    /// chunks of any source
    #[arg(long, value_name = "[NAME@]HOST:PORT", value_parser = super::directory::remote)]
    neighbour: Vec<NamedRemote>,
    /// Do not encrypt the links of --listen and --neighbour, for measurements and closed networks; the
    /// other ends need the same setting
    #[arg(long)]
    plain: bool,
    /// Use a hybrid ML-KEM-512 and X25519 key exchange on all links: `offer` (if the peer supports it)
    /// or `require`; overrides post_quantum in [hop]
    #[arg(long, value_name = "WHEN", value_parser = post_quantum)]
    post_quantum: Option<PostQuantum>,
    /// Name servers, the preferred one first; replaces those of the file
    #[arg(long, value_name = "HOST:PORT")]
    name_server: Vec<Remote>,
    /// Next hop for chunks without a route: a neighbour's name or a link's label
    #[arg(long, value_name = "NAME")]
    default_route: Option<String>,
    /// How routes to other routers are found: static, or learned from neighbours that name each other
    /// (fewest-hops: learned, without measured costs); overrides routing in [router]
    #[arg(long, value_name = "HOW")]
    routing: Option<RoutingName>,
    #[command(flatten)]
    ndn_flags: NdnFlags,
    /// Listen for Prometheus on this address (http://ADDRESS/metrics), for both planes
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// Print the opened sockets as JSON
    #[arg(long)]
    json: bool,
}

/// A router's NDN plane.
#[derive(Args, Debug, Clone)]
pub(crate) struct NdnFlags {
    /// Forward NDN even if --listen or --neighbour makes this a MobilityFirst router
    #[arg(long)]
    ndn: bool,
    /// The Unix socket for NDN programs
    #[arg(long, value_name = "PATH")]
    ndn_socket: Option<PathBuf>,
    /// Listen for NDN packets over UDP and TCP; replaces the addresses of the file
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    ndn_listen: Vec<SocketAddr>,
    /// Listen for WebSocket; replaces the addresses of the file
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    ndn_websocket: Vec<SocketAddr>,
    /// Allow web pages of this origin; adds to those of the file
    #[arg(long, value_name = "SCHEME://HOST:PORT")]
    ndn_allow_origin: Vec<String>,
    /// A route for names that begin with PREFIX; its face is created
    #[arg(long, value_name = "PREFIX=FACE-URI", value_parser = ndn_route)]
    ndn_route: Vec<NdnRouteSection>,
}

#[derive(Args, Debug, Clone)]
pub(crate) struct HostRun {
    /// Configuration file (`whimbrel config sample host` prints one); flags override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Key file; created at the first start
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Socket for local programs
    #[arg(long, env = HOST_SOCKET_VARIABLE, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Add a link to an access router; the first one is preferred. ip://HOST and
    /// ether://[STATION%INTERFACE] use bare IP and Ethernet. With NAME, only the router of that name
    /// is accepted; without it, the router first seen at the address is
    #[arg(long, value_name = "[NAME@]HOST:PORT", value_parser = super::directory::remote)]
    router: Vec<NamedRemote>,
    /// Do not encrypt the links of --router, for measurements and closed networks; the routers need the
    /// same setting
    #[arg(long)]
    plain: bool,
    /// Use a hybrid ML-KEM-512 and X25519 key exchange on all links: `offer` (if the peer supports it)
    /// or `require`; overrides post_quantum in [hop]
    #[arg(long, value_name = "WHEN", value_parser = post_quantum)]
    post_quantum: Option<PostQuantum>,
    /// Listen for Prometheus on this address (http://ADDRESS/metrics)
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// Print the opened sockets as JSON
    #[arg(long)]
    json: bool,
}

/// Returns the contents of a configuration file, or an empty draft; flags override it.
pub(super) fn draft(file: Option<&PathBuf>) -> Result<Draft, Failure> {
    let read = file.map_or_else(|| Ok(Draft::default()), |path| Draft::read(path));
    Ok(with_rivals(read?))
}

/// Lets scenarios in namespaces choose the strategies of studies, as those in virtual time do.
pub(super) fn with_rivals(mut draft: Draft) -> Draft {
    draft.strategies = STRATEGIES;
    draft
}

pub(crate) fn router(command: RouterCommand) -> Outcome {
    match command {
        RouterCommand::Run(run) => run_router(run),
        RouterCommand::Status(status) => {
            let path = daemon_socket(Places::router_socket);
            status::show(&status, path, "router", "router run")
        }
        RouterCommand::Routes(routes) => {
            routes::routes(&routes, daemon_socket(Places::router_socket))
        }
        RouterCommand::Callers(command) => {
            let path = daemon_socket(Places::router_socket);
            callers::callers(&command, path, "router", "router run")
        }
    }
}

pub(crate) fn host(command: HostCommand) -> Outcome {
    match command {
        HostCommand::Run(run) => run_host(run),
        HostCommand::Status(status) => {
            let path = host_daemon_socket();
            status::show(&status, path, "host", "host run")
        }
        HostCommand::Callers(command) => {
            let path = host_daemon_socket();
            callers::callers(&command, path, "host", "host run")
        }
        HostCommand::Interfaces(interfaces) => interfaces::interfaces(&interfaces),
        HostCommand::Policy(policy) => interfaces::policy(&policy),
    }
}

fn run_router(arguments: RouterRun) -> Outcome {
    let (json, file) = (arguments.json, arguments.config.clone());
    start("router", Kind::Router, json, file, move || {
        router_draft(arguments.clone())
    })
}

fn router_draft(arguments: RouterRun) -> Result<Draft, Failure> {
    let mut draft = draft(arguments.config.as_ref())?;
    for (index, bind) in arguments.listen.into_iter().enumerate() {
        let link = LinkSection {
            bind: Some(bind),
            listen: true,
            plain: arguments.plain,
            ..LinkSection::new(format!("listen-{index}"))
        };
        add_link(&mut draft, link, "--listen");
    }
    add_remotes(
        &mut draft,
        "neighbour",
        "--neighbour",
        arguments.neighbour,
        arguments.plain,
    );
    if let Some(when) = arguments.post_quantum {
        draft.config.hop.post_quantum = when;
        draft.set_by("hop.post_quantum", "--post-quantum");
    }
    if let Some(key) = arguments.key {
        draft.config.router.key = Some(key);
        draft.set_by("router.key", "--key");
    }
    if let Some(socket) = arguments.socket {
        draft.config.router.socket = Some(socket);
        draft.set_by("router.socket", "--socket");
    }
    if let Some(via) = arguments.default_route {
        draft.config.router.default_route = Some(Via(via));
        draft.set_by("router.default_route", "--default-route");
    }
    if let Some(routing) = arguments.routing {
        draft.config.router.routing = routing;
        draft.set_by("router.routing", "--routing");
    }
    if !arguments.name_server.is_empty() {
        draft.config.router.name_servers = arguments.name_server;
        draft.set_by("router.name_servers", "--name-server");
    }
    if let Some(metrics) = arguments.metrics {
        draft.config.router.metrics = Some(metrics);
        draft.set_by("router.metrics", "--metrics");
    }
    add_ndn_flags(&mut draft, arguments.ndn_flags);
    Ok(draft)
}

fn add_ndn_flags(draft: &mut Draft, flags: NdnFlags) {
    let section = &mut draft.config.ndn;
    let mut set = Vec::new();
    if flags.ndn {
        section.enabled = Some(true);
        set.push(("ndn.enabled", "--ndn"));
    }
    if let Some(socket) = flags.ndn_socket {
        section.socket = Some(socket);
        set.push(("ndn.socket", "--ndn-socket"));
    }
    if !flags.ndn_listen.is_empty() {
        section.udp = flags.ndn_listen.clone();
        section.tcp = flags.ndn_listen;
        set.extend([("ndn.udp", "--ndn-listen"), ("ndn.tcp", "--ndn-listen")]);
    }
    if !flags.ndn_websocket.is_empty() {
        section.websocket = flags.ndn_websocket;
        set.push(("ndn.websocket", "--ndn-websocket"));
    }
    for origin in flags.ndn_allow_origin {
        let key = format!(
            "ndn.allowed_origins[{}]",
            draft.config.ndn.allowed_origins.len()
        );
        draft.config.ndn.allowed_origins.push(origin);
        draft.set_by(key, "--ndn-allow-origin");
    }
    for route in flags.ndn_route {
        let key = format!("ndn_route[{}]", draft.config.ndn_route.len());
        draft.config.ndn_route.push(route);
        draft.set_by(key, "--ndn-route");
    }
    for (key, flag) in set {
        draft.set_by(key, flag);
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
    let (json, file) = (arguments.json, arguments.config.clone());
    start("host", Kind::Host, json, file, move || {
        host_draft(arguments.clone())
    })
}

fn host_draft(arguments: HostRun) -> Result<Draft, Failure> {
    let mut draft = draft(arguments.config.as_ref())?;
    add_remotes(
        &mut draft,
        "router",
        "--router",
        arguments.router,
        arguments.plain,
    );
    if let Some(when) = arguments.post_quantum {
        draft.config.hop.post_quantum = when;
        draft.set_by("hop.post_quantum", "--post-quantum");
    }
    if let Some(key) = arguments.key {
        draft.config.host.key = Some(key);
        draft.set_by("host.key", "--key");
    }
    if let Some(socket) = arguments.socket {
        draft.config.host.socket = Some(socket);
        draft.set_by("host.socket", "--socket");
    }
    if let Some(metrics) = arguments.metrics {
        draft.config.host.metrics = Some(metrics);
        draft.set_by("host.metrics", "--metrics");
    }
    Ok(draft)
}

fn add_link(draft: &mut Draft, link: LinkSection, flag: &'static str) {
    draft.set_by(format!("link[{}]", draft.config.link.len()), flag);
    draft.config.link.push(link);
}

fn add_remotes(
    draft: &mut Draft,
    label: &str,
    flag: &'static str,
    remotes: Vec<NamedRemote>,
    plain: bool,
) {
    for (index, remote) in remotes.into_iter().enumerate() {
        let link = LinkSection {
            plain,
            ..LinkSection::towards(format!("{label}-{index}"), remote)
        };
        add_link(draft, link, flag);
    }
}

/// Starts a node, prints the opened sockets, and runs until it is stopped. `read` reads its file and
/// flags: at the start, and again at SIGHUP.
pub(super) fn start(
    what: &str,
    kind: Kind,
    json: bool,
    file: Option<PathBuf>,
    read: impl Fn() -> Result<Draft, Failure> + Send + 'static,
) -> Outcome {
    let draft = read()?;
    let plan = draft.plan(kind)?;
    let planes = match &plan {
        Plan::Router(plan) => Some(planes(plan)),
        Plan::Host(_) | Plan::NameServer(_) => None,
    };
    let running = run::start(plan)?;
    // A closed terminal ends its programs, as usual.
    if let Some(file) = file.filter(|_| !std::io::stdin().is_terminal()) {
        let plan = move || {
            let draft = read()?;
            let plan = draft.plan(kind)?;
            Ok((draft.config, plan))
        };
        reload_at_hangup(running.reloader(draft.config), file, plan)?;
    }
    tell_opened(what, running.opened(), planes, json);
    running.run()?;
    Ok(Exit::Done)
}

/// At each SIGHUP, applies the changes of the file that can be applied, and reports the others.
fn reload_at_hangup(
    mut reloader: Reloader,
    file: PathBuf,
    plan: impl Fn() -> Result<(Config, Plan), Failure> + Send + 'static,
) -> Result<(), Failure> {
    let (mut hangups, signalled) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGHUP, signalled)?;
    let reload = move || {
        while hangups.read_exact(&mut [0]).is_ok() {
            let file = file.display();
            match plan() {
                Ok((config, plan)) => {
                    let Reloaded { taken, restart } = reloader.reload(&config, plan);
                    if !restart.is_empty() {
                        let keys = restart.join(", ");
                        say(&format!(
                            "{file}: changed, in force after a restart: {keys}"
                        ));
                    }
                    let keys = match taken.as_slice() {
                        [] => String::from("nothing that was written there has changed"),
                        keys => keys.join(", "),
                    };
                    if restart.is_empty() || !taken.is_empty() {
                        note(&format!("{file}: reloaded: {keys}"));
                    }
                }
                Err(failure) => {
                    say(&format!("not reloaded, all stays as it is: {failure}"));
                }
            }
        }
    };
    std::thread::Builder::new()
        .name("reload".into())
        .spawn(reload)?;
    Ok(())
}

/// Returns which planes a router runs, and how to have the others.
pub(super) fn planes(plan: &RouterPlan) -> String {
    let native = plan.mobility_first.as_ref();
    let listens = native.map(|native| native.links.iter().any(|link| link.listen));
    let native = match listens {
        Some(true) => "MobilityFirst, listening for hosts",
        Some(false) => {
            "MobilityFirst, but no host can attach (a [[link]] with listen = true, or --listen, lets them)"
        }
        None => {
            "no MobilityFirst, so no host can attach (a [[link]] with listen = true, or --listen, starts it)"
        }
    };
    let ndn = match plan.ndn {
        Some(_) => "NDN",
        None => "no NDN (enabled = true in [ndn], or --ndn, starts it)",
    };
    format!("planes: {native}; {ndn}")
}

fn tell_opened(what: &str, opened: &Opened, planes: Option<String>, json: bool) {
    if json {
        tell_json(opened);
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
        if let Some(metrics) = opened.metrics {
            text += &format!("  metrics: http://{metrics}/metrics\n");
        }
        if let Some(ndn) = &opened.ndn {
            describe_ndn(&mut text, ndn);
        }
        text.extend(planes.map(|planes| planes + "\n"));
        tell(&text);
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
