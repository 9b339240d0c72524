//! Keychains on a real disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use serde_json::Value;
use tempfile::TempDir;
use whimbrel_keychain::{Keychain, KeychainError, SignBy, text};
use whimbrel_ndn_packet::{
    Certificate, CertificateDraft, Component, Data, DataRef, KeyType, Name, PrivateKey, SafeBag,
    Signer, ValidityPeriod, Verifier,
};

const MICROS: u64 = 1_700_000_000_000_000;

fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

fn empty() -> (TempDir, Keychain) {
    let folder = TempDir::new().expect("a folder");
    let keychain = Keychain::open(folder.path().join("keychain")).expect("opened");
    (folder, keychain)
}

fn generate(keychain: &mut Keychain, identity: &str, seed: u64) -> Name {
    keychain
        .generate(&name(identity), KeyType::Ed25519, MICROS, &mut rng(seed))
        .expect("a key")
}

fn again(keychain: &Keychain) -> Keychain {
    let again = Keychain::open(keychain.folder()).expect("opened");
    assert!(again.problems().is_empty(), "{:?}", again.problems());
    again
}

fn modes(folder: &Path) -> Vec<u32> {
    let mut modes = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        modes.push(entry.metadata().expect("it is there").permissions().mode() & 0o777);
        if entry.path().is_dir() {
            modes.extend(self::modes(&entry.path()));
        }
    }
    modes
}

#[test]
fn a_generated_key_signs_what_its_certificate_verifies_also_after_a_restart() {
    let (_folder, mut keychain) = empty();
    for (seed, typ) in [KeyType::EcdsaP256, KeyType::Ed25519, KeyType::Rsa(1024)]
        .into_iter()
        .enumerate()
    {
        let identity = name(&format!("/alice/{seed}"));
        let key = keychain
            .generate(&identity, typ, MICROS, &mut rng(seed as u64))
            .expect("a key");
        for keychain in [&keychain, &again(&keychain)] {
            let signer = keychain
                .signer(&SignBy::Identity(identity.clone()))
                .expect("a signer");
            let wire = Data::new(identity.child_generic(b"x"), "content").encode(&signer);
            let certificate = keychain.default_certificate(&key).expect("its own");
            assert!(certificate.is_self_signed() && certificate.is_valid_at(MICROS / 1_000_000));
            assert_eq!(certificate.version(), Some(MICROS));
            assert_eq!(
                DataRef::decode(&wire)
                    .expect("a Data")
                    .verify(certificate.public_key()),
                Ok(())
            );
        }
    }
}

#[test]
fn only_its_owner_may_read_a_keychain() {
    let (_folder, mut keychain) = empty();
    let key = generate(&mut keychain, "/alice", 1);
    keychain.set_default_key(&key).expect("chosen");
    let modes = modes(keychain.folder());
    assert!(
        modes.len() >= 5 && modes.iter().all(|mode| mode & 0o077 == 0),
        "{modes:?}"
    );
    let folder = fs::metadata(keychain.folder())
        .expect("it is there")
        .permissions()
        .mode();
    assert_eq!(folder & 0o777, 0o700);
}

#[test]
fn the_first_key_is_the_default_until_another_is_chosen_or_it_is_deleted() {
    let (_folder, mut keychain) = empty();
    assert!(matches!(
        keychain.signer(&SignBy::Default),
        Err(KeychainError::Empty)
    ));
    let first = generate(&mut keychain, "/zoe", 1);
    let second = generate(&mut keychain, "/alice", 2);
    let third = generate(&mut keychain, "/zoe", 3);
    let default = |keychain: &Keychain| {
        keychain
            .default_identity()
            .and_then(|identity| keychain.default_key(&identity).cloned())
    };
    assert_eq!(default(&keychain), Some(first.clone()));
    assert_eq!(default(&again(&keychain)), Some(first.clone()));
    keychain.set_default_key(&third).expect("chosen");
    assert_eq!(default(&again(&keychain)), Some(third.clone()));
    keychain
        .set_default_identity(&name("/alice"))
        .expect("chosen");
    assert_eq!(default(&again(&keychain)), Some(second.clone()));
    keychain.delete_identity(&name("/alice")).expect("deleted");
    assert_eq!(default(&again(&keychain)), Some(third.clone()));
    keychain.delete_key(&third).expect("deleted");
    assert_eq!(default(&again(&keychain)), Some(first.clone()));
    keychain.delete_key(&first).expect("deleted");
    assert_eq!(default(&keychain), None);
    assert_eq!(
        again(&keychain).certificates().count(),
        0,
        "certificates went with their keys"
    );
}

