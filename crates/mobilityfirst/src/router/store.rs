//! The in-network proxy's storage [MFTP §3.3].
//!
//! "Each (source GUID, destination GUID) pair is limited to have stored content up to a size S."
//! Beyond the total, chunks of the least recently used flow make room, of the neighbour whose chunks
//! take the most. Storing, taking and evicting
//! are O(1) (hash tables and linked lists); only the indexes of lifetimes, of the flows' bytes and of
//! contents are O(log n).
//!
//! A chunk with a written copy on the disk may leave memory; only its header and fields stay. It counts
//! in its flow as before, and in memory with [`ENTRY_BYTES`].

mod copies;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use hashlink::LinkedHashMap;
use whimbrel_core::{
    DiskCopy, DiskKey, Guid, KeyedMap, KeyedState, PortId, SeededRng, Time, TimerQueue, keyed_map,
};
use whimbrel_link::{Pool, Room};

use crate::chunk::{Chunk, Flow};
use copies::StoredCopies;

/// Identifies one stored chunk; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(u64);

/// The size of an entry beside its chunk's bytes: its header and its table entries, and those of a
/// destination of its own (measured: 2,290 bytes of resident memory).
pub const ENTRY_BYTES: u64 = 2304;
/// Stored chunks that one request is compared with.
const MAX_LOOKED_AT: usize = 4096;

/// Chunks among which one is looked for that may leave memory.
const MAX_SPILLS_LOOKED_AT: usize = 64;

/// Limits of the storage. A chunk counts with its bytes and [`ENTRY_BYTES`].
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// Memory of all stored chunks together.
    pub total: u64,
    /// Bytes of one flow's stored chunks, in memory and on the disk: S of [MFTP §3.3].
    pub per_flow: u64,
    /// Storage time of a chunk without a lifetime of its own, and the maximum of that lifetime.
    pub lifetime: Duration,
}

/// The outcome of storing a chunk.
#[derive(Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is stored; these were evicted for it, oldest first.
    Held(StoreId, Vec<(StoreId, Chunk)>),
    /// The same chunk of the same flow is stored already; this copy was dropped.
    Duplicate,
    /// Its flow's limit is reached (or it is larger than the whole storage).
    FlowFull(Chunk),
}

#[derive(Debug)]
struct Entry {
    // Without its payload, if that is on the disk only.
    chunk: Chunk,
    // Its memory, and its copy on the disk.
    room: Room,
    // What it counts with in its flow and for its owner: also what is on the disk.
    size: u64,
    in_memory: bool,
    owner: Owner,
    part: Option<Part>,
    // Of a part of a content.
    chunk_log2: u8,
    stored_at: Time,
    expires: Time,
}

/// The port that a chunk came in on; none for what this node sends itself.
type Owner = Option<PortId>;
/// A chunk's identity within its flow: content and index.
type Part = (Guid, u32);
/// Logarithm of the chunk size, and index: a part as a request asks for it. Several sources may have sent
/// the same.
type Wanted = (u8, u32, StoreId);
type IdList = LinkedHashMap<StoreId, (), KeyedState>;

#[derive(Debug)]
struct StoredFlow {
    ids: IdList,
    bytes: u64,
}

/// The chunks of one owner.
#[derive(Debug)]
struct Owned {
    ids: IdList,
    // Those of them that are in memory.
    in_memory: IdList,
    bytes: u64,
}

/// Chunks stored for their destinations.
#[derive(Debug)]
pub struct ProxyStore {
    limits: StoreLimits,
    // The room of stored chunks, and of those that have left the storage until their next hops have them.
    pool: Pool,
    // The memory of stored chunks.
    bytes: u64,
    copies: StoredCopies,
    next_id: u64,
    entries: KeyedMap<StoreId, Entry>,
    parts: KeyedMap<(Flow, Part), StoreId>,
    // Least recently used first.
    flows: LinkedHashMap<Flow, StoredFlow, KeyedState>,
    // The same by their bytes.
    by_bytes: BTreeSet<(u64, Flow)>,
    by_destination: KeyedMap<Guid, IdList>,
    // By destination and content.
    by_content: KeyedMap<(Guid, Guid), BTreeSet<Wanted>>,
    by_owner: BTreeMap<Owner, Owned>,
    // The same by their bytes.
    owners: BTreeSet<(u64, Owner)>,
    lifetimes: TimerQueue<StoreId>,
    hasher: KeyedState,
}

