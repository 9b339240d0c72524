//! Names of a router that has no name service: its own hosts, and what they serve. One site needs
//! no server.

use whimbrel_core::{Guid, Time};
use whimbrel_gnrs::{Answer, Kind, Lookup, MemoryStore, Record, Store, StoreLimits};

use super::Router;
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
pub(super) struct OwnNames {
    store: MemoryStore,
}

impl OwnNames {
    pub(super) fn new() -> OwnNames {
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

impl Router {
    /// What is known of a name: by the name service, or, where none is configured, by this router.
    pub(super) fn look_up(&mut self, now: Time, name: Guid) -> Lookup {
        let Some(names) = &self.own_names else {
            return self.resolver.lookup(now, name);
        };
        let answer = names.lookup(self.config.wall.unix_millis(now), &name);
        if answer.is_empty() {
            Lookup::NotFound
        } else {
            Lookup::Resolved(answer)
        }
    }

    /// Keeps a verified record where there is no name service; gives it back where there is one.
    pub(super) fn keep_name(&mut self, now: Time, record: Record) -> Result<ControlCode, Record> {
        let Some(names) = &mut self.own_names else {
            return Err(record);
        };
        let subject = record.subject();
        let code = names.register(self.config.wall.unix_millis(now), record);
        if let Lookup::Resolved(answer) = self.look_up(now, subject) {
            self.bind_stored(now, subject, &answer);
        }
        Ok(code)
    }
}
