//! Performance targets, measured as ratios in one run: the machine is noisy, and only concurrent or
//! alternating measurements are comparable.
//!
//! | module | part | compares |
//! |---|---|---|
//! | `goodput` | `loss`, `lossless` | Whimbrel over a lossy last hop with itself over a lossless one, and with TCP |
//! | `outage` | `outage` | the time until a transfer resumes with a round trip and 100 ms |
//! | [`peer`] | `peer` | two nodes over a clean veth pair with quinn moving the same file |
//! | `fairness` | `fairness` | shares of one bottleneck, beside TCP and beside itself |
//! | `simulator` | `simulator` | packet events per second on one core with a million |
//! | `messages` | `messages` | small messages through one router with 100,000 a second |
//! | `memory` | `memory` | a router's resident memory under a flood with its formula's bound |
//! | `storage` | `storage` | chunks that a router's disk takes with `dd` and a sync for each batch |
//! | [`grid`] | `grid`, a command of its own | laws of congestion control over links with troubles, the worst cells first |
//! | [`ndn`] | `ndn` | an NDN router between two programs with a bare relay; its pipeline, and a file over two routers, with their targets |
//!
//! Protocols are measured with a user's parameters.
#![allow(
    clippy::disallowed_methods,
    reason = "a bench measures real processes, so it owns clocks; it holds no protocol"
)]

mod error;
mod fairness;
mod goodput;
pub mod grid;
mod machine;
mod memory;
mod messages;
pub mod ndn;
mod outage;
pub mod peer;
mod plans;
mod processes;
mod report;
mod simulator;
mod storage;
mod usage;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use whimbrel_lab::study::Backend;

pub use error::BenchError;
pub use machine::Machine;
pub use report::{BenchReport, Fault, Quantity, Row, Target};

/// A measured target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The cost of 1 % loss on the last hop.
    Loss,
    /// Beside TCP Cubic on the same lossless link.
    Lossless,
    /// How soon a transfer resumes after an outage.
    Outage,
    /// Beside quinn on a clean veth pair.
    Peer,
    /// Beside TCP, and beside itself, on one shared bottleneck.
    Fairness,
    /// Packet events per second of the simulator.
    Simulator,
    /// Small messages through one router.
    Messages,
    /// A router's memory under a flood.
    Memory,
    /// Chunks that a router's disk takes.
    Storage,
    /// Named data: exchanges through a router, its pipeline alone, a file over two routers.
    Ndn,
}

impl Part {
    /// All parts, in the order of the table.
    pub const ALL: [Part; 10] = [
        Part::Loss,
        Part::Lossless,
        Part::Outage,
        Part::Peer,
        Part::Fairness,
        Part::Simulator,
        Part::Messages,
        Part::Memory,
        Part::Storage,
        Part::Ndn,
    ];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Loss => "loss",
            Part::Lossless => "lossless",
            Part::Outage => "outage",
            Part::Peer => "peer",
            Part::Fairness => "fairness",
            Part::Simulator => "simulator",
            Part::Messages => "messages",
            Part::Memory => "memory",
            Part::Storage => "storage",
            Part::Ndn => "ndn",
        }
    }

    /// One line.
    pub const fn title(self) -> &'static str {
        match self {
            Part::Loss => "goodput with 1 % loss on the last hop, over goodput without loss",
            Part::Lossless => "Whimbrel's goodput over TCP's on the same lossless path",
            Part::Outage => {
                "time from the link's return until the transfer resumes, over RTT + 100 ms"
            }
            Part::Peer => {
                "a file from one node to another over a clean veth pair, over quinn's rate"
            }
            Part::Fairness => "shares of one bottleneck of 20 Mbit/s and RTT 50 ms",
            Part::Simulator => "packet events per second on one core, over a million",
            Part::Messages => "small messages through one router, over 100,000 a second",
            Part::Memory => "a router's memory under a flood, over its configured bound",
            Part::Storage => {
                "chunks that a router's disk takes, over dd with a sync for each batch"
            }
            Part::Ndn => {
                "named data: a router between two programs, its pipeline alone, a file over two routers"
            }
        }
    }

    /// Returns whether it needs hosts as network namespaces with these back ends.
    pub fn needs_namespaces(self, backends: &[Backend]) -> bool {
        match self {
            Part::Loss | Part::Lossless | Part::Outage | Part::Fairness => {
                backends.contains(&Backend::Netns)
            }
            Part::Peer => true,
            Part::Simulator | Part::Messages | Part::Memory | Part::Storage | Part::Ndn => false,
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The back ends of the parts with a choice.
    pub backends: Vec<Backend>,
    /// Shorter: for a quick look, and for tests.
    pub quick: bool,
    /// Seed of all randomness.
    pub seed: u64,
    /// The whimbrel binary, for daemons in namespaces.
    pub program: PathBuf,
    /// NDNd's program, to measure its forwarder beside ours.
    pub ndnd: Option<PathBuf>,
}

/// The context of a part: options, progress, results.
pub(crate) struct Bench<'a> {
    pub(crate) options: &'a BenchOptions,
    part: Part,
    progress: &'a mut dyn FnMut(Part, &str),
    rows: &'a mut Vec<Row>,
    faults: &'a mut Vec<Fault>,
}

impl Bench<'_> {
    /// Makes one measurement; a failure does not stop the others. `measure` may report further
    /// progress.
    pub(crate) fn measure(
        &mut self,
        what: &str,
        measure: impl FnOnce(&BenchOptions, &mut dyn FnMut(&str)) -> Result<Vec<Row>, BenchError>,
    ) {
        (self.progress)(self.part, what);
        match measure(self.options, &mut |what| (self.progress)(self.part, what)) {
            Ok(rows) => self.rows.extend(rows),
            Err(error) => self.fault(what, &error),
        }
    }

    /// Records a failed measurement.
    pub(crate) fn fault(&mut self, what: &str, error: &BenchError) {
        let (what, error) = (what.to_owned(), error.to_string());
        self.faults.push(Fault {
            part: self.part,
            what,
            error,
        });
    }
}

/// Measures `parts`, reporting each measurement to `progress`.
pub fn run(
    parts: &[Part],
    options: &BenchOptions,
    progress: &mut dyn FnMut(Part, &str),
) -> BenchReport {
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    let mut goodputs = goodput::Goodputs::default();
    for part in parts {
        let mut bench = Bench {
            options,
            part: *part,
            progress,
            rows: &mut rows,
            faults: &mut faults,
        };
        match part {
            Part::Loss => goodput::loss(&mut bench, &mut goodputs),
            Part::Lossless => goodput::lossless(&mut bench, &mut goodputs),
            Part::Outage => outage::run(&mut bench),
            Part::Simulator => simulator::run(&mut bench),
            Part::Peer => peer::run(&mut bench),
            Part::Fairness => fairness::run(&mut bench),
            Part::Messages => messages::run(&mut bench),
            Part::Memory => memory::run(&mut bench),
            Part::Storage => storage::run(&mut bench),
            Part::Ndn => ndn::run(&mut bench),
        }
    }
    BenchReport {
        machine: Machine::here(),
        quick: options.quick,
        seed: options.seed,
        rows,
        faults,
    }
}
