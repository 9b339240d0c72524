//! For all packets: encoding and decoding returns the same values, and a decoded packet keeps its
//! meaning when it is encoded again. Arbitrary octets and damaged packets are rejected or decoded,
//! never a panic.

#![allow(
    clippy::needless_update,
    reason = "a new header field needs no line here"
)]

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_ndn_packet::lp::{self, LinkFields, Numbers};
use whimbrel_ndn_packet::signature::KeyLocator;
use whimbrel_ndn_packet::{
    CachePolicy, Certificate, Component, ContentType, Data, DataRef, DigestSigner, Interest,
    InterestRef, LpHeader, LpPacket, NackReason, Name, NameRef, PrefixAnnouncement,
    PrefixAnnouncementRef, PublicKey, SafeBag, SignatureInfo, Signer, ValidityPeriod,
};

fn octets(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..most).prop_map(Bytes::from)
}

fn component() -> impl Strategy<Value = Component> {
    prop_oneof![
        4 => octets(20).prop_map(Component::generic),
        1 => octets(300).prop_map(Component::generic),
        1 => "[.]{0,5}".prop_map(|dots| Component::generic(dots.into_bytes())),
        2 => (50..60u64, any::<u64>()).prop_map(|(typ, number)| Component::number(typ, number)),
        1 => (3..=u16::MAX, octets(10)).prop_map(|(typ, value)| Component::new(typ, value)),
        1 => any::<[u8; 32]>().prop_map(|digest| Component::implicit_digest(&digest)),
    ]
}

fn name(least: usize) -> impl Strategy<Value = Name> {
    prop::collection::vec(component(), least..6).prop_map(Name::of)
}

prop_compose! {
    fn interest()(
        name in name(1),
        can_be_prefix in any::<bool>(),
        must_be_fresh in any::<bool>(),
        forwarding_hint in prop::collection::vec(name(0), 0..3),
        nonce in any::<Option<[u8; 4]>>(),
        lifetime in prop::option::of(prop_oneof![0..100_000u64, any::<u64>()].prop_map(Duration::from_millis)),
        hop_limit in any::<Option<u8>>(),
        parameters in prop::option::of(octets(400)),
    ) -> Interest {
        Interest { name, can_be_prefix, must_be_fresh, forwarding_hint, nonce, lifetime, hop_limit, parameters }
    }
}

prop_compose! {
    fn data()(
        name in name(0),
        content_type in prop_oneof![0..8u64, any::<u64>()].prop_map(ContentType::from_code),
        freshness in prop_oneof![0..10_000u64, any::<u64>()].prop_map(Duration::from_millis),
        final_block_id in prop::option::of(component()),
        content in octets(2000),
    ) -> Data {
        Data { name, content_type, freshness, final_block_id, content }
    }
}

prop_compose! {
    fn signature_info()(
        key_locator in prop::option::of(prop_oneof![
            name(0).prop_map(KeyLocator::Name),
            octets(40).prop_map(KeyLocator::Digest),
        ]),
        nonce in prop::option::of(octets(20)),
        time in any::<Option<u64>>(),
        sequence in any::<Option<u64>>(),
    ) -> SignatureInfo {
        SignatureInfo { key_locator, nonce, time, sequence, ..DigestSigner.info() }
    }
}

prop_compose! {
    fn header()(
        pit_token in prop::option::of(prop::collection::vec(any::<u8>(), 1..=32).prop_map(Bytes::from)),
        nack in prop::option::of(prop_oneof![Just(0), Just(50), Just(100), Just(150), any::<u64>()]),
        ids in any::<(Option<u64>, Option<u64>)>(),
        cache_policy in prop::option::of(prop_oneof![
            Just(CachePolicy::NoCache),
            (2..u64::MAX).prop_map(CachePolicy::Other)
        ]),
        congestion_mark in any::<Option<u64>>(),
        non_discovery in any::<bool>(),
        prefix_announcement in prop::option::of(octets(100)),
        path_tag in prop::option::of(octets(252)),
        flags in any::<(bool, bool)>(),
        route_label in any::<Option<u64>>(),
    ) -> LpHeader {
        LpHeader {
            pit_token,
            nack: nack.map(NackReason::from_code),
            incoming_face_id: ids.0,
            next_hop_face_id: ids.1,
            cache_policy,
            congestion_mark,
            non_discovery,
            prefix_announcement,
            route_label,
            path_tag,
            path_discovery: flags.0,
            intermediate: flags.1,
        }
    }
}

fn interest_of(view: &InterestRef<'_>, has_lifetime: bool) -> Interest {
    Interest {
        name: view.name.to_name(),
        can_be_prefix: view.can_be_prefix,
        must_be_fresh: view.must_be_fresh,
        forwarding_hint: view.delegations().map(|name| name.to_name()).collect(),
        nonce: view.nonce,
        lifetime: has_lifetime.then_some(view.lifetime),
        hop_limit: view.hop_limit,
        parameters: view.parameters.map(Bytes::copy_from_slice),
    }
}

