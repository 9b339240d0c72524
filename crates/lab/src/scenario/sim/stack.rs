//! A node of the simulator: an IP host, and the machines of its roles.
//!
//! Frames on links are IPv4 packets, as in namespaces: TCP's own, and those of MobilityFirst and
//! NDN with the 28 bytes of IPv4 and UDP before them, or with IPv4's 20 on a link of bare IP. So the planes share links, and a node
//! forwards packets for others, as the kernel does.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use crate::scenario::link::Carrier;
use whimbrel_core::{
    Deadline, Ecn, Machine, Medium, OpenRefusal, PortEvent, PortId, PortInfo, PortOrigin,
    PortRequest, PortToken, Time, Transmit,
};
use whimbrel_gnrs::MemoryStore;
use whimbrel_node::ndn::NdnRouter;
use whimbrel_node::{Node, NodeEvent};
use whimbrel_sim::tcp::{SERVER_PORT, TcpClient, TcpEvent, TcpServer};

/// Bytes of the headers of IPv4 and UDP (RFC 791 without options, RFC 768).
const HEADERS: usize = 28;
/// Bytes of the header of IPv4.
const IP_HEADER: usize = 20;
/// IPv4 without options; the protocol numbers of TCP and UDP.
const IPV4: u8 = 0x45;
const TCP: u8 = 6;
const UDP: u8 = 17;
const BARE: u8 = whimbrel_io::IP_PROTOCOL;
/// Offsets in the headers (RFC 791, RFC 768, RFC 9293).
const TRAFFIC_CLASS: usize = 1;
const PROTOCOL: usize = 9;
const SOURCE: usize = 12;
const DESTINATION: usize = 16;
const DESTINATION_PORT: usize = 22;
/// The codepoint ECT(0), and the bits of codepoints (RFC 3168 §5).
const ECT: u8 = 2;
const ECN_BITS: u8 = 3;
/// The origin of the port that stands for the network device of a TCP proxy on the node.
pub(super) const PROXY_DEVICE: PortOrigin = PortOrigin::Accepted(u32::MAX);
/// Numbers of tunnels, beyond those that the simulator gives to ports.
const FIRST_TUNNEL: u32 = 1 << 30;

/// Returns the bytes before a frame.
const fn headers(is_bare: bool) -> usize {
    if is_bare { IP_HEADER } else { HEADERS }
}

/// An event of a [`Stack`].
#[derive(Debug)]
pub(super) enum StackEvent {
    /// From a host or a name server.
    Node(NodeEvent),
    /// From the client of the TCP server at this address.
    Tcp(Ipv4Addr, TcpEvent),
}

/// The machine that a UDP packet is for; its number is the packet's destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Above {
    MobilityFirst = 4711,
    Ndn = 6363,
}

/// Datagrams to and from one peer: a port of a machine above.
#[derive(Clone, Debug)]
struct Tunnel {
    above: Above,
    /// IPv4 is the only header.
    is_bare: bool,
    peer: Ipv4Addr,
    /// The link that it is bound to; `None` for any that leads to the peer.
    link: Option<PortId>,
    /// True if the machine asked for ECN; and true if the last packet could have been marked.
    sends_ecn: bool,
    receives_ecn: bool,
}

impl Tunnel {
    /// Returns the event for a machine that precedes a packet with this traffic class.
    fn ecn_event(&mut self, class: u8) -> Option<PortEvent> {
        let codepoint = match class & ECN_BITS {
            0 => Ecn::NotCapable,
            ECN_BITS => Ecn::Marked,
            _ => Ecn::Capable,
        };
        let is_capable = codepoint != Ecn::NotCapable;
        let is_news = codepoint == Ecn::Marked || is_capable != self.receives_ecn;
        self.receives_ecn = is_capable;
        is_news.then_some(PortEvent::Ecn {
            codepoint,
            frames: 1,
        })
    }
}

/// The machines of a node above IP.
#[derive(Default)]
pub(super) struct Planes {
    pub(super) mobility_first: Option<Node<MemoryStore>>,
    pub(super) ndn: Option<Box<NdnRouter>>,
    pub(super) tcp_server: Option<Box<TcpServer>>,
    /// The clients, by the address of the server.
    pub(super) tcp_clients: BTreeMap<Ipv4Addr, TcpClient>,
}

