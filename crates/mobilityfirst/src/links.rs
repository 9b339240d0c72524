//! The hops of one node: its neighbours, the queue for each, and the back-pressure buffer that they
//! share.
//!
//! Hosts and routers both send and receive chunks through this part. A received chunk holds room in
//! the buffer of `B` packets [MFTP §3.4.1] until the next neighbour has it whole; when the buffer
//! is full the hops accept no new chunk and close their windows, which propagates the back-pressure
//! upstream.

pub mod callers;
mod divided;
mod event;
mod hold_ends;
mod holds;
mod late;
mod link;
mod missing;
mod moves;
mod names;
mod pace;
mod ports;
mod report;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use core::ops::Bound;
use core::time::Duration;
use whimbrel_core::{
    Deadline, Guid, LookUpFailure, PortId, PortInfo, PortOrigin, PortRequest, SeededRng, Time,
    TimerQueue, Transmit,
};
use whimbrel_link::hop::ReceptionCounters;
use whimbrel_link::{Hop, HopConfig, HopEvent, HopStats, Pacing};

use crate::charge::{Charge, Pool};
use crate::chunk::{Chunk, Flow};
use crate::handed::Handovers;
use crate::next_hops::{Branch, NextHops};
use crate::outbox::{Outbox, SPARE_BELOW, flow_of};
use crate::room::{Buffer, Holder, Room};
use crate::split::SplitConfig;
use crate::split::flow::DividedFlow;
use crate::taken::RecentlyTaken;
use crate::wire::{HoldMode, ServiceId};
pub use divided::{BranchState, BranchStatus, DividedStatus};
pub use event::LinkEvent;
pub(crate) use hold_ends::{HELD_BACK, HELD_BACK_BYTES};
pub(crate) use holds::RENEWAL;
pub use names::NameRule;
pub use report::{CallersTotal, LinkStatus, UnresolvedStatus};

/// Chunks that hold no room in the buffer and count against no other bound (those that a host
/// itself originates) wait in the same queues; beyond this many on one port, further ones are
/// dropped and counted.
const MAX_OWN_QUEUED: usize = 4096;

/// Bytes of own messages that may wait for each neighbour, however many wait for others.
const LEAST_OWN: u64 = 16 << 10;

/// Maximum of events that a node handles for one input before it accepts the next.
pub(crate) const MAX_TURNS: u32 = 65_536;
/// The reason of a deadline that is due at once because work is left over.
pub(crate) const LEFT_OVER: &str = "work left over";

/// After a silence of this long, what a neighbour sends counts as a new period of activity.
const PAUSE: Duration = Duration::from_millis(500);
/// Interval at which the host name of an unresponsive neighbour is looked up.
const LOOK_UP_AGAIN: Duration = Duration::from_secs(10);

/// A chunk to send.
#[derive(Clone, Debug)]
pub struct ChunkToSend {
    /// The chunk.
    pub chunk: Chunk,
    /// Its room in the back-pressure buffer; none for a chunk that the node itself originates.
    pub room: Room,
    /// The pool that its memory counts in, if not the buffer.
    pub charge: Charge,
    /// The port that it came in on and where its flow can be held back; none for a chunk that was
    /// stored or that the node itself originates.
    pub from: Option<PortId>,
    /// The port that it came in on, also after it was stored; none for one that the node itself
    /// originates.
    pub origin: Option<PortId>,
    /// Its place in its flow, if that is divided here.
    pub order: Option<u64>,
}

impl ChunkToSend {
    /// Returns the chunk as it leaves over this branch of `hops`: bound to its address, and if it may be
    /// divided, to all that this port leads to. Their ways part further on.
    pub(crate) fn over(mut self, branch: &Branch, hops: &NextHops) -> ChunkToSend {
        if let Some(address) = branch.address {
            let header = &mut self.chunk.header;
            header.destination_address = address;
            if header.service.has(ServiceId::MULTIHOMING) {
                header.extensions.addresses = hops.addresses_by(branch);
            }
        }
        self
    }
}