/// What is on the disk of a chunk.
#[derive(Debug)]
pub struct Restored {
    /// Its copy.
    pub copy: DiskCopy,
    /// Size of its payload, as [`Chunk::size`] has it.
    pub length: u64,
    /// How long it is stored still.
    pub lifetime: Duration,
}

impl Entry {
    /// A chunk in memory.
    fn new(
        chunk: Chunk,
        room: Room,
        size: u64,
        owner: Owner,
        stored_at: Time,
        expires: Time,
    ) -> Entry {
        let data = chunk.data();
        Entry {
            part: data.as_ref().map(|data| (data.content, data.index)),
            chunk_log2: data.map_or(0, |data| data.chunk_log2),
            chunk,
            room,
            size,
            in_memory: true,
            owner,
            stored_at,
            expires,
        }
    }

    fn wanted(&self, id: StoreId) -> Option<((Guid, Guid), Wanted)> {
        let (content, index) = self.part?;
        let asked = (self.chunk.header.destination, content);
        Some((asked, (self.chunk_log2, index, id)))
    }
}

fn charge_of(chunk: &Chunk) -> u64 {
    chunk.size() as u64 + ENTRY_BYTES
}

impl ProxyStore {
    /// Returns an empty storage.
    pub fn new(limits: StoreLimits, rng: &mut SeededRng) -> ProxyStore {
        let hasher = KeyedState::new(rng);
        ProxyStore {
            limits,
            pool: Pool::default(),
            bytes: 0,
            copies: StoredCopies::default(),
            next_id: 0,
            entries: keyed_map(rng),
            parts: keyed_map(rng),
            flows: LinkedHashMap::with_hasher(hasher),
            by_bytes: BTreeSet::new(),
            by_destination: keyed_map(rng),
            by_content: keyed_map(rng),
            by_owner: BTreeMap::new(),
            owners: BTreeSet::new(),
            lifetimes: TimerQueue::new(),
            hasher,
        }
    }

    /// Stores a chunk that came in on the port `owner`. The copy on the disk that it has from an earlier
    /// storing, in `room`, stays its own.
    pub fn store(&mut self, now: Time, owner: Option<PortId>, chunk: Chunk, room: &Room) -> Stored {
        let flow = chunk.flow();
        let size = charge_of(&chunk);
        let total = self.limits.total.saturating_sub(self.leaving_bytes());
        if self.is_stored(&chunk) {
            return Stored::Duplicate;
        }
        if self.flow_bytes(&flow) + size > self.limits.per_flow || size > total {
            return Stored::FlowFull(chunk);
        }
        let mut evicted = Vec::new();
        while self.bytes + size > total {
            let newest = self.copies.to_spill().next();
            if let Some(newest) = newest {
                self.spill(newest);
                continue;
            }
            match self.evict_for(owner, size) {
                Some(gone) => evicted.push(gone),
                None => break,
            }
        }
        let room = match room.copy() {
            Some(copy) => self.pool.hold_with_copy(size, copy.clone()),
            None => self.pool.hold(size),
        };
        let expires = now + self.lifetime_of(&chunk);
        let entry = Entry::new(chunk, room, size, owner, now, expires);
        Stored::Held(self.insert(entry), evicted)
    }

    /// Takes up a chunk that was on the disk at the start: without its payload, which has `length` bytes.
    /// Returns false if it is stored already, or memory is short.
    pub fn restore(&mut self, now: Time, chunk: Chunk, on_disk: Restored) -> Option<StoreId> {
        let is_short = self.bytes + ENTRY_BYTES > self.limits.total;
        if self.is_stored(&chunk) || is_short {
            return None;
        }
        let size = on_disk.length + ENTRY_BYTES;
        let room = self.pool.hold_with_copy(ENTRY_BYTES, on_disk.copy);
        let left = on_disk.lifetime.min(self.limits.lifetime);
        let mut entry = Entry::new(chunk, room, size, None, now, now + left);
        entry.in_memory = false;
        Some(self.insert(entry))
    }

