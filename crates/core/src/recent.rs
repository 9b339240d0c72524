//! Bounded maps of recent notes.

use core::cmp::Reverse;
use core::hash::Hash;
use std::collections::{BTreeMap, BTreeSet};

use crate::keyed_map::{KeyedMap, keyed_map};
use crate::random::SeededRng;

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

/// A bounded map of notes that belong to owners, such as networks: when it is full, the owner with the
/// most notes loses its oldest one. A busy owner therefore evicts only its own notes.
#[derive(Debug)]
pub struct SharedRecent<O, K, V = ()> {
    max: usize,
    by_key: KeyedMap<K, Note<O, V>>,
    by_number: BTreeMap<u64, K>,
    of_owner: BTreeMap<O, BTreeSet<u64>>,
    // Owners by how many notes they have. Of equals, the one with the oldest note is the last.
    ranks: BTreeSet<(usize, Reverse<u64>, O)>,
    numbers: u64,
}

#[derive(Debug)]
struct Note<O, V> {
    owner: O,
    number: u64,
    value: V,
}

impl<O: Ord + Copy, K: Hash + Eq + Copy, V> SharedRecent<O, K, V> {
    /// Returns a map of at most `max` notes.
    pub fn new(max: usize, rng: &mut SeededRng) -> SharedRecent<O, K, V> {
        SharedRecent {
            max,
            by_key: keyed_map(rng),
            by_number: BTreeMap::new(),
            of_owner: BTreeMap::new(),
            ranks: BTreeSet::new(),
            numbers: 0,
        }
    }

    /// Returns the note of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.by_key.get(key).map(|note| &note.value)
    }

    /// Returns true if there is a note of a key.
    pub fn contains(&self, key: &K) -> bool {
        self.by_key.contains_key(key)
    }

    /// Makes the note of a key the newest of its owner, and returns it.
    pub fn touch(&mut self, key: &K) -> Option<&mut V> {
        let (owner, number) = self.by_key.get(key).map(|note| (note.owner, note.number))?;
        if number != self.numbers {
            self.unlist(owner, number);
            let number = self.list(owner, *key);
            let note = self.by_key.get_mut(key)?;
            note.number = number;
        }
        self.by_key.get_mut(key).map(|note| &mut note.value)
    }

    /// Notes something of a key for an owner. Returns the note that gave way to it.
    pub fn insert(&mut self, owner: O, key: K, value: V) -> Option<(K, V)> {
        self.remove(&key);
        let mut gone = None;
        if self.by_key.len() >= self.max
            && let Some((_, Reverse(oldest), _)) = self.ranks.last().copied()
            && let Some(oldest) = self.by_number.get(&oldest).copied()
        {
            gone = self.remove(&oldest).map(|value| (oldest, value));
        }
        let number = self.list(owner, key);
        let note = Note {
            owner,
            number,
            value,
        };
        self.by_key.insert(key, note);
        gone
    }

    /// Forgets a key, and returns what was noted of it.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let note = self.by_key.remove(key)?;
        self.unlist(note.owner, note.number);
        Some(note.value)
    }

    /// Returns the oldest note of all.
    pub fn oldest(&self) -> Option<(&K, &V)> {
        let key = self.by_number.values().next()?;
        self.by_key.get(key).map(|note| (key, &note.value))
    }

    /// Returns the number of notes.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Returns true if nothing is noted.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    fn list(&mut self, owner: O, key: K) -> u64 {
        self.numbers += 1;
        let number = self.numbers;
        self.by_number.insert(number, key);
        self.change(owner, |notes| notes.insert(number));
        number
    }

    fn unlist(&mut self, owner: O, number: u64) {
        self.by_number.remove(&number);
        self.change(owner, |notes| notes.remove(&number));
    }

    fn change(&mut self, owner: O, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let notes = self.of_owner.entry(owner).or_default();
        let rank = |notes: &BTreeSet<u64>| {
            let first = notes.first().copied();
            first.map(|first| (notes.len(), Reverse(first), owner))
        };
        let before = rank(notes);
        change(notes);
        let after = rank(notes);
        if before != after {
            before.map(|rank| self.ranks.remove(&rank));
            match after {
                Some(rank) => drop(self.ranks.insert(rank)),
                None => drop(self.of_owner.remove(&owner)),
            }
        }
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

        /// Compares with a list, the oldest note first.
        #[test]
        fn the_owner_with_the_most_notes_loses_its_oldest_one(
            steps in prop::collection::vec((0u8..4, 0u8..3, 0u8..12, any::<u8>()), 0..200),
        ) {
            let mut shared = SharedRecent::new(6, &mut SeededRng::new(1));
            let mut list = Vec::<(u8, u8, u8)>::new();
            for (what, owner, key, value) in steps {
                let at = list.iter().position(|(_, known, _)| *known == key);
                match what {
                    0 => {
                        let removed = at.map(|at| list.remove(at).2);
                        prop_assert_eq!(shared.remove(&key), removed);
                    }
                    1 => {
                        let touched = at.map(|at| list.remove(at));
                        list.extend(touched);
                        prop_assert_eq!(shared.touch(&key).copied(), touched.map(|it| it.2));
                    }
                    _ => {
                        at.map(|at| list.remove(at));
                        let count = |owner| list.iter().filter(|it| it.0 == owner).count();
                        let most = (0..3).map(count).max();
                        let gone = list.iter().position(|it| Some(count(it.0)) == most);
                        let gone = gone.filter(|_| list.len() == 6).map(|at| list.remove(at));
                        list.push((owner, key, value));
                        let expected = gone.map(|it| (it.1, it.2));
                        prop_assert_eq!(shared.insert(owner, key, value), expected);
                    }
                }
                prop_assert_eq!((shared.len(), shared.is_empty()), (list.len(), list.is_empty()));
                let oldest = shared.oldest().map(|(key, value)| (*key, *value));
                prop_assert_eq!(oldest, list.first().map(|it| (it.1, it.2)));
                for (owner, key, value) in &list {
                    prop_assert_eq!(shared.get(key), Some(value));
                    prop_assert!(shared.contains(key) && shared.of_owner.contains_key(owner));
                }
                let listed: usize = shared.of_owner.values().map(BTreeSet::len).sum();
                prop_assert_eq!((listed, shared.by_number.len()), (list.len(), list.len()));
                prop_assert_eq!(shared.ranks.len(), shared.of_owner.len());
            }
        }
    }
}
