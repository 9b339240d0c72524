//! Which identities may sign which names.

use bytes::Bytes;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use whimbrel_keychain::{Keychain, Rule, ValidationError, Validator};
use whimbrel_ndn_packet::certificate::key_name;
use whimbrel_ndn_packet::signature::SignatureType;
use whimbrel_ndn_packet::{
    Certificate, CertificateDraft, Component, Data, DataRef, DigestSigner, HmacKey, Interest,
    InterestRef, KeyLocator, KeySigner, KeyType, Name, PrivateKey, SignatureInfo, Signer,
    ValidityPeriod, VerifyError,
};

const NOW: u64 = 1_700_000_000;

fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

/// An identity with one key.
struct Party {
    key: PrivateKey,
    key_name: Name,
    identity: Name,
}

impl Party {
    fn new(identity: &str, seed: u64) -> Party {
        let key = PrivateKey::generate(KeyType::Ed25519, &mut ChaCha20Rng::seed_from_u64(seed))
            .expect("a key");
        let identity = name(identity);
        Party {
            key_name: key_name(&identity, &key.public_key()).expect("a name"),
            key,
            identity,
        }
    }

    fn signer(&self) -> KeySigner {
        self.key.signer(self.key_name.clone())
    }

    fn own_certificate(&self) -> Certificate {
        self.draft(ValidityPeriod::starting(NOW - 100, 200))
            .self_sign(&self.key)
            .expect("a certificate")
    }

    fn draft(&self, validity: ValidityPeriod) -> CertificateDraft {
        CertificateDraft::new(self.key_name.clone(), Component::generic("i"), 1, validity)
    }

    /// This party's certificate, by another.
    fn certified_by(&self, issuer: &Party) -> Certificate {
        self.certified_until(issuer, NOW + 100)
    }

    fn certified_until(&self, issuer: &Party, not_after: u64) -> Certificate {
        let draft = self.draft(ValidityPeriod {
            not_before: NOW - 100,
            not_after,
        });
        draft
            .issue(&self.key.public_key(), &issuer.signer())
            .expect("a certificate")
    }

    fn says(&self, uri: &str) -> Vec<u8> {
        Data::new(name(uri), "x").encode(&self.signer())
    }
}

fn validate(
    validator: &mut Validator,
    wire: &[u8],
    rule: Rule,
    now: u64,
) -> Result<Name, ValidationError> {
    validator.validate_data(&DataRef::decode(wire).expect("a Data"), rule, now)
}

fn add(validator: &mut Validator, certificate: &Certificate) {
    validator
        .add_certificate(certificate.wire().clone())
        .expect("a certificate");
}

#[test]
fn a_chain_to_an_anchor_is_followed_and_missing_certificates_are_asked_for() {
    let (root, site, alice) = (
        Party::new("/org", 1),
        Party::new("/org/site", 2),
        Party::new("/org/site/alice", 3),
    );
    let mut validator = Validator::new([root.own_certificate()]);
    let wire = alice.says("/org/site/alice/note");
    let needs = |party: &Party| Err(ValidationError::NeedsCertificate(party.key_name.clone()));
    assert_eq!(
        validate(&mut validator, &wire, Rule::Hierarchical, NOW),
        needs(&alice)
    );
    add(&mut validator, &alice.certified_by(&site));
    assert_eq!(
        validate(&mut validator, &wire, Rule::Hierarchical, NOW),
        needs(&site)
    );
    add(&mut validator, &site.certified_by(&root));
    assert_eq!(
        validate(&mut validator, &wire, Rule::Hierarchical, NOW),
        Ok(alice.key_name.clone())
    );
    assert_eq!(
        validate(&mut validator, &wire, Rule::Hierarchical, NOW),
        Ok(alice.key_name)
    );
}

#[test]
fn an_identity_signs_only_names_below_it() {
    let (root, alice) = (Party::new("/org", 1), Party::new("/org/alice", 2));
    let mut validator = Validator::new([root.own_certificate()]);
    add(&mut validator, &alice.certified_by(&root));
    for (uri, allowed) in [
        ("/org/alice", true),
        ("/org/alice/x", true),
        ("/org/bob/x", false),
        ("/org", false),
        ("/org/alic", false),
        ("/org/alicex", false),
        ("/", false),
    ] {
        let result = validate(&mut validator, &alice.says(uri), Rule::Hierarchical, NOW);
        let (signer, name) = (alice.identity.clone(), name(uri));
        let expected = if allowed {
            Ok(alice.key_name.clone())
        } else {
            Err(ValidationError::NotAllowed { signer, name })
        };
        assert_eq!(result, expected, "{uri}");
        assert_eq!(
            validate(&mut validator, &alice.says(uri), Rule::AnyTrusted, NOW),
            Ok(alice.key_name.clone())
        );
    }
}

