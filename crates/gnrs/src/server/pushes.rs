use core::time::Duration;

use whimbrel_core::{Guid, PortId, Source, Time};

use super::watches::{Added, Push};
use super::{Server, Timer};
use crate::record::RecordKey;
use crate::store::Store;
use crate::wire::{Code, Frame, Message, RecordList};

impl<S: Store> Server<S> {
    pub(super) fn watch(&mut self, now: Time, port: PortId, id: u64, guid: Guid, lease_secs: u32) {
        let Some(source) = self.ports.get(&port).map(|state| state.source) else {
            return;
        };
        match self.watches.add(guid, port, source) {
            Added::Watched => {}
            Added::InPlaceOf(ended, of) => self.end_watch(now, ended, of),
            Added::Refused => return self.refuse(port, id, Code::TooManyWatches),
        }
        let lease_secs = lease_secs.clamp(1, self.config.max_lease_secs.max(1));
        self.timers.set(
            Timer::Lease(guid, port),
            now + Duration::from_secs(lease_secs.into()),
        );
        self.store.follow(guid);
        self.begin_watch(now, port, id, guid, lease_secs);
    }

    /// The store need not follow a name that nobody watches any longer.
    pub(super) fn unfollow_unwatched(&mut self, guid: &Guid) {
        if !self.watches.has(guid) {
            self.store.unfollow(guid);
        }
    }

    /// A watch has given way to that of another client: its own is told once, by a push without
    /// records. If that is lost, the renewal of the lease tells.
    fn end_watch(&mut self, now: Time, guid: Guid, port: PortId) {
        self.cancel_timers(guid, port);
        self.unfollow_unwatched(&guid);
        let source = self.ports.get(&port).map(|state| state.source);
        source.inspect(|source| self.push_waiting(now, *source));
        self.counters.watches_ended += 1;
        self.counters.pushes += 1;
        let records = RecordList::default();
        let message = Message::Push { guid, records };
        self.send(port, self.counters.pushes, Code::Ok, message);
    }

    pub(super) fn unwatch(&mut self, now: Time, guid: Guid, port: PortId) {
        self.watches.remove(guid, port);
        self.cancel_timers(guid, port);
        self.unfollow_unwatched(&guid);
        let source = self.ports.get(&port).map(|state| state.source);
        source.inspect(|source| self.push_waiting(now, *source));
    }

    pub(super) fn cancel_timers(&mut self, guid: Guid, port: PortId) {
        self.timers.cancel(&Timer::Lease(guid, port));
        self.timers.cancel(&Timer::Push(guid, port));
    }

    /// Pushes a changed record to the watchers of its subject. To one that has not acknowledged the
    /// push before, it goes with the next one.
    pub(super) fn push_change(&mut self, now: Time, key: RecordKey) {
        for port in self.watches.of(&key.subject) {
            let Some(watch) = self.watches.get_mut(&key.subject, port) else {
                continue;
            };
            watch.unacknowledged.insert(key.provider);
            if watch.outstanding.is_none() {
                self.push(now, key.subject, port, 0);
            }
        }
    }

    /// Sends the pushes of a source that have waited, as far as it may have more under way.
    pub(super) fn push_waiting(&mut self, now: Time, source: Source) {
        while let Some((guid, port)) = self.watches.next_waiting(source) {
            self.push(now, guid, port, 0);
        }
    }

    /// A client is heard again whose pushes were given up: it gets what has changed meanwhile.
    pub(super) fn resume_pushes(&mut self, now: Time, port: PortId) {
        for guid in self.watches.wake(port) {
            self.push(now, guid, port, 0);
        }
    }

    /// Sends the unacknowledged records of a watch, as many as fit; the rest follows the
    /// acknowledgement. Waits if its source has as many pushes under way as it may have.
    fn push(&mut self, now: Time, guid: Guid, port: PortId, repeated: u32) {
        let now_ms = self.now_ms(now);
        if !self.watches.begin_push(guid, port) {
            return;
        }
        let Some(watch) = self.watches.get_mut(&guid, port) else {
            return;
        };
        let Some(state) = self.ports.get_mut(&port) else {
            return;
        };
        state.cookies.turn(&self.secret, port, now);
        self.page.clear();
        let mut versions = Vec::new();
        let (page, store) = (&mut self.page, &self.store);
        watch.unacknowledged.retain(|provider| {
            let record = store.get(&RecordKey {
                subject: guid,
                provider: *provider,
            });
            let Some(record) = record.filter(|record| !record.is_expired(now_ms)) else {
                return false;
            };
            if page.push(&record) {
                versions.push((*provider, record.version()));
            }
            true
        });
        if versions.is_empty() {
            watch.outstanding = None;
            self.watches.end_push(guid, port, false);
            self.timers.cancel(&Timer::Push(guid, port));
            return;
        }
        // The cookie in the frame authenticates the server to the client; the id need only be new.
        self.counters.pushes += 1;
        let id = self.counters.pushes;
        watch.outstanding = Some(Push {
            id,
            sent_at: now,
            repeated,
            versions,
        });
        self.timers.set(
            Timer::Push(guid, port),
            now + state.rtt.timeout_after(repeated),
        );
        let mut bytes = Vec::new();
        let message = Message::Push {
            guid,
            records: self.page.list(),
        };
        Frame {
            id,
            cookie: state.cookies.present,
            code: Code::Ok,
            message,
        }
        .encode(&mut bytes);
        self.queue(port, bytes);
    }

    pub(super) fn push_acknowledged(&mut self, now: Time, port: PortId, id: u64, guid: Guid) {
        let Some(watch) = self.watches.get_mut(&guid, port) else {
            return;
        };
        let Some(push) = watch.outstanding.take_if(|push| push.id == id) else {
            return;
        };
        for (provider, version) in push.versions {
            let stored = self.store.get(&RecordKey {
                subject: guid,
                provider,
            });
            if stored.is_none_or(|stored| stored.version() == version) {
                watch.unacknowledged.remove(&provider);
            }
        }
        self.timers.cancel(&Timer::Push(guid, port));
        if let Some(state) = self.ports.get_mut(&port) {
            // Every retransmission has an id of its own, so that round trips are never ambiguous.
            state.rtt.sample(now.since(push.sent_at));
            let source = state.source;
            self.watches.end_push(guid, port, true);
            // Others have waited for longer than what is left of this one.
            self.push_waiting(now, source);
        }
        self.push(now, guid, port, 0);
    }

    pub(super) fn push_unanswered(&mut self, now: Time, guid: Guid, port: PortId) {
        let Some(watch) = self.watches.get_mut(&guid, port) else {
            return;
        };
        let Some(push) = watch.outstanding.take() else {
            return;
        };
        if push.repeated + 1 >= self.config.push_tries {
            self.counters.pushes_given_up += 1;
            for guid in self.watches.rest(port) {
                self.timers.cancel(&Timer::Push(guid, port));
            }
            let source = self.ports.get(&port).map(|state| state.source);
            source.inspect(|source| self.push_waiting(now, *source));
            return;
        }
        self.counters.pushes_repeated += 1;
        self.push(now, guid, port, push.repeated + 1);
    }
}
