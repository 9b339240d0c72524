//! Goodput over a grid of links, in virtual time. The numbers are reproducible, so they can be
//! asserted.

use core::time::Duration;

use crate::pair::{Pair, chunk, path};
use whimbrel_core::Time;
use whimbrel_sim::link::{DeliveryTrace, LinkSpec, Loss, QueueLimit, Rate};

/// Returns the rate of chunks delivered by a saturated hop, from the 2nd second to the end, bit/s.
fn goodput(rate_mbit: u64, rtt_ms: u64, loss: f64, seconds: u64) -> (f64, Pair) {
    let rate = rate_mbit * 1_000_000;
    let delay = Duration::from_micros(rtt_ms * 500);
    // The buffer holds one bandwidth-delay product, and at least 64 KiB.
    let queue = QueueLimit::Bytes((rate / 8 * rtt_ms / 1_000).max(64 << 10));
    let path = path(rate, delay).with_queue(queue);
    let mut pair = Pair::new(1, path.with_loss(Loss::Independent(loss)));
    let (warm, end) = (Time::from_secs(2), Time::from_secs(2 + seconds));
    let mut tag = 0;
    saturate(&mut pair, &mut tag, warm);
    let (start, before) = (pair.now(), bytes_there(&pair));
    saturate(&mut pair, &mut tag, end);
    let bits = (bytes_there(&pair) - before) as f64 * 8.0;
    (bits / end.since(start).as_secs_f64(), pair)
}

/// Gives the first hop chunks whenever it takes some, until `end`. Their tags begin at `tag`.
fn saturate(pair: &mut Pair, tag: &mut u64, end: Time) {
    let body = chunk(1, 1 << 20);
    while pair.now() < end {
        while pair.net[0].hop.ready_for() > 0 {
            pair.send(0, *tag, body.clone());
            *tag += 1;
        }
        pair.step(end);
    }
}

/// Returns the bytes of chunks at the receiver, including incomplete ones.
fn bytes_there(pair: &Pair) -> u64 {
    pair.net[1].hop.stats().data_received * 1_432
}

#[test]
fn goodput_over_the_grid_stays_above_its_bounds() {
    let mut table = String::new();
    let mut misses = String::new();
    for rate in [5u64, 25, 100] {
        for rtt in [1u64, 10, 50, 100] {
            // The capacity of the link: 1432 of every 1480 bytes are payload.
            let best = rate as f64 * 1e6 * 1_432.0 / 1_480.0;
            let results = [0.0, 0.01, 0.05].map(|loss| goodput(rate, rtt, loss, 8));
            let clean = results[0].0;
            let shares = results.each_ref().map(|(bits, _)| bits / best);
            table += &format!("{rate:>4} Mbit/s {rtt:>4} ms:");
            for ((bits, pair), share) in results.iter().zip(shares) {
                let stats = pair.net[0].hop.stats();
                table += &format!(
                    "  {:>6.2} Mbit/s {:>5.1} % (queue {:>3} ms, {} resent, {} timeouts)",
                    bits / 1e6,
                    share * 100.0,
                    pair.link_stats(0).queueing_delay_max.as_millis(),
                    stats.data_resent,
                    stats.timeouts
                );
            }
            table += "\n";
            let bounds = [
                shares[0] >= 0.95,
                results[1].0 >= 0.94 * clean,
                results[2].0 >= 0.90 * clean,
            ];
            if bounds != [true; 3] {
                misses += &format!("{rate} Mbit/s, {rtt} ms: {bounds:?}\n");
            }
        }
    }
    println!("{table}");
    assert!(misses.is_empty(), "below the bounds:\n{misses}{table}");
}

/// Start-up knows what the path carries before its window is larger: a queue of a quarter of the
/// bandwidth-delay product does not overflow.
#[test]
fn start_up_overflows_no_short_queue() {
    let (mut table, mut misses) = (String::new(), 0);
    for (rate, rtt_ms) in [(25u64, 100u64), (100, 50), (1_000, 50), (1_000, 200)] {
        for loss in [0.0, 0.01] {
            let rate = rate * 1_000_000;
            let queue = QueueLimit::Bytes(rate / 8 * rtt_ms / 1_000 / 4);
            let path = path(rate, Duration::from_micros(rtt_ms * 500)).with_queue(queue);
            let mut pair = Pair::new(1, path.with_loss(Loss::Independent(loss)));
            saturate(&mut pair, &mut 0, Time::from_millis(20 * rtt_ms));
            let (dropped, sent) = (
                pair.link_stats(0).dropped_queue,
                pair.net[0].hop.stats().data_sent,
            );
            let share = (bytes_there(&pair) * 8) as f64 / (rate as f64 * pair.now().as_secs_f64());
            table += &format!(
                "{rate} bit/s, {rtt_ms} ms, {loss} lost: {dropped} of {sent} overflowed, {share:.2}\n"
            );
            misses += u32::from(dropped > 20 || share < 0.4);
        }
    }
    println!("{table}");
    assert_eq!(misses, 0, "{table}");
}