/// Identifies a chunk that a hop carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Carried {
    /// The port of the hop.
    pub port: PortId,
    /// The hop's tag.
    pub tag: u64,
}

struct Link {
    hop: Hop,
    info: PortInfo,
    // What its chunks hold of the buffer, and messages of this node for it.
    held: Holder,
    own: Pool,
    neighbour: Option<Guid>,
    incarnation: u64,
    handovers: Handovers,
    taken: RecentlyTaken,
    blocked: bool,
    // When the last frame came, and the first one after the last long pause.
    last_frame: Time,
    // The peer's machine has said since then that no program receives there.
    refused: bool,
    // Nothing is sent on it, and nothing is taken.
    shut: bool,
    // What carries its frames works, as far as the driver can tell.
    carried: bool,
    talking_since: Time,
    // Since when the neighbour is at another port.
    moved_at: Option<Time>,
    outbox: Outbox,
    last_progress: Time,
    // When the neighbour is told again what it is to hold back.
    renew_at: Time,
    // When to look up the address of an unresponsive neighbour again.
    look_up_at: Time,
}

/// All hops of a node.
pub struct Links {
    template: HopConfig,
    // Of links that have another than the template, by their numbers.
    pacing: BTreeMap<u32, Pacing>,
    // Numbers of links that are not encrypted.
    plain: BTreeSet<u32>,
    // What the neighbours of configured links must prove, by the links' numbers.
    names: BTreeMap<u32, NameRule>,
    buffer: Buffer,
    links: BTreeMap<PortId, Link>,
    timers: TimerQueue<PortId>,
    // Ports whose hop may have frames to send or whose deadline may have changed.
    touched: BTreeSet<PortId>,
    events: VecDeque<LinkEvent>,
    requests: VecDeque<PortRequest>,
    rng: SeededRng,
    next_tag: u64,
    // The port served last: the one after it is served next, so that a busy port does not starve
    // the others.
    served: PortId,
    own_dropped: u64,
    // The counters of inbound peers that have left.
    departed: HopStats,
    // The messages that this node originates, and their bound in bytes, if it has one.
    own: Option<(Pool, u64)>,
    // Configured neighbours whose host names are not known yet.
    unresolved: BTreeMap<PortOrigin, LookUpFailure>,
    // Ports by the names that their neighbours claim.
    by_neighbour: BTreeMap<Guid, BTreeSet<PortId>>,
    by_link: BTreeMap<u32, PortId>,
    // Hops whose neighbours wait for room here, and the one that was offered some last.
    short_of_room: BTreeSet<PortId>,
    offered: PortId,
    // Ports that may take stored chunks since it was last looked.
    gained: BTreeSet<PortId>,
    // Flows that are held back where they come from, by the port that they leave on.
    // With the renewals at which nothing of them waited there.
    crowded: BTreeMap<(PortId, Flow), u8>,
    // What they may bring all the same, by the port that they come from, and what of it has come.
    credits: BTreeMap<(Flow, PortId), holds::Credit>,
    arrived: Vec<holds::Arrived>,
    // Contents that others of their flows pass, by the port that they leave on.
    late: BTreeMap<(PortId, Flow), BTreeMap<Guid, late::LateContent>>,
    // When a host looks for them again.
    look_for_late_at: Time,
    // Flows that neighbours hold back here, or contents of them, and when that ends.
    hold_ends: hold_ends::HoldEnds,
    // One of those has ended since it was last looked.
    resumed: bool,
    split: SplitConfig,
    splits: BTreeMap<Flow, DividedFlow>,
    // When one of them is to be looked at again.
    split_due: Option<Time>,
    // Flows that are divided before they come here, and what next hops have said of flows.
    passing: BTreeMap<Flow, pace::Passing>,
    onward: BTreeMap<(PortId, Flow), pace::Onward>,
}

