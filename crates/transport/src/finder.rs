//! Finding the paths to a name: the probing stage of [PTP §1].
//!
//! "The consumer periodically sends path probing Interest packets to the network" (section 3-A);
//! each brings back Data and the tag of the path that it took. Routers choose next hops evenly, so
//! repeated probes find all paths, likely ones first.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use whimbrel_core::{Deadline, SeededRng, Time};
use whimbrel_ndn_packet::{
    DataRef, Interest, LpHeader, LpPacket, NackReason, Name, NameRef, types,
};

use crate::application::{Application, Arrival, FaceNumber, Outgoing, due};
use crate::exchange::answers;
use crate::ledger::{Entry, Ledger, OrderedLedger, Sent};
use crate::path::{PathId, PathTag};
use crate::rtt::RttSummary;

/// Maximum of unanswered probes.
const MAX_OUTSTANDING: usize = 1024;
/// The key of a probe for the name itself: beyond every segment number in use.
const WHOLE: u64 = u64::MAX;

/// Options of a [`PathFinder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFinderOptions {
    /// The name, or a prefix of it. If a segment answers, further probes are for its siblings.
    pub name: Name,
    /// Interval of probes; at least 1 ms. "The frequency of probing is configured to a low value,
    /// e.g. 10 probing packets every second" ([PTP §3-A]).
    pub interval: Duration,
    /// Lifetime of each probe.
    pub timeout: Duration,
    /// The number of probes; `None` for no limit.
    pub count: Option<u64>,
    /// Maximum of paths; further ones are counted only.
    pub max_paths: usize,
}

impl PathFinderOptions {
    /// Returns the paper's frequency, without end.
    pub const fn new(name: Name) -> PathFinderOptions {
        PathFinderOptions {
            name,
            interval: Duration::from_millis(100),
            timeout: Duration::from_secs(1),
            count: None,
            max_paths: 256,
        }
    }
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FoundPath {
    /// Probes that took it.
    pub probes: u64,
    /// Their round trips up to the producer.
    pub rtt: RttSummary,
    /// The latest of them.
    pub last: Option<Time>,
}

/// Counters of a [`PathFinder`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFinderStats {
    /// Probes sent.
    pub sent: u64,
    /// Data received.
    pub received: u64,
    /// Data without a tag: no router on the way knows tags, or one has had too many probes.
    pub untagged: u64,
    /// Data on paths beyond the maximum.
    pub beyond: u64,
    /// Nacks: a probe that came back to a router it had visited, for example.
    pub nacks: u64,
    /// Not answered in time.
    pub timeouts: u64,
}

/// An event of a [`PathFinder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathFinderEvent {
    /// A path that was not known.
    Found(PathTag),
    /// A Nack.
    Nack(NackReason),
    /// All probes are finished, or [`PathFinder::stop`] was called.
    Finished(PathFinderStats),
}

/// Finds the paths to a name. Holds at most 1,024 unanswered probes, and
/// [`PathFinderOptions::max_paths`] paths.
pub struct PathFinder {
    options: PathFinderOptions,
    rng: SeededRng,
    /// The prefix of the segments, and their number, once one has answered.
    segments: Option<(Name, u64)>,
    next_segment: u64,
    next_at: Option<Time>,
    pending: OrderedLedger<u64, ()>,
    paths: BTreeMap<PathTag, FoundPath>,
    stats: PathFinderStats,
    events: VecDeque<PathFinderEvent>,
    seen: Time,
    up: bool,
    over: bool,
}

impl PathFinder {
    /// Returns a finder that starts as soon as the face is up.
    pub fn new(options: PathFinderOptions, rng: SeededRng) -> PathFinder {
        let interval = options.interval.max(Duration::from_millis(1));
        PathFinder {
            options: PathFinderOptions {
                interval,
                ..options
            },
            rng,
            segments: None,
            next_segment: 0,
            next_at: None,
            pending: Ledger::ordered(MAX_OUTSTANDING),
            paths: BTreeMap::new(),
            stats: PathFinderStats::default(),
            events: VecDeque::new(),
            seen: Time::ZERO,
            up: false,
            over: false,
        }
    }

    /// Returns the paths found so far.
    pub const fn paths(&self) -> &BTreeMap<PathTag, FoundPath> {
        &self.paths
    }

    /// Returns the counters.
    pub const fn stats(&self) -> &PathFinderStats {
        &self.stats
    }

    /// Stops.
    pub fn stop(&mut self) {
        if !self.over {
            self.over = true;
            self.events.push_back(PathFinderEvent::Finished(self.stats));
        }
    }

    fn all_sent(&self) -> bool {
        let sent = self.stats.sent;
        self.options.count.is_some_and(|count| sent >= count)
    }

    fn finish_if_done(&mut self) {
        if self.all_sent() && self.pending.is_empty() {
            self.stop();
        }
    }

