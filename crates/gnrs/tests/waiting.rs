//! A server whose store answers late, or not at all.

#![allow(clippy::unwrap_used, reason = "a test")]

use crate::support::{
    CLIENT, EPOCH, HOUR_MS, binding, drain, encoded, insert, keys, router, server_over, up,
};
use whimbrel_core::{Guid, Machine, PortId, Time};
use whimbrel_gnrs::store::{Reply, Request, StoreEvent, Usage};
use whimbrel_gnrs::wire::{Code, Frame, Message};
use whimbrel_gnrs::{
    MemoryStore, Record, RecordKey, Server, ServerConfig, ServerEvent, Store, StoreError,
    StoreLimits,
};

/// A store that refuses its first update, and answers reads when it is let.
#[derive(Debug)]
struct Reluctant {
    memory: MemoryStore,
    full: bool,
    at_hand: bool,
    held: Vec<(u64, Request)>,
    refused: Option<StoreEvent>,
}

impl Reluctant {
    fn new() -> Reluctant {
        Reluctant {
            memory: MemoryStore::new(StoreLimits::default()),
            full: false,
            at_hand: true,
            held: Vec::new(),
            refused: None,
        }
    }

    fn answer(&mut self) {
        for (ticket, request) in std::mem::take(&mut self.held) {
            self.memory.submit(EPOCH, ticket, request);
        }
    }
}

impl Store for Reluctant {
    fn visit(&self, subject: &Guid, now_ms: u64, visit: &mut dyn FnMut(&Record) -> bool) -> bool {
        if self.at_hand {
            self.memory.visit(subject, now_ms, visit);
        }
        self.at_hand
    }

    fn get(&self, key: &RecordKey) -> Option<Record> {
        self.memory.get(key).filter(|_| self.at_hand)
    }

    fn submit(&mut self, now_ms: u64, ticket: u64, request: Request) {
        if std::mem::take(&mut self.full) {
            let reply = Reply::Put(Err(StoreError::Io("disk full".into())));
            self.refused = Some(StoreEvent::Reply(ticket, reply));
        } else if self.at_hand {
            self.memory.submit(now_ms, ticket, request);
        } else {
            self.held.push((ticket, request));
        }
    }

    fn poll(&mut self, now_ms: u64) -> Option<StoreEvent> {
        let refused = self.refused.take();
        refused.or_else(|| self.memory.poll(now_ms))
    }

    fn usage(&self) -> Usage {
        self.memory.usage()
    }
}

#[test]
fn lookups_share_one_read_and_wait_for_it_without_delaying_others() {
    let mut store = Reluctant::new();
    store.at_hand = false;
    let mut server = server_over(ServerConfig::default(), store);
    let record = binding(1, 1, HOUR_MS, vec![router(1)]);
    let (guid, first) = (keys(1).guid(), 0);
    let lookup = |padding| {
        encoded(
            0,
            Message::Lookup {
                guid,
                first,
                padding,
            },
        )
    };
    let update = encoded(
        0,
        Message::Insert {
            record: Record::parse(record.as_bytes()).unwrap(),
        },
    );
    server.handle_frames(Time::ZERO, CLIENT, &[&lookup(400), &lookup(0), &update]);
    assert!(drain(&mut server, Time::ZERO).is_empty());
    assert_eq!(server.status(Time::ZERO).waiting, 3);
    // The name is read once, and the update is stored.
    let held = &mut server.store_mut().held;
    assert_eq!(held.len(), 2);
    held.rotate_left(1);
    server.store_mut().answer();
    let codes: Vec<Code> = drain(&mut server, Time::ZERO)
        .iter()
        .map(|(_, frame)| Frame::decode(frame).unwrap().code)
        .collect();
    // The answer to the short request is no longer than the request.
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::NeedCookie]);
    assert_eq!(server.status(Time::ZERO).waiting, 0);
}

#[test]
fn a_busy_store_is_told_and_one_source_leaves_room_for_another() {
    let mut store = Reluctant::new();
    store.at_hand = false;
    let config = ServerConfig {
        max_waiting: 80,
        ..ServerConfig::default()
    };
    let mut server = server_over(config, store);
    let other = PortId(2);
    server.handle_port(Time::ZERO, other, up());
    let ask_for = |server: &mut Server<Reluctant>, port, number: u8| {
        let guid = Guid([number; 32]);
        let (first, padding) = (0, 0);
        let lookup = encoded(
            0,
            Message::Lookup {
                guid,
                first,
                padding,
            },
        );
        server.handle_frames(Time::ZERO, port, &[&lookup]);
        let mut sent = drain(server, Time::ZERO);
        sent.pop()
            .map(|(_, frame)| Frame::decode(&frame).unwrap().code)
    };
    let codes: Vec<_> = (1..20).map(|it| ask_for(&mut server, CLIENT, it)).collect();
    assert!(codes[..10].iter().all(Option::is_none));
    assert!(
        codes[10..]
            .iter()
            .all(|code| *code == Some(Code::StoreFailed))
    );
    assert_eq!(server.counters().busy, 9);
    assert_eq!(ask_for(&mut server, other, 30), None);
    server.store_mut().answer();
    assert_eq!(drain(&mut server, Time::ZERO).len(), 11);
    assert_eq!(ask_for(&mut server, CLIENT, 40), None);
}

#[test]
fn an_update_that_cannot_be_written_is_refused_and_the_server_lives() {
    let mut store = Reluctant::new();
    store.full = true;
    let mut server = server_over(ServerConfig::default(), store);
    let record = binding(1, 1, HOUR_MS, vec![]);
    assert_eq!(insert(&mut server, record.as_bytes()), Code::StoreFailed);
    assert_eq!(
        server.poll_event(),
        Some(ServerEvent::StoreFailed(StoreError::Io("disk full".into())))
    );
    assert_eq!(insert(&mut server, record.as_bytes()), Code::Ok);
    assert_eq!(server.poll_event(), Some(ServerEvent::StoreRecovered));
    assert_eq!(server.poll_event(), None);
}
