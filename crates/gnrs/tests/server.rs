//! The server alone, with hostile clients and failing disks.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use crate::support::{
    CLIENT, EPOCH, HOUR_MS, ask, binding, drain, encoded, insert, keys, router, said, server_over,
    up,
};
use proptest::prelude::*;
use whimbrel_core::{Guid, Machine, Medium, PortEvent, PortId, PortInfo, Time};
use whimbrel_gnrs::wire::{Code, Frame, MAX_FRAME, MIN_FRAME, Message};
use whimbrel_gnrs::{
    GroupAdmission, KeyPair, MAX_MEMBERS, MemoryStore, Record, RecordKey, Server, ServerConfig,
    Statement, Store, StoreLimits,
};

fn server() -> Server<MemoryStore> {
    server_over(
        ServerConfig::default(),
        MemoryStore::new(StoreLimits::default()),
    )
}

fn cookie<S: Store>(server: &mut Server<S>, port: PortId) -> u64 {
    let request = encoded(
        0,
        Message::Lookup {
            guid: Guid([9; 32]),
            first: 0,
            padding: 0,
        },
    );
    Frame::decode(&ask(server, port, &request)).unwrap().cookie
}

#[test]
fn forged_replayed_and_stale_updates_change_nothing_and_are_counted_by_reason() {
    let mut server = server();
    let first = binding(1, 1, HOUR_MS, vec![router(1)]);
    let second = binding(1, 2, HOUR_MS, vec![router(2)]);
    assert_eq!(insert(&mut server, first.as_bytes()), Code::Ok);
    assert_eq!(insert(&mut server, second.as_bytes()), Code::Ok);
    assert_eq!(insert(&mut server, second.as_bytes()), Code::Ok, "repeated");
    assert_eq!(
        insert(&mut server, first.as_bytes()),
        Code::Stale,
        "replayed"
    );

    let mut forged = binding(1, 3, HOUR_MS, vec![router(3)]).as_bytes().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(insert(&mut server, &forged), Code::BadSignature);
    let mut stolen = binding(2, 9, HOUR_MS, vec![]).as_bytes().to_vec();
    stolen[4..36].copy_from_slice(&keys(1).guid().0);
    assert_eq!(insert(&mut server, &stolen), Code::WrongKey);
    assert_eq!(
        insert(&mut server, binding(1, 2, HOUR_MS, vec![]).as_bytes()),
        Code::Conflict
    );
    let future = Statement {
        issued_ms: EPOCH + HOUR_MS,
        expires_ms: EPOCH + 2 * HOUR_MS,
        ..said(4, 1, vec![])
    };
    assert_eq!(
        insert(
            &mut server,
            Record::binding(&keys(1), &future).unwrap().as_bytes()
        ),
        Code::FromTheFuture
    );
    let past = Statement {
        issued_ms: EPOCH - HOUR_MS,
        expires_ms: EPOCH,
        ..said(4, 1, vec![])
    };
    assert_eq!(
        insert(
            &mut server,
            Record::binding(&keys(1), &past).unwrap().as_bytes()
        ),
        Code::Expired
    );

    assert_eq!(
        server.store().get(&RecordKey::binding(keys(1).guid())),
        Some(second)
    );
    assert_eq!(server.store().len(), 1);
    let refused = &server.counters().refused;
    let reasons = [
        Code::Stale,
        Code::Conflict,
        Code::BadSignature,
        Code::WrongKey,
        Code::Expired,
        Code::FromTheFuture,
    ];
    assert_eq!(refused.keys().copied().collect::<Vec<_>>(), reasons);
    assert!(refused.values().all(|count| *count == 1));
}

