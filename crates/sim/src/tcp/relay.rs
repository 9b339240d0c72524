//! A router with two links that forwards blindly.

use std::collections::VecDeque;

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

/// Forwards every frame from one of its first two ports to the other, at once. Only the links have
/// queues.
#[derive(Clone, Debug, Default)]
pub struct Relay {
    ports: Vec<PortId>,
    passing: VecDeque<(PortId, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    dropped: u64,
}

/// Bound of the unused buffers that are kept.
const MAX_SPARE: usize = 4096;

impl Relay {
    /// Returns a relay without ports.
    pub fn new() -> Relay {
        Relay::default()
    }

    /// Returns the number of frames that arrived before the second port was up.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Machine for Relay {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, _now: Time, port: PortId, event: PortEvent) {
        match event {
            PortEvent::Up(_) => self.ports.push(port),
            PortEvent::Down => self.ports.retain(|known| *known != port),
            PortEvent::Mtu(_)
            | PortEvent::Blocked
            | PortEvent::Writable
            | PortEvent::Refused
            | PortEvent::Carrier(_)
            | PortEvent::Ecn { .. } => {}
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, _now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            match self.ports.as_slice() {
                [a, b, ..] if *a == port || *b == port => {
                    let other = if *a == port { *b } else { *a };
                    let mut copy = self.spare.pop().unwrap_or_default();
                    copy.extend_from_slice(frame);
                    self.passing.push_back((other, copy));
                }
                _ => self.dropped += 1,
            }
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(
        &mut self,
        _now: Time,
        _max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let (port, mut frame) = self.passing.pop_front()?;
        buffer.extend_from_slice(&frame);
        let size = frame.len();
        if self.spare.len() < MAX_SPARE {
            frame.clear();
            self.spare.push(frame);
        }
        Some(Transmit {
            port,
            size,
            segment_size: None,
        })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}
