//! The disk below the storage: which chunks are written, read and forgotten.
//!
//! A stored chunk is written at once; its source is told that it is stored once it has been synced. A
//! copy is held by the chunk's [`Room`](whimbrel_link::Room): in the storage, and on its way from there
//! until the next hop has the chunk. Then it is forgotten. What is stored therefore survives the end of
//! the process, and may be sent twice, but not lost.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes};
use whimbrel_core::disk::{MAX_LABEL, WeakCopy, size_on_disk};
use whimbrel_core::{
    Copies, Disk, DiskAction, DiskCopy, DiskEntry, DiskEvent, DiskKey, DiskStatus,
};
use whimbrel_gnrs::Record;

use crate::chunk::Chunk;

/// Version of a label.
const VERSION: u8 = 2;
/// The version without a record of the source.
const WITHOUT_RECORD: u8 = 1;
/// A chunk that is stored for its destination.
const FOR_DELIVERY: u8 = 0;
/// Version, purpose and size of the message, before the header.
const PREFIX: usize = 6;
/// The longest record in a label: half of it.
const MAX_RECORD: usize = MAX_LABEL / 2;
/// Chunks that are read at the same time.
const MAX_READS: usize = 8;

/// A router's disk, if it has one.
#[derive(Default)]
pub(super) struct Shelf {
    disk: Option<Box<dyn Disk>>,
    copies: Copies,
    next: u64,
    // Copies of which the disk has not said yet whether they are written.
    writing: BTreeMap<DiskKey, WeakCopy>,
    // Copies that are being read, and the memory that they will take.
    reading: BTreeMap<DiskKey, u64>,
}

/// A chunk that the disk had at the start, without its payload.
pub(super) struct Found {
    pub(super) chunk: Chunk,
    pub(super) copy: DiskCopy,
    /// Bytes of its message.
    pub(super) size: usize,
    pub(super) expires_ms: u64,
    /// The record of its source, with which this router vouched for it.
    pub(super) record: Option<Record>,
}

impl Shelf {
    /// Uses a disk from now on. Returns what is there, oldest first; what cannot be understood is
    /// forgotten.
    pub(super) fn attach(&mut self, mut disk: Box<dyn Disk>) -> Vec<Found> {
        let entries = disk.take_found();
        self.disk = Some(disk);
        self.next = entries.last().map_or(0, |entry| entry.key.0 + 1);
        let found = entries.into_iter().filter_map(|entry| self.adopt(&entry));
        found.collect()
    }

    fn adopt(&mut self, entry: &DiskEntry) -> Option<Found> {
        let copy = self.copies.hold(entry.key, entry.length);
        copy.set_written();
        let (size, chunk, record) = read_label(&entry.label)?;
        Some(Found {
            chunk,
            copy,
            size,
            expires_ms: entry.expires_ms,
            record,
        })
    }

    /// Returns true if there is a disk, whether it works or not.
    pub(super) fn is_there(&self) -> bool {
        self.disk.is_some()
    }

    /// Returns true if the disk takes a chunk: it works, and the chunk can be described.
    pub(super) fn takes(&self, label: &Bytes) -> bool {
        label.len() <= MAX_LABEL && self.disk.as_ref().is_some_and(|disk| disk.works())
    }

    /// Returns true if there is no room for `size` bytes on the disk.
    pub(super) fn is_short_of(&self, size: u64) -> bool {
        let limit = self.disk.as_ref().map_or(0, |disk| disk.limit());
        self.copies.bytes() + size > limit
    }

    /// Writes a chunk that [`Shelf::takes`] with this label.
    pub(super) fn write(
        &mut self,
        chunk: Chunk,
        label: Bytes,
        expires_ms: u64,
    ) -> Option<DiskCopy> {
        // Their room is counted as free.
        self.forget_dropped();
        let disk = self.disk.as_mut()?;
        let (front, rest) = chunk.into_pieces();
        let key = DiskKey(self.next);
        self.next += 1;
        let length = (front.len() + rest.len()) as u64;
        let copy = self.copies.hold(key, length);
        self.writing.insert(key, copy.downgrade());
        disk.submit(DiskAction::Write {
            key,
            expires_ms,
            label,
            body: [front, rest],
        });
        Some(copy)
    }

