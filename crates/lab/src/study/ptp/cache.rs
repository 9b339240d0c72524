//! Scenario 4: a cache on the path holds half of the first part of the content ([PTP §6-E]).

use std::num::NonZeroU64;

use super::super::result::mean;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::cells::{self, Cell, Found, Sample, title};
use crate::LabError;
use crate::figure::{LineChart, Series};

/// The load of the measured consumer; the other one fills the cache.
const MEASURED: usize = 1;
/// Seconds over which a rate is taken: short enough to see a reaction within a second.
const WINDOW: f64 = 0.25;
/// Seconds that a point of the figures stands for.
const STEP: f64 = 0.5;
/// Seconds after a change that are left out of the rates.
const TRANSITION: f64 = 2.0;
/// A rate is reached at this share of its steady value, ...
const REACHED: f64 = 0.9;
/// ... and left when it falls to this share of the next one.
const LEFT: f64 = 1.1;

/// The measurements of a run.
#[derive(Clone, Copy, Debug)]
struct Reaction {
    /// Mbit/s while the cache helps, and afterwards.
    rates: [f64; 2],
    /// Share of the content from the cache, while the cache helped.
    cached: f64,
    /// Seconds from the first Interest until the rate of Interests is that of the path with its cache, and
    /// from the last Data of the cache until it is that of the path without it.
    follows: [f64; 2],
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let roles = "one fills the cache, one is measured";
    let cells = cells::run_pairs(&scenario, input, progress, roles)?;
    let mut comparisons = Vec::new();
    for cell in &cells {
        comparisons.extend(compared(input, cell)?);
    }
    let charts = vec![
        chart(
            &cells,
            "fig22",
            "Fig. 22: Interests per second",
            "Interests/s",
            Vec::new(),
            &|sample, _| sample.stats.interests as f64,
        ),
        chart(
            &cells,
            "fig23",
            "Fig. 23: download rate",
            "rate on the consumer's link, Mbit/s",
            levels(input, &cells),
            &|sample, on_wire| sample.stats.bytes as f64 * 8e-6 * on_wire,
        ),
    ];
    let tables = vec![table(&cells)];
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        Vec::new(),
    )
}

/// Returns the growth of a counter per second over the `window` seconds before `at`.
fn rate(samples: &[Sample], at: f64, window: f64, value: &dyn Fn(&Sample) -> f64) -> f64 {
    let end = samples.partition_point(|sample| sample.at <= at);
    let begin = samples.partition_point(|sample| sample.at <= at - window);
    let count = |index: usize| {
        let before = index.checked_sub(1).and_then(|index| samples.get(index));
        before.map_or(0.0, value)
    };
    (count(end) - count(begin)) / window
}

/// Returns the sample at which the cache is used up: all content that the other consumer fetched has come.
fn gone<'a>(cell: &Cell<'_>, samples: &'a [Sample]) -> Option<&'a Sample> {
    let cached = cell.plan.loads[0].segments.map_or(0, NonZeroU64::get);
    samples
        .iter()
        .find(|sample| sample.stats.segments >= cached)
}

fn reaction(cell: &Cell<'_>, run: &Found) -> Option<Reaction> {
    let samples = run.samples[MEASURED].as_slice();
    let on_wire = on_wire(cell, run)?;
    let start = cell.plan.loads[MEASURED].start.as_secs_f64();
    let gone = gone(cell, samples)?;
    let end = samples.last()?.at;
    let bytes = |sample: &Sample| sample.stats.bytes as f64 * 8e-6 * on_wire;
    let interests = |sample: &Sample| sample.stats.interests as f64;
    let (from, later) = (start + TRANSITION, gone.at + TRANSITION);
    let steady = |value: &dyn Fn(&Sample) -> f64| {
        [
            rate(samples, gone.at, gone.at - from, value),
            rate(samples, end, end - later, value),
        ]
    };
    let [with, without] = steady(&interests);
    let first = samples
        .iter()
        .find(|sample| rate(samples, sample.at, WINDOW, &interests) >= REACHED * with);
    let left = samples
        .iter()
        .filter(|sample| sample.at >= gone.at)
        .find(|sample| rate(samples, sample.at, WINDOW, &interests) <= LEFT * without);
    Some(Reaction {
        rates: steady(&bytes),
        cached: gone.stats.intermediate as f64 / gone.stats.segments.max(1) as f64,
        follows: [
            first.map_or(f64::NAN, |sample| sample.at - start),
            left.map_or(f64::NAN, |sample| sample.at - gone.at),
        ],
    })
}

/// Returns the octets on the consumer's link per octet of content, because the paper counts packets.
fn on_wire(cell: &Cell<'_>, run: &Found) -> Option<f64> {
    let network = &cell.plan.network;
    let node = *cell.plan.loads[MEASURED].to.first()?;
    let (link, _) = network.at(node).next()?;
    let way = usize::from(network.links[link].ends.0 == node);
    let metric = format!(
        "links.{}.{}",
        network.links[link].name,
        ["forward", "backward"][way]
    );
    let content = run.samples[MEASURED].last()?.stats.bytes as f64;
    Some(run.run.values.get(&metric)? / content)
}

