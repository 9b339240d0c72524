//! The place where a router sees content pass: for caches, delegation and measurements.
//!
//! "Before forwarding the data chunk, the immobile access router (acting as a transport proxy) will
//! save a copy of the chunk in order to respond to potential future NACKs" [MFTP §3.3].

use whimbrel_core::Time;

use crate::chunk::Chunk;
use crate::wire::{Data, Request, Transport, TransportKind, UpperProtocol};

/// A message about content that a router is about to forward, or that is for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Somebody wants a content of whoever holds it.
    Request(Request),
    /// A receiver misses chunks, whether they were lost for certain or not.
    Nack(Request),
    /// A chunk of a content; its payload shares the memory that it arrived in.
    Data(Data),
}

/// What becomes of a message that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on its way.
    Pass,
    /// It ends here, and these go on theirs. They count as the router's own messages: beyond their
    /// bound they are dropped.
    Answer(Vec<Chunk>),
}

/// Sees Requests, NACKs and Data before a router forwards them.
///
/// What an observer keeps is its own to bound: a payload that it holds keeps the chunk's memory, but
/// no room in the back-pressure buffer.
pub trait Observer: Send {
    /// A message has come in `chunk`; its header says from whom and to whom.
    fn observe(&mut self, now: Time, chunk: &Chunk, passing: Passing) -> Verdict;
}

impl Passing {
    /// What `chunk` is to an observer, if anything.
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
