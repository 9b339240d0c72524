//! The Abilene network: twelve nodes, fifteen links, seven flows.

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
    /// The ends of the link of Figs. 4 and 5 and Table V.
    observed: (String, String),
    #[serde(default)]
    readings: Vec<Reading>,
}

/// Runs the study of Figs. 4 to 7 and Tables IV and V.
pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    let readings = &section.readings;
    let axis = "loss on each link";
    let runs = Matrix::run(axis, &scenario, readings, false, input, progress)?;
    findings::result(input, &section, &scenario, &runs)
}
