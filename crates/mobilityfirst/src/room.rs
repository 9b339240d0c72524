//! Room in the back-pressure buffer, held as long as the value lives.
//!
//! A chunk passes through queues, hops, tables and programs of a node. Room that frees itself when
//! its last holder drops it cannot be forgotten on any of these paths; [`Buffer::take_back`], which
//! the node's [`Links`](crate::links::Links) call at each of their entries, tells the hops that
//! wait for it.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use whimbrel_link::{PacketBudget, Share};

/// Packets of small chunks that a neighbour may hold whatever others hold.
const ALWAYS_SMALL: usize = 128;

/// The back-pressure buffer of a node [MFTP §3.4.1]: the packets that its hops reserve, and those
/// that holders of [`Room`] have freed.
#[derive(Debug)]
pub struct Buffer {
    budget: PacketBudget,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    // Packets whose room was dropped but not yet returned to the budget.
    returned: AtomicU64,
    // Bytes of the chunks that hold room.
    bytes: AtomicU64,
}

/// Packets of a [`Buffer`] until its last clone is dropped; the default holds none.
///
/// Copies of a chunk that leave on several ports share one payload, so they share its room.
#[derive(Clone, Debug, Default)]
pub struct Room {
    part: Option<Arc<Part>>,
}

/// The packets that one neighbour's chunks hold: arriving ones, and those with [`Room`].
#[derive(Clone, Debug, Default)]
pub struct Holder(Arc<AtomicU64>);

impl Holder {
    /// Returns the packets.
    pub fn packets(&self) -> usize {
        self.0.load(Ordering::Relaxed) as usize
    }
}

#[derive(Debug)]
struct Part {
    shared: Arc<Shared>,
    holder: Holder,
    packets: u32,
    bytes: u64,
}

impl Buffer {
    /// Returns a buffer of `packets` packets, all free.
    pub fn new(packets: usize) -> Buffer {
        Buffer {
            budget: PacketBudget::new(packets),
            shared: Arc::default(),
        }
    }

    /// The budget from which hops reserve.
    pub fn budget(&mut self) -> &mut PacketBudget {
        &mut self.budget
    }

    /// Lets a hop take from the budget for its neighbour. Who has a share holds at most half of the
    /// buffer, and less when others hold some: as much as is left. Who holds nothing may have a chunk
    /// of any size, and a small one passes as long as next to nothing is held.
    pub fn with<R>(
        &mut self,
        holder: &Holder,
        has_share: bool,
        act: impl FnOnce(&mut PacketBudget) -> R,
    ) -> R {
        let (budget, held) = (&mut self.budget, holder.packets());
        let packets = budget.free().saturating_sub(held);
        let small = packets.max(ALWAYS_SMALL.saturating_sub(held));
        budget.limit(has_share.then_some(Share { packets, small }));
        let before = budget.used();
        let result = act(budget);
        budget.limit(None);
        let (took, gave) = (
            budget.used().saturating_sub(before),
            before.saturating_sub(budget.used()),
        );
        holder.0.fetch_add(took as u64, Ordering::Relaxed);
        holder.0.fetch_sub(gave as u64, Ordering::Relaxed);
        result
    }

    /// Returns the room that a hop has reserved for a chunk of `bytes` bytes of this neighbour.
    pub fn room_of(&self, holder: &Holder, packets: u32, bytes: u64) -> Room {
        let room = self.room(packets, bytes);
        Room {
            part: room.part.map(|part| {
                let mut part = part;
                if let Some(part) = Arc::get_mut(&mut part) {
                    part.holder = holder.clone();
                }
                part
            }),
        }
    }

    /// Returns the room that a hop has reserved for a chunk of `bytes` bytes.
    pub fn room(&self, packets: u32, bytes: u64) -> Room {
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        Room {
            part: Some(Arc::new(Part {
                shared: self.shared.clone(),
                holder: Holder(Arc::new(AtomicU64::new(packets.into()))),
                packets,
                bytes,
            })),
        }
    }

