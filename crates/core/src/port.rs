//! Ports: the adjacencies of a machine, how they are opened, and requests about them.
//!
//! A port comes up in one of four ways, and says which ([`PortOrigin`]): its driver was configured
//! with it, the machine requested it ([`PortRequest::Open`]), an inbound peer connected to a
//! listener, or a program on this machine attached. A port's label carries nothing of its identity.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::{FrameShape, PortId, Time};

/// A driver's report about a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// The port exists from now on.
    Up(PortInfo),
    /// The port is closed: the local program left, the socket failed for good, or the inbound peer
    /// was idle for too long.
    Down,
    /// Its largest frame is now this many bytes (path MTU found or changed). Said again, be it of
    /// the same size, when the frames take another way: from another address of this machine, or
    /// after there was no route.
    Mtu(usize),
    /// Writing must wait for [`PortEvent::Writable`].
    Blocked,
    /// It can be written to again.
    Writable,
    /// The peer's machine answers that no program receives there. The port stays, and a program may
    /// be started later.
    Refused,
    /// Whether what carries the frames works, as far as this machine can tell: the interface by
    /// which they leave is switched on and connected and has an address, and a route leads to the
    /// peer. Said when it changes; until then it is taken to work. A peer may be out of reach
    /// nevertheless.
    Carrier(bool),
    /// The next frames of this port, as many as stated, carry this codepoint (RFC 3168 §5). Reported when it
    /// changes between [`Ecn::NotCapable`] and the others, and for every batch with marks.
    Ecn {
        /// The codepoint.
        codepoint: Ecn,
        /// The number of frames.
        frames: u32,
    },
}

/// A driver's report that it cannot look up the host name of a configured peer, which therefore has
/// no port yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUpFailure {
    /// The origin of the port that the peer will have.
    pub origin: PortOrigin,
    /// The host name.
    pub host: String,
    /// The system's error.
    pub error: String,
    /// When the name is looked up again.
    pub again_at: Time,
}

/// What the headers of a frame's carrier say of congestion (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not-ECT: the sender would not understand a mark, or the path clears marks.
    #[default]
    NotCapable,
    /// ECT: a queue may mark the frame instead of dropping it.
    Capable,
    /// CE: a queue on the path is too long.
    Marked,
}

/// The properties of a port when it comes up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The name of the link, the listener or the local socket in the configuration: for logs and
    /// tables only.
    pub label: String,
    /// How it was opened.
    pub origin: PortOrigin,
    /// Largest frame, in bytes.
    pub mtu: usize,
    /// The other end in text (an address and port number), for logs and tables only.
    pub peer: String,
    /// The carrier of the frames, with the addresses of the two ends for code that formats them
    /// itself.
    pub medium: Medium,
}

/// The carrier of a port's frames, and the addresses of its two ends.
///
/// A port that a listener accepted has the listener's address as its local one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Medium {
    /// A carrier without addresses: a simulated link, a test.
    #[default]
    Unaddressed,
    /// Datagrams to and from one peer. If the socket is bound to all addresses, `local` is the one
    /// that the kernel's routes select towards the peer, or that the peer connected to.
    Udp {
        /// The local end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// Name of the interface that a link-local IPv6 address of the peer is local to.
        interface: Option<String>,
    },
    /// IP packets of one protocol number to and from one peer. `local` is chosen as for UDP.
    Ip {
        /// The local end.
        local: IpAddr,
        /// The peer.
        remote: IpAddr,
    },
    /// Datagrams to and from all members of a multicast group on one interface.
    UdpMulticast {
        /// Name of the interface.
        interface: String,
        /// The local end.
        local: SocketAddr,
        /// The group.
        group: SocketAddr,
    },
    /// A TCP connection.
    Tcp {
        /// The local end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// As for UDP.
        interface: Option<String>,
    },
    /// A WebSocket connection (not encrypted): one binary message is one frame.
    WebSocket {
        /// The local end.
        local: SocketAddr,
        /// The peer.
        remote: SocketAddr,
        /// The origin of the web page at the other end, such as `https://app.example`; `None` for a
        /// program that is not a browser.
        origin: Option<String>,
    },
    /// A Unix stream socket.
    Unix {
        /// The socket file; `None` for a stream that was handed over.
        path: Option<PathBuf>,
        /// This process' file descriptor of the connection.
        descriptor: i32,
        /// True if the other program connected to this one.
        accepted: bool,
    },
    /// Ethernet frames to and from one station, or a group of them: the group bit (lowest bit of
    /// the first octet) of `remote` tells. A frame shorter than 46 octets arrives with padding at
    /// its end.
    Ethernet {
        /// Name of the interface.
        interface: String,
        /// The interface's address.
        local: [u8; 6],
        /// The peer's address, or the group's.
        remote: [u8; 6],
    },
    /// A network device of this machine; its packets are the frames.
    Tun {
        /// Name of the device.
        interface: String,
    },
}

