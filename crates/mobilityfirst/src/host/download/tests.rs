//! Downloads, and chunks that are not what they seem.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use whimbrel_content::ChunkTree;
use whimbrel_core::SeededRng;
use whimbrel_link::Room;

use super::super::effects::Action;
use super::*;
use crate::local::TransferOptions;
use crate::wire::{
    ContentKind, Data, DropReason, NetworkHeader, Reliability, ServiceId, Transport, UpperProtocol,
};

const APP: App = App::Inner(1);
const SERVER: Guid = Guid([2; 32]);
const STRANGER: Guid = Guid([3; 32]);
const LOG2: u8 = 16;

/// A download of two chunks that was asked for at time 0, and the id of its request.
struct Fetch {
    downloads: Downloads,
    effects: Effects,
    bytes: Bytes,
    tree: ChunkTree,
    request_id: u64,
}

impl Fetch {
    fn new() -> Fetch {
        Fetch::with_credit(8)
    }

    fn with_credit(credit: u16) -> Fetch {
        let bytes = Bytes::from((0..100_000u32).map(|at| at as u8).collect::<Vec<u8>>());
        let tree = ChunkTree::from_reader(&bytes[..], ChunkSize::MIN, &mut |_| {}).unwrap();
        let limits = DownloadLimits {
            content: 1 << 40,
            transfers: 4,
            nack_timeout: Duration::from_secs(5),
            buffer_packets: 1024,
            window: 64 << 20,
        };
        let mut fetch = Fetch {
            downloads: Downloads::new(limits, &mut SeededRng::new(1)),
            effects: Effects::default(),
            bytes,
            tree,
            request_id: 0,
        };
        let get = Get {
            request: 1,
            content: fetch.tree.root(),
            options: TransferOptions {
                chunk_log2: LOG2,
                reliability: Some(Reliability::Ack),
                ..TransferOptions::default()
            },
            in_order: false,
            credit,
            resume: Bytes::new(),
        };
        let uplink = Uplink {
            is_up: true,
            router: None,
            round_trip: None,
            is_measuring: false,
        };
        let (downloads, effects) = (&mut fetch.downloads, &mut fetch.effects);
        downloads.start_download(Time::ZERO, APP, &get, None, &uplink, effects);
        let asked = fetch.actions().into_iter().find_map(|action| match action {
            Action::Send { request_id, .. } => request_id,
            _ => None,
        });
        fetch.request_id = asked.unwrap();
        fetch
    }

    fn actions(&mut self) -> Vec<Action> {
        core::iter::from_fn(|| self.effects.next()).collect()
    }

    /// A chunk comes. Returns whether the timer was set, the program was given it, and it was
    /// acknowledged.
    fn comes(
        &mut self,
        at: u64,
        (source, request_id): (Guid, u64),
        index: u32,
        is_true: bool,
    ) -> [bool; 3] {
        let actions = self.chunk_comes(at, (source, request_id), (LOG2, index), is_true);
        let set = |it: &Action| matches!(it, Action::Set(Timer::Download(_), _));
        let given = |it: &Action| matches!(it, Action::HandOver(..));
        let acked = |it: &Action| {
            matches!(
                it,
                Action::Send {
                    message: Transport::Ack(_),
                    ..
                }
            )
        };
        [
            actions.iter().any(set),
            actions.iter().any(given),
            actions.iter().any(acked),
        ]
    }

    fn chunk_comes(
        &mut self,
        at: u64,
        (source, request_id): (Guid, u64),
        (log2, index): (u8, u32),
        is_true: bool,
    ) -> Vec<Action> {
        let size = ChunkSize::from_code(log2).unwrap();
        let range = size.range(index.into(), self.bytes.len() as u64).unwrap();
        let mut proof = Vec::new();
        let proven = self.tree.proof(index.into(), size).unwrap();
        proven.encode(&mut proof);
        let mut payload = self.bytes[range.start as usize..range.end as usize].to_vec();
        payload[0] ^= u8::from(!is_true);
        let data = Data {
            content: self.tree.root(),
            index,
            chunk_log2: log2,
            content_len: self.bytes.len() as u64,
            kind: ContentKind::File,
            reliability: Reliability::Ack,
            file_name: String::new(),
            proof: proof.into(),
            payload: payload.into(),
        };
        let (service, upper) = (ServiceId::CONTENT_RESPONSE, UpperProtocol::Transport);
        let mut header = NetworkHeader::new(service, upper, source, Guid([1; 32]));
        header.extensions.request = Some(request_id);
        let (now, room) = (Time::from_secs(at), Room::default());
        let (downloads, effects) = (&mut self.downloads, &mut self.effects);
        downloads.handle_data(now, &header, data, room, |_| true, effects);
        self.actions()
    }

