//! The pending Interest table.

mod entry;
#[cfg(test)]
mod tests;

use core::num::NonZeroU64;

use smallvec::SmallVec;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{DataRef, InterestRef, NameRef};

use crate::face::FaceId;
use crate::tables::cs::implicit_digest;
use crate::tables::expiry::Wheel;
use crate::tables::index::{Index, NONE};
use crate::tables::name_key::{Depths, MAX_DEPTH, NameHasher, NameKey};
use entry::Entries;
pub use entry::{Entry, InRecord, OutRecord, PathRole};
pub(crate) use entry::{Onward, Selectors};

/// Maximum of pending Interests that have the same name and differ by selectors and forwarding
/// hints, or that differ by implicit digest alone: flooding one name does not make long chains.
/// Faces share them, see [`Pit::variant_to_displace`].
pub(crate) const MAX_VARIANTS: usize = 16;

/// The slots of entries that a Data satisfies.
pub(crate) type Matches = SmallVec<[u32; 4]>;

/// The pending Interests.
#[derive(Clone, Debug)]
pub struct Pit {
    hasher: NameHasher,
    entries: Entries,
    /// The first entry of each name.
    names: Index,
    /// The first entry of those whose name ends in an implicit digest, by the name before it.
    digests: Index,
    /// The number of entries with CanBePrefix by the number of components.
    prefix_depths: [u32; MAX_DEPTH + 1],
    /// Bit `n` is set if there is one with `n`.
    prefix_depths_taken: u64,
    wheel: Wheel,
    capacity: usize,
    /// Octets of Interests that are too large for their entries, and the bound of these.
    octets: usize,
    max_octets: usize,
}

/// Octets of large Interests for each entry that the PIT may have, and in any case.
const OCTETS_PER_ENTRY: usize = 256;
const LEAST_OCTETS: usize = 1 << 20;

impl Pit {
    pub(crate) fn new(hasher: NameHasher, capacity: usize) -> Pit {
        Pit {
            hasher,
            entries: Entries::default(),
            names: Index::new(),
            digests: Index::new(),
            prefix_depths: [0; MAX_DEPTH + 1],
            prefix_depths_taken: 0,
            wheel: Wheel::new(),
            capacity: capacity.clamp(1, 1 << 30),
            octets: 0,
            max_octets: capacity.saturating_mul(OCTETS_PER_ENTRY).max(LEAST_OCTETS),
        }
    }

    /// Octets of the Interests that are too large for their entries.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Returns true if an Interest of this many octets would exceed their bound.
    pub(crate) fn lacks_octets(&self, len: usize) -> bool {
        len > entry::INLINE && self.octets + len > self.max_octets
    }

    /// Octets of an entry that count against their bound.
    pub(crate) fn octets_of(&self, slot: u32) -> u32 {
        self.entries.get(slot).map_or(0, |entry| entry.counted)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the PIT is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Returns all entries, in no meaningful order.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    pub(crate) const fn places(&self) -> u32 {
        self.entries.places() as u32
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot)
    }

    /// Returns the first entry of a name; the others follow by [`Entry::next`].
    #[inline]
    fn first(&self, hash: u64, name: &[u8]) -> u32 {
        let is_it = |slot| {
            self.entries
                .get(slot)
                .is_some_and(|entry| entry.name_value() == name)
        };
        self.names.find(hash, is_it).unwrap_or(NONE)
    }

    /// Prefetches the cell of a name's entries.
    #[inline]
    pub(crate) fn prefetch_cell(&self, key: &NameKey) {
        self.names.prefetch(key.full());
    }

    /// Prefetches the entry likely found there.
    #[inline]
    pub(crate) fn prefetch_entry(&self, key: &NameKey) {
        self.entries.prefetch(self.names.guess(key.full()));
    }

    /// The latest nonce sent for the entry likely found there.
    #[inline]
    pub(crate) fn sent_nonce(&self, key: &NameKey) -> Option<u32> {
        let entry = self.entries.get(self.names.guess(key.full()))?;
        entry.out_records.first().map(|record| record.nonce)
    }

