//! A name server's store of records: on disk, in memory, or on a cluster, as one type.

use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use whimbrel_core::Guid;
use whimbrel_gnrs::store::{
    DiskJob, DiskOutcome, DiskWriter, EngineStatus, Request, StoreEvent, Ticket, Usage, Writing,
};
use whimbrel_gnrs::{DiskStore, MemoryStore, Record, RecordKey, Store, StoreError};
use whimbrel_gnrs_cluster::ClusterStore;

use crate::config::{NameServerPlan, NameStorePlan};
use crate::run::StartError;
use whimbrel_client::place::make_folder_of;

/// A store on disk, in memory, or on a cluster.
#[derive(Debug)]
pub enum NameStore {
    /// Records survive the process.
    Disk(DiskStore),
    /// Records are lost when the process ends.
    Memory(MemoryStore),
    /// Records are on other machines.
    Cluster(ClusterStore),
}

macro_rules! whichever {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            NameStore::Disk($store) => $call,
            NameStore::Memory($store) => $call,
            NameStore::Cluster($store) => $call,
        }
    };
}

impl Store for NameStore {
    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) -> bool {
        whichever!(self, store => Store::visit(store, subject, now_ms, visit))
    }

    fn get(&self, key: &RecordKey) -> Option<Record> {
        whichever!(self, store => Store::get(store, key))
    }

    fn submit(&mut self, now_ms: u64, ticket: Ticket, request: Request) {
        whichever!(self, store => store.submit(now_ms, ticket, request));
    }

    fn poll(&mut self, now_ms: u64) -> Option<StoreEvent> {
        whichever!(self, store => store.poll(now_ms))
    }

    fn following(&self, after: Option<RecordKey>, most: usize) -> Vec<Record> {
        whichever!(self, store => Store::following(store, after, most))
    }

    fn follow(&mut self, subject: Guid) {
        whichever!(self, store => store.follow(subject));
    }

    fn unfollow(&mut self, subject: &Guid) {
        whichever!(self, store => store.unfollow(subject));
    }

    fn usage(&self) -> Usage {
        whichever!(self, store => store.usage())
    }

    fn engine(&self) -> Option<EngineStatus> {
        whichever!(self, store => store.engine())
    }
}

/// Opens the store of a plan. `waker` is told when it has something to say.
pub(crate) fn open(plan: &NameServerPlan, waker: &Waker) -> Result<NameStore, StartError> {
    let at = |source| StartError::NameStore {
        path: plan.store.to_string().into(),
        source,
    };
    match &plan.store {
        NameStorePlan::Memory => Ok(NameStore::Memory(MemoryStore::new(plan.limits))),
        NameStorePlan::Cluster(config) => {
            let waker = waker.clone();
            let opened = ClusterStore::open(config.clone(), move || waker.wake());
            opened.map(NameStore::Cluster).map_err(at)
        }
        NameStorePlan::Disk(path) => {
            make_folder_of(path)?;
            let mut failed = None;
            let opened = DiskStore::open(path.clone(), plan.limits, |writer| {
                DiskThread::start(writer, waker.clone()).unwrap_or_else(|(thread, fault)| {
                    failed = Some(StoreError::Io(fault.to_string()));
                    thread
                })
            });
            match failed {
                Some(fault) => Err(at(fault)),
                None => opened.map(NameStore::Disk).map_err(at),
            }
        }
    }
}

/// Wakes the loop of a name server when its store has something to say.
#[derive(Clone, Default)]
pub(crate) struct Waker(Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl Waker {
    /// Sets what wakes the loop, once.
    pub(crate) fn set(&self, wake: impl Fn() + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(wake));
    }

    pub(crate) fn wake(&self) {
        // Nothing is asked before the loop runs.
        if let Some(wake) = self.0.get() {
            wake();
        }
    }
}

/// Writes to the disk on a thread of its own, so that no lookup waits for it.
struct DiskThread {
    jobs: Option<mpsc::Sender<DiskJob>>,
    outcome: Arc<Mutex<Option<DiskOutcome>>>,
    thread: Option<JoinHandle<()>>,
}

impl DiskThread {
    /// Starts the thread. Without one, what is returned never does anything.
    fn start(
        mut writer: DiskWriter,
        waker: Waker,
    ) -> Result<DiskThread, (DiskThread, std::io::Error)> {
        let (jobs, received) = mpsc::channel::<DiskJob>();
        let outcome = Arc::new(Mutex::new(None));
        let told = outcome.clone();
        let write = move || {
            for job in received {
                let outcome = writer.execute(job);
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
                waker.wake();
            }
        };
        let mut disk = DiskThread {
            jobs: Some(jobs),
            outcome,
            thread: None,
        };
        let thread = std::thread::Builder::new().name("name-store".into());
        match thread.spawn(write) {
            Ok(thread) => {
                disk.thread = Some(thread);
                Ok(disk)
            }
            Err(fault) => Err((disk, fault)),
        }
    }
}

impl Writing for DiskThread {
    fn begin(&mut self, job: DiskJob) {
        if let Some(jobs) = &self.jobs {
            // The thread ends after this only.
            let _ = jobs.send(job);
        }
    }

    fn poll(&mut self) -> Option<DiskOutcome> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.take()
    }
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // Its thread has reported a panic.
            let _ = thread.join();
        }
    }
}
