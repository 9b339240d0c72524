//! "Dynamic mobility, both micro-level handoff and macro-level roaming" [MF-5G §III]: a client whose
//! link goes is attached by the other one at once, if its kernel says so.

use core::time::Duration;

use crate::multihoming::{Access, Make, Place, World};
use whimbrel_mobilityfirst::host::LinkPolicy;
use whimbrel_mobilityfirst::split::SplitConfig;

const MIB: usize = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);

/// The longest stall of a transfer in which the first of two links to different routers goes after
/// two seconds.
fn stall(round_trip_ms: u64, tells: bool, inbound: bool) -> Duration {
    let make = Make {
        place: Place::AccessRouters,
        policy: LinkPolicy::Order,
        chunk_log2: 16,
        inbound,
        ..Make::default()
    };
    let access = Access::new(20, round_trip_ms);
    let mut world = World::new(make, &[access, access]);
    world.get(12 * MIB);
    world.run(Duration::from_secs(2));
    let from = world.net.now();
    world.cut(0, MINUTE);
    if tells {
        world.set_carrier(0, false);
    }
    while world.complete.is_none() && world.step(from + MINUTE) {}
    assert_eq!(world.bytes, 12 * MIB, "{round_trip_ms} ms, told: {tells}");
    world.longest_stall(from)
}

#[test]
fn what_waits_at_the_former_router_follows_a_client_whose_kernel_tells_of_the_move() {
    // The routers may also have been told to call it.
    let all = [10, 40, 100].map(|round_trip| [(round_trip, true), (round_trip, false)]);
    for (round_trip, inbound) in all.into_iter().flatten() {
        let told = stall(round_trip, true, inbound);
        let silent = stall(round_trip, false, inbound);
        println!("{round_trip} ms: {told:?} with a link event, {silent:?} without");
        // The record goes to the new router, the former one is told, and what waits there comes: a
        // round trip and the wires. On a link that has carried nothing yet, a chunk of 46 packets
        // takes up to two more. A chunk before and one after it, of 27 ms each, are whole late.
        let allowed = Duration::from_millis(3 * round_trip + 60);
        assert!(told <= allowed, "{round_trip} ms: {told:?}");
        assert!(
            silent >= told + Duration::from_millis(300),
            "{round_trip} ms: {silent:?}"
        );
    }
}

/// The router before both links divides by a binding that is out of date, until the former access
/// router, which gets chunks for a host that has left, tells it.
#[test]
fn a_divided_transfer_goes_on_by_the_link_that_is_left() {
    for (round_trip, inbound) in [(10, true), (40, true), (100, true), (40, false)] {
        let make = Make {
            place: Place::AccessRouters,
            policy: LinkPolicy::Everywhere,
            split: SplitConfig::default(),
            chunk_log2: 16,
            inbound,
            ..Make::default()
        };
        let access = Access::new(20, round_trip);
        let mut world = World::new(make, &[access, access]);
        world.get(24 * MIB);
        world.run(Duration::from_secs(2));
        let from = world.net.now();
        world.cut(0, MINUTE);
        world.set_carrier(0, false);
        while world.complete.is_none() && world.step(from + MINUTE) {}
        let stall = world.longest_stall(from);
        println!("{round_trip} ms: {stall:?}");
        assert_eq!(world.bytes, 24 * MIB, "{round_trip} ms");
        assert!(stall < Duration::from_secs(1), "{round_trip} ms: {stall:?}");
    }
}

/// The driver may be wrong: packets of the router tell otherwise.
#[test]
fn a_link_that_works_whatever_the_kernel_says_is_used() {
    let make = Make {
        policy: LinkPolicy::Order,
        ..Make::default()
    };
    let mut world = World::new(make, &[Access::new(20, 10)]);
    world.get(8 * MIB);
    world.run(Duration::from_millis(500));
    world.set_carrier(0, false);
    let end = world.net.now() + MINUTE;
    while world.complete.is_none() && world.step(end) {}
    assert_eq!(world.bytes, 8 * MIB);
}

/// Make before break: the second link comes while the transfer goes on, and the first one goes later. The
/// name service tells the router before both links of the second one at once, so that the flow is divided
/// there when the first one goes.
#[test]
fn a_transfer_is_divided_over_a_link_that_comes_after_it_began() {
    for round_trip in [10, 40, 100] {
        let make = Make {
            place: Place::AccessRouters,
            policy: LinkPolicy::Everywhere,
            split: SplitConfig::default(),
            chunk_log2: 16,
            inbound: true,
            ..Make::default()
        };
        let access = Access::new(20, round_trip);
        let mut world = World::new(make, &[access, access]);
        world.cut(1, Duration::from_millis(5_900));
        world.set_carrier(1, false);
        world.run(Duration::from_secs(2));
        world.get(24 * MIB);
        // Its publication took two of the six seconds.
        world.run(Duration::from_secs(2));
        assert!(world.divided().iter().all(|it| it.branches.len() < 2));
        world.set_carrier(1, true);
        world.run(Duration::from_millis(500));
        let divided = world.divided();
        let [flow] = divided.as_slice() else {
            panic!("{round_trip} ms: {divided:?}");
        };
        assert_eq!(flow.branches.len(), 2, "{round_trip} ms");
        assert!(flow.branches.iter().all(|it| it.bytes > 0), "{flow:?}");
        let from = world.net.now();
        world.cut(0, MINUTE);
        world.set_carrier(0, false);
        while world.complete.is_none() && world.step(from + MINUTE) {}
        assert_eq!(world.bytes, 24 * MIB, "{round_trip} ms");
        let stall = world.longest_stall(from);
        println!("{round_trip} ms: {stall:?}");
        assert!(
            stall < Duration::from_millis(100 + round_trip),
            "{round_trip} ms: {stall:?}"
        );
    }
}

/// Make before break, one link at a time: the user prefers the second link while the first one works. What is
/// under way comes by the second one from then on, and nothing stops when the first one goes.
#[test]
fn a_transfer_under_way_moves_to_the_link_that_is_preferred() {
    for round_trip in [10, 40, 100] {
        let make = Make {
            place: Place::AccessRouters,
            policy: LinkPolicy::Order,
            chunk_log2: 14,
            inbound: true,
            ..Make::default()
        };
        let access = Access::new(20, round_trip);
        let mut world = World::new(make, &[access, access]);
        world.get(16 * MIB);
        world.run(Duration::from_secs(1));
        let before = world.by_link();
        let preferred = world.net.now();
        world.manage("{\"preference\": [\"link-1\"]}");
        world.run(Duration::from_millis(1_500));
        let after = world.by_link();
        assert!(after[1] > before[1] + (MIB as u64), "{before:?}, {after:?}");
        // What waited before the first link came by that.
        world.run(Duration::from_millis(500));
        let last = world.by_link();
        // Records and their answers apart.
        assert!(last[0] < after[0] + 4_096, "{after:?}, {last:?}");
        world.cut(0, MINUTE);
        world.set_carrier(0, false);
        let end = world.net.now() + MINUTE;
        while world.complete.is_none() && world.step(end) {}
        assert_eq!(world.bytes, 16 * MIB, "{round_trip} ms");
        let stall = world.longest_stall(preferred);
        println!("{round_trip} ms: {stall:?}");
        assert!(stall < Duration::from_millis(round_trip), "{stall:?}");
    }
}
