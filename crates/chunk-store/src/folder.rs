//! A folder of entries. Every method may wait for the disk.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use bytes::Bytes;
use whimbrel_core::disk::size_on_disk;
use whimbrel_core::{DiskEntry, DiskKey};

use crate::index::{Index, OpenError, Row};
use crate::segments::{Place, Segments};

/// Bounds of a folder.
#[derive(Clone, Copy, Debug)]
pub struct FolderLimits {
    /// Bytes of all entries together, each in whole blocks of 4 KiB. The index comes on top: about
    /// 300 bytes an entry.
    pub bytes: u64,
}

/// Why an entry cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFault {
    /// There is none of this key.
    #[error("no such entry")]
    Unknown,
    /// Its bytes are not those that were written.
    #[error("the entry is damaged")]
    Damaged,
    /// The disk fails.
    #[error("{0}")]
    Disk(io::Error),
}

/// A batch could not be written; nothing of it counts.
#[derive(Debug, thiserror::Error)]
pub enum WriteFault {
    /// The segments could not be written.
    #[error("cannot write stored chunks: {0}")]
    Segments(#[from] io::Error),
    /// The index could not be written.
    #[error("cannot write the index of stored chunks: {0}")]
    Index(#[from] redb::Error),
}

/// An entry to write.
#[derive(Clone, Debug)]
pub struct Write {
    /// Its key.
    pub key: DiskKey,
    /// See [`DiskEntry::expires_ms`].
    pub expires_ms: u64,
    /// See [`DiskEntry::label`].
    pub label: Bytes,
    /// Its bytes.
    pub body: [Bytes; 2],
}

impl Write {
    /// Size of its bytes.
    pub fn length(&self) -> u64 {
        self.body.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// What one transaction does.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Entries to add.
    pub writes: Vec<Write>,
    /// Entries to remove; unknown ones do not matter.
    pub forgets: Vec<DiskKey>,
}

/// A folder of entries, which no other process uses.
#[derive(Debug)]
pub struct Folder {
    limits: FolderLimits,
    index: Index,
    segments: Segments,
    places: BTreeMap<DiskKey, Place>,
    bytes: u64,
}

/// An open folder, and what was there.
#[derive(Debug)]
pub struct Opened {
    /// The folder.
    pub folder: Folder,
    /// Its entries, in the order of their keys.
    pub entries: Vec<DiskEntry>,
    /// Entries that were damaged, and are removed.
    pub damaged: u64,
}

impl Folder {
    /// Opens a folder, or makes one.
    pub fn open(path: &Path, limits: FolderLimits) -> Result<Opened, OpenError> {
        let unusable = |fault| OpenError::Folder {
            folder: path.to_owned(),
            fault,
        };
        let unreadable = |fault| OpenError::Index {
            folder: path.to_owned(),
            fault,
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(unusable)?;
        let index = Index::open(path)?;
        let mut segments = Segments::open(path, limits.bytes).map_err(unusable)?;
        let (mut entries, mut places) = (Vec::new(), BTreeMap::new());
        let (mut bytes, mut damaged) = (0, Vec::new());
        let visited = index.visit(|key, row| match row {
            Some(row) if segments.note_entry(&row.place) => {
                let length = u64::from(row.place.length);
                bytes += size_on_disk(length);
                places.insert(key, row.place);
                entries.push(DiskEntry {
                    key,
                    expires_ms: row.expires_ms,
                    label: row.label,
                    length,
                });
            }
            _ => damaged.push(key),
        });
        visited.map_err(unreadable)?;
        let removed = match damaged.is_empty() {
            true => Ok(()),
            false => index.commit(&[], &damaged),
        };
        removed.map_err(unreadable)?;
        let reclaimed = segments.reclaim(places.values().copied());
        reclaimed.map_err(unusable)?;
        let folder = Folder {
            limits,
            index,
            segments,
            places,
            bytes,
        };
        Ok(Opened {
            folder,
            entries,
            damaged: damaged.len() as u64,
        })
    }

    /// Returns true if an entry of `length` bytes fits.
    pub fn has_room_for(&self, length: u64) -> bool {
        self.bytes() + size_on_disk(length) <= self.limits.bytes
    }

    /// Carries out a batch, all or nothing. It survives the end of the process and a power cut once this
    /// returns.
    pub fn apply(&mut self, batch: Batch) -> Result<(), WriteFault> {
        let mut added = Vec::with_capacity(batch.writes.len());
        for write in batch.writes {
            let place = self.segments.append(&write.body)?;
            let row = Row {
                place,
                expires_ms: write.expires_ms,
                label: write.label,
            };
            added.push((write.key, row));
        }
        self.segments.sync()?;
        let known = batch.forgets.into_iter();
        let forgotten: Vec<DiskKey> = known.filter(|key| self.places.contains_key(key)).collect();
        if added.is_empty() && forgotten.is_empty() {
            return Ok(());
        }
        self.index.commit(&added, &forgotten)?;
        // Blocks go back only after the index no longer names them.
        for key in forgotten {
            if let Some(place) = self.places.remove(&key) {
                self.bytes -= size_on_disk(place.length.into());
                self.segments.forget(&place);
            }
        }
        for (key, row) in added {
            self.bytes += size_on_disk(row.place.length.into());
            self.places.insert(key, row.place);
        }
        Ok(())
    }

    /// Returns the body of an entry.
    pub fn read(&self, key: DiskKey) -> Result<Bytes, ReadFault> {
        let place = self.places.get(&key).ok_or(ReadFault::Unknown)?;
        let read = self.segments.read(place).map_err(ReadFault::Disk)?;
        read.ok_or(ReadFault::Damaged)
    }

    /// Returns the number of its entries.
    pub fn count(&self) -> u64 {
        self.places.len() as u64
    }

    /// Returns the keys of its entries.
    pub fn keys(&self) -> impl Iterator<Item = DiskKey> + '_ {
        self.places.keys().copied()
    }

    /// Returns the bytes that its entries take, in whole blocks, with those of forgotten ones that the
    /// file system has not taken back.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.segments.unreturned()
    }
}
