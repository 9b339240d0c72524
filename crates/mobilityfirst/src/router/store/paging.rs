//! Stored chunks whose bytes are on the disk as well, or there only.

use core::time::Duration;

use whimbrel_core::{DiskCopy, DiskKey, Guid, PortId, Time};

use super::{Body, ENTRY_BYTES, Entry, MAX_PAGED_LOOKED_AT, ProxyStore, Purpose, StoreId};
use crate::chunk::{Chunk, Message};

/// What is on the disk of a chunk at the start.
#[derive(Debug)]
pub struct Restored {
    /// Its copy.
    pub copy: DiskCopy,
    /// Bytes of its message.
    pub size: usize,
    /// How long it is stored still.
    pub lifetime: Duration,
}

impl ProxyStore {
    /// Takes up a chunk that was on the disk at the start, without its payload. None if it is stored
    /// already, or memory is short.
    pub fn restore(&mut self, now: Time, mut chunk: Chunk, on_disk: Restored) -> Option<StoreId> {
        let is_short = self.memory_bytes() + ENTRY_BYTES > self.limits.total;
        if self.is_stored(&chunk) || is_short {
            return None;
        }
        let room = self.pool.hold_with_copy(ENTRY_BYTES, on_disk.copy);
        let whole = self.lifetime_of(&chunk.header);
        let left = on_disk.lifetime.min(self.limits.lifetime);
        (chunk.header.extensions).spend_lifetime(whole.saturating_sub(left));
        let mut entry = Entry::new(chunk, room, None, now, now + left);
        if let Body::Memory(fields) = entry.body {
            entry.body = Body::Disk(fields);
        }
        entry.size = on_disk.size;
        Some(self.insert(entry))
    }

    /// The chunk has a copy on the disk from now on.
    pub fn set_disk_copy(&mut self, id: StoreId, copy: DiskCopy) {
        if let Some(entry) = self.entries.get_mut(&id) {
            self.on_disk.add(id, entry.owner, &copy);
            entry.room = self.pool.hold_with_copy(entry.room.bytes(), copy);
        }
    }

    /// A copy is on the disk: its chunk may leave memory. Returns the chunk, if it is stored here.
    pub fn note_written(&mut self, key: DiskKey) -> Option<StoreId> {
        let id = self.on_disk.id_of(key)?;
        self.note_if_written(id);
        Some(id)
    }

    /// A copy is not on the disk, although it was to be.
    pub fn forget_disk_copy(&mut self, key: DiskKey) {
        let Some(id) = self.on_disk.id_of(key) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(&id) {
            if let Some(copy) = entry.room.copy() {
                self.on_disk.remove(id, entry.owner, copy);
            }
            entry.room = self.pool.hold(entry.room.bytes());
        }
    }

    /// Returns the key of a chunk's copy on the disk.
    pub fn disk_key_of(&self, id: StoreId) -> Option<DiskKey> {
        Some(self.entries.get(&id)?.room.copy()?.key())
    }

    /// Returns the chunk of a copy on the disk.
    pub fn of_disk_key(&self, key: DiskKey) -> Option<StoreId> {
        self.on_disk.id_of(key)
    }

    /// Returns a stored chunk, if its bytes are in memory; only its fields, if they are not.
    pub fn chunk_of(&self, id: StoreId) -> Option<Chunk> {
        let entry = self.entries.get(&id)?;
        let (Body::Memory(message) | Body::Disk(message)) = &entry.body;
        Some(Chunk {
            header: entry.header.clone(),
            message: message.clone(),
        })
    }

    /// Evicts a chunk whose copy makes room on the disk for `size` bytes of `owner`.
    pub fn evict_from_disk(
        &mut self,
        owner: Option<PortId>,
        size: u64,
    ) -> Option<(StoreId, Chunk)> {
        let id = self.on_disk.to_evict_for(owner, size)?;
        Some((id, self.remove(id)?))
    }

    /// Frees the memory of an entry whose bytes are on the disk as well.
    pub(super) fn page_out(&mut self, id: StoreId) {
        self.on_disk.set_written(id, None);
        let Some(entry) = self.entries.get_mut(&id).filter(|it| it.is_in_memory()) else {
            return;
        };
        let (Some(copy), Body::Memory(message)) = (entry.room.copy().cloned(), &entry.body) else {
            return;
        };
        let chunk = Chunk {
            header: entry.header.clone(),
            message: message.clone(),
        };
        entry.body = Body::Disk(chunk.without_payload().message);
        entry.room = self.pool.hold_with_copy(ENTRY_BYTES, copy);
        self.paged_out += entry.size as u64;
        if let Some(owned) = self.by_owner.get_mut(&entry.owner) {
            owned.in_memory.remove(&id);
        }
    }

    /// Returns true if a chunk survives the end of the process.
    pub fn is_written(&self, id: StoreId) -> bool {
        let copy = self.entries.get(&id).and_then(|entry| entry.room.copy());
        copy.is_some_and(DiskCopy::is_written)
    }

    /// Returns the bytes of an entry to memory. Returns false if they are not its own, or are there.
    pub fn page_in(&mut self, id: StoreId, message: Message) -> bool {
        let entry = self.entries.get_mut(&id);
        let Some(entry) = entry.filter(|it| !it.is_in_memory() && message.len() == it.size) else {
            return false;
        };
        let Some(copy) = entry.room.copy().cloned() else {
            return false;
        };
        entry.body = Body::Memory(message);
        entry.room = self.pool.hold_with_copy(entry.charge(), copy);
        self.paged_out -= entry.size as u64;
        if let Some(owned) = self.by_owner.get_mut(&entry.owner) {
            owned.in_memory.insert(id, ());
        }
        self.note_if_written(id);
        true
    }

    /// Others leave memory for a chunk that is read, of which `size` bytes are to come: newer ones, and
    /// those whose destinations are not open. Returns false if that is not enough.
    ///
    /// An older one for an open destination stays, or two would take turns in memory and none be sent.
    pub fn make_room_to_read(
        &mut self,
        id: StoreId,
        size: u64,
        is_open: impl Fn(&Guid) -> bool,
    ) -> bool {
        let may_leave = |store: &ProxyStore, other: &StoreId| {
            let entry = store.entries.get(other);
            *other > id || entry.is_some_and(|it| !is_open(&it.header.destination))
        };
        while self.memory_bytes() + self.copies.all_bytes() + self.leaving_bytes() + size
            > self.limits.total
        {
            let other = {
                let mut others = self.on_disk.to_page_out().take(MAX_PAGED_LOOKED_AT);
                others.find(|other| *other != id && may_leave(self, other))
            };
            match other {
                Some(other) => self.page_out(other),
                None if self.copies.evict(Purpose::Cached).is_some() => {}
                None => return false,
            }
        }
        true
    }

    pub(super) fn note_if_written(&mut self, id: StoreId) {
        let entry = self.entries.get(&id).filter(|it| it.is_in_memory());
        let copy = entry.and_then(|it| it.room.copy());
        if let Some(entry) = entry.filter(|_| copy.is_some_and(DiskCopy::is_written)) {
            self.on_disk.set_written(id, Some(entry.size as u64));
        }
    }
}
