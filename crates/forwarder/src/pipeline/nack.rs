//! Incoming Nack, outgoing Nack.

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_mgmt::LinkType;
use whimbrel_ndn_packet::{InterestRef, NackReason};

use super::Engine;
use crate::counters::DropReason;
use crate::face::FaceId;
use crate::forwarder::Forwarder;
use crate::strategy::Context;
use crate::tables::name_key::NameKey;
use crate::tables::pit::Selectors;

impl Forwarder {
    pub(super) fn incoming_nack(
        &mut self,
        now: Time,
        from: FaceId,
        packet: &[u8],
        reason: NackReason,
    ) {
        let Some(slot) = self.engine.nacked_entry(from, packet, reason) else {
            return;
        };
        if let Some(entry) = self.engine.pit.get_mut(slot)
            && !entry.has_pending_out_records(now)
        {
            entry.expiry = now + self.engine.config.straggler;
        }
        let entry = self.engine.pit.get(slot);
        let record = entry.and_then(|entry| entry.out_record(from));
        if record.is_some_and(|record| record.follows) {
            // The path is the consumer's choice: it replaces a failed one itself ([PTP
            // §4-C]).
            Context::of_entry(&mut self.engine, now, slot).pass_nacks_on();
            return self.engine.end_or_arm(now, slot);
        }
        let strategy = self.strategies.effective(&mut self.engine, slot, None);
        if let Some(strategy) = self.strategies.get_mut(strategy) {
            let mut context = Context::of_entry(&mut self.engine, now, slot);
            strategy.after_receive_nack(&mut context, from, reason);
        }
        self.engine.end_or_arm(now, slot);
    }

    /// Handles an Interest that the link abandoned after its retransmissions.
    pub(crate) fn dropped_interest(&mut self, now: Time, to: FaceId, packet: &[u8]) {
        let Some(slot) = self.engine.sent_entry(to, packet) else {
            return;
        };
        let strategy = self.strategies.effective(&mut self.engine, slot, None);
        if let Some(strategy) = self.strategies.get_mut(strategy) {
            let mut context = Context::of_entry(&mut self.engine, now, slot);
            strategy.after_dropped(&mut context, to);
        }
        self.engine.end_or_arm(now, slot);
    }
}

impl Engine {
    /// The entry of a Nack, with the Nack recorded.
    fn nacked_entry(&mut self, from: FaceId, packet: &[u8], reason: NackReason) -> Option<u32> {
        let Some(face) = self.faces.get_mut(from) else {
            self.counters.drop(DropReason::UnknownFace);
            return None;
        };
        face.counters.in_nacks += 1;
        self.counters.in_nacks += 1;
        let one_peer = face.spec.link_type == LinkType::PointToPoint;
        let slot = self.sent_entry(from, packet).filter(|_| one_peer);
        let entry = slot.and_then(|slot| self.pit.get_mut(slot));
        match entry.and_then(|entry| {
            entry
                .out_records
                .iter_mut()
                .find(|record| record.face == from)
        }) {
            Some(record) => record.nack = Some(reason),
            None => self.counters.drop(DropReason::Nack),
        }
        slot
    }

    /// The entry whose Interest was sent to a face with this very nonce.
    fn sent_entry(&mut self, to: FaceId, packet: &[u8]) -> Option<u32> {
        let interest = InterestRef::decode(packet).ok()?;
        let key = NameKey::of(&self.hasher, interest.name);
        let selectors = Selectors {
            can_be_prefix: interest.can_be_prefix,
            must_be_fresh: interest.must_be_fresh,
            hint: interest.forwarding_hint.unwrap_or_default(),
        };
        let slot = self.pit.find(&key, interest.name, selectors)?;
        self.forget_gone_faces(slot);
        let record = self.pit.get(slot)?.out_record(to)?;
        (interest.nonce.map(u32::from_be_bytes) == Some(record.nonce)).then_some(slot)
    }

    /// Sends a Nack to a downstream and removes its in-record. Does nothing if it is not a
    /// downstream, or if the link has several peers.
    pub(crate) fn outgoing_nack(&mut self, slot: u32, to: FaceId, reason: NackReason) -> bool {
        let one_peer = |engine: &Engine| {
            engine
                .faces
                .get(to)
                .is_some_and(|face| face.spec.link_type == LinkType::PointToPoint)
        };
        if !one_peer(self) {
            return false;
        }
        let Some(entry) = self.pit.get_mut(slot) else {
            return false;
        };
        let Some(at) = entry.in_records.iter().position(|record| record.face == to) else {
            return false;
        };
        let record = entry.in_records.remove(at);
        let packet = entry.wire.packet(record.nonce);
        if let Some(face) = self.faces.get_mut(to) {
            face.forget_in_record();
        }
        self.send_nack(to, packet, reason, record.token.map(Bytes::from))
    }
}
