//! Shares of one queue, in virtual time: 20 Mbit/s, 50 ms, a drop-tail queue. BDP: 125 kB.

use core::time::Duration;

use crate::shared::tcp::Kind;
use crate::shared::{Flow, Shared, path};
use whimbrel_core::Time;
use whimbrel_link::Pacing;
use whimbrel_sim::link::Loss;

const FAIR: Flow = Flow::Hop(Pacing::Bottleneck);
const SCAVENGER: Flow = Flow::Hop(Pacing::Scavenger);
const RATE: f64 = 20e6;

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

fn all_along(flow: Flow) -> (Flow, Time, Time) {
    (flow, Time::from_millis(100), at(1_000))
}

/// Returns Jain's index of fairness: 1 if all have the same, 1 / n if one has everything.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn one_flow_of_tcp_leaves_and_gets_a_share() {
    let (mut table, mut misses) = (String::new(), 0);
    for other in [Kind::Cubic, Kind::Bbr] {
        for bdp in [0.5, 1.0, 2.0, 4.0] {
            // BBR (version 1) overfills a short queue whatever is lost; a hop then sends what gets through.
            let (starts, bounds) = match other {
                Kind::Bbr if bdp < 2.0 => (4, 0.05..=0.65),
                Kind::Bbr => (1, 0.35..=0.80),
                Kind::Cubic => (1, 0.30..=0.70),
            };
            let (mut share, mut least_sum) = (0.0, f64::MAX);
            for start in 0..starts {
                let begins = Time::from_millis(100 + start * 37);
                let flows = [(FAIR, begins, at(1_000)), all_along(Flow::Tcp(other))];
                let mut net = Shared::new(1 + start, &path(bdp), &flows);
                let rates = net.rates(at(5), at(65));
                let sum = rates[0] + rates[1];
                least_sum = least_sum.min(sum / RATE);
                share += rates[0] / sum / starts as f64;
            }
            table += &format!("{other:?}, {bdp} BDP: {share:.2} of {least_sum:.2}\n");
            misses += u32::from(!bounds.contains(&share) || least_sum < 0.9);
        }
    }
    println!("{table}");
    assert_eq!(misses, 0, "{table}");
}

#[test]
fn alone_a_hop_keeps_the_queue_short_in_the_deepest_buffer() {
    let mut net = Shared::new(1, &path(4.0), &[all_along(FAIR)]);
    let rates = net.rates(at(5), at(35));
    assert!(rates[0] > 0.94 * RATE, "{rates:?}");
    let late = net.queueing(at(35), at(65));
    println!("95 % of the time the queue takes less than {late:?}");
    assert!(late < Duration::from_millis(10), "{late:?}");
}

#[test]
fn random_loss_does_not_slow_a_hop() {
    for (loss, least) in [(0.01, 0.93), (0.05, 0.85)] {
        let path = path(4.0).with_loss(Loss::Independent(loss));
        let mut net = Shared::new(1, &path, &[all_along(FAIR)]);
        let rates = net.rates(at(5), at(35));
        println!("{loss}: {rates:?}");
        assert!(rates[0] > least * RATE, "{loss}: {rates:?}");
    }
}

/// Starts within half a second of each other, some together.
fn staggered(count: u64, variant: u64) -> Vec<(Flow, Time, Time)> {
    let start = |index| 100 + index * 7_919 * variant % 500;
    let flow = |index| (FAIR, Time::from_millis(start(index)), at(1_000));
    (0..count).map(flow).collect()
}

/// Returns Jain's index, the sum as a share of the link, and the share of packets that the queue
/// drops, once all have found their share.
fn settled(count: u64, variant: u64, bdp: f64) -> (f64, f64, f64) {
    let mut net = Shared::new(1, &path(bdp), &staggered(count, variant));
    net.rates(at(5), at(30));
    let (lost, sent) = (net.link_stats().dropped_queue, net.link_stats().delivered);
    let rates = net.rates(at(30), at(90));
    let lost = (net.link_stats().dropped_queue - lost) as f64;
    let loss = lost / ((net.link_stats().delivered - sent) as f64 + lost);
    (jain(&rates), rates.iter().sum::<f64>() / RATE, loss)
}

