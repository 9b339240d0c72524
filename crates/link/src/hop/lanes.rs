//! The lanes that share a hop: urgent messages first, and flows in turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::outbound::Parcel;
use crate::turns::Turns;

/// The lane of a chunk.
///
/// Chunks of one lane are begun in their order; lanes take turns by bytes, packet by packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Short messages that a node waits for. They are sent before all others, up to a quarter of
    /// the link.
    Urgent,
    /// One of the flows, with a number chosen by the owner.
    Flow(u64),
}

impl Lane {
    /// The lane of an owner that has only one.
    pub const DEFAULT: Lane = Lane::Flow(0);
}

/// Bytes of one lane before another lane has its turn.
const TURN_BYTES: u64 = 16 << 10;
/// Bound of the urgent bytes sent in advance, before the other lanes have had their part.
const MAX_AHEAD: u64 = 64 << 10;
/// While others have something to send, urgent messages take at most one part for this many of the
/// others.
const OTHER_PARTS: u64 = 3;

/// Chunks that have not been begun.
pub(super) struct Waiting {
    urgent: VecDeque<Parcel>,
    flows: BTreeMap<Lane, VecDeque<Parcel>>,
    turns: Turns<Lane>,
    // Unfinished chunks that were begun, by lane; and the waiting lanes without such a chunk.
    begun: BTreeMap<Lane, usize>,
    new: BTreeSet<Lane>,
    count: usize,
    bytes: usize,
}

