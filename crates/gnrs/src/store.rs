//! Where a server keeps records.
//!
//! A store compares and sets by version: an older record never replaces a newer one. What it has
//! seen of a subject it remembers until **every** record that it ever took for it has expired, even
//! when a newer one with a shorter life has expired before: otherwise the older one could be
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
    /// Most records, counting those that are only remembered.
    pub max_records: usize,
    /// Most bytes of memory, by the formula of [`MemoryStore::bytes_of`].
    pub max_bytes: usize,
    /// Most providers of one content. Above it the one that expires first goes, if it expires
    /// before the new one.
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

/// What a store did with a record that it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is the newest now.
    Stored,
    /// The very same record was there.
    Unchanged,
}

/// Why a store did not take a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A newer version is stored.
    #[error("version {stored} is stored, which is newer")]
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
    /// No room, and nothing to evict.
    #[error("the store is full")]
    Full,
}

/// What a store says of one record of a batch.
pub type PutResult = Result<Outcome, Refusal>;

/// Why a store cannot be opened or written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("the name store is in use by another process")]
    InUse,
    /// It is not a name store, or it was damaged.
    #[error(
        "the name store is damaged or no name store at all ({0}); move the file away to start an empty one"
    )]
    Corrupted(String),
    /// It was written by a newer program.
    #[error("the name store has format {0}, this program knows format 1")]
    Format(u64),
    /// Reading or writing failed: disk full, no permission, a failing disk.
    #[error("the name store cannot be read or written: {0}")]
    Io(String),
}

/// A place for records. Whoever calls [`Store::apply`] has verified them.
pub trait Store {
    /// The newest record filed under `key`, even if it has expired or is a removal.
    fn get(&self, key: &RecordKey) -> Option<Record>;

    /// Shows the unexpired records of `subject`, removals too, the binding first, then by provider,
    /// until `visit` answers false.
    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool);

    /// Takes records in order, all in one transaction: when this returns `Ok`, what was stored
    /// survives a crash; when it returns an error, nothing of the batch was stored. One result per
    /// record.
    fn apply(&mut self, now_ms: u64, batch: &[Record]) -> Result<Vec<PutResult>, StoreError>;

    /// Forgets at most `budget` records whose time is over; answers how many.
    fn remove_expired(&mut self, now_ms: u64, budget: usize) -> Result<usize, StoreError>;

    /// How many records it holds, counting those that are only remembered.
    fn len(&self) -> usize;

    /// Bytes that they take.
    fn bytes(&self) -> usize;

    /// True if it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes one record.
    fn put(&mut self, now_ms: u64, record: Record) -> Result<PutResult, StoreError> {
        let results = self.apply(now_ms, &[record])?;
        results
            .first()
            .copied()
            .ok_or_else(|| StoreError::Io("the store gave no result".into()))
    }

    /// The providers of `content` that are neither expired nor removed.
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
