//! The loop's state per file descriptor, and the frames that it passes down.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use whimbrel_core::{Machine, PortId, Time, Transmit};

use crate::counters::TransportSnapshot;
use crate::ethernet::EthernetEndpoint;
use crate::listener::Listener;
use crate::poller::{Poller, Ready};
use crate::side::MachineSide;
use crate::stream::StreamConnection;
use crate::tcp::Connecting;
use crate::tun::TunPort;
use crate::udp::{ReceiveBuffers, UdpEndpoint};
use crate::websocket::WebSocketConnection;

/// Room before the frames in the loop's transmit buffer for a length prefix: a frame and its prefix
/// then go to a stream in one piece, without a copy.
pub(crate) const PREFIX: usize = 4;

/// Names one transport of one loop. Ids are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl TransportId {
    pub(crate) fn token(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_token(token: u64) -> TransportId {
        TransportId {
            slot: token as u32,
            generation: (token >> 32) as u32,
        }
    }
}

impl fmt::Display for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transport {}.{}", self.slot, self.generation)
    }
}

/// An open listener on an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listening {
    /// Names the listener when it is closed.
    pub transport: TransportId,
    /// The address it listens on, with the port that the kernel chose.
    pub local: SocketAddr,
}

/// Frames to send. The buffer starts with [`PREFIX`] bytes of room. A transport that cannot send
/// everything may swap the buffer for one of its own.
#[derive(Debug)]
pub(crate) struct FramesToSend<'a> {
    pub(crate) transmit: Transmit,
    pub(crate) buffer: &'a mut Vec<u8>,
}

impl FramesToSend<'_> {
    pub(crate) fn frames_start(&self) -> usize {
        PREFIX
    }

    pub(crate) fn frames(&self) -> &[u8] {
        self.buffer.get(PREFIX..).unwrap_or_default()
    }

    /// Returns the bytes of each frame but the last, at least one.
    pub(crate) fn segment(&self) -> usize {
        self.transmit
            .segment_size
            .unwrap_or(self.transmit.size)
            .max(1)
    }

    pub(crate) fn frame_count(&self) -> u64 {
        self.frames().len().div_ceil(self.segment()).max(1) as u64
    }
}

/// Tells whether a transport continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Open,
    Ended,
}

/// One file descriptor of the loop.
#[derive(Debug)]
pub(crate) enum Transport {
    Udp(Box<UdpEndpoint>),
    Ethernet(Box<EthernetEndpoint>),
    Listener(Box<Listener>),
    Connecting(Box<Connecting>),
    Stream(Box<StreamConnection>),
    WebSocket(Box<WebSocketConnection>),
    Tun(Box<TunPort>),
}

/// State that the loop lends to a transport while serving it.
pub(crate) struct Shared<'a, M: Machine> {
    pub(crate) side: &'a mut MachineSide<M>,
    pub(crate) poller: &'a mut Poller,
    pub(crate) buffers: &'a mut ReceiveBuffers,
    pub(crate) now: Time,
}

impl Transport {
    /// Reads input and writes unsent output. Listeners and connecting sockets are served by the
    /// loop itself.
    pub(crate) fn serve<M: Machine>(&mut self, ready: Ready, shared: Shared<'_, M>) -> Progress {
        let Shared {
            side,
            poller,
            buffers,
            now,
        } = shared;
        // A hang-up is read as the end of the stream, after the bytes sent before it.
        let readable = ready.readable || ready.error;
        match self {
            Transport::Udp(endpoint) => {
                endpoint.serve(ready, side, poller, now, buffers);
                Progress::Open
            }
            Transport::Ethernet(endpoint) => {
                let written = if ready.writable {
                    endpoint.flush(side, poller, now)
                } else {
                    Progress::Open
                };
                if written == Progress::Open && readable {
                    endpoint.receive(side, poller, now, buffers.bytes())
                } else {
                    written
                }
            }
            Transport::Stream(connection) => {
                let read = if readable {
                    connection.receive(side, now)
                } else {
                    Progress::Open
                };
                if read == Progress::Open && ready.writable {
                    connection.flush(side, poller, now)
                } else {
                    read
                }
            }
            Transport::WebSocket(connection) => {
                let written = if ready.writable {
                    connection.flush(side, poller, now)
                } else {
                    Progress::Open
                };
                if written == Progress::Open && readable {
                    connection.receive(side, poller, now, buffers.bytes())
                } else {
                    written
                }
            }
            Transport::Tun(tun) => {
                if ready.writable {
                    tun.flush(side, poller, now);
                }
                if readable {
                    tun.receive(side, now)
                } else {
                    Progress::Open
                }
            }
            Transport::Listener(_) | Transport::Connecting(_) => Progress::Open,
        }
    }

