//! Ethernet links: frames of one EtherType on one interface, to single stations and to one group,
//! without IP.
//!
//! A machine sees the payload of each frame. An Ethernet frame has at least 46 octets of payload;
//! what is shorter is padded with zeros on its way, and nothing in the frame says so: **whoever
//! decodes must take what follows the packet for padding.** Frames that this machine sends are
//! never received by it.

mod endpoint;
mod send;
mod socket;

use whimbrel_core::{PortId, PortOrigin};

use crate::{CallerLimits, Interface, TransportId};

pub(crate) use endpoint::EthernetEndpoint;

/// Which frames to receive, and who is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetConfig {
    /// The link's name: in [`whimbrel_core::PortInfo`] of the group and of callers, in logs and
    /// errors.
    pub label: String,
    /// The interface, as [`Interface::all`] or [`Interface::find`] gave it.
    pub interface: Interface,
    /// The EtherType of the frames, above 0x05ff.
    pub ether_type: u16,
    /// A group address that gets a port of its own, for everybody who listens to it.
    pub group: Option<[u8; 6]>,
    /// Stations that have a port from the start.
    pub neighbours: Vec<EthernetNeighbour>,
    /// Whether, and within which bounds, stations that nobody configured get a port when they call.
    pub callers: Option<CallerLimits>,
    /// What ports of callers say they came by.
    pub listener: u32,
}

impl EthernetConfig {
    /// A link with neither group, neighbours nor callers yet.
    pub fn new(label: impl Into<String>, interface: Interface, ether_type: u16) -> EthernetConfig {
        EthernetConfig {
            label: label.into(),
            interface,
            ether_type,
            group: None,
            neighbours: Vec::new(),
            callers: None,
            listener: 0,
        }
    }

    /// With a port for the group of this address.
    pub fn group(mut self, address: [u8; 6]) -> EthernetConfig {
        self.group = Some(address);
        self
    }

    /// With one more neighbour, whose link has the number of neighbours before it.
    pub fn neighbour(mut self, label: impl Into<String>, address: [u8; 6]) -> EthernetConfig {
        self.neighbours.push(EthernetNeighbour {
            label: label.into(),
            address,
            origin: PortOrigin::Configured(self.neighbours.len() as u32),
        });
        self
    }

    /// Callers say that they came by the listener of this number. Default 0.
    pub fn listener(mut self, number: u32) -> EthernetConfig {
        self.listener = number;
        self
    }

    /// Listening for callers within `limits`.
    pub fn listen(mut self, limits: CallerLimits) -> EthernetConfig {
        self.callers = Some(limits);
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
    /// What its port says of itself.
    pub origin: PortOrigin,
}

/// An Ethernet link as it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EthernetLink {
    /// To add neighbours later, or to close the link.
    pub transport: TransportId,
    /// The interface's own address.
    pub local: [u8; 6],
    /// The group's port, if one was asked for.
    pub group: Option<PortId>,
    /// One port per configured neighbour, in their order.
    pub ports: Vec<PortId>,
}

/// As a person writes it: six pairs of digits.
pub(crate) fn written(address: [u8; 6]) -> String {
    address.map(|octet| format!("{octet:02x}")).join(":")
}
