//! Packets made by python-ndn and NDNts decode to their intended values, and encode to the same
//! octets.

use std::fmt::Debug;
use std::time::Duration;

use serde_json::Value;
use whimbrel_ndn_packet::lp;
use whimbrel_ndn_packet::signature::{KeyLocatorRef, SignatureInfoRef};
use whimbrel_ndn_packet::validity::time_text;
use whimbrel_ndn_packet::{
    CachePolicy, Certificate, Component, Data, DataRef, DigestSigner, HmacKey, Interest,
    InterestRef, KeyLocator, LpPacket, Name, NameRef, PrefixAnnouncementRef, PrivateKey, PublicKey,
    SafeBag, SignatureInfo, Signer, Verifier,
};

const PYTHON_NDN: &str = include_str!("peers/python-ndn.json");
const NDNTS: &str = include_str!("peers/ndnts.json");
const KEYS: &str = include_str!("peers/keys.json");

struct Vector {
    library: String,
    id: String,
    wire: Vec<u8>,
    fields: Value,
}

impl Vector {
    #[track_caller]
    fn same<T: PartialEq + Debug>(&self, what: &str, ours: T, theirs: T) {
        assert_eq!(
            ours, theirs,
            "{} of '{}' of {}",
            what, self.id, self.library
        );
    }

    fn field(&self, name: &str) -> &Value {
        &self.fields[name]
    }

    fn octets(&self, name: &str) -> Option<Vec<u8>> {
        octets(self.field(name))
    }
}

