//! The time until data moves again after an outage of any length.

use core::time::Duration;

use crate::pair::{Pair, chunk, path};
use whimbrel_core::Time;
use whimbrel_link::HopEvent;

const RTT: Duration = Duration::from_millis(50);

#[test]
fn data_moves_within_a_round_trip_and_a_tenth_of_a_second_of_the_links_return() {
    for seconds in [1, 60, 3_600] {
        // The outage ends at different points between two probes.
        for offset in [0, 20, 40, 60] {
            let (start, end) = (
                Time::from_secs(2),
                Time::from_secs(2 + seconds) + Duration::from_millis(offset),
            );
            let mut pair = Pair::new(3, path(100_000_000, RTT / 2));
            pair.send(0, 1, chunk(1, 30_000));
            pair.drive(start);
            assert_eq!(pair.ends()[1].received.len(), 1);
            pair.cut(end.since(start));
            for from in 0..2 {
                pair.send(from, 2, chunk(2, 1_000));
            }
            pair.drive(end);
            assert_eq!(pair.ends()[1].received.len(), 1, "the link is out");
            assert!(pair.drive_until(end + Duration::from_secs(5), |pair| {
                pair.ends()[1].received.len() == 2 && pair.ends()[0].received.len() == 1
            }));
            let took = pair.now().since(end);
            println!("{seconds} s and {offset} ms: {took:?}");
            assert!(
                took <= RTT + Duration::from_millis(100),
                "{seconds} s and {offset} ms: {took:?}"
            );
        }
    }
}

/// More probes go out in an outage than are remembered, and the CSYNs about the chunks were sent
/// before them.
#[test]
fn all_chunks_that_were_on_their_way_arrive_after_a_long_outage() {
    for ways in 1..=3 {
        let start = Time::from_secs(2);
        let mut pair = Pair::new(3, path(100_000_000, RTT / 2));
        pair.send(0, 1, chunk(1, 30_000));
        pair.drive(start);
        pair.cut_ways(ways, Duration::from_secs(600));
        for tag in 2..80 {
            pair.send(0, tag, chunk(tag, 700));
            pair.drive(start + Duration::from_millis(tag));
        }
        let end = start + Duration::from_secs(600);
        pair.drive(end);
        let whole = |pair: &Pair| pair.ends()[1].received.len() == 79;
        let came = pair.drive_until(end + Duration::from_secs(5), whole);
        let received = pair.ends()[1].received.len();
        assert!(came, "ways {ways}: {received} of 79 chunks");
        // Its last acknowledgements are still under way.
        pair.drive(pair.now() + RTT * 2);
        let stats = pair.ends()[0].hop.stats();
        assert_eq!(stats.chunks_in_flight, 0, "ways {ways}");
    }
}

/// What carries the frames fails and returns, and the driver says so.
#[test]
fn a_neighbour_is_unresponsive_and_asked_at_once_if_the_driver_knows() {
    let mut pair = Pair::new(3, path(100_000_000, RTT / 2));
    pair.send(0, 1, chunk(1, 300_000));
    let start = Time::from_secs(2) + Duration::from_millis(7);
    pair.drive(start);
    pair.send(0, 2, chunk(2, 300_000));
    pair.drive(start + Duration::from_millis(10));
    let lost = pair.now();
    pair.cut(Duration::from_secs(60));
    pair.at(0, |end, now| end.hop.set_carrier(now, false));
    // Frames that were under way are no sign of life.
    pair.drive(lost + RTT);
    assert!(!pair.ends()[0].hop.is_up());
    pair.drive(lost + Duration::from_secs(60));
    let back = pair.now();
    pair.at(0, |end, now| end.hop.set_carrier(now, true));
    assert!(pair.drive_until(back + Duration::from_secs(5), |pair| {
        pair.ends()[0].hop.is_up()
    }));
    let took = pair.now().since(back);
    assert!(took <= RTT + Duration::from_millis(1), "{took:?}");
    assert!(pair.drive_until(back + Duration::from_secs(5), |pair| {
        pair.ends()[1].received.len() == 2
    }));
    let told = |event: fn(&HopEvent) -> bool| {
        let events = pair.ends()[0].events.iter();
        events.filter(|(_, it)| event(it)).count()
    };
    assert_eq!(told(|it| matches!(it, HopEvent::Unresponsive)), 1);
    assert_eq!(told(|it| matches!(it, HopEvent::Responsive)), 1);
}

/// A receiver does not know whether another chunk was to follow: a link that fails between two of
/// them is noticed as soon as one that fails in the middle, and a pause costs a few probes.
#[test]
fn a_link_that_fails_between_two_chunks_is_noticed_within_a_second() {
    for len in [30_000, 300] {
        let mut pair = Pair::new(3, path(100_000_000, RTT / 2));
        pair.send(0, 1, chunk(1, len));
        assert!(pair.drive_until(Time::from_secs(2), |pair| {
            pair.ends()[1].received.len() == 1
        }));
        let failed = pair.now();
        pair.cut(Duration::from_secs(60));
        let is_noticed = |pair: &Pair| !pair.ends()[1].hop.is_up();
        assert!(pair.drive_until(failed + Duration::from_secs(10), is_noticed));
        let took = pair.now().since(failed);
        println!("{len} bytes: {took:?}");
        assert!(took <= Duration::from_secs(1), "{len} bytes: {took:?}");
    }
    let mut pair = Pair::new(3, path(100_000_000, RTT / 2));
    pair.send(0, 1, chunk(1, 30_000));
    pair.drive(Time::from_millis(500));
    let asked = |pair: &Pair| pair.ends()[1].hop.stats().csyn_sent;
    let before = asked(&pair);
    pair.drive(Time::from_millis(2_500));
    assert!((1..=4).contains(&(asked(&pair) - before)));
    let before = asked(&pair);
    pair.drive(Time::from_millis(12_500));
    assert!(asked(&pair) - before <= 5, "an idle neighbour: every 2 s");
}
