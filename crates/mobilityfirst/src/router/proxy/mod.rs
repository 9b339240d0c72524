//! The in-network transport proxy: stores chunks that cannot be forwarded [MFTP §3.3].

mod delegation;
mod limited;
mod lingering;
mod on_disk;
mod openings;
mod release;

use std::collections::BTreeSet;

use whimbrel_core::{Guid, PortId, SeededRng, Time, WallClock};
use whimbrel_link::Room;

use super::Timer;
use super::config::{ProxyPolicy, RouterConfig};
use super::effects::{Action, Effects};
use super::notices::{News, Notices, notice_key, request_key};
use super::pauses::Pauses;
use super::shelf::Shelf;
use super::store::copies::{CopyKey, CopyTerms};
use super::store::{ENTRY_BYTES, ProxyStore, StoreId, Stored};
use crate::chunk::{Chunk, TakenBack};
use crate::handed::HandedOver;
use crate::links::{Carried, ChunkToSend, Grant, Links, RENEWAL};
use crate::next_hops::{Branch, Divisions, NextHops, Spread};
use crate::outbox::is_passing_message;
use crate::wire::{Data, DropReason, Flow, NetworkHeader, Notice, Request, ServiceId};
use limited::Limited;
use lingering::Lingering;
use openings::Openings;

/// The storage, and the state of its chunks' destinations.
pub(super) struct Proxy {
    policy: ProxyPolicy,
    pauses: Pauses,
    store: ProxyStore,
    shelf: Shelf,
    wall: WallClock,
    // Chunks that are forwarded as soon as they have been read from the disk.
    to_forward: BTreeSet<StoreId>,
    // When the disk is asked again, after it could not read.
    reads_again: Time,
    pub(super) openings: Openings,
    // Destinations of stored chunks.
    waiting: BTreeSet<Guid>,
    pub(super) limited: Limited,
    lingering: Lingering,
    notices: Notices,
}

impl Proxy {
    pub(super) fn new(config: &RouterConfig, rng: &mut SeededRng) -> Proxy {
        let policy = config.proxy;
        Proxy {
            policy,
            pauses: Pauses::new(policy.storage_timer, SeededRng::new(rng.next_word())),
            store: ProxyStore::new(config.store, rng),
            shelf: Shelf::default(),
            wall: config.wall,
            to_forward: BTreeSet::new(),
            reads_again: Time::ZERO,
            openings: Openings::default(),
            waiting: BTreeSet::new(),
            limited: Limited::default(),
            lingering: Lingering::default(),
            notices: Notices::default(),
        }
    }

    pub(super) fn store(&self) -> &ProxyStore {
        &self.store
    }

    #[cfg(test)]
    pub(super) fn set_total(&mut self, total: u64) {
        self.store.set_total(total);
    }

    /// Takes a copy of a proven chunk.
    pub(super) fn keep_copy(&mut self, chunk: &Chunk, data: &Data, keeping: CopyTerms) -> bool {
        self.store.keep_copy(chunk, data, keeping)
    }

    /// Returns a copy and its room.
    pub(super) fn copy(&mut self, key: &CopyKey, asked: &NetworkHeader) -> Option<(&Chunk, Room)> {
        self.store.copy(key, asked)
    }

    /// Destinations of stored chunks.
    pub(super) fn waiting(&self) -> &BTreeSet<Guid> {
        &self.waiting
    }

    /// Counts a dropped chunk and queues the notice to its source.
    pub(super) fn note_drop(&mut self, chunk: &Chunk, reason: DropReason, effects: &mut Effects) {
        self.notices.note_drop(chunk, reason, effects);
    }

    /// Sends the notices of the router `from`. Returns true if there were any.
    pub(super) fn send_notices(&mut self, from: Guid, effects: &mut Effects) -> bool {
        let mut told = false;
        while let Some(message) = self.notices.next(from, &self.store) {
            effects.push(Action::Say(message));
            told = true;
        }
        told
    }

