//! Forwarding: late binding and the choice of next hops.

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Answer, Failure, Lookup, Record};
use whimbrel_link::Room;

use super::attach::outcome;
use super::effects::Action;
use super::nearest::Sought;
use super::transit::{Passing, Verdict};
use super::{Router, Timer};
use crate::chunk::{Chunk, Message};
use crate::chunk_size::Path;
use crate::links::{AskedBy, ChunkToSend, Grant, RENEWAL};
use crate::next_hops::{NextHops, Spread};
use crate::wire::{
    Control, ControlCode, DropReason, Echo, NetworkHeader, ServiceId, Transport, UpperProtocol,
};

/// Maximum of hosts on one port that may announce the same content at a time: a content has 64
/// announcers at most, and one neighbour can be any number of hosts.
const MAX_ANNOUNCERS_PER_PORT: usize = 4;

impl Router {
    /// Handles a whole chunk from a neighbour.
    pub(super) fn handle_chunk(&mut self, now: Time, from: PortId, bytes: &Bytes, room: Room) {
        self.effects.counters.chunks_received += 1;
        let chunk = match Chunk::decode(bytes) {
            Ok(chunk) => chunk,
            Err(fault) => {
                tracing::debug!(%from, %fault, "bad chunk");
                return self.effects.drop("bad-chunk");
            }
        };
        let outgoing = ChunkToSend {
            chunk,
            room,
            from: Some(from),
            origin: Some(from),
            order: None,
        };
        let header = &outgoing.chunk.header;
        if header.service.has(ServiceId::NEIGHBOUR) {
            return self.handle_control(now, from, &outgoing.chunk.message.head);
        }
        // What does not come from the neighbour is not to be taken for the neighbour's.
        if header.upper == UpperProtocol::Control {
            match Control::decode(&outgoing.chunk.message.head) {
                Ok(Control::Left { record }) if header.destination == self.config.guid => {
                    return self.handle_left(now, from, record);
                }
                Ok(Control::Left { .. } | Control::Presence(_)) => {}
                _ => return self.effects.drop("bad-control"),
            }
        }
        match self.place_of_source(now, from, &outgoing.chunk.header) {
            Some(address) => self.handle_proven(now, from, outgoing, address),
            None if outgoing.chunk.header.source == self.config.guid => {
                self.effects.drop("source-not-proven")
            }
            None => self.sources.park(now, from, outgoing, &mut self.effects),
        }
    }

    /// The address at which the source of a chunk from this port is reached, if the neighbour there
    /// may speak for it.
    pub(super) fn place_of_source(
        &mut self,
        now: Time,
        from: PortId,
        header: &NetworkHeader,
    ) -> Option<Guid> {
        let (source, at) = (header.source, header.source_address);
        let neighbour = self.links.neighbour(from)?;
        // Whoever the source is: the configuration gives the neighbour's name.
        if self.sources.believes(&neighbour) {
            return Some(at);
        }
        if source == neighbour || self.attachments.is_on(&source, from) {
            let claimed = self.sources.answered_at(header, self.config.guid);
            return Some(self.proven_place(now, source, claimed, self.config.guid));
        }
        let known = self.sources.vouched(now, neighbour, source)?;
        let is_named = at.is_none() || known.contains(&at);
        let claimed = if is_named { at } else { neighbour };
        Some(self.proven_place(now, source, claimed, neighbour))
    }

    /// The address that answers to a host's chunk go to: the claimed one if the host is known to be there,
    /// else the one by which the chunk came.
    fn proven_place(&mut self, now: Time, source: Guid, claimed: Guid, by: Guid) -> Guid {
        match claimed.is_none() || claimed == by || claimed == source {
            true => claimed,
            false if self.counts(now, source, claimed) => claimed,
            false => by,
        }
    }

