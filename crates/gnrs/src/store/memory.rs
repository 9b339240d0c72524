use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::Guid;

use super::{
    Outcome, Put, PutResult, Refusal, Reply, Request, Store, StoreEvent, StoreLimits, Ticket, Usage,
};
use crate::record::{Kind, Record, RecordKey};

/// Records in memory, in the order of their keys.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    limits: StoreLimits,
    entries: BTreeMap<RecordKey, Entry>,
    forget_at: BTreeSet<(u64, RecordKey)>,
    bytes: usize,
    events: VecDeque<StoreEvent>,
}

/// A record with the Unix time, in milliseconds, until which its version must be remembered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) record: Record,
    pub(super) keep_until_ms: u64,
    /// Where it came from. Not on disk: after a restart, all are of one unknown network.
    pub(super) network: Option<u128>,
}

/// The entries to restore, newest last, if a batch does not reach the disk.
pub(super) type UndoLog = Vec<(RecordKey, Option<Entry>)>;

impl MemoryStore {
    /// Bytes of an entry beside its record: its key twice, its times, and the slack of two trees.
    pub const ENTRY_OVERHEAD: usize = 320;
    /// Maximum of expired records that a full store removes to make room for a new one.
    const EVICTION_BUDGET: usize = 64;

    /// Returns an empty store.
    pub fn new(limits: StoreLimits) -> MemoryStore {
        MemoryStore {
            limits,
            entries: BTreeMap::new(),
            forget_at: BTreeSet::new(),
            bytes: 0,
            events: VecDeque::new(),
        }
    }

    /// Memory of a record, in bytes: its encoding and [`MemoryStore::ENTRY_OVERHEAD`]. With it a
    /// store never exceeds its `max_bytes`.
    pub fn bytes_of(record: &Record) -> usize {
        record.as_bytes().len() + Self::ENTRY_OVERHEAD
    }

