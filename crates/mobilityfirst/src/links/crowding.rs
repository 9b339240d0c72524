//! Chunks that should not wait for their next hops: their flow has its part of the buffer there, or its receiver holds
//! it back until a program decides.

use std::collections::BTreeSet;

use whimbrel_core::{PortId, Time};

use super::neighbours::MANY_FLOWS;
use super::{ChunkToSend, Links};
use crate::outbox::flow_of;
use crate::wire::Flow;

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

    /// Takes the chunks of offered flows that their destinations, which are neighbours, have held back since `before`,
    /// from old to new, with the ports that they wait for. A router that holds a flow back waits for room, and not for a
    /// decision.
    pub(crate) fn take_stuck_offers(&mut self, before: Time) -> Vec<(PortId, ChunkToSend)> {
        let stuck = self.neighbours.iter().flat_map(|(port, link)| {
            let flows = link.outbox.stuck(before).map(|(flow, _)| flow);
            let is_meant =
                |flow: &Flow| flow.is_offered && link.neighbour == Some(flow.destination);
            flows.filter(is_meant).map(move |flow| (port, flow))
        });
        let offered: Vec<(PortId, Flow)> = stuck.collect();
        let mut taken = self
            .division
            .take_stuck_offers(&mut self.neighbours, before);
        self.settle();
        for (port, flow) in offered {
            let Some(link) = self.neighbours.at_mut(port) else {
                continue;
            };
            let queued = link.outbox.take_undivided(&flow);
            taken.extend(queued.into_iter().map(|outgoing| (port, outgoing)));
            self.review(Some(port), &flow);
        }
        taken
    }

    /// Queues again a chunk of an offered flow for which the storage has no room. Returns one that the port does not take.
    pub(crate) fn put_back_offer(
        &mut self,
        port: PortId,
        outgoing: ChunkToSend,
    ) -> Result<(), ChunkToSend> {
        match self.division.has(&outgoing.chunk.flow()) && outgoing.order.is_some() {
            true => self.division.put_back(outgoing),
            false => self.enqueue(port, outgoing)?,
        }
        Ok(())
    }
}