/// What a queue drops that is too short to be seen in round trips is not made up for as random loss
/// is, and random loss still is.
#[test]
fn a_queue_too_short_to_be_seen_is_not_flooded() {
    let (mut table, mut misses) = (String::new(), 0);
    for (rate, rtt_ms) in [(20u64, 10u64), (100, 10), (100, 50), (1_000, 10)] {
        for (queue, loss) in [(0.1, 0.0), (0.1, 0.05), (0.05, 0.0), (1.0, 0.05)] {
            let rate = rate * 1_000_000;
            let bytes = (rate / 8 * rtt_ms / 1_000) as f64 * queue;
            let path = path(rate, Duration::from_micros(rtt_ms * 500))
                .with_queue(QueueLimit::Bytes((bytes as u64).max(6_000)))
                .with_loss(Loss::Independent(loss));
            let mut pair = Pair::new(1, path);
            let counts = |pair: &Pair| {
                let (link, hop) = (pair.link_stats(0), pair.net[0].hop.stats());
                (link.dropped_queue, hop.data_sent, bytes_there(pair))
            };
            let mut tag = 0;
            saturate(&mut pair, &mut tag, Time::from_secs(5));
            let (dropped, sent, there) = counts(&pair);
            saturate(&mut pair, &mut tag, Time::from_secs(15));
            let after = counts(&pair);
            let overflowed = (after.0 - dropped) as f64 / (after.1 - sent) as f64;
            let share = ((after.2 - there) * 8) as f64 / (rate as f64 * 10.0 * (1.0 - loss));
            table += &format!(
                "{rate} bit/s, {rtt_ms} ms, queue {queue}, {loss} lost: {:.1} % overflowed, {share:.3}\n",
                100.0 * overflowed
            );
            misses += u32::from(overflowed > 0.06 || share < 0.9);
        }
    }
    println!("{table}");
    assert_eq!(misses, 0, "{table}");
}

/// A path, the bits per second that it carries, and the share of them that a hop must reach.
struct Case {
    name: String,
    spec: LinkSpec,
    bits: f64,
    least: f64,
}

/// Saturates each path, from the 2nd second to the end counts what arrives, and shows it.
fn fill(cases: impl Iterator<Item = Case>, end: u64) {
    let (mut table, mut misses) = (String::new(), 0);
    for case in cases {
        let (mut pair, mut tag) = (Pair::new(1, case.spec), 0);
        saturate(&mut pair, &mut tag, Time::from_secs(2));
        let before = bytes_there(&pair);
        saturate(&mut pair, &mut tag, Time::from_secs(end));
        let bits = ((bytes_there(&pair) - before) * 8) as f64 / (end - 2) as f64;
        let (share, dropped) = (bits / case.bits, pair.link_stats(0).dropped_queue);
        table += &format!("{}: {share:.2} ({dropped} dropped)\n", case.name);
        misses += u32::from(share < case.least);
    }
    println!("{table}");
    assert_eq!(misses, 0, "{table}");
}

/// Returns every pair of one of these and one of those.
fn pairs<A: Copy, B: Copy>(these: &[A], those: &[B]) -> impl Iterator<Item = (A, B)> {
    these
        .iter()
        .flat_map(move |one| those.iter().map(move |other| (*one, *other)))
}

/// Links that let frames go in bursts, as wireless and shared ones do: the time between two bursts
/// is neither a queue nor a longer path.
#[test]
fn links_that_send_in_bursts_are_filled() {
    let kinds: Vec<_> = pairs(&[20u64, 100, 1_000], &[(1u64, 0.9), (4, 0.9), (8, 0.7)]).collect();
    let cases = pairs(&kinds, &[100u64, 5_000, 50_000]);
    let case = |((rate, (gap_ms, least)), rtt_us): ((u64, (u64, f64)), u64)| {
        let turns = rate * 1_000 * gap_ms / 12_000;
        let trace = DeliveryTrace::from_millis(vec![gap_ms; turns as usize]).unwrap();
        let bits = trace.mean_rate() as f64;
        let holds = rate * 125 * (gap_ms * 2 + rtt_us / 1_000 + 10);
        let spec = LinkSpec {
            rate: Rate::Trace(trace.into()),
            ..path(0, Duration::from_micros(rtt_us / 2))
        };
        Case {
            name: format!("{rate} Mbit/s, a burst in {gap_ms} ms, {rtt_us} us"),
            spec: spec.with_queue(QueueLimit::Bytes(holds)),
            bits,
            least,
        }
    };
    fill(cases.map(case), 6);
}