impl Medium {
    /// Returns true if more than one peer may be at the other end.
    pub fn is_shared(&self) -> bool {
        match self {
            Medium::UdpMulticast { .. } => true,
            Medium::Ethernet {
                remote: [first, ..],
                ..
            } => first & 1 == 1,
            _ => false,
        }
    }

    /// Returns the address that identifies the peer of a datagram medium to a [`CallerGate`]: of UDP
    /// address and port, of bare IP port 0, of Ethernet [`address_of_station`].
    pub fn caller_address(&self) -> Option<SocketAddr> {
        match self {
            Medium::Udp { remote, .. } => Some(*remote),
            Medium::Ip { remote, .. } => Some(SocketAddr::new(*remote, 0)),
            Medium::Ethernet { remote, .. } => Some(address_of_station(*remote)),
            _ => None,
        }
    }

    /// Returns true for a stream of bytes. If its framing is self-delimiting (as configured at its
    /// opening), one [`Transmit`](crate::Transmit) may carry several whole packets of any size with
    /// `segment_size: None`.
    pub fn is_stream(&self) -> bool {
        matches!(self, Medium::Tcp { .. } | Medium::Unix { .. })
    }
}

/// Returns the address that stands for an Ethernet station where addresses of callers are compared,
/// hashed and given shares: its link-local IPv6 address (RFC 4291, appendix A). All stations are in
/// one network of 64 bits, and so have one share: a program on the wire can send from, and receive
/// at, any address.
pub fn address_of_station(station: [u8; 6]) -> SocketAddr {
    let [a, b, c, d, e, f] = station;
    let identifier = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    let address = 0xfe80_u128 << 112 | u128::from(u64::from_be_bytes(identifier));
    SocketAddr::new(Ipv6Addr::from(address).into(), 0)
}

/// How a port was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortOrigin {
    /// A link of the configuration, by its number: a neighbour whose frames may be lost, reordered,
    /// duplicated and corrupted.
    Configured(u32),
    /// The machine requested it with this token; otherwise as a configured neighbour.
    Opened(PortToken),
    /// An inbound peer, not configured, connected to the listener with this number.
    Accepted(u32),
    /// A program on this machine: frames arrive whole, once and in order.
    Local,
}

impl PortOrigin {
    /// Returns true for an inbound peer: the name that it claims is not proven.
    pub fn is_caller(self) -> bool {
        matches!(self, PortOrigin::Accepted(_))
    }

    /// Returns true for a program on this machine.
    pub fn is_local(self) -> bool {
        self == PortOrigin::Local
    }

    /// Returns true for a neighbour that this node chose: configured, or opened at the machine's
    /// request.
    pub fn is_chosen(self) -> bool {
        matches!(self, PortOrigin::Configured(_) | PortOrigin::Opened(_))
    }
}

/// Identifies one request of a machine to open a port. The machine chooses it, and reuses a token
/// only after its request has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortToken(pub u64);

/// A machine's request to its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRequest {
    /// Open a port. It comes up with [`PortOrigin::Opened`] and this token, or the driver calls
    /// [`Machine::handle_refusal`](crate::Machine::handle_refusal): one of the two, once. Resolving
    /// a host name blocks nothing else.
    Open {
        /// Identifies the request.
        token: PortToken,
        /// The port's label.
        label: String,
        /// The other end.
        endpoint: Endpoint,
    },
    /// Close the port and forget it; the driver answers with [`PortEvent::Down`].
    Close(PortId),
    /// Keep the inbound peer on this port, however long it is silent.
    Keep(PortId),
    /// The peer on this port is unresponsive: if it is known by a host name, look that up again,
    /// and move the port to the new address if it has changed.
    LookUpAgain(PortId),
    /// Send the frames of this port from now on as [`Ecn::Capable`], or not, where its carrier can
    /// say so.
    SetEcn {
        /// The port.
        port: PortId,
        /// True for capable.
        capable: bool,
    },
}

/// What becomes of a frame whose sender has no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is dropped.
    Refused,
    /// A reply goes back, no longer than the frame.
    Answered,
    /// The sender gets a port, and the frame is the first one on it.
    Admitted,
}

/// Decides which inbound peers of a listener get a port: those that have shown that they receive at
/// the address that they send from. Nothing is kept of the others, neither here nor in the driver.
pub trait CallerGate: fmt::Debug {
    /// A frame came from an address that has no port, written as [`Medium::caller_address`] does. A
    /// reply is appended to `reply`, which is empty.
    fn consider(
        &mut self,
        now: Time,
        from: SocketAddr,
        frame: &[u8],
        reply: &mut Vec<u8>,
    ) -> Admission;

