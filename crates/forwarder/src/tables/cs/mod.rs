//! The content store: Data kept to answer later Interests.

pub(super) mod policy;
mod prefixes;
#[cfg(test)]
mod tests;

use core::time::Duration;

use whimbrel_core::Time;
use whimbrel_ndn_packet::{DataRef, InterestRef, MAX_PACKET, NameRef, SharedPacket, types};

use crate::config::CsConfig;
use crate::tables::index::{Index, NONE, Slab};
use crate::tables::name_key::{Depths, MAX_DEPTH, NameHasher, NameKey};
use crate::tables::prefetch;
use policy::{Linked, Links, Policy};
use prefixes::{LISTING_BYTES, Prefixes};

/// Octets that an entry counts in addition to its packet: itself, its index cell, and the
/// allocator's overhead.
pub(crate) const ENTRY_BYTES: usize = 224;
/// Maximum of Data with one name and different content. Beyond it the first of them is evicted.
pub(crate) const MAX_VARIANTS: usize = 4;
/// Maximum of Data under a prefix that are checked for freshness, newest first.
const MAX_FRESHNESS_CHECKS: usize = 128;
/// The number of older Data listed with each new one when a length of prefixes has been enabled,
/// and in each step of a search.
const CATCH_UP: usize = 64;
/// Maximum of older Data that one search lists: a store of 128 MiB has about as many packets of
/// 1,000 octets. Each is listed once for each length; searches of a larger store may miss until all
/// are.
const MAX_LISTED_PER_SEARCH: usize = 1 << 17;

#[derive(Clone, Debug)]
struct Entry {
    data: SharedPacket,
    /// Offset and length of the name's value in `data`.
    name: (u16, u16),
    hash: u64,
    fresh_until: Time,
    freshness: Duration,
    links: Links,
    /// Its first listing under a prefix.
    listing: u32,
    /// SHA-256 of the packet, computed on first use.
    digest: Option<Box<[u8; 32]>>,
}

impl Entry {
    #[inline]
    fn name(&self) -> &[u8] {
        let (at, len) = (usize::from(self.name.0), usize::from(self.name.1));
        self.data.get(at..at + len).unwrap_or_default()
    }
}

impl Entry {
    /// Prefetches the whole packet: it will be sent; or when it is evicted, its memory will likely
    /// hold the next one.
    fn prefetch_packet(&self) {
        prefetch::octets(&self.data);
    }
}

impl Linked for Entry {
    fn links(&self) -> &Links {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
    fn hash(&self) -> u64 {
        self.hash
    }
}

/// An answer of the content store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsHit {
    /// The packet.
    pub data: SharedPacket,
    /// Its FreshnessPeriod.
    pub freshness: Duration,
}

/// The content store.
#[derive(Clone, Debug)]
pub struct Cs {
    config: CsConfig,
    hasher: NameHasher,
    entries: Slab<Entry>,
    /// By the hash of the name; Data of the same name are adjacent.
    index: Index,
    policy: Policy,
    prefixes: Prefixes,
    /// Enabled lengths of prefixes, each with the first slot to list next.
    catching_up: Vec<(usize, u32)>,
    /// Whether Data is admitted (NFD: CS_ENABLE_ADMIT).
    pub admit: bool,
    /// Whether Interests are answered (NFD: CS_ENABLE_SERVE).
    pub serve: bool,
}

