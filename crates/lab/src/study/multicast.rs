//! One file for many receivers [MFTP §3.5]: to a group, to each of them, and in namespaces by programs of IP multicast.
//!
//! The scenario sweeps `way` ("to a group", "to each", "NORM, ...", "UFTP, ..."), `receivers` and `loss`.

use super::result::mean;
use super::trial::{Swept, arrived, distinct, run_swept};
use super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::run::Run;

const GROUP: &str = "to a group";
const EACH: &str = "to each";
/// The loss of comparisons.
const LOSS: &str = "1 %";
/// The link of the source, from its first node on.
const UPLINK: &str = "links.uplink.forward";
/// Most lines of a figure.
const LINES: usize = 6;

/// All runs of a setting: of the way, the receivers and the loss.
struct Reception<'a> {
    swept: Swept<'a, 3>,
    /// Bytes of the file.
    size: f64,
}

impl<'a> Reception<'a> {
    fn way(&self) -> &'a str {
        self.swept.0[0]
    }

    fn receivers(&self) -> &'a str {
        self.swept.0[1]
    }

    fn count(&self) -> usize {
        self.receivers().parse().unwrap_or(0)
    }

    fn loss(&self) -> &'a str {
        self.swept.0[2]
    }

    fn mean(&self, of: impl Fn(&Run) -> f64) -> f64 {
        mean(self.swept.1.iter().map(of))
    }

    /// Returns true if each receiver has the file in each run.
    fn is_complete(&self) -> bool {
        arrived(&self.swept.1) == self.count()
    }

    /// Returns the bytes that the source has sent.
    fn source_bytes(&self) -> f64 {
        self.mean(|run| run.values.get(UPLINK).copied().unwrap_or(f64::NAN))
    }

    /// Returns the most bytes that a link has carried from its first end to its second, in sizes of the file.
    /// Those of the name server carry no part of it.
    fn busiest(&self) -> f64 {
        let most = self.mean(|run| {
            let links = run.values.iter();
            let forward = links.filter(|(name, _)| {
                name.starts_with("links.") && name.ends_with(".forward") && !name.contains("names")
            });
            forward.map(|(_, bytes)| *bytes).fold(0.0, f64::max)
        });
        most / self.size
    }

    /// Returns the seconds until the receiver at a place in the order of arrival has the file; no number if one of
    /// them has not.
    fn time_at(&self, place: impl Fn(usize) -> usize) -> f64 {
        if !self.is_complete() {
            return f64::NAN;
        }
        self.mean(|run| {
            let mut times: Vec<f64> = run.transfers.iter().map(|it| it.record.finished).collect();
            times.sort_by(f64::total_cmp);
            let place = place(times.len());
            times.get(place).copied().unwrap_or(f64::NAN)
        })
    }

    fn median(&self) -> f64 {
        self.time_at(|count| count / 2)
    }

    fn last(&self) -> f64 {
        self.time_at(|count| count.saturating_sub(1))
    }
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let keys = ["way", "receivers", "loss"];
    let expected = "way (to a group, to each), receivers and loss";
    let title =
        |[way, receivers, loss]: [&str; 3]| format!("{receivers} receivers, {way}, {loss} loss");
    let swept = run_swept(input, &scenario, progress, keys, expected, title)?;
    let cells: Vec<Reception<'_>> = swept
        .into_iter()
        .map(|swept| Reception {
            size: size_of(&swept.1),
            swept,
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

/// Returns the bytes of the file: the most that a receiver has got; no number if nobody has it.
fn size_of(runs: &[Run]) -> f64 {
    let transfers = runs.iter().flat_map(|run| &run.transfers);
    transfers
        .map(|it| it.record.bytes as f64)
        .fold(f64::NAN, f64::max)
}

/// Returns the number of receivers of the largest setting.
fn most_receivers(cells: &[Reception<'_>]) -> usize {
    cells.iter().map(Reception::count).max().unwrap_or(1)
}

fn compared(input: &StudyInput<'_>, cells: &[Reception<'_>]) -> Result<Vec<Comparison>, LabError> {
    let most = most_receivers(cells);
    let at = |way: &str, receivers: usize| {
        let mut cells = cells.iter();
        cells.find(|it| (it.way(), it.count(), it.loss()) == (way, receivers, LOSS))
    };
    let (Some(one), Some(all)) = (at(GROUP, 1), at(GROUP, most)) else {
        return Ok(Vec::new());
    };
    let mut measured = vec![
        ("load", all.source_bytes() / one.source_bytes()),
        ("octets", all.busiest()),
        ("last", all.last() / one.last()),
    ];
    if let Some(each) = at(EACH, most) {
        measured.push(("each", each.last() / all.last()));
    }
    let case = format!("{most} receivers");
    let mut compared = Vec::new();
    for (id, ours) in measured {
        let agrees = input.agrees_with_value(id, ours)?;
        compared.push(input.compare_numbers(id, &case, agrees, 1, &[("times", ours, 2)]));
    }
    // Each program in the best of its ways.
    for (id, name) in [("norm", "NORM"), ("uftp", "UFTP"), ("udpcast", "udpcast")] {
        let of = |it: &&Reception<'_>| it.way().starts_with(name) && it.loss() == LOSS;
        let rivals = cells.iter().filter(of).filter(|it| it.count() == most);
        let best = rivals.map(Reception::last).fold(f64::NAN, f64::min);
        if best.is_finite() {
            let (ours, theirs) = (all.last(), best);
            let agrees = input.range(id)?.admits(theirs / ours);
            let numbers = [
                ("times", theirs / ours, 2),
                ("ours, s", ours, 2),
                (name, theirs, 2),
            ];
            compared.push(input.compare_numbers(id, &case, agrees, 0, &numbers));
        }
    }
    Ok(compared)
}

fn table(cells: &[Reception<'_>]) -> Table {
    let row = |cell: &Reception<'_>| {
        let (median, last) = (cell.median(), cell.last());
        let number = |value: f64, digits: usize| match value.is_finite() {
            true => format!("{value:.digits$}"),
            false => "-".to_owned(),
        };
        [
            cell.way().to_owned(),
            cell.receivers().to_owned(),
            cell.loss().to_owned(),
            arrived(&cell.swept.1).to_string(),
            number(cell.source_bytes() / cell.size, 2),
            number(cell.busiest(), 2),
            number(median, 2),
            number(last, 2),
            number(cell.size * 8e-6 / last, 1),
        ]
    };
    let columns = [
        "way",
        "receivers",
        "loss of each link",
        "have it",
        "sent by the source, sizes of the file",
        "on the busiest link, sizes of the file",
        "median receiver, s",
        "last receiver, s",
        "goodput of the last, Mbit/s",
    ];
    let title = "One file for many receivers, mean of all runs";
    Table::new("receivers", title, columns, cells.iter().map(row))
}

fn chart(cells: &[Reception<'_>]) -> NamedChart {
    let receivers = distinct(cells.iter().map(Reception::receivers));
    let of = |way: &str| {
        let own = cells
            .iter()
            .filter(|it| (it.way(), it.loss()) == (way, LOSS));
        let points = own.filter_map(|it| {
            let place = receivers
                .iter()
                .position(|known| *known == it.receivers())?;
            Some((place as f64, it.last()))
        });
        Series {
            label: way.to_owned(),
            points: points.filter(|(_, last)| last.is_finite()).collect(),
            ..Series::default()
        }
    };
    let ways = distinct(cells.iter().map(Reception::way));
    NamedChart {
        name: String::from("last-receiver"),
        chart: LineChart {
            title: format!("Time of the last receiver at {LOSS} loss of each link"),
            x_label: String::from("receivers"),
            y_label: String::from("s"),
            series: ways.into_iter().take(LINES).map(of).collect(),
            categories: receivers.iter().map(|it| (*it).to_owned()).collect(),
            ..LineChart::default()
        },
    }
}
