//! The `paper` profile, sentence by sentence [BELRP §III].

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::ndnlp::{LinkEvent, LinkService, LinkServiceConfig, PaperOptions, Reliability};

fn service(max_retransmissions: u8) -> LinkService {
    service_with(PaperOptions::retransmitting(max_retransmissions))
}

fn service_with(options: PaperOptions) -> LinkService {
    let mut config = LinkServiceConfig::datagram(1500);
    config.reliability = Reliability::Paper(options);
    LinkService::new(config, SeededRng::new(1))
}

fn interest(number: u8) -> Bytes {
    Bytes::from(vec![0x05, 3, number, number, number])
}

/// The contents of a frame: numbers, ACKs, the value of its Interest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    numbers: Option<(u32, u32)>,
    acks: Vec<u32>,
    value: Vec<u8>,
}

fn number(octets: &[u8]) -> u32 {
    u32::from_be_bytes(octets.try_into().unwrap())
}

fn read(frame: &[u8]) -> Frame {
    let carries = frame[0] == 0xd0;
    assert!(carries || frame[0] == 0xc0, "{frame:02x?}");
    let start = if carries { 10 } else { 2 };
    let end = start + usize::from(frame[1]) * 4;
    Frame {
        numbers: carries.then(|| (number(&frame[2..6]), number(&frame[6..10]))),
        acks: frame[start..end].chunks(4).map(number).collect(),
        value: frame[end..].to_vec(),
    }
}

fn acks(numbers: &[u32]) -> Vec<u8> {
    let mut frame = vec![0xc0, numbers.len() as u8];
    numbers
        .iter()
        .for_each(|number| frame.extend_from_slice(&number.to_be_bytes()));
    frame
}

fn frames(service: &mut LinkService, now: Time) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut buffer = Vec::new();
    while service.poll_transmit(now, 1, &mut buffer).is_some() {
        frames.push(read(&buffer));
        buffer.clear();
    }
    frames
}

fn send(service: &mut LinkService, now: Time, numbers: core::ops::Range<u8>) -> Vec<Frame> {
    numbers.for_each(|number| service.send(now, interest(number), None));
    frames(service, now)
}

fn receive(service: &mut LinkService, frame: &[u8]) -> usize {
    let mut delivered = 0;
    service.handle_frame(Time::ZERO, frame, &mut |_| delivered += 1);
    delivered
}

/// Returns a frame with an Interest, as the peer sends it.
fn frame(frame: u32, packet: u32) -> Vec<u8> {
    let mut octets = vec![0xd0, 0];
    octets.extend_from_slice(&frame.to_be_bytes());
    octets.extend_from_slice(&packet.to_be_bytes());
    octets.extend_from_slice(&[7, 7, 7]);
    octets
}

#[test]
fn a_new_packet_number_for_every_packet_and_a_new_frame_number_for_every_frame() {
    let sent = send(&mut service(3), Time::ZERO, 0..3);
    let (first_frame, first_packet) = sent[0].numbers.unwrap();
    for (index, frame) in sent.iter().enumerate() {
        let index = index as u32;
        assert_eq!(
            frame.numbers,
            Some((
                first_frame.wrapping_add(index),
                first_packet.wrapping_add(index)
            ))
        );
    }
}

#[test]
fn lost_only_after_receiving_3_distinct_acks_each_with_a_greater_number() {
    let mut service = service(3);
    let sent = send(&mut service, Time::ZERO, 0..5);
    let number = |index: usize| sent[index].numbers.unwrap().0;
    for _ in 0..3 {
        receive(&mut service, &acks(&[number(1)]));
    }
    receive(&mut service, &acks(&[number(2)]));
    assert_eq!(
        frames(&mut service, Time::ZERO),
        [],
        "two distinct ones, one of them three times"
    );
    receive(&mut service, &acks(&[number(3)]));
    let resent = frames(&mut service, Time::ZERO);
    // "the sender assigns the lost frame F the next unused frame number"; "P keeps the same packet
    // number".
    assert_eq!(resent.len(), 1);
    assert_eq!(
        resent[0].numbers,
        Some((number(4).wrapping_add(1), sent[0].numbers.unwrap().1))
    );
    assert_eq!(resent[0].value, sent[0].value);
    assert_eq!(
        (service.stats().losses, service.stats().retransmissions),
        (1, 1)
    );
}

