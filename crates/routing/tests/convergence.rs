//! Routers find the best ways, whatever happens to their links, and their next hops never form a loop.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

mod network;

use core::time::Duration;

use network::{Pair, World};
use proptest::prelude::*;
use whimbrel_core::SeededRng;

/// Returns a connected network: a random tree, and further links.
fn random_links(routers: usize, more: usize, seed: u64) -> Vec<(Pair, (u64, u64))> {
    let mut rng = SeededRng::new(seed);
    let mut pairs: Vec<Pair> = (1..routers)
        .map(|it| (rng.below(it as u64) as usize, it))
        .collect();
    for _ in 0..more {
        let (one, other) = (rng.below(routers as u64), rng.below(routers as u64));
        let ends = (one.min(other) as usize, one.max(other) as usize);
        if one != other && !pairs.contains(&ends) {
            pairs.push(ends);
        }
    }
    let mut rate = || 100_000 * (1 + rng.below(50));
    pairs
        .into_iter()
        .map(|ends| (ends, (rate(), rate())))
        .collect()
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Fail(usize),
    Restore(usize),
    Flap(usize),
    Reprice(usize, (u64, u64)),
    Crash(usize),
    Start(usize),
    Part(usize),
    Heal,
    Wait(u64),
}

/// Bytes per second.
fn any_rate() -> impl Strategy<Value = u64> {
    (1u64..=50).prop_map(|it| 100_000 * it)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any::<usize>().prop_map(Step::Fail),
        3 => any::<usize>().prop_map(Step::Restore),
        2 => any::<usize>().prop_map(Step::Flap),
        4 => (any::<usize>(), (any_rate(), any_rate())).prop_map(|(link, rates)| Step::Reprice(link, rates)),
        1 => any::<usize>().prop_map(Step::Crash),
        2 => any::<usize>().prop_map(Step::Start),
        1 => any::<usize>().prop_map(Step::Part),
        1 => Just(Step::Heal),
        4 => (1u64..3000).prop_map(Step::Wait),
    ]
}

fn take(world: &mut World, routers: usize, step: Step) {
    let pairs = world.pairs();
    match step {
        Step::Fail(link) => world.fail(pairs[link % pairs.len()]),
        Step::Restore(link) => world.restore(pairs[link % pairs.len()]),
        Step::Flap(link) => {
            let ends = pairs[link % pairs.len()];
            for _ in 0..4 {
                world.fail(ends);
                world.run(Duration::from_millis(120));
                world.restore(ends);
                world.run(Duration::from_millis(120));
            }
        }
        Step::Reprice(link, rates) => world.reprice(pairs[link % pairs.len()], rates),
        Step::Crash(router) => world.crash(router % routers),
        Step::Start(router) => world.start(router % routers),
        Step::Part(at) => {
            let at = at % routers;
            let across = pairs.into_iter().filter(|it| (it.0 <= at) != (it.1 <= at));
            across.for_each(|ends| world.fail(ends));
        }
        Step::Heal => pairs.into_iter().for_each(|ends| world.restore(ends)),
        Step::Wait(ms) => world.run(Duration::from_millis(ms)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(24),
        ..ProptestConfig::default()
    })]

    #[test]
    fn ways_are_optimal_after_quiet_and_never_loop(
        (routers, more, seed, lost) in (3usize..9, 0usize..10, any::<u64>(), 0u64..300),
        steps in prop::collection::vec(any_step(), 0..30),
    ) {
        let links = random_links(routers, more, seed);
        let mut world = World::new(routers, &links, seed);
        world.lost = lost;
        world.run(Duration::from_secs(3));
        for step in steps {
            take(&mut world, routers, step);
        }
        // A link that has flapped is held down for half a minute at most.
        world.run(Duration::from_secs(75));
        prop_assert_eq!(world.faults(), Vec::<String>::new());
    }
}

#[test]
fn a_ring_finds_the_other_way_when_a_link_fails() {
    let links: Vec<(Pair, (u64, u64))> = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]
        .map(|ends| (ends, (1_000_000, 1_000_000)))
        .into();
    let mut world = World::new(5, &links, 1);
    world.run(Duration::from_secs(3));
    assert_eq!(world.faults(), Vec::<String>::new());
    world.fail((0, 1));
    world.run(Duration::from_millis(1200));
    assert_eq!(world.faults(), Vec::<String>::new());
    world.restore((0, 1));
    world.run(Duration::from_secs(2));
    assert_eq!(world.faults(), Vec::<String>::new());
}
