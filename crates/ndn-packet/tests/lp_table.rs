//! Properties of every row of the table of header fields. Only the two fields that depend on each
//! other are named here, so that a new row is tested without a new line.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use whimbrel_ndn_packet::lp::{self, FIELDS, Field, FieldInfo, ValueKind};
use whimbrel_ndn_packet::{LpPacket, tlv, types};

const NAME: &[u8] = b"\x07\x03\x08\x01a";
const INTEREST: &[u8] = b"\x05\x05\x07\x03\x08\x01a";

/// The encoded field, with a value derived from `seed`.
fn encoded(row: &FieldInfo, seed: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let octets = |count: usize| {
        (0..count)
            .map(|index| (seed >> (index % 8)) as u8)
            .collect()
    };
    match row.value {
        ValueKind::Integer => tlv::write_integer_element(&mut out, row.typ, seed),
        ValueKind::Number64 => tlv::write_element(&mut out, row.typ, &seed.to_be_bytes()),
        ValueKind::Numbers64 => {
            for number in 0..=seed % 3 {
                let number = seed.wrapping_sub(number);
                tlv::write_element(&mut out, row.typ, &number.to_be_bytes());
            }
        }
        ValueKind::Octets { least, most } => {
            let count = least + seed as usize % (most - least + 1);
            let value: Vec<u8> = octets(count);
            tlv::write_element(&mut out, row.typ, &value);
        }
        ValueKind::Packet => {
            let value: Vec<u8> = octets(seed as usize % 300);
            let mut data = NAME.to_vec();
            tlv::write_element(&mut data, types::CONTENT, &value);
            tlv::write_nested(&mut out, row.typ, |out| {
                tlv::write_element(out, types::DATA, &data);
            });
        }
        ValueKind::Flag => tlv::write_header(&mut out, row.typ, 0),
        ValueKind::Nested { inner, required } => tlv::write_nested(&mut out, row.typ, |out| {
            // The number 0 is encoded by omitting the element.
            if required || seed != 0 {
                tlv::write_integer_element(out, inner.0, seed);
            }
        }),
    }
    out
}

/// The field with an invalid value; `None` if every value is valid.
fn malformed(row: &FieldInfo) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match row.value {
        ValueKind::Integer => tlv::write_element(&mut out, row.typ, &[1; 3]),
        ValueKind::Number64 => tlv::write_element(&mut out, row.typ, &[1; 7]),
        ValueKind::Numbers64 => tlv::write_element(&mut out, row.typ, &[1; 9]),
        ValueKind::Octets { most, .. } => tlv::write_element(&mut out, row.typ, &vec![1; most + 1]),
        ValueKind::Packet => return None,
        ValueKind::Flag => tlv::write_element(&mut out, row.typ, &[1]),
        ValueKind::Nested { inner, .. } => tlv::write_nested(&mut out, row.typ, |out| {
            tlv::write_element(out, inner.0, &[1; 3]);
        }),
    }
    Some(out)
}

fn frame(fields: &[u8], payload: Option<&[u8]>) -> Vec<u8> {
    let mut frame = Vec::new();
    tlv::write_nested(&mut frame, types::LP_PACKET, |out| {
        out.extend_from_slice(fields);
        if let Some(payload) = payload {
            tlv::write_element(out, types::LP_FRAGMENT, payload);
        }
    });
    frame
}

