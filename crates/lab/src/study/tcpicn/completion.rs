//! Figs 8 and 9: completion time, retransmissions, window and retransmission timeout of one transfer.

use super::super::result::mean;
use super::super::trial::run_swept;
use super::super::{
    Backend, Comparison, NamedChart, Progress, StudyInput, StudyResult, Table, Transfer,
};
use super::{completion_time, title};
use crate::figure::{LineChart, Series};
use crate::scenario::Plan;
use crate::scenario::node::Role;
use crate::scenario::run::Run;
use crate::{LabError, SenderSample, TransferRecord};

/// Bytes of a full segment: the kernel's with timestamps.
const SEGMENT: f64 = 1448.0;
/// Lines that a chart can have.
const MAX_LINES: usize = 6;

/// One way to carry the file at one rate of loss.
struct Cell<'a> {
    loss: &'a str,
    by: &'a str,
    plan: &'a Plan,
    runs: Vec<Run>,
}

impl Cell<'_> {
    fn records(&self) -> impl Iterator<Item = &TransferRecord> {
        self.runs
            .iter()
            .filter_map(|run| Some(&run.transfers.first()?.record))
    }

    /// Returns the mean completion time in seconds; infinite if a run did not complete.
    fn seconds(&self) -> f64 {
        completion_time(&self.runs)
    }

    fn retransmitted(&self) -> f64 {
        mean(self.records().map(|record| {
            let count = record.retransmitted_segments;
            count.map_or(f64::NAN, |count| count as f64)
        }))
    }

    /// Returns the mean number of frames on the links between the forwarders.
    fn frames(&self) -> f64 {
        let network = &self.plan.network;
        let inner = network.links.iter().filter(|link| {
            let ends = [link.ends.0, link.ends.1];
            ends.iter()
                .all(|end| network.nodes[*end].is(Role::NdnRouter))
        });
        let inner: Vec<String> = inner
            .map(|link| format!("links.{}.packets", link.name))
            .collect();
        mean(self.runs.iter().map(|run| {
            inner
                .iter()
                .map(|name| run.values.get(name).copied().unwrap_or(f64::NAN))
                .sum()
        }))
    }

    fn samples(&self) -> impl Iterator<Item = &SenderSample> {
        self.records().flat_map(|record| &record.sender)
    }

    /// Returns the mean of a sender's samples, and their deviation as a share of it.
    fn spread(&self, value: Value) -> (f64, f64) {
        let average = mean(self.samples().map(value));
        let square = mean(self.samples().map(|it| (value(it) - average).powi(2)));
        (average, square.sqrt() / average)
    }
}

/// A quantity of a sender.
type Value = fn(&SenderSample) -> f64;

fn window(sample: &SenderSample) -> f64 {
    sample.window
}

fn timeout(sample: &SenderSample) -> f64 {
    sample.timeout
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected = "loss (\"1 %\", ...) and by (plain, unreliable, ...), by these names";
    let keys = ["loss", "by"];
    let name = |[loss, by]: [&str; 2]| format!("{}, loss {loss}", title(by));
    let swept = run_swept(input, &scenario, progress, keys, expected, name)?;
    let (mut cells, mut transfers) = (Vec::new(), Vec::new());
    for (setting, ([loss, by], runs)) in scenario.settings.iter().zip(swept) {
        for fetched in runs.iter().filter_map(|run| run.transfers.first()) {
            let title = name([loss, by]);
            let odd = |c: char| !c.is_alphanumeric();
            transfers.push(Transfer {
                label: format!("{}-{}", transfers.len() + 1, title.replace(odd, "-")),
                title,
                record: fetched.record.clone(),
            });
        }
        cells.push(Cell {
            loss,
            by,
            plan: &setting.plan,
            runs,
        });
    }
    let comparisons = compared(input, &cells)?;
    let tables = vec![table(&cells)];
    let charts = charts(input, &cells);
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        transfers,
    )
}

/// The settings that the paper compares.
struct CompletionCells<'a, 'b>(&'a [Cell<'b>]);

