//! FinalBlockId: late, moving, missing or wrong.

use bytes::Bytes;
use whimbrel_ndn_packet::{Component, Data, DigestSigner, NackReason};
use whimbrel_transport::{Discovery, FetchError, FetchOptions};

use super::setup::{answer, failed, fetch, nack, number_of, outcome, run, succeeded};
use crate::support::{Path, name};

#[test]
fn nacks_beyond_the_end_do_not_matter_once_the_end_is_known() {
    // Some producers put FinalBlockId into the last segment only.
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
