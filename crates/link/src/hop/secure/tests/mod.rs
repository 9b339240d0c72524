//! Two hops and whoever is between them.

mod callers;
mod hostile;
mod hybrid;
mod model;
mod sessions;
mod vectors;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{Admission, CallerGate, SeededRng, Time};

use super::super::shapes::fits;
use super::super::{Hop, HopConfig, HopEvent};
use super::CallerPolicy;
use super::handshake::{CALL_LEN, PROOF_LEN, Unwilling};
use super::{Gate, Reception};
use crate::account::Buffer;

const CALLER: &str = "192.0.2.7:4000";

fn keys(end: usize) -> KeyPair {
    KeyPair::from_secret(&[end as u8 + 1; 32])
}

fn config(end: usize, run: u64) -> HopConfig {
    let mut seed = [end as u8 + 1; 32];
    seed[..8].copy_from_slice(&run.to_be_bytes());
    HopConfig {
        incarnation: run,
        max_chunks_in_flight: 16,
        ..HopConfig::sealed(&keys(end), seed, 1_400)
    }
}

struct End {
    config: HopConfig,
    hop: Hop,
    buffer: Buffer,
    events: Vec<HopEvent>,
    /// With the run of this end and the number of its session.
    received: Vec<((u64, u64), Bytes)>,
    delivered: Vec<u64>,
}

impl End {
    fn new(config: HopConfig, now: Time) -> End {
        End {
            hop: Hop::new(config.clone(), SeededRng::new(config.incarnation), now),
            config,
            buffer: Buffer::new(4_096),
            events: Vec::new(),
            received: Vec::new(),
            delivered: Vec::new(),
        }
    }

    fn handle(&mut self, now: Time, frame: &[u8]) {
        self.hop.handle_frame(now, frame, &mut self.buffer);
        self.note(now);
    }

    fn note(&mut self, now: Time) {
        while let Some(event) = self.hop.poll_event() {
            match event {
                HopEvent::Received { chunk, room } => {
                    let session = (self.config.incarnation, self.hop.stats().sessions);
                    self.received.push((session, chunk));
                    drop(room);
                    self.hop.room_released(now, &mut self.buffer);
                }
                HopEvent::Delivered { tag } => self.delivered.push(tag),
                other => self.events.push(other),
            }
        }
    }

    fn frames(&mut self, now: Time) -> Vec<Vec<u8>> {
        let (mut frames, mut buffer) = (Vec::new(), Vec::new());
        loop {
            buffer.clear();
            let Some((size, segment)) = self.hop.poll_transmit(now, 8, &mut buffer) else {
                self.note(now);
                return frames;
            };
            let each = buffer[..size].chunks(segment.unwrap_or(size));
            frames.extend(each.map(<[u8]>::to_vec));
            assert!(
                frames.iter().all(|frame| fits(frame)),
                "a frame without a shape"
            );
            assert!(frames.len() < 100_000, "sending never ends");
        }
    }
}

/// Both ends, what is under way to each, and what ever was.
struct Wire {
    now: Time,
    ends: [End; 2],
    on_the_way: [Vec<Vec<u8>>; 2],
    seen: [Vec<Vec<u8>>; 2],
}

impl Wire {
    fn of(configs: [HopConfig; 2]) -> Wire {
        let now = Time::ZERO;
        Wire {
            now,
            ends: configs.map(|config| End::new(config, now)),
            on_the_way: [Vec::new(), Vec::new()],
            seen: [Vec::new(), Vec::new()],
        }
    }

    /// The first end calls the second one.
    fn new() -> Wire {
        Wire::of([
            config(0, 1),
            HopConfig {
                calls: false,
                ..config(1, 1)
            },
        ])
    }

    fn collect(&mut self) {
        for end in 0..2 {
            let frames = self.ends[end].frames(self.now);
            self.seen[1 - end].extend(frames.iter().cloned());
            self.on_the_way[1 - end].extend(frames);
        }
    }

