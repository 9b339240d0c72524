//! The end-to-end window [MFTP §3.4.2], in virtual time: a source sends no more than its receiver advises, a
//! transfer whose program keeps up is never slower for it, and a message that is lost, a program that stops and a
//! receiver that vanishes hold nothing up for good.

use core::time::Duration;

use proptest::prelude::*;

use crate::multihoming::{self, Access, Make, Place};
use crate::world::{Content, World};
use whimbrel_mobilityfirst::host::LinkPolicy;

const MIB: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Of a host's back-pressure buffer, in packets: a program may hold a third, some 400 KiB.
const BUFFER: usize = 1_024;

/// A source at host 1, and its content.
fn serving(len: usize, seed: u64) -> (World, Content) {
    serving_with(BUFFER, len, seed)
}

fn serving_with(buffer: usize, len: usize, seed: u64) -> (World, Content) {
    let mut world = World::with_rate(buffer, 1_000_000_000);
    let server = world.attach(1);
    let content = Content::new(len, seed);
    world.serve(server, &content);
    (world, content)
}

#[test]
fn a_source_stops_when_the_program_stops() {
    let (mut world, content) = serving(32 * MIB, 1);
    let reader = world.attach(0);
    world.get(reader, 1, &content, false);
    world.run_until(SECOND, |world| world.programs[reader].got.len() == 1);
    world.stop(reader, true);
    world.run(SECOND);
    let sent = world.hosts[1].status(world.now).counters.chunks_sent;
    world.run(20 * SECOND);
    let later = world.hosts[1].status(world.now).counters.chunks_sent;
    // Renewals of records, and nothing of the content.
    assert!(later <= sent + 8, "{sent} and then {later}");
    // Of 512 chunks, what the window let pass.
    assert!(sent < 100, "{sent}");
    let told = world.hosts[0].status(world.now).counters.windows_sent;
    assert!(told <= 3, "{told} messages to a source that has stopped");
    world.stop(reader, false);
    assert!(world.run_until(MINUTE, |world| world.has(reader, 1)));
}

/// "Small content transfers are not subject to such end-to-end flow control."
#[test]
fn a_short_transfer_needs_no_message() {
    let (mut world, content) = serving(300_000, 2);
    let reader = world.attach(0);
    world.get(reader, 1, &content, false);
    assert!(world.run_until(5 * SECOND, |world| world.has(reader, 1)));
    let counters = world.hosts[0].status(world.now).counters;
    assert_eq!((counters.windows_sent, counters.nacks_sent), (0, 0));
}

#[test]
fn a_program_that_keeps_up_has_its_window_doubled_each_time() {
    // A program may hold 59 chunks, so that the first window has 200 of 512.
    let (mut world, content) = serving_with(8 * BUFFER, 32 * MIB, 3);
    let reader = world.attach(0);
    world.get(reader, 1, &content, false);
    assert!(world.run_until(MINUTE, |world| world.has(reader, 1)));
    let counters = world.hosts[0].status(world.now).counters;
    // After 100 and 200 more: then the rest fits.
    let sent = counters.windows_sent;
    assert!((1..=3).contains(&sent), "{sent}");
}

/// Forty programs that have stopped draw no message each time that a chunk finds no room.
#[test]
fn stopped_programs_draw_few_messages() {
    let (mut world, content) = serving(8 * MIB, 5);
    for _ in 0..40 {
        let stopped = world.attach(0);
        world.get(stopped, 1, &content, false);
        world.stop(stopped, true);
        world.run(Duration::from_millis(100));
    }
    world.run(20 * SECOND);
    let counters = world.hosts[0].status(world.now).counters;
    assert!(counters.windows_sent <= 80, "{}", counters.windows_sent);
}

/// The message that opens the window may go down with the router; the receiver's timer makes up for it.
#[test]
fn a_lost_message_costs_the_time_of_the_receivers_timer() {
    let (mut world, content) = serving(16 * MIB, 4);
    let reader = world.attach(0);
    world.get(reader, 1, &content, false);
    for part in 1..4 {
        let has = |world: &World| world.programs[reader].got.get(&1) > Some(&(part * 3 * MIB));
        assert!(world.run_until(20 * SECOND, has), "{part}");
        world.restart_router();
    }
    assert!(world.run_until(30 * SECOND, |world| world.has(reader, 1)));
}

/// How long a transfer takes with a first window of this size.
fn time_with(window: u64, make: Make, links: &[Access], len: usize) -> f64 {
    let make = Make { window, ..make };
    multihoming::World::new(make, links).time_to_get(len, 10 * MINUTE)
}