#[test]
fn a_provider_changes_its_own_entry_only() {
    let mut server = server();
    let content = Guid([7; 32]);
    let of = |owner, version| {
        Record::provider(
            &keys(owner),
            content,
            &said(version, HOUR_MS, vec![router(owner)]),
        )
        .unwrap()
    };
    assert_eq!(insert(&mut server, of(1, 5).as_bytes()), Code::Ok);
    assert_eq!(insert(&mut server, of(2, 9).as_bytes()), Code::Ok);
    let mut both = vec![of(1, 5), of(2, 9)];
    both.sort_by_key(Record::filed_under);
    assert_eq!(server.store().providers(&content, EPOCH), both);
}

#[test]
fn updates_of_one_round_are_one_transaction() {
    let mut server = server();
    for owner in 0..10 {
        let record = binding(owner, 1, HOUR_MS, vec![]);
        let request = encoded(
            0,
            Message::Insert {
                record: Record::parse(record.as_bytes()).unwrap(),
            },
        );
        server.handle_frames(Time::ZERO, CLIENT, &[&request]);
        assert_eq!(
            server.store().len(),
            0,
            "nothing is stored before the round ends"
        );
    }
    assert_eq!(drain(&mut server, Time::ZERO).len(), 10);
    assert_eq!((server.store().len(), server.counters().commits), (10, 1));
}

#[test]
fn a_watch_needs_the_cookie_of_its_own_client() {
    let mut server = server();
    let other = PortId(2);
    server.handle_port(Time::ZERO, other, up());
    let guid = keys(1).guid();
    let mine = cookie(&mut server, CLIENT);
    let theirs = cookie(&mut server, other);
    assert_ne!(mine, theirs);
    for wrong in [0, theirs] {
        let answer = ask(
            &mut server,
            CLIENT,
            &encoded(
                wrong,
                Message::Watch {
                    guid,
                    lease_secs: 60,
                },
            ),
        );
        let answer = Frame::decode(&answer).unwrap();
        assert_eq!((answer.code, answer.cookie), (Code::NeedCookie, mine));
    }
    let answer = ask(
        &mut server,
        CLIENT,
        &encoded(
            mine,
            Message::Watch {
                guid,
                lease_secs: 60,
            },
        ),
    );
    assert!(matches!(
        Frame::decode(&answer).unwrap().message,
        Message::WatchAnswer { lease_secs: 60, .. }
    ));
}

#[test]
fn a_long_answer_needs_a_cookie() {
    let mut server = server();
    for owner in 0..9 {
        let record =
            Record::provider(&keys(owner), Guid([7; 32]), &said(1, HOUR_MS, vec![])).unwrap();
        insert(&mut server, record.as_bytes());
    }
    let lookup = |padding| Message::Lookup {
        guid: Guid([7; 32]),
        first: 0,
        padding,
    };
    assert_eq!(
        Frame::decode(&ask(&mut server, CLIENT, &encoded(0, lookup(0))))
            .unwrap()
            .code,
        Code::NeedCookie
    );
    let padded = encoded(0, lookup(MAX_FRAME - MIN_FRAME - 34));
    assert_eq!(
        Frame::decode(&ask(&mut server, CLIENT, &padded))
            .unwrap()
            .code,
        Code::Ok
    );
    let cookie = cookie(&mut server, CLIENT);
    let answer = ask(&mut server, CLIENT, &encoded(cookie, lookup(0)));
    let Message::LookupAnswer { page, .. } = Frame::decode(&answer).unwrap().message else {
        panic!()
    };
    assert!(page.more && page.records.len() < 9);
}

