//! Name resolution: by the name service, and from the records of the router's own hosts. A single
//! site needs no server, and one that is cut off from its server keeps what is local.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use whimbrel_core::{Guid, PortId, SeededRng, SharedRecent, Source, Time, WallClock};
use whimbrel_gnrs::{
    Answer, KeyPair, Kind, Lookup, MemoryStore, Quotas, Record, RecordKey, Resolver, Statement,
    StoreLimits,
};

use super::followed::Followed;
use super::served::Served;
use crate::links::ChunkToSend;
use crate::wire::{ControlCode, Data, DropReason};

/// Bounds of the records: some thousands of hosts, each with some contents.
const LIMITS: StoreLimits = StoreLimits {
    max_records: 65_536,
    max_bytes: 32 << 20,
    max_providers: 64,
};
/// Maximum of providers remembered as not serving a content, and for how long those are passed over
/// that do not announce here.
const MAX_NOT_SERVED: usize = 4096;
const NOT_SERVED_FOR: Duration = Duration::from_secs(300);
/// Maximum of requests whose providers are remembered, and of the providers of each.
const MAX_TRIED: usize = 1024;
const MAX_TRIED_EACH: usize = 64;
/// Maximum of names that chunks of one port wait for at a time: a quarter of what the resolver asks
/// at a time, so that a neighbour that makes up names does not keep others from asking.
const MAX_NAMES_PER_PORT: usize = 1024;
/// Maximum of expired records that are removed with each new one.
const EXPIRED_AT_ONCE: usize = 4;

/// Records that are registered again at once, and the time between two such parts: a name server
/// checks a signature in a tenth of a millisecond.
const PART: usize = 64;
pub(super) const PART_INTERVAL: Duration = Duration::from_millis(50);

/// The records of hosts that are, or were, attached here.
struct OwnNames {
    store: MemoryStore,
    // New records by the port that they came from.
    quotas: Quotas<PortId>,
}

impl OwnNames {
    fn new() -> OwnNames {
        OwnNames {
            store: MemoryStore::new(LIMITS),
            quotas: Quotas::default(),
        }
    }

    /// Registers a verified record. A content has a bound of announcers; beyond it, one makes room: one
    /// that has left, or as `yields_to` says. `place` returns where a host is that is attached here.
    fn register(
        &mut self,
        (now, now_ms): (Time, u64),
        from: PortId,
        record: Record,
        place: impl Fn(&Guid) -> Option<Source>,
        served: &Served,
    ) -> ControlCode {
        use whimbrel_gnrs::store::Refusal;
        self.store.remove_expired(now_ms, EXPIRED_AT_ONCE);
        let is_new = self.store.get(&record.filed_under()).is_none();
        if is_new && !self.quotas.admit(now, from, self.store.free() * 2) {
            return ControlCode::Full;
        }
        let mut put = self.store.put(now_ms, record.clone());
        if put == Err(Refusal::Full) && record.kind() == Kind::Provider {
            let content = record.subject();
            let gone = |key: &RecordKey| place(&key.provider).is_none();
            let mut has_room = self.store.forget_provider(&content, gone);
            let own = (record.signer(), place(&record.signer()));
            if !has_room && let Some(other) = self.yields_to(now_ms, &content, own, &place, served)
            {
                let is_it = |key: &RecordKey| key.provider == other;
                has_room = self.store.forget_provider(&content, is_it);
            }
            if has_room {
                put = self.store.put(now_ms, record);
            }
        }
        match put {
            Ok(_) => ControlCode::Registered,
            Err(Refusal::Stale { .. } | Refusal::Conflict { .. }) => ControlCode::Stale,
            Err(Refusal::Full | Refusal::Busy) => ControlCode::Full,
        }
    }

    /// Returns the announcer of a full content that gives way to another host: one that has served
    /// nothing, of the network with the most of them. A host that has served a true chunk takes its
    /// place, and one of a network with fewer.
    fn yields_to(
        &self,
        now_ms: u64,
        content: &Guid,
        (host, at): (Guid, Option<Source>),
        place: impl Fn(&Guid) -> Option<Source>,
        served: &Served,
    ) -> Option<Guid> {
        let providers = self.store.providers(content, now_ms);
        let mut silent: BTreeMap<Option<Source>, Vec<Guid>> = BTreeMap::new();
        let mut own = 0;
        for announcer in providers.iter().map(Record::signer) {
            let of = place(&announcer);
            own += usize::from(of == at);
            if !served.has(content, &announcer) {
                silent.entry(of).or_default().push(announcer);
            }
        }
        let most = silent.values().max_by_key(|hosts| hosts.len())?;
        let may = served.has(content, &host) || most.len() > own + 1;
        most.first().copied().filter(|_| may)
    }

