//! The hashes of a name and of its prefixes, from one pass over its octets.

use core::hash::{BuildHasher, Hasher};

use whimbrel_core::{KeyedState, SeededRng};
use whimbrel_ndn_packet::NameRef;
use whimbrel_ndn_packet::tlv::DecodeError;

/// Maximum of components of a FIB, strategy or content store prefix, and of an Interest with
/// CanBePrefix that longer Data may satisfy (NFD's name tree has the same limit). Longer names are
/// matched as a whole only: a name with thousands of components costs no more than its octets.
pub const MAX_DEPTH: usize = 32;
/// Those of 0 to [`MAX_DEPTH`] components.
const PREFIXES: usize = MAX_DEPTH + 1;

/// A forwarder's secret for the hashes of names. SipHash-1-3: an attacker who floods a forwarder
/// with names can measure its response times, so the hash must withstand adaptive collision
/// attacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameHasher {
    state: KeyedState,
    /// The hash of the name `/`.
    root: u64,
}

impl NameHasher {
    /// Returns a secret for the labels of faces, which packets show.
    pub(crate) fn label_secret(&self) -> KeyedState {
        self.state.derive("labels of faces")
    }

    pub(crate) fn new(rng: &mut SeededRng) -> NameHasher {
        let state = KeyedState::new(rng);
        NameHasher {
            state,
            root: state.build_hasher().finish(),
        }
    }

    /// Returns the hash of a whole name.
    pub(crate) fn hash(&self, name: NameRef<'_>) -> u64 {
        self.hash_value(name.value())
    }

    /// Returns the hash of a whole name, given by its octets.
    pub(crate) fn hash_value(&self, name: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(name);
        hasher.finish()
    }
}

/// A set of prefix lengths (numbers of components) as bits.
pub(crate) type Depths = u64;
/// All lengths.
pub(crate) const ALL_DEPTHS: Depths = u64::MAX;
/// The length of the name without its last component.
pub(crate) const PARENT: Depths = 1 << 63;

/// A name's hashes: of the whole, and of its prefixes of certain lengths. Reused from packet to
/// packet, to keep its memory.
#[derive(Clone, Debug)]
pub(crate) struct NameKey {
    /// Of the prefixes of 0, 1, 2 .. components, where `known`.
    hashes: [u64; PREFIXES],
    /// The end offset of each prefix in the name's value.
    ends: [u32; PREFIXES],
    /// The lengths with a hash.
    known: Depths,
    /// The requested lengths; a short name lacks some of them.
    asked: Depths,
    full: u64,
    /// Of the name without its last component.
    parent: Option<u64>,
    components: usize,
}

impl Default for NameKey {
    fn default() -> NameKey {
        NameKey {
            hashes: [0; PREFIXES],
            ends: [0; PREFIXES],
            known: 0,
            asked: 0,
            full: 0,
            parent: None,
            components: 0,
        }
    }
}

impl NameKey {
    /// Hashes a name, and its prefixes of the lengths in `depths`.
    pub(crate) fn read(&mut self, hasher: &NameHasher, name: NameRef<'_>, depths: Depths) {
        // The name has been decoded before.
        let _ = self.decode(hasher, name.value(), depths);
    }

