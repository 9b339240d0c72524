//! Types, lengths and integers, and where a packet ends.

use whimbrel_ndn_packet::tlv::{self, DecodeError};
use whimbrel_ndn_packet::{DataRef, LpPacket, PacketKind};

use super::wire::{DIGEST_INFO, DIGEST_VALUE, NAME, interest_error, octets, packet};

#[test]
fn numbers_of_types_and_lengths_are_in_their_shortest_form() {
    for (digits, number) in [
        ("00", 0),
        ("fc", 252),
        ("fd00fd", 253),
        ("fdffff", 65535),
        ("fe00010000", 65536),
        ("feffffffff", u64::from(u32::MAX)),
        ("ff0000000100000000", 1 << 32),
        ("ffffffffffffffffff", u64::MAX),
    ] {
        let wire = octets(digits);
        assert_eq!(tlv::read_var(&wire), Ok(Some((number, wire.len()))));
        let mut out = Vec::new();
        tlv::write_var(&mut out, number);
        assert_eq!(out, wire);
        assert_eq!(tlv::var_len(number), wire.len());
        for end in 0..wire.len() {
            assert_eq!(tlv::read_var(&wire[..end]), Ok(None));
        }
    }
    for digits in [
        "fd0000",
        "fd00fc",
        "fe00000000",
        "fe0000ffff",
        "ff0000000000000000",
        "ff00000000ffffffff",
    ] {
        assert_eq!(
            tlv::read_var(&octets(digits)),
            Err(DecodeError::VarNumber),
            "{digits}"
        );
    }
    // A packet follows the same rule: the length of the name, its type, and a component's type.
    for elements in ["07fd0003 080161", "fd000703 080161", "0705 fd0008 0161"] {
        assert_eq!(
            interest_error(elements),
            Some(DecodeError::VarNumber),
            "{elements}"
        );
    }
}

#[test]
fn a_type_is_neither_zero_nor_beyond_32_bits() {
    assert_eq!(
        interest_error(&format!("{NAME} 0000")),
        Some(DecodeError::VarNumber)
    );
    assert_eq!(
        interest_error(&format!("{NAME} ff0000000100000000 00")),
        Some(DecodeError::VarNumber)
    );
    // The greatest type is even and thus not critical.
    assert_eq!(interest_error(&format!("{NAME} fefffffffe 00")), None);
}

#[test]
fn a_non_negative_integer_has_1_2_4_or_8_octets() {
    for (digits, number) in [
        ("00", 0),
        ("ff", 255),
        ("0100", 256),
        ("ffff", 65535),
        ("00010000", 65536),
    ] {
        assert_eq!(tlv::read_integer(&octets(digits)), Some(number));
        let mut out = Vec::new();
        tlv::write_integer(&mut out, number);
        assert_eq!(out, octets(digits));
    }
    for digits in [
        "",
        "000001",
        "0000000001",
        "000000000001",
        "00000000000001",
        "000000000000000001",
    ] {
        assert_eq!(tlv::read_integer(&octets(digits)), None);
    }
    let lifetime = |value: &str| interest_error(&format!("{NAME} 0c{value}"));
    assert_eq!(lifetime("00"), Some(DecodeError::Value(0x0c)));
    assert_eq!(lifetime("03000fa0"), Some(DecodeError::Value(0x0c)));
    assert_eq!(lifetime("020fa0"), None);
}

#[test]
fn trailing_octets_and_truncated_packets_are_refused() {
    let wire = packet(6, &format!("{NAME} 1502 0102 {DIGEST_INFO} {DIGEST_VALUE}"));
    for end in 0..wire.len() {
        assert!(DataRef::decode(&wire[..end]).is_err(), "{end} octets");
    }
    assert_eq!(
        DataRef::decode(&[&wire[..], &[0]].concat()).err(),
        Some(DecodeError::Trailing)
    );
    let frame = [&wire[..], &[0; 20]].concat();
    assert_eq!(
        LpPacket::decode(&frame, true).expect("padded").fragment,
        Some(&wire[..])
    );
    assert_eq!(
        LpPacket::decode(&frame, false).err(),
        Some(DecodeError::Trailing)
    );
    assert_eq!(
        LpPacket::decode(&[&wire[..], &[0, 1]].concat(), true).err(),
        Some(DecodeError::Trailing)
    );
    for length in ["fdffff", "feffffffff", "ffffffffffffffffff"] {
        assert!(DataRef::decode(&octets(&format!("06{length} 0703080161"))).is_err());
    }
}

#[test]
fn the_kind_of_a_packet_is_its_outermost_type() {
    assert_eq!(PacketKind::of(&packet(5, NAME)), Some(PacketKind::Interest));
    assert_eq!(PacketKind::of(&packet(6, NAME)), Some(PacketKind::Data));
    assert_eq!(PacketKind::of(&packet(0x64, "")), Some(PacketKind::Lp));
    assert_eq!(PacketKind::of(&[0x07, 0]), None);
    assert_eq!(PacketKind::of(&[]), None);
    assert_eq!(
        LpPacket::decode(&octets("0700"), false).err(),
        Some(DecodeError::WrongType(7))
    );
}
