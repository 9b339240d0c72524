//! Fig. 11: how alike the completion times of ten streams are.

use super::super::result::mean;
use super::super::trial::{distinct, run_swept};
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::title;
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::run::Run;

/// The load whose streams are compared.
const LOAD: &str = "flows";

/// One way to carry streams of one size.
struct Cell<'a> {
    size: &'a str,
    by: &'a str,
    runs: Vec<Run>,
}

impl Cell<'_> {
    /// Returns the completion times of a run's streams, seconds; infinite for those that did not end.
    fn times(run: &Run) -> Vec<f64> {
        let streams = run.transfers.iter().filter(|stream| stream.name == LOAD);
        let times = streams.map(|stream| match stream.record.completed {
            true => stream.record.finished,
            false => f64::INFINITY,
        });
        times.collect()
    }

    fn mean(&self) -> f64 {
        mean(self.runs.iter().flat_map(Cell::times))
    }

    /// Returns the standard deviation among a run's streams, the mean of all runs.
    fn deviation(&self) -> f64 {
        mean(self.runs.iter().map(|run| deviation(&Cell::times(run))))
    }
}

/// Returns the standard deviation of all of a population.
fn deviation(times: &[f64]) -> f64 {
    let average = mean(times.iter().copied());
    mean(times.iter().map(|time| (time - average).powi(2))).sqrt()
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected = "size (\"1 Mb\", ...) and by (plain, unreliable, ...), by these names";
    let keys = ["size", "by"];
    let name = |[size, by]: [&str; 2]| format!("{}, {size}", title(by));
    let swept = run_swept(input, &scenario, progress, keys, expected, name)?;
    let cells = swept.into_iter();
    let cells: Vec<Cell<'_>> = cells
        .map(|([size, by], runs)| Cell { size, by, runs })
        .collect();
    let comparisons = compared(input, &cells)?;
    let tables = vec![table(&cells)];
    let charts = vec![
        chart(
            &cells,
            "fig11",
            "Fig. 11: mean completion time of ten streams",
            &|cell| cell.mean(),
        ),
        chart(
            &cells,
            "deviation",
            "Standard deviation of the completion times among ten streams",
            &|cell| cell.deviation(),
        ),
    ];
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        Vec::new(),
    )
}

/// Returns the setting of plain IP beside which another one stands.
fn rival<'a, 'b>(cells: &'a [Cell<'b>], cell: &Cell<'_>) -> Option<&'a Cell<'b>> {
    let by = match cell.by.ends_with("both") {
        true => "plain-both",
        false => "plain",
    };
    let mut cells = cells.iter();
    cells.find(|it| it.size == cell.size && it.by == by)
}

fn compared(input: &StudyInput<'_>, cells: &[Cell<'_>]) -> Result<Vec<Comparison>, LabError> {
    let mut compared = Vec::new();
    for cell in cells
        .iter()
        .filter(|cell| cell.by.starts_with("unreliable"))
    {
        let Some(plain) = rival(cells, cell) else {
            continue;
        };
        let case = match cell.by.ends_with("both") {
            true => format!("{}, both directions", cell.size),
            false => cell.size.to_owned(),
        };
        let share = |ours: f64, theirs: f64| 100.0 * (ours - theirs) / plain.mean();
        for (id, ours) in [
            ("mean", share(cell.mean(), plain.mean())),
            ("fair", share(cell.deviation(), plain.deviation())),
        ] {
            let agrees = input.range(id)?.admits(ours);
            compared.push(input.compare_numbers(id, &case, agrees, 0, &[("%", ours, 1)]));
        }
    }
    Ok(compared)
}

fn table(cells: &[Cell<'_>]) -> Table {
    let rows = cells.iter().map(|cell| {
        let times: Vec<f64> = cell.runs.iter().flat_map(Cell::times).collect();
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = times.iter().copied().fold(0.0, f64::max);
        vec![
            cell.size.to_owned(),
            title(cell.by),
            format!("{:.3}", cell.mean()),
            format!("{:.3}", cell.deviation()),
            format!("{least:.3}"),
            format!("{most:.3}"),
        ]
    });
    let columns = [
        "size",
        "carried by",
        "mean, s",
        "standard deviation in a run, s",
        "least, s",
        "most, s",
    ];
    Table {
        name: String::from("streams"),
        title: String::from("Completion times of ten streams at once"),
        columns: columns.map(String::from).into(),
        rows: rows.collect(),
    }
}

fn chart(
    cells: &[Cell<'_>],
    name: &str,
    what: &str,
    value: &dyn Fn(&Cell<'_>) -> f64,
) -> NamedChart {
    let mut sizes: Vec<&str> = cells.iter().map(|cell| cell.size).collect();
    sizes.dedup();
    let ways: Vec<&str> = distinct(cells.iter().map(|cell| cell.by));
    let series = ways.iter().map(|by| Series {
        label: title(by),
        points: sizes
            .iter()
            .enumerate()
            .filter_map(|(at, size)| {
                let cell = cells.iter().find(|it| it.size == *size && it.by == *by)?;
                Some((at as f64, value(cell)))
            })
            .collect(),
        ..Series::default()
    });
    NamedChart {
        name: name.to_owned(),
        chart: LineChart {
            title: what.to_owned(),
            y_label: String::from("time, s"),
            series: series.collect(),
            categories: sizes.iter().map(|size| (*size).to_owned()).collect(),
            ..LineChart::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_that_of_all_streams() {
        assert_eq!(deviation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), 2.0);
        assert_eq!(deviation(&[3.0, 3.0]), 0.0);
    }
}
