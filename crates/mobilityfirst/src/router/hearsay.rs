//! Records of hosts that neighbours show: to prove for whom they speak, and that a host has left.

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Kind, Record};

use super::Router;
use crate::wire::{Control, NetworkHeader, ServiceId};

/// Maximum of neighbours and hosts that they were told of; beyond it they are told again.
pub(super) const MAX_CORRECTED: usize = 4_096;

impl Router {
    /// A host is elsewhere, as its own newer record says, whoever shows it: what waits for it here
    /// follows it at once, and who goes on sending it here is told.
    pub(super) fn handle_left(&mut self, now: Time, from: PortId, record: Bytes) {
        let Ok(record) = Record::parse(record) else {
            return self.effects.drop("bad-record");
        };
        let guid = record.subject();
        let routers: Vec<Guid> = record.addresses().map(|at| at.na).collect();
        let attached = self.attachments.version_of(&guid);
        let known = self.names.known(now, &guid).and_then(|it| it.binding);
        let known = attached.or(known.map(|binding| binding.version()));
        let is_news = known.is_some_and(|known| record.version() > known);
        let is_here = routers.contains(&self.config.guid);
        let attachments = &mut self.attachments;
        if record.kind() != Kind::Binding
            || !is_news
            || is_here
            || !attachments.holds(now, from, &record, &mut self.effects)
        {
            return;
        }
        let ports = attachments.detach(&guid, &mut self.effects);
        self.names.learn(now, record);
        self.moved.insert(guid, ());
        self.links.division.leave_addresses(&guid, &routers);
        for port in ports {
            let (links, effects) = (&mut self.links, &mut self.effects);
            for source in self.proxy.send_after(now, guid, port, links, effects) {
                self.correct(now, source, guid);
            }
        }
        self.carry_out(now);
        if let Some(answer) = self.names.known(now, &guid) {
            self.bind_stored(now, guid, &answer);
        }
    }

    /// A chunk for a host that has moved may have the address of its former router, which its source
    /// had from the host's request: it is bound anew.
    pub(super) fn forget_former_address(&mut self, now: Time, header: &mut NetworkHeader) {
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
        if !is_there && at != self.config.guid {
            header.destination_address = Guid::NONE;
            header.extensions.addresses.clear();
        }
    }

    /// A receiver asks by another router than before, although the former one may still reach it: what is
    /// held back here, and by no hop yet, goes to where it asks from. Else all that the source sends from
    /// now on would wait behind it.
    pub(super) fn follow_receiver(&mut self, now: Time, asks: &NetworkHeader) {
        let at = asks.source_address;
        if at.is_none() || asks.service.has(ServiceId::MULTIHOMING) {
            return;
        }
        for mut outgoing in self.links.take_bound_elsewhere(&asks.source, &at) {
            outgoing.chunk.header.destination_address = at;
            self.forward(now, outgoing);
        }
    }

    /// Chunks for a host come from a neighbour that does not know yet that the host has left: it is
    /// told once. Otherwise both would send them to each other.
    pub(super) fn correct(&mut self, now: Time, port: PortId, host: Guid) {
        let known = self.names.known(now, &host);
        let Some(binding) = known.and_then(|answer| answer.binding) else {
            return;
        };
        let is_here = binding.addresses().any(|at| at.na == self.config.guid);
        // A host has its chunks bound by its routers.
        let neighbour = self.links.neighbour(port);
        if neighbour.is_none_or(|neighbour| self.attachments.is_on(&neighbour, port)) {
            return;
        }
        let version = binding.version();
        if !is_here && self.corrected.insert((port, host), version) != Some(version) {
            let record = Bytes::copy_from_slice(binding.as_bytes());
            self.tell(port, &Control::Left { record });
        }
    }

    /// A neighbour asks about a source behind this router.
    pub(super) fn handle_ask(&mut self, from: PortId, source: Guid) {
        let info = self.links.info(from);
        let may_wait = info.is_some_and(|info| info.origin.is_chosen());
        let effects = &mut self.effects;
        self.sources.handle_ask((from, may_wait), source, effects);
    }

    pub(super) fn handle_vouch(&mut self, now: Time, from: PortId, record: Bytes) {
        let Some(neighbour) = self.links.neighbour(from) else {
            return;
        };
        let at = self.links.source_of(from);
        let (about, wall) = ((from, at, neighbour), self.config.wall);
        let effects = &mut self.effects;
        let waited = self.sources.handle_vouch(now, about, record, wall, effects);
        for outgoing in waited {
            if let Some(address) = self.place_of_source(now, from, &outgoing.chunk.header) {
                self.handle_proven(now, from, outgoing, address);
            }
        }
    }
}
