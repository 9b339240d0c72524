//! A router of packets, not of chunks: several pairs of neighbours share the link between two of
//! these.

use std::collections::VecDeque;
use std::net::Ipv4Addr;

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

/// IPv4 and UDP headers, which the shared link is to carry with each datagram.
const DATAGRAM_HEADERS: usize = 28;
/// The first byte of an IPv4 packet without options.
const IPV4: u8 = 0x45;
/// Where an IPv4 packet's destination stands.
const DESTINATION: std::ops::Range<usize> = 16..20;

/// What comes and goes at one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Frames of Whimbrel, which on the shared link have headers before them. The number tells
    /// pairs apart, and is the same on both sides.
    Datagrams(u8),
    /// IPv4 packets of the host with this address.
    Packets(Ipv4Addr),
}

/// Its first port is the shared link, the others are the accesses in their order.
#[derive(Debug)]
pub(super) struct Switch {
    accesses: Vec<Access>,
    ports: Vec<PortId>,
    passing: VecDeque<(PortId, Vec<u8>)>,
}

impl Switch {
    pub(super) fn new(accesses: Vec<Access>) -> Switch {
        Switch {
            accesses,
            ports: Vec::new(),
            passing: VecDeque::new(),
        }
    }

    fn pass_to_shared(&mut self, access: usize, frame: &[u8]) {
        let mut packet = Vec::with_capacity(DATAGRAM_HEADERS + frame.len());
        if let Access::Datagrams(pair) = self.accesses[access] {
            packet.resize(DATAGRAM_HEADERS, pair);
        }
        packet.extend_from_slice(frame);
        self.passing.push_back((self.ports[0], packet));
    }

    fn pass_to_access(&mut self, packet: &[u8]) {
        let of = |wanted: Access| self.accesses.iter().position(|access| *access == wanted);
        let (access, from) = match packet {
            [IPV4, ..] => {
                let address = packet
                    .get(DESTINATION)
                    .and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                (
                    address.and_then(|address| of(Access::Packets(address.into()))),
                    0,
                )
            }
            [pair, ..] => (of(Access::Datagrams(*pair)), DATAGRAM_HEADERS),
            [] => (None, 0),
        };
        if let Some(port) = access.and_then(|access| self.ports.get(access + 1)) {
            self.passing.push_back((*port, packet[from..].to_vec()));
        }
    }
}

impl Machine for Switch {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, _now: Time, port: PortId, event: PortEvent) {
        if let PortEvent::Up(_) = event {
            self.ports.push(port);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, _now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            match self.ports.iter().position(|known| *known == port) {
                Some(0) => self.pass_to_access(frame),
                Some(access) => self.pass_to_shared(access - 1, frame),
                None => {}
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(
        &mut self,
        _now: Time,
        _max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let (port, packet) = self.passing.pop_front()?;
        buffer.extend_from_slice(&packet);
        Some(Transmit {
            port,
            size: packet.len(),
            segment_size: None,
        })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}
