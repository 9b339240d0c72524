//! Names: components, order, URIs and conventions.

use whimbrel_ndn_packet::tlv::DecodeError;
use whimbrel_ndn_packet::{Component, Name, NameRef, ParseNameError};

use super::wire::{name, octets};

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
fn errors_of_invalid_uris_give_the_reason() {
    let error = |uri: &str| uri.parse::<Name>().expect_err(uri);
    assert!(matches!(error("//"), ParseNameError::Empty(_)));
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
