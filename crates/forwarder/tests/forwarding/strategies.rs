//! A property test for every strategy, and tests of each one's behaviour.

use core::time::Duration;
use std::collections::BTreeMap;

use proptest::prelude::*;
use whimbrel_forwarder::strategy::{StrategyChoice, StrategyError};
use whimbrel_forwarder::{FaceId, LinkState, LinkType};
use whimbrel_ndn_packet::{NackReason, Name};

use crate::node::{Node, Sent, data, interest, lines, name};
use crate::own_strategies::own;

#[derive(Clone, Debug)]
enum Step {
    Ask {
        face: usize,
        name: usize,
        nonce: u32,
        can_be_prefix: bool,
        lifetime: u64,
    },
    Answer {
        name: usize,
        face: usize,
        mark: Option<u64>,
    },
    Link {
        face: usize,
        rate: Option<u64>,
        delay: u64,
    },
    Nack {
        sent: usize,
        reason: u64,
    },
    Dropped {
        sent: usize,
    },
    Wait(u64),
    Up {
        face: usize,
        up: bool,
    },
    Remove {
        face: usize,
    },
    Route {
        prefix: usize,
        face: usize,
        cost: u64,
    },
    Unroute {
        prefix: usize,
        face: usize,
    },
}

const NAMES: [&str; 6] = [
    "/a",
    "/a/b",
    "/a/b/c",
    "/x/y",
    "/localhop/z",
    "/localhost/w",
];
/// Two links with one peer, a shared one, an ad hoc one, and two programs.
const FACES: usize = 6;

fn step() -> impl Strategy<Value = Step> {
    let (face, name) = (0..FACES, 0..NAMES.len());
    prop_oneof![
        8 => (face.clone(), name.clone(), 0u32..40, any::<bool>(), prop_oneof![Just(0u64), 10u64..5000]).prop_map(
            |(face, name, nonce, can_be_prefix, lifetime)| Step::Ask { face, name, nonce, can_be_prefix, lifetime }),
        3 => (name.clone(), face.clone(), prop_oneof![3 => Just(None), 1 => (0u64..3).prop_map(Some)])
            .prop_map(|(name, face, mark)| Step::Answer { name, face, mark }),
        1 => (face.clone(), prop::option::of(0u64..100_000), 0u64..50)
            .prop_map(|(face, rate, delay)| Step::Link { face, rate, delay }),
        2 => (0usize..20, prop_oneof![Just(0u64), Just(50), Just(100), Just(150), Just(77)])
            .prop_map(|(sent, reason)| Step::Nack { sent, reason }),
        1 => (0usize..20).prop_map(|sent| Step::Dropped { sent }),
        3 => prop_oneof![0u64..30, 0u64..6000].prop_map(Step::Wait),
        1 => (face.clone(), any::<bool>()).prop_map(|(face, up)| Step::Up { face, up }),
        1 => face.clone().prop_map(|face| Step::Remove { face }),
        3 => (name.clone(), face.clone(), 0u64..4)
            .prop_map(|(prefix, face, cost)| Step::Route { prefix, face, cost }),
        1 => (name, face).prop_map(|(prefix, face)| Step::Unroute { prefix, face }),
    ]
}

struct World {
    node: Node,
    faces: Vec<FaceId>,
    /// Sent Interests that may be nacked or forgotten.
    log: Vec<Sent>,
}

impl World {
    fn new(strategy: &Name) -> World {
        let mut node = Node::with_faces(2);
        let (choice, root) = (node.forwarder.strategies_mut(), Name::root());
        match own(strategy) {
            Some(own) => choice
                .install(root.as_ref(), strategy.clone(), own)
                .unwrap(),
            None => drop(choice.set(root.as_ref(), strategy.as_ref()).unwrap()),
        }
        let mut faces = vec![FaceId(256), FaceId(257)];
        faces.push(node.add_shared_face(LinkType::MultiAccess));
        faces.push(node.add_shared_face(LinkType::AdHoc));
        faces.push(node.add_local_face());
        faces.push(node.add_local_face());
        World {
            node,
            faces,
            log: Vec::new(),
        }
    }

