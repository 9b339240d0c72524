//! Chunks and messages that leave a host.

use whimbrel_core::{Guid, PortId};
use whimbrel_link::Room;

use super::{Host, Way, small};
use crate::chunk::Chunk;
use crate::links::ChunkToSend;
use crate::next_hops::Spread;
use crate::outbox::flow_of;
use crate::wire::{Control, NetworkHeader, ServiceId, Transport, UpperProtocol};

impl Host {
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
    /// node answers on that way.
    pub(super) fn send(&mut self, way: Way, chunk: Chunk) -> bool {
        let hops = self.uplinks.hops(way, &self.links);
        let mut spread = Spread::of_chunk(&chunk);
        // What this host sends is its own to divide.
        if way == Way::Uplink
            && flow_of(&chunk) == Some(chunk.flow())
            && self.uplinks.are_several(&self.links)
        {
            spread = Spread::Divide;
        }
        if spread == Spread::Divide
            && hops.best().is_some()
            && self.links.division.may_divide(&chunk.flow(), &hops)
        {
            let outgoing = ChunkToSend {
                chunk,
                room: Room::default(),
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
                room: Room::default(),
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
        service: ServiceId,
        (to, address): (Guid, Guid),
        request_id: Option<u64>,
        message: &Transport,
    ) -> bool {
        let asks = matches!(
            message,
            Transport::Request(_) | Transport::Nack(_) | Transport::Resend(_)
        );
        let service = match asks && way == Way::Uplink && self.uplinks.may_be_several(&self.links) {
            true => service.with(ServiceId::MULTIHOMING),
            false => service,
        };
        let mut header = self.header(way, service, UpperProtocol::Transport, to, address);
        header.extensions.request = request_id;
        self.send(way, Chunk::of_transport(header, message))
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
