//! Sockets of their own for known peers while strangers flood a listener.
//!
//! One socket has one queue: a flood fills it, and each of its datagrams costs the loop as much as
//! one of a neighbour. The kernel gives a datagram to the socket that is connected to its sender, if
//! there is one, before it looks for one that is bound to the port alone. So, during a flood, peers
//! at work get a connected socket each, a lane. Lanes and the listener's socket take turns, a batch
//! each. The listener's queue is short meanwhile: what is too much for it is lost in the kernel, and
//! a newcomer waits behind few. So does a peer without a lane.
//!
//! Lanes only receive, and whatever arrives by the listener's socket is handled as without them.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quinn_udp::UdpSocketState;
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use whimbrel_core::{PortId, Time};

use super::socket::{batching, canonical, for_socket, set_receive_buffer};
use crate::poller::Poller;

/// Strangers' datagrams in one [`WINDOW`] that count as a flood: 10,000 a second, some 4 % of a
/// processor.
const FLOOD: u64 = 1_000;
const WINDOW: Duration = Duration::from_millis(100);
/// A flood ends after this long with less than a tenth of that.
const CALM: Duration = Duration::from_secs(5);
/// Bound of the lanes, of which inbound peers may have half: the kernel looks through all sockets of
/// a port for each datagram.
const MAX_LANES: usize = 128;
/// A lane that has brought nothing for this long gives way to a peer at work.
const IDLE: Duration = Duration::from_secs(1);
/// Batches of a peer in a flood after which it counts as being at work. Without a gate, a forged
/// datagram makes its sender a peer.
const AT_WORK: u8 = 8;
/// Lanes that are read in one turn of the loop, which sends and looks at its deadlines in between.
const LANES_AT_ONCE: usize = 16;
/// Kernel receive buffer of a lane, bytes: at 1 Gbit/s, 16 ms of traffic. The kernel books twice as
/// much, so all lanes together hold 512 MiB at most.
const LANE_BUFFER: usize = 2 << 20;
/// That of the listener beside lanes: a hundred large datagrams, or some hundreds of small ones.
pub(super) const BUFFER_IN_FLOOD: usize = 256 << 10;

/// A connected socket.
pub(super) struct Lane {
    pub(super) socket: Socket,
    pub(super) state: UdpSocketState,
    is_caller: bool,
    worked_at: Time,
}

/// A peer that may get a lane.
pub(super) struct Candidate {
    pub(super) port: PortId,
    /// In the form for the listener's socket.
    pub(super) address: SocketAddr,
    /// The address of this machine that it sends to, if it is known: the kernel connects a socket
    /// that is bound to all addresses to the one that the routes choose.
    pub(super) called: Option<IpAddr>,
    /// It is an inbound peer.
    pub(super) is_caller: bool,
}

/// The lanes of one listener, and the measure of its strangers.
pub(super) struct Lanes {
    // Sockets that have something to read.
    ready: Option<Poller>,
    is_unwatched: bool,
    by_port: BTreeMap<PortId, Lane>,
    // Of peers without a lane, since the flood began.
    batches: BTreeMap<PortId, u8>,
    most: usize,
    // Where the next turn begins among the lanes that are ready.
    turn: usize,
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
            batches: BTreeMap::new(),
            most: MAX_LANES,
            turn: 0,
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

    pub(super) fn is_flooded(&self) -> bool {
        self.flooded_at.is_some()
    }

    /// Ends a flood that is over. Returns true if there was one: the lanes must be emptied and closed.
    pub(super) fn end_flood(&mut self, now: Time) -> bool {
        let ended = self.flooded_at.is_some_and(|at| now.since(at) >= CALM);
        if ended {
            self.flooded_at = None;
            self.most = MAX_LANES;
            self.batches.clear();
        }
        ended
    }

    /// Notes a batch of a peer in a flood. Returns true if it should get a lane, and there is room
    /// for one: a lane that is idle has been closed for it if need be.
    pub(super) fn note_batch(&mut self, now: Time, port: PortId, is_caller: bool) -> bool {
        if let Some(lane) = self.by_port.get_mut(&port) {
            lane.worked_at = now;
            return false;
        }
        let batches = self.batches.entry(port).or_default();
        *batches = batches.saturating_add(1);
        *batches >= AT_WORK && self.make_room(now, is_caller)
    }

    fn make_room(&mut self, now: Time, is_caller: bool) -> bool {
        let callers = self.by_port.values().filter(|lane| lane.is_caller).count();
        let is_full = self.by_port.len() >= self.most;
        let has_share = is_caller && callers >= self.most / 2;
        if !is_full && !has_share {
            return true;
        }
        let rivals = self.by_port.iter();
        let rivals = rivals.filter(|(_, lane)| lane.is_caller || !has_share);
        match rivals.min_by_key(|(_, lane)| lane.worked_at) {
            Some((port, lane)) if now.since(lane.worked_at) >= IDLE => {
                self.close(*port);
                true
            }
            _ => false,
        }
    }

    /// Opens a lane. Returns true if it is the only one.
    pub(super) fn open(
        &mut self,
        now: Time,
        peer: &Candidate,
        listener: &Socket,
        enable_errors: impl FnOnce(&UdpSocketState, &Socket) -> io::Result<()>,
    ) -> io::Result<bool> {
        let opened = self.try_open(now, peer, listener, enable_errors);
        if let Err(error) = &opened {
            let number = error.raw_os_error().map(Errno::from_raw_os_error);
            let wanting = [
                Errno::MFILE,
                Errno::NFILE,
                Errno::NOMEM,
                Errno::NOBUFS,
                Errno::NOSPC,
            ];
            if number.is_some_and(|error| wanting.contains(&error)) {
                // There is no room for more until the flood has ended.
                self.most = self.by_port.len();
            }
            // It is tried again after as much work.
            self.batches.remove(&peer.port);
        }
        opened.map(|()| self.by_port.len() == 1)
    }

