//! Flows that are divided among several hops: their chunks wait in one queue until a hop pulls them
//! ([`crate::split`]).

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{PortId, Time};

use super::credit::UNMEASURED;
use super::{ChunkToSend, Grant, Link, LinkEvent, Links};
use crate::chunk::{Chunk, Flow};
use crate::next_hops::{Branch, NextHops};
use crate::outbox::FlowTurn;
use crate::split::flow::{DividedFlow, Forecast, Record};
use crate::split::schedule::{Measured, Wanted, choose, reordering_bound};
use crate::split::{Scheduler, SplitConfig};
use crate::wire::Request;

/// Maximum of flows divided at one time; further ones use their best next hop.
const MAX_DIVIDED: usize = 1024;
/// A branch has room for the next chunk while its hop has less than this to send, as time, or less
/// than one chunk.
pub(super) const LOW_WATER: Duration = Duration::from_millis(20);
/// Added to the silence that makes a branch suspect, for a late wake-up of the driver; the time of eight
/// packets is added, too.
const SILENCE_SLACK: Duration = Duration::from_millis(10);
const SILENCE_PACKETS: u64 = 8;
/// Chunks added to the reordering bound, because chunks are indivisible and a hop sends in bursts.
const BOUND_SLACK: u64 = 4;

impl Links {
    /// Sets how flows are divided from now on.
    pub fn set_split(&mut self, config: SplitConfig) {
        self.split = config;
    }

    /// Returns true if the chunks of `flow` wait for a branch to pull them. All chunks of a flow do, or
    /// none, because a flow has one order.
    pub(crate) fn may_divide(&self, flow: &Flow, hops: &NextHops) -> bool {
        self.split.scheduler == Scheduler::Pull
            && (self.splits.contains_key(flow)
                || self.splits.len() < MAX_DIVIDED && hops.ports().len() > 1)
    }

    /// Returns the next hops among which a flow is divided, if it is and they part here.
    pub(crate) fn divided_among(&self, flow: &Flow) -> Option<&NextHops> {
        let hops = &self.splits.get(flow)?.hops;
        (hops.ports().len() > 1).then_some(hops)
    }

    /// Queues a chunk for whichever of these next hops pulls it first.
    pub(crate) fn divide(&mut self, outgoing: ChunkToSend, hops: &NextHops) {
        let (flow, from) = (outgoing.chunk.flow(), outgoing.from);
        if let Some(first) = hops.best() {
            self.note_passing(first.port, &outgoing);
        }
        let divided = self
            .splits
            .entry(flow)
            .or_insert_with(|| DividedFlow::new(hops.clone()));
        divided.hops = hops.clone();
        divided.push(outgoing);
        if let Some(from) = from {
            self.note_waiting_split(flow, from);
        }
    }

    /// Returns true if one more chunk of a flow would not wait long for a branch.
    pub(crate) fn has_room_to_divide(&self, flow: &Flow, hops: &NextHops) -> bool {
        let waiting = self.splits.get(flow).map_or(0, |it| it.waiting().1);
        waiting < 2 && hops.iter().any(|it| self.has_room_for(it.port, flow))
    }

    /// Notes that `bytes` more bytes of a flow follow those that wait here.
    pub(crate) fn note_more(&mut self, flow: &Flow, bytes: u64) {
        if let Some(divided) = self.splits.get_mut(flow) {
            divided.more = bytes;
        }
    }

    /// Lets branches pull. If there are many flows, forgets those with nothing left.
    pub(super) fn serve_splits(&mut self, now: Time) {
        if self.splits.is_empty() {
            return;
        }
        self.split_due = None;
        let is_done = |it: &DividedFlow| it.is_idle() && it.told.is_empty();
        if self.splits.len() >= MAX_DIVIDED / 2 {
            self.splits.retain(|_, divided| !is_done(divided));
        }
        // A flow with nothing waiting or in flight needs no decision.
        let active = self.splits.iter().filter(|(_, it)| !is_done(it));
        let active: Vec<Flow> = active.map(|(flow, _)| *flow).collect();
        for flow in active {
            self.serve_split(now, flow);
        }
    }

