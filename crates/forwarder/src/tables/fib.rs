//! The forwarding information base: the next hops of prefixes.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use whimbrel_ndn_packet::{Name, NameRef};

use crate::face::FaceId;
use crate::rib::Rank;
use crate::tables::index::{NONE, Slab};
use crate::tables::name_key::{Depths, MAX_DEPTH, NameHasher, NameKey};
use crate::tables::prefix_map::PrefixMap;

/// A next hop of a prefix. Ordered from the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextHop {
    /// Lower is preferred.
    pub cost: u64,
    /// True if it follows from a route of a shorter prefix; of equal costs, own ones come first.
    pub inherited: bool,
    /// The face.
    pub face: FaceId,
}

/// Why a prefix cannot have an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// It has too many components.
    #[error("the prefix has {0} components; a FIB entry has at most {MAX_DEPTH}")]
    TooDeep(usize),
}

type NextHops = SmallVec<[NextHop; 2]>;

/// Prefixes and their next hops.
#[derive(Clone, Debug)]
pub struct Fib {
    /// Each prefix with the number of its set of next hops.
    prefixes: PrefixMap<u32>,
    sets: NextHopSets,
    /// Counts changes, so that holders of places of entries know when to look again.
    changes: u64,
}

/// Sets of next hops: a million prefixes have few different ones, which stay in the processor's
/// cache.
#[derive(Clone, Debug, Default)]
struct NextHopSets {
    sets: Slab<Set>,
    /// By their contents.
    numbers: BTreeMap<NextHops, u32>,
}

#[derive(Clone, Debug)]
struct Set {
    /// In the order of cost, then of face numbers; never empty.
    hops: NextHops,
    /// The number of prefixes that use it.
    users: usize,
}

impl NextHopSets {
    fn get(&self, number: u32) -> &[NextHop] {
        self.sets
            .get(number)
            .map(|set| set.hops.as_slice())
            .unwrap_or_default()
    }

    /// Returns the number of a set, and adds one user.
    fn take(&mut self, hops: NextHops) -> u32 {
        if let Some(number) = self.numbers.get(&hops).copied() {
            if let Some(set) = self.sets.get_mut(number) {
                set.users += 1;
            }
            return number;
        }
        let number = self.sets.insert(Set {
            hops: hops.clone(),
            users: 1,
        });
        self.numbers.insert(hops, number);
        number
    }

    /// Removes one user.
    fn give_back(&mut self, number: u32) {
        let Some(set) = self.sets.get_mut(number) else {
            return;
        };
        set.users -= 1;
        if set.users == 0 {
            self.numbers.remove(&set.hops);
            self.sets.remove(number);
        }
    }
}

impl Fib {
    pub(crate) fn new(hasher: NameHasher) -> Fib {
        Fib {
            prefixes: PrefixMap::new(hasher),
            sets: NextHopSets::default(),
            changes: 0,
        }
    }

    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Returns true if the FIB is empty.
    pub fn is_empty(&self) -> bool {
        self.prefixes.len() == 0
    }

    /// Adds a next hop or changes its cost.
    pub fn add_next_hop(
        &mut self,
        prefix: NameRef<'_>,
        face: FaceId,
        cost: u64,
    ) -> Result<(), FibError> {
        let inherited = false;
        self.add_ranked(prefix, face, Rank { cost, inherited })
    }

    /// As [`Fib::add_next_hop`], with what follows from a route of a shorter prefix.
    pub fn add_ranked(
        &mut self,
        prefix: NameRef<'_>,
        face: FaceId,
        Rank { cost, inherited }: Rank,
    ) -> Result<(), FibError> {
        let mut hops = NextHops::from_slice(self.next_hops(prefix).unwrap_or_default());
        hops.retain(|hop| hop.face != face);
        hops.push(NextHop {
            cost,
            inherited,
            face,
        });
        self.set(prefix, hops)
    }

    /// Removes a next hop, and the prefix with its last one; returns false if it does not exist.
    pub fn remove_next_hop(&mut self, prefix: NameRef<'_>, face: FaceId) -> bool {
        let mut hops = NextHops::from_slice(self.next_hops(prefix).unwrap_or_default());
        let before = hops.len();
        hops.retain(|hop| hop.face != face);
        let removed = hops.len() < before;
        if hops.is_empty() {
            self.remove(prefix);
        } else if removed {
            // Cannot fail: the prefix exists.
            let _ = self.set(prefix, hops);
        }
        removed
    }

    fn set(&mut self, prefix: NameRef<'_>, mut hops: NextHops) -> Result<(), FibError> {
        self.changes += 1;
        hops.sort_unstable();
        let number = self.prefixes.get_or_insert_with(prefix, || NONE);
        let number = number.ok_or(FibError::TooDeep(prefix.len()))?;
        // Takes the new set first: if it is the old one, it must not be dropped in between.
        let old = core::mem::replace(number, self.sets.take(hops));
        self.sets.give_back(old);
        Ok(())
    }

    /// Removes a prefix; returns false if it does not exist.
    pub fn remove(&mut self, prefix: NameRef<'_>) -> bool {
        let Some(number) = self.prefixes.remove(prefix) else {
            return false;
        };
        self.sets.give_back(number);
        self.changes += 1;
        true
    }

