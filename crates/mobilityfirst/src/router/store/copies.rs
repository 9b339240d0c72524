//! Verified copies of chunks, by the content's name: kept for producers, cached for everybody.
//!
//! A copy is one that its proof has shown to belong to the name, so that whoever asks for the name may have
//! it [MFTP §3.2.1]. All copies of a content have one chunk size.

use std::collections::BTreeMap;

use hashlink::LinkedHashMap;
use whimbrel_content::{ChunkSize, Proof, verify_chunk};
use whimbrel_core::{Guid, KeyedState, SeededRng, Time, TimerQueue};
use whimbrel_link::{Pool, Room};

use super::{ENTRY_BYTES, MAX_LOOKED_AT, Purpose};
use crate::chunk::Chunk;
use crate::handed::HandedOver;
use crate::wire::{ChunkRanges, Data, NetworkHeader, Request};

/// A copy's place: content and index.
pub(in crate::router) type CopyKey = (Guid, u32);
type EvictionOrder = LinkedHashMap<CopyKey, (), KeyedState>;

#[derive(Debug)]
struct Copy {
    chunk: Chunk,
    room: Room,
    purpose: Purpose,
    audience: Audience,
}

/// The clients that may have a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// Clients that know the content's name.
    Anyone,
    /// The receiver that it is offered to.
    Receiver(Guid),
    /// Members of the group that it is offered to. They know the id of the offer, as all that have seen a chunk
    /// of it.
    Members,
}

impl Audience {
    fn of(header: &NetworkHeader) -> Audience {
        match header.extensions.offer {
            None => Audience::Anyone,
            Some(_) if header.is_of_group() => Audience::Members,
            Some(_) => Audience::Receiver(header.destination),
        }
    }
}

impl Copy {
    /// The chunk has come once more. Of several offers to groups the last one counts.
    fn note_again(&mut self, header: &NetworkHeader, audience: Audience) {
        match (self.audience, audience) {
            // Clients that fetch it by its name know that.
            (_, Audience::Anyone) => self.audience = audience,
            (Audience::Members, Audience::Members) => self.chunk.header = header.clone(),
            _ => {}
        }
    }

    /// Returns true if the sender of a request may have it.
    fn is_for(&self, asked: &NetworkHeader) -> bool {
        let was = &self.chunk.header;
        match self.audience {
            Audience::Anyone => true,
            Audience::Receiver(only) => only == asked.source,
            Audience::Members => {
                let id = asked.extensions.request;
                was.source == asked.destination && id.is_some() && id == was.extensions.request
            }
        }
    }
}

/// The copies of one content.
#[derive(Debug)]
struct OfContent {
    chunk_log2: u8,
    // Its number of chunks, once its last one has proven it.
    count: Option<u32>,
    chunks: BTreeMap<u32, Copy>,
}

/// All copies.
#[derive(Debug)]
pub(in crate::router) struct Copies {
    // Bound of the cached ones, in bytes.
    limit: u64,
    pool: Pool,
    by_content: BTreeMap<Guid, OfContent>,
    // Least recently asked for first.
    cached: EvictionOrder,
    // Oldest first.
    kept: EvictionOrder,
    // When kept copies expire: in another order, for their producers choose the times.
    expiries: TimerQueue<CopyKey>,
    cached_bytes: u64,
    kept_bytes: u64,
    // Of these, of each producer.
    kept_of: BTreeMap<Guid, u64>,
}

/// What a copy is, beside its chunk.
#[derive(Clone, Copy, Debug)]
pub(in crate::router) struct CopyTerms {
    pub(in crate::router) purpose: Purpose,
    pub(in crate::router) expires: Option<Time>,
}

/// Returns true if the chunk is proven to belong to its content, under its index.
pub(in crate::router) fn is_proven(data: &Data) -> bool {
    let (Some(size), Ok((proof, []))) = (
        ChunkSize::from_code(data.chunk_log2),
        Proof::decode(&data.proof),
    ) else {
        return false;
    };
    let (index, payload) = (data.index.into(), &data.payload);
    verify_chunk(data.content, data.content_len, size, index, payload, &proof).is_ok()
}

/// Returns the number of chunks, if this chunk of a content is its last: then it proves the length.
fn proven_count(data: &Data) -> Option<u32> {
    let count = ChunkSize::from_code(data.chunk_log2)?.count(data.content_len);
    let count = u32::try_from(count).ok()?;
    (data.index + 1 == count).then_some(count)
}

fn size_of(chunk: &Chunk) -> u64 {
    chunk.size() as u64 + ENTRY_BYTES
}

impl Copies {
    pub(super) fn new(limit: u64, pool: Pool, rng: &mut SeededRng) -> Copies {
        let hasher = KeyedState::new(rng);
        Copies {
            limit,
            pool,
            by_content: BTreeMap::new(),
            cached: LinkedHashMap::with_hasher(hasher),
            kept: LinkedHashMap::with_hasher(hasher),
            expiries: TimerQueue::new(),
            cached_bytes: 0,
            kept_bytes: 0,
            kept_of: BTreeMap::new(),
        }
    }

