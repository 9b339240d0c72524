//! The routing information base: the registered routes, and the FIB entries derived from them.
//!
//! Every prefix with routes has an entry, and every entry a FIB entry. Its next hops are those of
//! its own routes and the inherited ones: a route flagged `CHILD_INHERIT` applies to longer
//! prefixes too, unless a prefix in between has a route flagged `CAPTURE`, or a nearer prefix has
//! the same face (NFD Management, RIB: "Route inheritance").
//!
//! With `own(P)` the lowest cost by face of all routes of P, and `passing(P)` of its inheritable
//! routes:
//!
//! ```text
//! hops(P)  = own(P)     over (if P captures: nothing, else heritage(parent of P))
//! heritage(P) = passing(P) over (if P captures: nothing, else heritage(parent of P))
//! ```
//!
//! A change of one route is computed for its face alone, along the prefixes below it. Where these are
//! many, as below `/`, so many at a time as [`RibLimits::work`] says: whoever changes such routes again
//! and again must not hold up packets.

mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use whimbrel_core::{Deadline, Time, TimerQueue};
use whimbrel_ndn_mgmt::{ROUTE_CAPTURE, ROUTE_CHILD_INHERIT, RouteOrigin};
use whimbrel_ndn_packet::Name;

use crate::face::FaceId;
use crate::tables::MAX_DEPTH;

use pages::Pages;
pub use pages::{PAGE_ROUTE_COST, PageRefusal, ROUTES_OF_PAGES, ROUTES_PER_PAGE};

/// Identifies a route of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    /// The next hop.
    pub face: FaceId,
    /// The source of the route.
    pub origin: RouteOrigin,
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Lower is preferred.
    pub cost: u64,
    /// [`ROUTE_CHILD_INHERIT`] and [`ROUTE_CAPTURE`].
    pub flags: u64,
    /// When it expires.
    pub expires: Option<Time>,
}

impl Route {
    const fn passes(&self) -> bool {
        self.flags & ROUTE_CHILD_INHERIT != 0
    }

    const fn captures(&self) -> bool {
        self.flags & ROUTE_CAPTURE != 0
    }
}

/// A change of the FIB: the next hop at a face derived from the RIB's routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibUpdate {
    /// Name prefix.
    pub prefix: Name,
    /// The next hop.
    pub face: FaceId,
    /// Its rank; `None` removes it.
    pub rank: Option<Rank>,
}

/// Time between two parts of a large change. It is not zero, because a driver takes a deadline that
/// does not move for a fault, and waits.
const PART_INTERVAL: Duration = Duration::from_micros(1);

/// How good a next hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Lower is preferred.
    pub cost: u64,
    /// True if it follows from a route of a shorter prefix only. A default route must not come
    /// before a program of this machine that serves the name.
    pub inherited: bool,
}

/// Why a route is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RibError {
    /// The prefix has too many components.
    #[error("the prefix has {0} components; a route has at most {MAX_DEPTH}")]
    TooDeep(usize),
    /// The face has reached its limit of routes.
    #[error("face {0} already has {1} routes, the maximum per face: unregister some first")]
    Face(FaceId, usize),
    /// The router has reached its limit of routes.
    #[error("the router already has {0} routes, its configured maximum")]
    Routes(usize),
    /// The names of the face's routes have reached their limit of octets.
    #[error(
        "the prefixes of face {0} would have more than {1} octets, the maximum per face: unregister some first, or register shorter ones"
    )]
    OctetsOfFace(FaceId, usize),
    /// The names of all routes have reached their limit of octets.
    #[error("the router's prefixes would have more than {0} octets, the maximum")]
    Octets(usize),
    /// The face leads to a web page, which may not have this route.
    #[error(transparent)]
    Page(#[from] PageRefusal),
}

/// The limits of the RIB.
#[derive(Clone, Copy, Debug)]
pub struct RibLimits {
    /// Maximum of routes in total.
    pub routes: usize,
    /// Maximum of routes per face.
    pub routes_per_face: usize,
    /// Maximum of octets of the prefixes of all routes: a name can have 8,800.
    pub octets: usize,
    /// The same of the routes of one face.
    pub octets_per_face: usize,
    /// Maximum of entries that are looked at for one change, and in one
    /// [`handle_timeout`](Rib::handle_timeout), at least 1; what is beyond follows then.
    pub work: usize,
}

impl Default for RibLimits {
    fn default() -> RibLimits {
        RibLimits {
            routes: 1 << 20,
            routes_per_face: 1 << 17,
            octets: 128 << 20,
            octets_per_face: 16 << 20,
            // Some half a millisecond.
            work: 1_024,
        }
    }
}

