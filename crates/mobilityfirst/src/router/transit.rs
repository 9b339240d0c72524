//! The point where a router sees content in transit: for caches, delegation and measurements.
//!
//! "Before forwarding the data chunk, the immobile access router (acting as a transport proxy) will
//! save a copy of the chunk in order to respond to potential future NACKs" [MFTP §3.3].

use whimbrel_core::Time;

use crate::chunk::Chunk;
use crate::wire::{Data, Request, Transport, TransportKind, UpperProtocol};

/// A message about content that a router is about to forward, or that is for the router itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passing {
    /// A request for content from any holder.
    Request(Request),
    /// A receiver misses chunks, whether or not they are known to be lost.
    Nack(Request),
    /// A chunk of a content; its payload shares the memory that it arrived in.
    Data(Data),
}

/// The observer's decision on a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is forwarded.
    Pass,
    /// It ends here, and these chunks are sent. They count as messages that the router originated:
    /// beyond their bound they are dropped.
    Answer(Vec<Chunk>),
}

/// Sees Requests, NACKs and Data before a router forwards them.
///
/// An observer bounds its own memory: a payload that it holds keeps the chunk's memory, but no room
/// in the back-pressure buffer.
pub trait Observer: Send {
    /// Called for a message in `chunk`, whose header has its sender and destination.
    fn observe(&mut self, now: Time, chunk: &Chunk, passing: Passing) -> Verdict;
}

impl Passing {
    /// Classifies `chunk` for an observer; `None` if it is not of interest.
    pub(super) fn of(chunk: &Chunk) -> Option<Passing> {
        const SEEN: [TransportKind; 4] = [
            TransportKind::Data,
            TransportKind::Request,
            TransportKind::Nack,
            TransportKind::Resend,
        ];
        let kind = *chunk.message.head.first()?;
        let is_seen = SEEN.iter().any(|seen| *seen as u8 == kind);
        if chunk.header.upper != UpperProtocol::Transport || !is_seen {
            return None;
        }
        match chunk.transport().ok()? {
            Transport::Data(data) => Some(Passing::Data(data)),
            Transport::Request(request) => Some(Passing::Request(request)),
            Transport::Nack(request) | Transport::Resend(request) => Some(Passing::Nack(request)),
            _ => None,
        }
    }
}
