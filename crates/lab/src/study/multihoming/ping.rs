//! Fig. 3: echo requests over an LTE-like link, by IP and by MobilityFirst.

use super::super::result::mean;
use super::super::trial::run_settings;
use super::super::{Comparison, NamedChart, Progress, StudyInput, StudyResult, Table};
use crate::LabError;
use crate::figure::{LineChart, Series};
use crate::scenario::Setting;
use crate::scenario::run::Run;

/// All runs by one protocol.
struct Way<'a> {
    name: &'a str,
    /// Milliseconds of every answer of each run, as they came.
    answers: Vec<Vec<f64>>,
}

impl Way<'_> {
    /// Returns the mean of the runs' medians, in milliseconds.
    fn median(&self) -> f64 {
        mean(self.answers.iter().map(|run| quantile(run, 0.5)))
    }
}

/// Returns the value below which this part of the values lies; `NaN` without values.
fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * part) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let expected = "by (whimbrel, ip), by this name";
    let names = scenario.settings.iter();
    let names = names.map(|setting| input.swept(setting, "by", expected));
    let names: Vec<&str> = names.collect::<Result<_, _>>()?;
    let title = |setting: &Setting| format!("ping by {}", setting.value("by").unwrap_or_default());
    let runs = run_settings(&scenario, input, progress, title)?;
    let ways = names.into_iter().zip(&runs);
    let ways: Vec<Way<'_>> = ways
        .map(|(name, runs)| Way {
            name,
            answers: runs.iter().map(answers).collect(),
        })
        .collect();
    input.result(
        scenario.text.clone(),
        compared(input, &ways)?,
        vec![table(&ways)],
        vec![chart(input, &ways)],
        Vec::new(),
    )
}

fn answers(run: &Run) -> Vec<f64> {
    let round_trips = run.pinged.iter().flat_map(|(_, it)| &it.round_trips);
    round_trips.map(|seconds| seconds * 1e3).collect()
}

fn compared(input: &StudyInput<'_>, ways: &[Way<'_>]) -> Result<Vec<Comparison>, LabError> {
    let find = |name: &str| ways.iter().find(|way| way.name == name);
    let ours = find("whimbrel")
        .ok_or_else(|| input.bad("the sweep 'by' lacks 'whimbrel'".to_owned()))?
        .median();
    let agrees = input.value("average").is_some_and(|paper| {
        input
            .tolerance("average")
            .is_ok_and(|it| it.admits(paper, ours))
    });
    let numbers = [("median, ms", ours, 3)];
    let mut compared = vec![input.compare_numbers("average", "", agrees, 1, &numbers)];
    if let Some(ip) = find("ip") {
        let more = ours - ip.median();
        for id in ["comparable", "goal"] {
            let agrees = input.range(id)?.admits(more);
            let numbers = [("difference of the medians, ms", more, 3)];
            compared.push(input.compare_numbers(id, "", agrees, 0, &numbers));
        }
    }
    Ok(compared)
}

fn table(ways: &[Way<'_>]) -> Table {
    let row = |way: &Way<'_>| {
        let all: Vec<f64> = way.answers.iter().flatten().copied().collect();
        let parts = [0.0, 0.05, 0.5, 0.95, 1.0].map(|part| format!("{:.3}", quantile(&all, part)));
        let mut row = vec![way.name.to_owned(), all.len().to_string()];
        row.extend(parts);
        row
    };
    let columns = [
        "by",
        "answers",
        "least, ms",
        "5 %, ms",
        "median, ms",
        "95 %, ms",
        "most, ms",
    ];
    Table {
        name: String::from("round-trips"),
        title: String::from("Round trips of all runs"),
        columns: columns.map(String::from).into(),
        rows: ways.iter().map(row).collect(),
    }
}

/// Draws the first run's answers one by one, as the paper does.
fn chart(input: &StudyInput<'_>, ways: &[Way<'_>]) -> NamedChart {
    let series = ways.iter().enumerate().map(|(index, way)| {
        let first = way.answers.first();
        let answers = first.into_iter().flatten();
        let paper = input.value("average").filter(|_| index == 0);
        Series {
            label: way.name.to_owned(),
            points: (1..).map(f64::from).zip(answers.copied()).collect(),
            paper: paper.map(|average| (1.0, average)).into_iter().collect(),
            ..Series::default()
        }
    });
    NamedChart {
        name: String::from("fig3"),
        chart: LineChart {
            title: String::from("Fig. 3: ping over the LTE-like link"),
            x_label: String::from("request"),
            y_label: String::from("round-trip time, ms"),
            series: series.collect(),
            ..LineChart::default()
        },
    }
}