#[test]
fn each_ack_is_sent_3_times_on_frames_going_the_opposite_direction() {
    let mut service = service(3);
    receive(&mut service, &frame(100, 1));
    assert_eq!(
        frames(&mut service, Time::ZERO),
        [],
        "no gap: it waits for traffic"
    );
    assert_eq!(service.poll_timeout(), None, "no timer is set");
    let carried: Vec<Vec<u32>> = send(&mut service, Time::ZERO, 0..5)
        .into_iter()
        .map(|frame| frame.acks)
        .collect();
    assert_eq!(carried, [vec![100], vec![100], vec![100], vec![], vec![]]);
}

#[test]
fn frames_at_the_front_of_the_queue_take_the_copies_and_future_traffic_the_rest() {
    let mut service = service(3);
    service.send(Time::ZERO, interest(0), None);
    receive(&mut service, &frame(100, 1));
    receive(&mut service, &frame(101, 2));
    assert_eq!(
        frames(&mut service, Time::ZERO)[0].acks,
        [100, 101],
        "min(queue size, 3) = 1"
    );
    receive(&mut service, &frame(102, 3));
    let carried: Vec<Vec<u32>> = send(&mut service, Time::ZERO, 1..5)
        .into_iter()
        .map(|frame| frame.acks)
        .collect();
    assert_eq!(
        carried,
        [vec![100, 101, 102], vec![100, 101, 102], vec![102], vec![]]
    );
}

#[test]
fn an_ack_that_reports_a_gap_in_the_previous_3_frames_goes_immediately_if_the_queue_is_empty() {
    let mut service = service(3);
    receive(&mut service, &frame(100, 0));
    assert_eq!(frames(&mut service, Time::ZERO), []);
    // 101 is lost: 102, 103 and 104 report it, 105 does not.
    for number in 102..105 {
        receive(&mut service, &frame(number, number));
        let alone = frames(&mut service, Time::ZERO);
        assert_eq!(
            alone,
            [Frame {
                numbers: None,
                acks: vec![number],
                value: vec![]
            }]
        );
    }
    receive(&mut service, &frame(105, 105));
    assert_eq!(frames(&mut service, Time::ZERO), []);
    assert_eq!(service.stats().ack_frames, 3);
    let carried: Vec<usize> = send(&mut service, Time::ZERO, 0..4)
        .iter()
        .map(|frame| frame.acks.len())
        .collect();
    assert_eq!(
        carried,
        [5, 5, 2, 0],
        "the ones sent alone were one copy of three"
    );
}

#[test]
fn all_waiting_acks_go_with_the_one_that_reports_a_gap_where_that_is_set() {
    let mut service = service_with(PaperOptions {
        acks_together: true,
        ..PaperOptions::default()
    });
    receive(&mut service, &frame(100, 0));
    assert_eq!(frames(&mut service, Time::ZERO), []);
    // 101 is lost.
    for (number, together) in [(102, vec![100, 102]), (103, vec![100, 102, 103])] {
        receive(&mut service, &frame(number, number));
        let alone = frames(&mut service, Time::ZERO);
        assert_eq!(alone.len(), 1);
        assert_eq!((alone[0].numbers, &alone[0].acks), (None, &together));
    }
    assert_eq!(service.stats().ack_frames, 2);
    let carried: Vec<Vec<u32>> = send(&mut service, Time::ZERO, 0..3)
        .into_iter()
        .map(|frame| frame.acks)
        .collect();
    // The frames of ACKs were two of the three copies of 100 and 102, one of 103.
    assert_eq!(
        carried,
        [vec![100, 102, 103], vec![103], vec![]],
        "three copies of each in all"
    );
}

#[test]
fn a_frame_of_acks_alone_keeps_to_the_smallest_mtu() {
    let mut service = service_with(PaperOptions {
        acks_together: true,
        ..PaperOptions::default()
    });
    for number in 0..1000 {
        receive(&mut service, &frame(number, number));
    }
    receive(&mut service, &frame(1001, 1001));
    let mut buffer = Vec::new();
    while service.poll_transmit(Time::ZERO, 1, &mut buffer).is_some() {
        assert!(buffer.len() <= 128, "{} octets", buffer.len());
        buffer.clear();
    }
    assert!(service.stats().ack_frames > 0);
}

#[test]
fn a_frame_is_lost_after_the_first_later_ack_where_that_is_set() {
    let mut service = service_with(PaperOptions {
        later_acks: 1,
        ..PaperOptions::default()
    });
    let sent = send(&mut service, Time::ZERO, 0..2);
    receive(&mut service, &acks(&[sent[1].numbers.unwrap().0]));
    let resent = frames(&mut service, Time::ZERO);
    assert_eq!(resent.len(), 1);
    assert_eq!(resent[0].value, sent[0].value);
    assert_eq!(service.stats().losses, 1);
}

