//! Host records shown by neighbours: to prove the sources that they send for, and that a host has left.

use bytes::Bytes;
use whimbrel_core::{Guid, PortId, Time};
use whimbrel_gnrs::{Kind, Record};

use super::Router;
use super::effects::Action;
use crate::wire::{NetworkHeader, ServiceId};

impl Router {
    /// A host has moved, as its own newer record proves, regardless of who shows it: chunks waiting for it
    /// here follow at once, and nodes that still send for it here are told.
    pub(super) fn handle_left(&mut self, now: Time, from: PortId, record: Bytes) {
        let Ok(record) = Record::parse(record) else {
            return self.effects.drop("bad-record");
        };
        let guid = record.subject();
        let routers: Vec<Guid> = record.addresses().map(|at| at.na).collect();
        let attached = self.binding.attachments.version_of(&guid);
        let known = self.binding.names.known(now, &guid);
        let known = known.and_then(|it| it.binding);
        let known = attached.or(known.map(|binding| binding.version()));
        let is_news = known.is_some_and(|known| record.version() > known);
        let is_here = routers.contains(&self.config.guid);
        let attachments = &mut self.binding.attachments;
        if record.kind() != Kind::Binding
            || !is_news
            || is_here
            || !attachments.holds(now, from, &record, &mut self.effects)
        {
            return;
        }
        let ports = attachments.detach(&guid, &mut self.effects);
        self.binding.note_moved(now, guid, record);
        self.links.division.leave_addresses(&guid, &routers);
        for port in ports {
            let (links, effects) = (&mut self.links, &mut self.effects);
            for source in self.proxy.send_after(now, guid, port, links, effects) {
                let (links, effects) = (&self.links, &mut self.effects);
                self.binding.correct(now, source, guid, links, effects);
            }
        }
        self.effects.push(Action::BindStored(guid));
        self.carry_out(now);
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

    /// A neighbour asks about a source behind this router.
    pub(super) fn handle_ask(&mut self, from: PortId, source: Guid) {
        let info = self.links.info(from);
        let may_wait = info.is_some_and(|info| info.origin.is_chosen());
        let effects = &mut self.effects;
        self.sources.handle_ask(from, source, may_wait, effects);
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
