//! The hops of one node: its neighbours, the queue for each, and who may send how much.
//!
//! Hosts and routers both send and receive chunks through this part. Its own parts are the
//! neighbours with what waits for each (its outbox), the credit that this node gives, the
//! leases of what neighbours let it send, and the division of flows among several hops.

mod branch;
pub mod callers;
mod credit;
mod crowding;
mod division;
mod event;
mod leases;
mod link;
mod names;
mod neighbours;
mod paces;
mod ports;
mod report;
mod serving;

use core::time::Duration;
use std::collections::BTreeSet;

use whimbrel_core::{
    Deadline, Guid, PortEvent, PortId, PortInfo, PortRequest, SeededRng, Source, Time, Transmit,
};
use whimbrel_link::hop::ReceptionCounters;
use whimbrel_link::{HopConfig, Pacing, Pool};

use crate::chunk::Chunk;
use crate::next_hops::{Branch, NextHops};
use crate::outbox::flow_of;
pub use crate::outgoing::ChunkToSend;
use crate::split::SplitConfig;
use crate::wire::{Credit, Flow, Pace, Request};
pub use branch::{BranchState, BranchStatus, DividedStatus};
use credit::{Backlogs, Grants};
use division::FlowDivision;
pub use event::{Grant, LinkEvent};
use leases::Leases;
pub(crate) use leases::{HELD_BACK, HELD_BACK_BYTES};
pub(crate) use link::{Link, RENEWAL};
pub use names::NameRule;
pub(crate) use neighbours::Neighbours;
pub use report::{CallersTotal, LinkStatus, UnresolvedStatus};

/// Maximum of events that a node handles for one input before it accepts the next.
pub(crate) const MAX_TURNS: u32 = 65_536;
/// The reason of a deadline that is due at once because work is left over.
pub(crate) const LEFT_OVER: &str = "work left over";
/// Longest lease that is believed.
const MAX_LEASE: Duration = Duration::from_secs(32);

/// Identifies a chunk that a hop carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Carried {
    /// The port of the hop.
    pub port: PortId,
    /// The hop's tag.
    pub tag: u64,
}

/// Where chunks of a flow wait: for the neighbour on a port, or for a branch, if the flow is divided here.
type WaitingAt = Option<PortId>;

/// The client that asks for chunks, and the id of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedBy {
    pub(crate) client: Guid,
    pub(crate) id: Option<u64>,
}

/// All hops of a node.
pub struct Links {
    pub(crate) neighbours: Neighbours,
    pub(crate) division: FlowDivision,
    grants: Grants,
    leases: Leases,
    // A flow that was held back here may go on, or goes by another port.
    resumed: bool,
}

impl Links {
    /// Links without hops. `template` is the configuration of every hop except for the MTU, which
    /// each port has; `buffer_packets` is B [MFTP §3.4.1].
    pub fn new(template: HopConfig, buffer_packets: usize, rng: SeededRng) -> Links {
        let mut links = Links {
            neighbours: Neighbours::new(template, buffer_packets, rng),
            division: FlowDivision::default(),
            grants: Grants::default(),
            leases: Leases::default(),
            resumed: false,
        };
        links.set_split(SplitConfig::default());
        links
    }

    /// The hops of link `number`, those of its callers among them, that come up from now on are
    /// paced so.
    pub fn set_pacing(&mut self, number: u32, pacing: Pacing) {
        self.neighbours.terms_mut(number).pacing = Some(pacing);
    }

    /// The hops of link `number`, those of its callers among them, that come up from now on do not
    /// encrypt; their neighbours must do the same.
    pub fn set_plain(&mut self, number: u32) {
        self.neighbours.terms_mut(number).plain = true;
    }

    /// The neighbour of link `number` must prove a name by this rule, from the next time on that its
    /// port comes up. Without a rule any name will do.
    pub fn set_name_rule(&mut self, number: u32, rule: NameRule) {
        self.neighbours.terms_mut(number).name = Some(rule);
    }

    /// Sets how flows are divided from now on.
    pub fn set_split(&mut self, config: SplitConfig) {
        self.division.set_config(config);
    }

