//! The BELRP study's consumer and producer.

#[path = "../../transport/tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Pair, Path, Side, name};
use whimbrel_core::{RttOptions, SeededRng, Time};
use whimbrel_lab::cbr::{
    BELRP, CbrConfig, CbrConsumer, CbrEvent, CbrStats, Exchanged, PlaceholderSigner,
};
use whimbrel_ndn_packet::{Data, DataRef, DigestSigner, InterestRef, LpPacket};
use whimbrel_transport::{Application, EchoProducer, FaceNumber, Gaps};

const MS: Duration = Duration::from_millis(1);

fn study(config: CbrConfig, path: Path, seed: u64) -> Pair<CbrConsumer, EchoProducer> {
    let signer = Arc::new(PlaceholderSigner);
    let producer = EchoProducer::echo(
        config.prefix.clone(),
        1024,
        MS,
        signer,
        None,
        SeededRng::new(1),
    );
    Pair::new(
        CbrConsumer::new(config, SeededRng::new(seed)),
        producer,
        path,
        seed,
    )
}

fn finished(pair: &Pair<CbrConsumer, EchoProducer>) -> CbrStats {
    match pair.consumer_events.last() {
        Some((_, CbrEvent::Finished(stats))) => *stats,
        other => panic!("{other:?}"),
    }
}

fn exchanges(pair: &Pair<CbrConsumer, EchoProducer>) -> Vec<Exchanged> {
    let exchange = |event: &(Time, CbrEvent)| match event.1 {
        CbrEvent::Exchanged(exchange) => Some(exchange),
        CbrEvent::Finished(_) => None,
    };
    pair.consumer_events.iter().filter_map(exchange).collect()
}

#[test]
fn packets_have_the_papers_sizes() {
    let config = CbrConfig {
        count: 1000,
        ..CbrConfig::belrp(name("/prefix-a"))
    };
    let mut pair = study(config, Path::clean(), 1);
    let sizes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = sizes.clone();
    pair.set_tamper(Box::new(move |_, to, frame| {
        if to == Side::Consumer {
            let data = DataRef::decode(&frame).unwrap();
            assert_eq!(data.content.len(), 1024);
            let number = data.name.last().unwrap().number_of(0x3a).unwrap();
            seen.lock().unwrap().push((number, frame.len()));
        }
        vec![frame]
    }));
    pair.run(Time::from_secs(60), |_| false);
    finished(&pair);
    for frame in &pair.sent_by_consumer {
        let interest = InterestRef::decode(frame).unwrap();
        let number = interest.name.last().unwrap().number_of(0x3a).unwrap();
        assert_eq!(frame.len(), if number < 256 { 27 } else { 28 });
        assert_eq!(interest.lifetime, 600 * MS);
    }
    for (number, size) in sizes.lock().unwrap().iter() {
        assert_eq!(*size, if *number < 256 { 1060 } else { 1061 });
    }
}

#[test]
fn a_clean_path_needs_no_retransmission_and_keeps_the_rate() {
    for gaps in [Gaps::Constant, Gaps::Uniform, Gaps::Exponential] {
        let config = CbrConfig {
            gaps,
            timeout: RttOptions {
                initial: 100 * MS,
                ..BELRP
            },
            ..CbrConfig::belrp(name("/prefix-a"))
        };
        let mut pair = study(config, Path::clean(), 3);
        pair.run(Time::from_secs(60), |_| false);
        let stats = finished(&pair);
        assert_eq!((stats.requested, stats.answered), (20_000, 20_000));
        assert_eq!(
            (stats.retransmissions, stats.timeouts, stats.duplicates),
            (0, 0, 0)
        );
        assert!((stats.delay.mean_ms().unwrap() - 10.0).abs() < 1e-6);
        let seconds = pair.consumer_events.last().unwrap().0.as_secs_f64();
        assert!(
            (21.0..23.5).contains(&seconds),
            "20,000 at 900 a second with {gaps:?}: {seconds}"
        );
    }
}

#[test]
fn every_number_is_answered_over_a_lossy_path() {
    let config = CbrConfig {
        count: 3000,
        nearest_answer: 4 * MS,
        ..CbrConfig::belrp(name("/prefix-a"))
    };
    let mut pair = study(
        config,
        Path {
            duplicate: 0.0,
            ..Path::lossy(0.1)
        },
        5,
    );
    pair.run(Time::from_secs(600), |_| false);
    let stats = finished(&pair);
    assert_eq!(stats.answered, 3000);
    // A number is asked for 1 / 0.81 times if nothing is asked for needlessly.
    let needed = stats.retransmissions - stats.spurious_at_most;
    assert!((500..900).contains(&needed), "{stats:?}");
    assert!(stats.spurious_at_least <= stats.spurious_at_most);
    let all = exchanges(&pair);
    assert_eq!(all.len(), 3000);
    let again: u64 = all
        .iter()
        .map(|exchange| u64::from(exchange.transmissions) - 1)
        .sum();
    assert_eq!(again, stats.retransmissions);
    let mean: f64 = all
        .iter()
        .map(|e| e.answered.since(e.first_sent).as_secs_f64() * 1e3)
        .sum::<f64>()
        / 3000.0;
    assert!((mean - stats.delay.mean_ms().unwrap()).abs() < 1e-6);
}

