//! What carries the datagrams of a socket: UDP, or IP packets of a protocol number of their own.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{Ipv4RecvErr, Ipv6RecvErr};
use quinn_udp::UdpSocketState;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use whimbrel_core::Medium;

use super::socket::{Bound, bind, canonical};
use crate::bind::bind_or_wait;
use crate::sole::Sole;
use crate::{IoError, interface};

/// The IP protocol number of MobilityFirst's frames: the first of the two that RFC 3692 leaves to
/// experiments.
pub const IP_PROTOCOL: u8 = 253;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const UDP_HEADER: usize = 8;

/// The carrier of a socket's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DatagramCarrier {
    /// UDP.
    #[default]
    Udp,
    /// Bare IP: the packet behind the IP header is the frame, without any header of its own.
    /// Addresses have port 0. A socket carries the packets of one address family. Needs the
    /// capability `CAP_NET_RAW`.
    Ip {
        /// The protocol number.
        protocol: u8,
    },
}

impl DatagramCarrier {
    /// Returns the octets of all headers of a datagram, without IP options.
    pub const fn headers(self, ipv4: bool) -> usize {
        let ip = if ipv4 { IPV4_HEADER } else { IPV6_HEADER };
        match self {
            DatagramCarrier::Udp => ip + UDP_HEADER,
            DatagramCarrier::Ip { .. } => ip,
        }
    }

    /// Returns the name of the kind of transport.
    pub(super) const fn name(self) -> &'static str {
        match self {
            DatagramCarrier::Udp => "udp",
            DatagramCarrier::Ip { .. } => "ip",
        }
    }

    /// Returns true if no datagram can be answered that comes from this address.
    pub(super) fn is_forged(self, from: SocketAddr) -> bool {
        self == DatagramCarrier::Udp && from.port() == 0
    }

    pub(super) fn bind(self, label: &str, address: SocketAddr) -> Result<Bound, IoError> {
        match self {
            DatagramCarrier::Udp => bind(label, address),
            DatagramCarrier::Ip { protocol } => bind_raw(label, address.ip(), protocol),
        }
    }

    /// Claims the packets of bare IP to `address` for this program; every UDP port has one socket
    /// anyway.
    pub(super) fn claim(self, label: &str, address: SocketAddr) -> Result<Option<Sole>, IoError> {
        match self {
            DatagramCarrier::Udp => Ok(None),
            DatagramCarrier::Ip { protocol } => {
                let ip = address.ip();
                let kind = format!("bare IP (protocol {protocol}) on ");
                // The kernel gives a packet to the sockets of its address and of any address.
                let overlaps = |other: &str| {
                    let other: Option<IpAddr> =
                        other.strip_prefix(&kind).and_then(|it| it.parse().ok());
                    other.is_some_and(|other| {
                        other.is_ipv4() == ip.is_ipv4()
                            && (other.is_unspecified() || ip.is_unspecified())
                    })
                };
                Sole::claim(label, &format!("{kind}{ip}"), overlaps).map(Some)
            }
        }
    }

    /// Returns the frames in what a socket has received. The kernel gives an IPv4 packet of a raw
    /// socket with its header (raw(7)), and an IPv6 packet without; empty if it is cut off.
    pub(super) fn frames(self, received: &[u8], ipv4: bool) -> &[u8] {
        if self == DatagramCarrier::Udp || !ipv4 {
            return received;
        }
        let header = received
            .first()
            .map_or(0, |first| usize::from(first & 0x0f) * 4);
        if header < IPV4_HEADER {
            return &[];
        }
        received.get(header..).unwrap_or_default()
    }

    /// Returns true for the kernel's error after an ICMP message that nothing at the peer receives:
    /// port unreachable; for bare IP protocol unreachable, which is a parameter problem in ICMPv6.
    pub(super) fn is_refusal(self, error: i32) -> bool {
        let error = Errno::from_raw_os_error(error);
        match self {
            DatagramCarrier::Udp => error == Errno::CONNREFUSED,
            DatagramCarrier::Ip { .. } => {
                matches!(error, Errno::NOPROTOOPT | Errno::PROTO | Errno::CONNREFUSED)
            }
        }
    }

    /// Returns true if a socket that is bound to `local` reaches `remote`.
    pub(super) fn reaches(self, local: SocketAddr, remote: SocketAddr) -> bool {
        match self {
            DatagramCarrier::Udp => local.is_ipv6() || remote.is_ipv4(),
            DatagramCarrier::Ip { .. } => local.is_ipv4() == remote.is_ipv4(),
        }
    }

    pub(super) fn medium(self, local: SocketAddr, remote: SocketAddr) -> Medium {
        match self {
            DatagramCarrier::Udp => Medium::Udp {
                local,
                remote,
                interface: interface::of_address(remote),
            },
            DatagramCarrier::Ip { .. } => Medium::Ip {
                local: local.ip(),
                remote: remote.ip(),
            },
        }
    }

    /// Returns a peer's address in text.
    pub(super) fn written(self, peer: SocketAddr) -> String {
        match (self, peer) {
            (DatagramCarrier::Udp, _) => peer.to_string(),
            (DatagramCarrier::Ip { .. }, SocketAddr::V4(v4)) => format!("ip://{}", v4.ip()),
            (DatagramCarrier::Ip { .. }, SocketAddr::V6(v6)) => match v6.scope_id() {
                0 => format!("ip://[{}]", v6.ip()),
                scope => format!("ip://[{}%{scope}]", v6.ip()),
            },
        }
    }

    /// Asks the kernel for the errors of ICMP messages. Without them, packets that are too large for
    /// a link further on would be lost silently.
    pub(super) fn enable_errors(self, state: &UdpSocketState, socket: &Socket) -> io::Result<()> {
        let is_ipv6 = socket.local_addr()?.is_ipv6();
        match self {
            DatagramCarrier::Udp => state.enable_transport_errors(socket.into()),
            DatagramCarrier::Ip { .. } if is_ipv6 => Ok(setsockopt(socket, Ipv6RecvErr, &true)?),
            // A raw IPv6 socket takes no options of IPv4, which `quinn-udp` would set.
            DatagramCarrier::Ip { .. } => Ok(setsockopt(socket, Ipv4RecvErr, &true)?),
        }
    }

    /// Returns the address that a socket is bound to, as the kernel tells it: the port of a raw
    /// socket is its protocol number.
    pub(super) fn local(self, told: SocketAddr) -> SocketAddr {
        match self {
            DatagramCarrier::Udp => told,
            DatagramCarrier::Ip { .. } => {
                let mut local = told;
                local.set_port(0);
                local
            }
        }
    }
}

