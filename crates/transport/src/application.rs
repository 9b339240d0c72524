//! The contract of an NDN program with its driver, and the machine that puts one behind its ports.

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortInfo, PortRequest, PortToken, Time,
    Transmit, WallClock,
};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{
    DataRef, DecodeError, InterestRef, LpHeader, LpPacket, NackReason, PacketKind, tlv, types,
};

/// A packet to send: a whole bare Interest or Data, and its header fields, if any.
pub type Outgoing = (Bytes, Option<Box<LpHeader>>);

/// A face of an application, numbered from 0 by the application itself. Its driver maps it to a
/// port or connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaceNumber(pub u8);

impl FaceNumber {
    /// The only face of an application with one.
    pub const FIRST: FaceNumber = FaceNumber(0);

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A program that speaks NDN over one face or several.
///
/// The order of calls is that of [`Machine`]: inputs, then [`Application::poll_packet`] of each
/// face and [`Application::poll_event`] until all are empty, then [`Application::poll_timeout`].
/// Most programs have one face and can ignore its number.
pub trait Application {
    /// An event for the program around it.
    type Event;

    /// A face to a forwarder came up or went down. Going down is not the end: the state is kept
    /// until it comes up again. Initially all faces are down.
    fn handle_face(&mut self, now: Time, face: FaceNumber, up: bool);

