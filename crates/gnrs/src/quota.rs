//! Who fills a store with new records: the more one has brought of late, the less it may bring.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::Time;

/// What an owner has brought counts half after this time.
const HALF_LIFE: Duration = Duration::from_secs(1200);
/// Maximum of owners that are told apart; beyond it the one with the fewest records is forgotten.
const MAX_OWNERS: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Brought {
    records: u64,
    since: Time,
}

/// The new records that each owner has brought of late.
///
/// Where an owner may bring a part of what there is room for, there is room left for another whatever
/// others do.
#[derive(Clone, Debug)]
pub struct Quotas<K> {
    by_owner: BTreeMap<K, Brought>,
}

impl<K> Default for Quotas<K> {
    fn default() -> Quotas<K> {
        Quotas {
            by_owner: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Copy> Quotas<K> {
    /// Notes a new record of `owner`, if it has brought fewer than `most` of late. Returns false if
    /// not.
    pub fn admit(&mut self, now: Time, owner: K, most: usize) -> bool {
        if self.by_owner.len() >= MAX_OWNERS && !self.by_owner.contains_key(&owner) {
            let least = self.by_owner.iter().min_by_key(|(_, it)| it.records);
            let least = least.map(|(owner, _)| *owner);
            least.and_then(|owner| self.by_owner.remove(&owner));
        }
        let brought = self.by_owner.entry(owner).or_insert(Brought {
            records: 0,
            since: now,
        });
        let halvings = now.since(brought.since).as_nanos() / HALF_LIFE.as_nanos();
        if halvings > 0 {
            brought.records = brought.records.checked_shr(halvings as u32).unwrap_or(0);
            brought.since = now;
        }
        let may = brought.records < most as u64;
        brought.records += u64::from(may);
        may
    }

    /// Takes back a record that was admitted: it shall not have counted.
    pub fn give_back(&mut self, owner: K) {
        if let Some(brought) = self.by_owner.get_mut(&owner) {
            brought.records = brought.records.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_there_is_room_for_another() {
        let mut quotas = Quotas::default();
        let mut free = 10_000;
        let mut brought = Vec::new();
        for owner in 0..6 {
            let before = free;
            while quotas.admit(Time::ZERO, owner, free / 4) {
                free -= 1;
            }
            brought.push(before - free);
        }
        assert_eq!(brought, [2000, 1600, 1280, 1024, 819, 655]);
        assert!(quotas.admit(Time::ZERO, 7, free / 4));
        // What was brought long ago counts no more.
        assert!(!quotas.admit(Time::ZERO, 0, free / 4));
        assert!(quotas.admit(Time::from_secs(12 * 1200), 0, free / 4));
    }

    #[test]
    fn owners_are_bounded() {
        let mut quotas = Quotas::default();
        for owner in 0..3 * MAX_OWNERS {
            assert!(quotas.admit(Time::ZERO, owner, 10));
            assert!(quotas.by_owner.len() <= MAX_OWNERS);
        }
    }
}
