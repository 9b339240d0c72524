//! The in-network proxy's storage [MFTP §3.3].
//!
//! An entry is known by its header and its place in a content. Its bytes are in memory, and where the
//! router has a disk, they are there as well, or there only: then they return to memory before it is sent
//! ([`ProxyStore::page_in`]). What is on the disk only takes [`ENTRY_BYTES`] of the total, and all its
//! bytes of its flow's limit.
//!
//! "Each (source GUID, destination GUID) pair is limited to have stored content up to a size S."
//! Beyond the total, chunks of the least recently used flow make room, of the neighbour whose chunks
//! take the most. Storing, taking and evicting
//! are O(1) (hash tables and linked lists); only the indexes of lifetimes, of the flows' bytes and of
//! contents are O(log n).

pub(super) mod copies;
mod on_disk;
mod paging;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use hashlink::LinkedHashMap;
use whimbrel_core::{Guid, KeyedMap, KeyedState, PortId, SeededRng, Time, TimerQueue, keyed_map};
use whimbrel_link::{Pool, Room};

use crate::chunk::{Chunk, Message};
use crate::next_hops::Spread;
use crate::wire::{Data, Flow, NetworkHeader, Request};
use copies::{Copies, CopyKey, CopyTerms};
use on_disk::OnDisk;
pub use paging::Restored;

/// Identifies one stored chunk; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(u64);

/// The size of an entry beside its chunk's bytes: its header and its table entries, and those of a
/// destination of its own (measured: 2,290 bytes of resident memory).
pub const ENTRY_BYTES: u64 = 2304;
/// Stored chunks that one request is compared with.
const MAX_LOOKED_AT: usize = 4096;

/// Chunks among which one is looked for that may leave memory.
const MAX_PAGED_LOOKED_AT: usize = 64;

/// Limits of the storage. A chunk counts with its bytes and [`ENTRY_BYTES`].
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// Memory of all stored chunks together.
    pub total: u64,
    /// Bytes of one flow's stored chunks, in memory and on the disk: S of [MFTP §3.3].
    pub per_flow: u64,
    /// Bytes of cached copies; none if 0. They count in the total, and are evicted first.
    pub cache: u64,
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

/// Why a router holds a chunk that no next hop is to have now. Where the storage is full the later ones
/// of this list go first: what is stored is in no other place, a kept copy has its producer behind it,
/// and a cached one any holder of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// For a destination that is away or takes it too slowly [MFTP §3.3].
    Stored,
    /// A copy for a producer that has delegated its reliability [MFTP §3.3].
    Kept,
    /// A copy for requests of others [MFTP §3.2.1].
    Cached,
}

#[derive(Debug)]
struct Entry {
    header: NetworkHeader,
    body: Body,
    // Bytes of its message.
    size: usize,
    // Its memory, and its copy on the disk.
    room: Room,
    owner: Owner,
    part: Option<Part>,
    // Of a part of a content.
    chunk_log2: u8,
    spread: Spread,
    stored_at: Time,
    expires: Time,
}

/// Where the bytes of an entry are.
#[derive(Debug)]
enum Body {
    Memory(Message),
    /// On the disk only; without the payload.
    Disk(Message),
}

/// What is known of a stored chunk without its bytes.
#[derive(Clone, Copy, Debug)]
pub struct StoredChunk<'a> {
    /// Its header.
    pub header: &'a NetworkHeader,
    /// The content that it is a part of.
    pub content: Option<Guid>,
    /// Its index in the content.
    pub index: u32,
    /// Bytes of its message.
    pub size: usize,
    /// The next hops that it takes.
    pub spread: Spread,
    /// When it was stored.
    pub stored_at: Time,
    /// When its storage time is over.
    pub expires: Time,
    /// False while its bytes are on the disk only.
    pub is_in_memory: bool,
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
    // Those of them whose bytes are in memory.
    in_memory: IdList,
    bytes: u64,
}

