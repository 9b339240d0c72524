//! Two endpoints over a network that loses, repeats, delays and overtakes messages, and is down for a while,
//! in virtual time. Compared with the obvious model: what was written is read.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_stream::endpoint::StreamRead;
use whimbrel_stream::packet::{PacketBody, StreamSegment};
use whimbrel_stream::{
    CutOff, StreamEndpoint, StreamEndpointOptions, StreamEvent, StreamKey, StreamPacket,
};

const NAMES: [Guid; 2] = [Guid([1; 32]), Guid([2; 32])];

#[derive(Clone, Debug, Default)]
struct Faults {
    /// Percent of the messages.
    lost: u64,
    repeated: u64,
    /// Milliseconds.
    delay: u64,
    jitter: u64,
    /// Milliseconds from the start.
    outage: Option<(u64, u64)>,
}

struct World {
    now: Time,
    ends: [StreamEndpoint; 2],
    under_way: BTreeSet<(Time, u64, usize, Bytes)>,
    faults: Faults,
    rng: SeededRng,
    sent: u64,
    bytes: u64,
    events: [Vec<StreamEvent>; 2],
    // What is still to be written, and what was read.
    to_write: BTreeMap<StreamKey, Bytes>,
    read: BTreeMap<StreamKey, Vec<u8>>,
    finished: BTreeSet<StreamKey>,
    ended: BTreeSet<StreamKey>,
}

fn options(accepts: bool) -> StreamEndpointOptions {
    StreamEndpointOptions {
        accepts,
        max_streams: 64,
        patience: Duration::from_secs(600),
        secret: [7; 32],
    }
}

impl World {
    fn new(seed: u64, faults: Faults) -> World {
        let end = |accepts| {
            StreamEndpoint::new(options(accepts), SeededRng::new(seed + u64::from(accepts)))
        };
        World {
            now: Time::from_millis(1),
            ends: [end(false), end(true)],
            under_way: BTreeSet::new(),
            faults,
            rng: SeededRng::new(seed),
            sent: 0,
            bytes: 0,
            events: [Vec::new(), Vec::new()],
            to_write: BTreeMap::new(),
            read: BTreeMap::new(),
            finished: BTreeSet::new(),
            ended: BTreeSet::new(),
        }
    }

    fn side(key: StreamKey) -> usize {
        usize::from(!key.is_opener)
    }

    fn write(&mut self, key: StreamKey, data: Vec<u8>) {
        self.to_write.insert(key, data.into());
        self.pump(key);
    }

    /// Writes what there is room for, ends what is written, reads what there is.
    fn pump(&mut self, key: StreamKey) {
        let end = &mut self.ends[World::side(key)];
        if let Some(rest) = self.to_write.get_mut(&key) {
            let taken = end.write(self.now, key, rest);
            *rest = rest.slice(taken..);
            if rest.is_empty() {
                self.to_write.remove(&key);
                self.finished.insert(key);
                end.finish(key);
            }
        }
        loop {
            match end.read(key, 10_000) {
                StreamRead::Bytes(bytes) => self.read.entry(key).or_default().extend(&bytes),
                StreamRead::End => {
                    self.ended.insert(key);
                    if self.finished.contains(&key) {
                        end.release(key);
                    }
                    break;
                }
                StreamRead::Later | StreamRead::Gone => break,
            }
        }
    }

    fn transmit(&mut self) {
        for from in 0..2 {
            while let Some((to, message)) = self.ends[from].poll_transmit(self.now) {
                assert_eq!(to, NAMES[1 - from]);
                assert!(message.len() <= 32 << 10);
                self.sent += 1;
                self.bytes += message.len() as u64;
                let faults = &self.faults;
                let is_down = faults.outage.is_some_and(|(from, to)| {
                    (Time::from_millis(from)..Time::from_millis(to)).contains(&self.now)
                });
                let copies = match (is_down, self.rng.below(100)) {
                    (true, _) => 0,
                    (_, drawn) if drawn < faults.lost => 0,
                    (_, drawn) if drawn < faults.lost + faults.repeated => 2,
                    _ => 1,
                };
                for _ in 0..copies {
                    let delay = faults.delay + self.rng.below(faults.jitter + 1);
                    let at = self.now + Duration::from_millis(delay);
                    self.under_way
                        .insert((at, self.rng.next_word(), 1 - from, message.clone()));
                }
            }
        }
    }

