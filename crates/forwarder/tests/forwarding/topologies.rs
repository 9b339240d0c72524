//! A few connected forwarders with any routes, loops included, over links that lose, delay, reorder
//! and duplicate, on the testbed.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_forwarder::strategy::StrategyKinds;
use whimbrel_forwarder::{CsConfig, FaceId, ForwarderConfig};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{DataRef, InterestRef, LpPacket, Name};
use whimbrel_sim::DuplexLink;
use whimbrel_sim::link::{LinkSpec, Loss, Reorder};
use whimbrel_sim::testbed::Net;

use super::node::{Node, data, interest};

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
    /// For each node, the costs of its links, in their order, towards the producer's prefix; `None`
    /// means no route.
    routes: Vec<Vec<Option<u64>>>,
    /// Node, time and name of each program's Interests.
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
        // A line through all nodes, and further links between any two of them.
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
        let strategies = prop::collection::vec(0..StrategyKinds::default().names().len(), nodes);
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

/// The time by which everything must have ended.
const END: Time = Time::from_secs(600);
/// The producer's delay.
const PRODUCTION: Duration = Duration::from_millis(1);

/// A packet from a program or the producer to its forwarder.
enum Local {
    Ask { name: u32, nonce: u32 },
    Data(Name),
}

/// A forwarder, a program on its machine, and perhaps the producer.
struct Switch {
    node: Node,
    program: FaceId,
    producer: Option<FaceId>,
    /// The costs of the links' routes, in their order.
    costs: Vec<Option<u64>>,
    links: BTreeMap<PortId, FaceId>,
    local: BTreeMap<(Time, u64), Local>,
    next_local: u64,
    frames: VecDeque<(PortId, Vec<u8>)>,
    interests_sent: usize,
    /// Data received by the program, with the time.
    answers: Vec<(Name, Time)>,
}

impl Switch {
    fn new(plan: &Plan, number: usize) -> Switch {
        let capacity = if plan.cached { 1 << 20 } else { 0 };
        let mut node = Node::new(ForwarderConfig {
            content_store: CsConfig {
                capacity,
                ..CsConfig::default()
            },
            ..ForwarderConfig::default()
        });
        let strategy = &StrategyKinds::default().names()[plan.strategies[number]];
        let strategies = node.forwarder.strategies_mut();
        strategies
            .set(Name::root().as_ref(), strategy.as_ref())
            .unwrap();
        let program = node.add_local_face();
        // The producer is at the last node.
        let producer = (number + 1 == plan.nodes).then(|| node.add_local_face());
        if let Some(producer) = producer {
            node.route("/p", producer.0, 0);
        }
        Switch {
            node,
            program,
            producer,
            costs: plan.routes[number].clone(),
            links: BTreeMap::new(),
            local: BTreeMap::new(),
            next_local: 0,
            frames: VecDeque::new(),
            interests_sent: 0,
            answers: Vec::new(),
        }
    }

    fn later(&mut self, at: Time, local: Local) {
        self.next_local += 1;
        self.local.insert((at, self.next_local), local);
    }

    fn hand_in(&mut self, now: Time, face: FaceId, packet: &[u8]) {
        let Ok(lp) = LpPacket::decode(packet, false) else {
            panic!("a frame that no forwarder wrote");
        };
        self.node.now = now;
        self.node.forwarder.handle_packet(now, face, &lp);
    }

    /// Passes on everything that the forwarder sends.
    fn take(&mut self, now: Time) {
        for sent in self.node.sent() {
            if let Some((port, _)) = self.links.iter().find(|(_, face)| **face == sent.face) {
                self.interests_sent += usize::from(sent.is_interest());
                let mut frame = Vec::new();
                let none = LinkFields::default();
                lp::encode(&mut frame, &none, &sent.header, Some(&sent.packet));
                self.frames.push_back((*port, frame));
            } else if sent.face == self.program {
                if let Ok(data) = DataRef::decode(&sent.packet) {
                    self.answers.push((data.name.to_name(), now));
                }
            } else if let Ok(interest) = InterestRef::decode(&sent.packet) {
                assert_eq!(Some(sent.face), self.producer);
                self.later(now + PRODUCTION, Local::Data(interest.name.to_name()));
            }
        }
    }
}

impl Machine for Switch {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        if let PortEvent::Up(_) = event {
            let face = self.node.add_face();
            if let Some(cost) = self.costs[self.links.len()] {
                self.node.route("/p", face.0, cost + 1);
            }
            self.links.insert(port, face);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.hand_in(now, self.links[&port], frame);
            self.take(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(entry) = self.local.first_entry().filter(|it| it.key().0 <= now) {
            match entry.remove() {
                Local::Ask { name, nonce } => {
                    let mut asked = interest(&format!("/p/{name}"), nonce);
                    asked.lifetime = Some(Duration::from_millis(1000));
                    self.hand_in(now, self.program, &asked.encode());
                }
                Local::Data(name) => {
                    let producer = self.producer.unwrap();
                    self.hand_in(now, producer, &data(&name.to_string()));
                }
            }
            self.take(now);
        }
        self.node.forwarder.handle_timeout(now);
        self.take(now);
    }

    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (port, frame) = self.frames.pop_front()?;
        buffer.extend_from_slice(&frame);
        Some(Transmit {
            port,
            size: frame.len(),
            segment_size: None,
        })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let local = self.local.keys().next();
        let local = local.map(|(at, _)| Deadline::new(*at, "a program or the producer"));
        Deadline::earlier(local, self.node.forwarder.poll_timeout())
    }
}

