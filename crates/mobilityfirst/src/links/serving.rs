//! One divided flow while its chunks are given to branches.

use whimbrel_core::{PortId, Time};

use super::branch::{BranchView, SILENCE_SLACK, silent_at};
use super::neighbours::Neighbours;
use super::paces::{LOW_WATER, Paces};
use super::{ChunkToSend, LinkEvent, WaitingAt};
use crate::next_hops::Branch;
use crate::split::SplitConfig;
use crate::split::flow::{DividedFlow, Forecast};
use crate::split::schedule::{Measured, Wanted, choose, reordering_bound};
use crate::wire::Flow;

/// Chunks added to the reordering bound, because chunks are indivisible and a hop sends in bursts.
const BOUND_SLACK: u64 = 4;

/// A divided flow, and what it is served with.
pub(super) struct Serving<'a> {
    pub(super) neighbours: &'a mut Neighbours,
    pub(super) config: &'a SplitConfig,
    pub(super) paces: &'a Paces,
    pub(super) due: &'a mut Option<Time>,
    pub(super) events: &'a mut Vec<LinkEvent>,
    pub(super) gone: &'a mut Vec<(WaitingAt, Flow)>,
    pub(super) now: Time,
    pub(super) flow: Flow,
    pub(super) divided: DividedFlow,
}