    /// Returns the entry of an Interest.
    #[inline]
    pub(crate) fn find(
        &self,
        key: &NameKey,
        name: NameRef<'_>,
        selectors: Selectors<'_>,
    ) -> Option<u32> {
        let mut slot = self.first(key.full(), name.value());
        while let Some(entry) = self.entries.get(slot) {
            if entry.selectors() == selectors {
                return Some(slot);
            }
            slot = entry.next;
        }
        None
    }

    /// Lengths of prefixes whose hashes [`Pit::matches`] needs.
    #[inline]
    pub(crate) const fn depths(&self) -> Depths {
        self.prefix_depths_taken
    }

    /// Adds an entry for a new Interest; `None` if its name has too many variants already.
    pub(crate) fn insert(
        &mut self,
        key: &NameKey,
        interest: &InterestRef<'_>,
        onward: Onward,
        selectors: Selectors<'_>,
    ) -> Option<u32> {
        let first = self.first(key.full(), interest.name.value());
        if first != NONE && self.chain_is_full(first, |entry| entry.next) {
            return None;
        }
        let digest_of = implicit_digest(interest.name.value()).map(|_| {
            let depth = key.components().saturating_sub(1);
            digest_key(self.hasher.hash(interest.name.prefix(depth)))
        });
        let slot = self
            .entries
            .take(key, (interest, onward), digest_of, selectors);
        if let Some(hash) = digest_of
            && !self.link_digest(slot, hash.get())
        {
            self.entries.release(slot);
            return None;
        }
        match self.entries.get_mut(first) {
            Some(head) => {
                let second = core::mem::replace(&mut head.next, slot);
                if let Some(entry) = self.entries.get_mut(slot) {
                    entry.next = second;
                }
            }
            None => self.names.insert(key.full(), slot),
        }
        if let Some(entry) = self.entries.get_mut(slot) {
            entry.counted = entry.octets_beyond();
            self.octets += entry.counted as usize;
        }
        self.count_prefix(selectors.can_be_prefix, key.components(), true);
        Some(slot)
    }

    /// The slots of a chain, in order.
    fn chain(&self, first: u32, next: fn(&Entry) -> u32) -> impl Iterator<Item = u32> {
        core::iter::successors(Some(first).filter(|slot| *slot != NONE), move |slot| {
            let following = self.entries.get(*slot).map(next)?;
            (following != NONE).then_some(following)
        })
    }

    fn chain_is_full(&self, first: u32, next: fn(&Entry) -> u32) -> bool {
        self.chain(first, next).nth(MAX_VARIANTS - 1).is_some()
    }

    /// Returns the entry that gives way to an Interest of `from` for which [`Pit::insert`] had no
    /// room: the longest pending one of the face that alone waits for the most variants, if that is
    /// at least two more than `from` waits for. So one neighbour's variants do not keep out
    /// another's, and two that share a name do not displace each other in turn.
    pub(crate) fn variant_to_displace(
        &self,
        key: &NameKey,
        name: NameRef<'_>,
        from: FaceId,
    ) -> Option<u32> {
        let first = self.first(key.full(), name.value());
        if first != NONE && self.chain_is_full(first, |entry| entry.next) {
            return self.most_greedy(self.chain(first, |entry| entry.next), from);
        }
        implicit_digest(name.value())?;
        let depth = key.components().saturating_sub(1);
        let name = name.prefix(depth);
        let is_it = |at| {
            self.entries
                .get(at)
                .is_some_and(|entry| before_digest(entry) == name.value())
        };
        let first = self
            .digests
            .find(digest_key(self.hasher.hash(name)).get(), is_it)?;
        self.most_greedy(self.chain(first, |entry| entry.next_digest), from)
    }

