//! The cost of a lost repetition on a path with a tag, in virtual time: a consumer, a router that loses
//! Interests or answers some as a cache does, and a producer behind a slow link.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use crate::support::{clock, digest, name, register};
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng, Time,
    Transmit,
};
use whimbrel_ndn_packet::lp::{self, LinkFields};
use whimbrel_ndn_packet::{Data, DataRef, DigestSigner, InterestRef, LpHeader, LpPacket, types};
use whimbrel_sim::link::{LinkSpec, QueueLimit};
use whimbrel_sim::{AnyMachine, Direction, DuplexLink, LinkId, NodeId, Simulator};
use whimbrel_transport::register::Registrar;
use whimbrel_transport::serve::{SegmentResponder, ServiceEvent};
use whimbrel_transport::{
    AppFace, BytesSource, FaceNumber, FetchEvent, FetchOptions, FetchStats, Fetcher, MpccpOptions,
    Multipath, PathOptions, PathTag, ProducerOptions, Service, WindowKind, WindowOptions,
};

const MS: Duration = Duration::from_millis(1);
const SEGMENT: usize = 1000;
/// Bits a second of the slow link: 117 segments a second.
const RATE: u64 = 1_000_000;
/// A path of one hop.
const TAG: &[u8] = b"\x85\x00\x00\x01";

/// What the router does with an Interest for a segment, the `nth` one for it.
type Rule = Box<dyn FnMut(Time, u64, usize) -> Act>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Forward,
    Lose,
    /// Answer from the cache.
    Answer,
}

struct Router {
    /// To the consumer, to the producer.
    ports: Vec<PortId>,
    out: VecDeque<(PortId, Vec<u8>)>,
    rule: Rule,
    /// When each segment was asked for.
    asked: BTreeMap<u64, Vec<Time>>,
    /// Segments asked for by a probe.
    probed: Vec<u64>,
}

fn segment(name: whimbrel_ndn_packet::NameRef<'_>) -> u64 {
    name.last()
        .and_then(|last| last.number_of(types::SEGMENT))
        .expect("a segment")
}

fn with_header(header: &LpHeader, packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    lp::encode(&mut frame, &LinkFields::default(), header, Some(packet));
    frame
}

impl Router {
    fn new(rule: Rule) -> Router {
        Router {
            ports: Vec::new(),
            out: VecDeque::new(),
            rule,
            asked: BTreeMap::new(),
            probed: Vec::new(),
        }
    }

    fn handle_interest(&mut self, now: Time, frame: &[u8]) {
        let packet = LpPacket::decode(frame, false).expect("a packet");
        let interest =
            InterestRef::decode(packet.fragment.expect("a packet")).expect("an Interest");
        let number = segment(interest.name);
        let asked = self.asked.entry(number).or_default();
        asked.push(now);
        match (self.rule)(now, number, asked.len()) {
            Act::Lose => {}
            Act::Answer => {
                let data = Data::new(interest.name.to_name(), content(number, SEGMENT));
                let header = LpHeader {
                    intermediate: true,
                    ..LpHeader::default()
                };
                let frame = with_header(&header, &data.encode(&DigestSigner));
                self.out.push_back((self.ports[0], frame));
            }
            Act::Forward => {
                if packet.path_discovery {
                    self.probed.push(number);
                }
                self.out.push_back((self.ports[1], interest.wire.to_vec()));
            }
        }
    }

    fn handle_data(&mut self, frame: &[u8]) {
        let number = segment(DataRef::decode(frame).expect("a Data").name);
        let probed = self.probed.iter().position(|probed| *probed == number);
        let frame = match probed.map(|at| self.probed.remove(at)) {
            Some(_) => {
                let header = LpHeader {
                    path_tag: Some(TAG.into()),
                    ..LpHeader::default()
                };
                with_header(&header, frame)
            }
            None => frame.to_vec(),
        };
        self.out.push_back((self.ports[0], frame));
    }
}

impl Machine for Router {
    type Event = Infallible;

    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        if let PortEvent::Up(_) = event {
            self.ports.push(port);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            match port == self.ports[0] {
                true => self.handle_interest(now, frame),
                false => self.handle_data(frame),
            }
        }
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (port, frame) = self.out.pop_front()?;
        buffer.extend_from_slice(&frame);
        Some(Transmit {
            port,
            size: frame.len(),
            segment_size: None,
        })
    }

    fn poll_event(&mut self) -> Option<Infallible> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

