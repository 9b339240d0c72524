//! Runs a study's transfers, several at a time.

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
