//! Many names in proportions, at a rate, as `ndn-traffic-client` and `ndn-traffic-server` generate
//! and answer them.
//!
//! Facts: README and sample configurations of ndn-traffic-generator (`ndn-traffic-client.conf`,
//! `ndn-traffic-server.conf`); their parameters are named in the documentation of each field.
//! Beyond them, gaps may be exponential.

mod pattern;
mod server;

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, KeyedMap, SeededRng, Time, keyed_map};
use whimbrel_ndn_packet::{Interest, LpHeader, LpPacket, NackReason, NameRef};

pub use pattern::{Append, TrafficPattern, TrafficStats};
pub use server::{TrafficResponder, TrafficRule, TrafficServer};

use crate::application::{Application, Arrival, FaceNumber, Outgoing, due};
use crate::cbr::Gaps;
use pattern::Running;

/// Interests that may be unanswered at once; beyond, the oldest one counts as lost.
const MOST_OUTSTANDING: usize = 65_536;
/// How far sending may be behind its schedule and still catch up.
const MOST_BEHIND: Duration = Duration::from_millis(100);

/// What to generate.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficOptions {
    /// The kinds of Interests. At least one; more than a million are cut off.
    pub patterns: Vec<TrafficPattern>,
    /// Mean time between two Interests (`-i`; 1 s).
    pub interval: Duration,
    /// How it varies.
    pub gaps: Gaps,
    /// How many to send (`-c`); `None` without end.
    pub count: Option<u64>,
    /// Tell every answer.
    pub log: bool,
}

/// What a [`TrafficClient`] tells.
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficEvent {
    /// A Data; with [`TrafficOptions::log`].
    Data {
        /// Which pattern, from 0.
        pattern: usize,
        /// Round trip.
        rtt: Duration,
        /// Its content is what the pattern expects.
        consistent: bool,
    },
    /// A Nack; with [`TrafficOptions::log`].
    Nack {
        /// Which pattern, from 0.
        pattern: usize,
        /// Why.
        reason: NackReason,
    },
    /// No answer in time; with [`TrafficOptions::log`].
    Timeout {
        /// Which pattern, from 0.
        pattern: usize,
    },
    /// All were sent and answered or given up, or [`TrafficClient::stop`] was called: counters of
    /// each pattern.
    Finished(Vec<TrafficStats>),
}

struct Outstanding {
    pattern: usize,
    sent_at: Time,
    until: Time,
}

/// Generates Interests. Holds at most 65,536 unanswered ones.
pub struct TrafficClient {
    options: TrafficOptions,
    running: Vec<Running>,
    /// Sum of the patterns' shares.
    shares: f64,
    rng: SeededRng,
    outstanding: KeyedMap<Bytes, Outstanding>,
    order: VecDeque<(Time, Bytes)>,
    last_nonce: u32,
    sent: u64,
    next_at: Option<Time>,
    events: VecDeque<TrafficEvent>,
    seen: Time,
    up: bool,
    over: bool,
}

impl TrafficClient {
    /// Sends the first as soon as the face is up.
    pub fn new(mut options: TrafficOptions, mut rng: SeededRng) -> TrafficClient {
        options.patterns.truncate(1_000_000);
        options.interval = options.interval.max(Duration::from_micros(1));
        let running: Vec<Running> = options.patterns.iter().cloned().map(Running::new).collect();
        TrafficClient {
            shares: options
                .patterns
                .iter()
                .map(|pattern| pattern.share.max(0.0))
                .sum(),
            over: running.is_empty(),
            options,
            running,
            outstanding: keyed_map(&mut rng),
            rng,
            order: VecDeque::new(),
            last_nonce: 0,
            sent: 0,
            next_at: None,
            events: VecDeque::new(),
            seen: Time::ZERO,
            up: false,
        }
    }

    /// Counters of each pattern so far.
    pub fn stats(&self) -> Vec<TrafficStats> {
        self.running.iter().map(|running| running.stats).collect()
    }

    /// Ends it: what is unanswered counts as neither answered nor lost.
    pub fn stop(&mut self) {
        if !self.over {
            self.over = true;
            self.events.push_back(TrafficEvent::Finished(self.stats()));
        }
    }

    fn all_sent(&self) -> bool {
        self.options.count.is_some_and(|count| self.sent >= count)
    }

    fn choose(&mut self) -> usize {
        let mut point = self.rng.unit() * self.shares;
        for (index, pattern) in self.options.patterns.iter().enumerate() {
            point -= pattern.share.max(0.0);
            if point < 0.0 {
                return index;
            }
        }
        0
    }

    fn log(&mut self, event: TrafficEvent) {
        if self.options.log && self.events.len() < MOST_OUTSTANDING {
            self.events.push_back(event);
        }
    }

    /// Takes the Interest that a packet of this name answers.
    fn take(&mut self, name: NameRef<'_>) -> Option<Outstanding> {
        if let Some(found) = self.outstanding.remove(name.value()) {
            return Some(found);
        }
        // With CanBePrefix the Interest's name is shorter.
        let prefixes = self
            .running
            .iter()
            .any(|running| running.pattern.can_be_prefix);
        let lengths = (0..name.len()).rev().filter(|_| prefixes);
        let key = lengths.map(|len| name.prefix(len)).find(|prefix| {
            self.outstanding
                .get(prefix.value())
                .is_some_and(|outstanding| {
                    self.running
                        .get(outstanding.pattern)
                        .is_some_and(|running| running.pattern.can_be_prefix)
                })
        })?;
        self.outstanding.remove(key.value())
    }

