//! Congestion windows: losses, Nacks and marks, and the log of them.

use std::time::Duration;

use whimbrel_core::Time;
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{InterestRef, LpHeader, LpPacket, NackReason};
use whimbrel_transport::{FetchEvent, FetchOptions, ModelOptions, WindowKind, WindowOptions};

use super::setup::{content, fetch, nack, run, succeeded};
use crate::support::{Path, Side};

#[test]
fn every_window_fetches_over_a_path_that_loses_reorders_and_duplicates() {
    let content = content(150_000);
    for kind in [WindowKind::Fixed(8), WindowKind::AIMD, WindowKind::CUBIC] {
        for seed in 1..4 {
            let options = FetchOptions {
                window: WindowOptions {
                    kind,
                    ..WindowOptions::default()
                },
                lifetime: Duration::from_millis(500),
                ..FetchOptions::default()
            };
            let mut pair = fetch(options, &content, Path::lossy(0.1), seed);
            run(&mut pair);
            let stats = succeeded(&pair, &content);
            assert!(
                stats.retransmissions > 0 && stats.timeouts > 0,
                "{kind:?} {stats:?}"
            );
            let fixed = matches!(kind, WindowKind::Fixed(_));
            assert_eq!(stats.loss_decreases == 0, fixed, "{kind:?}");
        }
    }
}

#[test]
fn nacks_for_congestion_and_duplicates_are_not_the_end() {
    let content = content(30_000);
    for reason in [NackReason::Congestion, NackReason::Duplicate] {
        for kind in [WindowKind::Fixed(4), WindowKind::AIMD, WindowKind::CUBIC] {
            let options = FetchOptions {
                window: WindowOptions {
                    kind,
                    ..WindowOptions::default()
                },
                ..FetchOptions::default()
            };
            let mut pair = fetch(options, &content, Path::clean(), 1);
            let mut count = 0;
            let mut back = Vec::new();
            pair.set_tamper(Box::new(move |_, to, frame| {
                if to == Side::Consumer {
                    return std::iter::once(frame).chain(back.drain(..)).collect();
                }
                count += 1;
                if count % 5 == 0 {
                    back.push(nack(
                        &InterestRef::decode(&frame).expect("an Interest"),
                        reason,
                    ));
                    return Vec::new();
                }
                vec![frame]
            }));
            run(&mut pair);
            let stats = succeeded(&pair, &content);
            assert!(
                stats.nacks > 0 && stats.retransmissions > 0,
                "{reason:?} {kind:?} {stats:?}"
            );
        }
    }
}

/// Marks all Data as from a full queue.
fn mark_data(_: Time, to: Side, frame: Vec<u8>) -> Vec<Vec<u8>> {
    if to == Side::Producer {
        return vec![frame];
    }
    let packet = LpPacket::decode(&frame, false).expect("a packet");
    let header = LpHeader {
        congestion_mark: Some(1),
        ..packet.to_header()
    };
    let mut out = Vec::new();
    lp::encode(&mut out, &LinkFields::default(), &header, packet.fragment);
    vec![out]
}

/// The window falls below 1: the path waits between Interests, and goes on.
#[test]
fn a_single_path_with_a_window_below_one_goes_on() {
    let content = content(60_000);
    let options = FetchOptions {
        once_per_round_trip: false,
        window: WindowOptions {
            kind: WindowKind::Model(ModelOptions {
                backlog: 0.0,
                ..ModelOptions::default()
            }),
            ..WindowOptions::default()
        },
        log_window: true,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    pair.set_tamper(Box::new(mark_data));
    run(&mut pair);
    succeeded(&pair, &content);
    let windows = pair.consumer_events.iter().map(|(_, event)| match event {
        FetchEvent::Window { size, .. } => *size,
        _ => f64::INFINITY,
    });
    let least = windows.fold(f64::INFINITY, f64::min);
    assert!(least < 1.0, "{least}");
}

#[test]
fn congestion_marks_shrink_the_window_at_most_once_in_a_round_trip() {
    let content = content(400_000);
    let run_with = |ignore_marks, once_per_round_trip| {
        let window = WindowOptions {
            delay_exit: false,
            threshold: 16.0,
            ..WindowOptions::default()
        };
        let options = FetchOptions {
            ignore_marks,
            once_per_round_trip,
            window,
            ..FetchOptions::default()
        };
        let mut pair = fetch(options, &content, Path::clean(), 1);
        pair.set_tamper(Box::new(mark_data));
        run(&mut pair);
        succeeded(&pair, &content)
    };
    let (ignored, careful, eager) = (
        run_with(true, true),
        run_with(false, true),
        run_with(false, false),
    );
    assert_eq!((ignored.marks, ignored.mark_decreases), (400, 0));
    assert_eq!(careful.retransmissions, 0, "marks are no losses");
    assert!(
        careful.mark_decreases > 10 && careful.mark_decreases < 300,
        "{careful:?}"
    );
    assert_eq!(eager.mark_decreases, 400);
}

#[test]
fn logs_tell_every_window_and_round_trip_and_progress_is_bounded() {
    let content = content(100_000);
    let options = FetchOptions {
        log_window: true,
        log_rtt: true,
        progress_interval: Duration::from_millis(20),
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    run(&mut pair);
    succeeded(&pair, &content);
    let count = |wanted: fn(&FetchEvent) -> bool| {
        pair.consumer_events
            .iter()
            .filter(|(_, event)| wanted(event))
            .count()
    };
    assert_eq!(
        count(|event| matches!(event, FetchEvent::Window { .. })),
        100
    );
    assert_eq!(
        count(
            |event| matches!(event, FetchEvent::Rtt { rtt, .. } if *rtt == 10 * Duration::from_millis(1))
        ),
        100
    );
    let progress = count(|event| matches!(event, FetchEvent::Progress(_))) as u128;
    assert!(
        (1..=1 + pair.now().since(Time::ZERO).as_millis() / 20).contains(&progress),
        "{progress}"
    );
}
