//! One file for many receivers [MFTP §3.5]: to a group, and to each of them.
//!
//! The scenario sweeps `way` ("to a group", "to each"), `receivers` and `loss`.

use super::trial::run_settings;
use super::{Comparison, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::scenario::Setting;
use crate::scenario::run::Run;

const GROUP: &str = "to a group";
const EACH: &str = "to each";
/// The link of the source, from its first node on.
const UPLINK: &str = "links.uplink.forward";

/// All runs of a setting.
struct Reception<'a> {
    way: &'a str,
    receivers: &'a str,
    loss: &'a str,
    size: f64,
    runs: Vec<Run>,
}

impl Reception<'_> {
    fn mean(&self, of: impl Fn(&Run) -> f64) -> f64 {
        self.runs.iter().map(of).sum::<f64>() / self.runs.len() as f64
    }

    /// Returns the receivers that have the file, in the run with the fewest.
    fn complete(&self) -> usize {
        let complete = self.runs.iter().map(|run| {
            let transfers = run.transfers.iter();
            transfers.filter(|it| it.record.completed).count()
        });
        complete.min().unwrap_or(0)
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

    /// Returns the seconds until the median and the last receiver have the file.
    fn times(&self) -> (f64, f64) {
        let finished = |run: &Run| {
            let mut times: Vec<f64> = run.transfers.iter().map(|it| it.record.finished).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let median = self.mean(|run| {
            let times = finished(run);
            times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
        });
        let last = self.mean(|run| finished(run).last().copied().unwrap_or(f64::NAN));
        (median, last)
    }
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected = "way (to a group, to each), receivers and loss";
    let mut places = Vec::new();
    for setting in &scenario.settings {
        let way = input.swept(setting, "way", expected)?;
        let receivers = input.swept(setting, "receivers", expected)?;
        places.push((way, receivers, input.swept(setting, "loss", expected)?));
    }
    let title = |setting: &Setting| {
        let value = |key| setting.value(key).unwrap_or_default();
        let (way, receivers) = (value("way"), value("receivers"));
        format!("{receivers} receivers, {way}, {} loss", value("loss"))
    };
    let runs = run_settings(&scenario, input, progress, title)?;
    let cells = places.into_iter().zip(runs);
    let cells: Vec<Reception<'_>> = cells
        .map(|((way, receivers, loss), runs)| Reception {
            way,
            receivers,
            loss,
            size: size_of(&runs),
            runs,
        })
        .collect();
    input.result(
        scenario.text.clone(),
        compared(input, &cells)?,
        vec![table(&cells)],
        Vec::new(),
        Vec::new(),
    )
}

/// Returns the bytes of the file: the most that a receiver has got.
fn size_of(runs: &[Run]) -> f64 {
    let transfers = runs.iter().flat_map(|run| &run.transfers);
    transfers
        .map(|it| it.record.bytes as f64)
        .fold(1.0, f64::max)
}

fn compared(input: &StudyInput<'_>, cells: &[Reception<'_>]) -> Result<Vec<Comparison>, LabError> {
    let at = |way: &str, receivers: &str| {
        let mut cells = cells.iter();
        cells.find(|it| (it.way, it.receivers, it.loss) == (way, receivers, "1 %"))
    };
    let counts = cells
        .iter()
        .filter_map(|it| it.receivers.parse::<u32>().ok());
    let most = counts.max().unwrap_or(1).to_string();
    let (Some(one), Some(all)) = (at(GROUP, "1"), at(GROUP, &most)) else {
        return Ok(Vec::new());
    };
    let mut measured = vec![
        ("load", all.source_bytes() / one.source_bytes()),
        ("octets", all.busiest()),
        ("last", all.times().1 / one.times().1),
    ];
    if let Some(each) = at(EACH, &most) {
        measured.push(("each", each.times().1 / all.times().1));
    }
    let mut compared = Vec::new();
    for (id, ours) in measured {
        let agrees = match input.value(id) {
            Some(wanted) => input.tolerance(id)?.admits(wanted, ours),
            None => true,
        };
        compared.push(input.compare_numbers(id, "", agrees, 1, &[("times", ours, 2)]));
    }
    Ok(compared)
}

fn table(cells: &[Reception<'_>]) -> Table {
    let row = |cell: &Reception<'_>| {
        let (median, last) = cell.times();
        vec![
            cell.way.to_owned(),
            cell.receivers.to_owned(),
            cell.loss.to_owned(),
            cell.complete().to_string(),
            format!("{:.2}", cell.source_bytes() / cell.size),
            format!("{:.2}", cell.busiest()),
            format!("{median:.2}"),
            format!("{last:.2}"),
            format!("{:.1}", cell.size * 8e-6 / last),
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
    Table {
        name: String::from("receivers"),
        title: String::from("One file for many receivers, mean of all runs"),
        columns: columns.map(String::from).into(),
        rows: cells.iter().map(row).collect(),
    }
}
