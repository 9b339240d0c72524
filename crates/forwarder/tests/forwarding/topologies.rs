//! A few forwarders connected directly, with any routes, loops included, over links that lose,
//! delay and duplicate.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BinaryHeap};

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_core::{SeededRng, Time};
use whimbrel_forwarder::strategy::StrategyChoice;
use whimbrel_forwarder::{CsConfig, FaceId, ForwarderConfig};
use whimbrel_ndn_packet::{DataRef, InterestRef, LpHeader, Name};

use crate::node::{Node, data, interest};

#[derive(Clone, Debug)]
struct Link {
    ends: (usize, usize),
    delay: u64,
    loss: f64,
    duplication: f64,
}

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    nodes: usize,
    links: Vec<Link>,
    strategies: Vec<usize>,
    /// Of each node: the costs of its links, in their order, towards the producer's prefix; `None`
    /// for no route.
    routes: Vec<Vec<Option<u64>>>,
    /// At which node and when a program asks for which name.
    asks: Vec<(usize, u64, u32)>,
    cached: bool,
}

fn plan(lossless: bool) -> impl Strategy<Value = Plan> {
    let nodes = 2usize..6;
    nodes.prop_flat_map(move |nodes| {
        let loss = if lossless {
            Just(0.0).boxed()
        } else {
            prop_oneof![Just(0.0), Just(0.3)].boxed()
        };
        let duplication = if lossless {
            Just(0.0).boxed()
        } else {
            prop_oneof![Just(0.0), Just(0.3)].boxed()
        };
        // A line through all nodes, and further links between any of them.
        let further = prop::collection::vec((0..nodes, 0..nodes), 0..5);
        let details = prop::collection::vec((1u64..40, loss, duplication), 12);
        let links = (further, details).prop_map(move |(further, details)| {
            let line = (1..nodes).map(|node| (node - 1, node));
            let ends = line.chain(further.into_iter().filter(|(a, b)| a != b));
            let link = |(ends, (delay, loss, duplication))| Link {
                ends,
                delay,
                loss,
                duplication,
            };
            ends.zip(details).map(link).collect::<Vec<_>>()
        });
        let strategies = prop::collection::vec(0..StrategyChoice::available().len(), nodes);
        let routes =
            prop::collection::vec(prop::collection::vec(prop::option::of(0u64..3), 12), nodes);
        let asks = prop::collection::vec((0..nodes, 0u64..300, 0u32..4), 1..12);
        (any::<u64>(), links, strategies, routes, asks, any::<bool>()).prop_map(
            move |(seed, links, strategies, routes, asks, cached)| Plan {
                seed,
                nodes,
                links,
                strategies,
                routes,
                asks,
                cached,
            },
        )
    })
}

enum Event {
    Packet {
        node: usize,
        face: FaceId,
        packet: Bytes,
        header: LpHeader,
    },
    Ask {
        node: usize,
        name: u32,
        nonce: u32,
    },
}

struct Network {
    nodes: Vec<Node>,
    links: Vec<Link>,
    /// Of each face of a node that is a link's end: the link and the other end.
    peers: BTreeMap<(usize, FaceId), (usize, usize, FaceId)>,
    programs: Vec<FaceId>,
    producer: FaceId,
    events: BinaryHeap<Reverse<(Time, u64, usize)>>,
    stored: Vec<Option<Event>>,
    rng: SeededRng,
    now: Time,
    interests_on_links: usize,
    /// Data that each program got: node, name and when.
    answers: Vec<(usize, Name, Time)>,
}

