//! What a hop tells its owner.

use bytes::Bytes;
use whimbrel_core::Guid;

/// Something that happened on a hop, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HopEvent {
    /// The neighbour is known and chunks can flow. Comes once for each session.
    ///
    /// A neighbour that restarted has forgotten what it half received: chunks that it had not
    /// acknowledged are sent to it again by the hop itself.
    Up {
        /// Its name.
        neighbour: Guid,
        /// Its [`HopConfig::incarnation`](crate::HopConfig::incarnation).
        incarnation: u64,
        /// True if this hop had a session before, which the neighbour has forgotten.
        restarted: bool,
    },
    /// A whole chunk arrived, intact; it comes once in a session.
    Received {
        /// Its bytes.
        chunk: Bytes,
        /// What it holds of the [`PacketBudget`](crate::PacketBudget), in packets. The owner
        /// releases it.
        packets: u32,
    },
    /// The neighbour has the whole chunk that was sent under `tag`.
    Delivered {
        /// As given to [`Hop::send`](crate::Hop::send).
        tag: u64,
    },
    /// A chunk is larger than what was negotiated with the neighbour, so it cannot go this way; it
    /// is given back.
    TooLarge {
        /// As given to [`Hop::send`](crate::Hop::send).
        tag: u64,
        /// Its first part.
        head: Bytes,
        /// Its second part.
        body: Bytes,
    },
    /// The largest frame that arrives at the neighbour has become smaller or larger without a word
    /// of the driver's: frames on the way there vanish by their size, or no longer do.
    PathMtu {
        /// Bytes of a frame.
        size: usize,
    },
    /// The neighbour has stopped answering. Chunks stay queued; the hop keeps asking.
    Unresponsive,
    /// An unresponsive neighbour is back; sending has resumed.
    Responsive,
}
