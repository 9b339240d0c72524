//! Transmission of requests: choice of server, retransmission, failover.

use core::time::Duration;

use whimbrel_core::{Guid, Time};

use super::exchanges::Operation;
use super::{Failure, Rejection, Resolver, ResolverEvent, Timer};
use crate::record::Record;
use crate::wire::{Frame, MIN_FRAME, Message, OWN_RECORDS, PADDED_LOOKUP};

/// Delay before a failed watch is set up again.
const WATCH_RETRY: Duration = Duration::from_secs(1);
/// When the server changes, watches move to the new one this far apart, so that they do not overrun
/// its queue.
const WATCH_SPACING: Duration = Duration::from_micros(50);

impl Resolver {
    pub(super) fn begin(&mut self, now: Time, operation: Operation) {
        self.exchanges
            .start(now, operation, now + self.config.give_up());
        self.ask(now, operation);
    }

    pub(super) fn cancel(&mut self, operation: Operation) {
        self.exchanges.finish(operation);
        self.timers.cancel(&Timer::Repeat(operation));
    }

    /// Directs an exchange to the best server and sends its request.
    fn ask(&mut self, now: Time, operation: Operation) {
        let server = match operation.pinned_to() {
            Some(server) => {
                Some(server).filter(|index| self.servers.get(*index).is_some_and(|it| it.up))
            }
            None => self.servers.choose(),
        };
        let Some(exchange) = self.exchanges.get_mut(operation) else {
            return;
        };
        if exchange.server != server {
            exchange.server = server;
            exchange.tries = 0;
            exchange.asked_at = now;
            // Indices and pages of another server do not apply to this one.
            exchange.first = 0;
            exchange.collected.clear();
            self.exchanges.renew_id(operation);
        }
        self.transmit(now, operation);
    }

    /// Sends the request of an exchange to its server, and sets the time of the next attempt.
    pub(super) fn transmit(&mut self, now: Time, operation: Operation) {
        let Some(exchange) = self.exchanges.get_mut(operation) else {
            return;
        };
        if exchange.tries > 0 {
            self.exchanges.add_id(operation);
        }
        let Some(exchange) = self.exchanges.get_mut(operation) else {
            return;
        };
        let Some(server) = exchange.server.and_then(|index| self.servers.get(index)) else {
            // No server is up: `server_up` sends the request when one comes up.
            let give_up_at = exchange.give_up_at;
            self.timers.set(Timer::Repeat(operation), give_up_at);
            return;
        };
        let message = match operation {
            Operation::Lookup(guid) => {
                let first = match self.own_records {
                    true => exchange.first | OWN_RECORDS,
                    false => exchange.first,
                };
                lookup(guid, first, server.has_fresh_cookie(now))
            }
            Operation::Probe(_) => lookup(Guid::NONE, 0, server.has_fresh_cookie(now)),
            Operation::Watch(guid) => Message::Watch {
                guid,
                lease_secs: self.config.lease_secs,
            },
            Operation::Unwatch(guid, _) => Message::Unwatch { guid },
            Operation::Insert(key, _) => {
                match self.registrations.get(&key).map(|it| it.record.as_bytes()) {
                    Some(bytes) => match Record::parse(bytes) {
                        Ok(record) => Message::Insert { record },
                        Err(_) => return,
                    },
                    None => return,
                }
            }
        };
        let mut bytes = Vec::new();
        Frame::request(exchange.id, server.cookie, message).encode(&mut bytes);
        self.counters.frames_sent += 1;
        self.counters.frames_repeated += u64::from(exchange.tries > 0);
        let repeat_at = (now + server.rtt.timeout_after(exchange.tries)).min(exchange.give_up_at);
        exchange.tries += 1;
        exchange.sent_at = now;
        // A full queue is a loss like any other.
        self.outbox.push(server.port, bytes);
        self.timers.set(Timer::Repeat(operation), repeat_at);
    }

    pub(super) fn unanswered(&mut self, now: Time, operation: Operation) {
        let Some(exchange) = self.exchanges.get_mut(operation) else {
            return;
        };
        let (server, tries, asked_at) = (exchange.server, exchange.tries, exchange.asked_at);
        let over = now >= exchange.give_up_at;
        let enough = tries >= self.config.tries_per_server;
        if (enough || over)
            && let Some(index) = server
            && self
                .servers
                .get(index)
                .is_some_and(|server| server.heard_at.is_none_or(|at| at < asked_at))
        {
            self.server_silent(now, index, asked_at);
        }
        if over {
            self.fail(now, operation);
        } else {
            self.ask(now, operation);
        }
    }

    fn fail(&mut self, now: Time, operation: Operation) {
        self.cancel(operation);
        match operation {
            Operation::Lookup(guid) => {
                let why = Failure::Unreachable;
                self.events
                    .push_back(ResolverEvent::Unresolvable { guid, why });
            }
            Operation::Insert(key, server) => {
                self.insert_answered(key, server, Some(Rejection::Unreachable))
            }
            Operation::Watch(guid) => self.timers.set(Timer::Renew(guid), now + WATCH_RETRY),
            Operation::Unwatch(..) | Operation::Probe(_) => {}
        }
    }

    /// Sets up a watch or renews its lease, with the current server.
    pub(super) fn renew(&mut self, now: Time, guid: Guid) {
        if !self.watches.contains_key(&guid) || self.exchanges.contains(Operation::Watch(guid)) {
            return;
        }
        if self.exchanges.len() >= self.config.max_pending {
            self.timers.set(Timer::Renew(guid), now + WATCH_RETRY);
            return;
        }
        self.begin(now, Operation::Watch(guid));
    }