    fn try_open(
        &mut self,
        now: Time,
        peer: &Candidate,
        listener: &Socket,
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
        poller.add(&socket, u64::from(peer.port.0))?;
        let lane = Lane {
            socket,
            state,
            is_caller: peer.is_caller,
            worked_at: now,
        };
        self.by_port.insert(peer.port, lane);
        self.batches.remove(&peer.port);
        Ok(())
    }

    /// Returns what is ready whenever a lane is, once: to be watched for the rest of its life.
    pub(super) fn unwatched(&mut self) -> Option<&Poller> {
        let is_due = core::mem::take(&mut self.is_unwatched);
        self.ready.as_ref().filter(|_| is_due)
    }

    /// Closes all lanes, which cannot be watched. No more are opened until the flood has ended, and
    /// the next attempt begins anew.
    pub(super) fn give_up(&mut self) {
        self.ready = None;
        self.by_port.clear();
        self.most = 0;
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

    /// Returns lanes that have something to read, and whether it is an error: as many as are read in
    /// one turn, others in the next.
    pub(super) fn ready(&mut self) -> Vec<(PortId, bool)> {
        let Some(poller) = self.ready.as_mut().filter(|_| !self.by_port.is_empty()) else {
            return Vec::new();
        };
        if poller.wait(Some(Duration::ZERO)).is_err() {
            return Vec::new();
        }
        let all: Vec<(PortId, bool)> = (0..)
            .map_while(|index| poller.ready(index))
            .map(|ready| (PortId(ready.token as u32), ready.error))
            .collect();
        let begin = self.turn.checked_rem(all.len()).unwrap_or_default();
        self.turn = begin + LANES_AT_ONCE;
        let turns = all.iter().cycle().skip(begin);
        turns.take(all.len().min(LANES_AT_ONCE)).copied().collect()
    }

    /// Returns a time before which no flood ends.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.flooded_at.map(|at| at + CALM)
    }
}

/// Returns a socket that is bound as `listener` is, or to the address that the peer sends to, and
/// connected.
///
/// Two sockets share a port only if both allow it when the second one is bound. Lanes always do, for
/// the sake of the next lane; the listener only while one is bound, so that no other program can take
/// part.
fn connected(listener: &Socket, peer: &Candidate) -> io::Result<Socket> {
    let address = peer.address;
    let mut bound = listener.local_addr()?;
    if let (Some(own), Some(called)) = (bound.as_socket(), peer.called)
        && own.ip().is_unspecified()
    {
        let called = canonical(SocketAddr::new(called, own.port()));
        bound = SockAddr::from(for_socket(called, address.is_ipv6()));
    }
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(listener.only_v6()?)?;
    }
    set_receive_buffer(&socket, LANE_BUFFER);
    listener.set_reuse_address(true)?;
    let joined = socket
        .set_reuse_address(true)
        .and_then(|()| socket.bind(&bound))
        .and_then(|()| socket.connect(&address.into()));
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
        assert!(!lanes.is_flooded());
        now += WINDOW;
        assert!(!lanes.note_strangers(now, FLOOD - 1));
        assert!(lanes.note_strangers(now, 1), "it begins");
        assert!(!lanes.note_strangers(now, FLOOD), "once");
        assert!(lanes.is_flooded());
        assert!(!lanes.end_flood(now + CALM - MS));
        // A tenth of the limit keeps it up.
        now += CALM - MS;
        lanes.note_strangers(now, FLOOD / 10);
        assert!(!lanes.end_flood(now + MS));
        assert_eq!(lanes.next_deadline(), Some(now + CALM));
        assert!(lanes.end_flood(now + CALM));
        assert_eq!(lanes.next_deadline(), None);
    }

    #[test]
    fn lanes_go_to_peers_at_work_and_idle_ones_give_way() {
        let listener = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        listener.bind(&any.into()).unwrap();
        let mut lanes = Lanes {
            most: 4,
            ..Lanes::default()
        };
        let begin = Time::from_secs(1);
        let mut enter = |now: Time, port: u32, is_caller: bool| {
            let port = PortId(port);
            if (0..AT_WORK).any(|_| lanes.note_batch(now, port, is_caller)) {
                let peer = Candidate {
                    port,
                    address: SocketAddr::new(any.ip(), 1_000 + port.0 as u16),
                    called: None,
                    is_caller,
                };
                lanes.open(now, &peer, &listener, |_, _| Ok(())).unwrap();
            }
            lanes.ports().iter().map(|port| port.0).collect::<Vec<_>>()
        };
        assert_eq!(enter(begin, 1, true), [1]);
        assert_eq!(enter(begin, 2, true), [1, 2]);
        assert_eq!(enter(begin, 3, true), [1, 2], "half are for neighbours");
        assert_eq!(enter(begin, 11, false), [1, 2, 11]);
        assert_eq!(enter(begin, 12, false), [1, 2, 11, 12]);
        assert_eq!(enter(begin, 13, false), [1, 2, 11, 12], "all are at work");
        // The first one is still at work, the second one is not.
        assert_eq!(enter(begin + IDLE, 1, true), [1, 2, 11, 12]);
        assert_eq!(enter(begin + IDLE, 4, true), [1, 4, 11, 12]);
        let now = begin + IDLE;
        assert_eq!(enter(now, 13, false), [1, 4, 12, 13]);
    }
}
