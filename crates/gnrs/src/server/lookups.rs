//! Lookups: answered from what is at hand, or when the store has read the name.

use std::collections::BTreeMap;

use whimbrel_core::{Guid, PortId, Time};

use super::Server;
use super::peers::PeerAnswer;
use super::waiting::{Asked, Reader, Wants};
use crate::record::{Record, RecordKey};
use crate::store::{Outcome, Put, PutResult, Request, Store};
use crate::wire::{Code, Frame, Message, OWN_RECORDS, Page};

impl<S: Store> Server<S> {
    /// Fills `self.page` with the records at hand from index `first` on. Returns whether there are
    /// more, or `None` if they are not at hand.
    fn collect_page(&mut self, now: Time, guid: &Guid, first: u16) -> Option<bool> {
        self.page.clear();
        let (mut index, mut more) = (0, false);
        let page = &mut self.page;
        let now_ms = self.clock.unix_millis(now);
        let at_hand = self.store.visit(guid, now_ms, &mut |record| {
            more = index >= u32::from(first) && !page.push(record);
            index += 1;
            !more
        });
        at_hand.then_some(more)
    }

    /// The same with records that the store has read.
    fn page_of(&mut self, now: Time, records: &[Record], first: u16) -> bool {
        let now_ms = self.now_ms(now);
        self.page.clear();
        let living = records.iter().filter(|it| !it.is_expired(now_ms));
        for record in living.skip(first.into()) {
            if !self.page.push(record) {
                return true;
            }
        }
        false
    }

    /// Answers with at most `most` bytes.
    pub(super) fn lookup(
        &mut self,
        now: Time,
        port: PortId,
        id: u64,
        most: usize,
        guid: Guid,
        first: u16,
    ) {
        self.counters.lookups += 1;
        let is_own = first & OWN_RECORDS != 0 || guid.is_none();
        let first = first & !OWN_RECORDS;
        match self.collect_page(now, &guid, first) {
            Some(_) if !is_own && first == 0 && self.lacks(&guid) => {
                self.ask_peers(now, port, id, guid, Wants::Lookup { first, most });
            }
            Some(more) => self.answer_lookup(port, id, most, guid, (first, more)),
            None => self.read(now, port, id, guid, Wants::Lookup { first, most }),
        }
    }

    /// Answers a watch with the initial state.
    pub(super) fn begin_watch(
        &mut self,
        now: Time,
        port: PortId,
        id: u64,
        guid: Guid,
        lease_secs: u32,
    ) {
        match self.collect_page(now, &guid, 0) {
            Some(_) if self.lacks(&guid) => {
                self.ask_peers(now, port, id, guid, Wants::Watch { lease_secs });
            }
            Some(more) => self.answer_watch(port, id, guid, lease_secs, more),
            None => self.read(now, port, id, guid, Wants::Watch { lease_secs }),
        }
    }

    /// Has the store read a name, once for all that wait for it.
    fn read(&mut self, now: Time, port: PortId, id: u64, guid: Guid, wants: Wants) {
        if self.wait_for(port, id, guid, wants) {
            self.ask_store(now, Asked::Read(guid), Request::Read(guid));
        }
    }

    /// Has a client wait for the records of a name. Returns true if nobody else does.
    fn wait_for(&mut self, port: PortId, id: u64, guid: Guid, wants: Wants) -> bool {
        let Some(source) = self.ports.get(&port).map(|state| state.source) else {
            return false;
        };
        if !self.waiting.admit(source) {
            self.counters.busy += 1;
            self.refuse(port, id, Code::StoreFailed);
            return false;
        }
        let reader = Reader {
            port,
            source,
            id,
            wants,
        };
        self.waiting.add_reader(guid, reader)
    }

    /// Returns true if peers may know more of a name, whose page has been collected: this server has
    /// nothing, or it is none of those that have copies.
    fn lacks(&self, guid: &Guid) -> bool {
        let is_empty = self.page.list().is_empty();
        !self.peers.is_empty() && (is_empty || !self.peers.is_holder(guid))
    }

