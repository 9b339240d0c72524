//! Next hops at which a chunk should not wait: its flow has its part of the buffer there.

use std::collections::BTreeSet;

use whimbrel_core::PortId;

use super::neighbours::MANY_FLOWS;
use super::{ChunkToSend, Links};
use crate::outbox::flow_of;

impl Links {
    /// Returns true if a chunk should not wait for `port` in the buffer, because half of that is
    /// taken and the part of its flow, too. A quarter, if many flows go there: one inbound peer holds half
    /// of the buffer at most, and two chunks of each of many flows must not take all of that from its other
    /// flows.
    pub(crate) fn is_crowded(&self, port: PortId, outgoing: &ChunkToSend) -> bool {
        let flows = self.at(port).map_or(0, |it| it.outbox.flows());
        let (used, capacity) = self.buffer();
        let parts = if flows >= MANY_FLOWS { 4 } else { 2 };
        outgoing.room.packets() > 0
            && used * parts > capacity
            && self.exceeds_part(port, outgoing).is_some()
    }

    /// Returns the chunks of its flow that wait for `port`, if a chunk would exceed the part of the flow.
    pub(crate) fn exceeds_part(&self, port: PortId, outgoing: &ChunkToSend) -> Option<usize> {
        let link = self.at(port)?;
        let flow = flow_of(&outgoing.chunk)?;
        let (bytes, chunks) = link.outbox.waiting(&flow);
        let most = self.neighbours.allowance(link, &flow, outgoing.from);
        (bytes + outgoing.chunk.size() as u64 > most).then_some(chunks)
    }

    /// Returns those of the next hops of a group's chunk at which a copy would have the flow held back, unless all of them
    /// would: the fastest member sets the pace, as far as the storage has room for what the others get later.
    pub(crate) fn slow_ports(
        &self,
        ports: BTreeSet<PortId>,
        outgoing: &ChunkToSend,
    ) -> BTreeSet<PortId> {
        let is_slow = |port: &&PortId| {
            let waiting = self.exceeds_part(**port, outgoing);
            waiting.is_some_and(|chunks| chunks > 0)
        };
        let slow: BTreeSet<PortId> = ports.iter().filter(is_slow).copied().collect();
        match slow.len() < ports.len() {
            true => slow,
            false => BTreeSet::new(),
        }
    }
}
