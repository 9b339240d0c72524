//! TCP: listeners, and connections to peers.

mod connecting;
mod socket;

use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_core::PortOrigin;

use crate::StreamLimits;

pub(crate) use connecting::{Arrival, Becomes, Connecting};
pub(crate) use socket::{canonical_of, listen};

/// Default patience while connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where to listen for TCP connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpListenerConfig {
    /// The name that its connections get in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// What ports of its connections say they came by. Default 0.
    pub listener: u32,
    /// Address and port to listen on; `[::]` takes IPv4 as well.
    pub bind: SocketAddr,
    /// Most connections at a time; more are closed at once. Default 1024. This bounds memory:
    /// `max_connections x (max_frame + max_unsent)`.
    pub max_connections: usize,
    /// Framing and limits of each connection.
    pub limits: StreamLimits,
}

impl TcpListenerConfig {
    /// Listens on `bind` with the defaults.
    pub fn new(
        label: impl Into<String>,
        bind: SocketAddr,
        limits: StreamLimits,
    ) -> TcpListenerConfig {
        TcpListenerConfig {
            label: label.into(),
            listener: 0,
            bind,
            max_connections: 1024,
            limits,
        }
    }
}

/// Whom to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpClientConfig {
    /// The name that the port gets in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// What its port says of itself. Default: link 0 of the configuration.
    pub origin: PortOrigin,
    /// The peer.
    pub address: SocketAddr,
    /// Framing and limits of the connection.
    pub limits: StreamLimits,
    /// How long the peer may take to answer. Default 10 seconds.
    pub timeout: Duration,
}

impl TcpClientConfig {
    /// Connects to `address` with the default patience.
    pub fn new(
        label: impl Into<String>,
        address: SocketAddr,
        limits: StreamLimits,
    ) -> TcpClientConfig {
        TcpClientConfig {
            label: label.into(),
            origin: PortOrigin::Configured(0),
            address,
            limits,
            timeout: CONNECT_TIMEOUT,
        }
    }
}
