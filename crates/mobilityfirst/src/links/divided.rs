//! Flows that are divided among several hops: their chunks wait in one queue until a hop pulls them
//! ([`crate::split`]).

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{PortId, Time};

use super::{ChunkToSend, Link, LinkEvent, Links};
use crate::chunk::{Chunk, Flow};
use crate::next_hops::{Branch, NextHops};
use crate::split::ledger::{Forecast, Ledger, Record};
use crate::split::schedule::{Measured, Wanted, choose, reordering_bound};
use crate::split::{Scheduler, SplitConfig};
use crate::wire::{HoldMode, Request};

/// Maximum of flows that are divided at one time; further ones go by their best next hop.
const MAX_DIVIDED: usize = 1024;
/// A branch has room for the next chunk while its hop has less than this to send, as time, or less
/// than one chunk.
const LOW_WATER: Duration = Duration::from_millis(20);
/// Added to the silence that makes a branch suspect: a scheduler's tick and eight packets.
const SILENCE_SLACK: Duration = Duration::from_millis(10);
const SILENCE_PACKETS: u64 = 8;
/// What the reordering bound leaves out: chunks are whole, and a hop sends in bursts.
const BOUND_SLACK: u64 = 4;

impl Links {
    /// How flows are divided from now on.
    pub fn set_split(&mut self, config: SplitConfig) {
        self.split = config;
    }

    /// True if this chunk is to wait for a branch that pulls it: hops of the same flow know of one
    /// order only.
    pub(crate) fn may_divide(&self, flow: &Flow, hops: &NextHops) -> bool {
        self.split.scheduler == Scheduler::Pull
            && (self.splits.contains_key(flow)
                || self.splits.len() < MAX_DIVIDED && hops.ports().len() > 1)
    }

    /// Queues a chunk that goes to one of these next hops, whichever pulls it.
    pub(crate) fn divide(&mut self, outgoing: ChunkToSend, hops: &NextHops) {
        let (flow, from) = (outgoing.chunk.flow(), outgoing.from);
        let ledger = self
            .splits
            .entry(flow)
            .or_insert_with(|| Ledger::new(hops.clone()));
        ledger.hops = hops.clone();
        ledger.push(outgoing);
        if let Some(from) = from {
            self.note_waiting_split(flow, from);
        }
    }

    /// True if one more chunk of a flow would not wait long for a branch.
    pub(crate) fn has_room_to_divide(&self, flow: &Flow, hops: &NextHops) -> bool {
        let waiting = self.splits.get(flow).map_or(0, |it| it.waiting().1);
        waiting < 2 && hops.iter().any(|it| self.has_room_for(it.port, flow))
    }

    /// So many bytes of a flow follow those that wait here.
    pub(crate) fn note_more(&mut self, flow: &Flow, bytes: u64) {
        if let Some(ledger) = self.splits.get_mut(flow) {
            ledger.more = bytes;
        }
    }

    /// Lets branches pull, and forgets flows of which nothing is left if there are many.
    pub(super) fn serve_splits(&mut self, now: Time) {
        if self.splits.is_empty() {
            return;
        }
        self.split_due = None;
        let flows: Vec<Flow> = self.splits.keys().copied().collect();
        let are_many = flows.len() >= MAX_DIVIDED / 2;
        for flow in flows {
            let is_idle = |it: &Ledger| it.is_idle() && it.told.is_empty();
            if are_many && self.splits.get(&flow).is_some_and(is_idle) {
                self.splits.remove(&flow);
            } else {
                self.serve_split(now, flow);
            }
        }
    }

    fn serve_split(&mut self, now: Time, flow: Flow) {
        let Some(mut ledger) = self.splits.remove(&flow) else {
            return;
        };
        if !ledger.is_idle() {
            self.check_branches(now, &flow, &mut ledger);
            self.give(now, &flow, &mut ledger);
            self.shorten_tail(now, &flow, &mut ledger);
            if !ledger.hops.iter().any(|it| self.is_up(it.port)) && ledger.waiting().1 > 0 {
                self.events
                    .push_back(LinkEvent::Stranded(ledger.take_all()));
            }
        }
        self.splits.insert(flow, ledger);
        self.review_split_hold(&flow);
    }