    /// Checks that every sent Interest went to a next hop that is up, other than its incoming face,
    /// and within its scope. No face got it twice.
    fn check_sent(&mut self, sent: &[Sent], from: Option<FaceId>) -> Result<(), TestCaseError> {
        let mut faces: BTreeMap<FaceId, usize> = BTreeMap::new();
        for sent in sent.iter().filter(|sent| sent.is_interest()) {
            let interest = sent.interest();
            let face = self.node.forwarder.face(sent.face);
            prop_assert!(face.is_some_and(|face| face.up), "{}", sent.line());
            let face = face.unwrap();
            let (_, hops) = self
                .node
                .forwarder
                .fib()
                .longest_match(interest.name)
                .unwrap();
            prop_assert!(
                hops.iter().any(|hop| hop.face == sent.face),
                "{}",
                sent.line()
            );
            let one_way = face.spec.link_type != LinkType::AdHoc;
            prop_assert!(
                !(one_way && from == Some(sent.face)),
                "{} came from there",
                sent.line()
            );
            let from_here = from
                .is_none_or(|from| self.node.forwarder.face(from).is_some_and(|f| f.is_local()));
            let is_under = |scope: &str| name(scope).as_ref().is_prefix_of(interest.name);
            prop_assert!(
                face.is_local() || !is_under("/localhost"),
                "{}",
                sent.line()
            );
            prop_assert!(
                face.is_local() || !is_under("/localhop") || from_here,
                "{}",
                sent.line()
            );
            *faces.entry(sent.face).or_default() += 1;
            prop_assert!(interest.nonce.is_some());
            let header = &sent.header;
            prop_assert_eq!(&header.pit_token, &None, "a token is for its own link");
            prop_assert_eq!(header.next_hop_face_id, None);
            prop_assert_eq!(&header.prefix_announcement, &None);
            prop_assert_eq!(header.cache_policy, None);
        }
        prop_assert!(faces.values().all(|count| *count == 1), "{:?}", lines(sent));
        self.log
            .extend(sent.iter().filter(|sent| sent.is_interest()).cloned());
        Ok(())
    }

    fn ask(
        &mut self,
        asked: &whimbrel_ndn_packet::Interest,
        from: FaceId,
    ) -> Result<(), TestCaseError> {
        let before = *self.node.forwarder.counters();
        let pending = self.node.forwarder.pit().len();
        let header = whimbrel_ndn_packet::LpHeader {
            pit_token: Some(token(from)),
            ..Default::default()
        };
        let sent = self.node.receive_with(from.0, &asked.encode(), &header);
        check_data(&sent, None)?;
        let after = *self.node.forwarder.counters();
        let count = |counters: &whimbrel_forwarder::ForwarderCounters, reason: &str| {
            counters
                .drops()
                .find(|(name, _)| *name == reason)
                .unwrap()
                .1
        };
        let dropped = |reason: &str| count(&after, reason) - count(&before, reason);
        let went_on = sent.iter().any(|sent| sent.is_interest() || sent.is_data());
        let settled = ["scope", "loop", "suppressed", "no-route", "unknown-face"]
            .iter()
            .any(|reason| dropped(reason) > 0);
        // An Interest with no lifetime expires as soon as it is processed.
        let expired = after.unsatisfied > before.unsatisfied;
        let waits = self.node.forwarder.pit().len() >= pending.max(1);
        prop_assert!(went_on || settled || expired || waits, "{asked:?} vanished");
        self.check_sent(&sent, Some(from))
    }

