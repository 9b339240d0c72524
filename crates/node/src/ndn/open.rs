//! Sockets of an NDN router: those of its configuration, and those that management asks for.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use whimbrel_forwarder::FaceUri;
use whimbrel_forwarder::mgmt::{FaceFailure, RequestId};
use whimbrel_io::{
    CallerLimits, EthernetConfig, EventLoop, Interface, IoError, Neighbour, StreamLimits,
    TcpClientConfig, TcpListenerConfig, TransportId, UdpConfig, UdpMulticastConfig,
    UnixListenerConfig, WebSocketClientConfig, WebSocketLimits, WebSocketListenerConfig,
};
use whimbrel_ndn_packet::{MAX_PACKET, types};

use super::faces::label_of;
use super::{NdnRouter, Wanted};
use crate::config::NdnSection;
use crate::place::Places;
use crate::run::StartError;

/// The loop of an NDN router.
pub type NdnLoop = EventLoop<NdnRouter>;

/// Where NFD's programs look for a forwarder.
pub const NFD_SOCKET: &str = "/run/nfd/nfd.sock";
/// Programs of every user may attach, as with NFD.
const SOCKET_MODE: u32 = 0o666;
/// NDN's EtherType, and its group (as NFD has them).
const ETHER_TYPE: u16 = 0x8624;
const ETHERNET_GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 0x00, 0x17, 0xaa];
/// Most programs and peers on one listener.
const MAX_CONNECTIONS: usize = 1024;

/// What an NDN router has opened, for its user and for scripts.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct NdnOpened {
    /// The socket for programs.
    pub socket: Option<PathBuf>,
    /// Bound UDP addresses.
    pub udp: Vec<SocketAddr>,
    /// Bound TCP addresses.
    pub tcp: Vec<SocketAddr>,
    /// Bound WebSocket addresses.
    pub websocket: Vec<SocketAddr>,
    /// Interfaces on which multicast is heard: by UDP, by Ethernet.
    pub multicast: Vec<String>,
    /// See [`NdnOpened::multicast`].
    pub ethernet: Vec<String>,
    /// Where Prometheus asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

impl NdnOpened {
    /// What it listens on, as FaceUris.
    pub fn channels(&self) -> Vec<String> {
        let unix = self
            .socket
            .iter()
            .map(|path| format!("unix://{}", path.display()));
        let udp = self
            .udp
            .iter()
            .map(|address| FaceUri::udp(*address).to_string());
        let tcp = self
            .tcp
            .iter()
            .map(|address| FaceUri::tcp(*address).to_string());
        let websocket = self
            .websocket
            .iter()
            .map(|address| format!("ws://{address}"));
        unix.chain(udp).chain(tcp).chain(websocket).collect()
    }
}

/// The UDP sockets that faces are made on.
#[derive(Clone, Debug, Default)]
pub struct Sockets(Vec<(SocketAddr, TransportId)>);

impl Sockets {
    /// The socket that can reach `peer`.
    fn towards(&self, peer: SocketAddr) -> Option<TransportId> {
        let same = |bound: &SocketAddr| bound.is_ipv4() == peer.is_ipv4();
        let both =
            |bound: &SocketAddr| bound.is_ipv6() && bound.ip().is_unspecified() && peer.is_ipv4();
        let find =
            |fits: &dyn Fn(&SocketAddr) -> bool| self.0.iter().find(|(bound, _)| fits(bound));
        find(&same).or_else(|| find(&both)).map(|(_, id)| *id)
    }
}