fn issued(keychain: &Keychain, key: &Name, version: u64) -> Certificate {
    let issuer = PrivateKey::generate(KeyType::Ed25519, &mut rng(99)).expect("a key");
    let validity = ValidityPeriod::starting(0, 1 << 32);
    let draft = CertificateDraft::new(key.clone(), Component::generic("site"), version, validity);
    let public = keychain.private_key(key).expect("there").public_key();
    draft
        .issue(&public, &issuer.signer(name("/site/KEY/1")))
        .expect("a certificate")
}

#[test]
fn the_newest_certificate_of_another_issuer_is_the_default_unless_another_is_chosen() {
    let (_folder, mut keychain) = empty();
    let key = generate(&mut keychain, "/site/alice", 1);
    let own = keychain
        .default_certificate(&key)
        .expect("its own")
        .name()
        .clone();
    let (old, new) = (issued(&keychain, &key, 1), issued(&keychain, &key, 2));
    keychain.add_certificate(new.clone()).expect("added");
    keychain.add_certificate(old).expect("added");
    assert_eq!(again(&keychain).default_certificate(&key), Some(&new));
    keychain.set_default_certificate(&own).expect("chosen");
    assert_eq!(
        again(&keychain)
            .default_certificate(&key)
            .map(Certificate::name),
        Some(&own)
    );
    keychain.delete_certificate(&own).expect("deleted");
    assert_eq!(again(&keychain).default_certificate(&key), Some(&new));
    let signer = keychain
        .signer(&SignBy::Certificate(new.name().clone()))
        .expect("a signer");
    let locator = whimbrel_ndn_packet::KeyLocator::Name(new.name().clone());
    assert_eq!(signer.info().key_locator, Some(locator));
}

#[test]
fn a_key_moves_to_another_keychain_in_a_safe_bag() {
    let (_folder, mut keychain) = empty();
    let key = generate(&mut keychain, "/alice", 1);
    let certificate = keychain
        .default_certificate(&key)
        .expect("its own")
        .name()
        .clone();
    let bag = keychain
        .export(&certificate, b"passphrase", &mut rng(5))
        .expect("exported");
    let file = text::encode(&bag.encode());
    let (_folder, mut other) = empty();
    let bag = SafeBag::decode(&text::decode(file.as_bytes()).expect("base64")).expect("a bag");
    assert!(matches!(
        other.import(&bag, b"wrong"),
        Err(KeychainError::SafeBag(_))
    ));
    assert_eq!(other.keys().count(), 0);
    assert_eq!(other.import(&bag, b"passphrase").expect("imported"), key);
    assert_eq!(
        other
            .import(&bag, b"passphrase")
            .expect("the same again is no error"),
        key
    );
    let (one, two) = (
        keychain.private_key(&key).expect("there"),
        again(&other).private_key(&key).expect("there"),
    );
    assert_eq!(one.sign(&[b"x"]), two.sign(&[b"x"]));
}

#[test]
fn safe_bags_of_python_ndn_and_ndnts_are_imported() {
    let files = [
        include_str!("../../ndn-packet/tests/peers/python-ndn.json"),
        include_str!("../../ndn-packet/tests/peers/ndnts.json"),
    ];
    let mut imported = 0;
    for file in files {
        let file: Value = serde_json::from_str(file).expect("JSON");
        for vector in file["vectors"].as_array().expect("vectors") {
            if vector["kind"] != "safe_bag" {
                continue;
            }
            let wire = hex::decode(vector["wire"].as_str().expect("a wire")).expect("hexadecimal");
            let bag = SafeBag::decode(&text::decode(&wire).expect("plain")).expect("a bag");
            let (_folder, mut keychain) = empty();
            let key = keychain.import(&bag, b"correct horse").expect("imported");
            assert_eq!(
                again(&keychain).default_certificate(&key),
                Some(bag.certificate())
            );
            keychain.signer(&SignBy::Default).expect("a signer");
            imported += 1;
        }
    }
    assert_eq!(imported, 12);
}

