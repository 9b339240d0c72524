//! The pictures of the demonstration: what arrives over each last link, second by second.
//!
//! They are drawn from the links' counters, not from the file's: a file arrives in chunks of a
//! megabyte, so that a second of a link of 25 Mbit/s ends with three of them or with four.

use std::path::Path;

use serde::Serialize;

use super::{DemoOptions, DemoReport, DemoRun};
use crate::LabError;
use crate::figure::{LineChart, Series, write_stacked};

/// Seconds over which a rate is taken.
const WINDOW: f64 = 1.0;

/// The bytes that one link has brought to the client, over the time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Branch {
    /// The link's name.
    pub link: String,
    /// Seconds since the request, and bytes of IP packets that had arrived by then.
    pub samples: Vec<(f64, u64)>,
}

impl Branch {
    /// Returns bit/s over the second before each sample. Shorter spans are left out: a few packets
    /// more or less would look like a burst.
    pub fn rates(&self) -> Vec<(f64, f64)> {
        let mut rates = Vec::new();
        let mut first = 0;
        for (index, (at, bytes)) in self.samples.iter().enumerate() {
            let begins = |it: &(f64, u64)| at - it.0 >= WINDOW * 0.99;
            while first + 1 < index && begins(&self.samples[first + 1]) {
                first += 1;
            }
            let (from, before) = self.samples[first];
            if begins(&self.samples[first]) {
                let rate = bytes.saturating_sub(before) as f64 * 8.0 / (at - from);
                rates.push((*at, rate));
            }
        }
        rates
    }
}

/// Returns what all branches bring together; they are sampled at the same times.
fn sum(branches: &[Branch]) -> Branch {
    let mut all = branches.first().cloned().unwrap_or_default();
    for branch in branches.iter().skip(1) {
        for (all, one) in all.samples.iter_mut().zip(&branch.samples) {
            all.1 += one.1;
        }
    }
    all
}

fn line(branch: &Branch, label: &str) -> Series {
    let mbit = |(at, rate)| (at, rate / 1e6);
    Series {
        label: label.to_owned(),
        points: branch.rates().into_iter().map(mbit).collect(),
        ..Series::default()
    }
}

/// Writes `stem`.svg and `stem`.png.
pub(super) fn draw(report: &DemoReport, stem: &Path) -> Result<(), LabError> {
    let options = &report.options;
    if options.links == 1 {
        let last = |run: &DemoRun| line(&sum(&run.branches), &options.name_of(run.side));
        let chart = LineChart {
            title: format!(
                "{:.0} MB over {:.0} Mbit/s, RTT {:.0} ms, loss {:.1} % on the last hop",
                report.file_len as f64 / 1e6,
                options.rate as f64 / 1e6,
                options.rtt.as_secs_f64() * 1e3,
                options.loss * 100.0
            ),
            series: report.runs().map(last).collect(),
            ..plain(options, "link out")
        };
        return chart.write(stem);
    }
    let ends = report.runs().map(|run| run.record.finished);
    let rates = report.runs().flat_map(|run| sum(&run.branches).rates());
    let highest = rates.map(|(_, rate)| rate / 1e6);
    let reach = (ends.fold(0.0, f64::max), highest.fold(0.0, f64::max));
    let charts = report.runs().map(|run| of_branches(options, run, reach));
    write_stacked(&charts.collect::<Vec<_>>(), stem)
}

/// Draws the branches of one side.
fn of_branches(options: &DemoOptions, run: &DemoRun, reach: (f64, f64)) -> LineChart {
    let name = options.name_of(run.side);
    let ended = match run.record.completed {
        true => format!("done after {:.1} s", run.record.finished),
        false => format!("not done after {:.0} s", run.record.finished),
    };
    let mut series = vec![line(&sum(&run.branches), "both links")];
    series.extend(run.branches.iter().map(|it| line(it, &it.link)));
    LineChart {
        title: format!("{name}: {ended}"),
        series,
        reach,
        ..plain(options, "wifi out")
    }
}

/// Returns a chart without lines, with the outage.
fn plain(options: &DemoOptions, what: &str) -> LineChart {
    let start = options.outage_after.as_secs_f64();
    let end = start + options.outage.as_secs_f64();
    let mut shaded = vec![(start, end, what.to_owned())];
    shaded.retain(|(from, to, _)| to > from);
    LineChart {
        x_label: String::from("seconds since the request"),
        y_label: String::from("arriving at the client, Mbit/s"),
        shaded,
        ..LineChart::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_a_whole_second_up_to_the_end() {
        // 25 Mbit/s, sampled unevenly, and an end soon after the last sample.
        let times = [0.0, 0.5, 1.0, 1.52, 2.0, 2.5, 2.58];
        let branch = Branch {
            link: "wifi".into(),
            samples: times.map(|at| (at, (at * 3_125_000.0) as u64)).to_vec(),
        };
        let rates = branch.rates();
        let at: Vec<f64> = rates.iter().map(|(at, _)| *at).collect();
        assert_eq!(at, [1.0, 1.52, 2.0, 2.5, 2.58]);
        for (at, rate) in rates {
            assert!((rate - 25e6).abs() < 100.0, "{rate} at {at}");
        }
    }

    #[test]
    fn branches_add_up() {
        let branch = |bytes| Branch {
            link: String::from("one"),
            samples: vec![(0.0, 0), (1.0, bytes)],
        };
        let all = sum(&[branch(1_000_000), branch(500_000)]);
        assert_eq!(all.rates(), [(1.0, 12e6)]);
        assert!(sum(&[]).rates().is_empty());
    }
}
