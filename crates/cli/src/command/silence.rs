//! Daemons that do not answer.

use whimbrel_node::local_client::LocalError;

/// Why a daemon tells nothing of itself.
pub(super) enum Silence {
    Cannot(LocalError),
    /// It takes too long.
    Mute,
}

impl From<LocalError> for Silence {
    fn from(error: LocalError) -> Silence {
        Silence::Cannot(error)
    }
}