/// Opens what `section` names. The rest comes up as others call or management asks.
pub fn open_listeners(
    event_loop: &mut NdnLoop,
    section: &NdnSection,
) -> Result<(NdnOpened, Sockets), StartError> {
    let mut opened = NdnOpened {
        socket: Some(open_socket(event_loop, section.socket.as_deref())?),
        ..NdnOpened::default()
    };
    let mut sockets = Sockets::default();
    for address in &section.udp {
        let link = on_this_machine(*address, |address| {
            // The router ends faces itself when they have been silent for too long.
            let callers = CallerLimits {
                max: section.max_faces,
                idle: None,
                ..CallerLimits::default()
            };
            let config = UdpConfig {
                path_mtu: section.mtu,
                ..UdpConfig::new("udp", address)
            };
            event_loop.add_udp(config.listen(callers))
        })?;
        opened.udp.push(link.local);
        sockets.0.push((link.local, link.transport));
    }
    for address in &section.tcp {
        let listening = on_this_machine(*address, |address| {
            let config = TcpListenerConfig::new("tcp", address, packet_stream());
            event_loop.add_tcp_listener(config)
        })?;
        opened.tcp.push(listening.local);
    }
    let allowed_origins = section.web_origins()?;
    for address in &section.websocket {
        let listening = on_this_machine(*address, |address| {
            let limits = WebSocketLimits::new(STREAM_PACKET);
            event_loop.add_websocket_listener(WebSocketListenerConfig {
                allowed_origins: allowed_origins.clone(),
                ..WebSocketListenerConfig::new("websocket", address, limits)
            })
        })?;
        opened.websocket.push(listening.local);
    }
    join_groups(event_loop, section, &mut opened)?;
    Ok((opened, sockets))
}

/// Largest LpPacket on a stream: a packet and its header fields.
const STREAM_PACKET: usize = MAX_PACKET + 512;
/// What a stream carries. All else, an HTTP request for example, ends it.
const PACKET_TYPES: &[u64] = &[types::INTEREST, types::DATA, types::LP_PACKET];

/// Framing and limits of a stream of NDN packets.
pub(super) fn packet_stream() -> StreamLimits {
    StreamLimits::tlv_of(PACKET_TYPES, STREAM_PACKET)
}

/// A machine without IPv6 still has IPv4: where all addresses are meant, those that there are will
/// do.
fn on_this_machine<T>(
    address: SocketAddr,
    mut open: impl FnMut(SocketAddr) -> Result<T, IoError>,
) -> Result<T, IoError> {
    match open(address) {
        Err(
            IoError::AddressNotHere { .. } | IoError::UdpSocket { .. } | IoError::TcpSocket { .. },
        ) if address.is_ipv6() && address.ip().is_unspecified() => {
            open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
        }
        outcome => outcome,
    }
}

/// The socket for programs: the one that is asked for, or NFD's, or one of this user's.
fn open_socket(event_loop: &mut NdnLoop, asked: Option<&Path>) -> Result<PathBuf, StartError> {
    let listen = |event_loop: &mut NdnLoop, path: &Path| {
        let config = UnixListenerConfig {
            mode: SOCKET_MODE,
            folder_mode: Some(0o755),
            max_connections: MAX_CONNECTIONS,
            limits: packet_stream(),
            ..UnixListenerConfig::new("unix", path)
        };
        event_loop.add_unix_listener(config)
    };
    if let Some(path) = asked {
        listen(event_loop, path)?;
        return Ok(path.to_owned());
    }
    match listen(event_loop, Path::new(NFD_SOCKET)) {
        Ok(_) => return Ok(NFD_SOCKET.into()),
        // Another forwarder runs: to take its clients elsewhere unasked would surprise everybody.
        Err(error @ IoError::SocketPathInUse { .. }) => return Err(error.into()),
        Err(error) => {
            tracing::info!(%error, "no socket at {NFD_SOCKET}, so there will be one of this user")
        }
    }
    let own = Places::of_this_user().run.join("nfd.sock");
    listen(event_loop, &own)?;
    Ok(own)
}

/// Opens a socket for `wanted`; what becomes of it, the router is told.
pub fn open_face(event_loop: &mut NdnLoop, sockets: &Sockets, wanted: &Wanted) {
    if let Err(why) = try_open(event_loop, sockets, wanted) {
        let now = event_loop.clock().now();
        event_loop
            .machine_mut()
            .open_failed(now, wanted.request, why);
    }
}

