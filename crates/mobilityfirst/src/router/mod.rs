//! The router: moves chunks towards their names, and stores those whose names are away.
//!
//! A chunk's walk [MFTP §3.2 to 3.4]:
//!
//! 1. a hop delivers it whole ([`crate::links`]); it holds room in the back-pressure buffer from
//!    then on;
//! 2. [`forward`](self) decides: for this router, for a host attached here, to another address, or
//!    to be bound;
//! 3. binding asks the name service, once per name however many chunks wait
//!    ([`whimbrel_gnrs::Resolver`]);
//! 4. a chunk that cannot be forwarded is pushed up to the proxy and stored ([`store`]), its source
//!    is told, and it is retried when the storage timer fires or at once when the name service
//!    pushes a changed binding;
//! 5. the next hop takes it whole, and its room in the buffer is free again.
//!
//! The next hops of a chunk are a set ([`crate::next_hops`]), and its service says how many of them
//! it takes. The parts, each with its own state:
//!
//! | part | owns |
//! |---|---|
//! | `Binding` | who is where: the parts below, and hosts that have moved |
//! | `Attachments` | the ports of attached GUIDs, challenges, pending records of hosts |
//! | `Names` | the resolver, the router's own records, chunks that wait for an answer |
//! | `Holders` | which addresses of a host's record count |
//! | `Routes`, `Learning` | static routes and the default route; learned ways |
//! | `Sources` | whom inbound peers may speak for |
//! | `Proxy` | the storage, destinations of stored chunks, notices, and the parts below |
//! | `Openings` | destinations with a responsive next hop, and whose turn it is |
//! | `Limited` | what is granted of flows that are stored |
//! | `Lingering` | stored copies of chunks in an unresponsive neighbour's hop |
//! | `Shelf` | the disk below the storage, and what is written to and read from it |
//! | `ContentCache` | clients that take copies, wait for what others fetch, or fetch |
//! | `Said` | the bound of the messages that the router originates |
//!
//! A part reads the links, and pushes as an `effects::Action` what is to happen beyond its state.
//! [`Router`] dispatches events to the parts, and carries their actions out.
//!
//! [`groups`](self) divides the chunks for groups among next hops; it keeps nothing.
//!
//! Memory is bounded by configuration: the back-pressure buffer, the storage, and for each
//! neighbour its hop's bound (`docs/protocols/hop.md`); tables are bounded by the constants in
//! these modules.

#[cfg(test)]
mod announcers;
mod attach;
mod binding;
mod cache;
#[cfg(test)]
mod cached;
mod config;
mod effects;
mod fetches;
mod followed;
mod forward;
mod group_expansion;
mod groups;
mod hearsay;
mod holders;
#[cfg(test)]
mod hostile;
mod learning;
mod machine;
mod names;
mod notices;
#[cfg(test)]
mod on_disk;
mod own_record;
mod pauses;
mod proxy;
mod retry;
mod routes;
mod said;
mod served;
mod shelf;
mod sources;
mod status;
pub mod store;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trust;

use core::time::Duration;
use std::collections::BTreeMap;

use whimbrel_core::{
    Deadline, Disk, Guid, Machine, OpenRefusal, PortEvent, PortId, PortOrigin, PortRequest,
    PortToken, SeededRng, Time, TimerQueue, Transmit, WallClock,
};
use whimbrel_gnrs::{KeyPair, Lookup, Record, Resolver, ResolverConfig, ResolverEvent};
use whimbrel_link::Pacing;

