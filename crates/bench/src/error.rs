//! Why a measurement could not be made.

use std::io;

use whimbrel_lab::LabError;
use whimbrel_node::ndn::client::ClientError;

/// Why a part of the bench has no number. A target that is missed is none of these.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The lab could not be built, or a program in it failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A program of the NDN part cannot run.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A program of one side did not do its part.
    #[error("{what}; it said: {said}")]
    Side {
        /// Which program, and what it did or did not do.
        what: String,
        /// The end of what it wrote to its standard error.
        said: String,
    },
    /// What arrived is not what was sent.
    #[error("what {side} fetched differs from the file that was served; the numbers mean nothing")]
    Corrupted {
        /// Who moved it.
        side: String,
    },
    /// A transfer ended early or was not finished in time.
    #[error("{side} moved {bytes} bytes and then nothing more within {patience_s} s")]
    Unfinished {
        /// Who was to move it.
        side: String,
        /// Bytes that arrived.
        bytes: u64,
        /// How long it was waited for, in seconds.
        patience_s: u64,
    },
    /// A transfer in the simulator failed, or gave no figure where one is needed.
    #[error("in the simulator, {0}")]
    Simulated(String),
    /// The program was built without what the part needs.
    #[error(
        "this program was built without quinn; build it with `--features peers` to compare with it"
    )]
    NoPeers,
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done.
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl BenchError {
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
        let action = action.into();
        move |source| BenchError::System { action, source }
    }
}
