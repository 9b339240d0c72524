//! The in-network proxy's storage [MFTP §3.3].
//!
//! "Each (source GUID, destination GUID) pair is limited to have stored content up to a size S."
//! Beyond the total, chunks of the least recently used flow make room, of the neighbour whose chunks
//! take the most. Storing, taking and evicting
//! are O(1) (hash tables and linked lists); only the indexes of lifetimes, of the flows' bytes and of
//! contents are O(log n).

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use hashlink::LinkedHashMap;
use whimbrel_core::{Guid, KeyedMap, KeyedState, PortId, SeededRng, Time, TimerQueue, keyed_map};
use whimbrel_link::{Pool, Room};

use crate::chunk::{Chunk, Flow};

/// Identifies one stored chunk; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(u64);

/// The size of an entry beside its chunk's bytes: its header and its table entries, and those of a
/// destination of its own (measured: 2,290 bytes of resident memory).
pub const ENTRY_BYTES: u64 = 2304;
/// Stored chunks that one request is compared with.
const MAX_LOOKED_AT: usize = 4096;

/// Limits of the storage. A chunk counts with its bytes and [`ENTRY_BYTES`].
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// Bytes of all stored chunks together.
    pub total: u64,
    /// Bytes of one flow's stored chunks: S of [MFTP §3.3].
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
    chunk: Chunk,
    room: Room,
    owner: Owner,
    part: Option<Part>,
    // Of a part of a content.
    chunk_log2: u8,
    stored_at: Time,
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
    bytes: u64,
}

/// Chunks stored for their destinations.
#[derive(Debug)]
pub struct ProxyStore {
    limits: StoreLimits,
    // The room of stored chunks, and of those that have left the storage until their next hops have them.
    pool: Pool,
    bytes: u64,
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

impl Entry {
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

    /// Stores a chunk that came in on the port `owner`.
    pub fn store(&mut self, now: Time, owner: Option<PortId>, chunk: Chunk) -> Stored {
        let flow = chunk.flow();
        let size = charge_of(&chunk);
        let total = self.limits.total.saturating_sub(self.leaving_bytes());
        let data = chunk.data();
        let part = data.as_ref().map(|data| (data.content, data.index));
        let chunk_log2 = data.map_or(0, |data| data.chunk_log2);
        if part.is_some_and(|part| self.parts.contains_key(&(flow, part))) {
            return Stored::Duplicate;
        }
        let in_flow = self.flows.get(&flow).map_or(0, |stored| stored.bytes);
        if in_flow + size > self.limits.per_flow || size > total {
            return Stored::FlowFull(chunk);
        }
        let mut evicted = Vec::new();
        while self.bytes + size > total {
            match self.evict_for(owner, size) {
                Some(gone) => evicted.push(gone),
                None => break,
            }
        }
        let id = StoreId(self.next_id);
        self.next_id += 1;
        let entry = Entry {
            chunk,
            room: self.pool.hold(size),
            owner,
            part,
            chunk_log2,
            stored_at: now,
        };
        self.insert(id, entry);
        Stored::Held(id, evicted)
    }

