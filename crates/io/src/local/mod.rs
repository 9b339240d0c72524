//! Unix stream sockets: local programs that attach, and the socket file where they attach.

mod connect;
mod socket_file;

use std::path::PathBuf;

use crate::StreamLimits;

pub(crate) use connect::{connect, enlarge_buffers};
pub use socket_file::SocketFile;

/// The configuration of a listener for local programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListenerConfig {
    /// The name of its connections in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// The socket file. A stale socket file of a program that has ended is replaced; any other file
    /// is left alone.
    pub path: PathBuf,
    /// Permissions of the socket file: the users that may connect. Default 0o600, its owner only;
    /// 0o666 admits every user.
    pub mode: u32,
    /// If set, the group of the socket file, by number. The process must be a member of it, or may
    /// change owners of files.
    pub group: Option<u32>,
    /// If set, missing folders above the socket file are created with these permissions (less the
    /// umask).
    pub folder_mode: Option<u32>,
    /// Bound of the connections at a time; further ones are closed at once. Default 64. This bounds
    /// memory, because a connection holds at most two frames of the largest size: `max_connections
    /// x (max_frame + max_unsent)`.
    pub max_connections: usize,
    /// If set, a connection that has sent at most so many frames is not at work yet: where there is
    /// no room for another one, the one of these that is silent for longest, for a second at least,
    /// is closed for it. Default: none is.
    pub idle_frames: Option<u64>,
    /// Framing and limits of each connection.
    pub limits: StreamLimits,
}

impl UnixListenerConfig {
    /// Returns a listener on `path` with the defaults.
    pub fn new(label: impl Into<String>, path: impl Into<PathBuf>) -> UnixListenerConfig {
        UnixListenerConfig {
            label: label.into(),
            path: path.into(),
            mode: 0o600,
            group: None,
            folder_mode: None,
            max_connections: 64,
            idle_frames: None,
            limits: StreamLimits::default(),
        }
    }
}
