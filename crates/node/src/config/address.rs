//! Addresses as people type them.
//!
//! | typed | a peer | where to listen |
//! |---|---|---|
//! | `4711` or `:4711` | port 4711 of this machine | port 4711 of all addresses |
//! | `localhost:4711` | port 4711 of this machine | the same, for this machine only |
//! | `192.0.2.7:4711`, `[2001:db8::7]:4711` | that address | that address |
//! | `[fe80::1%eth0]:4711` | a link-local address and the interface it is local to | the same |
//! | `a.example:4711` | a name, looked up when it is needed | refused |
//! | `0.0.0.0:4711`, `[::]:4711` | refused | port 4711 of all addresses |
//! | `192.0.2.7:0` | refused | a free port |

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whimbrel_core::{Guid, ParseGuidError, Peer};
use whimbrel_io::Interface;
use whimbrel_mobilityfirst::router::NextHop;
use whimbrel_ndn_mgmt::face_uri::FaceUriError;

use super::carrier::{Way, way};

/// The reason why a text is not an address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RemoteError {
    /// Not in the form of a peer's address.
    #[error(
        "'{0}' is not an address; write host:port, as in \"192.0.2.7:4711\", \"[2001:db8::7]:4711\" or \"a.example:4711\", or the \
         port alone for this machine"
    )]
    Peer(String),
    /// Not a FaceUri.
    #[error("'{text}' is not the end of a link: {error}")]
    Uri {
        /// The text.
        text: String,
        /// What is wrong.
        error: FaceUriError,
    },
    /// A FaceUri of something else.
    #[error(
        "'{text}' is not the end of a link: {scheme}:// carries none; write host:port for UDP, ip://192.0.2.7 for bare IP, \
         ether://[02:00:5e:10:00:07%eth0] for Ethernet, and dev://eth0 for this machine's end of that"
    )]
    Carrier {
        /// The text.
        text: String,
        /// The part before `://`.
        scheme: String,
    },
    /// A group of peers, or all addresses.
    #[error("'{0}' is not one neighbour: a link leads to one; write its own address")]
    Group(String),
    /// Port 0 of a peer.
    #[error(
        "'{0}': no program is reached at port 0, which stands for a free port to listen on; write the port that the other \
         machine listens on, as in host:port"
    )]
    NoPort(String),
    /// All addresses of a machine.
    #[error(
        "'{0}' stands for all addresses of a machine, where it listens; write the one by which the other machine is reached"
    )]
    AllAddresses(String),
    /// A link-local address without its interface.
    #[error(
        "'{0}' is local to a link, and does not say to which: write the interface of this machine too, as in \
         \"[fe80::1%eth0]:4711\" (`ip link` lists them)"
    )]
    WithoutZone(String),
    /// Not in the form of a listening address.
    #[error(
        "'{0}' is not an address to listen on; write an address of this machine and a port, as in \"192.0.2.7:4711\" or \
         \"[::1]:4711\", or the port alone for all addresses"
    )]
    Listen(String),
    /// Not in the form of this machine's end of a link.
    #[error(
        "'{0}' is not this machine's end of a link; write an address to listen on and a port, as in \"0.0.0.0:4711\" or \
         \"[::1]:4711\", or the port alone for all addresses; \"ip://0.0.0.0\" for bare IP; \"dev://eth0\" for Ethernet"
    )]
    Bind(String),
    /// What is before the `@` is no name.
    #[error(
        "'{text}' does not begin with a name: {fault}; write NAME@HOST:PORT, or the address alone"
    )]
    Name {
        /// The text.
        text: String,
        /// What is wrong with the name.
        fault: String,
    },
    /// The interface of a link-local address does not exist.
    #[error("'{text}': there is no interface '{zone}'; write one that `ip link` shows")]
    Zone {
        /// The text.
        text: String,
        /// The part after the percent sign.
        zone: String,
    },
}

