use std::collections::BTreeMap;

use whimbrel_core::{Guid, Recent, Time, TimerQueue};

use crate::alias::Alias;
use crate::record::{Address, Kind, Pointer, Record};
use crate::store::StoreLimits;

/// The known records of a name: verified, neither expired nor removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// The binding of a host, router or service. Without addresses, it is disconnected; it may be a
    /// revocation.
    pub binding: Option<Record>,
    /// The providers of a content, in the order of their names; or the pointers of a key.
    pub providers: Vec<Record>,
}

impl Answer {
    /// Returns true if the name has no records.
    pub fn is_empty(&self) -> bool {
        self.binding.is_none() && self.providers.is_empty()
    }

    /// Returns the revocation of the name, if its owner has taken it back.
    pub fn revocation(&self) -> Option<&Record> {
        let binding = self.binding.as_ref();
        binding.filter(|it| it.kind() == Kind::Revocation)
    }

    /// Returns the pointer that the owner of the name calls so.
    pub fn pointer(&self, alias: &Alias) -> Option<(&Record, Pointer)> {
        let mut pointers = (self.providers.iter()).filter_map(|it| Some((it, it.as_pointer()?)));
        pointers.find(|(_, pointer)| pointer.alias == *alias)
    }

    /// Returns all addresses, of the binding and of the providers: best preference first, then by
    /// larger weight.
    pub fn addresses(&self) -> Vec<Address> {
        let records = self.binding.iter().chain(&self.providers);
        let mut addresses: Vec<Address> = records.flat_map(Record::addresses).collect();
        addresses.sort_by_key(|address| (address.preference, u16::MAX - address.weight));
        addresses
    }
}

/// Verified records by name, for as long as they may be used without a query. Bounded: the name
/// that expires first is evicted.
#[derive(Debug)]
pub(super) struct Cache {
    max_names: usize,
    max_providers: usize,
    names: BTreeMap<Guid, BTreeMap<Guid, Record>>,
    valid_until: TimerQueue<Guid>,
    /// The greatest version of each binding, and the Unix time in milliseconds until which older ones
    /// are not believed. A server that has lost its records takes an older valid one from anybody, and
    /// a failover may bring one back.
    floors: Recent<Guid, (u64, u64)>,
}

impl Cache {
    pub(super) fn new(max_names: usize, max_providers: usize) -> Cache {
        let names = BTreeMap::new();
        Cache {
            max_names: max_names.max(1),
            max_providers,
            names,
            valid_until: TimerQueue::new(),
            floors: Recent::new(max_names.max(1)),
        }
    }

    /// Returns false for a binding that is older than one that was known and has not expired.
    fn is_above_floor(&self, now_ms: u64, record: &Record) -> bool {
        let floor = self.floors.get(&record.subject());
        let below = |(version, until): &(u64, u64)| record.version() < *version && now_ms < *until;
        !floor.is_some_and(below)
    }

    fn raise_floor(&mut self, record: &Record) {
        let before = self.floors.get(&record.subject());
        let until = before.map_or(0, |(_, until)| *until);
        let floor = (record.version(), until.max(record.expires_ms()));
        self.floors.insert(record.subject(), floor);
    }

    /// Returns the records that may be used at `now`; an empty answer means "no such name" and is
    /// valid, too.
    pub(super) fn usable(&self, now: Time, now_ms: u64, guid: &Guid) -> Option<Answer> {
        if self.valid_until.get(guid).is_none_or(|until| until <= now) {
            return None;
        }
        // An expired record may have a successor that is not known here.
        let records = self.names.get(guid)?;
        let current = records
            .values()
            .all(|record| record.is_removal() || !record.is_expired(now_ms));
        current.then(|| self.answer(now_ms, guid))
    }

    /// Returns the known records, however old.
    pub(super) fn answer(&self, now_ms: u64, guid: &Guid) -> Answer {
        let mut answer = Answer::default();
        for (provider, record) in self.names.get(guid).into_iter().flatten() {
            if record.is_removal() || record.is_expired(now_ms) {
                continue;
            }
            if provider.is_none() {
                answer.binding = Some(record.clone());
            } else {
                answer.providers.push(record.clone());
            }
        }
        answer
    }

    /// Returns true if this very record is cached, so that its signature need not be verified
    /// again.
    pub(super) fn holds<B: AsRef<[u8]>>(&self, record: &Record<B>) -> bool {
        let key = record.filed_under();
        let known = self
            .names
            .get(&key.subject)
            .and_then(|records| records.get(&key.provider));
        known.is_some_and(|known| known.as_bytes() == record.as_bytes())
    }

    /// Merges records of `guid`. The newest version of each provider is kept, in whatever order
    /// they arrive. Returns true if anything changed.
    pub(super) fn merge(&mut self, now_ms: u64, guid: Guid, records: &[Record]) -> bool {
        self.make_room(&guid);
        let mut changed = false;
        for record in records {
            let provider = record.filed_under().provider;
            if provider.is_none() {
                if !self.is_above_floor(now_ms, record) {
                    continue;
                }
                self.raise_floor(record);
            }
            let known = self.names.entry(guid).or_default();
            match known.get(&provider) {
                Some(old) if old.version() >= record.version() => continue,
                Some(_) => {}
                None if provider.is_none() => {}
                None => {
                    let most = StoreLimits::most_of(self.max_providers, record.kind());
                    if known.len() > most {
                        known.retain(|_, record| !record.is_expired(now_ms));
                    }
                    if known.len() > most {
                        continue;
                    }
                }
            }
            known.insert(provider, record.clone());
            changed = true;
        }
        self.names.entry(guid).or_default();
        changed
    }

