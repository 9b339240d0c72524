//! Path-specified forwarding: Interests with a path tag, and those that ask for one.
//!
//! "The router forwards the received Interest packets to the interface as specified" ([PTP
//! §3-B]) if that is valid for the name, "otherwise, the name-based routing scheme is
//! applied" (section 1). `docs/protocols/ptp.md` lists what the paper leaves open.

use bytes::Bytes;
use whimbrel_core::{Limit, Time};
use whimbrel_ndn_packet::lp::Tag;
use whimbrel_ndn_packet::{LpHeader, LpPacket, NackReason};

use super::{Engine, Incoming};
use crate::counters::DropReason;
use crate::face::FaceId;
use crate::forwarder::Forwarder;
use crate::strategy::Context;
use crate::tables::labels::Labelled;
use crate::tables::name_key::NameKey;
use crate::tables::pit::PathRole;

/// The path that an Interest specifies or asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathWish<'a> {
    pub(crate) role: PathRole,
    /// The face of the tag's top label.
    face: Option<Labelled>,
    /// The labels below.
    rest: Tag<'a>,
    is_tagged: bool,
}

impl PathWish<'_> {
    /// Returns the path's fields of an Interest that is forwarded. One that leaves its path keeps
    /// an empty tag: the labels below belong to a path that it no longer follows, but routers
    /// further on know that its consumer distinguishes caches from producers.
    pub(crate) fn fields(
        &self,
        follows: bool,
        attached: Option<Box<LpHeader>>,
    ) -> Option<Box<LpHeader>> {
        if self.role == PathRole::None && attached.is_none() {
            return None;
        }
        let mut fields = attached.unwrap_or_default();
        fields.path_tag = self.is_tagged.then(|| match follows {
            true => Bytes::copy_from_slice(self.rest.octets()),
            false => Bytes::new(),
        });
        fields.path_discovery = self.role == PathRole::Probing;
        fields.intermediate = false;
        Some(fields)
    }
}

impl Engine {
    /// Gives a new face its label.
    pub(crate) fn label(&mut self, face: FaceId) {
        let label = self.labels.add(face);
        if let Some(face) = self.faces.get_mut(face) {
            face.label = label;
        }
    }

    /// Reads the path's fields of an Interest.
    #[inline]
    pub(super) fn path_wish<'a>(
        &mut self,
        now: Time,
        from: FaceId,
        lp: &LpPacket<'a>,
    ) -> PathWish<'a> {
        if lp.path_tag.is_none() && !lp.path_discovery {
            return PathWish::default();
        }
        self.specified_wish(now, from, lp)
    }

    fn specified_wish<'a>(&mut self, now: Time, from: FaceId, lp: &LpPacket<'a>) -> PathWish<'a> {
        let top = lp.path_tag.and_then(|tag| Tag::new(tag).pop());
        let role = if lp.path_discovery {
            let limit = Limit::per_second(self.config.path_probes_per_second);
            let face = self.faces.get_mut(from);
            if face.is_some_and(|face| face.probes.admits(now, limit)) {
                self.counters.path_probes += 1;
                PathRole::Probing
            } else {
                self.counters.path_probes_refused += 1;
                PathRole::Refused
            }
        } else {
            PathRole::Tagged
        };
        PathWish {
            role,
            face: top.and_then(|(label, _)| self.labels.find(label)),
            rest: top.map_or(Tag::default(), |(_, rest)| rest),
            is_tagged: lp.path_tag.is_some(),
        }
    }

    /// True if a face is a next hop of the Interest's name. "The router must check if the specified
    /// interface is working before forwarding the Interest packet" ([PTP §4-B]).
    fn look_up_next_hop(&mut self, slot: u32, key: &NameKey, face: FaceId) -> bool {
        let Some(entry) = self.pit.get(slot).filter(|entry| entry.hint().is_empty()) else {
            let context = Context::of_entry(self, Time::ZERO, slot);
            return context.route().1.iter().any(|hop| hop.face == face);
        };
        let name = entry.name_value();
        let hops = self.fab.next_hops(&self.fib, &self.hasher, key, name);
        hops.iter().any(|hop| hop.face == face)
    }

    /// Returns true if an upstream already works on the Interest for another consumer, or on this
    /// very packet. A retransmission is forwarded again: what it replaces may be lost.
    fn is_aggregated(
        &self,
        now: Time,
        slot: u32,
        face: FaceId,
        incoming: &Incoming<'_>,
        again: bool,
    ) -> bool {
        let record = self.pit.get(slot).and_then(|entry| entry.out_record(face));
        record.is_some_and(|record| {
            record.is_pending(now) && (!again || record.nonce == incoming.nonce())
        })
    }
}

impl Forwarder {
    /// Forwards an Interest along its path, or one that asks for a path; returns false if it must
    /// be forwarded by its name. `again`: it is not the first one from its face.
    pub(super) fn follow_path(
        &mut self,
        now: Time,
        slot: u32,
        incoming: &Incoming<'_>,
        again: bool,
    ) -> bool {
        let engine = &mut self.engine;
        match incoming.path.face {
            Some(Labelled::Face(face)) if engine.faces.get(face).is_some_and(|face| face.up) => {
                let is_valid = engine.look_up_next_hop(slot, incoming.key, face);
                let eligible = Context::of_interest(engine, now, slot, incoming).is_eligible(face);
                if is_valid && eligible {
                    engine.counters.path_followed += 1;
                    if !engine.is_aggregated(now, slot, face, incoming, again) {
                        Context::of_interest(engine, now, slot, incoming).follow(face);
                    }
                    return true;
                }
            }
            // "In some cases, such as a link (a hop) in an in-use path fails, the router will
            // proactively return NACK packets" ([PTP §4-C]).
            Some(Labelled::Face(_) | Labelled::Gone) => {
                engine.counters.drop(DropReason::PathGone);
                let mut context = Context::of_interest(engine, now, slot, incoming);
                context.send_nack(incoming.from, NackReason::NoRoute);
                context.reject();
                return true;
            }
            None => {}
        }
        engine.counters.path_by_name += u64::from(incoming.path.is_tagged);
        incoming.path.role == PathRole::Probing && self.probe(now, slot, incoming, again)
    }

    /// Forwards an Interest that asks for a path to a next hop of the strategy's choice.
    fn probe(&mut self, now: Time, slot: u32, incoming: &Incoming<'_>, again: bool) -> bool {
        let strategy = self
            .strategies
            .effective(&mut self.engine, slot, Some(incoming.key));
        let mut context = Context::of_interest(&mut self.engine, now, slot, incoming);
        let chosen = self
            .strategies
            .get_mut(strategy)
            .and_then(|strategy| strategy.choose_probed(&mut context))
            .filter(|face| context.is_eligible(*face));
        match chosen {
            None => context.no_route(),
            Some(face) if self.engine.is_aggregated(now, slot, face, incoming, again) => {}
            Some(face) => {
                let mut context = Context::of_interest(&mut self.engine, now, slot, incoming);
                context.send_interest(face);
            }
        }
        true
    }
}
