//! Binding a UDP socket: large kernel buffers, both address families, and errors that say what to
//! do.

use std::io;
use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use quinn_udp::UdpSocketState;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};

use crate::IoError;
use crate::bind::bind_or_wait;

/// A socket that is bound to an address.
pub(crate) struct Bound {
    pub(crate) socket: Socket,
    /// No interface has the address yet.
    pub(crate) is_waiting: bool,
}

/// Binds a non-blocking socket; `[::]` includes IPv4.
pub(crate) fn bind(label: &str, address: SocketAddr) -> Result<Bound, IoError> {
    let failed = |action| {
        move |source| IoError::UdpSocket {
            label: label.to_owned(),
            address,
            action,
            source,
        }
    };
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )
    .map_err(failed("create"))?;
    if address.is_ipv6() {
        socket
            .set_only_v6(!address.ip().is_unspecified())
            .map_err(failed("configure"))?;
    }
    let is_waiting = bind_or_wait(&socket, label, address).map_err(|source| {
        let (label, protocol) = (label.to_owned(), "UDP");
        match source.kind() {
            io::ErrorKind::AddrInUse => IoError::AddressInUse {
                label,
                protocol,
                address,
            },
            io::ErrorKind::AddrNotAvailable => IoError::AddressNotHere { label, address },
            io::ErrorKind::PermissionDenied => IoError::AddressNotPermitted {
                label,
                protocol,
                address,
            },
            _ => IoError::UdpSocket {
                label,
                address,
                action: "bind",
                source,
            },
        }
    })?;
    Ok(Bound { socket, is_waiting })
}

/// Configures a socket for sending and receiving in batches.
pub(super) fn batching(socket: &Socket) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    // No code reads the kernel's time stamps. With them, the control messages of a batch do not fit
    // into the 96 octets of quinn-udp 0.6.3, and ECN is lost first.
    setsockopt(socket, ReceiveTimestampns, &false)?;
    Ok(state)
}

/// Asks for kernel buffers, first with the privilege to exceed the system's limit. Returns the
/// granted receive and send buffers, bytes.
pub(crate) fn enlarge_buffers(
    label: &str,
    socket: &Socket,
    receive: usize,
    send: usize,
) -> (usize, usize) {
    set_receive_buffer(socket, receive);
    if sockopt::set_socket_send_buffer_size_force(socket, send).is_err() {
        let _ = socket.set_send_buffer_size(send);
    }
    // The kernel doubles the requested size for its own book-keeping, and returns the double.
    let granted_receive = socket.recv_buffer_size().unwrap_or(0) / 2;
    let granted_send = socket.send_buffer_size().unwrap_or(0) / 2;
    for (sysctl, wanted, granted) in [
        ("net.core.rmem_max", receive, granted_receive),
        ("net.core.wmem_max", send, granted_send),
    ] {
        if granted < wanted {
            tracing::info!(
                label,
                wanted,
                granted,
                "smaller UDP buffer than wanted; `sudo sysctl -w {sysctl}={wanted}` allows it"
            );
        }
    }
    (granted_receive, granted_send)
}

/// Sets the kernel receive buffer, first with the privilege to exceed the system's limit.
pub(super) fn set_receive_buffer(socket: &Socket, bytes: usize) {
    if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
        let _ = socket.set_recv_buffer_size(bytes);
    }
}

/// Returns the one form of each peer's address: IPv4 never mapped to IPv6, no flow label, a scope
/// only if it matters.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(mut v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => {
                v6.set_flowinfo(0);
                if !v6.ip().is_unicast_link_local() {
                    v6.set_scope_id(0);
                }
                SocketAddr::V6(v6)
            }
        },
    }
}

/// Returns the form of a canonical address for a socket of the given family.
pub(crate) fn for_socket(address: SocketAddr, socket_is_ipv6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if socket_is_ipv6 => {
            SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port()))
        }
        _ => address,
    }
}

/// Returns an address that replies can come from: the one that a peer sent to, unless that is
/// multicast or broadcast.
pub(crate) fn usable_source(called: IpAddr) -> Option<IpAddr> {
    let many = match called.to_canonical() {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified(),
    };
    (!many).then_some(called)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_one_form_and_each_socket_gets_its_own() {
        let v4: SocketAddr = "192.0.2.1:5".parse().unwrap();
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:5".parse().unwrap();
        assert_eq!(canonical(mapped), v4);
        assert_eq!(canonical(v4), v4);
        assert_eq!(for_socket(v4, true), mapped);
        assert_eq!(for_socket(v4, false), v4);
        let scoped: SocketAddr = "[fe80::1%3]:5".parse().unwrap();
        assert_eq!(canonical(scoped), scoped);
    }

    #[test]
    fn replies_never_come_from_a_multicast_or_broadcast_address() {
        for many in [
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
            "::ffff:224.0.0.1",
            "0.0.0.0",
        ] {
            assert_eq!(usable_source(many.parse().unwrap()), None, "{many}");
        }
        let one: IpAddr = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(usable_source(one), Some(one));
    }
}
