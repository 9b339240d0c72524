//! A network whose nodes restart after a crash.

use core::ops::{Index, Range};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{Machine, PortId, SeededRng, Time, WallClock};

use super::clock::{Clock, Clocked};
use super::fault::{Fault, impaired};
use super::schedule::Step;
use crate::link::{LinkSpec, LinkSpecError};
use crate::simulator::{Connection, Direction, DuplexLink, LinkId, NodeId, Occurrence, Simulator};

/// The tolerated permanent error of a wall clock. Two such clocks differ by less than the shortest
/// lifetime of a signed record.
pub const TOLERATED: Duration = Duration::from_secs(20);

/// Makes the machine of a node's next life. It gets the machine of the last one, to take over what
/// a disk would have kept.
type Maker<M> = Box<dyn FnMut(&Life, Option<&mut M>) -> M>;

/// One life of a node, from its start to its crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The node's number, in the order of addition.
    pub node: usize,
    /// The node's name.
    pub name: String,
    /// The number of lives before this one.
    pub number: u64,
    /// The seed of the whole network.
    pub seed: u64,
    /// The error of its wall clock, in milliseconds.
    pub skew_ms: i64,
    /// The reading of its clock at its start.
    pub start: Time,
    /// How far its clock was ahead of the time when its wall clock was set last, at its start or
    /// since, in milliseconds; less than nothing if it was behind.
    pub ahead_ms: i64,
}

impl Life {
    /// Returns randomness that no other node and no other life has.
    pub fn rng(&self) -> SeededRng {
        SeededRng::stream(self.seed.wrapping_add(self.number << 32), &self.name)
    }

    /// Returns its wall clock for a network whose origin is at `unix_ms`. A starting node asks for
    /// the time anew, so the error is `skew_ms` at that moment, whatever its clock has gained
    /// before. The wall clock follows its later gains.
    pub fn wall(&self, unix_ms: u64) -> WallClock {
        WallClock::new(unix_ms.saturating_add_signed(self.skew_ms - self.ahead_ms))
    }
}

/// An event of a [`Net`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening<E> {
    /// An event of a machine.
    Told(Occurrence<E>),
    /// A node crashed, with its programs.
    Crashed(usize),
    /// A node started with a fresh machine.
    Started(usize),
}

/// The end of a fault.
#[derive(Clone, Copy, Debug)]
enum Remedy {
    Restart { node: usize, skew_ms: i64 },
    Repair { link: usize, direction: Direction },
    Release { link: usize },
}

/// Sets the wall clock of a running machine to that of its life, at this time of its own clock.
type TimeSetter<M> = Box<dyn FnMut(&Life, &mut M, Time)>;

struct Resident<M> {
    id: NodeId,
    life: Life,
    make: Maker<M>,
    // It cannot be restarted.
    mortal: bool,
}

struct Wire {
    id: LinkId,
    healthy: [LinkSpec; 2],
}

/// A network in virtual time. Nodes and links are numbered from 0 in the order of their addition.
pub struct Net<M: Machine> {
    sim: Simulator<Clocked<M>>,
    nodes: Vec<Resident<M>>,
    wires: Vec<Wire>,
    // Faults that must still end.
    remedies: BTreeMap<(Time, u64), Remedy>,
    next_remedy: u64,
    happenings: VecDeque<Happening<M::Event>>,
    set_time: Option<TimeSetter<M>>,
    // How far each node's wall clock may be set wrong.
    max_skew: Box<dyn Fn(usize) -> Duration>,
}

impl<M: Machine> Net<M> {
    /// Returns an empty network at time zero. All its randomness comes from `seed`.
    pub fn new(seed: u64) -> Net<M> {
        Net {
            sim: Simulator::new(seed),
            nodes: Vec::new(),
            wires: Vec::new(),
            remedies: BTreeMap::new(),
            next_remedy: 0,
            happenings: VecDeque::new(),
            set_time: None,
            max_skew: Box::new(|_| Duration::ZERO),
        }
    }

    /// Returns a network of two nodes, 0 and 1, and a link between them.
    pub fn pair(
        seed: u64,
        link: &DuplexLink,
        make: impl FnMut(&Life, Option<&mut M>) -> M + Clone + 'static,
    ) -> Result<Net<M>, LinkSpecError> {
        let mut net = Net::new(seed);
        let first = net.add("first", make.clone());
        let second = net.add("second", make);
        net.connect(first, second, link)?;
        Ok(net)
    }

