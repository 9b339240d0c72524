//! A program that may stop reading.

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_transport::{AppFace, FetchEvent, Fetcher};

/// A fetch whose program may stop reading.
pub(super) struct Reader {
    pub(super) face: AppFace<Fetcher>,
    // True if it was paused together with its host's other programs, or alone.
    pub(super) paused: bool,
    pub(super) stalled: bool,
}

impl Machine for Reader {
    type Event = FetchEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        self.face.handle_port(now, port, event);
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        self.face.handle_refusal(now, token, refusal);
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        self.face.handle_frames(now, port, frames);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.face.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.face.poll_transmit(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<FetchEvent> {
        (!self.paused && !self.stalled)
            .then(|| self.face.poll_event())
            .flatten()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.face.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.face.poll_timeout()
    }
}
