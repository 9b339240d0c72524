//! The paper's linear topology [BELRP §IV-A]: a consumer, routers with content stores, a
//! producer, and between them links with the link service under test at both ends. The forwarder
//! here knows one name scheme and nothing else.

#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::ndnlp::{LinkService, LinkServiceConfig, LinkStats, Reliability};
use whimbrel_sim::link::{LinkDirection, LinkSpec, Loss};

pub(crate) const INTEREST_LEN: usize = 28;
pub(crate) const DATA_LEN: usize = 1061;

/// What to run. The default is Table I of the paper.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) hops: usize,
    pub(crate) loss: f64,
    pub(crate) interests: u64,
    pub(crate) rate: f64,
    pub(crate) reliability: Reliability,
    /// The queue is the link service's (`drain_rate`), not the link's.
    pub(crate) own_queue: bool,
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
            own_queue: true,
            seed: 1,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Bytes of all frames on all links.
    pub(crate) bytes: u64,
    pub(crate) consumer_retransmissions: u64,
    /// From an Interest's first transmission to its Data.
    pub(crate) delays: Vec<Duration>,
    /// All link services together.
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

/// What a packet asks for or brings.
fn number_of(packet: &[u8]) -> u64 {
    let at = if packet[0] == 0x05 { 10 } else { 12 };
    u64::from_be_bytes(packet[at..at + 8].try_into().unwrap())
}

struct Link {
    ends: [LinkService; 2],
    ways: [LinkDirection<Vec<u8>>; 2],
}

#[derive(Default)]
struct Router {
    /// Until when an Interest waits here.
    pending: BTreeMap<u64, (Time, Time)>,
    stored: BTreeSet<u64>,
}

struct Consumer {
    rng: SeededRng,
    next: u64,
    next_at: Time,
    /// First and latest transmission, and how often.
    waiting: BTreeMap<u64, (Time, Time, u32)>,
    next_check: Time,
    smoothed: Option<(f64, f64)>,
    backoff: u32,
}

/// ndnSIM's consumer looks for time-outs so often.
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

pub(crate) struct Chain {
    scenario: Scenario,
    now: Time,
    links: Vec<Link>,
    routers: Vec<Router>,
    consumer: Consumer,
    outcome: Outcome,
}

impl Chain {
    pub(crate) fn new(scenario: Scenario) -> Chain {
        let mut rng = SeededRng::stream(scenario.seed, "chain");
        let rate = 10_000_000;
        let delay = Duration::from_millis(5);
        let links = (0..scenario.hops).map(|_| {
            let mut spec = LinkSpec::new(rate, delay).with_loss(Loss::Independent(scenario.loss));
            spec.queue = whimbrel_sim::link::QueueLimit::Packets(80);
            let mut config = LinkServiceConfig::datagram(1500);
            config.reliability = scenario.reliability;
            if scenario.own_queue {
                config.drain_rate = Some(rate);
                config.queue_packets = 80;
                spec.rate = whimbrel_sim::link::Rate::Unlimited;
            }
            Link {
                ends: [(); 2]
                    .map(|()| LinkService::new(config.clone(), SeededRng::new(rng.next_word()))),
                ways: [(); 2]
                    .map(|()| LinkDirection::new(&spec, SeededRng::new(rng.next_word())).unwrap()),
            }
        });
        let links: Vec<Link> = links.collect();
        Chain {
            now: Time::ZERO,
            routers: (0..=scenario.hops).map(|_| Router::default()).collect(),
            links,
            consumer: Consumer {
                rng,
                next: 0,
                next_at: Time::ZERO,
                waiting: BTreeMap::new(),
                next_check: Time::ZERO,
                smoothed: None,
                backoff: 1,
            },
            scenario,
            outcome: Outcome::default(),
        }
    }

    pub(crate) fn run(mut self) -> Outcome {
        while self.consumer.next < self.scenario.interests || !self.consumer.waiting.is_empty() {
            self.express();
            self.deliver();
            self.transmit();
            let Some(next) = self.next_time() else { break };
            self.now = self.now.max(next);
            if self.now > Time::from_secs(400) {
                break;
            }
        }
        self.outcome.unsatisfied = self.consumer.waiting.len() as u64;
        for link in &self.links {
            for end in &link.ends {
                self.outcome.bytes += end.stats().bytes_sent;
                self.outcome.links.push(end.stats().clone());
            }
        }
        self.outcome
    }

