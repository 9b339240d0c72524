//! Stores of a server's records.
//!
//! A store compares and sets by version: an older record never replaces a newer one. It remembers a
//! subject's version until **every** record that it ever accepted for the subject has expired, even
//! if a newer one with a shorter lifetime has expired before: otherwise the older one could be
//! replayed.

mod disk;
mod memory;

use whimbrel_core::Guid;

use crate::record::{Record, RecordKey};

pub use disk::{DatabaseOpener, DiskStore};
pub use memory::MemoryStore;

/// The bounds of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreLimits {
    /// Maximum of records, counting those that are only remembered.
    pub max_records: usize,
    /// Maximum of bytes in memory, by the formula of [`MemoryStore::bytes_of`].
    pub max_bytes: usize,
    /// Maximum of providers per content. Beyond it one whose announcement has expired or was removed
    /// is forgotten; if there is none, the new one is refused.
    pub max_providers: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        StoreLimits {
            max_records: 1_000_000,
            max_bytes: 1 << 30,
            max_providers: 64,
        }
    }
}

/// The outcome for an accepted record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is the newest one.
    Stored,
    /// The very same record was stored already.
    Unchanged,
}

/// Why a store refused a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A newer version is stored.
    #[error("the stored version {stored} is newer")]
    Stale {
        /// The version that is stored.
        stored: u64,
    },
    /// The same version is stored with other contents.
    #[error("version {stored} is stored with other contents")]
    Conflict {
        /// The version that is stored.
        stored: u64,
    },
    /// No room, and no record may be evicted.
    #[error("the store is full")]
    Full,
}

/// The result for one record of a batch.
pub type PutResult = Result<Outcome, Refusal>;

/// Why a store cannot be opened or written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("the name store is in use by another process")]
    InUse,
    /// It is not a name store, or it is damaged.
    #[error(
        "the name store is damaged, or the file is not a name store ({0}); move the file away to start an empty one"
    )]
    Corrupted(String),
    /// A newer program wrote it.
    #[error("the name store has format {0}; this program supports format 1")]
    Format(u64),
    /// Reading or writing failed: disk full, no permission, a failing disk.
    #[error("the name store cannot be read or written: {0}")]
    Io(String),
}

/// A store of records. The caller of [`Store::apply`] has verified them.
pub trait Store {
    /// Returns the newest record under `key`, even if it has expired or is a removal.
    fn get(&self, key: &RecordKey) -> Option<Record>;

    /// Passes the unexpired records of `subject` to `visit`, removals too, the binding first, then
    /// by provider, until it returns false.
    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool);

    /// Applies records in order, all in one transaction: on `Ok`, the stored ones survive a crash;
    /// on an error, none of the batch is stored. Returns one result per record.
    fn apply(&mut self, now_ms: u64, batch: &[Record]) -> Result<Vec<PutResult>, StoreError>;

    /// Removes at most `budget` expired records; returns their number.
    fn remove_expired(&mut self, now_ms: u64, budget: usize) -> Result<usize, StoreError>;

    /// Returns the number of records, counting those that are only remembered.
    fn len(&self) -> usize;

    /// Returns the number of further records for which there is room.
    fn free(&self) -> usize;

    /// Returns the bytes that they occupy.
    fn bytes(&self) -> usize;

    /// Returns true if the store is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies one record.
    fn put(&mut self, now_ms: u64, record: Record) -> Result<PutResult, StoreError> {
        let results = self.apply(now_ms, &[record])?;
        results
            .first()
            .copied()
            .ok_or_else(|| StoreError::Io("the store gave no result".into()))
    }

    /// Returns the providers of `content` that are neither expired nor removed.
    fn providers(&self, content: &Guid, now_ms: u64) -> Vec<Record> {
        let mut found = Vec::new();
        self.visit(content, now_ms, &mut |record| {
            if !record.is_removal() && record.kind() == crate::Kind::Provider {
                found.push(record.clone());
            }
            true
        });
        found
    }
}
