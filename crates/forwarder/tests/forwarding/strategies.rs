//! A property test for every strategy, and tests of each one's behaviour.

use std::collections::BTreeMap;

use proptest::prelude::*;
use whimbrel_forwarder::FaceId;
use whimbrel_forwarder::strategy::{StrategyError, StrategyKinds};
use whimbrel_ndn_packet::Name;

use super::contract::{keeps_its_contract, step};
use super::node::{Node, data, interest, lines, name};
use super::own_strategies::own;

fn strategies() -> Vec<Name> {
    let mut names = StrategyKinds::default().names();
    names.extend(["/own/by-rate", "/own/meddler"].map(name));
    names.push(name(
        "/localhost/nfd/strategy/asf/v=5/probing-interval~1000/max-timeouts~1",
    ));
    names.push(name(
        "/localhost/nfd/strategy/weighted/v=1/by~object/weights~cost/face-256~0",
    ));
    names.push(name(
        "/localhost/nfd/strategy/best-route/v=5/retx-suppression-initial~1/retx-suppression-max~2",
    ));
    names.push(name("/localhost/nfd/strategy/repeat/v=1/after~1/tries~255"));
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_strategy_keeps_its_contract(steps in prop::collection::vec(step(), 1..120)) {
        for strategy in strategies() {
            let mut node = Node::with_faces(2);
            let (choice, root) = (node.forwarder.strategies_mut(), Name::root());
            match own(&strategy) {
                Some(own) => choice.install(root.as_ref(), strategy.clone(), own).unwrap(),
                None => drop(choice.set(root.as_ref(), strategy.as_ref()).unwrap()),
            }
            keeps_its_contract(&strategy.to_string(), node, &steps)?;
        }
    }
}

/// Returns how many of 1,000 unanswered Interests for different names go to each face.
fn spread(node: &mut Node, names: impl Fn(u32) -> String) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    for number in 0..1000 {
        for sent in node.ask(256, &interest(&names(number), number)) {
            *counts.entry(sent.face.0).or_default() += 1;
        }
    }
    counts
}

fn three_ways(strategy: &str) -> Node {
    let mut node = Node::with_faces(4);
    for (face, cost) in [(257, 0), (258, 1), (259, 3)] {
        node.route("/a", face, cost);
    }
    node.strategy(strategy);
    node
}

#[test]
fn multicast_uses_all_next_hops_and_each_again_only_after_a_pause() {
    let mut node = three_ways("/localhost/nfd/strategy/multicast");
    assert_eq!(
        node.ask_lines(256, &interest("/a", 1)),
        ["257 interest /a", "258 interest /a", "259 interest /a"]
    );
    assert_eq!(node.ask_lines(256, &interest("/a", 2)), [""; 0]);
    node.wait(11);
    assert_eq!(node.ask_lines(256, &interest("/a", 3)).len(), 3);
    assert_eq!(lines(&node.receive(258, &data("/a"))), ["256 data /a"]);
}

