//! Late binding [MFTP §3.2 and 3.3]: from a name to the next hops of a chunk, by the hosts attached here,
//! the name service and the routes.

mod nearest;
mod parting;

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Recent, SeededRng, Source, Time};
use whimbrel_gnrs::{Answer, Failure, Kind, Lookup, Record};

use super::attach::{Attachments, outcome};
use super::effects::{Action, Effects};
use super::holders::{Holders, Standing, presence};
use super::names::Names;
use super::routes::Routes;
pub(super) use nearest::Sought;

use crate::chunk::Chunk;
use crate::links::{ChunkToSend, Links};
use crate::next_hops::{NextHops, Spread};
use crate::wire::{
    Control, ControlCode, DropReason, NetworkHeader, Presence, PresenceCode, ServiceId,
};

/// Maximum of hosts that have moved of late, and of neighbours and hosts that they were told of; beyond it
/// they are told again.
const MAX_CORRECTED: usize = 4_096;
/// Maximum of hosts on one port that may announce the same content at a time: a content has 64
/// announcers at most, and one neighbour can be any number of hosts.
const MAX_ANNOUNCERS_PER_PORT: usize = 4;

/// What is to become of a chunk.
#[derive(Debug)]
pub(super) enum BindingOutcome {
    /// It leaves by as many of these next hops as its service says.
    Send(NextHops),
    /// It waits for the answer about this name.
    Wait(Guid),
    /// There is no way for it now.
    Store,
    /// Nobody has what it asks for.
    Unknown(DropReason),
    /// It was sent to a group of which its destination is a member, which is a group itself.
    Group,
}

/// Who is where, as far as this router knows.
pub(super) struct Binding {
    pub(super) own: Guid,
    pub(super) attachments: Attachments,
    pub(super) names: Names,
    pub(super) routes: Routes,
    pub(super) holders: Holders,
    // Neighbours that have been told that a host is elsewhere, and by which version of its record.
    corrected: Recent<(PortId, Guid), u64>,
    // Hosts that have moved of late, as their records say.
    moved: Recent<Guid>,
    pub(super) rng: SeededRng,
}

impl Binding {
    /// Nobody is attached to the router of this GUID. What is drawn at random comes from `rng`.
    pub(super) fn new(
        attachments: Attachments,
        names: Names,
        routes: Routes,
        holders: Holders,
        rng: SeededRng,
    ) -> Binding {
        Binding {
            own: attachments.router(),
            attachments,
            names,
            routes,
            holders,
            corrected: Recent::new(MAX_CORRECTED),
            moved: Recent::new(MAX_CORRECTED),
            rng,
        }
    }

    /// Challenges a neighbour that came up.
    pub(super) fn challenge(
        &mut self,
        now: Time,
        port: PortId,
        neighbour: Guid,
        effects: &mut Effects,
    ) {
        let rng = &mut self.rng;
        self.attachments
            .challenge(now, port, neighbour, rng, effects);
    }

    /// A host has moved, as its newer record says.
    pub(super) fn note_moved(&mut self, now: Time, host: Guid, record: Record) {
        self.names.learn(now, record);
        self.moved.insert(host, ());
    }

    /// A host that is attached here has moved no longer.
    pub(super) fn note_back(&mut self, host: &Guid) {
        if self.attachments.is_here(host) {
            self.moved.remove(host);
        }
    }

    /// Returns where a host is that is attached here.
    pub(super) fn place_of(&self, host: &Guid, links: &Links) -> Option<Source> {
        self.attachments.place_of(host, links)
    }

    /// Returns the ports of the destination host, or of the host that serves the requested content.
    fn hops_here(&self, header: &NetworkHeader, links: &Links) -> NextHops {
        let of = |guid: &Guid| self.attachments.hops_to(guid, links);
        let here = of(&header.destination);
        match &header.extensions.via {
            Some(via) if here.is_empty() => of(via),
            _ => here,
        }
    }

