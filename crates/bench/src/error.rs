//! Errors of measurements.

use std::io;

use whimbrel_lab::LabError;
use whimbrel_node::ndn::client::ClientError;

/// Why a part of the bench has no number. A missed target is not an error.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The lab could not be built, or a program in it failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A program of the NDN part cannot run.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A program of one side failed.
    #[error("{what}; it said: {said}")]
    Side {
        /// The program, and its failure.
        what: String,
        /// The end of its standard error.
        said: String,
    },
    /// The received file differs from the served one.
    #[error("the file that {side} fetched differs from the served one; its numbers are invalid")]
    Corrupted {
        /// The side that moved it.
        side: String,
    },
    /// A transfer ended early or was not finished in time.
    #[error("{side} moved {bytes} bytes and then stalled for {patience_s} s")]
    Unfinished {
        /// The side that should move it.
        side: String,
        /// Bytes that arrived.
        bytes: u64,
        /// The time limit in seconds.
        patience_s: u64,
    },
    /// A transfer in the simulator failed, or lacks a required number.
    #[error("in the simulator, {0}")]
    Simulated(String),
    /// The program was built without a requirement of the part.
    #[error(
        "this program was built without quinn; build it with `--features peers` to compare with it"
    )]
    NoPeers,
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action.
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl BenchError {
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> BenchError {
        let action = action.into();
        move |source| BenchError::System { action, source }
    }
}
