//! The forwarding information base: which faces lead to a prefix.

use smallvec::SmallVec;
use whimbrel_core::SeededRng;
use whimbrel_ndn_packet::{Name, NameRef};

use crate::face::FaceId;
use crate::tables::index::{Index, Slab};
use crate::tables::name_key::{MAX_DEPTH, NameHasher, NameKey};

/// A face that leads to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Where to.
    pub face: FaceId,
    /// The lower the better.
    pub cost: u64,
}

/// Why a prefix has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// It has too many components.
    #[error("the prefix has {0} components, a FIB entry has at most {MAX_DEPTH}")]
    TooDeep(usize),
}

#[derive(Clone, Debug)]
struct Entry {
    /// TLV-VALUE of the prefix. Most prefixes fit in the entry itself: one cache miss less for each packet.
    prefix: SmallVec<[u8; 40]>,
    hash: u64,
    depth: u8,
    /// In the order of cost, then of face numbers.
    next_hops: SmallVec<[NextHop; 2]>,
}

/// Prefixes and their next hops.
#[derive(Clone, Debug)]
pub struct Fib {
    hasher: NameHasher,
    entries: Slab<Entry>,
    index: Index,
    /// How many entries have so many components: lengths that no entry has are not searched.
    depths: [u32; MAX_DEPTH + 1],
    /// Bit `n` is set if some entry has `n` components.
    depths_taken: u64,
}

impl Fib {
    pub(crate) fn new(hasher: NameHasher) -> Fib {
        Fib { hasher, entries: Slab::new(), index: Index::new(), depths: [0; MAX_DEPTH + 1], depths_taken: 0 }
    }

    /// A FIB by itself, for tests and benches of it alone.
    pub fn standalone(rng: &mut SeededRng) -> Fib {
        Fib::new(NameHasher::new(rng))
    }

