//! Which entries there are, and where: a transaction for each batch.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use whimbrel_core::DiskKey;

use crate::segments::Place;

const ENTRIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("entries");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Version of the folder's layout.
const VERSION: u64 = 1;

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The folder cannot be made or read.
    #[error("cannot use the folder {} for stored chunks: {fault}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        fault: io::Error,
    },
    /// Another process has it.
    #[error(
        "the folder {} is in use by another process: name a folder of its own for each router",
        folder.display()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// Its layout is another.
    #[error(
        "the folder {} has version {found} of the storage, and this program reads version {VERSION}: \
         start the program that wrote it to deliver what is there, or name another folder",
        folder.display()
    )]
    Version {
        /// The folder.
        folder: PathBuf,
        /// Its version.
        found: u64,
    },
    /// Its index is damaged or cannot be read.
    #[error(
        "the index of the folder {} cannot be read: {fault}: move the folder away to begin with an \
         empty one",
        folder.display()
    )]
    Index {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        fault: redb::Error,
    },
}
/// The file of the index.
pub(crate) const FILE: &str = "index";
/// Memory that redb may use for pages, in bytes.
const CACHE: usize = 4 << 20;
/// Size of a row without its label.
const ROW: usize = 32;

/// A row of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) place: Place,
    pub(crate) expires_ms: u64,
    pub(crate) label: Bytes,
}

impl Row {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROW + self.label.len());
        bytes.extend(self.place.segment.to_be_bytes());
        bytes.extend(self.place.offset.to_be_bytes());
        bytes.extend(self.place.length.to_be_bytes());
        bytes.extend(self.place.checksum.to_be_bytes());
        bytes.extend(self.expires_ms.to_be_bytes());
        bytes.extend_from_slice(&self.label);
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Option<Row> {
        let mut take = |count: usize| {
            let (field, rest) = bytes.split_at_checked(count)?;
            bytes = rest;
            let value = field
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            Some(value)
        };
        let place = Place {
            segment: take(4)? as u32,
            offset: take(8)?,
            length: take(4)? as u32,
            checksum: take(8)?,
        };
        let expires_ms = take(8)?;
        Some(Row {
            place,
            expires_ms,
            label: Bytes::copy_from_slice(bytes),
        })
    }
}

/// The index of a folder.
#[derive(Debug)]
pub(crate) struct Index {
    database: Database,
}

impl Index {
    /// Opens the index in `folder`, or makes one.
    pub(crate) fn open(folder: &Path) -> Result<Index, OpenError> {
        let of_folder = || folder.to_owned();
        let unreadable = |fault| OpenError::Index {
            folder: of_folder(),
            fault,
        };
        let opened = Builder::new()
            .set_cache_size(CACHE)
            .create(folder.join(FILE));
        let database = opened.map_err(|fault| match fault {
            DatabaseError::DatabaseAlreadyOpen => OpenError::InUse {
                folder: of_folder(),
            },
            other => unreadable(other.into()),
        })?;
        let index = Index { database };
        match index.version().map_err(unreadable)? {
            VERSION => Ok(index),
            found => Err(OpenError::Version {
                folder: of_folder(),
                found,
            }),
        }
    }

    fn version(&self) -> Result<u64, redb::Error> {
        let writing = self.database.begin_write()?;
        let version = {
            let mut meta = writing.open_table(META)?;
            let found = meta.get("version")?.map(|value| value.value());
            match found {
                Some(found) => found,
                None => {
                    meta.insert("version", VERSION)?;
                    writing.open_table(ENTRIES)?;
                    VERSION
                }
            }
        };
        writing.commit()?;
        Ok(version)
    }

    /// Calls `visit` for each row, in the order of the keys; without one, if a row is damaged.
    pub(crate) fn visit(
        &self,
        mut visit: impl FnMut(DiskKey, Option<Row>),
    ) -> Result<(), redb::Error> {
        let reading = self.database.begin_read()?;
        for row in reading.open_table(ENTRIES)?.iter()? {
            let (key, bytes) = row?;
            visit(DiskKey(key.value()), Row::decode(bytes.value()));
        }
        Ok(())
    }

    /// Adds and removes rows in one transaction, which is synced.
    pub(crate) fn commit(
        &self,
        added: &[(DiskKey, Row)],
        removed: &[DiskKey],
    ) -> Result<(), redb::Error> {
        let writing = self.database.begin_write()?;
        {
            let mut entries = writing.open_table(ENTRIES)?;
            for key in removed {
                entries.remove(key.0)?;
            }
            for (key, row) in added {
                entries.insert(key.0, row.encode().as_slice())?;
            }
        }
        writing.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_its_encoding_and_a_short_one_is_none() {
        let row = Row {
            place: Place {
                segment: 7,
                offset: 1 << 40,
                length: 1 << 20,
                checksum: u64::MAX - 3,
            },
            expires_ms: 1_800_000_000_000,
            label: Bytes::from_static(b"label"),
        };
        let bytes = row.encode();
        assert_eq!(Row::decode(&bytes), Some(row));
        assert_eq!(Row::decode(&bytes[..ROW - 1]), None);
        assert!(Row::decode(&bytes[..ROW]).is_some_and(|row| row.label.is_empty()));
    }
}
