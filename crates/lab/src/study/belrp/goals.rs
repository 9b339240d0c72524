//! The goals of the `adaptive` profile: ours, not the paper's.
//!
//! At every rate of loss fewer octets than the paper's protocol and no more delay; from 2 % on no
//! more octets than without any recovery on links.

use super::super::{Comparison, StudyInput};
use super::Variant;
use super::matrix::Matrix;
use super::network::Outcome;

/// The rate of loss in per cent from which recovery on links must pay for itself.
const PAYS_FROM: f64 = 2.0;

/// Returns the verdicts on the goals; none if a variant was not run.
pub(super) fn verdicts(input: &StudyInput<'_>, matrix: &Matrix) -> Vec<Comparison> {
    let has = |variant| matrix.variants.contains(&variant);
    let mut verdicts = Vec::new();
    if !has(Variant::Adaptive) {
        return verdicts;
    }
    let megabytes: &dyn Fn(&Outcome) -> f64 = &|run| run.wire_bytes() as f64 / 1e6;
    let delay: &dyn Fn(&Outcome) -> f64 = &|run| run.retrieval().mean();
    if has(Variant::Paper3) {
        let (said, met) = against(matrix, Variant::Paper3, "MB", 2, 0.0, megabytes);
        verdicts.push(input.compare("goal-fewer-bytes", "", said, met));
        let (said, met) = against(matrix, Variant::Paper3, "ms", 2, 0.0, delay);
        verdicts.push(input.compare("goal-no-slower", "", said, met));
    }
    if has(Variant::None) {
        let (said, met) = against(matrix, Variant::None, "MB", 2, PAYS_FROM, megabytes);
        verdicts.push(input.compare("goal-pays", "", said, met));
    }
    verdicts
}

/// Compares ours with another variant at each step from this rate of loss on, and whether ours is
/// never more.
fn against(
    matrix: &Matrix,
    rival: Variant,
    unit: &str,
    digits: usize,
    from: f64,
    of: &dyn Fn(&Outcome) -> f64,
) -> (String, bool) {
    let mut met = true;
    let mut parts = Vec::new();
    for (index, step) in matrix
        .steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.loss_percent >= from)
    {
        let ours = matrix.spread(index, Variant::Adaptive, of);
        let theirs = matrix.spread(index, rival, of);
        met &= ours.mean <= theirs.mean;
        let error = ours.error.hypot(theirs.error);
        parts.push(format!(
            "{}: {:.digits$} and {:.digits$}, {:+.digits$} ± {error:.digits$}",
            step.label,
            ours.mean,
            theirs.mean,
            ours.mean - theirs.mean
        ));
    }
    let said = format!(
        "adaptive and {}, {unit}, difference with its standard error: {}",
        rival.title(),
        parts.join("; ")
    );
    (said, met)
}
