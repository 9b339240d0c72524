//! The network interfaces of this machine.

pub(crate) mod ioctl;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use socket2::{Domain, Socket, Type};

use crate::IoError;

/// Hardware type of Ethernet and of the loopback interface (linux/if_arp.h); both carry Ethernet
/// frames.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// One network interface, as of the time of the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Largest packet, bytes.
    pub mtu: usize,
    /// True if it is switched on.
    pub is_up: bool,
    /// True if it is connected (has a carrier).
    pub is_running: bool,
    /// True for a loopback interface.
    pub is_loopback: bool,
    /// True if it takes multicast packets.
    pub is_multicast: bool,
    /// True if it leads to one peer only.
    pub is_point_to_point: bool,
    /// Its Ethernet address, if it carries Ethernet frames.
    pub ethernet: Option<[u8; 6]>,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// Returns all interfaces in this thread's network namespace, by name.
    pub fn all() -> Result<Vec<Interface>, IoError> {
        let failed = |source| IoError::Interface {
            name: "(all)".to_owned(),
            action: "list",
            source,
        };
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(failed)?;
        let mut interfaces: BTreeMap<String, Interface> = BTreeMap::new();
        for entry in getifaddrs().map_err(|error| failed(error.into()))? {
            if !interfaces.contains_key(&entry.interface_name) {
                // The interface may have been removed meanwhile.
                let Ok(interface) = Interface::new(&socket, &entry.interface_name, entry.flags)
                else {
                    continue;
                };
                interfaces.insert(entry.interface_name.clone(), interface);
            }
            if let (Some(interface), Some(address)) =
                (interfaces.get_mut(&entry.interface_name), entry.address)
            {
                interface.note(&address);
            }
        }
        Ok(interfaces.into_values().collect())
    }

    /// Finds an interface in this thread's network namespace by its name or an IP address.
    pub fn find(name_or_address: &str) -> Result<Interface, IoError> {
        let address: Option<IpAddr> = name_or_address.parse().ok();
        Interface::all()?
            .into_iter()
            .find(|interface| {
                interface.name == name_or_address
                    || address.is_some_and(|address| interface.addresses.contains(&address))
            })
            .ok_or_else(|| IoError::NoSuchInterface {
                name: name_or_address.to_owned(),
            })
    }

    /// Returns the place of an interface that this machine does not have yet, for a link that
    /// [waits](crate::EthernetConfig::outlives_interface) for it.
    pub fn awaited(name: &str) -> Interface {
        Interface {
            name: name.to_owned(),
            index: 0,
            // Of Ethernet, until the interface tells its own.
            mtu: 1500,
            is_up: false,
            is_running: false,
            is_loopback: false,
            is_multicast: false,
            is_point_to_point: false,
            ethernet: None,
            addresses: Vec::new(),
        }
    }

    /// Returns true if it is only [awaited](Interface::awaited): the kernel counts from 1.
    pub fn is_awaited(&self) -> bool {
        self.index == 0
    }

    /// Returns true for an interface that is up, takes multicast packets and reaches several
    /// machines.
    pub fn suits_multicast(&self) -> bool {
        self.is_up && self.is_multicast && !self.is_loopback && !self.is_point_to_point
    }

    /// Returns its first IPv4 address.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        })
    }

    /// Returns its link-local IPv6 address.
    pub fn ipv6_link_local(&self) -> Option<Ipv6Addr> {
        self.addresses.iter().find_map(|address| match address {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(*v6),
            _ => None,
        })
    }

    fn new(socket: &Socket, name: &str, flags: InterfaceFlags) -> io::Result<Interface> {
        Ok(Interface {
            name: name.to_owned(),
            index: rustix::net::netdevice::name_to_index(socket, name)?,
            mtu: mtu_of(socket, name)?,
            is_up: flags.contains(InterfaceFlags::IFF_UP),
            is_running: flags.contains(InterfaceFlags::IFF_RUNNING),
            is_loopback: flags.contains(InterfaceFlags::IFF_LOOPBACK),
            is_multicast: flags.contains(InterfaceFlags::IFF_MULTICAST),
            is_point_to_point: flags.contains(InterfaceFlags::IFF_POINTOPOINT),
            ethernet: None,
            addresses: Vec::new(),
        })
    }

    fn note(&mut self, address: &SockaddrStorage) {
        if let Some(ip) = ip_of(address) {
            self.addresses.push(ip);
        } else if let Some(link) = address.as_link_addr()
            && matches!(link.hatype(), ARPHRD_ETHER | ARPHRD_LOOPBACK)
        {
            self.ethernet = link.addr();
        }
    }
}