struct Network {
    net: Net<Switch>,
}

impl Network {
    fn new(plan: &Plan) -> Network {
        let mut net = Net::new(plan.seed);
        for number in 0..plan.nodes {
            let switch = Switch::new(plan, number);
            net.add_mortal(&format!("node {number}"), switch);
        }
        for link in &plan.links {
            let half = Duration::from_micros(2_500);
            let spec = LinkSpec {
                delay: Duration::from_millis(link.delay) + half,
                jitter: half,
                loss: Loss::Independent(link.loss),
                reorder: Some(Reorder {
                    probability: 0.5,
                    extra_delay: 2 * half,
                }),
                duplicate: link.duplication,
                ..LinkSpec::default()
            };
            let (a, b) = link.ends;
            net.connect(a, b, &DuplexLink::symmetric(spec)).unwrap();
        }
        net.run_until(Time::from_secs(1));
        Network { net }
    }

    /// Runs until nothing more happens. Returns false if that takes too long.
    fn run(&mut self) -> bool {
        self.net.run_until_idle(END)
    }

    fn ask_all(&mut self, plan: &Plan) {
        for (nonce, (node, after, name)) in (1..).zip(&plan.asks) {
            let (after, name) = (Duration::from_millis(*after), *name);
            self.net.with(*node, |switch, now| {
                switch.later(now + after, Local::Ask { name, nonce });
            });
        }
    }

    fn interests_on_links(&self) -> usize {
        let nodes = self.net.nodes();
        nodes.map(|node| self.net[node].interests_sent).sum()
    }

    /// Returns the Data of all programs: node, name and time.
    fn answers(&self) -> Vec<(usize, Name, Time)> {
        let of = |node: usize| {
            let answers = self.net[node].answers.iter();
            answers.map(move |(name, at)| (node, name.clone(), *at))
        };
        self.net.nodes().flat_map(of).collect()
    }

    fn check_that_nothing_stays(&mut self) -> Result<(), TestCaseError> {
        for node in self.net.nodes() {
            self.net.with(node, |switch, now| {
                switch.node.now = now;
                switch.node.wait(7_000);
                let forwarder = &switch.node.forwarder;
                prop_assert!(forwarder.pit().is_empty());
                prop_assert_eq!(forwarder.dead_nonces_len(), 0);
                prop_assert!(forwarder.faces().all(|face| face.pending_interests() == 0));
                Ok(())
            })?;
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// For any routes and links, everything ends. No program is answered twice or without an
    /// Interest, and no state remains.
    #[test]
    fn no_interest_runs_forever_and_no_state_stays(plan in plan(false)) {
        let mut network = Network::new(&plan);
        let start = network.net.now();
        network.ask_all(&plan);
        prop_assert!(network.run(), "it did not end");
        // Each end of a link may forward each program's Interest once, and also a duplicate or a
        // probe of it.
        let bound = plan.asks.len() * plan.links.len() * 2 * 4;
        let sent = network.interests_on_links();
        prop_assert!(sent <= bound, "{sent} of {bound}");
        let asked = |node: usize, name: &Name| {
            let named = |asked: &u32| *name == super::node::name(&format!("/p/{asked}"));
            plan.asks.iter().filter(|(at, _, asked)| *at == node && named(asked)).count()
        };
        let mut counts: BTreeMap<(usize, Name), usize> = BTreeMap::new();
        for (node, name, at) in &network.answers() {
            *counts.entry((*node, name.clone())).or_default() += 1;
            let last = plan.asks.iter().map(|(_, after, _)| *after).max().unwrap();
            prop_assert!(*at <= start + Duration::from_millis(last + 1000), "after its lifetime");
        }
        for ((node, name), count) in counts {
            prop_assert!(count <= asked(node, &name), "{count} answers for {name} at {node}");
        }
        network.check_that_nothing_stays()?;
    }

    /// Along a line of lossless links, every Interest is answered: one Data for each in-record.
    #[test]
    fn every_interest_is_answered_where_routes_lead_and_links_lose_nothing(mut plan in plan(true)) {
        plan.links.truncate(plan.nodes - 1);
        // In a line, a node's first face leads back and its last one forward.
        for (node, routes) in plan.routes.iter_mut().enumerate() {
            routes.iter_mut().for_each(|route| *route = None);
            if node + 1 < plan.nodes {
                routes[usize::from(node > 0)] = Some(0);
            }
        }
        let mut network = Network::new(&plan);
        network.ask_all(&plan);
        prop_assert!(network.run());
        // A program that repeats a pending Interest has one in-record, and gets one Data.
        let mut answered: Vec<_> = network.answers().into_iter().map(|(node, name, _)| (node, name)).collect();
        answered.sort_unstable();
        let asked = plan.asks.iter().map(|(node, _, name)| (*node, super::node::name(&format!("/p/{name}"))));
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
