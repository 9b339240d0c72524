//! Studies: a paper's figure again, drawn by the code that ships.
//!
//! A study is a folder `studies/NAME/`: `scenario.toml` with the parameters, `paper.toml` with the
//! paper's own statements, and a README with the assumptions where the paper is silent.
//! Nothing here is tuned towards the paper: a deviation is shown beside it and explained.

mod archive;
mod belrp;
mod disconnection;
mod flent;
mod jobs;
mod multihoming;
pub(crate) mod page;
mod ptp;
mod result;
mod statistics;
mod tcpicn;
mod throughput;
mod trial;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::figure::Series;
use crate::scenario::statement::{Range, Tolerance};
use crate::scenario::{Overrides, Scenario};
pub use archive::{read_results, write_result};
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
    paper: Paper,
}

/// `paper.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paper {
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
    /// The unit of the range and the value.
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
            self.tolerance.map(|tolerance| tolerance.to_string()),
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

/// Papers by their titles, which readers of a page know; keys are for code.
macro_rules! mftp {
    () => {
        "Su et al., \"MFTP: A Clean-Slate Transport Protocol for the Information Centric MobilityFirst \
         Network\" (ICN 2015)"
    };
}
macro_rules! belrp {
    () => {
        "Vusirikala et al., \"Hop-By-Hop Best Effort Link Layer Reliability in Named Data Networking\""
    };
}

macro_rules! ptp {
    () => {
        "Ye et al., \"PTP: Path-specified Transport Protocol for Concurrent Multipath Transmission in Named Data \
         Networks\" (Computer Networks 2018)"
    };
}

macro_rules! tcpicn {
    () => {
        "Moiseenko and Oran, \"TCP/ICN: Carrying TCP over Content Centric and Named Data Networks\" (ICN 2016)"
    };
}
macro_rules! multihoming {
    () => {
        "Karimi et al., \"Evaluating 5G Multihoming Services in the MobilityFirst Future Internet Architecture\""
    };
}

