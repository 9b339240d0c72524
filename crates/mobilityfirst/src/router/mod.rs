//! The router: moves chunks towards their names, and keeps those whose names are away.
//!
//! A chunk's walk [MFTP §3.2 to 3.4]:
//!
//! 1. a hop delivers it whole ([`crate::links`]); it holds room in the back-pressure buffer from
//!    then on;
//! 2. [`forward`](self) decides: for this router, for a host attached here, to another address, or
//!    to be bound;
//! 3. binding asks the name service, once per name however many chunks wait
//!    ([`whimbrel_gnrs::Resolver`]);
//! 4. what cannot go on is pushed up to the proxy and stored ([`store`]), its source is told, and
//!    it is tried again when the storage timer fires or at once when the name service pushes a
//!    changed binding;
//! 5. the next hop takes it whole, and its room in the buffer is free again.
//!
//! Memory is bounded by configuration: the back-pressure buffer, the storage, and for each
//! neighbour what its hop may hold (`docs/protocols/hop.md`); tables are bounded by the constants
//! in this module.

mod attach;
mod config;
mod forward;
mod notices;
mod own_names;
mod proxy;
mod routes;
mod status;
pub mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Guid, Machine, OpenRefusal, PortEvent, PortId, PortOrigin, PortRequest, PortToken,
    SeededRng, Time, TimerQueue, Transmit,
};
use whimbrel_gnrs::{Resolver, ResolverConfig, ResolverEvent};

use crate::charge::Pool;
use crate::chunk::Chunk;
use crate::links::{LEFT_OVER, LinkEvent, Links, MAX_TURNS, Outgoing};
use crate::local::{LocalEvent, LocalRequest};
use crate::next_hops::Divisions;
use crate::room::Room;
use crate::wire::{DropReason, UpperProtocol};
use attach::Attachments;
pub use config::{NextHop, ProxyPolicy, Route, RouterConfig};
use own_names::OwnNames;
use proxy::Proxy;
use routes::Routes;
pub use status::{RouterCounters, RouterMemory, RouterStatus};
use store::ENTRY_BYTES;

/// Bytes of messages of its own that a router has on their way, one more or less.
const MAX_SAID: u64 = 8 << 20;
/// Answers to local programs that wait to be written; a program that never reads loses further
/// ones.
const MAX_LOCAL_QUEUED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// An attachment's record expires.
    Attachment(Guid, PortId),
    /// Chunks for this destination are tried again.
    Storage(Guid),
    /// Some stored chunk reaches the end of its lifetime.
    Lifetime,
    /// Are chunks held back by a neighbour?
    HeldBack,
}

/// A MobilityFirst router as a state machine.
pub struct Router {
    config: RouterConfig,
    links: Links,
    resolver: Resolver,
    // Instead of a name service, if none is configured.
    own_names: Option<OwnNames>,
    attachments: Attachments,
    routes: Routes,
    divisions: Divisions,
    proxy: Proxy,
    // Chunks that wait for the name service, by the name that was asked for. Their number is
    // bounded by the back-pressure buffer.
    unbound: BTreeMap<Guid, Vec<Outgoing>>,
    // Messages of its own.
    said: Pool,
    timers: TimerQueue<Timer>,
    local_ports: BTreeSet<PortId>,
    local_queue: VecDeque<(PortId, Vec<u8>)>,
    rng: SeededRng,
    // When work was left over in `settle`.
    unsettled: Option<Time>,
    counters: RouterCounters,
}

