//! A network of routers in virtual time, without hops: messages that are lost, late and out of order,
//! links that fail and return, each end noticing in its own time, and routers that crash.

#![allow(dead_code, reason = "each binary uses a part")]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, KeyPair, LinkState, SeededRng, Time};
use whimbrel_routing::{Cost, LinkSample, Message, Routing};

/// Two ends of a link, the smaller one first.
pub(crate) type Pair = (usize, usize);

#[derive(Debug)]
enum Event {
    Deliver {
        from: usize,
        to: usize,
        epoch: u32,
        bytes: Vec<u8>,
    },
    /// An end notices that a link has failed, or works.
    Notice {
        end: usize,
        other: usize,
        epoch: u32,
    },
    /// A session begins: after a start of either end.
    Session {
        pair: Pair,
        epoch: u32,
    },
    Measure,
}

#[derive(Clone, Debug)]
struct Wire {
    works: bool,
    // Counts its failures and returns.
    epoch: u32,
    // A router at its ends has started since the last session.
    is_fresh: bool,
    // Bytes per second, from the smaller end and back.
    rates: (u64, u64),
}

/// The network.
pub(crate) struct World {
    pub(crate) now: Time,
    names: Vec<Guid>,
    numbers: BTreeMap<Guid, usize>,
    routers: Vec<Option<Routing>>,
    // Ends that have noticed that the other end is up.
    believed_up: BTreeSet<(usize, usize)>,
    wires: BTreeMap<Pair, Wire>,
    events: BTreeMap<(Time, u64), Event>,
    count: u64,
    pub(crate) rng: SeededRng,
    /// Of a thousand messages.
    pub(crate) lost: u64,
    pub(crate) octets: u64,
    pub(crate) checks: u64,
    /// Look for loops after each change.
    pub(crate) watches: bool,
}

fn keys(router: usize) -> KeyPair {
    let mut secret = [7; 32];
    secret[..8].copy_from_slice(&(router as u64).to_be_bytes());
    KeyPair::from_secret(&secret)
}

fn pair(one: usize, other: usize) -> Pair {
    (one.min(other), one.max(other))
}

impl World {
    pub(crate) fn new(routers: usize, links: &[(Pair, (u64, u64))], seed: u64) -> World {
        let names: Vec<Guid> = (0..routers).map(|it| keys(it).guid()).collect();
        let wire = |(ends, rates): &(Pair, (u64, u64))| {
            let wire = Wire {
                works: false,
                epoch: 0,
                is_fresh: true,
                rates: *rates,
            };
            (*ends, wire)
        };
        let now = Time::from_secs(1);
        let mut world = World {
            now,
            numbers: names.iter().copied().zip(0..).collect(),
            names,
            routers: (0..routers)
                .map(|it| Some(Routing::new(now, keys(it))))
                .collect(),
            believed_up: BTreeSet::new(),
            wires: links.iter().map(wire).collect(),
            events: BTreeMap::new(),
            count: 0,
            rng: SeededRng::new(seed),
            lost: 0,
            octets: 0,
            checks: 0,
            watches: true,
        };
        for ends in world.pairs() {
            world.restore(ends);
        }
        world.after(Duration::from_millis(500), Event::Measure);
        world
    }

    pub(crate) fn pairs(&self) -> Vec<Pair> {
        self.wires.keys().copied().collect()
    }

    pub(crate) fn name(&self, router: usize) -> Guid {
        self.names[router]
    }

    pub(crate) fn router(&self, router: usize) -> Option<&Routing> {
        self.routers[router].as_ref()
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.count += 1;
        self.events.insert((self.now + delay, self.count), event);
    }

    fn random(&mut self, most_ms: u64) -> Duration {
        Duration::from_micros(self.rng.below(most_ms * 1000) + 1)
    }

    /// A link fails; each end notices in its own time.
    pub(crate) fn fail(&mut self, ends: Pair) {
        let wire = self.wires.get_mut(&ends).unwrap();
        if !wire.works {
            return;
        }
        wire.works = false;
        wire.epoch += 1;
        self.note_both(ends, 300);
    }

    fn note_both(&mut self, ends: Pair, most_ms: u64) {
        let epoch = self.wires[&ends].epoch;
        for (end, other) in [(ends.0, ends.1), (ends.1, ends.0)] {
            let delay = self.random(most_ms);
            self.after(delay, Event::Notice { end, other, epoch });
        }
    }

    /// A link returns if both of its ends run.
    pub(crate) fn restore(&mut self, ends: Pair) {
        let runs = self.routers[ends.0].is_some() && self.routers[ends.1].is_some();
        let wire = self.wires.get_mut(&ends).unwrap();
        if wire.works || !runs {
            return;
        }
        wire.epoch += 1;
        if wire.is_fresh {
            let (epoch, delay) = (wire.epoch, self.random(50));
            self.after(delay, Event::Session { pair: ends, epoch });
        } else {
            wire.works = true;
            self.note_both(ends, 100);
        }
    }

