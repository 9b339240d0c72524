//! A name server, and the local programs that ask it for its state.

use whimbrel_core::{
    Deadline, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, Time, Transmit,
};
use whimbrel_gnrs::{Server, ServerEvent, Store};
use whimbrel_mobilityfirst::local::{Frame, LocalEvent, Programs};

/// A name server to which local programs attach as to a router. The server itself does not know
/// them: frames from their ports are not packets of its protocol.
#[derive(Debug)]
pub struct NameServer<S> {
    server: Server<S>,
    programs: Programs,
}

impl<S: Store> NameServer<S> {
    /// Returns a name server without programs.
    pub fn new(server: Server<S>) -> NameServer<S> {
        NameServer {
            server,
            programs: Programs::default(),
        }
    }

    /// Returns the server.
    pub fn server(&self) -> &Server<S> {
        &self.server
    }

    /// Returns the server, for changes.
    pub fn server_mut(&mut self) -> &mut Server<S> {
        &mut self.server
    }

    fn handle_program(&mut self, now: Time, port: PortId, frame: &[u8]) {
        // Programs may request only the status.
        let Frame::Status(request) = self.programs.read(port, frame) else {
            return;
        };
        let json = serde_json::to_string(&self.server.status(now)).unwrap_or_default();
        self.programs
            .tell(port, &LocalEvent::Status { request, json });
    }
}

impl<S: Store> Machine for NameServer<S> {
    type Event = ServerEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match &event {
            PortEvent::Up(info) if info.origin.is_local() => self.programs.attach(port),
            PortEvent::Down if self.programs.has(port) => self.programs.detach(port),
            _ if self.programs.has(port) => {}
            _ => self.server.handle_port(now, port, event),
        }
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        self.server.handle_refusal(now, token, refusal);
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        if !self.programs.has(port) {
            return self.server.handle_frames(now, port, frames);
        }
        for frame in frames {
            self.handle_program(now, port, frame);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.server.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.programs
            .poll_transmit(buffer)
            .or_else(|| self.server.poll_transmit(now, max_segments, buffer))
    }

    fn poll_event(&mut self) -> Option<ServerEvent> {
        self.server.poll_event()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.server.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.server.poll_timeout()
    }
}
