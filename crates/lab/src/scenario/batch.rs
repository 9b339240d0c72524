//! All runs of a scenario: every setting of its sweep, as many runs of each as it states, several
//! at a time.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::document::Document;
use super::link::place_of;
use super::run::Run;
use super::{Faults, Overrides, Plan, Scenario, netns, sim};
use crate::LabError;
use crate::jobs::{Progress, run_kept};
use crate::journal::{BatchTerms, Journal};
use crate::study::Backend;

/// The options of a run of all settings.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// The back end.
    pub backend: Backend,
    /// Bound of the parallel runs; `None` for one on each processor, in namespaces one in all.
    pub jobs: Option<usize>,
    /// The whimbrel binary, for daemons in namespaces.
    pub program: PathBuf,
    /// Keeps the finished runs, and has those of a batch that was interrupted.
    pub journal: Option<Arc<Journal>>,
}

/// The results of all runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Batch {
    /// The back end.
    pub backend: Backend,
    /// In the order of settings, and of runs within each.
    pub outcomes: Vec<Outcome>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Index of the setting.
    pub setting: usize,
    /// From 0.
    pub run: u32,
    /// The seed of everything random in it.
    pub seed: u64,
    /// Its results.
    pub found: Run,
}

struct Job<'a> {
    setting: usize,
    run: u32,
    seed: u64,
    title: String,
    plan: &'a Plan,
}

impl Scenario {
    /// Refuses a feature that the back end lacks, with the line that asks for it.
    pub fn check(&self, backend: Backend) -> Result<(), Faults> {
        let mut refusals = self.settings.iter().filter_map(|setting| match backend {
            Backend::Sim => sim::refusal(&setting.plan),
            Backend::Netns => netns::refusal(&setting.plan),
        });
        let Some(refusal) = refusals.next() else {
            return Ok(());
        };
        let document = Document::parse(&self.file, &self.text)?;
        let key = place_of(&document, &refusal.key);
        Err(document.fault(&key, refusal.message(backend)).into())
    }

    /// Returns the terms of a run with these overrides.
    pub fn terms(&self, backend: Backend, overrides: Overrides) -> BatchTerms {
        BatchTerms::new(&self.text, backend.name(), overrides.seed, overrides.runs)
    }

    /// Runs the scenario.
    pub fn run(&self, options: &BatchOptions, progress: Progress<'_>) -> Result<Batch, LabError> {
        self.check(options.backend)?;
        let mut jobs = Vec::new();
        for (index, setting) in self.settings.iter().enumerate() {
            let at = setting.title();
            for run in 0..self.runs {
                jobs.push(Job {
                    setting: index,
                    run,
                    seed: setting.plan.seed.wrapping_add(run.into()),
                    title: format!("{at} run {}", run + 1).trim().to_owned(),
                    plan: &setting.plan,
                });
            }
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = options.jobs.unwrap_or(match options.backend {
            Backend::Sim => processors,
            // Other runs in real time would take processors from it.
            Backend::Netns => 1,
        });
        let one = |job: &Job<'_>| {
            let found = match options.backend {
                Backend::Sim => sim::run(job.plan, job.seed)?,
                Backend::Netns => netns::run(job.plan, job.seed, &options.program)?,
            };
            Ok(Outcome {
                setting: job.setting,
                run: job.run,
                seed: job.seed,
                found,
            })
        };
        let outcomes = run_kept(
            &jobs,
            workers,
            |job| &job.title,
            one,
            options.journal.as_deref(),
            progress,
        )?;
        Ok(Batch {
            backend: options.backend,
            outcomes,
        })
    }
}

impl Batch {
    /// Returns the values of a metric at the settings that `fits` picks, in the order of the runs.
    pub fn values(&self, metric: &str, fits: impl Fn(usize) -> bool) -> Vec<f64> {
        let outcomes = self.outcomes.iter().filter(|outcome| fits(outcome.setting));
        outcomes
            .filter_map(|outcome| outcome.found.values.get(metric).copied())
            .collect()
    }
}
