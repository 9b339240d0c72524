//! Runs a study's transfers, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::trial::{Outcome, Trial};
use super::{Progress, StudyInput};
use crate::LabError;

/// Something that a study does many times, each with a network of its own.
pub(super) trait Job: Sync {
    /// What it finds.
    type Found: Send;

    /// Names it to people.
    fn title(&self) -> &str;

    /// Does it.
    fn run(&self, input: &StudyInput<'_>) -> Result<Self::Found, LabError>;
}

impl Job for Trial {
    type Found = Outcome;

    fn title(&self) -> &str {
        &self.title
    }

    fn run(&self, input: &StudyInput<'_>) -> Result<Outcome, LabError> {
        Trial::run(self, input.options)
    }
}

/// Runs every job and answers in their order. Each has a network of its own, so what runs beside it
/// only shares the processor with it. The last one is begun first: scenarios end with what takes
/// longest, which would otherwise run on alone. After a failure no further job is begun.
pub(super) fn run_all<J: Job>(
    jobs: &[J],
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<Vec<J::Found>, LabError> {
    let next = AtomicUsize::new(0);
    let (sender, finished) = mpsc::channel();
    let mut outcomes: Vec<Option<J::Found>> = jobs.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        // Dropped on the way out, which tells the threads that nobody waits for more.
        let finished = finished;
        for _ in 0..input.study.jobs(input.options).clamp(1, jobs.len().max(1)) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((index, job)) = take(jobs, next) {
                    if sender.send((index, job.run(input))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        progress(0, jobs.len(), jobs.last().map_or("", Job::title));
        for (done, (index, outcome)) in finished.iter().enumerate() {
            outcomes[index] = Some(outcome?);
            progress(done + 1, jobs.len(), jobs[index].title());
        }
        Ok::<(), LabError>(())
    })?;
    Ok(outcomes.into_iter().flatten().collect())
}

fn take<'a, J>(jobs: &'a [J], next: &AtomicUsize) -> Option<(usize, &'a J)> {
    let index = jobs
        .len()
        .checked_sub(1 + next.fetch_add(1, Ordering::Relaxed))?;
    Some((index, &jobs[index]))
}
