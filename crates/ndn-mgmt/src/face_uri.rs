//! FaceUris: the two ends of a face, written as NFD writes them.
//!
//! | form | is |
//! |---|---|
//! | `udp4://192.0.2.1:6363`, `udp6://[2001:db8::1]:6363`, `udp6://[fe80::1%eth0]:6363` | a UDP endpoint |
//! | `tcp4://...`, `tcp6://...` | a TCP endpoint |
//! | `ether://[01:00:5e:00:17:aa]` | an Ethernet address |
//! | `ether://[02:00:5e:10:00:07%eth0]`, `ip4://192.0.2.1`, `ip6://[2001:db8::1]` | a station on an interface, and an end of bare IP: links of MobilityFirst only |
//! | `dev://eth0`, `udp4+dev://eth0:56363` | an interface of this machine, and a UDP port on one |
//! | `unix:///run/nfd/nfd.sock`, `fd://7` | a Unix socket, and a connection accepted on one |
//! | `ws://...`, `wss://...`, `wsclient://...` | a WebSocket, and a connection accepted on one |
//! | `internal://`, `contentstore://`, `null://` | the router itself |
//!
//! The short forms that people write (`udp://192.0.2.1`) are converted to canonical form. A host
//! name is kept ([`FaceUri::Named`]): the program around must resolve it.

mod parse;
#[cfg(test)]
mod tests;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::face::Scope;

/// Port of UDP and TCP if a FaceUri has none.
pub const DEFAULT_PORT: u16 = 6363;
/// Port of UDP multicast if a FaceUri has none.
pub const DEFAULT_MULTICAST_PORT: u16 = 56363;
/// Port of WebSockets if a FaceUri has none.
pub const DEFAULT_WEBSOCKET_PORT: u16 = 9696;

/// Why a text is not a FaceUri.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaceUriError {
    /// Not of the form scheme://...
    #[error(
        "'{0}' is not a FaceUri: write one like udp4://192.0.2.1:6363, tcp6://[2001:db8::1]:6363 or dev://eth0"
    )]
    Malformed(String),
    /// An unknown scheme.
    #[error(
        "the scheme '{0}' is unknown: use udp, udp4, udp6, tcp, tcp4, tcp6, ip, ip4, ip6, ether, dev, unix, fd, ws or wss"
    )]
    Scheme(String),
    /// The port is not a number from 0 to 65535.
    #[error("'{0}' is not a port number")]
    Port(String),
    /// A port in a FaceUri of bare IP.
    #[error("bare IP has no ports: leave out :{0}")]
    NoPort(u16),
    /// `udp4` with an IPv6 address, or the like.
    #[error("the scheme '{scheme}' does not match the address {address}")]
    Family {
        /// The scheme.
        scheme: String,
        /// The address.
        address: IpAddr,
    },
    /// A link-local IPv6 address without its interface.
    #[error("the link-local address {0} needs an interface: [{0}%eth0]")]
    Zone(Ipv6Addr),
    /// TCP has no multicast.
    #[error("TCP cannot use the multicast address {0}")]
    Multicast(IpAddr),
    /// Not six pairs of hexadecimal digits.
    #[error(
        "'{0}' is not an Ethernet address: write six pairs of hexadecimal digits such as [01:00:5e:00:17:aa]"
    )]
    Ether(String),
}

/// An address and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address; never an IPv4 address written as an IPv6 one.
    pub address: IpAddr,
    /// The interface of a link-local IPv6 address.
    pub zone: Option<String>,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    fn digit(&self) -> char {
        if self.address.is_ipv4() { '4' } else { '6' }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(from: SocketAddr) -> Endpoint {
        Endpoint {
            address: from.ip().to_canonical(),
            zone: None,
            port: from.port(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.address, &self.zone) {
            (IpAddr::V4(address), _) => write!(f, "{address}:{}", self.port),
            (IpAddr::V6(address), None) => write!(f, "[{address}]:{}", self.port),
            (IpAddr::V6(address), Some(zone)) => write!(f, "[{address}%{zone}]:{}", self.port),
        }
    }
}

/// The transport of a host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostTransport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// IP packets of MobilityFirst's own protocol number.
    Ip,
}

impl HostTransport {
    /// Returns the scheme without a digit of the address family.
    pub const fn scheme(self) -> &'static str {
        match self {
            HostTransport::Udp => "udp",
            HostTransport::Tcp => "tcp",
            HostTransport::Ip => "ip",
        }
    }
}

