//! One divided flow: its waiting chunks, its chunks in flight on each branch, and their order.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{PortId, Time};

use crate::chunk::Chunk;
use crate::next_hops::NextHops;
use crate::outgoing::ChunkToSend;

/// Time over which the gain of dividing is judged.
const REVIEW: Duration = Duration::from_secs(5);
/// A branch that brings nothing, or slows the flow down, gets no chunks for this long.
const BENCH: Duration = Duration::from_secs(10);
/// If it does so again, the time is doubled, up to this often.
const MAX_BENCH_DOUBLINGS: u32 = 4;
/// A branch is suspected of dropping once this many of its delivered chunks are requested again, and this
/// many times more than on all other branches together.
const LEAST_MISSING: u64 = 4;
const MISSING_RATIO: u64 = 4;
/// If a divided flow carries less than this part of the rate of its best branch alone, one of the other
/// branches must rest.
const LEAST_GAIN: f64 = 0.98;
/// A suspect branch that is heard again gets no chunks for this long, doubled for each repetition.
const QUARANTINE: Duration = Duration::from_millis(100);
const MAX_QUARANTINE: Duration = Duration::from_secs(5);
/// A shorter silence was only a late answer, from a busy machine or a queue that grew suddenly.
const SHORT_SILENCE: Duration = Duration::from_millis(200);
/// After this long without a suspicion, repetitions are counted from zero.
const FORGIVE: Duration = Duration::from_secs(20);
/// One part in this many of the delivered bytes, two chunks at least, may be sent twice to shorten a tail.
const COPIED_SHARE: u64 = 50;

/// The history of a branch in a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Bytes delivered.
    pub(crate) bytes: u64,
    /// Bytes of its chunks that were sent again over another branch.
    pub(crate) reissued: u64,
    /// The number of times it was suspect.
    pub(crate) suspicions: u32,
    /// The time of its first chunk.
    pub(crate) first_given: Option<Time>,
    // The time of its last delivery.
    delivered_at: Option<Time>,
    // Bytes delivered and given in the current review.
    lately: u64,
    given: u64,
    suspect_since: Option<Time>,
    last_suspicion: Option<Time>,
    // The last time at which it was silent, unresponsive or at rest: what it brings in that review
    // tells nothing of its worth.
    away_at: Option<Time>,
    // Reviews in a row after which it had to rest.
    benched: u32,
    // Times at which it had to rest because what it delivered did not arrive.
    swallowed: u32,
    rests_until: Time,
    // The time at which it last got a chunk while it had none.
    busy_since: Time,
    in_a_row: u32,
}

impl Record {
    /// Returns true if it may get chunks.
    pub(crate) fn is_fit(&self, now: Time) -> bool {
        self.suspect_since.is_none() && now >= self.rests_until
    }

    /// Returns the time since which the branch has been suspect.
    pub(crate) fn suspect_since(&self) -> Option<Time> {
        self.suspect_since
    }
}

/// A chunk in flight on one or more branches.
#[derive(Debug)]
struct UnderWay {
    bytes: u64,
    ports: BTreeSet<PortId>,
    // Bytes of later chunks delivered since, and their expected bound.
    overtaken: u64,
    bound: Option<u64>,
    // The expected time of its delivery.
    expected: Time,
    // True if more than one branch has carried it.
    copied: bool,
}

/// The expectations when a branch takes a chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    /// The bound of the bytes that overtake it; `None` until all rates are measured.
    pub(crate) bound: Option<u64>,
    /// The time at which its delivery will be known here.
    pub(crate) expected: Time,
}

/// The measured reordering of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reordering {
    /// The largest number of bytes that overtook a chunk.
    pub most: u64,
    /// The bound of that chunk; 0 if it was sent before all rates were measured.
    pub bound: u64,
    /// The number of chunks that were overtaken by more than their bound.
    pub exceeded: u64,
}

/// The state of one divided flow.
#[derive(Debug)]
pub(crate) struct DividedFlow {
    /// The next hops of its chunks.
    pub(crate) hops: NextHops,
    // In the order of `ChunkToSend::order`.
    queue: VecDeque<ChunkToSend>,
    queued_bytes: u64,
    /// Bytes announced beyond those that wait.
    pub(crate) more: u64,
    under_way: BTreeMap<u64, UnderWay>,
    next_order: u64,
    records: BTreeMap<PortId, Record>,
    delivered: u64,
    copied: u64,
    reordering: Reordering,
    review_at: Option<Time>,
    // True if a branch had room while nothing waited, in the current review.
    was_idle: bool,
    /// The time of the last chunk taken or delivered.
    pub(crate) last_progress: Time,
}

