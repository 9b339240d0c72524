//! One UDP socket and the ports behind it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::UdpSocketState;
use socket2::Socket;
use whimbrel_core::{
    CallerGate, KeyedMap, Machine, PortId, PortInfo, PortOrigin, SeededRng, Time, keyed_map,
};

use super::filter::Filter;
use super::group::Group;
use super::inbound::InboundTable;
use super::lanes::Lanes;
use super::path_mtu::{Route, RouteProbe};
use super::socket::{Bound, batching, canonical, enlarge_buffers, for_socket};
use super::source::Source;
use super::{DatagramCarrier, Neighbour, UdpConfig};
use crate::IoError;
use crate::counters::{TransportCounters, TransportSnapshot};
use crate::interface::WorkingAddresses;
use crate::side::MachineSide;
use crate::sole::Sole;

/// The address of a port's peer, and the source address for it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Canonical form: the key of the port.
    pub(super) address: SocketAddr,
    /// The form for this socket's family.
    pub(super) destination: SocketAddr,
    /// Set if the socket is bound to all addresses of this machine.
    pub(super) source: Option<Source>,
    /// The MTU of the route at the last lookup.
    route_mtu: usize,
    /// False while there is no route to it.
    is_routed: bool,
    /// False while the interface towards it does not work.
    is_carried: bool,
    /// Frames to it are sent as ECN-capable.
    pub(super) sends_ecn: bool,
}

impl Peer {
    pub(super) fn of_group(address: SocketAddr, mtu: usize) -> Peer {
        Peer {
            address,
            destination: address,
            source: None,
            route_mtu: mtu,
            is_routed: true,
            is_carried: true,
            sends_ecn: false,
        }
    }
}

/// Frames that the kernel could not accept at once.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    pub(super) port: Option<PortId>,
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
    pub(super) segment: usize,
}

/// A UDP socket with its ports.
#[derive(Debug)]
pub(crate) struct UdpEndpoint {
    pub(super) config: UdpConfig,
    pub(super) socket: Socket,
    pub(super) state: UdpSocketState,
    pub(super) local: SocketAddr,
    kernel_buffers: (usize, usize),
    pub(super) token: u64,
    pub(super) slot: usize,
    pub(super) peers: BTreeMap<PortId, Peer>,
    pub(super) by_address: KeyedMap<SocketAddr, PortId>,
    /// The sender of the last batch: bulk traffic comes from the same peer again and again.
    pub(super) last_sender: Option<(SocketAddr, PortId)>,
    pub(super) inbound: Option<InboundTable>,
    /// Decides who becomes an inbound peer; without one, any sender of a datagram.
    pub(super) gate: Option<Box<dyn CallerGate>>,
    /// What the gate replies.
    pub(super) reply: Vec<u8>,
    /// Set if the socket is in a multicast group; all datagrams then belong to one port.
    pub(super) group: Option<Group>,
    /// For peers at work, while strangers flood the socket.
    pub(super) lanes: Lanes,
    /// Attached to the socket during a flood, if the gate says what frames look like.
    pub(super) filter: Option<Filter>,
    pub(super) probe: RouteProbe,
    /// Held while the socket's packets are this program's alone.
    _sole: Option<Sole>,
    /// No interface has the address that the socket is bound to, and none has had it so far.
    is_waiting: bool,
    pub(super) recheck_allowed_at: Time,
    pub(super) unsent: Unsent,
    pub(super) counters: TransportCounters,
}

impl UdpEndpoint {
    pub(crate) fn open(
        config: UdpConfig,
        slot: usize,
        token: u64,
        rng: &mut SeededRng,
    ) -> Result<UdpEndpoint, IoError> {
        let Bound { socket, is_waiting } = config.carrier.bind(&config.label, config.bind)?;
        let sole = config.carrier.claim(&config.label, config.bind)?;
        let local = socket
            .local_addr()
            .ok()
            .and_then(|address| address.as_socket())
            .map_or(config.bind, |told| config.carrier.local(told));
        let kernel_buffers = enlarge_buffers(
            &config.label,
            &socket,
            config.receive_buffer,
            config.send_buffer,
        );
        let mut endpoint =
            UdpEndpoint::new(config, socket, (local, kernel_buffers), slot, token, rng)?;
        endpoint._sole = sole;
        endpoint.is_waiting = is_waiting;
        Ok(endpoint)
    }

