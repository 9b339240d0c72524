//! Stores of a server's records.
//!
//! A store compares and sets by version: an older record never replaces a newer one. It remembers a
//! subject's version until **every** record that it ever accepted for the subject has expired, even
//! if a newer one with a shorter lifetime has expired before: otherwise the older one could be
//! replayed. After that, the entry counts as absent, whether it has been removed yet or not.
//!
//! A store is asked by [`Store::submit`] and answers by [`Store::poll`]: an embedded one before it
//! returns, one that writes to a disk or asks other machines when it can. A server never waits for it.

mod disk;
mod memory;

use whimbrel_core::Guid;

use crate::record::{Kind, MAX_MEMBERS, Record, RecordKey};

pub use disk::{DatabaseOpener, DiskJob, DiskOutcome, DiskStore, DiskWriter, InPlace, Writing};
pub use memory::MemoryStore;

/// The bounds of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreLimits {
    /// Maximum of records, counting those that are only remembered.
    pub max_records: usize,
    /// Maximum of bytes in memory, by the formula of [`MemoryStore::bytes_of`].
    pub max_bytes: usize,
    /// Maximum of providers per content. Beyond it one whose announcement has expired or was removed
    /// makes room; if there is none, one of the network with the most, for a network with fewer;
    /// else the new one is refused.
    pub max_providers: usize,
}

impl StoreLimits {
    /// Returns the maximum of records of a kind under one name, beside the binding: of members of a group
    /// there may be more.
    pub fn most_of(max_providers: usize, kind: Kind) -> usize {
        match kind {
            Kind::Membership => max_providers.max(MAX_MEMBERS),
            _ => max_providers,
        }
    }
}

impl Default for StoreLimits {
    fn default() -> Self {
        StoreLimits {
            max_records: 1_000_000,
            max_bytes: 1 << 30,
            max_providers: 64,
        }
    }
}

/// The outcome for an accepted record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is the first one of its entry.
    Created,
    /// It is the newest one of its entry.
    Stored,
    /// The very same record was stored already.
    Unchanged,
}

/// Why a store refused a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// A newer version is stored.
    #[error("the stored version {stored} is newer")]
    Stale {
        /// The version that is stored.
        stored: u64,
    },
    /// The same version is stored with other contents.
    #[error("version {stored} is stored with other contents")]
    Conflict {
        /// The version that is stored.
        stored: u64,
    },
    /// No room, and no record may be evicted; or the entry is new and the request asked not to
    /// create one.
    #[error("the store is full")]
    Full,
    /// The engine did not take it in time: a later try may succeed.
    #[error("the store is busy")]
    Busy,
}

/// The result for one record of a batch.
pub type PutResult = Result<Outcome, Refusal>;

/// Why a store cannot be opened, read or written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("the name store is in use by another process")]
    InUse,
    /// It is not a name store, or it is damaged.
    #[error(
        "the name store is damaged, or the file is not a name store ({0}); move the file away to start an empty one"
    )]
    Corrupted(String),
    /// A newer program wrote it.
    #[error("the name store has format {0}; this program supports format 1")]
    Format(u64),
    /// The engine does not answer, or has too much to do or to keep: a later try may succeed.
    #[error("the name store is busy: {0}")]
    Busy(String),
    /// Reading or writing failed: disk full, no permission, a failing disk.
    #[error("the name store cannot be read or written: {0}")]
    Io(String),
}

/// Names a request to a store; its reply carries it.
pub type Ticket = u64;

/// A record to store. The caller has verified it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Put {
    /// The record.
    pub record: Record,
    /// The network that it came from, as [`whimbrel_core::network_of`] tells; `None` if that is not
    /// proven. Providers of a content share its places by network.
    pub network: Option<u128>,
    /// False: refused as full if the entry is new.
    pub may_create: bool,
}

impl From<Record> for Put {
    fn from(record: Record) -> Put {
        Put {
            record,
            network: None,
            may_create: true,
        }
    }
}

/// A request to a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// The records of a name.
    Read(Guid),
    /// Stores records in order. In an embedded store all are one transaction: on `Ok`, the stored
    /// ones survive a crash, on an error, none of the batch is stored.
    Put(Vec<Put>),
    /// Removes at most this many expired records.
    RemoveExpired(usize),
}

/// The reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The records of the name, in the order of [`Store::visit`]. Some may have expired.
    Read(Result<Vec<Record>, StoreError>),
    /// One result per record.
    Put(Result<Vec<PutResult>, StoreError>),
    /// The number of removed records.
    Removed(Result<usize, StoreError>),
}

/// What a store has to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// The reply to a request. Every request gets exactly one.
    Reply(Ticket, Reply),
    /// Somebody else has stored a record of a followed name. It is at hand.
    Changed(RecordKey),
}

/// What a store holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Records, counting those that are only remembered.
    pub records: usize,
    /// Bytes that they occupy.
    pub bytes: usize,
    /// Further records for which there is room.
    pub free: usize,
}

/// The state of a store's engine on other machines, as this name server sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct EngineStatus {
    /// Primaries by address, and whether they are connected.
    pub primaries: std::collections::BTreeMap<String, bool>,
    /// Their replicas.
    pub replicas: usize,
    /// True if the cluster considers itself as working.
    pub works: bool,
    /// Slots that no primary has.
    pub uncovered_slots: usize,
    /// Records of all name servers.
    pub records: u64,
    /// Memory that the primaries use, in bytes.
    pub bytes: u64,
    /// Memory that they may use, in bytes; none if it has no bound.
    pub max_bytes: Option<u64>,
    /// Names whose records are at hand.
    pub at_hand: usize,
    /// Accepted writes that are kept, to be written again after a failover.
    pub kept_writes: usize,
    /// Of these, dropped early because there were too many.
    pub kept_writes_dropped: u64,
    /// Failovers and restarts of primaries that were noticed.
    pub primaries_changed: u64,
    /// Records that a failover had lost, and that were written again.
    pub restored: u64,
    /// Records on the cluster that were no owner's.
    pub forged: u64,
    /// Lookups that were answered from memory because the cluster did not answer.
    pub answered_without: u64,
    /// Requests that failed.
    pub failed: u64,
}

/// A store of records.
pub trait Store {
    /// Passes the unexpired records of `subject` to `visit`, removals too, the binding first, then
    /// by provider, until it returns false. Returns false, without a call, if they are not at hand:
    /// [`Request::Read`] asks for them.
    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) -> bool;

    /// Returns the newest record under `key` that is at hand, even if it has expired or is a
    /// removal. The records of followed names are at hand.
    fn get(&self, key: &RecordKey) -> Option<Record>;

    /// Begins a request. The caller bounds the number of those under way.
    fn submit(&mut self, now_ms: u64, ticket: Ticket, request: Request);

    /// Returns what has happened.
    fn poll(&mut self, now_ms: u64) -> Option<StoreEvent>;

    /// Returns at most `most` records that follow `after` in the order of their keys; none if they are on
    /// other machines.
    fn following(&self, after: Option<RecordKey>, most: usize) -> Vec<Record> {
        let _ = (after, most);
        Vec::new()
    }

    /// Reports the changes of a name from now on, and keeps its records at hand.
    fn follow(&mut self, subject: Guid) {
        let _ = subject;
    }

    /// Ends [`Store::follow`].
    fn unfollow(&mut self, subject: &Guid) {
        let _ = subject;
    }

    /// Returns what the store holds.
    fn usage(&self) -> Usage;

    /// Returns the state of its engine, if that is on other machines.
    fn engine(&self) -> Option<EngineStatus> {
        None
    }
}
