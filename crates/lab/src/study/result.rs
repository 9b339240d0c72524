//! Results of a study.

use serde::{Deserialize, Serialize};

use super::Backend;
use crate::TransferRecord;
use crate::figure::LineChart;

/// The agreement of ours with the paper's statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Ours agrees with the paper.
    Agrees,
    /// Ours differs from the paper.
    Differs,
}

impl Verdict {
    /// Returns its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Differs => "differs",
        }
    }
}

/// One statement of the paper, and our measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The statement's name in the study's `paper.toml`.
    pub id: String,
    /// The assumption of the scenario under which ours holds; empty if there is only one.
    pub case: String,
    /// The compared quantity.
    pub quantity: String,
    /// The paper's words or number.
    pub paper: String,
    /// Ours, with its unit.
    pub ours: String,
    /// The same as numbers, if the paper has numbers.
    #[serde(default)]
    pub points: Vec<Point>,
    /// The agreement of the two.
    pub verdict: Verdict,
    /// The reason for a difference.
    pub explanation: String,
}

/// One of our numbers, and the paper's of the same if it has one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The setting, as "0.5 %", or the quantity if a statement has several.
    pub at: String,
    /// The paper's number; `None` if it has words only.
    pub paper: Option<f64>,
    /// The mean of ours.
    pub ours: f64,
    /// Significant digits after the point.
    pub digits: usize,
}

/// Rows of numbers under headings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The file's name without its ending.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Headings, with units.
    pub columns: Vec<String>,
    /// The cells; each row has as many as there are headings.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with a heading for each cell of a row.
    pub(super) fn new<const N: usize>(
        name: &str,
        title: &str,
        columns: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Table {
        Table {
            name: name.to_owned(),
            title: title.to_owned(),
            columns: columns.map(String::from).into(),
            rows: rows.into_iter().map(Vec::from).collect(),
        }
    }
}

/// A figure and the name of its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedChart {
    /// The files' name without ending; the same on every back end.
    pub name: String,
    /// The figure.
    pub chart: LineChart,
}

/// The statements under a reading of the paper other than its literal text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadingResult {
    /// Its name in the scenario's sweep.
    pub name: String,
    /// Its assumption.
    pub title: String,
    /// The reason for the assumption.
    pub evidence: String,
    /// True if its numbers stand beside those of the literal text.
    pub shown: bool,
    /// The same statements as those of the literal text.
    pub comparisons: Vec<Comparison>,
}

/// One transfer that a study made.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Its name within the study, fit for a file name.
    pub label: String,
    /// Its name for people.
    pub title: String,
    /// The receiver's measurements.
    pub record: TransferRecord,
}

/// The results of a study on one back end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StudyResult {
    /// The study's name.
    pub study: String,
    /// The back end.
    pub backend: Backend,
    /// Version of the program.
    pub version: String,
    /// Kernel and processors, where the run depends on them.
    pub machine: Option<String>,
    /// The command that repeats the run.
    pub command: String,
    /// The scenario as it was run, in TOML.
    pub scenario: String,
    /// Ours beside the paper's.
    pub comparisons: Vec<Comparison>,
    /// The same under other readings of the paper, for studies that try some.
    #[serde(default)]
    pub readings: Vec<ReadingResult>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// The figures.
    pub charts: Vec<NamedChart>,
    /// True if there are files of transfers.
    #[serde(default = "has_transfers")]
    pub has_transfers: bool,
    /// Every transfer; kept in files of their own.
    #[serde(skip)]
    pub transfers: Vec<Transfer>,
}

/// Results of earlier versions always have files of transfers.
fn has_transfers() -> bool {
    true
}

/// Returns the arithmetic mean; `NaN` without values.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values
        .into_iter()
        .fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}
