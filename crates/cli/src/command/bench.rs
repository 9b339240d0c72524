//! `bench`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use whimbrel_bench::ndn::{self, ConsumerOptions, ProducerOptions, SoakOptions};
use whimbrel_bench::peer::{self, PeerCarrier, PeerEnd};
use whimbrel_bench::{BenchError, BenchOptions, Part};
use whimbrel_lab::study::Backend;
use whimbrel_node::exact_json;

use super::{Outcome, bench_grid, json_line, out};
use crate::exit::{Exit, Failure};
use crate::progress::spinner;

/// Shown below `--help`.
pub(crate) const HELP: &str = "Example:\n  whimbrel bench loss outage --backend sim\n\n\
    Parts:\n  \
    loss       goodput with 1 % loss on the last hop, over goodput without loss; RTT 10, 50, 100 ms (>= 0.95)\n  \
    lossless   Whimbrel's goodput over TCP Cubic's on the same lossless path (>= 1)\n  \
    outage     time from the link's return until the transfer resumes, over RTT + 100 ms (<= 1)\n  \
    peer       one file over a clean veth pair, Whimbrel's rate over quinn's (>= 1) and over kernel TCP's, CPU of all\n  \
    fairness   shares of one bottleneck with TCP and with itself (no target)\n  \
    simulator  packet events per second on one core, over a million (>= 1)\n  \
    messages   messages of 200 octets through one router, over 100,000/s (>= 1)\n  \
    memory     a router's memory under a flood, over its configured bound (<= 1)\n  \
    storage    chunks that a router's disk takes, over dd with a sync for each batch, on the disk of this folder (>= 0.7)\n  \
    ndn        a router between two programs over a bare relay (>= 0.5) and over 150,000 exchanges/s, its pipeline alone\n             \
    over 1,000,000, a file over two routers over 3 Gbit/s (>= 1)\n\n\
    `whimbrel bench ndn-soak` keeps a router at half of its peak load for minutes and checks its memory.\n\
    `whimbrel bench grid` compares congestion laws over links with jitter, loss and reordering.\n\n\
    Exit codes:\n  \
    0    measured, whether or not each target is met\n  \
    1    any other failure\n  \
    2    wrong arguments\n  \
    6    the output cannot be written\n  \
    9    a part could not be measured; the others are printed\n  \
    10   a target was missed (with --strict, and always for ndn-soak)";

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    end: Option<End>,
    /// The parts to measure; by default all
    #[arg(value_enum, value_name = "PART", hide_possible_values = true)]
    parts: Vec<PartName>,
    /// The back end of the parts that have a choice: virtual time with smoltcp, or real daemons
    /// next to the kernel's TCP
    #[arg(long, value_enum, default_value = "both")]
    backend: BackendName,
    /// Run a shorter version of every part: for a quick look, not for the record
    #[arg(long)]
    quick: bool,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// NDNd's program (`ndnd`), to compare its forwarder in the part ndn
    #[arg(long, value_name = "PROGRAM")]
    ndnd: Option<PathBuf>,
    /// Exit with code 10 if a target is missed
    #[arg(long)]
    strict: bool,
    /// Folder for bench.json
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON instead of a table; the keys of numbers name their units
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum PartName {
    Loss,
    Lossless,
    Outage,
    Peer,
    Fairness,
    Simulator,
    Messages,
    Memory,
    Storage,
    Ndn,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum BackendName {
    Sim,
    Netns,
    Both,
}

/// Processes that `peer` and `ndn` start, and the soak test.
#[derive(Subcommand, Debug)]
enum End {
    /// Send a file to the first peer that connects
    #[command(hide = true)]
    PeerServer(EndArguments),
    /// Fetch the file of a peer-server
    #[command(hide = true)]
    PeerClient(EndArguments),
    /// Copy bytes between the first two programs that connect
    #[command(hide = true)]
    NdnRelay {
        #[arg(long)]
        socket: PathBuf,
    },
    /// Answer Interests with the same Data
    #[command(hide = true)]
    NdnProducer(ProducerArguments),
    /// Send Interests, and count the Data
    #[command(hide = true)]
    NdnConsumer(ConsumerArguments),
    /// Keep an NDN router at half of its peak load; fails if its memory grows or a packet is lost
    NdnSoak(SoakArguments),
    /// Compare congestion laws over impaired links; the worst links come first
    #[command(after_help = bench_grid::HELP)]
    Grid(bench_grid::GridArguments),
}

#[derive(Args, Debug)]
struct ProducerArguments {
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    data_size: usize,
    #[arg(long)]
    register: bool,
}

#[derive(Args, Debug)]
struct ConsumerArguments {
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    window: usize,
    #[arg(long)]
    rate: Option<u32>,
    #[arg(long)]
    warm_up_ms: u64,
    #[arg(long)]
    duration_ms: u64,
}

#[derive(Args, Debug)]
struct SoakArguments {
    /// Minutes of load; less than one for a quick look
    #[arg(long, value_name = "N", default_value_t = 15.0)]
    minutes: f64,
    /// Print JSON; the keys of numbers name their units
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct EndArguments {
    #[arg(long, value_enum)]
    carrier: CarrierName,
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    certificate: PathBuf,
    #[arg(long, value_parser = clap::value_parser!(u16).range(1280..))]
    mtu: u16,
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum CarrierName {
    Quic,
    Tcp,
}

impl From<PartName> for Part {
    fn from(name: PartName) -> Part {
        match name {
            PartName::Loss => Part::Loss,
            PartName::Lossless => Part::Lossless,
            PartName::Outage => Part::Outage,
            PartName::Peer => Part::Peer,
            PartName::Fairness => Part::Fairness,
            PartName::Simulator => Part::Simulator,
            PartName::Messages => Part::Messages,
            PartName::Memory => Part::Memory,
            PartName::Storage => Part::Storage,
            PartName::Ndn => Part::Ndn,
        }
    }
}

impl From<EndArguments> for PeerEnd {
    fn from(arguments: EndArguments) -> PeerEnd {
        PeerEnd {
            carrier: match arguments.carrier {
                CarrierName::Quic => PeerCarrier::Quic,
                CarrierName::Tcp => PeerCarrier::Tcp,
            },
            address: arguments.address,
            file: arguments.file,
            certificate: arguments.certificate,
            mtu: arguments.mtu,
            threads: arguments.threads,
        }
    }
}

pub(crate) fn run(arguments: Bench) -> Outcome {
    let Some(end) = arguments.end else {
        return measure(arguments);
    };
    let other = |error: BenchError| Failure::new(Exit::Other, error);
    match end {
        End::PeerServer(end) => peer::serve(&end.into(), || out("listening\n"))
            .map_err(|error| Failure::new(Exit::Other, error))?,
        End::PeerClient(end) => {
            peer::fetch(&end.into()).map_err(|error| Failure::new(Exit::Other, error))?
        }
        End::NdnRelay { socket } => ndn::relay(&socket, || out("ready\n")).map_err(other)?,
        End::NdnProducer(ProducerArguments {
            socket,
            data_size,
            register,
        }) => {
            let options = ProducerOptions {
                socket,
                data_size,
                register,
            };
            ndn::produce(&options, || out("ready\n")).map_err(other)?;
        }
        End::NdnConsumer(consumer) => consume(consumer)?,
        End::NdnSoak(arguments) => return soak(&arguments),
        End::Grid(arguments) => return bench_grid::run(arguments),
    }
    Ok(Exit::Done)
}

fn consume(arguments: ConsumerArguments) -> Result<(), Failure> {
    let options = ConsumerOptions {
        socket: arguments.socket,
        window: arguments.window,
        rate: arguments.rate,
        warm_up: Duration::from_millis(arguments.warm_up_ms),
        duration: Duration::from_millis(arguments.duration_ms),
    };
    let consumed = ndn::consume(&options, || out("counting\n"), || out("counted\n"))
        .map_err(|error| Failure::new(Exit::Other, error))?;
    json_line(&consumed);
    Ok(())
}

fn soak(arguments: &SoakArguments) -> Outcome {
    let duration = Duration::try_from_secs_f64(arguments.minutes * 60.0)
        .ok()
        .filter(|duration| *duration >= Duration::from_secs(1))
        .ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "--minutes takes a number of minutes, at least 0.02",
            )
        })?;
    let options = SoakOptions {
        program: std::env::current_exe()?,
        duration,
    };
    let spinner = spinner(arguments.json);
    spinner.set_prefix("ndn-soak");
    let report = ndn::soak(&options, &mut |what| spinner.set_message(what.to_owned()));
    spinner.finish_and_clear();
    let report = report.map_err(|error| Failure::new(Exit::NotMeasured, error))?;
    if arguments.json {
        json_line(&report);
    } else {
        out(&report.text());
    }
    Ok(if report.passed() {
        Exit::Done
    } else {
        Exit::Missed
    })
}

