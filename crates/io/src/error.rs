//! Errors of transports and of the loop. Each says what happened, to what, and what to do.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error that keeps a transport from opening or stops the loop.
///
/// Faults of single packets and connections are counted instead (see [`crate::Snapshot`]).
#[derive(Debug, thiserror::Error)]
pub enum IoError {
    /// Another program uses the port.
    #[error(
        "{protocol} port {} of {} is already in use, so link '{label}' cannot have it; `ss -l{}np 'sport = :{}'` \
         shows the program: stop it, or give the link another port",
        address.port(), address.ip(), if *protocol == "TCP" { "t" } else { "u" }, address.port()
    )]
    AddressInUse {
        /// The link's name in the configuration.
        label: String,
        /// `UDP` or `TCP`.
        protocol: &'static str,
        /// The address to bind.
        address: SocketAddr,
    },
    /// No interface has the address.
    #[error(
        "this machine has no address {} (wanted by link '{label}'); `ip address` lists what it has, \
         {} stands for all of them",
        address.ip(), if address.is_ipv4() { "0.0.0.0" } else { "[::]" }
    )]
    AddressNotHere {
        /// The link's name in the configuration.
        label: String,
        /// The address to bind.
        address: SocketAddr,
    },
    /// Ports below 1024 need a capability.
    #[error(
        "no permission to bind {protocol} port {} for link '{label}'; choose a port above 1023, or run \
         `sudo setcap cap_net_bind_service=+ep $(command -v whimbrel)`",
        address.port()
    )]
    AddressNotPermitted {
        /// The link's name in the configuration.
        label: String,
        /// `UDP` or `TCP`.
        protocol: &'static str,
        /// The address to bind.
        address: SocketAddr,
    },
    /// A neighbour's address is configured twice on one socket.
    #[error(
        "link '{label}' has neighbour {address} twice; frames could not be told apart: remove one, or give it \
         a link of its own on another port"
    )]
    DuplicateNeighbour {
        /// The link's name in the configuration.
        label: String,
        /// The address given twice.
        address: SocketAddr,
    },
    /// A neighbour that the socket cannot reach because of its address family.
    #[error(
        "link '{label}' is bound to the IPv4 address {bound} and cannot reach the IPv6 neighbour {address}; \
         bind it to [::] to speak both"
    )]
    FamilyMismatch {
        /// The link's name in the configuration.
        label: String,
        /// The address that the socket is bound to.
        bound: SocketAddr,
        /// The neighbour.
        address: SocketAddr,
    },
    /// Any other failure to set up a UDP socket.
    #[error("cannot {action} the UDP socket {address} of link '{label}': {source}")]
    UdpSocket {
        /// The link's name in the configuration.
        label: String,
        /// The address that it is bound to, or was to be bound to.
        address: SocketAddr,
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Any failure to set up a TCP socket.
    #[error("cannot {action} the TCP socket {address} of '{label}': {source}")]
    TcpSocket {
        /// The name in the configuration.
        label: String,
        /// The address to bind or to connect to.
        address: SocketAddr,
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A peer cannot be reached or refuses the connection.
    #[error(
        "cannot connect '{label}' to {address}: {source}; check that a router listens there on TCP"
    )]
    ConnectFailed {
        /// The name in the configuration.
        label: String,
        /// The peer.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A peer did not answer in time.
    #[error(
        "'{label}' got no answer from {address} within {seconds} s; check the address and any firewall between"
    )]
    ConnectTimedOut {
        /// The name in the configuration.
        label: String,
        /// The peer.
        address: SocketAddr,
        /// The time waited.
        seconds: f64,
    },
    /// The connection ended before its port was up.
    #[error("the connection '{label}' was closed before it was up")]
    ConnectAbandoned {
        /// The name in the configuration.
        label: String,
    },
    /// The peer does not speak WebSocket, or the URI is invalid.
    #[error("no WebSocket connection with {uri}: {reason}")]
    WebSocketRefused {
        /// The requested URI, or the client.
        uri: String,
        /// The reason.
        reason: String,
    },
    /// Another program already listens on the socket file.
    #[error(
        "another program already listens on {}; if it is an old whimbrel, stop it \
         (`ss -lxp src {}` shows it), or give this one another socket path", path.display(), path.display()
    )]
    SocketPathInUse {
        /// The socket file.
        path: PathBuf,
    },
    /// The path exists and is not a socket, so it is not removed.
    #[error("{} exists and is not a socket; move it away, or choose another socket path", path.display())]
    SocketPathTaken {
        /// The existing file.
        path: PathBuf,
    },
    /// No program listens on the socket file.
    #[error("nothing listens on {}", path.display())]
    NobodyListens {
        /// The socket file.
        path: PathBuf,
    },
    /// The file permissions deny access.
    #[error(
        "no permission to {action} the socket {}; `ls -ld {}` and of its directory show who may", path.display(),
        path.display()
    )]
    SocketPathNotPermitted {
        /// The socket file.
        path: PathBuf,
        /// The step that failed.
        action: &'static str,
    },
    /// Any other failure of a Unix socket.
    #[error("cannot {action} the socket {}: {source}", path.display())]
    UnixSocket {
        /// The socket file.
        path: PathBuf,
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// An invalid interface name; the kernel takes 1 to 15 bytes without '/' or white space.
    #[error(
        "'{name}' cannot name a network interface: 1 to 15 characters, no '/', ':' or white space"
    )]
    TunName {
        /// The requested name.
        name: String,
    },
    /// The kernel has no TUN driver, or the container hides it.
    #[error(
        "there is no /dev/net/tun to create '{name}' with; `sudo modprobe tun` loads the driver"
    )]
    TunMissing {
        /// The requested name.
        name: String,
    },
    /// The file of the TUN driver is closed to this user: a user namespace cannot open it either.
    #[error(
        "no permission to open /dev/net/tun for '{name}'; run as root, or open it to all users, as it \
         is on most systems: `sudo chmod 666 /dev/net/tun`"
    )]
    TunClosed {
        /// The requested name.
        name: String,
    },
    /// Creating and configuring interfaces needs a capability.
    #[error(
        "no permission to {action} the TUN device '{name}'; run as root, or run \
         `sudo setcap cap_net_admin=+ep $(command -v whimbrel)`"
    )]
    TunNotPermitted {
        /// The device.
        name: String,
        /// The step that failed.
        action: &'static str,
    },
    /// Another program uses the device.
    #[error("the TUN device '{name}' is in use by another program; choose another name")]
    TunInUse {
        /// The device.
        name: String,
    },
    /// Any other failure of a TUN device.
    #[error("cannot {action} the TUN device '{name}': {source}")]
    Tun {
        /// The device.
        name: String,
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such interface.
    #[error(
        "this machine has no network interface '{name}'; `ip address` lists names and addresses"
    )]
    NoSuchInterface {
        /// The requested name or address.
        name: String,
    },
    /// The address is not a multicast group, or the interface has no address of its family.
    #[error(
        "cannot join {group} on interface '{name}': the group must be a multicast address, and the interface needs \
         {} of its own",
        if group.is_ipv4() { "an IPv4 address" } else { "a link-local IPv6 address" }
    )]
    UnsuitedForMulticast {
        /// The interface.
        name: String,
        /// The requested group.
        group: SocketAddr,
    },
    /// The interface carries no Ethernet frames.
    #[error(
        "the network interface '{name}' carries no Ethernet frames; `ip link` shows of which kind each is"
    )]
    NoEthernet {
        /// The interface.
        name: String,
    },
    /// Packet sockets need a capability.
    #[error(
        "no permission for Ethernet frames on '{name}'; run as root, or run \
         `sudo setcap cap_net_raw=+ep $(command -v whimbrel)`"
    )]
    EthernetNotPermitted {
        /// The interface.
        name: String,
    },
    /// Raw sockets need a capability.
    #[error(
        "no permission for packets of bare IP on link '{label}'; run as root, or run \
         `sudo setcap cap_net_raw=+ep $(command -v whimbrel)`"
    )]
    IpNotPermitted {
        /// The link's name in the configuration.
        label: String,
    },
    /// Any other failure to set up a socket of bare IP.
    #[error("cannot {action} the socket of bare IP {address} of link '{label}': {source}")]
    IpSocket {
        /// The link's name in the configuration.
        label: String,
        /// The address that it is bound to, or was to be bound to.
        address: std::net::IpAddr,
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Another program of this machine has the frames that the kernel gives to all sockets alike.
    #[error(
        "another program on this machine uses {what} for Whimbrel's links already, and link '{label}' would get its frames; \
         attach to that one's host or router, or use UDP, where each program has a port of its own"
    )]
    CarrierInUse {
        /// The link's name in the configuration.
        label: String,
        /// The carrier, as `bare IP on 0.0.0.0`.
        what: String,
    },
    /// A station is configured twice on one link.
    #[error("link '{label}' has the station {address} twice: remove one")]
    DuplicateStation {
        /// The link's name in the configuration.
        label: String,
        /// The address given twice.
        address: String,
    },
    /// Any other failure of an interface.
    #[error("cannot {action} the network interface '{name}': {source}")]
    Interface {
        /// The interface.
        name: String,
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// All port numbers of a run (2^32) are used up.
    #[error(
        "all port numbers of this run are used up, so '{label}' cannot be added; restart the program"
    )]
    OutOfPorts {
        /// The link or socket that needed a port.
        label: String,
    },
    /// The transport does not exist, was removed, or is of another kind.
    #[error("there is no such link in this loop")]
    NoSuchLink,
    /// The loop's own machinery (epoll, eventfd, signal pipe) failed.
    #[error("the event loop cannot {action}: {source}; `ulimit -n` shows the limit of open files")]
    Loop {
        /// The step that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The loop has ended.
    #[error("the event loop has ended and takes no more work")]
    LoopEnded,
    /// Too many tasks wait for the loop.
    #[error(
        "the event loop has {waiting} posted tasks waiting and takes no more until it has caught up"
    )]
    LoopBusy {
        /// The number of waiting tasks.
        waiting: usize,
    },
}