#[test]
fn an_unanswered_push_is_repeated_with_growing_pauses_and_then_given_up() {
    let mut server = server();
    let cookie = cookie(&mut server, CLIENT);
    let guid = keys(1).guid();
    ask(
        &mut server,
        CLIENT,
        &encoded(
            cookie,
            Message::Watch {
                guid,
                lease_secs: 300,
            },
        ),
    );
    insert_and_count(&mut server, &binding(1, 1, HOUR_MS, vec![]), 2);
    let mut sent_at = vec![Time::ZERO];
    let mut now = Time::ZERO;
    while server.counters().pushes_given_up == 0 {
        now = server.poll_timeout().unwrap().at;
        server.handle_timeout(now);
        sent_at.extend(drain(&mut server, now).iter().map(|_| now));
    }
    assert_eq!(sent_at.len(), 8);
    let pauses: Vec<Duration> = sent_at
        .windows(2)
        .map(|pair| pair[1].since(pair[0]))
        .collect();
    assert!(pauses.is_sorted() && pauses[0] < pauses[6], "{pauses:?}");
    assert!(now < Time::from_secs(300));
    assert_eq!(
        server.watch_count(),
        1,
        "it has missed the change, and gets it when it is heard"
    );
}

fn insert_and_count(server: &mut Server<MemoryStore>, record: &Record, frames: usize) {
    let request = encoded(
        0,
        Message::Insert {
            record: Record::parse(record.as_bytes()).unwrap(),
        },
    );
    server.handle_frames(Time::ZERO, CLIENT, &[&request]);
    assert_eq!(drain(server, Time::ZERO).len(), frames);
}

#[test]
fn an_acknowledged_push_is_not_repeated_and_leases_end() {
    let mut server = server();
    let cookie = cookie(&mut server, CLIENT);
    let guid = keys(1).guid();
    ask(
        &mut server,
        CLIENT,
        &encoded(
            cookie,
            Message::Watch {
                guid,
                lease_secs: 60,
            },
        ),
    );
    let record = binding(1, 1, HOUR_MS, vec![]);
    let request = encoded(
        0,
        Message::Insert {
            record: Record::parse(record.as_bytes()).unwrap(),
        },
    );
    server.handle_frames(Time::ZERO, CLIENT, &[&request]);
    let sent = drain(&mut server, Time::ZERO);
    let mut push = sent.iter().map(|(_, bytes)| Frame::decode(bytes).unwrap());
    let push = push
        .rfind(|frame| matches!(frame.message, Message::Push { .. }))
        .unwrap();
    let mut ack = Vec::new();
    Frame::request(push.id, cookie, Message::PushAck { guid }).encode(&mut ack);
    server.handle_frames(Time::from_millis(1), CLIENT, &[&ack]);
    while server.watch_count() == 1 {
        let now = server.poll_timeout().unwrap().at;
        server.handle_timeout(now);
        assert!(drain(&mut server, now).is_empty());
        assert!(now <= Time::from_secs(60));
    }
    assert_eq!(server.counters().leases_ended, 1);
}

#[test]
fn watches_are_bounded_and_end_with_their_port() {
    let config = ServerConfig {
        max_watches: 3,
        max_watches_per_port: 2,
        ..ServerConfig::default()
    };
    let mut server = server_over(config, MemoryStore::new(StoreLimits::default()));
    server.handle_port(Time::ZERO, PortId(2), up());
    let mut codes = Vec::new();
    for (port, name) in [(1, 1), (1, 2), (1, 3), (1, 1), (2, 1), (2, 2)] {
        let cookie = cookie(&mut server, PortId(port));
        let request = encoded(
            cookie,
            Message::Watch {
                guid: Guid([name; 32]),
                lease_secs: 9,
            },
        );
        codes.push(
            Frame::decode(&ask(&mut server, PortId(port), &request))
                .unwrap()
                .code,
        );
    }
    use Code::{NotFound, TooManyWatches};
    assert_eq!(
        codes,
        [
            NotFound,
            NotFound,
            TooManyWatches,
            NotFound,
            NotFound,
            TooManyWatches
        ]
    );
    server.handle_port(Time::ZERO, PortId(1), PortEvent::Down);
    assert_eq!(server.watch_count(), 1);
}

