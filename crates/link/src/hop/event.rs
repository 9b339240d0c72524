//! Events of a hop for its owner.

use bytes::Bytes;
use whimbrel_core::Guid;

use super::secure::Unwilling;
use crate::account::Room;

/// An event of a hop. Events are in the order of their occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HopEvent {
    /// The neighbour is known and chunks can flow. Occurs once in each session.
    ///
    /// A neighbour that restarted has lost its incomplete chunks; the hop itself sends
    /// unacknowledged chunks again.
    Up {
        /// Its GUID.
        neighbour: Guid,
        /// Its [`HopConfig::incarnation`](crate::HopConfig::incarnation).
        incarnation: u64,
        /// True if this hop had a session before, which the neighbour has forgotten.
        restarted: bool,
    },
    /// A whole chunk arrived, intact. Occurs once per chunk in a session.
    Received {
        /// Its bytes.
        chunk: Bytes,
        /// Its room in the [`Buffer`](crate::Buffer), until the last clone is dropped.
        room: Room,
    },
    /// The neighbour has the whole chunk that was sent under `tag`.
    Delivered {
        /// As given to [`Hop::send`](crate::Hop::send).
        tag: u64,
    },
    /// A chunk exceeds the limit negotiated with the neighbour and is returned.
    TooLarge {
        /// As given to [`Hop::send`](crate::Hop::send).
        tag: u64,
        /// Its first part.
        head: Bytes,
        /// Its second part.
        body: Bytes,
    },
    /// The path MTU to the neighbour has changed without a report of the driver: frames are lost
    /// because of their size, or no longer are.
    PathMtu {
        /// Bytes of a frame.
        size: usize,
    },
    /// Frames should be sent as ECN-capable from now on, or no longer; see
    /// [`PortRequest::SetEcn`](whimbrel_core::PortRequest::SetEcn).
    SetEcn {
        /// True for capable.
        capable: bool,
    },
    /// Somebody at the neighbour's address answers that it does not talk with this end. Said at most
    /// every ten seconds.
    Unwilling(Unwilling),
    /// An inbound peer could not prove its name, and has no session: its port is of no use.
    Impostor,
    /// The neighbour has stopped answering. Chunks stay queued; the hop keeps probing.
    Unresponsive,
    /// An unresponsive neighbour has answered; sending has resumed.
    Responsive,
}