impl Serving<'_> {
    /// Lets branches pull.
    pub(super) fn serve(&mut self) {
        if self.divided.is_idle() {
            return;
        }
        self.check_branches();
        self.give();
        self.shorten_tail();
        let is_up = |it: &Branch| self.neighbours.is_up(it.port);
        if !self.divided.hops.iter().any(is_up) && self.divided.waiting().1 > 0 {
            let stranded = self.divided.take_all();
            self.events.push(LinkEvent::Stranded(stranded));
        }
    }

    fn view(&self) -> BranchView<'_> {
        BranchView {
            neighbours: self.neighbours,
            paces: self.paces,
            now: self.now,
            flow: &self.flow,
            divided: &self.divided,
        }
    }

    /// Gives chunks to branches until no branch takes the next one.
    fn give(&mut self) {
        while let Some(bytes) = self.divided.next() {
            let all = self.view().measured(bytes);
            let is_known = !all.is_empty();
            let (branches, measured): (Vec<Branch>, Vec<Measured>) = all
                .into_iter()
                .filter(|(branch, _)| !self.divided.next_is_on(branch.port))
                .unzip();
            if is_known && branches.is_empty() {
                self.divided.drop_copy();
                continue;
            }
            let wanted = Wanted {
                bytes,
                backlog: self.divided.waiting().0.saturating_add(self.divided.more),
                budget: self.config.reorder_budget,
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
                expected: self.now + expected + expected / 4 + SILENCE_SLACK,
            };
            let Some(outgoing) = self.divided.take(self.now, port, forecast) else {
                return;
            };
            let outgoing = outgoing.over(&branches[at], &self.divided.hops);
            self.neighbours.push(port, outgoing);
            self.neighbours.feed(self.now, port);
        }
        let has_room = |(_, it): &(Branch, Measured)| it.has_room;
        let idle = self.view().measured(0).iter().any(has_room);
        if idle {
            self.divided.note_idle();
        }
    }

    /// Sends the chunks of a branch that has fallen silent over another one at once. The hop of the silent
    /// branch keeps trying; the first delivery counts.
    fn check_branches(&mut self) {
        let mut rates = Vec::new();
        for branch in self.divided.hops.clone().iter() {
            let Some(link) = self.neighbours.at(branch.port) else {
                continue;
            };
            let onward = self.paces.rate(branch.port, &self.flow).unwrap_or(u64::MAX);
            let rate = link.hop.delivery_rate();
            rates.extend(rate.map(|rate| (branch.port, rate.min(onward))));
            if !self.view().is_usable(branch.port) {
                self.divided.note_away(self.now, branch.port);
            }
            let record = self.divided.record(branch.port);
            if let Some(since) = record.suspect_since() {
                if link.hop.heard_at() > since && link.is_up() {
                    self.divided.trust(self.now, branch.port);
                }
                continue;
            }
            let Some(silent_at) = silent_at(link, &self.flow, self.divided.busy_since(branch.port))
            else {
                continue;
            };
            if self.now < silent_at {
                self.set_due(silent_at);
                continue;
            }
            let others = self.view().has_other(branch.port);
            if others && self.divided.suspect(self.now, branch.port) {
                for order in self.divided.only_on(branch.port) {
                    self.reissue(order, branch.port);
                }
            }
        }
        let _ = self.divided.review(self.now, &rates);
        if self.divided.waiting().1 > 0 {
            // No event tells that a branch may be used again.
            self.set_due(self.now + LOW_WATER);
        }
    }

    fn set_due(&mut self, at: Time) {
        *self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn reissue(&mut self, order: u64, port: PortId) {
        let link = self.neighbours.at(port);
        if let Some(copy) = link.and_then(|link| link.outbox.of_order(&self.flow, order)) {
            self.divided.note_reissued(port, copy.chunk.size() as u64);
            self.divided.push_again(copy.clone());
        }
    }

    /// Moves chunks to faster branches: once nothing waits, the last chunk of a branch that would finish
    /// much later than another; at any time, a chunk that too many bytes have overtaken.
    fn shorten_tail(&mut self) {
        if let Some((order, port, bytes)) = self.divided.blocking(self.config.reorder_budget)
            && self.divided.may_copy(bytes)
        {
            self.reissue(order, port);
            return self.give();
        }
        if self.divided.waiting().1 > 0 || self.divided.more > 0 {
            return;
        }
        let measured = self.view().measured(0);
        let may_take = |port| {
            measured
                .iter()
                .any(|(it, fast)| it.port != port && fast.has_room)
        };
        if let Some((order, port, bytes)) =
            self.divided.overdue(self.now).filter(|it| may_take(it.1))
            && self.divided.may_copy(bytes)
        {
            self.reissue(order, port);
            return self.give();
        }
        if let Some(at) = self.divided.first_expected().filter(|at| *at > self.now) {
            self.set_due(at);
        }
        let last = measured.iter().filter_map(|(branch, slow)| {
            let (order, bytes) = self.divided.last_on(branch.port)?;
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
            if let Some(outgoing) = self.withdraw(order, port) {
                self.push_again(outgoing, port);
            }
        } else if sooner * 2 < left && self.divided.may_copy(bytes) {
            self.reissue(order, port);
        } else {
            return;
        }
        self.give();
    }

    fn withdraw(&mut self, order: u64, port: PortId) -> Option<ChunkToSend> {
        let link = self.neighbours.at_mut(port)?;
        let (outgoing, tag) = link.outbox.take_order(&self.flow, order)?;
        if let Some(tag) = tag {
            link.hop.withdraw(self.now, tag);
        }
        self.neighbours.touch(port);
        self.gone.push((Some(port), self.flow));
        Some(outgoing)
    }

    /// Queues again a chunk that a branch has given back, unless another branch carries it.
    fn push_again(&mut self, outgoing: ChunkToSend, port: PortId) {
        let order = outgoing.order;
        if order.is_some_and(|order| self.divided.is_to_go_again(order, port)) {
            self.divided.push_again(outgoing);
        }
    }

    /// A branch has this chunk: the copies on others are withdrawn.
    pub(super) fn note_delivered(&mut self, order: u64, port: PortId) {
        for other in self.divided.note_delivered(self.now, order, port) {
            self.withdraw(order, other);
        }
    }

    /// Takes the chunks back from an unresponsive neighbour. They go to other branches; if there are none,
    /// they stay with the owner of the links.
    pub(super) fn recall(&mut self, port: PortId) {
        let goes_on = self.view().has_other(port);
        let link = self.neighbours.at(port);
        let orders = link.map_or(Vec::new(), |link| link.outbox.orders_of(&self.flow));
        for order in orders {
            if !goes_on {
                self.divided.note_gone(order, port);
            } else if let Some(outgoing) = self.withdraw(order, port) {
                self.push_again(outgoing, port);
            }
        }
        if !goes_on && let Some(link) = self.neighbours.at_mut(port) {
            link.outbox.forget_orders(&self.flow);
        }
    }

    /// The neighbour on a port holds the flow back: chunks that its hop has not begun go to other branches.
    pub(super) fn pull_back(&mut self, port: PortId) {
        if self.view().has_other(port)
            && let Some(link) = self.neighbours.at_mut(port)
        {
            for outgoing in link.outbox.take_divided(&self.flow) {
                self.push_again(outgoing, port);
            }
        }
    }
}
