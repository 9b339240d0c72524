//! Which paths are used, of those that probes have found; and losses by the order of Data on each.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use whimbrel_core::{Deadline, RttOptions, SeededRng, Time};
use whimbrel_ndn_packet::LpHeader;

use super::{Pipeline, Signs};
use crate::application::{FaceNumber, due};
use crate::congestion::{Congestion, ModelOptions, WindowKind, WindowOptions};
use crate::fetch::event::{FetchEvent, PathLeft};
use crate::fetch::options::{FetchOptions, Multipath, Selection};
use crate::ledger::{Entry, Sent};
use crate::path::{Path, PathId, PathOptions, PathTag, Paths};
use crate::rtt::RttSummary;

/// Maximum of known paths; further ones are ignored.
const MAX_KNOWN: usize = 256;
/// Maximum of paths in use.
const MAX_USED: u16 = 64;
/// Probes without an answer at once.
const PROBES: u32 = 8;
/// Beside the name, the time before the first probe.
const FIRST_PROBE: Duration = Duration::from_millis(500);
/// Beside the name, probes that have found one path at most, after which the next one waits for
/// [`SELDOM`] at least: routers that know no tags, or a network with one path, are not asked for ever.
const ENOUGH_PROBES: u32 = 30;
const SELDOM: Duration = Duration::from_secs(2);
/// The first probes follow each other sooner, so that what is found late is not missed for long; routers
/// admit 100 at once.
const EAGER_PROBES: u32 = 20;
const EAGER: Duration = Duration::from_millis(10);
/// The path by name, which rests while another one is in use.
const BY_NAME: PathId = PathId::FIRST;

/// The Data of a path that came from its end, by the order of their Interests.
#[derive(Clone, Copy, Debug, Default)]
struct Latest {
    /// One more than the order of the latest Interest, and of the second latest.
    orders: [u64; 2],
}

/// Losses by the order of Data: "all the previous Data packets are expected to be received"
/// ([PTP §5.C.1]).
pub(super) struct Order {
    /// Data of later Interests after which one is lost.
    lost_after: Option<usize>,
    /// By path.
    latest: Vec<Latest>,
}

impl Order {
    pub(super) fn new(lost_after: Option<u8>) -> Order {
        Order {
            lost_after: lost_after.map(|data| usize::from(data).clamp(1, 2)),
            latest: Vec::new(),
        }
    }

    /// Takes in a Data that came from the end of a path.
    fn arrived(&mut self, path: PathId, order: u64) {
        if self.lost_after.is_none() {
            return;
        }
        if self.latest.len() <= path.index() {
            self.latest.resize(path.index() + 1, Latest::default());
        }
        let Some(Latest {
            orders: [first, second],
        }) = self.latest.get_mut(path.index())
        else {
            return;
        };
        let order = order + 1;
        if order > *first {
            (*first, *second) = (order, *first);
        } else if order > *second && order != *first {
            *second = order;
        }
    }

    /// Returns true if as many later Interests as it takes were answered before one of this order.
    fn has_overtaken(&self, path: PathId, order: u64) -> bool {
        let latest = self.latest.get(path.index());
        let bound = match (self.lost_after, latest) {
            (Some(1), Some(latest)) => latest.orders[0],
            (Some(_), Some(latest)) => latest.orders[1],
            _ => 0,
        };
        order + 1 < bound
    }

    fn forget(&mut self, path: PathId) {
        if let Some(latest) = self.latest.get_mut(path.index()) {
            *latest = Latest::default();
        }
    }
}

/// The paths of a consumer drain their queues together, and those of different consumers do not.
fn own_drains(kind: WindowKind, rng: &mut SeededRng) -> WindowKind {
    match kind {
        WindowKind::Model(options) => WindowKind::Model(ModelOptions {
            drains_at: Duration::from_millis(rng.below(10_000)),
            ..options
        }),
        kind => kind,
    }
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// In use.
    path: Option<PathId>,
    /// Round trips of probes.
    rtt: RttSummary,
    /// Mean deviation of these from their mean, in seconds.
    variation: f64,
    /// It was left at this time.
    left_at: Time,
    /// It failed: it is not used before this time, unless a later probe comes back over it.
    avoided_until: Time,
    /// The latest probe that took it.
    last: Time,
}