    fn serve_split(&mut self, now: Time, flow: Flow) {
        let Some(mut divided) = self.splits.remove(&flow) else {
            return;
        };
        if !divided.is_idle() {
            self.check_branches(now, &flow, &mut divided);
            self.give(now, &flow, &mut divided);
            self.shorten_tail(now, &flow, &mut divided);
            if !divided.hops.iter().any(|it| self.is_up(it.port)) && divided.waiting().1 > 0 {
                self.events
                    .push_back(LinkEvent::Stranded(divided.take_all()));
            }
        }
        self.splits.insert(flow, divided);
        self.review_split_hold(&flow);
    }

    /// Gives chunks to branches until no branch takes the next one.
    fn give(&mut self, now: Time, flow: &Flow, divided: &mut DividedFlow) {
        while let Some(bytes) = divided.next() {
            let all = self.measured(now, flow, divided, bytes);
            let is_known = !all.is_empty();
            let (branches, measured): (Vec<Branch>, Vec<Measured>) = all
                .into_iter()
                .filter(|(branch, _)| !divided.next_is_on(branch.port))
                .unzip();
            if is_known && branches.is_empty() {
                divided.drop_copy();
                continue;
            }
            let wanted = Wanted {
                bytes,
                backlog: divided.waiting().0.saturating_add(divided.more),
                budget: self.split.reorder_budget,
            };
            let Some(at) = choose(&measured, wanted) else {
                return;
            };
            let port = branches[at].port;
            // The delivery is known only after the answer has crossed the slower branch.
            let rates: u64 = measured.iter().map(Measured::rate).sum();
            let answer = measured[at].round_trip.as_micros() as u64 * (rates / 1_000) / 1_000;
            let bound = reordering_bound(&measured, at, bytes) + answer + BOUND_SLACK * bytes;
            let is_measured = measured.iter().all(|it| it.rate.is_some());
            let expected = measured[at].finish(bytes) + measured[at].round_trip;
            let forecast = Forecast {
                bound: is_measured.then_some(bound),
                expected: now + expected + expected / 4 + SILENCE_SLACK,
            };
            let Some(outgoing) = divided.take(now, port, forecast) else {
                return;
            };
            let outgoing = outgoing.over(&branches[at], &divided.hops);
            self.hand_over(now, port, outgoing);
        }
        let has_room = |(_, it): &(Branch, Measured)| it.has_room;
        let idle = self.measured(now, flow, divided, 0).iter().any(has_room);
        if idle {
            divided.note_idle();
        }
    }

    fn hand_over(&mut self, now: Time, port: PortId, outgoing: ChunkToSend) {
        if let Some(link) = self.links.get_mut(&port) {
            link.outbox.push(outgoing);
            link.feed(now, &mut self.next_tag);
            self.touched.insert(port);
        }
    }

    /// Returns the usable branches with the best preference, and their measurements.
    pub(super) fn measured(
        &self,
        now: Time,
        flow: &Flow,
        divided: &DividedFlow,
        bytes: u64,
    ) -> Vec<(Branch, Measured)> {
        let is_fit = |it: &&Branch| self.is_usable(now, flow, divided, it.port);
        let fit = divided.hops.iter().filter(is_fit);
        let mut best = None;
        let mut all: Vec<(Branch, Measured)> = Vec::new();
        for branch in fit {
            let is_known = all.iter().any(|(it, _)| it.port == branch.port);
            if *best.get_or_insert(branch.preference) != branch.preference || is_known {
                continue;
            }
            let Some(link) = self.links.get(&branch.port) else {
                continue;
            };
            let record = divided.record(branch.port);
            let given = record.bytes;
            let mut here = measure(link, flow, bytes);
            if let Some(idle) = divided.idle_since(branch.port)
                && link.outbox.flows() == 0
            {
                // Nothing measures the path, and its queue drains.
                here.let_drain(now.since(idle));
            }
            let carried = given + link.outbox.waiting(flow).0;
            here.has_room &= branch.address.is_none()
                || !self.awaits_pace(now, flow, branch.port, carried, record.first_given);
            let whole = self.beyond(now, flow, branch.port, Some(given), here);
            all.extend(whole.map(|it| (*branch, it)));
        }
        all
    }

