//! What waits for one neighbour: urgent messages first, and flows in turns.

mod queue;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{Guid, Time};
use whimbrel_link::turns::Turns;
use whimbrel_link::{Hop, Lane};

use crate::chunk::Chunk;
use crate::outgoing::ChunkToSend;
use crate::wire::{
    Credit, Data, Flow, Request, ServiceId, Transport, TransportKind, UpperProtocol,
};
use queue::{LANES, Next, Queue};

/// Bytes that a flow sends before it is the turn of another.
const TURN_BYTES: u64 = 64 << 10;
/// Largest message that goes before all others, in bytes.
const MAX_URGENT: usize = 64 << 10;
/// A flow that may use only what others leave is served while less than this waits in the hop.
pub(crate) const SPARE_BELOW: usize = 256 << 10;
/// Maximum of flows that one neighbour may hold back; it repeats what it says, so that one beyond it is
/// held back later.
const MAX_HOLDS: usize = 4096;

/// Returns the flow of a chunk that waits for its turn; `None` for a message that goes before all
/// others, because a node waits for it: control, echoes, requests, notices.
pub(crate) fn flow_of(chunk: &Chunk) -> Option<Flow> {
    let is_flow = |kind: TransportKind| chunk.message.head.first() == Some(&(kind as u8));
    if chunk.size() > MAX_URGENT {
        return Some(chunk.flow());
    }
    if chunk.header.upper != UpperProtocol::Transport {
        return None;
    }
    if is_flow(TransportKind::Data) || is_flow(TransportKind::Message) {
        return Some(chunk.flow());
    }
    // It is to arrive behind the chunks that it speaks of. Those that were offered may come later: their receiver
    // asks for them, and nodes that have them on the way do not pass that on.
    if is_flow(TransportKind::Lost)
        && let Ok(Transport::Lost(notice)) = chunk.transport()
    {
        return Some(Flow::requested(notice.source, notice.destination));
    }
    None
}

/// Returns true for a short message of a node that is not the neighbour, and that is not stored.
pub(crate) fn is_passing_message(chunk: &Chunk) -> bool {
    let has = |flag| chunk.header.service.has(flag);
    !has(ServiceId::NEIGHBOUR) && !has(ServiceId::DELAY_TOLERANT) && flow_of(chunk).is_none()
}

/// The chunks of one flow that wait for a neighbour or are on their way to it.
#[derive(Debug, Default)]
struct OfFlow {
    // Of its first lane in the hop.
    number: u64,
    queued: Queue,
    // Of what is queued and what the hop carries.
    bytes: u64,
}

/// How a flow is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowTurn {
    /// In turn with the others.
    Free,
    /// When there is nothing else to send.
    Spare,
    /// Not at all.
    Held,
}

/// What the neighbour has said about a flow.
#[derive(Clone, Copy, Debug)]
struct Held {
    // Bytes that may be sent in turn. The last chunk may exceed them.
    octets: u64,
    spare: bool,
    // Since it has had no credit, and when it is free again.
    since: Time,
    until: Time,
}

impl OfFlow {
    fn new(next_number: &mut u64) -> OfFlow {
        *next_number += LANES as u64;
        OfFlow {
            number: *next_number,
            ..OfFlow::default()
        }
    }

    fn lane(&self, lane: usize) -> Lane {
        Lane::Flow(self.number + lane as u64)
    }
}

impl Held {
    fn turn(&self) -> FlowTurn {
        match (self.octets, self.spare) {
            (1.., _) => FlowTurn::Free,
            (0, true) => FlowTurn::Spare,
            (0, false) => FlowTurn::Held,
        }
    }
}

/// A chunk that the hop has.
#[derive(Debug)]
struct Carried {
    // The number of its content in its flow's queue, unless it is urgent.
    number: u64,
    outgoing: ChunkToSend,
}

