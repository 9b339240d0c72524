//! Deterministic discrete-event simulation: machines on nodes, frames on links, virtual time.
//!
//! * **Order.** Events happen by time, and at the same time in the order in which they were
//!   scheduled. Nothing depends on a hash order, an address or the clock, so that a scenario and a
//!   seed give the same run, byte for byte; [`Trace::hash`] proves it.
//! * **Rounds.** A node gets all frames that arrive at one moment over one link direction, or one
//!   call to `handle_timeout`, or one call from the scenario ([`Simulator::with_node`]); then it is
//!   drained: frames, port requests, events; then its deadline is read.
//! * **Deadlines.** A node has one pending wake. `handle_timeout` is called at the machine's
//!   deadline, never before.
//! * **Ports.** [`PortId`]s are unique in a run. The scenario connects them, or a machine opens them
//!   to one of the scenario's [`Door`]s. A link never blocks a port: frames that do not fit are
//!   dropped, as with UDP. The scenario may block one ([`Simulator::set_blocked`]). As with sockets,
//!   machines are not told of partitions, outages or the crash of a neighbour.
//! * **Events** of a machine go to the node's hook ([`Simulator::set_hook`]), or else to a queue
//!   ([`Simulator::poll_event`]), which grows until it is polled.

mod agenda;
mod doors;
mod faults;
mod frame;
mod run;
mod scripted;
mod tlv;
mod topology;

use std::collections::VecDeque;

use whimbrel_core::{
    Machine, PortEvent, PortId, PortInfo, PortOrigin, PortRequest, SeededRng, Time,
};

use crate::link::{LinkDirection, LinkSpecError, LinkStats};
use crate::trace::{TraceHash, TraceKind, TraceRecord, TraceSink};
use agenda::{Agenda, Task, Ticket};
use frame::SimFrame;

pub use topology::{
    Connection, Direction, Door, DuplexLink, DuplexSpec, LinkId, NodeId, UDP_IPV4_HEADERS,
};

type Hook<M> = Box<dyn FnMut(&mut Simulator<M>, NodeId, <M as Machine>::Event)>;
/// Receives each frame sent over one direction of a link before the link does. Returns the frames
/// that continue in its place: the frame itself, none, or others.
pub type Tap = Box<dyn FnMut(Time, Vec<u8>) -> Vec<Vec<u8>>>;

type Action<M> = Box<dyn FnOnce(&mut Simulator<M>)>;

/// A network of machines in virtual time. For machines of different types, `M` is an enum or
/// [`crate::AnyMachine`].
pub struct Simulator<M: Machine> {
    now: Time,
    seed: u64,
    nodes: Vec<Node<M>>,
    ports: Vec<Port>,
    lanes: Vec<Lane>,
    agenda: Agenda,
    actions: Vec<Option<Action<M>>>,
    free_actions: Vec<u32>,
    events: VecDeque<Occurrence<M::Event>>,
    stats: SimulatorStats,
    /// What is recorded of the run.
    pub trace: Trace,
    // Unused frames, kept for reuse.
    spare_frames: Vec<Vec<u8>>,
    transmit_buffer: Vec<u8>,
    doors: Vec<Door>,
    // Frames of one delivery; empty between deliveries.
    arrived: Vec<SimFrame>,
    // Requests of nodes with `requests_by_hand`.
    requests: VecDeque<(NodeId, PortRequest)>,
}

struct Node<M: Machine> {
    name: String,
    machine: M,
    running: bool,
    ports: Vec<PortId>,
    wake: Option<Ticket>,
    // The number of wakes at `now`, to catch a machine that never lets time advance.
    wakes_now: u32,
    woken_at: Time,
    hook: Option<Hook<M>>,
    requests_by_hand: bool,
}

struct Port {
    node: NodeId,
    // The lane that takes this port's frames; its other end is the peer. None once the peer's
    // address has changed.
    lane: Option<u32>,
    info: PortInfo,
    open: bool,
    // Its machine closed it: the next frame of its peer comes in on a new port, as over sockets.
    readmits: bool,
    blocked: bool,
    packets: bool,
    ip: bool,
    // Its machine asked for ECN; and what the last frame that came said of it.
    sends_ecn: bool,
    receives_ecn: bool,
}

