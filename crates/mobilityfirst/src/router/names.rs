//! Name resolution: by the name service, and from the records of the router's own hosts. A single
//! site needs no server, and one that is cut off from its server keeps what is local.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, Time, WallClock};
use whimbrel_gnrs::{Answer, Kind, Lookup, MemoryStore, Record, Resolver, Store, StoreLimits};

use crate::links::ChunkToSend;
use crate::wire::ControlCode;

/// Bounds of the records: some thousands of hosts, each with some contents.
const LIMITS: StoreLimits = StoreLimits {
    max_records: 65_536,
    max_bytes: 32 << 20,
    max_providers: 64,
};
/// Maximum of contents remembered as no longer served.
const MAX_NOT_SERVED: usize = 4096;
/// Maximum of expired records that are removed with each new one.
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

    /// Registers a verified record.
    fn register(&mut self, now_ms: u64, record: Record) -> ControlCode {
        use whimbrel_gnrs::store::Refusal;
        // A store in memory cannot fail.
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

/// The router's name resolution, and the chunks that wait for an answer.
pub(super) struct Names {
    pub(super) resolver: Resolver,
    own: OwnNames,
    // Contents that hosts no longer serve, as they have said since they announced them.
    not_served: BTreeSet<(Guid, Guid)>,
    // Without one, the router's own records are all there is.
    has_service: bool,
    wall: WallClock,
    // By the looked-up name. The back-pressure buffer bounds their number.
    waiting: BTreeMap<Guid, Vec<ChunkToSend>>,
}

impl Names {
    pub(super) fn new(resolver: Resolver, has_service: bool, wall: WallClock) -> Names {
        Names {
            resolver,
            own: OwnNames::new(),
            not_served: BTreeSet::new(),
            has_service,
            wall,
            waiting: BTreeMap::new(),
        }
    }

    pub(super) fn set_wall_clock(&mut self, wall: WallClock) {
        self.wall = wall;
        self.resolver.set_wall_clock(wall);
    }

    /// Looks up a name: in the name service, or, if none is configured, in this router's records.
    pub(super) fn look_up(&mut self, now: Time, name: Guid) -> Lookup {
        if self.has_service {
            return self.resolver.lookup(now, name);
        }
        let answer = self.look_up_own(now, &name);
        if answer.is_empty() {
            Lookup::NotFound
        } else {
            Lookup::Resolved(answer)
        }
    }

    /// The records of this router's own hosts about a name. A host may have left since.
    pub(super) fn look_up_own(&self, now: Time, name: &Guid) -> Answer {
        self.own.lookup(self.wall.unix_millis(now), name)
    }

    /// What is known about a name without a query, while it may be relied upon.
    pub(super) fn known(&self, now: Time, name: &Guid) -> Option<Answer> {
        if self.has_service {
            return self.resolver.known(now, name);
        }
        Some(self.look_up_own(now, name))
    }

    pub(super) fn note_not_served(&mut self, content: Guid, host: Guid) {
        if self.not_served.len() >= MAX_NOT_SERVED {
            self.not_served.pop_first();
        }
        self.not_served.insert((content, host));
    }

    pub(super) fn is_not_served(&self, content: &Guid, host: &Guid) -> bool {
        self.not_served.contains(&(*content, *host))
    }

    /// Looks up a name, ignoring cached answers.
    pub(super) fn look_up_anew(&mut self, now: Time, name: Guid) -> Lookup {
        self.resolver.forget(&name);
        self.look_up(now, name)
    }

    /// Watches a name at the name service. Without room for another watch, the timers must suffice.
    pub(super) fn watch(&mut self, now: Time, name: Guid) {
        if self.has_service {
            let _ = self.resolver.watch(now, name);
        }
    }

    /// Stores a verified record of a host; returns it as `Err` if the name service must have it too.
    pub(super) fn keep(&mut self, now: Time, record: Record) -> Result<ControlCode, Record> {
        self.not_served.remove(&(record.subject(), record.signer()));
        let code = self
            .own
            .register(self.wall.unix_millis(now), record.clone());
        match self.has_service {
            true => Err(record),
            false => Ok(code),
        }
    }

    /// Lets a chunk wait for the answer about this name.
    pub(super) fn wait(&mut self, name: Guid, outgoing: ChunkToSend) {
        self.waiting.entry(name).or_default().push(outgoing);
    }

    /// The chunks that wait for this name.
    pub(super) fn take_waiting(&mut self, name: &Guid) -> Vec<ChunkToSend> {
        self.waiting.remove(name).unwrap_or_default()
    }
}
