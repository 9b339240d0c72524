//! One divided flow: what waits, what is under way on which branch, and in what order.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{PortId, Time};

use crate::chunk::Chunk;
use crate::links::ChunkToSend;
use crate::next_hops::NextHops;

/// Time over which the gain of dividing is judged.
const REVIEW: Duration = Duration::from_secs(5);
/// A branch that brought nothing, or less than nothing, stays without chunks for this long.
const BENCH: Duration = Duration::from_secs(10);
/// A divided flow that carries less than this part of what its best branch delivers alone is better
/// off without one of the others.
const LEAST_GAIN: f64 = 0.98;
/// A branch that was suspect gets no chunk for this long after its return, twice as long after each
/// further time.
const QUARANTINE: Duration = Duration::from_millis(100);
const MAX_QUARANTINE: Duration = Duration::from_secs(5);
/// A silence that is shorter was a late answer: of a busy machine, or a queue that grew at once.
const SHORT_SILENCE: Duration = Duration::from_millis(200);
/// A branch that was not suspect for so long starts over.
const FORGIVE: Duration = Duration::from_secs(20);
/// Of the delivered bytes, one part in so many may be sent twice to shorten a tail, and two chunks
/// in any case.
const COPIED_SHARE: u64 = 50;

/// What a branch has done for a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// Bytes delivered.
    pub(crate) bytes: u64,
    /// Bytes of its chunks that went out on another branch too.
    pub(crate) reissued: u64,
    /// Times that it was suspect.
    pub(crate) suspicions: u32,
    // Of the current review.
    lately: u64,
    given: u64,
    suspect_since: Option<Time>,
    last_suspicion: Option<Time>,
    rests_until: Time,
    // When it got a chunk and had none.
    busy_since: Time,
    in_a_row: u32,
}

impl Record {
    /// True while it may get chunks.
    pub(crate) fn is_fit(&self, now: Time) -> bool {
        self.suspect_since.is_none() && now >= self.rests_until
    }

    /// Since when nothing is heard on it although something should be.
    pub(crate) fn suspect_since(&self) -> Option<Time> {
        self.suspect_since
    }
}

/// A chunk that some branches carry.
#[derive(Debug)]
struct UnderWay {
    bytes: u64,
    ports: BTreeSet<PortId>,
    // Bytes of later chunks that were delivered since, and what was foreseen of them.
    overtaken: u64,
    bound: Option<u64>,
    // When it was expected to be delivered.
    expected: Time,
    // Several branches carry it or did.
    copied: bool,
}

/// What is foreseen of a chunk when a branch takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forecast {
    /// Most bytes that overtake it; unknown before all rates are measured.
    pub(crate) bound: Option<u64>,
    /// When its delivery is known here.
    pub(crate) expected: Time,
}

/// What a delivery means.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Branches that carry the chunk in vain.
    pub(crate) others: Vec<PortId>,
}

/// Reordering as it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Reordering {
    /// Most bytes that overtook a chunk.
    pub most: u64,
    /// The bound of that chunk; 0 if it went before all rates were measured.
    pub bound: u64,
    /// Chunks that were overtaken by more than their bound.
    pub exceeded: u64,
}

/// The state of one divided flow.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Where its chunks may go.
    pub(crate) hops: NextHops,
    // In their order; each has its place in `order`.
    queue: VecDeque<ChunkToSend>,
    queued_bytes: u64,
    /// Bytes that are known to follow those that wait.
    pub(crate) more: u64,
    under_way: BTreeMap<u64, UnderWay>,
    next_order: u64,
    /// The ports that were asked to hold the flow back.
    pub(crate) told: BTreeSet<PortId>,
    records: BTreeMap<PortId, Record>,
    delivered: u64,
    copied: u64,
    reordering: Reordering,
    review_at: Option<Time>,
    // A branch had room and nothing waited, in the current review.
    was_idle: bool,
    /// When a chunk was last taken or delivered.
    pub(crate) last_progress: Time,
}

impl Ledger {
    pub(crate) fn new(hops: NextHops) -> Ledger {
        Ledger {
            hops,
            queue: VecDeque::new(),
            queued_bytes: 0,
            more: 0,
            under_way: BTreeMap::new(),
            next_order: 0,
            told: BTreeSet::new(),
            records: BTreeMap::new(),
            delivered: 0,
            copied: 0,
            reordering: Reordering::default(),
            review_at: None,
            was_idle: true,
            last_progress: Time::ZERO,
        }
    }

