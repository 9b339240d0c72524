//! Chunks and messages that leave a host.

use whimbrel_core::{Guid, PortId};
use whimbrel_link::Room;

use super::effects::{Action, Treatment};
use super::{Host, Way, small};
use crate::chunk::Chunk;
use crate::links::ChunkToSend;
use crate::local::LocalEvent;
use crate::next_hops::Spread;
use crate::outbox::flow_of;
use crate::wire::{Control, NetworkHeader, ServiceId, Transport, UpperProtocol};

impl Host {
    /// Carries out the actions of the parts until there are none left.
    pub(super) fn carry_out(&mut self) {
        while let Some(action) = self.effects.next() {
            match action {
                Action::Send {
                    way,
                    treatment,
                    to,
                    address,
                    request_id,
                    message,
                } => {
                    // A receiver that misses it asks again.
                    let at = (to, address);
                    let way = self.way_to(way, &to);
                    self.send_transport(way, treatment, at, request_id, &message);
                }
                Action::SendMessage {
                    way,
                    treatment,
                    to,
                    message,
                    room,
                } => {
                    let way = self.way_to(way, &to);
                    let Treatment {
                        service, divides, ..
                    } = treatment;
                    let upper = UpperProtocol::Transport;
                    let mut header = self.header(way, service, upper, to, Guid::NONE);
                    header.extensions.lifetime_ms = treatment.lifetime_ms;
                    let chunk = Chunk::of_transport(header, &message);
                    self.send_holding(way, chunk, divides, &room);
                }
                Action::Echo {
                    way,
                    to,
                    address,
                    echo,
                } => {
                    let upper = UpperProtocol::Echo;
                    let header = self.header(way, ServiceId::UNICAST, upper, to, address);
                    let mut head = Vec::new();
                    echo.encode(&mut head);
                    if !self.send(way, small(header, head), None) {
                        self.effects.drop("no-router");
                    }
                }
                Action::Control(port, control) => self.send_control(port, &control),
                Action::Leave(router, control) => {
                    let (way, upper) = (Way::Uplink, UpperProtocol::Control);
                    let header = self.header(way, ServiceId::UNICAST, upper, router, router);
                    let mut head = Vec::new();
                    control.encode(&mut head);
                    // If it is lost, the router learns of it from silence.
                    self.send(way, small(header, head), None);
                }
                Action::AskMembers(group) => self.ask_members(group),
                Action::Announce(content) => self.registration.announce(content),
                Action::Withdraw(contents) => self.registration.withdraw_announcements(contents),
                Action::Tell(app, event) => {
                    if !self.programs.tell(app, event, Room::default()) {
                        self.effects.drop("local-report");
                    }
                }
                // A chunk is no report, so it is not dropped.
                Action::HandOver(app, chunk, load) => {
                    self.programs.tell(app, LocalEvent::Chunk(chunk), load);
                }
                Action::Set(timer, at) => self.timers.set(timer, at),
                Action::SetEarlier(timer, at) => self.timers.set_earlier(timer, at),
                Action::Cancel(timer) => {
                    self.timers.cancel(&timer);
                }
            }
        }
    }

    pub(super) fn header(
        &self,
        way: Way,
        service: ServiceId,
        upper: UpperProtocol,
        to: Guid,
        address: Guid,
    ) -> NetworkHeader {
        let mut header = NetworkHeader::new(service, upper, self.guid, to);
        header.source_address = self
            .uplinks
            .port_by(way, &self.links)
            .and_then(|port| self.links.neighbour(port))
            .unwrap_or(Guid::NONE);
        header.destination_address = address;
        header
    }

    /// Sends a chunk of this host by as many next hops as its service asks for. Returns false if no
    /// node answers on that way. `divides` goes before the policy.
    pub(super) fn send(&mut self, way: Way, chunk: Chunk, divides: Option<bool>) -> bool {
        self.send_holding(way, chunk, divides, &Room::default())
    }

    /// The same for a chunk that holds room until it has left.
    fn send_holding(&mut self, way: Way, chunk: Chunk, divides: Option<bool>, room: &Room) -> bool {
        let hops = match divides {
            Some(true) => self.uplinks.hops(way, &self.links).as_equals(),
            Some(false) | None => self.uplinks.hops(way, &self.links),
        };
        let mut spread = Spread::of_chunk(&chunk);
        // What this host sends is its own to divide.
        if way == Way::Uplink && flow_of(&chunk) == Some(chunk.flow()) {
            let several = || self.uplinks.are_several(&self.links);
            spread = match divides.unwrap_or_else(several) {
                true => Spread::Divide,
                false if divides == Some(false) => Spread::Best,
                false => spread,
            };
        }
        if spread == Spread::Divide
            && hops.best().is_some()
            && self.links.division.may_divide(&chunk.flow(), &hops)
        {
            let outgoing = ChunkToSend {
                chunk,
                room: room.clone(),
                from: None,
                origin: None,
                order: None,
            };
            self.links.divide(outgoing, &hops);
            return true;
        }
        let chosen = hops.select(spread, chunk.flow(), chunk.size(), &mut self.divisions);
        let mut sent = false;
        for branch in chosen {
            let outgoing = ChunkToSend {
                chunk: chunk.clone(),
                room: room.clone(),
                from: None,
                origin: None,
                order: None,
            };
            sent |= self.links.enqueue(branch.port, outgoing).is_ok();
        }
        sent
    }

    pub(super) fn send_transport(
        &mut self,
        way: Way,
        treatment: Treatment,
        (to, address): (Guid, Guid),
        request_id: Option<u64>,
        message: &Transport,
    ) -> bool {
        let asks = matches!(
            message,
            Transport::Request(_) | Transport::Nack(_) | Transport::Resend(_)
        );
        let Treatment {
            service, divides, ..
        } = treatment;
        let may_be_several = || self.uplinks.may_be_several(&self.links);
        let asks = asks && way == Way::Uplink;
        let service = match asks && divides.unwrap_or_else(may_be_several) {
            true => service.with(ServiceId::MULTIHOMING),
            false => service,
        };
        let mut header = self.header(way, service, UpperProtocol::Transport, to, address);
        header.extensions.request = request_id;
        header.extensions.lifetime_ms = treatment.lifetime_ms;
        header.extensions.nack_routers = treatment.nack_routers;
        self.send(way, Chunk::of_transport(header, message), divides)
    }

    /// Sends a control message to the router on a port, unless the port is gone.
    pub(super) fn send_control(&mut self, port: PortId, control: &Control) {
        let Some(router) = self.links.neighbour(port) else {
            return;
        };
        let (service, upper) = (ServiceId::NEIGHBOUR, UpperProtocol::Control);
        let header = NetworkHeader::new(service, upper, self.guid, router);
        let mut head = Vec::new();
        control.encode(&mut head);
        let outgoing = ChunkToSend {
            chunk: small(header, head),
            room: Room::default(),
            from: None,
            origin: None,
            order: None,
        };
        let _ = self.links.enqueue(port, outgoing);
    }
}
