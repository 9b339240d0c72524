//! The vectors of messages, contents and names in `docs/protocols/vectors/tcp-icn.txt`.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use std::path::Path;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time, WallClock};
use whimbrel_tcp_proxy::message::{Carried, Message, Opening, Queue, Refusal, Stock};
use whimbrel_tcp_proxy::seal::{NONCE, Sealer};
use whimbrel_tcp_proxy::segment::Flow;
use whimbrel_tcp_proxy::{Protection, Protocol, SealOptions, naming};

fn octets(hexadecimal: &str) -> Vec<u8> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let octet = |pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.map(octet).collect()
}

fn flow(v6: bool) -> Flow {
    let ends = if v6 {
        ["[2001:db8::1]:40000", "[2001:db8::2]:80"]
    } else {
        ["10.1.0.1:40000", "10.2.0.1:80"]
    };
    let [source, destination] = ends.map(|end| end.parse().unwrap());
    Flow {
        source,
        destination,
    }
}

fn opening(protocol: Protocol) -> Opening {
    Opening {
        protocol,
        label: 0x0102_0304_0506_0708,
        prefix: "/a/tcp".parse().unwrap(),
    }
}

/// A message of the file, whose segments are the octets `45`.
fn message(name: &str) -> Message {
    let packet = Bytes::from_static(&[0x45]);
    match name {
        "segment" => Message::Segment {
            opening: None,
            packet,
        },
        "opening segment" => Message::Segment {
            opening: Some(opening(Protocol::Unreliable)),
            packet,
        },
        "notify" => Message::Notify {
            opening: opening(Protocol::Basic),
            flow: flow(false),
            sequence: 1 << 32 | 5,
            number: 9,
        },
        "credit" => Message::Credit { flow: flow(false) },
        "credit v6" => Message::Credit { flow: flow(true) },
        "wake" => Message::Wake {
            opening: opening(Protocol::Unreliable),
            flow: flow(false),
            credits: 3,
        },
        "advertise" => Message::Advertise {
            opening: opening(Protocol::Reliable),
            flow: flow(false),
            queue: Queue {
                next: 7,
                window: 12,
            },
        },
        "refuse" => Message::Refuse {
            flow: flow(false),
            refusal: Refusal::Source,
        },
        "probe" => Message::Probe,
        "renew" => Message::Renew { flow: flow(false) },
        _ => panic!("no message {name}"),
    }
}

fn content(name: &str) -> Vec<u8> {
    let queue = Queue {
        next: 7,
        window: 12,
    };
    match name {
        "numbered" => Carried::encode(Stock::Queue(queue), &[[0x45]]),
        "answer" => Carried::encode(Stock::Interests(0), &[] as &[[u8; 1]]),
        "packed" => Carried::encode(
            Stock::Interests(3),
            &[segment(1, b"one"), segment(4, b"two")],
        ),
        _ => Carried::encode(Stock::Interests(3), &[[0x45]]),
    }
}

/// A segment from 10.1.0.1:40000 to 10.2.0.1:80, with TTL 64, ACK 7 and window 500.
fn segment(sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 1, 0, 1], [10, 2, 0, 1], 64)
        .tcp(40_000, 80, sequence, 500)
        .ack(7)
        .write(&mut packet, payload)
        .unwrap();
    packet
}

fn sealer(protection: Protection) -> Sealer {
    let options = SealOptions {
        protection,
        secret: vec![7; 32],
        ..SealOptions::unprotected([1, 2, 3, 4, 5, 6, 7, 8], WallClock::new(1_700_000_000_000))
    };
    Sealer::new(options, &mut SeededRng::new(1))
}

/// Nonce and sealed message: `01 02 03` for the prefix /a/tcp, as the first of its session.
fn sealed(name: &str) -> Vec<u8> {
    let protection = match name {
        "none" => Protection::None,
        "authenticated" => Protection::Authenticated,
        _ => Protection::Encrypted,
    };
    let prefix = opening(Protocol::Basic).prefix;
    let mut message = vec![1, 2, 3];
    let nonce = sealer(protection).seal(Time::ZERO, prefix.as_ref().value(), &mut message);
    [&nonce[..], &message].concat()
}

fn name(which: &str) -> String {
    let prefix = opening(Protocol::Basic).prefix;
    let clear = sealer(Protection::None);
    let connection = naming::connection(&prefix, &flow(false), 7, &clear);
    match which {
        "message" => naming::message(&prefix, &[1, 2, 3], &[9; NONCE]),
        "basic" => naming::noted(&connection, 1 << 32 | 5, 9),
        "reliable" => naming::numbered(&connection, 7),
        _ => naming::connection(&prefix, &flow(false), 7, &sealer(Protection::Encrypted)),
    }
    .to_string()
}

#[test]
fn the_vectors_of_the_document_are_written_and_read() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/vectors/tcp-icn.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (what, expected) = line.split_once(" | ").unwrap();
        let (kind, which) = what.split_once(' ').unwrap();
        match kind {
            "message" => {
                let expected = octets(expected);
                assert_eq!(message(which).encode(), expected, "{line}");
                assert_eq!(Message::decode(&expected.into()).unwrap(), message(which));
            }
            "content" => {
                assert_eq!(content(which), octets(expected), "{line}");
                assert!(Carried::decode(&octets(expected).into()).is_ok());
            }
            "sealed" => assert_eq!(sealed(which), octets(expected), "{line}"),
            "name" => assert_eq!(name(which), expected, "{line}"),
            _ => panic!("unknown: {line}"),
        }
        lines += 1;
    }
    assert_eq!(lines, 21);
}

/// `cargo test -p whimbrel-tcp-proxy --test all vectors:: -- --ignored --nocapture` prints them.
#[test]
#[ignore = "prints the vectors, for whoever changes the formats"]
fn print() {
    let hexadecimal =
        |octets: &[u8]| -> String { octets.iter().map(|octet| format!("{octet:02x}")).collect() };
    for which in [
        "segment",
        "opening segment",
        "notify",
        "credit",
        "credit v6",
        "wake",
        "advertise",
        "refuse",
    ] {
        println!(
            "message {which} | {}",
            hexadecimal(&message(which).encode())
        );
    }
    for which in ["segments", "numbered", "packed"] {
        println!("content {which} | {}", hexadecimal(&content(which)));
    }
    for which in ["none", "authenticated", "encrypted"] {
        println!("sealed {which} | {}", hexadecimal(&sealed(which)));
    }
    for which in ["message", "basic", "reliable", "encrypted"] {
        println!("name {which} | {}", name(which));
    }
}
