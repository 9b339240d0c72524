//! A fetcher and a producer over paths of all kinds.

mod support;

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use support::{Pair, Path, Side, clock, digest, name, register};
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{
    Component, ContentType, Data, DataRef, DigestSigner, InterestRef, LpHeader, LpPacket,
    NackReason,
};
use whimbrel_transport::fetch::SegmentFailure;
use whimbrel_transport::serve::SegmentResponder;
use whimbrel_transport::{
    BytesSource, Delivery, Discovery, FaceNumber, FetchError, FetchEvent, FetchOptions, FetchStats,
    Fetcher, Producer, ProducerOptions, Verify, WindowKind, WindowOptions,
};

type Fetch = Pair<Fetcher, Producer<BytesSource>>;

fn content(len: usize) -> Bytes {
    let mut rng = SeededRng::new(99);
    (0..len)
        .map(|_| rng.next_word() as u8)
        .collect::<Vec<u8>>()
        .into()
}

fn producer(text: &str, content: &Bytes, segment_size: usize) -> Producer<BytesSource> {
    Producer::segments(
        name(text),
        BytesSource::new(content.clone(), segment_size),
        digest(),
        ProducerOptions::new(clock(), Time::ZERO),
        register(),
        SeededRng::new(2),
    )
}

fn fetch(options: FetchOptions, content: &Bytes, path: Path, seed: u64) -> Fetch {
    let fetcher = Fetcher::new(name("/file"), options, SeededRng::new(seed), Time::ZERO);
    Pair::new(fetcher, producer("/file", content, 1000), path, seed)
}

fn is_over(pair: &Fetch) -> bool {
    pair.consumer().application().is_over()
        && matches!(
            pair.consumer_events.last(),
            Some((_, FetchEvent::Done(_) | FetchEvent::Failed { .. }))
        )
}

fn run(pair: &mut Fetch) {
    pair.run(Time::from_secs(600), is_over);
}

/// What was put together from the segments, each at its offset, and how it ended.
fn outcome(pair: &Fetch) -> (Vec<u8>, Result<FetchStats, FetchError>) {
    let mut whole = Vec::new();
    for (_, event) in &pair.consumer_events {
        match event {
            FetchEvent::Segment {
                offset, content, ..
            } => {
                let end = *offset as usize + content.len();
                if whole.len() < end {
                    whole.resize(end, 0);
                }
                whole[*offset as usize..end].copy_from_slice(content);
            }
            FetchEvent::Done(stats) => return (whole, Ok(stats.clone())),
            FetchEvent::Failed { error, .. } => return (whole, Err(error.clone())),
            _ => {}
        }
    }
    panic!("it has not ended");
}

fn succeeded(pair: &Fetch, content: &Bytes) -> FetchStats {
    let (whole, end) = outcome(pair);
    let stats = end.expect("fetched");
    assert!(whole == content[..], "other bytes");
    assert_eq!(stats.bytes, content.len() as u64);
    stats
}

fn failed(pair: &Fetch) -> FetchError {
    outcome(pair).1.expect_err("it should fail")
}

#[test]
fn the_newest_version_is_found_and_all_segments_come_in_order() {
    let content = content(123_456);
    let mut pair = fetch(FetchOptions::default(), &content, Path::clean(), 1);
    run(&mut pair);
    let stats = succeeded(&pair, &content);
    assert_eq!((stats.segments, stats.total_segments), (124, Some(124)));
    assert_eq!(
        (stats.timeouts, stats.retransmissions, stats.duplicates),
        (0, 0, 0)
    );
    let versioned = pair
        .producer()
        .application()
        .responder()
        .versioned_name()
        .clone();
    assert_eq!(
        pair.consumer_events[0].1,
        FetchEvent::Started { name: versioned }
    );
    let mut expected = 0;
    for (_, event) in &pair.consumer_events {
        if let FetchEvent::Segment { number, offset, .. } = event {
            assert_eq!((*number, *offset), (expected, expected * 1000));
            expected += 1;
        }
    }
    assert_eq!(
        pair.registered.lock().unwrap()[..],
        [(String::from("register"), name("/file"))]
    );
}

#[test]
fn empty_content_is_one_empty_segment() {
    let mut pair = fetch(FetchOptions::default(), &Bytes::new(), Path::clean(), 1);
    run(&mut pair);
    assert_eq!(succeeded(&pair, &Bytes::new()).segments, 1);
}

