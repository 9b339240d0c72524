//! The resolver and the server together, over good and bad networks.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::time::Duration;

use crate::support::{MAX_WATCHES, Pair, bad, binding, good, keys, port_of, router, said};
use proptest::prelude::*;
use whimbrel_core::{Guid, PortEvent};
use whimbrel_gnrs::wire::{Code, Frame, Message};
use whimbrel_gnrs::{
    Answer, Failure, Lookup, Record, RecordKey, Rejection, ResolverConfig, ResolverEvent, Statement,
};
use whimbrel_sim::link::{LinkSpec, Loss};

const SECOND: Duration = Duration::from_secs(1);
const HOUR_MS: u64 = 3_600_000;

fn version_of(answer: &Answer) -> Option<u64> {
    answer.binding.as_ref().map(Record::version)
}

fn resolved(events: &[ResolverEvent], guid: Guid) -> Option<&Answer> {
    events.iter().find_map(|event| match event {
        ResolverEvent::Resolved { guid: of, answer } if *of == guid => Some(answer),
        _ => None,
    })
}

fn last_change(events: &[ResolverEvent]) -> Option<&Answer> {
    events.iter().rev().find_map(|event| match event {
        ResolverEvent::Changed { answer, .. } => Some(answer),
        _ => None,
    })
}

#[test]
fn a_registered_record_is_found_in_one_round_trip() {
    let mut pair = Pair::new(1, good(), 1);
    let record = binding(1, 5, HOUR_MS, vec![router(9)]);
    pair.client(|client, now| client.insert(now, record.clone()));
    pair.drive(Duration::from_millis(20));
    assert_eq!(
        pair.take_events(),
        [ResolverEvent::Registered {
            guid: keys(1).guid(),
            version: 5
        }]
    );

    assert_eq!(
        pair.client(|client, now| client.lookup(now, keys(1).guid())),
        Lookup::Pending
    );
    pair.drive(Duration::from_millis(20));
    let answer = Answer {
        binding: Some(record),
        providers: vec![],
    };
    let guid = keys(1).guid();
    assert_eq!(
        pair.take_events(),
        [ResolverEvent::Resolved {
            guid,
            answer: answer.clone()
        }]
    );
    assert_eq!(
        pair.client(|client, now| client.lookup(now, guid)),
        Lookup::Resolved(answer)
    );
}

#[test]
fn the_first_look_up_needs_no_challenge() {
    let mut pair = Pair::new(1, good(), 1);
    pair.store(0, &binding(1, 5, HOUR_MS, vec![router(9), router(8)]));
    assert_eq!(
        pair.client(|client, now| client.lookup(now, keys(1).guid())),
        Lookup::Pending
    );
    pair.drive(Duration::from_millis(20));
    assert!(resolved(&pair.take_events(), keys(1).guid()).is_some());
}

#[test]
fn look_ups_of_one_name_share_one_request_and_one_event() {
    let mut pair = Pair::new(1, good(), 1);
    for _ in 0..5 {
        assert_eq!(
            pair.client(|client, now| client.lookup(now, keys(1).guid())),
            Lookup::Pending
        );
    }
    pair.drive(SECOND / 10);
    let why = Failure::NotFound;
    assert_eq!(
        pair.take_events(),
        [ResolverEvent::Unresolvable {
            guid: keys(1).guid(),
            why
        }]
    );
    assert_eq!(pair.resolver().counters().frames_sent, 1);
    assert_eq!(
        pair.client(|client, now| client.lookup(now, keys(1).guid())),
        Lookup::NotFound
    );
    pair.drive(SECOND);
    assert_eq!(
        pair.client(|client, now| client.lookup(now, keys(1).guid())),
        Lookup::Pending
    );
}

#[test]
fn without_a_server_a_look_up_ends_as_unreachable() {
    let mut pair = Pair::new(1, good().with_loss(Loss::Independent(1.0)), 2);
    assert_eq!(
        pair.client(|client, now| client.lookup(now, keys(1).guid())),
        Lookup::Pending
    );
    pair.client(|client, now| client.insert(now, binding(1, 5, HOUR_MS, vec![])));
    pair.drive(SECOND * 11);
    let guid = keys(1).guid();
    let events = pair.take_events();
    assert!(events.contains(&ResolverEvent::Unresolvable {
        guid,
        why: Failure::Unreachable
    }));
    assert!(events.contains(&ResolverEvent::Refused {
        guid,
        code: Rejection::Unreachable
    }));
    assert_eq!(events.len(), 2);
}

