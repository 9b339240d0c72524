//! A program's connection to its host or router (`docs/protocols/local.md`): by a socket, or by
//! values if the host is in the same process.

mod inner;
mod socket;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use whimbrel_content::ChunkSize;
use whimbrel_keychain::ownership::ForeignPath;
use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest, VersionMismatch};

use crate::place::check_own;
pub(crate) use inner::{Events, InnerClient};
use socket::SocketClient;

/// Time in which a daemon must read what is written to it; afterwards it counts as gone.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// Returns the size of the chunk that a host asks a program for.
pub(crate) fn requested_size(chunk_log2: u8) -> Result<ChunkSize, LocalError> {
    ChunkSize::from_code(chunk_log2)
        .ok_or_else(|| LocalError::Protocol(format!("a chunk size of 2^{chunk_log2} bytes")))
}

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

/// Connects to the socket of a daemon of this machine. Refuses one that another user could have put
/// there.
pub fn connect_socket(path: &Path) -> Result<UnixStream, LocalError> {
    check_own(path)?;
    UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::ConnectionRefused
        | io::ErrorKind::NotADirectory => LocalError::Nobody(path.to_owned()),
        io::ErrorKind::PermissionDenied => LocalError::NotPermitted(path.to_owned()),
        _ => LocalError::Io(error),
    })
}

/// A connection to a host or router.
#[derive(Debug)]
pub struct LocalClient(Way);

#[derive(Debug)]
enum Way {
    Socket(SocketClient),
    Inner(InnerClient),
}

impl LocalClient {
    /// Attaches to the daemon that listens on `path`.
    pub fn connect(path: &Path) -> Result<LocalClient, LocalError> {
        SocketClient::connect(path)
            .map(Way::Socket)
            .map(LocalClient)
    }

    /// Uses a connected stream. [`LocalClient::receive`] detects a daemon of another version.
    pub fn over(stream: UnixStream) -> Result<LocalClient, LocalError> {
        SocketClient::over(stream).map(Way::Socket).map(LocalClient)
    }

    /// Uses a host in this process.
    pub(crate) fn inner(client: InnerClient) -> LocalClient {
        LocalClient(Way::Inner(client))
    }

    /// Sends one request.
    pub fn send(&mut self, request: &LocalRequest) -> Result<(), LocalError> {
        match &mut self.0 {
            Way::Socket(client) => client.send(request),
            Way::Inner(client) => client.send_all(vec![request.clone()]),
        }
    }

    /// Sends several requests. A host in this process takes them together.
    pub fn send_all(&mut self, requests: Vec<LocalRequest>) -> Result<(), LocalError> {
        match &mut self.0 {
            Way::Socket(client) => requests.iter().try_for_each(|it| client.send(it)),
            Way::Inner(client) => client.send_all(requests),
        }
    }

    /// Returns the next event, or `None` if none has come within `patience`.
    pub fn receive(&mut self, patience: Duration) -> Result<Option<LocalEvent>, LocalError> {
        match &mut self.0 {
            Way::Socket(client) => client.receive(patience),
            Way::Inner(client) => client.receive(patience),
        }
    }
}

/// The way to a host: a socket file, to which a program can return, or a host in its own process.
#[derive(Debug)]
pub enum Attachment {
    /// A daemon's socket.
    Socket(PathBuf),
    /// A connection that cannot be made again; gone once it is used.
    Once(Option<LocalClient>),
}

impl Attachment {
    /// Connects.
    pub fn connect(&mut self) -> Result<LocalClient, LocalError> {
        match self {
            Attachment::Socket(path) => LocalClient::connect(path),
            Attachment::Once(client) => client.take().ok_or(LocalError::Closed),
        }
    }

    /// Returns true if a new connection may succeed after the daemon has gone.
    pub fn can_return(&self) -> bool {
        matches!(self, Attachment::Socket(_))
    }
}
