//! Pending Interests.
//!
//! A [`Ledger`] records for each pending Interest when, on which path and how often it was sent,
//! and when its answer is overdue. Every consumer of this crate keeps its Interests in one; an
//! owner of a single Interest keeps one [`Sent`].
//!
//! An entry is *in flight* from its transmission until it is answered, abandoned or declared lost,
//! and *lost* until it is retransmitted. A late Data still answers a lost one. Both kinds are
//! listed by path: those in flight in the order of transmission, which is also the order in which a
//! path without reordering answers ([PTP §5.C]); lost ones in the order in which they were declared
//! lost.
//!
//! A deadline may be fixed at the transmission ([`Ledger::overdue`]), such as the end of an
//! Interest's lifetime. It may also follow from the path's current timeout: then the owner compares
//! it with [`Ledger::oldest`] of each path, because the Interest sent first always times out first.
//!
//! | index | keys | cost |
//! |---|---|---|
//! | [`Ledger::dense`] | numbers close together | O(1) |
//! | [`Ledger::ordered`] | numbers, names | O(log n) |
//! | [`Ledger::hashed`] | names that an attacker may choose | O(1) expected |
//!
//! Fixed deadlines cost O(log n) each; all other operations are O(1).

mod index;

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{KeyedMap, SeededRng, Time, keyed_map};

use crate::path::PathId;
pub(crate) use index::MAX_SPAN;
use index::NIL;
pub use index::{Dense, Index, Key, Slot};

/// The transmissions of an Interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The time of the first one.
    pub first_at: Time,
    /// The time of the last one.
    pub at: Time,
    /// The path of the last one.
    pub path: PathId,
    /// Nonce of the last transmission, which a Nack returns.
    pub nonce: u32,
    /// When its answer is overdue; `None` if its path's timeout decides.
    pub deadline: Option<Time>,
    /// Sequence number over the transmissions of all Interests of a ledger: the lower one was sent
    /// first.
    pub order: u64,
    /// The number of transmissions.
    pub transmissions: u32,
    /// The number of these that count as retries.
    pub retries: u32,
    /// They took more than one path.
    pub moved: bool,
}

impl Sent {
    /// Returns the first transmission of an Interest.
    pub const fn first(now: Time, path: PathId, nonce: u32, deadline: Option<Time>) -> Sent {
        Sent {
            first_at: now,
            at: now,
            path,
            nonce,
            deadline,
            order: 0,
            transmissions: 1,
            retries: 0,
            moved: false,
        }
    }

    /// Returns a further transmission of the same Interest; `counted` as a retry.
    pub const fn again(
        self,
        now: Time,
        path: PathId,
        nonce: u32,
        deadline: Option<Time>,
        counted: bool,
    ) -> Sent {
        Sent {
            at: now,
            path,
            nonce,
            deadline,
            transmissions: self.transmissions + 1,
            retries: self.retries + counted as u32,
            moved: self.moved || self.path.0 != path.0,
            ..self
        }
    }
}

/// Whether an answer may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It may.
    InFlight,
    /// It must be retransmitted.
    Lost {
        /// The retransmission counts as a retry.
        counted: bool,
    },
}

/// A pending Interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// Its transmissions.
    pub sent: Sent,
    /// Whether it is in flight.
    pub status: Status,
    /// The owner's data.
    pub data: T,
}

struct Row<K, T> {
    key: K,
    entry: Entry<T>,
    /// Neighbours in the list of its path and status.
    before: Slot,
    after: Slot,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: Slot,
    last: Slot,
}

const EMPTY: List = List {
    first: NIL,
    last: NIL,
};

/// A path's Interests, by their status.
#[derive(Clone, Copy, Debug)]
struct Lane {
    in_flight: List,
    lost: List,
}

/// Pending Interests, each with data of type `T`; see the module.
pub struct Ledger<K, T, I> {
    index: I,
    rows: Vec<Option<Row<K, T>>>,
    free: Vec<Slot>,
    lanes: Vec<Lane>,
    /// Fixed deadlines of those in flight; equal ones are ordered by transmission.
    deadlines: BTreeSet<(Time, u64, Slot)>,
    in_flight: usize,
    next_order: u64,
    limit: usize,
}

/// A ledger of numbers that lie close together.
pub type DenseLedger<T> = Ledger<u64, T, Dense>;
/// A ledger whose keys have an order.
pub type OrderedLedger<K, T> = Ledger<K, T, BTreeMap<K, Slot>>;
/// A ledger of keys that an attacker may choose.
pub type HashedLedger<K, T> = Ledger<K, T, KeyedMap<K, Slot>>;

impl<T> DenseLedger<T> {
    /// Returns a ledger of at most `limit` Interests.
    pub fn dense(limit: usize) -> DenseLedger<T> {
        Ledger::new(Dense::default(), limit)
    }
}