/// The addresses of this machine that are of interfaces which are switched on and connected.
///
/// An interface that is on and has no carrier keeps its addresses and routes (`ip-sysctl`,
/// `ignore_routes_with_linkdown`), so a route alone does not tell that packets leave.
#[derive(Debug)]
pub(crate) struct WorkingAddresses(Option<BTreeSet<IpAddr>>);

impl WorkingAddresses {
    /// Asks the kernel. If it does not tell, all addresses count as working.
    pub(crate) fn now() -> WorkingAddresses {
        let works = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
        let entries = getifaddrs().ok();
        WorkingAddresses(entries.map(|entries| {
            let working = entries.filter(|entry| entry.flags.contains(works));
            working.filter_map(|entry| ip_of(&entry.address?)).collect()
        }))
    }

    pub(crate) fn has(&self, address: IpAddr) -> bool {
        let known = self.0.as_ref();
        known.is_none_or(|known| known.contains(&address.to_canonical()))
    }
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

/// Returns the largest packet of an interface, bytes.
pub(crate) fn mtu_of(socket: &Socket, name: &str) -> io::Result<usize> {
    let mut request = ioctl::Request::for_interface(name).ok_or(io::ErrorKind::InvalidInput)?;
    ioctl::get_mtu(socket, &mut request)?;
    Ok(usize::try_from(request.mtu()).unwrap_or(0))
}

/// Returns the name of the interface that an address is local to, if it is a link-local IPv6 address
/// with its interface's number.
pub(crate) fn of_address(address: SocketAddr) -> Option<String> {
    let SocketAddr::V6(v6) = address else {
        return None;
    };
    if !v6.ip().is_unicast_link_local() || v6.scope_id() == 0 {
        return None;
    }
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
    let name = rustix::net::netdevice::index_to_name_inlined(&socket, v6.scope_id()).ok()?;
    Some(name.as_str().to_owned())
}

/// Returns true while the interface exists in this thread's network namespace.
pub(crate) fn exists(index: u32) -> bool {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
        .is_ok_and(|socket| rustix::net::netdevice::index_to_name_inlined(&socket, index).is_ok())
}

/// Returns the current MTU of an interface, or `None` if it cannot be queried.
pub(crate) fn current_mtu(name: &str) -> Option<usize> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).ok()?;
    mtu_of(&socket, name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_by_name_and_by_address() {
        let by_name = Interface::find("lo").unwrap();
        assert!(by_name.is_loopback && by_name.index > 0 && by_name.mtu > 1000);
        assert!(!by_name.suits_multicast());
        if by_name.ipv4().is_some() {
            assert_eq!(Interface::find("127.0.0.1").unwrap(), by_name);
        }
        assert!(exists(by_name.index));
    }

    #[test]
    fn the_address_of_a_working_interface_works_and_a_foreign_one_does_not() {
        let loopback = Interface::find("lo").unwrap();
        let working = WorkingAddresses::now();
        for address in &loopback.addresses {
            assert_eq!(working.has(*address), loopback.is_running, "{address}");
        }
        // RFC 5737: no machine has it.
        assert!(!working.has(IpAddr::from([192, 0, 2, 77])));
        assert!(WorkingAddresses(None).has(IpAddr::from([192, 0, 2, 77])));
    }

    #[test]
    fn the_error_for_a_missing_interface_names_it() {
        let error = Interface::find("no-such-net0").unwrap_err();
        assert!(error.to_string().contains("no-such-net0"), "{error}");
        assert!(!exists(u32::MAX >> 1));
    }
}
