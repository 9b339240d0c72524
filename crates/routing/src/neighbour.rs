//! What one neighbour told, and what it may hold of this router's distances.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use whimbrel_core::{Guid, Time};

use crate::cost::{Cost, LinkCost};
use crate::graph::Reach;
use crate::message::{Distances, State};

/// Distances without an answer are sent again after this time, twice as long each further time, ...
const RESEND: Duration = Duration::from_millis(500);
/// ... up to this.
const MAX_RESEND: Duration = Duration::from_secs(4);
/// The first question to a neighbour that has not said anything is repeated after this time, twice as
/// long each further time, ...
const GREETING: Duration = Duration::from_secs(1);
/// ... up to this: it may be a router with static routes.
const MAX_GREETING: Duration = Duration::from_secs(30);

/// Distances on their way to a neighbour.
#[derive(Debug)]
struct Sent {
    distances: Distances,
    reach: Arc<Reach>,
    again_at: Time,
    interval: Duration,
}

/// One neighbour.
#[derive(Debug)]
pub(crate) struct Neighbour {
    pub(crate) up: bool,
    /// It has said something in this run: it routes.
    pub(crate) talks: bool,
    pub(crate) link: LinkCost,
    /// Its distances, as it told them.
    pub(crate) told: Reach,
    applied: u32,
    /// Its distances, as the database of this router has them.
    pub(crate) computed: Reach,
    /// Its usual distances, as the database has them; none while every known router is within reach.
    pub(crate) usual: Reach,
    // What it has of this router's distances, and what is on its way.
    acknowledged: Arc<Reach>,
    sequence: u32,
    sent: Option<Sent>,
    // It has lost what it had.
    is_behind: bool,
    pub(crate) state_at: Time,
    pub(crate) differs_since: Option<Time>,
    pub(crate) listed_at: Option<Time>,
    greeted_at: Time,
    greeting: Duration,
}

impl Neighbour {
    pub(crate) fn new(now: Time) -> Neighbour {
        Neighbour {
            up: false,
            talks: false,
            link: LinkCost::new(now),
            told: Reach::new(),
            applied: 0,
            computed: Reach::new(),
            usual: Reach::new(),
            acknowledged: Arc::default(),
            sequence: 0,
            sent: None,
            is_behind: false,
            state_at: now,
            differs_since: None,
            listed_at: None,
            greeted_at: now,
            greeting: GREETING,
        }
    }

    /// Another run of it is up: it holds nothing, and has said nothing.
    pub(crate) fn restart(&mut self, now: Time) {
        self.talks = false;
        self.told.clear();
        self.applied = 0;
        self.acknowledged = Arc::default();
        self.sequence = 0;
        self.sent = None;
        self.is_behind = false;
        self.differs_since = None;
        self.listed_at = None;
        self.greeted_at = now;
        self.greeting = GREETING;
    }

    /// Returns true if chunks may go to it.
    pub(crate) fn is_usable(&self, now: Time) -> bool {
        self.up && self.talks && self.link.held_until() <= now
    }

    /// Returns true if it may hold distances of this router and act on them.
    pub(crate) fn counts(&self) -> bool {
        self.up && self.talks
    }

    /// Returns the smallest distance of this router to a destination that the neighbour may hold.
    pub(crate) fn may_hold(&self, destination: &Guid) -> Cost {
        let of = |reach: &Reach| reach.get(destination).copied().unwrap_or(Cost::NEVER);
        let sent = self.sent.as_ref().map_or(Cost::NEVER, |it| of(&it.reach));
        sent.min(of(&self.acknowledged))
    }

    /// Handles its distances.
    pub(crate) fn handle_distances(&mut self, distances: Distances) {
        let Distances {
            sequence,
            base,
            changed,
        } = distances;
        // An older one that comes late must not take back what it has since told.
        if sequence <= self.applied || (base != 0 && base != self.applied) {
            return;
        }
        if base == 0 {
            self.told.clear();
        }
        for (destination, cost) in changed {
            match cost.is_finite() {
                true => self.told.insert(destination, cost),
                false => self.told.remove(&destination),
            };
        }
        self.applied = sequence;
    }

    /// Handles what it has of this router's distances.
    pub(crate) fn handle_state(&mut self, state: &State) {
        let applied = state.applied;
        if let Some(sent) = self.sent.take_if(|it| it.distances.sequence == applied) {
            self.acknowledged = sent.reach;
            self.is_behind = false;
        } else if self.acknowledged_sequence() != applied {
            self.is_behind = true;
            self.sequence = self.sequence.max(applied);
        }
    }

    fn acknowledged_sequence(&self) -> u32 {
        match &self.sent {
            Some(sent) => sent.distances.sequence - 1,
            None => self.sequence,
        }
    }

    /// Returns what it is to be told, if it has not been told of these distances and nothing is on its
    /// way.
    pub(crate) fn next_distances(&mut self, now: Time, own: &Arc<Reach>) -> Option<Distances> {
        let is_told = !self.is_behind && *self.acknowledged == **own;
        if !self.counts() || self.sent.is_some() || is_told {
            return None;
        }
        let is_full = self.is_behind || self.sequence == 0;
        let base = if is_full { 0 } else { self.sequence };
        let before = if is_full {
            &Reach::new()
        } else {
            &*self.acknowledged
        };
        let changed = changes(before, own);
        self.sequence = self.sequence.checked_add(1)?;
        let distances = Distances {
            sequence: self.sequence,
            base,
            changed,
        };
        self.sent = Some(Sent {
            distances: distances.clone(),
            reach: Arc::clone(own),
            again_at: now + RESEND,
            interval: RESEND,
        });
        Some(distances)
    }

    /// Returns the distances to send again.
    pub(crate) fn repeated(&mut self, now: Time) -> Option<Distances> {
        let is_behind = self.is_behind;
        let newest = self.sequence;
        let sent = self.sent.as_mut().filter(|_| self.up)?;
        if sent.again_at > now {
            return None;
        }
        sent.interval = (sent.interval * 2).min(MAX_RESEND);
        sent.again_at = now + sent.interval;
        if is_behind {
            sent.distances.sequence = newest.max(sent.distances.sequence).checked_add(1)?;
            self.sequence = sent.distances.sequence;
            sent.distances.base = 0;
            sent.distances.changed = changes(&Reach::new(), &sent.reach);
        }
        Some(sent.distances.clone())
    }

    /// Returns true if it is to be asked once more whether it routes.
    pub(crate) fn greets_again(&mut self, now: Time) -> bool {
        if !self.up || self.talks || now < self.greeted_at + self.greeting {
            return false;
        }
        self.greeted_at = now;
        self.greeting = (self.greeting * 2).min(MAX_GREETING);
        true
    }

    /// Returns what this router has of it.
    pub(crate) fn state(&self, digest: u64) -> State {
        State {
            applied: self.applied,
            digest,
        }
    }
}

/// Returns the destinations whose distances differ, with the new ones.
fn changes(before: &Reach, after: &Reach) -> Vec<(Guid, Cost)> {
    let mut changed: BTreeMap<Guid, Cost> = before
        .keys()
        .filter(|destination| !after.contains_key(*destination))
        .map(|destination| (*destination, Cost::NEVER))
        .collect();
    let is_new = |(destination, cost): &(&Guid, &Cost)| before.get(*destination) != Some(*cost);
    changed.extend(after.iter().filter(is_new).map(|(to, cost)| (*to, *cost)));
    changed.into_iter().collect()
}
