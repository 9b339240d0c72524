//! A live plain hop and a neighbour that says whatever the input says, in well-formed frames of the
//! hop's own session.
//!
//! The input is a list of steps: an octet that chooses, then what the step needs. Of frames the index
//! of the session and the checksum are put right, or none would come further than the first check.
#![no_main]

use core::time::Duration;
use std::collections::BTreeSet;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent};

const ROOM: usize = 256;

/// The neighbour: it knows what any neighbour is told.
struct Neighbour {
    hop: Hop,
    buffer: Buffer,
    now: Time,
    // Answers the hop's calls.
    honest: Hop,
    runs: u8,
    // The hop's index of the session, in its last call; and what a LOST repeats of its last frame.
    index: [u8; 4],
    last_sent: [u8; 8],
    held: Vec<whimbrel_link::Room>,
    sent: BTreeSet<u64>,
    next_tag: u64,
}

fn config(end: u8, run: u8) -> HopConfig {
    HopConfig {
        max_chunks_in_flight: 8,
        finished_memory: 64,
        calls: end == 1,
        ..HopConfig::plain(&KeyPair::from_secret(&[end; 32]), [run; 32], 1_400)
    }
}

impl Neighbour {
    fn new() -> Neighbour {
        let mut neighbour = Neighbour {
            hop: Hop::new(config(1, 0), SeededRng::new(1), Time::ZERO),
            buffer: Buffer::new(ROOM),
            now: Time::ZERO,
            honest: Hop::new(config(2, 0), SeededRng::new(2), Time::ZERO),
            runs: 0,
            index: [0; 4],
            last_sent: [0; 8],
            held: Vec::new(),
            sent: BTreeSet::new(),
            next_tag: 0,
        };
        neighbour.drain();
        assert!(neighbour.hop.is_up());
        neighbour
    }

    /// The neighbour restarts, and says so (docs/protocols/hop.md, section 9).
    fn restart(&mut self) {
        self.runs = self.runs.wrapping_add(1);
        let config = config(2, self.runs);
        self.honest = Hop::new(config, SeededRng::new(self.runs.into()), self.now);
        let mut lost = vec![0x34, 0, 1, 0];
        lost.extend_from_slice(&self.last_sent);
        self.take(&lost);
    }

    /// A message of the handshake is answered as it should be.
    fn answer(&mut self, message: &[u8]) {
        if message[0] == 0x30 {
            self.index.copy_from_slice(&message[4..8]);
        }
        let mut buffer = Buffer::new(ROOM);
        self.honest.handle_frame(self.now, message, &mut buffer);
        let mut buffer = Vec::new();
        while let Some((size, _)) = self.honest.poll_transmit(self.now, 1, &mut buffer) {
            let answer = buffer.split_off(buffer.len() - size);
            self.take(&answer);
        }
        while self.honest.poll_event().is_some() {}
    }

    fn take(&mut self, frame: &[u8]) {
        self.hop.handle_frame(self.now, frame, &mut self.buffer);
    }

    fn frame(&mut self, body: &[u8]) {
        let mut frame = body.to_vec();
        if frame.len() >= 9 {
            frame[0] = 0x20 | frame[0] & 15;
            frame[1..5].copy_from_slice(&self.index);
        }
        let crc = crc_fast::crc32_iscsi(&frame);
        frame.extend_from_slice(&crc.to_be_bytes());
        self.take(&frame);
    }

    fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..1_000 {
            let Some(due) = self.hop.poll_timeout().filter(|due| due.at <= end) else {
                break;
            };
            self.now = self.now.max(due.at);
            self.hop.handle_timeout(self.now, &mut self.buffer);
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
            let first = buffer[..segment.unwrap_or(size).min(size)].to_vec();
            if first[0] >> 4 == 3 {
                self.answer(&first);
            } else {
                self.last_sent.copy_from_slice(&first[1..9]);
            }
        }
        while let Some(event) = self.hop.poll_event() {
            match event {
                HopEvent::Received { room, .. } => self.held.push(room),
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
        assert!(self.buffer.used() <= ROOM.max((4 << 20) / 64));
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
            _ if argument < 128 => self.restart(),
            _ => {
                self.held.clear();
                self.buffer.take_back();
                self.hop.room_released(self.now, &mut self.buffer);
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
        mut buffer,
        held,
        now,
        ..
    } = neighbour;
    hop.close(now);
    drop(held);
    buffer.take_back();
    assert_eq!(buffer.used(), 0, "room is neither lost nor released twice");
});
