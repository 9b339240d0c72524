//! One account of a node's memory for chunks: pools, and room in them.
//!
//! A chunk passes through hops, queues, tables and programs. It holds one [`Room`] from the moment
//! that its hop grants it to the moment that the last copy is dropped, and the room gives itself back:
//! it cannot be forgotten on any of these paths. A pool is a purpose (in transit, stored, originated
//! here) or a share of one (a neighbour's, a program's); what counts in a part counts in the whole.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use whimbrel_core::DiskCopy;

/// Packets of small chunks that a neighbour may hold whatever others hold.
const ALWAYS_SMALL: usize = 128;
/// A chunk of at most this many packets is small. Urgent messages are small chunks.
const SMALL: u32 = 32;
/// The fraction of a buffer that is kept for small chunks, and the maximum of packets in it.
const KEPT_PART: usize = 16;
const MAX_KEPT: usize = 1024;

/// The sum of the rooms that are held in it, in packets and in bytes.
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Sum>);

#[derive(Debug, Default)]
struct Sum {
    packets: AtomicU64,
    bytes: AtomicU64,
    // What counts in this pool also counts in that one.
    whole: Option<Pool>,
}

/// Memory that counts in a [`Pool`] until the last clone is dropped; the default counts nowhere.
///
/// Copies of a chunk that leave on several ports share one payload, so they share its room.
#[derive(Clone, Debug, Default)]
pub struct Room {
    part: Option<Arc<Part>>,
}

#[derive(Debug)]
struct Part {
    pool: Pool,
    packets: u32,
    bytes: u64,
    // Held until this room is dropped, too.
    _held: Room,
    // The chunk's copy on the disk, which is wanted as long as the chunk is.
    copy: Option<DiskCopy>,
}

impl Pool {
    /// Returns a pool of which all counts in this one, too.
    pub fn part(&self) -> Pool {
        Pool(Arc::new(Sum {
            whole: Some(self.clone()),
            ..Sum::default()
        }))
    }

    /// Counts `bytes` for as long as the room lives.
    pub fn hold(&self, bytes: u64) -> Room {
        self.hold_both(0, bytes, Room::default(), None)
    }

    /// Counts `bytes` of a chunk that has a copy on the disk, and holds that copy.
    pub fn hold_with_copy(&self, bytes: u64, copy: DiskCopy) -> Room {
        self.hold_both(0, bytes, Room::default(), Some(copy))
    }

    /// Counts a chunk with `room` elsewhere here as well, until the returned room is dropped.
    pub fn hold_with(&self, room: Room) -> Room {
        self.hold_both(room.packets(), room.bytes(), room, None)
    }

    fn hold_both(&self, packets: u32, bytes: u64, held: Room, copy: Option<DiskCopy>) -> Room {
        for pool in self.and_wholes() {
            pool.0.packets.fetch_add(packets.into(), Ordering::Relaxed);
            pool.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Room {
            part: Some(Arc::new(Part {
                pool: self.clone(),
                packets,
                bytes,
                _held: held,
                copy,
            })),
        }
    }

    /// Returns true if a part of this pool may take more, of which `most` bytes are to be held in all: it
    /// has at most half of what is left, or `least`. So however many parts there are, there is room for
    /// another.
    pub fn admits(&self, part: &Pool, most: u64, least: u64) -> bool {
        part.bytes() < (most.saturating_sub(self.bytes()) / 2).max(least)
    }

    /// Returns the packets held.
    pub fn packets(&self) -> u64 {
        self.0.packets.load(Ordering::Relaxed)
    }

    /// Returns the bytes held. A payload counts once, however many copies of its chunk share it.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn and_wholes(&self) -> impl Iterator<Item = &Pool> {
        core::iter::successors(Some(self), |pool| pool.0.whole.as_ref())
    }
}