fn content(number: u64, len: usize) -> Vec<u8> {
    let at = number * SEGMENT as u64;
    (at..at + len as u64).map(|n| (n % 251) as u8).collect()
}

#[derive(Debug)]
enum Told {
    Fetch(FetchEvent),
    Nothing,
}

struct World {
    sim: Simulator<AnyMachine<Told>>,
    router: NodeId,
    /// From the router to the producer.
    slow: LinkId,
}

/// The end of a fetch.
struct Fetched {
    stats: FetchStats,
    /// The longest time without a segment in order.
    longest_pause: Duration,
    asked: BTreeMap<u64, Vec<Time>>,
}

impl Fetched {
    fn most_asked(&self) -> usize {
        self.asked.values().map(Vec::len).max().unwrap_or(0)
    }
}

/// One path with a tag, whose law is Linked Increases.
fn options() -> FetchOptions {
    let tag = PathTag::new(TAG).expect("a tag");
    FetchOptions {
        paths: vec![PathOptions::tagged(FaceNumber::FIRST, &tag)],
        lost_after: Some(1),
        window: WindowOptions {
            kind: WindowKind::Mpccp(MpccpOptions::default()),
            ..WindowOptions::default()
        },
        ..FetchOptions::default()
    }
}

impl World {
    /// A producer behind a slow link with a queue of so many packets.
    fn new(options: FetchOptions, segments: u64, queue: u64, rule: Rule) -> World {
        let mut sim = Simulator::new(1);
        let fetcher = Fetcher::new(name("/f/v=1"), options, SeededRng::new(2), Time::ZERO);
        let fetcher = AnyMachine::new(AppFace::new(fetcher), Told::Fetch);
        let consumer = sim.add_node("consumer", fetcher);
        let router = AnyMachine::new(Router::new(rule), |never: Infallible| match never {});
        let router = sim.add_node("router", router);
        let responder = SegmentResponder::new(
            name("/f/v=1"),
            BytesSource::new(content(0, segments as usize * SEGMENT), SEGMENT),
            digest(),
            ProducerOptions::new(clock(), Time::ZERO),
        );
        let registrar = Registrar::new(register(), []);
        let service = AppFace::new(Service::new(responder, registrar, SeededRng::new(1)));
        let serve = |_: ServiceEvent<_>| Told::Nothing;
        let producer = sim.add_node("producer", AnyMachine::new(service, serve));
        let mut connect = |a, b, rate, delay| {
            let spec = LinkSpec {
                queue: QueueLimit::Packets(queue),
                ..LinkSpec::new(rate, delay)
            };
            let link = DuplexLink {
                mtu: 9000,
                ..DuplexLink::symmetric(spec)
            };
            sim.connect(a, b, &link).expect("a link").link
        };
        connect(consumer, router, 2_000_000, 20 * MS);
        let slow = connect(router, producer, RATE, 30 * MS);
        World { sim, router, slow }
    }

    /// Changes the slow link, which keeps whatever is given to it.
    fn lengthen(&mut self, at: Time, delay: Duration) {
        let slow = self.slow;
        self.sim.schedule(at, move |sim| {
            for direction in [Direction::AToB, Direction::BToA] {
                let spec = LinkSpec {
                    queue: QueueLimit::Packets(1000),
                    ..LinkSpec::new(RATE, delay)
                };
                sim.set_link_spec(slow, direction, &spec).expect("a link");
            }
        });
    }

    fn finish(mut self) -> Fetched {
        let (mut latest, mut longest_pause) = (Time::ZERO, Duration::ZERO);
        let stats = loop {
            assert!(self.sim.now() < Time::from_secs(300), "it does not end");
            self.sim.run_until(self.sim.now() + 100 * MS);
            let mut done = None;
            while let Some(told) = self.sim.poll_event() {
                match told.event {
                    Told::Fetch(FetchEvent::Segment { .. }) => {
                        longest_pause = longest_pause.max(told.time.since(latest));
                        latest = told.time;
                    }
                    Told::Fetch(FetchEvent::Done(stats)) => done = Some(stats),
                    Told::Fetch(FetchEvent::Failed { error, .. }) => panic!("{error}"),
                    _ => {}
                }
            }
            if let Some(stats) = done {
                break stats;
            }
        };
        let router = self.sim.node(self.router).get::<Router>();
        Fetched {
            stats,
            longest_pause,
            asked: router.expect("the router").asked.clone(),
        }
    }
}

