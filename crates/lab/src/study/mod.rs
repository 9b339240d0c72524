//! Studies: a paper's figure again, drawn by the code that ships.
//!
//! A study is a folder `studies/NAME/`: `scenario.toml` with the parameters, `paper.toml` with the
//! paper's own statements, and a README with the assumptions where the paper is silent.
//! Nothing here is tuned towards the paper: a deviation is shown beside it and explained.

mod archive;
mod belrp;
mod disconnection;
mod flent;
mod gstar;
mod jobs;
mod list;
mod m2m;
mod multicast;
mod multihoming;
mod name_service;
pub(crate) mod page;
mod ptp;
mod result;
mod statistics;
mod tcpicn;
mod throughput;
mod trial;
mod web;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::figure::Series;
use crate::journal::{BatchTerms, Journal};
use crate::scenario::statement::{Range, Tolerance};
use crate::scenario::{Overrides, Scenario, Setting};
pub use archive::{read_results, write_result};
pub use list::STUDIES;
pub use page::{Pages, write_pages};
pub use result::{
    Comparison, NamedChart, Point, ReadingResult, StudyResult, Table, Transfer, Verdict,
};

/// The back end of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Virtual time; the rival is smoltcp.
    Sim,
    /// Real daemons, the kernel's TCP, emulated links in real time.
    Netns,
}

impl Backend {
    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Backend::Sim => "sim",
            Backend::Netns => "netns",
        }
    }

    /// Returns its name in pages.
    pub const fn title(self) -> &'static str {
        match self {
            Backend::Sim => "Simulator",
            Backend::Netns => "Namespaces",
        }
    }

    /// All back ends, in the order in which they are shown.
    pub const ALL: [Backend; 2] = [Backend::Sim, Backend::Netns];
}

/// The options of a study.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// The back end.
    pub backend: Backend,
    /// Replaces the scenario file that came with the program.
    pub scenario: Option<PathBuf>,
    /// Replaces the scenario's number of runs.
    pub runs: Option<u32>,
    /// The seed of everything random.
    pub seed: u64,
    /// Bound of the parallel transfers; `None` for as many as the machine's processors can carry.
    pub jobs: Option<usize>,
    /// The whimbrel binary, for daemons in namespaces.
    pub program: PathBuf,
    /// Keeps the finished runs, and has those of a batch that was interrupted.
    pub journal: Option<Arc<Journal>>,
}

pub use crate::jobs::Progress;

/// A study that this program knows.
pub struct Study {
    /// Its name on the command line.
    pub name: &'static str,
    /// A title of one line.
    pub title: &'static str,
    /// The paper and its section.
    pub source: &'static str,
    scenario: &'static str,
    paper: &'static str,
    readme: &'static str,
    /// The back ends that can run it.
    backends: &'static [Backend],
    /// Transfers in real time that one processor carries without slowing them.
    transfers_per_processor: usize,
    run: fn(&StudyInput<'_>, Progress<'_>) -> Result<StudyResult, LabError>,
}

/// The input of a study's code.
struct StudyInput<'a> {
    study: &'a Study,
    options: &'a StudyOptions,
    scenario: String,
    paper: PaperNumbers,
}

/// `paper.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperNumbers {
    statement: Vec<Statement>,
    /// The columns of all `numbers`: the steps of the paper's scenario.
    #[serde(default)]
    steps: Vec<f64>,
    #[serde(default)]
    numbers: Vec<Numbers>,
}

/// A table of a paper, or the data of its figure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Numbers {
    /// The quantity, by the name in the study's code.
    id: String,
    /// The place of the numbers in the paper.
    source: String,
    /// One row of numbers, in the order of the steps, for each of the paper's variants.
    rows: BTreeMap<String, Vec<f64>>,
}

/// One statement of a paper.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    /// The quantity, by the name in the study's code.
    id: String,
    /// The quantity.
    quantity: String,
    /// The paper's words.
    says: String,
    /// The largest difference with which our numbers agree.
    #[serde(default)]
    tolerance: Option<Tolerance>,
    /// The range in which ours agrees with the paper's words.
    #[serde(default)]
    range: Option<Range>,
    /// The unit of tolerance, range and value.
    #[serde(default)]
    unit: String,
    /// The paper's own number, where its words have one.
    #[serde(default)]
    value: Option<f64>,
    /// The reason for a difference.
    #[serde(default)]
    note: String,
    /// Notes for the simulator, or for namespaces, only.
    #[serde(default)]
    note_sim: String,
    #[serde(default)]
    note_netns: String,
    /// The remaining reason for a difference under another reading of the paper, by its name.
    #[serde(default)]
    notes: BTreeMap<String, String>,
}