/// Chunks stored for their destinations.
#[derive(Debug)]
pub struct ProxyStore {
    limits: StoreLimits,
    // The room of stored chunks, and of those that have left the storage until their next hops have them.
    pool: Pool,
    bytes: u64,
    // Of these, on the disk only.
    paged_out: u64,
    on_disk: OnDisk,
    copies: Copies,
    // Kept copies that were evicted for others.
    lost_copies: Vec<Chunk>,
    next_id: u64,
    entries: KeyedMap<StoreId, Entry>,
    parts: KeyedMap<(Flow, Part), StoreId>,
    // Least recently used first.
    flows: LinkedHashMap<Flow, StoredFlow, KeyedState>,
    // The same by their bytes.
    by_bytes: BTreeSet<(u64, Flow)>,
    // What a destination has requested, and what it is offered: either may be held back alone.
    by_destination: KeyedMap<(Guid, bool), IdList>,
    // By destination and content.
    by_content: KeyedMap<(Guid, Guid), BTreeSet<Wanted>>,
    by_owner: BTreeMap<Owner, Owned>,
    // The same by their bytes.
    owners: BTreeSet<(u64, Owner)>,
    lifetimes: TimerQueue<StoreId>,
    hasher: KeyedState,
}

impl Entry {
    /// An entry in memory.
    fn new(chunk: Chunk, room: Room, owner: Owner, stored_at: Time, expires: Time) -> Entry {
        let data = chunk.data();
        let spread = Spread::of_chunk(&chunk);
        let Chunk { header, message } = chunk;
        Entry {
            header,
            size: message.len(),
            body: Body::Memory(message),
            room,
            owner,
            part: data.as_ref().map(|data| (data.content, data.index)),
            chunk_log2: data.map_or(0, |data| data.chunk_log2),
            spread,
            stored_at,
            expires,
        }
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.body, Body::Memory(_))
    }

    fn flow(&self) -> Flow {
        self.header.flow()
    }

    /// Returns what it counts in its flow, whether its bytes are in memory or on a disk.
    fn charge(&self) -> u64 {
        self.size as u64 + ENTRY_BYTES
    }

    /// Returns its chunk, if its bytes are in memory.
    fn into_chunk(self) -> Option<(Chunk, Room)> {
        let Entry {
            header, body, room, ..
        } = self;
        match body {
            Body::Memory(message) => Some((Chunk { header, message }, room)),
            Body::Disk(_) => None,
        }
    }

    fn wanted(&self, id: StoreId) -> Option<((Guid, Guid), Wanted)> {
        let (content, index) = self.part?;
        let asked = (self.header.destination, content);
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
        let pool = Pool::default();
        let copies = Copies::new(limits.cache.min(limits.total), pool.clone(), rng);
        ProxyStore {
            limits,
            pool,
            copies,
            lost_copies: Vec::new(),
            bytes: 0,
            paged_out: 0,
            on_disk: OnDisk::default(),
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
        let size = charge_of(&chunk);
        let total = self.limits.total.saturating_sub(self.leaving_bytes());
        if self.is_stored(&chunk) {
            return Stored::Duplicate;
        }
        if self.flow_bytes(&chunk.flow()) + size > self.limits.per_flow || size > total {
            return Stored::FlowFull(chunk);
        }
        let mut evicted = Vec::new();
        while self.memory_bytes() + self.copies.all_bytes() + size > total {
            let newest = self.on_disk.to_page_out().next();
            if let Some(newest) = newest {
                self.page_out(newest);
                continue;
            }
            if self.evict_copy() {
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
        let expires = now + self.lifetime_of(&chunk.header);
        let id = self.insert(Entry::new(chunk, room, owner, now, expires));
        Stored::Held(id, evicted)
    }

    /// Returns true if so many bytes fit, and nothing is evicted for them.
    pub(super) fn has_room_for(&self, size: u64) -> bool {
        self.bytes_to_keep() + self.leaving_bytes() + size <= self.limits.total
    }

    /// How long a chunk with this header is stored.
    pub fn lifetime_of(&self, header: &NetworkHeader) -> Duration {
        let most = self.limits.lifetime;
        let wanted = header.extensions.lifetime();
        wanted.map_or(most, |wanted| wanted.min(most))
    }

    /// Has a chunk end at this time, if that is earlier than it would.
    pub(super) fn end_by(&mut self, id: StoreId, until: Time) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.expires = entry.expires.min(until);
            self.lifetimes.set(id, entry.expires);
        }
    }

    /// Returns true if the same chunk of the same flow is stored.
    pub(super) fn is_stored(&self, chunk: &Chunk) -> bool {
        let part = chunk.data().map(|data| (data.content, data.index));
        part.is_some_and(|part| self.parts.contains_key(&(chunk.flow(), part)))
    }

    fn insert(&mut self, entry: Entry) -> StoreId {
        let id = StoreId(self.next_id);
        self.next_id += 1;
        let (flow, size, owner) = (entry.flow(), entry.charge(), entry.owner);
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
            .entry((flow.destination, flow.is_offered))
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
        if entry.is_in_memory() {
            owned.in_memory.insert(id, ());
        } else {
            self.paged_out += entry.size as u64;
        }
        self.owners.remove(&(owned.bytes, owner));
        owned.bytes += size;
        self.owners.insert((owned.bytes, owner));
        self.bytes += size;
        if let Some(copy) = entry.room.copy() {
            self.on_disk.add(id, owner, copy);
        }
        self.entries.insert(id, entry);
        self.note_if_written(id);
        id
    }

    /// Removes the copy that is worth least. Returns false if there is none.
    fn evict_copy(&mut self) -> bool {
        if self.copies.evict(Purpose::Cached).is_some() {
            return true;
        }
        let kept = self.copies.evict(Purpose::Kept);
        let is_any = kept.is_some();
        self.lost_copies.extend(kept.map(|(chunk, _)| chunk));
        is_any
    }

    /// Returns the kept copies that were evicted since the last call.
    pub(super) fn take_lost_copies(&mut self) -> Vec<Chunk> {
        core::mem::take(&mut self.lost_copies)
    }

    /// Takes a copy of a proven chunk, for which cached copies may have to go. Returns false if there is no
    /// room: a producer has as much as a flow.
    pub(super) fn keep_copy(&mut self, chunk: &Chunk, data: &Data, keeping: CopyTerms) -> bool {
        let of_producer = self.copies.kept_bytes_of(&chunk.header.source) + charge_of(chunk);
        if keeping.purpose == Purpose::Kept && of_producer > self.limits.per_flow {
            return false;
        }
        let held = self.memory_bytes() + self.leaving_bytes() + self.copies.all_bytes();
        let free = self.limits.total.saturating_sub(held);
        self.copies.insert(chunk, data, keeping, free)
    }

    /// Drops one kept copy whose time is over. Returns false if there is none.
    pub(super) fn drop_expired_copy(&mut self, now: Time) -> bool {
        self.copies.take_expired(now).is_some()
    }

    /// Frees the kept copies that their receiver acknowledges; returns how many.
    pub(super) fn free_kept(&mut self, header: &NetworkHeader, ack: &Request) -> u64 {
        self.copies.free_kept(header, ack)
    }

    /// Returns the bytes of copies.
    pub(super) fn copied_bytes(&self) -> u64 {
        self.copies.all_bytes()
    }

    #[cfg(test)]
    pub(super) fn set_total(&mut self, total: u64) {
        self.limits.total = total;
    }

    /// Returns the copies.
    pub(super) fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Returns a copy and its room.
    pub(super) fn copy(&mut self, key: &CopyKey, asked: &NetworkHeader) -> Option<(&Chunk, Room)> {
        self.copies.get(key, asked)
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
            .is_some_and(|it| it.owner == loser && it.is_in_memory());
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
        if !self.get(id)?.is_in_memory {
            return None;
        }
        let entry = self.remove_entry(id)?;
        self.flows.to_back(&entry.flow());
        entry.into_chunk()
    }

    /// Drops a chunk; returns its flow, which counts as used now.
    pub fn discard(&mut self, id: StoreId) -> Option<Flow> {
        let flow = self.remove_entry(id)?.flow();
        self.flows.to_back(&flow);
        Some(flow)
    }

    /// Returns the room of a stored chunk, for a hop that carries a copy.
    pub fn room_of(&self, id: StoreId) -> Room {
        let entry = self.entries.get(&id);
        entry.map_or(Room::default(), |entry| entry.room.clone())
    }

    /// Removes a chunk. Without its payload, if that is on the disk only.
    fn remove(&mut self, id: StoreId) -> Option<Chunk> {
        let Entry { header, body, .. } = self.remove_entry(id)?;
        let (Body::Memory(message) | Body::Disk(message)) = body;
        Some(Chunk { header, message })
    }

    fn remove_entry(&mut self, id: StoreId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        let (flow, size) = (entry.flow(), entry.charge());
        self.bytes -= size;
        if !entry.is_in_memory() {
            self.paged_out -= entry.size as u64;
        }
        if let Some(copy) = entry.room.copy() {
            self.on_disk.remove(id, entry.owner, copy);
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
        let place = (flow.destination, flow.is_offered);
        if let Some(ids) = self.by_destination.get_mut(&place) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_destination.remove(&place);
            }
        }
        Some(entry)
    }

    /// Removes one chunk whose storage time is over.
    pub fn take_expired(&mut self, now: Time) -> Option<(StoreId, Chunk)> {
        let (_, id) = self.lifetimes.pop_due(now)?;
        Some((id, self.remove(id)?))
    }

    /// When the next chunk expires.
    pub fn next_expiry(&self) -> Option<Time> {
        let stored = self.lifetimes.next().map(|(at, _)| at);
        let kept = self.copies.next_expiry();
        stored.into_iter().chain(kept).min()
    }

    fn lists_for(&self, destination: &Guid) -> impl Iterator<Item = &IdList> {
        let kinds = [false, true].map(|is_offered| (*destination, is_offered));
        let lists = kinds.map(|kind| self.by_destination.get(&kind));
        lists.into_iter().flatten()
    }

    /// Returns the oldest chunks for a destination, `count` at most of those that it has requested, and as many of
    /// those that it is offered; the oldest of all first.
    pub fn first_for(&self, destination: &Guid, count: usize) -> Vec<StoreId> {
        let lists = self.lists_for(destination);
        let mut ids: Vec<StoreId> = lists
            .flat_map(|it| it.keys().take(count))
            .copied()
            .collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the oldest chunk for a destination.
    pub fn oldest_for(&self, destination: &Guid) -> Option<StoreId> {
        let fronts = self.lists_for(destination).filter_map(IdList::front);
        fronts.map(|(id, ())| *id).min()
    }

    /// Returns the chunks stored for a destination, oldest first.
    pub fn ids_for(&self, destination: &Guid) -> Vec<StoreId> {
        self.first_for(destination, usize::MAX)
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
        let entries = self.lists_for(destination).flat_map(IdList::keys);
        let entries = entries.filter_map(|id| self.entries.get(id));
        entries.map(Entry::charge).sum()
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

    /// Returns what is known of a stored chunk.
    pub fn get(&self, id: StoreId) -> Option<StoredChunk<'_>> {
        let entry = self.entries.get(&id)?;
        Some(StoredChunk {
            header: &entry.header,
            content: entry.part.map(|(content, _)| content),
            index: entry.part.map_or(0, |(_, index)| index),
            size: entry.size,
            spread: entry.spread,
            stored_at: entry.stored_at,
            expires: entry.expires,
            is_in_memory: entry.is_in_memory(),
        })
    }

    /// Returns true if no chunk is stored for `destination`.
    pub fn has_none_for(&self, destination: &Guid) -> bool {
        self.lists_for(destination).next().is_none()
    }

    /// Returns the bytes stored for one flow.
    pub fn flow_bytes(&self, flow: &Flow) -> u64 {
        self.flows.get(flow).map_or(0, |stored| stored.bytes)
    }

    /// Returns the bytes of all stored chunks, in memory and on a disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of chunks that have left the storage and that no next hop has yet. They count in
    /// the total.
    pub fn leaving_bytes(&self) -> u64 {
        let held = self.memory_bytes() + self.copies.all_bytes();
        self.pool.bytes().saturating_sub(held)
    }

    /// Returns the memory of stored chunks that the disk could not take over now.
    pub fn bytes_to_keep(&self) -> u64 {
        self.memory_bytes() - self.on_disk.written_bytes()
    }

    /// Returns the memory of stored chunks, in bytes: of those on a disk their entries only.
    pub fn memory_bytes(&self) -> u64 {
        self.bytes - self.paged_out
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

#[cfg(test)]
mod tests;
