//! The two ends of a link, with what carries its frames. Those of bare IP and Ethernet are written
//! as FaceUris, as the ends of NDN faces are.
//!
//! | carrier | `remote` | `bind` |
//! |---|---|---|
//! | UDP | `192.0.2.7:4711`, `udp://a.example:4711` | `0.0.0.0:4711`, `udp://0.0.0.0:4711` |
//! | bare IP | `ip://192.0.2.7`, `ip://[2001:db8::7]`, `ip6://a.example` | `ip://0.0.0.0`, `ip://[::]` |
//! | Ethernet | `ether://[02:00:5e:10:00:07%eth0]`, or without `%eth0` beside `bind` | `dev://eth0` |

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use serde::{Deserialize, Serialize};
use whimbrel_core::{Family, Peer};
use whimbrel_ndn_mgmt::FaceUri;
use whimbrel_ndn_mgmt::face_uri::{AddressFamily, FaceUriError, HostTransport};

use super::address::{RemoteError, index_of, listen_address, peer};

/// The way to a neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// UDP.
    Udp(Peer),
    /// Bare IP; the peer's port is 0.
    Ip(Peer),
    /// Ethernet.
    Ethernet {
        /// The neighbour's address.
        station: [u8; 6],
        /// The interface that leads there, unless `bind` names it.
        interface: Option<String>,
    },
}

/// Reads a neighbour's address: host and port, or a FaceUri.
pub(super) fn way(text: &str) -> Result<Way, RemoteError> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return peer(text).map(Way::Udp);
    };
    let of_no_carrier = || RemoteError::Carrier {
        text: text.to_owned(),
        scheme: scheme.to_owned(),
    };
    // The port is not left to NDN's default.
    let over_udp = || {
        peer(rest.trim_end_matches('/')).map_err(|error| match error {
            RemoteError::Peer(_) => RemoteError::Peer(text.to_owned()),
            other => other,
        })
    };
    match uri(text, scheme)? {
        FaceUri::Udp(endpoint) if !endpoint.address.is_multicast() => over_udp().map(Way::Udp),
        FaceUri::Named {
            transport: HostTransport::Udp,
            family,
            ..
        } => Ok(Way::Udp(match over_udp()? {
            Peer::Named { host, port, .. } => Peer::Named {
                host,
                port,
                family: family_of(family),
            },
            address => address,
        })),
        uri @ FaceUri::Ip { .. } if uri.is_multicast() => Err(of_no_single(text)),
        FaceUri::Ip { address, .. } if address.is_unspecified() => Err(of_no_single(text)),
        FaceUri::Ip { address, zone } => {
            let scope = zone.map_or(Ok(0), |zone| scope_of(text, &zone))?;
            Ok(Way::Ip(Peer::Address(match address {
                IpAddr::V4(address) => (address, 0).into(),
                IpAddr::V6(address) => SocketAddrV6::new(address, 0, 0, scope).into(),
            })))
        }
        FaceUri::Named {
            transport: HostTransport::Ip,
            family,
            host,
            ..
        } => Ok(Way::Ip(Peer::Named {
            host,
            port: 0,
            // A socket of bare IP has one family.
            family: family_of(family).or(Some(Family::V4)),
        })),
        uri @ (FaceUri::Ether(_) | FaceUri::EtherOn { .. }) if uri.is_multicast() => {
            Err(of_no_single(text))
        }
        FaceUri::Ether(station) => Ok(Way::Ethernet {
            station,
            interface: None,
        }),
        FaceUri::EtherOn { station, interface } => Ok(Way::Ethernet {
            station,
            interface: Some(interface),
        }),
        _ => Err(of_no_carrier()),
    }
}

fn uri(text: &str, scheme: &str) -> Result<FaceUri, RemoteError> {
    let text = text.to_owned();
    text.parse().map_err(|error| match error {
        FaceUriError::Scheme(_) => RemoteError::Carrier {
            text,
            scheme: scheme.to_owned(),
        },
        error => RemoteError::Uri { text, error },
    })
}

fn of_no_single(text: &str) -> RemoteError {
    RemoteError::Group(text.to_owned())
}

fn scope_of(text: &str, zone: &str) -> Result<u32, RemoteError> {
    let index = zone.parse().ok().or_else(|| index_of(zone));
    index.ok_or_else(|| RemoteError::Zone {
        text: text.to_owned(),
        zone: zone.to_owned(),
    })
}

fn family_of(family: AddressFamily) -> Option<Family> {
    match family {
        AddressFamily::Any => None,
        AddressFamily::V4 => Some(Family::V4),
        AddressFamily::V6 => Some(Family::V6),
    }
}

/// This machine's end of a link: what its socket is bound to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Bind {
    /// A UDP port of an address.
    Udp(SocketAddr),
    /// The packets of bare IP to an address.
    Ip(IpAddr),
    /// The Ethernet frames of an interface.
    Device(String),
}

impl Bind {
    /// Returns the address and port, of UDP.
    pub fn udp(&self) -> Option<SocketAddr> {
        match self {
            Bind::Udp(address) => Some(*address),
            Bind::Ip(_) | Bind::Device(_) => None,
        }
    }

