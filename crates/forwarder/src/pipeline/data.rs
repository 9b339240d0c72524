//! Incoming Data, Data unsolicited, outgoing Data.

use bytes::Bytes;
use smallvec::SmallVec;
use whimbrel_core::Time;
use whimbrel_ndn_mgmt::LinkType;
use whimbrel_ndn_packet::lp::Tag;
use whimbrel_ndn_packet::{CachePolicy, DataRef, LpHeader, LpPacket, SharedPacket};

use super::{Engine, header, is_localhost, may_return};
use crate::config::UnsolicitedPolicy;
use crate::counters::DropReason;
use crate::face::FaceId;
use crate::forwarder::Forwarder;
use crate::strategy::{Context, IncomingData};
use crate::tables::name_key::NameKey;
use crate::tables::pit::PathRole;

/// A received Data being forwarded.
struct Arrived<'a> {
    incoming: IncomingData<'a>,
    packet: SharedPacket,
    /// The content store keeps it, and would answer a looping Interest.
    kept: bool,
}

/// A Data to send to one face.
pub(super) struct Answer<'a> {
    pub(super) packet: SharedPacket,
    /// Its incoming face.
    pub(super) from: FaceId,
    pub(super) token: Option<Bytes>,
    pub(super) mark: Option<u64>,
    /// The fields that the strategy has attached.
    pub(super) attached: Option<&'a LpHeader>,
    /// The path that it has recorded.
    pub(super) tag: Option<Bytes>,
    /// It is marked as not from the end of the path.
    pub(super) intermediate: bool,
}

/// The faces and tokens already served: a program with two pending Interests for a Data wants it
/// once, a forwarder that gave each its own token wants each answered.
type Served = SmallVec<[(FaceId, Option<Box<[u8]>>); 4]>;

impl Forwarder {
    pub(super) fn incoming_data(
        &mut self,
        now: Time,
        from: FaceId,
        lp: &LpPacket<'_>,
        data: &DataRef<'_>,
        key: &NameKey,
    ) {
        let engine = &mut self.engine;
        if let Err(reason) = engine.admit_data(from, lp, data) {
            engine.counters.drop(reason);
            return;
        }
        let matches = engine.pit.matches(key, data);
        let may_keep = lp.cache_policy != Some(CachePolicy::NoCache);
        if !matches.iter().any(|slot| engine.was_asked(*slot, from)) {
            engine.unsolicited(now, from, data, key, may_keep);
            return;
        }
        let packet = SharedPacket::from(data.wire);
        let kept = may_keep && engine.cs.insert(now, &packet, data, key);
        let arrived = Arrived {
            incoming: IncomingData {
                data,
                header: lp,
                from,
            },
            packet,
            kept,
        };
        let mut served = Served::new();
        for slot in &matches {
            self.satisfy(
                now,
                *slot,
                &arrived,
                (matches.len() > 1).then_some(&mut served),
            );
        }
    }

    fn satisfy(
        &mut self,
        now: Time,
        slot: u32,
        arrived: &Arrived<'_>,
        served: Option<&mut Served>,
    ) {
        self.engine.forget_gone_faces(slot);
        let strategy = self.strategies.effective(&mut self.engine, slot, None);
        if let Some(entry) = self.engine.pit.get_mut(slot) {
            entry.expiry = now + self.engine.config.straggler;
            entry.timer = Time::MAX;
        }
        let attached = self.strategies.get_mut(strategy).and_then(|strategy| {
            let mut context = Context::of_entry(&mut self.engine, now, slot);
            strategy.after_receive_data(&mut context, &arrived.incoming)
        });
        self.engine
            .answer_downstreams(now, slot, arrived, attached.as_deref(), served);
        self.engine.end_or_arm(now, slot);
    }
}

impl Engine {
    fn admit_data(
        &mut self,
        from: FaceId,
        lp: &LpPacket<'_>,
        data: &DataRef<'_>,
    ) -> Result<(), DropReason> {
        let face = self.faces.get_mut(from).ok_or(DropReason::UnknownFace)?;
        face.counters.in_data += 1;
        self.counters.in_data += 1;
        if lp.nack.is_some() || lp.next_hop_face_id.is_some() {
            return Err(DropReason::HeaderField);
        }
        if !face.is_local() && is_localhost(data.name.value()) {
            return Err(DropReason::Scope);
        }
        Ok(())
    }

    /// Returns true if a face may answer an Interest: it went there, or to a group of peers that may
    /// answer from addresses of their own, or the face is of a program of this machine. NFD takes
    /// Data from any face; then whoever guesses a name can answer in its producer's place, without
    /// being on the path.
    fn was_asked(&self, slot: u32, from: FaceId) -> bool {
        let Some(entry) = self.pit.get(slot) else {
            return false;
        };
        let is_group = |face: FaceId| {
            self.faces
                .get(face)
                .is_some_and(|face| face.spec.link_type != LinkType::PointToPoint)
        };
        entry.out_record(from).is_some()
            || self.faces.get(from).is_some_and(|face| face.is_local())
            || entry.out_records.iter().any(|record| is_group(record.face))
    }

