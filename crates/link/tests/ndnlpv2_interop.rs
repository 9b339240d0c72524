//! The `ndnlpv2` profile with a peer like NFD: the frames on the wire and their times.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::ndnlp::{
    LinkEvent, LinkService, LinkServiceConfig, Mode, PaperOptions, Reliability,
};
use whimbrel_ndn_packet::lp::{self, LinkFields, Numbers};
use whimbrel_ndn_packet::{LpHeader, LpPacket, tlv, types};

fn service(mtu: usize) -> LinkService {
    let mut config = LinkServiceConfig::datagram(mtu);
    config.reliability = Reliability::Ndnlpv2;
    LinkService::new(config, SeededRng::new(1))
}

fn interest(number: u8) -> Bytes {
    Bytes::from(vec![0x05, 3, number, number, number])
}

fn data(len: usize) -> Bytes {
    let mut packet = Vec::new();
    whimbrel_ndn_packet::tlv::write_element(&mut packet, 6, &vec![9; len]);
    packet.into()
}

fn frames(service: &mut LinkService, now: Time) -> Vec<Vec<u8>> {
    let (mut frames, mut buffer) = (Vec::new(), Vec::new());
    while service.poll_transmit(now, 1, &mut buffer).is_some() {
        frames.push(core::mem::take(&mut buffer));
    }
    frames
}

fn read(frame: &[u8]) -> LpPacket<'_> {
    LpPacket::decode(frame, false).unwrap()
}

fn send(service: &mut LinkService, now: Time, packet: Bytes) -> Vec<u8> {
    service.send(now, packet, None);
    let mut sent = frames(service, now);
    assert_eq!(sent.len(), 1);
    sent.remove(0)
}

fn receive(service: &mut LinkService, now: Time, frame: &[u8]) -> Vec<Bytes> {
    let mut delivered = Vec::new();
    service.handle_frame(now, frame, &mut |lp| {
        delivered.push(Bytes::copy_from_slice(lp.fragment.unwrap()));
    });
    delivered
}

fn acks(numbers: &[u64]) -> Vec<u8> {
    let mut frame = Vec::new();
    lp::encode(
        &mut frame,
        &LinkFields {
            acks: Numbers::Listed(numbers),
            ..LinkFields::default()
        },
        &LpHeader::default(),
        None,
    );
    frame
}

fn numbered(sequence: u64, tx_sequence: u64, packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let link = LinkFields {
        sequence: Some(sequence),
        tx_sequence: Some(tx_sequence),
        ..LinkFields::default()
    };
    lp::encode(&mut frame, &link, &LpHeader::default(), Some(packet));
    frame
}

/// Returns a service whose peer has acknowledged a first frame, and two more 10 ms after they were
/// sent.
fn active(mtu: usize) -> LinkService {
    let mut service = service(mtu);
    for number in 0..3 {
        let frame = send(&mut service, Time::ZERO, interest(number));
        let number = read(&frame).link.tx_sequence.unwrap();
        receive(&mut service, Time::from_millis(10), &acks(&[number]));
    }
    assert_eq!(service.stats().mode, Mode::Ndnlpv2);
    service
}

#[test]
fn fields_are_8_octets_wide_and_in_increasing_order() {
    let mut service = service(1500);
    receive(&mut service, Time::ZERO, &numbered(5, 77, &interest(1)));
    let mark = LpHeader {
        congestion_mark: Some(1),
        ..LpHeader::default()
    };
    service.send(Time::ZERO, interest(2), Some(Box::new(mark)));
    let frame = frames(&mut service, Time::ZERO).remove(0);
    let fields: Vec<(u64, usize)> = read(&frame)
        .fields()
        .map(|(typ, value)| (typ, value.len()))
        .collect();
    // Sequence, CongestionMark, Ack, TxSequence.
    assert_eq!(fields, [(0x51, 8), (0x340, 1), (0x344, 8), (0x348, 8)]);
    assert_eq!(read(&frame).link.acks.iter().collect::<Vec<_>>(), [77]);
}

