//! Records of hosts that neighbours show: to prove for whom they speak, and that a host has left.

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::Record;

use super::Router;

impl Router {
    /// A host has left for another router: what waits for it here follows it at once.
    pub(super) fn handle_left(&mut self, now: Time, from: PortId, record: Bytes) {
        let Ok(record) = Record::parse(record) else {
            return self.effects.drop("bad-record");
        };
        let guid = record.subject();
        let attachments = &mut self.attachments;
        let Some(ports) = attachments.depart(now, from, &record, &mut self.effects) else {
            return;
        };
        self.names.learn(now, record);
        for port in ports {
            (self.proxy).send_after(now, guid, port, &mut self.links, &mut self.effects);
        }
        self.carry_out(now);
        if let Some(answer) = self.names.known(now, &guid) {
            self.bind_stored(now, guid, &answer);
        }
    }

    /// A router that this one calls asks about a source behind this one. Inbound peers have no reason
    /// to ask.
    pub(super) fn handle_ask(&mut self, from: PortId, source: Guid) {
        let info = self.links.info(from);
        match info.is_some_and(|info| info.origin.is_chosen()) {
            true => self.sources.handle_ask(from, source, &mut self.effects),
            false => self.effects.drop("asked-by-a-caller"),
        }
    }

    pub(super) fn handle_vouch(&mut self, now: Time, from: PortId, record: Bytes) {
        let Some(neighbour) = self.links.neighbour(from) else {
            return;
        };
        let (about, wall) = ((from, neighbour), self.config.wall);
        let effects = &mut self.effects;
        let waited = self.sources.handle_vouch(now, about, record, wall, effects);
        for outgoing in waited {
            if let Some(address) = self.place_of_source(now, from, &outgoing.chunk.header) {
                self.handle_proven(now, from, outgoing, address);
            }
        }
    }
}