/// A first window of four chunks costs a transfer a few round trips, and then no more than a large one: over one
/// link with a large product of rate and delay, and over two unequal ones that part and reorder.
#[test]
fn a_small_first_window_costs_a_few_round_trips_and_no_rate() {
    let slow = Access {
        rate: 2_500_000,
        ..Access::new(1, 500)
    };
    let wide = Access::new(200, 400);
    let far = Make {
        place: Place::AccessRouters,
        policy: LinkPolicy::Everywhere,
        ..Make::default()
    };
    let cases: [(Make, &[Access], usize); 3] = [
        (Make::default(), &[wide], 96),
        (far, &[Access::new(50, 10), slow], 32),
        (
            Make::default(),
            &[Access::new(20, 2), Access::new(20, 40)],
            24,
        ),
    ];
    for (make, links, mib) in cases {
        let [small, large] = [1, 64 << 20].map(|window| time_with(window, make, links, mib * MIB));
        let round_trip = links
            .iter()
            .map(|it| it.round_trip)
            .max()
            .unwrap_or_default();
        println!("{links:?}: {small:.3} s with a small one, {large:.3} s");
        // The window doubles with each half that comes, and a chunk has to be whole.
        let allowed = 4.0 * round_trip.as_secs_f64() + 0.3;
        assert!(small <= large + allowed, "{small:.3} s, {large:.3} s");
    }
}

/// What is lost with a link uses up a small window: the receiver advises again.
#[test]
fn a_small_window_that_a_link_takes_along_is_given_again() {
    for round_trip in [10, 100] {
        let make = Make {
            place: Place::AccessRouters,
            policy: LinkPolicy::Everywhere,
            chunk_log2: 16,
            inbound: true,
            window: 1,
            ..Make::default()
        };
        let access = Access::new(20, round_trip);
        let mut world = multihoming::World::new(make, &[access, access]);
        world.get(24 * MIB);
        for cut_at in [300, 1_700] {
            world.run(Duration::from_millis(cut_at));
            let from = world.net.now();
            world.cut(0, SECOND);
            world.run(SECOND);
            let stall = world.longest_stall(from);
            println!("{round_trip} ms, cut after {cut_at} ms: {stall:?}");
            assert!(stall < SECOND, "{round_trip} ms: {stall:?}");
        }
        let end = world.net.now() + MINUTE;
        while world.complete.is_none() && world.step(end) {}
        assert_eq!(world.bytes, 24 * MIB, "{round_trip} ms");
    }
}

/// What happens to a slow program beside a fast one.
#[derive(Clone, Copy, Debug)]
enum Step {
    Stop,
    Go,
    RestartRouter,
    Away,
    Run,
}

fn any_step() -> impl Strategy<Value = (Step, u64)> {
    let steps = prop::sample::select(vec![
        Step::Stop,
        Step::Go,
        Step::RestartRouter,
        Step::Away,
        Step::Run,
    ]);
    (steps, 1u64..2_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Whatever is lost on the way, both have everything once the troubles are over, a third one that vanishes
    /// leaves nothing behind, and all memory is given back.
    #[test]
    fn slow_and_fast_programs_get_everything(
        steps in prop::collection::vec(any_step(), 1..12), seed: u64, in_order: bool,
    ) {
        let (mut world, content) = serving(6 * MIB, seed);
        let (slow, fast, third) = (world.attach(0), world.attach(0), world.attach(0));
        let server = world.attach(1);
        let own = Content::new(4 * MIB, seed ^ 1);
        world.serve(server, &own);
        world.get(slow, 1, &content, in_order);
        world.get(third, 3, &content, false);
        world.get(fast, 2, &own, false);
        // A router that has restarted knows no names for a moment.
        world.run(Duration::from_millis(20));
        for (number, (step, millis)) in steps.into_iter().enumerate() {
            match step {
                Step::Stop => world.stop(slow, true),
                Step::Go => world.stop(slow, false),
                Step::RestartRouter => world.restart_router(),
                Step::Away => world.connected[0] = false,
                Step::Run => {}
            }
            world.run(Duration::from_millis(millis));
            world.connected[0] = true;
            if number == 0 {
                world.leave(third);
            }
        }
        prop_assert!(world.run_until(2 * MINUTE, |world| world.has(fast, 2)), "the fast one");
        world.stop(slow, false);
        prop_assert!(world.run_until(2 * MINUTE, |world| world.has(slow, 1)), "the slow one");
        world.run(2 * SECOND);
        prop_assert_eq!(world.hosts[0].buffer().0, 0);
        prop_assert_eq!(world.hosts[0].status(world.now).downloads, 0);
    }
}
