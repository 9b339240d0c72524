//! Keys made by OpenSSL, test vectors of the RFCs, and tampering.

use rand::SeedableRng;
use rand::rngs::ChaCha20Rng;
use whimbrel_ndn_packet::signature::SignatureType;
use whimbrel_ndn_packet::{
    Data, DataRef, DigestSigner, HmacKey, Interest, InterestRef, KeyError, KeyType, Name,
    PrivateKey, PublicKey, Signer, Verifier, VerifyError,
};

/// `openssl ecparam -name prime256v1 -genkey -param_enc explicit`, as PKCS#8.
const EXPLICIT_PRIVATE: &str = "308201790201003082010306072a8648ce3d02013081f7020101302c06072a8648ce3d0101022100ffffffff00000001000000000000000000000000ffffffffffffffffffffffff305b0420ffffffff00000001000000000000000000000000fffffffffffffffffffffffc04205ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b031500c49d360886e704936a6678e1139d26b7819f7e900441046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c2964fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5022100ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551020101046d306b0201010420594d91120c432472acea3481a1460c01afed5236c4f44bf3e3fa22b161f838cea14403420004bb1d4052edaf212fb8f5149dcabcb95a381d39a7486d91e8f3ce6155b871d800e401fb2e417aadb48ce2aeea520e96fa8bd2d1e76b4142dc222c46c753d84a19";
/// Its public key, with explicit curve parameters.
const EXPLICIT_PUBLIC: &str = "3082014b3082010306072a8648ce3d02013081f7020101302c06072a8648ce3d0101022100ffffffff00000001000000000000000000000000ffffffffffffffffffffffff305b0420ffffffff00000001000000000000000000000000fffffffffffffffffffffffc04205ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b031500c49d360886e704936a6678e1139d26b7819f7e900441046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c2964fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5022100ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc63255102010103420004bb1d4052edaf212fb8f5149dcabcb95a381d39a7486d91e8f3ce6155b871d800e401fb2e417aadb48ce2aeea520e96fa8bd2d1e76b4142dc222c46c753d84a19";
/// The same, with compressed points.
const COMPRESSED_PUBLIC: &str = "3082010a3081e306072a8648ce3d02013081d7020101302c06072a8648ce3d0101022100ffffffff00000001000000000000000000000000ffffffffffffffffffffffff305b0420ffffffff00000001000000000000000000000000fffffffffffffffffffffffc04205ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b031500c49d360886e704936a6678e1139d26b7819f7e900421036b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296022100ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc63255102010103220003bb1d4052edaf212fb8f5149dcabcb95a381d39a7486d91e8f3ce6155b871d800";
/// The same, with the named curve.
const NAMED_PUBLIC: &str = "3059301306072a8648ce3d020106082a8648ce3d03010703420004bb1d4052edaf212fb8f5149dcabcb95a381d39a7486d91e8f3ce6155b871d800e401fb2e417aadb48ce2aeea520e96fa8bd2d1e76b4142dc222c46c753d84a19";
/// The curve P-384 with explicit parameters.
const EXPLICIT_P384: &str = "308201cc3082016406072a8648ce3d020130820157020101303c06072a8648ce3d0101023100fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000ffffffff307b0430fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeffffffff0000000000000000fffffffc0430b3312fa7e23ee7e4988e056be3f82d19181d9c6efe8141120314088f5013875ac656398d8a2ed19d2a85c8edd3ec2aef031500a335926aa319a27a1d00896a6773a4827acdac73046104aa87ca22be8b05378eb1c71ef320ad746e1d3b628ba79b9859f741e082542a385502f25dbf55296c3a545e3872760ab73617de4a96262c6f5d9e98bf9292dc29f8f41dbd289a147ce9da3113b5f0b8c00a60b1ce1d7e819d7a431d7c90ea0e5f023100ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc5297302010103620004cbcdc6dd08a17a57c9bf02cf7c9a3bd4e66fd25812242ac3c12b34baa2b224af220f826d041de84d3d01f420cd409640a2348e9f9be21102b2284274bb47043632b9837cf3257409dbffd564c5dd67eebe63840b9147dfecd12088e160cd7b91";
/// The curve secp256k1 with explicit parameters.
const EXPLICIT_K256: &str = "308201333081ec06072a8648ce3d02013081e0020101302c06072a8648ce3d0101022100fffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f3044042000000000000000000000000000000000000000000000000000000000000000000420000000000000000000000000000000000000000000000000000000000000000704410479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8022100fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd03641410201010342000457a4c2287d8562acf6e5157243eb72b5c1e1a7d9ba60192e3d1745ea5e6d8fd7acfb0ea24622fc71584e3de860ab88468c3cf0d29b22434f9021296637c3d853";
/// RSA with 512 bits.
const RSA_512: &str = "305c300d06092a864886f70d0101010500034b003048024100bcb8e3ba8be8a5d6b9d3275da365c465e45a0c1f25d6a6a67c6ae7a5ad095245513e6e32949390e94d6a0bcf6316fd824a2daa1c4af9e6de7da6cab28832a8130203010001";
/// The private key under the passphrase `test`: `openssl pkcs8 -topk8 -scrypt`.
const SCRYPT: &str = "308201d5304f06092a864886f70d01050d3042302106092b06010401da47040b301404089afa37551d0c255802024000020108020101301d060960864801650304012a04107a09a10e3a03f841db686661c51c5ac2048201803142c147d28d057bf7b3ebe66d36f6f01d9c0b07b301fbb86f34f474d3c86cc874aedb4afa055899062d5d1b39c04eafd40e650681db05d3e18b21f7d632feb820ab752640c953e8c53a83ddaa231c9d8fcf56d5920acad471148f3f67b8eea9096dd8bb092ba2c704e3462331683c6476b7d1162c6cce428b004e0fce49a752be3a8619a986a344c35a04e99a3c62f61239dd11413db39271319fe3126f62d69d7a074c01eee2567fd81c6ee3eaf2452f6f6f87c8e77ca2b1b16142108c2690b6c4009f6e3c2d56c101541b724662217551357a5d5ef1b0d446be12cd0f30464e74aa632eec4e63959dbb5852c71334e0d385fe4f2d3295eb0a2c013083f920c953efdb8d1a9b1f785e35b2484965d464bc4937acbddc50f64881fb9aa7aff9e0f63563a9dd9ca7767734c4c6988590e2c0ab60487db97ed690973e536520366116ea5ead909ddbf7fdd1e09cf9b11e055f2d6a6eb7c975023f1061a051c415890fd2b94e2617c36c57dfa2e0ef5ed3b724fd392ee2ec8b353cc1d76f651566";
/// The same: `openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES`.
const PBES1: &str = "308201a2301c060a2a864886f70d010c0103300e0408b5449594831d06120202080004820180721550e2b731c39650bf40b4d3ebc115728d57d9d412957451cf0c30155f2d6708b5d1a70d69d52c0d1a2d3db9a12e12293efca87812f04fc439f118f561bf1dc13e8db597d749924d0acb62e17f026de53d210d467022ec78f42914b0aa146c9cc4e2dcf79cf7214b48f8b1c7b66d2aaffd911f575bfca388c3416265a40cff19b8d8f1d7d76d1416571b14fbd938ee67c7a83121a60e533f6f9703f1a331dae536aaf2a8b936026264d2826f990c9f32d0025977191a0951e05e775b3932bc5639284cc37a789d2e21fc81258c7fb3187e1b9a3e7978fdf4ef091098e39f420e0779d646f2cd8c2b7cc8a2d0fae488d3886c80895fa5fa7e5c78cff1bd1333e08cb031829298a82ffae98a7fb2a7d1606b21e7bcb662b9003f0eb06528b287d3aca5080c3aaca717e20d4eeba6a4f9d8c1b21e612dfe5aa47b74b0833f933d91db150c4cf0829d60a3e695eb9932bcc7b6cbd6108368c8ee4ec45eb2a993136fba3c12b737648b32c2d1796fd4c53ff454a8b5abb48608d0260f2027f0b6bf";

