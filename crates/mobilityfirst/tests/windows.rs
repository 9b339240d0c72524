//! The end-to-end window [MFTP §3.4.2], in virtual time: a source sends no more than its receiver advises, and
//! a message that is lost, a program that stops and a receiver that vanishes hold nothing up for good.

mod support;
mod world;

use core::time::Duration;

use proptest::prelude::*;

use world::{Content, World};

const MIB: usize = 1 << 20;
const SECOND: Duration = Duration::from_secs(1);
/// Of a host's back-pressure buffer, in packets: a program may hold a third, some 400 KiB.
const BUFFER: usize = 1_024;

/// A source at host 1, and its content.
fn serving(len: usize, seed: u64) -> (World, Content) {
    let mut world = World::with_buffers(BUFFER);
    let server = world.attach(1);
    let content = Content::new(len, seed);
    world.serve(server, &content);
    (world, content)
}

#[test]
fn a_source_stops_after_its_window_when_the_program_stops() {
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
    // Of 512 chunks, what the windows let pass.
    assert!(sent < 100, "{sent}");
    world.stop(reader, false);
    assert!(world.run_until(60 * SECOND, |world| world.has(reader, 1)));
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
fn one_message_is_sent_for_half_a_window_at_most() {
    let (mut world, content) = serving(32 * MIB, 3);
    let reader = world.attach(0);
    world.get(reader, 1, &content, false);
    assert!(world.run_until(60 * SECOND, |world| world.has(reader, 1)));
    let counters = world.hosts[0].status(world.now).counters;
    // 512 chunks, of which the program may hold seven.
    let sent = counters.windows_sent;
    assert!((512 / 14..=512 / 3).contains(&sent), "{sent}");
}

/// The message that opens the window goes down with the router; the receiver's timer makes up for it.
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
        prop_assert!(world.run_until(120 * SECOND, |world| world.has(fast, 2)), "the fast one");
        world.stop(slow, false);
        prop_assert!(world.run_until(120 * SECOND, |world| world.has(slow, 1)), "the slow one");
        world.run(2 * SECOND);
        prop_assert_eq!(world.hosts[0].buffer().0, 0);
        prop_assert_eq!(world.hosts[0].status(world.now).downloads, 0);
    }
}
