//! Processing of packets: the pipelines of NFD's developer guide.
//!
//! | module | pipelines |
//! |---|---|
//! | `batch` | packets that arrive together, and their prefetching |
//! | `interest` | incoming Interest, Interest loop, content store hit and miss, outgoing Interest |
//! | `data` | incoming Data, Data unsolicited, outgoing Data |
//! | `nack` | incoming Nack, outgoing Nack |
//! | `path` | Interests with a path tag, and those that ask for one |
//! | `finalize` | the end of a PIT entry, eviction, timers, removal of a face |

mod batch;
mod data;
mod finalize;
mod interest;
mod nack;
mod path;

pub(crate) use interest::{Incoming, MAX_DELEGATIONS, Outbound};

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_mgmt::LinkType;
use whimbrel_ndn_packet::{LpHeader, SharedPacket};

use crate::config::ForwarderConfig;
use crate::counters::{DropReason, ForwarderCounters};
use crate::face::{Face, FaceId, FaceTable};
use crate::forwarder::{ManagementInterest, OutPacket};
use crate::tables::dead_nonces::DeadNonces;
use crate::tables::fab::Fab;
use crate::tables::labels::Labels;
use crate::tables::name_key::NameHasher;
use crate::tables::{Cs, Fib, Pit};

/// Maximum of Interests that wait for management.
const MAX_MANAGEMENT_QUEUE: usize = 4096;

/// The forwarder without its strategies, which work on it.
pub(crate) struct Engine {
    pub(crate) config: ForwarderConfig,
    pub(crate) hasher: NameHasher,
    pub(crate) rng: SeededRng,
    pub(crate) faces: FaceTable,
    pub(crate) fib: Fib,
    pub(crate) fab: Fab,
    pub(crate) labels: Labels,
    pub(crate) cs: Cs,
    pub(crate) pit: Pit,
    pub(crate) dead_nonces: DeadNonces,
    pub(crate) counters: ForwarderCounters,
    pub(crate) management: VecDeque<ManagementInterest>,
    pub(crate) out: VecDeque<(FaceId, OutPacket)>,
}

impl Engine {
    pub(crate) fn new(config: ForwarderConfig, mut rng: SeededRng) -> Engine {
        let hasher = NameHasher::new(&mut rng);
        Engine {
            hasher,
            rng,
            faces: FaceTable::new(),
            fib: Fib::new(hasher),
            fab: Fab::new(config.flow_capacity),
            labels: Labels::new(hasher.label_secret()),
            cs: Cs::new(config.content_store, hasher),
            pit: Pit::new(hasher, config.pit_capacity),
            dead_nonces: DeadNonces::new(config.dead_nonce_lifetime, config.dead_nonce_capacity),
            counters: ForwarderCounters::default(),
            management: VecDeque::new(),
            out: VecDeque::new(),
            config,
        }
    }

    /// Queues a packet for sending; returns false if the queue is full.
    fn queue(&mut self, face: FaceId, packet: SharedPacket, header: Option<Box<LpHeader>>) -> bool {
        if self.out.len() >= self.config.queue_capacity {
            self.counters.drop(DropReason::QueueFull);
            return false;
        }
        self.out.push_back((face, OutPacket { packet, header }));
        true
    }
}

/// Returns the link header of an outgoing Interest or Data; `None` if it needs none. Overwrites the
/// forwarder's own fields among those that a strategy has attached, and never removes a congestion
/// mark. Those of the path are set before.
#[inline]
fn header(
    attached: Option<Box<LpHeader>>,
    token: Option<Bytes>,
    mark: Option<u64>,
    incoming: Option<FaceId>,
) -> Option<Box<LpHeader>> {
    if attached.is_none() && token.is_none() && mark.is_none() && incoming.is_none() {
        return None;
    }
    let mut header = attached.unwrap_or_default();
    header.pit_token = token;
    header.nack = None;
    header.incoming_face_id = incoming.map(|face| face.0);
    header.next_hop_face_id = None;
    header.congestion_mark = header.congestion_mark.max(mark);
    Some(header).filter(|header| !header.is_empty())
}

/// Returns true for names that begin with `/localhost`.
pub(crate) fn is_localhost(name: &[u8]) -> bool {
    name.starts_with(b"\x08\x09localhost")
}

/// Returns true for names that begin with `/localhop`.
pub(crate) fn is_localhop(name: &[u8]) -> bool {
    name.starts_with(b"\x08\x08localhop")
}

/// A packet is not sent back to its incoming face, unless other peers there have not heard it.
fn may_return(face: &Face) -> bool {
    face.spec.link_type == LinkType::AdHoc
}

/// `now` + `by`, at most `now` + `limit`.
fn after(now: Time, by: core::time::Duration, limit: core::time::Duration) -> Time {
    now + by.min(limit)
}
