//! `gnrs serve|lookup|watch|status`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use whimbrel_client::place::{Places, daemon_socket};
use whimbrel_core::Guid;
use whimbrel_core::units::Span;
use whimbrel_gnrs::{Answer, Pointer, Record, ResolverEvent};
use whimbrel_node::config::{Draft, Kind, Remote, listen_address};
use whimbrel_node::name_client::{NamePatience, Resolution};

use super::name_copies::{Backup, Move, Restore};
use super::pointers::{self, NameServers};
use super::status::{self, Status};
use super::{Outcome, directory, json_line, name_copies, out, stop_flag};
use crate::exit::{Exit, Failure};
use crate::logging::note;

/// Interval at which the stop flag is checked.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Subcommand, Debug)]
pub(crate) enum GnrsCommand {
    /// Run a name server until Ctrl-C
    #[command(
        after_help = "Examples:\n  whimbrel gnrs serve --listen 0.0.0.0:4720 --store names.redb\n  \
                      whimbrel gnrs serve --store redis://a.example,b.example,c.example"
    )]
    Serve(NameServer),
    /// Show the addresses of a name
    #[command(
        after_help = "Example:\n  whimbrel gnrs lookup --server 192.0.2.1:4720 6b1e...c2\n\n\
                            Exit code 3: the name has no record."
    )]
    Lookup(Lookup),
    /// Show the addresses of a name, again at each change, until Ctrl-C
    #[command(after_help = "Example:\n  whimbrel gnrs watch --server 192.0.2.1:4720 6b1e...c2")]
    Watch(Lookup),
    /// Write all records of a name server on this machine to a file, while it serves
    #[command(after_help = "Example:\n  whimbrel gnrs backup names.backup")]
    Backup(Backup),
    /// Register the records of a backup with a name server
    #[command(after_help = "Example:\n  whimbrel gnrs restore names.backup")]
    Restore(Restore),
    /// Register all records of a name server on this machine with another one, while both serve
    #[command(
        after_help = "Example, from a file to a cluster:\n  whimbrel gnrs serve --listen 0.0.0.0:4721 --store redis://a.example,b.example\n  \
                      whimbrel gnrs move --to 127.0.0.1:4721"
    )]
    Move(Move),
    /// Show records, clients and counters of the name server on this machine
    #[command(after_help = "Example:\n  whimbrel gnrs status --json | jq .counters")]
    Status(Status),
}

#[derive(Args, Debug, Clone)]
pub(crate) struct NameServer {
    /// Configuration file (`whimbrel config sample gnrs` prints one); flags override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on for routers
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// The file that keeps the records, "memory", or nodes of a Redis or Valkey Cluster (redis://HOST[:PORT],...)
    #[arg(long, value_name = "FILE|ADDRESS")]
    store: Option<PathBuf>,
    /// Another name server, with which records are replicated
    #[arg(long, value_name = "HOST:PORT")]
    peer: Vec<Remote>,
    /// Socket for `whimbrel gnrs status`
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Listen for Prometheus on this address (http://ADDRESS/metrics)
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = listen_address)]
    metrics: Option<SocketAddr>,
    /// Print the opened sockets as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Lookup {
    /// The name of a host, a router or a content, or its alias
    #[arg(value_parser = directory::name)]
    name: Guid,
    /// Show the pointers of the name, in place of its addresses
    #[arg(long)]
    pointers: bool,
    /// The name server, by default port 4720 of this machine; give several in the order of preference
    #[arg(
        long,
        env = "WHIMBREL_NAME_SERVER",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    server: Vec<Remote>,
    /// How long to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = Span::with_unit)]
    timeout: Span,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: GnrsCommand) -> Outcome {
    match command {
        GnrsCommand::Serve(arguments) => serve(arguments),
        GnrsCommand::Lookup(arguments) => lookup(&arguments),
        GnrsCommand::Watch(arguments) => watch(&arguments),
        GnrsCommand::Backup(arguments) => name_copies::backup(&arguments),
        GnrsCommand::Restore(arguments) => name_copies::restore(&arguments),
        GnrsCommand::Move(arguments) => name_copies::move_records(&arguments),
        GnrsCommand::Status(arguments) => status::show(
            &arguments,
            daemon_socket(Places::gnrs_socket),
            "name server",
            "gnrs serve",
        ),
    }
}

fn serve(arguments: NameServer) -> Outcome {
    let (json, file) = (arguments.json, arguments.config.clone());
    super::node::start("name server", Kind::Gnrs, json, file, move || {
        server_draft(arguments.clone())
    })
}