    fn lookup(&self, now_ms: u64, name: &Guid) -> Answer {
        let mut binding = None;
        self.store.visit(name, now_ms, &mut |record| {
            let is_binding = record.kind() == Kind::Binding && !record.is_removal();
            binding = is_binding.then(|| record.clone());
            // The binding comes first, if there is one.
            false
        });
        Answer {
            binding,
            providers: self.store.providers(name, now_ms),
        }
    }
}

/// The router's name resolution, and the chunks that wait for an answer.
pub(super) struct Names {
    pub(super) resolver: Resolver,
    own: OwnNames,
    // The last one that was registered again, while that goes on.
    registered_to: Option<RecordKey>,
    // Contents that hosts do not serve, as they have said since they announced them, and when.
    not_served: SharedRecent<Option<Source>, (Guid, Guid), Time>,
    // Those that have served what they announced.
    served: Served,
    // The providers that a request has been sent to, by content and the request's id. Shared among the
    // networks that requests come from.
    tried: SharedRecent<Option<Source>, (Guid, u64), BTreeSet<Guid>>,
    // The member of a name that a transfer goes to, by the name and the transfer's id.
    chosen: SharedRecent<Option<Source>, (Guid, u64), Guid>,
    // Without one, the router's own records are all there is.
    has_service: bool,
    wall: WallClock,
    // By the looked-up name. The back-pressure buffer bounds their number.
    waiting: BTreeMap<Guid, Vec<ChunkToSend>>,
    // Names that the first waiting chunk of came in on each port.
    names_by_port: BTreeMap<PortId, usize>,
    followed: Followed,
}

impl Names {
    pub(super) fn new(
        resolver: Resolver,
        has_service: bool,
        wall: WallClock,
        rng: &mut SeededRng,
    ) -> Names {
        Names {
            resolver,
            own: OwnNames::new(),
            registered_to: None,
            not_served: SharedRecent::new(MAX_NOT_SERVED, rng),
            served: Served::new(rng),
            tried: SharedRecent::new(MAX_TRIED, rng),
            chosen: SharedRecent::new(MAX_TRIED, rng),
            has_service,
            wall,
            waiting: BTreeMap::new(),
            names_by_port: BTreeMap::new(),
            followed: Followed::new(rng),
        }
    }

    pub(super) fn set_wall_clock(&mut self, wall: WallClock) {
        self.wall = wall;
        self.resolver.set_wall_clock(wall);
    }

    /// Returns true if there is a name service and none of its servers answers.
    pub(super) fn is_silent(&self) -> bool {
        let servers = self.resolver.server_status();
        self.has_service && !servers.iter().any(|server| server.answers)
    }

    /// Looks up a name: in the name service, or, if none is configured, in this router's records.
    pub(super) fn look_up(&mut self, now: Time, name: Guid) -> Lookup {
        if self.has_service {
            return self.resolver.lookup(now, name);
        }
        let answer = self.look_up_own(now, &name);
        if answer.is_empty() {
            Lookup::NotFound
        } else {
            Lookup::Resolved(answer)
        }
    }

    /// Returns the reason why a request for a name that [`Names::look_up`] does not find is dropped.
    pub(super) fn unknown(&self) -> DropReason {
        match self.has_service {
            true => DropReason::NoSuchName,
            false => DropReason::NoNameService,
        }
    }

    /// Begins to register own records again, from the first one, whatever is under way.
    pub(super) fn begin_again(&mut self) {
        self.registered_to = None;
    }

    /// Registers own records again, a part at a time: those of hosts for which `is_here` is true, as
    /// a name server may have lost them. Returns false when all have been.
    pub(super) fn register_again(&mut self, now: Time, is_here: impl Fn(&Guid) -> bool) -> bool {
        let part = self.own.store.following(self.registered_to, PART);
        self.registered_to = part.last().map(Record::filed_under);
        let now_ms = self.wall.unix_millis(now);
        for record in part {
            if !record.is_expired(now_ms) && is_here(&record.holder()) {
                self.resolver.insert(now, record);
            }
        }
        self.registered_to.is_some()
    }

    /// Returns the records of this router's own hosts about a name. A host may have left since.
    pub(super) fn look_up_own(&self, now: Time, name: &Guid) -> Answer {
        self.own.lookup(self.wall.unix_millis(now), name)
    }