const PORTIONS: [&[u8]; 3] = [b"what ", b"", b"is signed"];

fn rng() -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(1)
}

fn octets(digits: &str) -> Vec<u8> {
    hex::decode(digits).expect("hexadecimal")
}

fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

fn one_of_each_type() -> Vec<PrivateKey> {
    [KeyType::EcdsaP256, KeyType::Ed25519, KeyType::Rsa(1024)]
        .map(|typ| PrivateKey::generate(typ, &mut rng()).expect("a key"))
        .into()
}

#[test]
fn every_type_of_key_signs_what_its_public_key_accepts() {
    for key in one_of_each_type() {
        let public = key.public_key();
        let signature = key.sign(&PORTIONS);
        assert!(public.verify(&PORTIONS, &signature), "{key:?}");
        assert!(
            public.verify(&[b"what is signed"], &signature),
            "{key:?}: portions are one text"
        );
        assert_eq!(
            key.sign(&PORTIONS),
            signature,
            "{key:?} draws no randomness"
        );
        for at in 0..signature.len() {
            let mut other = signature.clone();
            other[at] ^= 1;
            assert!(
                !public.verify(&PORTIONS, &other),
                "{key:?}: octet {at} was changed"
            );
        }
        assert!(!public.verify(&[b"what is signee"], &signature));
        assert!(!public.verify(&PORTIONS, &[]) && !public.verify(&PORTIONS, &signature[1..]));
        assert!(!public.verify(&PORTIONS, &[&signature[..], b"x"].concat()));
        let typ = match key.key_type() {
            KeyType::EcdsaP256 => SignatureType::Sha256WithEcdsa,
            KeyType::Rsa(bits) => {
                assert_eq!(bits, 1024);
                SignatureType::Sha256WithRsa
            }
            KeyType::Ed25519 => SignatureType::Ed25519,
        };
        assert_eq!(key.signer(name("/k")).info().typ, typ);
        assert_eq!(public.signature_type(), typ);
    }
}