#[test]
fn no_later_acks_at_all_are_taken_as_one() {
    let mut service = service_with(PaperOptions {
        later_acks: 0,
        ..PaperOptions::default()
    });
    let sent = send(&mut service, Time::ZERO, 0..2);
    receive(&mut service, &acks(&[sent[0].numbers.unwrap().0]));
    assert_eq!(frames(&mut service, Time::ZERO), [], "nothing is lost");
    receive(&mut service, &acks(&[sent[1].numbers.unwrap().0]));
    assert_eq!(service.stats().losses, 0);
}

#[test]
fn an_ack_that_reports_a_gap_travels_if_the_queue_is_not_empty() {
    let mut service = service(3);
    receive(&mut service, &frame(100, 0));
    service.send(Time::ZERO, interest(0), None);
    receive(&mut service, &frame(102, 2));
    let sent = frames(&mut service, Time::ZERO);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].acks, [100, 102]);
    assert_eq!(service.stats().ack_frames, 0);
}

#[test]
fn if_a_frame_is_lost_more_than_a_configured_number_of_times_belrp_stops_trying() {
    for most in 1..=3 {
        let mut service = service(most);
        let first = send(&mut service, Time::ZERO, 0..1).remove(0);
        let mut lost = first.numbers.unwrap().0;
        for attempt in 0..=most {
            let later: Vec<u32> = send(&mut service, Time::ZERO, 10..13)
                .iter()
                .map(|f| f.numbers.unwrap().0)
                .collect();
            receive(&mut service, &acks(&later));
            let resent = frames(&mut service, Time::ZERO);
            assert_eq!(resent.len(), usize::from(attempt < most));
            if let Some(frame) = resent.first() {
                assert!(frame.numbers.unwrap().0 != lost);
                lost = frame.numbers.unwrap().0;
            }
        }
        assert_eq!(
            service.poll_event(),
            Some(LinkEvent::GaveUp(interest(0).into()))
        );
        assert_eq!(
            (service.stats().given_up, service.stats().outstanding),
            (1, 0)
        );
    }
}

#[test]
fn no_timer_so_the_last_frame_of_a_burst_stays_lost_until_later_traffic() {
    let mut service = service(3);
    send(&mut service, Time::ZERO, 0..1);
    assert_eq!(service.poll_timeout(), None);
    service.handle_timeout(Time::from_secs(100));
    assert_eq!(frames(&mut service, Time::from_secs(100)), []);
    assert_eq!(service.stats().outstanding, 1);
}

#[test]
fn a_packet_that_came_in_another_frame_is_delivered_once_and_acknowledged_again() {
    let mut service = service(3);
    assert_eq!(receive(&mut service, &frame(100, 7)), 1);
    assert_eq!(
        receive(&mut service, &frame(101, 7)),
        0,
        "resent because its ACKs were lost"
    );
    assert_eq!(service.stats().duplicates, 1);
    assert_eq!(send(&mut service, Time::ZERO, 0..1)[0].acks, [100, 101]);
}

#[test]
fn acks_of_frames_never_sent_are_counted_and_do_no_harm() {
    let mut service = service(3);
    let sent = send(&mut service, Time::ZERO, 0..2);
    let next = sent[1].numbers.unwrap().0.wrapping_add(1);
    receive(
        &mut service,
        &acks(&[next, next.wrapping_add(1), next.wrapping_add(1000)]),
    );
    assert_eq!(
        frames(&mut service, Time::ZERO),
        [],
        "they prove nothing lost"
    );
    assert_eq!(
        (
            service.stats().drops.false_acks,
            service.stats().outstanding
        ),
        (3, 2)
    );
}

#[test]
fn a_late_ack_reveals_a_spurious_retransmission() {
    let mut service = service(3);
    let sent = send(&mut service, Time::ZERO, 0..4);
    let numbers: Vec<u32> = sent.iter().map(|frame| frame.numbers.unwrap().0).collect();
    receive(&mut service, &acks(&numbers[1..]));
    assert_eq!(frames(&mut service, Time::ZERO).len(), 1);
    receive(&mut service, &acks(&numbers[..1]));
    assert_eq!(
        (service.stats().spurious, service.stats().outstanding),
        (1, 0)
    );
}