#[test]
fn errors_name_unknown_keys() {
    let (_folder, mut keychain) = empty();
    let key = generate(&mut keychain, "/alice", 1);
    let nobody = name("/nobody");
    assert!(matches!(
        keychain.signer(&SignBy::Identity(nobody.clone())),
        Err(KeychainError::UnknownIdentity(_))
    ));
    assert!(matches!(
        keychain.signer(&SignBy::Key(nobody.clone())),
        Err(KeychainError::UnknownKey(_))
    ));
    assert!(matches!(
        keychain.signer(&SignBy::Certificate(nobody.clone())),
        Err(KeychainError::UnknownCertificate(_))
    ));
    assert!(matches!(
        keychain.delete_identity(&nobody),
        Err(KeychainError::UnknownIdentity(_))
    ));
    assert!(matches!(
        keychain.delete_key(&nobody),
        Err(KeychainError::UnknownKey(_))
    ));
    assert!(matches!(
        keychain.delete_certificate(&nobody),
        Err(KeychainError::UnknownCertificate(_))
    ));
    assert!(matches!(
        keychain.set_default_identity(&nobody),
        Err(KeychainError::UnknownIdentity(_))
    ));
    let private = keychain.private_key(&key).expect("there");
    assert!(matches!(
        keychain.add_key(&nobody, &private),
        Err(KeychainError::NoKeyName(_))
    ));
    assert_eq!(keychain.keys().count(), 1);
}

#[test]
fn a_name_is_not_given_to_another_key() {
    let (_folder, mut keychain) = empty();
    let key = generate(&mut keychain, "/alice", 1);
    let other = PrivateKey::generate(KeyType::Ed25519, &mut rng(2)).expect("a key");
    assert!(matches!(
        keychain.add_key(&key, &other),
        Err(KeychainError::Exists { .. })
    ));
    let validity = ValidityPeriod::starting(0, 1);
    let forged = CertificateDraft::new(key.clone(), Component::generic("self"), 9, validity)
        .self_sign(&other);
    let refused = keychain.add_certificate(forged.expect("a certificate"));
    assert!(
        matches!(refused, Err(KeychainError::OtherKey(_))),
        "{refused:?}"
    );
    // Another certificate of the same name, and one for a key that is not in the keychain.
    let mut anchor =
        CertificateDraft::new(name("/root/KEY/1"), Component::generic("self"), 1, validity);
    keychain
        .add_certificate(anchor.self_sign(&other).expect("a certificate"))
        .expect("anchors may be kept");
    anchor.validity = ValidityPeriod::starting(0, 2);
    let refused = keychain.add_certificate(anchor.self_sign(&other).expect("a certificate"));
    assert!(matches!(refused, Err(KeychainError::Exists { .. })));
}

