//! An application with one face to a forwarder, as the machine that a loop drives.

use core::time::Duration;
use std::collections::VecDeque;

use whimbrel_core::{
    Deadline, Endpoint, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng,
    Time, Transmit,
};
use whimbrel_link::ndnlp::{LinkEvent, LinkService, LinkServiceConfig};
use whimbrel_transport::{AppFace, Application, FaceNumber};

/// The token of the only port that a program requests.
const FORWARDER: PortToken = PortToken(0);
/// Pause before a lost forwarder is called again.
const RECONNECT: Duration = Duration::from_secs(1);
/// Bytes of packets that a datagram link holds before the application is asked for more.
const LINK_QUEUE: usize = 256 * 1024;

/// An event for a program.
#[derive(Debug)]
pub enum Told<E> {
    /// From its application.
    Event(E),
    /// The forwarder is connected.
    Connected,
    /// The forwarder has gone. It will be called again every second until it is back.
    Gone,
    /// The forwarder could not be reached. It will be called again in a second.
    Unreachable(OpenRefusal),
}

/// The application, with the carrier of its packets.
enum Face<A: Application> {
    Stream(AppFace<A>),
    Datagrams(Box<LinkedFace<A>>),
}

/// The application, its face, and when the forwarder is called again.
pub(crate) struct ProgramFace<A: Application> {
    face: Face<A>,
    endpoint: Endpoint,
    events: VecDeque<Told<A::Event>>,
    port: Option<PortId>,
    request: Option<PortRequest>,
    // True if the port was requested, and is neither up nor refused yet.
    calling: bool,
    call_at: Option<Time>,
}

impl<A: Application> ProgramFace<A> {
    /// Returns an application over a stream, which carries packets of all sizes.
    pub(crate) fn on_stream(endpoint: Endpoint, application: A) -> ProgramFace<A> {
        ProgramFace::new(endpoint, Face::Stream(AppFace::new(application)))
    }

    /// Returns an application over datagrams, in which larger packets are fragmented.
    pub(crate) fn on_datagrams(
        endpoint: Endpoint,
        application: A,
        rng: SeededRng,
    ) -> ProgramFace<A> {
        let config = LinkServiceConfig {
            marking: false,
            finds_path_mtu: true,
            ..LinkServiceConfig::datagram(1472)
        };
        let face = LinkedFace {
            application,
            link: LinkService::new(config, rng),
            port: None,
            blocked: false,
        };
        ProgramFace::new(endpoint, Face::Datagrams(Box::new(face)))
    }

    fn new(endpoint: Endpoint, face: Face<A>) -> ProgramFace<A> {
        ProgramFace {
            face,
            endpoint,
            events: VecDeque::new(),
            port: None,
            request: None,
            calling: false,
            call_at: Some(Time::ZERO),
        }
    }

    pub(crate) fn application(&self) -> &A {
        match &self.face {
            Face::Stream(face) => face.application(),
            Face::Datagrams(face) => &face.application,
        }
    }

    pub(crate) fn application_mut(&mut self) -> &mut A {
        match &mut self.face {
            Face::Stream(face) => face.application_mut(),
            Face::Datagrams(face) => &mut face.application,
        }
    }

    fn machine(&mut self) -> &mut dyn Machine<Event = A::Event> {
        match &mut self.face {
            Face::Stream(face) => face,
            Face::Datagrams(face) => &mut **face,
        }
    }
}

impl<A: Application> Machine for ProgramFace<A> {
    type Event = Told<A::Event>;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match &event {
            PortEvent::Up(_) if self.port.is_none() => {
                self.port = Some(port);
                self.calling = false;
                self.events.push_back(Told::Connected);
            }
            PortEvent::Down if self.port == Some(port) => {
                self.port = None;
                self.call_at = Some(now + RECONNECT);
                self.events.push_back(Told::Gone);
            }
            _ => {}
        }
        self.machine().handle_port(now, port, event);
    }

    fn handle_refusal(&mut self, now: Time, token: PortToken, refusal: OpenRefusal) {
        if token == FORWARDER && self.calling {
            self.calling = false;
            self.call_at = Some(now + RECONNECT);
            self.events.push_back(Told::Unreachable(refusal));
        }
    }

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        match &mut self.face {
            Face::Stream(face) => face.handle_frames(now, port, frames),
            Face::Datagrams(face) => face.handle_frames(now, port, frames),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.call_at.is_some_and(|at| at <= now) {
            self.call_at = None;
            self.calling = true;
            self.request = Some(PortRequest::Open {
                token: FORWARDER,
                label: String::from("forwarder"),
                endpoint: self.endpoint.clone(),
            });
        }
        self.machine().handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.machine().poll_transmit(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        let own = self.events.pop_front();
        own.or_else(|| self.machine().poll_event().map(Told::Event))
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        let own = self.request.take();
        own.or_else(|| self.machine().poll_port_request())
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self
            .call_at
            .map(|at| Deadline::new(at, "call the forwarder again"));
        let inner = match &self.face {
            Face::Stream(face) => face.poll_timeout(),
            Face::Datagrams(face) => face.poll_timeout(),
        };
        Deadline::earlier(own, inner)
    }
}

/// An application behind a link service.
struct LinkedFace<A: Application> {
    application: A,
    link: LinkService,
    port: Option<PortId>,
    blocked: bool,
}

impl<A: Application> Machine for LinkedFace<A> {
    type Event = A::Event;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        let ours = self.port.is_none_or(|current| current == port);
        match event {
            PortEvent::Up(info) if ours => {
                self.port = Some(port);
                self.link.set_mtu(info.mtu);
                self.application.handle_face(now, FaceNumber::FIRST, true);
            }
            PortEvent::Down if ours => {
                self.port = None;
                self.application.handle_face(now, FaceNumber::FIRST, false);
            }
            PortEvent::Mtu(mtu) if ours => self.link.set_mtu(mtu),
            PortEvent::Blocked if ours => self.set_blocked(true),
            PortEvent::Writable if ours => self.set_blocked(false),
            _ => {}
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, _port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            let application = &mut self.application;
            self.link.handle_frame(now, frame, &mut |packet| {
                application.handle_packet(now, FaceNumber::FIRST, packet)
            });
            self.handle_events();
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.link.handle_timeout(now);
        self.handle_events();
        self.application.handle_timeout(now);
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let port = self.port.filter(|_| !self.blocked)?;
        let mut handed = 0;
        while handed < LINK_QUEUE
            && self.link.stats().queue_bytes < LINK_QUEUE
            && let Some((packet, header)) = self.application.poll_packet(now, FaceNumber::FIRST)
        {
            handed += packet.len();
            self.link.send(now, packet, header);
        }
        let written = self.link.poll_transmit(now, max_segments, buffer)?;
        Some(Transmit {
            port,
            size: written.size,
            segment_size: written.segment_size,
        })
    }

    fn poll_event(&mut self) -> Option<A::Event> {
        self.application.poll_event()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        Deadline::earlier(self.application.poll_timeout(), self.link.poll_timeout())
    }
}

impl<A: Application> LinkedFace<A> {
    fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
        self.link.set_blocked(blocked);
    }

    /// Handles the link's events. Applications have timers of their own for losses.
    fn handle_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            if let LinkEvent::PathMtu(size) = event {
                tracing::info!(size, "the path MTU has changed");
            }
        }
    }
}