/// Many ports of one address, as many watches as there are.
#[test]
fn watches_of_one_address_leave_room_for_those_of_another() {
    let config = ServerConfig {
        max_watches: 80,
        max_watches_per_port: 10,
        ..ServerConfig::default()
    };
    let mut server = server_over(config, MemoryStore::new(StoreLimits::default()));
    let at = |address: [u8; 4], port: u16| {
        let PortEvent::Up(info) = up() else {
            unreachable!()
        };
        PortEvent::Up(PortInfo {
            medium: Medium::Udp {
                local: ([192, 0, 2, 250], 4720).into(),
                remote: (address, port).into(),
                interface: None,
            },
            ..info
        })
    };
    let watch = |server: &mut Server<MemoryStore>, port: PortId, name: u8| {
        let guid = Guid([name; 32]);
        let lease_secs = 300;
        let request = encoded(cookie(server, port), Message::Watch { guid, lease_secs });
        server.handle_frames(Time::ZERO, port, &[&request]);
        let mut sent = drain(server, Time::ZERO);
        let answer = sent.iter().position(|(to, _)| *to == port).unwrap();
        let (_, answer) = sent.swap_remove(answer);
        (Frame::decode(&answer).unwrap().code, sent)
    };
    // Each address has a share, whatever its ports; eight of them take all there is.
    for address in 1..9 {
        for port in 0..5 {
            let number = PortId(100 * u32::from(address) + u32::from(port));
            server.handle_port(Time::ZERO, number, at([192, 0, 2, address], port));
            for name in 0..5 {
                watch(&mut server, number, 1 + name);
            }
        }
    }
    assert_eq!(server.watch_count(), 80);
    // Another one is served, who has most gives one up for it, and is told.
    let newcomer = PortId(7);
    server.handle_port(Time::ZERO, newcomer, at([198, 51, 100, 1], 1));
    for name in 0..5 {
        let (code, told) = watch(&mut server, newcomer, 100 + name);
        assert_eq!(code, Code::NotFound);
        let [(_, told)] = &told[..] else {
            panic!("{told:?}")
        };
        let told = Frame::decode(told).unwrap();
        assert!(matches!(told.message, Message::Push { records, .. } if records.is_empty()));
    }
    assert_eq!(server.watch_count(), 80);
    assert_eq!(server.counters().watches_ended, 5);
}

#[test]
fn a_blocked_client_gets_nothing_and_costs_a_bounded_queue() {
    let config = ServerConfig {
        max_queued_per_port: 4,
        ..ServerConfig::default()
    };
    let mut server = server_over(config, MemoryStore::new(StoreLimits::default()));
    server.handle_port(Time::ZERO, CLIENT, PortEvent::Blocked);
    let request = encoded(
        0,
        Message::Lookup {
            guid: Guid([9; 32]),
            first: 0,
            padding: 0,
        },
    );
    for _ in 0..10 {
        server.handle_frames(Time::ZERO, CLIENT, &[&request]);
    }
    assert!(drain(&mut server, Time::ZERO).is_empty());
    assert_eq!(server.counters().answers_dropped, 6);
    server.handle_port(Time::ZERO, CLIENT, PortEvent::Writable);
    assert_eq!(drain(&mut server, Time::ZERO).len(), 4);
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![
        Just(Guid([7; 32])),
        Just(keys(1).guid()),
        any::<[u8; 32]>().prop_map(Guid)
    ];
    (0u8..6, name, any::<u16>(), 0usize..600, 0u8..5).prop_map(
        |(kind, guid, first, padding, owner)| {
            let record = Record::provider(
                &keys(owner),
                Guid([7; 32]),
                &said(first.into(), HOUR_MS, vec![]),
            )
            .unwrap();
            let record = Record::parse(record.as_bytes()).unwrap();
            let message = match kind {
                0 | 1 => Message::Lookup {
                    guid,
                    first: first % 4,
                    padding,
                },
                2 => Message::Watch {
                    guid,
                    lease_secs: first.into(),
                },
                3 => Message::Unwatch { guid },
                4 => Message::PushAck { guid },
                _ => Message::Insert { record },
            };
            encoded(0, message)
        },
    )
}

