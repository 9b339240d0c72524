//! A fetcher and a producer with a path between them, and what came of the fetch.

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{InterestRef, LpHeader, NackReason};
use whimbrel_transport::{
    BytesSource, FetchError, FetchEvent, FetchOptions, FetchStats, Fetcher, Producer,
    ProducerOptions,
};

use crate::support::{Pair, Path, Side, clock, digest, name, register};

pub(crate) type Fetch = Pair<Fetcher, Producer<BytesSource>>;

pub(crate) fn content(len: usize) -> Bytes {
    let mut rng = SeededRng::new(99);
    (0..len)
        .map(|_| rng.next_word() as u8)
        .collect::<Vec<u8>>()
        .into()
}

pub(crate) fn producer(text: &str, content: &Bytes, segment_size: usize) -> Producer<BytesSource> {
    Producer::segments(
        name(text),
        BytesSource::new(content.clone(), segment_size),
        digest(),
        ProducerOptions::new(clock(), Time::ZERO),
        register(),
        SeededRng::new(2),
    )
}

pub(crate) fn fetch(options: FetchOptions, content: &Bytes, path: Path, seed: u64) -> Fetch {
    let fetcher = Fetcher::new(name("/file"), options, SeededRng::new(seed), Time::ZERO);
    Pair::new(fetcher, producer("/file", content, 1000), path, seed)
}

pub(crate) fn is_over(pair: &Fetch) -> bool {
    pair.consumer().application().is_over()
        && matches!(
            pair.consumer_events.last(),
            Some((_, FetchEvent::Done(_) | FetchEvent::Failed { .. }))
        )
}

pub(crate) fn run(pair: &mut Fetch) {
    pair.run(Time::from_secs(600), is_over);
}

/// Returns the content, each segment at its offset, and how the fetch ended.
pub(crate) fn outcome(pair: &Fetch) -> (Vec<u8>, Result<FetchStats, FetchError>) {
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

pub(crate) fn succeeded(pair: &Fetch, content: &Bytes) -> FetchStats {
    let (whole, end) = outcome(pair);
    let stats = end.expect("fetched");
    assert!(whole == content[..], "other bytes");
    assert_eq!(stats.bytes, content.len() as u64);
    stats
}

pub(crate) fn failed(pair: &Fetch) -> FetchError {
    outcome(pair).1.expect_err("it should fail")
}

pub(crate) fn number_of(interest: &InterestRef<'_>) -> u64 {
    let last = interest.name.last().expect("a component");
    last.number_of(whimbrel_ndn_packet::types::SEGMENT)
        .expect("a segment")
}

/// Has `answer` answer Interests in place of the producer; `None` is silence.
pub(crate) fn answer(
    pair: &mut Fetch,
    mut answer: impl FnMut(&InterestRef<'_>) -> Option<Vec<u8>> + 'static,
) {
    // Answers wait here for the producer's next frame and take its place.
    let mut pending: Vec<Vec<u8>> = Vec::new();
    pair.set_tamper(Box::new(move |_, to, frame| {
        if to == Side::Consumer {
            return std::mem::take(&mut pending);
        }
        let interest = InterestRef::decode(&frame).expect("an Interest");
        pending.extend(answer(&interest));
        // The producer always answers, if only with a Nack: `pending` replaces what it says.
        vec![frame]
    }));
}

pub(crate) fn nack(interest: &InterestRef<'_>, reason: NackReason) -> Vec<u8> {
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
