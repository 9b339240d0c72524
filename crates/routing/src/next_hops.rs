//! The next hops of all destinations.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::Guid;

use crate::cost::Cost;

/// A next hop towards a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The neighbour.
    pub neighbour: Guid,
    /// The cost of the whole way, as the announcements say.
    pub cost: Cost,
}

/// What follows from the database, the neighbours and known contacts at a moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LearnedNextHops {
    /// The next hops of paths that lead there now, best first.
    pub(crate) ways: BTreeMap<Guid, Vec<Way>>,
    /// The neighbours that carry data towards destinations that are out of reach.
    pub(crate) carriers: BTreeMap<Guid, Way>,
    /// Destinations for which the next known contact is better than the way of the moment.
    pub(crate) awaiting: BTreeSet<Guid>,
}
