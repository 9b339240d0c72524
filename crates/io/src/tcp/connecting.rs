//! A TCP connection that the peer has not answered yet.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use socket2::Socket;
use whimbrel_core::{PortOrigin, Time};

use super::socket::new_socket;
use crate::counters::{TransportCounters, TransportSnapshot};
use crate::udp::canonical;
use crate::websocket::WebSocketLimits;
use crate::{IoError, StreamLimits};

/// The use of the connection.
#[derive(Clone, Debug)]
pub(crate) enum Becomes {
    Stream(StreamLimits),
    /// A WebSocket to the resource of this URI.
    WebSocket {
        uri: String,
        limits: WebSocketLimits,
    },
}

/// The outcome of connecting.
#[derive(Debug)]
pub(crate) enum Arrival {
    NotYet,
    Connected { local: SocketAddr },
    Failed(IoError),
}

/// A TCP connection that is being opened.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(crate) socket: Socket,
    pub(crate) label: String,
    /// The origin of its port.
    pub(crate) origin: PortOrigin,
    pub(crate) address: SocketAddr,
    pub(crate) becomes: Becomes,
    deadline: Time,
    timeout: Duration,
    counters: TransportCounters,
}

impl Connecting {
    pub(crate) fn start(
        (label, origin): (String, PortOrigin),
        address: SocketAddr,
        becomes: Becomes,
        now: Time,
        timeout: Duration,
    ) -> Result<Connecting, IoError> {
        let address = canonical(address);
        let failed = |source| IoError::ConnectFailed {
            label: label.clone(),
            address,
            source,
        };
        let socket = new_socket(address).map_err(failed)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                Err(failed(error))
            }
            _ => Ok(Connecting {
                socket,
                label,
                origin,
                address,
                becomes,
                deadline: now + timeout,
                timeout,
                counters: TransportCounters {
                    send_calls: 1,
                    ..TransportCounters::default()
                },
            }),
        }
    }

    /// Returns the outcome. Must be called when the socket has become writable or failed.
    pub(crate) fn arrival(&self) -> Arrival {
        let outcome = self.socket.take_error().and_then(|error| match error {
            Some(error) => Err(error),
            None => self
                .socket
                .peer_addr()
                .and_then(|_| self.socket.local_addr()),
        });
        match outcome {
            Ok(local) => match local.as_socket() {
                Some(local) => Arrival::Connected {
                    local: canonical(local),
                },
                None => Arrival::NotYet,
            },
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Arrival::NotYet,
            Err(source) => Arrival::Failed(IoError::ConnectFailed {
                label: self.label.clone(),
                address: self.address,
                source,
            }),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        Some(self.deadline)
    }

    /// Returns the error to report after the deadline.
    pub(crate) fn timed_out(&mut self) -> IoError {
        self.counters.timed_out += 1;
        let seconds = self.timeout.as_secs_f64();
        IoError::ConnectTimedOut {
            label: self.label.clone(),
            address: self.address,
            seconds,
        }
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.label.clone(),
            kind: "connecting",
            local: self.address.to_string(),
            kernel_buffers: (0, 0),
            counters: self.counters,
        }
    }
}

impl AsFd for Connecting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