    /// Returns what a socket towards a neighbour is bound to if nothing is configured; `None` if
    /// the interface has to be said.
    pub fn towards(way: &Way) -> Option<Bind> {
        let is_ipv6 = |peer: &Peer| match peer {
            Peer::Address(address) => address.ip().to_canonical().is_ipv6(),
            Peer::Named { family, .. } => *family == Some(Family::V6),
        };
        match way {
            Way::Udp(peer) => Some(Bind::Udp(crate::run::any_address_towards(peer))),
            Way::Ip(peer) if is_ipv6(peer) => Some(Bind::Ip(Ipv6Addr::UNSPECIFIED.into())),
            Way::Ip(_) => Some(Bind::Ip(Ipv4Addr::UNSPECIFIED.into())),
            Way::Ethernet { interface, .. } => interface.clone().map(Bind::Device),
        }
    }

    /// Returns true if links that are bound so share a socket: a port that the kernel chooses is
    /// another one each time.
    pub fn is_shared(&self) -> bool {
        !matches!(self, Bind::Udp(address) if address.port() == 0)
    }

    /// Returns why a neighbour cannot be reached from here; `None` if it can.
    pub(super) fn refuses(&self, way: &Way, remote: &str) -> Option<String> {
        let carriers = || {
            format!(
                "{remote} is not reached from bind = \"{self}\": both ends of a link have one carrier; write {} for bind, or leave it out",
                match way {
                    Way::Udp(_) => "an address and port",
                    Way::Ip(_) => "\"ip://\" and an address of this machine",
                    Way::Ethernet { .. } => "\"dev://\" and an interface",
                }
            )
        };
        match (self, way) {
            (Bind::Udp(bind), Way::Udp(Peer::Address(to)))
                if bind.is_ipv4() && !to.ip().to_canonical().is_ipv4() =>
            {
                Some(format!(
                    "{remote} is an IPv6 address and bind = \"{self}\" is of IPv4; bind [::] to speak both"
                ))
            }
            (Bind::Udp(_), Way::Udp(_)) => None,
            (Bind::Ip(bind), Way::Ip(_)) => {
                let wanted = Bind::towards(way);
                let fits = matches!(wanted, Some(Bind::Ip(any)) if any.is_ipv4() == bind.is_ipv4());
                (!fits).then(|| {
                    format!(
                        "{remote} and bind = \"{self}\" are of different families of IP addresses; a link on bare IP has one: write {}",
                        if bind.is_ipv4() { "\"ip://[::]\"" } else { "\"ip://0.0.0.0\"" }
                    )
                })
            }
            (Bind::Device(bind), Way::Ethernet { interface, .. }) => interface
                .as_ref()
                .filter(|interface| *interface != bind)
                .map(|interface| {
                    format!("{remote} is on {interface} and bind = \"{self}\"; write one interface")
                }),
            _ => Some(carriers()),
        }
    }

    /// Returns true if both sockets would get the same packets, although their addresses differ.
    pub(super) fn overlaps(&self, other: &Bind) -> bool {
        match (self, other) {
            (Bind::Ip(a), Bind::Ip(b)) => {
                a != b && a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified())
            }
            _ => false,
        }
    }
}

impl FromStr for Bind {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Bind, RemoteError> {
        let text = text.trim();
        let over_udp = |address: &str| match listen_address(address) {
            Err(RemoteError::Listen(_)) => Err(RemoteError::Bind(text.to_owned())),
            read => read.map(Bind::Udp),
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return over_udp(text);
        };
        match uri(text, scheme)? {
            FaceUri::Udp(_) => over_udp(rest.trim_end_matches('/')),
            FaceUri::Ip {
                address,
                zone: None,
            } if !address.is_multicast() => Ok(Bind::Ip(address)),
            FaceUri::Dev(interface) => Ok(Bind::Device(interface)),
            FaceUri::Ip { .. } | FaceUri::Named { .. } => Err(RemoteError::Bind(text.to_owned())),
            _ => Err(RemoteError::Carrier {
                text: text.to_owned(),
                scheme: scheme.to_owned(),
            }),
        }
    }
}

impl TryFrom<String> for Bind {
    type Error = RemoteError;
    fn try_from(text: String) -> Result<Bind, RemoteError> {
        text.parse()
    }
}

impl From<Bind> for String {
    fn from(bind: Bind) -> String {
        bind.to_string()
    }
}