impl Waiting {
    pub(super) fn new() -> Waiting {
        Waiting {
            urgent: VecDeque::new(),
            flows: BTreeMap::new(),
            turns: Turns::new(0),
            begun: BTreeMap::new(),
            new: BTreeSet::new(),
            count: 0,
            bytes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of lanes with a chunk that has not been begun, except the urgent one.
    pub(super) fn lanes(&self) -> usize {
        self.flows.len()
    }

    /// Returns the number of lanes with a begun chunk, except the urgent one.
    pub(super) fn lanes_begun(&self) -> usize {
        self.begun.len()
    }

    /// Returns true if chunks of `lane` are here, begun or not.
    pub(super) fn has(&self, lane: Lane) -> bool {
        self.flows.contains_key(&lane) || self.begun.contains_key(&lane)
    }

    pub(super) fn push_back(&mut self, parcel: Parcel) {
        self.place(parcel, VecDeque::push_back);
    }

    pub(super) fn push_front(&mut self, parcel: Parcel) {
        self.place(parcel, VecDeque::push_front);
    }

    fn place(&mut self, parcel: Parcel, put: impl Fn(&mut VecDeque<Parcel>, Parcel)) {
        self.count += 1;
        self.bytes += parcel.len();
        let lane = parcel.lane;
        if lane == Lane::Urgent {
            return put(&mut self.urgent, parcel);
        }
        put(self.flows.entry(lane).or_default(), parcel);
        self.turns.join(lane);
        if !self.begun.contains_key(&lane) {
            self.new.insert(lane);
        }
    }

    pub(super) fn pop_urgent(&mut self) -> Option<Parcel> {
        let parcel = self.urgent.pop_front()?;
        self.count -= 1;
        self.bytes -= parcel.len();
        Some(parcel)
    }

    /// Takes the next chunk of the lane whose turn it is.
    pub(super) fn pop(&mut self) -> Option<Parcel> {
        self.pop_of(self.turns.next()?)
    }

    /// Takes the first chunk of a lane that has no begun chunk.
    pub(super) fn pop_new(&mut self) -> Option<Parcel> {
        self.pop_of(*self.new.first()?)
    }

    fn pop_of(&mut self, lane: Lane) -> Option<Parcel> {
        let parcel = self.flows.get_mut(&lane)?.pop_front()?;
        self.count -= 1;
        self.bytes -= parcel.len();
        self.turns.spend(lane, parcel.len() as u64);
        self.tidy(lane);
        Some(parcel)
    }

    fn tidy(&mut self, lane: Lane) {
        if self.flows.get(&lane).is_some_and(VecDeque::is_empty) {
            self.flows.remove(&lane);
            self.turns.leave(lane);
            self.new.remove(&lane);
        }
    }

    /// Notes that a chunk of `lane` is begun.
    pub(super) fn note_begun(&mut self, lane: Lane) {
        if lane != Lane::Urgent {
            *self.begun.entry(lane).or_default() += 1;
            self.new.remove(&lane);
        }
    }

    /// Notes that a begun chunk of `lane` is finished.
    pub(super) fn note_over(&mut self, lane: Lane) {
        let Some(count) = self.begun.get_mut(&lane) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.begun.remove(&lane);
            if self.flows.contains_key(&lane) {
                self.new.insert(lane);
            }
        }
    }

    /// Forgets all begun chunks.
    pub(super) fn forget_begun(&mut self) {
        self.begun.clear();
        self.new = self.flows.keys().copied().collect();
    }

    /// Removes the chunk with this tag.
    pub(super) fn remove(&mut self, tag: u64) -> Option<Parcel> {
        let take = |queue: &mut VecDeque<Parcel>| {
            let at = queue.iter().position(|parcel| parcel.tag == tag)?;
            queue.remove(at)
        };
        let urgent = take(&mut self.urgent);
        let parcel = urgent.or_else(|| self.flows.values_mut().find_map(take))?;
        self.count -= 1;
        self.bytes -= parcel.len();
        self.tidy(parcel.lane);
        Some(parcel)
    }

    /// Removes the chunks of a lane.
    pub(super) fn take_lane(&mut self, lane: Lane) -> VecDeque<Parcel> {
        let taken = match lane {
            Lane::Urgent => core::mem::take(&mut self.urgent),
            Lane::Flow(_) => self.flows.remove(&lane).unwrap_or_default(),
        };
        self.count -= taken.len();
        self.bytes -= taken.iter().map(Parcel::len).sum::<usize>();
        self.turns.leave(lane);
        self.new.remove(&lane);
        taken
    }

    /// Removes all chunks, those of each lane in their order.
    pub(super) fn take_all(&mut self) -> Vec<Parcel> {
        let lanes: Vec<Lane> = self.flows.keys().copied().collect();
        let mut all: Vec<Parcel> = self.take_lane(Lane::Urgent).into();
        for lane in lanes {
            all.extend(self.take_lane(lane));
        }
        all
    }
}

/// Begun chunks with packets to send, and their order.
pub(super) struct Sendable {
    // Ids of urgent chunks, ...
    urgent: BTreeSet<u64>,
    // ... of chunks with packets to resend, and of chunks with new packets, by lane.
    resend: BTreeSet<u64>,
    fresh: BTreeMap<Lane, BTreeSet<u64>>,
    turns: Turns<Lane>,
    ahead: u64,
}

impl Sendable {
    pub(super) fn new() -> Sendable {
        Sendable {
            urgent: BTreeSet::new(),
            resend: BTreeSet::new(),
            fresh: BTreeMap::new(),
            turns: Turns::new(TURN_BYTES),
            ahead: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && !self.others_wait()
    }

    pub(super) fn is_urgent(&self) -> bool {
        !self.urgent.is_empty()
    }

    fn others_wait(&self) -> bool {
        !self.resend.is_empty() || !self.fresh.is_empty()
    }

    /// Notes the packets that chunk `id` of `lane` has to send.
    pub(super) fn place(&mut self, id: u64, lane: Lane, resend: bool, fresh: bool) {
        if lane == Lane::Urgent {
            put(&mut self.urgent, id, resend || fresh);
            return;
        }
        put(&mut self.resend, id, resend);
        if fresh {
            self.fresh.entry(lane).or_default().insert(id);
            self.turns.join(lane);
        } else if let Some(ids) = self.fresh.get_mut(&lane) {
            ids.remove(&id);
            if ids.is_empty() {
                self.fresh.remove(&lane);
                self.turns.leave(lane);
            }
        }
    }

    /// Returns the chunk of the next packet.
    pub(super) fn next(&self) -> Option<u64> {
        let fresh = || self.fresh.get(&self.turns.next()?)?.first();
        let others = || self.resend.first().or_else(fresh);
        let next = match self.urgent.first() {
            Some(urgent) if self.ahead < MAX_AHEAD => Some(urgent),
            Some(urgent) => others().or(Some(urgent)),
            None => others(),
        };
        next.copied()
    }

    /// Notes that a packet of `lane` is sent.
    pub(super) fn spend(&mut self, lane: Lane, bytes: u64, resent: bool) {
        if lane != Lane::Urgent {
            self.ahead = self.ahead.saturating_sub(bytes / OTHER_PARTS);
            if !resent {
                self.turns.spend(lane, bytes);
            }
        } else if self.others_wait() {
            self.ahead += bytes;
        } else {
            self.ahead = 0;
        }
    }
}

fn put(set: &mut BTreeSet<u64>, id: u64, member: bool) {
    if member {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_packets_go_first_but_take_no_more_than_a_quarter() {
        let mut sendable = Sendable::new();
        sendable.place(1, Lane::Flow(1), false, true);
        sendable.place(2, Lane::Urgent, false, true);
        assert_eq!(sendable.next(), Some(2));
        let mut sent = [0u64; 3];
        for _ in 0..10_000 {
            let id = sendable.next().expect("two with packets");
            let lane = if id == 2 { Lane::Urgent } else { Lane::Flow(1) };
            sendable.spend(lane, 1_500, false);
            sent[id as usize] += 1_500;
        }
        let urgent = sent[2] - MAX_AHEAD;
        assert!(urgent * 3 <= sent[1] + 3_000, "{sent:?}");
        assert!(sent[2] * 4 >= sent[1], "{sent:?}");
        // Without others, urgent packets may use the whole link.
        sendable.place(1, Lane::Flow(1), false, false);
        assert_eq!(sendable.next(), Some(2));
    }

    #[test]
    fn retransmissions_precede_new_packets_and_flows_take_turns() {
        let mut sendable = Sendable::new();
        for id in 1..=2 {
            sendable.place(id, Lane::Flow(id), false, true);
        }
        let mut sent = [0u64; 3];
        for _ in 0..1_000 {
            let id = sendable.next().expect("two with packets");
            sendable.spend(Lane::Flow(id), 1_500, false);
            sent[id as usize] += 1_500;
        }
        assert!(sent[1].abs_diff(sent[2]) <= TURN_BYTES + 1_500, "{sent:?}");
        for id in [1, 2] {
            sendable.place(id, Lane::Flow(id), true, true);
            assert_eq!(sendable.next(), Some(id));
            sendable.place(id, Lane::Flow(id), false, true);
        }
    }
}