    /// Bytes and chunks that no branch has.
    pub(crate) fn waiting(&self) -> (u64, usize) {
        (self.queued_bytes, self.queue.len())
    }

    /// True if nothing waits and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.under_way.is_empty()
    }

    pub(crate) fn reordering(&self) -> Reordering {
        self.reordering
    }

    pub(crate) fn record(&self, port: PortId) -> Record {
        self.records.get(&port).cloned().unwrap_or_default()
    }

    /// The chunks that no branch has.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &ChunkToSend> {
        self.queue.iter()
    }

    /// A chunk joins the flow at its end.
    pub(crate) fn push(&mut self, mut outgoing: ChunkToSend) {
        outgoing.order = Some(self.next_order);
        self.next_order += 1;
        self.queued_bytes += outgoing.chunk.size() as u64;
        self.queue.push_back(outgoing);
    }

    /// Chunks of the flow come back, or go out a second time: they keep their places.
    pub(crate) fn push_again(&mut self, outgoing: ChunkToSend) {
        let order = outgoing.order;
        let at = self.queue.partition_point(|it| it.order < order);
        if self.queue.get(at).is_some_and(|it| it.order == order) {
            return;
        }
        self.queued_bytes += outgoing.chunk.size() as u64;
        self.queue.insert(at, outgoing);
    }

    /// Bytes of the next chunk.
    pub(crate) fn next(&self) -> Option<u64> {
        self.queue.front().map(|it| it.chunk.size() as u64)
    }

    /// True if the branch on a port carries the next chunk already.
    pub(crate) fn next_is_on(&self, port: PortId) -> bool {
        let order = self.queue.front().and_then(|it| it.order);
        let under_way = order.and_then(|order| self.under_way.get(&order));
        under_way.is_some_and(|it| it.ports.contains(&port))
    }

    /// The branch on a port takes the next chunk.
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

    /// Since when the branch on a port has chunks, if it has some.
    pub(crate) fn busy_since(&self, port: PortId) -> Option<Time> {
        let is_busy = self.under_way.values().any(|it| it.ports.contains(&port));
        let record = self.records.get(&port).filter(|_| is_busy);
        record.map(|it| it.busy_since)
    }

    /// The first chunk that waits is on all branches that could take it: none goes out again.
    pub(crate) fn drop_copy(&mut self) {
        if let Some(copy) = self.queue.pop_front() {
            self.queued_bytes -= copy.chunk.size() as u64;
        }
    }

    /// The neighbour on a port has a chunk whole.
    pub(crate) fn note_delivered(&mut self, now: Time, order: u64, port: PortId) -> Settled {
        self.last_progress = now;
        let Some(mut chunk) = self.under_way.remove(&order) else {
            return Settled::default();
        };
        let queued = self.queue.iter().position(|it| it.order == Some(order));
        if let Some(outgoing) = queued.and_then(|at| self.queue.remove(at)) {
            self.queued_bytes -= outgoing.chunk.size() as u64;
        }
        self.delivered += chunk.bytes;
        let record = self.records.entry(port).or_default();
        record.bytes += chunk.bytes;
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
        Settled {
            others: chunk.ports.into_iter().collect(),
        }
    }

    /// A branch carries a chunk no more.
    pub(crate) fn note_gone(&mut self, order: u64, port: PortId) {
        if let Some(chunk) = self.under_way.get_mut(&order) {
            chunk.ports.remove(&port);
            let is_queued = self.queue.iter().any(|it| it.order == Some(order));
            if chunk.ports.is_empty() && !is_queued {
                self.under_way.remove(&order);
            }
        }
    }

    /// A branch carries a chunk no more, and it waits for another one; false if another one has it.
    pub(crate) fn is_to_go_again(&mut self, order: u64, port: PortId) -> bool {
        let Some(chunk) = self.under_way.get_mut(&order) else {
            return true;
        };
        chunk.ports.remove(&port);
        chunk.copied = true;
        chunk.ports.is_empty()
    }

    /// The chunks on a port that no other branch has, in their order.
    pub(crate) fn only_on(&self, port: PortId) -> Vec<u64> {
        let alone = |it: &UnderWay| it.ports.len() == 1 && it.ports.contains(&port);
        let orders = self.under_way.iter().filter(|(_, it)| alone(it));
        orders.map(|(order, _)| *order).collect()
    }

    /// Chunks of a branch go out on others too.
    pub(crate) fn note_reissued(&mut self, port: PortId, bytes: u64) {
        self.records.entry(port).or_default().reissued += bytes;
    }

    /// The last chunk in their order that the branch on a port alone carries.
    pub(crate) fn last_on(&self, port: PortId) -> Option<(u64, u64)> {
        let alone = |it: &UnderWay| it.ports.len() == 1 && it.ports.contains(&port);
        let mut orders = self.under_way.iter().rev();
        let last = orders.find(|(_, it)| alone(it));
        last.map(|(order, it)| (*order, it.bytes))
    }

    /// When the first chunk that one branch alone carries is expected.
    pub(crate) fn first_expected(&self) -> Option<Time> {
        let alone = self.under_way.values().filter(|it| it.ports.len() == 1);
        alone.map(|it| it.expected).min()
    }

    /// A chunk that should have been delivered, on one branch alone.
    pub(crate) fn overdue(&self, now: Time) -> Option<(u64, PortId, u64)> {
        let mut alone = self.under_way.iter().filter(|(_, it)| it.ports.len() == 1);
        let (order, chunk) = alone.find(|(_, it)| it.expected <= now)?;
        Some((*order, *chunk.ports.first()?, chunk.bytes))
    }

    /// The oldest chunk under way if later ones of more than `budget` bytes have overtaken it and
    /// one branch alone carries it.
    pub(crate) fn blocking(&self, budget: u64) -> Option<(u64, PortId, u64)> {
        let (order, chunk) = self.under_way.first_key_value()?;
        let port = chunk.ports.first().filter(|_| chunk.ports.len() == 1)?;
        let is_late = chunk.overtaken > budget.max(chunk.bound.unwrap_or(0));
        is_late.then_some((*order, *port, chunk.bytes))
    }

    /// True if so many bytes may be sent a second time to shorten a tail; then they count.
    pub(crate) fn may_copy(&mut self, bytes: u64) -> bool {
        let may = self.copied + bytes <= (self.delivered / COPIED_SHARE).max(2 * bytes);
        self.copied += if may { bytes } else { 0 };
        may
    }

    /// Nothing is heard on a branch. True if that is new.
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

    /// Something is heard on a branch again.
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

    /// A branch has room and nothing waits.
    pub(crate) fn note_idle(&mut self) {
        self.was_idle = true;
    }

    /// Judges the gain of dividing, once in a while: a branch without which the flow would be faster,
    /// or that took chunks and delivered none, rests. `rates` are what the branches deliver, by
    /// their own measurements. Returns the one that rests.
    pub(crate) fn review(&mut self, now: Time, rates: &[(PortId, u64)]) -> Option<PortId> {
        let review_at = *self.review_at.get_or_insert(now + REVIEW);
        if now < review_at {
            return None;
        }
        let span = (now.since(review_at) + REVIEW).as_secs_f64();
        let was_idle = core::mem::take(&mut self.was_idle);
        self.review_at = Some(now + REVIEW);
        let lately = |port: &PortId| {
            self.records
                .get(port)
                .map_or((0, 0), |it| (it.lately, it.given))
        };
        let total: u64 = rates.iter().map(|(port, _)| lately(port).0).sum();
        let best = rates.iter().map(|(_, rate)| *rate).max().unwrap_or(0);
        let least = rates
            .iter()
            .map(|(port, _)| *port)
            .min_by_key(|port| lately(port).0);
        let rests = least.filter(|port| {
            let (brought, given) = lately(port);
            let is_loss = !was_idle && (total as f64) < LEAST_GAIN * best as f64 * span;
            rates.len() > 1 && total > 0 && (is_loss || brought == 0 && given > 0)
        });
        for record in self.records.values_mut() {
            (record.lately, record.given) = (0, 0);
        }
        if let Some(port) = rests {
            self.records.entry(port).or_default().rests_until = now + BENCH;
        }
        rests
    }

    /// Removes the waiting chunks that `is_meant` picks.
    pub(crate) fn purge(&mut self, is_meant: impl Fn(&Chunk) -> bool) -> usize {
        let before = self.queue.len();
        self.queue.retain(|it| !is_meant(&it.chunk));
        self.queued_bytes = self.queue.iter().map(|it| it.chunk.size() as u64).sum();
        before - self.queue.len()
    }

    /// Forgets chunks that are nowhere any more; `carried` are those of the branches.
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

    /// Removes and returns all chunks that wait and that no branch carries.
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