    /// Handles a whole packet from a forwarder with its link header; a Nack if `packet.nack` is
    /// set.
    fn handle_packet(&mut self, now: Time, face: FaceNumber, packet: &LpPacket<'_>);

    /// A deadline of [`Application::poll_timeout`] has passed. Calling it early or twice is
    /// harmless.
    fn handle_timeout(&mut self, now: Time);

    /// The system's clock was set, or the machine was suspended: this one holds now. Programs that
    /// sign commands or date what they serve must follow it.
    fn handle_wall_clock(&mut self, wall: WallClock) {
        let _ = wall;
    }

    /// The next packet to send on `face`. Called only while the face is up and can send, so that
    /// the packet leaves at `now`.
    fn poll_packet(&mut self, now: Time, face: FaceNumber) -> Option<Outgoing>;

    /// Returns the face that is polled first for packets; the others follow by number.
    fn first_face(&self) -> FaceNumber {
        FaceNumber::FIRST
    }

    /// The next event.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When to call [`Application::handle_timeout`].
    fn poll_timeout(&self) -> Option<Deadline>;
}

/// Returns a deadline to send at `at`, unless that had passed by `seen`: an overdue packet leaves
/// as soon as the port can send, and a deadline in the past would make the driver spin while the
/// port is blocked.
pub fn due(at: Time, seen: Time, reason: &'static str) -> Option<Deadline> {
    (at > seen).then(|| Deadline::new(at, reason))
}

/// A received network-layer packet, decoded.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<'a> {
    /// An Interest.
    Interest(InterestRef<'a>),
    /// A Data.
    Data(DataRef<'a>),
    /// A Nack for an Interest of this program, with its reason.
    Nack(NackReason, InterestRef<'a>),
}

impl<'a> Arrival<'a> {
    /// Decodes a packet from the link.
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

/// Maximum of bytes in one transmit to a stream: about the size of a socket buffer.
const STREAM_BATCH: usize = 64 * 1024;

/// Counters of an [`AppFace`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppFaceCounters {
    /// Packets passed to the application.
    pub in_packets: u64,
    /// Bytes of frames received.
    pub in_bytes: u64,
    /// Packets written.
    pub out_packets: u64,
    /// Bytes written.
    pub out_bytes: u64,
    /// Frames that are not an NDNLPv2 packet, Interest or Data.
    pub dropped_malformed: u64,
    /// Fragments: only a router's link service reassembles them.
    pub dropped_fragments: u64,
    /// Frames without a packet in them (IDLE).
    pub idle: u64,
    /// Packets of the application larger than the port's largest frame.
    pub dropped_too_large: u64,
    /// Frames on a port that is not a face.
    pub dropped_other_port: u64,
}

struct Port {
    id: PortId,
    mtu: usize,
    stream: bool,
    blocked: bool,
    /// Polled from the application, but too large for the rest of the last transmit.
    held: Option<Outgoing>,
}

/// Maps a port to a face of the application; `None` if it is not a face.
type Assign = Box<dyn FnMut(&PortInfo) -> Option<FaceNumber> + Send>;

/// An [`Application`] as a [`Machine`] whose ports lead to forwarders.
///
/// Packets arrive bare or in an NDNLPv2 packet; they are sent bare unless a header field is needed.
/// On a stream ([`whimbrel_core::Medium::is_stream`]) one transmit holds several packets of any
/// size, about 64 KiB; on other ports one packet is one frame, and packets of the same size share a
/// transmit.
///
/// With one face, the first port that comes up is the face; further ones are closed. With several
/// ([`AppFace::with_faces`]), its owner maps ports to faces. When a port goes down, the application
/// keeps its state, and continues on the next port that comes up for the face. A packet larger than
/// the port's frame is dropped and counted.
pub struct AppFace<A: Application> {
    application: A,
    /// By number of the face.
    ports: Vec<Option<Port>>,
    assign: Option<Assign>,
    requests: Vec<PortRequest>,
    counters: AppFaceCounters,
}

impl<A: Application> AppFace<A> {
    /// Returns a machine with one face, before its port is up.
    pub fn new(application: A) -> AppFace<A> {
        AppFace {
            application,
            ports: vec![None],
            assign: None,
            requests: Vec::new(),
            counters: AppFaceCounters::default(),
        }
    }

    /// Returns a machine with several faces; `assign` maps a port that has come up to one of them.
    /// Ports that are not a face, and further ones of the same face, are closed.
    pub fn with_faces(
        application: A,
        assign: impl FnMut(&PortInfo) -> Option<FaceNumber> + Send + 'static,
    ) -> AppFace<A> {
        AppFace {
            assign: Some(Box::new(assign)),
            ..AppFace::new(application)
        }
    }

    /// Returns the application.
    pub const fn application(&self) -> &A {
        &self.application
    }

    /// The application, mutable; drain the machine afterwards.
    pub const fn application_mut(&mut self) -> &mut A {
        &mut self.application
    }

    /// Counters since the start, of all faces.
    pub const fn counters(&self) -> &AppFaceCounters {
        &self.counters
    }

    /// Returns true while a face has a port.
    pub fn is_up(&self) -> bool {
        self.ports.iter().any(Option::is_some)
    }

    /// Returns the face of a port.
    fn face_of(&self, id: PortId) -> Option<FaceNumber> {
        let place = |port: &Option<Port>| port.as_ref().is_some_and(|port| port.id == id);
        self.ports
            .iter()
            .position(place)
            .map(|place| FaceNumber(place as u8))
    }

    fn port(&mut self, face: FaceNumber) -> Option<&mut Port> {
        self.ports.get_mut(face.index())?.as_mut()
    }

    fn port_up(&mut self, now: Time, id: PortId, info: &PortInfo) {
        let known = self.face_of(id);
        let face = known.or_else(|| match &mut self.assign {
            Some(assign) => assign(info),
            None => Some(FaceNumber::FIRST),
        });
        let Some(face) = face.filter(|face| known.is_some() || self.is_free(*face)) else {
            self.requests.push(PortRequest::Close(id));
            return;
        };
        while self.ports.len() <= face.index() {
            self.ports.push(None);
        }
        if let Some(place) = self.ports.get_mut(face.index()) {
            *place = Some(Port {
                id,
                mtu: info.mtu,
                stream: info.medium.is_stream(),
                blocked: false,
                held: place.take().and_then(|port| port.held),
            });
        }
        if known.is_none() {
            self.application.handle_face(now, face, true);
        }
    }

    fn is_free(&self, face: FaceNumber) -> bool {
        self.ports.get(face.index()).is_none_or(Option::is_none)
    }

    fn next(&mut self, now: Time, face: FaceNumber) -> Option<Outgoing> {
        let port = self.port(face)?;
        let mtu = port.mtu;
        if let Some(held) = port.held.take() {
            return Some(held);
        }
        loop {
            let mut outgoing = self.application.poll_packet(now, face)?;
            outgoing.1 = outgoing.1.filter(|header| !header.is_empty());
            if wire_len(&outgoing) <= mtu {
                return Some(outgoing);
            }
            self.counters.dropped_too_large += 1;
        }
    }

    fn hold(&mut self, face: FaceNumber, outgoing: Outgoing) {
        if let Some(port) = self.port(face) {
            port.held = Some(outgoing);
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

    fn write_stream(&mut self, now: Time, face: FaceNumber, buffer: &mut Vec<u8>) -> usize {
        let start = buffer.len();
        while let Some(outgoing) = self.next(now, face) {
            let written = buffer.len() - start;
            if written > 0 && written + wire_len(&outgoing) > STREAM_BATCH {
                self.hold(face, outgoing);
                break;
            }
            self.write(&outgoing, buffer);
        }
        buffer.len() - start
    }

    /// Writes frames of one size, the last one possibly shorter; returns that size.
    fn write_datagrams(
        &mut self,
        now: Time,
        face: FaceNumber,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<usize> {
        let first = self.next(now, face)?;
        let size = wire_len(&first);
        self.write(&first, buffer);
        for _ in 1..max_segments {
            let Some(outgoing) = self.next(now, face) else {
                break;
            };
            let next = wire_len(&outgoing);
            if next > size {
                self.hold(face, outgoing);
                break;
            }
            self.write(&outgoing, buffer);
            if next < size {
                break;
            }
        }
        Some(size)
    }

    /// Writes a face's pending packets.
    fn transmit(
        &mut self,
        now: Time,
        face: FaceNumber,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let port = self.port(face).filter(|port| !port.blocked)?;
        let (id, stream) = (port.id, port.stream);
        let start = buffer.len();
        if stream {
            let size = self.write_stream(now, face, buffer);
            return (size > 0).then_some(Transmit {
                port: id,
                size,
                segment_size: None,
            });
        }
        let segment = self.write_datagrams(now, face, max_segments, buffer)?;
        let size = buffer.len() - start;
        Some(Transmit {
            port: id,
            size,
            segment_size: (size > segment).then_some(segment),
        })
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
        if let PortEvent::Up(info) = &event {
            return self.port_up(now, port, info);
        }
        let Some(face) = self.face_of(port) else {
            return;
        };
        let Some(place) = self.ports.get_mut(face.index()) else {
            return;
        };
        match (event, place) {
            (PortEvent::Down, place) => {
                *place = None;
                self.application.handle_face(now, face, false);
            }
            (PortEvent::Mtu(mtu), Some(port)) => port.mtu = mtu,
            (PortEvent::Blocked, Some(port)) => port.blocked = true,
            (PortEvent::Writable, Some(port)) => port.blocked = false,
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
        if self.ports.len() == 1 {
            return self.transmit(now, FaceNumber::FIRST, max_segments, buffer);
        }
        let first = self.application.first_face();
        let others = (0..=u8::MAX).map(FaceNumber).take(self.ports.len());
        core::iter::once(first)
            .chain(others.filter(|face| *face != first))
            .find_map(|face| self.transmit(now, face, max_segments, buffer))
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
        let Some(face) = self.face_of(port) else {
            self.counters.dropped_other_port += 1;
            return;
        };
        self.counters.in_bytes += frame.len() as u64;
        match LpPacket::decode(frame, false) {
            Err(_) => self.counters.dropped_malformed += 1,
            Ok(packet) if packet.is_fragment() => self.counters.dropped_fragments += 1,
            Ok(packet) if packet.fragment.is_none() => self.counters.idle += 1,
            Ok(packet) => {
                self.counters.in_packets += 1;
                self.application.handle_packet(now, face, &packet);
            }
        }
    }
}
