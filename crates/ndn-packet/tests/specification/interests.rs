//! Interests: forwarding hints, parameters and their digest.

use std::time::Duration;

use whimbrel_ndn_packet::InterestRef;
use whimbrel_ndn_packet::tlv::DecodeError;

use super::wire::{NAME, interest_error, octets, packet};

#[test]
fn an_interest_needs_a_name_of_at_least_one_component_and_nothing_else() {
    assert_eq!(interest_error(NAME), None);
    assert_eq!(interest_error(""), Some(DecodeError::Missing(7)));
    assert_eq!(interest_error("0700"), Some(DecodeError::Value(7)));
    assert_eq!(interest_error("2100"), Some(DecodeError::Missing(7)));
    assert_eq!(
        interest_error(&format!("2100 {NAME}")),
        Some(DecodeError::Missing(7))
    );
    assert_eq!(
        interest_error(&format!("{NAME} {NAME}")),
        Some(DecodeError::Critical(7))
    );
    let wire = packet(5, NAME);
    let bare = InterestRef::decode(&wire).expect("an Interest");
    assert_eq!(
        (bare.lifetime, bare.nonce, bare.hop_limit),
        (Duration::from_secs(4), None, None)
    );
    assert!(!bare.can_be_prefix && !bare.must_be_fresh && bare.parameters.is_none());
}

#[test]
fn a_forwarding_hint_holds_names() {
    let wire = packet(5, &format!("{NAME} 1e0a 0703080162 0703080163"));
    let hints: Vec<String> = InterestRef::decode(&wire)
        .expect("an Interest")
        .delegations()
        .map(|name| name.to_string())
        .collect();
    assert_eq!(hints, ["/b", "/c"]);
    let wire = packet(5, &format!("{NAME} 1e07 2000 0703080163"));
    assert_eq!(
        InterestRef::decode(&wire)
            .expect("an Interest")
            .delegations()
            .count(),
        1
    );
    assert_eq!(
        interest_error(&format!("{NAME} 1e00")),
        Some(DecodeError::Value(0x1e))
    );
    assert_eq!(
        interest_error(&format!("{NAME} 1e02 2000")),
        Some(DecodeError::Value(0x1e))
    );
    // Delegations had a preference before version 0.3.
    assert_eq!(
        interest_error(&format!("{NAME} 1e0a 1f08 1e0100 0703080163")),
        Some(DecodeError::Critical(0x1f))
    );
}

#[test]
fn parameters_and_their_digest_belong_together() {
    let digest = "00".repeat(32);
    let with_digest = format!("0725 080161 0220{digest} ");
    let with_two = format!("0747 080161 0220{digest} 0220{digest} ");
    assert_eq!(interest_error(&format!("{with_digest} 2400")), None);
    assert_eq!(
        interest_error(&format!("{NAME} 2400")),
        Some(DecodeError::Value(2))
    );
    assert_eq!(
        interest_error(&format!("{with_two} 2400")),
        Some(DecodeError::Value(2))
    );
    assert_eq!(interest_error(&with_two), Some(DecodeError::Value(2)));
    assert_eq!(
        interest_error(&with_digest),
        None,
        "so segments of a reply to parameters are asked for"
    );
    // A signature has both parts and covers parameters.
    let info = "2c03 1b0100";
    let value = "2e0100";
    assert_eq!(
        interest_error(&format!("{with_digest} 2400 {info} {value}")),
        None
    );
    assert_eq!(
        interest_error(&format!("{with_digest} 2400 {info}")),
        Some(DecodeError::Missing(0x2e))
    );
    assert_eq!(
        interest_error(&format!("{with_digest} 2400 {value}")),
        Some(DecodeError::Missing(0x2e))
    );
    assert_eq!(
        interest_error(&format!("{with_digest} {info} {value}")),
        Some(DecodeError::Missing(0x24))
    );
    assert_eq!(
        interest_error(&format!("{with_digest} 2400 2c00 {value}")),
        Some(DecodeError::Missing(0x1b))
    );
}

#[test]
fn the_digest_covers_everything_from_the_parameters_to_the_end() {
    // SHA-256 of 24 01 78 and of 24 01 78 80 00.
    let digests = [
        ("", sha256(&octets("240178"))),
        ("8000", sha256(&octets("240178 8000"))),
    ];
    for (after, digest) in digests {
        let wire = packet(
            5,
            &format!("0725 080161 0220{} 240178 {after}", hex::encode(digest)),
        );
        assert!(
            InterestRef::decode(&wire)
                .expect("an Interest")
                .parameters_digest_is_valid()
        );
        let other = packet(
            5,
            &format!("0725 080161 0220{} 240179 {after}", hex::encode(digest)),
        );
        assert!(
            !InterestRef::decode(&other)
                .expect("an Interest")
                .parameters_digest_is_valid()
        );
    }
}

fn sha256(octets: &[u8]) -> [u8; 32] {
    whimbrel_ndn_packet::signature::sha256(&[octets])
}
