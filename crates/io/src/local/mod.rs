//! Local programs: Unix stream sockets that carry frames with a length prefix (u32, big-endian, the length of the
//! frame without the prefix). Empty frames are dropped and counted.

mod connection;
mod listener;
mod reader;

use std::path::PathBuf;

use crate::transport::PREFIX;

pub(crate) use connection::{LocalConnection, Origin, connect};
pub(crate) use listener::LocalListener;

/// Default limit of a frame: the largest chunk (4 MiB) with room for its headers.
pub const DEFAULT_MAX_FRAME: usize = (4 << 20) + (64 << 10);

/// Where to listen for local programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixListenerConfig {
    /// The name that its connections get in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// The socket file. A file left by a program that is gone is replaced, anything else is left alone.
    pub path: PathBuf,
    /// Permissions of the socket file: who may connect. Default 0o600, the user only.
    pub mode: u32,
    /// Most connections at a time; more are closed at once. Default 64. A connection holds at most two frames of
    /// the largest size, so this bounds memory: `max_connections x (max_frame + max_unsent)`.
    pub max_connections: usize,
    /// Limits of each connection.
    pub limits: LocalLimits,
}

impl UnixListenerConfig {
    /// Listens on `path` with the defaults.
    pub fn new(label: impl Into<String>, path: impl Into<PathBuf>) -> UnixListenerConfig {
        UnixListenerConfig {
            label: label.into(),
            path: path.into(),
            mode: 0o600,
            max_connections: 64,
            limits: LocalLimits::default(),
        }
    }
}

/// Limits of one local connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLimits {
    /// Largest frame, bytes: the port's MTU. A peer that announces more is disconnected.
    pub max_frame: usize,
    /// Bytes that may wait for a peer that does not read. The port is blocked from the first waiting byte on, so a
    /// machine that heeds this has one transmit waiting at most; one that does not is cut off here, for a stream
    /// with a hole is of no use.
    pub max_unsent: usize,
}

impl Default for LocalLimits {
    fn default() -> Self {
        LocalLimits { max_frame: DEFAULT_MAX_FRAME, max_unsent: DEFAULT_MAX_FRAME + PREFIX }
    }
}