#[test]
fn a_change_of_a_watched_name_arrives_half_a_round_trip_later() {
    let mut pair = Pair::new(1, good(), 1);
    let guid = keys(1).guid();
    assert!(pair.client(|client, now| client.watch(now, guid)));
    pair.drive(SECOND);
    assert_eq!(pair.take_events(), []);
    pair.store(0, &binding(1, 7, HOUR_MS, vec![router(3)]));
    pair.drive(Duration::from_millis(10));
    assert_eq!(
        version_of(last_change(&pair.take_events()).unwrap()),
        Some(7)
    );
    assert!(matches!(
        pair.client(|client, now| client.lookup(now, guid)),
        Lookup::Resolved(_)
    ));

    pair.client(|client, now| client.unwatch(now, guid));
    pair.drive(SECOND);
    assert_eq!(pair.server(0).watch_count(), 0);
    pair.store(0, &binding(1, 8, HOUR_MS, vec![]));
    pair.drive(SECOND);
    assert_eq!(pair.take_events(), []);
}

#[test]
fn a_removed_name_is_not_found_and_its_watchers_learn_of_it() {
    let mut pair = Pair::new(1, good(), 1);
    let guid = keys(1).guid();
    let old = binding(1, 1, HOUR_MS, vec![router(3)]);
    pair.store(0, &old);
    assert!(pair.client(|client, now| client.watch(now, guid)));
    pair.drive(SECOND);
    let removal = Statement {
        removed: true,
        ..said(2, HOUR_MS, vec![])
    };
    pair.store(0, &Record::binding(&keys(1), &removal).unwrap());
    pair.store(0, &old);
    pair.drive(SECOND);
    assert!(last_change(&pair.take_events()).unwrap().is_empty());
    assert_eq!(
        pair.client(|client, now| client.lookup(now, guid)),
        Lookup::NotFound
    );
    assert_eq!(pair.server(0).counters().refused_with(Code::Stale), 1);
}

#[test]
fn watches_survive_an_unannounced_restart_of_the_server() {
    let mut pair = Pair::new(1, good(), 1);
    let guid = keys(1).guid();
    assert!(pair.client(|client, now| client.watch(now, guid)));
    pair.drive(SECOND);
    pair.restart_server(0);
    pair.store(0, &binding(1, 7, HOUR_MS, vec![]));
    pair.drive(SECOND * 3);
    assert_eq!(
        version_of(last_change(&pair.take_events()).unwrap()),
        Some(7)
    );
    assert_eq!(pair.resolver().counters().server_restarts, 1);
    pair.store(0, &binding(1, 8, HOUR_MS, vec![]));
    pair.drive(Duration::from_millis(10));
    assert_eq!(
        version_of(last_change(&pair.take_events()).unwrap()),
        Some(8)
    );
}

#[test]
fn a_dead_server_is_replaced_until_it_returns() {
    let mut pair = Pair::new(1, good(), 2);
    let (a, b) = (keys(1).guid(), keys(2).guid());
    pair.store(0, &binding(1, 1, HOUR_MS, vec![]));
    pair.store(1, &binding(2, 2, HOUR_MS, vec![]));
    assert!(pair.client(|client, now| client.watch(now, a)));
    pair.drive(SECOND);
    pair.take_events();

    pair.silence(0, true);
    assert_eq!(
        pair.client(|client, now| client.lookup(now, b)),
        Lookup::Pending
    );
    pair.drive(SECOND * 3);
    assert!(
        resolved(&pair.take_events(), b).is_some(),
        "the second server has it"
    );
    pair.store(1, &binding(1, 3, HOUR_MS, vec![]));
    pair.drive(SECOND / 10);
    assert_eq!(
        version_of(last_change(&pair.take_events()).unwrap()),
        Some(3),
        "the watch has moved"
    );

    pair.silence(0, false);
    pair.drive(SECOND * 5);
    pair.store(0, &binding(1, 4, HOUR_MS, vec![]));
    pair.drive(SECOND / 10);
    assert_eq!(
        version_of(last_change(&pair.take_events()).unwrap()),
        Some(4),
        "and has moved back"
    );
}

