//! What an NDN program is to the machinery around it, and how one sits behind a port.

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{
    DataRef, DecodeError, InterestRef, LpHeader, LpPacket, NackReason, PacketKind, tlv, types,
};

/// A packet on its way out: a whole bare Interest or Data, and the header fields it needs, if any.
pub type Outgoing = (Bytes, Option<Box<LpHeader>>);

/// A program that speaks NDN over one face.
///
/// The order of calls is that of [`Machine`]: inputs, then [`Application::poll_packet`] and
/// [`Application::poll_event`] until both are empty, then [`Application::poll_timeout`].
pub trait Application {
    /// What it tells the program around it.
    type Event;

    /// The face to the forwarder came up or went down. Down is not the end: state is kept until it
    /// comes up again. Before the first `true` the face is down.
    fn handle_face(&mut self, now: Time, up: bool);

    /// A whole packet from the forwarder; a Nack where `packet.nack` says so.
    fn handle_packet(&mut self, now: Time, packet: &LpPacket<'_>);

    /// A deadline of [`Application::poll_timeout`] has passed. Calling it early or twice does no
    /// harm.
    fn handle_timeout(&mut self, now: Time);

    /// The next packet to send. Called only while the face is up and takes packets, so that `now`
    /// is when it leaves.
    fn poll_packet(&mut self, now: Time) -> Option<Outgoing>;

    /// The next thing to tell.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`Application::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Deadline>;
}

/// A deadline for something to send at `at`, unless that has passed by `seen`: what is due already
/// goes out as soon as the port takes it, and a deadline in the past would make the driver spin
/// while the port is blocked.
pub(crate) fn due(at: Time, seen: Time, reason: &'static str) -> Option<Deadline> {
    (at > seen).then(|| Deadline::new(at, reason))
}

/// A network-layer packet as it came, decoded.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// An Interest.
    Interest(InterestRef<'a>),
    /// A Data.
    Data(DataRef<'a>),
    /// An Interest of this program that cannot be answered, and why.
    Nack(NackReason, InterestRef<'a>),
}

impl<'a> Arrival<'a> {
    /// Decodes what a link delivered.
    pub fn decode(packet: &LpPacket<'a>) -> Result<Arrival<'a>, DecodeError> {
        let fragment = packet
            .fragment
            .ok_or(DecodeError::Missing(types::LP_FRAGMENT))?;
        match (PacketKind::of(fragment), packet.nack) {
            (Some(PacketKind::Interest), Some(reason)) => {
                Ok(Arrival::Nack(reason, InterestRef::decode(fragment)?))
            }
            (Some(PacketKind::Interest), None) => {
                Ok(Arrival::Interest(InterestRef::decode(fragment)?))
            }
            (Some(PacketKind::Data), None) => Ok(Arrival::Data(DataRef::decode(fragment)?)),
            _ => Err(DecodeError::WrongType(
                fragment.first().copied().unwrap_or_default().into(),
            )),
        }
    }
}

/// Bytes of packets that one transmit to a stream carries at most: what a socket buffer takes at
/// once.
const STREAM_BATCH: usize = 64 * 1024;

/// What went through an [`AppFace`], and what did not and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppFaceCounters {
    /// Packets handed to the application.
    pub in_packets: u64,
    /// Bytes of frames that came.
    pub in_bytes: u64,
    /// Packets written.
    pub out_packets: u64,
    /// Bytes written.
    pub out_bytes: u64,
    /// Frames that are no NDNLPv2 packet, Interest or Data.
    pub dropped_malformed: u64,
    /// Fragments: reassembly is the link service's, which a router has and a program has not.
    pub dropped_fragments: u64,
    /// Frames without a packet in them (IDLE).
    pub idle: u64,
    /// Packets of the application larger than the port's largest frame.
    pub dropped_too_large: u64,
    /// Frames on another port than the face's.
    pub dropped_other_port: u64,
}

struct Port {
    id: PortId,
    mtu: usize,
    stream: bool,
    blocked: bool,
}

/// An [`Application`] as a [`Machine`] with one port to a forwarder.
///
/// Packets come bare or in an NDNLPv2 packet; they go bare unless a header field is needed. On a
/// stream ([`whimbrel_core::Medium::is_stream`]) one transmit holds several packets of any
/// size, about 64 KiB; on other ports one packet is one frame, and packets of the same size share a
/// transmit.
///
/// The first port that comes up is the face; a further one is closed. When the port goes down, the
/// application keeps its state, and the next port that comes up continues. A packet larger than the
/// port's frame is dropped and counted.
pub struct AppFace<A: Application> {
    application: A,
    port: Option<Port>,
    // Taken from the application, but not fitting into the last transmit.
    held: Option<Outgoing>,
    requests: Vec<PortRequest>,
    counters: AppFaceCounters,
}

impl<A: Application> AppFace<A> {
    /// Before its port is up.
    pub fn new(application: A) -> AppFace<A> {
        AppFace {
            application,
            port: None,
            held: None,
            requests: Vec::new(),
            counters: AppFaceCounters::default(),
        }
    }

    /// The application.
    pub const fn application(&self) -> &A {
        &self.application
    }

    /// The application, to be told something; drain the machine afterwards.
    pub const fn application_mut(&mut self) -> &mut A {
        &mut self.application
    }

    /// Counters since the start.
    pub const fn counters(&self) -> &AppFaceCounters {
        &self.counters
    }

    /// True while there is a port.
    pub const fn is_up(&self) -> bool {
        self.port.is_some()
    }

    fn next(&mut self, now: Time, mtu: usize) -> Option<Outgoing> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        loop {
            let mut outgoing = self.application.poll_packet(now)?;
            outgoing.1 = outgoing.1.filter(|header| !header.is_empty());
            if wire_len(&outgoing) <= mtu {
                return Some(outgoing);
            }
            self.counters.dropped_too_large += 1;
        }
    }

    fn write(&mut self, outgoing: &Outgoing, buffer: &mut Vec<u8>) {
        let before = buffer.len();
        match &outgoing.1 {
            None => buffer.extend_from_slice(&outgoing.0),
            Some(header) => lp::encode(buffer, &LinkFields::default(), header, Some(&outgoing.0)),
        }
        self.counters.out_packets += 1;
        self.counters.out_bytes += (buffer.len() - before) as u64;
    }

    fn write_stream(&mut self, now: Time, mtu: usize, buffer: &mut Vec<u8>) -> usize {
        let start = buffer.len();
        while let Some(outgoing) = self.next(now, mtu) {
            let written = buffer.len() - start;
            if written > 0 && written + wire_len(&outgoing) > STREAM_BATCH {
                self.held = Some(outgoing);
                break;
            }
            self.write(&outgoing, buffer);
        }
        buffer.len() - start
    }

    /// Frames of one size, the last one possibly shorter; answers with that size.
    fn write_datagrams(
        &mut self,
        now: Time,
        mtu: usize,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        let first = self.next(now, mtu)?;
        let size = wire_len(&first);
        self.write(&first, buffer);
        for _ in 1..max_segments {
            let Some(outgoing) = self.next(now, mtu) else {
                break;
            };
            let next = wire_len(&outgoing);
            if next > size {
                self.held = Some(outgoing);
                break;
            }
            self.write(&outgoing, buffer);
            if next < size {
                break;
            }
        }
        Some(size)
    }
}

fn wire_len((packet, header): &Outgoing) -> usize {
    match header {
        None => packet.len(),
        Some(header) => {
            let inside = lp::fields_len(&LinkFields::default(), header)
                + tlv::element_len(types::LP_FRAGMENT, packet.len());
            tlv::element_len(types::LP_PACKET, inside)
        }
    }
}

impl<A: Application> Machine for AppFace<A> {
    type Event = A::Event;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        let ours = self.port.as_ref().is_some_and(|current| current.id == port);
        match event {
            PortEvent::Up(info) => {
                if self.port.is_some() && !ours {
                    self.requests.push(PortRequest::Close(port));
                    return;
                }
                let stream = info.medium.is_stream();
                self.port = Some(Port {
                    id: port,
                    mtu: info.mtu,
                    stream,
                    blocked: false,
                });
                if !ours {
                    self.application.handle_face(now, true);
                }
            }
            PortEvent::Down if ours => {
                self.port = None;
                self.held = None;
                self.application.handle_face(now, false);
            }
            PortEvent::Mtu(mtu) if ours => self.port.iter_mut().for_each(|port| port.mtu = mtu),
            PortEvent::Blocked if ours => self.port.iter_mut().for_each(|port| port.blocked = true),
            PortEvent::Writable if ours => {
                self.port.iter_mut().for_each(|port| port.blocked = false)
            }
            _ => {}
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.handle_frame(now, port, frame);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.application.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let port = self.port.as_ref().filter(|port| !port.blocked)?;
        let (id, mtu, stream) = (port.id, port.mtu, port.stream);
        let start = buffer.len();
        if stream {
            let size = self.write_stream(now, mtu, buffer);
            return (size > 0).then_some(Transmit {
                port: id,
                size,
                segment_size: None,
            });
        }
        let segment = self.write_datagrams(now, mtu, max_segments, buffer)?;
        let size = buffer.len() - start;
        Some(Transmit {
            port: id,
            size,
            segment_size: (size > segment).then_some(segment),
        })
    }

    fn poll_event(&mut self) -> Option<A::Event> {
        self.application.poll_event()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.requests.pop()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.application.poll_timeout()
    }
}

impl<A: Application> AppFace<A> {
    fn handle_frame(&mut self, now: Time, port: PortId, frame: &[u8]) {
        if self.port.as_ref().is_none_or(|current| current.id != port) {
            self.counters.dropped_other_port += 1;
            return;
        }
        self.counters.in_bytes += frame.len() as u64;
        match LpPacket::decode(frame, false) {
            Err(_) => self.counters.dropped_malformed += 1,
            Ok(packet) if packet.is_fragment() => self.counters.dropped_fragments += 1,
            Ok(packet) if packet.fragment.is_none() => self.counters.idle += 1,
            Ok(packet) => {
                self.counters.in_packets += 1;
                self.application.handle_packet(now, &packet);
            }
        }
    }
}
