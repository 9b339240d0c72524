//! The host stack: what local programs attach to.
//!
//! It keeps the host bound to its access routers ([`attach`](self)), fetches content for local
//! programs (`download`), and sends the content that they publish (`upload`). End-to-end recovery
//! is "parsimonious" [MFTP §3.2.2]: hops are reliable, so the
//! receiver speaks up only when chunks have been missing for long.

mod attach;
mod catalogue;
mod config;
mod download;
mod ping;
mod status;
mod upload;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use whimbrel_core::{
    Deadline, Guid, Machine, OpenRefusal, PortEvent, PortId, PortRequest, PortToken, SeededRng,
    Time, TimerQueue, Transmit,
};

use crate::charge::Charge;
use crate::chunk::{Chunk, Message};
use crate::handed::HandedOver;
use crate::links::{LEFT_OVER, LinkEvent, Links, MAX_TURNS, Outgoing};
use crate::local::{LocalEvent, LocalRequest};
use crate::next_hops::{Branch, Divisions, NextHops, Spread};
use crate::room::Room;
use crate::wire::{Control, Echo, NetworkHeader, ServiceId, Transport, UpperProtocol};
use attach::Registration;
pub use config::HostConfig;
use download::Downloads;
use ping::Pings;
pub use status::{HostCounters, HostStatus};
use upload::{Presence, Uploads};

/// Events that wait for one program; beyond, those that it can do without are dropped.
const MAX_QUEUED_EVENTS: usize = 256;

/// A local program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum App {
    /// Behind a Unix socket.
    Port(PortId),
    /// In this process, with a number of its choice.
    Inner(u32),
}

/// An event for a program in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEvent {
    /// The program's number.
    pub app: u32,
    /// The event.
    pub event: LocalEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Renewal,
    Announcements,
    Download(u64),
    Uploads,
}

/// How something leaves this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// By the preferred router that answers, or the host that this one was told to ask.
    Uplink,
    /// Back to who called on this port, whatever name it gives itself: a name in a greeting or a
    /// header proves nothing, so what goes to that name by the uplink is another matter.
    Caller(PortId),
}

#[derive(Default)]
struct LocalPort {
    queue: VecDeque<LocalEvent>,
    blocked: bool,
}

/// A MobilityFirst host as a state machine.
pub struct Host {
    config: HostConfig,
    guid: Guid,
    links: Links,
    registration: Registration,
    downloads: Downloads,
    uploads: Uploads,
    pings: Pings,
    timers: TimerQueue<Timer>,
    local: BTreeMap<PortId, LocalPort>,
    callers: BTreeSet<PortId>,
    divisions: Divisions,
    inner_events: VecDeque<HostEvent>,
    // When work was left over in `settle`.
    unsettled: Option<Time>,
    counters: HostCounters,
}

impl Host {
    /// A host without ports. Everything random in it comes from `rng`.
    pub fn new(config: HostConfig, mut rng: SeededRng) -> Host {
        let links = Links::new(
            config.hop.clone(),
            config.buffer_packets,
            SeededRng::new(rng.next_word()),
        );
        Host {
            guid: config.keys.guid(),
            links,
            registration: Registration::default(),
            downloads: Downloads::default(),
            uploads: Uploads::default(),
            pings: Pings::new(rng.next_word()),
            timers: TimerQueue::new(),
            local: BTreeMap::new(),
            callers: BTreeSet::new(),
            divisions: Divisions::default(),
            inner_events: VecDeque::new(),
            unsettled: None,
            counters: HostCounters::default(),
            config,
        }
    }

    /// The host's GUID.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// A request of a program in this process; what comes of it is told by [`Machine::poll_event`].
    pub fn request(&mut self, now: Time, app: u32, request: LocalRequest) {
        self.handle_request(now, App::Inner(app), request);
    }

