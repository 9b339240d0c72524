//! Two faces and the link between them, in virtual time.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test uses a part of it, as its own module"
)]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;
use std::collections::BTreeMap;

use bytes::Bytes;
use whimbrel_core::{SeededRng, Time};
use whimbrel_link::ndnlp::{LinkEvent, LinkService, LinkServiceConfig};
use whimbrel_ndn_packet::LpHeader;

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Path {
    pub delay: Duration,
    pub loss: f64,
    pub duplicate: f64,
    pub corrupt: f64,
    /// This share of frames is late by up to `reorder_by`.
    pub reorder: f64,
    pub reorder_by: Duration,
    /// Nothing sent before this arrives.
    pub out_until: Time,
}

impl Path {
    pub fn new(delay: Duration) -> Path {
        Path {
            delay,
            loss: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            reorder_by: Duration::ZERO,
            out_until: Time::ZERO,
        }
    }

    pub fn losing(delay: Duration, loss: f64) -> Path {
        Path {
            loss,
            ..Path::new(delay)
        }
    }
}

pub struct End {
    pub service: LinkService,
    pub config: LinkServiceConfig,
    pub path: Path,
    /// Packets that came, with the header that they had and when.
    pub received: Vec<(Time, Bytes, LpHeader)>,
    pub given_up: Vec<Bytes>,
    /// Every frame sent: when, and its bytes.
    pub frames: Vec<(Time, Vec<u8>)>,
    pub mtu: usize,
    /// Which of the frames that it sends from now on are lost, the first one first; then as the
    /// path says.
    pub script: Vec<bool>,
}

pub struct Faces {
    pub now: Time,
    pub ends: [End; 2],
    rng: SeededRng,
    wire: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    counter: u64,
    spins: u32,
    pub segments: usize,
}

impl Faces {
    pub fn new(seed: u64, config: &LinkServiceConfig, path: &Path) -> Faces {
        Faces::with(
            seed,
            [config.clone(), config.clone()],
            [path.clone(), path.clone()],
        )
    }

    pub fn with(seed: u64, configs: [LinkServiceConfig; 2], paths: [Path; 2]) -> Faces {
        let mut index = 0;
        let mut paths = paths.into_iter();
        let ends = configs.map(|config| {
            index += 1;
            let mtu = match config.frames {
                whimbrel_link::ndnlp::FrameKind::Datagram { mtu } => mtu,
                whimbrel_link::ndnlp::FrameKind::Stream { .. } => usize::MAX,
            };
            End {
                service: LinkService::new(config.clone(), SeededRng::new(seed ^ index << 32)),
                config,
                path: paths.next().unwrap(),
                received: Vec::new(),
                given_up: Vec::new(),
                frames: Vec::new(),
                mtu,
                script: Vec::new(),
            }
        });
        let rng = SeededRng::stream(seed, "link");
        Faces {
            now: Time::ZERO,
            ends,
            rng,
            wire: BTreeMap::new(),
            counter: 0,
            spins: 0,
            segments: 8,
        }
    }

    pub fn send(&mut self, end: usize, packet: Bytes) {
        self.ends[end].service.send(self.now, packet, None);
        self.drain(end);
    }

    /// The process at `end` dies and starts again, without memory.
    pub fn restart(&mut self, end: usize, seed: u64) {
        let this = &mut self.ends[end];
        this.service = LinkService::new(this.config.clone(), SeededRng::new(seed));
        this.service.set_mtu(this.mtu);
    }

    pub fn set_mtu(&mut self, end: usize, mtu: usize) {
        let mtu = mtu.max(whimbrel_link::ndnlp::config::MIN_MTU);
        self.ends[end].mtu = mtu;
        self.ends[end].service.set_mtu(mtu);
    }