    /// Handles a chunk that cannot be forwarded: stores it if it is delay tolerant, else drops it.
    pub(super) fn store_or_drop(&mut self, now: Time, it: ChunkToSend, effects: &mut Effects) {
        if it.chunk.header.service.has(ServiceId::DELAY_TOLERANT) {
            self.store_chunk(now, it, effects);
        } else {
            self.note_drop(&it.chunk.for_storage(), DropReason::Unreachable, effects);
        }
    }

    /// Stores a chunk; clears its address, which forces a fresh lookup.
    fn store_chunk(
        &mut self,
        now: Time,
        outgoing: ChunkToSend,
        effects: &mut Effects,
    ) -> Option<StoreId> {
        let (chunk, origin) = (outgoing.chunk.for_storage(), outgoing.origin);
        if self.store.is_stored(&chunk) && !chunk.header.extensions.members.is_empty() {
            // For other members than what is stored: each has its own then.
            for member in chunk.header.extensions.members.members() {
                let copy = ChunkToSend {
                    chunk: chunk.clone(),
                    room: outgoing.room.clone(),
                    origin,
                    ..outgoing
                };
                effects.push(Action::Forward(copy.for_member(member)));
            }
            return None;
        }
        let (destination, notice) = (chunk.header.destination, notice_key(&chunk, News::Stored));
        let request = match notice {
            Some(_) => None,
            None => request_key(&chunk, None),
        };
        match self.store.store(now, origin, chunk, &outgoing.room) {
            Stored::Held(id, evicted) => {
                effects.counters.chunks_stored += 1;
                // One that returns ends when it would have ended the first time.
                if let Some(until) = outgoing.until {
                    self.store.end_by(id, until);
                }
                for (id, chunk) in evicted {
                    self.note_evicted(id, &chunk, effects);
                }
                for chunk in self.store.take_lost_copies() {
                    self.note_drop(&chunk, DropReason::Evicted, effects);
                }
                if self.shelf.is_there() {
                    effects.push(Action::Write(id));
                }
                // With a disk, its source is told once it is there.
                if !self.shelf.is_there()
                    && let Some((key, index)) = notice
                {
                    self.notices.note(key, index, effects);
                }
                // Who asked learns that the source is away, rather than that nothing comes.
                if let Some(key) = request {
                    self.notices.note_request(key);
                }
                self.wait_for(now, destination, effects);
                Some(id)
            }
            Stored::Duplicate => {
                effects.drop("stored-already");
                None
            }
            Stored::FlowFull(chunk) => {
                self.note_drop(&chunk, DropReason::FlowLimit, effects);
                None
            }
        }
    }

    fn note_evicted(&mut self, id: StoreId, chunk: &Chunk, effects: &mut Effects) {
        self.recall(id, effects);
        self.note_drop(chunk, DropReason::Evicted, effects);
    }

    /// Watches the destination's name and sets its storage timer.
    fn wait_for(&mut self, now: Time, destination: Guid, effects: &mut Effects) {
        if let Some(expiry) = self.store.next_expiry() {
            effects.push(Action::SetEarlier(Timer::Lifetime, expiry));
        }
        if self.waiting.insert(destination) && self.policy.proactive {
            effects.push(Action::Watch(destination));
            let again = now + self.pauses.begin(now, destination, self.waiting.len());
            effects.push(Action::Set(Timer::Storage(destination), again));
        }
    }

    /// The destination was found: if it goes away again, it is looked up as soon as at first.
    pub(super) fn note_found(&mut self, destination: &Guid) {
        self.pauses.forget(destination);
    }

    fn stop_waiting(&mut self, destination: Guid, effects: &mut Effects) {
        self.openings.close(destination);
        if self.waiting.remove(&destination) {
            effects.push(Action::Unwatch(destination));
            effects.push(Action::Cancel(Timer::Storage(destination)));
        }
    }

