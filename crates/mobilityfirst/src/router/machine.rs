//! A router as a machine: frames, ports and time in, frames, events and a deadline out.

use super::*;

impl Machine for Router {
    /// A router has no events for the program around it, which can request its status.
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        if let PortEvent::Up(info) = &event {
            if info.origin.is_local() {
                self.programs.attach(port);
                return;
            }
            if let PortOrigin::Configured(link) = info.origin
                && self.config.name_servers.contains(&link)
            {
                self.binding.names.resolver.add_server(port);
                self.timers.set_earlier(Timer::OwnRecord, now);
            }
        }
        if self.programs.has(port) {
            if event == PortEvent::Down {
                self.programs.detach(port);
            }
        } else if self.binding.names.resolver.owns(port) {
            self.binding.names.resolver.handle_port(now, port, event);
        } else {
            self.links.handle_port(now, port, &event);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            if self.links.has(port) {
                self.links.handle_frame(now, port, frame);
            } else if self.binding.names.resolver.owns(port) {
                self.binding.names.resolver.handle_frame(now, port, frame);
            } else if self.programs.has(port) {
                self.handle_program(now, port, frame);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.links.handle_timeout(now);
        self.binding.names.resolver.handle_timeout(now);
        let mut pass = self.timers.pass(now);
        while let Some((_, timer)) = pass.next(&mut self.timers) {
            self.handle_due(now, timer);
        }
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.drain(now);
        if let Some(transmit) = self.programs.poll_transmit(buffer) {
            return Some(transmit);
        }
        if let Some(transmit) = self.links.poll_transmit(now, max_segments, buffer) {
            return Some(transmit);
        }
        self.binding.names.resolver.poll_transmit(now, buffer)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.links.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self.timers.next().map(|(at, timer)| {
            Deadline::new(
                at,
                match timer {
                    Timer::Attachment(..) => "attachment expires",
                    Timer::Challenge(_) => "a host that attaches too often",
                    Timer::Storage(_) => "storage timer",
                    Timer::Lifetime => "lifetime of a stored chunk",
                    Timer::HeldBack => "held-back chunks",
                    Timer::Holds => "flows that are held back",
                    Timer::Parked => "chunks of sources that are not proven",
                    Timer::RegisterAgain => "records to register again",
                    Timer::OwnRecord => "the router's own record",
                    Timer::Followed => "an idle destination",
                    Timer::Review => "destinations that are left to be looked at",
                    Timer::Disk => "a disk that could not read",
                    Timer::Fetches => "clients that wait for what others fetch",
                    Timer::Routing => "routing",
                },
            )
        });
        let below = Deadline::earlier(
            self.links.poll_timeout(),
            self.binding.names.resolver.poll_timeout(),
        );
        let left_over = self.left_over.map(|at| Deadline::new(at, LEFT_OVER));
        Deadline::earlier(left_over, Deadline::earlier(below, own))
    }
}
