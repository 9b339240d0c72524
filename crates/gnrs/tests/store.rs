//! Both stores compared with a simple model, through restarts, crashes, full disks and damaged
//! files.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::fs;
use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use redb::{Database, StorageBackend};
use support::{EPOCH, binding, keys, router, said};
use whimbrel_core::Guid;
use whimbrel_gnrs::store::{Outcome, PutResult, Refusal};
use whimbrel_gnrs::{
    DiskStore, Kind, MAX_ADDRESSES, MemoryStore, Record, RecordKey, Statement, Store, StoreError,
    StoreLimits,
};

const CONTENT: Guid = Guid([0xcc; 32]);
const LIMITS: StoreLimits = StoreLimits {
    max_records: 5,
    max_bytes: 2_400,
    max_providers: 3,
};

/// The model: everything in one list, searched from end to end.
#[derive(Clone, Default)]
struct Model {
    entries: Vec<(Record, u64)>,
}

impl Model {
    fn bytes(&self) -> usize {
        self.entries
            .iter()
            .map(|(record, _)| MemoryStore::bytes_of(record))
            .sum()
    }

    fn put(&mut self, now_ms: u64, record: &Record) -> PutResult {
        let key = record.filed_under();
        let mut keep_until = record.expires_ms();
        let mut without = self.clone();
        without
            .entries
            .retain(|(other, _)| other.filed_under() != key);
        let mut victim = None;
        if let Some((old, until)) = self
            .entries
            .iter()
            .find(|(old, _)| old.filed_under() == key)
        {
            let stored = old.version();
            match record.version().cmp(&stored) {
                std::cmp::Ordering::Less => return Err(Refusal::Stale { stored }),
                std::cmp::Ordering::Equal if old == record => return Ok(Outcome::Unchanged),
                std::cmp::Ordering::Equal => return Err(Refusal::Conflict { stored }),
                std::cmp::Ordering::Greater => keep_until = keep_until.max(*until),
            }
        } else if record.kind() == Kind::Provider {
            let same = |(other, _): &&(Record, u64)| {
                other.kind() == Kind::Provider && other.subject() == record.subject()
            };
            if self.entries.iter().filter(same).count() >= LIMITS.max_providers {
                let gone = |(other, until): &&(Record, u64)| other.is_removal() || *until <= now_ms;
                let gone = self.entries.iter().filter(same).filter(gone);
                let soonest = gone.map(|(r, until)| (*until, r.filed_under())).min();
                let (_, soonest) = soonest.ok_or(Refusal::Full)?;
                victim = Some(soonest);
                without
                    .entries
                    .retain(|(other, _)| other.filed_under() != soonest);
            }
        }
        without.entries.push((record.clone(), keep_until));
        let replaced = without.entries.len() == self.entries.len();
        for swept in [false, true] {
            let grown = without.entries.len() > LIMITS.max_records && !replaced;
            let smaller = replaced && without.bytes() <= self.bytes();
            if !grown && (without.bytes() <= LIMITS.max_bytes || smaller) {
                break;
            }
            if swept {
                return Err(Refusal::Full);
            }
            // All expired records are removed, except the one that the record replaces.
            let kept = |until: u64, other: RecordKey| {
                until > now_ms || Some(other) == victim || other == key
            };
            self.entries
                .retain(|(other, until)| kept(*until, other.filed_under()));
            without
                .entries
                .retain(|(other, until)| kept(*until, other.filed_under()));
        }
        *self = without;
        Ok(Outcome::Stored)
    }

    fn visible(&self, now_ms: u64, subject: Guid) -> Vec<Record> {
        let mut found: Vec<Record> = self
            .entries
            .iter()
            .map(|(record, _)| record.clone())
            .collect();
        found.retain(|record| record.subject() == subject && !record.is_expired(now_ms));
        found.sort_by_key(Record::filed_under);
        found
    }
}

fn visible(store: &impl Store, now_ms: u64, subject: Guid) -> Vec<Record> {
    let mut found = Vec::new();
    store.visit(&subject, now_ms, &mut |record| {
        found.push(record.clone());
        true
    });
    found
}

/// A disk in memory that can be full, and that loses unsynced data in a crash.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    broken: bool,
}

impl Disk {
    fn crash(&self) {
        let mut state = self.0.lock().unwrap();
        state.bytes = state.synced.clone();
    }

    fn set_broken(&self, broken: bool) {
        self.0.lock().unwrap().broken = broken;
    }

    fn open(&self) -> Result<DiskStore, StoreError> {
        let disk = self.clone();
        let opener = move || {
            Database::builder()
                .set_check_integrity_on_open(true)
                .create_with_backend(disk.clone())
        };
        DiskStore::open_with(Box::new(opener), LIMITS)
    }