fn octets(value: &Value) -> Option<Vec<u8>> {
    value
        .as_str()
        .map(|digits| hex::decode(digits).expect("hexadecimal"))
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// Returns all vectors of a kind, of both libraries; at least one, so that a renamed kind is
/// noticed.
fn vectors(kind: &str) -> Vec<Vector> {
    let mut found = Vec::new();
    for file in [PYTHON_NDN, NDNTS] {
        let file: Value = serde_json::from_str(file).expect("JSON");
        for vector in file["vectors"].as_array().expect("vectors") {
            if vector["kind"] == kind {
                found.push(Vector {
                    library: text(&file["library"]).to_owned(),
                    id: text(&vector["id"]).to_owned(),
                    wire: octets(&vector["wire"]).expect("a wire"),
                    fields: vector["fields"].clone(),
                });
            }
        }
    }
    assert!(!found.is_empty(), "no vectors of kind {kind}");
    found
}

fn name(uri: &str) -> Name {
    uri.parse().unwrap_or_else(|error| panic!("{uri}: {error}"))
}

fn keys() -> Value {
    serde_json::from_str(KEYS).expect("JSON")
}

fn private_key(keys: &Value, key: &str) -> PrivateKey {
    PrivateKey::from_pkcs8(&octets(&keys[key]["private_pkcs8"]).expect("a key"))
        .expect("it is read")
}

fn key_name(keys: &Value, key: &str) -> Name {
    keys[key]["name"]
        .as_str()
        .map_or_else(|| name("/keys/hmac/KEY/%04"), name)
}

fn verifier(keys: &Value, key: &str) -> Box<dyn Verifier> {
    match key {
        "sha256" => Box::new(DigestSigner),
        "hmac" => Box::new(HmacKey::new(
            &octets(&keys["hmac"]["secret"]).expect("a secret"),
            key_name(keys, key),
        )),
        key => Box::new(
            PublicKey::from_spki(&octets(&keys[key]["public_spki"]).expect("a key"))
                .expect("it is read"),
        ),
    }
}

fn signer(keys: &Value, key: &str) -> Box<dyn Signer> {
    match key {
        "sha256" => Box::new(DigestSigner),
        "hmac" => Box::new(HmacKey::new(
            &octets(&keys["hmac"]["secret"]).expect("a secret"),
            key_name(keys, key),
        )),
        key => Box::new(private_key(keys, key).signer(key_name(keys, key))),
    }
}

fn check_name(vector: &Vector, ours: NameRef<'_>, theirs: &Value) {
    let components: Vec<(u64, Vec<u8>)> = ours
        .components()
        .map(|component| (component.typ().into(), component.value().to_vec()))
        .collect();
    let expected: Vec<(u64, Vec<u8>)> = theirs["components"]
        .as_array()
        .expect("components")
        .iter()
        .map(|pair| {
            (
                pair[0].as_u64().expect("a type"),
                octets(&pair[1]).expect("a value"),
            )
        })
        .collect();
    vector.same("components", components, expected);
    if let Some(uri) = theirs["uri"].as_str() {
        vector.same("URI", ours.to_string().as_str(), uri);
        vector.same("name", name(uri), ours.to_name());
    }
    for uri in ["canonical_uri", "typed_uri"]
        .iter()
        .filter_map(|form| theirs[form].as_str())
    {
        vector.same("name by type numbers", name(uri), ours.to_name());
    }
    // python-ndn writes digests percent-encoded there; the specification defines only their label.
    let has_digest = ours.components().any(|component| component.typ() <= 2);
    if let Some(uri) = theirs["canonical_uri"].as_str().filter(|_| !has_digest) {
        vector.same(
            "URI by type numbers",
            ours.numbered().to_string().as_str(),
            uri,
        );
    }
}

fn check_signature(
    vector: &Vector,
    keys: &Value,
    info: &SignatureInfoRef<'_>,
    signed: &[&[u8]],
    value: &[u8],
    verify: &dyn Fn(&dyn Verifier) -> bool,
) {
    let theirs = vector.field("signature");
    vector.same(
        "signature type",
        info.typ.code(),
        theirs["type"].as_u64().expect("a type"),
    );
    vector.same("signature time", info.time, theirs["time"].as_u64());
    vector.same(
        "signature nonce",
        info.nonce.map(<[u8]>::to_vec),
        octets(&theirs["nonce"]),
    );
    vector.same(
        "signature sequence number",
        info.sequence,
        theirs["sequence"].as_u64(),
    );
    let locator = match info.key_locator {
        Some(KeyLocatorRef::Name(name)) => Some(name.to_name()),
        _ => None,
    };
    vector.same(
        "key locator",
        locator,
        theirs["key_locator"]["name"].as_str().map(name),
    );
    let digest = match info.key_locator {
        Some(KeyLocatorRef::Digest(digest)) => Some(digest.to_vec()),
        _ => None,
    };
    vector.same(
        "key digest",
        digest,
        octets(&theirs["key_locator"]["digest"]),
    );
    vector.same(
        "signed portion",
        signed.concat(),
        octets(&theirs["signed"]).expect("octets"),
    );
    vector.same(
        "signature",
        value.to_vec(),
        octets(&theirs["value"]).expect("octets"),
    );
    if let Some(key) = theirs["key"].as_str().filter(|key| *key != "null") {
        vector.same(
            "signature's verification",
            verify(&*verifier(keys, key)),
            true,
        );
        let other = if key == "ecdsa" { "rsa" } else { "ecdsa" };
        vector.same(
            "verification with another key",
            verify(&*verifier(keys, other)),
            false,
        );
    }
}

fn info_to_encode(info: &SignatureInfoRef<'_>) -> SignatureInfo {
    SignatureInfo {
        key_locator: info.key_locator.map(KeyLocator::from),
        nonce: info.nonce.map(|nonce| nonce.to_vec().into()),
        time: info.time,
        sequence: info.sequence,
        ..SignatureInfo::new(info.typ)
    }
}

#[test]
fn names_are_read_and_written_as_the_peers_do() {
    for vector in vectors("name") {
        let ours = NameRef::decode(&vector.wire).expect(&vector.id);
        check_name(&vector, ours, &vector.fields);
        let mut again = Vec::new();
        ours.to_name().as_ref().encode(&mut again);
        vector.same("wire", hex::encode(again), hex::encode(&vector.wire));
    }
}

#[test]
fn interests_are_read_verified_and_made_as_the_peers_do() {
    let keys = keys();
    for vector in vectors("interest") {
        let ours = InterestRef::decode(&vector.wire)
            .unwrap_or_else(|error| panic!("{}: {error}", vector.id));
        check_name(&vector, ours.name, vector.field("name"));
        vector.same(
            "CanBePrefix",
            Some(ours.can_be_prefix),
            vector.field("can_be_prefix").as_bool(),
        );
        vector.same(
            "MustBeFresh",
            Some(ours.must_be_fresh),
            vector.field("must_be_fresh").as_bool(),
        );
        vector.same(
            "nonce",
            ours.nonce.map(u32::from_be_bytes).map(u64::from),
            vector.field("nonce").as_u64(),
        );
        let lifetime = Duration::from_millis(vector.field("lifetime_ms").as_u64().unwrap_or(4000));
        vector.same("lifetime", ours.lifetime, lifetime);
        vector.same(
            "hop limit",
            ours.hop_limit.map(u64::from),
            vector.field("hop_limit").as_u64(),
        );
        vector.same(
            "parameters",
            ours.parameters.map(<[u8]>::to_vec),
            vector.octets("parameters"),
        );
        vector.same(
            "parameters' digest",
            ours.parameters_digest_is_valid(),
            true,
        );
        let hints = vector.field("forwarding_hint").as_array().expect("a list");
        let hints: Vec<Name> = hints.iter().map(|uri| name(text(uri))).collect();
        vector.same(
            "forwarding hint",
            ours.delegations().map(|name| name.to_name()).collect(),
            hints.clone(),
        );

        let again = Interest {
            can_be_prefix: ours.can_be_prefix,
            must_be_fresh: ours.must_be_fresh,
            forwarding_hint: hints,
            nonce: ours.nonce,
            lifetime: vector
                .field("lifetime_ms")
                .as_u64()
                .map(Duration::from_millis),
            hop_limit: ours.hop_limit,
            parameters: ours.parameters.map(|parameters| parameters.to_vec().into()),
            ..Interest::new(ours.name.to_name())
        };
        let Some(info) = ours.signature_info else {
            vector.same("verification", ours.verify(&DigestSigner).is_err(), true);
            vector.same(
                "wire",
                hex::encode(again.encode()),
                hex::encode(&vector.wire),
            );
            continue;
        };
        let value = ours.signature_value.expect("a signature has a value");
        let verify = |verifier: &dyn Verifier| ours.verify(verifier).is_ok();
        check_signature(
            &vector,
            &keys,
            &info,
            &ours.signed_portions(),
            value,
            &verify,
        );
        // ECDSA signatures can differ; all others are deterministic.
        let key = text(&vector.field("signature")["key"]);
        let made = again.encode_signed(&*signer(&keys, key), &info_to_encode(&info));
        if key == "ecdsa" {
            let made = InterestRef::decode(&made).expect("it is an Interest");
            vector.same(
                "our signature's verification",
                made.verify(&*verifier(&keys, key)),
                Ok(()),
            );
        } else {
            vector.same("wire", hex::encode(made), hex::encode(&vector.wire));
        }
    }
}

fn check_data(vector: &Vector, keys: &Value, ours: &DataRef<'_>) {
    check_name(vector, ours.name, vector.field("name"));
    vector.same(
        "content type",
        Some(ours.content_type.code()),
        vector.field("content_type").as_u64(),
    );
    let freshness = Duration::from_millis(vector.field("freshness_ms").as_u64().unwrap_or(0));
    vector.same("freshness", ours.freshness, freshness);
    let final_block = ours.final_block_id.map(|component| {
        let mut out = Vec::new();
        component.encode(&mut out);
        out
    });
    vector.same("final block", final_block, vector.octets("final_block"));
    vector.same(
        "content",
        ours.content.to_vec(),
        vector.octets("content").unwrap_or_default(),
    );
    vector.same(
        "digest",
        ours.implicit_digest().to_vec(),
        vector.octets("implicit_sha256").expect("a digest"),
    );
    let verify = |verifier: &dyn Verifier| ours.verify(verifier).is_ok();
    check_signature(
        vector,
        keys,
        &ours.signature_info,
        &[ours.signed_portion],
        ours.signature_value,
        &verify,
    );
}

#[test]
fn data_are_read_verified_and_made_as_the_peers_do() {
    let keys = keys();
    for vector in vectors("data") {
        let ours =
            DataRef::decode(&vector.wire).unwrap_or_else(|error| panic!("{}: {error}", vector.id));
        check_data(&vector, &keys, &ours);
        let key = text(&vector.field("signature")["key"]);
        if key == "null" {
            continue;
        }
        let again = Data {
            content_type: ours.content_type,
            freshness: ours.freshness,
            final_block_id: ours.final_block_id.map(|component| component.to_owned()),
            ..Data::new(ours.name.to_name(), ours.content.to_vec())
        };
        let made =
            again.encode_with_info(&*signer(&keys, key), &info_to_encode(&ours.signature_info));
        let view = DataRef::decode(&made).expect("it is a Data");
        vector.same(
            "our signature's verification",
            view.verify(&*verifier(&keys, key)),
            Ok(()),
        );
        // python-ndn writes ContentType 0 where NDNts and Whimbrel omit it; Whimbrel always writes
        // an empty content.
        if vector.library == "NDNts" && !vector.id.contains("none") && key != "ecdsa" {
            vector.same("wire", hex::encode(made), hex::encode(&vector.wire));
        }
    }
}

#[test]
fn certificates_of_the_peers_are_read_and_verified() {
    let keys = keys();
    for vector in vectors("certificate") {
        check_data(
            &vector,
            &keys,
            &DataRef::decode(&vector.wire).expect("it is a Data"),
        );
        let ours = Certificate::decode(vector.wire.clone().into()).expect(&vector.id);
        let (key, issuer) = (
            text(vector.field("subject_key")),
            text(&vector.field("signature")["key"]),
        );
        vector.same(
            "identity",
            ours.identity().clone(),
            name(&format!("/keys/{key}")),
        );
        vector.same("key name", ours.key_name().clone(), key_name(&keys, key));
        vector.same(
            "not before",
            time_text(ours.validity().not_before).as_str(),
            text(vector.field("not_before")),
        );
        vector.same(
            "not after",
            time_text(ours.validity().not_after).as_str(),
            text(vector.field("not_after")),
        );
        vector.same(
            "public key",
            ours.public_key().clone(),
            private_key(&keys, key).public_key(),
        );
        vector.same(
            "public key's octets",
            ours.public_key().to_spki().ok(),
            octets(&keys[key]["public_spki"]),
        );
        vector.same(
            "verification",
            ours.verify(&*verifier(&keys, issuer)),
            Ok(()),
        );
        vector.same("self-signedness", ours.is_self_signed(), key == issuer);
        assert!(ours.version().is_some() && ours.issuer_id().is_some());
    }
}

#[test]
fn safe_bags_of_the_peers_are_opened() {
    let keys = keys();
    for vector in vectors("safe_bag") {
        let ours = SafeBag::decode(&vector.wire).expect(&vector.id);
        vector.same(
            "certificate",
            Some(ours.certificate().wire().to_vec()),
            vector.octets("certificate"),
        );
        let key = private_key(&keys, text(vector.field("key")));
        let opened = ours
            .open(text(vector.field("passphrase")).as_bytes())
            .expect(&vector.id);
        vector.same("private key", opened.to_pkcs8(), key.to_pkcs8());
        assert!(ours.open(b"another passphrase").is_err(), "{}", vector.id);
        vector.same(
            "wire",
            hex::encode(ours.encode()),
            hex::encode(&vector.wire),
        );
    }
}

#[test]
fn prefix_announcements_of_the_peers_are_read_and_verified() {
    let keys = keys();
    for vector in vectors("prefix_announcement") {
        check_data(
            &vector,
            &keys,
            &DataRef::decode(&vector.wire).expect("it is a Data"),
        );
        let ours = PrefixAnnouncementRef::decode(&vector.wire).expect(&vector.id);
        vector.same(
            "prefix",
            ours.prefix.to_name(),
            name(text(vector.field("announced"))),
        );
        let expiration = ours.expiration.as_millis() as u64;
        vector.same(
            "expiration",
            Some(expiration),
            vector.field("expiration_ms").as_u64(),
        );
        let key = text(&vector.field("signature")["key"]);
        vector.same("verification", ours.verify(&*verifier(&keys, key)), Ok(()));
    }
}

fn number(value: &Value) -> Option<u64> {
    value
        .as_u64()
        .or_else(|| value.as_str().and_then(|digits| digits.parse().ok()))
}

#[test]
fn link_headers_are_read_and_made_as_the_peers_do() {
    for vector in vectors("lp") {
        let ours = LpPacket::decode(&vector.wire, false).expect(&vector.id);
        let theirs = |field: &str| number(vector.field(field));
        let (index, count) = ours.place();
        vector.same("sequence", ours.link.sequence, theirs("sequence"));
        vector.same("fragment index", index, theirs("frag_index").unwrap_or(0));
        vector.same("fragment count", count, theirs("frag_count").unwrap_or(1));
        vector.same(
            "token",
            ours.pit_token.map(<[u8]>::to_vec),
            vector.octets("pit_token"),
        );
        vector.same(
            "nack",
            ours.nack.is_some(),
            vector.field("nack").as_bool().unwrap_or(false),
        );
        let reason = ours.nack.map_or(0, |reason| reason.code());
        vector.same("nack reason", reason, theirs("nack_reason").unwrap_or(0));
        vector.same(
            "next hop",
            ours.next_hop_face_id,
            theirs("next_hop_face_id"),
        );
        vector.same(
            "incoming face",
            ours.incoming_face_id,
            theirs("incoming_face_id"),
        );
        let no_cache = theirs("cache_policy").map(|_| CachePolicy::NoCache);
        vector.same("cache policy", ours.cache_policy, no_cache);
        vector.same(
            "congestion mark",
            ours.congestion_mark,
            theirs("congestion_mark"),
        );
        vector.same("transmission", ours.link.tx_sequence, theirs("tx_sequence"));
        vector.same(
            "non-discovery",
            ours.non_discovery,
            vector.field("non_discovery").as_bool().unwrap_or(false),
        );
        let announcement = ours.prefix_announcement.map(<[u8]>::to_vec);
        vector.same(
            "prefix announcement",
            announcement,
            vector.octets("prefix_announcement"),
        );
        let acks = vector
            .field("acks")
            .as_array()
            .map(|acks| acks.iter().filter_map(number).collect());
        let acks: Vec<u64> = acks.unwrap_or_default();
        vector.same("acks", ours.link.acks.iter().collect(), acks);
        vector.same(
            "fragment",
            ours.fragment.map(<[u8]>::to_vec),
            vector.octets("fragment"),
        );

        let mut again = Vec::new();
        lp::encode(&mut again, &ours.link, &ours.header, ours.fragment);
        // A reason of 0 means the same as none, which Whimbrel omits.
        if vector.field("nack_reason").as_u64() != Some(0) {
            vector.same("wire", hex::encode(again), hex::encode(&vector.wire));
        }
    }
}

#[test]
fn an_announcement_in_a_link_header_is_decoded() {
    let vectors = vectors("lp");
    let vector = vectors
        .iter()
        .find(|vector| vector.id == "prefix announcement")
        .expect("python-ndn made one");
    let lp = LpPacket::decode(&vector.wire, false).expect("it is a link packet");
    let announcement =
        PrefixAnnouncementRef::decode(lp.prefix_announcement.expect("a field")).expect("it is one");
    assert_eq!(
        (announcement.prefix.to_name(), announcement.version),
        (name("/announced"), 1)
    );
    assert_eq!(
        announcement
            .prefix
            .to_name()
            .child(Component::keyword("PA").as_ref())
            .len(),
        2
    );
}