#[test]
fn an_identity_certifies_only_those_below_it() {
    let (root, alice, bob) = (
        Party::new("/org", 1),
        Party::new("/org/alice", 2),
        Party::new("/org/bob", 3),
    );
    let mut validator = Validator::new([root.own_certificate()]);
    add(&mut validator, &alice.certified_by(&root));
    add(&mut validator, &bob.certified_by(&alice));
    for rule in [Rule::Hierarchical, Rule::AnyTrusted] {
        let refused = validate(&mut validator, &bob.says("/org/bob/x"), rule, NOW);
        let (signer, name) = (alice.identity.clone(), bob.identity.clone());
        assert_eq!(
            refused,
            Err(ValidationError::NotAllowed { signer, name }),
            "{rule:?}"
        );
    }
}

#[test]
fn every_certificate_of_a_chain_is_valid_at_the_time() {
    let (root, site, alice) = (
        Party::new("/org", 1),
        Party::new("/org/site", 2),
        Party::new("/org/site/alice", 3),
    );
    let wire = alice.says("/org/site/alice/x");
    let chain = |site_until, alice_until| {
        let mut validator = Validator::new([root.own_certificate()]);
        add(&mut validator, &site.certified_until(&root, site_until));
        add(&mut validator, &alice.certified_until(&site, alice_until));
        validator
    };
    // First in the order that fills the cache of verified chains, then with a filled cache.
    for (site_until, alice_until) in [(NOW + 50, NOW + 100), (NOW + 100, NOW + 50)] {
        let mut fresh = chain(site_until, alice_until);
        let mut used = chain(site_until, alice_until);
        assert!(validate(&mut used, &wire, Rule::Hierarchical, NOW).is_ok());
        for validator in [&mut fresh, &mut used] {
            let expired = validate(validator, &wire, Rule::Hierarchical, NOW + 51);
            assert!(
                matches!(expired, Err(ValidationError::Expired(_))),
                "{expired:?}"
            );
            let early = validate(validator, &wire, Rule::Hierarchical, NOW - 101);
            assert!(
                matches!(early, Err(ValidationError::Expired(_))),
                "{early:?}"
            );
            assert!(validate(validator, &wire, Rule::Hierarchical, NOW + 50).is_ok());
        }
    }
    // An expired anchor is not trusted.
    let mut validator = chain(NOW + 10_000, NOW + 10_000);
    let expired = validate(&mut validator, &wire, Rule::Hierarchical, NOW + 101);
    assert_eq!(
        expired,
        Err(ValidationError::Expired(
            root.own_certificate().name().clone()
        ))
    );
}

#[test]
fn a_self_signed_identity_is_not_trusted() {
    let (root, mallory) = (Party::new("/org", 1), Party::new("/org", 2));
    let mut validator = Validator::new([root.own_certificate()]);
    let own = mallory.own_certificate();
    add(&mut validator, &own);
    let refused = validate(
        &mut validator,
        &mallory.says("/org/x"),
        Rule::Hierarchical,
        NOW,
    );
    assert_eq!(
        refused,
        Err(ValidationError::NotAnchored(own.name().clone()))
    );
    // Neither are two identities that vouch for each other.
    let (one, two) = (Party::new("/org", 3), Party::new("/org", 4));
    add(&mut validator, &one.certified_by(&two));
    add(&mut validator, &two.certified_by(&one));
    let refused = validate(&mut validator, &one.says("/org/x"), Rule::Hierarchical, NOW);
    assert!(
        matches!(refused, Err(ValidationError::TooLong(_))),
        "{refused:?}"
    );
}

#[test]
fn a_forged_certificate_gives_way_to_the_true_one() {
    let (root, alice) = (Party::new("/org", 1), Party::new("/org/alice", 2));
    let mut validator = Validator::new([root.own_certificate()]);
    // Signed by an impostor that claims to be the root.
    let mallory = Party {
        key_name: root.key_name.clone(),
        ..Party::new("/org", 9)
    };
    let forged = alice.certified_by(&mallory);
    add(&mut validator, &forged);
    let wire = alice.says("/org/alice/x");
    let refused = validate(&mut validator, &wire, Rule::Hierarchical, NOW);
    let (name, error) = (forged.name().clone(), VerifyError::Invalid);
    assert_eq!(refused, Err(ValidationError::Signature { name, error }));
    let refused = validate(&mut validator, &wire, Rule::Hierarchical, NOW);
    assert_eq!(
        refused,
        Err(ValidationError::NeedsCertificate(alice.key_name.clone()))
    );
    add(&mut validator, &alice.certified_by(&root));
    assert!(validate(&mut validator, &wire, Rule::Hierarchical, NOW).is_ok());
    // After the true one has been verified, the forged one is refused.
    add(&mut validator, &forged);
    assert!(validate(&mut validator, &wire, Rule::Hierarchical, NOW).is_ok());
}