/// One direction of a link. Even numbers lead from the first node to the second; the next number is
/// the way back.
struct Lane {
    link: LinkDirection<SimFrame>,
    from: PortId,
    to: PortId,
    encapsulation: u32,
    scheduled: Option<Ticket>,
    tap: Option<Tap>,
}

/// An event of a machine, with its time and node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occurrence<E> {
    /// The time.
    pub time: Time,
    /// The node of the machine.
    pub node: NodeId,
    /// The event.
    pub event: E,
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimulatorStats {
    /// Entries of the agenda that were processed: deliveries, wakes and scenario actions.
    pub events: u64,
    /// Frames that machines sent.
    pub transmitted: u64,
    /// Frames that machines received.
    pub delivered: u64,
    /// Frames that links dropped.
    pub dropped_by_links: u64,
    /// Frames larger than the port's MTU.
    pub dropped_oversize: u64,
    /// Frames to or from a closed port.
    pub dropped_port_closed: u64,
    /// Frames that arrived at a node that was not running.
    pub dropped_node_down: u64,
}

/// What is recorded of a run.
#[derive(Default)]
pub struct Trace {
    hash: Option<TraceHash>,
    sink: Option<Box<dyn TraceSink>>,
}

impl Trace {
    /// Starts to hash every record of the run.
    pub fn enable_hash(&mut self) {
        self.hash.get_or_insert_default();
    }

    /// Returns the hash of all records since [`Trace::enable_hash`].
    pub fn hash(&self) -> Option<[u8; 32]> {
        self.hash.as_ref().map(TraceHash::value)
    }

    /// Passes every later record of the run to `sink`.
    pub fn set_sink(&mut self, sink: Option<Box<dyn TraceSink>>) {
        self.sink = sink;
    }

    fn record(&mut self, time: Time, node: NodeId, port: PortId, kind: TraceKind, frame: &[u8]) {
        if self.hash.is_none() && self.sink.is_none() {
            return;
        }
        let record = TraceRecord {
            time,
            node,
            port,
            kind,
            frame,
        };
        if let Some(hash) = &mut self.hash {
            hash.record(&record);
        }
        if let Some(sink) = &mut self.sink {
            sink.record(&record);
        }
    }
}

impl<M: Machine> Simulator<M> {
    /// Returns an empty network at time zero. All randomness of its links comes from `seed`.
    pub fn new(seed: u64) -> Simulator<M> {
        Simulator {
            now: Time::ZERO,
            seed,
            nodes: Vec::new(),
            ports: Vec::new(),
            lanes: Vec::new(),
            agenda: Agenda::default(),
            actions: Vec::new(),
            free_actions: Vec::new(),
            events: VecDeque::new(),
            stats: SimulatorStats::default(),
            trace: Trace::default(),
            spare_frames: Vec::new(),
            transmit_buffer: Vec::new(),
            doors: Vec::new(),
            arrived: Vec::new(),
            requests: VecDeque::new(),
        }
    }