    /// Returns the next hops towards the client that has sent a request.
    pub(super) fn ways_to(&self, asked: &NetworkHeader, links: &Links) -> NextHops {
        let here = self.attachments.hops_to(&asked.source, links);
        match here.is_empty() {
            true => self.routes.towards(&asked.source_address, links),
            false => here,
        }
    }

    /// Decides on a chunk: to an attached host, towards its address, or to be bound.
    pub(super) fn decide(
        &mut self,
        now: Time,
        outgoing: &mut ChunkToSend,
        links: &Links,
        effects: &mut Effects,
    ) -> BindingOutcome {
        self.forget_former_address(now, &mut outgoing.chunk.header);
        let here = self.hops_here(&outgoing.chunk.header, links);
        if Spread::of_chunk(&outgoing.chunk) == Spread::Divide
            && let Some(hops) = self.parting(now, outgoing, &here, links, effects)
        {
            return BindingOutcome::Send(hops);
        }
        if !here.is_empty() {
            let preferred = self.preferred_way(now, outgoing, links, effects);
            return BindingOutcome::Send(preferred.unwrap_or(here));
        }
        if outgoing.chunk.header.destination_address == self.own
            && let Some(from) = outgoing.from
        {
            self.correct(now, from, outgoing.chunk.header.destination, links, effects);
        }
        let at = outgoing.chunk.header.destination_address;
        let is_strangers = at != outgoing.chunk.header.destination && self.is_host_here(&at, links);
        let header = &mut outgoing.chunk.header;
        if at == self.own || is_strangers {
            // Bound to this router, but its host is not attached: the binding is stale. Or to another host.
            header.destination_address = Guid::NONE;
            header.extensions.via = None;
            header.extensions.addresses.clear();
        }
        if header.destination_address.is_none() {
            // A host that this router calls has a binding, which tells where it is when it has left.
            let is_bound = |answer: Answer| answer.binding.is_some();
            if !self.routes.is_router(&header.destination, links)
                || self
                    .names
                    .known(now, &header.destination)
                    .is_some_and(is_bound)
            {
                return self.ask(now, outgoing, links, effects);
            }
            header.destination_address = header.destination;
        }
        BindingOutcome::Send(self.routes.towards(&header.destination_address, links))
    }

    /// Looks up the chunk's destination (or the host that serves it) in the name service; all
    /// chunks that wait for one name share one lookup.
    fn ask(
        &mut self,
        now: Time,
        outgoing: &mut ChunkToSend,
        links: &Links,
        effects: &mut Effects,
    ) -> BindingOutcome {
        let header = &outgoing.chunk.header;
        // Any host may announce any name as a content's: only requests go to its provider.
        if header.extensions.via.is_none()
            && let Some(sought) = Sought::of(header)
            && let Some(provider) = self.own_provider(now, sought, links)
        {
            let (content, id) = (header.destination, header.extensions.request);
            if !sought.is_service()
                && self.names.is_repeated(&content, id, &provider)
                && let Lookup::Resolved(answer) = self.names.look_up(now, content)
            {
                return self.bind(now, outgoing, content, &answer, links, effects);
            }
            self.note_provider(outgoing, sought, provider, links);
            outgoing.chunk.header.extensions.via = Some(provider);
            return BindingOutcome::Send(self.attachments.hops_to(&provider, links));
        }
        let header = &outgoing.chunk.header;
        let name = header.extensions.via.unwrap_or(header.destination);
        if !self.names.may_ask(now, &name, outgoing.from) {
            effects.counters.lookups_deferred += 1;
            return BindingOutcome::Store;
        }
        match self.names.look_up(now, name) {
            Lookup::Resolved(answer) => self.bind(now, outgoing, name, &answer, links, effects),
            Lookup::NotFound => {
                self.unresolvable(now, outgoing, name, Failure::NotFound, links, effects)
            }
            Lookup::Pending => BindingOutcome::Wait(name),
            Lookup::Busy => BindingOutcome::Store,
        }
    }

