//! Which stored chunks have a copy on the disk.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{DiskCopy, DiskKey};

use super::{Owner, StoreId};

/// The copies of stored chunks, by their keys and by the ports that the chunks came in on.
#[derive(Debug, Default)]
pub(super) struct OnDisk {
    by_key: BTreeMap<DiskKey, StoreId>,
    of_owner: BTreeMap<Owner, OwnedOnDisk>,
    // The same by their bytes.
    owners: BTreeSet<(u64, Owner)>,
    // Written ones whose chunks are in memory as well, and what their memory is.
    written: BTreeMap<StoreId, u64>,
    written_bytes: u64,
}

#[derive(Debug, Default)]
struct OwnedOnDisk {
    ids: BTreeSet<StoreId>,
    bytes: u64,
}

impl OnDisk {
    /// A chunk has this copy.
    pub(super) fn add(&mut self, id: StoreId, owner: Owner, copy: &DiskCopy) {
        self.by_key.insert(copy.key(), id);
        self.recount(owner, |owned| {
            owned.ids.insert(id);
            owned.bytes += copy.size();
        });
    }

    /// A chunk has this copy no longer, or is stored no longer.
    pub(super) fn remove(&mut self, id: StoreId, owner: Owner, copy: &DiskCopy) {
        self.by_key.remove(&copy.key());
        self.recount(owner, |owned| {
            owned.ids.remove(&id);
            owned.bytes = owned.bytes.saturating_sub(copy.size());
        });
        self.set_written(id, None);
    }

    fn recount(&mut self, owner: Owner, change: impl FnOnce(&mut OwnedOnDisk)) {
        let owned = self.of_owner.entry(owner).or_default();
        self.owners.remove(&(owned.bytes, owner));
        change(owned);
        if owned.ids.is_empty() {
            self.of_owner.remove(&owner);
        } else {
            self.owners.insert((owned.bytes, owner));
        }
    }

    /// Sets the memory that is free once the chunk is on the disk only; none if it is, or not written.
    pub(super) fn set_written(&mut self, id: StoreId, bytes: Option<u64>) {
        let before = match bytes {
            Some(bytes) => self.written.insert(id, bytes),
            None => self.written.remove(&id),
        };
        self.written_bytes -= before.unwrap_or(0);
        self.written_bytes += bytes.unwrap_or(0);
    }

    /// The chunks that may leave memory, the newest first, because older ones are sent before it.
    pub(super) fn to_page_out(&self) -> impl Iterator<Item = StoreId> + '_ {
        self.written.keys().rev().copied()
    }

    /// Returns the memory of chunks that are on the disk as well.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Returns the chunk of a copy.
    pub(super) fn id_of(&self, key: DiskKey) -> Option<StoreId> {
        self.by_key.get(&key).copied()
    }

    /// The chunk whose copy makes room for `size` bytes of `owner`: the oldest of the owner with the most
    /// bytes on the disk, if those are more than `owner` would have.
    pub(super) fn to_evict_for(&self, owner: Owner, size: u64) -> Option<StoreId> {
        let own = self.of_owner.get(&owner).map_or(0, |owned| owned.bytes);
        let (most, loser) = self.owners.last()?;
        let has_more = *loser != owner && own + size < *most;
        let owned = self.of_owner.get(loser).filter(|_| has_more)?;
        owned.ids.first().copied()
    }
}