    fn take_events(&mut self) {
        for side in 0..2 {
            while let Some(event) = self.ends[side].poll_event() {
                if let StreamEvent::Readable(key) | StreamEvent::Writable(key) = event {
                    self.pump(key);
                }
                self.events[side].push(event);
            }
        }
    }

    /// Runs to the next event. Returns false if there is none before `until`.
    fn step(&mut self, until: Time) -> bool {
        self.take_events();
        self.transmit();
        let arrival = self.under_way.first().map(|(at, ..)| *at);
        let timeouts = self.ends.iter().filter_map(StreamEndpoint::poll_timeout);
        let Some(next) = arrival.into_iter().chain(timeouts).min() else {
            return false;
        };
        if next > until {
            return false;
        }
        self.now = self.now.max(next);
        while let Some((at, _, to, message)) = self.under_way.first().cloned() {
            if at > self.now {
                break;
            }
            self.under_way.pop_first();
            self.ends[to].handle_message(self.now, NAMES[1 - to], &message);
        }
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
        self.take_events();
        true
    }

    fn run_until(&mut self, seconds: u64, mut done: impl FnMut(&World) -> bool) {
        let mut steps = 0;
        while !done(self) && self.step(Time::from_secs(seconds)) {
            steps += 1;
            assert!(steps < 2_000_000, "it never rests");
        }
    }

    fn accepted(&self) -> Vec<StreamKey> {
        let events = self.events[1].iter();
        let accepted = events.filter_map(|event| match event {
            StreamEvent::Accepted(key) => Some(*key),
            _ => None,
        });
        accepted.collect()
    }

    fn inject(&mut self, to: usize, packet: &StreamPacket) {
        self.ends[to].handle_message(self.now, NAMES[1 - to], &packet.encode());
    }
}

fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = SeededRng::new(seed);
    (0..length).map(|_| rng.next_word() as u8).collect()
}

