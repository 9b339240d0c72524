//! Entries on a disk: what a machine asks of it, and what it is told later.
//!
//! A machine never waits for a disk. It submits actions and polls their outcomes; the driver behind
//! [`Disk`] carries them out, on a thread of its own where they take time. The simulator's keeps
//! entries in memory, beyond the crash of a node.

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
pub trait Disk: Send {
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
