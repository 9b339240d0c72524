//! NDNd, the forwarder of another project, as a peer to run beside ours.

use std::path::Path;

/// What it says on standard output once programs can connect.
pub const READY: &str = "unix-stream-listener";

/// Returns the configuration of `ndnd fw run`: a socket for programs, UDP and TCP on one port if
/// there is one, a forwarding thread for each processor, its log on standard output; no multicast and
/// no WebSocket; all else as its authors set it.
pub fn configuration(socket: &Path, port: Option<u16>) -> String {
    let listens = port.is_some();
    // It opens its UDP port even if it is not to; with 0 it only logs that it cannot.
    let port = port.unwrap_or(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "core:\n  log_file: /dev/stdout\nfaces:\n\
         \x20 udp:\n    enabled_unicast: {listens}\n    enabled_multicast: false\n    port_unicast: {port}\n\
         \x20 tcp:\n    enabled: {listens}\n    port_unicast: {port}\n\
         \x20 unix:\n    enabled: true\n    socket_path: {}\n\
         \x20 websocket:\n    enabled: false\nfw:\n  threads: {threads}\n",
        socket.display()
    )
}
