//! Beyond the paper: random networks that lose packets. Each solution's share of the maximum flow as a
//! distribution, how often it is ahead, how evenly consumers share, and how long their round trips are.

use std::collections::BTreeMap;

use super::super::result::mean;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::cells::{self, Cell, title};
use crate::LabError;
use crate::figure::{LineChart, Series};

/// The solutions that are ours; all others are rivals.
const OURS: [&str; 2] = ["ptp", "ptp-model"];
/// Shares of the networks, for the table.
const QUANTILES: [(&str, f64); 5] = [
    ("least", 0.0),
    ("10 %", 0.1),
    ("median", 0.5),
    ("90 %", 0.9),
    ("most", 1.0),
];

/// A solution over all networks.
struct Solution<'a> {
    name: &'a str,
    /// Per cent of the maximum flow, by network.
    utilization: BTreeMap<&'a str, f64>,
    /// Jain's index of the consumers' shares of their optimum, by network.
    jain: Vec<f64>,
    /// Milliseconds of the mean round trip beyond the shortest one, by network.
    beyond: Vec<f64>,
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let cells = cells::run(&scenario, input, progress)?;
    let mut solutions: Vec<Solution<'_>> = Vec::new();
    for cell in &cells {
        let at = solutions.iter().position(|it| it.name == cell.solution);
        let at = at.unwrap_or_else(|| {
            solutions.push(Solution {
                name: cell.solution,
                utilization: BTreeMap::new(),
                jain: Vec::new(),
                beyond: Vec::new(),
            });
            solutions.len() - 1
        });
        let solution = &mut solutions[at];
        let share = mean(cell.utilization());
        solution.utilization.insert(cell.case, share);
        solution.jain.push(jain(cell));
        solution.beyond.extend(beyond_shortest(cell));
    }
    let mut comparisons = Vec::new();
    for ours in solutions.iter().filter(|it| OURS.contains(&it.name)) {
        comparisons.extend(compared(input, ours, &solutions)?);
    }
    let tables = vec![summary(&solutions), networks(&cells, &solutions)];
    let charts = vec![distribution(&solutions)];
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        Vec::new(),
    )
}

/// Returns the value below which a share `part` of the sorted values lies.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = (part * (sorted.len().saturating_sub(1)) as f64).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

impl Solution<'_> {
    fn sorted(&self) -> Vec<f64> {
        let mut all: Vec<f64> = self.utilization.values().copied().collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Returns the number of networks in which it is ahead of every rival.
    fn ahead(&self, all: &[Solution<'_>]) -> usize {
        let rivals = || all.iter().filter(|it| !OURS.contains(&it.name));
        let ahead = |(case, share): &(&&str, &f64)| {
            rivals().all(|rival| rival.utilization.get(**case) < Some(*share))
        };
        self.utilization.iter().filter(ahead).count()
    }
}

/// Returns Jain's index of what consumers get of what an even optimum gives each.
fn jain(cell: &Cell<'_>) -> f64 {
    let shares: Vec<f64> = cell.receivers_shares(0);
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), share| {
        (sum + share, squares + share * share)
    });
    sum * sum / (shares.len() as f64 * squares)
}

fn beyond_shortest(cell: &Cell<'_>) -> Option<f64> {
    let samples = cell.runs.first()?.samples.first()?;
    let (shortest, mean, _) = samples.last()?.stats.rtt?;
    Some((mean.as_secs_f64() - shortest.as_secs_f64()) * 1e3)
}