/// A host and a port, as typed.
enum Typed<'a> {
    /// The port alone.
    Port(u16),
    /// An address of this machine or of another.
    Address(SocketAddr),
    /// A name of the domain name system.
    Name(&'a str, u16),
    /// A link-local address of an interface that does not exist.
    NoZone(&'a str),
}

/// Returns `None` if the text has none of the forms.
fn read(text: &str) -> Option<Typed<'_>> {
    if let Ok(port) = text.strip_prefix(':').unwrap_or(text).parse() {
        return Some(Typed::Port(port));
    }
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    if let Some(inside) = host.strip_prefix('[') {
        let inside = inside.strip_suffix(']')?;
        let (address, zone) = inside.split_once('%').unwrap_or((inside, ""));
        let address: Ipv6Addr = address.parse().ok()?;
        let scope = match zone {
            "" => 0,
            zone => match zone.parse().ok().or_else(|| index_of(zone)) {
                Some(index) => index,
                None => return Some(Typed::NoZone(zone)),
            },
        };
        let address = SocketAddrV6::new(address, port, 0, scope);
        return Some(Typed::Address(SocketAddr::V6(address)));
    }
    if host == "localhost" {
        return Some(Typed::Address((Ipv4Addr::LOCALHOST, port).into()));
    }
    match host.parse::<Ipv4Addr>() {
        Ok(address) => Some(Typed::Address((address, port).into())),
        Err(_) if host.is_empty() || host.contains(is_in_no_name) => None,
        Err(_) => Some(Typed::Name(host, port)),
    }
}

/// Host names of this machine may have more than letters, digits and hyphens.
fn is_in_no_name(character: char) -> bool {
    matches!(character, ':' | '/') || character.is_whitespace() || character.is_control()
}

pub(super) fn index_of(zone: &str) -> Option<u32> {
    Interface::find(zone).ok().map(|interface| interface.index)
}

/// Reads an address to listen on, as people type it.
pub fn listen_address(text: &str) -> Result<SocketAddr, RemoteError> {
    let text = text.trim();
    match read(text) {
        Some(Typed::Port(port)) => Ok((any_address(), port).into()),
        Some(Typed::Address(address)) if lacks_zone(&address) => {
            Err(RemoteError::WithoutZone(text.to_owned()))
        }
        Some(Typed::Address(address)) => Ok(address),
        Some(Typed::NoZone(zone)) => Err(RemoteError::Zone {
            text: text.to_owned(),
            zone: zone.to_owned(),
        }),
        Some(Typed::Name(..)) | None => Err(RemoteError::Listen(text.to_owned())),
    }
}

/// Reads addresses to listen on from a file, by the grammar of [`listen_address`].
pub(super) mod listening {
    use core::fmt;
    use std::net::SocketAddr;

    use serde::de::{Deserialize, Deserializer, Error, Visitor};

    /// Each element of a list is one, so that an error names its place.
    struct Address(SocketAddr);

    struct AsTyped;

    impl Visitor<'_> for AsTyped {
        type Value = Address;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("socket address")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Address, E> {
            super::listen_address(text).map(Address).map_err(E::custom)
        }
    }

    impl<'de> Deserialize<'de> for Address {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Address, D::Error> {
            from.deserialize_str(AsTyped)
        }
    }

    pub(in crate::config) fn one<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<SocketAddr, D::Error> {
        Address::deserialize(from).map(|address| address.0)
    }

    pub(in crate::config) fn maybe<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<SocketAddr>, D::Error> {
        one(from).map(Some)
    }

    pub(in crate::config) fn list<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<SocketAddr>, D::Error> {
        let all = Vec::<Address>::deserialize(from)?;
        Ok(all.into_iter().map(|address| address.0).collect())
    }
}

/// Returns all addresses of this machine: an IPv6 socket takes IPv4 as well, where IPv6 exists.
pub(crate) fn any_address() -> IpAddr {
    if UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok() {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}

/// The address of a peer: an IP address, or a name of the domain name system, with a port; or a
/// FaceUri, of bare IP or Ethernet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Remote {
    text: String,
    way: Way,
}

impl Remote {
    /// Returns the way to it.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Returns the peer for a port, which looks up a host name without delaying anything else;
    /// `None` unless it is reached over UDP.
    pub fn udp(&self) -> Option<Peer> {
        match &self.way {
            Way::Udp(peer) => Some(peer.clone()),
            Way::Ip(_) | Way::Ethernet { .. } => None,
        }
    }
}

/// The address of a neighbour and the name that it must prove, if that is given: written as
/// `NAME@HOST:PORT`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedRemote {
    /// The name.
    pub name: Option<Guid>,
    /// The address.
    pub remote: Remote,
}

impl From<Remote> for NamedRemote {
    fn from(remote: Remote) -> NamedRemote {
        let name = None;
        NamedRemote { name, remote }
    }
}

