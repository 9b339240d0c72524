//! The demonstration: one file, one bad path, kernel TCP beside Whimbrel.
//!
//! Two copies of the topology of [MFTP §5], Fig. 7, run at the same time, with
//! the same link model, the same seed and the same outage counted from each request, so that
//! neither transfer disturbs the other.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use whimbrel_core::SeededRng;
use whimbrel_sim::link::{LinkSpec, Loss, Outage, QueueLimit};

use crate::daemons::Fig7Daemons;
use crate::figure::{LineChart, Series};
use crate::{
    CongestionControl, Fig7, LabError, LinkReport, TcpBaseline, Topology, TransferObserver,
    TransferRecord,
};

/// What to show.
#[derive(Clone, Debug, Serialize)]
pub struct DemoOptions {
    /// The file; one is made if there is none.
    pub file: Option<PathBuf>,
    /// Round-trip time added between the routers.
    pub rtt: Duration,
    /// Probability of losing a packet on the last hop, each way.
    pub loss: f64,
    /// How long the last hop is out; zero for never.
    pub outage: Duration,
    /// When it goes out, counted from the request.
    pub outage_after: Duration,
    /// Rate of the last hop in bits per second.
    pub rate: u64,
    /// Of everything random in the link model.
    pub seed: u64,
    /// Congestion control of the kernel's TCP.
    pub congestion: CongestionControl,
    /// After this long a transfer is given up: TCP alone would often take minutes.
    pub patience: Duration,
}

impl Default for DemoOptions {
    fn default() -> DemoOptions {
        DemoOptions {
            file: None,
            rtt: Duration::from_millis(50),
            loss: 0.01,
            outage: Duration::from_secs(10),
            outage_after: Duration::from_secs(5),
            rate: 25_000_000,
            seed: 1,
            congestion: CongestionControl::Cubic,
            patience: Duration::from_secs(60),
        }
    }
}

/// Length of the file that is made if none is given, in bytes.
pub const DEFAULT_FILE_LEN: u64 = 40_000_000;

/// One side of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The kernel's TCP.
    Tcp,
    /// Whimbrel.
    Whimbrel,
}

/// What one side did.
#[derive(Clone, Debug, Serialize)]
pub struct DemoRun {
    /// Which side.
    pub side: Side,
    /// The transfer.
    pub record: TransferRecord,
    /// What crossed each link.
    pub links: Vec<LinkReport>,
    /// True if what arrived is what was sent, byte for byte.
    pub intact: bool,
}

/// Both sides.
#[derive(Clone, Debug, Serialize)]
pub struct DemoReport {
    /// What was asked for.
    pub options: DemoOptions,
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Kernel TCP.
    pub tcp: DemoRun,
    /// Whimbrel.
    pub whimbrel: DemoRun,
}

impl DemoReport {
    /// How many times as fast Whimbrel was; a lower bound if TCP was given up, `None` if Whimbrel
    /// was.
    pub fn speedup(&self) -> Option<f64> {
        self.whimbrel
            .record
            .completed
            .then(|| self.tcp.record.finished / self.whimbrel.record.finished)
    }

    /// Goodput over time as SVG and PNG.
    pub fn draw(&self, stem: &Path) -> Result<(), LabError> {
        let line = |run: &DemoRun, label: &str| Series {
            label: label.to_owned(),
            points: run
                .record
                .goodput_series(1.0)
                .into_iter()
                .map(|(at, rate)| (at, rate / 1e6))
                .collect(),
            ..Series::default()
        };
        let options = &self.options;
        let start = options.outage_after.as_secs_f64();
        let mut shaded = vec![(
            start,
            start + options.outage.as_secs_f64(),
            String::from("link out"),
        )];
        shaded.retain(|(from, to, _)| to > from);
        let chart = LineChart {
            title: format!(
                "{:.0} MB over {:.0} Mbit/s, RTT {:.0} ms, loss {:.1} % on the last hop",
                self.file_len as f64 / 1e6,
                options.rate as f64 / 1e6,
                options.rtt.as_secs_f64() * 1e3,
                options.loss * 100.0
            ),
            x_label: String::from("seconds since the request"),
            y_label: String::from("goodput, Mbit/s"),
            series: vec![
                line(&self.whimbrel, "Whimbrel"),
                line(
                    &self.tcp,
                    &format!("kernel TCP ({})", options.congestion.name()),
                ),
            ],
            shaded,
            ..LineChart::default()
        };
        chart.write(stem)
    }
}

/// Told of both sides' progress, from two threads.
pub trait DemoObserver: Send + Sync {
    /// So many of `len` bytes have arrived on this side.
    fn progress(&self, side: Side, bytes: u64, len: u64);
    /// What is being done before the transfers begin.
    fn preparing(&self, what: &str);
}