fn compared(
    input: &StudyInput<'_>,
    ours: &Solution<'_>,
    all: &[Solution<'_>],
) -> Result<Vec<Comparison>, LabError> {
    let name = title(ours.name);
    let median = quantile(&ours.sorted(), 0.5);
    let ahead = 100.0 * ours.ahead(all) as f64 / ours.utilization.len() as f64;
    let mut compared = Vec::new();
    for (id, at, value) in [
        ("goal-median", "median, %", median),
        ("goal-ahead", "networks, %", ahead),
    ] {
        let agrees = input.range(id)?.admits(value);
        compared.push(input.compare_numbers(id, name, agrees, 0, &[(at, value, 1)]));
    }
    Ok(compared)
}

fn summary(solutions: &[Solution<'_>]) -> Table {
    let rows = solutions.iter().map(|solution| {
        let sorted = solution.sorted();
        let mut row = vec![title(solution.name).to_owned()];
        row.extend(QUANTILES.map(|(_, part)| format!("{:.1}", quantile(&sorted, part))));
        row.push(match OURS.contains(&solution.name) {
            true => format!("{} of {}", solution.ahead(solutions), sorted.len()),
            false => String::new(),
        });
        row.push(format!("{:.4}", mean(solution.jain.iter().copied())));
        row.push(format!("{:.1}", mean(solution.beyond.iter().copied())));
        row
    });
    let mut columns = vec![String::from("solution")];
    columns.extend(QUANTILES.map(|(name, _)| format!("{name}, %")));
    columns.extend(
        [
            "ahead of all rivals",
            "Jain index",
            "mean round trip beyond the shortest, ms",
        ]
        .map(String::from),
    );
    Table {
        name: String::from("distribution"),
        title: String::from(
            "Share of the maximum flow over all networks, evenness between the consumers, and delay (queues, and paths \
             longer than the shortest)",
        ),
        columns,
        rows: rows.collect(),
    }
}

fn networks(cells: &[Cell<'_>], solutions: &[Solution<'_>]) -> Table {
    let mut columns: Vec<String> = ["network", "nodes", "links", "optimum, Mbit/s"]
        .map(String::from)
        .into();
    columns.extend(solutions.iter().map(|it| format!("{}, %", title(it.name))));
    let first = cells.first().map(|cell| cell.solution);
    let rows = cells.iter().filter(|cell| Some(cell.solution) == first);
    let rows = rows.map(|cell| {
        let network = &cell.plan.network;
        let mut row = vec![
            cell.case.to_owned(),
            network.nodes.len().to_string(),
            network.links.len().to_string(),
            format!("{:.3}", cell.optimum.total()),
        ];
        row.extend(solutions.iter().map(|it| {
            let share = it.utilization.get(cell.case);
            share.map_or(String::new(), |share| format!("{share:.1}"))
        }));
        row
    });
    Table {
        name: String::from("networks"),
        title: String::from("Each network: share of its maximum flow"),
        columns,
        rows: rows.collect(),
    }
}

fn distribution(solutions: &[Solution<'_>]) -> NamedChart {
    let series = solutions.iter().map(|solution| {
        let sorted = solution.sorted();
        let count = sorted.len() as f64;
        let points = (1..).zip(&sorted);
        Series {
            label: title(solution.name).to_owned(),
            points: points
                .map(|(rank, share)| (*share, 100.0 * f64::from(rank) / count))
                .collect(),
            ..Series::default()
        }
    });
    NamedChart {
        name: String::from("distribution"),
        chart: LineChart {
            title: String::from("Networks in which a solution uses no more of the maximum flow"),
            x_label: String::from("share of the maximum flow, %"),
            y_label: String::from("networks, %"),
            series: series.collect(),
            ..LineChart::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solution<'a>(name: &'a str, shares: &[(&'a str, f64)]) -> Solution<'a> {
        Solution {
            name,
            utilization: shares.iter().copied().collect(),
            jain: Vec::new(),
            beyond: Vec::new(),
        }
    }

    #[test]
    fn ahead_means_ahead_of_every_rival_in_the_same_network() {
        let all = [
            solution("ptp", &[("1", 90.0), ("2", 80.0), ("3", 70.0)]),
            solution("ptp-model", &[("1", 99.0), ("2", 99.0), ("3", 10.0)]),
            solution("asf", &[("1", 20.0), ("2", 80.0), ("3", 60.0)]),
            solution("best-route", &[("1", 30.0), ("2", 10.0), ("3", 65.0)]),
        ];
        assert_eq!([all[0].ahead(&all), all[1].ahead(&all)], [2, 2]);
        assert_eq!(
            QUANTILES.map(|(_, part)| quantile(&all[0].sorted(), part)),
            [70.0, 70.0, 80.0, 90.0, 90.0]
        );
    }
}
