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
    /// Pushed up to it.
    pub(super) stored: u64,
    /// Sent on because their way was open again.
    pub(super) released: u64,
    /// Sent on because their source said Push.
    pub(super) pushed: u64,
}

impl ProxyUse {
    /// Of the router nearest to the receiver; `None` of TCP.
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
    /// `None` of TCP.
    pub(super) proxy: Option<ProxyUse>,
}

/// A transfer on the testbed of [MFTP §5], Fig. 7.
#[derive(Clone, Debug)]
pub(super) struct Trial<'a> {
    /// Names it within its study: letters, digits and hyphens, fit for a file name.
    pub(super) label: String,
    /// Names it to people.
    pub(super) title: String,
    /// Its first load is the file.
    pub(super) plan: &'a Plan,
    /// Of everything random.
    pub(super) seed: u64,
}

impl Trial<'_> {
    /// Runs it on the back end that the options name.
    pub(super) fn run(&self, options: &StudyOptions) -> Result<Outcome, LabError> {
        let run = match options.backend {
            Backend::Sim => sim::run(self.plan, self.seed)?,
            Backend::Netns => netns::run(self.plan, self.seed, &options.program)?,
        };
        let fetched = run.transfers.first();
        let mut record = fetched
            .ok_or_else(|| LabError::TransferFailed {
                transfer: self.title.clone(),
                reason: String::from("it was not asked for within the scenario's limit"),
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