fn try_open(
    event_loop: &mut NdnLoop,
    sockets: &Sockets,
    wanted: &Wanted,
) -> Result<(), FaceFailure> {
    let label = label_of(wanted.request);
    let refused = |error: IoError| FaceFailure::Failed(error.to_string());
    match &wanted.remote {
        FaceUri::Udp(endpoint) if !wanted.remote.is_multicast() => {
            let address = SocketAddr::new(endpoint.address, endpoint.port);
            let socket = sockets.towards(address).ok_or_else(|| {
                FaceFailure::Unsupported(format!(
                    "no UDP socket of this router reaches {address}; see [ndn] udp"
                ))
            })?;
            event_loop
                .add_neighbour(socket, Neighbour { label, address })
                .map_err(refused)?;
        }
        FaceUri::Tcp(endpoint) => {
            let address = SocketAddr::new(endpoint.address, endpoint.port);
            let config = TcpClientConfig::new(label, address, packet_stream());
            let outcome = tell_failure(wanted.request);
            event_loop
                .add_tcp_client(config, outcome)
                .map_err(refused)?;
        }
        FaceUri::Ether(address) => {
            let Some(FaceUri::Dev(interface)) = &wanted.local else {
                return Err(FaceFailure::Unsupported(String::from(
                    "an Ethernet face needs the interface: LocalUri dev://NAME",
                )));
            };
            let interface = Interface::find(interface).map_err(refused)?;
            let config = EthernetConfig::new(label.clone(), interface, ETHER_TYPE)
                .neighbour(label, *address);
            event_loop.add_ethernet(config).map_err(refused)?;
        }
        FaceUri::WebSocket {
            secure: false,
            host,
            port,
            path,
        } => {
            let uri = format!("ws://{host}:{port}{path}");
            let address = (host.as_str(), *port)
                .to_socket_addrs()
                .ok()
                .and_then(|mut addresses| addresses.next())
                .ok_or_else(|| FaceFailure::Failed(format!("{host} has no address")))?;
            let limits = WebSocketLimits::new(STREAM_PACKET);
            let config = WebSocketClientConfig {
                label,
                address,
                uri,
                limits,
            };
            let outcome = tell_failure(wanted.request);
            event_loop
                .add_websocket_client(config, outcome)
                .map_err(refused)?;
        }
        other => {
            return Err(FaceFailure::Unsupported(format!(
                "no face can be made to {other}"
            )));
        }
    }
    Ok(())
}

/// A port that comes up tells of itself.
fn tell_failure(
    request: RequestId,
) -> impl FnOnce(&mut NdnRouter, whimbrel_core::Time, Result<whimbrel_core::PortId, IoError>) {
    move |router, now, outcome| {
        if let Err(error) = outcome {
            router.open_failed(now, request, FaceFailure::Failed(error.to_string()));
        }
    }
}

fn join_groups(
    event_loop: &mut NdnLoop,
    section: &NdnSection,
    opened: &mut NdnOpened,
) -> Result<(), StartError> {
    let interfaces = match (section.multicast, section.interfaces.as_slice()) {
        (false, _) => Vec::new(),
        (true, []) => Interface::all()?
            .into_iter()
            .filter(Interface::suits_multicast)
            .collect(),
        (true, named) => named
            .iter()
            .map(|name| Interface::find(name))
            .collect::<Result<Vec<_>, _>>()?,
    };
    for interface in interfaces {
        let name = interface.name.clone();
        let config = UdpMulticastConfig::new("multicast", section.multicast_group, interface);
        match event_loop.add_udp_multicast(config) {
            Ok(_) => opened.multicast.push(name),
            // Who named it wants it; where all are meant, those will do that can.
            Err(error) if !section.interfaces.is_empty() => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "no multicast on {name}"),
        }
    }
    for name in &section.ethernet {
        let callers = CallerLimits {
            max: section.max_faces,
            idle: None,
            ..CallerLimits::default()
        };
        let config = EthernetConfig::new("ethernet", Interface::find(name)?, ETHER_TYPE);
        event_loop.add_ethernet(config.group(ETHERNET_GROUP).listen(callers))?;
        opened.ethernet.push(name.clone());
    }
    Ok(())
}
