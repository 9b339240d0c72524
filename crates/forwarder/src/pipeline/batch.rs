//! Batches of packets: loads the table entries of all packets before the first is processed.
//!
//! Tables of a million entries do not fit the caches: a load takes longer than all computation for
//! a packet, but a processor runs many loads at once if they are independent. So a batch is read
//! three times: names are hashed; loads of one level (cells of indexes, then entries, then their
//! targets) begin for all packets; then packets are processed one after the other, in order. The
//! outcome is the same as without prefetching.

use smallvec::SmallVec;
use whimbrel_core::Time;
use whimbrel_ndn_packet::tlv::{self, Reader};
use whimbrel_ndn_packet::{DataRef, InterestRef, LpPacket, MAX_PACKET, NameRef, PacketKind, types};

use super::Engine;
use crate::counters::DropReason;
use crate::face::FaceId;
use crate::forwarder::Forwarder;
use crate::tables::name_key::{Depths, NameKey, PARENT};

/// Maximum of packets whose loads begin together: more would evict each other from the nearest
/// cache.
const BATCH: usize = 32;

/// The parts of a packet that determine its loads, before it is decoded.
#[derive(Clone, Copy)]
enum Outline {
    Interest {
        nonce: u32,
        /// It has a path tag, so its flow is looked up, not its prefixes.
        tagged: bool,
    },
    Data,
    /// A Nack, a header for the link alone, or a packet that cannot be decoded.
    Other,
}

impl Outline {
    /// Returns the outline and the name, both unchecked.
    fn of<'a>(lp: &LpPacket<'a>) -> (Outline, NameRef<'a>) {
        Outline::read(lp).unwrap_or((Outline::Other, NameRef::default()))
    }

    fn read<'a>(lp: &LpPacket<'a>) -> Option<(Outline, NameRef<'a>)> {
        let packet = lp
            .fragment
            .filter(|packet| lp.nack.is_none() && packet.len() <= MAX_PACKET)?;
        let kind = PacketKind::of(packet)?;
        let mut reader = Reader::new(packet.get(tlv::header_len(packet)?..)?);
        let name = reader.element().ok()??;
        let outline = match kind {
            PacketKind::Interest => {
                let nonce = core::iter::from_fn(|| reader.element().ok()?)
                    .find(|field| field.typ == types::NONCE);
                let nonce = nonce.and_then(|field| field.value.try_into().ok());
                Outline::Interest {
                    nonce: nonce.map_or(0, u32::from_be_bytes),
                    tagged: lp.path_tag.is_some(),
                }
            }
            PacketKind::Data => Outline::Data,
            PacketKind::Lp => return None,
        };
        Some((outline, NameRef::from_value(name.value).ok()?))
    }
}

impl Forwarder {
    pub(crate) fn incoming_packet(&mut self, now: Time, from: FaceId, lp: &LpPacket<'_>) {
        // The scratch keys return after the batch, to reuse their memory.
        let mut keys = core::mem::take(&mut self.keys);
        if keys.is_empty() {
            keys.push(NameKey::default());
        }
        if let Some(key) = keys.first_mut() {
            let (outline, name) = Outline::of(lp);
            key.read(&self.engine.hasher, name, self.depths(outline));
            self.engine.prefetch_cells(outline, key);
            self.process(now, from, lp, key);
        }
        self.keys = keys;
    }

