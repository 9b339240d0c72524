//! Recently arrived numbers, to recognise duplicates.

use core::time::Duration;

use whimbrel_core::Time;

const FIRST_SIZE: usize = 256;
const MAX_SIZE: usize = 8192;

#[derive(Clone, Copy, Debug)]
struct Entry {
    number: u64,
    at: Time,
}

/// A table indexed by the low bits of mostly consecutive numbers. It grows while it forgets too
/// early.
#[derive(Debug, Default)]
pub(crate) struct RecentNumbers {
    entries: Vec<Option<Entry>>,
}

impl RecentNumbers {
    /// Remembers `number`. Returns true if it arrived within `memory` before.
    pub(crate) fn came_before(&mut self, now: Time, number: u64, memory: Duration) -> bool {
        if self.entries.is_empty() {
            self.entries.resize(FIRST_SIZE, None);
        }
        if let Some(entry) = self
            .entry(number)
            .filter(|entry| now.since(entry.at) <= memory)
        {
            if entry.number == number {
                return true;
            }
            if self.entries.len() < MAX_SIZE {
                self.grow();
            }
        }
        let index = self.index(number);
        if let Some(slot) = self.entries.get_mut(index) {
            *slot = Some(Entry { number, at: now });
        }
        false
    }

    fn index(&self, number: u64) -> usize {
        // The length is a power of two.
        number as usize & (self.entries.len().saturating_sub(1))
    }

    fn entry(&self, number: u64) -> Option<Entry> {
        self.entries.get(self.index(number)).copied().flatten()
    }

    fn grow(&mut self) {
        let doubled = vec![None; self.entries.len() * 2];
        for entry in core::mem::replace(&mut self.entries, doubled)
            .into_iter()
            .flatten()
        {
            let index = self.index(entry.number);
            if let Some(slot) = self.entries.get_mut(index) {
                *slot = Some(entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Duration = Duration::from_millis(300);

    #[test]
    fn duplicates_are_recognised_only_within_memory() {
        let mut recent = RecentNumbers::default();
        assert!(!recent.came_before(Time::ZERO, u64::MAX, MEMORY));
        assert!(recent.came_before(Time::from_millis(300), u64::MAX, MEMORY));
        // A peer that restarted begins with the same numbers again (NFD: 2^64 - 1).
        assert!(!recent.came_before(Time::from_millis(301), u64::MAX, MEMORY));
    }

    #[test]
    fn it_grows_when_many_numbers_arrive_within_memory_and_stops() {
        let mut recent = RecentNumbers::default();
        for number in 0..5_000 {
            assert!(!recent.came_before(Time::ZERO, number, MEMORY));
        }
        for number in 0..5_000 {
            assert!(recent.came_before(Time::ZERO, number, MEMORY));
        }
        for number in 0..100_000 {
            recent.came_before(Time::ZERO, number * 256, MEMORY);
        }
        assert_eq!(recent.entries.len(), MAX_SIZE);
    }
}