use crate::chunk::Chunk;
use crate::links::callers::CallersStatus;
use crate::links::{Grant, LEFT_OVER, LinkEvent, Links, MAX_TURNS, NameRule, RENEWAL};
use crate::local::{Frame, LocalEvent, Programs};
use crate::next_hops::Divisions;
use crate::wire::{Control, ControlCode, Credit, DropReason, Flow};
use attach::{Attachments, outcome};
use binding::Binding;
use cache::ContentCache;
pub use config::{NextHop, ProxyPolicy, Route, RouterConfig};
use effects::{Action, Effects};
use holders::Holders;
pub use learning::LearnedWays;
use names::{Names, PART_INTERVAL};
use own_record::OwnRecord;
use proxy::Proxy;
use retry::Review;
use routes::Routes;
use said::{MAX_SAID, Said};
use sources::Sources;
pub use status::{
    RouterCounters, RouterMemory, RouterStatus, RoutingStatus, StorageDisk, WaitReason,
    WaitingStatus,
};
pub use whimbrel_routing::{ContactPlan, LinkMetric, MAX_PLAN};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// An attachment's record expires.
    Attachment(Guid, PortId),
    /// The host on a port is asked for its newest record.
    Challenge(PortId),
    /// Chunks for this destination are retried.
    Storage(Guid),
    /// Some stored chunk expires.
    Lifetime,
    /// Checks whether a neighbour holds back chunks.
    HeldBack,
    /// Flows that are held back where they come from are asked for again.
    Holds,
    /// Chunks have waited for a neighbour to vouch for their source.
    Parked,
    /// Records are registered again with a name server that has lost them.
    RegisterAgain,
    /// The router's own record is registered.
    OwnRecord,
    /// A destination that is followed may be idle.
    Followed,
    /// The pass over destinations of stored chunks goes on.
    Review,
    /// A disk that could not read is asked again.
    Disk,
    /// Clients may wait for chunks that nobody fetches any more.
    Fetches,
    /// Ways are computed, or neighbours told.
    Routing,
}

/// A MobilityFirst router as a state machine: its parts, and their connection.
pub struct Router {
    config: RouterConfig,
    links: Links,
    binding: Binding,
    own_record: OwnRecord,
    sources: Sources,
    divisions: Divisions,
    proxy: Proxy,
    cache: ContentCache,
    said: Said,
    programs: Programs,
    timers: TimerQueue<Timer>,
    // The pass over destinations of stored chunks that is under way.
    review: Option<Review>,
    // When work was left over in `drain`.
    left_over: Option<Time>,
    effects: Effects,
}

impl Router {
    /// Returns a router without ports. All its randomness comes from `rng`.
    pub fn new(config: RouterConfig, mut rng: SeededRng) -> Router {
        let mut links = Links::new(
            config.hop.clone(),
            config.buffer_packets,
            SeededRng::new(rng.next_word()),
        );
        links.set_split(config.split);
        let said = Said::default();
        links.bound_own(said.pool(), MAX_SAID);
        let resolver = Resolver::new(
            ResolverConfig::default(),
            config.wall,
            SeededRng::new(rng.next_word()),
        );
        let has_service = !config.name_servers.is_empty();
        let proxy = Proxy::new(&config, &mut rng);
        let mut timers = TimerQueue::new();
        timers.set(
            Timer::HeldBack,
            Time::ZERO + config.proxy.held_back_patience,
        );
        let names = Names::new(resolver, has_service, config.wall, &mut rng);
        let sources = Sources::new(&config, &mut rng);
        let holders = Holders::new(&mut rng);
        let divisions = Divisions::new(config.split.scheduler, rng.next_word());
        let attachments = Attachments::new(config.guid, config.wall);
        let routes = Routes::new(config.guid, config.routes.clone(), config.default_route);
        Router {
            links,
            binding: Binding::new(attachments, names, routes, holders, rng),
            own_record: OwnRecord::default(),
            sources,
            divisions,
            proxy,
            cache: ContentCache::default(),
            said,
            programs: Programs::default(),
            timers,
            review: None,
            left_over: None,
            effects: Effects::default(),
            config,
        }
    }

    /// The hops of link `number` that come up from now on are paced so, not as the configuration of
    /// all says.
    pub fn set_pacing(&mut self, number: u32, pacing: Pacing) {
        self.links.set_pacing(number, pacing);
    }

    /// The hops of link `number` that come up from now on do not encrypt.
    pub fn set_plain(&mut self, number: u32) {
        self.links.set_plain(number);
    }

    /// The neighbour of link `number` must prove a name by this rule. One that the configuration gives
    /// is believed.
    pub fn set_name_rule(&mut self, number: u32, rule: NameRule) {
        if let NameRule::Given(name) = rule {
            self.sources.believe(name);
        }
        self.links.set_name_rule(number, rule);
    }

