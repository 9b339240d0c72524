//! The neighbours of a node: ports and their hops, and the back-pressure buffer that they share.
//!
//! A received chunk holds room in the buffer of `B` packets [MFTP §3.4.1] until the next neighbour has it
//! whole; when the buffer is full the hops accept no new chunk and close their windows, which propagates
//! the back-pressure upstream.

use core::ops::Bound;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{
    Deadline, Guid, LookUpFailure, PortId, PortOrigin, PortRequest, SeededRng, Time, TimerQueue,
    Transmit,
};
use whimbrel_link::hop::ReceptionCounters;
use whimbrel_link::{Buffer, HopConfig, HopEvent, HopStats, Pacing, Pool, Room};

use super::link::{Gone, LOOK_UP_AGAIN, Link};
use super::names::NameRule;
use super::{AskedBy, Carried, ChunkToSend, LinkEvent};
use crate::wire::{Flow, Request};

/// Chunks that hold no room in the buffer and count against no other bound (those that a host
/// itself originates) wait in the same queues; beyond this many on one port, further ones are
/// dropped and counted.
const MAX_OWN_QUEUED: usize = 4096;
/// Bytes of own messages that may wait for each neighbour, however many wait for others.
const LEAST_OWN: u64 = 16 << 10;
/// After a silence of this long, what a neighbour sends counts as a new period of activity.
const PAUSE: Duration = Duration::from_millis(500);
/// What may wait for a next hop, as time that it takes there, beside round trips: what is on its way
/// there counts until the neighbour has acknowledged it (a second round trip if a packet was lost),
/// and what is let go again where it comes from arrives one of that link later. All flows there
/// share it, and it shrinks to nothing as the second half of the buffer fills.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Bytes per second of a next hop whose rate is not known yet.
pub(super) const UNMEASURED: u64 = 2 << 20;
/// This number of flows to one neighbour may take much of the buffer, however thin its link is.
pub(super) const MANY_FLOWS: usize = 8;

/// What the configuration says of a link, and of its callers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HopTerms {
    // As all hops, unless it says another one.
    pub(super) pacing: Option<Pacing>,
    // Nothing is encrypted.
    pub(super) plain: bool,
    // What the neighbour must prove.
    pub(super) name: Option<NameRule>,
}

/// What hops have reported.
#[derive(Default)]
pub(super) struct Collected {
    /// Chunks that no longer wait for a neighbour.
    pub(super) gone: Vec<Gone>,
    /// Flows that another run of a neighbour no longer holds back.
    pub(super) forgotten: Vec<(PortId, Flow)>,
    /// Neighbours that have become unresponsive.
    pub(super) silent: Vec<PortId>,
    /// A neighbour is up, silent or responsive again.
    pub(super) has_changed: bool,
}

/// All neighbours of a node.
pub(crate) struct Neighbours {
    pub(super) template: HopConfig,
    // By the numbers of the links.
    pub(super) terms: BTreeMap<u32, HopTerms>,
    pub(super) buffer: Buffer,
    pub(super) links: BTreeMap<PortId, Link>,
    timers: TimerQueue<PortId>,
    // Ports whose hop may have frames to send or whose deadline may have changed.
    touched: BTreeSet<PortId>,
    events: VecDeque<LinkEvent>,
    pub(super) requests: VecDeque<PortRequest>,
    pub(super) rng: SeededRng,
    next_tag: u64,
    // The port served last: the one after it is served next, so that a busy port does not starve
    // the others.
    served: PortId,
    own_dropped: u64,
    // The counters of inbound peers that have left.
    pub(super) departed: HopStats,
    // The messages that this node originates, and their bound in bytes, if it has one.
    pub(super) own: Option<(Pool, u64)>,
    // Configured neighbours whose host names are not known yet.
    pub(super) unresolved: BTreeMap<PortOrigin, LookUpFailure>,
    // Ports by the names that their neighbours claim.
    pub(super) by_neighbour: BTreeMap<Guid, BTreeSet<PortId>>,
    pub(super) by_link: BTreeMap<u32, PortId>,
    // Hops whose neighbours wait for room here, and the one that was offered some last.
    short_of_room: BTreeSet<PortId>,
    offered: PortId,
    // Ports that may take stored chunks since it was last looked.
    gained: BTreeSet<PortId>,
}