impl Statement {
    /// Returns the quantity, and the condition of agreement.
    fn judged(&self) -> String {
        let by = [
            self.tolerance.map(|it| it.in_unit(&self.unit)),
            self.range
                .map(|range| format!("{range} {}", self.unit).trim_end().to_owned()),
        ];
        let by: Vec<String> = by.into_iter().flatten().collect();
        if by.is_empty() {
            return self.quantity.clone();
        }
        format!("{} (agrees: {})", self.quantity, by.join(", "))
    }
}

impl Study {
    /// Returns the study of this name.
    pub fn find(name: &str) -> Option<&'static Study> {
        STUDIES.iter().find(|study| study.name == name)
    }

    /// Runs the study.
    pub fn run(
        &self,
        options: &StudyOptions,
        progress: Progress<'_>,
    ) -> Result<StudyResult, LabError> {
        if !self.runs_on(options.backend) {
            return Err(LabError::NotOnBackend {
                study: self.name,
                backend: options.backend.name(),
                other: self.default_backend().name(),
            });
        }
        let scenario = self.scenario_text(options)?;
        (self.run)(
            &StudyInput {
                study: self,
                options,
                scenario,
                paper: self.paper()?,
            },
            progress,
        )
    }

    /// Returns the terms of a run with these options.
    pub fn terms(&self, options: &StudyOptions) -> Result<BatchTerms, LabError> {
        Ok(BatchTerms::new(
            &self.scenario_text(options)?,
            options.backend.name(),
            Some(options.seed),
            options.runs,
        ))
    }

    fn scenario_text(&self, options: &StudyOptions) -> Result<String, LabError> {
        let Some(path) = &options.scenario else {
            return Ok(self.scenario.to_owned());
        };
        std::fs::read_to_string(path).map_err(LabError::system(format!(
            "read the scenario {}",
            path.display()
        )))
    }

    /// Returns true if this back end can run it.
    pub fn runs_on(&self, backend: Backend) -> bool {
        self.backends.contains(&backend)
    }

    /// Returns the back end that runs it unless another one is named.
    pub fn default_backend(&self) -> Backend {
        self.backends.first().copied().unwrap_or(Backend::Sim)
    }

    /// Returns what a page says in place of the results of a back end that cannot run it.
    fn only(&self) -> String {
        format!("{} only", self.default_backend().title().to_lowercase())
    }

    fn paper(&self) -> Result<PaperNumbers, LabError> {
        toml::from_str(self.paper).map_err(|fault| bad_file(self.name, "paper.toml", &fault))
    }
}

