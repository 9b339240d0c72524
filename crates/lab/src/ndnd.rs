//! NDNd, the forwarder of another project, as a peer to run beside ours.

use std::path::Path;

/// Returns the configuration of `ndnd fw run`: a socket for programs, UDP and TCP on one port if
/// there is one, all else as its authors set it but for multicast and WebSocket.
pub fn configuration(socket: &Path, port: Option<u16>) -> String {
    let listens = port.is_some();
    let port = port.unwrap_or(6363);
    format!(
        "faces:\n\
         \x20 udp:\n    enabled_unicast: {listens}\n    enabled_multicast: false\n    port_unicast: {port}\n\
         \x20 tcp:\n    enabled: {listens}\n    port_unicast: {port}\n\
         \x20 unix:\n    enabled: true\n    socket_path: {}\n\
         \x20 websocket:\n    enabled: false\n",
        socket.display()
    )
}
