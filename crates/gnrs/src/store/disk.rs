use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use redb::{
    Database, DatabaseError, Durability, ReadOnlyDatabase, ReadableDatabase, ReadableTable,
    TableDefinition,
};
use whimbrel_core::Guid;

use super::memory::{Entry, UndoLog};
use super::{
    MemoryStore, Reply, Request, Store, StoreError, StoreEvent, StoreLimits, Ticket, Usage,
};
use crate::record::{Record, RecordKey};

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const FORMAT: u64 = 1;
/// Delay before the file is opened again after a failed write, in milliseconds.
const RETRY_MS: u64 = 1000;

/// Opens the database; called at the start and after every failure to write.
pub type DatabaseOpener = Box<dyn FnMut() -> Result<Database, DatabaseError> + Send>;

/// Records on disk (redb: copy-on-write trees with checksums, so that a crash at any point leaves
/// an intact file), with all of them in memory too: a lookup never waits for the disk.
///
/// One transaction is under way at a time; updates that arrive meanwhile go together with the next
/// one. When writing fails, the batch is refused and lookups continue; the file is opened again for
/// a later batch.
pub struct DiskStore {
    memory: MemoryStore,
    disk: Box<dyn Writing>,
    state: State,
    /// Requests that wait for the transaction under way, in order.
    waiting: VecDeque<(Ticket, Request)>,
    events: VecDeque<StoreEvent>,
}

/// What is known of the file.
enum State {
    /// It may be written.
    Ready,
    /// A transaction is under way: what it answers, and how memory was before.
    Writing(Vec<(Ticket, Reply)>, UndoLog),
    /// It is being opened again.
    Opening,
    /// Writing failed at this Unix time, in milliseconds.
    Failed(u64),
}

/// Executes the jobs of a [`DiskStore`], perhaps on a thread of its own: writing waits for the disk.
pub trait Writing: Send {
    /// Begins a job. There is one at a time.
    fn begin(&mut self, job: DiskJob);

    /// Returns the outcome of the job, once.
    fn poll(&mut self) -> Option<DiskOutcome>;
}

/// Work that waits for the disk.
#[derive(Debug)]
pub enum DiskJob {
    /// Write these entries in one transaction.
    Commit(Changes),
    /// Open the file again and load it.
    Open,
}

/// The outcome of a [`DiskJob`].
#[derive(Debug)]
pub enum DiskOutcome {
    /// Of a commit.
    Committed(Result<(), StoreError>),
    /// The records of the opened file.
    Opened(Result<Box<MemoryStore>, StoreError>),
}

/// Entries to write or, without a value, to remove.
#[derive(Debug)]
pub struct Changes {
    entries: Vec<([u8; 64], Option<Vec<u8>>)>,
    durability: Durability,
}

/// Executes jobs at once, on the thread of the caller.
#[derive(Debug)]
pub struct InPlace {
    writer: DiskWriter,
    outcome: Option<DiskOutcome>,
}

impl InPlace {
    /// Returns the writer's jobs as done in place.
    pub fn new(writer: DiskWriter) -> InPlace {
        InPlace {
            writer,
            outcome: None,
        }
    }
}

impl Writing for InPlace {
    fn begin(&mut self, job: DiskJob) {
        self.outcome = Some(self.writer.execute(job));
    }

    fn poll(&mut self) -> Option<DiskOutcome> {
        self.outcome.take()
    }
}

/// The file of a [`DiskStore`].
pub struct DiskWriter {
    limits: StoreLimits,
    opener: DatabaseOpener,
    database: Option<Database>,
}

impl core::fmt::Debug for DiskWriter {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DiskWriter")
            .field("open", &self.database.is_some())
            .finish()
    }
}

