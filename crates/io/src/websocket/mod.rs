//! WebSocket (RFC 6455) over TCP, without encryption: each binary message is one frame. Browsers
//! attach this way.
//!
//! `tungstenite` implements the protocol on buffers in memory, so that it never touches a socket
//! and never blocks.

mod connection;
mod origin;
mod pipe;
mod stage;

use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_core::PortOrigin;

pub(crate) use connection::{Ends, WebSocketConnection};
pub(crate) use origin::OriginGate;
pub use origin::{AllowedOrigins, OriginError, WebOrigin};

/// Bounds of one WebSocket connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// Largest message, bytes: the port's MTU. A peer that announces a larger one is disconnected.
    pub max_frame: usize,
    /// Bound of the bytes that wait for a slow peer; beyond it, the peer is disconnected. The port
    /// is blocked from the first waiting byte on.
    pub max_unsent: usize,
    /// Time limit of the opening handshake.
    pub handshake_timeout: Duration,
    /// The silence after which the peer is pinged.
    pub ping_after: Duration,
    /// A peer that does not react to a ping within this time is disconnected.
    pub pong_timeout: Duration,
}

impl WebSocketLimits {
    /// Returns messages of at most `max_frame` bytes, a handshake within 10 s, a ping after 30 s, a
    /// pong within 10 s.
    pub fn new(max_frame: usize) -> WebSocketLimits {
        WebSocketLimits {
            max_frame,
            max_unsent: (4 << 20).max(max_frame.saturating_mul(2)),
            handshake_timeout: Duration::from_secs(10),
            ping_after: Duration::from_secs(30),
            pong_timeout: Duration::from_secs(10),
        }
    }
}

/// The configuration of a WebSocket listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketListenerConfig {
    /// The name of its connections in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// The listener number in the origin of its ports. Default 0.
    pub listener: u32,
    /// Address and port to listen on; `[::]` takes IPv4 as well.
    pub bind: SocketAddr,
    /// Bound of the connections at a time; further ones are closed at once. Default 1024.
    pub max_connections: usize,
    /// Web pages that may connect; others are refused with status 403. Default: no page.
    pub allowed_origins: AllowedOrigins,
    /// Bounds of each connection.
    pub limits: WebSocketLimits,
}

impl WebSocketListenerConfig {
    /// Returns a listener on `bind` with the defaults.
    pub fn new(
        label: impl Into<String>,
        bind: SocketAddr,
        limits: WebSocketLimits,
    ) -> WebSocketListenerConfig {
        WebSocketListenerConfig {
            label: label.into(),
            listener: 0,
            bind,
            max_connections: 1024,
            allowed_origins: AllowedOrigins::default(),
            limits,
        }
    }
}

/// The configuration of a WebSocket connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketClientConfig {
    /// The name of the port in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// The origin of the port.
    pub origin: PortOrigin,
    /// The server's address.
    pub address: SocketAddr,
    /// The requested resource: `ws://host:port/path`.
    pub uri: String,
    /// Bounds of the connection. The handshake timeout also limits the time for connecting.
    pub limits: WebSocketLimits,
}
