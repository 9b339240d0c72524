//! Interests for consecutive segments: the name is encoded once, then only number and nonce change.

use core::time::Duration;

use bytes::{Bytes, BytesMut};
use whimbrel_ndn_packet::interest::DEFAULT_LIFETIME;
use whimbrel_ndn_packet::{Component, Interest, InterestRef, Name, tlv, types};

/// Octets of Interests carved from one allocation.
const SLAB: usize = 32 * 1024;

/// The common parts of the Interests for all segments of one object.
#[derive(Clone, Debug)]
pub struct InterestTemplate {
    prefix: Name,
    // One for each length of a number: 1, 2, 4, 8 octets.
    forms: [Form; 4],
    slab: BytesMut,
}

#[derive(Clone, Debug, Default)]
struct Form {
    wire: Vec<u8>,
    number_at: usize,
    nonce_at: usize,
}

impl InterestTemplate {
    /// Returns a template of Interests for `prefix` and a number of the type `number_type` (a
    /// segment or a sequence number). The default lifetime of 4 s is omitted, as in ndn-cxx.
    pub fn new(
        prefix: &Name,
        number_type: u64,
        must_be_fresh: bool,
        lifetime: Duration,
        forwarding_hint: &[Name],
    ) -> InterestTemplate {
        let form = |number: u64| {
            let name = prefix.child(Component::number(number_type, number).as_ref());
            let interest = Interest {
                must_be_fresh,
                forwarding_hint: forwarding_hint.to_vec(),
                nonce: Some([0; 4]),
                lifetime: (lifetime != DEFAULT_LIFETIME).then_some(lifetime),
                ..Interest::new(name)
            };
            let wire = interest.encode();
            let places = InterestRef::decode(&wire).ok().and_then(|decoded| {
                let number = decoded.name.last()?.value();
                let number_at = number.as_ptr() as usize - wire.as_ptr() as usize;
                Some((number_at, decoded.nonce_at()?))
            });
            // An encoded `Interest` always has a name that ends in the number, and a nonce.
            let (number_at, nonce_at) = places.unwrap_or_default();
            Form {
                wire,
                number_at,
                nonce_at,
            }
        };
        InterestTemplate {
            prefix: prefix.clone(),
            forms: [form(0), form(1 << 8), form(1 << 16), form(1 << 32)],
            slab: BytesMut::new(),
        }
    }

    /// Returns the name before the number.
    pub fn prefix(&self) -> &Name {
        &self.prefix
    }

    /// The Interest for `number`. Allocates once for several Interests.
    pub fn interest(&mut self, number: u64, nonce: u32) -> Bytes {
        let len = tlv::integer_len(number);
        let form = match len {
            1 => &self.forms[0],
            2 => &self.forms[1],
            4 => &self.forms[2],
            _ => &self.forms[3],
        };
        if self.slab.capacity() < form.wire.len() {
            self.slab = BytesMut::with_capacity(SLAB.max(form.wire.len()));
        }
        self.slab.extend_from_slice(&form.wire);
        let octets = number.to_be_bytes();
        patch(
            &mut self.slab,
            form.number_at,
            octets.get(8 - len..).unwrap_or_default(),
        );
        patch(&mut self.slab, form.nonce_at, &nonce.to_be_bytes());
        self.slab.split().freeze()
    }

    /// Returns the number in a name that consists of this prefix and one number, encoded as in this
    /// template.
    pub fn number_in(
        &self,
        name: whimbrel_ndn_packet::NameRef<'_>,
        number_type: u64,
    ) -> Option<u64> {
        let rest = name.value().strip_prefix(self.prefix.as_ref().value())?;
        let mut reader = tlv::Reader::new(rest);
        let component = reader.element().ok()??;
        if !reader.is_empty() || component.typ != number_type {
            return None;
        }
        let number = tlv::read_integer(component.value)?;
        // A longer encoding of the same number is a different name.
        (tlv::integer_len(number) == component.value.len()).then_some(number)
    }

    /// [`InterestTemplate::number_in`] for segments.
    pub fn segment_in(&self, name: whimbrel_ndn_packet::NameRef<'_>) -> Option<u64> {
        self.number_in(name, types::SEGMENT)
    }
}

fn patch(wire: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = wire.get_mut(at..at + octets.len()) {
        place.copy_from_slice(octets);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_template_writes_what_encoding_anew_would(
            number in prop_oneof![0u64..300, any::<u16>().prop_map(u64::from), any::<u32>().prop_map(u64::from), any::<u64>()],
            nonce: u32, fresh: bool, lifetime in 0u64..10_000,
            components in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..5),
            hints in prop::collection::vec("[a-z]{1,5}", 0..3),
        ) {
            let prefix = Name::of(components.into_iter().map(Component::generic));
            let hints: Vec<Name> = hints.iter().map(|hint| hint.parse().unwrap()).collect();
            let lifetime = Duration::from_millis(lifetime);
            let mut template = InterestTemplate::new(&prefix, types::SEGMENT, fresh, lifetime, &hints);
            let expected = Interest {
                must_be_fresh: fresh,
                nonce: Some(nonce.to_be_bytes()),
                lifetime: (lifetime != DEFAULT_LIFETIME).then_some(lifetime),
                forwarding_hint: hints,
                ..Interest::new(prefix.child(Component::segment(number).as_ref()))
            };
            template.interest(1, 2);
            let wire = template.interest(number, nonce);
            prop_assert_eq!(&wire[..], &expected.encode()[..]);
            let decoded = InterestRef::decode(&wire).unwrap();
            prop_assert_eq!(template.segment_in(decoded.name), Some(number));
        }
    }

    #[test]
    fn only_the_prefix_with_one_segment_number_is_recognised() {
        let template = InterestTemplate::new(
            &"/a".parse().unwrap(),
            types::SEGMENT,
            false,
            DEFAULT_LIFETIME,
            &[],
        );
        let number = |name: &str| template.segment_in(name.parse::<Name>().unwrap().as_ref());
        assert_eq!(number("/a/seg=7"), Some(7));
        assert_eq!(number("/a/seg=7/b"), None);
        assert_eq!(number("/a"), None);
        assert_eq!(number("/a/v=7"), None);
        assert_eq!(number("/b/seg=7"), None);
        assert_eq!(
            number("/a/50=%00%07"),
            None,
            "a longer form is another name"
        );
    }
}
