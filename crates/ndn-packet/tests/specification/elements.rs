//! Elements: unknown, out of order, of the wrong size.

use whimbrel_ndn_packet::InterestRef;
use whimbrel_ndn_packet::tlv::DecodeError;

use super::wire::{DIGEST_INFO, DIGEST_VALUE, NAME, data_error, interest_error, packet};

#[test]
fn unknown_elements_are_ignored_unless_they_are_critical() {
    for (typ, critical) in [
        ("1f", true),
        ("03", true),
        ("04", true),
        ("21", true),
        ("23", true),
        ("20", false),
        ("80", false),
        ("fc", false),
        ("fd00fd", true),
        ("fd0100", false),
        ("fd0101", true),
    ] {
        // CanBePrefix comes before, so that 0x21 is a repetition, which is critical.
        let found = interest_error(&format!("{NAME} 2100 {typ}00 1200"));
        assert_eq!(
            matches!(found, Some(DecodeError::Critical(_))),
            critical,
            "{typ}: {found:?}"
        );
        let found = data_error(&format!("{NAME} {typ}00 1500 {DIGEST_INFO} {DIGEST_VALUE}"));
        assert_eq!(
            matches!(found, Some(DecodeError::Critical(_))),
            critical,
            "{typ}: {found:?}"
        );
    }
    // "However, they must not appear before the Name element."
    assert_eq!(
        interest_error(&format!("2000 {NAME}")),
        Some(DecodeError::Missing(7))
    );
    assert_eq!(
        data_error(&format!("2000 {NAME} {DIGEST_INFO} {DIGEST_VALUE}")),
        Some(DecodeError::Missing(7))
    );
}

#[test]
fn an_element_out_of_order_is_treated_as_an_unknown_one() {
    // Nonce (0x0a) and MustBeFresh (0x12) are critical; HopLimit (0x22) is not.
    assert_eq!(
        interest_error(&format!("{NAME} 0a0401020304 1200")),
        Some(DecodeError::Critical(0x12))
    );
    assert_eq!(
        interest_error(&format!("{NAME} 0a0401020304 0a0401020304")),
        Some(DecodeError::Critical(0x0a))
    );
    let wire = packet(5, &format!("{NAME} 220105 220109 0a0401020304"));
    assert_eq!(
        InterestRef::decode(&wire).err(),
        Some(DecodeError::Critical(0x0a))
    );
    let wire = packet(5, &format!("{NAME} 220105 220109"));
    assert_eq!(
        InterestRef::decode(&wire).expect("an Interest").hop_limit,
        Some(5),
        "the second one is ignored"
    );
}

#[test]
fn elements_of_fixed_size_have_it() {
    for (element, typ) in [
        ("210100", 0x21),
        ("120100", 0x12),
        ("0a03010203", 0x0a),
        ("0a050102030405", 0x0a),
        ("2200", 0x22),
        ("22020001", 0x22),
        ("0701", 7),
    ] {
        let found = interest_error(&format!("{NAME} {element}"));
        assert!(
            matches!(found, Some(DecodeError::Value(found) | DecodeError::Truncated(found)) if found == typ),
            "{element}"
        );
    }
}