/// The routes of one prefix, and the next hops derived from them and the inherited ones.
#[derive(Clone, Debug, Default)]
struct Entry {
    routes: BTreeMap<RouteKey, Route>,
    hops: BTreeMap<FaceId, Rank>,
}

impl Entry {
    fn lowest(&self, face: FaceId, counts: impl Fn(&Route) -> bool) -> Option<u64> {
        let (from, to) = (RouteOrigin(0), RouteOrigin(u64::MAX));
        self.routes
            .range(RouteKey { face, origin: from }..=RouteKey { face, origin: to })
            .filter(|(_, route)| counts(route))
            .map(|(_, route)| route.cost)
            .min()
    }

    fn captures(&self) -> bool {
        self.routes.values().any(Route::captures)
    }

    fn hop(&self, face: FaceId, heritage: Option<u64>) -> Option<Rank> {
        let rank = |inherited| move |cost| Rank { cost, inherited };
        let own = self.lowest(face, |_| true).map(rank(false));
        let above = if self.captures() { None } else { heritage };
        own.or(above.map(rank(true)))
    }

    fn heritage(&self, face: FaceId, above: Option<u64>) -> Option<u64> {
        self.lowest(face, Route::passes)
            .or(if self.captures() { None } else { above })
    }

    fn faces(&self) -> impl Iterator<Item = FaceId> {
        self.routes.keys().map(|key| key.face)
    }
}

/// The routes of a face.
#[derive(Debug, Default)]
struct OfFace {
    routes: BTreeSet<(Name, RouteOrigin)>,
    /// Octets of their prefixes.
    octets: usize,
}

impl OfFace {
    fn insert(&mut self, prefix: &Name, origin: RouteOrigin) {
        self.octets += prefix.as_ref().value().len();
        self.routes.insert((prefix.clone(), origin));
    }

    fn remove(&mut self, prefix: &Name, origin: RouteOrigin) {
        if self.routes.remove(&(prefix.clone(), origin)) {
            self.octets -= prefix.as_ref().value().len();
        }
    }
}

/// All routes.
#[derive(Debug)]
pub struct Rib {
    limits: RibLimits,
    /// In canonical order, so that the prefixes below one directly follow it.
    entries: BTreeMap<Name, Entry>,
    by_face: BTreeMap<FaceId, OfFace>,
    timers: TimerQueue<(Name, RouteKey)>,
    routes: usize,
    /// Octets of their prefixes.
    octets: usize,
    updates: Vec<FibUpdate>,
    pages: Pages,
    /// For a face and a prefix: the first of the entries below it whose next hop at that face may be
    /// out of date.
    walks: BTreeMap<(FaceId, Name), Name>,
    /// Removed faces that have routes yet.
    removed: BTreeSet<FaceId>,
    /// What may be looked at yet in the present change.
    work: usize,
    /// No deadline lies before it.
    resume: Time,
}

impl Rib {
    /// Returns a RIB without routes.
    pub fn new(limits: RibLimits) -> Rib {
        Rib {
            limits,
            entries: BTreeMap::new(),
            by_face: BTreeMap::new(),
            timers: TimerQueue::new(),
            routes: 0,
            octets: 0,
            updates: Vec::new(),
            pages: Pages::default(),
            walks: BTreeMap::new(),
            removed: BTreeSet::new(),
            work: 0,
            resume: Time::ZERO,
        }
    }

    /// Returns the number of routes.
    pub const fn len(&self) -> usize {
        self.routes
    }

    /// Returns true if there are no routes.
    pub const fn is_empty(&self) -> bool {
        self.routes == 0
    }

    /// Returns all prefixes in canonical order, with their routes.
    pub fn entries(
        &self,
    ) -> impl Iterator<Item = (&Name, impl Iterator<Item = (RouteKey, Route)>)> {
        self.entries
            .iter()
            .map(|(name, entry)| (name, entry.routes.iter().map(|(key, route)| (*key, *route))))
    }

    /// One route.
    pub fn route(&self, prefix: &Name, key: RouteKey) -> Option<Route> {
        self.entries.get(prefix)?.routes.get(&key).copied()
    }

    /// Returns the cost of the next hop at a face, derived from a prefix's own and inherited
    /// routes.
    pub fn hop(&self, prefix: &Name, face: FaceId) -> Option<u64> {
        Some(self.entries.get(prefix)?.hops.get(&face)?.cost)
    }