    pub(super) fn new(
        config: UdpConfig,
        socket: Socket,
        (local, kernel_buffers): (SocketAddr, (usize, usize)),
        slot: usize,
        token: u64,
        rng: &mut SeededRng,
    ) -> Result<UdpEndpoint, IoError> {
        let failed = |action| {
            let (label, address) = (config.label.clone(), config.bind);
            move |source| IoError::UdpSocket {
                label,
                address,
                action,
                source,
            }
        };
        let state = batching(&socket).map_err(failed("configure"))?;
        config
            .carrier
            .enable_errors(&state, &socket)
            .map_err(failed("ask for errors of"))?;
        Ok(UdpEndpoint {
            socket,
            state,
            local,
            kernel_buffers,
            token,
            slot,
            peers: BTreeMap::new(),
            by_address: keyed_map(rng),
            last_sender: None,
            inbound: config.inbound.map(InboundTable::new),
            gate: None,
            reply: Vec::new(),
            group: None,
            lanes: Lanes::default(),
            filter: None,
            probe: RouteProbe::default(),
            _sole: None,
            is_waiting: false,
            recheck_allowed_at: Time::ZERO,
            unsent: Unsent::default(),
            counters: TransportCounters::default(),
            config,
        })
    }

    pub(crate) fn set_gate(&mut self, gate: Option<Box<dyn CallerGate>>) {
        self.gate = gate;
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(crate) fn kernel_buffers(&self) -> (usize, usize) {
        self.kernel_buffers
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = PortId> {
        self.peers.keys().copied()
    }

    pub(crate) fn add_neighbour<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        neighbour: Neighbour,
        address: SocketAddr,
    ) -> Result<PortId, IoError> {
        if self.is_group() {
            return Err(IoError::NoSuchLink);
        }
        let label = neighbour.label;
        let address = canonical(address);
        if !self.config.carrier.reaches(self.local, address) {
            return Err(IoError::FamilyMismatch {
                label,
                bound: self.local,
                address,
            });
        }
        match self.by_address.get(&address).copied() {
            // The inbound peer that was configured now comes back as a neighbour.
            Some(port)
                if self
                    .inbound
                    .as_mut()
                    .is_some_and(|inbound| inbound.heard(now, port)) =>
            {
                self.close_port(side, now, port);
            }
            Some(_) => return Err(IoError::DuplicateNeighbour { label, address }),
            None => {}
        }
        self.open_port(side, now, label.clone(), neighbour.origin, address, None)
            .ok_or(IoError::OutOfPorts { label })
    }

    /// Moves a neighbour to another address; its port stays. Returns false if the address is in
    /// use, or of a family that this socket does not support.
    pub(crate) fn move_neighbour(&mut self, now: Time, port: PortId, address: SocketAddr) -> bool {
        let address = canonical(address);
        let foreign = !self.config.carrier.reaches(self.local, address);
        let Some(peer) = self.peers.get_mut(&port) else {
            return false;
        };
        if foreign || self.by_address.contains_key(&address) {
            return false;
        }
        self.by_address.remove(&peer.address);
        self.by_address.insert(address, port);
        let route = self.probe.towards(address);
        let is_free = self.local.ip().is_unspecified();
        *peer = Peer {
            address,
            destination: for_socket(address, self.local.is_ipv6()),
            source: is_free.then(|| Source::of_neighbour(now, route.source)),
            route_mtu: route.largest_payload(self.config.path_mtu, self.config.carrier),
            is_routed: route.source.is_some(),
            is_carried: peer.is_carried,
            sends_ecn: peer.sends_ecn,
        };
        self.last_sender = None;
        self.lanes.close(port);
        true
    }

    /// Sends the frames of a port as ECN-capable from now on, or not.
    pub(crate) fn set_ecn(&mut self, port: PortId, capable: bool) {
        if let Some(peer) = self.peers.get_mut(&port) {
            peer.sends_ecn = capable;
        }
    }

    /// Returns the address of the neighbour on a port.
    pub(crate) fn address_of(&self, port: PortId) -> Option<SocketAddr> {
        self.peers.get(&port).map(|peer| peer.address)
    }

    /// Returns true for a UDP socket that admits inbound peers.
    pub(crate) fn listens_on_udp(&self) -> bool {
        self.inbound.is_some() && self.config.carrier == DatagramCarrier::Udp
    }

    /// Makes an inbound peer permanent. Returns false if the port is not an inbound peer.
    pub(crate) fn keep_inbound(&mut self, port: PortId) -> bool {
        self.inbound
            .as_mut()
            .is_some_and(|inbound| inbound.remove(port))
    }

    pub(super) fn open_port<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        label: String,
        origin: PortOrigin,
        address: SocketAddr,
        called: Option<IpAddr>,
    ) -> Option<PortId> {
        let route = self.probe.towards(address);
        let mtu = route.largest_payload(self.config.path_mtu, self.config.carrier);
        let own = canonical(self.local);
        let local = match called
            .or(route.source)
            .filter(|_| own.ip().is_unspecified())
        {
            Some(ip) => canonical(SocketAddr::new(ip, own.port())),
            None => own,
        };
        let medium = self.config.carrier.medium(local, address);
        let info = PortInfo {
            label,
            origin,
            mtu,
            peer: self.config.carrier.written(address),
            medium,
        };
        let port = side.open(now, self.slot, info)?;
        let destination = for_socket(address, self.local.is_ipv6());
        let source = match origin {
            _ if !own.ip().is_unspecified() => None,
            PortOrigin::Accepted(_) => Some(Source::of_inbound(now)),
            _ => Some(Source::of_neighbour(now, route.source)),
        };
        self.peers.insert(
            port,
            Peer {
                address,
                destination,
                source,
                route_mtu: mtu,
                is_routed: route.source.is_some(),
                is_carried: true,
                sends_ecn: false,
            },
        );
        self.by_address.insert(address, port);
        if self.unsent.port.is_some() {
            side.set_blocked(now, port, true);
        }
        Some(port)
    }