#[test]
fn packets_share_transmits_on_a_stream() {
    let content = content(200_000);
    let path = Path {
        stream: true,
        ..Path::clean()
    };
    let mut pair = fetch(FetchOptions::default(), &content, path, 1);
    run(&mut pair);
    succeeded(&pair, &content);
}

#[test]
fn a_versioned_name_needs_no_discovery() {
    let content = content(5_000);
    let fetcher = Fetcher::new(
        name("/file/v=3"),
        FetchOptions::default(),
        SeededRng::new(1),
        Time::ZERO,
    );
    let mut pair = Pair::new(
        fetcher,
        producer("/file/v=3", &content, 1000),
        Path::clean(),
        1,
    );
    run(&mut pair);
    assert_eq!(succeeded(&pair, &content).interests, 5);
}

#[test]
fn discovery_by_prefix_takes_the_first_segment_from_the_answer() {
    let content = content(5_000);
    let options = FetchOptions {
        discovery: Discovery::Prefix,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    run(&mut pair);
    let stats = succeeded(&pair, &content);
    assert_eq!(
        (stats.interests, stats.segments),
        (4, 5),
        "segment 0 came with discovery"
    );
}

#[test]
fn a_data_that_is_no_segment_is_all_of_the_content() {
    let options = FetchOptions {
        discovery: Discovery::Prefix,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &Bytes::new(), Path::clean(), 1);
    answer(&mut pair, |_| {
        Some(Data::new(name("/file/note"), &b"whole"[..]).encode(&DigestSigner))
    });
    run(&mut pair);
    succeeded(&pair, &Bytes::from_static(b"whole"));
}

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
fn segments_given_as_they_come_have_their_offsets() {
    let content = content(99_999);
    let options = FetchOptions {
        delivery: Delivery::AsTheyCome,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::lossy(0.05), 3);
    run(&mut pair);
    succeeded(&pair, &content);
    let numbers: Vec<u64> = pair
        .consumer_events
        .iter()
        .filter_map(|(_, event)| match event {
            FetchEvent::Segment { number, .. } => Some(*number),
            _ => None,
        })
        .collect();
    assert!(!numbers.is_sorted(), "they should have come out of order");
    assert_eq!(numbers.len(), 100);
}

#[test]
fn segments_of_different_sizes_must_be_taken_in_order() {
    let segment = |number: u64| {
        let data = Data {
            final_block_id: Some(Component::segment(5)),
            ..Data::new(
                name("/file").child(Component::segment(number).as_ref()),
                vec![1; 10 + number as usize],
            )
        };
        Some(data.encode(&DigestSigner))
    };
    for delivery in [Delivery::AsTheyCome, Delivery::InOrder] {
        let options = FetchOptions {
            discovery: Discovery::None,
            delivery,
            ..FetchOptions::default()
        };
        let mut pair = fetch(options, &Bytes::new(), Path::clean(), 1);
        answer(&mut pair, move |interest| segment(number_of(interest)));
        run(&mut pair);
        match delivery {
            Delivery::InOrder => {
                assert_eq!(succeeded(&pair, &Bytes::from(vec![1; 75])).segments, 6)
            }
            Delivery::AsTheyCome => {
                assert!(matches!(failed(&pair), FetchError::UnevenSegments { .. }))
            }
        }
    }
}

fn number_of(interest: &InterestRef<'_>) -> u64 {
    let last = interest.name.last().expect("a component");
    last.number_of(whimbrel_ndn_packet::types::SEGMENT)
        .expect("a segment")
}

/// Answers Interests in place of the producer; `None` is silence.
fn answer(pair: &mut Fetch, mut answer: impl FnMut(&InterestRef<'_>) -> Option<Vec<u8>> + 'static) {
    // Answers come back where Interests would go on.
    let mut pending: Vec<Vec<u8>> = Vec::new();
    pair.set_tamper(Box::new(move |_, to, frame| {
        if to == Side::Consumer {
            return std::mem::take(&mut pending);
        }
        let interest = InterestRef::decode(&frame).expect("an Interest");
        pending.extend(answer(&interest));
        // The producer answers everything, if only with a Nack: what it says is replaced.
        vec![frame]
    }));
}

fn nack(interest: &InterestRef<'_>, reason: NackReason) -> Vec<u8> {
    let mut out = Vec::new();
    let header = LpHeader {
        nack: Some(reason),
        ..LpHeader::default()
    };
    lp::encode(
        &mut out,
        &LinkFields::default(),
        &header,
        Some(interest.wire),
    );
    out
}

#[test]
fn silence_fails_after_the_retries_and_says_which_segment() {
    let content = content(10_000);
    let options = FetchOptions {
        retries: Some(3),
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    pair.set_tamper(Box::new(|_, to, frame| {
        let lost = to == Side::Producer
            && InterestRef::decode(&frame).is_ok_and(|interest| {
                interest.name.last().and_then(|last| last.number_of(0x32)) == Some(6)
            });
        if lost { Vec::new() } else { vec![frame] }
    }));
    run(&mut pair);
    let (whole, end) = outcome(&pair);
    assert_eq!(&whole[..], &content[..6000], "what came before is good");
    match end.unwrap_err() {
        FetchError::Segment {
            segment: 6,
            failure: SegmentFailure::NoAnswer(3),
            ..
        } => {}
        other => panic!("{other}"),
    }
}

#[test]
fn a_name_that_nobody_serves_fails_with_what_the_network_said() {
    let mut pair = fetch(FetchOptions::default(), &Bytes::new(), Path::clean(), 1);
    answer(&mut pair, |interest| {
        Some(nack(interest, NackReason::NoRoute))
    });
    run(&mut pair);
    let error = failed(&pair);
    assert!(matches!(error, FetchError::Discovery { .. }));
    assert!(error.to_string().contains("NoRoute"), "{error}");
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

#[test]
fn other_nacks_for_a_segment_of_the_content_end_it() {
    let options = FetchOptions {
        discovery: Discovery::None,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &Bytes::new(), Path::clean(), 1);
    answer(&mut pair, |interest| match number_of(interest) {
        number @ 0..3 => {
            let data = Data {
                final_block_id: Some(Component::segment(9)),
                ..Data::new(
                    name("/file").child(Component::segment(number).as_ref()),
                    &b"x"[..],
                )
            };
            Some(data.encode(&DigestSigner))
        }
        _ => Some(nack(interest, NackReason::NoRoute)),
    });
    run(&mut pair);
    assert!(matches!(
        failed(&pair),
        FetchError::Segment {
            segment: 3,
            failure: SegmentFailure::Nack(NackReason::NoRoute),
            ..
        }
    ));
}

#[test]
fn nacks_beyond_the_end_do_not_matter_once_the_end_is_known() {
    // Only the last segment has FinalBlockId, as some producers do.
    let options = FetchOptions {
        discovery: Discovery::None,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &Bytes::new(), Path::lossy(0.0), 1);
    answer(&mut pair, |interest| match number_of(interest) {
        number @ 0..=9 => {
            let data = Data {
                final_block_id: (number == 9).then(|| Component::segment(9)),
                ..Data::new(
                    name("/file").child(Component::segment(number).as_ref()),
                    &b"x"[..],
                )
            };
            Some(data.encode(&DigestSigner))
        }
        _ => Some(nack(interest, NackReason::None)),
    });
    run(&mut pair);
    assert_eq!(
        succeeded(&pair, &Bytes::from_static(b"xxxxxxxxxx")).total_segments,
        Some(10)
    );
}

#[test]
fn content_without_a_last_segment_fails_and_says_so() {
    let options = FetchOptions {
        discovery: Discovery::None,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &Bytes::new(), Path::clean(), 1);
    answer(&mut pair, |interest| match number_of(interest) {
        number @ 0..5 => Some(
            Data::new(
                name("/file").child(Component::segment(number).as_ref()),
                &b"x"[..],
            )
            .encode(&DigestSigner),
        ),
        _ => Some(nack(interest, NackReason::None)),
    });
    run(&mut pair);
    assert!(matches!(
        failed(&pair),
        FetchError::NoFinalBlock { segment: 5, .. }
    ));
    assert_eq!(outcome(&pair).0, b"xxxxx");
}

#[test]
fn the_last_segment_may_move_as_the_producer_learns_it() {
    let options = FetchOptions {
        discovery: Discovery::None,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &Bytes::new(), Path::clean(), 1);
    answer(&mut pair, |interest| {
        let number = number_of(interest);
        let last = [4, 4, 4, 4, 11, 11, 11, 11, 11, 11, 11, 11].get(number as usize)?;
        let data = Data {
            final_block_id: Some(Component::segment(*last)),
            ..Data::new(
                name("/file").child(Component::segment(number).as_ref()),
                vec![number as u8],
            )
        };
        Some(data.encode(&DigestSigner))
    });
    run(&mut pair);
    succeeded(&pair, &Bytes::from_iter(0..12u8));
}

#[test]
fn a_last_segment_before_one_that_exists_is_an_error() {
    let options = FetchOptions {
        discovery: Discovery::None,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &Bytes::new(), Path::clean(), 1);
    answer(&mut pair, |interest| {
        let number = number_of(interest);
        let data = Data {
            final_block_id: (number == 7).then(|| Component::segment(3)),
            ..Data::new(
                name("/file").child(Component::segment(number).as_ref()),
                &b"x"[..],
            )
        };
        Some(data.encode(&DigestSigner))
    });
    run(&mut pair);
    assert!(matches!(
        failed(&pair),
        FetchError::FinalBlock {
            said_by: 7,
            last: 3,
            ..
        }
    ));
}

#[test]
fn a_last_segment_of_the_greatest_number_takes_no_memory() {
    let options = FetchOptions {
        discovery: Discovery::None,
        max_segments: 100,
        retries: Some(0),
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &Bytes::new(), Path::clean(), 1);
    answer(&mut pair, |interest| {
        let number = number_of(interest);
        let data = Data {
            final_block_id: Some(Component::segment(u64::MAX)),
            ..Data::new(
                name("/file").child(Component::segment(number).as_ref()),
                &b"x"[..],
            )
        };
        (number < 1000).then(|| data.encode(&DigestSigner))
    });
    run(&mut pair);
    let error = failed(&pair);
    assert!(
        matches!(error, FetchError::Segment { segment: 1000, .. }),
        "{error:?}"
    );
}

#[test]
fn a_producer_that_went_over_to_another_version_is_named() {
    let content = content(50_000);
    let options = FetchOptions {
        retries: Some(1),
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    pair.run(Time::from_secs(600), |pair| pair.consumer_events.len() > 10);
    let newer = SegmentResponder::new(
        name("/file/v=1800000000000000"),
        BytesSource::new(content.clone(), 1000),
        digest(),
        ProducerOptions::new(clock(), Time::ZERO),
    );
    pair.with_producer(|producer| *producer.responder_mut() = newer);
    run(&mut pair);
    match failed(&pair) {
        FetchError::OtherVersion { now, .. } => assert_eq!(now, name("/file/v=1800000000000000")),
        other => panic!("{other}"),
    }
}

#[test]
fn an_answer_to_discovery_that_names_no_version_is_an_error() {
    for (asked, content) in [
        ("/file/32=metadata/v=1/seg=0", &b""[..]),
        ("/file/32=metadata/v=1/seg=0", b"\x07\x06\x08\x04file"),
        ("/file/32=metadata/v=1", b"\x07\x09\x08\x04file\x36\x01\x01"),
        ("/file/32=metadata/v=1/seg=0", b"\x07\x99"),
    ] {
        let mut pair = fetch(FetchOptions::default(), &Bytes::new(), Path::clean(), 1);
        answer(&mut pair, move |_| {
            Some(Data::new(name(asked), content).encode(&DigestSigner))
        });
        run(&mut pair);
        assert!(
            matches!(failed(&pair), FetchError::Metadata { .. }),
            "{asked}"
        );
    }
}

#[test]
fn the_producers_own_refusal_is_an_error() {
    let options = FetchOptions {
        discovery: Discovery::None,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &Bytes::new(), Path::clean(), 1);
    answer(&mut pair, |interest| {
        let data = Data {
            content_type: ContentType::Nack,
            ..Data::new(interest.name.to_name(), Bytes::new())
        };
        Some(data.encode(&DigestSigner))
    });
    run(&mut pair);
    assert!(matches!(
        failed(&pair),
        FetchError::Refused { segment: 0, .. }
    ));
}

/// Flips a bit in the content of every third Data, where the outer shape stays as it is.
fn corrupting(pair: &mut Fetch, every: usize) {
    let mut count = 0;
    pair.set_tamper(Box::new(move |_, to, mut frame| {
        if to == Side::Consumer {
            count += 1;
            let middle = frame.len() / 2;
            if count % every == 0
                && DataRef::decode(&frame).is_ok_and(|data| data.content.len() > 500)
            {
                frame[middle] ^= 1;
            }
        }
        vec![frame]
    }));
}

#[test]
fn data_with_a_wrong_digest_is_asked_for_again() {
    let content = content(50_000);
    let options = FetchOptions {
        verify: Verify::Digest,
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    corrupting(&mut pair, 3);
    run(&mut pair);
    assert!(succeeded(&pair, &content).rejected > 5);
}

#[test]
fn data_that_never_passes_verification_fails_with_the_reason() {
    let content = content(5_000);
    let refuse = |data: &DataRef<'_>| match data.name.last().and_then(|last| last.number_of(0x32)) {
        Some(2) => Err(String::from("not by whom it should be")),
        _ => Ok(()),
    };
    let options = FetchOptions {
        verify: Verify::With(Box::new(refuse)),
        retries: Some(2),
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    run(&mut pair);
    let error = failed(&pair);
    assert!(matches!(
        error,
        FetchError::Segment {
            segment: 2,
            failure: SegmentFailure::Refused(_),
            ..
        }
    ));
    assert!(
        error.to_string().contains("not by whom it should be"),
        "{error}"
    );
}

#[test]
fn a_face_that_goes_and_comes_again_costs_no_retry() {
    let content = content(300_000);
    let options = FetchOptions {
        retries: Some(0),
        ..FetchOptions::default()
    };
    let mut pair = fetch(options, &content, Path::clean(), 1);
    for after in [40, 200, 600] {
        pair.run(Time::from_secs(600), |pair| {
            pair.consumer_events.len() > after / 4
        });
        pair.face(Side::Consumer, false);
        pair.run(pair.now() + Duration::from_secs(20), |_| false);
        pair.face(Side::Consumer, true);
    }
    run(&mut pair);
    let stats = succeeded(&pair, &content);
    assert_eq!(stats.timeouts, 0);
}

#[test]
fn a_producer_registers_again_when_its_face_comes_again() {
    let content = content(5_000);
    let mut pair = fetch(FetchOptions::default(), &content, Path::clean(), 1);
    run(&mut pair);
    pair.face(Side::Producer, false);
    pair.face(Side::Producer, true);
    pair.run(pair.now() + Duration::from_secs(1), |_| false);
    assert_eq!(pair.registered.lock().unwrap().len(), 2);
    assert!(pair.producer().application().is_registered());
}

#[test]
fn nothing_is_sent_while_the_port_is_blocked() {
    let content = content(20_000);
    let mut pair = fetch(FetchOptions::default(), &content, Path::clean(), 1);
    pair.run(Time::from_secs(1), |pair| !pair.consumer_events.is_empty());
    pair.block(Side::Consumer, true);
    let sent = pair.consumer().counters().out_packets;
    pair.run(pair.now() + Duration::from_secs(5), |_| false);
    assert_eq!(pair.consumer().counters().out_packets, sent);
    pair.block(Side::Consumer, false);
    run(&mut pair);
    succeeded(&pair, &content);
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
        pair.set_tamper(Box::new(|_, to, frame| {
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
        }));
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

#[test]
fn hostile_data_is_counted_and_changes_nothing() {
    let content = content(50_000);
    let mut pair = fetch(FetchOptions::default(), &content, Path::clean(), 1);
    let mut rng = SeededRng::new(5);
    pair.set_tamper(Box::new(move |_, to, frame| {
        let mut frames = vec![frame];
        if to == Side::Consumer {
            let versioned = "/file/v=1700000000000000";
            for bad in ["/other/seg=1", "/file", "/file/seg=3", "/file/32=metadata"] {
                frames.push(Data::new(name(bad), vec![7; 100]).encode(&DigestSigner));
            }
            let far = Component::segment(rng.next_word());
            frames.push(
                Data::new(name(versioned).child(far.as_ref()), vec![7; 8000]).encode(&DigestSigner),
            );
            let long = name(versioned).child(whimbrel_ndn_packet::ComponentRef::new(0x32, &[0, 1]));
            frames.push(Data::new(long, vec![7; 1000]).encode(&DigestSigner));
            frames.push(vec![0x06, 0xfd]);
            frames.push((0..50).map(|_| rng.next_word() as u8).collect());
        }
        frames
    }));
    run(&mut pair);
    let stats = succeeded(&pair, &content);
    assert!(stats.unexpected > 100 && stats.duplicates > 10, "{stats:?}");
    assert!(pair.consumer().counters().dropped_malformed > 10);
}

#[test]
fn what_the_program_does_not_take_is_bounded() {
    use whimbrel_transport::Application;
    let content = content(200_000);
    let options = FetchOptions {
        max_segments: 30,
        max_bytes: 20_000,
        ..FetchOptions::default()
    };
    let mut fetcher = Fetcher::new(name("/file"), options, SeededRng::new(1), Time::ZERO);
    let mut source = SegmentResponder::new(
        name("/file"),
        BytesSource::new(content.clone(), 1000),
        digest(),
        ProducerOptions::new(clock(), Time::ZERO),
    );
    let mut now = Time::ZERO;
    fetcher.handle_face(now, FaceNumber::FIRST, true);
    let mut exchange = |fetcher: &mut Fetcher| {
        let mut interests = 0;
        while let Some((interest, _)) = fetcher.poll_packet(now, FaceNumber::FIRST) {
            use whimbrel_transport::{Answer, Responder};
            interests += 1;
            let interest = InterestRef::decode(&interest).expect("an Interest");
            let Answer::Data(data) = source.respond(now, &interest) else {
                panic!("an answer")
            };
            now += Duration::from_millis(1);
            fetcher.handle_packet(
                now,
                FaceNumber::FIRST,
                &LpPacket::decode(&data, false).expect("a packet"),
            );
        }
        interests
    };
    exchange(&mut fetcher);
    let received = fetcher.stats().segments;
    assert!(
        (15..=21).contains(&received),
        "{received} segments of 1,000 bytes for a bound of 20,000"
    );
    assert_eq!(exchange(&mut fetcher), 0);
    let mut whole = Vec::new();
    loop {
        while let Some(event) = fetcher.poll_event() {
            match event {
                FetchEvent::Segment { content, .. } => whole.extend_from_slice(&content),
                FetchEvent::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        if fetcher.is_over() {
            break;
        }
        assert!(exchange(&mut fetcher) > 0, "taking events makes room");
    }
    assert!(whole == content[..]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_bytes_are_equal_or_an_error_is_told(
        seed: u64,
        len in 0usize..40_000,
        loss in 0.0f64..0.6,
        duplicate in 0.0f64..0.5,
        spread in 0u64..60,
        kind in prop_oneof![
            (1u32..20).prop_map(WindowKind::Fixed), Just(WindowKind::AIMD), Just(WindowKind::CUBIC),
            Just(WindowKind::Cubic { beta: 0.5, fast_convergence: true }),
            Just(WindowKind::Aimd { step: 2.0, decrease: 0.7, reset_to_initial: true }),
        ],
        delivery in prop_oneof![Just(Delivery::InOrder), Just(Delivery::AsTheyCome)],
        discovery in prop_oneof![Just(Discovery::Metadata), Just(Discovery::Prefix)],
        digest_only: bool,
        once_per_round_trip: bool,
        stream: bool,
        retries in 0u32..20,
    ) {
        let content = content(len);
        let path = Path {
            loss, duplicate, stream,
            delay: (Duration::from_millis(1), Duration::from_millis(1 + spread)),
        };
        let options = FetchOptions {
            window: WindowOptions { kind, ..WindowOptions::default() },
            delivery, discovery, once_per_round_trip,
            retries: Some(retries),
            lifetime: Duration::from_millis(300),
            verify: if digest_only { Verify::Digest } else { Verify::None },
            ..FetchOptions::default()
        };
        let mut pair = fetch(options, &content, path, seed);
        run(&mut pair);
        let (whole, end) = outcome(&pair);
        match end {
            Ok(_) => prop_assert!(whole == content[..]),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        if loss == 0.0 {
            prop_assert!(outcome(&pair).1.is_ok());
        }
    }
}
