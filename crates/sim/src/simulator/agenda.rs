//! Future events: a heap of small entries in one total order.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use whimbrel_core::Time;

/// The subject of an entry; the number is an index for its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// A link direction may have a delivery, or needs a later entry.
    Link(u32),
    /// A node's deadline may have passed.
    Wake(u32),
    /// A scheduled closure of the scenario.
    Action(u32),
}

/// Identifies the valid entry by its time and its rank within that time.
pub(super) type Ticket = (Time, u64);

/// Returns entries by time, then in the order of their insertion.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(Time, u64, Task)>>,
    sequence: u64,
}

impl Agenda {
    pub(super) fn put(&mut self, at: Time, task: Task) -> Ticket {
        let sequence = self.sequence;
        self.sequence += 1;
        self.heap.push(Reverse((at, sequence, task)));
        (at, sequence)
    }

    pub(super) fn next_time(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    pub(super) fn peek(&self) -> Option<(Ticket, Task)> {
        self.heap
            .peek()
            .map(|Reverse((at, sequence, task))| ((*at, *sequence), *task))
    }

    pub(super) fn take(&mut self) -> Option<(Ticket, Task)> {
        self.heap
            .pop()
            .map(|Reverse((at, sequence, task))| ((at, sequence), task))
    }
}