    /// Removes a face from all prefixes. Scans every prefix if the face is a next hop of any.
    pub fn remove_face(&mut self, face: FaceId) {
        // For each set with the face: the set without it, if any is left.
        let mut changed: BTreeMap<u32, NextHops> = BTreeMap::new();
        for (number, set) in self.sets.sets.iter() {
            if set.hops.iter().any(|hop| hop.face == face) {
                let without = set
                    .hops
                    .iter()
                    .filter(|hop| hop.face != face)
                    .copied()
                    .collect();
                changed.insert(number, without);
            }
        }
        if changed.is_empty() {
            return;
        }
        self.changes += 1;
        let sets = &mut self.sets;
        self.prefixes.retain(|number| {
            let Some(without) = changed.get(number) else {
                return true;
            };
            let old = *number;
            if !without.is_empty() {
                *number = sets.take(without.clone());
            }
            sets.give_back(old);
            !without.is_empty()
        });
    }

    /// Returns the next hops of exactly this prefix, best first.
    pub fn next_hops(&self, prefix: NameRef<'_>) -> Option<&[NextHop]> {
        self.prefixes
            .get(prefix)
            .map(|number| self.sets.get(*number))
    }

    /// Returns the next hops of the longest matching prefix of `name`, and its number of
    /// components.
    pub fn longest_match(&self, name: NameRef<'_>) -> Option<(usize, &[NextHop])> {
        self.lookup(&NameKey::of(self.prefixes.hasher(), name), name.value())
    }

    /// Every prefix with its next hops, in canonical order.
    pub fn entries(&self) -> Vec<(Name, Vec<NextHop>)> {
        let sorted = self.prefixes.sorted().into_iter();
        sorted
            .map(|(name, number)| (name, self.sets.get(*number).to_vec()))
            .collect()
    }

    /// Returns the number of changes so far.
    #[inline]
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the place of the longest matching prefix, valid until the next change.
    pub(crate) fn longest_entry(&self, key: &NameKey, name: &[u8]) -> Option<u32> {
        self.prefixes.longest_slot(key, name)
    }

    /// Returns the next hops of exactly this name.
    pub(crate) fn whole(&self, key: &NameKey, name: &[u8]) -> Option<&[NextHop]> {
        let number = self.prefixes.whole(key, name)?;
        Some(self.sets.get(*number))
    }

    /// Returns the next hops of the entry at a place, if its prefix is one of `name`.
    #[inline]
    pub(crate) fn entry(&self, place: u32, name: &[u8]) -> Option<&[NextHop]> {
        let number = self.prefixes.at(place, name)?;
        Some(self.sets.get(*number))
    }

    /// Prefetches the entry at a place.
    #[inline]
    pub(crate) fn prefetch_place(&self, place: u32) {
        self.prefixes.prefetch_slot(place);
    }

    pub(crate) const fn depths(&self) -> Depths {
        self.prefixes.depths()
    }

    /// As [`Fib::longest_match`], with hashes that the packet's pipeline has computed.
    #[inline]
    pub(crate) fn lookup(&self, key: &NameKey, name: &[u8]) -> Option<(usize, &[NextHop])> {
        self.prefixes
            .longest_match(key, name)
            .map(|(depth, number)| (depth, self.sets.get(*number)))
    }

    /// Prefetches the index cells that [`Fib::lookup`] will read.
    #[inline]
    pub(crate) fn prefetch_cells(&self, key: &NameKey) {
        self.prefixes.prefetch_cells(key);
    }

    /// Prefetches the entries likely found there.
    #[inline]
    pub(crate) fn prefetch_entries(&self, key: &NameKey) {
        self.prefixes.prefetch_entries(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use whimbrel_core::SeededRng;

    use super::*;

    fn name(components: &[u8]) -> Name {
        components
            .iter()
            .fold(Name::root(), |name, octet| name.child_generic(&[*octet]))
    }

    proptest! {
        #[test]
        fn longest_match_is_what_a_search_through_all_prefixes_finds(
            steps in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(0u8..3, 0..5), 256u64..260, 0u64..3), 1..80),
            asked in prop::collection::vec(prop::collection::vec(0u8..3, 0..7), 1..20),
        ) {
            let mut fib = Fib::new(NameHasher::new(&mut SeededRng::new(1)));
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
        let mut fib = Fib::new(NameHasher::new(&mut SeededRng::new(1)));
        let deepest = name(&[1; MAX_DEPTH]);
        fib.add_next_hop(deepest.as_ref(), FaceId(256), 0).unwrap();
        let deeper = name(&[1; MAX_DEPTH + 1]);
        assert_eq!(
            fib.add_next_hop(deeper.as_ref(), FaceId(256), 0),
            Err(FibError::TooDeep(MAX_DEPTH + 1))
        );
        assert_eq!(
            fib.longest_match(deeper.as_ref()).map(|(depth, _)| depth),
            Some(MAX_DEPTH)
        );
    }

    #[test]
    fn a_face_that_goes_leaves_no_next_hop_behind() {
        let mut fib = Fib::new(NameHasher::new(&mut SeededRng::new(1)));
        let (a, b) = (name(&[1]), name(&[2]));
        for (prefix, face, cost) in [(&a, 300, 1), (&b, 301, 9), (&b, 300, 1)] {
            fib.add_next_hop(prefix.as_ref(), FaceId(face), cost)
                .unwrap();
        }
        fib.remove_face(FaceId(300));
        assert_eq!((fib.sets.sets.len(), fib.sets.numbers.len()), (1, 1));
        assert_eq!(
            fib.entries(),
            [(
                b,
                vec![NextHop {
                    face: FaceId(301),
                    inherited: false,
                    cost: 9
                }]
            )]
        );
    }
}
