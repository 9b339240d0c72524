//! Packets written by hand from the sentences of the specifications: to be accepted, and to be
//! refused.

use std::time::Duration;

use whimbrel_ndn_packet::lp::{self, Field, LinkFields, Numbers};
use whimbrel_ndn_packet::tlv::{self, DecodeError};
use whimbrel_ndn_packet::{
    Component, ContentType, DataRef, InterestRef, LpHeader, LpPacket, NackReason, Name, NameRef,
    PacketKind, ParseNameError,
};

fn octets(digits: &str) -> Vec<u8> {
    hex::decode(digits.replace(' ', "")).expect("hexadecimal")
}

fn name(uri: &str) -> Name {
    uri.parse().unwrap_or_else(|error| panic!("{uri}: {error}"))
}

/// A packet of this type around these elements.
fn packet(typ: u64, elements: &str) -> Vec<u8> {
    let mut out = Vec::new();
    tlv::write_element(&mut out, typ, &octets(elements));
    out
}

/// `/a`
const NAME: &str = "0703 080161 ";
const DIGEST_INFO: &str = "1603 1b0100 ";
const DIGEST_VALUE: &str =
    "1720 0000000000000000 0000000000000000 0000000000000000 0000000000000000 ";

fn interest_error(elements: &str) -> Option<DecodeError> {
    InterestRef::decode(&packet(5, elements)).err()
}

fn data_error(elements: &str) -> Option<DecodeError> {
    DataRef::decode(&packet(6, elements)).err()
}

