//! Sockets of their own for known peers while strangers flood a listener.
//!
//! One socket has one queue: a flood fills it, and each of its datagrams costs the loop as much as
//! one of a neighbour. The kernel gives a datagram to the socket that is connected to its sender, if
//! there is one, before it looks for one that is bound to the port alone. So, during a flood, peers
//! at work get a connected socket each, a lane. Lanes and the listener's socket take turns, a batch
//! each. The listener's queue is short meanwhile: what is too much for it is lost in the kernel, and
//! a newcomer waits behind few.
//!
//! Lanes only receive. Whatever arrives by the listener's socket is handled as without them, so that
//! a lane that is missing, or is connected to an address that its peer has left, costs nothing but
//! its advantage.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use quinn_udp::UdpSocketState;
use socket2::{Domain, Protocol, Socket, Type};
use whimbrel_core::{PortId, Time};

use super::socket::{batching, set_receive_buffer};
use crate::poller::Poller;

/// Strangers' datagrams in one [`WINDOW`] that count as a flood: 10,000 a second, some 4 % of a
/// processor.
const FLOOD: u64 = 1_000;
const WINDOW: Duration = Duration::from_millis(100);
/// A flood ends after this long with less than a tenth of that.
const CALM: Duration = Duration::from_secs(5);
/// Bound of the lanes, of which neighbours of this node may have all and inbound peers half: the
/// kernel looks through all sockets of a port for each datagram.
const MAX_LANES: usize = 128;
/// Batches of a peer in a flood after which it counts as being at work. Without a gate, a forged
/// datagram makes its sender a peer.
const AT_WORK: u8 = 8;
/// Kernel receive buffer of a lane, bytes: at 1 Gbit/s, 16 ms of traffic.
const RECEIVE_BUFFER: usize = 2 << 20;
/// That of the listener in a flood: a hundred large datagrams, or some hundreds of small ones.
pub(super) const BUFFER_IN_FLOOD: usize = 256 << 10;

/// A connected socket.
pub(super) struct Lane {
    pub(super) socket: Socket,
    pub(super) state: UdpSocketState,
}

/// The lanes of one listener, and the measure of its strangers.
pub(super) struct Lanes {
    // Sockets that have something to read.
    ready: Option<Poller>,
    is_unwatched: bool,
    by_port: BTreeMap<PortId, Lane>,
    most: usize,
    // Of peers without a lane, since the flood began.
    batches: BTreeMap<PortId, u8>,
    window: Option<Time>,
    strangers: u64,
    // The last time that strangers were too many.
    flooded_at: Option<Time>,
}

impl Default for Lanes {
    fn default() -> Lanes {
        Lanes {
            ready: None,
            is_unwatched: false,
            by_port: BTreeMap::new(),
            most: MAX_LANES,
            batches: BTreeMap::new(),
            window: None,
            strangers: 0,
            flooded_at: None,
        }
    }
}

impl std::fmt::Debug for Lanes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ports: Vec<&PortId> = self.by_port.keys().collect();
        write!(f, "Lanes {ports:?}")
    }
}

impl Lanes {
    /// Counts datagrams of strangers. Returns true if a flood begins with them.
    pub(super) fn note_strangers(&mut self, now: Time, count: u64) -> bool {
        if self.window.is_none_or(|since| now.since(since) >= WINDOW) {
            self.window = Some(now);
            self.strangers = 0;
        }
        self.strangers += count;
        let limit = match self.flooded_at {
            None => FLOOD,
            Some(_) => FLOOD / 10,
        };
        self.strangers >= limit && self.flooded_at.replace(now).is_none()
    }

    /// Returns true if a flood has ended. The lanes must be emptied and closed then.
    pub(super) fn has_ended(&mut self, now: Time) -> bool {
        let ended = self.flooded_at.is_some_and(|at| now.since(at) >= CALM);
        if ended {
            self.flooded_at = None;
            self.most = MAX_LANES;
            self.batches.clear();
        }
        ended
    }

    /// Notes a batch of a peer. Returns true if it should get a lane.
    pub(super) fn lacks(&mut self, port: PortId, is_caller: bool) -> bool {
        let most = if is_caller { self.most / 2 } else { self.most };
        if self.flooded_at.is_none()
            || self.by_port.len() >= most
            || self.by_port.contains_key(&port)
        {
            return false;
        }
        let batches = self.batches.entry(port).or_default();
        *batches = batches.saturating_add(1);
        *batches >= AT_WORK
    }

