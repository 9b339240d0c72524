//! Sizes of NDNLPv2 frames.

use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{LpHeader, SharedPacket, tlv, types};

/// Maximum of fragments of one packet in LpPackets (NFD: 400).
pub(crate) const MAX_FRAGMENTS: usize = 400;
/// LpPacket and Fragment, each with a type and a length of at most three octets.
pub(crate) const WRAPPER: usize = 8;
/// Octets of the field Sequence.
pub(crate) const SEQUENCE: usize = 10;
/// Octets of the field TxSequence.
pub(crate) const TX_SEQUENCE: usize = 12;
/// FragIndex and FragCount of two octets each.
const INDEX_AND_COUNT: usize = 8;

/// An NDNLPv2 frame to which link fields are added.
pub(crate) struct LpFrame<'a> {
    pub(crate) header: &'a LpHeader,
    /// Bytes of the packet or fragment in it.
    pub(crate) payload_len: usize,
    /// Largest frame, in bytes.
    pub(crate) mtu: usize,
}

impl LpFrame<'_> {
    /// Returns the bytes left beside `link` for further fields. They may lengthen the LpPacket's
    /// length field by up to two octets, which are not counted.
    pub(crate) fn room(&self, link: &LinkFields<'_>) -> usize {
        let fragment = tlv::element_len(types::LP_FRAGMENT, self.payload_len);
        let fields = lp::fields_len(link, self.header);
        let used = tlv::element_len(types::LP_PACKET, fields + fragment);
        self.mtu.saturating_sub(used)
    }
}

/// Returns the octets of the packet's own header fields.
pub(crate) fn header_len(header: Option<&LpHeader>) -> usize {
    header.map_or(0, |header| lp::fields_len(&LinkFields::default(), header))
}

/// Returns the bytes of a packet alone, or in an LpPacket if it has a header.
pub(crate) fn element_len(packet: &[u8], header: Option<&LpHeader>) -> usize {
    if header.is_none() {
        return packet.len();
    }
    let fragment = tlv::element_len(types::LP_FRAGMENT, packet.len());
    tlv::element_len(types::LP_PACKET, header_len(header) + fragment)
}

/// Returns the maximum of bytes of an NDNLPv2 frame without TxSequence beyond its fragment.
pub(crate) fn fragment_overhead(header: Option<&LpHeader>) -> usize {
    WRAPPER + SEQUENCE + INDEX_AND_COUNT + header_len(header)
}

/// Returns the size of each fragment but the last, and the number of fragments, of a packet of
/// `len` bytes. Returns `None` if there would be too many fragments.
pub(crate) fn cut(
    len: usize,
    overhead: usize,
    mtu: usize,
    max_fragments: usize,
) -> Option<(usize, usize)> {
    let room = mtu.checked_sub(overhead).filter(|room| *room > 0)?;
    let count = len.div_ceil(room);
    (count <= max_fragments).then_some((room, count))
}

/// Returns the packet with its header, as one element.
pub(crate) fn wrapped(packet: &SharedPacket, header: Option<Box<LpHeader>>) -> SharedPacket {
    let mut element = Vec::with_capacity(packet.len() + 64);
    lp::encode(
        &mut element,
        &LinkFields::default(),
        &header.unwrap_or_default(),
        Some(packet),
    );
    element.into()
}
