//! The event loop that drives any [`whimbrel_core::Machine`] over real sockets (Linux).
//!
//! One thread reads a batch, runs the machine to completion and writes a batch: no await, no
//! channel between threads, no copy and no allocation per packet. The loop is independent of the
//! protocol; it handles frames, ports, time and events.
//!
//! | module | holds |
//! |---|---|
//! | [`clock`] | [`Clock`]: monotonic time since the start of the process, and the Unix time of that start |
//! | [`event_loop`] | [`EventLoop`]: construction, rounds, graceful stop; [`LoopHandle`]: posts work and stops the loop from other threads |
//! | [`Sockets`] | what is attached to a loop: sockets, listeners, connections, devices |
//! | [`udp`] | UDP links: neighbours and inbound peers; batches, offload, path MTU; multicast groups; the same over bare IP |
//! | [`ethernet`] | Ethernet links: stations and groups, without IP |
//! | [`stream`] | frames in streams of bytes: length prefixes or TLV packets |
//! | [`local`] | Unix stream sockets for programs on this machine |
//! | [`tcp`] | TCP listeners and connections |
//! | [`websocket`] | WebSocket listeners and connections: one binary message, one frame |
//! | [`interface`] | the network interfaces of this machine |
//! | [`tun`] | [`TunDevice`]: IP packets to and from this machine's kernel |
//! | [`counters`] | [`Snapshot`]: frames carried and dropped, by port and by reason |
//! | [`error`] | [`IoError`]: what happened, to what, and what to do |
//!
//! ```no_run
//! use whimbrel_core::{Machine, PortId, Time};
//! use whimbrel_io::{InboundLimits, Clock, EventLoop, IoError, UdpConfig, UnixListenerConfig};
//!
//! fn serve<M: Machine + 'static>(
//!     machine: impl FnOnce(whimbrel_core::WallClock) -> M,
//! ) -> Result<(), IoError> {
//!     let clock = Clock::start();
//!     let mut event_loop = EventLoop::new(clock, machine(clock.wall_clock()))?;
//!     event_loop.stop_on_signals()?;
//!     let link = event_loop.sockets().add_udp(
//!         UdpConfig::new("uplink", ([0, 0, 0, 0], 6363).into())
//!             .neighbour("ship", ([192, 0, 2, 7], 6363).into())
//!             .listen(InboundLimits::default()),
//!     )?;
//!     let _ship: PortId = link.ports[0];
//!     event_loop.sockets().add_unix_listener(UnixListenerConfig::new("programs", "/run/whimbrel/router.sock"))?;
//!     let handle = event_loop.handle();
//!     std::thread::spawn(move || {
//!         // Another thread: `handle.post(|machine, now| ...)`, `handle.stop()`.
//!         let _ = handle.post_to_loop(|event_loop| println!("{:?}", event_loop.snapshot()));
//!     });
//!     event_loop.run(|_machine, _now: Time, _event| { /* what the machine tells the program */ })
//! }
//! ```
//!
//! The frames that each kind of port takes in one transmit (see [`whimbrel_core::Transmit`]):
//!
//! | port | one frame | several frames |
//! |---|---|---|
//! | UDP, Ethernet, TUN, WebSocket, stream with length prefixes | `segment_size: None` | of one size: `Some(size)` |
//! | stream of TLV packets (Unix, TCP) | `segment_size: None` | whole packets of any sizes: `None` |
//!
//! Packets for a stream are gathered during a round. One write sends them at the end of the round,
//! or as soon as 64 KiB are gathered. A machine that hands over one packet at a time thus costs a
//! copy per packet rather than a system call.
//!
//! A datagram or frame that is too long for the path (`EMSGSIZE`, or an ICMP message) is counted
//! and lowers the port's MTU, which is reported ([`whimbrel_core::PortEvent::Mtu`]). It never takes
//! the port down.
//!
//! The memory that peers can make the loop hold is bounded. A UDP or Ethernet link holds one
//! transmit and [`InboundLimits::max`] ports. A connection holds one frame being read
//! ([`StreamLimits::max_frame`]), and [`StreamLimits::max_unsent`] bytes plus one transmit being
//! written; there are at most `max_connections` of them.
#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "the driver owns the clock that machines must not read"
)]

mod arrivals;
mod attach;
mod bind;
pub mod clock;
pub mod counters;
pub mod error;
pub mod ethernet;
pub mod event_loop;
pub mod interface;
mod listener;
pub mod local;
mod look_ups;
mod mailbox;
mod names;
mod opening;
mod poller;
mod requests;
mod rounds;
mod routes;
mod side;
mod signals;
mod sockets;
mod sole;
pub mod stream;
pub mod tcp;
mod transport;
mod transports;
pub mod tun;
pub mod udp;
pub mod websocket;

pub use bind::listen_tcp;
pub use clock::Clock;
pub use counters::{
    Drops, LoopCounters, PortCounters, PortSnapshot, Snapshot, TransportCounters, TransportSnapshot,
};
pub use error::IoError;
pub use ethernet::{EthernetConfig, EthernetLink, EthernetNeighbour};
pub use event_loop::{EventLoop, LoopHandle};
pub use interface::Interface;
pub use local::{SocketFile, UnixListenerConfig};
pub use requests::OpenedLimits;
pub use sockets::Sockets;
pub use stream::{BlockTypes, Framing, StreamLimits};
pub use tcp::{TcpClientConfig, TcpListenerConfig};
pub use transport::{Listening, TransportId};
pub use tun::TunDevice;
pub use udp::{
    DatagramCarrier, IP_PROTOCOL, InboundLimits, Neighbour, UdpConfig, UdpLink, UdpMulticastConfig,
    UdpMulticastLink,
};
pub use websocket::{
    AllowedOrigins, OriginError, WebOrigin, WebSocketClientConfig, WebSocketLimits,
    WebSocketListenerConfig,
};
