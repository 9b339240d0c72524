//! The forwarder: faces, packets in and out, time.

use std::collections::VecDeque;

use whimbrel_core::{Deadline, LinkState, SeededRng, Time, WallClock};
use whimbrel_ndn_mgmt::Persistency;
use whimbrel_ndn_packet::{LpHeader, LpPacket, SharedPacket};

use crate::config::ForwarderConfig;
use crate::counters::ForwarderCounters;
use crate::face::{Face, FaceId, FaceSpec};
use crate::mgmt::Management;
use crate::pipeline::Engine;
use crate::rib::Rib;
use crate::strategy::StrategyChoice;
use crate::tables::name_key::NameKey;
use crate::tables::{Cs, Fib, Pit};

/// Maximum of face events that wait for management; beyond it the oldest are forgotten.
const MAX_EVENTS: usize = 1024;

/// A packet to send on a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutPacket {
    /// A bare Interest or Data, or the Interest of a Nack; its hop limit is already decremented.
    pub packet: SharedPacket,
    /// Its link header; `None` if it may go bare.
    pub header: Option<Box<LpHeader>>,
}

/// An Interest for this forwarder's management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagementInterest {
    pub(crate) packet: SharedPacket,
    /// The face that it arrived on.
    pub(crate) from: FaceId,
}

/// A face event, which management reports as a notification.
#[derive(Clone, Debug)]
pub(crate) enum FaceEvent {
    /// It was added.
    Created(FaceId),
    /// It came up.
    Up(FaceId),
    /// It went down.
    Down(FaceId),
    /// It was removed; these were its properties.
    Destroyed(Box<Face>),
}

/// One NDN forwarder. See the crate's documentation.
pub struct Forwarder {
    wall: WallClock,
    pub(crate) engine: Engine,
    pub(crate) strategies: StrategyChoice,
    /// Scratch memory for the hashes of names in a batch.
    pub(crate) keys: Vec<NameKey>,
    events: VecDeque<FaceEvent>,
    pub(crate) rib: Rib,
    /// `None` only while it runs.
    pub(crate) mgmt: Option<Box<Management>>,
}

impl Forwarder {
    /// Returns a forwarder with only its internal face, to which the prefix `/localhost/nfd` leads.
    /// Skips unknown strategies of the configuration: check them with
    /// [`Forwarder::strategies_mut`].
    pub fn new(config: ForwarderConfig, wall: WallClock, rng: SeededRng) -> Forwarder {
        let management = config.management.clone();
        let mut engine = Engine::new(config, rng);
        let internal = FaceSpec {
            persistency: Persistency::Permanent,
            ..FaceSpec::local("internal://", "internal://")
        };
        engine.faces.add_reserved(FaceId::INTERNAL, internal);
        engine.label(FaceId::INTERNAL);
        let mut strategies = StrategyChoice::new(
            engine.config.strategy_kinds,
            engine.hasher,
            engine.config.measurements_capacity,
        );
        for (prefix, strategy) in &engine.config.strategies {
            let _ = strategies.set(prefix.as_ref(), strategy.as_ref());
        }
        let mut forwarder = Forwarder {
            wall,
            engine,
            strategies,
            keys: Vec::new(),
            events: VecDeque::new(),
            rib: Rib::new(management.routes),
            mgmt: None,
        };
        forwarder.attach_management(management);
        forwarder
    }

    /// Adds a face, initially up. The caller, which opens sockets, bounds their number.
    pub fn add_face(&mut self, _now: Time, spec: FaceSpec) -> FaceId {
        let is_page = spec.web_origin.is_some();
        let id = self.engine.faces.add(spec);
        self.engine.label(id);
        if is_page {
            self.rib.add_page(id);
        }
        self.happened(FaceEvent::Created(id));
        id
    }

    /// Removes a face. Its records in the PIT go when their entries are next used.
    pub fn remove_face(&mut self, _now: Time, face: FaceId) {
        self.forget_routes(face);
        self.engine.fib.remove_face(face);
        self.strategies.forget_face(face);
        if let Some(management) = &mut self.mgmt {
            management.forget_face(face);
        }
        if let Some(face) = self.engine.faces.remove(face) {
            self.engine.labels.retire(face.label);
            self.happened(FaceEvent::Destroyed(Box::new(face)));
        }
    }

    /// Sets whether a face is up.
    pub fn set_face_up(&mut self, _now: Time, face: FaceId, up: bool) {
        let Some(found) = self.engine.faces.get_mut(face) else {
            return;
        };
        if found.up != up {
            found.up = up;
            // Measurements of the old link do not apply to the new one.
            found.forget_link_state();
            self.happened(if up {
                FaceEvent::Up(face)
            } else {
                FaceEvent::Down(face)
            });
        }
    }