#[test]
fn random_uses_each_next_hop_about_equally() {
    let mut node = three_ways("/localhost/nfd/strategy/random");
    let counts = spread(&mut node, |number| format!("/a/{number}"));
    assert!(
        counts.len() == 3 && counts.values().all(|count| (250..420).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn weighted_spreads_by_cost_or_by_weights_of_faces() {
    let mut node = three_ways("/localhost/nfd/strategy/weighted");
    let counts = spread(&mut node, |number| format!("/a/{number}"));
    // The shares are 1, 1/2 and 1/4 of 7/4.
    let near = |count: u32, expected: u32| count.abs_diff(expected) < 60;
    assert!(
        near(counts[&257], 571) && near(counts[&258], 286) && near(counts[&259], 143),
        "{counts:?}"
    );
    let mut node =
        three_ways("/localhost/nfd/strategy/weighted/v=1/face-257~0/face-258~3/face-259~1");
    let counts = spread(&mut node, |number| format!("/a/{number}"));
    assert!(
        !counts.contains_key(&257) && near(counts[&258], 750) && near(counts[&259], 250),
        "{counts:?}"
    );
}

#[test]
fn weighted_by_object_keeps_the_segments_of_an_object_on_one_next_hop() {
    let mut node = three_ways("/localhost/nfd/strategy/weighted/v=1/by~object/weights~equal");
    let segments = spread(&mut node, |number| format!("/a/object/seg={number}"));
    assert_eq!(segments.values().copied().collect::<Vec<u32>>(), [1000]);
    let objects = spread(&mut node, |number| format!("/a/{number}/seg=0"));
    assert_eq!(objects.len(), 3);
}

/// Sends Interests for 100 names; the face that gets one answers after its delay.
fn exchange(node: &mut Node, round: u32, delay: impl Fn(u64) -> u64) -> BTreeMap<u64, u32> {
    let mut counts = BTreeMap::new();
    for number in 0..100 {
        let text = format!("/a/{round}/{number}");
        let mut sent = node.ask(256, &interest(&text, round * 1000 + number));
        sent.sort_by_key(|sent| delay(sent.face.0));
        let start = node.now;
        for sent in sent {
            *counts.entry(sent.face.0).or_default() += 1;
            let waited = node.now.since(start).as_millis() as u64;
            let delay = delay(sent.face.0);
            if delay < 10_000 {
                node.wait(delay.saturating_sub(waited));
                node.receive(sent.face.0, &data(&text));
            }
        }
        node.wait(100);
    }
    counts
}

#[test]
fn asf_finds_the_fastest_next_hop_by_probing_and_leaves_an_unresponsive_one() {
    let mut node = three_ways("/localhost/nfd/strategy/asf/v=5/probing-interval~1000");
    let delays = |face: u64| [40, 20, 5][(face - 257) as usize];
    assert!(
        exchange(&mut node, 0, delays)[&257] > 0,
        "by cost, before any measurement"
    );
    let counts = exchange(&mut node, 1, delays);
    assert!(counts[&259] > 80, "{counts:?}");
    assert!(node.forwarder.strategies().measurements() == 1);
    let broken = |face: u64| if face == 259 { 10_000 } else { 10 };
    exchange(&mut node, 2, broken);
    let counts = exchange(&mut node, 3, broken);
    assert!(
        counts.get(&259).copied().unwrap_or_default() < 20,
        "{counts:?}"
    );
    assert_eq!(counts.values().sum::<u32>().min(100), 100);
    node.forwarder.remove_face(node.now, FaceId(258));
    assert!(exchange(&mut node, 4, broken)[&257] > 80);
}

#[test]
fn a_strategy_is_named_with_or_without_version_and_with_parameters_that_it_has() {
    let mut node = Node::with_faces(0);
    let choice = node.forwarder.strategies_mut();
    let root = Name::root();
    let mut set = |text: &str| choice.set(root.as_ref(), name(text).as_ref());
    assert_eq!(
        set("/localhost/nfd/strategy/best-route").unwrap(),
        name("/localhost/nfd/strategy/best-route/v=5")
    );
    let asf = "/localhost/nfd/strategy/asf/v=5/probing-interval~30000/max-timeouts~2";
    assert_eq!(set(asf).unwrap(), name(asf));
    let known = String::from(
        "best-route/v=5, multicast/v=4, asf/v=5, random/v=1, weighted/v=1, repeat/v=1",
    );
    for unknown in [
        "/localhost/nfd/strategy/fastest",
        "/localhost/nfd/strategy/asf/v=4",
        "/localhost/nfd/strategy/asf/five",
        "/localhost/nfd/strategy",
        "/best-route",
    ] {
        assert_eq!(
            set(unknown),
            Err(StrategyError::Unknown {
                name: name(unknown),
                known: known.clone(),
            }),
            "{unknown}"
        );
    }
    for wrong in [
        "asf/v=5/probing-interval~1",
        "asf/v=5/probing-interval~soon",
        "asf/v=5/max-timeouts~0",
        "asf/v=5/max-timeouts~1/max-timeouts~2",
        "asf/v=5/measurement-lifetime~2000",
        "asf/v=5/speed~9",
        "best-route/v=5/max-timeouts~3",
        "best-route/v=5/retx-suppression-initial~300",
        "best-route/v=5/retx-suppression-multiplier~NaN",
        "weighted/v=1/by~face",
        "weighted/v=1/face-x~1",
        "weighted/v=1/face-256~-1",
        "random/v=1/word",
    ] {
        let answer = set(&format!("/localhost/nfd/strategy/{wrong}"));
        assert!(
            matches!(answer, Err(StrategyError::Parameter { .. })),
            "{wrong}: {answer:?}"
        );
    }
    assert_eq!(
        node.forwarder
            .strategies()
            .effective_name(name("/a/b").as_ref()),
        Some(name(asf))
    );
}

#[test]
fn the_longest_prefix_has_its_own_strategy_until_it_is_unset() {
    let mut node = three_ways("/localhost/nfd/strategy/best-route");
    let multicast = name("/localhost/nfd/strategy/multicast");
    let choice = node.forwarder.strategies_mut();
    choice
        .set(name("/a/all").as_ref(), multicast.as_ref())
        .unwrap();
    assert_eq!(choice.entries().len(), 2);
    assert_eq!(
        choice.unset(Name::root().as_ref()),
        Err(StrategyError::Root)
    );
    assert_eq!(choice.unset(name("/a").as_ref()), Ok(false));
    assert_eq!(node.ask_lines(256, &interest("/a/all/1", 1)).len(), 3);
    assert_eq!(node.ask_lines(256, &interest("/a/one/1", 2)).len(), 1);
    assert_eq!(
        node.forwarder
            .strategies_mut()
            .unset(name("/a/all").as_ref()),
        Ok(true)
    );
    assert_eq!(node.ask_lines(256, &interest("/a/all/2", 3)).len(), 1);
    // A pending Interest has the present strategy, rather than that of its arrival.
    node.wait(50);
    assert_eq!(node.ask_lines(256, &interest("/a/all/1", 4)).len(), 1);
    let deep = Name::root().join(name(&"/x".repeat(33)).as_ref());
    assert_eq!(
        node.forwarder
            .strategies_mut()
            .set(deep.as_ref(), multicast.as_ref()),
        Err(StrategyError::TooDeep(33))
    );
}