#[test]
fn a_server_behind_a_loaded_link_is_not_lost_and_gets_few_requests_again() {
    let mut pair = Pair::new(3, good(), 1);
    assert!(pair.client(|client, now| client.watch(now, keys(1).guid())));
    pair.drive(SECOND * 5);
    let loaded = LinkSpec {
        delay: Duration::from_millis(700),
        ..LinkSpec::default()
    };
    pair.change(0, &loaded);
    let before = pair.resolver().counters().frames_repeated;
    for _ in 0..60 {
        pair.drive(SECOND);
        assert!(pair.resolver().server_status()[0].answers);
    }
    let again = pair.resolver().counters().frames_repeated - before;
    assert!(again < 10, "{again} requests were repeated in a minute");

    pair.silence(0, true);
    pair.drive(SECOND * 3);
    assert!(pair.resolver().server_status()[0].answers);
    pair.drive(SECOND * 25);
    assert!(!pair.resolver().server_status()[0].answers);
    pair.silence(0, false);
    pair.drive(SECOND * 10);
    assert!(pair.resolver().server_status()[0].answers);
}

/// Otherwise what a silent server costs grows with the square of what is asked and watched.
#[test]
fn requests_that_a_silent_server_leaves_unanswered_move_no_watches() {
    for servers in [1, 2] {
        let mut pair = Pair::new(5, good(), servers);
        assert!(pair.client(|client, now| client.watch(now, keys(1).guid())));
        pair.drive(SECOND * 5);
        let moves = |pair: &Pair| pair.resolver().counters().watch_moves;
        assert_eq!(moves(&pair), 1);
        (0..servers).for_each(|server| pair.silence(server, true));
        for number in 0..500u16 {
            let mut name = [7; 32];
            name[..2].copy_from_slice(&number.to_be_bytes());
            let asked = pair.client(|client, now| client.lookup(now, Guid(name)));
            assert_eq!(asked, Lookup::Pending);
        }
        pair.drive(SECOND * 60);
        assert!(pair.resolver().counters().frames_repeated > 500);
        assert_eq!(moves(&pair), servers as u64);
    }
}

#[test]
fn a_port_that_goes_down_sends_its_requests_elsewhere_at_once() {
    let mut pair = Pair::new(1, good(), 2);
    pair.store(1, &binding(1, 1, HOUR_MS, vec![]));
    assert_eq!(
        pair.client(|client, now| client.lookup(now, keys(1).guid())),
        Lookup::Pending
    );
    pair.client(|client, now| client.handle_port(now, port_of(0), PortEvent::Down));
    pair.drive(Duration::from_millis(20));
    assert!(resolved(&pair.take_events(), keys(1).guid()).is_some());
}

#[test]
fn a_record_is_registered_with_every_server_that_answers() {
    let mut pair = Pair::new(1, good(), 3);
    pair.silence(1, true);
    pair.client(|client, now| client.insert(now, binding(1, 5, HOUR_MS, vec![])));
    pair.drive(SECOND * 12);
    let held: Vec<usize> = pair.servers().map(|server| server.store().len()).collect();
    assert_eq!(held, [1, 0, 1]);
    assert_eq!(
        pair.take_events(),
        [ResolverEvent::Registered {
            guid: keys(1).guid(),
            version: 5
        }]
    );
}

#[test]
fn a_stale_registration_is_refused_with_the_version_that_counts() {
    let mut pair = Pair::new(1, good(), 1);
    pair.store(0, &binding(1, 9, HOUR_MS, vec![]));
    pair.client(|client, now| client.insert(now, binding(1, 5, HOUR_MS, vec![])));
    pair.drive(SECOND);
    let code = Rejection::Server {
        code: Code::Stale,
        stored: 9,
    };
    assert_eq!(
        pair.take_events(),
        [ResolverEvent::Refused {
            guid: keys(1).guid(),
            code
        }]
    );
}