    /// Gives chunks to branches as long as one takes the next.
    fn give(&mut self, now: Time, flow: &Flow, ledger: &mut Ledger) {
        while let Some(bytes) = ledger.next() {
            let all = self.measured(now, flow, ledger, bytes);
            let is_known = !all.is_empty();
            let (branches, measured): (Vec<Branch>, Vec<Measured>) = all
                .into_iter()
                .filter(|(branch, _)| !ledger.next_is_on(branch.port))
                .unzip();
            if is_known && branches.is_empty() {
                ledger.drop_copy();
                continue;
            }
            let wanted = Wanted {
                bytes,
                backlog: ledger.waiting().0.saturating_add(ledger.more),
                budget: self.split.reorder_budget,
            };
            let Some(at) = choose(&measured, wanted) else {
                return;
            };
            let port = branches[at].port;
            // The answer of the slower branch comes back over it, too.
            let rates: u64 = measured.iter().map(Measured::rate).sum();
            let answer = measured[at].round_trip.as_micros() as u64 * (rates / 1_000) / 1_000;
            let bound = reordering_bound(&measured, at, bytes) + answer + BOUND_SLACK * bytes;
            let is_measured = measured.iter().all(|it| it.rate.is_some());
            let expected = measured[at].finish(bytes) + measured[at].round_trip;
            let forecast = Forecast {
                bound: is_measured.then_some(bound),
                expected: now + expected + expected / 4 + SILENCE_SLACK,
            };
            let Some(outgoing) = ledger.take(now, port, forecast) else {
                return;
            };
            self.hand_over(now, &branches[at], outgoing);
        }
        let has_room = |(_, it): &(Branch, Measured)| it.has_room;
        let idle = self.measured(now, flow, ledger, 0).iter().any(has_room);
        if idle {
            ledger.note_idle();
        }
    }

    fn hand_over(&mut self, now: Time, branch: &Branch, outgoing: ChunkToSend) {
        if let Some(link) = self.links.get_mut(&branch.port) {
            link.outbox.push(outgoing.over(branch));
            link.feed(now, &mut self.next_tag);
            self.touched.insert(branch.port);
        }
    }

    /// The branches that may get chunks, of the best preference of which there is one.
    fn measured(
        &self,
        now: Time,
        flow: &Flow,
        ledger: &Ledger,
        bytes: u64,
    ) -> Vec<(Branch, Measured)> {
        let is_fit = |it: &&Branch| self.is_usable(now, flow, ledger, it.port);
        let fit = ledger.hops.iter().filter(is_fit);
        let mut best = None;
        let mut all: Vec<(Branch, Measured)> = Vec::new();
        for branch in fit {
            let is_known = all.iter().any(|(it, _)| it.port == branch.port);
            if *best.get_or_insert(branch.preference) != branch.preference || is_known {
                continue;
            }
            if let Some(link) = self.links.get(&branch.port) {
                all.push((*branch, measure(link, flow, bytes)));
            }
        }
        all
    }

    fn is_usable(&self, now: Time, flow: &Flow, ledger: &Ledger, port: PortId) -> bool {
        let free = |link: &Link| link.is_up() && link.outbox.hold_of(flow).is_none();
        self.links.get(&port).is_some_and(free) && ledger.record(port).is_fit(now)
    }

    /// True if another branch than that on `port` may get chunks.
    fn has_other(&self, now: Time, flow: &Flow, ledger: &Ledger, port: PortId) -> bool {
        let mut others = ledger.hops.iter().filter(|it| it.port != port);
        others.any(|it| self.is_usable(now, flow, ledger, it.port))
    }

    /// What was given to a branch on which nothing is heard goes out on another one at once; its hop
    /// carries on, and the first delivery counts.
    fn check_branches(&mut self, now: Time, flow: &Flow, ledger: &mut Ledger) {
        let mut rates = Vec::new();
        for branch in ledger.hops.clone().iter() {
            let Some(link) = self.links.get(&branch.port) else {
                continue;
            };
            rates.extend(link.hop.delivery_rate().map(|rate| (branch.port, rate)));
            let record = ledger.record(branch.port);
            if let Some(since) = record.suspect_since() {
                if link.hop.heard_at() > since && link.is_up() {
                    ledger.trust(now, branch.port);
                }
                continue;
            }
            let Some(silent_at) = silent_at(link, flow, ledger.busy_since(branch.port)) else {
                continue;
            };
            if now < silent_at {
                self.set_split_due(silent_at);
                continue;
            }
            let others = self.has_other(now, flow, ledger, branch.port);
            if others && ledger.suspect(now, branch.port) {
                for order in ledger.only_on(branch.port) {
                    self.reissue(flow, ledger, order, branch.port);
                }
            }
        }
        let _ = ledger.review(now, &rates);
        if ledger.waiting().1 > 0 {
            // Rests end without an event.
            self.set_split_due(now + LOW_WATER);
        }
    }