    fn source(&self) -> Option<Guid> {
        let download = self.downloads.by_id.values().next();
        download.and_then(|it| it.source).map(|it| it.name)
    }
}

#[test]
fn a_chunk_takes_the_place_of_smaller_ones_within_it_that_wait() {
    let mut fetch = Fetch::with_credit(1);
    let server = (SERVER, fetch.request_id);
    let handed = |actions: Vec<Action>| -> Vec<(u8, u32)> {
        let chunks = actions.into_iter().filter_map(|action| match action {
            Action::HandOver(_, chunk, _) => Some((chunk.chunk_log2, chunk.index)),
            _ => None,
        });
        chunks.collect()
    };
    // The program has the last chunk, and takes no other one yet.
    assert_eq!(
        handed(fetch.chunk_comes(1, server, (16, 1), true)),
        [(16, 1)]
    );
    // The source goes on in smaller ones; a larger one from before was overtaken.
    assert_eq!(handed(fetch.chunk_comes(2, server, (14, 1), true)), []);
    assert_eq!(handed(fetch.chunk_comes(3, server, (16, 0), true)), []);
    fetch.downloads.note_consumed(APP, 1, &mut fetch.effects);
    assert_eq!(handed(fetch.actions()), [(16, 0)]);
    fetch.downloads.note_consumed(APP, 1, &mut fetch.effects);
    assert_eq!(handed(fetch.actions()), []);
}

#[test]
fn garbage_is_no_source_and_puts_nothing_off() {
    let mut fetch = Fetch::new();
    let stranger = (STRANGER, fetch.request_id);
    for at in 1..4 {
        assert_eq!(fetch.comes(at, stranger, 0, false), [false; 3]);
    }
    assert_eq!(fetch.source(), None);
    assert_eq!(fetch.effects.counters.unproven, 3);
    let download = fetch.downloads.by_id.values().next().unwrap();
    assert_eq!(download.arrivals.last, None);
}

/// The report names who has seen the request and sends false chunks, until a true one comes.
#[test]
fn who_sends_false_chunks_is_named_until_a_true_one_comes() {
    let mut fetch = Fetch::new();
    let said = |fetch: &Fetch| {
        let status = &fetch.downloads.status(Time::from_secs(9))[0];
        (status.false_from, status.false_chunks)
    };
    fetch.comes(1, (STRANGER, fetch.request_id ^ 1), 0, false);
    assert_eq!(said(&fetch), (None, 0), "anybody can send it");
    for at in 2..4 {
        fetch.comes(at, (SERVER, fetch.request_id), 0, false);
    }
    assert_eq!(said(&fetch), (Some(SERVER), 2));
    fetch.comes(4, (SERVER, fetch.request_id), 0, true);
    assert_eq!(said(&fetch), (None, 0));
}

/// Who replays true chunks without having seen a request is not followed.
#[test]
fn a_true_chunk_without_the_id_of_a_request_is_taken_and_nothing_follows_from_it() {
    let mut fetch = Fetch::new();
    let wrong = fetch.request_id ^ 1;
    assert_eq!(
        fetch.comes(1, (STRANGER, wrong), 0, true),
        [false, true, true]
    );
    assert_eq!(fetch.source(), None);
    // A copy of it says no more.
    assert_eq!(
        fetch.comes(2, (STRANGER, wrong), 0, true),
        [false, false, true]
    );
    let counted = fetch.effects.counters.drops.get("wrong-request-id");
    assert_eq!(counted, Some(&2));
    let content = fetch.tree.root();
    assert!(!fetch.downloads.has_asked(&content, Some(wrong)));
    assert!(!fetch.downloads.has_asked(&content, None));
}

#[test]
fn a_chunk_that_answers_is_the_source_s_and_puts_off_the_next_request() {
    let mut fetch = Fetch::new();
    let server = (SERVER, fetch.request_id);
    assert!(
        fetch
            .downloads
            .has_asked(&fetch.tree.root(), Some(server.1))
    );
    assert_eq!(fetch.comes(1, server, 0, true), [true; 3]);
    assert_eq!(fetch.source(), Some(SERVER));
    // A copy from the source tells that it is alive.
    assert_eq!(fetch.comes(2, server, 0, true), [true, false, true]);
}

