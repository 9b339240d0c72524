//! The contract between a protocol and whatever drives it: the simulator or the real event loop.
//!
//! A driver works in rounds:
//!
//! 1. hand in one or more inputs: [`Machine::handle_port`], [`Machine::handle_frame`],
//!    [`Machine::handle_timeout`];
//! 2. drain [`Machine::poll_transmit`], [`Machine::poll_event`] and [`Machine::poll_port_request`]
//!    until each answers `None`;
//! 3. read [`Machine::poll_timeout`] and wait until then or until the next input.
//!
//! Several frames may be handed in before one drain: batches are where speed comes from.
//! `now` never goes back from one call to the next.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use crate::{PortId, Time};

/// A protocol, or a whole node composed of protocols, as its driver sees it.
pub trait Machine {
    /// What it tells the program around it (never the driver).
    type Event;

    /// A port came up, went down or changed.
    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent);

    /// One frame arrived on `port`. Bad frames are counted and dropped inside; they are no error to
    /// the driver.
    fn handle_frame(&mut self, now: Time, port: PortId, frame: &[u8]);

    /// Frames that arrived together on `port`, none empty: the same as one after the other. For
    /// machines that gain by knowing all of them before the first is worked on.
    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.handle_frame(now, port, frame);
        }
    }

    /// A deadline stated by [`Machine::poll_timeout`] has passed. Calling it early or twice does no
    /// harm.
    fn handle_timeout(&mut self, now: Time);

    /// Appends the next frames to send to `buffer` and says what they are, or `None` if there is
    /// nothing to send now. At most `max_segments` frames, all to one port, all of `segment_size`
    /// bytes but the last: what the kernel's segmentation offload takes in one call.
    ///
    /// A port that has been reported [`PortEvent::Blocked`] gets nothing until
    /// [`PortEvent::Writable`].
    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit>;

    /// The next thing to tell the program around it.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// The next wish about ports.
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    /// When [`Machine::handle_timeout`] wants to be called, and why; `None` if only input can
    /// change anything.
    fn poll_timeout(&self) -> Option<Deadline>;
}

/// What [`Machine::poll_transmit`] wrote to the driver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where all of it goes.
    pub port: PortId,
    /// Bytes appended to the buffer.
    pub size: usize,
    /// If set, the bytes are several frames of this size, the last one possibly shorter. If not,
    /// one frame; on a stream of self-delimiting packets, one or more of them, whole.
    pub segment_size: Option<usize>,
}

impl Transmit {
    /// The frames within `written`, the bytes that this transmit appended.
    pub fn frames<'a>(&self, written: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        written.chunks(self.segment_size.unwrap_or(self.size).max(1))
    }
}

/// When to call [`Machine::handle_timeout`], and why: the reason goes to traces, never to logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The time to wait for.
    pub at: Time,
    /// What is due, in a few words.
    pub reason: &'static str,
}

impl Deadline {
    /// A deadline at `at` because of `reason`.
    pub const fn new(at: Time, reason: &'static str) -> Deadline {
        Deadline { at, reason }
    }

    /// The earlier of two optional deadlines; the first one where they are equal.
    pub fn earlier(a: Option<Deadline>, b: Option<Deadline>) -> Option<Deadline> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }

    /// How long from `now` until it is due; zero if it is.
    pub fn wait(&self, now: Time) -> Duration {
        self.at.since(now)
    }
}

/// What a driver reports of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// It exists from now on.
    Up(PortInfo),
    /// It is gone: the local program left, the socket failed for good, or the peer was idle for too
    /// long.
    Down,
    /// Its largest frame is now this many bytes (path MTU found or changed).
    Mtu(usize),
    /// Nothing more can be written to it for now.
    Blocked,
    /// It can be written to again.
    Writable,
}

/// What is known of a port when it comes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The name that the configuration gave to the link, the listener or the local socket.
    pub label: String,
    /// What is at the other end.
    pub kind: PortKind,
    /// Largest frame, in bytes.
    pub mtu: usize,
    /// The other end as a person would write it (an address and port number), for logs and tables
    /// only.
    pub peer: String,
    /// What carries the frames, and the addresses of the two ends for whoever must write them in a
    /// form of its own.
    pub medium: Medium,
}

