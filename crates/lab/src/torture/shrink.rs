//! From a schedule that breaks the promise to the acts that matter.

use super::{Fault, Schedule};

/// Leaves out steps as long as the schedule still breaks the promise (in any way), halves first,
/// then one by one. Returns the smallest schedule that was found and what it breaks.
pub fn shrink(schedule: &Schedule, fault: Fault) -> (Schedule, Fault) {
    let mut best = (schedule.clone(), fault);
    let mut width = best.0.steps.len().div_ceil(2);
    while width > 0 {
        let mut start = 0;
        while start < best.0.steps.len() {
            match without(&best.0, start, width) {
                Some(smaller) => best = smaller,
                None => start += width,
            }
        }
        width /= 2;
    }
    best
}

/// The schedule without `width` steps from `start` on, if it is broken still. Times stay.
fn without(schedule: &Schedule, start: usize, width: usize) -> Option<(Schedule, Fault)> {
    let mut smaller = schedule.clone();
    let end = (start + width).min(smaller.steps.len());
    let gap = smaller
        .steps
        .drain(start..end)
        .map(|step| step.after)
        .sum::<core::time::Duration>();
    if let Some(next) = smaller.steps.get_mut(start) {
        next.after += gap;
    }
    let fault = smaller.run().err()?;
    Some((smaller, fault))
}
