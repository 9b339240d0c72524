//! Both ends of a connection send [TCP/ICN §3.5.2]: what each policy for the Interests beside segments brings
//! and costs.

use super::super::result::mean;
use super::super::trial::{distinct, run_swept};
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::completion_time;
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::run::Run;
use whimbrel_tcp_proxy::DuplexPolicy;

/// The way without proxies.
const PLAIN: &str = "plain";
/// The policy that the paper expects to send too many.
const EVERY: &str = "every";
/// The loss at which policies are compared.
const CLEAN: &str = "0 %";
/// The traffic in one direction only.
const ONE_WAY: &str = "one";

/// A number of a cell.
type Quantity = fn(&Cell<'_>) -> f64;

/// One policy in one setting.
struct Cell<'a> {
    traffic: &'a str,
    rtt: &'a str,
    loss: &'a str,
    by: &'a str,
    runs: Vec<Run>,
}

impl Cell<'_> {
    fn seconds(&self) -> f64 {
        completion_time(&self.runs)
    }

    /// Returns the mean of the sum of these metrics.
    fn sum(&self, metrics: &[&str]) -> f64 {
        let value = |run: &Run, name: &str| run.values.get(name).copied().unwrap_or(f64::NAN);
        let sum = |run: &Run| metrics.iter().map(|name| value(run, name)).sum();
        mean(self.runs.iter().map(sum))
    }

    fn octets(&self) -> f64 {
        self.sum(&["links.path.bytes"])
    }

    fn interests(&self) -> f64 {
        self.sum(&["nodes.a.interests", "nodes.b.interests"])
    }

    fn data(&self) -> f64 {
        self.sum(&["nodes.a.data", "nodes.b.data"])
    }
}

/// Returns the traffic, from the sweep, for people.
fn traffic(name: &str) -> &str {
    match name {
        ONE_WAY => "one direction",
        "both" => "both directions",
        "unequal" => "both, one a fifth as fast",
        other => other,
    }
}

/// Returns the policy, from the sweep, for people.
fn policy(by: &str) -> String {
    match by.parse() {
        Ok(DuplexPolicy::EverySegment) => String::from("every segment"),
        Ok(DuplexPolicy::Probability(share)) => format!("{:.0} % of segments", 100.0 * share),
        Ok(DuplexPolicy::Advance(bytes)) => format!("each {bytes} bytes"),
        Err(_) => super::title(by),
    }
}

/// All cells, compared with others of the same setting.
struct DuplexCells<'a>(Vec<Cell<'a>>);