/// A node.
pub(super) struct Stack {
    address: Ipv4Addr,
    pub(super) planes: Planes,
    linked: bool,
    locals: Vec<PortId>,
    /// Links that belong to the NDN router alone.
    bare: Vec<PortId>,
    /// The device of the TCP proxy on the node, and the ends whose packets it takes.
    device: Option<PortId>,
    carried: Vec<(Ipv4Addr, Ipv4Addr)>,
    tunnels: Vec<Tunnel>,
    routes: BTreeMap<Ipv4Addr, PortId>,
    passing: VecDeque<(PortId, Vec<u8>)>,
    scratch: Vec<u8>,
}

impl Stack {
    pub(super) fn new(address: Ipv4Addr, planes: Planes) -> Stack {
        Stack {
            address,
            planes,
            linked: false,
            locals: Vec::new(),
            bare: Vec::new(),
            device: None,
            carried: Vec::new(),
            tunnels: Vec::new(),
            routes: BTreeMap::new(),
            passing: VecDeque::new(),
            scratch: Vec::new(),
        }
    }

    /// Routes packets for `to` by `port`.
    pub(super) fn route(&mut self, to: Ipv4Addr, port: PortId) {
        self.routes.insert(to, port);
    }

    /// Has the TCP proxy on this node take the packets from one end to the other.
    pub(super) fn carry(&mut self, from: Ipv4Addr, to: Ipv4Addr) {
        self.carried.push((from, to));
    }

    /// Returns the way out for a packet of others: the proxy's device, or a link. What comes out of
    /// the device goes to a link.
    fn way_out(&self, came: PortId, from: Ipv4Addr, to: Ipv4Addr) -> Option<PortId> {
        let device = self.device.filter(|device| *device != came);
        let device = device.filter(|_| self.carried.contains(&(from, to)));
        device.or_else(|| self.routes.get(&to).copied())
    }

    /// Opens a port of a machine above. Returns its number there.
    pub(super) fn open(
        &mut self,
        now: Time,
        above: Above,
        (peer, label): (Ipv4Addr, String),
        link: Option<PortId>,
        origin: PortOrigin,
        (mtu, carrier): (usize, Carrier),
    ) -> PortId {
        let port = PortId(FIRST_TUNNEL + self.tunnels.len() as u32);
        let is_bare = carrier == Carrier::Ip;
        self.tunnels.push(Tunnel {
            above,
            is_bare,
            peer,
            link,
            sends_ecn: false,
            receives_ecn: false,
        });
        let info = PortInfo {
            label,
            origin,
            mtu: mtu.saturating_sub(headers(is_bare)),
            peer: peer.to_string(),
            medium: Medium::Unaddressed,
        };
        self.hand(above, |machine| {
            machine.port(now, port, PortEvent::Up(info))
        });
        port
    }

    /// Gives a link to the NDN router, so that its frames are the link's. Returns the port's
    /// number.
    pub(super) fn open_bare(
        &mut self,
        now: Time,
        peer: Ipv4Addr,
        port: PortId,
        origin: PortOrigin,
        mtu: usize,
    ) -> PortId {
        self.bare.push(port);
        let info = PortInfo {
            label: peer.to_string(),
            origin,
            mtu,
            peer: peer.to_string(),
            medium: Medium::Unaddressed,
        };
        self.hand(Above::Ndn, |machine| {
            machine.port(now, port, PortEvent::Up(info))
        });
        port
    }

    /// Tells the machines above of a link whose interface goes or comes.
    fn note_carrier(&mut self, now: Time, link: PortId, event: &PortEvent) {
        let leaves = |it: &Tunnel| it.link.or(self.routes.get(&it.peer).copied()) == Some(link);
        let over = self.tunnels.iter().enumerate().filter(|(_, it)| leaves(it));
        let over: Vec<(usize, Above)> = over.map(|(index, it)| (index, it.above)).collect();
        for (index, above) in over {
            let port = PortId(FIRST_TUNNEL + index as u32);
            self.hand(above, |machine| machine.port(now, port, event.clone()));
        }
    }

    /// Returns true if a port's frames are the NDN router's own, without IP.
    fn belongs_to_ndn(&self, port: PortId) -> bool {
        self.bare.contains(&port) || self.locals.contains(&port)
    }

    fn hand(&mut self, above: Above, call: impl FnOnce(&mut dyn Below)) {
        match above {
            Above::MobilityFirst => {
                if let Some(node) = &mut self.planes.mobility_first {
                    call(node);
                }
            }
            Above::Ndn => {
                if let Some(router) = &mut self.planes.ndn {
                    call(&mut **router);
                }
            }
        }
    }