    fn is_usable(&self, now: Time, flow: &Flow, divided: &DividedFlow, port: PortId) -> bool {
        let free = |link: &Link| link.is_up() && link.outbox.turn_of(flow) == FlowTurn::Free;
        self.links.get(&port).is_some_and(free) && divided.record(port).is_fit(now)
    }

    /// Returns true if a branch other than the one on `port` may get chunks.
    fn has_other(&self, now: Time, flow: &Flow, divided: &DividedFlow, port: PortId) -> bool {
        let mut others = divided.hops.iter().filter(|it| it.port != port);
        others.any(|it| self.is_usable(now, flow, divided, it.port))
    }

    /// Sends the chunks of a branch that has fallen silent over another one at once. The hop of the silent
    /// branch keeps trying; the first delivery counts.
    fn check_branches(&mut self, now: Time, flow: &Flow, divided: &mut DividedFlow) {
        let mut rates = Vec::new();
        for branch in divided.hops.clone().iter() {
            let Some(link) = self.links.get(&branch.port) else {
                continue;
            };
            let onward = self.onward_rate(branch.port, flow).unwrap_or(u64::MAX);
            let rate = link.hop.delivery_rate();
            rates.extend(rate.map(|rate| (branch.port, rate.min(onward))));
            if !self.is_usable(now, flow, divided, branch.port) {
                divided.note_away(now, branch.port);
            }
            let record = divided.record(branch.port);
            if let Some(since) = record.suspect_since() {
                if link.hop.heard_at() > since && link.is_up() {
                    divided.trust(now, branch.port);
                }
                continue;
            }
            let Some(silent_at) = silent_at(link, flow, divided.busy_since(branch.port)) else {
                continue;
            };
            if now < silent_at {
                self.set_split_due(silent_at);
                continue;
            }
            let others = self.has_other(now, flow, divided, branch.port);
            if others && divided.suspect(now, branch.port) {
                for order in divided.only_on(branch.port) {
                    self.reissue(flow, divided, order, branch.port);
                }
            }
        }
        let _ = divided.review(now, &rates);
        if divided.waiting().1 > 0 {
            // No event tells that a branch may be used again.
            self.set_split_due(now + LOW_WATER);
        }
    }

    fn set_split_due(&mut self, at: Time) {
        self.split_due = Some(self.split_due.map_or(at, |due| due.min(at)));
    }

    fn reissue(&mut self, flow: &Flow, divided: &mut DividedFlow, order: u64, port: PortId) {
        let link = self.links.get(&port);
        if let Some(copy) = link.and_then(|link| link.outbox.of_order(flow, order)) {
            divided.note_reissued(port, copy.chunk.size() as u64);
            divided.push_again(copy.clone());
        }
    }

