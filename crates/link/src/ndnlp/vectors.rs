//! The frames of `docs/protocols/vectors/belrp.txt` decode to the values in that file, and encode
//! to the same octets.

use whimbrel_ndn_packet::LpPacket;
use whimbrel_ndn_packet::lp::{self, LinkFields};

use super::adaptive::Hello;
use super::adaptive::wire::{self, AdaptiveFrame, Payload, Report};
use super::compact::{ADAPTIVE, Kind, PAPER, PROFILE_MASK};
use super::paper::wire::{self as paper_wire, PaperFrame};

fn write_report(out: &mut Vec<u8>, report: &Report<'_>) {
    let runs: Vec<u64> = report.runs().map(|(run, _)| run).collect();
    wire::write_report(out, report.top, report.waited, &runs);
}

fn write_adaptive(frame: &AdaptiveFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    match frame {
        AdaptiveFrame::Control { ask, report } => {
            wire::write_control_start(&mut out, *ask, report.is_some());
            report
                .iter()
                .for_each(|report| write_report(&mut out, report));
        }
        AdaptiveFrame::Packet {
            number,
            resent,
            report,
            payload,
        } => {
            let kind = if let Payload::Value(kind, _) = payload {
                *kind
            } else {
                Kind::Other
            };
            wire::write_packet_start(&mut out, kind, *number, *resent, report.is_some());
            report
                .iter()
                .for_each(|report| write_report(&mut out, report));
            match payload {
                Payload::Value(_, bytes) => out.extend_from_slice(bytes),
                Payload::Whole(bytes) => out.extend([&[0], *bytes].concat()),
                Payload::Fragment {
                    index,
                    count,
                    bytes,
                } => out.extend([&[*count, *index], *bytes].concat()),
            }
        }
    }
    out
}

fn write_paper(frame: &PaperFrame<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let acks: Vec<u32> = frame.acks().collect();
    let mut scratch = Vec::new();
    match (frame.numbers, frame.packet(&mut scratch)) {
        (Some(numbers), Some(packet)) => paper_wire::encode(&mut out, numbers, &acks, packet, 0),
        _ => paper_wire::encode_acks(&mut out, &acks),
    }
    out
}

/// Returns the values of the frame, and its octets encoded again.
fn read(frame: &[u8]) -> Option<(String, Vec<u8>)> {
    match frame.first()? & PROFILE_MASK {
        ADAPTIVE => {
            AdaptiveFrame::decode(frame).map(|read| (format!("{read:?}"), write_adaptive(&read)))
        }
        PAPER => PaperFrame::decode(frame).map(|read| (format!("{read:?}"), write_paper(&read))),
        _ => {
            // All fields are decoded, as on a link that uses them.
            let read = LpPacket::decode(frame, false).ok()?;
            if !read.skipped.is_empty() {
                return None;
            }
            let link = &read.link;
            let hello = link.adaptive_hello.and_then(Hello::decode);
            let acks: Vec<u64> = link.acks.iter().collect();
            let (index, count) = read.place();
            let mut means = format!(
                "Sequence {:?}, fragment {index} of {count}, Acks {acks:?}, TxSequence {:?}, {hello:?}, {} octets",
                link.sequence,
                link.tx_sequence,
                read.fragment.map_or(0, <[u8]>::len)
            );
            for (name, value) in [
                ("PathProbe", link.path_probe),
                ("PathAnswer", link.path_answer),
            ] {
                means += &value.map_or(String::new(), |value| {
                    format!(", {name} {}", hex::encode(value))
                });
            }
            let written = hello.map(|hello| hello.encode());
            let adaptive_hello = written.as_ref().map(|written| &written[..]);
            let link = LinkFields {
                adaptive_hello,
                ..*link
            };
            let mut out = Vec::new();
            lp::encode(&mut out, &link, &read.header, read.fragment);
            Some((means, out))
        }
    }
}

#[test]
fn every_vector_decodes_to_its_values_and_encodes_to_itself() {
    let text = include_str!("../../../../docs/protocols/vectors/belrp.txt");
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    assert!(lines.len() >= 3 * 18 && lines.len().is_multiple_of(3));
    for block in lines.chunks(3) {
        let name = block[0].strip_prefix("name: ").unwrap();
        let frame = hex::decode(block[1].strip_prefix("frame: ").unwrap()).unwrap();
        let means = block[2].strip_prefix("means: ").unwrap();
        match read(&frame) {
            Some((read, written)) => {
                assert_eq!(read, means, "{name}");
                let (same, padding) = frame.split_at(written.len());
                assert_eq!(written, same, "{name}");
                assert!(padding.iter().all(|octet| *octet == 0), "{name}");
            }
            None => assert_eq!("dropped", means, "{name}"),
        }
    }
}