/// What carries the frames of a port, and the addresses of its two ends.
///
/// A listener's port ([`PortKind::Caller`], or `accepted`) has the address that was listened on as
/// its local one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Medium {
    /// Nothing that has addresses: a simulated link, a test.
    #[default]
    Unaddressed,
    /// Datagrams to and from one peer. Where the socket is bound to all addresses, `local` is the
    /// one that the kernel's routes choose towards the peer, or that the peer called.
    Udp {
        /// This end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// Datagrams to and from everybody in a multicast group on one interface.
    UdpMulticast {
        /// Name of the interface.
        interface: String,
        /// This end.
        local: SocketAddr,
        /// The group.
        group: SocketAddr,
    },
    /// A TCP connection.
    Tcp {
        /// This end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
    },
    /// A WebSocket connection (not encrypted): one binary message is one frame.
    WebSocket {
        /// This end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// The origin of the web page at the other end, such as `https://app.example`; `None` for a
        /// program that is no browser.
        origin: Option<String>,
    },
    /// A Unix stream socket.
    Unix {
        /// The socket file; `None` for a stream that was handed over.
        path: Option<PathBuf>,
        /// This process' file descriptor of the connection.
        descriptor: i32,
        /// True if the other program called this one.
        accepted: bool,
    },
    /// Ethernet frames to and from one station, or a group of them: the group bit (lowest bit of
    /// the first octet) of `remote` tells. A frame shorter than 46 octets arrives with padding
    /// after it.
    Ethernet {
        /// Name of the interface.
        interface: String,
        /// The interface's address.
        local: [u8; 6],
        /// The peer's address, or the group's.
        remote: [u8; 6],
    },
    /// A network device of this machine, whose packets are the frames.
    Tun {
        /// Name of the device.
        interface: String,
    },
}

impl Medium {
    /// True if more than one peer may be at the other end.
    pub fn is_shared(&self) -> bool {
        match self {
            Medium::UdpMulticast { .. } => true,
            Medium::Ethernet {
                remote: [first, ..],
                ..
            } => first & 1 == 1,
            _ => false,
        }
    }

    /// True for a stream of bytes. Where its framing is self-delimiting (as configured at its
    /// opening), one [`Transmit`] may carry several whole packets of any size with `segment_size:
    /// None`.
    pub fn is_stream(&self) -> bool {
        matches!(self, Medium::Tcp { .. } | Medium::Unix { .. })
    }
}

/// What is at the other end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A configured neighbour: frames may be lost, reordered, duplicated and corrupted.
    Neighbour,
    /// A peer nobody configured, which called on a listener; otherwise as a neighbour.
    Caller,
    /// A program on this machine: frames arrive whole, once and in order.
    Local,
}

/// What a machine wishes of its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRequest {
    /// Close the port and forget it; the driver answers with [`PortEvent::Down`].
    Close(PortId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transmit_splits_into_its_frames() {
        let transmit = Transmit {
            port: PortId(1),
            size: 7,
            segment_size: Some(3),
        };
        let frames: Vec<&[u8]> = transmit.frames(b"abcdefg").collect();
        assert_eq!(frames, [&b"abc"[..], b"def", b"g"]);
        let whole = Transmit {
            port: PortId(1),
            size: 7,
            segment_size: None,
        };
        assert_eq!(whole.frames(b"abcdefg").count(), 1);
    }

    #[test]
    fn groups_are_shared_and_single_peers_are_not() {
        let group = Medium::Ethernet {
            interface: "e".into(),
            local: [2, 0, 0, 0, 0, 1],
            remote: [1, 0, 0x5e, 0, 0x17, 0xaa],
        };
        assert!(group.is_shared() && !group.is_stream());
        let station = Medium::Ethernet {
            interface: "e".into(),
            local: [2, 0, 0, 0, 0, 1],
            remote: [2, 0, 0, 0, 0, 2],
        };
        assert!(!station.is_shared());
        assert!(
            Medium::Unix {
                path: None,
                descriptor: 3,
                accepted: false
            }
            .is_stream()
        );
    }

    #[test]
    fn the_earlier_deadline_wins_and_ties_keep_the_first() {
        let early = Deadline::new(Time::from_millis(1), "a");
        let late = Deadline::new(Time::from_millis(2), "b");
        assert_eq!(Deadline::earlier(Some(late), Some(early)), Some(early));
        assert_eq!(Deadline::earlier(None, Some(late)), Some(late));
        let tie = Deadline::new(early.at, "c");
        assert_eq!(Deadline::earlier(Some(early), Some(tie)), Some(early));
    }
}