impl Cs {
    pub(crate) fn new(config: CsConfig, hasher: NameHasher) -> Cs {
        Cs {
            config,
            hasher,
            entries: Slab::new(),
            index: Index::new(),
            policy: Policy::new(config.policy),
            prefixes: Prefixes::new(),
            catching_up: Vec::new(),
            admit: true,
            serve: true,
        }
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the store is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Octets that count against its capacity.
    pub fn bytes(&self) -> usize {
        self.policy.bytes() + self.prefixes.len() * LISTING_BYTES
    }

    /// Maximum of octets.
    pub fn capacity(&self) -> usize {
        self.config.capacity
    }

    /// Maximum of packets.
    pub fn max_packets(&self) -> usize {
        self.config.max_packets
    }

    /// Changes its capacity; excess packets are evicted at once.
    pub fn set_capacity(&mut self, capacity: usize, max_packets: usize) {
        self.config.capacity = capacity;
        self.config.max_packets = max_packets;
        self.evict();
    }

    /// Removes at most `limit` Data under a prefix and returns their number. Scans every entry.
    pub fn erase(&mut self, prefix: NameRef<'_>, limit: usize) -> usize {
        let slots: Vec<u32> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.name().starts_with(prefix.value()))
            .map(|(slot, _)| slot)
            .take(limit)
            .collect();
        for slot in &slots {
            self.policy.remove(&mut self.entries, *slot);
            self.forget(*slot);
        }
        slots.len()
    }

    /// Admits a Data; `data` is the whole packet, `decoded` its view, `key` that of its name.
    /// Returns false if it is not kept.
    pub(crate) fn insert(
        &mut self,
        now: Time,
        data: &SharedPacket,
        decoded: &DataRef<'_>,
        key: &NameKey,
    ) -> bool {
        let size = data.len() + ENTRY_BYTES;
        let admits = self.admit && self.admits(key);
        if !admits || size > self.config.capacity || self.config.max_packets == 0 {
            return false;
        }
        let name = decoded.name.value();
        if let Some(known) = self.make_room_for_variant(data, name, key.full()) {
            if let Some(entry) = self.entries.get_mut(known) {
                entry.fresh_until = now + decoded.freshness;
            }
            self.policy.touch(&mut self.entries, known);
            self.list(known, key, true);
            return true;
        }
        let offset = name.as_ptr() as usize - decoded.wire.as_ptr() as usize;
        let slot = self.entries.insert(Entry {
            data: data.clone(),
            name: (offset as u16, name.len() as u16),
            hash: key.full(),
            fresh_until: now + decoded.freshness,
            freshness: decoded.freshness,
            links: Links::new(size as u32),
            listing: NONE,
            digest: None,
        });
        self.index.insert(key.full(), slot);
        self.policy.insert(&mut self.entries, slot);
        if self.prefixes.depths != 0 {
            self.list(slot, key, true);
            if let Some((depth, _)) = self.catching_up.last().copied() {
                self.catch_up(depth);
            }
        }
        self.evict();
        true
    }

    /// Returns whether a name is among those of which Data is admitted.
    fn admits(&self, key: &NameKey) -> bool {
        let percent = self.config.admitted_percent;
        percent >= 100 || (u128::from(key.full()) * 100) >> 64 < u128::from(percent)
    }

    /// Returns the entry of this very packet if it exists. If the name has too many others, evicts
    /// the first of them.
    fn make_room_for_variant(
        &mut self,
        data: &SharedPacket,
        name: &[u8],
        hash: u64,
    ) -> Option<u32> {
        let (mut variants, mut first) = (0, NONE);
        let same = self.index.find(hash, |slot| {
            let Some(entry) = self.entries.get(slot).filter(|entry| entry.name() == name) else {
                return false;
            };
            variants += 1;
            first = if variants == 1 { slot } else { first };
            entry.data == *data
        });
        if same.is_none() && variants >= MAX_VARIANTS {
            self.policy.remove(&mut self.entries, first);
            self.forget(first);
        }
        same
    }

    /// Lengths of prefixes whose hashes it needs.
    #[inline]
    pub(crate) const fn depths(&self) -> Depths {
        self.prefixes.depths
    }

    /// Returns true if it admits any Data.
    pub(crate) const fn keeps(&self) -> bool {
        self.admit && self.config.capacity > ENTRY_BYTES && self.config.max_packets > 0
    }

    /// Prefetches the cell of a name's Data.
    #[inline]
    pub(crate) fn prefetch_cell(&self, key: &NameKey) {
        self.index.prefetch(key.full());
    }

