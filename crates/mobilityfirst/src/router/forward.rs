//! Forwarding: late binding and the choice of next hops.

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Answer, Failure};
use whimbrel_link::Room;

use super::binding::BindingOutcome;
use super::fetches::Requester;
use super::{Router, Timer};
use crate::chunk::{Chunk, Message};
use crate::chunk_size::Path;
use crate::links::{AskedBy, ChunkToSend, Grant, RENEWAL};
use crate::next_hops::{NextHops, Spread};
use crate::wire::{Control, DropReason, Echo, NetworkHeader, ServiceId, Transport, UpperProtocol};

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
            until: None,
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
        let (binding, links, effects) = (&mut self.binding, &self.links, &mut self.effects);
        if source == neighbour || binding.attachments.is_on(&source, from) {
            let own = self.config.guid;
            let claimed = self.sources.answered_at(header, own);
            return Some(binding.proven_place(now, source, claimed, own, links, effects));
        }
        let known = self.sources.vouched(now, neighbour, source)?;
        let is_named = at.is_none() || known.contains(&at);
        let claimed = if is_named { at } else { neighbour };
        Some(binding.proven_place(now, source, claimed, neighbour, links, effects))
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
        let source = &outgoing.chunk.header.source;
        self.binding.attachments.note_use(source, from);
        self.purge_unwanted(now, from, &outgoing.chunk);
        self.binding
            .note_not_served(now, &outgoing.chunk, &self.links);
        if let Some(data) = outgoing.chunk.data() {
            let source = outgoing.chunk.header.source;
            let at = self.links.source_of(from);
            (self.binding.names).note_data(now, source, from, at, &data);
            let (chunk, effects) = (&mut outgoing.chunk, &mut self.effects);
            if chunk.header.extensions.delegate && self.binding.attachments.is_on(&source, from) {
                self.proxy.keep_for_producer(now, chunk, &data, effects);
            }
            self.cache
                .copy_passing(now, chunk, &data, &mut self.proxy, effects);
        } else {
            self.proxy.free_kept(&outgoing.chunk, &mut self.effects);
        }
        if outgoing.chunk.header.destination == self.config.guid {
            self.handle_own(now, &outgoing.chunk);
        } else if outgoing.chunk.header.hop_limit == 0 {
            self.drop(&outgoing.chunk, DropReason::HopLimit);
        } else if self.subtract_known(now, from, &mut outgoing.chunk) {
            self.effects.counters.requests_absorbed += 1;
        } else if !(self.cache).pass_nack(&mut outgoing.chunk, &self.proxy) {
            self.effects.drop("nack-limit");
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
            let (proxy, effects) = (&self.proxy, &mut self.effects);
            let at = self.links.source_of(from);
            let cache = &mut self.cache;
            return cache.answer_resend(now, from, at, chunk, proxy, effects);
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
        let header = &chunk.header;
        let at = self.links.source_of(from);
        let asker = Requester { from, at, header };
        let (proxy, effects) = (&self.proxy, &mut self.effects);
        self.cache
            .subtract_copies(now, asker, request, proxy, effects);
        if *request == was {
            return false;
        }
        let is_all = request.chunks.is_empty() && !was.chunks.is_empty();
        // What a receiver says of its window is for the source in any case.
        let is_advice = request.window.is_some() && matches!(asked, Transport::Nack(_));
        chunk.message = Message::of_transport(&asked);
        is_all && !is_advice
    }

    fn handle_control(&mut self, now: Time, from: PortId, message: &Bytes) {
        match Control::decode(message) {
            Ok(Control::Attach { record, signature }) => {
                let attachments = &mut self.binding.attachments;
                attachments.handle_attach(now, from, record, signature, &mut self.effects);
            }
            Ok(Control::Register { record }) => {
                let neighbour = self.links.neighbour(from);
                let is_believed = neighbour.is_some_and(|name| self.sources.believes(&name));
                let (links, effects) = (&self.links, &mut self.effects);
                self.binding
                    .handle_register(now, from, is_believed, record, links, effects);
            }
            Ok(Control::Credit(credit)) => {
                if !self.links.note_credit(now, from, &credit) {
                    self.effects.drop("too-many-holds");
                }
            }
            Ok(Control::Pace(pace)) => self.links.note_pace(now, from, &pace),
            Ok(Control::Ask { guid }) => self.handle_ask(from, guid),
            Ok(Control::Vouch { record }) => self.handle_vouch(now, from, record),
            Ok(Control::AskMembers { group }) => self.answer_members(now, from, group),
            Ok(Control::Routing(message)) => self.handle_routing(now, from, message),
            // From a neighbouring router: only hosts attach.
            Ok(Control::Challenge { .. } | Control::Outcome { .. } | Control::Members { .. }) => {}
            Ok(Control::Left { record }) => self.handle_left(now, from, record),
            // It goes to a router by its name, and is answered there.
            Ok(Control::Presence(_)) | Err(_) => self.effects.drop("bad-control"),
        }
    }

    /// A receiver withdraws its request for a content: chunks queued for the port that the message came
    /// from, or stored for it, are no longer wanted.
    fn purge_unwanted(&mut self, now: Time, from: PortId, chunk: &Chunk) {
        let Some(stop) = chunk.stops() else {
            return;
        };
        (self.cache.fetches).stop(&stop.destination, &stop.content);
        let is_meant = |chunk: &Chunk| stop.is_about_chunk(chunk);
        for flow in stop.flows() {
            let purged = self.links.purge(now, from, &flow, is_meant);
            self.effects.counters.chunks_unwanted += purged as u64;
        }
        let here = self
            .binding
            .attachments
            .hops_to(&stop.destination, &self.links);
        if here.iter().any(|branch| branch.port == from) {
            self.proxy.purge(&stop, &mut self.effects);
        }
    }

    /// Handles a chunk for this router itself.
    fn handle_own(&mut self, now: Time, chunk: &Chunk) {
        match chunk.header.upper {
            UpperProtocol::Echo => match Echo::decode(&chunk.message.head) {
                Ok(echo) if !echo.reply => self.say(now, answer_to(chunk, echo, self.config.guid)),
                _ => self.effects.drop("bad-echo"),
            },
            UpperProtocol::Transport => match chunk.transport() {
                Ok(Transport::Push(notice)) => {
                    let (header, effects) = (&chunk.header, &mut self.effects);
                    self.proxy.handle_push(now, header, &notice, effects);
                }
                _ => self.effects.drop("bad-transport"),
            },
            UpperProtocol::Control => match Control::decode(&chunk.message.head) {
                Ok(Control::Presence(about)) => {
                    let effects = &mut self.effects;
                    self.binding
                        .handle_presence(now, &chunk.header, about, effects);
                }
                _ => self.effects.drop("bad-control"),
            },
        }
    }

    /// Forwards a chunk: to an attached host, towards its address, or to be bound.
    pub(super) fn forward(&mut self, now: Time, mut outgoing: ChunkToSend) {
        // Meant for one neighbour that is gone, and for no node behind another one.
        if outgoing.chunk.header.service.has(ServiceId::NEIGHBOUR) {
            return self.effects.drop("neighbour-gone");
        }
        if outgoing.chunk.header.service.has(ServiceId::MULTICAST) {
            match self.forward_multicast(now, outgoing) {
                Some(copy) => outgoing = copy,
                None => return,
            }
        }
        let (links, effects) = (&self.links, &mut self.effects);
        let outcome = self.binding.decide(now, &mut outgoing, links, effects);
        self.carry_on(now, outgoing, outcome);
    }

    pub(super) fn carry_on(&mut self, now: Time, outgoing: ChunkToSend, outcome: BindingOutcome) {
        match outcome {
            BindingOutcome::Send(hops) => self.send_or_store(now, outgoing, &hops),
            BindingOutcome::Wait(name) => self.binding.names.wait(name, outgoing),
            BindingOutcome::Store => self.store_or_give_up(now, outgoing),
            BindingOutcome::Unknown(reason) => self.drop(&outgoing.chunk, reason),
            BindingOutcome::Group => self.forward_to_group(now, outgoing.for_group_below()),
        }
    }

    /// Sends a chunk on one of these next hops, as its service says.
    pub(super) fn send_or_store(&mut self, now: Time, outgoing: ChunkToSend, hops: &NextHops) {
        if self.binding.routes.waits_for_usual(&outgoing, hops) {
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
        let Some(branch) = chosen.next() else {
            self.proxy
                .yield_to_others(now, &outgoing, &mut self.effects);
            return self.store_or_give_up(now, outgoing);
        };
        let outgoing = match self.links.is_crowded(branch.port, &outgoing) {
            true => match self.spill(now, outgoing, hops) {
                Some(outgoing) => outgoing,
                None => return,
            },
            false => outgoing,
        };
        self.send_over(now, outgoing.over(branch, hops), branch.port);
    }

    /// The buffer fills, and a chunk's flow has its part of it: it waits in the storage instead, if
    /// that has room without a loss for others.
    fn spill(&mut self, now: Time, outgoing: ChunkToSend, hops: &NextHops) -> Option<ChunkToSend> {
        if !self.proxy.takes(&outgoing.chunk) {
            return Some(outgoing);
        }
        if let Some(from) = outgoing.from {
            let flow = outgoing.chunk.flow();
            self.proxy.limited.limit(from, flow, Grant::Octets(0));
            self.grant(from, flow, Grant::Octets(0));
            self.timers.set_earlier(Timer::Holds, now + RENEWAL);
        }
        self.store_to_leave(now, outgoing, hops);
        None
    }

    /// Stores a chunk, which leaves by these next hops as they have room.
    pub(super) fn store_to_leave(&mut self, now: Time, outgoing: ChunkToSend, hops: &NextHops) {
        let header = &outgoing.chunk.header;
        let (destination, address) = (header.receiver(), header.destination_address);
        let carried = &header.extensions.addresses;
        // What is stored has no address; it leaves with the one that these next hops stand for.
        let hops = match hops.iter().any(|branch| branch.address.is_some()) {
            true => hops.clone(),
            false if address.is_none() => hops.at_address(self.config.guid),
            false if carried.len() > 1 => hops.at_addresses(carried),
            false => hops.at_address(address),
        };
        self.effects.counters.held_back += 1;
        self.store_or_give_up(now, outgoing);
        self.proxy.openings.open(destination, hops);
    }

    fn send_over(&mut self, now: Time, outgoing: ChunkToSend, port: PortId) {
        if let Err(outgoing) = self.links.enqueue(port, outgoing) {
            self.store_or_give_up(now, outgoing);
        }
    }

    /// A host here has announced `content`: what waits for an answer about it need not.
    pub(super) fn serve_from_here(&mut self, now: Time, content: Guid) {
        if !self.binding.is_served_here(now, content, &self.links) {
            return;
        }
        for outgoing in self.binding.names.take_waiting(&content) {
            self.forward(now, outgoing);
        }
        let answer = self.binding.names.look_up_own(now, &content);
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
        if outgoing.chunk.header.is_for_group() {
            return self.forward_to_group(now, outgoing);
        }
        let (links, effects) = (&self.links, &mut self.effects);
        let binding = &mut self.binding;
        let outcome = binding.bind_waiting(now, &mut outgoing, name, answer, links, effects);
        self.carry_on(now, outgoing, outcome);
    }

    /// The name service has no answer for which a chunk has waited.
    pub(super) fn handle_unresolvable(
        &mut self,
        now: Time,
        mut outgoing: ChunkToSend,
        name: Guid,
        why: Failure,
    ) {
        if outgoing.chunk.header.is_for_group() {
            return match why {
                Failure::NotFound => self.forward_to_group(now, outgoing),
                // The name service is away: it is not asked again for each chunk.
                _ => self.store_or_give_up(now, outgoing),
            };
        }
        let (links, effects) = (&self.links, &mut self.effects);
        let binding = &mut self.binding;
        let outcome = binding.unresolvable(now, &mut outgoing, name, why, links, effects);
        self.carry_on(now, outgoing, outcome);
    }

    pub(super) fn store_or_give_up(&mut self, now: Time, outgoing: ChunkToSend) {
        let learning = &mut self.binding.routes.learning;
        if let Some(outgoing) = learning.hold(now, outgoing, &self.links) {
            self.proxy.store_or_drop(now, outgoing, &mut self.effects);
        }
    }

    /// Drops a chunk and tells its source.
    pub(super) fn drop(&mut self, chunk: &Chunk, reason: DropReason) {
        self.proxy.note_drop(chunk, reason, &mut self.effects);
    }
}

/// Returns the answer of the router `own` to an echo request.
fn answer_to(request: &Chunk, echo: Echo, own: Guid) -> Chunk {
    let answer = Echo {
        reply: true,
        ..echo
    };
    let (service, upper) = (ServiceId::UNICAST, UpperProtocol::Echo);
    let mut header = NetworkHeader::new(service, upper, own, request.header.source);
    header.source_address = own;
    header.destination_address = request.header.source_address;
    Chunk::of_echo(header, &answer)
}