    pub fn drain(&mut self, end: usize) {
        let mut buffer = vec![7];
        loop {
            buffer.truncate(1);
            let this = &mut self.ends[end];
            let Some(written) = this
                .service
                .poll_transmit(self.now, self.segments, &mut buffer)
            else {
                break;
            };
            assert_eq!(
                written.size,
                buffer.len() - 1,
                "what was in the buffer stays"
            );
            assert!(written.size > 0);
            let frames: Vec<Vec<u8>> = buffer[1..]
                .chunks(written.segment_size.unwrap_or(written.size))
                .map(<[u8]>::to_vec)
                .collect();
            assert!(frames.len() <= self.segments);
            for frame in frames {
                assert!(frame.len() <= self.ends[end].mtu, "{} bytes", frame.len());
                self.put(end, frame);
            }
            self.spins += 1;
            assert!(self.spins < 100_000, "it sends without end");
        }
        let this = &mut self.ends[end];
        while let Some(event) = this.service.poll_event() {
            let LinkEvent::GaveUp(packet) = event;
            this.given_up.push(packet.into());
        }
    }

    fn put(&mut self, end: usize, frame: Vec<u8>) {
        let (now, this) = (self.now, &mut self.ends[end]);
        this.frames.push((now, frame.clone()));
        let rng = &mut self.rng;
        let scripted = if this.script.is_empty() {
            None
        } else {
            Some(this.script.remove(0))
        };
        if now < this.path.out_until || scripted.unwrap_or_else(|| rng.chance(this.path.loss)) {
            return;
        }
        let copies = 1 + usize::from(rng.chance(this.path.duplicate));
        for _ in 0..copies {
            let mut frame = frame.clone();
            if rng.chance(this.path.corrupt) {
                let bit = rng.below(frame.len() as u64 * 8) as usize;
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            let mut at = now + this.path.delay;
            if rng.chance(this.path.reorder) {
                at += Duration::from_nanos(rng.below(this.path.reorder_by.as_nanos() as u64 + 1));
            }
            if this.config.smallest_frame > 0 {
                frame.resize(frame.len().max(this.config.smallest_frame), 0);
            }
            self.counter += 1;
            self.wire.insert((at, self.counter), (1 - end, frame));
        }
    }

    fn next_time(&self) -> Option<Time> {
        let frame = self.wire.keys().next().map(|(at, _)| *at);
        let deadlines = self
            .ends
            .iter()
            .filter_map(|end| end.service.poll_timeout().map(|due| due.at));
        frame.into_iter().chain(deadlines).min()
    }

    /// Runs until `until`; true if nothing is left to happen before.
    pub fn run(&mut self, until: Time) -> bool {
        self.drain(0);
        self.drain(1);
        loop {
            let Some(next) = self.next_time().filter(|next| *next <= until) else {
                let idle = self.next_time().is_none();
                self.now = self.now.max(until);
                return idle;
            };
            if next > self.now {
                (self.now, self.spins) = (next, 0);
            }
            self.spins += 1;
            assert!(self.spins < 100_000, "time stands still at {}", self.now);
            while let Some(((at, key), _)) = self
                .wire
                .first_key_value()
                .map(|(key, value)| (*key, value))
                && at <= self.now
            {
                let (end, frame) = self.wire.remove(&(at, key)).unwrap();
                let now = self.now;
                let End {
                    service, received, ..
                } = &mut self.ends[end];
                service.handle_frame(now, &frame, &mut |lp| {
                    received.push((
                        now,
                        Bytes::copy_from_slice(lp.fragment.unwrap()),
                        lp.to_header(),
                    ));
                });
            }
            for end in 0..2 {
                let service = &mut self.ends[end].service;
                if service.poll_timeout().is_some_and(|due| due.at <= self.now) {
                    service.handle_timeout(self.now);
                }
                self.drain(end);
            }
        }
    }

    pub fn run_for(&mut self, millis: u64) -> bool {
        self.run(self.now + Duration::from_millis(millis))
    }
}

/// An Interest or a Data of `len` bytes that begins with `tag`, as far as there is room.
pub fn packet(data: bool, tag: u64, len: usize) -> Bytes {
    let mut value = tag.to_be_bytes().to_vec();
    value.resize(len.max(12) - 2, tag as u8);
    let mut packet = Vec::new();
    whimbrel_ndn_packet::tlv::write_element(&mut packet, if data { 6 } else { 5 }, &value);
    packet.into()
}

/// The tag of a packet made by [`packet`].
pub fn tag(packet: &[u8]) -> u64 {
    let start = whimbrel_ndn_packet::tlv::header_len(packet).unwrap();
    u64::from_be_bytes(packet[start..start + 8].try_into().unwrap())
}
