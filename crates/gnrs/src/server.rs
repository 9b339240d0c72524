//! The server: a [`Machine`] whose ports are its clients.
//!
//! Updates that arrive in one round of the driver are stored in one transaction, which is complete
//! before the first of them is acknowledged or pushed. A source that has not proven by its port's
//! cookie that it receives at its address gets no frame longer than its request.

mod budgets;
mod config;
mod cookies;
mod pushes;
mod watches;

use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{
    Deadline, Guid, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Source, Time,
    TimerQueue, Transmit, WallClock,
};

use crate::outbox::Outbox;
use crate::record::{Record, RecordView, VerifyError};
use crate::store::{Outcome, PutResult, Refusal, Store, StoreError};
use crate::wire::{Code, Frame, Message, Page, RecordBuffer, WireError, refusable_id};

use budgets::Budgets;
pub use config::{ServerConfig, ServerCounters, ServerStatus};
use cookies::{Cookies, Secret};
use watches::Watches;

/// An event for the program around the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerEvent {
    /// The store cannot write; updates are refused until it recovers, lookups continue.
    StoreFailed(StoreError),
    /// The store can write again.
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
    /// Verified updates of this round, not yet stored.
    updates: Vec<Update>,
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

#[derive(Debug)]
struct Update {
    port: PortId,
    id: u64,
    record: Record,
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
    }

    /// Returns the counters since the start.
    pub fn counters(&self) -> &ServerCounters {
        &self.counters
    }

    /// Returns the current state.
    pub fn status(&self, now: Time) -> ServerStatus {
        ServerStatus {
            uptime_s: now.as_secs_f64(),
            records: self.store.len(),
            record_bytes: self.store.bytes(),
            clients: self.ports.len(),
            watches: self.watches.len(),
            store_works: !self.store_failed,
            counters: self.counters.clone(),
        }
    }

    /// Returns the records.
    pub fn store(&self) -> &S {
        &self.store
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

    /// Fills `self.page` from index `first` on; returns true if there are more.
    fn collect_page(&mut self, now: Time, guid: &Guid, first: u16) -> bool {
        self.page.clear();
        let (mut index, mut more) = (0, false);
        let page = &mut self.page;
        self.store
            .visit(guid, self.clock.unix_millis(now), &mut |record| {
                more = index >= u32::from(first) && !page.push(record);
                index += 1;
                !more
            });
        more
    }

    /// Answers with at most `most` bytes.
    fn lookup(&mut self, now: Time, port: PortId, id: u64, most: usize, guid: Guid, first: u16) {
        self.counters.lookups += 1;
        let Some(cookie) = self.ports.get(&port).map(|state| state.cookies.present) else {
            return;
        };
        let more = self.collect_page(now, &guid, first);
        let records = self.page.list();
        let code = if records.is_empty() && first == 0 {
            Code::NotFound
        } else {
            Code::Ok
        };
        let page = Page {
            first,
            more,
            records,
        };
        let mut bytes = Vec::new();
        Frame {
            id,
            cookie,
            code,
            message: Message::LookupAnswer { guid, page },
        }
        .encode(&mut bytes);
        if bytes.len() > most {
            self.refuse(port, id, Code::NeedCookie);
            return;
        }
        if code == Code::NotFound {
            self.counters.not_found += 1;
        }
        self.queue(port, bytes);
    }

    /// Handles a record from a source that is proven by its cookie, or is not (`None`).
    fn insert(
        &mut self,
        now: Time,
        port: PortId,
        id: u64,
        record: RecordView<'_>,
        source: Option<Source>,
    ) {
        let now_ms = self.now_ms(now);
        let guid = record.subject();
        if let Some((code, version)) = self.known_outcome(now_ms, &record) {
            return self.answer_insert(port, id, guid, code, version);
        }
        let key = record.filed_under();
        if !self.budgets.may_change(now, key) {
            self.counters.updates_limited += 1;
            return self.answer_insert(port, id, guid, Code::StoreFailed, 0);
        }
        // Checking a signature is work.
        if !self.budgets.admit_check(now, source) {
            self.counters.checks_refused += 1;
            return match source {
                Some(_) => {}
                None => self.refuse(port, id, Code::NeedCookie),
            };
        }
        if let Err(fault) = record.verify(now_ms) {
            let code = code_of(fault);
            if code == Code::BadSignature {
                self.budgets.note_bad(now, source);
            }
            return self.answer_insert(port, id, guid, code, 0);
        }
        let is_new = self.store.get(&key).is_none();
        let free = self.store.free().saturating_sub(self.updates.len());
        if is_new && !self.budgets.admit_new(now, source, free) {
            return self.answer_insert(port, id, guid, Code::Full, 0);
        }
        self.budgets.note_change(now, key);
        self.updates.push(Update {
            port,
            id,
            record: record.to_owned(),
        });
        if self.updates.len() >= self.config.max_batch {
            self.commit(now);
        }
    }

    /// Returns the cases without a signature check: an old record is refused and a repeated one is
    /// accepted from any sender.
    fn known_outcome(&self, now_ms: u64, record: &RecordView<'_>) -> Option<(Code, u64)> {
        if record.is_expired(now_ms) {
            return Some((Code::Expired, 0));
        }
        let stored = self.store.get(&record.filed_under())?;
        if stored.version() > record.version() {
            Some((Code::Stale, stored.version()))
        } else if stored.as_bytes() == record.as_bytes() {
            Some((Code::Ok, stored.version()))
        } else {
            None
        }
    }

    fn answer_insert(&mut self, port: PortId, id: u64, guid: Guid, code: Code, version: u64) {
        if code == Code::Ok {
            self.counters.updates_unchanged += 1;
        } else {
            self.counters.count_refusal(code);
        }
        self.send(port, id, code, Message::InsertAnswer { guid, version });
    }

    /// Stores the updates of this round in one transaction, then acknowledges and pushes them.
    fn commit(&mut self, now: Time) {
        if self.updates.is_empty() {
            return;
        }
        let updates = core::mem::take(&mut self.updates);
        let batch: Vec<Record> = updates.iter().map(|update| update.record.clone()).collect();
        self.counters.commits += 1;
        let results = self.store.apply(self.now_ms(now), &batch);
        self.report_store(results.as_ref().err());
        let results = results.map(Some).unwrap_or_default();
        let mut changed = std::collections::BTreeSet::new();
        for (index, update) in updates.into_iter().enumerate() {
            let result = results.as_ref().and_then(|results| results.get(index));
            if self.answer_update(&update, result) {
                changed.insert(update.record.filed_under());
            }
        }
        for key in changed {
            self.push_change(now, key);
        }
    }

    /// Returns true if the record is new.
    fn answer_update(&mut self, update: &Update, result: Option<&PutResult>) -> bool {
        let (guid, version) = (update.record.subject(), update.record.version());
        let (code, version) = match result {
            Some(Ok(Outcome::Stored)) => {
                self.counters.updates_stored += 1;
                self.send(
                    update.port,
                    update.id,
                    Code::Ok,
                    Message::InsertAnswer { guid, version },
                );
                return true;
            }
            Some(Ok(Outcome::Unchanged)) => (Code::Ok, version),
            Some(Err(Refusal::Stale { stored })) => (Code::Stale, *stored),
            Some(Err(Refusal::Conflict { stored })) => (Code::Conflict, *stored),
            Some(Err(Refusal::Full)) => (Code::Full, 0),
            None => (Code::StoreFailed, 0),
        };
        self.answer_insert(update.port, update.id, guid, code, version);
        false
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

    fn expire(&mut self, now: Time) {
        let result = self
            .store
            .remove_expired(self.now_ms(now), self.config.expiry_budget);
        self.report_store(result.as_ref().err());
        let removed = result.unwrap_or(0);
        self.counters.records_forgotten += removed as u64;
        self.timers
            .set(Timer::Expiry, now + self.config.expiry_interval());
    }
}

fn code_of(fault: VerifyError) -> Code {
    match fault {
        VerifyError::Expired => Code::Expired,
        VerifyError::FromTheFuture => Code::FromTheFuture,
        VerifyError::TooLong => Code::Malformed,
        VerifyError::WrongKey => Code::WrongKey,
        VerifyError::BadKey | VerifyError::BadSignature => Code::BadSignature,
    }
}

impl<S: Store> Machine for Server<S> {
    type Event = ServerEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
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
        for frame in frames {
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
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.commit(now);
        self.outbox.poll_transmit(max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let (at, timer) = self.timers.next()?;
        let reason = match timer {
            Timer::Lease(..) => "gnrs: a lease expires",
            Timer::Push(..) => "gnrs: a push was not acknowledged",
            Timer::Expiry => "gnrs: expired records are removed",
        };
        Some(Deadline::new(at, reason))
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
            Message::Watch { .. } | Message::Unwatch { .. } | Message::PushAck { .. }
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
            Message::LookupAnswer { .. }
            | Message::InsertAnswer { .. }
            | Message::WatchAnswer { .. }
            | Message::UnwatchAnswer { .. }
            | Message::Push { .. }
            | Message::Refused => self.counters.malformed_frames += 1,
        }
    }
}
