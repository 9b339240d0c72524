//! The hashes of a name and of its prefixes, from one pass over its octets.

use core::hash::{BuildHasher, Hasher};

use whimbrel_core::{KeyedState, SeededRng};
use whimbrel_ndn_packet::NameRef;

/// Most components of a FIB, strategy or content store prefix, and of an Interest with CanBePrefix that longer Data
/// may satisfy (NFD's name tree has the same limit). Longer names are found by all of their components only: a name with
/// thousands of components costs no more than its octets.
pub const MAX_DEPTH: usize = 32;

/// A forwarder's secret for the hashes of names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHasher {
    state: KeyedState,
}

impl NameHasher {
    pub(crate) fn new(rng: &mut SeededRng) -> NameHasher {
        NameHasher { state: KeyedState::new(rng) }
    }

    /// The hash of a whole name.
    pub(crate) fn hash(&self, name: NameRef<'_>) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(name.value());
        hasher.finish()
    }

    /// The hash of a name together with a number.
    pub(crate) fn mix(&self, hash: u64, number: u32) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(&hash.to_le_bytes());
        hasher.write(&number.to_le_bytes());
        hasher.finish()
    }
}

/// A name's hashes. Kept from packet to packet, so that its memory is.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameKey {
    /// Of the prefixes of 0, 1, 2 .. components.
    hashes: Vec<u64>,
    /// Where each prefix ends in the name's value.
    ends: Vec<u32>,
    full: u64,
    components: usize,
}

impl NameKey {
    /// Reads a name.
    pub(crate) fn read(&mut self, hasher: &NameHasher, name: NameRef<'_>) {
        let value = name.value();
        let mut state = hasher.state.build_hasher();
        self.hashes.clear();
        self.ends.clear();
        self.hashes.push(state.finish());
        self.ends.push(0);
        self.components = 0;
        let mut components = name.components();
        let mut from = 0;
        while components.next().is_some() {
            self.components += 1;
            if self.components > MAX_DEPTH {
                continue;
            }
            let end = value.len() - components.rest().len();
            state.write(value.get(from..end).unwrap_or_default());
            from = end;
            self.hashes.push(state.finish());
            self.ends.push(end as u32);
        }
        state.write(value.get(from..).unwrap_or_default());
        self.full = state.finish();
    }

    /// A name's key by itself.
    pub(crate) fn of(hasher: &NameHasher, name: NameRef<'_>) -> NameKey {
        let mut key = NameKey::default();
        key.read(hasher, name);
        key
    }

    /// How many components the name has.
    pub(crate) const fn components(&self) -> usize {
        self.components
    }

    /// How many components its longest hashed prefix has.
    pub(crate) fn depth(&self) -> usize {
        self.hashes.len().saturating_sub(1)
    }

    /// The hash of the whole name.
    pub(crate) const fn full(&self) -> u64 {
        self.full
    }

    /// The hash of the prefix of `depth` components.
    pub(crate) fn prefix(&self, depth: usize) -> u64 {
        self.hashes.get(depth).copied().unwrap_or(self.full)
    }

    /// Where the prefix of `depth` components ends in the name's value.
    pub(crate) fn end(&self, depth: usize) -> usize {
        self.ends.get(depth).copied().unwrap_or_default() as usize
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ndn_packet::Name;

    use super::*;

    #[test]
    fn a_prefix_has_the_hash_that_it_has_as_a_name() {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        let name: Name = "/a/bb/ccc/dddd".parse().unwrap();
        let key = NameKey::of(&hasher, name.as_ref());
        for depth in 0..=4 {
            let prefix = name.prefix(depth);
            assert_eq!(key.prefix(depth), hasher.hash(prefix.as_ref()));
            assert_eq!(key.prefix(depth), NameKey::of(&hasher, prefix.as_ref()).full());
            assert_eq!(key.end(depth), prefix.as_ref().value().len());
        }
        assert_eq!((key.components(), key.depth(), key.full()), (4, 4, key.prefix(4)));
    }

    #[test]
    fn of_a_bomb_of_components_only_the_first_are_prefixes() {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        let name: Name = "/a".repeat(2000).parse().unwrap();
        let key = NameKey::of(&hasher, name.as_ref());
        assert_eq!((key.components(), key.depth()), (2000, MAX_DEPTH));
        assert_eq!(key.full(), hasher.hash(name.as_ref()));
    }
}
