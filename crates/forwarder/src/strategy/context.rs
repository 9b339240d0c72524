//! A strategy's view of a forwarder and its actions, in one trigger for one PIT entry.

use core::time::Duration;

use smallvec::SmallVec;
use whimbrel_core::{LinkState, SeededRng, Time};
use whimbrel_ndn_mgmt::LinkType;
use whimbrel_ndn_packet::{DataRef, LpHeader, LpPacket, NackReason, NameRef, tlv};

use crate::counters::DropReason;
use crate::face::{Face, FaceId};
use crate::pipeline::{Engine, Incoming, MAX_DELEGATIONS, Outbound, is_localhop, is_localhost};
use crate::tables::NextHop;
use crate::tables::pit::{Entry, InRecord, OutRecord, PathRole};

/// A received Data, as a strategy sees it.
#[derive(Clone, Copy, Debug)]
pub struct IncomingData<'a> {
    /// The checked view of the Data. Its signature is not verified.
    pub data: &'a DataRef<'a>,
    /// Its link header: all fields, unknown ones by [`LpPacket::fields`].
    pub header: &'a LpPacket<'a>,
    /// The incoming face; [`FaceId::INTERNAL`] for the forwarder's own.
    pub from: FaceId,
}

/// One trigger's view.
pub struct Context<'a> {
    engine: &'a mut Engine,
    now: Time,
    slot: u32,
    incoming: Option<&'a Incoming<'a>>,
    /// Interests sent in this trigger.
    sent: usize,
    /// They follow the Interest's path tag.
    follows: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn of_interest(
        engine: &'a mut Engine,
        now: Time,
        slot: u32,
        incoming: &'a Incoming<'a>,
    ) -> Context<'a> {
        Context {
            engine,
            now,
            slot,
            incoming: Some(incoming),
            sent: 0,
            follows: false,
        }
    }

    pub(crate) fn of_entry(engine: &'a mut Engine, now: Time, slot: u32) -> Context<'a> {
        Context {
            engine,
            now,
            slot,
            incoming: None,
            sent: 0,
            follows: false,
        }
    }

    /// Returns the time.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// The forwarder's random number generator.
    pub fn rng(&mut self) -> &mut SeededRng {
        &mut self.engine.rng
    }

    /// Returns the incoming face of the Interest; `None` in triggers without an Interest.
    pub fn downstream(&self) -> Option<FaceId> {
        self.incoming.map(|incoming| incoming.from)
    }

    /// Returns the link header of the Interest; `None` in triggers without an Interest.
    pub fn interest_header(&self) -> Option<&LpPacket<'_>> {
        self.incoming.map(|incoming| incoming.header)
    }

    /// Returns the latest state of a face's link; `None` if the face does not exist.
    pub fn link_state(&self, face: FaceId) -> Option<&LinkState> {
        self.engine.faces.get(face).map(Face::link_state)
    }

    /// Returns the PIT entry; always present while a trigger runs.
    pub fn entry(&self) -> Option<&Entry> {
        self.engine.pit.get(self.slot)
    }

    pub(crate) fn entry_mut(&mut self) -> Option<&mut Entry> {
        self.engine.pit.get_mut(self.slot)
    }

    /// Returns the entry's name.
    pub fn name(&self) -> NameRef<'_> {
        self.entry().map(Entry::name).unwrap_or_default()
    }

    /// Returns the keyed hash of the entry's name.
    pub fn name_hash(&self) -> u64 {
        self.entry().map_or(0, |entry| entry.hash)
    }

    /// Returns the keyed hash of the entry's name without its last component, which most segments
    /// of an object share.
    pub fn object_hash(&self) -> u64 {
        let name = self.name();
        self.engine
            .hasher
            .hash(name.prefix(name.len().saturating_sub(1)))
    }

    /// Returns the out-records.
    pub fn out_records(&self) -> &[OutRecord] {
        self.entry().map(Entry::out_records).unwrap_or_default()
    }

    /// Returns the in-records.
    pub fn in_records(&self) -> &[InRecord] {
        self.entry().map(Entry::in_records).unwrap_or_default()
    }

    /// Returns true while an upstream may still answer.
    pub fn has_pending_out_records(&self) -> bool {
        self.out_records()
            .iter()
            .any(|record| record.is_pending(self.now))
    }

    /// Returns the FIB entry of the Interest, best next hop first: by its name, or by its
    /// forwarding hint unless that has arrived. Also returns the prefix, the key of measurements.
    pub fn route(&self) -> (NameRef<'_>, &[NextHop]) {
        let Some(entry) = self.entry() else {
            return (NameRef::default(), &[]);
        };
        if entry.hint().is_empty() {
            let (depth, hops) = self.lookup(entry).unwrap_or_default();
            return (entry.name().prefix(depth), hops);
        }
        self.hinted_route(entry)
    }

    /// Returns the next hops of [`Context::route`].
    #[inline]
    pub fn next_hops(&self) -> &[NextHop] {
        match self.entry() {
            Some(entry) if entry.hint().is_empty() => self.lookup(entry).unwrap_or_default().1,
            _ => self.route().1,
        }
    }

    fn lookup(&self, entry: &Entry) -> Option<(usize, &[NextHop])> {
        match self.incoming {
            Some(incoming) => self.engine.fib.lookup(incoming.key, entry.name_value()),
            None => self.engine.fib.longest_match(entry.name()),
        }
    }

    /// "in default-free zone, use the first delegation that finds a FIB entry" (NFD); here the
    /// default route counts too.
    fn hinted_route<'b>(&'b self, entry: &'b Entry) -> (NameRef<'b>, &'b [NextHop]) {
        let mut reader = tlv::Reader::new(entry.hint());
        for _ in 0..MAX_DELEGATIONS {
            let Ok(Some(element)) = reader.element() else {
                break;
            };
            let Ok(delegation) = NameRef::from_value(element.value) else {
                break;
            };
            if let Some((depth, hops)) = self.engine.fib.longest_match(delegation) {
                return (delegation.prefix(depth), hops);
            }
        }
        (NameRef::default(), &[])
    }

    /// Returns true if the Interest may be sent to a face: the face exists and is up, is not the
    /// incoming face with its only peer, and the scope allows it.
    pub fn is_eligible(&self, face: FaceId) -> bool {
        let Some(out) = self.engine.faces.get(face).filter(|face| face.up) else {
            return false;
        };
        let returns = self.downstream() == Some(face) && out.spec.link_type != LinkType::AdHoc;
        !returns && (out.is_local() || !self.is_scoped())
    }

    /// Returns true if the Interest must not leave this machine: by `/localhost`, or by `/localhop`
    /// unless it comes from a program on this machine.
    fn is_scoped(&self) -> bool {
        let Some(entry) = self.entry() else {
            return true;
        };
        let name = entry.name_value();
        let from_here = |engine: &Engine| {
            let mut downstreams = self.incoming.map(|incoming| incoming.from).into_iter();
            let any = |face: FaceId| engine.faces.get(face).is_some_and(|face| face.is_local());
            match downstreams.next() {
                Some(face) => any(face),
                None => entry.in_records.iter().all(|record| any(record.face)),
            }
        };
        is_localhost(name) || (is_localhop(name) && !from_here(self.engine))
    }

    /// Returns the eligible next hops, best first.
    pub fn eligible(&self) -> SmallVec<[NextHop; 8]> {
        self.next_hops()
            .iter()
            .filter(|hop| self.is_eligible(hop.face))
            .copied()
            .collect()
    }

    /// Sends the Interest to a face; returns false if it was not sent (no such face, no hop left).
    pub fn send_interest(&mut self, face: FaceId) -> bool {
        self.send_last(face, None)
    }

    /// Sends the Interest to the face that its path tag specifies.
    pub(crate) fn follow(&mut self, face: FaceId) -> bool {
        self.follows = true;
        self.send_interest(face)
    }

    /// An eligible next hop, each with the same probability. Turns would be as even, but those of
    /// routers in a row can fall into step, so that some paths are never found. Hops that follow
    /// from a shorter prefix only are used if there are no others: at a producer's router, the
    /// default route leads away from it.
    pub fn even_hop(&mut self) -> Option<FaceId> {
        let mut hops = self.eligible();
        if hops.iter().any(|hop| !hop.inherited) {
            hops.retain(|hop| !hop.inherited);
        }
        let chosen = self.rng().below(hops.len() as u64);
        hops.get(chosen as usize).map(|hop| hop.face)
    }

    /// Sends the Interest to a face with link header fields. The forwarder's own fields (PitToken,
    /// Nack, IncomingFaceId, NextHopFaceId, PathTag, PathDiscovery) and those that Interests cannot have are omitted; of
    /// two congestion marks the higher one is used.
    pub fn send_interest_with(&mut self, face: FaceId, fields: LpHeader) -> bool {
        self.send_last(face, Some(Box::new(fields)))
    }

    fn send_last(&mut self, face: FaceId, attached: Option<Box<LpHeader>>) -> bool {
        let nonce = match self.incoming {
            Some(incoming) => {
                self.take_over(incoming);
                incoming.nonce()
            }
            None => self.entry().map_or(0, |entry| entry.wire.nonce),
        };
        self.send(face, nonce, attached)
    }

    /// Sends the Interest to one more face, with a nonce of its own: where both paths meet, it must
    /// not look like a loop.
    pub fn send_probe(&mut self, face: FaceId) -> bool {
        let nonce = self.engine.rng.next_word() as u32;
        self.send(face, nonce, None)
    }

    /// Replaces the entry's Interest by the latest one, unless they are the same.
    fn take_over(&mut self, incoming: &Incoming<'_>) {
        if let Some(entry) = self
            .entry_mut()
            .filter(|entry| entry.wire.nonce != incoming.nonce())
        {
            entry.wire.take_over(incoming.interest, incoming.onward);
        }
    }

    fn send(&mut self, face: FaceId, nonce: u32, attached: Option<Box<LpHeader>>) -> bool {
        let remaining = self
            .entry()
            .map_or(Duration::ZERO, |entry| entry.expiry.since(self.now));
        let path = self
            .incoming
            .map(|incoming| incoming.path)
            .unwrap_or_default();
        let how = Outbound {
            nonce,
            lifetime: self
                .incoming
                .map_or(remaining, |incoming| incoming.lifetime),
            mark: self
                .incoming
                .and_then(|incoming| incoming.header.congestion_mark),
            from: self
                .downstream()
                .or_else(|| self.in_records().first().map(|record| record.face)),
            attached: path.fields(self.follows, attached),
            follows: self.follows,
            probes: path.role == PathRole::Probing,
        };
        let sent = self
            .engine
            .outgoing_interest(self.now, self.slot, face, how);
        self.sent += usize::from(sent);
        sent
    }

    /// The number of Interests sent in this trigger.
    pub const fn sent(&self) -> usize {
        self.sent
    }

    /// Answers a downstream with a Nack, and removes its in-record.
    pub fn send_nack(&mut self, face: FaceId, reason: NackReason) -> bool {
        self.engine.outgoing_nack(self.slot, face, reason)
    }

    /// Handles the lack of a next hop: the downstream gets a Nack, and the entry ends unless others
    /// still wait for an upstream.
    pub fn no_route(&mut self) {
        self.engine.counters.drop(DropReason::NoRoute);
        if let Some(face) = self.downstream() {
            self.send_nack(face, NackReason::NoRoute);
        }
        self.reject();
    }

    /// Lets the entry end, unless an upstream may still answer.
    pub fn reject(&mut self) {
        if !self.has_pending_out_records() {
            let straggler = self.engine.config.straggler;
            self.set_expiry(straggler);
        }
    }

    /// Suppresses the Interest because it was forwarded shortly before.
    pub fn suppress(&mut self) {
        self.engine.counters.drop(DropReason::Suppressed);
    }

    /// Lets the entry end after this time.
    pub fn set_expiry(&mut self, after: Duration) {
        let now = self.now;
        if let Some(entry) = self.entry_mut() {
            entry.expiry = now + after;
        }
    }

    /// Returns true if [`Context::set_timer`] has set a timer that has not expired.
    pub fn has_timer(&self) -> bool {
        self.entry().is_some_and(|entry| entry.timer != Time::MAX)
    }

    /// Calls [`super::Strategy::on_timer`] after this time, if the entry still waits then. An
    /// earlier timer is kept.
    pub fn set_timer(&mut self, after: Duration) {
        let now = self.now;
        if let Some(entry) = self.entry_mut() {
            entry.timer = entry.timer.min(now + after);
        }
    }

    /// Forwards Nacks as NFD does: when every upstream has answered with one, all downstreams get
    /// the least severe of them; when the only upstream without a Nack is itself a downstream, that
    /// one gets it.
    pub fn pass_nacks_on(&mut self) {
        let open: SmallVec<[FaceId; 4]> = self
            .out_records()
            .iter()
            .filter(|record| record.nack.is_none())
            .map(|record| record.face)
            .collect();
        let reasons = self.out_records().iter().filter_map(|record| record.nack);
        let reason = reasons
            .min_by_key(|reason| severity(*reason))
            .unwrap_or(NackReason::None);
        let downstreams: SmallVec<[FaceId; 4]> =
            self.in_records().iter().map(|record| record.face).collect();
        match open.as_slice() {
            [] => downstreams.into_iter().for_each(|face| {
                self.send_nack(face, reason);
            }),
            [last] if downstreams.contains(last) => {
                self.send_nack(*last, reason);
            }
            _ => {}
        }
    }
}

/// Lower is better for the downstream. "None" carries no information, and ranks last.
fn severity(reason: NackReason) -> u64 {
    if reason == NackReason::None {
        u64::MAX
    } else {
        reason.code()
    }
}
