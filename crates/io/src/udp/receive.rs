//! Receiving on a UDP socket, and who becomes a peer.

use std::array;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, TransportErrorPayload};
use whimbrel_core::{Admission, Ecn, Machine, PortId, PortOrigin, Time};

use super::endpoint::{Peer, UdpEndpoint};
use super::inbound::{InboundTable, Room};
use super::path_mtu::Route;
use super::socket::{canonical, for_socket, usable_source};
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

impl UdpEndpoint {
    /// Receives one batch and delivers it.
    pub(crate) fn receive<M: Machine>(
        &mut self,
        side: &mut MachineSide<M>,
        now: Time,
        buffers: &mut ReceiveBuffers,
    ) {
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut chunks = buffers.0.chunks_exact_mut(RECEIVE_BUFFER);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        self.counters.receive_calls += 1;
        let count = match self
            .state
            .recv((&self.socket).into(), &mut slices, &mut metas)
        {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                self.counters.receive_errors += 1;
                tracing::trace!(label = %self.config.label, %error, "receive failed");
                return;
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
            Some(port) => port,
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
        for at in (0..bytes.len()).step_by(stride) {
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
        self.counters.strangers += bytes.len().div_ceil(stride) as u64;
        None
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
                return None;
            }
        };
        match room {
            Room::Free => {}
            Room::After(idle) => {
                self.counters.evicted += 1;
                self.close_port(side, now, idle);
            }
            Room::None => {
                self.counters.refused += 1;
                return None;
            }
        }
        let label = self.config.label.clone();
        let origin = PortOrigin::Accepted(self.config.listener);
        let Some(port) = self.open_port(side, now, label, origin, address, called) else {
            self.counters.refused += 1;
            return None;
        };
        self.counters.accepted += 1;
        if let Some(inbound) = &mut self.inbound {
            inbound.insert(now, port, Some(address.ip()));
        }
        Some(port)
    }

    /// Reads ICMP errors, which would otherwise keep the socket ready for ever, and looks up the
    /// routes again if a datagram was too large for one.
    pub(crate) fn receive_errors<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) {
        let mut too_big = false;
        let mut refused_by: Option<IpAddr> = None;
        for _ in 0..ERRORS_PER_ROUND {
            self.counters.receive_calls += 1;
            match self.state.recv_transport_error((&self.socket).into()) {
                Ok(None) => break,
                Ok(Some(error)) => {
                    self.counters.receive_errors += 1;
                    too_big |= matches!(error.payload, TransportErrorPayload::TooBig { .. });
                    if self.config.carrier.is_refusal(error.raw_errno) {
                        refused_by = error.addr.map(|from| canonical(from).ip());
                    }
                }
                Err(_) => self.counters.receive_errors += 1,
            }
        }
        // A pending error without a message in the queue would also keep the socket ready.
        let _ = self.socket.take_error();
        if let Some(port) = refused_by.and_then(|from| self.only_peer_at(from)) {
            side.refused(now, port);
        }
        if too_big && now >= self.recheck_allowed_at {
            self.recheck_allowed_at = now + RECHECK_INTERVAL;
            let ports: Vec<PortId> = self.peers.keys().copied().collect();
            for port in ports {
                if let Some(mtu) = self.payload_on(port, Route::largest_payload) {
                    side.lower_mtu(now, port, mtu);
                }
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
        self.inbound.as_ref().and_then(InboundTable::next_expiry)
    }

    /// Closes inbound peers that exceed the idle time.
    pub(crate) fn expire<M: Machine>(&mut self, side: &mut MachineSide<M>, now: Time) {
        while let Some(port) = self
            .inbound
            .as_mut()
            .and_then(|inbound| inbound.expired(now))
        {
            self.counters.expired += 1;
            self.close_port(side, now, port);
        }
    }
}
