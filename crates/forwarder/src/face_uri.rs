//! FaceUris: what is at one end of a face, written as NFD writes it.
//!
//! | form | is |
//! |---|---|
//! | `udp4://192.0.2.1:6363`, `udp6://[2001:db8::1]:6363`, `udp6://[fe80::1%eth0]:6363` | a UDP endpoint |
//! | `tcp4://...`, `tcp6://...` | a TCP endpoint |
//! | `ether://[01:00:5e:00:17:aa]` | an Ethernet address |
//! | `dev://eth0`, `udp4+dev://eth0:56363` | an interface of this machine, and a UDP port on one |
//! | `unix:///run/nfd/nfd.sock`, `fd://7` | a Unix socket, and a connection accepted on one |
//! | `ws://...`, `wss://...`, `wsclient://...` | a WebSocket, and a connection accepted on one |
//! | `internal://`, `contentstore://`, `null://` | the router itself |
//!
//! What people write for these (`udp://192.0.2.1`) is brought into that form. A host name stays one
//! ([`FaceUri::Named`]): to look it up is up to the program around.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::str::FromStr;

use crate::face::Scope;

/// Port of UDP and TCP where a FaceUri does not say.
pub const DEFAULT_PORT: u16 = 6363;
/// Port of UDP multicast where a FaceUri does not say.
pub const DEFAULT_MULTICAST_PORT: u16 = 56363;
/// Port of WebSockets where a FaceUri does not say.
pub const DEFAULT_WEBSOCKET_PORT: u16 = 9696;

/// Why a text is no FaceUri.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaceUriError {
    /// Not of the form scheme://...
    #[error(
        "'{0}' is no FaceUri: one looks like udp4://192.0.2.1:6363, tcp6://[2001:db8::1]:6363 or dev://eth0"
    )]
    Malformed(String),
    /// A scheme that nobody knows.
    #[error(
        "the scheme '{0}' is unknown: use udp, udp4, udp6, tcp, tcp4, tcp6, ether, dev, unix, fd, ws or wss"
    )]
    Scheme(String),
    /// The port is no number from 0 to 65535.
    #[error("'{0}' is no port number")]
    Port(String),
    /// `udp4` with an IPv6 address, or the like.
    #[error("the scheme '{scheme}' does not go with the address {address}")]
    Family {
        /// The scheme.
        scheme: String,
        /// The address.
        address: IpAddr,
    },
    /// A link-local IPv6 address without the interface that it is local to.
    #[error("the link-local address {0} needs an interface: [{0}%eth0]")]
    Zone(Ipv6Addr),
    /// TCP has no multicast.
    #[error("TCP cannot use the multicast address {0}")]
    Multicast(IpAddr),
    /// Not six pairs of hexadecimal digits.
    #[error("'{0}' is no Ethernet address: six pairs of hexadecimal digits such as [01:00:5e:00:17:aa]")]
    Ether(String),
}

/// An address and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address; never an IPv4 address written as an IPv6 one.
    pub address: IpAddr,
    /// The interface that a link-local IPv6 address is local to.
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
        Endpoint { address: from.ip().to_canonical(), zone: None, port: from.port() }
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

/// Which transport a host name is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostTransport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// Which addresses of a host are wanted.
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

