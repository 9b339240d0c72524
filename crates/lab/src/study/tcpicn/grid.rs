//! Beyond the paper: a file by round trip and loss, over plain IP and over proxies, with and without links
//! that recover, with the kernel's two congestion controls.

use super::super::result::mean;
use super::super::trial::run_settings;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::title;
use crate::LabError;
use crate::figure::{HeatMap, LineChart};
use crate::scenario::Setting;
use crate::scenario::run::Run;

/// Ends of the maps' colours: shares of plain IP's time.
const WORST: f64 = 1.5;
const BEST: f64 = 0.5;

/// Turns a share of plain IP's time into a statement's number and its digits.
type Shown = fn(f64) -> (f64, usize);

/// One way to carry the file over one path.
struct Cell<'a> {
    rtt: &'a str,
    loss: &'a str,
    by: &'a str,
    runs: Vec<Run>,
}

impl Cell<'_> {
    /// Returns the mean completion time in seconds; infinite if a run did not complete.
    fn seconds(&self) -> f64 {
        let records = self
            .runs
            .iter()
            .filter_map(|run| Some(&run.transfers.first()?.record));
        mean(records.map(|record| match record.completed {
            true => record.finished,
            false => f64::INFINITY,
        }))
    }
}

/// Returns plain IP with the same TCP.
fn rival(by: &str) -> &'static str {
    match by.ends_with("bbr") {
        true => "plain-bbr",
        false => "plain",
    }
}

/// All cells, and what is swept, in its order.
struct Grid<'a> {
    cells: Vec<Cell<'a>>,
    rtts: Vec<&'a str>,
    losses: Vec<&'a str>,
    ways: Vec<&'a str>,
}

impl<'a> Grid<'a> {
    fn new(cells: Vec<Cell<'a>>) -> Grid<'a> {
        let of = |value: fn(&Cell<'a>) -> &'a str| {
            let mut values: Vec<&str> = Vec::new();
            for value in cells.iter().map(value) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            values
        };
        Grid {
            rtts: of(|cell| cell.rtt),
            losses: of(|cell| cell.loss),
            ways: of(|cell| cell.by),
            cells,
        }
    }

    fn seconds(&self, rtt: &str, loss: &str, by: &str) -> f64 {
        let mut cells = self.cells.iter();
        let found = cells.find(|it| (it.rtt, it.loss, it.by) == (rtt, loss, by));
        found.map_or(f64::NAN, Cell::seconds)
    }

    /// Returns a way's time as a share of plain IP's with the same TCP.
    fn share(&self, rtt: &str, loss: &str, by: &str) -> f64 {
        self.seconds(rtt, loss, by) / self.seconds(rtt, loss, rival(by))
    }
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected =
        "rtt (\"10 ms\", ...), loss (\"1 %\", ...) and by (plain, unreliable, ...), by these names";
    let mut cells: Vec<Cell<'_>> = Vec::new();
    for setting in &scenario.settings {
        cells.push(Cell {
            rtt: input.swept(setting, "rtt", expected)?,
            loss: input.swept(setting, "loss", expected)?,
            by: input.swept(setting, "by", expected)?,
            runs: Vec::new(),
        });
    }
    let name = |setting: &Setting| {
        let value = |key| setting.value(key).unwrap_or_default();
        format!(
            "{}, {}, loss {}",
            title(value("by")),
            value("rtt"),
            value("loss")
        )
    };
    let runs = run_settings(&scenario, input, progress, name)?;
    for (cell, runs) in cells.iter_mut().zip(runs) {
        cell.runs = runs;
    }
    let grid = Grid::new(cells);
    input.result(
        scenario.text.clone(),
        compared(input, &grid)?,
        vec![table(&grid)],
        charts(&grid),
        Vec::new(),
    )
}

fn compared(input: &StudyInput<'_>, grid: &Grid<'_>) -> Result<Vec<Comparison>, LabError> {
    let mut compared = Vec::new();
    for by in &grid.ways {
        let (id, loss, shown): (_, _, Shown) = match *by {
            "unreliable" | "unreliable-bbr" => ("goal-slower", "0 %", |it| (100.0 * (it - 1.0), 1)),
            "unreliable-belrp" | "unreliable-belrp-bbr" => ("goal-recovered", "1 %", |it| (it, 2)),
            _ => continue,
        };
        let range = input.range(id)?;
        let measured = grid
            .rtts
            .iter()
            .map(|rtt| (*rtt, shown(grid.share(rtt, loss, by))));
        // A scenario may leave settings out.
        let measured = measured.filter(|(_, (ours, _))| !ours.is_nan());
        let numbers: Vec<(&str, f64, usize)> = measured
            .map(|(rtt, (ours, digits))| (rtt, ours, digits))
            .collect();
        let agrees = numbers.iter().all(|(_, ours, _)| range.admits(*ours));
        compared.push(input.compare_numbers(id, &title(by), agrees, 0, &numbers));
    }
    Ok(compared)
}

fn table(grid: &Grid<'_>) -> Table {
    let mut rows = Vec::new();
    for rtt in &grid.rtts {
        for loss in &grid.losses {
            let ways = grid.ways.iter().map(|by| {
                let seconds = grid.seconds(rtt, loss, by);
                match by.starts_with("plain") {
                    true => format!("{seconds:.1}"),
                    false => format!("{seconds:.1} ({:.2})", grid.share(rtt, loss, by)),
                }
            });
            let place = [(*rtt).to_owned(), (*loss).to_owned()];
            rows.push(place.into_iter().chain(ways).collect());
        }
    }
    let columns = ["round trip", "loss"].map(String::from);
    let ways = grid.ways.iter().map(|by| title(by));
    Table {
        name: String::from("grid"),
        title: String::from(
            "Completion time in seconds (as a share of plain IP's with the same TCP)",
        ),
        columns: columns.into_iter().chain(ways).collect(),
        rows,
    }
}

/// A map for each way over proxies.
fn charts(grid: &Grid<'_>) -> Vec<NamedChart> {
    let names = |values: &[&str]| values.iter().map(|it| (*it).to_owned()).collect();
    let ways = grid.ways.iter().filter(|by| !by.starts_with("plain"));
    let charts = ways.map(|by| {
        let line = |rtt: &&str| {
            let shares = grid.losses.iter().map(|loss| grid.share(rtt, loss, by));
            shares
                .map(|it| Some(it).filter(|it| it.is_finite()))
                .collect()
        };
        let heat = HeatMap {
            columns: names(&grid.losses),
            rows: names(&grid.rtts),
            values: grid.rtts.iter().map(line).collect(),
            worst: WORST,
            best: BEST,
        };
        NamedChart {
            name: format!("share-{by}"),
            chart: LineChart {
                title: format!("{}: completion time, of plain IP's", title(by)),
                x_label: String::from("loss, each way"),
                y_label: String::from("round trip"),
                heat: Some(heat),
                ..LineChart::default()
            },
        }
    });
    charts.collect()
}
