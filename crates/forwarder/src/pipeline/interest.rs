//! Incoming Interest, Interest loop, content store hit and miss, outgoing Interest.

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_mgmt::LinkType;
use whimbrel_ndn_packet::{InterestRef, LpHeader, LpPacket, NackReason, SharedPacket};

use super::data::Answer;
use super::path::PathWish;
use super::{Engine, MAX_MANAGEMENT_QUEUE, after, header, is_localhost};
use crate::counters::DropReason;
use crate::face::FaceId;
use crate::forwarder::{Forwarder, ManagementInterest};
use crate::strategy::Context;
use crate::tables::cs::CsHit;
use crate::tables::name_key::NameKey;
use crate::tables::pit::{Entry, InRecord, Onward, OutRecord, PathRole, Selectors};

/// An Interest in the pipelines.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'a> {
    pub(crate) interest: &'a InterestRef<'a>,
    pub(crate) key: &'a NameKey,
    pub(crate) onward: Onward,
    pub(crate) from: FaceId,
    pub(crate) lifetime: Duration,
    /// Its link header; its congestion mark is forwarded.
    pub(crate) header: &'a LpPacket<'a>,
    pub(crate) path: PathWish<'a>,
}

impl Incoming<'_> {
    pub(crate) fn nonce(&self) -> u32 {
        u32::from_be_bytes(self.onward.nonce)
    }

    fn selectors(&self) -> Selectors<'_> {
        let hint = if self.onward.arrived {
            None
        } else {
            self.interest.forwarding_hint
        };
        Selectors {
            can_be_prefix: self.interest.can_be_prefix,
            must_be_fresh: self.interest.must_be_fresh,
            hint: hint.unwrap_or_default(),
        }
    }
}

/// The permissions of an Interest, from its face and link header.
struct Admitted {
    hop_limit: Option<u8>,
    one_peer: bool,
}

/// Maximum of large Interests that are evicted for a new one.
const EVICTIONS: usize = 4;

impl Forwarder {
    pub(super) fn incoming_interest(
        &mut self,
        now: Time,
        from: FaceId,
        lp: &LpPacket<'_>,
        interest: &InterestRef<'_>,
        key: &NameKey,
    ) {
        let engine = &mut self.engine;
        let admitted = match engine.admit_interest(from, lp, interest) {
            Ok(admitted) => admitted,
            Err(reason) => {
                engine.counters.drop(reason);
                return;
            }
        };
        let nonce = interest
            .nonce
            .unwrap_or_else(|| (engine.rng.next_word() as u32).to_be_bytes());
        let incoming = Incoming {
            interest,
            key,
            onward: Onward {
                nonce,
                hop_limit: admitted.hop_limit,
                arrived: engine.has_arrived(interest),
            },
            from,
            lifetime: interest.lifetime.min(engine.config.max_interest_lifetime),
            header: lp,
            path: engine.path_wish(now, from, lp),
        };
        self.pursue(now, lp, &incoming, admitted.one_peer);
    }

    fn pursue(&mut self, now: Time, lp: &LpPacket<'_>, incoming: &Incoming<'_>, one_peer: bool) {
        let engine = &mut self.engine;
        let nonce = incoming.nonce();
        if engine.dead_nonces.has(now, incoming.key.full(), nonce) {
            engine.interest_loop(incoming, one_peer);
            return;
        }
        let known = engine
            .pit
            .find(incoming.key, incoming.interest.name, incoming.selectors());
        if let Some(slot) = known {
            engine.forget_gone_faces(slot);
        }
        let entry = known.and_then(|slot| engine.pit.get(slot));
        if entry.is_some_and(|entry| entry.has_looped(nonce, incoming.from, one_peer)) {
            engine.interest_loop(incoming, one_peer);
            return;
        }
        // While the entry has downstreams, the store has missed already. "The probing Interest
        // packet is always forwarded to a producer, while the cache is ignored" ([PTP
        // §4-A]).
        let probes = incoming.path.role == PathRole::Probing;
        if !probes && entry.is_none_or(|entry| entry.in_records.is_empty()) {
            if let Some(hit) = engine.cs.find(now, incoming.interest, incoming.key) {
                engine.content_store_hit(now, lp, incoming, known, hit);
                return;
            }
            engine.counters.cs_misses += 1;
        }
        self.content_store_miss(now, lp, incoming, known);
    }

    fn content_store_miss(
        &mut self,
        now: Time,
        lp: &LpPacket<'_>,
        incoming: &Incoming<'_>,
        known: Option<u32>,
    ) {
        let Some(slot) = known.or_else(|| self.engine.new_entry(now, incoming)) else {
            return;
        };
        let again = self
            .engine
            .insert_in_record(now, slot, incoming, lp.pit_token);
        let is_of_path = incoming.path.role != PathRole::None;
        if let Some(face) = lp.next_hop_face_id {
            // "scope control is unnecessary, because privileged app explicitly wants to forward"
            // (NFD): the face only has to exist.
            let mut context = Context::of_interest(&mut self.engine, now, slot, incoming);
            context.send_interest(FaceId(face));
        } else if !is_of_path || !self.follow_path(now, slot, incoming, again) {
            let strategy = self
                .strategies
                .effective(&mut self.engine, slot, Some(incoming.key));
            let mut context = Context::of_interest(&mut self.engine, now, slot, incoming);
            if let Some(strategy) = self.strategies.get_mut(strategy) {
                strategy.after_receive_interest(&mut context);
            }
        }
        self.engine.end_or_arm(now, slot);
    }
}