impl Router {
    /// A router without ports. Everything random in it comes from `rng`.
    pub fn new(config: RouterConfig, mut rng: SeededRng) -> Router {
        let links = Links::new(
            config.hop.clone(),
            config.buffer_packets,
            SeededRng::new(rng.next_word()),
        );
        let resolver = Resolver::new(
            ResolverConfig::default(),
            config.wall,
            SeededRng::new(rng.next_word()),
        );
        let proxy = Proxy::new(config.store, &mut rng);
        let mut timers = TimerQueue::new();
        timers.set(
            Timer::HeldBack,
            Time::ZERO + config.proxy.held_back_patience,
        );
        Router {
            links,
            resolver,
            own_names: config.name_servers.is_empty().then(OwnNames::new),
            attachments: Attachments::default(),
            routes: Routes::new(config.routes.clone(), config.default_route),
            divisions: Divisions::default(),
            proxy,
            unbound: BTreeMap::new(),
            said: Pool::default(),
            timers,
            local_ports: BTreeSet::new(),
            local_queue: VecDeque::new(),
            rng,
            unsettled: None,
            counters: RouterCounters::default(),
            config,
        }
    }

    /// The router's GUID.
    pub fn guid(&self) -> Guid {
        self.config.guid
    }

    /// Drains hop and resolver events until both are quiet.
    ///
    /// Handling one event may cause others, but a node that is only busy with itself is deaf: after
    /// [`MAX_TURNS`] the rest waits until the driver has handed in what has arrived meanwhile.
    fn settle(&mut self, now: Time) {
        self.unsettled = None;
        let mut turns = 0..MAX_TURNS;
        while turns.next().is_some() {
            if let Some(event) = self.links.poll_event(now) {
                self.handle_link_event(now, event);
                continue;
            }
            if let Some(event) = self.resolver.poll_event() {
                self.handle_resolver_event(now, event);
                continue;
            }
            let released = self.release_stored(now);
            let told = self.send_notices(now);
            if !released && !told {
                return;
            }
        }
        self.counters.unsettled += 1;
        self.unsettled = Some(now);
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Up { port, .. } => {
                self.challenge(port);
                self.retry_waiting(now);
            }
            LinkEvent::Restarted(_, handed) => self.tell_receivers(now, handed),
            LinkEvent::Received { port, bytes, room } => self.handle_chunk(now, port, &bytes, room),
            LinkEvent::Delivered(carried) => {
                self.counters.chunks_forwarded += 1;
                self.proxy.forget_lingering(carried);
            }
            LinkEvent::TooLarge(_, outgoing) => {
                self.note_drop(&outgoing.chunk, DropReason::TooLarge)
            }
            LinkEvent::Unresponsive(port) => self.store_what_waits_for(now, port),
            LinkEvent::Responsive(port) => {
                self.resume_lingering(port);
                self.retry_waiting(now);
            }
            LinkEvent::Down(port, returned) => {
                self.detach_port(port);
                self.proxy.forget_lingering_on(port);
                for outgoing in returned {
                    self.forward(now, outgoing);
                }
            }
        }
    }

    fn handle_resolver_event(&mut self, now: Time, event: ResolverEvent) {
        match event {
            ResolverEvent::Resolved { guid, answer } => {
                for outgoing in self.unbound.remove(&guid).unwrap_or_default() {
                    self.bind(now, outgoing, guid, &answer);
                }
                self.bind_stored(now, guid, &answer);
            }
            ResolverEvent::Unresolvable { guid, why } => {
                for outgoing in self.unbound.remove(&guid).unwrap_or_default() {
                    self.handle_unresolvable(now, outgoing, guid, why);
                }
                self.keep_stored(now, guid);
            }
            ResolverEvent::Changed { guid, answer } => {
                self.counters.bindings_pushed += 1;
                self.attachments
                    .forget_if_moved(&guid, &self.config.guid, answer.binding.as_ref());
                self.bind_stored(now, guid, &answer);
            }
            ResolverEvent::Registered { guid, version } => self.report_registered(guid, version),
            ResolverEvent::Refused { guid, code } => self.report_refused(guid, code),
        }
    }

    fn handle_local(&mut self, now: Time, port: PortId, frame: &[u8]) {
        match LocalRequest::decode(&Bytes::copy_from_slice(frame)) {
            Ok(LocalRequest::Status { request }) => {
                let json = serde_json::to_string(&self.status(now)).unwrap_or_default();
                let mut answer = Vec::new();
                LocalEvent::Status { request, json }.encode_head(&mut answer);
                if self.local_queue.len() < MAX_LOCAL_QUEUED {
                    self.local_queue.push_back((port, answer));
                }
            }
            _ => self.counters.drop("local-request"),
        }
    }

    fn handle_due(&mut self, now: Time, timer: Timer) {
        match timer {
            Timer::Attachment(guid, port) => self.attachments.remove(&guid, port),
            Timer::Storage(destination) => self.retry_destination(now, destination),
            Timer::Lifetime => self.drop_expired(now),
            Timer::HeldBack => {
                self.timers
                    .set(Timer::HeldBack, now + self.config.proxy.held_back_patience);
                self.relieve_held_back(now);
            }
        }
    }
}

