//! Stored chunks and the disk: written when they are stored, read before they are sent.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{Disk, DiskEvent, DiskKey, DiskStatus};
use whimbrel_gnrs::Record;

use super::*;
use crate::router::shelf;
use crate::router::sources::Sources;
use crate::router::store::Restored;

/// Chunks of a destination that are read before it is their turn.
const READ_AHEAD: usize = 4;
/// Pause before a disk that could not read is asked again.
const READ_AGAIN: Duration = Duration::from_secs(1);

impl Proxy {
    /// Uses a disk, and takes up what is on it: its destinations are looked up like those of chunks that
    /// were just stored. What does not fit any longer is dropped. Returns the newest record of each source.
    pub(in crate::router) fn attach_disk(
        &mut self,
        now: Time,
        disk: Box<dyn Disk>,
        effects: &mut Effects,
    ) -> Vec<Record> {
        let now_ms = self.wall.unix_millis(now);
        let mut records: BTreeMap<Guid, Record> = BTreeMap::new();
        for found in self.shelf.attach(disk) {
            let left = Duration::from_millis(found.expires_ms.saturating_sub(now_ms));
            if left.is_zero() {
                effects.drop(DropReason::Lifetime.label());
                continue;
            }
            let destination = found.chunk.header.destination;
            let on_disk = Restored {
                copy: found.copy,
                size: found.size,
                lifetime: left,
            };
            match self.store.restore(now, found.chunk, on_disk) {
                Some(_) => {
                    effects.counters.chunks_restored += 1;
                    self.wait_for(now, destination, effects);
                    if let Some(record) = found.record {
                        let newest = records.entry(record.subject()).or_insert(record.clone());
                        if record.version() > newest.version() {
                            *newest = record;
                        }
                    }
                }
                None => effects.drop("not-restored"),
            }
        }
        for destination in self.waiting.clone() {
            effects.push(Action::SetEarlier(Timer::Storage(destination), now));
        }
        records.into_values().collect()
    }

    pub(in crate::router) fn set_wall_clock(&mut self, wall: WallClock) {
        self.wall = wall;
    }

    /// Writes a chunk that was just stored, if the disk takes it, with the record of its source if this
    /// router vouches for that. Where the disk is full, the port with the most bytes there loses first.
    pub(in crate::router) fn write(
        &mut self,
        id: StoreId,
        sources: &Sources,
        effects: &mut Effects,
    ) {
        if !self.shelf.is_there() {
            return;
        }
        if let Some(key) = self.store.disk_key_of(id) {
            // It returns to the storage, and its copy is there, or will be.
            if self.store.is_written(id) {
                self.note_written(key, effects);
            }
            return;
        }
        let owner = self.store.owner(id);
        let Some(chunk) = self.store.chunk_of(id) else {
            return;
        };
        let label = shelf::label_of(&chunk, sources.record_of(&chunk.header.source));
        let size = shelf::size_of(&chunk, &label);
        if !self.shelf.takes(&label) {
            return;
        }
        while self.shelf.is_short_of(size) {
            match self.store.evict_from_disk(owner, size) {
                Some((id, evicted)) => self.note_evicted(id, &evicted, effects),
                None => return,
            }
        }
        let Some(expires) = self.store.get(id).map(|stored| stored.expires) else {
            return;
        };
        let expires_ms = self.wall.unix_millis(expires);
        if let Some(copy) = self.shelf.write(chunk, label, expires_ms) {
            self.store.set_disk_copy(id, copy);
        }
    }

    /// Handles what the disk has done. Returns true if there was anything.
    pub(in crate::router) fn settle_disk(&mut self, now: Time, effects: &mut Effects) -> bool {
        if !self.shelf.is_there() {
            return false;
        }
        let mut any = false;
        while let Some(event) = self.shelf.poll() {
            any = true;
            self.handle_disk(now, event, effects);
            self.openings.read_unread();
        }
        self.read_to_forward(now);
        any
    }