    /// Opens a lane to `peer`, which is in the form for `listener`. After a failure, as for want of
    /// file descriptors, no more are tried until the flood has ended.
    pub(super) fn open(
        &mut self,
        port: PortId,
        listener: &Socket,
        peer: SocketAddr,
        enable_errors: impl FnOnce(&UdpSocketState, &Socket) -> io::Result<()>,
    ) -> io::Result<()> {
        let opened = self.try_open(port, listener, peer, enable_errors);
        if opened.is_err() {
            self.most = self.by_port.len();
        }
        opened
    }

    fn try_open(
        &mut self,
        port: PortId,
        listener: &Socket,
        peer: SocketAddr,
        enable_errors: impl FnOnce(&UdpSocketState, &Socket) -> io::Result<()>,
    ) -> io::Result<()> {
        let socket = connected(listener, peer)?;
        let state = batching(&socket)?;
        enable_errors(&state, &socket)?;
        let poller = match &mut self.ready {
            Some(poller) => poller,
            none => {
                self.is_unwatched = true;
                none.insert(Poller::new()?)
            }
        };
        poller.add(&socket, u64::from(port.0))?;
        self.by_port.insert(port, Lane { socket, state });
        Ok(())
    }

    /// Returns what is ready whenever a lane is, once: to be watched for the rest of its life.
    pub(super) fn unwatched(&mut self) -> Option<&Poller> {
        let is_due = core::mem::take(&mut self.is_unwatched);
        self.ready.as_ref().filter(|_| is_due)
    }

    pub(super) fn close(&mut self, port: PortId) {
        self.batches.remove(&port);
        if let Some(lane) = self.by_port.remove(&port)
            && let Some(poller) = &mut self.ready
        {
            poller.remove(&lane.socket);
        }
    }

    pub(super) fn get(&self, port: PortId) -> Option<&Lane> {
        self.by_port.get(&port)
    }

    pub(super) fn has_any(&self) -> bool {
        !self.by_port.is_empty()
    }

    pub(super) fn ports(&self) -> Vec<PortId> {
        self.by_port.keys().copied().collect()
    }

    /// Returns the lanes that have something to read, and whether it is an error.
    pub(super) fn ready(&mut self) -> Vec<(PortId, bool)> {
        let Some(poller) = self.ready.as_mut().filter(|_| !self.by_port.is_empty()) else {
            return Vec::new();
        };
        if poller.wait(Some(Duration::ZERO)).is_err() {
            return Vec::new();
        }
        (0..)
            .map_while(|index| poller.ready(index))
            .map(|ready| (PortId(ready.token as u32), ready.error))
            .collect()
    }

    /// Returns a time before which no flood ends.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.flooded_at.map(|at| at + CALM)
    }
}

/// Returns a socket that is bound as `listener` is, and connected.
///
/// Two sockets share a port only if both allow it when the second one is bound. Lanes always do, for
/// the sake of the next lane; the listener only while one is bound, so that no other program can take
/// part.
fn connected(listener: &Socket, peer: SocketAddr) -> io::Result<Socket> {
    let bound = listener.local_addr()?;
    let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
    if peer.is_ipv6() {
        socket.set_only_v6(listener.only_v6()?)?;
    }
    set_receive_buffer(&socket, RECEIVE_BUFFER);
    listener.set_reuse_address(true)?;
    let joined = socket
        .set_reuse_address(true)
        .and_then(|()| socket.bind(&bound))
        .and_then(|()| socket.connect(&peer.into()));
    listener.set_reuse_address(false)?;
    joined.map(|()| socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_flood_begins_with_many_strangers_in_a_window_and_ends_after_a_calm() {
        let mut lanes = Lanes::default();
        let mut now = Time::ZERO;
        // Just below the limit, for ever.
        for _ in 0..1_000 {
            now += MS;
            assert!(!lanes.note_strangers(now, FLOOD / 100 - 1));
        }
        assert!(!(0..100).any(|_| lanes.lacks(PortId(1), false)));
        now += WINDOW;
        assert!(!lanes.note_strangers(now, FLOOD - 1));
        assert!(lanes.note_strangers(now, 1), "it begins");
        assert!(!lanes.note_strangers(now, FLOOD), "once");
        assert!(!(1..AT_WORK).any(|_| lanes.lacks(PortId(1), true)));
        assert!(lanes.lacks(PortId(1), true), "it is at work");
        assert!(!lanes.has_ended(now + CALM - MS));
        // A tenth of the limit keeps it up.
        now += CALM - MS;
        lanes.note_strangers(now, FLOOD / 10);
        assert!(!lanes.has_ended(now + MS));
        assert_eq!(lanes.next_deadline(), Some(now + CALM));
        assert!(lanes.has_ended(now + CALM));
        assert!(!(0..100).any(|_| lanes.lacks(PortId(1), true)));
        assert_eq!(lanes.next_deadline(), None);
    }
}
