//! The paper's linear topology [BELRP §IV-A]: a consumer, routers with content stores, a producer,
//! and links between them with the link service under test at both ends. This forwarder knows only
//! one name scheme.

#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortOrigin, PortRequest, PortToken,
    SeededRng, Time, Transmit,
};
use whimbrel_link::ndnlp::{LinkService, LinkServiceConfig, LinkStats, Reliability};
use whimbrel_sim::DuplexLink;
use whimbrel_sim::link::{LinkSpec, Loss, QueueLimit};
use whimbrel_sim::testbed::Net;

pub(crate) const INTEREST_LEN: usize = 28;
pub(crate) const DATA_LEN: usize = 1061;
/// Octets that PPP adds to each frame on the wire.
pub(crate) const PPP: u32 = 2;

/// The parameters of a run. The default is Table I of the paper.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) hops: usize,
    pub(crate) loss: f64,
    pub(crate) interests: u64,
    pub(crate) rate: f64,
    pub(crate) reliability: Reliability,
    pub(crate) seed: u64,
}

impl Scenario {
    pub(crate) fn new(reliability: Reliability, loss: f64) -> Scenario {
        Scenario {
            hops: 5,
            loss,
            interests: 20_000,
            rate: 900.0,
            reliability,
            seed: 1,
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Bytes of all frames on all links.
    pub(crate) bytes: u64,
    pub(crate) consumer_retransmissions: u64,
    /// Delays from an Interest's first transmission to its Data.
    pub(crate) delays: Vec<Duration>,
    /// The sum over all link services.
    pub(crate) links: Vec<LinkStats>,
    pub(crate) unsatisfied: u64,
}

impl Outcome {
    pub(crate) fn mean_delay(&self) -> f64 {
        self.delays.iter().map(Duration::as_secs_f64).sum::<f64>() / self.delays.len() as f64
    }

    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let mut delays = self.delays.clone();
        delays.sort();
        delays[((delays.len() - 1) as f64 * share) as usize].as_secs_f64()
    }

    pub(crate) fn sum(&self, what: impl Fn(&LinkStats) -> u64) -> u64 {
        self.links.iter().map(what).sum()
    }
}

pub(crate) fn interest(number: u64, nonce: u32) -> Bytes {
    let mut packet = vec![0x05, 26, 0x07, 14, 0x08, 1, b'p', 0x08, 9, 0];
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&[0x0a, 4]);
    packet.extend_from_slice(&nonce.to_be_bytes());
    packet.extend_from_slice(&[0x0c, 2, 0x02, 0x58]);
    assert_eq!(packet.len(), INTEREST_LEN);
    packet.into()
}

pub(crate) fn data(number: u64) -> Bytes {
    let mut packet = vec![0x06, 0xfd, 0x04, 0x21, 0x07, 14, 0x08, 1, b'p', 0x08, 9, 0];
    packet.extend_from_slice(&number.to_be_bytes());
    packet.resize(DATA_LEN, number as u8);
    packet.into()
}

/// Returns the number in a packet's name.
fn number_of(packet: &[u8]) -> u64 {
    let at = if packet[0] == 0x05 { 10 } else { 12 };
    u64::from_be_bytes(packet[at..at + 8].try_into().unwrap())
}

#[derive(Default)]
struct Router {
    /// The expiry of each pending Interest, and its last transmission.
    pending: BTreeMap<u64, (Time, Time)>,
    stored: BTreeSet<u64>,
}

struct Consumer {
    rng: SeededRng,
    next: u64,
    next_at: Time,
    /// First and latest transmission, and the count of transmissions.
    waiting: BTreeMap<u64, (Time, Time, u32)>,
    next_check: Time,
    smoothed: Option<(f64, f64)>,
    backoff: u32,
}

/// The interval at which ndnSIM's consumer checks for timeouts.
const CHECK: Duration = Duration::from_millis(50);

impl Consumer {
    /// "we modified the RTO setting to be SRTT + 8 x RTTVAR"
    fn timeout(&self) -> Duration {
        match self.smoothed {
            None => Duration::from_secs(1),
            Some((srtt, variation)) => {
                Duration::from_secs_f64(srtt + 8.0 * variation) * self.backoff
            }
        }
    }