impl<K: Key + Ord, T> OrderedLedger<K, T>
where
    K::Query: Ord,
{
    /// Returns a ledger of at most `limit` Interests.
    pub fn ordered(limit: usize) -> OrderedLedger<K, T> {
        Ledger::new(BTreeMap::new(), limit)
    }
}

impl<K: Key + core::hash::Hash + Eq, T> HashedLedger<K, T>
where
    K::Query: core::hash::Hash + Eq,
{
    /// Returns a ledger of at most `limit` Interests.
    pub fn hashed(limit: usize, rng: &mut SeededRng) -> HashedLedger<K, T> {
        Ledger::new(keyed_map(rng), limit)
    }
}

impl<K: Key, T, I: Index<K>> Ledger<K, T, I> {
    fn new(index: I, limit: usize) -> Ledger<K, T, I> {
        Ledger {
            index,
            rows: Vec::new(),
            free: Vec::new(),
            lanes: Vec::new(),
            deadlines: BTreeSet::new(),
            in_flight: 0,
            next_order: 0,
            limit: limit.min(NIL as usize),
        }
    }

    /// Interests in flight and lost ones.
    pub fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    /// Returns true if there are no pending Interests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the ledger is full.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Interests in flight.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the entry of `key`.
    pub fn get(&self, key: &K::Query) -> Option<&Entry<T>> {
        self.row(self.index.get(key)?).map(|row| &row.entry)
    }

    /// The owner's data for `key`.
    pub fn data_mut(&mut self, key: &K::Query) -> Option<&mut T> {
        let slot = self.index.get(key)?;
        self.row_mut(slot).map(|row| &mut row.entry.data)
    }

    /// Adds an Interest that is sent for the first time. Returns false and adds nothing if the key
    /// is pending already or the ledger is full.
    pub fn send(&mut self, key: K, sent: Sent, data: T) -> bool {
        if self.is_full() || self.index.get(key.borrow()).is_some() {
            return false;
        }
        let slot = self.free.last().copied().unwrap_or(self.rows.len() as Slot);
        if !self.index.insert(&key, slot) {
            return false;
        }
        let entry = Entry {
            sent: self.numbered(sent),
            status: Status::InFlight,
            data,
        };
        let row = Some(Row {
            key,
            entry,
            before: NIL,
            after: NIL,
        });
        if self.free.pop().is_some() {
            if let Some(place) = self.rows.get_mut(slot as usize) {
                *place = row;
            }
        } else {
            self.rows.push(row);
        }
        self.link(slot);
        true
    }

    /// Records a further transmission of a pending Interest, lost or not; returns its updated
    /// record.
    pub fn send_again(
        &mut self,
        key: &K::Query,
        now: Time,
        path: PathId,
        nonce: u32,
        deadline: Option<Time>,
    ) -> Option<Sent> {
        let slot = self.index.get(key)?;
        let entry = &self.row(slot)?.entry;
        let counted = !matches!(entry.status, Status::Lost { counted: false });
        let sent = entry.sent.again(now, path, nonce, deadline, counted);
        self.unlink(slot);
        let sent = self.numbered(sent);
        let row = self.row_mut(slot)?;
        (row.entry.sent, row.entry.status) = (sent, Status::InFlight);
        self.link(slot);
        Some(sent)
    }

    /// Declares an Interest in flight lost; `counted` if its retransmission counts as a retry.
    /// Returns true if it was in flight.
    pub fn lose(&mut self, key: &K::Query, counted: bool) -> bool {
        let Some(slot) = self.index.get(key) else {
            return false;
        };
        let in_flight = |row: &Row<K, T>| row.entry.status == Status::InFlight;
        if !self.row(slot).is_some_and(in_flight) {
            return false;
        }
        self.unlink(slot);
        if let Some(row) = self.row_mut(slot) {
            row.entry.status = Status::Lost { counted };
        }
        self.link(slot);
        true
    }

    /// Removes an Interest: it was answered or abandoned.
    pub fn take(&mut self, key: &K::Query) -> Option<Entry<T>> {
        let slot = self.index.remove(key)?;
        self.unlink(slot);
        let row = self.rows.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(row.entry)
    }

    /// Removes all.
    pub fn clear(&mut self) {
        let keys: Vec<K> = self
            .rows
            .iter()
            .flatten()
            .map(|row| row.key.clone())
            .collect();
        keys.iter().for_each(|key| drop(self.take(key.borrow())));
    }

    /// Returns the oldest of those in flight on `path`.
    pub fn oldest(&self, path: PathId) -> Option<(&K, &Sent)> {
        self.first_of(self.lanes.get(path.index())?.in_flight)
    }

    /// Returns the first of those lost on `path`.
    pub fn first_lost(&self, path: PathId) -> Option<(&K, &Sent)> {
        self.first_of(self.lanes.get(path.index())?.lost)
    }