    fn writing(&self, write: impl FnOnce(&mut DiskState)) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        if state.broken {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        write(&mut state);
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.lock().unwrap();
        let from = offset as usize;
        let bytes = state
            .bytes
            .get(from..from + out.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writing(|state| state.bytes.resize(len as usize, 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.writing(|state| state.synced = state.bytes.clone())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.writing(|state| {
            state.bytes[offset as usize..offset as usize + data.len()].copy_from_slice(data)
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<Record>),
    Wait(u64),
    Expire(usize),
    Restart,
    Crash,
    FullDisk(bool),
}

fn record() -> impl Strategy<Value = Record> {
    let parts = (
        0u8..5,
        any::<bool>(),
        1u64..6,
        1u64..400,
        0..=MAX_ADDRESSES,
        any::<bool>(),
    );
    parts.prop_map(|(owner, content, version, life, count, removed)| {
        let addresses = if removed {
            vec![]
        } else {
            vec![router(1); count]
        };
        let statement = Statement {
            removed,
            ..said(version, life, addresses)
        };
        if content {
            Record::provider(&keys(owner), CONTENT, &statement).unwrap()
        } else {
            Record::binding(&keys(owner), &statement).unwrap()
        }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => prop::collection::vec(record(), 1..4).prop_map(Step::Put),
        2 => (0u64..100).prop_map(Step::Wait),
        1 => (0usize..4).prop_map(Step::Expire),
        1 => Just(Step::Restart),
        1 => Just(Step::Crash),
        1 => any::<bool>().prop_map(Step::FullDisk),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_memory_store_behaves_like_a_searched_list(steps in steps()) {
        let (mut store, mut model, mut now_ms) = (MemoryStore::new(LIMITS), Model::default(), EPOCH);
        for step in steps {
            match step {
                Step::Put(batch) => {
                    let expected: Vec<PutResult> = batch.iter().map(|record| model.put(now_ms, record)).collect();
                    prop_assert_eq!(store.apply(now_ms, &batch), Ok(expected));
                }
                Step::Wait(millis) => now_ms += millis,
                Step::Expire(budget) => {
                    let mut due: Vec<(u64, RecordKey)> =
                        model.entries.iter().map(|(record, until)| (*until, record.filed_under())).collect();
                    due.retain(|(until, _)| *until <= now_ms);
                    due.sort();
                    due.truncate(budget);
                    prop_assert_eq!(store.remove_expired(now_ms, budget), Ok(due.len()));
                    model.entries.retain(|(record, _)| due.iter().all(|(_, key)| *key != record.filed_under()));
                }
                Step::Restart | Step::Crash | Step::FullDisk(_) => {}
            }
            prop_assert_eq!((store.len(), store.bytes()), (model.entries.len(), model.bytes()));
            prop_assert!(store.len() <= LIMITS.max_records && store.bytes() <= LIMITS.max_bytes);
            for subject in (0..5).map(|owner| keys(owner).guid()).chain([CONTENT]) {
                prop_assert_eq!(visible(&store, now_ms, subject), model.visible(now_ms, subject));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The disk store behaves like the memory store, except for batches that it reports as not
    /// written. A restart or crash at any moment loses nothing that it has accepted.
    #[test]
    fn the_disk_store_keeps_accepted_records(steps in steps()) {
        let disk = Disk::default();
        let mut store = disk.open().unwrap();
        let (mut twin, mut now_ms, mut broken) = (MemoryStore::new(LIMITS), EPOCH, false);
        for step in steps {
            match step {
                Step::Put(batch) => {
                    // This is beyond the pause after a failure.
                    now_ms += 1_001;
                    let mut after = twin.clone();
                    let expected = after.apply(now_ms, &batch).unwrap();
                    match store.apply(now_ms, &batch) {
                        Ok(results) => {
                            prop_assert_eq!(results, expected);
                            twin = after;
                        }
                        Err(fault) => prop_assert!(broken && matches!(fault, StoreError::Io(_)), "{fault}"),
                    }
                }
                Step::Wait(millis) => now_ms += millis,
                // Expiry is not part of this test: after a crash, a forgotten record may return as
                // an expired one.
                Step::Expire(_) => {}
                Step::Restart | Step::Crash if broken => {}
                Step::Restart => {
                    drop(store);
                    store = disk.open().unwrap();
                }
                Step::Crash => {
                    let image = Disk::default();
                    image.0.lock().unwrap().synced = disk.0.lock().unwrap().synced.clone();
                    image.crash();
                    drop(store);
                    *disk.0.lock().unwrap() = std::mem::take(&mut *image.0.lock().unwrap());
                    store = disk.open().unwrap();
                }
                Step::FullDisk(full) => {
                    broken = full;
                    disk.set_broken(full);
                }
            }
            prop_assert_eq!((store.len(), store.bytes()), (twin.len(), twin.bytes()));
            for subject in (0..5).map(|owner| keys(owner).guid()).chain([CONTENT]) {
                prop_assert_eq!(visible(&store, EPOCH, subject), visible(&twin, EPOCH, subject));
            }
        }
    }
}

#[test]
fn an_old_record_cannot_come_back_after_a_newer_one_has_expired() {
    let mut store = MemoryStore::new(StoreLimits::default());
    let old = binding(1, 1, 10_000, vec![router(1)]);
    assert_eq!(store.put(EPOCH, old.clone()), Ok(Ok(Outcome::Stored)));
    assert_eq!(
        store.put(EPOCH, binding(1, 2, 1_000, vec![])),
        Ok(Ok(Outcome::Stored))
    );
    assert_eq!(store.remove_expired(EPOCH + 5_000, 100), Ok(0));
    assert_eq!(visible(&store, EPOCH + 5_000, keys(1).guid()), []);
    assert_eq!(
        store.put(EPOCH + 5_000, old),
        Ok(Err(Refusal::Stale { stored: 2 }))
    );
    assert_eq!(store.remove_expired(EPOCH + 10_000, 100), Ok(1));
}

#[test]
fn providers_are_listed_without_the_removed_and_the_expired() {
    let mut store = MemoryStore::new(StoreLimits::default());
    let announce = |owner, life, removed| {
        let statement = Statement {
            removed,
            ..said(1, life, vec![])
        };
        Record::provider(&keys(owner), CONTENT, &statement).unwrap()
    };
    let batch = [
        announce(1, 9_000, false),
        announce(2, 9_000, true),
        announce(3, 10, false),
    ];
    assert_eq!(
        store.apply(EPOCH, &batch).unwrap(),
        [Ok(Outcome::Stored); 3]
    );
    assert_eq!(store.providers(&CONTENT, EPOCH + 20), [batch[0].clone()]);
}

#[test]
fn a_store_file_has_one_user_and_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names");
    let mut store = DiskStore::open(&path, StoreLimits::default()).unwrap();
    let record = binding(1, 1, 10_000, vec![router(1)]);
    assert_eq!(store.put(EPOCH, record.clone()), Ok(Ok(Outcome::Stored)));
    assert_eq!(
        DiskStore::open(&path, StoreLimits::default()).unwrap_err(),
        StoreError::InUse
    );
    drop(store);
    let store = DiskStore::open(&path, StoreLimits::default()).unwrap();
    assert_eq!(store.get(&record.filed_under()), Some(record));
}

#[test]
fn a_file_other_than_a_store_is_refused_and_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names");
    fs::write(&path, b"a shopping list, of more than a few bytes").unwrap();
    assert!(matches!(
        DiskStore::open(&path, StoreLimits::default()),
        Err(StoreError::Corrupted(_))
    ));
    assert_eq!(
        fs::read(&path).unwrap(),
        b"a shopping list, of more than a few bytes"
    );
    let missing = folder.path().join("no/such/folder");
    assert!(matches!(
        DiskStore::open(missing, StoreLimits::default()),
        Err(StoreError::Io(_))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A damaged file is refused, unless the damage is in an unused part. A record is never
    /// misread.
    #[test]
    fn a_damaged_file_is_noticed(at: prop::sample::Index, with in 1u8.., cut: bool) {
        let disk = Disk::default();
        let mut store = disk.open().unwrap();
        let records: Vec<Record> = (0..5).map(|owner| binding(owner, 1, 10_000, vec![])).collect();
        store.apply(EPOCH, &records).unwrap();
        drop(store);
        {
            let mut state = disk.0.lock().unwrap();
            if cut {
                let len = at.index(state.bytes.len());
                state.bytes.truncate(len);
            } else {
                *at.get_mut(&mut state.bytes[..]) ^= with;
            }
        }
        let empty = disk.0.lock().unwrap().bytes.is_empty();
        match disk.open() {
            Err(fault) => prop_assert!(matches!(fault, StoreError::Corrupted(_) | StoreError::Io(_) | StoreError::Format(_)), "{fault}"),
            Ok(store) => {
                prop_assert!(empty || store.len() == records.len(), "{} records", store.len());
                for record in records {
                    let read = store.get(&record.filed_under());
                    prop_assert!(read.is_none() && empty || read == Some(record));
                }
            }
        }
    }
}