/// The choice of paths.
pub(super) struct Chooser {
    options: Multipath,
    window: WindowOptions,
    rto: RttOptions,
    once_per_window: bool,
    face: FaceNumber,
    prober: PathId,
    next_probe: Time,
    next_review: Time,
    known: BTreeMap<PathTag, Known>,
    /// Probes sent.
    probes: u32,
    /// A path was in use once.
    has_used: bool,
    /// Before the first review.
    is_first_choice: bool,
    /// Octets of each path at the last review.
    reviewed: BTreeMap<PathId, u64>,
    rng: SeededRng,
}

impl Chooser {
    pub(super) fn new(
        multipath: Multipath,
        options: &FetchOptions,
        paths: &mut Paths,
        now: Time,
    ) -> Chooser {
        let face = options.paths.first().map_or(FaceNumber::FIRST, |p| p.face);
        let prober = PathId(paths.len() as u16);
        let mut rng = SeededRng::stream(options.path_seed, "paths");
        let header = LpHeader {
            path_discovery: true,
            ..LpHeader::default()
        };
        let law = WindowOptions {
            kind: WindowKind::Fixed(PROBES),
            ..options.window
        };
        let probes = PathOptions { face, header };
        paths.put(Path::new(prober, probes, law.law(now), options.rto, true).probing());
        Chooser {
            options: Multipath {
                most: multipath.most.clamp(1, MAX_USED),
                probing: multipath.probing.max(Duration::from_millis(1)),
                review: multipath.review.max(Duration::from_millis(1)),
                ..multipath
            },
            window: WindowOptions {
                kind: own_drains(multipath.law.unwrap_or(options.window.kind), &mut rng),
                ..options.window
            },
            rto: options.rto,
            once_per_window: options.once_per_round_trip,
            face,
            prober,
            next_probe: match multipath.beside_name {
                true => now + FIRST_PROBE,
                false => now,
            },
            next_review: now + multipath.review,
            known: BTreeMap::new(),
            probes: 0,
            has_used: false,
            is_first_choice: true,
            reviewed: BTreeMap::new(),
            rng,
        }
    }

    /// Takes in the path of a probe sent at `sent`. Returns the tag if it may be used at once.
    fn learn(
        &mut self,
        now: Time,
        octets: &[u8],
        sent: Time,
        rtt: Option<Duration>,
    ) -> Option<PathTag> {
        let tag = PathTag::new(octets.to_vec())?;
        if !self.known.contains_key(&tag) && self.known.len() >= MAX_KNOWN {
            self.forget_oldest();
        }
        let known = self.known.entry(tag.clone()).or_default();
        known.last = now;
        if sent > known.left_at {
            known.avoided_until = now.min(known.avoided_until);
        }
        if let Some(rtt) = rtt {
            known.rtt.add(rtt);
            let mean = known.rtt.range().map_or(rtt, |(_, mean, _)| mean);
            let apart = (rtt.as_secs_f64() - mean.as_secs_f64()).abs();
            known.variation += (apart - known.variation) / 4.0;
        }
        (known.path.is_none() && known.avoided_until <= now).then_some(tag)
    }

    /// Makes room: labels change when routers restart, and a producer may invent tags.
    fn forget_oldest(&mut self) {
        let unused = self.known.iter().filter(|(_, known)| known.path.is_none());
        let oldest = unused.min_by_key(|(_, known)| known.last);
        if let Some(tag) = oldest.map(|(tag, _)| tag.clone()) {
            self.known.remove(&tag);
        }
    }

    fn used(&self) -> usize {
        self.known
            .values()
            .filter(|known| known.path.is_some())
            .count()
    }

    /// Paths that are known, work, and are not in use.
    fn unused(&self, now: Time) -> Vec<PathTag> {
        let free = self.known.iter();
        free.filter(|(_, known)| known.path.is_none() && known.avoided_until <= now)
            .map(|(tag, _)| tag.clone())
            .collect()
    }