    /// Adds a route, or changes the one with the same prefix, face and origin. A route that is not
    /// to a web page displaces those that are.
    pub fn register(&mut self, prefix: Name, key: RouteKey, route: Route) -> Result<(), RibError> {
        let depth = prefix.len();
        if depth > MAX_DEPTH {
            return Err(RibError::TooDeep(depth));
        }
        self.work = self.limits.work;
        let is_page = self.is_page(key.face);
        if is_page {
            self.check_page(&prefix, key)?;
        }
        let route = self.allowed_route(key.face, route);
        let old = self
            .entries
            .get(&prefix)
            .and_then(|entry| entry.routes.get(&key))
            .copied();
        if old.is_none() {
            self.check_room(key.face, prefix.as_ref().value().len())?;
            self.routes += 1;
            self.octets += prefix.as_ref().value().len();
            let of_face = self.by_face.entry(key.face).or_default();
            of_face.insert(&prefix, key.origin);
            self.pages.added(&prefix, key);
        }
        if !is_page {
            self.displace_for(&prefix, route);
        }
        match route.expires.filter(|at| *at < Time::MAX) {
            Some(at) => self.timers.set((prefix.clone(), key), at),
            None => {
                self.timers.cancel(&(prefix.clone(), key));
            }
        }
        let above = self.heritage_above(&prefix, key.face);
        let is_new_entry = !self.entries.contains_key(&prefix);
        let entry = self.entries.entry(prefix.clone()).or_default();
        let before = (entry.heritage(key.face, above), entry.captures());
        entry.routes.insert(key, route);
        let after = (entry.heritage(key.face, above), entry.captures());
        if is_new_entry {
            self.inherit_all(&prefix);
        }
        self.follow_change(&prefix, key.face, before, after);
        Ok(())
    }

    fn check_room(&self, face: FaceId, octets: usize) -> Result<(), RibError> {
        let limits = &self.limits;
        if self.routes >= limits.routes {
            return Err(RibError::Routes(limits.routes));
        }
        if self.routes_of(face) >= limits.routes_per_face {
            return Err(RibError::Face(face, limits.routes_per_face));
        }
        let held = self.by_face.get(&face).map_or(0, |it| it.octets);
        if held + octets > limits.octets_per_face {
            return Err(RibError::OctetsOfFace(face, limits.octets_per_face));
        }
        if self.octets + octets > limits.octets {
            return Err(RibError::Octets(limits.octets));
        }
        Ok(())
    }

    /// Returns the number of routes of a face.
    pub fn routes_of(&self, face: FaceId) -> usize {
        self.by_face.get(&face).map_or(0, |it| it.routes.len())
    }

    /// Removes a route; returns false if it does not exist.
    pub fn unregister(&mut self, prefix: &Name, key: RouteKey) -> bool {
        self.work = self.limits.work;
        self.remove(prefix, key)
    }

    fn remove(&mut self, prefix: &Name, key: RouteKey) -> bool {
        let above = self.heritage_above(prefix, key.face);
        let Some(entry) = self.entries.get_mut(prefix) else {
            return false;
        };
        let before = (entry.heritage(key.face, above), entry.captures());
        if entry.routes.remove(&key).is_none() {
            return false;
        }
        let after = (entry.heritage(key.face, above), entry.captures());
        if entry.routes.is_empty()
            && let Some(entry) = self.entries.remove(prefix)
        {
            let gone = entry.hops.keys().map(|face| FibUpdate {
                prefix: prefix.clone(),
                face: *face,
                rank: None,
            });
            self.updates.extend(gone);
        }
        self.routes -= 1;
        self.octets -= prefix.as_ref().value().len();
        self.timers.cancel(&(prefix.clone(), key));
        self.pages.removed(prefix, key);
        if let Some(of_face) = self.by_face.get_mut(&key.face) {
            of_face.remove(prefix, key.origin);
            if of_face.routes.is_empty() {
                self.by_face.remove(&key.face);
            }
        }
        self.follow_change(prefix, key.face, before, after);
        true
    }

    /// Removes all routes of a removed face, the first of them at once.
    pub fn remove_face(&mut self, face: FaceId) {
        self.work = self.limits.work;
        self.remove_routes_of(face);
    }

    fn remove_routes_of(&mut self, face: FaceId) {
        while let Some(of_face) = self.by_face.get(&face) {
            let Some((prefix, origin)) = of_face.routes.first().cloned() else {
                break;
            };
            if self.work == 0 {
                self.removed.insert(face);
                return;
            }
            self.work -= 1;
            self.remove(&prefix, RouteKey { face, origin });
        }
        self.removed.remove(&face);
        self.pages.forget(face);
    }

    /// Removes expired routes, and goes on with what earlier changes have left.
    pub fn handle_timeout(&mut self, now: Time) {
        self.work = self.limits.work;
        self.resume = now + PART_INTERVAL;
        while self.work > 0
            && let Some((_, (prefix, key))) = self.timers.pop_due(now)
        {
            self.work -= 1;
            self.remove(&prefix, key);
        }
        while self.work > 0
            && let Some(face) = self.removed.first().copied()
        {
            self.remove_routes_of(face);
        }
        while self.work > 0
            && let Some(((face, root), from)) = self.walks.pop_first()
        {
            self.walk(face, root, from);
        }
    }

