//! `perf server|client`.

mod report;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use whimbrel_content::ChunkSize;
use whimbrel_core::Guid;
use whimbrel_core::units::{ByteSize, Span};
use whimbrel_node::config::{Bind, LinkSection, NamedRemote, Remote};
use whimbrel_node::perf::client::{ClientEvent, Options, PerfError, measure};
use whimbrel_node::perf::server::{ServerEvent, serve};
use whimbrel_node::perf::{MAX_STREAMS, Plan};

use super::access::{no_host, reach};
use super::serve::{DIRECT, listening};
use super::waiting::ToldWait;
use super::{Outcome, directory, json_line, offering, stop_flag, tell, tell_json};
use crate::arguments::HostAccess;
use crate::exit::{Exit, Failure};
use crate::logging::note;
use report::Table;

#[derive(Subcommand, Debug)]
pub(crate) enum PerfCommand {
    /// Answer tests until Ctrl-C
    #[command(
        after_help = "Examples:\n  whimbrel perf server --router 192.0.2.1:4711\n  \
                      whimbrel perf server --listen 0.0.0.0:4711\n\n\
                      Anyone who reaches it can make its host fetch and send as fast as the network allows."
    )]
    Server(Server),
    /// Measure the throughput to or from a server
    #[command(
        after_help = "Examples:\n  whimbrel perf client 6b1e...c2 --router 192.0.2.1:4711 -R\n  \
                      whimbrel perf client 6b1e...c2 --from 192.0.2.7:4711 -t 30 -i 5 -P 4\n\n\
                      Intervals count the bytes received, which the server reports twice per interval.\n\nExit code 1: the server did not answer, or disappeared."
    )]
    Client(Client),
}

#[derive(Args, Debug)]
pub(crate) struct Server {
    /// Also answer hosts that connect here directly (`perf client --from`)
    #[arg(long, value_name = "[ADDRESS:]PORT", conflicts_with = "socket")]
    listen: Option<Bind>,
    /// End after one test
    #[arg(short = '1', long)]
    one_off: bool,
    #[command(flatten)]
    access: HostAccess,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Client {
    /// The name of the server's host, which it prints, or its alias
    #[arg(value_parser = directory::name)]
    server: Guid,
    /// Reach the server directly at this address: no router or name service is needed
    #[arg(long, value_name = "[NAME@]HOST:PORT", conflicts_with = "socket", value_parser = directory::remote)]
    from: Option<NamedRemote>,
    /// How long to measure; a number without a unit is seconds, as in iperf3
    #[arg(
        short,
        long,
        value_name = "DURATION",
        default_value = "10 s",
        conflicts_with = "bytes"
    )]
    time: Span,
    /// Bytes to carry in each direction, in place of a time
    #[arg(short = 'n', long, value_name = "SIZE")]
    bytes: Option<ByteSize>,
    /// Time between two reports; a number without a unit is seconds
    #[arg(short, long, value_name = "DURATION", default_value = "1 s")]
    interval: Span,
    /// Streams in each direction
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_STREAMS)))]
    parallel: u16,
    /// The server sends
    #[arg(short = 'R', long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both send
    #[arg(long)]
    bidir: bool,
    /// Chunk size to ask for: a power of two from 16 KiB to 4 MiB
    #[arg(long, value_name = "SIZE", default_value = "1 MiB")]
    chunk_size: ByteSize,
    /// How long to wait for the server's first answer
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = Span::with_unit)]
    connect_timeout: Span,
    #[command(flatten)]
    access: HostAccess,
    /// Print one JSON object at the end, with iperf3's keys where they have the same meaning
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: PerfCommand) -> Outcome {
    match command {
        PerfCommand::Server(arguments) => server(&arguments),
        PerfCommand::Client(arguments) => client(&arguments),
    }
}

fn server(arguments: &Server) -> Outcome {
    let stop = stop_flag()?;
    let mut access = reach(&arguments.access, listening(arguments.listen.as_ref()))?;
    let links = access.embedded.as_ref().map(|host| host.links());
    let listener = links.and_then(|links| links.get(DIRECT));
    let addresses: Vec<Remote> = listener.into_iter().flat_map(offering::reachable).collect();
    let json = arguments.json;
    let mut observe = |event| tell_server(&event, &addresses, json);
    serve(
        &mut access.attachment,
        arguments.one_off,
        &stop,
        &mut observe,
    )
    .map_err(no_host)?;
    Ok(Exit::Done)
}

