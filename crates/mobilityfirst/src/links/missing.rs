//! Chunks that a neighbour has accepted and their receiver asks for again: it drops them, or what comes after it does.

use whimbrel_core::{Guid, PortId, Time};

use super::Links;
use crate::wire::Request;

impl Links {
    /// A receiver asks again for chunks. What a branch of its flow has delivered to the next node counted as
    /// delivered; what is asked for all the same did not arrive.
    pub(crate) fn note_missing(&mut self, now: Time, client: &Guid, request: &Request) {
        let flows = self.splits.iter_mut();
        for (flow, divided) in flows.filter(|(flow, _)| flow.destination == *client) {
            let mut missing: Vec<(PortId, u64)> = Vec::new();
            for port in divided.hops.ports() {
                if let Some(link) = self.links.get_mut(&port) {
                    let handovers = &mut link.handovers;
                    let gone = handovers.take_missing(flow, &request.content, &request.chunks);
                    missing.push((port, gone));
                }
            }
            divided.note_missing(now, &missing);
        }
    }
}