/// Runs it. `program` is the whimbrel binary, `folder` takes keys, sockets, logs and what arrives.
pub fn run(
    options: &DemoOptions,
    program: &Path,
    folder: &Path,
    observer: &dyn DemoObserver,
) -> Result<DemoReport, LabError> {
    observer.preparing("making the file");
    let file = match &options.file {
        Some(file) => file.clone(),
        None => {
            let file = folder.join("demo.bin");
            make_file(&file, DEFAULT_FILE_LEN, options.seed)?;
            file
        }
    };
    let described = format!("read {}", file.display());
    let file_len = std::fs::metadata(&file)
        .map_err(LabError::system(described))?
        .len();
    let hash = hash_of(&file)?;
    observer.preparing("building two networks");
    let fig7 = Fig7 {
        last_hop: last_hop(options),
        ..Fig7::new(options.rtt, LinkSpec::default())
    };
    let (for_tcp, for_whimbrel) = (fig7.build(options.seed)?, fig7.build(options.seed)?);
    let mut daemons = Fig7Daemons::start(program, &for_whimbrel, folder)?;
    let name = daemons.serve(&file)?;
    if name != hash {
        return Err(LabError::daemon(
            "serve",
            "published the file under a name that is not its hash",
            folder,
        ));
    }
    let arrived = folder.join("arrived.bin");
    let watch = |side| Watch {
        side,
        len: file_len,
        observer,
        topology: match side {
            Side::Tcp => &for_tcp,
            Side::Whimbrel => &for_whimbrel,
        },
    };
    let (tcp, whimbrel) = std::thread::scope(|scope| {
        let tcp = scope.spawn(|| -> Result<DemoRun, LabError> {
            let baseline = TcpBaseline {
                congestion: options.congestion,
                patience: options.patience,
                ..TcpBaseline::default()
            };
            let address = for_tcp.address_of("N1", Fig7::SERVER_LINK)?;
            let (server, client) = (for_tcp.host("N1")?, for_tcp.host("N4")?);
            let transfer = baseline.fetch(server, address, client, &file, &mut watch(Side::Tcp))?;
            let intact = transfer.blake3 == hash;
            Ok(DemoRun {
                side: Side::Tcp,
                record: transfer.record,
                links: for_tcp.link_reports()?,
                intact,
            })
        });
        let whimbrel = (|| -> Result<DemoRun, LabError> {
            let record = daemons.fetch(
                &name,
                &arrived,
                options.patience,
                &mut watch(Side::Whimbrel),
            )?;
            let intact = record.completed && hash_of(&arrived)? == hash;
            Ok(DemoRun {
                side: Side::Whimbrel,
                record,
                links: for_whimbrel.link_reports()?,
                intact,
            })
        })();
        (tcp.join(), whimbrel)
    });
    let tcp = tcp.map_err(|_| LabError::daemon("the TCP transfer", "panicked", folder))??;
    Ok(DemoReport {
        options: options.clone(),
        file_len,
        tcp,
        whimbrel: whimbrel?,
    })
}

fn last_hop(options: &DemoOptions) -> LinkSpec {
    let outage = Outage::Once {
        start: options.outage_after,
        duration: options.outage,
    };
    LinkSpec {
        loss: Loss::Independent(options.loss),
        queue: QueueLimit::Packets(1000),
        outages: if options.outage.is_zero() {
            Vec::new()
        } else {
            vec![outage]
        },
        ..LinkSpec::new(options.rate, Duration::from_millis(1))
    }
}

/// Passes progress on, and starts the outage's clock with the request.
struct Watch<'a> {
    side: Side,
    len: u64,
    observer: &'a dyn DemoObserver,
    topology: &'a Topology,
}

impl TransferObserver for Watch<'_> {
    fn started(&mut self, at: Instant) {
        if let Err(fault) = self.topology.arm(at) {
            tracing::warn!(%fault, "the outage will not come");
        }
    }

    fn progress(&mut self, _elapsed: Duration, bytes: u64) {
        self.observer.progress(self.side, bytes, self.len);
    }
}

/// Writes a file of `len` random bytes (rounded down to a multiple of 8).
pub fn make_file(path: &Path, len: u64, seed: u64) -> Result<(), LabError> {
    let failed = |source| LabError::System {
        action: format!("write {}", path.display()),
        source,
    };
    let mut rng = SeededRng::stream(seed, "demo file");
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
    for _ in 0..len / 8 {
        file.write_all(&rng.next_word().to_le_bytes())
            .map_err(failed)?;
    }
    let rest = (len % 8) as usize;
    file.write_all(&rng.next_word().to_le_bytes()[..rest])
        .map_err(failed)?;
    file.flush().map_err(failed)
}

fn hash_of(path: &Path) -> Result<String, LabError> {
    let failed = |source| LabError::System {
        action: format!("read {}", path.display()),
        source,
    };
    let mut hasher = blake3::Hasher::new();
    hasher
        .update_reader(std::fs::File::open(path).map_err(failed)?)
        .map_err(failed)?;
    Ok(hasher.finalize().to_hex().to_string())
}
