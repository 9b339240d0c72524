//! Where a chunk goes next: late binding and forwarding.

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Address, Answer, Failure, Lookup};

use super::{NextHop, Router};
use crate::charge::Charge;
use crate::chunk::{Chunk, Message};
use crate::links::Outgoing;
use crate::room::Room;
use crate::wire::{Control, DropReason, Echo, NetworkHeader, ServiceId, Transport, UpperProtocol};

/// What stands between a destination and a chunk for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// This port's neighbour is it, or is nearer to it, and answers.
    Open(PortId),
    /// This port's neighbour does not answer.
    Silent(PortId),
    /// No route.
    None,
}

impl Router {
    /// A whole chunk has come in from a neighbour.
    pub(super) fn handle_chunk(&mut self, now: Time, from: PortId, bytes: &Bytes, room: Room) {
        self.counters.chunks_received += 1;
        let chunk = match Chunk::decode(bytes) {
            Ok(chunk) => chunk,
            Err(fault) => {
                tracing::debug!(%from, %fault, "bad chunk");
                return self.counters.drop("bad-chunk");
            }
        };
        let mut outgoing = Outgoing {
            chunk,
            room,
            charge: Charge::default(),
        };
        let header = &mut outgoing.chunk.header;
        if header.upper == UpperProtocol::Control || header.service.has(ServiceId::NEIGHBOUR) {
            self.handle_control(now, from, &outgoing.chunk.message.head);
        } else if header.destination == self.config.guid {
            self.handle_own(now, &outgoing.chunk);
        } else if header.hop_limit == 0 {
            self.note_drop(&outgoing.chunk, DropReason::HopLimit);
        } else {
            header.hop_limit -= 1;
            self.forward(now, outgoing);
        }
    }

    fn handle_control(&mut self, now: Time, from: PortId, message: &Bytes) {
        match Control::decode(message) {
            Ok(Control::Attach { record, signature }) => {
                self.handle_attach(now, from, record, signature)
            }
            Ok(Control::Register { record }) => self.handle_register(now, from, record),
            // A neighbouring router's: only hosts attach.
            Ok(Control::Challenge { .. } | Control::Outcome { .. }) => {}
            Err(_) => self.counters.drop("bad-control"),
        }
    }

