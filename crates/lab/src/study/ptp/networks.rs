//! Scenarios 1, 2 and 5: the utilization of a network by each solution, link by link ([PTP §6-B, C, F]).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::result::mean;
use super::super::trial::distinct;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::cells::{self, Cell, title};
use crate::LabError;
use crate::figure::{LineChart, Series};

/// The section `[study]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// The paper's figure of each case.
    #[serde(default)]
    figures: BTreeMap<String, String>,
    /// The paper's table of the links of `ptp`, by its id in `paper.toml`.
    #[serde(default)]
    table: Option<String>,
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    let cells = cells::run(&scenario, input, progress)?;
    let cases = distinct(cells.iter().map(|cell| cell.case));
    let mut comparisons = Vec::new();
    let (mut tables, mut charts) = (vec![summary(&cells)], Vec::new());
    for case in cases {
        let cells: Vec<&Cell<'_>> = cells.iter().filter(|cell| cell.case == case).collect();
        comparisons.extend(utilizations(input, &cells)?);
        let flows = Flow::of(&cells);
        if let Some(table) = &section.table {
            comparisons.extend(links(input, table, &cells, &flows)?);
        }
        tables.push(link_table(case, &cells, &flows));
        let figure = section.figures.get(case).map(String::as_str);
        charts.push(solutions_chart(input, case, &cells));
        charts.extend(link_charts(input, &section, case, figure, &cells, &flows));
    }
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        Vec::new(),
    )
}

/// A direction of a link that carries Data in the optimum.
struct Flow {
    link: usize,
    way: usize,
    /// Its nodes, from and to, by the paper's numbers.
    name: String,
    /// Mbit/s of the optimum.
    optimum: f64,
}

impl Flow {
    fn of(cells: &[&Cell<'_>]) -> Vec<Flow> {
        /// Mbit/s that are a solver's rounding.
        const NOTHING: f64 = 1e-6;
        let Some(cell) = cells.first() else {
            return Vec::new();
        };
        let network = &cell.plan.network;
        let number = |node: usize| network.nodes[node].name.trim_start_matches('n').to_owned();
        let links = network.links.iter().enumerate();
        let flows = links.flat_map(|(link, known)| {
            let (a, b) = known.ends;
            [(0, a, b), (1, b, a)].map(|(way, from, to)| Flow {
                link,
                way,
                name: format!("{}-{}", number(from), number(to)),
                optimum: cell.optimum.links[link][way],
            })
        });
        flows.filter(|flow| flow.optimum > NOTHING).collect()
    }
}

/// Returns the paper's statement about a solution.
fn statement_of(cell: &Cell<'_>) -> String {
    match cell.case {
        "" => format!("utilization-{}", cell.solution),
        case => format!("utilization-{case}-{}", cell.solution),
    }
}

/// Compares the share of the optimum with the paper's and with our goal.
fn utilizations(input: &StudyInput<'_>, cells: &[&Cell<'_>]) -> Result<Vec<Comparison>, LabError> {
    let mut comparisons = Vec::new();
    for cell in cells {
        let said = match cell.case {
            "" => String::new(),
            case => format!("case {case}"),
        };
        let (id, goal) = (statement_of(cell), format!("goal-{}", cell.solution));
        let at = format!("{}, %", title(cell.solution));
        let ours = mean(cell.utilization());
        comparisons.extend(cells::compare(input, &id, &goal, &said, &at, ours)?);
    }
    Ok(comparisons)
}