    pub(crate) fn incoming_packets(&mut self, now: Time, packets: &[(FaceId, LpPacket<'_>)]) {
        let mut keys = core::mem::take(&mut self.keys);
        for batch in packets.chunks(BATCH) {
            if keys.len() < batch.len() {
                keys.resize_with(BATCH, NameKey::default);
            }
            let mut outlines: SmallVec<[Outline; BATCH]> = SmallVec::new();
            for ((_, lp), key) in batch.iter().zip(&mut keys) {
                let (outline, name) = Outline::of(lp);
                key.read(&self.engine.hasher, name, self.depths(outline));
                outlines.push(outline);
            }
            self.engine.prefetch(&outlines, &keys);
            for ((from, lp), key) in batch.iter().zip(&mut keys) {
                self.process(now, *from, lp, key);
            }
        }
        self.keys = keys;
    }

    /// Lengths of prefixes whose hashes the tables need for a packet.
    fn depths(&self, outline: Outline) -> Depths {
        match outline {
            Outline::Interest { tagged, .. } => {
                let flow = if tagged { PARENT } else { 0 };
                self.engine.fib.depths() | self.strategies.depths() | flow
            }
            Outline::Data => self.engine.pit.depths() | self.engine.cs.depths(),
            Outline::Other => 0,
        }
    }

    /// Decodes a packet, whose name has this key, and sends it through its pipeline.
    fn process(&mut self, now: Time, from: FaceId, lp: &LpPacket<'_>, key: &mut NameKey) {
        // Without a packet it is a header for the link alone.
        let Some(packet) = lp.fragment else { return };
        let kind = PacketKind::of(packet).filter(|_| packet.len() <= MAX_PACKET);
        match (kind, lp.nack) {
            (Some(PacketKind::Interest), None) => {
                if let Ok(interest) = InterestRef::decode(packet) {
                    return self.incoming_interest(now, from, lp, &interest, key);
                }
            }
            (Some(PacketKind::Interest), Some(reason)) => {
                return self.incoming_nack(now, from, packet, reason);
            }
            (Some(PacketKind::Data), _) => {
                if let Ok(data) = DataRef::decode(packet) {
                    // An earlier Interest of the batch may have been the first for a length of
                    // prefixes; and a Data with a Nack's header has not been hashed, because it is
                    // dropped.
                    let depths = self.depths(Outline::Data);
                    if key.lacks(depths) {
                        key.read(&self.engine.hasher, data.name, depths);
                    }
                    return self.incoming_data(now, from, lp, &data, key);
                }
            }
            _ => {}
        }
        self.engine.counters.drop(DropReason::Malformed);
    }
}

impl Engine {
    /// Begins all loads for a batch, level by level.
    fn prefetch(&self, packets: &[Outline], keys: &[NameKey]) {
        let each = || packets.iter().copied().zip(keys);
        each().for_each(|(packet, key)| self.prefetch_cells(packet, key));
        each().for_each(|(packet, key)| self.prefetch_entries(packet, key));
        each().for_each(|(packet, key)| self.prefetch_contents(packet, key));
        let data = packets
            .iter()
            .filter(|packet| matches!(packet, Outline::Data))
            .count();
        self.cs.prefetch_victims(data);
    }

    fn prefetch_cells(&self, packet: Outline, key: &NameKey) {
        if let Outline::Interest { nonce, tagged } = packet {
            self.dead_nonces.prefetch(key.full(), nonce);
            match tagged {
                true => self.fab.prefetch_cell(key),
                false => self.fib.prefetch_cells(key),
            }
        }
        if !matches!(packet, Outline::Other) {
            self.pit.prefetch_cell(key);
            self.cs.prefetch_cell(key);
        }
    }

    fn prefetch_entries(&self, packet: Outline, key: &NameKey) {
        if let Outline::Interest { tagged, .. } = packet {
            match tagged {
                true => self.fab.prefetch_entry(key),
                false => self.fib.prefetch_entries(key),
            }
            self.cs.prefetch_entry(key);
        }
        if !matches!(packet, Outline::Other) {
            self.pit.prefetch_entry(key);
        }
    }

    fn prefetch_contents(&self, packet: Outline, key: &NameKey) {
        match packet {
            Outline::Interest { tagged, .. } => {
                self.cs.prefetch_packet(key);
                if tagged {
                    self.fab.prefetch_next_hops(&self.fib, key);
                }
            }
            // If Data is not kept, its Interest's nonce becomes a dead one.
            Outline::Data if !self.cs.keeps() => {
                if let Some(nonce) = self.pit.sent_nonce(key) {
                    self.dead_nonces.prefetch(key.full(), nonce);
                }
            }
            _ => {}
        }
    }
}
