use std::path::{Path, PathBuf};

use redb::{
    Database, DatabaseError, Durability, ReadOnlyDatabase, ReadableDatabase, ReadableTable,
    TableDefinition,
};
use whimbrel_core::Guid;

use super::memory::{Entry, UndoLog};
use super::{MemoryStore, PutResult, Store, StoreError, StoreLimits};
use crate::record::{Record, RecordKey};

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FORMAT: u64 = 1;
/// Delay before the file is opened again after a failed write, in milliseconds.
const RETRY_MS: u64 = 1000;

/// Opens the database; called at the start and after every failure to write.
pub type DatabaseOpener = Box<dyn FnMut() -> Result<Database, DatabaseError> + Send>;

/// Records on disk (redb: copy-on-write trees with checksums, so that a crash at any point leaves
/// an intact file), with all of them in memory too: a lookup never waits for the disk.
///
/// When writing fails, the batch is refused and lookups continue; the file is opened again for a
/// later batch.
pub struct DiskStore {
    limits: StoreLimits,
    memory: MemoryStore,
    opener: DatabaseOpener,
    database: Option<Database>,
    failed_at_ms: u64,
}

impl core::fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DiskStore")
            .field("records", &self.memory.len())
            .field("writable", &self.database.is_some())
            .finish()
    }
}

impl DiskStore {
    /// Memory of redb's own cache, in bytes. Lookups read from our memory, so little is enough.
    const CACHE: usize = 16 << 20;

    /// Opens the store in the file `path`, or creates an empty one. Checks every page.
    pub fn open(path: impl Into<PathBuf>, limits: StoreLimits) -> Result<DiskStore, StoreError> {
        let path = path.into();
        let opener = move || {
            Database::builder()
                .set_check_integrity_on_open(true)
                .set_cache_size(Self::CACHE)
                .create(&path)
        };
        DiskStore::open_with(Box::new(opener), limits)
    }

