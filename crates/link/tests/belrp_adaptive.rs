//! The `adaptive` profile: the proposals of the paper's section V, and further ones.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use crate::faces::{self, Faces, losing, packet, path, reordering};
use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::ndnlp::{LinkService, LinkServiceConfig, Mode, Reliability};
use whimbrel_ndn_packet::{Interest, LpPacket, Name};
use whimbrel_sim::link::Loss;

const DELAY: Duration = Duration::from_millis(5);

fn config(reliability: Reliability) -> LinkServiceConfig {
    LinkServiceConfig {
        reliability,
        ..LinkServiceConfig::datagram(1400)
    }
}

/// Returns two ends that have agreed, with nothing in flight.
fn agreed() -> Faces {
    let mut faces = Faces::new(1, &config(Reliability::Adaptive), &path(DELAY));
    faces.send(0, packet(false, 1000, 28));
    faces.run_for(100);
    faces.send(1, packet(false, 1001, 28));
    faces.send(0, packet(false, 1002, 28));
    assert!(faces.run_for(100));
    for end in 0..2 {
        faces.at(end, |end, _| {
            assert_eq!(end.service.stats().mode, Mode::Adaptive);
            end.received.clear();
            end.frames.clear();
        });
    }
    faces
}

fn tags(faces: &Faces, end: usize) -> Vec<u64> {
    faces.net[end]
        .received
        .iter()
        .map(|(_, packet, _)| faces::tag(packet))
        .collect()
}

#[test]
fn a_peer_that_does_not_know_the_announcement_gets_packets_that_it_can_decode() {
    let mut service = LinkService::new(config(Reliability::Adaptive), SeededRng::new(1));
    let mut announced = 0;
    for second in 0..60 {
        service.send(Time::from_secs(second), packet(false, 7, 28), None);
        let mut frame = Vec::new();
        service
            .poll_transmit(Time::from_secs(second), 1, &mut frame)
            .unwrap();
        // ndn-cxx requires fields in increasing order, and unknown ones only if they may be
        // ignored.
        let lp = LpPacket::decode(&frame, false).unwrap();
        assert_eq!(lp.fragment, Some(&packet(false, 7, 28)[..]));
        announced += u32::from(frame[0] == 0x64);
        service.handle_frame(Time::from_secs(second), &packet(true, 7, 100), &mut |_| {});
    }
    assert!(
        (6..20).contains(&announced),
        "every 10 s in the end: {announced}"
    );
    assert_eq!(
        (service.stats().mode, service.stats().outstanding),
        (Mode::None, 0)
    );
}

#[test]
fn an_interest_of_28_bytes_and_a_data_of_1061_take_28_and_1059_bytes() {
    let mut faces = agreed();
    faces.send(0, packet(false, 1, 28));
    faces.send(1, packet(true, 2, 1059));
    let interest = &faces.net[0].frames[0].1;
    let data = &faces.net[1].frames[0].1;
    assert_eq!(packet(true, 2, 1059).len(), 1061);
    assert_eq!((interest.len(), data.len()), (28, 1059), "{interest:02x?}");
    faces.run_for(100);
    assert_eq!((tags(&faces, 1), tags(&faces, 0)), (vec![1], vec![2]));
}

#[test]
fn the_link_recovers_the_last_frame_of_a_burst() {
    let mut faces = agreed();
    faces.lose(0, &[false, false, true]);
    let start = faces.now();
    for number in 0..3 {
        faces.send(0, packet(true, number, 1000));
    }
    assert!(faces.run_for(1000));
    assert_eq!(tags(&faces, 1), [0, 1, 2]);
    let (at, ..) = faces.net[1].received[2];
    assert!(
        at.since(start) < Duration::from_millis(60),
        "well below any consumer's timeout: {at}"
    );
    assert_eq!(faces.net[0].service.stats().recovered, 1);
}

#[test]
fn a_gap_is_reported_at_once_and_the_first_later_frame_proves_the_loss() {
    let mut faces = agreed();
    faces.lose(0, &[true]);
    faces.send(0, packet(true, 0, 1000));
    faces.send(0, packet(true, 1, 1000));
    let start = faces.now();
    faces.run_for(1000);
    assert_eq!(tags(&faces, 1), [1, 0]);
    // One way, back and forth again; the paper's sender waits for two more frames.
    assert_eq!(faces.net[1].received[1].0.since(start), DELAY * 3);
    assert_eq!(faces.net[0].service.stats().losses, 1);
}

