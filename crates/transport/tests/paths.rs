//! A fetch over two paths, in virtual time: a consumer with two faces, each with a producer of the
//! same content behind a link of its own.

use std::time::Duration;

use crate::support::{self, Pair, Path, clock, digest, name, register};
use whimbrel_core::{RttOptions, SeededRng, Time};
use whimbrel_ndn_packet::LpHeader;
use whimbrel_ndn_packet::{InterestRef, LpPacket, types};
use whimbrel_sim::link::{LinkSpec, Loss, QueueLimit};
use whimbrel_sim::{AnyMachine, DuplexLink, LinkId, NodeId, Simulator};
use whimbrel_transport::register::Registrar;
use whimbrel_transport::rtt::NDNGET;
use whimbrel_transport::serve::{SegmentResponder, ServiceEvent};
use whimbrel_transport::{
    AppFace, BytesSource, FaceNumber, FetchEvent, FetchOptions, FetchStats, Fetcher, PathId,
    PathOptions, PathState, PathStats, Producer, ProducerOptions, Service, WindowKind,
    WindowOptions,
};

const MS: Duration = Duration::from_millis(1);
const SEGMENT: usize = 1000;
/// Bits a second of the two links, and their delays in one direction.
const RATES: [u64; 2] = [8_000_000, 4_000_000];
const DELAYS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(50)];

#[derive(Debug)]
enum Told {
    Fetch(FetchEvent),
    Serve,
}

struct World {
    sim: Simulator<AnyMachine<Told>>,
    consumer: NodeId,
    links: Vec<LinkId>,
    content: Vec<u8>,
    received: Vec<u8>,
    /// Windows of both paths in their order of change.
    windows: [Vec<f64>; 2],
    done: Option<(Time, FetchStats)>,
}

fn link(n: usize) -> LinkSpec {
    LinkSpec {
        queue: QueueLimit::Packets(64),
        ..LinkSpec::new(RATES[n], DELAYS[n])
    }
}

fn paths(faces: impl IntoIterator<Item = u8>) -> Vec<PathOptions> {
    let on = |face| PathOptions {
        face: FaceNumber(face),
        ..PathOptions::default()
    };
    faces.into_iter().map(on).collect()
}

impl World {
    fn new(options: FetchOptions, links: [LinkSpec; 2], size: usize) -> World {
        let mut sim: Simulator<AnyMachine<Told>> = Simulator::new(5);
        let content: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
        let fetcher = Fetcher::new(name("/f/v=1"), options, SeededRng::new(2), Time::ZERO);
        // The links come up in their order.
        let mut faces = (0..).map(FaceNumber);
        let face = AppFace::with_faces(fetcher, move |_| faces.next());
        let consumer = sim.add_node("consumer", AnyMachine::new(face, Told::Fetch));
        let links = links.map(|spec| {
            let serve = |_: ServiceEvent<_>| Told::Serve;
            let producer = sim.add_node("producer", AnyMachine::new(producer(&content), serve));
            let link = DuplexLink {
                mtu: 9000,
                ..DuplexLink::symmetric(spec)
            };
            sim.connect(consumer, producer, &link).expect("a link").link
        });
        World {
            sim,
            consumer,
            links: links.to_vec(),
            content,
            received: Vec::new(),
            windows: [Vec::new(), Vec::new()],
            done: None,
        }
    }

    fn run_until(&mut self, end: Time) {
        while self.done.is_none() && self.sim.now() < end {
            let piece = (self.sim.now() + 100 * MS).min(end);
            self.sim.run_until(piece);
            while let Some(occurrence) = self.sim.poll_event() {
                self.take(occurrence.event);
            }
        }
    }

    fn take(&mut self, event: Told) {
        match event {
            Told::Fetch(FetchEvent::Segment { content, .. }) => {
                self.received.extend_from_slice(&content);
            }
            Told::Fetch(FetchEvent::Window { path, size, .. }) => {
                self.windows[usize::from(path.0)].push(size);
            }
            Told::Fetch(FetchEvent::Done(stats)) => self.done = Some((self.sim.now(), stats)),
            Told::Fetch(FetchEvent::Failed { error, .. }) => panic!("{error}"),
            _ => {}
        }
    }

    fn fetcher(&self) -> &Fetcher {
        let face = self.sim.node(self.consumer).get::<AppFace<Fetcher>>();
        face.expect("the consumer").application()
    }