    /// Handles a chunk whose source is proven, or vouched for by a router that is believed.
    pub(super) fn handle_proven(
        &mut self,
        now: Time,
        from: PortId,
        mut outgoing: ChunkToSend,
        source_address: Guid,
    ) {
        outgoing.chunk.header.source_address = source_address;
        self.attachments
            .note_use(&outgoing.chunk.header.source, from);
        self.purge_unwanted(now, from, &outgoing.chunk);
        self.note_not_served(now, &outgoing.chunk);
        if let Some(data) = outgoing.chunk.data() {
            let source = outgoing.chunk.header.source;
            let from = (from, self.links.source_of(from));
            self.names.note_data(now, source, from, &data);
            self.keep_for_producer(now, from.0, &mut outgoing.chunk, &data);
            self.copy_passing(now, &outgoing.chunk, &data);
        } else {
            self.free_kept(&outgoing.chunk);
        }
        if self.observe(now, &outgoing.chunk) {
            // It is for this router.
        } else if outgoing.chunk.header.destination == self.config.guid {
            self.handle_own(now, &outgoing.chunk);
        } else if outgoing.chunk.header.hop_limit == 0 {
            self.drop(&outgoing.chunk, DropReason::HopLimit);
        } else if self.subtract_known(now, from, &mut outgoing.chunk) {
            self.effects.counters.requests_absorbed += 1;
        } else {
            outgoing.chunk.header.hop_limit -= 1;
            self.links.note_arrival(from, &outgoing.chunk);
            self.forward(now, outgoing);
        }
    }

    /// Takes from a receiver's Request or Nack the chunks that wait here for the neighbour that it
    /// came from, that this neighbour took a moment ago, or that are stored here for the receiver.
    /// Asks for smaller chunks if the link to that neighbour is thin. True if no chunks remain: a
    /// receiver behind a slow link repeats its request often, and each time its source would send
    /// them in vain.
    fn subtract_known(&mut self, now: Time, from: PortId, chunk: &mut Chunk) -> bool {
        let Some(mut asked) = chunk.asks_again() else {
            return self.answer_resend(now, from, chunk);
        };
        let (Transport::Request(request) | Transport::Nack(request)) = &mut asked else {
            return false;
        };
        let was = request.clone();
        self.follow_receiver(now, &chunk.header);
        self.links.note_missing(now, &chunk.header.source, request);
        let path = Path {
            hops: chunk.header.links_behind(),
            rate: self.links.neighbours.rate_to(from),
            ..Path::default()
        };
        *request = request.clone().fitted_to(&path);
        let asks = AskedBy {
            client: chunk.header.source,
            id: chunk.header.extensions.request,
        };
        self.links.subtract_under_way(from, &asks, request);
        self.links
            .neighbours
            .subtract_taken(now, from, &asks, request);
        self.proxy
            .subtract_stored(now, &chunk.header.source, request, &mut self.effects);
        self.subtract_copies(now, from, &chunk.header, request);
        if *request == was {
            return false;
        }
        let is_all = request.chunks.is_empty() && !was.chunks.is_empty();
        // What a receiver says of its window is for the source in any case.
        let is_advice = request.window.is_some() && matches!(asked, Transport::Nack(_));
        chunk.message = Message::of_transport(&asked);
        is_all && !is_advice
    }

    /// Shows a chunk to the observer, if there is one; returns true if that has answered it.
    fn observe(&mut self, now: Time, chunk: &Chunk) -> bool {
        let Some(observer) = &mut self.observer else {
            return false;
        };
        let Some(passing) = Passing::of(chunk) else {
            return false;
        };
        match observer.observe(now, chunk, passing) {
            Verdict::Pass => false,
            Verdict::Answer(answers) => {
                for answer in answers {
                    self.effects.push(Action::Say(answer));
                }
                true
            }
        }
    }

