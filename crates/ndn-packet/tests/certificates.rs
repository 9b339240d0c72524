//! Certificates, safe bags and prefix announcements.

use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use whimbrel_ndn_packet::certificate::{identity_of_key, key_name};
use whimbrel_ndn_packet::tlv::DecodeError;
use whimbrel_ndn_packet::{
    Certificate, CertificateDraft, CertificateError, Component, ContentType, Data, DataRef,
    DigestSigner, KeyError, KeyType, Name, PrefixAnnouncement, PrefixAnnouncementRef, PrivateKey,
    SafeBag, SafeBagError, Signer, ValidityPeriod, VerifyError,
};

const NOW: u64 = 1_700_000_000;
const YEAR: u64 = 365 * 86_400;

fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

fn key(seed: u64) -> PrivateKey {
    PrivateKey::generate(KeyType::EcdsaP256, &mut ChaCha20Rng::seed_from_u64(seed)).expect("a key")
}

fn draft(identity: &str, key: &PrivateKey) -> CertificateDraft {
    let key_name = key_name(&name(identity), &key.public_key()).expect("a name");
    CertificateDraft::new(
        key_name,
        Component::generic("self"),
        NOW * 1000,
        ValidityPeriod::starting(NOW, YEAR),
    )
}

#[test]
fn a_self_signed_certificate_names_the_owner_of_its_key() {
    let key = key(1);
    let certificate = draft("/alice", &key)
        .self_sign(&key)
        .expect("a certificate");
    assert_eq!(*certificate.identity(), name("/alice"));
    assert_eq!(certificate.key_name().len(), 3);
    assert_eq!(
        identity_of_key(certificate.key_name().as_ref()),
        Some(name("/alice").as_ref())
    );
    assert_eq!(certificate.name().len(), 5);
    assert_eq!(
        certificate.issuer_id(),
        Some(Component::generic("self").as_ref())
    );
    assert_eq!(certificate.version(), Some(NOW * 1000));
    assert_eq!(*certificate.public_key(), key.public_key());
    assert!(certificate.is_self_signed());
    assert_eq!(certificate.verify(certificate.public_key()), Ok(()));

    let data = DataRef::decode(certificate.wire()).expect("it is a Data");
    assert_eq!(
        (data.content_type, data.freshness),
        (ContentType::Key, Duration::from_secs(3600))
    );
    assert_eq!(data.content, key.public_key().to_spki().expect("written"));
}

#[test]
fn a_certificate_is_valid_from_its_first_second_to_its_last() {
    let key = key(1);
    let certificate = draft("/alice", &key)
        .self_sign(&key)
        .expect("a certificate");
    for (time, valid) in [
        (0, false),
        (NOW - 1, false),
        (NOW, true),
        (NOW + YEAR, true),
        (NOW + YEAR + 1, false),
    ] {
        assert_eq!(certificate.is_valid_at(time), valid, "{time}");
    }
}

#[test]
fn an_issued_certificate_is_verified_with_the_issuers_key_only() {
    let (site, alice) = (key(1), key(2));
    let site_key = key_name(&name("/site"), &site.public_key()).expect("a name");
    let mut draft = draft("/site/alice", &alice);
    draft.issuer_id = Component::generic("site");
    draft.description = vec![
        ("fullname".to_owned(), "Alice Ä".to_owned()),
        ("advisor".to_owned(), String::new()),
    ];
    let certificate = draft
        .issue(&alice.public_key(), &site.signer(site_key))
        .expect("a certificate");
    assert_eq!(certificate.description(), draft.description);
    assert!(!certificate.is_self_signed());
    assert_eq!(certificate.verify(&site.public_key()), Ok(()));
    assert_eq!(
        certificate.verify(&alice.public_key()),
        Err(VerifyError::Invalid)
    );
    let again = Certificate::decode(certificate.wire().clone()).expect("it is one");
    assert_eq!(again, certificate);
}

/// A certificate's Data, modified by `change`.
fn altered(
    change: impl FnOnce(&mut Data),
    extensions: Option<&[u8]>,
) -> Result<Certificate, CertificateError> {
    let key = key(1);
    let mut data = Data {
        content_type: ContentType::Key,
        freshness: Duration::from_secs(1),
        ..Data::new(
            name("/a/KEY/k/i/v=1"),
            key.public_key().to_spki().expect("written"),
        )
    };
    change(&mut data);
    let mut info = DigestSigner.info();
    let mut period = Vec::new();
    ValidityPeriod::starting(NOW, 1).encode(&mut period);
    info.extensions = extensions.unwrap_or(&period).to_vec().into();
    Certificate::decode(data.encode_with_info(&DigestSigner, &info).into())
}

