//! The base of all tables: slabs of entries, and an index from keyed hashes to slots.

use crate::tables::prefetch;

/// No slot: the largest slot is one less.
pub(crate) const NONE: u32 = u32::MAX;

/// Entries in numbered slots; the slot freed last is reused first, because its memory is likely
/// cached.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place<T>>,
    first_free: u32,
    len: usize,
}

#[derive(Clone, Debug)]
enum Place<T> {
    Free(u32),
    Taken(T),
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab::new()
    }
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Slab<T> {
        Slab {
            places: Vec::new(),
            first_free: NONE,
            len: 0,
        }
    }

    #[cfg(test)]
    pub(crate) const fn place_size() -> usize {
        size_of::<Place<T>>()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of slots, free ones included.
    pub(crate) const fn places(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        match self.places.get_mut(self.first_free as usize) {
            Some(place) => {
                let slot = self.first_free;
                if let Place::Free(next) = *place {
                    self.first_free = next;
                }
                *place = Place::Taken(value);
                slot
            }
            None => {
                self.places.push(Place::Taken(value));
                (self.places.len() - 1) as u32
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let place = self.places.get_mut(slot as usize)?;
        if matches!(place, Place::Free(_)) {
            return None;
        }
        let Place::Taken(value) = core::mem::replace(place, Place::Free(self.first_free)) else {
            return None;
        };
        self.first_free = slot;
        self.len -= 1;
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        match self.places.get(slot as usize) {
            Some(Place::Taken(value)) => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        match self.places.get_mut(slot as usize) {
            Some(Place::Taken(value)) => Some(value),
            _ => None,
        }
    }

    /// Prefetches the first cache line of a slot.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        prefetch::element(&self.places, slot as usize);
    }

    /// In the order of slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places
            .iter()
            .enumerate()
            .filter_map(|(slot, place)| match place {
                Place::Taken(value) => Some((slot as u32, value)),
                Place::Free(_) => None,
            })
    }
}

/// Maps keyed 64-bit hashes to slots, by linear probing: nearly every lookup reads one cache line,
/// and removal leaves no tombstones. The caller compares the entry itself: the index stores only
/// half of each hash.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// A power of two of cells, or none.
    cells: Vec<Cell>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    tag: u32,
    slot: u32,
}

const EMPTY: Cell = Cell { tag: 0, slot: NONE };

impl Index {
    pub(crate) const fn new() -> Index {
        Index {
            cells: Vec::new(),
            len: 0,
        }
    }

    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    const fn tag(hash: u64) -> u32 {
        (hash >> 32) as u32
    }

    /// Returns the slot with this hash for which `is_it` returns true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let (tag, mask) = (Index::tag(hash), self.cells.len() - 1);
        let mut at = tag as usize & mask;
        loop {
            let cell = self.cells[at];
            if cell.slot == NONE {
                return None;
            }
            if cell.tag == tag && is_it(cell.slot) {
                return Some(cell.slot);
            }
            at = (at + 1) & mask;
        }
    }

    /// Prefetches the first cell where a hash may be.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        let at = Index::tag(hash) as usize & self.cells.len().wrapping_sub(1);
        prefetch::element(&self.cells, at);
    }

    /// Returns the likely slot of a hash: may be wrong, for prefetching only.
    #[inline]
    pub(crate) fn guess(&self, hash: u64) -> u32 {
        self.find(hash, |_| true).unwrap_or(NONE)
    }

    /// Adds a slot. It must not be in the index yet.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        // At most 5/8 full: beyond that, runs of occupied cells grow fast.
        if (self.len + 1) * 8 > self.cells.len() * 5 {
            self.grow();
        }
        self.place(Cell {
            tag: Index::tag(hash),
            slot,
        });
        self.len += 1;
    }

    fn grow(&mut self) {
        let doubled = (self.cells.len() * 2).max(16);
        let cells = core::mem::replace(&mut self.cells, vec![EMPTY; doubled]);
        for cell in cells.into_iter().filter(|cell| cell.slot != NONE) {
            self.place(cell);
        }
    }

    fn place(&mut self, cell: Cell) {
        let mask = self.cells.len() - 1;
        let mut at = cell.tag as usize & mask;
        while self.cells[at].slot != NONE {
            at = (at + 1) & mask;
        }
        self.cells[at] = cell;
    }

    fn position(&self, hash: u64, slot: u32) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mask = self.cells.len() - 1;
        let mut at = Index::tag(hash) as usize & mask;
        loop {
            match self.cells[at].slot {
                NONE => return None,
                found if found == slot => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    /// Replaces the slot of a hash.
    pub(crate) fn replace(&mut self, hash: u64, old: u32, new: u32) {
        if let Some(at) = self.position(hash, old) {
            self.cells[at].slot = new;
        }
    }

    /// Removes a slot; returns false if it was not in the index.
    pub(crate) fn remove(&mut self, hash: u64, slot: u32) -> bool {
        let Some(mut hole) = self.position(hash, slot) else {
            return false;
        };
        let mask = self.cells.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let cell = self.cells[at];
            if cell.slot == NONE {
                break;
            }
            // Following cells move up unless that would put them before the cell where their search
            // begins.
            let home = cell.tag as usize & mask;
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.cells[hole] = cell;
                hole = at;
            }
        }
        self.cells[hole] = EMPTY;
        self.len -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few different hashes, so that searches overlap and wrap around.
        #[test]
        fn the_index_finds_what_a_map_finds(steps in prop::collection::vec((any::<bool>(), 0u64..24), 1..400)) {
            let hash = |key: u64| (key / 3 * 7) << 32;
            let (mut index, mut model) = (Index::new(), BTreeMap::new());
            for (add, key) in steps {
                if add && !model.contains_key(&key) {
                    index.insert(hash(key), key as u32);
                    model.insert(key, ());
                } else if !add {
                    prop_assert_eq!(index.remove(hash(key), key as u32), model.remove(&key).is_some());
                }
                prop_assert_eq!(index.len(), model.len());
                for key in 0..24u64 {
                    let found = index.find(hash(key), |slot| u64::from(slot) == key);
                    prop_assert_eq!(found.is_some(), model.contains_key(&key));
                }
            }
        }
    }

    #[test]
    fn freed_places_are_taken_again_before_new_ones() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        assert_eq!((slab.insert('c'), slab.len(), slab.places()), (a, 2, 2));
        assert_eq!(
            slab.iter().map(|(_, value)| *value).collect::<String>(),
            "cb"
        );
        assert_eq!(slab.get(b), Some(&'b'));
    }
}
