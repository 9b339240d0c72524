//! A line of routers: the consumer at one end, the producer at the other.

mod findings;

use serde::Deserialize;

use super::super::{Progress, StudyInput, StudyResult};
use super::matrix::Matrix;
use super::reading::Reading;
use crate::LabError;

/// The section `[study]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// The rate of loss of the distribution (Fig. 3), if it is wanted: a step of the sweep.
    distribution: Option<String>,
    #[serde(default)]
    readings: Vec<Reading>,
}

/// The variable of a study of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Loss,
    Hops,
}

pub(in super::super) mod linear {
    use super::{Axis, LabError, Progress, StudyInput, StudyResult};

    /// Runs the study of Figs. 2 (a), 2 (c) and 3 and Table II.
    pub(in super::super::super) fn run(
        input: &StudyInput<'_>,
        progress: Progress<'_>,
    ) -> Result<StudyResult, LabError> {
        super::run(Axis::Loss, input, progress)
    }
}

pub(in super::super) mod hops {
    use super::{Axis, LabError, Progress, StudyInput, StudyResult};

    /// Runs the study of Figs. 2 (b), 2 (d) and 6 (a) and Table III.
    pub(in super::super::super) fn run(
        input: &StudyInput<'_>,
        progress: Progress<'_>,
    ) -> Result<StudyResult, LabError> {
        super::run(Axis::Hops, input, progress)
    }
}

fn run(
    axis: Axis,
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    let name = match axis {
        Axis::Loss => "loss on each link",
        Axis::Hops => "hops",
    };
    let runs = Matrix::run(name, &scenario, &section.readings, true, input, progress)?;
    let distribution = section.distribution.as_deref();
    findings::result(axis, distribution, input, &scenario, &runs)
}
