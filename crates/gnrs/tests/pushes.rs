//! What watches may draw to an address, and how often one record changes.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use crate::support::{EPOCH, binding, drain, encoded, keys, up};
use whimbrel_core::{Guid, Machine, Medium, PortEvent, PortId, PortInfo, Time, WallClock};
use whimbrel_gnrs::wire::{Code, Frame, Message};
use whimbrel_gnrs::{MemoryStore, Record, Server, ServerConfig, StoreLimits};

const HOUR_MS: u64 = 3_600_000;
/// Where records come from.
const OWNER: PortId = PortId(9_999);

fn server() -> Server<MemoryStore> {
    let store = MemoryStore::new(StoreLimits::default());
    let mut server = Server::new(
        ServerConfig::default(),
        WallClock::new(EPOCH),
        [5; 32],
        store,
    );
    server.handle_port(Time::ZERO, OWNER, up());
    server
}

/// Ports of one address, from port 1 on.
fn open(server: &mut Server<MemoryStore>, ports: u32) {
    let PortEvent::Up(info) = up() else {
        unreachable!()
    };
    for port in 1..=ports {
        let medium = Medium::Udp {
            local: ([192, 0, 2, 250], 4720).into(),
            remote: ([192, 0, 2, 1], port as u16).into(),
            interface: None,
        };
        let up = PortEvent::Up(PortInfo {
            medium,
            ..info.clone()
        });
        server.handle_port(Time::ZERO, PortId(port), up);
    }
}

fn ask(server: &mut Server<MemoryStore>, now: Time, port: PortId, bytes: &[u8]) -> Vec<u8> {
    server.handle_frames(now, port, &[bytes]);
    let sent = drain(server, now);
    let mut answers = sent.into_iter().filter(|(to, _)| *to == port);
    answers.next().unwrap().1
}

fn cookie(server: &mut Server<MemoryStore>, now: Time, port: PortId) -> u64 {
    let guid = Guid([9; 32]);
    let (first, padding) = (0, 0);
    let request = encoded(
        0,
        Message::Lookup {
            guid,
            first,
            padding,
        },
    );
    Frame::decode(&ask(server, now, port, &request))
        .unwrap()
        .cookie
}

fn watch(server: &mut Server<MemoryStore>, port: PortId, guid: Guid) {
    let cookie = cookie(server, Time::ZERO, port);
    let lease_secs = 300;
    let request = encoded(cookie, Message::Watch { guid, lease_secs });
    let answer = ask(server, Time::ZERO, port, &request);
    assert!(matches!(
        Frame::decode(&answer).unwrap().message,
        Message::WatchAnswer { .. }
    ));
}

fn insert(server: &mut Server<MemoryStore>, now: Time, record: &Record) {
    let record = Record::parse(record.as_bytes()).unwrap();
    let request = encoded(0, Message::Insert { record });
    server.handle_frames(now, OWNER, &[&request]);
}

/// A push: to whom, its id, its name and the versions in it.
type Push = (PortId, u64, Guid, Vec<u64>);

/// Takes what the server sends to others than the owner of records.
fn pushes(server: &mut Server<MemoryStore>, now: Time) -> Vec<Push> {
    let sent = drain(server, now);
    let others = sent.iter().filter(|(to, _)| *to != OWNER);
    let push = |(to, bytes): &(PortId, Vec<u8>)| {
        let frame = Frame::decode(bytes).unwrap();
        let Message::Push { guid, records } = frame.message else {
            panic!("{frame:?}")
        };
        let versions = records.iter().map(|record| record.version()).collect();
        (*to, frame.id, guid, versions)
    };
    others.map(push).collect()
}

fn acknowledge(server: &mut Server<MemoryStore>, now: Time, cookie: u64, push: &Push) {
    let (port, id, guid, _) = push;
    let mut bytes = Vec::new();
    Frame::request(*id, cookie, Message::PushAck { guid: *guid }).encode(&mut bytes);
    server.handle_frames(now, *port, &[&bytes]);
}

/// Lets time pass until a minute before the leases end. Returns the pushes meanwhile.
fn wait(server: &mut Server<MemoryStore>) -> Vec<Push> {
    let mut sent = Vec::new();
    while let Some(due) = server
        .poll_timeout()
        .filter(|due| due.at < Time::from_secs(240))
    {
        server.handle_timeout(due.at);
        sent.extend(pushes(server, due.at));
    }
    sent
}

#[test]
fn a_silent_address_draws_few_pushes_however_many_watches_it_has() {
    let mut server = server();
    open(&mut server, 3_000);
    let guid = keys(1).guid();
    for port in 1..=3_000 {
        watch(&mut server, PortId(port), guid);
    }
    insert(&mut server, Time::ZERO, &binding(1, 1, HOUR_MS, vec![]));
    let mut sent = pushes(&mut server, Time::ZERO);
    assert_eq!(sent.len(), 4);
    // Each port is given up after eight tries, and never more than four are asked at a time.
    sent.extend(wait(&mut server));
    assert!(server.counters().pushes_given_up > 0);
    assert!(sent.len() < 3_000, "{}", sent.len());
}