impl FromStr for NamedRemote {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<NamedRemote, RemoteError> {
        let Some((name, remote)) = text.split_once('@') else {
            return Ok(text.parse::<Remote>()?.into());
        };
        let name = name.trim().parse();
        let name = name.map_err(|fault: ParseGuidError| RemoteError::Name {
            text: text.to_owned(),
            fault: fault.to_string(),
        })?;
        Ok(NamedRemote {
            name: Some(name),
            remote: remote.parse()?,
        })
    }
}

impl fmt::Display for NamedRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            Some(name) => write!(f, "{name}@{}", self.remote),
            None => self.remote.fmt(f),
        }
    }
}

/// Reads a peer's address, as people type it.
pub(super) fn peer(text: &str) -> Result<Peer, RemoteError> {
    match read(text) {
        Some(Typed::Port(0) | Typed::Name(_, 0)) => Err(RemoteError::NoPort(text.to_owned())),
        Some(Typed::Port(port)) => Ok(Peer::Address((Ipv4Addr::LOCALHOST, port).into())),
        Some(Typed::Address(address)) => reachable(text, address).map(|()| Peer::Address(address)),
        Some(Typed::Name(host, port)) => Ok(Peer::Named {
            host: host.to_owned(),
            port,
            family: None,
        }),
        Some(Typed::NoZone(zone)) => Err(RemoteError::Zone {
            text: text.to_owned(),
            zone: zone.to_owned(),
        }),
        None => Err(RemoteError::Peer(text.to_owned())),
    }
}

/// Refuses an address at which no single program can be reached.
fn reachable(text: &str, address: SocketAddr) -> Result<(), RemoteError> {
    let ip = address.ip().to_canonical();
    let is_group = ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST);
    let refusal = match address {
        _ if address.port() == 0 => RemoteError::NoPort,
        _ if ip.is_unspecified() => RemoteError::AllAddresses,
        _ if is_group => RemoteError::Group,
        _ if lacks_zone(&address) => RemoteError::WithoutZone,
        _ => return Ok(()),
    };
    Err(refusal(text.to_owned()))
}