/// "keeping a high degree of ACK redundancy is not cost-effective" when the loss rate is low.
#[test]
fn with_traffic_both_ways_and_no_loss_reports_take_half_an_octet_of_a_frame() {
    let mut faces = agreed();
    for number in 0..1000 {
        faces.send(0, packet(false, number, 28));
        faces.send(1, packet(true, number, 1000));
        faces.run_for(1);
    }
    faces.run_for(100);
    for end in faces.ends() {
        let stats = end.service.stats();
        assert!(
            stats.acks_carried * 8 <= stats.frames_sent + 100,
            "{stats:?}"
        );
        assert!(stats.ack_frames < 5, "{stats:?}");
    }
    assert_eq!(tags(&faces, 1).len(), 1000);
}

#[test]
fn lost_reports_cause_no_retransmissions() {
    let mut faces = agreed();
    faces.path(1, |path| path.loss = Loss::Independent(0.3));
    for number in 0..2000 {
        faces.send(0, packet(true, number, 1000));
        faces.send(1, packet(false, number, 28));
        faces.run_for(1);
    }
    let sender = faces.net[0].service.stats();
    assert!(
        sender.retransmissions < 10,
        "NFD would retransmit as many as that loss: {sender:?}"
    );
}

#[test]
fn the_reordering_window_grows_when_retransmissions_prove_spurious_and_shrinks_again() {
    let mut faces = agreed();
    faces.path(0, |path| {
        path.reorder = reordering(0.2, Duration::from_millis(4))
    });
    let mut number = 0;
    let mut spurious = Vec::new();
    for _ in 0..2 {
        for _ in 0..1000 {
            number += 1;
            faces.send(0, packet(true, number, 1000));
            faces.run_for(1);
        }
        spurious.push(faces.net[0].service.stats().spurious);
        assert!(faces.net[0].service.stats().reordering_window > Duration::from_micros(500));
    }
    assert!(
        spurious[1] - spurious[0] <= spurious[0].max(8),
        "{spurious:?}"
    );
    assert!(
        spurious[1] < 40,
        "of about 400 frames that were late: {spurious:?}"
    );
    faces.path(0, |path| path.reorder = None);
    for _ in 0..10_000 {
        number += 1;
        faces.send(0, packet(true, number, 100));
        faces.run_for(1);
    }
    faces.run_for(100);
    assert_eq!(
        faces.net[0].service.stats().reordering_window,
        Duration::ZERO
    );
    assert_eq!(tags(&faces, 1).len() as u64, number, "each once");
}

#[test]
fn an_interest_is_not_retransmitted_beyond_its_lifetime() {
    let mut faces = agreed();
    let mut short = Interest::new("/short".parse::<Name>().unwrap());
    short.lifetime = Some(Duration::from_millis(12));
    let mut long = Interest::new("/long".parse::<Name>().unwrap());
    long.lifetime = Some(Duration::from_millis(500));
    let (short, long) = (Bytes::from(short.encode()), Bytes::from(long.encode()));
    faces.lose(0, &[true, true, false]);
    for packet in [&short, &long, &long] {
        faces.send(0, packet.clone());
    }
    faces.run_for(1000);
    let came: Vec<_> = faces.net[1]
        .received
        .iter()
        .map(|(_, packet, _)| packet.clone())
        .collect();
    assert_eq!(came, [long.clone(), long]);
    assert_eq!(faces.net[0].given_up, [short]);
}

#[test]
fn either_end_may_restart_and_they_agree_again() {
    for end in 0..2 {
        let mut faces = agreed();
        faces.restart(end);
        for number in 0..20 {
            faces.send(0, packet(false, number, 100));
            faces.send(1, packet(true, 100 + number, 1000));
            faces.run_for(20);
        }
        assert_eq!(
            tags(&faces, 1),
            (0..20).collect::<Vec<_>>(),
            "restart of {end}"
        );
        assert_eq!(tags(&faces, 0), (100..120).collect::<Vec<_>>());
        assert!(
            faces
                .ends()
                .iter()
                .all(|end| end.service.stats().mode == Mode::Adaptive)
        );
    }
}

#[test]
fn a_replaced_peer_gets_plain_packets_again() {
    // The new peer no longer answers.
    let mut faces = agreed();
    faces.path(1, |path| path.loss = Loss::Independent(1.0));
    for number in 0..40 {
        faces.send(0, packet(false, number, 28));
        faces.run_for(50);
    }
    assert_eq!(faces.net[0].service.stats().mode, Mode::None);
    assert_eq!(faces.net[0].frames.last().unwrap().1[0], 0x05);
    // The new peer answers with other frames.
    let mut faces = agreed();
    faces.run_for(2000);
    faces.hand_in(0, &packet(false, 1, 28));
    faces.send(0, packet(true, 2, 100));
    assert!(LpPacket::decode(&faces.net[0].frames[0].1, false).is_ok());
}