    /// Moves chunks to faster branches: once nothing waits, the last chunk of a branch that would finish
    /// much later than another; at any time, a chunk that too many bytes have overtaken.
    fn shorten_tail(&mut self, now: Time, flow: &Flow, divided: &mut DividedFlow) {
        if let Some((order, port, bytes)) = divided.blocking(self.split.reorder_budget)
            && divided.may_copy(bytes)
        {
            self.reissue(flow, divided, order, port);
            return self.give(now, flow, divided);
        }
        if divided.waiting().1 > 0 || divided.more > 0 {
            return;
        }
        let measured = self.measured(now, flow, divided, 0);
        let may_take = |port| {
            measured
                .iter()
                .any(|(it, fast)| it.port != port && fast.has_room)
        };
        if let Some((order, port, bytes)) = divided.overdue(now).filter(|it| may_take(it.1))
            && divided.may_copy(bytes)
        {
            self.reissue(flow, divided, order, port);
            return self.give(now, flow, divided);
        }
        if let Some(at) = divided.first_expected().filter(|at| *at > now) {
            self.set_split_due(at);
        }
        let last = measured.iter().filter_map(|(branch, slow)| {
            let (order, bytes) = divided.last_on(branch.port)?;
            Some((slow.finish(0), order, bytes, branch.port, slow.waiting))
        });
        let Some((left, order, bytes, port, unsent)) = last.max_by_key(|it| it.0) else {
            return;
        };
        let others = measured
            .iter()
            .filter(|(it, fast)| it.port != port && fast.has_room);
        let others = others.map(|(_, fast)| fast.finish(bytes));
        let Some(sooner) = others.min() else { return };
        if sooner >= left {
            return;
        }
        if unsent >= bytes {
            // Its transmission has not begun, so moving it costs nothing.
            if let Some(outgoing) = self.withdraw_order(now, flow, order, port)
                && divided.is_to_go_again(order, port)
            {
                divided.push_again(outgoing);
            }
        } else if sooner * 2 < left && divided.may_copy(bytes) {
            self.reissue(flow, divided, order, port);
        } else {
            return;
        }
        self.give(now, flow, divided);
    }

    fn withdraw_order(
        &mut self,
        now: Time,
        flow: &Flow,
        order: u64,
        port: PortId,
    ) -> Option<ChunkToSend> {
        let link = self.links.get_mut(&port)?;
        let (outgoing, tag) = link.outbox.take_order(flow, order)?;
        if let Some(tag) = tag {
            link.hop.withdraw(now, tag);
        }
        self.touched.insert(port);
        self.review_hold(port, flow);
        Some(outgoing)
    }

    /// Notes that the neighbour on a port has this chunk of a divided flow.
    pub(super) fn note_divided(&mut self, now: Time, flow: Flow, order: u64, port: PortId) {
        let Some(divided) = self.splits.get_mut(&flow) else {
            return;
        };
        for other in divided.note_delivered(now, order, port) {
            self.withdraw_order(now, &flow, order, other);
        }
        self.serve_split(now, flow);
    }

    /// Takes the divided chunks back from an unresponsive neighbour. They go to other branches; if there
    /// are none, they stay with the owner of the links.
    pub(super) fn recall_divided(&mut self, now: Time, port: PortId) {
        let flows: Vec<Flow> = self.splits.keys().copied().collect();
        for flow in flows {
            let Some(mut divided) = self.splits.remove(&flow) else {
                continue;
            };
            let goes_on = self.has_other(now, &flow, &divided, port);
            let link = self.links.get(&port);
            let orders = link.map_or(Vec::new(), |link| link.outbox.orders_of(&flow));
            for order in orders {
                if !goes_on {
                    divided.note_gone(order, port);
                } else if let Some(outgoing) = self.withdraw_order(now, &flow, order, port)
                    && divided.is_to_go_again(order, port)
                {
                    divided.push_again(outgoing);
                }
            }
            if !goes_on && let Some(link) = self.links.get_mut(&port) {
                link.outbox.forget_orders(&flow);
            }
            self.splits.insert(flow, divided);
            self.serve_split(now, flow);
        }
    }

