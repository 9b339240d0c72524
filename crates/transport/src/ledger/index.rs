//! Indexes from keys to entries of a [`super::Ledger`].

use core::borrow::Borrow;
use core::hash::Hash;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_core::KeyedMap;

/// The index of an entry in its ledger.
pub type Slot = u32;

/// No slot.
pub(super) const NIL: Slot = Slot::MAX;
/// Maximum span of the numbers in a [`Dense`] index, so that a distant number cannot make it grow
/// without bound: 64 MiB.
pub(crate) const MAX_SPAN: u64 = 1 << 24;

/// The key of a pending Interest: a segment or sequence number, or the octets of a name.
pub trait Key: Clone + Borrow<Self::Query> {
    /// The borrowed form of a key, so that a lookup need not copy a name.
    type Query: ?Sized;
}

impl Key for u64 {
    type Query = u64;
}

impl Key for Bytes {
    type Query = [u8];
}

/// From keys to slots.
pub trait Index<K: Key> {
    /// Returns the slot of `key`.
    fn get(&self, key: &K::Query) -> Option<Slot>;

    /// Inserts a new key; returns false if there is no room for it.
    fn insert(&mut self, key: &K, slot: Slot) -> bool;

    /// Removes a key.
    fn remove(&mut self, key: &K::Query) -> Option<Slot>;
}

impl<K: Key + Ord> Index<K> for BTreeMap<K, Slot>
where
    K::Query: Ord,
{
    fn get(&self, key: &K::Query) -> Option<Slot> {
        BTreeMap::get(self, key).copied()
    }

    fn insert(&mut self, key: &K, slot: Slot) -> bool {
        BTreeMap::insert(self, key.clone(), slot);
        true
    }

    fn remove(&mut self, key: &K::Query) -> Option<Slot> {
        BTreeMap::remove(self, key)
    }
}

impl<K: Key + Hash + Eq> Index<K> for KeyedMap<K, Slot>
where
    K::Query: Hash + Eq,
{
    fn get(&self, key: &K::Query) -> Option<Slot> {
        KeyedMap::get(self, key).copied()
    }

    fn insert(&mut self, key: &K, slot: Slot) -> bool {
        KeyedMap::insert(self, key.clone(), slot);
        true
    }

    fn remove(&mut self, key: &K::Query) -> Option<Slot> {
        KeyedMap::remove(self, key)
    }
}

/// Numbers that lie close together, such as those of consecutive segments: four octets for each
/// number between the lowest and the highest, and every operation amortised O(1). Numbers may wrap
/// around.
#[derive(Clone, Debug, Default)]
pub struct Dense {
    /// Slots of the numbers from `base` on; neither the first nor the last one is [`NIL`].
    slots: VecDeque<Slot>,
    base: u64,
}

impl Dense {
    fn place(&self, key: u64) -> Option<usize> {
        usize::try_from(key.wrapping_sub(self.base)).ok()
    }
}

impl Index<u64> for Dense {
    fn get(&self, key: &u64) -> Option<Slot> {
        let slot = self.slots.get(self.place(*key)?)?;
        (*slot != NIL).then_some(*slot)
    }

    fn insert(&mut self, key: &u64, slot: Slot) -> bool {
        if self.slots.is_empty() {
            self.base = *key;
        }
        let (above, below) = (key.wrapping_sub(self.base), self.base.wrapping_sub(*key));
        let len = self.slots.len() as u64;
        if above < MAX_SPAN {
            while (self.slots.len() as u64) <= above {
                self.slots.push_back(NIL);
            }
            if let Some(place) = self.slots.get_mut(above as usize) {
                *place = slot;
            }
            return true;
        }
        if below.saturating_add(len) > MAX_SPAN {
            return false;
        }
        (1..below).for_each(|_| self.slots.push_front(NIL));
        self.slots.push_front(slot);
        self.base = *key;
        true
    }

    fn remove(&mut self, key: &u64) -> Option<Slot> {
        let place = self.place(*key)?;
        let found = core::mem::replace(self.slots.get_mut(place)?, NIL);
        while self.slots.front() == Some(&NIL) {
            self.slots.pop_front();
            self.base = self.base.wrapping_add(1);
        }
        while self.slots.back() == Some(&NIL) {
            self.slots.pop_back();
        }
        (found != NIL).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_dense_index_agrees_with_a_map(
            start: u64, steps in prop::collection::vec((0u8..3, 0u64..40), 0..200),
        ) {
            let mut dense = Dense::default();
            let mut map = BTreeMap::new();
            for (n, (step, offset)) in steps.into_iter().enumerate() {
                let (key, slot) = (start.wrapping_add(offset), n as Slot);
                match step {
                    0 if !map.contains_key(&key) => {
                        prop_assert!(dense.insert(&key, slot));
                        map.insert(key, slot);
                    }
                    1 => prop_assert_eq!(dense.remove(&key), map.remove(&key)),
                    _ => {}
                }
                for offset in 0..40 {
                    let key = start.wrapping_add(offset);
                    prop_assert_eq!(Index::get(&dense, &key), map.get(&key).copied());
                }
                prop_assert!(dense.slots.len() <= 40);
                prop_assert!(!map.is_empty() || dense.slots.is_empty(), "memory is given back");
            }
        }
    }

    #[test]
    fn a_number_far_away_is_refused() {
        let mut dense = Dense::default();
        assert!(dense.insert(&(1 << 40), 1));
        for far in [1 << 41, 0, (1 << 40) + MAX_SPAN, (1 << 40) - MAX_SPAN] {
            assert!(!dense.insert(&far, 2), "{far}");
        }
        assert!(dense.insert(&((1 << 40) - 3), 3));
        assert_eq!(Index::get(&dense, &(1 << 40)), Some(1));
        assert_eq!(dense.slots.len(), 4);
    }
}
