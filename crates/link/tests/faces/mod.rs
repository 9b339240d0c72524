//! Two faces and the link between them, on the testbed.

#![allow(unreachable_pub, reason = "a module of the tests' own")]
#![allow(clippy::unwrap_used, reason = "helpers of a test fail the test")]

use core::time::Duration;

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_link::ndnlp::{FrameKind, LinkEvent, LinkService, LinkServiceConfig};
use whimbrel_ndn_packet::LpHeader;
use whimbrel_sim::link::{LinkSpec, Loss, Reorder};
use whimbrel_sim::testbed::{Fault, Life, Net};
use whimbrel_sim::{Direction, DuplexLink};

/// Bound of the transmits at one moment. A link service beyond it transmits without end.
const MAX_TRANSMITS: u32 = 100_000;

/// One direction of a link.
pub fn path(delay: Duration) -> LinkSpec {
    LinkSpec {
        delay,
        ..LinkSpec::default()
    }
}

pub fn losing(delay: Duration, loss: f64) -> LinkSpec {
    path(delay).with_loss(Loss::Independent(loss))
}

/// Returns a path on which this share of frames arrives late.
pub fn reordering(share: f64, extra_delay: Duration) -> Option<Reorder> {
    Some(Reorder {
        probability: share,
        extra_delay,
    })
}

/// A link service, with the results of all its lives.
pub struct End {
    pub service: LinkService,
    pub config: LinkServiceConfig,
    /// Received packets, with their time and header.
    pub received: Vec<(Time, Bytes, LpHeader)>,
    pub given_up: Vec<Bytes>,
    /// The sizes of frames that the path was found to take.
    pub sizes: Vec<usize>,
    /// Every sent frame, with its time.
    pub frames: Vec<(Time, Vec<u8>)>,
    mtu: usize,
    port: Option<PortId>,
    // Transmits at one moment, to detect an endless series.
    transmits: (Time, u32),
}

impl End {
    fn new(config: LinkServiceConfig, life: &Life) -> End {
        let mtu = match config.frames {
            FrameKind::Datagram { mtu } => mtu,
            FrameKind::Stream { .. } => usize::MAX,
        };
        End {
            service: LinkService::new(config.clone(), life.rng()),
            config,
            received: Vec::new(),
            given_up: Vec::new(),
            sizes: Vec::new(),
            frames: Vec::new(),
            mtu,
            port: None,
            transmits: (Time::ZERO, 0),
        }
    }

    /// Restarts the process without its memory; the test's records are kept.
    fn again(&mut self, life: &Life) -> End {
        let mut end = End {
            received: core::mem::take(&mut self.received),
            given_up: core::mem::take(&mut self.given_up),
            frames: core::mem::take(&mut self.frames),
            ..End::new(self.config.clone(), life)
        };
        end.set_mtu(self.mtu);
        end
    }

    fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.service.set_mtu(mtu);
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
        for frame in frames {
            // The medium pads the frame.
            let mut frame = frame.to_vec();
            frame.resize(frame.len().max(self.config.smallest_frame), 0);
            let received = &mut self.received;
            self.service.handle_frame(now, &frame, &mut |lp| {
                let packet = Bytes::copy_from_slice(lp.fragment.unwrap());
                received.push((now, packet, lp.to_header()));
            });
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.service.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let port = self.port?;
        let start = buffer.len();
        let written = self.service.poll_transmit(now, max_segments, buffer)?;
        assert_eq!(
            written.size,
            buffer.len() - start,
            "what was in the buffer stays"
        );
        assert!(written.size > 0);
        let frames = buffer[start..].chunks(written.segment_size.unwrap_or(written.size));
        assert!(frames.len() <= max_segments);
        for frame in frames {
            assert!(frame.len() <= self.mtu, "{} bytes", frame.len());
            self.frames.push((now, frame.to_vec()));
        }
        let (at, count) = self.transmits;
        self.transmits = (now, if at == now { count + 1 } else { 0 });
        assert!(count < MAX_TRANSMITS, "it transmits without end");
        Some(Transmit {
            port,
            size: written.size,
            segment_size: written.segment_size,
        })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        while let Some(event) = self.service.poll_event() {
            match event {
                LinkEvent::GaveUp(packet) => self.given_up.push(packet.into()),
                LinkEvent::PathMtu(size) => self.sizes.push(size),
            }
        }
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.port?;
        self.service.poll_timeout()
    }
}

