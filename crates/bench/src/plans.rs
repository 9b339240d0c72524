//! Scenarios of the bench: one setting of a file's sweep, run by either back end.

use std::path::Path;

use whimbrel_lab::LabError;
use whimbrel_lab::scenario::run::Run;
use whimbrel_lab::scenario::{Overrides, Plan, Scenario, netns, sim};
use whimbrel_lab::study::Backend;

use crate::{BenchError, BenchOptions};

/// Returns the plan of the setting with the values `wanted` (sweep and value).
pub(crate) fn plan(
    file: &str,
    text: &str,
    options: &BenchOptions,
    backend: Backend,
    wanted: &[(&str, String)],
) -> Result<Plan, BenchError> {
    let overrides = Overrides {
        seed: Some(options.seed),
        backend: Some(backend),
        ..Overrides::default()
    };
    let scenario = Scenario::parse(Path::new(file), text, overrides).map_err(LabError::from)?;
    let found = scenario.settings.into_iter().find(|setting| {
        wanted
            .iter()
            .all(|(key, value)| setting.value(key) == Some(value))
    });
    let found =
        found.ok_or_else(|| BenchError::Simulated(format!("{file} has no setting {wanted:?}")))?;
    Ok(found.plan)
}

/// Runs a plan.
pub(crate) fn run(
    plan: &Plan,
    options: &BenchOptions,
    backend: Backend,
) -> Result<Run, BenchError> {
    Ok(match backend {
        Backend::Sim => sim::run(plan, plan.seed)?,
        Backend::Netns => netns::run(plan, plan.seed, &options.program)?,
    })
}
