//! What follows from a plan of contacts at a moment.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, Time, WallClock};

use crate::contacts::{ContactPlan, Earliest, until};
use crate::next_hops::Way;

/// A plan of contacts, and the earliest ways over them now.
#[derive(Debug)]
pub(crate) struct KnownContacts {
    plan: ContactPlan,
    wall: WallClock,
    earliest: BTreeMap<Guid, Earliest>,
    // When a contact starts or ends next.
    due: Option<Time>,
}

impl KnownContacts {
    pub(crate) fn new(now: Time, plan: ContactPlan, wall: WallClock) -> KnownContacts {
        KnownContacts {
            plan,
            wall,
            earliest: BTreeMap::new(),
            due: Some(now),
        }
    }

    pub(crate) fn set_wall_clock(&mut self, now: Time, wall: WallClock) {
        self.wall = wall;
        self.due = Some(now);
    }

    /// Returns when [`review`](KnownContacts::review) is due.
    pub(crate) fn due(&self) -> Option<Time> {
        self.due
    }

    /// Finds the earliest ways from a router if a contact has started or ended. Returns true if it has.
    pub(crate) fn review(&mut self, now: Time, own: &Guid) -> bool {
        if self.due.is_none_or(|at| at > now) {
            return false;
        }
        let now_ms = self.wall.unix_millis(now);
        self.earliest = self.plan.earliest(own, now_ms);
        let next = self.plan.next_change(now_ms);
        self.due = next.map(|at| now + until(at, now_ms));
        true
    }

    /// Returns the destinations that the plan leads to, each with the neighbour that is the next hop now; none
    /// while its contact is still to come.
    pub(crate) fn next_hops(&self, now: Time) -> impl Iterator<Item = (&Guid, Option<Guid>)> {
        let next = move |way: &Earliest| self.is_now(now, way).then_some(way.next);
        self.earliest.iter().map(move |(to, way)| (to, next(way)))
    }

    /// Returns the destinations that a chunk reaches sooner if it waits for a contact than by the best way.
    pub(crate) fn awaiting(&self, now: Time, ways: &BTreeMap<Guid, Vec<Way>>) -> BTreeSet<Guid> {
        let is_sooner = |(to, way): &(&Guid, &Earliest)| {
            let best = ways.get(*to).and_then(|ways| ways.first());
            let takes = until(way.arrives, self.wall.unix_millis(now));
            !self.is_now(now, way) && best.is_some_and(|best| takes < best.cost.time())
        };
        let sooner = self.earliest.iter().filter(is_sooner);
        sooner.map(|(to, _)| *to).collect()
    }

    /// Returns true if the first contact of a way is there.
    fn is_now(&self, now: Time, way: &Earliest) -> bool {
        way.leaves <= self.wall.unix_millis(now)
    }
}