/// What is at one end of a face, in canonical form (except [`FaceUri::Named`]).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaceUri {
    /// A UDP endpoint.
    Udp(Endpoint),
    /// A TCP endpoint.
    Tcp(Endpoint),
    /// A host name, to be looked up: not canonical.
    Named {
        /// What it is used with.
        transport: HostTransport,
        /// Which of its addresses are wanted.
        family: AddressFamily,
        /// The name.
        host: String,
        /// The port, or the default one.
        port: Option<u16>,
    },
    /// An Ethernet address.
    Ether([u8; 6]),
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
        /// Host name or address, as it was written.
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
    /// A UDP endpoint; IPv4 addresses that are written as IPv6 become IPv4.
    pub fn udp(endpoint: SocketAddr) -> FaceUri {
        FaceUri::Udp(endpoint.into())
    }

    /// A TCP endpoint; IPv4 addresses that are written as IPv6 become IPv4.
    pub fn tcp(endpoint: SocketAddr) -> FaceUri {
        FaceUri::Tcp(endpoint.into())
    }

    /// True unless a host name is still to be looked up.
    pub const fn is_canonical(&self) -> bool {
        !matches!(self, FaceUri::Named { .. })
    }

    /// The FaceUri for an address that the host name has; itself if it is canonical.
    pub fn resolved(&self, address: IpAddr) -> Result<FaceUri, FaceUriError> {
        match self {
            FaceUri::Named { transport, family, port, .. } => {
                of_address(*transport, *family, address, None, *port)
            }
            canonical => Ok(canonical.clone()),
        }
    }

    /// What stands before `://`.
    pub fn scheme(&self) -> &'static str {
        let digit = |endpoint: &Endpoint, four, six| if endpoint.digit() == '4' { four } else { six };
        match self {
            FaceUri::Udp(endpoint) => digit(endpoint, "udp4", "udp6"),
            FaceUri::Tcp(endpoint) => digit(endpoint, "tcp4", "tcp6"),
            FaceUri::Named { transport: HostTransport::Udp, family, .. } => match family {
                AddressFamily::Any => "udp",
                AddressFamily::V4 => "udp4",
                AddressFamily::V6 => "udp6",
            },
            FaceUri::Named { transport: HostTransport::Tcp, family, .. } => match family {
                AddressFamily::Any => "tcp",
                AddressFamily::V4 => "tcp4",
                AddressFamily::V6 => "tcp6",
            },
            FaceUri::Ether(_) => "ether",
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

    /// True for an address that many listen to.
    pub fn is_multicast(&self) -> bool {
        match self {
            FaceUri::Udp(endpoint) => endpoint.address.is_multicast() || is_broadcast(endpoint.address),
            FaceUri::Ether(address) => address.first().is_some_and(|first| first & 1 == 1),
            _ => false,
        }
    }

    /// The scope of a face with this at its other end: local where only programs of this machine can be there, as
    /// NFD has it: Unix sockets, and TCP (with or without WebSocket) on the loopback address, but never UDP.
    pub fn scope(&self) -> Scope {
        let local = match self {
            FaceUri::Unix(_) | FaceUri::Fd(_) | FaceUri::Internal | FaceUri::ContentStore | FaceUri::Null => {
                true
            }
            FaceUri::Tcp(endpoint) | FaceUri::WebSocketClient(endpoint) => endpoint.address.is_loopback(),
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
            FaceUri::Udp(endpoint) | FaceUri::Tcp(endpoint) | FaceUri::WebSocketClient(endpoint) => {
                write!(f, "{endpoint}")
            }
            FaceUri::Named { host, port: None, .. } => f.write_str(host),
            FaceUri::Named { host, port: Some(port), .. } => write!(f, "{host}:{port}"),
            FaceUri::Ether([a, b, c, d, e, g]) => {
                write!(f, "[{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}]")
            }
            FaceUri::Dev(interface) => f.write_str(interface),
            FaceUri::UdpDev { interface, port, .. } => write!(f, "{interface}:{port}"),
            FaceUri::Unix(path) => f.write_str(path),
            FaceUri::Fd(number) => write!(f, "{number}"),
            FaceUri::WebSocket { host, port, path, .. } => write!(f, "{host}:{port}{path}"),
            FaceUri::Internal | FaceUri::ContentStore | FaceUri::Null => Ok(()),
        }
    }
}

impl FromStr for FaceUri {
    type Err = FaceUriError;