    /// Returns a cost by which known paths compare, where the choice is by what probes measure.
    fn cost(&self, tag: &PathTag) -> Option<f64> {
        let known = self.known.get(tag)?;
        let mean = known.rtt.range().map(|(_, mean, _)| mean.as_secs_f64());
        match self.options.select {
            Selection::Bandwidth | Selection::Random => None,
            Selection::Hops => Some(tag.hops() as f64),
            Selection::Latency => mean,
            Selection::Steadiness => mean.map(|_| known.variation),
            Selection::Hybrid => mean.map(|mean| mean + known.variation),
        }
    }

    /// A path in use whose place `newcomer` takes so that more links are in use: the longest one of those
    /// whose links all have another path. A longer path counts for nothing: one that winds through
    /// half of a mesh has many links, and carries no more than the worst of them. `None` if the
    /// newcomer adds no link, or each path does.
    fn dispensable(&self, newcomer: &PathTag) -> Option<PathId> {
        let used: Vec<(&PathTag, PathId)> = self
            .known
            .iter()
            .filter_map(|(tag, known)| Some((tag, known.path?)))
            .collect();
        let serves = |other: &PathTag, tag: &PathTag, link: u64| {
            other.hops() <= tag.hops() && other.labels().any(|label| label == link)
        };
        let has_another = |tag: &PathTag, link: u64| {
            let mut others = used.iter().filter(|(other, _)| *other != tag);
            others.any(|(other, _)| serves(other, tag, link))
        };
        if newcomer.labels().all(|link| has_another(newcomer, link)) {
            return None;
        }
        let is_spare = |tag: &PathTag| {
            let mut links = tag.labels();
            links.all(|link| has_another(tag, link) || serves(newcomer, tag, link))
        };
        used.iter()
            .filter(|(tag, _)| is_spare(tag))
            .max_by_key(|(tag, _)| tag.hops())
            .map(|(_, id)| *id)
    }

    /// Of these paths, one with a link that no path in use has, but for one that is left: more paths
    /// over the links in use would add nothing. Of several, the one left longest ago or never used,
    /// so that all have their turn, then the shortest, which takes the least from others.
    fn most_apart(&mut self, free: &[PathTag], leaves: Option<PathId>) -> Option<PathTag> {
        let used = self.known.iter().filter(|(_, known)| {
            let path = known.path;
            path.is_some() && path != leaves
        });
        let links: BTreeSet<u64> = used.flat_map(|(tag, _)| tag.labels()).collect();
        let rank = |tag: &PathTag| {
            let adds = tag.labels().any(|link| !links.contains(&link));
            let left_at = self.known.get(tag).map(|known| known.left_at);
            (adds, Reverse(left_at), Reverse(tag.hops()))
        };
        let first = free.iter().map(rank).max()?;
        let best: Vec<&PathTag> = free.iter().filter(|tag| rank(tag) == first).collect();
        let at = self.rng.below(best.len() as u64) as usize;
        best.get(at).copied().cloned()
    }

    /// The path to leave and the one to take instead, if any.
    fn exchange(&mut self, now: Time, paths: &Paths) -> Option<(PathId, PathTag)> {
        let free = self.unused(now);
        let used: Vec<(PathTag, PathId)> = self
            .known
            .iter()
            .filter_map(|(tag, known)| Some((tag.clone(), known.path?)))
            .collect();
        if free.is_empty() || used.len() < usize::from(self.options.most) {
            return None;
        }
        match self.options.select {
            Selection::Bandwidth | Selection::Random => {
                let gained = |id: &PathId| {
                    let bytes = paths.get(*id).map_or(0, |path| path.stats().bytes);
                    bytes - self.reviewed.get(id).copied().unwrap_or(0).min(bytes)
                };
                let leaves = match self.options.select {
                    Selection::Bandwidth => {
                        let least = used.iter().map(|(_, id)| *id).min_by_key(gained)?;
                        // A path that came in this interval has not had its time yet; that another
                        // one leaves in its stead would drive the good ones out, one by one.
                        Some(least).filter(|id| self.reviewed.contains_key(id))?
                    }
                    _ => used[self.rng.below(used.len() as u64) as usize].1,
                };
                let comes = match self.options.select {
                    Selection::Bandwidth => self.most_apart(&free, Some(leaves))?,
                    _ => free[self.rng.below(free.len() as u64) as usize].clone(),
                };
                Some((leaves, comes))
            }
            _ => {
                let costs = |tag: &PathTag| self.cost(tag).unwrap_or(f64::INFINITY);
                let worst = used
                    .iter()
                    .max_by(|a, b| costs(&a.0).total_cmp(&costs(&b.0)))?;
                let best = free.iter().min_by(|a, b| costs(a).total_cmp(&costs(b)))?;
                (costs(best) < costs(&worst.0)).then(|| (worst.1, best.clone()))
            }
        }
    }
}

