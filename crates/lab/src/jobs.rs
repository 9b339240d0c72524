//! Runs jobs that have nothing in common, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::LabError;

/// Told how far a batch is: jobs done, all jobs, and the title of the last one.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize, &str);

/// Runs every job on `workers` threads and answers in their order. The last one is begun first:
/// scenarios end with what takes longest, which would otherwise run on alone. After a failure no
/// further job is begun.
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
        // Dropped on the way out, so that the threads see that no more results are wanted.
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
