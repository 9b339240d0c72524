//! Stored chunks in a folder: a driver, on a thread of its own.
//!
//! The bytes are appended to segment files; an index (redb: copy-on-write trees with checksums) says
//! which of them are entries. A batch of entries is written, synced, and then made visible by one
//! transaction of the index, so that a crash or a power cut at any point leaves whole batches. A
//! forgotten entry's blocks are given back to the file system at once, a segment without entries is
//! removed.
//!
//! Both engines that were compared, with 1 MiB entries and an fsync for each 16 of them: an LSM tree
//! writes each entry twice (journal and blob file), these files once.
//!
//! | module | holds |
//! |---|---|
//! | [`folder`] | [`Folder`]: batches, reading, opening; waits for the disk |
//! | `index` | which entries there are, and where |
//! | `segments` | the files with their bytes |
//! | [`thread`] | [`DiskFolder`]: the folder behind [`whimbrel_core::Disk`] |
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "a driver: it waits for the disk on a thread of its own"
)]

pub mod folder;
mod index;
mod segments;
pub mod thread;

pub use folder::{Batch, Folder, FolderLimits, ReadFault, Write};
pub use index::OpenError;
pub use thread::DiskFolder;