fn measure(arguments: Bench) -> Outcome {
    let mut parts: Vec<Part> = arguments.parts.into_iter().map(Part::from).collect();
    if parts.is_empty() {
        parts.extend(Part::ALL);
    }
    parts.sort_unstable();
    parts.dedup();
    let backends = match arguments.backend {
        BackendName::Sim => vec![Backend::Sim],
        BackendName::Netns => vec![Backend::Netns],
        BackendName::Both => vec![Backend::Sim, Backend::Netns],
    };
    if parts.iter().any(|part| part.needs_namespaces(&backends)) {
        // Before any thread starts. A failure here is reported with its reason by the part that
        // needs the privileges.
        let _ = whimbrel_lab::ensure_privileges();
    }
    let cannot_write = |folder: &PathBuf, error| {
        Failure::new(
            Exit::Write,
            format!("cannot write to {}: {error}", folder.display()),
        )
    };
    if let Some(folder) = &arguments.output {
        std::fs::create_dir_all(folder).map_err(|error| cannot_write(folder, error))?;
    }
    let options = BenchOptions {
        backends,
        quick: arguments.quick,
        seed: arguments.seed,
        program: std::env::current_exe()?,
        ndnd: arguments.ndnd.clone(),
    };
    let spinner = spinner(arguments.json);
    let report = whimbrel_bench::run(&parts, &options, &mut |part, what| {
        spinner.set_prefix(part.name());
        spinner.set_message(what.to_owned());
    });
    spinner.finish_and_clear();
    if let Some(folder) = &arguments.output {
        let text = exact_json::pretty(&report.json()).unwrap_or_default();
        std::fs::write(folder.join("bench.json"), text)
            .map_err(|error| cannot_write(folder, error))?;
    }
    if arguments.json {
        json_line(&report.json());
    } else {
        out(&report.table());
    }
    Ok(match (report.faults.is_empty(), report.missed()) {
        (false, _) => Exit::NotMeasured,
        (true, 1..) if arguments.strict => Exit::Missed,
        (true, _) => Exit::Done,
    })
}
