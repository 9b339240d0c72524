//! A client with several links gets what it fetches over all of them, and never more slowly than
//! over the best one.

use core::time::Duration;

use crate::multihoming::{Access, Make, Place, World, goodput};
use proptest::prelude::*;
use whimbrel_mobilityfirst::host::LinkPolicy;
use whimbrel_mobilityfirst::split::{Scheduler, SplitConfig};

const MIB: usize = 1 << 20;
const CHUNK: f64 = 65_536.0;

/// Goodputs of each link alone: their sum, and the best.
fn alone(make: Make, links: &[Access], len: usize) -> (f64, f64) {
    let alone = links.iter().map(|link| goodput(make, &[*link], len));
    let alone: Vec<f64> = alone.collect();
    (
        alone.iter().sum(),
        alone.iter().copied().fold(0.0, f64::max),
    )
}

/// "Mobilityfirst is capable of better utilization of available resources" [MF-5G §V]: links of
/// comparable rate, round trips of 2 and 40 ms.
#[test]
fn two_links_bring_nearly_their_sum_down_and_up() {
    let links = [Access::new(20, 2), Access::new(20, 40)];
    for place in [Place::OneRouter, Place::Server] {
        let make = Make {
            place,
            ..Make::default()
        };
        let (sum, _) = alone(make, &links, 32 * MIB);
        let both = goodput(make, &links, 32 * MIB);
        println!("{place:?}: {:.3} of the sum", both / sum);
        assert!(both >= 0.95 * sum, "{place:?}: {:.3}", both / sum);
    }
}

#[test]
fn a_host_that_prefers_one_link_uses_one() {
    let make = Make {
        policy: LinkPolicy::Order,
        ..Make::default()
    };
    let mut world = World::new(make, &[Access::new(20, 10), Access::new(20, 10)]);
    world.time_to_get(4 * MIB, Duration::from_secs(60));
    let by_link = world.by_link();
    assert!(by_link[1] < 10_000, "{by_link:?}");
}

/// "An overview of the multihoming" [MF-5G], Fig. 1: the links end at routers of their own, and the
/// router before them divides by the addresses that the name service has.
#[test]
fn links_to_several_routers_are_used_at_once_if_the_host_says_so() {
    let links = [Access::new(20, 10), Access::new(20, 20)];
    for (policy, is_divided) in [(LinkPolicy::All, false), (LinkPolicy::Everywhere, true)] {
        let make = Make {
            place: Place::AccessRouters,
            policy,
            ..Make::default()
        };
        let mut world = World::new(make, &links);
        let time = world.time_to_get(16 * MIB, Duration::from_secs(60));
        let by_link = world.by_link();
        println!("{policy:?}: {time:.2} s, {by_link:?}");
        assert_eq!(world.bytes, 16 * MIB);
        assert_eq!(by_link.iter().all(|bytes| *bytes > 5 << 20), is_divided);
        // 16 MiB take 7 s over one link.
        assert_eq!(time < 5.0, is_divided, "{time:.2} s");
    }
}

/// Who divides sees two equal links to routers, and learns from these how the flow goes on: links of 50 and
/// 2.5 Mbit/s, for long enough that nothing of the start counts.
#[test]
fn unequal_links_behind_routers_of_their_own_are_no_slower_than_the_best_one() {
    for round_trip in [10, 500] {
        let slow = Access {
            rate: 2_500_000,
            ..Access::new(1, round_trip)
        };
        let links = [Access::new(50, 10), slow];
        let make = Make {
            place: Place::AccessRouters,
            policy: LinkPolicy::Everywhere,
            ..Make::default()
        };
        let (sum, best) = alone(make, &links, 48 * MIB);
        let both = goodput(make, &links, 48 * MIB);
        println!(
            "{:.3} of the best, {:.3} of the sum",
            both / best,
            both / sum
        );
        // One chunk of the slow link more or less.
        let late = 48.0 * MIB as f64 * (1.0 / both - 1.0 / best);
        assert!(late <= CHUNK / links[1].rate as f64 * 8.0, "{late:.3} s");
    }
}

/// The prototype's draw by rate and taking turns, for comparison.
#[test]
fn other_schedulers_divide_too() {
    let links = [Access::new(40, 10), Access::new(10, 20)];
    for scheduler in [Scheduler::Paper, Scheduler::RoundRobin] {
        let split = SplitConfig {
            scheduler,
            ..SplitConfig::default()
        };
        let make = Make {
            split,
            ..Make::default()
        };
        let mut world = World::new(make, &links);
        let time = world.time_to_get(8 * MIB, Duration::from_secs(60));
        let by_link = world.by_link();
        println!("{scheduler}: {time:.2} s, {by_link:?}");
        assert!(time.is_finite() && by_link.iter().all(|bytes| *bytes > 100_000));
    }
}

