//! Unix stream sockets: programs on this machine that attach, and the socket file on which they do.

mod connect;
mod socket_file;

use std::path::PathBuf;

use crate::StreamLimits;

pub(crate) use connect::{connect, enlarge_buffers};
pub(crate) use socket_file::SocketFile;

/// Where to listen for local programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListenerConfig {
    /// The name that its connections get in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// The socket file. A file left by a program that is gone is replaced, anything else is left
    /// alone.
    pub path: PathBuf,
    /// Permissions of the socket file: who may connect. Default 0o600, the user only; 0o666 lets
    /// every user.
    pub mode: u32,
    /// If set, folders above the socket file that do not exist are made, with these permissions
    /// (less the umask).
    pub folder_mode: Option<u32>,
    /// Most connections at a time; more are closed at once. Default 64. A connection holds at most
    /// two frames of the largest size, so this bounds memory: `max_connections x (max_frame +
    /// max_unsent)`.
    pub max_connections: usize,
    /// Framing and limits of each connection.
    pub limits: StreamLimits,
}

impl UnixListenerConfig {
    /// Listens on `path` with the defaults.
    pub fn new(label: impl Into<String>, path: impl Into<PathBuf>) -> UnixListenerConfig {
        UnixListenerConfig {
            label: label.into(),
            path: path.into(),
            mode: 0o600,
            folder_mode: None,
            max_connections: 64,
            limits: StreamLimits::default(),
        }
    }
}