    fn deliver(&mut self, to: usize, frame: &[u8]) {
        self.ends[to].handle(self.now, frame);
        self.collect();
    }

    fn pass(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        loop {
            self.collect();
            let due = self.ends.iter().filter_map(|end| end.hop.poll_timeout());
            let next = due
                .map(|due| due.at.max(self.now + Duration::from_micros(100)))
                .min();
            self.now = next.unwrap_or(end).min(end);
            for end in &mut self.ends {
                end.hop.handle_timeout(self.now, &mut end.buffer);
                end.note(self.now);
            }
            if self.now >= end {
                return self.collect();
            }
        }
    }

    /// Everything arrives, a millisecond at a time.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.collect();
            for to in 0..2 {
                for frame in core::mem::take(&mut self.on_the_way[to]) {
                    self.ends[to].handle(self.now, &frame);
                }
            }
            self.pass(1);
        }
    }

    fn send(&mut self, end: usize, tag: u64, len: usize) {
        self.ends[end]
            .hop
            .send(self.now, tag, chunk(tag, len), Bytes::new());
    }

    fn restart(&mut self, end: usize) {
        let old = &self.ends[end].config;
        let run = old.incarnation + 1;
        let config = HopConfig {
            calls: old.calls,
            plain: old.plain,
            remote: old.remote,
            post_quantum: old.post_quantum,
            ..config(end, run)
        };
        let now = self.now;
        let former = core::mem::replace(&mut self.ends[end], End::new(config, now));
        self.ends[end].received = former.received;
        self.ends[end].delivered = former.delivered;
    }

    fn is_up(&self) -> bool {
        self.ends.iter().all(|end| end.hop.is_up())
    }
}

fn chunk(tag: u64, len: usize) -> Bytes {
    let mut bytes = tag.to_be_bytes().to_vec();
    bytes.resize(len.max(8), tag as u8);
    Bytes::from(bytes)
}

fn tag_of(chunk: &[u8]) -> u64 {
    chunk[..8]
        .iter()
        .fold(0, |tag, byte| tag << 8 | u64::from(*byte))
}

/// A gate, and the hop that comes up behind it.
struct Site {
    gate: Gate,
    hop: HopConfig,
}

impl Site {
    fn new(plain: bool) -> Site {
        let hop = HopConfig {
            plain,
            calls: false,
            ..config(1, 1)
        };
        Site {
            gate: Gate::new(hop.clone(), 64),
            hop,
        }
    }

    fn ask(&mut self, now: Time, from: &str, frame: &[u8]) -> (Admission, Vec<u8>) {
        let mut reply = Vec::new();
        let from: SocketAddr = from.parse().unwrap();
        let admission = self.gate.consider(now, from, frame, &mut reply);
        assert!(
            reply.len() <= frame.len(),
            "{} for {}",
            reply.len(),
            frame.len()
        );
        assert_eq!(admission == Admission::Answered, !reply.is_empty());
        assert!(
            reply.is_empty() || fits(&reply),
            "an answer without a shape"
        );
        (admission, reply)
    }

    fn admit(&self, now: Time, from: &str) -> End {
        let hop = HopConfig {
            remote: from.parse().ok(),
            ..self.hop.clone()
        };
        End::new(hop, now)
    }
}

/// Returns the first frame of a caller, and the caller.
fn caller(plain: bool) -> (End, Vec<u8>) {
    let mut caller = End::new(
        HopConfig {
            plain,
            ..config(0, 1)
        },
        Time::ZERO,
    );
    let first = caller.frames(Time::ZERO).remove(0);
    (caller, first)
}

/// Returns a caller that is answered by `site`, and its proof.
fn proving(site: &mut Site) -> (End, Vec<u8>) {
    let (mut caller, call) = caller(false);
    let (_, answer) = site.ask(Time::ZERO, CALLER, &call);
    caller.handle(Time::ZERO, &answer);
    let proof = caller.frames(Time::ZERO).swap_remove(0);
    (caller, proof)
}
