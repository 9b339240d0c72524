//! Entries on a disk: what a machine asks of it, and what it is told later.
//!
//! A machine never waits for a disk. It submits actions and polls their outcomes; the driver behind
//! [`Disk`] carries them out, on a thread of its own where they take time. The simulator's keeps
//! entries in memory, beyond the crash of a node.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;

/// Identifies one entry of a disk; its owner numbers them and reuses none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskKey(pub u64);

/// What is known of an entry without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskEntry {
    /// Its key.
    pub key: DiskKey,
    /// The Unix time in milliseconds after which nobody wants it.
    pub expires_ms: u64,
    /// What its owner must know of it without reading it: at most [`MAX_LABEL`] bytes.
    pub label: Bytes,
    /// Size of its body, in bytes.
    pub length: u64,
}

/// Size limit of a label, in bytes.
pub const MAX_LABEL: usize = 8192;
/// Unit in which a disk gives room, in bytes.
pub const BLOCK: u64 = 4096;

/// Returns the bytes that an entry of `length` takes of a disk's bound: whole blocks.
pub const fn size_on_disk(length: u64) -> u64 {
    let length = if length == 0 { 1 } else { length };
    length.saturating_add(BLOCK - 1) / BLOCK * BLOCK
}

/// Work for a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskAction {
    /// Write an entry; its body may come in two pieces. Answered by [`DiskEvent::Written`] or
    /// [`DiskEvent::Refused`], unless it is forgotten first.
    Write {
        /// Its key.
        key: DiskKey,
        /// See [`DiskEntry::expires_ms`].
        expires_ms: u64,
        /// See [`DiskEntry::label`].
        label: Bytes,
        /// Its bytes, one piece after the other.
        body: [Bytes; 2],
    },
    /// Read the body of an entry. Answered by [`DiskEvent::Read`], [`DiskEvent::Lost`] or
    /// [`DiskEvent::Unreadable`].
    Read(DiskKey),
    /// Remove an entry, or do not write it.
    Forget(DiskKey),
}

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskEvent {
    /// The entry survives the end of the process and a power cut.
    Written(DiskKey),
    /// The entry is not on the disk, because the disk is full or fails.
    Refused(DiskKey),
    /// The body of an entry, as it was written.
    Read(DiskKey, Bytes),
    /// The entry is damaged; it was removed.
    Lost(DiskKey),
    /// The disk fails; the entry may be read when it works again.
    Unreadable(DiskKey),
}

/// What a disk reports of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskStatus {
    /// Where it is, for people.
    pub place: String,
    /// Entries on it.
    pub entries: u64,
    /// Bytes that they take ([`size_on_disk`]).
    pub bytes: u64,
    /// Bound of these bytes.
    pub limit: u64,
    /// Entries written since the start.
    pub written: u64,
    /// Entries read since the start.
    pub read: u64,
    /// Entries that it had no room for.
    pub refused: u64,
    /// Damaged entries, which were skipped.
    pub damaged: u64,
    /// Failed writes and openings.
    pub faults: u64,
    /// The last fault, while it lasts.
    pub fault: Option<String>,
}

/// A disk of bounded size, as a machine sees it.
pub trait Disk: Send + core::fmt::Debug {
    /// Returns the entries that were there at the start, in the order of their keys; once.
    fn take_found(&mut self) -> Vec<DiskEntry>;

    /// Begins an action. Actions on one key take effect in their order.
    fn submit(&mut self, action: DiskAction);

    /// Returns the next outcome.
    fn poll(&mut self) -> Option<DiskEvent>;

    /// Returns the bound of its bytes.
    fn limit(&self) -> u64;

    /// Returns false from a fault until it works again: it refuses what it is to write.
    fn works(&self) -> bool;

    /// Returns its state, for reports.
    fn status(&self) -> DiskStatus;
}

/// The entries of one disk that somebody holds: their bytes, and which are held no longer.
#[derive(Clone, Debug, Default)]
pub struct Copies(Arc<Ledger>);

#[derive(Debug, Default)]
struct Ledger {
    bytes: AtomicU64,
    dropped: Mutex<Vec<DiskKey>>,
}

/// An entry on a disk until its last holder drops it: then its owner has it forgotten.
#[derive(Clone, Debug)]
pub struct DiskCopy(Arc<Held>);

/// An entry on a disk that others may hold.
#[derive(Clone, Debug)]
pub struct WeakCopy(Weak<Held>);

#[derive(Debug)]
struct Held {
    key: DiskKey,
    size: u64,
    is_written: AtomicBool,
    ledger: Copies,
}

impl Copies {
    /// Counts an entry of `length` bytes until the last clone of what is returned is dropped.
    pub fn hold(&self, key: DiskKey, length: u64) -> DiskCopy {
        let size = size_on_disk(length);
        self.0.bytes.fetch_add(size, Ordering::Relaxed);
        DiskCopy(Arc::new(Held {
            key,
            size,
            is_written: AtomicBool::new(false),
            ledger: self.clone(),
        }))
    }

    /// Returns the bytes of the entries that are held.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Returns the entries that nobody holds any longer, once.
    pub fn take_dropped(&self) -> Vec<DiskKey> {
        core::mem::take(&mut *self.dropped())
    }

    fn dropped(&self) -> MutexGuard<'_, Vec<DiskKey>> {
        let dropped = self.0.dropped.lock();
        dropped.unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskCopy {
    /// Returns its key.
    pub fn key(&self) -> DiskKey {
        self.0.key
    }

    /// Returns the bytes that it takes of the disk's bound.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Returns true if it survives the end of the process.
    pub fn is_written(&self) -> bool {
        self.0.is_written.load(Ordering::Relaxed)
    }

    /// It is on the disk.
    pub fn set_written(&self) {
        self.0.is_written.store(true, Ordering::Relaxed);
    }

    /// Returns what knows the copy and does not hold it.
    pub fn downgrade(&self) -> WeakCopy {
        WeakCopy(Arc::downgrade(&self.0))
    }
}

impl WeakCopy {
    /// Returns the copy, if somebody holds it still.
    pub fn upgrade(&self) -> Option<DiskCopy> {
        self.0.upgrade().map(DiskCopy)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.ledger.0.bytes.fetch_sub(self.size, Ordering::Relaxed);
        self.ledger.dropped().push(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_counts_until_its_last_holder_drops_it() {
        let copies = Copies::default();
        let (one, other) = (copies.hold(DiskKey(1), 1), copies.hold(DiskKey(2), 5000));
        let again = one.clone();
        drop((one, other));
        assert_eq!(
            (copies.bytes(), copies.take_dropped()),
            (BLOCK, vec![DiskKey(2)])
        );
        again.set_written();
        assert!(again.is_written());
        drop(again);
        assert_eq!(
            (copies.bytes(), copies.take_dropped()),
            (0, vec![DiskKey(1)])
        );
        assert!(copies.take_dropped().is_empty());
    }
}
