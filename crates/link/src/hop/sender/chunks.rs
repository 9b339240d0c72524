//! The chunks under way and the sets that tell what each of them waits for.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::Sender;
use crate::hop::config::Pacing;
use crate::hop::outbound::{Fate, OutboundChunk, Parcel, Room};

impl Sender {
    pub(super) fn start(&mut self, mut chunk: OutboundChunk) {
        let id = self.next_id;
        self.next_id += 1;
        let packets = u32::from(chunk.packets);
        if self.goes_unasked(chunk.packets) {
            chunk.room = Room::Given;
            self.outstanding += packets;
        }
        self.unsent_bytes += chunk.unsent_bytes();
        self.active.insert(id, chunk);
        self.classify(id);
        self.arrange_query(id);
    }

    /// True if a chunk of so many packets needs no grant: a small one that the window has room for,
    /// or one that takes no more than half of what is free there. (Others may take it meanwhile;
    /// then the chunk is refused and waits as any other.)
    fn goes_unasked(&self, packets: u16) -> bool {
        let free = self.window.saturating_sub(self.outstanding);
        let share = match self.pacing {
            _ if packets <= self.small => free,
            Pacing::Unpaced => 0,
            Pacing::Estimate | Pacing::Fixed(_) => free / 2,
        };
        u32::from(packets) <= share
    }

    /// Stops a transfer and arranges that the neighbour is told; returns its chunk if it is
    /// withdrawn.
    pub(super) fn cancel(&mut self, id: u64, fate: Fate) -> Option<Parcel> {
        let chunk = self.active.get_mut(&id)?;
        self.unsent_bytes -= chunk.unsent_bytes();
        chunk.fate = fate;
        let empty = Parcel {
            tag: chunk.parcel.tag,
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
        let Some(chunk) = self.active.get_mut(&id) else {
            return;
        };
        let packets = u32::from(chunk.packets);
        match chunk.room {
            Room::Given => self.outstanding -= packets,
            Room::Refused => self.refused -= 1,
            Room::Asked => {}
        }
        self.unsent_bytes -= chunk.unsent_bytes();
        chunk.start_over(room);
        self.unsent_bytes += chunk.unsent_bytes();
        match room {
            Room::Given => self.outstanding += packets,
            Room::Refused => self.refused += 1,
            Room::Asked => {}
        }
        self.classify(id);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<OutboundChunk> {
        let chunk = self.active.remove(&id)?;
        match chunk.room {
            Room::Given => self.outstanding -= u32::from(chunk.packets),
            Room::Refused => self.refused -= 1,
            Room::Asked => {}
        }
        self.unsent_bytes -= chunk.unsent_bytes();
        for set in [&mut self.csyn_due, &mut self.resend, &mut self.fresh] {
            set.remove(&id);
        }
        self.tails.cancel(&id);
        Some(chunk)
    }

    /// Notes whether a chunk has packets to send.
    pub(super) fn classify(&mut self, id: u64) {
        let Some(chunk) = self.active.get(&id) else {
            return;
        };
        place(
            &mut self.resend,
            id,
            chunk.room == Room::Given && chunk.has_missing(),
        );
        place(&mut self.fresh, id, chunk.has_unsent());
    }

    /// Arranges a CSYN about a chunk that can go on only with an answer and has not asked.
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
        self.resend.first().or(self.fresh.first()).copied()
    }

    pub(super) fn has_data(&self) -> bool {
        !self.resend.is_empty() || !self.fresh.is_empty()
    }

    pub(super) fn unwrap(&self, wire: u32) -> u64 {
        let distance = wire.wrapping_sub(self.next_id as u32) as i32;
        self.next_id.saturating_add_signed(i64::from(distance))
    }
}

fn place(set: &mut BTreeSet<u64>, id: u64, member: bool) {
    if member {
        set.insert(id);
    } else {
        set.remove(&id);
    }
}
