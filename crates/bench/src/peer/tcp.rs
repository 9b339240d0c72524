//! The kernel's TCP, for information: sendfile at one end, large reads at the other.

use std::fs::File;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use whimbrel_lab::baseline::{receive, send_file};

use super::PeerError;

/// Listens at `address`, calls `ready` and sends `file` to the first client that connects.
pub(super) fn serve(
    address: SocketAddr,
    file: &Path,
    ready: impl FnOnce(),
) -> Result<(), PeerError> {
    let listener =
        TcpListener::bind(address).map_err(PeerError::system(format!("listen at {address}")))?;
    ready();
    let (stream, peer) = listener
        .accept()
        .map_err(PeerError::system("accept a TCP connection"))?;
    let source = File::open(file).map_err(PeerError::file(file))?;
    send_file(&stream, &source)
        .and_then(|_| stream.shutdown(Shutdown::Write))
        .map_err(PeerError::system(format!("send to {peer}")))?;
    // Until the client has the whole file and closes.
    receive(&stream, |_| Ok(()))
        .map(drop)
        .map_err(PeerError::system("wait for the client"))
}

/// Fetches the file of the server at `address` into `output`.
pub(super) fn fetch(address: SocketAddr, output: &Path) -> Result<(), PeerError> {
    let stream =
        TcpStream::connect(address).map_err(PeerError::system(format!("connect to {address}")))?;
    let mut target = File::create(output).map_err(PeerError::file(output))?;
    receive(&stream, |block| target.write_all(block))
        .map(drop)
        .map_err(PeerError::system(format!("receive from {address}")))
}