impl Pipeline {
    /// Takes in the order of a Data, which shows that earlier Interests on its path are lost; repeated ones
    /// count as of their repetition, so that a lost repetition is found like any other loss. Data of caches
    /// and those that may answer an earlier transmission say nothing about the order, nor do probes
    /// and Interests by name, each of which may take another way.
    pub(super) fn take_order(
        &mut self,
        now: Time,
        entry: &Entry<()>,
        signs: &Signs<'_>,
        events: &mut VecDeque<FetchEvent>,
    ) {
        let sent = &entry.sent;
        let shows_order = |path: &Path| path.is_tagged() && path.answers_latest(now, sent);
        if signs.intermediate || !self.paths.get(sent.path).is_some_and(shows_order) {
            return;
        }
        self.order.arrived(sent.path, sent.order);
        self.lose_overtaken(now, sent.path, events);
    }

    /// Declares Interests of a path lost that later ones have overtaken, once a link would have
    /// recovered them.
    pub(super) fn lose_overtaken(
        &mut self,
        now: Time,
        path: PathId,
        events: &mut VecDeque<FetchEvent>,
    ) {
        let mut highest = None;
        while let Some((number, sent)) = self.pending.oldest(path)
            && let Some(due) = self.overtaken_due(path, sent)
        {
            let number = *number;
            if due > now {
                self.paths
                    .with(path, |path, states| path.on_overtaken(now, number, states));
                break;
            }
            // No retry: the path answers, and a queue may lose the same segment many times in a second.
            self.pending.lose(&number, false);
            self.paths.on_removed(path, true);
            highest = highest.max(Some(number));
        }
        if let Some(highest) = highest {
            self.record_loss(now, path, highest, Congestion::Loss, events);
        }
    }

    /// When an Interest in flight is lost that later ones on its path have overtaken; `None` if none
    /// has.
    pub(super) fn overtaken_due(&self, path: PathId, sent: &Sent) -> Option<Time> {
        if !self.order.has_overtaken(path, sent.order) {
            return None;
        }
        let path = self.paths.get(path)?;
        Some(sent.at + path.overtaken_patience())
    }

    /// Takes in the path of a Data that answers a probe.
    pub(super) fn learn_path(
        &mut self,
        now: Time,
        entry: &Entry<()>,
        signs: &Signs<'_>,
        events: &mut VecDeque<FetchEvent>,
    ) {
        let Some(chooser) = &mut self.chooser else {
            return;
        };
        let Some(octets) = signs.tag.filter(|_| entry.sent.path == chooser.prober) else {
            return;
        };
        let rtt = (entry.sent.transmissions == 1 && !signs.intermediate)
            .then(|| now.since(entry.sent.at));
        let found = chooser.learn(now, octets, entry.sent.at, rtt);
        if chooser.options.beside_name {
            self.use_beside_name(now, events);
        } else if chooser.used() < usize::from(chooser.options.most)
            && let Some(tag) = &found
        {
            let id = chooser.vacant(&self.paths);
            return self.use_path(now, id, tag.clone(), events);
        }
        if let Some(tag) = found {
            self.widen(now, tag, events);
        }
    }

