//! Two hops and the link between them, on the testbed.

#![allow(unreachable_pub, reason = "a module of the tests' own")]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use whimbrel_core::identity::KeyPair;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng, Time,
    Transmit,
};
use whimbrel_link::hop::Reception;
use whimbrel_link::{Buffer, Hop, HopConfig, HopEvent, Room};
use whimbrel_sim::link::{LinkSpec, LinkStats, QueueLimit, Rate, Reorder};
use whimbrel_sim::testbed::{Fault, Life, Net};
use whimbrel_sim::{Direction, DuplexLink};

/// Returns one direction of a link; a rate of 0 is unlimited.
pub fn path(bits_per_second: u64, delay: Duration) -> LinkSpec {
    let rate = match bits_per_second {
        0 => Rate::Unlimited,
        limit => Rate::Fixed(limit),
    };
    LinkSpec {
        rate,
        delay,
        queue: QueueLimit::Bytes(256 << 10),
        ..LinkSpec::default()
    }
}

/// Returns a path on which this share of frames arrives late.
pub fn reordering(share: f64, extra_delay: Duration) -> Option<Reorder> {
    Some(Reorder {
        probability: share,
        extra_delay,
    })
}

/// A received chunk, with the run of the process that received it.
pub struct Arrival {
    pub chunk: Bytes,
    pub incarnation: u64,
}

impl Arrival {
    /// Returns the tag that [`chunk`] put into its first eight bytes.
    pub fn tag(&self) -> u64 {
        self.chunk[..8]
            .iter()
            .fold(0, |tag, byte| tag << 8 | u64::from(*byte))
    }
}

/// A hop with its own buffer, and the results of all its lives.
pub struct End {
    pub hop: Hop,
    pub buffer: Buffer,
    pub config: HopConfig,
    pub received: Vec<Arrival>,
    // Room of received chunks that is not released yet.
    held: Vec<Room>,
    pub delivered: Vec<u64>,
    pub events: Vec<(Time, HopEvent)>,
    /// Received chunks keep their room until the test releases it.
    pub hold: bool,
    pub frames: u64,
    /// The system calls that a driver would make to send them.
    pub transmits: u64,
    port: Option<PortId>,
    /// Frames wait, and timers are late, while the process does not run.
    pub turns: Option<Turns>,
    waiting: Vec<Vec<u8>>,
    seen: Time,
}

/// A processor that other processes use, too: in each period this one does not run for a time.
#[derive(Clone, Copy)]
pub struct Turns {
    pub period: Duration,
    pub away: Duration,
}

impl Turns {
    /// Returns the time at which the process runs again, if it does not run at `at`.
    fn runs_again(&self, at: Time) -> Option<Time> {
        let period = self.period.as_nanos() as u64;
        let since = (at.since(Time::ZERO).as_nanos() as u64) % period;
        let away = self.away.as_nanos() as u64;
        (since < away).then(|| at + Duration::from_nanos(away - since))
    }
}

impl End {
    fn new(config: HopConfig, room: usize, life: &Life) -> End {
        End {
            hop: Hop::new(config.clone(), life.rng(), life.start),
            buffer: Buffer::new(room),
            config,
            received: Vec::new(),
            held: Vec::new(),
            delivered: Vec::new(),
            events: Vec::new(),
            hold: false,
            frames: 0,
            transmits: 0,
            port: None,
            turns: None,
            waiting: Vec::new(),
            seen: Time::ZERO,
        }
    }

    /// Restarts the process without its memory. Room held for others is lost; the test's records
    /// are kept.
    fn again(&mut self, life: &Life) -> End {
        let mut config = self.config.clone();
        config.incarnation += 1;
        let mut seed = [life.node as u8; 32];
        seed[..8].copy_from_slice(&config.incarnation.to_be_bytes());
        config.reception = Arc::new(Reception::new(keys(life.node), seed, true));
        End {
            received: core::mem::take(&mut self.received),
            delivered: core::mem::take(&mut self.delivered),
            events: core::mem::take(&mut self.events),
            hold: self.hold,
            frames: self.frames,
            transmits: self.transmits,
            ..End::new(config, self.buffer.capacity(), life)
        }
    }

    fn runs_again(&self, at: Time) -> Option<Time> {
        self.turns?.runs_again(at)
    }

    /// Releases the room of all received chunks.
    pub fn release(&mut self, now: Time) {
        self.held.clear();
        self.hop.room_released(now, &mut self.buffer);
    }

    /// Records an event of the hop. Returns false if there is none.
    fn note(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Some(event) = self.hop.poll_event() {
            any = true;
            match event {
                HopEvent::Received { chunk, room } => {
                    let incarnation = self.config.incarnation;
                    self.received.push(Arrival { chunk, incarnation });
                    self.held.push(room);
                    if !self.hold {
                        self.release(now);
                    }
                    continue;
                }
                HopEvent::Delivered { tag } => self.delivered.push(tag),
                _ => {}
            }
            self.events.push((now, event));
        }
        any
    }
}

