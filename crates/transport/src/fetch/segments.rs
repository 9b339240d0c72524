//! Requested segments that were not yet delivered: a ring keyed by segment number.
//!
//! The [`crate::ledger`] has the state of their Interests. Every operation is O(1), amortised.

use std::collections::VecDeque;

use bytes::Bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    /// Requested.
    Awaited,
    /// Received, not yet delivered.
    Received(Bytes),
    /// Delivered out of order.
    Delivered,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Segments {
    ring: VecDeque<Segment>,
    /// Number of the first segment of the ring: all before it were delivered.
    base: u64,
    /// Bytes of received content that was not delivered.
    bytes: usize,
}

impl Segments {
    pub(super) const fn new() -> Segments {
        Segments {
            ring: VecDeque::new(),
            base: 0,
            bytes: 0,
        }
    }

    /// Number of the first segment that was never requested.
    pub(super) fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(super) const fn buffered_bytes(&self) -> usize {
        self.bytes
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Segment> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.ring.get_mut(index)
    }

    /// Adds the next segment as requested; returns its number.
    pub(super) fn ask_next(&mut self) -> u64 {
        let number = self.next();
        self.ring.push_back(Segment::Awaited);
        number
    }

    /// Stores an awaited segment's content.
    pub(super) fn receive(&mut self, number: u64, content: Bytes) {
        let size = content.len();
        if let Some(segment) = self.get_mut(number)
            && *segment == Segment::Awaited
        {
            *segment = Segment::Received(content);
            self.bytes += size;
        }
    }

    /// Removes the first segment if it has been received.
    pub(super) fn take_first(&mut self) -> Option<(u64, Bytes)> {
        if !matches!(self.ring.front()?, Segment::Received(_)) {
            return None;
        }
        let Some(Segment::Received(content)) = self.ring.pop_front() else {
            return None;
        };
        let number = self.base;
        self.base += 1;
        self.bytes -= content.len();
        Some((number, content))
    }

    /// Removes a received segment out of order.
    pub(super) fn take(&mut self, number: u64) -> Option<Bytes> {
        let segment = self.get_mut(number)?;
        let Segment::Received(content) = segment else {
            return None;
        };
        let content = core::mem::take(content);
        *segment = Segment::Delivered;
        self.bytes -= content.len();
        while self.ring.front() == Some(&Segment::Delivered) {
            self.ring.pop_front();
            self.base += 1;
        }
        Some(content)
    }

    /// Forgets segments from `from` on.
    pub(super) fn truncate(&mut self, from: u64) {
        while self.next() > from.max(self.base) {
            if let Some(Segment::Received(content)) = self.ring.pop_back() {
                self.bytes -= content.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_ring_agrees_with_a_map(
            steps in prop::collection::vec((0u8..6, 0u64..24), 1..200), in_order: bool,
        ) {
            let mut segments = Segments::new();
            let mut model: BTreeMap<u64, Segment> = BTreeMap::new();
            let (mut first, mut next) = (0, 0);
            for (step, offset) in steps {
                let number = first + offset;
                match step {
                    0 | 1 => {
                        prop_assert_eq!(segments.ask_next(), next);
                        model.insert(next, Segment::Awaited);
                        next += 1;
                    }
                    2 | 3 => {
                        let content = Bytes::from(vec![0; offset as usize]);
                        segments.receive(number, content.clone());
                        if let Some(segment) = model.get_mut(&number)
                            && *segment == Segment::Awaited
                        {
                            *segment = Segment::Received(content);
                        }
                    }
                    4 if in_order => {
                        let here = matches!(model.get(&first), Some(Segment::Received(_)));
                        let taken = segments.take_first().map(|taken| taken.0);
                        prop_assert_eq!(taken, here.then_some(first));
                        if here {
                            model.remove(&first);
                            first += 1;
                        }
                    }
                    4 => {
                        let here = matches!(model.get(&number), Some(Segment::Received(_)));
                        prop_assert_eq!(segments.take(number).is_some(), here);
                        if here {
                            model.insert(number, Segment::Delivered);
                        }
                        while model.get(&first) == Some(&Segment::Delivered) {
                            model.remove(&first);
                            first += 1;
                        }
                    }
                    _ => {
                        segments.truncate(number + 4);
                        model.retain(|other, _| *other < number + 4);
                        next = next.min((number + 4).max(first));
                    }
                }
                prop_assert_eq!((segments.base(), segments.next()), (first, next));
                let bytes = model.values().map(|segment| match segment {
                    Segment::Received(content) => content.len(),
                    _ => 0,
                });
                prop_assert_eq!(segments.buffered_bytes(), bytes.sum::<usize>());
                prop_assert!(model.values().eq(segments.ring.iter()));
            }
        }
    }
}