    /// Returns at most `most` records that follow `after` in the order of their keys.
    pub fn following(&self, after: Option<RecordKey>, most: usize) -> Vec<Record> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.range((from, Bound::Unbounded));
        entries
            .take(most)
            .map(|(_, entry)| entry.record.clone())
            .collect()
    }

    pub(super) fn entry(&self, key: &RecordKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Restores an entry regardless of the limits: it was acknowledged before.
    pub(super) fn restore(&mut self, key: RecordKey, entry: Option<Entry>) -> Option<Entry> {
        let old = match entry {
            Some(entry) => {
                self.bytes += Self::bytes_of(&entry.record);
                self.forget_at.insert((entry.keep_until_ms, key));
                self.entries.insert(key, entry)
            }
            None => self.entries.remove(&key),
        };
        if let Some(old) = &old {
            self.bytes -= Self::bytes_of(&old.record);
            let unchanged = self
                .entries
                .get(&key)
                .is_some_and(|new| new.keep_until_ms == old.keep_until_ms);
            if !unchanged {
                self.forget_at.remove(&(old.keep_until_ms, key));
            }
        }
        old
    }

    fn change(&mut self, key: RecordKey, entry: Option<Entry>, undo: &mut UndoLog) {
        let old = self.restore(key, entry);
        undo.push((key, old));
    }

    pub(super) fn apply_logged(&mut self, now_ms: u64, put: &Put, undo: &mut UndoLog) -> PutResult {
        let record = &put.record;
        let key = record.filed_under();
        let mut keep_until_ms = record.expires_ms();
        let old = self.entries.get(&key);
        let known = old.filter(|old| old.keep_until_ms > now_ms);
        let is_new = known.is_none();
        let mut replaced = old.map(|_| key);
        if let Some(old) = known {
            let stored = old.record.version();
            if record.version() < stored {
                return Err(Refusal::Stale { stored });
            }
            if record.version() == stored {
                let same = old.record.as_bytes() == record.as_bytes();
                return if same {
                    Ok(Outcome::Unchanged)
                } else {
                    Err(Refusal::Conflict { stored })
                };
            }
            keep_until_ms = keep_until_ms.max(old.keep_until_ms);
        } else if !put.may_create {
            return Err(Refusal::Full);
        } else if replaced.is_none() && !key.provider.is_none() {
            replaced = self.provider_to_evict(now_ms, record, put.network)?;
        }
        if !self.has_room(record, replaced) {
            // Never the entry to be replaced: its version is still needed.
            self.forget_expired(now_ms, Self::EVICTION_BUDGET, replaced, undo);
            if !self.has_room(record, replaced) {
                return Err(Refusal::Full);
            }
        }
        if let Some(other) = replaced.filter(|other| *other != key) {
            self.change(other, None, undo);
        }
        let entry = Entry {
            record: record.clone(),
            keep_until_ms,
            network: put.network,
        };
        self.change(key, Some(entry), undo);
        Ok(if is_new {
            Outcome::Created
        } else {
            Outcome::Stored
        })
    }

    /// A record that takes no more room than the one it replaces is always accepted, so that a full
    /// store can still be emptied.
    fn has_room(&self, record: &Record, replaced: Option<RecordKey>) -> bool {
        let freed = replaced.and_then(|key| self.entries.get(&key));
        let (grown, freed) = (
            Self::bytes_of(record),
            freed.map(|entry| Self::bytes_of(&entry.record)),
        );
        let enough_bytes = freed >= Some(grown)
            || self.bytes - freed.unwrap_or(0) + grown <= self.limits.max_bytes;
        enough_bytes && (freed.is_some() || self.entries.len() < self.limits.max_records)
    }

    /// Returns the provider that a new one replaces, if there is no room for both: one that has
    /// expired or was removed, else one of the network with the most living ones, unless the new one's
    /// would have as many.
    fn provider_to_evict(
        &self,
        now_ms: u64,
        record: &Record,
        network: Option<u128>,
    ) -> Result<Option<RecordKey>, Refusal> {
        let subject = record.subject();
        // Of its kind: whoever announces a group's name as a content's takes no place of a member.
        let providers = || {
            let entries = self.subject(&subject);
            let is_alike = |it: &Entry| it.record.kind() == record.kind();
            entries.filter(move |(key, entry)| !key.provider.is_none() && is_alike(entry))
        };
        let most = StoreLimits::most_of(self.limits.max_providers, record.kind());
        if providers().count() < most {
            return Ok(None);
        }
        let is_gone = |entry: &Entry| entry.record.is_removal() || entry.keep_until_ms <= now_ms;
        let soonest = |of: &mut dyn Iterator<Item = (&RecordKey, &Entry)>| {
            let first = of.map(|(key, entry)| (entry.keep_until_ms, *key)).min();
            first.map(|(_, key)| key)
        };
        let gone = soonest(&mut providers().filter(|(_, entry)| is_gone(entry)));
        if gone.is_some() {
            return Ok(gone);
        }
        let mut living: BTreeMap<Option<u128>, usize> = BTreeMap::new();
        for (_, entry) in providers() {
            *living.entry(entry.network).or_default() += 1;
        }
        let own = living.get(&network).copied().unwrap_or(0);
        // Of several with the most, the greatest network.
        let most = living.into_iter().max_by_key(|(of, count)| (*count, *of));
        let most = most.filter(|(_, count)| *count > own + 1).map(|(of, _)| of);
        let of_most = most
            .and_then(|most| soonest(&mut providers().filter(|(_, entry)| entry.network == most)));
        of_most.map_or(Err(Refusal::Full), |key| Ok(Some(key)))
    }

    /// Forgets one announcement of a content whose key `is_gone` is true for. Returns false if there
    /// is none.
    pub fn forget_provider(
        &mut self,
        content: &Guid,
        is_gone: impl Fn(&RecordKey) -> bool,
    ) -> bool {
        let key = self
            .subject(content)
            .map(|(key, _)| *key)
            .find(|key| !key.provider.is_none() && is_gone(key));
        let Some(key) = key else { return false };
        self.restore(key, None);
        true
    }

    pub(super) fn forget_expired(
        &mut self,
        now_ms: u64,
        budget: usize,
        except: Option<RecordKey>,
        undo: &mut UndoLog,
    ) -> usize {
        let due: Vec<RecordKey> = self
            .forget_at
            .iter()
            .take_while(|(at, _)| *at <= now_ms)
            .map(|(_, key)| *key)
            .filter(|key| Some(*key) != except)
            .take(budget)
            .collect();
        for key in &due {
            self.change(*key, None, undo);
        }
        due.len()
    }

    fn subject(&self, subject: &Guid) -> impl Iterator<Item = (&RecordKey, &Entry)> + use<'_> {
        let subject = *subject;
        // Without an upper bound the tree is searched once, not twice.
        let from = self.entries.range(RecordKey::binding(subject)..);
        from.take_while(move |(key, _)| key.subject == subject)
    }

    /// Returns the newest record under `key`, even if it has expired or is a removal.
    pub fn get(&self, key: &RecordKey) -> Option<Record> {
        self.entries.get(key).map(|entry| entry.record.clone())
    }

    /// Passes the unexpired records of `subject` to `visit`, as [`Store::visit`].
    pub fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) {
        for (_, entry) in self.subject(subject) {
            if !entry.record.is_expired(now_ms) && !visit(&entry.record) {
                return;
            }
        }
    }

    /// Applies records in order. Returns one result per record.
    pub fn apply(&mut self, now_ms: u64, batch: &[Put]) -> Vec<PutResult> {
        let mut undo = UndoLog::new();
        batch
            .iter()
            .map(|put| self.apply_logged(now_ms, put, &mut undo))
            .collect()
    }

    /// Applies one record.
    pub fn put(&mut self, now_ms: u64, record: Record) -> PutResult {
        self.apply_logged(now_ms, &record.into(), &mut UndoLog::new())
    }

    /// Removes at most `budget` expired records; returns their number.
    pub fn remove_expired(&mut self, now_ms: u64, budget: usize) -> usize {
        self.forget_expired(now_ms, budget, None, &mut UndoLog::new())
    }

    /// Returns the providers of `content`, or the members of a name, that are neither expired nor removed.
    pub fn providers(&self, content: &Guid, now_ms: u64) -> Vec<Record> {
        let mut found = Vec::new();
        self.visit(content, now_ms, &mut |record| {
            let has_holder = matches!(
                record.kind(),
                Kind::Provider | Kind::Member | Kind::Membership
            );
            if !record.is_removal() && has_holder {
                found.push(record.clone());
            }
            true
        });
        found
    }

    /// Returns the number of records, counting those that are only remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if the store is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the number of further records for which there is room.
    pub fn free(&self) -> usize {
        let bytes = self.limits.max_bytes.saturating_sub(self.bytes);
        let least = Self::ENTRY_OVERHEAD + crate::record::RECORD_LEN.0;
        let records = self.limits.max_records.saturating_sub(self.entries.len());
        records.min(bytes / least)
    }

    /// Returns the bytes that they occupy.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all records of a name, expired ones too.
    pub(super) fn read(&self, subject: &Guid) -> Vec<Record> {
        let all = self.subject(subject);
        all.map(|(_, entry)| entry.record.clone()).collect()
    }
}

impl Store for MemoryStore {
    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) -> bool {
        MemoryStore::visit(self, subject, now_ms, visit);
        true
    }

    fn get(&self, key: &RecordKey) -> Option<Record> {
        MemoryStore::get(self, key)
    }

    fn submit(&mut self, now_ms: u64, ticket: Ticket, request: Request) {
        let reply = match request {
            Request::Read(subject) => Reply::Read(Ok(self.read(&subject))),
            Request::Put(batch) => Reply::Put(Ok(self.apply(now_ms, &batch))),
            Request::RemoveExpired(budget) => {
                Reply::Removed(Ok(self.remove_expired(now_ms, budget)))
            }
        };
        self.events.push_back(StoreEvent::Reply(ticket, reply));
    }

    fn poll(&mut self, _: u64) -> Option<StoreEvent> {
        self.events.pop_front()
    }

    fn following(&self, after: Option<RecordKey>, most: usize) -> Vec<Record> {
        MemoryStore::following(self, after, most)
    }

    fn usage(&self) -> Usage {
        Usage {
            records: self.len(),
            bytes: self.bytes(),
            free: self.free(),
        }
    }
}
