//! The model-based law over a model of a network: links with a rate, a delay and random loss,
//! consumers with several paths over them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use whimbrel_core::{RttOptions, SeededRng, Time};
use whimbrel_transport::congestion::Congestion;
use whimbrel_transport::path::{Answer, Path, PathId, PathOptions, Paths};
use whimbrel_transport::{ModelOptions, WindowKind, WindowOptions};

const MS: Duration = Duration::from_millis(1);
/// Packets that a link's queue holds.
const QUEUE: f64 = 100.0;

struct Link {
    /// Segments per second.
    rate: f64,
    delay: Duration,
    free_at: Time,
    delivered: u64,
    /// The sum of the times that packets waited, in seconds.
    waited: f64,
}

/// A segment on its way: over which links of its path it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    at: Time,
    number: u64,
    consumer: usize,
    path: usize,
    hop: usize,
    sent: Time,
    lost: bool,
}

struct Consumer {
    /// The links of each path, from the producer on.
    routes: Vec<Vec<usize>>,
    paths: Paths,
    next: u64,
    received: u64,
}

struct Network {
    links: Vec<Link>,
    consumers: Vec<Consumer>,
    events: BinaryHeap<Reverse<Packet>>,
    loss: f64,
    rng: SeededRng,
}

impl Network {
    fn new(links: &[(f64, u64)], consumers: &[&[&[usize]]], loss: f64) -> Network {
        let link = |(rate, delay): &(f64, u64)| Link {
            rate: *rate,
            delay: MS * *delay as u32,
            free_at: Time::ZERO,
            delivered: 0,
            waited: 0.0,
        };
        let consumer = |(at, routes): (usize, &&[&[usize]])| {
            let window = WindowOptions {
                kind: WindowKind::Model(ModelOptions {
                    drains_at: MS * 1700 * at as u32,
                    ..ModelOptions::default()
                }),
                ..WindowOptions::default()
            };
            let rtt = RttOptions::rfc6298(1000 * MS, 200 * MS, 60_000 * MS);
            let path = |id| {
                let law = window.law(Time::ZERO);
                let mut path = Path::new(PathId(id), PathOptions::default(), law, rtt, true);
                path.set_up(true);
                path
            };
            Consumer {
                routes: routes.iter().map(|route| route.to_vec()).collect(),
                paths: Paths::of((0..routes.len() as u16).map(path).collect()),
                next: 0,
                received: 0,
            }
        };
        Network {
            links: links.iter().map(link).collect(),
            consumers: consumers.iter().enumerate().map(consumer).collect(),
            events: BinaryHeap::new(),
            loss,
            rng: SeededRng::new(1),
        }
    }

    fn run(&mut self, from: Time, to: Time) {
        let mut now = from;
        while now < to {
            for consumer in 0..self.consumers.len() {
                self.send(now, consumer);
            }
            let held = self.consumers.iter().filter_map(|it| it.paths.held_until());
            let held = held.min().unwrap_or(Time::MAX);
            now = match self.events.peek() {
                Some(Reverse(packet)) if packet.at <= held => packet.at,
                _ => held,
            };
            while self.events.peek().is_some_and(|packet| packet.0.at <= now) {
                let Some(Reverse(packet)) = self.events.pop() else {
                    break;
                };
                self.step(now, packet);
            }
        }
    }

    fn send(&mut self, now: Time, at: usize) {
        let consumer = &mut self.consumers[at];
        consumer.paths.release(now);
        while let Some(id) = consumer.paths.best(Path::has_room).map(Path::id) {
            let number = consumer.next;
            consumer.next += 1;
            consumer.paths.on_sent(id, number, true);
            // The Interest takes as long as the propagation of its Data.
            let route = &consumer.routes[usize::from(id.0)];
            let delay: Duration = route.iter().map(|link| self.links[*link].delay).sum();
            self.events.push(Reverse(Packet {
                at: now + delay,
                number,
                consumer: at,
                path: usize::from(id.0),
                hop: 0,
                sent: now,
                lost: false,
            }));
        }
    }

    fn step(&mut self, now: Time, mut packet: Packet) {
        let route = &self.consumers[packet.consumer].routes[packet.path];
        if let Some(link) = route.get(packet.hop).copied() {
            let link = &mut self.links[link];
            let start = link.free_at.max(now);
            let waited = start.since(now).as_secs_f64();
            packet.lost |= self.rng.chance(self.loss) || waited * link.rate >= QUEUE;
            let done = start + Duration::from_secs_f64(1.0 / link.rate);
            if !packet.lost {
                link.free_at = done;
                link.delivered += 1;
                link.waited += waited;
            }
            // A later Data of the path shows a loss about when the lost one would have come.
            packet.at = done + link.delay;
            packet.hop += 1;
            self.events.push(Reverse(packet));
            return;
        }
        let consumer = &mut self.consumers[packet.consumer];
        let id = PathId(packet.path as u16);
        if packet.lost {
            consumer.paths.on_removed(id, true);
            consumer
                .paths
                .on_loss(id, now, packet.number, Congestion::Loss);
            return;
        }
        consumer.received += 1;
        let answer = Answer {
            now,
            segment: packet.number,
            bytes: 1000,
            rtt: Some(now.since(packet.sent)),
            to_latest: true,
            late: None,
            in_flight: true,
            marked: false,
            route: None,
            intermediate: false,
            limit: 10_000.0,
        };
        consumer.paths.on_answer(id, &answer);
    }

