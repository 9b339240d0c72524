//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use serde::Deserialize;
use serde::de::{IntoDeserializer, value};
use whimbrel_node::config::{NamedRemote, PostQuantum};

use crate::command::{
    bench, configure, demo, directory, doctor, get, group, http_proxy, identity, inbox, keys, lab,
    names, ndn, node, perf, ping, pointers, push, serve, shell, status, study, tcp_proxy,
};
use crate::exit;
use crate::logging::Logging;

/// What comes first, as on the first page of the documentation.
const FIRST_PAGE: &str = "\
Named-data transport for networks that lose packets, disconnect and move

A file crosses the network in chunks, hop by hop: each hop recovers its own losses, routers store chunks that \
they cannot forward, and a transfer resumes where it stopped.

A first transfer, between two machines or two terminals, without any router or server:
  whimbrel send FILE           prints the command for the other side
  whimbrel receive TICKET      kill either side and repeat its command: it resumes

When not to use it: on a clean path Whimbrel gains nothing, and against random loss alone the kernel's BBR does \
as well. What BBR cannot do is survive an outage, store data, or use two links; `whimbrel demo` shows this.

`whimbrel doctor` reports what this machine is missing.";

/// Named-data transport for networks that lose packets, disconnect and move
#[derive(Parser, Debug)]
#[command(
    name = "whimbrel",
    version,
    long_about = FIRST_PAGE,
    after_help = "A first transfer, between two machines:\n  \
        whimbrel send FILE\n  \
        whimbrel receive TICKET\n\n\
        Through a router, which stores what it cannot forward, in four terminals:\n  \
        whimbrel gnrs serve --listen 127.0.0.1:4720 --store memory\n  \
        whimbrel router run --listen 127.0.0.1:4711 --name-server 127.0.0.1:4720\n  \
        whimbrel serve --router 127.0.0.1:4711 FILE\n  \
        whimbrel get --router 127.0.0.1:4711 NAME\n\n\
        With NDN, in three:\n  \
        whimbrel router run\n  \
        whimbrel ndn serve /example/film film.mkv\n  \
        whimbrel ndn get /example/film -o film.mkv"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Offer files or folders by ticket or spoken code, until Ctrl-C
    Send(serve::Send),
    /// Fetch what another machine offers, by ticket or code
    #[command(after_help = format!("Examples:\n  whimbrel receive whimbrel1qqq...\n  whimbrel receive --router 192.0.2.1:4711 7-crusade-hazardous-button-rebellion\n\nThe same as `whimbrel get`.\n\n{}", exit::HELP))]
    Receive(get::Get),
    /// Publish files and folders, and serve them until Ctrl-C
    Serve(serve::Serve),
    /// Publish a pointer to a file or folder: a stable name for changing content
    Publish(pointers::PublishPointer),
    /// Fetch a file or folder by name
    #[command(after_help = format!("Example:\n  whimbrel get 6b1e...c2 -o film.mkv\n\n{}", exit::HELP))]
    Get(get::Get),
    /// Send files and folders to a receiver that has not requested them and may be offline
    Push(push::PushCommand),
    /// Send a short text to a receiver that may be offline
    Message(push::MessageArguments),
    /// Receive what permitted senders push
    Inbox(inbox::Inbox),
    /// Create and join groups of hosts, to which `push` and `message` can send
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Run a router, or show its status
    #[command(subcommand)]
    Router(node::RouterCommand),
    /// Run the host daemon that local programs attach to, or show its status
    #[command(subcommand)]
    Host(node::HostCommand),
    /// Run a name server, query one, or show its status
    #[command(subcommand)]
    Gnrs(names::GnrsCommand),
    /// Create or show keys: the identities of hosts and routers
    #[command(subcommand)]
    Id(identity::IdCommand),
    /// Manage aliases, which replace 64-digit names: add, list, remove, share
    #[command(subcommand)]
    Names(directory::NamesCommand),
    /// Ping a host or a router
    Ping(ping::Ping),
    /// Measure the throughput between two hosts
    #[command(subcommand)]
    Perf(perf::PerfCommand),
    /// Fetch, serve, peek, poke and ping over NDN, with any NDN forwarder
    #[command(subcommand)]
    Ndn(ndn::NdnCommand),
    /// Carry the TCP connections of unmodified programs over NDN
    #[command(subcommand)]
    TcpProxy(tcp_proxy::TcpProxyCommand),
    /// Carry HTTP for browsers, curl, apt, pip and git, with a proxy at each side
    #[command(subcommand)]
    HttpProxy(http_proxy::HttpProxyCommand),
    /// Faces of an NDN forwarder: list, create, change, destroy
    #[command(subcommand)]
    Face(ndn::face::FaceCommand),
    /// Routes of an NDN forwarder: list, add, remove
    #[command(subcommand)]
    Route(ndn::route::RouteCommand),
    /// Forwarding strategies of an NDN forwarder: list, set, unset
    #[command(subcommand)]
    Strategy(ndn::strategy::StrategyCommand),
    /// The content store of an NDN forwarder: show, configure, erase
    #[command(subcommand)]
    Cs(ndn::cs::CsCommand),
    /// Show the status of everything running here: routers, hosts, name servers, an NDN forwarder
    Status(status::StatusOfAll),
    /// Keys and certificates of NDN identities
    #[command(subcommand)]
    Key(keys::KeyCommand),
    /// Print a sample configuration, or check one
    #[command(subcommand)]
    Config(configure::ConfigCommand),
    /// Check what works on this machine, and how to fix what does not
    Doctor(doctor::Doctor),
    /// Fetch one file over one bad path with the kernel's TCP and with Whimbrel, side by side
    #[command(
        after_help = "Example:\n  whimbrel demo --file film.mkv --rtt 100ms --loss 2% --outage 20s"
    )]
    Demo(demo::Demo),
    /// Reproduce a paper's figures, next to the paper's own numbers
    #[command(subcommand)]
    Study(study::StudyCommand),
    /// Run your own networks, loads and events, in virtual time or in namespaces
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Measure performance against targets, as ratios within one run
    #[command(after_help = bench::HELP)]
    Bench(bench::Bench),
    /// Print a completion script for a shell
    Completions(shell::Completions),
    /// Write manual pages
    Man(shell::Man),
}