proptest! {
    /// The server cannot be used to send more bytes to a victim than the attacker sends itself.
    #[test]
    fn a_source_without_a_cookie_never_gets_more_than_it_sent(
        requests in prop::collection::vec((message(), any::<prop::sample::Index>(), any::<bool>()), 1..30),
    ) {
        let mut server = server();
        for owner in 0..9 {
            let record = Record::provider(&keys(owner), Guid([7; 32]), &said(1, HOUR_MS, vec![router(1)])).unwrap();
            insert(&mut server, record.as_bytes());
        }
        for (mut bytes, at, damage) in requests {
            if damage {
                *at.get_mut(&mut bytes[..]) ^= 1;
            }
            server.handle_frames(Time::ZERO, CLIENT, &[&bytes]);
            let sent: usize = drain(&mut server, Time::ZERO).iter().map(|(_, frame)| frame.len()).sum();
            prop_assert!(sent <= bytes.len(), "{sent} bytes for {}", bytes.len());
        }
        prop_assert_eq!(server.watch_count(), 0);
    }

    #[test]
    fn any_frame_never_panics(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1300), 0..20)) {
        let mut server = server();
        for frame in &frames {
            server.handle_frames(Time::ZERO, CLIENT, &[frame]);
            server.handle_frames(Time::ZERO, PortId(99), &[frame]);
        }
        prop_assert_eq!(drain(&mut server, Time::ZERO), vec![]);
        let counters = server.counters();
        let bad = counters.damaged_frames + counters.malformed_frames + counters.frames_from_unknown_ports;
        prop_assert_eq!(bad, 2 * frames.len() as u64);
    }
}

fn insert_with<S: Store>(
    server: &mut Server<S>,
    (port, cookie): (PortId, u64),
    now: Time,
    record: &[u8],
) -> Option<Code> {
    let record = Record::parse(record).unwrap();
    let request = encoded(cookie, Message::Insert { record });
    server.handle_frames(now, port, &[&request]);
    let sent = drain(server, now);
    sent.first()
        .map(|(_, frame)| Frame::decode(frame).unwrap().code)
}

fn forged(number: u64) -> Vec<u8> {
    let mut bytes = binding(1, number, HOUR_MS, vec![router(1)])
        .as_bytes()
        .to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    bytes
}

/// Sources are easily forged: whoever has no cookie gets few checks, and is told how to prove itself.
#[test]
fn bad_signatures_of_unproven_sources_leave_room_for_proven_ones() {
    let mut server = server();
    let cookie = cookie(&mut server, CLIENT);
    let codes: Vec<_> = (0..1000)
        .map(|number| insert_with(&mut server, (CLIENT, 0), Time::ZERO, &forged(number)))
        .collect();
    let checked = codes.iter().filter(|it| **it == Some(Code::BadSignature));
    assert_eq!(checked.count(), 128);
    assert_eq!(codes[999], Some(Code::NeedCookie));
    let good = binding(2, 1, HOUR_MS, vec![router(1)]);
    let told = insert_with(&mut server, (CLIENT, cookie), Time::ZERO, good.as_bytes());
    assert_eq!(told, Some(Code::Ok));
    // A second later there is some room for unproven ones again.
    let good = binding(3, 1, HOUR_MS, vec![router(1)]);
    let told = insert_with(
        &mut server,
        (CLIENT, 0),
        Time::from_secs(1),
        good.as_bytes(),
    );
    assert_eq!(told, Some(Code::Ok));
}

