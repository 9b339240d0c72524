//! Unacknowledged frames by their numbers.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::Time;

use super::piece::Piece;
use super::stats::{LinkStats, LossMeter};

/// A window over consecutive transmission numbers, which may wrap. Everything but
/// [`Outstanding::forget_packet`] is O(1), amortised.
#[derive(Debug)]
pub(crate) struct Outstanding {
    base: u64,
    slots: VecDeque<Slot>,
    // Distance from `base` to the first slot that is `Waiting`; the length if there is none.
    oldest: usize,
    waiting: usize,
    limit: usize,
}

#[derive(Debug)]
pub(crate) struct Slot {
    state: State,
    /// The time of its transmission.
    pub(crate) sent_at: Time,
    /// The time when it was queued.
    pub(crate) queued_at: Time,
    /// For the owner: the number of acknowledged later frames, or that it was reported missing.
    pub(crate) later_acks: u8,
    /// For the owner: octets of the number on the wire.
    pub(crate) width: u8,
    // The previous transmission of the same piece, as long as it is in the window.
    previous: Option<u64>,
}

#[derive(Debug)]
enum State {
    /// Sent, not acknowledged.
    Waiting(Piece),
    /// Declared lost; its piece waits to be retransmitted.
    Resending,
    /// Its piece was retransmitted under another number.
    Superseded(u64),
    /// Acknowledged, abandoned, or never to be acknowledged.
    Settled,
}

/// The meaning of an acknowledgement.
#[derive(Debug)]
pub(crate) enum Acknowledged {
    /// The first acknowledgement of this frame.
    Arrived { piece: Piece, sent_at: Time },
    /// It had been declared lost but was not yet retransmitted, and need not be.
    InTime,
    /// Its retransmission was spurious. The frame that replaced it is settled too.
    Spurious,
    /// A repeated acknowledgement.
    Known,
    /// No frame of that number is in the window.
    Unknown,
}

impl Outstanding {
    /// Returns a window with this first number. Beyond `limit` numbers the oldest frame is
    /// forgotten.
    pub(crate) fn new(first: u64, limit: usize) -> Outstanding {
        Outstanding {
            base: first,
            slots: VecDeque::new(),
            oldest: 0,
            waiting: 0,
            limit: limit.max(1),
        }
    }

    /// Returns the number of the next frame.
    pub(crate) fn next(&self) -> u64 {
        self.base.wrapping_add(self.slots.len() as u64)
    }

