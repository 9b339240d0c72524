//! Runs of a study: of a scenario as it is, and of one with one file.

use serde::{Deserialize, Serialize};

use super::jobs::{Job, run_kept};
use super::{Backend, Progress, StudyInput, StudyOptions};
use crate::scenario::load::Plane;
use crate::scenario::node::Role;
use crate::scenario::run::Run;
use crate::scenario::{Plan, Scenario, Setting, netns, sim};
use crate::{LabError, TransferRecord};

/// Runs a plan on the back end of the options.
fn run_plan(plan: &Plan, seed: u64, options: &StudyOptions) -> Result<Run, LabError> {
    match options.backend {
        Backend::Sim => sim::run(plan, seed),
        Backend::Netns => netns::run(plan, seed, &options.program),
    }
}

/// A run of a plan, with its seed.
pub(super) struct PlanRun<'a> {
    /// For people.
    pub(super) title: String,
    pub(super) plan: &'a Plan,
    pub(super) seed: u64,
}

impl Job for Trial<'_> {
    type Found = Outcome;

    fn title(&self) -> &str {
        &self.title
    }

    fn run(&self, input: &StudyInput<'_>) -> Result<Outcome, LabError> {
        Trial::run(self, input.options)
    }
}

impl Job for PlanRun<'_> {
    type Found = Run;

    fn title(&self) -> &str {
        &self.title
    }

    fn run(&self, input: &StudyInput<'_>) -> Result<Run, LabError> {
        run_plan(self.plan, self.seed, input.options)
    }
}

/// Runs every setting of a scenario as often as it says. Returns the runs of each setting, in the
/// order of the sweep; `title` names a setting for people.
pub(super) fn run_settings(
    scenario: &Scenario,
    input: &StudyInput<'_>,
    progress: Progress<'_>,
    title: impl Fn(&Setting) -> String,
) -> Result<Vec<Vec<Run>>, LabError> {
    let mut jobs = Vec::new();
    for setting in &scenario.settings {
        let title = title(setting);
        jobs.extend((0..scenario.runs).map(|run| PlanRun {
            title: title.clone(),
            plan: &setting.plan,
            seed: setting.plan.seed.wrapping_add(u64::from(run)),
        }));
    }
    let runs = run_kept(&jobs, input, progress)?;
    let each = runs.chunks(scenario.runs as usize);
    Ok(each.map(<[Run]>::to_vec).collect())
}

/// A setting's values of the swept keys, in their order, and its runs.
pub(super) type Swept<'a, const N: usize> = ([&'a str; N], Vec<Run>);

/// Runs all settings of a scenario that sweeps these keys. `expected` says what a study sweeps, for errors;
/// `title` names a setting for people.
pub(super) fn run_swept<'a, const N: usize>(
    input: &StudyInput<'_>,
    scenario: &'a Scenario,
    progress: Progress<'_>,
    keys: [&str; N],
    expected: &str,
    title: impl Fn([&str; N]) -> String,
) -> Result<Vec<Swept<'a, N>>, LabError> {
    let mut swept = Vec::new();
    for setting in &scenario.settings {
        let mut values = [""; N];
        for (value, key) in values.iter_mut().zip(keys) {
            *value = input.swept(setting, key, expected)?;
        }
        swept.push(values);
    }
    let name = |setting: &Setting| title(keys.map(|key| setting.value(key).unwrap_or_default()));
    let runs = run_settings(scenario, input, progress, name)?;
    Ok(swept.into_iter().zip(runs).collect())
}

/// Returns each value once, in the order of their first occurrence.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Returns the contents that arrived, in the run with the fewest.
pub(super) fn arrived(runs: &[Run]) -> usize {
    let arrived = runs.iter().map(|run| {
        let transfers = run.transfers.iter();
        transfers.filter(|it| it.record.completed).count()
    });
    arrived.min().unwrap_or(0)
}

/// Counters of the access router's proxy, in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProxyUse {
    /// Chunks stored in it.
    pub(super) stored: u64,
    /// Chunks forwarded because their destination was open again.
    pub(super) released: u64,
    /// Chunks forwarded because of their source's Push.
    pub(super) pushed: u64,
}

impl ProxyUse {
    /// Returns the counters of the router nearest to the receiver; `None` for TCP.
    fn of(plan: &Plan, run: &Run) -> Option<ProxyUse> {
        let network = &plan.network;
        let receiver = *plan.loads.first()?.to.first()?;
        let mut peers = network.at(receiver).map(|(_, peer)| &network.nodes[peer]);
        let router = peers.find(|peer| peer.is(Role::Router))?;
        let count = |metric: &str| {
            let value = run.values.get(&format!("nodes.{}.{metric}", router.name))?;
            Some(*value as u64)
        };
        Some(ProxyUse {
            stored: count("stored")?,
            released: count("released")?,
            pushed: count("pushed")?,
        })
    }
}

/// The results of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) record: TransferRecord,
    /// `None` for TCP.
    pub(super) proxy: Option<ProxyUse>,
}

/// A transfer on the testbed of [MFTP §5], Fig. 7.
#[derive(Clone, Debug)]
pub(super) struct Trial<'a> {
    /// Its name within the study: letters, digits and hyphens, fit for a file name.
    pub(super) label: String,
    /// Its name for people.
    pub(super) title: String,
    /// The plan, whose first load is the file.
    pub(super) plan: &'a Plan,
    /// The seed of everything random.
    pub(super) seed: u64,
}

impl Trial<'_> {
    /// Runs the trial on the back end of the options.
    pub(super) fn run(&self, options: &StudyOptions) -> Result<Outcome, LabError> {
        let run = run_plan(self.plan, self.seed, options)?;
        let fetched = run.transfers.first();
        let mut record = fetched
            .ok_or_else(|| LabError::TransferFailed {
                transfer: self.title.clone(),
                reason: String::from("it was not requested within the scenario's limit"),
            })?
            .record
            .clone();
        let load = &self.plan.loads[0];
        if load.plane == Plane::MobilityFirst {
            record.retransmitted_segments = run.resent(self.plan, load);
        }
        Ok(Outcome {
            record,
            proxy: ProxyUse::of(self.plan, &run),
        })
    }
}
