//! The network interfaces of this machine.

pub(crate) mod ioctl;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use socket2::{Domain, Socket, Type};

use crate::IoError;

/// Hardware type of Ethernet and of the loopback interface (linux/if_arp.h); both carry Ethernet
/// frames.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// One network interface, as it was when it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Largest packet, bytes.
    pub mtu: usize,
    /// Switched on.
    pub is_up: bool,
    /// Connected: a cable is in, or whatever stands for it.
    pub is_running: bool,
    /// Leads back to this machine.
    pub is_loopback: bool,
    /// Takes multicast packets.
    pub is_multicast: bool,
    /// Leads to one peer only.
    pub is_point_to_point: bool,
    /// Its Ethernet address, if it carries Ethernet frames.
    pub ethernet: Option<[u8; 6]>,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// All interfaces in the network namespace of this thread, by name.
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
                // It may have gone since.
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

    /// The interface of that name, or with that IP address; in the network namespace of this
    /// thread.
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

    /// Up, takes multicast packets, and leads to more than this machine or one peer.
    pub fn suits_multicast(&self) -> bool {
        self.is_up && self.is_multicast && !self.is_loopback && !self.is_point_to_point
    }

    /// Its first IPv4 address.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.addresses.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        })
    }

    /// Its link-local IPv6 address.
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
        if let Some(v4) = address.as_sockaddr_in() {
            self.addresses.push(v4.ip().into());
        } else if let Some(v6) = address.as_sockaddr_in6() {
            self.addresses.push(v6.ip().into());
        } else if let Some(link) = address.as_link_addr()
            && matches!(link.hatype(), ARPHRD_ETHER | ARPHRD_LOOPBACK)
        {
            self.ethernet = link.addr();
        }
    }
}

/// Largest packet of an interface, bytes.
pub(crate) fn mtu_of(socket: &Socket, name: &str) -> io::Result<usize> {
    let mut request = ioctl::Request::for_interface(name).ok_or(io::ErrorKind::InvalidInput)?;
    ioctl::get_mtu(socket, &mut request)?;
    Ok(usize::try_from(request.mtu()).unwrap_or(0))
}

/// Whether the interface still exists, in the network namespace of this thread.
pub(crate) fn exists(index: u32) -> bool {
    Socket::new(Domain::IPV4, Type::DGRAM, None)
        .is_ok_and(|socket| rustix::net::netdevice::index_to_name_inlined(&socket, index).is_ok())
}

/// Largest packet of an interface now, if it can be asked.
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
    fn what_does_not_exist_is_named() {
        let error = Interface::find("no-such-net0").unwrap_err();
        assert!(error.to_string().contains("no-such-net0"), "{error}");
        assert!(!exists(u32::MAX >> 1));
    }
}