/// A queue too short to be seen is not overfilled for ever either. Four hops are shown: what one of
/// them sends less makes too small a difference.
#[test]
fn two_hops_share_a_queue_of_a_tenth() {
    let (mut table, mut misses) = (String::new(), 0);
    for (count, most_lost) in [(2, 0.10), (4, 0.4)] {
        for variant in 0..2 {
            let (index, sum, loss) = settled(count, variant, 0.1);
            table += &format!(
                "{count} in 0.1 BDP: {index:.3} of {sum:.2}, {:.1} % lost\n",
                100.0 * loss
            );
            let is_even = index > 0.95 || count > 2;
            misses += u32::from(!is_even || sum < 0.9 || loss > most_lost);
        }
    }
    println!("{table}");
    assert_eq!(misses, 0, "{table}");
}

/// Once all have found their share, little is lost either. Sixteen, of five packets each in a
/// round trip, are shown: a short queue is too small for them, but nobody is left with nothing.
#[test]
fn several_hops_share_evenly() {
    let (mut table, mut misses) = (String::new(), 0);
    for (count, variants) in [(2, 0..2), (8, 0..2), (16, 1..2)] {
        for (variant, bdp) in variants.flat_map(|it| [(it, 0.5), (it, 1.0), (it, 4.0)]) {
            let (index, sum, loss) = settled(count, variant, bdp);
            table += &format!(
                "{count} in {bdp} BDP: {index:.3} of {sum:.2}, {:.1} % lost\n",
                100.0 * loss
            );
            let bounds = match count {
                16 => (0.2, 0.45),
                8 => (0.7, 0.05),
                // By size of the chunks and of the headers, 0.8 to 1.
                _ => (0.8, 0.05),
            };
            misses += u32::from(index < bounds.0 || sum < 0.9 || loss > bounds.1);
        }
    }
    println!("{table}");
    assert_eq!(misses, 0, "{table}");
}

#[test]
fn when_tcp_has_left_the_queue_is_short_again() {
    for kind in [Kind::Cubic, Kind::Bbr] {
        let tcp = (Flow::Tcp(kind), Time::from_millis(100), at(30));
        let mut net = Shared::new(1, &path(2.0), &[all_along(FAIR), tcp]);
        let beside = net.rates(at(5), at(30));
        net.rates(at(30), at(70));
        let late = net.queueing(at(70), at(100));
        println!("{kind:?}: {beside:.0?}, then {late:?}");
        // By size of the chunks, 8 to 20 ms.
        assert!(late < Duration::from_millis(25), "{kind:?}: {late:?}");
    }
}

/// CoDel (RFC 8289) with ECN is what many home routers do.
#[test]
fn marks_of_a_queue_are_answered_and_nothing_is_lost() {
    let path = || path(4.0).with_codel(Duration::from_millis(5));
    let mut net = Shared::new(1, &path(), &[all_along(FAIR)]);
    let rates = net.rates(at(5), at(65));
    let (stats, sent) = (*net.link_stats(), net.net[0].hop(0).stats());
    println!(
        "alone: {rates:.0?}, {} marked, {} dropped",
        stats.marked, stats.dropped_queue
    );
    assert!(rates[0] > 0.90 * RATE, "{rates:?}");
    assert!(sent.ecn && sent.marks_reported == stats.marked);
    assert_eq!((stats.dropped_queue, sent.data_resent), (0, 0));
    let late = net.queueing(at(65), at(95));
    assert!(late < Duration::from_millis(12), "{late:?}");
    for (other, count) in [
        (Flow::Tcp(Kind::Cubic), 1),
        (Flow::Tcp(Kind::Cubic), 4),
        (FAIR, 1),
    ] {
        let mut flows = vec![all_along(FAIR)];
        flows.extend(vec![all_along(other); count]);
        let mut net = Shared::new(1, &path(), &flows);
        let rates = net.rates(at(5), at(65));
        let (sum, stats) = (rates.iter().sum::<f64>(), *net.link_stats());
        let share = rates[0] / sum * (count + 1) as f64;
        println!(
            "beside {count} {other:?}: {share:.2} of an even share of {:.2}, {} marked, {} dropped",
            sum / RATE,
            stats.marked,
            stats.dropped_queue
        );
        assert!(sum > 0.88 * RATE, "{other:?}: {rates:?}");
        assert!((0.6..=3.2).contains(&share), "{other:?}: {rates:?}");
        // Two hops may fill 4 BDP once.
        let bound = if matches!(other, Flow::Hop(_)) {
            stats.delivered / 100
        } else {
            0
        };
        assert!(stats.dropped_queue <= bound, "{other:?}: {stats:?}");
    }
    let mut net = Shared::new(1, &path(), &[all_along(SCAVENGER), all_along(FAIR)]);
    let rates = net.rates(at(5), at(65));
    println!("scavenger: {rates:.0?}");
    // CoDel takes from a scavenger the queue by which it knows others (RFC 6817 §4.4).
    assert!(rates[0] < 0.4 * RATE, "{rates:?}");
}

