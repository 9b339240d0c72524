//! Requests that wait for the store, bounded by source.

use std::collections::BTreeMap;

use whimbrel_core::{Guid, PortId, Source};

use crate::record::Record;
use crate::store::{Put, Ticket};

/// The share of all waiting requests that one source may have: one in this many.
const PARTS: usize = 8;

/// A verified update of a client.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) port: PortId,
    pub(super) id: u64,
    /// Where it came from, proven or not.
    pub(super) from: Source,
    /// The owner of the place that it takes if its entry is new.
    pub(super) reserved: Option<Option<Source>>,
    pub(super) put: Put,
}

/// What a request to the store is for.
#[derive(Debug)]
pub(super) enum Asked {
    /// The records of a name, for its readers.
    Read(Guid),
    /// These updates.
    Put(Vec<Update>),
    /// These records, which peers have.
    Copy(Vec<Record>),
    /// Expired records are removed.
    Expiry,
}

/// A client that waits for the records of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    pub(super) port: PortId,
    pub(super) source: Source,
    pub(super) id: u64,
    pub(super) wants: Wants,
}

/// What a reader wants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wants {
    /// The records from index `first` on, in an answer of at most `most` bytes.
    Lookup { first: u16, most: usize },
    /// The initial state of a watch.
    Watch { lease_secs: u32 },
}

/// The requests under way, and the clients that wait for them.
#[derive(Debug)]
pub(super) struct Waiting {
    max: usize,
    next: Ticket,
    asked: BTreeMap<Ticket, Asked>,
    readers: BTreeMap<Guid, Vec<Reader>>,
    by_source: BTreeMap<Source, usize>,
    count: usize,
}

impl Waiting {
    pub(super) fn new(max: usize) -> Waiting {
        Waiting {
            max,
            next: 0,
            asked: BTreeMap::new(),
            readers: BTreeMap::new(),
            by_source: BTreeMap::new(),
            count: 0,
        }
    }

    /// Returns the number of clients' requests that wait.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Counts one more request of a source. Returns false, and does not count it, if there are too
    /// many.
    pub(super) fn admit(&mut self, source: Source) -> bool {
        let own = self.by_source.get(&source).copied().unwrap_or(0);
        let may = self.count < self.max && own < (self.max / PARTS).max(1);
        if may {
            self.by_source.insert(source, own + 1);
            self.count += 1;
        }
        may
    }

    /// A request of a source waits no longer.
    pub(super) fn release(&mut self, source: Source) {
        self.count -= 1;
        if let Some(own) = self.by_source.get_mut(&source) {
            *own -= 1;
            if *own == 0 {
                self.by_source.remove(&source);
            }
        }
    }

    /// Notes a request to the store; returns its ticket.
    pub(super) fn ask(&mut self, what: Asked) -> Ticket {
        self.next += 1;
        self.asked.insert(self.next, what);
        self.next
    }

    /// Returns what a reply is for.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<Asked> {
        self.asked.remove(&ticket)
    }

    /// Adds a reader of a name, which was admitted. Returns true if it is the first one, so that the
    /// store is to be asked.
    pub(super) fn add_reader(&mut self, subject: Guid, reader: Reader) -> bool {
        let readers = self.readers.entry(subject).or_default();
        readers.push(reader);
        readers.len() == 1
    }

    /// Returns the readers of a name, which wait no longer.
    pub(super) fn take_readers(&mut self, subject: &Guid) -> Vec<Reader> {
        let readers = self.readers.remove(subject).unwrap_or_default();
        readers.iter().for_each(|it| self.release(it.source));
        readers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_its_share_of_the_waiting_requests() {
        let mut waiting = Waiting::new(80);
        let (one, other) = (Source::Network(1), Source::Network(2));
        let admitted = (0..100).filter(|_| waiting.admit(one)).count();
        assert_eq!(admitted, 10);
        assert!(waiting.admit(other));
        waiting.release(one);
        assert!(waiting.admit(one) && !waiting.admit(one));
        let others = (3..100).filter(|it| waiting.admit(Source::Network(*it)));
        assert_eq!(others.count(), 69);
        assert_eq!(waiting.len(), 80);
        (0..10).for_each(|_| waiting.release(one));
        assert!(!waiting.by_source.contains_key(&one));
    }
}