impl StudyInput<'_> {
    /// Returns the scenario for its back end.
    fn scenario(&self) -> Result<Scenario, LabError> {
        let file = self.options.scenario.clone();
        let file = file.unwrap_or_else(|| {
            Path::new("studies")
                .join(self.study.name)
                .join("scenario.toml")
        });
        let overrides = Overrides {
            seed: Some(self.options.seed),
            runs: self.options.runs,
            backend: Some(self.options.backend),
        };
        let scenario = Scenario::parse(&file, &self.scenario, overrides)?;
        if self.is_replaced() {
            let own = Scenario::parse(&file, self.study.scenario, overrides)?;
            self.check_sweep(&scenario, &own)?;
        }
        Ok(scenario)
    }

    /// Returns true if the scenario is not the one that came with the program: what is compared with
    /// the paper is then not what the paper has measured.
    fn is_replaced(&self) -> bool {
        self.scenario != self.study.scenario
    }

    /// Refuses a scenario that sweeps a key that this study does not: its code would take the runs of
    /// all values for one.
    fn check_sweep(&self, scenario: &Scenario, own: &Scenario) -> Result<(), LabError> {
        let keys = |of: &Scenario| -> Vec<String> {
            let first = of.settings.first().into_iter();
            let values = first.flat_map(|setting| &setting.values);
            values.map(|(key, _)| key.clone()).collect()
        };
        let known = keys(own);
        match keys(scenario).into_iter().find(|key| !known.contains(key)) {
            Some(key) => Err(self.bad(format!(
                "it sweeps {key}, which this study does not know; it sweeps {}. `whimbrel lab run` runs any scenario",
                match known.is_empty() {
                    true => String::from("nothing"),
                    false => known.join(", "),
                }
            ))),
            None => Ok(()),
        }
    }

    /// Returns the error for a scenario that this study's code cannot use.
    fn bad(&self, reason: String) -> LabError {
        LabError::BadScenario {
            study: self.study.name.to_owned(),
            reason,
        }
    }

    /// Returns a setting's value of a key that the study's code needs. `expected` says what the study
    /// sweeps.
    fn swept<'s>(
        &self,
        setting: &'s Setting,
        key: &str,
        expected: &str,
    ) -> Result<&'s str, LabError> {
        let value = setting.value(key);
        value.ok_or_else(|| self.bad(format!("this study sweeps {expected}")))
    }

    /// Returns the paper's statement beside ours. `case` names the assumption of the scenario.
    fn compare(&self, id: &str, case: &str, ours: String, agrees: bool) -> Comparison {
        let statement = self.statement(id).cloned().unwrap_or_default();
        let quantity = statement.judged();
        let own_note = match self.options.backend {
            Backend::Sim => statement.note_sim,
            Backend::Netns => statement.note_netns,
        };
        let replaced = match self.is_replaced() {
            true => "Measured in another scenario than the paper's (--scenario). ",
            false => "",
        };
        Comparison {
            id: id.to_owned(),
            case: case.to_owned(),
            quantity,
            paper: statement.says,
            ours,
            points: Vec::new(),
            verdict: if agrees {
                Verdict::Agrees
            } else {
                Verdict::Differs
            },
            explanation: format!("{replaced}{} {own_note}", statement.note)
                .trim()
                .to_owned(),
        }
    }

    /// Returns a comparison of numbers, each with a name and its significant digits after the
    /// point. The first `stated` ones are compared with the statement's own value; unmeasured
    /// numbers are left out.
    fn compare_numbers(
        &self,
        id: &str,
        case: &str,
        agrees: bool,
        stated: usize,
        numbers: &[(&str, f64, usize)],
    ) -> Comparison {
        let value = self.statement(id).and_then(|statement| statement.value);
        let points = numbers.iter().enumerate();
        let points = points.map(|(index, (at, ours, digits))| Point {
            at: (*at).to_owned(),
            paper: value.filter(|_| index < stated),
            ours: *ours,
            digits: *digits,
        });
        let points: Vec<Point> = points.filter(|point| point.ours.is_finite()).collect();
        let said = points
            .iter()
            .map(|point| format!("{} {:.*}", point.at, point.digits, point.ours));
        let said = said.collect::<Vec<_>>().join("; ");
        Comparison {
            points,
            ..self.compare(id, case, said, agrees)
        }
    }

    /// Returns the paper's own number of a statement.
    fn value(&self, id: &str) -> Option<f64> {
        self.statement(id)?.value
    }

    /// Returns true if a number agrees with a statement's value, within its tolerance, or the statement has none.
    fn agrees_with_value(&self, id: &str, ours: f64) -> Result<bool, LabError> {
        match self.value(id) {
            Some(wanted) => Ok(self.tolerance(id)?.admits(wanted, ours)),
            None => Ok(true),
        }
    }

    fn statement(&self, id: &str) -> Option<&Statement> {
        self.paper
            .statement
            .iter()
            .find(|statement| statement.id == id)
    }

    /// Returns the reason for differences under another reading of the paper.
    fn note(&self, id: &str, reading: &str) -> Option<&str> {
        let note = self.statement(id)?.notes.get(reading)?;
        Some(note)
    }

    /// Returns the tolerance of a statement.
    fn tolerance(&self, id: &str) -> Result<Tolerance, LabError> {
        self.statement(id)
            .and_then(|statement| statement.tolerance)
            .ok_or_else(|| self.bad(format!("paper.toml: the statement '{id}' has no tolerance")))
    }

    /// Returns the range of a statement.
    fn range(&self, id: &str) -> Result<Range, LabError> {
        self.statement(id)
            .and_then(|statement| statement.range)
            .ok_or_else(|| self.bad(format!("paper.toml: the statement '{id}' has no range")))
    }

    /// Returns the paper's number of this quantity, for one of its variants at one step of its
    /// scenario.
    fn published(&self, id: &str, variant: &str, step: f64) -> Option<f64> {
        let step = self.paper.steps.iter().position(|known| *known == step)?;
        let numbers = self.paper.numbers.iter().find(|numbers| numbers.id == id)?;
        // A table may have a gap: "nan".
        numbers
            .rows
            .get(variant)?
            .get(step)
            .copied()
            .filter(|number| number.is_finite())
    }

    /// Returns the place of these numbers in the paper.
    fn published_in(&self, id: &str) -> &str {
        self.paper
            .numbers
            .iter()
            .find(|numbers| numbers.id == id)
            .map_or("", |numbers| &numbers.source)
    }

    /// Returns the result, with everything that is needed to repeat it.
    fn result(
        &self,
        scenario: String,
        comparisons: Vec<Comparison>,
        tables: Vec<Table>,
        charts: Vec<NamedChart>,
        transfers: Vec<Transfer>,
    ) -> Result<StudyResult, LabError> {
        let name = self.study.name;
        let mut charts = charts;
        for named in &mut charts {
            named.chart.series.iter_mut().for_each(Series::keep_finite);
        }
        Ok(StudyResult {
            study: name.to_owned(),
            backend: self.options.backend,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: (self.options.backend == Backend::Netns).then(machine),
            command: self.study.command(self.options),
            scenario,
            comparisons,
            readings: Vec::new(),
            tables,
            charts,
            has_transfers: !transfers.is_empty(),
            transfers,
        })
    }
}

