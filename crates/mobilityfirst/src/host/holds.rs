//! What may be sent now: room in the links, flows that a router holds back, chunks that no
//! receiver wants any more.

use whimbrel_core::{Guid, PortId, Time};

use super::access::Access;
use super::upload::Client;
use super::{Host, Way};
use crate::chunk::Chunk;
use crate::next_hops::NextHops;
use crate::wire::Flow;

/// What the links say of a receiver while chunks are read for it.
pub(super) struct ReadAhead<'a> {
    access: &'a Access,
    are_several: bool,
    // Of the uplinks.
    hops: NextHops,
}

impl ReadAhead<'_> {
    fn flow_to(&self, client: Client) -> Flow {
        Flow {
            source: self.access.guid(),
            destination: client.name,
            is_offered: client.is_sent,
        }
    }

    /// Returns the port by which a flow goes that is not divided here.
    fn undivided_port(&self, way: Way, flow: &Flow) -> Option<PortId> {
        let is_divided = self.are_several
            && way == Way::Uplink
            && self.access.links.division.may_divide(flow, &self.hops);
        self.access.port_by(way).filter(|_| !is_divided)
    }

    /// Returns true if what goes to a receiver is held back.
    pub(super) fn is_held(&self, client: Client) -> bool {
        let flow = self.flow_to(client);
        let is_held = |port| {
            self.access
                .links
                .at(port)
                .is_some_and(|link| link.is_held(&flow))
        };
        if self.are_several && client.way == Way::Uplink {
            return self.hops.iter().all(|it| is_held(it.port));
        }
        let port = self.access.port_by(client.way);
        port.is_some_and(is_held)
    }

    /// Returns true if a chunk of a content should wait for the end of a hold.
    pub(super) fn should_get_ready(&self, client: Client, content: &Guid) -> bool {
        let flow = self.flow_to(client);
        let port = self.undivided_port(client.way, &flow);
        let link = port.and_then(|port| self.access.links.at(port));
        link.is_some_and(|link| link.should_get_ready(&flow, content))
    }

    /// Returns true if what goes to a receiver by one link takes long to leave.
    pub(super) fn is_full_for_long(&self, client: Client) -> bool {
        let port = self.undivided_port(client.way, &self.flow_to(client));
        port.is_some_and(|port| self.access.links.is_full_for_long(port))
    }

    /// Returns true if one more chunk would not wait long.
    pub(super) fn has_room(&self, client: Client) -> bool {
        let (links, flow) = (&self.access.links, self.flow_to(client));
        match self.undivided_port(client.way, &flow) {
            Some(port) => links.at(port).is_some_and(|link| link.has_room_for(&flow)),
            None => links.has_room_to_divide(&flow, &self.hops),
        }
    }
}

impl Host {
    /// Has programs read as many chunks as the links will take soon. Returns true if any was
    /// requested.
    pub(super) fn read_ahead(&mut self, now: Time) -> bool {
        if self.access.links.take_resumed() {
            self.uploads.contents.resume_held();
        }
        let links = &self.access.links;
        if !(links.ports()).any(|port| links.has_room(port) || links.is_full_for_long(port)) {
            return false;
        }
        let ahead = ReadAhead {
            access: &self.access,
            are_several: self.access.are_several(),
            hops: self.access.hops(Way::Uplink),
        };
        self.uploads.read_ahead(now, &ahead, &mut self.effects)
    }

    /// Purges the chunks on their way to a client that takes back its request.
    pub(super) fn purge_unwanted(&mut self, now: Time, from: PortId, chunk: &Chunk) {
        if let Some(stop) = chunk.stops() {
            let is_meant = |chunk: &Chunk| stop.is_about_chunk(chunk);
            for flow in stop.flows() {
                self.access.links.purge(now, from, &flow, is_meant);
            }
        }
    }
}
