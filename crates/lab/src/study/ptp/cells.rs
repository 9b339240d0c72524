//! The runs of a study of PTP, by case and solution.

use std::time::Duration;

use whimbrel_transport::FetchStats;

use super::super::jobs::{Job, run_all};
use super::super::{Backend, Comparison, NamedChart, Progress, StudyInput};
use super::optimum::Optimum;
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::run::Run;
use crate::scenario::sim::observe::Observer;
use crate::scenario::{Plan, Scenario, netns, sim};

/// Interval at which consumers are sampled.
const SAMPLES: Duration = Duration::from_millis(50);

/// Returns the name of a solution for people.
pub(super) fn title(solution: &str) -> &str {
    match solution {
        "ptp" => "PTP",
        "ptp-model" => "PTP, model-based law",
        "omcc-rf" => "RFA and RAAQM (OMCC-RF)",
        "chopcop" => "RFA and CHoPCoP-like",
        "paf-raaqm" => "PAF-like and RAAQM",
        "best-route" => "best-route, CUBIC",
        other => other,
    }
}

/// A consumer at a moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// Seconds since the run's origin.
    pub(super) at: f64,
    pub(super) stats: FetchStats,
}

/// A run's results.
pub(super) struct Found {
    pub(super) run: Run,
    /// The samples of each load; empty in namespaces.
    pub(super) samples: Vec<Vec<Sample>>,
}

/// All runs of a setting.
pub(super) struct Cell<'a> {
    /// The case in the sweep; empty if there is only one.
    pub(super) case: &'a str,
    pub(super) solution: &'a str,
    pub(super) plan: &'a Plan,
    pub(super) optimum: Optimum,
    pub(super) runs: Vec<Found>,
}

impl Cell<'_> {
    /// Returns the rate of a link from its first end (`way` 0) or its second, in Mbit/s: the mean of all
    /// runs, after the warm-up.
    pub(super) fn rate(&self, link: usize, way: usize) -> f64 {
        let rates = (0..self.runs.len()).map(|run| self.rate_in(run, link, way));
        super::super::result::mean(rates)
    }

    fn rate_in(&self, run: usize, link: usize, way: usize) -> f64 {
        let metric = ["forward", "backward"][way];
        let name = &self.plan.network.links[link].name;
        let value = self.runs[run]
            .run
            .values
            .get(&format!("links.{name}.{metric}"));
        let counted = self
            .plan
            .limit
            .saturating_sub(self.plan.warm_up)
            .as_secs_f64();
        value.map_or(f64::NAN, |bytes| bytes * 8e-6 / counted)
    }

    /// Returns what arrives at each receiver of each load in a run, in Mbit/s.
    fn arrived(&self, run: usize) -> Vec<f64> {
        let network = &self.plan.network;
        let receivers = self.plan.loads.iter().flat_map(|load| &load.to);
        let arrived = receivers.map(|node| {
            let links = network.at(*node);
            links
                .map(|(link, _)| {
                    let way = usize::from(network.links[link].ends.0 == *node);
                    self.rate_in(run, link, way)
                })
                .sum()
        });
        arrived.collect()
    }

    /// Returns the share of its optimum that each receiver gets in a run.
    pub(super) fn receivers_shares(&self, run: usize) -> Vec<f64> {
        let arrived = self.arrived(run);
        let shares = arrived.iter().zip(&self.optimum.rates);
        shares.map(|(arrived, optimum)| arrived / optimum).collect()
    }

    /// Returns the consumers' share of the optimum in each run, in per cent.
    pub(super) fn utilization(&self) -> Vec<f64> {
        (0..self.runs.len())
            .map(|run| 100.0 * self.arrived(run).iter().sum::<f64>() / self.optimum.total())
            .collect()
    }
}

/// One run.
struct Trial<'a> {
    title: String,
    plan: &'a Plan,
    seed: u64,
}

impl Job for Trial<'_> {
    type Found = Found;

    fn title(&self) -> &str {
        &self.title
    }

    fn run(&self, input: &StudyInput<'_>) -> Result<Found, LabError> {
        if input.options.backend == Backend::Netns {
            let run = netns::run(self.plan, self.seed, &input.options.program)?;
            let samples = vec![Vec::new(); self.plan.loads.len()];
            return Ok(Found { run, samples });
        }
        let mut watcher = SampleWatcher(vec![Vec::new(); self.plan.loads.len()]);
        let observed = sim::observe(self.plan, self.seed, &mut watcher)?;
        Ok(Found {
            run: observed.run,
            samples: watcher.0,
        })
    }
}