proptest! {
    #[test]
    fn any_fields_are_read_and_written_as_they_lie(
        chosen in prop::collection::vec(
            prop::option::of(prop_oneof![0..4u64, 0..70_000u64, any::<u64>()]),
            FIELDS.len(),
        ),
        place in prop::option::of((0..400u64, 1..=400u64)),
        payload in any::<bool>(),
    ) {
        let mut fields = Vec::new();
        let mut names = Vec::new();
        for (row, seed) in FIELDS.iter().zip(&chosen) {
            // An index is below the count.
            let seed = match row.field {
                Field::FragIndex => place.map(|(index, _)| index),
                Field::FragCount => place.map(|(index, more)| index + more),
                _ => *seed,
            };
            if let Some(seed) = seed {
                fields.extend(encoded(row, seed));
                names.push(row.name);
            }
        }
        let frame = frame(&fields, payload.then_some(INTEREST));
        let lp = LpPacket::decode(&frame, false).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(lp.skipped.is_empty());
        prop_assert_eq!(lp.place(), place.map_or((0, 1), |(index, more)| (index, index + more)));
        prop_assert_eq!(lp::fields_len(&lp.link, &lp.header), fields.len());
        let (mut again, header) = (Vec::new(), lp.to_header());
        lp::encode(&mut again, &lp.link, &header, lp.fragment);
        prop_assert_eq!(&again, &frame);
        prop_assert_eq!(header.as_ref(), lp.header);
        prop_assert_eq!(lp.link.is_empty() && lp.header.is_empty(), names.is_empty());
        let text = lp.to_string();
        let shown = |name: &&str| text.split([' ', '=']).any(|word| word == *name);
        prop_assert!(names.iter().all(shown), "{} in {}", names.join(" "), text);
    }
}

#[test]
fn an_invalid_value_is_skipped_or_makes_the_frame_useless() {
    let mut left_out = Vec::new();
    for row in FIELDS {
        let Some(field) = malformed(row) else {
            continue;
        };
        let frame = frame(&field, Some(INTEREST));
        let decoded = LpPacket::decode(&frame, false);
        if row.is_skippable() {
            let lp = decoded.unwrap();
            assert!(lp.skipped.contains(row.field), "{}", row.name);
            assert!(lp.link.is_empty() && lp.header.is_empty(), "{}", row.name);
            assert_eq!(lp.fragment, Some(INTEREST));
            left_out.push(row.name);
        } else {
            assert!(decoded.is_err(), "{}", row.name);
        }
    }
    for expected in ["Ack", "TxSequence"] {
        assert!(left_out.contains(&expected), "{left_out:?}");
    }
}

#[test]
fn only_repeatable_fields_may_be_repeated() {
    for row in FIELDS {
        let once = encoded(row, 1);
        let twice = LpPacket::decode(&frame(&once.repeat(2), None), false).is_ok();
        assert_eq!(twice, row.repeats(), "{}", row.name);
    }
}

#[test]
fn unknown_fields_that_may_be_ignored_change_nothing() {
    let is_known = |typ: u64| FIELDS.iter().any(|row| row.typ == typ);
    for typ in (1..2000).filter(|typ| !is_known(*typ) && *typ != types::LP_FRAGMENT) {
        let mut unknown = Vec::new();
        tlv::write_element(&mut unknown, typ, b"odd");
        let all = FIELDS.iter().filter(|row| {
            let place = [Field::FragIndex, Field::FragCount];
            !place.contains(&row.field)
        });
        let mut fields: Vec<(u64, Vec<u8>)> = all.map(|row| (row.typ, encoded(row, 7))).collect();
        let known: Vec<u8> = fields.iter().flat_map(|(_, field)| field.clone()).collect();
        fields.push((typ, unknown));
        fields.sort();
        let octets: Vec<u8> = fields.into_iter().flat_map(|(_, field)| field).collect();
        let (with, without) = (frame(&octets, None), frame(&known, None));
        let without = LpPacket::decode(&without, false).unwrap();
        match LpPacket::decode(&with, false) {
            Ok(with) => {
                assert!(lp::is_ignorable(typ), "{typ}");
                assert_eq!((with.link, with.header), (without.link, without.header));
                assert_eq!(with.fields().filter(|(found, _)| *found == typ).count(), 1);
            }
            Err(_) => assert!(!lp::is_ignorable(typ), "{typ}"),
        }
    }
}

fn capture_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/capture")
}

/// `FragIndex` is `ndn.lp.frag_index` in a filter.
fn filter(name: &str) -> String {
    let mut filter = String::from("ndn.lp");
    for character in name.chars() {
        let separator = if filter == "ndn.lp" { '.' } else { '_' };
        if character.is_ascii_uppercase() {
            filter.push(separator);
        }
        filter.push(character.to_ascii_lowercase());
    }
    filter
}

