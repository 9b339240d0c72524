//! The chunks that wait and those in transfer, and the sets that tell what each of them waits for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_core::{Time, TimerQueue};

use super::control::{Control, INITIAL_PACKETS};
use crate::hop::config::{HopConfig, Pacing};
use crate::hop::event::HopEvent;
use crate::hop::lanes::{Lane, Sendable, Waiting};
use crate::hop::outbound::{Fate, OutboundChunk, Parcel, Room};
use crate::hop::secure::Peer;

/// Bytes of chunks for which room is requested ahead, beyond the capacity of the path.
const ASK_AHEAD: usize = 256 << 10;
/// Lanes that may each have a begun chunk, however much waits already.
pub(super) const MAX_LANES_BEGUN: usize = 16;

/// What both neighbours can do.
#[derive(Clone, Copy, Debug)]
struct Limits {
    chunk: usize,
    chunks: usize,
    memory: u64,
}

impl Limits {
    fn of(config: &HopConfig) -> Limits {
        Limits {
            chunk: config.chunk_limit,
            chunks: usize::from(config.max_chunks_in_flight),
            memory: u64::from(config.finished_memory),
        }
    }
}

/// The neighbour's window, in packets ([MFTP §3.4.1]).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// W_ostd, ...
    pub(super) outstanding: u32,
    /// ... and the packets of urgent chunks in it.
    urgent: u32,
    /// W_ad, ...
    pub(super) advertised: u32,
    /// ... and the neighbour's clock when it stated that.
    stated_at: u64,
}

impl Window {
    /// Takes over what the neighbour states, unless it has stated something newer.
    pub(super) fn state(&mut self, advertised: u32, clock: u64) {
        if clock >= self.stated_at {
            self.advertised = advertised;
            self.stated_at = clock;
        }
    }
}

pub(in crate::hop) struct Transfers {
    pub(super) queue: Waiting,
    pub(super) active: BTreeMap<u64, OutboundChunk>,
    // Ids on the wire are the low halves of these.
    next_id: u64,
    session_first: u64,
    // Ids in `active` with a CSYN due, and with packets to send.
    pub(super) csyn_due: BTreeSet<u64>,
    pub(super) sendable: Sendable,
    pub(super) window: Window,
    pub(super) unsent_bytes: usize,
    pub(super) refused: usize,
    pub(super) tails: TimerQueue<u64>,
    limits: Limits,
    small: u16,
    // Every chunk that is not small waits for a grant, as in the paper ([MFTP] section 3.4.1).
    asks_for_room: bool,
}

impl Transfers {
    pub(super) fn new(config: &HopConfig, first_id: u32) -> Transfers {
        let first = 1 << 32 | u64::from(first_id);
        Transfers {
            queue: Waiting::new(),
            active: BTreeMap::new(),
            next_id: first,
            session_first: first,
            csyn_due: BTreeSet::new(),
            sendable: Sendable::new(),
            window: Window::default(),
            unsent_bytes: 0,
            refused: 0,
            tails: TimerQueue::new(),
            limits: Limits::of(config),
            small: config.small_chunk_packets,
            asks_for_room: config.pacing == Pacing::Unpaced,
        }
    }

    /// Starts a new session: unfinished chunks return to the head of the queue, in their order. Its
    /// ids begin with `first_id`, if the neighbour was told one.
    pub(super) fn restart(
        &mut self,
        peer: &Peer,
        (window, first_id): (u32, Option<u32>),
        config: &HopConfig,
    ) {
        let given_up = core::mem::take(&mut self.active).into_values().rev();
        for chunk in given_up.filter(|chunk| chunk.fate != Fate::Withdrawn) {
            self.queue.push_front(chunk.parcel);
        }
        self.csyn_due.clear();
        self.sendable = Sendable::new();
        self.queue.forget_begun();
        self.tails = TimerQueue::new();
        (self.unsent_bytes, self.refused) = (0, 0);
        self.window = Window {
            advertised: window,
            ..Window::default()
        };
        if let Some(first) = first_id {
            self.next_id = ((self.next_id >> 32) + 1) << 32 | u64::from(first);
        }
        self.session_first = self.next_id;
        let own = Limits::of(config);
        self.limits = Limits {
            chunk: own.chunk.min(peer.chunk_limit),
            chunks: own.chunks.min(peer.max_chunks),
            memory: own.memory.min(peer.memory),
        };
    }