    /// A chunk for this router itself.
    fn handle_own(&mut self, now: Time, chunk: &Chunk) {
        match chunk.header.upper {
            UpperProtocol::Echo => match Echo::decode(&chunk.message.head) {
                Ok(echo) if !echo.reply => self.answer_echo(now, chunk, echo),
                _ => self.counters.drop("bad-echo"),
            },
            UpperProtocol::Transport => match chunk.transport() {
                Ok(Transport::Push(notice)) => self.handle_push(now, &chunk.header, &notice),
                _ => self.counters.drop("bad-transport"),
            },
            UpperProtocol::Control => self.counters.drop("bad-control"),
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

    /// Sends a chunk on its way: to an attached host, towards its address, or to be bound.
    pub(super) fn forward(&mut self, now: Time, mut outgoing: Outgoing) {
        if let Some(port) = self.attachment_of(&outgoing.chunk.header) {
            return self.send_or_store(now, outgoing, self.way_over(port));
        }
        let address = outgoing.chunk.header.destination_address;
        if address == self.config.guid {
            // Bound to this router, but its host is not here (any more): the binding is stale.
            outgoing.chunk.header.destination_address = Guid::NONE;
            outgoing.chunk.header.extensions.via = None;
        }
        if outgoing.chunk.header.destination_address.is_none() {
            if !self.is_known_router(&outgoing.chunk.header.destination) {
                return self.ask_for_binding(now, outgoing);
            }
            outgoing.chunk.header.destination_address = outgoing.chunk.header.destination;
        }
        let address = outgoing.chunk.header.destination_address;
        self.send_or_store(now, outgoing, self.way_to(&address));
    }

    /// The port of the host that a chunk is for, or that serves the content that it asks for.
    fn attachment_of(&self, header: &NetworkHeader) -> Option<PortId> {
        let of = |guid: &Guid| self.attachments.port_of(guid);
        of(&header.destination).or_else(|| header.extensions.via.as_ref().and_then(of))
    }

    /// True if a name is that of a router in this one's configuration: such a name is its own
    /// address. Who calls here may say any name, so callers do not count.
    fn is_known_router(&self, name: &Guid) -> bool {
        let configured = |port| {
            self.links
                .info(port)
                .is_some_and(|info| info.origin.is_chosen())
        };
        self.config.routes.iter().any(|route| route.to == *name)
            || self.links.port_of(name).is_some_and(configured)
    }

    fn way_over(&self, port: PortId) -> Way {
        if self.links.is_up(port) {
            Way::Open(port)
        } else {
            Way::Silent(port)
        }
    }

    /// The way to a network address: a neighbour's own, by a route, or by the default route.
    pub(super) fn way_to(&self, address: &Guid) -> Way {
        let port = self.links.port_of(address).or_else(|| {
            let route = self.config.routes.iter().find(|route| route.to == *address);
            match route
                .map(|route| &route.via)
                .or(self.config.default_route.as_ref())?
            {
                NextHop::Neighbour(guid) => self.links.port_of(guid),
                NextHop::Link(link) => self.links.port_of_link(*link),
            }
        });
        port.map_or(Way::None, |port| self.way_over(port))
    }

    fn send_or_store(&mut self, now: Time, outgoing: Outgoing, way: Way) {
        match way {
            Way::Open(port) => {
                if let Err(outgoing) = self.links.enqueue(port, outgoing) {
                    self.store_or_give_up(now, outgoing);
                }
            }
            Way::Silent(_) | Way::None => self.store_or_give_up(now, outgoing),
        }
    }

    /// Asks the name service for the chunk's destination (or for the host that serves it); all
    /// chunks that wait for one name share one look-up.
    fn ask_for_binding(&mut self, now: Time, outgoing: Outgoing) {
        let header = &outgoing.chunk.header;
        let name = header.extensions.via.unwrap_or(header.destination);
        match self.look_up(now, name) {
            Lookup::Resolved(answer) => self.bind(now, outgoing, name, &answer),
            Lookup::NotFound => self.handle_unresolvable(now, outgoing, name, Failure::NotFound),
            Lookup::Pending => self.unbound.entry(name).or_default().push(outgoing),
            Lookup::Busy => self.store_or_give_up(now, outgoing),
        }
    }

    /// The name service has answered for `name`, which stands for the chunk's destination.
    pub(super) fn bind(&mut self, now: Time, mut outgoing: Outgoing, name: Guid, answer: &Answer) {
        if let Some(address) = self.pick_address(answer) {
            outgoing.chunk.header.destination_address = address;
            return self.send_or_store(now, outgoing, self.way_to(&address));
        }
        if name == outgoing.chunk.header.destination
            && let Some(provider) = self.pick_provider(answer)
        {
            outgoing.chunk.header.extensions.via = Some(provider);
            return match self.attachments.port_of(&provider) {
                Some(port) => self.send_or_store(now, outgoing, self.way_over(port)),
                None => self.ask_for_binding(now, outgoing),
            };
        }
        // "The destination does not have an active network address binding" [MFTP §3.3].
        self.store_or_give_up(now, outgoing);
    }

    /// The preferred address of a binding. This router's own is none: the host would be attached.
    pub(super) fn pick_address(&self, answer: &Answer) -> Option<Guid> {
        let addresses = answer
            .binding
            .as_ref()?
            .addresses()
            .filter(|at| at.na != self.config.guid);
        let reachable = |at: &Address| matches!(self.way_to(&at.na), Way::Open(_));
        let mut by_preference: Vec<Address> = addresses.collect();
        by_preference.sort_by_key(|at| at.preference);
        by_preference
            .iter()
            .find(|at| reachable(at))
            .or(by_preference.first())
            .map(|at| at.na)
    }

    /// "The network will route the request to the location of a copy" [MFTP §2]: an attached one
    /// that answers, else any, so that a requestor that asks again may meet another.
    pub(super) fn pick_provider(&mut self, answer: &Answer) -> Option<Guid> {
        let providers: Vec<Guid> = answer
            .providers
            .iter()
            .map(|record| record.signer())
            .collect();
        let answers = |guid: &&Guid| {
            let port = self.attachments.port_of(guid);
            port.is_some_and(|port| self.links.is_up(port))
        };
        if let Some(here) = providers.iter().find(answers) {
            return Some(*here);
        }
        let any = self.rng.below(providers.len() as u64) as usize;
        providers.get(any).copied()
    }

    /// False if a chunk for this provider would have to be stored at once.
    pub(super) fn may_reach(&mut self, now: Time, provider: Guid) -> bool {
        if let Some(port) = self.attachments.port_of(&provider) {
            return self.links.is_up(port);
        }
        match self.look_up(now, provider) {
            Lookup::Resolved(answer) => self
                .pick_address(&answer)
                .is_some_and(|address| matches!(self.way_to(&address), Way::Open(_))),
            Lookup::Pending => true,
            Lookup::NotFound | Lookup::Busy => false,
        }
    }

    pub(super) fn handle_unresolvable(
        &mut self,
        now: Time,
        outgoing: Outgoing,
        name: Guid,
        why: Failure,
    ) {
        let header = &outgoing.chunk.header;
        let asks_for_content =
            header.service.has(ServiceId::CONTENT_REQUEST) && name == header.destination;
        if why == Failure::NotFound && asks_for_content {
            self.note_drop(&outgoing.chunk, DropReason::NoSuchName);
        } else {
            self.store_or_give_up(now, outgoing);
        }
    }

    fn store_or_give_up(&mut self, now: Time, outgoing: Outgoing) {
        if outgoing.chunk.header.service.has(ServiceId::DELAY_TOLERANT) {
            self.store_chunk(now, outgoing.chunk);
        } else {
            self.note_drop(&outgoing.chunk, DropReason::Unreachable);
        }
    }
}
