//! Answers that are no content: silence, Nacks, refusals, and Data that is not to be trusted.

use core::cell::Cell;
use core::time::Duration;
use std::rc::Rc;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::{
    Component, ContentType, Data, DataRef, DigestSigner, InterestRef, NackReason,
};
use whimbrel_transport::fetch::SegmentFailure;
use whimbrel_transport::{Discovery, FetchError, FetchOptions, Verify};

use super::setup::{
    Fetch, answer, content, failed, fetch, is_over, nack, number_of, outcome, run, succeeded,
};
use crate::support::{Path, Side, name};

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

/// Has Interests answered with a Nack while `refused` says so of the time; counts those.
fn refuse(
    pair: &mut Fetch,
    reason: NackReason,
    refused: impl Fn(Time) -> bool + 'static,
) -> Rc<Cell<u32>> {
    let count = Rc::new(Cell::new(0));
    let (counted, mut back) = (count.clone(), Vec::new());
    pair.set_tamper(Box::new(move |now, to, frame| {
        if to == Side::Consumer {
            // The producer answers everything: the Nack takes the place of its next frame.
            let nacks: Vec<Vec<u8>> = std::mem::take(&mut back);
            return if nacks.is_empty() { vec![frame] } else { nacks };
        }
        if refused(now) {
            let interest = InterestRef::decode(&frame).expect("an Interest");
            back.push(nack(&interest, reason));
            counted.set(counted.get() + 1);
        }
        vec![frame]
    }));
    count
}

/// A path of 400 to 600 ms.
fn far() -> Path {
    Path {
        delay: (Duration::from_millis(200), Duration::from_millis(300)),
        ..Path::clean()
    }
}

#[test]
fn a_route_that_is_missing_for_seconds_is_waited_for_with_few_interests() {
    let content = content(300_000);
    for gone_from in [0, 1] {
        let options = FetchOptions {
            no_route_patience: Duration::from_secs(10),
            ..FetchOptions::default()
        };
        let mut pair = fetch(options, &content, far(), 1);
        let gone = Time::from_secs(gone_from)..Time::from_secs(gone_from + 6);
        let refused = refuse(&mut pair, NackReason::NoRoute, move |now| {
            gone.contains(&now)
        });
        run(&mut pair);
        succeeded(&pair, &content);
        assert!((3..200).contains(&refused.get()), "{refused:?}");
    }
}

#[test]
fn a_route_that_stays_away_ends_it_after_the_given_time_and_is_the_reason() {
    let content = content(300_000);
    for (reason, from) in [
        (NackReason::NoRoute, 0),
        (NackReason::NoRoute, 2),
        (NackReason::Congestion, 2),
    ] {
        let options = FetchOptions {
            no_route_patience: Duration::from_secs(10),
            ..FetchOptions::default()
        };
        let mut pair = fetch(options, &content, far(), 1);
        let from = Time::from_secs(from);
        let refused = refuse(&mut pair, reason, move |now| now >= from);
        pair.run(from + Duration::from_secs(9), is_over);
        assert!(!is_over(&pair), "{reason:?} from {from:?}");
        assert_eq!(pair.consumer().application().refusal(), Some(reason));
        run(&mut pair);
        let error = failed(&pair).to_string();
        let text = if reason == NackReason::NoRoute {
            "NoRoute"
        } else {
            "Congestion"
        };
        assert!(error.contains(text), "{error}");
        assert!(refused.get() < 2_000, "{refused:?}");
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

/// Flips a bit in the content of one Data in `every`; its outer structure stays sound.
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