    /// What is known about a name without a query, while it may be relied upon.
    pub(super) fn known(&self, now: Time, name: &Guid) -> Option<Answer> {
        if self.has_service {
            return self.resolver.known(now, name);
        }
        Some(self.look_up_own(now, name))
    }

    /// Returns what was known about a name, until it expires: for a flow that does not wait for each look-up.
    pub(super) fn remembered(&self, now: Time, name: &Guid) -> Option<Answer> {
        match self.has_service {
            true => self.resolver.remembered(now, name),
            false => None,
        }
    }

    /// A host, at `at` if it is attached here, says that it does not serve a content.
    pub(super) fn note_not_served(
        &mut self,
        now: Time,
        content: Guid,
        host: Guid,
        at: Option<Source>,
    ) {
        self.not_served.insert(at, (content, host), now);
        self.served.forget(content, host);
    }

    /// Notes a chunk that a host has sent by a port, if others announce its content too.
    pub(super) fn note_data(
        &mut self,
        now: Time,
        host: Guid,
        from: PortId,
        at: Source,
        data: &Data,
    ) {
        let content = &data.content;
        if !self.served.has(content, &host) {
            let known = self.known(now, content).unwrap_or_default();
            let providers = known.providers;
            let announces = providers.iter().any(|it| it.signer() == host);
            if !announces || providers.len() < 2 {
                return;
            }
        }
        self.served.note(now, host, from, at, data);
    }

    /// Sorts the announcers of a content: first those that have served it; of the others, the first of
    /// each network before the second of any. `place` says where a host is.
    pub(super) fn by_merit(
        &self,
        content: &Guid,
        announcers: Vec<Guid>,
        place: impl Fn(&Guid) -> Option<Source>,
    ) -> Vec<Guid> {
        let mut of_place: BTreeMap<Option<Source>, usize> = BTreeMap::new();
        let mut ranked: Vec<(bool, usize, Guid)> = Vec::new();
        for host in announcers {
            let before = of_place.entry(place(&host)).or_default();
            ranked.push((!self.served.has(content, &host), *before, host));
            *before += 1;
        }
        ranked.sort_by_key(|(silent, before, _)| (*silent, *before));
        ranked.into_iter().map(|(_, _, host)| host).collect()
    }

    /// Returns how many of these announcers have served a content, which are the first of them.
    pub(super) fn proven(&self, content: &Guid, announcers: &[Guid]) -> usize {
        let served = announcers.iter();
        served.take_while(|it| self.served.has(content, it)).count()
    }

    /// Returns true if a provider has said that it does not serve a content: one that announces
    /// here (`is_own`) until it announces it again, another one for a while.
    fn is_not_served(&self, now: Time, content: &Guid, host: &Guid, is_own: bool) -> bool {
        let said = self.not_served.get(&(*content, *host));
        said.is_some_and(|at| is_own || now.since(*at) < NOT_SERVED_FOR)
    }

    /// Returns the providers that a request should go to: not those that do not serve the content,
    /// nor those that the same request went to before, as long as there are others. Whoever repeats
    /// a request has got nothing; announcing is no proof of serving.
    pub(super) fn worth_asking(
        &self,
        now: Time,
        (content, request): (&Guid, Option<u64>),
        providers: Vec<Guid>,
        is_own: bool,
    ) -> Vec<Guid> {
        let serves = |it: &Guid| !self.is_not_served(now, content, it, is_own);
        let serving: Vec<Guid> = providers.iter().copied().filter(serves).collect();
        let tried = request.and_then(|request| self.tried.get(&(*content, request)));
        let is_new = |it: &Guid| tried.is_none_or(|tried| !tried.contains(it));
        let untried: Vec<Guid> = serving.iter().copied().filter(is_new).collect();
        match (untried.is_empty(), serving.is_empty() && !is_own) {
            (false, _) => untried,
            (true, false) => serving,
            (true, true) => providers,
        }
    }

    /// Returns true if a request went to this provider before, and the name service may know
    /// others.
    pub(super) fn is_repeated(
        &self,
        content: &Guid,
        request: Option<u64>,
        provider: &Guid,
    ) -> bool {
        let tried = request.and_then(|request| self.tried.get(&(*content, request)));
        self.has_service && tried.is_some_and(|tried| tried.contains(provider))
    }

