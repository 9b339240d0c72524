//! Processing of servers' frames.

use core::time::Duration;

use whimbrel_core::{Guid, PortId, Time};

use super::exchanges::Operation;
use super::{Failure, Rejection, Resolver, ResolverEvent, Timer, Watch};
use crate::record::{Kind, Record, RecordKey, VerifyError};
use crate::store::StoreLimits;
use crate::wire::{Code, Frame, Message, Page, RecordList};

/// Maximum of challenges to one request: a server that sends more is faulty.
const MAX_CHALLENGES: u32 = 3;

impl Resolver {
    /// As [`whimbrel_core::Machine::handle_frames`], for one frame of a server.
    pub fn handle_frame(&mut self, now: Time, port: PortId, bytes: &[u8]) {
        self.now = now;
        self.counters.frames_received += 1;
        let Some(index) = self.servers.index_of(port) else {
            self.counters.unexpected_frames += 1;
            return;
        };
        let Ok(frame) = Frame::decode(bytes) else {
            self.counters.bad_frames += 1;
            return;
        };
        if let Message::Push { guid, records } = frame.message {
            self.pushed(now, index, &frame, guid, records);
            return;
        }
        let operation = self.exchanges.operation(frame.id);
        let expected = operation.filter(|operation| {
            self.exchanges
                .get_mut(*operation)
                .is_some_and(|exchange| exchange.server == Some(index))
                && answers(*operation, &frame.message)
        });
        match expected {
            Some(operation) => self.answered(now, index, operation, &frame),
            None => self.counters.unexpected_frames += 1,
        }
    }

    fn answered(&mut self, now: Time, index: usize, operation: Operation, frame: &Frame<'_>) {
        let Some(exchange) = self.exchanges.get_mut(operation) else {
            return;
        };
        if let Some(sent_at) = exchange.sent_with(frame.id)
            && let Some(server) = self.servers.get_mut(index)
        {
            server.rtt.sample(now.since(sent_at));
        }
        self.server_heard(now, index, frame.cookie);
        match (operation, frame.message) {
            (_, Message::Refused) => self.refused(now, index, operation, frame.code),
            (Operation::Lookup(guid), Message::LookupAnswer { page, .. }) => {
                self.page_arrived(now, index, guid, page);
            }
            (
                Operation::Watch(guid),
                Message::WatchAnswer {
                    lease_secs, page, ..
                },
            ) => {
                self.watch_granted(now, index, guid, lease_secs, page);
            }
            (Operation::Insert(key, server), Message::InsertAnswer { version, .. }) => {
                self.cancel(operation);
                let rejection = Rejection::Server {
                    code: frame.code,
                    stored: version,
                };
                self.insert_answered(
                    key,
                    server,
                    Some(rejection).filter(|_| frame.code != Code::Ok),
                );
            }
            _ => self.cancel(operation),
        }
    }

    fn refused(&mut self, now: Time, index: usize, operation: Operation, code: Code) {
        let Some(exchange) = self.exchanges.get_mut(operation) else {
            return;
        };
        if code == Code::NeedCookie {
            exchange.challenges += 1;
            if exchange.challenges <= MAX_CHALLENGES {
                // The answer has brought the cookie.
                exchange.tries = 0;
                self.transmit(now, operation);
            }
            return;
        }
        match operation {
            Operation::Insert(key, server) => {
                self.cancel(operation);
                self.insert_answered(key, server, Some(Rejection::Server { code, stored: 0 }));
            }
            Operation::Watch(guid) => {
                self.cancel(operation);
                self.watch_refused(now, guid);
            }
            // Its store is busy: the lookup is repeated as if it were not answered.
            Operation::Lookup(_) if code == Code::StoreFailed => {}
            // A server that cannot decode a lookup is useless.
            Operation::Lookup(_) => self.distrust(now, index, operation),
            Operation::Unwatch(..) | Operation::Probe(_) => self.cancel(operation),
        }
    }