    /// Returns true if chunks for this destination are stored and may be retried without a Push.
    pub(super) fn may_retry(&self, destination: &Guid) -> bool {
        self.policy.proactive && !self.store.has_none_for(destination)
    }

    /// Begins a retry for a destination: sets the timer for the next one. Returns false if no chunk
    /// is stored for it.
    pub(super) fn begin_retry(
        &mut self,
        now: Time,
        destination: Guid,
        effects: &mut Effects,
    ) -> bool {
        if self.store.has_none_for(&destination) {
            self.stop_waiting(destination, effects);
            return false;
        }
        if self.policy.proactive {
            let again = now + self.pauses.begin(now, destination, self.waiting.len());
            effects.push(Action::Set(Timer::Storage(destination), again));
        }
        self.policy.proactive
    }

    /// Returns when the oldest chunk for a destination was stored.
    pub(super) fn stored_since(&self, destination: &Guid) -> Option<Time> {
        let oldest = self.store.oldest_for(destination)?;
        Some(self.store.get(oldest)?.stored_at)
    }

    /// Takes the stored chunks for `client` from its request, because this router sends them without
    /// being asked: "the source utilizes this in-network copy" [MFTP §3.3] needs no source then. A
    /// request shows that the client is back, so it is looked up at once unless that is known.
    pub(super) fn subtract_stored(
        &mut self,
        now: Time,
        client: &Guid,
        request: &mut Request,
        effects: &mut Effects,
    ) {
        if !self.may_retry(client) {
            return;
        }
        let stored: Vec<(u8, u32)> = self.store.data_for(*client, request.content).collect();
        if !stored.is_empty() && !self.openings.is_open(client) {
            effects.push(Action::SetEarlier(Timer::Storage(*client), now));
        }
        request.subtract(stored);
    }

    /// Returns true if a chunk may be stored, and none is evicted for it.
    pub(super) fn takes(&self, chunk: &Chunk) -> bool {
        let size = chunk.size() as u64 + ENTRY_BYTES;
        chunk.header.service.has(ServiceId::DELAY_TOLERANT)
            && self.policy.proactive
            && self.store.has_room_for(size)
            && self.store.flow_bytes(&chunk.flow()) + size <= self.store.limits().per_flow
    }

    /// The destination of a chunk is away: its flow goes on, into the storage, but takes nothing
    /// from others.
    pub(super) fn yield_to_others(
        &mut self,
        now: Time,
        outgoing: &ChunkToSend,
        effects: &mut Effects,
    ) {
        let Some(from) = outgoing.from else { return };
        let flow = outgoing.chunk.flow();
        if outgoing.chunk.data().is_some() && self.limited.limit(from, flow, Grant::Spare) {
            effects.push(Action::Grant(from, flow, Grant::Spare));
            effects.push(Action::SetEarlier(Timer::Holds, now + RENEWAL));
        }
    }

    /// Frees the flows that are stored no longer, however that ended. Returns the others: one among many
    /// brings a chunk less often than it has to be told.
    pub(super) fn review_limited(&mut self, effects: &mut Effects) -> Vec<(PortId, Flow, Grant)> {
        let is_over = |flow: &Flow, grant: Grant| {
            let is_found = || self.openings.is_open(&flow.destination);
            self.store.flow_bytes(flow) == 0 || grant == Grant::Spare && is_found()
        };
        for (port, flow) in self.limited.take_over(is_over) {
            effects.push(Action::GoOn(port, flow));
        }
        self.limited.iter().collect()
    }

    /// Frees a flow of which nothing is stored.
    fn go_on(&mut self, flow: &Flow, effects: &mut Effects) {
        if self.store.flow_bytes(flow) == 0 {
            for port in self.limited.take(flow) {
                effects.push(Action::GoOn(port, *flow));
            }
        }
    }