    fn path(&self, n: u16) -> (PathState, PathStats) {
        let paths = self.fetcher().paths().expect("it has begun");
        let path = paths.get(PathId(n)).expect("a path");
        (path.state(), *path.stats())
    }

    fn finish(&mut self) -> FetchStats {
        self.run_until(Time::from_secs(300));
        assert!(self.received == self.content, "other bytes");
        self.done.clone().expect("done").1
    }
}

fn producer(content: &[u8]) -> AppFace<Producer<BytesSource>> {
    let responder = SegmentResponder::new(
        name("/f/v=1"),
        BytesSource::new(content.to_vec(), SEGMENT),
        digest(),
        ProducerOptions::new(clock(), Time::ZERO),
    );
    let registrar = Registrar::new(register(), []);
    AppFace::new(Service::new(responder, registrar, SeededRng::new(1)))
}

/// Time-outs that may be as short as the round trips say.
fn options() -> FetchOptions {
    FetchOptions {
        paths: paths([0, 1]),
        rto: RttOptions { min: MS, ..NDNGET },
        log_window: true,
        ..FetchOptions::default()
    }
}

#[test]
fn two_paths_of_different_round_trips_give_nearly_the_sum_of_their_rates() {
    let size = 12_000_000;
    let mut world = World::new(options(), [link(0), link(1)], size);
    world.run_until(Time::from_secs(5));
    let near = world.path(0).0;
    let far = world.path(1).0;
    let stats = world.finish();
    // Data have 53 octets around their content, names and signature included.
    let best = (RATES[0] + RATES[1]) as f64 * SEGMENT as f64 / (SEGMENT + 53) as f64;
    assert!(
        stats.goodput() > 0.9 * best,
        "{} of {best}",
        stats.goodput()
    );
    let shares = [0, 1].map(|n| world.path(n).1.bytes as f64 / size as f64);
    assert!(
        (0.6..0.72).contains(&shares[0]) && (0.28..0.4).contains(&shares[1]),
        "two thirds by the faster one: {shares:?}"
    );
    // Each has its own round trips, and a time-out that follows from them alone.
    let least = [near, far].map(|path| path.least_rtt.expect("samples"));
    assert!((20 * MS..30 * MS).contains(&least[0]), "{least:?}");
    assert!((100 * MS..110 * MS).contains(&least[1]), "{least:?}");
    let smoothed = [near, far].map(|path| path.smoothed.expect("samples"));
    assert!(
        near.timeout >= smoothed[0] && near.timeout < smoothed[1],
        "{near:?} {far:?}"
    );
    assert!(far.timeout >= smoothed[1], "{far:?}");
}

#[test]
fn one_path_alone_does_not_exceed_its_link() {
    let alone = FetchOptions {
        paths: paths([1]),
        ..options()
    };
    let mut world = World::new(alone, [link(0), link(1)], 2_000_000);
    let stats = world.finish();
    assert!(stats.goodput() < RATES[1] as f64, "{}", stats.goodput());
    assert!(
        stats.goodput() > 0.8 * RATES[1] as f64,
        "{}",
        stats.goodput()
    );
}

#[test]
fn losses_of_one_path_leave_the_other_ones_window_alone() {
    for kind in [WindowKind::AIMD, WindowKind::CUBIC] {
        let window = WindowOptions {
            kind,
            threshold: 30.0,
            delay_exit: false,
            ..WindowOptions::default()
        };
        // The near link keeps whatever its queue is given; the far one loses frames.
        let near = LinkSpec {
            queue: QueueLimit::Packets(100_000),
            ..link(0)
        };
        let far = LinkSpec {
            loss: Loss::Independent(0.02),
            ..link(1)
        };
        let options = FetchOptions {
            window,
            rto: NDNGET,
            ..options()
        };
        let mut world = World::new(options, [near, far], 4_000_000);
        let stats = world.finish();
        let (near, far) = (world.path(0), world.path(1));
        assert_eq!((near.1.lost, near.1.loss_decreases), (0, 0), "{kind:?}");
        assert!(far.1.lost >= 10 && far.1.loss_decreases >= 5, "{far:?}");
        assert_eq!(stats.loss_decreases, far.1.loss_decreases);
        let [near_windows, far_windows] = &world.windows;
        assert!(near_windows.is_sorted(), "{kind:?}: it only ever grew");
        assert!(near_windows.len() > 1000 && !far_windows.is_sorted());
    }
}

