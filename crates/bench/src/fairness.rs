//! Shares of one bottleneck: Whimbrel beside a TCP, and beside another Whimbrel.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;
use whimbrel_lab::simulated::{Contender, simulated_shares};
use whimbrel_lab::study::Backend;
use whimbrel_lab::{CongestionControl, TcpBaseline, Topology, TopologyBuilder};
use whimbrel_sim::link::{LinkSpec, QueueLimit};

use crate::processes::Programs;
use crate::{Bench, BenchError, BenchOptions, Part, Quantity, Row};

const RATE: u64 = 20_000_000;
const RTT: Duration = Duration::from_millis(50);
/// Drop-tail buffers in bandwidth-delay products.
const BUFFERS_BDP: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
const WARM_UP: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(30);
const QUICK_MEASURED: Duration = Duration::from_secs(5);
/// The shared link and the hosts at its ends.
const BOTTLENECK: &str = "bottleneck";
/// The hosts of the two pairs: server and client, and their links to the bottleneck's ends.
const PAIRS: [[&str; 4]; 2] = [
    ["S0", "C0", "S0-near", "far-C0"],
    ["S1", "C1", "S1-near", "far-C1"],
];

/// The competitor of a Whimbrel transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rival {
    Itself,
    SimulatedCubic,
    Kernel(CongestionControl),
}

impl Rival {
    fn name(self) -> String {
        match self {
            Rival::Itself => String::from("Whimbrel"),
            Rival::SimulatedCubic => String::from("smoltcp cubic"),
            Rival::Kernel(congestion) => format!("kernel {}", congestion.name()),
        }
    }
}

pub(crate) fn run(bench: &mut Bench<'_>) {
    for backend in bench.options.backends.clone() {
        let rivals: &[Rival] = match backend {
            Backend::Sim => &[Rival::SimulatedCubic, Rival::Itself],
            Backend::Netns => &[
                Rival::Kernel(CongestionControl::Cubic),
                Rival::Kernel(CongestionControl::Bbr),
                Rival::Itself,
            ],
        };
        for rival in rivals {
            for buffer_bdp in BUFFERS_BDP {
                if bench.options.quick && buffer_bdp != 1.0 {
                    continue;
                }
                let what = format!("buffer {buffer_bdp} BDP, beside {}", rival.name());
                bench.measure(&format!("{what}, {}", backend.name()), |options, _| {
                    let measured = if options.quick {
                        QUICK_MEASURED
                    } else {
                        MEASURED
                    };
                    let shares = match backend {
                        Backend::Sim => simulate(options, *rival, buffer_bdp, measured)?,
                        Backend::Netns => share(options, *rival, buffer_bdp, measured)?,
                    };
                    Ok(vec![row(
                        backend, what, *rival, buffer_bdp, measured, shares,
                    )])
                });
            }
        }
    }
}

/// `bytes` of both contenders, in IP packets.
fn row(
    backend: Backend,
    what: String,
    rival: Rival,
    buffer_bdp: f64,
    measured: Duration,
    bytes: [u64; 2],
) -> Row {
    let rates = bytes.map(|bytes| bytes as f64 * 8.0 / measured.as_secs_f64());
    let both = rates[0] + rates[1];
    Row {
        part: Part::Fairness,
        backend: Some(backend),
        what,
        ours: Quantity::BitPerS(rates[0]),
        peer: Some((rival.name(), Quantity::BitPerS(rates[1]))),
        target: None,
        note: None,
        details: json!({
            "buffer_bdp": buffer_bdp,
            "measured_ns": measured.as_nanos() as u64,
            "ours_share": rates[0] / both,
            "used_share": both / RATE as f64,
        }),
    }
}

fn bottleneck(buffer_bdp: f64) -> LinkSpec {
    let product = RATE as f64 / 8.0 * RTT.as_secs_f64();
    LinkSpec::new(RATE, RTT / 2).with_queue(QueueLimit::Bytes((product * buffer_bdp) as u64))
}

/// More bytes than the link can carry during the measurement.
fn enough(measured: Duration) -> u64 {
    RATE / 8 * (WARM_UP + measured).as_secs() * 2
}

