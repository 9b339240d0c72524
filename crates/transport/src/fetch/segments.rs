//! Segments under way and not yet given to the program: a ring keyed by segment number.
//!
//! Every operation is O(1) but [`Segments::truncate`]. Those under way are linked in the order in
//! which they were sent, so that the one that waits longest is at hand.

use std::collections::VecDeque;

use bytes::Bytes;
use whimbrel_core::Time;

/// No neighbour in the list of those under way.
const NONE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentState {
    /// Sent, not answered.
    UnderWay,
    /// To be sent again; `free` if that does not count as a retry.
    Queued { free: bool },
    /// Here, not yet given to the program.
    Received,
    /// Given to the program out of order.
    Delivered,
}

#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) state: SegmentState,
    pub(super) content: Bytes,
    pub(super) sent_at: Time,
    pub(super) nonce: u32,
    /// Times that it was sent again and that counted.
    pub(super) retries: u32,
    /// Sent more than once: its round trip tells nothing (Karn).
    pub(super) sent_again: bool,
    /// Neighbours in the order of sending, while under way.
    before: u64,
    after: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Segments {
    ring: VecDeque<Segment>,
    /// Number of the first segment of the ring: all before it were given to the program.
    base: u64,
    oldest: u64,
    newest: u64,
    under_way: usize,
    queued: usize,
    /// Bytes of content that was received and not given to the program.
    bytes: usize,
}

impl Segments {
    pub(super) fn new() -> Segments {
        let ring = VecDeque::new();
        Segments {
            ring,
            base: 0,
            oldest: NONE,
            newest: NONE,
            under_way: 0,
            queued: 0,
            bytes: 0,
        }
    }

    /// Number of the first segment that was never sent.
    pub(super) fn next(&self) -> u64 {
        self.base + self.ring.len() as u64
    }