impl DiskWriter {
    /// Executes a job. Waits for the disk.
    pub fn execute(&mut self, job: DiskJob) -> DiskOutcome {
        match job {
            DiskJob::Commit(changes) => {
                let written = match &self.database {
                    Some(database) => commit(database, &changes),
                    None => Err(StoreError::Io("the database is closed".into())),
                };
                if written.is_err() {
                    // After an I/O error redb refuses writes until it is opened again.
                    self.database = None;
                }
                DiskOutcome::Committed(written)
            }
            DiskJob::Open => {
                self.database = None;
                let loaded = load(&mut self.opener, self.limits);
                DiskOutcome::Opened(loaded.map(|(database, memory)| {
                    self.database = Some(database);
                    Box::new(memory)
                }))
            }
        }
    }
}

impl core::fmt::Debug for DiskStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DiskStore")
            .field("records", &self.memory.len())
            .field("writable", &!matches!(self.state, State::Failed(_)))
            .finish()
    }
}

impl DiskStore {
    /// Memory of redb's own cache, in bytes. Lookups read from our memory, so little is enough.
    const CACHE: usize = 16 << 20;
    /// Maximum of records in one transaction.
    const BATCH: usize = 4096;

    /// Opens the store in the file `path`, or creates an empty one. Checks every page. `begin` says
    /// where its jobs are executed: [`InPlace::new`], or a thread.
    pub fn open<W: Writing + 'static>(
        path: impl Into<PathBuf>,
        limits: StoreLimits,
        begin: impl FnOnce(DiskWriter) -> W,
    ) -> Result<DiskStore, StoreError> {
        let path = path.into();
        let opener = move || {
            Database::builder()
                .set_check_integrity_on_open(true)
                .set_cache_size(Self::CACHE)
                .create(&path)
        };
        DiskStore::open_with(Box::new(opener), limits, begin)
    }

    /// Checks that the file `path` is a store, if it exists, without changing it. One that another
    /// process has open passes, and so does one that the next [`DiskStore::open`] repairs.
    pub fn check(path: &Path) -> Result<(), StoreError> {
        if !path.exists() {
            return Ok(());
        }
        match ReadOnlyDatabase::open(path) {
            Ok(_) | Err(DatabaseError::DatabaseAlreadyOpen | DatabaseError::RepairAborted) => {
                Ok(())
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// Opens the store in the database that `opener` opens.
    pub fn open_with<W: Writing + 'static>(
        mut opener: DatabaseOpener,
        limits: StoreLimits,
        begin: impl FnOnce(DiskWriter) -> W,
    ) -> Result<DiskStore, StoreError> {
        let (database, memory) = load(&mut opener, limits)?;
        let writer = DiskWriter {
            limits,
            opener,
            database: Some(database),
        };
        Ok(DiskStore {
            memory,
            disk: Box::new(begin(writer)),
            state: State::Ready,
            waiting: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Takes the outcome of the job under way, and begins the next one. Returns true if anything has
    /// changed.
    fn advance(&mut self, now_ms: u64) -> bool {
        let outcome = match self.state {
            State::Writing(..) | State::Opening => match self.disk.poll() {
                Some(outcome) => Some(outcome),
                None => return false,
            },
            State::Ready | State::Failed(_) => None,
        };
        let state = core::mem::replace(&mut self.state, State::Ready);
        match (state, outcome) {
            (State::Writing(replies, undo), Some(DiskOutcome::Committed(result))) => {
                self.committed(now_ms, replies, undo, result);
            }
            (State::Opening, Some(DiskOutcome::Opened(Ok(memory)))) => self.memory = *memory,
            (State::Opening, Some(DiskOutcome::Opened(Err(fault)))) => {
                self.state = State::Failed(now_ms);
                self.refuse_waiting(&fault);
            }
            (State::Failed(at_ms), _) if !self.waiting.is_empty() => {
                if now_ms < at_ms.saturating_add(RETRY_MS) {
                    self.state = State::Failed(at_ms);
                    let fault = StoreError::Io("writing failed less than a second ago".into());
                    self.refuse_waiting(&fault);
                } else {
                    // Whether the failed batch has reached the disk is unknown: load what is there.
                    self.state = State::Opening;
                    self.disk.begin(DiskJob::Open);
                }
            }
            (state, _) => {
                self.state = state;
                return matches!(self.state, State::Ready) && self.begin_next(now_ms);
            }
        }
        true
    }

    fn committed(
        &mut self,
        now_ms: u64,
        replies: Vec<(Ticket, Reply)>,
        undo: UndoLog,
        result: Result<(), StoreError>,
    ) {
        if let Err(fault) = &result {
            for (key, old) in undo.into_iter().rev() {
                self.memory.restore(key, old);
            }
            self.state = State::Failed(now_ms);
            tracing::debug!(%fault, "a batch was not written");
        }
        let fault = result.err();
        for (ticket, reply) in replies {
            let reply = match (&fault, &reply) {
                (Some(fault), _) => failure(&reply, fault),
                (None, _) => reply,
            };
            self.events.push_back(StoreEvent::Reply(ticket, reply));
        }
    }

    fn refuse_waiting(&mut self, fault: &StoreError) {
        for (ticket, request) in core::mem::take(&mut self.waiting) {
            let reply = match request {
                Request::Put(_) => Reply::Put(Err(fault.clone())),
                Request::RemoveExpired(_) => Reply::Removed(Err(fault.clone())),
                Request::Read(_) => Reply::Read(Err(fault.clone())),
            };
            self.events.push_back(StoreEvent::Reply(ticket, reply));
        }
    }

    /// Applies what has waited to the memory and begins to write it. Returns false if nothing has.
    fn begin_next(&mut self, now_ms: u64) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let (mut replies, mut undo) = (Vec::new(), UndoLog::new());
        // Losing removals in a crash is harmless: they expire again. The next durable commit
        // includes them.
        let mut durability = Durability::None;
        while undo.len() < Self::BATCH
            && let Some((ticket, request)) = self.waiting.pop_front()
        {
            let reply = match request {
                Request::Put(batch) => {
                    let results = batch
                        .iter()
                        .map(|put| self.memory.apply_logged(now_ms, put, &mut undo))
                        .collect();
                    durability = Durability::Immediate;
                    Reply::Put(Ok(results))
                }
                Request::RemoveExpired(budget) => {
                    let removed = self.memory.forget_expired(now_ms, budget, None, &mut undo);
                    Reply::Removed(Ok(removed))
                }
                Request::Read(subject) => Reply::Read(Ok(self.memory.read(&subject))),
            };
            replies.push((ticket, reply));
        }
        if undo.is_empty() {
            let replies = replies.into_iter();
            let replies = replies.map(|(ticket, reply)| StoreEvent::Reply(ticket, reply));
            self.events.extend(replies);
            return true;
        }
        let changes = Changes::of(&self.memory, &undo, durability);
        self.state = State::Writing(replies, undo);
        self.disk.begin(DiskJob::Commit(changes));
        true
    }
}

fn failure(reply: &Reply, fault: &StoreError) -> Reply {
    match reply {
        Reply::Put(_) => Reply::Put(Err(fault.clone())),
        Reply::Removed(_) => Reply::Removed(Err(fault.clone())),
        Reply::Read(_) => reply.clone(),
    }
}

impl Changes {
    fn of(memory: &MemoryStore, changed: &UndoLog, durability: Durability) -> Changes {
        let value = |entry: &Entry| {
            let mut value = entry.keep_until_ms.to_be_bytes().to_vec();
            value.extend_from_slice(entry.record.as_bytes());
            value
        };
        let entries = changed
            .iter()
            .map(|(key, _)| (key_to_bytes(key), memory.entry(key).map(value)))
            .collect();
        Changes {
            entries,
            durability,
        }
    }
}

fn commit(database: &Database, changes: &Changes) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().map_err(failed)?;
    transaction
        .set_durability(changes.durability)
        .map_err(failed)?;
    {
        let mut table = transaction.open_table(RECORDS).map_err(failed)?;
        for (key, value) in &changes.entries {
            match value {
                Some(value) => drop(table.insert(&key[..], &value[..]).map_err(failed)?),
                None => drop(table.remove(&key[..]).map_err(failed)?),
            }
        }
    }
    transaction.commit().map_err(failed)
}

fn load(
    opener: &mut DatabaseOpener,
    limits: StoreLimits,
) -> Result<(Database, MemoryStore), StoreError> {
    let database = opener().map_err(failed)?;
    let transaction = database.begin_write().map_err(failed)?;
    {
        let mut meta = transaction.open_table(META).map_err(failed)?;
        let format = meta
            .get("format")
            .map_err(failed)?
            .map(|format| format.value());
        match format {
            Some(FORMAT) => {}
            Some(other) => return Err(StoreError::Format(other)),
            None => {
                meta.insert("format", FORMAT).map_err(failed)?;
            }
        }
        transaction.open_table(RECORDS).map_err(failed)?;
    }
    transaction.commit().map_err(failed)?;
    let mut memory = MemoryStore::new(limits);
    let reading = database.begin_read().map_err(failed)?;
    for item in reading
        .open_table(RECORDS)
        .map_err(failed)?
        .iter()
        .map_err(failed)?
    {
        let (key, value) = item.map_err(failed)?;
        let (keep_until, record) = value
            .value()
            .split_first_chunk()
            .ok_or_else(|| misfiled("no time"))?;
        let record =
            Record::parse(bytes::Bytes::copy_from_slice(record)).map_err(|why| misfiled(&why))?;
        let filed_under = record.filed_under();
        if key.value() != key_to_bytes(&filed_under) {
            return Err(misfiled("wrong key"));
        }
        let entry = Entry {
            record,
            keep_until_ms: u64::from_be_bytes(*keep_until),
            network: None,
        };
        memory.restore(filed_under, Some(entry));
    }
    drop(reading);
    Ok((database, memory))
}

fn key_to_bytes(key: &RecordKey) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&key.subject.0);
    bytes[32..].copy_from_slice(&key.provider.0);
    bytes
}