#[test]
fn damaged_and_exposed_files_are_named_and_do_not_keep_the_others_from_being_used() {
    let (_folder, mut keychain) = empty();
    let good = generate(&mut keychain, "/good", 1);
    let folder = keychain.folder().to_owned();
    for (file, content) in [
        ("keys/a.pem", "rubbish"),
        (
            "keys/b.pem",
            "Name: /a/KEY/1\n-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
        ),
        (
            "keys/c.pem",
            "Name: /no-key\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ),
        (
            "keys/d.pem",
            "Name: /a/KEY/1\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        ),
        ("certificates/a.cert", "!"),
        ("certificates/b.cert", "BgA="),
        ("certificates/c.other", "is not looked at"),
        ("defaults", "identity /gone\nkey /gone/KEY/1\nnonsense\n"),
    ] {
        fs::write(folder.join(file), content).expect("written");
    }
    let huge = vec![b'A'; (1 << 20) + 1];
    fs::write(folder.join("certificates/d.cert"), huge).expect("written");
    let keychain = Keychain::open(&folder).expect("opened");
    let damaged = keychain
        .problems()
        .iter()
        .filter(|problem| matches!(problem, KeychainError::Damaged { .. }));
    assert_eq!(damaged.count(), 6);
    let exposed = keychain
        .problems()
        .iter()
        .filter(|problem| matches!(problem, KeychainError::Exposed { .. }));
    assert_eq!(
        exposed.count(),
        4,
        "the test creates files that everybody may read"
    );
    assert!(
        keychain
            .problems()
            .iter()
            .any(|problem| problem.to_string().contains("longer than 1 MiB"))
    );
    assert_eq!(keychain.default_identity(), Some(name("/good")));
    assert!(keychain.signer(&SignBy::Key(good)).is_ok());
}

#[test]
fn a_file_left_by_a_crash_is_harmless_and_a_swapped_key_is_detected() {
    let (_folder, mut keychain) = empty();
    let (alice, bob) = (
        generate(&mut keychain, "/alice", 1),
        generate(&mut keychain, "/bob", 2),
    );
    let keys: Vec<_> = fs::read_dir(keychain.folder().join("keys"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert_eq!(keys.len(), 2);
    let mut half = keys[0].clone().into_os_string();
    half.push(".new");
    fs::write(&half, "half a ke").expect("written");
    let kept = again(&keychain);
    assert_eq!(kept.keys().count(), 2);
    for key in [&alice, &bob] {
        let private = kept.private_key(key).expect("there");
        keychain
            .add_key(key, &private)
            .expect("the same again is no error");
    }
    assert!(!Path::new(&half).exists());
    fs::copy(&keys[0], &keys[1]).expect("copied");
    let errors = [&alice, &bob].map(|key| keychain.private_key(key).is_err());
    assert_eq!(errors.iter().filter(|error| **error).count(), 1);
}

#[test]
fn two_processes_do_not_undo_each_others_choices() {
    let (_folder, mut one) = empty();
    let alice = generate(&mut one, "/alice", 1);
    let mut two = again(&one);
    let bob = generate(&mut two, "/bob", 2);
    two.set_default_identity(&name("/bob")).expect("chosen");
    // The first process has not read the folder since, and changes another choice.
    let certificate = one
        .default_certificate(&alice)
        .expect("its own")
        .name()
        .clone();
    one.set_default_certificate(&certificate).expect("chosen");
    let three = again(&one);
    assert_eq!(three.default_identity(), Some(name("/bob")));
    assert_eq!(three.keys().count(), 2);
    assert_eq!(three.default_key(&name("/bob")), Some(&bob));
}

#[test]
fn private_keys_are_pem_that_openssl_reads() {
    let (_folder, mut keychain) = empty();
    let key = generate(&mut keychain, "/alice", 1);
    let path = fs::read_dir(keychain.folder().join("keys"))
        .expect("a folder")
        .next()
        .expect("one")
        .expect("one")
        .path();
    let text = fs::read_to_string(path).expect("a text");
    assert!(
        text.starts_with(&format!("Name: {key}\n-----BEGIN PRIVATE KEY-----\n")),
        "{text}"
    );
    assert!(text.ends_with("\n-----END PRIVATE KEY-----\n"));
}

#[derive(Clone, Debug)]
enum Step {
    Generate(u8),
    DeleteKey(prop::sample::Index),
    DeleteIdentity(u8),
    ChooseKey(prop::sample::Index),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3u8).prop_map(Step::Generate),
        1 => any::<prop::sample::Index>().prop_map(Step::DeleteKey),
        1 => (0..3u8).prop_map(Step::DeleteIdentity),
        1 => any::<prop::sample::Index>().prop_map(Step::ChooseKey),
        2 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_keychain_holds_everything_added_and_not_deleted(steps in prop::collection::vec(step(), 0..16)) {
        let (_folder, mut keychain) = empty();
        let mut model: Vec<(Name, Name)> = Vec::new();
        let identity = |number: u8| name(&format!("/id/{number}"));
        for (seed, step) in steps.into_iter().enumerate() {
            match step {
                Step::Generate(number) => {
                    let identity = identity(number);
                    let key = keychain.generate(&identity, KeyType::Ed25519, MICROS, &mut rng(seed as u64)).expect("a key");
                    model.push((identity, key));
                }
                Step::DeleteKey(at) if !model.is_empty() => {
                    let (_, key) = model.swap_remove(at.index(model.len()));
                    keychain.delete_key(&key).expect("it was there");
                }
                Step::DeleteIdentity(number) => {
                    let had = model.iter().any(|(of, _)| *of == identity(number));
                    prop_assert_eq!(keychain.delete_identity(&identity(number)).is_ok(), had);
                    model.retain(|(of, _)| *of != identity(number));
                }
                Step::ChooseKey(at) if !model.is_empty() => {
                    let (of, key) = &model[at.index(model.len())];
                    keychain.set_default_key(key).expect("it is there");
                    prop_assert_eq!(again(&keychain).default_key(of).cloned(), Some(key.clone()));
                }
                Step::Reopen => keychain = again(&keychain),
                _ => {}
            }
            let mut keys: Vec<Name> = model.iter().map(|(_, key)| key.clone()).collect();
            keys.sort();
            prop_assert_eq!(keychain.keys().cloned().collect::<Vec<_>>(), keys);
            prop_assert_eq!(keychain.certificates().count(), model.len());
            prop_assert_eq!(keychain.default_identity().is_some(), !model.is_empty());
            for (identity, key) in &model {
                let chosen = keychain.default_key(identity).expect("an identity has a key");
                prop_assert!(keychain.keys_of(identity).any(|own| own == chosen));
                let public = keychain.default_certificate(key).expect("its own").public_key();
                prop_assert!(public.verify(&[b"x"], &keychain.private_key(key).expect("there").sign(&[b"x"])));
            }
        }
    }
}
