//! Encoding and decoding returns the same values.

use core::time::Duration;

use whimbrel_ndn_packet::lp::{self, LinkFields, Numbers};
use whimbrel_ndn_packet::{
    Component, Data, DataRef, DigestSigner, Interest, InterestRef, LpHeader, LpPacket, NackReason,
    Name, Signer,
};

fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

#[test]
fn an_interest_keeps_every_field() {
    let interest = Interest {
        can_be_prefix: true,
        must_be_fresh: true,
        forwarding_hint: vec![name("/hint/a"), name("/hint/b")],
        nonce: Some([1, 2, 3, 4]),
        lifetime: Some(Duration::from_millis(600)),
        hop_limit: Some(7),
        parameters: Some("question".into()),
        ..Interest::new(name("/a/seg=4"))
    };
    let wire = interest.encode();
    let view = InterestRef::decode(&wire).expect("it is an Interest");
    assert!(view.can_be_prefix && view.must_be_fresh && view.parameters_digest_is_valid());
    assert_eq!(
        view.delegations()
            .map(|name| name.to_string())
            .collect::<Vec<_>>(),
        ["/hint/a", "/hint/b"]
    );
    assert_eq!(
        (view.nonce, view.lifetime, view.hop_limit),
        (Some([1, 2, 3, 4]), Duration::from_millis(600), Some(7))
    );
    assert_eq!(wire[view.nonce_at().unwrap()..][..4], [1, 2, 3, 4]);
    assert_eq!(wire[view.hop_limit_at().unwrap()], 7);
    assert_eq!(view.name.len(), 3);
}

#[test]
fn a_nonce_is_added_where_the_grammar_has_it() {
    let interest = Interest {
        lifetime: Some(Duration::from_secs(1)),
        ..Interest::new(name("/a"))
    };
    let wire = interest.encode();
    let with = InterestRef::decode(&wire).unwrap().with_nonce([9; 4]);
    assert_eq!(
        with,
        Interest {
            nonce: Some([9; 4]),
            ..interest
        }
        .encode()
    );
}

#[test]
fn a_signed_interest_is_signed_over_its_name_without_the_digest() {
    let interest = Interest::new(name("/localhost/nfd/rib/register"));
    let wire = interest.encode_signed(&DigestSigner, &DigestSigner.info());
    let view = InterestRef::decode(&wire).unwrap();
    assert!(view.parameters_digest_is_valid());
    let portions = view.signed_portions();
    assert_eq!(
        view.signature_value,
        Some(&DigestSigner.sign(&portions)[..])
    );
}

#[test]
fn a_data_keeps_every_field_and_its_digest_covers_the_signed_portion() {
    let data = Data {
        freshness: Duration::from_secs(10),
        final_block_id: Some(Component::segment(3)),
        ..Data::new(name("/a/v=1/seg=0"), "payload")
    };
    let wire = data.encode(&DigestSigner);
    let view = DataRef::decode(&wire).unwrap();
    assert_eq!(
        (view.freshness, view.content),
        (Duration::from_secs(10), &b"payload"[..])
    );
    assert_eq!(
        view.final_block_id.map(|component| component.to_owned()),
        Some(Component::segment(3))
    );
    assert_eq!(
        view.signature_value,
        DigestSigner.sign(&[view.signed_portion])
    );
}

#[test]
fn a_link_header_keeps_every_field() {
    let header = LpHeader {
        pit_token: Some(vec![1, 2, 3].into()),
        nack: Some(NackReason::NoRoute),
        incoming_face_id: Some(300),
        congestion_mark: Some(1),
        non_discovery: true,
        ..LpHeader::default()
    };
    let link = LinkFields {
        sequence: Some(u64::MAX),
        frag_index: Some(1),
        frag_count: Some(2),
        tx_sequence: Some(5),
        acks: Numbers::Listed(&[7, 8]),
        path_probe: Some(b"probe"),
        path_answer: Some(b"answer of 12"),
        adaptive_hello: Some(b"x"),
    };
    let mut wire = Vec::new();
    lp::encode(&mut wire, &link, &header, Some(b"fragment"));
    let packet = LpPacket::decode(&wire, false).unwrap();
    assert_eq!(packet.to_header(), header);
    assert_eq!((packet.header, packet.link), (header.as_ref(), link));
    assert_eq!(packet.link.acks.iter().collect::<Vec<_>>(), [7, 8]);
    assert_eq!(packet.fragment, Some(&b"fragment"[..]));
    wire.extend_from_slice(&[0; 9]);
    assert!(LpPacket::decode(&wire, true).is_ok() && LpPacket::decode(&wire, false).is_err());
}

#[test]
fn uris_are_read_as_they_are_written() {
    for uri in [
        "/",
        "/a",
        "/8=a".trim_start_matches('x'),
        "/a/v=3/seg=0",
        "/32=metadata",
        "/...",
        "/a%20b",
        "/seq=1/t=2/off=3",
    ] {
        let text = name(uri).to_string();
        assert_eq!(name(&text), name(uri), "{uri}");
    }
    assert_eq!(name("/8=a").to_string(), "/a");
    assert!(
        "/a//b".parse::<Name>().is_err()
            && "/%zz".parse::<Name>().is_err()
            && "/0=a".parse::<Name>().is_err()
    );
}