impl Study {
    fn jobs(&self, options: &StudyOptions) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        options.jobs.unwrap_or(match options.backend {
            Backend::Sim => processors,
            Backend::Netns => processors * self.transfers_per_processor,
        })
    }

    /// Returns the command that repeats a run with these options.
    fn command(&self, options: &StudyOptions) -> String {
        let (backend, seed) = (options.backend.name(), options.seed);
        let mut command = format!(
            "whimbrel study run {} --backend {backend} --seed {seed}",
            self.name
        );
        if let Some(runs) = options.runs {
            command += &format!(" --runs {runs}");
        }
        if options.backend == Backend::Netns {
            // Parallel transfers share the processors, which does not matter in virtual time.
            command += &format!(" --jobs {}", self.jobs(options));
        }
        if let Some(scenario) = options.scenario.as_deref().and_then(Path::file_name) {
            command += &format!(" --scenario {}", scenario.display());
        }
        command
    }
}

/// Describes the machine, on which measurements in real time depend.
fn machine() -> String {
    let kernel = rustix::system::uname();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "Linux {}, {processors} processors",
        kernel.release().to_string_lossy()
    )
}

fn bad_file(study: &str, file: &str, fault: &dyn std::fmt::Display) -> LabError {
    LabError::BadScenario {
        study: study.to_owned(),
        reason: format!("{file}: {fault}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_every_study_are_well_formed() {
        for study in &STUDIES {
            let paper: PaperNumbers = toml::from_str(study.paper).unwrap();
            assert!(!paper.statement.is_empty(), "{}", study.name);
            let file = Path::new(study.name).join("scenario.toml");
            if study.name == "gstar" {
                // It has several scenarios.
                let parameters = gstar::GstarParameters::parse(study.scenario);
                let parameters = parameters.unwrap_or_else(|fault| panic!("{fault}"));
                for (name, table) in parameters.scenarios() {
                    let text = toml::to_string(table).unwrap();
                    let overrides = Overrides {
                        backend: Some(Backend::Sim),
                        ..Overrides::default()
                    };
                    Scenario::parse(&file, &text, overrides)
                        .unwrap_or_else(|faults| panic!("{name}: {faults}"));
                }
                continue;
            }
            if study.name == "gnrs-scale" {
                // It has no network of nodes and links.
                name_service::NameServiceParameters::parse(study.scenario)
                    .unwrap_or_else(|fault| panic!("{fault}"));
                continue;
            }
            for backend in study.backends {
                let overrides = Overrides {
                    backend: Some(*backend),
                    ..Overrides::default()
                };
                Scenario::parse(&file, study.scenario, overrides)
                    .unwrap_or_else(|faults| panic!("{faults}"));
            }
        }
    }
}