    /// No receiver of a flow wants a content any more: its stored chunks are removed.
    pub(super) fn purge(&mut self, stop: &TakenBack, effects: &mut Effects) {
        let flows = stop.flows();
        let stored = flows.iter().flat_map(|flow| self.store.ids_of(flow));
        for id in stored.collect::<Vec<StoreId>>() {
            let stored = self.store.get(id);
            if stored.is_some_and(|it| stop.is_about(it.header, it.content)) {
                self.recall(id, effects);
                self.discard(id);
                effects.counters.chunks_unwanted += 1;
            }
        }
        effects.push(Action::StopIfNoneWaits(stop.destination));
    }

    /// Forwards the chunks stored for a destination, each once: a chunk that cannot be forwarded
    /// returns to the storage.
    pub(super) fn release_to_forward(
        &mut self,
        now: Time,
        destination: Guid,
        effects: &mut Effects,
    ) {
        for id in self.store.ids_for(&destination) {
            if let Some(outgoing) = self.take_to_send(now, id) {
                effects.push(Action::Forward(outgoing));
            }
        }
    }

    /// "Otherwise it will be kept in storage."
    pub(super) fn keep_stored(&mut self, now: Time, destination: Guid, effects: &mut Effects) {
        if self.store.has_none_for(&destination) {
            return self.stop_waiting(destination, effects);
        }
        self.openings.close(destination);
        if self.policy.proactive {
            // Not later than before: what keeps happening must not put off the look-up.
            let again = now + self.pauses.current(now, &destination, self.waiting.len());
            effects.push(Action::SetEarlier(Timer::Storage(destination), again));
        }
    }

    /// Drops a stored chunk, whether its bytes are in memory or not; its flow has room again.
    fn discard(&mut self, id: StoreId) {
        if let Some(flow) = self.store.discard(id) {
            self.note_room(&flow);
        }
    }

    /// Removes a chunk from the storage; its flow has room again. `None` while its bytes are on a disk.
    fn take(&mut self, id: StoreId) -> Option<(Chunk, Room)> {
        let (chunk, room) = self.store.take(id)?;
        self.note_room(&chunk.flow());
        Some((chunk, room))
    }

    /// Removes a chunk that is forwarded: it counts in the storage until the next hop has it. One that is
    /// on the disk only is read first.
    fn take_to_send(&mut self, now: Time, id: StoreId) -> Option<ChunkToSend> {
        let stored = self.store.get(id)?;
        if !stored.is_in_memory {
            self.to_forward.insert(id);
            return None;
        }
        let (until, was_stored) = (stored.expires, now.since(stored.stored_at));
        let origin = self.store.owner(id);
        let (mut chunk, room) = self.take(id)?;
        chunk.header.extensions.spend_lifetime(was_stored);
        Some(ChunkToSend {
            chunk,
            room,
            from: None,
            origin,
            order: None,
            until: Some(until),
        })
    }

    fn note_room(&mut self, flow: &Flow) {
        if self.store.flow_bytes(flow) * 2 <= self.store.limits().per_flow {
            self.notices.note_room(flow);
        }
    }

    /// A neighbour responds again: its hop continues with the chunks that it carries, so the stored
    /// copies are not needed.
    pub(super) fn resume_lingering(&mut self, port: PortId) {
        for id in self.lingering.take_on(port) {
            self.discard(id);
        }
    }

    /// Handles a hop's delivery of a chunk of which a copy may be stored.
    pub(super) fn forget_lingering(&mut self, carried: Carried) {
        if let Some(id) = self.lingering.take(&carried) {
            self.discard(id);
        }
    }

    /// A port and its hop are closed: the copies are the only chunks left.
    pub(super) fn forget_lingering_on(&mut self, port: PortId) {
        self.lingering.take_on(port);
    }

    /// A stored chunk was dropped: withdraws it from the unresponsive neighbour's hop that carries
    /// it.
    fn recall(&mut self, id: StoreId, effects: &mut Effects) {
        if let Some(carried) = self.lingering.take_carried(id) {
            effects.push(Action::Withdraw(carried));
        }
    }