    fn handle_disk(&mut self, now: Time, event: DiskEvent, effects: &mut Effects) {
        match event {
            DiskEvent::Written(key) => self.note_written(key, effects),
            DiskEvent::Refused(key) => {
                self.store.forget_disk_copy(key);
            }
            DiskEvent::Read(key, bytes) => match Chunk::decode(&bytes) {
                Ok(chunk) => self.note_read(now, key, chunk, effects),
                Err(_) => self.note_lost(key, effects),
            },
            DiskEvent::Lost(key) => self.note_lost(key, effects),
            DiskEvent::Unreadable(_) => {
                self.reads_again = now + READ_AGAIN;
                effects.push(Action::SetEarlier(Timer::Disk, self.reads_again));
            }
        }
    }

    /// A chunk survives the end of the process: "a transport layer message, either Store or Drop, is
    /// transmitted back to the original source" [MFTP §3.3].
    fn note_written(&mut self, key: DiskKey, effects: &mut Effects) {
        let written = self.store.note_written(key);
        let Some(chunk) = written.and_then(|id| self.store.chunk_of(id)) else {
            return;
        };
        if let Some((key, index)) = notice_key(&chunk, News::Stored) {
            self.notices.note(key, index, effects);
        }
    }

    fn note_read(&mut self, now: Time, key: DiskKey, chunk: Chunk, effects: &mut Effects) {
        let Some(id) = self.store.of_disk_key(key) else {
            return;
        };
        let destination = chunk.header.destination;
        if !self.store.page_in(id, chunk.message) {
            return self.note_lost(key, effects);
        }
        if self.to_forward.remove(&id) {
            if let Some(outgoing) = self.take_to_send(now, id) {
                effects.push(Action::Forward(outgoing));
                effects.push(Action::StopIfNoneWaits(destination));
            }
        } else {
            self.openings.wake(destination);
        }
    }

    fn note_lost(&mut self, key: DiskKey, effects: &mut Effects) {
        let Some(id) = self.store.of_disk_key(key) else {
            return;
        };
        self.to_forward.remove(&id);
        let Some(chunk) = self.store.chunk_of(id) else {
            return;
        };
        self.discard(id);
        effects.counters.chunks_damaged += 1;
        let flow = chunk.flow();
        self.note_evicted(id, &chunk, effects);
        self.go_on(&flow, effects);
        effects.push(Action::StopIfNoneWaits(flow.destination));
        self.openings.wake(flow.destination);
    }

    /// Has the next chunks for a destination read from the disk.
    pub(super) fn read_ahead(&mut self, now: Time, destination: &Guid) {
        if !self.shelf.is_there() || now < self.reads_again {
            return;
        }
        for id in self.store.first_for(destination, READ_AHEAD) {
            if !self.read(id) {
                self.openings.read_later(*destination);
                return;
            }
        }
    }

    /// Has a chunk read that is on the disk only. Returns false if it must wait: too many are being read,
    /// or memory is short.
    fn read(&mut self, id: StoreId) -> bool {
        let stored = self.store.get(id).filter(|it| !it.is_in_memory);
        let (Some(size), Some(key)) = (stored.map(|it| it.size as u64), self.store.disk_key_of(id))
        else {
            return true;
        };
        if self.shelf.is_reading(key) {
            return true;
        }
        let more = size + self.shelf.reading_bytes();
        let openings = &self.openings;
        let is_open = |destination: &Guid| openings.is_open(destination);
        let may = self.shelf.can_read() && self.store.make_room_to_read(id, more, is_open);
        if may {
            self.shelf.read(key, size);
        }
        may
    }

    /// Has chunks read that are to be forwarded.
    fn read_to_forward(&mut self, now: Time) {
        if now < self.reads_again {
            return;
        }
        let next: Vec<StoreId> = self.to_forward.iter().take(READ_AHEAD).copied().collect();
        for id in next {
            if self.store.get(id).is_none() {
                self.to_forward.remove(&id);
            } else {
                self.read(id);
            }
        }
    }

    /// A disk that could not read is asked again.
    pub(in crate::router) fn read_again(&mut self) {
        self.openings.wake_all();
    }

    /// Returns the disk's state, if there is one.
    pub(in crate::router) fn disk_status(&self) -> Option<DiskStatus> {
        self.shelf.status()
    }
}
