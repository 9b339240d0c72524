//! Contents that their receiver has not requested, in virtual time: the sender leaves, the receiver comes
//! later, refuses, floods, and restarts of both.

use core::time::Duration;

use whimbrel_mobilityfirst::local::{OfferVerdict, SendState};

use crate::world::{Content, World};

const SECOND: Duration = Duration::from_secs(1);
const LEN: usize = 700_000;

/// The program that sends, and the one that receives.
fn two(world: &mut World) -> (usize, usize) {
    (world.attach(0), world.attach(1))
}

fn state(world: &World, program: usize) -> Option<SendState> {
    world.programs[program].sending.get(&1).copied()
}

#[test]
fn a_content_comes_to_a_receiver_that_takes_offers() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    let content = Content::new(LEN, 1);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    assert!(world.run_until(5 * SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    assert_eq!(offer.id.sender, world.hosts[0].guid());
    assert_eq!(offer.content.content, content.name());
    assert_eq!(offer.content.content_len, LEN as u64);
    assert_eq!(offer.content.file_name, "content");
    world.accept(receiver, 9, &offer, &content);
    assert!(world.run_until(20 * SECOND, |world| world.has(receiver, 9)));
    world.settle(receiver, &offer, OfferVerdict::Received);
    let delivered = |world: &World| state(world, sender) == Some(SendState::Delivered);
    assert!(world.run_until(5 * SECOND, delivered));
    // One offer, whatever the number of chunks, and nothing asked for.
    assert_eq!(world.programs[receiver].offers.len(), 1);
    let counters = world.hosts[1].status(world.now).counters;
    assert_eq!((counters.requests_sent, counters.nacks_sent), (0, 0));
    assert_eq!(world.hosts[0].status(world.now).uploads, 0);
}

/// It is complete without a chunk. Its one chunk, which is there, must not stop the sender.
#[test]
fn an_empty_content_is_not_refused_before_its_program_settles_it() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    let content = Content::new(0, 20);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    assert!(world.run_until(5 * SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    world.run(2 * SECOND);
    assert_eq!(state(&world, sender), Some(SendState::Taken));
    world.settle(receiver, &offer, OfferVerdict::Received);
    let delivered = |world: &World| state(world, sender) == Some(SendState::Delivered);
    assert!(world.run_until(5 * SECOND, delivered));
}

#[test]
fn the_sender_leaves_and_the_receiver_comes_minutes_later_and_gets_everything_once() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    world.connected[1] = false;
    let content = Content::new(LEN, 2);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    let taken = |world: &World| state(world, sender) == Some(SendState::Taken);
    assert!(world.run_until(60 * SECOND, taken));
    assert!(world.programs[receiver].offers.is_empty());
    world.leave(sender);
    world.connected[0] = false;
    world.run(180 * SECOND);
    assert!(world.router.status(world.now).stored_chunks > 0);
    world.connected[1] = true;
    assert!(world.run_until(60 * SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    let has = world.run_until(60 * SECOND, |world| world.has(receiver, 9));
    assert!(
        has,
        "{:?} {:?}",
        world.router.status(world.now),
        world.hosts[1].status(world.now)
    );
    world.settle(receiver, &offer, OfferVerdict::Received);
    world.run(20 * SECOND);
    assert_eq!(world.programs[receiver].got[&9], LEN);
    assert_eq!(world.programs[receiver].offers.len(), 1);
    assert_eq!(world.hosts[1].status(world.now).counters.unproven, 0);
}

#[test]
fn a_host_without_a_program_keeps_offers_until_one_comes() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    let content = Content::new(LEN, 3);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    world.run(60 * SECOND);
    assert_eq!(world.hosts[1].status(world.now).inbox.waiting, 1);
    world.take_offers(receiver);
    assert!(world.run_until(SECOND, |world| !world.programs[receiver].offers.is_empty()));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    assert!(world.run_until(90 * SECOND, |world| world.has(receiver, 9)));
}

#[test]
fn what_no_program_has_accepted_waits_at_the_router_after_the_sender_has_gone() {
    let mut world = World::with_buffers(4_096);
    let (sender, receiver) = two(&mut world);
    world.connected[1] = false;
    let content = Content::new(8_000_000, 6);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    let taken = |world: &World| state(world, sender) == Some(SendState::Taken);
    assert!(world.run_until(60 * SECOND, taken));
    world.leave(sender);
    world.connected[0] = false;
    // The host is there, and for a while no program is.
    world.connected[1] = true;
    world.run(30 * SECOND);
    assert_eq!(world.hosts[1].status(world.now).inbox.waiting, 1);
    world.take_offers(receiver);
    assert!(world.run_until(SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    let has = world.run_until(60 * SECOND, |world| world.has(receiver, 9));
    assert!(
        has,
        "{:?} {:?}",
        world.router.status(world.now),
        world.hosts[1].status(world.now)
    );
}

/// What has not been requested waits at the router; what the same receiver requests of the same source does not.
#[test]
fn a_request_is_answered_while_no_program_decides_about_offers_of_the_same_source() {
    let mut world = World::with_buffers(1_024);
    let (sender, receiver) = two(&mut world);
    let film = Content::new(8_000_000, 30);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &film, to);
    world.run(30 * SECOND);
    let held = world.hosts[1].status(world.now);
    assert_eq!(held.inbox.waiting, 1);
    assert!(!world.programs[receiver].got.contains_key(&9));
    let letter = Content::new(LEN, 31);
    world.serve(sender, &letter);
    world.get(receiver, 8, &letter, true);
    let has = world.run_until(10 * SECOND, |world| world.has(receiver, 8));
    assert!(has, "{:?}", world.hosts[0].status(world.now));
    // The push is still held back, and comes once it is accepted.
    let status = world.hosts[1].status(world.now);
    assert_eq!(status.inbox.chunks, held.inbox.chunks);
    world.take_offers(receiver);
    assert!(world.run_until(SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &film);
    assert!(world.run_until(60 * SECOND, |world| world.has(receiver, 9)));
}

/// More than the receiver's host keeps undecided.
#[test]
fn the_sender_may_leave_though_no_program_of_a_host_that_is_there_has_decided() {
    let mut world = World::with_buffers(1_024);
    let (sender, receiver) = two(&mut world);
    let film = Content::new(8_000_000, 32);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &film, to);
    let taken = |world: &World| state(world, sender) == Some(SendState::Taken);
    assert!(
        world.run_until(120 * SECOND, taken),
        "{:?}",
        world.router.status(world.now)
    );
    world.leave(sender);
    world.connected[0] = false;
    world.run(30 * SECOND);
    world.take_offers(receiver);
    assert!(world.run_until(SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &film);
    assert!(world.run_until(60 * SECOND, |world| world.has(receiver, 9)));
}

#[test]
fn a_refusal_ends_the_upload_and_empties_the_storage_of_the_router() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    for (number, (verdict, expected)) in [
        (OfferVerdict::NotAccepted, SendState::NotAccepted),
        (OfferVerdict::TooLong, SendState::TooLong),
        (OfferVerdict::InboxFull, SendState::InboxFull),
        (OfferVerdict::Unusable, SendState::Unusable),
    ]
    .into_iter()
    .enumerate()
    {
        let content = Content::new(LEN, 10 + number as u64);
        let to = world.hosts[1].guid();
        world.push(sender, 1, &content, to);
        let is_offered = |world: &World| world.programs[receiver].offers.len() == number + 1;
        assert!(world.run_until(5 * SECOND, is_offered));
        let offer = world.programs[receiver].offers[number].clone();
        world.settle(receiver, &offer, verdict);
        let refused = |world: &World| state(world, sender) == Some(expected);
        assert!(world.run_until(5 * SECOND, refused), "{verdict:?}");
    }
    world.run(20 * SECOND);
    assert_eq!(world.router.status(world.now).stored_chunks, 0);
    assert_eq!(world.hosts[0].status(world.now).uploads, 0);
    assert_eq!(world.hosts[1].status(world.now).inbox.chunks, 0);
    assert_eq!(world.hosts[1].status(world.now).counters.offers_refused, 4);
}

#[test]
fn a_program_that_comes_again_gets_the_rest_of_an_accepted_content() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    let content = Content::new(LEN, 4);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    assert!(world.run_until(5 * SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    // It ends before it has read anything.
    world.leave(receiver);
    world.run(5 * SECOND);
    let again = world.attach(1);
    world.take_offers(again);
    world.accept(again, 9, &offer, &content);
    assert!(world.run_until(90 * SECOND, |world| world.has(again, 9)));
    assert_eq!(world.programs[again].got[&9], LEN);
}

#[test]
fn a_router_that_restarts_on_the_way_is_made_up_for_by_the_sender() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    world.connected[1] = false;
    let content = Content::new(LEN, 5);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    world.run(30 * SECOND);
    world.connected[1] = true;
    let is_offered = |world: &World| !world.programs[receiver].offers.is_empty();
    assert!(world.run_until(60 * SECOND, is_offered));
    world.restart_router();
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    assert!(world.run_until(120 * SECOND, |world| world.has(receiver, 9)));
}

#[test]
fn a_flood_of_offers_takes_a_bounded_part_of_the_buffer() {
    let mut world = World::with_buffers(2_048);
    let (sender, receiver) = two(&mut world);
    let to = world.hosts[1].guid();
    for number in 0..200 {
        let content = Content::new(100_000, 100 + number);
        world.push(sender, number as u32, &content, to);
        world.run(Duration::from_millis(20));
    }
    world.run(30 * SECOND);
    let status = world.hosts[1].status(world.now);
    assert!(status.inbox.waiting <= 33, "{:?}", status.inbox);
    let (used, capacity) = world.hosts[1].buffer();
    assert!(used <= capacity / 2, "{used} of {capacity} packets");
    // The rest waits at the router, and comes once there is a place for it.
    world.take_offers(receiver);
    let mut seen = 0;
    let all = 200;
    for _ in 0..600 {
        world.run(SECOND);
        let offers = world.programs[receiver].offers[seen..].to_vec();
        seen += offers.len();
        for offer in &offers {
            world.settle(receiver, offer, OfferVerdict::Received);
        }
        if seen == all {
            break;
        }
    }
    assert_eq!(seen, all);
}

/// A reading each minute, and a receiver that is never awake together with the sensor.
#[test]
fn a_sensor_awake_a_second_a_minute_reaches_a_receiver_awake_a_second_in_ten() {
    let mut world = World::new();
    let (sensor, receiver) = two(&mut world);
    world.take_offers(receiver);
    let to = world.hosts[1].guid();
    world.sleep(0);
    world.sleep(1);
    let readings: Vec<_> = (0..10)
        .map(|number| Content::new(5_000, 300 + number))
        .collect();
    let (mut accepted, mut settled) = (0, 0);
    for minute in 0..31 {
        if let Some(reading) = readings.get(minute) {
            world.push(sensor, minute as u32, reading, to);
        }
        world.wake(0);
        world.run(SECOND);
        world.sleep(0);
        world.run(29 * SECOND);
        if minute % 10 == 0 {
            world.wake(1);
            for _ in 0..100 {
                world.run(SECOND / 100);
                let offers = world.programs[receiver].offers.clone();
                while let Some(offer) = offers.get(accepted) {
                    let is_meant = |it: &&Content| it.name() == offer.content.content;
                    let reading = readings.iter().find(is_meant).expect("a reading").clone();
                    world.accept(receiver, accepted as u32, offer, &reading);
                    accepted += 1;
                }
                while settled < accepted && world.has(receiver, settled as u32) {
                    world.settle(receiver, &offers[settled], OfferVerdict::Received);
                    settled += 1;
                }
            }
            world.sleep(1);
        } else {
            world.run(SECOND);
        }
        world.run(29 * SECOND);
    }
    assert_eq!((accepted, settled), (10, 10));
    let delivered = |state: &&SendState| **state == SendState::Delivered;
    let sending = &world.programs[sensor].sending;
    assert_eq!(
        sending.values().filter(delivered).count(),
        10,
        "{sending:?}"
    );
    assert_eq!(world.router.status(world.now).stored_chunks, 0);
}