    /// Closes a port of this socket and tells the machine.
    pub(crate) fn close_port<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        port: PortId,
    ) {
        if let Some(peer) = self.peers.remove(&port) {
            self.by_address.remove(&peer.address);
        }
        if let Some(inbound) = &mut self.inbound {
            inbound.remove(port);
        }
        self.last_sender = None;
        self.lanes.close(port);
        side.close(now, port);
    }

    /// Looks up the routes to all neighbours again. Inbound peers are not looked up: replies to an
    /// inbound peer leave from the address that it sent to, by any route.
    ///
    /// `working` tells which of this machine's addresses are of interfaces that work.
    pub(crate) fn recheck_routes<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        working: &WorkingAddresses,
    ) {
        let bound = self.local.ip().to_canonical();
        if self.is_waiting && working.has(bound) {
            self.is_waiting = false;
            tracing::info!(label = self.config.label, address = %bound, "the address has come: the link works");
        }
        for (port, peer) in &mut self.peers {
            let chosen = side
                .get(*port)
                .is_some_and(|port| port.info.origin.is_chosen());
            if !chosen || self.group.is_some() {
                continue;
            }
            let route = self.probe.towards(peer.address);
            let from = match &peer.source {
                Some(_) => route.source,
                None => route.source.map(|_| bound),
            };
            let is_carried = from.is_some_and(|from| working.has(from));
            if std::mem::replace(&mut peer.is_carried, is_carried) != is_carried {
                side.note_carrier(now, *port, is_carried);
            }
            let Some(source) = &mut peer.source else {
                continue;
            };
            let was_routed = std::mem::replace(&mut peer.is_routed, route.source.is_some());
            let label = side.get(*port).map(|port| port.info.label.clone());
            let (label, remote) = (label.unwrap_or_default(), peer.address);
            let Some(address) = route.source else {
                if was_routed {
                    tracing::warn!(label, peer = %remote, "no route leads to this neighbour");
                }
                continue;
            };
            if !was_routed {
                tracing::info!(label, peer = %remote, %address, "a route leads to this neighbour again");
            }
            let mtu = route.largest_payload(self.config.path_mtu, self.config.carrier);
            let wider = mtu > peer.route_mtu;
            peer.route_mtu = mtu;
            if let Some(former) = source.rerouted(Some(address)) {
                self.lanes.close(*port);
                tracing::info!(
                    label, peer = %remote, %address, %former,
                    "address changed: this neighbour is called from another one"
                );
                side.move_path(now, *port, mtu);
            } else if wider || !was_routed {
                side.move_path(now, *port, mtu);
            } else {
                side.lower_mtu(now, *port, mtu);
            }
        }
    }

    /// Returns the largest payload on the kernel's route to the peer of `port`, as `judge` has it.
    pub(super) fn payload_on(
        &mut self,
        port: PortId,
        judge: fn(&Route, usize, DatagramCarrier) -> usize,
    ) -> Option<usize> {
        if let Some(group) = &self.group {
            return Some(group.largest_payload(self.config.path_mtu));
        }
        let address = self.peers.get(&port)?.address;
        let route = self.probe.towards(address);
        Some(judge(&route, self.config.path_mtu, self.config.carrier))
    }

    pub(crate) fn snapshot(&self) -> TransportSnapshot {
        TransportSnapshot {
            label: self.config.label.clone(),
            kind: if self.is_group() {
                "udp-multicast"
            } else {
                self.config.carrier.name()
            },
            local: self.local.to_string(),
            kernel_buffers: self.kernel_buffers,
            counters: self.counters,
        }
    }
}

impl AsFd for UdpEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