/// A dedicated rate answers to nothing, so it must not ask for marks.
#[test]
fn a_dedicated_rate_is_not_ecn_capable() {
    let path = path(1.0).with_codel(Duration::from_millis(5));
    let mut net = Shared::new(1, &path, &[all_along(Flow::Hop(Pacing::Fixed(8_000_000)))]);
    net.rates(at(1), at(5));
    assert!(!net.net[0].hop(0).stats().ecn);
}

#[test]
fn a_scavenger_takes_what_is_left() {
    let mut net = Shared::new(1, &path(1.0), &[all_along(SCAVENGER)]);
    let alone = net.rates(at(10), at(40));
    assert!(alone[0] > 0.84 * RATE, "alone: {alone:?}");
    for other in [FAIR, Flow::Tcp(Kind::Cubic), Flow::Tcp(Kind::Bbr)] {
        let other_for_a_while = (other, Time::from_millis(100), at(60));
        let flows = [all_along(SCAVENGER), other_for_a_while];
        let mut net = Shared::new(1, &path(1.0), &flows);
        let beside = net.rates(at(10), at(60));
        let after = net.rates(at(75), at(90));
        println!("{other:?}: {beside:.0?}, then {after:.0?}");
        assert!(beside[0] < 0.18 * RATE, "{other:?}: {beside:?}");
        assert!(beside[1] > 0.75 * RATE, "{other:?}: {beside:?}");
        assert!(after[0] > 0.7 * RATE, "{other:?}: {after:?}");
    }
}

#[test]
fn a_dedicated_rate_is_held_beside_anybody() {
    let dedicated = Flow::Hop(Pacing::Fixed(8_000_000));
    for other in [FAIR, Flow::Tcp(Kind::Cubic), Flow::Tcp(Kind::Bbr)] {
        let mut net = Shared::new(1, &path(1.0), &[all_along(dedicated), all_along(other)]);
        let rates = net.rates(at(5), at(35));
        println!("{other:?}: {rates:.0?}");
        assert!((7.0e6..=8.1e6).contains(&rates[0]), "{other:?}: {rates:?}");
    }
}

#[test]
fn many_flows_of_tcp_keep_a_part_and_a_hop_gets_its_share() {
    let (mut table, mut misses) = (String::new(), 0);
    for (count, latest) in [(4, 0), (8, 0), (4, 20), (8, 20)] {
        for bdp in [1.0, 4.0] {
            let tcp = (
                Flow::Tcp(Kind::Cubic),
                Time::from_millis(100 + latest * 1_000),
                at(1_000),
            );
            let mut flows = vec![all_along(FAIR)];
            flows.extend(vec![tcp; count]);
            let mut net = Shared::new(1, &path(bdp), &flows);
            let rates = net.rates(at(25), at(85));
            let share = rates[0] / rates.iter().sum::<f64>();
            table += &format!("{count} from {latest} s, {bdp} BDP: {share:.2}\n");
            // As BBR does, a hop holds what it has, however many losses make others yield.
            let even = 1.0 / (count + 1) as f64;
            misses += u32::from(share < 0.3 * even || share > 0.7);
        }
    }
    println!("{table}");
    assert_eq!(misses, 0, "{table}");
}