/// A rate limiter lets frames go at once until its bucket is empty. Rates that are measured then are
/// not the path's.
#[test]
fn links_with_a_token_bucket_are_filled() {
    let kinds: Vec<_> = pairs(&[20u64, 100, 1_000], &[1u64, 10, 40]).collect();
    let cases = pairs(&kinds, &[60u64, 5_000, 50_000]);
    let case = |((rate, bucket_ms), rtt_us): ((u64, u64), u64)| {
        let bits = rate * 1_000_000;
        let spec = LinkSpec {
            burst: rate * 125 * bucket_ms,
            ..path(bits, Duration::from_micros(rtt_us / 2))
        };
        let holds = rate * 125 * (rtt_us / 1_000).max(10);
        Case {
            name: format!("{rate} Mbit/s, bucket of {bucket_ms} ms, {rtt_us} us"),
            spec: spec.with_queue(QueueLimit::Bytes(holds)),
            bits: bits as f64,
            least: 0.9,
        }
    };
    fill(cases.map(case), 6);
}

/// Jitter of up to twice the round trip hides a path's rate from start-up. It is found soon
/// afterwards, and jitter is not taken for a queue.
#[test]
fn paths_with_jitter_are_filled() {
    let times = [(10u64, 1u64), (10, 3), (10, 5), (30, 3), (30, 5), (30, 10)];
    let case = |(rate, (rtt_ms, jitter_ms)): (u64, (u64, u64))| {
        let (bits, jitter) = (rate * 1_000_000, Duration::from_millis(jitter_ms));
        let spec = LinkSpec {
            jitter,
            ..path(bits, Duration::from_millis(rtt_ms / 2) + jitter)
        };
        Case {
            name: format!(
                "{rate} Mbit/s, {rtt_ms} ms, jitter 0 to {} ms each way",
                2 * jitter_ms
            ),
            spec: spec.with_queue(QueueLimit::Bytes(rate * 125 * 50)),
            bits: bits as f64,
            least: 0.5,
        }
    };
    fill(pairs(&[20u64, 100, 500], &times).map(case), 8);
}

/// Half of all frames are lost in both directions: the transfer is slow, but progresses.
#[test]
fn heavy_loss_does_not_starve_a_hop() {
    for (loss, least) in [(0.2, 0.3), (0.5, 0.01)] {
        let (bits, _) = goodput(25, 50, loss, 20);
        println!(
            "25 Mbit/s, 50 ms, {} % loss: {:.2} Mbit/s",
            loss * 100.0,
            bits / 1e6
        );
        assert!(bits > least * 25e6, "{loss}: {bits}");
    }
}

/// On a fast and short link, pacing must produce bursts that use the kernel's segmentation offload.
#[test]
fn a_link_of_five_gigabits_is_filled_with_full_batches() {
    let path = path(5_000_000_000, Duration::from_micros(50));
    let mut pair = Pair::new(1, path.with_queue(QueueLimit::Bytes(1 << 20)));
    saturate(&mut pair, &mut 0, Time::from_millis(300));
    let gigabits = bytes_there(&pair) as f64 * 8.0 / 0.3 / 1e9;
    let batch = pair.net[0].frames as f64 / pair.net[0].transmits as f64;
    println!("{gigabits:.2} Gbit/s, {batch:.1} frames in a batch");
    assert!(gigabits > 4.5, "{gigabits} Gbit/s");
    assert!(batch > 16.0, "{batch} frames in a batch");
}

/// Each of many small messages has its own CSYN, and none waits for a grant.
#[test]
fn small_chunks_flow_without_a_round_trip_each() {
    let mut pair = Pair::new(1, path(25_000_000, Duration::from_millis(25)));
    (0..4_000).for_each(|tag| pair.send(0, tag, chunk(tag, 500)));
    assert!(
        pair.drive_until(Time::from_secs(20), |pair| pair.net[0].delivered.len()
            == 4_000)
    );
    println!("4000 messages of 500 bytes in {}", pair.now());
    // 256 in flight and 50 ms of round trip allow at most 5120 a second; on the wire they take 0.8
    // s.
    assert!(pair.now() < Time::from_millis(1_800), "{}", pair.now());
}