    fn handle_control(&mut self, now: Time, from: PortId, message: &Bytes) {
        match Control::decode(message) {
            Ok(Control::Attach { record, signature }) => {
                self.attachments
                    .handle_attach(now, from, record, signature, &mut self.effects)
            }
            Ok(Control::Register { record }) => self.handle_register(now, from, record),
            Ok(Control::Credit(credit)) => {
                if !self.links.note_credit(now, from, &credit) {
                    self.effects.drop("too-many-holds");
                }
            }
            Ok(Control::Pace(pace)) => self.links.note_pace(now, from, &pace),
            Ok(Control::Ask { guid }) => self.handle_ask(from, guid),
            Ok(Control::Vouch { record }) => self.handle_vouch(now, from, record),
            Ok(Control::Routing(message)) => self.handle_routing(now, from, message),
            // From a neighbouring router: only hosts attach.
            Ok(Control::Challenge { .. } | Control::Outcome { .. }) => {}
            Ok(Control::Left { record }) => self.handle_left(now, from, record),
            // It goes to a router by its name, and is answered there.
            Ok(Control::Presence(_)) | Err(_) => self.effects.drop("bad-control"),
        }
    }

    /// Content is announced by hosts that are attached on the port, or have proven their name there:
    /// who else says that a host has it, has only its record.
    fn handle_register(&mut self, now: Time, from: PortId, record: Bytes) {
        let info = self.links.info(from);
        let neighbour = self.links.neighbour(from);
        let is_believed = neighbour.is_some_and(|name| self.sources.believes(&name));
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
            return self.effects.drop("bad-record");
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
            self.effects.drop(why);
            return self
                .effects
                .push(outcome(from, guid, record.version(), code));
        }
        self.attachments
            .handle_register(now, from, record, &mut self.effects)
    }

    /// A receiver takes back its request for a content: what is on its way to the port that it says
    /// so from, or stored for it, is wanted no more.
    fn purge_unwanted(&mut self, now: Time, from: PortId, chunk: &Chunk) {
        let Some((flow, content)) = chunk.stops() else {
            return;
        };
        self.fetches.stop(&flow.destination, &content);
        let is_meant = |chunk: &Chunk| chunk.data().is_some_and(|data| data.content == content);
        let purged = self.links.purge(now, from, &flow, is_meant);
        self.effects.counters.chunks_unwanted += purged as u64;
        let here = self.attachments.hops_to(&flow.destination, &self.links);
        if here.iter().any(|branch| branch.port == from) {
            self.proxy.purge(&flow, &content, &mut self.effects);
        }
    }

    /// A host that does not serve what it announced says so to each client that asks; its record may
    /// have been withdrawn at another router. It is asked no more until it announces again.
    fn note_not_served(&mut self, now: Time, chunk: &Chunk) {
        if let Some((host, content)) = chunk.not_served() {
            let at = self.place_of(&host);
            self.names.note_not_served(now, content, (host, at));
        }
    }

    /// Handles a chunk for this router itself.
    fn handle_own(&mut self, now: Time, chunk: &Chunk) {
        match chunk.header.upper {
            UpperProtocol::Echo => match Echo::decode(&chunk.message.head) {
                Ok(echo) if !echo.reply => self.answer_echo(now, chunk, echo),
                _ => self.effects.drop("bad-echo"),
            },
            UpperProtocol::Transport => match chunk.transport() {
                Ok(Transport::Push(notice)) => {
                    self.proxy
                        .handle_push(&chunk.header, &notice, &mut self.effects)
                }
                _ => self.effects.drop("bad-transport"),
            },
            UpperProtocol::Control => match Control::decode(&chunk.message.head) {
                Ok(Control::Presence(about)) => self.handle_presence(now, &chunk.header, about),
                _ => self.effects.drop("bad-control"),
            },
        }
    }

    fn answer_echo(&mut self, now: Time, request: &Chunk, echo: Echo) {
        let mut head = Vec::new();
        Echo {
            reply: true,
            ..echo
        }
        .encode(&mut head);
        let mut header = NetworkHeader::new(
            ServiceId::UNICAST,
            UpperProtocol::Echo,
            self.config.guid,
            request.header.source,
        );
        header.source_address = self.config.guid;
        header.destination_address = request.header.source_address;
        let message = Message {
            head: head.into(),
            body: Bytes::new(),
        };
        self.say(now, Chunk { header, message });
    }

    /// Forwards a chunk: to an attached host, towards its address, or to be bound.
    pub(super) fn forward(&mut self, now: Time, mut outgoing: ChunkToSend) {
        // Meant for one neighbour that is gone, and for no node behind another one.
        if outgoing.chunk.header.service.has(ServiceId::NEIGHBOUR) {
            return self.effects.drop("neighbour-gone");
        }
        self.forget_former_address(now, &mut outgoing.chunk.header);
        let here = self.attachment_of(&outgoing.chunk.header);
        if Spread::of_chunk(&outgoing.chunk) == Spread::Divide
            && let Some(hops) = self.parting(now, &mut outgoing, &here)
        {
            return self.send_or_store(now, outgoing, &hops);
        }
        if !here.is_empty() {
            return match self.preferred_way(now, &outgoing) {
                Some(hops) => self.send_or_store(now, outgoing, &hops),
                None => self.send_or_store(now, outgoing, &here),
            };
        }
        if outgoing.chunk.header.destination_address == self.config.guid
            && let Some(from) = outgoing.from
        {
            self.correct(now, from, outgoing.chunk.header.destination);
        }
        let at = outgoing.chunk.header.destination_address;
        let is_strangers = at != outgoing.chunk.header.destination && self.is_host_here(&at);
        let header = &mut outgoing.chunk.header;
        if at == self.config.guid || is_strangers {
            // Bound to this router, but its host is not attached: the binding is stale. Or to another host.
            header.destination_address = Guid::NONE;
            header.extensions.via = None;
            header.extensions.addresses.clear();
        }
        if header.destination_address.is_none() {
            // A host that this router calls has a binding, which tells where it is when it has left.
            let is_bound = |answer: Answer| answer.binding.is_some();
            if !self.routes.is_router(&header.destination, &self.links)
                || self
                    .names
                    .known(now, &header.destination)
                    .is_some_and(is_bound)
            {
                return self.ask_for_binding(now, outgoing);
            }
            header.destination_address = header.destination;
        }
        let hops = self
            .routes
            .towards(&header.destination_address, &self.links);
        self.send_or_store(now, outgoing, &hops);
    }

    /// Returns the ports of the destination host, or of the host that serves the requested content.
    fn attachment_of(&self, header: &NetworkHeader) -> NextHops {
        let of = |guid: &Guid| self.attachments.hops_to(guid, &self.links);
        let here = of(&header.destination);
        match &header.extensions.via {
            Some(via) if here.is_empty() => of(via),
            _ => here,
        }
    }

    /// Sends a chunk on as many of these next hops as its service says.
    fn send_or_store(&mut self, now: Time, outgoing: ChunkToSend, hops: &NextHops) {
        if self.waits_for_usual(&outgoing, hops) {
            self.effects.counters.waited_for_usual += 1;
            return self.store_or_give_up(now, outgoing);
        }
        let chunk = &outgoing.chunk;
        let spread = Spread::of_chunk(chunk);
        if spread == Spread::Divide
            && hops.best().is_some()
            && self.links.division.may_divide(&chunk.flow(), hops)
        {
            return self.links.divide(outgoing, hops);
        }
        let mut chosen = hops.select(spread, chunk.flow(), chunk.size(), &mut self.divisions);
        let Some(mut branch) = chosen.next() else {
            self.yield_to_others(now, &outgoing);
            return self.store_or_give_up(now, outgoing);
        };
        let outgoing = match spread {
            Spread::Best | Spread::Divide
                if self.links.neighbours.is_crowded(branch.port, &outgoing) =>
            {
                match self.spill(now, outgoing, hops) {
                    Some(outgoing) => outgoing,
                    None => return,
                }
            }
            _ => outgoing,
        };
        for next in chosen {
            self.send_over(now, outgoing.clone().over(branch, hops), branch.port);
            branch = next;
        }
        self.send_over(now, outgoing.over(branch, hops), branch.port);
    }

    /// The buffer fills, and a chunk's flow has its part of it: it waits in the storage instead, if
    /// that has room without a loss for others.
    fn spill(&mut self, now: Time, outgoing: ChunkToSend, hops: &NextHops) -> Option<ChunkToSend> {
        let header = &outgoing.chunk.header;
        let (destination, address) = (header.destination, header.destination_address);
        let carried = &header.extensions.addresses;
        if !self.proxy.takes(&outgoing.chunk) {
            return Some(outgoing);
        }
        // What is stored has no address; it leaves with the one that these next hops stand for.
        let hops = match hops.iter().any(|branch| branch.address.is_some()) {
            true => hops.clone(),
            false if address.is_none() => hops.at_address(self.config.guid),
            false if carried.len() > 1 => hops.at_addresses(carried),
            false => hops.at_address(address),
        };
        self.effects.counters.held_back += 1;
        if let Some(from) = outgoing.from {
            let flow = outgoing.chunk.flow();
            self.proxy.limit(from, flow, Grant::Octets(0));
            self.grant(from, flow, Grant::Octets(0));
            self.timers.set_earlier(Timer::Holds, now + RENEWAL);
        }
        self.store_or_give_up(now, outgoing);
        self.proxy.open(destination, hops);
        None
    }

    /// The destination of a chunk is away: its flow goes on, into the storage, but takes nothing
    /// from others.
    fn yield_to_others(&mut self, now: Time, outgoing: &ChunkToSend) {
        let Some(from) = outgoing.from else { return };
        let flow = outgoing.chunk.flow();
        if outgoing.chunk.data().is_some() && self.proxy.limit(from, flow, Grant::Spare) {
            self.grant(from, flow, Grant::Spare);
            self.timers.set_earlier(Timer::Holds, now + RENEWAL);
        }
    }

    fn send_over(&mut self, now: Time, outgoing: ChunkToSend, port: PortId) {
        if let Err(outgoing) = self.links.enqueue(port, outgoing) {
            self.store_or_give_up(now, outgoing);
        }
    }

    /// Looks up the chunk's destination (or the host that serves it) in the name service; all
    /// chunks that wait for one name share one lookup.
    fn ask_for_binding(&mut self, now: Time, mut outgoing: ChunkToSend) {
        let header = &outgoing.chunk.header;
        // Any host may announce any name as a content's: only requests go to its provider.
        if header.extensions.via.is_none()
            && let Some(sought) = Sought::of(header)
            && let Some(provider) = self.own_provider(now, sought)
        {
            let (content, id) = (header.destination, header.extensions.request);
            if !sought.is_service()
                && self.names.is_repeated(&content, id, &provider)
                && let Lookup::Resolved(answer) = self.names.look_up(now, content)
            {
                return self.bind(now, outgoing, content, &answer);
            }
            self.note_provider(&outgoing, sought, provider);
            let here = self.attachments.hops_to(&provider, &self.links);
            outgoing.chunk.header.extensions.via = Some(provider);
            return self.send_or_store(now, outgoing, &here);
        }
        let header = &outgoing.chunk.header;
        let name = header.extensions.via.unwrap_or(header.destination);
        if !self.names.may_ask(now, &name, outgoing.from) {
            self.effects.counters.lookups_deferred += 1;
            return self.store_or_give_up(now, outgoing);
        }
        match self.names.look_up(now, name) {
            Lookup::Resolved(answer) => self.bind(now, outgoing, name, &answer),
            Lookup::NotFound => self.handle_unresolvable(now, outgoing, name, Failure::NotFound),
            Lookup::Pending => self.names.wait(name, outgoing),
            Lookup::Busy => self.store_or_give_up(now, outgoing),
        }
    }

    /// A host here has announced `content`: what waits for an answer about it need not.
    pub(super) fn serve_from_here(&mut self, now: Time, content: Guid) {
        let sought = Sought::any(content);
        if self.own_providers(now, sought).is_empty() {
            return;
        }
        for outgoing in self.names.take_waiting(&content) {
            self.forward(now, outgoing);
        }
        let answer = self.names.look_up_own(now, &content);
        self.bind_stored(now, content, &answer);
    }

    /// The same for a chunk that has waited for the answer: what a receiver asks for may have come
    /// meanwhile.
    pub(super) fn bind_waiting(
        &mut self,
        now: Time,
        mut outgoing: ChunkToSend,
        name: Guid,
        answer: &Answer,
    ) {
        if let Some(from) = outgoing.from
            && self.subtract_known(now, from, &mut outgoing.chunk)
        {
            self.effects.counters.requests_absorbed += 1;
            return;
        }
        match measures(&outgoing, &name) {
            Some(sought) => self.bind_measured(now, outgoing, sought),
            None => self.bind(now, outgoing, name, answer),
        }
    }

    /// The answer about one of the hosts that have what a chunk seeks is here.
    fn bind_measured(&mut self, now: Time, outgoing: ChunkToSend, sought: Sought) {
        match self.names.look_up(now, sought.name) {
            Lookup::Resolved(answer) => self.bind_to_nearest(now, outgoing, sought, &answer),
            _ => self.store_or_give_up(now, outgoing),
        }
    }

    /// Handles the name service's answer for `name`, which represents the chunk's destination.
    pub(super) fn bind(&mut self, now: Time, outgoing: ChunkToSend, name: Guid, answer: &Answer) {
        if let Some(hops) = self.routes.towards_binding(answer, &self.links) {
            let spread = Spread::of_chunk(&outgoing.chunk);
            let hops = self.answered_or_first(now, name, hops, spread);
            return self.send_or_store(now, outgoing, &hops);
        }
        if let Some(sought) = Sought::of(&outgoing.chunk.header)
            && name == sought.name
            && !self.providers_of(now, sought, answer).is_empty()
        {
            // Once: when that answer is there, the nearest of those that are known is taken.
            return match self.measure_providers(now, sought, answer) {
                Some(pending) => self.names.wait(pending, outgoing),
                None => self.bind_to_nearest(now, outgoing, sought, answer),
            };
        }
        // "The destination does not have an active network address binding" [MFTP §3.3].
        self.store_or_give_up(now, outgoing);
    }

    /// Binds a chunk to the nearest host that has what it seeks.
    fn bind_to_nearest(
        &mut self,
        now: Time,
        mut outgoing: ChunkToSend,
        sought: Sought,
        answer: &Answer,
    ) {
        if let Some(provider) = self.pick_provider(now, sought, answer) {
            self.note_provider(&outgoing, sought, provider);
            outgoing.chunk.header.extensions.via = Some(provider);
            // A router that keeps all of it has no record, but a route.
            if self.routes.is_router(&provider, &self.links) {
                outgoing.chunk.header.destination_address = provider;
                let hops = self.routes.towards(&provider, &self.links);
                return self.send_or_store(now, outgoing, &hops);
            }
            let here = self.attachments.hops_to(&provider, &self.links);
            return if here.is_empty() {
                self.ask_for_binding(now, outgoing)
            } else {
                self.send_or_store(now, outgoing, &here)
            };
        }
        // "The destination does not have an active network address binding" [MFTP §3.3].
        self.store_or_give_up(now, outgoing);
    }

    pub(super) fn handle_unresolvable(
        &mut self,
        now: Time,
        outgoing: ChunkToSend,
        name: Guid,
        why: Failure,
    ) {
        if let Some(sought) = measures(&outgoing, &name) {
            return self.bind_measured(now, outgoing, sought);
        }
        let header = &outgoing.chunk.header;
        let asks_for_content =
            header.service.has(ServiceId::CONTENT_REQUEST) && name == header.destination;
        if why == Failure::NotFound && asks_for_content {
            self.drop(&outgoing.chunk, self.names.unknown());
        } else {
            self.store_or_give_up(now, outgoing);
        }
    }

    fn store_or_give_up(&mut self, now: Time, outgoing: ChunkToSend) {
        self.proxy.store_or_drop(now, outgoing, &mut self.effects);
    }

    /// Drops a chunk and tells its source.
    pub(super) fn drop(&mut self, chunk: &Chunk, reason: DropReason) {
        self.proxy.note_drop(chunk, reason, &mut self.effects);
    }
}

/// Returns what a chunk seeks that waits for the answer about a host, to be bound to the nearest one.
fn measures(outgoing: &ChunkToSend, name: &Guid) -> Option<Sought> {
    let header = &outgoing.chunk.header;
    let sought = Sought::of(header)?;
    (header.extensions.via.is_none() && *name != sought.name).then_some(sought)
}