    fn sample(&mut self, rtt: f64) {
        self.backoff = 1;
        self.smoothed = Some(match self.smoothed {
            None => (rtt, rtt / 2.0),
            Some((srtt, variation)) => (
                srtt * 0.875 + rtt * 0.125,
                variation * 0.75 + (srtt - rtt).abs() * 0.25,
            ),
        });
    }
}

/// The role of a node.
enum Role {
    Consumer(Consumer),
    Router(Router),
    Producer,
}

/// The link numbers of a node's ports towards the consumer and towards the producer.
const DOWN: usize = 0;
const UP: usize = 1;

struct Node {
    role: Role,
    config: LinkServiceConfig,
    rate: f64,
    interests: u64,
    rng: SeededRng,
    links: [Option<(PortId, LinkService)>; 2],
    outcome: Outcome,
}

impl Node {
    fn send(&mut self, now: Time, way: usize, packet: Bytes) {
        if let Some((_, service)) = &mut self.links[way] {
            service.send(now, packet, None);
        }
    }

    /// Sends the consumer's Interests that are due.
    fn express(&mut self, now: Time) {
        let Role::Consumer(consumer) = &mut self.role else {
            return;
        };
        let mut due = VecDeque::new();
        if consumer.next_check <= now {
            consumer.next_check = now + CHECK;
            let timeout = consumer.timeout();
            let late = consumer
                .waiting
                .iter_mut()
                .filter(|(_, (_, latest, _))| *latest + timeout <= now);
            due.extend(late.map(|(number, (_, latest, count))| {
                (*latest, *count) = (now, *count + 1);
                *number
            }));
            if !due.is_empty() {
                consumer.backoff = (consumer.backoff * 2).min(64);
            }
            self.outcome.consumer_retransmissions += due.len() as u64;
        }
        while consumer.next < self.interests && consumer.next_at <= now {
            let number = consumer.next;
            consumer.next += 1;
            let gap = -(1.0 - consumer.rng.unit()).ln() / self.rate;
            consumer.next_at = now + Duration::from_secs_f64(gap);
            consumer.waiting.insert(number, (now, now, 1));
            due.push_back(number);
        }
        for number in due {
            let nonce = self.rng.next_word() as u32;
            self.send(now, UP, interest(number, nonce));
        }
    }

    fn take(&mut self, now: Time, from: usize, packet: Bytes) {
        let number = number_of(&packet);
        if packet[0] == 0x05 {
            assert_eq!(from, DOWN, "Interests go towards the producer");
            let Role::Router(router) = &mut self.role else {
                return self.send(now, DOWN, data(number));
            };
            if router.stored.contains(&number) {
                return self.send(now, DOWN, data(number));
            }
            // A retransmission is forwarded unless the last one was very recent (NFD's suppression:
            // 10 ms and more).
            let fresh = (now + Duration::from_millis(600), now);
            let pending = router.pending.entry(number).or_insert(fresh);
            let (expires, forwarded) = *pending;
            *pending = (now + Duration::from_millis(600), now);
            if forwarded == now || expires <= now || forwarded + Duration::from_millis(10) <= now {
                self.send(now, UP, packet);
            } else {
                pending.1 = forwarded;
            }
            return;
        }
        assert_eq!(from, UP, "Data comes from the producer");
        match &mut self.role {
            Role::Router(router) => {
                router.stored.insert(number);
                if router.pending.remove(&number).is_some() {
                    self.send(now, DOWN, packet);
                }
            }
            Role::Consumer(consumer) => {
                if let Some((first, latest, count)) = consumer.waiting.remove(&number) {
                    self.outcome.delays.push(now.since(first));
                    if count == 1 {
                        consumer.sample(now.since(latest).as_secs_f64());
                    }
                }
            }
            Role::Producer => panic!("Data for the producer"),
        }
    }
}