    fn handle_request(&mut self, now: Time, app: App, request: LocalRequest) {
        match request {
            LocalRequest::Get(get) => self.start_download(now, app, get),
            LocalRequest::Cancel { request } => self.cancel_download(app, request),
            LocalRequest::Consumed { request } => self.note_consumed(app, request),
            LocalRequest::Publish(publish) => self.publish(now, app, publish),
            LocalRequest::Withdraw { content } => self.withdraw(now, app, content),
            LocalRequest::ReadDone { read, chunk } => self.finish_read(now, app, read, chunk),
            LocalRequest::Ping {
                request,
                destination,
                sequence,
                padding,
            } => {
                self.send_ping(app, request, destination, sequence, padding);
            }
            LocalRequest::Status { request } => {
                let json = serde_json::to_string(&self.status(now)).unwrap_or_default();
                self.tell(app, LocalEvent::Status { request, json });
            }
        }
    }

    /// Queues an event for a program. What a program asked for is bounded by what it may ask; only
    /// reports are dropped when it does not read.
    fn tell(&mut self, app: App, event: LocalEvent) {
        match app {
            App::Inner(app) => self.inner_events.push_back(HostEvent { app, event }),
            App::Port(port) => {
                let Some(local) = self.local.get_mut(&port) else {
                    return;
                };
                let optional = matches!(
                    event,
                    LocalEvent::State { .. } | LocalEvent::Status { .. } | LocalEvent::Pong { .. }
                );
                if optional && local.queue.len() >= MAX_QUEUED_EVENTS {
                    return self.counters.drop("local-report");
                }
                local.queue.push_back(event);
            }
        }
    }

    fn forget_app(&mut self, now: Time, app: App) {
        self.forget_downloads_of(app);
        self.forget_contents_of(now, app);
        self.pings.forget(app);
    }

    /// Drains hop events until the hops are quiet, and sends what there is room for.
    ///
    /// As with a router, what is left after [`MAX_TURNS`] waits for the driver's next round.
    fn settle(&mut self, now: Time) {
        self.unsettled = None;
        let mut turns = 0..MAX_TURNS;
        while turns.next().is_some() {
            if let Some(event) = self.links.poll_event(now) {
                self.handle_link_event(now, event);
                continue;
            }
            if !self.send_announcements(now) && !self.read_ahead(now) {
                return;
            }
        }
        self.counters.unsettled += 1;
        self.unsettled = Some(now);
    }

    fn handle_link_event(&mut self, now: Time, event: LinkEvent) {
        match event {
            LinkEvent::Up { port, neighbour } if self.is_uplink(port) => {
                self.router_up(now, port, neighbour)
            }
            // A caller asks when it wants something.
            LinkEvent::Up { .. } => {}
            LinkEvent::Restarted(port, handed) if self.is_uplink(port) => {
                self.tell_receivers(handed)
            }
            // A caller that restarts has forgotten what it asked for.
            LinkEvent::Restarted(..) => {}
            LinkEvent::Received { port, bytes, room } => self.handle_chunk(now, port, &bytes, room),
            LinkEvent::Delivered(_) => self.counters.chunks_sent += 1,
            LinkEvent::TooLarge(port, outgoing) => {
                self.upload_too_large(self.way_back(port), &outgoing.chunk)
            }
            LinkEvent::Unresponsive(_) => self.router_silent(now),
            LinkEvent::Responsive(port) if self.is_uplink(port) => self.router_back(now),
            LinkEvent::Responsive(_) => {}
            LinkEvent::Down(port, _) if self.callers.remove(&port) => {
                self.forget_uploads_to(Way::Caller(port))
            }
            LinkEvent::Down(port, returned) => {
                self.router_gone(now, port);
                for outgoing in returned {
                    self.resend(now, outgoing);
                }
            }
        }
    }

