//! Requests that programs repeat later.

use std::collections::BTreeMap;

use whimbrel_core::Time;

use super::{Breach, library};

/// A request that a program repeats.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) host: usize,
    pub(super) content: usize,
    // The number of vain attempts.
    pub(super) repeated: u64,
}

impl Again {
    /// Returns the breach if the request is still waiting `waited_s` seconds after the last fault.
    pub(super) fn stuck(&self, waited_s: u64) -> Breach {
        Breach::Stuck {
            host: self.host,
            content: self.content,
            got: 0,
            len: library::contents()[self.content].len(),
            waited_s,
            repeated: self.repeated,
        }
    }
}

/// The requests to repeat, by time.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    due: BTreeMap<(Time, u64), Again>,
    next_number: u64,
}

impl Agenda {
    pub(super) fn add(&mut self, at: Time, again: Again) {
        self.next_number += 1;
        self.due.insert((at, self.next_number), again);
    }

    /// Takes the first request if it is due by `end`.
    pub(super) fn take(&mut self, end: Time) -> Option<(Time, Again)> {
        let entry = self.due.first_entry().filter(|it| it.key().0 <= end)?;
        let ((at, _), again) = entry.remove_entry();
        Some((at, again))
    }

    pub(super) fn first(&self) -> Option<&Again> {
        self.due.values().next()
    }
}