fn tell_server(event: &ServerEvent, addresses: &[Remote], json: bool) {
    match event {
        ServerEvent::Listening { name } if json => {
            let addresses: Vec<String> = addresses.iter().map(Remote::to_string).collect();
            tell_json(&json!({ "event": "listening", "name": name, "addresses": addresses }));
        }
        ServerEvent::Listening { name } => {
            let from = addresses.first();
            let from = from.map_or(String::new(), |address| format!(" --from {address}"));
            tell(&format!("whimbrel perf client {name}{from}\n"));
            if addresses.is_empty() {
                note("add --router HOST:PORT on a machine without a host daemon");
            }
        }
        ServerEvent::Begun { client, plan } if json => {
            tell_json(&json!({ "event": "begun", "client": client, "plan": plan }));
        }
        ServerEvent::Begun { client, plan } => {
            let (up, down) = (plan.up, plan.down);
            tell(&format!(
                "{client}: {up} streams to here, {down} from here\n"
            ));
        }
        ServerEvent::Over {
            client,
            received,
            sent,
            time,
            lost,
        } => {
            let seconds = time.as_secs_f64();
            if json {
                return tell_json(&json!({
                    "event": "over", "client": client, "received": received, "sent": sent, "seconds": seconds,
                    "lost": lost
                }));
            }
            let how = if *lost {
                ", and the client has gone"
            } else {
                ""
            };
            tell(&format!(
                "{client}: {received} bytes received, {sent} sent, {seconds:.2} s{how}\n"
            ));
        }
    }
}

fn client(arguments: &Client) -> Outcome {
    let plan = plan(arguments)?;
    let stop = stop_flag()?;
    let direct = arguments.from.as_ref().map(|host| {
        let link = LinkSection::towards("from", host.clone());
        LinkSection {
            name: link.name.or(Some(arguments.server)),
            ..link
        }
    });
    let mut access = reach(&arguments.access, direct.into_iter().collect())?;
    let options = Options {
        server: arguments.server,
        plan,
        time: plan.bytes.is_none().then_some(arguments.time.0),
        interval: arguments.interval.0,
        patience: arguments.connect_timeout.0,
    };
    let mut table = Table::new(&options, arguments.json);
    let mut told_wait = ToldWait::default();
    let report = measure(
        &mut access.attachment,
        &options,
        &stop,
        &mut |event| match event {
            ClientEvent::Waiting(wait) if !arguments.json => {
                told_wait.tell(wait.as_ref(), None, false);
            }
            ClientEvent::Waiting(_) => {}
            ClientEvent::Begun => table.begin(),
            ClientEvent::Interval(interval) => table.interval(interval),
        },
    );
    match report {
        Ok(report) => {
            table.end(&report);
            match report.server_time {
                _ if report.interrupted => Ok(Exit::Interrupted),
                Some(_) => Ok(Exit::Done),
                None => Err(Failure::new(Exit::Other, report::SERVER_GONE)),
            }
        }
        Err(error) => {
            if arguments.json {
                json_line(&json!({ "error": error.to_string() }));
            }
            Err(failure(error))
        }
    }
}

fn plan(arguments: &Client) -> Result<Plan, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let chunk_size = ChunkSize::from_bytes(arguments.chunk_size.0)
        .map_err(|error| usage(format!("--chunk-size: {error}")))?;
    let interval = arguments.interval.0;
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&interval) {
        return Err(usage(format!(
            "--interval: {} is not from 100 ms to 1 h",
            arguments.interval
        )));
    }
    if arguments.time.0 < Duration::from_millis(100) {
        return Err(usage(format!(
            "--time: {} is too short to measure; take at least 100 ms",
            arguments.time
        )));
    }
    let streams = arguments.parallel;
    let (up, down) = match (arguments.reverse, arguments.bidir) {
        (true, _) => (0, streams),
        (_, true) => (streams, streams),
        _ => (streams, 0),
    };
    let bytes = arguments.bytes.map(|bytes| bytes.0);
    if bytes.is_some_and(|bytes| bytes < u64::from(streams)) {
        return Err(usage(format!(
            "--bytes: {streams} streams need at least a byte each"
        )));
    }
    Ok(Plan {
        up,
        down,
        bytes,
        chunk_log2: chunk_size.code(),
        // What the server says is late by half an interval at most.
        interval_ms: (interval.as_millis() as u32 / 2).max(100),
    })
}

fn failure(error: PerfError) -> Failure {
    match error {
        PerfError::Host(error) => no_host(error),
        PerfError::Interrupted => Failure::new(Exit::Interrupted, ""),
        error => Failure::new(Exit::Other, error),
    }
}
