//! Pings and their server.

use whimbrel_core::Time;
use whimbrel_ndn_packet::InterestRef;
use whimbrel_transport::{Ping, PingEvent, PingOptions, PingServer, PingServerOptions, PingStats};

use super::setup::{MS, last, rng};
use crate::support::{Pair, Path, name, register};

fn ping_stats(pair: &Pair<Ping, PingServer>) -> PingStats {
    match last(&pair.consumer_events) {
        PingEvent::Finished(stats) => stats,
        other => panic!("{other:?}"),
    }
}

fn ping(options: PingOptions, server: PingServerOptions, path: Path) -> Pair<Ping, PingServer> {
    let server = PingServer::pings(server, register(), rng());
    let mut pair = Pair::new(Ping::new(options, rng()), server, path, 1);
    pair.run(Time::from_secs(1000), |_| false);
    pair
}

#[test]
fn pings_are_named_as_ndnping_names_them() {
    let options = PingOptions {
        count: Some(3),
        start: Some(u64::MAX - 1),
        identifier: Some(String::from("me")),
        ..PingOptions::new(name("/server"))
    };
    let server = PingServerOptions {
        payload: 20,
        ..PingServerOptions::new(name("/server"))
    };
    let pair = ping(options, server, Path::clean());
    let names: Vec<String> = pair
        .sent_by_consumer
        .iter()
        .map(|frame| InterestRef::decode(frame).unwrap())
        .inspect(|interest| assert!(interest.must_be_fresh))
        .map(|interest| interest.name.to_string())
        .collect();
    let expected = ["18446744073709551614", "18446744073709551615", "0"];
    assert_eq!(
        names,
        expected.map(|number| format!("/server/ping/me/{number}"))
    );
    let stats = ping_stats(&pair);
    assert_eq!((stats.sent, stats.received, stats.timeouts), (3, 3, 0));
    assert!((stats.rtt.mean_ms().unwrap() - 10.0).abs() < 1e-6 && stats.loss() == 0.0);
    assert_eq!(pair.producer().application().responder().answered(), 3);
    let registered = pair.registered.lock().unwrap().clone();
    assert_eq!(
        registered,
        [(String::from("register"), name("/server/ping"))]
    );
    // The third ping leaves after two intervals of 1 s and takes a round trip of 10 ms.
    assert_eq!(
        pair.consumer_events.last().unwrap().0,
        Time::from_millis(2010)
    );
}

#[test]
fn lost_pings_are_counted_after_their_time() {
    let options = PingOptions {
        count: Some(300),
        interval: 5 * MS,
        timeout: 100 * MS,
        ..PingOptions::new(name("/s"))
    };
    let pair = ping(
        options,
        PingServerOptions::new(name("/s")),
        Path::lossy(0.2),
    );
    let stats = ping_stats(&pair);
    assert_eq!(stats.received + stats.timeouts, 300);
    assert!((0.2..0.6).contains(&stats.loss()), "{stats:?}");
    let lost = pair
        .consumer_events
        .iter()
        .filter(|(_, event)| matches!(event, PingEvent::Timeout { .. }));
    assert_eq!(lost.count() as u64, stats.timeouts);
}

#[test]
fn a_ping_server_stops_after_its_count() {
    let options = PingOptions {
        count: Some(5),
        timeout: 100 * MS,
        ..PingOptions::new(name("/s"))
    };
    let server = PingServerOptions {
        count: Some(3),
        log: true,
        ..PingServerOptions::new(name("/s"))
    };
    let pair = ping(options, server, Path::clean());
    let stats = ping_stats(&pair);
    assert_eq!((stats.received, stats.timeouts), (3, 2));
    assert_eq!(
        pair.producer_events.len(),
        1 + 3 + 1,
        "registered, three pings, the end"
    );
}