    /// Prefetches the entry likely found there.
    #[inline]
    pub(crate) fn prefetch_entry(&self, key: &NameKey) {
        self.entries.prefetch(self.index.guess(key.full()));
    }

    /// Prefetches that entry's packet.
    #[inline]
    pub(crate) fn prefetch_packet(&self, key: &NameKey) {
        if let Some(entry) = self.entries.get(self.index.guess(key.full())) {
            entry.prefetch_packet();
        }
    }

    /// Prefetches the memory used by the eviction of as many entries as new ones will replace.
    pub(crate) fn prefetch_victims(&self, count: usize) {
        for entry in self
            .policy
            .next_victims(&self.entries)
            .take(self.expected_victims(count))
        {
            self.index.prefetch(entry.hash);
            entry.prefetch_packet();
        }
    }

    fn expected_victims(&self, count: usize) -> usize {
        let is_nearly_full = self.bytes() + count * MAX_PACKET > self.config.capacity;
        if is_nearly_full { count } else { 0 }
    }

    /// Finds the Data that satisfies an Interest, whose name's key is `key`.
    pub(crate) fn find(
        &mut self,
        now: Time,
        interest: &InterestRef<'_>,
        key: &NameKey,
    ) -> Option<CsHit> {
        if !self.serve || self.entries.len() == 0 {
            return None;
        }
        let slot = self.search(now, interest, key)?;
        self.policy.touch(&mut self.entries, slot);
        let entry = self.entries.get(slot)?;
        Some(CsHit {
            data: entry.data.clone(),
            freshness: entry.freshness,
        })
    }

    fn search(&mut self, now: Time, interest: &InterestRef<'_>, key: &NameKey) -> Option<u32> {
        let name = interest.name.value();
        let satisfies = |entry: &Entry| !interest.must_be_fresh || entry.fresh_until > now;
        let exact = self.index.find(key.full(), |slot| {
            self.entries
                .get(slot)
                .is_some_and(|entry| entry.name() == name && satisfies(entry))
        });
        if exact.is_some() {
            return exact;
        }
        if let Some(digest) = implicit_digest(name) {
            return self.search_digest(interest.name, key, digest, satisfies);
        }
        if !interest.can_be_prefix || key.components() > MAX_DEPTH {
            return None;
        }
        let depth = key.components();
        self.switch_on(depth);
        for _ in 0..MAX_LISTED_PER_SEARCH / CATCH_UP {
            let under = |slot: u32| {
                self.entries
                    .get(slot)
                    .is_some_and(|entry| entry.name().starts_with(name))
            };
            let found = self
                .prefixes
                .entries(key.full(), depth, under)
                .take(MAX_FRESHNESS_CHECKS)
                .find(|slot| self.entries.get(*slot).is_some_and(satisfies));
            // The Data may be among those not yet listed.
            if found.is_some() || !self.catch_up(depth) {
                return found;
            }
        }
        None
    }

    fn search_digest(
        &mut self,
        full_name: NameRef<'_>,
        key: &NameKey,
        digest: &[u8],
        satisfies: impl Fn(&Entry) -> bool,
    ) -> Option<u32> {
        let depth = key.components() - 1;
        let name = full_name.prefix(depth);
        let hash = self.hasher.hash(name);
        let mut variants = [NONE; MAX_VARIANTS];
        let mut count = 0;
        self.index.find(hash, |slot| {
            if self
                .entries
                .get(slot)
                .is_some_and(|entry| entry.name() == name.value() && satisfies(entry))
                && let Some(place) = variants.get_mut(count)
            {
                *place = slot;
                count += 1;
            }
            false
        });
        variants.into_iter().take(count).find(|slot| {
            let Some(entry) = self.entries.get_mut(*slot) else {
                return false;
            };
            let data = &entry.data;
            let known = entry.digest.get_or_insert_with(|| {
                Box::new(
                    DataRef::decode(data)
                        .map(|data| data.implicit_digest())
                        .unwrap_or_default(),
                )
            });
            known.as_slice() == digest
        })
    }

