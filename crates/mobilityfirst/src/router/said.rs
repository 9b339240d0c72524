//! What a router itself says: notices, answers, control messages. Their memory is bounded.

use super::effects::Effects;
use super::store::ENTRY_BYTES;
use crate::charge::Pool;
use crate::chunk::Chunk;
use crate::links::Outgoing;
use crate::room::Room;
use crate::wire::UpperProtocol;

/// Bytes of messages of its own that a router has on their way, one more or less.
pub(super) const MAX_SAID: u64 = 8 << 20;

/// Messages of a router's own that are on their way.
#[derive(Debug, Default)]
pub(super) struct Said(Pool);

impl Said {
    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.amount()
    }

    /// Counts a message until it has left; `None` if too many are on their way: those who would get
    /// it have timers. Whoever makes the router answer echoes, or send notices, cannot keep it from
    /// letting hosts attach.
    pub(super) fn admit(&self, chunk: Chunk, effects: &mut Effects) -> Option<Outgoing> {
        let limit = match chunk.header.upper {
            UpperProtocol::Echo => MAX_SAID / 2,
            UpperProtocol::Transport => MAX_SAID / 4 * 3,
            UpperProtocol::Control => MAX_SAID,
        };
        if self.0.amount() >= limit {
            effects.drop("own-message");
            return None;
        }
        let charge = self.0.charge(chunk.size() as u64 + ENTRY_BYTES);
        Some(Outgoing {
            chunk,
            room: Room::default(),
            charge,
        })
    }
}
