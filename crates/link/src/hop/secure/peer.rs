//! What a session knows of the neighbour.

use whimbrel_core::Guid;

use super::super::config::{MAX_CHUNK, MAX_MTU, MIN_MTU};
use super::handshake::Parameters;

/// The neighbour's description of itself, and the name that it has proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hop) struct Peer {
    pub(in crate::hop) guid: Guid,
    pub(in crate::hop) incarnation: u64,
    pub(in crate::hop) mtu: usize,
    pub(in crate::hop) chunk_limit: usize,
    pub(in crate::hop) max_chunks: usize,
    pub(in crate::hop) memory: u64,
    pub(in crate::hop) reports_marks: bool,
}

impl Peer {
    pub(super) fn of(guid: Guid, parameters: &Parameters) -> Peer {
        Peer {
            guid,
            incarnation: parameters.incarnation,
            mtu: (parameters.mtu as usize).clamp(MIN_MTU, MAX_MTU),
            chunk_limit: (parameters.chunk_limit as usize).clamp(1, MAX_CHUNK),
            max_chunks: usize::from(parameters.max_chunks),
            memory: u64::from(parameters.memory),
            reports_marks: parameters.reports_marks,
        }
    }
}

/// What a neighbour's message has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hop) enum Greeting {
    /// The neighbour is known, and may have other limits.
    Known,
    /// The neighbour is new; `restarted` if another incarnation of it was known.
    New {
        restarted: bool,
        first_hop_id: u32,
        window: u32,
        /// This end's first id, if it has said so before it knew the session.
        own_first_id: Option<u32>,
    },
}
