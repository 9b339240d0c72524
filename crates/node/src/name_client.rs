//! Queries to name servers, from a program that is neither host nor router.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use whimbrel_core::{Guid, PortOrigin, SeededRng};
use whimbrel_gnrs::{
    Answer, Failure, LoneResolver, Lookup, Record, RecordKey, Rejection, Resolver, ResolverConfig,
    ResolverEvent,
};
use whimbrel_io::{Clock, EventLoop, IoError, Neighbour, UdpConfig};

use crate::config::Remote;
use crate::keys::random_bytes;
use crate::run::{StartError, any_address_towards};

/// Interval at which the end of a wait is checked.
const LOOK: Duration = Duration::from_millis(200);

/// How long to wait for name servers.
#[derive(Clone, Copy, Debug)]
pub struct NamePatience<'a> {
    /// The end.
    pub until: Instant,
    /// Set by a user who does not want to wait any longer.
    pub stop: &'a AtomicBool,
}

impl NamePatience<'_> {
    /// Returns true once the wait has ended.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.until
    }
}

/// Records that are registered at a time.
const AT_ONCE: usize = 256;

/// What has become of records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Registered {
    /// Records that a server has, or had before.
    pub stored: usize,
    /// Records that were refused.
    pub refused: usize,
    /// The last reason.
    pub last_refusal: Option<Rejection>,
}

/// The state of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// No answer yet.
    Pending,
    /// The records.
    Found(Answer),
    /// There is no such name.
    NotFound,
    /// No server answers.
    Unreachable,
}

/// A connection to name servers, driven by its owner's calls.
pub struct NameClient {
    event_loop: EventLoop<LoneResolver>,
    events: VecDeque<ResolverEvent>,
}

impl NameClient {
    /// Returns a client of these servers, the preferred one first.
    pub fn new(servers: &[Remote]) -> Result<NameClient, StartError> {
        let clock = Clock::start();
        let seed = random_bytes().map_err(|source| StartError::System {
            what: "random bytes",
            source,
        })?;
        let rng = SeededRng::new(u64::from_ne_bytes(seed));
        let resolver = Resolver::new(ResolverConfig::default(), clock.wall_clock(), rng);
        let mut event_loop = EventLoop::new(clock, LoneResolver(resolver))?;
        event_loop.follow_wall_clock(|resolver: &mut LoneResolver, _, wall| {
            resolver.0.set_wall_clock(wall)
        });
        for (number, server) in (0..).zip(servers) {
            let peer = (server.udp()).ok_or_else(|| StartError::NameServer(server.to_string()))?;
            let mut config = UdpConfig::new("gnrs", any_address_towards(&peer));
            let origin = PortOrigin::Configured(number);
            config.neighbours.push(Neighbour::new("gnrs", peer, origin));
            event_loop.sockets().add_udp(config)?;
        }
        Ok(NameClient {
            event_loop,
            events: VecDeque::new(),
        })
    }

    /// Looks up a name.
    pub fn look_up(&mut self, name: Guid) -> Result<Resolution, IoError> {
        let now = self.event_loop.clock().now();
        Ok(match self.event_loop.machine_mut().0.lookup(now, name) {
            Lookup::Resolved(answer) => Resolution::Found(answer),
            Lookup::NotFound => Resolution::NotFound,
            Lookup::Pending => Resolution::Pending,
            Lookup::Busy => Resolution::Unreachable,
        })
    }

    /// Waits for the outcome of [`NameClient::look_up`], for about `patience`.
    pub fn wait(&mut self, patience: Duration) -> Result<Resolution, IoError> {
        let outcome = self
            .events(patience)?
            .into_iter()
            .find_map(|event| match event {
                ResolverEvent::Resolved { answer, .. } => Some(Resolution::Found(answer)),
                ResolverEvent::Unresolvable {
                    why: Failure::NotFound,
                    ..
                } => Some(Resolution::NotFound),
                ResolverEvent::Unresolvable {
                    why: Failure::Unreachable,
                    ..
                } => Some(Resolution::Unreachable),
                _ => None,
            });
        Ok(outcome.unwrap_or(Resolution::Pending))
    }

