//! The routing of one router: its database, its neighbours, and the ways that follow from both.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;
use whimbrel_core::{Deadline, Guid, KeyPair, Limit, Meter, Time, WallClock};

use crate::announcement::{Announcement, Edition, Link, MAX_LINKS};
use crate::contacts::ContactPlan;
use crate::cost::{Cost, LinkSample};
use crate::database::{AnnouncementVerdict, Database};
use crate::graph::{LinkGraph, Metric, Reach};
use crate::known_contacts::KnownContacts;
use crate::message::Message;
use crate::neighbour::Neighbour;
use crate::next_hops::{LearnedNextHops, Way};

/// How long an announcement counts without a newer one: parts of a network that meet once in a while know of each
/// other for so long.
const LEASE: Duration = Duration::from_secs(3600);
/// How often it is renewed, for routers that start.
const RENEWAL: Duration = Duration::from_secs(200);
/// How often periodic work is looked for. The driver measures the links as often.
const TICK: Duration = Duration::from_millis(500);
/// A neighbour is told of the state of the database at this interval, ...
const HEARTBEAT: Duration = Duration::from_secs(5);
/// ... and this time after a change.
const AFTER_CHANGE: Duration = Duration::from_millis(500);
/// Databases that differ for this long are compared: what is being flooded has come by then.
const COMPARED_AFTER: Duration = Duration::from_secs(1);
/// Ways are computed this time after the first change of several, ...
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// ... later while changes continue.
const MAX_DELAY: Duration = Duration::from_millis(320);
/// After this time without a change the first delay counts again.
const QUIET: Duration = Duration::from_secs(2);
/// Announcements of this router's own links.
const OWN: Limit = Limit {
    at_once: 16,
    per_second: 2,
};
/// Announcements in an answer to a list; the next list brings the rest.
const MAX_ANSWER: usize = 256;
/// Answers to a list, or questions, to one neighbour are this far apart.
const LIST_INTERVAL: Duration = Duration::from_millis(400);

/// Why a message is dropped, as a counter's name.
pub type Dropped = &'static str;

/// What the cost of a link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMetric {
    /// The expected time of a chunk, as measured.
    #[default]
    Time,
    /// The same for every link that is up, as in OLSR [RFC 3626]: ways have the fewest hops.
    Hops,
}

/// A neighbour carries data towards a destination that is out of reach if its usual distance is below this many
/// tenths of this router's: less would send data to and fro while the shares of time change.
const CLOSER_TENTHS: u64 = 8;

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoutingCounters {
    /// Announcements of this router.
    pub originated: u64,
    /// New announcements of other routers.
    pub accepted: u64,
    /// Announcements passed on, one for each neighbour.
    pub flooded: u64,
    /// Times that the shortest paths were computed.
    pub computed: u64,
    /// Messages to neighbours.
    pub messages_sent: u64,
}

/// A router as the database has it.
#[derive(Clone, Debug, Serialize)]
pub struct KnownRouter {
    /// Its name.
    pub router: Guid,
    /// The number of its announcement.
    pub sequence: u64,
    /// Its neighbours with the cost of the links, in microseconds; none while a link is down.
    pub links: Vec<(Guid, Option<u32>)>,
    /// The cost of the shortest path, in microseconds; none if it is out of reach.
    pub cost_us: Option<u32>,
    /// The usual cost, with the share of time that links are down.
    pub usual_us: Option<u32>,
    /// The next hops, best first.
    pub ways: Vec<WayStatus>,
}

/// A neighbour as a way to a router.
#[derive(Clone, Debug, Serialize)]
pub struct WayStatus {
    /// The neighbour.
    pub neighbour: Guid,
    /// The cost of the way by it, in microseconds; none if the database has no path by it.
    pub cost_us: Option<u32>,
    /// The distance that the neighbour tells, in microseconds.
    pub told_us: Option<u32>,
    /// Why it is used or not.
    pub why: &'static str,
}