fn server_draft(arguments: NameServer) -> Result<Draft, Failure> {
    let mut draft = super::node::draft(arguments.config.as_ref())?;
    if let Some(listen) = arguments.listen {
        draft.config.gnrs.listen = listen;
        draft.set_by("gnrs.listen", "--listen");
    }
    if let Some(store) = arguments.store {
        draft.config.gnrs.store = Some(store);
        draft.set_by("gnrs.store", "--store");
    }
    if !arguments.peer.is_empty() {
        draft.config.gnrs.peers = arguments.peer;
        draft.set_by("gnrs.peers", "--peer");
    }
    if let Some(socket) = arguments.socket {
        draft.config.gnrs.socket = Some(socket);
        draft.set_by("gnrs.socket", "--socket");
    }
    if let Some(metrics) = arguments.metrics {
        draft.config.gnrs.metrics = Some(metrics);
        draft.set_by("gnrs.metrics", "--metrics");
    }
    Ok(draft)
}

fn servers(arguments: &Lookup) -> NameServers {
    NameServers::new(arguments.server.clone())
}

fn lookup(arguments: &Lookup) -> Outcome {
    let stop = stop_flag()?;
    let mut client = servers(arguments).client()?;
    let until = Instant::now() + arguments.timeout.0;
    let patience = NamePatience { until, stop: &stop };
    let name = match arguments.pointers {
        true => Pointer::subject_of(&arguments.name),
        false => arguments.name,
    };
    match client.resolve(name, patience)? {
        _ if stop.load(Ordering::Relaxed) => Ok(Exit::Interrupted),
        Resolution::Found(answer) => {
            show(arguments, &answer);
            Ok(Exit::Done)
        }
        Resolution::NotFound => Err(Failure::new(
            Exit::NoSuchName,
            format!(
                "{}: the name service has no record of it",
                directory::shown(&arguments.name)
            ),
        )),
        Resolution::Unreachable | Resolution::Pending => Err(Failure::new(
            Exit::TimedOut,
            format!(
                "no name server responds; asked: {}; --server names others",
                servers(arguments).asked()
            ),
        )),
    }
}

fn watch(arguments: &Lookup) -> Outcome {
    let stop = stop_flag()?;
    let mut client = servers(arguments).client()?;
    let name = match arguments.pointers {
        true => Pointer::subject_of(&arguments.name),
        false => arguments.name,
    };
    client.watch(name)?;
    let mut is_told = false;
    while !stop.load(Ordering::Relaxed) {
        for event in client.events(LOOK)? {
            match event {
                ResolverEvent::Changed { answer, .. } => {
                    is_told = false;
                    show(arguments, &answer);
                }
                ResolverEvent::NotWatched { .. } if !is_told => {
                    is_told = true;
                    note(&format!(
                        "the name server ({}) has too many watches, of this address or in all, and does not follow {}; trying again every 5 s",
                        servers(arguments).asked(),
                        arguments.name
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(Exit::Done)
}

fn show(arguments: &Lookup, answer: &Answer) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as u64;
    if arguments.json {
        let binding = answer.binding.as_ref().map(|record| in_json(record, now));
        let providers: Vec<Value> = answer
            .providers
            .iter()
            .map(|record| in_json(record, now))
            .collect();
        return json_line(
            &json!({ "name": arguments.name, "binding": binding, "providers": providers }),
        );
    }
    let mut text = format!("{}\n", directory::shown(&arguments.name));
    if arguments.pointers {
        return out(&(text + &pointers::list(answer)));
    }
    if let Some(revocation) = answer.revocation() {
        text += &match revocation.successor() {
            Some(name) => format!(
                "  revoked; its owner's name is now {}\n",
                directory::shown(&name)
            ),
            None => "  revoked by its owner\n".to_owned(),
        };
    } else if let Some(record) = &answer.binding {
        let addresses: Vec<String> = record
            .addresses()
            .map(|at| directory::shown(&at.na))
            .collect();
        let left = record.expires_ms().saturating_sub(now) / 1000;
        let at = if addresses.is_empty() {
            "nowhere (disconnected)".to_owned()
        } else {
            addresses.join(", ")
        };
        text += &format!("  at {at}, for {left} s\n");
    }
    for record in &answer.providers {
        let left = record.expires_ms().saturating_sub(now) / 1000;
        let by = directory::shown(&record.signer());
        text += &format!("  provided by {by}, for {left} s\n");
    }
    if answer.binding.is_none() && answer.providers.is_empty() {
        text += "  unknown\n";
    }
    out(&text);
}

fn in_json(record: &Record, now: u64) -> Value {
    json!({
        "signer": record.signer(),
        "version": record.version(),
        "expires_in_ms": record.expires_ms().saturating_sub(now),
        "addresses": record.addresses().collect::<Vec<_>>(),
        "pointer": record.as_pointer(),
        "revoked": record.kind() == whimbrel_gnrs::Kind::Revocation,
        "successor": record.successor(),
    })
}