#[test]
fn auto_falls_back_to_ndnlpv2_with_a_peer_that_acknowledges() {
    let configs = [config(Reliability::Auto), config(Reliability::Ndnlpv2)];
    let mut faces = Faces::with(1, configs, [losing(DELAY, 0.1), losing(DELAY, 0.1)]);
    for number in 0..200 {
        faces.send(0, packet(false, number, 100));
        faces.send(1, packet(true, 1000 + number, 100));
        faces.run_for(10);
    }
    faces.run_for(5000);
    assert!(
        faces
            .ends()
            .iter()
            .all(|end| end.service.stats().mode == Mode::Ndnlpv2)
    );
    // Some of the first frames, sent before the first Ack arrived, were not kept.
    assert!(tags(&faces, 1).len() >= 195 && tags(&faces, 0).len() >= 195);
    assert!(faces.net[0].service.stats().recovered > 10);
}

#[test]
fn invented_reports_and_requests_do_no_harm() {
    let mut faces = agreed();
    for number in 0..10 {
        faces.lose(0, &[true; 10]);
        faces.send(0, packet(true, number, 300));
    }
    let mut rng = SeededRng::new(5);
    for _ in 0..2000 {
        // Reports with any top number of any width and any runs, and requests.
        let mut frame = vec![0x80 | 2, (rng.next_word() as u8 & 0xf0) | 3];
        frame.extend((0..12).map(|_| rng.next_word() as u8 & 0x7f));
        faces.hand_in(0, &frame);
        let mut ask = vec![0x84];
        ask.extend_from_slice(&(rng.next_word() as u32).to_be_bytes());
        faces.hand_in(0, &ask);
    }
    assert!(faces.net[0].service.stats().drops.total() > 100);
    let sent = faces.net[0].service.stats().frames_sent;
    assert!(
        sent < 2000 * 9 + 200,
        "a request is answered by a few reports: {sent}"
    );
    faces.run_for(2000);
    for number in 100..110 {
        faces.send(0, packet(true, number, 300));
        faces.run_for(20);
    }
    assert_eq!(
        tags(&faces, 1)[tags(&faces, 1).len() - 10..],
        (100..110).collect::<Vec<_>>()
    );
}

#[test]
fn padded_frames_of_ethernet_are_understood() {
    let mut padded = config(Reliability::Adaptive);
    padded.smallest_frame = 46;
    let mut faces = Faces::new(1, &padded, &losing(DELAY, 0.1));
    for number in 0..200 {
        faces.send(0, packet(false, number, 12 + number as usize % 60));
        faces.run_for(2);
    }
    faces.run_for(500);
    let mut came = tags(&faces, 1);
    came.sort();
    assert!(came.len() >= 195);
    for (_, received, _) in &faces.net[1].received {
        let number = faces::tag(received);
        assert_eq!(*received, packet(false, number, 12 + number as usize % 60));
    }
}

#[test]
fn only_lost_fragments_of_large_packets_are_retransmitted() {
    let mut faces = agreed();
    faces.lose(0, &[false, false, true]);
    faces.send(0, packet(true, 5, 8000));
    faces.run_for(1000);
    assert_eq!(tags(&faces, 1), [5]);
    assert_eq!(faces.net[1].received[0].1, packet(true, 5, 8000));
    let stats = faces.net[0].service.stats();
    assert_eq!((stats.retransmissions, stats.packets_sent), (1, 3));
}

#[test]
fn lost_packets_are_fragmented_anew_after_the_mtu_decreases() {
    let mut faces = agreed();
    faces.lose(0, &[true]);
    faces.send(0, packet(true, 1, 1300));
    faces.set_mtu(0, 300);
    faces.send(0, packet(true, 2, 1300));
    faces.run_for(1000);
    let mut came = tags(&faces, 1);
    came.sort();
    assert_eq!(came, [1, 2]);
}

#[test]
fn an_own_standing_queue_marks_congestion() {
    let mut slow = config(Reliability::Adaptive);
    slow.drain_rate = Some(10_000_000);
    let mut faces = Faces::new(1, &slow, &path(DELAY));
    // 12 Mbit/s into 10 Mbit/s for a second.
    for number in 0..1500 {
        faces.send(0, packet(true, number, 1000));
        faces.run(faces.now() + Duration::from_micros(667));
    }
    faces.run_for(2000);
    let marks = faces.net[0].service.stats().marks;
    let marked = faces.net[1]
        .received
        .iter()
        .filter(|(.., header)| header.congestion_mark == Some(1))
        .count();
    assert!(marks > 3 && marks < 30, "{marks}");
    assert_eq!(marked as u64, marks);
    assert_eq!(tags(&faces, 1).len(), 1500);
}
