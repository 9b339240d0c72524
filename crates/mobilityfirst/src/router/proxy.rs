//! The in-network transport proxy: what happens to chunks that cannot go on [MFTP §3.3].

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId, SeededRng, Time};
use whimbrel_gnrs::{Answer, Lookup};

use super::notices::{Notices, notice_key};
use super::store::{ENTRY_BYTES, ProxyStore, StoreId, StoreLimits, Stored};
use super::{Router, Timer};
use crate::charge::Pool;
use crate::chunk::{Chunk, Flow};
use crate::links::{Carried, Outgoing};
use crate::next_hops::{Branch, NextHops, Spread};
use crate::room::Room;
use crate::wire::{DropReason, NetworkHeader, Notice, ServiceId};

/// The storage, and what is known of the destinations that chunks in it wait for.
pub(super) struct Proxy {
    store: ProxyStore,
    // Chunks that were stored and are on their way again: they count to the storage until the next
    // hop has them.
    released: Pool,
    // Destinations with stored chunks whose way is open: their chunks go as their hops have room.
    open: BTreeMap<Guid, NextHops>,
    // Destinations that chunks are stored for.
    waiting: BTreeSet<Guid>,
    // Stored copies of chunks that a silent neighbour's hop still carries, so that what the
    // neighbour has of them already is not sent again when it is back.
    lingering: BTreeMap<Carried, StoreId>,
    lingering_ids: BTreeMap<StoreId, Carried>,
    pub(super) notices: Notices,
}

impl Proxy {
    pub(super) fn new(limits: StoreLimits, rng: &mut SeededRng) -> Proxy {
        Proxy {
            store: ProxyStore::new(limits, rng),
            released: Pool::default(),
            open: BTreeMap::new(),
            waiting: BTreeSet::new(),
            lingering: BTreeMap::new(),
            lingering_ids: BTreeMap::new(),
            notices: Notices::default(),
        }
    }

    pub(super) fn store(&self) -> &ProxyStore {
        &self.store
    }

    /// Bytes of chunks that were stored and are on their way again.
    pub(super) fn released_bytes(&self) -> u64 {
        self.released.bytes()
    }

    /// A chunk that was stored goes on its way.
    fn released(&self, chunk: Chunk) -> Outgoing {
        let charge = self.released.charge(chunk.size() as u64 + ENTRY_BYTES);
        Outgoing {
            chunk,
            room: Room::default(),
            charge,
        }
    }

    pub(super) fn waiting_destinations(&self) -> usize {
        self.waiting.len()
    }

    /// A hop has delivered a chunk of which a copy is stored.
    pub(super) fn forget_lingering(&mut self, carried: Carried) {
        if let Some(id) = self.lingering.remove(&carried) {
            self.lingering_ids.remove(&id);
            self.take(id);
        }
    }

    /// Takes a chunk out of the storage, and notes if its flow has room again.
    pub(super) fn take(&mut self, id: StoreId) -> Option<Chunk> {
        let chunk = self.store.take(id)?;
        self.note_room(&chunk.flow());
        Some(chunk)
    }

    fn note_room(&mut self, flow: &Flow) {
        if self.store.flow_bytes(flow) * 2 <= self.store.limits().per_flow {
            self.notices.note_room(flow);
        }
    }

    /// A port is gone, and its hop: the copies are all there is now.
    pub(super) fn forget_lingering_on(&mut self, port: PortId) {
        for carried in self.lingering_on(port) {
            if let Some(id) = self.lingering.remove(&carried) {
                self.lingering_ids.remove(&id);
            }
        }
    }

    fn lingering_on(&self, port: PortId) -> Vec<Carried> {
        let all = Carried { port, tag: 0 }..=Carried {
            port,
            tag: u64::MAX,
        };
        self.lingering
            .range(all)
            .map(|(carried, _)| *carried)
            .collect()
    }
}

