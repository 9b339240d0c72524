//! The server: a [`Machine`] whose ports are its clients.
//!
//! Updates that arrive in one round of the driver are stored together, and are stored before the
//! first of them is acknowledged or pushed. No request waits for the store: its reply is taken when
//! it comes. The program around the server calls [`Machine::poll_transmit`] when the store has
//! something to say. A source that has not proven by its port's
//! cookie that it receives at its address gets no frame longer than its request.

mod budgets;
mod config;
mod cookies;
mod lists;
mod lookups;
mod peers;
mod pushes;
mod updates;
mod waiting;
mod watches;

use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{
    Deadline, Guid, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Source, Time,
    TimerQueue, Transmit, WallClock,
};

use crate::client::Resolver;
use crate::outbox::Outbox;
use crate::store::{Reply, Request, Store, StoreError, StoreEvent};
use crate::wire::{Code, Frame, Message, RecordBuffer, WireError, refusable_id};

use budgets::Budgets;
pub use config::{ServerConfig, ServerCounters, ServerStatus};
use cookies::{Cookies, Secret};
use peers::PeerServers;
pub use peers::{PeerCounters, PeerStatus, Placement};
use waiting::{Asked, Update, Waiting};
use watches::Watches;

/// An event for the program around the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerEvent {
    /// The store cannot write, or does not answer: updates are refused until it recovers, and so are
    /// lookups of names that are not at hand.
    StoreFailed(StoreError),
    /// The store works again.
    StoreRecovered,
}

/// A name server over a [`Store`].
#[derive(Debug)]
pub struct Server<S> {
    config: ServerConfig,
    clock: WallClock,
    store: S,
    secret: Secret,
    ports: BTreeMap<PortId, Port>,
    outbox: Outbox,
    watches: Watches,
    timers: TimerQueue<Timer>,
    /// Verified updates of this round, for which the store is not asked yet.
    updates: Vec<Update>,
    /// Requests under way at the store.
    waiting: Waiting,
    peers: PeerServers,
    budgets: Budgets,
    page: RecordBuffer,
    store_failed: bool,
    events: VecDeque<ServerEvent>,
    counters: ServerCounters,
}

#[derive(Debug)]
struct Port {
    cookies: Cookies,
    source: Source,
    rtt: whimbrel_core::RttEstimator,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Timer {
    /// A lease expires.
    Lease(Guid, PortId),
    /// A push was not acknowledged.
    Push(Guid, PortId),
    /// Expired records are removed.
    Expiry,
}

impl<S: Store> Server<S> {
    /// Returns a server. `secret` is 32 fresh bytes from the operating system, from which cookies
    /// are derived. `clock` is the Unix time of the driver's origin.
    pub fn new(config: ServerConfig, clock: WallClock, secret: [u8; 32], store: S) -> Server<S> {
        let mut timers = TimerQueue::new();
        timers.set(Timer::Expiry, Time::ZERO + config.expiry_interval());
        Server {
            clock,
            store,
            secret: Secret::new(secret),
            ports: BTreeMap::new(),
            outbox: Outbox::new(config.max_queued_per_port),
            watches: Watches::new(config.max_watches, config.max_watches_per_port),
            timers,
            updates: Vec::new(),
            waiting: Waiting::new(config.max_waiting),
            peers: PeerServers::none(),
            budgets: Budgets::default(),
            page: RecordBuffer::default(),
            store_failed: false,
            events: VecDeque::new(),
            counters: ServerCounters::default(),
            config,
        }
    }

    /// Judges records by another clock from now on, after a step of the system's.
    pub fn set_wall_clock(&mut self, clock: WallClock) {
        self.clock = clock;
        self.peers.set_wall_clock(clock);
    }

    /// Adds another name server, at the end of configured link `link`. `name` is what all servers call it.
    pub fn add_peer(&mut self, name: String, link: u32, resolver: Resolver) {
        self.peers.add(name, link, resolver);
    }

