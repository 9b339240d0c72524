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

/// Face events that management has not taken; of more the oldest are forgotten.
const MAX_EVENTS: usize = 1024;

/// A packet for a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// A bare Interest or Data, or the Interest of a Nack; its hop limit is already decremented.
    pub packet: SharedPacket,
    /// What goes with it; `None` if it may go bare.
    pub header: Option<Box<LpHeader>>,
}

/// An Interest for this forwarder's management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ManagementInterest {
    pub(crate) packet: SharedPacket,
    /// The face that it came by.
    pub(crate) from: FaceId,
}

/// What happened to a face: what the face notifications of management tell.
#[derive(Clone, Debug)]
pub(crate) enum FaceEvent {
    /// It was added.
    Created(FaceId),
    /// It came up.
    Up(FaceId),
    /// It went down.
    Down(FaceId),
    /// It was removed; this is what it was.
    Destroyed(Box<Face>),
}

/// One NDN forwarder. See the crate's documentation.
pub struct Forwarder {
    wall: WallClock,
    pub(crate) engine: Engine,
    pub(crate) strategies: StrategyChoice,
    /// The hashes of the names of packets that are at hand.
    pub(crate) keys: Vec<NameKey>,
    events: VecDeque<FaceEvent>,
    pub(crate) rib: Rib,
    /// `None` only while it works.
    pub(crate) mgmt: Option<Box<Management>>,
}

impl Forwarder {
    /// A forwarder with its internal face, whose prefix `/localhost/nfd` leads there, and nothing
    /// else. Strategies of the configuration that there are none of are left out: check them with
    /// [`Forwarder::strategies_mut`].
    pub fn new(config: ForwarderConfig, wall: WallClock, rng: SeededRng) -> Forwarder {
        let management = config.management.clone();
        let mut engine = Engine::new(config, rng);
        let internal = FaceSpec {
            persistency: Persistency::Permanent,
            ..FaceSpec::local("internal://", "internal://")
        };
        engine.faces.add_reserved(FaceId::INTERNAL, internal);
        let mut strategies =
            StrategyChoice::new(engine.hasher, engine.config.measurements_capacity);
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

    /// Adds a face, which is up. How many there may be is bounded by who opens sockets.
    pub fn add_face(&mut self, _now: Time, spec: FaceSpec) -> FaceId {
        let is_page = spec.web_origin.is_some();
        let id = self.engine.faces.add(spec);
        if is_page {
            self.rib.add_page(id);
        }
        self.happened(FaceEvent::Created(id));
        id
    }

    /// Removes a face. Its records in the PIT go when their entries are looked at next.
    pub fn remove_face(&mut self, _now: Time, face: FaceId) {
        self.forget_routes(face);
        self.engine.fib.remove_face(face);
        self.strategies.forget_face(face);
        if let Some(face) = self.engine.faces.remove(face) {
            self.happened(FaceEvent::Destroyed(Box::new(face)));
        }
    }

    /// A face came up or went down without going away.
    pub fn set_face_up(&mut self, _now: Time, face: FaceId, up: bool) {
        let Some(found) = self.engine.faces.get_mut(face) else {
            return;
        };
        if found.up != up {
            found.up = up;
            // What was measured before says nothing of the link that comes back.
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

    /// One face, to be changed.
    pub fn face_mut(&mut self, face: FaceId) -> Option<&mut Face> {
        self.engine.faces.get_mut(face)
    }

    /// All faces in the order of their numbers.
    pub fn faces(&self) -> impl Iterator<Item = &Face> {
        self.engine.faces.sorted().into_iter()
    }

    /// A whole network-layer packet (`lp.fragment` is all of it) that the link delivered.
    pub fn handle_packet(&mut self, now: Time, from: FaceId, lp: &LpPacket<'_>) {
        self.incoming_packet(now, from, lp);
    }

    /// Packets that came together, in order: the same as one after the other, and faster where
    /// tables are large.
    pub fn handle_packets(&mut self, now: Time, packets: &[(FaceId, LpPacket<'_>)]) {
        self.incoming_packets(now, packets);
    }

    /// Takes note of what a face's link tells of itself: for strategies, and to mark Data for the
    /// face while packets wait long in its queue ([`ForwarderConfig::congestion_target`]) and its
    /// congestion marking is on. To be called when the link has measured something new, at least
    /// some times in each interval of the marking while packets wait.
    pub fn set_link_state(&mut self, now: Time, face: FaceId, state: LinkState) {
        let target = self.engine.config.congestion_target;
        let Some(face) = self.engine.faces.get_mut(face) else {
            return;
        };
        face.set_link_state(now, state, target);
    }

    /// The link gave up on an Interest after its retransmissions.
    pub fn handle_dropped(&mut self, now: Time, face: FaceId, packet: &[u8]) {
        self.dropped_interest(now, face, packet);
    }

    /// The next packet to send, and the face that it goes to.
    pub fn poll_send(&mut self) -> Option<(FaceId, Outgoing)> {
        self.engine.out.pop_front()
    }

    /// What is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.entries_due(now);
        self.management_timeout(now);
    }

    /// When [`Forwarder::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let pending = self
            .engine
            .pit
            .next_due()
            .map(|at| Deadline::new(at, "pending interests"));
        Deadline::earlier(pending, self.management_deadline())
    }

    /// What it has counted.
    pub fn counters(&self) -> &ForwarderCounters {
        &self.engine.counters
    }

    /// The FIB.
    pub fn fib(&self) -> &Fib {
        &self.engine.fib
    }

    /// The FIB, to be changed. Management changes it through the RIB.
    pub fn fib_mut(&mut self) -> &mut Fib {
        &mut self.engine.fib
    }

    /// The routes that the FIB follows.
    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    /// The content store.
    pub fn cs(&self) -> &Cs {
        &self.engine.cs
    }

    /// The content store, to be changed.
    pub fn cs_mut(&mut self) -> &mut Cs {
        &mut self.engine.cs
    }

    /// The PIT.
    pub fn pit(&self) -> &Pit {
        &self.engine.pit
    }

    /// Which prefix has which strategy.
    pub fn strategies(&self) -> &StrategyChoice {
        &self.strategies
    }

    /// Which prefix has which strategy, to be changed.
    pub fn strategies_mut(&mut self) -> &mut StrategyChoice {
        &mut self.strategies
    }

    /// Unix time at the run's origin.
    pub fn wall(&self) -> WallClock {
        self.wall
    }

    /// True if Interests for management wait, or news of faces.
    pub fn has_management_work(&self) -> bool {
        !self.engine.management.is_empty() || !self.events.is_empty()
    }

    /// The next Interest for management: for any prefix whose next hop is [`FaceId::INTERNAL`].
    pub(crate) fn take_management_interest(&mut self) -> Option<ManagementInterest> {
        self.engine.management.pop_front()
    }

    /// How many measurements strategies keep.
    pub fn measurements_len(&self) -> usize {
        self.strategies.measurements()
    }

    /// How many nonces of Interests that no longer wait are remembered.
    pub fn dead_nonces_len(&self) -> usize {
        self.engine.dead_nonces.len()
    }

    /// The next thing that happened to a face. Bounded: of more than 1,024 that nobody took, the
    /// oldest are forgotten.
    pub(crate) fn poll_face_event(&mut self) -> Option<FaceEvent> {
        self.events.pop_front()
    }
}