    fn handle_chunk(&mut self, now: Time, from: PortId, bytes: &Bytes, room: Room) {
        self.counters.chunks_received += 1;
        let Ok(chunk) = Chunk::decode(bytes) else {
            return self.counters.drop("bad-chunk");
        };
        if chunk.header.upper == UpperProtocol::Control {
            return match Control::decode(&chunk.message.head) {
                Ok(control) => self.handle_control(now, from, control),
                Err(_) => self.counters.drop("bad-control"),
            };
        }
        let asks_us = chunk.header.service.has(ServiceId::CONTENT_REQUEST);
        if chunk.header.destination != self.guid && !asks_us {
            return self.counters.drop("not-for-this-host");
        }
        if chunk.header.upper == UpperProtocol::Echo {
            return match Echo::decode(&chunk.message.head) {
                Ok(echo) => self.handle_echo(self.way_back(from), &chunk, echo),
                Err(_) => self.counters.drop("bad-echo"),
            };
        }
        let way = self.way_back(from);
        match chunk.transport() {
            Ok(
                Transport::Data(_) | Transport::Store(_) | Transport::Drop(..) | Transport::Lost(_),
            ) if way != Way::Uplink => self.counters.drop("not-for-a-caller-to-say"),
            // The chunk's room in the buffer goes with it until a program has taken it.
            Ok(Transport::Data(data)) => self.handle_data(now, &chunk.header, data, room),
            Ok(Transport::Request(request) | Transport::Nack(request)) => {
                self.handle_wanted(now, way, &chunk.header, request, Presence::MayBeUnderWay);
            }
            Ok(Transport::Resend(request)) => {
                self.handle_wanted(now, way, &chunk.header, request, Presence::Lost);
            }
            Ok(Transport::Lost(notice)) => self.handle_lost(now, &notice),
            Ok(Transport::Ack(request)) => self.handle_ack(way, &chunk.header, &request),
            Ok(Transport::Store(notice)) => self.handle_store(now, &chunk.header, notice),
            Ok(Transport::Drop(notice, reason)) => {
                self.handle_drop(now, chunk.header.source, notice, reason)
            }
            Ok(Transport::Push(_)) => self.counters.drop("push-to-a-host"),
            Err(_) => self.counters.drop("bad-transport"),
        }
    }

    /// The link that this host sends by now, unless a chunk's service asks for several: the most
    /// preferred one whose router answers.
    fn uplink(&self) -> Option<PortId> {
        self.hops_by(Way::Uplink).best().map(|branch| branch.port)
    }

    /// The way by which an answer to what came in on a port goes.
    fn way_back(&self, from: PortId) -> Way {
        if self.is_uplink(from) {
            Way::Uplink
        } else {
            Way::Caller(from)
        }
    }

    /// The next hops of a way.
    fn hops_by(&self, way: Way) -> NextHops {
        match way {
            Way::Uplink => self.uplinks(),
            Way::Caller(port) => NextHops::from_iter([Branch::over(port, &self.links)]),
        }
    }

    /// The best port of a way that is open now.
    fn port_by(&self, way: Way) -> Option<PortId> {
        self.hops_by(way).best().map(|branch| branch.port)
    }

    fn header(
        &self,
        way: Way,
        service: ServiceId,
        upper: UpperProtocol,
        to: Guid,
        address: Guid,
    ) -> NetworkHeader {
        let mut header = NetworkHeader::new(service, upper, self.guid, to);
        header.source_address = self
            .port_by(way)
            .and_then(|port| self.links.neighbour(port))
            .unwrap_or(Guid::NONE);
        header.destination_address = address;
        header
    }

    /// Sends a chunk of this host's own; `Err` gives it back if nobody answers on that way.
    fn send(&mut self, way: Way, chunk: Chunk) -> Result<(), Chunk> {
        let hops = self.hops_by(way);
        let spread = Spread::of(chunk.header.service);
        let chosen = hops.select(spread, chunk.flow(), chunk.size(), &mut self.divisions);
        let mut sent = false;
        for branch in chosen {
            let outgoing = Outgoing {
                chunk: chunk.clone(),
                room: Room::default(),
                charge: Charge::default(),
            };
            sent |= self.links.enqueue(branch.port, outgoing).is_ok();
        }
        if sent { Ok(()) } else { Err(chunk) }
    }

    fn send_transport(
        &mut self,
        service: ServiceId,
        to: Guid,
        address: Guid,
        transport: &Transport,
    ) -> bool {
        let header = self.header(Way::Uplink, service, UpperProtocol::Transport, to, address);
        self.send(Way::Uplink, Chunk::of_transport(header, transport))
            .is_ok()
    }

