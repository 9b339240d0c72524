//! Encoded, signed segments, bounded in bytes.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use whimbrel_core::Time;
use whimbrel_ndn_packet::{Component, Data, Name, Signer, tlv, types};

/// Packets by segment number; the oldest is evicted first.
#[derive(Debug, Default)]
pub(super) struct Store {
    packets: BTreeMap<u64, Bytes>,
    order: VecDeque<u64>,
    bytes: usize,
    limit: usize,
}

impl Store {
    pub(super) fn new(limit: usize) -> Store {
        Store {
            limit,
            ..Store::default()
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<Bytes> {
        self.packets.get(&number).cloned()
    }

    pub(super) fn put(&mut self, number: u64, packet: Bytes) {
        if packet.len() > self.limit || self.packets.contains_key(&number) {
            return;
        }
        self.bytes += packet.len();
        self.packets.insert(number, packet);
        self.order.push_back(number);
        while self.bytes > self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self
                .packets
                .remove(&oldest)
                .map_or(0, |packet| packet.len());
        }
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The common parts of one version's segments, to encode them with one copy of the content.
pub(super) struct SegmentEncoder {
    prefix: Name,
    /// The MetaInfo element.
    meta: Vec<u8>,
    /// The SignatureInfo element.
    signature_info: Vec<u8>,
}

/// Octets of the outermost type and length of a packet of 253 to 65,535 octets.
const USUAL_HEADER: usize = 4;

impl SegmentEncoder {
    pub(super) fn new(
        prefix: Name,
        freshness: core::time::Duration,
        last: u64,
        signer: &dyn Signer,
    ) -> SegmentEncoder {
        let mut meta = Vec::new();
        tlv::write_nested(&mut meta, types::META_INFO, |out| {
            if !freshness.is_zero() {
                let millis = u64::try_from(freshness.as_millis()).unwrap_or(u64::MAX);
                tlv::write_integer_element(out, types::FRESHNESS_PERIOD, millis);
            }
            tlv::write_nested(out, types::FINAL_BLOCK_ID, |out| {
                Component::segment(last).as_ref().encode(out)
            });
        });
        let mut signature_info = Vec::new();
        signer
            .info()
            .encode(&mut signature_info, types::SIGNATURE_INFO);
        SegmentEncoder {
            prefix,
            meta,
            signature_info,
        }
    }

    /// Encodes a signed Data; `read` appends the content.
    pub(super) fn encode<E>(
        &self,
        number: u64,
        size_hint: usize,
        signer: &dyn Signer,
        content: &mut Vec<u8>,
        read: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        content.clear();
        read(content)?;
        let number = Component::segment(number);
        let mut wire = Vec::with_capacity(size_hint);
        wire.extend_from_slice(&[0; USUAL_HEADER]);
        let name_len = self.prefix.as_ref().value().len()
            + tlv::element_len(types::SEGMENT, number.as_ref().value().len());
        tlv::write_header(&mut wire, types::NAME, name_len);
        wire.extend_from_slice(self.prefix.as_ref().value());
        number.as_ref().encode(&mut wire);
        wire.extend_from_slice(&self.meta);
        tlv::write_element(&mut wire, types::CONTENT, content);
        wire.extend_from_slice(&self.signature_info);
        let signature = signer.sign(&[wire.get(USUAL_HEADER..).unwrap_or_default()]);
        tlv::write_element(&mut wire, types::SIGNATURE_VALUE, &signature);
        // The length is known only now; it nearly always fits the reserved header.
        let len = wire.len() - USUAL_HEADER;
        let mut header = Vec::with_capacity(USUAL_HEADER);
        tlv::write_header(&mut header, types::DATA, len);
        if header.len() == USUAL_HEADER {
            wire.iter_mut()
                .zip(header)
                .for_each(|(place, octet)| *place = octet);
        } else {
            wire.splice(..USUAL_HEADER, header);
        }
        Ok(wire.into())
    }
}

/// The RDR metadata packet: names the served version. It is rebuilt only when it is requested after
/// the last one became stale, so that requests cost a signature at most every few milliseconds.
pub(super) struct Metadata {
    versioned: Name,
    prefix: Name,
    freshness: core::time::Duration,
    made: Option<(Time, Bytes)>,
    last_version: u64,
}

impl Metadata {
    pub(super) fn new(name: &Name, versioned: Name, freshness: core::time::Duration) -> Metadata {
        let prefix = name.child(Component::keyword("metadata").as_ref());
        Metadata {
            versioned,
            prefix,
            freshness,
            made: None,
            last_version: 0,
        }
    }

    /// `/name/32=metadata`.
    pub(super) const fn prefix(&self) -> &Name {
        &self.prefix
    }

    /// The packet at `now`; `unix_micros` is that time for its version.
    pub(super) fn packet(&mut self, now: Time, unix_micros: u64, signer: &dyn Signer) -> Bytes {
        if let Some((at, packet)) = &self.made
            && now.since(*at) < self.freshness
        {
            return packet.clone();
        }
        self.last_version = unix_micros.max(self.last_version + 1);
        let segment = Component::segment(0);
        let name = self
            .prefix
            .child(Component::version(self.last_version).as_ref())
            .child(segment.as_ref());
        let mut content = Vec::new();
        self.versioned.as_ref().encode(&mut content);
        let data = Data {
            freshness: self.freshness,
            final_block_id: Some(segment),
            ..Data::new(name, content)
        };
        let packet = Bytes::from(data.encode(signer));
        self.made = Some((now, packet.clone()));
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;
    use whimbrel_ndn_packet::{DataRef, DigestSigner};

    proptest! {
        #[test]
        fn a_segment_is_encoded_as_any_data(
            number: u64, last: u64, freshness in 0u64..100_000, content in prop::collection::vec(any::<u8>(), 0..700),
        ) {
            let prefix: Name = "/a/b/v=7".parse().unwrap();
            let freshness = Duration::from_millis(freshness);
            let encoder = SegmentEncoder::new(prefix.clone(), freshness, last, &DigestSigner);
            let mut scratch = Vec::new();
            let wire = encoder.encode::<()>(number, 0, &DigestSigner, &mut scratch, |out| {
                out.extend_from_slice(&content);
                Ok(())
            }).unwrap();
            let expected = Data {
                freshness,
                final_block_id: Some(Component::segment(last)),
                ..Data::new(prefix.child(Component::segment(number).as_ref()), content)
            };
            prop_assert_eq!(&wire[..], &expected.encode(&DigestSigner)[..]);
            prop_assert!(DataRef::decode(&wire).is_ok());
        }

        #[test]
        fn a_store_keeps_its_bound(puts in prop::collection::vec((0u64..20, 0usize..50), 0..100)) {
            let mut store = Store::new(100);
            for (number, size) in puts {
                store.put(number, Bytes::from(vec![0; size]));
                prop_assert!(store.bytes() <= 100);
                prop_assert_eq!(store.bytes(), store.packets.values().map(|packet| packet.len()).sum::<usize>());
                prop_assert_eq!(store.order.len(), store.packets.len());
                prop_assert!(store.get(number).is_some());
            }
        }
    }
}