impl Machine for End {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, _: Time, port: PortId, event: PortEvent) {
        if let PortEvent::Up(_) = event {
            self.port = Some(port);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, _: PortId, frames: &[&[u8]]) {
        self.seen = now;
        if self.runs_again(now).is_some() {
            self.waiting.extend(frames.iter().map(|it| it.to_vec()));
            return;
        }
        for frame in frames {
            self.hop.handle_frame(now, frame, &mut self.buffer);
            self.note(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.seen = now;
        if self.runs_again(now).is_some() {
            return;
        }
        for frame in core::mem::take(&mut self.waiting) {
            self.hop.handle_frame(now, &frame, &mut self.buffer);
            self.note(now);
        }
        self.hop.handle_timeout(now, &mut self.buffer);
        self.note(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let port = self.port?;
        if self.runs_again(now).is_some() {
            return None;
        }
        let start = buffer.len();
        loop {
            if let Some((size, segment_size)) = self.hop.poll_transmit(now, max_segments, buffer) {
                assert_eq!(size, buffer.len() - start);
                assert!(size > 0);
                let mut frames = buffer[start..].chunks(segment_size.unwrap_or(size));
                assert!(frames.len() <= max_segments);
                self.transmits += 1;
                self.frames += frames.len() as u64;
                assert!(frames.all(|frame| frame.len() <= self.config.mtu));
                return Some(Transmit {
                    port,
                    size,
                    segment_size,
                });
            }
            if !self.note(now) {
                return None;
            }
        }
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.port?;
        let next = self.hop.poll_timeout();
        let Some(turns) = self.turns else {
            return next;
        };
        let frames = (!self.waiting.is_empty()).then(|| Deadline::new(self.seen, "frames"));
        let next = Deadline::earlier(next, frames)?;
        let at = next.at.max(self.seen);
        let at = turns.runs_again(at).unwrap_or(at);
        Some(Deadline::new(at, next.reason))
    }
}

pub struct Pair {
    pub net: Net<End>,
}

pub fn config(end: usize) -> HopConfig {
    HopConfig {
        incarnation: 1,
        ..HopConfig::sealed(&keys(end), [end as u8; 32], 1452)
    }
}

fn keys(end: usize) -> KeyPair {
    KeyPair::from_secret(&[end as u8 + 1; 32])
}

/// The same without encryption.
pub fn plain(end: usize) -> HopConfig {
    HopConfig {
        incarnation: 1,
        ..HopConfig::plain(&keys(end), [end as u8; 32], 1452)
    }
}

impl Pair {
    pub fn new(seed: u64, path: LinkSpec) -> Pair {
        Pair::with(seed, path.clone(), path, config(0), config(1), 1 << 20)
    }

    pub fn with(
        seed: u64,
        a: LinkSpec,
        b: LinkSpec,
        config_a: HopConfig,
        config_b: HopConfig,
        room: usize,
    ) -> Pair {
        let configs = [config_a, config_b];
        let make = move |life: &Life, last: Option<&mut End>| match last {
            Some(last) => last.again(life),
            None => End::new(configs[life.node].clone(), room, life),
        };
        Pair {
            net: Net::pair(seed, &DuplexLink::new(a, b), make).unwrap(),
        }
    }

    pub fn now(&self) -> Time {
        self.net.now()
    }

    pub fn ends(&self) -> [&End; 2] {
        [&self.net[0], &self.net[1]]
    }

    pub fn at<R>(&mut self, end: usize, call: impl FnOnce(&mut End, Time) -> R) -> R {
        self.net.with(end, call)
    }

    pub fn send(&mut self, end: usize, tag: u64, chunk: Bytes) {
        let head = chunk.len().min(100);
        self.at(end, |end, now| {
            end.hop
                .send(now, tag, chunk.slice(..head), chunk.slice(head..));
        });
    }

    /// Makes received chunks keep or release their room.
    pub fn hold(&mut self, end: usize, hold: bool) {
        self.at(end, |end, now| {
            end.hold = hold;
            if !hold {
                end.release(now);
            }
        });
    }

    pub fn set_mtu(&mut self, end: usize, mtu: usize) {
        self.at(end, |end, now| {
            end.config.mtu = mtu;
            end.hop.set_mtu(now, mtu);
        });
    }

    pub fn restart(&mut self, end: usize) {
        self.net.restart(end, 0);
    }

    /// Loses everything that is sent from now on, for a time.
    pub fn cut(&mut self, lasts: Duration) {
        self.cut_ways(3, lasts);
    }

    /// The same in some directions: 1 is from the first end to the second, 2 the other way.
    pub fn cut_ways(&mut self, directions: u8, lasts: Duration) {
        self.net.strike(&Fault::Outage {
            link: 0,
            directions,
            lasts,
        });
    }

    /// The link becomes another one, both ways.
    pub fn set_path(&mut self, path: LinkSpec) {
        let link = self.net.link(0);
        for direction in Direction::BOTH {
            let sim = self.net.sim_mut();
            sim.set_link_spec(link, direction, &path).unwrap();
        }
    }

    /// Counters of the link from this end.
    pub fn link_stats(&self, end: usize) -> &LinkStats {
        let link = self.net.link(0);
        self.net.sim().link_stats(link, Direction::BOTH[end])
    }

    /// Processes the next event if it is before `end`.
    pub fn step(&mut self, end: Time) -> bool {
        self.net.step(end)
    }

    /// Runs until `end`.
    pub fn drive(&mut self, end: Time) {
        while self.step(end) {}
    }

    /// Runs until `done` or `end`. Returns true if it is done.
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

/// Returns `len` bytes that depend on `tag` and on their position.
pub fn chunk(tag: u64, len: usize) -> Bytes {
    let mut rng = SeededRng::new(tag);
    let mut bytes = tag.to_be_bytes().to_vec();
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next_word().to_be_bytes());
    }
    bytes.truncate(len);
    Bytes::from(bytes)
}