#[test]
fn each_download_has_an_id_of_its_own() {
    let (first, mut second) = (Fetch::new(), Fetch::new());
    assert_eq!(first.request_id, second.request_id, "of one seed");
    second.downloads = Downloads::new(second.downloads.limits, &mut SeededRng::new(2));
    let other = core::hash::BuildHasher::hash_one(&second.downloads.draw, 0u64);
    let next = core::hash::BuildHasher::hash_one(&first.downloads.draw, 1u64);
    assert!(first.request_id != other && first.request_id != next);
}

/// Announcing is no proof of serving: as many as say that they do not serve it, the next one is asked.
#[test]
fn a_provider_that_does_not_serve_is_followed_by_the_next_one_at_once() {
    let mut fetch = Fetch::new();
    let mut now = Time::ZERO;
    for by in 1..=63 {
        assert_eq!(
            refused(&mut fetch, now, by, DropReason::NotServed),
            (true, false)
        );
    }
    // It is the only one left: the timer asks it again, in case that it is just starting. Each
    // request counts one answer, however often it is repeated.
    for last in [false, true] {
        assert_eq!(
            refused(&mut fetch, now, 1, DropReason::NotServed),
            (false, last)
        );
        if !last {
            assert_eq!(
                refused(&mut fetch, now, 1, DropReason::NotServed),
                (false, false)
            );
            now += Duration::from_secs(60);
            (fetch.downloads).check_download(now, 0, &UPLINK, &mut fetch.effects);
            fetch.actions();
        }
    }
}

const UPLINK: Uplink = Uplink {
    is_up: true,
    router: Some(Guid([200; 32])),
    round_trip: None,
    is_measuring: false,
};

/// The node `by` drops the request. Returns whether it is asked for again, and whether the download
/// has failed.
fn refused(fetch: &mut Fetch, now: Time, by: u8, reason: DropReason) -> (bool, bool) {
    let content = fetch.tree.root();
    let (downloads, effects) = (&mut fetch.downloads, &mut fetch.effects);
    downloads.handle_drop(now, Guid([by; 32]), &content, reason, &UPLINK, effects);
    let actions = fetch.actions();
    let asks = |it: &Action| matches!(it, Action::Send { to, .. } if to.name == content);
    let fails = |it: &Action| matches!(it, Action::Tell(_, LocalEvent::Failed { .. }));
    (actions.iter().any(asks), actions.iter().any(fails))
}

/// Its programs return a moment after it.
#[test]
fn a_host_that_has_sent_a_part_may_start_again() {
    let (peer, mut now) = (UPLINK.router.unwrap(), Time::ZERO);
    let mut fetch = Fetch::new();
    let denied = |fetch: &mut Fetch, now| refused(fetch, now, peer.0[0], DropReason::NotServed);
    assert_eq!(denied(&mut fetch, now), (false, true), "nothing has come");
    let mut fetch = Fetch::new();
    let from = (peer, fetch.request_id);
    assert_eq!(fetch.comes(0, from, 0, true), [true; 3]);
    assert_eq!(denied(&mut fetch, now), (true, false));
    assert_eq!(denied(&mut fetch, now), (false, false));
    now += Duration::from_secs(60);
    (fetch.downloads).check_download(now, 0, &UPLINK, &mut fetch.effects);
    assert_eq!(fetch.comes(60_000, from, 1, true)[1..], [true; 2]);
}

/// Only the host's own router has asked the name service for it.
#[test]
fn a_provider_that_denies_the_name_is_followed_by_the_next_one() {
    let mut fetch = Fetch::new();
    let denied = |fetch: &mut Fetch, by| refused(fetch, Time::ZERO, by, DropReason::NoSuchName);
    assert_eq!(denied(&mut fetch, 1), (true, false));
    for _ in 0..3 {
        assert_eq!(denied(&mut fetch, 1), (false, false));
    }
    assert_eq!(denied(&mut fetch, 2), (true, false));
    assert_eq!(denied(&mut fetch, 200), (false, true));
}

#[test]
fn while_the_source_sends_nobody_else_can_stop_a_download() {
    let mut fetch = Fetch::new();
    let server = (SERVER, fetch.request_id);
    assert_eq!(fetch.comes(0, server, 0, true), [true; 3]);
    for by in [1, 1, 1, 3, 3, 3] {
        for reason in [DropReason::NotServed, DropReason::NoSuchName] {
            assert_eq!(refused(&mut fetch, Time::ZERO, by, reason), (false, false));
        }
    }
    assert_eq!(fetch.source(), Some(SERVER));
}

/// The time at which the download looks again.
fn next_look(actions: &[Action]) -> Option<Time> {
    actions.iter().find_map(|action| match action {
        Action::Set(Timer::Download(_), at) => Some(*at),
        _ => None,
    })
}