#[test]
fn keys_survive_being_written_and_read() {
    for key in one_of_each_type() {
        let again = PrivateKey::from_pkcs8(&key.to_pkcs8().expect("written")).expect("read");
        assert_eq!(again.sign(&PORTIONS), key.sign(&PORTIONS));
        let encrypted = key
            .to_encrypted_pkcs8(b"open sesame", &mut rng())
            .expect("written");
        let again = PrivateKey::from_encrypted_pkcs8(&encrypted, b"open sesame").expect("read");
        assert_eq!(again.sign(&PORTIONS), key.sign(&PORTIONS));
        let refused =
            PrivateKey::from_encrypted_pkcs8(&encrypted, b"open sesamE").expect_err("wrong");
        // A wrong passphrase sometimes yields octets with a valid padding, which are then not a
        // key.
        assert!(matches!(
            refused,
            KeyError::Passphrase | KeyError::Malformed
        ));
        let public =
            PublicKey::from_spki(&key.public_key().to_spki().expect("written")).expect("read");
        assert_eq!(public, key.public_key());
        assert!(public.verify(&PORTIONS, &key.sign(&PORTIONS)));
    }
}

#[test]
fn an_elliptic_curve_may_be_written_out_if_it_is_p256() {
    let key = PrivateKey::from_pkcs8(&octets(EXPLICIT_PRIVATE)).expect("OpenSSL made it");
    for public in [EXPLICIT_PUBLIC, COMPRESSED_PUBLIC, NAMED_PUBLIC] {
        let public = PublicKey::from_spki(&octets(public)).expect("OpenSSL made it");
        assert_eq!(public, key.public_key());
        assert_eq!(public.to_spki().expect("written"), octets(NAMED_PUBLIC));
    }
    for other in [EXPLICIT_P384, EXPLICIT_K256] {
        assert_eq!(
            PublicKey::from_spki(&octets(other)),
            Err(KeyError::Unsupported)
        );
    }
    // P-256 with another base point, order or coefficient is another curve, made to forge
    // signatures (CVE-2020-0601).
    for parameter in ["6b17d1f2", "fc632551", "5ac635d8", "37bf51f5"] {
        let forged = EXPLICIT_PUBLIC.replacen(parameter, "00112233", 1);
        assert_ne!(forged, EXPLICIT_PUBLIC);
        assert_eq!(
            PublicKey::from_spki(&octets(&forged)),
            Err(KeyError::Unsupported),
            "{parameter}"
        );
    }
}

