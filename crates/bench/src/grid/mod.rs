//! `grid`: goodput and latency over links with troubles, by law of congestion control: which cells are the worst.
//!
//! A cell is a link ([`Cell`]); every law carries the same file over it, and a ping goes at the same time. Goodput counts from
//! the twentieth round trip on.

mod cell;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use whimbrel_core::SeededRng;
use whimbrel_lab::LabError;
use whimbrel_lab::scenario::load::Kind;
use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{BatchOptions, Overrides, Plan, Scenario, Setting};
use whimbrel_lab::study::Backend;

use crate::{BenchError, Machine};

pub use cell::Cell;
pub use report::GridReport;

/// The network and the laws.
const SCENARIO: &str = include_str!("../grid.toml");
/// The link with the troubles.
const LINK: &str = "sky";
/// Echo requests in the time that counts.
const PINGS: u32 = 40;
/// Further requests until the time ends, so that a late answer ends no run.
const SPARE_PINGS: u32 = 20;

/// Carries the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GridLaw {
    /// Whimbrel's hop with `pacing = "bottleneck"`.
    Bottleneck,
    /// `pacing = "unpaced"`: the paper's window alone.
    Unpaced,
    /// `pacing = "cubic"`.
    Cubic,
    /// The kernel's TCP with CUBIC and tuned buffers, in namespaces.
    KernelCubic,
    /// The kernel's TCP with BBR and tuned buffers, in namespaces.
    KernelBbr,
}

impl GridLaw {
    /// Returns the name in the scenario and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            GridLaw::Bottleneck => "bottleneck",
            GridLaw::Unpaced => "unpaced",
            GridLaw::Cubic => "cubic",
            GridLaw::KernelCubic => "kernel-cubic",
            GridLaw::KernelBbr => "kernel-bbr",
        }
    }

    /// Returns true if a back end has it.
    pub const fn is_known_to(self, backend: Backend) -> bool {
        match self {
            GridLaw::KernelCubic | GridLaw::KernelBbr => matches!(backend, Backend::Netns),
            _ => true,
        }
    }

    /// Returns the laws that are measured by default.
    pub fn of(backend: Backend) -> Vec<GridLaw> {
        match backend {
            Backend::Sim => vec![GridLaw::Bottleneck, GridLaw::Unpaced, GridLaw::Cubic],
            Backend::Netns => vec![
                GridLaw::Bottleneck,
                GridLaw::KernelCubic,
                GridLaw::KernelBbr,
            ],
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug)]
pub struct GridOptions {
    /// The back end.
    pub backend: Backend,
    /// The laws, the first of which orders the table.
    pub laws: Vec<GridLaw>,
    /// A few cells only.
    pub quick: bool,
    /// Random cells with all troubles at once, in place of the grid.
    pub random: Option<u32>,
    /// Seed of all randomness.
    pub seed: u64,
    /// Bound of the parallel runs; `None`: one on each processor, in namespaces one in all.
    pub jobs: Option<usize>,
    /// The whimbrel binary, for daemons in namespaces.
    pub program: PathBuf,
}

impl GridOptions {
    fn cells(&self) -> Vec<Cell> {
        match (self.random, self.quick, self.backend) {
            (Some(count), ..) => {
                let mut rng = SeededRng::stream(self.seed, "cells");
                (0..count).map(|_| Cell::draw(&mut rng)).collect()
            }
            (None, true, _) => Cell::quick(),
            (None, false, Backend::Sim) => Cell::grid(),
            (None, false, Backend::Netns) => Cell::real_time(),
        }
    }
}

/// One law in one cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Bits per second of the file from the twentieth round trip on.
    pub goodput: f64,
    /// The median of the pings next to it; `None` if none was answered.
    pub ping: Option<Duration>,
}

/// Measures all cells. Calls `progress` with the runs that are done, all runs, and the last one.
pub fn run(
    options: &GridOptions,
    progress: &mut dyn FnMut(usize, usize, &str),
) -> Result<GridReport, BenchError> {
    let overrides = Overrides {
        seed: Some(options.seed),
        backend: Some(options.backend),
        ..Overrides::default()
    };
    let parsed = Scenario::parse(Path::new("grid.toml"), SCENARIO, overrides);
    let mut scenario = parsed.map_err(LabError::from)?;
    let cells = options.cells();
    let mut settings = Vec::new();
    for cell in &cells {
        for law in &options.laws {
            settings.push(setting(&scenario, *law, cell)?);
        }
    }
    scenario.settings = settings;
    let batch = BatchOptions {
        backend: options.backend,
        jobs: options.jobs,
        program: options.program.clone(),
        journal: None,
    };
    let batch = scenario.run(&batch, progress)?;
    let reached = |at: usize| {
        let run = &batch.outcomes[at].found;
        reached(run, &cells[at / options.laws.len()])
    };
    let all: Vec<Reached> = (0..batch.outcomes.len()).map(reached).collect();
    let rows = cells.iter().copied().zip(all.chunks(options.laws.len()));
    Ok(GridReport {
        machine: Machine::here(),
        backend: options.backend,
        seed: options.seed,
        is_random: options.random.is_some(),
        laws: options.laws.clone(),
        rows: rows
            .map(|(cell, reached)| (cell, reached.to_vec()))
            .collect(),
    })
}

