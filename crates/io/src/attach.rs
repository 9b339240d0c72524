//! Attaching sockets, listeners, connections and devices to a loop.
//!
//! All of this works before the loop runs, and while it runs from a closure posted with
//! [`crate::LoopHandle::post_to_loop`].

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use whimbrel_core::{CallerGate, Machine, Medium, Peer, PortId, PortInfo, PortOrigin, Time};

use crate::ethernet::EthernetEndpoint;
use crate::listener::{Accepts, Listener};
use crate::local::{SocketFile, connect, enlarge_buffers};
use crate::sockets::Sockets;
use crate::stream::{Framing, Origin, StreamConnection};
use crate::tcp::{Becomes, Connecting, listen};
use crate::transport::Transport;
use crate::tun::TunPort;
use crate::udp::{AwaitedGroup, UdpEndpoint};
use crate::websocket::OriginGate;
use crate::{
    EthernetConfig, EthernetLink, EthernetNeighbour, Interface, IoError, Listening, Neighbour,
    StreamLimits, TcpClientConfig, TcpListenerConfig, TransportId, TunDevice, UdpConfig, UdpLink,
    UdpMulticastConfig, UdpMulticastLink, UnixListenerConfig, WebSocketClientConfig,
    WebSocketListenerConfig,
};

impl<M: Machine + 'static> Sockets<M> {
    /// Binds a UDP socket. Configured neighbours are up at once, inbound peers when they
    /// send their first datagram.
    pub fn add_udp(&mut self, config: UdpConfig) -> Result<UdpLink, IoError> {
        self.add_udp_with_gate(config, None)
    }

    /// The same, but inbound peers get a port when `gate`, if there is one, admits them.
    pub fn add_udp_with_gate(
        &mut self,
        mut config: UdpConfig,
        gate: Option<Box<dyn CallerGate>>,
    ) -> Result<UdpLink, IoError> {
        self.watch_routes();
        let id = self.transports.reserve();
        let neighbours = std::mem::take(&mut config.neighbours);
        let (label, bind) = (config.label.clone(), config.bind);
        let mut endpoint = UdpEndpoint::open(config, id.slot as usize, id.token(), &mut self.rng)
            .inspect_err(|_| self.transports.release(id))?;
        endpoint.set_gate(gate);
        let local = endpoint.local();
        let (receive_buffer, send_buffer) = endpoint.kernel_buffers();
        self.transports
            .install(id, Transport::Udp(Box::new(endpoint)))
            .map_err(|source| IoError::UdpSocket {
                label,
                address: bind,
                action: "watch",
                source,
            })?;
        let mut ports = Vec::new();
        for neighbour in neighbours {
            match self.add_neighbour(id, neighbour) {
                Ok(port) => ports.extend(port),
                Err(error) => {
                    self.close_transport(id);
                    return Err(error);
                }
            }
        }
        tracing::info!(%local, receive_buffer, send_buffer, neighbours = ports.len(), "UDP socket is open");
        Ok(UdpLink {
            transport: id,
            local,
            ports,
            receive_buffer,
            send_buffer,
        })
    }

    /// Adds a neighbour to a UDP link. If it is an inbound peer already, that port goes down first.
    /// Returns `None` while its host name is looked up.
    pub fn add_neighbour(
        &mut self,
        link: TransportId,
        neighbour: Neighbour,
    ) -> Result<Option<PortId>, IoError> {
        match neighbour.address {
            Peer::Address(address) => self.add_neighbour_at(link, neighbour, address).map(Some),
            Peer::Named { .. } => {
                self.look_up_neighbour(link, neighbour);
                Ok(None)
            }
        }
    }

    /// Adds a neighbour with a known address.
    pub(crate) fn add_neighbour_at(
        &mut self,
        link: TransportId,
        neighbour: Neighbour,
        address: SocketAddr,
    ) -> Result<PortId, IoError> {
        let now = self.clock.now();
        let slot = self.transports.slot_of(link);
        match slot.and_then(|slot| self.transports.get(slot)) {
            Some(Transport::Udp(endpoint)) => {
                endpoint.add_neighbour(&mut self.side, now, neighbour, address)
            }
            _ => Err(IoError::NoSuchLink),
        }
    }

    /// Makes an inbound peer permanent: it neither expires nor is evicted any more, and it keeps
    /// its port. Returns false if `port` is not an inbound peer of a UDP or Ethernet link.
    pub fn keep_inbound(&mut self, port: PortId) -> bool {
        let Some(slot) = self.side.get(port).map(|port| port.transport) else {
            return false;
        };
        match self.transports.get(slot) {
            Some(Transport::Udp(endpoint)) => endpoint.keep_inbound(port),
            Some(Transport::Ethernet(endpoint)) => endpoint.keep_inbound(port),
            _ => false,
        }
    }

    /// Sends the frames of a UDP port as ECN-capable (RFC 3168) from now on, or not. Other carriers
    /// have no codepoint.
    pub(crate) fn set_ecn(&mut self, port: PortId, capable: bool) {
        let slot = self.side.get(port).map(|port| port.transport);
        if let Some(Transport::Udp(endpoint)) = slot.and_then(|slot| self.transports.get(slot)) {
            endpoint.set_ecn(port, capable);
        }
    }

    /// Joins a UDP multicast group on one interface. All traffic of the group uses one port; frames
    /// that this machine sends do not come back. Must be called in a thread of the interface's
    /// network namespace.
    pub fn add_udp_multicast(
        &mut self,
        config: UdpMulticastConfig,
    ) -> Result<UdpMulticastLink, IoError> {
        let id = self.transports.reserve();
        let (label, address) = (config.label.clone(), config.group);
        let endpoint = UdpEndpoint::join(config, id.slot as usize, id.token(), &mut self.rng)
            .inspect_err(|_| self.transports.release(id))?;
        let local = endpoint.local();
        self.transports
            .install(id, Transport::Udp(Box::new(endpoint)))
            .map_err(|source| IoError::UdpSocket {
                label,
                address,
                action: "watch",
                source,
            })?;
        let now = self.clock.now();
        let opened = match self.transports.get(id.slot as usize) {
            Some(Transport::Udp(endpoint)) => endpoint.open_group(&mut self.side, now),
            _ => Err(IoError::NoSuchLink),
        };
        let port = opened.inspect_err(|_| self.close_transport(id))?;
        tracing::info!(%local, group = %address, "joined a multicast group");
        Ok(UdpMulticastLink {
            transport: id,
            port,
            local,
        })
    }

    /// Joins a UDP multicast group as [`Sockets::add_udp_multicast`] does; as soon as the machine has
    /// an interface of this name with an address of the group's family, if that is later. Returns `None`
    /// while it waits.
    ///
    /// # Errors
    ///
    /// If the group cannot be joined for another reason, such as an address that is no group's.
    pub fn await_udp_multicast(
        &mut self,
        label: impl Into<String>,
        group: SocketAddr,
        interface: &str,
    ) -> Result<Option<UdpMulticastLink>, IoError> {
        let awaited = AwaitedGroup {
            label: label.into(),
            group,
            interface: interface.to_owned(),
        };
        match self.join_awaited(&awaited) {
            Err(error) if awaited.may_come(&error) => {
                tracing::warn!(%error, "a multicast group waits for its interface");
                self.watch_routes();
                self.awaited_groups.push(awaited);
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }

    fn join_awaited(&mut self, awaited: &AwaitedGroup) -> Result<UdpMulticastLink, IoError> {
        let AwaitedGroup {
            label,
            group,
            interface,
        } = awaited;
        let interface = Interface::find(interface)?;
        self.add_udp_multicast(UdpMulticastConfig::new(label, *group, interface))
    }

    /// Joins the groups whose interfaces have come.
    pub(crate) fn join_awaited_groups(&mut self) {
        for awaited in core::mem::take(&mut self.awaited_groups) {
            match self.join_awaited(&awaited) {
                Ok(_) => {}
                Err(error) if awaited.may_come(&error) => self.awaited_groups.push(awaited),
                Err(error) => tracing::error!(%error, "a multicast group is not joined"),
            }
        }
    }

    /// Opens a packet socket on an interface. The group and the neighbours are up at once, inbound
    /// peers when they send their first frame. Needs the capability `CAP_NET_RAW`; must be called
    /// in a thread of the interface's network namespace.
    pub fn add_ethernet(&mut self, config: EthernetConfig) -> Result<EthernetLink, IoError> {
        self.add_ethernet_with_gate(config, None)
    }

    /// The same, but inbound peers get a port when `gate`, if there is one, admits them.
    pub fn add_ethernet_with_gate(
        &mut self,
        mut config: EthernetConfig,
        gate: Option<Box<dyn CallerGate>>,
    ) -> Result<EthernetLink, IoError> {
        if config.outlives_interface {
            self.watch_routes();
        }
        let id = self.transports.reserve();
        let neighbours = std::mem::take(&mut config.neighbours);
        let interface = config.interface.name.clone();
        let mut endpoint = EthernetEndpoint::open(config, id.slot as usize, id.token())
            .inspect_err(|_| self.transports.release(id))?;
        endpoint.set_gate(gate);
        let local = endpoint.local();
        self.transports
            .install(id, Transport::Ethernet(Box::new(endpoint)))
            .map_err(|source| IoError::Interface {
                name: interface.clone(),
                action: "watch a packet socket on",
                source,
            })?;
        let now = self.clock.now();
        let ports = (|| {
            let group = match self.transports.get(id.slot as usize) {
                Some(Transport::Ethernet(endpoint)) => endpoint.open_group(&mut self.side, now)?,
                _ => None,
            };
            let ports = neighbours
                .into_iter()
                .map(|neighbour| self.add_ethernet_neighbour(id, neighbour));
            Ok((group, ports.collect::<Result<Vec<PortId>, IoError>>()?))
        })();
        match ports {
            Ok((group, ports)) => {
                tracing::info!(%interface, neighbours = ports.len(), "Ethernet socket is open");
                Ok(EthernetLink {
                    transport: id,
                    local,
                    group,
                    ports,
                })
            }
            Err(error) => {
                self.close_transport(id);
                Err(error)
            }
        }
    }

    /// Adds a neighbour to an Ethernet link. If it is an inbound peer already, that port goes down
    /// first.
    pub fn add_ethernet_neighbour(
        &mut self,
        link: TransportId,
        neighbour: EthernetNeighbour,
    ) -> Result<PortId, IoError> {
        let now = self.clock.now();
        let slot = self.transports.slot_of(link);
        match slot.and_then(|slot| self.transports.get(slot)) {
            Some(Transport::Ethernet(endpoint)) => {
                endpoint.add_neighbour(&mut self.side, now, neighbour)
            }
            _ => Err(IoError::NoSuchLink),
        }
    }

    /// Listens for local programs on a socket file. Each gets a port when it attaches.
    pub fn add_unix_listener(
        &mut self,
        config: UnixListenerConfig,
    ) -> Result<TransportId, IoError> {
        let (socket, file) = SocketFile::listen(&config)?;
        let accepts = Accepts::Unix {
            file,
            limits: config.limits,
        };
        let id = self.transports.reserve();
        let mut listener = Listener::new(
            socket,
            (config.label, 0),
            accepts,
            config.max_connections,
            id.token(),
        );
        listener.idle_frames = config.idle_frames;
        let path = config.path;
        self.transports
            .install(id, Transport::Listener(Box::new(listener)))
            .map_err(|source| IoError::UnixSocket {
                path: path.clone(),
                action: "watch",
                source,
            })?;
        tracing::info!(path = %path.display(), "listening for local programs");
        Ok(id)
    }

    /// Attaches to the program that listens on `path`, as a local program does.
    pub fn add_unix_client(
        &mut self,
        label: impl Into<String>,
        path: impl AsRef<Path>,
        limits: StreamLimits,
    ) -> Result<PortId, IoError> {
        self.call_unix(
            (label.into(), PortOrigin::Configured(0)),
            path.as_ref(),
            limits,
        )
    }

    pub(crate) fn call_unix(
        &mut self,
        (label, origin): (String, PortOrigin),
        path: &Path,
        limits: StreamLimits,
    ) -> Result<PortId, IoError> {
        let stream = connect(path)?;
        let called = UnixEnds {
            label,
            origin,
            peer: path.display().to_string(),
            path: Some(path.to_owned()),
            listener: None,
        };
        self.add_unix(called, stream.into(), limits)
    }

    /// Takes over a connected stream, from a socket pair or a parent process. `peer` appears in
    /// logs only.
    pub fn add_unix_stream(
        &mut self,
        label: impl Into<String>,
        peer: impl Into<String>,
        stream: UnixStream,
        limits: StreamLimits,
    ) -> Result<PortId, IoError> {
        let given = UnixEnds {
            label: label.into(),
            origin: PortOrigin::Local,
            peer: peer.into(),
            path: None,
            listener: None,
        };
        self.add_unix(given, stream.into(), limits)
    }

    pub(crate) fn add_unix(
        &mut self,
        ends: UnixEnds,
        stream: OwnedFd,
        limits: StreamLimits,
    ) -> Result<PortId, IoError> {
        let UnixEnds {
            label,
            origin: port_origin,
            peer,
            path,
            listener,
        } = ends;
        enlarge_buffers(&stream);
        let medium = Medium::Unix {
            path,
            descriptor: stream.as_raw_fd(),
            accepted: listener.is_some(),
        };
        let origin = Origin {
            kind: "unix",
            label: label.clone(),
            peer: peer.clone(),
            listener,
        };
        let path = peer.clone().into();
        let info = PortInfo {
            label,
            origin: port_origin,
            mtu: limits.max_frame,
            peer,
            medium,
        };
        self.add_stream(origin, info, stream, limits)
            .map_err(|error| {
                error.unwrap_or_else(|source| IoError::UnixSocket {
                    path,
                    action: "watch",
                    source,
                })
            })
    }

    /// Opens a port on a connected stream.
    pub(crate) fn add_stream(
        &mut self,
        origin: Origin,
        info: PortInfo,
        stream: OwnedFd,
        limits: StreamLimits,
    ) -> Result<PortId, Unattached> {
        rustix::io::ioctl_fionbio(&stream, true)
            .map_err(|error| Unattached::System(error.into()))?;
        let id = self.transports.reserve();
        let port = self.open_port(id, info).map_err(Unattached::Loop)?;
        if let Some(port) = self.side.get_mut(port) {
            port.concatenates = matches!(limits.framing, Framing::Tlv(_));
        }
        let now = self.clock.now();
        let connection = StreamConnection::new(stream, origin, id.token(), (port, now), limits);
        let added = self
            .transports
            .install(id, Transport::Stream(Box::new(connection)));
        self.keep_if_added(port, added, Unattached::System)
    }

    /// Listens for TCP connections. Each gets a port with [`PortOrigin::Accepted`].
    pub fn add_tcp_listener(&mut self, config: TcpListenerConfig) -> Result<Listening, IoError> {
        let (socket, local) = listen(&config.label, config.bind)?;
        let accepts = Accepts::Tcp {
            local,
            limits: config.limits,
        };
        let named = (config.label, config.listener);
        self.add_listener(socket, local, named, accepts, config.max_connections)
    }

    /// Listens for WebSocket connections. Each gets a port with [`PortOrigin::Accepted`] after its
    /// handshake.
    pub fn add_websocket_listener(
        &mut self,
        config: WebSocketListenerConfig,
    ) -> Result<Listening, IoError> {
        let (socket, local) = listen(&config.label, config.bind)?;
        let accepts = Accepts::WebSocket {
            local,
            limits: config.limits,
            gate: OriginGate::new(config.allowed_origins),
        };
        let named = (config.label, config.listener);
        self.add_listener(socket, local, named, accepts, config.max_connections)
    }

    fn add_listener(
        &mut self,
        socket: socket2::Socket,
        local: std::net::SocketAddr,
        named: (String, u32),
        accepts: Accepts,
        max_connections: usize,
    ) -> Result<Listening, IoError> {
        let id = self.transports.reserve();
        let label = named.0.clone();
        let listener = Listener::new(socket, named, accepts, max_connections, id.token());
        self.transports
            .install(id, Transport::Listener(Box::new(listener)))
            .map_err(|source| IoError::TcpSocket {
                label,
                address: local,
                action: "watch",
                source,
            })?;
        tracing::info!(%local, "listening");
        Ok(Listening {
            transport: id,
            local,
        })
    }

    /// Starts to connect to a TCP peer and returns at once.
    ///
    /// When the peer has answered, the port comes up with the configured origin, and `outcome` is
    /// called with its number. If the peer refuses, stays silent or cannot be reached, or if the
    /// transport is closed first, `outcome` is called with the error. It is called exactly once,
    /// unless this call fails or the loop is dropped first.
    pub fn add_tcp_client(
        &mut self,
        config: TcpClientConfig,
        outcome: impl FnOnce(&mut M, Time, Result<PortId, IoError>) + 'static,
    ) -> Result<TransportId, IoError> {
        let becomes = Becomes::Stream(config.limits);
        let now = self.clock.now();
        let connecting = Connecting::start(
            (config.label, config.origin),
            config.address,
            becomes,
            now,
            config.timeout,
        )?;
        self.add_connecting(connecting, outcome)
    }

    /// Starts to connect to a WebSocket server and returns at once. `outcome` is called as for
    /// [`Sockets::add_tcp_client`], after the handshake.
    pub fn add_websocket_client(
        &mut self,
        config: WebSocketClientConfig,
        outcome: impl FnOnce(&mut M, Time, Result<PortId, IoError>) + 'static,
    ) -> Result<TransportId, IoError> {
        let timeout = config.limits.handshake_timeout;
        let becomes = Becomes::WebSocket {
            uri: config.uri,
            limits: config.limits,
        };
        let now = self.clock.now();
        let connecting = Connecting::start(
            (config.label, config.origin),
            config.address,
            becomes,
            now,
            timeout,
        )?;
        self.add_connecting(connecting, outcome)
    }

    fn add_connecting(
        &mut self,
        connecting: Connecting,
        outcome: impl FnOnce(&mut M, Time, Result<PortId, IoError>) + 'static,
    ) -> Result<TransportId, IoError> {
        let (label, address) = (connecting.label.clone(), connecting.address);
        let id = self.transports.reserve();
        self.transports
            .install(id, Transport::Connecting(Box::new(connecting)))
            .map_err(|source| IoError::TcpSocket {
                label,
                address,
                action: "watch",
                source,
            })?;
        if let Some((transport, poller)) = self.transports.polled(id.slot as usize) {
            let transport = &*transport;
            poller.set_interest(transport, id.token(), false, true);
        }
        self.outcomes.insert(id.slot as usize, Box::new(outcome));
        Ok(id)
    }

    /// Makes a TUN device a port, with one packet per frame. The MTU is read once, so it must be
    /// set before. Must be called in a thread of the device's network namespace.
    pub fn add_tun(
        &mut self,
        label: impl Into<String>,
        origin: PortOrigin,
        device: TunDevice,
    ) -> Result<PortId, IoError> {
        let label = label.into();
        let (mtu, name) = (device.mtu()?, device.name().to_owned());
        let id = self.transports.reserve();
        let info = PortInfo {
            label: label.clone(),
            origin,
            mtu,
            peer: name.clone(),
            medium: Medium::Tun {
                interface: name.clone(),
            },
        };
        let port = self.open_port(id, info)?;
        let tun = TunPort::new(device, label, id.token(), port);
        let added = self.transports.install(id, Transport::Tun(Box::new(tun)));
        self.keep_if_added(port, added, |source| IoError::Tun {
            name,
            action: "watch",
            source,
        })
    }
}

/// The description of a Unix connection.
#[derive(Debug)]
pub(crate) struct UnixEnds {
    pub(crate) label: String,
    /// The origin of its port.
    pub(crate) origin: PortOrigin,
    /// For logs.
    pub(crate) peer: String,
    /// The socket file.
    pub(crate) path: Option<PathBuf>,
    /// The token of its listener.
    pub(crate) listener: Option<u64>,
}

/// The reason why a stream did not become a port.
#[derive(Debug)]
pub(crate) enum Unattached {
    Loop(IoError),
    System(std::io::Error),
}

impl Unattached {
    pub(crate) fn unwrap_or_else(self, name: impl FnOnce(std::io::Error) -> IoError) -> IoError {
        match self {
            Unattached::Loop(error) => error,
            Unattached::System(error) => name(error),
        }
    }
}