/// All studies.
pub const STUDIES: [Study; 18] = [
    Study {
        name: "mftp-fig8",
        title: "MFTP and TCP at three round-trip times, with and without 1 % loss on the last hop",
        source: concat!(mftp!(), ", section 5.1, Fig. 8 (a) and (b)"),
        scenario: include_str!("../../../../studies/mftp-fig8/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig8/paper.toml"),
        readme: include_str!("../../../../studies/mftp-fig8/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 1,
        run: throughput::run,
    },
    Study {
        name: "mftp-fig9",
        title: "Response times over a disconnection of 10 s and of 30 s: MFTP's proxy and TCP",
        source: concat!(mftp!(), ", section 5.2, Fig. 9 (a) and (b)"),
        scenario: include_str!("../../../../studies/mftp-fig9/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig9/paper.toml"),
        readme: include_str!("../../../../studies/mftp-fig9/README.md"),
        backends: &Backend::ALL,
        // They wait for most of their time.
        transfers_per_processor: 2,
        run: disconnection::run,
    },
    Study {
        name: "mftp-fig10",
        title: "Network-proactive and receiver-driven retransmission over a disconnection of 10 s",
        source: concat!(mftp!(), ", section 5.2.1, Fig. 10"),
        scenario: include_str!("../../../../studies/mftp-fig10/scenario.toml"),
        paper: include_str!("../../../../studies/mftp-fig10/paper.toml"),
        readme: include_str!("../../../../studies/mftp-fig10/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 2,
        run: disconnection::run,
    },
    Study {
        name: "belrp-linear",
        title: "Recovery of losses on each link of a line of six nodes, at six rates of loss",
        source: concat!(belrp!(), ", section IV, Figs. 2 (a), 2 (c) and 3, Table II"),
        scenario: include_str!("../../../../studies/belrp-linear/scenario.toml"),
        paper: include_str!("../../../../studies/belrp-linear/paper.toml"),
        readme: include_str!("../../../../studies/belrp-linear/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: belrp::linear::run,
    },
    Study {
        name: "belrp-hops",
        title: "Recovery of losses on each link of a line of two to eight nodes, at 5 % loss",
        source: concat!(
            belrp!(),
            ", section IV, Figs. 2 (b), 2 (d) and 6 (a), Table III"
        ),
        scenario: include_str!("../../../../studies/belrp-hops/scenario.toml"),
        paper: include_str!("../../../../studies/belrp-hops/paper.toml"),
        readme: include_str!("../../../../studies/belrp-hops/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: belrp::hops::run,
    },
    Study {
        name: "belrp-abilene",
        title: "Recovery of losses on the links of the Abilene network: delay, traffic, buffers",
        source: concat!(
            belrp!(),
            ", section IV, Figs. 4, 5, 6 (b) and 7, Tables IV and V"
        ),
        scenario: include_str!("../../../../studies/belrp-abilene/scenario.toml"),
        paper: include_str!("../../../../studies/belrp-abilene/paper.toml"),
        readme: include_str!("../../../../studies/belrp-abilene/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: belrp::abilene::run,
    },
    Study {
        name: "ptp-tree",
        title: "Four producers behind a tree: PTP and its rivals, link by link",
        source: concat!(ptp!(), ", section 6-B, Figs. 13 and 14"),
        scenario: include_str!("../../../../studies/ptp-tree/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-tree/paper.toml"),
        readme: include_str!("../../../../studies/ptp-tree/README.md"),
        backends: &Backend::ALL,
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::networks::run,
    },
    Study {
        name: "ptp-diamond",
        title: "Four paths that share links: PTP and its rivals, link by link",
        source: concat!(ptp!(), ", section 6-C, Figs. 16 and 17"),
        scenario: include_str!("../../../../studies/ptp-diamond/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-diamond/paper.toml"),
        readme: include_str!("../../../../studies/ptp-diamond/README.md"),
        backends: &Backend::ALL,
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::networks::run,
    },
    Study {
        name: "ptp-fairness",
        title: "Two paths of one consumer beside one of another, over a shared bottleneck",
        source: concat!(ptp!(), ", section 6-D, Figs. 19 and 20"),
        scenario: include_str!("../../../../studies/ptp-fairness/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-fairness/paper.toml"),
        readme: include_str!("../../../../studies/ptp-fairness/README.md"),
        backends: &[Backend::Sim],
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::fairness::run,
    },
    Study {
        name: "ptp-cache",
        title: "A path past a cache with half of the content, up to where the cache ends",
        source: concat!(ptp!(), ", section 6-E, Figs. 22 and 23"),
        scenario: include_str!("../../../../studies/ptp-cache/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-cache/paper.toml"),
        readme: include_str!("../../../../studies/ptp-cache/README.md"),
        backends: &[Backend::Sim],
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::cache::run,
    },
    Study {
        name: "ptp-mesh",
        title: "A hierarchical mesh with detours: PTP and its rivals, link by link",
        source: concat!(ptp!(), ", section 6-F, Table I"),
        scenario: include_str!("../../../../studies/ptp-mesh/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-mesh/paper.toml"),
        readme: include_str!("../../../../studies/ptp-mesh/README.md"),
        backends: &Backend::ALL,
        // Namespaces share the processors that its routers need.
        transfers_per_processor: 1,
        run: ptp::networks::run,
    },
    Study {
        name: "ptp-random",
        title: "100 random networks with 1 % loss on each link: PTP and its rivals",
        source: concat!(ptp!(), ": beyond it"),
        scenario: include_str!("../../../../studies/ptp-random/scenario.toml"),
        paper: include_str!("../../../../studies/ptp-random/paper.toml"),
        readme: include_str!("../../../../studies/ptp-random/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: ptp::random::run,
    },
    Study {
        name: "tcpicn-sim",
        title: "50 MB over TCP: plain IP beside the three inter-proxy protocols",
        source: concat!(tcpicn!(), ", section 4.1, Figs. 8 and 9"),
        scenario: include_str!("../../../../studies/tcpicn-sim/scenario.toml"),
        paper: include_str!("../../../../studies/tcpicn-sim/paper.toml"),
        readme: include_str!("../../../../studies/tcpicn-sim/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 1,
        run: tcpicn::completion::run,
    },
    Study {
        name: "tcpicn-fairness",
        title: "Ten TCP streams at once: plain IP beside unreliable prefetching",
        source: concat!(tcpicn!(), ", section 4.2, Fig. 11"),
        scenario: include_str!("../../../../studies/tcpicn-fairness/scenario.toml"),
        paper: include_str!("../../../../studies/tcpicn-fairness/paper.toml"),
        readme: include_str!("../../../../studies/tcpicn-fairness/README.md"),
        backends: &Backend::ALL,
        // Streams in real time share the processors with the proxies and routers that they measure.
        transfers_per_processor: 1,
        run: tcpicn::fairness::run,
    },
    Study {
        name: "multihoming-ping",
        title: "Echo requests over an LTE-like link, by IP and by MobilityFirst",
        source: concat!(multihoming!(), ", section IV-C, Fig. 3"),
        scenario: include_str!("../../../../studies/multihoming-ping/scenario.toml"),
        paper: include_str!("../../../../studies/multihoming-ping/paper.toml"),
        readme: include_str!("../../../../studies/multihoming-ping/README.md"),
        backends: &Backend::ALL,
        transfers_per_processor: 1,
        run: multihoming::ping::run,
    },
    Study {
        name: "multihoming-throughput",
        title: "A WiFi-like and an LTE-like link: each alone, both by Multipath TCP, both by the router's division",
        source: concat!(multihoming!(), ", section V-A, Fig. 5"),
        scenario: include_str!("../../../../studies/multihoming-throughput/scenario.toml"),
        paper: include_str!("../../../../studies/multihoming-throughput/paper.toml"),
        readme: include_str!("../../../../studies/multihoming-throughput/README.md"),
        backends: &Backend::ALL,
        // 40 Mbit/s leave most of a processor free, but a run that waits for one is measured too slow.
        transfers_per_processor: 1,
        run: multihoming::throughput::run,
    },
    Study {
        name: "multihoming-grid",
        title: "Links of unequal rates and round trips, with losses, faults and traces: what dividing a flow brings",
        source: concat!(multihoming!(), ": beyond it"),
        scenario: include_str!("../../../../studies/multihoming-grid/scenario.toml"),
        paper: include_str!("../../../../studies/multihoming-grid/paper.toml"),
        readme: include_str!("../../../../studies/multihoming-grid/README.md"),
        backends: &[Backend::Sim],
        transfers_per_processor: 1,
        run: multihoming::grid::run,
    },
    Study {
        name: "mobility-handoff",
        title: "A client moves between access routers in the middle of a transfer: the pause of delivery",
        source: concat!(multihoming!(), ", section III: beyond it"),
        scenario: include_str!("../../../../studies/mobility-handoff/scenario.toml"),
        paper: include_str!("../../../../studies/mobility-handoff/paper.toml"),
        readme: include_str!("../../../../studies/mobility-handoff/README.md"),
        backends: &Backend::ALL,
        // They wait for most of their time.
        transfers_per_processor: 2,
        run: multihoming::handoff::run,
    },
];

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
            });
        }
        let scenario = match &options.scenario {
            None => self.scenario.to_owned(),
            Some(path) => std::fs::read_to_string(path).map_err(LabError::system(format!(
                "read the scenario {}",
                path.display()
            )))?,
        };
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

    /// Returns true if this back end can run it.
    pub fn runs_on(&self, backend: Backend) -> bool {
        self.backends.contains(&backend)
    }

    fn paper(&self) -> Result<Paper, LabError> {
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
        Ok(Scenario::parse(&file, &self.scenario, overrides)?)
    }

    /// Returns the error for a scenario that this study's code cannot use.
    fn bad(&self, reason: String) -> LabError {
        LabError::BadScenario {
            study: self.study.name.to_owned(),
            reason,
        }
    }

    /// Returns the paper's statement beside ours. `case` names the assumption of the scenario.
    fn compare(&self, id: &str, case: &str, ours: String, agrees: bool) -> Comparison {
        let statement = self.statement(id).cloned().unwrap_or_default();
        let quantity = statement.judged();
        let own_note = match self.options.backend {
            Backend::Sim => statement.note_sim,
            Backend::Netns => statement.note_netns,
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
            explanation: format!("{} {own_note}", statement.note).trim().to_owned(),
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
            let paper: Paper = toml::from_str(study.paper).unwrap();
            assert!(!paper.statement.is_empty(), "{}", study.name);
            let file = Path::new(study.name).join("scenario.toml");
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
