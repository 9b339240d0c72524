//! Inbound peers, as far as their admission depends on them.

use whimbrel_core::{Medium, PortInfo, network_of};

/// Kinds of inbound peers, by what their address proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// On this machine. They may have all faces that others leave: a quarter in any case.
    Program,
    /// At an address that has answered. They may have a quarter of all faces.
    Stream,
    /// At an address that may be forged. They may have half of all faces.
    Datagram,
}

/// An inbound peer, as far as its admission depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Caller {
    pub(crate) kind: Kind,
    // An IPv4 address, or an IPv6 network of 64 bits, or a station.
    network: u128,
}

impl Caller {
    /// Returns `None` for a port that this router opened or was configured with.
    pub(crate) fn of(info: &PortInfo) -> Option<Caller> {
        if !info.origin.is_caller() {
            return None;
        }
        let (kind, network) = match info.medium {
            Medium::Udp { remote, .. } | Medium::Tcp { remote, .. }
                if remote.ip().to_canonical().is_loopback() =>
            {
                (Kind::Program, 0)
            }
            Medium::Udp { remote, .. } => (Kind::Datagram, network_of(remote.ip())),
            Medium::Ip { remote, .. } => (Kind::Datagram, network_of(remote)),
            // A page of a browser on this machine is of anybody.
            Medium::Tcp { remote, .. } | Medium::WebSocket { remote, .. } => {
                (Kind::Stream, network_of(remote.ip()))
            }
            Medium::Ethernet { remote, .. } => {
                let mut octets = [0; 16];
                octets[..6].copy_from_slice(&remote);
                (Kind::Datagram, u128::from_be_bytes(octets))
            }
            _ => (Kind::Program, 0),
        };
        Some(Caller { kind, network })
    }
}