    fn unsolicited(
        &mut self,
        now: Time,
        from: FaceId,
        data: &DataRef<'_>,
        key: &NameKey,
        may_keep: bool,
    ) {
        self.counters.drop(DropReason::Unsolicited);
        let is_local = self.faces.get(from).is_some_and(|face| face.is_local());
        let admit = match self.config.unsolicited {
            UnsolicitedPolicy::Drop => false,
            UnsolicitedPolicy::AdmitLocal => is_local,
            UnsolicitedPolicy::AdmitNetwork => !is_local,
            UnsolicitedPolicy::AdmitAll => true,
        };
        if admit && may_keep {
            self.cs
                .insert(now, &SharedPacket::from(data.wire), data, key);
        }
    }

    fn answer_downstreams(
        &mut self,
        now: Time,
        slot: u32,
        arrived: &Arrived<'_>,
        attached: Option<&LpHeader>,
        mut served: Option<&mut Served>,
    ) {
        let IncomingData { data, header, from } = arrived.incoming;
        let Some(entry) = self.pit.get_mut(slot) else {
            return;
        };
        entry.satisfied = true;
        // "need Dead Nonce List insert?" (NFD): the content store answers a looping Interest,
        // unless that requires a fresher Data. Unlike NFD, this does not rely on the store for Data
        // that it has not kept.
        let fresh_enough = !entry.must_be_fresh || data.freshness >= self.dead_nonces.lifetime();
        entry.loop_is_answered = arrived.kept && fresh_enough;
        let asked = entry
            .out_record(from)
            .map(|record| (record.asked_for, record.probes));
        let (asked_for, probes) = asked.unwrap_or_default();
        let tag = probes.then(|| self.recorded(from, header)).flatten();
        self.end_out_record(now, slot, from);
        let Some(entry) = self.pit.get_mut(slot) else {
            return;
        };
        for record in core::mem::take(&mut entry.in_records) {
            if let Some(face) = self.faces.get_mut(record.face) {
                face.forget_in_record();
            }
            let returns =
                record.face == from && !self.faces.get(record.face).is_some_and(may_return);
            if record.expiry <= now || returns {
                continue;
            }
            if let Some(served) = served.as_deref_mut() {
                let who = (record.face, record.token.clone());
                if served.contains(&who) {
                    continue;
                }
                served.push(who);
            }
            let is_own = asked_for == record.face && !header.intermediate;
            let answer = Answer {
                packet: arrived.packet.clone(),
                from,
                token: record.token.map(Bytes::from),
                mark: header.congestion_mark,
                attached,
                tag: tag.clone().filter(|_| record.path == PathRole::Probing),
                intermediate: match record.path {
                    PathRole::None => false,
                    PathRole::Tagged | PathRole::Probing => !is_own,
                    PathRole::Refused => true,
                },
            };
            self.outgoing_data(now, record.face, answer);
        }
    }

    /// Returns the path of a Data that answers a probing Interest, with the face that it arrived
    /// on: "the tag is appended with the identifier of the receiving interface when the probing
    /// Data packet arrives at a router" ([PTP §3-A]). The last router stands in for a producer that
    /// knows no tags, which "appends an empty tag". `None` if the Data has not come the whole way,
    /// or if the tag has no room.
    fn recorded(&self, from: FaceId, header: &LpPacket<'_>) -> Option<Bytes> {
        let tag = match header.path_tag {
            Some(octets) => Tag::new(octets),
            None if header.intermediate => return None,
            None => Tag::default(),
        };
        tag.hops()?;
        tag.push(self.faces.get(from)?.label)
    }

    /// Ends the out-record of the upstream that answered.
    fn end_out_record(&mut self, now: Time, slot: u32, from: FaceId) {
        let Some(entry) = self.pit.get_mut(slot) else {
            return;
        };
        let Some(at) = entry
            .out_records
            .iter()
            .position(|record| record.face == from)
        else {
            return;
        };
        let record = entry.out_records.remove(at);
        if !entry.loop_is_answered {
            self.dead_nonces.add(now, entry.hash, record.nonce);
        }
        if let Some(face) = self.faces.get_mut(from) {
            face.counters.satisfied_interests += 1;
        }
    }

    /// Sends a Data to a face.
    pub(super) fn outgoing_data(&mut self, now: Time, to: FaceId, answer: Answer<'_>) {
        let Some(face) = self.faces.get_mut(to).filter(|face| face.up) else {
            return;
        };
        if !face.is_local() && is_localhost(name_of(&answer.packet)) {
            self.counters.drop(DropReason::Scope);
            return;
        }
        face.counters.out_data += 1;
        self.counters.out_data += 1;
        let incoming = Some(answer.from).filter(|_| face.spec.flags.local_fields);
        let mark = answer.mark.or_else(|| {
            let marks = face.marks(now);
            self.counters.marked += u64::from(marks);
            marks.then_some(1)
        });
        let of_path = answer.intermediate || answer.tag.is_some();
        let attached = answer.attached.cloned().map(Box::new);
        let attached = attached.or_else(|| of_path.then(Box::default));
        let attached = attached.map(|mut fields| {
            (fields.non_discovery, fields.path_discovery) = (false, false);
            (fields.path_tag, fields.intermediate) = (answer.tag, answer.intermediate);
            fields
        });
        let header = header(attached, answer.token, mark, incoming);
        self.queue(to, answer.packet, header);
    }
}

/// Returns the octets from a Data's name on: its header and that of its name have at most 4 octets
/// each.
fn name_of(packet: &[u8]) -> &[u8] {
    use whimbrel_ndn_packet::tlv::header_len;
    let inner = header_len(packet)
        .and_then(|len| packet.get(len..))
        .unwrap_or_default();
    header_len(inner)
        .and_then(|len| inner.get(len..))
        .unwrap_or_default()
}
