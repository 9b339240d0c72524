//! One pending Interest.

use core::num::NonZeroU64;

use smallvec::SmallVec;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{InterestRef, NackReason, NameRef, SharedPacket, tlv, types};

use crate::face::FaceId;
use crate::tables::index::NONE;
use crate::tables::name_key::NameKey;
use crate::tables::prefetch;

/// What the latest Interest of a downstream says about paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathRole {
    /// Nothing.
    #[default]
    None,
    /// It has a path tag.
    Tagged,
    /// It asks for a path, and may have a tag too.
    Probing,
    /// It asks for a path, but its face does so too often.
    Refused,
}

/// A downstream that waits for the Data.
#[derive(Clone, Debug)]
pub struct InRecord {
    /// The incoming face.
    pub face: FaceId,
    /// The nonce of its latest Interest.
    pub nonce: u32,
    /// When its lifetime ends.
    pub expiry: Time,
    /// Its PIT token, returned with the Data.
    pub(crate) token: Option<Box<[u8]>>,
    /// What it says about paths.
    pub path: PathRole,
}

/// An upstream that the Interest was sent to.
#[derive(Clone, Debug)]
pub struct OutRecord {
    /// The outgoing face.
    pub face: FaceId,
    /// The nonce of the latest Interest.
    pub nonce: u32,
    /// When the latest Interest was sent.
    pub sent: Time,
    /// When to stop waiting for it.
    pub expiry: Time,
    /// The Nack received for that nonce.
    pub nack: Option<NackReason>,
    /// How long a retransmission to this face is suppressed, in nanoseconds, for strategies that
    /// suppress by upstream.
    pub suppression: u64,
    /// How often its strategy has given up waiting since a downstream last asked: ASF once, repeat
    /// before each repetition.
    pub given_up: u8,
    /// A strategy counts it among the pending Interests of its face.
    pub(crate) counted: bool,
    /// The downstream whose Interest it was, the first one while it is pending;
    /// [`FaceId::INVALID`] if the forwarder itself sent it.
    pub(crate) asked_for: FaceId,
    /// It follows the Interest's path tag.
    pub(crate) follows: bool,
    /// It asks for a path.
    pub(crate) probes: bool,
}

// One cache line: with a million pending Interests, memory is what they cost.
const _: () = assert!(size_of::<OutRecord>() <= 64);

impl OutRecord {
    /// Returns true while it may still answer.
    pub fn is_pending(&self, now: Time) -> bool {
        self.nack.is_none() && self.expiry > now
    }
}

/// Octets of Interests stored in the PIT's entries themselves; larger ones have an allocation of
/// their own.
pub(super) const INLINE: usize = 128;

/// An Interest as it is forwarded: its hop limit decremented, with a nonce, perhaps without its
/// forwarding hint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    octets: SmallVec<[u8; INLINE]>,
    /// Offset and length of the name's value.
    name: (u16, u16),
    /// The same of the forwarding hint; length 0 if there is none.
    hint: (u16, u16),
    nonce_at: u16,
    pub(crate) nonce: u32,
    pub(crate) hop_limit: Option<u8>,
}

/// The parts of an Interest that differ from face to face.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Onward {
    /// The nonce, which an Interest from a program may lack.
    pub(crate) nonce: [u8; 4],
    /// The remaining hop limit, or the one given to an Interest without one.
    pub(crate) hop_limit: Option<u8>,
    /// The forwarding hint has led to a producer region and is omitted.
    pub(crate) arrived: bool,
}

impl Wire {
    /// Takes an Interest over: one copy of the packet, patched; two if fields must be added or
    /// removed.
    pub(crate) fn take_over(&mut self, interest: &InterestRef<'_>, onward: Onward) {
        let complete = interest.nonce_at().is_some()
            && interest.hop_limit_at().is_some() == onward.hop_limit.is_some()
            && !(onward.arrived && interest.forwarding_hint.is_some());
        if complete {
            return self.patch(interest, onward);
        }
        let rebuilt = rebuild(interest, onward);
        match InterestRef::decode(&rebuilt) {
            Ok(interest) => self.patch(&interest, onward),
            // Unreachable: the output of `rebuild` is well-formed.
            Err(_) => self.patch(interest, onward),
        }
    }