impl From<SocketAddr> for Bind {
    fn from(address: SocketAddr) -> Bind {
        Bind::Udp(address)
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bind::Udp(address) => address.fmt(f),
            Bind::Ip(IpAddr::V4(address)) => write!(f, "ip://{address}"),
            Bind::Ip(IpAddr::V6(address)) => write!(f, "ip://[{address}]"),
            Bind::Device(interface) => write!(f, "dev://{interface}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Remote;
    use super::*;

    fn read(text: &str) -> Way {
        let remote: Remote = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(remote.to_string(), text);
        remote.way().clone()
    }

    #[test]
    fn each_carrier_has_its_form() {
        let at = |text: &str| Peer::Address(text.parse().unwrap());
        assert_eq!(read("192.0.2.7:4711"), Way::Udp(at("192.0.2.7:4711")));
        assert_eq!(read("udp://192.0.2.7:4711"), Way::Udp(at("192.0.2.7:4711")));
        assert_eq!(
            read("udp6://[2001:db8::7]:1"),
            Way::Udp(at("[2001:db8::7]:1"))
        );
        assert_eq!(read("ip://192.0.2.7"), Way::Ip(at("192.0.2.7:0")));
        assert_eq!(read("ip://[2001:db8::7]"), Way::Ip(at("[2001:db8::7]:0")));
        assert_eq!(read("ip6://[fe80::7%lo]"), Way::Ip(at("[fe80::7%1]:0")));
        let named = |host: &str, port, family| Peer::Named {
            host: host.into(),
            port,
            family: Some(family),
        };
        assert_eq!(
            read("udp6://a.example:4711"),
            Way::Udp(named("a.example", 4711, Family::V6))
        );
        assert_eq!(
            read("ip://a.example"),
            Way::Ip(named("a.example", 0, Family::V4))
        );
        assert_eq!(
            read("ip6://a.example"),
            Way::Ip(named("a.example", 0, Family::V6))
        );
        let station = [2, 0, 0x5e, 0x10, 0, 7];
        let on = |interface: Option<&str>| Way::Ethernet {
            station,
            interface: interface.map(String::from),
        };
        assert_eq!(read("ether://[02:00:5e:10:00:07]"), on(None));
        assert_eq!(read("ether://[02:00:5e:10:00:07%eth0]"), on(Some("eth0")));
    }

    #[test]
    fn what_is_no_end_of_a_link_is_refused_with_what_to_write() {
        for (text, advice) in [
            ("udp://192.0.2.7", "host:port"),
            ("udp://a.example", "host:port"),
            ("ip://192.0.2.7:253", "no ports"),
            ("ip://0.0.0.0", "one neighbour"),
            ("ip://224.0.0.1", "one neighbour"),
            ("ip6://[fe80::7%no-such]", "no interface 'no-such'"),
            ("ether://[01:00:5e:00:17:aa]", "one neighbour"),
            ("ether://eth0", "six pairs"),
            ("tcp://192.0.2.7:4711", "ether://"),
            ("dev://eth0", "ether://"),
        ] {
            let error = text.parse::<Remote>().unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(advice), "{error}");
        }
        for (text, advice) in [
            ("ip://a.example", "to listen on"),
            ("ip://[fe80::1%lo]", "to listen on"),
            ("tcp://0.0.0.0:1", "ether://"),
            ("ether://[02:00:5e:10:00:07]", "ether://"),
        ] {
            let error = text.parse::<Bind>().unwrap_err().to_string();
            assert!(error.contains(advice), "{error}");
        }
    }

    #[test]
    fn what_is_shown_of_an_own_end_is_read_back() {
        for text in [
            "0.0.0.0:4711",
            "[::]:0",
            "ip://0.0.0.0",
            "ip://[::]",
            "dev://eth0",
        ] {
            let bind: Bind = text.parse().unwrap();
            assert_eq!(bind.to_string(), text);
        }
        assert_eq!(
            "udp://[::]:1".parse::<Bind>().unwrap().to_string(),
            "[::]:1"
        );
    }

    #[test]
    fn both_ends_are_of_one_carrier_and_family() {
        let refusal = |bind: &str, remote: &str| {
            let bind: Bind = bind.parse().unwrap();
            bind.refuses(&read(remote), remote)
        };
        for (bind, remote) in [
            ("0.0.0.0:0", "a.example:4711"),
            ("[::]:0", "192.0.2.7:1"),
            ("ip://192.0.2.1", "ip://192.0.2.7"),
            ("ip://[::]", "ip6://a.example"),
            ("dev://eth0", "ether://[02:00:5e:10:00:07]"),
            ("dev://eth0", "ether://[02:00:5e:10:00:07%eth0]"),
        ] {
            assert_eq!(refusal(bind, remote), None, "{bind} {remote}");
        }
        for (bind, remote, why) in [
            ("0.0.0.0:0", "[2001:db8::7]:1", "bind [::]"),
            ("0.0.0.0:4711", "ip://192.0.2.7", "one carrier"),
            ("ip://0.0.0.0", "192.0.2.7:4711", "one carrier"),
            ("dev://eth0", "ip://192.0.2.7", "one carrier"),
            ("ip://0.0.0.0", "ip://[2001:db8::7]", "families"),
            ("ip://[::]", "ip://a.example", "families"),
            (
                "dev://eth0",
                "ether://[02:00:5e:10:00:07%eth1]",
                "one interface",
            ),
        ] {
            let told = refusal(bind, remote).unwrap_or_default();
            assert!(told.contains(why), "{bind} {remote}: {told}");
        }
    }
}