    /// Checks that the file `path` is a store, if it exists, without changing it. One that another
    /// process has open passes, and so does one that the next [`DiskStore::open`] repairs.
    pub fn check(path: &Path) -> Result<(), StoreError> {
        if !path.exists() {
            return Ok(());
        }
        match ReadOnlyDatabase::open(path) {
            Ok(_) | Err(DatabaseError::DatabaseAlreadyOpen | DatabaseError::RepairAborted) => {
                Ok(())
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Opens the store in the database that `opener` opens.
    pub fn open_with(
        mut opener: DatabaseOpener,
        limits: StoreLimits,
    ) -> Result<DiskStore, StoreError> {
        let (database, memory) = load(&mut opener, limits)?;
        Ok(DiskStore {
            limits,
            memory,
            opener,
            database: Some(database),
            failed_at_ms: 0,
        })
    }

    /// Returns the database, opened again if the last write failed long enough ago.
    fn writable(&mut self, now_ms: u64) -> Result<(), StoreError> {
        if self.database.is_some() {
            return Ok(());
        }
        if now_ms < self.failed_at_ms.saturating_add(RETRY_MS) {
            return Err(StoreError::Io(
                "writing failed less than a second ago".into(),
            ));
        }
        self.failed_at_ms = now_ms;
        // Whether the failed batch has reached the disk is unknown: load what is there.
        let (database, memory) = load(&mut self.opener, self.limits)?;
        self.memory = memory;
        self.database = Some(database);
        Ok(())
    }

    fn write(
        &mut self,
        now_ms: u64,
        undo: UndoLog,
        durability: Durability,
    ) -> Result<(), StoreError> {
        if undo.is_empty() {
            return Ok(());
        }
        let written = match &self.database {
            Some(database) => commit(database, &self.memory, &undo, durability),
            None => Err(StoreError::Io("the database is closed".into())),
        };
        if written.is_err() {
            for (key, old) in undo.into_iter().rev() {
                self.memory.restore(key, old);
            }
            // After an I/O error redb accepts no more writes until it is opened again.
            self.database = None;
            self.failed_at_ms = now_ms;
        }
        written
    }
}

fn commit(
    database: &Database,
    memory: &MemoryStore,
    changed: &UndoLog,
    durability: Durability,
) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().map_err(failed)?;
    transaction.set_durability(durability).map_err(failed)?;
    {
        let mut table = transaction.open_table(RECORDS).map_err(failed)?;
        let mut value = Vec::new();
        for (key, _) in changed {
            let key_bytes = key_to_bytes(key);
            match memory.entry(key) {
                Some(entry) => {
                    value.clear();
                    value.extend(entry.keep_until_ms.to_be_bytes());
                    value.extend_from_slice(entry.record.as_bytes());
                    table.insert(&key_bytes[..], &value[..]).map_err(failed)?;
                }
                None => {
                    table.remove(&key_bytes[..]).map_err(failed)?;
                }
            }
        }
    }
    transaction.commit().map_err(failed)
}

fn load(
    opener: &mut DatabaseOpener,
    limits: StoreLimits,
) -> Result<(Database, MemoryStore), StoreError> {
    let database = opener().map_err(failed)?;
    let transaction = database.begin_write().map_err(failed)?;
    {
        let mut meta = transaction.open_table(META).map_err(failed)?;
        let format = meta
            .get("format")
            .map_err(failed)?
            .map(|format| format.value());
        match format {
            Some(FORMAT) => {}
            Some(other) => return Err(StoreError::Format(other)),
            None => {
                meta.insert("format", FORMAT).map_err(failed)?;
            }
        }
        transaction.open_table(RECORDS).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    let mut memory = MemoryStore::new(limits);
    let reading = database.begin_read().map_err(failed)?;
    for item in reading
        .open_table(RECORDS)
        .map_err(failed)?
        .iter()
        .map_err(failed)?
    {
        let (key, value) = item.map_err(failed)?;
        let (keep_until, record) = value
            .value()
            .split_first_chunk()
            .ok_or_else(|| misfiled("no time"))?;
        let record =
            Record::parse(bytes::Bytes::copy_from_slice(record)).map_err(|why| misfiled(&why))?;
        let filed_under = record.filed_under();
        if key.value() != key_to_bytes(&filed_under) {
            return Err(misfiled("wrong key"));
        }
        let entry = Entry {
            record,
            keep_until_ms: u64::from_be_bytes(*keep_until),
        };
        memory.restore(filed_under, Some(entry));
    }
    drop(reading);
    Ok((database, memory))
}

fn key_to_bytes(key: &RecordKey) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&key.subject.0);
    bytes[32..].copy_from_slice(&key.provider.0);
    bytes
}

fn misfiled(why: &(impl core::fmt::Display + ?Sized)) -> StoreError {
    StoreError::Corrupted(format!("a record in it is not valid: {why}"))
}

fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::DatabaseAlreadyOpen => StoreError::InUse,
        redb::Error::Corrupted(why) => StoreError::Corrupted(why),
        redb::Error::Io(why) if why.kind() == std::io::ErrorKind::InvalidData => {
            StoreError::Corrupted(why.to_string())
        }
        why @ (redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::RepairAborted) => StoreError::Corrupted(why.to_string()),
        why => StoreError::Io(why.to_string()),
    }
}

impl Store for DiskStore {
    fn get(&self, key: &RecordKey) -> Option<Record> {
        self.memory.get(key)
    }

    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) {
        self.memory.visit(subject, now_ms, visit);
    }

    fn apply(&mut self, now_ms: u64, batch: &[Record]) -> Result<Vec<PutResult>, StoreError> {
        self.writable(now_ms)?;
        let mut undo = UndoLog::new();
        let results = batch
            .iter()
            .map(|record| self.memory.apply_logged(now_ms, record, &mut undo))
            .collect();
        self.write(now_ms, undo, Durability::Immediate)?;
        Ok(results)
    }

    fn remove_expired(&mut self, now_ms: u64, budget: usize) -> Result<usize, StoreError> {
        self.writable(now_ms)?;
        let mut undo = UndoLog::new();
        let count = self.memory.forget_expired(now_ms, budget, None, &mut undo);
        // Losing this in a crash is harmless: they expire again. The next durable commit includes
        // it.
        self.write(now_ms, undo, Durability::None)?;
        Ok(count)
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn free(&self) -> usize {
        self.memory.free()
    }

    fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}
