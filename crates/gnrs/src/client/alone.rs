//! A resolver as a machine of its own.

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};

use super::{Resolver, ResolverEvent};

/// A resolver of a program that is neither host nor router: each port that comes up is a server.
#[derive(Debug)]
pub struct LoneResolver(pub Resolver);

impl Machine for LoneResolver {
    type Event = ResolverEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        if matches!(event, PortEvent::Up(_)) && !self.0.owns(port) {
            self.0.add_server(port);
        }
        self.0.handle_port(now, port, event);
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            self.0.handle_frame(now, port, frame);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.0.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, _: usize, buffer: &mut Vec<u8>) -> Option<Transmit> {
        self.0.poll_transmit(now, buffer)
    }

    fn poll_event(&mut self) -> Option<ResolverEvent> {
        self.0.poll_event()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.0.poll_timeout()
    }
}
