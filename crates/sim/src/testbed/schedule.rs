//! Schedules of faults: drawn from a seed, and shrunk to the steps that matter.

use core::time::Duration;

use whimbrel_core::SeededRng;

/// An act (a [`Fault`](super::Fault), or one made by a test) and the time since the previous step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step<A> {
    /// Time since the previous step.
    pub after: Duration,
    /// The act.
    pub act: A,
}

/// Draws the time between two steps: usually short, sometimes long enough for timers to expire.
pub fn draw_pause(rng: &mut SeededRng) -> Duration {
    let longest_ms = [5, 300, 300, 3_000, 3_000, 30_000][rng.below(6) as usize];
    Duration::from_millis(rng.below(longest_ms))
}

/// Draws the length of a fault: from a moment to so long that every peer gives up.
pub fn draw_lasting(rng: &mut SeededRng) -> Duration {
    let longest_ms = [200, 3_000, 20_000, 90_000][rng.below(4) as usize];
    Duration::from_millis(rng.below(longest_ms))
}

/// Reduces steps that break a promise to those that matter: leaves out steps as long as `broken`
/// still finds a breach (any breach), halves first, then one by one. The others stay at their
/// times. Returns the fewest steps found, and their breach.
pub fn shrink<A: Clone, B>(
    steps: &[Step<A>],
    breach: B,
    mut broken: impl FnMut(&[Step<A>]) -> Option<B>,
) -> (Vec<Step<A>>, B) {
    let mut best = (steps.to_vec(), breach);
    let mut width = steps.len().div_ceil(2);
    while width > 0 {
        let mut start = 0;
        while start < best.0.len() {
            let fewer = without(&best.0, start, width);
            match broken(&fewer) {
                Some(breach) => best = (fewer, breach),
                None => start += width,
            }
        }
        width /= 2;
    }
    best
}

fn without<A: Clone>(steps: &[Step<A>], start: usize, width: usize) -> Vec<Step<A>> {
    let mut fewer = steps.to_vec();
    let end = (start + width).min(fewer.len());
    let gap: Duration = fewer.drain(start..end).map(|step| step.after).sum();
    if let Some(next) = fewer.get_mut(start) {
        next.after += gap;
    }
    fewer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_leaves_the_steps_that_matter_at_their_times() {
        let steps: Vec<Step<u32>> = (0..40)
            .map(|act| Step {
                after: Duration::from_secs(1),
                act,
            })
            .collect();
        // Broken while both 7 and 23 are present; the breach is the time of 23.
        let broken = |steps: &[Step<u32>]| {
            let mut at = Duration::ZERO;
            let times: Vec<(u32, Duration)> = steps
                .iter()
                .map(|step| {
                    at += step.after;
                    (step.act, at)
                })
                .collect();
            let time = |act| times.iter().find(|(it, _)| *it == act).map(|(_, at)| *at);
            time(7).and(time(23))
        };
        let breach = broken(&steps).expect("broken");
        let (fewest, at) = shrink(&steps, breach, broken);
        let acts: Vec<u32> = fewest.iter().map(|step| step.act).collect();
        assert_eq!((acts, at), (vec![7, 23], Duration::from_secs(24)));
    }
}