    fn send_message(&mut self, way: Way, header: NetworkHeader, head: Vec<u8>) -> bool {
        let message = Message {
            head: head.into(),
            body: Bytes::new(),
        };
        self.send(way, Chunk { header, message }).is_ok()
    }

    /// A router has restarted that had taken over chunks of this host's uploads: their receivers
    /// know what has not come.
    fn tell_receivers(&mut self, handed: Vec<HandedOver>) {
        for notice in handed.into_iter().map(HandedOver::into_lost) {
            let service = ServiceId::DELAY_TOLERANT;
            self.send_transport(
                service,
                notice.destination,
                Guid::NONE,
                &Transport::Lost(notice),
            );
        }
    }

    /// A port went down with this chunk undelivered: another link takes it, or recovery end to end
    /// does.
    fn resend(&mut self, _now: Time, outgoing: Outgoing) {
        if self.send(Way::Uplink, outgoing.chunk).is_err() {
            self.counters.drop("no-router");
        }
    }
}

impl Machine for Host {
    type Event = HostEvent;

    fn handle_port(&mut self, now: Time, port: PortId, event: PortEvent) {
        match (&event, self.local.get_mut(&port)) {
            (PortEvent::Up(info), _) if info.origin.is_local() => {
                self.local.insert(port, LocalPort::default());
            }
            (PortEvent::Down, Some(_)) => {
                self.local.remove(&port);
                self.forget_app(now, App::Port(port));
            }
            (PortEvent::Blocked, Some(local)) => local.blocked = true,
            (PortEvent::Writable, Some(local)) => local.blocked = false,
            (_, Some(_)) => {}
            (_, None) => {
                if matches!(&event, PortEvent::Up(info) if info.origin.is_caller()) {
                    self.callers.insert(port);
                }
                self.links.handle_port(now, port, &event);
            }
        }
    }

    fn handle_refusal(&mut self, _: Time, _: PortToken, _: OpenRefusal) {}

    fn handle_frames(&mut self, now: Time, port: PortId, frames: &[&[u8]]) {
        for frame in frames {
            if self.links.has(port) {
                self.links.handle_frame(now, port, frame);
            } else if self.local.contains_key(&port) {
                match LocalRequest::decode(&Bytes::copy_from_slice(frame)) {
                    Ok(request) => self.handle_request(now, App::Port(port), request),
                    Err(_) => self.counters.drop("local-request"),
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.links.handle_timeout(now);
        let mut pass = self.timers.pass(now);
        while let Some((_, timer)) = pass.next(&mut self.timers) {
            match timer {
                Timer::Renewal => self.renew(now),
                Timer::Announcements => self.renew_announcements(now),
                Timer::Download(id) => self.check_download(now, id),
                Timer::Uploads => self.check_uploads(now),
            }
        }
    }

    fn poll_transmit(
        &mut self,
        now: Time,
        max_segments: usize,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        self.settle(now);
        for (port, local) in &mut self.local {
            if !local.blocked
                && let Some(event) = local.queue.pop_front()
            {
                let start = buffer.len();
                let tail = event.encode_head(buffer);
                buffer.extend_from_slice(&tail);
                return Some(Transmit {
                    port: *port,
                    size: buffer.len() - start,
                    segment_size: None,
                });
            }
        }
        self.links.poll_transmit(now, max_segments, buffer)
    }

    fn poll_event(&mut self) -> Option<HostEvent> {
        self.inner_events.pop_front()
    }

    fn poll_port_request(&mut self) -> Option<PortRequest> {
        self.links.poll_port_request()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let own = self.timers.next().map(|(at, timer)| {
            Deadline::new(
                at,
                match timer {
                    Timer::Renewal => "binding to be renewed",
                    Timer::Announcements => "announcement to be renewed",
                    Timer::Download(_) => "chunks missing for long",
                    Timer::Uploads => "paused or idle uploads",
                },
            )
        });
        let left_over = self.unsettled.map(|at| Deadline::new(at, LEFT_OVER));
        Deadline::earlier(left_over, Deadline::earlier(self.links.poll_timeout(), own))
    }
}
