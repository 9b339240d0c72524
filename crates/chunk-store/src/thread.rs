//! A folder behind the seam of machines: a thread carries out what they ask.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use whimbrel_core::disk::{MAX_LABEL, size_on_disk};
use whimbrel_core::{Disk, DiskAction, DiskEntry, DiskEvent, DiskKey, DiskStatus};

use crate::folder::{Batch, Folder, FolderLimits, ReadFault, Write};
use crate::index::OpenError;

/// Bytes of the entries that one transaction writes.
const BATCH_BYTES: u64 = 16 << 20;
/// Actions that one transaction carries out.
const BATCH_ACTIONS: usize = 4096;
/// How long entries that are only to be forgotten wait for others. A crash meanwhile brings them back:
/// who receives them has them already.
const FORGET_DELAY: Duration = Duration::from_millis(100);
/// Pause before a folder that has failed is opened again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
const LAST_PAUSE: Duration = Duration::from_secs(60);

/// Entries in a folder, written and read on a thread of its own.
///
/// When the folder fails, entries are refused until it can be opened again; those on it stay.
#[derive(Debug)]
pub struct DiskFolder {
    found: Vec<DiskEntry>,
    limit: u64,
    actions: Option<Sender<DiskAction>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the machine's side both use.
#[derive(Debug, Default)]
struct Shared {
    events: Mutex<VecDeque<DiskEvent>>,
    status: Mutex<DiskStatus>,
    works: AtomicBool,
}

impl DiskFolder {
    /// Opens a folder, or makes one. `wake` is called, on the thread, whenever there is an outcome.
    pub fn open(
        path: &Path,
        limits: FolderLimits,
        wake: impl Fn() + Send + 'static,
    ) -> Result<DiskFolder, OpenError> {
        let opened = Folder::open(path, limits)?;
        if opened.damaged > 0 {
            let (folder, damaged) = (path.display(), opened.damaged);
            tracing::warn!(%folder, damaged, "stored chunks were damaged and are gone");
        }
        let shared = Arc::new(Shared::default());
        shared.works.store(true, Ordering::Relaxed);
        *lock(&shared.status) = DiskStatus {
            place: path.display().to_string(),
            limit: limits.bytes,
            damaged: opened.damaged,
            ..DiskStatus::default()
        };
        let (actions, received) = channel();
        let mut worker = Worker {
            path: path.to_owned(),
            limits,
            folder: Some(opened.folder),
            known: BTreeSet::new(),
            forgets: BTreeSet::new(),
            again: None,
            pause: FIRST_PAUSE,
            shared: shared.clone(),
            wake: Box::new(wake),
        };
        worker.note_size();
        let thread = std::thread::Builder::new()
            .name("chunk-store".into())
            .spawn(move || worker.run(&received))
            .map_err(|fault| OpenError::Folder {
                folder: path.to_owned(),
                fault,
            })?;
        Ok(DiskFolder {
            found: opened.entries,
            limit: limits.bytes,
            actions: Some(actions),
            shared,
            thread: Some(thread),
        })
    }
}

impl Disk for DiskFolder {
    fn take_found(&mut self) -> Vec<DiskEntry> {
        core::mem::take(&mut self.found)
    }

    fn submit(&mut self, action: DiskAction) {
        if let Some(actions) = &self.actions {
            // The thread ends after this only.
            let _ = actions.send(action);
        }
    }