impl Neighbours {
    pub(super) fn new(template: HopConfig, buffer_packets: usize, rng: SeededRng) -> Neighbours {
        Neighbours {
            template,
            terms: BTreeMap::new(),
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
        }
    }

    /// Returns what the configuration says of a link.
    pub(super) fn terms_mut(&mut self, number: u32) -> &mut HopTerms {
        self.terms.entry(number).or_default()
    }

    /// Returns the hop of a port.
    pub(crate) fn at(&self, port: PortId) -> Option<&Link> {
        self.links.get(&port)
    }

    pub(super) fn at_mut(&mut self, port: PortId) -> Option<&mut Link> {
        self.links.get_mut(&port)
    }

    /// Returns all hops, in the order of their ports' numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PortId, &Link)> {
        self.links.iter().map(|(port, link)| (*port, link))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Link)> {
        self.links.iter_mut().map(|(port, link)| (*port, link))
    }

    /// Returns true while the neighbour on a port is known and responsive.
    pub(crate) fn is_up(&self, port: PortId) -> bool {
        self.at(port).is_some_and(Link::is_up)
    }

    /// A port's hop may have frames to send.
    pub(super) fn touch(&mut self, port: PortId) {
        self.touched.insert(port);
    }

    /// A port may take stored chunks.
    pub(super) fn note_gained(&mut self, port: PortId) {
        self.gained.insert(port);
        self.touched.insert(port);
    }

    /// Passes queued chunks to a port's hop.
    pub(super) fn feed(&mut self, now: Time, port: PortId) {
        if let Some(link) = self.links.get_mut(&port) {
            link.feed(now, &mut self.next_tag);
            self.touched.insert(port);
        }
    }

    pub(super) fn say(&mut self, event: LinkEvent) {
        self.events.push_back(event);
    }

    pub(super) fn next_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Messages that count in `pool`, of which at most `most` bytes are to be held, are dropped when
    /// too many of them wait for one neighbour: who takes none must not keep them from the others.
    pub(crate) fn bound_own(&mut self, pool: Pool, most: u64) {
        self.own = Some((pool, most));
    }

    /// What was asked of this node's hops by those who are no neighbours yet.
    pub(super) fn reception(&self) -> ReceptionCounters {
        self.template.reception.counters()
    }

    /// Handles a frame from a neighbour.
    pub(super) fn handle_frame(&mut self, now: Time, port: PortId, frame: &[u8]) {
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
        self.buffer.with(&link.share, has_share, |buffer| {
            link.hop.handle_frame(now, frame, buffer)
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
    pub(super) fn handle_timeout(&mut self, now: Time) {
        let used = self.buffer.used();
        let mut pass = self.timers.pass(now);
        while let Some((_, port)) = pass.next(&mut self.timers) {
            if let Some(link) = self.links.get_mut(&port) {
                let has_share = link.info.origin.is_caller();
                self.buffer.with(&link.share, has_share, |buffer| {
                    link.hop.handle_timeout(now, buffer)
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

    /// Counts a chunk for a port. Returns it unless too many of its kind wait there.
    pub(super) fn admit(&mut self, port: PortId, mut outgoing: ChunkToSend) -> Option<ChunkToSend> {
        let link = self.links.get_mut(&port)?;
        if let Some((pool, most)) = &self.own
            && outgoing.room.is_in(pool)
        {
            if !pool.admits(&link.own, *most, LEAST_OWN) {
                self.own_dropped += 1;
                return None;
            }
            outgoing.room = link.own.hold(outgoing.room.bytes());
        }
        if !outgoing.room.is_held() && link.outbox.queued() >= MAX_OWN_QUEUED {
            self.own_dropped += 1;
            return None;
        }
        Some(outgoing)
    }

    /// Queues an admitted chunk.
    pub(super) fn push(&mut self, port: PortId, outgoing: ChunkToSend) {
        if let Some(link) = self.links.get_mut(&port) {
            link.outbox.push(outgoing);
            self.touched.insert(port);
        }
    }

    /// Messages of this node that were dropped because too many waited.
    pub(crate) fn own_dropped(&self) -> u64 {
        self.own_dropped
    }

    /// Ports that may have got room since the last call.
    pub(crate) fn take_gained(&mut self) -> BTreeSet<PortId> {
        core::mem::take(&mut self.gained)
    }

    /// Returns the chunks that the hop of `port` carries. They share the hop's memory.
    pub(crate) fn carried(&self, port: PortId) -> Vec<(Carried, ChunkToSend)> {
        let carrying = self
            .links
            .get(&port)
            .into_iter()
            .flat_map(|link| link.outbox.carrying());
        carrying
            .map(|(tag, outgoing)| (Carried { port, tag: *tag }, outgoing.clone()))
            .collect()
    }

    /// Counts a chunk that a hop continues to carry in `room` from now on, and drops its room in the buffer.
    pub(crate) fn recount(&mut self, carried: Carried, room: Room) {
        let link = self.links.get_mut(&carried.port);
        if let Some(outgoing) = link.and_then(|link| link.outbox.carried_mut(carried.tag)) {
            outgoing.room = room;
        }
    }

    /// Ports whose neighbour is responsive but has accepted no chunk for `patience` although chunks
    /// wait for it: back-pressure that blocks the head of a queue [MFTP §3.4.3].
    pub(crate) fn held_back(&self, now: Time, patience: Duration) -> Vec<PortId> {
        let held =
            |link: &Link| link.outbox.has_sendable() && now.since(link.last_progress) >= patience;
        self.links
            .iter()
            .filter(|(_, link)| held(link))
            .map(|(port, _)| *port)
            .collect()
    }

    /// Informs the hops of room that was dropped since the last call.
    pub(super) fn take_back_room(&mut self, now: Time) {
        if self.buffer.take_back() {
            self.offer_room(now);
        }
    }

    pub(super) fn offer_room(&mut self, now: Time) {
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
            self.buffer.with(&link.share, has_share, |buffer| {
                link.hop.room_released(now, buffer)
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
    pub(super) fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.requests.pop_front()
    }

    /// Takes what hops report.
    pub(super) fn collect(&mut self, now: Time) -> Collected {
        let mut collected = Collected::default();
        for port in self.touched.iter().copied().collect::<Vec<_>>() {
            let Some(link) = self.links.get_mut(&port) else {
                continue;
            };
            link.feed(now, &mut self.next_tag);
            let was = link.neighbour;
            while let Some(event) = link.hop.poll_event() {
                match event {
                    HopEvent::SetEcn { capable } => {
                        let request = PortRequest::SetEcn { port, capable };
                        self.requests.push_back(request);
                    }
                    HopEvent::Impostor => {
                        link.log("a caller could not prove its name");
                        if link.info.origin.is_caller() {
                            self.requests.push_back(PortRequest::Close(port));
                        }
                    }
                    event => {
                        let gone = link.note(now, port, event, &mut self.events);
                        collected.gone.extend(gone);
                    }
                }
            }
            let forgotten = link.outbox.take_forgotten().into_iter();
            collected
                .forgotten
                .extend(forgotten.map(|flow| (port, flow)));
            link.feed(now, &mut self.next_tag);
            if link.has_room() {
                self.gained.insert(port);
            }
            let is = link.neighbour;
            if is != was {
                self.note_neighbour(port, was, is);
                is.inspect(|name| self.note_proven(port, *name));
            }
        }
        for event in &self.events {
            use LinkEvent::{Responsive, Unresponsive, Up};
            collected.has_changed |= matches!(event, Up { .. } | Unresponsive(_) | Responsive(_));
            if let Unresponsive(port) = event {
                collected.silent.push(*port);
            }
        }
        if collected.has_changed {
            self.note_restarts();
            self.note_moves(now);
        }
        collected
    }

    /// Appends the next frames, as
    /// [`Machine::poll_transmit`](whimbrel_core::Machine::poll_transmit) does.
    pub(super) fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
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

    /// Returns the earliest deadline of any hop, as of the last [`Neighbours::poll_transmit`].
    pub(super) fn poll_timeout(&self) -> Option<Deadline> {
        self.timers.next().map(|(at, port)| {
            let deadline = self.at(*port).and_then(|link| link.hop.poll_timeout());
            Deadline::new(at, deadline.map_or("hop", |deadline| deadline.reason))
        })
    }

    /// Removes what a closed port has here but its hop.
    pub(super) fn remove(&mut self, port: PortId) -> Option<Link> {
        let link = self.links.remove(&port)?;
        if let PortOrigin::Configured(number) = link.info.origin
            && self.by_link.get(&number) == Some(&port)
        {
            self.by_link.remove(&number);
        }
        if link.neighbour.is_some() {
            link.log("neighbour is down: its port is closed");
        }
        if link.info.origin.is_caller() {
            self.departed.add_counters(&link.hop.stats());
        }
        self.note_neighbour(port, link.neighbour, None);
        self.timers.cancel(&port);
        self.short_of_room.remove(&port);
        self.gained.remove(&port);
        self.touched.remove(&port);
        Some(link)
    }

    /// Ends the hop of a closed port. Returns the chunks that were not delivered.
    pub(super) fn end(&mut self, now: Time, mut link: Link) -> Vec<ChunkToSend> {
        link.hop.close(now);
        self.offer_room(now);
        link.outbox.take_all()
    }

    /// Returns the ports whose neighbours are to be told again.
    pub(crate) fn take_due_renewals(&mut self, now: Time) -> BTreeSet<PortId> {
        let due = self.links.iter_mut().filter(|(_, it)| now >= it.renew_at);
        let due = due.map(|(port, link)| {
            link.renew_at = now + link.renewal();
            *port
        });
        due.collect()
    }

    /// Returns the bytes of a flow from `from` that may wait for the neighbour on a port.
    pub(super) fn allowance(&self, link: &Link, flow: &Flow, from: Option<PortId>) -> u64 {
        let rate = link.hop.delivery_rate().unwrap_or(UNMEASURED);
        self.allowance_at(rate, link, flow, from)
    }

    /// The same if the flow leaves at `rate` bytes per second.
    pub(super) fn allowance_at(
        &self,
        rate: u64,
        link: &Link,
        flow: &Flow,
        from: Option<PortId>,
    ) -> u64 {
        let half = (self.buffer.capacity() / 2).max(1) as u128;
        let free = self.buffer.capacity().saturating_sub(self.buffer.used()) as u128;
        let from = from.and_then(|from| self.at(from));
        let time = MAX_WAIT + link.round_trip() * 2 + from.map_or(Duration::ZERO, Link::round_trip);
        let bytes = u128::from(rate) * time.as_millis() / 1_000 * free.min(half) / half;
        let part = u64::try_from(bytes).unwrap_or(u64::MAX) / link.outbox.flows().max(1) as u64;
        // The smaller of what the next hop lets in and what fits here.
        link.outbox
            .credit_of(flow)
            .map_or(part, |credit| credit.min(part))
    }

    /// Returns the rate of the fastest link to the neighbour on `port`, in bytes per second, as far as
    /// it is measured.
    pub(crate) fn rate_to(&self, port: PortId) -> Option<u64> {
        let rates = self.to_same(port);
        let rates = rates.filter_map(|(_, it)| it.hop.delivery_rate());
        rates.max()
    }

    /// Takes the chunks that the neighbour on `port` has taken a moment ago from a request: it may have crossed
    /// them, or waited on its way.
    pub(crate) fn subtract_taken(
        &self,
        now: Time,
        port: PortId,
        by: &AskedBy,
        request: &mut Request,
    ) {
        for (_, link) in self.to_same(port).filter(|(_, link)| link.is_up()) {
            link.taken.subtract_from(now, &by.client, by.id, request);
        }
    }

    /// Returns the links to the neighbour on `port`. There are two if each end calls the other: what
    /// it asks for by one goes to it by either.
    pub(super) fn to_same(&self, port: PortId) -> impl Iterator<Item = (PortId, &Link)> {
        let neighbour = self.links.get(&port).and_then(|link| link.neighbour);
        let others = neighbour.into_iter().flat_map(|it| {
            let ports = self.by_neighbour.get(&it);
            ports.into_iter().flatten().copied()
        });
        let others = others.filter(move |it| *it != port);
        let ports = core::iter::once(port).chain(others);
        ports.filter_map(|port| Some((port, self.links.get(&port)?)))
    }

    /// A router that connects from an ephemeral port returns on another one after a restart: if a
    /// port is silent while its name appears on another one with another incarnation, it has
    /// restarted. While the first one is responsive, the other one is ignored: both may run with the
    /// same key.
    fn note_restarts(&mut self) {
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
    fn note_moves(&mut self, now: Time) {
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
