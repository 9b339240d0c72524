use std::collections::BTreeMap;

use whimbrel_core::{Guid, SeededRng, Time};

use crate::record::{Record, RecordKey};

/// The purpose of an exchange. There is at most one exchange per operation, which coalesces
/// lookups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Operation {
    Lookup(Guid),
    /// Registration with one server: every server gets the record.
    Insert(RecordKey, usize),
    Watch(Guid),
    Unwatch(Guid, usize),
    /// Does the server respond, and does it still know this client?
    Probe(usize),
}

impl Operation {
    /// Returns the server of an operation that only this one can serve.
    pub(super) fn pinned_to(self) -> Option<usize> {
        match self {
            Operation::Lookup(_) | Operation::Watch(_) => None,
            Operation::Insert(_, server)
            | Operation::Unwatch(_, server)
            | Operation::Probe(server) => Some(server),
        }
    }
}

/// A pending request.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: u64,
    /// The queried server; `None` while no server is up.
    pub(super) server: Option<usize>,
    /// When that server was queried first and last, and how often.
    pub(super) asked_at: Time,
    pub(super) sent_at: Time,
    pub(super) tries: u32,
    pub(super) give_up_at: Time,
    /// How often a server demanded a cookie; more than a few times is a fault of the server.
    pub(super) challenges: u32,
    /// The pages of a lookup so far.
    pub(super) collected: Vec<Record>,
    /// Index of the next record of a lookup.
    pub(super) first: u16,
}

/// The pending requests, by operation and by id.
#[derive(Debug)]
pub(super) struct Exchanges {
    by_operation: BTreeMap<Operation, Exchange>,
    by_id: BTreeMap<u64, Operation>,
    rng: SeededRng,
}

impl Exchanges {
    pub(super) fn new(rng: SeededRng) -> Exchanges {
        Exchanges {
            by_operation: BTreeMap::new(),
            by_id: BTreeMap::new(),
            rng,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_operation.len()
    }

    pub(super) fn contains(&self, operation: Operation) -> bool {
        self.by_operation.contains_key(&operation)
    }

    pub(super) fn get_mut(&mut self, operation: Operation) -> Option<&mut Exchange> {
        self.by_operation.get_mut(&operation)
    }

    pub(super) fn operation(&self, id: u64) -> Option<Operation> {
        self.by_id.get(&id).copied()
    }

    /// Returns the operations that a predicate selects.
    pub(super) fn select(
        &self,
        mut pick: impl FnMut(Operation, &Exchange) -> bool,
    ) -> Vec<Operation> {
        self.by_operation
            .iter()
            .filter(|(key, exchange)| pick(**key, exchange))
            .map(|(key, _)| *key)
            .collect()
    }

    pub(super) fn start(&mut self, now: Time, operation: Operation, give_up_at: Time) {
        let id = self.fresh_id();
        self.by_id.insert(id, operation);
        let exchange = Exchange {
            id,
            server: None,
            asked_at: now,
            sent_at: now,
            tries: 0,
            give_up_at,
            challenges: 0,
            collected: Vec::new(),
            first: 0,
        };
        if let Some(old) = self.by_operation.insert(operation, exchange) {
            self.by_id.remove(&old.id);
        }
    }

    /// Gives an exchange a new id, so that answers to its earlier requests are ignored.
    pub(super) fn renew_id(&mut self, operation: Operation) {
        let id = self.fresh_id();
        if let Some(exchange) = self.by_operation.get_mut(&operation) {
            self.by_id.remove(&exchange.id);
            self.by_id.insert(id, operation);
            exchange.id = id;
        }
    }

    pub(super) fn finish(&mut self, operation: Operation) -> Option<Exchange> {
        let exchange = self.by_operation.remove(&operation)?;
        self.by_id.remove(&exchange.id);
        Some(exchange)
    }

    /// Random, so that off-path attackers cannot answer.
    fn fresh_id(&mut self) -> u64 {
        loop {
            let id = self.rng.next_word();
            if !self.by_id.contains_key(&id) {
                return id;
            }
        }
    }
}
