//! Chunks that a silent neighbour has not acknowledged leave by another way.

use super::*;
use crate::router::routes::Routes;

impl Proxy {
    /// Takes back what the silent neighbour on a port has not acknowledged, as far as another way leads where it goes, and
    /// sends it there. The neighbour may have it nevertheless; receivers drop what they have.
    pub(in crate::router) fn send_around(
        &mut self,
        now: Time,
        port: PortId,
        routes: &Routes,
        links: &mut Links,
        effects: &mut Effects,
    ) {
        for (carried, outgoing) in links.neighbours.carried(port) {
            if !leads_around(&outgoing, port, routes, links) {
                continue;
            }
            self.forget_lingering(carried);
            if let Some(outgoing) = links.withdraw(now, carried) {
                effects.counters.sent_around += 1;
                effects.push(Action::Forward(outgoing));
            }
        }
    }
}

/// Returns true if learned ways lead a chunk elsewhere than to this port. A divided flow has its own order, and goes on by its
/// other branches; what is meant for the neighbour is for nobody elsewhere.
fn leads_around(outgoing: &ChunkToSend, port: PortId, routes: &Routes, links: &Links) -> bool {
    let header = &outgoing.chunk.header;
    let address = match header.destination_address.is_none() {
        true => &header.destination,
        false => &header.destination_address,
    };
    outgoing.order.is_none()
        && !header.service.has(ServiceId::NEIGHBOUR)
        && routes.leads_around(address, port, links)
}
