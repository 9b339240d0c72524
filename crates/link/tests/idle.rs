//! The rate of a link that carries nothing.

use core::time::Duration;

use crate::pair::{self, Pair, chunk};
use whimbrel_core::Time;

/// Measures the idle link of end 0; returns its bits per second as the hop has them, and the bytes that it cost.
fn measure(pair: &mut Pair) -> (u64, u64) {
    let before = pair.link_stats(0).delivered_bytes;
    pair.at(0, |end, _| end.hop.measure_idle());
    let end = pair.now() + Duration::from_secs(4);
    pair.drive(end);
    let bandwidth = pair.ends()[0].hop.stats().bandwidth;
    (bandwidth, pair.link_stats(0).delivered_bytes - before)
}

#[test]
fn an_idle_link_is_measured_by_a_few_packets() {
    for (rate, bytes) in [(440_000, 6_000), (4_000_000, 25_000), (10_000_000, 45_000)] {
        let mut pair = Pair::new(3, pair::path(rate, Duration::from_millis(2)));
        pair.drive(Time::from_secs(2));
        let (measured, cost) = measure(&mut pair);
        // Headers count.
        assert!(
            measured > rate * 9 / 10 && measured <= rate * 21 / 20,
            "{rate}: {measured}"
        );
        assert!(cost < bytes, "{rate}: {cost}");
    }
}

#[test]
fn a_link_that_was_slow_is_used_as_what_it_is() {
    let mut pair = Pair::new(3, pair::path(440_000, Duration::from_millis(2)));
    pair.drive(Time::from_secs(1));
    pair.send(0, 1, chunk(1, 64 << 10));
    pair.drive(Time::from_secs(4));
    pair.set_path(pair::path(4_000_000, Duration::from_millis(2)));
    let (measured, _) = measure(&mut pair);
    assert!(measured > 3_600_000, "{measured}");
    let began = pair.now();
    pair.send(0, 2, chunk(2, 256 << 10));
    let end = began + Duration::from_secs(60);
    assert!(pair.drive_until(end, |pair| pair.ends()[0].delivered.len() == 2));
    let took = pair.now().since(began);
    // 0.52 s at 4 Mbit/s, 4.8 s at 440 kbit/s.
    assert!(took < Duration::from_millis(800), "{took:?}");
}