    /// Segments per second of each consumer, from 10 s to 60 s.
    fn rates(&mut self) -> Vec<f64> {
        let (warm, end) = (Time::from_secs(10), Time::from_secs(60));
        self.run(Time::ZERO, warm);
        for link in &mut self.links {
            (link.delivered, link.waited) = (0, 0.0);
        }
        let before: Vec<u64> = self.consumers.iter().map(|it| it.received).collect();
        self.run(warm, end);
        let after = self.consumers.iter().zip(before);
        after
            .map(|(it, before)| (it.received - before) as f64 / 50.0)
            .collect()
    }

    /// Packets that wait at a link, on average.
    fn queue(&self, link: usize) -> f64 {
        self.links[link].waited / 50.0
    }
}

#[test]
fn a_path_is_filled_with_a_short_queue_whatever_it_loses_at_random() {
    for loss in [0.0, 0.01, 0.03] {
        let mut network = Network::new(&[(500.0, 20), (2000.0, 10)], &[&[&[0, 1]]], loss);
        let rate = network.rates()[0] / 500.0;
        // The second link loses some that the first has carried.
        assert!(rate > 0.97 * (1.0 - loss), "{loss}: {rate}");
        let queue = network.queue(0);
        assert!(queue < 24.0, "{loss}: {queue}");
    }
}

#[test]
fn a_detour_over_two_bottlenecks_is_left_to_those_that_cross_one() {
    // Paths over link 0, over link 1, and over both.
    let mut network = Network::new(&[(100.0, 20), (100.0, 20)], &[&[&[0], &[1], &[0, 1]]], 0.0);
    let rate = network.rates()[0];
    assert!(rate > 0.96 * 200.0, "{rate}");
}

#[test]
fn several_paths_over_a_bottleneck_get_what_one_gets() {
    // Links 1 to 3 are not full.
    let links = [(250.0, 10), (2000.0, 10), (2000.0, 15), (2000.0, 10)];
    let mut network = Network::new(&links, &[&[&[1, 0], &[2, 0]], &[&[3, 0]]], 0.0);
    let rates = network.rates();
    let share = rates[1] / (rates[0] + rates[1]);
    assert!((0.46..=0.54).contains(&share), "{rates:?}");
    assert!(rates.iter().sum::<f64>() > 0.97 * 250.0, "{rates:?}");
    assert!(network.queue(0) < 42.0, "{}", network.queue(0));
}

#[test]
fn paths_of_different_rates_are_all_filled() {
    let links = [(37.0, 10), (73.0, 20), (146.0, 30), (292.0, 50)];
    let mut network = Network::new(&links, &[&[&[0], &[1], &[2], &[3]]], 0.01);
    let rate = network.rates()[0] / 548.0;
    assert!(rate > 0.97, "{rate}");
}

/// The mesh of [PTP figure 24]: rates in segments per second of 1 kB, and all paths that Interests may take.
#[test]
fn a_mesh_with_detours_is_filled_although_all_paths_are_in_use() {
    const NAMES: [(usize, usize, f64); 18] = [
        (1, 2, 168.0),
        (2, 3, 48.0),
        (2, 4, 72.0),
        (2, 8, 48.0),
        (3, 4, 24.0),
        (3, 7, 24.0),
        (3, 9, 24.0),
        (4, 5, 24.0),
        (4, 7, 24.0),
        (4, 11, 24.0),
        (5, 7, 24.0),
        (8, 5, 24.0),
        (5, 10, 24.0),
        (5, 11, 24.0),
        (8, 6, 24.0),
        (6, 12, 24.0),
        (7, 9, 24.0),
        (7, 10, 24.0),
    ];
    let links: Vec<(f64, u64)> = NAMES.iter().map(|(_, _, rate)| (*rate, 20)).collect();
    let mut open = vec![(1, Vec::new())];
    let mut routes: Vec<Vec<usize>> = Vec::new();
    while let Some((at, crossed)) = open.pop() {
        if at > 8 {
            routes.push(crossed.into_iter().rev().collect());
            continue;
        }
        for (link, (from, to, _)) in NAMES.iter().enumerate() {
            if *from == at {
                let longer: Vec<usize> = crossed.iter().copied().chain([link]).collect();
                open.push((*to, longer));
            }
        }
    }
    assert_eq!(routes.len(), 22);
    let routes: Vec<&[usize]> = routes.iter().map(Vec::as_slice).collect();
    let mut network = Network::new(&links, &[&routes], 0.0);
    let rate = network.rates()[0] / 168.0;
    // What is lost is the price of short queues: each path crosses up to five full links.
    let longest = (0..links.len()).map(|link| network.queue(link));
    let longest = longest.fold(0.0, f64::max);
    assert!(longest < 10.0, "{longest}");
    assert!(rate > 0.85, "{rate}");
}