impl Links {
    /// Links without hops. `template` is the configuration of every hop except for the MTU, which
    /// each port has; `buffer_packets` is B [MFTP §3.4.1].
    pub fn new(template: HopConfig, buffer_packets: usize, rng: SeededRng) -> Links {
        Links {
            template,
            pacing: BTreeMap::new(),
            plain: BTreeSet::new(),
            names: BTreeMap::new(),
            buffer: Buffer::new(buffer_packets),
            links: BTreeMap::new(),
            timers: TimerQueue::new(),
            touched: BTreeSet::new(),
            events: VecDeque::new(),
            requests: VecDeque::new(),
            rng,
            next_tag: 0,
            served: PortId(0),
            own_dropped: 0,
            departed: HopStats::default(),
            own: None,
            unresolved: BTreeMap::new(),
            by_neighbour: BTreeMap::new(),
            by_link: BTreeMap::new(),
            short_of_room: BTreeSet::new(),
            offered: PortId(0),
            gained: BTreeSet::new(),
            crowded: BTreeMap::new(),
            credits: BTreeMap::new(),
            arrived: Vec::new(),
            late: BTreeMap::new(),
            look_for_late_at: Time::ZERO,
            hold_ends: hold_ends::HoldEnds::default(),
            resumed: false,
            split: SplitConfig::default(),
            splits: BTreeMap::new(),
            split_due: None,
            passing: BTreeMap::new(),
            onward: BTreeMap::new(),
        }
    }

    /// The hops of link `number`, those of its callers among them, that come up from now on are
    /// paced so.
    pub fn set_pacing(&mut self, number: u32, pacing: Pacing) {
        self.pacing.insert(number, pacing);
    }

    /// The hops of link `number`, those of its callers among them, that come up from now on do not
    /// encrypt; their neighbours must do the same.
    pub fn set_plain(&mut self, number: u32) {
        self.plain.insert(number);
    }

    /// Messages that count in `pool`, of which at most `most` bytes are to be held, are dropped when
    /// too many of them wait for one neighbour: who takes none must not keep them from the others.
    pub(crate) fn bound_own(&mut self, pool: Pool, most: u64) {
        self.own = Some((pool, most));
    }

    /// What was asked of this node's hops by those who are no neighbours yet.
    pub fn reception(&self) -> ReceptionCounters {
        self.template.reception.counters()
    }

    /// Handles a frame from a neighbour.
    pub fn handle_frame(&mut self, now: Time, port: PortId, frame: &[u8]) {
        self.take_back_room(now);
        let Some(link) = self.links.get_mut(&port) else {
            return;
        };
        if link.shut {
            return;
        }
        if now.since(link.last_frame) >= PAUSE {
            link.talking_since = now;
        }
        link.last_frame = now;
        link.refused = false;
        let has_share = link.info.origin.is_caller();
        self.buffer.with(&link.held, has_share, |budget| {
            link.hop.handle_frame(now, frame, budget)
        });
        if link.hop.is_waited_for() {
            self.short_of_room.insert(port);
        }
        if link.moved_at.is_some_and(|at| link.hop.heard_at() > at) {
            link.moved_at = None;
            self.events.push_back(LinkEvent::Responsive(port));
        }
        self.touched.insert(port);
    }

    /// Handles due deadlines of hops.
    pub fn handle_timeout(&mut self, now: Time) {
        self.take_back_room(now);
        self.end_holds(now);
        if self.split_due.is_some_and(|at| at <= now) {
            self.serve_splits(now);
        }
        let used = self.buffer.used();
        let mut pass = self.timers.pass(now);
        while let Some((_, port)) = pass.next(&mut self.timers) {
            if let Some(link) = self.links.get_mut(&port) {
                let has_share = link.info.origin.is_caller();
                self.buffer.with(&link.held, has_share, |budget| {
                    link.hop.handle_timeout(now, budget)
                });
                self.touched.insert(port);
                // The neighbour may have moved.
                let silent = link.info.origin.is_chosen() && !link.hop.is_up();
                if silent && now >= link.look_up_at {
                    link.look_up_at = now + LOOK_UP_AGAIN;
                    self.requests.push_back(PortRequest::LookUpAgain(port));
                }
            }
        }
        // Grants have ended of which nothing came.
        if self.buffer.used() < used {
            self.offer_room(now);
        }
    }

