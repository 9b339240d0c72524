//! What the loop holds per file descriptor, and how frames are handed down to it.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};

use whimbrel_core::{Time, Transmit};

use crate::counters::TransportSnapshot;
use crate::local::{LocalConnection, LocalListener};
use crate::tun::TunPort;
use crate::udp::UdpEndpoint;

/// Room before the frames in the loop's transmit buffer, for a length prefix: a frame and its prefix then go to a
/// stream in one piece, without a copy.
pub(crate) const PREFIX: usize = 4;

/// Names one transport of one loop; never used again for another.
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
        TransportId { slot: token as u32, generation: (token >> 32) as u32 }
    }
}

impl fmt::Display for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transport {}.{}", self.slot, self.generation)
    }
}

/// Frames that a machine wants sent. The buffer starts with [`PREFIX`] bytes of room; a transport that cannot send
/// all may swap the buffer for one of its own.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) transmit: Transmit,
    pub(crate) buffer: &'a mut Vec<u8>,
}

impl Outgoing<'_> {
    pub(crate) fn frames_start(&self) -> usize {
        PREFIX
    }

    pub(crate) fn frames(&self) -> &[u8] {
        self.buffer.get(PREFIX..).unwrap_or_default()
    }

    /// Bytes of each frame but the last; at least one.
    pub(crate) fn segment(&self) -> usize {
        self.transmit.segment_size.unwrap_or(self.transmit.size).max(1)
    }

    pub(crate) fn frame_count(&self) -> u64 {
        self.frames().len().div_ceil(self.segment()).max(1) as u64
    }
}

/// Whether a transport lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Open,
    Ended,
}

/// One file descriptor of the loop.
#[derive(Debug)]
pub(crate) enum Transport {
    Udp(Box<UdpEndpoint>),
    Listener(Box<LocalListener>),
    Connection(Box<LocalConnection>),
    Tun(Box<TunPort>),
}

impl Transport {
    /// When [`crate::EventLoop`] has to look after it without input; a lower bound.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match self {
            Transport::Udp(endpoint) => endpoint.next_deadline(),
            Transport::Listener(listener) => listener.next_deadline(),
            Transport::Connection(connection) => connection.next_deadline(),
            Transport::Tun(_) => None,
        }
    }

    /// True while output waits for the kernel.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Transport::Udp(endpoint) => endpoint.has_unsent(),
            Transport::Listener(_) => false,
            Transport::Connection(connection) => connection.has_unsent(),
            Transport::Tun(tun) => tun.has_unsent(),
        }
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        match self {
            Transport::Udp(endpoint) => endpoint.snapshot(),
            Transport::Listener(listener) => listener.snapshot(),
            Transport::Connection(connection) => connection.snapshot(),
            Transport::Tun(tun) => tun.snapshot(),
        }
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transport::Udp(endpoint) => endpoint.as_fd(),
            Transport::Listener(listener) => listener.as_fd(),
            Transport::Connection(connection) => connection.as_fd(),
            Transport::Tun(tun) => tun.as_fd(),
        }
    }
}