impl<'a> DuplexCells<'a> {
    /// Returns the cells of the setting that `cell` is of.
    fn beside<'b>(&'b self, cell: &'b Cell<'a>) -> impl Iterator<Item = &'b Cell<'a>> {
        let place = (cell.traffic, cell.rtt, cell.loss);
        let cells = self.0.iter();
        cells.filter(move |it| (it.traffic, it.rtt, it.loss) == place)
    }

    /// Returns a cell's number as a share of plain IP's.
    fn share(&self, cell: &Cell<'a>, value: Quantity) -> f64 {
        let plain = self.beside(cell).find(|it| it.by == PLAIN);
        plain.map_or(f64::NAN, |plain| value(cell) / value(plain))
    }

    /// Returns the largest of a number in the settings without loss that `fits` picks: how far it is
    /// beyond that of `other`, in per cent.
    fn most_beyond(
        &self,
        by: &str,
        fits: fn(&Cell<'_>) -> bool,
        value: Quantity,
        other: fn(&Cell<'_>) -> bool,
    ) -> f64 {
        let ours = self.0.iter();
        let ours = ours.filter(|it| it.by == by && it.loss == CLEAN && fits(it));
        let beyond = ours.map(|cell| {
            let others = self.beside(cell).filter(|it| other(it)).map(value);
            100.0 * (value(cell) / others.fold(f64::INFINITY, f64::min) - 1.0)
        });
        beyond.fold(f64::NAN, f64::max)
    }
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected = "traffic (one, both, ...), rtt (\"20 ms\", ...), loss (\"0 %\", ...) and by (plain, every, \
                    \"0.5\", \"2920\", ...), by these names";
    let keys = ["traffic", "rtt", "loss", "by"];
    let name = |[carried, rtt, loss, by]: [&str; 4]| {
        format!("{}, {}, {rtt}, loss {loss}", policy(by), traffic(carried))
    };
    let swept = run_swept(input, &scenario, progress, keys, expected, name)?;
    let cells = swept
        .into_iter()
        .map(|([traffic, rtt, loss, by], runs)| Cell {
            traffic,
            rtt,
            loss,
            by,
            runs,
        });
    let cells = DuplexCells(cells.collect());
    input.result(
        scenario.text.clone(),
        compared(input, &cells)?,
        vec![worst(&cells), table(&cells)],
        charts(&cells),
        Vec::new(),
    )
}

fn compared(input: &StudyInput<'_>, cells: &DuplexCells<'_>) -> Result<Vec<Comparison>, LabError> {
    let ours = DuplexPolicy::default().to_string();
    let ours = ours.as_str();
    let simplex = |cell: &Cell<'_>| cell.traffic == ONE_WAY;
    let is_ours = |cell: &Cell<'_>| cell.by == DuplexPolicy::default().to_string();
    let found = [
        (
            "too-many",
            cells.most_beyond(EVERY, duplex, |it| it.octets(), is_ours),
        ),
        (
            "default",
            cells.most_beyond(ours, duplex, |it| it.seconds(), is_policy),
        ),
        (
            "idle",
            cells.most_beyond(ours, simplex, |it| it.octets(), is_policy),
        ),
    ];
    let compared = found.map(|(id, number)| {
        let agrees = input.range(id)?.admits(number);
        Ok(input.compare_numbers(id, "", agrees, 0, &[("%", number, 1)]))
    });
    compared.into_iter().collect()
}

fn duplex(cell: &Cell<'_>) -> bool {
    cell.traffic != ONE_WAY
}

fn is_policy(cell: &Cell<'_>) -> bool {
    cell.by != PLAIN
}

/// Returns how far each policy is behind the best one where it is worst.
fn worst(cells: &DuplexCells<'_>) -> Table {
    let policies = cells.0.iter().filter(|cell| is_policy(cell));
    let policies = distinct(policies.map(|cell| cell.by));
    let rows = policies.into_iter().map(|by| {
        let beyond = |value| cells.most_beyond(by, duplex, value, is_policy);
        vec![
            policy(by),
            format!("{:.1}", beyond(|it| it.seconds())),
            format!("{:.1}", beyond(|it| it.octets())),
        ]
    });
    let columns = [
        "Interests with segments",
        "completion, % beyond",
        "octets, % beyond",
    ];
    Table {
        name: String::from("worst"),
        title: String::from(
            "Both directions without loss: the most by which a policy is behind the best one of a setting",
        ),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

fn table(cells: &DuplexCells<'_>) -> Table {
    let rows = cells.0.iter().map(|cell| {
        vec![
            traffic(cell.traffic).to_owned(),
            cell.rtt.to_owned(),
            cell.loss.to_owned(),
            policy(cell.by),
            format!("{:.2}", cell.seconds()),
            format!("{:.3}", cells.share(cell, |it| it.seconds())),
            format!("{:.3}", cells.share(cell, |it| it.octets())),
            format!("{:.0}", cell.interests()),
            format!("{:.0}", cell.data()),
        ]
    });
    let columns = [
        "traffic",
        "round trip",
        "loss",
        "Interests with segments",
        "completion, s",
        "of plain IP's",
        "octets on the path, of plain IP's",
        "Interests",
        "Data",
    ];
    Table {
        name: String::from("policies"),
        title: String::from("Completion and cost of each policy"),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

/// For each rate of loss: the time and the octets of each policy, a line for each traffic and round trip.
fn charts(cells: &DuplexCells<'_>) -> Vec<NamedChart> {
    let policies = cells.0.iter().map(|cell| cell.by);
    let policies: Vec<&str> = distinct(policies.filter(|by| *by != PLAIN));
    let mut charts = Vec::new();
    for loss in distinct(cells.0.iter().map(|cell| cell.loss)) {
        let all = || cells.0.iter().filter(|cell| cell.loss == loss);
        let lines = distinct(all().map(|cell| (cell.traffic, cell.rtt)));
        let quantities: [(&str, &str, Quantity); 2] = [
            ("time", "completion time", |it| it.seconds()),
            ("octets", "octets on the path", |it| it.octets()),
        ];
        for (name, what, value) in quantities {
            let series = lines.iter().map(|(carried, rtt)| {
                let points = policies.iter().enumerate().filter_map(|(at, by)| {
                    let is = |it: &&Cell<'_>| (it.traffic, it.rtt, it.by) == (*carried, *rtt, *by);
                    let cell = all().find(is)?;
                    Some((at as f64, cells.share(cell, value)))
                });
                Series {
                    label: format!("{}, {rtt}", traffic(carried)),
                    points: points.collect(),
                    ..Series::default()
                }
            });
            let rate = loss.replace([' ', '%'], "");
            charts.push(NamedChart {
                name: format!("{name}-loss-{rate}"),
                chart: LineChart {
                    title: format!("Loss {loss}: {what}, of plain IP's"),
                    x_label: String::from("Interests with segments"),
                    y_label: String::from("of plain IP's"),
                    series: series.collect(),
                    categories: policies.iter().map(|by| policy(by)).collect(),
                    ..LineChart::default()
                },
            });
        }
    }
    charts
}
