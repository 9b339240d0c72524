//! Options of a transfer that act [MFTP §3.2.2, 3.3 and 4], in virtual time.

use core::time::Duration;

use whimbrel_core::Guid;
use whimbrel_mobilityfirst::local::{
    Delivery, LocalRequest, OfferVerdict, SendState, Storage, TransferOptions,
};
use whimbrel_mobilityfirst::wire::Reliability;

use crate::world::{Content, World};

const SECOND: Duration = Duration::from_secs(1);
/// Some hundred chunks.
const LEN: usize = 7_000_000;

/// Two programs: of a source and of a receiver.
fn two(world: &mut World) -> (usize, usize) {
    (world.attach(0), world.attach(1))
}

fn reliability(world: &mut World, reliability: Option<Reliability>) {
    world.options.reliability = reliability;
}

fn storage(world: &mut World, storage: Storage) {
    world.options.delivery.storage = storage;
}

fn state(world: &World, program: usize) -> Option<SendState> {
    world.programs[program].sending.get(&1).copied()
}

/// The receiver is away while most of a content passes, and the router restarts with what it stores.
fn lose_a_part(world: &mut World, receiver: usize) {
    let has_begun = |world: &World| {
        let got = world.programs[receiver].got.get(&1);
        got.is_some_and(|got| *got > 100_000)
    };
    assert!(world.run_until(5 * SECOND, has_begun));
    world.connected[1] = false;
    world.run(5 * SECOND);
    assert!(world.router.status(world.now).stored_chunks > 0);
    world.restart_router();
    world.connected[1] = true;
}

/// "With idempotent data transmissions (e.g. sensor data which the transport layer sends and forgets), the
/// sender may choose to use the don't care option." Either end may choose it.
#[test]
fn dont_care_ends_with_what_came_and_names_what_is_missing() {
    for source_chooses in [true, false] {
        let mut world = World::new();
        let (source, receiver) = two(&mut world);
        let content = Content::new(LEN, 1);
        reliability(&mut world, source_chooses.then_some(Reliability::DontCare));
        world.serve(source, &content);
        let of_receiver = (!source_chooses).then_some(Reliability::DontCare);
        reliability(&mut world, of_receiver);
        world.get(receiver, 1, &content, false);
        lose_a_part(&mut world, receiver);
        let has_ended = |world: &World| world.programs[receiver].missing.contains_key(&1);
        assert!(world.run_until(60 * SECOND, has_ended), "{source_chooses}");
        let (missing, got) = {
            let program = &world.programs[receiver];
            (program.missing[&1].clone(), program.got[&1])
        };
        // Its last chunk came first, and proved the length.
        assert_eq!(missing.content_len, Some(LEN as u64));
        assert_eq!(missing.bytes as usize + got, LEN);
        let named: u64 = missing.ranges.iter().map(|it| it.end - it.start).sum();
        assert_eq!(named, missing.bytes);
        let counters = world.hosts[1].status(world.now).counters;
        assert_eq!((counters.requests_sent, counters.nacks_sent), (1, 0));
        assert!(!world.programs[receiver].failed.contains(&1));
    }
}

/// The same loss, with the default: everything is there in the end.
#[test]
fn nack_makes_up_for_the_same_loss() {
    let mut world = World::new();
    let (source, receiver) = two(&mut world);
    let content = Content::new(LEN, 1);
    world.serve(source, &content);
    world.get(receiver, 1, &content, false);
    lose_a_part(&mut world, receiver);
    assert!(world.run_until(90 * SECOND, |world| world.has(receiver, 1)));
}

/// Nothing comes at all: a request is not repeated either.
#[test]
fn dont_care_asks_once_and_ends_at_its_timer() {
    let mut world = World::new();
    let (source, receiver) = two(&mut world);
    let content = Content::new(LEN, 1);
    world.serve(source, &content);
    world.connected[0] = false;
    reliability(&mut world, Some(Reliability::DontCare));
    world.options.nack_timeout_ms = 2_000;
    world.get(receiver, 1, &content, false);
    world.run(Duration::from_millis(1_900));
    assert!(world.programs[receiver].missing.is_empty());
    world.run(SECOND);
    let missing = &world.programs[receiver].missing[&1];
    assert_eq!((missing.content_len, missing.bytes), (None, 0));
    assert_eq!(missing.ranges.len(), 1);
    let counters = world.hosts[1].status(world.now).counters;
    assert_eq!((counters.requests_sent, counters.nacks_sent), (1, 0));
}

