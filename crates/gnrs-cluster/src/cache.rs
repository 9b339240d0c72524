//! The records of names in use: at hand as long as their changes are told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::Guid;
use whimbrel_gnrs::{Record, RecordKey};

/// Names that were read once are remembered, so that a name that is read again is kept.
const READ_ONCE: usize = 65_536;

/// The records of one name.
#[derive(Debug, Default)]
struct Name {
    /// By provider; the binding first.
    records: BTreeMap<Guid, Record>,
    /// Its place among the names that are not followed; none if it is.
    place: Option<u64>,
    /// The link on which changes are told. Without one, the records may be old.
    link: Option<u64>,
    /// A read is under way that will make it current.
    reading: bool,
    /// Providers that were told since that read began.
    told: BTreeSet<Guid>,
}

/// A bounded number of names, besides those that are followed.
#[derive(Debug)]
pub(crate) struct Cache {
    max: usize,
    max_providers: usize,
    names: BTreeMap<Guid, Name>,
    /// Names that are not followed, by their places: oldest first.
    kept: BTreeMap<u64, Guid>,
    next: u64,
    once: BTreeSet<Guid>,
    once_order: VecDeque<Guid>,
}

impl Cache {
    pub(crate) fn new(max: usize, max_providers: usize) -> Cache {
        Cache {
            max,
            max_providers,
            names: BTreeMap::new(),
            kept: BTreeMap::new(),
            next: 0,
            once: BTreeSet::new(),
            once_order: VecDeque::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the records of a name that is current, binding first.
    pub(crate) fn current(&self, subject: &Guid) -> Option<impl Iterator<Item = &Record>> {
        let name = self.names.get(subject).filter(|it| it.link.is_some())?;
        Some(name.records.values())
    }

    /// Returns the records of a name, as old as they may be.
    pub(crate) fn any(&self, subject: &Guid) -> Vec<Record> {
        let name = self.names.get(subject);
        name.map(|it| it.records.values().cloned().collect())
            .unwrap_or_default()
    }

    pub(crate) fn get(&self, key: &RecordKey) -> Option<&Record> {
        self.names.get(&key.subject)?.records.get(&key.provider)
    }

    /// A name is read. Returns true if it is to be kept: it is in use.
    pub(crate) fn note_read(&mut self, subject: Guid) -> bool {
        if let Some(name) = self.names.get_mut(&subject) {
            name.reading = true;
            name.told.clear();
            return true;
        }
        if self.max == 0 {
            return false;
        }
        if !self.once.remove(&subject) {
            self.once.insert(subject);
            self.once_order.push_back(subject);
            if self.once_order.len() > READ_ONCE
                && let Some(oldest) = self.once_order.pop_front()
            {
                self.once.remove(&oldest);
            }
            return false;
        }
        let name = Name {
            reading: true,
            place: Some(self.next),
            ..Name::default()
        };
        self.kept.insert(self.next, subject);
        self.next += 1;
        self.names.insert(subject, name);
        true
    }

    /// Returns a name that has to go, if there are too many.
    pub(crate) fn evict(&mut self) -> Option<Guid> {
        if self.kept.len() <= self.max {
            return None;
        }
        let (_, subject) = self.kept.pop_first()?;
        self.names.remove(&subject);
        Some(subject)
    }

    /// Keeps a name.
    pub(crate) fn follow(&mut self, subject: Guid) {
        let name = self.names.entry(subject).or_default();
        if let Some(place) = name.place.take() {
            self.kept.remove(&place);
        }
    }

    /// Returns the name if it is followed and has to be read, and counts it as being read.
    pub(crate) fn followed_unread(&mut self, subject: &Guid) -> Option<Guid> {
        let name = self.names.get_mut(subject)?;
        let must = name.place.is_none() && name.link.is_none() && !name.reading;
        name.reading |= must;
        must.then_some(*subject)
    }

    pub(crate) fn unfollow(&mut self, subject: &Guid) {
        if let Some(name) = self.names.get_mut(subject)
            && name.place.is_none()
        {
            name.place = Some(self.next);
            self.kept.insert(self.next, *subject);
            self.next += 1;
        }
    }

    /// Changes of a name are told on `link`, and these are its records. Returns the keys of those of a
    /// followed name that are new.
    pub(crate) fn fresh(
        &mut self,
        subject: Guid,
        records: &[Record],
        link: u64,
        now_ms: u64,
    ) -> Vec<RecordKey> {
        let Some(name) = self.names.get_mut(&subject) else {
            return Vec::new();
        };
        name.link = Some(link);
        name.reading = false;
        let read: BTreeSet<Guid> = records.iter().map(|it| it.filed_under().provider).collect();
        let (followed, told) = (name.place.is_none(), core::mem::take(&mut name.told));
        // A newer binding than the engine's: it has lost one, and will get it again.
        name.records.retain(|provider, _| {
            provider.is_none() || read.contains(provider) || told.contains(provider)
        });
        let mut changed = Vec::new();
        for record in records {
            let key = record.filed_under();
            if merge(name, record.clone(), now_ms) && followed {
                changed.push(key);
            }
        }
        changed
    }

    /// The last read of a name has failed.
    pub(crate) fn not_read(&mut self, subject: &Guid) {
        if let Some(name) = self.names.get_mut(subject) {
            name.reading = false;
        }
    }

    /// A record was stored, in the place of that of a provider if there is one. Returns its key if it
    /// is new and of a followed name.
    pub(crate) fn told(
        &mut self,
        record: Record,
        gone: Option<Guid>,
        now_ms: u64,
    ) -> Option<RecordKey> {
        let key = record.filed_under();
        let name = self.names.get_mut(&key.subject)?;
        if let Some(gone) = gone {
            name.records.remove(&gone);
        }
        name.told.insert(key.provider);
        let is_new = merge(name, record, now_ms);
        while name.records.len() > 2 * self.max_providers + 1 {
            let soonest = name.records.iter().filter(|(it, _)| !it.is_none());
            let soonest = soonest.min_by_key(|(_, record)| record.expires_ms());
            let Some(provider) = soonest.map(|(provider, _)| *provider) else {
                break;
            };
            name.records.remove(&provider);
        }
        (is_new && name.place.is_none()).then_some(key)
    }

    /// Changes are no longer told on `link`, or of this name. Returns the followed names that have to
    /// be read again.
    pub(crate) fn lost(&mut self, is_lost: impl Fn(&Guid, u64) -> bool) -> Vec<Guid> {
        let mut again = Vec::new();
        for (subject, name) in &mut self.names {
            if name.link.is_some_and(|link| is_lost(subject, link)) {
                name.link = None;
                if name.place.is_none() && !name.reading {
                    name.reading = true;
                    name.told.clear();
                    again.push(*subject);
                }
            }
        }
        again
    }
}

/// The engine remembers versions: once one has expired there, an older one may be the newest again.
fn merge(name: &mut Name, record: Record, now_ms: u64) -> bool {
    let provider = record.filed_under().provider;
    let is_older = |known: &Record| {
        known.version() < record.version() || known.is_expired(now_ms) && *known != record
    };
    let is_newer = name.records.get(&provider).is_none_or(is_older);
    if is_newer {
        name.records.insert(provider, record);
    }
    is_newer
}

#[cfg(test)]
mod tests {
    use super::*;
    use whimbrel_gnrs::{KeyPair, Statement};

    fn record(seed: u8, version: u64) -> Record {
        let said = Statement {
            version,
            ..Statement::new(1_000, 1_000, vec![])
        };
        let keys = KeyPair::from_secret(&[seed; 32]);
        Record::binding(&keys, &said).unwrap_or_else(|fault| panic!("{fault}"))
    }

    #[test]
    fn a_name_is_kept_once_it_is_read_again_and_old_ones_go() {
        let mut cache = Cache::new(2, 64);
        let name = |number| record(number, 1).subject();
        for number in 1..=3 {
            assert!(!cache.note_read(name(number)));
            assert!(cache.note_read(name(number)));
            assert!(
                cache
                    .fresh(name(number), &[record(number, 1)], 9, 1_000)
                    .is_empty()
            );
        }
        assert_eq!(cache.evict(), Some(name(1)));
        assert_eq!(cache.evict(), None);
        assert!(cache.current(&name(1)).is_none() && cache.current(&name(2)).is_some());
        cache.follow(name(2));
        assert_eq!(cache.followed_unread(&name(2)), None, "it is current");
        cache.follow(name(4));
        assert_eq!(cache.followed_unread(&name(4)), Some(name(4)));
        assert_eq!(cache.len(), 3);
        cache.unfollow(&name(2));
        cache.unfollow(&name(4));
        assert_eq!(cache.evict(), Some(name(3)));
        assert_eq!(cache.evict(), None);
    }

    #[test]
    fn a_followed_name_never_goes_back_and_is_read_again_when_its_link_is_lost() {
        let mut cache = Cache::new(2, 64);
        let name = record(1, 1).subject();
        cache.follow(name);
        cache.note_read(name);
        assert_eq!(
            cache.told(record(1, 3), None, 1_000),
            Some(RecordKey::binding(name))
        );
        // What is told overtakes what was read before.
        assert!(cache.fresh(name, &[record(1, 2)], 5, 1_000).is_empty());
        assert_eq!(cache.get(&RecordKey::binding(name)), Some(&record(1, 3)));
        assert_eq!(cache.lost(|_, link| link == 4), []);
        assert_eq!(cache.lost(|_, link| link == 5), [name]);
        assert!(cache.current(&name).is_none());
        assert_eq!(cache.any(&name), [record(1, 3)]);
        assert_eq!(cache.told(record(1, 2), None, 1_999), None);
        assert_eq!(
            cache.fresh(name, &[record(1, 4)], 6, 1_000),
            [RecordKey::binding(name)]
        );
        let expired = cache.told(record(1, 2), None, 2_000);
        assert_eq!(expired, Some(RecordKey::binding(name)));
    }
}