    fn set_split_due(&mut self, at: Time) {
        self.split_due = Some(self.split_due.map_or(at, |due| due.min(at)));
    }

    fn reissue(&mut self, flow: &Flow, ledger: &mut Ledger, order: u64, port: PortId) {
        let link = self.links.get(&port);
        if let Some(copy) = link.and_then(|link| link.outbox.of_order(flow, order)) {
            ledger.note_reissued(port, copy.chunk.size() as u64);
            ledger.push_again(copy.clone());
        }
    }

    /// When nothing waits any more, a branch that would be done clearly earlier takes over the last
    /// chunk of another one; and at any time a chunk that too much has overtaken.
    fn shorten_tail(&mut self, now: Time, flow: &Flow, ledger: &mut Ledger) {
        if let Some((order, port, bytes)) = ledger.blocking(self.split.reorder_budget)
            && ledger.may_copy(bytes)
        {
            self.reissue(flow, ledger, order, port);
            return self.give(now, flow, ledger);
        }
        if ledger.waiting().1 > 0 || ledger.more > 0 {
            return;
        }
        let measured = self.measured(now, flow, ledger, 0);
        let may_take = |port| {
            measured
                .iter()
                .any(|(it, fast)| it.port != port && fast.has_room)
        };
        if let Some((order, port, bytes)) = ledger.overdue(now).filter(|it| may_take(it.1))
            && ledger.may_copy(bytes)
        {
            self.reissue(flow, ledger, order, port);
            return self.give(now, flow, ledger);
        }
        if let Some(at) = ledger.first_expected().filter(|at| *at > now) {
            self.set_split_due(at);
        }
        let last = measured.iter().filter_map(|(branch, slow)| {
            let (order, bytes) = ledger.last_on(branch.port)?;
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
            // Not begun: it only changes its place.
            if let Some(outgoing) = self.withdraw_order(now, flow, order, port)
                && ledger.is_to_go_again(order, port)
            {
                ledger.push_again(outgoing);
            }
        } else if sooner * 2 < left && ledger.may_copy(bytes) {
            self.reissue(flow, ledger, order, port);
        } else {
            return;
        }
        self.give(now, flow, ledger);
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

    /// The neighbour on a port has this chunk of a divided flow.
    pub(super) fn note_divided(&mut self, now: Time, flow: Flow, order: u64, port: PortId) {
        let Some(ledger) = self.splits.get_mut(&flow) else {
            return;
        };
        for other in ledger.note_delivered(now, order, port).others {
            self.withdraw_order(now, &flow, order, other);
        }
        self.serve_split(now, flow);
    }

    /// A neighbour is away: what is divided goes by other branches where there are some, and is left
    /// to the owner where there are none.
    pub(super) fn recall_divided(&mut self, now: Time, port: PortId) {
        let flows: Vec<Flow> = self.splits.keys().copied().collect();
        for flow in flows {
            let Some(mut ledger) = self.splits.remove(&flow) else {
                continue;
            };
            let goes_on = self.has_other(now, &flow, &ledger, port);
            let link = self.links.get(&port);
            let orders = link.map_or(Vec::new(), |link| link.outbox.orders_of(&flow));
            for order in orders {
                if !goes_on {
                    ledger.note_gone(order, port);
                } else if let Some(outgoing) = self.withdraw_order(now, &flow, order, port)
                    && ledger.is_to_go_again(order, port)
                {
                    ledger.push_again(outgoing);
                }
            }
            if !goes_on && let Some(link) = self.links.get_mut(&port) {
                link.outbox.forget_orders(&flow);
            }
            self.splits.insert(flow, ledger);
            self.serve_split(now, flow);
        }
    }

    /// The neighbour on a port holds a divided flow back: what its hop has not begun goes to others.
    pub(super) fn pull_back_divided(&mut self, now: Time, port: PortId, flow: &Flow) {
        let Some(mut ledger) = self.splits.remove(flow) else {
            return;
        };
        if self.has_other(now, flow, &ledger, port)
            && let Some(link) = self.links.get_mut(&port)
        {
            for outgoing in link.outbox.take_divided(flow) {
                let order = outgoing.order;
                if order.is_some_and(|order| ledger.is_to_go_again(order, port)) {
                    ledger.push_again(outgoing);
                }
            }
        }
        self.splits.insert(*flow, ledger);
        self.serve_split(now, *flow);
    }

    /// A port is closed; these chunks came back from it. Returns those that are not divided or have
    /// no other branch.
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
            let (Some(mut ledger), Some(order)) = (split, outgoing.order) else {
                left.push(outgoing);
                continue;
            };
            let goes_again = ledger.is_to_go_again(order, port);
            if !goes_again {
                // Another branch has it.
            } else if ledger.hops.iter().any(|it| self.is_up(it.port)) {
                ledger.push_again(outgoing);
                flows.insert(flow);
            } else {
                left.push(outgoing);
            }
            self.splits.insert(flow, ledger);
        }
        flows
            .into_iter()
            .for_each(|flow| self.serve_split(now, flow));
        left
    }

