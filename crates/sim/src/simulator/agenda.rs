//! What is to happen next: a heap of small entries in one total order.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use whimbrel_core::Time;

/// What an entry is about; the number is an index that its owner understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// A link direction has something to deliver, or a later time to wait for.
    Link(u32),
    /// A node's deadline may have come.
    Wake(u32),
    /// A closure of the scenario.
    Action(u32),
}

/// Which entry is the valid one: its time and its place among the entries of that time.
pub(super) type Ticket = (Time, u64);

/// Entries come out by time, then in the order in which they were put in.
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
