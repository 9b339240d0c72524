//! Storage-aware routing [GSTAR]: paths through a mesh and between vehicles, what a failure costs, and delivery over
//! contacts that come and go.

mod delivery;
mod parameters;
mod paths;

use super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use delivery::ProtocolResult;
pub(super) use parameters::GstarParameters;
use paths::{Outages, WaysCell};

/// The names of the settings that are compared, in the scenarios' sweeps.
const LEARNED: &str = "learned";
const FEWEST_HOPS: &str = "fewest hops";
/// Runs of the model of contacts, each with contacts and messages of its own.
const CONTACT_RUNS: u32 = 5;

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let parameters = GstarParameters::parse(&input.scenario).map_err(|reason| input.bad(reason))?;
    let runs = input.options.runs.unwrap_or(CONTACT_RUNS);
    let delivered = delivery::run(&parameters.contacts, input.options.seed, runs, progress);
    let delivered = delivered.map_err(|reason| input.bad(reason))?;
    let mesh = paths::run(input, &parameters.mesh, progress)?;
    let mild = paths::run(input, &parameters.mild, progress)?;
    let vehicles = paths::run(input, &parameters.vehicles, progress)?;
    let failures = paths::failures(input, &parameters.failures, progress)?;
    let mut compared = Vec::new();
    for (id, cells) in [("mesh", &mesh), ("mild", &mild), ("vehicles", &vehicles)] {
        compared.push(gain(input, id, cells)?);
    }
    compared.extend(outages(input, &failures)?);
    compared.extend(contacts(input, &delivered)?);
    let tables = vec![
        throughput_table(
            "mesh",
            "Files across a mesh of radio links, all runs",
            &mesh,
        ),
        throughput_table(
            "mild",
            "Files across a mesh of equal radios, all runs",
            &mild,
        ),
        throughput_table("vehicles", "Files between vehicles, all runs", &vehicles),
        outage_table(&failures),
        delivery_table(&delivered),
    ];
    let charts = vec![chart(&delivered)];
    input.result(input.scenario.clone(), compared, tables, charts, Vec::new())
}

/// Compares learned ways with those of the fewest hops.
fn gain(input: &StudyInput<'_>, id: &str, cells: &[WaysCell]) -> Result<Comparison, LabError> {
    let of = |ways: &str| {
        let cell = cells.iter().find(|it| it.ways == ways);
        cell.map_or(f64::NAN, WaysCell::goodput)
    };
    let ours = 100.0 * (of(LEARNED) / of(FEWEST_HOPS) - 1.0);
    let agrees = input.range(id)?.admits(ours);
    let numbers = [
        ("gain, %", ours, 0),
        ("learned ways, Mbit/s", of(LEARNED), 2),
        ("fewest hops, Mbit/s", of(FEWEST_HOPS), 2),
    ];
    Ok(input.compare_numbers(id, "", agrees, 1, &numbers))
}

fn outages(input: &StudyInput<'_>, outages: &[Outages]) -> Result<Vec<Comparison>, LabError> {
    let compared = outages.iter().map(|it| {
        let worst = it.seconds.iter().copied().fold(0.0, f64::max);
        let agrees = input.range(&it.load)?.admits(worst);
        let numbers = [("longest time without an answer, s", worst, 2)];
        Ok(input.compare_numbers(&it.load, "", agrees, 0, &numbers))
    });
    compared.collect()
}

fn contacts(
    input: &StudyInput<'_>,
    delivered: &[ProtocolResult],
) -> Result<Vec<Comparison>, LabError> {
    let of = |name: &str| delivered.iter().find(|it| it.name == name);
    let (Some(own), Some(direct), Some(epidemic)) = (
        of(delivery::GSTAR),
        of(delivery::DIRECT),
        of(delivery::EPIDEMIC),
    ) else {
        return Ok(Vec::new());
    };
    let share = 100.0 * own.share / epidemic.share;
    let cost = own.passes / epidemic.passes;
    let more = 100.0 * (own.share / direct.share - 1.0);
    let compared = [
        ("delivered", "of epidemic's, %", share, 0),
        ("passes", "of epidemic's", cost, 3),
        ("direct", "more than without relays, %", more, 0),
    ];
    let compared = compared.into_iter().map(|(id, what, ours, digits)| {
        let agrees = input.range(id)?.admits(ours);
        Ok(input.compare_numbers(id, "", agrees, 0, &[(what, ours, digits)]))
    });
    compared.collect()
}

fn throughput_table(name: &str, title: &str, cells: &[WaysCell]) -> Table {
    let row = |cell: &WaysCell| {
        let (least, most) = cell.range();
        vec![
            cell.ways.clone(),
            format!("{:.2}", cell.goodput()),
            format!("{least:.2}"),
            format!("{most:.2}"),
            cell.runs.len().to_string(),
        ]
    };
    let columns = [
        "ways",
        "goodput of all, Mbit/s",
        "least run",
        "best run",
        "runs",
    ];
    Table {
        name: name.to_owned(),
        title: title.to_owned(),
        columns: columns.map(String::from).into(),
        rows: cells.iter().map(row).collect(),
    }
}

fn outage_table(outages: &[Outages]) -> Table {
    let row = |it: &Outages| {
        let worst = it.seconds.iter().copied().fold(0.0, f64::max);
        let mean = super::result::mean(it.seconds.iter().copied());
        vec![
            it.load.clone(),
            format!("{mean:.2}"),
            format!("{worst:.2}"),
            it.seconds.len().to_string(),
        ]
    };
    let columns = ["the link", "without an answer, s", "worst run", "runs"];
    Table {
        name: "failures".to_owned(),
        title: "Echo requests along a path of which a link fails, returns and flaps".to_owned(),
        columns: columns.map(String::from).into(),
        rows: outages.iter().map(row).collect(),
    }
}

fn delivery_table(delivered: &[ProtocolResult]) -> Table {
    let row = |it: &ProtocolResult| {
        vec![
            it.name.clone(),
            format!("{:.1}", 100.0 * it.share),
            format!("{:.0}", it.median),
            format!("{:.0}", it.late),
            format!("{:.1}", it.passes),
            format!("{:.0}", it.dropped),
        ]
    };
    let columns = [
        "protocol",
        "delivered, %",
        "median delay, s",
        "95 % of delays, s",
        "passes for a delivered message",
        "dropped copies in a run",
    ];
    Table {
        name: "contacts".to_owned(),
        title: "Messages over contacts that come and go, the mean of all runs".to_owned(),
        columns: columns.map(String::from).into(),
        rows: delivered.iter().map(row).collect(),
    }
}

fn chart(delivered: &[ProtocolResult]) -> NamedChart {
    let points = (0..).map(f64::from).zip(delivered);
    NamedChart {
        name: "delivered".to_owned(),
        chart: LineChart {
            title: "Messages that arrive over contacts that come and go".to_owned(),
            x_label: "protocol".to_owned(),
            y_label: "%".to_owned(),
            series: vec![Series {
                label: "delivered".to_owned(),
                points: points.map(|(at, it)| (at, 100.0 * it.share)).collect(),
                ..Series::default()
            }],
            categories: delivered.iter().map(|it| it.name.clone()).collect(),
            ..LineChart::default()
        },
    }
}