impl Machine for Router {
    /// A router has nothing to tell the program around it: who asks gets a status.
    type Event = core::convert::Infallible;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        if let PortEvent::Up(info) = &event {
            if info.origin.is_local() {
                self.local_ports.insert(port);
                return;
            }
            if let PortOrigin::Configured(link) = info.origin
                && self.config.name_servers.contains(&link)
            {
                self.resolver.add_server(port);
            }
        }
        if self.local_ports.contains(&port) {
            if event == PortEvent::Down {
                self.local_ports.remove(&port);
                self.local_queue.retain(|(to, _)| *to != port);
            }
        } else if self.resolver.owns(port) {
            self.resolver.handle_port(now, port, event);
        } else {
            self.links.handle_port(now, port, &event);
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            if self.links.has(port) {
                self.links.handle_frame(now, port, frame);
            } else if self.resolver.owns(port) {
                self.resolver.handle_frame(now, port, frame);
            } else if self.local_ports.contains(&port) {
                self.handle_local(now, port, frame);
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.links.handle_timeout(now);
        self.resolver.handle_timeout(now);
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
        self.settle(now);
        if let Some((port, frame)) = self.local_queue.pop_front() {
            buffer.extend_from_slice(&frame);
            return Some(Transmit {
                port,
                size: frame.len(),
                segment_size: None,
            });
        }
        if let Some(transmit) = self.links.poll_transmit(now, max_segments, buffer) {
            return Some(transmit);
        }
        self.resolver.poll_transmit(now, buffer)
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
                    Timer::Storage(_) => "storage timer",
                    Timer::Lifetime => "lifetime of a stored chunk",
                    Timer::HeldBack => "held-back chunks",
                },
            )
        });
        let below = Deadline::earlier(self.links.poll_timeout(), self.resolver.poll_timeout());
        let left_over = self.unsettled.map(|at| Deadline::new(at, LEFT_OVER));
        Deadline::earlier(left_over, Deadline::earlier(below, own))
    }
}

impl Router {
    /// A chunk of this router's own; `None` if too many are on their way: those who would get it
    /// have timers. Who makes the router answer echoes, or send notices, can not keep it from
    /// letting hosts attach.
    fn own(&mut self, chunk: Chunk) -> Option<Outgoing> {
        let limit = match chunk.header.upper {
            UpperProtocol::Echo => MAX_SAID / 2,
            UpperProtocol::Transport => MAX_SAID / 4 * 3,
            UpperProtocol::Control => MAX_SAID,
        };
        if self.said.bytes() >= limit {
            self.counters.drop("own-message");
            return None;
        }
        let charge = self.said.charge(chunk.size() as u64 + ENTRY_BYTES);
        Some(Outgoing {
            chunk,
            room: Room::default(),
            charge,
        })
    }

    fn say(&mut self, now: Time, chunk: Chunk) {
        if let Some(outgoing) = self.own(chunk) {
            self.forward(now, outgoing);
        }
    }
}