impl Router {
    /// Pushes a chunk up to the proxy.
    pub(super) fn store_chunk(&mut self, now: Time, mut chunk: Chunk) -> Option<StoreId> {
        // Its address is cleared, which forces a fresh look-up.
        chunk.header.destination_address = Guid::NONE;
        chunk.header.extensions.via = None;
        let (destination, notice) = (chunk.header.destination, notice_key(&chunk, None));
        match self
            .proxy
            .store
            .store(now, chunk, self.proxy.released.bytes())
        {
            Stored::Held(id, evicted) => {
                self.counters.chunks_stored += 1;
                for (id, chunk) in evicted {
                    self.recall(now, id);
                    self.note_drop(&chunk, DropReason::Evicted);
                }
                if let Some((key, index)) = notice {
                    self.note(key, index);
                }
                self.wait_for(now, destination);
                Some(id)
            }
            Stored::Duplicate => {
                self.counters.drop("stored-already");
                None
            }
            Stored::FlowFull(chunk) => {
                self.note_drop(&chunk, DropReason::FlowLimit);
                None
            }
        }
    }

    /// Watches the destination's name and sets its storage timer.
    fn wait_for(&mut self, now: Time, destination: Guid) {
        if let Some(expiry) = self.proxy.store.next_expiry() {
            self.timers.set_earlier(Timer::Lifetime, expiry);
        }
        if self.proxy.waiting.insert(destination) && self.config.proxy.proactive {
            if self.own_names.is_none() {
                // Without room for another watch, the storage timer alone has to do.
                let _ = self.resolver.watch(now, destination);
            }
            self.timers.set(
                Timer::Storage(destination),
                now + self.config.proxy.storage_timer,
            );
        }
    }

    fn stop_waiting(&mut self, now: Time, destination: Guid) {
        self.proxy.open.remove(&destination);
        if self.proxy.waiting.remove(&destination) {
            self.resolver.unwatch(now, destination);
            self.timers.cancel(&Timer::Storage(destination));
        }
    }

    /// The storage timer of a destination has expired, or there is news of it: "a GNRS look-up to
    /// bind an updated NA" - or none, if it is attached here.
    pub(super) fn retry_destination(&mut self, now: Time, destination: Guid) {
        if self.proxy.store.has_none_for(&destination) {
            return self.stop_waiting(now, destination);
        }
        if !self.config.proxy.proactive {
            return;
        }
        self.timers.set(
            Timer::Storage(destination),
            now + self.config.proxy.storage_timer,
        );
        let here = self.attachments.hops_to(&destination, &self.links);
        if !here.is_empty() {
            if here.best().is_some() {
                let here = here.at_address(self.config.guid);
                self.proxy.open.insert(destination, here);
            }
            return;
        }
        self.counters.storage_lookups += 1;
        self.resolver.forget(&destination);
        if let Lookup::Resolved(answer) = self.look_up(now, destination) {
            self.bind_stored(now, destination, &answer);
        }
    }

    /// A neighbour answers (again): whatever waits may have an open way now.
    pub(super) fn retry_waiting(&mut self, now: Time) {
        let destinations: Vec<Guid> = self.proxy.waiting.iter().copied().collect();
        for destination in destinations {
            self.retry_destination(now, destination);
        }
    }

    /// The name service has spoken of a destination that chunks are stored for.
    pub(super) fn bind_stored(&mut self, now: Time, destination: Guid, answer: &Answer) {
        if !self.config.proxy.proactive || self.proxy.store.has_none_for(&destination) {
            return;
        }
        if self.attachments.contains(&destination) {
            return self.retry_destination(now, destination);
        }
        if let Some(hops) = self.bound_hops(answer)
            && hops.best().is_some()
        {
            self.proxy.open.insert(destination, hops);
            return;
        }
        // A stored request for content that somebody holds: it is bound as a new one is.
        let provider = self.pick_provider(answer);
        if provider.is_some_and(|provider| self.may_reach(now, provider)) {
            self.release_to_forward(now, destination);
        }
        self.keep_stored(now, destination);
    }