    fn poll(&mut self) -> Option<DiskEvent> {
        lock(&self.shared.events).pop_front()
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn works(&self) -> bool {
        self.shared.works.load(Ordering::Relaxed)
    }

    fn status(&self) -> DiskStatus {
        lock(&self.shared.status).clone()
    }
}

impl Drop for DiskFolder {
    fn drop(&mut self) {
        self.actions = None;
        if let Some(thread) = self.thread.take() {
            // Its thread has reported a panic.
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread's side.
struct Worker {
    path: PathBuf,
    limits: FolderLimits,
    /// None while it fails.
    folder: Option<Folder>,
    /// What is on a folder that fails: anything else there was refused.
    known: BTreeSet<DiskKey>,
    /// Entries to remove with the next batch.
    forgets: BTreeSet<DiskKey>,
    /// When a folder that fails is opened again.
    again: Option<Instant>,
    pause: Duration,
    shared: Arc<Shared>,
    wake: Box<dyn Fn() + Send>,
}

impl Worker {
    fn run(&mut self, actions: &Receiver<DiskAction>) {
        loop {
            let first = match self.patience() {
                Some(patience) => actions.recv_timeout(patience),
                None => actions.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            if first == Err(RecvTimeoutError::Disconnected) {
                // What is still to be forgotten must not come back.
                self.write(BTreeMap::new());
                return;
            }
            let is_late = first.is_err();
            let mut writes = BTreeMap::new();
            let (mut bytes, mut count) = (0, 0);
            let mut next = first.ok();
            while let Some(action) = next {
                bytes += self.take(action, &mut writes);
                count += 1;
                let is_full = bytes >= BATCH_BYTES || count >= BATCH_ACTIONS;
                next = (!is_full).then(|| actions.try_recv().ok()).flatten();
            }
            self.open_again();
            if !writes.is_empty() || is_late || self.forgets.len() >= BATCH_ACTIONS {
                self.write(writes);
            }
        }
    }

    /// How long to wait for an action before there is something else to do.
    fn patience(&self) -> Option<Duration> {
        match self.again {
            Some(at) => Some(at.saturating_duration_since(Instant::now())),
            None => (!self.forgets.is_empty()).then_some(FORGET_DELAY),
        }
    }

    /// Reads at once, and collects the rest for a batch. Returns the bytes to write.
    fn take(&mut self, action: DiskAction, writes: &mut BTreeMap<DiskKey, Write>) -> u64 {
        match action {
            DiskAction::Write {
                key,
                expires_ms,
                label,
                body,
            } => {
                let write = Write {
                    key,
                    expires_ms,
                    label,
                    body,
                };
                let length = write.length();
                writes.insert(key, write);
                length
            }
            DiskAction::Forget(key) => {
                if writes.remove(&key).is_none() {
                    self.forgets.insert(key);
                }
                0
            }
            DiskAction::Read(key) => {
                let event = self.read(key);
                self.tell([event]);
                0
            }
        }
    }

    fn read(&mut self, key: DiskKey) -> DiskEvent {
        let Some(folder) = &self.folder else {
            return DiskEvent::Unreadable(key);
        };
        match folder.read(key) {
            Ok(body) => {
                lock(&self.shared.status).read += 1;
                DiskEvent::Read(key, body)
            }
            Err(ReadFault::Unknown) => DiskEvent::Lost(key),
            Err(ReadFault::Damaged) => {
                lock(&self.shared.status).damaged += 1;
                tracing::warn!(folder = %self.path.display(), "a stored chunk is damaged and dropped");
                self.forgets.insert(key);
                DiskEvent::Lost(key)
            }
            Err(ReadFault::Disk(fault)) => {
                lock(&self.shared.status).faults += 1;
                tracing::warn!(folder = %self.path.display(), %fault, "a stored chunk cannot be read");
                DiskEvent::Unreadable(key)
            }
        }
    }

    /// Carries out a batch of these and of what is to be forgotten.
    fn write(&mut self, writes: BTreeMap<DiskKey, Write>) {
        let mut refused = Vec::new();
        let mut accepted = Vec::new();
        let mut size = 0;
        let all: u64 = writes.values().map(|it| size_on_disk(it.length())).sum();
        let is_tight = |folder: &Folder| !folder.has_room_for(all);
        if !self.forgets.is_empty() && self.folder.as_ref().is_some_and(is_tight) {
            self.write_batch(Vec::new(), &mut refused);
        }
        for (key, write) in writes {
            let fits = self.folder.as_ref().is_some_and(|folder| {
                write.label.len() <= MAX_LABEL && folder.has_room_for(size + write.length())
            });
            if fits {
                size += size_on_disk(write.length());
                accepted.push(write);
            } else {
                refused.push(key);
            }
        }
        self.write_batch(accepted, &mut refused);
        lock(&self.shared.status).refused += refused.len() as u64;
        self.tell(refused.into_iter().map(DiskEvent::Refused));
        self.note_size();
    }

    /// Writes these and removes what is to be forgotten, in one transaction.
    fn write_batch(&mut self, writes: Vec<Write>, refused: &mut Vec<DiskKey>) {
        let keys: Vec<DiskKey> = writes.iter().map(|write| write.key).collect();
        let batch = Batch {
            writes,
            forgets: self.forgets.iter().copied().collect(),
        };
        let outcome = self.folder.as_mut().map(|folder| folder.apply(batch));
        match outcome {
            Some(Ok(())) => {
                self.forgets.clear();
                lock(&self.shared.status).written += keys.len() as u64;
                self.tell(keys.into_iter().map(DiskEvent::Written));
            }
            Some(Err(fault)) => {
                refused.extend(keys);
                self.close(&fault);
            }
            None => refused.extend(keys),
        }
    }

    /// The folder has failed: it is opened again later.
    fn close(&mut self, fault: &dyn core::fmt::Display) {
        self.note_fault(fault);
        if let Some(folder) = self.folder.take() {
            self.known = folder.keys().collect();
        }
        self.again = Some(Instant::now() + self.pause);
    }

    fn note_fault(&mut self, fault: &dyn core::fmt::Display) {
        let mut status = lock(&self.shared.status);
        status.faults += 1;
        if status.fault.is_none() {
            let folder = self.path.display();
            tracing::error!(%folder, %fault, "the storage fails; chunks are stored in memory only");
        }
        status.fault = Some(fault.to_string());
        self.shared.works.store(false, Ordering::Relaxed);
    }

    /// Opens a folder that has failed, when it is time. What was refused meanwhile is not to be there.
    fn open_again(&mut self) {
        if self.again.is_none_or(|at| Instant::now() < at) {
            return;
        }
        match Folder::open(&self.path, self.limits) {
            Ok(opened) => {
                let folder = opened.folder;
                let refused = folder.keys().filter(|key| !self.known.contains(key));
                self.forgets.extend(refused);
                self.folder = Some(folder);
                self.again = None;
                self.pause = FIRST_PAUSE;
                self.known.clear();
                let mut status = lock(&self.shared.status);
                status.damaged += opened.damaged;
                status.fault = None;
                self.shared.works.store(true, Ordering::Relaxed);
                tracing::warn!(folder = %self.path.display(), "the storage works again");
            }
            Err(fault) => {
                self.pause = (self.pause * 2).min(LAST_PAUSE);
                self.close(&fault);
            }
        }
    }

    fn note_size(&self) {
        if let Some(folder) = &self.folder {
            let mut status = lock(&self.shared.status);
            status.bytes = folder.bytes();
            status.entries = folder.count();
        }
    }

    fn tell(&self, events: impl IntoIterator<Item = DiskEvent>) {
        let mut told = lock(&self.shared.events);
        let before = told.len();
        told.extend(events);
        let is_news = told.len() > before;
        drop(told);
        if is_news {
            (self.wake)();
        }
    }
}