    /// The first of those in flight whose fixed deadline has passed.
    pub fn overdue(&self, now: Time) -> Option<(&K, &Sent)> {
        let (at, _, slot) = *self.deadlines.first()?;
        let row = self.row(slot).filter(|_| at <= now)?;
        Some((&row.key, &row.entry.sent))
    }

    /// Returns the earliest fixed deadline of those in flight.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(at, ..)| *at)
    }

    fn row(&self, slot: Slot) -> Option<&Row<K, T>> {
        self.rows.get(slot as usize)?.as_ref()
    }

    fn row_mut(&mut self, slot: Slot) -> Option<&mut Row<K, T>> {
        self.rows.get_mut(slot as usize)?.as_mut()
    }

    fn first_of(&self, list: List) -> Option<(&K, &Sent)> {
        self.row(list.first).map(|row| (&row.key, &row.entry.sent))
    }

    fn numbered(&mut self, sent: Sent) -> Sent {
        let order = self.next_order;
        self.next_order += 1;
        Sent { order, ..sent }
    }

    fn list(&mut self, path: PathId, status: Status) -> Option<&mut List> {
        while self.lanes.len() <= path.index() {
            self.lanes.push(Lane {
                in_flight: EMPTY,
                lost: EMPTY,
            });
        }
        let lane = self.lanes.get_mut(path.index())?;
        Some(match status {
            Status::InFlight => &mut lane.in_flight,
            Status::Lost { .. } => &mut lane.lost,
        })
    }

    /// Links the entry to the list of its path and status.
    fn link(&mut self, slot: Slot) {
        let Some(row) = self.row(slot) else {
            return;
        };
        let (sent, status) = (row.entry.sent, row.entry.status);
        let Some(list) = self.list(sent.path, status) else {
            return;
        };
        let before = core::mem::replace(&mut list.last, slot);
        if before == NIL {
            list.first = slot;
        } else if let Some(row) = self.row_mut(before) {
            row.after = slot;
        }
        if let Some(row) = self.row_mut(slot) {
            (row.before, row.after) = (before, NIL);
        }
        if status == Status::InFlight {
            self.in_flight += 1;
            if let Some(deadline) = sent.deadline {
                self.deadlines.insert((deadline, sent.order, slot));
            }
        }
    }

    fn unlink(&mut self, slot: Slot) {
        let Some(row) = self.row(slot) else {
            return;
        };
        let (before, after) = (row.before, row.after);
        let (sent, status) = (row.entry.sent, row.entry.status);
        match self.row_mut(before) {
            Some(row) => row.after = after,
            None => self
                .list(sent.path, status)
                .into_iter()
                .for_each(|list| list.first = after),
        }
        match self.row_mut(after) {
            Some(row) => row.before = before,
            None => self
                .list(sent.path, status)
                .into_iter()
                .for_each(|list| list.last = before),
        }
        if status == Status::InFlight {
            self.in_flight -= 1;
            if let Some(deadline) = sent.deadline {
                self.deadlines.remove(&(deadline, sent.order, slot));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    /// A list of everything, searched from end to end.
    #[derive(Default)]
    struct Model {
        entries: Vec<(u64, Entry<u32>)>,
        /// Keys of lost ones, in the order in which they were declared lost.
        lost: Vec<u64>,
        order: u64,
    }

    impl Model {
        fn find(&mut self, key: u64) -> Option<&mut Entry<u32>> {
            self.entries
                .iter_mut()
                .find(|(other, _)| *other == key)
                .map(|(_, entry)| entry)
        }

        fn in_flight(&self) -> impl Iterator<Item = (u64, Sent)> {
            let in_flight = |(key, entry): &(u64, Entry<u32>)| {
                (entry.status == Status::InFlight).then_some((*key, entry.sent))
            };
            self.entries.iter().filter_map(in_flight)
        }

        fn oldest(&self, path: PathId) -> Option<u64> {
            let on_path = self.in_flight().filter(|(_, sent)| sent.path == path);
            on_path
                .min_by_key(|(_, sent)| sent.order)
                .map(|(key, _)| key)
        }

        fn earliest(&self) -> Option<(Time, u64, u64)> {
            let fixed = |(key, sent): (u64, Sent)| Some((sent.deadline?, sent.order, key));
            self.in_flight().filter_map(fixed).min()
        }

        fn first_lost(&mut self, path: PathId) -> Option<u64> {
            let lost = self.lost.clone();
            lost.into_iter()
                .find(|key| self.find(*key).is_some_and(|entry| entry.sent.path == path))
        }
    }

    fn step<I: Index<u64>>(
        ledger: &mut Ledger<u64, u32, I>,
        model: &mut Model,
        limit: usize,
        now: Time,
        (action, key, path, wait): (u8, u64, u16, u64),
    ) -> Result<(), TestCaseError> {
        let path = PathId(path);
        // Half of the deadlines are fixed.
        let deadline = (wait % 2 == 0).then(|| now + Duration::from_nanos(wait));
        let nonce = wait as u32;
        match action {
            0 | 1 => {
                let fits = model.find(key).is_none() && model.entries.len() < limit;
                let sent = Sent::first(now, path, nonce, deadline);
                prop_assert_eq!(ledger.send(key, sent, nonce), fits);
                if fits {
                    let sent = Sent {
                        order: model.order,
                        ..sent
                    };
                    model.order += 1;
                    let status = Status::InFlight;
                    model.entries.push((
                        key,
                        Entry {
                            sent,
                            status,
                            data: nonce,
                        },
                    ));
                }
            }
            2 => {
                let order = model.order;
                let expected = model.find(key).map(|entry| {
                    let counted = entry.status != Status::Lost { counted: false };
                    let sent = entry.sent.again(now, path, nonce, deadline, counted);
                    entry.sent = Sent { order, ..sent };
                    entry.status = Status::InFlight;
                    entry.sent
                });
                model.order += u64::from(expected.is_some());
                model.lost.retain(|other| *other != key);
                prop_assert_eq!(
                    ledger.send_again(&key, now, path, nonce, deadline),
                    expected
                );
            }
            3 => {
                let counted = wait % 3 == 0;
                let in_flight = model
                    .find(key)
                    .filter(|entry| entry.status == Status::InFlight);
                let found = in_flight.map(|entry| entry.status = Status::Lost { counted });
                prop_assert_eq!(ledger.lose(&key, counted), found.is_some());
                model.lost.extend(found.map(|()| key));
            }
            4 => {
                let expected = model.entries.iter().position(|(other, _)| *other == key);
                let expected = expected.map(|place| model.entries.remove(place).1);
                model.lost.retain(|other| *other != key);
                prop_assert_eq!(ledger.take(&key), expected);
            }
            5 => {
                let due = model
                    .earliest()
                    .filter(|(at, ..)| *at <= now)
                    .map(|(.., key)| key);
                let found = ledger.overdue(now).map(|(key, _)| *key);
                prop_assert_eq!(found, due);
                if let Some(key) = found {
                    ledger.take(&key);
                    model.entries.retain(|(other, _)| *other != key);
                }
            }
            _ if wait == 7 => {
                ledger.clear();
                model.entries.clear();
                model.lost.clear();
            }
            _ => {
                if let Some(data) = ledger.data_mut(&key) {
                    *data += 1;
                }
                model
                    .find(key)
                    .into_iter()
                    .for_each(|entry| entry.data += 1);
            }
        }
        agree(ledger, model)
    }

    fn agree<I: Index<u64>>(
        ledger: &Ledger<u64, u32, I>,
        model: &mut Model,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(ledger.len(), model.entries.len());
        prop_assert_eq!(ledger.is_empty(), model.entries.is_empty());
        prop_assert_eq!(ledger.in_flight(), model.in_flight().count());
        prop_assert_eq!(ledger.next_deadline(), model.earliest().map(|(at, ..)| at));
        for path in (0..4).map(PathId) {
            prop_assert_eq!(ledger.oldest(path).map(|(key, _)| *key), model.oldest(path));
            prop_assert_eq!(
                ledger.first_lost(path).map(|(key, _)| *key),
                model.first_lost(path)
            );
        }
        for key in 0..20 {
            prop_assert_eq!(ledger.get(&key), model.find(key).map(|entry| &*entry));
        }
        Ok(())
    }

    fn steps() -> impl Strategy<Value = Vec<(u8, u64, u16, u64)>> {
        prop::collection::vec((0u8..7, 0u64..20, 0u16..4, 0u64..40), 1..300)
    }

    fn run<I: Index<u64>>(
        mut ledger: Ledger<u64, u32, I>,
        limit: usize,
        steps: Vec<(u8, u64, u16, u64)>,
    ) -> Result<(), TestCaseError> {
        let mut model = Model::default();
        let mut now = Time::ZERO;
        for taken in steps {
            // Several steps share a time.
            now += Duration::from_nanos(taken.3 / 8);
            step(&mut ledger, &mut model, limit, now, taken)?;
        }
        prop_assert!(ledger.rows.len() <= limit, "rows are used again");
        Ok(())
    }

    proptest! {
        #[test]
        fn every_ledger_agrees_with_a_list(steps in steps(), limit in 1usize..24) {
            run(Ledger::dense(limit), limit, steps.clone())?;
            run(Ledger::ordered(limit), limit, steps.clone())?;
            run(Ledger::hashed(limit, &mut SeededRng::new(1)), limit, steps)?;
        }
    }
}
