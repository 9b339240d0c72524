//! Clocks that are wrong, or are set while nodes run.
#![allow(clippy::unwrap_used, reason = "a test")]

use core::time::Duration;

use crate::world::{Content, WALL, World};
use whimbrel_core::WallClock;
use whimbrel_mobilityfirst::host::ClockDifference;

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;
const BUFFER: usize = 32_768;

/// A world whose first host, which serves `content`, has a clock ahead by so many milliseconds.
fn serving_ahead(millis: i64, content: &Content) -> World {
    let mut world = World::with_clock(BUFFER, WALL.shifted(millis));
    let server = world.attach(0);
    world.serve(server, content);
    world
}

/// Fetches the content at the second host, which takes less than a second.
fn assert_fetched(world: &mut World, content: &Content, when: &str) {
    let reader = world.attach(1);
    world.get(reader, 1, content, false);
    let done = world.run_until(Duration::from_secs(1), |world| world.has(reader, 1));
    assert!(done, "not fetched {when}");
}

fn difference(world: &World) -> Option<ClockDifference> {
    world.hosts[0].status(world.now).clock
}

#[test]
fn a_host_whose_clock_is_wrong_serves_by_its_routers_clock_and_says_so() {
    let content = Content::new(300_000, 1);
    for ahead in [-61 * SECOND, -70 * SECOND, 301 * SECOND, -HOUR, 3 * HOUR] {
        let mut world = serving_ahead(ahead, &content);
        assert_fetched(
            &mut world,
            &content,
            &format!("with a clock {ahead} ms ahead"),
        );
        let found = difference(&world).unwrap();
        assert!(found.adopted);
        assert!(found.router_ahead_ms.abs_diff(-ahead) < 100, "{found:?}");
    }
    // A machine without a battery starts in 1970.
    let mut world = World::with_clock(BUFFER, WallClock::new(0));
    let server = world.attach(0);
    world.serve(server, &content);
    assert_fetched(&mut world, &content, "with a clock that was never set");
}

#[test]
fn clocks_that_differ_by_seconds_are_left_alone() {
    let content = Content::new(300_000, 1);
    for ahead in [-25 * SECOND, 0, 25 * SECOND] {
        let mut world = serving_ahead(ahead, &content);
        assert_fetched(
            &mut world,
            &content,
            &format!("with a clock {ahead} ms ahead"),
        );
        assert_eq!(difference(&world), None);
        // Beyond a renewal.
        world.run(Duration::from_secs(70));
        assert_fetched(&mut world, &content, "after a minute");
    }
}

#[test]
fn no_router_moves_a_hosts_clock_by_days_and_the_refusal_has_a_reason() {
    let content = Content::new(300_000, 1);
    let world = serving_ahead(10 * DAY, &content);
    assert_eq!(difference(&world).map(|it| it.adopted), Some(false));
    let drops = world.hosts[0].status(world.now).counters.drops;
    assert!(drops.contains_key("clock-refused"), "{drops:?}");
}

#[test]
fn a_router_whose_clock_is_set_judges_by_it_and_tells_its_hosts() {
    let content = Content::new(300_000, 1);
    for step in [400 * SECOND, -61 * SECOND, HOUR, -HOUR] {
        let mut world = serving_ahead(0, &content);
        world.router.set_wall_clock(world.now, WALL.shifted(step));
        world.run(Duration::from_millis(100));
        assert_fetched(&mut world, &content, &format!("after a step by {step} ms"));
        // The records that were made by the old clock have ended by any.
        world.run(Duration::from_secs(70));
        assert_fetched(&mut world, &content, "a minute later");
        let found = difference(&world).unwrap();
        assert!(found.router_ahead_ms.abs_diff(step) < 100, "{found:?}");
        // Now the host's clock is set as well.
        let now = world.now;
        world.hosts[0].set_wall_clock(now, WALL.shifted(step));
        world.run(Duration::from_millis(100));
        assert_eq!(difference(&world), None);
        assert_fetched(&mut world, &content, "once the clocks agree");
    }
}

#[test]
fn all_records_are_made_anew_after_a_suspend_of_all_machines() {
    let content = Content::new(300_000, 1);
    let mut world = serving_ahead(0, &content);
    let (now, later) = (world.now, WALL.shifted(HOUR));
    for host in &mut world.hosts {
        host.set_wall_clock(now, later);
    }
    world.router.set_wall_clock(now, later);
    world.run(Duration::from_millis(100));
    assert_fetched(&mut world, &content, "after an hour of suspend");
    assert_eq!(difference(&world), None);
}

#[test]
fn no_time_that_a_router_claims_harms_a_host_that_has_none() {
    let content = Content::new(300_000, 1);
    for claimed in [i64::MAX as u64 - 1_000_000, u64::MAX / 1_000, u64::MAX, 1] {
        let mut world = World::with_clock(BUFFER, WallClock::new(0));
        let server = world.attach(0);
        world.serve(server, &content);
        // Each challenge has the host sign another record.
        for _ in 0..3 {
            let lie = WallClock::new(claimed);
            world.router.set_wall_clock(world.now, lie);
            world.run(Duration::from_millis(100));
        }
        world.router.set_wall_clock(world.now, WALL);
        world.run(Duration::from_secs(10));
        assert_fetched(&mut world, &content, &format!("after a claim of {claimed}"));
    }
}
