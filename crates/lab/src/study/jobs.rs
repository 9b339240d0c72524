//! Runs a study's transfers, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::trial::{Outcome, Trial};
use super::{Progress, StudyInput};
use crate::LabError;

/// Runs every trial and answers in their order. Each has a network of its own, so what runs beside it only
/// shares the processor with it. The last one is begun first: scenarios end with what takes longest, which would
/// otherwise run on alone. After a failure no further trial is begun.
pub(super) fn run_all(
    trials: &[Trial],
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<Vec<Outcome>, LabError> {
    let next = AtomicUsize::new(0);
    let (sender, finished) = mpsc::channel();
    let mut outcomes = vec![None; trials.len()];
    std::thread::scope(|scope| {
        // Dropped on the way out, which tells the threads that nobody waits for more.
        let finished = finished;
        for _ in 0..input.study.jobs(input.options).clamp(1, trials.len().max(1)) {
            let (sender, next, options) = (sender.clone(), &next, input.options);
            scope.spawn(move || {
                while let Some((index, trial)) = take(trials, next) {
                    if sender.send((index, trial.run(options))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        progress(0, trials.len(), trials.last().map_or("", |first| &first.title));
        for (done, (index, outcome)) in finished.iter().enumerate() {
            outcomes[index] = Some(outcome?);
            progress(done + 1, trials.len(), &trials[index].title);
        }
        Ok::<(), LabError>(())
    })?;
    Ok(outcomes.into_iter().flatten().collect())
}

fn take<'a>(trials: &'a [Trial], next: &AtomicUsize) -> Option<(usize, &'a Trial)> {
    let index = trials.len().checked_sub(1 + next.fetch_add(1, Ordering::Relaxed))?;
    Some((index, &trials[index]))
}