    /// A link gets other rates, from the smaller end and back.
    pub(crate) fn reprice(&mut self, ends: Pair, rates: (u64, u64)) {
        self.wires.get_mut(&ends).unwrap().rates = rates;
    }

    /// A router ends without a word.
    pub(crate) fn crash(&mut self, router: usize) {
        if self.routers[router].take().is_none() {
            return;
        }
        self.believed_up.retain(|(end, _)| *end != router);
        for ends in self.pairs() {
            if ends.0 == router || ends.1 == router {
                self.fail(ends);
                let wire = self.wires.get_mut(&ends).unwrap();
                wire.is_fresh = true;
                // A session that was about to begin does not.
                wire.epoch += 1;
                self.note_both(ends, 300);
            }
        }
    }

    pub(crate) fn start(&mut self, router: usize) {
        if self.routers[router].is_some() {
            return;
        }
        self.routers[router] = Some(Routing::new(self.now, keys(router)));
        for ends in self.pairs() {
            if ends.0 == router || ends.1 == router {
                self.restore(ends);
            }
        }
    }

    fn up(&mut self, end: usize, other: usize, is_new_run: bool) {
        let name = self.names[other];
        if self.believed_up.contains(&(end, other)) && !is_new_run {
            return;
        }
        let sample = self.sample(end, other);
        let Some(router) = &mut self.routers[end] else {
            return;
        };
        self.believed_up.insert((end, other));
        router.handle_up(self.now, name, is_new_run);
        router.note_link(self.now, &name, &sample);
    }

    fn down(&mut self, end: usize, other: usize) {
        let name = self.names[other];
        if self.believed_up.remove(&(end, other))
            && let Some(router) = &mut self.routers[end]
        {
            router.handle_down(self.now, &name);
        }
    }

    fn sample(&self, end: usize, other: usize) -> LinkSample {
        let wire = &self.wires[&pair(end, other)];
        let rate = if end < other {
            wire.rates.0
        } else {
            wire.rates.1
        };
        LinkSample {
            state: LinkState {
                delivery_rate: Some(rate),
                ..LinkState::default()
            },
            ..LinkSample::default()
        }
    }

