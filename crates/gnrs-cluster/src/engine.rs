//! Requests to the cluster, on a thread of their own.

mod looks;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;
use whimbrel_core::Guid;
use whimbrel_gnrs::record::VerifyError;
use whimbrel_gnrs::store::{EngineStatus, Put, Reply, Ticket, Usage};
use whimbrel_gnrs::{Record, RecordKey, StoreError};

use crate::config::ClusterConfig;
use crate::connections::{Connections, Fault, Heard, Link};
use crate::keys;
use crate::replay::Replay;
use crate::topology::{NodeAddress, Topology, node_of, text};

/// Pause before a request is tried again, and between views of the cluster that are asked for.
const PAUSE: Duration = Duration::from_millis(50);
/// How often nodes are asked whether they are there.
const PING: Duration = Duration::from_millis(300);

/// What the machine's side wants.
pub(crate) enum Command {
    /// Read a name; with `keep`, have its changes told from before that on.
    Read {
        ticket: Option<Ticket>,
        subject: Guid,
        keep: bool,
    },
    Put(Ticket, Vec<Put>),
    /// Changes of a name need not be told any longer.
    Leave(Guid),
}

/// What the machine's side is told.
pub(crate) enum Event {
    Reply(Ticket, Reply),
    Fresh {
        ticket: Option<Ticket>,
        subject: Guid,
        records: Vec<Record>,
        link: u64,
    },
    NotRead {
        ticket: Option<Ticket>,
        subject: Guid,
        fault: StoreError,
    },
    Told {
        record: Record,
        gone: Option<Guid>,
    },
    Lost(u64),
    /// Another primary has these slots.
    Moved(Vec<u16>),
}

type Wake = Box<dyn Fn() + Send + Sync>;
/// A record, by its key and version.
type Stored = (RecordKey, u64);

/// What the engine's thread and the machine's share.
pub(crate) struct Shared {
    pub(crate) events: Mutex<VecDeque<Event>>,
    pub(crate) status: Mutex<EngineStatus>,
    pub(crate) usage: Mutex<Usage>,
    /// Unix time, in milliseconds, by the machine's clock.
    pub(crate) now_ms: AtomicU64,
    /// False once the machine's side has taken all events.
    pub(crate) woken: AtomicBool,
    wake: Wake,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(wake: Wake) -> Shared {
        let usage = Usage {
            free: usize::MAX / 2,
            ..Usage::default()
        };
        Shared {
            events: Mutex::default(),
            status: Mutex::default(),
            usage: Mutex::new(usage),
            now_ms: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            wake,
        }
    }

    fn tell(&self, event: Event) {
        lock(&self.events).push_back(event);
        if !self.woken.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }
}

/// The cluster.
pub(crate) struct Engine {
    config: Arc<ClusterConfig>,
    shared: Arc<Shared>,
    connections: Connections,
    topology: Mutex<Topology>,
    look: Notify,
    /// The link on which changes of a name are told.
    told_on: Mutex<BTreeMap<Guid, Link>>,
    replay: Mutex<Replay>,
    /// Those that wait for what they have stored to be told.
    echoes: Mutex<BTreeMap<Stored, Vec<oneshot::Sender<()>>>>,
}

/// How an attempt ended.
enum Ended {
    Moved(u16, NodeAddress),
    Ask(NodeAddress),
    /// The node lacks the functions.
    NoFunctions(Link),
    Again(Fault),
    Failed(Fault),
}

impl Engine {
    pub(crate) fn new(
        config: Arc<ClusterConfig>,
        shared: Arc<Shared>,
    ) -> (Arc<Engine>, UnboundedReceiver<Heard>) {
        let (sender, heard) = unbounded_channel();
        let engine = Engine {
            connections: Connections::new(config.clone(), sender),
            topology: Mutex::default(),
            look: Notify::new(),
            told_on: Mutex::default(),
            echoes: Mutex::default(),
            replay: Mutex::new(Replay::new(config.replay_window, config.max_replayed)),
            config,
            shared,
        };
        (Arc::new(engine), heard)
    }

