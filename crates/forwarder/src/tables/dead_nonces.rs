//! Nonces of Interests that no longer wait: what still runs in a loop when the PIT has forgotten it.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;

use crate::tables::index::Index;
use crate::tables::name_key::NameHasher;

/// The dead nonce list: keyed hashes of names with nonces, each for a while, at most so many.
#[derive(Clone, Debug)]
pub struct DeadNonces {
    hasher: NameHasher,
    lifetime: Duration,
    capacity: usize,
    /// In the order in which they came, which is that in which they expire.
    queue: VecDeque<(u64, Time)>,
    /// The number of the queue's first element; they are counted on and on.
    first: u32,
    index: Index,
}

impl DeadNonces {
    pub(crate) fn new(hasher: NameHasher, lifetime: Duration, capacity: usize) -> DeadNonces {
        let capacity = capacity.min(1 << 30);
        DeadNonces { hasher, lifetime, capacity, queue: VecDeque::new(), first: 0, index: Index::new() }
    }

    /// How many it knows.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) const fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Remembers the nonce of a name, given by its hash.
    pub(crate) fn add(&mut self, now: Time, name_hash: u64, nonce: u32) {
        self.expire(now);
        if self.capacity == 0 {
            return;
        }
        while self.queue.len() >= self.capacity {
            self.forget_first();
        }
        let hash = self.hasher.mix(name_hash, nonce);
        self.index.insert(hash, self.number(self.queue.len()));
        self.queue.push_back((hash, now + self.lifetime));
    }

    /// True if it knows the nonce.
    pub(crate) fn has(&mut self, now: Time, name_hash: u64, nonce: u32) -> bool {
        self.expire(now);
        if self.queue.is_empty() {
            return false;
        }
        let hash = self.hasher.mix(name_hash, nonce);
        let is_it = |number: u32| {
            let at = number.wrapping_sub(self.first) & NUMBERS;
            self.queue.get(at as usize).is_some_and(|(known, _)| *known == hash)
        };
        self.index.find(hash, is_it).is_some()
    }

    /// Forgets what is too old.
    pub(crate) fn expire(&mut self, now: Time) {
        while self.queue.front().is_some_and(|(_, until)| *until <= now) {
            self.forget_first();
        }
    }

    fn number(&self, at: usize) -> u32 {
        self.first.wrapping_add(at as u32) & NUMBERS
    }

    fn forget_first(&mut self) {
        if let Some((hash, _)) = self.queue.pop_front() {
            self.index.remove(hash, self.first);
            self.first = self.number(1);
        }
    }
}

/// Numbers wrap before the one that the index takes for an empty place.
const NUMBERS: u32 = (1 << 31) - 1;

#[cfg(test)]
mod tests {
    use whimbrel_core::SeededRng;

    use super::*;

    #[test]
    fn nonces_are_forgotten_after_their_lifetime_and_the_oldest_beyond_the_capacity() {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        let mut list = DeadNonces::new(hasher, Duration::from_secs(6), 3);
        let start = Time::from_secs(1);
        for nonce in 0..4 {
            list.add(start + Duration::from_secs(u64::from(nonce)), 7, nonce);
        }
        let now = start + Duration::from_secs(4);
        assert_eq!(list.len(), 3);
        assert_eq!([0, 1, 2, 3].map(|nonce| list.has(now, 7, nonce)), [false, true, true, true]);
        assert!(!list.has(now, 8, 3), "another name");
        assert!(!list.has(start + Duration::from_secs(7), 7, 1));
        assert!(list.has(start + Duration::from_secs(7), 7, 2));
        list.expire(start + Duration::from_secs(9));
        assert!(list.is_empty());
    }

    #[test]
    fn numbers_wrap_without_losing_anything() {
        let hasher = NameHasher::new(&mut SeededRng::new(1));
        let mut list = DeadNonces::new(hasher, Duration::from_secs(6), 8);
        list.first = NUMBERS - 3;
        for nonce in 0..64 {
            list.add(Time::ZERO, 7, nonce);
            assert!(list.has(Time::ZERO, 7, nonce.saturating_sub(7)) && !list.has(Time::ZERO, 7, nonce + 1));
        }
    }
}