#[test]
fn all_providers_of_a_content_are_found_page_by_page() {
    let mut pair = Pair::new(1, bad(), 1);
    let content = Guid([7; 32]);
    for seed in 0..40 {
        let said = said(1, HOUR_MS, vec![router(1), router(2), router(3)]);
        pair.store(0, &Record::provider(&keys(seed), content, &said).unwrap());
    }
    assert_eq!(
        pair.client(|client, now| client.lookup(now, content)),
        Lookup::Pending
    );
    pair.drive(SECOND * 20);
    let events = pair.take_events();
    assert_eq!(resolved(&events, content).unwrap().providers.len(), 40);
    assert_eq!(pair.resolver().counters().forged_answers, 0);
}

#[test]
fn a_watch_of_many_providers_starts_with_all_of_them() {
    let mut pair = Pair::new(1, good(), 1);
    let content = Guid([7; 32]);
    for seed in 0..40 {
        pair.store(
            0,
            &Record::provider(&keys(seed), content, &said(1, HOUR_MS, vec![])).unwrap(),
        );
    }
    assert!(pair.client(|client, now| client.watch(now, content)));
    pair.drive(SECOND * 2);
    assert_eq!(
        last_change(&pair.take_events()).unwrap().providers.len(),
        40
    );
    let removal = Statement {
        removed: true,
        ..said(2, HOUR_MS, vec![])
    };
    pair.store(0, &Record::provider(&keys(5), content, &removal).unwrap());
    pair.drive(SECOND);
    let events = pair.take_events();
    let left = &last_change(&events).unwrap().providers;
    assert_eq!(left.len(), 39);
    assert!(left.iter().all(|record| record.signer() != keys(5).guid()));
}

#[test]
fn a_forged_answer_is_counted_and_another_server_is_asked() {
    let mut pair = Pair::new(1, good(), 2);
    let guid = keys(1).guid();
    let good = binding(1, 5, HOUR_MS, vec![router(1)]);
    pair.store(1, &good);
    assert_eq!(
        pair.client(|client, now| client.lookup(now, guid)),
        Lookup::Pending
    );
    let asked = pair.sent(false).pop().unwrap();
    let id = Frame::decode(&asked).unwrap().id;
    // A server that gives a false address of the name.
    let mut lie = binding(1, 6, HOUR_MS, vec![router(66)]).as_bytes().to_vec();
    lie[100] ^= 1;
    let mut list = whimbrel_gnrs::wire::RecordBuffer::default();
    assert!(list.push(&Record::parse(&lie[..]).unwrap()));
    let page = whimbrel_gnrs::wire::Page {
        first: 0,
        more: false,
        records: list.list(),
    };
    let mut bytes = Vec::new();
    Frame::request(id, 1, Message::LookupAnswer { guid, page }).encode(&mut bytes);
    pair.client(|client, now| client.handle_frame(now, port_of(0), &bytes));
    pair.drive(Duration::from_millis(20));
    assert_eq!(pair.resolver().counters().forged_answers, 1);
    assert_eq!(
        resolved(&pair.take_events(), guid).unwrap().binding,
        Some(good)
    );
}

#[test]
fn an_expired_binding_is_looked_up_again() {
    let mut pair = Pair::new(1, good(), 1);
    let guid = keys(1).guid();
    pair.store(0, &binding(1, 5, 1500, vec![]));
    assert_eq!(
        pair.client(|client, now| client.lookup(now, guid)),
        Lookup::Pending
    );
    pair.drive(SECOND);
    assert!(matches!(
        pair.client(|client, now| client.lookup(now, guid)),
        Lookup::Resolved(_)
    ));
    pair.drive(SECOND);
    pair.take_events();
    assert_eq!(
        pair.client(|client, now| client.lookup(now, guid)),
        Lookup::Pending
    );
    pair.drive(SECOND);
    assert_eq!(
        pair.take_events(),
        [ResolverEvent::Unresolvable {
            guid,
            why: Failure::NotFound
        }]
    );
}