    /// Returns the shapes of all frames that may arrive where this gate is, of peers as of strangers.
    /// While strangers send very many datagrams, a driver may drop what has none of them without
    /// showing it to anyone. Empty: it may not.
    fn shapes(&self) -> Vec<FrameShape>;
}

/// The other end of a requested port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// Datagrams to and from one peer.
    Udp {
        /// The peer.
        remote: Peer,
        /// Use the socket of a listener of the same address family, if there is one: the local port
        /// number is then the listener's.
        shared: bool,
    },
    /// A TCP connection.
    Tcp {
        /// The peer.
        remote: Peer,
    },
    /// A program that listens on a Unix stream socket.
    Unix {
        /// The socket file.
        path: PathBuf,
    },
    /// A WebSocket connection (not encrypted).
    WebSocket {
        /// The peer.
        remote: Peer,
        /// The path of the URI, with its leading slash.
        path: String,
    },
    /// Ethernet frames to and from one station.
    Ethernet {
        /// Name of the interface.
        interface: String,
        /// The station.
        remote: [u8; 6],
        /// The frames' EtherType.
        ether_type: u16,
    },
    /// A network device of this machine, whose packets are the frames.
    Tun {
        /// Name of the device, at most 15 characters.
        name: String,
        /// Its addresses and the lengths of their prefixes in bits.
        addresses: Vec<(IpAddr, u8)>,
        /// Largest packet, in bytes.
        mtu: usize,
    },
}

/// The other end of an Internet connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// An address and port number.
    Address(SocketAddr),
    /// A host name, to be looked up; or a link-local IPv6 address with its interface, as
    /// `[fe80::1%eth0]`: the interface's number, which the address needs, may change.
    Named {
        /// The host.
        host: String,
        /// The port number.
        port: u16,
        /// Use only addresses of this family.
        family: Option<Family>,
    },
}

/// A family of Internet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns true if `address` is of this family.
    pub fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == Family::V4)
    }
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Peer {
        Peer::Address(address)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Address(address) => address.fmt(f),
            Peer::Named { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Udp { remote, .. } => write!(f, "udp://{remote}"),
            Endpoint::Tcp { remote } => write!(f, "tcp://{remote}"),
            Endpoint::Unix { path } => write!(f, "unix://{}", path.display()),
            Endpoint::WebSocket { remote, path } => write!(f, "ws://{remote}{path}"),
            Endpoint::Ethernet {
                interface, remote, ..
            } => {
                let [a, b, c, d, e, g] = remote;
                write!(
                    f,
                    "ether://[{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}] on {interface}"
                )
            }
            Endpoint::Tun { name, .. } => write!(f, "tun://{name}"),
        }
    }
}

/// Why a port cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenRefusal {
    /// The driver has no ports of this kind, or this machine does not support them.
    #[error("{0}")]
    Unsupported(String),
    /// Its owner does not let this user use it.
    #[error("{0}")]
    NotPermitted(String),
    /// The system, the network or the peer refused; a later attempt may succeed.
    #[error("{0}")]
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_shared_and_single_peers_are_not() {
        let group = Medium::Ethernet {
            interface: "e".into(),
            local: [2, 0, 0, 0, 0, 1],
            remote: [1, 0, 0x5e, 0, 0x17, 0xaa],
        };
        assert!(group.is_shared() && !group.is_stream());
        let station = Medium::Ethernet {
            interface: "e".into(),
            local: [2, 0, 0, 0, 0, 1],
            remote: [2, 0, 0, 0, 0, 2],
        };
        assert!(!station.is_shared());
        assert!(
            Medium::Unix {
                path: None,
                descriptor: 3,
                accepted: false
            }
            .is_stream()
        );
    }

    #[test]
    fn a_station_is_known_by_its_link_local_address() {
        let station = [0x02, 0x00, 0x5e, 0x10, 0x00, 0x07];
        let address = "[fe80::5eff:fe10:7]:0".parse().unwrap();
        assert_eq!(address_of_station(station), address);
        let medium = Medium::Ethernet {
            interface: "e".into(),
            local: [2, 0, 0, 0, 0, 1],
            remote: station,
        };
        assert_eq!(medium.caller_address(), Some(address));
    }

    #[test]
    fn a_caller_is_not_chosen_and_a_program_is_neither() {
        let origins = [
            PortOrigin::Configured(0),
            PortOrigin::Opened(PortToken(1)),
            PortOrigin::Accepted(0),
            PortOrigin::Local,
        ];
        assert_eq!(
            origins.map(|it| (it.is_chosen(), it.is_caller(), it.is_local())),
            [
                (true, false, false),
                (true, false, false),
                (false, true, false),
                (false, false, true)
            ]
        );
    }
}
