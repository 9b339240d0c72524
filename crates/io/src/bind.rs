//! Binding to an address that this machine may not have yet: an interface that comes up after the
//! program (LTE at boot), a lease that is still asked for, an IPv6 address that is still checked for
//! duplicates.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::Socket;

use crate::listener::BACKLOG;

/// Binds a socket, even if no interface has its address: it works from the moment when one does.
/// Returns true if it waits for that, which is logged.
pub(crate) fn bind_or_wait(socket: &Socket, label: &str, address: SocketAddr) -> io::Result<bool> {
    match socket.bind(&address.into()) {
        // All addresses of a family that this machine does not have will not come.
        Err(error)
            if error.kind() == io::ErrorKind::AddrNotAvailable
                && !address.ip().is_unspecified() =>
        {
            match address {
                SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
                SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
            }
            socket.bind(&address.into())?;
            let any = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
            tracing::warn!(
                "this machine has no address {} yet: '{label}' waits for it (`ip address` lists what it has, {any} \
                 stands for all of them)",
                address.ip()
            );
            Ok(true)
        }
        bound => bound.map(|()| false),
    }
}

/// Listens for TCP connections on an address that this machine may not have yet. The socket blocks.
pub fn listen_tcp(label: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = crate::tcp::new_socket(address)?;
    socket.set_reuse_address(true)?;
    bind_or_wait(&socket, label, address)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}