impl<'a, 'b> CompletionCells<'a, 'b> {
    fn at(&self, loss: &str, by: &str) -> Option<&'a Cell<'b>> {
        let mut cells = self.0.iter();
        cells.find(|cell| cell.loss == loss && cell.by == by)
    }

    /// Returns `value` of the first setting, divided by that of the second.
    fn ratio(
        &self,
        loss: &str,
        [by, of]: [&str; 2],
        value: &dyn Fn(&Cell<'b>) -> f64,
    ) -> Option<f64> {
        Some(value(self.at(loss, by)?) / value(self.at(loss, of)?))
    }
}

fn compared(input: &StudyInput<'_>, all: &[Cell<'_>]) -> Result<Vec<Comparison>, LabError> {
    const CLEAN: &str = "0 %";
    const LOSSY: &str = "1 %";
    let cells = CompletionCells(all);
    let seconds = |cell: &Cell<'_>| cell.seconds();
    let beyond = |it: f64| 100.0 * (it - 1.0);
    let more = |by: &str| {
        let [by, plain] = [by, "plain"].map(|by| cells.at(CLEAN, by));
        Some(by?.retransmitted() - plain?.retransmitted())
    };
    let segments = cells.at(CLEAN, "plain").and_then(|cell| {
        let record = cell.records().next()?;
        Some(record.bytes as f64 / SEGMENT / 1e3)
    });
    let of_plain = |by: &'static str| [by, "plain"];
    let unstable = |value: Value| {
        let spread = move |cell: &Cell<'_>| cell.spread(value).1;
        cells.ratio(CLEAN, ["reliable", "unreliable"], &spread)
    };
    let found: [(&str, &str, Option<f64>, usize); 12] = [
        (
            "basic-slower",
            "times",
            cells.ratio(CLEAN, of_plain("basic"), &seconds),
            2,
        ),
        ("basic-retransmissions", "segments", more("basic"), 0),
        (
            "reliable-faster",
            "times",
            cells.ratio(CLEAN, ["reliable", "basic"], &seconds),
            2,
        ),
        ("reliable-unstable", "window, times", unstable(window), 2),
        (
            "unreliable-slower",
            "%",
            cells
                .ratio(CLEAN, of_plain("unreliable"), &seconds)
                .map(beyond),
            1,
        ),
        (
            "unreliable-retransmissions",
            "per 1,000 segments",
            more("unreliable")
                .zip(segments)
                .map(|(more, all)| more / all),
            1,
        ),
        (
            "unreliable-timeout",
            "times",
            cells.ratio(CLEAN, of_plain("unreliable"), &|cell| {
                cell.spread(timeout).0
            }),
            2,
        ),
        (
            "fewer-packets",
            "times",
            cells.ratio(CLEAN, of_plain("unreliable"), &|cell| cell.frames()),
            2,
        ),
        (
            "loss-worse",
            "times",
            cells.ratio(LOSSY, of_plain("unreliable"), &seconds),
            2,
        ),
        (
            "goal-slower",
            "%",
            cells
                .ratio(CLEAN, of_plain("unreliable"), &seconds)
                .map(beyond),
            1,
        ),
        (
            "goal-recovered",
            "times",
            cells.ratio(LOSSY, of_plain("unreliable-belrp"), &seconds),
            2,
        ),
        (
            "goal-recovered",
            "times, with BBR",
            cells.ratio(LOSSY, ["unreliable-belrp-bbr", "plain-bbr"], &seconds),
            2,
        ),
    ];
    let mut compared = Vec::new();
    for (id, at, ours, digits) in found {
        // A scenario may leave settings out.
        if let Some(ours) = ours {
            let agrees = input.range(id)?.admits(ours);
            compared.push(input.compare_numbers(id, "", agrees, 0, &[(at, ours, digits)]));
        }
    }
    Ok(compared)
}

