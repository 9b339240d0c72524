//! The machine's side of a cluster: never waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use whimbrel_core::Guid;
use whimbrel_gnrs::store::{EngineStatus, Reply, Request, StoreEvent, Ticket, Usage};
use whimbrel_gnrs::{Record, RecordKey, Store, StoreError};

use crate::cache::Cache;
use crate::config::ClusterConfig;
use crate::engine::{Command, Engine, Event, Shared, lock};
use crate::keys;

/// Records on a Redis or Valkey Cluster.
pub struct ClusterStore {
    commands: Option<UnboundedSender<Command>>,
    shared: Arc<Shared>,
    cache: Cache,
    events: std::collections::VecDeque<StoreEvent>,
    thread: Option<JoinHandle<()>>,
}

impl core::fmt::Debug for ClusterStore {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ClusterStore")
            .field("at_hand", &self.cache.len())
            .finish_non_exhaustive()
    }
}

impl ClusterStore {
    /// Connects to a cluster. `wake` is called, on another thread, whenever the store has something to
    /// say. A cluster that does not answer is waited for later; one that refuses the password, is none,
    /// or has records of another format is an error.
    pub fn open(
        config: ClusterConfig,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<ClusterStore, StoreError> {
        let config = Arc::new(config);
        let shared = Arc::new(Shared::new(Box::new(wake)));
        let cache = Cache::new(config.max_at_hand, config.max_providers);
        let (commands, received) = unbounded_channel();
        let (opened, outcome) = mpsc::channel();
        let of_thread = shared.clone();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(fault) => {
                    let _ = opened.send(Err(StoreError::Io(fault.to_string())));
                    return;
                }
            };
            runtime.block_on(async {
                let (engine, heard) = Engine::new(config, of_thread);
                let open = engine.open().await;
                let is_open = open.is_ok();
                let _ = opened.send(open);
                if is_open {
                    engine.run(received, heard).await;
                }
            });
        };
        let no_thread = |fault: &dyn core::fmt::Display| StoreError::Io(fault.to_string());
        let thread = std::thread::Builder::new()
            .name("name-cluster".into())
            .spawn(run)
            .map_err(|fault| no_thread(&fault))?;
        outcome.recv().map_err(|fault| no_thread(&fault))??;
        Ok(ClusterStore {
            commands: Some(commands),
            shared,
            cache,
            events: std::collections::VecDeque::new(),
            thread: Some(thread),
        })
    }

    fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // The thread ends after this only.
            let _ = commands.send(command);
        }
    }

    fn read(&mut self, ticket: Option<Ticket>, subject: Guid) {
        let keep = self.cache.note_read(subject);
        self.send(Command::Read {
            ticket,
            subject,
            keep,
        });
        while let Some(old) = self.cache.evict() {
            self.send(Command::Leave(old));
        }
    }

    fn read_again(&mut self, names: Vec<Guid>) {
        for subject in names {
            self.send(Command::Read {
                ticket: None,
                subject,
                keep: true,
            });
        }
    }

    fn note(&mut self, now_ms: u64, event: Event) {
        match event {
            Event::Reply(ticket, reply) => self.events.push_back(StoreEvent::Reply(ticket, reply)),
            Event::Fresh {
                ticket,
                subject,
                records,
                link,
            } => {
                let changed = self.cache.fresh(subject, &records, link, now_ms);
                if let Some(ticket) = ticket {
                    let reply = Reply::Read(Ok(self.cache.any(&subject)));
                    self.events.push_back(StoreEvent::Reply(ticket, reply));
                }
                self.events
                    .extend(changed.into_iter().map(StoreEvent::Changed));
            }
            Event::NotRead {
                ticket,
                subject,
                fault,
            } => {
                self.cache.not_read(&subject);
                let Some(ticket) = ticket else { return };
                // Names in use go on.
                let known = self.cache.any(&subject);
                let reply = match known.is_empty() {
                    true => Err(fault),
                    false => Ok(known),
                };
                if reply.is_ok() {
                    lock(&self.shared.status).answered_without += 1;
                }
                self.events
                    .push_back(StoreEvent::Reply(ticket, Reply::Read(reply)));
                // A followed name is read again until it can be.
                let again = self.cache.followed_unread(&subject);
                self.read_again(again.into_iter().collect());
            }
            Event::Told { record, gone } => {
                let changed = self.cache.told(record, gone, now_ms);
                self.events.extend(changed.map(StoreEvent::Changed));
            }
            Event::Lost(link) => {
                let again = self.cache.lost(|_, of| of == link);
                self.read_again(again);
            }
            Event::Moved(slots) => {
                let slots: std::collections::BTreeSet<u16> = slots.into_iter().collect();
                let again = self.cache.lost(|name, _| slots.contains(&keys::slot(name)));
                self.read_again(again);
            }
        }
    }
}

impl Store for ClusterStore {
    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) -> bool {
        let Some(records) = self.cache.current(subject) else {
            return false;
        };
        for record in records {
            if !record.is_expired(now_ms) && !visit(record) {
                break;
            }
        }
        true
    }

    fn get(&self, key: &RecordKey) -> Option<Record> {
        self.cache.get(key).cloned()
    }

    fn submit(&mut self, now_ms: u64, ticket: Ticket, request: Request) {
        self.shared.now_ms.store(now_ms, Ordering::Relaxed);
        match request {
            Request::Read(subject) => self.read(Some(ticket), subject),
            Request::Put(batch) => self.send(Command::Put(ticket, batch)),
            Request::RemoveExpired(_) => {
                // The engine does.
                let reply = Reply::Removed(Ok(0));
                self.events.push_back(StoreEvent::Reply(ticket, reply));
            }
        }
    }

    fn poll(&mut self, now_ms: u64) -> Option<StoreEvent> {
        self.shared.now_ms.store(now_ms, Ordering::Relaxed);
        while self.events.is_empty() {
            self.shared.woken.store(false, Ordering::Release);
            let event = lock(&self.shared.events).pop_front()?;
            self.note(now_ms, event);
        }
        self.events.pop_front()
    }

    fn follow(&mut self, subject: Guid) {
        // Whoever follows reads.
        self.cache.follow(subject);
    }

    fn unfollow(&mut self, subject: &Guid) {
        self.cache.unfollow(subject);
    }

    fn usage(&self) -> Usage {
        *lock(&self.shared.usage)
    }

    fn engine(&self) -> Option<EngineStatus> {
        let mut status = lock(&self.shared.status).clone();
        status.at_hand = self.cache.len();
        Some(status)
    }
}

impl Drop for ClusterStore {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // Its thread has reported a panic.
            let _ = thread.join();
        }
    }
}
