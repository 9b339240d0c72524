//! Beyond the paper: a web page of many small objects in a real browser, by round trip and loss.

use super::super::trial::{distinct, run_swept};
use super::super::{Progress, StudyInput, StudyResult};
use super::grid::{Cell, Grid};
use super::{completion_times, title};
use crate::LabError;
use crate::scenario::run::Run;

/// Returns the median time of a cell's runs: a browser's start disturbs some of them.
fn median(runs: &[Run]) -> f64 {
    let mut times: Vec<f64> = completion_times(runs).collect();
    times.sort_by(f64::total_cmp);
    let Some(last) = times.len().checked_sub(1) else {
        return f64::NAN;
    };
    (times[last / 2] + times[last.div_ceil(2)]) / 2.0
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected = "http (\"HTTP/2\", ...), rtt (\"10 ms\", ...), loss (\"1 %\", ...) and by (plain, unreliable, \
                    ...), by these names";
    let keys = ["http", "rtt", "loss", "by"];
    let name =
        |[http, rtt, loss, by]: [&str; 4]| format!("{http}, {}, {rtt}, loss {loss}", title(by));
    let mut cells = run_swept(input, &scenario, progress, keys, expected, name)?;
    let (mut comparisons, mut tables, mut charts) = (Vec::new(), Vec::new(), Vec::new());
    for http in distinct(cells.iter().map(|([http, ..], _)| *http)) {
        let own = cells.extract_if(.., |([it, ..], _)| *it == http);
        let own = own.map(|([_, rtt, loss, by], runs)| Cell {
            rtt,
            loss,
            by,
            runs,
        });
        let grid = Grid::new(own.collect(), median);
        let short = http.to_lowercase().replace(['/', '.'], "-");
        let all = format!("{http}: median load time in seconds (as a share of plain IP's)");
        comparisons.extend(grid.compared(input, http)?);
        tables.push(grid.table(&short, &all, 2));
        charts.extend(grid.charts(&short, &format!("{http}, load time")));
    }
    input.result(
        scenario.text.clone(),
        comparisons,
        tables,
        charts,
        Vec::new(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::run::Fetched;
    use crate::{TransferMeter, TransferRecord};
    use std::time::{Duration, Instant};

    #[test]
    fn the_median_is_in_the_middle() {
        let run = |seconds: u64| {
            let start = Instant::now();
            let end = start + Duration::from_secs(seconds);
            let mut meter = TransferMeter::new(start);
            meter.arrived(end, 1);
            let record: TransferRecord = meter.finish(end, true);
            let name = String::from("page");
            Run {
                transfers: vec![Fetched {
                    name,
                    asked: 0.0,
                    record,
                }],
                ..Run::default()
            }
        };
        assert_eq!(median(&[run(9), run(1), run(2)]), 2.0);
        assert_eq!(median(&[run(9), run(1), run(2), run(3)]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
