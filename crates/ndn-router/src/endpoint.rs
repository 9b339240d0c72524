//! Conversion of FaceUris to endpoints.

use std::net::{IpAddr, SocketAddr};

use whimbrel_core::{Endpoint, Family, Peer};
use whimbrel_forwarder::mgmt::FaceFailure;
use whimbrel_ndn_mgmt::face_uri::{AddressFamily, HostTransport};
use whimbrel_ndn_mgmt::{FaceUri, face_uri};

/// NDN's EtherType.
pub const ETHER_TYPE: u16 = 0x8624;

/// Returns the endpoint of a face to `remote`. Ethernet faces need `local`, the interface.
///
/// UDP faces share the listening socket, as NFD's do: their peers see one port number.
pub fn endpoint(remote: &FaceUri, local: Option<&FaceUri>) -> Result<Endpoint, FaceFailure> {
    // The driver knows the numbers of interfaces.
    let at = |endpoint: &face_uri::Endpoint| match &endpoint.zone {
        Some(zone) => Peer::Named {
            host: format!("[{}%{zone}]", endpoint.address),
            port: endpoint.port,
            family: None,
        },
        None => Peer::Address(SocketAddr::new(endpoint.address, endpoint.port)),
    };
    match remote {
        FaceUri::Udp(endpoint) if !remote.is_multicast() => Ok(Endpoint::Udp {
            remote: at(endpoint),
            shared: true,
        }),
        FaceUri::Tcp(endpoint) => Ok(Endpoint::Tcp {
            remote: at(endpoint),
        }),
        FaceUri::Named {
            transport: transport @ (HostTransport::Udp | HostTransport::Tcp),
            family,
            host,
            port,
        } => {
            let remote = Peer::Named {
                host: host.clone(),
                port: port.unwrap_or(face_uri::DEFAULT_PORT),
                family: match family {
                    AddressFamily::Any => None,
                    AddressFamily::V4 => Some(Family::V4),
                    AddressFamily::V6 => Some(Family::V6),
                },
            };
            Ok(match transport {
                HostTransport::Udp => Endpoint::Udp {
                    remote,
                    shared: true,
                },
                _ => Endpoint::Tcp { remote },
            })
        }
        FaceUri::Ether(station) => {
            let Some(FaceUri::Dev(interface)) = local else {
                return Err(FaceFailure::Unsupported(String::from(
                    "an Ethernet face needs the interface: LocalUri dev://NAME",
                )));
            };
            Ok(Endpoint::Ethernet {
                interface: interface.clone(),
                remote: *station,
                ether_type: ETHER_TYPE,
            })
        }
        FaceUri::WebSocket {
            secure: false,
            host,
            port,
            path,
        } => Ok(Endpoint::WebSocket {
            remote: peer(host, *port),
            path: if path.is_empty() {
                String::from("/")
            } else {
                path.clone()
            },
        }),
        other => Err(FaceFailure::Unsupported(format!(
            "faces to {other} are not supported"
        ))),
    }
}

/// Parses a host: an address, in brackets or not, or a name.
fn peer(host: &str, port: u16) -> Peer {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => Peer::Address(SocketAddr::new(address, port)),
        Err(_) => Peer::Named {
            host: host.to_owned(),
            port,
            family: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_face_uri_asks_for_a_port_or_says_why_not() {
        for (uri, expected) in [
            ("udp4://192.0.2.1:6363", "udp://192.0.2.1:6363"),
            ("tcp://[2001:db8::1]:7", "tcp://[2001:db8::1]:7"),
            ("udp://[fe80::1%25p]", "udp://[fe80::1%p]:6363"),
            ("tcp://[fe80::1%p]:7", "tcp://[fe80::1%p]:7"),
            ("udp://a.example", "udp://a.example:6363"),
            ("ws://127.0.0.1:9696/ndn", "ws://127.0.0.1:9696/ndn"),
            ("ws://b.example:80/", "ws://b.example:80/"),
        ] {
            let uri: FaceUri = uri.parse().expect("a FaceUri");
            assert_eq!(
                endpoint(&uri, None).expect("an endpoint").to_string(),
                expected
            );
        }
        for uri in [
            "ether://[02:00:00:00:00:01]",
            "udp://224.0.23.170",
            "null://",
        ] {
            let uri: FaceUri = uri.parse().expect("a FaceUri");
            assert!(
                matches!(endpoint(&uri, None), Err(FaceFailure::Unsupported(_))),
                "{uri}"
            );
        }
    }
}
