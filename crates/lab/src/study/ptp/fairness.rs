//! Scenario 3: a consumer with several paths beside one with a single path, over a shared
//! bottleneck ([PTP §6-D]).

use super::super::result::mean;
use super::super::{NamedChart, Progress, StudyInput, StudyResult, Table};
use super::cells::{self, Cell, Sample, title};
use crate::LabError;
use crate::figure::{LineChart, Series};

/// The loads of the scenario: of the consumer with several paths, and of the one with one.
const SEVERAL: usize = 0;
const SINGLE: usize = 1;
/// Seconds that a point of the figures stands for.
const STEP: f64 = 1.0;

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let roles = "of several paths, and of one";
    let cells = cells::run_pairs(&scenario, input, progress, roles)?;
    let mut comparisons = Vec::new();
    for cell in &cells {
        let (id, goal) = (statement_of(cell), format!("goal-{}", cell.solution));
        let at = format!("{}, %", title(cell.solution));
        let share = mean(shares(cell));
        comparisons.extend(cells::compare(input, &id, &goal, "", &at, share)?);
    }
    let figures = cells.iter().filter_map(|cell| {
        let figure = match cell.solution {
            "ptp" => Some("19"),
            "omcc-rf" => Some("20"),
            _ => None,
        };
        Some((figure?, cell))
    });
    let mut charts: Vec<NamedChart> = figures
        .map(|(figure, cell)| windows(figure, cell))
        .collect();
    charts.push(shares_chart(input, &cells));
    let tables = vec![table(&cells)];
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        Vec::new(),
    )
}

/// Returns the octets that a consumer received after the warm-up.
fn counted(cell: &Cell<'_>, samples: &[Sample]) -> f64 {
    let from = cell.plan.warm_up.as_secs_f64();
    let at = |sample: &Sample| sample.stats.bytes as f64;
    let first = samples.iter().find(|sample| sample.at >= from);
    samples.last().map_or(0.0, at) - first.map_or(0.0, at)
}

/// Returns the share of the consumer with a single path in each run, in per cent.
fn shares(cell: &Cell<'_>) -> Vec<f64> {
    let runs = cell.runs.iter();
    runs.map(|run| {
        let [several, single] = [SEVERAL, SINGLE].map(|load| counted(cell, &run.samples[load]));
        100.0 * single / (several + single)
    })
    .collect()
}

/// Returns the paper's statement about a solution.
fn statement_of(cell: &Cell<'_>) -> String {
    format!("share-{}", cell.solution)
}

/// Jain's index of two shares in per cent.
fn jain(share: f64) -> f64 {
    let other = 100.0 - share;
    (share + other).powi(2) / (2.0 * (share * share + other * other))
}

fn table(cells: &[Cell<'_>]) -> Table {
    let row = |cell: &Cell<'_>| {
        let all = shares(cell);
        let share = mean(all.iter().copied());
        let each: Vec<String> = all.iter().map(|share| format!("{share:.1}")).collect();
        vec![
            title(cell.solution).to_owned(),
            format!("{share:.1} : {:.1}", 100.0 - share),
            format!("{:.4}", jain(share)),
            format!("{:.1}", mean(cell.utilization())),
            each.join(" "),
        ]
    };
    let columns = [
        "solution",
        "single : several",
        "Jain index",
        "utilization, %",
        "single, % of each run",
    ];
    Table {
        name: String::from("shares"),
        title: String::from(
            "Shares of the consumer with a single path and of the one with several",
        ),
        columns: columns.map(String::from).into(),
        rows: cells.iter().map(row).collect(),
    }
}

/// Returns the means of `value` over steps of the run's time.
fn stepped(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut step: Vec<f64> = Vec::new();
    let mut end = STEP;
    for sample in samples {
        while sample.at >= end {
            if !step.is_empty() {
                points.push((end - STEP / 2.0, mean(step.drain(..))));
            }
            end += STEP;
        }
        step.push(value(sample));
    }
    points
}

fn windows(figure: &str, cell: &Cell<'_>) -> NamedChart {
    let line = |label: &str, load: usize| Series {
        label: label.to_owned(),
        points: cell.runs.first().map_or(Vec::new(), |run| {
            stepped(&run.samples[load], |sample| sample.stats.window)
        }),
        ..Series::default()
    };
    NamedChart {
        name: format!("fig{figure}"),
        chart: LineChart {
            title: format!("Fig. {figure}: windows, {}", title(cell.solution)),
            x_label: String::from("time, s"),
            y_label: String::from("window, segments"),
            series: vec![
                line("several paths, all together", SEVERAL),
                line("a single path", SINGLE),
            ],
            ..LineChart::default()
        },
    }
}

fn shares_chart(input: &StudyInput<'_>, cells: &[Cell<'_>]) -> NamedChart {
    let (name, title) = (
        String::from("shares"),
        String::from("Share of the consumer with a single path"),
    );
    let label = "single path; an even division is 50 %";
    let cells: Vec<&Cell<'_>> = cells.iter().collect();
    let ours = |cell: &Cell<'_>| mean(shares(cell));
    cells::chart_of_solutions(name, title, label, &cells, ours, |cell| {
        input.value(&statement_of(cell))
    })
}
