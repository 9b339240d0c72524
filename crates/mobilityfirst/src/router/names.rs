//! What names stand for: asked of the name service, or, in a router that has none, known of its own
//! hosts and what they serve. One site needs no server.

use std::collections::BTreeMap;

use whimbrel_core::{Guid, Time, WallClock};
use whimbrel_gnrs::{Answer, Kind, Lookup, MemoryStore, Record, Resolver, Store, StoreLimits};

use crate::links::Outgoing;
use crate::wire::ControlCode;

/// Bounds of the records: some thousands of hosts, each with some contents.
const LIMITS: StoreLimits = StoreLimits {
    max_records: 65_536,
    max_bytes: 32 << 20,
    max_providers: 64,
};
/// Records whose time is over that are looked for with each new one.
const EXPIRED_AT_ONCE: usize = 4;

/// The records of hosts that are, or were, attached here.
struct OwnNames {
    store: MemoryStore,
}

impl OwnNames {
    fn new() -> OwnNames {
        OwnNames {
            store: MemoryStore::new(LIMITS),
        }
    }

    /// Takes a verified record.
    fn register(&mut self, now_ms: u64, record: Record) -> ControlCode {
        use whimbrel_gnrs::store::Refusal;
        // Memory neither fails to be read nor to be written.
        let _ = self.store.remove_expired(now_ms, EXPIRED_AT_ONCE);
        match self.store.put(now_ms, record) {
            Ok(Ok(_)) => ControlCode::Registered,
            Ok(Err(Refusal::Stale { .. } | Refusal::Conflict { .. })) => ControlCode::Stale,
            Ok(Err(Refusal::Full)) | Err(_) => ControlCode::Full,
        }
    }

    fn lookup(&self, now_ms: u64, name: &Guid) -> Answer {
        let mut binding = None;
        self.store.visit(name, now_ms, &mut |record| {
            let is_binding = record.kind() == Kind::Binding && !record.is_removal();
            binding = is_binding.then(|| record.clone());
            // The binding comes first, if there is one.
            false
        });
        Answer {
            binding,
            providers: self.store.providers(name, now_ms),
        }
    }
}

/// What a router knows of names, and the chunks that wait for an answer.
pub(super) struct Names {
    pub(super) resolver: Resolver,
    // Instead of a name service, if none is configured.
    own: Option<OwnNames>,
    wall: WallClock,
    // By the name that was asked for. Their number is bounded by the back-pressure buffer.
    waiting: BTreeMap<Guid, Vec<Outgoing>>,
}

impl Names {
    pub(super) fn new(resolver: Resolver, has_service: bool, wall: WallClock) -> Names {
        Names {
            resolver,
            own: (!has_service).then(OwnNames::new),
            wall,
            waiting: BTreeMap::new(),
        }
    }

    /// What is known of a name: by the name service, or, where none is configured, by this router.
    pub(super) fn look_up(&mut self, now: Time, name: Guid) -> Lookup {
        let Some(names) = &self.own else {
            return self.resolver.lookup(now, name);
        };
        let answer = names.lookup(self.wall.unix_millis(now), &name);
        if answer.is_empty() {
            Lookup::NotFound
        } else {
            Lookup::Resolved(answer)
        }
    }

    /// Looks a name up again whatever was answered before.
    pub(super) fn look_up_anew(&mut self, now: Time, name: Guid) -> Lookup {
        self.resolver.forget(&name);
        self.look_up(now, name)
    }

    /// Has the name service push changes of a name. Without room for another watch, the asker's
    /// timer alone has to do.
    pub(super) fn watch(&mut self, now: Time, name: Guid) {
        if self.own.is_none() {
            let _ = self.resolver.watch(now, name);
        }
    }

    /// Keeps a verified record where there is no name service; gives it back where there is one.
    pub(super) fn keep(&mut self, now: Time, record: Record) -> Result<ControlCode, Record> {
        match &mut self.own {
            Some(names) => Ok(names.register(self.wall.unix_millis(now), record)),
            None => Err(record),
        }
    }

    /// A chunk waits until this name is answered.
    pub(super) fn wait(&mut self, name: Guid, outgoing: Outgoing) {
        self.waiting.entry(name).or_default().push(outgoing);
    }

    /// The chunks that wait for this name.
    pub(super) fn take_waiting(&mut self, name: &Guid) -> Vec<Outgoing> {
        self.waiting.remove(name).unwrap_or_default()
    }
}