    /// A request from `at` goes to this provider; when all have been tried, it begins again with the
    /// others.
    pub(super) fn note_tried(
        &mut self,
        (content, request): (Guid, Option<u64>),
        at: Option<Source>,
        provider: Guid,
    ) {
        let Some(request) = request else { return };
        let key = (content, request);
        if !self.tried.contains(&key) {
            self.tried.insert(at, key, BTreeSet::new());
        }
        let Some(tried) = self.tried.touch(&key) else {
            return;
        };
        if tried.contains(&provider) || tried.len() >= MAX_TRIED_EACH {
            tried.clear();
        }
        tried.insert(provider);
    }

    /// Returns the member of a name that a transfer goes to.
    pub(super) fn chosen(&self, name: &Guid, request: Option<u64>) -> Option<Guid> {
        self.chosen.get(&(*name, request?)).copied()
    }

    /// The transfer `request`, which comes from `at`, goes to this member of a name.
    pub(super) fn note_chosen(
        &mut self,
        name: Guid,
        request: Option<u64>,
        at: Option<Source>,
        member: Guid,
    ) {
        if let Some(request) = request {
            self.chosen.insert(at, (name, request), member);
        }
    }

    /// Notes the verified record of a host that is elsewhere now.
    pub(super) fn learn(&mut self, now: Time, record: Record) {
        match self.has_service {
            true => self.resolver.learn(now, record),
            // In the place of the record by which the host was attached here.
            false => drop(self.own.store.put(self.wall.unix_millis(now), record)),
        }
    }

    /// Looks up a name, ignoring cached answers.
    pub(super) fn look_up_anew(&mut self, now: Time, name: Guid) -> Lookup {
        self.resolver.forget(&name);
        self.look_up(now, name)
    }

    /// Watches a name that stored chunks wait for. Without room for another watch, the timers must
    /// suffice.
    pub(super) fn watch(&mut self, now: Time, name: Guid) {
        if self.has_service {
            self.followed.note_awaited(name);
            let _ = self.resolver.watch(now, name);
        }
    }

    /// Nothing is stored for a name any more.
    pub(super) fn unwatch(&mut self, now: Time, name: Guid) {
        if self.followed.forget_awaited(&name) {
            self.resolver.unwatch(now, name);
        }
    }

    /// Watches the destination of a flow that may be divided here: a link that its host gains or loses
    /// counts at once, and no look-up delays it. `at` is where the chunk came from. Returns when to look for
    /// idle ones.
    pub(super) fn follow(&mut self, now: Time, at: Option<Source>, name: Guid) -> Option<Time> {
        if !self.has_service {
            return None;
        }
        let (is_new, gone) = self.followed.note_destination(now, at, name);
        if let Some(gone) = gone {
            self.resolver.unwatch(now, gone);
        }
        if !is_new {
            return None;
        }
        // Without room for another watch, what the look-ups say holds until it expires.
        let _ = self.resolver.watch(now, name);
        self.followed.next_idle()
    }

    pub(super) fn is_followed(&self, name: &Guid) -> bool {
        self.followed.has_destination(name)
    }

    /// Stops watching destinations that nothing goes to any more. Returns when to do so again.
    pub(super) fn forget_idle(&mut self, now: Time) -> Option<Time> {
        while let Some((name, is_last)) = self.followed.take_idle(now) {
            if is_last {
                self.resolver.unwatch(now, name);
            }
        }
        self.followed.next_idle()
    }

    /// Stores a verified record of a host; returns it as `Err` if the name service must have it too.
    pub(super) fn keep(
        &mut self,
        now: Time,
        from: PortId,
        record: Record,
        place: impl Fn(&Guid) -> Option<Source>,
    ) -> Result<ControlCode, Record> {
        self.not_served.remove(&(record.subject(), record.holder()));
        let code = self.own.register(
            (now, self.wall.unix_millis(now)),
            from,
            record.clone(),
            place,
            &self.served,
        );
        match self.has_service {
            true => Err(record),
            false => Ok(code),
        }
    }

    /// Announces with these keys a content of which all chunks are kept here, for as long as they are.
    /// Returns false if nobody can be told.
    pub(super) fn announce(
        &mut self,
        now: Time,
        keys: &KeyPair,
        content: Guid,
        until: Time,
    ) -> bool {
        let lifetime_ms = until.since(now).as_millis() as u64;
        let statement = Statement::new(self.wall.unix_millis(now), lifetime_ms, Vec::new());
        match Record::provider(keys, content, &statement) {
            Ok(record) if self.has_service => {
                self.resolver.insert(now, record);
                true
            }
            _ => false,
        }
    }

