//! Nodes, links and their names.

use core::fmt;

use serde::{Deserialize, Serialize};
use whimbrel_core::{Endpoint, Medium, PortId, PortOrigin};

use crate::link::LinkSpec;

/// UDP and IPv4 headers of each datagram (RFC 768, RFC 791 without options).
pub const UDP_IPV4_HEADERS: u32 = 28;

/// One node of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// Returns the number of the node; nodes are numbered from 0 in the order of their addition.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// One link of a simulation, both directions of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub(super) u32);

/// A direction of a link, by the order of the nodes in the call that connected them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the first node to the second.
    AToB,
    /// From the second node to the first.
    BToA,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Direction; 2] = [Direction::AToB, Direction::BToA];
}

/// A link between two nodes before it is built: two directions, and the properties of its ports.
#[derive(Clone, Debug, PartialEq)]
pub struct DuplexLink {
    /// The direction from the first node.
    pub a_to_b: LinkSpec,
    /// The direction from the second node.
    pub b_to_a: LinkSpec,
    /// The label of the first node's port.
    pub a_label: String,
    /// The label of the second node's port.
    pub b_label: String,
    /// The origin of the first node's port. `None`: a configured link, numbered in the order of the
    /// node's connections.
    pub a_origin: Option<PortOrigin>,
    /// The origin of the second node's port.
    pub b_origin: Option<PortOrigin>,
    /// The medium reported to the first node. It changes nothing on the link.
    pub a_medium: Medium,
    /// The medium reported to the second node.
    pub b_medium: Medium,
    /// Set if frames are NDN packets on a stream of bytes. A machine may then write several at
    /// once, which arrive one by one, as from a socket whose framing is TLV. A remainder that is
    /// not a whole packet arrives unchanged.
    pub packets: bool,
    /// Set if frames are IPv4 packets, which carry their own ECN codepoint; frames that begin with
    /// another octet than 0x45 carry none.
    pub ip: bool,
    /// Largest frame, bytes. A larger one is dropped and counted, as by a socket.
    pub mtu: usize,
    /// Bytes that each frame takes on the wire beyond its own length, on top of
    /// [`LinkSpec::overhead`].
    pub encapsulation: u32,
}

/// The two directions of a [`DuplexLink`], as in a scenario file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DuplexSpec {
    /// From the first node to the second.
    pub a_to_b: LinkSpec,
    /// From the second node to the first.
    pub b_to_a: LinkSpec,
}

impl DuplexLink {
    /// Returns a link that carries UDP/IPv4 datagrams in packets of at most 1,500 bytes.
    pub fn new(a_to_b: LinkSpec, b_to_a: LinkSpec) -> DuplexLink {
        DuplexLink {
            a_to_b,
            b_to_a,
            a_label: String::from("link"),
            b_label: String::from("link"),
            a_origin: None,
            b_origin: None,
            a_medium: Medium::Unaddressed,
            b_medium: Medium::Unaddressed,
            packets: false,
            ip: false,
            mtu: 1500 - UDP_IPV4_HEADERS as usize,
            encapsulation: UDP_IPV4_HEADERS,
        }
    }

    /// Returns a link with the same specification in both directions.
    pub fn symmetric(spec: LinkSpec) -> DuplexLink {
        DuplexLink::new(spec.clone(), spec)
    }

    /// Returns a link between a program and its host: no delay, no loss, frames of any size.
    pub fn local() -> DuplexLink {
        DuplexLink {
            a_origin: Some(PortOrigin::Local),
            b_origin: Some(PortOrigin::Local),
            mtu: usize::MAX,
            encapsulation: 0,
            ..DuplexLink::symmetric(LinkSpec::default())
        }
    }

    /// Returns a link whose frames are IP packets of at most `mtu` bytes, without encapsulation.
    pub fn ip(a_to_b: LinkSpec, b_to_a: LinkSpec, mtu: usize) -> DuplexLink {
        DuplexLink {
            mtu,
            ip: true,
            encapsulation: 0,
            ..DuplexLink::new(a_to_b, b_to_a)
        }
    }

    /// Sets the labels of the two nodes' ports.
    pub fn with_labels(self, a: &str, b: &str) -> DuplexLink {
        DuplexLink {
            a_label: a.to_owned(),
            b_label: b.to_owned(),
            ..self
        }
    }
}

impl DuplexLink {
    /// Sets the origins of the two nodes' ports.
    pub fn with_origins(self, a: PortOrigin, b: PortOrigin) -> DuplexLink {
        DuplexLink {
            a_origin: Some(a),
            b_origin: Some(b),
            ..self
        }
    }

    /// Sets the media reported to the two nodes.
    pub fn with_media(self, a: Medium, b: Medium) -> DuplexLink {
        DuplexLink {
            a_medium: a,
            b_medium: b,
            ..self
        }
    }
}

/// A node that an endpoint leads to: the simulated counterpart of a listening socket or a device.
#[derive(Clone, Debug)]
pub struct Door {
    /// The endpoint to ask for, see [`whimbrel_core::PortRequest::Open`].
    pub endpoint: Endpoint,
    /// The node behind it.
    pub node: NodeId,
    /// The origin of the port that the node gets.
    pub origin: PortOrigin,
    /// The link; the requesting node is its first.
    pub link: DuplexLink,
}

impl From<DuplexSpec> for DuplexLink {
    fn from(spec: DuplexSpec) -> DuplexLink {
        DuplexLink::new(spec.a_to_b, spec.b_to_a)
    }
}

/// The result of connecting two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The link, for faults and counters.
    pub link: LinkId,
    /// The first node's port.
    pub a: PortId,
    /// The second node's port.
    pub b: PortId,
}