    /// Enables lists of prefixes of this length.
    fn switch_on(&mut self, depth: usize) {
        if self.prefixes.depths & (1 << depth) == 0 {
            self.prefixes.depths |= 1 << depth;
            self.catching_up.push((depth, 0));
        }
    }

    /// Lists a few older Data for an enabled length; returns false if all are listed.
    fn catch_up(&mut self, depth: usize) -> bool {
        let Some(at) = self.catching_up.iter().position(|(of, _)| *of == depth) else {
            return false;
        };
        let from = self.catching_up.get(at).map_or(0, |(_, from)| *from);
        let to = (from as usize + CATCH_UP).min(self.entries.places()) as u32;
        let mut key = NameKey::default();
        for slot in from..to {
            let Some(entry) = self.entries.get(slot) else {
                continue;
            };
            if key.decode(&self.hasher, entry.name(), 1 << depth).is_ok() {
                self.list_at(slot, &key, depth, false);
            }
        }
        match self.catching_up.get_mut(at) {
            Some(rest) if (to as usize) < self.entries.places() => rest.1 = to,
            _ => drop(self.catching_up.remove(at)),
        }
        self.evict();
        true
    }

    /// Lists an entry under its prefixes of all enabled lengths.
    fn list(&mut self, slot: u32, key: &NameKey, as_newest: bool) {
        let mut depths = self.prefixes.depths & key.depths();
        if depths == 0 {
            return;
        }
        if let Some(entry) = self.entries.get_mut(slot) {
            self.prefixes.remove(entry.listing);
            entry.listing = NONE;
        }
        while depths != 0 {
            let depth = depths.trailing_zeros() as usize;
            depths &= depths - 1;
            self.list_at(slot, key, depth, as_newest);
        }
    }

    fn list_at(&mut self, slot: u32, key: &NameKey, depth: usize, as_newest: bool) {
        let Some(entry) = self.entries.get(slot) else {
            return;
        };
        if depth >= key.components() || self.prefixes.lists(entry.listing, depth) {
            return;
        }
        let prefix = entry.name().get(..key.end(depth)).unwrap_or_default();
        let under = |slot: u32| {
            self.entries
                .get(slot)
                .is_some_and(|entry| entry.name().starts_with(prefix))
        };
        let first = self.prefixes.add(
            (slot, entry.listing),
            (key.prefix(depth), depth),
            as_newest,
            under,
        );
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.listing = first;
        }
    }

    fn evict(&mut self) {
        while self.bytes() > self.config.capacity || self.entries.len() > self.config.max_packets {
            let Some(slot) = self.policy.evict(&mut self.entries) else {
                return;
            };
            self.forget(slot);
        }
    }

    /// Removes an entry that its policy has released.
    fn forget(&mut self, slot: u32) {
        if let Some(entry) = self.entries.remove(slot) {
            self.index.remove(entry.hash, slot);
            self.prefixes.remove(entry.listing);
        }
    }
}

/// Returns the implicit digest at the end of a name, given by its value.
#[inline]
pub(crate) fn implicit_digest(name: &[u8]) -> Option<&[u8]> {
    // A digest component has 34 octets: most names are ruled out by their size or by two octets.
    let (head, digest) = name
        .get(name.len().checked_sub(34)?..)?
        .split_at_checked(2)?;
    let alike = head == [types::IMPLICIT_SHA256_DIGEST as u8, 32];
    (alike && ends_in_digest(name)).then_some(digest)
}

/// The octets of a digest component may also occur within a longer component.
fn ends_in_digest(name: &[u8]) -> bool {
    let last = NameRef::from_value(name).ok().and_then(|name| name.last());
    last.is_some_and(|last| u64::from(last.typ()) == types::IMPLICIT_SHA256_DIGEST)
}