impl Command {
    /// Returns true for the commands that run for long and unattended, whose diagnostics are a log.
    pub(crate) fn is_daemon(&self) -> bool {
        matches!(
            self,
            Command::Router(node::RouterCommand::Run(_))
                | Command::Host(node::HostCommand::Run(_))
                | Command::Gnrs(names::GnrsCommand::Serve(_))
                | Command::HttpProxy(_)
                | Command::TcpProxy(
                    tcp_proxy::TcpProxyCommand::Forward(_)
                        | tcp_proxy::TcpProxyCommand::Reverse(_)
                        | tcp_proxy::TcpProxyCommand::Both(_)
                )
        )
    }
}

/// How a program reaches a host.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct HostAccess {
    /// The socket of the host daemon (`whimbrel host run`); default: $WHIMBREL_SOCKET, or this user's
    /// daemon
    // No `env` of clap's: what the environment says must not contradict --router.
    #[arg(long, value_name = "PATH", conflicts_with = "router")]
    pub(crate) socket: Option<PathBuf>,
    /// Run without a daemon: this process is a host, attached to the router at this address
    /// (host:port, ip://HOST or ether://[STATION%INTERFACE]). With NAME, only the router of that name is
    /// accepted; without it, the router first seen at the address is
    #[arg(long, value_name = "[NAME@]HOST:PORT", value_parser = directory::remote)]
    pub(crate) router: Vec<NamedRemote>,
    /// Key file of the host in this process; by default a new key for each run
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub(crate) key: Option<PathBuf>,
    /// MTU of the path to the router, in bytes; by default taken from the system's routes, and lowered
    /// if larger packets are lost
    #[arg(long, value_name = "BYTES", conflicts_with = "socket", value_parser = clap::value_parser!(u16).range(576..))]
    pub(crate) mtu: Option<u16>,
    /// Do not encrypt this host's links, for measurements and closed networks; the other ends need the
    /// same setting
    #[arg(long, conflicts_with = "socket")]
    pub(crate) plain: bool,
    /// Use a hybrid ML-KEM-512 and X25519 key exchange: `offer` (if the peer supports it) or `require`
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["socket", "plain"], value_parser = post_quantum)]
    pub(crate) post_quantum: Option<PostQuantum>,
}

/// Reads `--post-quantum`, in the words of a configuration.
pub(crate) fn post_quantum(text: &str) -> Result<PostQuantum, value::Error> {
    PostQuantum::deserialize(text.into_deserializer())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::{ContextKind, ErrorKind};

    use super::*;

    /// Calls `check` with every option of every command, and with the words that lead to it.
    fn of_all(
        command: &clap::Command,
        words: &[String],
        check: &mut impl FnMut(&[String], &clap::Arg),
    ) {
        let options = command.get_arguments().filter(|it| it.get_long().is_some());
        options.for_each(|option| check(words, option));
        for inner in command.get_subcommands() {
            let words = [words, &[inner.get_name().to_owned()]].concat();
            of_all(inner, &words, check);
        }
    }

    #[test]
    fn a_time_without_a_unit_is_refused_or_its_unit_is_in_the_help() {
        let mut all = Arguments::command();
        all.build();
        let mut count = 0;
        of_all(&all, &["whimbrel".to_owned()], &mut |words, option| {
            let name = option.get_value_names().and_then(<[_]>::first);
            if !name.is_some_and(|name| name == "DURATION" || name == "TIME") {
                return;
            }
            count += 1;
            let help = option
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let says = ["milliseconds or with a unit", "without a unit is seconds"];
            let says = says.iter().any(|unit| help.contains(unit));
            let long = option.get_long().unwrap_or_default();
            let with_value = [words, &[format!("--{long}=5")]].concat();
            let told = Arguments::try_parse_from(with_value).err();
            let is_refused = told.is_some_and(|told| {
                let about = told.get(ContextKind::InvalidArg).map(ToString::to_string);
                told.kind() == ErrorKind::ValueValidation
                    && about.is_some_and(|about| about.contains(&format!("--{long}")))
            });
            assert!(says != is_refused, "{words:?} --{long}: {help}");
        });
        assert!(count > 20, "{count}");
    }
}