    /// A neighbour has become unresponsive ("the link layer is not able to deliver the chunk
    /// despite several attempts"): stores copies of the chunks that its hop carries, and moves
    /// queued ones to the storage. If ways are learned, messages are taken back for another way: an echo
    /// that arrives when the link returns has no use.
    pub(super) fn store_what_waits_for(
        &mut self,
        now: Time,
        port: PortId,
        takes_back: bool,
        links: &mut Links,
        effects: &mut Effects,
    ) {
        for (carried, outgoing) in links.neighbours.carried(port) {
            if takes_back && is_passing_message(&outgoing.chunk) {
                let taken = links.withdraw(now, carried).map(Action::Forward);
                taken.into_iter().for_each(|it| effects.push(it));
            } else if outgoing.chunk.header.service.has(ServiceId::DELAY_TOLERANT)
                && let Some(id) = self.store_chunk(now, outgoing, effects)
            {
                self.lingering.insert(carried, id);
                links.neighbours.recount(carried, self.store.room_of(id));
            }
        }
        for outgoing in links.take_waiting(port) {
            effects.push(Action::Forward(outgoing));
        }
    }

    /// A host has left the neighbour's port for another router: the chunks on their way to it are
    /// forwarded anew. Copies that are stored already leave the storage as soon as it is bound. Returns
    /// the ports that they had come from.
    pub(super) fn send_after(
        &mut self,
        now: Time,
        host: Guid,
        port: PortId,
        links: &mut Links,
        effects: &mut Effects,
    ) -> BTreeSet<PortId> {
        let mut sources = BTreeSet::new();
        // A divided flow has its own order, and goes on when the port falls silent. A message for the
        // neighbour is for nobody elsewhere.
        let follows = |outgoing: &ChunkToSend| {
            let header = &outgoing.chunk.header;
            header.receiver() == host
                && outgoing.order.is_none()
                && !header.service.has(ServiceId::NEIGHBOUR)
        };
        for (carried, outgoing) in links.neighbours.carried(port) {
            if follows(&outgoing)
                && !self.lingering.is_stored(&carried)
                && let Some(outgoing) = links.withdraw(now, carried)
            {
                sources.extend(outgoing.from);
                effects.push(Action::Forward(outgoing));
            }
        }
        for outgoing in links.take_waiting(port) {
            if follows(&outgoing) {
                sources.extend(outgoing.from);
                effects.push(Action::Forward(outgoing));
            } else if let Err(outgoing) = links.enqueue(port, outgoing) {
                effects.push(Action::Forward(outgoing));
            }
        }
        sources
    }

    /// Relieves head-of-line blocking: moves chunks that a neighbour's back-pressure holds back to
    /// the storage.
    pub(super) fn relieve_held_back(
        &mut self,
        now: Time,
        links: &mut Links,
        effects: &mut Effects,
    ) {
        let next = now + self.policy.held_back_patience;
        effects.push(Action::Set(Timer::HeldBack, next));
        let is_half_used = |links: &Links| {
            let (used, capacity) = links.buffer();
            used * 2 >= capacity
        };
        self.store_offered(now, links, effects);
        if is_half_used(links) {
            self.relieve_stuck(now, links, effects);
        }
        if !is_half_used(links) {
            return;
        }
        for port in links
            .neighbours
            .held_back(now, self.policy.held_back_patience)
        {
            for outgoing in links.take_waiting(port) {
                if outgoing.chunk.header.service.has(ServiceId::DELAY_TOLERANT) {
                    effects.counters.held_back += 1;
                    self.store_chunk(now, outgoing, effects);
                } else if let Err(outgoing) = links.enqueue(port, outgoing) {
                    self.note_drop(&outgoing.chunk, DropReason::Unreachable, effects);
                }
            }
        }
    }