    /// Removes what waits of a divided flow and its receiver no longer wants. Answers the ports of
    /// its branches.
    pub(super) fn purge_split(
        &mut self,
        flow: &Flow,
        is_meant: impl Fn(&Chunk) -> bool,
    ) -> (usize, Vec<PortId>) {
        let Some(ledger) = self.splits.get_mut(flow) else {
            return (0, Vec::new());
        };
        ledger.more = 0;
        (ledger.purge(is_meant), ledger.hops.ports())
    }

    /// After that: the ledger forgets what is nowhere.
    pub(super) fn forget_purged(&mut self, flow: &Flow) {
        let Some(ledger) = self.splits.get_mut(flow) else {
            return;
        };
        let carried = self.links.iter().flat_map(|(port, link)| {
            let orders = link.outbox.orders_of(flow);
            orders.into_iter().map(|order| (order, *port))
        });
        ledger.keep_present(&carried.collect());
        self.review_split_hold(flow);
    }

    /// Takes what waits for `client`, or is under way to it on any branch, from its request.
    pub(super) fn subtract_divided(
        &self,
        asked_on: PortId,
        client: &whimbrel_core::Guid,
        request: &mut Request,
    ) {
        let flows = self.splits.iter();
        for (flow, ledger) in flows.filter(|(flow, _)| flow.destination == *client) {
            let waiting = ledger.queued().filter_map(|it| it.chunk.data());
            let of_content = waiting.filter(|it| it.content == request.content);
            request.subtract(of_content.map(|it| (it.chunk_log2, it.index)).collect());
            for port in ledger.hops.ports() {
                let trusted = ledger.record(port).suspect_since().is_none();
                if port == asked_on || !trusted || !self.is_up(port) {
                    continue;
                }
                if let Some(link) = self.links.get(&port) {
                    link.outbox.subtract_under_way(&flow.destination, request);
                }
            }
        }
    }

    /// Bytes of a divided flow from `from` that may wait: what its branches together may let wait.
    fn split_allowance(&self, ledger: &Ledger, flow: &Flow, from: Option<PortId>) -> u64 {
        let ports = ledger.hops.ports();
        let up = ports.iter().filter_map(|port| self.links.get(port));
        up.filter(|link| link.is_up())
            .map(|link| self.allowance(link, flow, from))
            .sum()
    }

    fn note_waiting_split(&mut self, flow: Flow, from: PortId) {
        let Some(ledger) = self.splits.get(&flow) else {
            return;
        };
        let (bytes, chunks) = ledger.waiting();
        let is_enough = chunks >= 2 && bytes > self.split_allowance(ledger, &flow, Some(from));
        if is_enough
            && let Some(ledger) = self.splits.get_mut(&flow)
            && ledger.told.insert(from)
        {
            self.hold_at(from, flow, Some(HoldMode::All));
        }
    }

    fn hold_at(&mut self, port: PortId, flow: Flow, mode: Option<HoldMode>) {
        self.events.push_back(LinkEvent::Hold { port, flow, mode });
    }

    pub(super) fn review_split_hold(&mut self, flow: &Flow) {
        let Some(ledger) = self.splits.get(flow).filter(|it| !it.told.is_empty()) else {
            return;
        };
        let (bytes, chunks) = ledger.waiting();
        let allowances = ledger.told.iter();
        let most = allowances.map(|from| self.split_allowance(ledger, flow, Some(*from)));
        if chunks >= 2 && bytes > most.max().unwrap_or(0) / 4 * 3 {
            return;
        }
        let told = self
            .splits
            .get_mut(flow)
            .map(|it| core::mem::take(&mut it.told));
        for from in told.into_iter().flatten() {
            self.hold_at(from, *flow, None);
        }
    }

