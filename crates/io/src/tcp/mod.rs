//! TCP: listeners, and connections to peers.

mod connecting;
mod socket;

use std::net::SocketAddr;
use std::time::Duration;

use whimbrel_core::PortOrigin;

use crate::StreamLimits;

pub(crate) use connecting::{Arrival, Becomes, Connecting};
pub(crate) use socket::{canonical_of, listen, new_socket};

/// Default time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The configuration of a TCP listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpListenerConfig {
    /// The name of its connections in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// The listener number in the origin of its ports. Default 0.
    pub listener: u32,
    /// Address and port to listen on; `[::]` takes IPv4 as well.
    pub bind: SocketAddr,
    /// Bound of the connections at a time; further ones are closed at once. Default 1024. This
    /// bounds memory: `max_connections x (max_frame + max_unsent)`.
    pub max_connections: usize,
    /// Framing and limits of each connection.
    pub limits: StreamLimits,
}

impl TcpListenerConfig {
    /// Returns a listener on `bind` with the defaults.
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

/// The configuration of a TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpClientConfig {
    /// The name of the port in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// The origin of the port. Default: link 0 of the configuration.
    pub origin: PortOrigin,
    /// The peer.
    pub address: SocketAddr,
    /// Framing and limits of the connection.
    pub limits: StreamLimits,
    /// Time limit for connecting. Default 10 seconds.
    pub timeout: Duration,
}

impl TcpClientConfig {
    /// Returns a connection to `address` with the defaults.
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
