//! Runs independent jobs, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::LabError;

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

fn take<'a, J>(jobs: &'a [J], next: &AtomicUsize) -> Option<(usize, &'a J)> {
    let index = jobs
        .len()
        .checked_sub(1 + next.fetch_add(1, Ordering::Relaxed))?;
    Some((index, &jobs[index]))
}