    /// Repeats the holds of divided flows that go on, at these ports; true if there are some.
    pub(super) fn renew_split_holds(&mut self, due: &BTreeSet<PortId>) -> bool {
        let told = self.splits.iter().flat_map(|(flow, it)| {
            let ports = it.told.iter();
            ports.map(|port| (*port, *flow)).collect::<Vec<_>>()
        });
        let told: Vec<(PortId, Flow)> = told.collect();
        for (port, flow) in told.iter().filter(|(port, _)| due.contains(port)) {
            self.hold_at(*port, *flow, Some(HoldMode::All));
        }
        !told.is_empty()
    }

    /// True if a divided flow is held back at `from`.
    pub(super) fn split_holds_back(&self, from: PortId, flow: &Flow) -> bool {
        self.splits
            .get(flow)
            .is_some_and(|it| it.told.contains(&from))
    }

    /// The newest chunk of a divided flow of which nothing was taken or delivered since `before`.
    pub(super) fn take_stuck_divided(&mut self, before: Time) -> Option<ChunkToSend> {
        let stuck = |it: &&mut Ledger| it.last_progress <= before && it.waiting().1 > 0;
        let most = self.splits.values_mut().filter(stuck);
        most.max_by_key(|it| it.waiting().0)?.take_newest()
    }

    /// What the branches of divided flows have done, for reports.
    pub fn divided(&self, now: Time) -> Vec<DividedStatus> {
        let of_flow = |(flow, ledger): (&Flow, &Ledger)| {
            let (waiting_bytes, waiting_chunks) = ledger.waiting();
            let branches = ledger.hops.ports().into_iter();
            DividedStatus {
                source: flow.source,
                destination: flow.destination,
                waiting_bytes,
                waiting_chunks,
                reordering: ledger.reordering(),
                branches: branches
                    .map(|port| self.branch_status(now, flow, port, ledger.record(port)))
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
            Some(link) if link.outbox.hold_of(flow).is_some() => BranchState::Held,
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

/// A divided flow, for reports.
#[derive(Clone, Debug, serde::Serialize)]
pub struct DividedStatus {
    /// Its source.
    pub source: whimbrel_core::Guid,
    /// Its destination.
    pub destination: whimbrel_core::Guid,
    /// Bytes that no branch has yet.
    pub waiting_bytes: u64,
    /// Their chunks.
    pub waiting_chunks: usize,
    /// Reordering, as bytes that were delivered before an earlier chunk was.
    pub reordering: crate::split::ledger::Reordering,
    /// Its branches.
    pub branches: Vec<BranchStatus>,
}

/// One branch of a divided flow, for reports.
#[derive(Clone, Debug, serde::Serialize)]
pub struct BranchStatus {
    /// The port's number.
    pub port: u32,
    /// The link's name in the configuration.
    pub label: String,
    /// What it is used for.
    pub state: BranchState,
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes of its chunks that went out on another branch too.
    pub reissued_bytes: u64,
    /// Times that nothing was heard on it although something should have been.
    pub suspicions: u32,
}

/// What a branch is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BranchState {
    /// It gets chunks.
    Used,
    /// Nothing is heard on it.
    Suspect,
    /// It was suspect, or of no use, a moment ago.
    Resting,
    /// Its neighbour holds the flow back.
    Held,
    /// Its neighbour does not respond.
    Down,
}

/// When a branch with something to answer will have been silent for too long.
fn silent_at(link: &Link, flow: &Flow, busy_since: Option<Time>) -> Option<Time> {
    let busy_since = busy_since.filter(|_| link.is_up())?;
    let packets = SILENCE_PACKETS * link.info.mtu as u64;
    let rate = link.hop.delivery_rate()?;
    let sending = crate::split::schedule::time_of(packets, rate);
    let limit = link.hop.suspicion()? + SILENCE_SLACK + sending;
    let carries = link.outbox.carries(flow) && link.outbox.hold_of(flow).is_none();
    carries.then_some(link.hop.heard_at().max(busy_since) + limit)
}

fn measure(link: &Link, flow: &Flow, bytes: u64) -> Measured {
    let stats = link.hop.stats();
    let flows = link.outbox.flows().max(1) as u64;
    let rate = link.hop.delivery_rate().map(|rate| (rate / flows).max(1));
    let round_trip = stats.rtt.unwrap_or_default();
    let (here, queued) = (link.outbox.waiting(flow).0, link.outbox.queued_of(flow));
    let unsent = link.hop.unsent_bytes() as u64;
    let share = |time: Duration| (rate.unwrap_or(0) as u128 * time.as_micros() / 1_000_000) as u64;
    // Beside other flows, whose bytes wait in the hop too, its part of a round trip may be under way.
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
