//! UDP links: one socket, its configured neighbours and, if it listens, its callers; or one
//! multicast group.

mod callers;
mod endpoint;
mod group;
mod path_mtu;
mod send;
mod socket;
mod source;

use std::net::SocketAddr;

use whimbrel_core::{Peer, PortId, PortOrigin};

use crate::TransportId;

pub use callers::CallerLimits;
pub(crate) use callers::{CallerTable, Room};
pub(crate) use endpoint::{ReceiveBuffers, UdpEndpoint};
pub use group::{UdpMulticastConfig, UdpMulticastLink};
pub(crate) use socket::canonical;

/// Bytes that each of the kernel's UDP buffers should have: at 1 Gbit/s, 64 ms of traffic.
const WANTED_BUFFER: usize = 8 << 20;

/// What to bind and who is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The link's name: in [`whimbrel_core::PortInfo`] of callers, in logs and errors.
    pub label: String,
    /// Address and port to bind; port 0 lets the kernel choose. `[::]` speaks IPv4 as well.
    pub bind: SocketAddr,
    /// Peers that have a port from the start.
    pub neighbours: Vec<Neighbour>,
    /// Whether, and within which bounds, peers that nobody configured get a port when they call.
    pub callers: Option<CallerLimits>,
    /// What ports of callers say they came by.
    pub listener: u32,
    /// Path MTU to assume, bytes of IP packet; where the kernel's route says less, that holds.
    /// Default 1500.
    pub path_mtu: usize,
    /// Kernel receive buffer to ask for, bytes. Default 8 MiB.
    pub receive_buffer: usize,
    /// Kernel send buffer to ask for, bytes. Default 8 MiB.
    pub send_buffer: usize,
    /// Whether to let the kernel split large sends (GSO). Default yes; it is given up where it
    /// fails.
    pub segmentation_offload: bool,
}

impl UdpConfig {
    /// A socket with neither neighbours nor callers yet, and defaults for the rest.
    pub fn new(label: impl Into<String>, bind: SocketAddr) -> UdpConfig {
        UdpConfig {
            label: label.into(),
            bind,
            neighbours: Vec::new(),
            callers: None,
            listener: 0,
            path_mtu: 1500,
            receive_buffer: WANTED_BUFFER,
            send_buffer: WANTED_BUFFER,
            segmentation_offload: true,
        }
    }

    /// With one more neighbour, whose link has the number of neighbours before it.
    pub fn neighbour(mut self, label: impl Into<String>, address: SocketAddr) -> UdpConfig {
        let origin = PortOrigin::Configured(self.neighbours.len() as u32);
        self.neighbours.push(Neighbour::new(label, address, origin));
        self
    }

    /// Callers say that they came by the listener of this number. Default 0.
    pub fn listener(mut self, number: u32) -> UdpConfig {
        self.listener = number;
        self
    }

    /// Listening for callers within `limits`.
    pub fn listen(mut self, limits: CallerLimits) -> UdpConfig {
        self.callers = Some(limits);
        self
    }
}

/// A configured peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its name.
    pub label: String,
    /// Where it is. A host name is looked up without holding up anything else: the port comes up
    /// when that has succeeded, however long it takes.
    pub address: Peer,
    /// What its port says of itself.
    pub origin: PortOrigin,
}

impl Neighbour {
    /// A neighbour whose port comes up with this origin.
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

/// A UDP link as it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpLink {
    /// To add neighbours later, or to close the link.
    pub transport: TransportId,
    /// What it is bound to, with the port that the kernel chose.
    pub local: SocketAddr,
    /// One port per configured neighbour whose address is known, in their order.
    pub ports: Vec<PortId>,
    /// Bytes of kernel receive buffer that were granted; less than asked for where
    /// `net.core.rmem_max` forbids.
    pub receive_buffer: usize,
    /// Bytes of kernel send buffer that were granted; less than asked for where `net.core.wmem_max`
    /// forbids.
    pub send_buffer: usize,
}