/// What no branch can foresee is bounded in length: nothing of the slow branch's start counts.
#[test]
fn reordering_keeps_to_its_bound() {
    let links = [Access::new(50, 10), Access::new(10, 50)];
    let mut world = World::new(Make::default(), &links);
    world.time_to_get(64 * MIB, Duration::from_secs(60));
    let divided = world.divided();
    let reordering = divided[0].reordering;
    assert!(reordering.most > 0, "{divided:?}");
    assert!(reordering.exceeded <= 2, "{divided:?}");
}

#[test]
fn a_link_that_is_cut_and_comes_back_costs_no_more_than_its_part() {
    for place in [Place::OneRouter, Place::Server] {
        let make = Make {
            place,
            ..Make::default()
        };
        let mut world = World::new(make, &[Access::new(20, 10), Access::new(20, 40)]);
        world.get(32 * MIB);
        world.run(Duration::from_secs(2));
        for link in [0, 1] {
            let from = world.net.now();
            world.cut(link, Duration::from_secs(2));
            world.run(Duration::from_secs(4));
            // 1.25 round trips of the dead link, 1.2 of the other, and what the queues hold.
            let stall = world.longest_stall(from);
            println!("{place:?}: link {link} cut: {stall:?}");
            assert!(stall < Duration::from_millis(250), "{place:?}: {stall:?}");
        }
        let end = world.net.now() + Duration::from_secs(60);
        while world.complete.is_none() && world.step(end) {}
        assert_eq!(world.bytes, 32 * MIB);
    }
}

/// A link that was away for longer than the gain of dividing is judged over is no bad link.
#[test]
fn a_link_that_was_away_for_long_is_used_again_within_a_second() {
    let lasts = [Duration::from_secs(8), Duration::from_secs(20)];
    for (place, lasts) in [Place::OneRouter, Place::Server]
        .into_iter()
        .flat_map(|place| lasts.map(|lasts| (place, lasts)))
    {
        let make = Make {
            place,
            ..Make::default()
        };
        let mut world = World::new(make, &[Access::new(10, 2), Access::new(10, 40)]);
        world.get(80 * MIB);
        world.run(Duration::from_secs(2));
        for link in [0, 1] {
            let from = world.net.now();
            world.cut(link, lasts);
            world.run(lasts + Duration::from_secs(1));
            let stall = world.longest_stall(from);
            let before = world.by_link()[link];
            world.run(Duration::from_secs(3));
            let brought = world.by_link()[link] - before;
            println!("{place:?}: link {link} away for {lasts:?}: {stall:?}, then {brought} bytes");
            assert!(stall < Duration::from_millis(350), "{place:?}: {stall:?}");
            // 3.75 MB fit.
            assert!(brought > 2_500_000, "{place:?}: link {link}: {brought}");
        }
    }
}

prop_compose! {
    fn any_access()(
        mbit in 2u64..50, round_trip_ms in 4u64..200, lossy in 0u8..4, queue_ms in 20u64..300,
    ) -> Access {
        Access {
            loss: if lossy == 0 { 0.005 } else { 0.0 },
            queue: Some(Duration::from_millis(queue_ms)),
            ..Access::new(mbit, round_trip_ms)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    /// "Never below the best single branch": within a few chunks, which the last ones and the first
    /// measurements take.
    #[test]
    fn several_links_are_never_slower_than_the_best_one(
        links in prop::collection::vec(any_access(), 2..4),
        place in prop::sample::select(vec![Place::Server, Place::OneRouter, Place::AccessRouters]),
    ) {
        let policy = match place {
            Place::AccessRouters => LinkPolicy::Everywhere,
            _ => LinkPolicy::All,
        };
        let make = Make { place, policy, ..Make::default() };
        let len = 12 * MIB;
        let (_, best) = alone(make, &links, len);
        let both = goodput(make, &links, len);
        let late = len as f64 / both - len as f64 / best;
        prop_assert!(
            late <= 4.0 * CHUNK / best + 0.02,
            "{late:.3} s later than the best alone ({:.1} of {:.1} Mbit/s)", both * 8e-6, best * 8e-6
        );
    }
}

/// What waits where a flow is divided is bounded by the rate at which it goes on, not by that of the wires in
/// between: else it fills the router's buffer.
#[test]
fn a_second_of_the_last_links_waits_where_they_part_and_not_of_the_wires() {
    let slow = Access {
        rate: 2_500_000,
        ..Access::new(1, 10)
    };
    let make = Make {
        place: Place::AccessRouters,
        policy: LinkPolicy::Everywhere,
        ..Make::default()
    };
    let mut world = World::new(make, &[Access::new(50, 10), slow]);
    world.get(64 * MIB);
    world.run(Duration::from_secs(4));
    let divided = world.divided();
    let waiting = divided[0].waiting_bytes;
    println!("{waiting} bytes wait");
    // 6.6 MB in a second.
    assert!(waiting > 0 && waiting < 10_000_000, "{divided:?}");
}
