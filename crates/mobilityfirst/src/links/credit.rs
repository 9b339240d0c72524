//! Credit, the back-pressure for one flow: what waits for a next hop is bounded in time, and a flow of which
//! enough waits is held back where it comes from, while others go on.
//!
//! A node that only stops granting room [MFTP §3.4.1] stops all that comes by the same hop for the
//! slowest of its next hops.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId};

use super::division::FlowDivision;
use super::link::Link;
use super::neighbours::Neighbours;
use super::{Grant, LinkEvent};
use crate::chunk::{Chunk, Flow};
use crate::outbox::flow_of;

/// A credit of which nothing has come during this many renewals and a round trip is taken for spent:
/// its source has no more, or has dropped it.
const IDLE_RENEWALS: u8 = 2;
/// A flow of which nothing waits at this many renewals in succession is free again.
const EMPTY_RENEWALS: u8 = 2;

/// What a flow may bring. What comes in faster than it leaves is let in by credit: if it were simply freed, a
/// fast link would bring what it carries in a round trip before it is held back again, which is minutes'
/// worth for a thin one.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    // The port that the flow leaves on.
    port: PortId,
    // Bytes that have not come yet.
    bytes: u64,
    // Renewals since some of it came or more was given.
    idle: u8,
}

/// A chunk of a flow with credit that has come.
#[derive(Clone, Copy, Debug)]
struct Arrived {
    flow: Flow,
    from: PortId,
    size: u64,
}

/// The flows that are under credit where they come from. Which ports have been told, the outbox of the port
/// that a flow leaves on knows.
#[derive(Debug, Default)]
pub(super) struct Grants {
    // By the port that they leave on, with the renewals at which nothing of them waited there.
    crowded: BTreeMap<(PortId, Flow), u8>,
    // By the port that they come from.
    credits: BTreeMap<(Flow, PortId), Outstanding>,
    arrived: Vec<Arrived>,
    // What is to be told.
    events: Vec<LinkEvent>,
}

impl Grants {
    /// A chunk of a flow that came in on `from` waits for `port`: if there are enough, the flow is
    /// held back at `from`.
    pub(super) fn note_waiting(
        &mut self,
        neighbours: &mut Neighbours,
        port: PortId,
        flow: Flow,
        from: PortId,
    ) {
        let Some(link) = neighbours.at(port) else {
            return;
        };
        let (bytes, chunks) = link.outbox.waiting(&flow);
        // One on its way, and the next one.
        let allowance = neighbours.allowance(link, &flow, Some(from));
        if !link.is_up() || chunks < 2 || bytes <= allowance {
            return;
        }
        let link = neighbours.at_mut(port);
        if link.is_some_and(|link| link.outbox.note_told(&flow, from)) {
            self.crowded.insert((port, flow), 0);
            self.tell(from, flow, Grant::Octets(0));
        } else if self.credits.remove(&(flow, from)).is_some() {
            // Its part has become smaller since it got credit.
            self.tell(from, flow, Grant::Octets(0));
        }
    }

    fn tell(&mut self, port: PortId, flow: Flow, grant: Grant) {
        self.events.push(LinkEvent::Credit { port, flow, grant });
    }

    /// Takes what is to be told.
    pub(super) fn take_events(&mut self) -> Vec<LinkEvent> {
        core::mem::take(&mut self.events)
    }

    /// A chunk less of a flow waits for `port`: more may come if few enough are left.
    pub(super) fn review(
        &mut self,
        neighbours: &mut Neighbours,
        division: &FlowDivision,
        port: PortId,
        flow: &Flow,
    ) {
        if !self.crowded.contains_key(&(port, *flow)) {
            return;
        }
        let Some(link) = neighbours.at(port).filter(|it| it.is_up()) else {
            // What comes for a neighbour that is away goes to the storage.
            return self.free(neighbours, port, flow);
        };
        let (bytes, chunks) = link.outbox.waiting(flow);
        let told: Vec<PortId> = link.outbox.told(flow).collect();
        let most = told
            .iter()
            .map(|from| neighbours.allowance(link, flow, Some(*from)));
        let most = most
            .max()
            .unwrap_or_else(|| neighbours.allowance(link, flow, None));
        // A flow that comes from one port, and is not divided here since, goes on by credit.
        let (false, [from]) = (division.has(flow), told.as_slice()) else {
            if chunks < 2 || bytes <= most / 4 * 3 {
                self.free(neighbours, port, flow);
            }
            return;
        };
        let credit = self.credits.get(&(*flow, *from));
        let outstanding = credit.map_or(0, |credit| credit.bytes);
        let expected = bytes + outstanding;
        if (chunks >= 2 || outstanding > 0) && expected > most / 4 * 3 {
            return;
        }
        // One chunk at least.
        let more = most.saturating_sub(expected).max(1);
        let credit = Outstanding {
            port,
            bytes: outstanding + more,
            idle: 0,
        };
        self.credits.insert((*flow, *from), credit);
        self.tell(*from, *flow, Grant::Octets(more));
    }

    /// Nothing holds a flow back any more.
    fn free(&mut self, neighbours: &mut Neighbours, port: PortId, flow: &Flow) {
        self.crowded.remove(&(port, *flow));
        if let Some(link) = neighbours.at_mut(port) {
            self.free_told(link, flow);
        }
    }

