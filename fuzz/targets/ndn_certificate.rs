//! Certificates, public keys, private keys and safe bags from a stranger's file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use whimbrel_keychain::text;
use whimbrel_ndn_packet::certificate::identity_of_key;
use whimbrel_ndn_packet::{
    Certificate, ContentType, Data, DigestSigner, PrivateKey, PublicKey, SafeBag, Signer,
    ValidityPeriod, Verifier,
};

fuzz_target!(|data: &[u8]| {
    check_certificate(data);
    // The same octets as the key within a certificate that is right otherwise, and as the
    // extensions of one.
    check_certificate(&certificate(data, None));
    check_certificate(&certificate(KEY, Some(data)));
    if let Ok(key) = PublicKey::from_spki(data) {
        assert!(!key.verify(&[b"x"], data));
        let again = PublicKey::from_spki(&key.to_spki().expect("what was read can be written"));
        assert_eq!(again.as_ref(), Ok(&key));
    }
    if let Ok(key) = PrivateKey::from_pkcs8(data) {
        assert!(key.public_key().verify(&[data], &key.sign(&[data])));
    }
    if let Ok(octets) = text::decode(data) {
        check_certificate(&octets);
        let again = text::decode(text::encode(&octets).as_bytes());
        assert!(octets.is_empty() || again.as_deref() == Ok(&octets[..]));
    }
    if let Ok(bag) = SafeBag::decode(data) {
        assert_eq!(SafeBag::decode(&bag.encode()).as_ref(), Ok(&bag));
    }
});

/// The public key of a P-256 key pair.
const KEY: &[u8] = include_bytes!("ndn_public_key.der");

fn certificate(content: &[u8], extensions: Option<&[u8]>) -> Vec<u8> {
    let mut info = DigestSigner.info();
    let mut period = Vec::new();
    ValidityPeriod::starting(1, 2).encode(&mut period);
    info.extensions = extensions.unwrap_or(&period).to_vec().into();
    let name = "/a/KEY/k/i/v=1".parse().expect("a name");
    let freshness = core::time::Duration::from_secs(1);
    let data = Data {
        content_type: ContentType::Key,
        freshness,
        ..Data::new(name, content.to_vec())
    };
    data.encode_with_info(&DigestSigner, &info)
}

fn check_certificate(wire: &[u8]) {
    let Ok(certificate) = Certificate::decode(wire.to_vec().into()) else {
        return;
    };
    let identity = identity_of_key(certificate.key_name().as_ref());
    assert_eq!(identity, Some(certificate.identity().as_ref()));
    assert!(
        certificate
            .key_name()
            .as_ref()
            .is_prefix_of(certificate.name().as_ref())
    );
    let _ = (
        certificate.description(),
        certificate.version(),
        certificate.is_self_signed(),
    );
    let _ = (
        certificate.verify(certificate.public_key()),
        certificate.is_valid_at(1),
    );
}
