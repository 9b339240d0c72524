//! A name server's store of records: on disk or in memory, as one type.

use whimbrel_core::Guid;
use whimbrel_gnrs::store::PutResult;
use whimbrel_gnrs::{DiskStore, MemoryStore, Record, RecordKey, Store, StoreError};

/// A store on disk or in memory.
#[derive(Debug)]
pub enum NameStore {
    /// Records survive the process.
    Disk(DiskStore),
    /// Records are lost when the process ends.
    Memory(MemoryStore),
}

macro_rules! whichever {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            NameStore::Disk($store) => $call,
            NameStore::Memory($store) => $call,
        }
    };
}

impl Store for NameStore {
    fn get(&self, key: &RecordKey) -> Option<Record> {
        whichever!(self, store => store.get(key))
    }

    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) {
        whichever!(self, store => store.visit(subject, now_ms, visit))
    }

    fn apply(&mut self, now_ms: u64, batch: &[Record]) -> Result<Vec<PutResult>, StoreError> {
        whichever!(self, store => store.apply(now_ms, batch))
    }

    fn remove_expired(&mut self, now_ms: u64, budget: usize) -> Result<usize, StoreError> {
        whichever!(self, store => store.remove_expired(now_ms, budget))
    }

    fn len(&self) -> usize {
        whichever!(self, store => store.len())
    }

    fn free(&self) -> usize {
        whichever!(self, store => store.free())
    }

    fn bytes(&self) -> usize {
        whichever!(self, store => store.bytes())
    }
}