fn data_of(view: &DataRef<'_>) -> Data {
    Data {
        name: view.name.to_name(),
        content_type: view.content_type,
        freshness: view.freshness,
        final_block_id: view.final_block_id.map(|component| component.to_owned()),
        content: Bytes::copy_from_slice(view.content),
    }
}

fn decode_everything(wire: &[u8]) {
    let _ = NameRef::decode(wire).map(|name| {
        (
            name.to_string(),
            name.len(),
            name.metadata_of(),
            name.version(),
        )
    });
    if let Ok(interest) = InterestRef::decode(wire) {
        let again = InterestRef::decode(wire).expect("it was one");
        assert_eq!(interest.delegations().count(), again.delegations().count());
        let _ = (
            interest.parameters_digest_is_valid(),
            interest.signed_portions(),
            interest.verify(&DigestSigner),
        );
        let with_nonce = interest.with_nonce([1, 2, 3, 4]);
        let view = InterestRef::decode(&with_nonce).expect("it stays an Interest");
        assert_eq!((view.nonce, view.name), (Some([1, 2, 3, 4]), interest.name));
    }
    if let Ok(data) = DataRef::decode(wire) {
        let _ = (data.full_name(), data.verify(&DigestSigner));
    }
    let _ = PrefixAnnouncementRef::decode(wire).map(|announcement| announcement.lifetime(Some(1)));
    let _ = Certificate::decode(Bytes::copy_from_slice(wire))
        .map(|certificate| certificate.description());
    let _ = SafeBag::decode(wire);
    let _ = PublicKey::from_spki(wire);
    if let Ok(lp) = LpPacket::decode(wire, true) {
        let _ = (lp.fields().count(), lp.to_string());
        let mut again = Vec::new();
        lp::encode(&mut again, &lp.link, &lp.to_header(), lp.fragment);
        let view = LpPacket::decode(&again, false).expect("what was read can be written");
        assert_eq!((view.link, view.header), (lp.link, lp.header));
    }
}

