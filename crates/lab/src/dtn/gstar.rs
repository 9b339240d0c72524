//! Whimbrel's routing: the machines that ship, without their hops.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{Guid, KeyPair, LinkState, Time};
use whimbrel_routing::{LinkSample, Message as RoutingMessage, Routing};

use super::{CopyOrMove, DtnMessage, DtnProtocol, HeldMessage, Pairs};

/// How long a message of the routing is on its way.
const DELAY: Duration = Duration::from_millis(20);

/// One copy of each message: it follows a path of the moment if there is one, else it goes to a neighbour that is
/// usually closer to its receiver.
#[derive(Debug)]
pub struct Gstar {
    names: Vec<Guid>,
    numbers: BTreeMap<Guid, usize>,
    routers: Vec<Routing>,
    up: Pairs,
    met: Pairs,
    sample: LinkSample,
    // What is on its way, in the order of arrival.
    on_way: VecDeque<(Time, usize, usize, RoutingMessage)>,
}

fn keys(node: usize) -> KeyPair {
    let mut secret = [9; 32];
    secret[..8].copy_from_slice(&(node as u64).to_be_bytes());
    KeyPair::from_secret(&secret)
}

/// Times of machines begin after zero.
fn time(at: Duration) -> Time {
    Time::from_secs(1) + at
}

fn pair(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

impl Gstar {
    /// Returns the routing of `nodes` nodes. Their contacts carry this rate, in octets per second.
    pub fn new(nodes: usize, rate: u64) -> Gstar {
        let names: Vec<Guid> = (0..nodes).map(|node| keys(node).guid()).collect();
        let new = |node| Routing::new(time(Duration::ZERO), keys(node));
        Gstar {
            numbers: names.iter().copied().zip(0..).collect(),
            routers: (0..nodes).map(new).collect(),
            names,
            up: Pairs::new(),
            met: Pairs::new(),
            sample: LinkSample {
                state: LinkState {
                    delivery_rate: Some(rate),
                    ..LinkState::default()
                },
                ..LinkSample::default()
            },
            on_way: VecDeque::new(),
        }
    }

    fn is_up(&self, a: usize, b: usize) -> bool {
        self.up.contains(&pair(a, b))
    }

    /// Delivers what has arrived by now, and what that causes.
    fn settle(&mut self, now: Time) {
        for node in 0..self.routers.len() {
            self.collect(node, now);
        }
        while self.on_way.front().is_some_and(|it| it.0 <= now) {
            let Some((at, from, to, message)) = self.on_way.pop_front() else {
                return;
            };
            if self.is_up(from, to) {
                let name = self.names[from];
                // A drop is the routing's own business.
                let _ = self.routers[to].handle_message(at, name, message);
                self.collect(to, at);
            }
        }
    }

    /// Takes what a node has to say.
    fn collect(&mut self, node: usize, now: Time) {
        while let Some((to, message)) = self.routers[node].poll_message() {
            if let Some(to) = self.numbers.get(&to).copied() {
                self.on_way.push_back((now + DELAY, node, to, message));
            }
        }
    }
}

impl DtnProtocol for Gstar {
    fn meet(&mut self, now: Duration, a: usize, b: usize) {
        let at = time(now);
        self.settle(at);
        self.up.insert((a, b));
        let is_first = self.met.insert((a, b));
        for (own, peer) in [(a, b), (b, a)] {
            let name = self.names[peer];
            self.routers[own].handle_up(at, name, is_first);
            self.routers[own].note_link(at, &name, &self.sample);
        }
        self.settle(at);
    }

    fn part(&mut self, now: Duration, a: usize, b: usize) {
        let at = time(now);
        self.settle(at);
        self.up.remove(&(a, b));
        for (own, peer) in [(a, b), (b, a)] {
            let name = self.names[peer];
            self.routers[own].handle_down(at, &name);
        }
    }

    fn send(&mut self, _: usize, _: &DtnMessage) {}
    fn passed(&mut self, _: usize, _: usize, _: usize) {}

    fn choose(
        &mut self,
        _: Duration,
        from: usize,
        to: usize,
        held: &HeldMessage,
    ) -> Option<CopyOrMove> {
        let (routing, destination) = (&self.routers[from], &self.names[held.to]);
        let next = match routing.ways(destination) {
            [] => routing.carrier(destination),
            [best, ..] => Some(best),
        };
        let is_next = next.is_some_and(|way| way.neighbour == self.names[to]);
        is_next.then_some(CopyOrMove::Move)
    }

    fn advance(&mut self, now: Duration) -> bool {
        let at = time(now);
        self.settle(at);
        for (a, b) in self.up.clone() {
            for (own, peer) in [(a, b), (b, a)] {
                let name = self.names[peer];
                self.routers[own].note_link(at, &name, &self.sample);
            }
        }
        for routing in &mut self.routers {
            if routing.poll_timeout().at <= at {
                routing.handle_timeout(at);
            }
        }
        self.settle(at);
        true
    }
}