#[test]
fn whole_content_with_dont_care_is_complete() {
    let mut world = World::new();
    let (source, receiver) = two(&mut world);
    reliability(&mut world, Some(Reliability::DontCare));
    for (request, len) in [(1, 1), (2, 70_000), (3, LEN)] {
        let content = Content::new(len, u64::from(request));
        world.serve(source, &content);
        world.get(receiver, request, &content, request == 3);
        assert!(world.run_until(30 * SECOND, |world| world.has(receiver, request)));
    }
    // "Sends and forgets": nothing is kept for later requests, which come from another download.
    assert!(world.programs[receiver].missing.is_empty());
}

/// "It is only for short-sessions (e.g., single PDU delivery) and for latency-sensitive interactions that
/// the sender would enable the use of an end-to-end ACK option."
#[test]
fn a_source_in_ack_mode_makes_up_for_a_loss_by_itself() {
    let mut world = World::new();
    let (source, receiver) = two(&mut world);
    let content = Content::new(60_000, 1);
    reliability(&mut world, Some(Reliability::Ack));
    world.serve(source, &content);
    // The receiver would wait for ten minutes.
    world.options.nack_timeout_ms = 600_000;
    world.get(receiver, 1, &content, false);
    // The request has left; the answer is lost with the router.
    let has_sent = |world: &World| world.hosts[0].status(world.now).counters.chunks_sent > 2;
    world.run(Duration::from_millis(2));
    world.connected[1] = false;
    world.run_until(SECOND, has_sent);
    world.restart_router();
    world.connected[1] = true;
    assert!(world.run_until(20 * SECOND, |world| world.has(receiver, 1)));
    assert_eq!(world.hosts[1].status(world.now).counters.nacks_sent, 0);
}

/// What a proxy stores is neither lost nor late.
#[test]
fn a_source_in_ack_mode_does_not_repeat_what_a_proxy_stores() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    world.connected[1] = false;
    reliability(&mut world, Some(Reliability::Ack));
    let content = Content::new(700_000, 2);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    let taken = |world: &World| state(world, sender) == Some(SendState::Taken);
    assert!(world.run_until(60 * SECOND, taken));
    let sent = world.hosts[0].status(world.now).counters.chunks_sent;
    // Before the first probe.
    world.run(15 * SECOND);
    assert_eq!(world.hosts[0].status(world.now).counters.chunks_sent, sent);
    world.connected[1] = true;
    assert!(world.run_until(90 * SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    assert!(world.run_until(60 * SECOND, |world| world.has(receiver, 9)));
    world.settle(receiver, &offer, OfferVerdict::Received);
    let delivered = |world: &World| state(world, sender) == Some(SendState::Delivered);
    assert!(world.run_until(5 * SECOND, delivered));
}

/// "Willingness to use in-network proxy": without it a router drops, and says so.
#[test]
fn what_may_not_be_stored_is_dropped_and_sent_again_when_its_receiver_is_there() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    world.connected[1] = false;
    world.run(5 * SECOND);
    storage(&mut world, Storage::Never);
    let content = Content::new(700_000, 3);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    world.run(20 * SECOND);
    let status = world.router.status(world.now);
    assert_eq!(
        (status.stored_chunks, status.counters.chunks_stored),
        (0, 0)
    );
    assert!(status.counters.drops["unreachable"] > 0);
    assert_eq!(state(&world, sender), Some(SendState::Leaving));
    world.connected[1] = true;
    assert!(world.run_until(60 * SECOND, |world| {
        !world.programs[receiver].offers.is_empty()
    }));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    assert!(world.run_until(90 * SECOND, |world| world.has(receiver, 9)));
    assert_eq!(world.router.status(world.now).counters.chunks_stored, 0);
}

#[test]
fn a_sender_that_does_not_care_is_told_that_a_router_has_dropped_a_chunk() {
    let mut world = World::new();
    let (sender, _) = two(&mut world);
    world.connected[1] = false;
    world.run(5 * SECOND);
    storage(&mut world, Storage::Never);
    reliability(&mut world, Some(Reliability::DontCare));
    let content = Content::new(700_000, 4);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    let lost = |world: &World| state(world, sender) == Some(SendState::Lost);
    assert!(world.run_until(5 * SECOND, lost));
    assert_eq!(world.hosts[0].status(world.now).uploads, 0);
}

