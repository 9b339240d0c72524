//! A site whose name server is out of reach: what is local works as if it were there.
#![allow(clippy::unwrap_used, reason = "a test")]

use core::time::Duration;

use crate::world::{self, Content, World};
use bytes::Bytes;
use whimbrel_gnrs::{KeyPair, RecordKey};
use whimbrel_mobilityfirst::local::{Delivery, LocalRequest, Publish, TransferOptions};
use whimbrel_mobilityfirst::wire::ContentKind;

/// Without delay: a round trip in this world takes some milliseconds.
const AT_ONCE: Duration = Duration::from_millis(200);

#[test]
fn hosts_of_a_site_fetch_from_each_other_at_once() {
    let mut world = World::cut_off();
    let contents: Vec<_> = (1..=3).map(|seed| Content::new(300_000, seed)).collect();
    let server = world.attach(0);
    for content in &contents {
        world.serve(server, content);
    }
    let reader = world.attach(1);
    for (request, content) in (1..).zip(&contents) {
        world.get(reader, request, content, true);
        let done = world.run_until(AT_ONCE, |world| world.has(reader, request));
        assert!(done, "request {request}");
    }
    // Renewals of records and attachments do not wait for the name server either.
    world.run(Duration::from_secs(900));
    world.get(reader, 9, &contents[0], true);
    assert!(world.run_until(AT_ONCE, |world| world.has(reader, 9)));
}

#[test]
fn a_request_from_before_the_announcement_is_served_when_it_comes() {
    let mut world = World::cut_off();
    let content = Content::new(300_000, 1);
    let reader = world.attach(1);
    world.get(reader, 1, &content, true);
    for wait in [Duration::from_millis(300), Duration::from_secs(20)] {
        world.run(wait);
        assert!(!world.has(reader, 1));
    }
    let server = world.attach(0);
    world.serve_now(server, &content);
    assert!(world.run_until(Duration::from_secs(1), |world| world.has(reader, 1)));
}

#[test]
fn a_restarted_router_knows_its_hosts_contents_again() {
    let mut world = World::cut_off();
    let content = Content::new(300_000, 1);
    let server = world.attach(0);
    world.serve(server, &content);
    world.restart_router();
    world.run(Duration::from_secs(5));
    let reader = world.attach(1);
    world.get(reader, 1, &content, true);
    assert!(world.run_until(AT_ONCE, |world| world.has(reader, 1)));
}

#[test]
fn a_name_server_that_has_lost_its_records_gets_them_again_from_the_router() {
    let mut world = World::with_names();
    let content = Content::new(300_000, 1);
    let server = world.attach(0);
    world.serve(server, &content);
    world.run(Duration::from_secs(3));
    let providers = |world: &World| {
        let now_ms = world::WALL.unix_millis(world.now);
        world.records().providers(&content.name(), now_ms).len()
    };
    assert_eq!(providers(&world), 1);
    world.restart_names();
    assert_eq!(providers(&world), 0);
    // A host announces a content again after 200 s; its binding it renews each 20 s.
    world.run(Duration::from_secs(25));
    assert_eq!(providers(&world), 1);
    let host = KeyPair::from_secret(&[1; 32]).guid();
    assert!(world.records().get(&RecordKey::binding(host)).is_some());
}

#[test]
fn what_a_host_no_longer_serves_is_not_asked_of_it() {
    let mut world = World::cut_off();
    let content = Content::new(300_000, 1);
    let server = world.attach(0);
    world.serve(server, &content);
    // The host's link is gone, and with it its attachment.
    world.connected[0] = false;
    world.run(Duration::from_secs(90));
    let reader = world.attach(1);
    world.get(reader, 1, &content, true);
    assert!(!world.run_until(Duration::from_secs(3), |world| world.has(reader, 1)));
    // It comes back, and so does what it serves.
    world.connected[0] = true;
    assert!(world.run_until(Duration::from_secs(40), |world| world.has(reader, 1)));
}

/// A `get` of a host whose `serve` had ended waited without a reason, for ever.
#[test]
fn who_waits_for_the_rest_of_what_is_no_longer_served_is_told_and_goes_on_when_it_is_again() {
    let mut world = World::new();
    let content = Content::new(8 << 20, 1);
    let server = world.attach(0);
    world.serve(server, &content);
    let reader = world.attach(1);
    world.get(reader, 1, &content, true);
    let has_begun = |world: &World| world.programs[reader].got.contains_key(&1);
    assert!(world.run_until(Duration::from_secs(3), has_begun));
    world.leave(server);
    let is_told = |world: &World| {
        let transfers = world.hosts[1].status(world.now).transfers;
        transfers.iter().any(|it| it.absent_s.is_some())
    };
    assert!(world.run_until(Duration::from_secs(15), is_told));
    assert!(!world.has(reader, 1) && world.programs[reader].failed.is_empty());
    let again = world.attach(0);
    world.serve(again, &content);
    assert!(world.run_until(Duration::from_secs(40), |world| world.has(reader, 1)));
}

#[test]
fn who_announces_a_hosts_name_as_a_content_gets_nothing_of_what_is_for_that_host() {
    let mut world = World::cut_off();
    let absent = KeyPair::from_secret(&[77; 32]).guid();
    let (sender, thief) = (world.attach(1), world.attach(0));
    let say = |world: &mut World| {
        let message = LocalRequest::Message {
            channel: 1,
            destination: absent,
            delivery: Delivery::default(),
            payload: Bytes::from_static(b"for one host only"),
        };
        world.say(sender, &message);
        world.run(Duration::from_millis(100));
    };
    say(&mut world);
    let publish = LocalRequest::Publish(
        Publish {
            content: absent,
            content_len: 10,
            kind: ContentKind::File,
            file_name: String::from("bait"),
        },
        TransferOptions::default(),
    );
    world.say(thief, &publish);
    world.run(Duration::from_millis(100));
    say(&mut world);
    world.run(Duration::from_secs(5));
    let drops = world.hosts[0].status(world.now).counters.drops;
    assert!(!drops.contains_key("not-for-this-host"), "{drops:?}");
}

#[test]
fn a_host_that_says_that_it_no_longer_serves_a_content_is_not_asked_again() {
    let mut world = World::cut_off();
    let content = Content::new(300_000, 1);
    let server = world.attach(0);
    world.serve(server, &content);
    // Its removal is lost on the way, and another host has the content.
    world.connected[0] = false;
    world.say(
        server,
        &LocalRequest::Withdraw {
            content: content.name(),
        },
    );
    world.run(Duration::from_millis(10));
    world.connected[0] = true;
    world.run(Duration::from_secs(3));
    let (other, reader) = (world.attach(1), world.attach(1));
    world.serve(other, &content);
    world.get(reader, 1, &content, true);
    assert!(world.run_until(Duration::from_secs(20), |world| world.has(reader, 1)));
}