    fn most_greedy(&self, chain: impl Iterator<Item = u32>, from: FaceId) -> Option<u32> {
        // Of each face: how many of the entries it alone waits for, and which ends first.
        let mut held: SmallVec<[(FaceId, usize, u32, Time); MAX_VARIANTS]> = SmallVec::new();
        for slot in chain {
            let Some(entry) = self.entries.get(slot) else {
                continue;
            };
            let [record] = entry.in_records.as_slice() else {
                continue;
            };
            match held.iter_mut().find(|(face, ..)| *face == record.face) {
                Some((_, count, first, expiry)) => {
                    *count += 1;
                    if record.expiry < *expiry {
                        (*first, *expiry) = (slot, record.expiry);
                    }
                }
                None => held.push((record.face, 1, slot, record.expiry)),
            }
        }
        let own = held.iter().find(|(face, ..)| *face == from);
        let own = own.map_or(0, |(_, count, ..)| *count);
        let most = held.iter().max_by_key(|(_, count, ..)| *count)?;
        (most.1 >= own + 2).then_some(most.2)
    }

    fn link_digest(&mut self, slot: u32, hash: u64) -> bool {
        let name = self
            .entries
            .get(slot)
            .map(before_digest)
            .unwrap_or_default();
        let is_it = |at| {
            at != slot
                && self
                    .entries
                    .get(at)
                    .is_some_and(|entry| before_digest(entry) == name)
        };
        let first = self.digests.find(hash, is_it).unwrap_or(NONE);
        if first == NONE {
            self.digests.insert(hash, slot);
            return true;
        }
        if self.chain_is_full(first, |entry| entry.next_digest) {
            return false;
        }
        let second = self
            .entries
            .get_mut(first)
            .map(|head| core::mem::replace(&mut head.next_digest, slot));
        if let (Some(entry), Some(second)) = (self.entries.get_mut(slot), second) {
            entry.next_digest = second;
        }
        true
    }