    /// Handles a packet that came by a link.
    fn packet(&mut self, now: Time, port: PortId, packet: &[u8]) {
        let word = |at: usize| -> Option<[u8; 4]> { packet.get(at..at + 4)?.try_into().ok() };
        let (Some(&IPV4), Some(source), Some(destination)) =
            (packet.first(), word(SOURCE), word(DESTINATION))
        else {
            // A bit of the header was flipped; the kernel would drop the packet too.
            return;
        };
        let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
        let to_port = packet
            .get(DESTINATION_PORT..HEADERS)
            .and_then(|bytes| Some(u16::from_be_bytes([*bytes.first()?, *bytes.get(1)?])))
            .unwrap_or_default();
        match packet[PROTOCOL] {
            _ if destination != self.address => {
                if let Some(out) = self.way_out(port, source, destination) {
                    self.passing.push_back((out, packet.to_vec()));
                }
            }
            TCP if to_port == SERVER_PORT => {
                if let Some(server) = &mut self.planes.tcp_server {
                    server.handle_frames(now, port, &[packet]);
                }
            }
            TCP => {
                if let Some(client) = self.planes.tcp_clients.get_mut(&source) {
                    client.handle_frames(now, port, &[packet]);
                }
            }
            protocol @ (UDP | BARE) => {
                let is_bare = protocol == BARE;
                let to = |above: Above| is_bare || above as u16 == to_port;
                let fits = |tunnel: &Tunnel, link| {
                    tunnel.is_bare == is_bare
                        && to(tunnel.above)
                        && tunnel.peer == source
                        && tunnel.link == link
                };
                let find = |link| self.tunnels.iter().position(|known| fits(known, link));
                let Some(index) = find(Some(port)).or_else(|| find(None)) else {
                    return;
                };
                let frame = packet.get(headers(is_bare)..).unwrap_or_default();
                let port = PortId(FIRST_TUNNEL + index as u32);
                let event = self.tunnels[index].ecn_event(packet[TRAFFIC_CLASS]);
                self.hand(self.tunnels[index].above, |machine| {
                    if let Some(event) = event {
                        machine.port(now, port, event);
                    }
                    machine.frame(now, port, frame);
                });
            }
            _ => {}
        }
    }

    /// Returns the next packets of a machine above, with their headers, or `None` if it has none.
    fn wrapped(
        &mut self,
        above: Above,
        now: Time,
        max: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        let mut sent = None;
        self.hand(above, |machine| sent = machine.send(now, max, &mut scratch));
        let transmit = sent.and_then(|sent| self.wrap(above, sent, &scratch, out));
        self.scratch = scratch;
        transmit
    }

    fn wrap(
        &mut self,
        above: Above,
        sent: Transmit,
        frames: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if self.belongs_to_ndn(sent.port) {
            out.extend_from_slice(frames);
            return Some(sent);
        }
        let index = sent.port.0.checked_sub(FIRST_TUNNEL)? as usize;
        let tunnel = self.tunnels.get(index)?;
        let port = tunnel.link.or(self.routes.get(&tunnel.peer).copied());
        let mut header = [0u8; HEADERS];
        let length = headers(tunnel.is_bare);
        (header[0], header[PROTOCOL]) = (IPV4, if tunnel.is_bare { BARE } else { UDP });
        header[TRAFFIC_CLASS] = if tunnel.sends_ecn { ECT } else { 0 };
        header[SOURCE..DESTINATION].copy_from_slice(&self.address.octets());
        header[DESTINATION..DESTINATION + 4].copy_from_slice(&tunnel.peer.octets());
        header[DESTINATION_PORT..DESTINATION_PORT + 2]
            .copy_from_slice(&(above as u16).to_be_bytes());
        let before = out.len();
        for frame in sent.frames(frames) {
            out.extend_from_slice(&header[..length]);
            out.extend_from_slice(frame);
        }
        Some(Transmit {
            // Without a route the packets go to a port that does not exist, which counts them.
            port: port.unwrap_or(sent.port),
            size: out.len() - before,
            segment_size: sent.segment_size.map(|size| size + length),
        })
    }

    /// Returns a packet of TCP.
    fn segment(&mut self, now: Time, max: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        let before = out.len();
        let planes = &mut self.planes;
        let server = planes.tcp_server.as_deref_mut();
        let mut sent = server.and_then(|server| server.poll_transmit(now, max, out));
        for client in planes.tcp_clients.values_mut() {
            sent = sent.or_else(|| client.poll_transmit(now, max, out));
        }
        let sent = sent?;
        let to = out.get(before + DESTINATION..before + DESTINATION + 4)?;
        let to = Ipv4Addr::from(<[u8; 4]>::try_from(to).ok()?);
        Some(Transmit {
            port: self.routes.get(&to).copied().unwrap_or(sent.port),
            ..sent
        })
    }