    /// The answer for which a chunk has waited is here.
    pub(super) fn bind_waiting(
        &mut self,
        now: Time,
        outgoing: &mut ChunkToSend,
        name: Guid,
        answer: &Answer,
        links: &Links,
        effects: &mut Effects,
    ) -> BindingOutcome {
        match measures(outgoing, &name) {
            Some(sought) => self.bind_measured(now, outgoing, sought, links, effects),
            None => self.bind(now, outgoing, name, answer, links, effects),
        }
    }

    /// The answer about one of the hosts that have what a chunk seeks is here.
    fn bind_measured(
        &mut self,
        now: Time,
        outgoing: &mut ChunkToSend,
        sought: Sought,
        links: &Links,
        effects: &mut Effects,
    ) -> BindingOutcome {
        match self.names.look_up(now, sought.name) {
            Lookup::Resolved(answer) => {
                self.bind_to_nearest(now, outgoing, sought, &answer, links, effects)
            }
            _ => BindingOutcome::Store,
        }
    }

    /// Handles the name service's answer for a name, which represents the chunk's destination.
    fn bind(
        &mut self,
        now: Time,
        outgoing: &mut ChunkToSend,
        name: Guid,
        answer: &Answer,
        links: &Links,
        effects: &mut Effects,
    ) -> BindingOutcome {
        if let Some(hops) = self.routes.towards_binding(answer, links) {
            let spread = Spread::of_chunk(&outgoing.chunk);
            let hops = self.answered_or_first(now, name, hops, spread, links, effects);
            return BindingOutcome::Send(hops);
        }
        if let Some(sought) = Sought::of(&outgoing.chunk.header)
            && name == sought.name
            && !self.providers_of(now, sought, answer, links).is_empty()
        {
            // Once: when that answer is there, the nearest of those that are known is taken.
            return match self.measure_providers(now, sought, answer, links) {
                Some(pending) => BindingOutcome::Wait(pending),
                None => self.bind_to_nearest(now, outgoing, sought, answer, links, effects),
            };
        }
        let is_below = outgoing.chunk.header.is_for_group_below(&name);
        if answer.providers.iter().any(is_membership) {
            return match is_below {
                true => BindingOutcome::Group,
                // A group is no host: it will have no address.
                false => BindingOutcome::Unknown(DropReason::NoSuchName),
            };
        }
        // "The destination does not have an active network address binding" [MFTP §3.3].
        BindingOutcome::Store
    }

    /// Binds a chunk to the nearest host that has what it seeks.
    fn bind_to_nearest(
        &mut self,
        now: Time,
        outgoing: &mut ChunkToSend,
        sought: Sought,
        answer: &Answer,
        links: &Links,
        effects: &mut Effects,
    ) -> BindingOutcome {
        let Some(provider) = self.pick_provider(now, sought, answer, links) else {
            // "The destination does not have an active network address binding" [MFTP §3.3].
            return BindingOutcome::Store;
        };
        self.note_provider(outgoing, sought, provider, links);
        outgoing.chunk.header.extensions.via = Some(provider);
        // A router that keeps all of it has no record, but a route.
        if self.routes.is_router(&provider, links) {
            outgoing.chunk.header.destination_address = provider;
            return BindingOutcome::Send(self.routes.towards(&provider, links));
        }
        let here = self.attachments.hops_to(&provider, links);
        match here.is_empty() {
            true => self.ask(now, outgoing, links, effects),
            false => BindingOutcome::Send(here),
        }
    }

    /// The name service has no answer for a chunk.
    pub(super) fn unresolvable(
        &mut self,
        now: Time,
        outgoing: &mut ChunkToSend,
        name: Guid,
        why: Failure,
        links: &Links,
        effects: &mut Effects,
    ) -> BindingOutcome {
        if let Some(sought) = measures(outgoing, &name) {
            return self.bind_measured(now, outgoing, sought, links, effects);
        }
        let header = &outgoing.chunk.header;
        let asks_for_content =
            header.service.has(ServiceId::CONTENT_REQUEST) && name == header.destination;
        match why == Failure::NotFound && asks_for_content {
            true => BindingOutcome::Unknown(self.names.unknown()),
            false => BindingOutcome::Store,
        }
    }