    /// Looks up a name and waits for the outcome; [`Resolution::Pending`] if there is none in time.
    pub fn resolve(
        &mut self,
        name: Guid,
        patience: NamePatience<'_>,
    ) -> Result<Resolution, IoError> {
        let mut resolution = self.look_up(name)?;
        while resolution == Resolution::Pending && !patience.is_over() {
            resolution = self.wait(LOOK)?;
        }
        Ok(resolution)
    }

    /// Registers a record with the servers and waits for the outcome; `None` if there is none in time.
    pub fn register(
        &mut self,
        record: Record,
        patience: NamePatience<'_>,
    ) -> Result<Option<Result<(), Rejection>>, IoError> {
        let (subject, registered) = (record.subject(), record.version());
        let now = self.event_loop.clock().now();
        self.event_loop.machine_mut().0.insert(now, record);
        while !patience.is_over() {
            for event in self.events(LOOK)? {
                match event {
                    ResolverEvent::Registered { guid, version }
                        if (guid, version) == (subject, registered) =>
                    {
                        return Ok(Some(Ok(())));
                    }
                    ResolverEvent::Refused { guid, code } if guid == subject => {
                        return Ok(Some(Err(code)));
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    /// Registers records, many at a time, and waits for all outcomes. Returns the number of those that are
    /// stored, and the last refusal; `None` if there are not all in time.
    pub fn register_all(
        &mut self,
        records: impl IntoIterator<Item = Record>,
        patience: NamePatience<'_>,
    ) -> Result<Option<Registered>, IoError> {
        let mut records = records.into_iter();
        let mut waiting: BTreeMap<RecordKey, Record> = BTreeMap::new();
        let mut done = Registered::default();
        loop {
            while waiting.len() < AT_ONCE
                && let Some(record) = records.next()
            {
                let now = self.event_loop.clock().now();
                waiting.insert(record.filed_under(), record.clone());
                self.event_loop.machine_mut().0.insert(now, record);
            }
            if waiting.is_empty() {
                return Ok(Some(done));
            }
            if patience.is_over() {
                return Ok(None);
            }
            for event in self.events(LOOK)? {
                let (subject, refusal) = match event {
                    ResolverEvent::Registered { guid, .. } => (guid, None),
                    ResolverEvent::Refused { guid, code } => (guid, Some(code)),
                    _ => continue,
                };
                // The records of a subject are told apart by nothing but their order.
                let first = waiting.range(RecordKey::binding(subject)..).next();
                let Some(key) = first
                    .map(|(key, _)| *key)
                    .filter(|it| it.subject == subject)
                else {
                    continue;
                };
                waiting.remove(&key);
                match refusal {
                    None => done.stored += 1,
                    Some(code) => {
                        (done.refused, done.last_refusal) = (done.refused + 1, Some(code))
                    }
                }
            }
        }
    }

    /// Follows a name: [`NameClient::events`] returns its changes.
    pub fn watch(&mut self, name: Guid) -> Result<bool, IoError> {
        let now = self.event_loop.clock().now();
        Ok(self.event_loop.machine_mut().0.watch(now, name))
    }

    /// Returns the events; waits for about `patience` for the first one.
    pub fn events(&mut self, patience: Duration) -> Result<Vec<ResolverEvent>, IoError> {
        let until = self.event_loop.clock().now() + patience;
        loop {
            let left = until.since(self.event_loop.clock().now());
            self.event_loop
                .step(left, |_, _, event| self.events.push_back(event))?;
            if !self.events.is_empty() || left.is_zero() {
                return Ok(self.events.drain(..).collect());
            }
        }
    }
}
