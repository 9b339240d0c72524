//! A peer under the control of a test.

use std::collections::VecDeque;

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

/// A call of the driver to a [`Probe`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An event of a port.
    Port(PortId, PortEvent),
    /// A refused request for a port.
    Refusal(PortToken, OpenRefusal),
    /// A received frame.
    Frame(PortId, Vec<u8>),
}

/// Sends what the test tells it to, and records all calls.
#[derive(Debug, Default)]
pub struct Probe {
    /// All calls, oldest first.
    pub heard: Vec<(Time, Heard)>,
    outgoing: VecDeque<(PortId, Vec<u8>)>,
    last_words: VecDeque<(PortId, Vec<u8>)>,
    requests: VecDeque<PortRequest>,
}

impl Probe {
    /// Sends a frame, which must not be empty.
    pub fn send(&mut self, port: PortId, frame: impl Into<Vec<u8>>) {
        self.outgoing.push_back((port, frame.into()));
    }

    /// Sends a frame, which must not be empty, as soon as any port goes down.
    pub fn send_when_down(&mut self, port: PortId, frame: impl Into<Vec<u8>>) {
        self.last_words.push_back((port, frame.into()));
    }

    /// Sends a request about ports to its driver.
    pub fn request(&mut self, request: PortRequest) {
        self.requests.push_back(request);
    }

    /// Returns the received frames in order.
    pub fn frames(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.heard.iter().filter_map(|(_, heard)| match heard {
            Heard::Frame(_, frame) => Some(frame.as_slice()),
            _ => None,
        })
    }
}

impl Machine for Probe {
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        if event == PortEvent::Down {
            self.outgoing.append(&mut self.last_words);
        }
        self.heard.push((now, Heard::Port(port, event)));
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        self.heard.push((now, Heard::Refusal(token, refusal)));
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        let frames = frames.iter().map(|it| Heard::Frame(port, it.to_vec()));
        self.heard.extend(frames.map(|heard| (now, heard)));
    }

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (port, frame) = self.outgoing.pop_front()?;
        buffer.extend_from_slice(&frame);
        Some(Transmit {
            port,
            size: frame.len(),
            segment_size: None,
        })
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.requests.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}
