//! What a machine asks for when it asks for a port, and within which bounds.

use whimbrel_core::{Endpoint, Peer, PortToken};

use crate::{StreamLimits, WebSocketLimits};

/// Bounds of the connections that a machine asks for.
#[derive(Clone, Copy, Debug)]
pub struct OpenedLimits {
    /// Framing and limits of TCP and Unix streams.
    pub streams: StreamLimits,
    /// Limits of WebSockets.
    pub websockets: WebSocketLimits,
}

impl Default for OpenedLimits {
    /// Returns length-prefixed frames up to the largest chunk.
    fn default() -> OpenedLimits {
        let streams = StreamLimits::default();
        OpenedLimits {
            streams,
            websockets: WebSocketLimits::new(streams.max_frame),
        }
    }
}

/// A request of the machine for a port.
#[derive(Clone, Debug)]
pub(crate) struct OpenRequest {
    pub(crate) token: PortToken,
    pub(crate) label: String,
    pub(crate) endpoint: Endpoint,
}

/// Returns the peer of an endpoint with an IP address or host name.
pub(crate) fn remote_of(endpoint: &Endpoint) -> Option<&Peer> {
    match endpoint {
        Endpoint::Udp { remote, .. }
        | Endpoint::Tcp { remote }
        | Endpoint::WebSocket { remote, .. } => Some(remote),
        Endpoint::Unix { .. } | Endpoint::Ethernet { .. } | Endpoint::Tun { .. } => None,
    }
}