impl Engine {
    fn admit_interest(
        &mut self,
        from: FaceId,
        lp: &LpPacket<'_>,
        interest: &InterestRef<'_>,
    ) -> Result<Admitted, DropReason> {
        let face = self.faces.get_mut(from).ok_or(DropReason::UnknownFace)?;
        face.counters.in_interests += 1;
        self.counters.in_interests += 1;
        let privileged = lp.next_hop_face_id.is_none() || face.spec.flags.local_fields;
        if lp.cache_policy.is_some() || lp.prefix_announcement.is_some() || !privileged {
            return Err(DropReason::HeaderField);
        }
        if interest.hop_limit == Some(0) {
            face.counters.in_hop_limit_zero += 1;
            return Err(DropReason::HopLimit);
        }
        if !face.is_local() && is_localhost(interest.name.value()) {
            return Err(DropReason::Scope);
        }
        let hop_limit = interest
            .hop_limit
            .map(|limit| limit - 1)
            .or(self.config.default_hop_limit);
        Ok(Admitted {
            hop_limit,
            one_peer: face.spec.link_type == LinkType::PointToPoint,
        })
    }

    /// Returns true if the forwarding hint names a region of this node.
    fn has_arrived(&self, interest: &InterestRef<'_>) -> bool {
        interest.forwarding_hint.is_some()
            && !self.config.producer_regions.is_empty()
            && interest
                .delegations()
                .take(MAX_DELEGATIONS)
                .any(|delegation| {
                    self.config
                        .producer_regions
                        .iter()
                        .any(|region| delegation.is_prefix_of(region.as_ref()))
                })
    }

    /// Handles a looping Interest: its sender gets a Nack, if the link has one peer.
    fn interest_loop(&mut self, incoming: &Incoming<'_>, one_peer: bool) {
        self.counters.drop(DropReason::Loop);
        if one_peer {
            let packet = SharedPacket::from(incoming.interest.wire);
            let token = incoming.header.pit_token.map(Bytes::copy_from_slice);
            self.send_nack(incoming.from, packet, NackReason::Duplicate, token);
        }
    }

    fn content_store_hit(
        &mut self,
        now: Time,
        lp: &LpPacket<'_>,
        incoming: &Incoming<'_>,
        known: Option<u32>,
        hit: CsHit,
    ) {
        self.counters.cs_hits += 1;
        let token = lp.pit_token.map(Bytes::copy_from_slice);
        let answer = Answer {
            packet: hit.data,
            from: FaceId::CONTENT_STORE,
            token,
            mark: None,
            attached: None,
            tag: None,
            intermediate: incoming.path.role != PathRole::None,
        };
        self.outgoing_data(now, incoming.from, answer);
        // An entry without downstreams that waits for stragglers is finished. Without an entry,
        // none is created: it would end at once.
        match known.and_then(|slot| Some((slot, self.pit.get_mut(slot)?))) {
            Some((slot, entry)) => {
                let lifetime = self.dead_nonces.lifetime();
                entry.loop_is_answered = !entry.must_be_fresh || hit.freshness >= lifetime;
                (entry.satisfied, entry.expiry) = (true, now);
                self.end_or_arm(now, slot);
            }
            None => self.counters.satisfied += 1,
        }
    }

    /// Returns `None`, and counts why, if there is no room for the Interest.
    fn new_entry(&mut self, now: Time, incoming: &Incoming<'_>) -> Option<u32> {
        if self.pit.is_full() {
            self.evict_one(now);
        }
        let octets = incoming.interest.wire.len();
        for _ in 0..EVICTIONS {
            if self.pit.lacks_octets(octets) {
                self.evict_largest(now);
            }
        }
        if self.pit.lacks_octets(octets) {
            self.counters.drop(DropReason::PitEvicted);
            return None;
        }
        let Some(slot) = self.insert(now, incoming) else {
            self.counters.drop(DropReason::Variants);
            return None;
        };
        self.pit.get_mut(slot)?.removals = self.faces.removals();
        Some(slot)
    }

    /// Adds an entry, and displaces variants of a name for it, of which a digest can have two kinds.
    fn insert(&mut self, now: Time, incoming: &Incoming<'_>) -> Option<u32> {
        let (key, interest) = (incoming.key, incoming.interest);
        for _ in 0..2 {
            let slot = (self.pit).insert(key, interest, incoming.onward, incoming.selectors());
            if slot.is_some() {
                return slot;
            }
            let displaced = (self.pit).variant_to_displace(key, interest.name, incoming.from)?;
            self.counters.drop(DropReason::Variants);
            self.finalize(now, displaced);
        }
        (self.pit).insert(key, interest, incoming.onward, incoming.selectors())
    }