    fn patch(&mut self, interest: &InterestRef<'_>, onward: Onward) {
        let start = interest.wire.as_ptr() as usize;
        let place = |part: &[u8]| ((part.as_ptr() as usize - start) as u16, part.len() as u16);
        self.octets.clear();
        self.octets.extend_from_slice(interest.wire);
        let nonce_at = interest.nonce_at().unwrap_or_default();
        if let Some(nonce) = self.octets.get_mut(nonce_at..nonce_at + 4) {
            nonce.copy_from_slice(&onward.nonce);
        }
        if let (Some(at), Some(limit)) = (interest.hop_limit_at(), onward.hop_limit)
            && let Some(octet) = self.octets.get_mut(at)
        {
            *octet = limit;
        }
        self.name = place(interest.name.value());
        self.hint = interest.forwarding_hint.map_or((0, 0), place);
        self.nonce_at = nonce_at as u16;
        self.nonce = u32::from_be_bytes(onward.nonce);
        self.hop_limit = onward.hop_limit;
    }

    fn part(&self, (at, len): (u16, u16)) -> &[u8] {
        self.octets
            .get(usize::from(at)..usize::from(at) + usize::from(len))
            .unwrap_or_default()
    }

    /// Returns the packet with this nonce: the one allocation and copy that an outgoing Interest
    /// costs.
    pub(crate) fn packet(&self, nonce: u32) -> SharedPacket {
        if nonce == self.nonce {
            return SharedPacket::from(&self.octets[..]);
        }
        let mut octets = self.octets.to_vec();
        let at = usize::from(self.nonce_at);
        if let Some(place) = octets.get_mut(at..at + 4) {
            place.copy_from_slice(&nonce.to_be_bytes());
        }
        octets.into()
    }
}

/// Rebuilds the Interest with a nonce and a hop limit if they are missing, and without the
/// forwarding hint if it has arrived.
fn rebuild(interest: &InterestRef<'_>, onward: Onward) -> Vec<u8> {
    let mut inner = Vec::with_capacity(interest.wire.len() + 9);
    let (mut nonce, mut hop_limit) = (interest.nonce.is_none(), interest.hop_limit.is_none());
    let mut reader = tlv::outermost(interest.wire)
        .map(|outer| tlv::Reader::new(outer.value))
        .ok();
    while let Some(element) = reader
        .as_mut()
        .and_then(|reader| reader.element().ok().flatten())
    {
        let typ = element.typ;
        let after_nonce = matches!(typ, types::INTEREST_LIFETIME | types::HOP_LIMIT);
        let after_limit = matches!(
            typ,
            types::APPLICATION_PARAMETERS
                | types::INTEREST_SIGNATURE_INFO
                | types::INTEREST_SIGNATURE_VALUE
        );
        if core::mem::take(&mut nonce) {
            if after_nonce || after_limit {
                tlv::write_element(&mut inner, types::NONCE, &onward.nonce);
            } else {
                nonce = true;
            }
        }
        if after_limit && core::mem::take(&mut hop_limit) {
            write_hop_limit(&mut inner, onward);
        }
        if typ != types::FORWARDING_HINT || !onward.arrived {
            inner.extend_from_slice(element.whole);
        }
    }
    if nonce {
        tlv::write_element(&mut inner, types::NONCE, &onward.nonce);
    }
    if hop_limit {
        write_hop_limit(&mut inner, onward);
    }
    let mut wire = Vec::with_capacity(inner.len() + 4);
    tlv::write_element(&mut wire, types::INTEREST, &inner);
    wire
}

fn write_hop_limit(inner: &mut Vec<u8>, onward: Onward) {
    if let Some(limit) = onward.hop_limit {
        tlv::write_element(inner, types::HOP_LIMIT, &[limit]);
    }
}

/// The fields besides the name that distinguish pending Interests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Selectors<'a> {
    pub(crate) can_be_prefix: bool,
    pub(crate) must_be_fresh: bool,
    /// Value of the forwarding hint, empty without one.
    pub(crate) hint: &'a [u8],
}