#[test]
fn invalid_certificates_are_refused_with_a_reason() {
    assert!(altered(|_| {}, None).is_ok());
    for uri in [
        "/KEY/k/i",
        "/a/KEY/k/i",
        "/a/KEY/k/i/v=1/x",
        "/a/key/k/i/v=1",
        "/a/32=KEY/k/i/v=1",
    ] {
        assert_eq!(
            altered(|data| data.name = name(uri), None),
            Err(CertificateError::Name),
            "{uri}"
        );
    }
    assert!(
        altered(|data| data.name = name("/KEY/k/i/v=1"), None).is_ok(),
        "the identity may be the root"
    );
    let refused = altered(|data| data.content_type = ContentType::Blob, None);
    assert_eq!(refused, Err(CertificateError::ContentType));
    assert_eq!(
        altered(|data| data.freshness = Duration::ZERO, None),
        Err(CertificateError::Freshness)
    );
    assert_eq!(altered(|_| {}, Some(b"")), Err(CertificateError::Validity));
    let refused = altered(|data| data.content = "no key".into(), None);
    assert_eq!(refused, Err(CertificateError::Key(KeyError::Malformed)));
    // A period without its end, and one whose end is not a time.
    let refused = altered(
        |_| {},
        Some(b"\xfd\x00\xfd\x13\xfd\x00\xfe\x0f20200101T000000"),
    );
    assert_eq!(
        refused,
        Err(CertificateError::Packet(DecodeError::Missing(0xff)))
    );
    let refused = altered(|_| {}, Some(b"\xfd\x00\xfd\x04\xfd\x00\xfe\x00"));
    assert_eq!(
        refused,
        Err(CertificateError::Packet(DecodeError::Value(0xfe)))
    );
    // "A critical TLV-TYPE means that if a validator cannot recognize the extension, it must reject
    // the whole certificate."
    let mut period = Vec::new();
    ValidityPeriod::starting(NOW, 1).encode(&mut period);
    assert!(altered(|_| {}, Some(&[&period[..], b"\xfd\x01\x04\x00"].concat())).is_ok());
    let refused = altered(|_| {}, Some(&[&period[..], b"\xfd\x01\x05\x00"].concat()));
    assert_eq!(
        refused,
        Err(CertificateError::Packet(DecodeError::Critical(0x105)))
    );
}

#[test]
fn a_certificate_whose_key_name_has_no_key_component_cannot_be_made() {
    let key = key(1);
    let draft = CertificateDraft {
        key_name: name("/alice/1"),
        ..draft("/alice", &key)
    };
    assert_eq!(draft.self_sign(&key), Err(CertificateError::Name));
}

#[test]
fn a_safe_bag_is_opened_with_its_passphrase_only() {
    let key = key(1);
    let certificate = draft("/alice", &key)
        .self_sign(&key)
        .expect("a certificate");
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    let bag = SafeBag::seal(certificate.clone(), &key, b"passphrase", &mut rng).expect("a bag");
    let again = SafeBag::decode(&bag.encode()).expect("a bag");
    assert_eq!(again, bag);
    assert_eq!(*again.certificate(), certificate);
    assert_eq!(
        again.open(b"passphrase").expect("opened").to_pkcs8(),
        key.to_pkcs8()
    );
    assert!(matches!(
        again.open(b"Passphrase"),
        Err(SafeBagError::Key(_))
    ));
    assert!(matches!(again.open(b""), Err(SafeBagError::Key(_))));
}

#[test]
fn a_safe_bag_with_anothers_key_is_refused() {
    let certificate = draft("/alice", &key(1))
        .self_sign(&key(1))
        .expect("a certificate");
    let mut rng = ChaCha20Rng::seed_from_u64(9);
    assert_eq!(
        SafeBag::seal(certificate.clone(), &key(2), b"x", &mut rng),
        Err(SafeBagError::OtherKey)
    );
    // Another bag's key beside the certificate.
    let other = draft("/bob", &key(2))
        .self_sign(&key(2))
        .expect("a certificate");
    let other = SafeBag::seal(other, &key(2), b"x", &mut rng)
        .expect("a bag")
        .encode();
    let own = SafeBag::seal(certificate, &key(1), b"x", &mut rng)
        .expect("a bag")
        .encode();
    let encrypted = |bag: &[u8]| {
        let SafeBagParts { certificate_end } = parts(bag);
        (
            bag[4..certificate_end].to_vec(),
            bag[certificate_end..].to_vec(),
        )
    };
    let mixed = [encrypted(&own).0, encrypted(&other).1].concat();
    let mut bag = Vec::new();
    whimbrel_ndn_packet::tlv::write_element(&mut bag, 0x80, &mixed);
    let bag = SafeBag::decode(&bag).expect("it has the form of one");
    assert_eq!(bag.open(b"x").err(), Some(SafeBagError::OtherKey));
}