/// The routing of one router. Owns no port: messages go to neighbours by their names.
#[derive(Debug)]
pub struct Routing {
    keys: KeyPair,
    own: Guid,
    sequence: u64,
    announced: Vec<Link>,
    renew_at: Time,
    originations: Meter,
    database: Database,
    neighbours: BTreeMap<Guid, Neighbour>,
    // This router's distances, as it tells them.
    distances: Arc<Reach>,
    usual: Reach,
    next_hops: LearnedNextHops,
    contacts: Option<KnownContacts>,
    metric: LinkMetric,
    outgoing: VecDeque<(Guid, Message)>,
    tick_at: Time,
    compute_at: Option<Time>,
    delay: Duration,
    changed_at: Time,
    has_changed: bool,
    counters: RoutingCounters,
}

impl Routing {
    /// Returns the routing of the router with these keys, without neighbours.
    pub fn new(now: Time, keys: KeyPair) -> Routing {
        let own = keys.guid();
        let mut routing = Routing {
            keys,
            own,
            sequence: 0,
            announced: Vec::new(),
            renew_at: now,
            originations: Meter::default(),
            database: Database::new(own),
            neighbours: BTreeMap::new(),
            distances: Arc::default(),
            usual: Reach::new(),
            next_hops: LearnedNextHops::default(),
            contacts: None,
            metric: LinkMetric::default(),
            outgoing: VecDeque::new(),
            tick_at: now + TICK,
            compute_at: None,
            delay: FIRST_DELAY,
            changed_at: now,
            has_changed: false,
            counters: RoutingCounters::default(),
        };
        routing.originate(now);
        routing
    }

    /// Returns what the cost of a link is.
    pub fn metric(&self) -> LinkMetric {
        self.metric
    }

    /// The costs of links follow from this.
    #[must_use]
    pub fn with_metric(self, metric: LinkMetric) -> Routing {
        Routing { metric, ..self }
    }

    /// Contacts are known beforehand. Data for which the next contact is better than the way of the moment
    /// waits for that.
    pub fn set_contacts(&mut self, now: Time, plan: ContactPlan, wall: WallClock) {
        self.contacts = Some(KnownContacts::new(now, plan, wall));
        self.review_contacts(now);
    }

    /// The wall clock by which known contacts start and end was set.
    pub fn set_wall_clock(&mut self, now: Time, wall: WallClock) {
        if let Some(known) = &mut self.contacts {
            known.set_wall_clock(now, wall);
            self.review_contacts(now);
        }
    }

    /// Finds the ways over known contacts if one has started or ended.
    fn review_contacts(&mut self, now: Time) {
        let known = self.contacts.as_mut();
        if known.is_some_and(|known| known.review(now, &self.own)) {
            self.find_ways(now);
        }
    }

    /// A neighbour is up; `is_new_run`: for the first time, or after it lost what it knew.
    pub fn handle_up(&mut self, now: Time, name: Guid, is_new_run: bool) {
        if !self.neighbours.contains_key(&name) {
            if self.neighbours.len() >= MAX_LINKS || name == self.own {
                return;
            }
            self.neighbours.insert(name, Neighbour::new(now));
        }
        let Some(neighbour) = self.neighbours.get_mut(&name) else {
            return;
        };
        let was_up = core::mem::replace(&mut neighbour.up, true);
        if is_new_run {
            if was_up {
                neighbour.link.note_failure(now);
            }
            neighbour.restart(now);
        } else if was_up {
            return;
        }
        neighbour.state_at = now;
        self.send(name, Message::List(self.database.list()));
        self.update_links(now);
        // It may act on distances that it holds from before.
        self.find_ways(now);
    }

    /// A neighbour does not respond any more. What it may hold of this router's distances is
    /// remembered: it may come back without having noticed.
    pub fn handle_down(&mut self, now: Time, name: &Guid) {
        let Some(neighbour) = self.neighbours.get_mut(name).filter(|it| it.up) else {
            return;
        };
        neighbour.up = false;
        neighbour.link.note_failure(now);
        self.update_links(now);
        self.find_ways(now);
    }

    /// Takes a measurement of the link to a neighbour.
    pub fn note_link(&mut self, now: Time, name: &Guid, sample: &LinkSample) {
        if self.metric == LinkMetric::Hops {
            return;
        }
        let nearby = self.nearby_rate();
        if let Some(neighbour) = self.neighbours.get_mut(name).filter(|it| it.up)
            && neighbour.link.note(now, sample, nearby)
        {
            self.update_links(now);
        }
    }

