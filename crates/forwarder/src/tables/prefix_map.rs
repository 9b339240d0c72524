//! A map from prefixes to values, searched by longest match.

use core::num::NonZeroU8;

use smallvec::SmallVec;
use whimbrel_ndn_packet::{Name, NameRef};

use crate::tables::index::{Index, Slab};
use crate::tables::name_key::{Depths, MAX_DEPTH, NameHasher, NameKey};

/// One cache line if the value is a small number: looking up one of a million prefixes costs one
/// miss for it and one for the index.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Entry<V> {
    /// TLV-VALUE of the prefix. Most prefixes fit in the entry itself.
    prefix: SmallVec<[u8; 40]>,
    value: V,
    /// One more than the number of components. (Never zero, which distinguishes free slots.)
    depth: NonZeroU8,
}

/// Prefixes of at most [`MAX_DEPTH`] components with a value each. A search costs one index lookup
/// for each length that some entry has.
#[derive(Clone, Debug)]
pub(crate) struct PrefixMap<V> {
    hasher: NameHasher,
    entries: Slab<Entry<V>>,
    index: Index,
    /// The number of entries by their number of components.
    depths: [u32; MAX_DEPTH + 1],
    /// Bit `n` is set if some entry has `n` components.
    depths_taken: Depths,
}

impl<V> PrefixMap<V> {
    pub(crate) fn new(hasher: NameHasher) -> PrefixMap<V> {
        PrefixMap {
            hasher,
            entries: Slab::new(),
            index: Index::new(),
            depths: [0; MAX_DEPTH + 1],
            depths_taken: 0,
        }
    }

    pub(crate) const fn hasher(&self) -> &NameHasher {
        &self.hasher
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the lengths of its prefixes: those whose hashes a search needs.
    #[inline]
    pub(crate) const fn depths(&self) -> Depths {
        self.depths_taken
    }

    pub(crate) fn get(&self, prefix: NameRef<'_>) -> Option<&V> {
        self.entries
            .get(self.slot_of(prefix)?)
            .map(|entry| &entry.value)
    }

    /// Returns the value of a prefix, inserting `value` if it has none; `None` if the prefix has
    /// too many components.
    pub(crate) fn get_or_insert_with(
        &mut self,
        prefix: NameRef<'_>,
        value: impl FnOnce() -> V,
    ) -> Option<&mut V> {
        let depth = prefix.len();
        if depth > MAX_DEPTH {
            return None;
        }
        let slot = match self.slot_of(prefix) {
            Some(slot) => slot,
            None => self.insert(prefix, depth, value()),
        };
        self.entries.get_mut(slot).map(|entry| &mut entry.value)
    }

    pub(crate) fn remove(&mut self, prefix: NameRef<'_>) -> Option<V> {
        let slot = self.slot_of(prefix)?;
        self.remove_slot(slot)
    }

    /// Keeps the values for which `keep` returns true. Scans every entry.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut V) -> bool) {
        for slot in 0..self.entries.places() as u32 {
            if self
                .entries
                .get_mut(slot)
                .is_some_and(|entry| !keep(&mut entry.value))
            {
                self.remove_slot(slot);
            }
        }
    }

    /// Returns the value of the longest matching prefix of a name (given by its octets), and that
    /// prefix's number of components.
    #[inline]
    pub(crate) fn longest_match(&self, key: &NameKey, name: &[u8]) -> Option<(usize, &V)> {
        let mut lengths = self.depths_taken & key.depths();
        while lengths != 0 {
            let depth = 63 - lengths.leading_zeros() as usize;
            let found = self.slot_at_depth(key, name, depth);
            if let Some(entry) = found.and_then(|slot| self.entries.get(slot)) {
                return Some((depth, &entry.value));
            }
            lengths &= !(1 << depth);
        }
        None
    }

    /// Returns the slot of the prefix of so many components, one of the lengths of the key.
    #[inline]
    fn slot_at_depth(&self, key: &NameKey, name: &[u8], depth: usize) -> Option<u32> {
        let prefix = name.get(..key.end(depth))?;
        self.index
            .find(key.prefix(depth), |slot| self.is(slot, prefix))
    }