struct SafeBagParts {
    certificate_end: usize,
}

/// Bags here are longer than 252 octets and shorter than 65536: their header has 4.
fn parts(bag: &[u8]) -> SafeBagParts {
    let mut reader = whimbrel_ndn_packet::tlv::Reader::new(&bag[4..]);
    let certificate = reader.element().expect("whole").expect("there");
    SafeBagParts {
        certificate_end: 4 + certificate.whole.len(),
    }
}

#[test]
fn an_invalid_safe_bag_is_refused() {
    for (bag, error) in [
        (&b"\x81\x00"[..], DecodeError::WrongType(0x81)),
        (b"\x80\x00", DecodeError::Missing(6)),
        (b"\x80\x02\x06\x00", DecodeError::Missing(0x81)),
    ] {
        assert_eq!(
            SafeBag::decode(bag).err(),
            Some(SafeBagError::Packet(error))
        );
    }
}

fn announcement() -> PrefixAnnouncement {
    PrefixAnnouncement {
        prefix: name("/net/example"),
        version: 5,
        expiration: Duration::from_secs(3600),
        validity: Some(ValidityPeriod::starting(NOW, 600)),
    }
}

#[test]
fn an_announcement_is_valid_as_long_as_both_of_its_limits_allow() {
    let wire = announcement().encode(&DigestSigner);
    let view = PrefixAnnouncementRef::decode(&wire).expect("one");
    assert_eq!(view.data.name.to_string(), "/net/example/32=PA/v=5/seg=0");
    assert_eq!(view.prefix.to_name(), name("/net/example"));
    assert_eq!(view.lifetime(Some(NOW)), Some(Duration::from_secs(601)));
    assert_eq!(view.lifetime(Some(NOW + 600)), Some(Duration::from_secs(1)));
    assert_eq!(view.lifetime(Some(NOW + 601)), None);
    assert_eq!(view.lifetime(Some(NOW - 1)), None);
    // "It is ignored if the receiving node does not have a UnixTime clock."
    assert_eq!(view.lifetime(None), Some(Duration::from_secs(3600)));
}

#[test]
fn invalid_announcements_are_refused() {
    let data = |uri: &str, content: &[u8]| {
        let data = Data {
            content_type: ContentType::PrefixAnnouncement,
            ..Data::new(name(uri), content.to_vec())
        };
        PrefixAnnouncementRef::decode(&data.encode(&DigestSigner)).map(|view| view.version)
    };
    let hour = b"\x6d\x04\x00\x36\xee\x80";
    assert_eq!(data("/p/32=PA/v=1/seg=0", hour), Ok(1));
    assert_eq!(
        data("/32=PA/v=1/seg=0", hour),
        Ok(1),
        "the prefix may be the root"
    );
    assert_eq!(
        data("/p/32=PA/%FD%01/%00%00", hour),
        Ok(1),
        "the conventions' first revision"
    );
    assert_eq!(
        data("/p/32=PA/v=1/seg=0", &[b"\xf0\x00", &hour[..]].concat()),
        Ok(1),
        "unknown, not critical"
    );
    for uri in [
        "/p/PA/v=1/seg=0",
        "/p/32=PA/v=1/seg=1",
        "/p/32=PA/v=1",
        "/p/32=PA/seg=0/v=1",
        "/v=1/seg=0",
    ] {
        assert_eq!(data(uri, hour), Err(DecodeError::Value(7)), "{uri}");
    }
    assert_eq!(
        data("/p/32=PA/v=1/seg=0", b""),
        Err(DecodeError::Missing(0x6d))
    );
    assert_eq!(
        data("/p/32=PA/v=1/seg=0", b"\x6d\x00"),
        Err(DecodeError::Value(0x6d))
    );
    assert_eq!(
        data("/p/32=PA/v=1/seg=0", &[hour, &b"\xf1\x00"[..]].concat()),
        Err(DecodeError::Critical(0xf1))
    );
    let blob = Data::new(name("/p/32=PA/v=1/seg=0"), hour.to_vec()).encode(&DigestSigner);
    assert_eq!(
        PrefixAnnouncementRef::decode(&blob).err(),
        Some(DecodeError::Value(0x18))
    );
}
