//! Names at any size: K copies over an internet-like topology, in virtual time; rates, delays and the loss
//! of a primary with real name servers and Redis, in real time.

mod client;
mod internet;
mod parameters;
mod placement;
mod rates;
mod servers;

use super::{Backend, Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use internet::Internet;
pub(super) use parameters::NameServiceParameters;
use placement::{Askers, Placed};
use rates::{Failover, Rates, RecordStore, RequestRate};

/// The number of copies that DMap's numbers are about.
const DMAP_COPIES: f64 = 5.0;
const NEAREST: &str = "by hash, the nearest asked first";

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let parameters =
        NameServiceParameters::parse(&input.scenario).map_err(|reason| input.bad(reason))?;
    tracing::debug!("{}", parameters.title);
    match input.options.backend {
        Backend::Sim => places(input, &parameters, progress),
        Backend::Netns => servers_at_work(input, &parameters, progress),
    }
}

fn places(
    input: &StudyInput<'_>,
    parameters: &NameServiceParameters,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let seed = input.options.seed;
    progress(0, 2, "copies by hash");
    let internet = Internet::generate(&parameters.internet, seed);
    let ends = internet.ends();
    let count = parameters.placement.askers;
    let mut askers = Askers::draw(&internet, &ends, count, seed);
    let hashed = placement::by_hash(&parameters.placement, &internet, &ends, &mut askers, seed);
    progress(1, 2, "copies by demand");
    let demanded = placement::by_demand(&parameters.demand, &internet, &askers, seed);
    progress(2, 2, "copies by demand");

    let mut compared = Vec::new();
    let of_dmap = hashed
        .iter()
        .find(|it| it.name == NEAREST && it.copies == DMAP_COPIES);
    if let Some(placed) = of_dmap {
        for (id, ours) in [
            ("dmap-mean", placed.mean()),
            ("dmap-95", placed.percentile(95.0)),
        ] {
            let agrees = input.range(id)?.admits(ours);
            let numbers = [("round trip, ms", ours, 1)];
            compared.push(input.compare_numbers(id, "five copies", agrees, 1, &numbers));
        }
    }
    if let [any, _, followed, ..] = &demanded[..] {
        let ours = any.mean() / followed.mean();
        let agrees = input.range("auspice")?.admits(ours);
        let numbers = [("times", ours, 2)];
        compared.push(input.compare_numbers("auspice", "", agrees, 1, &numbers));
    }
    let ways = format!(
        "{} networks, {:.2} links on a way on average; round trips of look-ups of any name from anywhere",
        internet.len(),
        askers.mean_links
    );
    let tables = vec![
        placed_table("placement", &ways, &hashed),
        placed_table(
            "demand",
            "Names that are asked for from where they are of interest",
            &demanded,
        ),
    ];
    let text = input.scenario.clone();
    input.result(text, compared, tables, vec![chart(&hashed)], Vec::new())
}

