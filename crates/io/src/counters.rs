//! Counters, and the snapshot that shows them.
//!
//! Frames are counted as machines see them; one system call may carry many. Counters never
//! decrease.

use serde::Serialize;

/// Frames of one port that were dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// Larger than the port's MTU when handed to the driver.
    pub too_large: u64,
    /// Handed to the driver while the port was blocked and its buffer was full.
    pub blocked: u64,
    /// Too long for the path by the kernel's answer (EMSGSIZE); the MTU was lowered.
    pub path_too_narrow: u64,
    /// No program listens at the peer (ECONNREFUSED).
    pub refused: u64,
    /// No route, no such host, or the network is down (ENETUNREACH, EHOSTUNREACH, ENETDOWN, ...).
    pub unreachable: u64,
    /// A firewall on this machine forbids it (EPERM, EACCES).
    pub not_permitted: u64,
    /// The kernel had no buffer left (ENOBUFS, ENOMEM).
    pub no_buffers: u64,
    /// Any other error from the kernel.
    pub other: u64,
    /// Received, but empty.
    pub empty: u64,
}

impl Drops {
    /// Returns the sum over all reasons.
    pub fn total(&self) -> u64 {
        self.too_large
            + self.blocked
            + self.path_too_narrow
            + self.refused
            + self.unreachable
            + self.not_permitted
            + self.no_buffers
            + self.other
            + self.empty
    }

    pub(crate) fn count(&mut self, reason: DropReason, frames: u64) {
        *match reason {
            DropReason::TooLarge => &mut self.too_large,
            DropReason::Blocked => &mut self.blocked,
            DropReason::PathTooNarrow => &mut self.path_too_narrow,
            DropReason::Refused => &mut self.refused,
            DropReason::Unreachable => &mut self.unreachable,
            DropReason::NotPermitted => &mut self.not_permitted,
            DropReason::NoBuffers => &mut self.no_buffers,
            DropReason::Other => &mut self.other,
            DropReason::Empty => &mut self.empty,
        } += frames;
    }

    fn add(&mut self, other: &Drops) {
        self.too_large += other.too_large;
        self.blocked += other.blocked;
        self.path_too_narrow += other.path_too_narrow;
        self.refused += other.refused;
        self.unreachable += other.unreachable;
        self.not_permitted += other.not_permitted;
        self.no_buffers += other.no_buffers;
        self.other += other.other;
        self.empty += other.empty;
    }
}

/// One of the reasons in [`Drops`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropReason {
    TooLarge,
    Blocked,
    PathTooNarrow,
    Refused,
    Unreachable,
    NotPermitted,
    NoBuffers,
    Other,
    Empty,
}

impl DropReason {
    /// Returns the reason to count for a failed send or receive.
    pub(crate) fn of(error: &std::io::Error) -> DropReason {
        use rustix::io::Errno;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::MSGSIZE) => DropReason::PathTooNarrow,
            Some(Errno::CONNREFUSED) => DropReason::Refused,
            Some(
                Errno::NETUNREACH
                | Errno::HOSTUNREACH
                | Errno::NETDOWN
                | Errno::HOSTDOWN
                | Errno::NODEV
                | Errno::ADDRNOTAVAIL
                | Errno::NONET,
            ) => DropReason::Unreachable,
            Some(Errno::PERM | Errno::ACCESS) => DropReason::NotPermitted,
            Some(Errno::NOBUFS | Errno::NOMEM) => DropReason::NoBuffers,
            _ => DropReason::Other,
        }
    }
}

/// Traffic of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCounters {
    /// Frames handed to the machine.
    pub received_frames: u64,
    /// Their bytes, without headers of the carrier.
    pub received_bytes: u64,
    /// Frames that the kernel accepted.
    pub sent_frames: u64,
    /// Their bytes, without headers of the carrier.
    pub sent_bytes: u64,
    /// Times that the port became blocked.
    pub blocked_times: u64,
    /// Frames that were dropped.
    pub drops: Drops,
}

impl PortCounters {
    pub(crate) fn add(&mut self, other: &PortCounters) {
        self.received_frames += other.received_frames;
        self.received_bytes += other.received_bytes;
        self.sent_frames += other.sent_frames;
        self.sent_bytes += other.sent_bytes;
        self.blocked_times += other.blocked_times;
        self.drops.add(&other.drops);
    }
}