    /// Returns true if this node caches at all.
    pub(in crate::router) fn is_caching(&self) -> bool {
        self.limit > 0
    }

    /// Returns the bound of cached copies, in bytes.
    pub(in crate::router) fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes of the copies of a purpose.
    pub(in crate::router) fn bytes(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Stored => 0,
            Purpose::Kept => self.kept_bytes,
            Purpose::Cached => self.cached_bytes,
        }
    }

    /// Returns the bytes of all copies.
    pub(super) fn all_bytes(&self) -> u64 {
        self.kept_bytes + self.cached_bytes
    }

    /// Returns true if a chunk that is offered to a group is here, for this offer.
    pub(in crate::router) fn has_offered(&self, header: &NetworkHeader, data: &Data) -> bool {
        let of = self.by_content.get(&data.content);
        let of = of.filter(|of| of.chunk_log2 == data.chunk_log2);
        let copy = of.and_then(|of| of.chunks.get(&data.index));
        copy.is_some_and(|copy| {
            let was = &copy.chunk.header;
            was.source == header.source && was.extensions.request == header.extensions.request
        })
    }

    /// Returns the chunk size of a content's copies.
    pub(in crate::router) fn chunk_log2(&self, content: &Guid) -> Option<u8> {
        self.by_content.get(content).map(|of| of.chunk_log2)
    }

    /// Returns the number of a content's chunks, if a copy proves it.
    pub(in crate::router) fn count_of(&self, content: &Guid) -> Option<u32> {
        self.by_content.get(content)?.count
    }

    /// Returns true if all chunks of a content are here.
    pub(in crate::router) fn is_whole(&self, content: &Guid) -> bool {
        let of = self.by_content.get(content);
        of.is_some_and(|of| of.count == Some(of.chunks.len() as u32))
    }

    /// Returns the copies among these chunks that a client may have, of the size of the content's copies: of
    /// 4,096 at most.
    pub(in crate::router) fn among(
        &self,
        content: &Guid,
        client: &NetworkHeader,
        asked: &ChunkRanges,
    ) -> ChunkRanges {
        let mut here = ChunkRanges::default();
        let Some(of) = self.by_content.get(content) else {
            return here;
        };
        let copies = asked.iter().flat_map(|range| of.chunks.range(range));
        let copies = copies.filter(|(_, copy)| copy.is_for(client));
        let indices = copies.map(|(index, _)| *index);
        indices
            .take(MAX_LOOKED_AT)
            .for_each(|index| here.insert(index));
        here
    }

    /// Returns a copy for the sender of a request, and its room. A cached one counts as asked for now.
    pub(in crate::router) fn get(
        &mut self,
        key: &CopyKey,
        asked: &NetworkHeader,
    ) -> Option<(&Chunk, Room)> {
        self.cached.to_back(key);
        let copy = self.by_content.get(&key.0)?.chunks.get(&key.1)?;
        let copy = Some(copy).filter(|copy| copy.is_for(asked))?;
        Some((&copy.chunk, copy.room.clone()))
    }

    /// Takes a proven chunk, in memory that `free` bytes of the storage's total leave: cached copies go
    /// first. A copy that is kept stays so. Smaller chunks of a content take the place of larger ones.
    /// Returns false if there is no room.
    pub(super) fn insert(
        &mut self,
        chunk: &Chunk,
        data: &Data,
        keeping: CopyTerms,
        mut free: u64,
    ) -> bool {
        let (key, size) = ((data.content, data.index), size_of(chunk));
        let audience = Audience::of(&chunk.header);
        match self.chunk_log2(&data.content) {
            Some(here) if here < data.chunk_log2 => return false,
            Some(here) if here > data.chunk_log2 => free += self.forget(&data.content),
            _ => {}
        }
        if let Some(copy) = self.copy_mut(&key) {
            if copy.purpose == Purpose::Kept || keeping.purpose == Purpose::Cached {
                copy.note_again(&chunk.header, audience);
                return true;
            }
            free += self.remove(&key);
        }
        let is_cached = keeping.purpose == Purpose::Cached;
        while size > free || is_cached && self.cached_bytes + size > self.limit {
            match self.evict(Purpose::Cached) {
                Some((_, bytes)) => free += bytes,
                None => return false,
            }
        }
        let of = self
            .by_content
            .entry(data.content)
            .or_insert_with(|| OfContent {
                chunk_log2: data.chunk_log2,
                count: None,
                chunks: BTreeMap::new(),
            });
        of.count = of.count.or(proven_count(data));
        let copy = Copy {
            chunk: chunk.clone(),
            room: self.pool.hold(size),
            purpose: keeping.purpose,
            audience,
        };
        of.chunks.insert(data.index, copy);
        match is_cached {
            true => {
                self.cached.insert(key, ());
                self.cached_bytes += size;
            }
            false => {
                self.kept.insert(key, ());
                if let Some(expires) = keeping.expires {
                    self.expiries.set(key, expires);
                }
                self.kept_bytes += size;
                *self.kept_of.entry(chunk.header.source).or_default() += size;
            }
        }
        true
    }

    fn copy_mut(&mut self, key: &CopyKey) -> Option<&mut Copy> {
        self.by_content.get_mut(&key.0)?.chunks.get_mut(&key.1)
    }

    /// Removes the oldest copy of a purpose; returns it and its bytes.
    pub(super) fn evict(&mut self, purpose: Purpose) -> Option<(Chunk, u64)> {
        let order = match purpose {
            Purpose::Stored => return None,
            Purpose::Kept => &self.kept,
            Purpose::Cached => &self.cached,
        };
        let key = *order.front()?.0;
        let chunk = self.copy_mut(&key).map(|copy| copy.chunk.clone())?;
        Some((chunk, self.remove(&key)))
    }

    /// Removes a kept copy whose time is over, if there is one.
    pub(super) fn take_expired(&mut self, now: Time) -> Option<Chunk> {
        let (_, key) = self.expiries.pop_due(now)?;
        let chunk = self.copy_mut(&key).map(|copy| copy.chunk.clone())?;
        self.remove(&key);
        Some(chunk)
    }

    /// When the next kept copy expires.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.expiries.next().map(|(at, _)| at)
    }

    /// Frees the kept copies of what a source has sent to this receiver alone, and that it acknowledges.
    pub(super) fn free_kept(&mut self, header: &NetworkHeader, ack: &Request) -> u64 {
        let Some(of) = self.by_content.get(&ack.content) else {
            return 0;
        };
        let is_meant = |copy: &Copy| {
            let was = &copy.chunk.header;
            copy.purpose == Purpose::Kept
                && copy.audience == Audience::Receiver(header.source)
                && was.source == header.destination
                && was.extensions.request == header.extensions.request
        };
        let Some(parts) = ack.chunk_log2.checked_sub(of.chunk_log2) else {
            return 0;
        };
        let chunks = ack.chunks.divided(parts);
        let copies = chunks.iter().flat_map(|range| of.chunks.range(range));
        let done = copies.filter(|(_, copy)| is_meant(copy));
        let done: Vec<u32> = done.map(|(index, _)| *index).collect();
        for index in &done {
            self.remove(&(ack.content, *index));
        }
        done.len() as u64
    }

    /// Returns the kept copies of chunks that a neighbour has lost, with their indices and room.
    pub(in crate::router) fn kept_of(
        &self,
        handed: &HandedOver,
    ) -> impl Iterator<Item = (Chunk, u32, Room)> {
        let of = self.by_content.get(&handed.content).into_iter();
        let ranges = of.flat_map(|of| handed.chunks.iter().map(move |range| (of, range)));
        let copies = ranges.flat_map(|(of, range)| of.chunks.range(range));
        let is_meant =
            |copy: &&Copy| copy.purpose == Purpose::Kept && copy.chunk.flow() == handed.flow;
        let kept = copies.filter(move |(_, copy)| is_meant(copy));
        kept.map(|(index, copy)| (copy.chunk.clone(), *index, copy.room.clone()))
    }

    /// Returns the bytes that are kept for a producer.
    pub(super) fn kept_bytes_of(&self, source: &Guid) -> u64 {
        self.kept_of.get(source).copied().unwrap_or_default()
    }

    /// Forgets all copies of a content; returns their bytes.
    pub(in crate::router) fn forget(&mut self, content: &Guid) -> u64 {
        let of = self.by_content.get(content);
        let indices: Vec<u32> = of.map_or(Vec::new(), |of| of.chunks.keys().copied().collect());
        let freed = indices
            .into_iter()
            .map(|index| self.remove(&(*content, index)));
        freed.sum()
    }

    /// Removes a copy; returns its bytes.
    pub(in crate::router) fn remove(&mut self, key: &CopyKey) -> u64 {
        let Some(of) = self.by_content.get_mut(&key.0) else {
            return 0;
        };
        let Some(copy) = of.chunks.remove(&key.1) else {
            return 0;
        };
        if of.chunks.is_empty() {
            self.by_content.remove(&key.0);
        }
        let size = size_of(&copy.chunk);
        match copy.purpose {
            Purpose::Cached => {
                self.cached.remove(key);
                self.cached_bytes -= size;
            }
            Purpose::Kept | Purpose::Stored => {
                self.kept.remove(key);
                self.expiries.cancel(key);
                self.kept_bytes -= size;
                let producer = copy.chunk.header.source;
                if let Some(bytes) = self.kept_of.get_mut(&producer) {
                    *bytes -= size;
                    if *bytes == 0 {
                        self.kept_of.remove(&producer);
                    }
                }
            }
        }
        size
    }
}