#[test]
fn an_ack_goes_alone_after_5_ms_in_a_frame_that_is_not_acknowledged_itself() {
    let mut service = service(1500);
    assert_eq!(
        receive(&mut service, Time::ZERO, &numbered(5, 77, &interest(1))),
        [interest(1)]
    );
    assert_eq!(
        frames(&mut service, Time::from_millis(4)),
        Vec::<Vec<u8>>::new()
    );
    let due = service.poll_timeout().unwrap();
    assert_eq!(due.at, Time::from_millis(5));
    service.handle_timeout(due.at);
    let idle = frames(&mut service, due.at);
    assert_eq!(
        idle,
        [acks(&[77])],
        "no Sequence, no TxSequence, no Fragment"
    );
    // "Never ack IDLE."
    let mut other = self::service(1500);
    receive(&mut other, due.at, &idle[0]);
    assert_eq!(other.poll_timeout(), None);
}

#[test]
fn acks_are_sent_first_in_first_out_within_the_mtu() {
    let mut service = service(200);
    for number in 0..30 {
        receive(
            &mut service,
            Time::ZERO,
            &numbered(number, 1000 + number, &interest(1)),
        );
    }
    service.send(Time::ZERO, data(100), None);
    let mut sent = frames(&mut service, Time::ZERO);
    sent.extend(frames(&mut service, Time::from_millis(5)));
    let carried: Vec<u64> = sent
        .iter()
        .flat_map(|frame| read(frame).link.acks.iter().collect::<Vec<_>>())
        .collect();
    assert_eq!(carried, (1000..1030).collect::<Vec<_>>());
    assert!(sent.iter().all(|frame| frame.len() <= 200));
    assert!(sent.len() > 2);
}

#[test]
fn a_peer_that_never_acknowledges_gets_each_frame_once_and_after_30_s_plain_ones() {
    let mut service = service(1500);
    for second in 0..=30 {
        let now = Time::from_secs(second);
        service.handle_timeout(now);
        assert!(
            read(&send(&mut service, now, interest(1)))
                .link
                .tx_sequence
                .is_some()
        );
    }
    assert_eq!(
        (service.stats().retransmissions, service.stats().outstanding),
        (0, 0)
    );
    let now = Time::from_secs(31);
    assert_eq!(send(&mut service, now, interest(1)), interest(1), "bare");
    // One frame in 30 s probes for Acks.
    assert!(
        read(&send(&mut service, Time::from_secs(61), interest(1)))
            .link
            .tx_sequence
            .is_some()
    );
    assert_eq!(
        send(&mut service, Time::from_secs(62), interest(1)),
        interest(1)
    );
    // A peer that numbers its own frames may acknowledge ours.
    receive(
        &mut service,
        Time::from_secs(63),
        &numbered(1, 2, &interest(3)),
    );
    assert!(
        read(&send(&mut service, Time::from_secs(63), interest(1)))
            .link
            .tx_sequence
            .is_some()
    );
}

#[test]
fn a_peer_that_stops_acknowledging_is_given_up_after_30_s() {
    let mut service = active(1500);
    for second in 1..=32 {
        let now = Time::from_secs(second);
        send(&mut service, now, interest(1));
    }
    assert_eq!(service.stats().mode, Mode::None);
    assert_eq!(service.stats().outstanding, 0);
}