    fn page_arrived(&mut self, now: Time, index: usize, guid: Guid, page: Page<'_>) {
        let operation = Operation::Lookup(guid);
        let Some(records) = self.believed(now, guid, page.records) else {
            return self.distrust(now, index, operation);
        };
        let Some(exchange) = self.exchanges.get_mut(operation) else {
            return;
        };
        if page.first != exchange.first {
            self.counters.unexpected_frames += 1;
            return;
        }
        exchange.collected.extend(records);
        let mut kinds = exchange.collected.iter().map(Record::kind);
        let group = kinds.find(|kind| *kind == Kind::Membership);
        let kind = group.unwrap_or(Kind::Provider);
        let most = StoreLimits::most_of(self.config.max_providers, kind);
        let next = exchange.first.saturating_add(page.records.len() as u16);
        if page.more && next > exchange.first && usize::from(next) <= most {
            exchange.first = next;
            exchange.tries = 0;
            self.exchanges.renew_id(operation);
            self.transmit(now, operation);
            return;
        }
        let collected = core::mem::take(&mut exchange.collected);
        self.cancel(operation);
        self.resolved(now, guid, &collected);
    }

    fn resolved(&mut self, now: Time, guid: Guid, records: &[Record]) {
        let now_ms = self.clock.unix_millis(now);
        if self.is_watched(&guid) {
            // A push may have overtaken the answer, so a record missing from it need not be gone.
            if self.cache.merge(now_ms, guid, records) {
                self.changed.insert(guid);
            }
        } else {
            self.cache.replace(now_ms, guid, records);
        }
        self.cache.purge(now_ms, &guid);
        let answer = self.cache.answer(now_ms, &guid);
        let ttl = if answer.is_empty() {
            self.config.negative_ttl()
        } else {
            self.config.ttl()
        };
        let lease_until = self
            .watches
            .get(&guid)
            .map_or(Time::ZERO, |watch| watch.lease_until);
        self.cache.set_valid_until(guid, lease_until.max(now + ttl));
        self.events.push_back(if answer.is_empty() {
            ResolverEvent::Unresolvable {
                guid,
                why: Failure::NotFound,
            }
        } else {
            ResolverEvent::Resolved { guid, answer }
        });
    }

    fn watch_granted(
        &mut self,
        now: Time,
        index: usize,
        guid: Guid,
        lease_secs: u32,
        page: Page<'_>,
    ) {
        let Some(records) = self.believed(now, guid, page.records) else {
            return self.distrust(now, index, Operation::Watch(guid));
        };
        self.cancel(Operation::Watch(guid));
        let lease = Duration::from_secs(lease_secs.max(1).into());
        let Some(watch) = self.watches.get_mut(&guid) else {
            return;
        };
        watch.server = Some(index);
        watch.lease_until = now + lease;
        self.timers.set(Timer::Renew(guid), now + lease / 2);
        let now_ms = self.clock.unix_millis(now);
        self.cache.purge(now_ms, &guid);
        if self.cache.merge(now_ms, guid, &records) {
            self.changed.insert(guid);
        }
        if !page.more {
            self.cache.set_valid_until(guid, now + lease);
            return;
        }
        // A lookup fetches the rest of a long list; the watch is already active.
        self.cache.set_valid_until(guid, now);
        let lookup = Operation::Lookup(guid);
        if !self.exchanges.contains(lookup) && self.exchanges.len() < self.config.max_pending {
            self.begin(now, lookup);
        }
    }

    /// The server has too many watches, or has given this one up for that of another.
    fn watch_refused(&mut self, now: Time, guid: Guid) {
        let Some(watch) = self.watches.get_mut(&guid) else {
            return;
        };
        watch.server = None;
        watch.lease_until = now;
        self.cache.set_valid_until(guid, now);
        self.counters.watches_refused += 1;
        self.events.push_back(ResolverEvent::NotWatched { guid });
        self.retry_watch_later(now, guid);
    }