/// The wanted addresses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressFamily {
    /// Any.
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl AddressFamily {
    fn allows(self, address: IpAddr) -> bool {
        match self {
            AddressFamily::Any => true,
            AddressFamily::V4 => address.is_ipv4(),
            AddressFamily::V6 => address.is_ipv6(),
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            AddressFamily::Any => "",
            AddressFamily::V4 => "4",
            AddressFamily::V6 => "6",
        }
    }
}

/// One end of a face, in canonical form (except [`FaceUri::Named`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaceUri {
    /// A UDP endpoint.
    Udp(Endpoint),
    /// A TCP endpoint.
    Tcp(Endpoint),
    /// A host name, to be looked up: not canonical.
    Named {
        /// Its transport.
        transport: HostTransport,
        /// The wanted addresses.
        family: AddressFamily,
        /// The name.
        host: String,
        /// The port, or the default one.
        port: Option<u16>,
    },
    /// An end of bare IP, which has no ports.
    Ip {
        /// The address; never an IPv4 address written as an IPv6 one.
        address: IpAddr,
        /// The interface of a link-local IPv6 address.
        zone: Option<String>,
    },
    /// An Ethernet address.
    Ether([u8; 6]),
    /// An Ethernet address and the interface of this machine that leads there.
    EtherOn {
        /// The address.
        station: [u8; 6],
        /// The interface.
        interface: String,
    },
    /// An interface of this machine.
    Dev(String),
    /// A UDP port on an interface of this machine.
    UdpDev {
        /// IPv6.
        v6: bool,
        /// The interface.
        interface: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(String),
    /// A connection that was accepted on a Unix socket.
    Fd(u64),
    /// A WebSocket server.
    WebSocket {
        /// With TLS.
        secure: bool,
        /// Host name or address, as written.
        host: String,
        /// The port.
        port: u16,
        /// The path, empty or beginning with `/`.
        path: String,
    },
    /// A connection that was accepted on a WebSocket.
    WebSocketClient(Endpoint),
    /// The router's management.
    Internal,
    /// The router's content store.
    ContentStore,
    /// Nothing.
    Null,
}

impl FaceUri {
    /// Returns a UDP endpoint; IPv4-mapped IPv6 addresses become IPv4.
    pub fn udp(endpoint: SocketAddr) -> FaceUri {
        FaceUri::Udp(endpoint.into())
    }

    /// Returns a TCP endpoint; IPv4-mapped IPv6 addresses become IPv4.
    pub fn tcp(endpoint: SocketAddr) -> FaceUri {
        FaceUri::Tcp(endpoint.into())
    }

    /// Returns an end of bare IP; IPv4-mapped IPv6 addresses become IPv4.
    pub fn ip(address: IpAddr) -> FaceUri {
        FaceUri::Ip {
            address: address.to_canonical(),
            zone: None,
        }
    }

    /// Returns it with the interface that a link-local IPv6 address is local to: two interfaces may
    /// have neighbours of one address. Any other is returned as it is.
    pub fn on_interface(mut self, interface: Option<&str>) -> FaceUri {
        if let FaceUri::Udp(endpoint) | FaceUri::Tcp(endpoint) = &mut self
            && let IpAddr::V6(v6) = endpoint.address
            && v6.is_unicast_link_local()
        {
            endpoint.zone = interface.map(str::to_owned);
        }
        self
    }

    /// Returns true unless it has a host name to resolve.
    pub const fn is_canonical(&self) -> bool {
        !matches!(self, FaceUri::Named { .. })
    }

    /// Returns the FaceUri with an address of the host name; itself if it is canonical.
    pub fn resolved(&self, address: IpAddr) -> Result<FaceUri, FaceUriError> {
        match self {
            FaceUri::Named {
                transport,
                family,
                port,
                ..
            } => parse::of_address(*transport, *family, address, None, *port),
            canonical => Ok(canonical.clone()),
        }
    }