    /// Returns the names that neighbours of configured links have proven, by the links' numbers.
    pub fn proven_names(&self) -> BTreeMap<u32, Guid> {
        self.links.neighbours.proven_names()
    }

    /// Accepts chunks of any source from this router, once it has proven its name. Routers in routes are
    /// trusted anyway.
    pub fn believe(&mut self, router: Guid) {
        self.sources.believe(router);
    }

    /// Stores chunks on this disk, too, and takes up what is on it. Called before the router has ports.
    pub fn set_disk(&mut self, now: Time, disk: Box<dyn Disk>) {
        for record in self.proxy.attach_disk(now, disk, &mut self.effects) {
            self.sources.restore_record(record);
        }
        self.carry_out(now);
    }

    /// The router learns its ways from the routers that it believes, and announces its links. Configured
    /// routes win.
    pub fn learn_ways(&mut self, terms: LearnedWays) {
        let learning = &mut self.binding.routes.learning;
        learning.begin(terms, self.config.wall, &mut self.effects);
        self.carry_out(Time::ZERO);
    }

    /// Returns the cost of the way to a router as a time, as far as it is learned.
    pub fn cost(&self, router: &Guid) -> Option<Duration> {
        let cost = self.binding.routes.learning.cost(router);
        cost.map(whimbrel_routing::Cost::time)
    }

    /// Registers this router's own name with the name service from now on. `keys` are those of its name.
    pub fn register_itself(&mut self, keys: KeyPair) {
        self.own_record.sign_with(keys);
    }

    /// Returns the router's GUID.
    pub fn guid(&self) -> Guid {
        self.config.guid
    }

    /// Replaces the wall clock after a step of the system's. Neighbours are told by a fresh
    /// challenge.
    pub fn set_wall_clock(&mut self, now: Time, wall: WallClock) {
        self.config.wall = wall;
        self.binding.names.set_wall_clock(wall);
        self.proxy.set_wall_clock(wall);
        self.binding.routes.learning.set_wall_clock(now, wall);
        let attachments = &mut self.binding.attachments;
        attachments.set_wall_clock(now, wall, &mut self.effects);
        self.drain(now);
    }

    /// Drains hop and resolver events until both are quiet.
    ///
    /// Handling one event may cause others, but a node that handles only its own events accepts no
    /// input: after [`MAX_TURNS`] the rest waits until the driver has passed in the frames that
    /// arrived meanwhile.
    fn drain(&mut self, now: Time) {
        self.left_over = None;
        let mut turns = 0..MAX_TURNS;
        while turns.next().is_some() {
            self.carry_out(now);
            if let Some(event) = self.links.poll_event(now) {
                self.handle_link_event(now, event);
                continue;
            }
            if let Some(event) = self.binding.names.resolver.poll_event() {
                self.handle_resolver_event(now, event);
                continue;
            }
            let on_disk = self.proxy.settle_disk(now, &mut self.effects);
            let gained = self.links.neighbours.take_gained();
            self.cache.fetches.note_gained(&gained);
            let released = self.proxy.release_stored(
                now,
                &gained,
                &mut self.links,
                &mut self.divisions,
                &mut self.effects,
            );
            self.carry_out(now);
            let told = self.proxy.send_notices(self.config.guid, &mut self.effects);
            if released || told || on_disk {
                continue;
            }
            let (links, proxy, effects) = (&self.links, &mut self.proxy, &mut self.effects);
            let cache = &mut self.cache;
            if !cache.send_copy(now, &self.binding, links, proxy, effects) {
                return;
            }
        }
        self.effects.counters.left_over += 1;
        self.left_over = Some(now);
    }

