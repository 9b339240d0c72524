//! What may be sent now: room in the links, flows that a router holds back, chunks that no
//! receiver wants any more.

use whimbrel_core::{Guid, PortId, Time};

use super::{Host, Way};
use crate::chunk::{Chunk, Flow};
use crate::wire::Hold;

impl Host {
    /// Has programs read as many chunks as the links will take soon. Returns true if any was
    /// requested.
    pub(super) fn read_ahead(&mut self, now: Time) -> bool {
        if self.links.take_resumed() {
            self.uploads.go_on_with_held();
        }
        let (links, uplinks, source) = (&self.links, &self.uplinks, self.guid);
        if !links.ports().any(|port| links.has_room(port)) {
            return false;
        }
        let flow = |destination| Flow {
            source,
            destination,
        };
        let several = uplinks.are_several(links);
        let hops = uplinks.hops(Way::Uplink, links);
        let is_held = |way, client| {
            if several && way == Way::Uplink {
                let flow = flow(client);
                return hops.iter().all(|it| links.is_held(it.port, &flow));
            }
            let port = uplinks.port_by(way, links);
            port.is_some_and(|port| links.is_held(port, &flow(client)))
        };
        let should_get_ready = |way, client, content: &Guid| {
            let port = uplinks.port_by(way, links).filter(|_| !several);
            port.is_some_and(|port| links.should_get_ready(port, &flow(client), content))
        };
        let has_room = |way, client| {
            let flow_to = flow(client);
            if several && way == Way::Uplink && links.may_divide(&flow_to, &hops) {
                return links.has_room_to_divide(&flow_to, &hops);
            }
            let port = uplinks.port_by(way, links);
            port.is_some_and(|port| links.has_room_for(port, &flow(client)))
        };
        self.uploads.read_ahead(
            now,
            (is_held, should_get_ready),
            has_room,
            &mut self.effects,
        )
    }

    /// Handles a neighbour's message Hold about flows that this host sends through it.
    pub(super) fn handle_hold(&mut self, now: Time, port: PortId, hold: &Hold) {
        if !self.links.hold(now, port, hold) {
            self.effects.drop("too-many-holds");
        }
    }

    /// Purges the chunks on their way to a client that takes back its request.
    pub(super) fn purge_unwanted(&mut self, now: Time, from: PortId, chunk: &Chunk) {
        if let Some((flow, content)) = chunk.stops() {
            let is_meant = |chunk: &Chunk| chunk.data().is_some_and(|it| it.content == content);
            self.links.purge(now, from, &flow, is_meant);
        }
    }
}
