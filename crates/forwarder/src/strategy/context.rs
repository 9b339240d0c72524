//! What a strategy sees of a forwarder and may do with it, in one trigger for one PIT entry.

use core::time::Duration;

use smallvec::SmallVec;
use whimbrel_core::{LinkState, SeededRng, Time};
use whimbrel_ndn_mgmt::LinkType;
use whimbrel_ndn_packet::{DataRef, LpHeader, LpPacket, NackReason, NameRef, tlv};

use crate::counters::DropReason;
use crate::face::{Face, FaceId};
use crate::pipeline::{Engine, Incoming, MAX_DELEGATIONS, Outbound, is_localhop, is_localhost};
use crate::tables::NextHop;
use crate::tables::pit::{Entry, InRecord, OutRecord};

/// A Data that came, as a strategy sees it.
#[derive(Clone, Copy, Debug)]
pub struct IncomingData<'a> {
    /// The Data where it lies, checked for its form. Its signature is not.
    pub data: &'a DataRef<'a>,
    /// Its link header: all fields, unknown ones by [`LpPacket::fields`].
    pub header: &'a LpPacket<'a>,
    /// The face that it came by; [`FaceId::INTERNAL`] for the forwarder's own.
    pub from: FaceId,
}

/// One trigger's view.
pub struct Context<'a> {
    engine: &'a mut Engine,
    now: Time,
    slot: u32,
    incoming: Option<&'a Incoming<'a>>,
    /// What was sent in this trigger.
    sent: usize,
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
        }
    }

    pub(crate) fn of_entry(engine: &'a mut Engine, now: Time, slot: u32) -> Context<'a> {
        Context {
            engine,
            now,
            slot,
            incoming: None,
            sent: 0,
        }
    }

    /// The time.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// The forwarder's random numbers.
    pub fn rng(&mut self) -> &mut SeededRng {
        &mut self.engine.rng
    }

    /// The face of the Interest that came; `None` in triggers that no Interest caused.
    pub fn downstream(&self) -> Option<FaceId> {
        self.incoming.map(|incoming| incoming.from)
    }

    /// The link header of the Interest that came; `None` in triggers that no Interest caused.
    pub fn interest_header(&self) -> Option<&LpPacket<'_>> {
        self.incoming.map(|incoming| incoming.header)
    }

    /// What the link of a face has told of itself last; `None` if there is no such face.
    pub fn link_state(&self, face: FaceId) -> Option<&LinkState> {
        self.engine.faces.get(face).map(Face::link_state)
    }

    /// The PIT entry; always there while a trigger runs.
    pub fn entry(&self) -> Option<&Entry> {
        self.engine.pit.get(self.slot)
    }

    pub(crate) fn entry_mut(&mut self) -> Option<&mut Entry> {
        self.engine.pit.get_mut(self.slot)
    }

    /// The entry's name.
    pub fn name(&self) -> NameRef<'_> {
        self.entry().map(Entry::name).unwrap_or_default()
    }

    /// The keyed hash of the entry's name.
    pub fn name_hash(&self) -> u64 {
        self.entry().map_or(0, |entry| entry.hash)
    }

    /// The keyed hash of the entry's name without its last component, which most segments of an
    /// object share.
    pub fn object_hash(&self) -> u64 {
        let name = self.name();
        self.engine
            .hasher
            .hash(name.prefix(name.len().saturating_sub(1)))
    }

    /// Who was asked.
    pub fn out_records(&self) -> &[OutRecord] {
        self.entry().map(Entry::out_records).unwrap_or_default()
    }

    /// Who waits.
    pub fn in_records(&self) -> &[InRecord] {
        self.entry().map(Entry::in_records).unwrap_or_default()
    }

    /// True while some upstream may still answer.
    pub fn has_pending_out_records(&self) -> bool {
        self.out_records()
            .iter()
            .any(|record| record.is_pending(self.now))
    }

    /// The FIB entry of the Interest, best next hop first: by its name, or by its forwarding hint
    /// if it has one that has not led here yet. Also the prefix, which measurements go by.
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

    /// The next hops of [`Context::route`].
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

    /// "in default-free zone, use the first delegation that finds a FIB entry" (NFD); the default
    /// route counts too.
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

    /// True if the Interest may go out on a face: it exists and is up, the Interest did not come
    /// from its only peer, and no scope is violated.
    pub fn is_eligible(&self, face: FaceId) -> bool {
        let Some(out) = self.engine.faces.get(face).filter(|face| face.up) else {
            return false;
        };
        let returns = self.downstream() == Some(face) && out.spec.link_type != LinkType::AdHoc;
        !returns && (out.is_local() || !self.is_scoped())
    }

    /// True if the Interest must not leave this machine: by `/localhost`, or by `/localhop` unless
    /// it is from a program on this machine.
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

    /// The eligible next hops, best first.
    pub fn eligible(&self) -> SmallVec<[NextHop; 8]> {
        self.next_hops()
            .iter()
            .filter(|hop| self.is_eligible(hop.face))
            .copied()
            .collect()
    }

    /// Sends the Interest to a face; false if it did not go (no such face, no hop left).
    pub fn send_interest(&mut self, face: FaceId) -> bool {
        self.send_last(face, None)
    }

    /// Sends the Interest to a face with link header fields. Those that are the forwarder's own
    /// (PitToken, Nack, IncomingFaceId, NextHopFaceId) or that Interests cannot have are left out;
    /// of two congestion marks the higher one counts.
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

    /// Sends the Interest to one more face, with a nonce of its own: where both ways meet, it must
    /// not look like a loop.
    pub fn send_probe(&mut self, face: FaceId) -> bool {
        let nonce = self.engine.rng.next_word() as u32;
        self.send(face, nonce, None)
    }

    /// The entry goes on with the Interest that came last, unless it is the same.
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
            attached,
        };
        let sent = self
            .engine
            .outgoing_interest(self.now, self.slot, face, how);
        self.sent += usize::from(sent);
        sent
    }

    /// How many Interests went out in this trigger.
    pub const fn sent(&self) -> usize {
        self.sent
    }

    /// Answers a downstream with a Nack; it no longer waits then.
    pub fn send_nack(&mut self, face: FaceId, reason: NackReason) -> bool {
        self.engine.outgoing_nack(self.slot, face, reason)
    }

    /// There is no next hop: the downstream is told so, and the entry ends unless others still wait
    /// for an upstream.
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

    /// The Interest is not forwarded because it was shortly before.
    pub fn suppress(&mut self) {
        self.engine.counters.drop(DropReason::Suppressed);
    }

    /// Lets the entry end after so long.
    pub fn set_expiry(&mut self, after: Duration) {
        let now = self.now;
        if let Some(entry) = self.entry_mut() {
            entry.expiry = now + after;
        }
    }

    /// Calls [`super::Strategy::on_timer`] after so long, if the entry still waits then. An earlier
    /// timer stays.
    pub fn set_timer(&mut self, after: Duration) {
        let now = self.now;
        if let Some(entry) = self.entry_mut() {
            entry.timer = entry.timer.min(now + after);
        }
    }

    /// Passes Nacks on as NFD does: when every upstream has answered with one, all downstreams get
    /// the least severe of them; when the only one that has not is itself a downstream, that one
    /// gets it.
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

/// The lower the better for who asked. "None" says nothing, and gives way to everything.
fn severity(reason: NackReason) -> u64 {
    if reason == NackReason::None {
        u64::MAX
    } else {
        reason.code()
    }
}
