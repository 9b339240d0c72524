//! UDP links: one socket with its configured neighbours and, if it listens, its inbound peers; or
//! one multicast group. Links of bare IP differ in the carrier only.

mod carrier;
mod endpoint;
mod filter;
mod group;
mod inbound;
mod lanes;
mod path_mtu;
mod receive;
mod send;
mod socket;
mod source;

use std::net::{IpAddr, SocketAddr};

use whimbrel_core::{Peer, PortId, PortOrigin};

use crate::TransportId;

pub use carrier::{DatagramCarrier, IP_PROTOCOL};
pub(crate) use endpoint::UdpEndpoint;
pub(crate) use group::AwaitedGroup;
pub use group::{UdpMulticastConfig, UdpMulticastLink};
pub use inbound::InboundLimits;
pub(crate) use inbound::InboundTable;
pub(crate) use receive::ReceiveBuffers;
pub(crate) use socket::canonical;

/// Wanted size of each kernel buffer, bytes: at 1 Gbit/s, 64 ms of traffic.
const WANTED_BUFFER: usize = 8 << 20;

/// The configuration of a UDP link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The link's name: in [`whimbrel_core::PortInfo`] of inbound peers, in logs and errors.
    pub label: String,
    /// What carries the datagrams. Default UDP.
    pub carrier: DatagramCarrier,
    /// Address and port to bind. Port 0 lets the kernel choose; `[::]` includes IPv4. The port of
    /// bare IP is 0.
    pub bind: SocketAddr,
    /// Peers that have a port from the start.
    pub neighbours: Vec<Neighbour>,
    /// Bounds of the ports for peers that are not configured; `None` admits none of them.
    pub inbound: Option<InboundLimits>,
    /// The listener number in the origin of inbound peers' ports.
    pub listener: u32,
    /// Assumed path MTU, bytes of IP packet; a smaller MTU of the kernel's route takes precedence.
    /// Default 1500.
    pub path_mtu: usize,
    /// Kernel receive buffer to ask for, bytes. Default 8 MiB.
    pub receive_buffer: usize,
    /// Kernel send buffer to ask for, bytes. Default 8 MiB.
    pub send_buffer: usize,
    /// Lets the kernel split large sends (GSO). Default yes; switched off after a failure.
    pub segmentation_offload: bool,
}

impl UdpConfig {
    /// Returns a socket with no neighbours, no inbound peers, and defaults for the rest.
    pub fn new(label: impl Into<String>, bind: SocketAddr) -> UdpConfig {
        UdpConfig {
            label: label.into(),
            carrier: DatagramCarrier::Udp,
            bind,
            neighbours: Vec::new(),
            inbound: None,
            listener: 0,
            path_mtu: 1500,
            receive_buffer: WANTED_BUFFER,
            send_buffer: WANTED_BUFFER,
            segmentation_offload: true,
        }
    }

    /// Returns a socket of bare IP.
    pub fn over_ip(label: impl Into<String>, bind: IpAddr, protocol: u8) -> UdpConfig {
        UdpConfig {
            carrier: DatagramCarrier::Ip { protocol },
            ..UdpConfig::new(label, (bind, 0).into())
        }
    }

    /// Adds a neighbour. Its link number is the count of neighbours before it.
    pub fn neighbour(mut self, label: impl Into<String>, address: SocketAddr) -> UdpConfig {
        let origin = PortOrigin::Configured(self.neighbours.len() as u32);
        self.neighbours.push(Neighbour::new(label, address, origin));
        self
    }

    /// Sets the listener number in the origin of inbound peers' ports. Default 0.
    pub fn listener(mut self, number: u32) -> UdpConfig {
        self.listener = number;
        self
    }

    /// Admits inbound peers within `limits`.
    pub fn listen(mut self, limits: InboundLimits) -> UdpConfig {
        self.inbound = Some(limits);
        self
    }
}

/// A configured peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name.
    pub label: String,
    /// Its address. A host name is looked up without delaying anything else; the port comes up when
    /// that succeeds, however long it takes.
    pub address: Peer,
    /// The origin of its port.
    pub origin: PortOrigin,
}

impl Neighbour {
    /// Returns a neighbour whose port comes up with this origin.
    pub fn new(
        label: impl Into<String>,
        address: impl Into<Peer>,
        origin: PortOrigin,
    ) -> Neighbour {
        Neighbour {
            label: label.into(),
            address: address.into(),
            origin,
        }
    }
}

/// An open UDP link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpLink {
    /// Names the link when neighbours are added or the link is closed.
    pub transport: TransportId,
    /// The bound address, with the port that the kernel chose.
    pub local: SocketAddr,
    /// The ports of configured neighbours with a known address, in their order.
    pub ports: Vec<PortId>,
    /// The kernel receive buffer granted, bytes. It is limited by `net.core.rmem_max`.
    pub receive_buffer: usize,
    /// The kernel send buffer granted, bytes. It is limited by `net.core.wmem_max`.
    pub send_buffer: usize,
}
