//! Versions: how the newest is found, and what a fetch says if there is none.

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{Data, DigestSigner, NackReason};
use whimbrel_transport::serve::SegmentResponder;
use whimbrel_transport::{
    BytesSource, Discovery, FetchError, FetchEvent, FetchOptions, Fetcher, ProducerOptions,
};

use super::setup::{answer, content, failed, fetch, nack, producer, run, succeeded};
use crate::support::{Pair, Path, clock, digest, name};

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
