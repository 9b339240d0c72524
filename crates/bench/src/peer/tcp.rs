//! The kernel's TCP, for information: the cheapest way to move a file, with sendfile and splice.

use std::fs::File;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

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
    let (mut stream, peer) = listener
        .accept()
        .map_err(PeerError::system("accept a TCP connection"))?;
    let mut source = File::open(file).map_err(PeerError::file(file))?;
    std::io::copy(&mut source, &mut stream)
        .and_then(|_| stream.shutdown(Shutdown::Write))
        .map_err(PeerError::system(format!("send to {peer}")))?;
    // Until the client has the whole file.
    std::io::copy(&mut stream, &mut std::io::sink())
        .map(drop)
        .map_err(PeerError::system("wait for the client"))
}

/// Fetches the file of the server at `address` into `output`.
pub(super) fn fetch(address: SocketAddr, output: &Path) -> Result<(), PeerError> {
    let mut stream =
        TcpStream::connect(address).map_err(PeerError::system(format!("connect to {address}")))?;
    let mut target = File::create(output).map_err(PeerError::file(output))?;
    std::io::copy(&mut stream, &mut target)
        .map(drop)
        .map_err(PeerError::system(format!("receive from {address}")))
}