    /// Has the peers asked for a name, once for all that wait for it.
    fn ask_peers(&mut self, now: Time, port: PortId, id: u64, guid: Guid, wants: Wants) {
        self.peers.note_demand(now, guid);
        if self.wait_for(port, id, guid, wants) && !self.peers.ask(now, guid) {
            self.answer_readers(now, guid, None);
        }
    }

    /// Answers those that wait for a name with what its peers know and what is here, and keeps what is
    /// new.
    pub(super) fn take_from_peers(&mut self, now: Time, told: PeerAnswer) {
        let PeerAnswer { name, records } = told;
        let now_ms = self.now_ms(now);
        let mut newest: BTreeMap<RecordKey, Record> = BTreeMap::new();
        self.store.visit(&name, now_ms, &mut |record| {
            newest.insert(record.filed_under(), record.clone());
            true
        });
        let mut copies = Vec::new();
        for record in records {
            let known = newest.get(&record.filed_under());
            if known.is_none_or(|known| known.version() < record.version()) {
                copies.push(record.clone());
                newest.insert(record.filed_under(), record);
            }
        }
        let usage = self.store.usage();
        // What is not for this server to keep must not take the room of what is.
        let may_keep = self.peers.is_holder(&name) || usage.records <= usage.free;
        if may_keep && !copies.is_empty() {
            let puts = copies.iter().cloned().map(Put::from).collect();
            self.ask_store(now, Asked::Copy(copies), Request::Put(puts));
        }
        self.answer_readers(now, name, Some(newest.into_values().collect()));
    }

    /// Pushes those of some records that were new here.
    pub(super) fn copied(&mut self, now: Time, records: Vec<Record>, results: Vec<PutResult>) {
        for (record, result) in records.iter().zip(results) {
            if matches!(result, Ok(Outcome::Created | Outcome::Stored)) {
                self.push_change(now, record.filed_under());
            }
        }
    }

    /// The store has read a name, or cannot.
    pub(super) fn answer_readers(&mut self, now: Time, guid: Guid, records: Option<Vec<Record>>) {
        for reader in self.waiting.take_readers(&guid) {
            let Some(records) = &records else {
                self.refuse(reader.port, reader.id, Code::StoreFailed);
                continue;
            };
            match reader.wants {
                Wants::Lookup { first, most } => {
                    let more = self.page_of(now, records, first);
                    self.answer_lookup(reader.port, reader.id, most, guid, (first, more));
                }
                Wants::Watch { lease_secs } => {
                    let more = self.page_of(now, records, 0);
                    self.answer_watch(reader.port, reader.id, guid, lease_secs, more);
                }
            }
        }
    }

    /// Returns the page of records from index `first` on, and whether the name is known.
    fn found(&self, first: u16, more: bool) -> (Code, Page<'_>) {
        let records = self.page.list();
        let code = match records.is_empty() && first == 0 {
            true => Code::NotFound,
            false => Code::Ok,
        };
        let page = Page {
            first,
            more,
            records,
        };
        (code, page)
    }

    fn answer_lookup(
        &mut self,
        port: PortId,
        id: u64,
        most: usize,
        guid: Guid,
        (first, more): (u16, bool),
    ) {
        let Some(cookie) = self.ports.get(&port).map(|state| state.cookies.present) else {
            return;
        };
        let (code, page) = self.found(first, more);
        let mut bytes = Vec::new();
        Frame {
            id,
            cookie,
            code,
            message: Message::LookupAnswer { guid, page },
        }
        .encode(&mut bytes);
        if bytes.len() > most {
            self.refuse(port, id, Code::NeedCookie);
            return;
        }
        if code == Code::NotFound {
            self.counters.not_found += 1;
        }
        self.queue(port, bytes);
    }

    fn answer_watch(&mut self, port: PortId, id: u64, guid: Guid, lease_secs: u32, more: bool) {
        let Some(cookie) = self.ports.get(&port).map(|state| state.cookies.present) else {
            return;
        };
        let (code, page) = self.found(0, more);
        let mut bytes = Vec::new();
        Frame {
            id,
            cookie,
            code,
            message: Message::WatchAnswer {
                guid,
                lease_secs,
                page,
            },
        }
        .encode(&mut bytes);
        self.queue(port, bytes);
    }
}