fn misfiled(why: &(impl core::fmt::Display + ?Sized)) -> StoreError {
    StoreError::Corrupted(format!("a record in it is not valid: {why}"))
}

fn failed(error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::DatabaseAlreadyOpen => StoreError::InUse,
        redb::Error::Corrupted(why) => StoreError::Corrupted(why),
        redb::Error::Io(why) if why.kind() == std::io::ErrorKind::InvalidData => {
            StoreError::Corrupted(why.to_string())
        }
        why @ (redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::RepairAborted) => StoreError::Corrupted(why.to_string()),
        why => StoreError::Io(why.to_string()),
    }
}

impl Store for DiskStore {
    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) -> bool {
        self.memory.visit(subject, now_ms, visit);
        true
    }

    fn get(&self, key: &RecordKey) -> Option<Record> {
        self.memory.get(key)
    }

    fn submit(&mut self, _: u64, ticket: Ticket, request: Request) {
        if let Request::Read(subject) = request {
            let reply = Reply::Read(Ok(self.memory.read(&subject)));
            self.events.push_back(StoreEvent::Reply(ticket, reply));
        } else {
            self.waiting.push_back((ticket, request));
        }
    }

    fn poll(&mut self, now_ms: u64) -> Option<StoreEvent> {
        while self.events.is_empty() && self.advance(now_ms) {}
        self.events.pop_front()
    }

    fn following(&self, after: Option<RecordKey>, most: usize) -> Vec<Record> {
        self.memory.following(after, most)
    }

    fn usage(&self) -> Usage {
        self.memory.usage()
    }
}