    pub(super) fn retry_watch_later(&mut self, now: Time, guid: Guid) {
        self.timers.set(Timer::Renew(guid), now + WATCH_RETRY * 5);
    }

    /// Schedules the renewal of the watches whose server `picked` selects.
    fn renew_watches(&mut self, now: Time, picked: impl Fn(Option<usize>) -> bool) {
        let lost = self
            .watches
            .iter()
            .filter(|(_, watch)| picked(watch.server))
            .map(|(guid, _)| *guid);
        let mut at = now;
        for guid in lost {
            self.timers.set_earlier(Timer::Renew(guid), at);
            at += WATCH_SPACING;
        }
    }

    pub(super) fn server_up(&mut self, now: Time, index: usize, peer: String) {
        let Some(server) = self.servers.get_mut(index) else {
            return;
        };
        server.up = true;
        server.peer = peer;
        server.begin_anew();
        self.move_to_best(now);
        for operation in self
            .exchanges
            .select(|_, exchange| exchange.server.is_none())
        {
            self.ask(now, operation);
        }
    }

    pub(super) fn server_down(&mut self, now: Time, index: usize) {
        let Some(server) = self.servers.get_mut(index) else {
            return;
        };
        server.up = false;
        let port = server.port;
        tracing::info!(server = %server.peer, "the way to the name server is gone");
        self.outbox.remove(port);
        self.outbox.add(port);
        self.timers.cancel(&Timer::Probe(index));
        for operation in self
            .exchanges
            .select(|_, exchange| exchange.server == Some(index))
        {
            self.ask(now, operation);
        }
        self.move_to_best(now);
    }

    /// Marks the server as silent: its exchanges move to others, and probes test whether it is
    /// back.
    fn server_silent(&mut self, now: Time, index: usize, asked_at: Time) {
        let Some(server) = self.servers.get_mut(index) else {
            return;
        };
        self.counters.failovers += u64::from(server.silent_at.is_none());
        if server.note_silence(now, asked_at) {
            tracing::info!(server = %server.peer, "the name server is lost: it does not answer");
        }
        self.timers
            .set_earlier(Timer::Probe(index), now + self.config.probe_interval());
        self.move_to_best(now);
    }

    /// The server responds, but incorrectly: ignores its answer, and queries another one at once if
    /// there is one.
    pub(super) fn distrust(&mut self, now: Time, index: usize, operation: Operation) {
        self.server_silent(now, index, now);
        if let Some(server) = self.servers.get_mut(index)
            && server.lose()
        {
            tracing::info!(server = %server.peer, "the name server is lost: its answers are false");
        }
        if self.servers.choose() != Some(index) {
            self.ask(now, operation);
        }
    }

    /// Handles an expected frame of the server.
    pub(super) fn server_heard(&mut self, now: Time, index: usize, cookie: u64) {
        let Some(server) = self.servers.get_mut(index) else {
            return;
        };
        let found = server.note_answer(now);
        let forgotten = server.cookie != 0 && !server.is_session_of(cookie);
        let back = server.silent_at.take().is_some();
        server.cookie = cookie;
        if found {
            tracing::info!(server = %server.peer, "the name server is found: it answers");
        }
        if forgotten {
            tracing::info!(
                server = %server.peer,
                "the name server has lost this node: it has restarted, or was out of reach for long"
            );
            // A server changes the first half of the cookie of a port only after a restart, or after it
            // has dropped the port and its watches.
            self.counters.server_restarts += 1;
            self.events.push_back(ResolverEvent::Forgot);
            self.renew_watches(now, |server| server == Some(index));
        }
        if back {
            self.timers.cancel(&Timer::Probe(index));
            self.move_to_best(now);
        }
    }

    /// Moves watches to the server that lookups use, if that answers and is another one than before:
    /// the walk over all watches must not follow from each request that a silent server leaves
    /// unanswered.
    fn move_to_best(&mut self, now: Time) {
        let answers = |index: &usize| {
            let server = self.servers.get(*index);
            server.is_some_and(|it| it.silent_at.is_none())
        };
        let best = self.servers.choose().filter(answers);
        if best.is_some() && best != self.watches_at {
            self.watches_at = best;
            self.counters.watch_moves += 1;
            self.renew_watches(now, |server| server != best);
        }
    }

    pub(super) fn probe(&mut self, now: Time, index: usize) {
        if !self.exchanges.contains(Operation::Probe(index)) {
            self.begin(now, Operation::Probe(index));
        }
        if self
            .servers
            .get(index)
            .is_some_and(|server| server.silent_at.is_some())
        {
            self.timers
                .set(Timer::Probe(index), now + self.config.probe_interval());
        }
    }

    /// A restarted server does not announce its restart; the cookie of its next answer shows it.
    pub(super) fn check_watches(&mut self, now: Time) {
        let interval = self.config.probe_interval();
        if self.watches.is_empty() {
            return;
        }
        let mut next = now + interval;
        if let Some(index) = self.servers.choose() {
            match self
                .servers
                .get(index)
                .and_then(|server| server.heard_at)
                .map(|at| at + interval)
            {
                Some(due) if due > now => next = due,
                _ => self.probe(now, index),
            }
        }
        self.timers.set(Timer::CheckWatches, next);
    }
}

/// Padded if the server may not take this client's cookie, so that it may answer without a challenge.
fn lookup(guid: Guid, first: u16, has_cookie: bool) -> Message<'static> {
    let padding = match has_cookie {
        true => 0,
        false => PADDED_LOOKUP - MIN_FRAME - Guid::LEN - 2,
    };
    Message::Lookup {
        guid,
        first,
        padding,
    }
}