    /// Adds a node whose machines come from `make`.
    pub fn add(
        &mut self,
        name: &str,
        mut make: impl FnMut(&Life, Option<&mut M>) -> M + 'static,
    ) -> usize {
        let life = Life {
            node: self.nodes.len(),
            name: name.to_owned(),
            number: 0,
            seed: self.sim.seed(),
            skew_ms: 0,
            start: self.sim.now(),
            ahead_ms: 0,
        };
        let machine = make(&life, None);
        self.nodes.push(Resident {
            id: self.sim.add_node(name, Clocked::new(machine)),
            life,
            make: Box::new(make),
            mortal: false,
        });
        self.nodes.len() - 1
    }

    /// Adds a node with a single life: that of this machine.
    ///
    /// # Panics
    /// Panics when the node is restarted.
    pub fn add_mortal(&mut self, name: &str, machine: M) -> usize
    where
        M: 'static,
    {
        let mut machine = Some(machine);
        let node = self.add(name, move |life, _| {
            let Some(machine) = machine.take() else {
                panic!("'{}' has one life and was restarted", life.name);
            };
            machine
        });
        self.nodes[node].mortal = true;
        node
    }

    /// Connects two nodes.
    pub fn connect(
        &mut self,
        a: usize,
        b: usize,
        link: &DuplexLink,
    ) -> Result<Connection, LinkSpecError> {
        let connection = self.sim.connect(self.id(a), self.id(b), link)?;
        self.wires.push(Wire {
            id: connection.link,
            healthy: [link.a_to_b.clone(), link.b_to_a.clone()],
        });
        Ok(connection)
    }

    /// Wall clocks of running nodes may be set from now on: by `set`, which is given the node's life
    /// with the new skew, and wrong by at most `max_skew` of the node's number.
    pub fn allow_setting_time(
        &mut self,
        max_skew: impl Fn(usize) -> Duration + 'static,
        set: impl FnMut(&Life, &mut M, Time) + 'static,
    ) {
        self.max_skew = Box::new(max_skew);
        self.set_time = Some(Box::new(set));
    }

    /// Returns the simulator below. [`Self::end_faults`] does not undo direct changes to it.
    pub fn sim(&self) -> &Simulator<Clocked<M>> {
        &self.sim
    }

    /// Returns the simulator below, for changes.
    pub fn sim_mut(&mut self) -> &mut Simulator<Clocked<M>> {
        &mut self.sim
    }

    /// Returns the simulator's id of a node.
    pub fn id(&self, node: usize) -> NodeId {
        self.nodes[node].id
    }

    /// Returns the simulator's id of a link.
    pub fn link(&self, link: usize) -> LinkId {
        self.wires[link].id
    }

    /// Returns the numbers of all nodes.
    pub fn nodes(&self) -> Range<usize> {
        0..self.nodes.len()
    }

    /// Returns a node's first port.
    pub fn port(&self, node: usize) -> PortId {
        self.sim.node_ports(self.id(node))[0]
    }

    /// Returns the present life of a node, or its last one after a crash.
    pub fn life(&self, node: usize) -> &Life {
        &self.nodes[node].life
    }

    /// Returns true unless the node has crashed.
    pub fn is_running(&self, node: usize) -> bool {
        self.sim.is_running(self.id(node))
    }

    /// Returns the present time by a right clock.
    pub fn now(&self) -> Time {
        self.sim.now()
    }

    /// Calls into a node's machine with the time of its clock, then drains it.
    pub fn with<R>(&mut self, node: usize, call: impl FnOnce(&mut M, Time) -> R) -> R {
        let id = self.id(node);
        self.sim.with_node(id, |machine, now| {
            let now = machine.clock().read(now);
            call(machine, now)
        })
    }

    /// Returns the next event up to `end`, inclusive. After `None` the time is `end`.
    pub fn advance(&mut self, end: Time) -> Option<Happening<M::Event>> {
        loop {
            if let Some(happening) = self.happenings.pop_front() {
                return Some(happening);
            }
            if let Some(occurrence) = self.sim.poll_event() {
                return Some(Happening::Told(occurrence));
            }
            let due = self.remedies.first_key_value().map(|((at, _), _)| *at);
            let stop = due.map_or(end, |at| at.min(end));
            if self.sim.step_until(stop) {
                continue;
            }
            self.sim.run_until(stop);
            if due.is_none_or(|at| at > end) {
                return None;
            }
            if let Some((_, remedy)) = self.remedies.pop_first() {
                self.apply(remedy);
            }
        }
    }

    /// Runs up to `end` and returns the events.
    pub fn run_until(&mut self, end: Time) -> Vec<Happening<M::Event>> {
        core::iter::from_fn(|| self.advance(end)).collect()
    }

    /// Runs for `span` and returns the events.
    pub fn run_for(&mut self, span: Duration) -> Vec<Happening<M::Event>> {
        self.run_until(self.now() + span)
    }

    /// Runs until `done`, checked after each event, or to `end`. Returns true if it is done. Events
    /// of the machines remain in the queue.
    pub fn run_while_not(&mut self, end: Time, mut done: impl FnMut(&Net<M>) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }

    /// Processes the next event if it is not after `end`. Otherwise the time is `end`, and the
    /// result is false. Events of the machines remain in the queue.
    pub fn step(&mut self, end: Time) -> bool {
        let due = self.remedies.first_key_value().map(|((at, _), _)| *at);
        let stop = due.map_or(end, |at| at.min(end));
        if self.sim.step_until(stop) {
            return true;
        }
        self.sim.run_until(stop);
        if due.is_none_or(|at| at > end) {
            return false;
        }
        if let Some((_, remedy)) = self.remedies.pop_first() {
            self.apply(remedy);
        }
        true
    }

    /// Runs until no event and no end of a fault is left, or to `limit`. Returns true if none is
    /// left. Events of the machines remain in the queue.
    pub fn run_until_idle(&mut self, limit: Time) -> bool {
        while let Some((at, _)) = self.remedies.first_key_value().map(|(key, _)| *key) {
            if at > limit {
                break;
            }
            self.step(at);
        }
        self.sim.run_until_idle(limit) && self.remedies.is_empty()
    }

    /// Injects a fault.
    pub fn strike(&mut self, fault: &Fault) {
        let node = |number: u8| usize::from(number) % self.nodes.len();
        let wire = |number: u8| usize::from(number) % self.wires.len();
        match *fault {
            Fault::Crash {
                node: number,
                down,
                skew_s,
            } => {
                let node = node(number);
                self.crash(node);
                let skew_ms = i64::from(skew_s) * 1_000;
                self.later(down, Remedy::Restart { node, skew_ms });
            }
            Fault::Clock {
                node: number,
                ahead,
                drift_ppm,
            } => self.set_clock(node(number), ahead, drift_ppm.into()),
            Fault::SetTime {
                node: number,
                skew_s,
            } => {
                let (node, skew_ms) = (node(number), i64::from(skew_s) * 1_000);
                if Duration::from_millis(skew_ms.unsigned_abs()) <= (self.max_skew)(node) {
                    self.set_time(node, skew_ms);
                }
            }
            Fault::Move { link: number } => {
                let link = self.wires[wire(number)].id;
                self.sim.move_inbound(link);
            }
            Fault::Outage {
                link: number,
                directions,
                lasts,
            } => {
                let link = wire(number);
                for (bit, direction) in Direction::BOTH.into_iter().enumerate() {
                    if directions >> bit & 1 == 1 {
                        let id = self.wires[link].id;
                        self.sim.set_direction_up(id, direction, false);
                        self.later(lasts, Remedy::Repair { link, direction });
                    }
                }
            }
            Fault::Hold {
                link: number,
                lasts,
            } => {
                let link = wire(number);
                self.sim.hold(self.wires[link].id);
                self.later(lasts, Remedy::Release { link });
            }
            Fault::Impair {
                link: number,
                percent,
            } => {
                let link = wire(number);
                let healthy = self.wires[link].healthy.each_ref();
                let specs = healthy.map(|spec| impaired(spec, percent));
                self.set_specs(link, &specs);
            }
            Fault::Mend { link: number } => self.mend(wire(number)),
        }
    }

    /// Injects a whole schedule of faults, each at its time. Returns the events meanwhile.
    pub fn suffer(&mut self, steps: &[Step<Fault>]) -> Vec<Happening<M::Event>> {
        let mut all = Vec::new();
        for step in steps {
            all.extend(self.run_for(step.after));
            self.strike(&step.act);
        }
        all
    }

    /// Ends all faults: links are as good as new, nodes that are down start with wall clocks that
    /// are right, and clocks run as fast as they should from where they are. A wall clock that is off
    /// by more than [`TOLERATED`] is set right; where that is not possible, its node starts anew.
    pub fn end_faults(&mut self) {
        for link in 0..self.wires.len() {
            self.mend(link);
            let id = self.wires[link].id;
            self.sim.repair(id);
            self.sim.release(id);
        }
        for node in self.nodes() {
            self.set_clock(node, Duration::ZERO, 0);
        }
        for remedy in core::mem::take(&mut self.remedies).into_values() {
            if let Remedy::Restart { node, .. } = remedy {
                self.restart(node, 0);
            }
        }
        for node in self.nodes() {
            let stays = self.nodes[node].mortal || !self.is_running(node);
            if !stays && self.wall_error(node) > TOLERATED && !self.set_time(node, 0) {
                self.restart(node, 0);
            }
        }
    }

    /// Returns the error of a node's wall clock.
    pub fn wall_error(&self, node: usize) -> Duration {
        let Resident { id, life, .. } = &self.nodes[node];
        let now = self.sim.now();
        let shown = self.sim.node(*id).clock().read(now);
        let gained = millis(shown) - millis(now) - life.ahead_ms;
        Duration::from_millis((life.skew_ms + gained).unsigned_abs())
    }

