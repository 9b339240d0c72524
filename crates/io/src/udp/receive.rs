//! Receiving on a UDP socket and its lanes, and who becomes a peer.

use std::array;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, TransportErrorPayload, UdpSocketState};
use socket2::Socket;
use whimbrel_core::{Admission, Ecn, Machine, PortId, PortOrigin, Time};

use super::DatagramCarrier;
use super::endpoint::{Peer, UdpEndpoint};
use super::filter::Filter;
use super::inbound::InboundTable;
use super::lanes::{BUFFER_IN_FLOOD, Candidate};
use super::path_mtu::Route;
use super::socket::{canonical, for_socket, set_receive_buffer, usable_source};
use crate::counters::TransportCounters;
use crate::poller::{Poller, Ready};
use crate::side::MachineSide;

/// The largest batch of datagrams that the kernel's receive offload (GRO) puts together.
const RECEIVE_BUFFER: usize = 65_536;

/// Buffers for received batches of datagrams; one per loop, shared by its sockets.
#[derive(Debug)]
pub(crate) struct ReceiveBuffers(Vec<u8>);

impl ReceiveBuffers {
    pub(crate) fn new() -> ReceiveBuffers {
        ReceiveBuffers(vec![0; RECEIVE_BUFFER * BATCH_SIZE])
    }

    /// Returns the whole buffer, for transports that read one frame at a time.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// ICMP errors read per round.
const ERRORS_PER_ROUND: usize = 64;
/// The shortest interval between lookups of the routes because of ICMP messages, which may be
/// forged.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Datagrams of the listener's socket in one turn, beside lanes: each of those waits for so many.
const BATCH_IN_FLOOD: usize = 8;
/// Batches read from a lane before it is closed.
const LAST_BATCHES: usize = 64;
/// Frames of one batch of a stranger that the gate sees: who is not admitted yet sends no trains.
const FRAMES_OF_STRANGERS: usize = 4;

/// What the kernel has said of earlier datagrams.
#[derive(Default)]
struct Errors {
    too_big: bool,
    refused_by: Option<IpAddr>,
}

impl Errors {
    /// Reads what waits, which would otherwise keep the socket ready for ever.
    fn read(
        carrier: DatagramCarrier,
        state: &UdpSocketState,
        socket: &Socket,
        counters: &mut TransportCounters,
    ) -> Errors {
        let mut errors = Errors::default();
        for _ in 0..ERRORS_PER_ROUND {
            counters.receive_calls += 1;
            match state.recv_transport_error(socket.into()) {
                Ok(None) => break,
                Ok(Some(error)) => {
                    counters.receive_errors += 1;
                    errors.too_big |= matches!(error.payload, TransportErrorPayload::TooBig { .. });
                    if carrier.is_refusal(error.raw_errno) {
                        errors.refused_by = error.addr.map(|from| canonical(from).ip());
                    }
                }
                Err(_) => counters.receive_errors += 1,
            }
        }
        // A pending error without a message in the queue would also keep the socket ready.
        let _ = socket.take_error();
        errors
    }
}

impl UdpEndpoint {
    /// Reads what is ready, lanes first, and writes unsent output.
    pub(crate) fn serve<M: Machine>(
        &mut self,
        ready: Ready,
        side: &mut MachineSide<M>,
        poller: &mut Poller,
        now: Time,
        buffers: &mut ReceiveBuffers,
    ) {
        for (port, has_error) in self.lanes.ready() {
            if has_error {
                self.receive_errors_of_lane(side, now, port);
            }
            self.receive(side, now, buffers, Some(port));
        }
        if ready.error {
            self.receive_errors(side, now);
        }
        // The listener's socket and its lanes have one token.
        if ready.readable {
            self.receive(side, now, buffers, None);
            if let Some(lanes) = self.lanes.unwatched()
                && let Err(error) = poller.add(lanes, self.token)
            {
                tracing::error!(%error, "cannot watch the sockets of known peers");
                self.give_up_lanes();
            }
        }
        if ready.writable {
            self.flush(side, poller, now);
        }
    }