    fn count_prefix(&mut self, can_be_prefix: bool, components: usize, added: bool) {
        let Some(count) = self
            .prefix_depths
            .get_mut(components)
            .filter(|_| can_be_prefix)
        else {
            return;
        };
        if added {
            *count += 1;
        } else {
            *count -= 1;
        }
        let bit = 1 << components;
        if *count > 0 {
            self.prefix_depths_taken |= bit
        } else {
            self.prefix_depths_taken &= !bit
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(entry) = self.entries.get(slot) else {
            return;
        };
        let (hash, next, digest_of) = (entry.hash, entry.next, entry.digest_of);
        let counted = (entry.can_be_prefix, usize::from(entry.components));
        self.octets = self.octets.saturating_sub(entry.counted as usize);
        let first = self.first(hash, entry.name_value());
        if first != slot {
            self.unchain(first, slot, next, |entry| &mut entry.next);
        } else if next == NONE {
            self.names.remove(hash, slot);
        } else {
            self.names.replace(hash, slot, next);
        }
        if let Some(hash) = digest_of {
            self.unlink_digest(slot, hash.get());
        }
        self.entries.release(slot);
        self.count_prefix(counted.0, counted.1, false);
    }

    fn unlink_digest(&mut self, slot: u32, hash: u64) {
        let Some(entry) = self.entries.get(slot) else {
            return;
        };
        let (name, next) = (before_digest(entry), entry.next_digest);
        let is_it = |at| {
            self.entries
                .get(at)
                .is_some_and(|entry| before_digest(entry) == name)
        };
        let first = self.digests.find(hash, is_it).unwrap_or(NONE);
        if first != slot {
            self.unchain(first, slot, next, |entry| &mut entry.next_digest);
        } else if next == NONE {
            self.digests.remove(hash, slot);
        } else {
            self.digests.replace(hash, slot, next);
        }
    }

    /// Unlinks `slot`, which `next` follows, from the chain that begins at `at`.
    fn unchain(
        &mut self,
        mut at: u32,
        slot: u32,
        next: u32,
        link: impl Fn(&mut Entry) -> &mut u32,
    ) {
        while let Some(entry) = self.entries.get_mut(at) {
            let following = link(entry);
            if *following == slot {
                *following = next;
                return;
            }
            at = *following;
        }
    }

    /// Returns the entries that a Data satisfies.
    #[inline]
    pub(crate) fn matches(&self, key: &NameKey, data: &DataRef<'_>) -> Matches {
        let mut matches = Matches::new();
        let name = data.name.value();
        self.collect(self.first(key.full(), name), &mut matches, |_| true);
        // An Interest with CanBePrefix and fewer components than the Data.
        let shorter = (1u64 << key.components().min(MAX_DEPTH + 1)) - 1;
        let mut depths = self.prefix_depths_taken & shorter & key.depths();
        while depths != 0 {
            let depth = depths.trailing_zeros() as usize;
            depths &= depths - 1;
            let prefix = name.get(..key.end(depth)).unwrap_or_default();
            self.collect(
                self.first(key.prefix(depth), prefix),
                &mut matches,
                |entry| entry.can_be_prefix,
            );
        }
        self.match_digests(key, data, &mut matches);
        matches
    }

    #[inline]
    fn collect(&self, mut slot: u32, matches: &mut Matches, fits: impl Fn(&Entry) -> bool) {
        while let Some(entry) = self.entries.get(slot) {
            if fits(entry) {
                matches.push(slot);
            }
            slot = entry.next;
        }
    }

    fn match_digests(&self, key: &NameKey, data: &DataRef<'_>, matches: &mut Matches) {
        let name = data.name.value();
        let is_it = |at| {
            self.entries
                .get(at)
                .is_some_and(|entry| before_digest(entry) == name)
        };
        // The packet is hashed only if an Interest names this very digest.
        let Some(mut slot) = self.digests.find(digest_key(key.full()).get(), is_it) else {
            return;
        };
        let digest = data.implicit_digest();
        while let Some(entry) = self.entries.get(slot) {
            if implicit_digest(entry.name_value()) == Some(&digest[..]) {
                matches.push(slot);
            }
            slot = entry.next_digest;
        }
    }

    /// Schedules the entry's deadline.
    #[inline]
    pub(crate) fn arm(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get(slot) {
            self.wheel.arm(slot, entry.deadline());
        }
    }

    /// The next due entry. Entries whose deadline has moved are armed again.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<u32> {
        loop {
            let slot = self.wheel.pop_due(now)?;
            match self.entries.get(slot).map(Entry::deadline) {
                Some(at) if at <= now => return Some(slot),
                Some(at) => self.wheel.arm(slot, at),
                None => {}
            }
        }
    }

    /// Returns the earliest time at which an entry may be due.
    pub(crate) fn next_due(&self) -> Option<Time> {
        if self.is_empty() {
            None
        } else {
            self.wheel.next()
        }
    }

    /// A few random entries, from which one to evict is chosen. Random, because a flood fills
    /// consecutive slots.
    pub(crate) fn sample(&mut self, count: usize, rng: &mut SeededRng) -> SmallVec<[u32; 16]> {
        let mut sample = SmallVec::new();
        for _ in 0..4 * count {
            let slot = rng.below(u64::from(self.places())) as u32;
            if sample.len() < count && self.entries.get(slot).is_some() {
                sample.push(slot);
            }
        }
        if sample.is_empty() {
            sample.extend(self.entries.iter().map(|(slot, _)| slot).next());
        }
        sample
    }
}

/// The key in `digests` of a name with this hash: not zero, which takes no room in an entry.
fn digest_key(hash: u64) -> NonZeroU64 {
    NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN)
}

/// Returns the name of an entry without the implicit digest at its end: a digest component has 34
/// octets.
fn before_digest(entry: &Entry) -> &[u8] {
    let name = entry.name_value();
    name.get(..name.len().saturating_sub(34))
        .unwrap_or_default()
}