/// Compares the links with the paper's table, in per cent of the optimum.
fn links(
    input: &StudyInput<'_>,
    table: &str,
    cells: &[&Cell<'_>],
    flows: &[Flow],
) -> Result<Vec<Comparison>, LabError> {
    let Some(cell) = cells.iter().find(|cell| cell.solution == "ptp") else {
        return Ok(Vec::new());
    };
    let tolerance = input.tolerance(table)?;
    let rows = flows.iter().filter_map(|flow| {
        let theirs = input.published(table, &flow.name, PERCENT)?;
        let ours = 100.0 * cell.rate(flow.link, flow.way) / flow.optimum;
        Some((format!("{} %", flow.name), theirs, ours))
    });
    let rows: Vec<(String, f64, f64)> = rows.collect();
    let agrees = rows
        .iter()
        .all(|(_, theirs, ours)| tolerance.admits(*theirs, *ours));
    let numbers: Vec<_> = rows
        .iter()
        .map(|(at, _, ours)| (at.as_str(), *ours, 1))
        .collect();
    let mut comparison = input.compare_numbers(table, "", agrees, 0, &numbers);
    for (point, (_, theirs, _)) in comparison.points.iter_mut().zip(&rows) {
        point.paper = Some(*theirs);
    }
    Ok(vec![comparison])
}

/// The column of `paper.toml` with a link's utilization.
const PERCENT: f64 = 2.0;

fn summary(cells: &[Cell<'_>]) -> Table {
    let row = |cell: &Cell<'_>| {
        let all = cell.utilization();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [
            cell.case.to_owned(),
            title(cell.solution).to_owned(),
            format!("{:.3}", cell.optimum.total()),
            format!("{:.1}", mean(all)),
            format!("{least:.1}"),
            format!("{most:.1}"),
            cell.runs.len().to_string(),
        ]
    };
    let columns = [
        "case",
        "solution",
        "optimum, Mbit/s",
        "utilization, %",
        "least run",
        "best run",
        "runs",
    ];
    let title = "Throughput at the consumer, as a share of the largest possible";
    Table::new("utilization", title, columns, cells.iter().map(row))
}

fn link_table(case: &str, cells: &[&Cell<'_>], flows: &[Flow]) -> Table {
    let mut columns = vec![String::from("link"), String::from("optimum, Mbit/s")];
    for cell in cells {
        columns.push(format!("{}, Mbit/s", title(cell.solution)));
        columns.push(String::from("%"));
    }
    let row = |flow: &Flow| {
        let mut row = vec![flow.name.clone(), format!("{:.3}", flow.optimum)];
        for cell in cells {
            let rate = cell.rate(flow.link, flow.way);
            row.push(format!("{rate:.3}"));
            row.push(format!("{:.1}", 100.0 * rate / flow.optimum));
        }
        row
    };
    let (name, of) = match case {
        "" => (String::from("links"), String::new()),
        case => (format!("links-{case}"), format!("case {case}: ")),
    };
    Table {
        name,
        title: format!("{of}Throughput of each link, and its share of the optimum"),
        columns,
        rows: flows.iter().map(row).collect(),
    }
}

/// Draws the solutions beside the paper's.
fn solutions_chart(input: &StudyInput<'_>, case: &str, cells: &[&Cell<'_>]) -> NamedChart {
    let (name, of) = match case {
        "" => (String::from("solutions"), String::new()),
        case => (format!("solutions-{case}"), format!("Case {case}: ")),
    };
    let title = format!("{of}Data at the consumer, as a share of the maximum flow");
    let ours = |cell: &Cell<'_>| mean(cell.utilization());
    cells::chart_of_solutions(name, title, "ours", cells, ours, |cell| {
        input.value(&statement_of(cell))
    })
}

fn link_charts(
    input: &StudyInput<'_>,
    section: &Section,
    case: &str,
    figure: Option<&str>,
    cells: &[&Cell<'_>],
    flows: &[Flow],
) -> Vec<NamedChart> {
    let of = |cell: &Cell<'_>, value: &dyn Fn(&Flow, f64) -> f64| {
        let points = flows.iter().enumerate();
        let points = points.map(|(at, flow)| {
            let rate = cell.rate(flow.link, flow.way);
            (at as f64, value(flow, rate))
        });
        Series {
            label: title(cell.solution).to_owned(),
            points: points.collect(),
            ..Series::default()
        }
    };
    let mut utilization: Vec<Series> = cells
        .iter()
        .map(|cell| of(cell, &|flow, rate| 100.0 * rate / flow.optimum))
        .collect();
    if let Some(table) = &section.table
        && let Some(at) = cells.iter().position(|cell| cell.solution == "ptp")
    {
        let theirs = flows.iter().enumerate().filter_map(|(at, flow)| {
            Some((at as f64, input.published(table, &flow.name, PERCENT)?))
        });
        utilization[at].paper = theirs.collect();
    }
    let optimum = Series {
        label: String::from("optimum"),
        points: (0..)
            .zip(flows)
            .map(|(at, flow)| (f64::from(at), flow.optimum))
            .collect(),
        ..Series::default()
    };
    // The paper's four solutions and ours; what users have without any is in the table.
    let shown = cells.iter().filter(|cell| cell.solution != "best-route");
    let throughput = std::iter::once(optimum).chain(shown.map(|cell| of(cell, &|_, rate| rate)));
    let (name, of) = match (figure, case) {
        (Some(figure), case) => (
            format!("fig{figure}"),
            format!("Fig. {figure}, case {case}: "),
        ),
        (None, _) => (String::from("links"), String::new()),
    };
    let chart = |what: &str, y_label: &str, series: Vec<Series>| NamedChart {
        name: format!("{name}-{what}"),
        chart: LineChart {
            title: format!("{of}{what} of each link"),
            x_label: String::from("link, in the direction of the Data"),
            y_label: y_label.to_owned(),
            series,
            categories: flows.iter().map(|flow| flow.name.clone()).collect(),
            ..LineChart::default()
        },
    };
    vec![
        chart("utilization", "of the optimum, %", utilization),
        chart("throughput", "Mbit/s", throughput.collect()),
    ]
}
