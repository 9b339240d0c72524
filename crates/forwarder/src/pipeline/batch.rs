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
    /// Returns the outline and the octets of the name, both unchecked.
    fn of<'a>(lp: &LpPacket<'a>) -> (Outline, &'a [u8]) {
        Outline::read(lp).unwrap_or((Outline::Other, &[]))
    }

    fn read<'a>(lp: &LpPacket<'a>) -> Option<(Outline, &'a [u8])> {
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
        Some((outline, name.value))
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
            let (outline, name) = self.outline(lp, key);
            self.engine.prefetch_cells(outline, key);
            self.process(now, from, lp, name, key);
        }
        self.keys = keys;
    }

    /// Hashes a packet's name into `key`. Returns the packet's outline and its name, decoded; an
    /// invalid name makes it a packet that cannot be decoded.
    fn outline<'a>(&self, lp: &LpPacket<'a>, key: &mut NameKey) -> (Outline, NameRef<'a>) {
        let (outline, octets) = Outline::of(lp);
        let hasher = &self.engine.hasher;
        match key.decode(hasher, octets, self.depths(outline)) {
            Ok(name) => (outline, name),
            Err(_) => {
                key.read(hasher, NameRef::default(), 0);
                (Outline::Other, NameRef::default())
            }
        }
    }

    pub(crate) fn incoming_packets(&mut self, now: Time, packets: &[(FaceId, LpPacket<'_>)]) {
        let mut keys = core::mem::take(&mut self.keys);
        for batch in packets.chunks(BATCH) {
            if keys.len() < batch.len() {
                keys.resize_with(BATCH, NameKey::default);
            }
            let mut outlines: SmallVec<[(Outline, NameRef<'_>); BATCH]> = SmallVec::new();
            for ((_, lp), key) in batch.iter().zip(&mut keys) {
                outlines.push(self.outline(lp, key));
            }
            self.engine.prefetch(&outlines, &keys);
            let read = outlines.iter().zip(&mut keys);
            for ((from, lp), ((_, name), key)) in batch.iter().zip(read) {
                self.process(now, *from, lp, *name, key);
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

    /// Decodes a packet, whose name is decoded and has this key, and sends it through its pipeline.
    fn process<'a>(
        &mut self,
        now: Time,
        from: FaceId,
        lp: &LpPacket<'a>,
        name: NameRef<'a>,
        key: &mut NameKey,
    ) {
        // Without a packet it is a header for the link alone.
        let Some(packet) = lp.fragment else { return };
        let kind = PacketKind::of(packet).filter(|_| packet.len() <= MAX_PACKET);
        match (kind, lp.nack) {
            (Some(PacketKind::Interest), None) => {
                if let Ok(interest) = InterestRef::decode_named(packet, name) {
                    return self.incoming_interest(now, from, lp, &interest, key);
                }
            }
            (Some(PacketKind::Interest), Some(reason)) => {
                return self.incoming_nack(now, from, packet, reason);
            }
            (Some(PacketKind::Data), _) => {
                if let Ok(data) = DataRef::decode_named(packet, name) {
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
    fn prefetch(&self, packets: &[(Outline, NameRef<'_>)], keys: &[NameKey]) {
        let each = || packets.iter().map(|(outline, _)| *outline).zip(keys);
        each().for_each(|(packet, key)| self.prefetch_cells(packet, key));
        each().for_each(|(packet, key)| self.prefetch_entries(packet, key));
        each().for_each(|(packet, key)| self.prefetch_contents(packet, key));
        let data = packets
            .iter()
            .filter(|(outline, _)| matches!(outline, Outline::Data))
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