    fn happened(&mut self, event: FaceEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// One face.
    pub fn face(&self, face: FaceId) -> Option<&Face> {
        self.engine.faces.get(face)
    }

    /// One face, mutable.
    pub fn face_mut(&mut self, face: FaceId) -> Option<&mut Face> {
        self.engine.faces.get_mut(face)
    }

    /// Returns all faces in the order of their numbers.
    pub fn faces(&self) -> impl Iterator<Item = &Face> {
        self.engine.faces.sorted().into_iter()
    }

    /// Handles a whole network-layer packet (`lp.fragment` is all of it) that the link delivered.
    pub fn handle_packet(&mut self, now: Time, from: FaceId, lp: &LpPacket<'_>) {
        self.incoming_packet(now, from, lp);
    }

    /// Handles packets that arrived together, in order: equivalent to one after the other, and
    /// faster if tables are large.
    pub fn handle_packets(&mut self, now: Time, packets: &[(FaceId, LpPacket<'_>)]) {
        self.incoming_packets(now, packets);
    }

    /// Stores a link's state: for strategies, and to mark Data for the face while packets wait long
    /// in its queue ([`ForwarderConfig::congestion_target`]) and its congestion marking is on. Call
    /// it when the link has new measurements, at least several times per marking interval while
    /// packets wait.
    pub fn set_link_state(&mut self, now: Time, face: FaceId, state: LinkState) {
        let target = self.engine.config.congestion_target;
        let Some(face) = self.engine.faces.get_mut(face) else {
            return;
        };
        face.set_link_state(now, state, target);
    }

    /// Handles an Interest that the link abandoned after its retransmissions.
    pub fn handle_dropped(&mut self, now: Time, face: FaceId, packet: &[u8]) {
        self.dropped_interest(now, face, packet);
    }

    /// The next packet to send, and its face.
    pub fn poll_send(&mut self) -> Option<(FaceId, OutPacket)> {
        self.engine.out.pop_front()
    }

    /// Handles due deadlines.
    pub fn handle_timeout(&mut self, now: Time) {
        self.entries_due(now);
        self.management_timeout(now);
    }

    /// When to call [`Forwarder::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let pending = self
            .engine
            .pit
            .next_due()
            .map(|at| Deadline::new(at, "pending interests"));
        Deadline::earlier(pending, self.management_deadline())
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ForwarderCounters {
        &self.engine.counters
    }

    /// Returns the FIB.
    pub fn fib(&self) -> &Fib {
        &self.engine.fib
    }

    /// The FIB, mutable. Management changes it through the RIB.
    pub fn fib_mut(&mut self) -> &mut Fib {
        &mut self.engine.fib
    }

    /// Returns the RIB, from which the FIB is derived.
    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    /// Returns the content store.
    pub fn cs(&self) -> &Cs {
        &self.engine.cs
    }

    /// The content store, mutable.
    pub fn cs_mut(&mut self) -> &mut Cs {
        &mut self.engine.cs
    }

    /// Returns the PIT.
    pub fn pit(&self) -> &Pit {
        &self.engine.pit
    }

    /// Returns the strategies by prefix.
    pub fn strategies(&self) -> &StrategyChoice {
        &self.strategies
    }

    /// The strategies by prefix, mutable.
    pub fn strategies_mut(&mut self) -> &mut StrategyChoice {
        &mut self.strategies
    }

    /// Unix time at the run's origin.
    pub fn wall(&self) -> WallClock {
        self.wall
    }

    /// Judges commands and dates by another clock from now on, after a step of the system's.
    pub fn set_wall_clock(&mut self, wall: WallClock) {
        self.wall = wall;
    }

    /// Returns true if Interests or face events wait for management.
    pub fn has_management_work(&self) -> bool {
        !self.engine.management.is_empty() || !self.events.is_empty()
    }

    /// The next Interest for management: of any prefix whose next hop is [`FaceId::INTERNAL`].
    pub(crate) fn take_management_interest(&mut self) -> Option<ManagementInterest> {
        self.engine.management.pop_front()
    }

    /// Returns the number of flows in the forwarding acceleration base, and of its hits.
    pub fn flows(&self) -> (usize, u64) {
        (self.engine.fab.len(), self.engine.fab.hits())
    }

    /// Returns the number of remembered dead nonces.
    pub fn dead_nonces_len(&self) -> usize {
        self.engine.dead_nonces.len()
    }

    /// The next face event. Bounded: the queue keeps the newest 1,024.
    pub(crate) fn poll_face_event(&mut self) -> Option<FaceEvent> {
        self.events.pop_front()
    }
}