    /// The canonical form of what is written.
    fn from_str(text: &str) -> Result<FaceUri, FaceUriError> {
        let malformed = || FaceUriError::Malformed(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(malformed)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let parts = Parts { text, scheme, authority, path };
        let scheme_with = |base: &str| {
            [AddressFamily::Any, AddressFamily::V4, AddressFamily::V6]
                .into_iter()
                .find(|family| scheme.strip_prefix(base) == Some(family.suffix()))
        };
        if let Some(family) = scheme_with("udp") {
            return parts.internet(HostTransport::Udp, family);
        }
        if let Some(family) = scheme_with("tcp") {
            return parts.internet(HostTransport::Tcp, family);
        }
        match scheme {
            "ether" => parts.ether(),
            "dev" => Ok(FaceUri::Dev(parts.interface(authority)?)),
            "udp4+dev" | "udp6+dev" => parts.udp_dev(),
            "unix" if authority.is_empty() && path.len() > 1 => Ok(FaceUri::Unix(path.to_owned())),
            "fd" if path.is_empty() => authority.parse().map(FaceUri::Fd).map_err(|_| malformed()),
            "ws" | "wss" => parts.web_socket(),
            "wsclient" => parts.web_socket_client(),
            "internal" if rest.is_empty() => Ok(FaceUri::Internal),
            "contentstore" if rest.is_empty() => Ok(FaceUri::ContentStore),
            "null" if rest.is_empty() => Ok(FaceUri::Null),
            "unix" | "fd" | "internal" | "contentstore" | "null" => Err(malformed()),
            _ => Err(FaceUriError::Scheme(scheme.to_owned())),
        }
    }
}

/// A text on its way to a FaceUri.
struct Parts<'a> {
    text: &'a str,
    scheme: &'a str,
    authority: &'a str,
    path: &'a str,
}

impl Parts<'_> {
    fn malformed(&self) -> FaceUriError {
        FaceUriError::Malformed(self.text.to_owned())
    }

    /// A single `/` at the end is what people write.
    fn no_path(&self) -> Result<(), FaceUriError> {
        if self.path.is_empty() || self.path == "/" { Ok(()) } else { Err(self.malformed()) }
    }

    /// Host (without brackets) and port.
    fn host_and_port(&self) -> Result<(&str, Option<u16>), FaceUriError> {
        let (host, after) = match self.authority.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').ok_or_else(|| self.malformed())?,
            None => self.authority.split_at(self.authority.find(':').unwrap_or(self.authority.len())),
        };
        if host.is_empty() {
            return Err(self.malformed());
        }
        let port = match after.strip_prefix(':') {
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                Some(digits.parse().map_err(|_| FaceUriError::Port(digits.to_owned()))?)
            }
            Some(other) => return Err(FaceUriError::Port(other.to_owned())),
            None if after.is_empty() => None,
            None => return Err(self.malformed()),
        };
        Ok((host, port))
    }

    fn internet(&self, transport: HostTransport, family: AddressFamily) -> Result<FaceUri, FaceUriError> {
        self.no_path()?;
        let (host, port) = self.host_and_port()?;
        match self.address(host)? {
            Some((address, zone)) => of_address(transport, family, address, zone, port),
            None if host.bytes().all(is_host_octet) => {
                Ok(FaceUri::Named { transport, family, host: host.to_owned(), port })
            }
            None => Err(self.malformed()),
        }
    }

    /// The address that `host` is, with its zone; `None` if it is a name. What is in brackets must be an address.
    fn address(&self, host: &str) -> Result<Option<(IpAddr, Option<String>)>, FaceUriError> {
        let (address, zone) = match host.split_once('%') {
            // RFC 6874 writes the '%' itself as "%25".
            Some((address, zone)) => {
                (address, Some(zone.strip_prefix("25").filter(|z| !z.is_empty()).unwrap_or(zone)))
            }
            None => (host, None),
        };
        let bracketed = self.authority.starts_with('[');
        match address.parse::<IpAddr>() {
            Ok(address) if bracketed == address.is_ipv6() => {
                let zone = zone.map(|zone| self.interface(zone)).transpose()?;
                Ok(Some((address, zone)))
            }
            Err(_) if !bracketed && zone.is_none() => Ok(None),
            _ => Err(self.malformed()),
        }
    }

    fn interface(&self, name: &str) -> Result<String, FaceUriError> {
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_graphic());
        if is_name(name) && !name.contains([':', '[', ']', '%']) {
            if self.scheme == "dev" {
                self.no_path()?;
            }
            Ok(name.to_owned())
        } else {
            Err(self.malformed())
        }
    }

    fn ether(&self) -> Result<FaceUri, FaceUriError> {
        self.no_path()?;
        let wrong = || FaceUriError::Ether(self.authority.to_owned());
        let digits = self.authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let octets: Option<Vec<u8>> = digits
            .ok_or_else(wrong)?
            .split(':')
            .map(|pair| {
                let right =
                    matches!(pair.len(), 1 | 2) && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
                u8::from_str_radix(pair, 16).ok().filter(|_| right)
            })
            .collect();
        let address = octets.and_then(|octets| <[u8; 6]>::try_from(octets).ok()).ok_or_else(wrong)?;
        Ok(FaceUri::Ether(address))
    }

    fn udp_dev(&self) -> Result<FaceUri, FaceUriError> {
        self.no_path()?;
        let (host, port) = self.host_and_port()?;
        let interface = self.interface(host)?;
        let v6 = self.scheme == "udp6+dev";
        Ok(FaceUri::UdpDev { v6, interface, port: port.unwrap_or(DEFAULT_MULTICAST_PORT) })
    }

    fn web_socket(&self) -> Result<FaceUri, FaceUriError> {
        let (host, port) = self.host_and_port()?;
        let host = match self.address(host)? {
            Some((IpAddr::V6(address), _)) => format!("[{address}]"),
            Some((address, _)) => address.to_string(),
            None if host.bytes().all(is_host_octet) => host.to_owned(),
            None => return Err(self.malformed()),
        };
        if !self.path.bytes().all(|octet| octet.is_ascii_graphic()) {
            return Err(self.malformed());
        }
        let secure = self.scheme == "wss";
        let path = if self.path == "/" { "" } else { self.path }.to_owned();
        let port = port.unwrap_or(if secure { 443 } else { DEFAULT_WEBSOCKET_PORT });
        Ok(FaceUri::WebSocket { secure, host, port, path })
    }

    fn web_socket_client(&self) -> Result<FaceUri, FaceUriError> {
        self.no_path()?;
        let (host, port) = self.host_and_port()?;
        match (self.address(host)?, port) {
            (Some((address, zone)), Some(port)) => {
                Ok(FaceUri::WebSocketClient(Endpoint { address: address.to_canonical(), zone, port }))
            }
            _ => Err(self.malformed()),
        }
    }
}

