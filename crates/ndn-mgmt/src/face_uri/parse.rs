//! Parsing of FaceUris.

use core::net::IpAddr;
use core::str::FromStr;

use super::{
    AddressFamily, DEFAULT_MULTICAST_PORT, DEFAULT_PORT, DEFAULT_WEBSOCKET_PORT, Endpoint, FaceUri,
    FaceUriError, HostTransport,
};

impl FromStr for FaceUri {
    type Err = FaceUriError;

    /// Parses a FaceUri into canonical form.
    fn from_str(text: &str) -> Result<FaceUri, FaceUriError> {
        let malformed = || FaceUriError::Malformed(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(malformed)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let parts = Parts {
            text,
            scheme,
            authority,
            path,
        };
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
        if let Some(family) = scheme_with("ip") {
            return parts.internet(HostTransport::Ip, family);
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

/// A partially parsed FaceUri.
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

    /// A single trailing `/` is accepted.
    fn no_path(&self) -> Result<(), FaceUriError> {
        if self.path.is_empty() || self.path == "/" {
            Ok(())
        } else {
            Err(self.malformed())
        }
    }

    /// Host (without brackets) and port.
    fn host_and_port(&self) -> Result<(&str, Option<u16>), FaceUriError> {
        let (host, after) = match self.authority.strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']').ok_or_else(|| self.malformed())?,
            None => self
                .authority
                .split_at(self.authority.find(':').unwrap_or(self.authority.len())),
        };
        if host.is_empty() {
            return Err(self.malformed());
        }
        let port = match after.strip_prefix(':') {
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => Some(
                digits
                    .parse()
                    .map_err(|_| FaceUriError::Port(digits.to_owned()))?,
            ),
            Some(other) => return Err(FaceUriError::Port(other.to_owned())),
            None if after.is_empty() => None,
            None => return Err(self.malformed()),
        };
        Ok((host, port))
    }

    fn internet(
        &self,
        transport: HostTransport,
        family: AddressFamily,
    ) -> Result<FaceUri, FaceUriError> {
        self.no_path()?;
        let (host, port) = self.host_and_port()?;
        // Bare IP has no ports.
        if let (HostTransport::Ip, Some(port)) = (transport, port) {
            return Err(FaceUriError::NoPort(port));
        }
        match self.address(host)? {
            Some((address, zone)) => of_address(transport, family, address, zone, port),
            None if host.bytes().all(is_host_octet) => Ok(FaceUri::Named {
                transport,
                family,
                host: host.to_owned(),
                port,
            }),
            None => Err(self.malformed()),
        }
    }

    /// Returns the address in `host`, with its zone; `None` if it is a name. Brackets must enclose
    /// an address.
    fn address(&self, host: &str) -> Result<Option<(IpAddr, Option<String>)>, FaceUriError> {
        let (address, zone) = match host.split_once('%') {
            // RFC 6874 writes the '%' itself as "%25".
            Some((address, zone)) => (
                address,
                Some(
                    zone.strip_prefix("25")
                        .filter(|z| !z.is_empty())
                        .unwrap_or(zone),
                ),
            ),
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
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|octet| octet.is_ascii_graphic());
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
        let digits = self
            .authority
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let digits = digits.ok_or_else(wrong)?;
        let (digits, interface) = match digits.split_once('%') {
            Some((digits, interface)) => (digits, Some(self.interface(interface)?)),
            None => (digits, None),
        };
        let octets: Option<Vec<u8>> = digits
            .split(':')
            .map(|pair| {
                let right = matches!(pair.len(), 1 | 2)
                    && pair.bytes().all(|digit| digit.is_ascii_hexdigit());
                u8::from_str_radix(pair, 16).ok().filter(|_| right)
            })
            .collect();
        let address = octets
            .and_then(|octets| <[u8; 6]>::try_from(octets).ok())
            .ok_or_else(wrong)?;
        Ok(match interface {
            Some(interface) => FaceUri::EtherOn {
                station: address,
                interface,
            },
            None => FaceUri::Ether(address),
        })
    }

    fn udp_dev(&self) -> Result<FaceUri, FaceUriError> {
        self.no_path()?;
        let (host, port) = self.host_and_port()?;
        let interface = self.interface(host)?;
        let v6 = self.scheme == "udp6+dev";
        Ok(FaceUri::UdpDev {
            v6,
            interface,
            port: port.unwrap_or(DEFAULT_MULTICAST_PORT),
        })
    }

    fn web_socket(&self) -> Result<FaceUri, FaceUriError> {
        let (host, port) = self.host_and_port()?;
        let host = match self.address(host)? {
            Some((IpAddr::V6(address), Some(zone))) => format!("[{address}%{zone}]"),
            Some((IpAddr::V6(address), None)) if address.is_unicast_link_local() => {
                return Err(FaceUriError::Zone(address));
            }
            Some((IpAddr::V6(address), None)) => format!("[{address}]"),
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
        Ok(FaceUri::WebSocket {
            secure,
            host,
            port,
            path,
        })
    }

    fn web_socket_client(&self) -> Result<FaceUri, FaceUriError> {
        self.no_path()?;
        let (host, port) = self.host_and_port()?;
        match (self.address(host)?, port) {
            (Some((address, zone)), Some(port)) => Ok(FaceUri::WebSocketClient(Endpoint {
                address: address.to_canonical(),
                zone,
                port,
            })),
            _ => Err(self.malformed()),
        }
    }
}

const fn is_host_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_')
}

pub(super) fn of_address(
    transport: HostTransport,
    family: AddressFamily,
    address: IpAddr,
    zone: Option<String>,
    port: Option<u16>,
) -> Result<FaceUri, FaceUriError> {
    let address = address.to_canonical();
    if !family.allows(address) {
        return Err(FaceUriError::Family {
            scheme: format!("{}{}", transport.scheme(), family.suffix()),
            address,
        });
    }
    if let IpAddr::V6(v6) = address
        && v6.is_unicast_link_local()
        && zone.is_none()
    {
        return Err(FaceUriError::Zone(v6));
    }
    let default = if address.is_multicast() {
        DEFAULT_MULTICAST_PORT
    } else {
        DEFAULT_PORT
    };
    let endpoint = Endpoint {
        address,
        zone,
        port: port.unwrap_or(default),
    };
    match transport {
        HostTransport::Udp => Ok(FaceUri::Udp(endpoint)),
        HostTransport::Ip => Ok(FaceUri::Ip {
            address: endpoint.address,
            zone: endpoint.zone,
        }),
        HostTransport::Tcp if address.is_multicast() => Err(FaceUriError::Multicast(address)),
        HostTransport::Tcp => Ok(FaceUri::Tcp(endpoint)),
    }
}
