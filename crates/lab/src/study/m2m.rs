//! Machine to machine [MFTP §2], Table 1: a sensor and a receiver that are never awake together.
//!
//! The scenario sweeps `routers` ("stay up", "are killed") and `storage` ("disk", "memory").

use super::trial::run_settings;
use super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::Setting;
use crate::scenario::run::Run;

/// All runs of a setting.
struct Cell<'a> {
    routers: &'a str,
    storage: &'a str,
    runs: Vec<Run>,
}

impl Cell<'_> {
    /// Returns the readings that arrived in the run with the fewest.
    fn arrived(&self) -> f64 {
        let arrived = self.runs.iter().map(|run| {
            let transfers = run.transfers.iter();
            transfers.filter(|it| it.record.completed).count()
        });
        arrived.min().map_or(f64::NAN, |count| count as f64)
    }

    /// Returns the seconds from the push of each reading that arrived to its arrival, the shortest first.
    fn sorted_delays(&self) -> Vec<f64> {
        let transfers = self.runs.iter().flat_map(|run| &run.transfers);
        let arrived = transfers.filter(|it| it.record.completed);
        let mut delays: Vec<f64> = arrived.map(|it| it.record.finished).collect();
        delays.sort_by(f64::total_cmp);
        delays
    }

    /// Returns the median and the longest of the delays, in seconds.
    fn delays(&self) -> (f64, f64) {
        let delays = self.sorted_delays();
        let at = |index: usize| delays.get(index).copied().unwrap_or(f64::NAN);
        (at(delays.len() / 2), at(delays.len().saturating_sub(1)))
    }

    fn total(&self) -> usize {
        self.runs.iter().map(|run| run.transfers.len()).sum()
    }
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected = "routers (stay up, are killed) and storage (disk, memory)";
    let mut places = Vec::new();
    for setting in &scenario.settings {
        let routers = input.swept(setting, "routers", expected)?;
        places.push((routers, input.swept(setting, "storage", expected)?));
    }
    let title = |setting: &Setting| {
        let value = |key| setting.value(key).unwrap_or_default();
        format!(
            "routers {}, storage in {}",
            value("routers"),
            value("storage")
        )
    };
    let runs = run_settings(&scenario, input, progress, title)?;
    let cells = places.into_iter().zip(runs);
    let cells: Vec<Cell<'_>> = cells
        .map(|((routers, storage), runs)| Cell {
            routers,
            storage,
            runs,
        })
        .collect();
    input.result(
        scenario.text.clone(),
        compared(input, &cells)?,
        vec![table(&cells)],
        vec![NamedChart {
            name: String::from("delays"),
            chart: chart(&cells),
        }],
        Vec::new(),
    )
}

fn compared(input: &StudyInput<'_>, cells: &[Cell<'_>]) -> Result<Vec<Comparison>, LabError> {
    let mut compared = Vec::new();
    for (id, routers, storage) in [
        ("proxy", "stay up", "disk"),
        ("killed", "are killed", "disk"),
        ("memory", "are killed", "memory"),
    ] {
        let cell = cells
            .iter()
            .find(|cell| (cell.routers, cell.storage) == (routers, storage));
        let Some(cell) = cell else { continue };
        let arrived = cell.arrived();
        let agrees = match input.value(id) {
            Some(wanted) => input.tolerance(id)?.admits(wanted, arrived),
            None => true,
        };
        let (median, longest) = cell.delays();
        let numbers = [
            ("readings", arrived, 0),
            ("median delay, s", median, 0),
            ("longest delay, s", longest, 0),
        ];
        compared.push(input.compare_numbers(id, "", agrees, 1, &numbers));
    }
    Ok(compared)
}

fn chart(cells: &[Cell<'_>]) -> LineChart {
    let series = |cell: &Cell<'_>| Series {
        label: format!("routers {}, storage in {}", cell.routers, cell.storage),
        points: (1..)
            .zip(cell.sorted_delays())
            .map(|(number, delay)| (f64::from(number), delay))
            .collect(),
        ..Series::default()
    };
    LineChart {
        title: String::from("From a reading's push to its arrival"),
        x_label: String::from("readings that have arrived"),
        y_label: String::from("delay, s"),
        series: cells.iter().map(series).collect(),
        ..LineChart::default()
    }
}

fn table(cells: &[Cell<'_>]) -> Table {
    let row = |cell: &Cell<'_>| {
        let (median, longest) = cell.delays();
        vec![
            cell.routers.to_owned(),
            cell.storage.to_owned(),
            cell.total().to_string(),
            format!("{:.0}", cell.arrived()),
            format!("{median:.0}"),
            format!("{longest:.0}"),
        ]
    };
    let columns = [
        "routers",
        "storage",
        "pushed",
        "arrived",
        "median delay, s",
        "longest delay, s",
    ];
    Table {
        name: String::from("readings"),
        title: String::from("Readings of the sensor, all runs"),
        columns: columns.map(String::from).into(),
        rows: cells.iter().map(row).collect(),
    }
}