    /// Queues a chunk for a neighbour. Returns it as `Err` if the port does not exist.
    pub fn enqueue(&mut self, port: PortId, mut outgoing: ChunkToSend) -> Result<(), ChunkToSend> {
        let Some(link) = self.links.get_mut(&port) else {
            return Err(outgoing);
        };
        if let Some((pool, most)) = &self.own
            && let Some(amount) = outgoing.charge.in_pool(pool)
        {
            if !pool.admits(&link.own, *most, LEAST_OWN) {
                self.own_dropped += 1;
                return Ok(());
            }
            outgoing.charge = link.own.charge(amount);
        }
        let bounded = outgoing.room.is_held() || outgoing.charge.is_counted();
        if !bounded && link.outbox.queued() >= MAX_OWN_QUEUED {
            self.own_dropped += 1;
            return Ok(());
        }
        let from = outgoing.from;
        let flow = flow_of(&outgoing.chunk);
        self.note_passing(port, &outgoing);
        if let Some(link) = self.links.get_mut(&port) {
            link.outbox.push(outgoing);
        }
        self.touched.insert(port);
        match (from, flow) {
            (Some(from), Some(flow)) => self.note_waiting(port, flow, from),
            (None, Some(flow)) => self.review_late(port, &flow),
            (_, None) => {}
        }
        Ok(())
    }

    /// Messages of this node that were dropped because too many waited.
    pub(crate) fn own_dropped(&self) -> u64 {
        self.own_dropped
    }

    /// Returns true if a chunk queued for `port` would be passed to its hop at once: until then the
    /// node should keep its chunks elsewhere (storage, files).
    pub fn has_room(&self, port: PortId) -> bool {
        self.links.get(&port).is_some_and(Link::has_room)
    }

    /// Returns the same for a chunk of this flow, which the neighbour may hold back.
    pub fn has_room_for(&self, port: PortId, flow: &Flow) -> bool {
        self.links.get(&port).is_some_and(|link| {
            link.has_room()
                && match link.outbox.hold_of(flow) {
                    None => true,
                    Some(HoldMode::All) => false,
                    Some(HoldMode::Spare) => link.hop.unsent_bytes() < SPARE_BELOW,
                }
        })
    }

    /// Ports that may have got room since the last call.
    pub(crate) fn take_gained(&mut self) -> BTreeSet<PortId> {
        core::mem::take(&mut self.gained)
    }

    /// Returns true while the neighbour on `port` is known and responsive.
    pub fn is_up(&self, port: PortId) -> bool {
        self.links.get(&port).is_some_and(Link::is_up)
    }

    /// Returns the chunks that the hop of `port` carries. They share the hop's memory.
    pub fn carried(&self, port: PortId) -> Vec<(Carried, ChunkToSend)> {
        let carrying = self
            .links
            .get(&port)
            .into_iter()
            .flat_map(|link| link.outbox.carrying());
        carrying
            .map(|(tag, outgoing)| (Carried { port, tag: *tag }, outgoing.clone()))
            .collect()
    }

    /// Removes and returns the chunks queued for `port` that were not passed to its hop.
    pub fn take_waiting(&mut self, port: PortId) -> Vec<ChunkToSend> {
        let Some(link) = self.links.get_mut(&port) else {
            return Vec::new();
        };
        let waiting = link.outbox.take_queued();
        self.review_holds(port);
        waiting
    }

