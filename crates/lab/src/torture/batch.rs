//! Many schedules, several at a time.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::{Breach, Report, Schedule};
use crate::LabError;
use crate::jobs::{Progress, run_all};

/// Schedules that one thread runs before it reports progress.
const PER_JOB: u64 = 16;

/// A schedule that broke a promise.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The seed of the schedule as drawn.
    pub seed: u64,
    /// The schedule with only the acts that matter.
    pub smallest: Schedule,
    /// The promise that it breaks.
    pub breach: Breach,
}

/// Runs the schedules of these seeds on `workers` threads. Returns the sum of their reports, and
/// the shrunk form of each that broke a promise.
pub fn run_batch(
    seeds: Range<u64>,
    workers: NonZeroUsize,
    progress: Progress<'_>,
) -> Result<(Report, Vec<Broken>), LabError> {
    let jobs: Vec<(Range<u64>, String)> = seeds
        .clone()
        .step_by(PER_JOB as usize)
        .map(|first| first..(first + PER_JOB).min(seeds.end))
        .map(|part| {
            (
                part.clone(),
                format!("seeds {} to {}", part.start, part.end - 1),
            )
        })
        .collect();
    let outcomes = run_all(
        &jobs,
        workers.get(),
        |(_, title)| title,
        |(part, _)| Ok(run_part(part.clone())),
        progress,
    )?;
    let mut all = (Report::default(), Vec::new());
    for (report, broken) in outcomes {
        all.0.add(&report);
        all.1.extend(broken);
    }
    Ok(all)
}

fn run_part(seeds: Range<u64>) -> (Report, Vec<Broken>) {
    let mut all = Report::default();
    let mut broken = Vec::new();
    for seed in seeds {
        let schedule = Schedule::draw(seed);
        match schedule.run() {
            Ok(report) => all.add(&report),
            Err(breach) => {
                let (smallest, breach) = schedule.shrink(breach);
                broken.push(Broken {
                    seed,
                    smallest,
                    breach,
                });
            }
        }
    }
    (all, broken)
}
