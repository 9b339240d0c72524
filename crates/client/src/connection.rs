//! A program's connection to its host or router (`docs/protocols/local.md`): by a socket, or by
//! values if the host is in the same process. Blocking, one request or event at a time.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use whimbrel_mobilityfirst::local::{LocalEvent, LocalRequest};

use crate::error::LocalError;
use crate::socket::{SocketClient, connect_socket};
use crate::way::{HostWay, RequestWay};

/// A connection to a host or router.
#[derive(Debug)]
pub struct LocalClient(Box<dyn HostWay>);

impl LocalClient {
    /// Attaches to the daemon that listens on `path`.
    pub fn connect(path: &Path) -> Result<LocalClient, LocalError> {
        LocalClient::over(connect_socket(path)?)
    }

    /// Uses a connected stream. [`LocalClient::receive`] detects a daemon of another version.
    pub fn over(stream: UnixStream) -> Result<LocalClient, LocalError> {
        SocketClient::over(stream).map(LocalClient::by)
    }

    /// Uses another way, as to a host in this process.
    pub fn by(way: impl HostWay + 'static) -> LocalClient {
        LocalClient(Box::new(way))
    }

    /// Sends one request.
    pub fn send(&mut self, request: &LocalRequest) -> Result<(), LocalError> {
        self.0.send_all(vec![request.clone()])
    }

    /// Sends several requests. A host in this process takes them together.
    pub fn send_all(&mut self, requests: Vec<LocalRequest>) -> Result<(), LocalError> {
        self.0.send_all(requests)
    }

    /// Returns a second way for requests, if there is one: to a host in this process.
    pub fn second(&self) -> Option<Box<dyn RequestWay>> {
        self.0.second()
    }

    /// Returns the next event, or `None` if none has come within `patience`.
    pub fn receive(&mut self, patience: Duration) -> Result<Option<LocalEvent>, LocalError> {
        self.0.receive(patience)
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