/// Work of one transport (a datagram socket, a listener, a connection, a TUN device).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransportCounters {
    /// System calls that received (or accepted), successful or not.
    pub receive_calls: u64,
    /// System calls that sent, successful or not.
    pub send_calls: u64,
    /// Sends that the kernel could not accept at once.
    pub would_block: u64,
    /// Errors while receiving, and errors reported by ICMP. None of them closes the transport.
    pub receive_errors: u64,
    /// Times that segmentation offload failed and frames were sent one by one instead.
    pub offload_failures: u64,
    /// Datagrams from unknown addresses on a socket that admits no inbound peers, or whose gate has
    /// not admitted them.
    pub strangers: u64,
    /// Datagrams that the kernel dropped in floods because they could be no frame, by an estimate from
    /// those that pass as a sample. They are not among the `strangers`.
    pub filtered: u64,
    /// Sockets opened for peers at work while strangers flooded theirs.
    pub lanes_opened: u64,
    /// Ethernet frames that end before the packet in them does.
    pub damaged: u64,
    /// Inbound peers (datagrams) or connections (streams) that were admitted.
    pub accepted: u64,
    /// Inbound peers closed after the idle time.
    pub expired: u64,
    /// Inbound peers closed to make room for new ones.
    pub evicted: u64,
    /// Inbound peers or connections refused because the table was full.
    pub refused: u64,
    /// Connections closed because the peer announced a frame beyond the limit.
    pub oversize_closed: u64,
    /// Connections closed because the peer violated the framing (a bad TLV type, a WebSocket
    /// error).
    pub malformed_closed: u64,
    /// Connections closed because the peer sent a TLV block of a type that the stream does not
    /// carry: an HTTP request to a port for packets, for example.
    pub foreign_closed: u64,
    /// WebSocket handshakes refused because the page's origin is not allowed.
    pub origins_refused: u64,
    /// Connections closed because the peer did not answer in time (connecting, WebSocket handshake
    /// and ping).
    pub timed_out: u64,
    /// Messages ignored because their kind carries no frames (WebSocket text).
    pub ignored: u64,
    /// Connections closed because the machine kept sending to a blocked port, beyond the bound.
    pub overflow_closed: u64,
    /// Connections that ended in the middle of a frame.
    pub truncated: u64,
    /// Times that an idle connection released the memory of large frames.
    pub memory_returns: u64,
}

impl TransportCounters {
    pub(crate) fn add(&mut self, other: &TransportCounters) {
        self.receive_calls += other.receive_calls;
        self.send_calls += other.send_calls;
        self.would_block += other.would_block;
        self.receive_errors += other.receive_errors;
        self.offload_failures += other.offload_failures;
        self.strangers += other.strangers;
        self.filtered += other.filtered;
        self.lanes_opened += other.lanes_opened;
        self.damaged += other.damaged;
        self.accepted += other.accepted;
        self.expired += other.expired;
        self.evicted += other.evicted;
        self.refused += other.refused;
        self.oversize_closed += other.oversize_closed;
        self.malformed_closed += other.malformed_closed;
        self.foreign_closed += other.foreign_closed;
        self.origins_refused += other.origins_refused;
        self.timed_out += other.timed_out;
        self.ignored += other.ignored;
        self.overflow_closed += other.overflow_closed;
        self.truncated += other.truncated;
        self.memory_returns += other.memory_returns;
    }
}

/// Work of the loop itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LoopCounters {
    /// Rounds: wait, read, drain, write.
    pub rounds: u64,
    /// System calls of waiting (`epoll_pwait`, `epoll_pwait2`, `ppoll`).
    pub wait_calls: u64,
    /// Other system calls of the loop itself: interest changes and wake-ups.
    pub control_calls: u64,
    /// Deadlines handed to the machine.
    pub timeouts: u64,
    /// Past deadlines that the machine left unchanged; each costs a pause of a millisecond.
    pub stalled_deadlines: u64,
    /// Transmits taken from the machine.
    pub transmits: u64,
    /// Transmits to a closed port.
    pub transmits_to_nowhere: u64,
    /// Events handed to the program.
    pub events: u64,
    /// Tasks posted by other threads that were run.
    pub posted: u64,
}

/// One port of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortSnapshot {
    /// [`whimbrel_core::PortId`].
    pub port: u32,
    /// Name of the link, listener or socket.
    pub label: String,
    /// `neighbour`, `caller` or `local`.
    pub kind: &'static str,
    /// The other end.
    pub peer: String,
    /// Largest frame, bytes.
    pub mtu: usize,
    /// True while it is blocked.
    pub blocked: bool,
    /// Its traffic.
    pub counters: PortCounters,
}

/// One transport of a [`Snapshot`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TransportSnapshot {
    /// Name of the link, listener or socket.
    pub label: String,
    /// `udp`, `udp-multicast`, `unix-listener`, `unix`, `tcp-listener`, `tcp`,
    /// `websocket-listener`, `websocket`, `ip`, `ethernet` or `tun`.
    pub kind: &'static str,
    /// Local address, path or device.
    pub local: String,
    /// Bytes of receive and send buffer that the kernel granted; zero where there are none.
    pub kernel_buffers: (usize, usize),
    /// Its work.
    pub counters: TransportCounters,
}

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Nanoseconds since the clock's origin.
    pub at_nanos: u64,
    /// The loop itself.
    pub event_loop: LoopCounters,
    /// Open transports, in the order in which they were added.
    pub transports: Vec<TransportSnapshot>,
    /// Open ports, by number.
    pub ports: Vec<PortSnapshot>,
    /// Sum over the closed transports.
    pub closed_transports: TransportCounters,
    /// Sum over the closed ports.
    pub closed_ports: PortCounters,
}

impl Snapshot {
    /// Returns the traffic of all ports, open and closed.
    pub fn total(&self) -> PortCounters {
        let mut sum = self.closed_ports;
        self.ports.iter().for_each(|port| sum.add(&port.counters));
        sum
    }

    /// Returns the work of all transports, open and closed.
    pub fn transports_total(&self) -> TransportCounters {
        let mut sum = self.closed_transports;
        self.transports
            .iter()
            .for_each(|transport| sum.add(&transport.counters));
        sum
    }

    /// Returns the number of system calls that the loop made.
    pub fn system_calls(&self) -> u64 {
        let transports = self.transports_total();
        self.event_loop.wait_calls
            + self.event_loop.control_calls
            + transports.receive_calls
            + transports.send_calls
    }
}
