//! The vectors of path tags in `docs/protocols/vectors/ptp.txt`.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;

use bytes::Bytes;
use whimbrel_ndn_packet::lp::{self, Label, LinkFields, Tag};
use whimbrel_ndn_packet::{Interest, LpHeader, LpPacket};

fn octets(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let octet = |pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(octet).collect()
}

/// The header and packet of a frame.
fn packet(name: &str) -> (LpHeader, Option<Vec<u8>>) {
    let tag = |text| LpHeader {
        path_tag: Some(Bytes::from(octets(text))),
        ..LpHeader::default()
    };
    let mut interest = Interest::new("/a".parse().unwrap());
    interest.nonce = Some([0, 0, 0, 1]);
    let interest = Some(interest.encode());
    let mut flags = LpHeader::default();
    match name {
        "follow" => (tag("850000012a40ff"), interest),
        "ask" => {
            flags.path_discovery = true;
            (flags, interest)
        }
        "recorded" => (tag("85000001"), None),
        "cached" => {
            flags.intermediate = true;
            (flags, None)
        }
        _ => panic!("no frame {name}"),
    }
}

#[test]
fn the_vectors_of_the_document_are_written_and_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/vectors/ptp.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let (mut tags, mut frames) = (0, 0);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (what, expected) = line.split_once(" | ").unwrap();
        let expected = octets(expected);
        if let Some(labels) = what.strip_prefix("tag ") {
            let number = |label| u64::from_str_radix(label, 16).unwrap();
            let numbers: Vec<u64> = labels.split(' ').map(number).collect();
            let on = |tag: Bytes, number: &u64| {
                Tag::new(&tag).push(Label::new(*number).unwrap()).unwrap()
            };
            assert_eq!(
                numbers.iter().rev().fold(Bytes::new(), on),
                expected,
                "{line}"
            );
            let mut rest = Tag::new(&expected);
            for number in numbers {
                let (label, below) = rest.pop().unwrap();
                assert_eq!(label.number(), number, "{line}");
                rest = below;
            }
            assert!(rest.is_empty(), "{line}");
            tags += 1;
        } else {
            let (header, fragment) = packet(what.strip_prefix("frame ").unwrap());
            let mut frame = Vec::new();
            lp::encode(
                &mut frame,
                &LinkFields::default(),
                &header,
                fragment.as_deref(),
            );
            assert_eq!(frame, expected, "{line}");
            let read = LpPacket::decode(&expected, false).unwrap();
            assert_eq!(
                (read.to_header(), read.fragment),
                (header, fragment.as_deref())
            );
            frames += 1;
        }
    }
    assert_eq!((tags, frames), (9, 4));
}