/// Returns true for a link-local address that does not say which link.
fn lacks_zone(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

impl FromStr for Remote {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Remote, RemoteError> {
        let text = text.trim();
        let way = way(text)?;
        // A port alone is shown with the machine that it is of.
        let text = match (&way, read(text)) {
            (Way::Udp(Peer::Address(address)), Some(Typed::Port(_))) => address.to_string(),
            _ => text.to_owned(),
        };
        Ok(Remote { text, way })
    }
}

impl TryFrom<String> for Remote {
    type Error = RemoteError;
    fn try_from(text: String) -> Result<Remote, RemoteError> {
        text.parse()
    }
}

impl From<Remote> for String {
    fn from(remote: Remote) -> String {
        remote.text
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A neighbour, by its GUID or by the label of the link to it: 64 hexadecimal digits are a GUID.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Via(pub String);

impl Via {
    /// Returns the router's form; `labels` are those of the configured links, in order. Returns
    /// `None` if it is neither a GUID nor one of them.
    pub fn next_hop<'a>(&self, labels: impl IntoIterator<Item = &'a str>) -> Option<NextHop> {
        if let Ok(guid) = self.0.parse::<Guid>() {
            return Some(NextHop::Neighbour(guid));
        }
        let link = labels.into_iter().position(|label| label == self.0)?;
        Some(NextHop::Link(link as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        text.parse::<Remote>()
            .unwrap_or_else(|error| panic!("{error}"))
            .udp()
            .unwrap()
    }

    fn at(text: &str) -> Peer {
        Peer::Address(text.parse().unwrap())
    }

    #[test]
    fn addresses_to_listen_on_are_typed_alike_in_every_section() {
        let all = |port| SocketAddr::from((any_address(), port));
        let read = |text: &str| toml::from_str::<crate::config::Config>(text);
        let config = read(
            "router.metrics = '9363'\nndn.udp = [':6363', 'localhost:6364']\ngnrs.listen = '127.0.0.1:1'",
        )
        .unwrap();
        assert_eq!(config.router.metrics, Some(all(9363)));
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 6364));
        assert_eq!(config.ndn.udp, [all(6363), local]);
        assert_eq!(config.gnrs.listen.port(), 1);
        let refused = read("host.metrics = 'a.example:80'").unwrap_err();
        assert!(refused.to_string().contains("a.example:80"), "{refused}");
    }

    #[test]
    fn peers_are_read_as_people_type_them() {
        for (typed, address) in [
            ("4711", "127.0.0.1:4711"),
            (":4711", "127.0.0.1:4711"),
            ("localhost:4711", "127.0.0.1:4711"),
            ("192.0.2.7:4711", "192.0.2.7:4711"),
            ("[::1]:65535", "[::1]:65535"),
            ("[fe80::1%lo]:4711", "[fe80::1%1]:4711"),
            ("[fe80::1%7]:4711", "[fe80::1%7]:4711"),
        ] {
            assert_eq!(peer(typed), at(address), "{typed}");
        }
        assert!(matches!(
            peer("a.example:80"),
            Peer::Named { host, port: 80, .. } if host == "a.example"
        ));
        for bad in [
            "",
            "host",
            "0",
            "65536",
            ":",
            "host:0",
            "host:65536",
            "::1:80",
            "[::1]",
            "[host]:80",
            "ho st:80",
            "http://host:80",
        ] {
            let error = bad.parse::<Remote>().unwrap_err().to_string();
            assert!(
                error.contains(&format!("'{bad}'")) && error.contains("host:port"),
                "{error}"
            );
        }
        let error = "[fe80::1%no-such]:1".parse::<Remote>().unwrap_err();
        assert!(error.to_string().contains("'no-such'"), "{error}");
    }

    #[test]
    fn an_address_that_cannot_work_is_refused_with_what_is_missing() {
        for (typed, missing) in [
            ("0.0.0.0:4711", "all addresses"),
            ("[::]:4711", "all addresses"),
            ("[::ffff:0.0.0.0]:4711", "all addresses"),
            ("224.0.0.1:4711", "not one neighbour"),
            ("255.255.255.255:4711", "not one neighbour"),
            ("[ff02::1]:4711", "not one neighbour"),
            ("[fe80::1]:4711", "[fe80::1%eth0]:4711"),
            ("192.0.2.7:0", "port 0"),
            ("a.example:0", "port 0"),
        ] {
            let error = typed.parse::<Remote>().unwrap_err().to_string();
            assert!(error.contains(typed) && error.contains(missing), "{error}");
        }
        let error = listen_address("[fe80::1]:4711").unwrap_err();
        assert!(error.to_string().contains("%eth0"), "{error}");
    }

    #[test]
    fn what_is_shown_of_a_peer_is_read_back() {
        for typed in ["4711", "localhost:1", "a.example:80", "[fe80::1%lo]:2"] {
            let remote: Remote = typed.parse().unwrap();
            assert_eq!(remote.to_string().parse(), Ok(remote));
        }
    }

    #[test]
    fn a_name_before_an_address_is_read_and_shown() {
        let name = "5a".repeat(32);
        let typed = format!("{name}@a.example:4711");
        let named: NamedRemote = typed.parse().unwrap();
        assert_eq!(named.name, Some(Guid([0x5a; 32])));
        assert_eq!(named.remote.to_string(), "a.example:4711");
        assert_eq!(named.to_string(), typed);
        let alone: NamedRemote = "a.example:4711".parse().unwrap();
        assert_eq!(
            (alone.name, alone.to_string().as_str()),
            (None, "a.example:4711")
        );
        for bad in ["5a@a.example:4711", "@4711", &format!("{name}@host")] {
            let error = bad.parse::<NamedRemote>().unwrap_err().to_string();
            assert!(
                error.contains("host:port") || error.contains("NAME@HOST:PORT"),
                "{error}"
            );
        }
    }

    #[test]
    fn listening_takes_addresses_of_this_machine() {
        let any = listen_address("4711").unwrap();
        assert!(any.ip().is_unspecified() && any.port() == 4711);
        assert_eq!(listen_address(":4711"), Ok(any));
        assert_eq!(
            listen_address("localhost:0"),
            Ok("127.0.0.1:0".parse().unwrap())
        );
        assert_eq!(listen_address("[::1]:9"), Ok("[::1]:9".parse().unwrap()));
        for bad in ["a.example:80", "192.0.2.7", "", "::1:80"] {
            let error = listen_address(bad).unwrap_err().to_string();
            assert!(error.contains("to listen on"), "{error}");
        }
    }

    #[test]
    fn a_way_is_a_guid_or_a_label() {
        assert_eq!(
            Via("ab".repeat(32)).next_hop([]),
            Some(NextHop::Neighbour(Guid([0xab; 32])))
        );
        let labels = ["south", "north"];
        assert_eq!(Via("north".into()).next_hop(labels), Some(NextHop::Link(1)));
        assert_eq!(Via("nroth".into()).next_hop(labels), None);
    }
}
