//! TCP endpoints as machines: the simulated baseline. The TCP is smoltcp's; the frames are IPv4
//! packets ([`crate::DuplexLink::ip`]).
//!
//! A [`TcpServer`] sends the number of bytes that a request names, a [`TcpClient`] fetches and
//! measures, or sends as many itself at the same time, a [`Relay`] is a router between two links.
//!
//! # Limits of this baseline compared with the Linux kernel's TCP
//! Figures drawn with it must state them; the netns lab measures the kernel's TCP.
//! * **No recovery from SACK.** The receiver reports blocks, the sender does not use them. Fast
//!   retransmit repeats one segment on the third duplicate ACK and recovery ends with the first ACK
//!   of new data, so that a second loss in the same window needs three more duplicate ACKs or a
//!   timeout. No RACK, no tail loss probe, no limited transmit, no F-RTO, no proportional rate
//!   reduction. So **a bottleneck queue that is shorter than the receive window costs a timeout at
//!   each overflow**: over 10 Mbit/s and 20 ms a queue of 100 packets leaves about 70 % of the
//!   rate, one of 2,000 packets 96 % (`cargo test -p whimbrel-sim --test all tcp::` holds both). A
//!   comparison that is fair to TCP gives the bottleneck a queue of at least
//!   [`TcpConfig::receive_buffer`].
//! * **The retransmission timeout is at least 1 s** (RFC 6298; Linux: 200 ms), at most 60 s
//!   (Linux: 120 s), and after it everything unacknowledged is sent again (go-back-N). After an
//!   outage the next attempt can be as far away as the timeout has grown, as with Linux but from a
//!   larger start.
//! * **The initial window is 2 KiB** (Linux: 10 segments), and slow start has no HyStart: it ends
//!   with a loss.
//! * **Delayed ACKs** wait 10 ms (Linux: 40 ms and more, with quick ACKs at the start).
//! * At most 32 holes in the receiver's buffer; a segment that would make another is dropped.
//! * No pacing, no segmentation offload, no path MTU discovery, no ECN.
//! * Timers have a resolution of 1 us, round-trip times of 1 ms.
//!
//! Two faults that only connections with payload in both directions meet are mended in its device: a
//! segment was dropped with its payload if a newer acknowledgement had overtaken it, and after a timeout
//! acknowledgements had a sequence number that the peer did not accept.
//!
//! Window scaling works (receive buffers to 1 GiB), Cubic follows RFC 9438 with fast convergence.

mod client;
mod content;
mod device;
mod goodput;
mod relay;
mod server;
mod stack;

pub use client::{Fetch, FetchId, TcpClient, TcpEvent};
pub use goodput::GoodputMeter;
pub use relay::Relay;
pub use server::{ServerStats, TcpServer};

use core::net::Ipv4Addr;
use core::time::Duration;

use whimbrel_core::Time;

/// The congestion control of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 9438.
    Cubic,
    /// RFC 5681 with fast recovery.
    Reno,
    /// No congestion control: sends as much as the receiver's window allows.
    None,
}

/// The configuration of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Its own address.
    pub address: Ipv4Addr,
    /// Largest payload of a segment in bytes; packets are 40 bytes larger. [MFTP §5.1]:
    /// 1400.
    pub segment_size: usize,
    /// Receive buffer of a client's connection in bytes. [MFTP §5], methodology: 2 MB.
    pub receive_buffer: usize,
    /// Send buffer of a server's connection in bytes, which bounds the bytes in flight.
    pub send_buffer: usize,
    /// Buffer for what a client sends and a server receives, in bytes: a request line, or as much as
    /// an exchange is to have in flight ([`TcpClient::exchange`]).
    pub request_buffer: usize,
    /// Congestion control of the sender.
    pub congestion: Congestion,
    /// Bound of a server's connections at a time; further ones are refused.
    pub max_connections: usize,
    /// Chooses initial sequence numbers.
    pub seed: u64,
}

impl TcpConfig {
    /// Returns the numbers of [MFTP §5], with a send buffer of 4 MB (the largest that Linux grows
    /// to by default).
    pub fn new(address: Ipv4Addr) -> TcpConfig {
        TcpConfig {
            address,
            segment_size: 1400,
            receive_buffer: 2_000_000,
            send_buffer: 4_000_000,
            request_buffer: 1024,
            congestion: Congestion::Cubic,
            max_connections: 64,
            seed: 0,
        }
    }
}

/// A sender at a moment, as its segments show it: smoltcp keeps its window and its timeout to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderSample {
    /// The moment.
    pub at: Time,
    /// Bytes that were sent and not acknowledged: at most the congestion window.
    pub flight: u64,
    /// The largest retransmission timeout of its connections that follows from their round trips
    /// (RFC 6298, from 1 s to 60 s as smoltcp's), without back-off.
    pub timeout: Duration,
    /// Segments retransmitted so far.
    pub retransmitted: u64,
}

/// The port that servers listen on.
pub const SERVER_PORT: u16 = 80;