    fn free_told(&mut self, link: &mut Link, flow: &Flow) {
        for from in link.outbox.take_told(flow) {
            self.credits.remove(&(*flow, from));
            self.tell(from, *flow, Grant::Free);
        }
    }

    /// A chunk came in on `from`. Wherever it goes, it uses up credit.
    pub(super) fn note_arrived(&mut self, from: PortId, chunk: &Chunk) {
        if !self.credits.is_empty()
            && let Some(flow) = flow_of(chunk)
            && self.credits.contains_key(&(flow, from))
        {
            let size = chunk.size() as u64;
            self.arrived.push(Arrived { flow, from, size });
        }
    }

    /// Gives more credit for what has come, once that is where it waits.
    pub(super) fn review_arrived(&mut self, neighbours: &mut Neighbours, division: &FlowDivision) {
        for Arrived { flow, from, size } in core::mem::take(&mut self.arrived) {
            let Some(credit) = self.credits.get_mut(&(flow, from)) else {
                continue;
            };
            credit.bytes = credit.bytes.saturating_sub(size);
            credit.idle = 0;
            let port = credit.port;
            match none_waits(neighbours, port, &flow) {
                // It leaves by another port now.
                true => {
                    self.credits.remove(&(flow, from));
                    self.free(neighbours, port, &flow);
                }
                false => self.review(neighbours, division, port, &flow),
            }
        }
    }

    /// Nothing but what waits here holds a flow back at `from` any more: credit that was not passed on
    /// meanwhile is given again.
    pub(super) fn give_again(
        &mut self,
        neighbours: &mut Neighbours,
        division: &FlowDivision,
        from: PortId,
        flow: &Flow,
    ) {
        if let Some(credit) = self.credits.remove(&(*flow, from)) {
            self.review(neighbours, division, credit.port, flow);
        }
    }

    /// Returns true if a flow is held back at `from` for what waits here.
    pub(super) fn holds_back(&self, neighbours: &Neighbours, from: PortId, flow: &Flow) -> bool {
        let ports = self.crowded.keys().filter(|(_, of)| of == flow);
        let mut links = ports.filter_map(|(port, _)| neighbours.at(*port));
        links.any(|link| link.outbox.told(flow).any(|it| it == from))
    }

    /// Returns the flows that are held back for what waits for `port`.
    pub(super) fn flows_of(&self, port: PortId) -> Vec<Flow> {
        let crowded = self.crowded.range((port, Flow::FIRST)..);
        let crowded = crowded.take_while(|((at, _), _)| *at == port);
        crowded.map(|((_, flow), _)| *flow).collect()
    }

    /// Returns the flows to a host that are held back, with the ports that they leave on.
    pub(super) fn flows_to(&self, host: &Guid) -> Vec<(PortId, Flow)> {
        let crowded = self.crowded.keys();
        let to_host = crowded.filter(|(_, flow)| flow.destination == *host);
        to_host.copied().collect()
    }

    /// Repeats at these ports what is told of flows without credit. Returns false if there are none at
    /// any.
    pub(super) fn renew(
        &mut self,
        neighbours: &mut Neighbours,
        division: &FlowDivision,
        due: &BTreeSet<PortId>,
    ) -> bool {
        for ((_, from), credit) in &mut self.credits {
            let way = neighbours
                .at(*from)
                .map_or(0, |it| it.round_trip().as_secs());
            credit.idle = credit.idle.saturating_add(1);
            // There is a renewal each second.
            if u64::from(credit.idle) >= u64::from(IDLE_RENEWALS) + way {
                credit.bytes = 0;
            }
        }
        let crowded: Vec<(PortId, Flow)> = self.crowded.keys().copied().collect();
        for (port, flow) in crowded {
            let is_empty = none_waits(neighbours, port, &flow);
            let empty = self.crowded.get_mut(&(port, flow)).map(|empty| {
                *empty = if is_empty { *empty + 1 } else { 0 };
                *empty
            });
            if empty >= Some(EMPTY_RENEWALS) {
                self.free(neighbours, port, &flow);
                continue;
            }
            self.review(neighbours, division, port, &flow);
            let told = neighbours.at(port).into_iter();
            let told = told.flat_map(|it| it.outbox.told(&flow));
            for from in told.filter(|it| due.contains(it)).collect::<Vec<_>>() {
                // That would take its credit back.
                let credit = self.credits.get(&(flow, from));
                if credit.is_none_or(|credit| credit.bytes == 0) {
                    self.tell(from, flow, Grant::Octets(0));
                }
            }
        }
        !self.crowded.is_empty()
    }

    /// A port is closed: nothing waits for its hop any more.
    pub(super) fn forget_port(&mut self, port: PortId, link: &mut Link) {
        for flow in self.flows_of(port) {
            self.crowded.remove(&(port, flow));
            self.free_told(link, &flow);
        }
        self.credits.retain(|(_, from), _| *from != port);
    }
}

/// Returns true if nothing of a flow waits for `port` or is on its way there.
fn none_waits(neighbours: &Neighbours, port: PortId, flow: &Flow) -> bool {
    let link = neighbours.at(port);
    link.is_none_or(|link| link.outbox.waiting(flow).1 == 0)
}