    /// Moves what hosts are offered and hold back to the storage, as far as that has room: their senders need not
    /// stay until a program decides.
    fn store_offered(&mut self, now: Time, links: &mut Links, effects: &mut Effects) {
        let before = now - self.policy.held_back_patience;
        for (port, outgoing) in links.take_stuck_offers(before) {
            if self.takes(&outgoing.chunk) {
                effects.counters.held_back += 1;
                self.store_chunk(now, outgoing, effects);
            } else if let Err(outgoing) = links.put_back_offer(port, outgoing) {
                self.note_drop(&outgoing.chunk, DropReason::Unreachable, effects);
            }
        }
    }

    /// Frees the half of the buffer that flows which their next hops hold back have filled. Their
    /// chunks move to the storage; where that is full, the flow with the most bytes loses a chunk
    /// first.
    ///
    /// Nothing of these flows is sent as long as the hold lasts, so that the room which they use
    /// would be lost to the flows that can go on.
    fn relieve_stuck(&mut self, now: Time, links: &mut Links, effects: &mut Effects) {
        let before = now - self.policy.held_back_patience;
        for outgoing in links.take_stuck(before) {
            let chunk = &outgoing.chunk;
            if !chunk.header.service.has(ServiceId::DELAY_TOLERANT) {
                self.note_drop(chunk, DropReason::Unreachable, effects);
            } else if self.make_room(chunk, effects) {
                effects.counters.held_back += 1;
                self.store_chunk(now, outgoing, effects);
            } else {
                self.note_drop(chunk, DropReason::Evicted, effects);
            }
        }
    }

    /// Evicts chunks of flows with more bytes in the storage than the chunk's flow would have.
    /// Returns false if the chunk does not fit after that.
    fn make_room(&mut self, chunk: &Chunk, effects: &mut Effects) -> bool {
        let size = chunk.size() as u64 + ENTRY_BYTES;
        let of_flow = self.store.flow_bytes(&chunk.flow()) + size;
        while !self.store.has_room_for(size) {
            let Some((id, evicted)) = self.store.evict_from_largest(of_flow) else {
                return false;
            };
            self.note_evicted(id, &evicted, effects);
        }
        true
    }

    pub(super) fn drop_expired(&mut self, now: Time, effects: &mut Effects) {
        while let Some((id, chunk)) = self.store.take_expired(now) {
            self.recall(id, effects);
            self.note_room(&chunk.flow());
            self.go_on(&chunk.flow(), effects);
            self.note_drop(&chunk, DropReason::Lifetime, effects);
        }
        // Its producer has asked for no longer.
        while self.store.drop_expired_copy(now) {
            effects.counters.kept_freed += 1;
        }
        if let Some(expiry) = self.store.next_expiry() {
            effects.push(Action::Set(Timer::Lifetime, expiry));
        }
    }

    /// Handles a source's request to retry its stored chunks. Only the flow's own source may send
    /// it.
    pub(super) fn handle_push(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        notice: &Notice,
        effects: &mut Effects,
    ) {
        if header.source != notice.source {
            return effects.drop("forged-push");
        }
        let flows = Flow::both(notice.source, notice.destination);
        let stored = flows.iter().flat_map(|flow| self.store.ids_of(flow));
        for id in stored.collect::<Vec<StoreId>>() {
            let wanted = self.store.get(id).is_some_and(|it| {
                it.content == Some(notice.content) && notice.chunks.contains(it.index)
            });
            if !wanted || self.lingering.is_carried(id) {
                continue;
            }
            if let Some(outgoing) = self.take_to_send(now, id) {
                effects.counters.chunks_pushed += 1;
                effects.push(Action::Forward(outgoing));
            }
        }
        flows.iter().for_each(|flow| self.go_on(flow, effects));
        // Only after they have been forwarded: they may return.
        effects.push(Action::StopIfNoneWaits(notice.destination));
    }

    /// Forgets a destination without stored chunks.
    pub(super) fn stop_if_none_waits(&mut self, destination: Guid, effects: &mut Effects) {
        if self.store.has_none_for(&destination) {
            self.stop_waiting(destination, effects);
        }
    }
}