    /// Sends the frames of one transmit, or keeps them until there is room or the round ends.
    pub(crate) fn send<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        out: FramesToSend<'_>,
    ) -> Progress {
        match self {
            Transport::Udp(endpoint) => endpoint.send(side, poller, now, out),
            Transport::Tun(tun) => tun.send(side, poller, now, out),
            Transport::Ethernet(endpoint) => return endpoint.send(side, poller, now, out),
            Transport::Stream(connection) => return connection.send(side, poller, now, out),
            Transport::WebSocket(connection) => return connection.send(side, poller, now, &out),
            Transport::Listener(_) | Transport::Connecting(_) => {}
        }
        Progress::Open
    }

    /// Returns true if output was gathered that [`Transport::push`] must write at the end of the
    /// round.
    pub(crate) fn gathers(&self) -> bool {
        match self {
            Transport::Stream(connection) => connection.has_unsent(),
            Transport::WebSocket(connection) => connection.has_unsent(),
            _ => false,
        }
    }

    pub(crate) fn push<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
    ) -> Progress {
        match self {
            Transport::Stream(connection) => connection.push(side, poller, now),
            Transport::WebSocket(connection) => connection.push(side, poller, now),
            _ => Progress::Open,
        }
    }

    /// Handles the deadline of [`Transport::next_deadline`].
    pub(crate) fn expire<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        buffers: &mut ReceiveBuffers,
    ) -> Progress {
        match self {
            Transport::Udp(endpoint) => endpoint.expire(side, now, buffers),
            Transport::Ethernet(endpoint) => endpoint.expire(side, now),
            Transport::Listener(listener) => listener.expire(poller, now),
            Transport::Stream(connection) => return connection.expire(now),
            Transport::WebSocket(connection) => return connection.expire(side, poller, now),
            Transport::Connecting(_) => return Progress::Ended,
            Transport::Tun(_) => {}
        }
        Progress::Open
    }

    pub(crate) fn close_port<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        port: PortId,
    ) -> Progress {
        match self {
            Transport::Udp(endpoint) if endpoint.is_group() => return Progress::Ended,
            Transport::Udp(endpoint) => endpoint.close_port(side, now, port),
            Transport::Ethernet(endpoint) => endpoint.close_port(side, now, port),
            Transport::Stream(connection) => return connection.close_port(side, poller, now),
            Transport::WebSocket(connection) => return connection.close_port(side, poller, now),
            Transport::Tun(_) => return Progress::Ended,
            Transport::Listener(_) | Transport::Connecting(_) => {}
        }
        Progress::Open
    }

    /// Returns its open ports.
    pub(crate) fn ports(&self) -> Vec<PortId> {
        match self {
            Transport::Udp(endpoint) => endpoint.ports().collect(),
            Transport::Ethernet(endpoint) => endpoint.ports().collect(),
            Transport::Stream(connection) => connection.port().into_iter().collect(),
            Transport::WebSocket(connection) => connection.port().into_iter().collect(),
            Transport::Tun(tun) => vec![tun.port()],
            Transport::Listener(_) | Transport::Connecting(_) => Vec::new(),
        }
    }

    /// Returns the token of the listener that accepted it.
    pub(crate) fn listener(&self) -> Option<u64> {
        match self {
            Transport::Stream(connection) => connection.origin.listener,
            Transport::WebSocket(connection) => connection.ends.listener,
            _ => None,
        }
    }

    /// Returns a lower bound of the time at which [`Transport::expire`] must be called, absent
    /// input.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Transport::Udp(endpoint) => endpoint.next_deadline(),
            Transport::Ethernet(endpoint) => endpoint.next_deadline(),
            Transport::Listener(listener) => listener.next_deadline(),
            Transport::Connecting(connecting) => connecting.next_deadline(),
            Transport::Stream(connection) => connection.next_deadline(),
            Transport::WebSocket(connection) => connection.next_deadline(),
            Transport::Tun(_) => None,
        }
    }

    /// Returns true while output waits for the kernel.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Transport::Udp(endpoint) => endpoint.has_unsent(),
            Transport::Ethernet(endpoint) => endpoint.has_unsent(),
            Transport::Listener(_) | Transport::Connecting(_) => false,
            Transport::Stream(connection) => connection.has_unsent(),
            Transport::WebSocket(connection) => connection.has_unsent(),
            Transport::Tun(tun) => tun.has_unsent(),
        }
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        match self {
            Transport::Udp(endpoint) => endpoint.snapshot(),
            Transport::Ethernet(endpoint) => endpoint.snapshot(),
            Transport::Listener(listener) => listener.snapshot(),
            Transport::Connecting(connecting) => connecting.snapshot(),
            Transport::Stream(connection) => connection.snapshot(),
            Transport::WebSocket(connection) => connection.snapshot(),
            Transport::Tun(tun) => tun.snapshot(),
        }
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transport::Udp(endpoint) => endpoint.as_fd(),
            Transport::Ethernet(endpoint) => endpoint.as_fd(),
            Transport::Listener(listener) => listener.as_fd(),
            Transport::Connecting(connecting) => connecting.as_fd(),
            Transport::Stream(connection) => connection.as_fd(),
            Transport::WebSocket(connection) => connection.as_fd(),
            Transport::Tun(tun) => tun.as_fd(),
        }
    }
}
