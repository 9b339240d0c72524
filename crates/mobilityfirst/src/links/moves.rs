//! Neighbours that restart or move to another address, as seen from their ports, and ports that are
//! left.

use std::collections::BTreeSet;

use whimbrel_core::{Guid, PortId, Time};

use super::{ChunkToSend, Link, LinkEvent, Links};
use crate::chunk::{Chunk, Flow};
use crate::next_hops::Branch;

impl Links {
    /// A port is no branch of any flow any more: its chunks go to the others.
    pub(super) fn leave_divided(&mut self, now: Time, port: PortId) {
        for divided in self.splits.values_mut() {
            if divided.hops.iter().any(|it| it.port != port) {
                divided.hops.retain(|it| it.port != port);
            }
        }
        self.recall_divided(now, port);
    }

    /// A host is reached by these routers alone: what waits for it goes to no other one.
    pub(crate) fn leave_addresses(&mut self, host: &Guid, routers: &[Guid]) {
        let stays = |it: &Branch| it.address.is_none_or(|address| routers.contains(&address));
        for (flow, divided) in &mut self.splits {
            if flow.destination == *host && divided.hops.iter().any(stays) {
                divided.hops.retain(stays);
            }
        }
    }

    /// Takes what waits for a host where it is held back, from old to new, as far as it is bound to another
    /// router than `at`. What is divided has its own order.
    pub(crate) fn take_bound_elsewhere(&mut self, host: &Guid, at: &Guid) -> Vec<ChunkToSend> {
        let flows = self.crowded.keys().filter(|(_, it)| {
            let is_divided = self.splits.contains_key(it);
            it.destination == *host && !is_divided
        });
        let mut all = Vec::new();
        for (port, flow) in flows.copied().collect::<Vec<_>>() {
            let link = self.links.get_mut(&port);
            // What waits for the host itself is where it is to leave.
            let Some(link) = link.filter(|link| link.neighbour != Some(*host)) else {
                continue;
            };
            all.extend(bound_elsewhere(link, &flow, at));
            self.review_hold(port, &flow);
        }
        all
    }

    /// What waits here of a flow that this node originates goes to another router of its receiver.
    pub(crate) fn readdress(&mut self, flow: &Flow, at: &Guid) {
        if at.is_none() || self.splits.contains_key(flow) {
            return;
        }
        for link in self.links.values_mut() {
            for mut outgoing in bound_elsewhere(link, flow, at) {
                outgoing.chunk.header.destination_address = *at;
                link.outbox.push(outgoing);
            }
        }
    }

    /// A chunk came in on `port`. If its source is the neighbour there, its receiver will have to
    /// know when that restarts.
    pub(crate) fn note_arrival(&mut self, port: PortId, chunk: &Chunk) {
        self.note_arrived(port, chunk);
        if let Some(link) = self.links.get_mut(&port)
            && link.neighbour == Some(chunk.header.source)
            && let Some(data) = chunk.data()
        {
            link.handovers
                .note_sent(chunk.flow(), data.content, chunk.header.extensions.request);
        }
    }

    /// What was on its way to a neighbour that has moved goes to where it is, in its order.
    pub fn follow(&mut self, now: Time, from: PortId, to: PortId) {
        let Some(link) = self.links.get_mut(&from) else {
            return;
        };
        link.hop.withdraw_all(now);
        let mut all = link.outbox.take_all();
        // Where they go there is one hop, and one order.
        all.iter_mut().for_each(|outgoing| outgoing.order = None);
        self.touched.insert(from);
        self.review_holds(from);
        for outgoing in all {
            // The port has just come up; what is lost with it, the receiver asks for again.
            let _ = self.enqueue(to, outgoing);
        }
    }

    /// A router that connects from an ephemeral port returns on another one after a restart: if a
    /// port is silent while its name appears on another one with another incarnation, it has
    /// restarted. While the first one is responsive, the other one is ignored: both may run with the
    /// same key.
    pub(super) fn note_restarts(&mut self) {
        let of_event = |event: &LinkEvent| match event {
            LinkEvent::Up { port, .. } | LinkEvent::Unresponsive(port) => self.neighbour(*port),
            _ => None,
        };
        let concerned: BTreeSet<Guid> = self.events.iter().filter_map(of_event).collect();
        for guid in concerned {
            let ports: Vec<PortId> = self.ports_of(&guid).collect();
            let here = ports.iter().filter_map(|port| self.links.get(port));
            let up = here.filter(|link| link.hop.is_up());
            let runs: Vec<u64> = up.map(|link| link.incarnation).collect();
            for port in ports {
                let Some(link) = self.links.get_mut(&port) else {
                    continue;
                };
                let restarted = |run: &u64| *run != link.incarnation;
                if link.hop.is_up() || !runs.iter().any(restarted) {
                    continue;
                }
                let handed = link.handovers.take();
                if !handed.is_empty() {
                    self.events.push_back(LinkEvent::Restarted(port, handed));
                }
            }
        }
    }

    /// A caller whose address changes comes in on another port, and is the same run of the same
    /// neighbour. The former port counts as moved from only if nothing came on it since the other
    /// one began to talk: a second holder of the key cannot silence the neighbour.
    pub(super) fn note_moves(&mut self, now: Time) {
        let come: Vec<PortId> = self
            .events
            .iter()
            .filter_map(|event| match event {
                LinkEvent::Up { port, .. } | LinkEvent::Responsive(port) => Some(*port),
                _ => None,
            })
            .collect();
        for to in come {
            let Some(new) = self.links.get_mut(&to) else {
                continue;
            };
            new.moved_at = None;
            let (neighbour, run, since) = (new.neighbour, new.incarnation, new.talking_since);
            if !new.info.origin.is_caller() {
                continue;
            }
            let others: Vec<PortId> = neighbour.iter().flat_map(|it| self.ports_of(it)).collect();
            for from in others {
                let Some(link) = self.links.get_mut(&from) else {
                    continue;
                };
                let is_it = from != to
                    && link.info.origin.is_caller()
                    && (link.neighbour, link.incarnation) == (neighbour, run)
                    && link.hop.heard_at() < since;
                if is_it && link.moved_at.is_none() {
                    link.moved_at = Some(now);
                    link.log("neighbour has moved to another address");
                    self.events.push_back(LinkEvent::Moved { from, to });
                }
            }
        }
    }
}

/// Takes the newest waiting chunks of a flow, as far as they are bound to another router than `at`. Returns
/// them from old to new.
fn bound_elsewhere(link: &mut Link, flow: &Flow, at: &Guid) -> Vec<ChunkToSend> {
    let mut taken = Vec::new();
    while let Some(newest) = link.outbox.take_newest(&(*flow, None)) {
        let address = newest.chunk.header.destination_address;
        if address.is_none() || address == *at {
            link.outbox.push(newest);
            break;
        }
        taken.push(newest);
    }
    taken.reverse();
    taken
}