#[test]
fn a_sender_that_does_not_care_forgets_what_the_network_has() {
    let mut world = World::new();
    let (sender, receiver) = two(&mut world);
    world.take_offers(receiver);
    reliability(&mut world, Some(Reliability::DontCare));
    let content = Content::new(700_000, 5);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    let is_offered = |world: &World| !world.programs[receiver].offers.is_empty();
    assert!(world.run_until(5 * SECOND, is_offered));
    let offer = world.programs[receiver].offers[0].clone();
    world.accept(receiver, 9, &offer, &content);
    let taken = |world: &World| state(world, sender) == Some(SendState::Taken);
    assert!(world.run_until(20 * SECOND, taken));
    world.run(2 * SECOND);
    assert!(world.has(receiver, 9));
    assert_eq!(world.hosts[0].status(world.now).uploads, 0);
}

#[test]
fn the_sender_sets_how_long_a_router_stores() {
    let mut world = World::new();
    let (sender, _) = two(&mut world);
    world.connected[1] = false;
    world.run(5 * SECOND);
    storage(&mut world, Storage::Lifetime(30_000));
    let content = Content::new(700_000, 6);
    let to = world.hosts[1].guid();
    world.push(sender, 1, &content, to);
    let taken = |world: &World| state(world, sender) == Some(SendState::Taken);
    assert!(world.run_until(20 * SECOND, taken));
    world.leave(sender);
    assert!(world.router.status(world.now).stored_chunks > 0);
    world.run(31 * SECOND);
    let status = world.router.status(world.now);
    assert_eq!(status.stored_chunks, 0);
    assert!(status.counters.drops["lifetime"] > 0);
}

/// A get that may not be stored has neither its request nor the answer stored.
#[test]
fn the_receiver_has_its_answer_not_stored() {
    let mut world = World::new();
    let (source, receiver) = two(&mut world);
    let content = Content::new(LEN, 7);
    world.serve(source, &content);
    storage(&mut world, Storage::Never);
    world.get(receiver, 1, &content, false);
    let has_begun = |world: &World| world.programs[receiver].got.contains_key(&1);
    assert!(world.run_until(5 * SECOND, has_begun));
    world.connected[1] = false;
    world.run(10 * SECOND);
    assert_eq!(world.router.status(world.now).counters.chunks_stored, 0);
    world.connected[1] = true;
    assert!(world.run_until(120 * SECOND, |world| world.has(receiver, 1)));
}

#[test]
fn a_source_sends_no_larger_chunks_than_it_chooses() {
    let mut world = World::new();
    let (source, receiver) = two(&mut world);
    let content = Content::new(LEN, 8);
    world.options.chunk_log2 = 15;
    world.serve(source, &content);
    world.options = TransferOptions::default();
    world.get(receiver, 1, &content, false);
    assert!(world.run_until(30 * SECOND, |world| world.has(receiver, 1)));
    let sent = world.hosts[0].status(world.now).counters.chunks_sent;
    assert!(sent as usize >= LEN >> 15, "{sent}");
}

/// "NACK timeout" of the sender: the receiver, which has none of its own, asks after it.
#[test]
fn the_sender_sets_how_long_a_chunk_may_be_missing() {
    let mut world = World::new();
    let (source, receiver) = two(&mut world);
    let content = Content::new(LEN, 9);
    world.options.nack_timeout_ms = 60_000;
    world.serve(source, &content);
    world.options.nack_timeout_ms = 0;
    world.get(receiver, 1, &content, false);
    let has_begun = |world: &World| {
        let got = world.programs[receiver].got.get(&1);
        got.is_some_and(|got| *got > 100_000)
    };
    assert!(world.run_until(5 * SECOND, has_begun));
    world.connected[0] = false;
    world.run(50 * SECOND);
    assert_eq!(world.hosts[1].status(world.now).counters.nacks_sent, 0);
    world.run(20 * SECOND);
    assert!(world.hosts[1].status(world.now).counters.nacks_sent > 0);
}

#[test]
fn a_message_that_may_not_be_stored_is_not() {
    let mut world = World::new();
    let (sender, _) = two(&mut world);
    world.connected[1] = false;
    world.run(5 * SECOND);
    let send = |world: &mut World, destination: Guid, storage| {
        let message = LocalRequest::Message {
            channel: 1,
            destination,
            delivery: Delivery {
                storage,
                ..Delivery::default()
            },
            payload: bytes::Bytes::from_static(b"reading 7"),
        };
        world.say(sender, &message);
        world.run(SECOND);
        world.router.status(world.now).stored_chunks
    };
    let to = world.hosts[1].guid();
    assert_eq!(send(&mut world, to, Storage::Never), 0);
    assert_eq!(send(&mut world, to, Storage::Lifetime(5_000)), 1);
    assert_eq!(send(&mut world, to, Storage::Default), 2);
    world.run(5 * SECOND);
    assert_eq!(world.router.status(world.now).stored_chunks, 1);
}