    /// Forwards what is stored for a destination now, each chunk once: a chunk that cannot go on
    /// comes back to the storage.
    fn release_to_forward(&mut self, now: Time, destination: Guid) {
        for id in self.proxy.store.ids_for(&destination) {
            if let Some(chunk) = self.proxy.take(id) {
                let outgoing = self.proxy.released(chunk);
                self.forward(now, outgoing);
            }
        }
    }

    /// "Otherwise it will be kept in storage."
    pub(super) fn keep_stored(&mut self, now: Time, destination: Guid) {
        if self.proxy.store.has_none_for(&destination) {
            return self.stop_waiting(now, destination);
        }
        self.proxy.open.remove(&destination);
        if self.config.proxy.proactive {
            self.timers.set(
                Timer::Storage(destination),
                now + self.config.proxy.storage_timer,
            );
        }
    }

    /// Sends stored chunks whose way is open, as far as their hops have room. True if any went.
    pub(super) fn release_stored(&mut self, now: Time) -> bool {
        let open: Vec<Guid> = self.proxy.open.keys().copied().collect();
        let mut released = false;
        for destination in open {
            while let Some(hops) = self.proxy.open.get_mut(&destination) {
                hops.refresh(&self.links);
                if hops.best().is_none() {
                    self.keep_stored(now, destination);
                    break;
                }
                let hops = hops.clone();
                if !hops.iter().any(|branch| self.links.has_room(branch.port)) {
                    break;
                }
                let Some(id) = self.proxy.store.oldest_for(&destination) else {
                    self.stop_waiting(now, destination);
                    break;
                };
                let branches = self.branches_with_room(id, hops);
                if branches.is_empty() {
                    break;
                }
                self.release_one(now, id, &branches);
                released = true;
            }
        }
        released
    }

    /// The branches that a stored chunk takes now: none while one that it is to take has no room. A
    /// divided flow goes where there is room.
    fn branches_with_room(&mut self, id: StoreId, mut hops: NextHops) -> Vec<Branch> {
        let Some((chunk, _)) = self.proxy.store.get(id) else {
            return Vec::new();
        };
        let spread = Spread::of(chunk.header.service);
        if spread == Spread::Divide {
            hops.retain(|branch| self.links.has_room(branch.port));
        }
        let (flow, size) = (chunk.flow(), chunk.size());
        let chosen = hops.select(spread, flow, size, &mut self.divisions);
        let chosen: Vec<Branch> = chosen.copied().collect();
        if chosen.iter().all(|branch| self.links.has_room(branch.port)) {
            chosen
        } else {
            Vec::new()
        }
    }

    fn release_one(&mut self, now: Time, id: StoreId, branches: &[Branch]) {
        if let Some(carried) = self.proxy.lingering_ids.remove(&id) {
            self.proxy.lingering.remove(&carried);
            if let [branch] = branches
                && branch.port == carried.port
            {
                return self.go_on_with(id, carried);
            }
            self.links.withdraw(now, carried);
        }
        let Some(chunk) = self.proxy.take(id) else {
            return;
        };
        self.counters.chunks_released += 1;
        let outgoing = self.proxy.released(chunk);
        for branch in branches {
            let mut copy = outgoing.clone();
            if let Some(address) = branch.address {
                copy.chunk.header.destination_address = address;
            }
            if let Err(copy) = self.links.enqueue(branch.port, copy) {
                self.store_chunk(now, copy.chunk);
            }
        }
    }

    /// A hop goes on with a chunk of which a copy was stored while its neighbour was silent.
    fn go_on_with(&mut self, id: StoreId, carried: Carried) {
        if let Some(chunk) = self.proxy.take(id) {
            self.links
                .charge(carried, self.proxy.released(chunk).charge);
        }
    }

