//! `docs/protocols/vectors/stream.txt` holds what `docs/protocols/stream.md` says, byte for byte.

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_stream::packet::{PacketBody, StreamSegment, StreamSide};
use whimbrel_stream::{CutOff, StreamPacket};

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/protocols/vectors/stream.txt"
);

fn vectors() -> Vec<(&'static str, StreamPacket)> {
    let packet = |body| StreamPacket {
        stream: 0x0102_0304_0506_0708,
        body,
    };
    let first = StreamSegment {
        limit: 65_536,
        data: Bytes::from_static(b"hello"),
        ..StreamSegment::default()
    };
    let gap = StreamSegment {
        received: 5,
        ranges: vec![10..20, 30..31],
        limit: 2_097_152,
        asks: true,
        position: 7,
        ..StreamSegment::default()
    };
    let last = StreamSegment {
        received: 5,
        has_all: true,
        limit: 65_541,
        position: 7,
        ends: true,
        ..StreamSegment::default()
    };
    vec![
        (
            "first",
            packet(PacketBody::FromOpener([0; 16], first.clone())),
        ),
        ("token", packet(PacketBody::Token([0xab; 16]))),
        (
            "first-again",
            packet(PacketBody::FromOpener([0xab; 16], first)),
        ),
        ("gap", packet(PacketBody::FromAcceptor(gap))),
        ("last", packet(PacketBody::FromAcceptor(last))),
        (
            "cut-by-opener",
            packet(PacketBody::Cut(StreamSide::Opener, CutOff::Ended)),
        ),
        (
            "cut-by-acceptor",
            packet(PacketBody::Cut(StreamSide::Acceptor, CutOff::NotPermitted)),
        ),
    ]
}

/// `WHIMBREL_WRITE_VECTORS=1 cargo test -p whimbrel-stream --test vectors` writes the file anew.
#[test]
fn messages_are_what_the_file_says() {
    let vectors = vectors();
    let lines = vectors
        .iter()
        .map(|(name, it)| format!("{name} {}\n", hex::encode(it.encode())));
    let text: String = lines.collect();
    let text = format!(
        "# Messages of docs/protocols/stream.md: a line `name hexadecimal-digits`.\n{text}"
    );
    if std::env::var_os("WHIMBREL_WRITE_VECTORS").is_some() {
        std::fs::write(FILE, &text).expect("the file");
    }
    assert_eq!(std::fs::read_to_string(FILE).expect("the file"), text);
    for (name, packet) in vectors {
        assert_eq!(StreamPacket::decode(&packet.encode()), Ok(packet), "{name}");
    }
}

proptest! {
    #[test]
    fn bytes_are_a_message_or_a_fault(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..6) {
        if let [version, second, ..] = &mut bytes[..] {
            (*version, *second) = (1, kind);
        }
        if let Ok(packet) = StreamPacket::decode(&bytes.into()) {
            prop_assert_eq!(StreamPacket::decode(&packet.encode()), Ok(packet));
        }
    }
}
