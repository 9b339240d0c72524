//! A live hop and a neighbour that says whatever the input says, in well-sealed frames of the hop's
//! own session.
//!
//! The input is a list of steps: an octet that chooses, then what the step needs. Frames are bodies
//! without session tag and CRC: those are put right, or no frame would come further than the first
//! check.
#![no_main]

use core::time::Duration;
use std::collections::BTreeSet;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_link::{Hop, HopConfig, HopEvent, PacketBudget};

const ROOM: usize = 256;
const OUR_TOKEN: u32 = 0x0bad_cafe;

/// The neighbour: it knows what any neighbour is told.
struct Neighbour {
    hop: Hop,
    budget: PacketBudget,
    now: Time,
    token: u32,
    nonce: u32,
    held: u32,
    sent: BTreeSet<u64>,
    next_tag: u64,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
    let crc = crc_fast::crc32_iscsi(&frame);
    frame.extend_from_slice(&crc.to_be_bytes());
    frame
}

impl Neighbour {
    fn new() -> Neighbour {
        let config = HopConfig {
            max_chunks_in_flight: 8,
            finished_memory: 64,
            ..HopConfig::plain(Guid([1; 32]), 1_400)
        };
        let mut neighbour = Neighbour {
            hop: Hop::new(config, SeededRng::new(1), Time::ZERO),
            budget: PacketBudget::new(ROOM),
            now: Time::ZERO,
            token: 0,
            nonce: 0,
            held: 0,
            sent: BTreeSet::new(),
            next_tag: 0,
        };
        neighbour.drain();
        neighbour.greet();
        neighbour.drain();
        assert!(neighbour.hop.is_up());
        neighbour
    }

    /// An authentic HELLO (docs/protocols/hop.md, section 1).
    fn greet(&mut self) {
        // It asks for an answer, and reports marks.
        let mut hello = vec![0x10, 3, 0, 0];
        for word in [self.token, OUR_TOKEN, 9, self.nonce, 0, 7] {
            hello.extend_from_slice(&word.to_be_bytes());
        }
        hello.extend_from_slice(&[2; 32]);
        for word in [1_400u32, 1 << 20, 1_000, 0, 8 << 16 | 64] {
            hello.extend_from_slice(&word.to_be_bytes());
        }
        self.take(&sealed(hello));
    }

    fn take(&mut self, frame: &[u8]) {
        self.hop.handle_frame(self.now, frame, &mut self.budget);
    }

    fn frame(&mut self, body: &[u8]) {
        let mut frame = body.to_vec();
        if frame.len() >= 8 && frame[0] & 15 != 0 {
            let session = self.token ^ OUR_TOKEN.rotate_left(16);
            frame[0] = 0x10 | frame[0] & 3;
            frame[4..8].copy_from_slice(&session.to_be_bytes());
        }
        self.take(&sealed(frame));
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..1_000 {
            let Some(due) = self.hop.poll_timeout().filter(|due| due.at <= end) else {
                break;
            };
            self.now = self.now.max(due.at);
            self.hop.handle_timeout(self.now, &mut self.budget);
            self.drain();
        }
        self.now = end;
    }

    fn drain(&mut self) {
        let mut buffer = Vec::new();
        for round in 0.. {
            assert!(round < 20_000, "sending never ends");
            buffer.clear();
            let Some((size, segment)) = self.hop.poll_transmit(self.now, 64, &mut buffer) else {
                break;
            };
            let first = &buffer[..segment.unwrap_or(size).min(size)];
            if first[0] & 15 == 0 {
                (self.token, self.nonce) = (u32_at(first, 8), u32_at(first, 12));
            }
        }
        while let Some(event) = self.hop.poll_event() {
            match event {
                HopEvent::Received { packets, .. } => self.held += packets,
                HopEvent::Delivered { tag } => {
                    assert!(self.sent.remove(&tag), "delivered twice, or never sent")
                }
                HopEvent::TooLarge { tag, .. } => {
                    assert!(self.sent.remove(&tag), "given back twice")
                }
                HopEvent::Up { .. }
                | HopEvent::PathMtu { .. }
                | HopEvent::SetEcn { .. }
                | HopEvent::Unresponsive
                | HopEvent::Responsive
                | HopEvent::Unwilling(_)
                | HopEvent::Impostor => {}
            }
        }
        // A chunk larger than the buffer may be in it alone: 4 MiB in packets of 64 bytes.
        assert!(self.budget.used() <= ROOM.max((4 << 20) / 64));
    }

    fn step(&mut self, kind: u8, argument: u8, body: &[u8]) {
        match kind % 8 {
            0..=3 => self.frame(body),
            4 => self.wait(Duration::from_millis(u64::from(argument) * 4)),
            5 => {
                let len = usize::from(argument) * 700 + 1;
                self.sent.insert(self.next_tag);
                self.hop.send(
                    self.now,
                    self.next_tag,
                    Bytes::from(vec![argument; len]),
                    Bytes::new(),
                );
                self.next_tag += 1;
            }
            6 => {
                let tag = u64::from(argument);
                if self.hop.withdraw(self.now, tag).is_some() {
                    assert!(self.sent.remove(&tag), "withdrawn twice");
                }
            }
            _ if argument < 64 => self.hop.set_mtu(self.now, 200 + usize::from(argument) * 40),
            _ if argument < 128 => self.greet(),
            _ => {
                self.budget.release(core::mem::take(&mut self.held));
                self.hop.budget_released(self.now, &mut self.budget);
            }
        }
        self.drain();
    }
}

fuzz_target!(|data: &[u8]| {
    let (mut neighbour, mut data) = (Neighbour::new(), data);
    while let [kind, argument, rest @ ..] = data {
        let len = if kind % 8 < 4 {
            usize::from(*argument).min(rest.len())
        } else {
            0
        };
        let (body, rest) = rest.split_at(len);
        data = rest;
        neighbour.step(*kind, *argument, body);
    }
    let Neighbour {
        hop,
        mut budget,
        held,
        now,
        ..
    } = neighbour;
    hop.close(now, &mut budget);
    budget.release(held);
    assert_eq!(budget.used(), 0, "room is neither lost nor released twice");
});
