//! Behaviour of one hop, sentence by sentence.

use core::time::Duration;

use crate::pair::{self, Pair, chunk, config, reordering};
use whimbrel_core::Time;
use whimbrel_link::HopEvent;
use whimbrel_sim::link::{LinkSpec, Outage};

fn path(rtt_ms: u64) -> LinkSpec {
    pair::path(25_000_000, Duration::from_micros(rtt_ms * 500))
}

#[test]
fn chunks_of_all_sizes_arrive_intact_in_both_directions() {
    let mut pair = Pair::new(1, path(10));
    let sizes = [
        1usize,
        99,
        100,
        101,
        1_432,
        1_433,
        45_824,
        45_825,
        1 << 20,
        4 << 20,
    ];
    for (tag, size) in sizes.iter().enumerate() {
        pair.send(0, tag as u64, chunk(tag as u64, *size));
        pair.send(1, tag as u64, chunk(tag as u64, *size));
    }
    assert!(pair.drive_until(Time::from_secs(10), |pair| {
        pair.ends()
            .iter()
            .all(|end| end.delivered.len() == sizes.len())
    }));
    for end in pair.ends() {
        let mut received: Vec<_> = end
            .received
            .iter()
            .map(|arrival| arrival.chunk.clone())
            .collect();
        received.sort_by_key(|chunk| chunk.len());
        for (tag, (got, size)) in received.iter().zip(sizes).enumerate() {
            assert_eq!(got, &chunk(tag as u64, size));
        }
        assert_eq!(end.buffer.used(), 0);
    }
}

#[test]
fn a_small_chunk_needs_no_grant_and_arrives_after_half_a_round_trip() {
    let mut pair = Pair::new(1, path(100));
    pair.drive(Time::from_secs(1));
    pair.send(0, 1, chunk(1, 20_000));
    let sent = pair.now();
    assert!(pair.drive_until(Time::from_secs(2), |pair| !pair.net[1].received.is_empty()));
    assert!(
        pair.now().since(sent) < Duration::from_millis(85),
        "{:?}",
        pair.now().since(sent)
    );
}

#[test]
fn a_closed_window_stops_the_sender_and_room_lets_it_resume() {
    let mut pair = Pair::with(1, path(10), path(10), config(0), config(1), 1_000);
    pair.hold(1, true);
    for tag in 0..6 {
        pair.send(0, tag, chunk(tag, 512 << 10));
    }
    pair.drive(Time::from_secs(5));
    assert_eq!(
        pair.net[1].received.len(),
        2,
        "two chunks of 367 packets fit in 1000 packets"
    );
    assert!(pair.net[1].buffer.used() <= 1_000);
    assert_eq!(pair.net[0].hop.ready_for(), 0);
    assert!(pair.net[0].hop.stats().refusals_received > 0);
    let frames = pair.net[0].frames;
    pair.drive(Time::from_secs(10));
    assert!(
        pair.net[0].frames - frames < 20,
        "a refused sender is quiet"
    );

    let at = pair.now();
    pair.hold(1, false);
    assert!(pair.drive_until(
        at + Duration::from_secs(2),
        |pair| pair.net[0].delivered.len() == 6
    ));
    assert_eq!(pair.net[1].buffer.used(), 0);
}

#[test]
fn room_for_the_next_chunk_is_requested_ahead_without_a_pause() {
    let mut pair = Pair::new(1, path(50));
    for tag in 0..4 {
        pair.send(0, tag, chunk(tag, 1 << 20));
    }
    assert!(pair.drive_until(Time::from_secs(10), |pair| pair.net[0].delivered.len() == 4));
    // 4 MiB at 25 Mbit/s take 1.39 s with headers; start-up takes a few round trips.
    assert!(pair.now() < Time::from_millis(1_850), "{}", pair.now());
}

#[test]
fn after_an_outage_sending_resumes_within_a_probe_interval_and_a_round_trip() {
    for (rtt, seconds) in [(1, 1), (10, 5), (50, 2), (50, 30), (100, 1), (100, 10)] {
        let out = Outage::Once {
            start: Duration::from_millis(500),
            duration: Duration::from_millis(seconds * 1_000 + 33),
        };
        let to = Time::from_millis(500 + seconds * 1_000 + 33);
        let mut pair = Pair::new(
            1,
            LinkSpec {
                outages: vec![out],
                ..path(rtt)
            },
        );
        for tag in 0..(seconds + 10) * 4 {
            pair.send(0, tag, chunk(tag, 1 << 20));
        }
        pair.drive(to);
        assert_eq!(
            pair.net[0].events.last().map(|(_, event)| event),
            Some(&HopEvent::Unresponsive)
        );
        assert_eq!(pair.net[0].hop.ready_for(), 0);
        let before = pair.net[1].hop.stats().data_received;
        let limit = to + Duration::from_millis(85 + rtt);
        assert!(
            pair.drive_until(limit, |pair| pair.net[1].hop.stats().data_received > before),
            "rtt {rtt} ms: nothing arrived until {limit}"
        );
        assert!(
            pair.net[0]
                .events
                .iter()
                .any(|(_, event)| *event == HopEvent::Responsive)
        );
        // The remembered rate returns soon: a second carries nearly the capacity of the link.
        pair.drive(to + Duration::from_millis(1_200));
        let bits = (pair.net[1].hop.stats().data_received - before) * 1_432 * 8;
        assert!(
            bits > 16_000_000,
            "rtt {rtt} ms: {bits} bits in 1.2 s after the outage"
        );
    }
}