/// The rows as `ndn.lua` has them.
fn lua_rows() -> String {
    let line = |typ: u64, name: &str, kind: &str| {
        let filter = filter(name);
        format!("  {{ 0x{typ:04x}, \"{name}\", \"{filter}\", \"{kind}\" }},\n")
    };
    let rows = FIELDS.iter().map(|row| match row.value {
        ValueKind::Integer | ValueKind::Number64 | ValueKind::Numbers64 => {
            line(row.typ, row.name, "number")
        }
        ValueKind::Octets { .. } => line(row.typ, row.name, "octets"),
        ValueKind::Flag => line(row.typ, row.name, "flag"),
        ValueKind::Packet => line(row.typ, row.name, "container"),
        ValueKind::Nested { inner, .. } => {
            line(row.typ, row.name, "container") + &line(inner.0, inner.1, "number")
        }
    });
    format!("local LINK_FIELDS = {{\n{}}}\n", rows.collect::<String>())
}

#[test]
fn the_dissector_has_the_same_rows() {
    let path = capture_folder().join("ndn.lua");
    let script = std::fs::read_to_string(&path).unwrap();
    let begin = "-- begin of the rows of crates/ndn-packet/src/lp/table.rs\n";
    let (before, rest) = script.split_once(begin).unwrap();
    let (rows, after) = rest.split_once("-- end of the rows").unwrap();
    if std::env::var_os("WHIMBREL_WRITE").is_some() {
        let script = format!("{before}{begin}{}-- end of the rows{after}", lua_rows());
        std::fs::write(&path, script).unwrap();
        return;
    }
    assert_eq!(rows, lua_rows(), "WHIMBREL_WRITE=1 writes them");
}

/// A capture of Ethernet frames, in the format of libpcap.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        out.extend(word.to_le_bytes());
    }
    for frame in frames {
        let ethernet = [&[0; 12][..], &[0x86, 0x24], frame].concat();
        let len = ethernet.len() as u32;
        for word in [0, 0, len, len] {
            out.extend(word.to_le_bytes());
        }
        out.extend(ethernet);
    }
    out
}

#[test]
fn tshark_names_every_field() {
    let home = tempfile::tempdir().unwrap();
    let capture = home.path().join("capture");
    let rows: Vec<&FieldInfo> = FIELDS.iter().collect();
    let frames: Vec<Vec<u8>> = rows
        .iter()
        // A count of 1, so that the fragment is a packet; an index of 0 goes with it.
        .map(|row| {
            frame(
                &encoded(row, u64::from(row.field != Field::FragIndex)),
                Some(INTEREST),
            )
        })
        .collect();
    std::fs::write(&capture, pcap(&frames)).unwrap();
    let mut tshark = Command::new("tshark");
    tshark.env("HOME", home.path()).arg("-r").arg(&capture);
    let script = capture_folder().join("ndn.lua");
    tshark
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()));
    tshark.args([
        "-T",
        "fields",
        "-E",
        "separator=|",
        "-e",
        "ndn.malformed",
        "-e",
        "ndn.unknown",
    ]);
    for row in &rows {
        tshark.arg("-e").arg(filter(row.name));
    }
    let output = match tshark.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let required = std::env::var_os("WHIMBREL_INTEROP").is_some();
            assert!(!required, "tshark is not installed");
            eprintln!("SKIPPED: there is no tshark; scripts/setup --check installs it");
            return;
        }
        output => output.unwrap(),
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), rows.len(), "{text}{errors}");
    for (number, (line, row)) in lines.iter().zip(&rows).enumerate() {
        let columns: Vec<&str> = line.split('|').collect();
        assert_eq!(columns[..2], ["", ""], "{}: {line}\n{errors}", row.name);
        let shown: Vec<usize> = (0..rows.len())
            .filter(|at| !columns[at + 2].is_empty())
            .collect();
        assert_eq!(shown, [number], "{}: {line}", row.name);
    }
}