#[test]
fn a_client_that_acknowledges_gets_the_changes_of_all_its_names() {
    let mut server = server();
    open(&mut server, 1);
    let names: Vec<Guid> = (1..=100).map(|key| keys(key).guid()).collect();
    names
        .iter()
        .for_each(|guid| watch(&mut server, PortId(1), *guid));
    let mine = cookie(&mut server, Time::ZERO, PortId(1));
    for key in 1..=100 {
        insert(&mut server, Time::ZERO, &binding(key, 1, HOUR_MS, vec![]));
    }
    let mut now = Time::ZERO;
    let mut got: Vec<Guid> = Vec::new();
    let mut rounds = 0;
    loop {
        let sent = pushes(&mut server, now);
        if sent.is_empty() {
            break;
        }
        rounds += 1;
        now += Duration::from_millis(5);
        for push in &sent {
            got.push(push.2);
            acknowledge(&mut server, now, mine, push);
        }
    }
    got.sort();
    let mut names = names;
    names.sort();
    assert_eq!(got, names);
    // Each acknowledgement allows one more, as in the start of a TCP.
    assert!(rounds < 8, "{rounds}");
    assert_eq!(server.counters().pushes_repeated, 0);
}

#[test]
fn changes_wait_for_the_acknowledgement_of_the_push_before() {
    let mut server = server();
    open(&mut server, 1);
    let guid = keys(1).guid();
    watch(&mut server, PortId(1), guid);
    let mine = cookie(&mut server, Time::ZERO, PortId(1));
    let mut sent = Vec::new();
    for version in 1..=5 {
        insert(
            &mut server,
            Time::ZERO,
            &binding(1, version, HOUR_MS, vec![]),
        );
        sent.extend(pushes(&mut server, Time::ZERO));
    }
    assert_eq!((sent.len(), &sent[0].3[..]), (1, &[1][..]));
    let now = Time::from_millis(1);
    acknowledge(&mut server, now, mine, &sent[0]);
    let next = pushes(&mut server, now);
    assert_eq!((next.len(), &next[0].3[..]), (1, &[5][..]));
    acknowledge(&mut server, now, mine, &next[0]);
    assert!(pushes(&mut server, now).is_empty());
}

#[test]
fn a_client_that_was_silent_gets_what_it_missed_when_it_is_heard() {
    let mut server = server();
    open(&mut server, 1);
    let guid = keys(1).guid();
    watch(&mut server, PortId(1), guid);
    insert(&mut server, Time::ZERO, &binding(1, 1, HOUR_MS, vec![]));
    assert_eq!(
        pushes(&mut server, Time::ZERO).len() + wait(&mut server).len(),
        8
    );
    // A further change goes nowhere.
    let now = Time::from_secs(250);
    insert(&mut server, now, &binding(1, 2, HOUR_MS, vec![]));
    assert!(pushes(&mut server, now).is_empty());
    let cookie = cookie(&mut server, now, PortId(1));
    let probe = Message::Lookup {
        guid: Guid::NONE,
        first: 0,
        padding: 0,
    };
    server.handle_frames(now, PortId(1), &[&encoded(cookie, probe)]);
    let sent = drain(&mut server, now);
    let pushed = sent
        .iter()
        .filter_map(|(_, bytes)| match Frame::decode(bytes).unwrap().message {
            Message::Push { records, .. } => Some(records.iter().map(|it| it.version()).collect()),
            _ => None,
        });
    assert_eq!(pushed.collect::<Vec<Vec<u64>>>(), [[2]]);
}

#[test]
fn a_cookie_of_one_who_was_at_the_address_before_is_refused() {
    let mut server = server();
    open(&mut server, 1);
    let told = cookie(&mut server, Time::ZERO, PortId(1));
    let (guid, lease_secs) = (keys(1).guid(), 300);
    let request = encoded(told, Message::Watch { guid, lease_secs });
    let mut code = |seconds| {
        let answer = ask(&mut server, Time::from_secs(seconds), PortId(1), &request);
        assert!(seconds < 32 || answer.len() <= request.len());
        Frame::decode(&answer).unwrap().code
    };
    assert_eq!(
        [0, 31, 32, 299].map(&mut code),
        [
            Code::NotFound,
            Code::NotFound,
            Code::NeedCookie,
            Code::NeedCookie,
        ]
    );
}

#[test]
fn a_record_changes_at_most_four_times_a_second_and_others_as_before() {
    let mut server = server();
    let mut code = |now, record: &Record| {
        let record = Record::parse(record.as_bytes()).unwrap();
        let request = encoded(0, Message::Insert { record });
        Frame::decode(&ask(&mut server, now, OWNER, &request))
            .unwrap()
            .code
    };
    let now = Time::from_secs(1);
    let codes: Vec<Code> = (1..=100)
        .map(|version| code(now, &binding(1, version, HOUR_MS, vec![])))
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == Code::Ok).count(), 32);
    assert_eq!(codes[99], Code::StoreFailed);
    assert_eq!(code(now, &binding(2, 1, HOUR_MS, vec![])), Code::Ok);
    let later = Time::from_secs(2);
    let codes: Vec<Code> = (101..=110)
        .map(|version| code(later, &binding(1, version, HOUR_MS, vec![])))
        .collect();
    assert_eq!(codes.iter().filter(|code| **code == Code::Ok).count(), 4);
}