    /// The neighbour on a port holds a divided flow back: chunks that its hop has not begun go to other
    /// branches.
    pub(super) fn pull_back_divided(&mut self, now: Time, port: PortId, flow: &Flow) {
        let Some(mut divided) = self.splits.remove(flow) else {
            return;
        };
        if self.has_other(now, flow, &divided, port)
            && let Some(link) = self.links.get_mut(&port)
        {
            for outgoing in link.outbox.take_divided(flow) {
                let order = outgoing.order;
                if order.is_some_and(|order| divided.is_to_go_again(order, port)) {
                    divided.push_again(outgoing);
                }
            }
        }
        self.splits.insert(*flow, divided);
        self.serve_split(now, *flow);
    }

    /// Queues again the chunks that a closed port returned. Returns those that are not divided or have no
    /// other branch.
    pub(super) fn divide_returned(
        &mut self,
        now: Time,
        port: PortId,
        returned: Vec<ChunkToSend>,
    ) -> Vec<ChunkToSend> {
        let mut left = Vec::new();
        let mut flows = BTreeSet::new();
        for outgoing in returned {
            let flow = outgoing.chunk.flow();
            let split = self.splits.remove(&flow);
            let (Some(mut divided), Some(order)) = (split, outgoing.order) else {
                left.push(outgoing);
                continue;
            };
            let goes_again = divided.is_to_go_again(order, port);
            if !goes_again {
                // Another branch carries it.
            } else if divided.hops.iter().any(|it| self.is_up(it.port)) {
                divided.push_again(outgoing);
                flows.insert(flow);
            } else {
                left.push(outgoing);
            }
            self.splits.insert(flow, divided);
        }
        flows
            .into_iter()
            .for_each(|flow| self.serve_split(now, flow));
        left
    }

    /// Removes the waiting chunks of a divided flow for which `is_meant` is true. Returns their number, and
    /// the ports of the flow's branches.
    pub(super) fn purge_split(
        &mut self,
        flow: &Flow,
        is_meant: impl Fn(&Chunk) -> bool,
    ) -> (usize, Vec<PortId>) {
        let Some(divided) = self.splits.get_mut(flow) else {
            return (0, Vec::new());
        };
        divided.more = 0;
        (divided.purge(is_meant), divided.hops.ports())
    }

    /// Forgets the chunks of a flow that were purged from its branches.
    pub(super) fn forget_purged(&mut self, flow: &Flow) {
        let Some(divided) = self.splits.get_mut(flow) else {
            return;
        };
        let carried = self.links.iter().flat_map(|(port, link)| {
            let orders = link.outbox.orders_of(flow);
            orders.into_iter().map(|order| (order, *port))
        });
        divided.keep_present(&carried.collect());
        self.review_split_hold(flow);
    }

    /// Removes from a request of `client` with this id the chunks that wait for it, or are in flight to
    /// answer it on another branch.
    pub(super) fn subtract_divided(
        &self,
        asked_on: PortId,
        (client, id): (&whimbrel_core::Guid, Option<u64>),
        request: &mut Request,
    ) {
        let flows = self.splits.iter();
        for (flow, divided) in flows.filter(|(flow, _)| flow.destination == *client) {
            let waiting = divided.queued().filter_map(|it| it.chunk.data());
            let of_content = waiting.filter(|it| it.content == request.content);
            request.subtract(of_content.map(|it| (it.chunk_log2, it.index)).collect());
            for port in divided.hops.ports() {
                let trusted = divided.record(port).suspect_since().is_none();
                if port == asked_on || !trusted || !self.is_up(port) {
                    continue;
                }
                if let Some(link) = self.links.get(&port) {
                    let counts = |chunk: &Chunk| chunk.header.extensions.request == id;
                    (link.outbox).subtract_under_way(&flow.destination, counts, request);
                }
            }
        }
    }