    /// A neighbour is back: its hop goes on with what it carries, so the stored copies are not
    /// needed.
    pub(super) fn resume_lingering(&mut self, port: PortId) {
        for carried in self.proxy.lingering_on(port) {
            if let Some(id) = self.proxy.lingering.remove(&carried) {
                self.proxy.lingering_ids.remove(&id);
                self.go_on_with(id, carried);
            }
        }
    }

    /// A stored chunk was given up: a silent neighbour's hop that carries it gives it up as well.
    fn recall(&mut self, now: Time, id: StoreId) {
        if let Some(carried) = self.proxy.lingering_ids.remove(&id) {
            self.proxy.lingering.remove(&carried);
            self.links.withdraw(now, carried);
        }
    }

    /// A neighbour has stopped answering ("the link layer is not able to deliver the chunk despite
    /// several attempts"): what its hop carries is stored too, what waits for it is stored instead.
    pub(super) fn store_what_waits_for(&mut self, now: Time, port: PortId) {
        for (carried, outgoing) in self.links.carried(port) {
            if !outgoing.chunk.header.service.has(ServiceId::DELAY_TOLERANT) {
                continue;
            }
            if let Some(id) = self.store_chunk(now, outgoing.chunk) {
                self.proxy.lingering.insert(carried, id);
                self.proxy.lingering_ids.insert(id, carried);
                self.links.disown(carried);
            }
        }
        for outgoing in self.links.take_waiting(port) {
            self.forward(now, outgoing);
        }
    }

    /// Head-of-line blocking: chunks that a neighbour's back-pressure holds back make room for
    /// others.
    pub(super) fn relieve_held_back(&mut self, now: Time) {
        let (used, capacity) = self.links.buffer();
        if used * 2 < capacity {
            return;
        }
        for port in self
            .links
            .held_back(now, self.config.proxy.held_back_patience)
        {
            for outgoing in self.links.take_waiting(port) {
                if outgoing.chunk.header.service.has(ServiceId::DELAY_TOLERANT) {
                    self.counters.held_back += 1;
                    self.store_chunk(now, outgoing.chunk);
                } else if let Err(outgoing) = self.links.enqueue(port, outgoing) {
                    self.note_drop(&outgoing.chunk, DropReason::Unreachable);
                }
            }
        }
    }

    pub(super) fn drop_expired(&mut self, now: Time) {
        while let Some((id, chunk)) = self.proxy.store.take_expired(now) {
            self.recall(now, id);
            self.proxy.note_room(&chunk.flow());
            self.note_drop(&chunk, DropReason::Lifetime);
        }
        if let Some(expiry) = self.proxy.store.next_expiry() {
            self.timers.set(Timer::Lifetime, expiry);
        }
    }

    /// A source wants the chunks that are stored for it to be tried now. Only the flow's own source
    /// may ask.
    pub(super) fn handle_push(&mut self, now: Time, header: &NetworkHeader, notice: &Notice) {
        if header.source != notice.source {
            return self.counters.drop("forged-push");
        }
        let flow = Flow {
            source: notice.source,
            destination: notice.destination,
        };
        for id in self.proxy.store.ids_of(&flow) {
            let wanted = self
                .proxy
                .store
                .get(id)
                .and_then(|(chunk, _)| chunk.data())
                .is_some_and(|data| {
                    data.content == notice.content && notice.chunks.contains(data.index)
                });
            if !wanted || self.proxy.lingering_ids.contains_key(&id) {
                continue;
            }
            if let Some(chunk) = self.proxy.take(id) {
                self.counters.chunks_pushed += 1;
                let outgoing = self.proxy.released(chunk);
                self.forward(now, outgoing);
            }
        }
        if self.proxy.store.has_none_for(&flow.destination) {
            self.stop_waiting(now, flow.destination);
        }
    }
}
