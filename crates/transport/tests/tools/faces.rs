//! What an [`AppFace`] does with its ports.

use whimbrel_core::{Deadline, Machine, PortEvent, PortId, PortRequest, Time};
use whimbrel_ndn_packet::lp::{self, LinkFields, Numbers};
use whimbrel_ndn_packet::{Interest, LpHeader, LpPacket};
use whimbrel_transport::{AppFace, Application, FaceNumber, Outgoing};

use super::setup::echo;
use crate::support::{PORT, name, port_up, transmit};

/// Sends packets of these sizes, the last one first.
struct Sizes(Vec<usize>);

impl Application for Sizes {
    type Event = ();

    fn handle_face(&mut self, _now: Time, _face: FaceNumber, _up: bool) {}
    fn handle_packet(&mut self, _now: Time, _face: FaceNumber, _packet: &LpPacket<'_>) {}
    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_packet(&mut self, _now: Time, _face: FaceNumber) -> Option<Outgoing> {
        let size = self.0.pop()?;
        // Type and length take four octets.
        let mut packet = vec![0x06, 0xfd, ((size - 4) >> 8) as u8, (size - 4) as u8];
        packet.resize(size, 0);
        Some((packet.into(), Some(Box::default())))
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

fn sizes_of_transmits(sizes: &[usize], stream: bool, mtu: usize) -> (Vec<Vec<usize>>, u64) {
    let mut face = AppFace::new(Sizes(sizes.iter().rev().copied().collect()));
    let mut buffer = Vec::new();
    assert_eq!(
        face.poll_transmit(Time::ZERO, 4, &mut buffer),
        None,
        "no port"
    );
    face.handle_port(Time::ZERO, PORT, port_up(stream, mtu));
    let mut transmits = Vec::new();
    while let Some((_, frames)) = transmit(&mut face, Time::ZERO, stream) {
        transmits.push(frames.iter().map(Vec::len).collect());
    }
    (transmits, face.counters().dropped_too_large)
}

#[test]
fn a_face_puts_packets_of_one_size_into_one_transmit() {
    let (transmits, dropped) =
        sizes_of_transmits(&[500, 500, 300, 300, 400, 2000, 500], false, 1400);
    assert_eq!(
        transmits,
        [vec![500, 500, 300], vec![300], vec![400], vec![500]]
    );
    assert_eq!(dropped, 1);
}

#[test]
fn a_face_puts_whole_packets_up_to_64_kib_on_a_stream() {
    let sizes: Vec<usize> = (0..50).map(|n| 5000 + n).collect();
    let (transmits, dropped) = sizes_of_transmits(&sizes, true, 8800);
    assert_eq!(transmits.concat(), sizes);
    assert!(
        transmits
            .iter()
            .all(|sizes| sizes.iter().sum::<usize>() <= 65_536)
    );
    assert_eq!((transmits.len(), dropped), (4, 0));
}

/// Notes what its faces bring, and sends `to_send` packets by each.
#[derive(Default)]
struct Switchboard {
    states: Vec<(u8, bool)>,
    arrived: Vec<u8>,
    to_send: [u32; 3],
    first: FaceNumber,
}

impl Application for Switchboard {
    type Event = ();

    fn handle_face(&mut self, _now: Time, face: FaceNumber, up: bool) {
        self.states.push((face.0, up));
    }

    fn handle_packet(&mut self, _now: Time, face: FaceNumber, _packet: &LpPacket<'_>) {
        self.arrived.push(face.0);
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_packet(&mut self, _now: Time, face: FaceNumber) -> Option<Outgoing> {
        let left = self.to_send.get_mut(usize::from(face.0))?;
        *left = left.checked_sub(1)?;
        Some((Interest::new(name("/a")).encode().into(), None))
    }

    fn first_face(&self) -> FaceNumber {
        self.first
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

/// Returns the ports of all waiting transmits, in the order in which they are sent.
fn ports_of_transmits(face: &mut AppFace<Switchboard>) -> Vec<u32> {
    let mut buffer = Vec::new();
    core::iter::from_fn(|| face.poll_transmit(Time::ZERO, 44, &mut buffer))
        .map(|transmit| transmit.port.0)
        .collect()
}

#[test]
fn an_application_has_several_faces_and_each_is_a_port_of_its_own() {
    // Faces 2, 1 and 0 come up in this order, as ports 12, 11 and 10.
    let mut numbers = [2, 1, 0].into_iter().map(FaceNumber);
    let mut face = AppFace::with_faces(Switchboard::default(), move |_| numbers.next());
    for port in [12, 11, 10, 9] {
        face.handle_port(Time::ZERO, PortId(port), port_up(true, 8800));
    }
    let refused = face.poll_port_request();
    assert_eq!(refused, Some(PortRequest::Close(PortId(9))));
    let interest = Interest::new(name("/a")).encode();
    for port in [11, 12, 10, 9] {
        face.handle_frames(Time::ZERO, PortId(port), &[&interest]);
    }
    let application = face.application_mut();
    assert_eq!(application.states, [(2, true), (1, true), (0, true)]);
    assert_eq!(application.arrived, [1, 2, 0]);
    (application.to_send, application.first) = ([3, 3, 3], FaceNumber(1));
    assert_eq!(ports_of_transmits(&mut face), [11, 10, 12]);
    // A blocked face does not hold up the others.
    face.handle_port(Time::ZERO, PortId(11), PortEvent::Blocked);
    face.application_mut().to_send = [1, 1, 1];
    assert_eq!(ports_of_transmits(&mut face), [10, 12]);
    face.handle_port(Time::ZERO, PortId(11), PortEvent::Writable);
    assert_eq!(ports_of_transmits(&mut face), [11]);
    face.handle_port(Time::ZERO, PortId(12), PortEvent::Down);
    assert_eq!(face.application().states.last(), Some(&(2, false)));
    face.application_mut().to_send = [1, 1, 1];
    assert_eq!(ports_of_transmits(&mut face), [11, 10]);
    assert!(face.is_up());
}

#[test]
fn a_face_counts_what_it_cannot_use_and_keeps_one_port() {
    let mut face = AppFace::new(echo("/a", 1));
    face.handle_port(Time::ZERO, PORT, port_up(true, 8800));
    face.handle_port(Time::ZERO, PortId(9), port_up(true, 8800));
    assert_eq!(
        face.poll_port_request(),
        Some(PortRequest::Close(PortId(9)))
    );
    let interest = Interest::new(name("/a")).encode();
    let mut fragment = Vec::new();
    let fields = LinkFields {
        sequence: Some(1),
        frag_count: Some(2),
        ..LinkFields::default()
    };
    lp::encode(
        &mut fragment,
        &fields,
        &LpHeader::default(),
        Some(&interest),
    );
    let mut idle = Vec::new();
    lp::encode(
        &mut idle,
        &LinkFields {
            acks: Numbers::Listed(&[1]),
            ..LinkFields::default()
        },
        &LpHeader::default(),
        None,
    );
    for frame in [&fragment[..], &idle, b"\x99\x00", b"", &interest] {
        face.handle_frames(Time::ZERO, PORT, &[frame]);
    }
    face.handle_frames(Time::ZERO, PortId(9), &[&interest]);
    let counters = *face.counters();
    assert_eq!(
        (
            counters.dropped_fragments,
            counters.idle,
            counters.dropped_malformed,
            counters.in_packets
        ),
        (1, 1, 2, 1)
    );
    assert_eq!(counters.dropped_other_port, 1);
    face.handle_port(Time::ZERO, PortId(9), PortEvent::Down);
    assert!(face.is_up());
    face.handle_port(Time::ZERO, PORT, PortEvent::Down);
    assert!(!face.is_up());
}
