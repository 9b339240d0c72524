//! A service and its responder: link headers and bounds.

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{Interest, InterestRef, LpHeader, LpPacket, NackReason};
use whimbrel_transport::register::Registrar;
use whimbrel_transport::{Answer, Application, FaceNumber, Responder, Service};

use super::setup::rng;
use crate::support::{name, register};

/// Answers every Interest with a Nack.
struct Mute;

impl Responder for Mute {
    type Event = ();

    fn respond(&mut self, _now: Time, _interest: &InterestRef<'_>) -> Answer {
        Answer::Nack(NackReason::None)
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

#[test]
fn pit_tokens_come_back_and_too_many_answers_are_dropped() {
    let mut service = Service::new(Mute, Registrar::new(register(), []), rng());
    service.handle_face(Time::ZERO, FaceNumber::FIRST, true);
    let interest = Interest {
        nonce: Some([1; 4]),
        ..Interest::new(name("/a"))
    }
    .encode();
    let mut frame = Vec::new();
    let header = LpHeader {
        pit_token: Some(Bytes::from_static(b"tok")),
        ..LpHeader::default()
    };
    lp::encode(&mut frame, &LinkFields::default(), &header, Some(&interest));
    for _ in 0..20_000 {
        service.handle_packet(
            Time::ZERO,
            FaceNumber::FIRST,
            &LpPacket::decode(&frame, false).unwrap(),
        );
    }
    assert_eq!(service.counters().interests, 20_000);
    assert_eq!(service.counters().dropped, 20_000 - 16_384);
    let (packet, header) = service.poll_packet(Time::ZERO, FaceNumber::FIRST).unwrap();
    let header = header.unwrap();
    assert_eq!(header.pit_token.as_deref(), Some(&b"tok"[..]));
    assert_eq!(
        (header.nack, &packet[..]),
        (Some(NackReason::None), &interest[..])
    );
}

/// Answers with the congestion mark of the Interest plus one.
struct Labelling;

impl Responder for Labelling {
    type Event = ();

    fn respond(&mut self, _now: Time, interest: &InterestRef<'_>) -> Answer {
        Answer::Data(Bytes::copy_from_slice(interest.wire))
    }

    fn set_header(&mut self, asked: &LpPacket<'_>, header: &mut LpHeader) {
        header.congestion_mark = asked.congestion_mark.map(|mark| mark + 1);
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }
}

#[test]
fn a_producer_sees_the_link_header_and_sets_fields_of_its_answers() {
    let mut service = Service::new(Labelling, Registrar::new(register(), []), rng());
    service.handle_face(Time::ZERO, FaceNumber::FIRST, true);
    let interest = Interest::new(name("/a")).encode();
    let header = LpHeader {
        pit_token: Some(Bytes::from_static(b"tok")),
        congestion_mark: Some(6),
        ..LpHeader::default()
    };
    let mut frame = Vec::new();
    lp::encode(&mut frame, &LinkFields::default(), &header, Some(&interest));
    for frame in [&frame, &interest] {
        let packet = LpPacket::decode(frame, false).unwrap();
        service.handle_packet(Time::ZERO, FaceNumber::FIRST, &packet);
    }
    let mut answer = || {
        let (_, header) = service.poll_packet(Time::ZERO, FaceNumber::FIRST)?;
        Some(header.map(|header| *header))
    };
    let expected = LpHeader {
        congestion_mark: Some(7),
        ..header.clone()
    };
    assert_eq!(answer(), Some(Some(expected)));
    assert_eq!(answer(), Some(None), "nothing to say, no header");
    assert_eq!(answer(), None);
}