    /// The first choice takes paths in the order in which probes find them. Until the first review, a
    /// later one with a link that no path as short has takes the place of one that adds none: otherwise
    /// that link would be idle until an exchange brings it in.
    fn widen(&mut self, now: Time, tag: PathTag, events: &mut VecDeque<FetchEvent>) {
        let Some(chooser) = &self.chooser else {
            return;
        };
        let is_used = |known: &Known| known.path.is_some();
        let chooses = chooser.is_first_choice && chooser.options.select == Selection::Bandwidth;
        if !chooses || chooser.known.get(&tag).is_none_or(is_used) {
            return;
        }
        if let Some(leaves) = chooser.dispensable(&tag) {
            self.replace_path(now, leaves, tag, events);
        }
    }

    fn replace_path(
        &mut self,
        now: Time,
        leaves: PathId,
        comes: PathTag,
        events: &mut VecDeque<FetchEvent>,
    ) {
        self.leave_path(now, leaves, PathLeft::Replaced, now, events);
        if let Some(id) = self.chooser.as_ref().map(|it| it.vacant(&self.paths)) {
            self.use_path(now, id, comes, events);
        }
    }

    /// Uses all known paths, if there are several: the only one there is, is that of the name.
    fn use_beside_name(&mut self, now: Time, events: &mut VecDeque<FetchEvent>) {
        while let Some(chooser) = &self.chooser
            && chooser.known.len() > 1
            && chooser.used() < usize::from(chooser.options.most)
            && let Some(tag) = chooser.unused(now).into_iter().next()
        {
            let id = chooser.vacant(&self.paths);
            self.use_path(now, id, tag, events);
        }
    }

    fn use_path(&mut self, now: Time, id: PathId, tag: PathTag, events: &mut VecDeque<FetchEvent>) {
        let Some(chooser) = &mut self.chooser else {
            return;
        };
        let options = PathOptions::tagged(chooser.face, &tag);
        let law = chooser.window.law(now);
        let mut path = Path::new(id, options, law, chooser.rto, chooser.once_per_window);
        path.set_up(true);
        if self.paths.put(path).is_none() {
            return;
        }
        chooser.has_used = true;
        if let Some(known) = chooser.known.get_mut(&tag) {
            known.path = Some(id);
        }
        chooser.reviewed.remove(&id);
        self.order.forget(id);
        events.push_back(FetchEvent::PathUsed { path: id, tag });
        self.rest_by_name();
    }

    /// Stops using a path; its Interests go to others.
    fn leave_path(
        &mut self,
        now: Time,
        id: PathId,
        reason: PathLeft,
        avoided_until: Time,
        events: &mut VecDeque<FetchEvent>,
    ) {
        // What is on its way over a path that works still arrives.
        while reason == PathLeft::Failed
            && let Some(number) = self.pending.oldest(id).map(|(number, _)| *number)
        {
            self.lose(number, false);
        }
        let left = self.paths.with(id, |path, _| {
            path.set_resting(true);
            *path.stats()
        });
        let Some(chooser) = &mut self.chooser else {
            return;
        };
        let user = chooser
            .known
            .iter_mut()
            .find(|(_, known)| known.path == Some(id));
        if let (Some((tag, known)), Some(stats)) = (user, left) {
            (known.path, known.left_at) = (None, now);
            known.avoided_until = avoided_until;
            events.push_back(FetchEvent::PathLeft {
                tag: tag.clone(),
                stats,
                reason,
            });
        }
        self.rest_by_name();
    }

    /// Interests go by name only while no path is in use, unless paths are used beside the name.
    fn rest_by_name(&mut self) {
        let chooser = self.chooser.as_ref();
        let chooser = chooser.filter(|chooser| !chooser.options.beside_name);
        let Some(used) = chooser.map(Chooser::used) else {
            return;
        };
        self.paths
            .with(BY_NAME, |path, _| path.set_resting(used > 0));
    }

    /// Returns true if a path was in use, beside the name's or in its place.
    pub(super) fn has_used_paths(&self) -> bool {
        let chooser = self.chooser.as_ref();
        chooser.is_some_and(|chooser| chooser.has_used || !chooser.options.beside_name)
    }