/// Returns the scenario's setting of a law, with a cell's link.
fn setting(scenario: &Scenario, law: GridLaw, cell: &Cell) -> Result<Setting, BenchError> {
    let mut all = scenario.settings.iter();
    let found = all.find(|setting| setting.value("law") == Some(law.name()));
    let missing = || BenchError::Simulated(format!("grid.toml has no law '{}'", law.name()));
    let mut setting = found.ok_or_else(missing)?.clone();
    setting.values.push((String::from("cell"), cell.name()));
    fit(&mut setting.plan, cell);
    Ok(setting)
}

fn fit(plan: &mut Plan, cell: &Cell) {
    for link in &mut plan.network.links {
        if link.name == LINK {
            cell.apply(link);
        }
    }
    plan.limit = cell.warm_up() + cell.counted();
    let interval = cell.counted() / PINGS;
    for load in &mut plan.loads {
        match &mut load.kind {
            Kind::Pings(pings) => {
                pings.interval = interval;
                pings.count = (PINGS + SPARE_PINGS) as u16;
                load.start = cell.warm_up();
            }
            // More than fits.
            kind => *kind = Kind::File((cell.rate as f64 / 8.0 * plan.limit.as_secs_f64()) as u64),
        }
    }
}

fn reached(run: &Run, cell: &Cell) -> Reached {
    let from = cell.warm_up().as_secs_f64();
    let samples = run.transfers.first().map(|it| it.record.samples.as_slice());
    let samples = samples.unwrap_or_default();
    let begin = samples.iter().find(|(at, _)| *at >= from);
    let goodput = match (begin, samples.last()) {
        (Some(begin), Some(end)) if end.0 > begin.0 => {
            (end.1 - begin.1) as f64 * 8.0 / (end.0 - begin.0)
        }
        _ => 0.0,
    };
    let median = run.values.get("echo.median");
    Reached {
        goodput,
        ping: median.map(|ms| Duration::from_secs_f64(ms / 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(laws: Vec<GridLaw>) -> GridOptions {
        GridOptions {
            backend: Backend::Sim,
            laws,
            quick: true,
            random: None,
            seed: 1,
            jobs: Some(1),
            program: "whimbrel".into(),
        }
    }

    #[test]
    fn every_law_has_its_setting_on_each_back_end() {
        for backend in Backend::ALL {
            let overrides = Overrides {
                backend: Some(backend),
                ..Overrides::default()
            };
            let scenario = Scenario::parse(Path::new("grid.toml"), SCENARIO, overrides).unwrap();
            for law in GridLaw::of(backend) {
                let setting = setting(&scenario, law, &Cell::quick()[0]).unwrap();
                let link = &setting.plan.network.links[setting.plan.network.link(LINK).unwrap()];
                assert_eq!(link.forward.delay, Duration::from_millis(10), "{law:?}");
            }
        }
    }

    #[test]
    fn a_link_without_troubles_is_filled_and_one_with_loss_is_not_by_cubic() {
        let laws = vec![GridLaw::Bottleneck, GridLaw::Cubic];
        let cells = [Cell::quick()[0], Cell::quick()[3]];
        let mut shares = Vec::new();
        for cell in &cells {
            for law in &laws {
                let overrides = Overrides::default();
                let scenario =
                    Scenario::parse(Path::new("grid.toml"), SCENARIO, overrides).unwrap();
                let plan = setting(&scenario, *law, cell).unwrap().plan;
                let run = whimbrel_lab::scenario::sim::run(&plan, 1).unwrap();
                let reached = reached(&run, cell);
                assert!(reached.ping.is_some(), "{law:?}");
                shares.push(reached.goodput / cell.capacity());
            }
        }
        assert!(shares[0] > 0.8 && shares[1] > 0.8, "{shares:?}");
        assert!(shares[2] > 0.7 && shares[3] < shares[2] - 0.1, "{shares:?}");
    }

    #[test]
    fn a_report_has_all_cells_the_worst_first() {
        let mut seen = Vec::new();
        let options = GridOptions {
            random: Some(3),
            ..options(vec![GridLaw::Bottleneck])
        };
        let report = run(&options, &mut |done, all, _| seen.push((done, all))).unwrap();
        assert_eq!(seen.last(), Some(&(3, 3)));
        assert_eq!(report.rows.len(), 3);
        let table = report.table(2);
        let lines: Vec<&str> = table.lines().filter(|line| line.contains("BDP")).collect();
        // Two by goodput, and two by ping.
        assert_eq!(lines.len(), 4, "{table}");
    }
}
