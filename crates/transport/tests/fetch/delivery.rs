//! Content as the program gets it: whole, in the order it asked for, and within bounds.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{Component, Data, DigestSigner, InterestRef, LpPacket};
use whimbrel_transport::serve::SegmentResponder;
use whimbrel_transport::{
    BytesSource, Delivery, Discovery, FaceNumber, FetchError, FetchEvent, FetchOptions, Fetcher,
    ProducerOptions, Verify, WindowKind, WindowOptions,
};

use super::setup::{answer, content, failed, fetch, number_of, outcome, run, succeeded};
use crate::support::{Path, clock, digest, name};

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
