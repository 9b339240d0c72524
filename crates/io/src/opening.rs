//! Ports that the machine asks for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use whimbrel_core::{
    Endpoint, Machine, OpenRefusal, Peer, PortId, PortOrigin, PortRequest, PortToken, Time,
};

use crate::requests::{OpenRequest, OpenedLimits, remote_of};
use crate::sockets::Sockets;
use crate::{
    EthernetConfig, EthernetNeighbour, Interface, IoError, Neighbour, TcpClientConfig, TunDevice,
    UdpConfig, WebSocketClientConfig,
};

impl<M: Machine + 'static> Sockets<M> {
    /// Sets the bounds of connections that the machine asks for from now on.
    pub fn set_opened_limits(&mut self, limits: OpenedLimits) {
        self.opened_limits = limits;
    }

    /// Carries out a request of the machine about its ports.
    pub(crate) fn grant(&mut self, request: PortRequest) {
        match request {
            PortRequest::Open {
                token,
                label,
                endpoint,
            } => self.open(OpenRequest {
                token,
                label,
                endpoint,
            }),
            PortRequest::Close(port) => self.close_port(port),
            PortRequest::Keep(port) => {
                self.keep_inbound(port);
            }
            PortRequest::LookUpAgain(port) => self.look_up_again(port),
            PortRequest::SetEcn { port, capable } => self.set_ecn(port, capable),
        }
    }

    fn open(&mut self, request: OpenRequest) {
        match remote_of(&request.endpoint) {
            Some(Peer::Named { .. }) => self.look_up_request(request),
            Some(Peer::Address(address)) => {
                let address = *address;
                self.open_at(request, address);
            }
            None => self.open_here(request),
        }
    }

    /// Opens a port to a peer whose address is known. Returns the port if it is up at once.
    pub(crate) fn open_at(&mut self, request: OpenRequest, address: SocketAddr) -> Option<PortId> {
        let OpenRequest {
            token,
            label,
            endpoint,
        } = request;
        let origin = PortOrigin::Opened(token);
        let outcome = refusing::<M>(token);
        let opened = match endpoint {
            Endpoint::Udp { remote, shared } => {
                let neighbour = Neighbour {
                    label,
                    address: remote,
                    origin,
                };
                self.open_udp(neighbour, address, shared).map(Some)
            }
            Endpoint::Tcp { .. } => {
                let config = TcpClientConfig {
                    origin,
                    ..TcpClientConfig::new(label, address, self.opened_limits.streams)
                };
                self.add_tcp_client(config, outcome).map(|_| None)
            }
            Endpoint::WebSocket { remote, path } => {
                let config = WebSocketClientConfig {
                    label,
                    origin,
                    address,
                    uri: format!("ws://{}{path}", without_zone(&remote)),
                    limits: self.opened_limits.websockets,
                };
                self.add_websocket_client(config, outcome).map(|_| None)
            }
            // These endpoints have no IP address.
            Endpoint::Unix { .. } | Endpoint::Ethernet { .. } | Endpoint::Tun { .. } => Ok(None),
        };
        opened.unwrap_or_else(|error| {
            self.refuse(token, failed(error));
            None
        })
    }

    /// Opens a port to a local program, a station or a group.
    fn open_here(&mut self, request: OpenRequest) {
        let OpenRequest {
            token,
            label,
            endpoint,
        } = request;
        let origin = PortOrigin::Opened(token);
        let opened = match endpoint {
            Endpoint::Unix { path } => self
                .call_unix((label, origin), &path, self.opened_limits.streams)
                .map(|_| ())
                .map_err(failed),
            Endpoint::Ethernet {
                interface,
                remote,
                ether_type,
            } => self
                .open_ethernet((label, origin), &interface, remote, ether_type)
                .map_err(failed),
            Endpoint::Tun {
                name,
                addresses,
                mtu,
            } => device_of(&name, &addresses, mtu).and_then(|device| {
                let added = self.add_tun(label, origin, device);
                added.map(|_| ()).map_err(failed)
            }),
            // These endpoints have an IP address.
            Endpoint::Udp { .. } | Endpoint::Tcp { .. } | Endpoint::WebSocket { .. } => Ok(()),
        };
        if let Err(refusal) = opened {
            self.refuse(token, refusal);
        }
    }

    pub(crate) fn refuse(&mut self, token: PortToken, refusal: OpenRefusal) {
        tracing::debug!(token = token.0, %refusal, "a port cannot be opened");
        self.side.count_report();
        let now = self.clock.now();
        self.side.machine.handle_refusal(now, token, refusal);
    }

    fn open_udp(
        &mut self,
        neighbour: Neighbour,
        address: SocketAddr,
        shared: bool,
    ) -> Result<PortId, IoError> {
        if let Some(link) = self.transports.listening_link(address).filter(|_| shared) {
            return self.add_neighbour_at(link, neighbour, address);
        }
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let config = UdpConfig::new(neighbour.label.clone(), (any, 0).into());
        let link = self.add_udp(config)?.transport;
        let added = self.add_neighbour_at(link, neighbour, address);
        if added.is_err() {
            self.close_transport(link);
        }
        added
    }

    fn open_ethernet(
        &mut self,
        (label, origin): (String, PortOrigin),
        interface: &str,
        address: [u8; 6],
        ether_type: u16,
    ) -> Result<(), IoError> {
        let interface = Interface::find(interface)?;
        let mut config = EthernetConfig::new(label.clone(), interface, ether_type);
        config.neighbours.push(EthernetNeighbour {
            label,
            address,
            origin,
        });
        self.add_ethernet(config).map(|_| ())
    }
}

/// Writes a peer for a URI that leaves this machine: without the interface of a link-local address,
/// which means nothing elsewhere (RFC 6874, section 1).
fn without_zone(remote: &Peer) -> String {
    let text = remote.to_string();
    match (text.split_once('%'), text.split_once(']')) {
        (Some((address, _)), Some((_, port))) => format!("{address}]{port}"),
        _ => text,
    }
}

/// Tells the machine if connecting fails; a port that comes up is reported by itself.
fn refusing<M: Machine>(
    token: PortToken,
) -> impl FnOnce(&mut M, Time, Result<PortId, IoError>) + 'static {
    move |machine, now, outcome| {
        if let Err(error) = outcome {
            machine.handle_refusal(now, token, failed(error));
        }
    }
}

fn failed(error: IoError) -> OpenRefusal {
    let why = error.to_string();
    match error {
        IoError::SocketPathNotPermitted { .. } => OpenRefusal::NotPermitted(why),
        _ => OpenRefusal::Failed(why),
    }
}

/// Creates a TUN device with its addresses and MTU, and brings it up.
fn device_of(name: &str, addresses: &[(IpAddr, u8)], mtu: usize) -> Result<TunDevice, OpenRefusal> {
    let mtu = u16::try_from(mtu).map_err(|_| {
        OpenRefusal::Unsupported(format!("a packet has at most 65,535 bytes, not {mtu}"))
    })?;
    let device = TunDevice::create_with_offload(name).map_err(failed)?;
    device.set_mtu(mtu).map_err(failed)?;
    for (address, prefix_length) in addresses {
        let IpAddr::V4(address) = address else {
            return Err(OpenRefusal::Unsupported(format!(
                "TUN devices get IPv4 addresses only, not {address}"
            )));
        };
        device.assign(*address, *prefix_length).map_err(failed)?;
    }
    device.bring_up().map_err(failed)?;
    Ok(device)
}
