//! Studies: a paper's figure again, drawn by the code that ships.
//!
//! A study is a folder `studies/NAME/`: `scenario.toml` with the parameters, `paper.toml` with the paper's own
//! statements, and a README that says what was assumed where the paper is silent. Nothing here is tuned towards the paper:
//! a deviation is shown beside it and explained.

mod disconnection;
mod report;
mod throughput;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::figure::LineChart;
pub use report::write_report;

/// What runs the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Virtual time, smoltcp as the rival.
    Sim,
    /// Real daemons, the kernel's TCP, emulated links in real time.
    Netns,
}

impl Backend {
    /// As the command line says it.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Sim => "sim",
            Backend::Netns => "netns",
        }
    }
}

/// How a study is to be run.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// What runs it.
    pub backend: Backend,
    /// Replaces the scenario file that came with the program.
    pub scenario: Option<PathBuf>,
    /// Replaces the scenario's number of runs.
    pub runs: Option<u32>,
    /// Of everything random.
    pub seed: u64,
    /// The whimbrel binary, for daemons in namespaces.
    pub program: PathBuf,
}

/// One statement of the paper, and what we measured.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub quantity: String,
    /// The paper's words or number.
    pub paper: String,
    /// Ours.
    pub ours: String,
    /// Whether the two agree, or how far they are apart.
    pub deviation: String,
    /// Why, where they differ.
    pub explanation: String,
}

/// Rows of numbers under headings.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The file's name without its ending.
    pub name: String,
    /// Headings.
    pub columns: Vec<String>,
    /// As many cells in each as there are headings.
    pub rows: Vec<Vec<String>>,
}

/// What a study found.
#[derive(Clone, Debug, Serialize)]
pub struct StudyResult {
    /// Its name.
    pub study: String,
    /// What ran it.
    pub backend: Backend,
    /// The scenario as it was run.
    pub scenario: serde_json::Value,
    /// Ours beside the paper's.
    pub comparisons: Vec<Comparison>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// The figures, by file name without ending.
    #[serde(skip)]
    pub charts: Vec<(String, LineChart)>,
}

/// Told how far a study is: done and all, in runs.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize, &str);

/// A study that this program knows.
pub struct Study {
    /// As on the command line.
    pub name: &'static str,
    /// One line.
    pub title: &'static str,
    /// Where the text is.
    pub source: &'static str,
    scenario: &'static str,
    paper: &'static str,
    run: fn(&StudyInput<'_>, Progress<'_>) -> Result<StudyResult, LabError>,
}

/// What a study's code works from.
struct StudyInput<'a> {
    study: &'a Study,
    options: &'a StudyOptions,
    scenario: String,
    paper: Paper,
}

/// `paper.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
    statement: Vec<Statement>,
}

/// One statement of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    /// Names the quantity for the study's code.
    id: String,
    /// What it is.
    quantity: String,
    /// The paper's words.
    says: String,
    /// Why ours may differ.
    #[serde(default)]
    note: String,
}

/// All studies.
pub const STUDIES: [Study; 3] = [
    Study {
        name: "mftp-fig8",
        title: "MFTP and TCP at three round-trip times, with and without 1 % loss on the last hop",
        source: "seed 000_503ecb02b427ee24.txt, section 5.1, Fig. 8 (a) and (b)",
        scenario: include_str!("../../../../studies/mftp-fig8/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig8/paper.toml"),
        run: throughput::run,
    },
    Study {
        name: "mftp-fig9",
        title: "Response times over a disconnection of 10 s and of 30 s: MFTP's proxy and TCP",
        source: "seed 000_503ecb02b427ee24.txt, section 5.2, Fig. 9 (a) and (b)",
        scenario: include_str!("../../../../studies/mftp-fig9/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig9/paper.toml"),
        run: disconnection::run,
    },
    Study {
        name: "mftp-fig10",
        title: "Network-proactive and receiver-driven retransmission over a disconnection of 10 s",
        source: "seed 000_503ecb02b427ee24.txt, section 5.2.1, Fig. 10",
        scenario: include_str!("../../../../studies/mftp-fig10/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig10/paper.toml"),
        run: disconnection::run,
    },
];

impl Study {
    /// The study of this name.
    pub fn find(name: &str) -> Option<&'static Study> {
        STUDIES.iter().find(|study| study.name == name)
    }

    /// Runs it.
    pub fn run(&self, options: &StudyOptions, progress: Progress<'_>) -> Result<StudyResult, LabError> {
        let scenario = match &options.scenario {
            None => self.scenario.to_owned(),
            Some(path) => std::fs::read_to_string(path)
                .map_err(LabError::system(format!("read the scenario {}", path.display())))?,
        };
        let paper = toml::from_str(self.paper).map_err(|fault| bad_file(self.name, "paper.toml", &fault))?;
        (self.run)(&StudyInput { study: self, options, scenario, paper }, progress)
    }
}

impl StudyInput<'_> {
    fn scenario<T: serde::de::DeserializeOwned>(&self) -> Result<T, LabError> {
        let file = self.options.scenario.as_deref().unwrap_or(Path::new("scenario.toml"));
        let mut scenario: toml::Table = toml::from_str(&self.scenario)
            .map_err(|fault| bad_file(self.study.name, &file.display().to_string(), &fault))?;
        if let Some(runs) = self.options.runs {
            scenario.insert(String::from("runs"), i64::from(runs).into());
        }
        scenario.try_into().map_err(|fault| bad_file(self.study.name, &file.display().to_string(), &fault))
    }

    /// The paper's statement beside ours.
    fn compare(&self, id: &str, ours: String, agrees: bool) -> Comparison {
        let statement = self.paper.statement.iter().find(|statement| statement.id == id);
        Comparison {
            quantity: statement.map_or(id, |statement| &statement.quantity).to_owned(),
            paper: statement.map_or("-", |statement| &statement.says).to_owned(),
            ours,
            deviation: if agrees { "agrees" } else { "differs" }.to_owned(),
            explanation: statement.map_or("", |statement| &statement.note).to_owned(),
        }
    }
}

fn bad_file(study: &str, file: &str, fault: &dyn std::fmt::Display) -> LabError {
    LabError::BadScenario { study: study.to_owned(), reason: format!("{file}: {fault}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_every_study_are_well_formed() {
        for study in &STUDIES {
            let paper: Paper = toml::from_str(study.paper).unwrap();
            assert!(!paper.statement.is_empty(), "{}", study.name);
            let _: toml::Table = toml::from_str(study.scenario).unwrap();
        }
    }
}
