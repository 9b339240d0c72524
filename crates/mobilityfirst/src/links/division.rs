//! Flows that are divided among several hops: their chunks wait in one queue until a hop pulls them
//! ([`crate::split`]).

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId, Time};

use super::branch::{BranchView, DividedStatus, measure};
use super::link::Gone;
use super::neighbours::{Neighbours, UNMEASURED};
use super::paces::{CHUNK, LITTLE, OnwardWay, Paces};
use super::serving::Serving;
use super::{AskedBy, ChunkToSend, LinkEvent, WaitingAt};
use crate::chunk::Chunk;
use crate::next_hops::{Branch, NextHops};
use crate::split::flow::DividedFlow;
use crate::split::schedule::Measured;
use crate::split::{Scheduler, SplitConfig};
use crate::wire::{Flow, Pace, Request};

/// Maximum of flows divided at one time; further ones use their best next hop.
const MAX_DIVIDED: usize = 1024;

/// The flows that are divided here: which branch takes the next chunk.
#[derive(Default)]
pub(crate) struct FlowDivision {
    config: SplitConfig,
    flows: BTreeMap<Flow, DividedFlow>,
    // When one of them is to be looked at again.
    due: Option<Time>,
    paces: Paces,
    // What is to be told, and of what a chunk less waits.
    events: Vec<LinkEvent>,
    gone: Vec<(WaitingAt, Flow)>,
}

impl FlowDivision {
    /// Sets how flows are divided from now on.
    pub(super) fn set_config(&mut self, config: SplitConfig) {
        self.config = config;
        self.paces.set_used(config.pace);
    }

    /// Returns when a flow is to be looked at again.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Returns true if a flow is divided here.
    pub(super) fn has(&self, flow: &Flow) -> bool {
        self.flows.contains_key(flow)
    }

    /// Returns true if the chunks of `flow` wait for a branch to pull them. All chunks of a flow do, or
    /// none, because a flow has one order.
    pub(crate) fn may_divide(&self, flow: &Flow, hops: &NextHops) -> bool {
        self.config.scheduler == Scheduler::Pull
            && (self.flows.contains_key(flow)
                || self.flows.len() < MAX_DIVIDED && hops.ports().len() > 1)
    }

    /// Returns the next hops among which a flow is divided, if it is and they part here.
    pub(crate) fn divided_among(&self, flow: &Flow) -> Option<&NextHops> {
        let hops = &self.flows.get(flow)?.hops;
        (hops.ports().len() > 1).then_some(hops)
    }

    /// Queues a chunk for whichever of these next hops pulls it first.
    pub(crate) fn divide(
        &mut self,
        neighbours: &Neighbours,
        outgoing: ChunkToSend,
        hops: &NextHops,
    ) {
        let flow = outgoing.chunk.flow();
        if let Some(first) = hops.best() {
            self.note_passing(neighbours, first.port, &outgoing);
        }
        let divided = self
            .flows
            .entry(flow)
            .or_insert_with(|| DividedFlow::new(hops.clone()));
        divided.hops = hops.clone();
        divided.push(outgoing);
    }

    /// Returns true if one more chunk of a flow would not wait long for a branch.
    pub(crate) fn has_room_to_divide(
        &self,
        neighbours: &Neighbours,
        flow: &Flow,
        hops: &NextHops,
    ) -> bool {
        let waiting = self.flows.get(flow).map_or(0, |it| it.waiting().1);
        waiting < 2
            && hops.iter().any(|it| {
                neighbours
                    .at(it.port)
                    .is_some_and(|link| link.has_room_for(flow))
            })
    }

    /// Notes that `bytes` more bytes of a flow follow those that wait here.
    pub(crate) fn note_more(&mut self, flow: &Flow, bytes: u64) {
        if let Some(divided) = self.flows.get_mut(flow) {
            divided.more = bytes;
        }
    }

