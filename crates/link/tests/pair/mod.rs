//! Two hops and the link between them, in virtual time.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test uses a part of it, as its own module"
)]

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_core::{Guid, SeededRng, Time};
use whimbrel_link::{Hop, HopConfig, HopEvent, PacketBudget};

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Path {
    /// Bits per second; 0: no limit.
    pub rate: u64,
    pub delay: Duration,
    /// Bytes that may wait to be serialised.
    pub queue: u64,
    /// Larger frames vanish, bytes.
    pub largest: usize,
    pub loss: f64,
    pub duplicate: f64,
    pub corrupt: f64,
    /// This share of frames is late by up to `reorder_by`.
    pub reorder: f64,
    pub reorder_by: Duration,
    /// Nothing sent in these spans arrives.
    pub outages: Vec<(Time, Time)>,
    busy_until: Time,
    /// Longest time that a frame waited for others, since it was last read.
    pub longest_queue: Duration,
}

impl Path {
    pub fn new(rate: u64, delay: Duration) -> Path {
        Path {
            rate,
            delay,
            queue: 256 << 10,
            largest: usize::MAX,
            loss: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            reorder_by: Duration::ZERO,
            outages: Vec::new(),
            busy_until: Time::ZERO,
            longest_queue: Duration::ZERO,
        }
    }

    /// When a frame of `len` bytes, put in at `now`, is out of the serialiser; `None` if the queue
    /// is full.
    fn serialise(&mut self, now: Time, len: usize) -> Option<Time> {
        if self.rate == 0 {
            return Some(now);
        }
        // 28 bytes of IP and UDP around each frame.
        let bits = (len as u64 + 28) * 8;
        let waiting = self.busy_until.since(now);
        if waiting.as_nanos() as u64 * self.rate / 8_000_000_000 > self.queue {
            return None;
        }
        self.longest_queue = self.longest_queue.max(waiting);
        self.busy_until =
            self.busy_until.max(now) + Duration::from_nanos(bits * 1_000_000_000 / self.rate);
        Some(self.busy_until)
    }
}

/// A chunk that came, and in which run of the process.
pub struct Arrival {
    pub chunk: Bytes,
    pub incarnation: u64,
}

impl Arrival {
    /// The tag that [`chunk`] put into its first eight bytes.
    pub fn tag(&self) -> u64 {
        self.chunk[..8]
            .iter()
            .fold(0, |tag, byte| tag << 8 | u64::from(*byte))
    }
}

pub struct End {
    pub hop: Hop,
    pub budget: PacketBudget,
    pub config: HopConfig,
    pub path: Path,
    pub received: Vec<Arrival>,
    // Room of received chunks that is not yet released, in packets.
    held: u32,
    pub delivered: Vec<u64>,
    pub events: Vec<(Time, HopEvent)>,
    /// Received chunks keep their room until the test releases it.
    pub hold: bool,
    pub frames: u64,
    /// Calls that a driver would make to send them.
    pub transmits: u64,
}

impl End {
    /// Lets go of all received chunks.
    pub fn release(&mut self, now: Time) {
        self.budget.release(core::mem::take(&mut self.held));
        self.hop.budget_released(now, &mut self.budget);
    }
}

pub struct Pair {
    pub now: Time,
    pub ends: [End; 2],
    rng: SeededRng,
    wire: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    counter: u64,
    segments: usize,
    spins: u32,
}

pub fn config(end: usize) -> HopConfig {
    HopConfig {
        incarnation: 1,
        ..HopConfig::new(Guid([end as u8 + 1; 32]), 1452)
    }
}

impl Pair {
    pub fn new(seed: u64, path: Path) -> Pair {
        Pair::with(seed, path.clone(), path, config(0), config(1), 1 << 20)
    }

    pub fn with(
        seed: u64,
        a: Path,
        b: Path,
        config_a: HopConfig,
        config_b: HopConfig,
        room: usize,
    ) -> Pair {
        let end = |index: u64, config: HopConfig, path| End {
            hop: Hop::new(
                config.clone(),
                SeededRng::new(seed ^ index << 32),
                Time::ZERO,
            ),
            budget: PacketBudget::new(room),
            config,
            path,
            received: Vec::new(),
            held: 0,
            delivered: Vec::new(),
            events: Vec::new(),
            hold: false,
            frames: 0,
            transmits: 0,
        };
        Pair {
            now: Time::ZERO,
            ends: [end(1, config_a, a), end(2, config_b, b)],
            rng: SeededRng::stream(seed, "link"),
            wire: BTreeMap::new(),
            counter: 0,
            segments: 64,
            spins: 0,
        }
    }

    pub fn send(&mut self, end: usize, tag: u64, chunk: Bytes) {
        let head = chunk.len().min(100);
        let now = self.now;
        self.ends[end]
            .hop
            .send(now, tag, chunk.slice(..head), chunk.slice(head..));
    }