/// Announcing is no proof of serving: a silent provider must not cost seconds.
#[test]
fn while_nobody_answers_a_request_goes_to_three_more_providers_within_seconds() {
    for round_trip in [None, Some(Duration::from_millis(700))] {
        let uplink = Uplink {
            round_trip,
            ..UPLINK
        };
        let mut fetch = Fetch::new();
        let content = fetch.tree.root();
        let mut now = Time::from_millis(500);
        let mut asked = Vec::new();
        while now < Time::from_secs(20) {
            (fetch.downloads).check_download(now, 0, &uplink, &mut fetch.effects);
            let actions = fetch.actions();
            let asks = |it: &Action| matches!(it, Action::Send { to, .. } if to.name == content);
            assert!(actions.iter().any(asks));
            let state = |it: &Action| matches!(it, Action::Tell(_, LocalEvent::State { .. }));
            let is_stalled = actions.iter().any(state);
            asked.push((now.as_nanos() / 1_000_000, is_stalled));
            now = next_look(&actions).unwrap();
        }
        let expected: &[(u64, bool)] = match round_trip {
            None => &[
                (500, false),
                (1000, false),
                (1500, false),
                (6500, true),
                (16500, false),
            ],
            // Over a link that is slow itself, the second request is the last such one.
            Some(_) => &[(500, false), (5500, true), (15500, false)],
        };
        assert_eq!(asked, expected);
    }
}

/// Of several that answer, the first one is kept, and the others are told at once.
#[test]
fn of_several_that_answer_a_hedged_request_one_goes_on() {
    let mut fetch = Fetch::new();
    let now = Time::from_millis(500);
    (fetch.downloads).check_download(now, 0, &UPLINK, &mut fetch.effects);
    fetch.actions();
    let stopped = |actions: &[Action]| {
        actions.iter().find_map(|action| match action {
            Action::Send {
                to,
                message: Transport::Request(request),
                ..
            } if request.chunks.is_empty() => Some(to.name),
            _ => None,
        })
    };
    let id = fetch.request_id;
    let first = fetch.chunk_comes(1, (SERVER, id), (ChunkSize::MIN.code(), 0), true);
    assert_eq!(stopped(&first), None);
    let second = fetch.chunk_comes(2, (STRANGER, id), (ChunkSize::MIN.code(), 1), true);
    assert_eq!(stopped(&second), Some(STRANGER));
    let given = |it: &Action| matches!(it, Action::HandOver(..));
    assert!(second.iter().any(given), "what it sent is taken");
    assert_eq!(fetch.source(), Some(SERVER));
    // The first one falls silent: another one may take its place.
    let now = Time::from_secs(60);
    (fetch.downloads).check_download(now, 0, &UPLINK, &mut fetch.effects);
    fetch.actions();
    let third = fetch.chunk_comes(61, (STRANGER, id), (ChunkSize::MIN.code(), 2), true);
    assert_eq!((stopped(&third), fetch.source()), (None, Some(STRANGER)));
}

/// Who sends over a new link must know its rate before the first chunk, or that takes minutes.
#[test]
fn a_first_request_over_a_new_link_that_may_be_slow_waits_for_its_rate() {
    let new_link = |round_trip: u64, is_measuring| Uplink {
        round_trip: Some(Duration::from_millis(round_trip)),
        is_measuring,
        ..UPLINK
    };
    let asks = |actions: &[Action]| actions.iter().any(|it| matches!(it, Action::Send { .. }));
    // How long the first request waits, if the measurement takes `takes`.
    let waits = |round_trip: u64, takes: Duration| {
        let mut fetch = Fetch::new();
        let download = fetch.downloads.by_id.values_mut().next().unwrap();
        download.asking.asked_at = None;
        let mut now = Time::ZERO;
        loop {
            let uplink = new_link(round_trip, now < Time::ZERO + takes);
            (fetch.downloads).check_download(now, 0, &uplink, &mut fetch.effects);
            let actions = fetch.actions();
            if asks(&actions) {
                return now.since(Time::ZERO);
            }
            now = next_look(&actions).unwrap();
        }
    };
    let millis = Duration::from_millis;
    assert_eq!(waits(20, millis(400)), Duration::ZERO, "it cannot be slow");
    let waited = waits(600, millis(1200));
    assert!((millis(1200)..millis(1300)).contains(&waited), "{waited:?}");
    let longest = waits(600, millis(60_000));
    assert!(
        (millis(5000)..millis(5100)).contains(&longest),
        "{longest:?}"
    );
}