#[test]
fn without_an_ack_a_frame_is_sent_again_after_200_ms_at_least_three_times_and_then_given_up() {
    let mut service = active(1500);
    let mut now = Time::from_millis(10);
    let first = send(&mut service, now, interest(9));
    let (sequence, mut number) = (
        read(&first).link.sequence,
        read(&first).link.tx_sequence.unwrap(),
    );
    for attempt in 0..4 {
        let due = service.poll_timeout().unwrap().at;
        assert_eq!(due.since(now), Duration::from_millis(200), "no back-off");
        now = due;
        service.handle_timeout(now);
        let resent = frames(&mut service, now);
        assert_eq!(resent.len(), usize::from(attempt < 3));
        if let Some(frame) = resent.first() {
            number = number.wrapping_add(1);
            assert_eq!(
                (read(frame).link.sequence, read(frame).link.tx_sequence),
                (sequence, Some(number))
            );
        }
    }
    assert_eq!(
        service.poll_event(),
        Some(LinkEvent::GaveUp(interest(9).into()))
    );
    assert_eq!(
        (service.stats().given_up, service.poll_timeout()),
        (1, None)
    );
}

#[test]
fn three_acks_of_later_frames_declare_a_frame_lost() {
    let mut service = active(1500);
    let now = Time::from_millis(10);
    let numbers: Vec<u64> = (0..4)
        .map(|n| {
            read(&send(&mut service, now, interest(n)))
                .link
                .tx_sequence
                .unwrap()
        })
        .collect();
    receive(&mut service, now, &acks(&numbers[1..3]));
    assert_eq!(frames(&mut service, now).len(), 0);
    receive(&mut service, now, &acks(&numbers[3..]));
    let resent = frames(&mut service, now);
    assert_eq!(read(&resent[0]).fragment, Some(&interest(0)[..]));
    // An Ack for a TxSequence that was retransmitted already is normal: the retransmission was
    // spurious.
    receive(&mut service, now, &acks(&numbers[..1]));
    assert_eq!(
        (service.stats().spurious, service.stats().drops.false_acks),
        (1, 0)
    );
}

#[test]
fn a_sequence_that_comes_again_is_acknowledged_and_not_delivered() {
    let mut service = service(1500);
    assert_eq!(
        receive(&mut service, Time::ZERO, &numbered(5, 77, &interest(1))).len(),
        1
    );
    assert_eq!(
        receive(
            &mut service,
            Time::from_millis(200),
            &numbered(5, 78, &interest(1))
        )
        .len(),
        0
    );
    assert_eq!(service.stats().duplicates, 1);
    let idle = frames(&mut service, Time::from_millis(205));
    assert_eq!(idle, [acks(&[77, 78])]);
    // A restarted NFD begins with the same numbers again.
    assert_eq!(
        receive(
            &mut service,
            Time::from_secs(20),
            &numbered(5, 77, &interest(1))
        )
        .len(),
        1
    );
}

#[test]
fn acks_of_frames_never_sent_are_counted_and_prove_nothing() {
    let mut service = service(1500);
    let number = read(&send(&mut service, Time::ZERO, interest(1)))
        .link
        .tx_sequence
        .unwrap();
    receive(
        &mut service,
        Time::ZERO,
        &acks(&[number.wrapping_add(1), number.wrapping_add(1 << 40), 0, 1]),
    );
    assert_eq!(service.stats().drops.false_acks, 4);
    assert_eq!(
        service.stats().mode,
        Mode::None,
        "nothing is kept for a peer that sends only invalid Acks"
    );
}

#[test]
fn an_abandoned_fragment_takes_its_siblings_with_it() {
    let mut service = active(500);
    let mut now = Time::from_millis(10);
    let packet = data(1200);
    service.send(now, packet.clone(), None);
    let sent = frames(&mut service, now);
    assert_eq!(sent.len(), 3);
    for (index, frame) in sent.iter().enumerate() {
        let lp = read(frame);
        assert_eq!(lp.place(), (index as u64, 3));
        assert_eq!(
            lp.link.sequence.unwrap().wrapping_sub(index as u64),
            read(&sent[0]).link.sequence.unwrap()
        );
    }
    receive(
        &mut service,
        now,
        &acks(&[read(&sent[0]).link.tx_sequence.unwrap()]),
    );
    for _ in 0..4 {
        now = service.poll_timeout().unwrap().at;
        service.handle_timeout(now);
        frames(&mut service, now);
    }
    assert_eq!(service.poll_event(), Some(LinkEvent::GaveUp(packet.into())));
    assert_eq!(service.poll_event(), None, "once for the packet");
    assert_eq!(
        (service.stats().outstanding, service.poll_timeout()),
        (0, None)
    );
}

