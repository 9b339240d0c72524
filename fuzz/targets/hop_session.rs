//! A sealed hop that calls, one that is called, and the gate before it, with whatever comes to them:
//! true frames in any order, as they were or changed, and invented ones.
#![no_main]

use core::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{Admission, CallerGate, SeededRng, Time};
use whimbrel_link::hop::{Gate, PostQuantum};
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent};

struct End {
    hop: Hop,
    buffer: Buffer,
    sent: u64,
    seen: Vec<Vec<u8>>,
}

fn config(end: u8, post_quantum: PostQuantum) -> HopConfig {
    HopConfig {
        post_quantum,
        max_chunks_in_flight: 8,
        finished_memory: 64,
        calls: end == 0,
        ..HopConfig::sealed(&KeyPair::from_secret(&[end + 1; 32]), [end; 32], 1_400)
    }
}

impl End {
    fn new(end: u8, post_quantum: PostQuantum) -> End {
        let config = config(end, post_quantum);
        End {
            hop: Hop::new(config, SeededRng::new(end.into()), Time::ZERO),
            buffer: Buffer::new(256),
            sent: 0,
            seen: Vec::new(),
        }
    }

    fn drain(&mut self, now: Time, peer: u8) {
        let mut buffer = Vec::new();
        for _ in 0..1_000 {
            buffer.clear();
            let Some((size, segment)) = self.hop.poll_transmit(now, 8, &mut buffer) else {
                break;
            };
            let frames = buffer[..size].chunks(segment.unwrap_or(size));
            self.seen.extend(frames.map(<[u8]>::to_vec));
        }
        while let Some(event) = self.hop.poll_event() {
            match event {
                HopEvent::Received { chunk, room } => {
                    assert!(
                        chunk.iter().all(|byte| *byte == peer),
                        "what the other end sent"
                    );
                    drop(room);
                    self.buffer.take_back();
                    self.hop.room_released(now, &mut self.buffer);
                }
                HopEvent::Up { neighbour, .. } => {
                    assert_eq!(neighbour, KeyPair::from_secret(&[peer + 1; 32]).guid());
                }
                _ => {}
            }
        }
        let most = self.seen.len().saturating_sub(512);
        self.seen.drain(..most);
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((modes, input)) = input.split_first() else {
        return;
    };
    let mode = |bits: u8| match bits & 3 {
        0 => PostQuantum::Off,
        1 => PostQuantum::Require,
        _ => PostQuantum::Offer,
    };
    let mut ends = [End::new(0, mode(*modes)), End::new(1, mode(modes >> 2))];
    let mut gate = Gate::new(config(1, mode(modes >> 2)), 64);
    let from = ([192, 0, 2, 7], 4_000).into();
    let mut now = Time::ZERO;
    let mut rest = input;
    while let [act, place, more @ ..] = rest {
        rest = more;
        let to = usize::from(act >> 7);
        let mut frame = Vec::new();
        let from_other = &ends[1 - to].seen;
        if !from_other.is_empty() {
            let at = from_other.len() - 1 - usize::from(*place) % from_other.len();
            frame.clone_from(&from_other[at]);
        }
        match act & 7 {
            0..=2 => {}
            3 | 4 => {
                if let [at, change, more @ ..] = rest {
                    rest = more;
                    let at = usize::from(*at) * frame.len() / 256;
                    if let Some(byte) = frame.get_mut(at) {
                        *byte ^= change;
                    }
                }
            }
            5 => {
                let len = rest.len().min(usize::from(*place));
                let (bytes, more) = rest.split_at(len);
                (frame, rest) = (bytes.to_vec(), more);
            }
            6 => {
                now += Duration::from_millis(u64::from(*place) * 16);
                frame.clear();
                for end in &mut ends {
                    end.hop.handle_timeout(now, &mut end.buffer);
                }
            }
            _ => {
                let end = &mut ends[to];
                let chunk = Bytes::from(vec![to as u8; usize::from(*place) * 40 + 1]);
                end.hop.send(now, end.sent, chunk, Bytes::new());
                end.sent += 1;
                frame.clear();
            }
        }
        if !frame.is_empty() {
            let mut reply = Vec::new();
            let admission = gate.consider(now, from, &frame, &mut reply);
            assert!(reply.len() <= frame.len());
            assert_eq!(admission == Admission::Answered, !reply.is_empty());
            let end = &mut ends[to];
            end.hop.handle_frame(now, &frame, &mut end.buffer);
        }
        for (end, peer) in ends.iter_mut().zip([1, 0]) {
            end.drain(now, peer);
        }
    }
});
