use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::Guid;

use super::{Outcome, PutResult, Refusal, Store, StoreError, StoreLimits};
use crate::record::{Kind, Record, RecordKey};

/// Records in memory, in the order of their keys.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    limits: StoreLimits,
    entries: BTreeMap<RecordKey, Entry>,
    forget_at: BTreeSet<(u64, RecordKey)>,
    bytes: usize,
}

/// A record with the Unix time, in milliseconds, until which its version must be remembered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) record: Record,
    pub(super) keep_until_ms: u64,
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

    pub(super) fn apply_logged(
        &mut self,
        now_ms: u64,
        record: &Record,
        undo: &mut UndoLog,
    ) -> PutResult {
        let key = record.filed_under();
        let mut keep_until_ms = record.expires_ms();
        let mut replaced = None;
        if let Some(old) = self.entries.get(&key) {
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
            replaced = Some(key);
        } else if record.kind() == Kind::Provider {
            replaced = self.provider_to_evict(now_ms, record)?;
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
        self.change(
            key,
            Some(Entry {
                record: record.clone(),
                keep_until_ms,
            }),
            undo,
        );
        Ok(Outcome::Stored)
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

    /// Returns the provider that a new one replaces, if there is no room for both: never a living
    /// one, or whoever announces for long would silence the others.
    fn provider_to_evict(
        &self,
        now_ms: u64,
        record: &Record,
    ) -> Result<Option<RecordKey>, Refusal> {
        let subject = record.subject();
        let providers = || {
            self.subject(&subject)
                .filter(|(key, _)| !key.provider.is_none())
        };
        if providers().count() < self.limits.max_providers {
            return Ok(None);
        }
        let gone = providers()
            .filter(|(_, entry)| entry.record.is_removal() || entry.keep_until_ms <= now_ms);
        let soonest = gone.map(|(key, entry)| (entry.keep_until_ms, *key)).min();
        soonest.map_or(Err(Refusal::Full), |(_, key)| Ok(Some(key)))
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
}

impl Store for MemoryStore {
    fn get(&self, key: &RecordKey) -> Option<Record> {
        self.entries.get(key).map(|entry| entry.record.clone())
    }

    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) {
        for (_, entry) in self.subject(subject) {
            if !entry.record.is_expired(now_ms) && !visit(&entry.record) {
                return;
            }
        }
    }

    fn apply(&mut self, now_ms: u64, batch: &[Record]) -> Result<Vec<PutResult>, StoreError> {
        let mut undo = UndoLog::new();
        Ok(batch
            .iter()
            .map(|record| self.apply_logged(now_ms, record, &mut undo))
            .collect())
    }

    fn remove_expired(&mut self, now_ms: u64, budget: usize) -> Result<usize, StoreError> {
        Ok(self.forget_expired(now_ms, budget, None, &mut UndoLog::new()))
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn free(&self) -> usize {
        let bytes = self.limits.max_bytes.saturating_sub(self.bytes);
        let least = Self::ENTRY_OVERHEAD + crate::record::RECORD_LEN.0;
        let records = self.limits.max_records.saturating_sub(self.entries.len());
        records.min(bytes / least)
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