fn simulate(
    options: &BenchOptions,
    rival: Rival,
    buffer_bdp: f64,
    measured: Duration,
) -> Result<[u64; 2], BenchError> {
    let other = if rival == Rival::Itself {
        Contender::Whimbrel
    } else {
        Contender::Tcp
    };
    let contenders = [Contender::Whimbrel, other];
    let (link, len) = (bottleneck(buffer_bdp), enough(measured));
    let shares = simulated_shares(&link, &contenders, len, WARM_UP, measured, options.seed)?;
    <[u64; 2]>::try_from(shares)
        .map_err(|shares| BenchError::Simulated(format!("{} contenders have shares", shares.len())))
}

fn build(buffer_bdp: f64, seed: u64) -> Result<Topology, BenchError> {
    let fast = LinkSpec::new(1_000_000_000, Duration::ZERO);
    let shared = bottleneck(buffer_bdp);
    let mut builder = TopologyBuilder::new(seed).host("near").host("far");
    builder = builder.link(BOTTLENECK, "near", "far", shared.clone(), shared);
    for [server, client, up, down] in PAIRS {
        builder = builder.host(server).host(client);
        builder = builder.link(up, server, "near", fast.clone(), fast.clone());
        builder = builder.link(down, "far", client, fast.clone(), fast.clone());
    }
    Ok(builder.build()?)
}

fn share(
    options: &BenchOptions,
    rival: Rival,
    buffer_bdp: f64,
    measured: Duration,
) -> Result<[u64; 2], BenchError> {
    let folder = tempfile::tempdir().map_err(BenchError::system("make a temporary folder"))?;
    let file = folder.path().join("file");
    whimbrel_lab::demo::make_file(&file, enough(measured), options.seed)?;
    let topology = build(buffer_bdp, options.seed)?;
    let whimbrel = |pair: usize| -> Result<_, BenchError> {
        let [server, client, _, down] = PAIRS[pair];
        let own = folder.path().join(format!("pair-{pair}"));
        std::fs::create_dir(&own).map_err(BenchError::system(format!("make {}", own.display())))?;
        let programs = Programs {
            program: &options.program,
            folder: &own,
        };
        let address = topology.address_of(client, down)?;
        let hosts = (topology.host(server)?, topology.host(client)?);
        let mut ready =
            programs.whimbrel(hosts.0, hosts.1, address, &file, &own.join("arrived"))?;
        ready
            .fetch
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(ready)
    };
    let mut pairs = vec![whimbrel(0)?];
    if rival == Rival::Itself {
        pairs.push(whimbrel(1)?);
    }
    // All start at once; dropping a process ends it.
    let mut running = Vec::new();
    for (pair, [_, client, ..]) in pairs.into_iter().zip(PAIRS) {
        running.push((topology.host(client)?.spawn(pair.fetch)?, pair.servers));
    }
    match rival {
        Rival::Kernel(congestion) => beside_tcp(&topology, congestion, &file, measured),
        Rival::Itself | Rival::SimulatedCubic => count(&topology, measured),
    }
}

/// Counts while a TCP transfer is running, too.
fn beside_tcp(
    topology: &Topology,
    congestion: CongestionControl,
    file: &Path,
    measured: Duration,
) -> Result<[u64; 2], BenchError> {
    let [server, client, up, _] = PAIRS[1];
    let address = topology.address_of(server, up)?;
    let (server, client) = (topology.host(server)?, topology.host(client)?);
    // A little longer than the measurement, so that the transfer lasts to its end.
    let patience = WARM_UP + measured + Duration::from_secs(2);
    let baseline = TcpBaseline {
        congestion,
        patience,
        ..TcpBaseline::default()
    };
    std::thread::scope(|scope| {
        let transfer = scope.spawn(|| baseline.fetch(server, address, client, file, &mut ()));
        let counted = count(topology, measured);
        match transfer.join() {
            Ok(fetched) => fetched.map_err(BenchError::from).and(counted),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Bytes that both pairs get in `measured`, after the warm-up.
fn count(topology: &Topology, measured: Duration) -> Result<[u64; 2], BenchError> {
    let asked = Instant::now();
    std::thread::sleep(WARM_UP);
    let before = carried(topology)?;
    std::thread::sleep((asked + WARM_UP + measured).saturating_duration_since(Instant::now()));
    let after = carried(topology)?;
    Ok([after[0] - before[0], after[1] - before[1]])
}

fn carried(topology: &Topology) -> Result<[u64; 2], BenchError> {
    let reports = topology.link_reports()?;
    Ok(PAIRS.map(|[.., down]| {
        let report = reports.iter().find(|report| report.link == down);
        report.map_or(0, |report| report.forward.delivered_bytes)
    }))
}