#[test]
fn too_many_requests_are_refused_at_once() {
    let config = ResolverConfig {
        max_pending: 2,
        max_watches: 1,
        ..ResolverConfig::default()
    };
    let mut pair = Pair::with_config(1, good(), 1, config);
    assert_eq!(
        pair.client(|client, now| client.lookup(now, Guid([1; 32]))),
        Lookup::Pending
    );
    assert_eq!(
        pair.client(|client, now| client.lookup(now, Guid([2; 32]))),
        Lookup::Pending
    );
    assert_eq!(
        pair.client(|client, now| client.lookup(now, Guid([3; 32]))),
        Lookup::Busy
    );
    pair.client(|client, now| client.insert(now, binding(1, 1, HOUR_MS, vec![])));
    assert!(pair.client(|client, now| client.watch(now, Guid([4; 32]))));
    assert!(!pair.client(|client, now| client.watch(now, Guid([5; 32]))));
    let guid = keys(1).guid();
    pair.drive(Duration::from_millis(5));
    assert_eq!(
        pair.take_events(),
        [ResolverEvent::Refused {
            guid,
            code: Rejection::Busy
        }]
    );
    pair.drive(SECOND * 2);
    assert_eq!(pair.server(0).watch_count(), 1, "the watch got room later");
}

#[test]
fn a_watch_that_a_server_refuses_or_gives_up_is_said_and_comes_back() {
    let mut pair = Pair::new(1, good(), 1);
    let name = |number: usize| Guid([number as u8; 32]);
    let refused = |events: &[ResolverEvent]| -> Vec<Guid> {
        let refused = events.iter().filter_map(|event| match event {
            ResolverEvent::NotWatched { guid } => Some(*guid),
            _ => None,
        });
        refused.collect()
    };
    for number in 1..=MAX_WATCHES + 1 {
        assert!(pair.client(|client, now| client.watch(now, name(number))));
        pair.drive(SECOND / 10);
    }
    assert_eq!(refused(&pair.take_events()), [name(MAX_WATCHES + 1)]);
    pair.client(|client, now| client.unwatch(now, name(1)));
    pair.drive(SECOND * 6);
    assert_eq!(pair.server(0).watch_count(), MAX_WATCHES);
    assert_eq!(refused(&pair.take_events()), []);
    // Another client watches a name: one of the eight gives way.
    pair.watch_elsewhere(0, keys(3).guid());
    pair.drive(SECOND);
    let given_up = refused(&pair.take_events());
    assert_eq!(given_up, [name(2)]);
    pair.client(|client, now| client.unwatch(now, name(3)));
    pair.drive(SECOND * 6);
    assert_eq!(refused(&pair.take_events()), []);
    assert_eq!(pair.server(0).watch_count(), MAX_WATCHES);
}