#[test]
fn a_client_that_sends_bad_signatures_is_looked_at_less() {
    let mut server = server();
    let other = PortId(2);
    server.handle_port(Time::ZERO, other, up());
    let (mine, its) = (cookie(&mut server, CLIENT), cookie(&mut server, other));
    for number in 0..1000 {
        insert_with(&mut server, (CLIENT, mine), Time::ZERO, &forged(number));
    }
    assert_eq!(server.counters().refused_with(Code::BadSignature), 32);
    assert_eq!(server.counters().checks_refused, 968);
    let good = binding(2, 1, HOUR_MS, vec![router(1)]);
    let told = insert_with(&mut server, (other, its), Time::ZERO, good.as_bytes());
    assert_eq!(told, Some(Code::Ok));
    let good = binding(2, 2, HOUR_MS, vec![router(1)]);
    let later = Time::from_secs(1);
    let told = insert_with(&mut server, (CLIENT, mine), later, good.as_bytes());
    assert_eq!(told, Some(Code::Ok));
}

#[test]
fn one_client_does_not_fill_the_store() {
    let limits = StoreLimits {
        max_records: 90,
        ..StoreLimits::default()
    };
    let mut server = server_over(ServerConfig::default(), MemoryStore::new(limits));
    let other = PortId(2);
    server.handle_port(Time::ZERO, other, up());
    let (mine, its) = (cookie(&mut server, CLIENT), cookie(&mut server, other));
    let bring = |server: &mut Server<MemoryStore>, client, key, version| {
        let record = binding(key, version, HOUR_MS, vec![router(1)]);
        insert_with(server, client, Time::ZERO, record.as_bytes())
    };
    let codes: Vec<_> = (0..100)
        .map(|key| bring(&mut server, (CLIENT, mine), key, 1))
        .collect();
    let stored = codes.iter().filter(|it| **it == Some(Code::Ok)).count();
    assert_eq!((stored, codes[99]), (18, Some(Code::Full)));
    assert_eq!(bring(&mut server, (other, its), 200, 1), Some(Code::Ok));
    // What it has, it may renew.
    assert_eq!(bring(&mut server, (CLIENT, mine), 0, 2), Some(Code::Ok));
}

/// Every one of them is admitted, by a group that is open to anyone.
#[test]
fn ten_thousand_joins_in_a_second_fill_their_group_and_leave_others_as_they_were() {
    let mut server = server();
    let other = PortId(2);
    server.handle_port(Time::ZERO, other, up());
    let (mine, its) = (cookie(&mut server, CLIENT), cookie(&mut server, other));
    let join = |server: &mut Server<MemoryStore>, client, at, group: u8, number: u32| {
        let admission = GroupAdmission::sign(&keys(group), None, EPOCH + 2 * HOUR_MS);
        let mut secret = [3; 32];
        secret[..4].copy_from_slice(&number.to_be_bytes());
        let member = KeyPair::from_secret(&secret);
        let said = said(u64::from(number), HOUR_MS, vec![]);
        let record = Record::membership(&member, &admission, &said).unwrap();
        insert_with(server, client, at, record.as_bytes())
    };
    let codes = (0..10_000u32).map(|number| {
        let at = Time::ZERO + Duration::from_micros(100) * number;
        join(&mut server, (CLIENT, mine), at, 1, number)
    });
    let codes: Vec<Option<Code>> = codes.collect();
    let joined = codes.iter().filter(|code| **code == Some(Code::Ok)).count();
    assert!((8..=MAX_MEMBERS).contains(&joined), "{joined}");
    let members = |server: &Server<MemoryStore>, group: u8| {
        let name = Record::group_of(&keys(group).guid());
        server.store().providers(&name, EPOCH).len()
    };
    assert_eq!(members(&server, 1), joined);
    // The others were told, or counted.
    let full = codes
        .iter()
        .filter(|code| **code == Some(Code::Full))
        .count();
    assert!(full > 0, "{codes:?}");
    // Another host joins another group, and this one if there is room.
    let later = Time::from_secs(1);
    assert_eq!(
        join(&mut server, (other, its), later, 2, 20_000),
        Some(Code::Ok)
    );
    assert_eq!(members(&server, 2), 1);
    let same = join(&mut server, (other, its), later, 1, 20_001);
    assert!(matches!(same, Some(Code::Ok | Code::Full)), "{same:?}");
}