impl Room {
    /// Returns the room of this and another one, if both count in the same pool and hold nothing else.
    pub fn joined(&self, other: &Room) -> Option<Room> {
        let (own, other) = match (&self.part, &other.part) {
            (Some(own), Some(other)) => (own, other),
            (None, None) => return Some(Room::default()),
            _ => return None,
        };
        let is_plain = |part: &Part| !part._held.is_held() && part.copy.is_none();
        let is_same = Arc::ptr_eq(&own.pool.0, &other.pool.0);
        let (packets, bytes) = (own.packets + other.packets, own.bytes + other.bytes);
        let joined = || own.pool.hold_both(packets, bytes, Room::default(), None);
        (is_same && is_plain(own) && is_plain(other)).then(joined)
    }

    /// Returns true if it counts in a pool.
    pub fn is_held(&self) -> bool {
        self.part.is_some()
    }

    /// Returns its packets: 0 outside the back-pressure buffer.
    pub fn packets(&self) -> u32 {
        self.part.as_ref().map_or(0, |part| part.packets)
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> u64 {
        self.part.as_ref().map_or(0, |part| part.bytes)
    }

    /// Returns the chunk's copy on the disk, if it has one.
    pub fn copy(&self) -> Option<&DiskCopy> {
        self.part.as_ref()?.copy.as_ref()
    }

    /// Returns true if it counts in this pool itself, not in a part of it.
    pub fn is_in(&self, pool: &Pool) -> bool {
        let part = self.part.as_ref();
        part.is_some_and(|part| Arc::ptr_eq(&part.pool.0, &pool.0))
    }
}

impl PartialEq for Room {
    /// Returns true if both are clones of one.
    fn eq(&self, other: &Room) -> bool {
        match (&self.part, &other.part) {
            (Some(one), Some(another)) => Arc::ptr_eq(one, another),
            (one, another) => one.is_none() && another.is_none(),
        }
    }
}

impl Eq for Room {}

impl Drop for Part {
    fn drop(&mut self) {
        for pool in self.pool.and_wholes() {
            let Sum { packets, bytes, .. } = &*pool.0;
            packets.fetch_sub(self.packets.into(), Ordering::Relaxed);
            bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

/// The back-pressure buffer of a node, counted in packets: room for chunks in transit, shared by all its
/// hops ([MFTP §3.4.1]: "a back-pressure buffer of capacity B packets").
///
/// A hop takes room before it admits a chunk and passes it on with
/// [`HopEvent::Received`](crate::HopEvent::Received). When room has been dropped the owner calls
/// [`Hop::room_released`](crate::Hop::room_released) on the node's hops.
#[derive(Debug)]
pub struct Buffer {
    pool: Pool,
    capacity: usize,
    // The part of the capacity that is kept for small chunks.
    kept: usize,
    // The neighbour whose hop takes room at present, and what it may still take.
    taker: Pool,
    limit: Option<Limit>,
    // What would be in use if nothing had been dropped since the last look.
    seen: usize,
}

/// What one hop may still take of a buffer, in packets.
#[derive(Clone, Copy, Debug)]
struct Limit {
    /// For chunks of any size.
    packets: usize,
    /// For small chunks.
    small: usize,
}

impl Buffer {
    /// Returns a buffer of `capacity` packets, all free.
    pub fn new(capacity: usize) -> Buffer {
        let pool = Pool::default();
        Buffer {
            taker: pool.clone(),
            pool,
            capacity,
            kept: (capacity / KEPT_PART).min(MAX_KEPT),
            limit: None,
            seen: 0,
        }
    }

    /// Returns the share of a neighbour, in which the room of its chunks counts.
    pub fn share(&self) -> Pool {
        self.pool.part()
    }

    /// Lets the hop of a neighbour take room. A neighbour with a limit holds at most half of the buffer,
    /// and less when others hold some: as much as is left. One that holds nothing may have a chunk
    /// of any size, and a small one passes as long as next to nothing is held.
    pub fn with<R>(
        &mut self,
        share: &Pool,
        is_limited: bool,
        act: impl FnOnce(&mut Buffer) -> R,
    ) -> R {
        let held = share.packets() as usize;
        let packets = self.free().saturating_sub(held);
        let small = packets.max(ALWAYS_SMALL.saturating_sub(held));
        self.limit = is_limited.then_some(Limit { packets, small });
        self.taker = share.clone();
        let result = act(self);
        self.taker = self.pool.clone();
        self.limit = None;
        result
    }

    /// Takes room for a chunk of `bytes` bytes in `packets` packets; `None` if there is not enough.
    ///
    /// A chunk larger than the whole buffer is admitted when nothing else is; otherwise it could
    /// never pass.
    pub fn take(&mut self, packets: u32, bytes: u64) -> Option<Room> {
        let all = self.capacity.saturating_sub(self.used());
        let room = match (packets, self.limit) {
            (..=SMALL, Some(limit)) => all.min(limit.small),
            (..=SMALL, None) => all,
            _ => self.free(),
        };
        let wanted = packets as usize;
        if self.used() != 0 && wanted > room {
            return None;
        }
        if let Some(limit) = &mut self.limit {
            limit.packets = limit.packets.saturating_sub(wanted);
            limit.small = limit.small.saturating_sub(wanted);
        }
        self.seen += wanted;
        Some(self.taker.hold_both(packets, bytes, Room::default(), None))
    }

    /// Returns true if room has been dropped since the last call: then tell the hops that wait for it.
    pub fn take_back(&mut self) -> bool {
        let used = self.used();
        let has_gained = used < self.seen;
        self.seen = used;
        has_gained
    }

    /// Returns the packets that can still be taken. Small chunks may take a few more.
    pub fn free(&self) -> usize {
        let free = (self.capacity - self.kept).saturating_sub(self.used());
        self.limit.map_or(free, |limit| free.min(limit.packets))
    }

    /// Returns the packets in use.
    pub fn used(&self) -> usize {
        self.pool.packets() as usize
    }

    /// Returns the memory of the chunks that arrive or hold room, in bytes.
    pub fn bytes(&self) -> u64 {
        self.pool.bytes()
    }

    /// Returns `B`, in packets.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(buffer: &mut Buffer, packets: u32) -> Option<Room> {
        buffer.take(packets, 0)
    }

    #[test]
    fn a_room_counts_once_until_its_last_clone_is_gone() {
        let pool = Pool::default();
        let (first, second) = (pool.hold(5), pool.hold(7));
        let copy = first.clone();
        drop(first);
        assert_eq!(pool.bytes(), 12);
        drop((copy, second, Room::default()));
        assert_eq!(pool.bytes(), 0);
    }

    #[test]
    fn what_is_held_in_a_part_counts_in_the_whole() {
        let whole = Pool::default();
        let (one, other) = (whole.part(), whole.part());
        let rooms = (one.hold(2), other.hold(3), other.part().hold(4));
        assert_eq!((one.bytes(), other.bytes(), whole.bytes()), (2, 7, 9));
        assert!(rooms.0.is_in(&one) && !rooms.0.is_in(&whole));
        drop(rooms);
        assert_eq!((one.bytes(), other.bytes(), whole.bytes()), (0, 0, 0));
    }

    #[test]
    fn room_in_two_pools_leaves_both() {
        let mut buffer = Buffer::new(10);
        let program = Pool::default();
        let room = program.hold_with(buffer.take(3, 100).expect("room"));
        assert_eq!((room.packets(), room.bytes()), (3, 100));
        assert_eq!((program.packets(), buffer.used()), (3, 3));
        drop(room);
        assert_eq!((program.packets(), buffer.used()), (0, 0));
    }

    #[test]
    fn a_part_takes_no_more_than_half_of_what_is_left() {
        let whole = Pool::default();
        let parts: Vec<Pool> = (0..4).map(|_| whole.part()).collect();
        let mut rooms = Vec::new();
        for part in &parts {
            while whole.admits(part, 1000, 0) {
                rooms.push(part.hold(1));
            }
        }
        let held: Vec<u64> = parts.iter().map(Pool::bytes).collect();
        assert_eq!(held, [333, 222, 148, 99]);
        assert!(whole.admits(&whole.part(), 1000, 0));
        assert!(whole.admits(&parts[3], 0, 100) && !whole.admits(&parts[3], 0, 99));
    }

    #[test]
    fn a_part_is_kept_for_small_chunks() {
        let mut buffer = Buffer::new(1_000);
        assert_eq!(buffer.free(), 938);
        let mut rooms = vec![take(&mut buffer, 900)];
        assert!(take(&mut buffer, 50).is_none());
        rooms.extend((0..3).map(|_| take(&mut buffer, 32)));
        assert!(rooms.iter().all(Option::is_some));
        assert!(take(&mut buffer, 5).is_none());
        assert_eq!((buffer.used(), buffer.free()), (996, 0));
        assert!(take(&mut buffer, 4).is_some());
    }

    #[test]
    fn never_gives_more_than_it_has_except_to_one_oversized_chunk() {
        let mut buffer = Buffer::new(10);
        let first = take(&mut buffer, 6);
        assert!(first.is_some() && take(&mut buffer, 5).is_none());
        let second = take(&mut buffer, 4);
        assert!(second.is_some() && buffer.free() == 0);
        drop((first, second));
        let oversized = take(&mut buffer, 25);
        assert!(oversized.is_some() && take(&mut buffer, 1).is_none());
        drop(oversized);
        assert_eq!((buffer.used(), buffer.free()), (0, 10));
    }

    #[test]
    fn room_is_free_again_when_its_last_holder_lets_go() {
        let mut buffer = Buffer::new(10);
        let room = buffer.take(7, 9_000);
        let copy = room.clone();
        drop(room);
        assert!(!buffer.take_back());
        assert_eq!((buffer.used(), buffer.bytes()), (7, 9_000));
        drop(copy);
        assert_eq!((buffer.used(), buffer.bytes()), (0, 0));
        assert!(buffer.take_back() && !buffer.take_back());
        // Room that is taken and dropped between two looks counts as dropped.
        let held = take(&mut buffer, 10);
        drop(held);
        let _again = take(&mut buffer, 10);
        assert!(buffer.take_back());
    }

    /// Whatever some hold, there is room for another.
    #[test]
    fn neighbours_share_the_buffer() {
        let mut buffer = Buffer::new(16_000);
        let shares: Vec<Pool> = (0..5).map(|_| buffer.share()).collect();
        let mut held: Vec<Vec<Room>> = Vec::new();
        for share in &shares {
            let mut of_share = Vec::new();
            while let Some(room) = buffer.with(share, true, |buffer| take(buffer, 40)) {
                of_share.push(room);
            }
            held.push(of_share);
        }
        let packets: Vec<u64> = shares.iter().map(Pool::packets).collect();
        assert_eq!(packets, [7_520, 3_760, 1_880, 920, 480]);
        let other = buffer.share();
        let last = buffer.with(&other, true, |buffer| take(buffer, 40));
        assert!(last.is_some());
        // Small messages of one that holds little pass, and no flood of them.
        let nobody = buffer.share();
        let _much = buffer.with(&nobody, false, |buffer| take(buffer, 200));
        assert!(
            buffer
                .with(&nobody, true, |buffer| take(buffer, 1))
                .is_none()
        );
        let newcomer = buffer.share();
        let mut small = Vec::new();
        while let Some(room) = buffer.with(&newcomer, true, |buffer| take(buffer, 1)) {
            small.push(room);
        }
        assert_eq!(small.len(), 128);
        // One call that takes many gets as few as many calls that take one.
        let burst = buffer.share();
        let taken = buffer.with(&burst, true, |buffer| {
            (0..200).filter_map(|_| take(buffer, 1)).collect::<Vec<_>>()
        });
        assert_eq!(taken.len(), 128);
        // A neighbour without a limit takes all that is left.
        let free = buffer.share();
        assert!(
            buffer
                .with(&free, false, |buffer| take(buffer, 30))
                .is_some()
        );
        // What one gives back is its own again.
        held[0].truncate(13);
        assert_eq!(shares[0].packets(), 520);
        assert!(buffer.take_back());
        let again = buffer.with(&shares[0], true, |buffer| take(buffer, 40));
        assert!(again.is_some());
    }

    #[test]
    fn room_may_be_dropped_after_its_buffer_and_sent_to_another_thread() {
        fn sent(room: impl Send) {
            drop(room);
        }
        let mut buffer = Buffer::new(10);
        let room = take(&mut buffer, 3);
        drop(buffer);
        sent(room);
    }
}
