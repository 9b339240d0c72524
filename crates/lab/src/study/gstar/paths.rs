//! Scenarios with real routers: throughput by the way that paths are found, and the time without a path.

use super::super::result::mean;
use super::super::trial::run_settings;
use super::super::{Progress, StudyInput};
use crate::LabError;
use crate::scenario::load::Kind;
use crate::scenario::run::Run;
use crate::scenario::{Overrides, Plan, Scenario, Setting};

/// All runs of a setting.
pub(super) struct WaysCell {
    /// How paths are found, in the scenario's sweep.
    pub(super) ways: String,
    /// The goodput of all loads together in each run, in Mbit/s.
    pub(super) runs: Vec<f64>,
}

impl WaysCell {
    /// Returns the mean of all runs.
    pub(super) fn goodput(&self) -> f64 {
        mean(self.runs.iter().copied())
    }

    /// Returns the least and the best run.
    pub(super) fn range(&self) -> (f64, f64) {
        let runs = self.runs.iter().copied();
        let least = runs.clone().fold(f64::INFINITY, f64::min);
        (least, runs.fold(f64::NEG_INFINITY, f64::max))
    }
}

/// An answer that comes later is none for the program that waits for it. Seconds.
const ANSWERED_WITHIN: f64 = 1.0;

/// The time for which a load of echo requests had no answer, in each run.
pub(super) struct Outages {
    /// The load, which is named after what happens to the link.
    pub(super) load: String,
    pub(super) seconds: Vec<f64>,
}

fn scenario(input: &StudyInput<'_>, table: &toml::Table) -> Result<Scenario, LabError> {
    let text = toml::to_string(table).map_err(|fault| input.bad(fault.to_string()))?;
    let file = std::path::Path::new("studies").join(input.study.name);
    let overrides = Overrides {
        seed: Some(input.options.seed),
        runs: input.options.runs,
        backend: Some(input.options.backend),
    };
    Ok(Scenario::parse(
        &file.join("scenario.toml"),
        &text,
        overrides,
    )?)
}

/// Runs a scenario that sweeps `ways`.
pub(super) fn run(
    input: &StudyInput<'_>,
    table: &toml::Table,
    progress: Progress<'_>,
) -> Result<Vec<WaysCell>, LabError> {
    let scenario = scenario(input, table)?;
    let mut names = Vec::new();
    for setting in &scenario.settings {
        let ways = input.swept(setting, "ways", "ways (static, fewest hops, learned)")?;
        names.push(ways.to_owned());
    }
    let title = |setting: &Setting| setting.value("ways").unwrap_or_default().to_owned();
    let runs = run_settings(&scenario, input, progress, title)?;
    let cells = names.into_iter().zip(&scenario.settings).zip(runs);
    let cell = |((ways, setting), runs): ((String, &Setting), Vec<Run>)| WaysCell {
        ways,
        runs: runs.iter().map(|run| goodput(&setting.plan, run)).collect(),
    };
    Ok(cells.map(cell).collect())
}

/// Returns what all loads carried after they began, in Mbit/s.
fn goodput(plan: &Plan, run: &Run) -> f64 {
    let loads = plan.loads.iter().map(|load| {
        let bytes = run.values.get(&format!("{}.bytes", load.name));
        let time = plan.limit.saturating_sub(load.start).as_secs_f64();
        bytes.map_or(0.0, |bytes| bytes * 8e-6 / time)
    });
    loads.sum()
}

/// Runs a scenario whose loads are echo requests.
pub(super) fn failures(
    input: &StudyInput<'_>,
    table: &toml::Table,
    progress: Progress<'_>,
) -> Result<Vec<Outages>, LabError> {
    let scenario = scenario(input, table)?;
    let runs = run_settings(&scenario, input, progress, |_| "failures".to_owned())?;
    let Some((setting, runs)) = scenario.settings.first().zip(runs.first()) else {
        return Ok(Vec::new());
    };
    let loads = setting.plan.loads.iter().filter_map(|load| {
        let Kind::Pings(pings) = &load.kind else {
            return None;
        };
        let (count, interval) = (pings.count as f64, pings.interval.as_secs_f64());
        let without = |run: &Run| {
            let of_load = run.pinged.iter().filter(|(name, _)| *name == load.name);
            let round_trips = of_load.flat_map(|(_, it)| &it.round_trips);
            let answered = round_trips.filter(|it| **it <= ANSWERED_WITHIN).count();
            (count - answered as f64) * interval
        };
        Some(Outages {
            load: load.name.clone(),
            seconds: runs.iter().map(without).collect(),
        })
    });
    Ok(loads.collect())
}