    /// How long a chunk is stored.
    pub fn lifetime_of(&self, chunk: &Chunk) -> Duration {
        let wanted = chunk.header.extensions.lifetime_ms;
        let wanted = wanted.map(|ms| Duration::from_millis(ms.into()));
        let most = self.limits.lifetime;
        wanted.map_or(most, |wanted| wanted.min(most))
    }

    fn is_stored(&self, chunk: &Chunk) -> bool {
        let part = chunk.data().map(|data| (data.content, data.index));
        part.is_some_and(|part| self.parts.contains_key(&(chunk.flow(), part)))
    }

    /// The chunk has a copy on the disk from now on.
    pub fn set_copy(&mut self, id: StoreId, copy: DiskCopy) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.copies.add(id, entry.owner, &copy);
            entry.room = self.pool.hold_with_copy(entry.room.bytes(), copy);
        }
    }

    /// Returns true if a chunk has a copy on the disk, written or not.
    pub fn has_copy(&self, id: StoreId) -> bool {
        let entry = self.entries.get(&id);
        entry.is_some_and(|entry| entry.room.copy().is_some())
    }

    /// A copy is on the disk: its chunk may leave memory. Returns the chunk, if it is stored here.
    pub fn note_written(&mut self, key: DiskKey) -> Option<StoreId> {
        let id = self.copies.id_of(key)?;
        self.note_spillable(id);
        Some(id)
    }

    /// A copy is not on the disk, although it was to be. Returns its chunk, if it is stored here; one
    /// that is not in memory is lost.
    pub fn forget_copy(&mut self, key: DiskKey) -> Option<StoreId> {
        let id = self.copies.id_of(key)?;
        let entry = self.entries.get_mut(&id)?;
        if let Some(copy) = entry.room.copy() {
            self.copies.remove(id, entry.owner, copy);
        }
        entry.room = self.pool.hold(entry.room.bytes());
        Some(id)
    }

    /// Returns true if a chunk can be sent without reading it from the disk.
    pub fn is_in_memory(&self, id: StoreId) -> bool {
        self.entries.get(&id).is_some_and(|entry| entry.in_memory)
    }

    /// Returns the bytes that a chunk counts with.
    pub fn size_of(&self, id: StoreId) -> u64 {
        self.entries.get(&id).map_or(0, |entry| entry.size)
    }

    /// Returns the key of a chunk's copy.
    pub fn key_of(&self, id: StoreId) -> Option<DiskKey> {
        Some(self.entries.get(&id)?.room.copy()?.key())
    }

    /// Returns the chunk of a copy.
    pub fn id_of_copy(&self, key: DiskKey) -> Option<StoreId> {
        self.copies.id_of(key)
    }

    /// Evicts a chunk whose copy makes room on the disk for `size` bytes of `owner`.
    pub fn evict_from_disk(
        &mut self,
        owner: Option<PortId>,
        size: u64,
    ) -> Option<(StoreId, Chunk)> {
        let id = self.copies.to_evict_for(owner, size)?;
        Some((id, self.remove(id)?))
    }

    /// A chunk that is on the disk as well leaves memory.
    fn spill(&mut self, id: StoreId) {
        self.copies.set_spillable(id, None);
        if let Some(entry) = self.entries.get_mut(&id)
            && let Some(copy) = entry.room.copy().cloned()
        {
            self.bytes -= entry.room.bytes() - ENTRY_BYTES;
            entry.chunk = entry.chunk.without_payload();
            entry.room = self.pool.hold_with_copy(ENTRY_BYTES, copy);
            entry.in_memory = false;
            if let Some(owned) = self.by_owner.get_mut(&entry.owner) {
                owned.in_memory.remove(&id);
            }
        }
    }

    /// A chunk that was on the disk only has been read.
    pub fn fill(&mut self, id: StoreId, chunk: Chunk) {
        let Some(entry) = self.entries.get_mut(&id).filter(|it| !it.in_memory) else {
            return;
        };
        let Some(copy) = entry.room.copy().cloned() else {
            return;
        };
        let size = charge_of(&chunk);
        self.bytes += size - ENTRY_BYTES;
        entry.chunk = chunk;
        entry.room = self.pool.hold_with_copy(size, copy);
        entry.in_memory = true;
        if let Some(owned) = self.by_owner.get_mut(&entry.owner) {
            owned.in_memory.insert(id, ());
        }
        self.note_spillable(id);
    }

    /// Others leave memory for a chunk that is read, of which `size` bytes are to come: newer ones, and
    /// those whose destinations are not open. Returns false if that is not enough.
    ///
    /// An older one for an open destination stays, or two would take turns in memory and none be sent.
    pub fn make_room_to_read(
        &mut self,
        id: StoreId,
        size: u64,
        is_open: impl Fn(&Guid) -> bool,
    ) -> bool {
        let may_leave = |store: &ProxyStore, other: &StoreId| {
            let entry = store.entries.get(other);
            *other > id || entry.is_some_and(|it| !is_open(&it.chunk.header.destination))
        };
        while self.bytes + self.leaving_bytes() + size > self.limits.total {
            let other = {
                let mut others = self.copies.to_spill().take(MAX_SPILLS_LOOKED_AT);
                others.find(|other| *other != id && may_leave(self, other))
            };
            let Some(other) = other else { return false };
            self.spill(other);
        }
        true
    }

    fn note_spillable(&mut self, id: StoreId) {
        let entry = self.entries.get(&id).filter(|entry| entry.in_memory);
        let is_written = |room: &Room| room.copy().is_some_and(DiskCopy::is_written);
        if let Some(room) = entry.map(|entry| &entry.room).filter(|it| is_written(it)) {
            let bytes = room.bytes() - ENTRY_BYTES;
            self.copies.set_spillable(id, Some(bytes));
        }
    }

    fn insert(&mut self, entry: Entry) -> StoreId {
        let id = StoreId(self.next_id);
        self.next_id += 1;
        let (owner, size) = (entry.owner, entry.size);
        let flow = entry.chunk.flow();
        let hasher = self.hasher;
        let list = || LinkedHashMap::with_hasher(hasher);
        self.lifetimes.set(id, entry.expires);
        let stored = self.flows.entry(flow).or_insert_with(|| StoredFlow {
            ids: list(),
            bytes: 0,
        });
        stored.ids.insert(id, ());
        self.by_bytes.remove(&(stored.bytes, flow));
        stored.bytes += size;
        self.by_bytes.insert((stored.bytes, flow));
        self.flows.to_back(&flow);
        self.by_destination
            .entry(flow.destination)
            .or_insert_with(list)
            .insert(id, ());
        if let Some(part) = entry.part {
            self.parts.insert((flow, part), id);
        }
        if let Some((asked, wanted)) = entry.wanted(id) {
            self.by_content.entry(asked).or_default().insert(wanted);
        }
        let owned = self.by_owner.entry(owner).or_insert_with(|| Owned {
            ids: list(),
            in_memory: list(),
            bytes: 0,
        });
        owned.ids.insert(id, ());
        if entry.in_memory {
            owned.in_memory.insert(id, ());
        }
        self.owners.remove(&(owned.bytes, owner));
        owned.bytes += size;
        self.owners.insert((owned.bytes, owner));
        self.bytes += entry.room.bytes();
        if let Some(copy) = entry.room.copy() {
            self.copies.add(id, owner, copy);
        }
        self.entries.insert(id, entry);
        self.note_spillable(id);
        id
    }

    /// "A chunk for the oldest flow is evicted to make room" [MFTP §3.3]: the oldest chunk of the least
    /// recently used flow, if its owner has the most bytes here; else the oldest one of the owner that
    /// has. `owner` is about to have `size` bytes more.
    fn evict_for(&mut self, owner: Owner, size: u64) -> Option<(StoreId, Chunk)> {
        let own = self.by_owner.get(&owner).map_or(0, |owned| owned.bytes);
        let most = self.owners.last().copied();
        let loser = match most {
            Some((most, who)) if own == 0 || own + size < most => who,
            _ => owner,
        };
        // What is on the disk only leaves last, because it takes little of what is short.
        let in_memory = |who: &Owner| {
            let owned = self.by_owner.get(who)?;
            owned.in_memory.front().map(|(id, ())| *id)
        };
        let oldest = self.flows.front().and_then(|(_, flow)| flow.ids.front());
        let oldest = oldest.map(|(id, ())| *id)?;
        let is_of_loser = self
            .entries
            .get(&oldest)
            .is_some_and(|it| it.owner == loser && it.in_memory);
        let by_bytes = || self.owners.iter().rev().map(|(_, who)| who);
        let id = match is_of_loser {
            true => oldest,
            false => in_memory(&loser)
                .or_else(|| by_bytes().find_map(in_memory))
                .unwrap_or(oldest),
        };
        Some((id, self.remove(id)?))
    }

    /// Evicts the oldest chunk of the flow with the most bytes here, if those are more than `bytes`.
    pub fn evict_from_largest(&mut self, bytes: u64) -> Option<(StoreId, Chunk)> {
        let (_, flow) = self.by_bytes.last().filter(|(most, _)| *most > bytes)?;
        let (id, ()) = self.flows.get(flow)?.ids.front()?;
        let id = *id;
        Some((id, self.remove(id)?))
    }

    /// Removes a chunk; its flow counts as used now. The chunk counts as leaving until its room is dropped.
    pub fn take(&mut self, id: StoreId) -> Option<(Chunk, Room)> {
        let entry = self.remove_entry(id)?;
        self.flows.to_back(&entry.chunk.flow());
        Some((entry.chunk, entry.room))
    }

    /// Returns the room of a stored chunk, for a hop that carries a copy.
    pub fn room_of(&self, id: StoreId) -> Room {
        let entry = self.entries.get(&id);
        entry.map_or(Room::default(), |entry| entry.room.clone())
    }

    fn remove(&mut self, id: StoreId) -> Option<Chunk> {
        self.remove_entry(id).map(|entry| entry.chunk)
    }

    fn remove_entry(&mut self, id: StoreId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        let (flow, size) = (entry.chunk.flow(), entry.size);
        self.bytes -= entry.room.bytes();
        if let Some(copy) = entry.room.copy() {
            self.copies.remove(id, entry.owner, copy);
        }
        if let Some(owned) = self.by_owner.get_mut(&entry.owner) {
            self.owners.remove(&(owned.bytes, entry.owner));
            owned.bytes -= size;
            owned.ids.remove(&id);
            owned.in_memory.remove(&id);
            if owned.ids.is_empty() {
                self.by_owner.remove(&entry.owner);
            } else {
                self.owners.insert((owned.bytes, entry.owner));
            }
        }
        self.lifetimes.cancel(&id);
        if let Some(part) = entry.part {
            self.parts.remove(&(flow, part));
        }
        if let Some((asked, wanted)) = entry.wanted(id)
            && let Some(of_content) = self.by_content.get_mut(&asked)
        {
            of_content.remove(&wanted);
            if of_content.is_empty() {
                self.by_content.remove(&asked);
            }
        }
        if let Some(stored) = self.flows.get_mut(&flow) {
            self.by_bytes.remove(&(stored.bytes, flow));
            stored.bytes -= size;
            stored.ids.remove(&id);
            if stored.ids.is_empty() {
                self.flows.remove(&flow);
            } else {
                self.by_bytes.insert((stored.bytes, flow));
            }
        }
        if let Some(ids) = self.by_destination.get_mut(&flow.destination) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_destination.remove(&flow.destination);
            }
        }
        Some(entry)
    }

    /// Removes one chunk whose storage time is over.
    pub fn take_expired(&mut self, now: Time) -> Option<(StoreId, Chunk)> {
        let (_, id) = self.lifetimes.pop_due(now)?;
        Some((id, self.remove(id)?))
    }

    /// When [`ProxyStore::take_expired`] will next return a chunk.
    pub fn next_expiry(&self) -> Option<Time> {
        self.lifetimes.next().map(|(at, _)| at)
    }

    /// Returns the oldest chunk for a destination.
    pub fn oldest_for(&self, destination: &Guid) -> Option<StoreId> {
        self.by_destination
            .get(destination)?
            .front()
            .map(|(id, ())| *id)
    }

    /// Returns the oldest chunks for a destination, `count` at most.
    pub fn first_for(&self, destination: &Guid, count: usize) -> Vec<StoreId> {
        let ids = self.by_destination.get(destination).into_iter();
        let ids = ids.flat_map(IdList::keys).take(count);
        ids.copied().collect()
    }

    /// Returns the chunks stored for a destination, oldest first.
    pub fn ids_for(&self, destination: &Guid) -> Vec<StoreId> {
        self.by_destination
            .get(destination)
            .map_or(Vec::new(), |ids| ids.keys().copied().collect())
    }

    /// Returns the chunks of a content stored for a destination, in the order of their sizes and indices,
    /// 4,096 at most: logarithm of the chunk size, index. O(what is returned): the cost of a request
    /// does not depend on what else is stored for whoever makes it.
    pub fn data_for(
        &self,
        destination: Guid,
        content: Guid,
    ) -> impl Iterator<Item = (u8, u32)> + '_ {
        let of_content = self.by_content.get(&(destination, content)).into_iter();
        let wanted = of_content.flatten().take(MAX_LOOKED_AT);
        wanted.map(|(log2, index, _)| (*log2, *index))
    }

    /// Returns the stored part of a flow's content, if it is stored.
    pub fn find(&self, flow: Flow, content: Guid, index: u32) -> Option<StoreId> {
        self.parts.get(&(flow, (content, index))).copied()
    }

    /// Returns the bytes stored for a destination. O(its chunks).
    pub fn bytes_for(&self, destination: &Guid) -> u64 {
        let ids = self.by_destination.get(destination).into_iter();
        let entries = ids.flat_map(IdList::keys);
        let entries = entries.filter_map(|id| self.entries.get(id));
        entries.map(|entry| entry.size).sum()
    }

    /// Returns the chunks stored for a flow, oldest first.
    pub fn ids_of(&self, flow: &Flow) -> Vec<StoreId> {
        self.flows
            .get(flow)
            .map_or(Vec::new(), |stored| stored.ids.keys().copied().collect())
    }

    /// Returns the port that a stored chunk came in on.
    pub fn owner(&self, id: StoreId) -> Option<PortId> {
        self.entries.get(&id)?.owner
    }

    /// Returns a stored chunk and when it was stored.
    pub fn get(&self, id: StoreId) -> Option<(&Chunk, Time)> {
        self.entries
            .get(&id)
            .map(|entry| (&entry.chunk, entry.stored_at))
    }

    /// Returns true if no chunk is stored for `destination`.
    pub fn has_none_for(&self, destination: &Guid) -> bool {
        !self.by_destination.contains_key(destination)
    }

    /// Returns the bytes stored for one flow.
    pub fn flow_bytes(&self, flow: &Flow) -> u64 {
        self.flows.get(flow).map_or(0, |stored| stored.bytes)
    }

    /// Returns the memory of stored chunks that no disk could take over now.
    pub fn bytes_to_keep(&self) -> u64 {
        self.bytes - self.copies.spillable_bytes()
    }

    /// Returns the memory of all stored chunks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of chunks that have left the storage and that no next hop has yet. They count in
    /// the total.
    pub fn leaving_bytes(&self) -> u64 {
        self.pool.bytes().saturating_sub(self.bytes)
    }

    /// Returns the number of stored chunks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the storage is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns its limits.
    pub fn limits(&self) -> &StoreLimits {
        &self.limits
    }
}