    /// Decodes the TLV-VALUE of a Name element, and hashes it and its prefixes of the lengths in
    /// `depths` in the same pass. The key of an invalid name is of no use.
    pub(crate) fn decode<'a>(
        &mut self,
        hasher: &NameHasher,
        value: &'a [u8],
        depths: Depths,
    ) -> Result<NameRef<'a>, DecodeError> {
        let mut state = hasher.state.build_hasher();
        let (mut components, mut hashed, mut known) = (0, 0, 1);
        (self.hashes[0], self.ends[0]) = (hasher.root, 0);
        let name = NameRef::walk(value, |end| {
            components += 1;
            // The components after the longest prefix are hashed as a whole.
            let Some(place) = self.ends.get_mut(components) else {
                return;
            };
            *place = end as u32;
            if depths & (1 << components) != 0 {
                state.write(value.get(hashed..end).unwrap_or_default());
                hashed = end;
                known |= 1 << components;
                if let Some(hash) = self.hashes.get_mut(components) {
                    *hash = state.finish();
                }
            }
        })?;
        (self.components, self.known, self.asked) = (components, known, depths);
        self.parent = None;
        let parent = components.wrapping_sub(1);
        if depths & PARENT != 0
            && let Some(end) = self.ends.get(parent).map(|end| *end as usize)
        {
            if known & (1 << parent) != 0 {
                self.parent = self.hashes.get(parent).copied();
            } else if end >= hashed {
                state.write(value.get(hashed..end).unwrap_or_default());
                hashed = end;
                self.parent = Some(state.finish());
            }
        }
        if hashed == value.len() && hashed > 0 {
            self.full = self.hashes.get(components).copied().unwrap_or_default();
        } else {
            state.write(value.get(hashed..).unwrap_or_default());
            self.full = state.finish();
        }
        Ok(name)
    }

    /// Returns a key of its own for a name, with all its prefixes.
    pub(crate) fn of(hasher: &NameHasher, name: NameRef<'_>) -> NameKey {
        let mut key = NameKey::default();
        key.read(hasher, name, ALL_DEPTHS);
        key
    }

    /// Returns the number of components of the name.
    pub(crate) const fn components(&self) -> usize {
        self.components
    }

    /// Returns the lengths of prefixes with a hash here.
    pub(crate) const fn depths(&self) -> Depths {
        self.known
    }

    /// Returns true if some of these lengths were not requested.
    pub(crate) const fn lacks(&self, depths: Depths) -> bool {
        depths & !self.asked != 0
    }

    /// Returns the hash of the whole name.
    pub(crate) const fn full(&self) -> u64 {
        self.full
    }

    /// Returns the hash of the name without its last component, if [`PARENT`] was requested; `None` also of
    /// `/`, and of a name whose own length was requested, but not the parent's.
    pub(crate) const fn parent(&self) -> Option<u64> {
        self.parent
    }

    /// Returns the hash of the prefix of `depth` components, which must be one of
    /// [`NameKey::depths`].
    pub(crate) fn prefix(&self, depth: usize) -> u64 {
        debug_assert!(
            self.known & (1 << depth) != 0,
            "the hash of the prefix of {depth} components was not requested"
        );
        self.hashes.get(depth).copied().unwrap_or_default()
    }

    /// Returns the end offset of the prefix of `depth` components in the name's value.
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
            assert_eq!(
                key.prefix(depth),
                NameKey::of(&hasher, prefix.as_ref()).full()
            );
            assert_eq!(key.end(depth), prefix.as_ref().value().len());
        }
        assert_eq!(
            (key.components(), key.depths(), key.full()),
            (4, 0b11111, key.prefix(4))
        );
        let mut some = NameKey::default();
        some.read(&hasher, name.as_ref(), 0b1000_0100);
        assert_eq!(
            (some.components(), some.depths(), some.full()),
            (4, 0b101, key.full())
        );
        assert_eq!((some.prefix(2), some.end(3)), (key.prefix(2), key.end(3)));
    }

    #[test]
    fn the_parent_has_the_hash_that_it_has_as_a_name() {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        for components in 1..=MAX_DEPTH + 1 {
            let name: Name = "/ab".repeat(components).parse().unwrap();
            let parent = hasher.hash(name.as_ref().prefix(components - 1));
            let own = 1 << components;
            for depths in [0, 0b110, ALL_DEPTHS, own, own | own >> 1] {
                let mut key = NameKey::default();
                key.read(&hasher, name.as_ref(), depths | PARENT);
                assert_eq!(
                    key.full(),
                    hasher.hash(name.as_ref()),
                    "{components} {depths:b}"
                );
                match key.parent() {
                    Some(known) => assert_eq!(known, parent, "{components} {depths:b}"),
                    None => assert_eq!(depths & (own | own >> 1), own),
                }
                key.read(&hasher, name.as_ref(), depths & !PARENT);
                assert_eq!(key.parent(), None);
            }
        }
        assert_eq!(NameKey::of(&hasher, NameRef::default()).parent(), None);
    }

    #[test]
    fn of_a_bomb_of_components_only_the_first_are_prefixes() {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        let name: Name = "/a".repeat(2000).parse().unwrap();
        let key = NameKey::of(&hasher, name.as_ref());
        assert_eq!(
            (key.components(), key.depths().count_ones() as usize),
            (2000, MAX_DEPTH + 1)
        );
        assert_eq!(key.full(), hasher.hash(name.as_ref()));
    }
}
