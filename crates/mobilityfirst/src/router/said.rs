//! Messages that a router originates: notices, answers, control messages. Their memory is bounded.

use super::effects::Effects;
use crate::chunk::Chunk;
use crate::links::ChunkToSend;
use crate::wire::UpperProtocol;
use whimbrel_link::Pool;

/// Maximum of bytes of pending messages that the router originated, exceeded by at most one
/// message.
pub(super) const MAX_SAID: u64 = 8 << 20;

/// The size of a pending message beside its bytes: its header and its place in a queue.
const MESSAGE_BYTES: u64 = 1024;

/// The pending messages that the router originated.
#[derive(Debug, Default)]
pub(super) struct Said(Pool);

impl Said {
    /// Where they count.
    pub(super) fn pool(&self) -> Pool {
        self.0.clone()
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Counts a message until it has been sent; `None` if too many are pending: the receivers have
    /// timers. The limits per kind keep floods of echoes or notices from preventing hosts'
    /// attachments.
    pub(super) fn admit(&self, chunk: Chunk, effects: &mut Effects) -> Option<ChunkToSend> {
        let limit = match chunk.header.upper {
            UpperProtocol::Echo => MAX_SAID / 2,
            UpperProtocol::Transport => MAX_SAID / 4 * 3,
            UpperProtocol::Control => MAX_SAID,
        };
        if self.0.bytes() >= limit {
            effects.drop("own-message");
            return None;
        }
        let room = self.0.hold(chunk.size() as u64 + MESSAGE_BYTES);
        Some(ChunkToSend::originated(chunk, room))
    }
}