    fn run(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Ask {
                face,
                name,
                nonce,
                can_be_prefix,
                lifetime,
            } => {
                let mut asked = interest(NAMES[name], nonce);
                asked.can_be_prefix = can_be_prefix;
                asked.lifetime = Some(Duration::from_millis(lifetime));
                return self.ask(&asked, self.faces[face]);
            }
            Step::Answer { name, face, mark } => {
                // The Data is not cached, so that Interests reach the strategies.
                let header = whimbrel_ndn_packet::LpHeader {
                    cache_policy: Some(whimbrel_ndn_packet::CachePolicy::NoCache),
                    congestion_mark: mark,
                    ..Default::default()
                };
                let sent = self
                    .node
                    .receive_with(self.faces[face].0, &data(NAMES[name]), &header);
                prop_assert!(
                    !sent.iter().any(Sent::is_interest),
                    "a Data makes no Interest"
                );
                check_data(&sent, mark)?;
                let mut faces: Vec<_> = sent.iter().map(|sent| sent.face).collect();
                faces.dedup();
                prop_assert_eq!(faces.len(), sent.len(), "one Data for each downstream");
            }
            Step::Link { face, rate, delay } => {
                let state = LinkState {
                    delivery_rate: rate,
                    queue_age: Some(Duration::from_millis(delay)),
                    queue_packets: 9,
                    ..LinkState::default()
                };
                let face = self.faces[face];
                self.node
                    .forwarder
                    .set_link_state(self.node.now, face, state);
            }
            Step::Nack { sent, reason } if !self.log.is_empty() => {
                let sent = self.log[sent % self.log.len()].clone();
                let out = self
                    .node
                    .nack(sent.face.0, &sent.packet, NackReason::from_code(reason));
                self.check_sent(&out, None)?;
            }
            Step::Dropped { sent } if !self.log.is_empty() => {
                let sent = self.log[sent % self.log.len()].clone();
                self.node
                    .forwarder
                    .handle_dropped(self.node.now, sent.face, &sent.packet);
                let out = self.node.sent();
                self.check_sent(&out, None)?;
            }
            Step::Wait(millis) => {
                let out = self.node.wait(millis);
                self.check_sent(&out, None)?;
            }
            Step::Up { face, up } => {
                self.node
                    .forwarder
                    .set_face_up(self.node.now, self.faces[face], up)
            }
            Step::Remove { face } => {
                self.node
                    .forwarder
                    .remove_face(self.node.now, self.faces[face]);
                // Another face of its kind takes its place.
                self.faces[face] = match face {
                    0 | 1 => self.node.add_face(),
                    2 => self.node.add_shared_face(LinkType::MultiAccess),
                    3 => self.node.add_shared_face(LinkType::AdHoc),
                    _ => self.node.add_local_face(),
                };
            }
            Step::Route { prefix, face, cost } => {
                self.node.route(NAMES[prefix], self.faces[face].0, cost)
            }
            Step::Unroute { prefix, face } => {
                let prefix = name(NAMES[prefix]);
                self.node
                    .forwarder
                    .fib_mut()
                    .remove_next_hop(prefix.as_ref(), self.faces[face]);
            }
            Step::Nack { .. } | Step::Dropped { .. } => {}
        }
        Ok(())
    }
}

/// Returns the PIT token of a face's Interests.
fn token(face: FaceId) -> bytes::Bytes {
    face.0.to_be_bytes().to_vec().into()
}

/// Checks that every Data has the token of its face, and the congestion mark that it arrived with,
/// whatever its strategy attached.
fn check_data(sent: &[Sent], mark: Option<u64>) -> Result<(), TestCaseError> {
    for sent in sent.iter().filter(|sent| sent.is_data()) {
        let header = &sent.header;
        prop_assert_eq!(
            header.pit_token.as_ref(),
            Some(&token(sent.face)),
            "{}",
            sent.line()
        );
        prop_assert!(header.congestion_mark >= mark, "{}", sent.line());
        prop_assert!(header.nack.is_none() && header.next_hop_face_id.is_none());
        prop_assert!(!header.non_discovery);
    }
    Ok(())
}

fn strategies() -> Vec<Name> {
    let mut names = StrategyChoice::available();
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
    names.push(name(
        "/localhost/nfd/strategy/chopcop/v=1/by~best-route/min~0/max~1/probability~1/weight~1/patience~1000",
    ));
    names.push(name("/localhost/nfd/strategy/repeat/v=1/after~1/tries~255"));
    names
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_strategy_keeps_its_contract(steps in prop::collection::vec(step(), 1..120)) {
        for strategy in strategies() {
            let mut world = World::new(&strategy);
            for step in &steps {
                world.run(step.clone())?;
            }
            world.node.wait(20_000);
            prop_assert!(world.node.forwarder.pit().is_empty(), "{strategy}");
            prop_assert_eq!(world.node.forwarder.poll_timeout(), None);
            prop_assert_eq!(world.node.forwarder.dead_nonces_len(), 0);
            let faces: Vec<_> = world.node.forwarder.faces().map(|face| face.id()).collect();
            for face in faces {
                prop_assert_eq!(world.node.forwarder.face(face).unwrap().pending_interests(), 0);
                world.node.forwarder.remove_face(world.node.now, face);
            }
            prop_assert!(world.node.forwarder.fib().is_empty());
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
    assert!(node.forwarder.measurements_len() == 1);
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
    for unknown in [
        "/localhost/nfd/strategy/fastest",
        "/localhost/nfd/strategy/asf/v=4",
        "/localhost/nfd/strategy/asf/five",
        "/localhost/nfd/strategy",
        "/best-route",
    ] {
        assert_eq!(
            set(unknown),
            Err(StrategyError::Unknown(name(unknown))),
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