fn faults() -> impl Strategy<Value = Faults> {
    let outage = prop::option::of((0u64..3_000, 0u64..60_000));
    (0u64..40, 0u64..30, 0u64..300, 0u64..200, outage).prop_map(
        |(lost, repeated, delay, jitter, outage)| Faults {
            lost,
            repeated,
            delay,
            jitter,
            outage: outage.map(|(from, length)| (from, from + length)),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn what_one_side_writes_the_other_reads_whatever_becomes_of_the_messages(
        seed in 0u64..1 << 60, faults in faults(),
        sizes in prop::collection::vec((1usize..300_000, 0usize..600_000), 1..4),
    ) {
        let mut world = World::new(seed, faults);
        let mut written = BTreeMap::new();
        for (number, (up, down)) in sizes.iter().enumerate() {
            let key = world.ends[0].open(world.now, NAMES[1]).unwrap();
            let (up, down) = (noise(*up, number as u64), noise(*down, seed + number as u64));
            world.write(key, up.clone());
            written.insert(key.stream, (up, down));
        }
        let mut answered = 0;
        while world.ended.len() < 2 * sizes.len() && world.step(Time::from_secs(3_000)) {
            for key in world.accepted().into_iter().skip(answered) {
                answered += 1;
                let down = written[&key.stream].1.clone();
                world.write(key, down);
            }
        }
        for (key, read) in &world.read {
            let (up, down) = &written[&key.stream];
            prop_assert!(read == if key.is_opener { down } else { up }, "{key:?}");
        }
        prop_assert_eq!(world.ended.len(), 2 * sizes.len(), "both sides of each have read the end");
        // What is left of it is forgotten once the last acknowledgement has arrived.
        world.run_until(6_000, |world| world.ends.iter().all(StreamEndpoint::is_empty));
        prop_assert!(world.ends.iter().all(StreamEndpoint::is_empty));
        for end in &world.ends {
            prop_assert_eq!(end.poll_timeout(), None);
        }
    }

    #[test]
    fn packets_of_any_content_leave_a_stream_working(
        seed in 0u64..1 << 60, forged in prop::collection::vec((prop::collection::vec(any::<u64>(), 6), any::<[bool; 4]>(), 0usize..3_000), 0..60),
    ) {
        let mut world = World::new(seed, Faults { delay: 5, ..Faults::default() });
        let key = world.ends[0].open(world.now, NAMES[1]).unwrap();
        world.write(key, noise(200_000, seed));
        world.run_until(60, |world| !world.accepted().is_empty());
        // A peer that contradicts itself: nothing panics and nothing grows.
        for (numbers, flags, length) in forged {
            let segment = StreamSegment {
                received: numbers[0] >> (numbers[1] % 64),
                has_all: flags[0],
                limit: numbers[2] >> (numbers[3] % 64),
                asks: flags[1],
                position: numbers[4] >> (numbers[5] % 64),
                ends: flags[2],
                data: noise(length, seed).into(),
                ranges: Vec::new(),
            };
            let packet = StreamPacket { stream: key.stream, body: PacketBody::FromAcceptor(segment) };
            world.inject(0, &packet);
            world.step(Time::from_secs(600));
        }
        let stats = world.ends[0].stats();
        prop_assert!(stats.contradicting + stats.faulty <= 60);
    }
}

#[test]
fn a_long_stream_fills_its_path() {
    let faults = Faults {
        delay: 25,
        ..Faults::default()
    };
    let mut world = World::new(1, faults);
    let key = world.ends[0].open(world.now, NAMES[1]).unwrap();
    world.write(key, noise(20 << 20, 1));
    world.run_until(100, |world| world.ended.iter().any(|key| !key.is_opener));
    let seconds = world.now.as_secs_f64();
    let rate = (20 << 20) as f64 / seconds;
    assert!(rate > 15e6, "{rate} bytes per second at 50 ms");
    assert!(
        world.bytes < (21 << 20) + (1 << 20),
        "{} bytes sent",
        world.bytes
    );
}

#[test]
fn a_stream_waits_through_an_outage_and_continues_at_once() {
    let faults = Faults {
        delay: 25,
        outage: Some((100, 60_000)),
        ..Faults::default()
    };
    let mut world = World::new(2, faults);
    let key = world.ends[0].open(world.now, NAMES[1]).unwrap();
    let data = noise(2 << 20, 1);
    world.write(key, data.clone());
    world.run_until(60, |_| false);
    let sent = world.sent;
    assert!(sent < 60, "{sent} messages in an outage of a minute");
    world.run_until(100, |world| world.ended.iter().any(|key| !key.is_opener));
    assert!(world.now < Time::from_secs(68), "{:?}", world.now);
    assert!(world.read.values().any(|read| *read == data));
}

#[test]
fn a_side_that_is_silent_for_too_long_ends_the_stream() {
    let faults = Faults {
        outage: Some((100, 10_000_000)),
        delay: 10,
        ..Faults::default()
    };
    let mut world = World::new(3, faults);
    let key = world.ends[0].open(world.now, NAMES[1]).unwrap();
    world.write(key, noise(1 << 20, 1));
    world.run_until(2_000, |_| false);
    let silent = |key| StreamEvent::Cut(key, CutOff::Silent);
    assert!(world.events[0].contains(&silent(key)));
    let accepted = world.accepted()[0];
    assert!(world.events[1].contains(&silent(accepted)));
    assert!(world.ends.iter().all(StreamEndpoint::is_empty));
}

#[test]
fn a_stream_that_its_program_drops_is_cut_off_at_the_other_side() {
    let mut world = World::new(4, Faults::default());
    let key = world.ends[0].open(world.now, NAMES[1]).unwrap();
    world.write(key, noise(1 << 20, 1));
    world.run_until(10, |world| !world.accepted().is_empty());
    world.ends[0].release(key);
    world.run_until(11, |_| false);
    let accepted = world.accepted()[0];
    assert!(world.events[1].contains(&StreamEvent::Cut(accepted, CutOff::Ended)));
    assert!(world.ends.iter().all(StreamEndpoint::is_empty));
}

#[test]
fn a_stream_is_not_begun_twice_when_the_acceptor_was_started_again() {
    let mut world = World::new(
        5,
        Faults {
            delay: 10,
            ..Faults::default()
        },
    );
    let first = world.ends[0].open(world.now, NAMES[1]).unwrap();
    world.write(first, noise(10, 1));
    world.run_until(10, |world| !world.accepted().is_empty());
    // Started again: its secret is another one.
    let options = StreamEndpointOptions {
        secret: [8; 32],
        ..options(true)
    };
    world.ends[1] = StreamEndpoint::new(options, SeededRng::new(9));
    let second = world.ends[0].open(world.now, NAMES[1]).unwrap();
    world.write(second, noise(10, 1));
    world.run_until(100, |_| false);
    assert!(world.events[0].contains(&StreamEvent::Cut(second, CutOff::Unknown)));
    // The next one has the new token.
    let third = world.ends[0].open(world.now, NAMES[1]).unwrap();
    world.write(third, noise(10, 1));
    world.run_until(200, |_| false);
    assert_eq!(
        world.accepted().last().map(|key| key.stream),
        Some(third.stream)
    );
}

#[test]
fn a_caller_is_nobody_before_it_shows_a_token() {
    let mut world = World::new(6, Faults::default());
    let packet = StreamPacket {
        stream: 5,
        body: PacketBody::FromOpener(
            [3; 16],
            StreamSegment {
                data: noise(1000, 1).into(),
                ..StreamSegment::default()
            },
        ),
    };
    for _ in 0..10_000 {
        world.inject(1, &packet);
    }
    assert!(world.ends[1].is_empty());
    // The answers are bounded, and each is shorter than its question.
    let mut answers = 0;
    while let Some((_, answer)) = world.ends[1].poll_transmit(world.now) {
        answers += 1;
        assert!(answer.len() < packet.encode().len());
    }
    assert_eq!(answers, 1024);
    assert_eq!(world.ends[1].stats().without_token, 10_000);
}

#[test]
fn a_name_has_as_many_streams_as_are_left_for_others() {
    let mut world = World::new(7, Faults::default());
    let keys: Vec<_> = (0..64)
        .map(|_| world.ends[0].open(world.now, NAMES[1]).unwrap())
        .collect();
    assert!(world.ends[0].open(world.now, NAMES[1]).is_err());
    for key in keys {
        world.write(key, noise(10, 1));
    }
    world.run_until(5, |_| false);
    assert_eq!(world.accepted().len(), 32);
    let full = |event: &&StreamEvent| matches!(event, StreamEvent::Cut(_, CutOff::Full));
    assert_eq!(world.events[0].iter().filter(full).count(), 32);
}

#[test]
fn an_endpoint_that_accepts_nothing_says_so() {
    let mut world = World::new(8, Faults::default());
    let key = world.ends[1].open(world.now, NAMES[0]).unwrap();
    let word = Bytes::from_static(b"anybody there?");
    assert_eq!(world.ends[1].write(world.now, key, &word), word.len());
    world.run_until(5, |_| false);
    assert!(world.events[1].contains(&StreamEvent::Cut(key, CutOff::NotPermitted)));
}