    /// Returns the bytes of a divided flow from `from` that may wait: the sum over its branches, each at the rate
    /// at which the flow goes on there.
    fn split_allowance(&self, divided: &DividedFlow, flow: &Flow, from: Option<PortId>) -> u64 {
        let mut all = 0;
        for port in divided.hops.ports() {
            let Some(link) = self.links.get(&port).filter(|it| it.is_up()) else {
                continue;
            };
            let mut branches = divided.hops.iter().filter(|it| it.port == port);
            let goes_on = self.split.pace
                && branches.any(|it| it.address.is_some())
                && link.neighbour != Some(flow.destination);
            let unknown = if goes_on { UNMEASURED } else { u64::MAX };
            let most = self.onward_rate(port, flow).unwrap_or(unknown);
            let rate = link.hop.delivery_rate().unwrap_or(UNMEASURED).min(most);
            all += self.allowance_at(rate, link, flow, from);
        }
        all
    }

    fn note_waiting_split(&mut self, flow: Flow, from: PortId) {
        let Some(divided) = self.splits.get(&flow) else {
            return;
        };
        let (bytes, chunks) = divided.waiting();
        let is_enough = chunks >= 2 && bytes > self.split_allowance(divided, &flow, Some(from));
        if is_enough
            && let Some(divided) = self.splits.get_mut(&flow)
            && divided.told.insert(from)
        {
            self.tell(from, flow, Grant::Octets(0));
        }
    }

    pub(super) fn review_split_hold(&mut self, flow: &Flow) {
        let Some(divided) = self.splits.get(flow).filter(|it| !it.told.is_empty()) else {
            return;
        };
        let (bytes, chunks) = divided.waiting();
        let allowances = divided.told.iter();
        let most = allowances.map(|from| self.split_allowance(divided, flow, Some(*from)));
        if chunks >= 2 && bytes > most.max().unwrap_or(0) / 4 * 3 {
            return;
        }
        let told = self
            .splits
            .get_mut(flow)
            .map(|it| core::mem::take(&mut it.told));
        for from in told.into_iter().flatten() {
            self.tell(from, *flow, Grant::Free);
        }
    }

    /// Repeats the holds of divided flows at these ports. Returns true if any flow is held.
    pub(super) fn renew_split_holds(&mut self, due: &BTreeSet<PortId>) -> bool {
        let told = self.splits.iter().flat_map(|(flow, it)| {
            let ports = it.told.iter();
            ports.map(|port| (*port, *flow)).collect::<Vec<_>>()
        });
        let told: Vec<(PortId, Flow)> = told.collect();
        for (port, flow) in told.iter().filter(|(port, _)| due.contains(port)) {
            self.tell(*port, *flow, Grant::Octets(0));
        }
        !told.is_empty()
    }

    /// Returns true if a divided flow is held back at `from`.
    pub(super) fn split_holds_back(&self, from: PortId, flow: &Flow) -> bool {
        self.splits
            .get(flow)
            .is_some_and(|it| it.told.contains(&from))
    }

    /// Removes the newest waiting chunk of a divided flow that has made no progress since `before`.
    pub(super) fn take_stuck_divided(&mut self, before: Time) -> Option<ChunkToSend> {
        let stuck = |it: &&mut DividedFlow| it.last_progress <= before && it.waiting().1 > 0;
        let most = self.splits.values_mut().filter(stuck);
        most.max_by_key(|it| it.waiting().0)?.take_newest()
    }

    /// Returns reports of the divided flows.
    pub fn divided(&self, now: Time) -> Vec<DividedStatus> {
        let of_flow = |(flow, divided): (&Flow, &DividedFlow)| {
            let (waiting_bytes, waiting_chunks) = divided.waiting();
            let branches = divided.hops.ports().into_iter();
            DividedStatus {
                source: flow.source,
                destination: flow.destination,
                waiting_bytes,
                waiting_chunks,
                reordering: divided.reordering(),
                branches: branches
                    .map(|port| self.branch_status(now, flow, port, divided.record(port)))
                    .collect(),
            }
        };
        self.splits.iter().map(of_flow).collect()
    }