/// One pending Interest.
///
/// With tables of 100,000 entries each use begins in memory: six cache lines, which are prefetched
/// together. The order of the fields keeps each part in as few of them as possible.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Entry {
    taken: bool,
    pub(crate) can_be_prefix: bool,
    pub(crate) must_be_fresh: bool,
    /// A Data has satisfied it.
    pub(crate) satisfied: bool,
    /// The content store has its Data, and would answer the same Interest with it: its nonces need
    /// not be remembered.
    pub(crate) loop_is_answered: bool,
    pub(crate) components: u16,
    pub(crate) hash: u64,
    /// If its name ends in an implicit digest: the hash of the name before it.
    pub(crate) digest_of: Option<NonZeroU64>,
    /// The next entry of the same name, and the next one of those that differ by their digest.
    pub(super) next: u32,
    pub(super) next_digest: u32,
    /// When it expires.
    pub(crate) expiry: Time,
    /// The strategy's timer; [`Time::MAX`] for none.
    pub(crate) timer: Time,
    /// Its strategy, as of this epoch of the strategy choice.
    pub(crate) strategy: (u32, u32),
    /// The number of removed faces when its records were last checked: all faces in them existed
    /// then.
    pub(crate) removals: u32,
    /// Octets of the Interest that count against the PIT's bound: 0 for one that is held in place.
    pub(super) counted: u32,
    pub(crate) in_records: SmallVec<[InRecord; 1]>,
    /// For strategies that suppress by PIT entry: the interval after the last transmission in
    /// nanoseconds; zero before the first.
    pub(crate) suppression: u64,
    pub(crate) out_records: SmallVec<[OutRecord; 1]>,
    pub(crate) wire: Wire,
}

impl Entry {
    /// Returns the octets of the Interest beyond the entry itself.
    pub(super) fn octets_beyond(&self) -> u32 {
        match self.wire.octets.spilled() {
            true => self.wire.octets.len() as u32,
            false => 0,
        }
    }

    /// Returns a free entry.
    fn blank() -> Entry {
        Entry {
            wire: Wire::default(),
            taken: false,
            can_be_prefix: false,
            must_be_fresh: false,
            satisfied: false,
            components: 0,
            hash: 0,
            digest_of: None,
            next: NONE,
            next_digest: NONE,
            in_records: SmallVec::new(),
            out_records: SmallVec::new(),
            expiry: Time::ZERO,
            timer: Time::MAX,
            loop_is_answered: false,
            suppression: 0,
            strategy: (NONE, 0),
            removals: 0,
            counted: 0,
        }
    }

    /// Reinitialises the entry for another Interest. Its records were cleared when it was released.
    fn begin(&mut self, key: &NameKey, digest_of: Option<NonZeroU64>, selectors: Selectors<'_>) {
        self.taken = true;
        (self.can_be_prefix, self.must_be_fresh) =
            (selectors.can_be_prefix, selectors.must_be_fresh);
        (self.satisfied, self.loop_is_answered) = (false, false);
        self.components = key.components().min(usize::from(u16::MAX)) as u16;
        (self.hash, self.digest_of) = (key.full(), digest_of);
        (self.next, self.next_digest) = (NONE, NONE);
        (self.expiry, self.timer) = (Time::ZERO, Time::MAX);
        self.suppression = 0;
        self.strategy = (NONE, 0);
    }

    /// Returns its name.
    pub fn name(&self) -> NameRef<'_> {
        NameRef::from_value(self.name_value()).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn name_value(&self) -> &[u8] {
        self.wire.part(self.wire.name)
    }

    pub(crate) fn hint(&self) -> &[u8] {
        self.wire.part(self.wire.hint)
    }

    pub(crate) fn selectors(&self) -> Selectors<'_> {
        Selectors {
            can_be_prefix: self.can_be_prefix,
            must_be_fresh: self.must_be_fresh,
            hint: self.hint(),
        }
    }

    /// Returns the in-records.
    pub fn in_records(&self) -> &[InRecord] {
        &self.in_records
    }

    /// Returns the out-records.
    pub fn out_records(&self) -> &[OutRecord] {
        &self.out_records
    }

    /// Returns the record of an upstream.
    pub fn out_record(&self, face: FaceId) -> Option<&OutRecord> {
        self.out_records.iter().find(|record| record.face == face)
    }

    /// Returns true while an upstream may still answer.
    pub fn has_pending_out_records(&self, now: Time) -> bool {
        self.out_records.iter().any(|record| record.is_pending(now))
    }

    /// Prefetches its cache lines.
    #[inline]
    fn prefetch(&self) {
        prefetch::from(&self.taken, size_of::<Entry>());
    }

    /// Returns its next deadline.
    pub(crate) fn deadline(&self) -> Time {
        self.expiry.min(self.timer)
    }

    /// Returns true if an Interest with this nonce has arrived on another path. On a link with one
    /// peer, the same nonce from the same face is that peer's retransmission.
    pub(crate) fn has_looped(&self, nonce: u32, from: FaceId, one_peer: bool) -> bool {
        let here = self
            .in_records
            .iter()
            .any(|record| record.nonce == nonce && record.face == from);
        if here && one_peer {
            return false;
        }
        here || self.in_records.iter().any(|record| record.nonce == nonce)
            || self.out_records.iter().any(|record| record.nonce == nonce)
    }
}