    /// Carries out the actions of the parts, until there are none left.
    fn carry_out(&mut self, now: Time) {
        while let Some(action) = self.effects.next() {
            match action {
                Action::Forward(outgoing) => self.forward(now, outgoing),
                Action::Say(chunk) => self.say(now, chunk),
                Action::Tell(port, control) => self.tell(port, &control),
                Action::Register(port, record) => self.register(now, port, record),
                Action::GoOn(port, flow) => match self.links.holds_back(port, &flow) {
                    true => self.links.give_again(port, &flow),
                    false => self.grant(port, flow, Grant::Free),
                },
                Action::Grant(port, flow, grant) => self.grant(port, flow, grant),
                Action::AnnounceKept(content, until) => {
                    let (keys, names) = (self.config.hop.reception.keys(), &mut self.binding.names);
                    let is_announced = names.announce(now, keys, content, until);
                    self.effects.counters.kept_announced += u64::from(is_announced);
                }
                Action::Measure(port) => self.links.measure_idle(port),
                Action::RetryWaiting => self.retry_waiting(now),
                Action::BindStored(name) => {
                    if let Some(answer) = self.binding.names.known(now, &name) {
                        self.bind_stored(now, name, &answer);
                    }
                }
                Action::Retry(destination) => {
                    self.binding.note_back(&destination);
                    self.retry_destination(now, destination);
                }
                Action::StopIfNoneWaits(destination) => {
                    self.proxy
                        .stop_if_none_waits(destination, &mut self.effects);
                }
                Action::Withdraw(carried) => {
                    self.links.withdraw(now, carried);
                }
                Action::Write(id) => self.proxy.write(id, &self.sources, &mut self.effects),
                Action::Watch(name) => self.binding.names.watch(now, name),
                Action::Unwatch(name) => self.binding.names.unwatch(now, name),
                Action::Set(timer, at) => self.timers.set(timer, at),
                Action::SetEarlier(timer, at) => self.timers.set_earlier(timer, at),
                Action::Cancel(timer) => {
                    self.timers.cancel(&timer);
                }
            }
        }
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        if event.changes_neighbours() {
            self.note_neighbours(now);
            self.carry_out(now);
        }
        let takes_back =
            matches!(event, LinkEvent::Unresponsive(_)) && self.binding.routes.learning.is_on();
        match event {
            LinkEvent::Up {
                port, neighbour, ..
            } => {
                self.binding
                    .challenge(now, port, neighbour, &mut self.effects);
                self.carry_out(now);
                self.retry_waiting(now);
            }
            LinkEvent::Restarted(_, handed) => {
                for handed in handed {
                    let had_chunks = !handed.chunks.is_empty();
                    let handed = self.proxy.send_kept_again(handed, &mut self.effects);
                    if !had_chunks || !handed.chunks.is_empty() {
                        let lost = notices::lost(self.config.guid, handed);
                        self.effects.push(Action::Say(lost));
                    }
                }
            }
            LinkEvent::Received { port, bytes, room } => self.handle_chunk(now, port, &bytes, room),
            LinkEvent::Delivered(carried, _) => {
                self.effects.counters.chunks_forwarded += 1;
                self.proxy.forget_lingering(carried);
                self.proxy.openings.read_unread();
            }
            LinkEvent::TooLarge(_, outgoing) => self.drop(&outgoing.chunk, DropReason::TooLarge),
            LinkEvent::Credit { port, flow, grant } => {
                if grant == Grant::Octets(0) || !self.proxy.limited.holds_back(port, &flow) {
                    self.grant(port, flow, grant);
                }
                if grant != Grant::Free {
                    self.timers.set_earlier(Timer::Holds, now + RENEWAL);
                }
            }
            LinkEvent::Pace { port, pace } => self.tell(port, &Control::Pace(pace)),
            // What waits for it goes to the other port once it has attached there, which takes its
            // signature.
            LinkEvent::Moved { from: port, .. } | LinkEvent::Unresponsive(port) => {
                let (links, effects) = (&mut self.links, &mut self.effects);
                let proxy = &mut self.proxy;
                proxy.store_what_waits_for(now, port, takes_back, links, effects);
            }
            LinkEvent::Responsive(port) => {
                self.proxy.resume_lingering(port);
                self.retry_waiting(now);
            }
            LinkEvent::Stranded(chunks) => {
                for outgoing in chunks {
                    self.forward(now, outgoing);
                }
            }
            LinkEvent::Down(port, returned) => {
                self.binding
                    .attachments
                    .detach_port(port, &mut self.effects);
                self.sources.forget_port(port);
                self.proxy.forget_lingering_on(port);
                for outgoing in returned {
                    self.forward(now, outgoing);
                }
            }
        }
    }