#[test]
fn a_packet_with_the_largest_single_frame_fits_the_mtu_and_one_more_byte_is_cut() {
    let mut service = active(1500);
    let now = Time::from_millis(10);
    // 30 octets of link headers, as in NFD, and four of the packet itself.
    assert_eq!(send(&mut service, now, data(1500 - 30 - 4)).len(), 1500);
    service.send(now, data(1500 - 30 - 3), None);
    assert_eq!(frames(&mut service, now).len(), 2);
}

#[test]
fn a_reassembled_packet_keeps_the_header_that_came_with_its_fragments() {
    let mut sender = service(500);
    let mut receiver = service(500);
    let header = LpHeader {
        pit_token: Some(Bytes::from_static(b"token")),
        congestion_mark: Some(1),
        ..LpHeader::default()
    };
    sender.send(Time::ZERO, data(3000), Some(Box::new(header.clone())));
    let mut sent = frames(&mut sender, Time::ZERO);
    sent.reverse();
    let mut delivered = Vec::new();
    for frame in &sent {
        receiver.handle_frame(Time::ZERO, frame, &mut |lp| {
            delivered.push((lp.to_header(), lp.fragment.unwrap().to_vec()));
        });
    }
    assert_eq!(delivered, [(header, data(3000).to_vec())]);
}

/// Returns a frame with an Interest and a field of 4 octets, which should have 8.
fn with_short_field(typ: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    tlv::write_nested(&mut frame, types::LP_PACKET, |out| {
        tlv::write_element(out, typ, &[1; 4]);
        tlv::write_element(out, types::LP_FRAGMENT, &interest(1));
    });
    frame
}

#[test]
fn a_malformed_field_of_reliability_drops_a_frame_only_where_it_is_used() {
    let paper = Reliability::Paper(PaperOptions::default());
    for (reliability, delivered) in [
        (Reliability::Off, true),
        (paper, true),
        (Reliability::Adaptive, true),
        (Reliability::Ndnlpv2, false),
        (Reliability::Auto, false),
    ] {
        for typ in [types::LP_ACK, types::LP_TX_SEQUENCE] {
            let config = LinkServiceConfig {
                reliability,
                ..LinkServiceConfig::datagram(1500)
            };
            let mut service = LinkService::new(config, SeededRng::new(1));
            let frame = with_short_field(typ);
            let came = receive(&mut service, Time::ZERO, &frame);
            let (skipped, malformed) = (
                service.stats().fields_skipped,
                service.stats().drops.malformed,
            );
            let expected = if delivered { (1, 1, 0) } else { (0, 0, 1) };
            assert_eq!(
                (came.len(), skipped, malformed),
                expected,
                "{reliability:?}: {typ:#x}"
            );
            // The same holds on the short path for frames without link fields.
            if reliability == Reliability::Off {
                assert!(service.handle_plain_frame(&frame).is_some());
                assert_eq!(service.stats().fields_skipped, 2);
            }
        }
    }
}

#[test]
fn a_malformed_field_of_the_packet_or_of_fragmentation_drops_a_frame_everywhere() {
    for typ in [types::LP_SEQUENCE, types::LP_NACK] {
        let mut service = LinkService::new(LinkServiceConfig::datagram(1500), SeededRng::new(1));
        assert!(receive(&mut service, Time::ZERO, &with_short_field(typ)).is_empty());
        let drops = service.stats().drops;
        assert_eq!((drops.malformed, drops.total()), (1, 1), "{typ:#x}");
    }
}