fn lp_error(fields: &str) -> Option<DecodeError> {
    LpPacket::decode(&packet(0x64, fields), false).err()
}

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
    // In a packet: the length of the name, its type, and the type of a component.
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
    // The greatest possible type, even and so not critical.
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
        // After CanBePrefix, whose own type 0x21 is critical when it is repeated.
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
    // A delegation with a preference, as before version 0.3.
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
fn meta_info_says_what_the_content_is() {
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
    // FreshnessPeriod after FinalBlockId: out of order, and odd.
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

#[test]
fn nothing_follows_a_packet_and_nothing_is_cut_off() {
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

#[test]
fn components_have_types_from_1_to_65535_and_digests_have_32_octets() {
    let decode = |digits: &str| NameRef::decode(&octets(digits)).err();
    assert_eq!(decode("0700"), None);
    assert_eq!(decode("0705 fdffff 0161"), None);
    assert_eq!(
        decode("0707 fe00010000 0161"),
        Some(DecodeError::Value(65536))
    );
    assert_eq!(decode("0702 0000"), Some(DecodeError::VarNumber));
    for typ in ["01", "02"] {
        assert_eq!(decode(&format!("0722 {typ}20 {}", "00".repeat(32))), None);
        assert!(matches!(
            decode(&format!("0721 {typ}1f {}", "00".repeat(31))),
            Some(DecodeError::Value(1 | 2))
        ));
    }
    assert_eq!(decode("0703 080261"), Some(DecodeError::Truncated(8)));
    assert_eq!(decode("0803 080161"), Some(DecodeError::WrongType(8)));
}

#[test]
fn the_canonical_order_is_by_type_then_length_then_octets_and_prefixes_come_first() {
    let digest = format!("/sha256digest={}", "ff".repeat(32));
    let ordered = [
        "/", &digest, "/...", "/a", "/a/b", "/a/b/c", "/a/c", "/b", "/c", "/aa", "/ab", "/aaa",
        "/32=a", "/seg=0", "/seg=255", "/seg=256", "/v=0",
    ];
    let names: Vec<Name> = ordered.iter().map(|uri| name(uri)).collect();
    for (at, pair) in names.windows(2).enumerate() {
        assert!(
            pair[0] < pair[1],
            "{} is before {}",
            ordered[at],
            ordered[at + 1]
        );
    }
}

#[test]
fn uris_are_read_in_every_form() {
    for (uri, canonical) in [
        ("/", "/"),
        ("", "/"),
        ("ndn:", "/"),
        ("ndn:/", "/"),
        ("ndn:///", "/"),
        ("ndn://host", "/"),
        ("ndn://host/a", "/a"),
        ("NDN:/a", "/a"),
        ("ndn:a/b", "/a/b"),
        ("a/b", "/a/b"),
        ("/a/b/", "/a/b"),
        ("/8=a", "/a"),
        ("/%61", "/a"),
        ("/a%2fb", "/a%2Fb"),
        ("/a+b~c", "/a%2Bb~c"),
        ("/...", "/..."),
        ("/....", "/...."),
        ("/%2E%2E%2E", "/..."),
        ("/.a", "/.a"),
        ("/50=%07", "/seg=7"),
        ("/50=%00%07", "/50=%00%07"),
        ("/54=...", "/54=..."),
        ("/é", "/%C3%A9"),
        ("/32=metadata", "/32=metadata"),
    ] {
        assert_eq!(name(uri).to_string(), canonical, "{uri}");
        assert_eq!(name(canonical), name(uri), "{uri}");
    }
}

#[test]
fn a_uri_that_is_none_says_why() {
    let error = |uri: &str| uri.parse::<Name>().expect_err(uri);
    assert!(matches!(error("//a"), ParseNameError::Empty(_)));
    assert!(matches!(error("/a//b"), ParseNameError::Empty(_)));
    assert!(matches!(error("/."), ParseNameError::Empty(_)));
    assert!(matches!(error("/a/.."), ParseNameError::Empty(_)));
    assert!(
        matches!(error("/%2E."), ParseNameError::Empty(_)),
        "an escaped dot is a dot"
    );
    assert!(matches!(error("/8="), ParseNameError::Empty(_)));
    assert!(matches!(error("/%"), ParseNameError::Escape(_)));
    assert!(matches!(error("/%4"), ParseNameError::Escape(_)));
    assert!(matches!(error("/%4g"), ParseNameError::Escape(_)));
    assert!(matches!(error("/%+4"), ParseNameError::Escape(_)));
    assert!(matches!(error("/key=value"), ParseNameError::Type(_)));
    assert!(matches!(error("/0=a"), ParseNameError::Type(_)));
    assert!(matches!(error("/65536=a"), ParseNameError::Type(_)));
    assert!(matches!(error("/+8=a"), ParseNameError::Type(_)));
    assert!(matches!(error("/seg="), ParseNameError::Number(_)));
    assert!(matches!(error("/seg=-1"), ParseNameError::Number(_)));
    assert!(matches!(error("/seg=+1"), ParseNameError::Number(_)));
    assert!(matches!(
        error("/v=18446744073709551616"),
        ParseNameError::Number(_)
    ));
    assert!(matches!(
        error("/sha256digest=00"),
        ParseNameError::Digest(_)
    ));
    assert!(matches!(error("/1=a"), ParseNameError::Digest(_)));
    assert!(matches!(
        error(&format!("/params-sha256={}", "g".repeat(64))),
        ParseNameError::Digest(_)
    ));
}

#[test]
fn conventions_are_found_in_names() {
    let object = name("/video");
    let segment = object.with_version(7).with_segment(3);
    assert_eq!(segment.to_string(), "/video/v=7/seg=3");
    assert_eq!(
        segment.as_ref().numbered().to_string(),
        "/video/54=%07/50=%03"
    );
    assert_eq!(
        (segment.as_ref().version(), segment.as_ref().segment()),
        (Some(7), Some(3))
    );
    assert_eq!(
        segment.as_ref().without_segment().to_name(),
        object.with_version(7)
    );
    assert_eq!(object.as_ref().version(), None);
    assert_eq!(object.with_segment(0).as_ref().version(), None);
    let metadata = object.with_metadata();
    assert_eq!(metadata.to_string(), "/video/32=metadata");
    for name in [
        &metadata,
        &metadata.with_version(9),
        &metadata.with_version(9).with_segment(0),
    ] {
        assert_eq!(
            name.as_ref().metadata_of().map(|object| object.to_name()),
            Some(object.clone()),
            "{name}"
        );
    }
    assert_eq!(
        segment
            .as_ref()
            .metadata_of()
            .map(|object| object.to_name()),
        None
    );
    assert_eq!(
        object
            .child_generic(b"metadata")
            .as_ref()
            .metadata_of()
            .map(|object| object.to_name()),
        None
    );
    let typed = object
        .with_timestamp(1)
        .with_sequence_num(2)
        .with_byte_offset(3);
    assert_eq!(typed.to_string(), "/video/t=1/seq=2/off=3");
    let marked = name("/%FD%00%00%01%60qJQ%9B/%00%05");
    assert_eq!(
        marked
            .as_ref()
            .get(0)
            .and_then(|version| version.marked_version()),
        Some(0x0160_714a_519b)
    );
    assert_eq!(
        marked
            .as_ref()
            .get(1)
            .and_then(|segment| segment.marked_segment()),
        Some(5)
    );
    assert_eq!(Component::version(5).as_ref().marked_version(), None);
}

#[test]
fn link_header_fields_come_once_in_ascending_order_and_the_fragment_last() {
    assert_eq!(lp_error(""), None, "IDLE");
    assert_eq!(lp_error("5000"), None, "an empty fragment is none");
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
fn fields_are_written_in_the_order_that_receivers_ask_for() {
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