    /// Looks at the cluster for the first time. Returns faults that do not pass by themselves.
    pub(crate) async fn open(self: &Arc<Self>) -> Result<(), StoreError> {
        if let Err(fault) = self.look_once().await {
            let lasts = matches!(fault, Fault::Denied(_) | Fault::Engine(_));
            tracing::warn!(cluster = %self.config.address, "{fault}");
            return match lasts {
                true => Err(StoreError::Io(fault.to_string())),
                false => Ok(()),
            };
        }
        let mut format = redis::cmd("SET");
        format
            .arg(keys::FORMAT_KEY)
            .arg(keys::FORMAT)
            .arg("NX")
            .arg("GET");
        let slot = keys::slot_of_key(keys::FORMAT_KEY);
        match self
            .on_slot(slot, self.config.write_patience, &format)
            .await
        {
            Ok(Value::Nil) => {}
            Ok(value) => {
                let format = text(&value).and_then(|it| it.parse().ok()).unwrap_or(0);
                if format != keys::FORMAT {
                    return Err(StoreError::Format(format));
                }
            }
            Err(fault @ (Fault::Denied(_) | Fault::Engine(_))) => {
                return Err(StoreError::Io(fault.to_string()));
            }
            Err(fault) => tracing::warn!(cluster = %self.config.address, "{fault}"),
        }
        Ok(())
    }