    fn deadlines(&self) -> impl Iterator<Item = Deadline> {
        let planes = &self.planes;
        let above = [
            planes
                .mobility_first
                .as_ref()
                .and_then(Machine::poll_timeout),
            planes.ndn.as_ref().and_then(|router| router.poll_timeout()),
            planes
                .tcp_server
                .as_ref()
                .and_then(|server| server.poll_timeout()),
        ];
        let clients = planes
            .tcp_clients
            .values()
            .filter_map(Machine::poll_timeout);
        above.into_iter().flatten().chain(clients)
    }
}

/// The part of [`Machine`] that does not depend on its event type.
trait Below {
    fn port(&mut self, now: Time, port: PortId, event: PortEvent);
    fn frame(&mut self, now: Time, port: PortId, frame: &[u8]);
    fn send(&mut self, now: Time, max: usize, out: &mut Vec<u8>) -> Option<Transmit>;
}

impl<M: Machine> Below for M {
    fn port(&mut self, now: Time, port: PortId, event: PortEvent) {
        self.handle_port(now, port, event);
    }

    fn frame(&mut self, now: Time, port: PortId, frame: &[u8]) {
        self.handle_frames(now, port, &[frame]);
    }

    fn send(&mut self, now: Time, max: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        self.poll_transmit(now, max, out)
    }
}

impl Machine for Stack {
    type Event = StackEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match &event {
            PortEvent::Up(info) if info.origin == PROXY_DEVICE => self.device = Some(port),
            PortEvent::Up(info) if info.origin.is_local() => {
                self.locals.push(port);
                self.hand(Above::Ndn, |machine| machine.port(now, port, event));
            }
            PortEvent::Carrier(_) => self.note_carrier(now, port, &event),
            PortEvent::Up(_) if !self.linked => {
                // TCP sends by routes; it must only know that a port exists.
                self.linked = true;
                let planes = &mut self.planes;
                if let Some(server) = &mut planes.tcp_server {
                    server.handle_port(now, port, event.clone());
                }
                for client in planes.tcp_clients.values_mut() {
                    client.handle_port(now, port, event.clone());
                }
            }
            _ => {}
        }
    }

    /// Does nothing: tunnels are part of the scenario.
    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            if self.belongs_to_ndn(port) {
                self.hand(Above::Ndn, |machine| machine.frame(now, port, frame));
            } else {
                self.packet(now, port, frame);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        fn wake(now: Time, machine: &mut impl Machine) {
            if machine
                .poll_timeout()
                .is_some_and(|deadline| deadline.at <= now)
            {
                machine.handle_timeout(now);
            }
        }
        let planes = &mut self.planes;
        if let Some(node) = &mut planes.mobility_first {
            wake(now, node);
        }
        if let Some(router) = &mut planes.ndn {
            wake(now, &mut **router);
        }
        if let Some(server) = &mut planes.tcp_server {
            wake(now, &mut **server);
        }
        for client in planes.tcp_clients.values_mut() {
            wake(now, client);
        }
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some((port, packet)) = self.passing.pop_front() {
            buffer.extend_from_slice(&packet);
            return Some(Transmit {
                port,
                size: packet.len(),
                segment_size: None,
            });
        }
        for above in [Above::MobilityFirst, Above::Ndn] {
            let sent = self.wrapped(above, now, max_segments, buffer);
            if sent.is_some() {
                return sent;
            }
        }
        self.segment(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<StackEvent> {
        let planes = &mut self.planes;
        if let Some(event) = planes.mobility_first.as_mut().and_then(Machine::poll_event) {
            return Some(StackEvent::Node(event));
        }
        for (server, client) in &mut planes.tcp_clients {
            if let Some(event) = client.poll_event() {
                return Some(StackEvent::Tcp(*server, event));
            }
        }
        None
    }

    /// Requests other than for ECN are dropped: tunnels are part of the scenario.
    fn poll_port_request(&mut self) -> Option<PortRequest> {
        let planes = &mut self.planes;
        while let Some(node) = &mut planes.mobility_first
            && let Some(request) = node.poll_port_request()
        {
            if let PortRequest::SetEcn { port, capable } = request
                && let Some(index) = port.0.checked_sub(FIRST_TUNNEL)
                && let Some(tunnel) = self.tunnels.get_mut(index as usize)
            {
                tunnel.sends_ecn = capable;
            }
        }
        while let Some(router) = &mut planes.ndn
            && router.poll_port_request().is_some()
        {}
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.deadlines().min_by_key(|deadline| deadline.at)
    }
}