    /// Returns the median of the rates that are measured on this router's links, in bytes per second.
    fn nearby_rate(&self) -> Option<u64> {
        let up = self.neighbours.values().filter(|it| it.up);
        let mut rates: Vec<u64> = up.filter_map(|it| it.link.rate()).collect();
        rates.sort_unstable();
        rates.get(rates.len() / 2).copied()
    }

    /// Returns the neighbours that are up.
    pub fn neighbours(&self) -> impl Iterator<Item = &Guid> {
        self.neighbours
            .iter()
            .filter(|(_, it)| it.up)
            .map(|(name, _)| name)
    }

    /// Handles a message of a neighbour that has proven its name.
    pub fn handle_message(
        &mut self,
        now: Time,
        from: Guid,
        message: Message,
    ) -> Result<(), Dropped> {
        let Some(neighbour) = self.neighbours.get_mut(&from).filter(|it| it.up) else {
            return Err("routing-stranger");
        };
        if !core::mem::replace(&mut neighbour.talks, true) {
            self.update_links(now);
            self.change(now);
        }
        match message {
            Message::Announce { left, announcement } => {
                return self.handle_announcement(now, from, announcement, left);
            }
            Message::List(list) => self.handle_list(now, from, &list),
            Message::Distances(distances) => {
                if let Some(neighbour) = self.neighbours.get_mut(&from) {
                    neighbour.handle_distances(distances);
                    let state = neighbour.state(self.database.digest());
                    self.send(from, Message::State(state));
                }
                self.find_ways(now);
            }
            Message::State(state) => {
                if let Some(neighbour) = self.neighbours.get_mut(&from) {
                    neighbour.handle_state(&state);
                    neighbour.differs_since = match state.digest == self.database.digest() {
                        true => None,
                        false => neighbour.differs_since.or(Some(now)),
                    };
                }
                self.tell_distances(now);
            }
        }
        Ok(())
    }

    fn handle_announcement(
        &mut self,
        now: Time,
        from: Guid,
        announcement: Announcement,
        left: Duration,
    ) -> Result<(), Dropped> {
        let (origin, sequence) = (announcement.origin(), announcement.sequence());
        match self.database.offer(now, from, announcement, left) {
            AnnouncementVerdict::New => {
                self.counters.accepted += 1;
                self.flood(now, origin, Some(from));
                self.change(now);
            }
            AnnouncementVerdict::Known => {}
            AnnouncementVerdict::Older => self.send_announcement(now, from, &origin),
            AnnouncementVerdict::Own => {
                self.sequence = self.sequence.max(sequence);
                self.originate(now);
            }
            AnnouncementVerdict::Refused(why) => return Err(why),
        }
        Ok(())
    }

    /// Sends a neighbour what its list lacks, and asks for what is lacking here.
    fn handle_list(&mut self, now: Time, from: Guid, list: &[(Guid, Edition)]) {
        let (newer, lacks) = self.database.compare(list);
        for name in newer.iter().take(MAX_ANSWER) {
            self.send_announcement(now, from, name);
        }
        if lacks {
            self.ask(now, from);
        }
    }

    fn ask(&mut self, now: Time, name: Guid) {
        if let Some(neighbour) = self.neighbours.get_mut(&name)
            && neighbour
                .listed_at
                .is_none_or(|at| now.since(at) >= LIST_INTERVAL)
        {
            neighbour.listed_at = Some(now);
            self.send(name, Message::List(self.database.list()));
        }
    }

    fn send(&mut self, to: Guid, message: Message) {
        self.counters.messages_sent += 1;
        self.outgoing.push_back((to, message));
    }

    fn send_announcement(&mut self, now: Time, to: Guid, origin: &Guid) {
        let left = self.database.left(now, origin);
        if let Some(announcement) = self.database.get(origin).cloned()
            && left > Duration::from_millis(1)
        {
            self.send(to, Message::Announce { left, announcement });
        }
    }

