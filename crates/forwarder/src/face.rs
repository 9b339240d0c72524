//! Faces: the ports of a forwarder.

use core::fmt;
use core::time::Duration;

use whimbrel_core::{LinkState, Meter, Time};
use whimbrel_ndn_mgmt::{LinkType, Persistency, Scope};

use whimbrel_ndn_packet::lp::Label;

use crate::congestion::CongestionMarker;
use crate::tables::index::{Index, Slab};

/// A face's number. Not reused in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FaceId(pub u64);

impl FaceId {
    /// No face (NFD's reserved number).
    pub const INVALID: FaceId = FaceId(0);
    /// The forwarder's own management.
    pub const INTERNAL: FaceId = FaceId(1);
    /// The IncomingFaceId of Data from the content store.
    pub const CONTENT_STORE: FaceId = FaceId(254);
    /// The first number that is not reserved.
    pub const FIRST: FaceId = FaceId(256);
}

impl fmt::Display for FaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The features that can be enabled on a face.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FaceFlags {
    /// NextHopFaceId is obeyed and IncomingFaceId is sent (NFD: LocalFieldsEnabled).
    pub local_fields: bool,
    /// The link recovers lost frames (NFD: LpReliabilityEnabled).
    pub reliability: bool,
    /// The link marks packets when its queue is long (NFD: CongestionMarkingEnabled).
    pub congestion_marking: bool,
}

/// The properties of a face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaceSpec {
    /// The remote end, such as `udp4://192.0.2.1:6363`.
    pub remote_uri: String,
    /// The local end.
    pub local_uri: String,
    /// Whether the other end is on this machine.
    pub scope: Scope,
    /// Its lifetime when it is idle or fails.
    pub persistency: Persistency,
    /// The number of possible peers.
    pub link_type: LinkType,
    /// Largest frame in bytes; `None` on streams, which have no such limit.
    pub mtu: Option<usize>,
    /// The enabled features.
    pub flags: FaceFlags,
    /// Maximum idle time of an on-demand face.
    pub expires: Option<Duration>,
    /// CoDel's interval of the link's congestion marking.
    pub base_congestion_interval: Duration,
    /// Octets in the link's queue above which it marks.
    pub default_congestion_threshold: u64,
    /// The origin of the web page at the other end, if there is one. The routes of pages are
    /// limited ([`crate::rib`]).
    pub web_origin: Option<String>,
}

impl FaceSpec {
    /// Returns a point-to-point face to another machine with NFD's defaults.
    pub fn new(remote_uri: impl Into<String>, local_uri: impl Into<String>) -> FaceSpec {
        FaceSpec {
            remote_uri: remote_uri.into(),
            local_uri: local_uri.into(),
            scope: Scope::NonLocal,
            persistency: Persistency::Persistent,
            link_type: LinkType::PointToPoint,
            mtu: None,
            flags: FaceFlags::default(),
            expires: None,
            base_congestion_interval: Duration::from_millis(100),
            default_congestion_threshold: 65_536,
            web_origin: None,
        }
    }

    /// Returns a local face with the same defaults, to a program on this machine.
    pub fn local(remote_uri: impl Into<String>, local_uri: impl Into<String>) -> FaceSpec {
        FaceSpec {
            scope: Scope::Local,
            ..FaceSpec::new(remote_uri, local_uri)
        }
    }
}

/// A face's counters of network-layer packets, above the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaceCounters {
    /// Interests received.
    pub in_interests: u64,
    /// Data received.
    pub in_data: u64,
    /// Nacks received.
    pub in_nacks: u64,
    /// Interests sent.
    pub out_interests: u64,
    /// Data sent.
    pub out_data: u64,
    /// Nacks sent.
    pub out_nacks: u64,
    /// Interests sent here that Data received here answered.
    pub satisfied_interests: u64,
    /// Interests sent here that were not answered here.
    pub unsatisfied_interests: u64,
    /// Interests received with a hop limit of zero.
    pub in_hop_limit_zero: u64,
    /// Interests with no hop left to be sent here.
    pub out_hop_limit_zero: u64,
}

/// The known state of a face's link.
#[derive(Clone, Debug, Default, PartialEq)]
struct LinkWatch {
    state: LinkState,
    /// Selects the Data for the face to mark, by the delay in its link's queue.
    marker: CongestionMarker,
}

/// One face.
#[derive(Clone, Debug, PartialEq)]
pub struct Face {
    id: FaceId,
    /// Its properties; management may change flags, persistency and MTU.
    pub spec: FaceSpec,
    /// Packets are forwarded only to faces that are up.
    pub up: bool,
    /// What it has counted.
    pub counters: FaceCounters,
    /// In-records of the PIT that name it: when the PIT is full, the face with most of them loses
    /// an entry first.
    pub(crate) pit_in_records: u32,
    /// Some Data for it is to be marked: `watch` selects them.
    is_congested: bool,
    /// Its name in path tags.
    pub(crate) label: Label,
    /// Limits its Interests that ask for a path.
    pub(crate) probes: Meter,
    /// Boxed, because it is rarely used: faces are read for every packet.
    watch: Box<LinkWatch>,
}

