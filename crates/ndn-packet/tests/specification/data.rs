//! Data: its description, its signature and the locator of its key.

use std::time::Duration;

use whimbrel_ndn_packet::tlv::DecodeError;
use whimbrel_ndn_packet::{ContentType, DataRef, InterestRef};

use super::wire::{DIGEST_INFO, DIGEST_VALUE, NAME, data_error, packet};

#[test]
fn a_data_needs_a_name_and_a_signature() {
    let wire = packet(6, &format!("0700 {DIGEST_INFO} {DIGEST_VALUE}"));
    let data = DataRef::decode(&wire).expect("a Data");
    assert!(data.name.is_empty() && data.content.is_empty() && data.freshness.is_zero());
    assert_eq!(data.content_type, ContentType::Blob);
    assert_eq!(data_error(NAME), Some(DecodeError::Missing(0x16)));
    assert_eq!(
        data_error(&format!("{NAME} {DIGEST_INFO}")),
        Some(DecodeError::Missing(0x17))
    );
    assert_eq!(
        data_error(&format!("{DIGEST_INFO} {DIGEST_VALUE}")),
        Some(DecodeError::Missing(7))
    );
    assert_eq!(
        data_error(&format!("{NAME} 1500 1400 {DIGEST_INFO} {DIGEST_VALUE}")),
        Some(DecodeError::Critical(0x14))
    );
    assert_eq!(
        DataRef::decode(&packet(5, NAME)).err(),
        Some(DecodeError::WrongType(5))
    );
    assert_eq!(
        InterestRef::decode(&packet(6, NAME)).err(),
        Some(DecodeError::WrongType(6))
    );
}

#[test]
fn meta_info_describes_the_content() {
    let with = |meta: &str| format!("{NAME} {meta} 150178 {DIGEST_INFO} {DIGEST_VALUE}");
    let wire = packet(6, &with("140c 180103 190203e8 1a03 32010a"));
    let data = DataRef::decode(&wire).expect("a Data");
    assert_eq!(
        (data.content_type, data.freshness),
        (ContentType::Nack, Duration::from_secs(1))
    );
    assert_eq!(data.final_block_id.expect("one").as_segment(), Some(10));
    assert_eq!(data.content, b"x");
    assert_eq!(
        data_error(&with("1405 1a03 000161")),
        Some(DecodeError::VarNumber),
        "a component of type 0"
    );
    assert_eq!(
        data_error(&with("1402 1a00")),
        Some(DecodeError::Value(0x1a))
    );
    assert_eq!(
        data_error(&with("1402 1800")),
        Some(DecodeError::Value(0x18))
    );
    // FreshnessPeriod after FinalBlockId is out of order, and critical because its type is odd.
    assert_eq!(
        data_error(&with("1408 1a03 320100 190101")),
        Some(DecodeError::Critical(0x19))
    );
}

#[test]
fn a_key_locator_holds_a_name_or_a_digest() {
    let with = |locator: &str| format!("{NAME} 16{locator} {DIGEST_VALUE}");
    for locator in [
        "0a 1b0103 1c05 0703080161",
        "09 1b0103 1c04 1d020102",
        "05 1b0103 1c00",
        "0c 1b0103 1c07 2000 0703080161",
    ] {
        assert_eq!(data_error(&with(locator)), None, "{locator}");
    }
    assert_eq!(
        data_error(&with("07 1b0103 1c02 2100")),
        Some(DecodeError::Critical(0x21))
    );
    assert_eq!(
        data_error(&with("05 1c00 1b0103")),
        Some(DecodeError::Critical(0x1b)),
        "the type comes first"
    );
}