const fn is_host_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_')
}

fn of_address(
    transport: HostTransport,
    family: AddressFamily,
    address: IpAddr,
    zone: Option<String>,
    port: Option<u16>,
) -> Result<FaceUri, FaceUriError> {
    let address = address.to_canonical();
    if !family.allows(address) {
        let base = if transport == HostTransport::Udp { "udp" } else { "tcp" };
        return Err(FaceUriError::Family { scheme: format!("{base}{}", family.suffix()), address });
    }
    if let IpAddr::V6(v6) = address
        && v6.is_unicast_link_local()
        && zone.is_none()
    {
        return Err(FaceUriError::Zone(v6));
    }
    let default = if address.is_multicast() { DEFAULT_MULTICAST_PORT } else { DEFAULT_PORT };
    let endpoint = Endpoint { address, zone, port: port.unwrap_or(default) };
    match transport {
        HostTransport::Udp => Ok(FaceUri::Udp(endpoint)),
        HostTransport::Tcp if address.is_multicast() => Err(FaceUriError::Multicast(address)),
        HostTransport::Tcp => Ok(FaceUri::Tcp(endpoint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> String {
        text.parse::<FaceUri>().map_or_else(|error| format!("error: {error}"), |uri| uri.to_string())
    }

    #[test]
    fn what_people_write_becomes_what_nfd_writes() {
        for (written, expected) in [
            ("udp://192.0.2.1", "udp4://192.0.2.1:6363"),
            ("udp4://192.0.2.1:6363/", "udp4://192.0.2.1:6363"),
            ("udp://224.0.23.170", "udp4://224.0.23.170:56363"),
            ("udp://[2001:DB8:0:0::1]", "udp6://[2001:db8::1]:6363"),
            ("udp6://[fe80::1%25eth0]:7000", "udp6://[fe80::1%eth0]:7000"),
            ("udp://[::ffff:192.0.2.1]:1", "udp4://192.0.2.1:1"),
            ("tcp://127.0.0.1", "tcp4://127.0.0.1:6363"),
            ("tcp6://[::1]:6363", "tcp6://[::1]:6363"),
            ("ether://[1:0:5E:0:17:AA]", "ether://[01:00:5e:00:17:aa]"),
            ("dev://eth0.100/", "dev://eth0.100"),
            ("udp4+dev://wlan0:56363", "udp4+dev://wlan0:56363"),
            ("unix:///run/nfd/nfd.sock", "unix:///run/nfd/nfd.sock"),
            ("fd://7", "fd://7"),
            ("ws://127.0.0.1", "ws://127.0.0.1:9696"),
            ("ws://[::]:9696", "ws://[::]:9696"),
            ("wss://example.net/ws/", "wss://example.net:443/ws/"),
            ("wsclient://127.0.0.1:40000", "wsclient://127.0.0.1:40000"),
            ("udp://router.example.net", "udp://router.example.net"),
            ("tcp6://router.example.net:1", "tcp6://router.example.net:1"),
            ("internal://", "internal://"),
            ("contentstore://", "contentstore://"),
            ("null://", "null://"),
        ] {
            assert_eq!(canonical(written), expected, "{written}");
            assert_eq!(canonical(expected), expected);
        }
    }

    #[test]
    fn what_is_no_face_uri_is_refused_with_what_to_do() {
        for text in [
            "",
            "192.0.2.1",
            "udp:/192.0.2.1",
            "udp4://",
            "udp4://192.0.2.1:",
            "udp4://192.0.2.1:65536",
            "udp4://192.0.2.1:+1",
            "udp4://192.0.2.1/path",
            "udp4://[2001:db8::1]",
            "udp6://192.0.2.1",
            "udp6://[192.0.2.1]",
            "udp6://2001:db8::1",
            "udp6://[2001:db8::1",
            "udp6://[2001:db8::1]x",
            "udp6://[fe80::1]:6363",
            "tcp4://224.0.23.170",
            "udp://a b",
            "ether://01:00:5e:00:17:aa",
            "ether://[01:00:5e:00:17]",
            "ether://[01:00:5e:00:17:+a]",
            "ether://[001:00:5e:00:17:aa]",
            "dev://",
            "dev://eth0:1",
            "dev://eth0/x",
            "unix://",
            "unix:///",
            "unix://host/path",
            "fd://",
            "fd://x",
            "fd://7/x",
            "ws://",
            "ws://a b/",
            "wsclient://name:1",
            "internal://x",
            "quic://192.0.2.1",
            "udp44://192.0.2.1",
        ] {
            assert!(text.parse::<FaceUri>().is_err(), "{text} gave {}", canonical(text));
        }
    }

    #[test]
    fn scope_is_local_for_unix_and_tcp_loopback_only() {
        for (uri, local) in [
            ("unix:///run/nfd/nfd.sock", true),
            ("fd://7", true),
            ("tcp4://127.0.0.1:1", true),
            ("tcp6://[::1]:1", true),
            ("wsclient://127.0.0.1:1", true),
            ("udp4://127.0.0.1:1", false),
            ("tcp4://192.0.2.1:1", false),
            ("ws://127.0.0.1:9696", false),
            ("ether://[01:00:5e:00:17:aa]", false),
        ] {
            let expected = if local { Scope::Local } else { Scope::NonLocal };
            assert_eq!(uri.parse::<FaceUri>().unwrap().scope(), expected, "{uri}");
        }
    }

    #[test]
    fn a_host_name_becomes_canonical_once_its_address_is_known() {
        let named: FaceUri = "udp6://router.example.net:7".parse().unwrap();
        assert!(!named.is_canonical());
        assert_eq!(
            named.resolved("2001:db8::1".parse().unwrap()).unwrap().to_string(),
            "udp6://[2001:db8::1]:7"
        );
        let other_family = named.resolved("192.0.2.1".parse().unwrap());
        assert!(matches!(other_family, Err(FaceUriError::Family { .. })));
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused_and_the_canonical_form_is_stable(text in "(udp|tcp|ws|ether|dev|fd|unix)[46]?(\\+dev)?://[\\[a-f0-9:.%\\]/+]{0,30}|\\PC{0,40}") {
            if let Ok(uri) = text.parse::<FaceUri>() {
                let written = uri.to_string();
                prop_assert_eq!(written.parse::<FaceUri>(), Ok(uri));
            }
        }
    }
}