pub struct Faces {
    pub net: Net<End>,
}

impl Faces {
    pub fn new(seed: u64, config: &LinkServiceConfig, path: &LinkSpec) -> Faces {
        Faces::with(
            seed,
            [config.clone(), config.clone()],
            [path.clone(), path.clone()],
        )
    }

    pub fn with(seed: u64, configs: [LinkServiceConfig; 2], paths: [LinkSpec; 2]) -> Faces {
        let make = move |life: &Life, last: Option<&mut End>| match last {
            Some(last) => last.again(life),
            None => End::new(configs[life.node].clone(), life),
        };
        let [forth, back] = paths;
        let link = DuplexLink {
            mtu: usize::MAX,
            ..DuplexLink::new(forth, back)
        };
        Faces {
            net: Net::pair(seed, &link, make).unwrap(),
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

    pub fn send(&mut self, end: usize, packet: Bytes) {
        self.at(end, |end, now| end.service.send(now, packet, None));
    }

    /// Delivers a frame that the other end did not send.
    pub fn hand_in(&mut self, end: usize, frame: &[u8]) {
        self.at(end, |end, now| {
            end.service.handle_frame(now, frame, &mut |_| {})
        });
    }

    pub fn restart(&mut self, end: usize) {
        self.net.restart(end, 0);
    }

    pub fn set_mtu(&mut self, end: usize, mtu: usize) {
        let mtu = mtu.max(whimbrel_link::ndnlp::config::MIN_MTU);
        self.at(end, |end, _| end.set_mtu(mtu));
    }

    /// Decides the loss of the next frames of an end by `script`, in order; after it, the path's
    /// own loss applies.
    pub fn lose(&mut self, end: usize, script: &[bool]) {
        self.net.lose(0, Direction::BOTH[end], script);
    }

    /// Changes the path from an end.
    pub fn path(&mut self, end: usize, change: impl FnOnce(&mut LinkSpec)) {
        let direction = Direction::BOTH[end];
        let mut spec = self.net.healthy(0, direction).clone();
        change(&mut spec);
        self.net.set_healthy(0, direction, &spec).unwrap();
    }

    /// Loses everything that an end sends from now on, for a time.
    pub fn cut(&mut self, end: usize, lasts: Duration) {
        self.net.strike(&Fault::Outage {
            link: 0,
            directions: 1 << end,
            lasts,
        });
    }

    /// Makes both paths only delay frames.
    pub fn heal(&mut self) {
        for end in 0..2 {
            self.path(end, |spec| *spec = path(spec.delay));
        }
        self.net.end_faults();
    }

    /// Runs until `until`. Returns true if no event is left.
    pub fn run(&mut self, until: Time) -> bool {
        let idle = self.net.run_until_idle(until);
        self.net.run_until(until);
        idle
    }

    pub fn run_for(&mut self, millis: u64) -> bool {
        self.run(self.now() + Duration::from_millis(millis))
    }
}

/// Returns an Interest or a Data of `len` bytes that begins with `tag`, as far as there is room.
pub fn packet(data: bool, tag: u64, len: usize) -> Bytes {
    let mut value = tag.to_be_bytes().to_vec();
    value.resize(len.max(12) - 2, tag as u8);
    let mut packet = Vec::new();
    whimbrel_ndn_packet::tlv::write_element(&mut packet, if data { 6 } else { 5 }, &value);
    packet.into()
}

/// Returns the tag of a packet made by [`packet`].
pub fn tag(packet: &[u8]) -> u64 {
    let start = whimbrel_ndn_packet::tlv::header_len(packet).unwrap();
    u64::from_be_bytes(packet[start..start + 8].try_into().unwrap())
}