    /// Messages that count in `pool`, of which at most `most` bytes are to be held, are dropped when
    /// too many of them wait for one neighbour: who takes none must not keep them from the others.
    pub(crate) fn bound_own(&mut self, pool: Pool, most: u64) {
        self.neighbours.bound_own(pool, most);
    }

    /// What was asked of this node's hops by those who are no neighbours yet.
    pub fn reception(&self) -> ReceptionCounters {
        self.neighbours.reception()
    }

    /// Returns the hop of a port.
    pub(crate) fn at(&self, port: PortId) -> Option<&Link> {
        self.neighbours.at(port)
    }

    /// Returns true if `port` has a hop here.
    pub fn has(&self, port: PortId) -> bool {
        self.at(port).is_some()
    }

    /// Returns true while the neighbour on `port` is known and responsive.
    pub fn is_up(&self, port: PortId) -> bool {
        self.neighbours.is_up(port)
    }

    /// Returns true if a chunk queued for `port` would be passed to its hop at once.
    pub fn has_room(&self, port: PortId) -> bool {
        self.at(port).is_some_and(Link::has_room)
    }

    /// Returns true if what waits for the neighbour on `port` takes long to leave.
    pub(crate) fn is_full_for_long(&self, port: PortId) -> bool {
        self.at(port).is_some_and(Link::is_full_for_long)
    }

    /// Returns the GUID that the neighbour on `port` claims.
    pub fn neighbour(&self, port: PortId) -> Option<Guid> {
        self.neighbours.neighbour(port)
    }

    /// Returns a branch of preference 0 and weight 1 over a port, with the current state of its link.
    pub fn branch(&self, port: PortId) -> Branch {
        Branch {
            port,
            address: None,
            preference: 0,
            weight: 1,
            is_alike: false,
            up: self.is_up(port),
            link: self.neighbours.state(port),
        }
    }

    /// Returns the port's properties.
    pub fn info(&self, port: PortId) -> Option<&PortInfo> {
        self.at(port).map(|link| &link.info)
    }

    /// Returns where the peer of a port is.
    pub(crate) fn source_of(&self, port: PortId) -> Source {
        let link = self.at(port);
        link.map_or(Source::Port(port), |link| link.source(port))
    }