    /// Returns the key of the next probe. Two probes with one name at once would be one at a
    /// router: then the next one waits.
    fn next_key(&self) -> Option<u64> {
        let key = match &self.segments {
            Some((_, count)) => self.next_segment % count,
            None => WHOLE,
        };
        self.pending.get(&key).is_none().then_some(key)
    }

    fn name_of(&self, key: u64) -> Name {
        match &self.segments {
            Some((prefix, _)) if key != WHOLE => prefix.with_segment(key),
            _ => self.options.name.clone(),
        }
    }

    /// Ends the probe that a packet's name answers.
    fn take(
        &mut self,
        name: NameRef<'_>,
        is_it: impl Fn(&Name, bool) -> bool,
    ) -> Option<Entry<()>> {
        let segment = self.segments.as_ref().and_then(|(prefix, _)| {
            let last = name.segment()?;
            (name.without_segment() == prefix.as_ref()).then_some(last)
        });
        let keys = [segment, Some(WHOLE)].into_iter().flatten();
        let key = keys
            .filter(|key| self.pending.get(key).is_some())
            .find(|key| is_it(&self.name_of(*key), *key == WHOLE))?;
        self.pending.take(&key)
    }

    fn on_data(&mut self, now: Time, packet: &LpPacket<'_>, data: &DataRef<'_>) {
        let taken = self.take(data.name, |name, whole| answers(name.as_ref(), whole, data));
        let Some(entry) = taken else { return };
        self.stats.received += 1;
        self.learn_segments(data);
        let tag = packet.path_tag.map(<[u8]>::to_vec).and_then(PathTag::new);
        let Some(tag) = tag else {
            self.stats.untagged += 1;
            return;
        };
        if !self.paths.contains_key(&tag) {
            if self.paths.len() >= self.options.max_paths {
                self.stats.beyond += 1;
                return;
            }
            self.events.push_back(PathFinderEvent::Found(tag.clone()));
        }
        let path = self.paths.entry(tag).or_default();
        path.probes += 1;
        path.last = Some(now);
        // Data from a cache has not travelled the whole path.
        if !packet.intermediate {
            path.rtt.add(now.since(entry.sent.at));
        }
    }

    /// From a segment that says which one is the last.
    fn learn_segments(&mut self, data: &DataRef<'_>) {
        if self.segments.is_some() || data.name.segment().is_none() {
            return;
        }
        let last = data.final_block_id;
        let last = last.and_then(|last| last.number_of(types::SEGMENT));
        if let Some(last) = last.filter(|last| *last > 0 && *last < WHOLE - 1) {
            self.segments = Some((data.name.without_segment().to_name(), last + 1));
        }
    }
}

impl Application for PathFinder {
    type Event = PathFinderEvent;

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
            Ok(Arrival::Data(data)) => self.on_data(now, packet, &data),
            Ok(Arrival::Nack(reason, interest)) => {
                let same = |name: &Name, _| name.as_ref().value() == interest.name.value();
                if self.take(interest.name, same).is_some() {
                    self.stats.nacks += 1;
                    self.events.push_back(PathFinderEvent::Nack(reason));
                }
            }
            _ => {}
        }
        self.finish_if_done();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        while !self.over
            && let Some(key) = self.pending.overdue(now).map(|(key, _)| *key)
        {
            self.pending.take(&key);
            self.stats.timeouts += 1;
        }
        self.finish_if_done();
    }

    fn poll_packet(&mut self, now: Time, _face: FaceNumber) -> Option<Outgoing> {
        let waits = self.next_at.is_none_or(|at| at > now);
        if !self.up || self.over || self.all_sent() || waits || self.pending.is_full() {
            return None;
        }
        let key = self.next_key()?;
        let nonce = self.rng.next_word() as u32;
        let interest = Interest {
            can_be_prefix: key == WHOLE,
            nonce: Some(nonce.to_be_bytes()),
            lifetime: Some(self.options.timeout),
            ..Interest::new(self.name_of(key))
        };
        let deadline = Some(now + self.options.timeout);
        let sent = Sent::first(now, PathId::FIRST, nonce, deadline);
        self.pending.send(key, sent, ());
        self.next_segment = self.next_segment.wrapping_add(1);
        self.stats.sent += 1;
        self.next_at = Some(now + self.options.interval);
        let header = LpHeader {
            path_discovery: true,
            ..LpHeader::default()
        };
        Some((interest.encode().into(), Some(Box::new(header))))
    }

    fn poll_event(&mut self) -> Option<PathFinderEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        if self.over {
            return None;
        }
        let sends = self.up && !self.all_sent() && self.next_key().is_some();
        let next = self.next_at.filter(|_| sends);
        let next = next.and_then(|at| due(at, self.seen, "a probe of paths is due"));
        let lost = self.pending.next_deadline();
        let lost = lost.map(|at| Deadline::new(at, "a probe of paths has timed out"));
        Deadline::earlier(next, lost)
    }
}