    /// The cost of a link from one end.
    fn cost(&self, end: usize, other: usize) -> Cost {
        Cost::of_link(&self.sample(end, other).state)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Deliver {
                from,
                to,
                epoch,
                bytes,
            } => {
                if self.wires[&pair(from, to)].epoch != epoch || self.routers[to].is_none() {
                    return;
                }
                // What comes over a link tells that it works.
                self.up(to, from, false);
                let (message, name) = (Message::decode(&bytes).unwrap(), self.names[from]);
                if let Some(router) = &mut self.routers[to] {
                    router.handle_message(self.now, name, message).ok();
                }
            }
            Event::Notice { end, other, epoch } => {
                let wire = &self.wires[&pair(end, other)];
                if wire.epoch == epoch {
                    match wire.works {
                        true => self.up(end, other, false),
                        false => self.down(end, other),
                    }
                }
            }
            Event::Session { pair, epoch } => {
                let wire = self.wires.get_mut(&pair).unwrap();
                if wire.epoch == epoch {
                    wire.works = true;
                    wire.is_fresh = false;
                    self.up(pair.0, pair.1, true);
                    self.up(pair.1, pair.0, true);
                }
            }
            Event::Measure => {
                for (end, other) in self.believed_up.clone() {
                    let (name, sample) = (self.names[other], self.sample(end, other));
                    if let Some(router) = &mut self.routers[end] {
                        router.note_link(self.now, &name, &sample);
                    }
                }
                self.after(Duration::from_millis(500), Event::Measure);
            }
        }
    }

    fn drain(&mut self, router: usize) -> bool {
        let Some(routing) = &mut self.routers[router] else {
            return false;
        };
        let messages: Vec<(Guid, Message)> =
            core::iter::from_fn(|| routing.poll_message()).collect();
        let has_changed = routing.take_changed();
        for (to, message) in messages {
            let to = self.numbers[&to];
            let wire = &self.wires[&pair(router, to)];
            let (epoch, works) = (wire.epoch, wire.works);
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            self.octets += bytes.len() as u64;
            if works && self.rng.below(1000) >= self.lost {
                let delay = self.random(20);
                self.after(
                    delay,
                    Event::Deliver {
                        from: router,
                        to,
                        epoch,
                        bytes,
                    },
                );
            }
        }
        has_changed
    }

    /// Runs for a while. No next hops may form a loop at any time.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let mut has_changed = false;
            for router in 0..self.routers.len() {
                has_changed |= self.drain(router);
            }
            if has_changed {
                self.check_loops();
            }
            let due = |router: &Option<Routing>| router.as_ref().map(|it| it.poll_timeout().at);
            let due = self.routers.iter().filter_map(due).min();
            let event = self.events.keys().next().map(|(at, _)| *at);
            let Some(next) = due.into_iter().chain(event).min().filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, event) = self.events.pop_first().unwrap();
                let is_link = !matches!(event, Event::Deliver { .. });
                self.handle(event);
                if is_link {
                    self.check_loops();
                }
            }
            for router in self.routers.iter_mut().flatten() {
                if router.poll_timeout().at <= self.now {
                    router.handle_timeout(self.now);
                }
            }
        }
    }

    /// The next hops of a router that would take a chunk now: the link works, and the other end has
    /// noticed, as it has when the chunk is there.
    fn next_hops(&self, router: usize, to: usize) -> Vec<(usize, Cost)> {
        let Some(routing) = self.router(router) else {
            return Vec::new();
        };
        let ways = routing.ways(&self.names[to]).iter();
        let next = ways.map(|way| (self.numbers[&way.neighbour], way.cost));
        let takes = |(next, _): &(usize, Cost)| {
            self.wires[&pair(router, *next)].works && self.believed_up.contains(&(*next, router))
        };
        next.filter(takes).collect()
    }

    fn check_loops(&mut self) {
        if !self.watches {
            return;
        }
        self.checks += 1;
        for destination in 0..self.routers.len() {
            // 0: not seen, 1: on the way, 2: done.
            let mut marks = vec![0u8; self.routers.len()];
            for router in 0..self.routers.len() {
                self.visit(router, destination, &mut marks);
            }
        }
    }

    fn visit(&self, router: usize, destination: usize, marks: &mut [u8]) {
        if marks[router] != 0 || router == destination {
            return;
        }
        marks[router] = 1;
        for (next, _) in self.next_hops(router, destination) {
            assert_ne!(
                marks[next], 1,
                "a loop between {router} and {next} towards {destination} at {:?}",
                self.now
            );
            self.visit(next, destination, marks);
        }
        marks[router] = 2;
    }

    /// Returns the costs of the links, as their ends have announced them to each other.
    fn announced(&self) -> BTreeMap<(usize, usize), Cost> {
        let mut costs = BTreeMap::new();
        for (other, router) in self.routers.iter().enumerate() {
            let known = router.iter().flat_map(|it| it.status(self.now));
            for known in known {
                let links = known.links.iter().filter(|it| it.0 == self.names[other]);
                let cost = links.filter_map(|it| it.1).map(Cost).next();
                costs.insert(
                    (self.numbers[&known.router], other),
                    cost.unwrap_or(Cost::NEVER),
                );
            }
        }
        costs
    }

    /// Returns the costs of the best ways, by the model and these costs of links.
    fn distances_to(&self, destination: usize, cost: impl Fn(usize, usize) -> Cost) -> Vec<Cost> {
        let mut costs = vec![Cost::NEVER; self.routers.len()];
        costs[destination] = Cost::ZERO;
        let works: Vec<Pair> = self
            .wires
            .iter()
            .filter(|it| it.1.works)
            .map(|it| *it.0)
            .collect();
        loop {
            let mut is_better = false;
            for (end, other) in works.iter().flat_map(|it| [(it.0, it.1), (it.1, it.0)]) {
                let further = cost(end, other).plus(costs[other]);
                is_better |= further < costs[end];
                costs[end] = costs[end].min(further);
            }
            if !is_better {
                return costs;
            }
        }
    }

    /// Returns the pairs of routers, and those of them without any way although there is one.
    pub(crate) fn blackouts(&self) -> (usize, usize) {
        let (mut pairs, mut without) = (0, 0);
        for destination in 0..self.routers.len() {
            let wanted = self.distances_to(destination, |end, other| self.cost(end, other));
            let there = wanted.iter().enumerate().filter(|(_, it)| it.is_finite());
            for (router, _) in there.filter(|(router, _)| *router != destination) {
                pairs += 1;
                without += usize::from(self.next_hops(router, destination).is_empty());
            }
        }
        (pairs, without)
    }

    /// Returns what is wrong: costs that are more than a quarter off, pairs without the best way, or with a way that
    /// leads nowhere.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let announced = self.announced();
        let cost = |end, other| announced.get(&(end, other)).copied().unwrap_or(Cost::NEVER);
        let works = self.wires.iter().filter(|it| it.1.works).map(|it| *it.0);
        for (end, other) in works.flat_map(|it| [(it.0, it.1), (it.1, it.0)]) {
            let (said, is) = (cost(end, other).0, self.cost(end, other).0);
            if said.abs_diff(is) > said / 4 + 1 {
                faults.push(format!("{end} to {other} costs {is}, not {said}"));
            }
        }
        for destination in 0..self.routers.len() {
            let wanted = self.distances_to(destination, cost);
            for (router, wanted) in wanted.iter().enumerate() {
                if router == destination || self.routers[router].is_none() {
                    continue;
                }
                let next = self.next_hops(router, destination);
                let has = next.first().map_or(Cost::NEVER, |(_, cost)| *cost);
                if has != *wanted {
                    faults.push(format!(
                        "{router} to {destination}: {has:?}, not {wanted:?}"
                    ));
                }
            }
        }
        faults
    }
}