    /// Carries out commands until their sender is dropped.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut commands: UnboundedReceiver<Command>,
        heard: UnboundedReceiver<Heard>,
    ) {
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().keep_looking());
        tasks.spawn(self.clone().keep_pinging());
        tasks.spawn(self.clone().listen(heard));
        while let Some(command) = commands.recv().await {
            let engine = self.clone();
            match command {
                Command::Read {
                    ticket,
                    subject,
                    keep: false,
                } => tokio::spawn(async move { engine.answer_read(ticket, subject).await }),
                Command::Read {
                    ticket, subject, ..
                } => tokio::spawn(async move { engine.read_and_follow(ticket, subject).await }),
                Command::Put(ticket, batch) => {
                    tokio::spawn(async move { engine.put_batch(ticket, batch).await })
                }
                Command::Leave(subject) => tokio::spawn(async move { engine.leave(subject).await }),
            };
        }
    }

    async fn answer_read(&self, ticket: Option<Ticket>, subject: Guid) {
        let Some(ticket) = ticket else { return };
        match self.read(&subject).await {
            Ok(records) => self
                .shared
                .tell(Event::Reply(ticket, Reply::Read(Ok(records)))),
            Err(fault) => self.not_read(Some(ticket), subject, &fault),
        }
    }

    fn not_read(&self, ticket: Option<Ticket>, subject: Guid, fault: &Fault) {
        self.count(|status| status.failed += 1);
        self.shared.tell(Event::NotRead {
            ticket,
            subject,
            fault: busy(fault),
        });
    }

    /// Subscribes to a name's changes, and reads it after that.
    async fn read_and_follow(&self, ticket: Option<Ticket>, subject: Guid) {
        loop {
            match self.subscribed_read(&subject).await {
                Ok((link, records)) => {
                    return self.shared.tell(Event::Fresh {
                        ticket,
                        subject,
                        records,
                        link,
                    });
                }
                // Nobody waits: until it is there again.
                Err(_) if ticket.is_none() => sleep(4 * PAUSE).await,
                Err(fault) => return self.not_read(ticket, subject, &fault),
            }
        }
    }

    async fn subscribed_read(&self, subject: &Guid) -> Result<(u64, Vec<Record>), Fault> {
        let link = self.primary_of(keys::slot(subject)).await?;
        let known = lock(&self.told_on).get(subject).map(|link| link.id);
        if known != Some(link.id) {
            let subscribed = link.subscribe(&keys::channel(subject)).await;
            if let Err(error) = subscribed {
                self.look.notify_one();
                if !matches!(error.kind(), ErrorKind::Server(_)) {
                    self.connections.lose(&link);
                }
                return Err(Fault::of(&error));
            }
            lock(&self.told_on).insert(*subject, link.clone());
        }
        let records = self.read(subject).await?;
        if link.is_lost() {
            return Err(Fault::Unreachable("the connection is lost".into()));
        }
        Ok((link.id, records))
    }

    async fn leave(&self, subject: Guid) {
        let link = lock(&self.told_on).remove(&subject);
        if let Some(link) = link
            && !link.is_lost()
            && link.unsubscribe(&keys::channel(&subject)).await.is_err()
        {
            self.connections.lose(&link);
        }
    }

    /// Returns what ends when a record that is to be stored has been told, if its name's changes are.
    /// Only what is told is at hand, in the engine's order.
    fn echo_of(&self, record: &Record) -> Option<oneshot::Receiver<()>> {
        let told_on = lock(&self.told_on);
        told_on
            .get(&record.subject())
            .filter(|link| !link.is_lost())?;
        let (sender, receiver) = oneshot::channel();
        let stored = (record.filed_under(), record.version());
        lock(&self.echoes).entry(stored).or_default().push(sender);
        Some(receiver)
    }

    async fn primary_of(&self, slot: u16) -> Result<Link, Fault> {
        let address = lock(&self.topology)
            .primary(slot)
            .map(|it| it.address.clone());
        let Some(address) = address else {
            self.look.notify_one();
            return Err(Fault::Unreachable("no primary has the slot".into()));
        };
        let link = self.connections.to(&address).await;
        if link.is_err() {
            self.look.notify_one();
        }
        link
    }

    /// Reads the records of a name, and verifies them.
    async fn read(&self, subject: &Guid) -> Result<Vec<Record>, Fault> {
        let mut command = redis::cmd("FCALL_RO");
        command
            .arg(keys::READ)
            .arg(2)
            .arg(keys::binding(subject))
            .arg(keys::providers(subject));
        let slot = keys::slot(subject);
        let value = self.on_slot(slot, self.config.patience, &command).await?;
        let strange = || Fault::Engine("it keeps something else under a name's key".into());
        let Value::Array(parts) = value else {
            return Err(strange());
        };
        let [binding, providers] = &parts[..] else {
            return Err(strange());
        };
        let mut records = Vec::new();
        if let Value::BulkString(value) = binding {
            let record = keys::record_of_binding(value);
            let right = |it: &Record| it.filed_under() == RecordKey::binding(*subject);
            records.extend(self.verified(record.filter(right)));
        }
        if let Value::Array(values) = providers {
            for value in values {
                let Value::BulkString(value) = value else {
                    continue;
                };
                let record = keys::record_of_provider(value);
                let right =
                    |it: &Record| it.subject() == *subject && !it.filed_under().provider.is_none();
                records.extend(self.verified(record.filter(right)));
            }
        }
        records.sort_by_key(Record::filed_under);
        records.dedup_by_key(|it| it.filed_under());
        Ok(records)
    }

    /// Returns a record of the engine if its owner has signed it: anybody may be able to write to the
    /// engine. One that has expired hides older ones still.
    fn verified(&self, record: Option<Record>) -> Option<Record> {
        let verify = |record: &Record| match record.verify(self.shared.now_ms()) {
            Err(VerifyError::Expired) => record.verify(record.issued_ms()),
            verdict => verdict,
        };
        match record.as_ref().map(verify) {
            Some(Ok(())) => record,
            Some(Err(VerifyError::FromTheFuture)) => None,
            Some(Err(_)) | None => {
                self.count(|status| status.forged += 1);
                None
            }
        }
    }

    fn count(&self, count: impl FnOnce(&mut EngineStatus)) {
        count(&mut lock(&self.shared.status));
    }

    /// Has the primary of a slot carry out a command, within `patience`.
    async fn on_slot(&self, slot: u16, patience: Duration, command: &Cmd) -> Result<Value, Fault> {
        let until = Instant::now() + patience;
        let (mut ask, mut redirected) = (None, 0);
        loop {
            let ended = match self.attempt(slot, ask.take(), command).await {
                Ok(value) => return Ok(value),
                Err(ended) => ended,
            };
            let pause = match ended {
                Ended::Failed(fault) => return Err(fault),
                Ended::NoFunctions(link) => {
                    self.load_functions(&link).await?;
                    redirected += 1;
                    None
                }
                Ended::Ask(address) => {
                    ask = Some(address);
                    redirected += 1;
                    None
                }
                Ended::Moved(slot, address) => {
                    lock(&self.topology).note_moved(slot, address);
                    self.look.notify_one();
                    redirected += 1;
                    None
                }
                Ended::Again(fault) => {
                    self.look.notify_one();
                    Some(fault)
                }
            };
            if Instant::now() >= until {
                let why = "it has not answered in time".to_owned();
                return Err(pause.unwrap_or(Fault::Unreachable(why)));
            }
            if pause.is_some() || redirected % 4 == 0 {
                sleep(PAUSE).await;
            }
        }
    }

    async fn attempt(
        &self,
        slot: u16,
        ask: Option<NodeAddress>,
        command: &Cmd,
    ) -> Result<Value, Ended> {
        let link = match &ask {
            Some(address) => self.connections.to(address).await,
            None => self.primary_of(slot).await,
        };
        let link = link.map_err(|fault| match fault {
            Fault::Denied(_) => Ended::Failed(fault),
            fault => Ended::Again(fault),
        })?;
        let answer = match ask {
            Some(_) => {
                let mut pipe = redis::pipe();
                pipe.cmd("ASKING").add_command(command.clone());
                let answers = link.pipeline(&pipe, 1, 1).await;
                answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
            }
            None => link.command(command).await,
        };
        answer.map_err(|error| self.ended(slot, link, &error))
    }

    fn ended(&self, slot: u16, link: Link, error: &RedisError) -> Ended {
        use ServerErrorKind::{
            Ask, BusyLoading, ClusterDown, MasterDown, Moved, ReadOnly, TryAgain,
        };
        let address = |error: &RedisError| {
            let (address, _) = error.redirect_node()?;
            node_of(address, &link.address)
        };
        match error.kind() {
            ErrorKind::Server(Moved) => match address(error) {
                Some(address) => Ended::Moved(slot, address),
                None => Ended::Again(Fault::of(error)),
            },
            ErrorKind::Server(Ask) => match address(error) {
                Some(address) => Ended::Ask(address),
                None => Ended::Again(Fault::of(error)),
            },
            ErrorKind::Server(TryAgain | ClusterDown | MasterDown | BusyLoading | ReadOnly) => {
                Ended::Again(Fault::Unreachable(error.to_string()))
            }
            _ if error.to_string().contains("Function not found") => Ended::NoFunctions(link),
            ErrorKind::Server(_) | ErrorKind::Extension => match error.code() {
                // Too few replicas: a primary that may be cut off.
                Some("NOREPLICAS") => Ended::Again(Fault::Unreachable(error.to_string())),
                _ => Ended::Failed(Fault::of(error)),
            },
            _ => {
                self.connections.lose(&link);
                Ended::Again(Fault::of(error))
            }
        }
    }

    async fn load_functions(&self, link: &Link) -> Result<(), Fault> {
        let mut command = redis::cmd("FUNCTION");
        command.arg("LOAD").arg("REPLACE").arg(keys::FUNCTIONS);
        let loaded = link.command(&command).await;
        loaded.map(drop).map_err(|error| match Fault::of(&error) {
            Fault::Engine(why) => Fault::Engine(format!(
                "it takes no functions: {why}; it must be Redis 7 or later, or Valkey"
            )),
            fault => fault,
        })
    }

    /// Handles what the nodes tell.
    async fn listen(self: Arc<Self>, mut heard: UnboundedReceiver<Heard>) {
        while let Some(heard) = heard.recv().await {
            match heard {
                Heard::Published(payload) => self.published(&payload),
                Heard::Lost(link) => {
                    // What was on its way will not come.
                    lock(&self.echoes).clear();
                    lock(&self.told_on).retain(|_, of| of.id != link);
                    self.shared.tell(Event::Lost(link));
                    self.look.notify_one();
                }
                Heard::Opened(address) => {
                    let topology = lock(&self.topology).clone();
                    let is_its = |slot: u16| {
                        let primary = topology.primary(slot);
                        primary.is_some_and(|it| it.address == address)
                    };
                    let lost = lock(&self.replay).of(is_its);
                    self.clone().write_again(lost);
                }
            }
        }
    }

    fn published(&self, payload: &[u8]) {
        let Some((gone, record)) = payload.split_at_checked(64) else {
            return self.count(|status| status.forged += 1);
        };
        if let Some(record) = self.verified(keys::parsed(record)) {
            let gone = core::str::from_utf8(gone).ok();
            let stored = (record.filed_under(), record.version());
            self.shared.tell(Event::Told {
                record,
                gone: gone.and_then(|it| it.trim().parse().ok()),
            });
            // They go on when they are dropped.
            lock(&self.echoes).remove(&stored);
        }
    }

    async fn keep_pinging(self: Arc<Self>) {
        loop {
            sleep(PING).await;
            for link in self.connections.open_links().await {
                let engine = self.clone();
                tokio::spawn(async move {
                    if link.ping().await.is_err() {
                        engine.connections.lose(&link);
                    }
                });
            }
        }
    }
}

fn busy(fault: &Fault) -> StoreError {
    StoreError::Busy(fault.to_string())
}