    fn next_time(&self) -> Option<Time> {
        let mut next = Some(self.consumer.next_check);
        let mut at = |time: Option<Time>| {
            next = match (next, time) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        };
        if self.consumer.next < self.scenario.interests {
            at(Some(self.consumer.next_at));
        }
        for link in &self.links {
            for end in 0..2 {
                at(link.ways[end].next_time());
                at(link.ends[end].poll_timeout().map(|deadline| deadline.at));
            }
        }
        next
    }

    fn express(&mut self) {
        let consumer = &mut self.consumer;
        if consumer.next_check <= self.now {
            consumer.next_check = self.now + CHECK;
            let timeout = consumer.timeout();
            let late = consumer
                .waiting
                .iter_mut()
                .filter(|(_, (_, latest, _))| *latest + timeout <= self.now);
            let late: Vec<u64> = late
                .map(|(number, (_, latest, count))| {
                    (*latest, *count) = (self.now, *count + 1);
                    *number
                })
                .collect();
            if !late.is_empty() {
                consumer.backoff = (consumer.backoff * 2).min(64);
            }
            for number in late {
                self.outcome.consumer_retransmissions += 1;
                let nonce = consumer.rng.next_word() as u32;
                self.links[0].ends[0].send(self.now, interest(number, nonce), None);
            }
        }
        while consumer.next < self.scenario.interests && consumer.next_at <= self.now {
            let number = consumer.next;
            consumer.next += 1;
            let gap = -(1.0 - consumer.rng.unit()).ln() / self.scenario.rate;
            consumer.next_at = self.now + Duration::from_secs_f64(gap);
            consumer.waiting.insert(number, (self.now, self.now, 1));
            let nonce = consumer.rng.next_word() as u32;
            self.links[0].ends[0].send(self.now, interest(number, nonce), None);
        }
    }

    fn deliver(&mut self) {
        for hop in 0..self.links.len() {
            for end in 0..2 {
                // Frames that end `1 - end` sent arrive at `end`.
                while let Some(frame) = self.links[hop].ways[1 - end].poll(self.now) {
                    let mut packets = Vec::new();
                    self.links[hop].ends[end].handle_frame(self.now, &frame, &mut |lp| {
                        packets.push(Bytes::copy_from_slice(lp.fragment.unwrap()));
                    });
                    for packet in packets {
                        self.forward(hop, end, packet);
                    }
                }
                let service = &mut self.links[hop].ends[end];
                if service
                    .poll_timeout()
                    .is_some_and(|deadline| deadline.at <= self.now)
                {
                    service.handle_timeout(self.now);
                }
                while service.poll_event().is_some() {}
            }
        }
    }

    fn forward(&mut self, hop: usize, end: usize, packet: Bytes) {
        let number = number_of(&packet);
        let node = hop + end;
        let now = self.now;
        if packet[0] == 0x05 {
            assert_eq!(end, 1, "Interests go towards the producer");
            if node == self.scenario.hops || self.routers[node].stored.contains(&number) {
                self.links[hop].ends[1].send(now, data(number), None);
                return;
            }
            // A retransmission is forwarded unless the last one was only just now (NFD's
            // suppression: 10 ms and more).
            let fresh = (now + Duration::from_millis(600), now);
            let pending = self.routers[node].pending.entry(number).or_insert(fresh);
            let (expires, forwarded) = *pending;
            *pending = (now + Duration::from_millis(600), now);
            if forwarded == now || expires <= now || forwarded + Duration::from_millis(10) <= now {
                self.links[hop + 1].ends[0].send(now, packet, None);
            } else {
                pending.1 = forwarded;
            }
            return;
        }
        assert_eq!(end, 0, "Data comes from the producer");
        if node > 0 {
            self.routers[node].stored.insert(number);
            if self.routers[node].pending.remove(&number).is_some() {
                self.links[hop - 1].ends[1].send(now, packet, None);
            }
        } else if let Some((first, latest, count)) = self.consumer.waiting.remove(&number) {
            self.outcome.delays.push(now.since(first));
            if count == 1 {
                self.consumer.sample(now.since(latest).as_secs_f64());
            }
        }
    }

    fn transmit(&mut self) {
        let mut buffer = Vec::new();
        for link in &mut self.links {
            for end in 0..2 {
                loop {
                    buffer.clear();
                    let Some(written) = link.ends[end].poll_transmit(self.now, 1, &mut buffer)
                    else {
                        break;
                    };
                    assert_eq!(written.size, buffer.len());
                    link.ways[end].enqueue(self.now, buffer.clone());
                }
            }
        }
    }
}
