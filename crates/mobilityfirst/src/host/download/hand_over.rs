//! Chunks of a download that wait for its program, and how many it takes at once.

use core::ops::Range;
use std::collections::BTreeMap;

use whimbrel_link::Room;

use crate::local::{Get, LocalChunk};

/// A verified chunk that waits, and what it holds of the buffer until its program has it.
pub(super) struct Held {
    pub(super) chunk: LocalChunk,
    pub(super) load: Room,
}

/// The chunks that wait for a program.
pub(super) struct HandOver {
    in_order: bool,
    // Chunks that the program takes before it has used one, and those that it has taken and not used.
    credit: u16,
    unconsumed: u16,
    // By offset in the content, in bytes.
    held: BTreeMap<u64, Held>,
    next_offset: u64,
}

impl HandOver {
    /// Nothing waits. A program that takes chunks in order has those before `begin`, in bytes.
    pub(super) fn new(get: &Get, begin: u64) -> HandOver {
        HandOver {
            in_order: get.in_order,
            credit: get.credit.max(1),
            unconsumed: 0,
            held: BTreeMap::new(),
            next_offset: if get.in_order { begin } else { 0 },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns true if the program has as much as it takes at once.
    pub(super) fn is_full(&self) -> bool {
        self.unconsumed >= self.credit
    }

    /// Returns true if the program has used all that it has taken.
    pub(super) fn is_idle(&self) -> bool {
        self.unconsumed == 0
    }

    /// Returns the number of chunks here that the program has not used.
    pub(super) fn waiting(&self) -> u64 {
        self.held.len() as u64 + u64::from(self.unconsumed)
    }

    /// Returns true if a chunk at `offset` may be handed over as soon as it arrives.
    pub(super) fn takes(&self, offset: u64) -> bool {
        !self.is_full() && (!self.in_order || offset <= self.next_offset)
    }

    /// The program has used a chunk.
    pub(super) fn note_consumed(&mut self) {
        self.unconsumed = self.unconsumed.saturating_sub(1);
    }

    /// Chunks are smaller by this power of two: the program takes as many more. One at a time stays one at a
    /// time.
    pub(super) fn divide(&mut self, log2: u8) {
        self.credit = 1 + (self.credit - 1).saturating_mul(1 << log2);
    }

    /// Keeps a verified chunk until it may be handed over, in place of smaller ones within it that wait:
    /// a chunk that was sent before the source continued in smaller ones may come after them.
    pub(super) fn hold(&mut self, range: Range<u64>, held: Held) {
        let waiting = self.held.range(range.clone());
        let within = waiting.filter(|(at, it)| **at + it.chunk.data.len() as u64 <= range.end);
        for at in within.map(|(at, _)| *at).collect::<Vec<_>>() {
            self.held.remove(&at);
        }
        self.held.insert(range.start, held);
    }

    /// Returns the next chunk that may be handed over, which the program has from now on.
    pub(super) fn take_next(&mut self) -> Option<Held> {
        let first = *self.held.keys().next()?;
        if !self.takes(first) {
            return None;
        }
        let held = self.held.remove(&first)?;
        let end = first + held.chunk.data.len() as u64;
        self.next_offset = self.next_offset.max(end);
        self.unconsumed += 1;
        Some(held)
    }
}
