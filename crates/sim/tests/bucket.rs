//! The bucket of a link's rate limiter.
#![allow(
    clippy::unwrap_used,
    reason = "a test that finds nothing to unwrap has failed"
)]

use core::time::Duration;

use crate::frames::{Link, arrivals, frame, link};
use proptest::prelude::*;
use whimbrel_core::Time;
use whimbrel_sim::link::{LinkSpec, LinkSpecError, QueueLimit};

/// As tc-tbf(8): a full bucket goes at once, what follows goes at the rate, and an idle link fills
/// the bucket again, no further than to the brim.
#[test]
fn a_bucket_of_frames_leaves_at_once_and_fills_while_the_link_is_idle() {
    let spec = LinkSpec {
        burst: 3_000,
        ..LinkSpec::new(8_000_000, Duration::ZERO)
    };
    let mut link = link(&spec, 1);
    let send = |link: &mut Link, at, count| {
        let at = Time::from_millis(at);
        (0..count).for_each(|n| link.enqueue(at, frame(n, 1_000)));
        let after = arrivals(link).into_iter();
        after
            .map(|(arrival, _)| arrival.since(at).as_micros())
            .collect::<Vec<_>>()
    };
    assert_eq!(send(&mut link, 0, 5), [0, 0, 0, 1_000, 2_000]);
    // Two milliseconds after the last one: 2,000 bytes.
    assert_eq!(send(&mut link, 4, 4), [0, 0, 1_000, 2_000]);
    assert_eq!(send(&mut link, 1_000, 5), [0, 0, 0, 1_000, 2_000]);
    let faster = LinkSpec {
        burst: 3_000,
        ..LinkSpec::new(80_000_000, Duration::ZERO)
    };
    link.set_spec(Time::from_millis(1_002), &faster).unwrap();
    assert_eq!(send(&mut link, 1_002, 5), [0, 0, 0, 100, 200]);
}

#[test]
fn only_a_fixed_rate_has_a_bucket() {
    for text in [
        "burst = '1 kB'",
        "burst = '1 kB'\nrate = { trace = [1, 2] }",
    ] {
        let spec: LinkSpec = toml::from_str(text).unwrap();
        assert_eq!(spec.validate(), Err(LinkSpecError::BurstWithoutRate));
    }
}

proptest! {
    /// Any frames leave when a bucket of tokens has enough for them, in order; a frame that is larger
    /// than the bucket waits for what it lacks.
    #[test]
    fn frames_leave_as_from_a_bucket_of_tokens(
        // Divisors of 8 s, so that no time has a fraction.
        nanos_of_a_byte in proptest::sample::select(vec![1u64, 8, 80, 1_000, 3_125, 8_000]),
        burst in 0u64..20_000,
        offers in proptest::collection::vec((0u64..30_000_000, 4usize..3_000), 1..60),
    ) {
        let spec = LinkSpec {
            burst,
            ..LinkSpec::new(8_000_000_000 / nanos_of_a_byte, Duration::ZERO)
        };
        let spec = spec.with_queue(QueueLimit::Unlimited);
        let mut link = link(&spec, 1);
        let full = burst * nanos_of_a_byte;
        let (mut now, mut left, mut tokens, mut expected) = (0, 0, full, Vec::new());
        for (pause, length) in &offers {
            now += pause;
            link.enqueue(Time::from_nanos(now), frame(0, *length));
            let start = now.max(left);
            tokens = full.min(tokens + (start - left));
            let takes = *length as u64 * nanos_of_a_byte;
            left = start + takes.saturating_sub(tokens);
            tokens = tokens.saturating_sub(takes);
            expected.push(Time::from_nanos(left));
        }
        let got: Vec<Time> = arrivals(&mut link).into_iter().map(|(at, _)| at).collect();
        prop_assert_eq!(got, expected);
    }
}