#[test]
fn an_anchor_cannot_be_replaced() {
    let root = Party::new("/org", 1);
    let anchor = root.own_certificate();
    let mut validator = Validator::new([anchor.clone()]);
    let mallory = Party {
        key_name: root.key_name.clone(),
        ..Party::new("/org", 9)
    };
    let forged = mallory.own_certificate();
    assert_eq!(forged.name(), anchor.name());
    add(&mut validator, &forged);
    assert!(
        validate(
            &mut validator,
            &mallory.says("/org/x"),
            Rule::Hierarchical,
            NOW
        )
        .is_err()
    );
    assert!(
        validate(
            &mut validator,
            &root.says("/org/x"),
            Rule::Hierarchical,
            NOW
        )
        .is_ok()
    );
    assert!(validator.anchors().eq([anchor.name()]));
}

#[test]
fn packets_without_a_key_s_signature_are_refused() {
    let mut validator = Validator::new([Party::new("/org", 1).own_certificate()]);
    let wire = Data::new(name("/org/x"), "x").encode(&DigestSigner);
    let refused = validate(&mut validator, &wire, Rule::AnyTrusted, NOW);
    assert_eq!(
        refused,
        Err(ValidationError::NoKey(SignatureType::DigestSha256))
    );
    let wire = Data::new(name("/org/x"), "x").encode(&HmacKey::new(&[1; 32], name("/org/KEY/1")));
    let refused = validate(&mut validator, &wire, Rule::AnyTrusted, NOW);
    assert_eq!(
        refused,
        Err(ValidationError::NoKey(SignatureType::HmacWithSha256))
    );
    let signer = Party::new("/org", 1).signer();
    let wire = Data::new(name("/org/x"), "x")
        .encode_with_info(&signer, &SignatureInfo::new(SignatureType::Ed25519));
    assert_eq!(
        validate(&mut validator, &wire, Rule::AnyTrusted, NOW),
        Err(ValidationError::NoLocator)
    );
    let wire = Interest::new(name("/org/x")).encode();
    let interest = InterestRef::decode(&wire).expect("an Interest");
    let refused = validator.validate_interest(&interest, Rule::AnyTrusted, NOW);
    assert!(matches!(
        refused,
        Err(ValidationError::Signature {
            error: VerifyError::Unsigned,
            ..
        })
    ));
}

#[test]
fn a_key_is_found_by_its_name_its_certificates_name_or_its_digest() {
    let (root, alice) = (Party::new("/org", 1), Party::new("/org/alice", 2));
    let certificate = alice.certified_by(&root);
    let mut validator = Validator::new([root.own_certificate()]);
    add(&mut validator, &certificate);
    let digest = alice.key.public_key().digest().expect("a digest");
    for locator in [
        KeyLocator::Name(alice.key_name.clone()),
        KeyLocator::Name(certificate.name().clone()),
        KeyLocator::Name(certificate.name().prefix(4)),
        KeyLocator::Digest(Bytes::copy_from_slice(&digest)),
    ] {
        let info = SignatureInfo {
            key_locator: Some(locator.clone()),
            ..alice.signer().info()
        };
        let wire = Data::new(name("/org/alice/x"), "x").encode_with_info(&alice.signer(), &info);
        let found = validate(&mut validator, &wire, Rule::Hierarchical, NOW);
        assert_eq!(found, Ok(alice.key_name.clone()), "{locator:?}");
    }
    let info = SignatureInfo {
        key_locator: Some(KeyLocator::Digest(vec![1; 32].into())),
        ..alice.signer().info()
    };
    let wire = Data::new(name("/org/alice/x"), "x").encode_with_info(&alice.signer(), &info);
    assert_eq!(
        validate(&mut validator, &wire, Rule::Hierarchical, NOW),
        Err(ValidationError::UnknownDigest)
    );
}

#[test]
fn a_signed_command_is_accepted_under_an_anchor() {
    let (root, operator) = (Party::new("/org", 1), Party::new("/org/operator", 2));
    let mut validator = Validator::new([root.own_certificate()]);
    add(&mut validator, &operator.certified_by(&root));
    let signer = operator.signer();
    let wire = Interest::new(name("/localhost/nfd/rib/register/x"))
        .encode_signed(&signer, &signer.info().stamped([1; 8], NOW * 1000));
    let interest = InterestRef::decode(&wire).expect("an Interest");
    assert_eq!(
        validator.validate_interest(&interest, Rule::AnyTrusted, NOW),
        Ok(operator.key_name)
    );
    let refused = validator.validate_interest(&interest, Rule::Hierarchical, NOW);
    assert!(matches!(refused, Err(ValidationError::NotAllowed { .. })));
}