    fn handle_resolver_event(&mut self, now: Time, event: ResolverEvent) {
        match event {
            ResolverEvent::Resolved { guid, answer } => {
                for outgoing in self.binding.names.take_waiting(&guid) {
                    self.bind_waiting(now, outgoing, guid, &answer);
                }
                self.carry_out(now);
                self.bind_stored(now, guid, &answer);
            }
            ResolverEvent::Unresolvable { guid, why } => {
                for outgoing in self.binding.names.take_waiting(&guid) {
                    self.handle_unresolvable(now, outgoing, guid, why);
                }
                self.carry_out(now);
                self.proxy.keep_stored(now, guid, &mut self.effects);
            }
            ResolverEvent::Changed { guid, answer } => {
                self.effects.counters.bindings_pushed += 1;
                self.binding
                    .attachments
                    .forget_if_moved(&guid, answer.binding.as_ref());
                if !answer.is_empty() {
                    self.proxy.note_found(&guid);
                }
                if let Some(binding) = &answer.binding {
                    let routers: Vec<Guid> = binding.addresses().map(|at| at.na).collect();
                    self.links.division.leave_addresses(&guid, &routers);
                }
                self.bind_stored(now, guid, &answer);
            }
            // The resolver counts it and asks again.
            ResolverEvent::NotWatched { .. } => {}
            ResolverEvent::Registered { guid, version } => {
                let code = ControlCode::Registered;
                self.binding
                    .attachments
                    .report(guid, version, code, &mut self.effects);
            }
            ResolverEvent::Forgot => {
                self.binding.names.begin_again();
                self.timers.set_earlier(Timer::RegisterAgain, now);
                self.timers.set_earlier(Timer::OwnRecord, now);
            }
            ResolverEvent::Refused { guid, code } => {
                if let Some(next) = self.own_record.note_refused(now, &guid, code) {
                    self.timers.set_earlier(Timer::OwnRecord, next);
                }
                self.binding
                    .attachments
                    .report_refused(guid, code, &mut self.effects)
            }
        }
    }

    fn handle_program(&mut self, now: Time, port: PortId, frame: &[u8]) {
        let (request, json) = match self.programs.read(port, frame) {
            Frame::Greeting => return,
            Frame::Status(request) => {
                let json = serde_json::to_string(&self.status(now));
                (request, json)
            }
            Frame::Callers(request, change) => {
                let json = serde_json::to_string(&CallersStatus::manage(
                    &mut self.links.neighbours,
                    now,
                    &change,
                ));
                (request, json)
            }
            Frame::Unknown => return self.effects.drop("local-request"),
            Frame::Refused => return self.effects.drop("local-version"),
        };
        let json = json.unwrap_or_default();
        self.programs
            .tell(port, &LocalEvent::Status { request, json });
    }

