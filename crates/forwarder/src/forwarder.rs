//! The forwarder: faces, packets in and out, time.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time, WallClock};
use whimbrel_ndn_packet::{LpHeader, LpPacket};

use crate::config::ForwarderConfig;
use crate::counters::ForwarderCounters;
use crate::face::{Face, FaceId, FaceSpec, FaceTable, LinkType, Persistency};
use crate::mgmt::Management;
use crate::rib::Rib;
use crate::strategy::StrategyChoice;
use crate::tables::name_key::NameHasher;
use crate::tables::{Cs, Fib, Pit};

/// A packet for a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// A bare Interest or Data, or the Interest of a Nack; its hop limit is already decremented.
    pub packet: Bytes,
    /// What goes with it; `None` if it may go bare.
    pub header: Option<Box<LpHeader>>,
}

/// An Interest for this forwarder's management.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagementInterest {
    /// The packet.
    pub packet: Bytes,
    /// Who asks.
    pub from: FaceId,
}

/// What happened to a face: what the face notifications of management tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaceEvent {
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
    pub(crate) wall: WallClock,
    pub(crate) faces: FaceTable,
    pub(crate) fib: Fib,
    pub(crate) cs: Cs,
    pub(crate) pit: Pit,
    pub(crate) strategies: StrategyChoice,
    pub(crate) counters: ForwarderCounters,
    pub(crate) events: VecDeque<FaceEvent>,
    pub(crate) rib: Rib,
    /// `None` only while it works.
    pub(crate) mgmt: Option<Box<Management>>,
    management: VecDeque<ManagementInterest>,
    out: VecDeque<(FaceId, Outgoing)>,
}

impl Forwarder {
    /// A forwarder with its internal face and nothing else.
    pub fn new(config: ForwarderConfig, wall: WallClock, mut rng: SeededRng) -> Forwarder {
        let hasher = NameHasher::new(&mut rng);
        let mut faces = FaceTable::new();
        let internal = FaceSpec {
            persistency: Persistency::Permanent,
            link_type: LinkType::PointToPoint,
            ..FaceSpec::local("internal://", "internal://")
        };
        faces.add_reserved(FaceId::INTERNAL, internal);
        let mut forwarder = Forwarder {
            wall,
            faces,
            fib: Fib::new(hasher),
            cs: Cs::new(config.content_store, hasher),
            pit: Pit::default(),
            strategies: StrategyChoice::new(),
            counters: ForwarderCounters::default(),
            events: VecDeque::new(),
            rib: Rib::new(config.management.routes),
            mgmt: None,
            management: VecDeque::new(),
            out: VecDeque::new(),
        };
        forwarder.attach_management(config.management);
        forwarder
    }

    /// Adds a face, which is up.
    pub fn add_face(&mut self, _now: Time, spec: FaceSpec) -> FaceId {
        let id = self.faces.add(spec);
        self.events.push_back(FaceEvent::Created(id));
        id
    }

    /// Removes a face from all tables.
    pub fn remove_face(&mut self, _now: Time, face: FaceId) {
        self.forget_routes(face);
        self.fib.remove_face(face);
        if let Some(face) = self.faces.remove(face) {
            self.events.push_back(FaceEvent::Destroyed(Box::new(face)));
        }
    }

    /// A face came up or went down without going away.
    pub fn set_face_up(&mut self, _now: Time, face: FaceId, up: bool) {
        let Some(found) = self.faces.get_mut(face) else { return };
        if found.up != up {
            found.up = up;
            self.events.push_back(if up { FaceEvent::Up(face) } else { FaceEvent::Down(face) });
        }
    }

    /// One face.
    pub fn face(&self, face: FaceId) -> Option<&Face> {
        self.faces.get(face)
    }

    /// One face, to be changed.
    pub fn face_mut(&mut self, face: FaceId) -> Option<&mut Face> {
        self.faces.get_mut(face)
    }

    /// All faces in the order of their numbers.
    pub fn faces(&self) -> impl Iterator<Item = &Face> {
        self.faces.sorted().into_iter()
    }

    /// A whole network-layer packet (`lp.fragment` is all of it) that the link delivered.
    pub fn handle_packet(&mut self, _now: Time, _from: FaceId, _lp: &LpPacket<'_>) {}

    /// The link gave up on an Interest after its retransmissions.
    pub fn handle_dropped(&mut self, _now: Time, _face: FaceId, _packet: &[u8]) {}

    /// The next packet to send, and the face that it goes to.
    pub fn poll_send(&mut self) -> Option<(FaceId, Outgoing)> {
        self.out.pop_front()
    }

    /// What is due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.management_timeout(now);
    }

    /// When [`Forwarder::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        self.management_deadline()
    }

    /// What it has counted.
    pub fn counters(&self) -> &ForwarderCounters {
        &self.counters
    }

    /// The FIB.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }

    /// The FIB, to be changed. Management changes it through the RIB.
    pub fn fib_mut(&mut self) -> &mut Fib {
        &mut self.fib
    }

    /// The routes that the FIB follows.
    pub fn rib(&self) -> &Rib {
        &self.rib
    }

    /// The content store.
    pub fn cs(&self) -> &Cs {
        &self.cs
    }

    /// The content store, to be changed.
    pub fn cs_mut(&mut self) -> &mut Cs {
        &mut self.cs
    }

    /// The PIT.
    pub fn pit(&self) -> &Pit {
        &self.pit
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
        !self.management.is_empty() || !self.events.is_empty()
    }

    /// The next Interest for management: for any prefix whose next hop is [`FaceId::INTERNAL`].
    pub(crate) fn take_management_interest(&mut self) -> Option<ManagementInterest> {
        self.management.pop_front()
    }

    /// A Data from management, for whoever waits for it.
    pub(crate) fn management_data(&mut self, now: Time, data: &[u8]) {
        if let Ok(lp) = LpPacket::decode(data, false) {
            self.handle_packet(now, FaceId::INTERNAL, &lp);
        }
    }

    /// The next thing that happened to a face. Bounded: of more than 1,024 that nobody took, the oldest are forgotten.
    pub(crate) fn poll_face_event(&mut self) -> Option<FaceEvent> {
        self.events.pop_front()
    }
}
