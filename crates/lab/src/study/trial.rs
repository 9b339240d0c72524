//! One transfer of a study: a run of a scenario with one file.

use super::{Backend, StudyOptions};
use crate::scenario::load::Plane;
use crate::scenario::node::Role;
use crate::scenario::run::Run;
use crate::scenario::{Plan, netns, sim};
use crate::{LabError, TransferRecord};

/// Counters of the access router's proxy, in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug)]
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
        let run = match options.backend {
            Backend::Sim => sim::run(self.plan, self.seed)?,
            Backend::Netns => netns::run(self.plan, self.seed, &options.program)?,
        };
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
