//! Who may use a proxy, and which proxy is responsible for an address. What is not configured is
//! denied.

use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use ipnet::IpNet;
use whimbrel_ndn_packet::Name;

use crate::message::Protocol;

/// How an address yields the prefix of the proxy that is responsible for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// This prefix: a lookup ([TCP/ICN §3.2.2]).
    Prefix(Name),
    /// The base followed by the first so many bits of the address, one component for each octet
    /// (IPv4, decimal) or each 16 bits (IPv6, hexadecimal): an algorithmic mapping
    /// ([TCP/ICN §3.2.2]).
    Mapped {
        /// What the components are appended to.
        base: Name,
        /// Bits of the address; of a part that is only begun, all are taken.
        bits: u8,
    },
}

impl Target {
    /// Returns the prefix of the proxy responsible for `address`.
    pub fn prefix(&self, address: IpAddr) -> Name {
        match self {
            Target::Prefix(prefix) => prefix.clone(),
            Target::Mapped { base, bits } => {
                let bits = usize::from(*bits);
                let parts: Vec<String> = match address {
                    IpAddr::V4(address) => {
                        let octets = address.octets();
                        octets
                            .iter()
                            .take(bits.div_ceil(8))
                            .map(u8::to_string)
                            .collect()
                    }
                    IpAddr::V6(address) => {
                        let groups = address.segments();
                        let groups = groups.iter().take(bits.div_ceil(16));
                        groups.map(|group| format!("{group:x}")).collect()
                    }
                };
                let child = |name: Name, part: &String| name.child_generic(part.as_bytes());
                parts.iter().fold(base.clone(), child)
            }
        }
    }
}

/// Where connections to some addresses go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The addresses.
    pub to: IpNet,
    /// The proxy.
    pub target: Target,
    /// The protocol for these connections; `None` is the proxy's.
    pub protocol: Option<Protocol>,
}

/// Addresses and ports that remote programs may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The addresses.
    pub to: IpNet,
    /// The ports.
    pub ports: RangeInclusive<u16>,
}

impl Permission {
    /// Returns all ports of these addresses.
    pub const fn all_ports(to: IpNet) -> Permission {
        Permission {
            to,
            ports: 0..=u16::MAX,
        }
    }
}

/// What a proxy may carry. Nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    routes: Vec<Route>,
    sources: Vec<IpNet>,
    destinations: Vec<Permission>,
}

impl Policy {
    /// As a forward proxy: carries connections from `sources` to the addresses of `routes`. As a
    /// reverse proxy: lets peers connect to `destinations`; the route of a client's address, if
    /// there is one, must lead to the proxy that it comes from.
    pub fn new(
        mut routes: Vec<Route>,
        sources: Vec<IpNet>,
        destinations: Vec<Permission>,
    ) -> Policy {
        routes.sort_by_key(|route| core::cmp::Reverse(route.to.prefix_len()));
        Policy {
            routes,
            sources,
            destinations,
        }
    }

    /// Returns the route with the longest matching prefix.
    pub fn route(&self, address: IpAddr) -> Option<&Route> {
        self.routes.iter().find(|route| route.to.contains(&address))
    }

    /// Returns the routes, longest prefixes first.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Returns true if programs at `source` may open connections.
    pub fn allows_source(&self, source: IpAddr) -> bool {
        self.sources.iter().any(|net| net.contains(&source))
    }

    /// Returns true if peers may connect to `destination`.
    pub fn allows_destination(&self, destination: SocketAddr) -> bool {
        let allows = |it: &Permission| {
            it.to.contains(&destination.ip()) && it.ports.contains(&destination.port())
        };
        self.destinations.iter().any(allows)
    }

    /// Returns true if the proxy at `prefix` may speak for `address`.
    pub fn allows_peer(&self, prefix: &Name, address: IpAddr) -> bool {
        self.route(address)
            .is_none_or(|route| route.target.prefix(address) == *prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_prefix_wins() {
        let route = |to: &str, prefix: &str| Route {
            to: net(to),
            target: Target::Prefix(prefix.parse().unwrap()),
            protocol: None,
        };
        let routes = vec![route("10.0.0.0/8", "/a"), route("10.1.0.0/16", "/b")];
        let policy = Policy::new(routes, Vec::new(), Vec::new());
        let found = |address: &str| {
            policy
                .route(ip(address))
                .map(|it| it.target.prefix(ip(address)))
        };
        assert_eq!(found("10.1.2.3"), Some("/b".parse().unwrap()));
        assert_eq!(found("10.2.2.3"), Some("/a".parse().unwrap()));
        assert_eq!(found("192.0.2.1"), None);
    }

    #[test]
    fn addresses_are_mapped_to_prefixes() {
        let mapped = |bits| Target::Mapped {
            base: "/tcp".parse().unwrap(),
            bits,
        };
        assert_eq!(
            mapped(24).prefix(ip("10.1.2.3")),
            "/tcp/10/1/2".parse().unwrap()
        );
        assert_eq!(
            mapped(20).prefix(ip("10.1.2.3")),
            "/tcp/10/1/2".parse().unwrap()
        );
        assert_eq!(
            mapped(48).prefix(ip("2001:db8:0:7::1")),
            "/tcp/2001/db8/0".parse().unwrap()
        );
    }

    #[test]
    fn nothing_is_allowed_unless_it_is_configured() {
        let policy = Policy::default();
        assert!(!policy.allows_source(ip("127.0.0.1")));
        assert!(!policy.allows_destination("127.0.0.1:80".parse().unwrap()));
        let web = Permission {
            to: net("10.0.0.0/8"),
            ports: 80..=80,
        };
        let policy = Policy::new(Vec::new(), vec![net("::1/128")], vec![web]);
        assert!(policy.allows_source(ip("::1")));
        assert!(policy.allows_destination("10.2.3.4:80".parse().unwrap()));
        assert!(!policy.allows_destination("10.2.3.4:81".parse().unwrap()));
    }
}