/// An act of a user of the directory.
#[derive(Clone, Debug)]
enum Act {
    Lookup(u8),
    Watch(u8),
    Unwatch(u8),
    /// Registers the next version of the name through the resolver.
    Register(u8),
    /// Stores the next version at the server as another client.
    Store(u8),
    Restart,
    Replay(prop::sample::Index),
    Wait(u16),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let name = 0u8..3;
    let act = prop_oneof![
        4 => name.clone().prop_map(Act::Lookup),
        2 => name.clone().prop_map(Act::Watch),
        1 => name.clone().prop_map(Act::Unwatch),
        2 => name.clone().prop_map(Act::Register),
        2 => name.prop_map(Act::Store),
        1 => Just(Act::Restart),
        2 => any::<prop::sample::Index>().prop_map(Act::Replay),
        6 => (0u16..2000).prop_map(Act::Wait),
    ];
    prop::collection::vec(act, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Over a network that loses, duplicates, damages and reorders, with restarts and replays, and
    /// for any requests in any order: each lookup ends, a watch finally knows the newest version,
    /// and the store never returns to an older one.
    #[test]
    fn every_look_up_ends_and_watches_converge(seed: u64, acts in acts()) {
        let mut pair = Pair::new(seed, bad(), 1);
        let mut newest = [0u64; 3];
        let mut stored = [0u64; 3];
        let mut pending = std::collections::BTreeSet::new();
        for act in acts {
            match act {
                Act::Lookup(name) => {
                    if pair.client(|client, now| client.lookup(now, keys(name).guid())) == Lookup::Pending {
                        pending.insert(keys(name).guid());
                    }
                }
                Act::Watch(name) => prop_assert!(pair.client(|client, now| client.watch(now, keys(name).guid()))),
                Act::Unwatch(name) => pair.client(|client, now| client.unwatch(now, keys(name).guid())),
                Act::Register(name) => {
                    newest[usize::from(name)] += 1;
                    pair.client(|client, now| client.insert(now, binding(name, newest[usize::from(name)], HOUR_MS, vec![router(1)])));
                }
                Act::Store(name) => {
                    newest[usize::from(name)] += 1;
                    pair.store(0, &binding(name, newest[usize::from(name)], HOUR_MS, vec![router(2)]));
                }
                Act::Restart => pair.restart_server(0),
                Act::Replay(at) => {
                    let frames = pair.sent(at.index(2) != 0);
                    if !frames.is_empty() {
                        pair.replay(at.get::<Vec<u8>>(&frames));
                    }
                }
                Act::Wait(millis) => pair.drive(Duration::from_millis(millis.into())),
            }
            for (name, last) in stored.iter_mut().enumerate() {
                let key = RecordKey::binding(keys(name as u8).guid());
                let version = pair.server(0).store().get(&key).map_or(0, |record| record.version());
                prop_assert!(version >= *last && version <= newest[name]);
                *last = version;
            }
        }
        pair.drive(SECOND * 90);
        for (_, event) in &pair.events {
            if let ResolverEvent::Resolved { guid, .. } | ResolverEvent::Unresolvable { guid, .. } = event {
                pending.remove(guid);
            }
        }
        prop_assert!(pending.is_empty(), "{pending:?} never ended");
        for name in 0..3 {
            let guid = keys(name).guid();
            if pair.resolver().is_watched(&guid) {
                let there = pair.server(0).store().get(&RecordKey::binding(guid)).map(|record| record.version());
                let known = match pair.client(|client, now| client.lookup(now, guid)) {
                    Lookup::Resolved(answer) => version_of(&answer),
                    Lookup::NotFound => None,
                    other => return Err(TestCaseError::fail(format!("a watched name is {other:?}"))),
                };
                prop_assert_eq!(known, there);
            }
        }
        prop_assert_eq!(pair.resolver().counters().forged_answers, 0);
    }

    /// A late push never replaces a newer one, and the last reported change is the newest.
    #[test]
    fn the_last_change_told_is_the_newest(seed: u64, waits in prop::collection::vec(0u64..400, 1..12)) {
        let mut pair = Pair::new(seed, bad(), 1);
        prop_assert!(pair.client(|client, now| client.watch(now, keys(1).guid())));
        for (index, wait) in waits.iter().enumerate() {
            pair.store(0, &binding(1, index as u64 + 1, HOUR_MS, vec![]));
            pair.drive(Duration::from_millis(*wait));
        }
        pair.drive(SECOND * 60);
        let told: Vec<u64> = pair
            .take_events()
            .iter()
            .filter_map(|event| match event {
                ResolverEvent::Changed { answer, .. } => version_of(answer),
                _ => None,
            })
            .collect();
        prop_assert!(told.is_sorted_by(|a, b| a < b), "{told:?}");
        prop_assert_eq!(told.last().copied(), Some(waits.len() as u64));
    }

    #[test]
    fn any_frame_at_the_resolver_never_panics(seed: u64, frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..100), 0..20)) {
        let mut pair = Pair::new(seed, good(), 1);
        let _ = pair.client(|client, now| client.lookup(now, keys(1).guid()));
        prop_assert!(pair.client(|client, now| client.watch(now, keys(1).guid())));
        for frame in frames {
            pair.client(|client, now| client.handle_frame(now, port_of(0), &frame));
        }
        pair.drive(SECOND);
        let not_found = ResolverEvent::Unresolvable { guid: keys(1).guid(), why: Failure::NotFound };
        prop_assert_eq!(pair.take_events(), [not_found]);
    }
}