impl DividedFlow {
    pub(crate) fn new(hops: NextHops) -> DividedFlow {
        DividedFlow {
            hops,
            queue: VecDeque::new(),
            queued_bytes: 0,
            more: 0,
            under_way: BTreeMap::new(),
            next_order: 0,
            records: BTreeMap::new(),
            delivered: 0,
            copied: 0,
            reordering: Reordering::default(),
            review_at: None,
            was_idle: true,
            last_progress: Time::ZERO,
        }
    }

    /// Returns the bytes and the number of the waiting chunks.
    pub(crate) fn waiting(&self) -> (u64, usize) {
        (self.queued_bytes, self.queue.len())
    }

    /// Returns true if no chunk waits or is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.under_way.is_empty()
    }

    pub(crate) fn reordering(&self) -> Reordering {
        self.reordering
    }

    pub(crate) fn record(&self, port: PortId) -> Record {
        self.records.get(&port).cloned().unwrap_or_default()
    }

    /// Returns the waiting chunks.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &ChunkToSend> {
        self.queue.iter()
    }

    /// Appends a chunk.
    pub(crate) fn push(&mut self, mut outgoing: ChunkToSend) {
        outgoing.order = Some(self.next_order);
        self.next_order += 1;
        self.queued_bytes += outgoing.chunk.size() as u64;
        self.queue.push_back(outgoing);
    }

    /// Queues a chunk again at its place in the order.
    pub(crate) fn push_again(&mut self, outgoing: ChunkToSend) {
        let order = outgoing.order;
        let at = self.queue.partition_point(|it| it.order < order);
        if self.queue.get(at).is_some_and(|it| it.order == order) {
            return;
        }
        self.queued_bytes += outgoing.chunk.size() as u64;
        self.queue.insert(at, outgoing);
    }

    /// Returns the size of the next chunk.
    pub(crate) fn next(&self) -> Option<u64> {
        self.queue.front().map(|it| it.chunk.size() as u64)
    }

    /// Returns true if the branch on a port already carries the next chunk.
    pub(crate) fn next_is_on(&self, port: PortId) -> bool {
        let order = self.queue.front().and_then(|it| it.order);
        let under_way = order.and_then(|order| self.under_way.get(&order));
        under_way.is_some_and(|it| it.ports.contains(&port))
    }

    /// Removes the next chunk for the branch on a port.
    pub(crate) fn take(
        &mut self,
        now: Time,
        port: PortId,
        forecast: Forecast,
    ) -> Option<ChunkToSend> {
        let outgoing = self.queue.pop_front()?;
        let bytes = outgoing.chunk.size() as u64;
        self.queued_bytes -= bytes;
        self.last_progress = now;
        self.note_given(now, outgoing.order?, bytes, port, forecast);
        Some(outgoing)
    }

    fn note_given(&mut self, now: Time, order: u64, bytes: u64, port: PortId, forecast: Forecast) {
        let was_idle = !self.under_way.values().any(|it| it.ports.contains(&port));
        let record = self.records.entry(port).or_default();
        record.given += bytes;
        record.first_given.get_or_insert(now);
        if was_idle {
            record.busy_since = now;
        }
        let under_way = self.under_way.entry(order).or_insert_with(|| UnderWay {
            bytes,
            ports: BTreeSet::new(),
            overtaken: 0,
            bound: forecast.bound,
            expected: forecast.expected,
            copied: false,
        });
        under_way.copied |= !under_way.ports.is_empty();
        under_way.ports.insert(port);
    }

    /// Returns the time since which the branch on a port has had chunks.
    pub(crate) fn busy_since(&self, port: PortId) -> Option<Time> {
        let is_busy = self.under_way.values().any(|it| it.ports.contains(&port));
        let record = self.records.get(&port).filter(|_| is_busy);
        record.map(|it| it.busy_since)
    }

    /// Returns the time of the last delivery on a port whose branch has had no chunk since.
    pub(crate) fn idle_since(&self, port: PortId) -> Option<Time> {
        let is_busy = self.under_way.values().any(|it| it.ports.contains(&port));
        let record = self.records.get(&port).filter(|_| !is_busy);
        record.and_then(|it| it.delivered_at)
    }

    /// Drops the waiting copy of the next chunk, which all usable branches carry already.
    pub(crate) fn drop_copy(&mut self) {
        if let Some(copy) = self.queue.pop_front() {
            self.queued_bytes -= copy.chunk.size() as u64;
        }
    }

    /// Notes the delivery of a chunk by the branch on a port. Returns the other branches that carry it in vain.
    pub(crate) fn note_delivered(&mut self, now: Time, order: u64, port: PortId) -> Vec<PortId> {
        self.last_progress = now;
        let Some(mut chunk) = self.under_way.remove(&order) else {
            return Vec::new();
        };
        let queued = self.queue.iter().position(|it| it.order == Some(order));
        if let Some(outgoing) = queued.and_then(|at| self.queue.remove(at)) {
            self.queued_bytes -= outgoing.chunk.size() as u64;
        }
        self.delivered += chunk.bytes;
        let record = self.records.entry(port).or_default();
        record.bytes += chunk.bytes;
        record.delivered_at = Some(now);
        record.lately += chunk.bytes;
        for (_, earlier) in self.under_way.range_mut(..order) {
            earlier.overtaken += chunk.bytes;
        }
        if chunk.overtaken > self.reordering.most {
            self.reordering.most = chunk.overtaken;
            self.reordering.bound = chunk.bound.unwrap_or(0);
        }
        let is_beyond = chunk.bound.is_some_and(|bound| chunk.overtaken > bound);
        self.reordering.exceeded += u64::from(is_beyond && !chunk.copied);
        chunk.ports.remove(&port);
        chunk.ports.into_iter().collect()
    }

    /// Notes that a branch no longer carries a chunk.
    pub(crate) fn note_gone(&mut self, order: u64, port: PortId) {
        if let Some(chunk) = self.under_way.get_mut(&order) {
            chunk.ports.remove(&port);
            let is_queued = self.queue.iter().any(|it| it.order == Some(order));
            if chunk.ports.is_empty() && !is_queued {
                self.under_way.remove(&order);
            }
        }
    }

    /// Notes that a branch gave a chunk back. Returns true if no other branch carries it, so that it must be
    /// queued again.
    pub(crate) fn is_to_go_again(&mut self, order: u64, port: PortId) -> bool {
        let Some(chunk) = self.under_way.get_mut(&order) else {
            return true;
        };
        chunk.ports.remove(&port);
        chunk.copied = true;
        chunk.ports.is_empty()
    }

    /// Returns the chunks that only the branch on a port carries.
    pub(crate) fn only_on(&self, port: PortId) -> Vec<u64> {
        let alone = |it: &UnderWay| it.ports.len() == 1 && it.ports.contains(&port);
        let orders = self.under_way.iter().filter(|(_, it)| alone(it));
        orders.map(|(order, _)| *order).collect()
    }

    /// Notes bytes of a branch that are sent again over another one.
    pub(crate) fn note_reissued(&mut self, port: PortId, bytes: u64) {
        self.records.entry(port).or_default().reissued += bytes;
    }

    /// Returns the last chunk that only the branch on a port carries, and its size.
    pub(crate) fn last_on(&self, port: PortId) -> Option<(u64, u64)> {
        let alone = |it: &UnderWay| it.ports.len() == 1 && it.ports.contains(&port);
        let mut orders = self.under_way.iter().rev();
        let last = orders.find(|(_, it)| alone(it));
        last.map(|(order, it)| (*order, it.bytes))
    }

    /// Returns the earliest expected delivery among chunks on a single branch.
    pub(crate) fn first_expected(&self) -> Option<Time> {
        let alone = self.under_way.values().filter(|it| it.ports.len() == 1);
        alone.map(|it| it.expected).min()
    }

    /// Returns a chunk on a single branch whose expected delivery has passed.
    pub(crate) fn overdue(&self, now: Time) -> Option<(u64, PortId, u64)> {
        let mut alone = self.under_way.iter().filter(|(_, it)| it.ports.len() == 1);
        let (order, chunk) = alone.find(|(_, it)| it.expected <= now)?;
        Some((*order, *chunk.ports.first()?, chunk.bytes))
    }

    /// Returns the oldest chunk in flight if it is on a single branch and more than `budget` bytes have
    /// overtaken it.
    pub(crate) fn blocking(&self, budget: u64) -> Option<(u64, PortId, u64)> {
        let (order, chunk) = self.under_way.first_key_value()?;
        let port = chunk.ports.first().filter(|_| chunk.ports.len() == 1)?;
        let is_late = chunk.overtaken > budget.max(chunk.bound.unwrap_or(0));
        is_late.then_some((*order, *port, chunk.bytes))
    }

    /// Returns true, and counts them, if `bytes` bytes may be sent twice to shorten a tail.
    pub(crate) fn may_copy(&mut self, bytes: u64) -> bool {
        let may = self.copied + bytes <= (self.delivered / COPIED_SHARE).max(2 * bytes);
        self.copied += if may { bytes } else { 0 };
        may
    }

    /// Marks a branch as suspect. Returns false if it was already.
    pub(crate) fn suspect(&mut self, now: Time, port: PortId) -> bool {
        let record = self.records.entry(port).or_default();
        if record.suspect_since.is_some() {
            return false;
        }
        let is_old = |last: Time| now.since(last) >= FORGIVE;
        if record.last_suspicion.is_none_or(is_old) {
            record.in_a_row = 0;
        }
        record.suspect_since = Some(now);
        record.last_suspicion = Some(now);
        record.suspicions += 1;
        record.in_a_row += 1;
        true
    }

    /// Ends the suspicion of a branch that was heard again.
    pub(crate) fn trust(&mut self, now: Time, port: PortId) {
        if let Some(record) = self.records.get_mut(&port)
            && let Some(since) = record.suspect_since.take()
        {
            if now.since(since) < SHORT_SILENCE {
                record.in_a_row = record.in_a_row.saturating_sub(1);
                return;
            }
            let doublings = record.in_a_row.saturating_sub(1).min(8);
            let rest = (QUARANTINE * (1 << doublings)).min(MAX_QUARANTINE);
            record.rests_until = record.rests_until.max(now + rest);
        }
    }

    /// Notes that a branch has room while nothing waits.
    pub(crate) fn note_idle(&mut self) {
        self.was_idle = true;
    }

    /// Notes that a branch gets no chunks now, whatever it might bring.
    pub(crate) fn note_away(&mut self, now: Time, port: PortId) {
        self.records.entry(port).or_default().away_at = Some(now);
    }

    /// Checks the gain of dividing, once per review. A branch without which the flow would be faster, or
    /// that took chunks and delivered none, must rest; but not one that got none, or was away: then
    /// the flow had only the others, and their rates are not reached exactly. `rates` are the measured
    /// delivery rates of the branches. Returns the branch that must rest.
    pub(crate) fn review(&mut self, now: Time, rates: &[(PortId, u64)]) -> Option<PortId> {
        let review_at = *self.review_at.get_or_insert(now + REVIEW);
        if now < review_at {
            return None;
        }
        let span = now.since(review_at) + REVIEW;
        let was_idle = core::mem::take(&mut self.was_idle);
        self.review_at = Some(now + REVIEW);
        let lately = |port: &PortId| self.records.get(port).map_or(0, |it| it.lately);
        let total: u64 = rates.iter().map(|(port, _)| lately(port)).sum();
        let best = rates.iter().map(|(_, rate)| *rate).max().unwrap_or(0);
        let least = rates.iter().map(|(port, _)| *port).min_by_key(lately);
        let is_loss = !was_idle && (total as f64) < LEAST_GAIN * best as f64 * span.as_secs_f64();
        let mut rests = None;
        for (port, record) in &mut self.records {
            let (brought, given) = (record.lately, record.given);
            (record.lately, record.given) = (0, 0);
            let was_away = record.away_at.is_some_and(|at| now.since(at) <= span);
            if rates.len() < 2 || total == 0 || given == 0 || was_away {
                continue;
            }
            if least == Some(*port) && (is_loss || brought == 0) {
                record.rests_until = now + BENCH * (1 << record.benched.min(MAX_BENCH_DOUBLINGS));
                record.benched += 1;
                rests = Some(*port);
            } else {
                record.benched = 0;
            }
        }
        rests
    }

    /// A receiver requests chunks again; `missing` counts those that each branch is believed to have delivered.
    /// A branch that loses chunks rests, each time for longer, unless all branches lost them: then the receiver
    /// was away.
    pub(crate) fn note_missing(&mut self, now: Time, missing: &[(PortId, u64)]) {
        let all: u64 = missing.iter().map(|(_, chunks)| chunks).sum();
        let Some((port, most)) = missing.iter().max_by_key(|(_, chunks)| *chunks) else {
            return;
        };
        if missing.len() < 2 || *most < LEAST_MISSING || (all - most) * MISSING_RATIO > *most {
            return;
        }
        let record = self.records.entry(*port).or_default();
        let rest = BENCH * (1 << record.swallowed.min(MAX_BENCH_DOUBLINGS));
        record.swallowed += 1;
        record.rests_until = record.rests_until.max(now + rest);
    }

    /// Removes the waiting chunks for which `is_meant` is true. Returns their number.
    pub(crate) fn purge(&mut self, is_meant: impl Fn(&Chunk) -> bool) -> usize {
        let before = self.queue.len();
        self.queue.retain(|it| !is_meant(&it.chunk));
        self.queued_bytes = self.queue.iter().map(|it| it.chunk.size() as u64).sum();
        before - self.queue.len()
    }

    /// Forgets chunks that neither wait nor are among `carried`, the chunks of the branches.
    pub(crate) fn keep_present(&mut self, carried: &BTreeSet<(u64, PortId)>) {
        let queued: BTreeSet<u64> = self.queue.iter().filter_map(|it| it.order).collect();
        self.under_way.retain(|order, it| {
            it.ports.retain(|port| carried.contains(&(*order, *port)));
            !it.ports.is_empty() || queued.contains(order)
        });
    }

    /// Removes and returns the newest chunk that waits.
    pub(crate) fn take_newest(&mut self) -> Option<ChunkToSend> {
        let outgoing = self.queue.pop_back()?;
        self.queued_bytes -= outgoing.chunk.size() as u64;
        if let Some(order) = outgoing.order {
            self.under_way.remove(&order);
        }
        Some(outgoing)
    }

    /// Removes all waiting chunks. Returns those that no branch carries.
    pub(crate) fn take_all(&mut self) -> Vec<ChunkToSend> {
        self.queued_bytes = 0;
        let all: Vec<ChunkToSend> = self.queue.drain(..).collect();
        let carried = |it: &ChunkToSend| {
            let under_way = it.order.and_then(|order| self.under_way.get(&order));
            under_way.is_some_and(|it| !it.ports.is_empty())
        };
        let all: Vec<ChunkToSend> = all.into_iter().filter(|it| !carried(it)).collect();
        for order in all.iter().filter_map(|it| it.order) {
            self.under_way.remove(&order);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::outbox::tests::chunk;

    /// The model of one chunk: whether a copy waits, and the branches that carry it.
    #[derive(Clone, Debug, Default)]
    struct Place {
        waits: bool,
        ports: BTreeSet<PortId>,
    }

    #[derive(Clone, Debug)]
    enum Act {
        Push(usize),
        Take(u32),
        Deliver(usize, u32),
        GiveBack(usize, u32),
        Lose(usize, u32),
        Copy(usize),
        Purge(usize),
        TakeAll,
    }

    fn act() -> impl Strategy<Value = Act> {
        let (at, port) = (0usize..40, 1u32..4);
        prop_oneof![
            4 => (1usize..2000).prop_map(Act::Push),
            6 => port.clone().prop_map(Act::Take),
            4 => (at.clone(), port.clone()).prop_map(|(at, port)| Act::Deliver(at, port)),
            2 => (at.clone(), port.clone()).prop_map(|(at, port)| Act::GiveBack(at, port)),
            1 => (at.clone(), port).prop_map(|(at, port)| Act::Lose(at, port)),
            2 => at.clone().prop_map(Act::Copy),
            1 => at.prop_map(Act::Purge),
            1 => Just(Act::TakeAll),
        ]
    }

    struct Both {
        flow: DividedFlow,
        chunks: Vec<(ChunkToSend, Place)>,
        now: Time,
    }

    impl Both {
        fn first_waiting(&self) -> Option<usize> {
            self.chunks.iter().position(|(_, place)| place.waits)
        }

        /// The chunk numbered `at`, as the branch on `port` carries it.
        fn carried(&mut self, at: usize, port: PortId) -> Option<(u64, ChunkToSend, &mut Place)> {
            let (chunk, place) = self.chunks.get_mut(at)?;
            let chunk = chunk.clone();
            place
                .ports
                .contains(&port)
                .then_some((at as u64, chunk, place))
        }

        fn apply(&mut self, act: Act) {
            self.now += Duration::from_millis(1);
            match act {
                Act::Push(bytes) => {
                    let mut chunk = chunk(1, self.chunks.len() as u32, bytes);
                    self.flow.push(chunk.clone());
                    chunk.order = Some(self.chunks.len() as u64);
                    let waits = true;
                    self.chunks.push((
                        chunk,
                        Place {
                            waits,
                            ..Place::default()
                        },
                    ));
                }
                Act::Take(port) => self.take(PortId(port)),
                Act::Deliver(at, port) => {
                    let (port, now) = (PortId(port), self.now);
                    if let Some((order, _, place)) = self.carried(at, port) {
                        let mut others = core::mem::take(place).ports;
                        others.remove(&port);
                        let others: Vec<PortId> = others.into_iter().collect();
                        assert_eq!(self.flow.note_delivered(now, order, port), others);
                    }
                }
                Act::GiveBack(at, port) => {
                    let port = PortId(port);
                    if let Some((order, chunk, place)) = self.carried(at, port) {
                        place.ports.remove(&port);
                        let again = place.ports.is_empty();
                        place.waits |= again;
                        assert_eq!(self.flow.is_to_go_again(order, port), again);
                        if again {
                            self.flow.push_again(chunk);
                        }
                    }
                }
                Act::Lose(at, port) => {
                    let port = PortId(port);
                    if let Some((order, _, place)) = self.carried(at, port) {
                        place.ports.remove(&port);
                        self.flow.note_gone(order, port);
                    }
                }
                Act::Copy(at) => {
                    let copied = self
                        .chunks
                        .get_mut(at)
                        .filter(|(_, it)| it.ports.len() == 1);
                    if let Some((chunk, place)) = copied {
                        place.waits = true;
                        self.flow.push_again(chunk.clone());
                    }
                }
                Act::Purge(at) => self.purge(at),
                Act::TakeAll => {
                    let alone = self.chunks.iter_mut().filter_map(|(chunk, place)| {
                        let was = core::mem::take(&mut place.waits);
                        (was && place.ports.is_empty()).then_some(chunk.order)
                    });
                    let alone: Vec<_> = alone.collect();
                    let taken = self.flow.take_all();
                    assert_eq!(taken.iter().map(|it| it.order).collect::<Vec<_>>(), alone);
                }
            }
        }

        fn take(&mut self, port: PortId) {
            let Some(at) = self.first_waiting() else {
                assert_eq!(self.flow.next(), None);
                return;
            };
            let place = &mut self.chunks[at].1;
            assert_eq!(self.flow.next_is_on(port), place.ports.contains(&port));
            if !place.ports.insert(port) {
                return;
            }
            place.waits = false;
            let (bound, expected) = (None, self.now);
            let taken = self.flow.take(self.now, port, Forecast { bound, expected });
            assert_eq!(taken.and_then(|it| it.order), Some(at as u64));
        }

        /// The receiver no longer wants a chunk.
        fn purge(&mut self, at: usize) {
            let Some((unwanted, _)) = self.chunks.get(at) else {
                return;
            };
            let head = unwanted.chunk.message.head.clone();
            let waited = core::mem::take(&mut self.chunks[at].1.waits);
            let purged = self.flow.purge(|chunk| chunk.message.head == head);
            assert_eq!(purged, usize::from(waited));
            let numbered = (0u64..).zip(&self.chunks);
            let carried = numbered
                .flat_map(|(order, (_, place))| place.ports.iter().map(move |port| (order, *port)));
            self.flow.keep_present(&carried.collect());
        }

        fn check(&self) {
            let waiting = self.chunks.iter().filter(|(_, place)| place.waits);
            let bytes = waiting.clone().map(|(chunk, _)| chunk.chunk.size() as u64);
            assert_eq!(self.flow.waiting(), (bytes.sum(), waiting.count()));
            let mut all = self.chunks.iter();
            let is_idle = all.all(|(_, place)| !place.waits && place.ports.is_empty());
            assert_eq!(self.flow.is_idle(), is_idle);
        }
    }

    proptest! {
        #[test]
        fn every_chunk_is_where_the_model_has_it(acts in prop::collection::vec(act(), 0..200)) {
            let flow = DividedFlow::new(NextHops::default());
            let mut both = Both { flow, chunks: Vec::new(), now: Time::ZERO };
            for act in acts {
                both.apply(act);
                both.check();
            }
        }
    }
}