    /// Cancels the chunks that are split into packets of more than `payload` bytes, to split them
    /// anew.
    pub(super) fn recut(&mut self, payload: usize) {
        let is_too_large = |chunk: &OutboundChunk| {
            usize::from(chunk.shape.packet_size) > payload && chunk.fate == Fate::Deliver
        };
        let active = self.active.iter();
        let too_large: Vec<u64> = active
            .filter(|(_, chunk)| is_too_large(chunk))
            .map(|(id, _)| *id)
            .collect();
        for id in too_large {
            self.cancel(id, Fate::Recut);
        }
    }

    /// Returns the oldest chunk in transfer whose room is, or is not, refused.
    pub(super) fn oldest(&self, refused: bool) -> Option<u64> {
        let mut active = self.active.iter();
        let found = active.find(|(_, chunk)| (chunk.room == Room::Refused) == refused);
        found.map(|(id, _)| *id)
    }

    /// Has a CSYN sent about each chunk whose reordering window is over.
    pub(super) fn ask_about_tails(&mut self, now: Time, suspended: bool) {
        while let Some((_, id)) = self.tails.pop_due(now) {
            if !suspended && self.active.get(&id).is_some_and(OutboundChunk::is_waiting) {
                self.csyn_due.insert(id);
            }
        }
    }

    pub(in crate::hop) fn queue(&mut self, parcel: Parcel) {
        self.queue.push_back(parcel);
    }

    pub(in crate::hop) fn withdraw(&mut self, tag: u64) -> Option<(Bytes, Bytes)> {
        if let Some(parcel) = self.queue.remove(tag) {
            return Some((parcel.head, parcel.body));
        }
        let live = |chunk: &OutboundChunk| chunk.parcel.tag == tag && chunk.fate != Fate::Withdrawn;
        let id = self
            .active
            .iter()
            .find(|(_, chunk)| live(chunk))
            .map(|(id, _)| *id)?;
        let parcel = self.cancel(id, Fate::Withdrawn)?;
        Some((parcel.head, parcel.body))
    }

    /// Withdraws the chunks of a lane of which nothing was sent.
    pub(in crate::hop) fn withdraw_unbegun(&mut self, lane: Lane) -> Vec<u64> {
        let unsent = |chunk: &OutboundChunk| {
            chunk.parcel.lane == lane && chunk.fate == Fate::Deliver && !chunk.was_ever_sent()
        };
        let begun = self.active.iter().filter(|(_, chunk)| unsent(chunk));
        let begun: Vec<u64> = begun.map(|(id, _)| *id).collect();
        let mut taken: Vec<Parcel> = begun
            .into_iter()
            .filter_map(|id| self.cancel(id, Fate::Withdrawn))
            .collect();
        taken.extend(self.queue.take_lane(lane));
        taken.iter().map(|parcel| parcel.tag).collect()
    }

    pub(in crate::hop) fn withdraw_all(&mut self) -> Vec<(u64, Bytes, Bytes)> {
        let live: Vec<u64> = self
            .active
            .iter()
            .filter(|(_, chunk)| chunk.fate != Fate::Withdrawn)
            .map(|(id, _)| *id)
            .collect();
        let mut all: Vec<Parcel> = live
            .into_iter()
            .filter_map(|id| self.cancel(id, Fate::Withdrawn))
            .collect();
        all.extend(self.queue.take_all());
        all.into_iter()
            .map(|parcel| (parcel.tag, parcel.head, parcel.body))
            .collect()
    }

    /// Returns the bytes that have not been sent.
    pub(in crate::hop) fn backlog(&self) -> usize {
        self.queue.bytes() + self.unsent_bytes
    }

