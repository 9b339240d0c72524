//! What clients may cost: checks of signatures, and new records.

use whimbrel_core::{Distrust, Limit, Meter, Meters, Source, Time};

use crate::quota::Quotas;
use crate::record::RecordKey;

/// Checks for sources that are not proven.
const UNPROVEN: Limit = Limit::per_second(128);
/// Updates of one record. Each is pushed to all that watch its name, and is a part of a transaction.
const UPDATES: Limit = Limit {
    at_once: 32,
    per_second: 4,
};
/// Maximum of records whose updates are counted.
const MAX_COUNTED: usize = 16_384;
/// The share of the room that one source may take: one in this many.
const PARTS: usize = 4;

/// The budgets of all clients.
#[derive(Debug)]
pub(super) struct Budgets {
    unproven: Meter,
    distrust: Distrust<Source>,
    // Those of sources that are not proven count together.
    brought: Quotas<Option<Source>>,
    updates: Meters<RecordKey>,
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets {
            unproven: Meter::default(),
            distrust: Distrust::default(),
            brought: Quotas::default(),
            updates: Meters::new(UPDATES, MAX_COUNTED),
        }
    }
}

impl Budgets {
    /// Takes a check of a record of this source; returns false if none is left. Those of sources that are
    /// not proven are bounded in number.
    pub(super) fn admit_check(&mut self, now: Time, source: Option<Source>) -> bool {
        match source {
            Some(source) => self.distrust.may_check(now, source),
            None => self.unproven.admits(now, UNPROVEN),
        }
    }

    /// A proven source has sent a record with a bad signature.
    pub(super) fn note_bad(&mut self, now: Time, source: Option<Source>) {
        if let Some(source) = source {
            self.distrust.note_bad(now, source);
        }
    }

    /// True if a record may change once more now, if its signature is good.
    pub(super) fn may_change(&self, now: Time, key: RecordKey) -> bool {
        self.updates.has_room(now, key)
    }

    /// The owner of a record has signed a change of it.
    pub(super) fn note_change(&mut self, now: Time, key: RecordKey) {
        self.updates.admits(now, key);
    }

    /// Counts one more new record of this source; returns false if it may bring none while `free` more fit.
    pub(super) fn admit_new(&mut self, now: Time, source: Option<Source>, free: usize) -> bool {
        self.brought.admit(now, source, free / PARTS)
    }

    /// A record that was admitted has not become a new one.
    pub(super) fn give_back(&mut self, source: Option<Source>) {
        self.brought.give_back(source);
    }
}