#[test]
fn a_window_that_a_cache_has_opened_shrinks_until_repetitions_arrive() {
    // Half of the first 2,000 segments are in a cache, as in scenario 4 of [PTP §6-E].
    let half = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1;
    let rule = move |_, number, _| match number < 2000 && half(number) {
        true => Act::Answer,
        false => Act::Forward,
    };
    let fetched = World::new(options(), 5000, 100, Box::new(rule)).finish();
    // The queue holds 0.9 s of Data; nothing else is lost.
    assert!(
        fetched.longest_pause < 2000 * MS,
        "{:?}",
        fetched.longest_pause
    );
    assert!(fetched.most_asked() <= 4, "{}", fetched.most_asked());
    assert!(fetched.stats.retransmissions < 400, "{:?}", fetched.stats);
}

/// All Interests are lost from the moment at which segment 200 is asked for, until it is asked for again;
/// then so is each segment of `lost` that is asked for a second time. Returns when each was asked for.
fn after_an_outage(segments: u64, lost: impl Fn(u64) -> bool + 'static) -> Fetched {
    let mut seen = false;
    let mut over = false;
    let rule = move |_, number, nth| {
        seen |= number == 200;
        over |= number == 200 && nth == 2;
        match (seen && !over) || (nth == 2 && lost(number)) {
            true => Act::Lose,
            false => Act::Forward,
        }
    };
    World::new(options(), segments, 1000, Box::new(rule)).finish()
}

#[test]
fn a_lost_repetition_is_found_by_the_data_of_a_later_one() {
    // No Interest is sent for the first time any more.
    let fetched = after_an_outage(240, |number| number == 210);
    let times = &fetched.asked[&210];
    let [first, second, third] = times[..] else {
        panic!("{times:?}");
    };
    // The timeout of the path is what the first repetition waited for.
    let (timeout, found) = (second.since(first), third.since(second));
    assert!(found < timeout / 2, "{found:?} after {timeout:?}");
}

#[test]
fn the_last_repetition_of_many_costs_one_timeout_not_its_back_off() {
    // Segment 239 is the last one: no other Data shows its loss.
    let fetched = after_an_outage(240, |number| number == 239);
    let times = &fetched.asked[&239];
    let [first, second, third] = times[..] else {
        panic!("{times:?}");
    };
    let (timeout, repeated) = (second.since(first), third.since(second));
    // The first one waited for a timeout, and for its back-off from the moment on at which others had
    // timed out.
    assert!(repeated < timeout / 2, "{repeated:?} after {timeout:?}");
}

#[test]
fn a_round_trip_that_grows_beyond_the_timeout_is_measured() {
    let mut world = World::new(options(), 1000, 1000, Box::new(|_, _, _| Act::Forward));
    world.lengthen(Time::from_secs(1), 1500 * MS);
    let fetched = world.finish();
    // Karn's algorithm: what was in flight is asked for again, and a few of the first ones once more; late
    // Data undo the decreases of the window meanwhile.
    let again = fetched.stats.retransmissions;
    assert!((1..400).contains(&again), "{:?}", fetched.stats);
    let late = fetched.asked.range(500..).map(|(_, times)| times.len());
    assert_eq!(late.max(), Some(1));
}

#[test]
fn a_probe_waits_as_long_as_the_paths_in_use() {
    let options = FetchOptions {
        paths: Vec::new(),
        multipath: Some(Multipath::default()),
        ..options()
    };
    let mut world = World::new(options, 2000, 1000, Box::new(|_, _, _| Act::Forward));
    world.lengthen(Time::ZERO + 500 * MS, 800 * MS);
    let fetched = world.finish();
    let (stats, asked) = (&fetched.stats, fetched.asked);
    // What is in flight when the path becomes longer is asked for again, and nothing later.
    let late = asked.range(700..).filter(|(_, times)| times.len() > 1);
    assert_eq!((late.count(), asked.len()), (0, 2000), "{stats:?}");
}

#[test]
fn a_segment_that_is_lost_while_others_arrive_does_not_end_the_fetch() {
    // More often than the default of 15 retries, which bounds how long silence is borne.
    let rule = |_, number, nth| match number == 100 && nth <= 30 {
        true => Act::Lose,
        false => Act::Forward,
    };
    let fetched = World::new(options(), 5000, 100, Box::new(rule)).finish();
    assert_eq!(fetched.asked[&100].len(), 31);
}