    /// Sends a router's announcement to all neighbours but the one that it came from.
    fn flood(&mut self, now: Time, origin: Guid, from: Option<Guid>) {
        let talking = self.neighbours.iter().filter(|(_, it)| it.counts());
        let others = talking
            .map(|(name, _)| *name)
            .filter(|name| Some(*name) != from);
        for name in others.collect::<Vec<_>>() {
            self.counters.flooded += 1;
            self.send_announcement(now, name, &origin);
        }
    }

    /// Announces this router's links if they have changed.
    fn update_links(&mut self, now: Time) {
        let links = self.own_links(now);
        if links != self.announced && self.originations.admits(now, OWN) {
            self.announced = links;
            self.originate(now);
        }
    }

    fn own_links(&mut self, now: Time) -> Vec<Link> {
        let links = self.neighbours.iter_mut().map(|(name, neighbour)| Link {
            to: *name,
            cost: match neighbour.is_usable(now) {
                true => neighbour.link.announced(),
                false => Cost::NEVER,
            },
            usual: neighbour.link.usual(),
        });
        let counts = |link: &Link| link.cost.is_finite() || link.usual.is_finite();
        links.filter(counts).collect()
    }

    fn originate(&mut self, now: Time) {
        self.sequence = self.sequence.saturating_add(1);
        let links = self.announced.clone();
        let announcement = Announcement::sign(&self.keys, self.sequence, LEASE, links);
        self.database.put_own(now, announcement);
        self.renew_at = now + RENEWAL;
        self.counters.originated += 1;
        self.flood(now, self.own, None);
        self.change(now);
    }

    /// The database has changed: the ways are computed soon, together for several changes.
    fn change(&mut self, now: Time) {
        if now.since(self.changed_at) >= QUIET {
            self.delay = FIRST_DELAY;
        }
        self.changed_at = now;
        for neighbour in self.neighbours.values_mut() {
            neighbour.state_at = neighbour.state_at.min(now + AFTER_CHANGE);
        }
        if self.compute_at.is_none() {
            self.compute_at = Some(now + self.delay);
            self.delay = (self.delay * 2).min(MAX_DELAY);
        }
    }

    /// Computes the shortest paths, and tells the neighbours.
    fn compute(&mut self, now: Time) {
        self.compute_at = None;
        self.counters.computed += 1;
        let graph = LinkGraph::of(&self.database, Metric::Now);
        self.distances = Arc::new(graph.distances(&self.own));
        for (name, neighbour) in &mut self.neighbours {
            neighbour.computed = match neighbour.counts() {
                true => graph.distances(name),
                false => Reach::new(),
            };
        }
        let usual = LinkGraph::of(&self.database, Metric::Usual);
        self.usual = usual.distances(&self.own);
        let is_parted = self.usual.len() > self.distances.len();
        for (name, neighbour) in &mut self.neighbours {
            neighbour.usual = match is_parted && neighbour.counts() {
                true => usual.distances(name),
                false => Reach::new(),
            };
        }
        self.tell_distances(now);
    }

    fn tell_distances(&mut self, now: Time) {
        let own = Arc::clone(&self.distances);
        let neighbours = self.neighbours.iter_mut();
        let next = neighbours.filter_map(|(name, it)| Some((*name, it.next_distances(now, &own)?)));
        for (name, distances) in next.collect::<Vec<_>>() {
            self.send(name, Message::Distances(distances));
        }
        // What was told bounds what a neighbour's distance may be.
        self.find_ways(now);
    }

    /// Returns the bound below which a neighbour's distance must be: the smallest distance of this
    /// router that a neighbour may hold.
    fn bound(&self, destination: &Guid) -> Cost {
        let holders = self.neighbours.values().filter(|it| it.counts());
        let held = holders.map(|it| it.may_hold(destination));
        held.min().unwrap_or(Cost::NEVER)
    }

