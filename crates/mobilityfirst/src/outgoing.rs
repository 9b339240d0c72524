//! A chunk that is to leave, with what its node must know of it until then.

use std::collections::VecDeque;

use whimbrel_core::{PortId, Time};
use whimbrel_link::Room;

use crate::chunk::Chunk;
use crate::wire::{
    MAX_TOGETHER, Message, TOGETHER_FIELDS_LEN, Transport, TransportKind, UpperProtocol,
};

/// Bytes of messages that go in one chunk, with their fields: what one packet carries on nearly every link, so that
/// none waits for another that is still being sent.
const TOGETHER_BYTES: usize = 1_200;

/// The chunks of a queue that one chunk stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced {
    pub(crate) chunks: usize,
    pub(crate) bytes: u64,
}

impl Replaced {
    /// A chunk that goes alone.
    pub(crate) fn one(outgoing: &ChunkToSend) -> Replaced {
        Replaced {
            chunks: 1,
            bytes: outgoing.chunk.size() as u64,
        }
    }
}

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

    /// Returns the message of a program of this node that it carries, if others may go with it.
    fn lone_message(&self) -> Option<Message> {
        let is_own = self.from.is_none() && self.origin.is_none() && self.order.is_none();
        let is_message = self.chunk.header.upper == UpperProtocol::Transport
            && self.chunk.message.head.first() == Some(&(TransportKind::Message as u8));
        let is_short = self.chunk.size() < TOGETHER_BYTES;
        match (is_own && is_message && is_short).then(|| self.chunk.transport()) {
            Some(Ok(Transport::Message(message))) => Some(message),
            _ => None,
        }
    }

    /// Returns this message and those behind it in a queue in one chunk, as far as they go the same way. None is
    /// waited for.
    pub(crate) fn with_following(
        self,
        queue: &mut VecDeque<ChunkToSend>,
    ) -> (ChunkToSend, Replaced) {
        let mut replaced = Replaced::one(&self);
        let first = queue.front().and_then(|_| self.lone_message());
        let Some(first) = first else {
            return (self, replaced);
        };
        let mut bytes = TOGETHER_FIELDS_LEN + first.payload.len();
        let (mut all, mut room) = (vec![first], self.room.clone());
        while all.len() < MAX_TOGETHER
            && let Some(other) = queue.front()
            && other.chunk.header == self.chunk.header
            && let Some(message) = other.lone_message()
            && let Some(both) = room.joined(&other.room)
        {
            bytes += TOGETHER_FIELDS_LEN + message.payload.len();
            if bytes > TOGETHER_BYTES {
                break;
            }
            replaced.chunks += 1;
            replaced.bytes += other.chunk.size() as u64;
            (room, _) = (both, queue.pop_front());
            all.push(message);
        }
        if all.len() < 2 {
            return (self, replaced);
        }
        let chunk = Chunk::of_transport(self.chunk.header, &Transport::Messages(all));
        (ChunkToSend::originated(chunk, room), replaced)
    }
}