    pub(super) fn insert_answered(
        &mut self,
        key: RecordKey,
        server: usize,
        rejection: Option<Rejection>,
    ) {
        let Some(registration) = self.registrations.get_mut(&key) else {
            return;
        };
        registration.waiting.remove(&server);
        match rejection {
            None if !registration.stored => {
                registration.stored = true;
                let version = registration.record.version();
                self.events.push_back(ResolverEvent::Registered {
                    guid: key.subject,
                    version,
                });
            }
            None | Some(Rejection::Unreachable) => {}
            // A server's answer is more informative than another server's silence.
            Some(said) => registration.rejection = said,
        }
        if registration.waiting.is_empty() {
            let (stored, code) = (registration.stored, registration.rejection);
            self.registrations.remove(&key);
            if !stored {
                self.events.push_back(ResolverEvent::Refused {
                    guid: key.subject,
                    code,
                });
            }
        }
    }

    fn pushed(
        &mut self,
        now: Time,
        index: usize,
        frame: &Frame<'_>,
        guid: Guid,
        list: RecordList<'_>,
    ) {
        let Some(server) = self.servers.get_mut(index) else {
            return;
        };
        if !server.is_session_of(frame.cookie) {
            self.counters.unexpected_frames += 1;
            return;
        }
        let port = server.port;
        self.server_heard(now, index, frame.cookie);
        self.counters.pushes += 1;
        let Some(records) = self.believed(now, guid, list) else {
            return;
        };
        let mut bytes = Vec::new();
        Frame::request(frame.id, frame.cookie, Message::PushAck { guid }).encode(&mut bytes);
        self.counters.frames_sent += 1;
        self.outbox.push(port, bytes);
        if list.is_empty() {
            // The watch has given way to that of another client.
            let from_here = |watch: &Watch| watch.server == Some(index);
            if self.watches.get(&guid).is_some_and(from_here) {
                self.watch_refused(now, guid);
            }
            return;
        }
        if self.is_watched(&guid)
            && self
                .cache
                .merge(self.clock.unix_millis(now), guid, &records)
        {
            self.changed.insert(guid);
        }
    }

    /// Returns the valid records of a list; `None` if one of them is forged: then the frame is not
    /// the expected answer.
    fn believed(&mut self, now: Time, guid: Guid, list: RecordList<'_>) -> Option<Vec<Record>> {
        let now_ms = self.clock.unix_millis(now);
        let mut records = Vec::with_capacity(list.len());
        for record in list.iter() {
            let verdict = match self.cache.holds(&record) {
                true if record.is_expired(now_ms) => Err(VerifyError::Expired),
                true => Ok(()),
                false => record.verify(now_ms),
            };
            match verdict {
                Ok(()) if record.subject() == guid => records.push(record.to_owned()),
                Err(VerifyError::Expired | VerifyError::FromTheFuture | VerifyError::TooLong) => {
                    self.counters.untimely_records += 1
                }
                Ok(())
                | Err(
                    VerifyError::WrongKey
                    | VerifyError::BadKey
                    | VerifyError::BadSignature
                    | VerifyError::NotAdmitted,
                ) => {
                    self.counters.forged_answers += 1;
                    return None;
                }
            }
        }
        Some(records)
    }
}

/// Returns whether a message can be the answer to an operation.
fn answers(operation: Operation, message: &Message<'_>) -> bool {
    match (operation, message) {
        (_, Message::Refused) => true,
        (Operation::Probe(_), Message::LookupAnswer { guid, .. }) => guid.is_none(),
        (Operation::Lookup(asked), Message::LookupAnswer { guid, .. })
        | (Operation::Watch(asked), Message::WatchAnswer { guid, .. })
        | (Operation::Unwatch(asked, _), Message::UnwatchAnswer { guid }) => asked == *guid,
        (Operation::Insert(key, _), Message::InsertAnswer { guid, .. }) => key.subject == *guid,
        _ => false,
    }
}