#[test]
fn keys_encrypted_by_openssl_are_read_or_refused_with_a_reason() {
    let key = PrivateKey::from_encrypted_pkcs8(&octets(SCRYPT), b"test").expect("OpenSSL made it");
    assert_eq!(
        key.public_key(),
        PublicKey::from_spki(&octets(NAMED_PUBLIC)).expect("OpenSSL made it")
    );
    let refused = PrivateKey::from_encrypted_pkcs8(&octets(PBES1), b"test").err();
    assert_eq!(refused, Some(KeyError::UnsupportedEncryption));
}

/// A DER element of less than 128 octets.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    [
        &[tag, u8::try_from(value.len()).expect("short")],
        &value[..],
    ]
    .concat()
}

/// An EncryptedPrivateKeyInfo with this key derivation, and arbitrary encrypted octets.
fn encrypted_with(kdf: &[u8]) -> Vec<u8> {
    let pbes2 = octets("06092a864886f70d01050d");
    let aes_256_cbc = octets("060960864801650304012a");
    let encryption = der(0x30, &[&aes_256_cbc, &der(0x04, &[&[0; 16]])]);
    let scheme = der(0x30, &[&pbes2, &der(0x30, &[kdf, &encryption])]);
    der(0x30, &[&scheme, &der(0x04, &[&[0; 16]])])
}

fn pbkdf2(iterations: u32) -> Vec<u8> {
    let (pbkdf2, hmac_sha256) = (
        octets("06092a864886f70d01050c"),
        octets("300c06082a864886f70d02090500"),
    );
    let parameters = [
        &der(0x04, &[b"saltsalt"]),
        &der(0x02, &[&iterations.to_be_bytes()]),
        &hmac_sha256[..],
    ];
    der(0x30, &[&pbkdf2, &der(0x30, &parameters)])
}

fn scrypt(cost: u32, block_size: u16, lanes: u8) -> Vec<u8> {
    let cost = cost.to_be_bytes();
    let shortest = &cost[cost.iter().position(|octet| *octet != 0).expect("not 0")..];
    let parameters = [
        der(0x04, &[b"saltsalt"]),
        der(0x02, &[shortest]),
        der(0x02, &[&block_size.to_be_bytes()]),
        der(0x02, &[&[lanes]]),
    ];
    let parameters = parameters.each_ref().map(|part| &part[..]);
    der(
        0x30,
        &[&octets("06092b06010401da47040b"), &der(0x30, &parameters)],
    )
}