/// Opens a raw socket for the packets of one protocol number to an address of this machine.
fn bind_raw(label: &str, address: IpAddr, protocol: u8) -> Result<Bound, IoError> {
    let failed = |action| {
        move |source: io::Error| match source.kind() {
            io::ErrorKind::PermissionDenied => IoError::IpNotPermitted {
                label: label.to_owned(),
            },
            io::ErrorKind::AddrNotAvailable => IoError::AddressNotHere {
                label: label.to_owned(),
                address: SocketAddr::new(address, 0),
            },
            _ => IoError::IpSocket {
                label: label.to_owned(),
                address,
                action,
                source,
            },
        }
    };
    let at = SocketAddr::new(address, 0);
    let protocol = Protocol::from(i32::from(protocol));
    let socket = Socket::new(Domain::for_address(at), Type::RAW, Some(protocol))
        .map_err(failed("create"))?;
    let is_waiting = bind_or_wait(&socket, label, canonical(at)).map_err(failed("bind"))?;
    Ok(Bound { socket, is_waiting })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: DatagramCarrier = DatagramCarrier::Ip {
        protocol: IP_PROTOCOL,
    };

    #[test]
    fn the_header_of_an_ipv4_packet_is_left_out_whatever_its_length() {
        let mut packet = vec![0x45; 20];
        packet.extend_from_slice(b"frame");
        assert_eq!(IP.frames(&packet, true), b"frame");
        assert_eq!(IP.frames(&packet, false), packet);
        assert_eq!(DatagramCarrier::Udp.frames(&packet, true), packet);
        let mut with_options = vec![0x46; 24];
        with_options.extend_from_slice(b"frame");
        assert_eq!(IP.frames(&with_options, true), b"frame");
    }

    #[test]
    fn what_is_no_whole_packet_has_no_frame() {
        for cut in [&[][..], &[0x45], &[0x4f; 59], &[0x44; 30], &[0x00; 30]] {
            assert_eq!(IP.frames(cut, true), b"", "{cut:?}");
        }
    }

    #[test]
    fn headers_are_those_of_ip_and_udp() {
        assert_eq!(
            [DatagramCarrier::Udp, IP].map(|it| (it.headers(true), it.headers(false))),
            [(28, 48), (20, 40)]
        );
    }
}
