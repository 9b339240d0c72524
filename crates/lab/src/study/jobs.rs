//! Runs a study's transfers, several at a time.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Progress, StudyInput};
use crate::LabError;

/// A task that a study repeats, each time with a network of its own.
pub(super) trait Job: Sync {
    /// Its result.
    type Found: Send;

    /// Returns its title, for people.
    fn title(&self) -> &str;

    /// Runs it.
    fn run(&self, input: &StudyInput<'_>) -> Result<Self::Found, LabError>;
}

/// Runs every job and returns the results in their order; jobs that run at the same time share only
/// the processors.
pub(super) fn run_all<J: Job>(
    jobs: &[J],
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<Vec<J::Found>, LabError> {
    let workers = input.study.jobs(input.options);
    crate::jobs::run_all(jobs, workers, J::title, |job| job.run(input), progress)
}

/// As [`run_all`]; a run that the study's journal has is not repeated.
pub(super) fn run_kept<J: Job>(
    jobs: &[J],
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<Vec<J::Found>, LabError>
where
    J::Found: Serialize + DeserializeOwned,
{
    let workers = input.study.jobs(input.options);
    let journal = input.options.journal.as_deref();
    let one = |job: &J| job.run(input);
    crate::jobs::run_kept(jobs, workers, J::title, one, journal, progress)
}
