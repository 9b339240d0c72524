//! What the hops tell the node.

use bytes::Bytes;
use whimbrel_core::{Guid, PortId};
use whimbrel_link::Room;

use super::{Carried, ChunkToSend};
use crate::chunk::Chunk;
use crate::handed::HandedOver;
use crate::wire::{Flow, Pace};

/// What may come of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// All of it.
    Free,
    /// This number of bytes, besides what is left of earlier ones; 0: nothing.
    Octets(u64),
    /// What a neighbour can send when it has nothing else to send: it is stored.
    Spare,
}

/// An event of the hops.
#[derive(Debug)]
pub enum LinkEvent {
    /// A neighbour is up, for the first time or after it or this node restarted.
    Up {
        /// Its port.
        port: PortId,
        /// The GUID that it claims.
        neighbour: Guid,
        /// Another neighbour, or another run of its process, than this port had before: what it was
        /// told is forgotten.
        new_run: bool,
    },
    /// A neighbour has restarted: the chunks that it had accepted and not forwarded are lost.
    Restarted(PortId, Vec<HandedOver>),
    /// A whole chunk has arrived.
    Received {
        /// The port.
        port: PortId,
        /// Its bytes.
        bytes: Bytes,
        /// Its room in the buffer, freed when the node drops it.
        room: Room,
    },
    /// The neighbour has the whole chunk.
    Delivered(Carried, Option<Chunk>),
    /// The chunk exceeds the neighbour's limit.
    TooLarge(PortId, ChunkToSend),
    /// An inbound peer has come back on another port, in the same run of its process: its address has
    /// changed. Who it is, its greeting alone says; that it has left the former port, the silence
    /// there.
    Moved {
        /// Where it was.
        from: PortId,
        /// Where it is.
        to: PortId,
    },
    /// The neighbour on this port, from which a flow comes, is to be told what may come of it.
    Credit {
        /// Where it comes from.
        port: PortId,
        /// The flow.
        flow: Flow,
        /// What may come.
        grant: Grant,
    },
    /// The neighbour on this port, from which a flow comes, is to be told its pace.
    Pace {
        /// Where it comes from.
        port: PortId,
        /// Its pace.
        pace: Pace,
    },
    /// The neighbour has become unresponsive.
    Unresponsive(PortId),
    /// The neighbour responds again.
    Responsive(PortId),
    /// Chunks of a divided flow have no next hop that responds any more.
    Stranded(Vec<ChunkToSend>),
    /// The port is closed; these chunks were not delivered.
    Down(PortId, Vec<ChunkToSend>),
}

impl LinkEvent {
    /// Returns true if a neighbour is up, silent, gone or back.
    pub(crate) fn changes_neighbours(&self) -> bool {
        use LinkEvent::{Down, Moved, Responsive, Unresponsive, Up};
        matches!(
            self,
            Up { .. } | Moved { .. } | Unresponsive(_) | Responsive(_) | Down(..)
        )
    }
}
