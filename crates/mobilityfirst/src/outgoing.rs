//! A chunk that is to leave, with what its node must know of it until then.

use whimbrel_core::{PortId, Time};
use whimbrel_link::Room;

use crate::chunk::Chunk;

/// A chunk to send.
#[derive(Clone, Debug)]
pub struct ChunkToSend {
    /// The chunk.
    pub chunk: Chunk,
    /// Its room in the node's memory: in the back-pressure buffer, in the storage, or among the messages
    /// that the node originates; none for a chunk that a host reads from a program.
    pub room: Room,
    /// The port that it came in on and where its flow can be held back; none for a chunk that was
    /// stored or that the node itself originates.
    pub from: Option<PortId>,
    /// The port that it came in on, also after it was stored; none for one that the node itself
    /// originates.
    pub origin: Option<PortId>,
    /// Its place in its flow, if that is divided here.
    pub order: Option<u64>,
    /// When it is to be stored here no longer; none for one that has not been.
    pub until: Option<Time>,
}

impl ChunkToSend {
    /// A chunk that this node originates, or a copy of one that it has stored.
    pub(crate) fn originated(chunk: Chunk, room: Room) -> ChunkToSend {
        ChunkToSend {
            chunk,
            room,
            from: None,
            origin: None,
            order: None,
            until: None,
        }
    }
}