/// Entries in numbered slots. A released entry is not destroyed but reinitialised for another
/// Interest, in memory that is likely cached: its few hundred octets are not moved.
#[derive(Clone, Debug, Default)]
pub(super) struct Entries {
    places: Vec<Entry>,
    /// The slot released last is reused first.
    free: Vec<u32>,
}

impl Entries {
    pub(super) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) const fn places(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        self.places.get(slot as usize).filter(|entry| entry.taken)
    }

    /// Prefetches a slot.
    #[inline]
    pub(super) fn prefetch(&self, slot: u32) {
        if let Some(entry) = self.places.get(slot as usize) {
            entry.prefetch();
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.places
            .get_mut(slot as usize)
            .filter(|entry| entry.taken)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.places
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.taken)
            .map(|(slot, entry)| (slot as u32, entry))
    }

    /// Takes a slot for an Interest.
    pub(super) fn take(
        &mut self,
        key: &NameKey,
        (interest, onward): (&InterestRef<'_>, Onward),
        digest_of: Option<NonZeroU64>,
        selectors: Selectors<'_>,
    ) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.places.push(Entry::blank());
            (self.places.len() - 1) as u32
        });
        if let Some(entry) = self.places.get_mut(slot as usize) {
            entry.begin(key, digest_of, selectors);
            entry.wire.take_over(interest, onward);
        }
        slot
    }

    /// Releases a slot; frees the allocations of a large Interest or many records.
    pub(super) fn release(&mut self, slot: u32) {
        let Some(entry) = self.get_mut(slot) else {
            return;
        };
        entry.taken = false;
        entry.in_records.clear();
        entry.out_records.clear();
        if entry.wire.octets.spilled() {
            entry.wire.octets = SmallVec::new();
        }
        if entry.in_records.spilled() {
            entry.in_records = SmallVec::new();
        }
        if entry.out_records.spilled() {
            entry.out_records = SmallVec::new();
        }
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_ndn_packet::{Interest, Name};

    use super::*;

    fn interest() -> Interest {
        let mut interest = Interest::new("/a/b".parse().unwrap());
        interest.can_be_prefix = true;
        interest.forwarding_hint = vec!["/region".parse().unwrap()];
        interest.lifetime = Some(core::time::Duration::from_millis(500));
        interest
    }

    fn check(interest: &Interest, hop_limit: Option<u8>, arrived: bool) {
        let octets = interest.encode();
        let nonce = [1, 2, 3, 4];
        let mut wire = Wire::default();
        wire.take_over(
            &InterestRef::decode(&octets).unwrap(),
            Onward {
                nonce,
                hop_limit,
                arrived,
            },
        );
        let packet = wire.packet(u32::from_be_bytes(nonce));
        let out = InterestRef::decode(&packet).unwrap();
        let hint = if arrived {
            Vec::new()
        } else {
            interest.forwarding_hint.clone()
        };
        let name = InterestRef::decode(&octets).unwrap().name;
        assert_eq!(out.name, name);
        assert_eq!(wire.part(wire.name), name.value());
        assert_eq!(
            out.delegations()
                .map(|name| name.to_name())
                .collect::<Vec<Name>>(),
            hint
        );
        assert_eq!(
            wire.part(wire.hint),
            out.forwarding_hint.unwrap_or_default()
        );
        assert_eq!((out.nonce, out.hop_limit), (Some(nonce), hop_limit));
        assert_eq!(
            out.parameters.map(<[u8]>::to_vec),
            interest.parameters.as_ref().map(|value| value.to_vec())
        );
        assert_eq!(
            InterestRef::decode(&wire.packet(9)).unwrap().nonce,
            Some([0, 0, 0, 9])
        );
    }

    #[test]
    fn nonce_and_hop_limit_are_put_where_they_belong_and_an_arrived_hint_is_left_out() {
        let mut with_parameters = interest();
        with_parameters.parameters = Some(bytes::Bytes::from_static(b"parameters"));
        let plain = Interest::new("/plain".parse().unwrap());
        for mut interest in [interest(), with_parameters, plain] {
            for nonce in [None, Some([9; 4])] {
                for hop_limit in [None, Some(7)] {
                    (interest.nonce, interest.hop_limit) = (nonce, hop_limit);
                    check(&interest, hop_limit.map(|limit| limit - 1), false);
                    check(&interest, hop_limit.map(|limit| limit - 1), true);
                    check(&interest, Some(32), false);
                }
            }
        }
    }
}
