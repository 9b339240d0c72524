//! TCP listening sockets, with errors that say what to do.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::IoError;
use crate::bind::bind_or_wait;
use crate::listener::BACKLOG;
use crate::udp::canonical;

/// Opens a non-blocking listening socket. Returns it with its address, including the port that the
/// kernel chose.
pub(crate) fn listen(label: &str, address: SocketAddr) -> Result<(Socket, SocketAddr), IoError> {
    let failed = |action| {
        move |source| IoError::TcpSocket {
            label: label.to_owned(),
            address,
            action,
            source,
        }
    };
    let socket = new_socket(address).map_err(failed("create"))?;
    // Connections of a listener that has just stopped must not keep the next one from starting.
    socket
        .set_reuse_address(true)
        .map_err(failed("configure"))?;
    if address.is_ipv6() {
        socket
            .set_only_v6(!address.ip().is_unspecified())
            .map_err(failed("configure"))?;
    }
    let named = |source: io::Error| {
        let (label, protocol) = (label.to_owned(), "TCP");
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
            _ => IoError::TcpSocket {
                label,
                address,
                action: "listen on",
                source,
            },
        }
    };
    bind_or_wait(&socket, label, address).map_err(named)?;
    // With SO_REUSEADDR, two sockets may bind one address, but only one may listen.
    socket.listen(BACKLOG).map_err(named)?;
    let local = socket
        .local_addr()
        .map_err(failed("ask for the address of"))?;
    Ok((socket, local.as_socket().unwrap_or(address)))
}

/// Opens a non-blocking socket that sends small packets at once.
pub(crate) fn new_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    // Keepalive detects a peer that vanished silently.
    socket.set_keepalive(true)?;
    Ok(socket)
}

/// Returns the canonical address of a peer, or `None` if it is not an IP address.
pub(crate) fn canonical_of(address: &SockAddr) -> Option<SocketAddr> {
    address.as_socket().map(canonical)
}
