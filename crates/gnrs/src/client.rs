//! The client: a component for hosts and routers, with the calls of a machine but not its trait,
//! because it shares its owner's driver.
//!
//! It queries the most preferred responsive server, caches answers for a short time, follows the
//! names that its owner watches, and accepts only records signed by the owner of the name.

mod alone;
mod answers;
mod cache;
mod config;
mod exchanges;
mod servers;
mod transmission;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{
    Deadline, Guid, PortEvent, PortId, SeededRng, Time, TimerQueue, Transmit, WallClock,
};

use crate::outbox::Outbox;
use crate::record::{Record, RecordKey};
use crate::wire::Code;

pub use alone::LoneResolver;
pub use cache::Answer;
use cache::Cache;
pub use config::{ResolverConfig, ResolverCounters};
use exchanges::{Exchanges, Operation};
pub use servers::NameServerStatus;
use servers::Servers;

/// The immediate result of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Lookup {
    /// Known; no event follows.
    Resolved(Answer),
    /// Known not to exist; no event follows.
    NotFound,
    /// A server is queried: [`ResolverEvent::Resolved`] or [`ResolverEvent::Unresolvable`] follows,
    /// one for all lookups of this name meanwhile.
    Pending,
    /// Too many requests are pending; no event follows.
    Busy,
}

/// An event of a resolver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResolverEvent {
    /// A lookup has succeeded.
    Resolved {
        /// The name.
        guid: Guid,
        /// Its known records; not empty.
        answer: Answer,
    },
    /// A lookup has failed.
    Unresolvable {
        /// The name.
        guid: Guid,
        /// The reason.
        why: Failure,
    },
    /// A watched name changed. One event may combine several changes.
    Changed {
        /// The name.
        guid: Guid,
        /// Its known records; may be empty.
        answer: Answer,
    },
    /// A server does not watch a name, or no longer: it has too many watches. It is asked again
    /// after a few seconds, and others after that.
    NotWatched {
        /// The name.
        guid: Guid,
    },
    /// A server has stored the record; it survives a restart if the server's store is on disk.
    Registered {
        /// The record's subject.
        guid: Guid,
        /// Its version.
        version: u64,
    },
    /// A server has lost this resolver: after a restart it has lost all records, too, unless its
    /// store is on disk. Those that are still right are worth registering again.
    Forgot,
    /// No server has stored the record.
    Refused {
        /// The record's subject.
        guid: Guid,
        /// The reason.
        code: Rejection,
    },
}

/// Why a lookup failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No server responds.
    Unreachable,
    /// The name has no record.
    NotFound,
}

/// Why a record was not registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// A server refused it.
    Server {
        /// Its reason.
        code: Code,
        /// The stored version; 0 if none or not known. If the record is stale, sign again with a
        /// greater one.
        stored: u64,
    },
    /// No server responds.
    Unreachable,
    /// Too many requests are pending.
    Busy,
}

/// The resolver of one host or router.
#[derive(Debug)]
pub struct Resolver {
    config: ResolverConfig,
    clock: WallClock,
    servers: Servers,
    cache: Cache,
    exchanges: Exchanges,
    watches: BTreeMap<Guid, Watch>,
    // The server that they were last moved to.
    watches_at: Option<usize>,
    registrations: BTreeMap<RecordKey, Registration>,
    timers: TimerQueue<Timer>,
    outbox: Outbox,
    events: VecDeque<ResolverEvent>,
    changed: BTreeSet<Guid>,
    counters: ResolverCounters,
    now: Time,
    /// Servers are asked for their own records: they do not ask their peers.
    own_records: bool,
}

/// A name that the owner follows until it unwatches it.
#[derive(Debug, Default)]
struct Watch {
    /// The server that pushes its changes.
    server: Option<usize>,
    /// The end of that server's lease.
    lease_until: Time,
}

/// A record being registered with every server.
#[derive(Debug)]
struct Registration {
    record: Record,
    /// Servers that have not answered yet.
    waiting: BTreeSet<usize>,
    stored: bool,
    rejection: Rejection,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    /// An answer is overdue.
    Repeat(Operation),
    /// A lease is half over, or a watch must be set up.
    Renew(Guid),
    /// A silent server may respond again.
    Probe(usize),
    /// A server that holds watches may have dropped them.
    CheckWatches,
}

impl Resolver {
    /// Returns a resolver without servers. `clock` is the Unix time of the driver's origin; `rng`
    /// must be seeded from the operating system if strangers can send to this node.
    pub fn new(config: ResolverConfig, clock: WallClock, rng: SeededRng) -> Resolver {
        Resolver {
            clock,
            servers: Servers::default(),
            cache: Cache::new(config.max_names, config.max_providers),
            exchanges: Exchanges::new(rng),
            watches: BTreeMap::new(),
            watches_at: None,
            registrations: BTreeMap::new(),
            timers: TimerQueue::new(),
            outbox: Outbox::new(config.max_pending),
            events: VecDeque::new(),
            changed: BTreeSet::new(),
            counters: ResolverCounters::default(),
            now: Time::ZERO,
            own_records: false,
            config,
        }
    }