    /// When the next route expires; at once, if changes have left something.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        if !self.removed.is_empty() || !self.walks.is_empty() {
            return Some(Deadline::new(self.resume, "next hops follow routes"));
        }
        self.timers
            .next()
            .map(|(at, _)| Deadline::new(at.max(self.resume), "route expires"))
    }

    /// The changes for the FIB since the last call, in the order in which to apply them.
    pub fn take_updates(&mut self) -> Vec<FibUpdate> {
        core::mem::take(&mut self.updates)
    }

    /// Returns the entries at prefixes of `prefix`, shortest first, without its own.
    fn ancestors<'a>(&'a self, prefix: &'a Name) -> impl Iterator<Item = &'a Entry> {
        (0..prefix.len()).filter_map(|count| self.entries.get(&prefix.prefix(count)))
    }

    fn heritage_above(&self, prefix: &Name, face: FaceId) -> Option<u64> {
        self.ancestors(prefix)
            .fold(None, |above, entry| entry.heritage(face, above))
    }

    /// Computes the inherited next hops of a new entry at all faces.
    fn inherit_all(&mut self, prefix: &Name) {
        let faces: BTreeSet<FaceId> = self.ancestors(prefix).flat_map(Entry::faces).collect();
        for face in faces {
            let above = self.heritage_above(prefix, face);
            self.update_hop(prefix, face, above);
        }
    }

    /// Propagates a change of a route to its prefix and those below it, from what the prefix passed
    /// on at the route's face and whether it captured, `before` and `after`.
    fn follow_change(
        &mut self,
        prefix: &Name,
        face: FaceId,
        before: (Option<u64>, bool),
        after: (Option<u64>, bool),
    ) {
        if before == after {
            let above = self.heritage_above(prefix, face);
            return self.update_hop(prefix, face, above);
        }
        let mut faces = BTreeSet::from([face]);
        if before.1 != after.1 {
            faces.extend(self.ancestors(prefix).flat_map(Entry::faces));
            faces.extend(self.entries.get(prefix).into_iter().flat_map(Entry::faces));
        }
        for face in faces {
            self.follow_face(prefix, face);
        }
    }

    fn follow_face(&mut self, prefix: &Name, face: FaceId) {
        self.walks.remove(&(face, prefix.clone()));
        self.walk(face, prefix.clone(), prefix.clone());
    }

    /// Brings the next hops at a face up to date, for the prefixes below `root`, from `from` on. What
    /// there is no work left for is kept for later.
    fn walk(&mut self, face: FaceId, root: Name, from: Name) {
        // Prefixes above the current one, with the cost that each passes on.
        let mut line: Vec<(Name, Option<u64>)> = Vec::new();
        for count in 0..from.len() {
            let name = from.prefix(count);
            if let Some(entry) = self.entries.get(&name) {
                let above = line.last().and_then(|(_, heritage)| *heritage);
                line.push((name, entry.heritage(face, above)));
            }
        }
        let (mut changes, mut rest) = (Vec::new(), None);
        for (name, entry) in self.entries.range(from..) {
            if !root.as_ref().is_prefix_of(name.as_ref()) {
                break;
            }
            if self.work == 0 {
                rest = Some(name.clone());
                break;
            }
            self.work -= 1;
            while line
                .last()
                .is_some_and(|(nearer, _)| !nearer.as_ref().is_prefix_of(name.as_ref()))
            {
                line.pop();
            }
            let above = line.last().and_then(|(_, heritage)| *heritage);
            if entry.hop(face, above) != entry.hops.get(&face).copied() {
                changes.push((name.clone(), above));
            }
            line.push((name.clone(), entry.heritage(face, above)));
        }
        if let Some(rest) = rest {
            self.walks.insert((face, root), rest);
        }
        for (name, above) in changes {
            self.update_hop(&name, face, above);
        }
    }

    /// Updates an entry's next hop at one face.
    fn update_hop(&mut self, prefix: &Name, face: FaceId, above: Option<u64>) {
        let Some(entry) = self.entries.get_mut(prefix) else {
            return;
        };
        let rank = entry.hop(face, above);
        let old = match rank {
            Some(rank) => entry.hops.insert(face, rank),
            None => entry.hops.remove(&face),
        };
        if old != rank {
            self.updates.push(FibUpdate {
                prefix: prefix.clone(),
                face,
                rank,
            });
        }
    }
}
