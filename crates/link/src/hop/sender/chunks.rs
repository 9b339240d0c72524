//! The chunks in transfer, and the sets that tell what each of them waits for.

use bytes::Bytes;

use super::Sender;
use super::limits::INITIAL_PACKETS;
use crate::hop::lanes::Lane;
use crate::hop::outbound::{Fate, OutboundChunk, Parcel, Room};

impl Sender {
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
        let urgent = u64::from(self.outstanding_urgent) + u64::from(packets);
        if lane == Lane::Urgent && packets <= self.small && urgent <= INITIAL_PACKETS {
            return true;
        }
        let free = self.window.saturating_sub(self.outstanding);
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
        self.outstanding += packets;
        if chunk.parcel.lane == Lane::Urgent {
            self.outstanding_urgent += packets;
        }
    }

    /// Removes a chunk with this state of room from W_ostd.
    fn release(&mut self, room: Room, packets: u16, lane: Lane) {
        match room {
            Room::Given => {
                self.outstanding -= u32::from(packets);
                if lane == Lane::Urgent {
                    self.outstanding_urgent -= u32::from(packets);
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

    pub(super) fn next_with_data(&self) -> Option<u64> {
        self.sendable.next()
    }

    pub(super) fn has_data(&self) -> bool {
        !self.sendable.is_empty()
    }

    pub(super) fn unwrap(&self, wire: u32) -> u64 {
        let distance = wire.wrapping_sub(self.next_id as u32) as i32;
        self.next_id.saturating_add_signed(i64::from(distance))
    }
}