    /// Returns the lowest number in the window, or the next one if it is empty.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Returns the number of frames that wait for an acknowledgement.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the number of slots in the window.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn offset(&self, number: u64) -> Option<usize> {
        let offset = number.wrapping_sub(self.base);
        (offset < self.slots.len() as u64).then_some(offset as usize)
    }

    pub(crate) fn slot(&self, number: u64) -> Option<&Slot> {
        self.slots.get(self.offset(number)?)
    }

    pub(crate) fn slot_mut(&mut self, number: u64) -> Option<&mut Slot> {
        let offset = self.offset(number)?;
        self.slots.get_mut(offset)
    }

    pub(crate) fn is_waiting(&self, number: u64) -> bool {
        self.slot(number)
            .is_some_and(|slot| matches!(slot.state, State::Waiting(_)))
    }

    /// Records the transmission of `piece` as the next number; `replaces` is the number under which
    /// it was declared lost. Returns the piece that was forgotten if too many wait.
    pub(crate) fn push(
        &mut self,
        now: Time,
        piece: Piece,
        width: u8,
        replaces: Option<u64>,
    ) -> Option<Piece> {
        let number = self.next();
        let replaced = replaces.and_then(|old| self.slot_mut(old));
        let previous = match replaced {
            Some(slot) => {
                slot.state = State::Superseded(number);
                replaces
            }
            None => None,
        };
        let queued_at = piece.queued_at;
        let state = State::Waiting(piece);
        self.slots.push_back(Slot {
            state,
            sent_at: now,
            queued_at,
            later_acks: 0,
            width,
            previous,
        });
        self.waiting += 1;
        let evicted = if self.slots.len() > self.limit {
            self.evict_oldest()
        } else {
            None
        };
        self.trim();
        evicted
    }

    /// Uses the next number for a frame that needs no acknowledgement.
    pub(crate) fn skip(&mut self) {
        let settled = Slot {
            state: State::Settled,
            sent_at: Time::ZERO,
            queued_at: Time::ZERO,
            later_acks: 0,
            width: 0,
            previous: None,
        };
        self.slots.push_back(settled);
        self.trim();
    }

    fn evict_oldest(&mut self) -> Option<Piece> {
        let slot = self.slots.pop_front()?;
        self.base = self.base.wrapping_add(1);
        self.oldest = self.oldest.saturating_sub(1);
        match slot.state {
            State::Waiting(piece) => {
                self.waiting -= 1;
                Some(piece)
            }
            _ => None,
        }
    }

    /// Processes an acknowledgement of `number`.
    pub(crate) fn acknowledge(&mut self, number: u64) -> Acknowledged {
        let Some(slot) = self.slot_mut(number) else {
            return Acknowledged::Unknown;
        };
        let previous = slot.previous;
        let sent_at = slot.sent_at;
        let meaning = match core::mem::replace(&mut slot.state, State::Settled) {
            State::Waiting(piece) => {
                self.waiting -= 1;
                Acknowledged::Arrived { piece, sent_at }
            }
            State::Resending => Acknowledged::InTime,
            State::Superseded(by) => {
                self.settle_chain(by);
                Acknowledged::Spurious
            }
            State::Settled => Acknowledged::Known,
        };
        // Earlier transmissions are settled: the piece has arrived.
        let mut before = previous;
        while let Some(slot) = before.and_then(|number| self.slot_mut(number)) {
            slot.state = State::Settled;
            before = slot.previous;
        }
        self.trim();
        meaning
    }

    /// Settles a frame and its replacements.
    fn settle_chain(&mut self, number: u64) {
        let mut next = Some(number);
        while let Some(slot) = next.and_then(|number| self.slot_mut(number)) {
            next = None;
            match core::mem::replace(&mut slot.state, State::Settled) {
                State::Waiting(_) => self.waiting -= 1,
                State::Superseded(by) => next = Some(by),
                State::Resending | State::Settled => {}
            }
        }
    }

    /// Takes the piece of a lost frame for retransmission. Returns `None` unless it waited.
    fn take_lost(&mut self, number: u64) -> Option<Piece> {
        let slot = self.slot_mut(number)?;
        match core::mem::replace(&mut slot.state, State::Resending) {
            State::Waiting(piece) => {
                self.waiting -= 1;
                self.find_oldest();
                Some(piece)
            }
            other => {
                slot.state = other;
                None
            }
        }
    }

    /// Returns true if the frame was declared lost and has not been acknowledged since.
    pub(crate) fn is_resending(&self, number: u64) -> bool {
        self.slot(number)
            .is_some_and(|slot| matches!(slot.state, State::Resending))
    }

    /// Abandons the frame's piece: it is not retransmitted.
    pub(crate) fn give_up(&mut self, number: u64) {
        let mut next = Some(number);
        while let Some(slot) = next.and_then(|number| self.slot_mut(number)) {
            let was = core::mem::replace(&mut slot.state, State::Settled);
            next = slot.previous;
            if let State::Waiting(_) = was {
                self.waiting -= 1;
            }
        }
        self.trim();
    }

    /// Settles all frames of a packet.
    pub(crate) fn forget_packet(&mut self, packet_id: u64) {
        for slot in &mut self.slots {
            if matches!(&slot.state, State::Waiting(piece) if piece.packet_id == packet_id) {
                slot.state = State::Settled;
                self.waiting -= 1;
            }
        }
        self.trim();
    }

    /// Returns the oldest waiting frame.
    pub(crate) fn oldest(&self) -> Option<(u64, &Slot)> {
        let slot = self.slots.get(self.oldest)?;
        Some((self.base.wrapping_add(self.oldest as u64), slot))
    }

    /// Returns the piece of a waiting frame.
    pub(crate) fn piece(&self, number: u64) -> Option<&Piece> {
        match &self.slot(number)?.state {
            State::Waiting(piece) => Some(piece),
            _ => None,
        }
    }

    /// Counts an acknowledgement of `number` for all older waiting frames. Appends those for which
    /// it was the `threshold`th one to `overtaken`, the oldest last.
    pub(crate) fn count_later(&mut self, number: u64, threshold: u8, overtaken: &mut Vec<u64>) {
        let base = self.base;
        // The acknowledged frame has often just left the window; all waiting ones are newer then.
        let distance = number.wrapping_sub(base);
        let end = if distance > u64::MAX / 2 {
            0
        } else {
            distance.min(self.slots.len() as u64) as usize
        };
        let start = self.oldest.min(end);
        for (offset, slot) in self.slots.range_mut(start..end).enumerate() {
            if matches!(slot.state, State::Waiting(_)) {
                slot.later_acks = slot.later_acks.saturating_add(1);
                if slot.later_acks >= threshold {
                    overtaken.push(base.wrapping_add((start + offset) as u64));
                }
            }
        }
        overtaken.reverse();
    }

    /// Appends the waiting frames that are marked by their `later_acks` and were sent `wait` ago or
    /// earlier to `found`, the oldest last. Returns the send time of the next marked one.
    pub(crate) fn marked_before(
        &self,
        now: Time,
        wait: Duration,
        found: &mut Vec<u64>,
    ) -> Option<Time> {
        let mut next = None;
        for (offset, slot) in self.slots.iter().enumerate().skip(self.oldest) {
            if slot.later_acks == 0 || !matches!(slot.state, State::Waiting(_)) {
                continue;
            }
            if slot.sent_at + wait > now {
                next = Some(slot.sent_at);
                break;
            }
            found.push(self.base.wrapping_add(offset as u64));
        }
        found.reverse();
        next
    }

    /// Declares a frame lost and returns its piece, to retransmit or abandon.
    pub(crate) fn declare_lost(
        &mut self,
        now: Time,
        number: u64,
        stats: &mut LinkStats,
        loss: &mut LossMeter,
    ) -> Option<Piece> {
        let slot = self.slot(number)?;
        let (sent_at, queued_at) = (slot.sent_at, slot.queued_at);
        let piece = self.take_lost(number)?;
        stats.detection.record(now.since(sent_at));
        stats.detection_from_queue.record(now.since(queued_at));
        loss.lost();
        Some(piece)
    }

    /// Forgets all frames. Returns the pieces of the waiting ones.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Piece> {
        self.base = self.next();
        self.oldest = 0;
        self.waiting = 0;
        self.slots.drain(..).filter_map(|slot| match slot.state {
            State::Waiting(piece) => Some(piece),
            _ => None,
        })
    }

    fn trim(&mut self) {
        while let Some(front) = self.slots.front() {
            let over = match front.state {
                State::Settled => true,
                State::Superseded(by) => self
                    .slot(by)
                    .is_none_or(|slot| matches!(slot.state, State::Settled)),
                State::Waiting(_) | State::Resending => false,
            };
            if !over {
                break;
            }
            self.slots.pop_front();
            self.base = self.base.wrapping_add(1);
            self.oldest = self.oldest.saturating_sub(1);
        }
        self.find_oldest();
    }

    fn find_oldest(&mut self) {
        while self
            .slots
            .get(self.oldest)
            .is_some_and(|slot| !matches!(slot.state, State::Waiting(_)))
        {
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn piece(packet_id: u64) -> Piece {
        Piece {
            packet: b"packet"[..].into(),
            header: None,
            start: 0,
            len: 6,
            index: 0,
            count: 1,
            packet_id,
            identity: 0,
            retransmissions: 0,
            accepted_at: Time::ZERO,
            queued_at: Time::ZERO,
        }
    }

    /// The model: every transmission ever made, by its index.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Model {
        Waiting {
            packet: u64,
            replaces: Option<usize>,
        },
        Lost {
            packet: u64,
            replaces: Option<usize>,
        },
        Replaced {
            by: usize,
            replaces: Option<usize>,
        },
        Settled,
    }

    fn settle_before(model: &mut [Model], mut at: Option<usize>) {
        while let Some(index) = at {
            at = match model[index] {
                Model::Waiting { replaces, .. }
                | Model::Lost { replaces, .. }
                | Model::Replaced { replaces, .. } => replaces,
                Model::Settled => None,
            };
            model[index] = Model::Settled;
        }
    }

    fn settle_after(model: &mut [Model], mut at: usize) {
        while let Model::Replaced { by, .. } = core::mem::replace(&mut model[at], Model::Settled) {
            at = by;
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_list_of_all_transmissions(
            first in prop_oneof![Just(u64::MAX - 5), Just(0u64), any::<u64>()],
            steps in prop::collection::vec((0u8..6, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut window = Outstanding::new(first, 1000);
            let mut model: Vec<Model> = Vec::new();
            let mut lost: BTreeMap<usize, Piece> = BTreeMap::new();
            let (mut stats, mut loss) = (LinkStats::default(), LossMeter::default());
            for (step, pick) in steps {
                let number = |index: usize| first.wrapping_add(index as u64);
                let at = pick.index(model.len() + 2);
                let known = model.get(at).copied();
                match step {
                    0 | 1 => {
                        prop_assert_eq!(window.next(), number(model.len()));
                        let replaces = lost.pop_first().filter(|(index, _)| window.is_resending(number(*index)));
                        let packet = model.len() as u64;
                        window.push(Time::ZERO, piece(packet), 1, replaces.as_ref().map(|(i, _)| number(*i)));
                        let replaces = replaces.map(|(index, _)| index);
                        if let Some(old) = replaces {
                            let Model::Lost { replaces: before, .. } = model[old] else { panic!() };
                            model[old] = Model::Replaced { by: model.len(), replaces: before };
                        }
                        model.push(Model::Waiting { packet, replaces });
                    }
                    2 | 3 => match (window.acknowledge(number(at)), known) {
                        (Acknowledged::Arrived { piece, .. }, Some(Model::Waiting { packet, .. })) => {
                            prop_assert_eq!(piece.packet_id, packet);
                            settle_before(&mut model, Some(at));
                        }
                        (Acknowledged::InTime, Some(Model::Lost { .. })) => settle_before(&mut model, Some(at)),
                        (Acknowledged::Spurious, Some(Model::Replaced { replaces, .. })) => {
                            settle_after(&mut model, at);
                            settle_before(&mut model, replaces);
                        }
                        (Acknowledged::Known | Acknowledged::Unknown, Some(Model::Settled))
                        | (Acknowledged::Unknown, None) => {}
                        (meaning, known) => prop_assert!(false, "{:?} for {:?}", meaning, known),
                    },
                    4 => match (window.declare_lost(Time::ZERO, number(at), &mut stats, &mut loss), known) {
                        (Some(piece), Some(Model::Waiting { packet, replaces })) => {
                            prop_assert_eq!(piece.packet_id, packet);
                            model[at] = Model::Lost { packet, replaces };
                            lost.insert(at, piece);
                        }
                        (None, Some(Model::Waiting { .. })) | (Some(_), _) => prop_assert!(false),
                        (None, _) => {}
                    },
                    _ => {
                        if let Some(Model::Lost { .. }) = known {
                            window.give_up(number(at));
                            settle_before(&mut model, Some(at));
                            lost.remove(&at);
                        }
                    }
                }
                let waiting = |entry: &Model| matches!(entry, Model::Waiting { .. });
                prop_assert_eq!(window.waiting(), model.iter().filter(|entry| waiting(entry)).count());
                let oldest = model.iter().position(waiting).map(number);
                prop_assert_eq!(window.oldest().map(|(number, _)| number), oldest);
                let open = |entry: &Model| matches!(entry, Model::Waiting { .. } | Model::Lost { .. });
                if !model.iter().any(open) {
                    prop_assert_eq!(window.len(), 0, "nothing is kept of what is settled");
                }
            }
        }
    }

    #[test]
    fn more_than_the_limit_are_not_kept() {
        let mut window = Outstanding::new(0, 3);
        let dropped = (0..5)
            .filter_map(|id| window.push(Time::ZERO, piece(id), 1, None))
            .count();
        assert_eq!(
            (dropped, window.len(), window.waiting(), window.base()),
            (2, 3, 3, 2)
        );
    }
}
