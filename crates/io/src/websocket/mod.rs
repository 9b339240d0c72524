//! WebSocket (RFC 6455) over TCP, without encryption: each binary message is one frame. Browsers
//! attach this way.
//!
//! The protocol is `tungstenite`'s, which is fed with what was read and asked for what to write, so
//! that it never touches a socket and never blocks.

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
    /// Largest message, bytes: the port's MTU. A peer that announces more is disconnected.
    pub max_frame: usize,
    /// Bytes that may wait for a peer that does not read; beyond, it is disconnected. The port is
    /// blocked from the first waiting byte on.
    pub max_unsent: usize,
    /// How long the opening handshake may take.
    pub handshake_timeout: Duration,
    /// After so long a silence the peer is asked whether it is there (ping).
    pub ping_after: Duration,
    /// A peer that leaves a ping without any answer for so long is disconnected.
    pub pong_timeout: Duration,
}

impl WebSocketLimits {
    /// Messages of at most `max_frame` bytes, a handshake within 10 s, a ping after 30 s, an answer
    /// within 10 s.
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

/// Where to listen for WebSocket connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketListenerConfig {
    /// The name that its connections get in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// What ports of its connections say they came by. Default 0.
    pub listener: u32,
    /// Address and port to listen on; `[::]` takes IPv4 as well.
    pub bind: SocketAddr,
    /// Most connections at a time; more are closed at once. Default 1024.
    pub max_connections: usize,
    /// Web pages that may connect; other pages are answered with status 403. Default: none.
    pub allowed_origins: AllowedOrigins,
    /// Bounds of each connection.
    pub limits: WebSocketLimits,
}

impl WebSocketListenerConfig {
    /// Listens on `bind` with the defaults.
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

/// Whom to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketClientConfig {
    /// The name that the port gets in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// What its port says of itself.
    pub origin: PortOrigin,
    /// The server's address.
    pub address: SocketAddr,
    /// What to ask it for: `ws://host:port/path`.
    pub uri: String,
    /// Bounds of the connection; its handshake timeout is also the patience while connecting.
    pub limits: WebSocketLimits,
}
