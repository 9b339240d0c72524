//! The time until data moves again after an outage of any length.

mod pair;

use core::time::Duration;

use pair::{Pair, chunk, path};
use whimbrel_core::Time;

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