    /// Finds the next hops of all destinations.
    fn find_ways(&mut self, now: Time) {
        let mut ways: BTreeMap<Guid, Vec<Way>> = BTreeMap::new();
        let usable = || self.neighbours.iter().filter(|(_, it)| it.is_usable(now));
        for destination in self.distances.keys().filter(|it| **it != self.own) {
            let bound = self.bound(destination);
            let feasible = usable().filter_map(|(name, neighbour)| {
                let told = *neighbour.told.get(destination)?;
                let further = *neighbour.computed.get(destination)?;
                (told < bound).then(|| Way {
                    neighbour: *name,
                    cost: neighbour.link.announced().plus(further),
                })
            });
            let mut feasible: Vec<Way> = feasible.collect();
            feasible.sort_by_key(|way| (way.cost, way.neighbour));
            if !feasible.is_empty() {
                ways.insert(*destination, feasible);
            }
        }
        let awaiting = self.contacts.as_ref().map(|it| it.awaiting(now, &ways));
        let next_hops = LearnedNextHops {
            carriers: self.find_carriers(now),
            awaiting: awaiting.unwrap_or_default(),
            ways,
        };
        if next_hops != self.next_hops {
            self.next_hops = next_hops;
            self.has_changed = true;
        }
    }

    /// Finds the neighbours that are closer to the destinations without a path now, by the usual costs: in a
    /// network that is never whole, data moves in steps [GSTAR].
    fn find_carriers(&self, now: Time) -> BTreeMap<Guid, Way> {
        let is_away = |to: &Guid| !self.distances.contains_key(to);
        let away = self.usual.iter().filter(|(to, _)| is_away(to));
        let mut carriers: BTreeMap<Guid, Way> = BTreeMap::new();
        let carrier = away.filter_map(|(destination, own)| {
            let usable = self.neighbours.iter().filter(|(_, it)| it.is_usable(now));
            let closer = usable.filter_map(|(name, neighbour)| {
                let further = *neighbour.usual.get(destination)?;
                let is_closer = u64::from(further.0) * 10 < u64::from(own.0) * CLOSER_TENTHS;
                is_closer.then_some((further, *name))
            });
            let (cost, neighbour) = closer.min()?;
            Some((*destination, Way { neighbour, cost }))
        });
        carriers.extend(carrier);
        // What is known goes before what is usual.
        let planned = self.contacts.iter().flat_map(|it| it.next_hops(now));
        for (destination, next) in planned.filter(|(to, _)| is_away(to)) {
            carriers.remove(destination);
            let neighbour = next.and_then(|next| self.neighbours.get_key_value(&next));
            if let Some((name, _)) = neighbour.filter(|(_, it)| it.is_usable(now)) {
                let (neighbour, cost) = (*name, Cost::MAX_LINK);
                carriers.insert(*destination, Way { neighbour, cost });
            }
        }
        carriers
    }

    /// Handles due deadlines.
    pub fn handle_timeout(&mut self, now: Time) {
        self.review_contacts(now);
        if self.tick_at <= now {
            self.tick_at = now + TICK;
            self.tick(now);
        }
        if self.compute_at.is_some_and(|at| at <= now) {
            self.compute(now);
        }
    }

    fn tick(&mut self, now: Time) {
        if self.database.expire(now) {
            self.change(now);
        }
        for neighbour in self.neighbours.values_mut() {
            neighbour.link.note_time(now, neighbour.up);
        }
        self.neighbours
            .retain(|_, it| it.up || it.link.is_remembered(now));
        let was = self.announced.clone();
        self.update_links(now);
        if self.announced != was {
            self.find_ways(now);
        }
        if self.renew_at <= now {
            self.originate(now);
        }
        let digest = self.database.digest();
        let mut messages = Vec::new();
        let mut differing = Vec::new();
        for (name, neighbour) in &mut self.neighbours {
            if let Some(distances) = neighbour.repeated(now) {
                messages.push((*name, Message::Distances(distances)));
            }
            if neighbour.greets_again(now) {
                differing.push(*name);
            }
            if !neighbour.counts() {
                continue;
            }
            if neighbour.state_at <= now {
                neighbour.state_at = now + HEARTBEAT;
                messages.push((*name, Message::State(neighbour.state(digest))));
            }
            let is_late = |since: &mut Time| now.since(*since) >= COMPARED_AFTER;
            if neighbour.differs_since.take_if(is_late).is_some() {
                differing.push(*name);
            }
        }
        messages
            .into_iter()
            .for_each(|(name, message)| self.send(name, message));
        differing.into_iter().for_each(|name| self.ask(now, name));
        self.tell_distances(now);
    }

    /// Returns the next message to a neighbour.
    pub fn poll_message(&mut self) -> Option<(Guid, Message)> {
        self.outgoing.pop_front()
    }

