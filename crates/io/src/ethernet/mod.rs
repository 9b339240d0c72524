//! Ethernet links: frames of one EtherType on one interface, to single stations and to one group,
//! without IP.
//!
//! A machine sees the payload of each frame. An Ethernet frame has at least 46 octets of payload;
//! shorter ones are padded with zeros on the way, and the frame does not tell: **a decoder must
//! treat everything after the packet as padding**, unless the link says the length of each packet
//! before it ([`EthernetConfig::has_lengths`]). A machine never receives the frames that it sends.

mod away;
mod endpoint;
mod send;
mod socket;

use std::io;
use std::os::fd::OwnedFd;

use whimbrel_core::{PortId, PortOrigin};

use crate::{InboundLimits, Interface, TransportId};

pub(crate) use endpoint::EthernetEndpoint;

/// Octets of a packet's length before it.
const LENGTH: usize = EthernetConfig::HEADERS;

/// The configuration of an Ethernet link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetConfig {
    /// The link's name: in [`whimbrel_core::PortInfo`] of the group and of inbound peers, in logs
    /// and in errors.
    pub label: String,
    /// The interface, as returned by [`Interface::all`] or [`Interface::find`].
    pub interface: Interface,
    /// The EtherType of the frames, above 0x05ff.
    pub ether_type: u16,
    /// A group address that gets a port of its own.
    pub group: Option<[u8; 6]>,
    /// Stations that have a port from the start.
    pub neighbours: Vec<EthernetNeighbour>,
    /// Bounds of the ports for stations that are not configured; `None` admits none of them.
    pub inbound: Option<InboundLimits>,
    /// The listener number in the origin of inbound peers' ports.
    pub listener: u32,
    /// Two octets with the length of the packet precede it, so that padding does not reach the
    /// machine.
    pub has_lengths: bool,
    /// Bound of the payload, bytes, with those octets; a smaller MTU of the interface takes
    /// precedence.
    pub largest_payload: usize,
    /// When the interface is gone, or [has not come yet](Interface::awaited), the ports stay and wait
    /// for one of that name; otherwise the link ends.
    pub outlives_interface: bool,
    /// Refuse to open the link while another program of this machine has such a one.
    pub is_sole: bool,
}

impl EthernetConfig {
    /// Octets of the interface's MTU that are no payload on a link
    /// [for whole packets](EthernetConfig::for_whole_packets).
    pub const HEADERS: usize = 2;

    /// Returns a link with no group, no neighbours and no inbound peers.
    pub fn new(label: impl Into<String>, interface: Interface, ether_type: u16) -> EthernetConfig {
        EthernetConfig {
            label: label.into(),
            interface,
            ether_type,
            group: None,
            neighbours: Vec::new(),
            inbound: None,
            listener: 0,
            has_lengths: false,
            largest_payload: usize::MAX,
            outlives_interface: false,
            is_sole: false,
        }
    }

    /// Makes it a link for packets that end where the machine ended them, and that only this
    /// program receives; it outlives its interface.
    pub fn for_whole_packets(mut self, largest_payload: usize) -> EthernetConfig {
        self.has_lengths = true;
        self.largest_payload = largest_payload;
        self.outlives_interface = true;
        self.is_sole = true;
        self
    }

    /// Lets a socket receive the link's frames from the interface as it is now.
    fn receive(&self, socket: &OwnedFd) -> io::Result<()> {
        socket::bind(socket, self.interface.index, self.ether_type)?;
        match self.group {
            Some(group) => socket::join(socket, self.interface.index, group),
            None => Ok(()),
        }
    }

    /// Returns the largest frame of a machine at an MTU of the interface.
    pub(crate) fn largest_frame(&self, mtu: usize) -> usize {
        let lengths = if self.has_lengths { LENGTH } else { 0 };
        mtu.min(self.largest_payload).saturating_sub(lengths).max(1)
    }

    /// Adds a port for the group at this address.
    pub fn group(mut self, address: [u8; 6]) -> EthernetConfig {
        self.group = Some(address);
        self
    }

    /// Adds a neighbour. Its link number is the count of neighbours before it.
    pub fn neighbour(mut self, label: impl Into<String>, address: [u8; 6]) -> EthernetConfig {
        self.neighbours.push(EthernetNeighbour {
            label: label.into(),
            address,
            origin: PortOrigin::Configured(self.neighbours.len() as u32),
        });
        self
    }

    /// Sets the listener number in the origin of inbound peers' ports. Default 0.
    pub fn listener(mut self, number: u32) -> EthernetConfig {
        self.listener = number;
        self
    }

    /// Admits inbound peers within `limits`.
    pub fn listen(mut self, limits: InboundLimits) -> EthernetConfig {
        self.inbound = Some(limits);
        self
    }
}

/// A configured station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetNeighbour {
    /// Its name.
    pub label: String,
    /// Its address.
    pub address: [u8; 6],
    /// The origin of its port.
    pub origin: PortOrigin,
}

/// An open Ethernet link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetLink {
    /// Names the link when neighbours are added or the link is closed.
    pub transport: TransportId,
    /// The interface's own address.
    pub local: [u8; 6],
    /// The group's port, if one is configured.
    pub group: Option<PortId>,
    /// One port per configured neighbour, in their order.
    pub ports: Vec<PortId>,
}

/// Formats an address as six pairs of hexadecimal digits.
pub(crate) fn written(address: [u8; 6]) -> String {
    address.map(|octet| format!("{octet:02x}")).join(":")
}