    fn insert(&mut self, id: StoreId, entry: Entry) {
        let Entry {
            chunk,
            owner,
            part,
            stored_at: now,
            ..
        } = &entry;
        let (flow, size) = (chunk.flow(), charge_of(chunk));
        let hasher = self.hasher;
        let list = || LinkedHashMap::with_hasher(hasher);
        let wanted = chunk
            .header
            .extensions
            .lifetime_ms
            .map(|ms| Duration::from_millis(ms.into()));
        self.lifetimes.set(
            id,
            *now + wanted.map_or(self.limits.lifetime, |life| life.min(self.limits.lifetime)),
        );
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
        if let Some(part) = part {
            self.parts.insert((flow, *part), id);
        }
        if let Some((asked, wanted)) = entry.wanted(id) {
            self.by_content.entry(asked).or_default().insert(wanted);
        }
        let owned = self.by_owner.entry(*owner).or_insert_with(|| Owned {
            ids: list(),
            bytes: 0,
        });
        owned.ids.insert(id, ());
        self.owners.remove(&(owned.bytes, *owner));
        owned.bytes += size;
        self.owners.insert((owned.bytes, *owner));
        self.bytes += size;
        self.entries.insert(id, entry);
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
        let oldest = self.flows.front().and_then(|(_, flow)| flow.ids.front());
        let oldest = oldest.map(|(id, ())| *id)?;
        let is_of_loser = self
            .entries
            .get(&oldest)
            .is_some_and(|it| it.owner == loser);
        let id = match is_of_loser {
            true => oldest,
            false => *self.by_owner.get(&loser)?.ids.front()?.0,
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
        let (flow, size) = (entry.chunk.flow(), charge_of(&entry.chunk));
        self.bytes -= size;
        if let Some(owned) = self.by_owner.get_mut(&entry.owner) {
            self.owners.remove(&(owned.bytes, entry.owner));
            owned.bytes -= size;
            owned.ids.remove(&id);
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
        entries.map(|entry| charge_of(&entry.chunk)).sum()
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

    /// Returns the bytes of all stored chunks.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{
        ContentKind, Data, NetworkHeader, Reliability, ServiceId, Transport, UpperProtocol,
    };
    use bytes::Bytes;
    use proptest::prelude::*;

    fn part(source: u8, destination: u8, index: u32, size: usize) -> Chunk {
        let (source, destination) = (Guid([source; 32]), Guid([destination; 32]));
        let data = Data {
            content: Guid([9; 32]),
            index,
            chunk_log2: 20,
            content_len: 1 << 30,
            kind: ContentKind::File,
            reliability: Reliability::Nack,
            file_name: String::new(),
            proof: Bytes::new(),
            payload: Bytes::from(vec![0; size]),
        };
        let header = NetworkHeader::new(
            ServiceId::DELAY_TOLERANT,
            UpperProtocol::Transport,
            source,
            destination,
        );
        Chunk::of_transport(header, &Transport::Data(data))
    }

    fn store(total: u64, per_flow: u64) -> ProxyStore {
        let limits = StoreLimits {
            total,
            per_flow,
            lifetime: Duration::from_secs(60),
        };
        ProxyStore::new(limits, &mut SeededRng::new(1))
    }

    fn store_size() -> u64 {
        charge_of(&part(1, 9, 0, 1000))
    }

    fn held(stored: Stored) -> StoreId {
        match stored {
            Stored::Held(id, evicted) if evicted.is_empty() => id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flow_holds_no_more_than_s_and_other_flows_are_left_alone() {
        let mut store = store(20_000, 8_000);
        let other = held(store.store(Time::ZERO, None, part(1, 2, 0, 1000)));
        held(store.store(Time::ZERO, None, part(3, 4, 0, 1000)));
        held(store.store(Time::ZERO, None, part(3, 4, 1, 1000)));
        assert!(matches!(
            store.store(Time::ZERO, None, part(3, 4, 2, 1000)),
            Stored::FlowFull(_)
        ));
        assert!(store.get(other).is_some());
    }

    #[test]
    fn a_chunk_for_the_least_recently_used_flow_is_evicted_to_make_room() {
        let mut store = store(10_350, 10_350);
        let first = held(store.store(Time::ZERO, None, part(1, 9, 0, 1000)));
        let second = held(store.store(Time::ZERO, None, part(2, 9, 0, 1000)));
        held(store.store(Time::ZERO, None, part(1, 9, 1, 1000)));
        match store.store(Time::ZERO, None, part(3, 9, 0, 1000)) {
            Stored::Held(_, evicted) => assert_eq!(evicted[0].1.header.source, Guid([2; 32])),
            other => panic!("{other:?}"),
        }
        assert!(store.get(second).is_none());
        assert!(store.get(first).is_some());
    }

    /// Whoever fills the storage loses its own chunks, not those of others.
    #[test]
    fn who_has_the_most_gives_first() {
        let mut store = store(32_500, 32_500);
        let (honest, flood) = (Some(PortId(1)), Some(PortId(2)));
        let kept: Vec<StoreId> = (0..3)
            .map(|index| held(store.store(Time::ZERO, honest, part(1, 9, index, 1000))))
            .collect();
        for number in 0..100 {
            let stored = store.store(Time::ZERO, flood, part(2, number, 0, 1000));
            let Stored::Held(_, evicted) = stored else {
                panic!("{stored:?}");
            };
            assert!(
                evicted
                    .iter()
                    .all(|(_, it)| it.header.source == Guid([2; 32]))
            );
        }
        assert!(kept.iter().all(|id| store.get(*id).is_some()));
        // There is room for a third one, at the cost of the flood.
        let third = store.store(Time::ZERO, Some(PortId(3)), part(3, 9, 0, 1000));
        let Stored::Held(_, evicted) = third else {
            panic!("{third:?}");
        };
        assert_eq!(evicted[0].1.header.source, Guid([2; 32]));
        // The honest one grows until both have the same.
        for index in 3..20 {
            store.store(Time::ZERO, honest, part(1, 9, index, 1000));
        }
        assert_eq!(
            (
                store.by_owner[&honest].ids.len(),
                store.by_owner[&flood].ids.len()
            ),
            (4, 4)
        );
    }

    #[test]
    fn the_same_chunk_is_stored_once() {
        let mut store = store(10_000, 10_000);
        held(store.store(Time::ZERO, None, part(1, 2, 5, 100)));
        assert_eq!(
            store.store(Time::ZERO, None, part(1, 2, 5, 100)),
            Stored::Duplicate
        );
        assert!(
            store
                .find(
                    Flow {
                        source: Guid([1; 32]),
                        destination: Guid([2; 32])
                    },
                    Guid([9; 32]),
                    5
                )
                .is_some()
        );
    }

    #[test]
    fn what_is_leaving_counts_in_the_total() {
        let mut store = store(12_000, 12_000);
        let leaving: Vec<_> = (0..2)
            .map(|index| held(store.store(Time::ZERO, None, part(1, 9, index, 1000))))
            .collect();
        let leaving: Vec<_> = leaving.into_iter().map(|id| store.take(id)).collect();
        assert_eq!(
            (store.bytes(), store.leaving_bytes()),
            (0, 2 * store_size())
        );
        let first = held(store.store(Time::ZERO, None, part(2, 9, 0, 1000)));
        match store.store(Time::ZERO, None, part(3, 9, 0, 1000)) {
            Stored::Held(_, evicted) => assert_eq!(evicted[0].0, first),
            other => panic!("{other:?}"),
        }
        assert!(matches!(
            store.store(Time::ZERO, None, part(4, 9, 0, 5000)),
            Stored::FlowFull(_)
        ));
        drop(leaving);
        assert_eq!(store.leaving_bytes(), 0);
    }

    #[test]
    fn a_chunk_goes_when_its_lifetime_ends() {
        let mut store = store(10_000, 10_000);
        let mut short = part(1, 2, 0, 100);
        short.header.extensions.lifetime_ms = Some(1000);
        held(store.store(Time::ZERO, None, short));
        held(store.store(Time::ZERO, None, part(1, 2, 1, 100)));
        assert!(store.take_expired(Time::from_millis(999)).is_none());
        assert!(store.take_expired(Time::from_millis(1000)).is_some());
        assert_eq!(store.next_expiry(), Some(Time::from_secs(60)));
    }

    proptest! {
        /// Compares with a list that is searched from end to end.
        #[test]
        fn accounts_like_a_list(
            steps in prop::collection::vec((0u8..3, 0u8..4, 0u8..3, 0u32..6, 1usize..500), 1..120),
        ) {
            let mut store = store(10_000, 6_000);
            // Least recently used first: flow, then its chunks in order of arrival.
            let mut model: Vec<(Flow, Vec<Chunk>)> = Vec::new();
            for (step, source, destination, index, size) in steps {
                let chunk = part(source, destination, index, size);
                let flow = chunk.flow();
                let bytes = |list: &[Chunk]| list.iter().map(charge_of).sum::<u64>();
                let at = model.iter().position(|(known, _)| *known == flow);
                if step < 2 {
                    let stored = store.store(Time::ZERO, None, chunk.clone());
                    let of_flow = at.map_or(&[][..], |at| &model[at].1);
                    if of_flow.iter().any(|old| old.data().map(|d| d.index) == Some(index)) {
                        prop_assert_eq!(stored, Stored::Duplicate);
                        continue;
                    }
                    if bytes(of_flow) + charge_of(&chunk) > 6_000 {
                        prop_assert_eq!(stored, Stored::FlowFull(chunk));
                        continue;
                    }
                    let mut expected = Vec::new();
                    while model.iter().map(|(_, list)| bytes(list)).sum::<u64>() + charge_of(&chunk) > 10_000 {
                        expected.push(model[0].1.remove(0));
                        model.retain(|(_, list)| !list.is_empty());
                    }
                    let Stored::Held(_, evicted) = stored else { panic!("{stored:?}") };
                    prop_assert_eq!(evicted.into_iter().map(|(_, chunk)| chunk).collect::<Vec<_>>(), expected);
                    let mut of_flow = model.iter().position(|(known, _)| *known == flow)
                        .map_or(Vec::new(), |at| model.remove(at).1);
                    of_flow.push(chunk);
                    model.push((flow, of_flow));
                } else {
                    let id = store.find(flow, Guid([9; 32]), index);
                    let taken = id.and_then(|id| store.take(id)).map(|(chunk, _)| chunk);
                    let expected = at.and_then(|at| {
                        let (_, list) = &mut model[at];
                        let found = list.iter().position(|old| old.data().map(|d| d.index) == Some(index))?;
                        Some(list.remove(found))
                    });
                    prop_assert_eq!(&taken, &expected);
                    if taken.is_some() {
                        let entry = model.remove(at.expect("the flow"));
                        if !entry.1.is_empty() {
                            model.push(entry);
                        }
                    }
                }
                prop_assert_eq!(store.bytes(), model.iter().map(|(_, list)| bytes(list)).sum::<u64>());
                let owned: u64 = store.by_owner.values().map(|it| it.bytes).sum();
                prop_assert_eq!((owned, store.owners.len()), (store.bytes(), store.by_owner.len()));
                prop_assert_eq!(store.len(), model.iter().map(|(_, list)| list.len()).sum::<usize>());
                let to_same = model.iter().filter(|(it, _)| it.destination == flow.destination);
                let of_content = to_same.flat_map(|(_, list)| list.iter().filter_map(Chunk::data));
                let mut wanted: Vec<(u8, u32)> = of_content.map(|it| (it.chunk_log2, it.index)).collect();
                wanted.sort_unstable();
                let found: Vec<_> = store.data_for(flow.destination, Guid([9; 32])).collect();
                prop_assert_eq!(found, wanted);
                prop_assert_eq!(store.data_for(flow.destination, Guid([8; 32])).count(), 0);
            }
        }
    }
}
