//! Nodes, links and how they are named.

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
    /// Nodes are numbered from 0 in the order in which they were added.
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

/// A direction of a link, seen from the order of the nodes in the call that connected them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the first node to the second.
    AToB,
    /// From the second node to the first.
    BToA,
}

impl Direction {
    /// Both.
    pub const BOTH: [Direction; 2] = [Direction::AToB, Direction::BToA];
}

/// A link between two nodes before it is built: two directions and how its ports look to the
/// machines.
#[derive(Clone, Debug, PartialEq)]
pub struct DuplexLink {
    /// What happens to frames of the first node.
    pub a_to_b: LinkSpec,
    /// What happens to frames of the second node.
    pub b_to_a: LinkSpec,
    /// The label of the first node's port.
    pub a_label: String,
    /// The label of the second node's port.
    pub b_label: String,
    /// How the first node's port came to be. `None`: a configured link, numbered in the order in
    /// which the node was connected.
    pub a_origin: Option<PortOrigin>,
    /// How the second node's port came to be.
    pub b_origin: Option<PortOrigin>,
    /// What the first node is told of what carries the frames. It changes nothing on the link.
    pub a_medium: Medium,
    /// What the second node is told.
    pub b_medium: Medium,
    /// Frames are NDN packets on a stream of bytes: a machine may write several at once, which
    /// arrive one by one, as from a socket whose framing is TLV. What is no whole packet arrives
    /// as it is.
    pub packets: bool,
    /// Largest frame in bytes; a larger one is dropped and counted, as a socket refuses it.
    pub mtu: usize,
    /// Bytes that each frame takes on the wire beyond its own length, on top of
    /// [`LinkSpec::overhead`].
    pub encapsulation: u32,
}

/// A [`DuplexLink`]'s two directions as a scenario file says them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DuplexSpec {
    /// From the first node to the second.
    pub a_to_b: LinkSpec,
    /// From the second node to the first.
    pub b_to_a: LinkSpec,
}

impl DuplexLink {
    /// Neighbours that exchange UDP/IPv4 datagrams in packets of at most 1,500 bytes.
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
            mtu: 1500 - UDP_IPV4_HEADERS as usize,
            encapsulation: UDP_IPV4_HEADERS,
        }
    }

    /// The same in both directions.
    pub fn symmetric(spec: LinkSpec) -> DuplexLink {
        DuplexLink::new(spec.clone(), spec)
    }

    /// A program and its host: no delay, no loss, frames of any size.
    pub fn local() -> DuplexLink {
        DuplexLink {
            a_origin: Some(PortOrigin::Local),
            b_origin: Some(PortOrigin::Local),
            mtu: usize::MAX,
            encapsulation: 0,
            ..DuplexLink::symmetric(LinkSpec::default())
        }
    }

    /// Frames are IP packets themselves: nothing is added to them, and they may have `mtu` bytes.
    pub fn ip(a_to_b: LinkSpec, b_to_a: LinkSpec, mtu: usize) -> DuplexLink {
        DuplexLink {
            mtu,
            encapsulation: 0,
            ..DuplexLink::new(a_to_b, b_to_a)
        }
    }

    /// The same with the labels that the two nodes' configurations would give to it.
    pub fn with_labels(self, a: &str, b: &str) -> DuplexLink {
        DuplexLink {
            a_label: a.to_owned(),
            b_label: b.to_owned(),
            ..self
        }
    }
}

impl DuplexLink {
    /// The same between a port that the first node has for this reason and one that the second has
    /// for that.
    pub fn with_origins(self, a: PortOrigin, b: PortOrigin) -> DuplexLink {
        DuplexLink {
            a_origin: Some(a),
            b_origin: Some(b),
            ..self
        }
    }

    /// The same with what the two nodes are told of what carries the frames.
    pub fn with_media(self, a: Medium, b: Medium) -> DuplexLink {
        DuplexLink {
            a_medium: a,
            b_medium: b,
            ..self
        }
    }
}

/// A node that can be reached by an endpoint: what a listening socket or a device is in the real
/// world.
#[derive(Clone, Debug)]
pub struct Door {
    /// What others ask for, see [`whimbrel_core::PortRequest::Open`].
    pub endpoint: Endpoint,
    /// The node that is reached.
    pub node: NodeId,
    /// How the port that it gets came to be.
    pub origin: PortOrigin,
    /// The link; the node that asks is its first.
    pub link: DuplexLink,
}

impl From<DuplexSpec> for DuplexLink {
    fn from(spec: DuplexSpec) -> DuplexLink {
        DuplexLink::new(spec.a_to_b, spec.b_to_a)
    }
}

/// What connecting two nodes gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The link, for faults and counters.
    pub link: LinkId,
    /// The first node's port.
    pub a: PortId,
    /// The second node's port.
    pub b: PortId,
}
