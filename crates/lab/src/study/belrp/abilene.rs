//! The Abilene network: twelve nodes, fifteen links, seven flows.

mod findings;

use serde::Deserialize;

use super::super::{Progress, StudyInput, StudyResult};
use super::matrix::Matrix;
use crate::LabError;

/// The section `[study]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    /// The ends of the link that Figs. 4 and 5 and Table V are about.
    observed: (String, String),
}

/// Figs. 4 to 7, Tables IV and V.
pub(in super::super) fn run(
    input: &StudyInput<'_>,
    progress: Progress<'_>,
) -> Result<StudyResult, LabError> {
    let scenario = input.scenario()?;
    let section: Section = scenario.study()?;
    let matrix = Matrix::run("loss on each link", &scenario, false, input, progress)?;
    findings::result(input, &section, &scenario, &matrix)
}