    /// Sets which servers have copies of a record; by default all.
    pub fn set_placement(&mut self, placement: Placement) {
        self.peers.set_placement(placement);
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> &ServerCounters {
        &self.counters
    }

    /// Returns the current state.
    pub fn status(&self, now: Time) -> ServerStatus {
        let usage = self.store.usage();
        ServerStatus {
            uptime_s: now.as_secs_f64(),
            records: usage.records,
            record_bytes: usage.bytes,
            clients: self.ports.len(),
            watches: self.watches.len(),
            waiting: self.waiting.len(),
            store_works: !self.store_failed,
            engine: self.store.engine(),
            peers: self.peers.status(),
            of_peers: (!self.peers.is_empty()).then(|| self.peers.counters()),
            counters: self.counters.clone(),
        }
    }

    /// Returns the records.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the records, for changes.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Returns the number of watches.
    pub fn watch_count(&self) -> usize {
        self.watches.len()
    }

    fn now_ms(&self, now: Time) -> u64 {
        self.clock.unix_millis(now)
    }

    fn send(&mut self, port: PortId, id: u64, code: Code, message: Message<'_>) {
        let Some(cookie) = self.ports.get(&port).map(|state| state.cookies.present) else {
            return;
        };
        let mut bytes = Vec::new();
        Frame {
            id,
            cookie,
            code,
            message,
        }
        .encode(&mut bytes);
        self.queue(port, bytes);
    }

    fn queue(&mut self, port: PortId, bytes: Vec<u8>) {
        if !self.outbox.push(port, bytes) {
            self.counters.answers_dropped += 1;
        }
    }

    fn refuse(&mut self, port: PortId, id: u64, code: Code) {
        self.counters.count_refusal(code);
        self.send(port, id, code, Message::Refused);
    }

    fn bad_frame(&mut self, port: PortId, bytes: &[u8], fault: WireError) {
        match fault {
            WireError::Checksum => self.counters.damaged_frames += 1,
            _ => self.counters.malformed_frames += 1,
        }
        let code = if matches!(fault, WireError::Version(_)) {
            Code::UnknownVersion
        } else {
            Code::Malformed
        };
        if let Some(id) = refusable_id(bytes) {
            self.refuse(port, id, code);
        }
    }

    fn expire(&mut self, now: Time) {
        let request = Request::RemoveExpired(self.config.expiry_budget);
        self.ask_store(now, Asked::Expiry, request);
        self.timers
            .set(Timer::Expiry, now + self.config.expiry_interval());
    }

    fn ask_store(&mut self, now: Time, what: Asked, request: Request) {
        let ticket = self.waiting.ask(what);
        self.store.submit(self.now_ms(now), ticket, request);
    }

    /// Handles what the store has to say.
    fn settle(&mut self, now: Time) {
        while let Some(event) = self.store.poll(self.now_ms(now)) {
            let (ticket, reply) = match event {
                StoreEvent::Changed(key) => {
                    self.push_change(now, key);
                    continue;
                }
                StoreEvent::Reply(ticket, reply) => (ticket, reply),
            };
            match (self.waiting.take(ticket), reply) {
                (Some(Asked::Read(guid)), Reply::Read(records)) => {
                    self.report_store(records.as_ref().err());
                    self.answer_readers(now, guid, records.ok());
                }
                (Some(Asked::Put(updates)), Reply::Put(results)) => {
                    self.report_store(results.as_ref().err());
                    self.stored(now, updates, results.ok());
                }
                (Some(Asked::Copy(records)), Reply::Put(results)) => {
                    self.copied(now, records, results.unwrap_or_default());
                }
                (Some(Asked::Expiry), Reply::Removed(removed)) => {
                    self.report_store(removed.as_ref().err());
                    self.counters.records_forgotten += removed.unwrap_or(0) as u64;
                }
                _ => debug_assert!(false, "a reply of another kind"),
            }
        }
    }

    fn report_store(&mut self, fault: Option<&StoreError>) {
        if fault.is_some() != self.store_failed {
            self.store_failed = fault.is_some();
            let event = fault
                .cloned()
                .map_or(ServerEvent::StoreRecovered, ServerEvent::StoreFailed);
            self.events.push_back(event);
        }
    }
}

impl<S: Store> Machine for Server<S> {
    type Event = ServerEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        if self.peers.handle_port(now, port, &event) {
            return;
        }
        match event {
            PortEvent::Up(info) => {
                let state = Port {
                    cookies: Cookies::new(&self.secret, port, now),
                    source: Source::of(port, &info),
                    rtt: self.config.push_rtt(),
                };
                self.ports.insert(port, state);
                self.outbox.add(port);
            }
            PortEvent::Down => {
                let gone = self.ports.remove(&port);
                self.outbox.remove(port);
                for guid in self.watches.remove_port(port) {
                    self.cancel_timers(guid, port);
                    self.unfollow_unwatched(&guid);
                }
                gone.inspect(|gone| self.push_waiting(now, gone.source));
            }
            PortEvent::Blocked => self.outbox.set_blocked(port, true),
            PortEvent::Writable => self.outbox.set_blocked(port, false),
            PortEvent::Mtu(_)
            | PortEvent::Refused
            | PortEvent::Carrier(_)
            | PortEvent::Ecn { .. } => {}
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        let is_peer = self.peers.owns(port);
        for frame in frames {
            if is_peer {
                self.peers.handle_frame(now, port, frame);
                continue;
            }
            self.handle_frame(now, port, frame);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let mut pass = self.timers.pass(now);
        while let Some((_, timer)) = pass.next(&mut self.timers) {
            match timer {
                Timer::Lease(guid, port) => {
                    self.counters.leases_ended += 1;
                    self.unwatch(now, guid, port);
                }
                Timer::Push(guid, port) => self.push_unanswered(now, guid, port),
                Timer::Expiry => self.expire(now),
            }
        }
        self.peers.handle_timeout(now);
        let now_ms = self.now_ms(now);
        let store = &self.store;
        self.peers
            .repair(now, now_ms, |after, most| store.following(after, most));
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.commit(now);
        while let Some(told) = self.peers.poll() {
            self.take_from_peers(now, told);
        }
        self.settle(now);
        let answer = self.outbox.poll_transmit(max_segments, buffer);
        answer.or_else(|| self.peers.poll_transmit(now, buffer))
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self
            .timers
            .next()
            .map(|(at, timer)| Deadline::new(at, reason(timer)));
        own.into_iter()
            .chain(self.peers.poll_timeout())
            .min_by_key(|it| it.at)
    }
}

fn reason(timer: &Timer) -> &'static str {
    match timer {
        Timer::Lease(..) => "gnrs: a lease expires",
        Timer::Push(..) => "gnrs: a push was not acknowledged",
        Timer::Expiry => "gnrs: expired records are removed",
    }
}

impl<S: Store> Server<S> {
    fn handle_frame(&mut self, now: Time, port: PortId, bytes: &[u8]) {
        self.counters.frames += 1;
        let Some(state) = self.ports.get_mut(&port) else {
            self.counters.frames_from_unknown_ports += 1;
            return;
        };
        state.cookies.turn(&self.secret, port, now);
        let (cookies, source) = (state.cookies, state.source);
        let frame = match Frame::decode(bytes) {
            Ok(frame) => frame,
            Err(fault) => return self.bad_frame(port, bytes, fault),
        };
        let validated = cookies.prove(frame.cookie);
        if validated {
            self.resume_pushes(now, port);
        }
        match frame.message {
            Message::Lookup { guid, first, .. } => {
                // A proven source may get more than it sends.
                let most = match validated {
                    true => usize::MAX,
                    false => bytes.len(),
                };
                self.lookup(now, port, frame.id, most, guid, first)
            }
            Message::Insert { record } => {
                let source = validated.then_some(source);
                self.insert(now, port, frame.id, record, source)
            }
            Message::Watch { .. }
            | Message::Unwatch { .. }
            | Message::PushAck { .. }
            | Message::List { .. }
                if !validated =>
            {
                self.refuse(port, frame.id, Code::NeedCookie);
            }
            Message::Watch { guid, lease_secs } => {
                self.watch(now, port, frame.id, guid, lease_secs)
            }
            Message::Unwatch { guid } => {
                self.unwatch(now, guid, port);
                self.send(port, frame.id, Code::Ok, Message::UnwatchAnswer { guid });
            }
            Message::PushAck { guid } => self.push_acknowledged(now, port, frame.id, guid),
            Message::List { after } => self.list(port, frame.id, after),
            Message::LookupAnswer { .. }
            | Message::InsertAnswer { .. }
            | Message::WatchAnswer { .. }
            | Message::UnwatchAnswer { .. }
            | Message::Push { .. }
            | Message::ListAnswer { .. }
            | Message::Refused => self.counters.malformed_frames += 1,
        }
    }
}
