//! Runs independent jobs, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::LabError;
use crate::journal::{Journal, RunPlace};

/// Called with the progress of a batch: jobs done, all jobs, and the title of the last one.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize, &str);

/// Runs every job on `workers` threads. Returns the results in the order of the jobs. The last job
/// begins first: scenarios end with their longest settings, which would otherwise run on alone.
/// After a failure no further job begins.
pub(crate) fn run_all<J: Sync, F: Send>(
    jobs: &[J],
    workers: usize,
    title: impl Fn(&J) -> &str,
    run: impl Fn(&J) -> Result<F, LabError> + Sync,
    progress: Progress<'_>,
) -> Result<Vec<F>, LabError> {
    let next = AtomicUsize::new(0);
    let (sender, finished) = mpsc::channel();
    let mut outcomes: Vec<Option<F>> = jobs.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        // Dropped on the way out, so that the threads stop when no more results are wanted.
        let finished = finished;
        for _ in 0..workers.clamp(1, jobs.len().max(1)) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                while let Some((index, job)) = take(jobs, next) {
                    if sender.send((index, run(job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        progress(0, jobs.len(), jobs.last().map_or("", &title));
        for (done, (index, outcome)) in finished.iter().enumerate() {
            outcomes[index] = Some(outcome?);
            progress(done + 1, jobs.len(), title(&jobs[index]));
        }
        Ok::<(), LabError>(())
    })?;
    Ok(outcomes.into_iter().flatten().collect())
}

/// As [`run_all`], and keeps each result in the journal; a job whose result it already has is not run.
pub(crate) fn run_kept<J: Sync, F: Send + Serialize + DeserializeOwned>(
    jobs: &[J],
    workers: usize,
    title: impl Fn(&J) -> &str + Sync,
    run: impl Fn(&J) -> Result<F, LabError> + Sync,
    journal: Option<&Journal>,
    progress: Progress<'_>,
) -> Result<Vec<F>, LabError> {
    let Some(journal) = journal else {
        return run_all(jobs, workers, title, run, progress);
    };
    let batch = journal.next_batch();
    let place = |job| RunPlace { batch, job };
    let mut outcomes: Vec<Option<F>> = (0..jobs.len())
        .map(|job| journal.find(place(job)))
        .collect();
    let left: Vec<(usize, &J)> = jobs
        .iter()
        .enumerate()
        .filter(|(index, _)| outcomes[*index].is_none())
        .collect();
    let one = |(index, job): &(usize, &J)| {
        let found = run(job)?;
        journal.keep(place(*index), title(job), &found)?;
        Ok(found)
    };
    let before = jobs.len() - left.len();
    let mut say = |done, _, what: &str| progress(before + done, jobs.len(), what);
    let found = run_all(&left, workers, |(_, job)| title(job), one, &mut say)?;
    for ((index, _), found) in left.iter().zip(found) {
        outcomes[*index] = Some(found);
    }
    Ok(outcomes.into_iter().flatten().collect())
}

fn take<'a, J>(jobs: &'a [J], next: &AtomicUsize) -> Option<(usize, &'a J)> {
    let index = jobs
        .len()
        .checked_sub(1 + next.fetch_add(1, Ordering::Relaxed))?;
    Some((index, &jobs[index]))
}
