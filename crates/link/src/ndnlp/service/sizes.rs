//! How much of a packet fits into a frame.

use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{LpHeader, tlv, types};

use crate::ndnlp::adaptive::wire::MOST_HEADER_LEN;
use crate::ndnlp::compact::Kind;
use crate::ndnlp::paper::wire::NUMBERS_LEN;
use crate::ndnlp::piece::Profile;

/// Most fragments of one packet in an LpPacket (NFD: 400), and in a compact frame.
const MOST_FRAGMENTS: usize = 400;
const MOST_COMPACT_FRAGMENTS: usize = 255;
/// LpPacket and Fragment, each with a type and a length of at most three octets.
const WRAPPER: usize = 8;
const SEQUENCE: usize = 10;
const TX_SEQUENCE: usize = 12;
/// FragIndex and FragCount of two octets each.
const INDEX_AND_COUNT: usize = 8;

fn fields_len(header: Option<&LpHeader>) -> usize {
    header.map_or(0, |header| lp::fields_len(&LinkFields::default(), header))
}

/// Bytes of the frame, without acknowledgements, that carries the whole packet.
pub(super) fn whole_frame_len(profile: Profile, packet: &[u8], header: Option<&LpHeader>) -> usize {
    let wrapped = || {
        let fragment = tlv::element_len(types::LP_FRAGMENT, packet.len());
        tlv::element_len(types::LP_PACKET, fields_len(header) + fragment)
    };
    let element = || {
        if header.is_some() {
            wrapped()
        } else {
            packet.len()
        }
    };
    let short = || Kind::of(packet).filter(|_| header.is_none());
    match profile {
        Profile::Plain => element(),
        Profile::Ndnlpv2 => WRAPPER + SEQUENCE + TX_SEQUENCE + fields_len(header) + packet.len(),
        Profile::Paper => match short() {
            Some(_) => NUMBERS_LEN + packet.len(),
            None => 2 + NUMBERS_LEN + element(),
        },
        // With room for what is added when it is sent again.
        Profile::Adaptive => match short() {
            Some((_, left_out)) => MOST_HEADER_LEN + packet.len() - left_out,
            None => MOST_HEADER_LEN + 1 + element(),
        },
    }
}

/// Bytes of a frame beyond the fragment in it, at most.
pub(super) fn fragment_overhead(profile: Profile, header: Option<&LpHeader>) -> usize {
    let plain = WRAPPER + SEQUENCE + INDEX_AND_COUNT + fields_len(header);
    match profile {
        Profile::Plain => plain,
        Profile::Ndnlpv2 => plain + TX_SEQUENCE,
        Profile::Paper => plain + 2 + NUMBERS_LEN,
        Profile::Adaptive => MOST_HEADER_LEN + 2,
    }
}

/// Bytes of each fragment but the last, and how many fragments: for a packet of `len` bytes. `None`
/// if it cannot be cut.
pub(super) fn cut(
    profile: Profile,
    len: usize,
    overhead: usize,
    mtu: usize,
) -> Option<(usize, usize)> {
    let room = mtu.checked_sub(overhead).filter(|room| *room > 0)?;
    let count = len.div_ceil(room);
    let most = if profile == Profile::Adaptive {
        MOST_COMPACT_FRAGMENTS
    } else {
        MOST_FRAGMENTS
    };
    (count <= most).then_some((room, count))
}
