//! What every strategy must keep, whatever happens around it.

use core::time::Duration;
use std::collections::BTreeMap;

use proptest::prelude::*;
use whimbrel_forwarder::{FaceId, LinkState, LinkType};
use whimbrel_ndn_packet::NackReason;

use super::node::{Node, Sent, data, interest, lines, name};

#[derive(Clone, Debug)]
pub(crate) enum Step {
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

pub(crate) fn step() -> impl Strategy<Value = Step> {
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

pub(crate) struct World {
    node: Node,
    faces: Vec<FaceId>,
    /// Sent Interests that may be nacked or forgotten.
    log: Vec<Sent>,
}

impl World {
    /// A node with two faces, and the strategy to test at `/`.
    fn new(mut node: Node) -> World {
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

/// Runs the steps on a node with two faces whose strategy of `/` is to be tested; `label` names it.
pub(crate) fn keeps_its_contract(
    label: &str,
    node: Node,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let mut world = World::new(node);
    for step in steps {
        world.run(step.clone())?;
    }
    world.node.wait(20_000);
    prop_assert!(world.node.forwarder.pit().is_empty(), "{label}");
    prop_assert_eq!(world.node.forwarder.poll_timeout(), None);
    prop_assert_eq!(world.node.forwarder.dead_nonces_len(), 0);
    let faces: Vec<_> = world.node.forwarder.faces().map(|face| face.id()).collect();
    for face in faces {
        prop_assert_eq!(
            world.node.forwarder.face(face).unwrap().pending_interests(),
            0
        );
        world.node.forwarder.remove_face(world.node.now, face);
    }
    prop_assert!(world.node.forwarder.fib().is_empty());
    Ok(())
}