    /// Returns true if the path was found by a probe: without it there is another one, by name at
    /// least.
    pub(super) fn is_chosen(&self, path: PathId) -> bool {
        let chooser = self.chooser.as_ref();
        chooser.is_some_and(|chooser| path.index() >= chooser.prober.index())
    }

    /// Leaves failing paths at once, and exchanges one in each interval.
    pub(super) fn review_paths(&mut self, now: Time, events: &mut VecDeque<FetchEvent>) {
        let Some(chooser) = &self.chooser else {
            return;
        };
        let review = chooser.options.review;
        let used = chooser.known.values().filter_map(|known| known.path);
        let failing: Vec<PathId> = used
            .filter(|id| self.paths.get(*id).is_some_and(Path::is_failing))
            .collect();
        for id in failing {
            self.leave_path(now, id, PathLeft::Failed, now + review, events);
            self.fill(now, id, events);
        }
        let Some(chooser) = self.chooser.as_mut().filter(|it| it.next_review <= now) else {
            return;
        };
        chooser.next_review = now + review;
        chooser.is_first_choice = false;
        let exchange = chooser.exchange(now, &self.paths);
        let bytes = |path: &Path| (path.id(), path.stats().bytes);
        chooser.reviewed = self.paths.iter().map(bytes).collect();
        if let Some((leaves, comes)) = exchange {
            self.replace_path(now, leaves, comes, events);
        }
    }

    /// Uses a known path in place of one that was left.
    fn fill(&mut self, now: Time, id: PathId, events: &mut VecDeque<FetchEvent>) {
        let Some(chooser) = &mut self.chooser else {
            return;
        };
        let free = chooser.unused(now);
        if let Some(tag) = chooser.most_apart(&free, None) {
            self.use_path(now, id, tag, events);
        }
    }

    /// Returns the path for a probe, if one is due on this face.
    pub(super) fn due_probe(&self, now: Time, face: FaceNumber) -> Option<PathId> {
        let chooser = self.chooser.as_ref()?;
        let prober = self.paths.get(chooser.prober)?;
        let is_due = chooser.next_probe <= now && prober.face() == face && prober.has_room();
        is_due.then_some(chooser.prober)
    }

    pub(super) fn probed(&mut self, now: Time) {
        if let Some(chooser) = &mut self.chooser {
            chooser.probes = chooser.probes.saturating_add(1);
            let is_alone = chooser.options.beside_name && chooser.known.len() < 2;
            let interval = match chooser.probes {
                sent if sent < EAGER_PROBES => chooser.options.probing.min(EAGER),
                sent if is_alone && sent >= ENOUGH_PROBES => chooser.options.probing.max(SELDOM),
                _ => chooser.options.probing,
            };
            chooser.next_probe = now + interval;
        }
    }

    /// When paths are reviewed, or a probe is due.
    pub(super) fn poll_review(&self) -> Option<Deadline> {
        let chooser = self.chooser.as_ref()?;
        let review = Deadline::new(chooser.next_review, "paths are reviewed");
        let room =
            self.may_send_next() && self.paths.get(chooser.prober).is_some_and(Path::has_room);
        let probe = due(chooser.next_probe, self.seen, "a probe of paths is due");
        Deadline::earlier(Some(review), probe.filter(|_| room))
    }
}

impl Chooser {
    /// Returns a place for one more path: a left one's, or a new one.
    fn vacant(&self, paths: &Paths) -> PathId {
        let taken: Vec<PathId> = self.known.values().filter_map(|known| known.path).collect();
        let first = self.prober.index() + 1;
        let free = (first..paths.len()).map(|id| PathId(id as u16));
        let is_drained = |id: &PathId| paths.get(*id).is_some_and(|path| path.in_flight() == 0);
        free.into_iter()
            .find(|id| !taken.contains(id) && is_drained(id))
            .unwrap_or(PathId(paths.len() as u16))
    }
}

#[cfg(test)]
mod tests;