    /// Adds a node and reads its first deadline.
    pub fn add_node(&mut self, name: &str, machine: M) -> NodeId {
        let node = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node {
            name: name.to_owned(),
            machine,
            running: true,
            ports: Vec::new(),
            wake: None,
            wakes_now: 0,
            woken_at: Time::ZERO,
            hook: None,
            requests_by_hand: false,
        });
        self.drain(node);
        node
    }

    /// Connects two nodes (or a node with itself) and tells both machines of their new ports.
    pub fn connect(
        &mut self,
        a: NodeId,
        b: NodeId,
        link: &DuplexLink,
    ) -> Result<Connection, LinkSpecError> {
        let number = (self.lanes.len() / 2) as u32;
        let (port_a, port_b) = (
            PortId(self.ports.len() as u32),
            PortId(self.ports.len() as u32 + 1),
        );
        let ends = [
            (a, port_a, b, &link.a_label, link.a_origin, &link.a_medium),
            (b, port_b, a, &link.b_label, link.b_origin, &link.b_medium),
        ];
        let mut lanes = Vec::with_capacity(2);
        for (spec, from, to, way) in [
            (&link.a_to_b, port_a, port_b, "forth"),
            (&link.b_to_a, port_b, port_a, "back"),
        ] {
            let spec = run::encapsulated(spec, link.encapsulation);
            let rng = SeededRng::stream(self.seed, &format!("link {number} {way}"));
            lanes.push(Lane {
                link: LinkDirection::new(&spec, rng)?,
                from,
                to,
                encapsulation: link.encapsulation,
                scheduled: None,
                tap: None,
            });
        }
        for (way, (node, port, peer_node, label, origin, medium)) in ends.into_iter().enumerate() {
            let number = self.nodes[node.index()].ports.len() as u32;
            let peer = [port_b, port_a][way];
            let peer_name = format!("{} {peer}", self.nodes[peer_node.index()].name);
            let info = PortInfo {
                label: label.clone(),
                origin: origin.unwrap_or(PortOrigin::Configured(number)),
                mtu: link.mtu,
                peer: peer_name,
                medium: medium.clone(),
            };
            self.ports.push(Port {
                node,
                lane: Some(self.lanes.len() as u32 + way as u32),
                info,
                open: true,
                readmits: false,
                blocked: false,
                packets: link.packets,
                ip: link.ip,
                sends_ecn: false,
                receives_ecn: false,
            });
            self.nodes[node.index()].ports.push(port);
        }
        self.lanes.extend(lanes);
        for (node, port, ..) in ends {
            self.announce(node, port);
        }
        Ok(Connection {
            link: LinkId(number),
            a: port_a,
            b: port_b,
        })
    }

    /// Calls into a node's machine, then drains it.
    pub fn with_node<R>(&mut self, node: NodeId, call: impl FnOnce(&mut M, Time) -> R) -> R {
        let result = call(&mut self.nodes[node.index()].machine, self.now);
        self.drain(node);
        result
    }

    /// Returns a node's machine.
    pub fn node(&self, node: NodeId) -> &M {
        &self.nodes[node.index()].machine
    }

    /// Returns the name of a node.
    pub fn node_name(&self, node: NodeId) -> &str {
        &self.nodes[node.index()].name
    }

    /// Returns the ports of a node, including closed ones, in the order of their creation.
    pub fn node_ports(&self, node: NodeId) -> &[PortId] {
        &self.nodes[node.index()].ports
    }

    /// Passes every later event of `node` to `hook`, which may change the simulation freely. Events
    /// that occur while the hook itself runs go to the queue.
    pub fn set_hook(
        &mut self,
        node: NodeId,
        hook: impl FnMut(&mut Simulator<M>, NodeId, M::Event) + 'static,
    ) {
        self.nodes[node.index()].hook = Some(Box::new(hook));
    }

    /// Returns the oldest event of a node without a hook.
    pub fn poll_event(&mut self) -> Option<Occurrence<M::Event>> {
        self.events.pop_front()
    }

    /// Runs `action` at `at`, or now if that has passed.
    pub fn schedule(&mut self, at: Time, action: impl FnOnce(&mut Simulator<M>) + 'static) {
        let slot = match self.free_actions.pop() {
            Some(slot) => slot,
            None => {
                self.actions.push(None);
                self.actions.len() as u32 - 1
            }
        };
        self.actions[slot as usize] = Some(Box::new(action));
        self.agenda.put(at.max(self.now), Task::Action(slot));
    }

    /// Returns the present time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the seed of this run, for messages of failed tests.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the counters of the whole run.
    pub fn stats(&self) -> &SimulatorStats {
        &self.stats
    }

    /// Returns the counters of one direction of a link.
    pub fn link_stats(&self, link: LinkId, direction: Direction) -> &LinkStats {
        self.lanes[lane_index(link, direction)].link.stats()
    }

    fn announce(&mut self, node: NodeId, port: PortId) {
        let info = self.ports[port.0 as usize].info.clone();
        self.nodes[node.index()]
            .machine
            .handle_port(self.now, port, PortEvent::Up(info));
        self.drain(node);
    }
}

fn lane_index(link: LinkId, direction: Direction) -> usize {
    link.0 as usize * 2 + usize::from(direction == Direction::BToA)
}
