//! Sockets that accept connections: Unix, TCP and WebSocket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use socket2::{SockAddr, Socket};
use whimbrel_core::Time;

use crate::StreamLimits;
use crate::counters::{TransportCounters, TransportSnapshot};
use crate::local::SocketFile;
use crate::poller::Poller;
use crate::websocket::{OriginGate, WebSocketLimits};

/// Connections that may wait to be accepted.
pub(crate) const BACKLOG: i32 = 128;
/// The pause before the next attempt to accept when no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(100);

/// The kind of accepted connections.
#[derive(Debug)]
pub(crate) enum Accepts {
    Unix {
        file: SocketFile,
        limits: StreamLimits,
    },
    Tcp {
        local: SocketAddr,
        limits: StreamLimits,
    },
    WebSocket {
        local: SocketAddr,
        limits: WebSocketLimits,
        gate: Rc<OriginGate>,
    },
}

/// A socket that accepts connections.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    pub(crate) label: String,
    /// The listener number in the origin of accepted ports.
    pub(crate) number: u32,
    pub(crate) accepts: Accepts,
    max_connections: usize,
    /// See [`crate::UnixListenerConfig::idle_frames`].
    pub(crate) idle_frames: Option<u64>,
    /// Open connections that this listener accepted.
    connections: usize,
    token: u64,
    paused_until: Option<Time>,
    counters: TransportCounters,
}

impl Listener {
    /// Takes over a listening, non-blocking socket.
    pub(crate) fn new(
        socket: Socket,
        (label, number): (String, u32),
        accepts: Accepts,
        max_connections: usize,
        token: u64,
    ) -> Listener {
        let counters = TransportCounters::default();
        Listener {
            socket,
            label,
            number,
            accepts,
            max_connections,
            idle_frames: None,
            connections: 0,
            token,
            paused_until: None,
            counters,
        }
    }

    /// Returns the next waiting peer, or `None`. Pauses polling for new peers when no more can be
    /// accepted for now.
    pub(crate) fn accept(&mut self, poller: &mut Poller, now: Time) -> Option<(Socket, SockAddr)> {
        self.counters.receive_calls += 1;
        match self.socket.accept().and_then(|(socket, address)| {
            socket.set_nonblocking(true)?;
            Ok((socket, address))
        }) {
            Ok(accepted) => Some(accepted),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // The peer left before it was accepted.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => None,
            Err(error) => {
                self.counters.receive_errors += 1;
                tracing::warn!(listener = %self.local(), %error, "cannot accept a connection");
                self.paused_until = Some(now + PAUSE);
                poller.set_interest(&self.socket, self.token, false, false);
                None
            }
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.connections < self.max_connections
    }

    /// Counts whether an accepted stream was admitted.
    pub(crate) fn count(&mut self, taken: bool) {
        self.connections += usize::from(taken);
        *if taken {
            &mut self.counters.accepted
        } else {
            &mut self.counters.refused
        } += 1;
    }

    /// Counts a connection that is closed to make room for another one.
    pub(crate) fn count_evicted(&mut self) {
        self.counters.evicted += 1;
    }

    /// Counts a closed connection.
    pub(crate) fn left(&mut self) {
        self.connections = self.connections.saturating_sub(1);
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.paused_until
    }

    pub(crate) fn expire(&mut self, poller: &mut Poller, now: Time) {
        if self.paused_until.is_some_and(|until| now >= until) {
            self.paused_until = None;
            poller.set_interest(&self.socket, self.token, true, false);
        }
    }

    fn local(&self) -> String {
        match &self.accepts {
            Accepts::Unix { file, .. } => file.path.display().to_string(),
            Accepts::Tcp { local, .. } | Accepts::WebSocket { local, .. } => local.to_string(),
        }
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.label.clone(),
            kind: match self.accepts {
                Accepts::Unix { .. } => "unix-listener",
                Accepts::Tcp { .. } => "tcp-listener",
                Accepts::WebSocket { .. } => "websocket-listener",
            },
            local: self.local(),
            kernel_buffers: (0, 0),
            counters: self.counters,
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