    fn branch_status(&self, now: Time, flow: &Flow, port: PortId, record: Record) -> BranchStatus {
        let link = self.links.get(&port);
        let state = match link {
            Some(link) if !link.is_up() => BranchState::Down,
            None => BranchState::Down,
            _ if record.suspect_since().is_some() => BranchState::Suspect,
            Some(link) if link.outbox.turn_of(flow) != FlowTurn::Free => BranchState::Held,
            _ if !record.is_fit(now) => BranchState::Resting,
            _ => BranchState::Used,
        };
        BranchStatus {
            port: port.0,
            label: link.map_or(String::new(), |it| it.info.label.clone()),
            state,
            bytes: record.bytes,
            reissued_bytes: record.reissued,
            suspicions: record.suspicions,
        }
    }
}

/// A report of a divided flow.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DividedStatus {
    /// Its source.
    pub source: whimbrel_core::Guid,
    /// Its destination.
    pub destination: whimbrel_core::Guid,
    /// Bytes that wait for a branch.
    pub waiting_bytes: u64,
    /// Chunks that wait for a branch.
    pub waiting_chunks: usize,
    /// The measured reordering.
    pub reordering: crate::split::flow::Reordering,
    /// Its branches.
    pub branches: Vec<BranchStatus>,
}

/// A report of one branch of a divided flow.
#[derive(Clone, Debug, serde::Serialize)]
pub struct BranchStatus {
    /// The port's number.
    pub port: u32,
    /// The link's name in the configuration.
    pub label: String,
    /// Its state.
    pub state: BranchState,
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes of its chunks that were sent again over another branch.
    pub reissued_bytes: u64,
    /// The number of times it fell silent with chunks unanswered.
    pub suspicions: u32,
}

/// The state of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BranchState {
    /// It gets chunks.
    Used,
    /// It is silent although an answer is due.
    Suspect,
    /// It was suspect or useless lately, and gets no chunks for a while.
    Resting,
    /// Its neighbour holds the flow back.
    Held,
    /// Its neighbour does not respond.
    Down,
}

/// Returns the time at which a silent branch becomes suspect, or `None` if it owes no answer.
fn silent_at(link: &Link, flow: &Flow, busy_since: Option<Time>) -> Option<Time> {
    let busy_since = busy_since.filter(|_| link.is_up())?;
    let packets = SILENCE_PACKETS * link.info.mtu as u64;
    let rate = link.hop.delivery_rate()?;
    let sending = crate::split::schedule::time_of(packets, rate);
    let limit = link.hop.suspicion()? + SILENCE_SLACK + sending;
    let carries = link.outbox.carries(flow) && link.outbox.turn_of(flow) == FlowTurn::Free;
    carries.then_some(link.hop.heard_at().max(busy_since) + limit)
}

pub(super) fn measure(link: &Link, flow: &Flow, bytes: u64) -> Measured {
    let stats = link.hop.stats();
    let flows = link.outbox.flows().max(1) as u64;
    let rate = link.hop.delivery_rate().map(|rate| (rate / flows).max(1));
    let round_trip = stats.rtt.unwrap_or_default();
    let (here, queued) = (link.outbox.waiting(flow).0, link.outbox.queued_of(flow));
    let unsent = link.hop.unsent_bytes() as u64;
    let share = |time: Duration| (rate.unwrap_or(0) as u128 * time.as_micros() / 1_000_000) as u64;
    // The hop also holds bytes of other flows, so this flow may have its share of a round trip in it.
    let has_room = queued == 0
        && (unsent < share(LOW_WATER).max(bytes)
            || flows > 1 && here < share(round_trip + LOW_WATER).max(2 * bytes));
    Measured {
        rate,
        round_trip,
        least_round_trip: stats.min_rtt.unwrap_or(round_trip).min(round_trip),
        loss: stats.loss,
        packet: link.info.mtu as u64,
        waiting: unsent.min(here.max(bytes) * flows) + queued,
        has_room,
    }
}