/// The chunks for one neighbour.
#[derive(Debug)]
pub(crate) struct Outbox {
    urgent: VecDeque<ChunkToSend>,
    flows: BTreeMap<Flow, OfFlow>,
    // The flows by their numbers; those with queued chunks that may go take turns.
    by_number: BTreeMap<u64, Flow>,
    turns: Turns<u64>,
    // Those of them of which the hop carries nothing, and those that use what others leave.
    unserved: BTreeSet<u64>,
    spare: Turns<u64>,
    next_number: u64,
    held: BTreeMap<Flow, Held>,
    // What another run of the neighbour no longer holds back.
    forgotten: Vec<Flow>,
    carrying: BTreeMap<u64, Carried>,
    queued: usize,
    bytes: u64,
}

impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            urgent: VecDeque::new(),
            flows: BTreeMap::new(),
            by_number: BTreeMap::new(),
            turns: Turns::new(TURN_BYTES),
            unserved: BTreeSet::new(),
            spare: Turns::new(TURN_BYTES),
            next_number: 0,
            held: BTreeMap::new(),
            forgotten: Vec::new(),
            carrying: BTreeMap::new(),
            queued: 0,
            bytes: 0,
        }
    }

    /// Chunks that the hop does not carry yet.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// Chunks that the hop carries.
    pub(crate) fn carried(&self) -> usize {
        self.carrying.len()
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns true if a chunk waits that may go.
    pub(crate) fn has_sendable(&self) -> bool {
        !self.urgent.is_empty() || !self.turns.is_empty()
    }

    /// Flows with chunks here.
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the bytes and chunks of a flow here.
    pub(crate) fn waiting(&self, flow: &Flow) -> (u64, usize) {
        self.flows.get(flow).map_or((0, 0), |it| {
            (it.bytes, it.queued.len() + it.queued.carried())
        })
    }

    /// The hop carries these, in the order in which it got them.
    pub(crate) fn carrying(&self) -> impl Iterator<Item = (&u64, &ChunkToSend)> {
        self.carrying.iter().map(|(tag, it)| (tag, &it.outgoing))
    }

    fn carried_chunks(&self) -> impl Iterator<Item = &ChunkToSend> {
        self.carrying.values().map(|it| &it.outgoing)
    }

    pub(crate) fn carried_mut(&mut self, tag: u64) -> Option<&mut ChunkToSend> {
        self.carrying.get_mut(&tag).map(|it| &mut it.outgoing)
    }

    pub(crate) fn push(&mut self, outgoing: ChunkToSend) {
        self.queued += 1;
        self.bytes += outgoing.chunk.size() as u64;
        let Some(flow) = flow_of(&outgoing.chunk) else {
            return self.urgent.push_back(outgoing);
        };
        let size = outgoing.chunk.size() as u64;
        let next_number = &mut self.next_number;
        let of_flow = self.flows.entry(flow);
        let of_flow = of_flow.or_insert_with(|| OfFlow::new(next_number));
        self.by_number.insert(of_flow.number, flow);
        of_flow.bytes += size;
        of_flow.queued.push(outgoing);
        self.classify(&flow);
    }

    /// Notes whether a flow takes part in the turns.
    fn classify(&mut self, flow: &Flow) {
        let Some(of_flow) = self.flows.get(flow) else {
            return;
        };
        let (turn, number) = (self.turn_of(flow), of_flow.number);
        let waits = !of_flow.queued.is_empty();
        let may_go = waits && turn == FlowTurn::Free;
        match may_go {
            true => self.turns.join(number),
            false => self.turns.leave(number),
        }
        place(
            &mut self.unserved,
            number,
            may_go && of_flow.queued.is_unserved(),
        );
        match waits && turn == FlowTurn::Spare {
            true => self.spare.join(number),
            false => self.spare.leave(number),
        }
        if !waits && of_flow.queued.carried() == 0 {
            self.by_number.remove(&number);
            self.flows.remove(flow);
        }
    }

    /// Passes chunks to the hop as far as it takes them; true if there were any.
    pub(crate) fn feed(&mut self, now: Time, hop: &mut Hop, next_tag: &mut u64) -> bool {
        let mut fed = false;
        while let Some((lane, carried)) = self.next_for(|lane| hop.takes(lane), hop.unsent_bytes())
        {
            let tag = *next_tag;
            *next_tag += 1;
            let (head, body) = carried.outgoing.chunk.clone().into_pieces();
            self.carrying.insert(tag, carried);
            hop.send_in(now, lane, tag, head, body);
            fed = true;
        }
        fed
    }

    /// The next chunk of a lane that the hop takes, in which `unsent` bytes wait.
    fn next_for(&mut self, takes: impl Fn(Lane) -> bool, unsent: usize) -> Option<(Lane, Carried)> {
        if !self.urgent.is_empty() && takes(Lane::Urgent) {
            self.queued -= 1;
            let (number, outgoing) = (0, self.urgent.pop_front()?);
            return Some((Lane::Urgent, Carried { number, outgoing }));
        }
        let takes_of = |of_flow: &OfFlow| -> [bool; LANES] {
            core::array::from_fn(|it| of_flow.queued.waits_in(it) && takes(of_flow.lane(it)))
        };
        let takes = |number: &u64| {
            let of_flow = self
                .by_number
                .get(number)
                .and_then(|flow| self.flows.get(flow));
            of_flow.is_some_and(|it| takes_of(it).contains(&true))
        };
        let in_turn = self.turns.next().filter(takes);
        let unserved = || self.unserved.first().copied().filter(takes);
        let spare = || {
            let is_idle = self.turns.is_empty() && unsent < SPARE_BELOW;
            let next = self.spare.next();
            next.filter(|number| is_idle && takes(number))
        };
        let number = in_turn.or_else(unserved).or_else(spare)?;
        let flow = *self.by_number.get(&number)?;
        let of_flow = self.flows.get_mut(&flow)?;
        let may_go = takes_of(of_flow);
        let Next {
            number: content,
            lane,
            outgoing,
            replaced,
        } = of_flow.queued.pop_front(|lane| may_go[lane])?;
        let lane = of_flow.lane(lane);
        self.queued -= replaced.chunks;
        let (was, is) = (replaced.bytes, outgoing.chunk.size() as u64);
        of_flow.bytes = of_flow.bytes + is - was;
        self.bytes = self.bytes + is - was;
        self.turns.spend(number, outgoing.chunk.size() as u64);
        self.spare.spend(number, outgoing.chunk.size() as u64);
        if let Some(held) = self.held.get_mut(&flow) {
            held.octets = held.octets.saturating_sub(outgoing.chunk.size() as u64);
        }
        self.classify(&flow);
        let number = content;
        Some((lane, Carried { number, outgoing }))
    }

    /// The hop no longer carries this chunk.
    pub(crate) fn take_carried(&mut self, tag: u64) -> Option<ChunkToSend> {
        let Carried { number, outgoing } = self.carrying.remove(&tag)?;
        self.bytes -= outgoing.chunk.size() as u64;
        if let Some(flow) = flow_of(&outgoing.chunk)
            && let Some(of_flow) = self.flows.get_mut(&flow)
        {
            let size = outgoing.chunk.size() as u64;
            of_flow.queued.note_over(number, size);
            of_flow.bytes -= size;
            self.classify(&flow);
        }
        Some(outgoing)
    }

    /// Removes and returns the queued chunks.
    pub(crate) fn take_queued(&mut self) -> Vec<ChunkToSend> {
        let mut all: Vec<ChunkToSend> = self.urgent.drain(..).collect();
        for of_flow in self.flows.values_mut() {
            of_flow.bytes -= of_flow.queued.bytes();
            all.extend(of_flow.queued.take_if(|_| true));
        }
        self.bytes -= bytes_of(&all);
        self.queued = 0;
        let flows: Vec<Flow> = self.flows.keys().copied().collect();
        flows.iter().for_each(|flow| self.classify(flow));
        all
    }

    /// Removes and returns all chunks, those of the hop first.
    pub(crate) fn take_all(&mut self) -> Vec<ChunkToSend> {
        let tags: Vec<u64> = self.carrying.keys().copied().collect();
        let carried = tags.into_iter().filter_map(|tag| self.take_carried(tag));
        let mut all: Vec<ChunkToSend> = carried.collect();
        all.extend(self.take_queued());
        all
    }

    /// Removes the chunks of a flow that `is_meant` picks; returns the tags of those in the hop.
    pub(crate) fn purge(&mut self, flow: &Flow, is_meant: impl Fn(&Chunk) -> bool) -> Vec<u64> {
        let Some(of_flow) = self.flows.get_mut(flow) else {
            return Vec::new();
        };
        let gone = of_flow.queued.take_if(|it| is_meant(&it.chunk));
        self.queued -= gone.len();
        let gone = bytes_of(&gone);
        of_flow.bytes -= gone;
        self.bytes -= gone;
        let of_hop = self.carrying();
        let meant =
            of_hop.filter(|(_, it)| flow_of(&it.chunk) == Some(*flow) && is_meant(&it.chunk));
        let tags: Vec<u64> = meant.map(|(tag, _)| *tag).collect();
        tags.iter().for_each(|tag| drop(self.take_carried(*tag)));
        self.classify(flow);
        tags
    }

    /// The neighbour says what may be sent of a flow until then; without a lease the flow is free. Returns
    /// false if it holds back too many.
    pub(crate) fn note_credit(
        &mut self,
        now: Time,
        flow: Flow,
        credit: &Credit,
        until: Time,
    ) -> bool {
        let before = self.held.get(&flow).copied();
        if credit.lease.is_zero() {
            self.held.remove(&flow);
        } else if before.is_none() && self.held.len() >= MAX_HOLDS {
            return false;
        } else {
            let octets = u64::from(credit.octets);
            let left = before.map_or(0, |held| held.octets);
            let same = before.filter(|held| octets == 0 && held.spare == credit.spare);
            let held = Held {
                octets: if octets > 0 {
                    left.saturating_add(octets)
                } else {
                    0
                },
                spare: credit.spare,
                since: same.map_or(now, |held| held.since),
                until,
            };
            self.held.insert(flow, held);
        }
        self.classify(&flow);
        true
    }

    /// Returns true if chunks of a flow wait here or are on their way.
    pub(crate) fn has_flow(&self, flow: &Flow) -> bool {
        self.flows.contains_key(flow)
    }

    /// Returns the bytes of a flow that the hop does not carry yet.
    pub(crate) fn queued_of(&self, flow: &Flow) -> u64 {
        self.flows.get(flow).map_or(0, |it| it.queued.bytes())
    }

    /// Returns true if a chunk of a content waits in a flow or is on its way.
    pub(crate) fn has_content(&self, flow: &Flow, content: &Guid) -> bool {
        let of_content = |it: &ChunkToSend| {
            let is_meant = |data: Data| data.content == *content;
            it.chunk.flow() == *flow && it.chunk.data().is_some_and(is_meant)
        };
        self.flows.get(flow).is_some_and(|it| {
            it.queued.has(content)
                || it.queued.carried() > 0 && self.carried_chunks().any(of_content)
        })
    }

    fn queued_in(&self, flow: &Flow) -> impl Iterator<Item = &ChunkToSend> {
        let of_flow = self.flows.get(flow).into_iter();
        of_flow.flat_map(|it| it.queued.iter())
    }

    /// Returns the chunk of a divided flow with this place in it.
    pub(crate) fn of_order(&self, flow: &Flow, order: u64) -> Option<&ChunkToSend> {
        let is_it = |it: &&ChunkToSend| it.order == Some(order) && it.chunk.flow() == *flow;
        let queued = self.queued_in(flow);
        self.carried_chunks().chain(queued).find(is_it)
    }

    /// Returns the places of the chunks of a divided flow that are here.
    pub(crate) fn orders_of(&self, flow: &Flow) -> Vec<u64> {
        let queued = self.queued_in(flow);
        let carried = self.carried_chunks().filter(|it| it.chunk.flow() == *flow);
        let mut orders: Vec<u64> = carried.chain(queued).filter_map(|it| it.order).collect();
        orders.sort_unstable();
        orders
    }

    /// Returns true if the hop carries a chunk of a flow.
    pub(crate) fn carries(&self, flow: &Flow) -> bool {
        self.flows
            .get(flow)
            .is_some_and(|it| it.queued.carried() > 0)
    }

    /// Removes the chunks of a divided flow that the hop does not carry.
    pub(crate) fn take_divided(&mut self, flow: &Flow) -> Vec<ChunkToSend> {
        let Some(of_flow) = self.flows.get_mut(flow) else {
            return Vec::new();
        };
        let taken = of_flow.queued.take_if(|it| it.order.is_some());
        let bytes = bytes_of(&taken);
        of_flow.bytes -= bytes;
        self.bytes -= bytes;
        self.queued -= taken.len();
        self.classify(flow);
        taken
    }

    /// Chunks of a flow that are here belong to no division any more.
    pub(crate) fn forget_orders(&mut self, flow: &Flow) {
        let carried = self.carrying.values_mut().map(|it| &mut it.outgoing);
        carried
            .filter(|it| it.chunk.flow() == *flow)
            .for_each(|it| it.order = None);
        if let Some(of_flow) = self.flows.get_mut(flow) {
            for mut outgoing in of_flow.queued.take_if(|it| it.order.is_some()) {
                outgoing.order = None;
                of_flow.queued.push(outgoing);
            }
            self.classify(flow);
        }
    }

    /// Removes the chunk of a divided flow with this place in it; with its tag, if the hop carries
    /// it.
    pub(crate) fn take_order(
        &mut self,
        flow: &Flow,
        order: u64,
    ) -> Option<(ChunkToSend, Option<u64>)> {
        let is_it = |it: &ChunkToSend| it.order == Some(order) && it.chunk.flow() == *flow;
        let carried = self.carrying().find(|(_, it)| is_it(it));
        if let Some(tag) = carried.map(|(tag, _)| *tag) {
            return Some((self.take_carried(tag)?, Some(tag)));
        }
        let of_flow = self.flows.get_mut(flow)?;
        let outgoing = of_flow.queued.take_first(is_it)?;
        let bytes = outgoing.chunk.size() as u64;
        of_flow.bytes -= bytes;
        self.bytes -= bytes;
        self.queued -= 1;
        self.classify(flow);
        Some((outgoing, None))
    }

    /// Takes the chunks that wait here for `client`, or that the hop carries to it, from its request, if
    /// they `count`.
    pub(crate) fn subtract_under_way(
        &self,
        client: &Guid,
        counts: impl Fn(&Chunk) -> bool,
        request: &mut Request,
    ) {
        let is_meant = |it: &&ChunkToSend| it.chunk.header.reaches(client);
        let flows = self.flows.iter();
        let of_client = flows.filter(|(flow, of_flow)| {
            // A chunk of the flow to a group is for some of its members.
            let first = of_flow.queued.iter().next();
            flow.destination == *client || first.is_some_and(|it| it.chunk.header.is_of_group())
        });
        let queued = of_client.flat_map(|(_, of_flow)| of_flow.queued.iter());
        let all = queued.chain(self.carried_chunks()).filter(is_meant);
        let all = all.filter(|it| counts(&it.chunk));
        let of_content = all.filter_map(|it| it.chunk.data());
        let of_content = of_content.filter(|data| data.content == request.content);
        let under_way: Vec<(u8, u32)> = of_content
            .map(|data| (data.chunk_log2, data.index))
            .collect();
        request.subtract(under_way);
    }

    /// Returns the lanes of a flow, if chunks of it are here.
    pub(crate) fn lanes_of(&self, flow: &Flow) -> Option<[Lane; LANES]> {
        let of_flow = self.flows.get(flow)?;
        Some(core::array::from_fn(|lane| of_flow.lane(lane)))
    }

    /// Chunks of a flow come back from the hop, in the order in which it got them.
    pub(crate) fn take_back(&mut self, flow: &Flow, tags: Vec<u64>) {
        let Some(of_flow) = self.flows.get_mut(flow) else {
            return;
        };
        for tag in tags.into_iter().rev() {
            if let Some(Carried { number, outgoing }) = self.carrying.remove(&tag) {
                of_flow.queued.put_back(number, outgoing);
                self.queued += 1;
            }
        }
        self.classify(flow);
    }

    /// Returns how the neighbour lets a flow be sent now.
    pub(crate) fn turn_of(&self, flow: &Flow) -> FlowTurn {
        self.held.get(flow).map_or(FlowTurn::Free, Held::turn)
    }

    /// Returns the bytes of a flow that may still be sent in turn, unless it is free.
    pub(crate) fn credit_of(&self, flow: &Flow) -> Option<u64> {
        self.held.get(flow).map(|held| held.octets)
    }

    /// Returns the flows that the neighbour holds back.
    pub(crate) fn held(&self) -> impl Iterator<Item = &Flow> {
        self.held.keys()
    }

    /// Returns the flows of which nothing has been sent since `before` because the neighbour holds them
    /// back, with the bytes that are queued of each.
    pub(crate) fn stuck(&self, before: Time) -> impl Iterator<Item = (Flow, u64)> {
        let held = (self.held.keys()).filter(move |flow| self.is_held_since(flow, before));
        let queued = held.map(|flow| (*flow, self.queued_of(flow)));
        queued.filter(|(_, bytes)| *bytes > 0)
    }

    /// Returns true if nothing of a flow has been sent since `before` because the neighbour holds it back.
    pub(crate) fn is_held_since(&self, flow: &Flow, before: Time) -> bool {
        let held = self.held.get(flow);
        held.is_some_and(|it| it.turn() == FlowTurn::Held && it.since <= before)
    }

    /// Removes and returns the newest queued chunk of the content of a flow that has most here.
    pub(crate) fn take_newest(&mut self, flow: &Flow) -> Option<ChunkToSend> {
        let of_flow = self.flows.get_mut(flow)?;
        let outgoing = of_flow.queued.take_newest()?;
        let bytes = outgoing.chunk.size() as u64;
        of_flow.bytes -= bytes;
        self.bytes -= bytes;
        self.queued -= 1;
        self.classify(flow);
        Some(outgoing)
    }

    /// Takes the undivided chunks of a flow that wait, from old to new.
    pub(crate) fn take_undivided(&mut self, flow: &Flow) -> Vec<ChunkToSend> {
        let Some(of_flow) = self.flows.get_mut(flow) else {
            return Vec::new();
        };
        let taken = of_flow.queued.take_if(|it| it.order.is_none());
        let bytes = bytes_of(&taken);
        of_flow.bytes -= bytes;
        self.bytes -= bytes;
        self.queued -= taken.len();
        self.classify(flow);
        taken
    }

    /// Takes the newest waiting chunks of a flow, as far as they are bound to another router than `at`. Returns
    /// them from old to new.
    pub(crate) fn take_bound_elsewhere(&mut self, flow: &Flow, at: &Guid) -> Vec<ChunkToSend> {
        let mut taken = Vec::new();
        while let Some(newest) = self.take_newest(flow) {
            let address = newest.chunk.header.destination_address;
            if address.is_none() || address == *at {
                self.push(newest);
                break;
            }
            taken.push(newest);
        }
        taken.reverse();
        taken
    }

    /// A lease that was not renewed ends.
    pub(crate) fn end_lease(&mut self, now: Time, flow: &Flow) {
        if self.held.get(flow).is_some_and(|held| held.until <= now) {
            self.held.remove(flow);
            self.classify(flow);
        }
    }

    /// The neighbour is another run, which holds nothing back.
    pub(crate) fn forget_holds(&mut self) {
        let held: Vec<Flow> = core::mem::take(&mut self.held).into_keys().collect();
        held.iter().for_each(|flow| self.classify(flow));
        self.forgotten.extend(held);
    }

    /// Returns the flows that have been forgotten since the last call.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Flow> {
        core::mem::take(&mut self.forgotten)
    }
}

fn bytes_of<'a>(chunks: impl IntoIterator<Item = &'a ChunkToSend>) -> u64 {
    chunks.into_iter().map(|it| it.chunk.size() as u64).sum()
}

fn place(set: &mut BTreeSet<u64>, number: u64, member: bool) {
    if member {
        set.insert(number);
    } else {
        set.remove(&number);
    }
}

#[cfg(test)]
pub(crate) mod tests;
