//! RFA, the PAF-like and the CHoPCoP-like strategy, each by its own rules.

use std::collections::BTreeMap;

use core::time::Duration;

use whimbrel_forwarder::{FaceId, LinkState};
use whimbrel_ndn_packet::NackReason;

use super::node::{Node, Sent, data, interest, lines, name};
use super::with_faces;

const RFA: &str = "/localhost/nfd/strategy/rfa";
const PAF: &str = "/localhost/nfd/strategy/paf";

/// Consumers at 256, next hops 257 and 258.
fn two_ways(strategy: &str) -> Node {
    let mut node = with_faces(3);
    node.route("/a", 257, 0);
    node.route("/a", 258, 0);
    node.strategy(strategy);
    node
}

/// Asks for `count` names, one each millisecond; `answers` says after how many milliseconds a face
/// answers, if it does. Returns how many Interests each face got among the last half.
fn run(node: &mut Node, count: u32, answers: impl Fn(u64) -> Option<u64>) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    let mut due: Vec<(u32, u64, String)> = Vec::new();
    let first = node.now.since(whimbrel_core::Time::ZERO).as_millis() as u32;
    for number in 0..count {
        let mut asked = interest(&format!("/a/{first}/{number}"), number + 1);
        asked.lifetime = Some(Duration::from_secs(2));
        for sent in node.ask(256, &asked) {
            if let Some(after) = answers(sent.face.0) {
                due.push((
                    number + after as u32,
                    sent.face.0,
                    format!("/a/{first}/{number}"),
                ));
            }
            if number >= count / 2 {
                *counts.entry(sent.face.0).or_default() += 1;
            }
        }
        node.wait(1);
        due.retain(|(at, face, name)| {
            if *at <= number {
                node.receive(*face, &data(name));
            }
            *at > number
        });
    }
    counts
}

#[test]
fn rfa_shares_by_the_reciprocals_of_pending_interests() {
    let mut node = two_ways(RFA);
    // Both shares times their delays are the numbers of pending Interests, so the shares settle
    // where their ratio is the root of the ratio of delays: the ratio of pending is the inverse.
    let counts = run(&mut node, 8000, |face| {
        Some(if face == 257 { 10 } else { 90 })
    });
    let ratio = f64::from(counts[&257]) / f64::from(counts[&258]);
    assert!((2.2..3.8).contains(&ratio), "{counts:?}");
}

#[test]
fn rfa_hardly_uses_a_face_that_does_not_answer_and_returns_to_it() {
    let mut node = two_ways(RFA);
    let counts = run(&mut node, 4000, |face| (face == 257).then_some(5));
    assert!(counts[&257] > 8 * counts[&258], "{counts:?}");
    assert!(counts[&258] > 0);
    // Expired Interests are not pending: afterwards both are used alike.
    node.wait(3000);
    let counts = run(&mut node, 4000, |_| Some(5));
    assert!(
        counts[&257] < 2 * counts[&258] && counts[&258] < 2 * counts[&257],
        "{counts:?}"
    );
}

#[test]
fn paf_prefers_the_shorter_round_trip_and_keeps_trying_the_other() {
    let mut node = two_ways(PAF);
    let counts = run(&mut node, 4000, |face| {
        Some(if face == 257 { 10 } else { 60 })
    });
    assert!(counts[&257] > 2 * counts[&258], "{counts:?}");
    assert!(counts[&258] > 0, "{counts:?}");
}

fn queue(node: &mut Node, face: u64, packets: usize, rate: u64) {
    let state = LinkState {
        delivery_rate: Some(rate),
        queue_packets: packets,
        queue_bytes: packets * 1000,
        ..LinkState::default()
    };
    node.forwarder.set_link_state(node.now, FaceId(face), state);
}

fn marks(queue_packets: usize) -> usize {
    let mut node = two_ways("/localhost/nfd/strategy/chopcop/v=1/weight~1/max~60/min~20");
    let marks = (0..1000).filter(|number| {
        let name = format!("/a/{number}");
        let sent = node.ask(256, &interest(&name, *number + 1));
        queue(&mut node, 256, queue_packets, 1 << 40);
        let answered = node.receive(sent[0].face.0, &data(&name));
        queue(&mut node, 256, 0, 1 << 40);
        answered[0].header.congestion_mark == Some(1)
    });
    marks.count()
}

#[test]
fn chopcop_marks_more_the_longer_the_queue_is() {
    assert_eq!(marks(20), 0);
    // Half of the way to the upper bound: half of 0.1.
    assert!((25..80).contains(&marks(40)), "{}", marks(40));
    assert_eq!(marks(60), 1000);
}

/// Returns when each Interest was sent on, in milliseconds from the first.
fn sent_at(node: &mut Node, names: &[String], millis: u64) -> BTreeMap<String, u64> {
    let mut at = BTreeMap::new();
    let mut note = |sent: &[Sent], now: u64| {
        for sent in sent.iter().filter(|sent| sent.is_interest()) {
            at.insert(sent.interest().name.to_string(), now);
        }
    };
    for (number, name) in names.iter().enumerate() {
        note(&node.ask(256, &interest(name, number as u32 + 1)), 0);
    }
    for now in 1..=millis {
        let sent = node.wait(1);
        note(&sent, now);
    }
    at
}

