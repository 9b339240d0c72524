//! Incomplete packets, bounded in number, bytes and time.

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::Time;
use whimbrel_ndn_packet::{LpHeader, MAX_PACKET};

use super::stats::LinkDrops;

/// Maximum of fragments of one packet (NFD: 400).
const MAX_FRAGMENTS: u64 = 400;
/// Maximum of bytes of one packet: the largest network-layer packet and its header fields.
const MAX_BYTES: usize = MAX_PACKET + 1024;
/// The cost of a fragment beyond its bytes, so that many small ones are bounded, too.
const FRAGMENT_COST: usize = 16;

/// The packet of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PacketKey {
    /// The Sequence of its first fragment.
    Sequence(u64),
    /// The number of the frame that first carried its first fragment.
    Frame(u64),
}

/// The place of a fragment in its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) key: PacketKey,
    pub(crate) index: u64,
    pub(crate) count: u64,
}

#[derive(Debug)]
pub(crate) struct Reassembler {
    partials: BTreeMap<PacketKey, Partial>,
    bytes: usize,
    max_packets: usize,
    max_bytes: usize,
    timeout: Duration,
    // A time not after the first expiry.
    next_expiry: Option<Time>,
    // Buffers of finished packets, for reuse.
    spare: Vec<Partial>,
    whole: Vec<u8>,
}

#[derive(Debug, Default)]
struct Partial {
    count: u64,
    arrived: u64,
    // Fragments in the order of arrival, and the offset of each.
    bytes: Vec<u8>,
    places: Vec<(u32, u32)>,
    in_order: bool,
    header: Option<Box<LpHeader>>,
    last_arrival: Time,
}

/// Marks a missing fragment.
const MISSING: (u32, u32) = (u32::MAX, 0);

impl Partial {
    fn restart(&mut self, count: u64) {
        self.count = count;
        self.arrived = 0;
        self.bytes.clear();
        self.places.clear();
        self.places.resize(count as usize, MISSING);
        self.in_order = true;
        self.header = None;
    }

    fn cost(&self) -> usize {
        self.bytes.len() + self.places.len() * FRAGMENT_COST
    }
}

impl Reassembler {
    pub(crate) fn new(max_packets: usize, max_bytes: usize, timeout: Duration) -> Reassembler {
        Reassembler {
            partials: BTreeMap::new(),
            bytes: 0,
            max_packets,
            max_bytes: max_bytes.max(MAX_BYTES + FRAGMENT_COST * MAX_FRAGMENTS as usize),
            timeout,
            next_expiry: None,
            spare: Vec::new(),
            whole: Vec::new(),
        }
    }

    /// Adds a fragment. When it was the last missing one, calls `deliver` with the packet and its
    /// header fields.
    pub(crate) fn insert(
        &mut self,
        now: Time,
        place: Place,
        fragment: &[u8],
        header: Option<LpHeader>,
        drops: &mut LinkDrops,
        deliver: &mut dyn FnMut(&[u8], Option<&LpHeader>),
    ) {
        let Place { key, index, count } = place;
        if count > MAX_FRAGMENTS || index >= count || fragment.len() > MAX_BYTES {
            drops.bad_fragment += 1;
            return;
        }
        let spare = &mut self.spare;
        let mut before = 0;
        let partial = match self.partials.entry(key) {
            std::collections::btree_map::Entry::Occupied(entry) => {
                before = entry.get().cost();
                entry.into_mut()
            }
            std::collections::btree_map::Entry::Vacant(entry) => {
                let mut partial = spare.pop().unwrap_or_default();
                partial.restart(count);
                entry.insert(partial)
            }
        };
        let slot = partial
            .places
            .get_mut(index as usize)
            .filter(|_| partial.count == count);
        let Some(slot) = slot.filter(|_| partial.bytes.len() + fragment.len() <= MAX_BYTES) else {
            // A contradictory packet is dropped as a whole: the correct fragment cannot be
            // determined.
            drops.bad_fragment += 1;
            self.remove(key, before);
            return;
        };
        if *slot != MISSING {
            drops.duplicate_fragment += 1;
            return;
        }
        *slot = (partial.bytes.len() as u32, fragment.len() as u32);
        partial.in_order &= index == partial.arrived;
        partial.bytes.extend_from_slice(fragment);
        partial.arrived += 1;
        partial.last_arrival = now;
        if let Some(header) = header {
            take_header(&mut partial.header, header);
        }
        if partial.arrived == count {
            if partial.in_order {
                deliver(&partial.bytes, partial.header.as_deref());
            } else {
                self.whole.clear();
                for (start, len) in &partial.places {
                    let start = *start as usize;
                    let bytes = partial
                        .bytes
                        .get(start..start + *len as usize)
                        .unwrap_or_default();
                    self.whole.extend_from_slice(bytes);
                }
                deliver(&self.whole, partial.header.as_deref());
            }
            self.remove(key, before);
            return;
        }
        self.bytes = self.bytes - before + partial.cost();
        self.next_expiry.get_or_insert(now + self.timeout);
        self.keep_within_bounds(key, drops);
    }

