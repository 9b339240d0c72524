//! Why a daemon cannot be used.

use std::io;
use std::path::PathBuf;

use whimbrel_keychain::ownership::ForeignPath;
use whimbrel_mobilityfirst::local::VersionMismatch;

/// The reason why a daemon cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// No socket, or no program that listens on it.
    #[error("no daemon answers on {}", .0.display())]
    Nobody(PathBuf),
    /// The file permissions forbid it.
    #[error(
        "no permission to use the socket {}: its owner may, and the group that the daemon's `socket_group` names",
        .0.display()
    )]
    NotPermitted(PathBuf),
    /// Another user could listen there in the daemon's stead.
    #[error("the socket is not used: {0}")]
    Foreign(#[from] ForeignPath),
    /// The daemon has ended, or has closed the connection.
    #[error("the daemon has closed the connection")]
    Closed,
    /// A frame is not one that a daemon sends.
    #[error("the daemon sent something that this program does not understand: {0}")]
    Protocol(String),
    /// The daemon speaks another version of the protocol.
    #[error("the daemon cannot be used: {0}")]
    Version(VersionMismatch),
    /// Any other failure.
    #[error("the connection to the daemon failed: {0}")]
    Io(io::Error),
}