    /// A chunk for a host that has moved may have the address of its former router, which its source
    /// had from the host's request: it is bound anew.
    fn forget_former_address(&mut self, now: Time, header: &mut NetworkHeader) {
        let host = &header.destination;
        let may_differ = self.moved.contains(host) || self.names.is_followed(host);
        if header.destination_address.is_none() || !may_differ {
            return;
        }
        // What was known of it may not be valid any more: then it is looked up.
        let known = self.names.known(now, &header.destination);
        let binding = known.and_then(|answer| answer.binding);
        let at = header.destination_address;
        if binding.is_none() && !self.moved.contains(host) {
            return;
        }
        let is_there = binding.is_some_and(|it| it.addresses().any(|it| it.na == at));
        if !is_there && at != self.own {
            header.destination_address = Guid::NONE;
            header.extensions.addresses.clear();
        }
    }

    /// Chunks for a host come from a neighbour that does not know yet that the host has left: it is
    /// told once. Otherwise both would send them to each other.
    pub(super) fn correct(
        &mut self,
        now: Time,
        port: PortId,
        host: Guid,
        links: &Links,
        effects: &mut Effects,
    ) {
        let known = self.names.known(now, &host);
        let Some(binding) = known.and_then(|answer| answer.binding) else {
            return;
        };
        let is_here = binding.addresses().any(|at| at.na == self.own);
        // A host has its chunks bound by its routers.
        let neighbour = links.neighbour(port);
        if neighbour.is_none_or(|neighbour| self.attachments.is_on(&neighbour, port)) {
            return;
        }
        let version = binding.version();
        if !is_here && self.corrected.insert((port, host), version) != Some(version) {
            let record = Bytes::copy_from_slice(binding.as_bytes());
            effects.push(Action::Tell(port, Control::Left { record }));
        }
    }

    /// Returns true for a host that is attached to this router: it is no router, whatever a record or a chunk
    /// says, and gets only what is addressed to itself.
    pub(super) fn is_host_here(&self, name: &Guid, links: &Links) -> bool {
        let mut ports = links.neighbours.ports_of(name);
        ports.any(|port| self.attachments.is_on(name, port))
    }

    /// Returns true if the router at this address has said that the host is there.
    pub(super) fn counts(
        &mut self,
        now: Time,
        host: Guid,
        at: Guid,
        links: &Links,
        effects: &mut Effects,
    ) -> bool {
        self.standing(now, host, at, links, effects) == Standing::Here
    }

    fn standing(
        &mut self,
        now: Time,
        host: Guid,
        at: Guid,
        links: &Links,
        effects: &mut Effects,
    ) -> Standing {
        if self.is_host_here(&at, links) {
            return Standing::Absent;
        }
        // A router's own record names nobody else.
        if host == at {
            return Standing::Here;
        }
        let about = (self.own, host, at);
        self.holders.standing(now, about, effects)
    }

    /// Of the next hops of a host's record, those whose addresses count.
    pub(super) fn answered(
        &mut self,
        now: Time,
        host: Guid,
        mut hops: NextHops,
        links: &Links,
        effects: &mut Effects,
    ) -> NextHops {
        let mut counts = |at| self.counts(now, host, at, links, effects);
        hops.retain(|branch| branch.address.is_none_or(&mut counts));
        hops
    }

    /// The same; if none of them counts yet, those of which nothing is known: a single chunk does not wait
    /// for an answer, and a flow is not divided before there is one.
    pub(super) fn answered_or_first(
        &mut self,
        now: Time,
        host: Guid,
        hops: NextHops,
        spread: Spread,
        links: &Links,
        effects: &mut Effects,
    ) -> NextHops {
        let answered = self.answered(now, host, hops.clone(), links, effects);
        if answered.best().is_some() {
            return answered;
        }
        let mut hops = hops;
        hops.retain(|branch| {
            let address = branch.address;
            let standing = address.map(|at| self.standing(now, host, at, links, effects));
            standing != Some(Standing::Absent)
        });
        if spread == Spread::Divide {
            let first = hops.best().or(hops.iter().next()).map(|it| it.address);
            hops.retain(|branch| Some(branch.address) == first);
        }
        hops
    }