    /// Crashes a node until it is restarted.
    pub fn crash(&mut self, node: usize) {
        self.sim.crash(self.id(node));
        self.happenings.push_back(Happening::Crashed(node));
    }

    /// Starts a node with a fresh machine. A running node crashes first.
    pub fn restart(&mut self, node: usize, skew_ms: i64) {
        if self.sim.is_running(self.id(node)) {
            self.crash(node);
        }
        let Resident { id, life, make, .. } = &mut self.nodes[node];
        life.number += 1;
        life.skew_ms = skew_ms;
        let mut fresh = None;
        let clock = self.sim.with_node(*id, |old, now| {
            life.start = old.clock().read(now);
            life.ahead_ms = millis(life.start) - millis(now);
            fresh = Some(make(life, Some(old)));
            *old.clock()
        });
        if let Some(fresh) = fresh {
            let id = *id;
            self.sim.restart(id, Clocked::with_clock(fresh, clock));
        }
        self.happenings.push_back(Happening::Started(node));
    }

    /// Makes a node's clock jump ahead and then gain `drift_ppm` microseconds per second.
    pub fn set_clock(&mut self, node: usize, ahead: Duration, drift_ppm: i32) {
        let id = self.id(node);
        self.sim.with_node(id, |machine, now| {
            let clock: &mut Clock = machine.clock_mut();
            clock.set(now, ahead, drift_ppm);
        });
    }

    /// Sets the wall clock of a running node; false if that is not possible.
    pub fn set_time(&mut self, node: usize, skew_ms: i64) -> bool {
        let Resident { id, life, .. } = &mut self.nodes[node];
        let Some(set) = self.set_time.as_mut().filter(|_| self.sim.is_running(*id)) else {
            return false;
        };
        self.sim.with_node(*id, |machine, now| {
            let shown = machine.clock().read(now);
            life.skew_ms = skew_ms;
            life.ahead_ms = millis(shown) - millis(now);
            set(life, machine, shown);
        });
        true
    }

    /// Decides the loss of the next frames that are offered to one direction of a link by `script`,
    /// in order; after it, the link's own loss applies.
    pub fn lose(&mut self, link: usize, direction: Direction, script: &[bool]) {
        let mut script = VecDeque::from(script.to_vec());
        let tap = move |_, frame| match script.pop_front() {
            Some(true) => Vec::new(),
            _ => vec![frame],
        };
        let id = self.wires[link].id;
        self.sim.set_tap(id, direction, Some(Box::new(tap)));
    }

    /// Changes the healthy specification of a link, and applies it.
    pub fn set_healthy(
        &mut self,
        link: usize,
        direction: Direction,
        spec: &LinkSpec,
    ) -> Result<(), LinkSpecError> {
        let wire = &mut self.wires[link];
        self.sim.set_link_spec(wire.id, direction, spec)?;
        wire.healthy[usize::from(direction == Direction::BToA)] = spec.clone();
        Ok(())
    }

    /// Returns the healthy specification of one direction of a link.
    pub fn healthy(&self, link: usize, direction: Direction) -> &LinkSpec {
        &self.wires[link].healthy[usize::from(direction == Direction::BToA)]
    }

    fn mend(&mut self, link: usize) {
        let healthy = self.wires[link].healthy.clone();
        self.set_specs(link, &healthy);
    }

    fn set_specs(&mut self, link: usize, specs: &[LinkSpec; 2]) {
        let id = self.wires[link].id;
        for (direction, spec) in Direction::BOTH.into_iter().zip(specs) {
            if let Err(fault) = self.sim.set_link_spec(id, direction, spec) {
                unreachable!("a healthy link stays valid when it is impaired: {fault}");
            }
        }
    }

    fn later(&mut self, after: Duration, remedy: Remedy) {
        self.next_remedy += 1;
        let at = self.now() + after;
        self.remedies.insert((at, self.next_remedy), remedy);
    }

    fn apply(&mut self, remedy: Remedy) {
        match remedy {
            Remedy::Restart { node, skew_ms } => self.restart(node, skew_ms),
            Remedy::Repair { link, direction } => {
                let id = self.wires[link].id;
                self.sim.set_direction_up(id, direction, true);
            }
            Remedy::Release { link } => self.sim.release(self.wires[link].id),
        }
    }
}

fn millis(time: Time) -> i64 {
    (time.as_nanos() / 1_000_000) as i64
}

impl<M: Machine> Index<usize> for Net<M> {
    type Output = M;

    fn index(&self, node: usize) -> &M {
        self.sim.node(self.nodes[node].id)
    }
}
