//! Headers of NDNLPv2: fields, fragments and Nacks.

use whimbrel_ndn_packet::lp::{self, Field, LinkFields, Numbers};
use whimbrel_ndn_packet::tlv::{self, DecodeError};
use whimbrel_ndn_packet::{LpHeader, LpPacket, NackReason};

use super::wire::{lp_error, packet};

#[test]
fn link_header_fields_come_once_in_ascending_order_and_the_fragment_last() {
    assert_eq!(lp_error(""), None, "IDLE");
    assert_eq!(lp_error("5000"), None, "an empty fragment counts as none");
    assert_eq!(lp_error("5108 0000000000000001 5003 050100"), None);
    assert_eq!(
        lp_error("5003 050100 5108 0000000000000001"),
        Some(DecodeError::HeaderField(0x50))
    );
    assert_eq!(
        lp_error("620101 5108 0000000000000001"),
        Some(DecodeError::HeaderField(0x51))
    );
    assert_eq!(
        lp_error("620101 620101"),
        Some(DecodeError::HeaderField(0x62))
    );
    assert_eq!(
        lp_error("fd0344 08 0000000000000001 fd0344 08 0000000000000002"),
        None,
        "Acks are many"
    );
    assert_eq!(
        lp_error("fd0348 08 0000000000000001 fd0344 08 0000000000000002"),
        Some(DecodeError::HeaderField(0x344)),
        "Acks come before TxSequence"
    );
}

#[test]
fn sequence_transmission_and_ack_have_8_octets_and_a_token_1_to_32() {
    for field in ["510101", "5104 00000001", "5109 000000000000000001"] {
        assert!(
            matches!(lp_error(field), Some(DecodeError::Value(_))),
            "{field}"
        );
    }
    // Ack and TxSequence are fields that a receiver without the reliability feature ignores.
    for (field, skipped) in [
        ("fd0344 0101", Field::Ack),
        ("fd0348 04 00000001", Field::TxSequence),
    ] {
        let frame = packet(0x64, field);
        let lp = LpPacket::decode(&frame, false).expect(field);
        assert!(
            lp.skipped.contains(skipped) && lp.link.is_empty(),
            "{field}"
        );
    }
    assert_eq!(lp_error("6200"), Some(DecodeError::Value(0x62)));
    assert_eq!(lp_error(&format!("6220 {}", "00".repeat(32))), None);
    assert_eq!(
        lp_error(&format!("6221 {}", "00".repeat(33))),
        Some(DecodeError::Value(0x62))
    );
}

#[test]
fn an_unknown_header_field_is_ignored_only_in_its_range() {
    // "800 to 959, the two least significant bits 0"
    for (typ, ignored) in [
        (799, false),
        (800, true),
        (801, false),
        (802, false),
        (803, false),
        (804, true),
        (956, true),
        (959, false),
        (960, false),
        (0x60, false),
        (0x54, false),
        (0x3000, false),
    ] {
        let mut field = Vec::new();
        tlv::write_element(&mut field, typ, b"");
        // 800 is Nack, which is known and may be empty.
        assert_eq!(lp_error(&hex::encode(field)).is_none(), ignored, "{typ}");
    }
}

#[test]
fn fragment_numbers_make_sense() {
    assert_eq!(lp_error("520100 530101"), None);
    assert_eq!(lp_error("520102 530103"), None);
    for fields in ["520103 530103", "520101", "530100", "520101 530101"] {
        assert_eq!(lp_error(fields), Some(DecodeError::Value(0x52)), "{fields}");
    }
}

#[test]
fn a_nack_has_a_reason_or_none() {
    let decode = |fields: &str| LpPacket::decode(&packet(0x64, fields), false).map(|lp| lp.nack);
    assert_eq!(decode("fd0320 00"), Ok(Some(NackReason::None)));
    assert_eq!(
        decode("fd0320 05 fd0321 0196"),
        Ok(Some(NackReason::NoRoute))
    );
    assert_eq!(
        decode("fd0320 05 fd0321 0163"),
        Ok(Some(NackReason::Other(99)))
    );
    assert_eq!(
        decode("fd0320 04 fd0321 00"),
        Err(DecodeError::Value(0x321))
    );
    assert_eq!(
        decode("fd0334 00"),
        Err(DecodeError::Missing(0x335)),
        "a CachePolicy has a type"
    );
    assert_eq!(
        decode("fd034c 0100"),
        Err(DecodeError::Value(0x34c)),
        "NonDiscovery is empty"
    );
}

#[test]
fn fields_are_written_in_the_order_that_receivers_require() {
    let header = LpHeader {
        pit_token: Some(vec![1; 4].into()),
        nack: Some(NackReason::Duplicate),
        congestion_mark: Some(1),
        non_discovery: true,
        ..LpHeader::default()
    };
    let link = LinkFields {
        sequence: Some(1),
        frag_index: Some(0),
        frag_count: Some(2),
        tx_sequence: Some(2),
        acks: Numbers::Listed(&[9, 3]),
        adaptive_hello: Some(b"x"),
        ..LinkFields::default()
    };
    let mut out = Vec::new();
    lp::encode(&mut out, &link, &header, Some(b"\x05\x03\x07\x01\x61"));
    assert_eq!(
        hex::encode(out),
        "64585108000000000000000152010053010262040101 0101fd032005fd03210164fd03400101fd03440800000000000000 09\
         fd0344080000000000000003fd0348080000000000000002fd034c00fd03bc01785005050307 0161"
            .replace(' ', "")
    );
}