    /// Handles a question about a host, or the answer of a router that was asked.
    pub(super) fn handle_presence(
        &mut self,
        now: Time,
        header: &NetworkHeader,
        about: Presence,
        effects: &mut Effects,
    ) {
        match about.code {
            PresenceCode::Asked => {
                let is_here = about.guid == self.own || self.attachments.is_here(&about.guid);
                let code = match is_here {
                    true => PresenceCode::Here,
                    false => PresenceCode::Absent,
                };
                let to = (header.source, header.source_address);
                let answer = Presence { code, ..about };
                effects.push(Action::Say(presence(self.own, to, answer)));
            }
            _ if self.holders.note_answer(now, header.source, &about) => {
                // What was stored because the host was not there yet.
                effects.push(Action::BindStored(about.guid));
            }
            _ => {}
        }
    }

    /// The address that answers to a host's chunk go to: the claimed one if the host is known to be there,
    /// else the one by which the chunk came.
    pub(super) fn proven_place(
        &mut self,
        now: Time,
        source: Guid,
        claimed: Guid,
        by: Guid,
        links: &Links,
        effects: &mut Effects,
    ) -> Guid {
        match claimed.is_none() || claimed == by || claimed == source {
            true => claimed,
            false if self.counts(now, source, claimed, links, effects) => claimed,
            false => by,
        }
    }

    /// A host that does not serve what it announced says so to each client that asks; its record may
    /// have been withdrawn at another router. It is asked no more until it announces again.
    pub(super) fn note_not_served(&mut self, now: Time, chunk: &Chunk, links: &Links) {
        if let Some((host, content)) = chunk.not_served() {
            let at = self.place_of(&host, links);
            self.names.note_not_served(now, content, host, at);
        }
    }

    /// Content is announced by hosts that are attached on the port, or have proven their name there:
    /// who else says that a host has it, has only its record.
    pub(super) fn handle_register(
        &mut self,
        now: Time,
        from: PortId,
        is_believed: bool,
        record: Bytes,
        links: &Links,
        effects: &mut Effects,
    ) {
        let (info, neighbour) = (links.info(from), links.neighbour(from));
        let is_stranger = !is_believed || info.is_none_or(|it| it.origin.is_caller());
        let attached = &self.attachments;
        let may = |signer: &Guid| {
            !is_stranger || neighbour == Some(*signer) || attached.is_on(signer, from)
        };
        let announced = |content: &Guid, signer: &Guid| {
            let providers = self.names.look_up_own(now, content).providers;
            let others = providers.iter().map(Record::holder);
            let of_port = others.filter(|it| it != signer && attached.is_on(it, from));
            of_port.count()
        };
        let Ok(record) = Record::parse(record) else {
            return effects.drop("bad-record");
        };
        let (holder, guid) = (record.holder(), record.subject());
        let refused = if !may(&holder) {
            Some(("announced-for-another", ControlCode::Invalid))
        } else if is_stranger && announced(&guid, &holder) >= MAX_ANNOUNCERS_PER_PORT {
            Some(("too-many-announcers", ControlCode::Full))
        } else {
            None
        };
        if let Some((why, code)) = refused {
            effects.drop(why);
            return effects.push(outcome(from, guid, record.version(), code));
        }
        self.attachments.handle_register(now, from, record, effects)
    }
}

fn is_membership(record: &Record) -> bool {
    record.kind() == Kind::Membership
}

/// Returns what a chunk seeks that waits for the answer about a host, to be bound to the nearest one.
fn measures(outgoing: &ChunkToSend, name: &Guid) -> Option<Sought> {
    let header = &outgoing.chunk.header;
    let sought = Sought::of(header)?;
    (header.extensions.via.is_none() && *name != sought.name).then_some(sought)
}