proptest! {
    #[test]
    fn an_interest_is_read_as_it_was_written(interest in interest()) {
        let wire = interest.encode();
        let view = InterestRef::decode(&wire).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let again = interest_of(&view, interest.lifetime.is_some());
        prop_assert_eq!(view.parameters_digest_is_valid(), true);
        prop_assert_eq!(again.encode(), wire.clone());
        let mut again = again;
        if interest.parameters.is_some() {
            prop_assert_eq!(again.name.len(), interest.name.len() + 1);
            again.name = again.name.prefix(interest.name.len());
        }
        prop_assert_eq!(again, interest);
        prop_assert_eq!(view.wire, &wire[..]);
    }

    #[test]
    fn a_signed_interest_is_read_as_it_was_written(interest in interest(), info in signature_info()) {
        let wire = interest.encode_signed(&DigestSigner, &info);
        let view = InterestRef::decode(&wire).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(view.verify(&DigestSigner), Ok(()));
        let found = view.signature_info.expect("it is signed");
        prop_assert_eq!(found.key_locator.map(KeyLocator::from), info.key_locator);
        prop_assert_eq!(found.nonce, info.nonce.as_deref());
        prop_assert_eq!((found.time, found.sequence), (info.time, info.sequence));
        prop_assert_eq!(view.name.prefix(interest.name.len()), interest.name.as_ref());
    }

    #[test]
    fn a_data_is_read_as_it_was_written(data in data()) {
        let wire = data.encode(&DigestSigner);
        let view = DataRef::decode(&wire).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(view.verify(&DigestSigner), Ok(()));
        prop_assert_eq!(data_of(&view), data);
        prop_assert_eq!(data_of(&view).encode(&DigestSigner), wire.clone());
        prop_assert_eq!(view.full_name().len(), view.name.len() + 1);
    }

    #[test]
    fn a_link_packet_is_read_as_it_was_written(
        header in header(),
        sequence in any::<Option<u64>>(),
        place in prop::option::of((0..500u64).prop_flat_map(|count| (0..=count, Just(count + 1)))),
        tx_sequence in any::<Option<u64>>(),
        acks in prop::collection::vec(any::<u64>(), 0..20),
        hello in prop::option::of(octets(20)),
        probe in prop::option::of(prop::collection::vec(any::<u8>(), 4..1500)),
        payload in prop::option::of(prop::collection::vec(any::<u8>(), 1..500)),
    ) {
        let link = LinkFields {
            sequence,
            frag_index: place.map(|(index, _)| index),
            frag_count: place.map(|(_, count)| count),
            tx_sequence,
            acks: Numbers::Listed(&acks),
            path_probe: probe.as_deref(),
            path_answer: None,
            adaptive_hello: hello.as_deref(),
        };
        let mut wire = b"before".to_vec();
        lp::encode(&mut wire, &link, &header, payload.as_deref());
        let wire = &wire[6..];
        let view = LpPacket::decode(wire, false).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!((view.header, view.link), (header.as_ref(), link));
        prop_assert_eq!(view.to_header(), header.clone());
        prop_assert_eq!(view.header.is_empty(), header.is_empty());
        prop_assert_eq!((view.place(), view.skipped.is_empty()), (place.unwrap_or((0, 1)), true));
        prop_assert_eq!(view.fragment, payload.as_deref());
        let payload_len = payload.as_ref().map_or(0, |payload| payload.len() + if payload.len() < 253 { 2 } else { 4 });
        let fields = lp::fields_len(&link, &header);
        prop_assert_eq!(wire.len(), fields + payload_len + if fields + payload_len < 253 { 2 } else { 4 });
    }

    #[test]
    fn a_prefix_announcement_is_read_as_it_was_written(
        prefix in name(0),
        version in any::<u64>(),
        millis in any::<u64>(),
        validity in prop::option::of((0..1u64 << 37, 0..1u64 << 37)),
        now in 0..1u64 << 37,
    ) {
        let validity = validity.map(|(not_before, not_after)| ValidityPeriod { not_before, not_after });
        let expiration = Duration::from_millis(millis);
        let announcement = PrefixAnnouncement { prefix, version, expiration, validity };
        let wire = announcement.encode(&DigestSigner);
        let view = PrefixAnnouncementRef::decode(&wire).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(view.prefix.to_name(), announcement.prefix);
        prop_assert_eq!((view.version, view.expiration, view.validity), (version, expiration, validity));
        prop_assert_eq!(view.verify(&DigestSigner), Ok(()));
        let valid = validity.is_none_or(|validity| validity.contains(now)) && millis > 0;
        prop_assert_eq!(view.lifetime(Some(now)).is_some(), valid);
        prop_assert_eq!(view.lifetime(None).is_some(), millis > 0);
        prop_assert!(view.lifetime(Some(now)).is_none_or(|lifetime| lifetime <= expiration));
    }

    #[test]
    fn a_name_survives_being_a_uri(name in name(0)) {
        prop_assert_eq!(name.to_string().parse::<Name>(), Ok(name.clone()));
        prop_assert_eq!(name.as_ref().numbered().to_string().parse::<Name>(), Ok(name.clone()));
        prop_assert_eq!(format!("ndn:{name}").parse::<Name>(), Ok(name.clone()));
        prop_assert_eq!(format!("ndn://authority{name}").parse::<Name>(), Ok(name));
    }

    #[test]
    fn a_text_that_is_a_name_is_one_name_only(text in "(ndn:)?(/{0,2}([0-9]{1,2}=)?(%[0-9a-fA-F]{0,2}|[a-z.=+é]{0,4})){0,5}") {
        if let Ok(name) = text.parse::<Name>() {
            prop_assert_eq!(name.to_string().parse::<Name>(), Ok(name));
        }
    }

    #[test]
    fn names_are_ordered_as_their_components_are(one in name(0), other in name(0)) {
        let parts = |name: &Name| {
            name.as_ref()
                .components()
                .map(|component| (component.typ(), component.value().len(), component.value().to_vec()))
                .collect::<Vec<_>>()
        };
        prop_assert_eq!(one.cmp(&other), parts(&one).cmp(&parts(&other)));
        prop_assert_eq!(one.as_ref().is_prefix_of(other.as_ref()), parts(&other).starts_with(&parts(&one)));
        let joined = one.join(other.as_ref());
        prop_assert!(one.as_ref().is_prefix_of(joined.as_ref()) && one <= joined);
        prop_assert_eq!(joined.as_ref().suffix(one.len()), other.as_ref());
        prop_assert_eq!(joined.prefix(one.len()), one);
    }

    #[test]
    fn arbitrary_octets_are_never_a_panic(wire in prop::collection::vec(any::<u8>(), 0..200)) {
        decode_everything(&wire);
    }

    #[test]
    fn a_damaged_packet_is_never_a_panic(
        interest in interest(),
        data in data(),
        header in header(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let interest = interest.encode_signed(&DigestSigner, &DigestSigner.info());
        let mut wrapped = Vec::new();
        lp::encode(&mut wrapped, &LinkFields::default(), &header, Some(&interest));
        for mut wire in [interest, data.encode(&DigestSigner), wrapped] {
            for (at, octet) in &damage {
                let at = at.index(wire.len());
                wire[at] = *octet;
            }
            if let Some(cut) = cut {
                wire.truncate(cut.index(wire.len()));
            }
            decode_everything(&wire);
        }
    }
}
