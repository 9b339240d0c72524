//! UDP multicast: one port for a whole group on one interface.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use rustix::net::sockopt;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use whimbrel_core::{Machine, Medium, PortId, PortInfo, PortOrigin, SeededRng, Time};

use super::endpoint::{Peer, UdpEndpoint};
use super::path_mtu::payload_within;
use super::{DatagramCarrier, UdpConfig};
use crate::interface::current_mtu;
use crate::side::MachineSide;
use crate::{Interface, IoError, TransportId};

/// Kernel buffers of a group, which carries little traffic.
const BUFFER: usize = 1 << 20;

/// The configuration of a multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpMulticastConfig {
    /// The name of the port in [`whimbrel_core::PortInfo`].
    pub label: String,
    /// The group's address and port.
    pub group: SocketAddr,
    /// The interface, as returned by [`Interface::all`] or [`Interface::find`].
    pub interface: Interface,
    /// The TTL or hop limit of sent packets. Default 1: they stay on the link.
    pub hops: u8,
}

impl UdpMulticastConfig {
    /// Returns `group` on `interface`, for this link only.
    pub fn new(
        label: impl Into<String>,
        group: SocketAddr,
        interface: Interface,
    ) -> UdpMulticastConfig {
        UdpMulticastConfig {
            label: label.into(),
            group,
            interface,
            hops: 1,
        }
    }
}

/// A multicast group on an interface that the machine may not have yet.
#[derive(Clone, Debug)]
pub(crate) struct AwaitedGroup {
    pub(crate) label: String,
    pub(crate) group: SocketAddr,
    pub(crate) interface: String,
}

impl AwaitedGroup {
    /// Returns true if an interface, or its address, is all that is missing.
    pub(crate) fn may_come(&self, error: &IoError) -> bool {
        match error {
            IoError::NoSuchInterface { .. } => true,
            IoError::UnsuitedForMulticast { .. } => self.group.ip().is_multicast(),
            _ => false,
        }
    }
}

/// A joined multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpMulticastLink {
    /// Names the group when it is left; closing the port leaves it, too.
    pub transport: TransportId,
    /// The port of the group.
    pub port: PortId,
    /// The source address of sent datagrams.
    pub local: SocketAddr,
}

/// The endpoint's state of a joined group.
#[derive(Debug)]
pub(crate) struct Group {
    interface: String,
    address: SocketAddr,
    local: SocketAddr,
    pub(super) port: Option<PortId>,
}

impl Group {
    /// Returns the largest datagram for the interface now, within a path MTU of `assumed` bytes.
    pub(super) fn largest_payload(&self, assumed: usize) -> usize {
        let mtu = current_mtu(&self.interface).map_or(assumed, |mtu| mtu.min(assumed));
        payload_within(mtu, DatagramCarrier::Udp.headers(self.address.is_ipv4()))
    }
}

impl UdpEndpoint {
    /// Opens a socket in a multicast group. [`UdpEndpoint::open_group`] opens its port.
    pub(crate) fn join(
        config: UdpMulticastConfig,
        slot: usize,
        token: u64,
        rng: &mut SeededRng,
    ) -> Result<UdpEndpoint, IoError> {
        let (socket, group) = join(&config)?;
        let bound = (group.local, (0, 0));
        let config = UdpConfig {
            path_mtu: usize::MAX,
            ..UdpConfig::new(config.label, config.group)
        };
        let mut endpoint = UdpEndpoint::new(config, socket, bound, slot, token, rng)?;
        endpoint.group = Some(group);
        Ok(endpoint)
    }

    /// Opens the port of the group.
    pub(crate) fn open_group<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
    ) -> Result<PortId, IoError> {
        let label = self.config.label.clone();
        let out_of_ports = || IoError::OutOfPorts {
            label: label.clone(),
        };
        let group = self.group.as_mut().ok_or(IoError::NoSuchLink)?;
        let (interface, local, address) = (group.interface.clone(), group.local, group.address);
        let mtu = group.largest_payload(self.config.path_mtu);
        let medium = Medium::UdpMulticast {
            interface,
            local,
            group: address,
        };
        let info = PortInfo {
            label: label.clone(),
            origin: PortOrigin::Configured(0),
            mtu,
            peer: address.to_string(),
            medium,
        };
        let port = side.open(now, self.slot, info).ok_or_else(out_of_ports)?;
        group.port = Some(port);
        self.peers.insert(port, Peer::of_group(address, mtu));
        Ok(port)
    }

    /// Returns true if the socket serves one multicast group and nothing else.
    pub(crate) fn is_group(&self) -> bool {
        self.group.is_some()
    }
}

/// Opens a socket that receives only traffic to the group on this interface, and sends on this
/// interface. Other programs on this machine may join as well. Datagrams that this machine sends do
/// not come back to it.
fn join(config: &UdpMulticastConfig) -> Result<(Socket, Group), IoError> {
    let interface = &config.interface;
    let group = match config.group {
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, interface.index).into(),
        v4 => v4,
    };
    let own = match group.ip() {
        _ if !group.ip().is_multicast() => None,
        IpAddr::V4(_) => interface
            .ipv4()
            .map(|v4| SocketAddr::from((v4, group.port()))),
        IpAddr::V6(_) => interface
            .ipv6_link_local()
            .map(|v6| SocketAddr::V6(SocketAddrV6::new(v6, group.port(), 0, interface.index))),
    };
    let Some(local) = own else {
        return Err(IoError::UnsuitedForMulticast {
            name: interface.name.clone(),
            group: config.group,
        });
    };
    let failed = |action| {
        let (label, address) = (config.label.clone(), config.group);
        move |source| IoError::UdpSocket {
            label,
            address,
            action,
            source,
        }
    };
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))
        .map_err(failed("create"))?;
    socket.set_reuse_address(true).map_err(failed("share"))?;
    if group.is_ipv6() {
        socket.set_only_v6(true).map_err(failed("configure"))?;
    }
    // A socket bound to the group's address receives no unicast datagrams.
    socket.bind(&group.into()).map_err(failed("bind"))?;
    match group.ip() {
        IpAddr::V4(address) => socket
            .join_multicast_v4_n(&address, &InterfaceIndexOrAddress::Index(interface.index))
            .and_then(|()| socket.set_multicast_all_v4(false))
            .and_then(|()| {
                let index = interface.index;
                Ok(sockopt::set_ip_multicast_if_with_ifindex(
                    &socket,
                    &address,
                    &std::net::Ipv4Addr::UNSPECIFIED,
                    index,
                )?)
            })
            .and_then(|()| socket.set_multicast_ttl_v4(config.hops.into()))
            .and_then(|()| socket.set_multicast_loop_v4(false)),
        IpAddr::V6(address) => socket
            .join_multicast_v6(&address, interface.index)
            .and_then(|()| socket.set_multicast_all_v6(false))
            .and_then(|()| socket.set_multicast_if_v6(interface.index))
            .and_then(|()| socket.set_multicast_hops_v6(config.hops.into()))
            .and_then(|()| socket.set_multicast_loop_v6(false)),
    }
    .map_err(failed("join a group with"))?;
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = socket.set_send_buffer_size(BUFFER);
    Ok((
        socket,
        Group {
            interface: interface.name.clone(),
            address: group,
            local,
            port: None,
        },
    ))
}