    /// Returns true if `lane` has no chunk here and may have one although other lanes wait, as far as
    /// that depends on the chunks.
    pub(super) fn has_turn(&self, lane: Lane) -> bool {
        self.refused == 0
            && !self.queue.has(lane)
            && self.queue.lanes_begun() < MAX_LANES_BEGUN
            && self.queue.lanes() < MAX_LANES_BEGUN
    }

    /// Returns true if a chunk waits or is in transfer.
    pub(in crate::hop) fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.active.is_empty()
    }

    /// Returns the first id of this session, and the first id of a session established from now on.
    pub(in crate::hop) fn first_wire_ids(&self) -> (u32, u32) {
        (self.session_first as u32, self.next_id as u32)
    }

    /// Returns the number of chunks that may be in transfer; some places are for urgent ones.
    fn most_begun(&self, lane: Lane) -> usize {
        match lane {
            Lane::Urgent => self.limits.chunks,
            Lane::Flow(_) => self.limits.chunks - self.limits.chunks / 8,
        }
    }

    /// Splits the next chunks and requests room ahead, so that their turn starts without a pause.
    pub(super) fn begin_chunks(
        &mut self,
        control: &Control,
        overhead: usize,
        events: &mut VecDeque<HopEvent>,
    ) {
        let flight = control.flight();
        while let Some(parcel) = self.next_to_begin(flight) {
            if parcel.len() > self.limits.chunk {
                events.push_back(HopEvent::TooLarge {
                    tag: parcel.tag,
                    head: parcel.head,
                    body: parcel.body,
                });
                continue;
            }
            match OutboundChunk::new(parcel, (control.frame, overhead), Room::Asked) {
                Ok(chunk) => self.start(chunk),
                Err(parcel) => {
                    events.push_back(HopEvent::TooLarge {
                        tag: parcel.tag,
                        head: parcel.head,
                        body: parcel.body,
                    });
                }
            }
        }
    }

    /// Returns the next chunk to begin, if one may be begun.
    fn next_to_begin(&mut self, flight: usize) -> Option<Parcel> {
        let oldest = self.active.first_key_value().map(|(id, _)| *id);
        if self.next_id - oldest.unwrap_or(self.next_id) >= self.limits.memory {
            return None;
        }
        if self.active.len() < self.most_begun(Lane::Urgent)
            && let Some(urgent) = self.queue.pop_urgent()
        {
            return Some(urgent);
        }
        if self.refused > 0 || self.active.len() >= self.most_begun(Lane::DEFAULT) {
            None
        } else if self.unsent_bytes < ASK_AHEAD + flight {
            self.queue.pop()
        } else if self.queue.lanes_begun() < MAX_LANES_BEGUN {
            self.queue.pop_new()
        } else {
            None
        }
    }

    pub(super) fn start(&mut self, mut chunk: OutboundChunk) {
        let id = self.next_id;
        self.next_id += 1;
        if self.goes_unasked(chunk.packets, chunk.parcel.lane) {
            chunk.room = Room::Given;
            self.reserve(&chunk);
        }
        self.queue.note_begun(chunk.parcel.lane);
        self.unsent_bytes += chunk.unsent_bytes();
        self.active.insert(id, chunk);
        self.classify(id);
        self.arrange_query(id);
    }

    /// Returns true if a chunk of this many packets needs no grant: a small one that the window has
    /// room for, or one that takes at most half of the free window. (Others may take the room
    /// first; the chunk is then refused and waits like any other.)
    ///
    /// A few urgent packets never need a grant, because the neighbour keeps a part of its buffer
    /// for small chunks.
    fn goes_unasked(&self, packets: u16, lane: Lane) -> bool {
        let urgent = u64::from(self.window.urgent) + u64::from(packets);
        if lane == Lane::Urgent && packets <= self.small && urgent <= INITIAL_PACKETS {
            return true;
        }
        let free = self
            .window
            .advertised
            .saturating_sub(self.window.outstanding);
        let share = match self.asks_for_room {
            _ if packets <= self.small => free,
            true => 0,
            false => free / 2,
        };
        u32::from(packets) <= share
    }

    /// Counts a chunk in W_ostd.
    fn reserve(&mut self, chunk: &OutboundChunk) {
        let packets = u32::from(chunk.packets);
        self.window.outstanding += packets;
        if chunk.parcel.lane == Lane::Urgent {
            self.window.urgent += packets;
        }
    }

    /// Removes a chunk with this state of room from W_ostd.
    fn release(&mut self, room: Room, packets: u16, lane: Lane) {
        match room {
            Room::Given => {
                self.window.outstanding -= u32::from(packets);
                if lane == Lane::Urgent {
                    self.window.urgent -= u32::from(packets);
                }
            }
            Room::Refused => self.refused -= 1,
            Room::Asked => {}
        }
    }

    /// Stops a transfer and schedules a notice to the neighbour. Returns its chunk if it is
    /// withdrawn.
    pub(super) fn cancel(&mut self, id: u64, fate: Fate) -> Option<Parcel> {
        let chunk = self.active.get_mut(&id)?;
        self.unsent_bytes -= chunk.unsent_bytes();
        chunk.fate = fate;
        let empty = Parcel {
            tag: chunk.parcel.tag,
            lane: chunk.parcel.lane,
            head: Bytes::new(),
            body: Bytes::new(),
        };
        let parcel =
            (fate == Fate::Withdrawn).then(|| core::mem::replace(&mut chunk.parcel, empty));
        if chunk.room == Room::Refused {
            chunk.room = Room::Asked;
            self.refused -= 1;
        }
        chunk.asked = None;
        self.classify(id);
        self.arrange_query(id);
        parcel
    }

    pub(super) fn set_room(&mut self, id: u64, room: Room) {
        let Some(mut chunk) = self.active.remove(&id) else {
            return;
        };
        self.release(chunk.room, chunk.packets, chunk.parcel.lane);
        self.unsent_bytes -= chunk.unsent_bytes();
        chunk.start_over(room);
        self.unsent_bytes += chunk.unsent_bytes();
        match room {
            Room::Given => self.reserve(&chunk),
            Room::Refused => self.refused += 1,
            Room::Asked => {}
        }
        self.active.insert(id, chunk);
        self.classify(id);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<OutboundChunk> {
        let chunk = self.active.remove(&id)?;
        let lane = chunk.parcel.lane;
        self.release(chunk.room, chunk.packets, lane);
        self.unsent_bytes -= chunk.unsent_bytes();
        self.csyn_due.remove(&id);
        self.sendable.place(id, lane, false, false);
        self.queue.note_over(lane);
        self.tails.cancel(&id);
        Some(chunk)
    }

    /// Notes whether a chunk has packets to send.
    pub(super) fn classify(&mut self, id: u64) {
        let Some(chunk) = self.active.get(&id) else {
            return;
        };
        let resend = chunk.room == Room::Given && chunk.has_missing();
        let (lane, fresh) = (chunk.parcel.lane, chunk.has_unsent());
        self.sendable.place(id, lane, resend, fresh);
    }

    /// Schedules a CSYN about a chunk that needs an answer to continue and has not asked.
    pub(super) fn arrange_query(&mut self, id: u64) {
        let Some(chunk) = self.active.get(&id) else {
            return;
        };
        let stuck = match chunk.room {
            _ if chunk.fate != Fate::Deliver => true,
            Room::Asked => true,
            Room::Given => chunk.is_waiting(),
            Room::Refused => false,
        };
        if stuck && chunk.asked.is_none() {
            self.csyn_due.insert(id);
        }
    }

    pub(super) fn has_data(&self) -> bool {
        !self.sendable.is_empty()
    }

    pub(super) fn unwrap(&self, wire: u32) -> u64 {
        let distance = wire.wrapping_sub(self.next_id as u32) as i32;
        self.next_id.saturating_add_signed(i64::from(distance))
    }
}
