//! `docs/protocols/vectors/routing.txt` holds what `docs/protocols/routing.md` says, byte for byte.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::path::PathBuf;

use whimbrel_core::{Guid, KeyPair};
use whimbrel_routing::{Announcement, Cost, Distances, Edition, Link, Message, State};

fn messages() -> Vec<(&'static str, &'static str, Message)> {
    let [near, far] = [0xa1, 0xb2].map(|it| Guid([it; 32]));
    let links = vec![
        Link {
            to: near,
            cost: Cost(31_250),
            usual: Cost(32_000),
        },
        Link {
            to: far,
            cost: Cost::NEVER,
            usual: Cost(500_000),
        },
    ];
    let keys = KeyPair::from_secret(&[7; 32]);
    let announcement = Announcement::sign(&keys, 5, Duration::from_secs(600), links);
    let edition = announcement.edition();
    let distances = |sequence, base, changed| {
        Message::Distances(Distances {
            sequence,
            base,
            changed,
        })
    };
    vec![
        (
            "announce",
            "Announce: two links of the key of 32 octets 07, one of them down; it counts for a minute still",
            Message::Announce {
                left: Duration::from_secs(60),
                announcement,
            },
        ),
        (
            "list",
            "List: a router at sequence 9, and that of the announcement above",
            Message::List(vec![
                (
                    Guid([0x11; 32]),
                    Edition {
                        sequence: 9,
                        tag: 0x0102_0304_0506_0708,
                    },
                ),
                (keys.guid(), edition),
            ]),
        ),
        (
            "distances",
            "Distances: all of them, the first ones",
            distances(1, 0, vec![(keys.guid(), Cost(0)), (near, Cost(31_250))]),
        ),
        (
            "distances-changed",
            "Distances: a change, one destination is out of reach",
            distances(2, 1, vec![(near, Cost::NEVER)]),
        ),
        (
            "state",
            "State: the second distances have come",
            Message::State(State {
                applied: 2,
                digest: 0x1122_3344_5566_7788,
            }),
        ),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len() / 2).map(|it| digit(2 * it)).collect()
}

/// `WHIMBREL_WRITE_VECTORS=1` writes the file anew.
#[test]
fn messages_are_what_the_file_says() {
    let file =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocols/vectors/routing.txt");
    let line = |(name, _, message): &(&str, &str, Message)| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        format!("{name} {}", hex(&bytes))
    };
    if std::env::var_os("WHIMBREL_WRITE_VECTORS").is_some() {
        let mut text = String::from(
            "# Messages of docs/protocols/routing.md: a line `name hexadecimal-digits`, its meaning above it.\n",
        );
        for message in &messages() {
            text += &format!("\n# {}\n{}\n", message.1, line(message));
        }
        std::fs::write(&file, text).unwrap();
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let is_vector = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let read: Vec<&str> = text.lines().filter(is_vector).collect();
    let written: Vec<String> = messages().iter().map(line).collect();
    assert_eq!(read, written);
    for (line, (_, _, message)) in read.iter().zip(messages()) {
        let (_, digits) = line.split_once(' ').unwrap();
        let decoded = Message::decode(&unhex(digits));
        if let Ok(Message::Announce { announcement, .. }) = &decoded {
            assert!(announcement.is_genuine());
        }
        assert_eq!(decoded, Ok(message));
    }
}