    /// The process at `end` dies and starts again, without memory. What it held for others is gone.
    pub fn restart(&mut self, end: usize, seed: u64) {
        let now = self.now;
        let this = &mut self.ends[end];
        this.config.incarnation += 1;
        this.hop = Hop::new(this.config.clone(), SeededRng::new(seed), now);
        this.budget = PacketBudget::new(this.budget.capacity());
        this.held = 0;
    }

    /// Takes all outputs of one end.
    pub fn drain(&mut self, end: usize) {
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let now = self.now;
            let Some((size, segment)) =
                self.ends[end]
                    .hop
                    .poll_transmit(now, self.segments, &mut buffer)
            else {
                break;
            };
            self.ends[end].transmits += 1;
            assert_eq!(size, buffer.len());
            assert!(size > 0);
            let frames: Vec<&[u8]> = buffer.chunks(segment.unwrap_or(size)).collect();
            assert!(frames.len() <= self.segments);
            for frame in frames {
                assert!(frame.len() <= self.ends[end].config.mtu);
                self.ends[end].frames += 1;
                self.put(end, frame);
            }
        }
        let this = &mut self.ends[end];
        while let Some(event) = this.hop.poll_event() {
            match &event {
                HopEvent::Received { chunk, packets } => {
                    this.received.push(Arrival {
                        chunk: chunk.clone(),
                        incarnation: this.config.incarnation,
                    });
                    this.held += packets;
                    if !this.hold {
                        this.release(self.now);
                    }
                }
                HopEvent::Delivered { tag } => this.delivered.push(*tag),
                _ => {}
            }
            if !matches!(event, HopEvent::Received { .. }) {
                this.events.push((self.now, event));
            }
        }
    }

    fn put(&mut self, from: usize, frame: &[u8]) {
        let path = &mut self.ends[from].path;
        let Some(out) = path.serialise(self.now, frame.len()) else {
            return;
        };
        if self.rng.chance(path.loss)
            || frame.len() > path.largest
            || path
                .outages
                .iter()
                .any(|(start, end)| *start <= out && out < *end)
        {
            return;
        }
        let copies = 1 + usize::from(self.rng.chance(path.duplicate));
        for _ in 0..copies {
            let mut bytes = frame.to_vec();
            if self.rng.chance(path.corrupt) {
                let bit = self.rng.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            let mut at = out + path.delay;
            if self.rng.chance(path.reorder) {
                at += path.reorder_by.mul_f64(self.rng.unit());
            }
            self.counter += 1;
            self.wire.insert((at, self.counter), (1 - from, bytes));
        }
    }

    /// Goes on to the next thing that happens, if it is before `end`.
    pub fn step(&mut self, end: Time) -> bool {
        for side in 0..2 {
            self.drain(side);
        }
        let arrival = self.wire.first_key_value().map(|((at, _), _)| *at);
        let deadlines = self
            .ends
            .each_ref()
            .map(|this| this.hop.poll_timeout().map(|deadline| deadline.at));
        let next = [arrival, deadlines[0], deadlines[1]]
            .into_iter()
            .flatten()
            .min();
        let Some(next) = next.map(|at| at.max(self.now)).filter(|at| *at <= end) else {
            self.now = end.max(self.now);
            return false;
        };
        self.spins = if next == self.now { self.spins + 1 } else { 0 };
        assert!(self.spins < 100_000, "time stands still: {deadlines:?}");
        self.now = next;
        while let Some(entry) = self
            .wire
            .first_entry()
            .filter(|entry| entry.key().0 <= next)
        {
            let (to, bytes) = entry.remove();
            let this = &mut self.ends[to];
            this.hop.handle_frame(next, &bytes, &mut this.budget);
        }
        for (this, deadline) in self.ends.iter_mut().zip(deadlines) {
            if deadline.is_some_and(|at| at <= next) {
                this.hop.handle_timeout(next, &mut this.budget);
            }
        }
        for side in 0..2 {
            self.drain(side);
        }
        true
    }

    /// Runs until `end`.
    pub fn drive(&mut self, end: Time) {
        while self.step(end) {}
    }

    /// Runs until `done` or `end`; true if it is done.
    pub fn drive_until(&mut self, end: Time, done: impl Fn(&Pair) -> bool) -> bool {
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
        }
    }
}

/// `len` bytes that depend on `tag` and on their place.
pub fn chunk(tag: u64, len: usize) -> Bytes {
    let mut rng = SeededRng::new(tag);
    let mut bytes = tag.to_be_bytes().to_vec();
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next_word().to_be_bytes());
    }
    bytes.truncate(len);
    Bytes::from(bytes)
}
