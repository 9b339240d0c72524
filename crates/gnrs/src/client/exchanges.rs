use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{Guid, SeededRng, Time};

use crate::record::{Record, RecordKey};

/// Transmissions of a request that are remembered besides the last one.
const EARLIER: usize = 8;

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
    /// Of the last transmission. Each has its own, so that an answer says how long the path takes,
    /// however often it was asked: a loaded link answers the first of many requests.
    pub(super) id: u64,
    /// Transmissions before that, and their times.
    earlier: VecDeque<(u64, Time)>,
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

impl Exchange {
    /// Returns the time of the transmission with this id.
    pub(super) fn sent_with(&self, id: u64) -> Option<Time> {
        let earlier = self.earlier.iter().find(|(earlier, _)| *earlier == id);
        let last = (self.id == id).then_some(self.sent_at);
        last.or(earlier.map(|(_, at)| *at))
    }
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
            earlier: VecDeque::new(),
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
            self.forget_ids(&old);
        }
    }

    /// Gives an exchange a new id, so that answers to its earlier requests are ignored.
    pub(super) fn renew_id(&mut self, operation: Operation) {
        let id = self.fresh_id();
        if let Some(exchange) = self.by_operation.get_mut(&operation) {
            self.by_id.remove(&exchange.id);
            for (id, _) in exchange.earlier.drain(..) {
                self.by_id.remove(&id);
            }
            self.by_id.insert(id, operation);
            exchange.id = id;
        }
    }

    /// Gives the next transmission of the same request an id of its own. Answers to the last ones
    /// count as well.
    pub(super) fn add_id(&mut self, operation: Operation) {
        let id = self.fresh_id();
        if let Some(exchange) = self.by_operation.get_mut(&operation) {
            exchange.earlier.push_back((exchange.id, exchange.sent_at));
            if exchange.earlier.len() > EARLIER
                && let Some((oldest, _)) = exchange.earlier.pop_front()
            {
                self.by_id.remove(&oldest);
            }
            self.by_id.insert(id, operation);
            exchange.id = id;
        }
    }

    pub(super) fn finish(&mut self, operation: Operation) -> Option<Exchange> {
        let exchange = self.by_operation.remove(&operation)?;
        self.forget_ids(&exchange);
        Some(exchange)
    }

    fn forget_ids(&mut self, exchange: &Exchange) {
        self.by_id.remove(&exchange.id);
        for (id, _) in &exchange.earlier {
            self.by_id.remove(id);
        }
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