    /// Returns the part before `://`.
    pub fn scheme(&self) -> &'static str {
        let digit =
            |endpoint: &Endpoint, four, six| if endpoint.digit() == '4' { four } else { six };
        match self {
            FaceUri::Udp(endpoint) => digit(endpoint, "udp4", "udp6"),
            FaceUri::Tcp(endpoint) => digit(endpoint, "tcp4", "tcp6"),
            FaceUri::Named {
                transport, family, ..
            } => match (transport, family) {
                (_, AddressFamily::Any) => transport.scheme(),
                (HostTransport::Udp, AddressFamily::V4) => "udp4",
                (HostTransport::Udp, AddressFamily::V6) => "udp6",
                (HostTransport::Tcp, AddressFamily::V4) => "tcp4",
                (HostTransport::Tcp, AddressFamily::V6) => "tcp6",
                (HostTransport::Ip, AddressFamily::V4) => "ip4",
                (HostTransport::Ip, AddressFamily::V6) => "ip6",
            },
            FaceUri::Ip { address, .. } if address.is_ipv4() => "ip4",
            FaceUri::Ip { .. } => "ip6",
            FaceUri::Ether(_) | FaceUri::EtherOn { .. } => "ether",
            FaceUri::Dev(_) => "dev",
            FaceUri::UdpDev { v6: false, .. } => "udp4+dev",
            FaceUri::UdpDev { v6: true, .. } => "udp6+dev",
            FaceUri::Unix(_) => "unix",
            FaceUri::Fd(_) => "fd",
            FaceUri::WebSocket { secure: false, .. } => "ws",
            FaceUri::WebSocket { secure: true, .. } => "wss",
            FaceUri::WebSocketClient(_) => "wsclient",
            FaceUri::Internal => "internal",
            FaceUri::ContentStore => "contentstore",
            FaceUri::Null => "null",
        }
    }

    /// Returns true for a multicast address.
    pub fn is_multicast(&self) -> bool {
        match self {
            FaceUri::Udp(endpoint) => {
                endpoint.address.is_multicast() || is_broadcast(endpoint.address)
            }
            FaceUri::Ip { address, .. } => address.is_multicast() || is_broadcast(*address),
            FaceUri::Ether(address)
            | FaceUri::EtherOn {
                station: address, ..
            } => address.first().is_some_and(|first| first & 1 == 1),
            _ => false,
        }
    }

    /// Returns why no single peer can be at this remote FaceUri; `None` if one can.
    pub fn unreachable(&self) -> Option<&'static str> {
        let (FaceUri::Udp(end) | FaceUri::Tcp(end)) = self else {
            return None;
        };
        if end.address.is_unspecified() {
            Some(
                "its address stands for all of a machine, where it listens; give the one by which the peer is reached",
            )
        } else if end.port == 0 {
            Some(
                "its port 0 stands for a free one to listen on; give the port that the peer listens on",
            )
        } else {
            None
        }
    }

    /// Returns the scope of a face with this remote FaceUri: local if only programs of this machine
    /// can be there, as in NFD: Unix sockets, and TCP (with or without WebSocket) on the loopback
    /// address, but never UDP.
    pub fn scope(&self) -> Scope {
        let local = match self {
            FaceUri::Unix(_)
            | FaceUri::Fd(_)
            | FaceUri::Internal
            | FaceUri::ContentStore
            | FaceUri::Null => true,
            FaceUri::Tcp(endpoint) | FaceUri::WebSocketClient(endpoint) => {
                endpoint.address.is_loopback()
            }
            _ => false,
        };
        if local { Scope::Local } else { Scope::NonLocal }
    }
}

fn is_broadcast(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

impl fmt::Display for FaceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        match self {
            FaceUri::Udp(endpoint)
            | FaceUri::Tcp(endpoint)
            | FaceUri::WebSocketClient(endpoint) => {
                write!(f, "{endpoint}")
            }
            FaceUri::Named {
                host, port: None, ..
            } => f.write_str(host),
            FaceUri::Named {
                host,
                port: Some(port),
                ..
            } => write!(f, "{host}:{port}"),
            FaceUri::Ip {
                address: IpAddr::V6(address),
                zone,
            } => match zone {
                Some(zone) => write!(f, "[{address}%{zone}]"),
                None => write!(f, "[{address}]"),
            },
            FaceUri::Ip { address, .. } => write!(f, "{address}"),
            FaceUri::Ether(station) => write!(f, "[{}]", Station(station)),
            FaceUri::EtherOn { station, interface } => {
                write!(f, "[{}%{interface}]", Station(station))
            }
            FaceUri::Dev(interface) => f.write_str(interface),
            FaceUri::UdpDev {
                interface, port, ..
            } => write!(f, "{interface}:{port}"),
            FaceUri::Unix(path) => f.write_str(path),
            FaceUri::Fd(number) => write!(f, "{number}"),
            FaceUri::WebSocket {
                host, port, path, ..
            } => write!(f, "{host}:{port}{path}"),
            FaceUri::Internal | FaceUri::ContentStore | FaceUri::Null => Ok(()),
        }
    }
}

/// Six pairs of hexadecimal digits.
struct Station<'a>(&'a [u8; 6]);

impl fmt::Display for Station<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
