//! Flows of which chunks are stored, and what is granted where they come from.

use std::collections::BTreeMap;

use whimbrel_core::PortId;

use crate::links::Grant;
use crate::wire::Flow;

/// Maximum of flows to absent destinations that neighbours are known to have been told of; beyond it they
/// are told with each chunk.
const MAX_LIMITED: usize = 4096;

/// What is granted: nothing if the next hop takes the flow too slowly, what others leave if its destination
/// is away.
#[derive(Debug, Default)]
pub(in crate::router) struct Limited {
    grants: BTreeMap<(Flow, PortId), Grant>,
}

impl Limited {
    /// A flow that comes in on `from` is stored: what is granted there, until nothing of it is stored, or, of
    /// what others leave, until its destination is found. Returns true if the neighbour is to be told now.
    pub(in crate::router) fn limit(&mut self, from: PortId, flow: Flow, grant: Grant) -> bool {
        let key = (flow, from);
        let is_spare = grant == Grant::Spare;
        if is_spare && self.grants.contains_key(&key) {
            return false;
        }
        if !is_spare || self.grants.len() < MAX_LIMITED {
            self.grants.insert(key, grant);
        }
        true
    }

    /// Returns true if nothing may come of a flow on `from`.
    pub(in crate::router) fn holds_back(&self, from: PortId, flow: &Flow) -> bool {
        let grant = self.grants.get(&(*flow, from));
        grant.is_some_and(|grant| *grant != Grant::Spare)
    }

    /// Forgets the flows that are limited no longer, and returns them.
    pub(super) fn take_over(
        &mut self,
        is_over: impl Fn(&Flow, Grant) -> bool,
    ) -> Vec<(PortId, Flow)> {
        let over = (self.grants).extract_if(.., |(flow, _), grant| is_over(flow, *grant));
        over.map(|((flow, port), _)| (port, flow)).collect()
    }

    /// Forgets a flow, and returns the ports that it comes from.
    pub(super) fn take(&mut self, flow: &Flow) -> Vec<PortId> {
        let of_flow = (*flow, PortId(0))..=(*flow, PortId(u32::MAX));
        let over = self.grants.extract_if(of_flow, |_, _| true);
        over.map(|((_, port), _)| port).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PortId, Flow, Grant)> {
        let grants = self.grants.iter();
        grants.map(|((flow, port), grant)| (*port, *flow, *grant))
    }
}