    /// Returns true if a chunk that came in on `from` may cause a query about this name.
    pub(super) fn may_ask(&self, now: Time, name: &Guid, from: Option<PortId>) -> bool {
        let asked = from.and_then(|from| self.names_by_port.get(&from));
        !self.has_service
            || asked.is_none_or(|asked| *asked < MAX_NAMES_PER_PORT)
            || self.waiting.contains_key(name)
            || self.resolver.known(now, name).is_some()
    }

    /// Lets a chunk wait for the answer about this name.
    pub(super) fn wait(&mut self, name: Guid, outgoing: ChunkToSend) {
        let waiting = self.waiting.entry(name).or_default();
        if let Some(from) = outgoing.from.filter(|_| waiting.is_empty()) {
            *self.names_by_port.entry(from).or_default() += 1;
        }
        waiting.push(outgoing);
    }

    /// The chunks that wait for this name.
    pub(super) fn take_waiting(&mut self, name: &Guid) -> Vec<ChunkToSend> {
        let waiting = self.waiting.remove(name).unwrap_or_default();
        if let Some(from) = waiting.first().and_then(|first| first.from)
            && let Some(names) = self.names_by_port.get_mut(&from)
        {
            *names -= 1;
            if *names == 0 {
                self.names_by_port.remove(&from);
            }
        }
        waiting
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use whimbrel_gnrs::ResolverConfig;
    use whimbrel_link::Room;

    use super::*;
    use crate::chunk::{Chunk, Message};
    use crate::wire::{NetworkHeader, ServiceId, UpperProtocol};

    fn names() -> Names {
        let wall = WallClock::new(1_800_000_000_000);
        let config = ResolverConfig::default();
        let resolver = Resolver::new(config, wall, SeededRng::new(1));
        Names::new(resolver, true, wall, &mut SeededRng::new(2))
    }

    fn numbered(number: u64) -> Guid {
        let mut name = [1; 32];
        name[..8].copy_from_slice(&number.to_be_bytes());
        Guid(name)
    }

    fn chunk(from: Option<u32>) -> ChunkToSend {
        let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Transport);
        ChunkToSend {
            chunk: Chunk {
                header: NetworkHeader::new(service, upper, Guid([2; 32]), Guid([3; 32])),
                message: Message {
                    head: Bytes::new(),
                    body: Bytes::new(),
                },
            },
            room: Room::default(),
            from: from.map(PortId),
            origin: None,
            order: None,
            until: None,
        }
    }

    #[test]
    fn one_port_takes_a_part_of_the_queries_and_no_more() {
        let mut names = names();
        let (greedy, other) = (Some(PortId(1)), Some(PortId(2)));
        for number in 0..MAX_NAMES_PER_PORT as u64 {
            assert!(names.may_ask(Time::ZERO, &numbered(number), greedy));
            names.wait(numbered(number), chunk(Some(1)));
        }
        let one_more = numbered(1 << 32);
        assert!(!names.may_ask(Time::ZERO, &one_more, greedy));
        assert!(names.may_ask(Time::ZERO, &one_more, other));
        assert!(names.may_ask(Time::ZERO, &one_more, None));
        // What is asked already costs nothing.
        assert!(names.may_ask(Time::ZERO, &numbered(5), greedy));
        names.take_waiting(&numbered(5));
        assert!(names.may_ask(Time::ZERO, &one_more, greedy));
    }

    proptest! {
        /// Compares with the first waiting chunk of each name.
        #[test]
        fn the_names_of_each_port_are_counted(
            steps in prop::collection::vec((any::<bool>(), 0u64..6, prop::option::of(0u32..3)), 0..100),
        ) {
            let mut names = names();
            let mut model: BTreeMap<u64, (Option<u32>, usize)> = BTreeMap::new();
            for (waits, number, from) in steps {
                if waits {
                    names.wait(numbered(number), chunk(from));
                    model.entry(number).or_insert((from, 0)).1 += 1;
                } else {
                    let expected = model.remove(&number).map_or(0, |(_, chunks)| chunks);
                    prop_assert_eq!(names.take_waiting(&numbered(number)).len(), expected);
                }
                let mut by_port = BTreeMap::new();
                for from in model.values().filter_map(|(from, _)| *from) {
                    *by_port.entry(PortId(from)).or_insert(0) += 1;
                }
                prop_assert_eq!(&names.names_by_port, &by_port);
            }
        }
    }
}
