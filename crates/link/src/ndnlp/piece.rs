//! The part of a packet in one frame, kept for retransmission.

use whimbrel_core::Time;
use whimbrel_ndn_packet::lp::LinkFields;
use whimbrel_ndn_packet::{LpHeader, SharedPacket};

/// A whole packet, or one of its fragments.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// The whole network-layer packet; shared with all other holders.
    pub(crate) packet: SharedPacket,
    /// Its header fields; for a packet in fragments, with the first one.
    pub(crate) header: Option<Box<LpHeader>>,
    /// Offset of the fragment in the packet, in bytes.
    pub(crate) start: u32,
    /// Bytes of the fragment.
    pub(crate) len: u32,
    /// Index of the fragment, from 0.
    pub(crate) index: u16,
    /// Number of fragments; 1 for a whole packet.
    pub(crate) count: u16,
    /// Common to all fragments of a packet, and unique to the packet on this face.
    pub(crate) packet_id: u64,
    /// The number that retransmissions keep: Sequence (NDNLPv2), packet number (paper), number of
    /// the first transmission (adaptive).
    pub(crate) identity: u64,
    /// The number of retransmissions.
    pub(crate) retransmissions: u8,
    /// The time when the forwarder passed the packet to the link.
    pub(crate) accepted_at: Time,
    /// The time when this transmission was queued.
    pub(crate) queued_at: Time,
}

impl Piece {
    pub(crate) fn bytes(&self) -> &[u8] {
        let start = self.start as usize;
        self.packet
            .get(start..start + self.len as usize)
            .unwrap_or_default()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.count == 1
    }

    /// Returns FragIndex and FragCount of a fragment.
    pub(crate) fn place_fields(&self) -> LinkFields<'static> {
        let in_fragments = !self.is_whole();
        LinkFields {
            frag_index: in_fragments.then_some(u64::from(self.index)),
            frag_count: in_fragments.then_some(u64::from(self.count)),
            ..LinkFields::default()
        }
    }
}