#[test]
fn chopcop_sends_the_interests_of_each_flow_at_its_share_of_the_link() {
    let mut node = with_faces(2);
    node.route("/", 257, 0);
    node.strategy("/localhost/nfd/strategy/chopcop/v=1/min~0/max~1/patience~1000");
    // 1,100 bytes, the first guess of a Data's size, take 10 ms; the queue is full.
    queue(&mut node, 256, 50, 110_000);
    let names: Vec<String> = (0..30)
        .map(|number| format!("/{}/{number}", if number % 3 == 0 { "b" } else { "a" }))
        .collect();
    let at = sent_at(&mut node, &names, 700);
    assert_eq!(at.len(), 30, "none is lost");
    let last = |flow: &str| {
        let of = at.iter().filter(|(name, _)| name.starts_with(flow));
        of.map(|(_, at)| *at).max().unwrap()
    };
    // Two flows: one Interest each 20 ms. Flow a has 20, flow b 10.
    assert!((340..=400).contains(&last("/a")), "{at:?}");
    assert!((160..=200).contains(&last("/b")), "{at:?}");
}

#[test]
fn chopcop_forgets_a_delayed_interest_when_its_data_comes() {
    let mut node = with_faces(2);
    node.route("/", 257, 0);
    node.strategy("/localhost/nfd/strategy/chopcop/v=1/min~0/max~8/patience~1000");
    // Every Interest but the first is delayed, and answered at once: never more than one is pending.
    for number in 0..200u32 {
        queue(&mut node, 256, 50, 110_000);
        let name = format!("/a/{number}");
        let mut sent = node.ask(256, &interest(&name, number + 1));
        if sent.is_empty() {
            sent = node.wait(100);
        }
        assert_eq!(lines(&sent), [format!("257 interest {name}")]);
        node.receive(257, &data(&name));
    }
    // The queue is empty and nothing is pending, so nothing is delayed.
    queue(&mut node, 256, 0, 110_000);
    node.wait(100);
    for number in 1000..1004u32 {
        let name = format!("/a/{number}");
        let sent = node.ask(256, &interest(&name, number));
        assert_eq!(lines(&sent), [format!("257 interest {name}")]);
    }
}

#[test]
fn strategies_stay_alive_when_nothing_answers_and_when_a_face_goes() {
    for strategy in [RFA, PAF, "/localhost/nfd/strategy/chopcop"] {
        let mut node = two_ways(strategy);
        run(&mut node, 500, |_| None);
        node.wait(5000);
        let counts = run(&mut node, 500, |_| Some(5));
        assert!(counts.len() == 2, "{strategy}: {counts:?}");
        node.forwarder.remove_face(node.now, FaceId(257));
        let counts = run(&mut node, 200, |_| Some(5));
        assert_eq!(counts.keys().collect::<Vec<_>>(), [&258], "{strategy}");
    }
}

#[test]
fn chopcop_refuses_what_would_wait_too_long_and_shapes_nothing_without_a_rate() {
    let mut node = with_faces(2);
    node.route("/", 257, 0);
    node.strategy("/localhost/nfd/strategy/chopcop/v=1/min~0/max~1/patience~15");
    queue(&mut node, 256, 50, 110_000);
    let answers: Vec<Vec<String>> = (0..3)
        .map(|number| node.ask_lines(256, &interest(&format!("/a/{number}"), number + 1)))
        .collect();
    let refused = format!("256 nack /a/2 {}", NackReason::Congestion.code());
    assert_eq!(
        answers,
        [vec!["257 interest /a/0".to_owned()], vec![], vec![refused]]
    );
    assert_eq!(lines(&node.wait(15)), ["257 interest /a/1"]);
    let state = LinkState {
        queue_packets: 50,
        queue_bytes: 50_000,
        ..LinkState::default()
    };
    node.forwarder.set_link_state(node.now, FaceId(256), state);
    for number in 10..30 {
        assert_eq!(
            node.ask(256, &interest(&format!("/a/{number}"), number))
                .len(),
            1
        );
    }
}

#[test]
fn routes_are_labelled_by_their_faces_and_by_the_labels_before() {
    let label = |face: u64, before: Option<u64>, strategy: &str| {
        let mut node = with_faces(3);
        node.route("/a", face, 0);
        node.strategy(strategy);
        node.ask(256, &interest("/a", 1));
        let header = whimbrel_ndn_packet::LpHeader {
            route_label: before,
            ..Default::default()
        };
        node.receive_with(face, &data("/a"), &header)[0]
            .header
            .route_label
    };
    let labels: Vec<Option<u64>> = [(257, None), (258, None), (257, Some(1)), (257, Some(2))]
        .into_iter()
        .map(|(face, before)| label(face, before, RFA))
        .collect();
    for (at, one) in labels.iter().enumerate() {
        assert!(one.is_some() && !labels[..at].contains(one), "{labels:?}");
    }
    assert_eq!(label(257, Some(1), PAF), labels[2]);
    let other = name("/localhost/nfd/strategy/best-route").to_string();
    assert_eq!(label(257, Some(1), &other), None);
}