    fn handle_due(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Attachment(guid, port) => self.binding.attachments.remove(&guid, port),
            Timer::Challenge(port) => {
                self.binding
                    .attachments
                    .repeat_challenge(now, port, &mut self.effects);
            }
            Timer::Storage(destination) => self.retry_destination(now, destination),
            Timer::Parked => self.sources.give_up(now, &mut self.effects),
            Timer::RegisterAgain => {
                let (attachments, names) = (&self.binding.attachments, &mut self.binding.names);
                if names.register_again(now, |guid| attachments.is_here(guid)) {
                    let next = now + PART_INTERVAL;
                    self.timers.set_earlier(Timer::RegisterAgain, next);
                }
            }
            Timer::OwnRecord => {
                let now_ms = self.config.wall.unix_millis(now);
                if let Some((record, next)) = self.own_record.renew(now, now_ms) {
                    self.binding.names.resolver.insert(now, record);
                    self.timers.set(Timer::OwnRecord, next);
                }
            }
            Timer::Followed => {
                if let Some(next) = self.binding.names.forget_idle(now) {
                    self.timers.set(Timer::Followed, next);
                }
            }
            Timer::Review => self.go_on_with_review(now),
            Timer::Fetches => self
                .cache
                .check_fetches(now, &self.proxy, &mut self.effects),
            Timer::Routing => {
                let (links, effects) = (&self.links, &mut self.effects);
                self.binding.routes.learning.handle_due(now, links, effects);
            }
            Timer::Lifetime => self.proxy.drop_expired(now, &mut self.effects),
            Timer::Disk => self.proxy.read_again(),
            Timer::Holds => {
                let due = self.links.neighbours.take_due_renewals(now);
                let mut any = self.links.renew_credit(&due);
                for (port, flow, grant) in self.proxy.review_limited(&mut self.effects) {
                    any = true;
                    if due.contains(&port) {
                        self.grant(port, flow, grant);
                    }
                }
                if any {
                    self.timers.set_earlier(Timer::Holds, now + RENEWAL);
                }
            }
            Timer::HeldBack => {
                self.proxy
                    .relieve_held_back(now, &mut self.links, &mut self.effects);
            }
        }
        self.carry_out(now);
    }

    /// Tells the routing which of the routers that are believed are up.
    fn note_neighbours(&mut self, now: Time) {
        let believed = self.sources.believed();
        let learning = &mut self.binding.routes.learning;
        learning.note_neighbours(now, believed, &self.links, &mut self.effects);
    }

    /// Handles a neighbour's message about ways. Only routers that the configuration names are heard.
    fn handle_routing(&mut self, now: Time, from: PortId, message: whimbrel_routing::Message) {
        let neighbour = self.links.neighbour(from);
        let Some(neighbour) = neighbour.filter(|name| self.sources.believes(name)) else {
            return self.effects.drop("routing-stranger");
        };
        // A neighbour that is heard is up, whichever of both was noticed first.
        self.note_neighbours(now);
        let (links, effects) = (&self.links, &mut self.effects);
        let learning = &mut self.binding.routes.learning;
        learning.handle_message(now, neighbour, message, links, effects);
    }

    /// Sends a control message to the neighbour on a port; does nothing if the port is closed.
    fn tell(&mut self, port: PortId, control: &Control) {
        let Some(neighbour) = self.links.neighbour(port) else {
            return;
        };
        let chunk = Chunk::to_neighbour(self.config.guid, neighbour, control);
        if let Some(outgoing) = self.said.admit(chunk, &mut self.effects) {
            let _ = self.links.enqueue(port, outgoing);
        }
    }

    /// Tells a neighbour what may come of a flow that comes from it.
    fn grant(&mut self, port: PortId, flow: Flow, grant: Grant) {
        let (octets, spare) = match grant {
            Grant::Free | Grant::Spare => (0, grant == Grant::Spare),
            Grant::Octets(octets) => (octets, false),
        };
        let lease = match grant {
            Grant::Free => Duration::ZERO,
            _ => self.links.lease(port),
        };
        self.effects.counters.holds += u64::from(grant != Grant::Free && octets == 0);
        let credit = Credit {
            flow,
            octets: u32::try_from(octets).unwrap_or(u32::MAX),
            spare,
            lease,
        };
        self.tell(port, &Control::Credit(credit));
    }

    /// Sends a message that this router originates.
    fn say(&mut self, now: Time, chunk: Chunk) {
        if let Some(outgoing) = self.said.admit(chunk, &mut self.effects) {
            self.forward(now, outgoing);
        }
    }

    /// Registers a verified record for the host on a port.
    fn register(&mut self, now: Time, port: PortId, record: Record) {
        let (guid, version) = (record.subject(), record.version());
        if self.binding.attachments.is_on(&guid, port) {
            let at = self.links.source_of(port);
            self.sources.note_record(at, &record, &mut self.effects);
        }
        let Binding {
            attachments: attached,
            names,
            ..
        } = &mut self.binding;
        let (attached, links) = (&*attached, &self.links);
        let place = |host: &Guid| attached.place_of(host, links);
        match names.keep(now, port, record, place) {
            Ok(code) => {
                if let Lookup::Resolved(answer) = self.binding.names.look_up(now, guid) {
                    self.proxy.note_found(&guid);
                    self.bind_stored(now, guid, &answer);
                }
                self.effects.push(outcome(port, guid, version, code));
            }
            Err(record) => {
                self.binding.attachments.await_outcome(port, &record);
                self.binding.names.resolver.insert(now, record);
                self.serve_from_here(now, guid);
            }
        }
    }
}