/// Returns a number, or that there is none: a short transfer has no samples.
fn shown(number: f64, digits: usize) -> String {
    match number.is_finite() {
        true => format!("{number:.digits$}"),
        false => String::from("-"),
    }
}

fn table(cells: &[Cell<'_>]) -> Table {
    let all = CompletionCells(cells);
    let rows = cells.iter().map(|cell| {
        let rival = match cell.by.ends_with("bbr") {
            true => "plain-bbr",
            false => "plain",
        };
        let plain = all.at(cell.loss, rival).map_or(f64::NAN, Cell::seconds);
        let (window, window_spread) = cell.spread(window);
        let (timeout, timeout_spread) = cell.spread(timeout);
        vec![
            cell.loss.to_owned(),
            title(cell.by),
            format!("{:.1}", cell.seconds()),
            format!("{:.3}", cell.seconds() / plain),
            format!("{:.0}", cell.retransmitted()),
            format!("{:.0}", cell.frames()),
            shown(window, 1),
            shown(window_spread, 2),
            shown(timeout, 2),
            shown(timeout_spread, 2),
        ]
    });
    let columns = [
        "loss",
        "carried by",
        "seconds",
        "of plain IP with the same TCP",
        "segments that TCP sent again",
        "frames between the forwarders",
        "window, segments",
        "its deviation / mean",
        "timeout, s",
        "its deviation / mean",
    ];
    Table {
        name: String::from("transfers"),
        title: String::from("Completion time, and TCP's sender over the transfer"),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

fn charts(input: &StudyInput<'_>, cells: &[Cell<'_>]) -> Vec<NamedChart> {
    let mut losses: Vec<&str> = cells.iter().map(|cell| cell.loss).collect();
    losses.dedup();
    let bars = losses.iter().enumerate().map(|(index, loss)| {
        let figure = ["Fig. 8 (a)", "Fig. 9"].get(index).copied();
        let of = || cells.iter().filter(move |cell| cell.loss == *loss);
        let points = of().enumerate();
        let points = points.map(|(at, cell)| (at as f64, cell.seconds()));
        NamedChart {
            name: ["fig8a", "fig9"].get(index).map_or_else(
                || format!("completion-{}", index + 1),
                |name| (*name).to_owned(),
            ),
            chart: LineChart {
                title: format!("{}: completion time, loss {loss}", figure.unwrap_or("More")),
                y_label: String::from("completion time, s"),
                series: vec![Series {
                    label: String::from("ours"),
                    points: points.collect(),
                    ..Series::default()
                }],
                categories: of().map(|cell| title(cell.by)).collect(),
                ..LineChart::default()
            },
        }
    });
    let mut charts: Vec<NamedChart> = bars.collect();
    let first = losses.first().copied().unwrap_or_default();
    let window = match input.options.backend {
        Backend::Sim => "in flight, segments",
        Backend::Netns => "congestion window, segments",
    };
    let lines: [(&str, &str, &str, Value); 3] = [
        (
            "fig8b",
            "Fig. 8 (b): TCP's retransmissions",
            "retransmitted segments",
            |sample| sample.retransmitted as f64,
        ),
        ("fig8c", "Fig. 8 (c): TCP's window", window, self::window),
        (
            "fig8d",
            "Fig. 8 (d): TCP's retransmission timeout",
            "timeout, s",
            timeout,
        ),
    ];
    charts.extend(lines.map(|(name, what, y_label, value)| {
        let of = cells.iter().filter(|cell| cell.loss == first);
        let series = of.take(MAX_LINES).map(|cell| Series {
            label: title(cell.by),
            points: cell.records().next().map_or_else(Vec::new, |record| {
                let points = record.sender.iter();
                points.map(|it| (it.at, value(it))).collect()
            }),
            ..Series::default()
        });
        NamedChart {
            name: name.to_owned(),
            chart: LineChart {
                title: format!("{what}, loss {first}"),
                x_label: String::from("seconds since the request"),
                y_label: y_label.to_owned(),
                series: series.collect(),
                ..LineChart::default()
            },
        }
    }));
    charts
}
