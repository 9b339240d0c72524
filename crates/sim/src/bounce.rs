//! A load to measure the simulator itself: frames that bounce over links as fast as possible.

use core::time::Duration;

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

use crate::link::{LinkSpec, Loss};
use crate::{DuplexLink, Simulator};

/// Nodes in a row.
const NODES: usize = 10;
/// Frames on each link.
const FRAMES_A_LINK: usize = 64;
/// Bytes of a frame.
const FRAME_SIZE: usize = 1_400;

/// Sends each received frame back, and keeps a timer that every frame moves.
#[derive(Default)]
struct Echo {
    frames: Vec<(PortId, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    last: Time,
}

impl Machine for Echo {
    type Event = ();

    fn handle_port(&mut self, _now: Time, _port: PortId, _event: PortEvent) {}

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            let mut copy = self.spare.pop().unwrap_or_default();
            copy.extend_from_slice(frame);
            self.frames.push((port, copy));
            self.last = now;
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.last = now;
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        _max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let (port, mut frame) = self.frames.pop()?;
        buffer.extend_from_slice(&frame);
        let size = frame.len();
        frame.clear();
        self.spare.push(frame);
        Some(Transmit {
            port,
            size,
            segment_size: None,
        })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        Some(Deadline::new(
            self.last + Duration::from_millis(200),
            "idle",
        ))
    }
}

/// Bounces 64 frames of 1,400 bytes over each link of ten nodes in a row (1 Gbit/s, 1 ms), with or
/// without a trace hash, until `frames` were delivered. Returns the number delivered.
pub fn bounce(frames: u64, hash: bool) -> u64 {
    let mut sim = Simulator::new(1);
    if hash {
        sim.trace.enable_hash();
    }
    let nodes: Vec<_> = (0..NODES)
        .map(|node| sim.add_node(&node.to_string(), Echo::default()))
        .collect();
    let spec = LinkSpec {
        jitter: Duration::from_micros(50),
        ..LinkSpec::new(1_000_000_000, Duration::from_millis(1))
    }
    .with_loss(Loss::Independent(1e-7));
    for ends in nodes.windows(2) {
        let Ok(link) = sim.connect(ends[0], ends[1], &DuplexLink::symmetric(spec.clone())) else {
            return 0;
        };
        for _ in 0..FRAMES_A_LINK {
            sim.with_node(ends[0], |machine, _| {
                machine.frames.push((link.a, vec![7; FRAME_SIZE]))
            });
        }
    }
    sim.run_while(Time::from_secs(1_000), |sim| sim.stats().delivered < frames);
    sim.stats().delivered
}