    /// Returns true if the face already had one.
    fn insert_in_record(
        &mut self,
        now: Time,
        slot: u32,
        incoming: &Incoming<'_>,
        token: Option<&[u8]>,
    ) -> bool {
        let Some(entry) = self.pit.get_mut(slot) else {
            return false;
        };
        let record = InRecord {
            face: incoming.from,
            nonce: incoming.nonce(),
            expiry: after(now, incoming.lifetime, self.config.max_interest_lifetime),
            token: token.map(Box::from),
            path: incoming.path.role,
        };
        let known = entry
            .in_records
            .iter_mut()
            .find(|known| known.face == incoming.from);
        let again = known.is_some();
        match known {
            Some(known) => *known = record,
            None => {
                entry.in_records.push(record);
                if let Some(face) = self.faces.get_mut(incoming.from) {
                    face.pit_in_records += 1;
                }
            }
        }
        (entry.satisfied, entry.loop_is_answered) = (false, false);
        entry.expiry = entry
            .in_records
            .iter()
            .map(|record| record.expiry)
            .max()
            .unwrap_or(now);
        again
    }

    /// Sends the Interest of an entry to a face; returns false if it was not sent.
    pub(crate) fn outgoing_interest(
        &mut self,
        now: Time,
        slot: u32,
        to: FaceId,
        how: Outbound,
    ) -> bool {
        let Some(entry) = self.pit.get_mut(slot) else {
            return false;
        };
        let Some(face) = self.faces.get_mut(to).filter(|face| face.up) else {
            return false;
        };
        if entry.wire.hop_limit == Some(0) && !face.is_local() {
            face.counters.out_hop_limit_zero += 1;
            self.counters.drop(DropReason::OutHopLimit);
            return false;
        }
        insert_out_record(entry, now, to, &how);
        face.counters.out_interests += 1;
        self.counters.out_interests += 1;
        let incoming = how.from.filter(|_| face.spec.flags.local_fields);
        let packet = entry.wire.packet(how.nonce);
        if to == FaceId::INTERNAL {
            self.ask_management(packet, how.from);
            return true;
        }
        let attached = how.attached.map(|mut fields| {
            // Those of Data.
            (fields.cache_policy, fields.prefix_announcement) = (None, None);
            fields.route_label = None;
            fields
        });
        self.queue(to, packet, header(attached, None, how.mark, incoming))
    }

    fn ask_management(&mut self, packet: SharedPacket, from: Option<FaceId>) {
        if self.management.len() >= MAX_MANAGEMENT_QUEUE {
            self.counters.drop(DropReason::ManagementBusy);
            return;
        }
        self.management.push_back(ManagementInterest {
            packet,
            from: from.unwrap_or(FaceId::INVALID),
        });
    }

    /// Sends a Nack, independently of the PIT.
    pub(crate) fn send_nack(
        &mut self,
        to: FaceId,
        packet: SharedPacket,
        reason: NackReason,
        token: Option<Bytes>,
    ) -> bool {
        let Some(face) = self.faces.get_mut(to).filter(|face| face.up) else {
            return false;
        };
        face.counters.out_nacks += 1;
        self.counters.out_nacks += 1;
        let header = LpHeader {
            pit_token: token,
            nack: Some(reason),
            ..LpHeader::default()
        };
        self.queue(to, packet, Some(Box::new(header)))
    }
}

/// Maximum of delegations of a forwarding hint that are considered.
pub(crate) const MAX_DELEGATIONS: usize = 8;

/// An Interest to send.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) nonce: u32,
    /// How long to wait for an answer.
    pub(crate) lifetime: Duration,
    pub(crate) mark: Option<u64>,
    /// Its incoming face.
    pub(crate) from: Option<FaceId>,
    /// The fields that the strategy has attached, and those of the path.
    pub(crate) attached: Option<Box<LpHeader>>,
    /// It follows its path tag.
    pub(crate) follows: bool,
    /// It asks for a path.
    pub(crate) probes: bool,
}

fn insert_out_record(entry: &mut Entry, now: Time, to: FaceId, how: &Outbound) {
    let expiry = now + how.lifetime;
    if let Some(record) = entry
        .out_records
        .iter_mut()
        .find(|record| record.face == to)
    {
        if !record.is_pending(now) {
            record.asked_for = how.from.unwrap_or(FaceId::INVALID);
            record.probes = how.probes;
        }
        record.follows = how.follows;
        // A Data may answer the earlier Interest, which has not collected a path.
        record.probes &= how.probes;
        (record.nonce, record.sent, record.expiry) = (how.nonce, now, expiry);
        (record.nack, record.given_up) = (None, 0);
        return;
    }
    entry.out_records.push(OutRecord {
        face: to,
        nonce: how.nonce,
        sent: now,
        expiry,
        nack: None,
        suppression: 0,
        given_up: 0,
        counted: false,
        asked_for: how.from.unwrap_or(FaceId::INVALID),
        follows: how.follows,
        probes: how.probes,
    });
}
