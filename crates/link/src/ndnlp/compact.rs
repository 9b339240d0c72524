//! Frames without the outermost type and length of their packet: both follow from the frame.
//!
//! An Interest has 2 octets of them, a Data of 253 bytes or more has 4: about the size of a number
//! and an acknowledgement. The first octet of such a frame is 0x80 or more, unlike that of any NDN
//! packet.

use whimbrel_ndn_packet::{tlv, types};

/// The lowest first octet of a frame in a profile's own format.
pub(crate) const FIRST_COMPACT: u8 = 0x80;
/// The first octet of a frame of the adaptive profile is 0b10......
pub(crate) const ADAPTIVE: u8 = 0x80;
/// The first octet of a frame of the paper's profile is 0b11......
pub(crate) const PAPER: u8 = 0xc0;
/// The bits that distinguish the two from each other and from all other frames.
pub(crate) const PROFILE_MASK: u8 = 0xc0;

/// The kind of a compact frame's packet, in two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No packet.
    Nothing = 0,
    /// An Interest, partly or wholly without its type and length.
    Interest = 1,
    /// A Data, likewise.
    Data = 2,
    /// Anything else.
    Other = 3,
}

impl Kind {
    pub(crate) fn from_bits(bits: u8) -> Kind {
        match bits & 3 {
            0 => Kind::Nothing,
            1 => Kind::Interest,
            2 => Kind::Data,
            _ => Kind::Other,
        }
    }

    /// Returns the TLV-TYPE of the packet.
    pub(crate) fn typ(self) -> Option<u64> {
        match self {
            Kind::Interest => Some(types::INTEREST),
            Kind::Data => Some(types::DATA),
            Kind::Nothing | Kind::Other => None,
        }
    }

    /// Returns the kind of a packet whose type and length can be omitted, with their octets: an
    /// Interest or Data whose length is correct and in the shortest form.
    pub(crate) fn of(packet: &[u8]) -> Option<(Kind, usize)> {
        let kind = match *packet.first()? {
            0x05 => Kind::Interest,
            0x06 => Kind::Data,
            _ => return None,
        };
        let (length, length_len) = tlv::read_var(packet.get(1..)?).ok()??;
        let header = 1 + length_len;
        (length == (packet.len() - header) as u64).then_some((kind, header))
    }
}