    /// Withdraws one chunk from a hop. The neighbour may have it nevertheless.
    pub fn withdraw(&mut self, now: Time, carried: Carried) -> Option<ChunkToSend> {
        let link = self.links.get_mut(&carried.port)?;
        let outgoing = link.outbox.take_carried(carried.tag)?;
        link.hop.withdraw(now, carried.tag);
        self.touched.insert(carried.port);
        if let Some(flow) = flow_of(&outgoing.chunk) {
            self.review_hold(carried.port, &flow);
        }
        Some(outgoing)
    }

    /// Frees the buffer's room of a chunk that a hop continues to carry: its memory is accounted
    /// for elsewhere from now on.
    pub fn disown(&mut self, carried: Carried) {
        let link = self.links.get_mut(&carried.port);
        if let Some(outgoing) = link.and_then(|link| link.outbox.carried_mut(carried.tag)) {
            outgoing.room = Room::default();
            outgoing.charge = Charge::default();
        }
    }

    /// Counts a chunk that a hop continues to carry in `charge` from now on.
    pub fn charge(&mut self, carried: Carried, charge: Charge) {
        let link = self.links.get_mut(&carried.port);
        if let Some(outgoing) = link.and_then(|link| link.outbox.carried_mut(carried.tag)) {
            outgoing.charge = charge;
        }
    }

    /// Ports whose neighbour is responsive but has accepted no chunk for `patience` although chunks
    /// wait for it: back-pressure that blocks the head of a queue [MFTP §3.4.3].
    pub fn held_back(&self, now: Time, patience: Duration) -> Vec<PortId> {
        let held =
            |link: &Link| link.outbox.has_sendable() && now.since(link.last_progress) >= patience;
        self.links
            .iter()
            .filter(|(_, link)| held(link))
            .map(|(port, _)| *port)
            .collect()
    }

    /// Informs the hops of room that was dropped since the last call.
    fn take_back_room(&mut self, now: Time) {
        if self.buffer.take_back() {
            self.offer_room(now);
        }
    }

    fn offer_room(&mut self, now: Time) {
        // In turns: room that came free goes to the next of those that wait.
        let after = self
            .short_of_room
            .split_off(&PortId(self.offered.0.saturating_add(1)));
        let before = core::mem::take(&mut self.short_of_room);
        for port in after.into_iter().chain(before) {
            let Some(link) = self.links.get_mut(&port) else {
                continue;
            };
            let has_share = link.info.origin.is_caller();
            self.buffer.with(&link.held, has_share, |budget| {
                link.hop.budget_released(now, budget)
            });
            self.touched.insert(port);
            if link.hop.is_waited_for() {
                self.short_of_room.insert(port);
            } else {
                self.offered = port;
            }
        }
    }