    pub(super) const fn base(&self) -> u64 {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(super) const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Neither received nor given up.
    pub(super) const fn outstanding(&self) -> usize {
        self.under_way + self.queued
    }

    pub(super) const fn buffered_bytes(&self) -> usize {
        self.bytes
    }

    fn index(&self, number: u64) -> Option<usize> {
        number
            .checked_sub(self.base)
            .and_then(|index| usize::try_from(index).ok())
    }

    pub(super) fn get(&self, number: u64) -> Option<&Segment> {
        self.ring.get(self.index(number)?)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Segment> {
        let index = self.index(number)?;
        self.ring.get_mut(index)
    }

    /// The segment that was sent first of those under way, and when.
    pub(super) fn oldest_under_way(&self) -> Option<(u64, Time)> {
        self.get(self.oldest)
            .map(|segment| (self.oldest, segment.sent_at))
    }

    fn link(&mut self, number: u64) {
        let before = self.newest;
        if let Some(segment) = self.get_mut(number) {
            (segment.before, segment.after) = (before, NONE);
        }
        match self.get_mut(before) {
            Some(segment) => segment.after = number,
            None => self.oldest = number,
        }
        self.newest = number;
        self.under_way += 1;
    }

    fn unlink(&mut self, number: u64) {
        let Some((before, after)) = self
            .get(number)
            .map(|segment| (segment.before, segment.after))
        else {
            return;
        };
        match self.get_mut(before) {
            Some(segment) => segment.after = after,
            None => self.oldest = after,
        }
        match self.get_mut(after) {
            Some(segment) => segment.before = before,
            None => self.newest = before,
        }
        self.under_way -= 1;
    }

    /// The next new segment is sent; answers with its number.
    pub(super) fn send_next(&mut self, now: Time, nonce: u32) -> u64 {
        let number = self.next();
        self.ring.push_back(Segment {
            state: SegmentState::UnderWay,
            content: Bytes::new(),
            sent_at: now,
            nonce,
            retries: 0,
            sent_again: false,
            before: NONE,
            after: NONE,
        });
        self.link(number);
        number
    }

    /// A queued segment is sent again.
    pub(super) fn send_again(&mut self, number: u64, now: Time, nonce: u32) {
        let Some(segment) = self.get_mut(number) else {
            return;
        };
        let SegmentState::Queued { free } = segment.state else {
            return;
        };
        segment.state = SegmentState::UnderWay;
        segment.sent_at = now;
        segment.nonce = nonce;
        segment.sent_again = true;
        segment.retries += u32::from(!free);
        self.queued -= 1;
        self.link(number);
    }

    /// A segment under way is given up for now; true if it was under way.
    pub(super) fn enqueue(&mut self, number: u64, free: bool) -> bool {
        let Some(segment) = self
            .get_mut(number)
            .filter(|segment| segment.state == SegmentState::UnderWay)
        else {
            return false;
        };
        segment.state = SegmentState::Queued { free };
        self.queued += 1;
        self.unlink(number);
        true
    }

    /// True if `number` was asked for and has not been received.
    pub(super) fn is_awaited(&self, number: u64) -> bool {
        self.get(number).is_some_and(|segment| {
            matches!(
                segment.state,
                SegmentState::UnderWay | SegmentState::Queued { .. }
            )
        })
    }

    /// Puts an awaited segment's content in its place.
    pub(super) fn receive(&mut self, number: u64, content: Bytes) {
        match self.get(number).map(|segment| segment.state) {
            Some(SegmentState::UnderWay) => self.unlink(number),
            Some(SegmentState::Queued { .. }) => self.queued -= 1,
            _ => return,
        }
        self.bytes += content.len();
        if let Some(segment) = self.get_mut(number) {
            segment.state = SegmentState::Received;
            segment.content = content;
        }
    }

    /// Takes the first segment out if it has been received.
    pub(super) fn take_first(&mut self) -> Option<(u64, Bytes)> {
        if self.ring.front()?.state != SegmentState::Received {
            return None;
        }
        let segment = self.ring.pop_front()?;
        let number = self.base;
        self.base += 1;
        self.bytes -= segment.content.len();
        Some((number, segment.content))
    }

    /// Takes a received segment out of order.
    pub(super) fn take(&mut self, number: u64) -> Option<Bytes> {
        let segment = self
            .get_mut(number)
            .filter(|segment| segment.state == SegmentState::Received)?;
        segment.state = SegmentState::Delivered;
        let content = std::mem::take(&mut segment.content);
        self.bytes -= content.len();
        while self
            .ring
            .front()
            .is_some_and(|first| first.state == SegmentState::Delivered)
        {
            self.ring.pop_front();
            self.base += 1;
        }
        Some(content)
    }

    /// Forgets segments from `from` on; answers with how many of them had been received.
    pub(super) fn truncate(&mut self, from: u64) -> usize {
        let mut received = 0;
        while self.next() > from.max(self.base) {
            let last = self.next() - 1;
            match self
                .get(last)
                .map(|segment| (segment.state, segment.content.len()))
            {
                Some((SegmentState::UnderWay, _)) => self.unlink(last),
                Some((SegmentState::Queued { .. }, _)) => self.queued -= 1,
                Some((SegmentState::Received, size)) => {
                    self.bytes -= size;
                    received += 1;
                }
                _ => received += 1,
            }
            self.ring.pop_back();
        }
        received
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    /// What is known of each segment, without a ring and without links.
    #[derive(Default)]
    struct Model {
        states: BTreeMap<u64, SegmentState>,
        order: Vec<u64>,
        first: u64,
        next: u64,
    }

    proptest! {
        #[test]
        fn the_ring_agrees_with_a_map_and_a_list(
            steps in prop::collection::vec((0u8..8, 0u64..24), 1..200), in_order: bool,
        ) {
            let mut segments = Segments::new();
            let mut model = Model::default();
            for (n, (step, offset)) in steps.into_iter().enumerate() {
                let number = model.first + offset;
                let now = Time::from_nanos(n as u64);
                let state = model.states.get(&number).copied();
                match step {
                    0 | 1 => {
                        prop_assert_eq!(segments.send_next(now, 0), model.next);
                        model.states.insert(model.next, SegmentState::UnderWay);
                        model.order.push(model.next);
                        model.next += 1;
                    }
                    2 => {
                        let was = state == Some(SegmentState::UnderWay);
                        prop_assert_eq!(segments.enqueue(number, false), was);
                        if was {
                            model.states.insert(number, SegmentState::Queued { free: false });
                            model.order.retain(|other| *other != number);
                        }
                    }
                    3 => {
                        segments.send_again(number, now, 0);
                        if matches!(state, Some(SegmentState::Queued { .. })) {
                            model.states.insert(number, SegmentState::UnderWay);
                            model.order.push(number);
                        }
                    }
                    4 | 5 => {
                        segments.receive(number, Bytes::from(vec![0; offset as usize]));
                        if matches!(state, Some(SegmentState::UnderWay | SegmentState::Queued { .. })) {
                            model.states.insert(number, SegmentState::Received);
                            model.order.retain(|other| *other != number);
                        }
                    }
                    6 if in_order => {
                        let first = model.states.get(&model.first) == Some(&SegmentState::Received);
                        prop_assert_eq!(segments.take_first().map(|taken| taken.0), first.then_some(model.first));
                        if first {
                            model.states.remove(&model.first);
                            model.first += 1;
                        }
                    }
                    6 => {
                        let here = state == Some(SegmentState::Received);
                        prop_assert_eq!(segments.take(number).is_some(), here);
                        if here {
                            model.states.insert(number, SegmentState::Delivered);
                        }
                        while model.states.get(&model.first) == Some(&SegmentState::Delivered) {
                            model.states.remove(&model.first);
                            model.first += 1;
                        }
                    }
                    _ => {
                        segments.truncate(number + 4);
                        model.states.retain(|other, _| *other < number + 4);
                        model.order.retain(|other| *other < number + 4);
                        model.next = model.next.min((number + 4).max(model.first));
                    }
                }
                prop_assert_eq!(segments.next(), model.next);
                prop_assert_eq!(segments.base(), model.first);
                prop_assert_eq!(segments.under_way(), model.order.len());
                prop_assert_eq!(segments.oldest_under_way().map(|oldest| oldest.0), model.order.first().copied());
                let queued = model.states.values().filter(|s| matches!(s, SegmentState::Queued { .. })).count();
                prop_assert_eq!(segments.outstanding(), model.order.len() + queued);
                for (number, state) in &model.states {
                    prop_assert_eq!(segments.get(*number).map(|segment| segment.state), Some(*state));
                }
                if model.states.is_empty() {
                    prop_assert_eq!(segments.buffered_bytes(), 0);
                }
            }
        }
    }
}