#[test]
fn keys_that_would_cost_too_much_to_decrypt_are_refused() {
    let open = |kdf: &[u8]| PrivateKey::from_encrypted_pkcs8(&encrypted_with(kdf), b"x").err();
    // An affordable one is tried, and does not yield a key.
    let is_none = |refused| matches!(refused, Some(KeyError::Passphrase | KeyError::Malformed));
    assert_eq!(
        open(&pbkdf2(0x0200_0000)),
        Some(KeyError::TooCostly),
        "34 million iterations"
    );
    assert!(is_none(open(&scrypt(0x40, 0x0100, 1))), "2 MiB");
    assert_eq!(
        open(&scrypt(0x4000, 0x0100, 1)),
        Some(KeyError::TooCostly),
        "512 MiB"
    );
    assert_eq!(
        open(&scrypt(0x4000_0000, 0x0100, 1)),
        Some(KeyError::TooCostly),
        "32 TiB"
    );
    assert_eq!(
        open(&scrypt(0x10, 0x0100, 0x7f)),
        Some(KeyError::TooCostly),
        "127 lanes"
    );
}

#[test]
fn weak_and_huge_rsa_keys_are_refused() {
    assert_eq!(
        PublicKey::from_spki(&octets(RSA_512)),
        Err(KeyError::Unsupported)
    );
    for bits in [0, 512, 1023, 4097, 1 << 20] {
        let refused = PrivateKey::generate(KeyType::Rsa(bits), &mut rng()).err();
        assert_eq!(refused, Some(KeyError::Unsupported));
    }
}

/// RFC 6979 appendix A.2.5: P-256, SHA-256, the message "sample".
#[test]
fn ecdsa_signatures_are_those_of_rfc_6979() {
    let header = "3041020100301306072a8648ce3d020106082a8648ce3d030107042730250201010420";
    let secret = "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721";
    let key = PrivateKey::from_pkcs8(&octets(&[header, secret].concat())).expect("a key");
    let signature = hex::encode(key.sign(&[b"sam", b"ple"]));
    assert!(
        signature.contains("efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716"),
        "{signature}"
    );
    assert!(
        signature.contains("f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8"),
        "{signature}"
    );
}

/// RFC 8032 section 7.1, test 3.
#[test]
fn ed25519_signatures_are_those_of_rfc_8032() {
    let secret = "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7";
    let key = PrivateKey::from_pkcs8(&octets(
        &["302e020100300506032b657004220420", secret].concat(),
    ))
    .expect("a key");
    let signature = "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
                     18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a";
    assert_eq!(hex::encode(key.sign(&[&[0xaf], &[0x82]])), signature);
}