    /// The next request about ports.
    pub fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.requests.pop_front()
    }

    /// The next event, in order. Call it until `None` after every input and before
    /// [`Links::poll_transmit`].
    pub fn poll_event(&mut self, now: Time) -> Option<LinkEvent> {
        self.take_back_room(now);
        if self.events.is_empty() {
            self.collect(now);
        }
        self.events.pop_front()
    }

    fn collect(&mut self, now: Time) {
        self.review_arrived();
        self.serve_splits(now);
        let ports: Vec<PortId> = self.touched.iter().copied().collect();
        let mut divided = Vec::new();
        let mut passed = BTreeSet::new();
        for port in ports {
            let Some(link) = self.links.get_mut(&port) else {
                continue;
            };
            link.feed(now, &mut self.next_tag);
            let neighbour = link.neighbour;
            let mut fewer = BTreeSet::new();
            while let Some(event) = link.hop.poll_event() {
                match event {
                    HopEvent::SetEcn { capable } => {
                        let request = PortRequest::SetEcn { port, capable };
                        self.requests.push_back(request);
                        continue;
                    }
                    HopEvent::Impostor => {
                        link.log("a caller could not prove its name");
                        if link.info.origin.is_caller() {
                            self.requests.push_back(PortRequest::Close(port));
                        }
                        continue;
                    }
                    _ => {}
                }
                let Some(gone) = link.note(now, port, event, &self.buffer, &mut self.events) else {
                    continue;
                };
                fewer.insert(gone.flow);
                divided.extend(gone.order.map(|order| (gone.flow, order, port)));
            }
            for (flow, content) in link.outbox.take_forgotten() {
                self.hold_ends.cancel(&(port, flow, content));
            }
            link.feed(now, &mut self.next_tag);
            if link.has_room() {
                self.gained.insert(port);
            }
            let is = link.neighbour;
            if is != neighbour {
                self.note_neighbour(port, neighbour, is);
                is.inspect(|name| self.note_proven(port, *name));
            }
            fewer.iter().for_each(|flow| self.review_hold(port, flow));
            passed.extend(fewer);
        }
        for (flow, order, port) in divided {
            self.note_divided(now, flow, order, port);
        }
        passed.iter().for_each(|flow| self.tell_pace(now, flow));
        let away = self.events.iter().filter_map(|event| match event {
            LinkEvent::Unresponsive(port) => Some(*port),
            _ => None,
        });
        for port in away.collect::<Vec<_>>() {
            self.recall_divided(now, port);
        }
        let changed = |event: &LinkEvent| {
            use LinkEvent::{Responsive, Unresponsive, Up};
            matches!(event, Up { .. } | Unresponsive(_) | Responsive(_))
        };
        if self.events.iter().any(changed) {
            self.resumed = true;
            self.note_restarts();
            self.note_moves(now);
        }
        self.take_back_room(now);
    }

    /// Appends the next frames, as
    /// [`Machine::poll_transmit`](whimbrel_core::Machine::poll_transmit) does.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.serve_splits(now);
        while let Some(port) = self.next_touched() {
            let Some(link) = self.links.get_mut(&port) else {
                continue;
            };
            link.feed(now, &mut self.next_tag);
            if link.shut {
                self.timers.cancel(&port);
                continue;
            }
            if !link.blocked
                && let Some((size, segment_size)) =
                    link.hop.poll_transmit(now, max_segments, buffer)
            {
                self.touched.insert(port);
                if link.has_room() {
                    self.gained.insert(port);
                }
                if link.hop.is_waited_for() {
                    self.short_of_room.insert(port);
                }
                return Some(Transmit {
                    port,
                    size,
                    segment_size,
                });
            }
            match link.hop.poll_timeout() {
                // A blocked port waits for the driver; a deadline would find nothing to do.
                Some(deadline) if !link.blocked || deadline.at > now => {
                    self.timers.set(port, deadline.at)
                }
                _ => {
                    self.timers.cancel(&port);
                }
            }
        }
        None
    }

    fn next_touched(&mut self) -> Option<PortId> {
        let after = (Bound::Excluded(self.served), Bound::Unbounded);
        let next = self
            .touched
            .range(after)
            .next()
            .or(self.touched.first())
            .copied()?;
        self.touched.remove(&next);
        self.served = next;
        Some(next)
    }

    /// Returns the earliest deadline of any hop, as of the last [`Links::poll_transmit`].
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let hold_ends = self.hold_ends.next();
        let hold_ends = hold_ends.map(|at| Deadline::new(at, "a flow is no longer held back"));
        let of_hops = self.timers.next().map(|(at, port)| {
            let reason = self
                .links
                .get(port)
                .and_then(|link| link.hop.poll_timeout());
            Deadline::new(at, reason.map_or("hop", |deadline| deadline.reason))
        });
        let of_splits = self.split_due;
        let of_splits = of_splits.map(|at| Deadline::new(at, "branch of a divided flow"));
        Deadline::earlier(of_splits, Deadline::earlier(of_hops, hold_ends))
    }
}