#[test]
fn a_restart_of_the_receiver_is_detected_and_its_lost_chunks_are_sent_again() {
    let mut pair = Pair::new(1, path(50));
    for tag in 0..6 {
        pair.send(0, tag, chunk(tag, 1 << 20));
    }
    pair.drive(Time::from_millis(900));
    let before = pair.net[0].delivered.len();
    assert!(before < 6);
    pair.restart(1);
    let at = pair.now();
    assert!(pair.drive_until(
        at + Duration::from_secs(5),
        |pair| pair.net[0].delivered.len() == 6
    ));
    let up = pair.net[0].events.iter().find(|(_, event)| {
        matches!(
            event,
            HopEvent::Up {
                restarted: true,
                ..
            }
        )
    });
    assert!(
        up.unwrap().0.since(at) <= Duration::from_millis(110),
        "two exchanges at most: {:?}",
        up
    );
}

#[test]
fn a_withdrawn_chunk_comes_back_whole_and_its_room_is_released() {
    let mut pair = Pair::new(1, path(50));
    for tag in 0..4 {
        pair.send(0, tag, chunk(tag, 1 << 20));
    }
    pair.drive(Time::from_millis(400));
    assert!(pair.net[1].buffer.used() > 0);
    let now = pair.now();
    let (head, body) = pair.at(0, |end, now| end.hop.withdraw(now, 1)).unwrap();
    assert_eq!([&head[..], &body[..]].concat(), chunk(1, 1 << 20));
    assert_eq!(pair.at(0, |end, now| end.hop.withdraw(now, 1)), None);
    assert_eq!(
        pair.at(0, |end, now| end.hop.withdraw_all(now))
            .iter()
            .map(|(tag, ..)| *tag)
            .collect::<Vec<_>>(),
        [0, 2, 3]
    );
    pair.drive(now + Duration::from_secs(1));
    assert_eq!(
        (
            pair.net[1].buffer.used(),
            pair.net[1].received.len(),
            pair.net[0].delivered.len()
        ),
        (0, 0, 0)
    );
    pair.send(0, 9, chunk(9, 1 << 20));
    assert!(
        pair.drive_until(now + Duration::from_secs(3), |pair| pair.net[0].delivered
            == [9])
    );
}

#[test]
fn a_smaller_mtu_splits_chunks_anew_without_duplicate_delivery() {
    let mut pair = Pair::new(1, path(20));
    for tag in 0..4 {
        pair.send(0, tag, chunk(tag, 1 << 20));
    }
    pair.drive(Time::from_millis(600));
    pair.set_mtu(0, 600);
    assert!(pair.drive_until(Time::from_secs(10), |pair| pair.net[0].delivered.len() == 4));
    pair.drive(Time::from_secs(12));
    assert_eq!(pair.net[1].received.len(), 4);
}

#[test]
fn reordering_is_learned_and_then_resends_are_rare() {
    let late = LinkSpec {
        reorder: reordering(0.3, Duration::from_millis(5)),
        ..path(50)
    };
    let mut pair = Pair::with(1, late, path(50), config(0), config(1), 1 << 20);
    for tag in 0..10 {
        pair.send(0, tag, chunk(tag, 1 << 20));
    }
    assert!(
        pair.drive_until(Time::from_secs(20), |pair| pair.net[0].delivered.len()
            == 10)
    );
    let stats = pair.net[0].hop.stats();
    assert!(stats.reordering_window > Duration::ZERO);
    assert!(
        stats.data_resent * 20 < stats.data_sent,
        "{} of {}",
        stats.data_resent,
        stats.data_sent
    );
}

#[test]
fn an_idle_hop_sends_little_and_notices_a_dead_neighbour() {
    let mut pair = Pair::new(1, path(10));
    pair.drive(Time::from_secs(60));
    assert!(pair.net[0].frames < 80, "{}", pair.net[0].frames);
    let start = pair.now();
    pair.cut(Duration::MAX);
    pair.drive(start + Duration::from_secs(4));
    for end in pair.ends() {
        assert_eq!(
            end.events.last().map(|(_, event)| event),
            Some(&HopEvent::Unresponsive)
        );
    }
    let frames = pair.net[0].frames;
    pair.drive(start + Duration::from_secs(604));
    let probes = pair.net[0].frames - frames;
    assert!(
        (1_000..2_000).contains(&probes),
        "{probes} probes in ten minutes: every 80 ms for a minute, later every second"
    );
}

/// If all round trips are equal, a timeout of exactly that time would expire with each answer.
#[test]
fn round_trips_that_do_not_vary_cause_no_timeouts() {
    let mut pair = Pair::new(1, path(10));
    pair.drive(Time::from_secs(600));
    for end in pair.ends() {
        assert_eq!(end.hop.stats().timeouts, 0, "{:?}", end.hop.stats());
    }
}