    /// Returns the room dropped since the last call to the budget. Returns true if there was any:
    /// then tell the hops that wait for room.
    pub fn take_back(&mut self) -> bool {
        if self.shared.returned.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut packets = self.shared.returned.swap(0, Ordering::Relaxed);
        while packets > 0 {
            let step = packets.min(u32::MAX.into());
            self.budget.release(step as u32);
            packets -= step;
        }
        true
    }

    /// Packets in use.
    pub fn used(&self) -> usize {
        let returned = self.shared.returned.load(Ordering::Relaxed) as usize;
        self.budget.used().saturating_sub(returned)
    }

    /// B, in packets.
    pub fn capacity(&self) -> usize {
        self.budget.capacity()
    }

    /// Memory of the chunks that hold room, in bytes; a payload counts once, however many copies of
    /// its chunk share it.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

impl Room {
    /// Returns true if it holds room.
    pub fn is_held(&self) -> bool {
        self.part.is_some()
    }

    /// Returns its size in packets.
    pub fn packets(&self) -> u32 {
        self.part.as_ref().map_or(0, |part| part.packets)
    }

    /// Moves the room out, and leaves none.
    pub fn take(&mut self) -> Room {
        core::mem::take(self)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let packets = u64::from(self.packets);
        self.holder.0.fetch_sub(packets, Ordering::Relaxed);
        self.shared
            .returned
            .fetch_add(self.packets.into(), Ordering::Relaxed);
        self.shared.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_free_again_when_its_last_holder_lets_go() {
        let mut buffer = Buffer::new(10);
        assert!(buffer.budget().reserve(7));
        let room = buffer.room(7, 9_000);
        let copy = room.clone();
        drop(room);
        assert!(!buffer.take_back());
        assert_eq!((buffer.used(), buffer.bytes()), (7, 9_000));
        drop(copy);
        // It counts as free at once, although the hops have not been told yet.
        assert_eq!((buffer.used(), buffer.bytes()), (0, 0));
        assert!(buffer.take_back());
        assert!(!buffer.take_back());
        assert!(buffer.budget().reserve(10));
    }

    /// Whatever some hold, there is room for another.
    #[test]
    fn neighbours_share_the_buffer() {
        let mut buffer = Buffer::new(16_000);
        let holders: Vec<Holder> = (0..5).map(|_| Holder::default()).collect();
        for holder in &holders {
            while buffer.with(holder, true, |budget| budget.reserve(40)) {}
        }
        let held: Vec<usize> = holders.iter().map(Holder::packets).collect();
        assert_eq!(held, [7_520, 3_760, 1_880, 920, 480]);
        assert!(buffer.with(&Holder::default(), true, |budget| budget.reserve(40)));
        // Small messages of one that holds little pass, and no flood of them.
        let mut small = 0;
        let nobody = Holder::default();
        buffer.with(&nobody, false, |budget| budget.reserve(200));
        while buffer.with(&nobody, true, |budget| budget.reserve(1)) {
            small += 1;
        }
        assert_eq!(small, 0);
        let newcomer = Holder::default();
        while buffer.with(&newcomer, true, |budget| budget.reserve(1)) {
            small += 1;
        }
        assert_eq!(small, 128);
        // Who has no share takes all that is left.
        assert!(buffer.with(&Holder::default(), false, |budget| budget.reserve(30)));
        // What one gives back is its own again.
        let room = buffer.room_of(&holders[0], 7_000, 1);
        drop(room);
        assert_eq!(holders[0].packets(), 520);
        assert!(buffer.take_back());
        assert!(buffer.with(&holders[0], true, |budget| budget.reserve(40)));
        buffer.with(&holders[1], true, |budget| budget.release(760));
        assert_eq!(holders[1].packets(), 3_000);
    }

    #[test]
    fn room_may_be_dropped_after_its_buffer_and_sent_to_another_thread() {
        fn sent(room: impl Send) {
            drop(room);
        }
        let mut buffer = Buffer::new(10);
        assert!(buffer.budget().reserve(3));
        let room = buffer.room(3, 100);
        drop(buffer);
        sent(room);
    }

    #[test]
    fn taken_room_leaves_none_behind() {
        let mut buffer = Buffer::new(10);
        assert!(buffer.budget().reserve(1));
        let mut room = buffer.room(1, 1);
        let taken = room.take();
        assert!(taken.is_held() && !room.is_held());
    }
}