impl Machine for Node {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        if let PortEvent::Up(info) = event
            && let PortOrigin::Configured(way) = info.origin
        {
            let rng = SeededRng::new(self.rng.next_word());
            let service = LinkService::new(self.config.clone(), rng);
            self.links[way as usize] = Some((port, service));
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for way in [DOWN, UP] {
            let mut packets = Vec::new();
            match &mut self.links[way] {
                Some((own, service)) if *own == port => {
                    for frame in frames {
                        service.handle_frame(now, frame, &mut |lp| {
                            packets.push(Bytes::copy_from_slice(lp.fragment.unwrap()));
                        });
                    }
                }
                _ => {}
            }
            for packet in packets {
                self.take(now, way, packet);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.express(now);
        for (_, service) in self.links.iter_mut().flatten() {
            if service.poll_timeout().is_some_and(|due| due.at <= now) {
                service.handle_timeout(now);
            }
        }
    }

    fn poll_transmit(&mut self, now: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.links.iter_mut().flatten().find_map(|(port, service)| {
            let written = service.poll_transmit(now, 1, buffer)?;
            Some(Transmit {
                port: *port,
                size: written.size,
                segment_size: None,
            })
        })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        for (_, service) in self.links.iter_mut().flatten() {
            while service.poll_event().is_some() {}
        }
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let services = self.links.iter().flatten();
        let services = services.filter_map(|(_, service)| service.poll_timeout());
        let own = match &self.role {
            Role::Consumer(consumer) => {
                let next = (consumer.next < self.interests).then_some(consumer.next_at);
                let at = next.unwrap_or(consumer.next_check).min(consumer.next_check);
                Some(Deadline::new(at, "an Interest is due"))
            }
            _ => None,
        };
        services.chain(own).min_by_key(|deadline| deadline.at)
    }
}

pub(crate) struct Chain {
    net: Net<Node>,
    nodes: usize,
}

impl Chain {
    pub(crate) fn new(scenario: Scenario) -> Chain {
        let mut net = Net::new(scenario.seed);
        let rate = 10_000_000;
        let delay = Duration::from_millis(5);
        // The queue is the device's, so that acknowledgements go with what waits: the link service
        // releases frames at the link's rate, and the link then takes the time that each has on it.
        let mut spec = LinkSpec::new(rate, delay)
            .with_loss(Loss::Independent(scenario.loss))
            .with_queue(QueueLimit::Packets(80));
        spec.overhead = PPP;
        let mut config = LinkServiceConfig::datagram(1500);
        config.reliability = scenario.reliability;
        config.drain_rate = Some(rate);
        config.drain_overhead = PPP;
        config.queue_packets = 80;
        let nodes = scenario.hops + 1;
        for number in 0..nodes {
            let (config, rate, interests) = (config.clone(), scenario.rate, scenario.interests);
            net.add(&format!("node {number}"), move |life, _| {
                let role = match life.node {
                    0 => Role::Consumer(Consumer {
                        rng: SeededRng::stream(life.seed, "consumer"),
                        next: 0,
                        next_at: Time::ZERO,
                        waiting: BTreeMap::new(),
                        next_check: Time::ZERO,
                        smoothed: None,
                        backoff: 1,
                    }),
                    last if last + 1 == nodes => Role::Producer,
                    _ => Role::Router(Router::default()),
                };
                Node {
                    role,
                    config: config.clone(),
                    rate,
                    interests,
                    rng: life.rng(),
                    links: [None, None],
                    outcome: Outcome::default(),
                }
            });
        }
        let link = DuplexLink::ip(spec.clone(), spec, usize::MAX).with_origins(
            PortOrigin::Configured(UP as u32),
            PortOrigin::Configured(DOWN as u32),
        );
        for number in 1..nodes {
            net.connect(number - 1, number, &link).unwrap();
        }
        Chain { net, nodes }
    }

    pub(crate) fn run(mut self) -> Outcome {
        let waiting = |net: &Net<Node>| match &net[0].role {
            Role::Consumer(it) if it.next < net[0].interests => u64::MAX,
            Role::Consumer(it) => it.waiting.len() as u64,
            _ => 0,
        };
        let limit = Time::from_secs(400);
        self.net.run_while_not(limit, |net| waiting(net) == 0);
        let mut outcome = self
            .net
            .with(0, |node, _| core::mem::take(&mut node.outcome));
        outcome.unsatisfied = waiting(&self.net);
        for node in 0..self.nodes {
            for (_, service) in self.net[node].links.iter().flatten() {
                outcome.bytes += service.stats().bytes_sent;
                outcome.links.push(service.stats().clone());
            }
        }
        outcome
    }
}
