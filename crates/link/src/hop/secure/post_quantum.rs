//! Whether a node asks for hybrid exchanges.

use serde::{Deserialize, Serialize};

use super::handshake::{Call, HYBRID_CALL_LEN};

/// Whether the keys of a session follow from ML-KEM-512 beside X25519, so that a recording cannot be
/// read by who has a quantum computer later. Names are proven by Ed25519 alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostQuantum {
    /// Calls do not ask for it; a neighbour's calls that do are answered with it.
    #[default]
    Off,
    /// Calls ask for it, and an answer without it is accepted. An attacker that drops such calls can
    /// force a session without it.
    Offer,
    /// There are no sessions without it.
    Require,
}

impl PostQuantum {
    /// Octets of the longest message of a hybrid exchange.
    pub const LONGEST_MESSAGE: usize = HYBRID_CALL_LEN;

    /// Returns true if a node does not answer such a call.
    pub(super) fn refuses(self, call: &Call) -> bool {
        self == PostQuantum::Require && !call.is_hybrid()
    }
}