    fn lose(&mut self, name: &Bytes) {
        let Some(outstanding) = self.outstanding.remove(name) else {
            return;
        };
        if let Some(running) = self.running.get_mut(outstanding.pattern) {
            running.stats.timeouts += 1;
        }
        self.log(TrafficEvent::Timeout {
            pattern: outstanding.pattern,
        });
    }

    fn finish_if_done(&mut self) {
        if self.all_sent() && self.outstanding.is_empty() {
            self.stop();
        }
    }

    fn interest(&mut self, now: Time, index: usize) -> Option<(Bytes, Option<Box<LpHeader>>)> {
        let running = self.running.get_mut(index)?;
        let name = running.next_name(&mut self.rng);
        // A duplicate nonce is that of the Interest before (NonceDuplicationPercentage).
        if !self.rng.chance(running.pattern.nonce_duplication) {
            self.last_nonce = self.rng.next_word() as u32;
        }
        let pattern = &running.pattern;
        let interest = Interest {
            can_be_prefix: pattern.can_be_prefix,
            must_be_fresh: pattern.must_be_fresh,
            nonce: Some(self.last_nonce.to_be_bytes()),
            lifetime: Some(pattern.lifetime),
            ..Interest::new(name.clone())
        };
        running.stats.sent += 1;
        let header = pattern.next_hop_face_id.map(|face| {
            Box::new(LpHeader {
                next_hop_face_id: Some(face),
                ..LpHeader::default()
            })
        });
        let until = now + pattern.lifetime;
        let key = Bytes::copy_from_slice(name.as_ref().value());
        // The same name again while it is unanswered is a retransmission: the first one's time
        // counts.
        if !self.outstanding.contains_key(&key) {
            self.outstanding.insert(
                key.clone(),
                Outstanding {
                    pattern: index,
                    sent_at: now,
                    until,
                },
            );
            self.order.push_back((until, key));
        }
        Some((interest.encode().into(), header))
    }
}

impl Application for TrafficClient {
    type Event = TrafficEvent;

    fn handle_face(&mut self, now: Time, _face: FaceNumber, up: bool) {
        self.up = up;
        if up {
            self.next_at = Some(now);
        }
    }

    fn handle_packet(&mut self, now: Time, _face: FaceNumber, packet: &LpPacket<'_>) {
        if self.over {
            return;
        }
        match Arrival::decode(packet) {
            Ok(Arrival::Data(data)) => {
                let Some(outstanding) = self.take(data.name) else {
                    return;
                };
                let rtt = now.since(outstanding.sent_at);
                let Some(running) = self.running.get_mut(outstanding.pattern) else {
                    return;
                };
                let consistent = running
                    .pattern
                    .expected_content
                    .as_ref()
                    .is_none_or(|content| *content == data.content);
                running.stats.received += 1;
                running.stats.inconsistent += u64::from(!consistent);
                running.stats.rtt.add(rtt);
                self.log(TrafficEvent::Data {
                    pattern: outstanding.pattern,
                    rtt,
                    consistent,
                });
            }
            Ok(Arrival::Nack(reason, interest)) => {
                let Some(outstanding) = self.outstanding.remove(interest.name.value()) else {
                    return;
                };
                if let Some(running) = self.running.get_mut(outstanding.pattern) {
                    running.stats.nacks += 1;
                }
                self.log(TrafficEvent::Nack {
                    pattern: outstanding.pattern,
                    reason,
                });
            }
            _ => {}
        }
        self.finish_if_done();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        // Lifetimes of different patterns are in one queue: a short one waits behind a longer one
        // at most as long.
        while !self.over
            && let Some((until, name)) = self.order.front().cloned()
        {
            let current = self
                .outstanding
                .get(&name)
                .is_some_and(|outstanding| outstanding.until == until);
            if current && until > now {
                break;
            }
            self.order.pop_front();
            if current {
                self.lose(&name);
            }
        }
        self.finish_if_done();
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        let scheduled = self
            .next_at
            .filter(|at| *at <= now && self.up && !self.over && !self.all_sent())?;
        while self.outstanding.len() >= MOST_OUTSTANDING
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.lose(&oldest);
        }
        let index = self.choose();
        let gap = self.options.gaps.draw(self.options.interval, &mut self.rng);
        self.next_at = Some(scheduled.max(now - MOST_BEHIND) + gap);
        self.sent += 1;
        self.interest(now, index)
    }

    fn poll_event(&mut self) -> Option<TrafficEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        if self.over {
            return None;
        }
        let next = self.next_at.filter(|_| self.up && !self.all_sent());
        let next = next.and_then(|at| due(at, self.seen, "an Interest is due"));
        let lost = self
            .order
            .front()
            .map(|(until, _)| Deadline::new(*until, "an Interest is not answered"));
        Deadline::earlier(next, lost)
    }
}