fn placed_table(name: &str, title: &str, placed: &[Placed]) -> Table {
    let rows = placed.iter().map(|it| {
        let messages = it.messages.map_or("-".to_owned(), |it| format!("{it:.2}"));
        vec![
            it.name.clone(),
            format!("{:.1}", it.copies),
            format!("{:.1}", it.mean()),
            format!("{:.1}", it.percentile(50.0)),
            format!("{:.1}", it.percentile(95.0)),
            messages,
        ]
    });
    let columns = [
        "placement",
        "copies",
        "mean, ms",
        "median, ms",
        "95 %, ms",
        "messages for a look-up",
    ];
    Table {
        name: name.to_owned(),
        title: title.to_owned(),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

fn chart(placed: &[Placed]) -> NamedChart {
    let mut series: Vec<Series> = Vec::new();
    for it in placed {
        if series.last().is_none_or(|last| last.label != it.name) {
            series.push(Series {
                label: it.name.clone(),
                ..Series::default()
            });
        }
        if let Some(last) = series.last_mut() {
            last.points.push((it.copies, it.percentile(95.0)));
        }
    }
    NamedChart {
        name: "copies".to_owned(),
        chart: LineChart {
            title: "Look-ups by the number of copies".to_owned(),
            x_label: "copies".to_owned(),
            y_label: "95 % of round trips, ms".to_owned(),
            series,
            ..LineChart::default()
        },
    }
}

fn servers_at_work(
    input: &StudyInput<'_>,
    parameters: &NameServiceParameters,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let program = &input.options.program;
    let clusters = parameters.rates.primaries.iter();
    let stores = [RecordStore::Memory, RecordStore::Disk].into_iter();
    let stores: Vec<RecordStore> = stores
        .chain(clusters.map(|count| RecordStore::Cluster(*count)))
        .collect();
    let all = stores.len() + 1;
    let mut measured = Vec::new();
    for (number, kept) in stores.into_iter().enumerate() {
        progress(number, all, &kept.name());
        measured.push(rates::measure(&parameters.rates, kept, program)?);
    }
    progress(all - 1, all, "a primary is killed");
    let failover = rates::fail_over(&parameters.failover, program)?;
    progress(all, all, "a primary is killed");
    let text = input.scenario.clone();
    let compared = compared_rates(input, &measured, &failover)?;
    let tables = vec![
        rate_table(&measured),
        push_table(&measured),
        loss_table(&failover),
    ];
    input.result(text, compared, tables, Vec::new(), Vec::new())
}

fn compared_rates(
    input: &StudyInput<'_>,
    measured: &[Rates],
    failover: &Failover,
) -> Result<Vec<Comparison>, LabError> {
    let embedded = measured.iter().find(|it| it.kept == RecordStore::Memory);
    let is_cluster = |it: &&Rates| matches!(it.kept, RecordStore::Cluster(_));
    let cluster = measured.iter().rfind(is_cluster);
    let median = |it: &Rates| it.single_lookups.percentile(50.0);
    let none = f64::NAN;
    let per_core = |rate: &RequestRate| rate.rate / rate.server_cores.max(f64::EPSILON);
    let numbers = [
        (
            "lookups",
            "look-ups per second of a core",
            embedded.map_or(none, |it| per_core(&it.lookups)),
            0,
        ),
        (
            "updates",
            "updates per second of a core",
            embedded.map_or(none, |it| per_core(&it.updates)),
            0,
        ),
        (
            "warm",
            "times",
            cluster
                .zip(embedded)
                .map_or(none, |(it, own)| median(it) / median(own)),
            2,
        ),
        (
            "engine",
            "cores",
            cluster.map_or(none, |it| it.updates.engine_cores),
            2,
        ),
        (
            "watch",
            "median, ms",
            cluster.map_or(none, |it| it.push_percentile(50.0)),
            2,
        ),
        ("missing", "names", failover.missing as f64, 0),
    ];
    let each = numbers.into_iter().map(|(id, what, ours, digits)| {
        let agrees = input.range(id)?.admits(ours);
        Ok(input.compare_numbers(id, "", agrees, 0, &[(what, ours, digits)]))
    });
    each.collect()
}

fn rate_table(measured: &[Rates]) -> Table {
    let row = |kept: RecordStore, what: &str, rate: &RequestRate| {
        let mut row = vec![kept.name(), what.to_owned(), format!("{:.0}", rate.rate)];
        let parts = [50.0, 95.0, 99.0].map(|part| format!("{:.3}", rate.percentile(part)));
        row.extend(parts);
        row.push(format!("{:.2}", rate.server_cores));
        row.push(format!("{:.2}", rate.engine_cores));
        row.push(rate.failed.to_string());
        row
    };
    let rows = measured.iter().flat_map(|it| {
        let known = [
            Some(("look-ups", &it.lookups)),
            Some(("look-ups, one at a time", &it.single_lookups)),
            it.cold.as_ref().map(|cold| ("look-ups, cold", cold)),
            Some(("updates", &it.updates)),
            Some(("updates, one at a time", &it.single_updates)),
        ];
        let known = known.into_iter().flatten();
        known
            .map(|(what, rate)| row(it.kept, what, rate))
            .collect::<Vec<_>>()
    });
    let columns = [
        "store",
        "requests",
        "per s",
        "median, ms",
        "95 %, ms",
        "99 %, ms",
        "cores of the name server",
        "cores of the engine",
        "failed",
    ];
    Table {
        name: "rates".to_owned(),
        title: "Requests over UDP on this machine".to_owned(),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

fn push_table(measured: &[Rates]) -> Table {
    let rows = measured.iter().map(|it| {
        let mut row = vec![
            it.kept.name(),
            it.watched_updates.to_string(),
            it.pushed().to_string(),
        ];
        row.extend([50.0, 95.0, 99.0].map(|part| format!("{:.3}", it.push_percentile(part))));
        row
    });
    let columns = [
        "store",
        "updates",
        "pushes",
        "median, ms",
        "95 %, ms",
        "99 %, ms",
    ];
    Table {
        name: "watchers".to_owned(),
        title: "From an update to its push, of a cluster by another name server".to_owned(),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

fn loss_table(failover: &Failover) -> Table {
    let columns = [
        "updates per s",
        "acknowledged",
        "busy",
        "unanswered",
        "missing before the replay",
        "names with a missing update after it",
        "names",
        "longest pause of the primary's names, s",
    ];
    let row = vec![
        format!("{:.0}", failover.offered),
        failover.acknowledged.to_string(),
        failover.refused.to_string(),
        failover.unanswered.to_string(),
        failover.lost_by_failover.to_string(),
        failover.missing.to_string(),
        failover.names.to_string(),
        format!("{:.1}", failover.pause_s),
    ];
    Table {
        name: "failover".to_owned(),
        title: "A primary is killed under load".to_owned(),
        columns: columns.map(String::from).into(),
        rows: vec![row],
    }
}
