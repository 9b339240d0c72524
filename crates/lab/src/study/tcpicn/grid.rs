//! Beyond the paper: a file by round trip and loss, over plain IP and over proxies, with and without links
//! that recover, with the kernel's two congestion controls.

use super::super::trial::{distinct, run_swept};
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use super::{completion_time, title};
use crate::LabError;
use crate::figure::{HeatMap, LineChart};
use crate::scenario::run::Run;

/// Ends of the maps' colours: shares of plain IP's time.
const WORST: f64 = 1.5;
const BEST: f64 = 0.5;

/// Turns a share of plain IP's time into a statement's number and its digits.
type Shown = fn(f64) -> (f64, usize);

/// One way to carry a load over one path.
pub(super) struct Cell<'a> {
    pub(super) rtt: &'a str,
    pub(super) loss: &'a str,
    pub(super) by: &'a str,
    pub(super) runs: Vec<Run>,
}

/// Returns plain IP with the same TCP.
fn rival(by: &str) -> &'static str {
    match by.ends_with("bbr") {
        true => "plain-bbr",
        false => "plain",
    }
}

/// All cells, and what is swept, in its order.
pub(super) struct Grid<'a> {
    cells: Vec<Cell<'a>>,
    rtts: Vec<&'a str>,
    losses: Vec<&'a str>,
    ways: Vec<&'a str>,
    time: fn(&[Run]) -> f64,
}

impl<'a> Grid<'a> {
    /// Returns the grid of these cells; `time` is that of a cell's runs, in seconds.
    pub(super) fn new(cells: Vec<Cell<'a>>, time: fn(&[Run]) -> f64) -> Grid<'a> {
        let of = |value: fn(&Cell<'a>) -> &'a str| distinct(cells.iter().map(value));
        Grid {
            rtts: of(|cell| cell.rtt),
            losses: of(|cell| cell.loss),
            ways: of(|cell| cell.by),
            cells,
            time,
        }
    }

    fn seconds(&self, rtt: &str, loss: &str, by: &str) -> f64 {
        let mut cells = self.cells.iter();
        let found = cells.find(|it| (it.rtt, it.loss, it.by) == (rtt, loss, by));
        found.map_or(f64::NAN, |cell| (self.time)(&cell.runs))
    }

    /// Returns a way's time as a share of plain IP's with the same TCP.
    fn share(&self, rtt: &str, loss: &str, by: &str) -> f64 {
        self.seconds(rtt, loss, by) / self.seconds(rtt, loss, rival(by))
    }

    /// Returns our goals beside what was measured; `case` says what else is swept.
    pub(super) fn compared(
        &self,
        input: &StudyInput<'_>,
        case: &str,
    ) -> Result<Vec<Comparison>, LabError> {
        let mut compared = Vec::new();
        for by in &self.ways {
            let (id, loss, shown): (_, _, Shown) = match *by {
                "unreliable" | "unreliable-bbr" => {
                    ("goal-slower", "0 %", |it| (100.0 * (it - 1.0), 1))
                }
                "unreliable-belrp" | "unreliable-belrp-bbr" => {
                    ("goal-recovered", "1 %", |it| (it, 2))
                }
                _ => continue,
            };
            let range = input.range(id)?;
            let measured = self
                .rtts
                .iter()
                .map(|rtt| (*rtt, shown(self.share(rtt, loss, by))));
            // A scenario may leave settings out.
            let measured = measured.filter(|(_, (ours, _))| !ours.is_nan());
            let numbers: Vec<(&str, f64, usize)> = measured
                .map(|(rtt, (ours, digits))| (rtt, ours, digits))
                .collect();
            if numbers.is_empty() {
                continue;
            }
            let agrees = numbers.iter().all(|(_, ours, _)| range.admits(*ours));
            let case = [title(by), case.to_owned()];
            let case = case.iter().filter(|it| !it.is_empty());
            let case = case.cloned().collect::<Vec<_>>().join(", ");
            compared.push(input.compare_numbers(id, &case, agrees, 0, &numbers));
        }
        Ok(compared)
    }

    /// Returns all times, with so many digits after the point.
    pub(super) fn table(&self, name: &str, title_of_all: &str, digits: usize) -> Table {
        let mut rows = Vec::new();
        for rtt in &self.rtts {
            for loss in &self.losses {
                let ways = self.ways.iter().map(|by| {
                    let seconds = self.seconds(rtt, loss, by);
                    match by.starts_with("plain") {
                        true => format!("{seconds:.digits$}"),
                        false => format!("{seconds:.digits$} ({:.2})", self.share(rtt, loss, by)),
                    }
                });
                let place = [(*rtt).to_owned(), (*loss).to_owned()];
                rows.push(place.into_iter().chain(ways).collect());
            }
        }
        let columns = ["round trip", "loss"].map(String::from);
        let ways = self.ways.iter().map(|by| title(by));
        Table {
            name: name.to_owned(),
            title: title_of_all.to_owned(),
            columns: columns.into_iter().chain(ways).collect(),
            rows,
        }
    }

    /// Returns a map for each way over proxies; `what` is measured.
    pub(super) fn charts(&self, name: &str, what: &str) -> Vec<NamedChart> {
        let names = |values: &[&str]| values.iter().map(|it| (*it).to_owned()).collect();
        let ways = self.ways.iter().filter(|by| !by.starts_with("plain"));
        let charts = ways.map(|by| {
            let line = |rtt: &&str| {
                let shares = self.losses.iter().map(|loss| self.share(rtt, loss, by));
                shares
                    .map(|it| Some(it).filter(|it| it.is_finite()))
                    .collect()
            };
            let heat = HeatMap {
                columns: names(&self.losses),
                rows: names(&self.rtts),
                values: self.rtts.iter().map(line).collect(),
                worst: WORST,
                best: BEST,
            };
            NamedChart {
                name: format!("{name}-{by}"),
                chart: LineChart {
                    title: format!("{}: {what}, of plain IP's", title(by)),
                    x_label: String::from("loss, each way"),
                    y_label: String::from("round trip"),
                    heat: Some(heat),
                    ..LineChart::default()
                },
            }
        });
        charts.collect()
    }
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected =
        "rtt (\"10 ms\", ...), loss (\"1 %\", ...) and by (plain, unreliable, ...), by these names";
    let keys = ["rtt", "loss", "by"];
    let name = |[rtt, loss, by]: [&str; 3]| format!("{}, {rtt}, loss {loss}", title(by));
    let swept = run_swept(input, &scenario, progress, keys, expected, name)?;
    let cells = swept.into_iter().map(|([rtt, loss, by], runs)| Cell {
        rtt,
        loss,
        by,
        runs,
    });
    let grid = Grid::new(cells.collect(), completion_time);
    input.result(
        scenario.text.clone(),
        grid.compared(input, "")?,
        vec![grid.table(
            "grid",
            "Completion time in seconds (as a share of plain IP's with the same TCP)",
            1,
        )],
        grid.charts("share", "completion time"),
        Vec::new(),
    )
}
