//! Eviction policies: LRU and S3-FIFO.

use crate::config::CsPolicy;
use crate::tables::index::{NONE, Slab};

/// The policy's part of an entry.
#[derive(Clone, Copy, Debug)]
pub(in crate::tables) struct Links {
    prev: u32,
    next: u32,
    /// In the main queue rather than the small one.
    main: bool,
    /// Hits since it last moved, up to 3.
    asked: u8,
    /// The octets that it counts.
    pub(in crate::tables) size: u32,
}

impl Links {
    pub(in crate::tables) const fn new(size: u32) -> Links {
        Links {
            prev: NONE,
            next: NONE,
            main: false,
            asked: 0,
            size,
        }
    }
}

/// An entry that a policy can link into its queues.
pub(in crate::tables) trait Linked {
    fn links(&self) -> &Links;
    fn links_mut(&mut self) -> &mut Links;
    fn hash(&self) -> u64;
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    newest: u32,
    oldest: u32,
    bytes: usize,
}

impl Queue {
    const fn new() -> Queue {
        Queue {
            newest: NONE,
            oldest: NONE,
            bytes: 0,
        }
    }

    fn push<T: Linked>(&mut self, entries: &mut Slab<T>, slot: u32) {
        if let Some(newest) = entries.get_mut(self.newest) {
            newest.links_mut().prev = slot;
        } else {
            self.oldest = slot;
        }
        if let Some(entry) = entries.get_mut(slot) {
            let links = entry.links_mut();
            (links.prev, links.next) = (NONE, self.newest);
            self.bytes += links.size as usize;
        }
        self.newest = slot;
    }

    fn unlink<T: Linked>(&mut self, entries: &mut Slab<T>, slot: u32) {
        let Some(Links {
            prev, next, size, ..
        }) = entries.get(slot).map(|entry| *entry.links())
        else {
            return;
        };
        match entries.get_mut(prev) {
            Some(entry) => entry.links_mut().next = next,
            None => self.newest = next,
        }
        match entries.get_mut(next) {
            Some(entry) => entry.links_mut().prev = prev,
            None => self.oldest = prev,
        }
        self.bytes -= size as usize;
    }
}

/// Names that left the small queue recently: half of each hash, stored at the index that the other
/// half gives. Newer ones overwrite older ones.
#[derive(Clone, Debug, Default)]
struct Ghosts {
    cells: Vec<u32>,
}

impl Ghosts {
    fn add(&mut self, hash: u64, entries: usize) {
        let wanted = entries.clamp(1024, 1 << 20).next_power_of_two();
        if self.cells.len() < wanted {
            self.cells = vec![0; wanted];
        }
        if let Some(cell) = Ghosts::cell(&mut self.cells, hash) {
            *cell = hash as u32 | 1;
        }
    }

    fn take(&mut self, hash: u64) -> bool {
        let cell = Ghosts::cell(&mut self.cells, hash).filter(|cell| **cell == hash as u32 | 1);
        cell.is_some_and(|cell| {
            *cell = 0;
            true
        })
    }

    fn cell(cells: &mut [u32], hash: u64) -> Option<&mut u32> {
        let at = (hash >> 32) as usize & cells.len().wrapping_sub(1);
        cells.get_mut(at)
    }
}

/// The order of eviction.
#[derive(Clone, Debug)]
pub(in crate::tables) struct Policy {
    kind: CsPolicy,
    /// S3-FIFO: Data requested once. Not used by LRU.
    small: Queue,
    main: Queue,
    ghosts: Ghosts,
}

impl Policy {
    pub(in crate::tables) fn new(kind: CsPolicy) -> Policy {
        Policy {
            kind,
            small: Queue::new(),
            main: Queue::new(),
            ghosts: Ghosts::default(),
        }
    }

    /// Octets of all entries.
    pub(in crate::tables) const fn bytes(&self) -> usize {
        self.small.bytes + self.main.bytes
    }

    /// A new entry.
    pub(in crate::tables) fn insert<T: Linked>(&mut self, entries: &mut Slab<T>, slot: u32) {
        let Some(hash) = entries.get(slot).map(Linked::hash) else {
            return;
        };
        // A name that returns soon after it left the small queue is requested repeatedly.
        let main = self.kind == CsPolicy::Lru || self.ghosts.take(hash);
        self.push(entries, slot, main);
    }

    fn push<T: Linked>(&mut self, entries: &mut Slab<T>, slot: u32, main: bool) {
        if let Some(entry) = entries.get_mut(slot) {
            let links = entry.links_mut();
            (links.main, links.asked) = (main, 0);
        }
        if main {
            self.main.push(entries, slot)
        } else {
            self.small.push(entries, slot)
        }
    }

    /// Records a hit, or the same Data arriving again.
    #[inline]
    pub(in crate::tables) fn touch<T: Linked>(&mut self, entries: &mut Slab<T>, slot: u32) {
        match self.kind {
            CsPolicy::S3Fifo => {
                if let Some(entry) = entries.get_mut(slot) {
                    let links = entry.links_mut();
                    links.asked = (links.asked + 1).min(3);
                }
            }
            CsPolicy::Lru if self.main.newest != slot => {
                self.main.unlink(entries, slot);
                self.main.push(entries, slot);
            }
            CsPolicy::Lru => {}
        }
    }

    /// Unlinks an entry from its queue, before it is removed.
    pub(in crate::tables) fn remove<T: Linked>(&mut self, entries: &mut Slab<T>, slot: u32) {
        let Some(main) = entries.get(slot).map(|entry| entry.links().main) else {
            return;
        };
        if main {
            self.main.unlink(entries, slot)
        } else {
            self.small.unlink(entries, slot)
        }
    }

    /// The entries that are likely to be evicted next.
    pub(in crate::tables) fn next_victims<'a, T: Linked>(
        &self,
        entries: &'a Slab<T>,
    ) -> impl Iterator<Item = &'a T> {
        let queue = if self.small.oldest != NONE {
            &self.small
        } else {
            &self.main
        };
        let mut at = queue.oldest;
        core::iter::from_fn(move || {
            let entry = entries.get(at)?;
            at = entry.links().prev;
            Some(entry)
        })
    }

    /// Selects the entry to evict, and unlinks it; `None` if there is none. The small queue is left
    /// a tenth of the store, as the authors of S3-FIFO found best.
    pub(in crate::tables) fn evict<T: Linked>(&mut self, entries: &mut Slab<T>) -> Option<u32> {
        // Each turn either ends or consumes one of an entry's at most 3 hits.
        loop {
            let from_small = self.small.oldest != NONE
                && (self.small.bytes > self.bytes() / 10 || self.main.oldest == NONE);
            let slot = if from_small {
                self.small.oldest
            } else {
                self.main.oldest
            };
            let (links, hash) = entries
                .get(slot)
                .map(|entry| (*entry.links(), entry.hash()))?;
            self.remove(entries, slot);
            if links.asked == 0 {
                if from_small {
                    self.ghosts.add(hash, entries.len());
                }
                return Some(slot);
            }
            self.push(entries, slot, true);
            if let Some(entry) = entries.get_mut(slot).filter(|_| !from_small) {
                entry.links_mut().asked = links.asked - 1;
            }
        }
    }
}
