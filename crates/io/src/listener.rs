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
/// With no file descriptor left, accepting is tried again after this time.
const PAUSE: Duration = Duration::from_millis(100);

/// What is accepted.
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    pub(crate) label: String,
    /// What ports of those it accepts say they came by.
    pub(crate) number: u32,
    pub(crate) accepts: Accepts,
    max_connections: usize,
    /// Open connections that came from here.
    connections: usize,
    token: u64,
    paused_until: Option<Time>,
    counters: TransportCounters,
}

impl Listener {
    /// On a socket that listens and does not block.
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
            connections: 0,
            token,
            paused_until: None,
            counters,
        }
    }

    /// The next peer that waits, or `None`. Where no more can be accepted for now, waiting for it
    /// pauses.
    pub(crate) fn accept(&mut self, poller: &mut Poller, now: Time) -> Option<(Socket, SockAddr)> {
        self.counters.receive_calls += 1;
        match self.socket.accept().and_then(|(socket, address)| {
            socket.set_nonblocking(true)?;
            Ok((socket, address))
        }) {
            Ok(accepted) => Some(accepted),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // The peer left before it was its turn.
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

    /// Counts what became of an accepted stream.
    pub(crate) fn count(&mut self, taken: bool) {
        self.connections += usize::from(taken);
        *if taken {
            &mut self.counters.accepted
        } else {
            &mut self.counters.refused
        } += 1;
    }

    /// One of the connections is gone.
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