fn reactions(cell: &Cell<'_>) -> Vec<Reaction> {
    let runs = cell.runs.iter();
    runs.filter_map(|run| reaction(cell, run)).collect()
}

fn compared(input: &StudyInput<'_>, cell: &Cell<'_>) -> Result<Vec<Comparison>, LabError> {
    let all = reactions(cell);
    let of = |value: &dyn Fn(&Reaction) -> f64| mean(all.iter().map(value));
    let name = title(cell.solution);
    let mut compared = Vec::new();
    for (id, at, ours) in [
        ("rate-cached", "Mbit/s", of(&|it| it.rates[0])),
        ("rate-later", "Mbit/s", of(&|it| it.rates[1])),
        ("share-cached", "%", of(&|it| 100.0 * it.cached)),
    ] {
        let theirs = input.value(id).unwrap_or(f64::NAN);
        let agrees = input.tolerance(id)?.admits(theirs, ours);
        compared.push(input.compare_numbers(id, name, agrees, 1, &[(at, ours, 2)]));
    }
    for (id, which) in [("goal-appears", 0), ("goal-disappears", 1)] {
        let ours = of(&|it| it.follows[which]);
        let agrees = input.range(id)?.admits(ours);
        compared.push(input.compare_numbers(id, name, agrees, 0, &[("s", ours, 2)]));
    }
    Ok(compared)
}

fn table(cells: &[Cell<'_>]) -> Table {
    let rows = cells.iter().flat_map(|cell| {
        (1..).zip(reactions(cell)).map(|(run, it): (u32, _)| {
            vec![
                title(cell.solution).to_owned(),
                run.to_string(),
                format!("{:.3}", it.rates[0]),
                format!("{:.3}", it.rates[1]),
                format!("{:.1}", 100.0 * it.cached),
                format!("{:.2}", it.follows[0]),
                format!("{:.2}", it.follows[1]),
            ]
        })
    });
    let columns = [
        "solution",
        "run",
        "with the cache, Mbit/s",
        "without it, Mbit/s",
        "from the cache, %",
        "it appears: followed in s",
        "it disappears: followed in s",
    ];
    Table {
        name: String::from("reactions"),
        title: String::from(
            "Rates with the cache and without it, and how soon the consumer follows",
        ),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

/// Returns the paper's two levels of the download rate, at times when ours are steady.
fn levels(input: &StudyInput<'_>, cells: &[Cell<'_>]) -> Vec<(f64, f64)> {
    let Some((cell, run)) = cells
        .first()
        .and_then(|cell| Some((cell, cell.runs.first()?)))
    else {
        return Vec::new();
    };
    let samples = run.samples[MEASURED].as_slice();
    let start = cell.plan.loads[MEASURED].start.as_secs_f64();
    let end = samples.last().map_or(start, |sample| sample.at);
    let gone = gone(cell, samples).map_or(start, |sample| sample.at);
    let between = |from: f64, to: f64, level: Option<f64>| {
        let marks = 1..=3;
        marks.filter_map(move |mark| Some((from + (to - from) * f64::from(mark) / 4.0, level?)))
    };
    let with = between(start, gone, input.value("rate-cached"));
    with.chain(between(gone, end, input.value("rate-later")))
        .collect()
}

fn chart(
    cells: &[Cell<'_>],
    name: &str,
    what: &str,
    y_label: &str,
    paper: Vec<(f64, f64)>,
    value: &dyn Fn(&Sample, f64) -> f64,
) -> NamedChart {
    let line = |cell: &Cell<'_>| {
        let on_wire = cell.runs.first().and_then(|run| on_wire(cell, run));
        let value = |sample: &Sample| value(sample, on_wire.unwrap_or(1.0));
        let samples = cell
            .runs
            .first()
            .map(|run| run.samples[MEASURED].as_slice());
        let samples = samples.unwrap_or_default();
        let end = samples.last().map_or(0.0, |sample| sample.at);
        let start = cell.plan.loads[MEASURED].start.as_secs_f64();
        let steps = ((end - start) / STEP) as u32;
        Series {
            label: title(cell.solution).to_owned(),
            points: (1..=steps)
                .map(|step| {
                    let at = start + STEP * f64::from(step);
                    (at, rate(samples, at, STEP, &value))
                })
                .collect(),
            ..Series::default()
        }
    };
    let start = cells
        .first()
        .map_or(0.0, |cell| cell.plan.loads[MEASURED].start.as_secs_f64());
    let mut series: Vec<Series> = cells.iter().map(line).collect();
    if let Some(first) = series.first_mut() {
        first.paper = paper;
    }
    NamedChart {
        name: name.to_owned(),
        chart: LineChart {
            title: what.to_owned(),
            x_label: String::from("time, s"),
            y_label: y_label.to_owned(),
            series,
            origin: (start, 0.0),
            ..LineChart::default()
        },
    }
}