    /// Judges records by another clock from now on, after a step of the system's.
    pub fn set_wall_clock(&mut self, clock: WallClock) {
        self.clock = clock;
    }

    /// Asks as a peer of the server from now on: for its own records, for at most `give_up_ms`, and if it
    /// is silent every `probe_ms`.
    pub(crate) fn ask_as_peer(&mut self, give_up_ms: u64, probe_ms: u64) {
        self.own_records = true;
        self.config.give_up_ms = give_up_ms;
        self.config.probe_interval_ms = probe_ms;
    }

    /// Adds the server at `port`, less preferred than those before it. It is used once the port is
    /// up.
    pub fn add_server(&mut self, port: PortId) {
        self.servers.add(port, self.config.rtt());
        self.outbox.add(port);
    }

    /// Returns true if `port` leads to one of the servers: its events and frames are for this
    /// resolver.
    pub fn owns(&self, port: PortId) -> bool {
        self.servers.index_of(port).is_some()
    }

    /// Returns the servers in order of preference, for reports.
    pub fn server_status(&self) -> Vec<NameServerStatus> {
        self.servers.status()
    }

    /// Returns the smoothed round trip to the most preferred server, once it has answered.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.servers.get(0)?.rtt.smoothed()
    }

    /// Measures the round trip to the most preferred server.
    pub(crate) fn measure(&mut self, now: Time) {
        self.now = now;
        if self.servers.get(0).is_some_and(|server| server.up) {
            self.probe(now, 0);
        }
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> &ResolverCounters {
        &self.counters
    }

    /// Looks up the records of `guid`.
    pub fn lookup(&mut self, now: Time, guid: Guid) -> Lookup {
        self.now = now;
        self.counters.lookups += 1;
        if guid.is_none() {
            return Lookup::NotFound;
        }
        if let Some(answer) = self.cache.usable(now, self.clock.unix_millis(now), &guid) {
            self.counters.cache_hits += 1;
            return if answer.is_empty() {
                Lookup::NotFound
            } else {
                Lookup::Resolved(answer)
            };
        }
        if self.exchanges.contains(Operation::Lookup(guid)) {
            self.counters.coalesced += 1;
            return Lookup::Pending;
        }
        if self.exchanges.len() >= self.config.max_pending {
            self.counters.busy += 1;
            return Lookup::Busy;
        }
        self.begin(now, Operation::Lookup(guid));
        Lookup::Pending
    }

    /// What is known about `guid` without a query: by a lookup whose answer is still valid, or by a
    /// watch whose lease lasts. An empty answer means "no such name".
    pub fn known(&self, now: Time, guid: &Guid) -> Option<Answer> {
        self.cache.usable(now, self.clock.unix_millis(now), guid)
    }

    /// Returns the records of `guid` that have not expired, though a change may have been missed: for a caller
    /// that has asked again, and cannot wait. `None` if there are none.
    pub fn remembered(&self, now: Time, guid: &Guid) -> Option<Answer> {
        let answer = self.cache.answer(self.clock.unix_millis(now), guid);
        (!answer.is_empty()).then_some(answer)
    }

    /// Notes a record that somebody else than a server has told, and that the caller has verified.
    pub fn learn(&mut self, now: Time, record: Record) {
        let guid = record.filed_under().subject;
        let changed = self
            .cache
            .merge(self.clock.unix_millis(now), guid, &[record]);
        if changed {
            self.cache.set_valid_until(guid, now + self.config.ttl());
        }
    }

    /// Forgets the records of `guid`, so that the next lookup queries a server: for an address that
    /// turned out to be out of date ([MFTP §3.3], case ii).
    pub fn forget(&mut self, guid: &Guid) {
        self.cache.forget(guid);
    }

    /// Registers a record with every responsive server: [`ResolverEvent::Registered`] as soon as
    /// one has stored it, [`ResolverEvent::Refused`] if none has. A newer record replaces one that
    /// is still pending.
    pub fn insert(&mut self, now: Time, record: Record) {
        self.now = now;
        let key = record.filed_under();
        if self
            .registrations
            .get(&key)
            .is_some_and(|other| other.record.version() > record.version())
        {
            let code = Rejection::Server {
                code: Code::Stale,
                stored: 0,
            };
            self.events.push_back(ResolverEvent::Refused {
                guid: key.subject,
                code,
            });
            return;
        }
        if let Some(old) = self.registrations.remove(&key) {
            old.waiting
                .iter()
                .for_each(|server| self.cancel(Operation::Insert(key, *server)));
        }
        if self.exchanges.len() + self.servers.len() > self.config.max_pending {
            self.events.push_back(ResolverEvent::Refused {
                guid: key.subject,
                code: Rejection::Busy,
            });
            return;
        }
        let answering = |index: &usize| {
            self.servers
                .get(*index)
                .is_some_and(|server| server.up && server.silent_at.is_none())
        };
        let mut waiting: BTreeSet<usize> = (0..self.servers.len()).filter(answering).collect();
        if waiting.is_empty() {
            waiting = (0..self.servers.len()).collect();
        }
        if waiting.is_empty() {
            self.events.push_back(ResolverEvent::Refused {
                guid: key.subject,
                code: Rejection::Unreachable,
            });
            return;
        }
        let registration = Registration {
            record,
            waiting: waiting.clone(),
            stored: false,
            rejection: Rejection::Unreachable,
        };
        self.registrations.insert(key, registration);
        for server in waiting {
            self.begin(now, Operation::Insert(key, server));
        }
    }

    /// Follows `guid` until [`Resolver::unwatch`], over lost frames, ends of leases, and restarts
    /// and changes of server. [`ResolverEvent::Changed`] reports all news, including the initial
    /// state. Returns false if there are too many watches.
    #[must_use]
    pub fn watch(&mut self, now: Time, guid: Guid) -> bool {
        self.now = now;
        if self.watches.contains_key(&guid) {
            return true;
        }
        if guid.is_none() || self.watches.len() >= self.config.max_watches {
            return false;
        }
        self.watches.insert(guid, Watch::default());
        self.timers
            .set_earlier(Timer::CheckWatches, now + self.config.probe_interval());
        self.renew(now, guid);
        true
    }

    /// Ends [`Resolver::watch`].
    pub fn unwatch(&mut self, now: Time, guid: Guid) {
        self.now = now;
        let Some(watch) = self.watches.remove(&guid) else {
            return;
        };
        self.cancel(Operation::Watch(guid));
        self.timers.cancel(&Timer::Renew(guid));
        self.changed.remove(&guid);
        self.cache.set_valid_until(guid, now + self.config.ttl());
        if self.watches.is_empty() {
            self.timers.cancel(&Timer::CheckWatches);
        }
        // If this is lost, or there is no room for it, the lease expires.
        if let Some(server) = watch.server
            && self.exchanges.len() < self.config.max_pending
        {
            self.begin(now, Operation::Unwatch(guid, server));
        }
    }

    /// Returns true while `guid` is watched.
    pub fn is_watched(&self, guid: &Guid) -> bool {
        self.watches.contains_key(guid)
    }

    /// As [`whimbrel_core::Machine::handle_port`], for ports of servers.
    pub fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        self.now = now;
        let Some(index) = self.servers.index_of(port) else {
            return;
        };
        match event {
            PortEvent::Up(info) => self.server_up(now, index, info.peer),
            PortEvent::Down => self.server_down(now, index),
            PortEvent::Blocked => self.outbox.set_blocked(port, true),
            PortEvent::Writable => self.outbox.set_blocked(port, false),
            PortEvent::Mtu(_)
            | PortEvent::Refused
            | PortEvent::Carrier(_)
            | PortEvent::Ecn { .. } => {}
        }
    }

    /// As [`whimbrel_core::Machine::handle_timeout`].
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        let mut pass = self.timers.pass(now);
        while let Some((_, timer)) = pass.next(&mut self.timers) {
            match timer {
                Timer::Repeat(operation) => self.unanswered(now, operation),
                Timer::Renew(guid) => self.renew(now, guid),
                Timer::Probe(server) => self.probe(now, server),
                Timer::CheckWatches => self.check_watches(now),
            }
        }
    }

    /// As [`whimbrel_core::Machine::poll_transmit`], one frame at a time.
    pub fn poll_transmit(&mut self, _now: Time, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.poll_transmit(1, buffer)
    }

    /// The next event for the owner.
    pub fn poll_event(&mut self) -> Option<ResolverEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let guid = self.changed.pop_first()?;
        let answer = self.cache.answer(self.clock.unix_millis(self.now), &guid);
        Some(ResolverEvent::Changed { guid, answer })
    }

    /// As [`whimbrel_core::Machine::poll_timeout`].
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let (at, timer) = self.timers.next()?;
        let reason = match timer {
            Timer::Repeat(_) => "gnrs: an answer is overdue",
            Timer::Renew(_) => "gnrs: a watch is due for renewal",
            Timer::Probe(_) => "gnrs: a silent server is probed",
            Timer::CheckWatches => "gnrs: the server's watches are checked",
        };
        Some(Deadline::new(at, reason))
    }
}