    /// Receives one batch of the listener's socket or of a lane, and delivers it. Returns true if
    /// there was one.
    fn receive<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        buffers: &mut ReceiveBuffers,
        lane: Option<PortId>,
    ) -> bool {
        let (state, socket) = match lane {
            None => (&self.state, &self.socket),
            Some(port) => match self.lanes.get(port) {
                Some(lane) => (&lane.state, &lane.socket),
                None => return false,
            },
        };
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut chunks = buffers.0.chunks_exact_mut(RECEIVE_BUFFER);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.counters.receive_calls += 1;
        let most = match lane {
            None if self.lanes.has_any() => BATCH_IN_FLOOD,
            _ => BATCH_SIZE,
        };
        let (slices, batch) = (slices.get_mut(..most), metas.get_mut(..most));
        let (slices, batch) = (slices.unwrap_or_default(), batch.unwrap_or_default());
        let count = match state.recv(socket.into(), slices, batch) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if let (None, Some(filter)) = (lane, &mut self.filter) {
                    filter.note_empty_queue();
                }
                return false;
            }
            Err(error) => {
                self.counters.receive_errors += 1;
                tracing::trace!(label = %self.config.label, %error, "receive failed");
                return false;
            }
        };
        for (buffer, meta) in buffers
            .0
            .chunks_exact(RECEIVE_BUFFER)
            .zip(metas.iter().take(count))
        {
            let bytes = buffer.get(..meta.len).unwrap_or_default();
            let frames = self.config.carrier.frames(bytes, self.local.is_ipv4());
            // Datagrams of bare IP come one by one.
            let stride = match frames.len() == bytes.len() {
                true => meta.stride,
                false => frames.len(),
            };
            if let Some((port, bytes)) = self.sender(side, now, (meta, stride), frames) {
                let codepoint = match meta.ecn {
                    None => Ecn::NotCapable,
                    Some(EcnCodepoint::Ce) => Ecn::Marked,
                    Some(EcnCodepoint::Ect0 | EcnCodepoint::Ect1) => Ecn::Capable,
                };
                let count = bytes.len().div_ceil(stride.max(1));
                side.note_ecn(now, port, codepoint, count);
                side.deliver(now, port, bytes, stride);
            }
        }
        if lane.is_none()
            && count < most
            && let Some(filter) = &mut self.filter
        {
            filter.note_empty_queue();
        }
        true
    }

    /// Returns the port of a batch's sender, and the frames that are for it. Opens one for a new
    /// inbound peer if inbound peers are admitted.
    fn sender<'a, M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        (meta, stride): (&RecvMeta, usize),
        mut bytes: &'a [u8],
    ) -> Option<(PortId, &'a [u8])> {
        if let Some(group) = &self.group {
            return group.port.map(|port| (port, bytes));
        }
        let address = canonical(meta.addr);
        let known = match self.last_sender {
            Some((last, port)) if last == address => Some(port),
            _ => self.by_address.get(&address).copied(),
        };
        let port = match known {
            Some(port) => {
                if self.lanes.is_flooded() {
                    self.note_work(now, port, meta.dst_ip.and_then(usable_source));
                }
                port
            }
            None => {
                if self.gate.is_some() {
                    bytes = self.ask_gate(now, address, (meta, stride), bytes)?;
                }
                self.admit(side, now, address, meta.dst_ip.and_then(usable_source))?
            }
        };
        self.last_sender = Some((address, port));
        if let Some(inbound) = &mut self.inbound {
            inbound.heard(now, port);
        }
        if let Some(Peer {
            source: Some(source),
            ..
        }) = self.peers.get_mut(&port)
        {
            source.heard(now, meta.dst_ip.and_then(usable_source));
        }
        Some((port, bytes))
    }

    /// Shows the gate the frames of who has no port. Returns those from the first one that admits
    /// their sender on.
    fn ask_gate<'a>(
        &mut self,
        now: Time,
        address: SocketAddr,
        (meta, stride): (&RecvMeta, usize),
        bytes: &'a [u8],
    ) -> Option<&'a [u8]> {
        let gate = self.gate.as_mut().filter(|_| self.inbound.is_some())?;
        let stride = stride.max(1);
        for at in (0..bytes.len()).step_by(stride).take(FRAMES_OF_STRANGERS) {
            let frame = bytes.get(at..bytes.len().min(at + stride))?;
            self.reply.clear();
            // Port 0 cannot be a destination, so a datagram from it is forged.
            if self.config.carrier.is_forged(address) {
                break;
            }
            match gate.consider(now, address, frame, &mut self.reply) {
                Admission::Admitted => return bytes.get(at..),
                Admission::Refused => {}
                Admission::Answered => {
                    let transmit = quinn_udp::Transmit {
                        destination: for_socket(address, self.local.is_ipv6()),
                        ecn: None,
                        contents: &self.reply,
                        segment_size: None,
                        src_ip: (meta.dst_ip.and_then(usable_source))
                            .filter(|_| self.local.ip().is_unspecified()),
                    };
                    self.counters.send_calls += 1;
                    // Who is not answered asks again.
                    let _ = self.state.try_send((&self.socket).into(), &transmit);
                }
            }
        }
        let count = bytes.len().div_ceil(stride) as u64;
        let filter = self.filter.as_ref();
        let unread = count * filter.map_or(0, |filter| filter.dropped_for_each(bytes));
        self.counters.strangers += count;
        self.counters.filtered += unread;
        self.note_strangers(now, count + unread);
        None
    }

    fn give_up_lanes(&mut self) {
        self.lanes.give_up();
        set_receive_buffer(&self.socket, self.config.receive_buffer);
    }

    /// Only UDP has lanes, so that only there a flood matters.
    fn note_strangers(&mut self, now: Time, count: u64) {
        if self.config.carrier == DatagramCarrier::Udp && self.lanes.note_strangers(now, count) {
            tracing::warn!(
                label = %self.config.label, local = %self.local,
                "strangers flood this socket: peers at work get sockets of their own"
            );
            self.attach_filter();
        }
    }

    fn attach_filter(&mut self) {
        let shapes = self.gate.as_ref().map(|gate| gate.shapes());
        let label = &self.config.label;
        match Filter::attach(&self.socket, shapes.unwrap_or_default()) {
            Ok(Some(filter)) => {
                tracing::info!(label, "the kernel drops what cannot be a frame meanwhile");
                self.filter = Some(filter);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(
                label, %error,
                "the kernel does not filter this socket: all of the flood is read, and other \
                 traffic is slower until it ends"
            ),
        }
    }

    fn detach_filter(&mut self) {
        if self.filter.take().is_some()
            && let Err(error) = Filter::detach(&self.socket)
        {
            // Frames pass it as before.
            tracing::warn!(
                label = %self.config.label, %error,
                "the kernel's filter cannot be removed: noise from strangers is not counted until \
                 the next start"
            );
        }
    }

    /// Notes a batch of a peer in a flood, and opens a lane for it if it is at work. `called` is the
    /// address that it sends to.
    fn note_work(&mut self, now: Time, port: PortId, called: Option<IpAddr>) {
        let is_caller = |inbound: &InboundTable| inbound.has(port);
        let is_caller = self.inbound.as_ref().is_some_and(is_caller);
        if !self.lanes.note_batch(now, port, is_caller) {
            return;
        }
        let Some(peer) = self.peers.get(&port) else {
            return;
        };
        let candidate = Candidate {
            port,
            address: peer.destination,
            called,
            is_caller,
        };
        let (carrier, socket) = (self.config.carrier, &self.socket);
        let opened = self.lanes.open(now, &candidate, socket, |state, socket| {
            carrier.enable_errors(state, socket)
        });
        match opened {
            Ok(is_first) => {
                self.counters.lanes_opened += 1;
                if is_first {
                    set_receive_buffer(&self.socket, BUFFER_IN_FLOOD);
                }
            }
            Err(error) => {
                tracing::debug!(label = %self.config.label, peer = %peer.address, %error, "no socket of its own for a peer");
            }
        }
    }

    fn admit<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        address: SocketAddr,
        called: Option<IpAddr>,
    ) -> Option<PortId> {
        let room = match &mut self.inbound {
            // Port 0 cannot be a destination, so a datagram from it is forged.
            Some(inbound) if !self.config.carrier.is_forged(address) => {
                inbound.room(now, Some(address.ip()))
            }
            _ => {
                self.counters.strangers += 1;
                self.note_strangers(now, 1);
                return None;
            }
        };
        let Some(idle) = room.taken(&mut self.counters) else {
            self.note_strangers(now, 1);
            return None;
        };
        if let Some(idle) = idle {
            self.close_port(side, now, idle);
        }
        let label = self.config.label.clone();
        let origin = PortOrigin::Accepted(self.config.listener);
        let opened = self.open_port(side, now, label, origin, address, called);
        if let Some(inbound) = &mut self.inbound {
            inbound.admit(now, opened, Some(address.ip()), &mut self.counters);
        }
        opened
    }

    /// Reads ICMP errors, and looks up the routes again if a datagram was too large for one.
    fn receive_errors<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) {
        let carrier = self.config.carrier;
        let errors = Errors::read(carrier, &self.state, &self.socket, &mut self.counters);
        if let Some(port) = errors.refused_by.and_then(|from| self.only_peer_at(from)) {
            side.refused(now, port);
        }
        self.recheck_sizes(side, now, &errors);
    }

    fn receive_errors_of_lane<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        port: PortId,
    ) {
        let Some(lane) = self.lanes.get(port) else {
            return;
        };
        let carrier = self.config.carrier;
        let errors = Errors::read(carrier, &lane.state, &lane.socket, &mut self.counters);
        if errors.refused_by.is_some() {
            side.refused(now, port);
        }
        self.recheck_sizes(side, now, &errors);
    }

    fn recheck_sizes<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time, errors: &Errors) {
        if !errors.too_big || now < self.recheck_allowed_at {
            return;
        }
        self.recheck_allowed_at = now + RECHECK_INTERVAL;
        let ports: Vec<PortId> = self.peers.keys().copied().collect();
        for port in ports {
            if let Some(mtu) = self.payload_on(port, Route::largest_payload) {
                side.lower_mtu(now, port, mtu);
            }
        }
    }

    /// Returns the port of the peer at `ip`, unless there are several: an ICMP message, as it is
    /// read here, does not say which port number it is about.
    fn only_peer_at(&self, ip: IpAddr) -> Option<PortId> {
        let mut there = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.address.ip() == ip);
        match (there.next(), there.next()) {
            (Some((port, _)), None) => Some(*port),
            _ => None,
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let idle = self.inbound.as_ref().and_then(InboundTable::next_expiry);
        [idle, self.lanes.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Closes inbound peers that exceed the idle time, and the lanes once a flood has ended.
    pub(crate) fn expire<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        buffers: &mut ReceiveBuffers,
    ) {
        while let Some(port) = self
            .inbound
            .as_mut()
            .and_then(|inbound| inbound.expired(now))
        {
            self.counters.expired += 1;
            self.close_port(side, now, port);
        }
        if self.lanes.end_flood(now) {
            tracing::info!(label = %self.config.label, "the flood of strangers has ended");
            self.detach_filter();
            set_receive_buffer(&self.socket, self.config.receive_buffer);
            for port in self.lanes.ports() {
                // What comes between the last read and the end is lost, as anything may be.
                for _ in 0..LAST_BATCHES {
                    if !self.receive(side, now, buffers, Some(port)) {
                        break;
                    }
                }
                self.lanes.close(port);
            }
        }
    }
}
