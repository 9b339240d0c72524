//! The listening sockets of an NDN router.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use whimbrel_io::{
    EthernetConfig, EventLoop, InboundLimits, Interface, IoError, OpenedLimits, StreamLimits,
    TcpListenerConfig, UdpConfig, UdpMulticastConfig, UnixListenerConfig, WebSocketLimits,
    WebSocketListenerConfig,
};
use whimbrel_ndn_mgmt::FaceUri;
use whimbrel_ndn_packet::{MAX_PACKET, types};
use whimbrel_ndn_router::NdnRouter;
use whimbrel_ndn_router::endpoint::ETHER_TYPE;

use crate::config::NdnPlan;
use crate::run::{GROUP_SOCKET_MODE, StartError};
use whimbrel_client::place::{FolderError, Places, check_own};

/// The loop of an NDN router.
pub type NdnLoop = EventLoop<NdnRouter>;

/// The socket at which NFD's programs look for a forwarder.
pub const NFD_SOCKET: &str = "/run/nfd/nfd.sock";
/// Programs of every user may attach, as with NFD.
const SOCKET_MODE: u32 = 0o666;
/// NDN's Ethernet group, as NFD has it.
const ETHERNET_GROUP: [u8; 6] = [0x01, 0x00, 0x5e, 0x00, 0x17, 0xaa];
/// Bound of the programs and peers on one listener.
const MAX_CONNECTIONS: usize = 1024;

/// The sockets that an NDN router has opened, for people and scripts.
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
    /// Interfaces that receive multicast: by UDP, by Ethernet.
    pub multicast: Vec<String>,
    /// See [`NdnOpened::multicast`].
    pub ethernet: Vec<String>,
    /// The address for Prometheus, for this plane alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

impl NdnOpened {
    /// Returns its listening addresses, as FaceUris.
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

/// Opens the sockets of `plan`. Other ports open when peers connect or management requests them.
pub fn open_listeners(event_loop: &mut NdnLoop, plan: &NdnPlan) -> Result<NdnOpened, StartError> {
    event_loop.set_opened_limits(opened_limits());
    let mut opened = NdnOpened {
        socket: Some(open_socket(
            event_loop,
            plan.socket.as_deref(),
            plan.socket_group,
        )?),
        ..NdnOpened::default()
    };
    for address in &plan.udp {
        let link = on_this_machine(*address, |address| {
            // The router ends faces itself when they have been silent for too long.
            let inbound = InboundLimits {
                max: plan.max_faces,
                idle: None,
                ..InboundLimits::default()
            };
            let config = UdpConfig {
                path_mtu: plan.mtu,
                ..UdpConfig::new("udp", address)
            };
            let gate = Box::new(event_loop.machine().gate());
            event_loop.add_udp_with_gate(config.listen(inbound), gate)
        })?;
        opened.udp.push(link.local);
    }
    for address in &plan.tcp {
        let listening = on_this_machine(*address, |address| {
            let config = TcpListenerConfig {
                // The router decides who gets a face.
                max_connections: plan.max_faces,
                ..TcpListenerConfig::new("tcp", address, packet_stream())
            };
            event_loop.add_tcp_listener(config)
        })?;
        opened.tcp.push(listening.local);
    }
    for address in &plan.websocket {
        let listening = on_this_machine(*address, |address| {
            let limits = WebSocketLimits::new(STREAM_PACKET);
            event_loop.add_websocket_listener(WebSocketListenerConfig {
                allowed_origins: plan.allowed_origins.clone(),
                max_connections: plan.max_faces,
                ..WebSocketListenerConfig::new("websocket", address, limits)
            })
        })?;
        opened.websocket.push(listening.local);
    }
    join_groups(event_loop, plan, &mut opened)?;
    Ok(opened)
}

/// Largest LpPacket on a stream: a packet and its header fields.
const STREAM_PACKET: usize = MAX_PACKET + 512;
/// The types of blocks that a stream carries. Any other, such as an HTTP request, ends it.
const PACKET_TYPES: &[u64] = &[types::INTEREST, types::DATA, types::LP_PACKET];

/// Framing and limits of a stream of NDN packets.
fn packet_stream() -> StreamLimits {
    StreamLimits::tlv_of(PACKET_TYPES, STREAM_PACKET)
}

/// Limits of the ports that a machine opens.
pub(crate) fn opened_limits() -> OpenedLimits {
    OpenedLimits {
        streams: packet_stream(),
        websockets: WebSocketLimits::new(STREAM_PACKET),
    }
}

/// On a machine without IPv6, IPv4 stands for all addresses.
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

/// Opens the socket for programs: the configured one, or NFD's, or one of this user's.
fn open_socket(
    event_loop: &mut NdnLoop,
    asked: Option<&Path>,
    group: Option<u32>,
) -> Result<PathBuf, StartError> {
    let listen = |event_loop: &mut NdnLoop, path: &Path| -> Result<(), StartError> {
        check_own(path).map_err(FolderError::from)?;
        let config = UnixListenerConfig {
            mode: group.map_or(SOCKET_MODE, |_| GROUP_SOCKET_MODE),
            group,
            folder_mode: Some(0o755),
            max_connections: MAX_CONNECTIONS,
            limits: packet_stream(),
            ..UnixListenerConfig::new("unix", path)
        };
        event_loop.add_unix_listener(config)?;
        Ok(())
    };
    if let Some(path) = asked {
        listen(event_loop, path)?;
        return Ok(path.to_owned());
    }
    match listen(event_loop, Path::new(NFD_SOCKET)) {
        Ok(()) => return Ok(NFD_SOCKET.into()),
        // Another forwarder runs: taking its programs away unasked would surprise their users.
        Err(error @ StartError::Socket(IoError::SocketPathInUse { .. })) => return Err(error),
        Err(error) => {
            tracing::info!(%error, "cannot open {NFD_SOCKET}; using a socket of this user")
        }
    }
    let own = Places::of_this_user().run.join("nfd.sock");
    listen(event_loop, &own)?;
    Ok(own)
}

fn join_groups(
    event_loop: &mut NdnLoop,
    plan: &NdnPlan,
    opened: &mut NdnOpened,
) -> Result<(), StartError> {
    let (label, group) = ("multicast", plan.multicast_group);
    if plan.multicast {
        // A configured interface must work, or come later.
        for name in &plan.interfaces {
            if event_loop
                .await_udp_multicast(label, group, name)?
                .is_some()
            {
                opened.multicast.push(name.clone());
            }
        }
    }
    if plan.multicast && plan.interfaces.is_empty() {
        for interface in Interface::all()? {
            if !interface.suits_multicast() {
                continue;
            }
            let name = interface.name.clone();
            match event_loop.add_udp_multicast(UdpMulticastConfig::new(label, group, interface)) {
                Ok(_) => opened.multicast.push(name),
                // Of all interfaces, those that work suffice.
                Err(error) => tracing::warn!(%error, "no multicast on {name}"),
            }
        }
    }
    for name in &plan.ethernet {
        let inbound = InboundLimits {
            max: plan.max_faces,
            idle: None,
            ..InboundLimits::default()
        };
        let interface = match Interface::find(name) {
            Err(IoError::NoSuchInterface { .. }) => Interface::awaited(name),
            found => found?,
        };
        let is_here = !interface.is_awaited();
        let config = EthernetConfig {
            outlives_interface: true,
            ..EthernetConfig::new("ethernet", interface, ETHER_TYPE)
        };
        event_loop.add_ethernet(config.group(ETHERNET_GROUP).listen(inbound))?;
        if is_here {
            opened.ethernet.push(name.clone());
        }
    }
    Ok(())
}