    /// Has a chunk of `size` bytes read, which [`Shelf::can_read`]. Answered by [`Shelf::poll`].
    pub(super) fn read(&mut self, key: DiskKey, size: u64) {
        if let Some(disk) = &mut self.disk
            && self.reading.insert(key, size).is_none()
        {
            disk.submit(DiskAction::Read(key));
        }
    }

    /// Returns true if a chunk is being read.
    pub(super) fn is_reading(&self, key: DiskKey) -> bool {
        self.reading.contains_key(&key)
    }

    /// Returns true if another chunk can be read.
    pub(super) fn can_read(&self) -> bool {
        self.disk.is_some() && self.reading.len() < MAX_READS
    }

    /// Returns the memory of the chunks that are being read.
    pub(super) fn reading_bytes(&self) -> u64 {
        self.reading.values().sum()
    }

    /// Returns the next outcome, and has forgotten what nobody holds any longer.
    pub(super) fn poll(&mut self) -> Option<DiskEvent> {
        self.forget_dropped();
        let event = self.disk.as_mut()?.poll()?;
        match &event {
            DiskEvent::Written(key) => {
                if let Some(copy) = self.writing.remove(key).and_then(|it| it.upgrade()) {
                    copy.set_written();
                }
            }
            DiskEvent::Refused(key) => drop(self.writing.remove(key)),
            DiskEvent::Read(key, _) | DiskEvent::Lost(key) | DiskEvent::Unreadable(key) => {
                self.reading.remove(key);
            }
        }
        Some(event)
    }

    fn forget_dropped(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        for key in self.copies.take_dropped() {
            // The disk may have nothing to say about it.
            self.writing.remove(&key);
            disk.submit(DiskAction::Forget(key));
        }
    }

    /// Returns the disk's state.
    pub(super) fn status(&self) -> Option<DiskStatus> {
        self.disk.as_ref().map(|disk| disk.status())
    }
}

/// What a router knows of a chunk on the disk without reading it. With the `record` of the source it can vouch
/// for a source that has ended.
pub(super) fn label_of(chunk: &Chunk, record: Option<&Record>) -> Bytes {
    let (front, rest) = chunk.without_payload().into_pieces();
    let record = record.map_or(&[][..], Record::as_bytes);
    let record = if record.len() <= MAX_RECORD {
        record
    } else {
        &[]
    };
    let mut label = Vec::with_capacity(PREFIX + 2 + record.len() + front.len() + rest.len());
    label.put_u8(VERSION);
    label.put_u8(FOR_DELIVERY);
    label.put_u32(u32::try_from(chunk.size()).unwrap_or(u32::MAX));
    label.put_u16(u16::try_from(record.len()).unwrap_or(0));
    label.extend_from_slice(record);
    label.extend_from_slice(&front);
    label.extend_from_slice(&rest);
    label.into()
}

/// Returns the size of a chunk's message, the chunk without its payload, and the record of its source.
fn read_label(label: &Bytes) -> Option<(usize, Chunk, Option<Record>)> {
    let [version, purpose, length @ ..] = *label.first_chunk::<PREFIX>()?;
    if purpose != FOR_DELIVERY {
        return None;
    }
    let mut rest = label.slice(PREFIX..);
    let record = match version {
        VERSION => {
            let len = usize::from(rest.try_get_u16().ok()?);
            (len <= rest.len()).then(|| rest.split_to(len))?
        }
        WITHOUT_RECORD => Bytes::new(),
        _ => return None,
    };
    let chunk = Chunk::decode(&rest).ok()?;
    let size = u32::from_be_bytes(length) as usize;
    Some((size, chunk, Record::parse(record).ok()))
}

/// Returns the bytes that a chunk takes on the disk.
pub(super) fn size_of(chunk: &Chunk, label: &Bytes) -> u64 {
    // The header is in the label, without most of the message.
    size_on_disk((chunk.size() + label.len()) as u64)
}