struct SampleWatcher(Vec<Vec<Sample>>);

impl Observer for SampleWatcher {
    fn samples(&self) -> Option<Duration> {
        Some(SAMPLES)
    }

    fn sampled(&mut self, load: usize, _receiver: usize, at: Duration, stats: &FetchStats) {
        self.0[load].push(Sample {
            at: at.as_secs_f64(),
            stats: stats.clone(),
        });
    }
}

/// Runs every setting of a scenario that sweeps `solution`, and `case` if there are several.
pub(super) fn run<'a>(
    scenario: &'a Scenario,
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<Vec<Cell<'a>>, LabError> {
    let mut cells: Vec<Cell<'_>> = Vec::new();
    let mut trials = Vec::new();
    for setting in &scenario.settings {
        let solution = setting.value("solution").ok_or_else(|| {
            input.bad("this study sweeps solution (ptp, ...), by this name".to_owned())
        })?;
        let case = setting.value("case").unwrap_or("");
        for run in 0..scenario.runs {
            let in_case = if case.is_empty() {
                String::new()
            } else {
                format!("case {case}, ")
            };
            trials.push(Trial {
                title: format!("{in_case}{}", title(solution)),
                plan: &setting.plan,
                seed: setting.plan.seed.wrapping_add(u64::from(run)),
            });
        }
        // Solutions have the same network, and the program of a large one takes seconds.
        let known = cells.iter().find(|cell| {
            cell.case == case && cell.plan.network.links == setting.plan.network.links
        });
        let optimum = match known {
            Some(cell) => cell.optimum.clone(),
            None => Optimum::of(&setting.plan).map_err(|why| input.bad(why))?,
        };
        cells.push(Cell {
            case,
            solution,
            plan: &setting.plan,
            optimum,
            runs: Vec::new(),
        });
    }
    let mut found = run_all(&trials, input, progress)?.into_iter();
    for cell in &mut cells {
        cell.runs = found.by_ref().take(scenario.runs as usize).collect();
    }
    Ok(cells)
}

/// Runs the settings of a scenario with two loads. `roles` describes them in the error.
pub(super) fn run_pairs<'a>(
    scenario: &'a Scenario,
    input: &StudyInput<'_>,
    progress: Progress<'_>,
    roles: &str,
) -> Result<Vec<Cell<'a>>, LabError> {
    let cells = run(scenario, input, progress)?;
    if cells.iter().any(|cell| cell.plan.loads.len() != 2) {
        return Err(input.bad(format!("this study has two loads: {roles}")));
    }
    Ok(cells)
}

/// Compares a number with the paper's statement `id` and with our goal `goal`, as far as they exist.
/// `said` names the case, `at` the number and its unit.
pub(super) fn compare(
    input: &StudyInput<'_>,
    id: &str,
    goal: &str,
    said: &str,
    at: &str,
    ours: f64,
) -> Result<Vec<Comparison>, LabError> {
    let numbers = [(at, ours, 1)];
    let mut compared = Vec::new();
    if let Some(theirs) = input.value(id) {
        let agrees = input.tolerance(id)?.admits(theirs, ours);
        compared.push(input.compare_numbers(id, said, agrees, 1, &numbers));
    }
    if input.statement(goal).is_some() {
        let agrees = input.range(goal)?.admits(ours);
        compared.push(input.compare_numbers(goal, said, agrees, 0, &numbers));
    }
    Ok(compared)
}

/// Draws a bar in per cent for each solution, and the paper's value beside it. `label` names our bars.
pub(super) fn chart_of_solutions(
    name: String,
    title: String,
    label: &str,
    cells: &[&Cell<'_>],
    ours: impl Fn(&Cell<'_>) -> f64,
    theirs: impl Fn(&Cell<'_>) -> Option<f64>,
) -> NamedChart {
    let numbered = || (0..).map(f64::from).zip(cells);
    NamedChart {
        name,
        chart: LineChart {
            title,
            x_label: String::from("solution"),
            y_label: String::from("%"),
            series: vec![Series {
                label: label.to_owned(),
                points: numbered().map(|(at, cell)| (at, ours(cell))).collect(),
                paper: numbered()
                    .filter_map(|(at, cell)| Some((at, theirs(cell)?)))
                    .collect(),
                ..Series::default()
            }],
            categories: cells.iter().map(|cell| cell.solution.to_owned()).collect(),
            ..LineChart::default()
        },
    }
}