    /// Returns the slot of the longest matching prefix, for [`PrefixMap::at`].
    pub(crate) fn longest_slot(&self, key: &NameKey, name: &[u8]) -> Option<u32> {
        let (depth, _) = self.longest_match(key, name)?;
        self.slot_at_depth(key, name, depth)
    }

    /// Returns the value of the whole name.
    pub(crate) fn whole(&self, key: &NameKey, name: &[u8]) -> Option<&V> {
        let depth = key.components();
        if depth > MAX_DEPTH || self.depths_taken & key.depths() & (1 << depth) == 0 {
            return None;
        }
        let slot = self.slot_at_depth(key, name, depth)?;
        self.entries.get(slot).map(|entry| &entry.value)
    }

    /// Returns the value in a slot, if its prefix is one of the name (given by its octets).
    #[inline]
    pub(crate) fn at(&self, slot: u32, name: &[u8]) -> Option<&V> {
        let entry = self.entries.get(slot)?;
        name.starts_with(&entry.prefix).then_some(&entry.value)
    }

    /// Prefetches the entry in a slot, for [`PrefixMap::at`].
    #[inline]
    pub(crate) fn prefetch_slot(&self, slot: u32) {
        self.entries.prefetch(slot);
    }

    /// Prefetches the cells that [`PrefixMap::longest_match`] will read.
    #[inline]
    pub(crate) fn prefetch_cells(&self, key: &NameKey) {
        self.hashes(key).for_each(|hash| self.index.prefetch(hash));
    }

    /// Prefetches the entries likely found there.
    #[inline]
    pub(crate) fn prefetch_entries(&self, key: &NameKey) {
        self.hashes(key)
            .for_each(|hash| self.entries.prefetch(self.index.guess(hash)));
    }

    fn hashes(&self, key: &NameKey) -> impl Iterator<Item = u64> {
        let mut lengths = self.depths_taken & key.depths();
        core::iter::from_fn(move || {
            if lengths == 0 {
                return None;
            }
            let depth = 63 - lengths.leading_zeros() as usize;
            lengths &= !(1 << depth);
            Some(key.prefix(depth))
        })
    }

    /// Every prefix in canonical order.
    pub(crate) fn sorted(&self) -> Vec<(Name, &V)> {
        let named =
            |entry: &Entry<V>| NameRef::from_value(&entry.prefix).map(|name| name.to_name());
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(_, entry)| Some((named(entry).ok()?, &entry.value)))
            .collect();
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        entries
    }

    #[inline]
    fn is(&self, slot: u32, prefix: &[u8]) -> bool {
        self.entries
            .get(slot)
            .is_some_and(|entry| entry.prefix.as_slice() == prefix)
    }

    fn slot_of(&self, prefix: NameRef<'_>) -> Option<u32> {
        self.index.find(self.hasher.hash(prefix), |slot| {
            self.is(slot, prefix.value())
        })
    }

    fn insert(&mut self, prefix: NameRef<'_>, depth: usize, value: V) -> u32 {
        let hash = self.hasher.hash(prefix);
        let slot = self.entries.insert(Entry {
            prefix: SmallVec::from_slice(prefix.value()),
            value,
            depth: NonZeroU8::MIN.saturating_add(depth as u8),
        });
        self.index.insert(hash, slot);
        self.depths[depth] += 1;
        self.depths_taken |= 1 << depth;
        slot
    }

    fn remove_slot(&mut self, slot: u32) -> Option<V> {
        let entry = self.entries.remove(slot)?;
        let prefix = NameRef::from_value(&entry.prefix).unwrap_or_default();
        self.index.remove(self.hasher.hash(prefix), slot);
        let depth = usize::from(entry.depth.get() - 1);
        self.depths[depth] -= 1;
        if self.depths[depth] == 0 {
            self.depths_taken &= !(1 << depth);
        }
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_one_cache_line() {
        assert_eq!(Slab::<Entry<u32>>::place_size(), 64);
    }
}
