//! Patterns of Interests and the rules that answer them.

use std::time::Duration;

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{ContentType, LpPacket};
use whimbrel_transport::traffic::{Append, TrafficPattern, TrafficRule};
use whimbrel_transport::{Gaps, TrafficClient, TrafficEvent, TrafficOptions, TrafficServer};

use super::setup::{MS, last, rng};
use crate::support::{Pair, Path, digest, name, register};

fn rule(text: &str, content: &'static [u8], delay: Duration) -> TrafficRule {
    TrafficRule {
        name: name(text),
        delay,
        freshness: MS,
        content_type: ContentType::Blob,
        content: Bytes::from_static(content),
        signer: digest(),
    }
}

#[test]
fn traffic_keeps_its_shares_its_rate_and_its_counters() {
    let patterns = vec![
        TrafficPattern {
            share: 75.0,
            append: Append::SequenceNumber(10),
            expected_content: Some(Bytes::from_static(b"AAAA")),
            ..TrafficPattern::new(name("/example/A"))
        },
        TrafficPattern {
            share: 25.0,
            append: Append::RandomBytes(6),
            expected_content: Some(Bytes::from_static(b"something else")),
            can_be_prefix: true,
            ..TrafficPattern::new(name("/example/B"))
        },
    ];
    let options = TrafficOptions {
        patterns,
        interval: 10 * MS,
        gaps: Gaps::Exponential,
        count: Some(2000),
        log: true,
    };
    let rules = vec![
        rule("/example/A", b"AAAA", Duration::ZERO),
        rule("/example/B", b"BBBB", 30 * MS),
    ];
    let server = TrafficServer::rules(rules, None, register(), rng());
    let mut pair = Pair::new(TrafficClient::new(options, rng()), server, Path::clean(), 1);
    pair.run(Time::from_secs(1000), |_| false);
    let TrafficEvent::Finished(stats) = last(&pair.consumer_events) else {
        panic!("not finished")
    };
    let [a, b] = stats[..] else {
        panic!("two patterns")
    };
    assert_eq!(a.sent + b.sent, 2000);
    assert!((1400..1600).contains(&a.sent), "{}", a.sent);
    assert_eq!(
        (a.received, a.inconsistent, b.received, b.inconsistent),
        (a.sent, 0, b.sent, b.sent)
    );
    assert!((a.rtt.mean_ms().unwrap() - 10.0).abs() < 1e-6);
    assert!(
        (b.rtt.mean_ms().unwrap() - 40.0).abs() < 1e-6,
        "10 ms of path and 30 ms of delay"
    );
    assert_eq!(
        pair.producer().application().responder().answered(),
        [a.sent, b.sent]
    );
    let seconds = pair.consumer_events.last().unwrap().0.as_secs_f64();
    assert!(
        (18.0..22.0).contains(&seconds),
        "2000 Interests, 10 ms apart in the mean: {seconds}"
    );
}

#[test]
fn traffic_without_answers_is_bounded_and_counted() {
    let pattern = TrafficPattern {
        append: Append::SequenceNumber(0),
        lifetime: 3_600_000 * MS,
        next_hop_face_id: Some(300),
        ..TrafficPattern::new(name("/x"))
    };
    let options = TrafficOptions {
        patterns: vec![pattern],
        interval: Duration::from_micros(10),
        gaps: Gaps::Constant,
        count: Some(70_000),
        log: false,
    };
    let server = TrafficServer::rules(vec![], None, register(), rng());
    let path = Path {
        loss: 1.0,
        ..Path::clean()
    };
    let mut pair = Pair::new(TrafficClient::new(options, rng()), server, path, 1);
    pair.run(Time::from_secs(60), |_| false);
    let stats = pair.consumer().application().stats()[0];
    assert_eq!((stats.sent, stats.timeouts), (70_000, 70_000 - 65_536));
    let first = LpPacket::decode(&pair.sent_by_consumer[0], false).unwrap();
    assert_eq!(first.next_hop_face_id, Some(300));
}