    /// Returns all ports, in the order of their numbers.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.neighbours.iter().map(|(port, _)| port)
    }

    /// Packets of the buffer in use, and B.
    pub fn buffer(&self) -> (usize, usize) {
        self.neighbours.buffer()
    }

    /// Handles a change of a neighbour's or inbound peer's port.
    pub fn handle_port(&mut self, now: Time, port: PortId, event: &PortEvent) {
        match event {
            PortEvent::Down => self.close(now, port),
            _ => self.neighbours.handle_port(now, port, event),
        }
    }

    fn close(&mut self, now: Time, port: PortId) {
        let Some(link) = self.neighbours.remove(port) else {
            return;
        };
        self.grants.forget_port(port);
        for flow in link.outbox.held() {
            self.leases.cancel(&(port, *flow));
        }
        self.resumed = true;
        self.division.forget_port(port);
        let returned = self.neighbours.end(now, link);
        let neighbours = &mut self.neighbours;
        let returned = self.division.take_returned(neighbours, now, port, returned);
        self.settle();
        self.neighbours.say(LinkEvent::Down(port, returned));
    }

    /// Handles a frame from a neighbour.
    pub fn handle_frame(&mut self, now: Time, port: PortId, frame: &[u8]) {
        self.neighbours.handle_frame(now, port, frame);
    }

    /// Handles due deadlines of hops.
    pub fn handle_timeout(&mut self, now: Time) {
        self.neighbours.take_back_room(now);
        self.end_leases(now);
        if self.division.due().is_some_and(|at| at <= now) {
            self.division.serve(&mut self.neighbours, now);
        }
        self.neighbours.handle_timeout(now);
    }

    /// Queues a chunk for a neighbour. Returns it as `Err` if the port does not exist.
    pub fn enqueue(&mut self, port: PortId, outgoing: ChunkToSend) -> Result<(), ChunkToSend> {
        if !self.has(port) {
            return Err(outgoing);
        }
        let Some(outgoing) = self.neighbours.admit(port, outgoing) else {
            return Ok(());
        };
        let (from, flow) = (outgoing.from, flow_of(&outgoing.chunk));
        self.division
            .note_passing(&self.neighbours, port, &outgoing);
        self.neighbours.push(port, outgoing);
        if let (Some(from), Some(flow)) = (from, flow) {
            self.note_waiting(Some(port), flow, from);
        }
        Ok(())
    }

    /// Queues a chunk for whichever of these next hops pulls it first.
    pub(crate) fn divide(&mut self, outgoing: ChunkToSend, hops: &NextHops) {
        let (flow, from) = (outgoing.chunk.flow(), outgoing.from);
        self.division.divide(&self.neighbours, outgoing, hops);
        if let Some(from) = from {
            self.note_waiting(None, flow, from);
        }
    }

    fn note_waiting(&mut self, place: WaitingAt, flow: Flow, from: PortId) {
        let backlogs = Backlogs::new(&self.neighbours, &self.division);
        self.grants.note_waiting(backlogs, place, flow, from);
    }

    /// Returns true if one more chunk of a flow would not wait long for a branch.
    pub(crate) fn has_room_to_divide(&self, flow: &Flow, hops: &NextHops) -> bool {
        (self.division).has_room_to_divide(&self.neighbours, flow, hops)
    }

    /// True if, since the last call, a flow that was held back may continue, or uses another port.
    pub(crate) fn take_resumed(&mut self) -> bool {
        core::mem::take(&mut self.resumed)
    }

    /// A chunk less of a flow waits.
    fn review(&mut self, place: WaitingAt, flow: &Flow) {
        let backlogs = Backlogs::new(&self.neighbours, &self.division);
        self.grants.review(backlogs, place, flow);
    }

    /// The same for all flows of a port.
    fn review_all(&mut self, port: PortId) {
        for flow in self.grants.flows_of(port) {
            self.review(Some(port), &flow);
        }
    }

    /// Has the rate of a neighbour's link measured, if it is idle.
    pub(crate) fn measure_idle(&mut self, port: PortId) {
        if let Some(link) = self.neighbours.at_mut(port) {
            link.hop.measure_idle();
            self.neighbours.touch(port);
        }
    }

    /// Removes and returns the chunks queued for `port` that were not passed to its hop.
    pub fn take_waiting(&mut self, port: PortId) -> Vec<ChunkToSend> {
        let Some(link) = self.neighbours.at_mut(port) else {
            return Vec::new();
        };
        let waiting = link.outbox.take_queued();
        self.review_all(port);
        waiting
    }

    /// Withdraws one chunk from a hop. The neighbour may have it nevertheless.
    pub fn withdraw(&mut self, now: Time, carried: Carried) -> Option<ChunkToSend> {
        let link = self.neighbours.at_mut(carried.port)?;
        let outgoing = link.outbox.take_carried(carried.tag)?;
        link.hop.withdraw(now, carried.tag);
        self.neighbours.touch(carried.port);
        if let Some(flow) = flow_of(&outgoing.chunk) {
            self.review(Some(carried.port), &flow);
        }
        Some(outgoing)
    }

    /// A chunk came in on `port`. It uses up credit, and if its source is the neighbour there, its receiver
    /// will have to know when that restarts.
    pub(crate) fn note_arrival(&mut self, port: PortId, chunk: &Chunk) {
        self.grants.note_arrived(port, chunk);
        if let Some(link) = self.neighbours.at_mut(port)
            && link.neighbour == Some(chunk.header.source)
            && let Some(data) = chunk.data()
        {
            link.handovers.note_sent(&chunk.header, data.content);
        }
    }

    /// Returns true if a flow is held back at `from` for what waits here.
    pub(crate) fn holds_back(&self, from: PortId, flow: &Flow) -> bool {
        self.grants.holds_back(from, flow)
    }

    /// Nothing but what waits here holds a flow back at `from` any more: credit that was not passed on
    /// meanwhile is given again.
    pub(crate) fn give_again(&mut self, from: PortId, flow: &Flow) {
        let backlogs = Backlogs::new(&self.neighbours, &self.division);
        self.grants.give_again(backlogs, from, flow);
    }

    /// Repeats at these ports what is told of flows without credit. Returns false if there are none at any.
    pub(crate) fn renew_credit(&mut self, due: &BTreeSet<PortId>) -> bool {
        let backlogs = Backlogs::new(&self.neighbours, &self.division);
        self.grants.renew(backlogs, due)
    }

    /// How long what the neighbour on a port is told counts.
    pub(crate) fn lease(&self, port: PortId) -> Duration {
        self.at(port).map_or(RENEWAL * 3, Link::lease)
    }

    /// The neighbour on `port` says what may be sent of a flow that goes there. Returns false if its
    /// network holds back too many.
    pub(crate) fn note_credit(&mut self, now: Time, port: PortId, credit: &Credit) -> bool {
        let flow = credit.flow;
        let until = now + credit.lease.min(MAX_LEASE);
        let is_free = credit.lease.is_zero();
        let at = self.source_of(port);
        let key = (port, flow);
        if !is_free && !self.leases.contains(&key) {
            if !self.passes(port, &flow) {
                return true;
            }
            if !self.leases.admits(port, at) {
                return false;
            }
        }
        let Some(link) = self.neighbours.at_mut(port) else {
            return true;
        };
        if !link.outbox.note_credit(now, flow, credit, until) {
            return false;
        }
        match is_free {
            true => self.leases.cancel(&key),
            false => self.leases.set(at, key, until),
        }
        if is_free || credit.octets > 0 {
            self.neighbours.note_gained(port);
            self.resumed = true;
        } else {
            link.take_back_unbegun(now, &flow);
            self.neighbours.touch(port);
            self.division
                .pull_back(&mut self.neighbours, now, port, flow);
        }
        true
    }

    /// Returns true if chunks of a flow wait for the neighbour on a port, or went there recently; credit
    /// for other flows is not recorded, as the neighbour repeats it.
    fn passes(&self, port: PortId, flow: &Flow) -> bool {
        self.division.has(flow) || self.at(port).is_some_and(|link| link.passes(flow))
    }

    /// Notes that a chunk of a flow went to the neighbour on a port.
    #[cfg(test)]
    pub(crate) fn note_passed(&mut self, port: PortId, flow: Flow) {
        if let Some(link) = self.neighbours.at_mut(port) {
            link.handovers.note_flow(flow);
        }
    }

    fn end_leases(&mut self, now: Time) {
        for (port, flow) in self.leases.take_due(now) {
            if let Some(link) = self.neighbours.at_mut(port) {
                link.outbox.end_lease(now, &flow);
                self.neighbours.note_gained(port);
                self.resumed = true;
            }
        }
    }

    /// Takes chunks of flows that neighbours have held back since `before` out of their queues
    /// until half of the buffer is free: of the flow with the most bytes in a queue first, its
    /// newest chunk first. Returns them from old to new.
    pub(crate) fn take_stuck(&mut self, before: Time) -> Vec<ChunkToSend> {
        let mut stuck: BTreeSet<(u64, PortId, Flow)> = BTreeSet::new();
        for (port, link) in self.neighbours.iter() {
            let of_link = link.outbox.stuck(before);
            stuck.extend(of_link.map(|(flow, bytes)| (bytes, port, flow)));
        }
        let mut taken = Vec::new();
        let mut reviewed = BTreeSet::new();
        let mut packets = 0;
        let (used, capacity) = self.buffer();
        let is_full = |packets: usize| used.saturating_sub(packets) * 2 >= capacity;
        while is_full(packets)
            && let Some((bytes, port, flow)) = stuck.pop_last()
        {
            let link = self.neighbours.at_mut(port);
            let Some(outgoing) = link.and_then(|it| it.outbox.take_newest(&flow)) else {
                continue;
            };
            packets += outgoing.room.packets() as usize;
            let left = bytes.saturating_sub(outgoing.chunk.size() as u64);
            taken.push(outgoing);
            stuck.insert((left, port, flow));
            reviewed.insert((port, flow));
        }
        for (port, flow) in reviewed {
            self.review(Some(port), &flow);
        }
        while is_full(packets)
            && let Some(outgoing) = self.division.take_stuck(before)
        {
            packets += outgoing.room.packets() as usize;
            taken.push(outgoing);
        }
        taken.reverse();
        taken
    }

    /// Takes what waits for a host where it is held back, from old to new, as far as it is bound to another
    /// router than `at`. What is divided has its own order.
    pub(crate) fn take_bound_elsewhere(&mut self, host: &Guid, at: &Guid) -> Vec<ChunkToSend> {
        let mut all = Vec::new();
        for (port, flow) in self.grants.flows_to(host) {
            let is_divided = self.division.has(&flow);
            let link = self.neighbours.at_mut(port).filter(|_| !is_divided);
            // What waits for the host itself is where it is to leave.
            let Some(link) = link.filter(|link| link.neighbour != Some(*host)) else {
                continue;
            };
            all.extend(link.outbox.take_bound_elsewhere(&flow, at));
            self.review(Some(port), &flow);
        }
        all
    }

    /// What waits here of a flow that this node originates goes to another router of its receiver.
    pub(crate) fn readdress(&mut self, flow: &Flow, at: &Guid) {
        if at.is_none() || self.division.has(flow) {
            return;
        }
        for (_, link) in self.neighbours.iter_mut() {
            for mut outgoing in link.outbox.take_bound_elsewhere(flow, at) {
                outgoing.chunk.header.destination_address = *at;
                link.outbox.push(outgoing);
            }
        }
    }

    /// What was on its way to a neighbour that has moved goes to where it is, in its order.
    pub fn follow(&mut self, now: Time, from: PortId, to: PortId) {
        let Some(link) = self.neighbours.at_mut(from) else {
            return;
        };
        link.hop.withdraw_all(now);
        let mut all = link.outbox.take_all();
        // Where they go there is one hop, and one order.
        all.iter_mut().for_each(|outgoing| outgoing.order = None);
        self.neighbours.touch(from);
        self.review_all(from);
        for outgoing in all {
            // The port has just come up; what is lost with it, the receiver asks for again.
            let _ = self.enqueue(to, outgoing);
        }
    }

    /// The port is not to be used any more, as long as there are others: divided flows go on without
    /// it. Returns the chunks that wait for it.
    pub(crate) fn retire(&mut self, now: Time, port: PortId) -> Vec<ChunkToSend> {
        self.division.leave(&mut self.neighbours, now, port);
        self.take_waiting(port)
    }

    /// A receiver asks again for chunks that branches of its flow have delivered to the next node.
    pub(crate) fn note_missing(&mut self, now: Time, client: &Guid, request: &Request) {
        self.division
            .note_missing(&mut self.neighbours, now, client, request);
    }

    /// The neighbour on a port reports the pace of a flow behind it.
    pub(crate) fn note_pace(&mut self, now: Time, port: PortId, pace: &Pace) {
        self.division
            .note_pace(&mut self.neighbours, now, port, pace);
    }

    /// Takes the chunks that are on their way by the neighbour on `port` from a request. They arrive without
    /// being sent again, however long that takes. Those on another port arrive if they answer this very
    /// request: after a crash, another run of the client asks, and the port of the former one may count as
    /// up for some seconds.
    pub(crate) fn subtract_under_way(&self, port: PortId, by: &AskedBy, request: &mut Request) {
        let links = self.neighbours.to_same(port);
        for (at, link) in links.filter(|(_, link)| link.is_up()) {
            let counts = |chunk: &Chunk| at == port || chunk.header.extensions.request == by.id;
            link.outbox.subtract_under_way(&by.client, counts, request);
        }
        self.division
            .subtract_under_way(&self.neighbours, port, by, request);
    }

    /// Removes the chunks of this flow that `is_meant` picks and that their receiver no longer wants
    /// from the queue of `port` and from its hop. Returns how many there were.
    pub(crate) fn purge(
        &mut self,
        now: Time,
        port: PortId,
        flow: &Flow,
        is_meant: impl Fn(&Chunk) -> bool,
    ) -> usize {
        let (mut purged, mut ports) = self.division.purge(flow, &is_meant);
        if !ports.contains(&port) {
            ports.push(port);
        }
        for port in ports {
            let Some(link) = self.neighbours.at_mut(port) else {
                continue;
            };
            let before = link.outbox.queued() + link.outbox.carried();
            for tag in link.outbox.purge(flow, &is_meant) {
                link.hop.withdraw(now, tag);
            }
            purged += before - (link.outbox.queued() + link.outbox.carried());
            self.neighbours.touch(port);
            self.review(Some(port), flow);
        }
        self.division.forget_purged(&self.neighbours, flow);
        purged
    }

    /// The next request about ports.
    pub fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.neighbours.poll_port_request()
    }

    /// The next event, in order. Call it until `None` after every input and before
    /// [`Links::poll_transmit`].
    pub fn poll_event(&mut self, now: Time) -> Option<LinkEvent> {
        self.neighbours.take_back_room(now);
        self.settle();
        if !self.neighbours.has_events() {
            self.collect(now);
        }
        self.neighbours.next_event()
    }

    /// Carries out what the parts have decided.
    fn settle(&mut self) {
        for (place, flow) in self.division.take_gone() {
            self.review(place, &flow);
        }
        let events = self.division.take_events().into_iter();
        for event in events.chain(self.grants.take_events()) {
            self.neighbours.say(event);
        }
    }

    fn collect(&mut self, now: Time) {
        let neighbours = &mut self.neighbours;
        let backlogs = Backlogs::new(neighbours, &self.division);
        self.grants.review_arrived(backlogs);
        self.division.serve(neighbours, now);
        let collected = neighbours.collect(now);
        for key in &collected.forgotten {
            self.leases.cancel(key);
        }
        let gone = collected.gone.iter();
        let waiting: BTreeSet<(PortId, Flow)> = gone.clone().map(|it| (it.port, it.flow)).collect();
        for (port, flow) in waiting {
            self.review(Some(port), &flow);
        }
        let neighbours = &mut self.neighbours;
        for chunk in gone.clone() {
            self.division.note_delivered(neighbours, now, chunk);
        }
        for flow in gone.map(|it| it.flow).collect::<BTreeSet<Flow>>() {
            self.division.tell_pace(neighbours, now, &flow);
        }
        for port in collected.silent {
            self.division.recall(neighbours, now, port);
        }
        self.resumed |= collected.has_changed;
        self.settle();
        self.neighbours.take_back_room(now);
    }

    /// Appends the next frames, as
    /// [`Machine::poll_transmit`](whimbrel_core::Machine::poll_transmit) does.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.division.serve(&mut self.neighbours, now);
        self.neighbours.poll_transmit(now, max_segments, buffer)
    }

    /// Returns the earliest deadline of any hop, as of the last [`Links::poll_transmit`].
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let leases = self.leases.next();
        let leases = leases.map(|at| Deadline::new(at, "a flow is no longer held back"));
        let divided = self.division.due();
        let divided = divided.map(|at| Deadline::new(at, "branch of a divided flow"));
        let of_hops = self.neighbours.poll_timeout();
        Deadline::earlier(divided, Deadline::earlier(of_hops, leases))
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_core::identity::KeyPair;
    use whimbrel_core::{Medium, PortEvent, PortInfo, PortOrigin, SeededRng};
    use whimbrel_link::HopConfig;

    use super::*;

    /// Returns hops with this many inbound peers.
    pub(super) fn links(ports: u32) -> Links {
        let hop = HopConfig::plain(&KeyPair::from_secret(&[1; 32]), [1; 32], 1472);
        let mut links = Links::new(hop, 64, SeededRng::new(1));
        for port in 0..ports {
            let up = PortEvent::Up(PortInfo {
                label: "caller".into(),
                origin: PortOrigin::Accepted(0),
                mtu: 1472,
                peer: "caller".into(),
                medium: Medium::Unaddressed,
            });
            links.handle_port(Time::ZERO, PortId(port), &up);
        }
        links
    }
}