impl Network {
    fn new(plan: &Plan) -> Network {
        let capacity = if plan.cached { 1 << 20 } else { 0 };
        let config = ForwarderConfig {
            content_store: CsConfig {
                capacity,
                ..CsConfig::default()
            },
            ..ForwarderConfig::default()
        };
        let mut nodes: Vec<Node> = (0..plan.nodes).map(|_| Node::new(config.clone())).collect();
        let (mut peers, mut faces_of) = (BTreeMap::new(), vec![Vec::new(); plan.nodes]);
        for (number, link) in plan.links.iter().enumerate() {
            let (a, b) = link.ends;
            let (at_a, at_b) = (nodes[a].add_face(), nodes[b].add_face());
            peers.insert((a, at_a), (number, b, at_b));
            peers.insert((b, at_b), (number, a, at_a));
            faces_of[a].push(at_a);
            faces_of[b].push(at_b);
        }
        let programs = nodes.iter_mut().map(Node::add_local_face).collect();
        // The producer is at the last node.
        let producer = nodes.last_mut().map(Node::add_local_face).unwrap();
        nodes.last_mut().unwrap().route("/p", producer.0, 0);
        for (number, node) in nodes.iter_mut().enumerate() {
            let strategy = &StrategyChoice::available()[plan.strategies[number]];
            node.forwarder
                .strategies_mut()
                .set(Name::root().as_ref(), strategy.as_ref())
                .unwrap();
            for (face, cost) in faces_of[number].iter().zip(&plan.routes[number]) {
                if let Some(cost) = cost {
                    node.route("/p", face.0, cost + 1);
                }
            }
        }
        Network {
            nodes,
            links: plan.links.clone(),
            peers,
            programs,
            producer,
            events: BinaryHeap::new(),
            stored: Vec::new(),
            rng: SeededRng::new(plan.seed),
            now: Time::from_secs(1),
            interests_on_links: 0,
            answers: Vec::new(),
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.events
            .push(Reverse((at, self.stored.len() as u64, self.stored.len())));
        self.stored.push(Some(event));
    }

    /// Takes everything that a node wants to send to where it goes.
    fn drain(&mut self, node: usize) {
        for sent in self.nodes[node].sent() {
            if let Some((link, peer, at_peer)) = self.peers.get(&(node, sent.face)).copied() {
                let Link {
                    delay,
                    loss,
                    duplication,
                    ..
                } = self.links[link].clone();
                self.interests_on_links += usize::from(sent.is_interest());
                let copies = 1 + usize::from(self.rng.chance(duplication));
                for _ in 0..copies {
                    if !self.rng.chance(loss) {
                        let jitter = self.rng.below(10_000_000);
                        let at =
                            self.now + Duration::from_millis(delay) + Duration::from_nanos(jitter);
                        let (packet, header) = (sent.packet.clone(), sent.header.clone());
                        self.schedule(
                            at,
                            Event::Packet {
                                node: peer,
                                face: at_peer,
                                packet,
                                header,
                            },
                        );
                    }
                }
            } else if sent.face == self.programs[node] {
                if let Ok(data) = DataRef::decode(&sent.packet) {
                    self.answers.push((node, data.name.to_name(), self.now));
                }
            } else if let Ok(interest) = InterestRef::decode(&sent.packet) {
                assert_eq!(sent.face, self.producer);
                let packet = data(&interest.name.to_string());
                let at = self.now + Duration::from_millis(1);
                self.schedule(
                    at,
                    Event::Packet {
                        node,
                        face: self.producer,
                        packet,
                        header: LpHeader::default(),
                    },
                );
            }
        }
    }

    /// Runs until nothing happens any more. False if it does not end.
    fn run(&mut self) -> bool {
        for _ in 0..200_000 {
            let timeouts = self.nodes.iter().enumerate().filter_map(|(number, node)| {
                Some((node.forwarder.poll_timeout()?.at.max(self.now), number))
            });
            let timeout = timeouts.min();
            let event = self.events.peek().map(|Reverse((at, _, _))| *at);
            match (event, timeout) {
                (None, None) => return true,
                (Some(at), timeout) if timeout.is_none_or(|(due, _)| at <= due) => self.happen(),
                (_, Some((due, node))) => {
                    self.now = due;
                    self.nodes[node].forwarder.handle_timeout(due);
                    self.drain(node);
                }
                (Some(_), None) => self.happen(),
            }
        }
        false
    }

    fn happen(&mut self) {
        let Some(Reverse((at, _, which))) = self.events.pop() else {
            return;
        };
        self.now = at;
        self.nodes.iter_mut().for_each(|node| node.now = at);
        let node = match self.stored[which].take().unwrap() {
            Event::Packet {
                node,
                face,
                packet,
                header,
            } => {
                let mut frame = Vec::new();
                whimbrel_ndn_packet::lp::encode(
                    &mut frame,
                    &Default::default(),
                    &header,
                    Some(&packet),
                );
                let lp = whimbrel_ndn_packet::LpPacket::decode(&frame, false).unwrap();
                self.nodes[node].forwarder.handle_packet(at, face, &lp);
                node
            }
            Event::Ask { node, name, nonce } => {
                let mut asked = interest(&format!("/p/{name}"), nonce);
                asked.lifetime = Some(Duration::from_millis(1000));
                let lp = asked.encode();
                let lp = whimbrel_ndn_packet::LpPacket::decode(&lp, false).unwrap();
                let face = self.programs[node];
                self.nodes[node].forwarder.handle_packet(at, face, &lp);
                node
            }
        };
        self.drain(node);
    }

    fn ask_all(&mut self, plan: &Plan) {
        for (nonce, (node, after, name)) in plan.asks.iter().enumerate() {
            let at = self.now + Duration::from_millis(*after);
            self.schedule(
                at,
                Event::Ask {
                    node: *node,
                    name: *name,
                    nonce: nonce as u32 + 1,
                },
            );
        }
    }

    fn check_that_nothing_stays(&mut self) -> Result<(), TestCaseError> {
        for node in &mut self.nodes {
            node.now = self.now;
            node.wait(7_000);
            prop_assert!(node.forwarder.pit().is_empty());
            prop_assert_eq!(node.forwarder.dead_nonces_len(), 0);
            prop_assert!(
                node.forwarder
                    .faces()
                    .all(|face| face.pending_interests() == 0)
            );
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the routes and the links: it ends, nobody is answered twice or with what was not
    /// asked, nothing stays.
    #[test]
    fn no_interest_runs_forever_and_no_state_stays(plan in plan(false)) {
        let mut network = Network::new(&plan);
        let start = network.now;
        network.ask_all(&plan);
        prop_assert!(network.run(), "it did not end");
        // Each program's Interest may be forwarded once by each link end, a duplicate or a probe of
        // it as well.
        let bound = plan.asks.len() * plan.links.len() * 2 * 4;
        prop_assert!(network.interests_on_links <= bound, "{} of {bound}", network.interests_on_links);
        let asked = |node: usize, name: &Name| {
            let named = |asked: &u32| *name == crate::node::name(&format!("/p/{asked}"));
            plan.asks.iter().filter(|(at, _, asked)| *at == node && named(asked)).count()
        };
        let mut counts: BTreeMap<(usize, Name), usize> = BTreeMap::new();
        for (node, name, at) in &network.answers {
            *counts.entry((*node, name.clone())).or_default() += 1;
            let last = plan.asks.iter().map(|(_, after, _)| *after).max().unwrap();
            prop_assert!(*at <= start + Duration::from_millis(last + 1000), "after its lifetime");
        }
        for ((node, name), count) in counts {
            prop_assert!(count <= asked(node, &name), "{count} answers for {name} at {node}");
        }
        network.check_that_nothing_stays()?;
    }

    /// Along a line whose links lose nothing, every Interest is answered: one Data for each
    /// in-record.
    #[test]
    fn every_interest_is_answered_where_routes_lead_and_links_lose_nothing(mut plan in plan(true)) {
        plan.links.truncate(plan.nodes - 1);
        // In a line, a node's first face leads back and its last one on.
        for (node, routes) in plan.routes.iter_mut().enumerate() {
            routes.iter_mut().for_each(|route| *route = None);
            if node + 1 < plan.nodes {
                routes[usize::from(node > 0)] = Some(0);
            }
        }
        let mut network = Network::new(&plan);
        network.ask_all(&plan);
        prop_assert!(network.run());
        // A program that asks again for what it waits for has one in-record, and gets one Data.
        let mut answered: Vec<_> = network.answers.iter().map(|(node, name, _)| (*node, name.clone())).collect();
        answered.sort_unstable();
        let asked = plan.asks.iter().map(|(node, _, name)| (*node, crate::node::name(&format!("/p/{name}"))));
        let mut asked: Vec<_> = asked.collect();
        asked.sort_unstable();
        asked.dedup();
        let mut distinct = answered.clone();
        distinct.dedup();
        prop_assert_eq!(distinct, asked);
        prop_assert!(answered.len() <= plan.asks.len());
        network.check_that_nothing_stays()?;
    }
}
