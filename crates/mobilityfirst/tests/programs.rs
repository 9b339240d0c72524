//! Local programs of two hosts at one router: messages between them, and which programs are served.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{Guid, GuidPrefix, Machine, PortEvent, PortId, PortOrigin, Time};
use whimbrel_mobilityfirst::local::{
    Delivery, Get, LocalEvent, LocalRequest, MAX_NAMES, Publish, TransferOptions, greeting,
};
use whimbrel_mobilityfirst::wire::{ContentKind, MAX_MESSAGE};

use crate::world::{World, drain, info};

const APP: u32 = 1;

impl World {
    fn listen(&mut self, host: usize, channel: u32) {
        self.hosts[host].request(self.now, APP, LocalRequest::Listen { channel });
    }

    fn send(&mut self, from: usize, to: usize, channel: u32, payload: Bytes) {
        let destination = self.hosts[to].guid();
        let message = LocalRequest::Message {
            channel,
            destination,
            delivery: Delivery::default(),
            payload,
        };
        self.hosts[from].request(self.now, APP, message);
    }

    /// The messages that a host's program has got.
    fn messages(&mut self, host: usize) -> Vec<(u32, Guid, Bytes)> {
        let mut messages = Vec::new();
        while let Some(told) = self.hosts[host].poll_event() {
            if let LocalEvent::Message {
                channel,
                from,
                payload,
            } = told.event
            {
                messages.push((channel, from, payload));
            }
        }
        messages
    }
}

#[test]
fn a_message_goes_from_program_to_program_and_back() {
    let mut world = World::new();
    world.listen(1, 7);
    world.listen(0, 7);
    let (question, answer) = (Bytes::from_static(b"where?"), Bytes::from_static(b"here"));
    world.send(0, 1, 7, question.clone());
    world.send(0, 1, 8, Bytes::from_static(b"nobody listens"));
    world.run(Duration::from_secs(1));
    let asker = world.hosts[0].guid();
    assert_eq!(world.messages(1), [(7, asker, question)]);
    world.send(1, 0, 7, answer.clone());
    world.run(Duration::from_secs(1));
    let answerer = world.hosts[1].guid();
    assert_eq!(world.messages(0), [(7, answerer, answer)]);
    let unheard = world.hosts[1].status(world.now).counters.drops;
    assert_eq!(unheard.get("message-nobody-listens-for"), Some(&1));
}

#[test]
fn a_message_waits_in_the_network_while_its_destination_is_away_and_comes_once() {
    let mut world = World::new();
    world.listen(1, 7);
    world.connected[1] = false;
    for number in 0..3_u8 {
        world.send(0, 1, 7, Bytes::from(vec![number; MAX_MESSAGE]));
    }
    world.run(Duration::from_secs(20));
    assert!(world.router.status(world.now).stored_chunks > 0);
    assert!(world.messages(1).is_empty());
    world.connected[1] = true;
    world.run(Duration::from_secs(30));
    let mut first: Vec<u8> = world
        .messages(1)
        .iter()
        .map(|(_, _, payload)| payload[0])
        .collect();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2]);
    assert_eq!(world.router.memory().total(), 0);
}

#[test]
fn a_message_that_is_too_long_is_not_sent() {
    let mut world = World::new();
    world.listen(1, 7);
    world.send(0, 1, 7, Bytes::from(vec![0; MAX_MESSAGE + 1]));
    world.run(Duration::from_secs(1));
    assert!(world.messages(1).is_empty());
    let drops = world.hosts[0].status(world.now).counters.drops;
    assert_eq!(drops.get("message-too-long"), Some(&1));
}

fn publish(world: &mut World, host: usize, content: Guid) {
    let publish = Publish {
        content,
        content_len: 1,
        kind: ContentKind::File,
        file_name: String::new(),
    };
    world.hosts[host].request(
        world.now,
        APP,
        LocalRequest::Publish(publish, TransferOptions::default()),
    );
}

/// The names at a host that begin so.
fn names(world: &mut World, host: usize, prefix: &str) -> Vec<Guid> {
    let prefix = GuidPrefix::new(prefix).expect("a prefix");
    let names = LocalRequest::Names { request: 3, prefix };
    world.hosts[host].request(world.now, APP, names);
    let mut events = std::iter::from_fn(|| world.hosts[host].poll_event());
    let names = events.find_map(|told| match told.event {
        LocalEvent::Names { request: 3, names } => Some(names),
        _ => None,
    });
    names.expect("an answer")
}

#[test]
fn a_host_knows_the_names_that_its_programs_offer_and_fetch_by_their_first_digits() {
    let mut world = World::new();
    let name = |first: u8, last: u8| {
        let mut name = [first; 32];
        name[31] = last;
        Guid(name)
    };
    let offered = [name(0xab, 1), name(0xab, 2), name(0xac, 1)];
    for content in offered {
        publish(&mut world, 0, content);
    }
    let fetched = name(0xab, 0);
    let get = Get {
        request: 1,
        content: fetched,
        options: TransferOptions::default(),
        in_order: false,
        credit: 8,
        resume: Bytes::new(),
    };
    world.hosts[0].request(world.now, APP, LocalRequest::Get(get));
    let both = [fetched, offered[0], offered[1]];
    assert_eq!(names(&mut world, 0, "ABABA"), both);
    assert_eq!(names(&mut world, 0, "acac"), [offered[2]]);
    assert_eq!(names(&mut world, 0, "abac"), []);
    let whole = offered[1].to_string();
    assert_eq!(names(&mut world, 0, &whole[..63]), both);
    // Other hosts' names are theirs.
    assert_eq!(names(&mut world, 1, "abab"), []);
    for last in 0..100 {
        publish(&mut world, 0, name(0xdd, last));
    }
    assert_eq!(names(&mut world, 0, "dddd").len(), MAX_NAMES);
}

/// What a program hears that begins with `first` and then asks for the state.
fn hears(machine: &mut impl Machine, first: &[u8]) -> Vec<Vec<u8>> {
    let (now, port) = (Time::ZERO, PortId(500));
    machine.handle_port(now, port, PortEvent::Up(info(PortOrigin::Local)));
    let mut status = Vec::new();
    LocalRequest::Status { request: 3 }.encode_head(&mut status);
    machine.handle_frames(now, port, &[first, &status]);
    let frames = drain(machine, now).into_iter();
    let heard = frames.filter(|(to, _)| *to == port).map(|(_, frame)| frame);
    let heard = heard.collect();
    machine.handle_port(now, port, PortEvent::Down);
    heard
}

#[test]
fn a_program_of_another_version_is_greeted_and_not_served() {
    let mut world = World::new();
    let mut later = greeting();
    later[5] += 1;
    let mut get = Vec::new();
    LocalRequest::Cancel { request: 3 }.encode_head(&mut get);
    for refused in [&later[..], &get] {
        assert_eq!(hears(&mut world.hosts[0], refused), [greeting()]);
        assert_eq!(hears(&mut world.router, refused), [greeting()]);
    }
    let host = world.hosts[0].status(world.now).counters;
    let router = world.router.status(world.now).counters;
    for drops in [host.drops, router.drops] {
        assert_eq!(drops.get("local-version"), Some(&4), "{drops:?}");
    }
    for heard in [
        hears(&mut world.hosts[0], &greeting()),
        hears(&mut world.router, &greeting()),
    ] {
        assert_eq!(heard[0], greeting());
        let event = LocalEvent::decode(&Bytes::from(heard[1].clone()));
        assert!(matches!(event, Ok(LocalEvent::Status { request: 3, .. })));
    }
}
