//! Handoff: a client moves from one access router to another in the middle of a transfer; how long nothing
//! arrives.
//!
//! The scenario sweeps `handoff`, of which `none` stays where it is, and `rtt` of the two last links.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use whimbrel_core::units;

use super::super::result::mean;
use super::super::trial::run_settings;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::Setting;
use crate::scenario::run::{Fetched, Run};

/// The section `[study]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// Of each handoff the time in which the client has no link.
    gaps: BTreeMap<String, Span>,
    /// Of each step of the round trip its length.
    round_trips: BTreeMap<String, Span>,
    /// The time of the run from which pauses count: those of a transfer's start are not a handoff's.
    from: Span,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Span(#[serde(with = "units::duration")] Duration);

/// All runs of a setting.
struct Cell<'a> {
    handoff: &'a str,
    rtt: &'a str,
    /// Milliseconds.
    round_trip: f64,
    gap: f64,
    /// The longest pause of each run, in milliseconds.
    pauses: Vec<f64>,
    seconds: Vec<f64>,
    complete: usize,
}

impl Cell<'_> {
    /// Returns the longest pause of all runs beyond the time without a link, in milliseconds.
    fn beyond(&self) -> f64 {
        self.pauses.iter().copied().fold(0.0, f64::max) - self.gap
    }

    fn is_break_before_make(&self) -> bool {
        self.gap > 0.0
    }
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    let expected = "handoff and rtt, by these names";
    let mut places = Vec::new();
    for setting in &scenario.settings {
        let handoff = input.swept(setting, "handoff", expected)?;
        let rtt = input.swept(setting, "rtt", expected)?;
        let round_trip = section
            .round_trips
            .get(rtt)
            .ok_or_else(|| input.bad(format!("[study] round_trips lacks '{rtt}'")))?;
        let gap = section.gaps.get(handoff).map_or(Duration::ZERO, |it| it.0);
        places.push((handoff, rtt, round_trip.0, gap));
    }
    let title = |setting: &Setting| {
        let value = |key| setting.value(key).unwrap_or_default();
        format!("{}, round trip {}", value("handoff"), value("rtt"))
    };
    let runs = run_settings(&scenario, input, progress, title)?;
    let cells: Vec<Cell<'_>> = places
        .into_iter()
        .zip(&runs)
        .map(|((handoff, rtt, round_trip, gap), runs)| Cell {
            handoff,
            rtt,
            round_trip: round_trip.as_secs_f64() * 1e3,
            gap: gap.as_secs_f64() * 1e3,
            pauses: of_each(runs, |it| {
                let from = section.from.0.as_secs_f64() - it.asked;
                it.record.longest_pause_after(from) * 1e3
            }),
            seconds: of_each(runs, |it| it.record.finished),
            complete: runs
                .iter()
                .filter_map(|run| run.transfers.first())
                .filter(|fetched| fetched.record.completed)
                .count(),
        })
        .collect();
    input.result(
        scenario.text.clone(),
        compared(input, &cells)?,
        vec![table(&cells)],
        vec![chart(&cells)],
        Vec::new(),
    )
}

fn of_each(runs: &[Run], of: impl Fn(&Fetched) -> f64) -> Vec<f64> {
    let fetched = runs.iter().filter_map(|run| run.transfers.first());
    fetched.map(of).collect()
}

fn compared(input: &StudyInput<'_>, cells: &[Cell<'_>]) -> Result<Vec<Comparison>, LabError> {
    let complete = cells.iter().map(|cell| cell.complete as f64).sum::<f64>();
    let all = cells.iter().map(|cell| cell.pauses.len() as f64).sum();
    let numbers = [("complete and intact", complete, 0), ("transfers", all, 0)];
    let mut compared =
        vec![input.compare_numbers("nothing-lost", "", complete == all, 0, &numbers)];
    for (id, is_break) in [("make-before-break", false), ("break-before-make", true)] {
        let moved = cells
            .iter()
            .filter(|cell| cell.handoff != "none" && cell.is_break_before_make() == is_break);
        for cell in moved {
            let allowed = match is_break {
                true => cell.round_trip + 100.0,
                false => cell.round_trip,
            };
            let at = format!("{}, ms", cell.rtt);
            let agrees = input.range(id)?.admits(100.0 * cell.beyond() / allowed);
            let numbers = [(at.as_str(), cell.beyond(), 1)];
            compared.push(input.compare_numbers(id, cell.handoff, agrees, 0, &numbers));
        }
    }
    Ok(compared)
}

fn table(cells: &[Cell<'_>]) -> Table {
    let row = |cell: &Cell<'_>| {
        vec![
            cell.handoff.to_owned(),
            cell.rtt.to_owned(),
            format!("{:.0}", cell.gap),
            format!("{:.1}", mean(cell.pauses.iter().copied())),
            format!("{:.1}", cell.beyond()),
            format!("{:.2}", mean(cell.seconds.iter().copied())),
            format!("{} of {}", cell.complete, cell.pauses.len()),
        ]
    };
    let columns = [
        "handoff",
        "round trip",
        "without a link, ms",
        "mean of the longest pauses, ms",
        "longest of all beyond the time without a link, ms",
        "transfer, s",
        "complete",
    ];
    Table {
        name: String::from("handoffs"),
        title: String::from("The longest pause of delivery in each transfer"),
        columns: columns.map(String::from).into(),
        rows: cells.iter().map(row).collect(),
    }
}

fn chart(cells: &[Cell<'_>]) -> NamedChart {
    let mut handoffs: Vec<&str> = cells.iter().map(|cell| cell.handoff).collect();
    handoffs.dedup();
    handoffs.sort_unstable();
    handoffs.dedup();
    let series = handoffs.into_iter().map(|handoff| Series {
        label: handoff.to_owned(),
        points: cells
            .iter()
            .filter(|cell| cell.handoff == handoff)
            .map(|cell| (cell.round_trip, cell.beyond()))
            .collect(),
        ..Series::default()
    });
    NamedChart {
        name: String::from("pauses"),
        chart: LineChart {
            title: String::from("The longest pause of delivery beyond the time without a link"),
            x_label: String::from("round-trip time of the last links, ms"),
            y_label: String::from("pause beyond the time without a link, ms"),
            series: series.collect(),
            ..LineChart::default()
        },
    }
}