    /// Returns when [`handle_timeout`](Routing::handle_timeout) is due.
    pub fn poll_timeout(&self) -> Deadline {
        let contacts = self.contacts.as_ref().and_then(KnownContacts::due);
        let contacts = contacts.map(|at| Deadline::new(at, "known contacts"));
        let compute = (self.compute_at).map(|at| Deadline::new(at, "shortest paths"));
        let tick = Deadline::new(self.tick_at, "state of the routing");
        let others = contacts.into_iter().chain(compute);
        others.fold(tick, |first, it| if it.at < first.at { it } else { first })
    }

    /// Returns true if next hops have changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        core::mem::take(&mut self.has_changed)
    }

    /// Returns the next hops to a router, best first.
    pub fn ways(&self, to: &Guid) -> &[Way] {
        self.next_hops.ways.get(to).map_or(&[], Vec::as_slice)
    }

    /// Returns the neighbour that carries data towards a router which is out of reach, with its usual cost from
    /// there: it is up, and usually closer.
    pub fn carrier(&self, to: &Guid) -> Option<&Way> {
        self.next_hops.carriers.get(to)
    }

    /// Returns the cost of the best way that is in use.
    pub fn cost(&self, to: &Guid) -> Option<Cost> {
        match *to == self.own {
            true => Some(Cost::ZERO),
            false => self.ways(to).first().map(|way| way.cost),
        }
    }

    /// Returns the cost of the usual way, with the share of time that links are down.
    pub fn usual_cost(&self, to: &Guid) -> Option<Cost> {
        self.usual.get(to).copied()
    }

    /// Returns true if the best way costs more than `times` as much as the usual one.
    pub fn is_unusual(&self, to: &Guid, times: u32) -> bool {
        let now = self.cost(to).zip(self.usual_cost(to));
        now.is_some_and(|(now, usual)| now.0 > usual.0.saturating_mul(times))
    }

    /// Returns true if data for a router waits for a known contact, which is better than the way of the moment.
    pub fn waits_for_contact(&self, to: &Guid) -> bool {
        self.next_hops.awaiting.contains(to)
    }

    /// Returns true if this router is announced.
    pub fn knows(&self, router: &Guid) -> bool {
        self.database.get(router).is_some()
    }

    /// Returns the counters.
    pub fn counters(&self) -> RoutingCounters {
        self.counters
    }

    /// Returns all routers that are announced, but this one.
    pub fn status(&self, now: Time) -> Vec<KnownRouter> {
        let others = self.database.iter().filter(|it| it.origin() != self.own);
        others.map(|it| self.status_of(now, it)).collect()
    }

    fn status_of(&self, now: Time, announcement: &Announcement) -> KnownRouter {
        let router = announcement.origin();
        let finite = |cost: Cost| cost.is_finite().then_some(cost.0);
        let bound = self.bound(&router);
        let mut ways: Vec<WayStatus> = Vec::new();
        for (name, neighbour) in self.neighbours.iter().filter(|(_, it)| it.counts()) {
            let told = neighbour.told.get(&router).copied();
            let further = neighbour.computed.get(&router);
            let cost = further.map(|it| neighbour.link.announced().plus(*it));
            let why = match (told, further) {
                _ if !neighbour.is_usable(now) => "link-held-down",
                (None, _) => "neighbour-has-no-way",
                (_, None) => "not-announced",
                (Some(told), _) if told >= bound => "could-loop",
                _ if self.ways(&router).first().map(|it| it.neighbour) == Some(*name) => "best",
                _ => "alternate",
            };
            ways.push(WayStatus {
                neighbour: *name,
                cost_us: cost.and_then(finite),
                told_us: told.and_then(finite),
                why,
            });
        }
        ways.sort_by_key(|way| (way.cost_us.unwrap_or(u32::MAX), way.neighbour));
        let links = announcement.links().iter();
        KnownRouter {
            router,
            sequence: announcement.sequence(),
            links: links.map(|link| (link.to, finite(link.cost))).collect(),
            cost_us: self.distances.get(&router).copied().and_then(finite),
            usual_us: self.usual.get(&router).copied().and_then(finite),
            ways,
        }
    }
}
