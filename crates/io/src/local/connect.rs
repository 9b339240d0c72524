//! Attaching to a listening program.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::IoError;

/// Kernel buffer to ask for in each direction, bytes: a chunk of 1 MiB needs few writes.
const KERNEL_BUFFER: usize = 1 << 20;
/// The time that a listener with a full backlog gets to accept.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// Attaches to the program that listens on `path`.
pub(crate) fn connect(path: &Path) -> Result<UnixStream, IoError> {
    let connected = Socket::new(Domain::UNIX, Type::STREAM, None).and_then(|socket| {
        // Without a timeout, a listener that never accepts would block this thread for ever.
        socket.set_write_timeout(Some(CONNECT_PATIENCE))?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(std::os::fd::OwnedFd::from(socket).into())
    });
    connected.map_err(|source: io::Error| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                IoError::NobodyListens { path }
            }
            io::ErrorKind::PermissionDenied => IoError::SocketPathNotPermitted {
                path,
                action: "connect to",
            },
            _ => IoError::UnixSocket {
                path,
                action: "connect to",
                source,
            },
        }
    })
}

/// Asks for larger buffers. Smaller ones only cost speed.
pub(crate) fn enlarge_buffers(stream: &impl AsFd) {
    let stream = SockRef::from(stream);
    let _ = stream.set_send_buffer_size(KERNEL_BUFFER);
    let _ = stream.set_recv_buffer_size(KERNEL_BUFFER);
}