#[test]
fn a_retransmission_takes_the_place_of_a_new_interest() {
    let config = CbrConfig {
        gaps: Gaps::Constant,
        rate: 100.0,
        count: 50,
        timeout: RttOptions {
            initial: 25 * MS,
            ..BELRP
        },
        ..CbrConfig::belrp(name("/prefix-a"))
    };
    let mut pair = study(
        config,
        Path {
            loss: 1.0,
            ..Path::clean()
        },
        1,
    );
    pair.run(Time::from_millis(395), |_| false);
    let stats = *pair.consumer().application().stats();
    assert_eq!(
        stats.requested + stats.retransmissions,
        pair.sent_by_consumer.len() as u64
    );
    assert_eq!(
        pair.sent_by_consumer.len(),
        40,
        "one each 10 ms, whatever it is"
    );
    let numbers: Vec<u64> = pair
        .sent_by_consumer
        .iter()
        .map(|frame| {
            InterestRef::decode(frame)
                .unwrap()
                .name
                .last()
                .unwrap()
                .number_of(0x3a)
                .unwrap()
        })
        .collect();
    // Number 0 is 25 ms old at 25 ms, and goes at 30 ms; the time-out has doubled by then.
    assert_eq!(numbers[..4], [0, 1, 2, 0]);
    let doubled = 1 << stats.timeouts.min(6) as u32;
    assert!(stats.timeouts >= 3);
    assert_eq!(
        pair.consumer().application().timeout(),
        doubled * 25 * MS,
        "doubled at each"
    );
}

/// Asks for number 0 at 0 ms and again at 100 ms, where the shortest round trip so far is `least`,
/// and answers it at `at`.
fn asked_twice(at: Duration, nearest_answer: Duration) -> Exchanged {
    let config = CbrConfig {
        gaps: Gaps::Constant,
        rate: 10.0,
        count: 3,
        check: 5 * MS,
        timeout: RttOptions {
            initial: 80 * MS,
            min: 80 * MS,
            k: 0.0,
            ..BELRP
        },
        nearest_answer,
        ..CbrConfig::belrp(name("/p"))
    };
    let mut consumer = CbrConsumer::new(config, SeededRng::new(1));
    let data = |number: u64| {
        let name = name("/p").child(whimbrel_ndn_packet::Component::sequence_num(number).as_ref());
        Data::new(name, &b""[..]).encode(&DigestSigner)
    };
    let answer = |consumer: &mut CbrConsumer, now: Time, number: u64| {
        let wire = data(number);
        consumer.handle_timeout(now);
        consumer.handle_packet(
            now,
            FaceNumber::FIRST,
            &LpPacket::decode(&wire, false).expect("a Data"),
        );
    };
    consumer.handle_face(Time::ZERO, FaceNumber::FIRST, true);
    consumer
        .poll_packet(Time::ZERO, FaceNumber::FIRST)
        .expect("number 0");
    // A round trip of 60 ms, so that it is known what an answer takes.
    answer(&mut consumer, Time::from_millis(60), 0);
    consumer.handle_timeout(Time::from_millis(100));
    consumer
        .poll_packet(Time::from_millis(100), FaceNumber::FIRST)
        .expect("number 1");
    for millis in (105..=200).step_by(5) {
        consumer.handle_timeout(Time::from_millis(millis));
    }
    consumer
        .poll_packet(Time::from_millis(200), FaceNumber::FIRST)
        .expect("number 1 again");
    assert_eq!(consumer.stats().retransmissions, 1);
    answer(&mut consumer, Time::ZERO + at, 1);
    let events: Vec<CbrEvent> = std::iter::from_fn(|| consumer.poll_event()).collect();
    match events.last() {
        Some(CbrEvent::Exchanged(exchange)) => *exchange,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_retransmission_is_spurious_if_the_answer_comes_too_soon_to_be_its_own() {
    // 59 ms after the second transmission: no answer has come so soon, unless a content store is
    // near.
    let exchange = asked_twice(259 * MS, 10 * MS);
    assert_eq!(
        (
            exchange.transmissions,
            exchange.spurious_at_most,
            exchange.spurious_at_least
        ),
        (2, 1, 0)
    );
    // 9 ms after it: not even the nearest content store.
    let exchange = asked_twice(209 * MS, 10 * MS);
    assert_eq!(
        (exchange.spurious_at_most, exchange.spurious_at_least),
        (1, 1)
    );
    // 60 ms after it: its own answer.
    let exchange = asked_twice(260 * MS, 10 * MS);
    assert_eq!(
        (exchange.spurious_at_most, exchange.spurious_at_least),
        (0, 0)
    );
    assert_eq!(exchange.answered.since(exchange.first_sent), 160 * MS);
}
