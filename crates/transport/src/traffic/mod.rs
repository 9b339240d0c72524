//! Many names in proportions, at a rate, as generated and answered by `ndn-traffic-client` and
//! `ndn-traffic-server`.
//!
//! Facts: README and sample configurations of ndn-traffic-generator (`ndn-traffic-client.conf`,
//! `ndn-traffic-server.conf`); their parameters are named in the documentation of each field. In
//! addition, gaps may be exponential.

mod gaps;
mod pattern;
mod server;

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::{Deadline, SeededRng, Time};
use whimbrel_ndn_packet::{Interest, LpHeader, LpPacket, NackReason, NameRef};

pub use gaps::Gaps;
pub use pattern::{Append, TrafficPattern, TrafficStats};
pub use server::{TrafficResponder, TrafficRule, TrafficServer};

use crate::application::{Application, Arrival, FaceNumber, Outgoing, due};
use crate::ledger::{HashedLedger, Ledger, Sent};
use crate::path::PathId;
use pattern::Running;

/// Maximum of unanswered Interests; beyond it, the oldest one counts as lost.
const MAX_OUTSTANDING: usize = 65_536;
/// Maximum delay behind the schedule that is made up for.
const MAX_BEHIND: Duration = Duration::from_millis(100);

/// Options of a [`TrafficClient`].
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficOptions {
    /// The patterns of Interests: at least one, at most a million; further ones are ignored.
    pub patterns: Vec<TrafficPattern>,
    /// Mean time between two Interests (`-i`; 1 s).
    pub interval: Duration,
    /// The distribution of the intervals.
    pub gaps: Gaps,
    /// The number of Interests (`-c`); `None` for no limit.
    pub count: Option<u64>,
    /// Report every answer.
    pub log: bool,
}

/// An event of a [`TrafficClient`].
#[derive(Clone, Debug, PartialEq)]
pub enum TrafficEvent {
    /// A Data; with [`TrafficOptions::log`].
    Data {
        /// The pattern, from 0.
        pattern: usize,
        /// Round trip.
        rtt: Duration,
        /// Its content is the expected one.
        consistent: bool,
    },
    /// A Nack; with [`TrafficOptions::log`].
    Nack {
        /// The pattern, from 0.
        pattern: usize,
        /// The reason.
        reason: NackReason,
    },
    /// No answer in time; with [`TrafficOptions::log`].
    Timeout {
        /// The pattern, from 0.
        pattern: usize,
    },
    /// All Interests are finished, or [`TrafficClient::stop`] was called: counters of each pattern.
    Finished(Vec<TrafficStats>),
}

/// Generates Interests. Holds at most 65,536 unanswered ones.
pub struct TrafficClient {
    options: TrafficOptions,
    running: Vec<Running>,
    /// Sum of the patterns' shares.
    shares: f64,
    rng: SeededRng,
    /// By name, with the pattern.
    pending: HashedLedger<Bytes, usize>,
    last_nonce: u32,
    sent: u64,
    next_at: Option<Time>,
    events: VecDeque<TrafficEvent>,
    seen: Time,
    up: bool,
    over: bool,
}

impl TrafficClient {
    /// Returns a client that starts as soon as the face is up.
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
            pending: Ledger::hashed(MAX_OUTSTANDING, &mut rng),
            rng,
            last_nonce: 0,
            sent: 0,
            next_at: None,
            events: VecDeque::new(),
            seen: Time::ZERO,
            up: false,
        }
    }

    /// Counters of each pattern.
    pub fn stats(&self) -> Vec<TrafficStats> {
        self.running.iter().map(|running| running.stats).collect()
    }

    /// Stops: pending Interests count as neither answered nor lost.
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
        if self.options.log && self.events.len() < MAX_OUTSTANDING {
            self.events.push_back(event);
        }
    }

    /// Removes the Interest that a packet of this name answers; returns its pattern and
    /// transmission time.
    fn take(&mut self, name: NameRef<'_>) -> Option<(usize, Time)> {
        if let Some(found) = self.pending.take(name.value()) {
            return Some((found.data, found.sent.first_at));
        }
        // With CanBePrefix the Interest's name is shorter.
        let prefixes = self
            .running
            .iter()
            .any(|running| running.pattern.can_be_prefix);
        let lengths = (0..name.len()).rev().filter(|_| prefixes);
        let key = lengths.map(|len| name.prefix(len)).find(|prefix| {
            self.pending.get(prefix.value()).is_some_and(|entry| {
                self.running
                    .get(entry.data)
                    .is_some_and(|running| running.pattern.can_be_prefix)
            })
        })?;
        let found = self.pending.take(key.value())?;
        Some((found.data, found.sent.first_at))
    }

    fn lose(&mut self, name: &[u8]) {
        let Some(pattern) = self.pending.take(name).map(|entry| entry.data) else {
            return;
        };
        if let Some(running) = self.running.get_mut(pattern) {
            running.stats.timeouts += 1;
        }
        self.log(TrafficEvent::Timeout { pattern });
    }

    fn finish_if_done(&mut self) {
        if self.all_sent() && self.pending.is_empty() {
            self.stop();
        }
    }

    fn interest(&mut self, now: Time, index: usize) -> Option<Outgoing> {
        let running = self.running.get_mut(index)?;
        let name = running.next_name(&mut self.rng);
        // A duplicate nonce is that of the previous Interest (NonceDuplicationPercentage).
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
        let deadline = Some(now + pattern.lifetime);
        let sent = Sent::first(now, PathId::FIRST, self.last_nonce, deadline);
        // The same name again while it is pending is a retransmission: the first one's time is
        // kept.
        let key = Bytes::copy_from_slice(name.as_ref().value());
        self.pending.send(key, sent, index);
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
                let Some((pattern, sent_at)) = self.take(data.name) else {
                    return;
                };
                let rtt = now.since(sent_at);
                let Some(running) = self.running.get_mut(pattern) else {
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
                    pattern,
                    rtt,
                    consistent,
                });
            }
            Ok(Arrival::Nack(reason, interest)) => {
                let Some(entry) = self.pending.take(interest.name.value()) else {
                    return;
                };
                let pattern = entry.data;
                if let Some(running) = self.running.get_mut(pattern) {
                    running.stats.nacks += 1;
                }
                self.log(TrafficEvent::Nack { pattern, reason });
            }
            _ => {}
        }
        self.finish_if_done();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        while !self.over
            && let Some(name) = self.pending.overdue(now).map(|(name, _)| name.clone())
        {
            self.lose(&name);
        }
        self.finish_if_done();
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        let scheduled = self
            .next_at
            .filter(|at| *at <= now && self.up && !self.over && !self.all_sent())?;
        if self.pending.is_full()
            && let Some(oldest) = self
                .pending
                .oldest(PathId::FIRST)
                .map(|(name, _)| name.clone())
        {
            self.lose(&oldest);
        }
        let index = self.choose();
        let gap = self.options.gaps.draw(self.options.interval, &mut self.rng);
        self.next_at = Some(scheduled.max(now - MAX_BEHIND) + gap);
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
        let lost = self.pending.next_deadline();
        let lost = lost.map(|at| Deadline::new(at, "an Interest has timed out"));
        Deadline::earlier(next, lost)
    }
}
