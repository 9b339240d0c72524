//! Machine to machine [MFTP §2], Table 1: a sensor and a receiver that are never awake together.
//!
//! The scenario sweeps `routers` ("stay up", "are killed") and `storage` ("disk", "memory").

use super::trial::{Swept, arrived, run_swept};
use super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::run::Run;

/// All runs of a setting: of the routers, and their storage.
struct Cell<'a>(Swept<'a, 2>);

impl Cell<'_> {
    fn is(&self, routers: &str, storage: &str) -> bool {
        self.0.0 == [routers, storage]
    }

    fn runs(&self) -> &[Run] {
        &self.0.1
    }

    /// Returns the seconds from the push of each reading that arrived to its arrival, the shortest first.
    fn sorted_delays(&self) -> Vec<f64> {
        let transfers = self.runs().iter().flat_map(|run| &run.transfers);
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
        self.runs().iter().map(|run| run.transfers.len()).sum()
    }
}

fn title([routers, storage]: [&str; 2]) -> String {
    format!("routers {routers}, storage in {storage}")
}

pub(super) fn run(input: &StudyInput<'_>, progress: Progress<'_>) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let keys = ["routers", "storage"];
    let expected = "routers (stay up, are killed) and storage (disk, memory)";
    let swept = run_swept(input, &scenario, progress, keys, expected, title)?;
    let cells: Vec<Cell<'_>> = swept.into_iter().map(Cell).collect();
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
        let cell = cells.iter().find(|cell| cell.is(routers, storage));
        let Some(cell) = cell else { continue };
        let count = arrived(cell.runs()) as f64;
        let agrees = input.agrees_with_value(id, count)?;
        let (median, longest) = cell.delays();
        let numbers = [
            ("readings", count, 0),
            ("median delay, s", median, 0),
            ("longest delay, s", longest, 0),
        ];
        compared.push(input.compare_numbers(id, "", agrees, 1, &numbers));
    }
    Ok(compared)
}

fn chart(cells: &[Cell<'_>]) -> LineChart {
    let series = |cell: &Cell<'_>| Series {
        label: title(cell.0.0),
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
        let [routers, storage] = cell.0.0;
        [
            routers.to_owned(),
            storage.to_owned(),
            cell.total().to_string(),
            arrived(cell.runs()).to_string(),
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
    let title = "Readings of the sensor, all runs";
    Table::new("readings", title, columns, cells.iter().map(row))
}