    /// As [`Cache::merge`] for a complete answer: removes the records that it lacks.
    pub(super) fn replace(&mut self, now_ms: u64, guid: Guid, records: &[Record]) {
        if let Some(known) = self.names.get_mut(&guid) {
            known.retain(|provider, _| {
                records
                    .iter()
                    .any(|record| record.filed_under().provider == *provider)
            });
        }
        self.merge(now_ms, guid, records);
    }

    /// Removes expired records, so that they no longer cause lookups.
    pub(super) fn purge(&mut self, now_ms: u64, guid: &Guid) {
        if let Some(known) = self.names.get_mut(guid) {
            known.retain(|_, record| !record.is_expired(now_ms));
        }
    }

    pub(super) fn set_valid_until(&mut self, guid: Guid, until: Time) {
        self.make_room(&guid);
        self.names.entry(guid).or_default();
        self.valid_until.set(guid, until);
    }

    pub(super) fn forget(&mut self, guid: &Guid) {
        self.names.remove(guid);
        self.valid_until.cancel(guid);
    }

    /// Every name in `names` has a deadline, except one that is being added.
    fn make_room(&mut self, guid: &Guid) {
        while self.names.len() >= self.max_names && !self.names.contains_key(guid) {
            let Some((_, oldest)) = self.valid_until.pop_due(Time::MAX) else {
                self.names.clear();
                return;
            };
            self.names.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyPair, Statement};
    use proptest::prelude::*;

    fn record(provider: u8, version: u64, content: Guid) -> Record {
        let said = Statement {
            version,
            ..Statement::new(1000, 1000, vec![])
        };
        Record::provider(&KeyPair::from_secret(&[provider; 32]), content, &said).unwrap()
    }

    proptest! {
        #[test]
        fn records_end_in_the_same_state_in_whatever_order_they_come(
            versions in prop::collection::vec((0u8..4, 1u64..5), 0..12).prop_shuffle(),
        ) {
            let content = Guid([1; 32]);
            let mut cache = Cache::new(4, 8);
            for (provider, version) in &versions {
                cache.merge(1500, content, &[record(*provider, *version, content)]);
            }
            let newest: BTreeMap<Guid, u64> = versions.iter().fold(BTreeMap::new(), |mut newest, (provider, version)| {
                let kept: &mut u64 = newest.entry(KeyPair::from_secret(&[*provider; 32]).guid()).or_default();
                *kept = (*kept).max(*version);
                newest
            });
            let known: BTreeMap<Guid, u64> = cache
                .answer(1500, &content)
                .providers
                .iter()
                .map(|record| (record.signer(), record.version()))
                .collect();
            prop_assert_eq!(known, newest);
        }

        #[test]
        fn the_cache_never_outgrows_its_bounds(names in prop::collection::vec((0u8..20, 0u64..10), 0..50)) {
            let mut cache = Cache::new(3, 2);
            for (name, until) in names {
                let content = Guid([name + 1; 32]);
                cache.merge(1500, content, &[record(1, until, content), record(2, until, content), record(3, 1, content)]);
                cache.set_valid_until(content, Time::from_secs(until));
                prop_assert!(cache.len() <= 3);
                prop_assert!(cache.answer(1500, &content).providers.len() <= 3);
            }
        }
    }

    #[test]
    fn a_binding_older_than_one_that_was_known_is_not_believed_until_that_expires() {
        let keys = KeyPair::from_secret(&[1; 32]);
        let binding = |version, life_ms| {
            let said = Statement {
                version,
                ..Statement::new(1000, life_ms, vec![])
            };
            Record::binding(&keys, &said).unwrap()
        };
        let (name, mut cache) = (keys.guid(), Cache::new(4, 8));
        cache.merge(1500, name, &[binding(5, 1000)]);
        // The name is looked up anew, and the server has lost it.
        cache.forget(&name);
        cache.replace(1500, name, &[]);
        cache.replace(1600, name, &[binding(4, 9000)]);
        assert!(cache.answer(1600, &name).is_empty(), "it goes back");
        cache.replace(1700, name, &[binding(5, 1000)]);
        assert_eq!(cache.answer(1700, &name).binding, Some(binding(5, 1000)));
        cache.purge(2000, &name);
        cache.replace(2000, name, &[binding(4, 9000)]);
        assert_eq!(cache.answer(2000, &name).binding, Some(binding(4, 9000)));
    }

    #[test]
    fn the_best_address_comes_first() {
        let keys = KeyPair::from_secret(&[1; 32]);
        let address = |na, preference, weight| Address {
            na: Guid([na; 32]),
            preference,
            weight,
        };
        let said = Statement::new(
            1000,
            1000,
            vec![address(1, 2, 9), address(2, 1, 1), address(3, 1, 5)],
        );
        let answer = Answer {
            binding: Some(Record::binding(&keys, &said).unwrap()),
            providers: vec![],
        };
        let order: Vec<u8> = answer
            .addresses()
            .iter()
            .map(|address| address.na.0[0])
            .collect();
        assert_eq!(order, [3, 2, 1]);
    }
}