/// RFC 4231 sections 4.3 and 4.7: a short key, and one longer than a block.
#[test]
fn hmacs_are_those_of_rfc_4231() {
    let short = HmacKey::new(b"Jefe", Name::root());
    let mac = octets("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    assert_eq!(short.sign(&[b"what do ya want ", b"for nothing?"]), mac);
    assert!(short.verify(&[b"what do ya want for nothing?"], &mac));
    assert!(!short.verify(&[b"what do ya want for nothing?"], &mac[..31]));
    let long = HmacKey::new(&[0xaa; 131], Name::root());
    let mac = octets("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    assert_eq!(
        long.sign(&[b"Test Using Larger Than Block-Size Key - Hash Key First"]),
        mac
    );
}

#[test]
fn signed_packets_are_verified_with_the_right_key_only() {
    let keys = one_of_each_type();
    for key in &keys {
        let signer = key.signer(name("/me/KEY/1"));
        let data = Data::new(name("/me/said"), "something").encode(&signer);
        let info = signer.info().stamped([7; 8], 1_700_000_000_000);
        let interest = Interest {
            parameters: Some("x".into()),
            ..Interest::new(name("/me/do"))
        };
        let interest = interest.encode_signed(&signer, &info);
        let (data, interest) = (
            DataRef::decode(&data).unwrap(),
            InterestRef::decode(&interest).unwrap(),
        );
        for other in &keys {
            let expected = if other.key_type() == key.key_type() {
                Ok(())
            } else {
                let expected = other.public_key().signature_type();
                Err(VerifyError::Type {
                    expected,
                    found: key.public_key().signature_type(),
                })
            };
            assert_eq!(data.verify(&other.public_key()), expected);
            assert_eq!(interest.verify(&other.public_key()), expected);
        }
        let stranger =
            PrivateKey::generate(key.key_type(), &mut ChaCha20Rng::seed_from_u64(2)).unwrap();
        assert_eq!(
            data.verify(&stranger.public_key()),
            Err(VerifyError::Invalid)
        );
        assert_eq!(
            interest.verify(&stranger.public_key()),
            Err(VerifyError::Invalid)
        );
    }
}

#[test]
fn no_octet_of_a_signed_interest_can_be_changed_but_what_its_routers_may_change() {
    let key = PrivateKey::generate(KeyType::Ed25519, &mut rng()).unwrap();
    let signer = key.signer(name("/me/KEY/1"));
    let interest = Interest {
        nonce: Some([1, 2, 3, 4]),
        hop_limit: Some(9),
        parameters: Some("how".into()),
        ..Interest::new(name("/me/do/it"))
    };
    let wire = interest.encode_signed(&signer, &signer.info().stamped([7; 8], 1));
    let view = InterestRef::decode(&wire).unwrap();
    let offset_of = |part: &[u8]| part.as_ptr() as usize - wire.as_ptr() as usize;
    let name_ends = offset_of(view.name.value()) + view.name.value().len();
    // The type and length of ApplicationParameters precede their value.
    let parameters_begin = offset_of(view.parameters.unwrap()) - 2;
    let (nonce, hop_limit) = (view.nonce_at().unwrap(), view.hop_limit_at().unwrap());
    for at in (0..name_ends).chain(parameters_begin..wire.len()) {
        let mut changed = wire.clone();
        changed[at] ^= 4;
        let verified = InterestRef::decode(&changed).map(|view| view.verify(&key.public_key()));
        assert_ne!(verified, Ok(Ok(())), "octet {at}");
    }
    for at in (nonce..nonce + 4).chain([hop_limit]) {
        let mut changed = wire.clone();
        changed[at] ^= 4;
        assert_eq!(
            InterestRef::decode(&changed)
                .unwrap()
                .verify(&key.public_key()),
            Ok(()),
            "octet {at}"
        );
    }
}

#[test]
fn a_signed_interest_ends_with_its_digest_whatever_its_name_was() {
    // "Remove all ParametersSha256DigestComponent components from Name if present, regardless of
    // the location ... append it at the end of Name" (packet format, construction of signed
    // Interests).
    let stale = name(&format!("/a/params-sha256={}/b", "00".repeat(32)));
    let wire = Interest::new(stale).encode_signed(&DigestSigner, &DigestSigner.info());
    let view = InterestRef::decode(&wire).unwrap();
    assert_eq!(view.name.prefix(2).to_name(), name("/a/b"));
    assert!(view.name.len() == 3 && view.name.last().unwrap().is_parameters_digest());
    assert_eq!(view.verify(&DigestSigner), Ok(()));
    assert_eq!(
        view.parameters,
        Some(&[][..]),
        "an empty ApplicationParameters is added"
    );
}

#[test]
fn an_unsigned_interest_is_not_verified() {
    let wire = Interest {
        parameters: Some("x".into()),
        ..Interest::new(name("/a"))
    }
    .encode();
    let view = InterestRef::decode(&wire).unwrap();
    assert_eq!(view.verify(&DigestSigner), Err(VerifyError::Unsigned));
}

#[test]
fn secrets_are_not_printed() {
    let key = PrivateKey::generate(KeyType::EcdsaP256, &mut rng()).unwrap();
    assert_eq!(format!("{key:?}"), "PrivateKey(ECDSA P-256)");
    assert_eq!(
        format!("{:?}", HmacKey::new(b"secret", name("/k"))),
        "HmacKey(/k)"
    );
    assert_eq!(format!("{:?}", key.public_key()), "PublicKey(ECDSA P-256)");
}