    /// Lets branches pull. If there are many flows, forgets those with nothing left.
    pub(super) fn serve(&mut self, neighbours: &mut Neighbours, now: Time) {
        if self.flows.is_empty() {
            return;
        }
        self.due = None;
        if self.flows.len() >= MAX_DIVIDED / 2 {
            self.flows.retain(|_, divided| !divided.is_idle());
        }
        // A flow with nothing waiting or in flight needs no decision.
        let active = self.flows.iter().filter(|(_, it)| !it.is_idle());
        let active: Vec<Flow> = active.map(|(flow, _)| *flow).collect();
        for flow in active {
            self.with(neighbours, now, flow, |_| ());
        }
    }

    /// Lets a flow be served, if it is divided here.
    fn with(
        &mut self,
        neighbours: &mut Neighbours,
        now: Time,
        flow: Flow,
        act: impl FnOnce(&mut Serving<'_>),
    ) {
        let Some(divided) = self.flows.remove(&flow) else {
            return;
        };
        let mut serving = Serving {
            neighbours,
            config: &self.config,
            paces: &self.paces,
            due: &mut self.due,
            events: &mut self.events,
            gone: &mut self.gone,
            now,
            flow,
            divided,
        };
        act(&mut serving);
        serving.serve();
        let divided = serving.divided;
        self.flows.insert(flow, divided);
        self.gone.push((None, flow));
    }

    /// Notes that the neighbour on a port has this chunk of a divided flow.
    pub(super) fn note_delivered(&mut self, neighbours: &mut Neighbours, now: Time, gone: &Gone) {
        if let Some(order) = gone.order {
            let port = gone.port;
            self.with(neighbours, now, gone.flow, |it| {
                it.note_delivered(order, port)
            });
        }
    }

    /// Takes the divided chunks back from an unresponsive neighbour.
    pub(super) fn recall(&mut self, neighbours: &mut Neighbours, now: Time, port: PortId) {
        for flow in self.flows.keys().copied().collect::<Vec<_>>() {
            self.with(neighbours, now, flow, |it| it.recall(port));
        }
    }

    /// The neighbour on a port holds a flow back.
    pub(super) fn pull_back(
        &mut self,
        neighbours: &mut Neighbours,
        now: Time,
        port: PortId,
        flow: Flow,
    ) {
        self.with(neighbours, now, flow, |it| it.pull_back(port));
    }

    /// Queues again the chunks that a closed port returned. Returns those that are not divided or have no
    /// other branch.
    pub(super) fn take_returned(
        &mut self,
        neighbours: &mut Neighbours,
        now: Time,
        port: PortId,
        returned: Vec<ChunkToSend>,
    ) -> Vec<ChunkToSend> {
        let mut left = Vec::new();
        let mut flows = BTreeSet::new();
        for outgoing in returned {
            let flow = outgoing.chunk.flow();
            let divided = outgoing.order.zip(self.flows.get_mut(&flow));
            let Some((order, divided)) = divided else {
                left.push(outgoing);
                continue;
            };
            let goes_again = divided.is_to_go_again(order, port);
            if !goes_again {
                // Another branch carries it.
            } else if divided.hops.iter().any(|it| neighbours.is_up(it.port)) {
                divided.push_again(outgoing);
                flows.insert(flow);
            } else {
                left.push(outgoing);
            }
        }
        for flow in flows {
            self.with(neighbours, now, flow, |_| ());
        }
        left
    }

    /// Removes the waiting chunks of a divided flow for which `is_meant` is true. Returns their number, and
    /// the ports of the flow's branches.
    pub(super) fn purge(
        &mut self,
        flow: &Flow,
        is_meant: impl Fn(&Chunk) -> bool,
    ) -> (usize, Vec<PortId>) {
        let Some(divided) = self.flows.get_mut(flow) else {
            return (0, Vec::new());
        };
        divided.more = 0;
        (divided.purge(is_meant), divided.hops.ports())
    }

    /// Notes that a chunk that a node before may have bound to this way leaves by `to`.
    pub(super) fn note_passing(
        &mut self,
        neighbours: &Neighbours,
        to: PortId,
        outgoing: &ChunkToSend,
    ) {
        let neighbour = outgoing.from.and_then(|from| neighbours.neighbour(from));
        self.paces.note_passing(neighbour, to, outgoing);
    }

    /// Forgets what the neighbour on a port has said.
    pub(super) fn forget_port(&mut self, port: PortId) {
        self.paces.forget_port(port);
    }

    /// Forgets the chunks of a flow that were purged from its branches.
    pub(super) fn forget_purged(&mut self, neighbours: &Neighbours, flow: &Flow) {
        let Some(divided) = self.flows.get_mut(flow) else {
            return;
        };
        let carried = neighbours.iter().flat_map(|(port, link)| {
            let orders = link.outbox.orders_of(flow);
            orders.into_iter().map(move |order| (order, port))
        });
        divided.keep_present(&carried.collect());
        self.gone.push((None, *flow));
    }

    /// Removes from a request the chunks that wait for its client, or are in flight to
    /// answer it on another branch.
    pub(super) fn subtract_under_way(
        &self,
        neighbours: &Neighbours,
        asked_on: PortId,
        by: &AskedBy,
        request: &mut Request,
    ) {
        let flows = self.flows.iter();
        for (flow, divided) in flows.filter(|(flow, _)| flow.destination == by.client) {
            let waiting = divided.queued().filter_map(|it| it.chunk.data());
            let of_content = waiting.filter(|it| it.content == request.content);
            request.subtract(of_content.map(|it| (it.chunk_log2, it.index)).collect());
            for port in divided.hops.ports() {
                let trusted = divided.record(port).suspect_since().is_none();
                if port == asked_on || !trusted || !neighbours.is_up(port) {
                    continue;
                }
                if let Some(link) = neighbours.at(port) {
                    let counts = |chunk: &Chunk| chunk.header.extensions.request == by.id;
                    (link.outbox).subtract_under_way(&flow.destination, counts, request);
                }
            }
        }
    }

    /// Returns the bytes and chunks of a flow that wait for a branch; `None` if it is not divided here.
    pub(super) fn waiting(&self, flow: &Flow) -> Option<(u64, usize)> {
        self.flows.get(flow).map(DividedFlow::waiting)
    }

    /// Returns the bytes of a divided flow from `from` that may wait: the sum over its branches, each at the rate
    /// at which the flow leaves there.
    pub(super) fn allowance(&self, neighbours: &Neighbours, flow: &Flow, from: PortId) -> u64 {
        let Some(divided) = self.flows.get(flow) else {
            return 0;
        };
        let mut all = 0;
        for port in divided.hops.ports() {
            let Some(link) = neighbours.at(port).filter(|it| it.is_up()) else {
                continue;
            };
            let mut branches = divided.hops.iter().filter(|it| it.port == port);
            let goes_on = self.config.pace
                && branches.any(|it| it.address.is_some())
                && link.neighbour != Some(flow.destination);
            let unknown = if goes_on { UNMEASURED } else { u64::MAX };
            let most = self.paces.rate(port, flow).unwrap_or(unknown);
            let rate = link.hop.delivery_rate().unwrap_or(UNMEASURED).min(most);
            all += neighbours.allowance_at(rate, link, flow, Some(from));
        }
        all
    }

    /// Removes the newest waiting chunk of a divided flow that has made no progress since `before`.
    pub(super) fn take_stuck(&mut self, before: Time) -> Option<ChunkToSend> {
        let stuck = |it: &&mut DividedFlow| it.last_progress <= before && it.waiting().1 > 0;
        let most = self.flows.values_mut().filter(stuck);
        most.max_by_key(|it| it.waiting().0)?.take_newest()
    }

    /// Takes what waits of offered flows that all their branches have held back since `before`, from old to new, with the
    /// port of a branch. Each branch leads to the destination.
    pub(super) fn take_stuck_offers(
        &mut self,
        neighbours: &mut Neighbours,
        before: Time,
    ) -> Vec<(PortId, ChunkToSend)> {
        let mut taken = Vec::new();
        for (flow, divided) in self.flows.iter_mut().filter(|(flow, _)| flow.is_offered) {
            let is_held = |port: &PortId| {
                neighbours.at(*port).is_some_and(|link| {
                    link.neighbour == Some(flow.destination)
                        && link.outbox.is_held_since(flow, before)
                })
            };
            let mut ports = divided.hops.ports();
            ports.retain(|port| neighbours.is_up(*port));
            if ports.is_empty() || !ports.iter().all(is_held) {
                continue;
            }
            // What a branch has pulled and its hop has not begun waits again.
            for port in &ports {
                let link = neighbours.at_mut(*port);
                let pulled = link.map_or(Vec::new(), |link| link.outbox.take_divided(flow));
                for outgoing in pulled {
                    let order = outgoing.order;
                    if order.is_some_and(|order| divided.is_to_go_again(order, *port)) {
                        divided.push_again(outgoing);
                    }
                }
                self.gone.push((Some(*port), *flow));
            }
            self.gone.push((None, *flow));
            taken.extend(divided.take_all().into_iter().map(|it| (ports[0], it)));
        }
        taken
    }

    /// Queues a chunk again that was taken from here.
    pub(super) fn put_back(&mut self, outgoing: ChunkToSend) {
        if let Some(divided) = self.flows.get_mut(&outgoing.chunk.flow()) {
            divided.push_again(outgoing);
        }
    }

    /// Returns reports of the divided flows.
    pub(crate) fn status(&self, neighbours: &Neighbours, now: Time) -> Vec<DividedStatus> {
        let flows = self.flows.iter();
        flows
            .map(|(flow, divided)| DividedStatus::of(neighbours, now, flow, divided))
            .collect()
    }

    /// A port is no branch of any flow any more: its chunks go to the others.
    pub(super) fn leave(&mut self, neighbours: &mut Neighbours, now: Time, port: PortId) {
        for divided in self.flows.values_mut() {
            if divided.hops.iter().any(|it| it.port != port) {
                divided.hops.retain(|it| it.port != port);
            }
        }
        self.recall(neighbours, now, port);
    }

    /// A host is reached by these routers alone: what waits for it goes to no other one.
    pub(crate) fn leave_addresses(&mut self, host: &Guid, routers: &[Guid]) {
        let stays = |it: &Branch| it.address.is_none_or(|address| routers.contains(&address));
        for (flow, divided) in &mut self.flows {
            if flow.destination == *host && divided.hops.iter().any(stays) {
                divided.hops.retain(stays);
            }
        }
    }

    /// A receiver asks again for chunks. What a branch of its flow has delivered to the next node counted as
    /// delivered; what is asked for all the same did not arrive.
    pub(super) fn note_missing(
        &mut self,
        neighbours: &mut Neighbours,
        now: Time,
        client: &Guid,
        request: &Request,
    ) {
        let flows = self.flows.iter_mut();
        for (flow, divided) in flows.filter(|(flow, _)| flow.destination == *client) {
            let mut missing: Vec<(PortId, u64)> = Vec::new();
            for port in divided.hops.ports() {
                if let Some(link) = neighbours.at_mut(port) {
                    let handovers = &mut link.handovers;
                    let gone = handovers.take_missing(flow, &request.content, &request.chunks);
                    missing.push((port, gone));
                }
            }
            divided.note_missing(now, &missing);
        }
    }

    /// Tells the node that a flow comes from its pace from here on, if that is due.
    pub(super) fn tell_pace(&mut self, neighbours: &Neighbours, now: Time, flow: &Flow) {
        let pace = match self.paces.way_of(now, flow) {
            Some(to) => self.pace_of(neighbours, now, flow, to),
            None => return,
        };
        if let Some(pace) = pace {
            self.paces.tell(now, flow, pace);
        }
    }

    /// Returns the pace of a flow from here on; `None` as long as a rate is not measured.
    fn pace_of(&self, neighbours: &Neighbours, now: Time, flow: &Flow, to: PortId) -> Option<Pace> {
        let (ways, queued) = match self.flows.get(flow) {
            Some(divided) => {
                let view = BranchView {
                    neighbours,
                    paces: &self.paces,
                    now,
                    flow,
                    divided,
                };
                let ways = view.measured(CHUNK);
                let ways: Vec<Measured> = ways.into_iter().map(|(_, it)| it).collect();
                (ways, divided.waiting().0)
            }
            None => {
                let link = neighbours.at(to).filter(|it| it.is_up())?;
                // What it was given since cannot be told from what others gave it: the newest message
                // counts as it is.
                let way = OnwardWay {
                    link,
                    flow,
                    port: to,
                    given: None,
                };
                (
                    vec![self.paces.beyond(now, way, measure(link, flow, CHUNK))?],
                    0,
                )
            }
        };
        let rates = ways.iter().map(|it| it.rate);
        let rate: u64 = rates.collect::<Option<Vec<u64>>>()?.iter().sum();
        let waiting = ways.iter().map(|it| it.waiting).sum::<u64>() + queued;
        // With nothing to send, a link's rate is what came, and not what it could carry.
        let rate = if waiting < LITTLE { rate * 2 } else { rate };
        Some(Pace {
            flow: *flow,
            rate,
            delay: ways.iter().map(|it| it.delay(CHUNK)).min()?,
            waiting,
        })
    }

    /// The neighbour on a port reports the pace of a flow behind it. It counts for what goes to that
    /// neighbour alone.
    pub(super) fn note_pace(
        &mut self,
        neighbours: &mut Neighbours,
        now: Time,
        port: PortId,
        pace: &Pace,
    ) {
        let flow = pace.flow;
        let of_split = self.flows.get(&flow);
        let of_split = of_split.filter(|it| it.hops.iter().any(|hop| hop.port == port));
        let given = of_split.map(|it| it.record(port).bytes);
        let passes = self.paces.leaves_by(&flow, port);
        // Otherwise the last chunks have arrived.
        if self.config.pace
            && (given.is_some() || passes)
            && self.paces.note(now, port, pace, given)
        {
            neighbours.touch(port);
            if passes {
                self.tell_pace(neighbours, now, &flow);
            }
        }
    }

    /// Takes what is to be told, and chunks that have no next hop any more.
    pub(super) fn take_events(&mut self) -> Vec<LinkEvent> {
        self.events.append(&mut self.paces.take_events());
        core::mem::take(&mut self.events)
    }

    /// Takes the flows of which a chunk less waits, with where it waited.
    pub(super) fn take_gone(&mut self) -> Vec<(WaitingAt, Flow)> {
        core::mem::take(&mut self.gone)
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_core::LinkState;

    use super::super::tests::links;
    use super::*;
    use crate::outbox::tests::chunk;

    #[test]
    fn a_returned_chunk_without_a_place_leaves_its_flow_divided() {
        let (mut links, chunk) = (links(2), chunk(1, 0, 100));
        let over = |port| Branch {
            port: PortId(port),
            address: None,
            preference: 0,
            weight: 1,
            is_alike: false,
            up: true,
            link: LinkState::default(),
        };
        links.divide(chunk.clone(), &[0, 1].map(over).into_iter().collect());
        let (division, neighbours) = (&mut links.division, &mut links.neighbours);
        let flow = chunk.chunk.flow();
        let left = division.take_returned(neighbours, Time::ZERO, PortId(0), vec![chunk]);
        assert_eq!(left.len(), 1);
        assert_eq!(division.waiting(&flow).map(|(_, chunks)| chunks), Some(1));
    }
}