    /// How many prefixes it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.entries.len() == 0
    }

    /// Adds a next hop or changes its cost.
    pub fn add_next_hop(&mut self, prefix: NameRef<'_>, face: FaceId, cost: u64) -> Result<(), FibError> {
        let entry = self.entry(prefix)?;
        entry.next_hops.retain(|hop| hop.face != face);
        let at = entry.next_hops.partition_point(|hop| (hop.cost, hop.face) < (cost, face));
        entry.next_hops.insert(at, NextHop { face, cost });
        Ok(())
    }

    /// Removes a next hop, and the prefix with its last one; false if it was not there.
    pub fn remove_next_hop(&mut self, prefix: NameRef<'_>, face: FaceId) -> bool {
        let Some(slot) = self.slot_of(prefix) else { return false };
        let Some(entry) = self.entries.get_mut(slot) else { return false };
        let before = entry.next_hops.len();
        entry.next_hops.retain(|hop| hop.face != face);
        let removed = entry.next_hops.len() < before;
        if entry.next_hops.is_empty() {
            self.remove_slot(slot);
        }
        removed
    }

    /// Gives a prefix exactly these next hops; none removes it.
    pub fn set_next_hops(&mut self, prefix: NameRef<'_>, next_hops: &[NextHop]) -> Result<(), FibError> {
        if next_hops.is_empty() {
            self.remove(prefix);
            return Ok(());
        }
        let entry = self.entry(prefix)?;
        entry.next_hops = SmallVec::from_slice(next_hops);
        entry.next_hops.sort_unstable_by_key(|hop| (hop.face, hop.cost));
        entry.next_hops.dedup_by_key(|hop| hop.face);
        entry.next_hops.sort_unstable_by_key(|hop| (hop.cost, hop.face));
        Ok(())
    }

    /// Removes a prefix; false if it was not there.
    pub fn remove(&mut self, prefix: NameRef<'_>) -> bool {
        let slot = self.slot_of(prefix);
        slot.is_some_and(|slot| {
            self.remove_slot(slot);
            true
        })
    }

    /// Removes a face from all prefixes. Reads every entry.
    pub fn remove_face(&mut self, face: FaceId) {
        let with_face = |entry: &Entry| entry.next_hops.iter().any(|hop| hop.face == face);
        let slots: Vec<u32> =
            self.entries.iter().filter(|(_, entry)| with_face(entry)).map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(entry) = self.entries.get_mut(slot) else { continue };
            entry.next_hops.retain(|hop| hop.face != face);
            if entry.next_hops.is_empty() {
                self.remove_slot(slot);
            }
        }
    }

    /// The next hops of exactly this prefix, best first.
    pub fn next_hops(&self, prefix: NameRef<'_>) -> Option<&[NextHop]> {
        Some(&self.entries.get(self.slot_of(prefix)?)?.next_hops)
    }

    /// The next hops of the longest prefix of `name`, and how many components it has.
    pub fn longest_match(&self, name: NameRef<'_>) -> Option<(usize, &[NextHop])> {
        self.lookup(&NameKey::of(&self.hasher, name), name)
    }

    /// Every prefix with its next hops, in canonical order.
    pub fn entries(&self) -> Vec<(Name, Vec<NextHop>)> {
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(_, entry)| {
                let name = NameRef::from_value(&entry.prefix).ok()?.to_name();
                Some((name, entry.next_hops.to_vec()))
            })
            .collect();
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        entries
    }

    /// As [`Fib::longest_match`], with the hashes that the packet's pipeline has already.
    #[inline]
    pub(crate) fn lookup(&self, key: &NameKey, name: NameRef<'_>) -> Option<(usize, &[NextHop])> {
        let mut lengths = self.depths_taken & (u64::MAX >> (63 - key.depth()));
        while lengths != 0 {
            let depth = 63 - lengths.leading_zeros() as usize;
            let prefix = name.value().get(..key.end(depth))?;
            let found = self.index.find(key.prefix(depth), |slot| self.is(slot, prefix));
            if let Some(entry) = found.and_then(|slot| self.entries.get(slot)) {
                return Some((depth, &entry.next_hops));
            }
            lengths &= !(1 << depth);
        }
        None
    }

    #[inline]
    fn is(&self, slot: u32, prefix: &[u8]) -> bool {
        self.entries.get(slot).is_some_and(|entry| entry.prefix.as_slice() == prefix)
    }

    fn slot_of(&self, prefix: NameRef<'_>) -> Option<u32> {
        self.index.find(self.hasher.hash(prefix), |slot| self.is(slot, prefix.value()))
    }

    fn entry(&mut self, prefix: NameRef<'_>) -> Result<&mut Entry, FibError> {
        let depth = prefix.len();
        if depth > MAX_DEPTH {
            return Err(FibError::TooDeep(depth));
        }
        let slot = self.slot_of(prefix).unwrap_or_else(|| self.insert(prefix, depth));
        self.entries.get_mut(slot).ok_or(FibError::TooDeep(depth))
    }

    fn insert(&mut self, prefix: NameRef<'_>, depth: usize) -> u32 {
        let hash = self.hasher.hash(prefix);
        let slot = self.entries.insert(Entry {
            prefix: SmallVec::from_slice(prefix.value()),
            hash,
            depth: depth as u8,
            next_hops: SmallVec::new(),
        });
        self.index.insert(hash, slot);
        self.depths[depth] += 1;
        self.depths_taken |= 1 << depth;
        slot
    }

    fn remove_slot(&mut self, slot: u32) {
        let Some(entry) = self.entries.remove(slot) else { return };
        self.index.remove(entry.hash, slot);
        let depth = usize::from(entry.depth);
        self.depths[depth] -= 1;
        if self.depths[depth] == 0 {
            self.depths_taken &= !(1 << depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn name(components: &[u8]) -> Name {
        components.iter().fold(Name::root(), |name, octet| name.child_generic(&[*octet]))
    }

    proptest! {
        #[test]
        fn longest_match_is_what_a_search_through_all_prefixes_finds(
            steps in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(0u8..3, 0..5), 256u64..260, 0u64..3), 1..80),
            asked in prop::collection::vec(prop::collection::vec(0u8..3, 0..7), 1..20),
        ) {
            let mut fib = Fib::standalone(&mut SeededRng::new(1));
            let mut model: BTreeMap<Vec<u8>, BTreeMap<u64, u64>> = BTreeMap::new();
            for (add, prefix, face, cost) in steps {
                if add {
                    fib.add_next_hop(name(&prefix).as_ref(), FaceId(face), cost).unwrap();
                    model.entry(prefix).or_default().insert(face, cost);
                } else {
                    let hops = model.entry(prefix.clone()).or_default();
                    let was_there = hops.remove(&face).is_some();
                    if hops.is_empty() {
                        model.remove(&prefix);
                    }
                    prop_assert_eq!(fib.remove_next_hop(name(&prefix).as_ref(), FaceId(face)), was_there);
                }
                prop_assert_eq!(fib.len(), model.len());
            }
            for asked in asked {
                let expected = (0..=asked.len()).rev().find_map(|depth| Some((depth, model.get(&asked[..depth])?)));
                let found = fib.longest_match(name(&asked).as_ref());
                prop_assert_eq!(found.map(|(depth, _)| depth), expected.map(|(depth, _)| depth));
                if let (Some((_, hops)), Some((_, model))) = (found, expected) {
                    let mut best_first: Vec<_> = model.iter().map(|(face, cost)| (*cost, *face)).collect();
                    best_first.sort_unstable();
                    let hops: Vec<_> = hops.iter().map(|hop| (hop.cost, hop.face.0)).collect();
                    prop_assert_eq!(hops, best_first);
                }
            }
        }
    }

    #[test]
    fn a_prefix_beyond_the_limit_is_refused_and_a_name_beyond_it_still_finds_its_prefix() {
        let mut fib = Fib::standalone(&mut SeededRng::new(1));
        let deepest = name(&[1; MAX_DEPTH]);
        fib.add_next_hop(deepest.as_ref(), FaceId(256), 0).unwrap();
        let deeper = name(&[1; MAX_DEPTH + 1]);
        assert_eq!(fib.add_next_hop(deeper.as_ref(), FaceId(256), 0), Err(FibError::TooDeep(MAX_DEPTH + 1)));
        assert_eq!(fib.longest_match(deeper.as_ref()).map(|(depth, _)| depth), Some(MAX_DEPTH));
    }

    #[test]
    fn a_face_that_goes_leaves_no_next_hop_behind() {
        let mut fib = Fib::standalone(&mut SeededRng::new(1));
        let (a, b) = (name(&[1]), name(&[2]));
        fib.set_next_hops(a.as_ref(), &[NextHop { face: FaceId(300), cost: 1 }]).unwrap();
        let both = [NextHop { face: FaceId(301), cost: 9 }, NextHop { face: FaceId(300), cost: 1 }];
        fib.set_next_hops(b.as_ref(), &both).unwrap();
        fib.remove_face(FaceId(300));
        assert_eq!(fib.entries(), [(b, vec![NextHop { face: FaceId(301), cost: 9 }])]);
    }
}