#[test]
fn a_path_that_falls_silent_costs_little_and_the_other_one_finishes() {
    let size = 6_000_000;
    let mut world = World::new(options(), [link(0), link(1)], size);
    let far = world.links[1];
    world
        .sim
        .schedule(Time::from_secs(2), move |sim| sim.partition(far));
    world.run_until(Time::from_secs(300));
    assert!(world.received == world.content, "other bytes");
    let (at, _) = world.done.clone().expect("done");
    // What is left after two seconds takes the near link some 3.5 s.
    assert!(at < Time::from_secs(8), "{at}");
    let (far, stats) = world.path(1);
    assert!(stats.delivered > 500, "it was used before: {stats:?}");
    // From the second time-out on it is only probed, ever more rarely.
    assert!(
        stats.lost < 2 * 64 && far.timeout > Duration::from_secs(1),
        "{far:?} {stats:?}"
    );
}

#[test]
fn what_was_in_flight_on_a_face_that_goes_down_moves_at_once() {
    let mut world = World::new(options(), [link(0), link(1)], 3_000_000);
    world.run_until(Time::from_secs(1));
    let (before, _) = world.path(1);
    assert!(before.in_flight > 0, "{before:?}");
    let ports = world.sim.node_ports(world.consumer).to_vec();
    let consumer = world.consumer;
    world.sim.close_port(consumer, ports[1]);
    world.run_until(Time::from_secs(1) + 10 * MS);
    let (after, stats) = world.path(1);
    assert_eq!((after.up, after.in_flight), (false, 0));
    assert_eq!(stats.loss_decreases, 0, "it is no congestion");
    world.finish();
    assert_eq!(world.path(1).1.sent, stats.sent);
}

/// Two paths over one face, told apart by a link header field; the second one's Interests for
/// segments below 20 are lost once.
#[test]
fn header_fields_tell_paths_apart_and_losses_go_again_by_their_own_path() {
    let by = |face| PathOptions {
        header: LpHeader {
            next_hop_face_id: Some(face),
            ..LpHeader::default()
        },
        ..PathOptions::default()
    };
    let options = FetchOptions {
        paths: vec![by(300), by(301)],
        ..FetchOptions::default()
    };
    let content: Vec<u8> = (0..60_000).map(|n| (n % 251) as u8).collect();
    let fetcher = Fetcher::new(name("/f/v=1"), options, SeededRng::new(2), Time::ZERO);
    let source = BytesSource::new(content.clone(), SEGMENT);
    let options = ProducerOptions::new(clock(), Time::ZERO);
    let rng = SeededRng::new(1);
    let producer = Producer::segments(name("/f/v=1"), source, digest(), options, register(), rng);
    let mut pair = Pair::new(fetcher, producer, Path::clean(), 1);
    let mut seen = std::collections::BTreeSet::new();
    pair.set_tamper(Box::new(move |_, to, frame| {
        let lost = to == support::Side::Producer
            && interest(&frame)
                .is_some_and(|(face, number)| face == 301 && number < 20 && seen.insert(number));
        if lost { Vec::new() } else { vec![frame] }
    }));
    pair.run(Time::from_secs(60), |pair| {
        pair.consumer().application().is_over()
    });
    let mut by_number = std::collections::BTreeMap::<u64, Vec<u64>>::new();
    for frame in &pair.sent_by_consumer {
        let (face, number) = interest(frame).expect("an Interest with a next hop");
        by_number.entry(number).or_default().push(face);
    }
    assert_eq!(by_number.len(), 60);
    let again: Vec<&Vec<u64>> = by_number.values().filter(|faces| faces.len() > 1).collect();
    assert!(
        !again.is_empty() && again.iter().all(|faces| faces[..] == [301, 301]),
        "{again:?}"
    );
    assert!(by_number.values().any(|faces| faces[..] == [300]));
    let stats = pair.consumer().application().stats();
    assert_eq!(stats.retransmissions, again.len() as u64);
}

/// The next hop and the segment that a frame asks for.
fn interest(frame: &[u8]) -> Option<(u64, u64)> {
    let packet = LpPacket::decode(frame, false).ok()?;
    let interest = InterestRef::decode(packet.fragment?).ok()?;
    let number = interest.name.last()?.number_of(types::SEGMENT)?;
    Some((packet.next_hop_face_id?, number))
}
