//! Streams of bytes (Unix and TCP connections) that carry frames: framing, and bounds of a
//! connection's memory.

mod connection;
mod outbox;
mod reader;
mod tlv;

use crate::transport::PREFIX;

pub(crate) use connection::{Origin, StreamConnection};
pub(crate) use outbox::Outbox;

/// Default limit of a frame: the largest chunk (4 MiB) with room for its headers.
pub const DEFAULT_MAX_FRAME: usize = (4 << 20) + (64 << 10);
/// Default bound of the output that waits for a reader of TLV packets, bytes.
const DEFAULT_TLV_UNSENT: usize = 4 << 20;

/// The framing of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Framing {
    /// Each frame follows its length (u32, big-endian, without the four octets themselves). Empty
    /// frames are dropped and counted.
    #[default]
    LengthPrefix,
    /// Each frame is one type-length-value block of NDN (NDN Packet Format 0.3, section 1): type
    /// and length in 1, 3, 5 or 9 octets, shortest form or not. Frames are delivered whole, with
    /// type and length. Output is written unchanged, so one transmit may carry several whole
    /// packets of any size.
    ///
    /// A type of zero or above 2^32-1 ends the connection, because the next block cannot be found.
    /// A type that is not among these ends it as well.
    Tlv(BlockTypes),
}

/// The types of the blocks that a stream carries.
///
/// A stream that skips unknown blocks accepts packets from unwitting clients: a web page can make a
/// browser post a form whose head reads as a row of blocks of unknown types, and whose body is then
/// taken for packets. So a protocol names its types, and any other type ends the connection at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BlockTypes {
    /// Blocks of all types.
    #[default]
    Any,
    /// Blocks of these types.
    Only(&'static [u64]),
}

impl BlockTypes {
    fn contain(self, kind: u64) -> bool {
        match self {
            BlockTypes::Any => true,
            BlockTypes::Only(kinds) => kinds.contains(&kind),
        }
    }
}

/// Framing and limits of one stream connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// The framing.
    pub framing: Framing,
    /// Largest frame, bytes: the port's MTU. With [`Framing::Tlv`], type and length count. A peer
    /// that announces a larger frame is disconnected.
    pub max_frame: usize,
    /// Bound of the bytes that wait for a slow peer. The port is blocked from the first waiting
    /// byte on, so a machine that heeds this has at most one transmit waiting. A machine that does
    /// not loses the connection, because a stream with a hole is of no use.
    pub max_unsent: usize,
}

impl Default for StreamLimits {
    /// Returns length prefixes, with frames up to [`DEFAULT_MAX_FRAME`].
    fn default() -> Self {
        StreamLimits {
            framing: Framing::LengthPrefix,
            max_frame: DEFAULT_MAX_FRAME,
            max_unsent: DEFAULT_MAX_FRAME + PREFIX,
        }
    }
}

impl StreamLimits {
    /// Returns limits for TLV packets of all types, of at most `max_packet` bytes each with type
    /// and length.
    pub fn tlv(max_packet: usize) -> StreamLimits {
        StreamLimits {
            framing: Framing::Tlv(BlockTypes::Any),
            max_frame: max_packet,
            max_unsent: DEFAULT_TLV_UNSENT.max(max_packet.saturating_mul(2)),
        }
    }

    /// Returns limits for TLV packets of these types only.
    pub fn tlv_of(kinds: &'static [u64], max_packet: usize) -> StreamLimits {
        StreamLimits {
            framing: Framing::Tlv(BlockTypes::Only(kinds)),
            ..StreamLimits::tlv(max_packet)
        }
    }
}