impl Face {
    /// Returns its number.
    pub const fn id(&self) -> FaceId {
        self.id
    }

    /// Returns the latest state of its link.
    pub const fn link_state(&self) -> &LinkState {
        &self.watch.state
    }

    /// Returns the number of its pending Interests.
    pub const fn pending_interests(&self) -> u32 {
        self.pit_in_records
    }

    /// Stores its link's state; a delay of `target` in the link's queue is too long.
    pub(crate) fn set_link_state(&mut self, now: Time, state: LinkState, target: Duration) {
        let interval = self.spec.base_congestion_interval;
        // A packet that waits alone waits for no other, only for a slow link (RFC 8289 §4.4).
        let is_above = state.queue_age.is_some_and(|age| age >= target) && state.queue_packets > 1;
        let counts = is_above && self.spec.flags.congestion_marking;
        self.watch.state = state;
        self.is_congested = self.watch.marker.told(now, counts, interval);
    }

    /// Resets the state of its link.
    pub(crate) fn forget_link_state(&mut self) {
        (self.is_congested, *self.watch) = Default::default();
    }

    /// True if the next Data for it must be marked.
    #[inline]
    pub(crate) fn marks(&mut self, now: Time) -> bool {
        let interval = self.spec.base_congestion_interval;
        self.is_congested && self.watch.marker.marks(now, interval)
    }

    pub(crate) fn forget_in_record(&mut self) {
        self.pit_in_records = self.pit_in_records.saturating_sub(1);
    }

    /// Returns its name in path tags, which this forwarder alone understands.
    pub const fn label(&self) -> Label {
        self.label
    }

    /// Returns true if the other end is on this machine.
    pub fn is_local(&self) -> bool {
        self.spec.scope == Scope::Local
    }
}

/// All faces, indexed by number.
#[derive(Debug)]
pub(crate) struct FaceTable {
    faces: Slab<Face>,
    index: Index,
    next: u64,
    removals: u32,
}

impl FaceTable {
    pub(crate) fn new() -> FaceTable {
        FaceTable {
            faces: Slab::new(),
            index: Index::new(),
            next: FaceId::FIRST.0,
            removals: 0,
        }
    }

    /// Adds a face under the next unused number.
    pub(crate) fn add(&mut self, spec: FaceSpec) -> FaceId {
        let id = FaceId(self.next);
        self.next += 1;
        self.add_reserved(id, spec);
        id
    }

    /// Adds a face under one of the reserved numbers.
    pub(crate) fn add_reserved(&mut self, id: FaceId, spec: FaceSpec) {
        let face = Face {
            id,
            spec,
            up: true,
            counters: FaceCounters::default(),
            pit_in_records: 0,
            is_congested: false,
            label: Label::ZERO,
            probes: Meter::default(),
            watch: Box::default(),
        };
        let slot = self.faces.insert(face);
        self.index.insert(spread(id), slot);
    }

    pub(crate) fn remove(&mut self, id: FaceId) -> Option<Face> {
        let slot = self.slot(id)?;
        self.index.remove(spread(id), slot);
        self.removals = self.removals.wrapping_add(1);
        self.faces.remove(slot)
    }

    /// Returns the number of removed faces: a change tells holders of face numbers to check them
    /// again.
    #[inline]
    pub(crate) const fn removals(&self) -> u32 {
        self.removals
    }

    fn slot(&self, id: FaceId) -> Option<u32> {
        self.index.find(spread(id), |slot| {
            self.faces.get(slot).is_some_and(|face| face.id == id)
        })
    }

    #[inline]
    pub(crate) fn get(&self, id: FaceId) -> Option<&Face> {
        self.faces.get(self.slot(id)?)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: FaceId) -> Option<&mut Face> {
        let slot = self.slot(id)?;
        self.faces.get_mut(slot)
    }

    /// In the order of their numbers.
    pub(crate) fn sorted(&self) -> Vec<&Face> {
        let mut faces: Vec<&Face> = self.faces.iter().map(|(_, face)| face).collect();
        faces.sort_unstable_by_key(|face| face.id);
        faces
    }
}

/// This forwarder assigns face numbers consecutively: an attacker cannot choose colliding ones, so
/// one multiplication is enough.
const fn spread(id: FaceId) -> u64 {
    id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_not_given_twice() {
        let mut faces = FaceTable::new();
        let first = faces.add(FaceSpec::new(
            "udp4://192.0.2.1:6363",
            "udp4://192.0.2.2:6363",
        ));
        assert_eq!(first, FaceId::FIRST);
        assert!(faces.remove(first).is_some());
        let second = faces.add(FaceSpec::local("fd://3", "unix:///run/nfd/nfd.sock"));
        assert_eq!(second, FaceId(257));
        assert!(faces.get(first).is_none());
        assert!(faces.get(second).is_some_and(Face::is_local));
        assert_eq!(faces.sorted().len(), 1);
    }
}
