//! A bounded map of what was noted of late.

use std::collections::BTreeMap;

/// A map with a bound, for keys that strangers choose: the entry that was noted the longest ago gives
/// way to a new one, whatever its key.
#[derive(Clone, Debug)]
pub struct Recent<K, V = ()> {
    max: usize,
    // With the number of its note.
    by_key: BTreeMap<K, (u64, V)>,
    by_note: BTreeMap<u64, K>,
    notes: u64,
}

impl<K: Ord + Copy, V> Recent<K, V> {
    /// Returns a map of at most `max` entries.
    pub const fn new(max: usize) -> Recent<K, V> {
        Recent {
            max,
            by_key: BTreeMap::new(),
            by_note: BTreeMap::new(),
            notes: 0,
        }
    }

    /// Returns what was noted last of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.by_key.get(key).map(|(_, value)| value)
    }

    /// Returns true if something was noted of a key, and not forgotten since.
    pub fn contains(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// Notes something of a key. Returns what was noted of it before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let before = self.remove(&key);
        if self.by_key.len() >= self.max
            && let Some((_, oldest)) = self.by_note.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        self.notes += 1;
        self.by_key.insert(key, (self.notes, value));
        self.by_note.insert(self.notes, key);
        before
    }

    /// Forgets a key, and returns what was noted of it.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (note, value) = self.by_key.remove(key)?;
        self.by_note.remove(&note);
        Some(value)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns true if nothing is noted.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a list, the oldest note first.
        #[test]
        fn the_oldest_note_gives_way_whatever_its_key(steps in prop::collection::vec((any::<bool>(), 0u8..8, any::<u8>()), 0..100)) {
            let (mut recent, mut list) = (Recent::new(4), Vec::<(u8, u8)>::new());
            for (inserts, key, value) in steps {
                let at = list.iter().position(|(known, _)| *known == key);
                let before = at.map(|at| list.remove(at).1);
                if inserts {
                    list.push((key, value));
                    let beyond = list.len().saturating_sub(4);
                    list.drain(..beyond);
                    prop_assert_eq!(recent.insert(key, value), before);
                } else {
                    prop_assert_eq!(recent.remove(&key), before);
                }
                prop_assert_eq!((recent.len(), recent.is_empty()), (list.len(), list.is_empty()));
                for (key, value) in &list {
                    prop_assert_eq!(recent.get(key), Some(value));
                }
                prop_assert!(recent.by_note.len() == recent.by_key.len());
            }
        }
    }
}