    /// Removes a packet; `counted` is its cost when `bytes` was last updated.
    fn remove(&mut self, key: PacketKey, counted: usize) {
        if let Some(partial) = self.partials.remove(&key) {
            self.bytes -= counted;
            if self.spare.len() < 4 {
                self.spare.push(partial);
            }
        }
        if self.partials.is_empty() {
            self.next_expiry = None;
        }
    }

    fn keep_within_bounds(&mut self, newest: PacketKey, drops: &mut LinkDrops) {
        while self.partials.len() > self.max_packets || self.bytes > self.max_bytes {
            let others = self.partials.iter().filter(|(key, _)| **key != newest);
            let Some((key, cost)) = others
                .min_by_key(|(_, partial)| partial.last_arrival)
                .map(|(key, p)| (*key, p.cost()))
            else {
                return;
            };
            drops.reassembly_full += 1;
            self.remove(key, cost);
        }
    }

    /// Returns the earliest time at which a packet may time out.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.next_expiry
    }

    /// Drops packets that have timed out.
    pub(crate) fn expire(&mut self, now: Time, drops: &mut LinkDrops) {
        if self.next_expiry.is_none_or(|at| at > now) {
            return;
        }
        let timeout = self.timeout;
        let late = |partial: &Partial| partial.last_arrival + timeout <= now;
        while let Some((key, cost)) = self
            .partials
            .iter()
            .find(|(_, partial)| late(partial))
            .map(|(key, p)| (*key, p.cost()))
        {
            drops.reassembly_timeout += 1;
            self.remove(key, cost);
        }
        self.next_expiry = self
            .partials
            .values()
            .map(|partial| partial.last_arrival + timeout)
            .min();
    }

    /// Drops packets whose fragments are identified by frame numbers, because those have a new
    /// meaning from now on.
    pub(crate) fn forget_frames(&mut self) {
        let keys: Vec<_> = self
            .partials
            .range(PacketKey::Frame(0)..)
            .map(|(k, p)| (*k, p.cost()))
            .collect();
        for (key, cost) in keys {
            self.remove(key, cost);
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> (usize, usize) {
        (self.partials.len(), self.bytes)
    }
}

/// The first fragment has the header; a congestion mark on any fragment applies.
fn take_header(kept: &mut Option<Box<LpHeader>>, header: LpHeader) {
    match kept {
        None => *kept = Some(Box::new(header)),
        Some(kept) => {
            let mark = kept.congestion_mark.max(header.congestion_mark);
            let only_mark = LpHeader {
                congestion_mark: header.congestion_mark,
                ..LpHeader::default()
            };
            if header != only_mark {
                **kept = header;
            }
            kept.congestion_mark = mark;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reassembler() -> Reassembler {
        Reassembler::new(4, 0, Duration::from_millis(500))
    }

    fn place(key: u64, index: u64, count: u64) -> Place {
        Place {
            key: PacketKey::Sequence(key),
            index,
            count,
        }
    }

    fn insert(
        into: &mut Reassembler,
        now: u64,
        place: Place,
        bytes: &[u8],
    ) -> (Option<Vec<u8>>, LinkDrops) {
        let (mut whole, mut drops) = (None, LinkDrops::default());
        into.insert(
            Time::from_millis(now),
            place,
            bytes,
            None,
            &mut drops,
            &mut |packet, _| {
                whole = Some(packet.to_vec());
            },
        );
        (whole, drops)
    }

    #[test]
    fn a_duplicate_fragment_is_counted_and_does_no_harm() {
        let mut partials = reassembler();
        insert(&mut partials, 0, place(7, 1, 2), b"world");
        let (whole, drops) = insert(&mut partials, 1, place(7, 1, 2), b"other");
        assert_eq!((whole, drops.duplicate_fragment), (None, 1));
        assert_eq!(
            insert(&mut partials, 2, place(7, 0, 2), b"hello ")
                .0
                .unwrap(),
            b"hello world"
        );
        assert_eq!(partials.held(), (0, 0));
    }

    #[test]
    fn contradictory_fragments_are_dropped() {
        let mut partials = reassembler();
        insert(&mut partials, 0, place(7, 0, 3), b"a");
        assert_eq!(
            insert(&mut partials, 0, place(7, 1, 4), b"b")
                .1
                .bad_fragment,
            1
        );
        assert_eq!(partials.held(), (0, 0));
    }

    #[test]
    fn a_hostile_fragment_count_takes_no_memory() {
        let mut partials = reassembler();
        assert_eq!(
            insert(&mut partials, 0, place(7, 0, 401), b"a")
                .1
                .bad_fragment,
            1
        );
        assert_eq!(
            insert(&mut partials, 0, place(7, 0, u64::MAX), b"a")
                .1
                .bad_fragment,
            1
        );
        assert_eq!(
            insert(&mut partials, 0, place(7, 5, 5), b"a")
                .1
                .bad_fragment,
            1
        );
        assert_eq!(partials.held(), (0, 0));
    }

    #[test]
    fn incomplete_packets_are_dropped_after_the_timeout() {
        let mut partials = reassembler();
        insert(&mut partials, 0, place(7, 0, 3), b"a");
        insert(&mut partials, 400, place(7, 1, 3), b"b");
        let mut drops = LinkDrops::default();
        partials.expire(Time::from_millis(899), &mut drops);
        assert_eq!(drops.reassembly_timeout, 0);
        assert_eq!(partials.next_expiry(), Some(Time::from_millis(900)));
        partials.expire(Time::from_millis(900), &mut drops);
        assert_eq!(
            (
                drops.reassembly_timeout,
                partials.held(),
                partials.next_expiry()
            ),
            (1, (0, 0), None)
        );
    }

    proptest! {
        /// A packet is delivered if and only if all of its fragments arrived, in any order, and
        /// with its original content. Memory stays within its bounds.
        #[test]
        fn delivers_fragmented_packets_and_keeps_to_its_bounds(
            events in prop::collection::vec((0u64..6, 0u64..5, any::<u8>()), 1..300),
        ) {
            let mut partials = reassembler();
            for (number, (key, index, noise)) in events.iter().enumerate() {
                // The packet `key` has `key + 1` fragments of its own bytes; sometimes a false one
                // arrives.
                let count = if *noise < 10 { u64::from(*noise) * 60 } else { key + 1 };
                let bytes = [*key as u8 * 16 + *index as u8; 3];
                let (whole, _) = insert(&mut partials, number as u64, place(*key, *index, count), &bytes);
                if let Some(whole) = whole {
                    let expected: Vec<u8> =
                        (0..count).flat_map(|index| [*key as u8 * 16 + index as u8; 3]).collect();
                    prop_assert_eq!(whole, expected);
                }
                let (packets, held) = partials.held();
                prop_assert!(packets <= 4 && held <= partials.max_bytes);
                prop_assert_eq!(held, partials.partials.values().map(Partial::cost).sum::<usize>());
            }
        }
    }
}