#[test]
fn fetched_certificates_take_bounded_memory_and_anchors_stay() {
    let root = Party::new("/org", 1);
    let mut validator = Validator::new([root.own_certificate()]);
    let stranger = Party::new("/stranger", 2);
    for version in 0..5000 {
        let mut draft = stranger.draft(ValidityPeriod::starting(NOW, 10));
        draft.version = version;
        // Without a real signature, which is never verified.
        let certificate = draft.issue(&stranger.key.public_key(), &HmacKey::new(b"x", name("/k")));
        add(&mut validator, &certificate.expect("a certificate"));
    }
    assert!(format!("{validator:?}").matches("is_anchor").count() <= 4097);
    assert!(
        validate(
            &mut validator,
            &root.says("/org/x"),
            Rule::Hierarchical,
            NOW
        )
        .is_ok()
    );
}

#[test]
fn a_keychains_certificates_lead_to_the_anchors() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let mut keychain = Keychain::open(folder.path()).expect("opened");
    let (root, site, alice) = (
        Party::new("/org", 1),
        Party::new("/org/site", 2),
        Party::new("/org/site/alice", 3),
    );
    keychain
        .add_certificate(site.certified_by(&root))
        .expect("added");
    keychain
        .add_certificate(alice.certified_by(&site))
        .expect("added");
    let mut validator = keychain.validator([root.own_certificate()]);
    assert!(
        validate(
            &mut validator,
            &alice.says("/org/site/alice/x"),
            Rule::Hierarchical,
            NOW
        )
        .is_ok()
    );
    let mut without = keychain.validator([]);
    let refused = validate(
        &mut without,
        &alice.says("/org/site/alice/x"),
        Rule::Hierarchical,
        NOW,
    );
    assert_eq!(
        refused,
        Err(ValidationError::NeedsCertificate(root.key_name))
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any set of certificates among a few parties, in any order of arrival and use: a packet
    /// is accepted if and only if a path of certificates, each from an identity above, leads from
    /// the anchor to its signer.
    #[test]
    fn trust_is_reachability(
        issued in prop::collection::vec((0..6usize, 0..6usize), 0..14),
        asked in prop::collection::vec((0..6usize, 0..6usize), 1..8),
    ) {
        const IDENTITIES: [&str; 6] = ["/o", "/o/a", "/o/a/x", "/o/b", "/o/b/x", "/p"];
        let parties: Vec<Party> =
            IDENTITIES.iter().enumerate().map(|(seed, identity)| Party::new(identity, seed as u64)).collect();
        let mut validator = Validator::new([parties[0].own_certificate()]);
        let mut edges = Vec::new();
        for (version, (issuer, subject)) in issued.into_iter().enumerate() {
            if subject == 0 {
                continue;
            }
            let (issuer_party, subject_party) = (&parties[issuer], &parties[subject]);
            let mut draft = subject_party.draft(ValidityPeriod::starting(NOW - 1, 10));
            draft.version = version as u64;
            let certificate =
                draft.issue(&subject_party.key.public_key(), &issuer_party.signer()).expect("a certificate");
            add(&mut validator, &certificate);
            if issuer != subject && issuer_party.identity.as_ref().is_prefix_of(subject_party.identity.as_ref()) {
                edges.push((issuer, subject));
            }
        }
        let mut trusted = vec![0];
        while let Some((_, next)) = edges.iter().find(|(from, to)| trusted.contains(from) && !trusted.contains(to)) {
            trusted.push(*next);
        }
        for (signer, about) in asked {
            let uri = format!("{}/data", IDENTITIES[about]);
            let wire = parties[signer].says(&uri);
            let may = parties[signer].identity.as_ref().is_prefix_of(name(&uri).as_ref());
            let is_trusted = trusted.contains(&signer);
            let result = validate(&mut validator, &wire, Rule::Hierarchical, NOW);
            prop_assert_eq!(result.is_ok(), may && is_trusted, "{} on {}: {:?}", IDENTITIES[signer], uri, result);
            let result = validate(&mut validator, &wire, Rule::AnyTrusted, NOW);
            prop_assert_eq!(result.is_ok(), is_trusted, "{} on {}: {:?}", IDENTITIES[signer], uri, result);
        }
    }
}
